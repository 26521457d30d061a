/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: payloads reach their place, neighbours in one write; a payload is forgotten only when its
 * place holds it whatever a power cut does (rule L3); no block is written while other I/O is on
 * it (rule S4's "may_write"); a failed flush is final (rule L7).
 * Method: the simulated device; random overwrites; the power is cut at random moments (on a copy)
 * and every block without a pending payload is looked at. */
#include "store/device/sim/sim_test.h"

#include "store/commit/writeback.h"

#define BLOCKS      3000u
#define FEW_BLOCKS  200u /* are overwritten again and again */
#define FEW_PENDING 600u

struct bench {
	struct lpi_bench sim;
	struct lp_bufs *bufs;
	struct lp_pending *pending;
	struct lp_writeback *writeback;
	struct lp_writeback_events events;
	struct lp_prng prng;
	uint64_t seq;
	int newest[BLOCKS]; /* tags; 0: never written */
	bool held[BLOCKS];  /* a reader is on it */
	bool writing[BLOCKS];
	uint32_t unwritable[BLOCKS]; /* how often it was given up */
	int failed;
	uint32_t settled_cnt;
	uint32_t begun_in_flush_cnt; /* writes */
};

static struct bench b;

static bool may_write(struct lp_writeback_events *events, uint64_t block)
{
	assert_ptr_equal(events, &b.events);
	return !b.held[block];
}

static void begins(struct lp_writeback_events *events, struct lp_extent extent)
{
	(void)events;
	if (lp_writeback_stats(b.writeback)->flushes > b.settled_cnt)
		b.begun_in_flush_cnt++;
	for (uint64_t i = extent.block; i < lp_extent_end(extent); i++) {
		assert_false(b.writing[i]);
		assert_false(b.held[i]);
		b.writing[i] = true;
	}
}

static void ended(struct lp_writeback_events *events, struct lp_extent extent)
{
	(void)events;
	for (uint64_t i = extent.block; i < lp_extent_end(extent); i++)
		b.writing[i] = false;
}

static void settled(struct lp_writeback_events *events)
{
	(void)events;
	b.settled_cnt++;
}

static void failed(struct lp_writeback_events *events, int err)
{
	(void)events;
	assert_int_equal(b.failed, 0);
	b.failed = err;
}

static void bench_init_with(uint64_t seed, uint64_t pending_max)
{
	struct lp_sim_profile profile = lpi_bench_plain_profile(4096);
	memset(&b, 0, sizeof(b));
	lpi_bench_init_sized(&b.sim, &profile, seed, BLOCKS * LP_BLOCK_BYTES);
	lp_prng_init(&b.prng, seed);
	b.events = (struct lp_writeback_events){.may_write = may_write,
						.begins = begins,
						.ended = ended,
						.settled = settled,
						.failed = failed};
	lp_test_ok(lp_bufs_new(UINT64_C(16) << 20, &b.bufs));
	lp_test_ok(lp_pending_new(pending_max, &b.pending));
	const struct lp_writeback_options options = {.reactor = b.sim.reactor,
						     .chan = b.sim.chan,
						     .pending = b.pending,
						     .events = &b.events,
						     .start_versions = 50,
						     .wait_ns = LP_NS_PER_MS,
						     .old_ns = 5 * LP_NS_PER_MS};
	lp_test_ok(lp_writeback_new(&options, &b.writeback));
}

static void bench_init(uint64_t seed)
{
	bench_init_with(seed, FEW_PENDING);
}

static void bench_fini(void)
{
	lp_writeback_stop(b.writeback);
	while (!lp_writeback_is_idle(b.writeback))
		(void)lp_reactor_turn(b.sim.reactor, true);
	lp_writeback_free(b.writeback);
	lp_pending_free(b.pending);
	lp_bufs_free(b.bufs);
	lpi_bench_fini(&b.sim);
}

/* A durable frame that overwrites cnt blocks from first on. */
static void overwrite(uint64_t first, uint64_t cnt, int tag)
{
	b.seq++;
	for (uint64_t i = first; i < first + cnt; i++) {
		struct lp_seg seg = {.buf = lp_buf_new(b.bufs, 4096), .len = 4096};
		assert_non_null(seg.buf);
		memset(seg.buf->data, tag, 4096);
		lp_test_ok(lp_pending_add(b.pending, b.seq, i, seg, 0));
		lp_buf_put(seg.buf);
		b.newest[i] = tag;
	}
	lp_pending_frame_durable(b.pending, b.seq);
	lp_writeback_look(b.writeback);
}

static void judge_cut(uint64_t seed)
{
	struct lp_bdev *left = NULL;
	uint64_t now = lp_sim_event_count(b.sim.sim);
	if (now == 0)
		return;
	lp_test_ok(lp_sim_image_at(b.sim.sim, now - 1, NULL, seed, &left));
	for (uint64_t i = 0; i < BLOCKS; i++) {
		struct lp_seg seg;
		uint32_t crc;
		if (b.newest[i] != 0 && !lp_pending_find(b.pending, i, &seg, &crc))
			assert_int_equal(lpi_bench_peek(left, i), b.newest[i]);
	}
	lp_bdev_close(left);
}

static void run_until_settled(void)
{
	while (lp_pending_stats(b.pending)->versions > 0)
		assert_int_not_equal(lp_reactor_turn(b.sim.reactor, true), 0);
}

static void test_random_run(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 6; seed++) {
		bench_init(seed);
		for (int step = 0; step < 400; step++) {
			uint64_t first = lp_prng_below(&b.prng, FEW_BLOCKS);
			uint64_t cnt = lp_prng_between(&b.prng, 1, LP_MIN(6, FEW_BLOCKS - first));
			uint64_t hold = lp_prng_below(&b.prng, FEW_BLOCKS);
			if (!b.writing[hold])
				b.held[hold] = !b.held[hold];
			if (lp_pending_room(b.pending) >= cnt)
				overwrite(first, cnt, (int)lp_prng_between(&b.prng, 1, 250));
			if (lp_prng_chance(&b.prng, 1, 2))
				(void)lp_reactor_turn(b.sim.reactor, true);
			if (step % 20 == 0)
				judge_cut(seed);
		}
		memset(b.held, 0, sizeof(b.held));
		run_until_settled();
		judge_cut(seed);
		assert_int_equal(b.failed, 0);
		assert_true(b.settled_cnt > 0);
		/* Neighbours share writes. */
		const struct lp_writeback_stats *stats = lp_writeback_stats(b.writeback);
		assert_true(stats->writes < stats->blocks);
		bench_fini();
	}
}

