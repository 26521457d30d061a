/* SPDX-License-Identifier: Apache-2.0 */
/* The pending content of a block is a chain of versions, newest first, and the newest one is in the
 * bucket of its block:
 *
 *        newest                                         oldest
 *        LOGGED ... LOGGED   one of READY, WRITING, WRITTEN               (WRITING, doomed)
 *        not durable         the durable one, if there is one             superseded meanwhile
 *
 *   LOGGED -> READY        its frame is durable; the durable version before it is done
 *   READY -> WRITING       chosen
 *   WRITING -> WRITTEN     written; but a doomed one is done instead
 *   WRITING -> READY       the write failed
 *   READY -> STUCK         the write failed too often
 *   LOGGED -> STUCK, SETTLED   its frame is durable, and it was added so
 *   WRITTEN -> done        a flush that was submitted later has completed; -> READY if it failed
 *   any but WRITING -> done   superseded or freed; WRITING becomes doomed
 *
 * Versions that only their frame has are on one list in the order of their frames. Its head is the
 * version of the oldest frame still needed. Versions that the index keeps are on another list. Each
 * state except WRITING has a list of its own. WRITTEN has two: versions written before the flush
 * under way, and after its begin.
 *
 * Thousands of other versions are used between two uses of one, so it is in no CPU cache when it is
 * used. Therefore versions are looked at seldom, and prefetched when the next one is known. Blocks
 * are chosen from the head of the READY list, so that the log's start moves on. They are chosen in
 * batches sorted by block, so that the device sees them in order. Each is written with its
 * neighbours, whatever their age, so that a part of the device with many waiting blocks gets few
 * writes.
 */
#include "store/commit/deferred_payloads.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory/pool.h"

#define SORT_BATCH 1024u
#define FREED_MIN  256u
#define DIGIT_BITS 8u
#define DIGITS     (1u << DIGIT_BITS)
/* How many versions of a batch ahead are prefetched. */
#define AHEAD 4u

enum version_state { LOGGED, READY, WRITING, WRITTEN, STUCK, SETTLED };

/* Two cache lines, which the processor fetches together when they are a pair. */
#define VERSION_ALIGN 128u

struct lp_pending_version {
	struct lp_list_node by_seq; /* the list of versions in the log, or of those with a record */
	struct lp_list_node in_state; /* its state's list; none while WRITING or in the batch */
	struct lp_pending_version *older;
	struct lp_pending_version *next_in_bucket; /* of another block; only of the newest one */
	uint64_t block;
	const uint8_t *data; /* the memory of seg */
	struct lp_seg seg;
	uint64_t seq;
	uint64_t record; /* 0: in the log */
	uint32_t crc;
	uint32_t batch_slot; /* + 1; 0: not in the batch */
	uint32_t failures;
	enum version_state state;
	enum version_state when_durable; /* READY, STUCK or SETTLED */
	bool doomed;
};
static_assert(sizeof(struct lp_pending_version) <= VERSION_ALIGN, "a pair of lines");

struct freed {
	uint64_t seq;
	struct lp_extent extent;
};

LP_LIST_DEFINE(seq_list, struct lp_pending_version, by_seq);
LP_LIST_DEFINE(state_list, struct lp_pending_version, in_state);

/* A READY version, to be chosen next. */
struct choice {
	uint64_t block;
	struct lp_pending_version *version; /* NULL: it is done meanwhile */
};

struct lp_pending {
	struct lp_pool *versions;
	struct lp_pending_version **buckets;
	uint64_t mask;
	uint64_t limit;
	uint64_t durable_seq;
	struct lp_pending_events *events;
	struct seq_list in_log;
	struct seq_list kept; /* versions with records */
	struct state_list logged;
	struct state_list ready;
	struct state_list written;  /* since the last flush began */
	struct state_list flushing; /* written before the flush under way */
	struct state_list stuck;
	struct state_list settled;
	/* Frees of frames that are not durable yet: a ring, oldest at freed_first. */
	struct freed *freed;
	uint64_t freed_mask;
	uint64_t freed_first;
	uint64_t freed_cnt;
	bool flush_running;
	uint64_t unflushed_cnt;
	uint64_t ready_cnt; /* in the batch or on the list */
	uint32_t batch_cnt;
	uint32_t batch_next;
	struct choice batch[SORT_BATCH]; /* sorted by block */
	struct choice sorting[SORT_BATCH];
	struct lp_pending_stats stats;
};

