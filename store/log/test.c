/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: the writing side: one write-through per frame and nothing else, acknowledgement in
 * sequence, limits, room and its reserve, moving the start, failure, close; and mkfs (rules L3, L4,
 * L6, L7, S7).
 * Method: a simulated device, whose event log says exactly what was asked of it, and its faults. */
#include "store/log/log_rig_test.h"

#define RING 64u

static struct lpi_rig *lpi_rig_ready(uint64_t ring_blocks, enum lp_sim_preset preset, uint64_t seed)
{
	struct lp_log_options options = lpi_rig_options(ring_blocks);
	struct lpi_rig *rig = lpi_rig_new(lp_sim_preset(preset), &options, seed);
	lp_test_ok(lpi_rig_recover(rig));
	return rig;
}

/* A frame of one block, that needs no id. */
static int append_records(struct lpi_rig *rig, uint32_t record_cnt,
			  struct lpi_rig_frame **ret_frame)
{
	struct lpi_rig_frame *frame = lpi_rig_frame_find(rig);
	memset(&frame->frame, 0, sizeof(frame->frame));
	frame->rig = rig;
	frame->cand = NULL;
	frame->frame.complete = lpi_rig_frame_done;
	frame->frame.record_cnt = record_cnt;
	int err = lp_log_append(rig->log, &frame->frame);
	frame->busy = err == 0;
	if (frame->busy && rig->is_fresh)
		lpi_rig_check_flight(rig, frame);
	*ret_frame = frame;
	return err;
}

static int append_small(struct lpi_rig *rig, struct lpi_rig_frame **ret_frame)
{
	return append_records(rig, 0, ret_frame);
}

static void append_records_wait(struct lpi_rig *rig, uint32_t record_cnt)
{
	struct lpi_rig_frame *frame = NULL;
	lp_test_ok(append_records(rig, record_cnt, &frame));
	while (frame->busy)
		lpi_rig_turn(rig);
	lp_test_ok(frame->frame.result);
}

static void append_small_wait(struct lpi_rig *rig)
{
	append_records_wait(rig, 0);
}

static uint64_t count_ops(const struct lpi_rig *rig, uint64_t from, enum lp_bdev_opcode opcode)
{
	uint64_t cnt = 0;
	for (uint64_t i = from; i < lpi_rig_events(rig); i++) {
		struct lp_sim_event event;
		lp_sim_event_get(rig->sim, i, &event);
		cnt += event.type == LP_SIM_SUBMIT && event.opcode == opcode;
	}
	return cnt;
}

/* --- mkfs ----------------------------------------------------------------------------------------
 */

/* Rule S7: every block of the area is written, so that a sparse image cannot run out of space
 * later; and when the host says no, it is said here. */
static void test_s7_format_writes_all(void **state)
{
	(void)state;
	struct lp_log_options options = lpi_rig_options(700);
	options.limits.frame_blocks = 16;
	struct lp_sim_options sim_options = {.profile = lp_sim_preset(LP_SIM_CONSUMER),
					     .size_bytes = lpi_rig_device_bytes(&options),
					     .seed = 1};
	struct lp_bdev *bdev = NULL;
	lp_test_ok(lp_bdev_open_sim(&sim_options, &bdev));
	struct lp_sim *sim = lp_sim_of(bdev);
	lp_test_ok(lp_log_format(bdev, &options.area, &options.limits, LPI_RIG_SALT));
	static uint8_t written[800];
	for (uint64_t i = 0; i < lp_sim_event_count(sim); i++) {
		struct lp_sim_event event;
		lp_sim_event_get(sim, i, &event);
		for (uint64_t at = 0; at < event.length_bytes; at += LP_BLOCK_BYTES)
			written[(event.offset_bytes + at) / LP_BLOCK_BYTES] = 1;
	}
	for (uint64_t block = 0; block < LPI_RIG_AREA_BLOCK + lp_log_area_blocks(700) + 1; block++)
		assert_int_equal(written[block],
				 block >= LPI_RIG_AREA_BLOCK &&
					 block < LPI_RIG_AREA_BLOCK + lp_log_area_blocks(700));
	struct lp_sim_rule rule = {.fault = LP_SIM_ENOSPC,
				   .offset_bytes = (LPI_RIG_AREA_BLOCK + 600) * LP_BLOCK_BYTES,
				   .length_bytes = LP_BLOCK_BYTES};
	(void)lp_sim_rule_add(sim, &rule);
	lp_test_err(-ENOSPC, lp_log_format(bdev, &options.area, &options.limits, LPI_RIG_SALT));
	lp_bdev_close(bdev);
}

