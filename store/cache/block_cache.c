/* SPDX-License-Identifier: Apache-2.0 */
/* One struct for what is held and for what is only remembered, in one table by block number, and
 * on one of three queues, oldest first:
 *
 *   insert -> SMALL --looked up twice--> MAIN --not looked up any more--> gone
 *                \--else--> GHOST --insert--> MAIN
 *
 * A chain of the table is linked by the entries' own numbers, half as long as pointers. Entries are
 * taken from the array in order before any is taken that came back, so that a cache far from its
 * largest budget does not touch the memory for it. */
#include "store/cache/block_cache.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define LOOKS_MAX     3u    /* more are not counted */
#define LOOKS_MAIN    2u    /* so many in SMALL lead to MAIN */
#define SMALL_PART    10u   /* SMALL is one of so many parts of the budget */
#define REPRIEVES_MAX 64u   /* of one eviction: then the oldest goes, looked up or not */
#define PLACES        4096u /* of the table of invalidations */

enum place { FREE, SMALL, MAIN, GHOST, PLACE_CNT };

struct entry {
	struct lp_list_node node;
	uint64_t block;
	struct lp_seg seg; /* SMALL, MAIN: one reference to its buffer */
	uint32_t crc;
	uint32_t chain; /* the next in its bucket: number + 1; 0 at the end */
	uint8_t place;
	uint8_t looks; /* up to LOOKS_MAX */
	bool is_ahead; /* nobody has looked at it yet */
};

LP_LIST_DEFINE(queue, struct entry, node);

struct lp_block_cache {
	struct lp_bufs *bufs;
	struct entry *entries;
	uint64_t entry_cnt;
	uint64_t taken_cnt; /* of entries: ever used */
	uint32_t *buckets;  /* number + 1 of the first */
	unsigned bucket_shift;
	uint64_t limit_max;
	struct queue queues[PLACE_CNT];
	uint64_t cnts[PLACE_CNT];
	struct lp_block_cache_stats stats; /* what is counted, not what is held */
	bool is_shrinking;                 /* memory goes back to the system */
	uint64_t now;                      /* calls that invalidated */
	uint64_t all_at;                   /* the last that touched every place below */
	uint64_t invalidated_at[PLACES];   /* blocks that have this place: when last */
};

/* --- The table -------------------------------------------------------------------------------- */

/* Numbers of blocks are dense, and chosen by ourselves: a multiplication spreads them. */
static uint32_t *bucket_of(const struct lp_block_cache *cache, uint64_t block)
{
	return &cache->buckets[(block * UINT64_C(0x9e3779b97f4a7c15)) >> cache->bucket_shift];
}

static struct entry *entry_at(const struct lp_block_cache *cache, uint32_t number)
{
	LP_ASSERT(number > 0 && number <= cache->taken_cnt);
	return &cache->entries[number - 1];
}

static struct entry *find(const struct lp_block_cache *cache, uint64_t block)
{
	for (uint32_t number = *bucket_of(cache, block); number != 0;) {
		struct entry *entry = entry_at(cache, number);
		if (entry->block == block)
			return entry;
		number = entry->chain;
	}
	return NULL;
}

static void table_insert(struct lp_block_cache *cache, struct entry *entry)
{
	uint32_t *bucket = bucket_of(cache, entry->block);
	entry->chain = *bucket;
	*bucket = (uint32_t)(entry - cache->entries) + 1;
}

static void table_remove(struct lp_block_cache *cache, struct entry *entry)
{
	uint32_t number = (uint32_t)(entry - cache->entries) + 1;
	uint32_t *link = bucket_of(cache, entry->block);
	while (*link != number)
		link = &entry_at(cache, *link)->chain;
	*link = entry->chain;
	entry->chain = 0;
}

/* --- Entries ---------------------------------------------------------------------------------- */

static bool is_held(const struct entry *entry)
{
	return entry->place == SMALL || entry->place == MAIN;
}

static uint64_t held_cnt(const struct lp_block_cache *cache)
{
	return cache->cnts[SMALL] + cache->cnts[MAIN];
}

static uint64_t small_limit(const struct lp_block_cache *cache)
{
	return LP_MAX(cache->stats.limit_blocks / SMALL_PART, UINT64_C(1));
}

