/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: the bitmaps say of each block whether an extent names it and whether two do that may not,
 * and give runs and shared groups as they are.
 * Method: random extents beside plain arrays; the edges of chunks by hand. */
#include "base/testing/test.h"

#include "base/prng.h"
#include "store/check/named_blocks.h"

#define BASE   UINT64_C(100) /* not at the beginning of a group */
#define CHUNK  UINT64_C(256)
#define CHUNKS 6u
#define END    (BASE + UINT64_C(1536)) /* CHUNK x CHUNKS */

/* Chunks 1, 2 and 4 are ours. */
static void make(struct lpi_fsck_blocks *blocks)
{
	*blocks = (struct lpi_fsck_blocks){.chunk_cnt = 0};
	lp_test_ok(lpi_fsck_blocks_init(blocks, BASE, (uint32_t)CHUNK, CHUNKS));
	lp_test_ok(lpi_fsck_blocks_add(blocks, 1, NULL));
	lp_test_ok(lpi_fsck_blocks_add(blocks, 2, NULL));
	lp_test_ok(lpi_fsck_blocks_add(blocks, 4, NULL));
}

static bool has(const struct lpi_fsck_blocks *blocks, uint64_t block, uint64_t cnt)
{
	return lpi_fsck_blocks_has(blocks, (struct lp_extent){block, cnt});
}

static void test_has(void **state)
{
	(void)state;
	struct lpi_fsck_blocks blocks;
	make(&blocks);
	assert_true(has(&blocks, BASE + CHUNK, 2 * CHUNK)); /* over two chunks */
	assert_false(has(&blocks, BASE + CHUNK, 2 * CHUNK + 1));
	assert_false(has(&blocks, BASE + CHUNK - 1, 2));
	assert_true(has(&blocks, BASE + 4 * CHUNK, CHUNK));
	assert_false(has(&blocks, BASE - 1, 1));
	assert_false(has(&blocks, 0, 1));
	assert_false(has(&blocks, END, 1));
	assert_false(has(&blocks, UINT64_C(1) << 47, 64));
	lpi_fsck_blocks_fini(&blocks);
	lpi_fsck_blocks_fini(&blocks);
}

/* Of a split chunk only the shard's own blocks are there. */
static void test_split(void **state)
{
	(void)state;
	struct lpi_fsck_blocks blocks;
	uint64_t words[CHUNK / 64] = {0};
	struct lp_bitmap mine;
	make(&blocks);
	lp_bitmap_init(&mine, words, CHUNK);
	lp_bitmap_set(&mine, 0, 10);
	lp_bitmap_set(&mine, 70, CHUNK);
	lp_test_ok(lpi_fsck_blocks_add(&blocks, 3, &mine));
	lp_bitmap_set(&mine, 10, 70); /* it has a copy */
	uint64_t first = BASE + 3 * CHUNK;
	assert_true(has(&blocks, first - 1, 11)); /* with the end of chunk 2 */
	assert_false(has(&blocks, first - 1, 12));
	assert_false(has(&blocks, first + 10, 60));
	assert_false(has(&blocks, first + 69, 2));
	assert_true(has(&blocks, first + 70, CHUNK - 70 + CHUNK)); /* and all of chunk 4 */
	lpi_fsck_blocks_fini(&blocks);
}

struct model {
	bool owned[END];
	bool shared[END];
};

static void name_random(struct lpi_fsck_blocks *blocks, struct model *model, struct lp_prng *prng)
{
	struct lp_extent extent = {BASE + CHUNK + lp_prng_below(prng, 2 * CHUNK - 20),
				   1 + lp_prng_below(prng, 20)};
	bool is_shared = lp_prng_chance(prng, 1, 2);
	uint64_t want = 0;
	uint64_t twice = 77;
	for (uint64_t b = extent.block; b < lp_extent_end(extent); b++) {
		want += model->owned[b] || (model->shared[b] && !is_shared);
		model->owned[b] |= !is_shared;
		model->shared[b] |= is_shared;
	}
	lp_test_ok(lpi_fsck_blocks_name(blocks, extent, is_shared, &twice));
	assert_int_equal(twice, want);
}

static void check(const struct lpi_fsck_blocks *blocks, const struct model *model)
{
	struct lp_extent run;
	for (uint64_t b = BASE + CHUNK; b < BASE + 3 * CHUNK; b = lp_extent_end(run)) {
		bool is_named;
		run = lpi_fsck_blocks_run(blocks, b, &is_named);
		assert_true(run.block == b && run.cnt > 0);
		assert_true((b - BASE) / CHUNK == (lp_extent_end(run) - 1 - BASE) / CHUNK);
		for (uint64_t i = b; i < lp_extent_end(run); i++)
			assert_true((model->owned[i] || model->shared[i]) == is_named);
	}
	uint64_t got = 0;
	bool found = lpi_fsck_blocks_next_group(blocks, 0, &got);
	for (uint64_t group = 0; group <= END / 64; group++) {
		bool want = false;
		for (uint64_t b = group * 64; b < LP_MIN(group * 64 + 64, END); b++)
			want |= model->shared[b];
		assert_true(want == (found && got == group));
		if (want)
			found = lpi_fsck_blocks_next_group(blocks, group + 1, &got);
	}
	assert_false(found);
}

static void test_random(void **state)
{
	(void)state;
	static struct model model;
	struct lpi_fsck_blocks blocks;
	struct lp_prng prng;
	lp_prng_init(&prng, 5);
	make(&blocks);
	for (int i = 0; i < 40; i++) {
		name_random(&blocks, &model, &prng);
		check(&blocks, &model);
	}
	lpi_fsck_blocks_fini(&blocks);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_has),
		cmocka_unit_test(test_split),
		cmocka_unit_test(test_random),
	};
	return lp_test_main(tests, "store/check/named_blocks");
}