/* mkfs over an old log: at each cut there is the old log or none, afterwards the new one. */
static void test_format_again(void **state)
{
	(void)state;
	struct lpi_rig *rig = lpi_rig_ready(RING, LP_SIM_HOSTILE, 1);
	for (int i = 0; i < 5; i++)
		append_small_wait(rig);
	uint64_t begin = lpi_rig_events(rig);
	lp_test_ok(lp_log_format(rig->bdev, &rig->options.area, &rig->options.limits, 1));
	struct lp_sim_cutter *cutter = NULL;
	lp_test_ok(lp_sim_cutter_new(rig->sim, NULL, &cutter));
	while (lp_sim_cutter_event(cutter) < begin)
		assert_true(lp_sim_cutter_next(cutter));
	bool more = true;
	for (uint64_t seed = 1; more; seed++) {
		bool is_end = lp_sim_cutter_event(cutter) == lpi_rig_events(rig);
		struct lpi_rig *after =
			lpi_rig_on(lp_sim_cutter_cut(cutter, seed), &rig->options, 1);
		int err = lpi_rig_recover_at(after, 0, false);
		assert_true(err == 0 || err == -EBADMSG || (!is_end && err == -EUCLEAN));
		/* Incarnation 2 was that of the old log. */
		bool is_new = err == 0 && lp_log_incarnation(after->log) == 2;
		if (err == 0)
			assert_int_equal(after->recovery.last_seq, is_new ? 0 : 5);
		if (is_end)
			assert_true(is_new);
		lpi_rig_free(after);
		more = lp_sim_cutter_next(cutter);
	}
	lp_sim_cutter_free(cutter);
	lpi_rig_free(rig);
}

static void test_limits_checked(void **state)
{
	(void)state;
	struct lp_log_options good = lpi_rig_options(RING);
	struct lp_log_options bad[9];
	lp_test_ok(lp_log_check_limits(&good.area, &good.limits));
	for (size_t i = 0; i < LP_ARRAY_SIZE(bad); i++)
		bad[i] = good;
	bad[0].area.ring_blocks = LP_LOG_RING_BLOCKS_MIN - 1;
	bad[1].limits.frame_blocks = RING / 8 + 1;
	bad[2].limits.meta_blocks = good.limits.frame_blocks + 1;
	bad[3].limits.flight_frames = 0;
	bad[4].limits.flight_blocks = 2 * good.limits.frame_blocks - 1;
	bad[5].limits.flight_blocks = RING / 2 + 1;
	bad[6].limits.frame_blocks = 0;
	bad[7].limits.flight_frames = LP_LOG_FLIGHT_FRAMES_MAX + 1;
	bad[8].limits.meta_blocks = 0;
	for (size_t i = 0; i < LP_ARRAY_SIZE(bad); i++)
		lp_test_err(-EINVAL, lp_log_check_limits(&bad[i].area, &bad[i].limits));
	struct lp_bdev *bdev = NULL;
	lp_test_ok(lp_bdev_open_mem(lpi_rig_device_bytes(&good) - 2 * LP_BLOCK_BYTES, 4096, &bdev));
	lp_test_err(-EINVAL, lp_log_format(bdev, &good.area, &good.limits, 0));
	lp_bdev_close(bdev);
}

/* --- One write per frame
 * -------------------------------------------------------------------------- */

/* Rule L3: a frame is one write-through, whatever it holds, and needs neither flush nor metadata.
 */
