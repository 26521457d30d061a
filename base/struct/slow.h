/* SPDX-License-Identifier: Apache-2.0 */
/* The slowest requests of one thread in the last LP_SLOW_KEEP_NS, LP_SLOW_MAX at most.
 *
 * Threads: one.
 * Blocking, memory, errors: none.
 */
#ifndef LP_BASE_STRUCT_SLOW_H
#define LP_BASE_STRUCT_SLOW_H

#include "base/clock.h"

#define LP_SLOW_MAX        64u
#define LP_SLOW_STATES_MAX 16u
#define LP_SLOW_KEEP_NS    (600 * LP_NS_PER_S)

/* One request that took long. */
struct lp_slow_request {
	uint64_t began_ns; /* of the day */
	uint64_t took_ns;  /* 0: there is none */
	/* In each state that a request of its kind goes through. */
	uint64_t state_ns[LP_SLOW_STATES_MAX];
	uint16_t opcode;
	bool is_mounts; /* what opcode and states mean */
	int32_t status;
	uint64_t bytes;
	char object[96]; /* the end of its path, or its number */
};

/* Zeroed: nothing was slow. */
struct lp_slow {
	uint64_t min_ns; /* what did not take longer than this is none of them */
	struct lp_slow_request requests[LP_SLOW_MAX];
};

/* Before anything else of it is looked at. */
static inline bool lp_slow_is(const struct lp_slow *slow, uint64_t took_ns)
{
	return took_ns > slow->min_ns;
}

/* In the place of the fastest of them. */
void lp_slow_add(struct lp_slow *slow, const struct lp_slow_request *request);
/* Those that began too long ago go. */
void lp_slow_forget(struct lp_slow *slow, uint64_t wall_ns);
/* The slowest first; returns how many. */
uint32_t lp_slow_read(const struct lp_slow *slow, struct lp_slow_request *ret, uint32_t max);

#endif
