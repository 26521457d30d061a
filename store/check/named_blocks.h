/* SPDX-License-Identifier: Apache-2.0 */
/* Bitmaps of the blocks that extents name: owned, and shared.
 *
 * Threads: one.
 * Blocking: none.
 * Memory: two bits for each block of the shard's chunks: one for extents that own what they name,
 * one for those that share it.
 * Errors: -ENOMEM.
 */
#ifndef LP_STORE_CHECK_NAMED_BLOCKS_H
#define LP_STORE_CHECK_NAMED_BLOCKS_H

#include "base/struct/bitmap.h"
#include "store/record/types.h"

struct lpi_fsck_blocks {
	uint64_t base_block; /* where chunk 0 begins */
	uint32_t chunk_blocks;
	uint32_t chunk_cnt;
	uint64_t **owned;  /* by chunk; NULL: not the shard's */
	uint64_t **shared; /* NULL: no block of it is */
	uint64_t **mine;   /* which blocks of it are the shard's; NULL: all */
};

/* The struct is zeroed. After an error, too, fini is needed. */
int lpi_fsck_blocks_init(struct lpi_fsck_blocks *blocks, uint64_t base_block, uint32_t chunk_blocks,
			 uint32_t chunk_cnt) LP_MUST_CHECK;
void lpi_fsck_blocks_fini(struct lpi_fsck_blocks *blocks);
/* These blocks of the chunk are the shard's; mine is copied. NULL: all. */
int lpi_fsck_blocks_add(struct lpi_fsck_blocks *blocks, uint32_t chunk,
			const struct lp_bitmap *mine) LP_MUST_CHECK;

static inline struct lp_extent lpi_fsck_blocks_chunk(const struct lpi_fsck_blocks *blocks,
						     uint32_t chunk)
{
	return (struct lp_extent){blocks->base_block + (uint64_t)chunk * blocks->chunk_blocks,
				  blocks->chunk_blocks};
}

/* All of it was added. */
bool lpi_fsck_blocks_has(const struct lpi_fsck_blocks *blocks, struct lp_extent extent);

/* An extent within the chunks names these blocks. *ret_twice is how many of them had been named
 * before, and not by extents that share them all. */
int lpi_fsck_blocks_name(struct lpi_fsck_blocks *blocks, struct lp_extent extent, bool is_shared,
			 uint64_t *ret_twice) LP_MUST_CHECK;

/* The longest run of blocks that begins at this one, ends in its chunk, and is named from
 * beginning to end, or not named. */
struct lp_extent lpi_fsck_blocks_run(const struct lpi_fsck_blocks *blocks, uint64_t block,
				     bool *ret_is_named);

/* The first group of 64 blocks (lp_refs) at or behind this one of which a block is shared. */
bool lpi_fsck_blocks_next_group(const struct lpi_fsck_blocks *blocks, uint64_t from_group,
				uint64_t *ret_group);

#endif
