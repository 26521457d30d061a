/* SPDX-License-Identifier: Apache-2.0 */
/* Test rig: a log on a simulated device, frames that can be checked, and a model of them.
 *
 * Only *_test.c files include this. A frame's contents follow from its id, which is in its batch.
 * A frame that only trims has id 0. The model says what may be delivered. It knows each frame
 * that was ever submitted, as a candidate for its sequence number, with the device events at
 * which it was submitted, acknowledged and declared void by a recovery.
 */
#ifndef LP_STORE_LOG_LOG_RIG_TEST_H
#define LP_STORE_LOG_LOG_RIG_TEST_H

#include "base/testing/test.h"

#include "base/crc32c.h"
#include "base/prng.h"
#include "store/device/sim/bdev_sim.h"
#include "store/log/log.h"

#define LPI_RIG_AREA_BLOCK 3u
#define LPI_RIG_SALT       UINT64_C(0x5a17)
#define LPI_RIG_CANDS_MAX  2048u
#define LPI_RIG_FRAMES_MAX 24u
#define LPI_RIG_DATA_MAX   8u
#define LPI_RIG_BATCH_MAX  9000u
#define LPI_RIG_NEVER      UINT64_MAX

struct lpi_rig_cand {
	uint64_t seq;
	uint64_t id;
	uint64_t submit_event; /* it may be delivered after so many events */
	uint64_t ack_event;    /* it must be */
	uint64_t void_event;   /* it must not be any more */
	uint64_t ring_block;   /* where it stands */
	uint64_t trim_seq;     /* what was not needed any more when it was submitted */
};

struct lpi_rig_model {
	struct lpi_rig_cand cands[LPI_RIG_CANDS_MAX];
	size_t cand_cnt;
};

/* A frame with all it points to. */
struct lpi_rig_frame {
	struct lp_log_frame frame;
	struct lpi_rig *rig;
	struct lpi_rig_cand *cand;
	uint64_t id;
	uint64_t footprint; /* blocks from the end of the frame before to its own */
	bool busy;
	struct iovec batch[2];
	uint8_t batch_bytes[LPI_RIG_BATCH_MAX];
	struct lp_log_change changes[8];
	struct lp_log_data data[LPI_RIG_DATA_MAX];
	_Alignas(4096) uint8_t blocks[LPI_RIG_DATA_MAX][LP_BLOCK_BYTES];
};

struct lpi_rig {
	struct lp_clock_sim clock;
	struct lp_reactor *reactor;
	struct lp_bdev *bdev;
	struct lp_sim *sim; /* NULL if it is none */
	struct lp_bdev_chan *chan;
	struct lp_log_options options;
	struct lp_log *log;
	struct lpi_rig_model *model;
	struct lpi_rig_frame *frames; /* LPI_RIG_FRAMES_MAX */
	struct lp_prng prng;
	uint64_t next_id;
	bool no_data;
	bool is_fresh;      /* the log began at ring block 0 */
	uint64_t end_block; /* then: behind the newest frame */
	int frame_err;      /* what the frame callback is to return */

	struct lp_log_recovery recovery;
	bool recovered;
	uint64_t got_id[LPI_RIG_CANDS_MAX];
	uint64_t got_block[LPI_RIG_CANDS_MAX];
	uint64_t got_blocks[LPI_RIG_CANDS_MAX];
	uint64_t got_acked[LPI_RIG_CANDS_MAX];
	uint64_t got_first;
	uint64_t got_cnt;
	uint64_t acked_cnt;
	uint64_t last_acked;
	uint64_t failed_cnt;
	struct lp_log_waiter waiter;
	bool woken;
	bool closed;
};

static inline struct lp_log_options lpi_rig_options(uint64_t ring_blocks)
{
	struct lp_log_options options = {
		.area = {.block = LPI_RIG_AREA_BLOCK, .ring_blocks = ring_blocks, .shard = 5},
		.limits = {.flight_frames = 6,
			   .flight_blocks = (uint32_t)ring_blocks / 2,
			   .frame_blocks = (uint32_t)ring_blocks / 8,
			   .meta_blocks = 3},
	};
	memset(options.area.store_uuid, 0xab, sizeof(options.area.store_uuid));
	return options;
}

static inline uint64_t lpi_rig_device_bytes(const struct lp_log_options *options)
{
	return (options->area.block + lp_log_area_blocks(options->area.ring_blocks) + 1) *
	       LP_BLOCK_BYTES;
}

