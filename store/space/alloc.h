/* SPDX-License-Identifier: Apache-2.0 */
/* Block allocators: which blocks of a device are free, three kinds behind one interface.
 *
 * Threads: one owner.
 * Blocking: none. lp_alloc_score() and a patient search (contiguous, or a unit above one block)
 * may look at every free run.
 * Memory: bitmap: follows from the device alone. extent: follows from fragmentation. hybrid: as
 * extent, up to a limit.
 * Errors: -ENOMEM leaves everything as it was.
 * Limits: LP_ALLOC_BLOCKS_MAX.
 *
 *   bitmap   a bit per block with summaries above
 *   extent   runs in trees by place and by length, best fit
 *   hybrid   extent until its memory reaches a limit, then the shortest runs move to a bitmap
 *
 * An allocator knows nothing of durability, chunks or I/O: that is store/space/space.h. At first
 * nothing is free. Space is added in ranges, and taken and released from then on. A block that is
 * neither free nor taken (another shard's, or not added yet) looks like a taken one.
 */
#ifndef LP_STORE_SPACE_ALLOC_H
#define LP_STORE_SPACE_ALLOC_H

#include "store/record/types.h"

#define LP_ALLOC_BLOCKS_MAX (UINT64_C(1) << 36)

struct lp_alloc;

enum lp_alloc_kind {
	LP_ALLOC_HYBRID,
	LP_ALLOC_BITMAP,
	LP_ALLOC_EXTENT,
	LP_ALLOC_KIND_CNT,
};

struct lp_alloc_config {
	enum lp_alloc_kind kind;
	uint64_t block_cnt; /* to make room for at once; more can be added later */
	/* For the trees: hybrid moves runs to its bitmap instead of exceeding it, extent says
	 * -ENOMEM. Rounded down to 4 KiB, but one such piece is always allowed; 0 means no limit.
	 */
	uint64_t memory_max_bytes;
};

#define LP_ALLOC_NO_HINT UINT64_MAX

struct lp_alloc_options {
	uint64_t hint; /* at or right behind this block, if that is free, or LP_ALLOC_NO_HINT */
	uint32_t unit; /* each extent begins and ends at a multiple of it; a power of two, 0 is 1 */
	uint32_t extents_max; /* > 0 */
	bool is_contiguous;   /* all in one extent, or nothing */
};

/* -ENOMEM. */
int lp_alloc_new(const struct lp_alloc_config *config, struct lp_alloc **ret_alloc) LP_MUST_CHECK;
void lp_alloc_free(struct lp_alloc *alloc);

/* The range, of which no block is free, becomes free and counts as part of the space. */
int lp_alloc_add_range(struct lp_alloc *alloc, struct lp_extent range) LP_MUST_CHECK;
/* The range counts as part of the space, and is taken: how space in use is made known at start. */
int lp_alloc_add_taken_range(struct lp_alloc *alloc, struct lp_extent range) LP_MUST_CHECK;
/* The range is no longer part of the space. -EBUSY, and nothing changed, unless all of it is
 * free. */
int lp_alloc_remove_range(struct lp_alloc *alloc, struct lp_extent range) LP_MUST_CHECK;

/* Takes up to `want` > 0 blocks, a multiple of the unit, in up to extents_max extents: in one if
 * there is a run that holds them (the bitmap may overlook it unless is_contiguous), else the
 * longest first. Returns the number of extents, > 0, and their blocks in *ret_blocks: fewer than
 * wanted when there are no more or the extents are used up. -ENOSPC when there are none at all;
 * -ENOMEM. */
int lp_alloc_take(struct lp_alloc *alloc, uint64_t want, const struct lp_alloc_options *options,
		  struct lp_extent *ret_extents, uint64_t *ret_blocks) LP_MUST_CHECK;
/* The blocks, taken together or not, are free again. That one of them already was is a bug of
 * ours, and asserted. -ENOMEM with extent only. */
int lp_alloc_release(struct lp_alloc *alloc, struct lp_extent extent) LP_MUST_CHECK;

bool lp_alloc_is_free(const struct lp_alloc *alloc, struct lp_extent range);
uint64_t lp_alloc_free_blocks(const struct lp_alloc *alloc);
/* Free or not: what was added and not removed. */
uint64_t lp_alloc_space_blocks(const struct lp_alloc *alloc);

/* The first free run at or behind `from`, beginning no earlier. False when there is none. To walk
 * all: go on at the end of the former; the allocator may change in between. */
bool lp_alloc_next_free(const struct lp_alloc *alloc, uint64_t from, struct lp_extent *ret_run);
/* Blocks of the longest run; 0 when nothing is free. The bitmap walks. */
uint64_t lp_alloc_largest_run(const struct lp_alloc *alloc);

/* Fragmentation from 0 (good) to 1. A free block is worth log2(length of its run) / 10, at most 1;
 * the score is 1 minus the mean over all free blocks. So runs of 4 MiB and more are as good as can
 * be, single blocks worth nothing, and the size of the device does not matter. 0 when nothing
 * is free. Walks. */
double lp_alloc_score(const struct lp_alloc *alloc);
#define LP_ALLOC_SCORE_RUN_BLOCKS UINT64_C(1024)

/* Memory for what is free, without the constant part of lp_alloc itself. A hybrid's bitmap counts
 * only once something is in it: until then it is address space. */
uint64_t lp_alloc_memory_bytes(const struct lp_alloc *alloc);

/* Never NULL for a kind; "bitmap" and so on. */
const char *lp_alloc_kind_name(enum lp_alloc_kind kind);
/* Walks everything. For tests. */
bool lp_alloc_is_sound(const struct lp_alloc *alloc);

#endif
