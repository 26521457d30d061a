/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: nobody comes through before the log is durable as far as he needs (rule L4), and everybody
 * is told of its failure (rule L7). Method: threads that wait, each for another frame. */
#include <pthread.h>
#include <sched.h>

#include "base/error.h"
#include "base/testing/test.h"
#include "store/commit/manifest_barrier.h"

enum { THREADS = 4 };

struct waiting {
	struct lp_barrier *barrier;
	uint64_t need_seq;
	_Atomic bool is_through;
	int result;
	pthread_t thread;
};

static void *wait_run(void *arg)
{
	struct waiting *waiting = arg;
	waiting->result = lp_barrier_wait(waiting->barrier, waiting->need_seq);
	atomic_store(&waiting->is_through, true);
	return NULL;
}

/* For the frames 11, 12, ... */
static void start(struct lp_barrier *barrier, struct waiting *waiting)
{
	lp_barrier_init(barrier, 5, 10);
	for (uint32_t i = 0; i < THREADS; i++) {
		waiting[i] = (struct waiting){.barrier = barrier, .need_seq = 11 + i};
		assert_int_equal(pthread_create(&waiting[i].thread, NULL, wait_run, &waiting[i]),
				 0);
	}
	while (atomic_load(&barrier->waiting_cnt) < THREADS)
		(void)sched_yield();
}

static void join(struct waiting *waiting)
{
	assert_int_equal(pthread_join(waiting->thread, NULL), 0);
}

/* At the latest with the last one: others who still wait may take the token that was meant for who
 * need not wait any more. */
static void test_each_comes_through_in_his_turn(void **state)
{
	(void)state;
	struct lp_barrier barrier;
	struct waiting waiting[THREADS];
	start(&barrier, waiting);
	assert_int_equal(lp_barrier_wait(&barrier, 10), 0);
	for (uint32_t i = 0; i < THREADS; i++) {
		for (uint32_t k = i; k < THREADS; k++)
			assert_false(atomic_load(&waiting[k].is_through));
		lp_barrier_pass(&barrier, 11 + i);
	}
	for (uint32_t i = 0; i < THREADS; i++) {
		join(&waiting[i]);
		assert_int_equal(waiting[i].result, 0);
	}
	lp_barrier_fini(&barrier);
}

static void test_a_failure_is_told_to_all(void **state)
{
	(void)state;
	struct lp_barrier barrier;
	struct waiting waiting[THREADS];
	start(&barrier, waiting);
	lp_barrier_fail(&barrier);
	for (uint32_t i = 0; i < THREADS; i++) {
		join(&waiting[i]);
		assert_int_equal(waiting[i].result, -EROFS);
	}
	/* Also who needs nothing of it: what he has may be of a frame that failed. */
	assert_int_equal(lp_barrier_wait(&barrier, 0), -EROFS);
	lp_barrier_fini(&barrier);
}

static void test_what_enters(void **state)
{
	(void)state;
	struct lp_barrier barrier;
	lp_barrier_init(&barrier, 5, 10);
	assert_true(lp_barrier_entering(&barrier) == 5);
	lp_barrier_enter(&barrier, 8);
	assert_true(lp_barrier_entering(&barrier) == 8);
	lp_barrier_fini(&barrier);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_each_comes_through_in_his_turn),
		cmocka_unit_test(test_a_failure_is_told_to_all),
		cmocka_unit_test(test_what_enters),
	};
	return lp_test_main(tests, "store/commit/manifest_barrier");
}
