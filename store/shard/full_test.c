/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: a shard whose index has no space, or fails, neither waits for ever nor loses anything: it
 * closes or opens within a bounded time, with the error, and finds all that was acknowledged later;
 * and when space comes back meanwhile, it goes on (rules L5, L6, L8, S5).
 * Method: a device that has no space for the index's tables, for a time or for good, or that cannot
 * read them; one whose chunks are all leased for objects, or by another shard; and events of the
 * index at moments that its threads seldom meet. */
#include "store/shard/shard_rig_test.h"

#include "base/sanitize.h"
#include "store/device/bdev_delay.h"
#include "store/setup/mkfs.h"
#include "store/shard/shard_impl.h"

#define VALUE_BYTES  8000u
#define PUTS         120u /* three times the memtables of the rig */
#define CLOSE_NS     (20 * LP_NS_PER_S)
#define FAIL_EACH    17u   /* of the writes of the index one fails */
#define RESUME_TURNS 10000 /* a second has 2000 of those who try again */
#define DOOR_TURNS   20000

static uint64_t put_cnt; /* acknowledged */

/* Writes of the index's files fail; those of the log and the journals do not. */
static void take_space(struct lpi_shard_rig *rig, enum lp_sim_fault fault, uint32_t fire_cnt)
{
	struct lp_disk_label label;
	struct lp_label_why why;
	lp_test_ok(lp_label_read(rig->bdev, false, &label, &why));
	const struct lp_sim_rule rule = {.fault = fault,
					 .opcode_mask = LP_SIM_OP(LP_BDEV_WRITE) |
							LP_SIM_OP(LP_BDEV_WRITE_THROUGH),
					 .offset_bytes = label.chunk_base * LP_BLOCK_BYTES,
					 .fire_cnt = fire_cnt};
	(void)lp_sim_rule_add(lp_sim_of(rig->bdev), &rule);
}

static void give_space(struct lpi_shard_rig *rig)
{
	lp_sim_rules_clear(lp_sim_of(rig->bdev));
}

static void start(struct lpi_shard_rig *rig, uint64_t seed)
{
	lpi_shard_rig_init(rig, lpi_shard_rig_store(seed));
	lp_test_ok(lpi_shard_rig_open(rig));
	put_cnt = 0;
}

/* Values, acknowledged one by one, until there are `until` or the index takes no more. */
static void put_values(struct lpi_shard_rig *rig, uint64_t until)
{
	while (put_cnt < until && lp_kv_error(lp_shard_kv(rig->shard)) == 0) {
		lpi_shard_rig_put(rig, put_cnt + 1, put_cnt + 1, VALUE_BYTES);
		lpi_shard_rig_sync(rig);
		put_cnt++;
	}
}

static void expect_values(struct lpi_shard_rig *rig)
{
	for (uint64_t i = 1; i <= put_cnt; i++)
		assert_true(lpi_shard_get(rig->shard, 'K', i) == i);
	assert_true(lpi_shard_get(rig->shard, 'K', put_cnt + 1) == 0);
}

static void expect_read_only(struct lpi_shard_rig *rig)
{
	rig->read_only = true;
	lp_test_ok(lpi_shard_rig_open(rig));
	expect_values(rig);
	lp_test_ok(lpi_shard_rig_close(rig, false));
	rig->read_only = false;
}

/* The index refuses a batch: whoever waits for the insert of all that was put would wait for ever.
 */
static void test_close_gives_up(void **state)
{
	(void)state;
	static const struct {
		enum lp_sim_fault fault;
		int err;
	} cases[] = {{LP_SIM_ENOSPC, -ENOSPC}, {LP_SIM_EIO, -EIO}};
	for (size_t i = 0; i < LP_ARRAY_SIZE(cases); i++) {
		struct lpi_shard_rig rig;
		start(&rig, 1 + i);
		take_space(&rig, cases[i].fault, 0);
		put_values(&rig, PUTS);
		assert_int_equal(lp_kv_error(lp_shard_kv(rig.shard)), cases[i].err);
		/* Durable, but not in the index. */
		lpi_shard_rig_put(&rig, put_cnt + 1, put_cnt + 1, VALUE_BYTES);
		lpi_shard_rig_sync(&rig);
		put_cnt++;
		uint64_t start_ns = rig.clock.now_ns;
		lp_test_err(cases[i].err, lpi_shard_rig_close(&rig, false));
		assert_true(rig.clock.now_ns - start_ns < CLOSE_NS);
		expect_read_only(&rig);
		give_space(&rig);
		lp_test_ok(lpi_shard_rig_open(&rig));
		assert_false(lp_shard_recovery(rig.shard)->was_clean);
		expect_values(&rig);
		lp_test_ok(lpi_shard_rig_close(&rig, false));
		lpi_shard_rig_fini(&rig);
	}
}

