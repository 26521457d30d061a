/* SPDX-License-Identifier: Apache-2.0 */
/* Phase 4: inodes and the entries that point to them, over all shards, since a name may lie on
 * another shard than its inode. Round by round (check/inode_table.h): first all inodes are put in,
 * then marks and entries are counted for them, then each is judged.
 *
 * Where something that would tell cannot be read, or is not final, findings are warnings and
 * nothing is mended. */
#include <string.h>

#include "base/error.h"
#include "store/check/fsck_impl.h"
#include "store/check/inode_table.h"

#define NAMES_BYTES_DEFAULT (UINT64_C(256) << 20)

struct links {
	struct lpi_fsck *fsck;
	struct lpi_fsck_names names;
	struct lp_ino told_dir; /* the last one that was told to be missing */
};

static struct lpi_fsck_at at_of(const struct links *links, enum lp_fsck_kind kind,
				const struct lpi_fsck_shard *shard, struct lp_ino ino)
{
	return (struct lpi_fsck_at){.kind = kind,
				    .shard = shard,
				    .ino = ino,
				    .is_warning = links->fsck->names_in_doubt};
}

static bool may_fix(const struct links *links)
{
	return links->fsck->options->repair && !links->fsck->names_in_doubt;
}

/* --- Putting in ------------------------------------------------------------------------------- */

static int take_inode(struct links *links, struct lpi_fsck_cursor *cursor)
{
	struct lp_inode inode;
	struct lp_ino ino = cursor->view.ino;
	if (lp_ino_shard(ino) != cursor->shard->idx || !lpi_fsck_names_has_turn(&links->names, ino))
		return 0;
	struct lpi_fsck_node *node = lpi_fsck_names_add(&links->names, ino);
	if (node == NULL || lp_inode_decode(cursor->value.data, cursor->value.len, ino, &inode) < 0)
		return 0;
	node->is_sound = true;
	node->nlink = inode.nlink;
	node->type = inode.type;
	node->parent = inode.parent.nr;
	node->is_spread = (inode.flags & LP_INODE_FLAG_SPREAD) != 0;
	node->is_removed = (inode.flags & LP_INODE_FLAG_REMOVED) != 0;
	return 0;
}

static int take_unfinished(struct links *links, struct lpi_fsck_cursor *cursor)
{
	struct lp_unfinished_value value;
	struct lp_key key;
	struct lp_ino ino = cursor->view.ino;
	if (lp_ino_shard(ino) != cursor->shard->idx || !lpi_fsck_names_has_turn(&links->names, ino))
		return 0;
	struct lpi_fsck_node *node = lpi_fsck_names_find(&links->names, ino);
	if (node == NULL)
		return 0;
	node->is_unfinished = true;
	lpi_fsck_cursor_key(cursor, &key);
	bool is_bad = lp_unfinished_read(cursor->value.data, cursor->value.len, &key, &value) < 0;
	node->is_going = !is_bad && value.kind != LP_UNFINISHED_KIND_TRIM;
	/* What a bad one is taken for follows from the inode; it has been told. */
	node->is_removal = is_bad || value.kind == LP_UNFINISHED_KIND_REMOVAL;
	return 0;
}

/* --- Entries ---------------------------------------------------------------------------------- */

static int wrong_type(struct links *links, const struct lpi_fsck_cursor *cursor,
		      struct lp_dirent_value value, uint8_t type)
{
	struct lpi_fsck_at at = at_of(links, LP_FSCK_ENTRY_TYPE, cursor->shard, cursor->view.ino);
	uint8_t bytes[LP_DIRENT_VALUE_SIZE];
	struct lp_key key;
	at.is_repaired = links->fsck->options->repair;
	at.is_warning = false;
	lpi_fsck_found(links->fsck, &at, "its entry \"%.*s\" says %s, but inode %llu is a %s",
		       (int)cursor->view.name_len, (const char *)cursor->view.name,
		       lp_inode_type_name(value.type), (unsigned long long)value.ino,
		       lp_inode_type_name(type));
	if (!at.is_repaired)
		return 0;
	value.type = type;
	lpi_fsck_cursor_key(cursor, &key);
	lp_dirent_write(&value, &key, bytes);
	return lpi_fsck_put(cursor->shard, (struct lp_kv_bytes){key.bytes, key.len},
			    (struct lp_kv_bytes){bytes, sizeof(bytes)});
}

