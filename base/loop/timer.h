/* SPDX-License-Identifier: Apache-2.0 */
/* A heap of timers, intrusive: no allocation, no limit.
 *
 * Threads: a heap belongs to one. Most code uses the reactor's (base/loop/reactor.h).
 *
 * Insert is O(1), remove and pop O(log n) amortised. Timers of the same deadline come out in the
 * order they were inserted, so that a simulation is the same each time.
 */
#ifndef LP_BASE_LOOP_TIMER_H
#define LP_BASE_LOOP_TIMER_H

#include "base/compiler.h"

/* Zeroed memory with `fire` set is a stopped timer. */
struct lp_timer {
	uint64_t deadline_ns; /* monotonic, while armed */
	uint64_t order;       /* counts insertions */
	struct lp_timer *child;
	struct lp_timer *next; /* sibling */
	struct lp_timer *prev; /* sibling, or parent of the first child; itself for the root; NULL
				* while stopped */
	void (*fire)(struct lp_timer *timer);
};

/* Zeroed memory is an empty heap. */
struct lp_timer_heap {
	struct lp_timer *root; /* the earliest */
	uint64_t insert_cnt;
};

static inline bool lp_timer_is_armed(const struct lp_timer *timer)
{
	return timer->prev != NULL;
}

/* The timer must not be armed. */
void lp_timer_heap_insert(struct lp_timer_heap *heap, struct lp_timer *timer, uint64_t deadline_ns);
/* The timer must be armed, in this heap. */
void lp_timer_heap_remove(struct lp_timer_heap *heap, struct lp_timer *timer);
/* Removes and returns the earliest timer if it is due at now_ns, else NULL. */
struct lp_timer *lp_timer_heap_pop_due(struct lp_timer_heap *heap, uint64_t now_ns);
/* UINT64_MAX when empty. */
uint64_t lp_timer_heap_next_ns(const struct lp_timer_heap *heap);

#endif
