/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: an opening takes the payloads of the log to their places in memory of fixed size, the right
 * ones and whole, before anybody is served (P1, rules L1, L3, S3), what cannot be taken there keeps
 * the shard closed and the log as it was, and what only lacks space in the host keeps nobody (P6).
 * Method: a shard whose write-back stands still, given up with more payloads in its log than there
 * are buffers at the next opening; faults and cuts while that opens. */
#include "store/shard/shard_rig_test.h"

#include "base/error.h"
#include "base/testing/test_long.h"
#include "store/record/values.h"
#include "store/shard/shard_impl.h"

#define LOG_BYTES    (UINT64_C(32) << 20)
#define DEVICE_BYTES (UINT64_C(128) << 20)
#define SMALL_BUFS   (UINT64_C(1) << 20)
#define BLOCKS_MAX   4500u
#define HELD_FROM    10u
#define HELD_TO      290u /* of the blocks, where the host is full */

static uint64_t blocks[BLOCKS_MAX];
static int tags[BLOCKS_MAX]; /* 0: freed; -1: that, after it may have been written */

static void rig_init(struct lpi_shard_rig *rig, uint64_t seed)
{
	struct lp_bdev *bdev = lpi_shard_rig_device(seed, DEVICE_BYTES);
	lpi_shard_rig_mkfs(bdev, LOG_BYTES);
	lpi_shard_rig_init(rig, bdev);
	rig->deferred_max = 8192;
}

/* Payloads of cnt blocks in the log, none of them in its place. Some were replaced, some freed. */
static void fill_log(struct lpi_shard_rig *rig, uint32_t cnt)
{
	assert_true(cnt <= BLOCKS_MAX);
	lpi_shard_rig_set_bufs(rig, UINT64_C(32) << 20);
	lp_test_ok(lpi_shard_rig_open(rig));
	lp_writeback_stop(rig->shard->writeback);
	for (uint32_t i = 0; i < cnt; i++) {
		blocks[i] = lpi_shard_rig_take(rig);
		tags[i] = 1 + (int)(i % 250);
	}
	/* Not in the order of their places. */
	for (uint32_t i = 0; i < cnt; i++) {
		uint32_t idx = (uint32_t)((i * UINT64_C(7919)) % cnt);
		lpi_shard_rig_defer(rig, blocks[idx], i % 10 == 0 ? 255 : tags[idx]);
		if (i % 10 == 0)
			lpi_shard_rig_defer(rig, blocks[idx], tags[idx]);
	}
	for (uint32_t idx = 0; idx < cnt; idx += 100) {
		const struct lp_commit_need need = {.change_cnt = 1};
		lpi_shard_rig_reserve(rig, &need);
		lp_shard_freed(rig->shard, (struct lp_extent){blocks[idx], 1});
		tags[idx] = 0;
	}
	lpi_shard_rig_sync(rig);
	lp_test_ok(lpi_shard_rig_close(rig, true));
	lpi_shard_rig_set_bufs(rig, SMALL_BUFS);
	lp_sim_trim_log(lp_sim_of(rig->bdev));
}

static uint32_t freed_cnt(uint32_t cnt)
{
	return (cnt + 99) / 100;
}

static void expect_tags(struct lpi_shard_rig *rig, uint32_t cnt)
{
	for (uint32_t i = 0; i < cnt; i++) {
		struct lp_extent extent = {blocks[i], 1};
		bool used = lp_space_is_used(lp_shard_space(rig->shard), extent);
		assert_int_equal(used, tags[i] > 0);
		/* What was freed was not written over: somebody else may have it. */
		if (tags[i] >= 0)
			assert_int_equal(lpi_shard_rig_tag(rig, blocks[i]), tags[i]);
	}
}

