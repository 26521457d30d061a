/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: the simulated device while it runs: clauses SIM1 to SIM6 of store/device/sim/README.md, and
 * what it refuses. Method: a reactor in simulated time; what may go either way is tried until both
 * ways were seen, and never a third. */
#include "store/device/sim/sim_test.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

/* --- SIM1 --------------------------------------------------------------------------------------
 */

/* A busy run; returns its hash. */
static uint64_t busy_run(uint64_t seed, int odd_tag)
{
	struct lpi_bench bench;
	struct lpi_bench_op *ops[64];
	struct lp_prng prng;
	lp_prng_init(&prng, 9);
	lpi_bench_init(&bench, lp_sim_preset(LP_SIM_HOSTILE), seed);
	(void)lp_sim_rule_add(bench.sim,
			      &(struct lp_sim_rule){.fault = LP_SIM_EIO, .chance_ppm = 100000});
	for (int round = 0; round < 4; round++) {
		for (size_t i = 0; i < LP_ARRAY_SIZE(ops); i++) {
			enum lp_bdev_opcode opcode = lp_prng_below(&prng, LP_BDEV_OPCODE_CNT);
			int tag = round == 2 && i == 5 ? odd_tag : (int)i;
			uint64_t at = lp_prng_below(&prng, 100);
			ops[i] = lpi_bench_submit(&bench, opcode, tag, at, 1 + i % 9);
		}
		for (size_t i = 0; i < LP_ARRAY_SIZE(ops); i++) {
			lpi_bench_wait(&bench, ops[i]);
			free(ops[i]);
		}
	}
	uint64_t hash = lp_sim_trace_hash(bench.sim);
	lpi_bench_fini(&bench);
	return hash;
}

static void test_sim1_one_seed(void **state)
{
	(void)state;
	uint64_t hash = busy_run(1, 5);
	assert_true(hash == busy_run(1, 5));
	assert_true(hash != busy_run(2, 5));
}

/* The hash sees a time, a written byte, a read byte that no write explains, and a lost write. */
static void test_sim1_hash_sees(void **state)
{
	(void)state;
	uint64_t hashes[5];
	struct lp_sim_profile profile = lpi_bench_plain_profile(4096);
	for (size_t i = 0; i < LP_ARRAY_SIZE(hashes); i++) {
		struct lpi_bench bench;
		lpi_bench_init(&bench, &profile, 1);
		if (i == 3) /* leaves no event: only the data read shows it */
			(void)lp_sim_rule_add(bench.sim,
					      &(struct lp_sim_rule){.fault = LP_SIM_STALE});
		if (i == 4) /* nor does this */
			(void)lp_sim_rule_add(bench.sim,
					      &(struct lp_sim_rule){.fault = LP_SIM_LOST});
		lp_test_ok(lpi_bench_do(&bench, LP_BDEV_WRITE, i == 1 ? 2 : 1, 0, 1));
		if (i == 2) {
			lp_clock_sim_advance_to(&bench.clock, bench.clock.now_ns + 1);
			(void)lp_reactor_turn(bench.reactor, false); /* only looks at the clock */
		}
		lp_test_ok(lpi_bench_do(&bench, LP_BDEV_READ, 0, 0, 1));
		hashes[i] = lp_sim_trace_hash(bench.sim);
		lpi_bench_fini(&bench);
		for (size_t k = 0; k < i; k++)
			assert_true(hashes[k] != hashes[i]);
	}
}

/* --- SIM2 --------------------------------------------------------------------------------------
 */

static void test_sim2_later(void **state)
{
	(void)state;
	struct lp_sim_profile profile = lpi_bench_plain_profile(4096);
	struct lpi_bench bench;
	/* Even a range that says "at once" takes a turn. */
	profile.latency[LP_BDEV_WRITE] = (struct lp_sim_latency){0, 0};
	lpi_bench_init(&bench, &profile, 1);
	struct lpi_bench_op *op = lpi_bench_submit(&bench, LP_BDEV_WRITE, 1, 0, 1);
	assert_false(op->done);
	assert_int_equal(lp_bdev_inflight(bench.chan), 1);
	assert_int_equal(lp_reactor_turn(bench.reactor, false), 0);
	assert_false(op->done);
	lpi_bench_wait(&bench, op);
	assert_int_equal(lp_bdev_inflight(bench.chan), 0);
	free(op);
	lpi_bench_fini(&bench);
}

