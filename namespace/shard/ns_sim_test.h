/* SPDX-License-Identifier: Apache-2.0 */
/* Test rig: a namespace of several shards on one simulated device that can lose its power.
 *
 * All shards are on one reactor; the device says how many there are. The namespace is made,
 * started, cut, opened again and checked. Only *_test.c files and their headers include this.
 */
#ifndef LP_NAMESPACE_SHARD_NS_SIM_TEST_H
#define LP_NAMESPACE_SHARD_NS_SIM_TEST_H

#include "namespace/change/ns_state.h"
#include "store/block/block_sim_test.h"
#include "store/setup/mkfs.h"

#define LPI_NS_SIM_SHARDS    3u /* at most, and if nobody says otherwise */
#define LPI_NS_SIM_BYTES     (UINT64_C(96) << 20)
#define LPI_NS_SIM_TURNS_MAX 2000000u

/* What may differ from opening to opening; all 0: as most tests have it. */
struct lpi_ns_sim_config {
	enum lp_alloc_kind alloc_kind;
	enum lp_write_path write_path;
	enum lp_deferred_store deferred_store;
	bool discard;
	uint64_t memory_bytes;
	uint64_t data_cache_bytes;
	uint64_t hold_ns;
	uint64_t deferred_blocks_max; /* 0: 64 */
	uint64_t files_reserve_bytes; /* 0: 1 MiB; more than there is: the index is nearly full */
};

struct lpi_ns_sim {
	struct lpi_ns_sim_config config;
	uint32_t shard_cnt;
	struct lp_clock_sim clock;
	struct lp_reactor *reactor;
	struct lp_workers *workers;
	struct lp_bufs *bufs;
	struct lp_bdev *bdev;
	struct lp_devices devices;
	struct lpi_hand hand[LPI_NS_SIM_SHARDS]; /* of each shard's store */
	struct lp_ns *ns[LPI_NS_SIM_SHARDS];
	uint32_t ready_cnt;
	int ready_result;
	uint32_t stopped_cnt;
	uint32_t problems; /* of the last check */
};

/* --- The machine ------------------------------------------------------------------------------ */

/* Returns whether anything was done. */
static inline uint32_t lpi_ns_sim_turn(struct lpi_ns_sim *sim)
{
	for (uint32_t i = 0; i < LPI_NS_SIM_SHARDS; i++) {
		if (sim->hand[i].store == NULL)
			continue;
		lpi_store_rig_press(sim->hand[i].store);
		(void)lp_store_sim_run_one(sim->hand[i].store);
	}
	return lp_reactor_turn(sim->reactor, true);
}

static inline void lpi_ns_sim_hand_turn(const struct lpi_hand *hand)
{
	(void)lpi_ns_sim_turn(hand->arg);
}

static inline void lpi_ns_sim_init(struct lpi_ns_sim *sim, struct lp_bdev *bdev)
{
	*sim = (struct lpi_ns_sim){.bdev = bdev};
	lp_clock_sim_init(&sim->clock, LP_NS_PER_S, INT64_C(1700000000) * (int64_t)LP_NS_PER_S);
	const struct lp_reactor_options options = {
		.name = "sim", .clock = &sim->clock.clock, .sim = &sim->clock};
	lp_test_ok(lp_reactor_new(&options, &sim->reactor));
	lp_test_ok(lp_reactor_start(sim->reactor));
	lp_test_ok(lp_workers_new(0, &sim->workers));
	lp_test_ok(lp_bufs_new(UINT64_C(24) << 20, &sim->bufs));
	for (uint32_t i = 0; i < LPI_NS_SIM_SHARDS; i++)
		sim->hand[i] = (struct lpi_hand){.reactor = sim->reactor,
						 .bufs = sim->bufs,
						 .turn = lpi_ns_sim_hand_turn,
						 .arg = sim};
}

