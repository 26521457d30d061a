/* SPDX-License-Identifier: Apache-2.0 */
/* Use of the data cache by a block store, and reading ahead into it.
 *
 * Threads: the store's.
 * Blocking: none.
 * Memory: allocated at open only.
 * Errors: errors of reading ahead are dropped: the reader that asks for the block reads it again.
 *
 * Reads of at most LPI_CACHED_READ_MAX go through the cache. A larger read costs the device
 * little more than a small one, is seldom repeated, and in blocks would be cut into pieces. So it
 * neither looks nor leaves anything. Of writes only those go in that rewrite a block that the
 * cache holds: such a block is in use, and would be read from the device again. Other writes do
 * not make a read likely, and would evict blocks that are read.
 *
 * Reading ahead (store/cache/read_streams.h says when and how far) uses ios of at most
 * LPI_AHEAD_BLOCKS, LPI_AHEADS of them at a time, after the reader's own. It runs only while no
 * operation waits for a slot, a buffer or an io, and the ios that the largest read needs are
 * free. Blocks on their way or not yet used are at most half of the cache's small queue, so that
 * they are not evicted by others of their kind before their turn. Each second half of what is
 * still unused is forgotten: its reader may have gone. It uses leaves of the map that are in
 * memory, or that the index has in its cache. Blocks are pinned meanwhile (rule S3). A block that
 * is freed or rewritten meanwhile does not come into the cache. A read that asks for a block on
 * its way waits for it, a few times at most.
 */
#ifndef LP_STORE_BLOCK_CORE_DATA_CACHE_H
#define LP_STORE_BLOCK_CORE_DATA_CACHE_H

#include "store/block/core/read_claim.h"
#include "store/cache/block_cache.h"
#include "store/cache/read_streams.h"

#define LPI_CACHED_READ_MAX UINT64_C(65536)
#define LPI_AHEADS          16u
#define LPI_AHEAD_BLOCKS    32u

struct lpi_cached;

struct lpi_cached_stats {
	struct lp_block_cache_stats cache;
	uint64_t ahead_reads;  /* of the device */
	uint64_t ahead_blocks; /* in them */
	uint64_t ahead_lost;   /* blocks that did not come, were bad, or came too late */
	uint64_t ahead_waits;  /* of reads, for blocks on their way */
	uint64_t bytes;        /* buffers, including those that readers hold */
};

/* Memory beside the budget, if the budget may become bytes_max. */
uint64_t lpi_cached_own_bytes(uint64_t bytes_max);
/* Makes block->cached. It stays NULL when bytes is 0, and then no call has a cost. bytes_max: the
 * largest size that it may be resized to. -ENOMEM. */
int lpi_cached_open(struct lpi_block *block, uint64_t bytes, uint64_t bytes_max) LP_MUST_CHECK;
/* No block may be on its way. Also when there is no cache. */
void lpi_cached_close(struct lpi_block *block);
bool lpi_cached_is_idle(const struct lpi_block *block);
/* Drops all blocks, because none of them is known to be on the device (rule L7). None may be on its
 * way. */
void lpi_cached_forget(struct lpi_block *block);
/* bytes: all that the cache uses, buffers and their administration. */
void lpi_cached_resize(struct lpi_cached *cached, uint64_t bytes);
/* Drops this many bytes of blocks, then gives back memory without buffers. True: there were some.
 */
bool lpi_cached_rest(struct lpi_cached *cached, uint64_t bytes);
/* Called once a second. */
void lpi_cached_look(struct lpi_cached *cached);
void lpi_cached_read_stats(const struct lpi_cached *cached, struct lpi_cached_stats *ret_stats);
bool lpi_cached_is_full(const struct lpi_cached *cached);

/* --- Changes of blocks, in the same turn as the map ------------------------------------------- */

/* Puts the freeing of these blocks into the collecting group. The only way to do it. Blocks of a
 * damaged map that are not all taken are left as they are, and recorded. */
void lpi_block_freed(struct lpi_block *block, struct lp_extent extent);
/* The same for a payload of a block that may have had another content. */
void lpi_block_defer(struct lpi_block *block, const struct lp_log_payload *about,
		     struct lp_seg seg);

/* --- Reads ------------------------------------------------------------------------------------ */

/* The block's content, borrowed until the next call; or NULL. goes_on: as in
 * store/cache/block_cache.h.
 */
const struct lp_seg *lpi_cached_find(struct lpi_cached *cached, uint64_t device_block, uint32_t crc,
				     bool goes_on);
/* A buffer for a block that will be kept; NULL when there is none. */
struct lp_buf *lpi_cached_buf(struct lpi_cached *cached) LP_MUST_CHECK;
uint64_t lpi_cached_now(const struct lpi_cached *cached);
/* Whether some version of the block is kept. */
bool lpi_cached_has(const struct lpi_cached *cached, uint64_t device_block);
/* Keeps a block that was read and verified. False when it is not kept. */
bool lpi_cached_keep(struct lpi_cached *cached, const struct lp_block_cache_item *item);
/* The kept content turned out to be bad. */
void lpi_cached_drop(struct lpi_cached *cached, uint64_t device_block);

/* --- Reading ahead ---------------------------------------------------------------------------- */

/* The stream that a read continues, if it is sequential. Called once for each read. */
struct lp_stream *lpi_ahead_see(struct lpi_cached *cached, struct lp_ino ino, uint64_t offset,
				uint64_t length);
/* Called while the reader's own blocks are being read; the hold has the claim. Requests more blocks
 * if it is time. */
void lpi_ahead_go_on(struct lpi_cached *cached, struct lpi_hold *hold, struct lpi_inode *inode,
		     struct lp_stream *stream);
/* True when some of the extent is on its way: the waiter is told when it has come, or will not
 * come. */
bool lpi_ahead_wait(struct lpi_cached *cached, struct lp_extent extent,
		    struct lp_commit_waiter *waiter);

#endif
