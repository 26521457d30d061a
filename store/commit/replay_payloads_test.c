/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: what survives a look through all frames is, for each block, the last payload that no later
 * frame freed (rule S3).
 * Method: the case that would lose data by hand; random frames against an array with the log
 * block of each device block. */
#include "base/testing/test.h"

#include "base/prng.h"
#include "store/commit/replay_payloads.h"

#define BLOCK_CNT 300

static struct lp_replay_payloads *payloads;
static uint64_t expected[BLOCK_CNT]; /* log block, 0 for none */
static uint64_t expected_seq[BLOCK_CNT];

static int setup(void **state)
{
	(void)state;
	memset(expected, 0, sizeof(expected));
	lp_test_ok(lp_replay_payloads_new(&payloads));
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	lp_replay_payloads_free(payloads);
	return 0;
}

static void add(uint64_t seq, uint64_t block, uint64_t cnt, uint64_t log_block)
{
	struct lp_replay_payload payload = {
		.extent = {block, cnt}, .log_block = log_block, .seq = seq};
	lp_test_ok(lp_replay_payloads_add(payloads, &payload));
	for (uint64_t i = 0; i < cnt; i++) {
		expected[block + i] = log_block + i;
		expected_seq[block + i] = seq;
	}
}

static void drop(uint64_t block, uint64_t cnt)
{
	lp_test_ok(lp_replay_payloads_drop(payloads, (struct lp_extent){block, cnt}));
	memset(&expected[block], 0, cnt * sizeof(expected[0]));
}

static void check_all(void)
{
	static uint64_t found[BLOCK_CNT];
	memset(found, 0, sizeof(found));
	struct lp_replay_payload payload = {0};
	uint64_t blocks = 0;
	while (lp_replay_payloads_next(payloads, lp_extent_end(payload.extent), &payload)) {
		assert_true(payload.extent.cnt > 0);
		for (uint64_t i = 0; i < payload.extent.cnt; i++) {
			found[payload.extent.block + i] = payload.log_block + i;
			assert_int_equal(expected_seq[payload.extent.block + i], payload.seq);
		}
		blocks += payload.extent.cnt;
	}
	assert_memory_equal(found, expected, sizeof(found));
	assert_int_equal(lp_replay_payloads_blocks(payloads), blocks);
}

/* Rule S3: frame 1 defers a write to a block, frame 2 frees it, and what frame 3 took was written
 * directly: the payload of frame 1 must not be written over it. */
static void test_freed_payload_is_dropped(void **state)
{
	(void)state;
	struct lp_replay_payload payload;
	add(1, 100, 4, 1000);
	drop(101, 2);
	check_all();
	assert_true(lp_replay_payloads_next(payloads, 0, &payload));
	assert_int_equal(payload.extent.block, 100);
	assert_int_equal(payload.extent.cnt, 1);
	assert_true(lp_replay_payloads_next(payloads, 101, &payload));
	assert_int_equal(payload.extent.block, 103);
	assert_int_equal(payload.log_block, 1003);
	assert_false(lp_replay_payloads_next(payloads, 104, &payload));
}

/* The free came before the payload: the block was taken again, and the payload is the owner's. */
static void test_payload_after_the_free_stays(void **state)
{
	(void)state;
	add(1, 100, 4, 1000);
	drop(100, 4);
	add(5, 102, 1, 1020);
	check_all();
	assert_int_equal(lp_replay_payloads_blocks(payloads), 1);
}

static void test_later_payload_replaces(void **state)
{
	(void)state;
	add(1, 10, 10, 1000);
	add(2, 13, 3, 2000);
	add(2, 8, 4, 3000);
	check_all();
	struct lp_replay_payload payload;
	assert_true(lp_replay_payloads_next(payloads, 14, &payload)); /* from within a piece */
	assert_int_equal(payload.extent.block, 14);
	assert_int_equal(payload.extent.cnt, 2);
	assert_int_equal(payload.log_block, 2001);
}

static void test_random(void **state)
{
	(void)state;
	struct lp_prng prng;
	lp_prng_init(&prng, 1);
	for (uint64_t seq = 1; seq < 20000; seq++) {
		uint64_t block = lp_prng_below(&prng, BLOCK_CNT);
		uint64_t most = UINT64_C(1) << lp_prng_below(&prng, 7);
		uint64_t cnt = 1 + lp_prng_below(&prng, LP_MIN(BLOCK_CNT - block, most));
		if (lp_prng_chance(&prng, 1, 2))
			add(seq, block, cnt, 1 + lp_prng_below(&prng, 1000000));
		else
			drop(block, cnt);
		if (seq % 4 == 0)
			check_all();
	}
}

static void test_empty(void **state)
{
	(void)state;
	struct lp_replay_payload payload;
	assert_false(lp_replay_payloads_next(payloads, 0, &payload));
	drop(0, BLOCK_CNT);
	add(1, 0, BLOCK_CNT, 1);
	drop(0, BLOCK_CNT);
	check_all();
	assert_int_equal(lp_replay_payloads_blocks(payloads), 0);
	lp_replay_payloads_free(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_freed_payload_is_dropped, setup, teardown),
		cmocka_unit_test_setup_teardown(test_payload_after_the_free_stays, setup, teardown),
		cmocka_unit_test_setup_teardown(test_later_payload_replaces, setup, teardown),
		cmocka_unit_test_setup_teardown(test_random, setup, teardown),
		cmocka_unit_test_setup_teardown(test_empty, setup, teardown),
	};
	return lp_test_main(tests, "store/commit/replay_payloads");
}
