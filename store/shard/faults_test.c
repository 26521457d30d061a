/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: faults that a shard once had stay mended: each test says which one it is for. And the log
 * keeps a frame as long as anything needs it, the payloads as well as the index (rule S2).
 * Method: the state in which the fault showed, made step by step on a simulated device; whatever
 * would then wait for ever is given a number of turns. */
#include "store/shard/shard_rig_test.h"

#include "base/sanitize.h"
#include "store/shard/shard_impl.h"

#define FRAME_VALUE 60000u /* 15 blocks of log */

static void start(struct lpi_shard_rig *rig, uint64_t seed)
{
	lpi_shard_rig_init(rig, lpi_shard_rig_store(seed));
	lp_test_ok(lpi_shard_rig_open(rig));
}

static void finish(struct lpi_shard_rig *rig)
{
	lp_test_ok(lpi_shard_rig_close(rig, false));
	lpi_shard_rig_fini(rig);
}

static void reopen(struct lpi_shard_rig *rig)
{
	lp_test_ok(lpi_shard_rig_close(rig, true));
	lp_test_ok(lpi_shard_rig_open(rig));
}

/* The power fails, and what is left is opened as *left: a close would run what the index has to do
 * before that ends. */
static void power_cut(struct lpi_shard_rig *rig, struct lpi_shard_rig *left)
{
	const struct lp_sim *sim = lp_sim_of(rig->bdev);
	struct lp_bdev *bdev = NULL;
	lp_test_ok(lp_sim_image_at(sim, lp_sim_event_count(sim) - 1, NULL, 1, &bdev));
	lpi_shard_rig_init(left, bdev);
	left->index_buffer_bytes = rig->index_buffer_bytes;
	lp_test_ok(lpi_shard_rig_close(rig, true));
	lpi_shard_rig_fini(rig);
	lp_test_ok(lpi_shard_rig_open(left));
}

/* Frames that only carry what the log need not keep. */
static void carry_trim(struct lpi_shard_rig *rig)
{
	for (int i = 0; i < 3; i++) {
		lpi_shard_rig_put(rig, 100, 1, 8);
		lpi_shard_rig_sync(rig);
	}
}

/* All that was put until now is in the index's tables, and all changes of space in a record. */
static void persist(struct lpi_shard_rig *rig)
{
	while (lpi_shard_checkpoint_some(rig->shard))
		lpi_shard_rig_turn(rig);
	lpi_shard_rig_sync(rig);
	lp_test_ok(lp_kv_flush_wait(lp_shard_kv(rig->shard)));
	while (rig->shard->persisted_seq < lp_commit_inserted_seq(lp_shard_commit(rig->shard)))
		lpi_shard_rig_turn(rig);
	assert_true(lp_space_log_start(lp_shard_space(rig->shard)) >= rig->shard->persisted_seq);
}

static void wait_landed(struct lpi_shard_rig *rig)
{
	const struct lp_pending_stats *stats = lp_pending_stats(lp_shard_pending(rig->shard));
	for (int i = 0; i < 100000 && stats->versions > 0; i++)
		lpi_shard_rig_turn(rig);
	assert_int_equal(stats->versions, 0);
}

/* --- What the log must keep ------------------------------------------------------------------- */

/* The index and the space need the frame no more, but its payload is not in its place: a reader is
 * on the block. */
static void test_log_keeps_payloads(void **state)
{
	(void)state;
	struct lpi_shard_rig rig;
	struct lp_space_pin pin;
	start(&rig, 1);
	uint64_t block = lpi_shard_rig_take(&rig);
	lp_space_pin(lp_shard_space(rig.shard), &pin, (struct lp_extent){block, 1});
	lpi_shard_rig_defer(&rig, block, 77);
	lpi_shard_rig_sync(&rig);
	persist(&rig);
	carry_trim(&rig);
	assert_int_equal(lp_pending_stats(lp_shard_pending(rig.shard))->versions, 1);
	lp_space_unpin(lp_shard_space(rig.shard), &pin);
	reopen(&rig);
	assert_int_equal(lpi_shard_rig_tag(&rig, block), 77);
	finish(&rig);
}