static void test_l3_one_write_through(void **state)
{
	(void)state;
	struct lpi_rig *rig = lpi_rig_ready(4096, LP_SIM_CONSUMER, 1);
	uint64_t from = lpi_rig_events(rig);
	for (int i = 0; i < 40; i++)
		lpi_rig_append_wait(rig);
	lpi_rig_drain(rig);
	assert_int_equal(rig->acked_cnt, 40);
	assert_int_equal(count_ops(rig, from, LP_BDEV_WRITE_THROUGH), 40);
	assert_int_equal(lpi_rig_events(rig) - from, 80);
	lpi_rig_free(rig);
}

/* Rule L3: a process dies, the next one recovers, then the power fails. What recovery found in the
 * device's cache it has made durable before it said so. */
static void test_l3_recovery_flushes(void **state)
{
	(void)state;
	unsigned beyond_cnt = 0;
	for (uint64_t seed = 1; seed < 40; seed++) {
		struct lpi_rig *rig = lpi_rig_ready(RING, LP_SIM_CONSUMER, seed);
		struct lpi_rig_model *model = calloc(1, sizeof(*model));
		assert_non_null(model);
		rig->model = model;
		for (int i = 0; i < 5; i++)
			lp_test_ok(lpi_rig_append(rig));
		struct lp_sim_cutter *cutter = NULL;
		lp_test_ok(lp_sim_cutter_new(rig->sim, NULL, &cutter));
		while (lp_sim_cutter_next(cutter))
			;
		struct lpi_rig *second =
			lpi_rig_on(lp_sim_cutter_crash(cutter, seed), &rig->options, seed);
		second->sim = lp_sim_of(second->bdev);
		lp_test_ok(lpi_rig_recover_at(second, 0, false));
		beyond_cnt += second->recovery.last_seq > 0;
		struct lp_bdev *cut = lp_sim_power_cut(second->sim, seed);
		struct lpi_rig *third = lpi_rig_on(cut, &rig->options, seed);
		lp_test_ok(lpi_rig_recover_at(third, 0, false));
		assert_int_equal(third->recovery.last_seq, second->recovery.last_seq);
		lpi_rig_free(third);
		lpi_rig_free(second);
		lp_sim_cutter_free(cutter);
		lpi_rig_drain(rig);
		lpi_rig_free(rig);
		free(model);
	}
	assert_true(beyond_cnt > 5);
}

/* Store I5: completions come in any order, acknowledgements in sequence (lpi_rig_frame_done looks).
 */
static void test_in_sequence(void **state)
{
	(void)state;
	struct lpi_rig *rig = lpi_rig_ready(RING, LP_SIM_DISK, 3);
	uint64_t from = lpi_rig_events(rig);
	lpi_rig_run(rig, 200);
	lpi_rig_drain(rig);
	bool reordered = false;
	uint64_t newest = 0;
	for (uint64_t i = from; i < lpi_rig_events(rig); i++) {
		struct lp_sim_event event;
		lp_sim_event_get(rig->sim, i, &event);
		if (event.type != LP_SIM_COMPLETE)
			continue;
		reordered = reordered || event.op_seq < newest;
		newest = LP_MAX(newest, event.op_seq);
	}
	assert_true(reordered);
	assert_true(rig->acked_cnt >= 200);
	lpi_rig_free(rig);
}