static inline void lpi_ns_sim_fini(struct lpi_ns_sim *sim)
{
	lp_bufs_free(sim->bufs);
	lp_workers_free(sim->workers);
	lp_reactor_free(sim->reactor);
	lp_bdev_close(sim->bdev);
}

static inline int lpi_ns_sim_close(struct lpi_ns_sim *sim, bool abandon)
{
	int r = 0;
	for (uint32_t i = 0; i < sim->shard_cnt; i++) {
		int one = lp_store_close(sim->hand[i].store, abandon);
		r = LP_MIN(r, one);
		sim->hand[i].store = NULL;
	}
	lp_devices_close(&sim->devices);
	return r;
}

/* What could be opened is closed when something could not. */
static inline int lpi_ns_sim_try_open(struct lpi_ns_sim *sim)
{
	const struct lp_devices_options devices = {.bdev = {sim->bdev}};
	struct lp_label_why why;
	int err = lp_devices_open(&devices, &sim->devices, &why);
	if (err < 0)
		return err;
	uint64_t deferred_max = sim->config.deferred_blocks_max;
	deferred_max = deferred_max == 0 ? 64 : deferred_max;
	uint64_t reserve_bytes = sim->config.files_reserve_bytes;
	reserve_bytes = reserve_bytes == 0 ? UINT64_C(1) << 20 : reserve_bytes;
	sim->shard_cnt = sim->devices.label[LP_ROLE_DATA].shard_cnt;
	assert_true(sim->shard_cnt <= LPI_NS_SIM_SHARDS);
	for (uint32_t i = 0; i < sim->shard_cnt && err == 0; i++) {
		const struct lp_store_options store = {.reactor = sim->reactor,
						       .workers = sim->workers,
						       .devices = &sim->devices,
						       .bufs = sim->bufs,
						       .shard_idx = i,
						       .sim_clock = &sim->clock.clock,
						       .alloc_kind = sim->config.alloc_kind,
						       .write_path = sim->config.write_path,
						       .deferred_store = sim->config.deferred_store,
						       .discard = sim->config.discard,
						       .memory_bytes = sim->config.memory_bytes,
						       .data_cache_bytes =
							       sim->config.data_cache_bytes,
						       .hold_ns = sim->config.hold_ns,
						       .index_buffer_bytes = UINT64_C(1) << 16,
						       .deferred_blocks_max = deferred_max,
						       .files_reserve_bytes = reserve_bytes,
						       .ops_max = 8};
		err = lp_store_open(&store, &sim->hand[i].store);
	}
	if (err < 0)
		(void)lpi_ns_sim_close(sim, true); /* the error that matters is the one we have */
	return err;
}

static inline void lpi_ns_sim_open(struct lpi_ns_sim *sim)
{
	lp_test_ok(lpi_ns_sim_try_open(sim));
}

static inline struct lp_bdev *lpi_ns_sim_mkfs_on(const struct lp_sim_profile *profile,
						 uint32_t shard_cnt, uint64_t seed)
{
	const struct lp_sim_options options = {
		.profile = profile, .size_bytes = LPI_NS_SIM_BYTES, .seed = seed};
	struct lp_bdev *bdev = NULL;
	struct lp_disk_label label;
	struct lp_label_why why;
	lp_test_ok(lp_bdev_open_sim(&options, &bdev));
	struct lp_mkfs_options mkfs = {
		.bdev = {bdev}, .shard_cnt = shard_cnt, .log_bytes = UINT64_C(1) << 20};
	for (size_t i = 0; i < sizeof(mkfs.seed); i++)
		mkfs.seed[i] = (uint8_t)(i * 7 + 1);
	lp_test_ok(lp_store_mkfs(&mkfs, &label, &why));
	lp_sim_trim_log(lp_sim_of(bdev));
	return bdev;
}

static inline struct lp_bdev *lpi_ns_sim_mkfs(uint64_t seed)
{
	struct lp_sim_profile profile = lpi_bench_plain_profile(4096);
	return lpi_ns_sim_mkfs_on(&profile, LPI_NS_SIM_SHARDS, seed);
}

