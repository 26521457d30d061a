/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: the extent map says of every block what was last said of it, gives back every device block
 * exactly once, keeps crcs and sharing (rules W2, S4), whatever is loaded, unloaded, encoded and
 * read again on the way; memory that runs out changes nothing; a lost leaf is never a hole.
 * Method: random operations against a plain array of blocks, with an index that is an array of
 * values; dense files, and ones so sparse that the root cannot name all leaves. Leaves that are
 * owed come into that index later: until then they must be in memory (rule L9). */
#include "base/test.h"

#include "base/prng.h"
#include "base/test_death.h"
#include "store/csum.h"
#include "store/extmap_ahead.h"
#include "store/extmap_table.h"

#define LEAVES_MAX 400u
#define BLOCKS_MAX (LEAVES_MAX * LP_EXTMAP_LEAF_BLOCKS)
#define OP_MAX     700u /* blocks of one operation */
#define RANDOM_MAX 300u /* of a random one */
#define NO_FAULT   UINT64_MAX

#define GOLDEN_INLINE                                                                              \
	"0101000001000000030000000000000001020000d3c2d97ebc9a785634124100050000000000030011111111" \
	"2222222233333333"
#define GOLDEN_UNWRITTEN "010100005b917676001000000000c01f"
#define GOLDEN_SHARED                                                                              \
	"01030000c3489a6abc9a785634120120bd9a7856341202000500000000000300111111112222222233333333"
#define GOLDEN_SPLIT "0102020002000000430000000000000000000000010000000200000001000000"

static const struct lp_ino ino7 = {7};

struct model_block {
	uint64_t device;
	uint32_t crc;
	enum lp_extmap_segment_kind kind;
	bool is_shared;
};

struct value {
	size_t len; /* 0: no such key */
	uint8_t bytes[LP_EXTMAP_LEAF_BYTES_MAX];
};

struct world {
	struct lp_prng prng;
	struct lp_extmap map;
	struct lp_extmap_mem mem;
	uint64_t allocs_left;
	size_t bytes_held;
	struct value kv[LEAVES_MAX];
	size_t root_len;
	uint8_t root[LP_EXTMAP_ROOT_BYTES_MAX];
	struct model_block model[BLOCKS_MAX];
	uint32_t blocks; /* the file has so many at most */
	uint64_t next_device;
	uint64_t asked;  /* times a leaf was missing */
	uint64_t unsure; /* of these, times one that no run names */
	uint64_t owed;   /* pieces that came into kv later, or never */
	struct lp_extmap_release released_items[OP_MAX + LP_EXTMAP_LEAF_BLOCKS];
	struct lp_extmap_release want_items[OP_MAX];
};

static void *fault_alloc(void *arg, size_t bytes)
{
	struct world *w = arg;
	if (w->allocs_left == 0)
		return NULL;
	if (w->allocs_left != NO_FAULT)
		w->allocs_left--;
	w->bytes_held += bytes;
	return malloc(bytes);
}

static void fault_free(void *arg, void *memory, size_t bytes)
{
	struct world *w = arg;
	assert_true(w->bytes_held >= bytes);
	w->bytes_held -= bytes;
	free(memory);
}

static struct world *world_new(uint64_t seed, uint32_t leaves)
{
	struct world *w = calloc(1, sizeof(*w));
	assert_non_null(w);
	lp_prng_init(&w->prng, seed);
	w->mem = (struct lp_extmap_mem){fault_alloc, fault_free, w};
	w->allocs_left = NO_FAULT;
	w->blocks = leaves * LP_EXTMAP_LEAF_BLOCKS;
	w->next_device = 1000;
	lp_extmap_init(&w->map, ino7, &w->mem);
	return w;
}

static void world_free(struct world *w)
{
	lp_extmap_fini(&w->map);
	assert_int_equal(w->bytes_held, 0);
	free(w);
}

