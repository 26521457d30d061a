/* SPDX-License-Identifier: Apache-2.0 */
/* Counts of what a mount was told of are exact whatever comes and goes (rule N5), and the table
 * follows them up and down. */
#include "namespace/state/kernel_holds.h"

#include "base/prng.h"
#include "base/testing/test.h"

#define NUMBERS     4096u
#define MARKS_BYTES (LPI_HELD_MARKS * sizeof(uint32_t))

static struct lpi_held *held_new(void)
{
	struct lpi_held *held = NULL;
	lp_test_ok(lpi_held_new(&held));
	return held;
}

/* Numbers as a store gives them, one after the other, of several shards: they must not fall on each
 * other. */
static struct lp_ino number(uint32_t i)
{
	return (struct lp_ino){(uint64_t)(i % 3) << 56 | (i + 1)};
}

/* Against an array: adds and drops at random, in phases with ever more and ever less. */
static void test_model(void **state)
{
	(void)state;
	static uint64_t model[NUMBERS];
	struct lpi_held *held = held_new();
	struct lpi_held_stats stats;
	struct lp_prng prng;
	lp_prng_init(&prng, 11);
	for (uint32_t i = 0; i < 200000; i++) {
		uint32_t at = (uint32_t)lp_prng_below(&prng, NUMBERS);
		bool adds = lp_prng_below(&prng, 100) < (i / 20000 % 2 == 0 ? 70 : 25);
		if (adds) {
			lpi_held_add(held, number(at));
			model[at]++;
		} else if (model[at] > 0) {
			uint64_t count = 1 + lp_prng_below(&prng, model[at]);
			bool is_last = count == model[at];
			assert_int_equal(lpi_held_drop(held, number(at), count), is_last);
			model[at] -= count;
		}
		at = (uint32_t)lp_prng_below(&prng, NUMBERS);
		assert_int_equal(lpi_held_cnt(held, number(at)), model[at]);
		assert_int_equal(lpi_held_is(held, number(at)), model[at] > 0);
		assert_true(lpi_held_may(held, number(at)) || model[at] == 0);
	}
	uint64_t inodes = 0;
	for (uint32_t i = 0; i < NUMBERS; i++) {
		assert_int_equal(lpi_held_cnt(held, number(i)), model[i]);
		inodes += model[i] > 0 ? 1 : 0;
	}
	lpi_held_read_stats(held, &stats);
	assert_int_equal(stats.inodes, inodes);
	assert_int_equal(stats.unbalanced, 0);
	assert_int_equal(stats.uncounted, 0);
	lpi_held_free(held);
}

/* A compact table, also after what was in it has gone. */
static void test_bytes(void **state)
{
	(void)state;
	const uint32_t cnt = 300000;
	struct lpi_held *held = held_new();
	struct lpi_held_stats stats;
	for (uint32_t i = 0; i < cnt; i++)
		lpi_held_add(held, number(i));
	lpi_held_read_stats(held, &stats);
	assert_int_equal(stats.inodes, cnt);
	assert_in_range(stats.bytes - MARKS_BYTES, UINT64_C(16) * cnt, UINT64_C(43) * cnt);
	for (uint32_t i = 0; i < cnt; i++)
		assert_true(lpi_held_drop(held, number(i), 1));
	lpi_held_read_stats(held, &stats);
	assert_int_equal(stats.inodes, 0);
	assert_in_range(stats.bytes - MARKS_BYTES, 0, 65536);
	lpi_held_free(held);
}

/* More is forgotten than was told: it is gone, and the counter says so. */
static void test_unbalanced(void **state)
{
	(void)state;
	struct lpi_held *held = held_new();
	struct lpi_held_stats stats;
	lpi_held_add(held, number(1));
	assert_true(lpi_held_drop(held, number(1), 2));
	assert_false(lpi_held_drop(held, number(1), 1));
	assert_false(lpi_held_drop(held, number(2), 1));
	assert_int_equal(lpi_held_cnt(held, number(1)), 0);
	lpi_held_read_stats(held, &stats);
	assert_int_equal(stats.unbalanced, 3);
	lpi_held_add(held, number(1));
	lpi_held_clear(held);
	assert_int_equal(lpi_held_cnt(held, number(1)), 0);
	lpi_held_free(held);
}

/* Whoever asks for some again and again is given each of them once in a round. */
static void test_some(void **state)
{
	(void)state;
	static uint32_t times[NUMBERS + 1];
	struct lpi_held *held = held_new();
	struct lp_ino inos[100];
	assert_int_equal(lpi_held_some(held, inos, 100), 0);
	for (uint32_t i = 1; i <= NUMBERS; i++)
		lpi_held_add(held, (struct lp_ino){i});
	for (uint32_t left = NUMBERS; left > 0;) {
		uint32_t wanted = LP_MIN(left, 100);
		assert_int_equal(lpi_held_some(held, inos, wanted), wanted);
		for (uint32_t i = 0; i < wanted; i++)
			times[inos[i].nr]++;
		left -= wanted;
	}
	for (uint32_t i = 1; i <= NUMBERS; i++)
		assert_int_equal(times[i], 1);
	lpi_held_free(held);
}

/* What other threads ask (rule M2): never no of what is held, and seldom yes of what is not; of
 * nothing when all has gone, one by one or at once. */
static void test_marks(void **state)
{
	(void)state;
	const uint32_t cnt = LPI_HELD_MARKS / 16;
	uint32_t wrong = 0;
	struct lpi_held *held = held_new();
	for (uint32_t round = 0; round < 2; round++) {
		for (uint32_t i = 0; i < cnt; i++) {
			lpi_held_add(held, number(i));
			lpi_held_add(held, number(i));
		}
		for (uint32_t i = 0; i < 2 * cnt; i++) {
			bool may = lpi_held_may(held, number(i));
			assert_true(may || i >= cnt);
			wrong += may && i >= cnt ? 1 : 0;
		}
		assert_true(wrong < cnt / 4);
		for (uint32_t i = 0; i < cnt && round == 0; i++) {
			assert_false(lpi_held_drop(held, number(i), 1));
			assert_true(lpi_held_may(held, number(i)));
			assert_true(lpi_held_drop(held, number(i), 1));
		}
		if (round == 1)
			lpi_held_clear(held);
		for (uint32_t i = 0; i < cnt; i++)
			assert_false(lpi_held_may(held, number(i)));
	}
	lpi_held_free(held);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_model),      cmocka_unit_test(test_bytes),
		cmocka_unit_test(test_unbalanced), cmocka_unit_test(test_some),
		cmocka_unit_test(test_marks),
	};
	return lp_test_main(tests, "namespace/state/kernel_holds");
}
