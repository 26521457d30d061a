/* SPDX-License-Identifier: Apache-2.0 */
/* Test rig: a block store on a simulated device, in simulated time.
 *
 * Only *_test.c files include this. The store is made, opened, closed and checked.
 */
#ifndef LP_STORE_BLOCK_BLOCK_SIM_TEST_H
#define LP_STORE_BLOCK_BLOCK_SIM_TEST_H

#include "store/block/core/block.h"
#include "store/check/fsck.h"
#include "store/device/sim/sim_test.h"
#include "store/model/store_test.h"
#include "store/setup/mkfs.h"
#include "store/volume/devices.h"

#define LPI_STORE_RIG_BYTES (UINT64_C(192) << 20)
#define LPI_STORE_RIG_BUFS  (UINT64_C(48) << 20)

/* A machine: a device, and a store on it. */
struct lpi_store_rig {
	struct lp_clock_sim clock;
	struct lp_workers *workers;
	struct lp_bdev *bdev;
	struct lp_devices devices;
	struct lpi_hand hand;
	enum lp_alloc_kind alloc_kind;
	enum lp_write_path path;
	enum lp_deferred_store deferred_store;
	uint64_t memory_bytes;
	uint64_t data_cache_bytes;
	struct lp_store_events *events; /* or NULL */
	bool read_only;
	bool has_threads; /* and real time: whoever makes the parts of such a rig says so */
	uint64_t deferred_blocks_max;
	uint32_t ops_max;
	bool discard;
};

#define LPI_STORE_RIG_LITTLE (UINT64_C(1) << 20) /* memory: nodes leave it as soon as they may */

/* Before each turn of a simulated store. */
static inline void lpi_store_rig_press(struct lp_store *store)
{
	struct lpi_block *block = lpi_block_of(store);
	if (block->options.memory_bytes <= LPI_STORE_RIG_LITTLE)
		block->nodes.limit_bytes = 1;
}

static inline void lpi_store_rig_turn(const struct lpi_hand *hand)
{
	lpi_store_rig_press(hand->store);
	(void)lp_store_sim_run_one(hand->store);
	(void)lp_reactor_turn(hand->reactor, true);
}

static inline void lpi_store_rig_init(struct lpi_store_rig *rig, struct lp_bdev *bdev,
				      uint64_t seed)
{
	*rig = (struct lpi_store_rig){.bdev = bdev};
	lp_clock_sim_init(&rig->clock, LP_NS_PER_S, INT64_C(1700000000) * (int64_t)LP_NS_PER_S);
	const struct lp_reactor_options options = {.name = "sim", .sim = &rig->clock};
	lp_test_ok(lp_reactor_new(&options, &rig->hand.reactor));
	lp_test_ok(lp_reactor_start(rig->hand.reactor));
	lp_test_ok(lp_workers_new(0, &rig->workers));
	lp_test_ok(lp_bufs_new(LPI_STORE_RIG_BUFS, &rig->hand.bufs));
	rig->hand.turn = lpi_store_rig_turn;
	rig->alloc_kind = (enum lp_alloc_kind)(seed % LP_ALLOC_KIND_CNT);
	rig->path = (enum lp_write_path)(seed % LP_PATH_CNT);
	rig->deferred_store = (enum lp_deferred_store)(seed / 2 % LP_DEFERRED_STORE_CNT);
	rig->deferred_blocks_max = 256;
	rig->ops_max = 8;
	rig->discard = seed % 5 < 3;
	/* Too little, or enough for the largest cache below and all else there is. */
	rig->memory_bytes = seed % 3 == 0 ? LPI_STORE_RIG_LITTLE : UINT64_C(1) << 26;
	/* None, one that puts out blocks all the time, and one that holds them all. */
	static const uint64_t caches[] = {0, UINT64_C(200) << 10, UINT64_C(32) << 20};
	rig->data_cache_bytes = caches[seed / 2 % LP_ARRAY_SIZE(caches)];
}

static inline void lpi_store_rig_options(struct lpi_store_rig *rig,
					 struct lp_store_options *ret_options)
{
	*ret_options = (struct lp_store_options){
		.reactor = rig->hand.reactor,
		.workers = rig->workers,
		.devices = &rig->devices,
		.bufs = rig->hand.bufs,
		.alloc_kind = rig->alloc_kind,
		.sim_clock = rig->has_threads ? NULL : &rig->clock.clock,
		.memory_bytes = rig->memory_bytes,
		.data_cache_bytes = rig->data_cache_bytes,
		.index_buffer_bytes = UINT64_C(1) << 17,
		.deferred_blocks_max = rig->deferred_blocks_max,
		.files_reserve_bytes = UINT64_C(1) << 20,
		.write_path = rig->path,
		.deferred_store = rig->deferred_store,
		.discard = rig->discard,
		.ops_max = rig->ops_max,
		.events = rig->events,
		.read_only = rig->read_only,
	};
}

