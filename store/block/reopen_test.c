/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: a store whose device fails goes on read-only, not dead (rule L7): it acknowledges nothing
 * more, serves what is durable and nothing else, says what happened, and can be closed and opened
 * again.
 * Method: random operations on a block store over a simulated device, of which one write or flush
 * fails, alone or with all that follow, each in its turn; what the store then serves read-only, and
 * what it holds after a power cut, is judged by the model. And single cases, step by step. */
#include <stdlib.h>
#include <unistd.h>

#include "store/block/block_sim_test.h"

#include "base/error.h"
#include "base/sanitize.h"
#include "base/testing/test_long.h"
#include "store/block/core/block.h"
#include "store/model/crash_test.h"
#include "store/setup/mkfs.h"

#define STEPS 90u
#define RUNS  (LP_ASSERT_SLOW_ON ? 8u : 48u)
#define WRITES                                                                                     \
	(LP_SIM_OP(LP_BDEV_WRITE) | LP_SIM_OP(LP_BDEV_WRITE_THROUGH) | LP_SIM_OP(LP_BDEV_FLUSH))

/* --- A store and who listens ------------------------------------------------------------------ */

struct bench {
	struct lp_store_events events;
	struct lpi_store_rig rig;
	struct lp_store_health told[4];
	uint32_t told_cnt;
};

static void on_health(struct lp_store_events *events, const struct lp_store_health *health)
{
	struct bench *bench = LP_CONTAINER_OF(events, struct bench, events);
	assert_true(bench->told_cnt < LP_ARRAY_SIZE(bench->told));
	bench->told[bench->told_cnt++] = *health;
}

static void bench_start(struct bench *bench, const struct lp_sim_profile *profile, uint64_t seed)
{
	const struct lp_sim_options options = {
		.profile = profile, .size_bytes = LPI_STORE_RIG_BYTES, .seed = seed};
	struct lp_bdev *bdev = NULL;
	*bench = (struct bench){.events = {.health = on_health}};
	lp_test_ok(lp_bdev_open_sim(&options, &bdev));
	lpi_store_rig_mkfs(bdev);
	lp_sim_trim_log(lp_sim_of(bdev));
	lpi_store_rig_init(&bench->rig, bdev, seed);
	bench->rig.events = &bench->events;
	lp_test_ok(lpi_store_rig_open(&bench->rig));
}

static struct lp_sim *sim_of(const struct bench *bench)
{
	return lp_sim_of(bench->rig.bdev);
}

static enum lp_store_state state_of(const struct bench *bench)
{
	struct lp_store_health health;
	lp_store_read_health(bench->rig.hand.store, &health);
	return health.state;
}

/* Until what a failure began is over. */
static enum lp_store_state wait_settled(struct bench *bench)
{
	for (uint32_t i = 0; state_of(bench) == LP_STORE_REOPENING; i++) {
		assert_true(i < LPI_TURNS_MAX);
		lpi_hand_turn(&bench->rig.hand);
	}
	return state_of(bench);
}

/* One message when it failed, one when it was decided what became of it. */
static void check_told(const struct bench *bench, enum lp_store_state state)
{
	assert_int_equal(bench->told_cnt, 2);
	assert_int_equal(bench->told[0].state, LP_STORE_REOPENING);
	assert_int_equal(bench->told[1].state, state);
	for (int i = 0; i < 2; i++) {
		assert_true(bench->told[i].error < 0 && bench->told[i].since_ns > 0);
		assert_int_equal(strncmp(bench->told[i].reason, bench->told[0].reason,
					 strlen(bench->told[0].reason)),
				 0);
	}
	assert_int_equal(lp_store_error(bench->rig.hand.store), bench->told[0].error);
}

static void bench_fini(struct bench *bench)
{
	assert_true(lpi_store_rig_close(&bench->rig, false) < 0);
	lpi_store_rig_fini(&bench->rig);
}

/* --- Every write and flush -------------------------------------------------------------------- */

static struct lpi_model *new_model(struct bench *bench, uint64_t seed)
{
	const struct lpi_model_options options = {
		.gen = {.seed = seed,
			.data_bytes_max = UINT64_C(8) << 20,
			.without = LPI_GEN_OF_FRAGMENTS,
			.ordered = seed % 2 == 1},
		.depth = 8,
		.may_fail = true,
		.now = lpi_store_rig_events,
		.now_arg = &bench->rig,
	};
	struct lpi_model *model = lpi_model_new(&options);
	lpi_model_attach(model, &bench->rig.hand);
	return model;
}

/* Operations until the store fails, or there are enough; what a store that has failed says to them
 * is looked at, too. */
static void run(struct lpi_model *model)
{
	for (unsigned i = 0; i < STEPS; i++)
		if (!lpi_model_step(model))
			break;
	(void)lpi_model_drain(model);
	lpi_model_ok(model);
}

