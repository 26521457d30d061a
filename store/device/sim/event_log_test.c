/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: the log and the devices made from it: clauses SIM28 to SIM32 of store/device/sim/README.md.
 * Method: a random run, hostile and with faults; each way to cut it at each event must give the
 * same device, byte for byte. States by hand for the rest. */
#include "store/device/sim/sim_test.h"

static uint64_t content_hash(struct lp_bdev *bdev)
{
	static _Alignas(4096) unsigned char buf[LP_BENCH_SIZE];
	uint64_t hash = 0;
	uint32_t sector = lp_bdev_caps(bdev)->block_bytes;
	memset(buf, 0, sizeof(buf));
	if (lp_bdev_read_sync(bdev, buf, LP_BENCH_SIZE, 0) < 0) {
		/* There are bad sectors: one by one, and where they are counts too. */
		for (uint64_t at = 0; at < LP_BENCH_SIZE; at += sector)
			if (lp_bdev_read_sync(bdev, buf + at, sector, at) < 0)
				memset(buf + at, 0xee, sector);
	}
	for (size_t i = 0; i < sizeof(buf); i += sizeof(uint64_t)) {
		uint64_t word;
		memcpy(&word, buf + i, sizeof(word));
		hash = (hash ^ word) * UINT64_C(0x9fb21c651e98df25);
		hash ^= hash >> 31;
	}
	return hash;
}

static void add_rules(struct lp_sim *sim)
{
	static const struct lp_sim_rule rules[] = {
		{.fault = LP_SIM_EIO, .chance_ppm = 50000},
		{.fault = LP_SIM_LOST, .chance_ppm = 20000},
		{.fault = LP_SIM_MISDIRECT, .chance_ppm = 20000, .arg = 4096},
		{.fault = LP_SIM_ROT, .chance_ppm = 50000, .arg = 3},
		{.fault = LP_SIM_LATENT, .chance_ppm = 20000},
	};
	for (size_t i = 0; i < LP_ARRAY_SIZE(rules); i++)
		(void)lp_sim_rule_add(sim, &rules[i]);
}

/* Keeps up to 32 operations in flight until op_cnt were submitted; leaves the last in flight. */
static void random_run(struct lpi_bench *bench, int op_cnt, struct lpi_bench_op *ops[32])
{
	struct lp_prng prng;
	lp_prng_init(&prng, 3);
	memset(ops, 0, 32 * sizeof(struct lpi_bench_op *));
	for (int n = 0; n < op_cnt; n++) {
		uint64_t slot = lp_prng_below(&prng, 32);
		if (ops[slot] != NULL) {
			lpi_bench_wait(bench, ops[slot]);
			free(ops[slot]);
		}
		uint64_t at = lp_prng_below(&prng, 40);
		ops[slot] = lpi_bench_submit(bench, lp_prng_below(&prng, LP_BDEV_OPCODE_CNT),
					     1 + n % 255, at, lp_prng_between(&prng, 1, 12));
	}
}

static void finish_all(struct lpi_bench *bench, struct lpi_bench_op *ops[32], bool wait)
{
	for (int i = 0; i < 32; i++) {
		if (ops[i] != NULL && wait)
			lpi_bench_wait(bench, ops[i]);
		free(ops[i]);
	}
}

static void test_sim28_events(void **state)
{
	(void)state;
	struct lp_sim_profile profile = lpi_bench_plain_profile(4096);
	struct lpi_bench bench;
	struct lp_sim_event event;
	lpi_bench_init(&bench, &profile, 1);
	struct lpi_bench_op *first = lpi_bench_submit(&bench, LP_BDEV_WRITE, 1, 3, 2);
	struct lpi_bench_op *second = lpi_bench_submit(&bench, LP_BDEV_READ, 1, 3, 1);
	uint64_t start_ns = bench.clock.now_ns;
	lpi_bench_wait(&bench, first);
	lpi_bench_wait(&bench, second);
	lp_sim_rot(bench.sim, 1, 5000, 1);
	lp_sim_spoil(bench.sim, 1, 1);
	assert_int_equal(lp_sim_event_count(bench.sim), 6);
	lp_sim_event_get(bench.sim, 0, &event);
	assert_int_equal(event.type, LP_SIM_SUBMIT);
	assert_int_equal(event.opcode, LP_BDEV_WRITE);
	assert_int_equal(event.offset_bytes, 3 * 4096);
	assert_int_equal(event.length_bytes, 2 * 4096);
	assert_true(event.time_ns == start_ns);
	lp_sim_event_get(bench.sim, 2, &event);
	assert_int_equal(event.type, LP_SIM_COMPLETE);
	assert_in_range(event.time_ns, start_ns + 1000, start_ns + 2000);
	uint64_t seq = event.op_seq;
	lp_sim_event_get(bench.sim, seq - 1, &event); /* seq counts from 1 */
	assert_int_equal(event.op_seq, seq);
	assert_int_equal(event.type, LP_SIM_SUBMIT);
	lp_sim_event_get(bench.sim, 4, &event);
	assert_int_equal(event.type, LP_SIM_ROTTED);
	assert_int_equal(event.offset_bytes, 4096);
	lp_sim_event_get(bench.sim, 5, &event);
	assert_int_equal(event.type, LP_SIM_SPOILED);
	free(first);
	free(second);
	lpi_bench_fini(&bench);
}

