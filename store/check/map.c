/* SPDX-License-Identifier: Apache-2.0 */
/* Extent maps: the root, the leaves that it names, and the blocks that these name.
 *
 * Leaves are looked at one by one and not kept, however large the file is. The blocks of a leaf
 * whose inode is gone count as named too: nobody shall be given what may be all that is left of a
 * file. */
#include "base/error.h"
#include "store/check/fsck_impl.h"

struct lpi_leaf *lpi_fsck_leaf_read(struct lpi_fsck_leaf *memory, struct lp_kv_bytes bytes,
				    struct lp_ino ino, uint64_t block)
{
	struct lpi_leaf *leaf = (struct lpi_leaf *)(void *)memory->bytes;
	uint32_t idx = (uint32_t)(block >> LPI_LEAF_SHIFT);
	uint32_t words;
	uint32_t crcs_end;
	if (block % LPI_LEAF_BLOCKS != 0) {
		int err = LP_CORRUPT(LP_OFFSET_NONE, "inode %llu: a leaf of its map at block %llu",
				     (unsigned long long)ino.nr, (unsigned long long)block);
		(void)err; /* NULL says it */
		return NULL;
	}
	if (lpi_leaf_check(bytes.data, bytes.len, ino, idx, &words, &crcs_end) < 0)
		return NULL;
	LP_ASSERT(words <= LPI_LEAF_BLOCKS && crcs_end <= LPI_LEAF_BLOCKS);
	lpi_leaf_init(leaf, idx, LPI_LEAF_BLOCKS, LPI_LEAF_BLOCKS);
	lpi_leaf_decode(leaf, bytes.data, bytes.len);
	return leaf;
}

void lpi_fsck_found_stray(struct lpi_fsck_shard *shard, struct lpi_fsck_object *object,
			  const char *what)
{
	const struct lpi_fsck_at at = {.kind = LP_FSCK_STRAY, .shard = shard, .ino = object->ino};
	if (object->told_stray || shard->is_broken)
		return;
	object->told_stray = true;
	/* An inode was lost, or is not what it was, and so is what its record said of a map. */
	shard->maps_in_doubt = true;
	lpi_fsck_found(shard->fsck, &at, "%s, but the inode %s", what,
		       object->has_record ? "has no such" : "is not there");
}

/* --- Blocks ----------------------------------------------------------------------------------- */

static void check_size(struct lpi_fsck_shard *shard, struct lpi_fsck_object *object,
		       uint64_t logical_end)
{
	const struct lpi_fsck_at at = {.kind = LP_FSCK_SIZE,
				       .shard = shard,
				       .ino = object->ino,
				       .has_offset = true,
				       .offset_bytes = object->inode.size_bytes};
	/* What is unfinished may be larger for a while: it is cut when it is taken up again. */
	if (!object->is_sound || object->has_unfinished || object->told_size ||
	    logical_end <= lp_bytes_to_blocks_up(object->inode.size_bytes))
		return;
	object->told_size = true;
	lpi_fsck_found(
		shard->fsck, &at, "has written blocks up to block %llu, beyond its %llu bytes",
		(unsigned long long)logical_end, (unsigned long long)object->inode.size_bytes);
}