static void test_frame_sizes(void **state)
{
	(void)state;
	struct lpi_rig *rig = lpi_rig_ready(RING, LP_SIM_CONSUMER, 1);
	struct lpi_rig_frame *frame = lpi_rig_frame_find(rig);
	uint64_t head = LP_LOG_HEAD_SIZE;
	assert_int_equal(lp_log_frame_blocks(0, 0, 0), 1);
	assert_int_equal(lp_log_frame_blocks(LP_BLOCK_BYTES - head, 0, 0), 1);
	assert_int_equal(lp_log_frame_blocks(LP_BLOCK_BYTES - head + 1, 0, 0), 2);
	assert_int_equal(lp_log_frame_blocks(0, 250, 0), 1);
	assert_int_equal(lp_log_frame_blocks(0, 251, 0), 2);
	assert_int_equal(lp_log_frame_blocks(0, 0, 125), 126);
	assert_int_equal(lp_log_frame_blocks(0, 0, 126), 128);
	assert_int_equal(lp_log_frame_blocks(UINT64_MAX, 0, 0), UINT64_MAX);
	assert_true(lp_log_frame_blocks(UINT32_MAX, UINT32_MAX, UINT32_MAX) > UINT32_MAX);
	/* 3 blocks of meta part are allowed here. */
	static uint8_t batch[3 * LP_BLOCK_BYTES];
	struct iovec iov = {batch, sizeof(batch) - head};
	memset(&frame->frame, 0, sizeof(frame->frame));
	frame->frame.batch = &iov;
	frame->frame.batch_cnt = 1;
	frame->frame.complete = lpi_rig_frame_done;
	frame->rig = rig;
	lp_test_ok(lp_log_append(rig->log, &frame->frame));
	frame->busy = true;
	lpi_rig_drain(rig);
	iov.iov_len++;
	lp_test_err(-EMSGSIZE, lp_log_append(rig->log, &frame->frame));
	frame->frame.data_cnt = 8; /* 9 blocks are more than an eighth of the ring */
	iov.iov_len = 1;
	lp_test_err(-EMSGSIZE, lp_log_append(rig->log, &frame->frame));
	assert_int_equal(lp_log_next_seq(rig->log), 2);
	lpi_rig_free(rig);
}

/* --- Limits, room
 * ----------------------------------------------------------------------------------- */

static void test_flight_limits(void **state)
{
	(void)state;
	struct lpi_rig *rig = lpi_rig_ready(RING, LP_SIM_CONSUMER, 1);
	struct lpi_rig_frame *frame = NULL;
	for (uint32_t i = 0; i < rig->options.limits.flight_frames; i++)
		lp_test_ok(append_small(rig, &frame));
	lp_test_err(-EAGAIN, append_small(rig, &frame));
	rig->waiter.ready = lpi_rig_woken;
	lp_log_wait(rig->log, &rig->waiter);
	assert_false(rig->woken);
	while (!rig->woken)
		lpi_rig_turn(rig);
	lpi_rig_drain(rig);
	/* Not called again, and not if cancelled. */
	rig->woken = false;
	lp_test_ok(append_small(rig, &frame));
	lp_log_wait(rig->log, &rig->waiter);
	lp_log_wait_cancel(&rig->waiter);
	lpi_rig_drain(rig);
	assert_false(rig->woken);
	struct lp_log_usage usage;
	lp_log_read_usage(rig->log, &usage);
	assert_int_equal(usage.flight_frames, 0);
	assert_int_equal(usage.flight_blocks, 0);
	assert_int_equal(usage.held_frames, 7);
	lpi_rig_free(rig);
}

/* Blocks in flight count too, with what is left empty at the end of the ring. */
static void test_flight_blocks(void **state)
{
	(void)state;
	struct lp_log_options options = lpi_rig_options(RING);
	options.limits.flight_blocks = 16;
	options.limits.flight_frames = 64;
	struct lpi_rig *rig = lpi_rig_new(lp_sim_preset(LP_SIM_CONSUMER), &options, 1);
	lp_test_ok(lpi_rig_recover(rig));
	uint32_t most = 0;
	for (int i = 0; i < 300; i++) {
		struct lp_log_usage usage;
		lpi_rig_append_wait(rig);
		lp_log_read_usage(rig->log, &usage);
		assert_true(usage.flight_blocks <= 16);
		most = LP_MAX(most, usage.flight_blocks);
	}
	assert_true(most >= 14);
	lpi_rig_drain(rig);
	lpi_rig_free(rig);
}

/* Of rule L6: the log says when it is half full and full; rule L4: then frames that only trim still
 * find room, again and again, and free what they need. */
