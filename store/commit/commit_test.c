/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: one device write per group; who waits is told of what he waits for, never inside the call,
 * and in the end, also of a failure; what waited for the index enters it bit by bit, and nothing is
 * persisted there before the log has it (rule L4). What is left after a power cut:
 * commit/crash_test.c.
 * Method: the pipeline on real parts, each case by hand. */
#include "store/commit/pipeline_test.h"

#include <pthread.h>
#include <unistd.h>

static void test_settles_and_counts(void **state)
{
	(void)state;
	lpi_pipe_init(1, 4096);
	/* One transaction at a time: one write-through each, nothing else before write-back. */
	for (int i = 0; i < 20; i++) {
		while (!lpi_pipe_begin_txn())
			(void)lp_reactor_turn(lpi_pipe.sim.reactor, true);
		while (!lpi_pipe.txns[lpi_pipe.txn_cnt].acked)
			assert_int_not_equal(lp_reactor_turn(lpi_pipe.sim.reactor, true), 0);
	}
	const struct lp_bdev_stats *stats = lp_bdev_stats(lpi_pipe.sim.chan);
	assert_int_equal(lp_commit_stats(lpi_pipe.commit)->groups, 20);
	assert_true(stats->ops[LP_BDEV_WRITE_THROUGH] <= 20 + 4 /* superblocks */);
	lpi_pipe_fini();
}

/* Orders something, and gives the pipeline the turns in which it could write. */
static void order(uint64_t value)
{
	lpi_pipe_put_u64(5, value);
	for (int i = 0; i < 8; i++)
		(void)lp_reactor_turn(lpi_pipe.sim.reactor, false);
}

static void turn_until_idle(void)
{
	while (!lp_commit_is_idle(lpi_pipe.commit))
		assert_int_not_equal(lp_reactor_turn(lpi_pipe.sim.reactor, true), 0);
}

static void told_late(struct lp_commit_waiter *waiter, int result)
{
	assert_int_equal(result, 0);
	waiter->told = NULL;
}

/* What nobody waits for shares a frame with what comes within the time to hold (rule M1 allows far
 * more); who waits does not wait for that time, and neither do those after him. */
static void test_held(void **state)
{
	(void)state;
	struct lp_commit_waiter waiter = {.told = told_late};
	lpi_pipe_hold_ns = LP_NS_PER_MS;
	lpi_pipe_init(1, 4096);
	lpi_pipe_hold_ns = 0;
	const struct lp_commit_stats *stats = lp_commit_stats(lpi_pipe.commit);
	for (uint64_t i = 1; i <= 4; i++) {
		order(i);
		assert_int_equal(stats->groups, i);
		turn_until_idle();
	}
	uint64_t began_ns = lp_reactor_now_ns(lpi_pipe.sim.reactor);
	for (uint64_t i = 1; i <= 10; i++) {
		order(i);
		assert_int_equal(stats->groups, 4);
	}
	turn_until_idle();
	assert_int_equal(stats->groups, 5);
	assert_true(lp_reactor_now_ns(lpi_pipe.sim.reactor) - began_ns >= LP_NS_PER_MS);
	order(1);
	assert_int_equal(stats->groups, 5);
	began_ns = lp_reactor_now_ns(lpi_pipe.sim.reactor);
	lp_commit_wait(lpi_pipe.commit, &waiter);
	while (waiter.told != NULL)
		assert_int_not_equal(lp_reactor_turn(lpi_pipe.sim.reactor, true), 0);
	assert_int_equal(stats->groups, 6);
	assert_true(lp_reactor_now_ns(lpi_pipe.sim.reactor) - began_ns < LP_NS_PER_MS);
	order(2);
	assert_int_equal(stats->groups, 7);
	lpi_pipe_fini();
}

/* The last frame that may be in flight is for those who wait: what nobody waits for would keep them
 * waiting, and goes with them, or when nothing else is on its way. */
static void test_last_frame_is_for_who_waits(void **state)
{
	(void)state;
	struct lp_commit_waiter first = {.told = told_late};
	struct lp_commit_waiter second = {.told = told_late};
	lpi_pipe_init(1, 4096);
	const struct lp_commit_stats *stats = lp_commit_stats(lpi_pipe.commit);
	lpi_pipe_put_u64(5, 1);
	lp_commit_wait(lpi_pipe.commit, &first);
	order(2);
	assert_int_equal(stats->groups, 1);
	order(3);
	assert_int_equal(stats->groups, 1);
	assert_non_null(first.told);
	lp_commit_wait(lpi_pipe.commit, &second);
	order(4);
	assert_int_equal(stats->groups, 2);
	order(5);
	assert_int_equal(stats->groups, 2);
	turn_until_idle();
	assert_int_equal(stats->groups, 3);
	assert_null(first.told);
	assert_null(second.told);
	lpi_pipe_fini();
}

/* Room that was set aside and not used does not stay taken. */
static void test_unused_reservations(void **state)
{
	(void)state;
	const struct lp_commit_need need = {.batch_bytes = 4000};
	lpi_pipe_init(1, 4096);
	for (int round = 0; round < 50; round++) {
		while (lp_commit_reserve(lpi_pipe.commit, &need))
			continue;
		(void)lp_reactor_turn(lpi_pipe.sim.reactor, true);
		assert_true(lp_commit_reserve(lpi_pipe.commit, &need));
		(void)lp_reactor_turn(lpi_pipe.sim.reactor, true);
	}
	lpi_pipe_fini();
}

static int told_result;

static void told_error(struct lp_commit_waiter *waiter, int result)
{
	(void)waiter;
	told_result = result;
}