/* The inode that an entry points to; *type becomes what it really is. */
static int count_name(struct links *links, const struct lpi_fsck_cursor *cursor,
		      const struct lp_dirent_value *value, uint8_t *type)
{
	struct lp_ino ino = {value->ino};
	if (!lpi_fsck_names_has_turn(&links->names, ino))
		return 0;
	struct lpi_fsck_node *node = lpi_fsck_names_find(&links->names, ino);
	if (node == NULL) {
		const struct lpi_fsck_at at =
			at_of(links, LP_FSCK_ENTRY, cursor->shard, cursor->view.ino);
		/* Its record was lost, and what that said of its map. */
		if (lp_ino_shard(ino) < links->fsck->report->shards)
			links->fsck->shards[lp_ino_shard(ino)].maps_in_doubt = true;
		lpi_fsck_found(links->fsck, &at,
			       "its entry \"%.*s\" points to inode %llu, which is not there",
			       (int)cursor->view.name_len, (const char *)cursor->view.name,
			       (unsigned long long)ino.nr);
		return 0;
	}
	node->names += node->names < UINT32_MAX;
	if (!node->is_sound)
		return 0;
	*type = node->type;
	if (node->type == LP_INODE_TYPE_DIR && node->parent != cursor->view.ino.nr)
		node->is_misplaced = true;
	return value->type == node->type ? 0 : wrong_type(links, cursor, *value, node->type);
}

/* The directory that an entry, or a fragment of entries, belongs to. */
static void count_in_dir(struct links *links, const struct lpi_fsck_cursor *cursor, bool is_dir)
{
	struct lp_ino dir = cursor->view.ino;
	if (!lpi_fsck_names_has_turn(&links->names, dir))
		return;
	struct lpi_fsck_node *node = lpi_fsck_names_find(&links->names, dir);
	if (node != NULL) {
		node->subdirs += is_dir && node->subdirs < UINT32_MAX;
		return;
	}
	if (links->told_dir.nr == dir.nr)
		return;
	links->told_dir = dir;
	const struct lpi_fsck_at at = at_of(links, LP_FSCK_ENTRY, cursor->shard, dir);
	lpi_fsck_found(links->fsck, &at,
		       "there are entries or a fragment, but the directory is not there");
}

static int take_entry(struct links *links, struct lpi_fsck_cursor *cursor)
{
	struct lp_dirent_value value;
	struct lp_key key;
	lpi_fsck_cursor_key(cursor, &key);
	if (lp_dirent_read(cursor->value.data, cursor->value.len, &key, &value) < 0) {
		count_in_dir(links, cursor, false);
		return 0;
	}
	uint8_t type = value.type;
	int err = count_name(links, cursor, &value, &type);
	count_in_dir(links, cursor, type == LP_INODE_TYPE_DIR);
	return err;
}

/* Over the entries that the shard has of the directory. */
static int open_entries(const struct lpi_fsck_shard *shard, struct lp_ino dir,
			struct lp_kv_iter **ret_iter)
{
	struct lp_key_range range;
	lp_key_range_of_ino(&range, LP_KEY_SPACE_DIRENT, dir);
	return lpi_fsck_iter_open(shard, (struct lp_kv_bytes){range.first.bytes, range.first.len},
				  (struct lp_kv_bytes){range.end.bytes, range.end.len}, ret_iter);
}

/* Whether the shard has an entry of the directory, readable or not. */
static int has_entries(const struct lpi_fsck_shard *shard, struct lp_ino dir, bool *ret)
{
	struct lp_kv_iter *iter = NULL;
	int err = open_entries(shard, dir, &iter);
	if (err < 0)
		return err;
	err = lp_kv_iter_seek_first(iter);
	lp_kv_iter_close(iter);
	*ret = err != -ENOENT; /* what cannot be read may be one */
	return 0;
}

