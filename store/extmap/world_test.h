/* SPDX-License-Identifier: Apache-2.0 */
/* Test rig: an extent map beside a plain array of blocks, which says what the map should.
 *
 * Only *_test.c files include this. The index is an array of values, and memory can run out. Owed
 * leaves come into that index later: until then they must be in memory (rule L9).
 */
#ifndef LP_STORE_EXTMAP_WORLD_TEST_H
#define LP_STORE_EXTMAP_WORLD_TEST_H

#include "base/testing/test.h"

#include "base/prng.h"
#include "store/extmap/table.h"
#include "store/record/csum.h"

#define LPI_WORLD_LEAVES_MAX 400u
#define LPI_WORLD_BLOCKS_MAX (LPI_WORLD_LEAVES_MAX * LP_EXTMAP_LEAF_BLOCKS)
#define LPI_WORLD_OP_MAX     700u /* blocks of one operation */
#define LPI_WORLD_RANDOM_MAX 300u /* of a random one */
#define LPI_WORLD_NO_FAULT   UINT64_MAX

static const struct lp_ino lpi_world_ino = {7};

struct lpi_world_block {
	uint64_t device;
	uint32_t crc;
	enum lp_extmap_segment_kind kind;
	bool is_shared;
};

struct lpi_world_value {
	size_t len; /* 0: no such key */
	uint8_t bytes[LP_EXTMAP_LEAF_BYTES_MAX];
};

struct lpi_map_world {
	struct lp_prng prng;
	struct lp_extmap map;
	struct lp_extmap_mem mem;
	uint64_t allocs_left;
	size_t bytes_held;
	struct lpi_world_value kv[LPI_WORLD_LEAVES_MAX];
	size_t root_len;
	uint8_t root[LP_EXTMAP_ROOT_BYTES_MAX];
	struct lpi_world_block model[LPI_WORLD_BLOCKS_MAX];
	uint32_t blocks; /* the file has so many at most */
	uint64_t next_device;
	uint64_t asked;  /* times a leaf was missing */
	uint64_t unsure; /* of these, times one that no run names */
	uint64_t owed;   /* pieces that came into kv later, or never */
	struct lp_extmap_release released_items[LPI_WORLD_OP_MAX + LP_EXTMAP_LEAF_BLOCKS];
	struct lp_extmap_release want_items[LPI_WORLD_OP_MAX];
};

static inline void *lpi_world_alloc(void *arg, size_t bytes)
{
	struct lpi_map_world *w = arg;
	if (w->allocs_left == 0)
		return NULL;
	if (w->allocs_left != LPI_WORLD_NO_FAULT)
		w->allocs_left--;
	w->bytes_held += bytes;
	return malloc(bytes);
}

static inline void lpi_world_release(void *arg, void *memory, size_t bytes)
{
	struct lpi_map_world *w = arg;
	assert_true(w->bytes_held >= bytes);
	w->bytes_held -= bytes;
	free(memory);
}

static inline struct lpi_map_world *lpi_world_new(uint64_t seed, uint32_t leaves)
{
	struct lpi_map_world *w = calloc(1, sizeof(*w));
	assert_non_null(w);
	lp_prng_init(&w->prng, seed);
	w->mem = (struct lp_extmap_mem){lpi_world_alloc, lpi_world_release, w};
	w->allocs_left = LPI_WORLD_NO_FAULT;
	w->blocks = leaves * LP_EXTMAP_LEAF_BLOCKS;
	w->next_device = 1000;
	lp_extmap_init(&w->map, lpi_world_ino, &w->mem);
	return w;
}

static inline void lpi_world_free(struct lpi_map_world *w)
{
	lp_extmap_fini(&w->map);
	assert_int_equal(w->bytes_held, 0);
	free(w);
}

