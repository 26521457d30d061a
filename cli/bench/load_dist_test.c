/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: sizes and places are drawn as they were asked for. Method: texts that are sizes and texts
 * that are not; many draws with a fixed seed, counted, against the shares that must come out. */
#include "base/testing/test.h"

#include <math.h>

#include "base/assert.h"
#include "cli/bench/load_dist.h"

#define DRAWS 200000u

static struct lpi_load_sizes sizes_of(const char *text)
{
	struct lpi_load_sizes sizes;
	lp_test_ok(lpi_load_sizes_parse(text, &sizes));
	return sizes;
}

static void test_sizes_are_read(void **state)
{
	(void)state;
	static const char *const wrong[] = {
		"",          ",",     "4K,",  ",4K",   "4K:",   "4K:0", "4K:-1",
		"4K:70:2",   "4K-",   "-4K",  "4K-1K", "4K~",   "abc",  "0",
		"4K-8K-16K", "4K 8K", "0-4K", "2P",    "4K:1e3"};
	struct lpi_load_sizes sizes = {.cnt = 77};
	for (size_t i = 0; i < LP_ARRAY_SIZE(wrong); i++) {
		if (lpi_load_sizes_parse(wrong[i], &sizes) >= 0)
			fail_msg("%s is taken for sizes", wrong[i]);
	}
	assert_int_equal(sizes.cnt, 77);
	sizes = sizes_of("4K:70,64K:20,1M-2M:10,96~1024");
	assert_int_equal(sizes.cnt, 4);
	assert_int_equal(sizes.weight_sum, 101);
	assert_int_equal(sizes.low_bytes, 96);
	assert_int_equal(sizes.high_bytes, 2 << 20);
	assert_int_equal(sizes.unit_bytes, 32);
	assert_true(sizes.items[3].is_log && !sizes.items[2].is_log);
	/* Never coarser than a block. */
	assert_int_equal(sizes_of("1M").unit_bytes, 4096);
	/* As many as there is room for, and one more. */
	lp_test_ok(lpi_load_sizes_parse("1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16", &sizes));
	lp_test_err(-EINVAL,
		    lpi_load_sizes_parse("1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17", &sizes));
}

/* How many of the draws are below a bound; all are allowed ones. */
static double share_below(const struct lpi_load_sizes *sizes, uint64_t bound)
{
	struct lp_prng prng;
	uint32_t below = 0;
	lp_prng_init(&prng, 7);
	for (uint32_t i = 0; i < DRAWS; i++) {
		uint64_t bytes = lpi_load_sizes_pick(sizes, lp_prng_u64(&prng));
		assert_true(bytes >= sizes->low_bytes && bytes <= sizes->high_bytes);
		assert_int_equal(bytes % sizes->unit_bytes, 0);
		below += bytes < bound;
	}
	return (double)below / DRAWS;
}

static void test_sizes_are_drawn(void **state)
{
	(void)state;
	struct lpi_load_sizes weighted = sizes_of("4K:70,64K:20,1M:10");
	struct lpi_load_sizes even = sizes_of("4K-1M");
	struct lpi_load_sizes log = sizes_of("4K~4M");
	assert_true(fabs(share_below(&weighted, 8192) - 0.7) < 0.01);
	assert_true(fabs(share_below(&weighted, 1 << 20) - 0.9) < 0.01);
	assert_true(fabs(share_below(&even, 512 << 10) - 0.5) < 0.01);
	/* 4 KiB to 128 KiB are half of the ten doublings. */
	assert_true(fabs(share_below(&log, 128 << 10) - 0.5) < 0.01);
	/* Both ends are drawn. */
	struct lpi_load_sizes narrow = sizes_of("1-3");
	assert_true(fabs(share_below(&narrow, 2) - 1.0 / 3) < 0.01);
	assert_true(fabs(share_below(&narrow, 3) - 2.0 / 3) < 0.01);
}

