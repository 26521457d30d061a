/* SPDX-License-Identifier: Apache-2.0 */
/* When the operations of an open loop are due: at a fixed rate, evenly or as a Poisson process,
 * whatever the answers do. What a latency counts from is the time that an operation was due, not
 * the time that it could be sent at last; else a server that stops for a second would be asked
 * nothing in that second, and the second would be in one latency instead of in thousands.
 *
 * Threads: belongs to one. Blocking, allocation, errors: none.
 */
#ifndef LP_CLI_BENCH_LOAD_PACE_H
#define LP_CLI_BENCH_LOAD_PACE_H

#include "base/prng.h"

#define LPI_LOAD_LATE_NS UINT64_C(1000000) /* sent so much later than due: behind schedule */

struct lpi_load_pace {
	uint64_t begin_ns;
	double interval_ns;
	bool is_poisson;
	struct lp_prng prng;
	uint64_t taken;    /* how many were due and begun */
	double due_ns;     /* of the next, from the beginning */
	uint64_t late_cnt; /* of those begun */
	uint64_t late_max_ns;
};

/* rate: of one second, above 0. The first is due at begin_ns. */
void lpi_load_pace_init(struct lpi_load_pace *pace, double rate, bool is_poisson, uint64_t seed);
void lpi_load_pace_start(struct lpi_load_pace *pace, uint64_t begin_ns);
/* When the next one is due. */
uint64_t lpi_load_pace_next_ns(const struct lpi_load_pace *pace);
/* The next one begins now, at or after the time it was due, which is returned. */
uint64_t lpi_load_pace_take(struct lpi_load_pace *pace, uint64_t now_ns);
/* How many were due before `until_ns`, and have not been taken. Takes them. */
uint64_t lpi_load_pace_drop(struct lpi_load_pace *pace, uint64_t until_ns);

#endif