/* Reads what the map misses: all of it, or only up to the first that is there. */
static inline void lpi_world_serve(struct lpi_map_world *w)
{
	struct lp_extmap_leaves missing = lp_extmap_missing(&w->map);
	uint32_t last = LP_MIN(missing.last, LPI_WORLD_LEAVES_MAX - 1);
	bool stop_early = lp_prng_chance(&w->prng, 1, 2);
	w->asked++;
	assert_true(w->asked < 1000000); /* every answer must bring the call further */
	w->unsure += !lpi_runs_has(&w->map.runs, missing.first);
	for (uint32_t idx = missing.first; idx <= last; idx++) {
		if (w->kv[idx].len == 0)
			continue;
		uint8_t *exact = malloc(w->kv[idx].len);
		assert_non_null(exact);
		memcpy(exact, w->kv[idx].bytes, w->kv[idx].len);
		lp_test_ok(lp_extmap_load(&w->map, idx, exact, w->kv[idx].len));
		free(exact);
		if (stop_early)
			missing.last = idx;
		if (stop_early)
			break;
	}
	lp_test_ok(lp_extmap_loaded(&w->map, missing));
}

#define LPI_WORLD_RETRY(w, result, call)                                                           \
	while (((result) = (call)) == -EAGAIN)                                                     \
	lpi_world_serve(w)

static inline struct lp_extmap_range lpi_world_random_range(struct lpi_map_world *w, uint32_t max)
{
	uint64_t first = lp_prng_below(&w->prng, w->blocks);
	uint64_t cnt = lp_prng_chance(&w->prng, 1, 3) ? 1 : lp_prng_between(&w->prng, 1, max);
	return (struct lp_extmap_range){first, LP_MIN(cnt, w->blocks - first)};
}

/* --- Expectations ----------------------------------------------------------------------------- */

static inline size_t lpi_world_want_released(struct lpi_map_world *w, struct lp_extmap_range range)
{
	size_t cnt = 0;
	for (uint64_t b = range.first; b < range.first + range.cnt; b++) {
		const struct lpi_world_block *old = &w->model[b];
		if (old->kind == LP_EXTMAP_HOLE)
			continue;
		struct lp_extmap_release *last = cnt > 0 ? &w->want_items[cnt - 1] : NULL;
		if (last != NULL && lp_extent_end(last->extent) == old->device &&
		    last->is_shared == old->is_shared)
			last->extent.cnt++;
		else
			w->want_items[cnt++] =
				(struct lp_extmap_release){{old->device, 1}, old->is_shared};
	}
	return cnt;
}

static inline void lpi_world_check_released(const struct lpi_map_world *w,
					    const struct lp_extmap_released *got, size_t want)
{
	assert_int_equal(got->cnt, want);
	for (size_t i = 0; i < want; i++) {
		assert_true(got->items[i].extent.block == w->want_items[i].extent.block);
		assert_true(got->items[i].extent.cnt == w->want_items[i].extent.cnt);
		assert_int_equal(got->items[i].is_shared, w->want_items[i].is_shared);
	}
}

static inline void lpi_world_check_block(const struct lpi_world_block *want,
					 const struct lp_extmap_segment *got, uint64_t b,
					 uint32_t crc)
{
	assert_int_equal(got->kind, want->kind);
	assert_int_equal(got->is_shared, want->is_shared);
	if (want->kind != LP_EXTMAP_HOLE)
		assert_true(got->block + b - got->range.first == want->device);
	assert_int_equal(crc, want->kind == LP_EXTMAP_DATA ? want->crc : LP_CSUM_ZERO_BLOCK);
}

static inline void lpi_world_check_lookup(struct lpi_map_world *w, struct lp_extmap_range range)
{
	struct lp_extmap_segment segments[LPI_WORLD_OP_MAX];
	uint32_t crcs[LPI_WORLD_OP_MAX];
	uint64_t at = range.first;
	int max = (int)lp_prng_between(&w->prng, 1, 20);
	while (at < range.first + range.cnt) {
		struct lp_extmap_range rest = {at, range.first + range.cnt - at};
		int cnt;
		LPI_WORLD_RETRY(w, cnt, lp_extmap_lookup(&w->map, rest, segments, max, crcs));
		assert_true(cnt > 0 && cnt <= max);
		for (int i = 0; i < cnt; i++) {
			assert_true(segments[i].range.first == at);
			for (uint64_t k = 0; k < segments[i].range.cnt; k++, at++)
				lpi_world_check_block(&w->model[at], &segments[i], at,
						      crcs[at - rest.first]);
		}
		assert_true(at == range.first + range.cnt || cnt == max);
	}
}