static void test_l4_reserve(void **state)
{
	(void)state;
	struct lpi_rig *rig = lpi_rig_ready(RING, LP_SIM_CONSUMER, 1);
	struct lpi_rig_frame *frame = NULL;
	struct lp_log_usage usage;
	int err;
	assert_false(lp_log_is_half(rig->log));
	assert_false(lp_log_is_full(rig->log));
	for (unsigned i = 0; i < RING - LP_LOG_RESERVE_BLOCKS; i++) {
		lp_log_read_usage(rig->log, &usage);
		assert_int_equal(usage.needed_blocks, i);
		assert_int_equal(usage.needed_frames, i);
		assert_int_equal(lp_log_is_half(rig->log), i >= usage.ring_blocks / 2);
		assert_int_equal(lp_log_is_full(rig->log), i > usage.ring_blocks - 8);
		append_small_wait(rig);
	}
	for (unsigned round = 1; round <= 3 * LP_LOG_RESERVE_BLOCKS; round++) {
		lp_test_err(-EAGAIN, append_small(rig, &frame));
		assert_true(lp_log_is_full(rig->log));
		assert_false(lp_log_needs_trim_frame(rig->log));
		lp_log_trim(rig->log, 1 + round);
		assert_true(lp_log_needs_trim_frame(rig->log));
		for (unsigned tries = 0; (err = lpi_rig_append_id(rig, 0, NULL)) == -EAGAIN;
		     tries++) {
			assert_true(tries < 100);
			lpi_rig_turn(rig);
		}
		lp_test_ok(err);
		assert_false(lp_log_needs_trim_frame(rig->log));
	}
	lpi_rig_drain(rig);
	/* One block for each that was spent, no more. */
	lp_test_err(-EAGAIN, append_small(rig, &frame));
	lp_log_trim(rig->log, lp_log_durable_seq(rig->log) + 1);
	lp_test_ok(lpi_rig_append_id(rig, 0, NULL));
	lpi_rig_drain(rig);
	append_small_wait(rig);
	lp_log_read_usage(rig->log, &usage);
	assert_int_equal(usage.held_frames, 2);
	assert_false(lp_log_is_half(rig->log));
	lpi_rig_free(rig);
}

/* Of rule L6: records count as blocks do, from the oldest frame that is needed. */
static void test_l6_records(void **state)
{
	(void)state;
	enum { MAX = 40 };
	struct lp_log_options options = lpi_rig_options(RING);
	options.limits.records_max = MAX;
	struct lpi_rig *rig = lpi_rig_new(lp_sim_preset(LP_SIM_CONSUMER), &options, 1);
	struct lp_log_usage usage;
	lp_test_ok(lpi_rig_recover(rig));
	for (uint32_t i = 0; i < MAX / 4; i++) {
		lp_log_read_usage(rig->log, &usage);
		assert_int_equal(usage.needed_records, 4 * i);
		assert_int_equal(lp_log_is_half(rig->log), 4 * i >= MAX / 2);
		assert_int_equal(lp_log_is_tight(rig->log), 4 * i >= MAX * 3 / 4);
		append_records_wait(rig, 4);
	}
	assert_true(usage.needed_blocks < usage.ring_blocks / 2);
	lp_log_trim(rig->log, lp_log_durable_seq(rig->log) - 2);
	lp_log_read_usage(rig->log, &usage);
	assert_int_equal(usage.needed_records, 3 * 4);
	assert_false(lp_log_is_half(rig->log));
	lp_log_trim(rig->log, lp_log_durable_seq(rig->log) + 1);
	lp_log_read_usage(rig->log, &usage);
	assert_int_equal(usage.needed_records, 0);
	lpi_rig_free(rig);
}

/* The start moves by an eighth of the ring at a time, or on demand, and only when a durable frame
 * carries it. */
