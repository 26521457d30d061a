/* SPDX-License-Identifier: Apache-2.0 */
/* Names in a copy whose indices were made anew (check/rebuild_index.c), of what the records say
 * that are left. Nobody has the lost ones any longer, so nothing that comes later can contradict.
 *
 *   directories  the root, and those that an entry still points to, with the mode of a new one
 *   entries      of inodes to which none leads, under the name that the inode itself has noted
 *                (rule N3), if its directory is there, and nothing else has that name
 *
 * It comes before the check, which counts entries and links. The numbers of all inodes that entries
 * point to are in memory meanwhile, 8 bytes each. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/hash.h"
#include "store/check/fsck_impl.h"

#define NEW_DIR_MODE 0755u

struct numbers {
	uint64_t *nr;
	size_t cnt;
	size_t room;
};

struct reconnect {
	struct lpi_fsck *fsck;
	struct numbers pointed; /* to which an entry points */
};

static int note(struct numbers *numbers, uint64_t nr)
{
	if (numbers->cnt == numbers->room) {
		size_t room = LP_MAX(2 * numbers->room, (size_t)1024);
		uint64_t *more = reallocarray(numbers->nr, room, sizeof(*more));
		if (more == NULL)
			return -ENOMEM;
		numbers->nr = more;
		numbers->room = room;
	}
	numbers->nr[numbers->cnt++] = nr;
	return 0;
}

static int by_number(const void *a, const void *b)
{
	uint64_t one = *(const uint64_t *)a;
	uint64_t other = *(const uint64_t *)b;
	return one < other ? -1 : one > other;
}

/* --- Records ---------------------------------------------------------------------------------- */

/* The shard of an inode, if there is such a one. */
static struct lpi_fsck_shard *shard_of(const struct lpi_fsck *fsck, struct lp_ino ino)
{
	uint32_t idx = lp_ino_shard(ino);
	if (ino.nr == 0 || idx >= fsck->report->shards || !lpi_fsck_is_there(&fsck->shards[idx]))
		return NULL;
	return &fsck->shards[idx];
}

/* 1: it is there; 0: it is not. *ret_is_dir, *ret_is_spread: what it says, if it can be read. */
static int find_inode(const struct lpi_fsck *fsck, struct lp_ino ino, bool *ret_is_dir,
		      bool *ret_is_spread)
{
	const struct lpi_fsck_shard *shard = shard_of(fsck, ino);
	struct lp_kv_value value;
	struct lp_inode inode;
	struct lp_key key;
	*ret_is_dir = false;
	*ret_is_spread = false;
	if (shard == NULL)
		return 1; /* nobody knows */
	lp_key_of_ino(&key, LP_KEY_SPACE_INODE, ino);
	int err = lpi_fsck_get(shard, &key, &value);
	if (err < 0)
		return err == -ENOENT ? 0 : 1;
	if (lp_inode_decode(value.bytes.data, value.bytes.len, ino, &inode) == 0) {
		*ret_is_dir = inode.type == LP_INODE_TYPE_DIR && inode.nlink > 0;
		*ret_is_spread = (inode.flags & LP_INODE_FLAG_SPREAD) != 0;
	}
	lp_kv_value_release(&value);
	return 1;
}

static bool has_entry(const struct lpi_fsck_shard *shard, const struct lp_key *key)
{
	struct lp_kv_value value;
	int err = lpi_fsck_get(shard, key, &value);
	if (err == 0)
		lp_kv_value_release(&value);
	return err != -ENOENT;
}

/* Some entry of the directory lies on a shard that is not its own. */
static int is_spread(const struct lpi_fsck *fsck, struct lp_ino dir)
{
	struct lp_key_range range;
	lp_key_range_of_ino(&range, LP_KEY_SPACE_DIRENT, dir);
	for (uint32_t i = 0; i < fsck->report->shards; i++) {
		struct lp_kv_iter *iter = NULL;
		if (i == lp_ino_shard(dir) || !lpi_fsck_is_there(&fsck->shards[i]))
			continue;
		int err = lpi_fsck_iter_open(
			&fsck->shards[i], (struct lp_kv_bytes){range.first.bytes, range.first.len},
			(struct lp_kv_bytes){range.end.bytes, range.end.len}, &iter);
		if (err < 0)
			return err;
		err = lp_kv_iter_seek_first(iter);
		lp_kv_iter_close(iter);
		if (err == 0)
			return 1;
	}
	return 0;
}

/* --- Directories ------------------------------------------------------------------------------ */

