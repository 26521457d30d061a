/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: gets, scans, flushes and resumes come back to the reactor with what kv.h would have
 * returned; a scan stops at its buffer, its count and its bound, says whether there is more, and
 * can go on from its last key.
 * Method: the same checks with helper threads on a ring, and without in a simulation. */
#include "store/index/kv_rig_test.h"

#include "store/index/async.h"

static struct {
	struct lp_test_kv kv;
	struct lp_reactor *reactor;
	struct lp_workers *workers;
	int done_cnt;
} bed;

static void set_up(bool sim)
{
	memset(&bed, 0, sizeof(bed));
	lp_test_kv_init(&bed.kv, sim, 1);
	lp_test_kv_open(&bed.kv);
	struct lp_reactor_options options = {.name = "test", .ring = !sim};
	if (sim) {
		options.clock = &bed.kv.clock.clock;
		options.sim = &bed.kv.clock;
	}
	lp_test_ok(lp_reactor_new(&options, &bed.reactor));
	lp_test_ok(lp_reactor_start(bed.reactor));
	lp_test_ok(lp_workers_new(sim ? 0 : 2, &bed.workers));
}

static void tear_down(void)
{
	lp_workers_free(bed.workers);
	lp_reactor_free(bed.reactor);
	lp_test_kv_fini(&bed.kv);
}

static void wait_for(int done_cnt)
{
	while (bed.done_cnt < done_cnt)
		(void)lp_reactor_turn(bed.reactor, true);
	bed.done_cnt = 0;
}

static void get_done(struct lp_kv_get_op *op)
{
	assert_true(lp_reactor_is_mine(bed.reactor));
	assert_true(lp_work_is_idle(&op->work));
	bed.done_cnt++;
}

static void scan_done(struct lp_kv_scan_op *op)
{
	assert_true(op->used <= op->buf_len || op->result == -ENOBUFS);
	bed.done_cnt++;
}

static void call_done(struct lp_kv_call_op *op)
{
	assert_non_null(op->call);
	bed.done_cnt++;
}

static void check_gets_and_calls(void)
{
	struct lp_kv_get_op gets[3] = {{.key = lp_test_text("a")},
				       {.key = lp_test_text("b")},
				       {.key = lp_test_text("a"), .persisted = true}};
	struct lp_kv_call_op call = {.kv = bed.kv.kv, .call = lp_kv_flush_wait, .done = call_done};
	lp_test_ok(lp_test_kv_put(&bed.kv, "a", "1"));
	for (int round = 0; round < 2; round++) {
		for (size_t i = 0; i < LP_ARRAY_SIZE(gets); i++) {
			gets[i].kv = bed.kv.kv;
			gets[i].done = get_done;
			lp_kv_get_submit(bed.workers, bed.reactor, &gets[i]);
		}
		assert_int_equal(bed.done_cnt, 0);
		wait_for(LP_ARRAY_SIZE(gets));
		lp_test_ok(gets[0].result);
		assert_memory_equal(gets[0].value.bytes.data, "1", 1);
		lp_kv_value_release(&gets[0].value);
		lp_test_err(-ENOENT, gets[1].result);
		lp_test_err(round == 0 ? -ENOENT : 0, gets[2].result);
		if (round == 1)
			lp_kv_value_release(&gets[2].value);
		lp_kv_call_submit(bed.workers, bed.reactor, &call);
		wait_for(1);
		lp_test_ok(call.result);
	}
	call.call = lp_kv_resume; /* nothing is wrong: nothing happens */
	lp_kv_call_submit(bed.workers, bed.reactor, &call);
	wait_for(1);
	lp_test_ok(call.result);
}

static void run_scan(struct lp_kv_scan_op *op)
{
	lp_kv_scan_submit(bed.workers, bed.reactor, op);
	wait_for(1);
}

static void check_scans(void)
{
	char key[16];
	uint8_t buf[600];
	struct lp_kv_scan_op op = {.kv = bed.kv.kv,
				   .lower = lp_test_text("k010"),
				   .upper = lp_test_text("k090"),
				   .buf = buf,
				   .buf_len = sizeof(buf),
				   .done = scan_done};
	run_scan(&op);
	lp_test_ok(op.result);
	assert_int_equal(op.records, 0);
	assert_false(op.more);
	for (int i = 0; i < 100; i++) {
		(void)snprintf(key, sizeof(key), "k%03d", i);
		lp_test_ok(lp_test_kv_put(&bed.kv, key, key));
	}
	int next = 10;
	char last[8];
	do { /* piece by piece */
		struct lp_kv_bytes got_key;
		struct lp_kv_bytes got_value;
		size_t pos = 0;
		uint32_t records = 0;
		run_scan(&op);
		lp_test_ok(op.result);
		while (lp_kv_scan_next(&op, &pos, &got_key, &got_value)) {
			(void)snprintf(key, sizeof(key), "k%03d", next++);
			assert_int_equal(got_key.len, 4);
			assert_int_equal(got_value.len, 4);
			assert_memory_equal(got_key.data, key, 4);
			assert_memory_equal(got_value.data, key, 4);
			records++;
		}
		assert_int_equal(records, op.records);
		memcpy(last, key, 5); /* the successor of a key has a zero byte more */
		op.lower = (struct lp_kv_bytes){.data = last, .len = 5};
	} while (op.more);
	assert_int_equal(next, 90);
	op = (struct lp_kv_scan_op){
		.kv = bed.kv.kv, .buf = buf, .buf_len = 600, .records_max = 7, .done = scan_done};
	run_scan(&op);
	lp_test_ok(op.result);
	assert_int_equal(op.records, 7);
	assert_true(op.more);
	op.buf_len = 20;
	run_scan(&op);
	lp_test_err(-ENOBUFS, op.result);
	assert_int_equal(op.records, 0);
	op.buf_len = op.used; /* what it asked for is enough */
	run_scan(&op);
	lp_test_ok(op.result);
	assert_int_equal(op.records, 1);
	assert_true(op.more);
}

static void test_gets_and_calls_with_threads(void **state)
{
	(void)state;
	set_up(false);
	check_gets_and_calls();
	tear_down();
}

static void test_gets_and_calls_in_a_simulation(void **state)
{
	(void)state;
	set_up(true);
	check_gets_and_calls();
	tear_down();
}

static void test_scans_with_threads(void **state)
{
	(void)state;
	set_up(false);
	check_scans();
	tear_down();
}

static void test_scans_in_a_simulation(void **state)
{
	(void)state;
	set_up(true);
	check_scans();
	tear_down();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_gets_and_calls_with_threads),
		cmocka_unit_test(test_gets_and_calls_in_a_simulation),
		cmocka_unit_test(test_scans_with_threads),
		cmocka_unit_test(test_scans_in_a_simulation),
	};
	return lp_test_main(tests, "kv_async");
}