static void test_start_moves(void **state)
{
	(void)state;
	struct lpi_rig *rig = lpi_rig_ready(RING, LP_SIM_CONSUMER, 1);
	struct lp_log_usage usage;
	for (unsigned i = 0; i < 10; i++)
		append_small_wait(rig);
	/* One that is in flight already does not carry it. */
	struct lpi_rig_frame *frame = NULL;
	lp_test_ok(append_small(rig, &frame));
	lp_log_trim(rig->log, 8);
	lp_log_advance(rig->log);
	lpi_rig_drain(rig);
	lp_log_read_usage(rig->log, &usage);
	assert_int_equal(usage.held_frames, 11);
	uint64_t from = lpi_rig_events(rig);
	lp_log_advance(rig->log);
	lpi_rig_drain(rig);
	assert_int_equal(lpi_rig_events(rig), from); /* no frame carries it */
	assert_true(lp_log_needs_trim_frame(rig->log));
	append_small_wait(rig);
	lpi_rig_drain(rig);
	lp_log_read_usage(rig->log, &usage);
	assert_int_equal(usage.held_frames, 5); /* 8 to 12 */
	assert_int_equal(usage.held_blocks, 5);
	assert_false(lp_log_needs_trim_frame(rig->log));
	/* Less than an eighth: not worth a frame of its own, nor a superblock. */
	lp_log_trim(rig->log, 10);
	assert_false(lp_log_needs_trim_frame(rig->log));
	append_small_wait(rig);
	lpi_rig_drain(rig);
	lp_log_read_usage(rig->log, &usage);
	assert_int_equal(usage.held_frames, 6);
	assert_int_equal(usage.needed_frames, 4);
	for (unsigned i = 0; i < 6; i++)
		append_small_wait(rig);
	lp_log_trim(rig->log, 16);
	assert_false(lp_log_needs_trim_frame(rig->log)); /* 6 blocks more than is carried */
	lp_log_trim(rig->log, 18);
	assert_true(lp_log_needs_trim_frame(rig->log)); /* 8 */
	append_small_wait(rig);
	lpi_rig_drain(rig);
	lp_log_read_usage(rig->log, &usage);
	assert_int_equal(usage.held_frames, 3);
	lpi_rig_free(rig);
}

/* No write ever touches what the durable superblock may still need. */
static void test_start_is_never_overwritten(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed < 6; seed++) {
		struct lpi_rig *rig = lpi_rig_ready(RING, LP_SIM_DISK, seed);
		struct lp_log_usage usage;
		for (int i = 0; i < 400; i++) {
			lpi_rig_append_wait(rig);
			lp_log_read_usage(rig->log, &usage);
			assert_true(usage.held_blocks <= RING);
			assert_true(usage.needed_blocks <= usage.held_blocks);
			if (i % 7 == 0)
				lp_log_trim(rig->log, lp_log_durable_seq(rig->log) + 1);
		}
		lpi_rig_drain(rig);
		lpi_rig_free(rig);
	}
}

/* --- Failure
 * ---------------------------------------------------------------------------------------- */

/* Rule L7: the third of six fails: two are acknowledged, four get its error, in sequence, and
 * nothing more is written. */
static void test_l7_failed_frame(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed < 30; seed++) {
		struct lpi_rig *rig = lpi_rig_ready(RING, LP_SIM_DISK, seed);
		struct lpi_rig_frame *frames[6];
		struct lp_sim_rule rule = {.fault = LP_SIM_EIO,
					   .opcode_mask = LP_SIM_OP(LP_BDEV_WRITE_THROUGH),
					   .skip_cnt = 2,
					   .fire_cnt = 1};
		(void)lp_sim_rule_add(rig->sim, &rule);
		for (int i = 0; i < 6; i++)
			lp_test_ok(append_small(rig, &frames[i]));
		rig->waiter.ready = lpi_rig_woken;
		lp_log_wait(rig->log, &rig->waiter);
		lpi_rig_drain(rig);
		for (int i = 0; i < 6; i++)
			lp_test_err(i < 2 ? 0 : -EIO, frames[i]->frame.result);
		assert_true(rig->woken);
		assert_int_equal(rig->acked_cnt, 2);
		assert_int_equal(lp_log_durable_seq(rig->log), 2);
		lp_test_err(-EIO, lp_log_error(rig->log));
		uint64_t from = lpi_rig_events(rig);
		lp_test_err(-EIO, append_small(rig, &frames[0]));
		lp_log_trim(rig->log, 3);
		lp_log_advance(rig->log);
		assert_false(lp_log_needs_trim_frame(rig->log));
		lp_test_err(-EIO, lpi_rig_close(rig));
		assert_int_equal(lpi_rig_events(rig), from);
		lpi_rig_free(rig);
	}
}