/* Nothing is pending and no space has changed, but the index has persisted nothing: also not after
 * a recovery, which begins a new log where the frames say that it may. */
static void test_log_keeps_what_the_index_has_not(void **state)
{
	(void)state;
	struct lpi_shard_rig rig;
	start(&rig, 2);
	for (int i = 0; i < 3; i++) {
		lpi_shard_rig_put(&rig, 1, 55, 8);
		lpi_shard_rig_sync(&rig);
		carry_trim(&rig);
		reopen(&rig);
		assert_true(lpi_shard_get(rig.shard, 'K', 1) == 55);
	}
	finish(&rig);
}

/* --- Faults ----------------------------------------------------------------------------------- */

/* Payloads of frames that were done with, but still in the log, were put back by a recovery; then
 * the first commit wanted to trim the log to where it had been before. */
static void test_done_with_is_not_put_back(void **state)
{
	(void)state;
	struct lpi_shard_rig rig;
	start(&rig, 3);
	for (int i = 0; i < 8; i++) {
		lpi_shard_rig_defer(&rig, lpi_shard_rig_take(&rig), 1);
		lpi_shard_rig_sync(&rig);
	}
	wait_landed(&rig);
	persist(&rig);
	carry_trim(&rig);
	reopen(&rig);
	assert_true(lp_shard_recovery(rig.shard)->frames > 8); /* they were still there */
	assert_int_equal(lp_shard_recovery(rig.shard)->payloads, 0);
	lpi_shard_rig_put(&rig, 1, 1, 8);
	lpi_shard_rig_sync(&rig);
	finish(&rig);
}

/* The index flushed while the log was replayed, and told a shard of which not all was there. */
static void test_flush_during_replay(void **state)
{
	(void)state;
	struct lpi_shard_rig rig;
	lpi_shard_rig_init(&rig, lpi_shard_rig_store(4));
	rig.index_buffer_bytes = 16 << 20;
	lp_test_ok(lpi_shard_rig_open(&rig));
	for (uint64_t i = 1; i <= 30; i++) {
		lpi_shard_rig_put(&rig, i, i, FRAME_VALUE);
		lpi_shard_rig_sync(&rig);
	}
	rig.index_buffer_bytes = 1 << 16;
	reopen(&rig);
	struct lp_kv_stats stats;
	lp_kv_read_stats(lp_shard_kv(rig.shard), &stats);
	assert_true(stats.flush_cnt > 0);
	for (uint64_t i = 1; i <= 30; i++)
		assert_true(lpi_shard_get(rig.shard, 'K', i) == i);
	finish(&rig);
}

/* One change of space held the whole log: a record of it was made, but the index, which had just
 * been flushed, was not flushed again with the record in it. */
static void test_space_holds_the_log(void **state)
{
	(void)state;
	for (int each = 0; each < 2; each++) {
		struct lpi_shard_rig rig;
		start(&rig, 5);
		rig.index_buffer_bytes = 16 << 20;
		reopen(&rig);
		(void)lpi_shard_rig_take(&rig);
		/* Two laps of the ring. */
		for (uint64_t i = 1; i <= 300; i++) {
			if (each > 0)
				(void)lpi_shard_rig_take(&rig);
			lpi_shard_rig_put(&rig, i % 10, i, FRAME_VALUE);
			lpi_shard_rig_sync(&rig);
		}
		finish(&rig);
	}
}

/* The index's jobs are not run. */
static void put_only(struct lpi_shard_rig *rig, uint64_t value)
{
	lpi_shard_rig_put(rig, value % 10, value, FRAME_VALUE);
	(void)lp_reactor_turn(rig->reactor, true);
	(void)lp_reactor_turn(rig->reactor, true);
}

/* *left is opened with its door closed: nothing is persisted, and space has changed since the first
 * frame. */