/* Takes the device over. */
static inline struct lpi_rig *lpi_rig_on(struct lp_bdev *bdev, const struct lp_log_options *options,
					 uint64_t seed)
{
	struct lpi_rig *rig = calloc(1, sizeof(*rig));
	assert_non_null(rig);
	lp_clock_sim_init(&rig->clock, LP_NS_PER_S, 0);
	struct lp_reactor_options reactor_options = {
		.name = "log", .clock = &rig->clock.clock, .sim = &rig->clock};
	lp_test_ok(lp_reactor_new(&reactor_options, &rig->reactor));
	lp_test_ok(lp_reactor_start(rig->reactor));
	rig->bdev = bdev;
	lp_test_ok(lp_bdev_attach(bdev, rig->reactor, &rig->chan));
	rig->options = *options;
	rig->options.reactor = rig->reactor;
	rig->options.chan = rig->chan;
	lp_prng_init(&rig->prng, seed);
	rig->next_id = seed << 32 | 1;
	lp_test_ok(lp_log_new(&rig->options, &rig->log));
	return rig;
}

/* A new device with a fresh log on it, whose events begin after mkfs. */
static inline struct lpi_rig *lpi_rig_new(const struct lp_sim_profile *profile,
					  const struct lp_log_options *options, uint64_t seed)
{
	struct lp_sim_options sim_options = {
		.profile = profile, .size_bytes = lpi_rig_device_bytes(options), .seed = seed};
	struct lp_bdev *bdev = NULL;
	lp_test_ok(lp_bdev_open_sim(&sim_options, &bdev));
	lp_test_ok(lp_log_format(bdev, &options->area, &options->limits, LPI_RIG_SALT));
	struct lpi_rig *rig = lpi_rig_on(bdev, options, seed);
	rig->sim = lp_sim_of(bdev);
	rig->is_fresh = true;
	lp_sim_trim_log(rig->sim);
	return rig;
}

static inline void lpi_rig_free(struct lpi_rig *rig)
{
	lp_log_free(rig->log);
	lp_bdev_detach(rig->chan);
	lp_bdev_close(rig->bdev);
	lp_reactor_free(rig->reactor);
	free(rig->frames);
	free(rig);
}

static inline uint64_t lpi_rig_events(const struct lpi_rig *rig)
{
	return rig->sim == NULL ? 0 : lp_sim_event_count(rig->sim);
}

/* --- Frames ----------------------------------------------------------------------------------- */

static inline void lpi_rig_frame_fill(struct lpi_rig_frame *frame, uint64_t id, bool no_data)
{
	struct lp_prng prng;
	lp_prng_init(&prng, id);
	size_t bytes = lp_prng_chance(&prng, 1, 3) ? lp_prng_between(&prng, 8, LPI_RIG_BATCH_MAX)
						   : lp_prng_between(&prng, 8, 600);
	memset(&frame->frame, 0, sizeof(frame->frame));
	for (size_t i = 0; i < bytes; i++)
		frame->batch_bytes[i] = (uint8_t)lp_prng_u64(&prng);
	memcpy(frame->batch_bytes, &id, sizeof(id));
	size_t cut = lp_prng_below(&prng, bytes + 1);
	frame->batch[0] = (struct iovec){frame->batch_bytes, cut};
	frame->batch[1] = (struct iovec){frame->batch_bytes + cut, bytes - cut};
	frame->frame.batch = frame->batch;
	frame->frame.batch_cnt = 2;
	frame->frame.change_cnt = (uint32_t)lp_prng_below(&prng, 8);
	frame->frame.changes = frame->changes;
	for (uint32_t i = 0; i < frame->frame.change_cnt; i++)
		frame->changes[i] = (struct lp_log_change){lp_prng_u64(&prng), i, (uint32_t)id};
	bool has_data = !no_data && lp_prng_chance(&prng, 1, 2);
	frame->frame.data_cnt = has_data ? (uint32_t)lp_prng_between(&prng, 1, 4) : 0;
	frame->frame.data = frame->data;
	for (uint32_t i = 0; i < frame->frame.data_cnt; i++) {
		/* Not always side by side. */
		uint8_t *block = frame->blocks[lp_prng_chance(&prng, 1, 2) ? i : i + 4];
		memset(block, (int)(id + i), LP_BLOCK_BYTES);
		memcpy(block, &id, sizeof(id));
		frame->data[i].about = (struct lp_log_payload){
			id, i, id ^ i, lp_crc32c(0, block, LP_BLOCK_BYTES), 7};
		frame->data[i].block = block;
	}
	frame->id = id;
}