/* Everything is in the memtables, so that only the flush at the end fails. */
static void test_close_cannot_flush(void **state)
{
	(void)state;
	struct lpi_shard_rig rig;
	start(&rig, 3);
	put_values(&rig, 3);
	take_space(&rig, LP_SIM_ENOSPC, 0);
	uint64_t start_ns = rig.clock.now_ns;
	lp_test_err(-ENOSPC, lpi_shard_rig_close(&rig, false));
	assert_true(rig.clock.now_ns - start_ns < CLOSE_NS);
	expect_read_only(&rig);
	give_space(&rig);
	lp_test_ok(lpi_shard_rig_open(&rig));
	assert_false(lp_shard_recovery(rig.shard)->was_clean);
	expect_values(&rig);
	lp_test_ok(lpi_shard_rig_close(&rig, false));
	lpi_shard_rig_fini(&rig);
}

struct relief {
	struct lp_timer timer;
	struct lpi_shard_rig *rig;
};

static void relief_fire(struct lp_timer *timer)
{
	give_space(LP_CONTAINER_OF(timer, struct relief, timer)->rig);
}

/* Space comes back while the close waits for it: in order, then. */
static void test_close_resumes(void **state)
{
	(void)state;
	for (uint64_t puts = 3; puts <= PUTS; puts += PUTS - 3) {
		struct lpi_shard_rig rig;
		struct relief relief = {.timer.fire = relief_fire, .rig = &rig};
		start(&rig, 4);
		if (puts == 3)
			put_values(&rig, puts);
		take_space(&rig, LP_SIM_ENOSPC, 0);
		put_values(&rig, puts);
		lp_timer_start(rig.reactor, &relief.timer,
			       lp_reactor_now_ns(rig.reactor) + 4 * LP_NS_PER_S);
		lp_test_ok(lpi_shard_rig_close(&rig, false));
		assert_false(lp_timer_is_armed(&relief.timer));
		lp_test_ok(lpi_shard_rig_open(&rig));
		assert_true(lp_shard_recovery(rig.shard)->was_clean);
		expect_values(&rig);
		lp_test_ok(lpi_shard_rig_close(&rig, false));
		lpi_shard_rig_fini(&rig);
	}
}

/* A log with more than the memtables of the next opening can hold. */
static void leave_log_of(struct lpi_shard_rig *rig)
{
	rig->index_buffer_bytes = 4 << 20;
	lp_test_ok(lpi_shard_rig_open(rig));
	put_cnt = 0;
	put_values(rig, PUTS);
	lp_test_ok(lpi_shard_rig_close(rig, true));
	rig->index_buffer_bytes = 1 << 16;
}

static void leave_long_log(struct lpi_shard_rig *rig, uint64_t seed)
{
	lpi_shard_rig_init(rig, lpi_shard_rig_store(seed));
	leave_log_of(rig);
}

static void test_replay_gives_up(void **state)
{
	(void)state;
	struct lpi_shard_rig rig;
	leave_long_log(&rig, 5);
	take_space(&rig, LP_SIM_ENOSPC, 0);
	for (int i = 0; i < 2; i++)
		lp_test_err(-ENOSPC, lpi_shard_rig_open(&rig));
	/* In memory there is room. */
	expect_read_only(&rig);
	rig.index_buffer_bytes = 4 << 20;
	lp_test_ok(lpi_shard_rig_open(&rig));
	expect_values(&rig);
	lp_test_ok(lpi_shard_rig_close(&rig, true));
	rig.index_buffer_bytes = 1 << 16;
	give_space(&rig);
	lp_test_ok(lpi_shard_rig_open(&rig));
	expect_values(&rig);
	lp_test_ok(lpi_shard_rig_close(&rig, false));
	lpi_shard_rig_fini(&rig);
}

static void test_replay_resumes(void **state)
{
	(void)state;
	for (int i = 0; i < 2; i++) {
		struct lpi_shard_rig rig;
		leave_long_log(&rig, 6);
		take_space(&rig, i == 0 ? LP_SIM_ENOSPC : LP_SIM_EIO, 3);
		lp_test_ok(lpi_shard_rig_open(&rig));
		expect_values(&rig);
		lp_test_ok(lpi_shard_rig_close(&rig, false));
		lpi_shard_rig_fini(&rig);
	}
}

/* What the replay waits for is only slow: however long a flush takes, it is waited for. Here the
 * patience is two looks, and each write of the device takes as long. */