/* What a reader has found cannot be taken back (P3): it must be there after a crash. */
static void judge_served(struct lpi_model *model, const struct lpi_hand *hand, uint64_t at)
{
	struct lpi_crash crash = {.model = model, .survivor = *hand, .at = at};
	crash.is_in = calloc(model->history_cnt + 1, sizeof(*crash.is_in));
	assert_non_null(crash.is_in);
	bool is_right = lpi_crash_find(&crash, false);
	if (!is_right)
		print_error("served read-only: %s\n", crash.diff.text);
	assert_true(is_right);
	for (uint64_t i = 0; i < model->history_cnt; i++)
		if (crash.is_in[i] && model->history[i].durable_time > at)
			model->history[i].durable_time = at;
	for (uint32_t i = 0; i < crash.object_cnt; i++) {
		free(crash.objects[i].txns);
		free(crash.objects[i].may_be);
	}
	free(crash.objects);
	free(crash.is_in);
}

static void judge_cut(struct lpi_model *model, struct lp_bdev *left, uint64_t at, uint64_t seed)
{
	struct lpi_store_rig rig;
	lpi_store_rig_init(&rig, left, seed);
	lp_test_ok(lpi_store_rig_open(&rig));
	(void)lpi_model_crash_check(model, &rig.hand, at, false, NULL);
	lpi_model_ok(model);
	lp_test_ok(lpi_store_rig_close(&rig, seed % 3 != 0));
	lpi_store_rig_check(&rig);
	lpi_store_rig_fini(&rig);
}

/* It takes nothing and forgets nothing. */
static void check_refuses(struct bench *bench)
{
	const struct lp_attrs attrs = {.type = LP_INODE_TYPE_FILE};
	const struct lp_change create = {.type = LP_CHANGE_CREATE,
					 .ino = lp_store_new_ino(bench->rig.hand.store),
					 .inode = {.attrs = &attrs}};
	struct lp_store_op op = lpi_txn_op(&create, 1);
	struct lp_store_op sync = {.opcode = LP_STORE_SYNC};
	assert_int_equal(lpi_hand_do(&bench->rig.hand, &op), -EROFS);
	assert_false(op.txn.is_unknown);
	assert_int_equal(lpi_hand_do(&bench->rig.hand, &sync), -EIO);
}

struct outcome {
	uint64_t failed; /* the store did */
	uint64_t struck; /* the rule did */
};

static struct lp_sim_profile profile_of(uint64_t seed)
{
	return lpi_bench_profile_of((enum lp_sim_preset)(seed % LP_SIM_PRESET_CNT),
				    seed / LP_SIM_PRESET_CNT % 2 == 0);
}

/* The operation itself, or somebody else's flush during it. */
static enum lp_sim_fault fault_of(uint64_t skip)
{
	return skip % 4 == 3 ? LP_SIM_FOREIGN : LP_SIM_EIO;
}

static void fail_at(uint64_t seed, uint64_t skip, uint32_t fire_cnt, struct outcome *outcome)
{
	struct bench bench;
	struct lp_bdev *left = NULL;
	const struct lp_sim_profile profile = profile_of(seed);
	bench_start(&bench, &profile, seed);
	const struct lp_sim_rule rule = {.fault = fault_of(skip),
					 .opcode_mask = WRITES,
					 .skip_cnt = (uint32_t)skip,
					 .fire_cnt = fire_cnt};
	uint32_t rule_idx = lp_sim_rule_add(sim_of(&bench), &rule);
	struct lpi_model *model = new_model(&bench, seed);
	run(model);
	outcome->struck += lp_sim_rule_fired(sim_of(&bench), rule_idx) > 0;
	enum lp_store_state state = wait_settled(&bench);
	if (lp_store_error(bench.rig.hand.store) < 0) {
		outcome->failed++;
		assert_int_equal(state, LP_STORE_READ_ONLY);
		check_told(&bench, LP_STORE_READ_ONLY);
		judge_served(model, &bench.rig.hand, lpi_store_rig_events(&bench.rig));
		check_refuses(&bench);
	} else {
		assert_int_equal(bench.told_cnt, 0);
	}
	uint64_t at = lpi_store_rig_events(&bench.rig);
	lp_test_ok(lp_sim_image_at(sim_of(&bench), at - 1, NULL, seed + skip, &left));
	(void)lpi_store_rig_close(&bench.rig, true); /* its result is that of the failure */
	lpi_store_rig_fini(&bench.rig);
	judge_cut(model, left, at, seed + skip);
	lpi_model_free(model);
}

static uint64_t count_ios(uint64_t seed)
{
	struct bench bench;
	uint64_t cnt = 0;
	const struct lp_sim_profile profile = profile_of(seed);
	bench_start(&bench, &profile, seed);
	/* A rule that never strikes, and is met by each. */
	struct lpi_model *model = new_model(&bench, seed);
	uint64_t from = lpi_store_rig_events(&bench.rig);
	run(model);
	for (uint64_t i = from; i < lpi_store_rig_events(&bench.rig); i++) {
		struct lp_sim_event event;
		lp_sim_event_get(sim_of(&bench), i, &event);
		cnt += event.type == LP_SIM_SUBMIT && (WRITES & LP_SIM_OP(event.opcode)) != 0;
	}
	lpi_model_free(model);
	lp_test_ok(lpi_store_rig_close(&bench.rig, false));
	lpi_store_rig_fini(&bench.rig);
	return cnt;
}

