/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: sequences never change, draws stay in range and reach both ends, forks are independent.
 * Method: golden values (computed once from the published algorithm), exhaustive small ranges. */
#include "base/testing/test.h"

#include "base/prng.h"

static void test_sequence_is_frozen(void **state)
{
	(void)state;
	struct lp_prng prng = {.state = {1, 2, 3, 4}};
	/* The first outputs of the authors' reference code for this state. */
	assert_int_equal(lp_prng_u64(&prng), 11520);
	assert_int_equal(lp_prng_u64(&prng), 0);
	assert_int_equal(lp_prng_u64(&prng), 1509978240);
	lp_prng_init(&prng, 0);
	/* SplitMix64 of seed 0 starts with this value. */
	assert_true(prng.state[0] == UINT64_C(0xe220a8397b1dcdaf));
}

static void test_ranges(void **state)
{
	(void)state;
	struct lp_prng prng;
	lp_prng_init(&prng, 42);
	unsigned seen[7] = {0};
	for (int n = 0; n < 7000; n++)
		seen[lp_prng_between(&prng, 3, 9) - 3]++;
	for (size_t i = 0; i < LP_ARRAY_SIZE(seen); i++)
		assert_in_range(seen[i], 850, 1150);
	for (int n = 0; n < 1000; n++) {
		assert_int_equal(lp_prng_below(&prng, 1), 0);
		assert_false(lp_prng_chance(&prng, 0, 3));
		assert_true(lp_prng_chance(&prng, 3, 3));
		double unit = lp_prng_unit(&prng);
		assert_true(unit >= 0.0 && unit < 1.0);
	}
	/* The whole range does not overflow. */
	(void)lp_prng_between(&prng, 0, UINT64_MAX);
}

static void test_forks(void **state)
{
	(void)state;
	struct lp_prng prng;
	struct lp_prng a;
	struct lp_prng b;
	struct lp_prng again;
	lp_prng_init(&prng, 7);
	lp_prng_fork(&prng, 1, &a);
	lp_prng_fork(&prng, 2, &b);
	lp_prng_fork(&prng, 1, &again);
	uint64_t first = lp_prng_u64(&a);
	assert_true(first == lp_prng_u64(&again));
	assert_true(first != lp_prng_u64(&b));
}

static void test_fill(void **state)
{
	(void)state;
	unsigned char buf[16] = {0};
	struct lp_prng prng;
	lp_prng_init(&prng, 1);
	lp_prng_fill(&prng, buf, 13);
	assert_int_equal(buf[13] | buf[14] | buf[15], 0);
	int zeros = 0;
	for (int n = 0; n < 13; n++)
		zeros += buf[n] == 0;
	assert_true(zeros < 4);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_sequence_is_frozen),
		cmocka_unit_test(test_ranges),
		cmocka_unit_test(test_forks),
		cmocka_unit_test(test_fill),
	};
	return lp_test_main(tests, "base/prng");
}
