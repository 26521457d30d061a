/* SPDX-License-Identifier: Apache-2.0 */
/* Nearly every change shortens or lengthens a run without changing its order in either tree; then
 * no tree is touched. Only a change of order by length, a new run, or the end of one, is work. */
#include "store/space/free_runs.h"

#include <errno.h>
#include <stdlib.h>

#define SLAB_RUNS 63u
/* Runs that are long enough but lie askew to the unit: so many are tried before one is taken that
 * is so long that it must fit. */
#define ASKEW_PROBES_MAX 16u

struct lpi_freeruns_slab {
	struct lpi_freeruns_slab *next;
	uint64_t unused[7]; /* so that a run does not straddle two cache lines */
	struct lpi_freerun runs[SLAB_RUNS];
};

_Static_assert(sizeof(struct lpi_freeruns_slab) == LPI_FREERUNS_SLAB_BYTES, "a slab is a page");

void lpi_freeruns_init(struct lpi_freeruns *runs, uint64_t memory_max_bytes)
{
	uint64_t slab_cnt_max = memory_max_bytes / LPI_FREERUNS_SLAB_BYTES;
	*runs = (struct lpi_freeruns){0};
	runs->slab_cnt_max = memory_max_bytes == 0 ? UINT64_MAX : LP_MAX(slab_cnt_max, 1);
}

void lpi_freeruns_fini(struct lpi_freeruns *runs)
{
	while (runs->slabs != NULL) {
		struct lpi_freeruns_slab *slab = runs->slabs;
		runs->slabs = slab->next;
		free(slab);
	}
}

static void node_put(struct lpi_freeruns *runs, struct lpi_freerun *run)
{
	run->cnt = 0;
	run->by_place.child[0] = runs->spare == NULL ? NULL : &runs->spare->by_place;
	runs->spare = run;
}

int lpi_freeruns_reserve(struct lpi_freeruns *runs)
{
	if (LP_LIKELY(runs->spare != NULL))
		return 0;
	if (runs->slab_cnt >= runs->slab_cnt_max)
		return -ENOMEM;
	struct lpi_freeruns_slab *slab = aligned_alloc(64, sizeof(*slab));
	if (slab == NULL)
		return -ENOMEM;
	slab->next = runs->slabs;
	runs->slabs = slab;
	runs->slab_cnt++;
	for (unsigned i = SLAB_RUNS; i > 0; i--)
		node_put(runs, &slab->runs[i - 1]);
	return 0;
}

static int node_get(struct lpi_freeruns *runs, struct lpi_freerun **ret_run)
{
	int rc = lpi_freeruns_reserve(runs);
	if (rc != 0)
		return rc;
	struct lpi_freerun *run = runs->spare;
	runs->spare = lpi_runs_by_place_at(run->by_place.child[0]);
	*run = (struct lpi_freerun){0};
	*ret_run = run;
	return 0;
}

static void link_run(struct lpi_freeruns *runs, struct lpi_freerun *run, struct lp_extent extent)
{
	LP_ASSERT(extent.cnt > 0);
	run->block = extent.block;
	run->cnt = extent.cnt;
	lpi_runs_by_place_insert(&runs->by_place, run);
	lpi_runs_by_length_insert(&runs->by_length, run);
	runs->run_cnt++;
}

static void drop_run(struct lpi_freeruns *runs, struct lpi_freerun *run)
{
	lpi_runs_by_place_remove(&runs->by_place, run);
	lpi_runs_by_length_remove(&runs->by_length, run);
	runs->run_cnt--;
	node_put(runs, run);
}

