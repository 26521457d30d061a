/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: the foundation of a shard as a whole, on one simulated device that holds label, chunks,
 * log, the index's files and the blocks: what was acknowledged is there after a power cut at any
 * event, transactions are whole and in order, no space is leaked or given twice (P1, P2, P4, rules
 * L3, L4, S1 to S4), and a clean stop leaves nothing to be replayed.
 * Method: one random run with simulated time, jobs and helpers; then the power is cut at every
 * n-th event of its log, the store is opened from what is left, and compared with a model. */
#include "store/sim_test.h"

#include "base/crc32c.h"
#include "base/endian.h"
#include "store/keys.h"
#include "store/shard.h"

#define KEYS       10u
#define BLOCKS     20u
#define TXNS_MAX   600u
#define SIZE_BYTES (UINT64_C(96) << 20)
/* Per run; fewer where each costs ten times as much. */
#define CUTS     (LP_ASSERT_SLOW_ON ? 40u : 150u)
#define KEY_LAST KEYS

struct txn {
	struct lp_commit_waiter waiter;
	uint64_t acked_event; /* the device's events when it was acknowledged; 0: never */
	uint64_t keys[KEYS];
	int blocks[BLOCKS]; /* tag; 0: not touched; -1: freed */
};

/* A machine: a device, and a shard on it. */
struct rig {
	struct lp_clock_sim clock;
	struct lp_reactor *reactor;
	struct lp_workers *workers;
	struct lp_bufs *bufs;
	struct lp_bdev *bdev;
	struct lp_devices devices;
	struct lp_shard *shard;
};

static struct rig *live;
static struct lp_prng prng;
static struct txn txns[TXNS_MAX]; /* from 1 */
static uint32_t txn_cnt;
static uint64_t mapped[BLOCKS]; /* device blocks; 0: none */
static int tags[BLOCKS];
static uint64_t deferred_max = 64;
static uint64_t payload_cnt;
static uint64_t freed_cnt;

/* --- A machine ----------------------------------------------------------------------------------
 */

static void rig_init(struct rig *rig, struct lp_bdev *bdev)
{
	*rig = (struct rig){.bdev = bdev};
	lp_clock_sim_init(&rig->clock, LP_NS_PER_S, INT64_C(1700000000) * (int64_t)LP_NS_PER_S);
	const struct lp_reactor_options options = {.name = "sim", .sim = &rig->clock};
	lp_test_ok(lp_reactor_new(&options, &rig->reactor));
	lp_test_ok(lp_reactor_start(rig->reactor));
	lp_test_ok(lp_workers_new(0, &rig->workers));
	lp_test_ok(lp_bufs_new(UINT64_C(8) << 20, &rig->bufs));
}

static int rig_open(struct rig *rig)
{
	const struct lp_devices_options devices = {.bdev = {rig->bdev}};
	const struct lp_shard_options options = {.reactor = rig->reactor,
						 .workers = rig->workers,
						 .devices = &rig->devices,
						 .bufs = rig->bufs,
						 .sim_clock = &rig->clock.clock,
						 .index_cache_bytes = 1 << 20,
						 .index_buffer_bytes = 1 << 16,
						 .deferred_blocks_max = deferred_max,
						 .files_reserve_bytes = 1 << 20};
	struct lp_label_why why;
	int err = lp_devices_open(&devices, &rig->devices, &why);
	return err < 0 ? err : lp_shard_open(&options, &rig->shard);
}

static int rig_close(struct rig *rig, bool abandon)
{
	int err = lp_shard_close(rig->shard, abandon);
	rig->shard = NULL;
	lp_devices_close(&rig->devices);
	return err;
}

static void rig_fini(struct rig *rig)
{
	lp_bufs_free(rig->bufs);
	lp_workers_free(rig->workers);
	lp_reactor_free(rig->reactor);
	lp_bdev_close(rig->bdev);
}

