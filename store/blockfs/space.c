/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks for files, in chunks leased for FILES: a bitmap per chunk, first fit, in units of 1 MiB,
 * 64 KiB and a block, the largest that the request has and a chunk can give. A chunk is leased
 * before a smaller unit is tried, and the next tier is used only when a tier can give no unit at
 * all.
 *
 * What is allocated here and not in a durable record is free again after a crash; what is freed
 * here was freed by a durable record before (rule S1). So a chunk whose bitmap is empty may be
 * returned at once. */
#include "store/blockfs/impl.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"

static const uint32_t units[] = {256, 16, 1};

/* --- Maps ------------------------------------------------------------------------------------ */

int lpi_map_reserve(struct lpi_map *map, size_t extra_cnt)
{
	if (map->room - map->cnt >= extra_cnt)
		return 0;
	size_t room = LP_MAX(map->cnt + extra_cnt, map->room * 2);
	struct lpi_run *runs = reallocarray(map->runs, room, sizeof(*runs));
	if (runs == NULL)
		return -ENOMEM;
	map->runs = runs;
	map->room = room;
	return 0;
}

void lpi_map_append(struct lpi_map *map, struct lpi_run run)
{
	LP_ASSERT(run.cnt != 0);
	if (map->cnt != 0) {
		struct lpi_run *last = &map->runs[map->cnt - 1];
		if (last->tier == run.tier && last->block + last->cnt == run.block &&
		    run.cnt <= UINT32_MAX - last->cnt) {
			last->cnt += run.cnt;
			return;
		}
	}
	LP_ASSERT(map->cnt < map->room);
	map->runs[map->cnt++] = run;
}

uint64_t lpi_map_blocks(const struct lpi_map *map)
{
	uint64_t cnt = 0;
	for (size_t i = 0; i < map->cnt; i++)
		cnt += map->runs[i].cnt;
	return cnt;
}

void lpi_map_fini(struct lpi_map *map)
{
	free(map->runs);
	*map = (struct lpi_map){.runs = NULL};
}

/* --- Chunks ---------------------------------------------------------------------------------- */

static void chunk_free(struct lpi_chunk *chunk)
{
	free(chunk->used.words);
	free(chunk);
}