/* Rule L7, I7: one write or flush fails, and then those after it, too. */
static void test_each_io_fails(void **state)
{
	(void)state;
	struct outcome outcome = {0};
	uint64_t runs = RUNS * lp_test_factor();
	uint64_t done = 0;
	for (uint64_t seed = 1 + lp_test_seed_shift(); done < runs; seed++) {
		uint64_t ios = count_ios(seed);
		uint64_t share = LP_MAX(RUNS / 8 * lp_test_factor(), UINT64_C(1));
		uint64_t step = 1 + ios / share;
		assert_true(ios > STEPS / 4);
		for (uint64_t skip = seed % step; skip < ios && done < runs; skip += step, done++)
			fail_at(seed, skip, done % 3 == 2 ? 0 : 1, &outcome);
	}
	assert_true(outcome.struck > done * 3 / 4);
	assert_true(outcome.failed > done / 4);
	lp_test_tell_crash_states(done);
}

/* --- Single cases ----------------------------------------------------------------------------- */

#define FILE_BYTES 262144u /* 64 blocks */

static uint8_t bytes[FILE_BYTES];

static struct lp_ino make_file(struct bench *bench, int tag, enum lp_write_path path)
{
	const struct lpi_hand *hand = &bench->rig.hand;
	const struct lp_attrs attrs = {.type = LP_INODE_TYPE_FILE};
	const struct lp_ino ino = lp_store_new_ino(hand->store);
	const struct lp_change create = {
		.type = LP_CHANGE_CREATE, .ino = ino, .inode = {.attrs = &attrs}};
	memset(bytes, tag, sizeof(bytes));
	lp_store_set_write_path(hand->store, path);
	lp_test_ok(lpi_hand_change(hand, create));
	lp_test_ok(lpi_hand_write(hand, ino, 0, bytes, FILE_BYTES));
	return ino;
}

/* The file is all of that byte; or the error. */
static int64_t read_tag(struct bench *bench, struct lp_ino ino)
{
	static uint8_t got[FILE_BYTES];
	int64_t len = lpi_hand_read(&bench->rig.hand, ino, 0, FILE_BYTES, got);
	if (len < 0)
		return len;
	assert_int_equal(len, FILE_BYTES);
	for (uint32_t i = 1; i < FILE_BYTES; i++)
		assert_int_equal(got[i], got[0]);
	return got[0];
}

static int write_tag(struct bench *bench, struct lp_ino ino, int tag, struct lp_store_op *op)
{
	memset(bytes, tag, sizeof(bytes));
	return lpi_hand_write_op(&bench->rig.hand, ino, 0, bytes, FILE_BYTES, op);
}

static uint32_t add_rule(struct bench *bench, enum lp_sim_fault fault, uint32_t opcode_mask)
{
	const struct lp_sim_rule rule = {.fault = fault, .opcode_mask = opcode_mask};
	return lp_sim_rule_add(sim_of(bench), &rule);
}

static void start_plain(struct bench *bench, uint64_t seed)
{
	const struct lp_sim_profile profile = lpi_bench_plain_profile(4096);
	bench_start(bench, &profile, seed);
}

/* A frame fails: its transaction's outcome is unknown, and says so; the reason names the device,
 * the place and the error; what was durable is served. */
static void test_frame_fails(void **state)
{
	(void)state;
	struct bench bench;
	struct lp_store_op op;
	char where[64];
	start_plain(&bench, 1);
	struct lp_ino ino = make_file(&bench, 'a', LP_PATH_DEFERRED);
	(void)add_rule(&bench, LP_SIM_EIO, LP_SIM_OP(LP_BDEV_WRITE_THROUGH));
	assert_int_equal(write_tag(&bench, ino, 'b', &op), -EIO);
	assert_true(op.txn.is_unknown);
	/* A reader that comes now waits, and is served. */
	assert_int_equal(state_of(&bench), LP_STORE_REOPENING);
	assert_int_equal(read_tag(&bench, ino), 'a');
	assert_int_equal(state_of(&bench), LP_STORE_READ_ONLY);
	check_told(&bench, LP_STORE_READ_ONLY);
	(void)snprintf(where, sizeof(where), "%s: write-through of ", lp_bdev_name(bench.rig.bdev));
	assert_non_null(strstr(bench.told[0].reason, "the log cannot be written: "));
	assert_non_null(strstr(bench.told[0].reason, where));
	assert_non_null(strstr(bench.told[0].reason, " bytes at "));
	assert_non_null(strstr(bench.told[0].reason, lp_strerror(-EIO)));
	check_refuses(&bench);
	assert_int_equal(write_tag(&bench, ino, 'b', &op), -EROFS);
	assert_false(op.txn.is_unknown);
	assert_int_equal(read_tag(&bench, ino), 'a');
	struct lp_store_stats stats;
	lp_store_read_stats(bench.rig.hand.store, &stats);
	assert_true(stats.log_writes > 0 && stats.commits > 0 && stats.used_blocks > 0);
	bench_fini(&bench);
}