static uint64_t time_one(struct lpi_bench *bench, enum lp_bdev_opcode opcode)
{
	uint64_t start_ns = bench->clock.now_ns;
	lp_test_ok(lpi_bench_do(bench, opcode, 1, 0, 1));
	return bench->clock.now_ns - start_ns;
}

/* Each opcode has its range, and uses all of it. */
static void test_sim2_latency(void **state)
{
	(void)state;
	struct lp_sim_profile profile = lpi_bench_plain_profile(4096);
	struct lpi_bench bench;
	for (uint64_t i = 0; i < LP_BDEV_OPCODE_CNT; i++)
		profile.latency[i] = (struct lp_sim_latency){1000 + 100 * i, 1000 + 100 * i + 50};
	lpi_bench_init(&bench, &profile, 3);
	for (uint32_t i = 0; i < LP_BDEV_OPCODE_CNT; i++) {
		uint64_t least = UINT64_MAX;
		uint64_t most = 0;
		for (int n = 0; n < 200; n++) {
			uint64_t ns = time_one(&bench, (enum lp_bdev_opcode)i);
			least = LP_MIN(least, ns);
			most = LP_MAX(most, ns);
		}
		assert_in_range(least, 1000 + 100 * i, 1000 + 100 * i + 5);
		assert_in_range(most, 1000 + 100 * i + 45, 1000 + 100 * i + 50);
	}
	lpi_bench_fini(&bench);
}

static void test_sim2_slow_ones(void **state)
{
	(void)state;
	struct lp_sim_profile profile = lpi_bench_plain_profile(4096);
	struct lpi_bench bench;
	profile.slow_ppm = 100000;
	profile.slow = (struct lp_sim_latency){LP_NS_PER_S, 3 * LP_NS_PER_S};
	lpi_bench_init(&bench, &profile, 4);
	int slow_cnt = 0;
	for (int n = 0; n < 300; n++) {
		uint64_t ns = time_one(&bench, LP_BDEV_READ);
		assert_true(ns <= 2000 || (ns >= LP_NS_PER_S && ns <= 3 * LP_NS_PER_S + 2000));
		slow_cnt += ns > 2000;
	}
	assert_in_range(slow_cnt, 10, 60);
	lpi_bench_fini(&bench);
}

static void test_sim2_reordering(void **state)
{
	(void)state;
	struct lp_sim_profile profile = lpi_bench_plain_profile(4096);
	struct lpi_bench bench;
	struct lpi_bench_op *ops[200];
	uint32_t turned = 0;
	lpi_bench_init(&bench, &profile, 5);
	for (size_t i = 0; i < LP_ARRAY_SIZE(ops); i++)
		ops[i] = lpi_bench_submit(&bench, LP_BDEV_READ, 0, i, 1);
	for (size_t i = 0; i < LP_ARRAY_SIZE(ops); i++)
		lpi_bench_wait(&bench, ops[i]);
	for (size_t i = 1; i < LP_ARRAY_SIZE(ops); i++)
		turned += ops[i]->order < ops[i - 1]->order;
	assert_in_range(turned, 60, 140);
	for (size_t i = 0; i < LP_ARRAY_SIZE(ops); i++)
		free(ops[i]);
	lpi_bench_fini(&bench);
}

/* --- SIM3 --------------------------------------------------------------------------------------
 */

static void turn_both(struct lpi_bench *bench, struct lp_reactor *other, struct lpi_bench_op *op)
{
	for (int n = 0; n < 100 && !op->done; n++) {
		(void)lp_reactor_turn(bench->reactor, true); /* either may be idle */
		(void)lp_reactor_turn(other, true);
	}
	assert_true(op->done);
}