/* Runs for so many operations, cuts, and returns what is left, and at which event. */
static uint64_t run_and_cut(const struct lp_sim_profile *profile, int op_cnt, uint64_t *ret_event)
{
	struct lpi_bench bench;
	struct lpi_bench_op *ops[32];
	lpi_bench_init(&bench, profile, 5);
	add_rules(bench.sim);
	random_run(&bench, op_cnt, ops);
	*ret_event = lp_sim_event_count(bench.sim);
	lpi_bench_swap(&bench, lp_sim_power_cut(bench.sim, 77));
	uint64_t hash = content_hash(bench.bdev);
	finish_all(&bench, ops, false);
	lpi_bench_fini(&bench);
	return hash;
}

/* The hash at each event after which a whole run would be cut, by a cutter and by image_at. */
static void check_replay(const struct lp_sim_profile *profile)
{
	struct lpi_bench bench;
	struct lpi_bench_op *ops[32];
	struct lp_sim_cutter *cutter = NULL;
	lpi_bench_init(&bench, profile, 5);
	add_rules(bench.sim);
	random_run(&bench, 300, ops);
	lp_test_ok(lp_sim_cutter_new(bench.sim, NULL, &cutter));
	assert_int_equal(lp_sim_cutter_event(cutter), 0);
	for (int op_cnt = 10; op_cnt <= 300; op_cnt += 29) {
		uint64_t event = 0;
		uint64_t hash = run_and_cut(profile, op_cnt, &event);
		while (lp_sim_cutter_event(cutter) < event)
			assert_true(lp_sim_cutter_next(cutter));
		struct lp_bdev *left = lp_sim_cutter_cut(cutter, 77);
		assert_true(content_hash(left) == hash);
		lp_bdev_close(left);
		lp_test_ok(lp_sim_image_at(bench.sim, event - 1, NULL, 77, &left));
		assert_true(content_hash(left) == hash);
		lp_bdev_close(left);
	}
	while (lp_sim_cutter_next(cutter))
		continue;
	assert_int_equal(lp_sim_cutter_event(cutter), lp_sim_event_count(bench.sim));
	lp_sim_cutter_free(cutter);
	lp_sim_cutter_free(NULL);
	finish_all(&bench, ops, true);
	lpi_bench_fini(&bench);
}

static void test_sim28_replay(void **state)
{
	(void)state;
	for (int i = 0; i < LP_SIM_PRESET_CNT; i++)
		check_replay(lp_sim_preset((enum lp_sim_preset)i));
	struct lp_sim_profile profile = *lp_sim_preset(LP_SIM_HOSTILE);
	profile.atomic_write_bytes = 4096;
	check_replay(&profile);
}

/* In the past, before and after each event of a write. */
static void test_sim28_past(void **state)
{
	(void)state;
	struct lp_sim_profile profile = lpi_bench_plain_profile(4096);
	struct lpi_bench bench;
	static const bool may_be[4][2] = {
		{true, true}, {false, true}, {false, true}, {false, true}};
	lpi_bench_init(&bench, &profile, 1);
	lp_test_ok(lpi_bench_do(&bench, LP_BDEV_WRITE_THROUGH, 1, 0, 1));
	lp_test_ok(lpi_bench_do(&bench, LP_BDEV_READ, 1, 0, 1));
	for (uint64_t event = 0; event < 4; event++) {
		bool seen[2] = {false};
		for (uint64_t seed = 0; seed < 50; seed++) {
			struct lp_bdev *left = NULL;
			lp_test_ok(lp_sim_image_at(bench.sim, event, NULL, seed, &left));
			seen[lpi_bench_peek(left, 0)] = true;
			lp_bdev_close(left);
		}
		assert_memory_equal(seen, may_be[event], sizeof(seen));
	}
	struct lp_bdev *none = NULL;
	lp_test_err(-EINVAL, lp_sim_image_at(bench.sim, 4, NULL, 1, &none));
	assert_null(none);
	lpi_bench_fini(&bench);
}