static void test_more_than_buffers(void **state)
{
	(void)state;
	const uint32_t cnt = 4200; /* 16 MiB */
	struct lpi_shard_rig rig;
	rig_init(&rig, 1);
	fill_log(&rig, cnt);
	for (int read_only = 1; read_only >= 0; read_only--) {
		rig.read_only = read_only != 0;
		lp_test_ok(lpi_shard_rig_open(&rig));
		assert_int_equal(lp_shard_recovery(rig.shard)->payloads, cnt - freed_cnt(cnt));
		expect_tags(&rig, cnt);
		uint64_t held = lp_pending_stats(lp_shard_pending(rig.shard))->versions;
		assert_int_equal(held, read_only ? cnt - freed_cnt(cnt) : 0);
		lp_test_ok(lpi_shard_rig_close(&rig, false));
	}
	/* Everything is in its place: nothing is taken from the log again. */
	lp_test_ok(lpi_shard_rig_open(&rig));
	assert_int_equal(lp_shard_recovery(rig.shard)->payloads, 0);
	expect_tags(&rig, cnt);
	lp_test_ok(lpi_shard_rig_close(&rig, false));
	lpi_shard_rig_fini(&rig);
}

/* What is in its place is flushed before the shard is open: from then on the log may forget it
 * (rule L3). */
static void test_flushed(void **state)
{
	(void)state;
	struct lpi_shard_rig rig;
	rig_init(&rig, 2);
	fill_log(&rig, 300);
	lp_test_ok(lpi_shard_rig_open(&rig));
	const struct lp_sim *sim = lp_sim_of(rig.bdev);
	uint64_t written = 0;
	uint64_t flushed = 0; /* events */
	for (uint64_t i = lp_sim_event_first(sim); i < lp_sim_event_count(sim); i++) {
		struct lp_sim_event event;
		lp_sim_event_get(sim, i, &event);
		if (event.type == LP_SIM_COMPLETE && event.opcode == LP_BDEV_WRITE)
			written = i;
		if (event.type == LP_SIM_SUBMIT && event.opcode == LP_BDEV_FLUSH)
			flushed = i;
	}
	assert_true(written > 0 && flushed > written);
	lp_test_ok(lpi_shard_rig_close(&rig, false));
	lpi_shard_rig_fini(&rig);
}

/* The host of an image file is full: these blocks are holes. */
static void fill_host(struct lpi_shard_rig *rig)
{
	for (uint32_t i = HELD_FROM; i < HELD_TO; i++) {
		const struct lp_sim_rule rule = {.fault = LP_SIM_ENOSPC,
						 .opcode_mask = LP_SIM_OP(LP_BDEV_WRITE),
						 .offset_bytes = blocks[i] * LP_BLOCK_BYTES,
						 .length_bytes = LP_BLOCK_BYTES};
		(void)lp_sim_rule_add(lp_sim_of(rig->bdev), &rule);
	}
}

static void wait_full(struct lpi_shard_rig *rig)
{
	for (int i = 0; i < 1000 && !lp_shard_cannot_write_back(rig->shard); i++)
		lpi_shard_rig_turn(rig);
	assert_true(lp_shard_cannot_write_back(rig->shard));
}

static void cut_while_opening(uint64_t seed, bool is_full)
{
	const uint32_t cnt = 600;
	struct lpi_shard_rig rig;
	struct lp_sim_cutter *cutter = NULL;
	uint64_t cuts = 0;
	rig_init(&rig, seed);
	fill_log(&rig, cnt);
	if (is_full) {
		lpi_shard_rig_set_bufs(&rig, UINT64_C(8) << 20);
		fill_host(&rig);
	}
	lp_test_ok(lpi_shard_rig_open(&rig));
	if (is_full)
		wait_full(&rig);
	uint64_t events = lp_sim_event_count(lp_sim_of(rig.bdev));
	uint64_t step = 1 + (events - lp_sim_event_first(lp_sim_of(rig.bdev))) /
				    (LP_ASSERT_SLOW_ON ? 15 : 60);
	lp_test_ok(lp_sim_cutter_new(lp_sim_of(rig.bdev), NULL, &cutter));
	for (uint64_t n = 0; lp_sim_cutter_next(cutter) && lp_sim_cutter_event(cutter) <= events;
	     n++) {
		struct lpi_shard_rig left;
		if (n % step != 0)
			continue;
		lpi_shard_rig_init(&left, lp_sim_cutter_cut(cutter, n));
		left.deferred_max = rig.deferred_max;
		if (is_full && cuts % 2 == 0)
			fill_host(&left);
		lp_test_ok(lpi_shard_rig_open(&left));
		expect_tags(&left, cnt);
		lp_test_ok(lpi_shard_rig_close(&left, true));
		lpi_shard_rig_fini(&left);
		cuts++;
	}
	assert_true(cuts >= 10);
	lp_sim_cutter_free(cutter);
	lp_test_ok(lpi_shard_rig_close(&rig, true));
	lpi_shard_rig_fini(&rig);
}

