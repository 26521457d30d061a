/* SPDX-License-Identifier: Apache-2.0 */
/* Leaves in memory are found by a hash table of pointers, open addressing with linear probing, at
 * most three quarters full; a map of one leaf has no table. A leaf is one allocation, made larger
 * by lp_extmap_reserve() and smaller after it was encoded.
 *
 * What is known about a leaf that is not in memory (presence()):
 *   PRESENT  a run names it
 *   ABSENT   the runs name all there are (their sum is leaves_cnt), or all there are is in memory,
 *            or it lies between known_first and known_end, which the caller has read
 *   UNKNOWN  else
 * Whoever makes one of these reasons false resets what follows from it: unloading a leaf that no
 * run names, and dropping a run, empty the known range.
 *
 * Inline: true while leaf 0 is the only one that maps something and is in memory. settle() looks
 * at that after each change; when it turns, leaf 0 is marked dirty, so that lp_extmap_take_dirty()
 * writes or deletes its X key in the same commit that changes the root. */
#include "store/extmap/extmap.h"

#include "base/cursor.h"
#include "base/error.h"
#include "store/extmap/ahead.h"
#include "store/extmap/table.h"
#include "store/record/csum.h"

/* Leaves that a seek looks at before it asks to be called again. */
#define SEEK_LEAVES_MAX 1024u
/* "No leaf": one beyond the last. */
#define NO_LEAF ((uint32_t)LP_EXTMAP_LEAVES_MAX)

enum presence { PRESENT, ABSENT, UNKNOWN };

/* The part of a range that lies in one leaf. */
struct part {
	uint32_t idx;
	uint32_t first; /* blocks of the leaf: first <= b < end */
	uint32_t end;
};

static void owe_no_more(struct lp_extmap *map, struct lpi_leaf *leaf)
{
	if (!leaf->is_owed)
		return;
	leaf->is_owed = false;
	map->owed_cnt--;
}

static void mark_dirty(struct lp_extmap *map, struct lpi_leaf *leaf)
{
	owe_no_more(map, leaf);
	if (!lpi_leaf_list_is_linked(leaf))
		lpi_leaf_list_push_back(&map->dirty, leaf);
}

static bool is_reserved(const struct lp_extmap *map, uint32_t idx)
{
	uint64_t first = (uint64_t)idx << LPI_LEAF_SHIFT;
	return map->reserved.cnt > 0 && first < map->reserved.first + map->reserved.cnt &&
	       first + LP_EXTMAP_LEAF_BLOCKS > map->reserved.first;
}

/* Room that a change needed and the result does not. When there is no memory it stays. */
static void leaf_trim(struct lp_extmap *map, struct lpi_leaf *leaf)
{
	uint32_t words = LP_MAX(leaf->words_cnt, 1U);
	uint32_t crcs = LP_MAX(lpi_leaf_crcs_end(leaf), 1U);
	bool is_loose = leaf->words_max >= 4 * words || leaf->crcs_max >= 4 * crcs;
	if (is_loose && !is_reserved(map, leaf->idx))
		(void)lpi_extmap_leaf_resize(map, leaf, words, crcs); /* -ENOMEM */
}

/* --- what is known about leaves ------------------------------------------------------------- */

static bool runs_name_all(const struct lp_extmap *map)
{
	return map->runs.sum == map->leaves_cnt;
}

static enum presence presence(const struct lp_extmap *map, uint32_t idx)
{
	if (lpi_runs_has(&map->runs, idx))
		return PRESENT;
	bool was_read = idx >= map->known_first && idx < map->known_end;
	if (runs_name_all(map) || map->loaded_cnt == map->leaves_cnt || was_read)
		return ABSENT;
	return UNKNOWN;
}

static int say_missing(struct lp_extmap *map, uint32_t idx, uint32_t last)
{
	const struct lpi_run *run = lpi_runs_next(&map->runs, idx);
	uint32_t end = idx + 1;
	if (run != NULL && run->first <= idx) {
		uint32_t stop = LP_MIN(lpi_run_end(*run), last + 1);
		while (end < stop && lpi_extmap_find(map, end) == NULL)
			end++;
	} else {
		end = run == NULL ? last + 1 : LP_MIN(run->first, last + 1);
	}
	map->missing = (struct lp_extmap_leaves){idx, end - 1};
	return -EAGAIN;
}

static int runs_reserve(struct lp_extmap *map)
{
	uint32_t max = map->runs.max;
	if (map->runs.cnt + 1 <= max)
		return 0;
	max = max == 1 ? 4 : LP_MIN(max * 2, LPI_RUNS_MAX + 1);
	struct lpi_run *items = lpi_extmap_alloc(map, max * sizeof(items[0]));
	if (items == NULL)
		return -ENOMEM;
	memcpy(items, lpi_runs_list(&map->runs), map->runs.cnt * sizeof(items[0]));
	if (map->runs.max > 1)
		lpi_extmap_free(map, map->runs.items, map->runs.max * sizeof(items[0]));
	map->runs.items = items;
	map->runs.max = max;
	return 0;
}

/* One run too many is forgotten, but not that of `idx`. */
static void runs_limit(struct lp_extmap *map, uint32_t idx)
{
	struct lpi_run dropped = lpi_runs_drop(&map->runs, idx);
	if (dropped.cnt == 0)
		return;
	map->known_first = 0;
	map->known_end = 0;
	for (uint32_t i = 0; i < dropped.cnt; i++)
		map->unnamed_cnt += lpi_extmap_find(map, dropped.first + i) != NULL;
}

