/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: every kind of allocator gives only what is free, all of it when asked, in the shape asked
 * for, and knows at all times exactly what is free.
 * Method: one model, an array of bools, drives random operations on all kinds (hybrid also with so
 * little memory that it lives on the edge of its limit); edges by hand; memory limits as the
 * failure of the Nth slab; ageing of a large device with bounded time; asserts in a child. */
#include "base/testing/test_death.h"

#include "base/assert.h"
#include "base/prng.h"
#include "store/space/alloc.h"

#define BLOCK_CNT   5000
#define EXTENTS_MAX 8

struct fixture {
	struct lp_alloc *alloc;
	struct lp_alloc_config config;
	bool is_free[BLOCK_CNT];
	bool is_space[BLOCK_CNT];
	struct lp_prng prng;
};

static struct fixture fx;

static const struct lp_alloc_config configs[] = {
	{.kind = LP_ALLOC_BITMAP, .block_cnt = 100},
	{.kind = LP_ALLOC_EXTENT},
	{.kind = LP_ALLOC_HYBRID, .block_cnt = BLOCK_CNT},
	{.kind = LP_ALLOC_HYBRID, .block_cnt = 1, .memory_max_bytes = 1},
	{.kind = LP_ALLOC_HYBRID, .memory_max_bytes = 12288},
};

static void start(const struct lp_alloc_config *config, uint64_t seed)
{
	memset(&fx, 0, sizeof(fx));
	fx.config = *config;
	lp_prng_init(&fx.prng, seed);
	lp_test_ok(lp_alloc_new(config, &fx.alloc));
}

static void finish(void)
{
	lp_alloc_free(fx.alloc);
	fx.alloc = NULL;
}

static void mark(bool *map, struct lp_extent extent, bool value)
{
	for (uint64_t i = extent.block; i < lp_extent_end(extent); i++) {
		assert_int_equal(map[i], !value);
		map[i] = value;
	}
}

static uint64_t run_end(uint64_t from)
{
	uint64_t end = from;
	while (end < BLOCK_CNT && fx.is_free[end])
		end++;
	return end;
}

/* All queries against the model, iteration first. */
static void check_all(void)
{
	assert_true(lp_alloc_is_sound(fx.alloc));
	uint64_t free_cnt = 0;
	uint64_t space_cnt = 0;
	uint64_t largest = 0;
	struct lp_extent run = {0};
	for (uint64_t pos = 0; pos < BLOCK_CNT; pos++) {
		free_cnt += fx.is_free[pos];
		space_cnt += fx.is_space[pos];
		if (!fx.is_free[pos] || (pos > 0 && fx.is_free[pos - 1]))
			continue;
		assert_true(lp_alloc_next_free(fx.alloc, lp_extent_end(run), &run));
		assert_int_equal(run.block, pos);
		assert_int_equal(lp_extent_end(run), run_end(pos));
		largest = LP_MAX(largest, run.cnt);
	}
	assert_false(lp_alloc_next_free(fx.alloc, lp_extent_end(run), &run));
	assert_int_equal(lp_alloc_free_blocks(fx.alloc), free_cnt);
	assert_int_equal(lp_alloc_space_blocks(fx.alloc), space_cnt);
	assert_int_equal(lp_alloc_largest_run(fx.alloc), largest);
}

/* The most whole units that one run holds, and the sum over all runs. */
static void count_units(uint64_t unit, uint64_t *ret_longest, uint64_t *ret_sum)
{
	*ret_longest = *ret_sum = 0;
	for (uint64_t pos = 0; pos < BLOCK_CNT; pos++) {
		uint64_t end = run_end(pos);
		uint64_t first = lp_align_up(pos, unit);
		uint64_t cnt = end > first ? lp_align_down(end - first, unit) : 0;
		*ret_longest = LP_MAX(*ret_longest, cnt);
		*ret_sum += cnt;
		pos = LP_MAX(end, pos);
	}
}

