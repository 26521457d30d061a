/* SPDX-License-Identifier: Apache-2.0 */
/* Phase 1: all records of a shard that belong to an inode number go by together, from one cursor
 * per space. All spaces are ordered by inode, so this is a merge, and takes no memory.
 *
 *   I, U        what the inode is
 *   X           its extent map, and by it the blocks
 *   A, O        what hangs on it
 *   F, D        this shard's entries of the directory of that number, which may be another shard's
 *
 *   L           read before, and held against the blocks of the maps
 *
 * The rest stands alone: R (looked at with the counts), S, T. */
#include "base/error.h"
#include "store/attrs.h"
#include "store/check/fsck_impl.h"

enum { INODE, UNFINISHED, MAP, XATTR, OMAP, FRAGMENT, DIRENT, CURSORS };

static const enum lp_key_space spaces[CURSORS] = {
	[INODE] = LP_KEY_SPACE_INODE,   [UNFINISHED] = LP_KEY_SPACE_UNFINISHED,
	[MAP] = LP_KEY_SPACE_MAP,       [XATTR] = LP_KEY_SPACE_XATTR,
	[OMAP] = LP_KEY_SPACE_OMAP,     [FRAGMENT] = LP_KEY_SPACE_FRAGMENT,
	[DIRENT] = LP_KEY_SPACE_DIRENT,
};

struct walk {
	struct lpi_fsck_shard *shard;
	struct lpi_fsck_cursor cursors[CURSORS];
};

/* The entries of one directory on this shard. */
struct entries {
	uint64_t cnt;
	uint64_t name_bytes;
	uint64_t insertion_max;
};

static bool is_on(const struct walk *walk, int which, struct lp_ino ino)
{
	const struct lpi_fsck_cursor *cursor = &walk->cursors[which];
	return !cursor->is_at_end && cursor->view.ino.nr == ino.nr;
}

static void found_record(struct lpi_fsck_shard *shard, struct lp_ino ino)
{
	const struct lpi_fsck_at at = {.kind = LP_FSCK_RECORD, .shard = shard, .ino = ino};
	lpi_fsck_found(shard->fsck, &at, "%s", lpi_fsck_last_corruption());
}

/* --- I and U ---------------------------------------------------------------------------------- */

static void take_inode(struct walk *walk, struct lpi_fsck_object *object)
{
	const struct lpi_fsck_cursor *cursor = &walk->cursors[INODE];
	struct lpi_fsck_shard *shard = walk->shard;
	const struct lpi_fsck_at at = {.kind = LP_FSCK_PLACE, .shard = shard, .ino = object->ino};
	if (!is_on(walk, INODE, object->ino))
		return;
	object->has_record = true;
	shard->fsck->report->inodes++;
	lpi_fsck_moved(shard->fsck);
	object->is_sound = lp_inode_decode(cursor->value.data, cursor->value.len, object->ino,
					   &object->inode) == 0;
	if (!object->is_sound) {
		shard->maps_in_doubt = true;
		shard->fsck->names_in_doubt = true;
		found_record(shard, object->ino);
	}
	if (lp_ino_shard(object->ino) == shard->idx)
		return;
	/* Where it belongs it is missed. */
	shard->fsck->names_in_doubt = true;
	lpi_fsck_found(shard->fsck, &at, "belongs on shard %u, and lies on shard %u",
		       lp_ino_shard(object->ino), shard->idx);
}

/* Of a record that is whole. What it is to be instead follows from nothing but the value itself. */
static int judge_values(struct lpi_fsck_shard *shard, const struct lpi_fsck_object *object)
{
	struct lpi_fsck_at at = {.kind = LP_FSCK_VALUE, .shard = shard, .ino = object->ino};
	const char *fault = object->is_sound ? lp_inode_impossible(&object->inode) : NULL;
	uint8_t bytes[LP_INODE_BYTES_MAX];
	struct lp_inode inode;
	struct lp_key key;
	if (fault == NULL)
		return 0;
	at.is_repaired = shard->fsck->options->repair;
	lpi_fsck_found(shard->fsck, &at, "its %s is a value that no file can have on a mount",
		       fault);
	if (!at.is_repaired)
		return 0;
	inode = object->inode;
	(void)lp_inode_make_possible(&inode); /* something changes: there is a fault */
	inode.version_nr++;
	lp_key_of_ino(&key, LP_KEY_SPACE_INODE, object->ino);
	return lpi_fsck_put(shard, (struct lp_kv_bytes){key.bytes, key.len},
			    (struct lp_kv_bytes){bytes, lp_inode_encode(&inode, bytes)});
}