static void test_sim28_other_profile(void **state)
{
	(void)state;
	struct lp_sim_profile plain = lpi_bench_plain_profile(4096);
	struct lp_sim_profile other = plain;
	struct lpi_bench bench;
	struct lp_bdev *left = NULL;
	lpi_bench_init(&bench, &plain, 1);
	lp_test_ok(lpi_bench_do(&bench, LP_BDEV_WRITE, 1, 0, 1));
	lp_sim_trim_log(bench.sim);
	lp_test_ok(lpi_bench_do(&bench, LP_BDEV_WRITE, 1, 1, 1));
	uint64_t last = lp_sim_event_count(bench.sim) - 1;
	/* As a protected device it would have lost neither, also not what was before the log. */
	other.power_protected = true;
	for (uint64_t seed = 0; seed < 30; seed++) {
		lp_test_ok(lp_sim_image_at(bench.sim, last, &other, seed, &left));
		assert_int_equal(lpi_bench_peek(left, 0), 1);
		assert_int_equal(lpi_bench_peek(left, 1), 1);
		assert_false(lp_bdev_caps(left)->volatile_cache);
		lp_bdev_close(left);
	}
	other.sector_bytes = 512;
	lp_test_err(-EINVAL, lp_sim_image_at(bench.sim, last, &other, 1, &left));
	lpi_bench_fini(&bench);
}

static void test_sim29_after_a_cut(void **state)
{
	(void)state;
	struct lp_sim_profile profile = lpi_bench_plain_profile(4096);
	struct lpi_bench bench;
	_Alignas(4096) unsigned char buf[4096] = {0};
	lpi_bench_init(&bench, &profile, 1);
	(void)lp_sim_rule_add(
		bench.sim,
		&(struct lp_sim_rule){.fault = LP_SIM_EIO, .opcode_mask = LP_SIM_OP(LP_BDEV_READ)});
	lp_test_ok(lpi_bench_do(&bench, LP_BDEV_WRITE, 1, 0, 8));
	struct lpi_bench_op *flying = lpi_bench_submit(&bench, LP_BDEV_WRITE, 2, 8, 8);
	struct lp_bdev *left = lp_sim_power_cut(bench.sim, 3);
	/* The old one is off. */
	assert_int_equal(lp_bdev_inflight(bench.chan), 0);
	struct lpi_bench_op *late = lpi_bench_submit(&bench, LP_BDEV_READ, 0, 0, 1);
	assert_int_equal(lp_bdev_inflight(bench.chan), 0);
	assert_int_equal(lp_reactor_turn(bench.reactor, true), 0);
	assert_false(flying->done);
	assert_false(late->done);
	lp_test_err(-ENODEV, lp_bdev_write_sync(bench.bdev, buf, 4096, 0, false));
	lp_test_err(-ENODEV, lp_bdev_refresh_size(bench.bdev));
	lpi_bench_swap(&bench, left);
	/* The new one works, has forgotten nothing and has nothing left to lose. */
	assert_int_equal(lp_sim_event_count(bench.sim), 0);
	for (uint64_t i = 0; i < 16; i++) {
		int tag = lpi_bench_peek(bench.bdev, i); /* no rules: reads work */
		LP_BENCH_EXPECT(&bench, i, tag);
	}
	lp_test_ok(lpi_bench_do(&bench, LP_BDEV_WRITE, 3, 0, 1));
	lpi_bench_swap(&bench, lp_sim_power_cut(bench.sim, 4));
	assert_int_equal(lp_sim_event_count(bench.sim), 0);
	free(flying);
	free(late);
	lpi_bench_fini(&bench);
}

/* The power fails while a completion is being handled: nothing due at the same time follows. */
static struct lp_sim *cut_sim;
static struct lp_bdev *cut_left;

static void cut_in_complete(struct lp_bdev_op *op)
{
	(void)op;
	assert_null(cut_left);
	cut_left = lp_sim_power_cut(cut_sim, 1);
}

