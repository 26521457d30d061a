/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: after a power cut or a killed process at any moment, also during recovery and during the
 * recovery of a recovery: every acknowledged frame is delivered, in sequence and unchanged, none
 * that was not submitted or that an earlier recovery had declared void, and no legal state is
 * taken for corruption (rules L1, L2).
 * Method: runs of some laps round a small ring with several frames in flight, on each kind of
 * simulated device; a cut at each of its events, recovery there, a few more frames, and cuts in
 * that. The model in log/log_rig_test.h says what may and must come back. */
#include "store/log/log_rig_test.h"

#include "base/testing/test_long.h"

static uint64_t recovery_cnt;

/* One recovery of a device that was cut after `event`. */
static struct lpi_rig *recover_cut(struct lp_bdev *bdev, const struct lp_log_options *options,
				   const struct lpi_rig_model *model, uint64_t event, uint64_t seed)
{
	struct lpi_rig *rig = lpi_rig_on(bdev, options, seed);
	rig->sim = lp_sim_of(bdev);
	int err = lpi_rig_recover_at(rig, lpi_rig_applied(model, event), false);
	if (err < 0) {
		print_error("event %llu, seed %llu: %s\n", (unsigned long long)event,
			    (unsigned long long)seed,
			    lp_corruption_find(0) ? lp_corruption_find(0)->what : "");
	}
	lp_test_ok(err);
	lpi_rig_check_got(rig, model, event);
	recovery_cnt++;
	return rig;
}

/* Goes on with a device that was just recovered, and cuts that at random events. */
static void go_on(struct lpi_rig *rig, struct lpi_rig_model *past, uint64_t seed, unsigned depth);

static void cut_within(struct lpi_rig *rig, const struct lpi_rig_model *model, uint64_t seed,
		       unsigned depth)
{
	static struct lpi_rig_model pasts[4];
	struct lp_sim_cutter *cutter = NULL;
	struct lp_prng prng;
	lp_prng_init(&prng, seed);
	lp_test_ok(lp_sim_cutter_new(rig->sim, NULL, &cutter));
	do {
		uint64_t event = lp_sim_cutter_event(cutter);
		/* Deep down a few are enough; in the first run each counts. */
		if (depth > 0 && !lp_prng_chance(&prng, 1, 12))
			continue;
		uint64_t cut_seed = lp_prng_u64(&prng);
		struct lp_bdev *bdev = lp_prng_chance(&prng, 1, 5)
					       ? lp_sim_cutter_crash(cutter, cut_seed)
					       : lp_sim_cutter_cut(cutter, cut_seed);
		lpi_rig_model_cut(model, event, &pasts[depth]);
		struct lpi_rig *after = recover_cut(bdev, &rig->options, model, event, cut_seed);
		if (depth < 2 && lp_prng_chance(&prng, 1, 2))
			go_on(after, &pasts[depth], cut_seed, depth + 1);
		lpi_rig_free(after);
	} while (lp_sim_cutter_next(cutter));
	lp_sim_cutter_free(cutter);
}

static void go_on(struct lpi_rig *rig, struct lpi_rig_model *past, uint64_t seed, unsigned depth)
{
	lpi_rig_model_recovered(past, rig);
	rig->model = past;
	rig->next_id = (seed & 0xffffffffffff) << 16 | 1;
	lpi_rig_run(rig, 5);
	lpi_rig_drain(rig);
	assert_int_equal(rig->failed_cnt, 0);
	cut_within(rig, past, seed + 1, depth);
}

static void crash_run(enum lp_sim_preset preset, uint64_t ring_blocks, unsigned frame_cnt,
		      uint64_t usual_seed)
{
	uint64_t seed = usual_seed + lp_test_seed_shift();
	struct lp_log_options options = lpi_rig_options(ring_blocks);
	struct lpi_rig_model *model = calloc(1, sizeof(*model));
	assert_non_null(model);
	struct lpi_rig *rig = lpi_rig_new(lp_sim_preset(preset), &options, seed);
	rig->model = model;
	lp_test_ok(lpi_rig_recover(rig));
	lpi_rig_run(rig, frame_cnt);
	lpi_rig_drain(rig);
	if (seed % 2 == 0)
		lp_test_ok(lpi_rig_close(rig));
	cut_within(rig, model, seed, 0);
	lpi_rig_free(rig);
	free(model);
}

static void test_consumer(void **state)
{
	(void)state;
	crash_run(LP_SIM_CONSUMER, 64, 90, 1);
}

static void test_protected(void **state)
{
	(void)state;
	crash_run(LP_SIM_PROTECTED, 64, 60, 2);
}

static void test_disk(void **state)
{
	(void)state;
	crash_run(LP_SIM_DISK, 64, 60, 3);
}

static void test_hostile(void **state)
{
	(void)state;
	for (uint64_t seed = 4; seed < 6; seed++)
		crash_run(LP_SIM_HOSTILE, 64, 70, seed);
}

/* Several laps, so small that hardly two frames find room. */
static void test_small_ring(void **state)
{
	(void)state;
	crash_run(LP_SIM_HOSTILE, 56, 50, 6);
}

static void test_enough(void **state)
{
	(void)state;
	lp_test_tell_crash_states(recovery_cnt);
	assert_true(recovery_cnt > 2000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_consumer),   cmocka_unit_test(test_protected),
		cmocka_unit_test(test_disk),       cmocka_unit_test(test_hostile),
		cmocka_unit_test(test_small_ring), cmocka_unit_test(test_enough),
	};
	return lp_test_main(tests, "store/log/crash");
}
