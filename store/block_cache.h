/* SPDX-License-Identifier: Apache-2.0 */
/* The data cache of a shard: what is stored in a block of the device, by the block's number.
 *
 * An entry is the 4 KiB of a block, in a buffer to which the cache holds a reference, and their
 * crc. Whoever looks a block up knows from the extent map which crc it must have: an entry with
 * another one is what the block held before; it is dropped and counted, never returned. So
 * the cache need not hear of every change to be right (P4), only not to waste its room:
 * whoever frees blocks says so by lp_block_cache_invalidate().
 *
 * Scan-resistant, as S3-FIFO: a new block enters a small queue, a tenth of the budget. If it is
 * looked up twice before its turn comes, it moves to the main queue; else it goes, and its number
 * is remembered for as long as main is large (a ghost). A block that comes back as a ghost enters
 * main at once. In main a block gets one more round for each time it was looked up, three at most.
 * One pass over much data goes through the small queue and leaves main alone.
 *
 * Buffers: a segment of a small buffer (4 KiB) is kept by reference. One of a larger buffer would
 * hold all of that, up to 256 times what the budget counts, so it is copied into a small buffer of
 * the same region; where there is none left the block is not cached. Who reads in large buffers
 * pays for a copy, and better inserts only what is likely to be read again. The bytes must not
 * change after the insert. A full cache is buffers that others may need: they are to be had back
 * by lp_block_cache_evict().
 *
 * Threads: one, that of the buffers. Blocking: none. Allocation: at new only, by the largest
 * budget: about 120 bytes per block, and what was never used of them is not touched. Each call
 * takes constant time but for those that evict or invalidate many.
 */
#ifndef LP_STORE_BLOCK_CACHE_H
#define LP_STORE_BLOCK_CACHE_H

#include <errno.h>

#include "base/buf.h"
#include "store/types.h"

#define LP_BLOCK_CACHE_BLOCKS_MAX (UINT64_C(1) << 28) /* 1 TiB */

struct lp_block_cache;

struct lp_block_cache_stats {
	uint64_t hits;
	uint64_t misses; /* stale ones included */
	uint64_t stale;  /* dropped or replaced because the crc was another */
	uint64_t inserts;
	uint64_t ghost_inserts; /* of those: remembered, so into main at once */
	uint64_t evictions;
	uint64_t invalidated;
	uint64_t copies;  /* of segments of larger buffers */
	uint64_t refused; /* not cached: no buffer for the copy, or no budget */
	uint64_t blocks;  /* held now */
	uint64_t bytes;   /* of their buffers */
	uint64_t ghosts;  /* remembered now */
	uint64_t limit_blocks;
};

/* limit_blocks <= limit_max_blocks <= LP_BLOCK_CACHE_BLOCKS_MAX; limit_max_blocks > 0. -ENOMEM. */
int lp_block_cache_new(uint64_t limit_blocks, uint64_t limit_max_blocks,
		       struct lp_block_cache **ret_cache) LP_MUST_CHECK;
/* Gives all buffers back. Accepts NULL. */
void lp_block_cache_free(struct lp_block_cache *cache);

/* At most limit_max_blocks; 0 switches the cache off. A smaller budget evicts at once. */
void lp_block_cache_resize(struct lp_block_cache *cache, uint64_t limit_blocks);

/* NULL when the block is not there with that crc. The segment is borrowed: until the next call for
 * this cache, unless the caller takes a reference to its buffer. */
const struct lp_seg *lp_block_cache_lookup(struct lp_block_cache *cache, uint64_t block,
					   uint32_t crc);

/* seg is one block long, its crc is crc. What the cache holds of the block is replaced, unless it
 * has the same crc. False when the block is not cached. */
bool lp_block_cache_insert(struct lp_block_cache *cache, uint64_t block, uint32_t crc,
			   struct lp_seg seg);

/* Forgets these blocks: by a look at each of them, or at each entry if that is less (2 ns for one:
 * half a millisecond for each GiB that was ever cached). */
void lp_block_cache_invalidate(struct lp_block_cache *cache, struct lp_extent extent);

/* Up to cnt blocks go, as if there were no room; returns how many. */
uint64_t lp_block_cache_evict(struct lp_block_cache *cache, uint64_t cnt);

void lp_block_cache_read_stats(const struct lp_block_cache *cache,
			       struct lp_block_cache_stats *ret_stats);

/* Walks everything. For tests. */
bool lp_block_cache_is_sound(const struct lp_block_cache *cache);

#endif
