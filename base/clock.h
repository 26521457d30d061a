/* SPDX-License-Identifier: Apache-2.0 */
/* Time behind an interface, so that a simulation can own it.
 *
 * Monotonic time measures and schedules; wall time is only shown and stored. A module takes a
 * struct lp_clock * (or a timestamp as an argument) and never asks the kernel itself.
 *
 * Threads: lp_clock_system() may be read by any thread; a struct lp_clock_sim belongs to one.
 * Blocking, allocation, errors: none.
 */
#ifndef LP_BASE_CLOCK_H
#define LP_BASE_CLOCK_H

#include "base/compiler.h"

#define LP_NS_PER_US UINT64_C(1000)
#define LP_NS_PER_MS UINT64_C(1000000)
#define LP_NS_PER_S  UINT64_C(1000000000)

struct lp_clock {
	uint64_t (*mono_ns)(const struct lp_clock *clock);
	int64_t (*wall_ns)(const struct lp_clock *clock); /* since 1970-01-01 UTC */
};

/* The kernel's clocks. Static: never freed. */
const struct lp_clock *lp_clock_system(void);

static inline uint64_t lp_clock_mono_ns(const struct lp_clock *clock)
{
	return clock->mono_ns(clock);
}

static inline int64_t lp_clock_wall_ns(const struct lp_clock *clock)
{
	return clock->wall_ns(clock);
}

/* Simulated time: stands still until it is moved. */
struct lp_clock_sim {
	struct lp_clock clock; /* pass on &sim.clock */
	uint64_t now_ns;
	int64_t wall_base_ns; /* wall time at now_ns == 0 */
};

void lp_clock_sim_init(struct lp_clock_sim *sim, uint64_t now_ns, int64_t wall_base_ns);
/* Time never runs backwards: asserts to_ns >= now. */
void lp_clock_sim_advance_to(struct lp_clock_sim *sim, uint64_t to_ns);

#endif
