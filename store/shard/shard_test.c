/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: the foundation of a shard as a whole, on one simulated device that holds label, chunks,
 * log, the index's files and the blocks: what was acknowledged is there after a power cut at any
 * event, transactions are whole and in order, no space is leaked or given twice (P1, P2, P4, rules
 * L3, L4, S1 to S4), and a clean stop leaves nothing to be replayed.
 * Method: one random run with simulated time, jobs and helpers; then the power is cut at every
 * n-th event of its log, the store is opened from what is left, and compared with a model. Before
 * that it is opened read-only, must then be the same, and nothing but reads come to the device. */
#include "store/shard/shard_rig_test.h"

#include "base/error.h"
#include "base/testing/test_long.h"
#include "store/blockfs/blockfs.h"

#define CHUNKS_CHANGED 80u
#define KEYS           10u
#define BLOCKS         20u
#define TXNS_MAX       600u
/* Per run; fewer where each costs ten times as much. */
#define CUTS     (LP_ASSERT_SLOW_ON ? 20u : 150u)
#define KEY_LAST KEYS

struct txn {
	struct lp_commit_waiter waiter;
	uint64_t acked_event; /* the device's events when it was acknowledged; 0: never */
	uint64_t keys[KEYS];
	int blocks[BLOCKS]; /* tag; 0: not touched; -1: freed */
};

static struct lpi_shard_rig *live;
static struct lp_prng prng;
static struct txn txns[TXNS_MAX]; /* from 1 */
static uint32_t txn_cnt;
static uint64_t mapped[BLOCKS]; /* device blocks; 0: none */
static int tags[BLOCKS];
static uint64_t payload_cnt;
static uint64_t freed_cnt;

/* --- Transactions ----------------------------------------------------------------------------- */

static void told(struct lp_commit_waiter *waiter, int result)
{
	struct txn *txn = LP_CONTAINER_OF(waiter, struct txn, waiter);
	if (result < 0)
		return; /* abandoned: nobody knows */
	txn->acked_event = lp_sim_event_count(lp_sim_of(live->bdev));
}

static void put(char space, uint64_t number, uint64_t value)
{
	lpi_shard_put(live->shard, space, number, value);
}

static bool take_block(uint64_t *ret_block)
{
	const struct lp_alloc_options options = {.hint = LP_ALLOC_NO_HINT, .extents_max = 1};
	struct lp_extent extent;
	uint64_t got;
	if (lp_space_take(lp_shard_space(live->shard), 1, &options, &extent, &got) < 0)
		return false;
	lp_shard_taken(live->shard, extent);
	*ret_block = extent.block;
	return true;
}

static void free_block(uint32_t idx)
{
	uint8_t key[9];
	lp_shard_freed(live->shard, (struct lp_extent){mapped[idx], 1});
	lp_commit_delete(lp_shard_commit(live->shard), lpi_shard_key('M', idx, key));
	mapped[idx] = 0;
	tags[idx] = 0;
	freed_cnt++;
}

static void defer_block(uint32_t idx, int tag)
{
	lpi_shard_defer(live, mapped[idx], tag);
	payload_cnt++;
	tags[idx] = tag;
}

/* The direct path: data is stable before the frame is submitted (rule L3, store I1). */
static void write_direct(uint32_t idx, int tag)
{
	_Alignas(4096) static uint8_t block[4096];
	memset(block, tag, sizeof(block));
	lp_test_ok(lp_bdev_write_sync(live->bdev, block, sizeof(block), mapped[idx] * 4096, true));
	tags[idx] = tag;
}

static void change_block(struct txn *txn)
{
	uint32_t idx = (uint32_t)lp_prng_below(&prng, BLOCKS);
	uint64_t dice = lp_prng_below(&prng, 10);
	if (txn->blocks[idx] != 0)
		return;
	if (mapped[idx] != 0 && dice < 3) {
		free_block(idx);
		txn->blocks[idx] = -1;
		if (dice == 0)
			return;
	}
	bool fresh = mapped[idx] == 0;
	if (fresh) {
		if (!take_block(&mapped[idx]))
			return;
		put('M', idx, mapped[idx]);
	}
	txn->blocks[idx] = (int)lp_prng_between(&prng, 1, 250);
	if (fresh && dice < 8)
		write_direct(idx, txn->blocks[idx]);
	else
		defer_block(idx, txn->blocks[idx]);
}

