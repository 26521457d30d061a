/* SPDX-License-Identifier: Apache-2.0 */
/* One queue under one mutex. It carries what blocks anyhow (reads from a device, flushes), so a
 * lock per work is not worth avoiding; a system call per work is, so a helper is signalled only
 * when one sleeps that no earlier signal is on its way to. */
#include "base/workers.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>

#include "base/error.h"

LP_LIST_DEFINE(work_list, struct lp_work, node);

struct lp_workers {
	pthread_mutex_t lock;
	pthread_cond_t wake;
	struct work_list queue;        /* by lock */
	uint32_t sleeping;             /* by lock: helpers in wait, less those already signalled */
	bool stopping;                 /* by lock */
	struct lp_workers_stats stats; /* by lock */
	uint32_t thread_cnt;           /* constant; 0: deterministic */
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

/* Under the lock. NULL: the pool is stopping and the queue is empty. */
static struct lp_work *wait_for_work(struct lp_workers *workers)
{
	while (work_list_is_empty(&workers->queue)) {
		if (workers->stopping)
			return NULL;
		workers->sleeping++;
		/* Whoever signals takes us out of the count. A spurious wake-up leaves it too
		 * high by one, which costs a signal that nobody waits for. */
		int err = pthread_cond_wait(&workers->wake, &workers->lock);
		LP_ASSERT(err == 0);
	}
	workers->stats.queued--;
	workers->stats.running++;
	return work_list_pop_front(&workers->queue);
}

static void *helper_main(void *arg)
{
	struct lp_workers *workers = arg;
	struct lp_work *work;
	(void)pthread_setname_np(pthread_self(), "lp-helper"); /* only a name */
	lock(workers);
	while ((work = wait_for_work(workers)) != NULL) {
		unlock(workers);
		work->run(work);
		lock(workers);
		workers->stats.running--;
		workers->stats.ran++;
		unlock(workers);
		/* After the post the work may be gone. The pool is not: free joins us first. */
		work->via.msg = (struct lp_msg){.deliver = deliver};
		lp_reactor_post(work->reactor, &work->via.msg);
		lock(workers);
	}
	unlock(workers);
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
	lock(workers);
	workers->stats.queued--;
	workers->stats.running++;
	unlock(workers);
	work->run(work);
	lock(workers);
	workers->stats.running--;
	workers->stats.ran++;
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
	work->workers = workers;
	work->reactor = reactor;
	if (workers->thread_cnt == 0) {
		work->via.task = (struct lp_task){.run = run_task};
		lp_task_queue(reactor, &work->via.task);
	}

	lock(workers);
	LP_ASSERT(!workers->stopping);
	struct lp_workers_stats *stats = &workers->stats;
	stats->submitted++;
	stats->queued++;
	stats->queued_max = LP_MAX(stats->queued_max, stats->queued);
	if (workers->thread_cnt > 0)
		work_list_push_back(&workers->queue, work);
	bool wake = workers->sleeping > 0;
	if (wake) {
		workers->sleeping--;
		stats->wakes++;
	}
	unlock(workers);
	if (wake)
		(void)pthread_cond_signal(&workers->wake); /* cannot fail */
}

/* Signals are for the threads that asked for them, never for a helper. */
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
	struct lp_workers *workers =
		calloc(1, sizeof(*workers) + thread_cnt * sizeof(workers->threads[0]));
	if (workers == NULL)
		return -ENOMEM;
	workers->thread_cnt = thread_cnt;
	work_list_init(&workers->queue);
	int err = pthread_mutex_init(&workers->lock, NULL);
	LP_ASSERT(err == 0);
	err = pthread_cond_init(&workers->wake, NULL);
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
	lock(workers);
	workers->stopping = true;
	unlock(workers);
	(void)pthread_cond_broadcast(&workers->wake); /* cannot fail */
	for (uint32_t i = 0; i < workers->started; i++) {
		int err = pthread_join(workers->threads[i], NULL);
		LP_ASSERT(err == 0);
	}
	LP_ASSERT(workers->stats.queued == 0 && workers->stats.running == 0);
	(void)pthread_cond_destroy(&workers->wake);
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
	*ret_stats = workers->stats;
	unlock(workers);
}