static void test_replay_waits_for_what_is_slow(void **state)
{
	(void)state;
	/* What its reference counts order looks like a race there. */
	if (LP_SAN_THREAD) {
		print_message("skip: RocksDB with threads, which is not instrumented\n");
		skip();
	}
	const struct lp_bdev_delay_options slow = {.write_ns = 20 * LP_NS_PER_MS};
	struct lpi_shard_rig rig;
	struct lp_kv_stats stats;
	struct lp_bdev *bdev = NULL;
	lp_test_ok(lp_bdev_open_mem(LP_RIG_SIZE_BYTES, 4096, &bdev));
	lpi_shard_rig_mkfs(bdev, LP_RIG_LOG_BYTES);
	lpi_shard_rig_init_threads(&rig, bdev);
	leave_log_of(&rig);
	lp_test_ok(lp_bdev_open_delay(&bdev, &slow, &rig.bdev));
	rig.replay_stalls_max = 1;
	lp_test_ok(lpi_shard_rig_open(&rig));
	lp_kv_read_stats(lp_shard_kv(rig.shard), &stats);
	assert_true(stats.refused_cnt > 2);
	expect_values(&rig);
	lp_test_ok(lpi_shard_rig_close(&rig, true));
	lpi_shard_rig_fini(&rig);
}

/* All chunks are leased for objects, and hold nothing any more. */
static void lease_all(struct lpi_shard_rig *rig)
{
	static struct lp_extent extents[4096];
	const struct lp_alloc_options options = {.hint = LP_ALLOC_NO_HINT, .extents_max = 1};
	uint32_t cnt = 0;
	uint64_t got;
	for (;;) {
		struct lpi_shard_told told = {.waiter.told = lpi_shard_told};
		while (cnt < LP_ARRAY_SIZE(extents) &&
		       lp_space_take(lp_shard_space(rig->shard), 256, &options, &extents[cnt],
				     &got) > 0)
			cnt++;
		assert_true(cnt < LP_ARRAY_SIZE(extents));
		lp_shard_wait_space(rig->shard, &told.waiter);
		assert_true(lpi_shard_rig_wait(rig, &told));
		if (told.result == -ENOSPC)
			break;
		assert_int_equal(told.result, 0);
	}
	for (uint32_t i = 0; i < cnt; i++)
		lp_space_untake(lp_shard_space(rig->shard), extents[i]);
}

static uint32_t chunks_of_objects(struct lpi_shard_rig *rig)
{
	struct lp_chunks_stats stats;
	lp_chunks_stats(rig->devices.chunks[LP_ROLE_DATA], &stats);
	return stats.cnt[LP_CHUNK_USE_OBJECTS];
}

/* The index gets what objects do not need: empty chunks are returned, and it is resumed. */
static void test_empty_chunks_are_returned(void **state)
{
	(void)state;
	struct lpi_shard_rig rig;
	lpi_shard_rig_init(&rig, lpi_shard_rig_store(7));
	rig.files_reserve_bytes = 1; /* one chunk, which is leased already */
	lp_test_ok(lpi_shard_rig_open(&rig));
	put_cnt = 0;
	uint64_t block = lpi_shard_rig_take(&rig);
	lpi_shard_rig_defer(&rig, block, 99);
	lpi_shard_rig_sync(&rig);
	lease_all(&rig);
	uint32_t leased = chunks_of_objects(&rig);
	/* More than the index's own chunks can hold. Time passes only when nothing is put. */
	put_values(&rig, 4000);
	assert_int_equal(lp_kv_error(lp_shard_kv(rig.shard)), -ENOSPC);
	for (int i = 0; i < RESUME_TURNS && lp_kv_error(lp_shard_kv(rig.shard)) < 0; i++)
		lpi_shard_rig_turn(&rig);
	assert_int_equal(lp_kv_error(lp_shard_kv(rig.shard)), 0);
	assert_true(chunks_of_objects(&rig) < leased);
	put_values(&rig, put_cnt + 60);
	expect_values(&rig);
	assert_int_equal(lpi_shard_rig_tag(&rig, block), 99);
	lp_test_ok(lpi_shard_rig_close(&rig, false));
	lp_test_ok(lpi_shard_rig_open(&rig));
	expect_values(&rig);
	assert_int_equal(lpi_shard_rig_tag(&rig, block), 99);
	assert_true(lp_space_used_blocks(lp_shard_space(rig.shard)) == 1);
	lp_test_ok(lpi_shard_rig_close(&rig, false));
	lpi_shard_rig_fini(&rig);
}