/* As many as main may hold. */
static uint64_t ghost_limit(const struct lp_block_cache *cache)
{
	uint64_t limit = cache->stats.limit_blocks;
	return limit - LP_MIN(small_limit(cache), limit);
}

/* To the young end of a queue. */
static void enqueue(struct lp_block_cache *cache, struct entry *entry, enum place place)
{
	entry->place = (uint8_t)place;
	queue_push_back(&cache->queues[place], entry);
	cache->cnts[place]++;
}

static void dequeue(struct lp_block_cache *cache, struct entry *entry)
{
	LP_ASSERT(cache->cnts[entry->place] > 0);
	queue_remove(entry);
	cache->cnts[entry->place]--;
}

static void drop_seg(struct lp_block_cache *cache, struct entry *entry)
{
	struct lp_buf *buf = entry->seg.buf;
	/* Readers may still have it: then its memory stays. That it does if the system says no. */
	if (cache->is_shrinking && buf->refs == 1)
		(void)madvise(buf->data, LP_BUF_SMALL, MADV_DONTNEED);
	cache->stats.ahead_wasted += entry->is_ahead;
	entry->is_ahead = false;
	lp_buf_put(buf);
	entry->seg = (struct lp_seg){0};
}

static struct entry *take_entry(struct lp_block_cache *cache, uint64_t block)
{
	struct entry *entry = queue_first(&cache->queues[FREE]);
	if (entry != NULL) {
		dequeue(cache, entry);
	} else {
		LP_ASSERT(cache->taken_cnt < cache->entry_cnt);
		entry = &cache->entries[cache->taken_cnt++];
	}
	*entry = (struct entry){.block = block};
	table_insert(cache, entry);
	return entry;
}

/* Held or remembered: neither any more. */
static void forget(struct lp_block_cache *cache, struct entry *entry)
{
	dequeue(cache, entry);
	if (is_held(entry))
		drop_seg(cache, entry);
	table_remove(cache, entry);
	enqueue(cache, entry, FREE);
}

static void trim_ghosts(struct lp_block_cache *cache, uint64_t limit)
{
	while (cache->cnts[GHOST] > limit)
		forget(cache, queue_first(&cache->queues[GHOST]));
}

static void turn_to_ghost(struct lp_block_cache *cache, struct entry *entry)
{
	uint64_t limit = ghost_limit(cache);
	if (limit == 0) {
		forget(cache, entry);
		return;
	}
	trim_ghosts(cache, limit - 1);
	dequeue(cache, entry);
	drop_seg(cache, entry);
	enqueue(cache, entry, GHOST);
}

/* --- Eviction --------------------------------------------------------------------------------- */

/* True when the oldest of the small queue is gone, false when it earned a place in main. */
static bool evict_small(struct lp_block_cache *cache, bool may_stay)
{
	struct entry *entry = queue_first(&cache->queues[SMALL]);
	if (!may_stay || entry->looks < LOOKS_MAIN) {
		turn_to_ghost(cache, entry);
		return true;
	}
	dequeue(cache, entry);
	entry->looks = 0;
	enqueue(cache, entry, MAIN);
	return false;
}

/* True when the oldest of main is gone, false when it has one more round. */
static bool evict_main(struct lp_block_cache *cache, bool may_stay)
{
	struct entry *entry = queue_first(&cache->queues[MAIN]);
	if (!may_stay || entry->looks == 0) {
		forget(cache, entry);
		return true;
	}
	entry->looks--;
	dequeue(cache, entry);
	enqueue(cache, entry, MAIN);
	return false;
}

static void evict_one(struct lp_block_cache *cache)
{
	LP_ASSERT(held_cnt(cache) > 0);
	bool is_gone = false;
	for (uint32_t n = 0; !is_gone; n++) {
		bool may_stay = n < REPRIEVES_MAX;
		if (cache->cnts[SMALL] > small_limit(cache) || cache->cnts[MAIN] == 0)
			is_gone = evict_small(cache, may_stay);
		else
			is_gone = evict_main(cache, may_stay);
	}
	cache->stats.evictions++;
}