static void make_store(struct lp_bdev *bdev)
{
	struct lp_mkfs_options options = {
		.bdev = {bdev}, .shard_cnt = 1, .log_bytes = UINT64_C(1) << 20};
	struct lp_disk_label label;
	struct lp_label_why why;
	for (size_t i = 0; i < sizeof(options.seed); i++)
		options.seed[i] = (uint8_t)(i * 7 + 1);
	int err = lp_store_mkfs(&options, &label, &why);
	if (err < 0)
		print_error("mkfs: %s\n", why.text);
	lp_test_ok(err);
}

static void turn(struct rig *rig)
{
	(void)lp_shard_sim_run_one(rig->shard);
	(void)lp_reactor_turn(rig->reactor, true);
}

/* --- Transactions
 * ----------------------------------------------------------------------------------- */

static void told(struct lp_commit_waiter *waiter, int result)
{
	struct txn *txn = LP_CONTAINER_OF(waiter, struct txn, waiter);
	if (result < 0)
		return; /* abandoned: nobody knows */
	txn->acked_event = lp_sim_event_count(lp_sim_of(live->bdev));
}

static struct lp_kv_bytes key_of(char space, uint64_t number, uint8_t *buf)
{
	buf[0] = (uint8_t)space;
	lp_put_be64(buf + 1, number);
	return (struct lp_kv_bytes){buf, 9};
}

static void put(char space, uint64_t number, uint64_t value)
{
	uint8_t key[9];
	uint8_t bytes[8];
	lp_put_le64(bytes, value);
	lp_commit_put(lp_shard_commit(live->shard), key_of(space, number, key),
		      (struct lp_kv_bytes){bytes, sizeof(bytes)});
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
	lp_commit_delete(lp_shard_commit(live->shard), key_of('M', idx, key));
	mapped[idx] = 0;
	tags[idx] = 0;
	freed_cnt++;
}

