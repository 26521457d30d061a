/* SPDX-License-Identifier: Apache-2.0 */
/* Three kinds over two structures: freebits (bits with summaries) and freeruns (trees).
 *
 * Hybrid uses both. A free run is in one of the two, whole, and no run of one touches a run of the
 * other (so "is it free" and "is it one piece" need no merging). To hold this, a released extent
 * first draws in the runs of the bitmap next to it. Before each change the trees are made to have
 * a node to spare, by moving their shortest run to the bitmap when memory is used up: so nothing
 * after that can fail, and the long runs stay in the trees. When the trees have become half empty,
 * each change brings a few runs back. */
#include "store/space/alloc.h"

#include <errno.h>
#include <stdlib.h>

#include "store/space/free_runs.h"

#define ALLOC_MAGIC UINT32_C(0x4c4c4141)
/* Runs a hybrid brings back from its bitmap at a time. */
#define RECALL_RUNS_MAX 4u

/* What a kind can do. The takes return 1 when they took, 0 when there is nothing that fits,
 * -ENOMEM. */
struct alloc_ops {
	const char *name;
	int (*add)(struct lp_alloc *alloc, struct lp_extent extent);
	int (*remove)(struct lp_alloc *alloc, struct lp_extent extent);
	int (*take_fit)(struct lp_alloc *alloc, const struct lpi_fit *fit, struct lp_extent *ret);
	int (*take_part)(struct lp_alloc *alloc, const struct lpi_fit *fit, struct lp_extent *ret);
};

struct lp_alloc {
	uint32_t magic;
	enum lp_alloc_kind kind;
	const struct alloc_ops *ops;
	uint64_t space_blocks;
	struct lpi_freebits bits; /* bitmap, hybrid */
	struct lpi_freeruns runs; /* extent, hybrid */
	uint64_t cursor;          /* bitmap: where the last search ended */
	uint64_t recall_at;       /* hybrid: where to look for runs to bring back */
	bool bits_used;           /* hybrid: something was in the bitmap */
	uint64_t recall_below;    /* hybrid: runs in the trees below which others come back */
};

/* bitmap */

static int bits_add(struct lp_alloc *alloc, struct lp_extent extent)
{
	lpi_freebits_add(&alloc->bits, extent);
	return 0;
}

static int bits_remove(struct lp_alloc *alloc, struct lp_extent extent)
{
	if (!lpi_freebits_is_free(&alloc->bits, extent))
		return -EBUSY;
	lpi_freebits_remove(&alloc->bits, extent);
	return 0;
}

/* A search without a hint goes on where the last one ended, so that it does not wade through
 * what is full again and again. */
static struct lpi_fit from_cursor(const struct lp_alloc *alloc, const struct lpi_fit *fit)
{
	struct lpi_fit at = *fit;
	if (at.from == LP_ALLOC_NO_HINT)
		at.from = alloc->cursor;
	return at;
}

static int bits_taken(struct lp_alloc *alloc, const struct lpi_fit *fit, struct lp_extent extent)
{
	lpi_freebits_remove(&alloc->bits, extent);
	if (fit->from == LP_ALLOC_NO_HINT)
		alloc->cursor = lp_extent_end(extent);
	return 1;
}

static int bits_take_fit(struct lp_alloc *alloc, const struct lpi_fit *fit, struct lp_extent *ret)
{
	struct lpi_fit at = from_cursor(alloc, fit);
	if (!lpi_freebits_find_fit(&alloc->bits, &at, ret))
		return 0;
	return bits_taken(alloc, fit, *ret);
}

static int bits_take_part(struct lp_alloc *alloc, const struct lpi_fit *fit, struct lp_extent *ret)
{
	struct lpi_fit at = from_cursor(alloc, fit);
	if (!lpi_freebits_find_part(&alloc->bits, &at, ret))
		return 0;
	return bits_taken(alloc, fit, *ret);
}

/* extent */

static int runs_add(struct lp_alloc *alloc, struct lp_extent extent)
{
	return lpi_freeruns_add(&alloc->runs, extent);
}

