/* SPDX-License-Identifier: Apache-2.0 */
/* Budget: a block costs its 4 KiB and its entries in the tables. The hash table is touched at
 * random, so it is in memory as a whole whatever the budget is, and is counted beside it. A part is
 * reserved for blocks on their way to the cache and for blocks that readers still hold. A reader
 * that finds this part used up takes a buffer of the store, and the cache copies. The region is as
 * large as the largest budget needs. Memory is touched only up to the present budget, and given
 * back when the budget shrinks. */
#include "store/block/core/data_cache.h"

#include <stdlib.h>

#include "base/crc32c.h"
#include "base/error.h"

#define BLOCK_COST  (LP_BLOCK_BYTES + UINT64_C(160)) /* entry, ghost, buffer's head */
#define SPARE_PART  8u                               /* of the budget */
#define SPARE_MAX   (UINT64_C(4) << 20)
#define UNUSED_PART 20u /* of the cache: half of its small queue */

/* One read of blocks that no reader asked for yet. */
struct lpi_ahead {
	struct lpi_block_job job;
	struct lpi_cached *cached;
	struct lp_extent extent;
	uint64_t since;
	struct lpi_waiter_list waiters;
	struct lp_list_node node; /* list of free or of running ones */
	uint32_t crcs[LPI_AHEAD_BLOCKS];
};

LP_LIST_DEFINE(ahead_list, struct lpi_ahead, node);

struct lpi_cached {
	struct lpi_block *block;
	struct lp_bufs *bufs;
	struct lp_block_cache *cache;
	uint64_t limit_blocks;
	uint64_t used_bytes_max; /* largest use of bufs */
	uint64_t forgotten;      /* unused blocks in the cache that are not waited for any more */
	struct ahead_list free;
	struct ahead_list running;
	uint64_t running_blocks;
	uint64_t ahead_reads;
	uint64_t ahead_blocks;
	uint64_t ahead_lost;
	uint64_t ahead_waits;
	struct lpi_ahead aheads[LPI_AHEADS];
	struct lp_streams streams;
};

/* --- Budget ----------------------------------------------------------------------------------- */

static uint64_t spare_of(uint64_t bytes)
{
	return LP_MIN(bytes / SPARE_PART, SPARE_MAX);
}

static uint64_t blocks_of(uint64_t bytes)
{
	uint64_t blocks = (bytes - spare_of(bytes)) / BLOCK_COST;
	return LP_MIN(LP_MAX(blocks, UINT64_C(1)), LP_BLOCK_CACHE_BLOCKS_MAX);
}

static void set_limits(struct lpi_cached *cached, uint64_t bytes)
{
	cached->limit_blocks = blocks_of(bytes);
	cached->used_bytes_max = cached->limit_blocks * LP_BLOCK_BYTES + spare_of(bytes);
}

void lpi_cached_resize(struct lpi_cached *cached, uint64_t bytes)
{
	set_limits(cached, bytes);
	lp_block_cache_resize(cached->cache, cached->limit_blocks);
}

bool lpi_cached_rest(struct lpi_cached *cached, uint64_t bytes)
{
	struct lp_block_cache_stats stats;
	uint64_t before = lp_bufs_resident_bytes(cached->bufs);
	lp_block_cache_read_stats(cached->cache, &stats);
	lp_block_cache_shed(cached->cache, bytes / LP_BLOCK_BYTES);
	if (before == 0)
		return false;
	(void)lp_bufs_reach(cached->bufs);
	lp_bufs_trim(cached->bufs, 0);
	return stats.blocks > 0 || lp_bufs_resident_bytes(cached->bufs) < before;
}

uint64_t lpi_cached_own_bytes(uint64_t bytes_max)
{
	return sizeof(struct lpi_cached) + lp_block_cache_table_bytes(blocks_of(bytes_max));
}

static uint64_t used_bytes(const struct lpi_cached *cached)
{
	struct lp_bufs_stats stats;
	lp_bufs_read_stats(cached->bufs, &stats);
	return stats.used_bytes;
}

bool lpi_cached_is_full(const struct lpi_cached *cached)
{
	struct lp_block_cache_stats stats;
	lp_block_cache_read_stats(cached->cache, &stats);
	return stats.blocks >= stats.limit_blocks - stats.limit_blocks / 8;
}

void lpi_cached_read_stats(const struct lpi_cached *cached, struct lpi_cached_stats *ret_stats)
{
	*ret_stats = (struct lpi_cached_stats){
		.ahead_reads = cached->ahead_reads,
		.ahead_blocks = cached->ahead_blocks,
		.ahead_lost = cached->ahead_lost,
		.ahead_waits = cached->ahead_waits,
		.bytes = used_bytes(cached),
	};
	lp_block_cache_read_stats(cached->cache, &ret_stats->cache);
}

