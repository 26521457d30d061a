/* SPDX-License-Identifier: Apache-2.0 */
/* Works come in by an inbox, without a lock. The helpers take them from it into a queue; they have
 * a lock among themselves. A helper is woken, by a semaphore, only if one sleeps that no earlier
 * call will wake. A system call for each work would cost more than all the rest.
 *
 * The submitter's side has no lock and no condition variable. A helper that loses its core while it
 * holds the lock would hold up the reactor. So might pthread_cond_signal(), which waits until
 * threads woken before have been on a core. That cost a shard 47 ms on a crowded machine.
 *
 * A helper that will sleep counts itself as a sleeper first, and then looks into the inbox and the
 * queue. A submitter pushes first, and then looks for a sleeper. All these accesses are
 * sequentially consistent, so no work waits beside a sleeper. Each helper that is taken out of the
 * count of sleepers gets a token of the semaphore, unless it took itself out. */
#include "base/loop/workers.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

LP_LIST_DEFINE(work_list, struct lp_work, node);

struct lp_workers {
	struct lp_inbox inbox; /* newest work first, by via.msg; its `asleep` is not used */
	_Atomic uint32_t sleeping;
	_Atomic uint32_t queued; /* in the inbox or the queue */
	_Atomic uint32_t queued_max;
	_Atomic uint32_t wakes;
	_Atomic bool stopping;
	sem_t wake;
	pthread_mutex_t lock;   /* of helpers, and of readers of the counters */
	struct work_list queue; /* by lock */
	uint64_t ran;           /* by lock */
	uint32_t running;       /* by lock */
	uint32_t thread_cnt;    /* constant; 0: deterministic */
	uint32_t started;
	pthread_t threads[];
};

static void lock(struct lp_workers *workers)
{
	int err = pthread_mutex_lock(&workers->lock);
	LP_ASSERT(err == 0);
}

static void unlock(struct lp_workers *workers)
{
	int err = pthread_mutex_unlock(&workers->lock);
	LP_ASSERT(err == 0);
}

static void finish(struct lp_work *work)
{
	LP_ASSERT(work->workers != NULL);
	work->workers = NULL;
	work->reactor = NULL;
	work->done(work);
}

/* --- With threads --------------------------------------------------------------------------------
 */

static void deliver(struct lp_reactor *to, struct lp_msg *msg)
{
	struct lp_work *work = LP_CONTAINER_OF(msg, struct lp_work, via.msg);
	LP_ASSERT(work->reactor == to);
	finish(work);
}

/* One sleeper less. False: there was none. */
static bool claim_sleeper(struct lp_workers *workers)
{
	uint32_t cnt = atomic_load(&workers->sleeping);
	while (cnt > 0) {
		if (atomic_compare_exchange_weak(&workers->sleeping, &cnt, cnt - 1))
			return true;
	}
	return false;
}

/* Under the lock: the next work, or NULL. */
static struct lp_work *next_work(struct lp_workers *workers)
{
	struct lp_msg *last = NULL;
	struct lp_msg *msg = lp_inbox_take(&workers->inbox, &last);
	while (msg != NULL) {
		struct lp_msg *next = msg == last ? NULL : msg->next;
		work_list_push_back(&workers->queue, LP_CONTAINER_OF(msg, struct lp_work, via.msg));
		msg = next;
	}
	struct lp_work *work = work_list_pop_front(&workers->queue);
	if (work == NULL)
		return NULL;
	workers->running++;
	atomic_fetch_sub(&workers->queued, 1);
	return work;
}

static void sleep_for_work(struct lp_workers *workers)
{
	atomic_fetch_add(&workers->sleeping, 1);
	/* Under the lock, because otherwise a work could be on its way from the inbox to the queue.
	 */
	lock(workers);
	bool has_news = !lp_inbox_is_empty(&workers->inbox) ||
			!work_list_is_empty(&workers->queue) || atomic_load(&workers->stopping);
	unlock(workers);
	if (has_news && claim_sleeper(workers))
		return;
	while (sem_wait(&workers->wake) < 0)
		LP_ASSERT(errno == EINTR);
}

/* NULL: the pool is stopping, and no work is left. */
static struct lp_work *wait_for_work(struct lp_workers *workers)
{
	for (;;) {
		/* Read before the inbox, because no work is submitted once it is set. */
		bool stopping = atomic_load(&workers->stopping);
		lock(workers);
		struct lp_work *work = next_work(workers);
		unlock(workers);
		if (work != NULL || stopping)
			return work;
		sleep_for_work(workers);
	}
}

static void *helper_main(void *arg)
{
	struct lp_workers *workers = arg;
	struct lp_work *work;
	(void)pthread_setname_np(pthread_self(), "lp-helper"); /* for display only */
	while ((work = wait_for_work(workers)) != NULL) {
		work->run(work);
		lock(workers);
		workers->running--;
		workers->ran++;
		unlock(workers);
		/* After the post the work may no longer exist. The pool still does, because free()
		 * joins this thread first. */
		work->via.msg = (struct lp_msg){.deliver = deliver};
		lp_reactor_post(work->reactor, &work->via.msg);
	}
	return NULL;
}