static void open_full(struct lpi_shard_rig *left)
{
	struct lpi_shard_rig rig;
	lpi_shard_rig_init(&rig, lpi_shard_rig_store(6));
	rig.index_buffer_bytes = 16 << 20;
	lp_test_ok(lpi_shard_rig_open(&rig));
	(void)lpi_shard_rig_take(&rig);
	/* The door closes, and stays closed. */
	for (uint64_t i = 1; !rig.shard->is_door_closed; i++)
		put_only(&rig, i);
	assert_int_equal(rig.shard->persisted_seq, 0);
	power_cut(&rig, left);
	assert_int_equal(left->shard->persisted_seq, 0);
	assert_true(left->shard->is_door_closed);
}

static void expect_room(struct lpi_shard_rig *rig)
{
	struct lpi_shard_told told = {.waiter.told = lpi_shard_told};
	for (int i = 0; i < 1000; i++)
		lpi_shard_rig_turn(rig);
	assert_false(rig->shard->is_door_closed);
	lpi_shard_rig_put(rig, 1, 1, FRAME_VALUE);
	lp_commit_wait(lp_shard_commit(rig->shard), &told.waiter);
	assert_true(lpi_shard_rig_wait(rig, &told));
}

/* Nobody flushed the index of a shard that was opened with its log full: nothing was put, so
 * nothing was told. */
static void test_opened_with_a_full_log(void **state)
{
	(void)state;
	struct lpi_shard_rig left;
	open_full(&left);
	expect_room(&left);
	assert_true(left.shard->persisted_seq > 0);
	finish(&left);
}

/* The index had just flushed by itself, and the log was held by a change of space alone: its record
 * must be persisted, too, and while the door is closed no more frames come that would call for it.
 */
static void test_flushed_but_for_a_record(void **state)
{
	(void)state;
	struct lpi_shard_rig left;
	open_full(&left);
	lp_test_ok(lp_kv_flush_wait(lp_shard_kv(left.shard)));
	expect_room(&left);
	finish(&left);
}

/* The last frame before the power failed only told where the log begins: nothing of it is in the
 * index, which can never say that it has it. The log is relieved all the same, again and again. */
static void test_opened_behind_a_trim(void **state)
{
	(void)state;
	struct lpi_shard_rig rig;
	struct lpi_shard_rig left;
	struct lp_space_pin pin;
	lpi_shard_rig_init(&rig, lpi_shard_rig_store(6));
	rig.index_buffer_bytes = 16 << 20;
	lp_test_ok(lpi_shard_rig_open(&rig));
	uint64_t block = lpi_shard_rig_take(&rig);
	lp_space_pin(lp_shard_space(rig.shard), &pin, (struct lp_extent){block, 1});
	lpi_shard_rig_defer(&rig, block, 'a');
	lpi_shard_rig_sync(&rig);
	/* The payload alone holds the log's beginning; the index has not got the rest. */
	for (uint64_t i = 1; i < 2; i++)
		put_only(&rig, i);
	assert_false(lp_log_is_half(rig.shard->log));
	persist(&rig);
	for (uint64_t i = 1; !rig.shard->is_door_closed; i++)
		put_only(&rig, i);
	uint64_t put_seq = lp_commit_inserted_seq(lp_shard_commit(rig.shard));
	lp_space_unpin(lp_shard_space(rig.shard), &pin);
	for (int i = 0; i < 1000; i++)
		(void)lp_reactor_turn(rig.reactor, true);
	lp_commit_trim(lp_shard_commit(rig.shard));
	for (int i = 0; i < 2; i++)
		(void)lp_reactor_turn(rig.reactor, true);
	assert_true(lp_log_durable_seq(rig.shard->log) > put_seq);
	assert_int_equal(lp_commit_inserted_seq(lp_shard_commit(rig.shard)), put_seq);
	power_cut(&rig, &left);
	for (int i = 0; i < 1000; i++)
		lpi_shard_rig_turn(&left);
	for (uint64_t i = 1; i < 100000 && !left.shard->is_door_closed; i++)
		put_only(&left, i);
	expect_room(&left);
	finish(&left);
}

/* Records are bounded by themselves: some hundred of them lie in a block, and the ring was
 * nearly empty when there were more to put into the index again than a start has time for (rule
 * L6). */