static void test_waits_then_writes(void **state)
{
	(void)state;
	bench_init(1);
	overwrite(10, 3, 7);
	overwrite(10, 3, 8);
	uint64_t start_ns = b.sim.clock.now_ns;
	run_until_settled();
	/* Few payloads wait for more, and a rewrite saves a write. */
	assert_true(b.sim.clock.now_ns - start_ns >= LP_NS_PER_MS);
	assert_int_equal(lp_writeback_stats(b.writeback)->writes, 1);
	assert_int_equal(lp_writeback_stats(b.writeback)->blocks, 3);
	assert_int_equal(lp_writeback_stats(b.writeback)->flushes, 1);
	/* In a hurry they do not wait. */
	overwrite(20, 1, 9);
	start_ns = b.sim.clock.now_ns;
	lp_writeback_hurry(b.writeback, UINT64_MAX);
	run_until_settled();
	assert_true(b.sim.clock.now_ns - start_ns < LP_NS_PER_MS);
	bench_fini();
}

static void no_news(struct lp_timer *timer)
{
	(void)timer;
}

/* What happens in so much time. */
static void pass(uint64_t ns)
{
	struct lp_timer timer = {.fire = no_news};
	lp_timer_start(b.sim.reactor, &timer, b.sim.clock.now_ns + ns);
	while (lp_timer_is_armed(&timer))
		(void)lp_reactor_turn(b.sim.reactor, true);
}

