/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: every work runs once, off the reactor's thread, and comes back to the reactor that
 * submitted it; nothing is done inside submit; the queue keeps its order and its counters; free
 * waits; without threads the same works run in the reactor's turns, in a fixed order.
 * Method: real reactors and threads; works that record where and when they ran. */
#include "base/testing/test.h"

#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include "base/loop/workers.h"

struct item {
	struct lp_work work;
	pthread_t ran_on;
	int runs;
	int dones;
	uint64_t run_turn;
	uint64_t done_turn;
	struct item *resubmit_to; /* submit this one from done() */
};

static struct {
	struct lp_reactor *reactor;
	struct lp_workers *workers;
	int done_cnt;
	bool inside_submit;
	struct item *order[64];
	_Atomic int run_cnt;
	int gate[2]; /* a pipe that a work may wait on */
} bed;

static void record_run(struct lp_work *work)
{
	struct item *item = LP_CONTAINER_OF(work, struct item, work);
	item->ran_on = pthread_self();
	item->runs++;
	int idx = atomic_fetch_add(&bed.run_cnt, 1);
	if (idx < (int)LP_ARRAY_SIZE(bed.order))
		bed.order[idx] = item;
	/* Only a pool without threads runs on the reactor's own. */
	if (lp_reactor_is_mine(bed.reactor))
		item->run_turn = lp_reactor_stats(bed.reactor)->turns;
}

static void record_done(struct lp_work *work)
{
	struct item *item = LP_CONTAINER_OF(work, struct item, work);
	assert_false(bed.inside_submit);
	assert_true(lp_reactor_is_mine(bed.reactor));
	assert_true(lp_work_is_idle(work));
	item->dones++;
	item->done_turn = lp_reactor_stats(bed.reactor)->turns;
	bed.done_cnt++;
	if (item->resubmit_to != NULL) {
		struct item *next = item->resubmit_to;
		item->resubmit_to = NULL;
		lp_workers_submit(bed.workers, bed.reactor, &next->work);
	}
}

static void wait_at_gate(struct lp_work *work)
{
	char byte;
	assert_int_equal(read(bed.gate[0], &byte, 1), 1);
	record_run(work);
}

static void set_up(uint32_t thread_cnt, bool ring)
{
	memset(&bed, 0, sizeof(bed));
	const struct lp_reactor_options options = {.name = "test", .ring = ring};
	lp_test_ok(lp_reactor_new(&options, &bed.reactor));
	lp_test_ok(lp_reactor_start(bed.reactor));
	lp_test_ok(lp_workers_new(thread_cnt, &bed.workers));
	assert_int_equal(lp_workers_thread_cnt(bed.workers), thread_cnt);
	assert_int_equal(pipe(bed.gate), 0);
}

static void tear_down(void)
{
	lp_workers_free(bed.workers);
	lp_reactor_free(bed.reactor);
	(void)close(bed.gate[0]);
	(void)close(bed.gate[1]);
}

static void submit(struct item *item, void (*run)(struct lp_work *work))
{
	*item = (struct item){.work = {.run = run, .done = record_done},
			      .resubmit_to = item->resubmit_to};
	bed.inside_submit = true;
	lp_workers_submit(bed.workers, bed.reactor, &item->work);
	bed.inside_submit = false;
}

static void turn_until_done(int done_cnt)
{
	while (bed.done_cnt < done_cnt)
		(void)lp_reactor_turn(bed.reactor, true);
}

static void check_all(const struct item *items, int cnt)
{
	struct lp_workers_stats stats;
	lp_workers_read_stats(bed.workers, &stats);
	assert_int_equal(stats.submitted, cnt);
	assert_int_equal(stats.ran, cnt);
	assert_int_equal(stats.queued, 0);
	assert_int_equal(stats.running, 0);
	for (int i = 0; i < cnt; i++) {
		assert_int_equal(items[i].runs, 1);
		assert_int_equal(items[i].dones, 1);
	}
}

static void test_works_run_elsewhere_and_come_back(void **state)
{
	(void)state;
	static struct item items[500];
	memset(items, 0, sizeof(items));
	set_up(3, true);
	for (size_t i = 0; i < LP_ARRAY_SIZE(items); i++)
		submit(&items[i], record_run);
	turn_until_done(LP_ARRAY_SIZE(items));
	check_all(items, LP_ARRAY_SIZE(items));
	for (size_t i = 0; i < LP_ARRAY_SIZE(items); i++)
		assert_false(pthread_equal(items[i].ran_on, pthread_self()));
	tear_down();
}

static _Atomic bool partner_ran;

static void wait_for_partner(struct lp_work *work)
{
	while (!atomic_load(&partner_ran))
		(void)sched_yield();
	record_run(work);
}

static void be_partner(struct lp_work *work)
{
	atomic_store(&partner_ran, true);
	record_run(work);
}

/* A work must not wait beside a sleeping helper, whichever helper took it from the inbox. Here the
 * first ends only when the second has run. */