static int runs_remove(struct lp_alloc *alloc, struct lp_extent extent)
{
	return lpi_freeruns_remove(&alloc->runs, extent);
}

static int runs_take(struct lp_alloc *alloc, struct lpi_freerun *run, struct lp_extent extent,
		     struct lp_extent *ret)
{
	if (run == NULL)
		return 0;
	int rc = lpi_freeruns_carve(&alloc->runs, run, extent);
	if (rc != 0)
		return rc;
	*ret = extent;
	return 1;
}

static int runs_take_fit(struct lp_alloc *alloc, const struct lpi_fit *fit, struct lp_extent *ret)
{
	struct lp_extent extent = {0};
	struct lpi_freerun *run = lpi_freeruns_find_fit(&alloc->runs, fit, &extent);
	return runs_take(alloc, run, extent, ret);
}

static int runs_take_part(struct lp_alloc *alloc, const struct lpi_fit *fit, struct lp_extent *ret)
{
	struct lp_extent extent = {0};
	struct lpi_freerun *run = lpi_freeruns_find_part(&alloc->runs, fit, &extent);
	return runs_take(alloc, run, extent, ret);
}

/* hybrid */

static void spill(struct lp_alloc *alloc, struct lp_extent extent)
{
	lpi_freebits_add(&alloc->bits, extent);
	alloc->bits_used = true;
}

/* Afterwards the trees have a node to spare, or no run at all. */
static void hybrid_prepare(struct lp_alloc *alloc)
{
	struct lpi_freeruns *runs = &alloc->runs;
	if (LP_LIKELY(lpi_freeruns_reserve(runs) == 0) || runs->run_cnt == 0)
		return;
	struct lpi_freerun *shortest = lpi_runs_by_length_first(&runs->by_length);
	LP_ASSERT(shortest != NULL);
	struct lp_extent extent = {.block = shortest->block, .cnt = shortest->cnt};
	int rc = lpi_freeruns_carve(runs, shortest, extent);
	LP_ASSERT(rc == 0); /* a whole run needs no node */
	spill(alloc, extent);
}

/* With less than half of their limit in use the trees take runs back. */
static void hybrid_recall(struct lp_alloc *alloc)
{
	struct lpi_freebits *bits = &alloc->bits;
	for (unsigned i = 0; i < RECALL_RUNS_MAX && bits->free_blocks > 0 &&
			     alloc->runs.run_cnt < alloc->recall_below;
	     i++) {
		uint64_t pos = lpi_freebits_find_free(bits, alloc->recall_at);
		if (pos == bits->block_cnt)
			pos = lpi_freebits_find_free(bits, 0);
		pos = lpi_freebits_run_start(bits, pos + 1);
		uint64_t end = lpi_freebits_find_used(bits, pos);
		struct lp_extent run = {.block = pos, .cnt = end - pos};
		if (lpi_freeruns_add(&alloc->runs, run) != 0)
			return;
		lpi_freebits_remove(bits, run);
		alloc->recall_at = end;
	}
}

/* Takes the runs that touch the extent out of the bitmap; the extent with them. */
static struct lp_extent draw_in(struct lp_alloc *alloc, struct lp_extent extent)
{
	struct lpi_freebits *bits = &alloc->bits;
	uint64_t start = lpi_freebits_run_start(bits, extent.block);
	uint64_t end = lpi_freebits_find_used(bits, lp_extent_end(extent));
	LP_ASSERT(lpi_freebits_find_free(bits, extent.block) >= lp_extent_end(extent));
	if (start < extent.block)
		lpi_freebits_remove(bits, (struct lp_extent){start, extent.block - start});
	if (end > lp_extent_end(extent))
		lpi_freebits_remove(bits, (struct lp_extent){lp_extent_end(extent),
							     end - lp_extent_end(extent)});
	return (struct lp_extent){.block = start,
				  .cnt = LP_MAX(end, lp_extent_end(extent)) - start};
}