/* When space came back, the flush that was due was done, and what had waited went into the index
 * after it: also the record that had to be persisted. The door was closed, so nobody put anything,
 * and nobody asked for another flush. */
static void test_record_comes_last(void **state)
{
	(void)state;
	enum { MAX = 4000, EACH = 400, FRAMES_MAX = 16 };
	struct lpi_shard_rig rig;
	lpi_shard_rig_init(&rig, lpi_shard_rig_store(8));
	rig.log_records_max = MAX;
	lp_test_ok(lpi_shard_rig_open(&rig));
	put_cnt = 0;
	(void)lpi_shard_rig_take(&rig);
	take_space(&rig, LP_SIM_ENOSPC, 0);
	put_values(&rig, PUTS);
	const struct lp_commit *commit = lp_shard_commit(rig.shard);
	for (uint64_t i = 1; !rig.shard->is_door_closed; i++) {
		assert_true(i < FRAMES_MAX);
		for (uint64_t k = 0; k < EACH; k++)
			lpi_shard_rig_put(&rig, 1000 + i * EACH + k, i, 8);
		lpi_shard_rig_sync(&rig);
	}
	assert_true(rig.shard->record_seq > lp_commit_inserted_seq(commit));
	assert_true(rig.shard->record_seq <= lp_commit_durable_seq(commit));
	give_space(&rig);
	for (int i = 0; i < 10000 && rig.shard->is_door_closed; i++)
		lpi_shard_rig_turn(&rig);
	assert_false(rig.shard->is_door_closed);
	lp_test_ok(lpi_shard_rig_close(&rig, false));
	lpi_shard_rig_fini(&rig);
}

/* It is resumed, each second, until nothing is wrong any more. */
static void wait_resumed(struct lpi_shard_rig *rig)
{
	for (int i = 0; i < RESUME_TURNS && lp_kv_error(lp_shard_kv(rig->shard)) < 0; i++)
		lpi_shard_rig_turn(rig);
	assert_int_equal(lp_kv_error(lp_shard_kv(rig->shard)), 0);
}

/* Not one that may be a failed flush, for that is final (rule L7). */
static void fail_write(struct lpi_shard_rig *rig, enum lp_sim_fault fault, uint32_t skip_cnt,
		       uint32_t *ret_rule)
{
	struct lp_disk_label label;
	struct lp_label_why why;
	lp_test_ok(lp_label_read(rig->bdev, false, &label, &why));
	const struct lp_sim_rule rule = {.fault = fault,
					 .opcode_mask = LP_SIM_OP(LP_BDEV_WRITE),
					 .offset_bytes = label.chunk_base * LP_BLOCK_BYTES,
					 .skip_cnt = skip_cnt,
					 .fire_cnt = 1};
	*ret_rule = lp_sim_rule_add(lp_sim_of(rig->bdev), &rule);
}

/* Another write of the index fails, once. False: there was none. */
static bool fail_again(enum lp_sim_fault fault, uint32_t skip_cnt, uint32_t *ret_compactions)
{
	struct lpi_shard_rig rig;
	uint32_t rule = 0;
	start(&rig, 9);
	take_space(&rig, LP_SIM_ENOSPC, 0);
	put_values(&rig, PUTS);
	assert_int_equal(lp_kv_error(lp_shard_kv(rig.shard)), -ENOSPC);
	give_space(&rig);
	wait_resumed(&rig);
	fail_write(&rig, fault, skip_cnt, &rule);
	while (put_cnt < UINT64_C(2) * PUTS) {
		put_values(&rig, put_cnt + 1);
		if (lp_kv_compact_error(lp_shard_kv(rig.shard)) < 0)
			*ret_compactions += 1;
		if (lp_kv_error(lp_shard_kv(rig.shard)) < 0) {
			/* Durable, and refused by the index. */
			lpi_shard_rig_put(&rig, put_cnt + 1, put_cnt + 1, VALUE_BYTES);
			lpi_shard_rig_sync(&rig);
			put_cnt++;
		}
		wait_resumed(&rig);
	}
	uint64_t start_ns = rig.clock.now_ns;
	lp_test_ok(lpi_shard_rig_close(&rig, false));
	assert_true(rig.clock.now_ns - start_ns < CLOSE_NS);
	bool is_fired = lp_sim_rule_fired(lp_sim_of(rig.bdev), rule) > 0;
	give_space(&rig);
	lp_test_ok(lpi_shard_rig_open(&rig));
	assert_true(lp_shard_recovery(rig.shard)->was_clean);
	expect_values(&rig);
	lp_test_ok(lpi_shard_rig_close(&rig, false));
	lpi_shard_rig_fini(&rig);
	return is_fired;
}