static inline void lpi_world_check_all(struct lpi_map_world *w)
{
	uint64_t blocks = 0;
	for (uint64_t b = 0; b < w->blocks; b++)
		blocks += w->model[b].kind != LP_EXTMAP_HOLE;
	assert_true(lp_extmap_blocks(&w->map) == blocks);
	for (uint64_t first = 0; first < w->blocks; first += 256)
		lpi_world_check_lookup(
			w, (struct lp_extmap_range){first, LP_MIN(256, w->blocks - first)});
	assert_true(lpi_extmap_is_sound(&w->map));
	assert_int_equal(lp_extmap_bytes(&w->map), w->bytes_held);
}

/* --- Operations ------------------------------------------------------------------------------- */

static inline size_t lpi_world_random_extents(struct lpi_map_world *w, uint64_t cnt,
					      struct lp_extent *extents)
{
	size_t extents_cnt = 0;
	while (cnt > 0) {
		uint64_t take =
			lp_prng_chance(&w->prng, 1, 2) ? cnt : lp_prng_between(&w->prng, 1, cnt);
		/* Sometimes the next free block, so that neighbours can become one. */
		w->next_device += lp_prng_below(&w->prng, 3) == 0 ? 5 : 0;
		extents[extents_cnt++] = (struct lp_extent){w->next_device, take};
		w->next_device += take;
		cnt -= take;
	}
	return extents_cnt;
}

static inline void lpi_world_replace(struct lpi_map_world *w, struct lp_extmap_range range)
{
	struct lp_extent extents[LPI_WORLD_OP_MAX];
	uint32_t crcs[LPI_WORLD_OP_MAX];
	struct lp_extmap_released released = {w->released_items, 0, 0};
	struct lp_extmap_new fresh = {.extents = extents};
	bool unwritten = lp_prng_chance(&w->prng, 1, 5);
	fresh.is_shared = !unwritten && lp_prng_chance(&w->prng, 1, 8);
	fresh.extents_cnt = lpi_world_random_extents(w, range.cnt, extents);
	fresh.crcs = unwritten ? NULL : crcs;
	lp_prng_fill(&w->prng, crcs, sizeof(crcs));

	int max;
	LPI_WORLD_RETRY(w, max, lp_extmap_reserve(&w->map, range, fresh.extents_cnt));
	lp_test_ok(max);
	released.max = (size_t)max; /* the promise, to the last entry */
	lp_extmap_replace(&w->map, range, &fresh, &released);
	lpi_world_check_released(w, &released, lpi_world_want_released(w, range));

	uint64_t b = range.first;
	for (size_t i = 0; i < fresh.extents_cnt; i++) {
		for (uint64_t k = 0; k < extents[i].cnt; k++, b++) {
			w->model[b] = (struct lpi_world_block){
				.device = extents[i].block + k,
				.crc = unwritten ? 0 : crcs[b - range.first],
				.kind = unwritten ? LP_EXTMAP_UNWRITTEN : LP_EXTMAP_DATA,
				.is_shared = fresh.is_shared,
			};
		}
	}
}

static inline void lpi_world_punch(struct lpi_map_world *w, struct lp_extmap_range range)
{
	struct lp_extmap_released released = {w->released_items, 0, 0};
	int max;
	LPI_WORLD_RETRY(w, max, lp_extmap_reserve(&w->map, range, 0));
	lp_test_ok(max);
	released.max = (size_t)max;
	lp_extmap_punch(&w->map, range, &released);
	lpi_world_check_released(w, &released, lpi_world_want_released(w, range));
	memset(&w->model[range.first], 0, range.cnt * sizeof(w->model[0]));
}