static void test_log_of_many_records(void **state)
{
	(void)state;
	enum { MAX = 4000, EACH = 20 };
	struct lpi_shard_rig rig;
	struct lp_shard_usage usage;
	uint32_t most = 0;
	lpi_shard_rig_init(&rig, lpi_shard_rig_store(13));
	rig.index_buffer_bytes = 16 << 20;
	rig.log_records_max = MAX;
	lp_test_ok(lpi_shard_rig_open(&rig));
	for (uint64_t i = 0; i < 1500; i++) {
		for (uint64_t k = 0; k < EACH; k++)
			lpi_shard_rig_put(&rig, EACH * i + k, 1 + i, 8);
		lpi_shard_rig_sync(&rig);
		lp_shard_read_usage(rig.shard, &usage);
		most = LP_MAX(most, usage.log_needed_records);
		assert_true(usage.log_needed_blocks < usage.log_ring_blocks / 2);
	}
	assert_true(most >= MAX / 2 && most < MAX);
	/* What a start has put into the index again counts, and what is put from then on. */
	uint32_t before = usage.log_needed_records;
	lp_test_ok(lpi_shard_rig_close(&rig, true));
	rig.log_records_max = before / 2;
	lp_test_ok(lpi_shard_rig_open(&rig));
	assert_true(rig.shard->is_door_closed);
	for (int i = 0; i < 1000; i++)
		lpi_shard_rig_turn(&rig);
	lp_shard_read_usage(rig.shard, &usage);
	assert_true(usage.log_needed_records < before / 2);
	for (uint64_t i = 0; i < 1500; i++)
		assert_true(lpi_shard_get(rig.shard, 'K', EACH * i) == 1 + i);
	finish(&rig);
}

static bool may_write(struct lp_writeback_events *events, uint64_t block)
{
	(void)events;
	return block > 0;
}

static void on_extent(struct lp_writeback_events *events, struct lp_extent extent)
{
	(void)events;
	assert_true(extent.cnt > 0);
}

static void on_settled(struct lp_writeback_events *events)
{
	(void)events;
}

static void on_failed(struct lp_writeback_events *events, int err)
{
	(void)events;
	lp_test_ok(err);
}

static void write_back_all(struct lpi_shard_rig *rig, const struct lp_pending *pending)
{
	for (int i = 0; i < 100000 && lp_pending_stats(pending)->versions > 0; i++)
		(void)lp_reactor_turn(rig->reactor, true);
	assert_int_equal(lp_pending_stats(pending)->versions, 0);
}

/* On a device without a volatile cache write-back came to rest when as many blocks as call for a
 * flush were written, though more were waiting. In a shard the next frame set it going again. */
static void test_writeback_without_a_cache(void **state)
{
	(void)state;
	const uint64_t cnt = 5000;
	struct lp_sim_profile profile = lpi_bench_plain_profile(4096);
	struct lpi_shard_rig rig;
	struct lp_writeback_events events = {.may_write = may_write,
					     .begins = on_extent,
					     .ended = on_extent,
					     .settled = on_settled,
					     .failed = on_failed};
	struct lp_bdev *bdev = NULL;
	struct lp_bdev_chan *chan = NULL;
	struct lp_pending *pending = NULL;
	struct lp_writeback *writeback = NULL;
	profile.power_protected = true;
	const struct lp_sim_options options = {
		.profile = &profile, .size_bytes = LP_RIG_SIZE_BYTES, .seed = 7};
	lp_test_ok(lp_bdev_open_sim(&options, &bdev));
	assert_false(lp_bdev_caps(bdev)->volatile_cache);
	lpi_shard_rig_init(&rig, bdev);
	lp_test_ok(lp_bdev_attach(bdev, rig.reactor, &chan));
	lp_test_ok(lp_pending_new(cnt, &pending));
	const struct lp_writeback_options how = {.reactor = rig.reactor,
						 .chan = chan,
						 .pending = pending,
						 .events = &events,
						 .start_versions = 2 * cnt,
						 .wait_ns = LP_NS_PER_S};
	lp_test_ok(lp_writeback_new(&how, &writeback));
	struct lp_seg seg = {.buf = lp_buf_new(rig.bufs, 4096), .len = 4096};
	for (uint64_t i = 1; i <= cnt; i++)
		lp_test_ok(lp_pending_add(pending, 1, 2 * i, seg, 0));
	lp_pending_frame_durable(pending, 1);
	lp_writeback_hurry(writeback, UINT64_MAX);
	write_back_all(&rig, pending);
	/* As many as call for a flush; and one that comes meanwhile, for which there is time. */
	for (uint64_t i = 1; i <= 1024; i++)
		lp_test_ok(lp_pending_add(pending, 2, 2 * i, seg, 0));
	lp_pending_frame_durable(pending, 2);
	lp_writeback_hurry(writeback, 2);
	for (int i = 0; i < 3; i++)
		(void)lp_reactor_turn(rig.reactor, true);
	lp_test_ok(lp_pending_add(pending, 3, 1, seg, 0));
	lp_pending_frame_durable(pending, 3);
	lp_writeback_look(writeback);
	write_back_all(&rig, pending);
	lp_buf_put(seg.buf);
	lp_writeback_free(writeback);
	lp_pending_free(pending);
	lp_bdev_detach(chan);
	lpi_shard_rig_fini(&rig);
}

