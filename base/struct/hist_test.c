/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: buckets tile the numbers without gap, percentiles keep their error bound and never
 * understate, count, sum, min and max are exact, intervals add up.
 * Method: edges of all buckets; percentiles against the sorted list of the same values. */
#include "base/testing/test.h"

#include "base/prng.h"
#include "base/struct/hist.h"

static struct lp_hist hist;
static struct lp_hist other;

static int setup(void **state)
{
	(void)state;
	lp_hist_reset(&hist);
	lp_hist_reset(&other);
	return 0;
}

static void test_empty(void **state)
{
	(void)state;
	struct lp_hist_bucket bucket;
	size_t pos = 0;
	assert_int_equal(lp_hist_percentile(&hist, LP_HIST_P50), 0);
	assert_int_equal(lp_hist_percentile(&hist, 0), 0);
	assert_int_equal(lp_hist_percentile(&hist, LP_HIST_P100), 0);
	assert_true(lp_hist_mean(&hist) == 0.0);
	assert_false(lp_hist_next(&hist, &pos, &bucket));
	lp_hist_merge(&hist, &other);
	lp_hist_subtract(&hist, &other);
	assert_true(hist.min == UINT64_MAX);
	assert_int_equal(hist.max, 0);
}

static void test_buckets_tile_the_numbers(void **state)
{
	(void)state;
	/* One value in each bucket, found as the first one beyond the last bucket's end. */
	uint64_t low = 0;
	for (size_t idx = 0; idx < LP_HIST_BUCKET_CNT; idx++) {
		assert_int_equal(lp_hist_index(low), idx);
		lp_hist_reset(&other);
		lp_hist_record(&other, low);
		struct lp_hist_bucket bucket;
		size_t pos = 0;
		assert_true(lp_hist_next(&other, &pos, &bucket));
		assert_true(bucket.low == low);
		assert_int_equal(bucket.count, 1);
		assert_int_equal(lp_hist_index(bucket.high), idx);
		if (idx + 1 < LP_HIST_BUCKET_CNT)
			assert_true((bucket.high - low) * 32 <= low);
		assert_false(lp_hist_next(&other, &pos, &bucket));
		low = bucket.high + 1;
	}
	assert_int_equal(low, 0); /* the last one ends at UINT64_MAX */
	assert_int_equal(lp_hist_index(LP_HIST_VALUE_MAX), LP_HIST_BUCKET_CNT - 1);
	assert_int_equal(lp_hist_index(LP_HIST_VALUE_MAX + 1), LP_HIST_BUCKET_CNT - 1);
	assert_int_equal(lp_hist_index(UINT64_MAX), LP_HIST_BUCKET_CNT - 1);
}

static void test_small_values_are_exact(void **state)
{
	(void)state;
	for (uint64_t v = 1; v <= 10; v++)
		lp_hist_record(&hist, v);
	assert_int_equal(lp_hist_percentile(&hist, 0), 1);
	assert_int_equal(lp_hist_percentile(&hist, 1), 1);
	assert_int_equal(lp_hist_percentile(&hist, 100000), 1);
	assert_int_equal(lp_hist_percentile(&hist, 100001), 2);
	assert_int_equal(lp_hist_percentile(&hist, LP_HIST_P50), 5);
	assert_int_equal(lp_hist_percentile(&hist, 900000), 9);
	assert_int_equal(lp_hist_percentile(&hist, 900001), 10);
	assert_int_equal(lp_hist_percentile(&hist, LP_HIST_P100), 10);
	assert_true(lp_hist_mean(&hist) == 5.5);
}

static int compare(const void *a, const void *b)
{
	const uint64_t *x = a;
	const uint64_t *y = b;
	return (*x > *y) - (*x < *y);
}

static void test_percentiles_against_a_sorted_list(void **state)
{
	(void)state;
	static uint64_t values[10000];
	static const uint32_t ppms[] = {1,           1000,         LP_HIST_P50,  LP_HIST_P95,
					LP_HIST_P99, LP_HIST_P999, LP_HIST_P9999};
	struct lp_prng prng;
	lp_prng_init(&prng, 1);
	uint64_t sum = 0;
	for (size_t i = 0; i < LP_ARRAY_SIZE(values); i++) {
		values[i] = lp_prng_u64(&prng) >> lp_prng_between(&prng, 24, 60);
		sum += values[i];
		lp_hist_record(&hist, values[i]);
	}
	qsort(values, LP_ARRAY_SIZE(values), sizeof(values[0]), compare);
	for (size_t i = 0; i < LP_ARRAY_SIZE(ppms); i++) {
		uint64_t rank = ((uint64_t)ppms[i] * LP_ARRAY_SIZE(values) + 999999) / 1000000;
		uint64_t want = values[rank - 1];
		uint64_t got = lp_hist_percentile(&hist, ppms[i]);
		assert_in_range(got, want, want + want / 32);
	}
	assert_true(hist.min == values[0]);
	assert_true(hist.max == values[LP_ARRAY_SIZE(values) - 1]);
	assert_true(lp_hist_percentile(&hist, LP_HIST_P100) == hist.max);
	assert_true(lp_hist_percentile(&hist, 0) == hist.min);
	assert_int_equal(hist.count, LP_ARRAY_SIZE(values));
	assert_true(hist.sum == sum);
	assert_true(lp_hist_mean(&hist) == (double)sum / (double)hist.count);
}