/* A leaf that is in memory and maps something. */
static void runs_add(struct lp_extmap *map, uint32_t idx)
{
	if (lpi_runs_add(&map->runs, idx)) {
		map->root_dirty = true;
		map->unnamed_cnt--;
	}
	runs_limit(map, idx);
}

/* A leaf that maps nothing any more; a run that had it in its middle becomes two. */
static void runs_remove(struct lp_extmap *map, uint32_t idx)
{
	if (lpi_runs_remove(&map->runs, idx))
		runs_limit(map, idx);
	else
		map->unnamed_cnt--;
}

/* After an edit of a leaf that mapped `before` blocks. */
static void note_change(struct lp_extmap *map, struct lpi_leaf *leaf, uint32_t before)
{
	uint32_t after = lpi_leaf_blocks(leaf);
	mark_dirty(map, leaf);
	map->blocks_cnt = map->blocks_cnt - before + after;
	map->loaded_blocks_cnt = map->loaded_blocks_cnt - before + after;
	if (before == 0 && after > 0) {
		map->leaves_cnt++;
		map->loaded_cnt++;
		map->unnamed_cnt++;
		lpi_ahead_came(map, leaf->idx);
	}
	if (before > 0 && after == 0) {
		map->leaves_cnt--;
		map->loaded_cnt--;
	}
	if (after > 0)
		runs_add(map, leaf->idx);
	else if (before > 0)
		runs_remove(map, leaf->idx);
	if (before != after || map->is_inline)
		map->root_dirty = true;
}

/* At the end of every change. */
static void settle(struct lp_extmap *map)
{
	struct lpi_leaf *leaf = lpi_extmap_find(map, 0);
	bool is_inline = map->leaves_cnt == 1 && leaf != NULL && leaf->words_cnt > 0;
	if (is_inline != map->is_inline) {
		map->is_inline = is_inline;
		map->root_dirty = true;
		if (leaf != NULL)
			mark_dirty(map, leaf);
	}
	map->reserved = (struct lp_extmap_range){0, 0};
	LP_ASSERT_SLOW(map->objects_cnt > 16 || lpi_extmap_is_sound(map));
}

/* --- birth and death ------------------------------------------------------------------------ */

void lp_extmap_init(struct lp_extmap *map, struct lp_ino ino, const struct lp_extmap_mem *mem)
{
	LP_ASSERT(ino.nr != 0);
	*map = (struct lp_extmap){.ino = ino, .mem = mem == NULL ? &lpi_extmap_malloc : mem};
	lpi_runs_init(&map->runs);
	lpi_leaf_list_init(&map->dirty);
}

void lp_extmap_fini(struct lp_extmap *map)
{
	struct lpi_leaf **slots = lpi_extmap_slots(map);
	for (uint32_t i = 0; i < lpi_extmap_slots_cnt(map); i++) {
		if (slots[i] != NULL)
			lpi_extmap_free(map, slots[i], lpi_leaf_size(slots[i]));
	}
	if (map->table_bits > 0)
		lpi_extmap_free(map, map->table, lpi_extmap_slots_cnt(map) * sizeof(void *));
	if (map->runs.max > 1)
		lpi_extmap_free(map, map->runs.items, map->runs.max * sizeof(map->runs.items[0]));
	lpi_ahead_free(map);
	LP_ASSERT(map->bytes == 0);
	*map = (struct lp_extmap){0};
}

static int bad_map(const struct lp_extmap *map, const char *what)
{
	return LP_CORRUPT(LP_OFFSET_NONE, "inode %llu: map: %s", (unsigned long long)map->ino.nr,
			  what);
}

/* Whether so many leaves can map so many blocks. */
static bool counts_agree(uint64_t leaves, uint64_t blocks)
{
	return blocks >= leaves && blocks <= leaves * LP_EXTMAP_LEAF_BLOCKS;
}

static int load_runs(struct lp_extmap *map, struct lp_reader *reader, uint32_t runs_cnt)
{
	int err = 0;
	if (runs_cnt > LPI_RUNS_MAX || !lp_reader_expect(reader, runs_cnt, LP_EXTMAP_RUN_SIZE))
		return bad_map(map, "root.runs_cnt");
	while (map->runs.max < runs_cnt && err == 0) {
		map->runs.cnt = map->runs.max;
		err = runs_reserve(map);
	}
	map->runs.cnt = 0;
	if (err != 0)
		return err;
	for (uint32_t i = 0; i < runs_cnt; i++) {
		struct lp_extmap_run run;
		lp_extmap_run_decode(lp_reader_bytes(reader, LP_EXTMAP_RUN_SIZE), &run);
		lpi_runs_items(&map->runs)[i] = (struct lpi_run){run.first, run.cnt};
		map->runs.sum += run.cnt;
	}
	map->runs.cnt = runs_cnt;
	if (!lpi_runs_are_sound(&map->runs, LP_EXTMAP_LEAVES_MAX))
		return bad_map(map, "root: runs");
	if (map->runs.sum > map->leaves_cnt)
		return bad_map(map, "root.leaves_cnt: less than the runs");
	return lp_reader_finish(reader) ? 0 : bad_map(map, "root: length");
}

static int load_inline(struct lp_extmap *map, struct lp_reader *reader, uint32_t runs_cnt)
{
	size_t len = lp_reader_remaining(reader);
	if (runs_cnt != 0 || map->leaves_cnt != 1)
		return bad_map(map, "root: an inline map of several leaves");
	(void)lpi_runs_add(&map->runs, 0);
	int err = lp_extmap_load(map, 0, lp_reader_bytes(reader, len), len);
	if (err != 0)
		return err;
	map->is_inline = true;
	struct lpi_leaf *leaf = lpi_extmap_find(map, 0);
	LP_ASSERT(leaf != NULL);
	leaf->is_stored = false;
	return 0;
}