/* The last thing that the index told came to a shard that was gone. */
static void test_closed_with_news_on_the_way(void **state)
{
	(void)state;
	for (uint64_t i = 0; i < 5; i++) {
		struct lpi_shard_rig rig;
		start(&rig, 8 + i);
		lpi_shard_rig_put(&rig, 1, 1, 8);
		lpi_shard_rig_sync(&rig);
		lp_test_ok(lp_kv_flush(lp_shard_kv(rig.shard)));
		while (!atomic_load(&rig.shard->kv_msg_sent))
			assert_true(lp_shard_sim_run_one(rig.shard));
		lp_test_ok(lpi_shard_rig_close(&rig, true));
		lpi_shard_rig_fini(&rig);
	}
}

/* What was to be put into the index came to its turn when that was closed, as it is in a recovery
 * while serving. */
static void test_closed_before_the_turn_of_an_insert(void **state)
{
	(void)state;
	struct lpi_shard_rig rig;
	start(&rig, 13);
	lpi_shard_rig_put(&rig, 1, 1, 8);
	lpi_shard_rig_sync(&rig);
	while (lp_space_wants_chunk(lp_shard_space(rig.shard)) || !lpi_shard_is_quiet(rig.shard))
		lpi_shard_rig_turn(&rig);
	lp_commit_pay(lp_shard_commit(rig.shard));
	lp_commit_abort(lp_shard_commit(rig.shard));
	lp_shard_stop(rig.shard);
	assert_true(lp_shard_is_stopped(rig.shard));
	lp_shard_close_index(rig.shard);
	for (int i = 0; i < 2; i++)
		(void)lp_reactor_turn(rig.reactor, false);
	lp_test_ok(lpi_shard_rig_close(&rig, true));
	lpi_shard_rig_fini(&rig);
}

/* The same, and all the rest, with threads: RocksDB's and the helpers' news may come at any time of
 * an opening or a close. */