static void test_no_work_waits_beside_a_sleeper(void **state)
{
	(void)state;
	set_up(2, true);
	for (int i = 0; i < 2000; i++) {
		static struct item items[2];
		memset(items, 0, sizeof(items));
		atomic_store(&partner_ran, false);
		bed.done_cnt = 0;
		submit(&items[0], wait_for_partner);
		if (i % 3 == 0)
			(void)sched_yield();
		submit(&items[1], be_partner);
		turn_until_done(2);
	}
	tear_down();
}

static void test_one_thread_keeps_the_order_and_counts_the_queue(void **state)
{
	(void)state;
	struct item items[32] = {0};
	struct lp_workers_stats stats;
	set_up(1, true);
	submit(&items[0], wait_at_gate);
	do {
		lp_workers_read_stats(bed.workers, &stats);
	} while (stats.running == 0);
	for (size_t i = 1; i < LP_ARRAY_SIZE(items); i++)
		submit(&items[i], record_run);
	lp_workers_read_stats(bed.workers, &stats);
	assert_int_equal(stats.queued, 31);
	assert_int_equal(stats.queued_max, 31);
	/* The only helper is awake: no signal is wasted on it. */
	assert_true(stats.wakes <= 1);
	assert_int_equal(write(bed.gate[1], "x", 1), 1);
	turn_until_done(LP_ARRAY_SIZE(items));
	check_all(items, LP_ARRAY_SIZE(items));
	for (size_t i = 0; i < LP_ARRAY_SIZE(items); i++)
		assert_ptr_equal(bed.order[i], &items[i]);
	tear_down();
}

static void test_a_blocked_work_holds_up_no_other(void **state)
{
	(void)state;
	struct item items[3] = {0};
	set_up(2, true);
	submit(&items[0], wait_at_gate);
	submit(&items[1], record_run);
	turn_until_done(1);
	assert_int_equal(items[1].dones, 1);
	/* A done() may submit, also the work that was just done. */
	items[2].resubmit_to = NULL;
	items[1].resubmit_to = &items[1];
	submit(&items[1], record_run);
	turn_until_done(3);
	assert_int_equal(items[1].runs, 2);
	assert_int_equal(items[0].dones, 0);
	assert_int_equal(write(bed.gate[1], "x", 1), 1);
	turn_until_done(4);
	tear_down();
}

static void test_free_waits_and_done_still_comes(void **state)
{
	(void)state;
	struct item items[20] = {0};
	set_up(2, true);
	for (size_t i = 0; i < LP_ARRAY_SIZE(items); i++)
		submit(&items[i], record_run);
	lp_workers_free(bed.workers);
	bed.workers = NULL;
	for (size_t i = 0; i < LP_ARRAY_SIZE(items); i++)
		assert_int_equal(items[i].runs, 1);
	turn_until_done(LP_ARRAY_SIZE(items));
	tear_down();
}

static void *second_reactor_main(void *arg)
{
	struct lp_workers *workers = arg;
	struct lp_reactor *reactor;
	const struct lp_reactor_options options = {.name = "second", .ring = true};
	lp_test_ok(lp_reactor_new(&options, &reactor));
	lp_test_ok(lp_reactor_start(reactor));
	lp_workers_free(workers);
	lp_reactor_free(reactor);
	return NULL;
}

static void test_an_idle_pool_can_be_freed_by_another_thread(void **state)
{
	(void)state;
	pthread_t thread;
	set_up(4, true);
	assert_int_equal(pthread_create(&thread, NULL, second_reactor_main, bed.workers), 0);
	assert_int_equal(pthread_join(thread, NULL), 0);
	bed.workers = NULL;
	tear_down();
}

static void test_without_threads_all_happens_in_turns(void **state)
{
	(void)state;
	struct item items[8] = {0};
	set_up(0, false);
	for (size_t i = 0; i < LP_ARRAY_SIZE(items); i++)
		submit(&items[i], record_run);
	assert_int_equal(bed.run_cnt, 0); /* not inside submit */
	turn_until_done(LP_ARRAY_SIZE(items));
	check_all(items, LP_ARRAY_SIZE(items));
	for (size_t i = 0; i < LP_ARRAY_SIZE(items); i++) {
		assert_ptr_equal(bed.order[i], &items[i]);
		assert_true(pthread_equal(items[i].ran_on, pthread_self()));
		assert_true(items[i].done_turn > items[i].run_turn);
	}
	assert_int_equal(lp_reactor_turn(bed.reactor, true), 0);
	tear_down();
}

static void test_limits(void **state)
{
	(void)state;
	struct lp_workers *workers = NULL;
	lp_test_err(-EINVAL, lp_workers_new(LP_WORKERS_MAX + 1, &workers));
	assert_null(workers);
	lp_workers_free(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_works_run_elsewhere_and_come_back),
		cmocka_unit_test(test_no_work_waits_beside_a_sleeper),
		cmocka_unit_test(test_one_thread_keeps_the_order_and_counts_the_queue),
		cmocka_unit_test(test_a_blocked_work_holds_up_no_other),
		cmocka_unit_test(test_free_waits_and_done_still_comes),
		cmocka_unit_test(test_an_idle_pool_can_be_freed_by_another_thread),
		cmocka_unit_test(test_without_threads_all_happens_in_turns),
		cmocka_unit_test(test_limits),
	};
	return lp_test_main(tests, "workers");
}