static inline void lpi_rig_frame_done(struct lp_log_frame *base)
{
	struct lpi_rig_frame *frame = LP_CONTAINER_OF(base, struct lpi_rig_frame, frame);
	struct lpi_rig *rig = frame->rig;
	assert_true(frame->busy);
	frame->busy = false;
	if (base->result == 0) {
		/* Rule L7: nothing is acknowledged behind a failure; store I5: in sequence. */
		assert_int_equal(rig->failed_cnt, 0);
		assert_int_equal(base->seq, lp_log_durable_seq(rig->log));
		assert_true(rig->last_acked == 0 || base->seq == rig->last_acked + 1);
		rig->last_acked = base->seq;
		rig->acked_cnt++;
		if (frame->cand != NULL)
			frame->cand->ack_event = lpi_rig_events(rig);
	} else {
		rig->failed_cnt++;
	}
}

static inline struct lpi_rig_frame *lpi_rig_frame_find(struct lpi_rig *rig)
{
	if (rig->frames == NULL) {
		rig->frames = aligned_alloc(4096, LPI_RIG_FRAMES_MAX * sizeof(*rig->frames));
		assert_non_null(rig->frames);
		memset(rig->frames, 0, LPI_RIG_FRAMES_MAX * sizeof(*rig->frames));
	}
	size_t idx = 0;
	while (rig->frames[idx].busy) {
		idx++;
		assert_true(idx < LPI_RIG_FRAMES_MAX);
	}
	return &rig->frames[idx];
}

static inline uint64_t lpi_rig_ring_block(const struct lpi_rig_frame *frame)
{
	return frame->frame.op.offset_bytes / LP_BLOCK_BYTES - LPI_RIG_AREA_BLOCK - LP_LOG_SLOT_CNT;
}

/* Recovery's window rests on this: what is in flight lies within so many blocks. */
static inline void lpi_rig_check_flight(struct lpi_rig *rig, struct lpi_rig_frame *newest)
{
	uint64_t ring_blocks = rig->options.area.ring_blocks;
	uint64_t at = lpi_rig_ring_block(newest);
	uint64_t blocks = newest->frame.op.length_bytes / LP_BLOCK_BYTES;
	uint64_t sum = 0;
	newest->footprint = (at + ring_blocks - rig->end_block) % ring_blocks + blocks;
	rig->end_block = (at + blocks) % ring_blocks;
	for (size_t i = 0; i < LPI_RIG_FRAMES_MAX; i++)
		sum += rig->frames[i].busy ? rig->frames[i].footprint : 0;
	assert_true(sum <= rig->options.limits.flight_blocks);
}

/* id 0: a frame that only trims. */
static inline int lpi_rig_append_id(struct lpi_rig *rig, uint64_t id,
				    struct lpi_rig_frame **ret_frame)
{
	struct lpi_rig_frame *frame = lpi_rig_frame_find(rig);
	if (id == 0)
		memset(&frame->frame, 0, sizeof(frame->frame));
	else
		lpi_rig_frame_fill(frame, id, rig->no_data);
	frame->frame.trims_only = id == 0;
	frame->frame.complete = lpi_rig_frame_done;
	frame->rig = rig;
	frame->cand = NULL;
	int err = lp_log_append(rig->log, &frame->frame);
	if (err < 0)
		return err;
	frame->busy = true;
	if (rig->is_fresh)
		lpi_rig_check_flight(rig, frame);
	if (rig->model != NULL) {
		assert_true(rig->model->cand_cnt < LPI_RIG_CANDS_MAX);
		frame->cand = &rig->model->cands[rig->model->cand_cnt++];
		*frame->cand = (struct lpi_rig_cand){
			.seq = frame->frame.seq,
			.id = id,
			.submit_event = lpi_rig_events(rig),
			.ack_event = LPI_RIG_NEVER,
			.void_event = LPI_RIG_NEVER,
			.ring_block = lpi_rig_ring_block(frame),
			.trim_seq = frame->frame.oldest_needed,
		};
	}
	if (ret_frame != NULL)
		*ret_frame = frame;
	return 0;
}

static inline int lpi_rig_append(struct lpi_rig *rig)
{
	int err = lpi_rig_append_id(rig, rig->next_id, NULL);
	rig->next_id += err == 0;
	return err;
}

static inline void lpi_rig_turn(struct lpi_rig *rig)
{
	assert_int_not_equal(lp_reactor_turn(rig->reactor, true), 0);
}

static inline void lpi_rig_drain(struct lpi_rig *rig)
{
	while (!lp_log_is_idle(rig->log))
		lpi_rig_turn(rig);
}

static inline void lpi_rig_woken(struct lp_log_waiter *waiter)
{
	LP_CONTAINER_OF(waiter, struct lpi_rig, waiter)->woken = true;
}