static void test_sim29_cut_in_a_completion(void **state)
{
	(void)state;
	struct lp_sim_profile profile = lpi_bench_plain_profile(4096);
	struct lpi_bench bench;
	struct lp_bdev_op ops[4] = {0};
	static _Alignas(4096) unsigned char buf[4096];
	profile.latency[LP_BDEV_WRITE_THROUGH] = (struct lp_sim_latency){5, 5};
	lpi_bench_init(&bench, &profile, 1);
	cut_sim = bench.sim;
	cut_left = NULL;
	memset(buf, 1, sizeof(buf));
	for (size_t i = 0; i < LP_ARRAY_SIZE(ops); i++) {
		lp_bdev_op_prep(&ops[i], LP_BDEV_WRITE_THROUGH, buf, sizeof(buf), i * 4096);
		ops[i].complete = cut_in_complete;
		lp_bdev_submit(bench.chan, &ops[i]);
	}
	assert_int_equal(lp_reactor_turn(bench.reactor, true), 1);
	assert_int_equal(lp_reactor_turn(bench.reactor, true), 0);
	assert_int_equal(lp_bdev_inflight(bench.chan), 0);
	assert_int_equal(lpi_bench_peek(cut_left, 0), 1);
	lpi_bench_swap(&bench, cut_left);
	lpi_bench_fini(&bench);
}

static void test_sim30_process_crash(void **state)
{
	(void)state;
	struct lp_sim_profile profile = lpi_bench_plain_profile(4096);
	bool seen[3] = {false};
	int both_cnt = 0;
	for (uint64_t seed = 0; seed < 100; seed++) {
		struct lpi_bench bench;
		lpi_bench_init(&bench, &profile, 1);
		lp_test_ok(lpi_bench_do(&bench, LP_BDEV_WRITE, 1, 0, 8));
		struct lpi_bench_op *a = lpi_bench_submit(&bench, LP_BDEV_WRITE, 2, 8, 4);
		struct lpi_bench_op *b = lpi_bench_submit(&bench, LP_BDEV_WRITE_THROUGH, 3, 12, 4);
		struct lpi_bench_op *c = lpi_bench_submit(&bench, LP_BDEV_WRITE, 1, 16, 1);
		struct lpi_bench_op *d = lpi_bench_submit(&bench, LP_BDEV_WRITE, 2, 16, 1);
		lpi_bench_swap(&bench, lp_sim_process_crash(bench.sim, seed));
		for (uint64_t i = 0; i < 8; i++)
			assert_int_equal(lpi_bench_peek(bench.bdev, i), 1);
		int first = lpi_bench_peek(bench.bdev, 8);
		int second = lpi_bench_peek(bench.bdev, 12);
		for (uint64_t i = 0; i < 4; i++) {
			assert_int_equal(lpi_bench_peek(bench.bdev, 8 + i), first);
			assert_int_equal(lpi_bench_peek(bench.bdev, 12 + i), second);
		}
		assert_true(first == 0 || first == 2);
		assert_true(second == 0 || second == 3);
		seen[lpi_bench_peek(bench.bdev, 16)] = true;
		both_cnt += first == 2 && second == 3;
		/* What was unflushed still is, what was written through is not. */
		LP_BENCH_EXPECT(&bench, 0, 0, 1);
		LP_BENCH_EXPECT(&bench, 12, second);
		/* The first flush covers what was completed before the crash. */
		lp_test_ok(lpi_bench_do(&bench, LP_BDEV_FLUSH, 0, 0, 1));
		LP_BENCH_EXPECT(&bench, 0, 1);
		LP_BENCH_EXPECT(&bench, 8, first);
		free(a);
		free(b);
		free(c);
		free(d);
		lpi_bench_fini(&bench);
	}
	assert_true(seen[0] && seen[1] && seen[2]);
	assert_in_range(both_cnt, 10, 40);
}

/* Reads after a crash with nothing in flight see what they saw before: what the running device
 * kept step by step is what its pending versions add up to. */
static void test_sim30_view(void **state)
{
	(void)state;
	struct lp_sim_profile profile = *lp_sim_preset(LP_SIM_HOSTILE);
	for (int op_cnt = 100; op_cnt <= 1000; op_cnt += 100) {
		struct lpi_bench bench;
		struct lpi_bench_op *ops[32];
		struct lp_sim_cutter *cutter = NULL;
		lpi_bench_init(&bench, &profile, (uint64_t)op_cnt);
		add_rules(bench.sim);
		random_run(&bench, op_cnt, ops);
		finish_all(&bench, ops, true);
		lp_sim_rules_clear(bench.sim);
		uint64_t before = content_hash(bench.bdev);
		lp_test_ok(lp_sim_cutter_new(bench.sim, NULL, &cutter));
		while (lp_sim_cutter_next(cutter))
			continue;
		struct lp_bdev *left = lp_sim_cutter_crash(cutter, 1);
		assert_true(content_hash(left) == before);
		lp_bdev_close(left);
		lp_sim_cutter_free(cutter);
		lpi_bench_swap(&bench, lp_sim_process_crash(bench.sim, 1));
		assert_true(content_hash(bench.bdev) == before);
		lpi_bench_fini(&bench);
	}
}

