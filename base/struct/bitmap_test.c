/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: every operation does what a loop over single bits does, at all edges of words, and
 * leaves bits outside its range, or beyond the bitmap, alone.
 * Method: exhaustive ranges over a small bitmap; random operations over larger ones of different
 * density, each compared with the naive loop on an array of bools. */
#include "base/testing/test.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/prng.h"
#include "base/struct/bitmap.h"

#define WORD_CNT 9
#define BIT_CNT  (8 * 64 + 37)

struct fixture {
	uint64_t words[WORD_CNT];
	bool naive[BIT_CNT];
	struct lp_bitmap bitmap;
	uint64_t tail; /* the bits of the last word that are not ours */
};

static struct fixture fx;

static int setup(void **state)
{
	(void)state;
	fx = (struct fixture){0};
	fx.tail = UINT64_C(0xa5a5a5a5a5a5a5a5) << (BIT_CNT % 64);
	fx.words[WORD_CNT - 1] = fx.tail;
	lp_bitmap_init(&fx.bitmap, fx.words, BIT_CNT);
	assert_int_equal(lp_bitmap_word_cnt(BIT_CNT), WORD_CNT);
	return 0;
}

static void fill(bool value, uint64_t from, uint64_t to)
{
	if (value)
		lp_bitmap_set(&fx.bitmap, from, to);
	else
		lp_bitmap_clear(&fx.bitmap, from, to);
	for (uint64_t i = from; i < to; i++)
		fx.naive[i] = value;
}

static void check_all_bits(void)
{
	for (uint64_t i = 0; i < BIT_CNT; i++)
		assert_int_equal(lp_bitmap_test(&fx.bitmap, i), fx.naive[i]);
	assert_true((fx.words[WORD_CNT - 1] & (UINT64_MAX << (BIT_CNT % 64))) == fx.tail);
}

static uint64_t naive_find(bool value, uint64_t from, uint64_t to)
{
	while (from < to && fx.naive[from] != value)
		from++;
	return from;
}

static uint64_t naive_find_set_end(uint64_t from, uint64_t to)
{
	while (to > from && !fx.naive[to - 1])
		to--;
	return to;
}

static uint64_t naive_find_clear_run(uint64_t from, uint64_t to, uint64_t cnt)
{
	for (uint64_t run = 0; from < to; from++) {
		run = fx.naive[from] ? 0 : run + 1;
		if (run == cnt)
			return from + 1 - cnt;
	}
	return to;
}

static void check_queries(uint64_t from, uint64_t to)
{
	const struct lp_bitmap *bm = &fx.bitmap;
	uint64_t cnt = 0;
	for (uint64_t i = from; i < to; i++)
		cnt += fx.naive[i];
	assert_int_equal(lp_bitmap_count(bm, from, to), cnt);
	assert_int_equal(lp_bitmap_is_set(bm, from, to), cnt == to - from);
	assert_int_equal(lp_bitmap_is_clear(bm, from, to), cnt == 0);
	assert_int_equal(lp_bitmap_find_set(bm, from, to), naive_find(true, from, to));
	assert_int_equal(lp_bitmap_find_clear(bm, from, to), naive_find(false, from, to));
	assert_int_equal(lp_bitmap_find_set_end(bm, from, to), naive_find_set_end(from, to));
}

static void check_run(uint64_t from, uint64_t to, uint64_t cnt)
{
	assert_int_equal(lp_bitmap_find_clear_run(&fx.bitmap, from, to, cnt),
			 naive_find_clear_run(from, to, cnt));
}

/* Every range over three words and a bit: each is set in an empty bitmap, then cleared in a full
 * one. */
static void test_every_range(void **state)
{
	(void)state;
	const uint64_t lo = 5 * 64 - 3;
	for (uint64_t from = lo; from <= BIT_CNT; from++) {
		for (uint64_t to = from; to <= BIT_CNT; to += 1 + (to - from) / 70) {
			memset(fx.words, 0, sizeof(fx.words));
			lp_bitmap_set(&fx.bitmap, from, to);
			assert_int_equal(lp_bitmap_count(&fx.bitmap, 0, BIT_CNT), to - from);
			assert_true(lp_bitmap_is_set(&fx.bitmap, from, to));
			assert_true(lp_bitmap_is_clear(&fx.bitmap, 0, from));
			assert_true(lp_bitmap_is_clear(&fx.bitmap, to, BIT_CNT));
			memset(fx.words, 0xff, sizeof(fx.words));
			lp_bitmap_clear(&fx.bitmap, from, to);
			assert_true(lp_bitmap_is_clear(&fx.bitmap, from, to));
			assert_true(lp_bitmap_is_set(&fx.bitmap, 0, from));
			assert_true(lp_bitmap_is_set(&fx.bitmap, to, BIT_CNT));
		}
	}
}