int lp_extmap_load_root(struct lp_extmap *map, const void *bytes, size_t len)
{
	struct lp_reader reader;
	struct lp_extmap_root root;
	int err;
	LP_ASSERT(map->objects_cnt == 0 && map->leaves_cnt == 0);
	if (len == 0)
		return 0;
	lp_reader_init(&reader, bytes, len);
	const uint8_t *at = lp_reader_bytes(&reader, LP_EXTMAP_ROOT_SIZE);
	if (at == NULL)
		return bad_map(map, "root: length");
	lp_extmap_root_decode(at, &root);
	if (root.version != 1)
		return bad_map(map, "root.version");
	bool counts_ok = root.leaves_cnt > 0 && root.leaves_cnt <= LP_EXTMAP_LEAVES_MAX;
	if (!counts_ok || !counts_agree(root.leaves_cnt, root.blocks_cnt))
		return bad_map(map, "root: counts");
	map->leaves_cnt = root.leaves_cnt;
	map->blocks_cnt = root.blocks_cnt;
	if (root.kind == LP_EXTMAP_KIND_INLINE)
		err = load_inline(map, &reader, root.runs_cnt);
	else if (root.kind == LP_EXTMAP_KIND_SPLIT)
		err = load_runs(map, &reader, root.runs_cnt);
	else
		err = bad_map(map, "root.kind");
	if (err == 0)
		return 0;
	struct lp_ino ino = map->ino;
	const struct lp_extmap_mem *mem = map->mem;
	lp_extmap_fini(map);
	lp_extmap_init(map, ino, mem);
	return err;
}

size_t lp_extmap_encode_root(struct lp_extmap *map, uint8_t *buf)
{
	struct lp_extmap_root root = {
		.version = 1, .leaves_cnt = map->leaves_cnt, .blocks_cnt = map->blocks_cnt};
	size_t len = LP_EXTMAP_ROOT_SIZE;
	map->root_dirty = false;
	if (map->leaves_cnt == 0)
		return 0;
	if (map->is_inline) {
		root.kind = LP_EXTMAP_KIND_INLINE;
		len += lpi_leaf_encode(lpi_extmap_find(map, 0), map->ino, buf + len);
	} else {
		LP_ASSERT(map->runs.cnt <= LPI_RUNS_MAX);
		root.kind = LP_EXTMAP_KIND_SPLIT;
		root.runs_cnt = (uint16_t)map->runs.cnt;
		for (uint32_t i = 0; i < map->runs.cnt; i++, len += LP_EXTMAP_RUN_SIZE) {
			struct lpi_run run = lpi_runs_list(&map->runs)[i];
			lp_extmap_run_encode(&(struct lp_extmap_run){run.first, run.cnt},
					     buf + len);
		}
	}
	LP_ASSERT(len <= LP_EXTMAP_ROOT_BYTES_MAX);
	lp_extmap_root_encode(&root, buf);
	return len;
}

/* --- loading and unloading ------------------------------------------------------------------ */

int lp_extmap_leaf_of_key(const struct lp_extmap *map, uint64_t block, uint32_t *ret_idx)
{
	if (block >= LP_EXTMAP_BLOCKS_MAX || block % LP_EXTMAP_LEAF_BLOCKS != 0)
		return bad_map(map, "a key at which no leaf begins");
	*ret_idx = (uint32_t)(block >> LPI_LEAF_SHIFT);
	return 0;
}

int lp_extmap_load(struct lp_extmap *map, uint32_t idx, const void *bytes, size_t len)
{
	uint32_t words_cnt = 0;
	uint32_t crcs_end = 0;
	LP_ASSERT(idx < LP_EXTMAP_LEAVES_MAX);
	if (lpi_extmap_find(map, idx) != NULL)
		return 0;
	bool is_named = lpi_runs_has(&map->runs, idx);
	if (presence(map, idx) == ABSENT)
		return bad_map(map, "a leaf that should not be there");
	/* Those that the runs name are counted, in memory or not: else a change, which names what
	 * it changes, would name more than there are. */
	if (!is_named && map->unnamed_cnt >= map->leaves_cnt - map->runs.sum)
		return bad_map(map, "more leaves than root.leaves_cnt");
	int err = lpi_leaf_check(bytes, len, map->ino, idx, &words_cnt, &crcs_end);
	if (err != 0)
		return err;
	struct lpi_leaf *leaf = lpi_extmap_leaf_new(map, idx, words_cnt, LP_MAX(crcs_end, 1U));
	if (leaf == NULL)
		return -ENOMEM;
	lpi_leaf_decode(leaf, bytes, len);
	leaf->is_stored = true;
	uint64_t leaves_left = map->leaves_cnt - map->loaded_cnt - 1;
	uint64_t blocks_left = map->blocks_cnt - map->loaded_blocks_cnt;
	uint32_t blocks = lpi_leaf_blocks(leaf);
	if (blocks > blocks_left || !counts_agree(leaves_left, blocks_left - blocks)) {
		lpi_extmap_remove(map, lpi_extmap_probe(map, idx));
		return bad_map(map, "leaves and root.blocks_cnt differ");
	}
	map->loaded_cnt++;
	lpi_ahead_came(map, idx);
	map->unnamed_cnt += !is_named;
	map->loaded_blocks_cnt += blocks;
	return 0;
}

