/* SPDX-License-Identifier: Apache-2.0 */
/* Types and numbers that all of store/ shares.
 *
 * Threads: any.
 * Blocking, allocation, errors: none.
 */
#ifndef LP_STORE_RECORD_TYPES_H
#define LP_STORE_RECORD_TYPES_H

#include "base/assert.h"

#define LP_BLOCK_BYTES UINT64_C(4096)
#define LP_BLOCK_SHIFT 12u
#define LP_SHARDS_MAX  64u

/* The number of an inode: never 0, never reused (rule N5). Its top 8 bits name the shard that has
 * the inode. */
struct lp_ino {
	uint64_t nr;
};

#define LP_INO_SHARD_SHIFT 56u
#define LP_INO_COUNTER_END (UINT64_C(1) << LP_INO_SHARD_SHIFT) /* counters are below, and not 0 */
#define LP_INO_ROOT        ((struct lp_ino){1})                /* the first of shard 0 */
#define LP_INO_FIRST       UINT64_C(16) /* counter; below: those with a fixed number */

/* Of a number from outside it may be beyond any shard. */
static inline uint32_t lp_ino_shard(struct lp_ino ino)
{
	return (uint32_t)(ino.nr >> LP_INO_SHARD_SHIFT);
}

static inline struct lp_ino lp_ino_make(uint32_t shard_idx, uint64_t counter)
{
	LP_ASSERT(shard_idx < LP_SHARDS_MAX);
	LP_ASSERT(counter > 0 && counter < LP_INO_COUNTER_END);
	return (struct lp_ino){(uint64_t)shard_idx << LP_INO_SHARD_SHIFT | counter};
}

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

/* Blocks of the data device that cannot be written, and are held: what belongs there is in the
 * index (rule L6). */
#define LP_BAD_BLOCKS_SHOWN 8u
struct lp_bad_blocks {
	uint32_t cnt;
	uint32_t shown;
	int64_t since_ns; /* of the day: when the first was found, by the opening perhaps */
	uint64_t blocks[LP_BAD_BLOCKS_SHOWN]; /* the first that were found */
};

/* Where deferred payloads wait for their place: in the frames of the log, or as records in the
 * index (store/commit/deferred_records.h). */
enum lp_deferred_store { LP_DEFERRED_LOG, LP_DEFERRED_KV };
#define LP_DEFERRED_STORE_CNT 2

#endif