/* A frame that failed may be on the device or not. It is not shown, for a crash could take it back
 * (P3); opened for writing again it is there wholly, or not at all. */
static void test_only_what_is_durable_is_seen(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 8; seed++) {
		struct bench bench;
		struct lp_attrs attrs;
		start_plain(&bench, seed);
		struct lp_ino ino = make_file(&bench, 'a', LP_PATH_DEFERRED);
		lp_test_ok(lpi_hand_stat(&bench.rig.hand, ino, &attrs));
		uint32_t nlink = attrs.nlink;
		uint64_t version_nr = attrs.version_nr;
		(void)add_rule(&bench, LP_SIM_EIO, LP_SIM_OP(LP_BDEV_WRITE_THROUGH));
		const struct lp_change link = {
			.type = LP_CHANGE_LINK, .ino = ino, .inode = {.delta = 1}};
		struct lp_store_op op = lpi_txn_op(&link, 1);
		assert_int_equal(lpi_hand_do(&bench.rig.hand, &op), -EIO);
		assert_true(op.txn.is_unknown);
		lp_test_ok(lpi_hand_stat(&bench.rig.hand, ino, &attrs));
		assert_int_equal(attrs.nlink, nlink);
		assert_int_equal(attrs.version_nr, version_nr);
		assert_true(lpi_store_rig_close(&bench.rig, false) < 0);
		lp_sim_rules_clear(sim_of(&bench));
		lp_test_ok(lpi_store_rig_open(&bench.rig));
		lp_test_ok(lpi_hand_stat(&bench.rig.hand, ino, &attrs));
		assert_true(attrs.nlink - nlink <= 1);
		assert_int_equal(attrs.version_nr - version_nr, attrs.nlink - nlink);
		lp_test_ok(lpi_store_rig_close(&bench.rig, false));
		lpi_store_rig_fini(&bench.rig);
	}
}

/* Only flushes fail: what was acknowledged is in the log, and read from there, whatever the device
 * has dropped. */
static void test_flush_fails(void **state)
{
	(void)state;
	struct bench bench;
	struct lp_sim_profile profile = *lp_sim_preset(LP_SIM_CONSUMER);
	profile.drops_on_failed_flush = true;
	bench_start(&bench, &profile, 2);
	uint32_t rule_idx = add_rule(&bench, LP_SIM_EIO, LP_SIM_OP(LP_BDEV_FLUSH));
	struct lp_ino ino = make_file(&bench, 'a', LP_PATH_DEFERRED);
	for (uint32_t i = 0; lp_store_error(bench.rig.hand.store) == 0; i++) {
		assert_true(i < LPI_TURNS_MAX);
		lpi_hand_turn(&bench.rig.hand);
	}
	assert_int_equal(wait_settled(&bench), LP_STORE_READ_ONLY);
	assert_int_equal(lp_sim_rule_fired(sim_of(&bench), rule_idx), 1); /* never tried again */
	check_told(&bench, LP_STORE_READ_ONLY);
	assert_non_null(strstr(bench.told[0].reason, "flush: "));
	assert_int_equal(read_tag(&bench, ino), 'a');
	check_refuses(&bench);
	bench_fini(&bench);
}

/* One write of data fails, or finds no space in the host: that transaction has not happened, and
 * all else goes on (P6). */
static void test_data_write_fails(void **state)
{
	(void)state;
	static const struct {
		enum lp_sim_fault fault;
		int result;
	} cases[] = {{LP_SIM_EIO, -EIO}, {LP_SIM_ENOSPC, -ENOSPC}};
	for (size_t i = 0; i < LP_ARRAY_SIZE(cases); i++) {
		struct bench bench;
		struct lp_store_op op;
		start_plain(&bench, 3);
		struct lp_ino ino = make_file(&bench, 'a', LP_PATH_DIRECT);
		const struct lp_disk_label *label = &bench.rig.devices.label[LP_ROLE_DATA];
		const struct lp_sim_rule rule = {.fault = cases[i].fault,
						 .opcode_mask = LP_SIM_OP(LP_BDEV_WRITE) |
								LP_SIM_OP(LP_BDEV_WRITE_THROUGH),
						 .offset_bytes = label->chunk_base * LP_BLOCK_BYTES,
						 .fire_cnt = 1};
		(void)lp_sim_rule_add(sim_of(&bench), &rule);
		assert_int_equal(write_tag(&bench, ino, 'b', &op), cases[i].result);
		assert_false(op.txn.is_unknown);
		assert_int_equal(state_of(&bench), LP_STORE_OK);
		assert_int_equal(read_tag(&bench, ino), 'a');
		lp_test_ok(write_tag(&bench, ino, 'c', &op));
		assert_int_equal(read_tag(&bench, ino), 'c');
		assert_int_equal(bench.told_cnt, 0);
		lp_test_ok(lpi_store_rig_close(&bench.rig, false));
		lpi_store_rig_check(&bench.rig);
		lpi_store_rig_fini(&bench.rig);
	}
}