/* True when each leaf from first on that exists is in memory or in a run: few enough to look. */
static bool gap_is_known(struct lp_extmap *map, uint32_t first, uint32_t end)
{
	if (end - first > LP_EXTMAP_RANGE_MAX / LP_EXTMAP_LEAF_BLOCKS)
		return false;
	for (uint32_t idx = first; idx < end; idx++) {
		if (lpi_extmap_find(map, idx) == NULL && presence(map, idx) == UNKNOWN)
			return false;
	}
	return true;
}

/* A call that walks up a range asks for its unknown leaves one after another, with known ones in
 * between: the known range must grow over these, or the call would begin anew for ever. */
static void known_add(struct lp_extmap *map, uint32_t first, uint32_t end)
{
	bool joins = first <= map->known_end && end >= map->known_first;
	if (!joins && first > map->known_end)
		joins = gap_is_known(map, map->known_end, first);
	if (joins) {
		map->known_first = LP_MIN(map->known_first, first);
		map->known_end = LP_MAX(map->known_end, end);
	} else {
		map->known_first = first;
		map->known_end = end;
	}
}

int lp_extmap_loaded(struct lp_extmap *map, struct lp_extmap_leaves leaves)
{
	uint32_t idx = leaves.first;
	LP_ASSERT(leaves.first <= leaves.last && leaves.last < LP_EXTMAP_LEAVES_MAX);
	for (;;) {
		const struct lpi_run *run = lpi_runs_next(&map->runs, idx);
		if (run == NULL || run->first > leaves.last)
			break;
		idx = LP_MAX(idx, run->first);
		if (lpi_extmap_find(map, idx) == NULL)
			return bad_map(map, "a leaf is lost");
		if (idx++ == leaves.last)
			break;
	}
	known_add(map, leaves.first, leaves.last + 1);
	return 0;
}

int lp_extmap_unload(struct lp_extmap *map, uint32_t idx)
{
	uint32_t at = lpi_extmap_probe(map, idx);
	struct lpi_leaf *leaf = at == LPI_NO_SLOT ? NULL : lpi_extmap_slots(map)[at];
	if (leaf == NULL)
		return 0;
	bool is_in_root = map->is_inline && idx == 0;
	if (lpi_leaf_list_is_linked(leaf) || leaf->is_owed || is_in_root || is_reserved(map, idx))
		return -EBUSY;
	if (leaf->words_cnt > 0) {
		map->loaded_cnt--;
		map->loaded_blocks_cnt -= lpi_leaf_blocks(leaf);
		if (!lpi_runs_has(&map->runs, idx)) {
			map->unnamed_cnt--;
			map->known_first = 0;
			map->known_end = 0;
		}
	}
	lpi_extmap_remove(map, at);
	return 0;
}

size_t lp_extmap_shrink(struct lp_extmap *map, size_t bytes)
{
	size_t before = map->bytes;
	uint64_t steps = 2 * (uint64_t)lpi_extmap_slots_cnt(map) + map->objects_cnt;
	for (; steps > 0 && before - map->bytes < bytes; steps--) {
		struct lpi_leaf *leaf =
			lpi_extmap_slots(map)[map->hand & (lpi_extmap_slots_cnt(map) - 1)];
		bool was_used = leaf != NULL && leaf->is_used;
		if (was_used)
			leaf->is_used = false;
		/* Removing moves another leaf into the slot: the hand stays. */
		if (leaf == NULL || was_used || lp_extmap_unload(map, leaf->idx) != 0)
			map->hand++;
	}
	lpi_extmap_table_shrink(map);
	if (map->objects_cnt < LPI_AHEAD_MAX)
		lpi_ahead_free(map);
	return before > map->bytes ? before - map->bytes : 0;
}

static bool take(struct lp_extmap *map, bool may_owe, uint8_t *buf, struct lp_extmap_piece *ret)
{
	for (;;) {
		struct lpi_leaf *leaf = lpi_leaf_list_pop_front(&map->dirty);
		if (leaf == NULL)
			return false;
		bool is_in_root = map->is_inline && leaf->idx == 0;
		bool to_store = leaf->words_cnt > 0 && !is_in_root;
		bool to_delete = leaf->is_stored && !to_store;
		ret->is_owed = may_owe && to_store && leaf->is_stored;
		leaf->is_stored = to_store;
		leaf->is_owed = ret->is_owed;
		map->owed_cnt += ret->is_owed;
		ret->block = (uint64_t)leaf->idx << LPI_LEAF_SHIFT;
		ret->len = to_store ? lpi_leaf_encode(leaf, map->ino, buf) : 0;
		leaf_trim(map, leaf);
		if (to_store || to_delete)
			return true;
	}
}

bool lp_extmap_take_dirty(struct lp_extmap *map, uint8_t *buf, struct lp_extmap_piece *ret)
{
	return take(map, false, buf, ret);
}

bool lp_extmap_take_or_owe(struct lp_extmap *map, uint8_t *buf, struct lp_extmap_piece *ret)
{
	return take(map, true, buf, ret);
}

bool lp_extmap_pay(struct lp_extmap *map, uint64_t block, uint8_t *buf, struct lp_extmap_piece *ret)
{
	struct lpi_leaf *leaf = lpi_extmap_find(map, (uint32_t)(block >> LPI_LEAF_SHIFT));
	if (leaf == NULL || !leaf->is_owed)
		return false;
	owe_no_more(map, leaf);
	ret->block = block;
	ret->len = lpi_leaf_encode(leaf, map->ino, buf);
	ret->is_owed = false;
	return true;
}

