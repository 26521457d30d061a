/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: the block store does what the face says, and what it acknowledged survives a power cut at
 * any moment (P1 to P4, rules L3, S1 to S4, S6, W1, W2).
 * Method: random operations on a block store over a simulated device and on the store in memory,
 * all answers compared; then the power is cut at every n-th event of the device's log, the store is
 * opened from what is left, and must hold what a crash may leave; no block is leaked. */
#include "store/sim_test.h"

#include "store/block_impl.h"
#include "store/devices.h"
#include "store/fsck.h"
#include "store/mkfs.h"
#include "store/model_crash_test.h"

#define SIZE_BYTES (UINT64_C(192) << 20)
#define BUFS_BYTES (UINT64_C(48) << 20)
#define CUTS       (LP_ASSERT_SLOW_ON ? 12u : 60u)

/* The long target runs many times as many. */
static uint64_t seeds_of(uint64_t usual)
{
	/* Read before there are threads. */
	const char *factor = getenv("LAPIS_TEST_FACTOR"); /* NOLINT(concurrency-mt-unsafe) */
	return factor != NULL ? usual * strtoull(factor, NULL, 10) : usual;
}

/* A machine: a device, and a store on it. */
struct rig {
	struct lp_clock_sim clock;
	struct lp_workers *workers;
	struct lp_bdev *bdev;
	struct lp_devices devices;
	struct lpi_hand hand;
	enum lp_alloc_kind alloc_kind;
	enum lp_write_path path;
	uint64_t memory_bytes;
};

static void turn(const struct lpi_hand *hand)
{
	(void)lp_store_sim_run_one(hand->store);
	(void)lp_reactor_turn(hand->reactor, true);
}

static void rig_init(struct rig *rig, struct lp_bdev *bdev, uint64_t seed)
{
	*rig = (struct rig){.bdev = bdev};
	lp_clock_sim_init(&rig->clock, LP_NS_PER_S, INT64_C(1700000000) * (int64_t)LP_NS_PER_S);
	const struct lp_reactor_options options = {.name = "sim", .sim = &rig->clock};
	lp_test_ok(lp_reactor_new(&options, &rig->hand.reactor));
	lp_test_ok(lp_reactor_start(rig->hand.reactor));
	lp_test_ok(lp_workers_new(0, &rig->workers));
	lp_test_ok(lp_bufs_new(BUFS_BYTES, &rig->hand.bufs));
	rig->hand.turn = turn;
	rig->alloc_kind = (enum lp_alloc_kind)(seed % LP_ALLOC_KIND_CNT);
	rig->path = (enum lp_write_path)(seed % LP_PATH_CNT);
	rig->memory_bytes = seed % 3 == 0 ? UINT64_C(1) << 20 : 0;
}

static int rig_open(struct rig *rig)
{
	const struct lp_devices_options devices = {.bdev = {rig->bdev}};
	const struct lp_store_options options = {.reactor = rig->hand.reactor,
						 .workers = rig->workers,
						 .devices = &rig->devices,
						 .bufs = rig->hand.bufs,
						 .alloc_kind = rig->alloc_kind,
						 .sim_clock = &rig->clock.clock,
						 .memory_bytes = rig->memory_bytes,
						 .index_buffer_bytes = UINT64_C(1) << 17,
						 .deferred_blocks_max = 256,
						 .files_reserve_bytes = UINT64_C(1) << 20,
						 .write_path = rig->path,
						 .ops_max = 8};
	struct lp_label_why why;
	int err = lp_devices_open(&devices, &rig->devices, &why);
	if (err == 0)
		err = lp_store_open(&options, &rig->hand.store);
	if (err < 0 && lp_corruption_find(0) != NULL)
		print_error("%s\n", lp_corruption_find(0)->what);
	return err;
}

static int rig_close(struct rig *rig, bool abandon)
{
	int err = lp_store_close(rig->hand.store, abandon);
	rig->hand.store = NULL;
	lp_devices_close(&rig->devices);
	return err;
}

static void rig_fini(struct rig *rig)
{
	lp_bufs_free(rig->hand.bufs);
	lp_workers_free(rig->workers);
	lp_reactor_free(rig->hand.reactor);
	lp_bdev_close(rig->bdev);
}

static void make_store(struct lp_bdev *bdev)
{
	struct lp_mkfs_options options = {
		.bdev = {bdev}, .shard_cnt = 1, .log_bytes = UINT64_C(4) << 20};
	struct lp_disk_label label;
	struct lp_label_why why;
	for (size_t i = 0; i < sizeof(options.seed); i++)
		options.seed[i] = (uint8_t)(i * 7 + 1);
	lp_test_ok(lp_store_mkfs(&options, &label, &why));
}

static void start(struct rig *rig, uint64_t seed)
{
	struct lp_sim_profile profile = lpi_bench_plain_profile(4096);
	const struct lp_sim_options options = {
		.profile = &profile, .size_bytes = SIZE_BYTES, .seed = seed};
	struct lp_bdev *bdev = NULL;
	lp_test_ok(lp_bdev_open_sim(&options, &bdev));
	make_store(bdev);
	lp_sim_trim_log(lp_sim_of(bdev));
	rig_init(rig, bdev, seed);
	lp_test_ok(rig_open(rig));
}