static void begin_txn(void)
{
	const struct lp_commit_need need = {.batch_bytes = 12 * 80, .change_cnt = 6, .data_cnt = 3};
	if (txn_cnt + 1 == TXNS_MAX || lp_shard_defer_room(live->shard) < 3 ||
	    !lp_commit_reserve(lp_shard_commit(live->shard), &need))
		return;
	struct txn *txn = &txns[++txn_cnt];
	memset(txn, 0, sizeof(*txn));
	put('K', KEY_LAST, txn_cnt);
	for (uint64_t n = lp_prng_below(&prng, 3); n > 0; n--) {
		uint64_t key = lp_prng_below(&prng, KEYS);
		txn->keys[key] = lp_prng_u64(&prng) | 1;
		put('K', key, txn->keys[key]);
	}
	for (uint64_t n = lp_prng_below(&prng, 4); n > 0; n--)
		change_block(txn);
	txn->waiter.told = told;
	lp_commit_wait(lp_shard_commit(live->shard), &txn->waiter);
}

/* --- Judging ---------------------------------------------------------------------------------- */

/* The state is that after transaction `last`, which is not before the last acknowledged one. */
static void judge(struct lpi_shard_rig *rig, uint64_t events)
{
	uint64_t keys[KEYS] = {0};
	int blocks[BLOCKS] = {0};
	uint64_t last = lpi_shard_get(rig->shard, 'K', KEY_LAST);
	assert_true(last <= txn_cnt);
	for (uint32_t t = 1; t <= txn_cnt; t++) {
		const struct txn *txn = &txns[t];
		assert_true(t <= last || txn->acked_event == 0 || txn->acked_event > events);
		for (uint32_t i = 0; t <= last && i < KEYS; i++)
			keys[i] = txn->keys[i] != 0 ? txn->keys[i] : keys[i];
		for (uint32_t i = 0; t <= last && i < BLOCKS; i++)
			blocks[i] = txn->blocks[i] != 0 ? txn->blocks[i] : blocks[i];
	}
	uint64_t used = 0;
	for (uint32_t i = 0; i < KEYS; i++)
		assert_true(lpi_shard_get(rig->shard, 'K', i) == keys[i]);
	for (uint32_t i = 0; i < BLOCKS; i++) {
		uint64_t block = lpi_shard_get(rig->shard, 'M', i);
		assert_true((block != 0) == (blocks[i] > 0));
		if (block == 0)
			continue;
		used++;
		assert_true(
			lp_space_is_used(lp_shard_space(rig->shard), (struct lp_extent){block, 1}));
		assert_int_equal(lpi_shard_rig_tag(rig, block), blocks[i]);
	}
	/* Nothing else is in use: no leak. */
	assert_int_equal(lp_space_used_blocks(lp_shard_space(rig->shard)), used);
}

static void told_again(struct lp_commit_waiter *waiter, int result)
{
	lp_test_ok(result);
	waiter->told = NULL;
}

/* It takes more, and stops in order: what recovery put back does not stand in the way of the log's
 * next trim. */
static void serve_again(struct lpi_shard_rig *rig)
{
	struct lp_commit_waiter waiter = {.told = told_again};
	struct lpi_shard_rig *before = live;
	live = rig;
	put('K', 0, 1);
	lp_commit_wait(lp_shard_commit(rig->shard), &waiter);
	for (int i = 0; i < 100000 && waiter.told != NULL; i++)
		lpi_shard_rig_turn(rig);
	assert_null(waiter.told);
	live = before;
}