/* What has no record has no inode. */
static bool sees_all_inodes(const struct lpi_fsck_shard *shard)
{
	return !shard->is_broken && !shard->inodes_hidden;
}

/* What the mark must have been about follows from the inode, as for the store when it is opened: it
 * is on its way out, or something may be left behind its end, and without links it is an orphan.
 * The next opening goes on with that. */
static int rewrite_mark(struct lpi_fsck_shard *shard, const struct lpi_fsck_object *object,
			const struct lp_key *key)
{
	const struct lp_kv_bytes key_bytes = {key->bytes, key->len};
	uint8_t bytes[LP_UNFINISHED_VALUE_SIZE];
	if (!object->has_record)
		return lpi_fsck_put(shard, key_bytes, (struct lp_kv_bytes){NULL, 0});
	const struct lp_inode *inode = &object->inode;
	bool is_removal = (inode->flags & LP_INODE_FLAG_REMOVED) != 0;
	const struct lp_unfinished_value value = {
		.kind = is_removal ? LP_UNFINISHED_KIND_REMOVAL : LP_UNFINISHED_KIND_TRIM,
		.from_block = is_removal ? 0 : lp_bytes_to_blocks_up(inode->size_bytes),
		.since_ns = lpi_fsck_now_ns(shard->fsck)};
	lp_unfinished_write(&value, key, bytes);
	return lpi_fsck_put(shard, key_bytes, (struct lp_kv_bytes){bytes, sizeof(bytes)});
}

static int bad_mark(struct lpi_fsck_shard *shard, const struct lpi_fsck_object *object,
		    const struct lp_key *key)
{
	struct lpi_fsck_at at = {.kind = LP_FSCK_RECORD, .shard = shard, .ino = object->ino};
	at.is_repaired = shard->fsck->options->repair &&
			 (object->has_record ? object->is_sound : sees_all_inodes(shard));
	lpi_fsck_found(shard->fsck, &at, "%s", lpi_fsck_last_corruption());
	if (at.is_repaired)
		return rewrite_mark(shard, object, key);
	shard->fsck->names_in_doubt = true;
	return 0;
}

static int take_unfinished(struct walk *walk, struct lpi_fsck_object *object)
{
	const struct lpi_fsck_cursor *cursor = &walk->cursors[UNFINISHED];
	struct lpi_fsck_shard *shard = walk->shard;
	struct lpi_fsck_at at = {.kind = LP_FSCK_UNFINISHED, .shard = shard, .ino = object->ino};
	struct lp_unfinished_value value;
	struct lp_key key;
	if (!is_on(walk, UNFINISHED, object->ino))
		return 0;
	object->has_unfinished = true;
	lpi_fsck_cursor_key(cursor, &key);
	if (lp_unfinished_read(cursor->value.data, cursor->value.len, &key, &value) < 0)
		return bad_mark(shard, object, &key);
	if (object->has_record || shard->is_broken)
		return 0;
	at.is_repaired = shard->fsck->options->repair && sees_all_inodes(shard);
	lpi_fsck_found(shard->fsck, &at, "is marked as unfinished (%s), but is not there",
		       lp_unfinished_kind_name(value.kind));
	if (!at.is_repaired)
		return 0;
	return lpi_fsck_put(shard, cursor->key, (struct lp_kv_bytes){NULL, 0});
}

/* --- F and D ---------------------------------------------------------------------------------- */

static void take_entries(struct walk *walk, struct lp_ino dir, struct entries *entries)
{
	struct lpi_fsck_cursor *cursor = &walk->cursors[DIRENT];
	struct lpi_fsck_shard *shard = walk->shard;
	for (; is_on(walk, DIRENT, dir); lpi_fsck_cursor_next(cursor)) {
		struct lp_dirent_value value;
		struct lp_key key;
		shard->fsck->report->entries++;
		entries->cnt++;
		entries->name_bytes += cursor->view.name_len;
		lpi_fsck_cursor_key(cursor, &key);
		if (lp_dirent_read(cursor->value.data, cursor->value.len, &key, &value) == 0) {
			entries->insertion_max = LP_MAX(entries->insertion_max, value.insertion);
			continue;
		}
		shard->fsck->names_in_doubt = true;
		found_record(shard, dir);
	}
}