/* The power fails while payloads are being taken to their places, also where the host of an image
 * file has no space for some. */
static void test_cut_while_opening(void **state)
{
	(void)state;
	cut_while_opening(3, false);
	cut_while_opening(24, true);
}

static uint64_t log_offset(struct lpi_shard_rig *rig)
{
	struct lp_disk_label label;
	struct lp_label_why why;
	lp_test_ok(lp_label_read(rig->bdev, false, &label, &why));
	return lp_label_log_area(&label, 0).block * LP_BLOCK_BYTES;
}

/* Read a second time, a block of the log is another one than when it was judged: it is not put
 * anywhere. Then it is whole again, and nothing was lost. */
static void test_payload_rots_meanwhile(void **state)
{
	(void)state;
	const uint32_t cnt = 300;
	struct lpi_shard_rig rig;
	rig_init(&rig, 4);
	fill_log(&rig, cnt);
	struct lp_bdev *whole = NULL;
	uint64_t at = log_offset(&rig) + LP_LOG_SLOT_CNT * LP_BLOCK_BYTES + 50 * LP_BLOCK_BYTES;
	const struct lp_sim_rule read = {.fault = LP_SIM_ROT,
					 .opcode_mask = LP_SIM_OP(LP_BDEV_READ),
					 .offset_bytes = at,
					 .length_bytes = 200 * LP_BLOCK_BYTES,
					 .skip_cnt = 1,
					 .fire_cnt = 1,
					 .arg = 1};
	lp_sim_trim_log(lp_sim_of(rig.bdev));
	_Alignas(4096) static uint8_t bytes[4096];
	lp_test_ok(lp_bdev_read_sync(rig.bdev, bytes, sizeof(bytes), 0)); /* an event to cut at */
	lp_test_ok(lp_sim_image_at(lp_sim_of(rig.bdev), lp_sim_event_count(lp_sim_of(rig.bdev)) - 1,
				   NULL, 1, &whole));
	(void)lp_sim_rule_add(lp_sim_of(rig.bdev), &read);
	lp_test_err(-EBADMSG, lpi_shard_rig_open(&rig));
	lpi_shard_rig_fini(&rig);
	lpi_shard_rig_init(&rig, whole);
	lp_test_ok(lpi_shard_rig_open(&rig));
	expect_tags(&rig, cnt);
	lp_test_ok(lpi_shard_rig_close(&rig, false));
	lpi_shard_rig_fini(&rig);
}

/* Places that cannot be written: some tries are made; when they are in vain, for more than a few of
 * them (rule L6; a few are the matter of shard/bad_blocks_test.c), the shard stays closed, and the
 * next opening finds all of it. */
static void test_failing_writes(void **state)
{
	(void)state;
	const uint32_t cnt = 300;
	struct lpi_shard_rig rig;
	rig_init(&rig, 5);
	fill_log(&rig, cnt);
	struct lp_sim_rule rule = {.fault = LP_SIM_EIO,
				   .opcode_mask = LP_SIM_OP(LP_BDEV_WRITE),
				   .offset_bytes = blocks[10] * LP_BLOCK_BYTES};
	(void)lp_sim_rule_add(lp_sim_of(rig.bdev), &rule);
	rig.bad_max = 200;
	lp_test_err(-EIO, lpi_shard_rig_open(&rig));
	lp_sim_rules_clear(lp_sim_of(rig.bdev));
	rig.read_only = true;
	lp_test_ok(lpi_shard_rig_open(&rig));
	expect_tags(&rig, cnt);
	lp_test_ok(lpi_shard_rig_close(&rig, false));
	rig.read_only = false;
	rule.length_bytes = LP_BLOCK_BYTES;
	rule.fire_cnt = 2;
	uint32_t idx = lp_sim_rule_add(lp_sim_of(rig.bdev), &rule);
	lp_test_ok(lpi_shard_rig_open(&rig));
	assert_int_equal(lp_sim_rule_fired(lp_sim_of(rig.bdev), idx), 2);
	expect_tags(&rig, cnt);
	lp_test_ok(lpi_shard_rig_close(&rig, false));
	lpi_shard_rig_fini(&rig);
}