static int put_dir(struct reconnect *reconnect, struct lp_ino ino, struct lp_ino parent,
		   struct lp_inode_bytes name)
{
	struct lpi_fsck *fsck = reconnect->fsck;
	struct lpi_fsck_shard *shard = shard_of(fsck, ino);
	int64_t now_ns = lpi_fsck_now_ns(fsck);
	uint8_t bytes[LP_INODE_BYTES_MAX];
	struct lp_key key;
	int spread = is_spread(fsck, ino);
	if (spread < 0)
		return spread;
	struct lp_inode inode = {.ino = ino,
				 .parent = parent,
				 .name = name,
				 .version_nr = 1,
				 .type = LP_INODE_TYPE_DIR,
				 .mode = NEW_DIR_MODE,
				 .nlink = spread > 0 ? 1 : 2,
				 .flags = spread > 0 ? LP_INODE_FLAG_SPREAD : 0,
				 .atime_ns = now_ns,
				 .mtime_ns = now_ns,
				 .ctime_ns = now_ns,
				 .btime_ns = now_ns};
	const struct lpi_fsck_at at = {
		.kind = LP_FSCK_ENTRY, .shard = shard, .ino = ino, .is_repaired = true};
	if (lp_inode_fault(&inode) != NULL)
		return 0;
	lp_key_of_ino(&key, LP_KEY_SPACE_INODE, ino);
	size_t len = lp_inode_encode(&inode, bytes);
	int err = lpi_fsck_put(shard, (struct lp_kv_bytes){key.bytes, key.len},
			       (struct lp_kv_bytes){bytes, len});
	if (err == 0)
		err = lpi_fsck_settle(shard);
	if (err == 0)
		lpi_fsck_found(fsck, &at,
			       "the directory was lost, and was made anew: its owner is root, its "
			       "mode 0755");
	return err;
}

/* The inode that an entry says is a directory. */
static int take_entry(struct reconnect *reconnect, struct lpi_fsck_cursor *cursor)
{
	struct lp_dirent_value value;
	struct lp_key key;
	bool is_dir = false;
	bool is_spread = false;
	lpi_fsck_cursor_key(cursor, &key);
	if (lp_dirent_read(cursor->value.data, cursor->value.len, &key, &value) < 0)
		return 0;
	struct lp_ino ino = {value.ino};
	const struct lpi_fsck_shard *shard = shard_of(reconnect->fsck, ino);
	int err = note(&reconnect->pointed, ino.nr);
	if (err < 0 || value.type != LP_INODE_TYPE_DIR || shard == NULL || !shard->is_rebuilt ||
	    find_inode(reconnect->fsck, ino, &is_dir, &is_spread) != 0)
		return err;
	return put_dir(reconnect, ino, cursor->view.ino,
		       (struct lp_inode_bytes){cursor->view.name, cursor->view.name_len});
}

/* --- Entries ---------------------------------------------------------------------------------- */

/* As the namespace places them (namespace/README.md). */
static uint32_t shard_of_entry(const struct lpi_fsck *fsck, struct lp_ino dir, bool is_spread,
			       struct lp_inode_bytes name)
{
	if (!is_spread)
		return lp_ino_shard(dir);
	return (uint32_t)(lp_hash_u64(name.at, name.len, dir.nr) % fsck->report->shards);
}

/* The number of the next entry of the fragment, which is taken. -EBUSY: it takes none. */
static int take_insertion(struct lpi_fsck_shard *shard, struct lp_ino dir, size_t name_len,
			  uint64_t *ret)
{
	struct lp_fragment_value fragment = {.next_insertion = 1};
	uint8_t bytes[LP_FRAGMENT_VALUE_SIZE];
	struct lp_kv_value value;
	struct lp_key key;
	lp_key_of_ino(&key, LP_KEY_SPACE_FRAGMENT, dir);
	int err = lpi_fsck_get(shard, &key, &value);
	if (err < 0 && err != -ENOENT)
		return err;
	if (err == 0) {
		err = lp_fragment_read(value.bytes.data, value.bytes.len, &key, &fragment);
		lp_kv_value_release(&value);
		if (err < 0 || fragment.is_sealed != 0)
			return -EBUSY;
	}
	if (fragment.next_insertion >= LP_INSERTION_MAX)
		return -EBUSY;
	*ret = fragment.next_insertion++;
	fragment.entries_cnt++;
	fragment.name_bytes += name_len;
	lp_fragment_write(&fragment, &key, bytes);
	return lpi_fsck_put(shard, (struct lp_kv_bytes){key.bytes, key.len},
			    (struct lp_kv_bytes){bytes, sizeof(bytes)});
}

