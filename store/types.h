/* SPDX-License-Identifier: Apache-2.0 */
/* The few types and numbers that all of store/ shares.
 *
 * Threads, blocking, allocation, errors: none.
 */
#ifndef LP_STORE_TYPES_H
#define LP_STORE_TYPES_H

#include "base/compiler.h"

#define LP_BLOCK_BYTES UINT64_C(4096)
#define LP_BLOCK_SHIFT 12u
#define LP_SHARDS_MAX  64u

/* The number of an inode: never 0, never reused (rule N5). */
struct lp_ino {
	uint64_t nr;
};

/* A run of blocks on one device, in blocks from its beginning. */
struct lp_extent {
	uint64_t block;
	uint64_t cnt;
};

static inline uint64_t lp_extent_end(struct lp_extent extent)
{
	return extent.block + extent.cnt;
}

static inline uint64_t lp_bytes_to_blocks_up(uint64_t bytes)
{
	return (bytes >> LP_BLOCK_SHIFT) + ((bytes & (LP_BLOCK_BYTES - 1)) != 0);
}

#endif