static void random_take(void)
{
	struct lp_alloc_options options = {
		.hint = lp_prng_chance(&fx.prng, 1, 2) ? lp_prng_below(&fx.prng, BLOCK_CNT + 100)
						       : LP_ALLOC_NO_HINT,
		.unit = lp_prng_chance(&fx.prng, 2, 3) ? (uint32_t)lp_prng_below(&fx.prng, 2)
						       : UINT32_C(1) << lp_prng_below(&fx.prng, 6),
		.extents_max = 1 + (uint32_t)lp_prng_below(&fx.prng, EXTENTS_MAX),
		.is_contiguous = lp_prng_chance(&fx.prng, 1, 4)};
	uint64_t unit = LP_MAX(options.unit, 1);
	uint64_t want =
		unit * (1 + lp_prng_below(&fx.prng, UINT64_C(1) << lp_prng_below(&fx.prng, 9)));
	uint64_t longest;
	uint64_t sum;
	count_units(unit, &longest, &sum);
	struct lp_extent extents[EXTENTS_MAX];
	uint64_t blocks = 0;
	int cnt = lp_alloc_take(fx.alloc, want, &options, extents, &blocks);
	if (sum == 0 || (options.is_contiguous && longest < want)) {
		assert_int_equal(cnt, -ENOSPC);
		return;
	}
	assert_in_range(cnt, 1, options.extents_max);
	for (int i = 0; i < cnt; i++) {
		assert_true(extents[i].cnt > 0);
		assert_true(lp_is_aligned(extents[i].block, unit));
		assert_true(lp_is_aligned(extents[i].cnt, unit));
		mark(fx.is_free, extents[i], false);
		blocks -= extents[i].cnt;
		want -= extents[i].cnt;
	}
	assert_int_equal(blocks, 0);
	assert_true(!options.is_contiguous || (cnt == 1 && want == 0));
	/* As many as possible: short only when out of extents or of units. */
	assert_true(want == 0 || (uint32_t)cnt == options.extents_max ||
		    (count_units(unit, &longest, &sum), sum == 0));
}

/* A random stretch of space that is (not) free; cnt 0 when none was hit upon. */
static struct lp_extent random_stretch(bool free)
{
	uint64_t pos = lp_prng_below(&fx.prng, BLOCK_CNT);
	uint64_t most = 1 + lp_prng_below(&fx.prng, UINT64_C(1) << lp_prng_below(&fx.prng, 8));
	struct lp_extent extent = {.block = pos};
	while (extent.cnt < most && pos < BLOCK_CNT && fx.is_space[pos] &&
	       fx.is_free[pos] == free) {
		extent.cnt++;
		pos++;
	}
	return extent;
}

static void random_release(void)
{
	struct lp_extent extent = random_stretch(false);
	if (extent.cnt == 0)
		return;
	lp_test_ok(lp_alloc_release(fx.alloc, extent));
	mark(fx.is_free, extent, true);
}

static void random_range(void)
{
	uint64_t block = lp_prng_below(&fx.prng, BLOCK_CNT);
	uint64_t cnt = 1 + lp_prng_below(&fx.prng, LP_MIN(400, BLOCK_CNT - block));
	struct lp_extent range = {.block = block, .cnt = cnt};
	uint64_t space = 0;
	uint64_t free_cnt = 0;
	for (uint64_t i = block; i < lp_extent_end(range); i++) {
		space += fx.is_space[i];
		free_cnt += fx.is_free[i];
	}
	assert_int_equal(lp_alloc_is_free(fx.alloc, range), free_cnt == cnt);
	if (space == 0) {
		lp_test_ok(lp_alloc_add_range(fx.alloc, range));
		mark(fx.is_space, range, true);
		mark(fx.is_free, range, true);
	} else if (free_cnt < cnt) {
		lp_test_err(-EBUSY, lp_alloc_remove_range(fx.alloc, range));
	} else if (lp_prng_chance(&fx.prng, 1, 4)) {
		lp_test_ok(lp_alloc_remove_range(fx.alloc, range));
		mark(fx.is_space, range, false);
		mark(fx.is_free, range, false);
	}
}

static void run_model(const struct lp_alloc_config *config, uint64_t seed)
{
	start(config, seed);
	for (int n = 0; n < 3000; n++) {
		bool is_filling = n / 500 % 2 == 0;
		if (lp_prng_chance(&fx.prng, 1, 20))
			random_range();
		else if (lp_prng_chance(&fx.prng, is_filling ? 2 : 1, 4))
			random_take();
		else
			random_release();
		if (n % 16 == 0)
			check_all();
	}
	check_all();
	finish();
}