/* --- Birth and death ---------------------------------------------------------------------------
 */

int lp_pending_new(uint64_t limit, struct lp_pending **ret_pending)
{
	LP_ASSERT(limit > 0 && limit <= LP_POOL_OBJECTS_MAX);
	struct lp_pending *pending = calloc(1, sizeof(*pending));
	if (pending == NULL)
		return -ENOMEM;
	uint64_t buckets = 64;
	while (buckets < limit)
		buckets *= 2;
	pending->limit = limit;
	pending->mask = buckets - 1;
	pending->buckets = calloc(buckets, sizeof(struct lp_pending_version *));
	const struct lp_pool_config versions = {.name = "pending versions",
						.object_bytes = sizeof(struct lp_pending_version),
						.align = VERSION_ALIGN,
						.limit = (uint32_t)limit};
	if (pending->buckets == NULL || lp_pool_new(&versions, &pending->versions) < 0) {
		free(pending->buckets);
		free(pending);
		return -ENOMEM;
	}
	seq_list_init(&pending->in_log);
	seq_list_init(&pending->kept);
	state_list_init(&pending->logged);
	state_list_init(&pending->ready);
	state_list_init(&pending->written);
	state_list_init(&pending->flushing);
	state_list_init(&pending->stuck);
	state_list_init(&pending->settled);
	*ret_pending = pending;
	return 0;
}

void lp_pending_set_events(struct lp_pending *pending, struct lp_pending_events *events)
{
	pending->events = events;
}

uint64_t lp_pending_room(const struct lp_pending *pending)
{
	return pending->limit - pending->stats.versions;
}

/* --- Versions ----------------------------------------------------------------------------------
 */

static struct lp_pending_version **bucket_of(const struct lp_pending *pending, uint64_t block)
{
	uint64_t hash = block * UINT64_C(0x9e3779b97f4a7c15);
	return &pending->buckets[(hash >> 32 ^ hash) & pending->mask];
}

/* The link to the newest version of the block; it points to NULL when there is none. */
static struct lp_pending_version **find_link(const struct lp_pending *pending, uint64_t block)
{
	struct lp_pending_version **link = bucket_of(pending, block);
	while (*link != NULL && (*link)->block != block)
		link = &(*link)->next_in_bucket;
	return link;
}

static void list_add(struct lp_pending *pending, struct lp_pending_version *version,
		     enum version_state state)
{
	version->state = state;
	switch (state) {
	case LOGGED:
		state_list_push_back(&pending->logged, version);
		break;
	case READY:
		state_list_push_back(&pending->ready, version);
		pending->ready_cnt++;
		break;
	case WRITING:
		break;
	case WRITTEN:
		state_list_push_back(&pending->written, version);
		pending->unflushed_cnt++;
		break;
	case STUCK:
		state_list_push_back(&pending->stuck, version);
		pending->stats.stuck++;
		break;
	case SETTLED:
		state_list_push_back(&pending->settled, version);
		pending->stats.settled++;
		break;
	}
}

static void list_remove(struct lp_pending *pending, struct lp_pending_version *version)
{
	if (version->batch_slot > 0) {
		pending->batch[version->batch_slot - 1].version = NULL;
		version->batch_slot = 0;
	}
	if (version->state == WRITTEN)
		pending->unflushed_cnt--;
	pending->ready_cnt -= version->state == READY;
	pending->stats.stuck -= version->state == STUCK;
	pending->stats.settled -= version->state == SETTLED;
	if (state_list_is_linked(version))
		state_list_remove(version);
}

