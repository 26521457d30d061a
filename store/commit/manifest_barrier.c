/* SPDX-License-Identifier: Apache-2.0 */
#include "store/commit/manifest_barrier.h"

#include "base/assert.h"
#include "base/error.h"

void lp_barrier_init(struct lp_barrier *barrier, uint64_t entering_seq, uint64_t durable_seq)
{
	atomic_store(&barrier->entering_seq, entering_seq);
	atomic_store(&barrier->durable_seq, durable_seq);
	atomic_store(&barrier->has_failed, false);
	atomic_store(&barrier->waiting_cnt, 0);
	(void)sem_init(&barrier->wake, 0, 0); /* cannot fail: it is not shared */
}

void lp_barrier_fini(struct lp_barrier *barrier)
{
	LP_ASSERT(atomic_load(&barrier->waiting_cnt) == 0);
	(void)sem_destroy(&barrier->wake);
}

void lp_barrier_enter(struct lp_barrier *barrier, uint64_t seq)
{
	atomic_store(&barrier->entering_seq, seq);
}

/* Rare: RocksDB installs a flush. This is no condition variable, because signalling one may wait
 * for threads that were woken before. A surplus token makes one thread look once more. A thread
 * that took another thread's token and still waits has a frame under way, whose end gives both a
 * token. */
static void wake_all(struct lp_barrier *barrier)
{
	for (uint32_t cnt = atomic_load(&barrier->waiting_cnt); cnt > 0; cnt--)
		(void)sem_post(&barrier->wake); /* cannot fail */
}

void lp_barrier_pass(struct lp_barrier *barrier, uint64_t seq)
{
	atomic_store(&barrier->durable_seq, seq);
	wake_all(barrier);
}

void lp_barrier_fail(struct lp_barrier *barrier)
{
	atomic_store(&barrier->has_failed, true);
	wake_all(barrier);
}

uint64_t lp_barrier_entering(const struct lp_barrier *barrier)
{
	return atomic_load(&barrier->entering_seq);
}

int lp_barrier_wait(struct lp_barrier *barrier, uint64_t need_seq)
{
	atomic_fetch_add(&barrier->waiting_cnt, 1);
	while (atomic_load(&barrier->durable_seq) < need_seq && !atomic_load(&barrier->has_failed))
		(void)sem_wait(&barrier->wake); /* interrupted: the loop looks once more */
	atomic_fetch_sub(&barrier->waiting_cnt, 1);
	return atomic_load(&barrier->has_failed) ? -EROFS : 0;
}