/* Rule L7: two fail, in either order of completion: the lower one counts. */
static void test_l7_two_failures(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed < 30; seed++) {
		struct lpi_rig *rig = lpi_rig_ready(RING, LP_SIM_DISK, seed);
		struct lpi_rig_frame *frames[6];
		for (uint32_t skip = 1; skip < 5; skip += 3) {
			struct lp_sim_rule rule = {.fault = skip == 1 ? LP_SIM_ENOSPC : LP_SIM_EIO,
						   .opcode_mask = LP_SIM_OP(LP_BDEV_WRITE_THROUGH),
						   .skip_cnt = skip,
						   .fire_cnt = 1};
			(void)lp_sim_rule_add(rig->sim, &rule);
		}
		for (int i = 0; i < 6; i++)
			lp_test_ok(append_small(rig, &frames[i]));
		lpi_rig_drain(rig);
		lp_test_ok(frames[0]->frame.result);
		lp_test_err(-ENOSPC, frames[1]->frame.result);
		lp_test_err(-EIO, frames[4]->frame.result);
		for (int i = 2; i < 6; i++)
			assert_true(frames[i]->frame.result < 0);
		lpi_rig_free(rig);
	}
}

/* Rule L7: a failed superblock fails what is not yet acknowledged. */
static void test_l7_failed_superblock(void **state)
{
	(void)state;
	struct lpi_rig *rig = lpi_rig_ready(RING, LP_SIM_CONSUMER, 1);
	struct lpi_rig_frame *frame = NULL;
	struct lp_sim_rule rule = {.fault = LP_SIM_EIO,
				   .offset_bytes = 0,
				   .length_bytes = (LPI_RIG_AREA_BLOCK + 2) * LP_BLOCK_BYTES};
	for (unsigned i = 0; i < 10; i++)
		append_small_wait(rig);
	lp_log_trim(rig->log, 10);
	(void)lp_sim_rule_add(rig->sim, &rule);
	append_small_wait(rig); /* carries it; the superblock goes out */
	struct lp_sim_rule slow = {.fault = LP_SIM_SLOW, .arg = LP_NS_PER_S};
	(void)lp_sim_rule_add(rig->sim, &slow);
	lp_test_ok(append_small(rig, &frame));
	lpi_rig_drain(rig);
	lp_test_err(-EIO, frame->frame.result);
	lp_test_err(-EIO, lp_log_error(rig->log));
	assert_int_equal(lp_log_durable_seq(rig->log), 11);
	lp_test_err(-EIO, append_small(rig, &frame));
	lpi_rig_free(rig);
}

/* Rule L7: reopened, the log holds what was acknowledged; of the rest, a part from its beginning.
 */
static void test_l7_reopen(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed < 60; seed++) {
		struct lpi_rig *rig = lpi_rig_ready(RING, LP_SIM_HOSTILE, seed);
		struct lpi_rig_model *model = calloc(1, sizeof(*model));
		assert_non_null(model);
		rig->model = model;
		struct lp_sim_rule rule = {.fault = LP_SIM_EIO,
					   .opcode_mask = LP_SIM_OP(LP_BDEV_WRITE_THROUGH),
					   .skip_cnt = (uint32_t)seed % 5,
					   .fire_cnt = 1};
		(void)lp_sim_rule_add(rig->sim, &rule);
		while (lpi_rig_append(rig) == 0)
			;
		lpi_rig_drain(rig);
		assert_true(rig->failed_cnt > 0);
		uint64_t events = lpi_rig_events(rig);
		struct lp_bdev *cut = lp_sim_power_cut(rig->sim, seed);
		struct lpi_rig *after = lpi_rig_on(cut, &rig->options, seed);
		lp_test_ok(lpi_rig_recover_at(after, 0, false));
		lpi_rig_check_got(after, model, events);
		lpi_rig_free(after);
		lpi_rig_free(rig);
		free(model);
	}
}