static void test_nobody_waits_for_ever_after_an_error(void **state)
{
	(void)state;
	struct lp_commit_waiter waiter = {.told = told_error};
	lpi_pipe_init(1, 4096);
	lpi_pipe.is_cut = true; /* the failure is wanted */
	lp_commit_abort(lpi_pipe.commit);
	lp_commit_wait_room(lpi_pipe.commit, &waiter);
	assert_int_equal(told_result, 0); /* never inside the call */
	(void)lp_reactor_turn(lpi_pipe.sim.reactor, true);
	assert_int_equal(told_result, -EIO);
	lpi_pipe_fini();
}

static void told_inserted(struct lp_commit_waiter *waiter, int result)
{
	assert_int_equal(result, 0);
	waiter->told = NULL;
	assert_true(lpi_pipe_read_key(5) == 55);
}

static void test_iterators_start_after_the_insert(void **state)
{
	(void)state;
	lpi_pipe_init(1, 4096);
	struct lp_commit_waiter waiter = {.told = told_inserted};
	lpi_pipe_put_u64(5, 55);
	lp_commit_wait_inserted(lpi_pipe.commit, &waiter); /* rule W1 */
	while (waiter.told != NULL)
		assert_int_not_equal(lp_reactor_turn(lpi_pipe.sim.reactor, true), 0);
	lpi_pipe_fini();
}

static void put_group(uint32_t records)
{
	uint64_t groups = lp_commit_stats(lpi_pipe.commit)->groups;
	for (uint32_t i = 1; i <= records; i++)
		lpi_pipe_put_u64(5, i);
	while (lp_commit_stats(lpi_pipe.commit)->groups == groups)
		(void)lp_reactor_turn(lpi_pipe.sim.reactor, true);
}

/* What waited for the index enters it bit by bit, for the thread has other things to do, too. */
static void test_insertions_after_a_stall(void **state)
{
	(void)state;
	enum { STALLED = 6, RECORDS = 300 };
	lpi_pipe_init(1, 4096);
	const struct lp_commit_stats *stats = lp_commit_stats(lpi_pipe.commit);
	while (stats->insert_retries == 0) {
		put_group(1);
		lpi_pipe_flush_index();
	}
	for (uint32_t i = 0; i < STALLED; i++)
		put_group(RECORDS);
	uint64_t last = lp_log_next_seq(lpi_pipe.log) - 1;
	assert_true(lp_commit_inserted_seq(lpi_pipe.commit) + STALLED <= last);
	lpi_pipe_run_index_jobs();
	while (lp_commit_inserted_seq(lpi_pipe.commit) < last) {
		uint64_t before = lp_commit_inserted_seq(lpi_pipe.commit);
		(void)lp_reactor_turn(lpi_pipe.sim.reactor, true);
		assert_true(lp_commit_inserted_seq(lpi_pipe.commit) < before + STALLED);
	}
	assert_true(lpi_pipe_read_key(5) == RECORDS);
	lpi_pipe_fini();
}

static void *barrier_main(void *arg)
{
	*(int *)arg = lp_commit_barrier(lpi_pipe.commit);
	return NULL;
}

/* RocksDB's thread waits for what had begun to enter the index, and is let go with an error when
 * the log fails (rule L4). */
static void test_barrier_of_a_thread(void **state)
{
	(void)state;
	for (int round = 0; round < 2; round++) {
		const struct lp_sim_rule rule = {.fault = LP_SIM_EIO, .fire_cnt = 1};
		pthread_t thread;
		int result = 1;
		lpi_pipe_init(1, 4096);
		lp_commit_set_inline_barrier(lpi_pipe.commit, false);
		if (round == 1)
			(void)lp_sim_rule_add(lpi_pipe.sim.sim, &rule);
		lpi_pipe_put_u64(5, 55);
		/* Until the batch is in the index; the frame is in flight then. */
		while (lp_commit_inserted_seq(lpi_pipe.commit) == 0)
			(void)lp_reactor_turn(lpi_pipe.sim.reactor, false);
		assert_int_equal(lp_commit_durable_seq(lpi_pipe.commit), 0);
		assert_int_equal(pthread_create(&thread, NULL, barrier_main, &result), 0);
		(void)usleep(20000);
		assert_int_equal(result, 1); /* still waiting */
		while (lp_commit_durable_seq(lpi_pipe.commit) == 0 && lpi_pipe.failed == 0)
			(void)lp_reactor_turn(lpi_pipe.sim.reactor, true);
		assert_int_equal(pthread_join(thread, NULL), 0);
		assert_int_equal(result, round == 0 ? 0 : -EROFS);
		lpi_pipe_fini();
	}
}

static void test_waiting_for_nothing(void **state)
{
	(void)state;
	lpi_pipe_init(1, 4096);
	struct lp_commit_waiter waiters[2] = {{.told = told_late}, {.told = told_late}};
	lp_commit_wait(lpi_pipe.commit, &waiters[0]);
	lp_commit_wait_inserted(lpi_pipe.commit, &waiters[1]);
	assert_non_null(waiters[0].told); /* never inside the call */
	(void)lp_reactor_turn(lpi_pipe.sim.reactor, true);
	assert_true(waiters[0].told == NULL && waiters[1].told == NULL);
	lpi_pipe_fini();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_settles_and_counts),
		cmocka_unit_test(test_held),
		cmocka_unit_test(test_last_frame_is_for_who_waits),
		cmocka_unit_test(test_waiting_for_nothing),
		cmocka_unit_test(test_unused_reservations),
		cmocka_unit_test(test_nobody_waits_for_ever_after_an_error),
		cmocka_unit_test(test_iterators_start_after_the_insert),
		cmocka_unit_test(test_insertions_after_a_stall),
		cmocka_unit_test(test_barrier_of_a_thread),
	};
	return lp_test_main(tests, "store/commit/commit");
}
