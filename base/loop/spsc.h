/* SPDX-License-Identifier: Apache-2.0 */
/* A ring of pointers from one producing thread to one consuming thread.
 *
 * The capacity is fixed at init. The producer may stage several items and publish them with one
 * store: the consumer sees none of them before, and all after. The consumer may read after a pop
 * all data that the producer wrote before it published. A full ring is a return value: the producer
 * decides whether to wait.
 *
 * Threads: stage, publish, push and room on the producer's, pop and is_empty on the consumer's,
 * count on any. The slow builds assert that each side stays with the thread that used it first.
 * Blocking: never, and no system call: waking a sleeping consumer is the caller's business.
 * Ownership: the ring borrows what the pointers point to; fini forgets what was not popped.
 */
#ifndef LP_BASE_LOOP_SPSC_H
#define LP_BASE_LOOP_SPSC_H

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>

#include "base/assert.h"

#define LP_SPSC_CAPACITY_MAX (UINT32_C(1) << 30)

/* The thread that has a side; only the slow builds check it. */
struct lp_spsc_side {
	pthread_t thread;
	bool is_bound;
};

/* Positions count items since init and never wrap in practice (2^64). Masked they are slots. Each
 * side has a cache line of its own, with its last copy of the other's position. So the other's line
 * is fetched only when the ring looks full (or empty). */
struct lp_spsc {
	LP_CACHE_ALIGNED void **slots; /* constant after init */
	uint64_t mask;                 /* capacity - 1; constant after init */

	LP_CACHE_ALIGNED _Atomic uint64_t tail; /* published; written by the producer */
	uint64_t staged;                        /* producer: tail plus staged items */
	uint64_t head_seen;                     /* producer: head as last read, <= head */
	struct lp_spsc_side producer;

	LP_CACHE_ALIGNED _Atomic uint64_t head; /* popped; written by the consumer */
	uint64_t tail_seen;                     /* consumer: tail as last read, <= tail */
	struct lp_spsc_side consumer;
};

/* The memory of ring is aligned as its type says (malloc is not enough). capacity is a power of
 * two of at most LP_SPSC_CAPACITY_MAX. -ENOMEM. */
int lp_spsc_init(struct lp_spsc *ring, uint32_t capacity) LP_MUST_CHECK;
/* Neither side uses the ring any more. */
void lp_spsc_fini(struct lp_spsc *ring);
/* The next thread that uses a side gets it. The caller has ordered the old thread's last use before
 * the new one's first (by join, or by a message). */
void lp_spsc_rebind_producer(struct lp_spsc *ring);
void lp_spsc_rebind_consumer(struct lp_spsc *ring);

/* True if the calling thread has this side, or takes it now. */
static inline bool lp_spsc_is_mine(struct lp_spsc_side *side)
{
	if (!side->is_bound)
		*side = (struct lp_spsc_side){.thread = pthread_self(), .is_bound = true};
	return pthread_equal(side->thread, pthread_self()) != 0;
}

static inline uint32_t lp_spsc_capacity(const struct lp_spsc *ring)
{
	return (uint32_t)(ring->mask + 1);
}

/* Producer: the number of items that can be staged now. Only the producer's own calls lower it. */
static inline uint32_t lp_spsc_room(struct lp_spsc *ring)
{
	LP_ASSERT_SLOW(lp_spsc_is_mine(&ring->producer));
	ring->head_seen = atomic_load_explicit(&ring->head, memory_order_acquire);
	LP_ASSERT(ring->staged - ring->head_seen <= ring->mask + 1);
	return (uint32_t)(ring->mask + 1 - (ring->staged - ring->head_seen));
}

/* Producer: stages item (not NULL) for the next publish. -EAGAIN when the ring is full, staged
 * items included. */
LP_MUST_CHECK static inline int lp_spsc_stage(struct lp_spsc *ring, void *item)
{
	LP_ASSERT_SLOW(lp_spsc_is_mine(&ring->producer));
	LP_ASSERT(item != NULL);
	/* The acquire in room() orders our overwriting of a slot after the consumer's reading. */
	if (LP_UNLIKELY(ring->staged - ring->head_seen > ring->mask) && lp_spsc_room(ring) == 0)
		return -EAGAIN;
	ring->slots[ring->staged & ring->mask] = item;
	ring->staged++;
	return 0;
}

/* Producer: publishes all staged items. Returns their number. */
static inline uint32_t lp_spsc_publish(struct lp_spsc *ring)
{
	LP_ASSERT_SLOW(lp_spsc_is_mine(&ring->producer));
	uint64_t tail = atomic_load_explicit(&ring->tail, memory_order_relaxed);
	uint64_t cnt = ring->staged - tail;
	/* Without a store the line stays shared. */
	if (cnt > 0)
		atomic_store_explicit(&ring->tail, ring->staged, memory_order_release);
	return (uint32_t)cnt;
}

/* Producer: stages item and publishes all staged items. -EAGAIN when the ring is full; then none is
 * published. */
LP_MUST_CHECK static inline int lp_spsc_push(struct lp_spsc *ring, void *item)
{
	int rc = lp_spsc_stage(ring, item);
	if (LP_LIKELY(rc == 0))
		(void)lp_spsc_publish(ring); /* the count is of no interest here */
	return rc;
}

/* Consumer: takes up to max items in order. Returns how many; 0 is an empty ring. */
static inline uint32_t lp_spsc_pop_batch(struct lp_spsc *ring, void **ret_items, uint32_t max)
{
	LP_ASSERT_SLOW(lp_spsc_is_mine(&ring->consumer));
	uint64_t head = atomic_load_explicit(&ring->head, memory_order_relaxed);
	if (ring->tail_seen - head < max)
		ring->tail_seen = atomic_load_explicit(&ring->tail, memory_order_acquire);
	LP_ASSERT(ring->tail_seen - head <= ring->mask + 1);
	uint32_t cnt = (uint32_t)LP_MIN(ring->tail_seen - head, (uint64_t)max);
	for (uint32_t i = 0; i < cnt; i++)
		ret_items[i] = ring->slots[(head + i) & ring->mask];
	if (cnt > 0)
		atomic_store_explicit(&ring->head, head + cnt, memory_order_release);
	return cnt;
}

/* Consumer: the oldest published item, or NULL. */
static inline void *lp_spsc_pop(struct lp_spsc *ring)
{
	void *item = NULL;
	return lp_spsc_pop_batch(ring, &item, 1) == 1 ? item : NULL;
}

/* Consumer: nothing is published now. */
static inline bool lp_spsc_is_empty(struct lp_spsc *ring)
{
	LP_ASSERT_SLOW(lp_spsc_is_mine(&ring->consumer));
	uint64_t head = atomic_load_explicit(&ring->head, memory_order_relaxed);
	return atomic_load_explicit(&ring->tail, memory_order_acquire) == head;
}

/* Any thread: published and not popped, as of some moment during the call; for display. */
uint32_t lp_spsc_count(const struct lp_spsc *ring);

#endif