/* An index that was without space once is another one (store/README.md): whatever fails then, a
 * compaction too, stops all writes at once, until it is resumed. */
static void test_fails_again(void **state)
{
	(void)state;
	static const enum lp_sim_fault faults[] = {LP_SIM_ENOSPC, LP_SIM_EIO};
	for (size_t i = 0; i < LP_ARRAY_SIZE(faults); i++) {
		uint32_t compactions = 0;
		uint32_t skip_cnt = 0;
		while (fail_again(faults[i], skip_cnt, &compactions)) {
			skip_cnt += FAIL_EACH;
			assert_true(skip_cnt < 1000);
		}
		assert_true(skip_cnt > 2 * FAIL_EACH && compactions > 0);
	}
}

/* --- What was flushed cannot be read ---------------------------------------------------------- */

/* Reads of the index's files fail, behind the first few; fire_cnt 0: all of them. */
static uint32_t fail_reads(struct lpi_shard_rig *rig, uint32_t skip_cnt, uint32_t fire_cnt)
{
	struct lp_disk_label label;
	struct lp_label_why why;
	lp_test_ok(lp_label_read(rig->bdev, false, &label, &why));
	const struct lp_sim_rule rule = {.fault = LP_SIM_EIO,
					 .opcode_mask = LP_SIM_OP(LP_BDEV_READ),
					 .offset_bytes = label.chunk_base * LP_BLOCK_BYTES,
					 .skip_cnt = skip_cnt,
					 .fire_cnt = fire_cnt};
	return lp_sim_rule_add(lp_sim_of(rig->bdev), &rule);
}

/* The log is tight at once, of records; the flush that makes room was asked for and has not begun,
 * and nothing else is under way. */
static void close_door(struct lpi_shard_rig *rig)
{
	enum { MAX = 4000, EACH = 1500, FRAMES_MAX = 4 };
	lpi_shard_rig_init(rig, lpi_shard_rig_store(10));
	rig->log_records_max = MAX;
	rig->index_buffer_bytes = 4 << 20;
	lp_test_ok(lpi_shard_rig_open(rig));
	for (uint64_t i = 0; !rig->shard->is_door_closed; i++) {
		assert_true(i < FRAMES_MAX);
		for (uint64_t k = 1; k <= EACH; k++)
			lpi_shard_rig_put(rig, i * EACH + k, k, 8);
		lpi_shard_rig_sync(rig);
	}
	while (!lp_work_is_idle(&rig->shard->flush_work))
		(void)lp_reactor_turn(rig->reactor, false);
	assert_true(lp_kv_is_flushing(lp_shard_kv(rig->shard)));
}

static void wait_door(struct lpi_shard_rig *rig)
{
	for (int i = 0; i < DOOR_TURNS && rig->shard->is_door_closed && rig->shard->error == 0; i++)
		lpi_shard_rig_turn(rig);
}

/* Whoever waits for room goes on, whichever read fails: also the one that says how far the flush
 * got, though nothing else ends the closed door. */
static void test_one_read_fails(void **state)
{
	(void)state;
	uint32_t skip_cnt = 0;
	for (bool is_fired = true; is_fired; skip_cnt++) {
		struct lpi_shard_rig rig;
		close_door(&rig);
		uint32_t rule = fail_reads(&rig, skip_cnt, 1);
		wait_door(&rig);
		assert_int_equal(rig.shard->error, 0);
		assert_false(rig.shard->is_door_closed);
		is_fired = lp_sim_rule_fired(lp_sim_of(rig.bdev), rule) > 0;
		lp_test_ok(lpi_shard_rig_close(&rig, false));
		lpi_shard_rig_fini(&rig);
	}
	assert_true(skip_cnt > 2);
}

/* From some read on they all fail: the door opens all the same, or the shard says that it has
 * failed, within some seconds. */
static void test_reads_go_on_failing(void **state)
{
	(void)state;
	uint32_t unread_cnt = 0;
	uint32_t skip_cnt = 0;
	for (bool is_fired = true; is_fired; skip_cnt++) {
		struct lpi_shard_rig rig;
		close_door(&rig);
		uint64_t start_ns = rig.clock.now_ns;
		uint32_t rule = fail_reads(&rig, skip_cnt, 0);
		wait_door(&rig);
		is_fired = lp_sim_rule_fired(lp_sim_of(rig.bdev), rule) > 0;
		assert_true(rig.shard->error < 0 || !rig.shard->is_door_closed);
		assert_true(rig.clock.now_ns - start_ns < CLOSE_NS);
		if (strncmp(lp_shard_reason(rig.shard), "the index cannot be read", 24) == 0)
			unread_cnt++;
		int ignored = lpi_shard_rig_close(&rig, true);
		(void)ignored;
		lpi_shard_rig_fini(&rig);
	}
	assert_true(unread_cnt > 0);
}

