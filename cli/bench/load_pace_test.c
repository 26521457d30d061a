/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: an open loop asks at its rate whatever happens, and what it could not ask in time is
 * counted from when it was due. Method: a clock that the test moves; one that stands still for a
 * second. */
#include "base/testing/test.h"

#include <math.h>

#include "base/clock.h"
#include "cli/bench/load_pace.h"

#define BEGIN_NS UINT64_C(123456789)

static void test_even(void **state)
{
	(void)state;
	struct lpi_load_pace pace;
	lpi_load_pace_init(&pace, 3, false, 1);
	lpi_load_pace_start(&pace, BEGIN_NS);
	/* A third of a second is no whole number: after a million of them not one is lost. */
	for (uint64_t i = 0; i < 1000000; i++) {
		uint64_t due_ns = lpi_load_pace_next_ns(&pace);
		assert_int_equal(lpi_load_pace_take(&pace, due_ns), due_ns);
	}
	uint64_t now_ns = lpi_load_pace_next_ns(&pace) - BEGIN_NS;
	assert_true(now_ns / LP_NS_PER_S == 333333);
	assert_int_equal(pace.late_cnt, 0);
	assert_int_equal(pace.late_max_ns, 0);
}

static void test_at_random(void **state)
{
	(void)state;
	struct lpi_load_pace pace;
	uint32_t counts[3] = {0};
	uint64_t before_ns = 0;
	lpi_load_pace_init(&pace, 1000, true, 1);
	lpi_load_pace_start(&pace, 0);
	(void)lpi_load_pace_take(&pace, 0);
	for (uint32_t i = 0; i < 100000; i++) {
		uint64_t due_ns = lpi_load_pace_next_ns(&pace);
		assert_true(due_ns >= before_ns);
		counts[LP_MIN((due_ns - before_ns) / LP_NS_PER_MS, UINT64_C(2))]++;
		before_ns = lpi_load_pace_take(&pace, due_ns);
	}
	assert_true(fabs((double)before_ns / (double)LP_NS_PER_S - 100) < 2);
	/* Intervals are exponential: 1 - 1/e are shorter than the mean one. */
	assert_true(fabs(counts[0] / 1e5 - 0.632) < 0.01);
	assert_true(fabs(counts[1] / 1e5 - 0.2325) < 0.01);
}

/* Who is away for a second has a thousand requests to begin, each of which has waited. */
static void test_nothing_is_omitted(void **state)
{
	(void)state;
	struct lpi_load_pace pace;
	uint64_t waited_ns = 0;
	uint64_t cnt = 0;
	lpi_load_pace_init(&pace, 1000, false, 1);
	lpi_load_pace_start(&pace, BEGIN_NS);
	uint64_t now_ns = BEGIN_NS + LP_NS_PER_S - 1;
	while (lpi_load_pace_next_ns(&pace) <= now_ns) {
		waited_ns += now_ns - lpi_load_pace_take(&pace, now_ns);
		cnt++;
	}
	assert_int_equal(cnt, 1000);
	assert_true(fabs((double)waited_ns / 1e9 - 500.5) < 0.1);
	assert_int_equal(pace.late_cnt, 999);
	assert_int_equal(pace.late_max_ns, LP_NS_PER_S - 1);
}

static void test_what_is_never_begun(void **state)
{
	(void)state;
	struct lpi_load_pace pace;
	lpi_load_pace_init(&pace, 10, false, 1);
	lpi_load_pace_start(&pace, BEGIN_NS);
	(void)lpi_load_pace_take(&pace, BEGIN_NS);
	assert_int_equal(lpi_load_pace_drop(&pace, BEGIN_NS + LP_NS_PER_S), 9);
	assert_int_equal(lpi_load_pace_drop(&pace, BEGIN_NS + LP_NS_PER_S), 0);
	assert_int_equal(pace.late_cnt, 0);
	/* Begun again it forgets. */
	lpi_load_pace_start(&pace, 5);
	assert_int_equal(lpi_load_pace_next_ns(&pace), 5);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_even),
		cmocka_unit_test(test_at_random),
		cmocka_unit_test(test_nothing_is_omitted),
		cmocka_unit_test(test_what_is_never_begun),
	};
	return lp_test_main(tests, "cli/bench/load_pace");
}