static int hybrid_add(struct lp_alloc *alloc, struct lp_extent extent)
{
	/* First, for it may move a neighbour to the bitmap. */
	hybrid_prepare(alloc);
	if (alloc->bits.free_blocks > 0)
		extent = draw_in(alloc, extent);
	if (lpi_freeruns_add(&alloc->runs, extent) != 0)
		spill(alloc, extent);
	hybrid_recall(alloc);
	return 0;
}

static int hybrid_remove(struct lp_alloc *alloc, struct lp_extent extent)
{
	if (lpi_freebits_is_free(&alloc->bits, extent)) {
		lpi_freebits_remove(&alloc->bits, extent);
		return 0;
	}
	hybrid_prepare(alloc);
	/* The run may just have been moved. */
	if (lpi_freebits_is_free(&alloc->bits, extent)) {
		lpi_freebits_remove(&alloc->bits, extent);
		return 0;
	}
	return lpi_freeruns_remove(&alloc->runs, extent);
}

/* Short runs are in the bitmap: what is short is looked for there first, but not for long. */
static bool is_for_bits(const struct lp_alloc *alloc, uint64_t want)
{
	const struct lpi_freerun *shortest = lpi_runs_by_length_first(&alloc->runs.by_length);
	return alloc->bits.free_blocks > 0 && (shortest == NULL || want <= shortest->cnt);
}

static int hybrid_take_fit(struct lp_alloc *alloc, const struct lpi_fit *fit, struct lp_extent *ret)
{
	hybrid_recall(alloc);
	hybrid_prepare(alloc);
	struct lpi_fit soon = *fit;
	soon.is_patient = false;
	if (fit->from == LP_ALLOC_NO_HINT && is_for_bits(alloc, fit->want) &&
	    bits_take_fit(alloc, &soon, ret) == 1)
		return 1;
	int rc = runs_take_fit(alloc, fit, ret);
	LP_ASSERT(rc >= 0);
	return rc != 0 || alloc->bits.free_blocks == 0 ? rc : bits_take_fit(alloc, fit, ret);
}

static int hybrid_take_part(struct lp_alloc *alloc, const struct lpi_fit *fit,
			    struct lp_extent *ret)
{
	hybrid_prepare(alloc);
	int rc = runs_take_part(alloc, fit, ret);
	LP_ASSERT(rc >= 0);
	return rc != 0 || alloc->bits.free_blocks == 0 ? rc : bits_take_part(alloc, fit, ret);
}

static const struct alloc_ops kinds[LP_ALLOC_KIND_CNT] = {
	[LP_ALLOC_HYBRID] = {"hybrid", hybrid_add, hybrid_remove, hybrid_take_fit,
			     hybrid_take_part},
	[LP_ALLOC_BITMAP] = {"bitmap", bits_add, bits_remove, bits_take_fit, bits_take_part},
	[LP_ALLOC_EXTENT] = {"extent", runs_add, runs_remove, runs_take_fit, runs_take_part},
};

/* All kinds */

static int grow(struct lp_alloc *alloc, uint64_t block_cnt)
{
	return alloc->kind == LP_ALLOC_EXTENT ? 0 : lpi_freebits_grow(&alloc->bits, block_cnt);
}

int lp_alloc_new(const struct lp_alloc_config *config, struct lp_alloc **ret_alloc)
{
	LP_ASSERT((unsigned)config->kind < LP_ALLOC_KIND_CNT);
	LP_ASSERT(config->block_cnt <= LP_ALLOC_BLOCKS_MAX);
	struct lp_alloc *alloc = calloc(1, sizeof(*alloc));
	if (alloc == NULL)
		return -ENOMEM;
	alloc->magic = ALLOC_MAGIC;
	alloc->kind = config->kind;
	alloc->ops = &kinds[config->kind];
	lpi_freebits_init(&alloc->bits);
	lpi_freeruns_init(&alloc->runs, config->memory_max_bytes);
	alloc->recall_below = lpi_freeruns_capacity(&alloc->runs) / 2;
	int rc = grow(alloc, config->block_cnt);
	if (rc != 0) {
		lp_alloc_free(alloc);
		return rc;
	}
	*ret_alloc = alloc;
	return 0;
}