static void test_opened_and_closed_with_threads(void **state)
{
	(void)state;
	struct lp_bdev *bdev = NULL;
	struct lpi_shard_rig rig;
	uint64_t block = 0;
	/* What its reference counts order looks like a race there. */
	if (LP_SAN_THREAD) {
		print_message("skip: RocksDB with threads, which is not instrumented\n");
		skip();
	}
	lp_test_ok(lp_bdev_open_mem(LP_RIG_SIZE_BYTES, 4096, &bdev));
	lpi_shard_rig_mkfs(bdev, LP_RIG_LOG_BYTES);
	lpi_shard_rig_init_threads(&rig, bdev);
	for (uint64_t i = 1; i <= 30; i++) {
		lp_test_ok(lpi_shard_rig_open(&rig));
		if (block == 0)
			block = lpi_shard_rig_take(&rig);
		lpi_shard_rig_defer(&rig, block, (int)i);
		for (uint64_t k = 0; k < i % 8; k++)
			lpi_shard_rig_put(&rig, 1 + k, 10 * i + k, FRAME_VALUE);
		lpi_shard_rig_put(&rig, 0, i, 8);
		lpi_shard_rig_sync(&rig);
		if (i % 4 == 1)
			lp_test_ok(lp_kv_flush(lp_shard_kv(rig.shard)));
		lp_test_ok(lpi_shard_rig_close(&rig, i % 3 != 0));
		rig.read_only = true;
		lp_test_ok(lpi_shard_rig_open(&rig));
		assert_true(lpi_shard_get(rig.shard, 'K', 0) == i);
		assert_int_equal(lpi_shard_rig_tag(&rig, block), i);
		lp_test_ok(lpi_shard_rig_close(&rig, false));
		rig.read_only = false;
	}
	lpi_shard_rig_fini(&rig);
}

/* A close that had payloads to bring to their place asked for that in each turn, so that time, in
 * a simulation, never passed. */
static void test_closed_with_payloads(void **state)
{
	(void)state;
	const struct lp_sim_options options = {.profile = lp_sim_preset(LP_SIM_CONSUMER),
					       .size_bytes = LP_RIG_SIZE_BYTES,
					       .seed = 9};
	struct lp_bdev *bdev = NULL;
	struct lpi_shard_rig rig;
	lp_test_ok(lp_bdev_open_sim(&options, &bdev));
	lpi_shard_rig_mkfs(bdev, LP_RIG_LOG_BYTES);
	lpi_shard_rig_init(&rig, bdev);
	lp_test_ok(lpi_shard_rig_open(&rig));
	uint64_t block = lpi_shard_rig_take(&rig);
	lpi_shard_rig_defer(&rig, block, 42);
	lp_test_ok(lpi_shard_rig_close(&rig, false));
	assert_int_equal(lpi_bench_peek(bdev, block * (4096 / lp_bdev_caps(bdev)->block_bytes)),
			 42);
	lpi_shard_rig_fini(&rig);
}

/* Far more payloads went through the log than there are buffers, and were in their place long ago;
 * but the index was not flushed, so that the log had them all. It could not be opened. */
static void test_payloads_long_in_place(void **state)
{
	(void)state;
	enum { CNT = 480 };
	static uint64_t blocks[CNT];
	struct lpi_shard_rig rig;
	lpi_shard_rig_init(&rig, lpi_shard_rig_store(10));
	lpi_shard_rig_set_bufs(&rig, UINT64_C(1) << 20); /* 256 blocks */
	lp_test_ok(lpi_shard_rig_open(&rig));
	for (int i = 0; i < CNT; i++) {
		blocks[i] = lpi_shard_rig_take(&rig);
		lpi_shard_rig_defer(&rig, blocks[i], 1 + i % 200);
		lpi_shard_rig_sync(&rig);
		if (i % 32 == 31) {
			lp_writeback_hurry(rig.shard->writeback, UINT64_MAX);
			wait_landed(&rig);
		}
	}
	reopen(&rig);
	assert_int_equal(lp_shard_recovery(rig.shard)->payloads, CNT);
	for (int i = 0; i < CNT; i++)
		assert_int_equal(lpi_shard_rig_tag(&rig, blocks[i]), 1 + i % 200);
	finish(&rig);
}

/* What waits for its place holds the buffers it came in: when these are half of all it does not
 * wait for company. */