void lp_block_cache_resize(struct lp_block_cache *cache, uint64_t limit_blocks)
{
	LP_ASSERT(limit_blocks <= cache->limit_max);
	cache->stats.limit_blocks = limit_blocks;
	cache->is_shrinking = true;
	while (held_cnt(cache) > limit_blocks)
		evict_one(cache);
	cache->is_shrinking = false;
	trim_ghosts(cache, ghost_limit(cache));
}

/* Nothing is held or remembered: entries are as they were when the cache was made, and their memory
 * goes. */
static void drop_entries(struct lp_block_cache *cache)
{
	uintptr_t entries = (uintptr_t)cache->entries;
	uintptr_t begin = lp_align_up(entries, LP_BLOCK_BYTES);
	uintptr_t end =
		lp_align_down(entries + cache->taken_cnt * sizeof(struct entry), LP_BLOCK_BYTES);
	LP_ASSERT(cache->cnts[FREE] == cache->taken_cnt);
	queue_init(&cache->queues[FREE]);
	cache->cnts[FREE] = 0;
	cache->taken_cnt = 0;
	if (begin < end) /* advice: at the worst it stays */
		(void)madvise((uint8_t *)cache->entries + (begin - entries), end - begin,
			      MADV_DONTNEED);
}

void lp_block_cache_shed(struct lp_block_cache *cache, uint64_t blocks)
{
	for (; blocks > 0 && held_cnt(cache) > 0; blocks--)
		evict_one(cache);
	if (held_cnt(cache) > 0 || cache->taken_cnt == 0)
		return;
	trim_ghosts(cache, 0);
	drop_entries(cache);
}

/* --- What was invalidated when ---------------------------------------------------------------- */

static uint64_t *place_of(struct lp_block_cache *cache, uint64_t block)
{
	return &cache->invalidated_at[(block * UINT64_C(0x9e3779b97f4a7c15)) >> 52];
}
_Static_assert(PLACES == 1u << (64 - 52), "place_of() takes the highest bits");

static void note_invalidated(struct lp_block_cache *cache, struct lp_extent extent)
{
	cache->now++;
	if (extent.cnt >= PLACES) {
		cache->all_at = cache->now;
		return;
	}
	for (uint64_t i = 0; i < extent.cnt; i++)
		*place_of(cache, extent.block + i) = cache->now;
}

uint64_t lp_block_cache_now(const struct lp_block_cache *cache)
{
	return cache->now;
}

static bool is_late(struct lp_block_cache *cache, const struct lp_block_cache_item *item)
{
	LP_ASSERT(item->since <= cache->now);
	return LP_MAX(cache->all_at, *place_of(cache, item->block)) > item->since;
}

/* --- Lookup, insert, invalidate --------------------------------------------------------------- */

static void look_at(struct lp_block_cache *cache, struct entry *entry, bool goes_on)
{
	cache->stats.hits++;
	if (entry->is_ahead)
		cache->stats.ahead_used++;
	else if (!goes_on)
		entry->looks = (uint8_t)LP_MIN(entry->looks + 1u, LOOKS_MAX);
	entry->is_ahead = false;
}

const struct lp_seg *lp_block_cache_lookup(struct lp_block_cache *cache, uint64_t block,
					   uint32_t crc, bool goes_on)
{
	struct entry *entry = find(cache, block);
	if (entry != NULL && is_held(entry) && entry->crc == crc) {
		look_at(cache, entry, goes_on);
		return &entry->seg;
	}
	cache->stats.misses++;
	if (entry != NULL && is_held(entry)) {
		cache->stats.stale++;
		forget(cache, entry);
	}
	return NULL;
}

bool lp_block_cache_has(const struct lp_block_cache *cache, uint64_t block)
{
	const struct entry *entry = find(cache, block);
	return entry != NULL && is_held(entry);
}

/* A segment of our own; its buffer is NULL when there is none. */
static struct lp_seg keep(struct lp_block_cache *cache, struct lp_seg seg)
{
	if (seg.buf->bytes == LP_BUF_SMALL && seg.buf->home == cache->bufs)
		return (struct lp_seg){lp_buf_get(seg.buf), seg.offset, seg.len};
	struct lp_buf *copy = lp_buf_new(cache->bufs, LP_BUF_SMALL);
	if (copy == NULL)
		return (struct lp_seg){0};
	cache->stats.copies++;
	memcpy(copy->data, seg.buf->data + seg.offset, seg.len);
	return (struct lp_seg){copy, 0, seg.len};
}