/* Nothing more can be deferred, for what is cannot be taken to its place: who would is refused, and
 * does not keep others from the object. */
static void fill_pending(struct bench *bench, struct lp_ino ino)
{
	const struct lpi_hand *hand = &bench->rig.hand;
	struct lp_attrs attrs;
	int err = 0;
	struct lp_ino other = make_file(bench, 'b', LP_PATH_DEFERRED);
	for (uint64_t at = FILE_BYTES; err == 0; at += LP_BLOCK_BYTES) {
		assert_true(at < 1000 * LP_BLOCK_BYTES);
		err = lpi_hand_write(hand, ino, at, bytes, LP_BLOCK_BYTES);
	}
	assert_int_equal(err, -ENOSPC);
	lp_test_ok(lpi_hand_stat(hand, ino, &attrs));
	assert_int_equal(read_tag(bench, ino), 'a');
	lp_test_ok(
		lpi_hand_change(hand, (struct lp_change){.type = LP_CHANGE_REMOVE, .ino = other}));
}

/* The host is still full at the next starts: what waits is read, what was not deferred goes on,
 * and objects can be removed. */
static void check_still_full(struct bench *bench, struct lp_ino ino)
{
	for (int i = 0; i < 3; i++) {
		lp_test_ok(lpi_store_rig_open(&bench->rig));
		assert_int_equal(state_of(bench), LP_STORE_OK);
		assert_int_equal(read_tag(bench, ino), 'a');
		const struct lp_attrs attrs = {.type = LP_INODE_TYPE_FILE};
		const struct lp_ino other = lp_store_new_ino(bench->rig.hand.store);
		const struct lp_change create = {
			.type = LP_CHANGE_CREATE, .ino = other, .inode = {.attrs = &attrs}};
		lp_test_ok(lpi_hand_change(&bench->rig.hand, create));
		lp_test_ok(lpi_hand_change(
			&bench->rig.hand,
			(struct lp_change){.type = LP_CHANGE_REMOVE, .ino = other}));
		assert_int_equal(read_tag(bench, ino), 'a');
		/* Killed, or closed in vain. */
		assert_int_equal(lpi_store_rig_close(&bench->rig, i == 0), i == 0 ? 0 : -ENOSPC);
	}
}

/* The host of an image file is full when deferred data is to be taken to its place: nothing fails,
 * it waits in the log until there is space, also over a close and a start (P6, rule S7). */
static void test_writeback_finds_no_space(void **state)
{
	(void)state;
	struct bench bench;
	start_plain(&bench, 4);
	const struct lp_disk_label *label = &bench.rig.devices.label[LP_ROLE_DATA];
	const struct lp_sim_rule rule = {.fault = LP_SIM_ENOSPC,
					 .opcode_mask = LP_SIM_OP(LP_BDEV_WRITE),
					 .offset_bytes = label->chunk_base * LP_BLOCK_BYTES};
	uint32_t rule_idx = lp_sim_rule_add(sim_of(&bench), &rule);
	struct lp_ino ino = make_file(&bench, 'a', LP_PATH_DEFERRED);
	for (uint32_t i = 0; lp_sim_rule_fired(sim_of(&bench), rule_idx) < 50; i++) {
		assert_true(i < LPI_TURNS_MAX);
		lpi_hand_turn(&bench.rig.hand);
	}
	assert_int_equal(state_of(&bench), LP_STORE_OK);
	assert_int_equal(read_tag(&bench, ino), 'a');
	fill_pending(&bench, ino);
	assert_int_equal(lpi_store_rig_close(&bench.rig, false), -ENOSPC);
	check_still_full(&bench, ino);
	lp_sim_rules_clear(sim_of(&bench));
	lp_test_ok(lpi_store_rig_open(&bench.rig));
	assert_int_equal(read_tag(&bench, ino), 'a');
	assert_int_equal(bench.told_cnt, 0);
	lp_test_ok(lpi_store_rig_close(&bench.rig, false));
	lpi_store_rig_check(&bench.rig);
	lpi_store_rig_fini(&bench.rig);
}