/* Nothing but reads came to the device. */
static void expect_only_reads(struct lp_bdev *bdev)
{
	const struct lp_sim *sim = lp_sim_of(bdev);
	for (uint64_t i = lp_sim_event_first(sim); i < lp_sim_event_count(sim); i++) {
		struct lp_sim_event event;
		lp_sim_event_get(sim, i, &event);
		assert_int_equal(event.opcode, LP_BDEV_READ);
	}
}

/* Without changing anything the same is found as by those who may recover. */
static void judge_read_only(struct lpi_shard_rig *rig, uint64_t events)
{
	rig->read_only = true;
	lp_test_ok(lpi_shard_rig_open(rig));
	judge(rig, events);
	lp_test_ok(lpi_shard_rig_close(rig, false));
	expect_only_reads(rig->bdev);
	rig->read_only = false;
}

static void judge_cut(struct lp_bdev *left, uint64_t events, bool thoroughly)
{
	struct lpi_shard_rig rig;
	lpi_shard_rig_init(&rig, left);
	rig.deferred_max = live->deferred_max;
	if (!LP_ASSERT_SLOW_ON || thoroughly)
		judge_read_only(&rig, events);
	lp_test_ok(lpi_shard_rig_open(&rig));
	judge(&rig, events);
	if (thoroughly)
		serve_again(&rig);
	lp_test_ok(lpi_shard_rig_close(&rig, !thoroughly));
	lpi_shard_rig_fini(&rig);
}

/* --- Tests ------------------------------------------------------------------------------------ */

static void reset_model(struct lpi_shard_rig *rig)
{
	live = rig;
	txn_cnt = 0;
	memset(mapped, 0, sizeof(mapped));
	memset(tags, 0, sizeof(tags));
}

/* What had not been acknowledged when the shard was stopped may be there or not: what is there
 * becomes the model. */
static void forget_unacknowledged(struct lpi_shard_rig *rig)
{
	rig->read_only = true;
	lp_test_ok(lpi_shard_rig_open(rig));
	txn_cnt = (uint32_t)lpi_shard_get(rig->shard, 'K', KEY_LAST);
	for (uint32_t t = 1; t <= txn_cnt; t++)
		txns[t].acked_event = 1;
	for (uint32_t i = 0; i < BLOCKS; i++) {
		mapped[i] = lpi_shard_get(rig->shard, 'M', i);
		tags[i] = mapped[i] != 0 ? lpi_shard_rig_tag(rig, mapped[i]) : 0;
	}
	lp_test_ok(lpi_shard_rig_close(rig, false));
	rig->read_only = false;
}

static void start(struct lpi_shard_rig *rig, uint64_t seed, uint64_t deferred_max)
{
	lp_prng_init(&prng, seed);
	lpi_shard_rig_init(rig, lpi_shard_rig_store(seed));
	rig->deferred_max = deferred_max;
	lp_test_ok(lpi_shard_rig_open(rig));
	reset_model(rig);
}

static void run(struct lpi_shard_rig *rig, uint32_t txns_more)
{
	uint32_t until = LP_MIN(txn_cnt + txns_more, TXNS_MAX - 1);
	while (txn_cnt < until) {
		if (lp_prng_chance(&prng, 1, 3))
			begin_txn();
		if (lp_prng_chance(&prng, 1, 60)) {
			int err = lp_kv_flush(lp_shard_kv(rig->shard));
			assert_true(err == 0 || err == -EAGAIN);
		}
		if (lp_prng_chance(&prng, 1, 3))
			(void)lp_reactor_turn(rig->reactor, false);
		else
			lpi_shard_rig_turn(rig);
		assert_int_equal(lp_shard_error(rig->shard), 0);
	}
}