static void test_model(void **state)
{
	(void)state;
	for (size_t i = 0; i < LP_ARRAY_SIZE(configs); i++) {
		for (uint64_t seed = 1; seed <= 4; seed++)
			run_model(&configs[i], seed);
	}
}

static const struct lp_alloc_options plain = {.hint = LP_ALLOC_NO_HINT, .extents_max = EXTENTS_MAX};

static void add(uint64_t block, uint64_t cnt)
{
	lp_test_ok(lp_alloc_add_range(fx.alloc, (struct lp_extent){block, cnt}));
}

static void give(uint64_t block, uint64_t cnt)
{
	lp_test_ok(lp_alloc_release(fx.alloc, (struct lp_extent){block, cnt}));
}

static void test_edges(void **state)
{
	(void)state;
	for (size_t i = 0; i < LP_ARRAY_SIZE(configs); i++) {
		start(&configs[i], 1);
		struct lp_extent e[EXTENTS_MAX];
		uint64_t blocks = 77;
		assert_int_equal(lp_alloc_take(fx.alloc, 1, &plain, e, &blocks), -ENOSPC);
		assert_int_equal(blocks, 77);
		assert_true(lp_alloc_score(fx.alloc) < 1e-9);
		add(10, 1);
		add(12, 3);
		assert_int_equal(lp_alloc_take(fx.alloc, 100, &plain, e, &blocks), 2);
		assert_int_equal(blocks, 4);
		assert_int_equal(e[0].block, 12); /* the longest first */
		assert_int_equal(lp_alloc_free_blocks(fx.alloc), 0);
		give(13, 1);
		give(12, 1);
		give(14, 1);
		give(10, 1);
		struct lp_alloc_options options = plain;
		options.hint = 13;
		assert_int_equal(lp_alloc_take(fx.alloc, 2, &options, e, &blocks), 1);
		assert_int_equal(e[0].block, 13);
		options.hint = 11; /* not free: right behind it */
		assert_int_equal(lp_alloc_take(fx.alloc, 1, &options, e, &blocks), 1);
		assert_int_equal(e[0].block, 12);
		/* Far away: it grows, and what was there stays. */
		add(UINT64_C(1) << 20, 4096);
		assert_true(lp_alloc_is_free(fx.alloc, (struct lp_extent){10, 1}));
		options = (struct lp_alloc_options){.hint = LP_ALLOC_NO_HINT,
						    .unit = 4096,
						    .extents_max = 1,
						    .is_contiguous = true};
		assert_int_equal(lp_alloc_take(fx.alloc, 4096, &options, e, &blocks), 1);
		assert_int_equal(e[0].block, UINT64_C(1) << 20);
		finish();
	}
}

/* A long run among many short ones, at a place no search would come to soon: contiguous finds it.
 */
static void test_contiguous_finds_the_only_run(void **state)
{
	(void)state;
	for (size_t i = 0; i < LP_ARRAY_SIZE(configs); i++) {
		for (uint64_t len = 2; len <= 300; len = len * 3 / 2 + 1) {
			start(&configs[i], 1);
			for (uint64_t b = 0; b < 20000; b += 2)
				add(b, 1);
			add(20011, len);
			for (uint64_t b = 21000; b < 22000; b += 2)
				add(b, 1);
			struct lp_alloc_options options = plain;
			options.is_contiguous = true;
			struct lp_extent e[EXTENTS_MAX];
			uint64_t blocks;
			assert_int_equal(lp_alloc_take(fx.alloc, len + 1, &options, e, &blocks),
					 -ENOSPC);
			assert_int_equal(lp_alloc_take(fx.alloc, len, &options, e, &blocks), 1);
			assert_int_equal(e[0].block, 20011);
			finish();
		}
	}
}

/* The Nth slab is refused, for N = 1, 2, ...: extent says -ENOMEM and is as before, hybrid goes on
 * in its bitmap. */