/* A version goes in front of the others of its block. */
static void chain_push(struct lp_pending *pending, struct lp_pending_version *version)
{
	struct lp_pending_version **link = find_link(pending, version->block);
	struct lp_pending_version *newest = *link;
	version->older = newest;
	version->next_in_bucket = newest == NULL ? NULL : newest->next_in_bucket;
	*link = version;
}

static void chain_remove(struct lp_pending *pending, const struct lp_pending_version *version)
{
	struct lp_pending_version **link = find_link(pending, version->block);
	struct lp_pending_version *older = version->older;
	LP_ASSERT(*link != NULL);
	if (*link == version) {
		if (older != NULL)
			older->next_in_bucket = version->next_in_bucket;
		*link = older != NULL ? older : version->next_in_bucket;
		return;
	}
	struct lp_pending_version *newer = *link;
	while (newer->older != version) {
		newer = newer->older;
		LP_ASSERT(newer != NULL);
	}
	newer->older = older;
}

/* The version is done. */
static void finish(struct lp_pending *pending, struct lp_pending_version *version)
{
	uint64_t record = version->record;
	chain_remove(pending, version);
	list_remove(pending, version);
	seq_list_remove(version);
	lp_buf_put(version->seg.buf);
	lp_pool_put(pending->versions, version);
	pending->stats.versions--;
	pending->stats.in_log -= record == 0;
	if (record != 0 && pending->events != NULL)
		pending->events->done(pending->events, record);
}

/* Done now, or as soon as its write has completed. */
static void finish_or_doom(struct lp_pending *pending, struct lp_pending_version *version,
			   uint64_t *counter)
{
	if (version->doomed)
		return;
	(*counter)++;
	if (version->state == WRITING)
		version->doomed = true;
	else
		finish(pending, version);
}

void lp_pending_free(struct lp_pending *pending)
{
	if (pending == NULL)
		return;
	struct lp_pending_version *version;
	pending->events = NULL;
	while ((version = seq_list_first(&pending->in_log)) != NULL ||
	       (version = seq_list_first(&pending->kept)) != NULL)
		finish(pending, version);
	lp_pool_free(pending->versions);
	free(pending->buckets);
	free(pending->freed);
	free(pending);
}

static int add(struct lp_pending *pending, uint64_t seq, const struct lp_pending_block *about,
	       struct lp_seg seg, uint64_t record, enum version_state when_durable)
{
	LP_ASSERT(seg.len == LP_BLOCK_BYTES);
	LP_ASSERT(seq > pending->durable_seq);
	struct seq_list *list = record == 0 ? &pending->in_log : &pending->kept;
	const struct lp_pending_version *last = seq_list_last(list);
	LP_ASSERT(last == NULL || last->seq <= seq);
	struct lp_pending_version *version = lp_pool_get(pending->versions);
	if (version == NULL)
		return -EAGAIN;
	*version = (struct lp_pending_version){.block = about->block,
					       .data = seg.buf->data + seg.offset,
					       .seg = seg,
					       .seq = seq,
					       .record = record,
					       .crc = about->crc,
					       .when_durable = when_durable};
	(void)lp_buf_get(seg.buf);
	chain_push(pending, version);
	seq_list_push_back(list, version);
	list_add(pending, version, LOGGED);
	pending->stats.versions++;
	pending->stats.in_log += record == 0;
	pending->stats.added++;
	pending->stats.versions_max = LP_MAX(pending->stats.versions_max, pending->stats.versions);
	return 0;
}

int lp_pending_add(struct lp_pending *pending, uint64_t seq, uint64_t block, struct lp_seg seg,
		   uint32_t crc)
{
	return add(pending, seq, &(struct lp_pending_block){.block = block, .crc = crc}, seg, 0,
		   READY);
}

int lp_pending_add_kept(struct lp_pending *pending, uint64_t seq,
			const struct lp_pending_block *about, struct lp_seg seg, uint64_t record)
{
	LP_ASSERT(record != 0);
	return add(pending, seq, about, seg, record, READY);
}