static void test_clean_stop(void **state)
{
	(void)state;
	struct lpi_shard_rig rig;
	start(&rig, 1, 64);
	for (int round = 0; round < 3; round++) {
		run(&rig, 60);
		lp_test_ok(lpi_shard_rig_close(&rig, false));
		assert_int_equal(txns[txn_cnt].acked_event != 0, 1);
		lp_test_ok(lpi_shard_rig_open(&rig));
		judge(&rig, lp_sim_event_count(lp_sim_of(rig.bdev)));
		/* Everything is in its place: nothing of the log is needed. */
		assert_true(lp_shard_recovery(rig.shard)->was_clean);
		assert_int_equal(lp_shard_recovery(rig.shard)->payloads, 0);
	}
	lp_test_ok(lpi_shard_rig_close(&rig, false));
	lpi_shard_rig_fini(&rig);
}

static void test_power_cut_at_many_events(void **state)
{
	(void)state;
	uint64_t first = 1 + lp_test_seed_shift();
	uint64_t judged = 0;
	for (uint64_t seed = first; seed < first + 5 * lp_test_factor(); seed++) {
		struct lpi_shard_rig rig;
		struct lp_sim_cutter *cutter = NULL;
		uint64_t cuts = 0;
		start(&rig, seed, seed % 2 == 0 ? 64 : 800);
		run(&rig, 500);
		lp_test_ok(lp_sim_cutter_new(lp_sim_of(rig.bdev), NULL, &cutter));
		uint64_t step = 1 + lp_sim_event_count(lp_sim_of(rig.bdev)) / CUTS;
		for (uint64_t n = 0; lp_sim_cutter_next(cutter); n++) {
			if (n % step != 0)
				continue;
			judge_cut(lp_sim_cutter_cut(cutter, seed + n), lp_sim_cutter_event(cutter),
				  cuts % 4 == 0);
			cuts++;
		}
		assert_true(cuts > CUTS / 2);
		judged += cuts;
		assert_true(payload_cnt > 100 && freed_cnt > 20);
		lp_sim_cutter_free(cutter);
		lp_test_ok(lpi_shard_rig_close(&rig, true));
		lpi_shard_rig_fini(&rig);
	}
	lp_test_tell_crash_states(judged);
}

static uint32_t crc_of_all(struct lp_bdev *bdev)
{
	_Alignas(4096) static uint8_t bytes[1 << 20];
	uint32_t crc = 0;
	for (uint64_t at = 0; at < LP_RIG_SIZE_BYTES; at += sizeof(bytes)) {
		lp_test_ok(lp_bdev_read_sync(bdev, bytes, sizeof(bytes), at));
		crc = lp_crc32c(crc, bytes, sizeof(bytes));
	}
	return crc;
}

static void expect_read_only(struct lpi_shard_rig *rig)
{
	assert_true(lp_shard_is_read_only(rig->shard));
	assert_null(lp_shard_commit(rig->shard));
	assert_non_null(lp_shard_overlay(rig->shard));
	assert_int_equal(lp_shard_defer_room(rig->shard), 0);
	assert_int_equal(lp_shard_error(rig->shard), 0);
}

/* A change that is not deferred itself defers its edges: whatever the limit, they can come. */
static void test_deferred_at_least(void **state)
{
	(void)state;
	struct lpi_shard_rig rig;
	lpi_shard_rig_init(&rig, lpi_shard_rig_store(5));
	rig.deferred_max = 1;
	lp_test_ok(lpi_shard_rig_open(&rig));
	assert_int_equal(lp_shard_defer_max(rig.shard), LP_SHARD_DEFERRED_MIN);
	assert_int_equal(lp_shard_defer_room(rig.shard), LP_SHARD_DEFERRED_MIN);
	lp_test_ok(lpi_shard_rig_close(&rig, false));
	lpi_shard_rig_fini(&rig);
}

/* Never opened, stopped in the middle, stopped in order: read-only the device stays as it was, to
 * the byte, and everything can be read. */