/* Under a steady load most of what may wait does, so that writes of neighbours and rewritten blocks
 * are few; but nothing waits for ever, and there is no flush for every few. */
static void test_steady_load(void **state)
{
	(void)state;
	bench_init_with(2, BLOCKS);
	uint64_t oldest_ns = b.sim.clock.now_ns;
	uint64_t oldest_seq = 0;
	for (int step = 0; step < 20000; step++) {
		if (lp_pending_room(b.pending) > 0)
			overwrite(lp_prng_below(&b.prng, FEW_BLOCKS), 1, 1 + step % 200);
		pass(20 * LP_NS_PER_US);
		if (lp_pending_oldest_seq(b.pending) != oldest_seq) {
			oldest_seq = lp_pending_oldest_seq(b.pending);
			oldest_ns = b.sim.clock.now_ns;
		}
		/* Old after 5 ms, seen at the next look, flushed at the one after. */
		assert_true(b.sim.clock.now_ns - oldest_ns < 20 * LP_NS_PER_MS);
	}
	const struct lp_writeback_stats *stats = lp_writeback_stats(b.writeback);
	assert_true(stats->writes < stats->blocks * 4 / 5);
	assert_true(lp_pending_stats(b.pending)->superseded > 2000);
	assert_true(stats->flushes < stats->writes / 4);
	run_until_settled();
	judge_cut(1);
	bench_fini();
}

/* A log that is nearly full waits for payloads to be settled: it hears of some long before all are
 * written, and the device is not idle while it flushes. */
static void test_settles_in_pieces(void **state)
{
	(void)state;
	bench_init_with(1, BLOCKS);
	for (uint64_t first = 0; first + 31 <= BLOCKS; first += 32)
		overwrite(first, 31, 7);
	while (b.settled_cnt == 0)
		assert_int_not_equal(lp_reactor_turn(b.sim.reactor, true), 0);
	assert_true(lp_pending_stats(b.pending)->versions > BLOCKS / 2);
	judge_cut(1);
	run_until_settled();
	judge_cut(2);
	assert_true(b.begun_in_flush_cnt > 0);
	assert_true(lp_writeback_stats(b.writeback)->flushes < BLOCKS / 500);
	bench_fini();
}

static void test_failed_write_is_tried_again(void **state)
{
	(void)state;
	bench_init(1);
	const struct lp_sim_rule rule = {
		.fault = LP_SIM_EIO, .opcode_mask = LP_SIM_OP(LP_BDEV_WRITE), .fire_cnt = 2};
	(void)lp_sim_rule_add(b.sim.sim, &rule);
	overwrite(0, 4, 5);
	run_until_settled();
	assert_int_equal(b.failed, 0);
	assert_int_equal(lp_writeback_stats(b.writeback)->retries, 2);
	judge_cut(3);
	bench_fini();
}

static void test_dead_device(void **state)
{
	(void)state;
	static const enum lp_bdev_opcode opcodes[] = {LP_BDEV_WRITE, LP_BDEV_FLUSH};
	for (size_t i = 0; i < LP_ARRAY_SIZE(opcodes); i++) {
		bench_init(1);
		const struct lp_sim_rule rule = {.fault = LP_SIM_EIO,
						 .opcode_mask = LP_SIM_OP(opcodes[i])};
		uint32_t rule_idx = lp_sim_rule_add(b.sim.sim, &rule);
		overwrite(0, 4, 5);
		while (b.failed == 0)
			assert_int_not_equal(lp_reactor_turn(b.sim.reactor, true), 0);
		assert_int_equal(b.failed, -EIO);
		/* All of it is still pending, and nothing is tried again (rule L7). */
		assert_int_equal(lp_pending_stats(b.pending)->versions, 4);
		assert_int_equal(b.settled_cnt, 0);
		uint64_t fired = lp_sim_rule_fired(b.sim.sim, rule_idx);
		/* All at once, then each alone. */
		assert_int_equal(fired, opcodes[i] == LP_BDEV_FLUSH ? 1 : 1 + 5 * 4);
		lp_writeback_hurry(b.writeback, UINT64_MAX);
		lp_writeback_look(b.writeback);
		for (int n = 0; n < 10; n++)
			(void)lp_reactor_turn(b.sim.reactor, true);
		assert_int_equal(lp_sim_rule_fired(b.sim.sim, rule_idx), fired);
		bench_fini();
	}
}