/* --- questions ------------------------------------------------------------------------------ */

static void assert_range(struct lp_extmap_range range)
{
	LP_ASSERT(range.cnt > 0 && range.cnt <= LP_EXTMAP_RANGE_MAX);
	LP_ASSERT(!lp_range_outside(range.first, range.cnt, LP_EXTMAP_BLOCKS_MAX));
}

/* The part of the range that begins at block `at`, which lies in it. */
static struct part part_at(struct lp_extmap_range range, uint64_t at)
{
	uint64_t end = range.first + range.cnt;
	uint32_t first = (uint32_t)at & (LP_EXTMAP_LEAF_BLOCKS - 1);
	uint64_t cnt = LP_MIN(end - at, (uint64_t)LP_EXTMAP_LEAF_BLOCKS - first);
	return (struct part){(uint32_t)(at >> LPI_LEAF_SHIFT), first, first + (uint32_t)cnt};
}

static uint32_t last_leaf(struct lp_extmap_range range)
{
	return (uint32_t)((range.first + range.cnt - 1) >> LPI_LEAF_SHIFT);
}

/* Appends a segment, or makes the last one longer; false when there is no room. */
static bool push_segment(struct lp_extmap_segment *list, int *cnt, int max,
			 const struct lp_extmap_segment *segment)
{
	struct lp_extmap_segment *last = *cnt > 0 ? &list[*cnt - 1] : NULL;
	bool is_like = last != NULL && last->kind == segment->kind &&
		       last->is_shared == segment->is_shared;
	if (is_like &&
	    (last->kind == LP_EXTMAP_HOLE || last->block + last->range.cnt == segment->block)) {
		last->range.cnt += segment->range.cnt;
		return true;
	}
	if (*cnt == max)
		return false;
	list[(*cnt)++] = *segment;
	return true;
}

/* What begins at block `at`, up to the end of the part. leaf NULL: maps nothing. */
static struct lp_extmap_segment segment_at(const struct lpi_leaf *leaf, uint64_t at,
					   const struct part *part)
{
	uint32_t first = (uint32_t)at & (LP_EXTMAP_LEAF_BLOCKS - 1);
	uint32_t end = LP_EXTMAP_LEAF_BLOCKS;
	const uint64_t *word = leaf == NULL ? NULL : lpi_leaf_find(leaf, first, &end);
	struct lp_extmap_segment segment = {.kind = LP_EXTMAP_HOLE};
	if (word != NULL) {
		end = lpi_word_end(*word);
		segment.block = lpi_word_block(*word) + first - lpi_word_first(*word);
		segment.is_shared = (*word & LP_EXTMAP_FLAG_SHARED) != 0;
		segment.kind = lpi_word_is_unwritten(*word) ? LP_EXTMAP_UNWRITTEN : LP_EXTMAP_DATA;
	}
	segment.range = (struct lp_extmap_range){at, LP_MIN(end, part->end) - first};
	return segment;
}

static void copy_crcs(const struct lpi_leaf *leaf, const struct lp_extmap_segment *segment,
		      uint32_t *to)
{
	uint32_t first = (uint32_t)segment->range.first & (LP_EXTMAP_LEAF_BLOCKS - 1);
	for (uint32_t i = 0; i < segment->range.cnt; i++)
		to[i] = segment->kind == LP_EXTMAP_DATA ? lpi_leaf_crc(leaf, first + i)
							: LP_CSUM_ZERO_BLOCK;
}

int lp_extmap_lookup(struct lp_extmap *map, struct lp_extmap_range range,
		     struct lp_extmap_segment *ret_segments, int max, uint32_t *ret_crcs)
{
	uint64_t end = range.first + range.cnt;
	int cnt = 0;
	assert_range(range);
	LP_ASSERT(max > 0);
	for (uint64_t at = range.first; at < end;) {
		struct part part = part_at(range, at);
		struct lpi_leaf *leaf = lpi_extmap_find(map, part.idx);
		if (leaf == NULL && presence(map, part.idx) != ABSENT)
			return say_missing(map, part.idx, last_leaf(range));
		uint64_t part_end = at + part.end - part.first;
		while (at < part_end) {
			struct lp_extmap_segment segment = segment_at(leaf, at, &part);
			if (!push_segment(ret_segments, &cnt, max, &segment))
				return cnt;
			if (ret_crcs != NULL)
				copy_crcs(leaf, &segment, ret_crcs + (at - range.first));
			at += segment.range.cnt;
		}
	}
	return cnt;
}

static bool part_is_plain(const struct lpi_leaf *leaf, const struct part *part)
{
	for (uint32_t at = part->first; at < part->end;) {
		uint32_t end;
		const uint64_t *word = lpi_leaf_find(leaf, at, &end);
		if (word == NULL || lpi_word_flags(*word) != 0)
			return false;
		at = lpi_word_end(*word);
	}
	return true;
}

int lp_extmap_can_overwrite(struct lp_extmap *map, struct lp_extmap_range range)
{
	uint64_t end = range.first + range.cnt;
	assert_range(range);
	for (uint64_t at = range.first; at < end;) {
		struct part part = part_at(range, at);
		struct lpi_leaf *leaf = lpi_extmap_find(map, part.idx);
		if (leaf == NULL && presence(map, part.idx) != ABSENT)
			return say_missing(map, part.idx, last_leaf(range));
		if (leaf == NULL || !part_is_plain(leaf, &part))
			return 0;
		at += part.end - part.first;
	}
	return 1;
}