void lp_alloc_free(struct lp_alloc *alloc)
{
	if (alloc == NULL)
		return;
	LP_ASSERT(alloc->magic == ALLOC_MAGIC);
	lpi_freebits_fini(&alloc->bits);
	lpi_freeruns_fini(&alloc->runs);
	alloc->magic = 0;
	free(alloc);
}

static void check_extent(const struct lp_alloc *alloc, struct lp_extent extent)
{
	LP_ASSERT(alloc->magic == ALLOC_MAGIC);
	LP_ASSERT(extent.cnt > 0);
	LP_ASSERT(!lp_range_outside(extent.block, extent.cnt, LP_ALLOC_BLOCKS_MAX));
}

int lp_alloc_add_range(struct lp_alloc *alloc, struct lp_extent range)
{
	check_extent(alloc, range);
	int rc = grow(alloc, lp_extent_end(range));
	if (rc != 0)
		return rc;
	rc = alloc->ops->add(alloc, range);
	if (rc == 0)
		alloc->space_blocks += range.cnt;
	return rc;
}

int lp_alloc_add_taken_range(struct lp_alloc *alloc, struct lp_extent range)
{
	check_extent(alloc, range);
	int rc = grow(alloc, lp_extent_end(range));
	if (rc == 0)
		alloc->space_blocks += range.cnt;
	return rc;
}

int lp_alloc_remove_range(struct lp_alloc *alloc, struct lp_extent range)
{
	check_extent(alloc, range);
	int rc = alloc->ops->remove(alloc, range);
	if (rc != 0)
		return rc;
	LP_ASSERT(alloc->space_blocks >= range.cnt);
	alloc->space_blocks -= range.cnt;
	return 0;
}

static int take_one(struct lp_alloc *alloc, const struct lpi_fit *fit, bool is_contiguous,
		    struct lp_extent *ret)
{
	int rc = alloc->ops->take_fit(alloc, fit, ret);
	if (rc == 0 && !is_contiguous)
		rc = alloc->ops->take_part(alloc, fit, ret);
	return rc;
}

int lp_alloc_take(struct lp_alloc *alloc, uint64_t want, const struct lp_alloc_options *options,
		  struct lp_extent *ret_extents, uint64_t *ret_blocks)
{
	struct lpi_fit fit = {.want = want,
			      .unit = LP_MAX(options->unit, 1),
			      .from = options->hint,
			      .is_patient = options->is_contiguous};
	LP_ASSERT(alloc->magic == ALLOC_MAGIC);
	LP_ASSERT(options->extents_max > 0 && options->extents_max <= INT32_MAX);
	LP_ASSERT(lp_is_power_of_two(fit.unit));
	LP_ASSERT(want > 0 && want <= LP_ALLOC_BLOCKS_MAX && lp_is_aligned(want, fit.unit));
	uint32_t cnt = 0;
	while (fit.want > 0 && cnt < options->extents_max) {
		struct lp_extent extent = {0};
		int rc = take_one(alloc, &fit, options->is_contiguous, &extent);
		/* Some is better than none, and the next call will say it. */
		if (rc <= 0 && cnt == 0)
			return rc == 0 ? -ENOSPC : rc;
		if (rc <= 0)
			break;
		LP_ASSERT(extent.cnt > 0 && extent.cnt <= fit.want);
		ret_extents[cnt++] = extent;
		fit.want -= extent.cnt;
		fit.from = LP_ALLOC_NO_HINT;
	}
	*ret_blocks = want - fit.want;
	return (int)cnt;
}

int lp_alloc_release(struct lp_alloc *alloc, struct lp_extent extent)
{
	check_extent(alloc, extent);
	LP_ASSERT(lp_alloc_free_blocks(alloc) + extent.cnt <= alloc->space_blocks);
	return alloc->ops->add(alloc, extent);
}

bool lp_alloc_is_free(const struct lp_alloc *alloc, struct lp_extent range)
{
	check_extent(alloc, range);
	struct lp_extent run;
	return lp_alloc_next_free(alloc, range.block, &run) && run.block == range.block &&
	       run.cnt >= range.cnt;
}