static void test_memory_limit(void **state)
{
	(void)state;
	for (uint64_t slabs = 1; slabs <= 5; slabs++) {
		struct lp_alloc_config config = {.kind = LP_ALLOC_EXTENT,
						 .memory_max_bytes = slabs * 4096};
		start(&config, 1);
		uint64_t block = 0;
		while (lp_alloc_add_range(fx.alloc, (struct lp_extent){block, 3}) == 0) {
			mark(fx.is_space, (struct lp_extent){block, 3}, true);
			mark(fx.is_free, (struct lp_extent){block, 3}, true);
			block += 4;
		}
		assert_in_range(lp_alloc_memory_bytes(fx.alloc), 1, slabs * 4096);
		assert_true(block / 4 > 32 * slabs);
		lp_test_err(-ENOMEM, lp_alloc_add_range(fx.alloc, (struct lp_extent){block, 1}));
		lp_test_err(-ENOMEM, lp_alloc_remove_range(fx.alloc, (struct lp_extent){1, 1}));
		struct lp_alloc_options options = plain;
		options.hint = 4; /* from its front: no split */
		struct lp_extent e[EXTENTS_MAX];
		uint64_t blocks;
		assert_int_equal(lp_alloc_take(fx.alloc, 1, &options, e, &blocks), 1);
		mark(fx.is_free, e[0], false);
		check_all();
		finish();

		config.kind = LP_ALLOC_HYBRID;
		start(&config, 1);
		for (block = 0; block + 4 < BLOCK_CNT; block += 4) {
			add(block, 3);
			mark(fx.is_space, (struct lp_extent){block, 3}, true);
			mark(fx.is_free, (struct lp_extent){block, 3}, true);
		}
		check_all();
		/* Out of the middle of runs of both halves, and of one that moves meanwhile. */
		for (block = 0; block + 4 < BLOCK_CNT; block += 4) {
			struct lp_extent middle = {.block = block + 1, .cnt = 1};
			lp_test_ok(lp_alloc_remove_range(fx.alloc, middle));
			mark(fx.is_space, middle, false);
			mark(fx.is_free, middle, false);
		}
		check_all();
		finish();
	}
}

static void test_split_without_memory(void **state)
{
	(void)state;
	struct lp_alloc_config config = {.kind = LP_ALLOC_EXTENT, .memory_max_bytes = 4096};
	start(&config, 1);
	uint64_t block = 0;
	while (lp_alloc_add_range(fx.alloc, (struct lp_extent){block, 3}) == 0) {
		mark(fx.is_space, (struct lp_extent){block, 3}, true);
		mark(fx.is_free, (struct lp_extent){block, 3}, true);
		block += 4;
	}
	/* Only the middle block of a run is at a multiple of 2 with room: a hint there splits. */
	struct lp_alloc_options options = {.hint = 9, .extents_max = 1};
	struct lp_extent e[1];
	uint64_t blocks;
	lp_test_err(-ENOMEM, lp_alloc_take(fx.alloc, 1, &options, e, &blocks));
	check_all();
	finish();
}

/* The longest runs, in the trees, hold no whole unit; a short one in the bitmap does. */
static void test_hybrid_looks_into_both_halves(void **state)
{
	(void)state;
	struct lp_alloc_config config = {.kind = LP_ALLOC_HYBRID, .memory_max_bytes = 4096};
	start(&config, 1);
	add(8, 8);
	for (uint64_t i = 0; i < 100; i++)
		add(1001 + 16 * i, 14);
	struct lp_alloc_options options = {
		.hint = LP_ALLOC_NO_HINT, .unit = 8, .extents_max = EXTENTS_MAX};
	struct lp_extent e[EXTENTS_MAX];
	uint64_t blocks;
	assert_int_equal(lp_alloc_take(fx.alloc, 16, &options, e, &blocks), 1);
	assert_int_equal(e[0].block, 8);
	assert_int_equal(blocks, 8);
	assert_int_equal(lp_alloc_take(fx.alloc, 16, &options, e, &blocks), -ENOSPC);
	finish();
}