static void test_half_of_the_buffers(void **state)
{
	(void)state;
	enum { CNT = 140 };
	struct lpi_shard_rig rig;
	lpi_shard_rig_init(&rig, lpi_shard_rig_store(10));
	lpi_shard_rig_set_bufs(&rig, UINT64_C(1) << 20); /* 256 blocks */
	rig.deferred_max = 1000;
	lp_test_ok(lpi_shard_rig_open(&rig));
	for (int i = 0; i < CNT; i++)
		lpi_shard_rig_defer(&rig, lpi_shard_rig_take(&rig), 1 + i);
	lpi_shard_rig_sync(&rig);
	uint64_t start_ns = rig.clock.now_ns;
	while (lp_pending_writable(lp_shard_pending(rig.shard)) > 0)
		lpi_shard_rig_turn(&rig);
	assert_true(rig.clock.now_ns - start_ns < 50 * LP_NS_PER_MS);
	/* A few may wait. */
	lpi_shard_rig_defer(&rig, lpi_shard_rig_take(&rig), 1);
	lpi_shard_rig_sync(&rig);
	start_ns = rig.clock.now_ns;
	while (lp_pending_writable(lp_shard_pending(rig.shard)) > 0)
		lpi_shard_rig_turn(&rig);
	assert_true(rig.clock.now_ns - start_ns > 50 * LP_NS_PER_MS);
	finish(&rig);
}

/* Whoever began to wait for room or for space after the end was never told. */
static void test_waiting_after_the_end(void **state)
{
	(void)state;
	struct lpi_shard_rig rig;
	struct lpi_shard_told room = {.waiter.told = lpi_shard_told};
	struct lpi_shard_told space = {.waiter.told = lpi_shard_told};
	start(&rig, 11);
	while (lp_space_wants_chunk(lp_shard_space(rig.shard)) || !lpi_shard_is_quiet(rig.shard))
		lpi_shard_rig_turn(&rig);
	lp_commit_abort(lp_shard_commit(rig.shard));
	assert_int_equal(lp_shard_error(rig.shard), -ECANCELED);
	lp_commit_wait_room(lp_shard_commit(rig.shard), &room.waiter);
	lp_shard_wait_space(rig.shard, &space.waiter);
	assert_false(room.done || space.done); /* never inside the call */
	for (int i = 0; i < 2; i++)
		lpi_shard_rig_turn(&rig);
	assert_true(room.done && space.done);
	assert_true(room.result == -EIO && space.result == -EIO);
	lp_test_ok(lpi_shard_rig_close(&rig, true));
	lpi_shard_rig_fini(&rig);
}

/* Who waited for room was not told of it when nobody put anything: what was set aside and not used
 * filled the group for good. */
static void test_room_nobody_used(void **state)
{
	(void)state;
	const struct lp_commit_need need = {.batch_bytes = 1000};
	struct lpi_shard_rig rig;
	struct lpi_shard_told room = {.waiter.told = lpi_shard_told};
	start(&rig, 12);
	while (lp_commit_reserve(lp_shard_commit(rig.shard), &need))
		continue;
	lp_commit_wait_room(lp_shard_commit(rig.shard), &room.waiter);
	for (int i = 0; i < 2; i++)
		lpi_shard_rig_turn(&rig);
	assert_true(room.done);
	assert_int_equal(room.result, 0);
	assert_true(lp_commit_reserve(lp_shard_commit(rig.shard), &need));
	finish(&rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_log_keeps_payloads),
		cmocka_unit_test(test_log_keeps_what_the_index_has_not),
		cmocka_unit_test(test_done_with_is_not_put_back),
		cmocka_unit_test(test_flush_during_replay),
		cmocka_unit_test(test_space_holds_the_log),
		cmocka_unit_test(test_opened_with_a_full_log),
		cmocka_unit_test(test_flushed_but_for_a_record),
		cmocka_unit_test(test_opened_behind_a_trim),
		cmocka_unit_test(test_log_of_many_records),
		cmocka_unit_test(test_writeback_without_a_cache),
		cmocka_unit_test(test_closed_with_news_on_the_way),
		cmocka_unit_test(test_closed_before_the_turn_of_an_insert),
		cmocka_unit_test(test_opened_and_closed_with_threads),
		cmocka_unit_test(test_closed_with_payloads),
		cmocka_unit_test(test_payloads_long_in_place),
		cmocka_unit_test(test_half_of_the_buffers),
		cmocka_unit_test(test_waiting_after_the_end),
		cmocka_unit_test(test_room_nobody_used),
	};
	return lp_test_main(tests, "store/shard/faults");
}