/* --- The host has no space -------------------------------------------------------------------- */

/* Of a write that failed parts are in their place all the same: not here. Nobody has it open. */
static void empty_holes(struct lpi_shard_rig *rig)
{
	_Alignas(4096) static uint8_t zeros[4096];
	lp_sim_rules_clear(lp_sim_of(rig->bdev));
	for (uint32_t i = HELD_FROM; i < HELD_TO; i++)
		lp_test_ok(lp_bdev_write_sync(rig->bdev, zeros, sizeof(zeros),
					      blocks[i] * LP_BLOCK_BYTES, true));
}

/* Those that have no space, and only they, are pending. */
static void expect_waiting(struct lpi_shard_rig *rig, uint32_t cnt)
{
	const struct lp_pending_stats *stats = lp_pending_stats(lp_shard_pending(rig->shard));
	uint64_t waiting = 0;
	for (uint32_t i = HELD_FROM; i < HELD_TO; i++)
		waiting += tags[i] > 0;
	/* One that is being written when it is of no use any more goes when that has ended. */
	for (int i = 0; i < 100 && stats->versions > waiting; i++)
		lpi_shard_rig_turn(rig);
	assert_int_equal(stats->versions, waiting);
	assert_int_equal(stats->stuck + lp_shard_bad_blocks(rig->shard), 0);
	expect_tags(rig, cnt);
}

static void wait_in_place(struct lpi_shard_rig *rig)
{
	const struct lp_pending_stats *stats = lp_pending_stats(lp_shard_pending(rig->shard));
	for (int i = 0; i < 100000 && stats->versions > 0; i++)
		lpi_shard_rig_turn(rig);
	assert_int_equal(stats->versions, 0);
}

/* As a shard that runs does, an opening leaves in the log what the host of an image file has no
 * space for (P6, rule S7), and the log keeps it: also what is overwritten and freed then, and over
 * more openings, and a cut (rules S2, S3). Its block is no bad one. */
static void test_host_is_full(void **state)
{
	(void)state;
	const uint32_t cnt = 300;
	struct lpi_shard_rig rig;
	rig_init(&rig, 20);
	fill_log(&rig, cnt);
	lpi_shard_rig_set_bufs(&rig, UINT64_C(8) << 20);
	fill_host(&rig);
	for (int i = 0; i < 3; i++) {
		const struct lp_commit_need need = {.change_cnt = 1};
		lp_test_ok(lpi_shard_rig_open(&rig));
		expect_waiting(&rig, cnt);
		/* Write-back tries them again by itself. */
		wait_full(&rig);
		uint32_t over = HELD_FROM + 1 + (uint32_t)i;
		tags[over] = 251 + i;
		lpi_shard_rig_defer(&rig, blocks[over], tags[over]);
		uint32_t gone = HELD_TO - 2 - (uint32_t)i;
		tags[gone] = -1;
		lpi_shard_rig_reserve(&rig, &need);
		lp_shard_freed(rig.shard, (struct lp_extent){blocks[gone], 1});
		lpi_shard_rig_sync(&rig);
		expect_waiting(&rig, cnt);
		if (i == 1)
			lp_test_err(-ENOSPC, lpi_shard_rig_close(&rig, false));
		else
			lp_test_ok(lpi_shard_rig_close(&rig, true));
		empty_holes(&rig);
		fill_host(&rig);
	}
	lp_test_ok(lpi_shard_rig_open(&rig));
	expect_waiting(&rig, cnt);
	lp_sim_rules_clear(lp_sim_of(rig.bdev));
	wait_in_place(&rig);
	expect_tags(&rig, cnt);
	lp_test_ok(lpi_shard_rig_close(&rig, false));
	lp_test_ok(lpi_shard_rig_open(&rig));
	assert_int_equal(lp_shard_recovery(rig.shard)->payloads, 0);
	expect_tags(&rig, cnt);
	lp_test_ok(lpi_shard_rig_close(&rig, false));
	lpi_shard_rig_fini(&rig);
}