uint64_t lp_alloc_free_blocks(const struct lp_alloc *alloc)
{
	return alloc->bits.free_blocks + alloc->runs.free_blocks;
}

uint64_t lp_alloc_space_blocks(const struct lp_alloc *alloc)
{
	return alloc->space_blocks;
}

bool lp_alloc_next_free(const struct lp_alloc *alloc, uint64_t from, struct lp_extent *ret_run)
{
	uint64_t bit = lpi_freebits_find_free(&alloc->bits, from);
	bool is_bit = bit < alloc->bits.block_cnt;
	const struct lpi_freerun *run = lpi_freeruns_find(&alloc->runs, from);
	if (run == NULL && !is_bit)
		return false;
	uint64_t start;
	uint64_t end;
	if (run != NULL && (!is_bit || run->block < bit)) {
		start = LP_MAX(run->block, from);
		end = run->block + run->cnt;
	} else {
		start = bit;
		end = lpi_freebits_find_used(&alloc->bits, bit);
	}
	*ret_run = (struct lp_extent){.block = start, .cnt = end - start};
	return true;
}

uint64_t lp_alloc_largest_run(const struct lp_alloc *alloc)
{
	const struct lpi_freerun *longest = lpi_runs_by_length_last(&alloc->runs.by_length);
	uint64_t best = longest == NULL ? 0 : longest->cnt;
	const struct lpi_freebits *bits = &alloc->bits;
	uint64_t pos = lpi_freebits_find_free(bits, 0);
	while (pos < bits->block_cnt) {
		uint64_t end = lpi_freebits_find_used(bits, pos);
		best = LP_MAX(best, end - pos);
		pos = lpi_freebits_find_free(bits, end);
	}
	return best;
}

/* log2 with straight lines between the powers of two. */
static double log2_of(uint64_t cnt)
{
	unsigned whole = 63u - (unsigned)__builtin_clzll(cnt);
	uint64_t power = UINT64_C(1) << whole;
	return (double)whole + (double)(cnt - power) / (double)power;
}

double lp_alloc_score(const struct lp_alloc *alloc)
{
	double worth = 0;
	double best = log2_of(LP_ALLOC_SCORE_RUN_BLOCKS);
	struct lp_extent run = {0};
	while (lp_alloc_next_free(alloc, lp_extent_end(run), &run)) {
		uint64_t cnt = LP_MIN(run.cnt, LP_ALLOC_SCORE_RUN_BLOCKS);
		worth += (double)run.cnt * log2_of(cnt) / best;
	}
	uint64_t free_blocks = lp_alloc_free_blocks(alloc);
	return free_blocks == 0 ? 0 : 1 - worth / (double)free_blocks;
}

uint64_t lp_alloc_memory_bytes(const struct lp_alloc *alloc)
{
	bool counts_bits = alloc->kind == LP_ALLOC_BITMAP || alloc->bits_used;
	return lpi_freeruns_memory_bytes(&alloc->runs) +
	       (counts_bits ? lpi_freebits_memory_bytes(&alloc->bits) : 0);
}

const char *lp_alloc_kind_name(enum lp_alloc_kind kind)
{
	LP_ASSERT((unsigned)kind < LP_ALLOC_KIND_CNT);
	return kinds[kind].name;
}

/* No run of the trees touches one of the bitmap, nor is a block in both. */
static bool are_apart(const struct lp_alloc *alloc)
{
	const struct lpi_freerun *run = lpi_runs_by_place_first(&alloc->runs.by_place);
	for (; run != NULL; run = lpi_runs_by_place_next(run)) {
		uint64_t from = run->block == 0 ? 0 : run->block - 1;
		uint64_t next = lpi_freebits_find_free(&alloc->bits, from);
		if (next < alloc->bits.block_cnt && next <= run->block + run->cnt)
			return false;
	}
	return true;
}

bool lp_alloc_is_sound(const struct lp_alloc *alloc)
{
	return lpi_freeruns_is_sound(&alloc->runs) && are_apart(alloc) &&
	       lp_alloc_free_blocks(alloc) <= alloc->space_blocks;
}