/* The position of the first leased chunk that is not before chunk_idx. */
static size_t chunk_lower(const struct lpi_tier *tier, uint32_t chunk_idx)
{
	size_t low = 0;
	size_t high = tier->leased_cnt;
	while (low < high) {
		size_t mid = low + (high - low) / 2;
		if (tier->leased[mid]->chunk_idx < chunk_idx)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

static struct lpi_chunk *chunk_of(const struct lpi_tier *tier, uint64_t block)
{
	uint32_t chunk_idx = lp_chunks_of_block(tier->chunks, block);
	size_t pos = chunk_idx == LP_CHUNK_NONE ? tier->leased_cnt : chunk_lower(tier, chunk_idx);
	if (pos == tier->leased_cnt || tier->leased[pos]->chunk_idx != chunk_idx)
		return NULL;
	return tier->leased[pos];
}

static int tier_reserve(struct lpi_tier *tier)
{
	if (tier->leased_cnt < tier->leased_room)
		return 0;
	size_t room = LP_MAX(16, tier->leased_room * 2);
	struct lpi_chunk **leased = reallocarray((void *)tier->leased, room, sizeof(void *));
	if (leased == NULL)
		return -ENOMEM;
	tier->leased = leased;
	tier->leased_room = room;
	return 0;
}

static struct lpi_chunk *chunk_new(uint32_t chunk_blocks)
{
	struct lpi_chunk *chunk = calloc(1, sizeof(*chunk));
	uint64_t *words = calloc(lp_bitmap_word_cnt(chunk_blocks), sizeof(*words));
	if (chunk == NULL || words == NULL) {
		free(chunk);
		free(words);
		return NULL;
	}
	lp_bitmap_init(&chunk->used, words, chunk_blocks);
	chunk->free_cnt = chunk_blocks;
	return chunk;
}

/* Cannot fail after tier_reserve(). */
static void tier_insert(struct lpi_tier *tier, struct lpi_chunk *chunk, uint32_t chunk_idx)
{
	size_t pos = chunk_lower(tier, chunk_idx);
	LP_ASSERT(tier->leased_cnt < tier->leased_room);
	LP_ASSERT(pos == tier->leased_cnt || tier->leased[pos]->chunk_idx != chunk_idx);
	chunk->chunk_idx = chunk_idx;
	chunk->first_block = lp_chunks_extent(tier->chunks, chunk_idx).block;
	memmove((void *)(tier->leased + pos + 1), (void *)(tier->leased + pos),
		(tier->leased_cnt - pos) * sizeof(void *));
	tier->leased[pos] = chunk;
	tier->leased_cnt++;
	tier->free_blocks += chunk->free_cnt;
}

/* What is leased has space of the host of an image, and keeps it while files come and go in it. So
 * the index can be written, and what is removed can be forgotten, when the host has nothing left
 * (rules L8, S7). */
static int secure(const struct lpi_tier *tier, uint32_t chunk_idx)
{
	struct lp_extent extent = lp_chunks_extent(tier->chunks, chunk_idx);
	return lp_bdev_secure(tier->bdev, extent.cnt * LP_BLOCK_BYTES,
			      extent.block * LP_BLOCK_BYTES);
}

/* What is obvious is known before anything is written. */
static bool may_secure(const struct lpi_tier *tier)
{
	struct lp_bdev_host host;
	uint64_t need_bytes = (uint64_t)lp_chunks_chunk_blocks(tier->chunks) * LP_BLOCK_BYTES;
	return lp_bdev_read_host(tier->bdev, &host) < 0 || host.free_bytes >= need_bytes ||
	       host.absent_bytes < need_bytes;
}

/* Nothing names what is in it: the host of an image may have it back. */
static void unsecure(const struct lpi_tier *tier, uint32_t chunk_idx)
{
	struct lp_extent extent = lp_chunks_extent(tier->chunks, chunk_idx);
	if (!lp_bdev_caps(tier->bdev)->is_file)
		return;
	int err = lp_bdev_discard_sync(tier->bdev, extent.cnt * LP_BLOCK_BYTES,
				       extent.block * LP_BLOCK_BYTES);
	(void)err; /* then the host does not have it back yet */
}

static int lease_secured(struct lpi_space *space, struct lpi_tier *tier, uint32_t hint,
			 uint32_t *ret_chunk_idx)
{
	uint32_t chunk_idx = 0;
	if (!may_secure(tier))
		return -ENOSPC;
	int err = lp_chunks_lease(tier->chunks, space->shard_idx, LP_CHUNK_USE_FILES, hint,
				  &chunk_idx);
	if (err < 0)
		return err;
	err = secure(tier, chunk_idx);
	if (err < 0) {
		unsecure(tier, chunk_idx);
		/* As of one that is returned when it is empty. */
		tier->keeps_chunks = lp_chunks_return(tier->chunks, space->shard_idx,
						      LP_CHUNK_USE_FILES, chunk_idx) < 0;
		return err;
	}
	*ret_chunk_idx = chunk_idx;
	return 0;
}

/* Memory first, so that a lease is never without a place here. */
static int tier_lease(struct lpi_space *space, struct lpi_tier *tier)
{
	uint32_t chunk_idx = 0;
	uint32_t hint = tier->leased_cnt == 0 ? 0 : tier->leased[tier->leased_cnt - 1]->chunk_idx;
	if (space->read_only)
		return -EROFS;
	int err = tier_reserve(tier);
	if (err < 0)
		return err;
	struct lpi_chunk *chunk = chunk_new(lp_chunks_chunk_blocks(tier->chunks));
	if (chunk == NULL)
		return -ENOMEM;
	err = lease_secured(space, tier, hint, &chunk_idx);
	if (err < 0) {
		chunk_free(chunk);
		return err;
	}
	tier_insert(tier, chunk, chunk_idx);
	return 0;
}

static int tier_load(struct lpi_space *space, struct lpi_tier *tier)
{
	uint32_t shard_idx = space->shard_idx;
	uint32_t idx = lp_chunks_find(tier->chunks, shard_idx, LP_CHUNK_USE_FILES, 0);
	while (idx != LP_CHUNK_NONE) {
		struct lpi_chunk *chunk = chunk_new(lp_chunks_chunk_blocks(tier->chunks));
		if (chunk == NULL)
			return -ENOMEM;
		if (tier_reserve(tier) < 0) {
			chunk_free(chunk);
			return -ENOMEM;
		}
		tier_insert(tier, chunk, idx);
		/* Of an image that was copied sparsely, or is older than this promise. Where the
		 * host is full already it is as it was. */
		int err = space->read_only ? 0 : secure(tier, idx);
		(void)err;
		idx = lp_chunks_find(tier->chunks, shard_idx, LP_CHUNK_USE_FILES, idx + 1);
	}
	return 0;
}

static void tier_add(struct lpi_space *space, const struct lp_blockfs_device *device, uint8_t role)
{
	if (device->bdev == NULL)
		return;
	LP_ASSERT(device->chunks != NULL);
	space->tiers[space->tier_cnt++] =
		(struct lpi_tier){.bdev = device->bdev, .chunks = device->chunks, .role = role};
}

int lpi_space_init(struct lpi_space *space, const struct lp_blockfs_options *options)
{
	*space = (struct lpi_space){.shard_idx = options->shard_idx,
				    .read_only = options->read_only};
	if (pthread_mutex_init(&space->lock, NULL) != 0)
		return -ENOMEM;
	space->reserve_blocks = options->reserve_bytes >> LP_BLOCK_SHIFT;
	tier_add(space, &options->db, LP_DISK_ROLE_DB);
	tier_add(space, &options->data, LP_DISK_ROLE_DATA);
	LP_ASSERT(space->tier_cnt != 0);
	int err = 0;
	for (uint32_t i = 0; i < space->tier_cnt && err == 0; i++)
		err = tier_load(space, &space->tiers[i]);
	if (err < 0)
		lpi_space_fini(space);
	return err;
}

void lpi_space_fini(struct lpi_space *space)
{
	for (uint32_t i = 0; i < space->tier_cnt; i++) {
		for (size_t k = 0; k < space->tiers[i].leased_cnt; k++)
			chunk_free(space->tiers[i].leased[k]);
		free((void *)space->tiers[i].leased);
	}
	space->tier_cnt = 0;
	(void)pthread_mutex_destroy(&space->lock); /* fails only when held: our bug */
}

uint32_t lpi_space_tier(const struct lpi_space *space, uint8_t role)
{
	for (uint32_t i = 0; i < space->tier_cnt; i++)
		if (space->tiers[i].role == role)
			return i;
	return LPI_TIER_MAX;
}

/* --- Blocks ---------------------------------------------------------------------------------- */

static void run_set(struct lpi_tier *tier, struct lpi_chunk *chunk, uint64_t from, uint32_t cnt)
{
	lp_bitmap_set(&chunk->used, from, from + cnt);
	chunk->free_cnt -= cnt;
	tier->free_blocks -= cnt;
	tier->used_blocks += cnt;
}

int lpi_space_mark(struct lpi_space *space, struct lpi_run run)
{
	LP_ASSERT(run.tier < space->tier_cnt);
	struct lpi_tier *tier = &space->tiers[run.tier];
	while (run.cnt != 0) {
		struct lpi_chunk *chunk = chunk_of(tier, run.block);
		if (chunk == NULL)
			return LP_CORRUPT(run.block * LP_BLOCK_BYTES,
					  "blockfs: a file has blocks on %s outside of its shard's "
					  "chunks",
					  lp_disk_role_name(tier->role));
		uint64_t from = run.block - chunk->first_block;
		uint32_t cnt = (uint32_t)LP_MIN(run.cnt, chunk->used.bit_cnt - from);
		if (!lp_bitmap_is_clear(&chunk->used, from, from + cnt))
			return LP_CORRUPT(run.block * LP_BLOCK_BYTES,
					  "blockfs: blocks on %s are used twice",
					  lp_disk_role_name(tier->role));
		run_set(tier, chunk, from, cnt);
		run.block += cnt;
		run.cnt -= cnt;
	}
	return 0;
}

/* A run of unit to want_cnt blocks. */
static bool tier_find(struct lpi_tier *tier, uint32_t unit, uint32_t want_cnt,
		      struct lpi_run *ret_run)
{
	for (size_t i = 0; i < tier->leased_cnt && tier->free_blocks >= unit; i++) {
		struct lpi_chunk *chunk = tier->leased[i];
		uint64_t end = chunk->used.bit_cnt;
		if (chunk->free_cnt < unit)
			continue;
		uint64_t from = lp_bitmap_find_clear_run(&chunk->used, 0, end, unit);
		if (from == end)
			continue;
		uint64_t limit = LP_MIN(end, from + want_cnt);
		uint64_t until = lp_bitmap_find_set(&chunk->used, from, limit);
		ret_run->block = chunk->first_block + from;
		ret_run->cnt = (uint32_t)(until - from);
		run_set(tier, chunk, from, ret_run->cnt);
		return true;
	}
	return false;
}

static int tier_alloc(struct lpi_space *space, struct lpi_tier *tier, uint32_t want_cnt,
		      struct lpi_run *ret_run)
{
	int lease_err = 0;
	for (size_t i = 0; i < LP_ARRAY_SIZE(units); i++) {
		if (units[i] > want_cnt)
			continue;
		if (tier_find(tier, units[i], want_cnt, ret_run))
			return 0;
		if (lease_err == 0) {
			lease_err = tier_lease(space, tier);
			if (lease_err == 0 && tier_find(tier, units[i], want_cnt, ret_run))
				return 0;
		}
	}
	return lease_err == 0 ? -ENOSPC : lease_err;
}

static uint64_t free_total(const struct lpi_space *space)
{
	uint64_t cnt = 0;
	for (uint32_t i = 0; i < space->tier_cnt; i++)
		cnt += space->tiers[i].free_blocks;
	return cnt;
}

/* Whoever changed something under the lock ends so. */
static void unlock_space(struct lpi_space *space)
{
	uint64_t used = 0;
	for (uint32_t i = 0; i < space->tier_cnt; i++)
		used += space->tiers[i].used_blocks;
	atomic_store(&space->free_blocks, free_total(space));
	atomic_store(&space->used_blocks, used);
	atomic_store(&space->spilled_blocks, used - space->tiers[0].used_blocks);
	atomic_store(&space->told_spill_cnt, space->spill_cnt);
	lpi_unlock(&space->lock);
}

static void settle_locked(struct lpi_space *space)
{
	for (uint32_t i = 0; i < space->tier_cnt && free_total(space) < space->reserve_blocks;) {
		if (tier_lease(space, &space->tiers[i]) < 0)
			i++;
	}
}

int lpi_space_alloc(struct lpi_space *space, uint32_t want_cnt, struct lpi_run *ret_run)
{
	LP_ASSERT(want_cnt != 0);
	int err = -ENOSPC;
	lpi_blockfs_lock(&space->lock);
	for (uint32_t i = 0; i < space->tier_cnt && err != 0; i++) {
		int tier_err = tier_alloc(space, &space->tiers[i], want_cnt, ret_run);
		if (tier_err == 0)
			ret_run->tier = i;
		/* Of several reasons the one that is not just "full" counts. */
		err = tier_err == -ENOSPC && i > 0 ? err : tier_err;
		if (tier_err == 0 && i > 0)
			space->spill_cnt++;
	}
	if (err == 0)
		settle_locked(space);
	unlock_space(space);
	return err;
}

/* --- Freeing --------------------------------------------------------------------------------- */

/* Gives back empty chunks from the slowest tier and the last chunk on, while the reserve and one
 * chunk more remain, so that a lease and a return do not alternate. */
static void return_empty(struct lpi_space *space)
{
	for (uint32_t i = space->tier_cnt; i-- > 0;) {
		struct lpi_tier *tier = &space->tiers[i];
		uint64_t chunk_blocks = lp_chunks_chunk_blocks(tier->chunks);
		for (size_t k = tier->leased_cnt; k-- > 0 && !tier->keeps_chunks;) {
			struct lpi_chunk *chunk = tier->leased[k];
			if (free_total(space) < space->reserve_blocks + 2 * chunk_blocks)
				break;
			if (chunk->free_cnt != chunk_blocks)
				continue;
			unsecure(tier, chunk->chunk_idx);
			/* When the table could not be written nobody knows whose it is: then it
			 * stays out of use, and others are kept. */
			tier->keeps_chunks =
				lp_chunks_return(tier->chunks, space->shard_idx, LP_CHUNK_USE_FILES,
						 chunk->chunk_idx) < 0;
			tier->free_blocks -= chunk->free_cnt;
			tier->leased_cnt--;
			memmove((void *)(tier->leased + k), (void *)(tier->leased + k + 1),
				(tier->leased_cnt - k) * sizeof(void *));
			chunk_free(chunk);
		}
	}
}

static void free_locked(struct lpi_space *space, struct lpi_run run)
{
	struct lpi_tier *tier = &space->tiers[run.tier];
	while (run.cnt != 0) {
		struct lpi_chunk *chunk = chunk_of(tier, run.block);
		LP_ASSERT(chunk != NULL);
		uint64_t from = run.block - chunk->first_block;
		uint32_t cnt = (uint32_t)LP_MIN(run.cnt, chunk->used.bit_cnt - from);
		LP_ASSERT(lp_bitmap_is_set(&chunk->used, from, from + cnt));
		lp_bitmap_clear(&chunk->used, from, from + cnt);
		chunk->free_cnt += cnt;
		tier->free_blocks += cnt;
		tier->used_blocks -= cnt;
		run.block += cnt;
		run.cnt -= cnt;
	}
}

void lpi_space_free(struct lpi_space *space, struct lpi_run run)
{
	lpi_blockfs_lock(&space->lock);
	free_locked(space, run);
	if (!space->read_only)
		return_empty(space);
	unlock_space(space);
}

void lpi_space_free_map(struct lpi_space *space, const struct lpi_map *map)
{
	lpi_blockfs_lock(&space->lock);
	for (size_t i = 0; i < map->cnt; i++)
		free_locked(space, map->runs[i]);
	if (map->cnt != 0 && !space->read_only)
		return_empty(space);
	unlock_space(space);
}

void lpi_space_settle(struct lpi_space *space)
{
	lpi_blockfs_lock(&space->lock);
	if (!space->read_only) {
		return_empty(space);
		settle_locked(space);
	}
	unlock_space(space);
}
