/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: what a damaged map makes of the space, which is told of blocks that are free, or in no
 * chunk of the shard, is recorded and changes nothing else: neither while it serves nor in a replay
 * (P7, rule S3).
 * Method: by hand; frames that free more than is in use, and extents that may be anything.
 */
#include "base/testing/test.h"

#include "base/error.h"
#include "format/space.h"
#include "store/space/space.h"

#define CHUNK_BLOCKS 256u
#define CHUNK_CNT    12u
#define OWNED_CNT    4u
#define BASE_BLOCK   7u
#define BLOCK_CNT    (BASE_BLOCK + CHUNK_CNT * CHUNK_BLOCKS)
#define OWNED_BLOCKS (UINT64_C(1) * OWNED_CNT * CHUNK_BLOCKS)

static struct lp_space *space;
static uint64_t last_seq;

/* --- A space, frame by frame ------------------------------------------------------------------ */

static void start(void)
{
	const struct lp_space_config config = {.alloc_kind = LP_ALLOC_HYBRID,
					       .alloc_memory_max_bytes = 4096,
					       .base_block = BASE_BLOCK,
					       .chunk_blocks = CHUNK_BLOCKS,
					       .chunk_cnt_max = CHUNK_CNT,
					       .low_water_blocks = CHUNK_BLOCKS / 2};
	lp_test_ok(lp_space_new(&config, &space));
	for (uint32_t i = 0; i < OWNED_CNT; i++)
		lp_test_ok(lp_space_chunk_add(space, i));
	last_seq = 0;
}

static uint64_t free_blocks(void)
{
	return lp_alloc_free_blocks(lp_space_alloc(space));
}

static void finish(void)
{
	assert_true(lp_alloc_is_sound(lp_space_alloc(space)));
	assert_int_equal(free_blocks() + lp_space_used_blocks(space), OWNED_BLOCKS);
	lp_space_free(space);
}

static struct lp_extent take(uint64_t cnt)
{
	const struct lp_alloc_options options = {
		.hint = LP_ALLOC_NO_HINT, .extents_max = 1, .is_contiguous = true};
	struct lp_extent extent;
	uint64_t blocks;
	assert_int_equal(lp_space_take(space, cnt, &options, &extent, &blocks), 1);
	return extent;
}

/* A frame of one change becomes durable, or is replayed. */
static void frame(uint8_t kind, struct lp_extent extent, bool is_live)
{
	const struct lp_space_change change = {
		.block = extent.block, .cnt = (uint32_t)extent.cnt, .kind = kind};
	uint8_t buf[LP_SPACE_CHANGE_SIZE];
	lp_space_change_encode(&change, buf);
	if (is_live)
		lp_space_frame_durable(space, ++last_seq, buf, sizeof(buf));
	else
		lp_test_ok(lp_space_replay_frame(space, ++last_seq, buf, sizeof(buf)));
}

static void taken(struct lp_extent extent)
{
	frame(LP_SPACE_CHANGE_KIND_TAKE, extent, true);
}

/* Whether a corruption was recorded. */
static bool freed(struct lp_extent extent, bool is_live)
{
	uint64_t before = lp_corruption_count();
	frame(LP_SPACE_CHANGE_KIND_FREE, extent, is_live);
	assert_in_range(lp_corruption_count() - before, 0, 1);
	return lp_corruption_count() > before;
}

/* --- Frames ----------------------------------------------------------------------------------- */

/* Blocks 100 to 109 are in use; how many of these still are then. */
static void freed_of_ten(uint64_t block, uint32_t cnt, uint32_t left)
{
	for (int is_live = 0; is_live < 2; is_live++) {
		start();
		frame(LP_SPACE_CHANGE_KIND_TAKE, (struct lp_extent){100, 10}, false);
		if (is_live)
			lp_test_ok(lp_space_recovered(space, last_seq));
		assert_int_equal(freed((struct lp_extent){block, cnt}, is_live), 10 - left < cnt);
		if (!is_live)
			lp_test_ok(lp_space_recovered(space, last_seq));
		assert_int_equal(lp_space_used_blocks(space), left);
		finish();
	}
}