static void test_read_only_changes_nothing(void **state)
{
	(void)state;
	struct lpi_shard_rig rig;
	lpi_shard_rig_init(&rig, lpi_shard_rig_store(7));
	rig.deferred_max = 800;
	lp_prng_init(&prng, 7);
	reset_model(&rig);
	for (int round = 0; round < 3; round++) {
		uint32_t crc = crc_of_all(rig.bdev);
		rig.read_only = true;
		lp_sim_trim_log(lp_sim_of(rig.bdev));
		for (int again = 0; again < 2; again++) {
			lp_test_ok(lpi_shard_rig_open(&rig));
			expect_read_only(&rig);
			judge(&rig, UINT64_MAX);
			assert_true((lp_shard_recovery(rig.shard)->payloads > 0) == (round == 1));
			lp_test_ok(lpi_shard_rig_close(&rig, false));
		}
		expect_only_reads(rig.bdev);
		assert_int_equal(crc_of_all(rig.bdev), crc);
		rig.read_only = false;
		lp_test_ok(lpi_shard_rig_open(&rig));
		judge(&rig, UINT64_MAX);
		run(&rig, 150);
		lp_test_ok(lpi_shard_rig_close(&rig, round == 0));
		forget_unacknowledged(&rig);
	}
	lpi_shard_rig_fini(&rig);
}

/* Rule L7: the device fails every write; the shard ends, and goes on read-only. */
static void test_read_only_after_the_device_failed(void **state)
{
	(void)state;
	const struct lp_sim_rule rule = {
		.fault = LP_SIM_EIO,
		.opcode_mask = LP_SIM_OP(LP_BDEV_WRITE) | LP_SIM_OP(LP_BDEV_WRITE_THROUGH) |
			       LP_SIM_OP(LP_BDEV_FLUSH) | LP_SIM_OP(LP_BDEV_DISCARD)};
	for (uint64_t seed = 1; seed <= 10; seed++) {
		struct lpi_shard_rig rig;
		start(&rig, seed, 800);
		run(&rig, 200);
		(void)lp_sim_rule_add(lp_sim_of(rig.bdev), &rule);
		put('X', 1, 1); /* not in the model */
		while (lp_shard_error(rig.shard) == 0)
			lpi_shard_rig_turn(&rig);
		uint64_t events = lp_sim_event_count(lp_sim_of(rig.bdev));
		(void)lpi_shard_rig_close(&rig, true);
		lp_sim_trim_log(lp_sim_of(rig.bdev));
		lp_test_err(-EIO, lpi_shard_rig_open(&rig));
		lp_sim_trim_log(lp_sim_of(rig.bdev));
		rig.read_only = true;
		lp_test_ok(lpi_shard_rig_open(&rig));
		expect_read_only(&rig);
		judge(&rig, events);
		lp_test_ok(lpi_shard_rig_close(&rig, false));
		expect_only_reads(rig.bdev);
		lpi_shard_rig_fini(&rig);
	}
}

/* As if the journal of the index's files had been lost. */
static void lose_index(struct lpi_shard_rig *rig)
{
	struct lp_disk_label label;
	struct lp_label_why why;
	lp_test_ok(lp_label_read(rig->bdev, false, &label, &why));
	struct lp_blockfs_options options = {.journal_bdev = rig->bdev,
					     .area = lp_label_files_area(&label, 0)};
	memcpy(options.store_uuid, label.store_uuid, sizeof(options.store_uuid));
	lp_test_ok(lp_blockfs_format(&options));
}

/* Files that blockfs had are gone: this is refused also while the log still begins at frame 1, so
 * that a replay into a new index would seem to do. */
static void test_lost_index_is_refused(void **state)
{
	(void)state;
	for (int frames = 0; frames < 2; frames++) {
		struct lpi_shard_rig rig;
		lpi_shard_rig_init(&rig, lpi_shard_rig_store(3));
		lp_test_ok(lpi_shard_rig_open(&rig));
		if (frames > 0) {
			lpi_shard_rig_put(&rig, 1, 1, 8);
			lpi_shard_rig_sync(&rig);
		}
		(void)lpi_shard_rig_close(&rig, true);
		lose_index(&rig);
		/* Again: the first refusal has not made one. */
		for (int i = 0; i < 2; i++)
			lp_test_err(-EUCLEAN, lpi_shard_rig_open(&rig));
		rig.read_only = true;
		lp_test_err(-EUCLEAN, lpi_shard_rig_open(&rig));
		lpi_shard_rig_fini(&rig);
	}
}