/* The first leaf from idx on that may map something; NO_LEAF when none does. */
static uint32_t next_possible(struct lp_extmap *map, uint32_t idx)
{
	const struct lpi_run *run = lpi_runs_next(&map->runs, idx);
	uint32_t best = run == NULL ? NO_LEAF : LP_MAX(run->first, idx);
	if (best == idx || runs_name_all(map))
		return best;
	if (map->loaded_cnt < map->leaves_cnt) {
		bool was_read = idx >= map->known_first && idx < map->known_end;
		best = LP_MIN(best, was_read ? map->known_end : idx);
	}
	/* Leaves in memory that no run names: only in a file of many runs. */
	return best == idx ? idx : LP_MIN(best, lpi_ahead_next(map, idx));
}

static bool is_for_hole(enum lp_extmap_seek what)
{
	return what == LP_EXTMAP_SEEK_HOLE || what == LP_EXTMAP_SEEK_FREE;
}

/* The first such block of the leaf from `first` on; LP_EXTMAP_LEAF_BLOCKS when none is. */
static uint32_t seek_in_leaf(const struct lpi_leaf *leaf, uint32_t first, enum lp_extmap_seek what)
{
	uint32_t hole = first;
	for (uint32_t i = 0; i < leaf->words_cnt; i++) {
		uint64_t word = leaf->words[i];
		if (lpi_word_end(word) <= first)
			continue;
		bool is_data = !lpi_word_is_unwritten(word);
		if (what == LP_EXTMAP_SEEK_ALLOCATED || (what == LP_EXTMAP_SEEK_DATA && is_data))
			return LP_MAX(lpi_word_first(word), first);
		if ((is_data || what == LP_EXTMAP_SEEK_FREE) && lpi_word_first(word) <= hole)
			hole = lpi_word_end(word);
	}
	return is_for_hole(what) ? hole : LP_EXTMAP_LEAF_BLOCKS;
}

static int seek_end(enum lp_extmap_seek what, uint64_t *ret_block)
{
	if (!is_for_hole(what))
		return -ENXIO;
	*ret_block = LP_EXTMAP_BLOCKS_MAX;
	return 0;
}

int lp_extmap_seek(struct lp_extmap *map, uint64_t from, enum lp_extmap_seek what,
		   uint64_t *ret_block)
{
	LP_ASSERT(from <= LP_EXTMAP_BLOCKS_MAX);
	uint32_t first = (uint32_t)from & (LP_EXTMAP_LEAF_BLOCKS - 1);
	uint32_t idx = (uint32_t)(from >> LPI_LEAF_SHIFT);
	for (uint32_t n = 0; n < SEEK_LEAVES_MAX; n++, idx++, first = 0) {
		uint32_t next = idx < NO_LEAF && !is_for_hole(what) ? next_possible(map, idx) : idx;
		first = next == idx ? first : 0;
		idx = next;
		if (idx >= NO_LEAF)
			return seek_end(what, ret_block);
		struct lpi_leaf *leaf = lpi_extmap_find(map, idx);
		enum presence known = leaf == NULL ? presence(map, idx) : PRESENT;
		if (leaf == NULL && known != ABSENT && n == 0)
			return say_missing(map, idx, known == PRESENT ? idx : NO_LEAF - 1);
		if (leaf == NULL && known != ABSENT)
			break; /* what was gone past need not be looked at again */
		uint32_t nothing = is_for_hole(what) ? first : LP_EXTMAP_LEAF_BLOCKS;
		uint32_t found = leaf == NULL ? nothing : seek_in_leaf(leaf, first, what);
		if (found < LP_EXTMAP_LEAF_BLOCKS) {
			*ret_block = ((uint64_t)idx << LPI_LEAF_SHIFT) + found;
			return 0;
		}
	}
	*ret_block = (uint64_t)idx << LPI_LEAF_SHIFT;
	return 1;
}

/* --- changes -------------------------------------------------------------------------------- */

static bool has_unwritten(const struct lpi_leaf *leaf)
{
	for (uint32_t i = 0; i < leaf->words_cnt; i++) {
		if (lpi_word_is_unwritten(leaf->words[i]))
			return true;
	}
	return false;
}

/* Room in one leaf for a change of the part; leaf is NULL when it is not there. */
static int reserve_part(struct lp_extmap *map, struct lpi_leaf *leaf, const struct part *part,
			size_t extents_max)
{
	uint32_t inserts = (uint32_t)LP_MIN(extents_max, (size_t)(part->end - part->first));
	if (leaf == NULL) {
		if (inserts == 0)
			return 0;
		return lpi_extmap_leaf_new(map, part->idx, inserts, part->end) == NULL ? -ENOMEM
										       : 0;
	}
	uint32_t words = leaf->words_cnt == 0 ? inserts : leaf->words_cnt + LP_MAX(inserts + 1, 2U);
	words = LP_MAX(LP_MIN(words, LP_EXTMAP_LEAF_BLOCKS), (uint32_t)leaf->words_max);
	uint32_t crcs = leaf->crcs_max;
	if (inserts > 0 || has_unwritten(leaf))
		crcs = LP_MAX(crcs, part->end);
	if (words == leaf->words_max && crcs == leaf->crcs_max)
		return 0;
	return lpi_extmap_leaf_resize(map, leaf, words, crcs);
}