static void start_full(struct lpi_shard_rig *rig, uint64_t seed, uint32_t cnt)
{
	rig_init(rig, seed);
	fill_log(rig, cnt);
	lpi_shard_rig_set_bufs(rig, UINT64_C(8) << 20);
	fill_host(rig);
	lp_test_ok(lpi_shard_rig_open(rig));
}

/* What the log would hold without those that wait, each acknowledged. */
static void put_megabytes(struct lpi_shard_rig *rig, uint32_t megabytes)
{
	for (uint32_t i = 1; i <= 16 * megabytes; i++) {
		lpi_shard_rig_put(rig, i % 10, i, 60000);
		lpi_shard_rig_sync(rig);
		assert_true(rig->shard->trimmed_seq <=
			    lp_pending_oldest_seq(lp_shard_pending(rig->shard)));
	}
}

static void change_one(struct lpi_shard_rig *rig, uint32_t idx, int tag)
{
	const struct lp_commit_need need = {.change_cnt = 1};
	tags[idx] = tag;
	if (tag > 0) {
		lpi_shard_rig_defer(rig, blocks[idx], tag);
		return;
	}
	lpi_shard_rig_reserve(rig, &need);
	lp_shard_freed(rig->shard, (struct lp_extent){blocks[idx], 1});
}

/* However much is written meanwhile, the log keeps what waits (rule S2). It is not filled by that:
 * what waits rides in newer frames, also where it was overwritten or freed just then. */
static void test_log_keeps_what_waits(void **state)
{
	(void)state;
	const uint32_t cnt = 300;
	struct lpi_shard_rig rig;
	start_full(&rig, 21, cnt);
	uint64_t oldest = lp_pending_oldest_seq(lp_shard_pending(rig.shard));
	for (uint32_t i = 0; i < 20; i++) {
		put_megabytes(&rig, 4); /* in all more than two logs */
		change_one(&rig, HELD_FROM + 1 + i, 251);
		change_one(&rig, HELD_TO - 2 - i, -1);
	}
	assert_true(lp_pending_oldest_seq(lp_shard_pending(rig.shard)) > oldest);
	lpi_shard_rig_sync(&rig);
	expect_waiting(&rig, cnt);
	/* That cost little: each went along a few times. */
	assert_true(lp_pending_stats(lp_shard_pending(rig.shard))->added < UINT64_C(20) * cnt);
	lp_test_ok(lpi_shard_rig_close(&rig, true));
	empty_holes(&rig);
	lp_test_ok(lpi_shard_rig_open(&rig));
	expect_tags(&rig, cnt);
	lp_test_ok(lpi_shard_rig_close(&rig, false));
	lpi_shard_rig_fini(&rig);
}

/* The power fails, or the process dies, while what waits goes on to newer frames. */
static void test_cut_while_they_ride(void **state)
{
	(void)state;
	const uint32_t cnt = 300;
	struct lpi_shard_rig rig;
	struct lp_sim_cutter *cutter = NULL;
	uint32_t cuts = 0;
	start_full(&rig, 25, cnt);
	while (rig.shard->renewed_seq == 0) {
		lp_sim_trim_log(lp_sim_of(rig.bdev));
		put_megabytes(&rig, 1);
	}
	put_megabytes(&rig, 8);
	uint64_t events = lp_sim_event_count(lp_sim_of(rig.bdev));
	uint64_t step = 1 + (events - lp_sim_event_first(lp_sim_of(rig.bdev))) /
				    (LP_ASSERT_SLOW_ON ? 15 : 60);
	lp_test_ok(lp_sim_cutter_new(lp_sim_of(rig.bdev), NULL, &cutter));
	for (uint64_t n = 0; lp_sim_cutter_next(cutter); n++) {
		struct lpi_shard_rig left;
		if (n % step != 0)
			continue;
		lpi_shard_rig_init(&left, cuts % 3 == 0 ? lp_sim_cutter_crash(cutter, n)
							: lp_sim_cutter_cut(cutter, n));
		left.deferred_max = rig.deferred_max;
		if (cuts % 2 == 0)
			fill_host(&left);
		lp_test_ok(lpi_shard_rig_open(&left));
		expect_tags(&left, cnt);
		lp_test_ok(lpi_shard_rig_close(&left, true));
		lpi_shard_rig_fini(&left);
		cuts++;
	}
	assert_true(cuts >= 10);
	lp_sim_cutter_free(cutter);
	lp_test_ok(lpi_shard_rig_close(&rig, true));
	lpi_shard_rig_fini(&rig);
	lp_test_tell_crash_states(cuts);
}