static int check_word(struct lpi_fsck_shard *shard, struct lpi_fsck_object *object,
		      struct lpi_leaf *leaf, uint64_t word)
{
	uint64_t logical = ((uint64_t)leaf->idx << LPI_LEAF_SHIFT) + lpi_word_first(word);
	struct lpi_fsck_at at = {.shard = shard,
				 .ino = object->ino,
				 .extent = {lpi_word_block(word), lpi_word_cnt(word)},
				 .has_offset = true,
				 .offset_bytes = logical << LP_BLOCK_SHIFT};
	uint64_t twice;
	shard->fsck->report->blocks += at.extent.cnt;
	if (!lpi_fsck_blocks_has(&shard->blocks, at.extent)) {
		at.kind = LP_FSCK_OUTSIDE;
		/* Of those it should name, and of those of another shard that it does name. */
		lpi_fsck_doubt_all_maps(shard->fsck);
		lpi_fsck_found(shard->fsck, &at,
			       "blocks %llu to %llu are not in the space of shard %u",
			       (unsigned long long)at.extent.block,
			       (unsigned long long)lp_extent_end(at.extent) - 1, shard->idx);
		return 0;
	}
	int err = lpi_fsck_blocks_name(&shard->blocks, at.extent,
				       (word & LP_EXTMAP_FLAG_SHARED) != 0, &twice);
	if (err < 0)
		return err;
	at.kind = LP_FSCK_TWICE;
	if (twice > 0) {
		/* One of the two should name another block, or is not counted where it shares. */
		shard->maps_in_doubt = true;
		lpi_fsck_found(shard->fsck, &at,
			       "%llu of blocks %llu to %llu are in another extent as well",
			       (unsigned long long)twice, (unsigned long long)at.extent.block,
			       (unsigned long long)lp_extent_end(at.extent) - 1);
	}
	if (lpi_word_is_unwritten(word))
		return 0;
	check_size(shard, object, logical + at.extent.cnt);
	lpi_fsck_deferred_see(shard->deferred, object->ino, logical, at.extent,
			      lpi_leaf_crcs(leaf) + lpi_word_first(word),
			      (word & LP_EXTMAP_FLAG_SHARED) != 0);
	if (shard->deep != NULL)
		lpi_fsck_deep_add(shard->deep, object->ino, logical, at.extent,
				  lpi_leaf_crcs(leaf) + lpi_word_first(word));
	return 0;
}

static int check_leaf(struct lpi_fsck_shard *shard, struct lpi_fsck_object *object,
		      struct lpi_leaf *leaf)
{
	int err = 0;
	object->leaves_cnt++;
	object->blocks_cnt += lpi_leaf_blocks(leaf);
	for (uint32_t i = 0; i < leaf->words_cnt && err == 0; i++)
		err = check_word(shard, object, leaf, leaf->words[i]);
	return err;
}

/* --- The map ---------------------------------------------------------------------------------- */

static void found_map(struct lpi_fsck_shard *shard, struct lpi_fsck_object *object,
		      const char *text)
{
	const struct lpi_fsck_at at = {.kind = LP_FSCK_MAP, .shard = shard, .ino = object->ino};
	shard->maps_in_doubt = true;
	lpi_fsck_found(shard->fsck, &at, "%s", text);
}

int lpi_fsck_map_begin(struct lpi_fsck_shard *shard, struct lpi_fsck_object *object)
{
	struct lp_inode_bytes root = object->inode.map;
	struct lpi_fsck_leaf memory;
	LP_ASSERT(object->is_sound && !object->has_map);
	if (root.len == 0)
		return 0;
	lp_extmap_init(&object->map, object->ino, NULL);
	int err = lp_extmap_load_root(&object->map, root.at, root.len);
	object->has_map = err == 0;
	if (err == -ENOMEM)
		return err;
	if (err < 0) {
		found_map(shard, object, lpi_fsck_last_corruption());
		object->has_bad_leaf = true;
		return 0;
	}
	if (!object->map.is_inline)
		return 0;
	struct lp_kv_bytes bytes = {root.at + LP_EXTMAP_ROOT_SIZE, root.len - LP_EXTMAP_ROOT_SIZE};
	struct lpi_leaf *leaf = lpi_fsck_leaf_read(&memory, bytes, object->ino, 0);
	LP_ASSERT(leaf != NULL); /* the root was read with it */
	return check_leaf(shard, object, leaf);
}

/* A leaf that can be read: does the inode know of it? */
static void check_named(struct lpi_fsck_shard *shard, struct lpi_fsck_object *object, uint32_t idx)
{
	const struct lp_extmap *map = &object->map;
	if (object->has_record && (!object->is_sound || (!object->has_map && object->has_bad_leaf)))
		return; /* nobody knows */
	if (!object->has_map || map->is_inline) {
		lpi_fsck_found_stray(shard, object, "there is a piece of an extent map");
		return;
	}
	bool in_run = lpi_runs_has(&map->runs, idx);
	object->run_leaves_cnt += in_run;
	if (!in_run && map->runs.sum == map->leaves_cnt)
		lpi_fsck_found_stray(shard, object, "there is one more piece of its extent map");
}

