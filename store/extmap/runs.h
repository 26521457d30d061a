/* SPDX-License-Identifier: Apache-2.0 */
/* Runs of leaf numbers: which leaves of an extent map are known to exist.
 *
 * Threads: one.
 * Blocking: none.
 * Memory: none is allocated. The owner has made room for one more run before it removes.
 * Errors: none.
 * Limits: LPI_RUNS_MAX runs. A list that outgrows it forgets its shortest run. It promises that
 * what it names exists, not that it names all.
 *
 * The runs stand in the root, so that a leaf that was lost is noticed and never read as zeros.
 */
#ifndef LP_STORE_EXTMAP_RUNS_H
#define LP_STORE_EXTMAP_RUNS_H

#include "base/assert.h"

/* Of a root. In between there is room for one more. */
#define LPI_RUNS_MAX 64u

struct lpi_run {
	uint32_t first;
	uint32_t cnt; /* > 0 */
};

struct lpi_runs {
	struct lpi_run one;    /* the memory while max is 1: a dense file needs no more */
	struct lpi_run *items; /* NULL while max is 1, else the owner's, of max */
	uint32_t cnt;          /* sorted, with a gap between each two */
	uint32_t max;          /* >= 1 */
	uint64_t sum;          /* leaves in all runs */
};

static inline void lpi_runs_init(struct lpi_runs *runs)
{
	*runs = (struct lpi_runs){.max = 1};
}

static inline struct lpi_run *lpi_runs_items(struct lpi_runs *runs)
{
	return runs->max == 1 ? &runs->one : runs->items;
}

static inline const struct lpi_run *lpi_runs_list(const struct lpi_runs *runs)
{
	return runs->max == 1 ? &runs->one : runs->items;
}

static inline uint32_t lpi_run_end(struct lpi_run run)
{
	return run.first + run.cnt;
}

/* The first run that ends beyond idx, or NULL. */
const struct lpi_run *lpi_runs_next(const struct lpi_runs *runs, uint32_t idx);
bool lpi_runs_has(const struct lpi_runs *runs, uint32_t idx);

/* True when it was not in a run and now is. Without room for one more run the list may go on
 * without it. */
bool lpi_runs_add(struct lpi_runs *runs, uint32_t idx);
/* True when it was in a run. */
bool lpi_runs_remove(struct lpi_runs *runs, uint32_t idx);

/* Forgets the shortest run but that of `keep`, when there are more than LPI_RUNS_MAX, and returns
 * it; else one of cnt 0. */
struct lpi_run lpi_runs_drop(struct lpi_runs *runs, uint32_t keep);

/* Sorted, with gaps, none empty, none beyond limit, the sum right. */
bool lpi_runs_are_sound(const struct lpi_runs *runs, uint64_t limit);

#endif