/* While the host is full less may wait than else, least of what goes to new places, so that what
 * waits does not become most of the log (rule S7). */
static void test_host_is_full_and_bound(void **state)
{
	(void)state;
	const uint32_t cnt = 300;
	struct lpi_shard_rig rig;
	start_full(&rig, 26, cnt);
	wait_full(&rig);
	struct lp_shard *shard = rig.shard;
	uint64_t held = lp_pending_stats(lp_shard_pending(shard))->versions;
	uint64_t start = shard->start_versions;
	assert_true(held > 0 && held < start && start < lp_shard_defer_max(shard));
	assert_true(lp_shard_may_defer(shard, start - held, true));
	assert_false(lp_shard_may_defer(shard, start - held + 1, true));
	assert_true(lp_shard_may_defer(shard, start + start / 2 - held, false));
	assert_false(lp_shard_may_defer(shard, start + start / 2 - held + 1, false));
	lp_sim_rules_clear(lp_sim_of(rig.bdev));
	wait_in_place(&rig);
	assert_true(lp_shard_may_defer(shard, lp_shard_defer_room(shard), true));
	lp_test_ok(lpi_shard_rig_close(&rig, false));
	lpi_shard_rig_fini(&rig);
}

/* Those that the index keeps wait in their records, which go when they are in their place. */
static void test_host_is_full_for_records(void **state)
{
	(void)state;
	const uint32_t cnt = HELD_TO;
	struct lpi_shard_rig rig;
	rig_init(&rig, 22);
	lp_test_ok(lpi_shard_rig_open(&rig));
	lp_shard_set_deferred_store(rig.shard, LP_DEFERRED_KV);
	lp_writeback_stop(rig.shard->writeback);
	for (uint32_t i = 0; i < cnt; i++) {
		blocks[i] = lpi_shard_rig_take(&rig);
		tags[i] = 1 + (int)i % 250;
		struct lp_commit_need need = {.data_cnt = 0};
		lp_shard_defer_need(rig.shard, 1, &need);
		lpi_shard_rig_reserve(&rig, &need);
		lpi_shard_defer(&rig, blocks[i], tags[i]);
	}
	lpi_shard_rig_sync(&rig);
	assert_int_equal(lp_deferrals_stats(lp_shard_deferrals(rig.shard))->records, cnt);
	for (int i = 0; i < 3; i++) {
		lp_test_ok(lpi_shard_rig_close(&rig, true));
		empty_holes(&rig);
		fill_host(&rig);
		lp_test_ok(lpi_shard_rig_open(&rig));
		expect_waiting(&rig, cnt);
		/* What was due has been done with the next frames. */
		for (uint64_t k = 1; k <= 10; k++) {
			lpi_shard_rig_put(&rig, k, k, 8);
			lpi_shard_rig_sync(&rig);
		}
		assert_int_equal(lp_deferrals_stats(lp_shard_deferrals(rig.shard))->records,
				 HELD_TO - HELD_FROM);
	}
	lp_sim_rules_clear(lp_sim_of(rig.bdev));
	wait_in_place(&rig);
	for (int i = 0; i < 1000; i++)
		lpi_shard_rig_turn(&rig);
	assert_int_equal(lp_deferrals_stats(lp_shard_deferrals(rig.shard))->records, 0);
	expect_tags(&rig, cnt);
	lp_test_ok(lpi_shard_rig_close(&rig, false));
	lpi_shard_rig_fini(&rig);
}