static uint64_t events(void *arg)
{
	const struct rig *rig = arg;
	return lp_sim_event_count(lp_sim_of(rig->bdev));
}

static struct lpi_model *new_model(struct rig *rig, uint64_t seed, uint32_t depth)
{
	/* Fragments are not claimed: what changes one is whole, but in any order. */
	const uint64_t of_fragments = UINT64_C(1) << LP_GUARD_EMPTY | UINT64_C(1) << LP_CHANGE_DIR |
				      UINT64_C(1) << LP_CHANGE_ENTRY_SET |
				      UINT64_C(1) << LP_CHANGE_ENTRY_REMOVE;
	const struct lpi_model_options options = {
		.gen = {.seed = seed,
			.data_bytes_max = UINT64_C(8) << 20,
			.without = depth > 1 ? of_fragments : 0,
			.ordered = seed % 2 == 1},
		.depth = depth,
		.now = events,
		.now_arg = rig,
	};
	struct lpi_model *model = lpi_model_new(&options);
	lpi_model_attach(model, &rig->hand);
	return model;
}

static void run(struct lpi_model *model, unsigned steps)
{
	for (unsigned i = 0; i < steps && lpi_model_step(model); i++)
		continue;
	lpi_model_ok(model);
}

static void check_deeply(struct rig *rig);

static void test_same_as_memory(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= seeds_of(LP_ASSERT_SLOW_ON ? 4 : 12); seed++) {
		struct rig rig;
		start(&rig, seed);
		struct lpi_model *model = new_model(&rig, seed, seed % 2 == 0 ? 16 : 1);
		for (unsigned i = 0; i < 3; i++) {
			run(model, 150);
			(void)lpi_model_check_all(model);
			lpi_model_ok(model);
			lp_test_ok(rig_close(&rig, false));
			check_deeply(&rig);
			lp_test_ok(rig_open(&rig));
			lpi_model_attach(model, &rig.hand);
			(void)lpi_model_check_all(model);
			lpi_model_ok(model);
		}
		lpi_model_free(model);
		lp_test_ok(rig_close(&rig, false));
		rig_fini(&rig);
	}
}

/* What the model's records of no meaning and names without inodes cannot cause. */
static bool is_serious(enum lp_fsck_kind kind)
{
	const uint64_t serious = UINT64_C(1) << LP_FSCK_SHARD | UINT64_C(1) << LP_FSCK_INDEX |
				 UINT64_C(1) << LP_FSCK_MAP | UINT64_C(1) << LP_FSCK_STRAY |
				 UINT64_C(1) << LP_FSCK_SIZE | UINT64_C(1) << LP_FSCK_OUTSIDE |
				 UINT64_C(1) << LP_FSCK_TWICE | UINT64_C(1) << LP_FSCK_REFS |
				 UINT64_C(1) << LP_FSCK_LEAK | UINT64_C(1) << LP_FSCK_UNTAKEN |
				 UINT64_C(1) << LP_FSCK_FRAGMENT | UINT64_C(1) << LP_FSCK_DATA |
				 UINT64_C(1) << LP_FSCK_DATA_READ;
	return (serious >> kind & 1) != 0;
}

static void found(struct lp_fsck_events *events, const struct lp_fsck_finding *finding)
{
	(void)events;
	if (!is_serious(finding->kind))
		return;
	print_error("fsck: %s: %s: %s\n", lp_fsck_kind_name(finding->kind), finding->object,
		    finding->text);
	fail();
}

static void check_deeply(struct rig *rig)
{
	struct lp_fsck_events listener = {.found = found};
	const struct lp_fsck_options options = {.reactor = rig->hand.reactor,
						.workers = rig->workers,
						.bufs = rig->hand.bufs,
						.bdev = {rig->bdev},
						.events = &listener,
						.sim_clock = &rig->clock.clock,
						.index_buffer_bytes = UINT64_C(1) << 17,
						.files_reserve_bytes = UINT64_C(1) << 20,
						.deep = true};
	struct lp_fsck_report report;
	struct lp_label_why why;
	lp_test_ok(lp_fsck_run(&options, &report, &why));
}

static void judge_cut(struct lpi_model *model, struct lp_bdev *left, uint64_t at, uint64_t seed)
{
	struct rig rig;
	rig_init(&rig, left, seed);
	lp_test_ok(rig_open(&rig));
	(void)lpi_model_crash_check(model, &rig.hand, at, false, NULL);
	if (!lpi_model_is_right(model))
		print_error("cut after event %llu\n", (unsigned long long)at);
	lpi_model_ok(model);
	lp_test_ok(rig_close(&rig, seed % 3 != 0));
	check_deeply(&rig);
	rig_fini(&rig);
}

static void test_power_cut_at_many_events(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= seeds_of(4); seed++) {
		struct rig rig;
		struct lp_sim_cutter *cutter = NULL;
		uint64_t cuts = 0;
		start(&rig, seed);
		struct lpi_model *model = new_model(&rig, 100 + seed, seed % 2 == 0 ? 8 : 1);
		run(model, 250);
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
		lp_sim_cutter_free(cutter);
		lpi_model_free(model);
		lp_test_ok(rig_close(&rig, true));
		rig_fini(&rig);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_same_as_memory),
		cmocka_unit_test(test_power_cut_at_many_events),
	};
	return lp_test_main(tests, "store/block_model");
}