static void test_only_what_is_in_use_is_freed(void **state)
{
	(void)state;
	freed_of_ten(100, 10, 0);
	freed_of_ten(102, 3, 7);
	freed_of_ten(95, 10, 5);
	freed_of_ten(105, 10, 5);
	freed_of_ten(90, 30, 0);
	freed_of_ten(99, 1, 10);
	freed_of_ten(6, 1, 10);
	freed_of_ten(BLOCK_CNT - 1, 2, 10);
	freed_of_ten(UINT64_MAX - 1, 1, 10);
	freed_of_ten(BASE_BLOCK + UINT64_C(5) * CHUNK_BLOCKS, 1, 10);
	/* Of two chunks, of which one is not owned. */
	freed_of_ten(BASE_BLOCK + OWNED_BLOCKS - 1, 2, 10);
}

static struct lp_extent told; /* the last that was freed */
static unsigned told_cnt;

static void tell(void *arg, struct lp_extent extent)
{
	(void)arg;
	told = extent;
	told_cnt++;
}

/* Two maps name one block: what the second one frees may be the next one's by then, who is not to
 * lose it to a discard. */
static void test_freed_again(void **state)
{
	(void)state;
	struct lp_space_pin pin;
	start();
	lp_test_ok(lp_space_recovered(space, 0));
	lp_space_tell_freed(space, tell, NULL);
	told_cnt = 0;
	struct lp_extent extent = take(3);
	taken(extent);
	lp_space_pin(space, &pin, (struct lp_extent){extent.block + 1, 1});
	assert_false(freed(extent, true));
	assert_int_equal(told_cnt, 1);
	assert_int_equal(told.block, extent.block);
	assert_int_equal(told.cnt, 3);
	assert_true(freed(extent, true)); /* while one of them waits */
	lp_space_unpin(space, &pin);
	assert_int_equal(free_blocks(), OWNED_BLOCKS);
	assert_true(freed(extent, true));
	extent = take(OWNED_BLOCKS); /* given away, and in no frame yet */
	assert_true(freed((struct lp_extent){extent.block, 3}, true));
	assert_int_equal(told_cnt, 1);
	assert_int_equal(free_blocks(), 0);
	taken(extent);
	finish();
}

/* --- Extents ---------------------------------------------------------------------------------- */

static void test_taken(void **state)
{
	(void)state;
	struct lp_space_pin pin;
	start();
	lp_test_ok(lp_space_recovered(space, 0));
	struct lp_extent extent = take(10);
	const struct lp_extent first = {extent.block, 1};
	const struct lp_extent with_next = {extent.block, 11};
	assert_true(lp_space_is_taken(space, extent)); /* by a group that is not durable */
	assert_false(lp_space_is_taken(space, with_next));
	taken(extent);
	assert_true(lp_space_is_taken(space, extent));
	assert_false(lp_space_is_taken(space, with_next));
	assert_true(lp_space_has(space, with_next));
	lp_space_pin(space, &pin, first);
	assert_false(freed(first, true));
	assert_false(lp_space_is_taken(space, first)); /* it waits */
	assert_false(lp_space_is_taken(space, extent));
	lp_space_unpin(space, &pin);
	assert_false(lp_space_is_taken(space, first));
	finish();
}

static void test_what_is_not_the_shards(void **state)
{
	(void)state;
	const struct lp_extent own = {BASE_BLOCK, OWNED_BLOCKS};
	const struct lp_extent others[] = {
		{BASE_BLOCK - 1, 2},     {2, 1},         {lp_extent_end(own) - 1, 2},
		{lp_extent_end(own), 1}, {BLOCK_CNT, 1}, {UINT64_C(1) << 47, 64},
		{UINT64_MAX, 1},
	};
	start();
	lp_test_ok(lp_space_recovered(space, 0));
	assert_int_equal(take(OWNED_BLOCKS).block, own.block);
	taken(own);
	assert_true(lp_space_has(space, own) && lp_space_is_taken(space, own));
	for (size_t i = 0; i < LP_ARRAY_SIZE(others); i++) {
		assert_false(lp_space_has(space, others[i]));
		assert_false(lp_space_is_taken(space, others[i]));
	}
	finish();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_only_what_is_in_use_is_freed),
		cmocka_unit_test(test_freed_again),
		cmocka_unit_test(test_taken),
		cmocka_unit_test(test_what_is_not_the_shards),
	};
	return lp_test_main(tests, "store/space/damage");
}