/* --- Without threads -----------------------------------------------------------------------------
 */

static void done_task(struct lp_task *task)
{
	finish(LP_CONTAINER_OF(task, struct lp_work, via.task));
}

static void run_task(struct lp_task *task)
{
	struct lp_work *work = LP_CONTAINER_OF(task, struct lp_work, via.task);
	struct lp_workers *workers = work->workers;
	atomic_fetch_sub(&workers->queued, 1);
	lock(workers);
	workers->running++;
	unlock(workers);
	work->run(work);
	lock(workers);
	workers->running--;
	workers->ran++;
	unlock(workers);
	/* A task queued by a task waits for the next turn. */
	work->via.task.run = done_task;
	lp_task_queue(work->reactor, &work->via.task);
}

/* --- The face ------------------------------------------------------------------------------------
 */

void lp_workers_submit(struct lp_workers *workers, struct lp_reactor *reactor, struct lp_work *work)
{
	LP_ASSERT(lp_work_is_idle(work));
	LP_ASSERT(work->run != NULL && work->done != NULL);
	LP_ASSERT(lp_reactor_is_mine(reactor));
	LP_ASSERT(!atomic_load(&workers->stopping));
	work->workers = workers;
	work->reactor = reactor;
	uint32_t queued = atomic_fetch_add(&workers->queued, 1) + 1;
	uint32_t most = atomic_load(&workers->queued_max);
	while (queued > most && !atomic_compare_exchange_weak(&workers->queued_max, &most, queued))
		continue;
	if (workers->thread_cnt == 0) {
		work->via.task = (struct lp_task){.run = run_task};
		lp_task_queue(reactor, &work->via.task);
		return;
	}
	work->via.msg = (struct lp_msg){.deliver = deliver};
	/* From here on the work may no longer exist. */
	lp_inbox_push(&workers->inbox, &work->via.msg, &work->via.msg);
	if (!claim_sleeper(workers))
		return;
	atomic_fetch_add(&workers->wakes, 1);
	int err = sem_post(&workers->wake);
	LP_ASSERT(err == 0);
}

/* Helpers have all signals blocked; those are for the threads that asked for them. */
static int start_threads(struct lp_workers *workers)
{
	sigset_t all;
	sigset_t before;
	(void)sigfillset(&all);
	int err = pthread_sigmask(SIG_BLOCK, &all, &before);
	LP_ASSERT(err == 0);
	while (workers->started < workers->thread_cnt && err == 0) {
		pthread_t *thread = &workers->threads[workers->started];
		err = pthread_create(thread, NULL, helper_main, workers);
		if (err == 0)
			workers->started++;
	}
	int restored = pthread_sigmask(SIG_SETMASK, &before, NULL);
	LP_ASSERT(restored == 0);
	return -err;
}

int lp_workers_new(uint32_t thread_cnt, struct lp_workers **ret_workers)
{
	if (thread_cnt > LP_WORKERS_MAX)
		return -EINVAL;
	struct lp_workers *workers;
	size_t align = _Alignof(struct lp_workers);
	size_t bytes = sizeof(*workers) + thread_cnt * sizeof(workers->threads[0]);
	bytes = (bytes + align - 1) / align * align;
	workers = aligned_alloc(align, bytes);
	if (workers == NULL)
		return -ENOMEM;
	memset(workers, 0, bytes);
	workers->thread_cnt = thread_cnt;
	work_list_init(&workers->queue);
	int err = pthread_mutex_init(&workers->lock, NULL);
	LP_ASSERT(err == 0);
	err = sem_init(&workers->wake, 0, 0);
	LP_ASSERT(err == 0);
	err = start_threads(workers);
	if (err < 0) {
		lp_workers_free(workers);
		return err;
	}
	*ret_workers = workers;
	return 0;
}

void lp_workers_free(struct lp_workers *workers)
{
	if (workers == NULL)
		return;
	atomic_store(&workers->stopping, true);
	while (claim_sleeper(workers))
		(void)sem_post(&workers->wake); /* cannot fail */
	for (uint32_t i = 0; i < workers->started; i++) {
		int err = pthread_join(workers->threads[i], NULL);
		LP_ASSERT(err == 0);
	}
	LP_ASSERT(atomic_load(&workers->queued) == 0 && workers->running == 0);
	(void)sem_destroy(&workers->wake);
	(void)pthread_mutex_destroy(&workers->lock);
	free(workers);
}

uint32_t lp_workers_thread_cnt(const struct lp_workers *workers)
{
	return workers->thread_cnt;
}

void lp_workers_read_stats(struct lp_workers *workers, struct lp_workers_stats *ret_stats)
{
	lock(workers);
	*ret_stats = (struct lp_workers_stats){
		.ran = workers->ran,
		.queued = atomic_load(&workers->queued),
		.running = workers->running,
		.queued_max = atomic_load(&workers->queued_max),
		.wakes = atomic_load(&workers->wakes),
	};
	unlock(workers);
	ret_stats->submitted = ret_stats->ran + ret_stats->running + ret_stats->queued;
}