/* The caller knows that the run keeps its place among the others. */
static void resize(struct lpi_freeruns *runs, struct lpi_freerun *run, struct lp_extent extent)
{
	LP_ASSERT(extent.cnt > 0);
	struct lpi_freerun wanted = {.block = extent.block, .cnt = extent.cnt};
	const struct lpi_freerun *shorter = lpi_runs_by_length_prev(run);
	const struct lpi_freerun *longer = lpi_runs_by_length_next(run);
	bool is_in_order = (shorter == NULL || lpi_freerun_is_shorter(shorter, &wanted)) &&
			   (longer == NULL || lpi_freerun_is_shorter(&wanted, longer));
	if (!is_in_order)
		lpi_runs_by_length_remove(&runs->by_length, run);
	run->block = extent.block;
	run->cnt = extent.cnt;
	if (!is_in_order)
		lpi_runs_by_length_insert(&runs->by_length, run);
}

static uint64_t end_of(const struct lpi_freerun *run)
{
	return run->block + run->cnt;
}

int lpi_freeruns_add(struct lpi_freeruns *runs, struct lp_extent extent)
{
	LP_ASSERT(extent.cnt > 0);
	uint64_t end = lp_extent_end(extent);
	struct lpi_freerun key = {.block = extent.block};
	struct lpi_freerun *after = lpi_runs_by_place_find_ge(&runs->by_place, &key);
	struct lpi_freerun *before = after == NULL ? lpi_runs_by_place_last(&runs->by_place)
						   : lpi_runs_by_place_prev(after);
	LP_ASSERT(before == NULL || end_of(before) <= extent.block); /* else it was free */
	LP_ASSERT(after == NULL || end <= after->block);
	bool joins_before = before != NULL && end_of(before) == extent.block;
	bool joins_after = after != NULL && after->block == end;
	if (joins_before && joins_after) {
		struct lp_extent whole = {.block = before->block,
					  .cnt = end_of(after) - before->block};
		drop_run(runs, after);
		resize(runs, before, whole);
	} else if (joins_before) {
		resize(runs, before, (struct lp_extent){before->block, before->cnt + extent.cnt});
	} else if (joins_after) {
		resize(runs, after, (struct lp_extent){extent.block, after->cnt + extent.cnt});
	} else {
		struct lpi_freerun *run;
		int rc = node_get(runs, &run);
		if (rc != 0)
			return rc;
		link_run(runs, run, extent);
	}
	runs->free_blocks += extent.cnt;
	return 0;
}

int lpi_freeruns_carve(struct lpi_freeruns *runs, struct lpi_freerun *run, struct lp_extent extent)
{
	LP_ASSERT(extent.cnt > 0 && extent.block >= run->block);
	LP_ASSERT(lp_extent_end(extent) <= end_of(run));
	struct lp_extent head = {.block = run->block, .cnt = extent.block - run->block};
	struct lp_extent tail = {.block = lp_extent_end(extent),
				 .cnt = end_of(run) - lp_extent_end(extent)};
	if (head.cnt == 0 && tail.cnt == 0) {
		drop_run(runs, run);
	} else if (head.cnt == 0 || tail.cnt == 0) {
		resize(runs, run, head.cnt == 0 ? tail : head);
	} else {
		struct lpi_freerun *second;
		int rc = node_get(runs, &second);
		if (rc != 0)
			return rc;
		resize(runs, run, head);
		link_run(runs, second, tail);
	}
	runs->free_blocks -= extent.cnt;
	return 0;
}

int lpi_freeruns_remove(struct lpi_freeruns *runs, struct lp_extent extent)
{
	struct lpi_freerun *run = lpi_freeruns_find(runs, extent.block);
	if (run == NULL || run->block > extent.block || end_of(run) < lp_extent_end(extent))
		return -EBUSY;
	return lpi_freeruns_carve(runs, run, extent);
}

struct lpi_freerun *lpi_freeruns_find(const struct lpi_freeruns *runs, uint64_t block)
{
	struct lpi_freerun key = {.block = block};
	struct lpi_freerun *run = lpi_runs_by_place_find_lt(&runs->by_place, &key);
	if (run != NULL && end_of(run) > block)
		return run;
	return run == NULL ? lpi_runs_by_place_first(&runs->by_place) : lpi_runs_by_place_next(run);
}

