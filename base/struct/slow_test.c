/* SPDX-License-Identifier: Apache-2.0 */
/* The slowest requests are kept, in their order, and are removed when they are old. */
#include "base/struct/slow.h"

#include <stdlib.h>

#include "base/prng.h"
#include "base/testing/test.h"

#define REQUESTS 1000u

static int largest_first(const void *a, const void *b)
{
	uint64_t one = *(const uint64_t *)a;
	uint64_t other = *(const uint64_t *)b;
	return one < other ? 1 : -(one > other);
}

/* Only requests that are slow enough are added, and none is missing. */
static void test_slowest(void **state)
{
	static uint64_t times[REQUESTS];
	struct lp_slow_request found[LP_SLOW_MAX];
	struct lp_slow slow = {.min_ns = 0};
	struct lp_prng prng;
	(void)state;
	lp_prng_init(&prng, 1);
	assert_int_equal(lp_slow_read(&slow, found, LP_SLOW_MAX), 0);
	for (uint32_t i = 0; i < REQUESTS; i++) {
		times[i] = 1 + lp_prng_below(&prng, 100000);
		const struct lp_slow_request request = {.began_ns = i, .took_ns = times[i]};
		if (lp_slow_is(&slow, times[i]))
			lp_slow_add(&slow, &request);
		assert_int_equal(lp_slow_read(&slow, found, LP_SLOW_MAX),
				 LP_MIN(i + 1, LP_SLOW_MAX));
	}
	qsort(times, REQUESTS, sizeof(times[0]), largest_first);
	for (uint32_t i = 0; i < LP_SLOW_MAX; i++)
		assert_int_equal(found[i].took_ns, times[i]);
	assert_int_equal(lp_slow_read(&slow, found, 3), 3);
	assert_int_equal(found[2].took_ns, times[2]);
}

/* Forgotten requests make room, also for one that is faster than all others. */
static void test_forget(void **state)
{
	struct lp_slow_request found[LP_SLOW_MAX];
	struct lp_slow slow = {.min_ns = 0};
	(void)state;
	for (uint32_t i = 0; i < LP_SLOW_MAX; i++) {
		const struct lp_slow_request request = {.began_ns = i, .took_ns = 100 + i};
		lp_slow_add(&slow, &request);
	}
	assert_false(lp_slow_is(&slow, 100));
	lp_slow_forget(&slow, LP_SLOW_KEEP_NS);
	assert_int_equal(lp_slow_read(&slow, found, LP_SLOW_MAX), LP_SLOW_MAX);
	lp_slow_forget(&slow, LP_SLOW_KEEP_NS + 10);
	assert_int_equal(lp_slow_read(&slow, found, LP_SLOW_MAX), LP_SLOW_MAX - 10);
	assert_true(lp_slow_is(&slow, 1));
	const struct lp_slow_request request = {.began_ns = 1000, .took_ns = 1};
	lp_slow_add(&slow, &request);
	assert_int_equal(lp_slow_read(&slow, found, LP_SLOW_MAX), LP_SLOW_MAX - 9);
	assert_int_equal(found[LP_SLOW_MAX - 10].took_ns, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_slowest),
		cmocka_unit_test(test_forget),
	};
	return lp_test_main(tests, "base/struct/slow");
}