/* More of them than there are buffers, or than may wait, do not fit into memory: the shard stays
 * closed, and nothing is lost. */
static void test_host_is_full_and_memory(void **state)
{
	(void)state;
	const uint32_t cnt = 300;
	for (int is_limit = 0; is_limit < 2; is_limit++) {
		struct lpi_shard_rig rig;
		rig_init(&rig, 23);
		fill_log(&rig, cnt);
		lpi_shard_rig_set_bufs(&rig, UINT64_C(1) << (is_limit ? 23 : 20));
		fill_host(&rig);
		if (is_limit) {
			rig.deferred_max = 100;
			rig.bad_max = 1;
		}
		lp_test_err(-ENOSPC, lpi_shard_rig_open(&rig));
		lp_sim_rules_clear(lp_sim_of(rig.bdev));
		lp_test_ok(lpi_shard_rig_open(&rig));
		expect_tags(&rig, cnt);
		lp_test_ok(lpi_shard_rig_close(&rig, false));
		lpi_shard_rig_fini(&rig);
	}
}

/* A payload for a block that no chunk of the shard holds: here it would be the log's own. */
static void test_place_of_somebody_else(void **state)
{
	(void)state;
	struct lpi_shard_rig rig;
	rig_init(&rig, 6);
	lp_test_ok(lpi_shard_rig_open(&rig));
	lp_writeback_stop(rig.shard->writeback);
	lpi_shard_rig_defer(&rig, log_offset(&rig) / LP_BLOCK_BYTES + 100, 1);
	lpi_shard_rig_sync(&rig);
	lp_test_ok(lpi_shard_rig_close(&rig, true));
	for (int i = 0; i < 2; i++)
		lp_test_err(-EUCLEAN, lpi_shard_rig_open(&rig));
	lpi_shard_rig_fini(&rig);
}

/* A payload for a block that no device has is refused, also when its frame is done with: the end of
 * the highest of them is no number. */
static void test_place_of_nobody(void **state)
{
	static const uint64_t places[] = {UINT64_MAX, UINT64_MAX - 1, LP_DEVICE_BLOCKS_MAX};
	(void)state;
	for (unsigned i = 0; i < LP_ARRAY_SIZE(places); i++) {
		struct lpi_shard_rig rig;
		rig_init(&rig, 7 + i);
		lp_test_ok(lpi_shard_rig_open(&rig));
		lp_writeback_stop(rig.shard->writeback);
		uint64_t block = lpi_shard_rig_take(&rig);
		lpi_shard_rig_defer(&rig, places[i], 1);
		lpi_shard_rig_sync(&rig);
		/* The next frame says that the former is not needed. */
		rig.shard->trimmed_seq = lp_log_durable_seq(rig.shard->log) + 1;
		lp_log_trim(rig.shard->log, rig.shard->trimmed_seq);
		lpi_shard_rig_defer(&rig, block, 2);
		lpi_shard_rig_sync(&rig);
		lp_test_ok(lpi_shard_rig_close(&rig, true));
		for (int k = 0; k < 2; k++) {
			lp_test_err(-EUCLEAN, lpi_shard_rig_open(&rig));
			assert_non_null(strstr(lp_corruption_find(0)->what, "which no device has"));
		}
		lpi_shard_rig_fini(&rig);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_more_than_buffers),
		cmocka_unit_test(test_flushed),
		cmocka_unit_test(test_cut_while_opening),
		cmocka_unit_test(test_payload_rots_meanwhile),
		cmocka_unit_test(test_failing_writes),
		cmocka_unit_test(test_host_is_full),
		cmocka_unit_test(test_log_keeps_what_waits),
		cmocka_unit_test(test_cut_while_they_ride),
		cmocka_unit_test(test_host_is_full_and_bound),
		cmocka_unit_test(test_host_is_full_for_records),
		cmocka_unit_test(test_host_is_full_and_memory),
		cmocka_unit_test(test_place_of_somebody_else),
		cmocka_unit_test(test_place_of_nobody),
	};
	return lp_test_main(tests, "store/shard/replay");
}