static inline void lpi_world_put_extents(struct lp_extmap *map, uint64_t first,
					 const struct lp_extmap_new *fresh, uint64_t cnt)
{
	struct lp_extmap_release items[8];
	struct lp_extmap_released released = {items, 0, LP_ARRAY_SIZE(items)};
	lp_test_ok(
		lp_extmap_reserve(map, (struct lp_extmap_range){first, cnt}, fresh->extents_cnt));
	lp_extmap_replace(map, (struct lp_extmap_range){first, cnt}, fresh, &released);
}

/* --- The index -------------------------------------------------------------------------------- */

static inline void lpi_world_store(struct lpi_map_world *w, const struct lp_extmap_piece *piece,
				   const uint8_t *bytes)
{
	uint32_t idx = 0;
	lp_test_ok(lp_extmap_leaf_of_key(&w->map, piece->block, &idx));
	assert_true(idx < LPI_WORLD_LEAVES_MAX);
	assert_true(piece->len > 0 || w->kv[idx].len > 0);
	w->kv[idx].len = piece->len;
	memcpy(w->kv[idx].bytes, bytes, piece->len);
}

static inline bool lpi_world_is_owed(struct lpi_map_world *w, uint32_t idx)
{
	const struct lpi_leaf *leaf = lpi_extmap_find(&w->map, idx);
	return leaf != NULL && leaf->is_owed;
}

static inline void lpi_world_pay_all(struct lpi_map_world *w)
{
	struct lp_extmap_piece piece;
	uint8_t buf[LP_EXTMAP_LEAF_BYTES_MAX];
	for (uint32_t idx = 0; idx < LP_ARRAY_SIZE(w->kv); idx++) {
		uint64_t block = (uint64_t)idx * LP_EXTMAP_LEAF_BLOCKS;
		if (!lpi_world_is_owed(w, idx))
			continue;
		assert_int_equal(lp_extmap_unload(&w->map, idx), -EBUSY);
		assert_true(lp_extmap_pay(&w->map, block, buf, &piece));
		assert_false(lp_extmap_pay(&w->map, block, buf, &piece)); /* once */
		lpi_world_store(w, &piece, buf);
	}
	assert_int_equal(lp_extmap_owed_cnt(&w->map), 0);
}

/* All that is dirty goes to the inode's record and the index, or is owed to it. */
static inline void lpi_world_commit(struct lpi_map_world *w)
{
	struct lp_extmap_piece piece;
	uint8_t buf[LP_EXTMAP_LEAF_BYTES_MAX];
	while (lp_prng_chance(&w->prng, 1, 2) ? lp_extmap_take_dirty(&w->map, buf, &piece)
					      : lp_extmap_take_or_owe(&w->map, buf, &piece)) {
		if (!piece.is_owed)
			lpi_world_store(w, &piece, buf);
		else
			assert_true(w->kv[piece.block / LP_EXTMAP_LEAF_BLOCKS].len > 0);
		w->owed += piece.is_owed;
	}
	if (lp_extmap_root_is_dirty(&w->map))
		w->root_len = lp_extmap_encode_root(&w->map, w->root);
	assert_false(lp_extmap_root_is_dirty(&w->map));
}

static inline void lpi_world_reload(struct lpi_map_world *w)
{
	lpi_world_commit(w);
	lpi_world_pay_all(w);
	lp_extmap_fini(&w->map);
	lp_extmap_init(&w->map, lpi_world_ino, &w->mem);
	lp_test_ok(lp_extmap_load_root(&w->map, w->root, w->root_len));
	/* What was read is encoded the same again. */
	uint8_t again[LP_EXTMAP_ROOT_BYTES_MAX];
	assert_int_equal(lp_extmap_encode_root(&w->map, again), w->root_len);
	assert_memory_equal(again, w->root, w->root_len);
}

#endif