/* --- Birth and death -------------------------------------------------------------------------- */

int lpi_cached_open(struct lpi_block *block, uint64_t bytes, uint64_t bytes_max)
{
	LP_ASSERT(bytes <= bytes_max && block->cached == NULL);
	if (bytes == 0)
		return 0;
	struct lpi_cached *cached = calloc(1, sizeof(*cached));
	if (cached == NULL)
		return -ENOMEM;
	uint64_t region = blocks_of(bytes_max) * LP_BLOCK_BYTES + spare_of(bytes_max);
	cached->block = block;
	set_limits(cached, bytes);
	ahead_list_init(&cached->free);
	ahead_list_init(&cached->running);
	for (uint32_t i = 0; i < LPI_AHEADS; i++) {
		cached->aheads[i].cached = cached;
		ahead_list_push_back(&cached->free, &cached->aheads[i]);
	}
	block->cached = cached;
	int err = lp_bufs_new(lp_align_up(region, LP_BUF_LARGE), &cached->bufs);
	if (err == 0)
		err = lp_block_cache_new(cached->bufs, cached->limit_blocks, blocks_of(bytes_max),
					 &cached->cache);
	if (err < 0)
		lpi_cached_close(block);
	return err;
}

void lpi_cached_close(struct lpi_block *block)
{
	struct lpi_cached *cached = block->cached;
	if (cached == NULL)
		return;
	LP_ASSERT(lpi_cached_is_idle(block));
	lp_block_cache_free(cached->cache);
	lp_bufs_free(cached->bufs);
	free(cached);
	block->cached = NULL;
}

bool lpi_cached_is_idle(const struct lpi_block *block)
{
	return block->cached == NULL || ahead_list_is_empty(&block->cached->running);
}

void lpi_cached_forget(struct lpi_block *block)
{
	struct lpi_cached *cached = block->cached;
	LP_ASSERT(lpi_cached_is_idle(block));
	if (cached != NULL)
		lp_block_cache_invalidate(cached->cache, (struct lp_extent){0, UINT64_MAX});
}

/* --- Changes of blocks -------------------------------------------------------------------------
 */

void lpi_block_freed(struct lpi_block *block, struct lp_extent extent)
{
	if (block->cached != NULL)
		lp_block_cache_invalidate(block->cached->cache, extent);
	if (LP_LIKELY(lp_space_is_taken(block->space, extent))) {
		lp_shard_freed(block->shard, extent);
		return;
	}
	/* A map that contradicts the space is damage. If these blocks were freed, the next owner of
	 * a block that is free already could lose it before this is durable. So all of the extent
	 * stays as it is; the group has reserved room for one change only. */
	int err = LP_CORRUPT(extent.block << LP_BLOCK_SHIFT,
			     "blocks %llu to %llu, which a map names, are not all taken",
			     (unsigned long long)extent.block,
			     (unsigned long long)lp_extent_end(extent) - 1);
	(void)err; /* it has been recorded */
}

void lpi_block_defer(struct lpi_block *block, const struct lp_log_payload *about, struct lp_seg seg)
{
	if (block->cached != NULL)
		lp_block_cache_rewrite(block->cached->cache, about->device_block, about->crc, seg);
	lp_shard_defer(block->shard, about, seg);
}

/* --- Reads ------------------------------------------------------------------------------------ */

const struct lp_seg *lpi_cached_find(struct lpi_cached *cached, uint64_t device_block, uint32_t crc,
				     bool goes_on)
{
	return lp_block_cache_lookup(cached->cache, device_block, crc, goes_on);
}

struct lp_buf *lpi_cached_buf(struct lpi_cached *cached)
{
	return used_bytes(cached) < cached->used_bytes_max ? lp_buf_new(cached->bufs, LP_BUF_SMALL)
							   : NULL;
}

uint64_t lpi_cached_now(const struct lpi_cached *cached)
{
	return lp_block_cache_now(cached->cache);
}

bool lpi_cached_has(const struct lpi_cached *cached, uint64_t device_block)
{
	return lp_block_cache_has(cached->cache, device_block);
}

bool lpi_cached_keep(struct lpi_cached *cached, const struct lp_block_cache_item *item)
{
	return lp_block_cache_insert(cached->cache, item);
}

void lpi_cached_drop(struct lpi_cached *cached, uint64_t device_block)
{
	lp_block_cache_invalidate(cached->cache, (struct lp_extent){device_block, 1});
}

/* --- Completion of reading ahead ----------------------------------------------------------------
 */

static void tell(struct lpi_waiter_list *waiters)
{
	struct lp_commit_waiter *waiter;
	while ((waiter = lpi_waiter_list_pop_front(waiters)) != NULL)
		waiter->told(waiter, 0);
}