static inline int lpi_store_rig_open(struct lpi_store_rig *rig)
{
	const struct lp_devices_options devices = {.bdev = {rig->bdev},
						   .read_only = rig->read_only};
	struct lp_store_options options;
	lpi_store_rig_options(rig, &options);
	struct lp_label_why why;
	int err = lp_devices_open(&devices, &rig->devices, &why);
	if (err == 0)
		err = lp_store_open(&options, &rig->hand.store);
	if (err < 0 && lp_corruption_find(0) != NULL)
		print_error("%s\n", lp_corruption_find(0)->what);
	return err;
}

static inline int lpi_store_rig_close(struct lpi_store_rig *rig, bool abandon)
{
	int err = lp_store_close(rig->hand.store, abandon);
	rig->hand.store = NULL;
	lp_devices_close(&rig->devices);
	return err;
}

static inline void lpi_store_rig_fini(struct lpi_store_rig *rig)
{
	lp_bufs_free(rig->hand.bufs);
	lp_workers_free(rig->workers);
	lp_reactor_free(rig->hand.reactor);
	lp_bdev_close(rig->bdev);
}

static inline uint64_t lpi_store_rig_used_blocks(const struct lpi_store_rig *rig)
{
	struct lp_store_stats stats;
	lp_store_read_stats(rig->hand.store, &stats);
	return stats.used_blocks;
}

/* For a model: when something happened is told by the events of the device's log. */
static inline uint64_t lpi_store_rig_events(void *arg)
{
	const struct lpi_store_rig *rig = arg;
	return lp_sim_event_count(lp_sim_of(rig->bdev));
}

static inline void lpi_store_rig_mkfs(struct lp_bdev *bdev)
{
	struct lp_mkfs_options options = {
		.bdev = {bdev}, .shard_cnt = 1, .log_bytes = UINT64_C(4) << 20};
	struct lp_disk_label label;
	struct lp_label_why why;
	for (size_t i = 0; i < sizeof(options.seed); i++)
		options.seed[i] = (uint8_t)(i * 7 + 1);
	lp_test_ok(lp_store_mkfs(&options, &label, &why));
}

static inline void lpi_store_rig_start(struct lpi_store_rig *rig, uint64_t seed)
{
	struct lp_sim_profile profile = lpi_bench_plain_profile(4096);
	const struct lp_sim_options options = {
		.profile = &profile, .size_bytes = LPI_STORE_RIG_BYTES, .seed = seed};
	struct lp_bdev *bdev = NULL;
	lp_test_ok(lp_bdev_open_sim(&options, &bdev));
	lpi_store_rig_mkfs(bdev);
	lp_sim_trim_log(lp_sim_of(bdev));
	lpi_store_rig_init(rig, bdev, seed);
	lp_test_ok(lpi_store_rig_open(rig));
}

/* What the model's records of no meaning and names without inodes cannot cause. */
static inline bool lpi_store_rig_is_serious(enum lp_fsck_kind kind)
{
	const uint64_t serious = UINT64_C(1) << LP_FSCK_SHARD | UINT64_C(1) << LP_FSCK_INDEX |
				 UINT64_C(1) << LP_FSCK_MAP | UINT64_C(1) << LP_FSCK_STRAY |
				 UINT64_C(1) << LP_FSCK_SIZE | UINT64_C(1) << LP_FSCK_OUTSIDE |
				 UINT64_C(1) << LP_FSCK_TWICE | UINT64_C(1) << LP_FSCK_REFS |
				 UINT64_C(1) << LP_FSCK_LEAK | UINT64_C(1) << LP_FSCK_UNTAKEN |
				 UINT64_C(1) << LP_FSCK_FRAGMENT | UINT64_C(1) << LP_FSCK_DATA |
				 UINT64_C(1) << LP_FSCK_DATA_READ | UINT64_C(1) << LP_FSCK_DEFERRED;
	return (serious >> kind & 1) != 0;
}

static inline void lpi_store_rig_found(struct lp_fsck_events *events,
				       const struct lp_fsck_finding *finding)
{
	(void)events;
	if (!lpi_store_rig_is_serious(finding->kind))
		return;
	print_error("fsck: %s: %s: %s\n", lp_fsck_kind_name(finding->kind), finding->object,
		    finding->text);
	fail();
}

static inline void lpi_store_rig_check_all(struct lpi_store_rig *rig,
					   void (*found)(struct lp_fsck_events *events,
							 const struct lp_fsck_finding *finding))
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

static inline void lpi_store_rig_check(struct lpi_store_rig *rig)
{
	lpi_store_rig_check_all(rig, lpi_store_rig_found);
}

#endif
