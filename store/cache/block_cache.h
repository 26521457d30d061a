/* SPDX-License-Identifier: Apache-2.0 */
/* Data cache of a shard: content of device blocks, by block number and crc.
 *
 * Threads: one, that of the buffers.
 * Blocking: none. Each call takes constant time, except those that evict or invalidate many.
 * Memory: allocated at new only, by the largest budget: about 120 bytes per block, and parts that
 * were never used are not touched. When the budget shrinks, the buffers' memory goes back to the
 * system.
 * Errors: none; a block that finds no buffer is not cached.
 *
 * An entry is the 4 KiB of a block, in a buffer to which the cache holds a reference, and their
 * crc. Nothing older than the map is ever returned (P4), for two reasons. Each is enough, apart
 * from the chance of one in 2^32 that two contents have the same crc:
 *
 * - The caller of a look-up knows from the extent map which crc the block must have. An entry
 *   with another one has the block's former content: it is dropped and counted.
 * - The code that frees blocks or rewrites one says so in the same turn in which the map changes,
 *   by lp_block_cache_invalidate() or lp_block_cache_rewrite(). A read that is on its way then
 *   comes too late. Each insert says since when its content was on its way (lp_block_cache_now()
 *   of the turn in which the map was looked at), and is refused if the block was freed or
 *   rewritten after that. So every entry is what the map says now, whatever its crc.
 *
 * A small table, by a hash of the block's number, keeps the times of invalidations. Two blocks
 * that share a place there cost a refused insert now and then, never a wrong one.
 *
 * Scan-resistant, as S3-FIFO: a new block enters a small queue, a tenth of the budget. If it is
 * looked up twice before its turn comes, it moves to the main queue. Otherwise it goes, and its
 * number is remembered for as long as main is large (a ghost). A block that comes back as a ghost
 * enters main at once. In main a block gets one more round for each time it was looked up, three
 * at most. One pass over much data goes through the small queue and leaves main alone. To keep
 * that true for a pass in pieces smaller than a block, and for one that is read ahead, some
 * look-ups do not count: those that only go on with a block (`goes_on`), and the first one of a
 * block that was read ahead.
 *
 * Buffers: all are small ones (4 KiB) of one region, used only for cached blocks and those on
 * their way. So a full cache takes no buffer from a writer, and cuts nothing into pieces that
 * others want large. A segment of such a buffer is kept by reference, any other is copied. The
 * bytes must not change after the insert.
 */
#ifndef LP_STORE_CACHE_BLOCK_CACHE_H
#define LP_STORE_CACHE_BLOCK_CACHE_H

#include <errno.h>

#include "base/memory/buf.h"
#include "store/record/types.h"

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
	uint64_t copies;        /* of segments of other buffers */
	uint64_t refused;       /* not cached: no buffer for the copy, or no budget */
	uint64_t late;          /* not cached: freed or rewritten while it was on its way */
	uint64_t ahead_inserts; /* of those: read ahead */
	uint64_t ahead_used;    /* of those: looked up */
	uint64_t ahead_wasted;  /* of those: gone, and never looked up */
	uint64_t blocks;        /* held now */
	uint64_t bytes;         /* of their buffers */
	uint64_t ghosts;        /* remembered now */
	uint64_t limit_blocks;
};

/* A block whose content is on its way into the cache. */
struct lp_block_cache_item {
	uint64_t block;
	uint64_t since;    /* lp_block_cache_now(), when the map said that this is its crc */
	struct lp_seg seg; /* one block long, and checked */
	uint32_t crc;
	bool is_ahead; /* nobody asked for it yet */
};

/* limit_blocks <= limit_max_blocks <= LP_BLOCK_CACHE_BLOCKS_MAX; limit_max_blocks > 0. bufs: the
 * region of the cache's buffers; outlives it. -ENOMEM. */
int lp_block_cache_new(struct lp_bufs *bufs, uint64_t limit_blocks, uint64_t limit_max_blocks,
		       struct lp_block_cache **ret_cache) LP_MUST_CHECK;
/* What its table takes for so many, which is touched all over whatever the budget is. */
uint64_t lp_block_cache_table_bytes(uint64_t limit_max_blocks);
/* Gives all buffers back. Accepts NULL. */
void lp_block_cache_free(struct lp_block_cache *cache);

/* At most limit_max_blocks; 0 switches the cache off. A smaller budget evicts at once. */
void lp_block_cache_resize(struct lp_block_cache *cache, uint64_t limit_blocks);

/* So many blocks go as if others came, or all there are; the budget stays. */
void lp_block_cache_shed(struct lp_block_cache *cache, uint64_t blocks);

/* NULL when the block is not there with that crc. The segment is borrowed: until the next call for
 * this cache, unless the caller takes a reference to its buffer. goes_on: the caller, or one it
 * goes on for, has had the beginning of the block already. */
const struct lp_seg *lp_block_cache_lookup(struct lp_block_cache *cache, uint64_t block,
					   uint32_t crc, bool goes_on);
/* Whether anything is there; not a look at it. */
bool lp_block_cache_has(const struct lp_block_cache *cache, uint64_t block);

/* Grows with each invalidation. */
uint64_t lp_block_cache_now(const struct lp_block_cache *cache);
/* What the cache holds of the block is replaced, unless it has the same crc. False when the block
 * is not cached. */
bool lp_block_cache_insert(struct lp_block_cache *cache, const struct lp_block_cache_item *item);

/* Forgets these blocks: by a look at each of them, or at each entry if that is less (2 ns for one:
 * half a millisecond for each GiB that was ever cached). */
void lp_block_cache_invalidate(struct lp_block_cache *cache, struct lp_extent extent);
/* The block has a new content, in its place: what the cache holds of it is replaced, and stays
 * where it is, for it is in use. A block that it does not hold it does not take in. */
void lp_block_cache_rewrite(struct lp_block_cache *cache, uint64_t block, uint32_t crc,
			    struct lp_seg seg);

void lp_block_cache_read_stats(const struct lp_block_cache *cache,
			       struct lp_block_cache_stats *ret_stats);

/* Walks everything. For tests. */
bool lp_block_cache_is_sound(const struct lp_block_cache *cache);

#endif
