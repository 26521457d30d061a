/* SPDX-License-Identifier: Apache-2.0 */
/* Longer runs of a seeded test (tests/crash).
 *
 * LAPIS_TEST_FACTOR multiplies the rounds, and LAPIS_TEST_SEED shifts the seeds, so that runs add
 * up. Only *_test.c files include this.
 */
#ifndef LP_BASE_TESTING_TEST_LONG_H
#define LP_BASE_TESTING_TEST_LONG_H

#include "base/testing/test.h"

static inline uint64_t lp_test_env(const char *name, uint64_t otherwise)
{
	/* No test changes its environment. NOLINTNEXTLINE(concurrency-mt-unsafe) */
	const char *value = getenv(name);
	return value != NULL && value[0] != '\0' ? strtoull(value, NULL, 10) : otherwise;
}

/* At least 1, which is the usual test. */
static inline uint64_t lp_test_factor(void)
{
	uint64_t factor = lp_test_env("LAPIS_TEST_FACTOR", 1);
	return factor > 0 ? factor : 1;
}

/* The shift of each seed: 0 in the usual test. */
static inline uint64_t lp_test_seed_shift(void)
{
	return lp_test_env("LAPIS_TEST_SEED", 0);
}

/* Prints the number of crash states; tests/crash adds these up. */
static inline void lp_test_tell_crash_states(uint64_t cnt)
{
	print_message("%llu crash states judged\n", (unsigned long long)cnt);
}

#endif