/* --- What the index tells at the wrong moment ------------------------------------------------- */

static void wait_resume_armed(struct lpi_shard_rig *rig)
{
	for (int i = 0; i < 10 && !lp_timer_is_armed(&rig->shard->resume_timer); i++)
		lpi_shard_rig_turn(rig);
	assert_true(lp_timer_is_armed(&rig->shard->resume_timer));
}

/* The second is over. */
static void fire_resume(struct lpi_shard_rig *rig)
{
	struct lp_timer *timer = &rig->shard->resume_timer;
	assert_true(lp_timer_is_armed(timer));
	lp_timer_stop(rig->reactor, timer);
	timer->fire(timer);
}

/* A compaction finds no space while the shard resumes the index after the one before, which takes
 * longer than a second: the resume that is due for it comes later. */
static void test_resume_found_it_busy(void **state)
{
	(void)state;
	struct lpi_shard_rig rig;
	start(&rig, 11);
	struct lp_shard *shard = rig.shard;
	shard->kv_events.compact_failed(&shard->kv_events, -ENOSPC);
	wait_resume_armed(&rig);
	fire_resume(&rig);
	assert_false(lp_work_is_idle(&shard->resume_work));
	assert_false(atomic_load(&shard->kv_is_short));
	/* The message comes, though no turn has ended the work. */
	atomic_store(&shard->kv_msg_sent, true);
	shard->kv_events.compact_failed(&shard->kv_events, -ENOSPC);
	atomic_store(&shard->kv_msg_sent, false);
	lpi_shard_take_up_kv_news(shard);
	fire_resume(&rig);
	for (int i = 0; i < 3; i++)
		lpi_shard_rig_turn(&rig);
	assert_true(lp_work_is_idle(&shard->resume_work));
	assert_true(lp_timer_is_armed(&shard->resume_timer) || !atomic_load(&shard->kv_is_short));
	for (int i = 0; i < RESUME_TURNS && atomic_load(&shard->kv_is_short); i++)
		lpi_shard_rig_turn(&rig);
	assert_false(atomic_load(&shard->kv_is_short));
	lp_test_ok(lpi_shard_rig_close(&rig, false));
	lpi_shard_rig_fini(&rig);
}

struct listener {
	struct lp_shard_events events;
	uint32_t cnt;
	int err;
};

static void on_failed(struct lp_shard_events *events, int err, const char *reason)
{
	struct listener *listener = LP_CONTAINER_OF(events, struct listener, events);
	assert_non_null(reason);
	listener->cnt++;
	listener->err = err;
}

/* A resume that is due just then does not forget with which error, and it is told once. */
static void test_final_error_meets_a_resume(void **state)
{
	(void)state;
	struct lpi_shard_rig rig;
	struct listener listener = {.events.failed = on_failed};
	start(&rig, 12);
	struct lp_shard *shard = rig.shard;
	shard->options.events = &listener.events;
	shard->kv_events.failed(&shard->kv_events, -EIO, false, "a");
	wait_resume_armed(&rig);
	shard->kv_events.failed(&shard->kv_events, -EUCLEAN, true, "b");
	fire_resume(&rig);
	for (int i = 0; i < 10; i++)
		lpi_shard_rig_turn(&rig);
	assert_int_equal(listener.cnt, 1);
	assert_int_equal(listener.err, -EUCLEAN);
	assert_int_equal(lp_shard_error(shard), -EUCLEAN);
	assert_non_null(strstr(lp_shard_reason(shard), ": b"));
	lp_test_err(-EUCLEAN, lpi_shard_rig_close(&rig, false));
	lpi_shard_rig_fini(&rig);
}

/* --- Two shards ------------------------------------------------------------------------------- */

#define RUN_BLOCKS UINT64_C(256)
#define RUNS_MAX   512u
#define RUNS_FREED 24u /* more than a shard keeps for itself */