/* Reads what the map misses: all of it, or only up to the first that is there. */
static void serve(struct world *w)
{
	struct lp_extmap_leaves missing = lp_extmap_missing(&w->map);
	uint32_t last = LP_MIN(missing.last, LEAVES_MAX - 1);
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

#define RETRY(w, result, call)                                                                     \
	while (((result) = (call)) == -EAGAIN)                                                     \
	serve(w)

static struct lp_extmap_range random_range(struct world *w, uint32_t max)
{
	uint64_t first = lp_prng_below(&w->prng, w->blocks);
	uint64_t cnt = lp_prng_chance(&w->prng, 1, 3) ? 1 : lp_prng_between(&w->prng, 1, max);
	return (struct lp_extmap_range){first, LP_MIN(cnt, w->blocks - first)};
}

/* --- expectations --------------------------------------------------------------------------- */

static size_t want_released(struct world *w, struct lp_extmap_range range)
{
	size_t cnt = 0;
	for (uint64_t b = range.first; b < range.first + range.cnt; b++) {
		const struct model_block *old = &w->model[b];
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

static void check_released(const struct world *w, const struct lp_extmap_released *got, size_t want)
{
	assert_int_equal(got->cnt, want);
	for (size_t i = 0; i < want; i++) {
		assert_true(got->items[i].extent.block == w->want_items[i].extent.block);
		assert_true(got->items[i].extent.cnt == w->want_items[i].extent.cnt);
		assert_int_equal(got->items[i].is_shared, w->want_items[i].is_shared);
	}
}

static void check_block(const struct model_block *want, const struct lp_extmap_segment *got,
			uint64_t b, uint32_t crc)
{
	assert_int_equal(got->kind, want->kind);
	assert_int_equal(got->is_shared, want->is_shared);
	if (want->kind != LP_EXTMAP_HOLE)
		assert_true(got->block + b - got->range.first == want->device);
	assert_int_equal(crc, want->kind == LP_EXTMAP_DATA ? want->crc : LP_CSUM_ZERO_BLOCK);
}

static void check_lookup(struct world *w, struct lp_extmap_range range)
{
	struct lp_extmap_segment segments[OP_MAX];
	uint32_t crcs[OP_MAX];
	uint64_t at = range.first;
	int max = (int)lp_prng_between(&w->prng, 1, 20);
	while (at < range.first + range.cnt) {
		struct lp_extmap_range rest = {at, range.first + range.cnt - at};
		int cnt;
		RETRY(w, cnt, lp_extmap_lookup(&w->map, rest, segments, max, crcs));
		assert_true(cnt > 0 && cnt <= max);
		for (int i = 0; i < cnt; i++) {
			assert_true(segments[i].range.first == at);
			for (uint64_t k = 0; k < segments[i].range.cnt; k++, at++)
				check_block(&w->model[at], &segments[i], at, crcs[at - rest.first]);
		}
		assert_true(at == range.first + range.cnt || cnt == max);
	}
}

static bool is_wanted(const struct model_block *block, enum lp_extmap_seek what)
{
	switch (what) {
	case LP_EXTMAP_SEEK_DATA:
		return block->kind == LP_EXTMAP_DATA;
	case LP_EXTMAP_SEEK_HOLE:
		return block->kind != LP_EXTMAP_DATA;
	case LP_EXTMAP_SEEK_ALLOCATED:
		return block->kind != LP_EXTMAP_HOLE;
	}
	return false;
}

static void check_seek(struct world *w, uint64_t from, enum lp_extmap_seek what)
{
	uint64_t want = from;
	uint64_t got = from;
	int err;
	while (want < w->blocks && !is_wanted(&w->model[want], what))
		want++;
	do {
		RETRY(w, err, lp_extmap_seek(&w->map, got, what, &got));
	} while (err == 1);
	if (want == w->blocks && what != LP_EXTMAP_SEEK_HOLE) {
		lp_test_err(-ENXIO, err);
		return;
	}
	lp_test_ok(err);
	assert_true(got == want);
}

static void check_some(struct world *w)
{
	struct lp_extmap_range range = random_range(w, RANDOM_MAX);
	bool plain = true;
	int got;
	for (uint64_t b = range.first; b < range.first + range.cnt; b++)
		plain &= w->model[b].kind == LP_EXTMAP_DATA && !w->model[b].is_shared;
	RETRY(w, got, lp_extmap_can_overwrite(&w->map, range));
	assert_int_equal(got, plain);
	check_lookup(w, range);
	check_seek(w, range.first, (enum lp_extmap_seek)lp_prng_below(&w->prng, 3));
}

static void check_all(struct world *w)
{
	uint64_t blocks = 0;
	for (uint64_t b = 0; b < w->blocks; b++)
		blocks += w->model[b].kind != LP_EXTMAP_HOLE;
	assert_true(lp_extmap_blocks(&w->map) == blocks);
	for (uint64_t first = 0; first < w->blocks; first += 256)
		check_lookup(w, (struct lp_extmap_range){first, LP_MIN(256, w->blocks - first)});
	assert_true(lpi_extmap_is_sound(&w->map));
	assert_int_equal(lp_extmap_bytes(&w->map), w->bytes_held);
}

/* --- operations ----------------------------------------------------------------------------- */

static size_t random_extents(struct world *w, uint64_t cnt, struct lp_extent *extents)
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

static void op_replace(struct world *w, struct lp_extmap_range range)
{
	struct lp_extent extents[OP_MAX];
	uint32_t crcs[OP_MAX];
	struct lp_extmap_released released = {w->released_items, 0, 0};
	struct lp_extmap_new fresh = {.extents = extents};
	bool unwritten = lp_prng_chance(&w->prng, 1, 5);
	fresh.is_shared = !unwritten && lp_prng_chance(&w->prng, 1, 8);
	fresh.extents_cnt = random_extents(w, range.cnt, extents);
	fresh.crcs = unwritten ? NULL : crcs;
	lp_prng_fill(&w->prng, crcs, sizeof(crcs));

	int max;
	RETRY(w, max, lp_extmap_reserve(&w->map, range, fresh.extents_cnt));
	lp_test_ok(max);
	released.max = (size_t)max; /* the promise, to the last entry */
	lp_extmap_replace(&w->map, range, &fresh, &released);
	check_released(w, &released, want_released(w, range));

	uint64_t b = range.first;
	for (size_t i = 0; i < fresh.extents_cnt; i++) {
		for (uint64_t k = 0; k < extents[i].cnt; k++, b++) {
			w->model[b] = (struct model_block){
				.device = extents[i].block + k,
				.crc = unwritten ? 0 : crcs[b - range.first],
				.kind = unwritten ? LP_EXTMAP_UNWRITTEN : LP_EXTMAP_DATA,
				.is_shared = fresh.is_shared,
			};
		}
	}
}

static void op_punch(struct world *w, struct lp_extmap_range range)
{
	struct lp_extmap_released released = {w->released_items, 0, 0};
	int max;
	RETRY(w, max, lp_extmap_reserve(&w->map, range, 0));
	lp_test_ok(max);
	released.max = (size_t)max;
	lp_extmap_punch(&w->map, range, &released);
	check_released(w, &released, want_released(w, range));
	memset(&w->model[range.first], 0, range.cnt * sizeof(w->model[0]));
}

/* The longest part of the range, from its first block on, that can take the operation. */
static uint64_t prefix_of(const struct world *w, struct lp_extmap_range range,
			  enum lp_extmap_segment_kind kind)
{
	uint64_t cnt = 0;
	while (cnt < range.cnt && w->model[range.first + cnt].kind == kind &&
	       !w->model[range.first + cnt].is_shared)
		cnt++;
	return cnt;
}

static void op_write_in_place(struct world *w, struct lp_extmap_range range)
{
	uint32_t crcs[OP_MAX];
	int result;
	bool unwritten = w->model[range.first].kind == LP_EXTMAP_UNWRITTEN;
	range.cnt = prefix_of(w, range, unwritten ? LP_EXTMAP_UNWRITTEN : LP_EXTMAP_DATA);
	if (range.cnt == 0)
		return;
	lp_prng_fill(&w->prng, crcs, sizeof(crcs));
	if (unwritten) {
		RETRY(w, result, lp_extmap_reserve(&w->map, range, 0));
		lp_test_ok(result);
		lp_extmap_mark_written(&w->map, range, crcs);
	} else {
		RETRY(w, result, lp_extmap_can_overwrite(&w->map, range));
		assert_int_equal(result, 1);
		lp_extmap_update_crcs(&w->map, range, crcs);
	}
	for (uint64_t i = 0; i < range.cnt; i++) {
		w->model[range.first + i].kind = LP_EXTMAP_DATA;
		w->model[range.first + i].crc = crcs[i];
	}
}

static void op_share(struct world *w, struct lp_extmap_range range)
{
	int result;
	RETRY(w, result, lp_extmap_reserve(&w->map, range, 0));
	lp_test_ok(result);
	lp_extmap_mark_shared(&w->map, range);
	for (uint64_t i = 0; i < range.cnt; i++) {
		struct model_block *block = &w->model[range.first + i];
		block->is_shared = block->kind == LP_EXTMAP_DATA;
	}
}

static void op_truncate(struct world *w, uint64_t first)
{
	int more = 1;
	uint64_t blocks = 0;
	uint64_t want = 0;
	for (uint64_t b = first; b < w->blocks; b++)
		want += w->model[b].kind != LP_EXTMAP_HOLE;
	while (more == 1) {
		struct lp_extmap_released released = {w->released_items, 0, 100};
		RETRY(w, more, lp_extmap_truncate_step(&w->map, first, &released));
		lp_test_ok(more);
		for (size_t i = 0; i < released.cnt; i++)
			blocks += released.items[i].extent.cnt;
	}
	assert_true(blocks == want);
	memset(&w->model[first], 0, (w->blocks - first) * sizeof(w->model[0]));
}

static void store(struct world *w, const struct lp_extmap_piece *piece, const uint8_t *bytes)
{
	uint32_t idx = 0;
	lp_test_ok(lp_extmap_leaf_of_key(&w->map, piece->block, &idx));
	assert_true(idx < LEAVES_MAX);
	assert_true(piece->len > 0 || w->kv[idx].len > 0);
	w->kv[idx].len = piece->len;
	memcpy(w->kv[idx].bytes, bytes, piece->len);
}

static bool is_owed(struct world *w, uint32_t idx)
{
	const struct lpi_leaf *leaf = lpi_extmap_find(&w->map, idx);
	return leaf != NULL && leaf->is_owed;
}

static void pay_all(struct world *w)
{
	struct lp_extmap_piece piece;
	uint8_t buf[LP_EXTMAP_LEAF_BYTES_MAX];
	for (uint32_t idx = 0; idx < LP_ARRAY_SIZE(w->kv); idx++) {
		uint64_t block = (uint64_t)idx * LP_EXTMAP_LEAF_BLOCKS;
		if (!is_owed(w, idx))
			continue;
		assert_int_equal(lp_extmap_unload(&w->map, idx), -EBUSY);
		assert_true(lp_extmap_pay(&w->map, block, buf, &piece));
		assert_false(lp_extmap_pay(&w->map, block, buf, &piece)); /* once */
		store(w, &piece, buf);
	}
	assert_int_equal(lp_extmap_owed_cnt(&w->map), 0);
}

/* All that is dirty goes to the inode's record and the index, or is owed to it. */
static void commit(struct world *w)
{
	struct lp_extmap_piece piece;
	uint8_t buf[LP_EXTMAP_LEAF_BYTES_MAX];
	while (lp_prng_chance(&w->prng, 1, 2) ? lp_extmap_take_dirty(&w->map, buf, &piece)
					      : lp_extmap_take_or_owe(&w->map, buf, &piece)) {
		if (!piece.is_owed)
			store(w, &piece, buf);
		else
			assert_true(w->kv[piece.block / LP_EXTMAP_LEAF_BLOCKS].len > 0);
		w->owed += piece.is_owed;
	}
	if (lp_extmap_root_is_dirty(&w->map))
		w->root_len = lp_extmap_encode_root(&w->map, w->root);
	assert_false(lp_extmap_root_is_dirty(&w->map));
}

static void reload(struct world *w)
{
	commit(w);
	pay_all(w);
	lp_extmap_fini(&w->map);
	lp_extmap_init(&w->map, ino7, &w->mem);
	lp_test_ok(lp_extmap_load_root(&w->map, w->root, w->root_len));
	/* What was read is encoded the same again. */
	uint8_t again[LP_EXTMAP_ROOT_BYTES_MAX];
	assert_int_equal(lp_extmap_encode_root(&w->map, again), w->root_len);
	assert_memory_equal(again, w->root, w->root_len);
}

static void op_memory(struct world *w)
{
	uint32_t leaves = w->blocks / LP_EXTMAP_LEAF_BLOCKS;
	switch (lp_prng_below(&w->prng, 4)) {
	case 0:
		reload(w);
		break;
	case 1:
		commit(w);
		if (lp_prng_chance(&w->prng, 1, 4))
			pay_all(w);
		(void)lp_extmap_shrink(&w->map, lp_prng_below(&w->prng, 4000));
		break;
	default:
		commit(w);
		for (int n = 0; n < 20; n++) {
			uint32_t idx = (uint32_t)lp_prng_below(&w->prng, leaves);
			bool was_owed = is_owed(w, idx);
			int err = lp_extmap_unload(&w->map, idx);
			/* Only leaf 0 can be in the root. */
			assert_true(err == (was_owed ? -EBUSY : 0) || (err == -EBUSY && idx == 0));
		}
		break;
	}
}

static void step(struct world *w, uint32_t range_max, uint64_t punch_percent)
{
	struct lp_extmap_range range = random_range(w, range_max);
	uint64_t draw = lp_prng_below(&w->prng, 100);
	if (draw < punch_percent)
		op_punch(w, range);
	else if (draw < 70)
		op_replace(w, range);
	else if (draw < 82)
		op_write_in_place(w, range);
	else if (draw < 88)
		op_share(w, range);
	else if (draw < 89)
		op_truncate(w, lp_prng_between(&w->prng, w->blocks / 2, w->blocks));
	else
		op_memory(w);
}

static void run_model(uint64_t seed, uint32_t leaves, uint32_t range_max, int steps)
{
	struct world *w = world_new(seed, leaves);
	for (int n = 0; n < steps; n++) {
		/* The file grows, is full of holes, shrinks, in turn. */
		step(w, range_max, n / 150 % 3 == 2 ? 50 : 15);
		if (n % 150 == 140 && lp_prng_chance(&w->prng, 1, 3))
			op_truncate(w, lp_prng_below(&w->prng, LP_MIN(w->blocks, 200U)));
		check_some(w);
		if (n % 50 == 0)
			check_all(w);
	}
	check_all(w);
	reload(w);
	check_all(w);
	assert_true(leaves == 1 || (w->asked > 0 && w->owed > 0));
	assert_int_equal(w->unsure > 0, leaves == LEAVES_MAX);
	world_free(w);
}

static void test_model_one_leaf(void **state)
{
	(void)state;
	run_model(1, 1, 20, 1500);
}

static void test_model_few_leaves(void **state)
{
	(void)state;
	for (uint64_t seed = 2; seed < 6; seed++)
		run_model(seed, 3, 100, 1000);
}

static void test_model_dense(void **state)
{
	(void)state;
	for (uint64_t seed = 6; seed < 9; seed++)
		run_model(seed, 40, RANDOM_MAX, 1000);
}

static void test_model_sparse(void **state)
{
	(void)state;
	for (uint64_t seed = 9; seed < 11; seed++)
		run_model(seed, LEAVES_MAX, 20, 1200);
}

/* --- memory --------------------------------------------------------------------------------- */

/* A reservation that fails at the n-th allocation leaves everything as it was. */
static void test_no_memory(void **state)
{
	(void)state;
	struct world *w = world_new(20, LEAVES_MAX);
	unsigned failures = 0;
	for (int n = 0; n < 150; n++) {
		struct lp_extmap_range range = random_range(w, RANDOM_MAX);
		reload(w);
		for (uint64_t fail_at = 0;; fail_at++) {
			int result;
			check_lookup(w, range); /* so that all is loaded */
			size_t bytes = w->bytes_held;
			w->allocs_left = fail_at;
			RETRY(w, result, lp_extmap_reserve(&w->map, range, 3));
			w->allocs_left = NO_FAULT;
			assert_true(lpi_extmap_is_sound(&w->map));
			if (result >= 0)
				break;
			lp_test_err(-ENOMEM, result);
			assert_true(w->bytes_held >= bytes);
			failures++;
		}
		w->allocs_left = 0; /* what was reserved is enough */
		struct lp_extent extent = {w->next_device, range.cnt};
		static uint32_t crcs[OP_MAX];
		struct lp_extmap_new fresh = {&extent, 1, crcs, false};
		struct lp_extmap_released released = {w->released_items, 0, OP_MAX};
		lp_extmap_replace(&w->map, range, &fresh, &released);
		w->next_device += range.cnt + 1;
		for (uint64_t k = 0; k < range.cnt; k++)
			w->model[range.first + k] =
				(struct model_block){extent.block + k, 0, LP_EXTMAP_DATA, false};
		commit(w); /* to trim a leaf is not needed either */
		w->allocs_left = NO_FAULT;
		check_lookup(w, range);
	}
	assert_true(failures > 300);
	check_all(w);
	world_free(w);
}

static void test_no_memory_to_load(void **state)
{
	(void)state;
	struct world *w = world_new(21, LEAVES_MAX);
	for (uint64_t n = 0; n < 60; n++)
		op_replace(w, (struct lp_extmap_range){n * 192, 5});
	reload(w);
	int err = -ENOMEM;
	for (uint64_t fail_at = 0; err == -ENOMEM; fail_at++) {
		lp_extmap_fini(&w->map);
		assert_int_equal(w->bytes_held, 0);
		lp_extmap_init(&w->map, ino7, &w->mem);
		w->allocs_left = fail_at;
		err = lp_extmap_load_root(&w->map, w->root, w->root_len);
		if (err == 0)
			err = lp_extmap_load(&w->map, 0, w->kv[0].bytes, w->kv[0].len);
		if (err == 0)
			err = lp_extmap_load(&w->map, 3, w->kv[3].bytes, w->kv[3].len);
		assert_true(lpi_extmap_is_sound(&w->map));
	}
	lp_test_ok(err);
	w->allocs_left = NO_FAULT;
	check_all(w);
	world_free(w);
}

static void test_unreserve_gives_back(void **state)
{
	(void)state;
	struct world *w = world_new(22, 40);
	struct lp_extmap_range range = {10, 500};
	lp_test_ok(lp_extmap_reserve(&w->map, range, 10));
	assert_true(w->bytes_held > 0);
	lp_test_err(-EBUSY, lp_extmap_unload(&w->map, 3));
	lp_extmap_unreserve(&w->map);
	(void)lp_extmap_shrink(&w->map, SIZE_MAX);
	assert_int_equal(w->bytes_held, 0);
	op_replace(w, range);
	check_all(w);
	commit(w);
	/* All but what is in use twice in a row. */
	assert_true(lp_extmap_shrink(&w->map, SIZE_MAX) > 0);
	assert_int_equal(w->map.objects_cnt, 0);
	check_all(w);
	world_free(w);
}

/* --- what is read is input ------------------------------------------------------------------ */

/* Of leaves that no run names there are as many as the count says beyond the runs. One more, if it
 * was accepted, would be named by its next change, and then the runs would name more than there
 * are.
 */
static void test_leaves_beyond_count(void **state)
{
	(void)state;
	struct world *w = world_new(31, 10);
	op_replace(w, (struct lp_extmap_range){0, 1});
	op_replace(w, (struct lp_extmap_range){320, 1});
	op_replace(w, (struct lp_extmap_range){448, 1});
	reload(w);
	struct lp_extmap_root root = {.version = 1,
				      .kind = LP_EXTMAP_KIND_SPLIT,
				      .runs_cnt = 1,
				      .leaves_cnt = 2,
				      .blocks_cnt = 2};
	uint8_t bytes[LP_EXTMAP_ROOT_SIZE + LP_EXTMAP_RUN_SIZE];
	lp_extmap_root_encode(&root, bytes);
	lp_extmap_run_encode(&(struct lp_extmap_run){0, 1}, bytes + LP_EXTMAP_ROOT_SIZE);
	lp_extmap_fini(&w->map);
	lp_extmap_init(&w->map, ino7, &w->mem);
	lp_test_ok(lp_extmap_load_root(&w->map, bytes, sizeof(bytes)));
	lp_test_ok(lp_extmap_load(&w->map, 5, w->kv[5].bytes, w->kv[5].len));
	lp_test_err(-EUCLEAN, lp_extmap_load(&w->map, 7, w->kv[7].bytes, w->kv[7].len));
	lp_test_ok(lp_extmap_load(&w->map, 0, w->kv[0].bytes, w->kv[0].len));
	assert_true(lpi_extmap_is_sound(&w->map));
	/* Also when another one has made place in memory; its change must not break the map. */
	lp_test_ok(lp_extmap_unload(&w->map, 5));
	lp_test_ok(lp_extmap_load(&w->map, 7, w->kv[7].bytes, w->kv[7].len));
	op_punch(w, (struct lp_extmap_range){448, 1});
	assert_true(lpi_extmap_is_sound(&w->map));
	world_free(w);
}

/* As many runs as a root may have, one of which is split by a punch. */
static void test_one_run_too_many(void **state)
{
	(void)state;
	const uint64_t leaf = LP_EXTMAP_LEAF_BLOCKS;
	const uint64_t split = LPI_RUNS_MAX / 2;
	struct world *w = world_new(32, LEAVES_MAX);
	for (uint64_t i = 0; i < LPI_RUNS_MAX; i++) {
		uint64_t leaves = i == split ? 3 : 1;
		op_replace(w, (struct lp_extmap_range){4 * i * leaf, leaves * leaf});
	}
	reload(w);
	op_punch(w, (struct lp_extmap_range){(4 * split + 1) * leaf, leaf});
	assert_true(lpi_extmap_is_sound(&w->map));
	reload(w);
	check_all(w);
	world_free(w);
}

static void test_lost_leaf(void **state)
{
	(void)state;
	struct world *w = world_new(30, 10);
	struct lp_extmap_segment segment;
	op_replace(w, (struct lp_extmap_range){0, 640});
	reload(w);
	lp_test_err(-EAGAIN,
		    lp_extmap_lookup(&w->map, (struct lp_extmap_range){70, 1}, &segment, 1, NULL));
	struct lp_extmap_leaves missing = lp_extmap_missing(&w->map);
	assert_int_equal(missing.first, 1);
	assert_int_equal(missing.last, 1);
	lp_test_err(-EUCLEAN, lp_extmap_loaded(&w->map, missing));
	/* One leaf's value under the key of another is none. */
	lp_test_err(-EBADMSG, lp_extmap_load(&w->map, 1, w->kv[2].bytes, w->kv[2].len));
	lp_test_ok(lp_extmap_load(&w->map, 1, w->kv[1].bytes, w->kv[1].len));
	lp_test_ok(lp_extmap_loaded(&w->map, missing));
	check_all(w);
	/* One that the root excludes. */
	lp_test_err(-EUCLEAN, lp_extmap_load(&w->map, 10, w->kv[1].bytes, w->kv[1].len));
	uint32_t idx = 0;
	lp_test_err(-EUCLEAN, lp_extmap_leaf_of_key(&w->map, 65, &idx));
	lp_test_err(-EUCLEAN, lp_extmap_leaf_of_key(&w->map, LP_EXTMAP_BLOCKS_MAX, &idx));
	world_free(w);
}

/* A root that says less than its leaves have: no count may run below zero. */
static void test_root_that_lies(void **state)
{
	(void)state;
	struct world *w = world_new(31, 10);
	op_replace(w, (struct lp_extmap_range){0, 640});
	commit(w);
	for (uint64_t blocks = 10; blocks < 640; blocks += 21) {
		lp_extmap_fini(&w->map);
		lp_extmap_init(&w->map, ino7, &w->mem);
		lp_put_le64(w->root + LP_EXTMAP_ROOT_BLOCKS_CNT_OFF, blocks);
		lp_test_ok(lp_extmap_load_root(&w->map, w->root, w->root_len));
		int err = 0;
		for (uint32_t idx = 0; idx < 10 && err == 0; idx++)
			err = lp_extmap_load(&w->map, idx, w->kv[idx].bytes, w->kv[idx].len);
		lp_test_err(-EUCLEAN, err);
		assert_true(lpi_extmap_is_sound(&w->map));
	}
	world_free(w);
}

static void test_mutated_roots(void **state)
{
	(void)state;
	unsigned taken = 0;
	for (uint64_t seed = 40; seed < 44; seed++) {
		struct world *w = world_new(seed, 40);
		for (uint64_t n = 0; n < seed - 39; n++)
			op_replace(w, (struct lp_extmap_range){n * 200, seed == 40 ? 30 : 90});
		commit(w);
		for (int n = 0; n < 3000; n++) {
			size_t len = w->root_len;
			if (lp_prng_chance(&w->prng, 1, 10))
				len = lp_prng_below(&w->prng, len + 1);
			uint8_t *exact = malloc(LP_MAX(len, 1));
			assert_non_null(exact);
			memcpy(exact, w->root, len);
			for (uint64_t flips = lp_prng_below(&w->prng, 3); flips > 0 && len > 0;
			     flips--)
				exact[lp_prng_below(&w->prng, len)] ^=
					(uint8_t)(1U << lp_prng_below(&w->prng, 8));
			struct lp_extmap map;
			uint8_t again[LP_EXTMAP_ROOT_BYTES_MAX];
			lp_extmap_init(&map, ino7, NULL);
			int err = lp_extmap_load_root(&map, exact, len);
			assert_true(err == 0 || err == -EUCLEAN || err == -EBADMSG);
			assert_true(lpi_extmap_is_sound(&map));
			if (err == 0) {
				assert_int_equal(lp_extmap_encode_root(&map, again), len);
				assert_memory_equal(again, exact, len);
				taken++;
			}
			lp_extmap_fini(&map);
			free(exact);
		}
		world_free(w);
	}
	assert_true(taken > 1000 && taken < 11000);
}

/* --- the format, frozen --------------------------------------------------------------------- */

static void put_extents(struct lp_extmap *map, uint64_t first, const struct lp_extmap_new *fresh,
			uint64_t cnt)
{
	struct lp_extmap_release items[8];
	struct lp_extmap_released released = {items, 0, LP_ARRAY_SIZE(items)};
	lp_test_ok(
		lp_extmap_reserve(map, (struct lp_extmap_range){first, cnt}, fresh->extents_cnt));
	lp_extmap_replace(map, (struct lp_extmap_range){first, cnt}, fresh, &released);
}

static void check_hex(const uint8_t *bytes, size_t len, const char *want)
{
	char hex[2 * 256 + 1] = "";
	assert_true(len <= 256);
	for (size_t i = 0; i < len; i++)
		(void)snprintf(hex + 2 * i, 3, "%02x", bytes[i]);
	assert_string_equal(hex, want);
}

static void test_golden(void **state)
{
	(void)state;
	struct lp_extmap map;
	uint8_t buf[LP_EXTMAP_ROOT_BYTES_MAX];
	struct lp_extmap_piece piece;
	static const uint32_t crcs[] = {0x11111111, 0x22222222, 0x33333333};
	struct lp_extent two[] = {{0x123456789abc, 2}, {5, 1}};
	struct lp_extmap_new data = {two, 2, crcs, false};
	struct lp_extent run = {0x1000, 64};
	struct lp_extmap_new space = {&run, 1, NULL, false};
	lp_extmap_init(&map, (struct lp_ino){0x0102030405060708}, NULL);
	assert_int_equal(lp_extmap_encode_root(&map, buf), 0);

	put_extents(&map, 1, &data, 3);
	assert_false(lp_extmap_take_dirty(&map, buf, &piece)); /* all is in the root */
	check_hex(buf, lp_extmap_encode_root(&map, buf), GOLDEN_INLINE);

	put_extents(&map, 128, &space, 64);
	lp_test_ok(lp_extmap_reserve(&map, (struct lp_extmap_range){1, 1}, 0));
	lp_extmap_mark_shared(&map, (struct lp_extmap_range){1, 1});
	assert_true(lp_extmap_take_dirty(&map, buf, &piece));
	assert_true(piece.block == 128);
	check_hex(buf, piece.len, GOLDEN_UNWRITTEN);
	assert_true(lp_extmap_take_dirty(&map, buf, &piece));
	assert_true(piece.block == 0);
	check_hex(buf, piece.len, GOLDEN_SHARED);
	assert_false(lp_extmap_take_dirty(&map, buf, &piece));
	check_hex(buf, lp_extmap_encode_root(&map, buf), GOLDEN_SPLIT);
	lp_extmap_fini(&map);
}

/* What a 4 KiB overwrite of a file of 1 GiB writes: the header's figure. */
static void test_bytes_per_overwrite(void **state)
{
	(void)state;
	struct lp_extmap map;
	uint8_t buf[LP_EXTMAP_LEAF_BYTES_MAX];
	struct lp_extmap_piece piece;
	uint32_t *crcs = calloc(LP_EXTMAP_RANGE_MAX, sizeof(*crcs));
	assert_non_null(crcs);
	lp_extmap_init(&map, ino7, NULL);
	for (uint64_t n = 0; n < 4; n++) {
		struct lp_extent extent = {1000 + n * LP_EXTMAP_RANGE_MAX, LP_EXTMAP_RANGE_MAX};
		struct lp_extmap_new fresh = {&extent, 1, crcs, false};
		put_extents(&map, n * LP_EXTMAP_RANGE_MAX, &fresh, LP_EXTMAP_RANGE_MAX);
	}
	unsigned leaves = 0;
	while (lp_extmap_take_dirty(&map, buf, &piece))
		leaves++;
	assert_int_equal(leaves, 4096);
	assert_int_equal(lp_extmap_encode_root(&map, buf), 24);
	lp_extmap_update_crcs(&map, (struct lp_extmap_range){99999, 1}, crcs);
	assert_true(lp_extmap_take_dirty(&map, buf, &piece));
	assert_int_equal(piece.len, 272);
	assert_false(lp_extmap_take_dirty(&map, buf, &piece));
	assert_false(lp_extmap_root_is_dirty(&map));
	lp_extmap_fini(&map);
	free(crcs);
}

/* The ends of the space of blocks. */
static void test_limits(void **state)
{
	(void)state;
	struct lp_extmap map;
	uint8_t buf[LP_EXTMAP_ROOT_BYTES_MAX];
	struct lp_extmap_segment segment;
	static const uint32_t crc = 5;
	struct lp_extent extent = {(UINT64_C(1) << 48) - 1, 1};
	struct lp_extmap_new fresh = {&extent, 1, &crc, false};
	uint64_t at = 0;
	lp_extmap_init(&map, ino7, NULL);
	put_extents(&map, LP_EXTMAP_BLOCKS_MAX - 1, &fresh, 1);
	lp_test_ok(lp_extmap_seek(&map, 0, LP_EXTMAP_SEEK_DATA, &at));
	assert_true(at == LP_EXTMAP_BLOCKS_MAX - 1);
	lp_test_ok(lp_extmap_seek(&map, at, LP_EXTMAP_SEEK_HOLE, &at));
	assert_true(at == LP_EXTMAP_BLOCKS_MAX);
	lp_test_err(-ENXIO, lp_extmap_seek(&map, at, LP_EXTMAP_SEEK_DATA, &at));
	struct lp_extmap_range last = {LP_EXTMAP_BLOCKS_MAX - 1, 1};
	assert_int_equal(lp_extmap_lookup(&map, last, &segment, 1, NULL), 1);
	assert_true(segment.block == extent.block);
	size_t len = lp_extmap_encode_root(&map, buf);
	lp_extmap_fini(&map);
	lp_extmap_init(&map, ino7, NULL);
	lp_test_ok(lp_extmap_load_root(&map, buf, len));
	lp_test_err(-EAGAIN, lp_extmap_lookup(&map, last, &segment, 1, NULL));
	assert_int_equal(lp_extmap_missing(&map).first, LP_EXTMAP_LEAVES_MAX - 1);
	lp_extmap_fini(&map);
}

static uint64_t first_allocated(struct lp_extmap *map)
{
	uint64_t at = 0;
	lp_test_ok(lp_extmap_seek(map, 0, LP_EXTMAP_SEEK_ALLOCATED, &at));
	return at;
}

static void punch_one(struct lp_extmap *map, uint64_t at)
{
	struct lp_extmap_released released = {&(struct lp_extmap_release){{0, 0}, false}, 0, 1};
	assert_int_equal(lp_extmap_reserve(map, (struct lp_extmap_range){at, 1}, 0), 1);
	lp_extmap_punch(map, (struct lp_extmap_range){at, 1}, &released);
}

/* Leaves that no run names, so many that who asks for one after the other may not look through all
 * of them each time (P5); also while they go, and while others come. */
static void test_many_unnamed_leaves(void **state)
{
	(void)state;
	const uint64_t leaf = LP_EXTMAP_LEAF_BLOCKS;
	const uint64_t cnt = UINT64_C(20) * LPI_AHEAD_MAX;
	const uint64_t looks_max = 2 * cnt / LPI_AHEAD_MAX;
	struct lp_extmap map;
	struct lp_extent extent = {1000, 1};
	struct lp_extmap_new space = {&extent, 1, NULL, false};
	uint64_t end = 3 * cnt;
	uint64_t at = 0;
	lp_extmap_init(&map, ino7, NULL);
	for (uint64_t i = 0; i < cnt; i++)
		put_extents(&map, 3 * i * leaf, &space, 1);
	/* Nothing is written, so all of them are looked at. */
	while (lp_extmap_seek(&map, at, LP_EXTMAP_SEEK_DATA, &at) == 1)
		continue;
	assert_true(map.ahead->looks > 0 && map.ahead->looks <= looks_max);
	for (uint64_t i = 0; i < cnt; i++) {
		assert_int_equal(first_allocated(&map), 3 * i * leaf);
		punch_one(&map, 3 * i * leaf);
		if (i % 512 != 0)
			continue;
		put_extents(&map, (3 * i + 2) * leaf, &space, 1);
		for (uint32_t n = 0; n < 2 * LPI_RUNS_MAX; n++, end += 3) /* which are named */
			put_extents(&map, end * leaf, &space, 1);
		assert_int_equal(first_allocated(&map), (3 * i + 2) * leaf);
		punch_one(&map, (3 * i + 2) * leaf);
	}
	assert_int_equal(first_allocated(&map), 3 * cnt * leaf);
	assert_true(map.ahead->looks <= 2 * looks_max);
	lp_extmap_fini(&map);
}

/* --- asserts -------------------------------------------------------------------------------- */

static void overwrite_shared(void *arg)
{
	struct world *w = arg;
	uint32_t crc = 1;
	lp_extmap_update_crcs(&w->map, (struct lp_extmap_range){5, 1}, &crc);
}

static void change_beyond_reservation(void *arg)
{
	struct world *w = arg;
	struct lp_extmap_released released = {w->released_items, 0, OP_MAX};
	(void)!lp_extmap_reserve(&w->map, (struct lp_extmap_range){5, 1}, 0);
	lp_extmap_punch(&w->map, (struct lp_extmap_range){5, 2}, &released);
}

static void change_twice(void *arg)
{
	struct world *w = arg;
	struct lp_extmap_released released = {w->released_items, 0, OP_MAX};
	(void)!lp_extmap_reserve(&w->map, (struct lp_extmap_range){5, 1}, 0);
	lp_extmap_punch(&w->map, (struct lp_extmap_range){5, 1}, &released);
	lp_extmap_punch(&w->map, (struct lp_extmap_range){5, 1}, &released);
}

static void write_what_is_written(void *arg)
{
	struct world *w = arg;
	uint32_t crc = 1;
	(void)!lp_extmap_reserve(&w->map, (struct lp_extmap_range){5, 1}, 0);
	lp_extmap_mark_written(&w->map, (struct lp_extmap_range){5, 1}, &crc);
}

static void test_asserts(void **state)
{
	(void)state;
	struct world *w = world_new(50, 1);
	static const uint32_t crcs[64];
	struct lp_extent extent = {100, 64};
	struct lp_extmap_new fresh = {&extent, 1, crcs, true};
	put_extents(&w->map, 0, &fresh, 64);
	lp_test_dies(overwrite_shared, w); /* rule S4 */
	lp_test_dies(change_beyond_reservation, w);
	lp_test_dies(change_twice, w);
	lp_test_dies(write_what_is_written, w);
	world_free(w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_model_one_leaf),
		cmocka_unit_test(test_model_few_leaves),
		cmocka_unit_test(test_model_dense),
		cmocka_unit_test(test_model_sparse),
		cmocka_unit_test(test_no_memory),
		cmocka_unit_test(test_no_memory_to_load),
		cmocka_unit_test(test_unreserve_gives_back),
		cmocka_unit_test(test_leaves_beyond_count),
		cmocka_unit_test(test_one_run_too_many),
		cmocka_unit_test(test_lost_leaf),
		cmocka_unit_test(test_root_that_lies),
		cmocka_unit_test(test_mutated_roots),
		cmocka_unit_test(test_golden),
		cmocka_unit_test(test_bytes_per_overwrite),
		cmocka_unit_test(test_limits),
		cmocka_unit_test(test_many_unnamed_leaves),
		cmocka_unit_test(test_asserts),
	};
	return lp_test_main(tests, "store/extmap");
}