static bool unwritable(struct lp_writeback_events *events, uint64_t block)
{
	assert_ptr_equal(events, &b.events);
	assert_true(b.writing[block]);
	b.unwritable[block]++;
	return true;
}

/* One block of many cannot be written: the others get to their place, it is the owner's, and
 * nobody wakes up for it any more (rule L6). */
static void test_bad_block(void **state)
{
	(void)state;
	bench_init(1);
	b.events.unwritable = unwritable;
	const struct lp_sim_rule rule = {.fault = LP_SIM_EIO,
					 .opcode_mask = LP_SIM_OP(LP_BDEV_WRITE),
					 .offset_bytes = 7 * LP_BLOCK_BYTES,
					 .length_bytes = LP_BLOCK_BYTES};
	uint32_t rule_idx = lp_sim_rule_add(b.sim.sim, &rule);
	overwrite(0, 20, 5);
	for (int n = 0; n < 1000 && lp_pending_writable(b.pending) > 0; n++)
		(void)lp_reactor_turn(b.sim.reactor, true);
	assert_int_equal(lp_pending_writable(b.pending), 0);
	assert_int_equal(lp_pending_stats(b.pending)->versions, 1);
	assert_int_equal(lp_pending_stats(b.pending)->stuck, 1);
	for (uint32_t i = 0; i < BLOCKS; i++)
		assert_int_equal(b.unwritable[i], i == 7);
	assert_int_equal(lp_sim_rule_fired(b.sim.sim, rule_idx), 6);
	assert_int_equal(b.failed, 0);
	judge_cut(1);
	uint64_t now_ns = b.sim.clock.now_ns;
	lp_writeback_look(b.writeback);
	for (int n = 0; n < 10; n++)
		(void)lp_reactor_turn(b.sim.reactor, true);
	assert_int_equal(b.sim.clock.now_ns, now_ns);
	/* What is written over it is tried. */
	lp_sim_rules_clear(b.sim.sim);
	overwrite(6, 3, 6);
	run_until_settled();
	judge_cut(2);
	bench_fini();
}

/* A flush of another user of the device fails, and may have dropped what was written and not
 * flushed yet: our own flush, which succeeds, says nothing (rule L7). */
static void test_a_foreign_flush_fails(void **state)
{
	(void)state;
	bench_init(1);
	const struct lp_sim_rule rule = {
		.fault = LP_SIM_EIO, .opcode_mask = LP_SIM_OP(LP_BDEV_FLUSH), .fire_cnt = 1};
	(void)lp_sim_rule_add(b.sim.sim, &rule);
	assert_int_equal(lp_bdev_flush_sync(b.sim.bdev), -EIO);
	overwrite(0, 4, 5);
	while (b.failed == 0)
		assert_int_not_equal(lp_reactor_turn(b.sim.reactor, true), 0);
	assert_int_equal(b.failed, -EIO);
	assert_int_equal(lp_writeback_stats(b.writeback)->flushes, 1);
	assert_int_equal(lp_pending_stats(b.pending)->versions, 4);
	assert_int_equal(b.settled_cnt, 0);
	bench_fini();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_random_run),
		cmocka_unit_test(test_waits_then_writes),
		cmocka_unit_test(test_steady_load),
		cmocka_unit_test(test_settles_in_pieces),
		cmocka_unit_test(test_failed_write_is_tried_again),
		cmocka_unit_test(test_dead_device),
		cmocka_unit_test(test_bad_block),
		cmocka_unit_test(test_a_foreign_flush_fails),
	};
	return lp_test_main(tests, "store/commit/writeback");
}