/* All I/O fails: writes say EROFS, reads EIO, and it can be closed. */
static void test_device_vanishes(void **state)
{
	(void)state;
	struct bench bench;
	struct lp_store_op op;
	start_plain(&bench, 5);
	struct lp_ino ino = make_file(&bench, 'a', LP_PATH_DIRECT);
	(void)add_rule(&bench, LP_SIM_VANISH, 0);
	/* The data could not be written, which need not be more; then the frame. */
	assert_int_equal(write_tag(&bench, ino, 'b', &op), -EIO);
	assert_false(op.txn.is_unknown);
	assert_int_equal(state_of(&bench), LP_STORE_OK);
	assert_int_equal(read_tag(&bench, ino), -EIO);
	const struct lp_change link = {.type = LP_CHANGE_LINK, .ino = ino, .inode = {.delta = 1}};
	op = lpi_txn_op(&link, 1);
	assert_int_equal(lpi_hand_do(&bench.rig.hand, &op), -EIO);
	assert_true(op.txn.is_unknown);
	assert_int_equal(read_tag(&bench, ino), -EIO);
	assert_int_equal(state_of(&bench), LP_STORE_DEAD);
	check_told(&bench, LP_STORE_DEAD);
	assert_non_null(strstr(bench.told[1].reason, "; and it cannot be read: "));
	struct lp_attrs attrs;
	assert_int_equal(lpi_hand_stat(&bench.rig.hand, ino, &attrs), -EIO);
	check_refuses(&bench);
	struct lp_store_stats stats;
	struct lp_store_usage usage;
	lp_store_read_stats(bench.rig.hand.store, &stats);
	lp_store_read_usage(bench.rig.hand.store, &usage);
	assert_int_equal(usage.used_blocks, 0);
	(void)lp_store_alloc_score(bench.rig.hand.store);
	bench_fini(&bench);
}

/* It enters the index with its group, which has something to flush before the log is full. */
static void put_key(struct bench *bench, struct lp_ino ino, uint32_t number)
{
	static const uint8_t value[400];
	const struct lp_change change = {
		.type = LP_CHANGE_OMAP_SET,
		.ino = ino,
		.named = {.name = {(const uint8_t *)&number, sizeof(number)},
			  .value = {value, sizeof(value)}}};
	struct lp_store_op op = lpi_txn_op(&change, 1);
	int result = lpi_hand_do(&bench->rig.hand, &op);
	assert_true(result == 0 || result == -EIO || result == -EROFS);
}

/* The index cannot be written, goes on failing, and is given up: it is served from the log. */
static void test_index_fails(void **state)
{
	(void)state;
	struct bench bench;
	struct lp_store_op op;
	bool was_degraded = false;
	uint32_t rounds = 0;
	start_plain(&bench, 6);
	struct lp_ino ino = make_file(&bench, 'a', LP_PATH_DIRECT);
	const struct lp_disk_label *label = &bench.rig.devices.label[LP_ROLE_DATA];
	struct lp_chunks *chunks = bench.rig.devices.chunks[LP_ROLE_DATA];
	for (uint32_t i = 0; i < label->chunk_cnt; i++) {
		if (lp_chunks_find(chunks, 0, LP_CHUNK_USE_FILES, i) != i)
			continue;
		uint64_t chunk_bytes = (uint64_t)label->chunk_blocks * LP_BLOCK_BYTES;
		const struct lp_sim_rule rule = {
			.fault = LP_SIM_EIO,
			.opcode_mask = WRITES & ~LP_SIM_OP(LP_BDEV_FLUSH),
			.offset_bytes = label->chunk_base * LP_BLOCK_BYTES + i * chunk_bytes,
			.length_bytes = chunk_bytes};
		(void)lp_sim_rule_add(sim_of(&bench), &rule);
	}
	int tag = 'a';
	while (write_tag(&bench, ino, tag == 'z' ? 'a' : tag + 1, &op) == 0) {
		tag = tag == 'z' ? 'a' : tag + 1;
		was_degraded |= state_of(&bench) == LP_STORE_DEGRADED;
		assert_true(++rounds < 100000);
		put_key(&bench, ino, rounds);
	}
	assert_int_equal(wait_settled(&bench), LP_STORE_READ_ONLY);
	assert_true(was_degraded);
	check_told(&bench, LP_STORE_READ_ONLY);
	assert_non_null(strstr(bench.told[0].reason, "the index cannot be written"));
	assert_int_equal(read_tag(&bench, ino), tag);
	check_refuses(&bench);
	bench_fini(&bench);
}

/* Opened so by its owner. */
static void test_opened_read_only(void **state)
{
	(void)state;
	struct bench bench;
	struct lp_store_op op;
	start_plain(&bench, 7);
	struct lp_ino ino = make_file(&bench, 'a', LP_PATH_DEFERRED);
	lp_test_ok(lpi_store_rig_close(&bench.rig, true));
	uint64_t before = lpi_store_rig_events(&bench.rig);
	bench.rig.read_only = true;
	lp_test_ok(lpi_store_rig_open(&bench.rig));
	assert_int_equal(state_of(&bench), LP_STORE_READ_ONLY);
	assert_int_equal(read_tag(&bench, ino), 'a');
	assert_int_equal(write_tag(&bench, ino, 'b', &op), -EROFS);
	assert_int_equal(lp_store_error(bench.rig.hand.store), 0);
	lp_test_ok(lpi_store_rig_close(&bench.rig, false));
	for (uint64_t i = before; i < lpi_store_rig_events(&bench.rig); i++) {
		struct lp_sim_event event;
		lp_sim_event_get(sim_of(&bench), i, &event);
		assert_int_equal(event.opcode, LP_BDEV_READ);
	}
	lpi_store_rig_fini(&bench.rig);
}