static void test_sim3_doors(void **state)
{
	(void)state;
	struct lp_sim_profile profile = lpi_bench_plain_profile(4096);
	struct lpi_bench bench;
	struct lp_reactor *other = NULL;
	struct lp_bdev_chan *second = NULL;
	struct lp_bdev_chan *third = NULL;
	lpi_bench_init(&bench, &profile, 6);
	struct lp_reactor_options options = {
		.name = "other", .clock = &bench.clock.clock, .sim = &bench.clock};
	lp_test_ok(lp_reactor_new(&options, &other));
	lp_test_ok(lp_reactor_start(other));
	lp_test_ok(lp_bdev_attach(bench.bdev, bench.reactor, &second));
	lp_test_ok(lp_bdev_attach(bench.bdev, other, &third));

	lp_test_ok(lpi_bench_do(&bench, LP_BDEV_WRITE, 1, 0, 1));
	struct lp_bdev_chan *first = bench.chan;
	bench.chan = second;
	struct lpi_bench_op *write = lpi_bench_submit(&bench, LP_BDEV_WRITE, 2, 1, 1);
	bench.chan = third;
	struct lpi_bench_op *read = lpi_bench_submit(&bench, LP_BDEV_READ, 0, 0, 1);
	assert_int_equal(lp_bdev_inflight(first), 0);
	assert_int_equal(lp_bdev_inflight(second), 1);
	assert_int_equal(lp_bdev_inflight(third), 1);
	turn_both(&bench, other, write);
	turn_both(&bench, other, read);
	assert_int_equal(lpi_bench_tag_of(read->buf, 4096), 1);
	assert_int_equal(lpi_bench_peek(bench.bdev, 1), 2);
	free(write);
	free(read);
	lp_bdev_detach(third);
	lp_bdev_detach(second);
	bench.chan = first;
	lp_reactor_free(other);
	lpi_bench_fini(&bench);
}

static void test_sim3_blocking_calls(void **state)
{
	(void)state;
	struct lp_sim_profile profile = lpi_bench_plain_profile(4096);
	struct lpi_bench bench;
	_Alignas(4096) unsigned char buf[8192];
	struct lp_sim_event event;
	memset(buf, 3, sizeof(buf));
	lpi_bench_init(&bench, &profile, 7);
	uint64_t before_ns = bench.clock.now_ns;
	lp_test_ok(lp_bdev_write_sync(bench.bdev, buf, 8192, 4096, true));
	assert_int_equal(lp_sim_event_count(bench.sim), 2);
	lp_sim_event_get(bench.sim, 0, &event);
	assert_int_equal(event.type, LP_SIM_SUBMIT);
	assert_int_equal(event.opcode, LP_BDEV_WRITE_THROUGH);
	assert_int_equal(event.offset_bytes, 4096);
	assert_int_equal(event.length_bytes, 8192);
	lp_sim_event_get(bench.sim, 1, &event);
	assert_int_equal(event.type, LP_SIM_COMPLETE);
	lp_test_ok(lp_bdev_flush_sync(bench.bdev));
	lp_test_ok(lp_bdev_discard_sync(bench.bdev, 4096, 0));
	assert_int_equal(lp_sim_event_count(bench.sim), 6);
	assert_int_equal(lpi_bench_peek(bench.bdev, 2), 3);
	assert_true(bench.clock.now_ns == before_ns);
	(void)lp_sim_rule_add(bench.sim, &(struct lp_sim_rule){.fault = LP_SIM_EIO});
	lp_test_err(-EIO, lp_bdev_flush_sync(bench.bdev));
	lpi_bench_fini(&bench);
}

/* --- SIM4, SIM5 --------------------------------------------------------------------------------
 */

static void test_sim4_reads_see_what_is_complete(void **state)
{
	(void)state;
	struct lp_sim_profile profile = lpi_bench_plain_profile(512);
	struct lpi_bench bench;
	lpi_bench_init(&bench, &profile, 8);
	for (int n = 0; n < 50; n++) {
		lp_test_ok(lpi_bench_do(&bench, LP_BDEV_WRITE, 1 + n, 3, 4));
		struct lpi_bench_op *op = lpi_bench_submit(&bench, LP_BDEV_READ, 0, 2, 6);
		lpi_bench_wait(&bench, op);
		assert_int_equal(lpi_bench_tag_of(op->buf, 512), 0);
		assert_int_equal(lpi_bench_tag_of(op->buf + 512, 4 * 512), 1 + n);
		assert_int_equal(lpi_bench_tag_of(op->buf + 2560, 512), 0);
		free(op);
	}
	lpi_bench_fini(&bench);
}

