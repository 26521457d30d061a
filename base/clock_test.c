/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: system time runs forward, simulated time only when told.
 * Method: through the interface a module would use. */
#include "base/testing/test.h"

#include "base/clock.h"

static void test_system(void **state)
{
	(void)state;
	const struct lp_clock *clock = lp_clock_system();
	uint64_t a = lp_clock_mono_ns(clock);
	uint64_t b = lp_clock_mono_ns(clock);
	assert_true(b >= a);
	/* Later than 2020-09-13, the day of 1.6 billion seconds. */
	assert_true(lp_clock_wall_ns(clock) > INT64_C(1600000000) * (int64_t)LP_NS_PER_S);
}

static void test_sim(void **state)
{
	(void)state;
	struct lp_clock_sim sim;
	lp_clock_sim_init(&sim, 5, 1000);
	assert_int_equal(lp_clock_mono_ns(&sim.clock), 5);
	assert_int_equal(lp_clock_wall_ns(&sim.clock), 1005);
	lp_clock_sim_advance_to(&sim, 5);
	lp_clock_sim_advance_to(&sim, 25);
	assert_int_equal(lp_clock_mono_ns(&sim.clock), 25);
	assert_int_equal(lp_clock_wall_ns(&sim.clock), 1025);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_system),
		cmocka_unit_test(test_sim),
	};
	return lp_test_main(tests, "base/clock");
}