static void test_sizes_are_the_same_again(void **state)
{
	(void)state;
	struct lpi_load_sizes sizes = sizes_of("4K:1,64K-1M:2");
	for (uint64_t i = 0; i < 1000; i++) {
		uint64_t random = lpi_load_mix(i);
		assert_int_equal(lpi_load_sizes_pick(&sizes, random),
				 lpi_load_sizes_pick(&sizes, random));
	}
}

/* --- Places ----------------------------------------------------------------------------------- */

static void test_in_order(void **state)
{
	(void)state;
	struct lpi_load_places places;
	struct lp_prng prng;
	lp_prng_init(&prng, 1);
	lpi_load_places_init(&places, LPI_LOAD_SEQUENTIAL, 1, 5);
	for (uint64_t i = 0; i < 12; i++)
		assert_int_equal(lpi_load_places_next(&places, &prng), i % 5);
}

/* The shares of the ranks of k^-theta among `cnt` places, largest first. */
static void check_zipf(double theta, uint64_t cnt)
{
	static uint32_t counts[1000];
	struct lpi_load_places places;
	struct lp_prng prng;
	double sum = 0;
	LP_ASSERT(cnt <= LP_ARRAY_SIZE(counts));
	memset(counts, 0, sizeof(counts));
	lp_prng_init(&prng, 3);
	lpi_load_places_init(&places, LPI_LOAD_ZIPF, theta, cnt);
	for (uint32_t i = 0; i < DRAWS; i++) {
		uint64_t place = lpi_load_places_next(&places, &prng);
		assert_true(place < cnt);
		counts[place]++;
	}
	for (uint64_t k = 1; k <= cnt; k++)
		sum += pow((double)k, -theta);
	for (uint64_t k = 1; k <= LP_MIN(cnt, UINT64_C(20)); k++) {
		double want = DRAWS * pow((double)k, -theta) / sum;
		double got = counts[(k - 1) * places.step % cnt];
		/* Five times what chance explains. */
		if (fabs(got - want) > 5 * sqrt(want) + 5)
			fail_msg("theta %g, %u places, rank %u: %g draws, not %g", theta,
				 (unsigned)cnt, (unsigned)k, got, want);
	}
}

static void test_zipf(void **state)
{
	(void)state;
	static const double thetas[] = {0.1, 0.5, 0.99, 1, 1.01, 1.5, 3};
	static const uint64_t cnts[] = {1, 2, 3, 100, 999, 1000};
	for (size_t i = 0; i < LP_ARRAY_SIZE(thetas); i++) {
		for (size_t k = 0; k < LP_ARRAY_SIZE(cnts); k++)
			check_zipf(thetas[i], cnts[k]);
	}
}

/* Each rank has a place of its own, also among very many. */
static void test_ranks_are_places(void **state)
{
	(void)state;
	static const uint64_t cnts[] = {1, 2, 6, 64, 30030, 65536};
	static bool is_taken[65536];
	for (size_t i = 0; i < LP_ARRAY_SIZE(cnts); i++) {
		struct lpi_load_places places;
		lpi_load_places_init(&places, LPI_LOAD_ZIPF, 1, cnts[i]);
		memset(is_taken, 0, sizeof(is_taken));
		for (uint64_t rank = 0; rank < cnts[i]; rank++) {
			uint64_t place = rank * places.step % cnts[i];
			assert_false(is_taken[place]);
			is_taken[place] = true;
		}
	}
	struct lpi_load_places huge;
	struct lp_prng prng;
	lp_prng_init(&prng, 1);
	lpi_load_places_init(&huge, LPI_LOAD_ZIPF, 0.99, UINT64_C(1) << 59);
	assert_true(huge.step <= UINT64_MAX / huge.cnt);
	for (uint32_t i = 0; i < 1000; i++)
		assert_true(lpi_load_places_next(&huge, &prng) < huge.cnt);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_sizes_are_read),
		cmocka_unit_test(test_sizes_are_drawn),
		cmocka_unit_test(test_sizes_are_the_same_again),
		cmocka_unit_test(test_in_order),
		cmocka_unit_test(test_zipf),
		cmocka_unit_test(test_ranks_are_places),
	};
	return lp_test_main(tests, "cli/bench/load_dist");
}
