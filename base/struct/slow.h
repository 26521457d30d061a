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

/* A slow request. */
struct lp_slow_request {
	uint64_t began_ns; /* time of day */
	uint64_t took_ns;  /* 0: the entry is empty */
	/* Time in each state of its kind of request. */
	uint64_t state_ns[LP_SLOW_STATES_MAX];
	uint16_t opcode;
	bool is_mounts; /* opcode and states are the mount's */
	int32_t status;
	uint64_t bytes;
	char object[96]; /* the end of its path, or its number */
};

/* Zeroed: no slow requests. */
struct lp_slow {
	uint64_t min_ns; /* a request must take longer than this to be added */
	struct lp_slow_request requests[LP_SLOW_MAX];
};

/* Called first, before the request's other data is read. */
static inline bool lp_slow_is(const struct lp_slow *slow, uint64_t took_ns)
{
	return took_ns > slow->min_ns;
}

/* Replaces the fastest entry. */
void lp_slow_add(struct lp_slow *slow, const struct lp_slow_request *request);
/* Removes entries that began too long ago. */
void lp_slow_forget(struct lp_slow *slow, uint64_t wall_ns);
/* The slowest first. Returns their number. */
uint32_t lp_slow_read(const struct lp_slow *slow, struct lp_slow_request *ret, uint32_t max);

#endif