/* Reads 16 sectors beside a write and counts the reads that saw only old, only new, both. */
static void read_beside(struct lpi_bench *bench, bool read_first, int ret_cnts[3])
{
	for (int n = 0; n < 200; n++) {
		int old = 1 + n % 200;
		lp_test_ok(lpi_bench_do(bench, LP_BDEV_WRITE, old, 0, 16));
		struct lpi_bench_op *read = NULL;
		if (read_first)
			read = lpi_bench_submit(bench, LP_BDEV_READ, 0, 0, 16);
		struct lpi_bench_op *write = lpi_bench_submit(bench, LP_BDEV_WRITE, old + 1, 0, 16);
		if (!read_first)
			read = lpi_bench_submit(bench, LP_BDEV_READ, 0, 0, 16);
		lpi_bench_wait(bench, read);
		int new_cnt = 0;
		for (size_t i = 0; i < 16; i++) {
			int tag = lpi_bench_tag_of(read->buf + i * 512, 512);
			assert_in_range(tag, old, old + 1);
			new_cnt += tag == old + 1;
		}
		ret_cnts[new_cnt == 0 ? 0 : new_cnt == 16 ? 1 : 2]++;
		lpi_bench_wait(bench, write);
		free(read);
		free(write);
	}
}

static void test_sim5_reads_beside_writes(void **state)
{
	(void)state;
	struct lp_sim_profile profile = lpi_bench_plain_profile(512);
	struct lpi_bench bench;
	/* The write is always in flight when the read completes. */
	profile.latency[LP_BDEV_WRITE] = (struct lp_sim_latency){5000, 6000};
	for (int read_first = 0; read_first < 2; read_first++) {
		int cnts[3] = {0};
		lpi_bench_init(&bench, &profile, 9);
		read_beside(&bench, read_first == 1, cnts);
		assert_in_range(cnts[2], 150, 200);
		lpi_bench_fini(&bench);
	}
	/* The write is always complete when the read completes. */
	profile.latency[LP_BDEV_WRITE] = (struct lp_sim_latency){100, 200};
	for (int read_first = 0; read_first < 2; read_first++) {
		int cnts[3] = {0};
		lpi_bench_init(&bench, &profile, 10);
		read_beside(&bench, read_first == 1, cnts);
		assert_in_range(cnts[2], 150, 200);
		lpi_bench_fini(&bench);
	}
}

/* --- SIM6 --------------------------------------------------------------------------------------
 */

static void change_in_flight(void)
{
	struct lp_sim_profile profile = lpi_bench_plain_profile(4096);
	struct lpi_bench bench;
	lpi_bench_init(&bench, &profile, 11);
	struct lpi_bench_op *op = lpi_bench_submit(&bench, LP_BDEV_WRITE, 1, 0, 2);
	op->buf[5000] = 2;
	lpi_bench_wait(&bench, op);
}

static void test_sim6_changed_buffer(void **state)
{
	(void)state;
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		(void)signal(SIGABRT, SIG_DFL); /* not cmocka's handler */
		(void)close(STDERR_FILENO);
		change_in_flight();
		_exit(0);
	}
	int status = 0;
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status));
	assert_int_equal(WTERMSIG(status), SIGABRT);
}

static void test_sim6_unread_buffer(void **state)
{
	(void)state;
	struct lp_sim_profile profile = lpi_bench_plain_profile(4096);
	struct lpi_bench bench;
	lpi_bench_init(&bench, &profile, 12);
	struct lpi_bench_op *op = lpi_bench_submit(&bench, LP_BDEV_READ, 77, 0, 1);
	int junk = lpi_bench_tag_of(op->buf, 4096);
	assert_true(junk != 77 && junk != 0);
	lpi_bench_wait(&bench, op);
	assert_int_equal(lpi_bench_tag_of(op->buf, 4096), 0);
	free(op);
	/* A long one's begins with junk in each sector. */
	op = lpi_bench_submit(&bench, LP_BDEV_READ, 77, 0, 16);
	for (size_t at = 0; at < sizeof(op->buf); at += 4096)
		assert_int_equal(lpi_bench_tag_of(op->buf + at, 64), junk);
	lpi_bench_wait(&bench, op);
	assert_int_equal(lpi_bench_tag_of(op->buf, sizeof(op->buf)), 0);
	free(op);
	lpi_bench_fini(&bench);
}

