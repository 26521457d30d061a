/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: the summaries say what the bits say, at every edge between words and levels, before and
 * after growing. (What a search is to find at all is tested for all kinds in alloc_test.c.)
 * Method: random ranges over sizes with one to four levels against an array of bools. */
#include "base/testing/test_death.h"

#include "base/prng.h"
#include "store/space/free_bits.h"

#define BLOCK_CNT_MAX 300000

static bool naive[BLOCK_CNT_MAX];
static struct lpi_freebits bits;
static struct lp_prng prng;

static uint64_t naive_find(uint64_t pos, bool value)
{
	while (pos < bits.block_cnt && naive[pos] != value)
		pos++;
	return LP_MIN(pos, bits.block_cnt);
}

static void check_at(uint64_t pos)
{
	assert_int_equal(lpi_freebits_find_free(&bits, pos), naive_find(pos, true));
	assert_int_equal(lpi_freebits_find_used(&bits, pos), naive_find(pos, false));
	uint64_t start = pos;
	while (start > 0 && naive[start - 1])
		start--;
	assert_int_equal(lpi_freebits_run_start(&bits, pos), start);
}

/* Turns a whole stretch of one state into the other, or a part of it. */
static void flip_stretch(uint64_t pos)
{
	bool is_free = naive[pos];
	uint64_t end = naive_find(pos, !is_free);
	if (lp_prng_chance(&prng, 3, 4))
		end = pos + 1 + lp_prng_below(&prng, end - pos);
	struct lp_extent extent = {.block = pos, .cnt = end - pos};
	if (is_free)
		lpi_freebits_remove(&bits, extent);
	else
		lpi_freebits_add(&bits, extent);
	memset(&naive[pos], !is_free, end - pos);
}

static uint64_t random_pos(void)
{
	/* Often near an edge between words of some level. */
	uint64_t edge = UINT64_C(1) << (6 * lp_prng_below(&prng, 4));
	uint64_t pos = lp_prng_below(&prng, bits.block_cnt) / edge * edge;
	pos += lp_prng_below(&prng, 3);
	return pos == 0 || pos > bits.block_cnt ? 0 : pos - 1;
}

static void test_against_naive(void **state)
{
	(void)state;
	static const uint64_t sizes[] = {1, 64, 65, 4096, 4097, 70000, 262144, 262208, 290000};
	for (size_t i = 0; i < LP_ARRAY_SIZE(sizes); i++) {
		lp_prng_init(&prng, i);
		memset(naive, 0, sizeof(naive));
		lpi_freebits_init(&bits);
		lp_test_ok(lpi_freebits_grow(&bits, sizes[i]));
		assert_true(bits.block_cnt >= sizes[i] && bits.block_cnt <= BLOCK_CNT_MAX);
		for (int n = 0; n < 200; n++) {
			flip_stretch(random_pos());
			check_at(random_pos());
			check_at(lp_prng_below(&prng, bits.block_cnt));
		}
		uint64_t cnt = 0;
		for (uint64_t k = 0; k < bits.block_cnt; k++)
			cnt += naive[k];
		assert_int_equal(bits.free_blocks, cnt);
		lpi_freebits_fini(&bits);
	}
}

static void test_growing_keeps_all(void **state)
{
	(void)state;
	lp_prng_init(&prng, 1);
	memset(naive, 0, sizeof(naive));
	lpi_freebits_init(&bits);
	assert_int_equal(lpi_freebits_memory_bytes(&bits), 0);
	assert_int_equal(lpi_freebits_find_free(&bits, 0), 0);
	for (uint64_t size = 10; size < BLOCK_CNT_MAX * 2 / 3; size = size * 2 + 1) {
		lp_test_ok(lpi_freebits_grow(&bits, size));
		lp_test_ok(lpi_freebits_grow(&bits, size / 2)); /* never shrinks */
		for (int n = 0; n < 50; n++) {
			check_at(random_pos());
			flip_stretch(random_pos());
		}
	}
	/* A bit per block, and little above. */
	assert_in_range(lpi_freebits_memory_bytes(&bits), bits.block_cnt / 8,
			bits.block_cnt / 8 * 11 / 10);
	lpi_freebits_fini(&bits);
}

static void add_twice(void *arg)
{
	(void)arg;
	lpi_freebits_add(&bits, (struct lp_extent){120, 10});
}

static void remove_twice(void *arg)
{
	(void)arg;
	lpi_freebits_remove(&bits, (struct lp_extent){99, 2});
}

static void test_misuse_asserts(void **state)
{
	(void)state;
	lpi_freebits_init(&bits);
	lp_test_ok(lpi_freebits_grow(&bits, 1000));
	lpi_freebits_add(&bits, (struct lp_extent){100, 21});
	lp_test_dies(add_twice, NULL);
	lp_test_dies(remove_twice, NULL);
	lpi_freebits_fini(&bits);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_against_naive),
		cmocka_unit_test(test_growing_keeps_all),
		cmocka_unit_test(test_misuse_asserts),
	};
	return lp_test_main(tests, "store/space/free_bits");
}