int lp_extmap_reserve(struct lp_extmap *map, struct lp_extmap_range range, size_t extents_max)
{
	uint64_t end = range.first + range.cnt;
	uint64_t released = 0;
	assert_range(range);
	map->reserved = (struct lp_extmap_range){0, 0};
	for (uint64_t at = range.first; at < end;) {
		struct part part = part_at(range, at);
		const struct lpi_leaf *leaf = lpi_extmap_find(map, part.idx);
		if (leaf == NULL && presence(map, part.idx) != ABSENT)
			return say_missing(map, part.idx, last_leaf(range));
		if (leaf != NULL)
			released += lpi_leaf_overlaps(leaf, part.first, part.end);
		at += part.end - part.first;
	}
	int err = runs_reserve(map);
	for (uint64_t at = range.first; at < end && err == 0;) {
		struct part part = part_at(range, at);
		err = reserve_part(map, lpi_extmap_find(map, part.idx), &part, extents_max);
		at += part.end - part.first;
	}
	if (err != 0) {
		map->reserved = range;
		lp_extmap_unreserve(map);
		return err;
	}
	map->reserved = range;
	LP_ASSERT(released <= range.cnt);
	return (int)released;
}

void lp_extmap_unreserve(struct lp_extmap *map)
{
	struct lp_extmap_range range = map->reserved;
	uint64_t end = range.first + range.cnt;
	map->reserved = (struct lp_extmap_range){0, 0};
	for (uint64_t at = range.first; at < end;) {
		struct part part = part_at(range, at);
		const struct lpi_leaf *leaf = lpi_extmap_find(map, part.idx);
		bool is_empty = leaf != NULL && leaf->words_cnt == 0 && !leaf->is_stored;
		/* Emptied leaves that wait to be deleted are busy; others were made by reserve. */
		int err = is_empty ? lp_extmap_unload(map, part.idx) : 0;
		LP_ASSERT(err == 0 || err == -EBUSY);
		at += part.end - part.first;
	}
}

static void assert_reserved(const struct lp_extmap *map, struct lp_extmap_range range)
{
	assert_range(range);
	LP_ASSERT(range.first >= map->reserved.first);
	LP_ASSERT(range.first + range.cnt <= map->reserved.first + map->reserved.cnt);
}

/* Where in a list of extents the next block comes from. */
struct source {
	const struct lp_extmap_new *fresh;
	size_t extent_idx;
	uint64_t offset; /* blocks into that extent */
};

/* The extents for one part, cut from the source. */
static uint32_t cut_words(struct source *source, const struct part *part, uint64_t *words)
{
	uint64_t flags = source->fresh->is_shared ? LP_EXTMAP_FLAG_SHARED : 0;
	uint32_t cnt = 0;
	if (source->fresh->crcs == NULL)
		flags |= LP_EXTMAP_FLAG_UNWRITTEN;
	for (uint32_t at = part->first; at < part->end;) {
		LP_ASSERT(source->extent_idx < source->fresh->extents_cnt);
		struct lp_extent extent = source->fresh->extents[source->extent_idx];
		LP_ASSERT(extent.cnt > source->offset);
		uint32_t take = (uint32_t)LP_MIN(extent.cnt - source->offset, part->end - at);
		lpi_words_push(words, &cnt,
			       lpi_word(extent.block + source->offset, at, take, flags));
		at += take;
		source->offset += take;
		if (source->offset == extent.cnt) {
			source->offset = 0;
			source->extent_idx++;
		}
	}
	return cnt;
}

static void edit_leaf(struct lp_extmap *map, struct lpi_leaf *leaf,
		      const struct lpi_leaf_edit *edit)
{
	uint32_t before = lpi_leaf_blocks(leaf);
	lpi_leaf_edit(leaf, edit);
	note_change(map, leaf, before);
}

void lp_extmap_replace(struct lp_extmap *map, struct lp_extmap_range range,
		       const struct lp_extmap_new *fresh, struct lp_extmap_released *released)
{
	uint64_t words[LP_EXTMAP_LEAF_BLOCKS + 1];
	struct source source = {.fresh = fresh};
	uint64_t end = range.first + range.cnt;
	assert_reserved(map, range);
	LP_ASSERT(fresh->crcs != NULL || !fresh->is_shared);
	for (uint64_t at = range.first; at < end;) {
		struct part part = part_at(range, at);
		struct lpi_leaf *leaf = lpi_extmap_find(map, part.idx);
		LP_ASSERT(leaf != NULL);
		struct lpi_leaf_edit edit = {
			.action = LPI_LEAF_REPLACE,
			.first = part.first,
			.end = part.end,
			.insert = words,
			.insert_cnt = cut_words(&source, &part, words),
			.crcs = fresh->crcs == NULL ? NULL : fresh->crcs + (at - range.first),
			.released = released,
		};
		edit_leaf(map, leaf, &edit);
		at += part.end - part.first;
	}
	LP_ASSERT(source.extent_idx == fresh->extents_cnt);
	settle(map);
}

/* For the changes that bring no extents: the same edit in every leaf that maps some of the range.
 */
static void edit_range(struct lp_extmap *map, struct lp_extmap_range range,
		       struct lpi_leaf_edit edit)
{
	const uint32_t *crcs = edit.crcs;
	uint64_t end = range.first + range.cnt;
	assert_reserved(map, range);
	for (uint64_t at = range.first; at < end;) {
		struct part part = part_at(range, at);
		struct lpi_leaf *leaf = lpi_extmap_find(map, part.idx);
		edit.first = part.first;
		edit.end = part.end;
		edit.crcs = crcs == NULL ? NULL : crcs + (at - range.first);
		bool is_mapped = leaf != NULL && lpi_leaf_overlaps(leaf, part.first, part.end) > 0;
		LP_ASSERT(is_mapped || edit.action != LPI_LEAF_MARK_WRITTEN);
		if (is_mapped)
			edit_leaf(map, leaf, &edit);
		at += part.end - part.first;
	}
	settle(map);
}