/* What follows from the entries alone. */
static int rewrite_fragment(struct lpi_fsck_shard *shard, struct lp_ino dir,
			    const struct entries *entries, const struct lp_fragment_value *is)
{
	struct lp_fragment_value value = *is;
	uint8_t bytes[LP_FRAGMENT_VALUE_SIZE];
	struct lp_key key;
	value.entries_cnt = entries->cnt;
	value.name_bytes = entries->name_bytes;
	/* There may be more entries than the numbers that can be read. */
	value.next_insertion = LP_MAX(value.next_insertion, entries->insertion_max + 1);
	value.next_insertion = LP_MAX(value.next_insertion, entries->cnt + 1);
	lp_key_of_ino(&key, LP_KEY_SPACE_FRAGMENT, dir);
	lp_fragment_write(&value, &key, bytes);
	return lpi_fsck_put(shard, (struct lp_kv_bytes){key.bytes, key.len},
			    (struct lp_kv_bytes){bytes, sizeof(bytes)});
}

/* NULL when the fragment agrees with the entries. */
static const char *fragment_fault(const struct lp_fragment_value *value,
				  const struct entries *entries)
{
	if (value->entries_cnt != entries->cnt)
		return "number";
	if (value->name_bytes != entries->name_bytes)
		return "bytes of the names";
	return value->next_insertion <= entries->insertion_max ? "next insertion" : NULL;
}

static int take_fragment(struct walk *walk, struct lp_ino dir, const struct entries *entries,
			 struct lp_fragment_value value, bool is_sound)
{
	struct lpi_fsck_shard *shard = walk->shard;
	struct lpi_fsck_at at = {.kind = LP_FSCK_FRAGMENT, .shard = shard, .ino = dir};
	const char *fault = is_sound ? fragment_fault(&value, entries) : "record";
	if (fault == NULL || shard->is_broken)
		return 0;
	/* One that takes no entries and has some, or that may be such a one: which of both is right
	 * cannot be told. Nor what is right where an entry may be under a key that cannot be
	 * read. */
	at.is_repaired = shard->fsck->options->repair && !shard->entries_hidden &&
			 (is_sound ? value.is_sealed == 0 : entries->cnt > 0);
	lpi_fsck_found(shard->fsck, &at,
		       "the %s in its fragment on shard %u is wrong: there are %llu entries with "
		       "%llu bytes",
		       fault, shard->idx, (unsigned long long)entries->cnt,
		       (unsigned long long)entries->name_bytes);
	return at.is_repaired ? rewrite_fragment(shard, dir, entries, &value) : 0;
}

static int take_directory(struct walk *walk, struct lpi_fsck_object *object)
{
	struct lpi_fsck_cursor *cursor = &walk->cursors[FRAGMENT];
	struct lpi_fsck_shard *shard = walk->shard;
	struct entries entries = {.cnt = 0};
	int64_t now_ns = lpi_fsck_now_ns(shard->fsck);
	struct lp_fragment_value value = {.mtime_ns = now_ns, .ctime_ns = now_ns};
	bool has_fragment = is_on(walk, FRAGMENT, object->ino);
	bool is_sound = false;
	if (has_fragment) {
		struct lp_key key;
		lpi_fsck_cursor_key(cursor, &key);
		is_sound =
			lp_fragment_read(cursor->value.data, cursor->value.len, &key, &value) == 0;
		lpi_fsck_cursor_next(cursor);
	}
	take_entries(walk, object->ino, &entries);
	if (!has_fragment && entries.cnt == 0)
		return 0;
	if (object->is_sound && object->inode.type != LP_INODE_TYPE_DIR)
		lpi_fsck_found_stray(shard, object, "there are entries");
	return take_fragment(walk, object->ino, &entries, value, is_sound);
}

/* --- An inode ---------------------------------------------------------------------------------
 */

