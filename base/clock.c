/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"

#include <time.h>

#include "base/assert.h"

static int64_t read_clock(clockid_t id)
{
	struct timespec ts;
	int rc = clock_gettime(id, &ts);
	LP_ASSERT(rc == 0); /* both ids exist on every Linux */
	return (int64_t)ts.tv_sec * (int64_t)LP_NS_PER_S + ts.tv_nsec;
}

static uint64_t system_mono_ns(const struct lp_clock *clock)
{
	(void)clock;
	return (uint64_t)read_clock(CLOCK_MONOTONIC);
}

static int64_t system_wall_ns(const struct lp_clock *clock)
{
	(void)clock;
	return read_clock(CLOCK_REALTIME);
}

const struct lp_clock *lp_clock_system(void)
{
	static const struct lp_clock system = {system_mono_ns, system_wall_ns};
	return &system;
}

static const struct lp_clock_sim *sim_of(const struct lp_clock *clock)
{
	return (const struct lp_clock_sim *)(const void *)clock; /* its first member */
}

static uint64_t sim_mono_ns(const struct lp_clock *clock)
{
	return sim_of(clock)->now_ns;
}

static int64_t sim_wall_ns(const struct lp_clock *clock)
{
	return sim_of(clock)->wall_base_ns + (int64_t)sim_of(clock)->now_ns;
}

void lp_clock_sim_init(struct lp_clock_sim *sim, uint64_t now_ns, int64_t wall_base_ns)
{
	*sim = (struct lp_clock_sim){.clock = {sim_mono_ns, sim_wall_ns},
				     .now_ns = now_ns,
				     .wall_base_ns = wall_base_ns};
}

void lp_clock_sim_advance_to(struct lp_clock_sim *sim, uint64_t to_ns)
{
	LP_ASSERT(to_ns >= sim->now_ns);
	sim->now_ns = to_ns;
}