int lp_pending_add_stuck(struct lp_pending *pending, uint64_t seq,
			 const struct lp_pending_block *about, struct lp_seg seg, uint64_t record,
			 bool is_settled)
{
	LP_ASSERT(record != 0 || !is_settled);
	return add(pending, seq, about, seg, record, is_settled ? SETTLED : STUCK);
}

bool lp_pending_find(const struct lp_pending *pending, uint64_t block, struct lp_seg *ret_seg,
		     uint32_t *ret_crc)
{
	const struct lp_pending_version *newest = *find_link(pending, block);
	if (newest == NULL || newest->doomed)
		return false;
	*ret_seg = newest->seg;
	*ret_crc = newest->crc;
	return true;
}

/* --- Durability ------------------------------------------------------------------------------- */

/* The version is durable, so the version that was durable before it is not needed any more. */
static void become_ready(struct lp_pending *pending, struct lp_pending_version *version)
{
	struct lp_pending_version *older = version->older;
	while (older != NULL) {
		struct lp_pending_version *next = older->older;
		finish_or_doom(pending, older, &pending->stats.superseded);
		older = next;
	}
	state_list_remove(version);
	list_add(pending, version, version->when_durable);
}

static void free_block(struct lp_pending *pending, uint64_t seq, uint64_t block)
{
	/* A version of a later frame belongs to the block's next owner. */
	struct lp_pending_version *version = *find_link(pending, block);
	while (version != NULL) {
		struct lp_pending_version *older = version->older;
		if (version->seq <= seq)
			finish_or_doom(pending, version, &pending->stats.freed);
		version = older;
	}
}

static bool contains(struct lp_extent extent, uint64_t block)
{
	return block - extent.block < extent.cnt;
}

static void free_listed(struct lp_pending *pending, struct seq_list *list, uint64_t seq,
			struct lp_extent extent)
{
	struct lp_pending_version *version;
	struct lp_pending_version *tmp;
	LP_LIST_FOREACH_SAFE (seq_list, list, version, tmp) {
		if (version->seq <= seq && contains(extent, version->block))
			finish_or_doom(pending, version, &pending->stats.freed);
	}
}

static void free_extent(struct lp_pending *pending, uint64_t seq, struct lp_extent extent)
{
	if (extent.cnt <= pending->stats.versions) {
		for (uint64_t i = 0; i < extent.cnt; i++)
			free_block(pending, seq, extent.block + i);
		return;
	}
	free_listed(pending, &pending->in_log, seq, extent);
	free_listed(pending, &pending->kept, seq, extent);
}

static struct freed *freed_at(const struct lp_pending *pending, uint64_t idx)
{
	return &pending->freed[(pending->freed_first + idx) & pending->freed_mask];
}

/* Doubles the ring. The ring never shrinks, so a busy shard allocates nothing. */
static int freed_grow(struct lp_pending *pending)
{
	uint64_t size = pending->freed == NULL ? FREED_MIN : 2 * (pending->freed_mask + 1);
	struct freed *bigger = calloc(size, sizeof(*bigger));
	if (bigger == NULL)
		return -ENOMEM;
	for (uint64_t i = 0; i < pending->freed_cnt; i++)
		bigger[i] = *freed_at(pending, i);
	free(pending->freed);
	pending->freed = bigger;
	pending->freed_first = 0;
	pending->freed_mask = size - 1;
	return 0;
}

int lp_pending_freed(struct lp_pending *pending, uint64_t seq, struct lp_extent extent)
{
	LP_ASSERT(seq > pending->durable_seq && extent.cnt > 0);
	if (pending->freed == NULL || pending->freed_cnt > pending->freed_mask) {
		int err = freed_grow(pending);
		if (err < 0)
			return err;
	}
	*freed_at(pending, pending->freed_cnt++) = (struct freed){.seq = seq, .extent = extent};
	return 0;
}

static void renumber_listed(struct seq_list *list, uint64_t from, uint64_t to)
{
	for (struct lp_pending_version *version = seq_list_last(list);
	     version != NULL && version->seq == from; version = seq_list_prev(list, version))
		version->seq = to;
}