static int put_entry(struct reconnect *reconnect, const struct lp_inode *inode,
		     struct lpi_fsck_shard *shard, const struct lp_key *key)
{
	const struct lpi_fsck_at at = {.kind = LP_FSCK_UNREACHABLE,
				       .shard = shard,
				       .ino = inode->ino,
				       .is_repaired = true};
	struct lp_dirent_value entry = {.type = inode->type, .ino = inode->ino.nr};
	uint8_t bytes[LP_DIRENT_VALUE_SIZE];
	int err = take_insertion(shard, inode->parent, inode->name.len, &entry.insertion);
	if (err < 0)
		return err == -EBUSY ? 0 : err;
	lp_dirent_write(&entry, key, bytes);
	err = lpi_fsck_put(shard, (struct lp_kv_bytes){key->bytes, key->len},
			   (struct lp_kv_bytes){bytes, sizeof(bytes)});
	if (err == 0)
		err = lpi_fsck_settle(shard);
	if (err == 0)
		lpi_fsck_found(reconnect->fsck, &at,
			       "its entry was lost, and was made anew from what the inode says");
	return err;
}

static bool is_pointed(const struct reconnect *reconnect, uint64_t nr)
{
	const struct numbers *pointed = &reconnect->pointed;
	return pointed->cnt > 0 &&
	       bsearch(&nr, pointed->nr, pointed->cnt, sizeof(nr), by_number) != NULL;
}

static int take_inode(struct reconnect *reconnect, struct lpi_fsck_cursor *cursor)
{
	struct lpi_fsck *fsck = reconnect->fsck;
	struct lp_inode inode;
	struct lp_key key;
	bool is_dir = false;
	bool is_spread = false;
	uint64_t nr = cursor->view.ino.nr;
	if (lp_inode_decode(cursor->value.data, cursor->value.len, cursor->view.ino, &inode) < 0 ||
	    inode.nlink == 0 || (inode.flags & LP_INODE_FLAG_REMOVED) != 0 ||
	    nr == LP_INO_ROOT.nr || !lp_key_name_is_valid(inode.name.at, inode.name.len) ||
	    is_pointed(reconnect, nr))
		return 0;
	lp_key_of_ino(&key, LP_KEY_SPACE_UNFINISHED, inode.ino);
	if (has_entry(cursor->shard, &key)) /* it is on its way, or about to go */
		return 0;
	if (find_inode(fsck, inode.parent, &is_dir, &is_spread) <= 0 || !is_dir)
		return 0;
	struct lpi_fsck_shard *shard =
		&fsck->shards[shard_of_entry(fsck, inode.parent, is_spread, inode.name)];
	lp_key_of_name(&key, LP_KEY_SPACE_DIRENT, inode.parent, inode.name.at, inode.name.len);
	if (!lpi_fsck_is_there(shard) || !shard->is_rebuilt || has_entry(shard, &key))
		return 0;
	return put_entry(reconnect, &inode, shard, &key);
}

/* --- All of it -------------------------------------------------------------------------------- */

static int each_record(struct reconnect *reconnect, enum lp_key_space space,
		       int (*take)(struct reconnect *reconnect, struct lpi_fsck_cursor *cursor))
{
	struct lpi_fsck *fsck = reconnect->fsck;
	int err = 0;
	for (uint32_t i = 0; i < fsck->report->shards && err == 0; i++) {
		struct lpi_fsck_cursor cursor;
		if (!lpi_fsck_is_there(&fsck->shards[i]))
			continue;
		err = lpi_fsck_cursor_open(&cursor, &fsck->shards[i], space, true);
		for (; err == 0 && !cursor.is_at_end; lpi_fsck_cursor_next(&cursor))
			err = take(reconnect, &cursor);
		lpi_fsck_cursor_close(&cursor);
	}
	return err;
}

static int make_root(struct reconnect *reconnect)
{
	const struct lpi_fsck_shard *shard = shard_of(reconnect->fsck, LP_INO_ROOT);
	bool is_dir = false;
	bool is_spread = false;
	if (shard == NULL || !shard->is_rebuilt ||
	    find_inode(reconnect->fsck, LP_INO_ROOT, &is_dir, &is_spread) != 0)
		return 0;
	return put_dir(reconnect, LP_INO_ROOT, LP_INO_ROOT, (struct lp_inode_bytes){NULL, 0});
}

int lpi_fsck_reconnect(struct lpi_fsck *fsck)
{
	struct reconnect reconnect = {.fsck = fsck};
	bool is_rebuilt = false;
	for (uint32_t i = 0; i < fsck->report->shards; i++)
		is_rebuilt = is_rebuilt || fsck->shards[i].is_rebuilt;
	if (!is_rebuilt)
		return 0;
	int err = make_root(&reconnect);
	if (err == 0)
		err = each_record(&reconnect, LP_KEY_SPACE_DIRENT, take_entry);
	if (err == 0 && reconnect.pointed.cnt > 0)
		qsort(reconnect.pointed.nr, reconnect.pointed.cnt, sizeof(uint64_t), by_number);
	if (err == 0)
		err = each_record(&reconnect, LP_KEY_SPACE_INODE, take_inode);
	free(reconnect.pointed.nr);
	return err;
}