/* Appends until it is taken, giving up all that can be given up if there is no other way. */
static inline void lpi_rig_append_wait(struct lpi_rig *rig)
{
	int err;
	while ((err = lpi_rig_append(rig)) == -EAGAIN) {
		if (lp_log_needs_trim_frame(rig->log) && lpi_rig_append_id(rig, 0, NULL) == 0)
			continue;
		if (lp_log_is_idle(rig->log)) {
			lp_log_trim(rig->log, lp_log_durable_seq(rig->log) + 1);
			assert_true(lp_log_needs_trim_frame(rig->log));
			continue;
		}
		rig->woken = false;
		rig->waiter.ready = lpi_rig_woken;
		lp_log_wait(rig->log, &rig->waiter);
		while (!rig->woken)
			lpi_rig_turn(rig);
	}
	lp_test_ok(err);
}

/* Many frames, several in flight, trimmed behind. Ends with frames in flight. */
static inline void lpi_rig_run(struct lpi_rig *rig, unsigned frame_cnt)
{
	for (unsigned i = 0; i < frame_cnt; i++) {
		lpi_rig_append_wait(rig);
		if (lp_prng_chance(&rig->prng, 1, 3))
			(void)lp_reactor_turn(rig->reactor, true);
		if (lp_prng_chance(&rig->prng, 1, 4)) {
			struct lp_log_usage usage;
			lp_log_read_usage(rig->log, &usage);
			uint64_t oldest = lp_log_next_seq(rig->log) - usage.needed_frames;
			uint64_t newest = lp_log_durable_seq(rig->log) + 1;
			lp_log_trim(rig->log, lp_prng_between(&rig->prng, oldest, newest));
		}
		if (lp_prng_chance(&rig->prng, 1, 16))
			lp_log_advance(rig->log);
		if (lp_log_needs_trim_frame(rig->log) && lp_prng_chance(&rig->prng, 1, 2))
			(void)lpi_rig_append_id(rig, 0, NULL);
	}
}

/* --- Recovery ----------------------------------------------------------------------------------
 */

/* All of a view against what its id says. */
static inline uint64_t lpi_rig_check_view(const struct lp_log_view *view, bool no_data)
{
	static struct lpi_rig_frame *want;
	uint64_t id = 0;
	if (view->head.batch_bytes == 0) {
		assert_int_equal(view->head.change_cnt + view->head.payload_cnt, 0);
		return 0;
	}
	if (want == NULL)
		want = aligned_alloc(4096, sizeof(*want));
	assert_non_null(want);
	assert_true(view->head.batch_bytes >= sizeof(id));
	memcpy(&id, view->batch, sizeof(id));
	lpi_rig_frame_fill(want, id, no_data);
	assert_int_equal(view->head.batch_bytes, want->batch[0].iov_len + want->batch[1].iov_len);
	assert_memory_equal(view->batch, want->batch_bytes, view->head.batch_bytes);
	assert_int_equal(view->head.change_cnt, want->frame.change_cnt);
	for (uint32_t i = 0; i < view->head.change_cnt; i++) {
		struct lp_log_change change;
		lp_log_view_change(view, i, &change);
		assert_memory_equal(&change, &want->changes[i], sizeof(change));
	}
	assert_int_equal(view->head.payload_cnt, want->frame.data_cnt);
	for (uint32_t i = 0; i < view->head.payload_cnt; i++) {
		struct lp_log_payload about;
		const uint8_t *block = lp_log_view_payload(view, i, &about);
		assert_memory_equal(&about, &want->data[i].about, sizeof(about));
		assert_memory_equal(block, want->data[i].block, LP_BLOCK_BYTES);
	}
	return id;
}

static inline int lpi_rig_got_frame(struct lp_log_recovery *recovery,
				    const struct lp_log_view *view)
{
	struct lpi_rig *rig = LP_CONTAINER_OF(recovery, struct lpi_rig, recovery);
	if (rig->got_cnt == 0)
		rig->got_first = view->head.seq;
	assert_int_equal(view->head.seq, rig->got_first + rig->got_cnt);
	assert_true(rig->got_cnt < LPI_RIG_CANDS_MAX);
	rig->got_id[rig->got_cnt] = lpi_rig_check_view(view, rig->no_data);
	rig->got_acked[rig->got_cnt] = view->head.acked_seq;
	rig->got_block[rig->got_cnt] = view->head.ring_block;
	rig->got_blocks[rig->got_cnt++] = view->head.total_blocks;
	return rig->frame_err;
}

static inline void lpi_rig_got_all(struct lp_log_recovery *recovery)
{
	LP_CONTAINER_OF(recovery, struct lpi_rig, recovery)->recovered = true;
}

