/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/bench/load_pace.h"

#include <math.h>

#include "base/assert.h"
#include "base/clock.h"

void lpi_load_pace_init(struct lpi_load_pace *pace, double rate, bool is_poisson, uint64_t seed)
{
	LP_ASSERT(rate > 0);
	*pace = (struct lpi_load_pace){.interval_ns = (double)LP_NS_PER_S / rate,
				       .is_poisson = is_poisson};
	lp_prng_init(&pace->prng, seed);
}

void lpi_load_pace_start(struct lpi_load_pace *pace, uint64_t begin_ns)
{
	pace->begin_ns = begin_ns;
	pace->taken = 0;
	pace->due_ns = 0;
	pace->late_cnt = 0;
	pace->late_max_ns = 0;
}

uint64_t lpi_load_pace_next_ns(const struct lpi_load_pace *pace)
{
	return pace->begin_ns + (uint64_t)pace->due_ns;
}

static void advance(struct lpi_load_pace *pace)
{
	pace->taken++;
	/* Evenly: a product, for a sum of many rounded intervals would drift. */
	if (pace->is_poisson)
		pace->due_ns -= log1p(-lp_prng_unit(&pace->prng)) * pace->interval_ns;
	else
		pace->due_ns = (double)pace->taken * pace->interval_ns;
}

uint64_t lpi_load_pace_take(struct lpi_load_pace *pace, uint64_t now_ns)
{
	uint64_t due_ns = lpi_load_pace_next_ns(pace);
	LP_ASSERT(due_ns <= now_ns);
	pace->late_cnt += now_ns - due_ns > LPI_LOAD_LATE_NS;
	pace->late_max_ns = LP_MAX(pace->late_max_ns, now_ns - due_ns);
	advance(pace);
	return due_ns;
}

uint64_t lpi_load_pace_drop(struct lpi_load_pace *pace, uint64_t until_ns)
{
	uint64_t cnt = 0;
	while (lpi_load_pace_next_ns(pace) < until_ns) {
		advance(pace);
		cnt++;
	}
	return cnt;
}