static struct lpi_freerun *fit_in(struct lpi_freerun *run, uint64_t from, const struct lpi_fit *fit,
				  struct lp_extent *ret_extent)
{
	struct lp_extent usable = lpi_usable(from, end_of(run), fit->unit);
	if (usable.cnt < fit->want)
		return NULL;
	*ret_extent = (struct lp_extent){.block = usable.block, .cnt = fit->want};
	return run;
}

struct lpi_freerun *lpi_freeruns_find_fit(const struct lpi_freeruns *runs,
					  const struct lpi_fit *fit, struct lp_extent *ret_extent)
{
	struct lpi_freerun *run = NULL;
	if (fit->from != LPI_FREERUNS_ANYWHERE)
		run = lpi_freeruns_find(runs, fit->from);
	if (run != NULL && fit_in(run, LP_MAX(run->block, fit->from), fit, ret_extent) != NULL)
		return run;
	struct lpi_freerun key = {.cnt = fit->want};
	run = lpi_runs_by_length_find_ge(&runs->by_length, &key);
	for (unsigned i = 0; run != NULL; i++, run = lpi_runs_by_length_next(run)) {
		if (fit_in(run, run->block, fit, ret_extent) != NULL)
			return run;
		if (i != ASKEW_PROBES_MAX)
			continue;
		key.cnt = fit->want + fit->unit - 1;
		struct lpi_freerun *long_one = lpi_runs_by_length_find_ge(&runs->by_length, &key);
		if (long_one != NULL)
			return fit_in(long_one, long_one->block, fit, ret_extent);
	}
	return NULL;
}

struct lpi_freerun *lpi_freeruns_find_part(const struct lpi_freeruns *runs,
					   const struct lpi_fit *fit, struct lp_extent *ret_extent)
{
	struct lp_extent best = {0};
	struct lpi_freerun *best_run = NULL;
	struct lpi_freerun *run = lpi_runs_by_length_last(&runs->by_length);
	/* Shorter runs cannot be better than the best. */
	for (; run != NULL && run->cnt > best.cnt; run = lpi_runs_by_length_prev(run)) {
		struct lp_extent usable = lpi_usable(run->block, end_of(run), fit->unit);
		if (usable.cnt <= best.cnt)
			continue;
		best = usable;
		best_run = run;
	}
	if (best_run == NULL)
		return NULL;
	best.cnt = LP_MIN(best.cnt, lp_align_down(fit->want, fit->unit));
	*ret_extent = best;
	return best_run;
}

uint64_t lpi_freeruns_capacity(const struct lpi_freeruns *runs)
{
	return runs->slab_cnt_max == UINT64_MAX ? UINT64_MAX : runs->slab_cnt_max * SLAB_RUNS;
}

uint64_t lpi_freeruns_memory_bytes(const struct lpi_freeruns *runs)
{
	return runs->slab_cnt * LPI_FREERUNS_SLAB_BYTES;
}

bool lpi_freeruns_is_sound(const struct lpi_freeruns *runs)
{
	uint64_t run_cnt = 0;
	uint64_t blocks = 0;
	const struct lpi_freerun *before = NULL;
	const struct lpi_freerun *run = lpi_runs_by_place_first(&runs->by_place);
	for (; run != NULL; before = run, run = lpi_runs_by_place_next(run)) {
		if (before != NULL && end_of(before) >= run->block)
			return false;
		run_cnt++;
		blocks += run->cnt;
	}
	run = lpi_runs_by_length_first(&runs->by_length);
	for (before = NULL; run != NULL; before = run, run = lpi_runs_by_length_next(run)) {
		if (before != NULL && !lpi_freerun_is_shorter(before, run))
			return false;
		run_cnt--;
	}
	return run_cnt == 0 && blocks == runs->free_blocks &&
	       lp_tree_is_sound(&runs->by_place.tree) && lp_tree_is_sound(&runs->by_length.tree);
}