static void test_random_operations(void **state)
{
	(void)state;
	struct lp_prng prng;
	lp_prng_init(&prng, 1);
	for (int n = 0; n < 4000; n++) {
		/* Some ranges within one word, some over all; phases of filling and of emptying. */
		uint64_t most = UINT64_C(1) << lp_prng_between(&prng, 0, 9);
		uint64_t from = lp_prng_between(&prng, 0, BIT_CNT);
		uint64_t to = from + lp_prng_between(&prng, 0, LP_MIN(most, BIT_CNT - from));
		bool filling = n / 500 % 2 == 0;
		fill(lp_prng_chance(&prng, filling ? 3 : 1, 4), from, to);
		if (n % 16 == 0)
			check_all_bits();

		from = lp_prng_between(&prng, 0, BIT_CNT);
		to = lp_prng_between(&prng, from, BIT_CNT);
		check_queries(from, to);
		check_queries(0, BIT_CNT);
		check_run(from, to, 1 + lp_prng_below(&prng, most));
		check_run(0, BIT_CNT, 1 + lp_prng_below(&prng, most));
	}
	check_all_bits();
}

static void test_random_single_bits(void **state)
{
	(void)state;
	struct lp_prng prng;
	lp_prng_init(&prng, 2);
	for (uint32_t density = 1; density < 100; density += 7) {
		for (uint64_t i = 0; i < BIT_CNT; i++)
			fill(lp_prng_chance(&prng, density, 100), i, i + 1);
		check_all_bits();
		for (int n = 0; n < 200; n++) {
			uint64_t from = lp_prng_between(&prng, 0, BIT_CNT);
			uint64_t to = lp_prng_between(&prng, from, BIT_CNT);
			check_queries(from, to);
			check_run(from, to, lp_prng_between(&prng, 1, 20));
		}
	}
}

static void test_run_edges(void **state)
{
	(void)state;
	const struct lp_bitmap *bm = &fx.bitmap;
	assert_int_equal(lp_bitmap_find_clear_run(bm, 0, BIT_CNT, BIT_CNT), 0);
	assert_int_equal(lp_bitmap_find_clear_run(bm, 1, BIT_CNT, BIT_CNT), BIT_CNT);
	assert_int_equal(lp_bitmap_find_clear_run(bm, 0, BIT_CNT, UINT64_MAX), BIT_CNT);
	assert_int_equal(lp_bitmap_find_clear_run(bm, 7, 7, 1), 7);
	lp_bitmap_set(&fx.bitmap, 0, BIT_CNT);
	assert_int_equal(lp_bitmap_find_clear_run(bm, 0, BIT_CNT, 1), BIT_CNT);
	/* The only hole, over two words; and the same when it is one too short. */
	lp_bitmap_clear(&fx.bitmap, 100, 200);
	assert_int_equal(lp_bitmap_find_clear_run(bm, 0, BIT_CNT, 100), 100);
	assert_int_equal(lp_bitmap_find_clear_run(bm, 0, BIT_CNT, 101), BIT_CNT);
	assert_int_equal(lp_bitmap_find_clear_run(bm, 0, 199, 100), 199);
	assert_int_equal(lp_bitmap_find_clear_run(bm, 101, BIT_CNT, 100), BIT_CNT);
	/* The last bit alone. */
	lp_bitmap_clear(&fx.bitmap, BIT_CNT - 1, BIT_CNT);
	assert_int_equal(lp_bitmap_find_clear_run(bm, 200, BIT_CNT, 1), BIT_CNT - 1);
	assert_int_equal(lp_bitmap_find_clear_run(bm, 200, BIT_CNT, 2), BIT_CNT);
}

static void test_sizes(void **state)
{
	(void)state;
	assert_int_equal(lp_bitmap_word_cnt(0), 0);
	assert_int_equal(lp_bitmap_word_cnt(1), 1);
	assert_int_equal(lp_bitmap_word_cnt(64), 1);
	assert_int_equal(lp_bitmap_word_cnt(65), 2);
	struct lp_bitmap empty;
	lp_bitmap_init(&empty, NULL, 0);
	lp_bitmap_set(&empty, 0, 0);
	lp_bitmap_clear(&empty, 0, 0);
	assert_int_equal(lp_bitmap_count(&empty, 0, 0), 0);
	assert_int_equal(lp_bitmap_find_clear_run(&empty, 0, 0, 1), 0);
}

static void test_ranges_outside_assert(void **state)
{
	(void)state;
	static const uint64_t ranges[][2] = {
		{0, BIT_CNT + 1}, {2, 1}, {UINT64_MAX, UINT64_MAX}, {0, UINT64_MAX}};
	for (size_t i = 0; i < LP_ARRAY_SIZE(ranges); i++) {
		pid_t pid = fork();
		assert_true(pid >= 0);
		if (pid == 0) {
			(void)signal(SIGABRT, SIG_DFL);
			(void)close(STDERR_FILENO);
			lp_bitmap_clear(&fx.bitmap, ranges[i][0], ranges[i][1]);
			_exit(0);
		}
		int status = 0;
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_every_range, setup),
		cmocka_unit_test_setup(test_random_operations, setup),
		cmocka_unit_test_setup(test_random_single_bits, setup),
		cmocka_unit_test_setup(test_run_edges, setup),
		cmocka_unit_test_setup(test_sizes, setup),
		cmocka_unit_test_setup(test_ranges_outside_assert, setup),
	};
	return lp_test_main(tests, "base/struct/bitmap");
}
