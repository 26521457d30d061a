/* SPDX-License-Identifier: Apache-2.0 */
/* Free blocks as runs in two trees, by place and by length: the exact part of the allocator.
 *
 * Threads: one owner.
 * Blocking: none.
 * Memory: a run is one node of 64 bytes from slabs, which stay until fini. The number of runs can
 * be limited.
 * Errors: -ENOMEM leaves all as it was.
 *
 * Private to store/ (store/space/alloc.h). Runs never touch: a run that is added next to another
 * one becomes part of it.
 */
#ifndef LP_STORE_SPACE_FREE_RUNS_H
#define LP_STORE_SPACE_FREE_RUNS_H

#include "base/struct/tree.h"
#include "store/space/free_bits.h"

#define LPI_FREERUNS_SLAB_BYTES UINT64_C(4096)

struct lpi_freerun {
	struct lp_tree_node by_place;
	struct lp_tree_node by_length;
	uint64_t block;
	uint64_t cnt; /* 0: not in use, and by_place.child[0] is the next such node */
};

static inline bool lpi_freerun_is_before(const struct lpi_freerun *a, const struct lpi_freerun *b)
{
	return a->block < b->block;
}

static inline bool lpi_freerun_is_shorter(const struct lpi_freerun *a, const struct lpi_freerun *b)
{
	return a->cnt < b->cnt || (a->cnt == b->cnt && a->block < b->block);
}

LP_TREE_DEFINE(lpi_runs_by_place, struct lpi_freerun, by_place, lpi_freerun_is_before);
LP_TREE_DEFINE(lpi_runs_by_length, struct lpi_freerun, by_length, lpi_freerun_is_shorter);

struct lpi_freeruns_slab;

struct lpi_freeruns {
	struct lpi_runs_by_place by_place;
	struct lpi_runs_by_length by_length;
	struct lpi_freerun *spare; /* nodes not in use */
	struct lpi_freeruns_slab *slabs;
	uint64_t slab_cnt;
	uint64_t slab_cnt_max;
	uint64_t run_cnt;
	uint64_t free_blocks;
};

/* memory_max_bytes is rounded to slabs, of which there is at least one; 0 means no limit. */
void lpi_freeruns_init(struct lpi_freeruns *runs, uint64_t memory_max_bytes);
void lpi_freeruns_fini(struct lpi_freeruns *runs);
/* Makes sure that the next add or remove does not fail. */
int lpi_freeruns_reserve(struct lpi_freeruns *runs) LP_MUST_CHECK;

/* Asserts that none of the blocks was free. */
int lpi_freeruns_add(struct lpi_freeruns *runs, struct lp_extent extent) LP_MUST_CHECK;
/* -EBUSY when not all of it is free. */
int lpi_freeruns_remove(struct lpi_freeruns *runs, struct lp_extent extent) LP_MUST_CHECK;
/* Cuts the extent, which lies within it, out of a run; run may be gone afterwards. */
int lpi_freeruns_carve(struct lpi_freeruns *runs, struct lpi_freerun *run,
		       struct lp_extent extent) LP_MUST_CHECK;

/* The run that block lies in, else the first one behind it, else NULL. */
struct lpi_freerun *lpi_freeruns_find(const struct lpi_freeruns *runs, uint64_t block);
/* The run for `want` blocks in one piece, and which of them, or NULL when there is none. At or
 * right behind fit->from (when it is not LPI_FREERUNS_ANYWHERE) if they fit there, else the
 * shortest run that holds them. */
#define LPI_FREERUNS_ANYWHERE UINT64_MAX
struct lpi_freerun *lpi_freeruns_find_fit(const struct lpi_freeruns *runs,
					  const struct lpi_fit *fit, struct lp_extent *ret_extent);
/* The run that holds most whole units, at most `want` blocks of it; NULL when none holds one. */
struct lpi_freerun *lpi_freeruns_find_part(const struct lpi_freeruns *runs,
					   const struct lpi_fit *fit, struct lp_extent *ret_extent);

/* Runs that the limit on memory allows. */
uint64_t lpi_freeruns_capacity(const struct lpi_freeruns *runs);
uint64_t lpi_freeruns_memory_bytes(const struct lpi_freeruns *runs);
/* Walks both trees. */
bool lpi_freeruns_is_sound(const struct lpi_freeruns *runs);

#endif