static inline int lpi_rig_recover_at(struct lpi_rig *rig, uint64_t applied, bool read_only)
{
	rig->recovery.applied = applied;
	rig->recovery.read_only = read_only;
	rig->recovery.frame = lpi_rig_got_frame;
	rig->recovery.complete = lpi_rig_got_all;
	lp_log_recover(rig->log, &rig->recovery);
	while (!rig->recovered)
		lpi_rig_turn(rig);
	return rig->recovery.result;
}

/* What the index has applied, as far as the model knows: all that was trimmed away. */
static inline uint64_t lpi_rig_applied(const struct lpi_rig_model *model, uint64_t event)
{
	uint64_t applied = 0;
	for (size_t i = 0; model != NULL && i < model->cand_cnt; i++) {
		const struct lpi_rig_cand *cand = &model->cands[i];
		if (cand->submit_event <= event && cand->trim_seq > applied + 1)
			applied = cand->trim_seq - 1;
	}
	return applied;
}

static inline int lpi_rig_recover(struct lpi_rig *rig)
{
	return lpi_rig_recover_at(rig, lpi_rig_applied(rig->model, LPI_RIG_NEVER), false);
}

/* What was delivered, against what may and must be after so many events of the device. */
static inline void lpi_rig_check_got(const struct lpi_rig *rig, const struct lpi_rig_model *model,
				     uint64_t event)
{
	uint64_t last = rig->recovery.last_seq;
	assert_int_equal(rig->recovery.frame_cnt, rig->got_cnt);
	assert_int_equal(last + 1, rig->recovery.first_seq + rig->got_cnt);
	assert_true(rig->recovery.first_seq <= lpi_rig_applied(model, event) + 1);
	for (uint64_t i = 0; i < rig->got_cnt; i++) {
		bool may = false;
		for (size_t j = 0; j < model->cand_cnt && !may; j++) {
			const struct lpi_rig_cand *cand = &model->cands[j];
			may = cand->seq == rig->got_first + i && cand->id == rig->got_id[i] &&
			      cand->submit_event <= event && cand->void_event > event;
		}
		assert_true(may);
	}
	for (size_t j = 0; j < model->cand_cnt; j++) {
		const struct lpi_rig_cand *cand = &model->cands[j];
		if (cand->ack_event > event || cand->void_event <= event)
			continue;
		assert_true(cand->seq <= last);
		if (cand->seq >= rig->recovery.first_seq)
			assert_int_equal(rig->got_id[cand->seq - rig->got_first], cand->id);
	}
}

/* The model of a device that was cut after so many events: those are its past. After a recovery
 * that completed it holds what was delivered as acknowledged, and all else void. */
static inline void lpi_rig_model_cut(const struct lpi_rig_model *from, uint64_t event,
				     struct lpi_rig_model *ret_model)
{
	ret_model->cand_cnt = 0;
	for (size_t i = 0; i < from->cand_cnt; i++) {
		struct lpi_rig_cand cand = from->cands[i];
		if (cand.submit_event > event || cand.void_event <= event)
			continue;
		cand.submit_event = 0;
		cand.ack_event = cand.ack_event <= event ? 0 : LPI_RIG_NEVER;
		cand.void_event = LPI_RIG_NEVER;
		ret_model->cands[ret_model->cand_cnt++] = cand;
	}
}

static inline void lpi_rig_model_recovered(struct lpi_rig_model *model, const struct lpi_rig *rig)
{
	for (size_t i = 0; i < model->cand_cnt; i++) {
		struct lpi_rig_cand *cand = &model->cands[i];
		if (cand->seq < rig->recovery.first_seq)
			continue;
		bool got = cand->seq <= rig->recovery.last_seq &&
			   rig->got_id[cand->seq - rig->got_first] == cand->id;
		if (!got)
			cand->void_event = lpi_rig_events(rig);
		else if (cand->ack_event == LPI_RIG_NEVER)
			cand->ack_event = lpi_rig_events(rig);
	}
}

static inline void lpi_rig_closed(struct lp_log_closing *closing);

struct lpi_rig_closing {
	struct lp_log_closing closing;
	bool done;
};

static inline void lpi_rig_closed(struct lp_log_closing *closing)
{
	LP_CONTAINER_OF(closing, struct lpi_rig_closing, closing)->done = true;
}

static inline int lpi_rig_close(struct lpi_rig *rig)
{
	struct lpi_rig_closing closing = {.closing.complete = lpi_rig_closed};
	lp_log_close(rig->log, &closing.closing);
	assert_false(closing.done);
	while (!closing.done)
		lpi_rig_turn(rig);
	return closing.closing.result;
}

#endif