void lp_pending_renumber(struct lp_pending *pending, uint64_t from, uint64_t to)
{
	LP_ASSERT(from > pending->durable_seq && to > from);
	renumber_listed(&pending->in_log, from, to);
	renumber_listed(&pending->kept, from, to);
	for (uint64_t i = pending->freed_cnt; i > 0 && freed_at(pending, i - 1)->seq == from; i--)
		freed_at(pending, i - 1)->seq = to;
}

void lp_pending_frame_durable(struct lp_pending *pending, uint64_t seq)
{
	LP_ASSERT(seq > pending->durable_seq);
	pending->durable_seq = seq;
	struct lp_pending_version *version;
	while ((version = state_list_first(&pending->logged)) != NULL && version->seq <= seq)
		become_ready(pending, version);
	while (pending->freed_cnt > 0 && freed_at(pending, 0)->seq <= seq) {
		struct freed freed = *freed_at(pending, 0);
		pending->freed_first++;
		pending->freed_cnt--;
		free_extent(pending, freed.seq, freed.extent);
	}
}

/* --- Write-back ------------------------------------------------------------------------------- */

static void sort_by_digit(const struct choice *from, uint32_t cnt, uint32_t shift,
			  struct choice *ret_sorted)
{
	uint32_t place[DIGITS] = {0};
	uint32_t next = 0;
	for (uint32_t i = 0; i < cnt; i++)
		place[from[i].block >> shift & (DIGITS - 1)]++;
	for (uint32_t digit = 0; digit < DIGITS; digit++) {
		uint32_t of_digit = place[digit];
		place[digit] = next;
		next += of_digit;
	}
	for (uint32_t i = 0; i < cnt; i++)
		ret_sorted[place[from[i].block >> shift & (DIGITS - 1)]++] = from[i];
}

/* Radix sort, the lowest digit first. qsort() would allocate, and takes three times as long. Digits
 * that are the same in all entries are skipped. */
static void sort_batch(struct lp_pending *pending)
{
	uint32_t cnt = pending->batch_cnt;
	uint64_t differing = 0;
	for (uint32_t i = 1; i < cnt; i++)
		differing |= pending->batch[i].block ^ pending->batch[0].block;
	for (uint32_t shift = 0; shift < 64; shift += DIGIT_BITS) {
		if ((differing >> shift & (DIGITS - 1)) == 0)
			continue;
		sort_by_digit(pending->batch, cnt, shift, pending->sorting);
		memcpy(pending->batch, pending->sorting, cnt * sizeof(struct choice));
	}
}

/* No older version of the same block is still being written. */
static bool is_writable(const struct lp_pending_version *version)
{
	for (const struct lp_pending_version *older = version->older; older != NULL;
	     older = older->older) {
		if (older->state == WRITING)
			return false;
	}
	return true;
}

static void batch_fill(struct lp_pending *pending)
{
	pending->batch_cnt = 0;
	pending->batch_next = 0;
	struct lp_pending_version *version;
	while (pending->batch_cnt < SORT_BATCH &&
	       (version = state_list_pop_front(&pending->ready)) != NULL)
		pending->batch[pending->batch_cnt++] = (struct choice){version->block, version};
	sort_batch(pending);
	for (uint32_t i = 0; i < pending->batch_cnt; i++)
		pending->batch[i].version->batch_slot = i + 1;
}

struct question {
	bool (*may_write)(uint64_t block, void *arg);
	void *arg;
};

static bool may_choose(const struct lp_pending_version *version, const struct question *question)
{
	return is_writable(version) &&
	       (question->may_write == NULL || question->may_write(version->block, question->arg));
}

/* The buckets in which the neighbours of the next versions will be looked up are prefetched, too.
 */