/* What stays when a directory goes and a fragment of it is forgotten: it says nothing. */
static int empty_fragment(struct links *links, const struct lpi_fsck_cursor *cursor)
{
	struct lpi_fsck_at at = at_of(links, LP_FSCK_ENTRY, cursor->shard, cursor->view.ino);
	at.is_repaired = may_fix(links);
	lpi_fsck_found(links->fsck, &at,
		       "there is an empty fragment on shard %u, but the directory is not there",
		       cursor->shard->idx);
	if (!at.is_repaired)
		return 0;
	return lpi_fsck_put(cursor->shard, cursor->key, (struct lp_kv_bytes){NULL, 0});
}

static int take_fragment(struct links *links, struct lpi_fsck_cursor *cursor)
{
	struct lp_ino dir = cursor->view.ino;
	bool is_full = true;
	int err = 0;
	if (!lpi_fsck_names_has_turn(&links->names, dir))
		return 0;
	if (lpi_fsck_names_find(&links->names, dir) == NULL)
		err = has_entries(cursor->shard, dir, &is_full);
	if (err < 0 || !is_full)
		return err < 0 ? err : empty_fragment(links, cursor);
	count_in_dir(links, cursor, false);
	return 0;
}

/* --- Inodes of other rounds ------------------------------------------------------------------- */

/* What cannot be read leaves both as they are. */
static void read_inode(const struct links *links, struct lp_ino ino, uint8_t *type,
		       uint64_t *parent)
{
	const struct lpi_fsck *fsck = links->fsck;
	uint32_t idx = lp_ino_shard(ino);
	struct lp_key key;
	struct lp_kv_value value;
	struct lp_inode inode;
	if (idx >= fsck->report->shards || !lpi_fsck_is_there(&fsck->shards[idx]))
		return;
	lp_key_of_ino(&key, LP_KEY_SPACE_INODE, ino);
	if (lpi_fsck_get(&fsck->shards[idx], &key, &value) < 0)
		return;
	if (lp_inode_decode(value.bytes.data, value.bytes.len, ino, &inode) == 0) {
		*type = inode.type;
		*parent = inode.parent.nr;
	}
	lp_kv_value_release(&value);
}

static bool is_subdir(const struct links *links, struct lp_kv_bytes name, struct lp_kv_bytes value)
{
	struct lp_dirent_value entry;
	struct lp_key_view view;
	struct lp_key key = {.len = name.len};
	uint64_t parent = 0;
	if (lp_key_parse(name.data, name.len, &view) < 0)
		return false;
	LP_ASSERT(name.len <= sizeof(key.bytes));
	memcpy(key.bytes, name.data, name.len);
	if (lp_dirent_read(value.data, value.len, &key, &entry) < 0)
		return false;
	uint8_t type = entry.type;
	read_inode(links, (struct lp_ino){entry.ino}, &type, &parent);
	return type == LP_INODE_TYPE_DIR;
}

/* Entries of the directory on one shard; what cannot be read has been told. */
static int count_on(const struct links *links, const struct lpi_fsck_shard *shard,
		    struct lp_ino dir, uint32_t *cnt)
{
	struct lp_kv_iter *iter = NULL;
	int err = open_entries(shard, dir, &iter);
	if (err < 0)
		return err;
	for (err = lp_kv_iter_seek_first(iter); err == 0; err = lp_kv_iter_next(iter))
		*cnt += is_subdir(links, lp_kv_iter_key(iter), lp_kv_iter_value(iter));
	lp_kv_iter_close(iter);
	return 0;
}

/* An entry whose inode is of another round was counted as what it says of it, which may be wrong.
 * Only the directories for which that makes a difference are counted again. */
static int count_subdirs(const struct links *links, struct lpi_fsck_node *node)
{
	uint32_t cnt = 0;
	int err = 0;
	for (uint32_t i = 0; i < links->fsck->report->shards && err == 0; i++) {
		const struct lpi_fsck_shard *shard = &links->fsck->shards[i];
		if (lpi_fsck_is_there(shard))
			err = count_on(links, shard, (struct lp_ino){node->ino}, &cnt);
	}
	node->subdirs = cnt;
	return err;
}

/* --- Loops ------------------------------------------------------------------------------------ */

/* Directories that are each in the next one, and the last in the first, are fine one by one; but no
 * path leads there. Each way up is followed along the parents until it ends, or meets one that was
 * followed before, or itself (Brent: by a mark that is moved on after 1, 2, 4 ... steps). Parents
 * that belong to other rounds are read from the index. A loop is told once, by its lowest number,
 * in the round of that. */