/* Closed while it is being taken apart, or opened again. */
static void test_closed_at_any_moment(void **state)
{
	(void)state;
	uint32_t closed_while[LPI_REOPEN_OPENING + 1] = {0};
	for (uint32_t turns = 0; turns < 12; turns++) {
		struct bench bench;
		struct lp_store_op op;
		start_plain(&bench, 8);
		struct lp_ino ino = make_file(&bench, 'a', LP_PATH_DEFERRED);
		(void)add_rule(&bench, LP_SIM_EIO, LP_SIM_OP(LP_BDEV_WRITE_THROUGH));
		assert_int_equal(write_tag(&bench, ino, 'b', &op), -EIO);
		for (uint32_t i = 0; i < turns; i++)
			(void)lp_reactor_turn(bench.rig.hand.reactor, true);
		closed_while[lpi_block_of(bench.rig.hand.store)->reopen.phase]++;
		assert_int_equal(lpi_store_rig_close(&bench.rig, turns % 2 == 0) < 0,
				 turns % 2 != 0);
		lp_sim_rules_clear(sim_of(&bench));
		lp_test_ok(lpi_store_rig_open(&bench.rig));
		int64_t tag = read_tag(&bench, ino);
		assert_true(tag == 'a' || tag == 'b');
		lp_test_ok(lpi_store_rig_close(&bench.rig, false));
		lpi_store_rig_check(&bench.rig);
		lpi_store_rig_fini(&bench.rig);
	}
	for (uint32_t i = 0; i < LP_ARRAY_SIZE(closed_while); i++)
		assert_true(closed_while[i] > 0);
}

/* --- Two shards ------------------------------------------------------------------------------- */

static void start_two(struct bench *bench, struct lp_store *ret_stores[2])
{
	struct lp_sim_profile profile = lpi_bench_plain_profile(4096);
	const struct lp_sim_options sim = {
		.profile = &profile, .size_bytes = 2 * LPI_STORE_RIG_BYTES, .seed = 9};
	struct lp_mkfs_options mkfs = {.shard_cnt = 2, .log_bytes = UINT64_C(4) << 20};
	struct lp_disk_label label;
	struct lp_label_why why;
	struct lp_bdev *bdev = NULL;
	*bench = (struct bench){.events = {.health = on_health}};
	lp_test_ok(lp_bdev_open_sim(&sim, &bdev));
	mkfs.bdev[0] = bdev;
	mkfs.seed[0] = 1;
	lp_test_ok(lp_store_mkfs(&mkfs, &label, &why));
	lpi_store_rig_init(&bench->rig, bdev, 9);
	bench->rig.events = &bench->events;
	const struct lp_devices_options devices = {.bdev = {bdev}};
	lp_test_ok(lp_devices_open(&devices, &bench->rig.devices, &why));
	for (uint32_t i = 0; i < 2; i++) {
		struct lp_store_options options;
		lpi_store_rig_options(&bench->rig, &options);
		options.shard_idx = i;
		lp_test_ok(lp_store_open(&options, &ret_stores[i]));
	}
}

/* Shards share a device, but not their fate: the log of one cannot be written, the other goes on.
 * What both use, such as the table of chunks, is sound afterwards. */
static void test_one_of_two_shards(void **state)
{
	(void)state;
	struct bench bench;
	struct lp_store_op op;
	struct lp_store *stores[2];
	struct lp_ino inos[2];
	start_two(&bench, stores);
	struct lpi_store_rig *rig = &bench.rig;
	for (int i = 0; i < 2; i++) {
		rig->hand.store = stores[i];
		inos[i] = make_file(&bench, 'a', LP_PATH_DEFERRED);
	}
	struct lp_extent area = lp_label_log_area(&rig->devices.label[LP_ROLE_DATA], 0);
	const struct lp_sim_rule rule = {.fault = LP_SIM_EIO,
					 .opcode_mask = LP_SIM_OP(LP_BDEV_WRITE_THROUGH),
					 .offset_bytes = area.block * LP_BLOCK_BYTES,
					 .length_bytes = area.cnt * LP_BLOCK_BYTES};
	(void)lp_sim_rule_add(sim_of(&bench), &rule);
	rig->hand.store = stores[0];
	assert_int_equal(write_tag(&bench, inos[0], 'b', &op), -EIO);
	for (int round = 0; round < 20; round++) {
		rig->hand.store = stores[1];
		lp_test_ok(write_tag(&bench, inos[1], 'b' + round, &op));
		assert_int_equal(read_tag(&bench, inos[1]), 'b' + round);
		rig->hand.store = stores[0];
		assert_int_equal(read_tag(&bench, inos[0]), 'a');
	}
	check_told(&bench, LP_STORE_READ_ONLY);
	assert_int_equal(lp_store_error(stores[1]), 0);
	assert_true(lp_store_close(stores[0], false) < 0);
	lp_test_ok(lp_store_close(stores[1], false));
	lp_devices_close(&rig->devices);
	lp_sim_rules_clear(sim_of(&bench));
	lpi_store_rig_check(rig);
	lpi_store_rig_fini(rig);
}