/* Recovery's own write and flush fail: nothing is changed that matters. */
static void test_recovery_fails(void **state)
{
	(void)state;
	for (int which = 0; which < 2; which++) {
		struct lpi_rig *rig = lpi_rig_ready(RING, LP_SIM_CONSUMER, 1);
		append_small_wait(rig);
		lp_test_ok(lpi_rig_close(rig));
		struct lp_bdev *cut = lp_sim_power_cut(rig->sim, 1);
		struct lpi_rig *after = lpi_rig_on(cut, &rig->options, 1);
		struct lp_sim_rule rule = {
			.fault = LP_SIM_EIO,
			.opcode_mask =
				LP_SIM_OP(which == 0 ? LP_BDEV_FLUSH : LP_BDEV_WRITE_THROUGH)};
		(void)lp_sim_rule_add(lp_sim_of(cut), &rule);
		lp_test_err(-EIO, lpi_rig_recover_at(after, 0, false));
		lp_sim_rules_clear(lp_sim_of(cut));
		lp_bdev_trust(cut); /* opened anew */
		lp_log_free(after->log);
		after->got_cnt = 0;
		after->recovered = false;
		lp_test_ok(lp_log_new(&after->options, &after->log));
		lp_test_ok(lpi_rig_recover_at(after, 0, false));
		assert_int_equal(after->recovery.last_seq, 1);
		lpi_rig_free(after);
		lpi_rig_free(rig);
	}
}

/* --- Close
 * -------------------------------------------------------------------------------------------- */

static void test_close(void **state)
{
	(void)state;
	struct lpi_rig *rig = lpi_rig_ready(RING, LP_SIM_CONSUMER, 1);
	for (unsigned i = 0; i < 20; i++)
		append_small_wait(rig);
	lp_log_trim(rig->log, 15);
	lp_log_advance(rig->log);
	struct lpi_rig_frame *frame = NULL;
	lp_test_ok(append_small(rig, &frame));
	while (frame->busy)
		lpi_rig_turn(rig);
	assert_false(lp_log_is_idle(rig->log)); /* its superblock is under way; close waits */
	lp_test_ok(lpi_rig_close(rig));
	struct lp_bdev *cut = lp_sim_power_cut(rig->sim, 1);
	struct lpi_rig *after = lpi_rig_on(cut, &rig->options, 1);
	lp_test_ok(lpi_rig_recover_at(after, 14, false));
	assert_true(after->recovery.was_clean);
	assert_int_equal(after->recovery.first_seq, 15);
	assert_int_equal(after->recovery.last_seq, 21);
	assert_int_equal(after->recovery.oldest_needed, 15);
	assert_int_equal(lp_log_incarnation(after->log), 3);
	lpi_rig_free(after);
	lpi_rig_free(rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_s7_format_writes_all),
		cmocka_unit_test(test_format_again),
		cmocka_unit_test(test_limits_checked),
		cmocka_unit_test(test_l3_one_write_through),
		cmocka_unit_test(test_l3_recovery_flushes),
		cmocka_unit_test(test_in_sequence),
		cmocka_unit_test(test_frame_sizes),
		cmocka_unit_test(test_flight_limits),
		cmocka_unit_test(test_flight_blocks),
		cmocka_unit_test(test_l4_reserve),
		cmocka_unit_test(test_l6_records),
		cmocka_unit_test(test_start_moves),
		cmocka_unit_test(test_start_is_never_overwritten),
		cmocka_unit_test(test_l7_failed_frame),
		cmocka_unit_test(test_l7_two_failures),
		cmocka_unit_test(test_l7_failed_superblock),
		cmocka_unit_test(test_l7_reopen),
		cmocka_unit_test(test_recovery_fails),
		cmocka_unit_test(test_close),
	};
	return lp_test_main(tests, "store/log");
}