/* --- The namespace ---------------------------------------------------------------------------- */

static inline void lpi_ns_sim_ready(struct lp_ns *ns, int result, void *arg)
{
	struct lpi_ns_sim *sim = arg;
	(void)ns;
	sim->ready_cnt++;
	sim->ready_result = LP_MIN(sim->ready_result, result);
}

static inline int lpi_ns_sim_start(struct lpi_ns_sim *sim)
{
	sim->ready_cnt = 0;
	sim->ready_result = 0;
	for (uint32_t i = 0; i < sim->shard_cnt; i++) {
		const struct lp_ns_options options = {.reactor = sim->reactor,
						      .store = sim->hand[i].store,
						      .bufs = sim->bufs,
						      .shard_idx = i,
						      .shard_cnt = sim->shard_cnt,
						      .cache_bytes = UINT64_C(1) << 16,
						      .ops_max = 16};
		lp_test_ok(lp_ns_open(&options, &sim->ns[i]));
	}
	for (uint32_t i = 0; i < sim->shard_cnt; i++)
		lp_ns_start(sim->ns[i], sim->ns, lpi_ns_sim_ready, sim);
	for (uint32_t i = 0; sim->ready_cnt < sim->shard_cnt; i++) {
		assert_true(i < LPI_NS_SIM_TURNS_MAX);
		(void)lpi_ns_sim_turn(sim);
	}
	return sim->ready_result;
}

static inline void lpi_ns_sim_stopped(struct lp_ns *ns, void *arg)
{
	struct lpi_ns_sim *sim = arg;
	(void)ns;
	sim->stopped_cnt++;
}

/* Whatever was asked for is given back then. */
static inline void lpi_ns_sim_stop(struct lpi_ns_sim *sim)
{
	sim->stopped_cnt = 0;
	for (uint32_t i = 0; i < sim->shard_cnt; i++)
		lp_ns_stop(sim->ns[i], lpi_ns_sim_stopped, sim);
	for (uint32_t i = 0; sim->stopped_cnt < sim->shard_cnt; i++) {
		assert_true(i < LPI_NS_SIM_TURNS_MAX);
		(void)lpi_ns_sim_turn(sim);
	}
	/* What waits for the next opening keeps its locks. */
	uint64_t stuck = 0;
	for (uint32_t i = 0; i < sim->shard_cnt; i++)
		stuck += sim->ns[i]->stats.stuck;
	for (uint32_t i = 0; i < sim->shard_cnt; i++) {
		assert_int_equal(sim->ns[i]->under_way, sim->ns[i]->stats.stuck);
		if (stuck == 0)
			assert_int_equal(lpi_locks_cnt(sim->ns[i]->locks), 0);
		lp_ns_close(sim->ns[i]);
		sim->ns[i] = NULL;
	}
}

static inline struct lpi_ns_sim *lpi_ns_sim_new(struct lp_bdev *bdev,
						const struct lpi_ns_sim_config *config)
{
	struct lpi_ns_sim *sim = malloc(sizeof(*sim));
	assert_non_null(sim);
	lpi_ns_sim_init(sim, bdev);
	sim->config = *config;
	return sim;
}

/* A machine that has just come up, with whatever the device holds. */
static inline struct lpi_ns_sim *lpi_ns_sim_boot_as(struct lp_bdev *bdev,
						    const struct lpi_ns_sim_config *config)
{
	struct lpi_ns_sim *sim = lpi_ns_sim_new(bdev, config);
	lpi_ns_sim_open(sim);
	return sim;
}

static inline struct lpi_ns_sim *lpi_ns_sim_boot(struct lp_bdev *bdev)
{
	const struct lpi_ns_sim_config config = {.hold_ns = 0};
	return lpi_ns_sim_boot_as(bdev, &config);
}

/* --- Operations, one after the other -----------------------------------------------------------
 */

struct lpi_ns_sim_asked {
	struct lp_ns_op op;
	bool is_done;
};