/* Records that hang on an inode of this shard. */
static void take_hanging(struct walk *walk, struct lpi_fsck_object *object, int which,
			 const char *what)
{
	for (; is_on(walk, which, object->ino); lpi_fsck_cursor_next(&walk->cursors[which])) {
		if (!object->has_record)
			lpi_fsck_found_stray(walk->shard, object, what);
	}
}

static int take_map(struct walk *walk, struct lpi_fsck_object *object)
{
	struct lpi_fsck_cursor *cursor = &walk->cursors[MAP];
	int err = object->is_sound ? lpi_fsck_map_begin(walk->shard, object) : 0;
	for (; err == 0 && is_on(walk, MAP, object->ino); lpi_fsck_cursor_next(cursor))
		err = lpi_fsck_map_leaf(walk->shard, object, cursor);
	if (err == 0)
		lpi_fsck_map_judge(walk->shard, object);
	lpi_fsck_map_end(object);
	return err;
}

static int take_object(struct walk *walk, struct lp_ino ino)
{
	struct lpi_fsck_object object = {.ino = ino};
	take_inode(walk, &object);
	int err = judge_values(walk->shard, &object);
	if (err == 0)
		err = take_unfinished(walk, &object);
	if (err == 0)
		err = take_map(walk, &object);
	if (err < 0)
		return err;
	take_hanging(walk, &object, XATTR, "there is a large attribute");
	take_hanging(walk, &object, OMAP, "there is an omap");
	err = take_directory(walk, &object);
	/* The last ones: the inode points into its record until here. */
	for (int which = INODE; which <= UNFINISHED; which++) {
		if (is_on(walk, which, ino))
			lpi_fsck_cursor_next(&walk->cursors[which]);
	}
	return err;
}

/* The lowest inode number that any cursor is on. */
static bool next_ino(const struct walk *walk, struct lp_ino *ret)
{
	struct lp_ino low = {UINT64_MAX};
	bool found = false;
	for (int which = 0; which < CURSORS; which++) {
		const struct lpi_fsck_cursor *cursor = &walk->cursors[which];
		if (cursor->is_at_end)
			continue;
		found = true;
		low.nr = LP_MIN(low.nr, cursor->view.ino.nr);
	}
	*ret = low;
	return found;
}

/* --- The rest --------------------------------------------------------------------------------- */

/* S and T: their keys are all that is checked here. */
static int take_others(struct lpi_fsck_shard *shard)
{
	static const enum lp_key_space others[] = {LP_KEY_SPACE_STORE, LP_KEY_SPACE_TXN};
	int err = 0;
	for (size_t i = 0; i < LP_ARRAY_SIZE(others) && err == 0; i++) {
		const struct lpi_fsck_at at = {
			.kind = LP_FSCK_TXN, .shard = shard, .is_warning = true};
		struct lpi_fsck_cursor cursor;
		err = lpi_fsck_cursor_open(&cursor, shard, others[i], false);
		for (; err == 0 && !cursor.is_at_end; lpi_fsck_cursor_next(&cursor)) {
			if (others[i] != LP_KEY_SPACE_TXN)
				continue;
			shard->fsck->names_in_doubt = true;
			lpi_fsck_found(shard->fsck, &at,
				       "transaction %llu is unfinished: start the daemon once to "
				       "resolve it",
				       (unsigned long long)cursor.view.number);
		}
		lpi_fsck_cursor_close(&cursor);
	}
	return err;
}

int lpi_fsck_walk(struct lpi_fsck_shard *shard)
{
	struct walk walk = {.shard = shard};
	struct lp_ino ino;
	int err = lpi_fsck_foreign_keys(shard);
	if (err == 0)
		err = lpi_fsck_bad_marks(shard);
	if (err == 0)
		err = lpi_fsck_deferred_new(shard, &shard->deferred);
	for (int which = 0; which < CURSORS && err == 0; which++)
		err = lpi_fsck_cursor_open(&walk.cursors[which], shard, spaces[which], false);
	while (err == 0 && next_ino(&walk, &ino))
		err = take_object(&walk, ino);
	for (int which = 0; which < CURSORS; which++)
		lpi_fsck_cursor_close(&walk.cursors[which]);
	if (err == 0)
		lpi_fsck_deferred_finish(shard->deferred);
	lpi_fsck_deferred_free(shard->deferred);
	shard->deferred = NULL;
	return err == 0 ? take_others(shard) : err;
}