static void defer_block(uint32_t idx, int tag)
{
	struct lp_seg seg = {.buf = lp_buf_new(live->bufs, 4096), .len = 4096};
	assert_non_null(seg.buf);
	memset(seg.buf->data, tag, 4096);
	const struct lp_log_payload about = {.ino = 1,
					     .file_block = idx,
					     .device_block = mapped[idx],
					     .crc = lp_crc32c(0, seg.buf->data, 4096)};
	lp_shard_defer(live->shard, &about, seg);
	payload_cnt++;
	lp_buf_put(seg.buf);
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

/* --- Judging
 * -------------------------------------------------------------------------------------------- */

static uint64_t read_u64(struct rig *rig, char space, uint64_t number)
{
	uint8_t key[9];
	struct lp_kv_value value;
	int err = lp_kv_get(lp_shard_kv(rig->shard), key_of(space, number, key), &value);
	if (err == -ENOENT)
		return 0;
	lp_test_ok(err);
	uint64_t got = lp_get_le64(value.bytes.data);
	lp_kv_value_release(&value);
	return got;
}

static int read_tag(struct rig *rig, uint64_t block)
{
	struct lp_seg seg;
	uint32_t crc;
	if (lp_pending_find(lp_shard_pending(rig->shard), block, &seg, &crc))
		return lpi_bench_tag_of(seg.buf->data + seg.offset, 4096);
	uint64_t sectors = 4096 / lp_bdev_caps(rig->bdev)->block_bytes;
	int tag = lpi_bench_peek(rig->bdev, block * sectors);
	for (uint64_t i = 1; i < sectors; i++)
		if (lpi_bench_peek(rig->bdev, block * sectors + i) != tag)
			return LP_BENCH_MIXED;
	return tag;
}

/* The state is that after transaction `last`, which is not before the last acknowledged one. */
static void judge(struct rig *rig, uint64_t events)
{
	uint64_t keys[KEYS] = {0};
	int blocks[BLOCKS] = {0};
	uint64_t last = read_u64(rig, 'K', KEY_LAST);
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
		assert_true(read_u64(rig, 'K', i) == keys[i]);
	for (uint32_t i = 0; i < BLOCKS; i++) {
		uint64_t block = read_u64(rig, 'M', i);
		assert_true((block != 0) == (blocks[i] > 0));
		if (block == 0)
			continue;
		used++;
		assert_true(
			lp_space_is_used(lp_shard_space(rig->shard), (struct lp_extent){block, 1}));
		assert_int_equal(read_tag(rig, block), blocks[i]);
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
static void serve_again(struct rig *rig)
{
	struct lp_commit_waiter waiter = {.told = told_again};
	struct rig *before = live;
	live = rig;
	put('K', 0, 1);
	lp_commit_wait(lp_shard_commit(rig->shard), &waiter);
	for (int i = 0; i < 100000 && waiter.told != NULL; i++)
		turn(rig);
	assert_null(waiter.told);
	live = before;
}

static void judge_cut(struct lp_bdev *left, uint64_t events, bool thoroughly)
{
	struct rig rig;
	rig_init(&rig, left);
	lp_test_ok(rig_open(&rig));
	judge(&rig, events);
	if (thoroughly)
		serve_again(&rig);
	lp_test_ok(rig_close(&rig, !thoroughly));
	rig_fini(&rig);
}

/* --- Tests
 * ------------------------------------------------------------------------------------------------
 */

static void start(struct rig *rig, uint64_t seed)
{
	struct lp_sim_profile profile = lpi_bench_plain_profile(4096);
	const struct lp_sim_options options = {
		.profile = &profile, .size_bytes = SIZE_BYTES, .seed = seed};
	struct lp_bdev *bdev = NULL;
	lp_test_ok(lp_bdev_open_sim(&options, &bdev));
	make_store(bdev);
	lp_sim_trim_log(lp_sim_of(bdev));
	lp_prng_init(&prng, seed);
	txn_cnt = 0;
	memset(mapped, 0, sizeof(mapped));
	memset(tags, 0, sizeof(tags));
	rig_init(rig, bdev);
	lp_test_ok(rig_open(rig));
	live = rig;
}

static void run(struct rig *rig, uint32_t txns_more)
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
			turn(rig);
		assert_int_equal(lp_shard_error(rig->shard), 0);
	}
}

static void test_clean_stop(void **state)
{
	(void)state;
	struct rig rig;
	start(&rig, 1);
	for (int round = 0; round < 3; round++) {
		run(&rig, 60);
		lp_test_ok(rig_close(&rig, false));
		assert_int_equal(txns[txn_cnt].acked_event != 0, 1);
		lp_test_ok(rig_open(&rig));
		judge(&rig, lp_sim_event_count(lp_sim_of(rig.bdev)));
		/* Everything is in its place: nothing of the log is needed. */
		assert_true(lp_shard_recovery(rig.shard)->was_clean);
		assert_int_equal(lp_shard_recovery(rig.shard)->payloads, 0);
	}
	lp_test_ok(rig_close(&rig, false));
	rig_fini(&rig);
}

static void test_power_cut_at_many_events(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 5; seed++) {
		struct rig rig;
		struct lp_sim_cutter *cutter = NULL;
		uint64_t cuts = 0;
		deferred_max = seed % 2 == 0 ? 64 : 800;
		start(&rig, seed);
		run(&rig, 500);
		lp_test_ok(lp_sim_cutter_new(lp_sim_of(rig.bdev), NULL, &cutter));
		uint64_t step = 1 + lp_sim_event_count(lp_sim_of(rig.bdev)) / CUTS;
		for (uint64_t n = 0; lp_sim_cutter_next(cutter); n++) {
			if (n % step != 0)
				continue;
			judge_cut(lp_sim_cutter_cut(cutter, seed + n), lp_sim_cutter_event(cutter),
				  cuts % 5 == 0);
			cuts++;
		}
		assert_true(cuts > CUTS / 2);
		assert_true(payload_cnt > 100 && freed_cnt > 20);
		lp_sim_cutter_free(cutter);
		lp_test_ok(rig_close(&rig, true));
		rig_fini(&rig);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_clean_stop),
		cmocka_unit_test(test_power_cut_at_many_events),
	};
	return lp_test_main(tests, "store/shard");
}