static void fetch_ahead(const struct lp_pending *pending)
{
	if (pending->batch_next + AHEAD >= pending->batch_cnt)
		return;
	const struct choice *choice = &pending->batch[pending->batch_next + AHEAD];
	__builtin_prefetch(choice->version, 1);
	__builtin_prefetch(bucket_of(pending, choice->block + 1));
	__builtin_prefetch(bucket_of(pending, choice->block - 1));
}

/* The next version of the batch, or of the next batch; NULL when the next batch is empty. */
static struct lp_pending_version *next_of_batch(struct lp_pending *pending,
						const struct question *question)
{
	bool is_new = false;
	for (;;) {
		if (pending->batch_next == pending->batch_cnt) {
			if (is_new)
				return NULL;
			batch_fill(pending);
			is_new = true;
			if (pending->batch_cnt == 0)
				return NULL;
		}
		fetch_ahead(pending);
		struct lp_pending_version *version = pending->batch[pending->batch_next++].version;
		if (version == NULL)
			continue;
		LP_ASSERT(version->state == READY && version->seq <= pending->durable_seq);
		if (may_choose(version, question))
			return version;
		list_remove(pending, version);
		list_add(pending, version, READY); /* at the end, so that others come first */
	}
}

/* A version that waits for this block, and may be written together with another one. */
static struct lp_pending_version *find_ready(const struct lp_pending *pending, uint64_t block,
					     const struct question *question)
{
	struct lp_pending_version *version = *find_link(pending, block);
	while (version != NULL && version->state == LOGGED)
		version = version->older;
	bool is_ready = version != NULL && version->state == READY && version->failures == 0 &&
			may_choose(version, question);
	return is_ready ? version : NULL;
}

static void choose(struct lp_pending *pending, struct lp_pending_version *version,
		   struct lp_pending_block *ret_block)
{
	list_remove(pending, version);
	list_add(pending, version, WRITING);
	*ret_block = (struct lp_pending_block){.block = version->block,
					       .seq = version->seq,
					       .data = version->data,
					       .crc = version->crc,
					       .failures = version->failures,
					       .version = version};
}

uint32_t lp_pending_choose(struct lp_pending *pending, struct lp_pending_block *ret_blocks,
			   uint32_t max, bool (*may_write)(uint64_t block, void *arg), void *arg)
{
	const struct question question = {may_write, arg};
	struct lp_pending_version *own = next_of_batch(pending, &question);
	if (own == NULL)
		return 0;
	bool is_alone = own->failures > 0;
	uint64_t first = own->block;
	while (!is_alone && first > 0 && own->block - first + 1 < max &&
	       find_ready(pending, first - 1, &question) != NULL)
		first--;
	uint32_t cnt = 0;
	for (uint64_t block = first; cnt < max; block++) {
		struct lp_pending_version *version =
			block == own->block ? own : find_ready(pending, block, &question);
		if (version == NULL)
			break;
		choose(pending, version, &ret_blocks[cnt++]);
		if (is_alone)
			break;
	}
	return cnt;
}

uint64_t lp_pending_ready(const struct lp_pending *pending)
{
	return pending->ready_cnt;
}

bool lp_pending_is_choosing(const struct lp_pending *pending)
{
	return pending->batch_next < pending->batch_cnt;
}

bool lp_pending_has_ready(const struct lp_pending *pending, uint64_t seq)
{
	const struct lp_pending_version *oldest = state_list_first(&pending->ready);
	return lp_pending_is_choosing(pending) || (oldest != NULL && oldest->seq <= seq);
}

void lp_pending_written(struct lp_pending *pending, struct lp_pending_version *version)
{
	LP_ASSERT(version->state == WRITING);
	pending->stats.written++;
	if (version->doomed)
		finish(pending, version);
	else
		list_add(pending, version, WRITTEN);
}

bool lp_pending_failed(struct lp_pending *pending, struct lp_pending_version *version, bool counts)
{
	LP_ASSERT(version->state == WRITING);
	if (version->doomed) {
		finish(pending, version);
		return false;
	}
	version->failures += counts;
	list_add(pending, version, READY);
	return true;
}