static bool refuse(struct lp_block_cache *cache)
{
	cache->stats.refused++;
	return false;
}

/* The block was rewritten: the new bytes have the place of the old. */
static bool replace(struct lp_block_cache *cache, struct entry *entry, uint32_t crc,
		    struct lp_seg seg)
{
	struct lp_seg kept = keep(cache, seg);
	if (kept.buf == NULL) {
		forget(cache, entry);
		return refuse(cache);
	}
	drop_seg(cache, entry);
	entry->seg = kept;
	entry->crc = crc;
	cache->stats.inserts++;
	return true;
}

static bool insert_new(struct lp_block_cache *cache, const struct lp_block_cache_item *item,
		       bool is_known)
{
	while (held_cnt(cache) >= cache->stats.limit_blocks)
		evict_one(cache);
	struct lp_seg kept = keep(cache, item->seg);
	if (kept.buf == NULL)
		return refuse(cache);
	struct entry *entry = take_entry(cache, item->block);
	entry->seg = kept;
	entry->crc = item->crc;
	entry->is_ahead = item->is_ahead;
	/* Nobody asked for it yet: that it is remembered does not make it wanted. */
	enqueue(cache, entry, is_known && !item->is_ahead ? MAIN : SMALL);
	cache->stats.inserts++;
	cache->stats.ghost_inserts += is_known && !item->is_ahead;
	cache->stats.ahead_inserts += item->is_ahead;
	return true;
}

bool lp_block_cache_insert(struct lp_block_cache *cache, const struct lp_block_cache_item *item)
{
	LP_ASSERT(item->seg.len == LP_BLOCK_BYTES);
	LP_ASSERT(!lp_range_outside(item->seg.offset, item->seg.len, item->seg.buf->bytes));
	if (cache->stats.limit_blocks == 0)
		return refuse(cache);
	if (is_late(cache, item)) {
		cache->stats.late++;
		return false;
	}
	struct entry *entry = find(cache, item->block);
	if (entry != NULL && is_held(entry)) {
		if (entry->crc == item->crc)
			return true;
		cache->stats.stale++;
		return replace(cache, entry, item->crc, item->seg);
	}
	/* No ghost of its own may go to make room for it: it is taken out first. */
	bool is_known = entry != NULL;
	if (is_known)
		forget(cache, entry);
	return insert_new(cache, item, is_known);
}

void lp_block_cache_rewrite(struct lp_block_cache *cache, uint64_t block, uint32_t crc,
			    struct lp_seg seg)
{
	LP_ASSERT(seg.len == LP_BLOCK_BYTES);
	LP_ASSERT(!lp_range_outside(seg.offset, seg.len, seg.buf->bytes));
	note_invalidated(cache, (struct lp_extent){block, 1});
	struct entry *entry = find(cache, block);
	/* Without a buffer it is forgotten, which is as good. */
	if (entry != NULL && is_held(entry))
		(void)replace(cache, entry, crc, seg);
}

static void invalidate_entry(struct lp_block_cache *cache, struct entry *entry)
{
	cache->stats.invalidated += is_held(entry);
	forget(cache, entry);
}

/* In the order of memory, which is several times as fast as along the queues. */
static void invalidate_by_walk(struct lp_block_cache *cache, struct lp_extent extent)
{
	for (uint64_t i = 0; i < cache->taken_cnt; i++) {
		struct entry *entry = &cache->entries[i];
		if (entry->place != FREE && entry->block - extent.block < extent.cnt)
			invalidate_entry(cache, entry);
	}
}

void lp_block_cache_invalidate(struct lp_block_cache *cache, struct lp_extent extent)
{
	LP_ASSERT(extent.cnt <= UINT64_MAX - extent.block);
	note_invalidated(cache, extent);
	uint64_t known_cnt = held_cnt(cache) + cache->cnts[GHOST];
	if (known_cnt == 0)
		return;
	if (extent.cnt > cache->taken_cnt) {
		invalidate_by_walk(cache, extent);
		return;
	}
	for (uint64_t i = 0; i < extent.cnt; i++) {
		struct entry *entry = find(cache, extent.block + i);
		if (entry != NULL)
			invalidate_entry(cache, entry);
	}
}