static void test_beyond_the_limit(void **state)
{
	(void)state;
	lp_hist_record(&hist, 5);
	lp_hist_record(&hist, LP_HIST_VALUE_MAX + 12345);
	assert_true(hist.max == LP_HIST_VALUE_MAX + 12345);
	assert_true(lp_hist_percentile(&hist, LP_HIST_P99) == LP_HIST_VALUE_MAX + 12345);
	assert_int_equal(lp_hist_percentile(&hist, LP_HIST_P50), 5);
	assert_true(hist.sum == LP_HIST_VALUE_MAX + 12350);
}

static void test_min_and_max_are_exact(void **state)
{
	(void)state;
	lp_hist_record(&hist, 100001);
	lp_hist_record(&hist, 100003);
	lp_hist_record(&other, 70007);
	lp_hist_record(&other, 300001);
	assert_int_equal(lp_hist_percentile(&hist, 0), 100001);
	assert_int_equal(lp_hist_percentile(&hist, LP_HIST_P50), 100003); /* one bucket */
	lp_hist_merge(&hist, &other);
	assert_int_equal(lp_hist_percentile(&hist, 0), 70007);
	assert_int_equal(lp_hist_percentile(&hist, LP_HIST_P100), 300001);
	assert_int_equal(hist.min, 70007);
	assert_int_equal(hist.max, 300001);
}

static void test_merge_and_interval(void **state)
{
	(void)state;
	static struct lp_hist start;
	struct lp_prng prng;
	lp_prng_init(&prng, 2);
	for (int n = 0; n < 1000; n++)
		lp_hist_record(&hist, lp_prng_below(&prng, 1000000));
	start = hist;
	for (int n = 0; n < 500; n++)
		lp_hist_record(&other, lp_prng_between(&prng, 5000, 6000));
	lp_hist_merge(&hist, &other);
	assert_int_equal(hist.count, 1500);
	assert_true(hist.sum == start.sum + other.sum);
	assert_true(hist.min == start.min && hist.max == start.max);

	lp_hist_subtract(&hist, &start);
	assert_memory_equal(hist.buckets, other.buckets, sizeof(hist.buckets));
	assert_int_equal(hist.count, 500);
	assert_true(hist.sum == other.sum);
	/* Bounds of buckets now: no further from the truth than a bucket is wide. */
	assert_in_range(hist.min, other.min - other.min / 32, other.min);
	assert_in_range(hist.max, other.max, other.max + other.max / 32);
	assert_in_range(lp_hist_percentile(&hist, LP_HIST_P50), 5000, 6000);

	struct lp_hist_bucket bucket;
	uint64_t count = 0;
	for (size_t pos = 0; lp_hist_next(&hist, &pos, &bucket); count += bucket.count)
		assert_true(bucket.count > 0 && bucket.low <= bucket.high);
	assert_int_equal(count, 500);

	lp_hist_subtract(&hist, &other);
	assert_int_equal(hist.count, 0);
	assert_true(hist.min == UINT64_MAX && hist.max == 0);
}

static void test_rank_of_large_counts(void **state)
{
	(void)state;
	/* Merging doubles: 2^60 values, of which half are 1 and half are 2. */
	lp_hist_record(&hist, 1);
	lp_hist_record(&hist, 2);
	for (int n = 1; n < 60; n++) {
		other = hist;
		lp_hist_merge(&hist, &other);
	}
	assert_true(hist.count == UINT64_C(1) << 60);
	assert_int_equal(lp_hist_percentile(&hist, LP_HIST_P50), 1);
	assert_int_equal(lp_hist_percentile(&hist, LP_HIST_P50 + 1), 2);
	assert_int_equal(lp_hist_percentile(&hist, LP_HIST_P9999), 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_empty, setup),
		cmocka_unit_test_setup(test_buckets_tile_the_numbers, setup),
		cmocka_unit_test_setup(test_small_values_are_exact, setup),
		cmocka_unit_test_setup(test_percentiles_against_a_sorted_list, setup),
		cmocka_unit_test_setup(test_beyond_the_limit, setup),
		cmocka_unit_test_setup(test_min_and_max_are_exact, setup),
		cmocka_unit_test_setup(test_merge_and_interval, setup),
		cmocka_unit_test_setup(test_rank_of_large_counts, setup),
	};
	return lp_test_main(tests, "base/struct/hist");
}