static uint64_t read_parent(const struct links *links, struct lp_ino ino)
{
	uint8_t type = 0;
	uint64_t parent = 0;
	read_inode(links, ino, &type, &parent);
	return type == LP_INODE_TYPE_DIR ? parent : 0;
}

/* NULL: of another round, or not there. */
static struct lpi_fsck_node *node_of(struct links *links, uint64_t nr)
{
	struct lp_ino ino = {nr};
	return lpi_fsck_names_has_turn(&links->names, ino) ? lpi_fsck_names_find(&links->names, ino)
							   : NULL;
}

/* 0: the way ends here, or is known from here on. */
static uint64_t parent_of(struct links *links, uint64_t nr)
{
	const struct lpi_fsck_node *node = node_of(links, nr);
	if (nr == LP_INO_ROOT.nr)
		return 0;
	if (node == NULL)
		return lpi_fsck_names_has_turn(&links->names, (struct lp_ino){nr})
			       ? 0
			       : read_parent(links, (struct lp_ino){nr});
	if (!node->is_sound || node->type != LP_INODE_TYPE_DIR || node->is_followed)
		return 0;
	return node->parent;
}

/* From one of its directories once around. */
static void tell_loop(struct links *links, uint64_t first)
{
	uint64_t low = first;
	uint64_t cnt = 1;
	for (uint64_t nr = parent_of(links, first); nr != first && nr != 0;
	     nr = parent_of(links, nr)) {
		low = LP_MIN(low, nr);
		cnt++;
	}
	const struct lpi_fsck_node *node = node_of(links, low);
	if (node == NULL || node->names == 0) /* another round's; a root, or told as nameless */
		return;
	struct lp_ino ino = {low};
	const struct lpi_fsck_at at =
		at_of(links, LP_FSCK_LOOP, &links->fsck->shards[lp_ino_shard(ino)], ino);
	lpi_fsck_found(links->fsck, &at,
		       "is inside itself: a loop of %llu director%s, with inode %llu as its parent",
		       (unsigned long long)cnt, cnt == 1 ? "y" : "ies",
		       (unsigned long long)node->parent);
}

static void follow_up(struct links *links, const struct lpi_fsck_node *node)
{
	uint64_t mark = node->ino;
	uint64_t at = parent_of(links, mark);
	uint64_t steps = 1;
	for (uint64_t mark_at = 1; at != 0 && at != mark; steps++) {
		if (steps == 2 * mark_at) {
			mark = at;
			mark_at = steps;
		}
		at = parent_of(links, at);
	}
	if (at != 0)
		tell_loop(links, at);
	/* As far as it went; in a loop more than once around. */
	for (at = node->ino; at != 0 && steps > 0; steps--) {
		struct lpi_fsck_node *passed = node_of(links, at);
		at = parent_of(links, at);
		if (passed != NULL)
			passed->is_followed = true;
	}
}

/* --- Judging ---------------------------------------------------------------------------------- */

static int rewrite_nlink(struct lpi_fsck_shard *shard, struct lp_ino ino, uint32_t nlink)
{
	uint8_t bytes[LP_INODE_BYTES_MAX];
	struct lp_kv_value value;
	struct lp_inode inode;
	struct lp_key key;
	size_t len = 0;
	lp_key_of_ino(&key, LP_KEY_SPACE_INODE, ino);
	const struct lp_kv_bytes key_bytes = {key.bytes, key.len};
	int err = lpi_fsck_get(shard, &key, &value);
	if (err < 0)
		return err;
	err = lp_inode_decode(value.bytes.data, value.bytes.len, ino, &inode);
	if (err == 0) {
		inode.nlink = nlink;
		inode.version_nr++;
		len = lp_inode_encode(&inode, bytes);
	}
	lp_kv_value_release(&value);
	return err == 0 ? lpi_fsck_put(shard, key_bytes, (struct lp_kv_bytes){bytes, len}) : err;
}