/* --- Birth, death, figures -------------------------------------------------------------------- */

/* Held ones and as many ghosts at most; ghosts are fewer, by the small queue. */
static uint64_t entries_for(uint64_t limit_max_blocks)
{
	return 2 * limit_max_blocks;
}

/* Most looks are for what is not there: more places than entries, so that few lead to one. */
static unsigned bucket_bits(uint64_t limit_max_blocks)
{
	unsigned bits = 1;
	while ((UINT64_C(1) << bits) < 2 * entries_for(limit_max_blocks))
		bits++;
	return bits;
}

uint64_t lp_block_cache_table_bytes(uint64_t limit_max_blocks)
{
	return sizeof(uint32_t) << bucket_bits(limit_max_blocks);
}

int lp_block_cache_new(struct lp_bufs *bufs, uint64_t limit_blocks, uint64_t limit_max_blocks,
		       struct lp_block_cache **ret_cache)
{
	LP_ASSERT(limit_max_blocks > 0 && limit_max_blocks <= LP_BLOCK_CACHE_BLOCKS_MAX);
	LP_ASSERT(limit_blocks <= limit_max_blocks);
	struct lp_block_cache *cache = calloc(1, sizeof(*cache));
	if (cache == NULL)
		return -ENOMEM;
	cache->bufs = bufs;
	unsigned bits = bucket_bits(limit_max_blocks);
	cache->entry_cnt = entries_for(limit_max_blocks);
	cache->bucket_shift = 64 - bits;
	cache->entries = calloc(cache->entry_cnt, sizeof(*cache->entries));
	cache->buckets = calloc(UINT64_C(1) << bits, sizeof(*cache->buckets));
	if (cache->entries == NULL || cache->buckets == NULL) {
		free(cache->entries);
		free(cache->buckets);
		free(cache);
		return -ENOMEM;
	}
	for (int place = 0; place < PLACE_CNT; place++)
		queue_init(&cache->queues[place]);
	cache->limit_max = limit_max_blocks;
	cache->stats.limit_blocks = limit_blocks;
	*ret_cache = cache;
	return 0;
}

void lp_block_cache_free(struct lp_block_cache *cache)
{
	if (cache == NULL)
		return;
	for (int place = SMALL; place <= MAIN; place++) {
		struct entry *entry;
		LP_LIST_FOREACH (queue, &cache->queues[place], entry)
			drop_seg(cache, entry);
	}
	free(cache->entries);
	free(cache->buckets);
	free(cache);
}

void lp_block_cache_read_stats(const struct lp_block_cache *cache,
			       struct lp_block_cache_stats *ret_stats)
{
	*ret_stats = cache->stats;
	ret_stats->blocks = held_cnt(cache);
	ret_stats->bytes = held_cnt(cache) * LP_BUF_SMALL;
	ret_stats->ghosts = cache->cnts[GHOST];
}

static bool is_entry_sound(const struct lp_block_cache *cache, const struct entry *entry, int place)
{
	if (entry->place != place || entry->looks > LOOKS_MAX)
		return false;
	if (place == FREE)
		return entry->seg.buf == NULL;
	if (find(cache, entry->block) != entry)
		return false;
	if (place == GHOST)
		return entry->seg.buf == NULL;
	return entry->seg.buf != NULL && entry->seg.buf->home == cache->bufs &&
	       entry->seg.buf->bytes == LP_BUF_SMALL && entry->seg.buf->refs > 0;
}

bool lp_block_cache_is_sound(const struct lp_block_cache *cache)
{
	uint64_t sum = 0;
	for (int place = 0; place < PLACE_CNT; place++) {
		uint64_t cnt = 0;
		const struct entry *entry;
		LP_LIST_FOREACH (queue, &cache->queues[place], entry) {
			cnt++;
			if (!is_entry_sound(cache, entry, place))
				return false;
		}
		if (cnt != cache->cnts[place])
			return false;
		sum += cnt;
	}
	return sum == cache->taken_cnt && held_cnt(cache) <= cache->stats.limit_blocks &&
	       cache->cnts[GHOST] <= ghost_limit(cache);
}
