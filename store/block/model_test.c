/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: the block store does what the face says, and what it acknowledged survives a power cut at
 * any moment (P1 to P4, rules L3, S1 to S4, S6, W1, W2), also on a device that has some blocks
 * which cannot be written (rule L6).
 * Method: random operations on a block store over a simulated device and on the store in memory,
 * all answers compared; then the power is cut at every n-th event of the device's log, the store is
 * opened from what is left, and must hold what a crash may leave; no block is leaked. */
#include "store/block/block_sim_test.h"

#include "base/testing/test_long.h"
#include "store/model/crash_test.h"

#define CUTS (LP_ASSERT_SLOW_ON ? 12u : 60u)

static struct lpi_model *new_model(struct lpi_store_rig *rig, uint64_t seed, uint32_t depth)
{
	const struct lpi_model_options options = {
		.gen = {.seed = seed,
			.data_bytes_max = UINT64_C(8) << 20,
			.without = depth > 1 ? LPI_GEN_OF_FRAGMENTS : 0,
			.ordered = seed % 2 == 1},
		.depth = depth,
		.now = lpi_store_rig_events,
		.now_arg = rig,
	};
	struct lpi_model *model = lpi_model_new(&options);
	lpi_model_attach(model, &rig->hand);
	return model;
}

/* In some runs each write leaves in its place what may stay there, as on a full store. */
static void play_full(struct lpi_store_rig *rig, uint64_t seed)
{
	lpi_block_of(rig->hand.store)->plays_full = seed % 3 == 0;
}

static void run(struct lpi_model *model, unsigned steps)
{
	for (unsigned i = 0; i < steps && lpi_model_step(model); i++)
		continue;
	lpi_model_ok(model);
}

/* Deferred payloads go on in the other way; those that wait are of both kinds then. */
static void switch_deferred_store(struct lpi_store_rig *rig)
{
	rig->deferred_store =
		(enum lp_deferred_store)(LP_DEFERRED_STORE_CNT - 1 - (int)rig->deferred_store);
	lp_store_set_deferred_store(rig->hand.store, rig->deferred_store);
}

static void test_same_as_memory(void **state)
{
	(void)state;
	uint64_t end = 1 + lp_test_seed_shift() + lp_test_factor() * (LP_ASSERT_SLOW_ON ? 4 : 12);
	for (uint64_t seed = 1 + lp_test_seed_shift(); seed < end; seed++) {
		struct lpi_store_rig rig;
		lpi_store_rig_start(&rig, seed);
		play_full(&rig, seed);
		struct lpi_model *model = new_model(&rig, seed, seed % 2 == 0 ? 16 : 1);
		for (unsigned i = 0; i < 3; i++) {
			run(model, 75);
			switch_deferred_store(&rig);
			run(model, 75);
			(void)lpi_model_check_all(model);
			lpi_model_ok(model);
			lp_test_ok(lpi_store_rig_close(&rig, false));
			lpi_store_rig_check(&rig);
			lp_test_ok(lpi_store_rig_open(&rig));
			play_full(&rig, seed);
			lpi_model_attach(model, &rig.hand);
			(void)lpi_model_check_all(model);
			lpi_model_ok(model);
		}
		lpi_model_free(model);
		lp_test_ok(lpi_store_rig_close(&rig, false));
		lpi_store_rig_fini(&rig);
	}
}

static void judge_cut(struct lpi_model *model, struct lp_bdev *left, uint64_t at, uint64_t seed)
{
	struct lpi_store_rig rig;
	lpi_store_rig_init(&rig, left, seed);
	lp_test_ok(lpi_store_rig_open(&rig));
	(void)lpi_model_crash_check(model, &rig.hand, at, false, NULL);
	if (!lpi_model_is_right(model))
		print_error("seed %llu, cut after event %llu\n", (unsigned long long)seed,
			    (unsigned long long)at);
	lpi_model_ok(model);
	lp_test_ok(lpi_store_rig_close(&rig, seed % 3 != 0));
	lpi_store_rig_check(&rig);
	lpi_store_rig_fini(&rig);
}