/* The first opening makes the index; wherever it is cut off, the next one finishes that. */
static void test_first_opening_is_cut(void **state)
{
	(void)state;
	struct lpi_shard_rig rig;
	struct lp_sim_cutter *cutter = NULL;
	uint64_t cuts = 0;
	start(&rig, 5, 64);
	uint64_t opened = lp_sim_event_count(lp_sim_of(rig.bdev));
	lp_test_ok(lp_sim_cutter_new(lp_sim_of(rig.bdev), NULL, &cutter));
	while (lp_sim_cutter_next(cutter) && lp_sim_cutter_event(cutter) <= opened) {
		if (!LP_ASSERT_SLOW_ON || cuts % 4 == 0)
			judge_cut(lp_sim_cutter_cut(cutter, cuts), 0, cuts % 8 == 0);
		cuts++;
	}
	assert_true(cuts > 20);
	lp_sim_cutter_free(cutter);
	lp_test_ok(lpi_shard_rig_close(&rig, true));
	lpi_shard_rig_fini(&rig);
}

static void test_read_only_devices_want_it(void **state)
{
	(void)state;
	struct lpi_shard_rig rig;
	struct lp_label_why why;
	lpi_shard_rig_init(&rig, lpi_shard_rig_store(1));
	const struct lp_devices_options devices = {.bdev = {rig.bdev}, .read_only = true};
	const struct lp_shard_options options = {.reactor = rig.reactor,
						 .workers = rig.workers,
						 .devices = &rig.devices,
						 .bufs = rig.bufs,
						 .sim_clock = &rig.clock.clock};
	lp_test_ok(lp_devices_open(&devices, &rig.devices, &why));
	lp_test_err(-EROFS, lp_shard_open(&options, &rig.shard));
	lp_devices_close(&rig.devices);
	lpi_shard_rig_fini(&rig);
}

/* Many chunks changed since the log's start: their records are put within a few frames and go out
 * with one flush, not with one for each handful of them. */
static void test_records_share_a_flush(void **state)
{
	(void)state;
	struct lpi_shard_rig rig;
	struct lp_kv_stats before;
	struct lp_kv_stats after;
	lpi_shard_rig_init(&rig, lpi_shard_rig_device(11, UINT64_C(256) << 20));
	lpi_shard_rig_mkfs(rig.bdev, UINT64_C(8) << 20);
	rig.index_buffer_bytes = UINT64_C(64) << 20; /* only the log asks for flushes */
	lp_test_ok(lpi_shard_rig_open(&rig));
	lp_kv_read_stats(lp_shard_kv(rig.shard), &before);
	for (uint32_t i = 0; i < CHUNKS_CHANGED; i++) {
		uint64_t block = lpi_shard_rig_take_run(&rig, 256); /* a whole chunk */
		assert_int_equal(block % 256, 0);
		lpi_shard_rig_sync(&rig);
	}
	uint64_t start = lp_space_log_start(lp_shard_space(rig.shard));
	/* Three quarters of the log: pressure, but the door stays open. */
	for (uint32_t i = 0; i < 96; i++) {
		lpi_shard_rig_put(&rig, i % 8, i + 1, LP_RIG_BATCH_BYTES);
		lpi_shard_rig_sync(&rig);
	}
	lp_kv_read_stats(lp_shard_kv(rig.shard), &after);
	assert_true(lp_space_log_start(lp_shard_space(rig.shard)) > start + CHUNKS_CHANGED);
	assert_in_range(after.flush_cnt - before.flush_cnt, 1, 3);
	lp_test_ok(lpi_shard_rig_close(&rig, false));
	lpi_shard_rig_fini(&rig);
}