/* --- Opening -----------------------------------------------------------------------------------
 */

static void test_refuses(void **state)
{
	(void)state;
	struct lp_bdev *bdev = NULL;
	struct lp_sim_profile profile = lpi_bench_plain_profile(4096);
	struct lp_sim_options options = {.profile = &profile, .size_bytes = 8192};
	lp_test_ok(lp_bdev_open_sim(&options, &bdev));
	lp_test_ok(lp_bdev_refresh_size(bdev));
	lp_bdev_close(bdev);
	options.size_bytes = 0;
	lp_test_err(-EINVAL, lp_bdev_open_sim(&options, &bdev));
	options.size_bytes = 8192 + 512;
	lp_test_err(-EINVAL, lp_bdev_open_sim(&options, &bdev));
	options.size_bytes = 8192;
	profile.sector_bytes = 1024;
	lp_test_err(-EINVAL, lp_bdev_open_sim(&options, &bdev));
	profile = lpi_bench_plain_profile(4096);
	profile.atomic_write_bytes = 512;
	lp_test_err(-EINVAL, lp_bdev_open_sim(&options, &bdev));
	profile = lpi_bench_plain_profile(4096);
	profile.latency[2] = (struct lp_sim_latency){2, 1};
	lp_test_err(-EINVAL, lp_bdev_open_sim(&options, &bdev));
	profile = lpi_bench_plain_profile(4096);
	profile.slow_ppm = 1000001;
	lp_test_err(-EINVAL, lp_bdev_open_sim(&options, &bdev));
}

static void test_presets(void **state)
{
	(void)state;
	for (int i = 0; i < LP_SIM_PRESET_CNT; i++) {
		const struct lp_sim_profile *profile = lp_sim_preset((enum lp_sim_preset)i);
		struct lpi_bench bench;
		lpi_bench_init(&bench, profile, 13);
		const struct lp_bdev_caps *caps = lp_bdev_caps(bench.bdev);
		assert_int_equal(caps->size_bytes, LP_BENCH_SIZE);
		assert_int_equal(caps->block_bytes, profile->sector_bytes);
		assert_true(caps->physical_bytes >= caps->block_bytes);
		assert_true(caps->atomic_write_bytes >= caps->block_bytes);
		assert_int_equal(caps->volatile_cache, i != LP_SIM_PROTECTED);
		assert_int_equal(caps->rotational, i == LP_SIM_DISK);
		assert_int_equal(caps->can_discard, i != LP_SIM_DISK);
		int discarded = lpi_bench_do(&bench, LP_BDEV_DISCARD, 0, 0, 1);
		assert_int_equal(discarded, i == LP_SIM_DISK ? -EOPNOTSUPP : 0);
		lpi_bench_fini(&bench);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_sim1_one_seed),
		cmocka_unit_test(test_sim1_hash_sees),
		cmocka_unit_test(test_sim2_later),
		cmocka_unit_test(test_sim2_latency),
		cmocka_unit_test(test_sim2_slow_ones),
		cmocka_unit_test(test_sim2_reordering),
		cmocka_unit_test(test_sim3_doors),
		cmocka_unit_test(test_sim3_blocking_calls),
		cmocka_unit_test(test_sim4_reads_see_what_is_complete),
		cmocka_unit_test(test_sim5_reads_beside_writes),
		cmocka_unit_test(test_sim6_changed_buffer),
		cmocka_unit_test(test_sim6_unread_buffer),
		cmocka_unit_test(test_refuses),
		cmocka_unit_test(test_presets),
	};
	return lp_test_main(tests, "store/device/sim/bdev_sim");
}