/* The memory of the io is one buffer per block. */
static void keep_all(struct lpi_ahead *ahead)
{
	struct lpi_cached *cached = ahead->cached;
	const struct lpi_io *io = lpi_io_list_first(&ahead->job.ios);
	LP_ASSERT(io != NULL && io->iov_cnt == ahead->extent.cnt);
	for (uint32_t i = 0; i < io->iov_cnt; i++) {
		const struct lp_block_cache_item item = {
			.block = ahead->extent.block + i,
			.since = ahead->since,
			.seg = {io->bufs[i], 0, (uint32_t)LP_BLOCK_BYTES},
			.crc = ahead->crcs[i],
			.is_ahead = true,
		};
		bool is_good = ahead->job.result == 0 &&
			       lp_crc32c(0, io->bufs[i]->data, LP_BLOCK_BYTES) == ahead->crcs[i];
		cached->ahead_lost += !is_good || !lpi_cached_keep(cached, &item);
	}
}

static void ahead_ended(struct lpi_block_job *job)
{
	struct lpi_ahead *ahead = LP_CONTAINER_OF(job, struct lpi_ahead, job);
	struct lpi_cached *cached = ahead->cached;
	struct lpi_waiter_list waiters;
	lpi_waiter_list_init(&waiters);
	keep_all(ahead);
	lpi_block_job_fini(job);
	lpi_block_memory_freed(cached->block);
	ahead_list_remove(ahead);
	cached->running_blocks -= ahead->extent.cnt;
	ahead_list_push_back(&cached->free, ahead);
	/* A waiter that is told may read ahead again, in this slot. */
	lpi_waiter_list_splice_back(&waiters, &ahead->waiters);
	tell(&waiters);
}

bool lpi_ahead_wait(struct lpi_cached *cached, struct lp_extent extent,
		    struct lp_commit_waiter *waiter)
{
	struct lpi_ahead *ahead;
	LP_LIST_FOREACH (ahead_list, &cached->running, ahead) {
		bool is_apart = lp_extent_end(extent) <= ahead->extent.block ||
				lp_extent_end(ahead->extent) <= extent.block;
		if (is_apart)
			continue;
		cached->ahead_waits++;
		lpi_waiter_list_push_back(&ahead->waiters, waiter);
		return true;
	}
	return false;
}

/* --- Reading ahead ---------------------------------------------------------------------------- */

static uint64_t unused_blocks(const struct lpi_cached *cached)
{
	struct lp_block_cache_stats stats;
	lp_block_cache_read_stats(cached->cache, &stats);
	return stats.ahead_inserts - stats.ahead_used - stats.ahead_wasted;
}

void lpi_cached_look(struct lpi_cached *cached)
{
	uint64_t unused = unused_blocks(cached);
	cached->forgotten = LP_MIN(cached->forgotten, unused);
	cached->forgotten += (unused - cached->forgotten + 1) / 2;
}

/* How many more blocks may be on their way. */
static uint64_t room(const struct lpi_cached *cached)
{
	uint64_t most = cached->limit_blocks / UNUSED_PART;
	uint64_t unused = unused_blocks(cached);
	uint64_t taken = unused - LP_MIN(cached->forgotten, unused) + cached->running_blocks;
	return most - LP_MIN(taken, most);
}

/* Operations wait for resources that reading ahead would take. */
static bool is_busy(const struct lpi_cached *cached)
{
	const struct lpi_block *block = cached->block;
	return ahead_list_is_empty(&cached->free) ||
	       !lpi_op_list_is_empty(&block->slots.waiting_reads) ||
	       !lpi_waiter_list_is_empty(&block->slots.memory_waiters) ||
	       lp_pool_free_cnt(block->ios) <= LPI_READ_IOS_MAX;
}

static bool is_on_its_way(const struct lpi_cached *cached, uint64_t device_block)
{
	const struct lpi_ahead *ahead;
	LP_LIST_FOREACH (ahead_list, &cached->running, ahead) {
		if (device_block - ahead->extent.block < ahead->extent.cnt)
			return true;
	}
	return false;
}

static bool is_wanted(const struct lpi_cached *cached, uint64_t device_block)
{
	struct lp_seg seg;
	uint32_t crc;
	return !lpi_cached_has(cached, device_block) &&
	       !lp_pending_find(cached->block->pending, device_block, &seg, &crc) &&
	       !is_on_its_way(cached, device_block);
}

/* One buffer per block, for as many as there are buffers; false when there is none. */
static bool fill(struct lpi_cached *cached, struct lpi_io *io)
{
	for (uint64_t i = 0; i < io->extent.cnt; i++) {
		struct lp_buf *buf = lpi_cached_buf(cached);
		if (buf == NULL)
			break;
		bool fits = lpi_io_add(io, (struct lp_seg){buf, 0, (uint32_t)LP_BLOCK_BYTES});
		LP_ASSERT(fits);
		lp_buf_put(buf);
	}
	io->extent.cnt = io->iov_cnt;
	return io->iov_cnt > 0;
}