int lpi_fsck_map_leaf(struct lpi_fsck_shard *shard, struct lpi_fsck_object *object,
		      const struct lpi_fsck_cursor *cursor)
{
	struct lpi_fsck_leaf memory;
	struct lpi_leaf *leaf =
		lpi_fsck_leaf_read(&memory, cursor->value, object->ino, cursor->view.number);
	if (leaf == NULL) {
		const struct lpi_fsck_at at = {.kind = LP_FSCK_RECORD,
					       .shard = shard,
					       .ino = object->ino,
					       .has_offset = true,
					       .offset_bytes = cursor->view.number
							       << LP_BLOCK_SHIFT};
		object->has_bad_leaf = true;
		shard->maps_in_doubt = true;
		lpi_fsck_found(shard->fsck, &at, "%s", lpi_fsck_last_corruption());
		return 0;
	}
	check_named(shard, object, leaf->idx);
	return check_leaf(shard, object, leaf);
}

void lpi_fsck_map_judge(struct lpi_fsck_shard *shard, struct lpi_fsck_object *object)
{
	const struct lp_extmap *map = &object->map;
	if (!object->has_map)
		return;
	bool is_whole = object->run_leaves_cnt == map->runs.sum &&
			object->leaves_cnt == map->leaves_cnt &&
			object->blocks_cnt == map->blocks_cnt;
	if (!is_whole && !map->is_inline && !object->has_bad_leaf && !object->told_stray &&
	    !shard->is_broken) {
		const struct lpi_fsck_at at = {
			.kind = LP_FSCK_MAP, .shard = shard, .ino = object->ino};
		shard->maps_in_doubt = true;
		lpi_fsck_found(shard->fsck, &at,
			       "its extent map has %llu pieces with %llu blocks, but should have "
			       "%u with %llu",
			       (unsigned long long)object->leaves_cnt,
			       (unsigned long long)object->blocks_cnt, map->leaves_cnt,
			       (unsigned long long)map->blocks_cnt);
	}
}

void lpi_fsck_map_end(struct lpi_fsck_object *object)
{
	if (object->has_map)
		lp_extmap_fini(&object->map);
	object->has_map = false;
}

/* --- Once more, for counting ------------------------------------------------------------------ */

struct visit {
	void (*each)(void *arg, struct lp_ino ino, uint64_t word);
	void *arg;
};

static void visit_leaf(const struct visit *visit, struct lp_kv_bytes bytes, struct lp_ino ino,
		       uint64_t block)
{
	struct lpi_fsck_leaf memory;
	struct lpi_leaf *leaf = lpi_fsck_leaf_read(&memory, bytes, ino, block);
	for (uint32_t i = 0; leaf != NULL && i < leaf->words_cnt; i++)
		visit->each(visit->arg, ino, leaf->words[i]);
}

/* Only what phase 1 took for an inline leaf. */
static void visit_inode(const struct visit *visit, const struct lpi_fsck_cursor *cursor)
{
	struct lp_inode inode;
	struct lp_extmap map;
	if (lp_inode_decode(cursor->value.data, cursor->value.len, cursor->view.ino, &inode) < 0 ||
	    inode.map.len == 0)
		return;
	lp_extmap_init(&map, inode.ino, NULL);
	if (lp_extmap_load_root(&map, inode.map.at, inode.map.len) == 0 && map.is_inline)
		visit_leaf(visit,
			   (struct lp_kv_bytes){inode.map.at + LP_EXTMAP_ROOT_SIZE,
						inode.map.len - LP_EXTMAP_ROOT_SIZE},
			   inode.ino, 0);
	lp_extmap_fini(&map);
}

int lpi_fsck_each_word(struct lpi_fsck_shard *shard,
		       void (*each)(void *arg, struct lp_ino ino, uint64_t word), void *arg)
{
	const struct visit visit = {.each = each, .arg = arg};
	struct lpi_fsck_cursor cursor;
	int err = lpi_fsck_cursor_open(&cursor, shard, LP_KEY_SPACE_INODE, true);
	for (; err == 0 && !cursor.is_at_end; lpi_fsck_cursor_next(&cursor))
		visit_inode(&visit, &cursor);
	if (err < 0)
		return err;
	lpi_fsck_cursor_close(&cursor);
	err = lpi_fsck_cursor_open(&cursor, shard, LP_KEY_SPACE_MAP, true);
	for (; err == 0 && !cursor.is_at_end; lpi_fsck_cursor_next(&cursor))
		visit_leaf(&visit, cursor.value, cursor.view.ino, cursor.view.number);
	if (err == 0)
		lpi_fsck_cursor_close(&cursor);
	return err;
}