static int put_mark(struct lpi_fsck_shard *shard, struct lp_ino ino, enum lp_unfinished_kind kind)
{
	const struct lp_unfinished_value value = {.kind = kind,
						  .since_ns = lpi_fsck_now_ns(shard->fsck)};
	uint8_t bytes[LP_UNFINISHED_VALUE_SIZE];
	struct lp_key key;
	lp_key_of_ino(&key, LP_KEY_SPACE_UNFINISHED, ino);
	lp_unfinished_write(&value, &key, bytes);
	return lpi_fsck_put(shard, (struct lp_kv_bytes){key.bytes, key.len},
			    (struct lp_kv_bytes){bytes, sizeof(bytes)});
}

static int remove_mark(struct lpi_fsck_shard *shard, struct lp_ino ino)
{
	struct lp_key key;
	lp_key_of_ino(&key, LP_KEY_SPACE_UNFINISHED, ino);
	return lpi_fsck_put(shard, (struct lp_kv_bytes){key.bytes, key.len},
			    (struct lp_kv_bytes){NULL, 0});
}

/* What every way up leads to: the root of the namespace, or that of a program that uses a store
 * without one. It is its own parent and has no name. */
static bool is_root(const struct lpi_fsck_node *node)
{
	if (node->ino == LP_INO_ROOT.nr)
		return true;
	return node->type == LP_INODE_TYPE_DIR && node->parent == node->ino && node->nlink > 0 &&
	       node->names == 0;
}

/* Some of its space may have been freed: it is nothing any more that could get its name or its
 * links back. The next opening ends the removal, if there is a mark; a name is told as one of
 * nothing from then on. */
static int judge_removed(struct links *links, struct lpi_fsck_shard *shard,
			 const struct lpi_fsck_node *node)
{
	struct lpi_fsck_at at = at_of(links, LP_FSCK_UNFINISHED, shard, (struct lp_ino){node->ino});
	if (node->names > 0)
		lpi_fsck_found(links->fsck, &at, "has been removed, but has %u name%s", node->names,
			       node->names == 1 ? "" : "s");
	if (node->is_removal)
		return 0;
	at.kind = LP_FSCK_ORPHAN;
	at.is_repaired = may_fix(links);
	lpi_fsck_found(links->fsck, &at, "has been removed, but is not marked for that");
	return at.is_repaired ? put_mark(shard, at.ino, LP_UNFINISHED_KIND_REMOVAL) : 0;
}

/* Without a name. */
static int judge_nameless(struct links *links, struct lpi_fsck_shard *shard,
			  const struct lpi_fsck_node *node)
{
	bool is_unreachable = node->nlink > 0;
	if (node->is_going || (node->nlink == 0 && node->is_unfinished))
		return 0;
	struct lpi_fsck_at at = at_of(links, is_unreachable ? LP_FSCK_UNREACHABLE : LP_FSCK_ORPHAN,
				      shard, (struct lp_ino){node->ino});
	at.is_repaired = !is_unreachable && may_fix(links);
	if (is_unreachable)
		lpi_fsck_found(links->fsck, &at, "a %s with %u links, but no entry points to it",
			       lp_inode_type_name(node->type), node->nlink);
	else
		lpi_fsck_found(links->fsck, &at,
			       "a %s that was deleted, but is not marked to be removed",
			       lp_inode_type_name(node->type));
	return at.is_repaired ? put_mark(shard, at.ino, LP_UNFINISHED_KIND_ORPHAN) : 0;
}

static int judge_mark(struct links *links, struct lpi_fsck_shard *shard,
		      const struct lpi_fsck_node *node)
{
	struct lpi_fsck_at at = at_of(links, LP_FSCK_UNFINISHED, shard, (struct lp_ino){node->ino});
	if (!node->is_going)
		return 0;
	at.is_repaired = may_fix(links);
	lpi_fsck_found(links->fsck, &at, "is marked to be removed, but has %u name%s", node->names,
		       node->names == 1 ? "" : "s");
	return at.is_repaired ? remove_mark(shard, at.ino) : 0;
}