/* --- With threads ----------------------------------------------------------------------------- */

static void threads_turn(const struct lpi_hand *hand)
{
	(void)lp_reactor_turn(hand->reactor, true);
}

/* False: there is no io_uring or O_DIRECT here. */
static bool open_file(struct lpi_store_rig *rig)
{
	static const struct lp_bdev_open_options options = {.exclusive = true};
	char path[] = "reopen-test-XXXXXX";
	/* The runner gives each test a directory of its own. */
	int fd = mkstemp(path);
	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, (off_t)LPI_STORE_RIG_BYTES), 0);
	(void)close(fd);
	int err = lp_bdev_open_uring(path, &options, &rig->bdev);
	(void)unlink(path); /* the device stays as long as it is open */
	if (err < 0)
		print_message("skip: %s\n", lp_strerror(err));
	return err == 0;
}

static bool start_threads(struct bench *bench, bool has_ring)
{
	struct lpi_store_rig *rig = &bench->rig;
	const struct lp_reactor_options reactor = {.name = "threads", .ring = has_ring};
	*bench = (struct bench){.events = {.health = on_health}};
	if (lp_reactor_new(&reactor, &rig->hand.reactor) < 0) {
		assert_true(has_ring);
		print_message("skip: no io_uring here\n");
		return false;
	}
	lp_test_ok(lp_reactor_start(rig->hand.reactor));
	if (has_ring && !open_file(rig)) {
		lp_reactor_free(rig->hand.reactor);
		return false;
	}
	if (!has_ring)
		lp_test_ok(lp_bdev_open_mem(LPI_STORE_RIG_BYTES, 4096, &rig->bdev));
	lpi_store_rig_mkfs(rig->bdev);
	lp_test_ok(lp_workers_new(2, &rig->workers));
	lp_test_ok(lp_bufs_new(LPI_STORE_RIG_BUFS, &rig->hand.bufs));
	rig->events = &bench->events;
	rig->has_threads = true;
	rig->hand.turn = threads_turn;
	return true;
}

static void reopen_with_threads(struct bench *bench, int round)
{
	struct lpi_store_rig *rig = &bench->rig;
	struct lp_store_op op;
	bench->told_cnt = 0;
	lp_test_ok(lpi_store_rig_open(rig));
	struct lp_ino ino = make_file(bench, 'a', LP_PATH_DEFERRED);
	/* As if a frame had failed; there is no rule for such a device. */
	lp_commit_abort(lpi_block_of(rig->hand.store)->commit);
	assert_int_equal(write_tag(bench, ino, 'b', &op), -EROFS);
	if (round % 3 != 2) {
		assert_int_equal(read_tag(bench, ino), 'a');
		check_told(bench, LP_STORE_READ_ONLY);
		check_refuses(bench);
	}
	assert_int_equal(lpi_store_rig_close(rig, false), -ECANCELED);
}

/* The helper reads with a reactor of its own, and threads, while this thread goes on. */
static void test_with_threads(void **state)
{
	(void)state;
	/* What its reference counts order looks like a race there. */
	if (LP_SAN_THREAD) {
		print_message("skip: RocksDB with threads, which is not instrumented\n");
		skip();
	}
	for (int kind = 0; kind < 2; kind++) {
		struct bench bench;
		if (!start_threads(&bench, kind == 1))
			continue;
		for (int round = 0; round < 6; round++)
			reopen_with_threads(&bench, round);
		lpi_store_rig_fini(&bench.rig);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_each_io_fails),
		cmocka_unit_test(test_frame_fails),
		cmocka_unit_test(test_only_what_is_durable_is_seen),
		cmocka_unit_test(test_flush_fails),
		cmocka_unit_test(test_data_write_fails),
		cmocka_unit_test(test_writeback_finds_no_space),
		cmocka_unit_test(test_device_vanishes),
		cmocka_unit_test(test_index_fails),
		cmocka_unit_test(test_opened_read_only),
		cmocka_unit_test(test_closed_at_any_moment),
		cmocka_unit_test(test_one_of_two_shards),
		cmocka_unit_test(test_with_threads),
	};
	return lp_test_main(tests, "store/block/reopen");
}