void lp_extmap_punch(struct lp_extmap *map, struct lp_extmap_range range,
		     struct lp_extmap_released *released)
{
	edit_range(map, range,
		   (struct lpi_leaf_edit){.action = LPI_LEAF_REPLACE, .released = released});
}

void lp_extmap_mark_written(struct lp_extmap *map, struct lp_extmap_range range,
			    const uint32_t *crcs)
{
	LP_ASSERT(crcs != NULL);
	edit_range(map, range,
		   (struct lpi_leaf_edit){.action = LPI_LEAF_MARK_WRITTEN, .crcs = crcs});
}

void lp_extmap_mark_shared(struct lp_extmap *map, struct lp_extmap_range range)
{
	edit_range(map, range, (struct lpi_leaf_edit){.action = LPI_LEAF_MARK_SHARED});
}

void lp_extmap_update_crcs(struct lp_extmap *map, struct lp_extmap_range range,
			   const uint32_t *crcs)
{
	uint64_t end = range.first + range.cnt;
	struct lp_extmap_range reserved = map->reserved;
	assert_range(range);
	for (uint64_t at = range.first; at < end;) {
		struct part part = part_at(range, at);
		struct lpi_leaf *leaf = lpi_extmap_find(map, part.idx);
		LP_ASSERT(leaf != NULL);
		LP_ASSERT(part_is_plain(leaf, &part)); /* rule S4 */
		memcpy(lpi_leaf_crcs(leaf) + part.first, crcs + (at - range.first),
		       (part.end - part.first) * sizeof(crcs[0]));
		mark_dirty(map, leaf);
		/* A reservation counts on the room for one more run. */
		if (reserved.cnt == 0)
			runs_add(map, leaf->idx);
		map->root_dirty |= map->is_inline;
		at += part.end - part.first;
	}
	settle(map);
	map->reserved = reserved; /* nothing that it holds was used */
}

static int truncate_leaf(struct lp_extmap *map, uint64_t at, struct lp_extmap_released *released)
{
	uint64_t end = (at | (LP_EXTMAP_LEAF_BLOCKS - 1)) + 1;
	struct lp_extmap_range range = {at, end - at};
	int err = lp_extmap_reserve(map, range, 0);
	if (err < 0)
		return err;
	lp_extmap_punch(map, range, released);
	return 0;
}

int lp_extmap_truncate_step(struct lp_extmap *map, uint64_t first,
			    struct lp_extmap_released *released)
{
	uint64_t at = first;
	bool is_changed = false;
	LP_ASSERT(released->max - released->cnt >= LP_EXTMAP_LEAF_BLOCKS);
	for (unsigned n = 0; n < LP_EXTMAP_STEP_LEAVES_MAX; n++) {
		int err = lp_extmap_seek(map, at, LP_EXTMAP_SEEK_ALLOCATED, &at);
		if (err == -ENXIO)
			return 0;
		/* What was done stands: then the next call meets the error first thing. */
		if (err == 0)
			err = truncate_leaf(map, at, released);
		if (err < 0)
			return is_changed ? 1 : err;
		is_changed |= err == 0;
		if (released->max - released->cnt < LP_EXTMAP_LEAF_BLOCKS)
			break;
	}
	return 1;
}

/* --- soundness ------------------------------------------------------------------------------ */

static bool sums_are_right(const struct lp_extmap *map, uint64_t leaves, uint64_t blocks)
{
	return map->loaded_cnt == leaves && map->loaded_blocks_cnt == blocks &&
	       map->runs.sum + map->unnamed_cnt <= map->leaves_cnt && leaves <= map->leaves_cnt &&
	       blocks <= map->blocks_cnt &&
	       counts_agree(map->leaves_cnt - leaves, map->blocks_cnt - blocks);
}

bool lpi_extmap_is_sound(const struct lp_extmap *map)
{
	struct lp_extmap look = *map; /* a copy to look things up in */
	struct lpi_leaf **slots = lpi_extmap_slots(&look);
	uint64_t leaves = 0;
	uint64_t blocks = 0;
	uint32_t unnamed = 0;
	uint32_t objects = 0;
	size_t bytes = map->table_bits == 0 ? 0 : lpi_extmap_slots_cnt(map) * sizeof(void *);
	bytes += map->runs.max == 1 ? 0 : map->runs.max * sizeof(map->runs.items[0]);
	bytes += map->ahead == NULL ? 0 : sizeof(*map->ahead);
	for (uint32_t i = 0; i < lpi_extmap_slots_cnt(map); i++) {
		if (slots[i] == NULL)
			continue;
		if (lpi_extmap_probe(&look, slots[i]->idx) != i || !lpi_leaf_is_sound(slots[i]))
			return false;
		if (slots[i]->words_cnt == 0 && lpi_runs_has(&map->runs, slots[i]->idx))
			return false;
		leaves += slots[i]->words_cnt > 0;
		unnamed += slots[i]->words_cnt > 0 && !lpi_runs_has(&map->runs, slots[i]->idx);
		blocks += lpi_leaf_blocks(slots[i]);
		bytes += lpi_leaf_size(slots[i]);
		objects++;
	}
	return objects == map->objects_cnt && bytes == map->bytes && unnamed == map->unnamed_cnt &&
	       lpi_runs_are_sound(&map->runs, LP_EXTMAP_LEAVES_MAX) &&
	       sums_are_right(map, leaves, blocks);
}
