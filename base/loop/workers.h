/* SPDX-License-Identifier: Apache-2.0 */
/* Helper threads for work that blocks.
 *
 * Threads: submit is for the reactor's thread; new, free and read_stats for any.
 * Blocking: submit takes no lock and waits for no thread. It makes a system call when a helper
 *   sleeps and has to be woken. free waits for all submitted work.
 * Memory: allocated by new only.
 * Limits: the queue is intrusive, so what bounds it is where the works live; LP_WORKERS_MAX
 *   threads.
 *
 * A reactor submits a struct lp_work that it embeds somewhere. run() is called on a helper thread
 * and may block, then done() on the reactor that submitted. In between the work is the pool's. Work
 * is begun in the order of its submission. With several threads it may end in any order.
 *
 * With no threads at all the pool is deterministic, for simulations: run() is called by a task of
 * the submitting reactor, and done() by another in a later turn.
 */
#ifndef LP_BASE_LOOP_WORKERS_H
#define LP_BASE_LOOP_WORKERS_H

#include "base/loop/reactor.h"

#define LP_WORKERS_MAX 64u

struct lp_workers;

/* Idle if all fields except run and done are zero. */
struct lp_work {
	void (*run)(struct lp_work *work);  /* on a helper: may block */
	void (*done)(struct lp_work *work); /* on the reactor; the caller has the work again */
	/* The pool's fields from submit until done() begins. */
	struct lp_workers *workers; /* NULL: idle */
	struct lp_reactor *reactor;
	struct lp_list_node node;
	union {
		struct lp_msg msg;   /* the way back from a helper */
		struct lp_task task; /* without threads */
	} via;
};

/* One moment's counters, consistent with each other. */
struct lp_workers_stats {
	uint64_t submitted;
	uint64_t ran;        /* run() has returned */
	uint32_t queued;     /* waiting for a thread */
	uint32_t running;    /* in run() */
	uint32_t queued_max; /* since the pool was made */
	uint32_t wakes;      /* how often a sleeping helper was woken */
};

/* thread_cnt 0: deterministic. -EINVAL above LP_WORKERS_MAX, -ENOMEM, -EAGAIN. */
int lp_workers_new(uint32_t thread_cnt, struct lp_workers **ret_workers) LP_MUST_CHECK;
/* Accepts NULL. Waits until all submitted work has run. Each done() still comes, in a turn of its
 * reactor. Without threads no work may wait to run (asserted), because only a reactor's turn could
 * run it. */
void lp_workers_free(struct lp_workers *workers);

/* done() is never called from inside this call. */
void lp_workers_submit(struct lp_workers *workers, struct lp_reactor *reactor,
		       struct lp_work *work);

uint32_t lp_workers_thread_cnt(const struct lp_workers *workers);
void lp_workers_read_stats(struct lp_workers *workers, struct lp_workers_stats *ret_stats);

static inline bool lp_work_is_idle(const struct lp_work *work)
{
	return work->workers == NULL;
}

#endif