static int judge_nlink(struct links *links, struct lpi_fsck_shard *shard,
		       struct lpi_fsck_node *node)
{
	struct lpi_fsck_at at = at_of(links, LP_FSCK_NLINK, shard, (struct lp_ino){node->ino});
	bool is_dir = node->type == LP_INODE_TYPE_DIR;
	bool is_all = links->names.now.bits == 0; /* all inodes are of this round */
	if (is_dir && !node->is_spread && !is_all && node->nlink != node->subdirs + 2) {
		int err = count_subdirs(links, node);
		if (err < 0)
			return err;
	}
	uint32_t right = is_dir ? node->subdirs + 2 : node->names;
	/* One that is spread does not count them (namespace/README.md). */
	if (node->is_spread)
		right = 1;
	if (node->nlink == right)
		return 0;
	at.is_repaired = may_fix(links);
	lpi_fsck_found(links->fsck, &at, "has a link count of %u, which should be %u", node->nlink,
		       right);
	return at.is_repaired ? rewrite_nlink(shard, at.ino, right) : 0;
}

static void judge_place(struct links *links, const struct lpi_fsck_shard *shard,
			const struct lpi_fsck_node *node)
{
	const struct lpi_fsck_at at =
		at_of(links, LP_FSCK_PARENT, shard, (struct lp_ino){node->ino});
	if (node->type != LP_INODE_TYPE_DIR)
		return;
	if (is_root(node) ? node->names > 0 : node->names > 1)
		lpi_fsck_found(links->fsck, &at, "a directory with %u names", node->names);
	else if (node->is_misplaced)
		lpi_fsck_found(links->fsck, &at,
			       "has its entry in another directory than its parent, inode %llu",
			       (unsigned long long)node->parent);
}

static int judge(struct links *links, struct lpi_fsck_node *node)
{
	struct lpi_fsck_shard *shard =
		&links->fsck->shards[lp_ino_shard((struct lp_ino){node->ino})];
	if (!node->is_sound)
		return 0;
	judge_place(links, shard, node);
	if (node->is_removed)
		return judge_removed(links, shard, node);
	if (node->names == 0 && !is_root(node))
		return judge_nameless(links, shard, node);
	follow_up(links, node);
	int err = judge_mark(links, shard, node);
	return err == 0 ? judge_nlink(links, shard, node) : err;
}

/* --- Rounds ----------------------------------------------------------------------------------- */

static int each_record(struct links *links, enum lp_key_space space,
		       int (*take)(struct links *links, struct lpi_fsck_cursor *cursor))
{
	int err = 0;
	for (uint32_t i = 0; i < links->fsck->report->shards && err == 0; i++) {
		struct lpi_fsck_shard *shard = &links->fsck->shards[i];
		struct lpi_fsck_cursor cursor;
		if (!lpi_fsck_is_there(shard))
			continue;
		err = lpi_fsck_cursor_open(&cursor, shard, space, true);
		for (; err == 0 && !cursor.is_at_end; lpi_fsck_cursor_next(&cursor))
			err = take(links, &cursor);
		lpi_fsck_cursor_close(&cursor);
	}
	return err;
}

static int settle_all(struct links *links)
{
	int err = 0;
	for (uint32_t i = 0; i < links->fsck->report->shards && err == 0; i++) {
		if (links->fsck->shards[i].shard != NULL)
			err = lpi_fsck_settle(&links->fsck->shards[i]);
	}
	return err;
}

static int one_round(struct links *links)
{
	links->told_dir = (struct lp_ino){0};
	int err = each_record(links, LP_KEY_SPACE_INODE, take_inode);
	if (err == 0)
		err = each_record(links, LP_KEY_SPACE_UNFINISHED, take_unfinished);
	if (err == 0)
		err = each_record(links, LP_KEY_SPACE_DIRENT, take_entry);
	if (err == 0)
		err = each_record(links, LP_KEY_SPACE_FRAGMENT, take_fragment);
	for (uint64_t i = 0; i < links->names.places && err == 0; i++) {
		if (links->names.nodes[i].ino != 0)
			err = judge(links, &links->names.nodes[i]);
	}
	return err == 0 ? settle_all(links) : err;
}

int lpi_fsck_links(struct lpi_fsck *fsck)
{
	uint64_t bytes_max = fsck->options->names_bytes_max;
	struct links links = {.fsck = fsck};
	int err =
		lpi_fsck_names_init(&links.names, bytes_max != 0 ? bytes_max : NAMES_BYTES_DEFAULT);
	bool more = err == 0;
	while (more) {
		err = one_round(&links);
		more = err == 0 && lpi_fsck_names_next_round(&links.names);
	}
	lpi_fsck_names_fini(&links.names);
	return err;
}