static void test_sim31_trim(void **state)
{
	(void)state;
	struct lp_sim_profile profile = lpi_bench_plain_profile(4096);
	struct lpi_bench bench;
	struct lp_sim_event event;
	struct lp_bdev *left = NULL;
	lpi_bench_init(&bench, &profile, 1);
	lp_test_ok(lpi_bench_do(&bench, LP_BDEV_WRITE, 1, 0, 1));
	lp_test_ok(lpi_bench_do(&bench, LP_BDEV_FLUSH, 1, 0, 1));
	lp_test_ok(lpi_bench_do(&bench, LP_BDEV_WRITE, 2, 0, 1));
	struct lpi_bench_op *flying = lpi_bench_submit(&bench, LP_BDEV_WRITE, 3, 0, 1);
	struct lpi_bench_op *flushing = lpi_bench_submit(&bench, LP_BDEV_FLUSH, 3, 0, 1);
	uint64_t hash = lp_sim_trace_hash(bench.sim);
	lp_sim_trim_log(bench.sim);
	assert_int_equal(lp_sim_event_first(bench.sim), 8);
	assert_int_equal(lp_sim_event_count(bench.sim), 8);
	assert_true(lp_sim_trace_hash(bench.sim) == hash);
	LP_BENCH_EXPECT(&bench, 0, 1, 2, 3);
	lp_test_err(-EINVAL, lp_sim_image_at(bench.sim, 7, NULL, 1, &left));
	lpi_bench_wait(&bench, flying);
	lpi_bench_wait(&bench, flushing);
	assert_int_equal(lp_sim_event_count(bench.sim), 10);
	lp_sim_event_get(bench.sim, 9, &event);
	assert_int_equal(event.type, LP_SIM_COMPLETE);
	/* The flush, submitted before the trim, covers 2 and not 3. */
	LP_BENCH_EXPECT(&bench, 0, 2, 3);
	lp_test_ok(lp_sim_image_at(bench.sim, 8, NULL, 1, &left));
	lp_bdev_close(left);
	free(flying);
	free(flushing);
	lpi_bench_fini(&bench);
}

static void test_sim32_metadata_only(void **state)
{
	(void)state;
	struct lp_sim_profile profile = lpi_bench_plain_profile(4096);
	struct lp_sim_options options = {
		.profile = &profile, .size_bytes = LP_BENCH_SIZE, .log_metadata_only = true};
	_Alignas(4096) unsigned char buf[4096];
	bool seen[2] = {false};
	memset(buf, 1, sizeof(buf));
	for (uint64_t seed = 0; seed < 30; seed++) {
		struct lp_bdev *bdev = NULL;
		struct lp_bdev *left = NULL;
		struct lp_sim_cutter *cutter = NULL;
		lp_test_ok(lp_bdev_open_sim(&options, &bdev));
		lp_test_ok(lp_bdev_write_sync(bdev, buf, sizeof(buf), 0, false));
		assert_int_equal(lp_sim_event_count(lp_sim_of(bdev)), 2);
		lp_test_err(-ENOTSUP, lp_sim_image_at(lp_sim_of(bdev), 1, NULL, 1, &left));
		lp_test_err(-ENOTSUP, lp_sim_cutter_new(lp_sim_of(bdev), NULL, &cutter));
		left = lp_sim_power_cut(lp_sim_of(bdev), seed);
		seen[lpi_bench_peek(left, 0)] = true;
		lp_test_err(-ENOTSUP, lp_sim_image_at(lp_sim_of(left), 1, NULL, 1, &bdev));
		lp_bdev_close(bdev);
		lp_bdev_close(left);
	}
	assert_true(seen[0] && seen[1]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_sim28_events),
		cmocka_unit_test(test_sim28_replay),
		cmocka_unit_test(test_sim28_past),
		cmocka_unit_test(test_sim28_other_profile),
		cmocka_unit_test(test_sim29_after_a_cut),
		cmocka_unit_test(test_sim29_cut_in_a_completion),
		cmocka_unit_test(test_sim30_process_crash),
		cmocka_unit_test(test_sim30_view),
		cmocka_unit_test(test_sim31_trim),
		cmocka_unit_test(test_sim32_metadata_only),
	};
	return lp_test_main(tests, "store/device/sim/event_log");
}