/* Reads one run of blocks on the device, not longer than one read may be. */
static bool submit(struct lpi_cached *cached, struct lp_extent extent, const uint32_t *crcs)
{
	if (is_busy(cached))
		return false;
	struct lpi_ahead *ahead = ahead_list_first(&cached->free);
	lpi_block_job_init(&ahead->job, cached->block, ahead_ended);
	struct lpi_io *io = lpi_block_job_add(&ahead->job, LP_BDEV_READ, extent);
	if (io == NULL || !fill(cached, io)) {
		lpi_block_job_fini(&ahead->job);
		return false;
	}
	bool is_whole = io->extent.cnt == extent.cnt;
	ahead->extent = io->extent;
	ahead->since = lpi_cached_now(cached);
	for (uint64_t i = 0; i < ahead->extent.cnt; i++)
		ahead->crcs[i] = crcs[i];
	lpi_waiter_list_init(&ahead->waiters);
	ahead_list_remove(ahead);
	ahead_list_push_back(&cached->running, ahead);
	cached->running_blocks += ahead->extent.cnt;
	cached->ahead_reads++;
	cached->ahead_blocks += ahead->extent.cnt;
	lpi_block_job_run(&ahead->job);
	return is_whole;
}

/* Reads the wanted blocks of an extent of the file; false when there is no room for more. */
static bool read_extent(struct lpi_cached *cached, struct lp_extent extent, const uint32_t *crcs)
{
	for (uint64_t at = 0; at < extent.cnt;) {
		uint64_t run = 0;
		while (at + run < extent.cnt && run < LPI_AHEAD_BLOCKS &&
		       is_wanted(cached, extent.block + at + run))
			run++;
		if (run > 0 &&
		    !submit(cached, (struct lp_extent){extent.block + at, run}, crcs + at))
			return false;
		at += LP_MAX(run, UINT64_C(1));
	}
	return true;
}

/* Looks up the range, or its beginning as far as the map needs no waiting. */
static int look_up(struct lpi_cached *cached, struct lpi_hold *hold, struct lpi_inode *inode,
		   struct lp_extmap_range *range)
{
	struct lpi_block *block = cached->block;
	for (uint32_t tries = 0; tries <= 2 * LP_STREAMS_WINDOW_MAX / LP_EXTMAP_LEAF_BLOCKS;
	     tries++) {
		int cnt = lp_extmap_lookup(&inode->map, *range, block->scratch.segments,
					   (int)LPI_SCRATCH_BLOCKS, block->scratch.crcs);
		if (cnt != -EAGAIN)
			return cnt;
		if (lpi_leaves_get(&hold->warmer, inode, hold->is_kept) == 0)
			continue;
		uint64_t known_end =
			(uint64_t)lp_extmap_missing(&inode->map).first * LP_EXTMAP_LEAF_BLOCKS;
		if (known_end <= range->first)
			return -EAGAIN;
		range->cnt = LP_MIN(range->cnt, known_end - range->first);
	}
	return -EAGAIN;
}

void lpi_ahead_go_on(struct lpi_cached *cached, struct lpi_hold *hold, struct lpi_inode *inode,
		     struct lp_stream *stream)
{
	const struct lpi_block *block = cached->block;
	struct lp_extmap_range range = {0};
	uint64_t end = lp_bytes_to_blocks_up(inode->rec.size_bytes);
	range.cnt = LP_MIN(lp_stream_want(stream, end, &range.first), room(cached));
	if (range.cnt == 0 || is_busy(cached))
		return;
	int cnt = look_up(cached, hold, inode, &range);
	bool has_room = true;
	for (int i = 0; i < cnt && has_room; i++) {
		const struct lp_extmap_segment *segment = &block->scratch.segments[i];
		const struct lp_extent extent = {segment->block, segment->range.cnt};
		/* An extent outside of the shard's space is damage: its reader will get the error.
		 */
		if (segment->kind == LP_EXTMAP_DATA && lp_space_has(block->space, extent))
			has_room = read_extent(cached, extent,
					       block->scratch.crcs +
						       (segment->range.first - range.first));
	}
	/* Blocks that found no room are not requested again, because the reader will ask for them
	 * itself. */
	if (cnt > 0)
		lp_stream_asked(stream, range.first, range.cnt);
}

struct lp_stream *lpi_ahead_see(struct lpi_cached *cached, struct lp_ino ino, uint64_t offset,
				uint64_t length)
{
	return lp_streams_read(&cached->streams, ino, offset, length);
}