static inline void lpi_ns_sim_answered(struct lp_ns_op *op)
{
	LP_CONTAINER_OF(op, struct lpi_ns_sim_asked, op)->is_done = true;
}

/* On shard 0; what it answers is in *op. Not for a read, which is to be ended. */
static inline int lpi_ns_sim_do(struct lpi_ns_sim *sim, struct lp_ns_op *op)
{
	struct lpi_ns_sim_asked asked = {.op = *op};
	asked.op.complete = lpi_ns_sim_answered;
	lp_ns_submit(sim->ns[0], &asked.op);
	for (uint32_t i = 0; !asked.is_done; i++) {
		assert_true(i < LPI_NS_SIM_TURNS_MAX);
		(void)lpi_ns_sim_turn(sim);
	}
	*op = asked.op;
	return op->result;
}

static inline struct lp_bytes lpi_ns_sim_bytes(const char *text)
{
	return (struct lp_bytes){text, (uint32_t)strlen(text)};
}

/* From now on the shard's log cannot be written. */
static inline void lpi_ns_sim_break_log(const struct lpi_ns_sim *sim, uint32_t shard_idx)
{
	struct lp_extent area = lp_label_log_area(&sim->devices.label[LP_ROLE_DATA], shard_idx);
	const struct lp_sim_rule rule = {.fault = LP_SIM_EIO,
					 .opcode_mask = LP_SIM_OP(LP_BDEV_WRITE_THROUGH),
					 .offset_bytes = area.block * LP_BLOCK_BYTES,
					 .length_bytes = area.cnt * LP_BLOCK_BYTES};
	(void)lp_sim_rule_add(lp_sim_of(sim->bdev), &rule);
}

static inline enum lp_store_state lpi_ns_sim_state(const struct lpi_ns_sim *sim, uint32_t shard_idx)
{
	struct lp_store_health health;
	lp_store_read_health(sim->hand[shard_idx].store, &health);
	return health.state;
}

/* The shard has failed, and serves what was durable. */
static inline void lpi_ns_sim_wait_read_only(struct lpi_ns_sim *sim, uint32_t shard_idx)
{
	for (uint32_t i = 0; lpi_ns_sim_state(sim, shard_idx) != LP_STORE_READ_ONLY; i++) {
		assert_true(i < LPI_NS_SIM_TURNS_MAX);
		(void)lpi_ns_sim_turn(sim);
	}
}

/* The end of a machine of which a shard has failed. The device can be written again, by the next
 * opening. */
static inline void lpi_ns_sim_end_failed(struct lpi_ns_sim *sim)
{
	lp_sim_rules_clear(lp_sim_of(sim->bdev));
	lpi_ns_sim_stop(sim);
	assert_true(lpi_ns_sim_close(sim, false) < 0);
	lpi_ns_sim_fini(sim);
	free(sim);
}

/* --- Checking --------------------------------------------------------------------------------- */

static inline void lpi_ns_sim_found(struct lp_fsck_events *events,
				    const struct lp_fsck_finding *finding)
{
	(void)events;
	print_error("fsck: %s: %s: %s\n", lp_fsck_kind_name(finding->kind), finding->object,
		    finding->text);
	fail();
}

/* The device, which nobody has open, holds a store without any fault. */
static inline void lpi_ns_sim_fsck(struct lpi_ns_sim *sim)
{
	struct lp_fsck_events listener = {.found = lpi_ns_sim_found};
	const struct lp_fsck_options options = {.reactor = sim->reactor,
						.workers = sim->workers,
						.bufs = sim->bufs,
						.bdev = {sim->bdev},
						.events = &listener,
						.sim_clock = &sim->clock.clock,
						.index_buffer_bytes = UINT64_C(1) << 16,
						.files_reserve_bytes = UINT64_C(1) << 20,
						.deep = true};
	struct lp_fsck_report report;
	struct lp_label_why why;
	lp_test_ok(lp_fsck_run(&options, &report, &why));
}

#endif