/* A machine, and the same once more with another shard on it, which discards. */
static void start_two(uint64_t seed, struct lpi_shard_rig *first, struct lpi_shard_rig *ret_second)
{
	struct lp_disk_label label;
	struct lp_label_why why;
	struct lp_bdev *bdev = lpi_shard_rig_device(seed, LP_RIG_SIZE_BYTES);
	const struct lp_mkfs_options mkfs = {
		.bdev = {bdev}, .shard_cnt = 2, .log_bytes = LP_RIG_LOG_BYTES, .seed = {1}};
	lp_test_ok(lp_store_mkfs(&mkfs, &label, &why));
	lpi_shard_rig_init(first, bdev);
	lp_test_ok(lpi_shard_rig_open(first));
	*ret_second = *first;
	const struct lp_shard_options options = {.reactor = first->reactor,
						 .workers = first->workers,
						 .devices = &first->devices,
						 .bufs = first->bufs,
						 .shard_idx = 1,
						 .sim_clock = &first->clock.clock,
						 .index_cache_bytes = 1 << 20,
						 .index_buffer_bytes = 1 << 16,
						 .deferred_blocks_max = 64,
						 .files_reserve_bytes = 1 << 20,
						 .discard = true};
	ret_second->shard = NULL;
	lp_test_ok(lp_shard_open(&options, &ret_second->shard));
}

static void finish_two(struct lpi_shard_rig *first, struct lpi_shard_rig *second)
{
	lp_test_ok(lp_shard_close(second->shard, true));
	lp_test_ok(lpi_shard_rig_close(first, true));
	lpi_shard_rig_fini(first);
}

/* Durably, and they wait for their discard. */
static void free_runs(struct lpi_shard_rig *rig, const struct lp_extent *runs, uint32_t cnt)
{
	const struct lp_commit_need need = {.change_cnt = 1};
	for (uint32_t i = 0; i < cnt; i++) {
		lpi_shard_rig_reserve(rig, &need);
		lp_shard_freed(rig->shard, runs[i]);
	}
	lpi_shard_rig_sync(rig);
	assert_int_equal(lp_space_waiting_blocks(lp_shard_space(rig->shard)), cnt * RUN_BLOCKS);
}

/* With what comes of it, or -ENOSPC. */
static int wait_space(struct lpi_shard_rig *rig, struct lpi_shard_rig *other)
{
	struct lpi_shard_told told = {.waiter.told = lpi_shard_told};
	lp_shard_wait_space(rig->shard, &told.waiter);
	for (int i = 0; i < LP_RIG_TURNS_MAX && !told.done; i++) {
		(void)lp_shard_sim_run_one(other->shard);
		lpi_shard_rig_turn(rig);
	}
	assert_true(told.done);
	return told.result;
}

/* All that there is. */
static uint32_t take_runs(struct lpi_shard_rig *rig, struct lpi_shard_rig *other,
			  struct lp_extent *ret_runs)
{
	const struct lp_alloc_options options = {
		.hint = LP_ALLOC_NO_HINT, .extents_max = 1, .is_contiguous = true};
	const struct lp_commit_need need = {.change_cnt = 1};
	uint32_t cnt = 0;
	uint64_t got;
	for (;;) {
		assert_true(cnt < RUNS_MAX);
		if (lp_space_take(lp_shard_space(rig->shard), RUN_BLOCKS, &options, &ret_runs[cnt],
				  &got) < 0) {
			int err = wait_space(rig, other);
			if (err == -ENOSPC)
				return cnt;
			lp_test_ok(err);
			continue;
		}
		lpi_shard_rig_reserve(rig, &need);
		lp_shard_taken(rig->shard, ret_runs[cnt++]);
		lpi_shard_rig_sync(rig);
	}
}

/* What one shard has just freed the other one gets, though it would be discarded first. */
static void test_discards_give_way_to_others(void **state)
{
	(void)state;
	static struct lp_extent runs[RUNS_MAX];
	struct lpi_shard_rig rig;
	struct lpi_shard_rig second;
	start_two(13, &rig, &second);
	uint32_t cnt = take_runs(&second, &rig, runs);
	assert_true(cnt > RUNS_FREED);
	/* Pieces shorter than a run are lent, too, until there are no more. */
	int err = 0;
	for (uint32_t i = 0; i < RUNS_MAX && err == 0; i++)
		err = wait_space(&rig, &second);
	lp_test_err(-ENOSPC, err);
	free_runs(&second, runs + cnt - RUNS_FREED, RUNS_FREED);
	lp_test_ok(wait_space(&rig, &second));
	assert_true(lp_discards_stats(lp_shard_discards(second.shard))->let_go_blocks > 0);
	finish_two(&rig, &second);
}