void lp_pending_stick(struct lp_pending *pending, struct lp_pending_version *version)
{
	LP_ASSERT(version->state == READY && version->failures > 0);
	list_remove(pending, version);
	list_add(pending, version, STUCK);
}

/* A frame that is not durable yet frees the block. */
static bool is_being_freed(const struct lp_pending *pending, uint64_t block)
{
	for (uint64_t i = 0; i < pending->freed_cnt; i++) {
		if (contains(freed_at(pending, i)->extent, block))
			return true;
	}
	return false;
}

bool lp_pending_find_stuck(const struct lp_pending *pending, struct lp_pending_block *ret_block,
			   struct lp_seg *ret_seg)
{
	const struct lp_pending_version *version;
	LP_LIST_FOREACH (state_list, &pending->stuck, version) {
		/* A record of it would win over a newer payload in the same frame. */
		bool is_newest = *find_link(pending, version->block) == version;
		if (!is_newest || is_being_freed(pending, version->block))
			continue;
		*ret_block = (struct lp_pending_block){.block = version->block,
						       .seq = version->seq,
						       .data = version->data,
						       .crc = version->crc,
						       .failures = version->failures};
		*ret_seg = version->seg;
		return true;
	}
	return false;
}

static bool may_ride_again(const struct lp_pending *pending,
			   const struct lp_pending_version *version)
{
	bool is_waiting = version->state == READY || version->state == WRITING;
	/* A newer version in the same frame would be lost behind it. */
	return is_waiting && !version->doomed && *find_link(pending, version->block) == version &&
	       !is_being_freed(pending, version->block);
}

bool lp_pending_find_old(const struct lp_pending *pending, uint64_t seq,
			 struct lp_pending_block *ret_block, struct lp_seg *ret_seg)
{
	struct lp_pending_version *version =
		ret_block->version == NULL ? seq_list_first(&pending->in_log)
					   : seq_list_next(&pending->in_log, ret_block->version);
	seq = LP_MIN(seq, pending->durable_seq);
	while (version != NULL && version->seq <= seq && !may_ride_again(pending, version))
		version = seq_list_next(&pending->in_log, version);
	if (version == NULL || version->seq > seq)
		return false;
	*ret_block = (struct lp_pending_block){.block = version->block,
					       .seq = version->seq,
					       .data = version->data,
					       .crc = version->crc,
					       .failures = version->failures,
					       .version = version};
	*ret_seg = version->seg;
	return true;
}

uint64_t lp_pending_writable(const struct lp_pending *pending)
{
	return pending->stats.versions - pending->stats.stuck - pending->stats.settled;
}

void lp_pending_flush_begin(struct lp_pending *pending)
{
	LP_ASSERT(!pending->flush_running);
	pending->flush_running = true;
	state_list_splice_back(&pending->flushing, &pending->written);
}

void lp_pending_flush_end(struct lp_pending *pending, bool ok)
{
	LP_ASSERT(pending->flush_running);
	pending->flush_running = false;
	struct lp_pending_version *version;
	while ((version = state_list_first(&pending->flushing)) != NULL) {
		if (ok) {
			finish(pending, version);
		} else {
			list_remove(pending, version);
			list_add(pending, version, READY);
		}
	}
}

uint64_t lp_pending_unflushed(const struct lp_pending *pending)
{
	return pending->unflushed_cnt;
}

uint64_t lp_pending_durable_seq(const struct lp_pending *pending)
{
	return pending->durable_seq;
}

uint64_t lp_pending_oldest_seq(const struct lp_pending *pending)
{
	const struct lp_pending_version *oldest = seq_list_first(&pending->in_log);
	return oldest != NULL ? oldest->seq : UINT64_MAX;
}

void lp_pending_rebind(struct lp_pending *pending)
{
	lp_pool_rebind(pending->versions);
}

void lp_pending_rest(struct lp_pending *pending)
{
	(void)lp_pool_trim(pending->versions);
}

const struct lp_pending_stats *lp_pending_stats(const struct lp_pending *pending)
{
	return &pending->stats;
}