/* A label may give a log no room for a frame, or more than what is in it can be kept account of. */
static void test_log_of_no_use(void **state)
{
	static const uint32_t cnts[] = {
		0, 1, LP_LOG_SLOT_CNT, 17, (UINT32_C(1) << 24) + 1, UINT32_C(5) << 24};
	(void)state;
	struct lp_bdev *bdev = lpi_shard_rig_device(9, UINT64_C(400) << 30);
	struct lpi_shard_rig rig;
	struct lp_disk_label label;
	lpi_shard_rig_mkfs(bdev, LP_RIG_LOG_BYTES);
	lpi_shard_rig_init(&rig, bdev);
	lp_test_ok(lp_label_read(bdev, true, &label, NULL));
	uint32_t log_blocks = label.log_blocks[0];
	label.chunk_base = label.size_blocks - 1 - UINT64_C(8) * label.chunk_blocks;
	label.chunk_cnt = 8;
	lp_test_ok(lp_chunks_format(bdev, &label));
	for (size_t i = 0; i < LP_ARRAY_SIZE(cnts); i++) {
		label.log_blocks[0] = cnts[i];
		lp_test_ok(lp_label_update(bdev, &label));
		for (int k = 0; k < 2; k++) {
			rig.read_only = k == 0;
			lp_test_err(-EUCLEAN, lpi_shard_rig_open(&rig));
			assert_non_null(strstr(lp_corruption_find(0)->what, "the log of shard 0"));
		}
	}
	label.log_blocks[0] = log_blocks;
	lp_test_ok(lp_label_update(bdev, &label));
	lp_test_ok(lpi_shard_rig_open(&rig));
	lp_test_ok(lpi_shard_rig_close(&rig, false));
	lpi_shard_rig_fini(&rig);
}

/* Promise P5: what is free may be single blocks without end, and a hybrid allocator's trees keep to
 * their part of the memory. An extent allocator has no other place for them. */
static void test_memory_of_free_space(void **state)
{
	(void)state;
	static const struct {
		enum lp_alloc_kind kind;
		uint64_t memory_bytes;
		uint64_t trees_bytes;
	} wanted[] = {
		{LP_ALLOC_HYBRID, UINT64_C(64) << 20, UINT64_C(2) << 20},
		{LP_ALLOC_HYBRID, 0, UINT64_C(8) << 20},
		{LP_ALLOC_EXTENT, UINT64_C(64) << 20, 0},
	};
	for (size_t i = 0; i < LP_ARRAY_SIZE(wanted); i++) {
		struct lpi_shard_rig rig;
		lpi_shard_rig_init(&rig, lpi_shard_rig_store(1));
		rig.alloc_kind = wanted[i].kind;
		rig.memory_bytes = wanted[i].memory_bytes;
		lp_test_ok(lpi_shard_rig_open(&rig));
		const struct lp_space *space = lp_shard_space(rig.shard);
		assert_int_equal(lp_space_config(space)->alloc_memory_max_bytes,
				 wanted[i].trees_bytes);
		/* With a chunk there is what is known of its blocks, too. */
		(void)lpi_shard_rig_take(&rig);
		uint64_t bytes = lp_space_memory_bytes(space);
		assert_true(bytes > lp_alloc_memory_bytes(lp_space_alloc(space)));
		assert_true(bytes < UINT64_C(1) << 20);
		lp_test_ok(lpi_shard_rig_close(&rig, false));
		lpi_shard_rig_fini(&rig);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_deferred_at_least),
		cmocka_unit_test(test_clean_stop),
		cmocka_unit_test(test_power_cut_at_many_events),
		cmocka_unit_test(test_first_opening_is_cut),
		cmocka_unit_test(test_lost_index_is_refused),
		cmocka_unit_test(test_read_only_changes_nothing),
		cmocka_unit_test(test_read_only_after_the_device_failed),
		cmocka_unit_test(test_read_only_devices_want_it),
		cmocka_unit_test(test_records_share_a_flush),
		cmocka_unit_test(test_log_of_no_use),
		cmocka_unit_test(test_memory_of_free_space),
	};
	return lp_test_main(tests, "store/shard/shard");
}