static void test_score(void **state)
{
	(void)state;
	for (size_t i = 0; i < LP_ARRAY_SIZE(configs); i++) {
		start(&configs[i], 1);
		add(0, 4096);
		assert_true(lp_alloc_score(fx.alloc) < 1e-9);
		double before = 0;
		for (uint64_t part = 1024; part > 1; part /= 2) {
			lp_test_ok(lp_alloc_remove_range(fx.alloc, (struct lp_extent){0, 4096}));
			for (uint64_t b = 0; b < 4096; b += part)
				add(b + 1, part - 1);
			double score = lp_alloc_score(fx.alloc);
			assert_true(score > before && score <= 1);
			before = score;
			for (uint64_t b = 0; b < 4096; b += part)
				add(b, 1);
		}
		assert_true(before > 1 - 1e-9); /* single blocks */
		finish();
	}
}

/* A million takes and releases on 16 GiB: nothing is lost, and no operation is linear. */
static void test_ageing(void **state)
{
	(void)state;
	static struct lp_extent held[65536];
	const uint64_t block_cnt = UINT64_C(1) << 22;
	for (size_t i = 0; i < LP_ARRAY_SIZE(configs); i++) {
		start(&configs[i], 1);
		add(0, block_cnt);
		uint64_t held_blocks = 0;
		memset(held, 0, sizeof(held));
		for (int n = 0; n < (LP_ASSERT_SLOW_ON ? 100000 : 1000000); n++) {
			struct lp_extent *slot =
				&held[lp_prng_below(&fx.prng, LP_ARRAY_SIZE(held))];
			if (slot->cnt != 0) {
				lp_test_ok(lp_alloc_release(fx.alloc, *slot));
				held_blocks -= slot->cnt;
				slot->cnt = 0;
			}
			uint64_t want = UINT64_C(1) << lp_prng_below(&fx.prng, 9);
			struct lp_alloc_options options = {.hint = LP_ALLOC_NO_HINT,
							   .extents_max = 1};
			uint64_t blocks = 0;
			if (lp_alloc_take(fx.alloc, want, &options, slot, &blocks) < 0)
				slot->cnt = 0;
			held_blocks += slot->cnt;
		}
		assert_int_equal(lp_alloc_free_blocks(fx.alloc), block_cnt - held_blocks);
		assert_true(lp_alloc_is_sound(fx.alloc));
		for (size_t k = 0; k < LP_ARRAY_SIZE(held); k++) {
			if (held[k].cnt != 0)
				lp_test_ok(lp_alloc_release(fx.alloc, held[k]));
		}
		assert_int_equal(lp_alloc_largest_run(fx.alloc), block_cnt);
		finish();
	}
}

static void release_twice(void *arg)
{
	(void)arg;
	struct lp_extent extent = {.block = 299, .cnt = 2};
	lp_test_ok(lp_alloc_release(fx.alloc, extent));
}

static void test_double_release_asserts(void **state)
{
	(void)state;
	for (size_t i = 0; i < LP_ARRAY_SIZE(configs); i++) {
		start(&configs[i], 1);
		add(0, 1000);
		struct lp_alloc_options options = {.hint = 100, .extents_max = 1};
		struct lp_extent extent;
		uint64_t blocks;
		assert_int_equal(lp_alloc_take(fx.alloc, 200, &options, &extent, &blocks), 1);
		assert_int_equal(extent.block, 100);
		lp_test_dies(release_twice, NULL);
		finish();
	}
}

static void test_names(void **state)
{
	(void)state;
	assert_string_equal(lp_alloc_kind_name(LP_ALLOC_HYBRID), "hybrid");
	assert_string_equal(lp_alloc_kind_name(LP_ALLOC_BITMAP), "bitmap");
	assert_string_equal(lp_alloc_kind_name(LP_ALLOC_EXTENT), "extent");
	lp_alloc_free(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_model),
		cmocka_unit_test(test_edges),
		cmocka_unit_test(test_contiguous_finds_the_only_run),
		cmocka_unit_test(test_memory_limit),
		cmocka_unit_test(test_split_without_memory),
		cmocka_unit_test(test_hybrid_looks_into_both_halves),
		cmocka_unit_test(test_score),
		cmocka_unit_test(test_ageing),
		cmocka_unit_test(test_double_release_asserts),
		cmocka_unit_test(test_names),
	};
	return lp_test_main(tests, "store/space/alloc");
}