static void test_power_cut_at_many_events(void **state)
{
	(void)state;
	uint64_t end = 1 + lp_test_seed_shift() + lp_test_factor() * 4;
	uint64_t judged = 0;
	for (uint64_t seed = 1 + lp_test_seed_shift(); seed < end; seed++) {
		struct lpi_store_rig rig;
		struct lp_sim_cutter *cutter = NULL;
		uint64_t cuts = 0;
		lpi_store_rig_start(&rig, seed);
		play_full(&rig, seed);
		struct lpi_model *model = new_model(&rig, 100 + seed, seed % 2 == 0 ? 8 : 1);
		run(model, 125);
		switch_deferred_store(&rig);
		run(model, 125);
		(void)lpi_model_drain(model);
		lp_test_ok(lp_sim_cutter_new(lp_sim_of(rig.bdev), NULL, &cutter));
		uint64_t step = 1 + lp_sim_event_count(lp_sim_of(rig.bdev)) / CUTS;
		for (uint64_t n = 0; lp_sim_cutter_next(cutter); n++) {
			if (n % step != 0)
				continue;
			judge_cut(model, lp_sim_cutter_cut(cutter, seed + n),
				  lp_sim_cutter_event(cutter), seed + n);
			cuts++;
		}
		assert_true(cuts > CUTS / 2);
		judged += cuts;
		lp_sim_cutter_free(cutter);
		lpi_model_free(model);
		lp_test_ok(lpi_store_rig_close(&rig, true));
		lpi_store_rig_fini(&rig);
	}
	lp_test_tell_crash_states(judged);
}

/* Write-back cannot write every so-manieth block of what is leased for objects. */
static void spoil(struct lpi_store_rig *rig)
{
	enum { EVERY = 37, CNT = 40 };
	const struct lp_disk_label *label = &rig->devices.label[LP_ROLE_DATA];
	struct lp_chunks *chunks = rig->devices.chunks[LP_ROLE_DATA];
	uint32_t chunk;
	while ((chunk = lp_chunks_find(chunks, 0, LP_CHUNK_USE_OBJECTS, 0)) == LP_CHUNK_NONE)
		lpi_hand_turn(&rig->hand);
	uint64_t first = label->chunk_base + (uint64_t)chunk * label->chunk_blocks;
	uint32_t cnt = LP_MIN(label->chunk_blocks / EVERY, (uint32_t)CNT);
	for (uint32_t i = 0; i < cnt; i++) {
		const struct lp_sim_rule rule = {.fault = LP_SIM_EIO,
						 .opcode_mask = LP_SIM_OP(LP_BDEV_WRITE),
						 .offset_bytes = (first + (uint64_t)i * EVERY) *
								 LP_BLOCK_BYTES,
						 .length_bytes = LP_BLOCK_BYTES};
		(void)lp_sim_rule_add(lp_sim_of(rig->bdev), &rule);
	}
}

static uint64_t bad_blocks(const struct lpi_store_rig *rig)
{
	struct lp_store_stats stats;
	lp_store_read_stats(rig->hand.store, &stats);
	return stats.bad_blocks;
}

/* Overwrites, clones, cuts and removals of what is in such blocks, and openings with them; and a
 * power cut in between. */
static void test_blocks_that_cannot_be_written(void **state)
{
	(void)state;
	uint64_t met = 0;
	uint64_t end = 1 + lp_test_seed_shift() + lp_test_factor() * (LP_ASSERT_SLOW_ON ? 2 : 8);
	for (uint64_t seed = 1 + lp_test_seed_shift(); seed < end; seed++) {
		struct lpi_store_rig rig;
		lpi_store_rig_start(&rig, seed);
		struct lpi_model *model = new_model(&rig, 200 + seed, seed % 2 == 0 ? 16 : 1);
		spoil(&rig);
		rig.path = LP_PATH_DEFERRED;
		lp_store_set_write_path(rig.hand.store, rig.path);
		for (unsigned i = 0; i < 3; i++) {
			struct lp_bdev *left = NULL;
			run(model, 75);
			switch_deferred_store(&rig);
			run(model, 75);
			(void)lpi_model_check_all(model);
			lpi_model_ok(model);
			uint64_t at = lpi_store_rig_events(&rig);
			lp_test_ok(lp_sim_image_at(lp_sim_of(rig.bdev), at - 1, NULL, seed + i,
						   &left));
			met += bad_blocks(&rig);
			lp_test_ok(lpi_store_rig_close(&rig, i == 1));
			lpi_store_rig_check(&rig);
			judge_cut(model, left, at, seed + i);
			lp_test_ok(lpi_store_rig_open(&rig));
			lpi_model_attach(model, &rig.hand);
			(void)lpi_model_check_all(model);
			lpi_model_ok(model);
		}
		lpi_model_free(model);
		lp_test_ok(lpi_store_rig_close(&rig, false));
		lpi_store_rig_check(&rig);
		lpi_store_rig_fini(&rig);
	}
	assert_true(met > 0);
	print_message("%llu blocks could not be written\n", (unsigned long long)met);
}

int main(void)
{
	/* For long runs of one of them. NOLINTNEXTLINE(concurrency-mt-unsafe) */
	const char *only = getenv("LAPIS_TEST_ONLY");
	if (only != NULL)
		cmocka_set_test_filter(only);
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_same_as_memory),
		cmocka_unit_test(test_power_cut_at_many_events),
		cmocka_unit_test(test_blocks_that_cannot_be_written),
	};
	return lp_test_main(tests, "store/block/model");
}