/* So does the index: one that has stopped, or is about to refuse what would make it larger. */
static void test_discards_give_way_to_the_index(void **state)
{
	(void)state;
	for (int i = 0; i < 2; i++) {
		struct lpi_shard_rig rig;
		struct lpi_shard_rig second;
		struct lpi_shard_told told = {.waiter.told = lpi_shard_told};
		start_two(14, &rig, &second);
		struct lp_shard *shard = second.shard;
		const struct lp_extent run = {lpi_shard_rig_take_run(&second, RUN_BLOCKS),
					      RUN_BLOCKS};
		lpi_shard_rig_sync(&second);
		free_runs(&second, &run, 1);
		if (i == 0) {
			shard->kv_events.compact_failed(&shard->kv_events, -ENOSPC);
			wait_resume_armed(&second);
			fire_resume(&second);
		} else {
			shard->plan.grow_bytes = UINT64_C(1) << 60;
			lp_test_err(-EAGAIN, lp_shard_admit(shard, LP_SHARD_GROWS));
			lp_shard_wait_index_room(shard, &told.waiter);
			assert_true(lpi_shard_rig_wait(&second, &told));
			lp_test_ok(told.result);
		}
		assert_int_equal(lp_space_waiting_blocks(lp_shard_space(shard)), 0);
		assert_int_equal(lp_discards_stats(lp_shard_discards(shard))->let_go_blocks,
				 RUN_BLOCKS);
		finish_two(&rig, &second);
	}
}

/* What is kept for the files of shards that are not open yet. */
static uint32_t kept_chunks(const struct lp_devices *devices)
{
	const struct lp_chunks *chunks = devices->chunks[LP_ROLE_DATA];
	return lp_chunks_free_cnt(chunks) - lp_chunks_for_objects_cnt(chunks);
}

/* With a db device, too, objects leave free what shards need that were never opened, and nothing
 * more: those have their reserve there (rules L8, S5). */
static void test_kept_for_others(void **state)
{
	(void)state;
	for (uint32_t has_db = 0; has_db < 2; has_db++) {
		struct lpi_shard_rig rig;
		struct lp_disk_label label;
		struct lp_label_why why;
		struct lp_shard *shards[2];
		struct lp_bdev *data = lpi_shard_rig_device(15, LP_RIG_SIZE_BYTES);
		struct lp_bdev *db =
			has_db != 0 ? lpi_shard_rig_device(16, LP_RIG_SIZE_BYTES) : NULL;
		const struct lp_mkfs_options mkfs = {
			.bdev = {[LP_ROLE_DATA] = data, [LP_ROLE_DB] = db},
			.shard_cnt = 2,
			.log_bytes = LP_RIG_LOG_BYTES,
			.seed = {1}};
		lp_test_ok(lp_store_mkfs(&mkfs, &label, &why));
		lpi_shard_rig_init(&rig, data);
		const struct lp_devices_options devices = {
			.bdev = {[LP_ROLE_DATA] = data, [LP_ROLE_DB] = db}};
		lp_test_ok(lp_devices_open(&devices, &rig.devices, &why));
		for (uint32_t i = 0; i < 2; i++) {
			const struct lp_shard_options options = {.reactor = rig.reactor,
								 .workers = rig.workers,
								 .devices = &rig.devices,
								 .bufs = rig.bufs,
								 .shard_idx = i,
								 .sim_clock = &rig.clock.clock,
								 .index_cache_bytes = 1 << 20,
								 .index_buffer_bytes = 1 << 16,
								 .deferred_blocks_max = 64,
								 .files_reserve_bytes = 1 << 20};
			lp_test_ok(lp_shard_open(&options, &shards[i]));
			assert_int_equal(kept_chunks(&rig.devices) > 0, i == 0);
		}
		for (uint32_t i = 0; i < 2; i++)
			lp_test_ok(lp_shard_close(shards[i], false));
		lp_devices_close(&rig.devices);
		lpi_shard_rig_fini(&rig);
		lp_bdev_close(db);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_close_gives_up),
		cmocka_unit_test(test_close_cannot_flush),
		cmocka_unit_test(test_close_resumes),
		cmocka_unit_test(test_replay_gives_up),
		cmocka_unit_test(test_replay_resumes),
		cmocka_unit_test(test_replay_waits_for_what_is_slow),
		cmocka_unit_test(test_empty_chunks_are_returned),
		cmocka_unit_test(test_record_comes_last),
		cmocka_unit_test(test_fails_again),
		cmocka_unit_test(test_one_read_fails),
		cmocka_unit_test(test_reads_go_on_failing),
		cmocka_unit_test(test_resume_found_it_busy),
		cmocka_unit_test(test_final_error_meets_a_resume),
		cmocka_unit_test(test_discards_give_way_to_others),
		cmocka_unit_test(test_discards_give_way_to_the_index),
		cmocka_unit_test(test_kept_for_others),
	};
	return lp_test_main(tests, "store/shard/full");
}
