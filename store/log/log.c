/* SPDX-License-Identifier: Apache-2.0 */
/* The writing side of the log.
 *
 * Append: 1. room, slots and limits are checked, nothing is changed yet; 2. a frame takes its
 * number and place, and the meta part is encoded into a slot; 3. meta part and payload blocks go
 * out as one write-through. Completions mark the frame done; those at the front of the flight are
 * acknowledged, so a frame waits for its predecessors (store I5).
 *
 * Room: the ring is free from head_at up to start_at + ring_blocks, where start_at belongs to the
 * durable superblock. It moves in three steps: trim (the caller does not need it) -> carried (a
 * frame says so and is durable) -> a superblock with the new start is durable. Frames that only
 * trim are one block long, and find LP_LOG_RESERVE_BLOCKS that no other frame takes (rule L4).
 * Each of these moves the start over at least one frame, so at least over the block that it
 * takes itself: the reserve cannot be used up for good.
 *
 * Failure (rule L7): failed_seq is the lowest frame that is not to be acknowledged. A failed frame
 * sets it to itself, a failed superblock to the first that is not acknowledged yet. Frames before
 * it that are still in flight may yet succeed and are then acknowledged.
 */
#include "store/log/log.h"

#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"
#include "store/log/impl.h"

#define FORMAT_BYTES (UINT64_C(1) << 20)

/* --- Limits and mkfs ----------------------------------------------------------------------------
 */

int lp_log_check_limits(const struct lp_log_area *area, const struct lp_log_limits *limits)
{
	if (area->ring_blocks < LP_LOG_RING_BLOCKS_MIN ||
	    area->ring_blocks > LP_LOG_RING_BLOCKS_MAX || area->block > LP_LOG_RING_BLOCKS_MAX)
		return -EINVAL;
	if (limits->frame_blocks == 0 || limits->frame_blocks > LP_LOG_FRAME_BLOCKS_MAX ||
	    limits->frame_blocks > area->ring_blocks / 8)
		return -EINVAL;
	if (limits->meta_blocks == 0 || limits->meta_blocks > limits->frame_blocks)
		return -EINVAL;
	if (limits->flight_frames == 0 || limits->flight_frames > LP_LOG_FLIGHT_FRAMES_MAX)
		return -EINVAL;
	/* The longest frame may leave a gap almost as long before it. */
	if (limits->flight_blocks / 2 < limits->frame_blocks ||
	    limits->flight_blocks > area->ring_blocks / 2)
		return -EINVAL;
	return 0;
}

static bool lies_within(const struct lp_bdev *bdev, const struct lp_log_area *area)
{
	uint64_t end = area->block + lp_log_area_blocks(area->ring_blocks);
	return end <= lp_bdev_caps(bdev)->size_bytes / LP_BLOCK_BYTES;
}

static int write_zeros(struct lp_bdev *bdev, const struct lp_log_area *area, void *zeros)
{
	uint64_t at = area->block * LP_BLOCK_BYTES;
	uint64_t end = at + lp_log_area_blocks(area->ring_blocks) * LP_BLOCK_BYTES;
	/* The slots by themselves: an old superblock must not outlive what it points to. */
	int err = lp_bdev_write_sync(bdev, zeros, LP_LOG_SLOT_CNT * LP_BLOCK_BYTES, at, true);
	at += LP_LOG_SLOT_CNT * LP_BLOCK_BYTES;
	for (; err == 0 && at < end; at += FORMAT_BYTES)
		err = lp_bdev_write_sync(bdev, zeros, LP_MIN(FORMAT_BYTES, end - at), at, false);
	return err < 0 ? err : lp_bdev_flush_sync(bdev);
}

static int write_first_supers(struct lp_bdev *bdev, const struct lp_log_area *area,
			      struct lp_log_super *super, void *block)
{
	int err = 0;
	for (uint64_t seq = 1; err == 0 && seq <= LP_LOG_SLOT_CNT; seq++) {
		super->slot_seq = seq;
		lp_log_super_write(super, block);
		uint64_t slot = area->block + seq % LP_LOG_SLOT_CNT;
		err = lp_bdev_write_sync(bdev, block, LP_BLOCK_BYTES, slot * LP_BLOCK_BYTES, true);
	}
	return err;
}

int lp_log_format(struct lp_bdev *bdev, const struct lp_log_area *area,
		  const struct lp_log_limits *limits, uint64_t salt)
{
	int err = lp_log_check_limits(area, limits);
	if (err < 0 || !lies_within(bdev, area))
		return -EINVAL;
	void *buf = aligned_alloc(LP_BLOCK_BYTES, FORMAT_BYTES);
	if (buf == NULL)
		return -ENOMEM;
	struct lp_log_super super = {
		.shard = area->shard,
		.area_block = area->block,
		.ring_blocks = area->ring_blocks,
		.salt = salt,
		.incarnation = 1,
		.first_seq = 1,
		.start_seq = 1,
		.frame_blocks_max = limits->frame_blocks,
		.flight_frames_max = limits->flight_frames,
		.flight_blocks_max = limits->flight_blocks,
	};
	memcpy(super.store_uuid, area->store_uuid, sizeof(super.store_uuid));
	memset(buf, 0, FORMAT_BYTES);
	err = write_zeros(bdev, area, buf);
	if (err == 0)
		err = write_first_supers(bdev, area, &super, buf);
	free(buf);
	return err;
}

/* --- Birth and death ----------------------------------------------------------------------------
 */

static void slots_init(struct lp_log *log)
{
	const struct lp_log_limits *limits = &log->options.limits;
	size_t meta_bytes = limits->meta_blocks * (size_t)LP_BLOCK_BYTES;
	for (uint32_t i = 0; i < limits->flight_frames; i++) {
		struct lpi_log_slot *slot = &log->slots[i];
		slot->meta = log->metas + i * meta_bytes;
		slot->iov = &log->iovs[i * (size_t)limits->frame_blocks];
		slot->next = log->free_slots;
		log->free_slots = slot;
	}
}

static int buffers_new(struct lp_log *log)
{
	const struct lp_log_limits *limits = &log->options.limits;
	size_t frames = limits->flight_frames;
	uint64_t place_cnt = 1;
	while (place_cnt <= log->options.area.ring_blocks)
		place_cnt *= 2;
	log->places_mask = place_cnt - 1;
	log->places = calloc(place_cnt, sizeof(*log->places));
	log->slots = calloc(frames, sizeof(*log->slots));
	log->iovs = calloc(frames * limits->frame_blocks, sizeof(*log->iovs));
	log->metas = aligned_alloc(LP_BLOCK_BYTES, frames * limits->meta_blocks * LP_BLOCK_BYTES);
	log->super_block = aligned_alloc(LP_BLOCK_BYTES, LP_LOG_SLOT_CNT * LP_BLOCK_BYTES);
	if (log->places == NULL || log->slots == NULL || log->iovs == NULL || log->metas == NULL ||
	    log->super_block == NULL)
		return -ENOMEM;
	slots_init(log);
	return 0;
}

int lp_log_new(const struct lp_log_options *options, struct lp_log **ret_log)
{
	int err = lp_log_check_limits(&options->area, &options->limits);
	if (err < 0 || !lies_within(lp_bdev_of(options->chan), &options->area))
		return -EINVAL;
	struct lp_log *log = calloc(1, sizeof(*log));
	if (log == NULL)
		return -ENOMEM;
	log->magic = LPI_LOG_MAGIC;
	log->options = *options;
	log->failed_seq = UINT64_MAX;
	lpi_log_frames_init(&log->flight);
	lpi_log_waiters_init(&log->waiters);
	err = buffers_new(log);
	if (err < 0) {
		lp_log_free(log);
		return err;
	}
	*ret_log = log;
	return 0;
}

bool lp_log_is_idle(const struct lp_log *log)
{
	return log->flight_frames == 0 && !log->super_in_flight &&
	       log->state != LPI_LOG_RECOVERING && log->closing == NULL;
}

void lp_log_free(struct lp_log *log)
{
	if (log == NULL)
		return;
	LP_ASSERT(log->magic == LPI_LOG_MAGIC);
	LP_ASSERT(lp_log_is_idle(log));
	LP_ASSERT(lpi_log_waiters_is_empty(&log->waiters));
	log->magic = 0;
	lpi_log_scan_free(log);
	free(log->places);
	free(log->slots);
	free(log->iovs);
	free(log->metas);
	free(log->super_block);
	free(log);
}

/* --- Waiting and failing
 * -------------------------------------------------------------------------- */

void lp_log_wait(struct lp_log *log, struct lp_log_waiter *waiter)
{
	LP_ASSERT(log->state == LPI_LOG_READY && log->closing == NULL);
	lpi_log_waiters_push_back(&log->waiters, waiter);
}

void lp_log_wait_cancel(struct lp_log_waiter *waiter)
{
	lpi_log_waiters_remove(waiter);
}

/* Those who wait again from ready() are not called again now. */
static void wake(struct lp_log *log)
{
	struct lpi_log_waiters now;
	struct lp_log_waiter *waiter;
	lpi_log_waiters_init(&now);
	lpi_log_waiters_splice_back(&now, &log->waiters);
	while ((waiter = lpi_log_waiters_pop_front(&now)) != NULL)
		waiter->ready(waiter);
}

/* Rule L7. The first error is the log's; from_seq can only come down. */
static void fail(struct lp_log *log, int err, uint64_t from_seq)
{
	LP_ASSERT(err < 0 && from_seq > log->durable_seq);
	log->failed_seq = LP_MIN(log->failed_seq, from_seq);
	if (log->state == LPI_LOG_ERROR)
		return;
	log->state = LPI_LOG_ERROR;
	log->err = err;
}

/* --- The superblock
 * ------------------------------------------------------------------------------- */

void lpi_log_super_prep(struct lp_log *log, const struct lp_log_super *super, struct lp_bdev_op *op)
{
	uint64_t slot = log->options.area.block + super->slot_seq % LP_LOG_SLOT_CNT;
	LP_ASSERT(super->slot_seq == log->super.slot_seq + 1);
	lp_log_super_write(super, log->super_block);
	lp_bdev_op_prep(op, LP_BDEV_WRITE_THROUGH, log->super_block, LP_BLOCK_BYTES,
			slot * LP_BLOCK_BYTES);
}

/* Where recovery would begin if it began with seq. */
static struct lpi_log_place place_of(const struct lp_log *log, uint64_t seq)
{
	LP_ASSERT(seq >= log->super.start_seq && seq <= log->next_seq);
	if (seq == log->next_seq)
		return lpi_log_head_place(log, log->head_at);
	return log->places[seq & log->places_mask];
}

static void close_step(struct lp_log *log);
static void advance_if_worth(struct lp_log *log);

static void super_complete(struct lp_bdev_op *op)
{
	struct lp_log *log = LP_CONTAINER_OF(op, struct lp_log, super_op);
	LP_ASSERT(log->super_in_flight);
	log->super_in_flight = false;
	if (op->result < 0) {
		fail(log, op->result, log->durable_seq + 1);
	} else {
		LP_ASSERT(log->super_next_at >= log->start_at);
		log->super = log->super_next;
		log->start_at = log->super_next_at;
	}
	if (log->closing != NULL) {
		close_step(log);
		return;
	}
	advance_if_worth(log);
	wake(log);
}

static void super_submit(struct lp_log *log, uint32_t flags)
{
	struct lpi_log_place start = place_of(log, log->carried_durable);
	struct lp_log_super *next = &log->super_next;
	*next = log->super;
	next->slot_seq++;
	next->start_seq = log->carried_durable;
	next->start_block = lpi_log_ring_block(log, start.at);
	next->start_chain = start.chain;
	next->acked_seq = log->durable_seq;
	next->flags = flags;
	log->super_next_at = start.at;
	log->super_in_flight = true;
	log->super_wanted = false;
	lpi_log_super_prep(log, next, &log->super_op);
	log->super_op.complete = super_complete;
	lp_bdev_submit(log->options.chan, &log->super_op);
}

/* The start follows what durable frames carry when an eighth of the ring is to be had, or when
 * somebody wants it. */
static void advance_if_worth(struct lp_log *log)
{
	if (log->state != LPI_LOG_READY || log->super_in_flight || log->closing != NULL)
		return;
	if (log->carried_durable == log->super.start_seq)
		return;
	uint64_t gain = place_of(log, log->carried_durable).at - log->start_at;
	if (log->super_wanted || log->short_of_room || gain >= log->options.area.ring_blocks / 8)
		super_submit(log, 0);
}

void lp_log_advance(struct lp_log *log)
{
	LP_ASSERT(log->state == LPI_LOG_READY || log->state == LPI_LOG_ERROR);
	log->super_wanted = log->trim_seq > log->super.start_seq;
	advance_if_worth(log);
}

/* --- Append ------------------------------------------------------------------------------------
 */

uint64_t lp_log_frame_blocks(uint64_t batch_bytes, uint32_t change_cnt, uint32_t data_cnt)
{
	if (batch_bytes > UINT32_MAX)
		return UINT64_MAX;
	uint64_t meta_bytes = lp_log_parts_bytes((uint32_t)batch_bytes, change_cnt, data_cnt);
	return lp_bytes_to_blocks_up(meta_bytes) + data_cnt;
}

static uint64_t batch_bytes_of(const struct lp_log_frame *frame)
{
	uint64_t bytes = 0;
	for (uint32_t i = 0; i < frame->batch_cnt; i++)
		bytes += frame->batch[i].iov_len;
	return bytes;
}

/* What stays empty before a frame so that it does not cross the end of the ring. */
static uint64_t gap_before(const struct lp_log *log, uint64_t blocks)
{
	uint64_t rest = log->options.area.ring_blocks - lpi_log_ring_block(log, log->head_at);
	return blocks <= rest ? 0 : rest;
}

static bool has_room(const struct lp_log *log, uint64_t footprint, bool trims_only)
{
	uint64_t ring_blocks = log->options.area.ring_blocks;
	uint64_t reserve = trims_only ? 0 : LP_LOG_RESERVE_BLOCKS;
	uint64_t end = log->head_at + footprint - log->start_at;
	return end + reserve <= ring_blocks;
}

static void meta_encode(struct lp_log *log, const struct lp_log_frame *frame,
			struct lp_log_head *head, uint8_t *meta)
{
	uint8_t *to = meta + LP_LOG_HEAD_SIZE;
	for (uint32_t i = 0; i < frame->data_cnt; i++, to += LP_LOG_PAYLOAD_SIZE) {
		const struct lp_log_data *data = &frame->data[i];
		LP_ASSERT_SLOW(lp_crc32c(0, data->block, LP_BLOCK_BYTES) == data->about.crc);
		lp_log_payload_encode(&data->about, to);
	}
	for (uint32_t i = 0; i < frame->change_cnt; i++, to += LP_LOG_CHANGE_SIZE)
		lp_log_change_encode(&frame->changes[i], to);
	for (uint32_t i = 0; i < frame->batch_cnt; i++) {
		if (frame->batch[i].iov_len != 0)
			memcpy(to, frame->batch[i].iov_base, frame->batch[i].iov_len);
		to += frame->batch[i].iov_len;
	}
	size_t used = (size_t)(to - meta);
	LP_ASSERT(used == lp_log_meta_bytes(head));
	memset(to, 0, lp_log_meta_blocks(head) * LP_BLOCK_BYTES - used);
	LP_ASSERT(log->chain == head->chain);
	lp_log_head_write(head, meta);
}

static void frame_complete(struct lp_bdev_op *op);

/* One gathered write; payload blocks that lie side by side in memory are one piece. */
static void frame_submit(struct lp_log_frame *frame, const struct lp_log_head *head)
{
	struct lp_log *log = frame->log;
	struct iovec *iov = frame->slot->iov;
	uint32_t cnt = 0;
	iov[0] = (struct iovec){.iov_base = frame->slot->meta,
				.iov_len = lp_log_meta_blocks(head) * LP_BLOCK_BYTES};
	for (uint32_t i = 0; i < frame->data_cnt; i++) {
		/* iovec has no const; a write does not change it. */
		uint8_t *block = (uint8_t *)(uintptr_t)frame->data[i].block;
		if (cnt > 0 && (uint8_t *)iov[cnt].iov_base + iov[cnt].iov_len == block)
			iov[cnt].iov_len += LP_BLOCK_BYTES;
		else
			iov[++cnt] = (struct iovec){.iov_base = block, .iov_len = LP_BLOCK_BYTES};
	}
	LP_ASSERT(cnt < log->options.limits.frame_blocks);
	frame->op.opcode = LP_BDEV_WRITE_THROUGH;
	frame->op.offset_bytes = lpi_log_offset_bytes(log, head->ring_block);
	frame->op.length_bytes = head->total_blocks * LP_BLOCK_BYTES;
	frame->op.iov = iov;
	frame->op.iov_cnt = cnt + 1;
	frame->op.complete = frame_complete;
	lp_bdev_submit(log->options.chan, &frame->op);
}

static struct lp_log_head head_for(struct lp_log *log, const struct lp_log_frame *frame,
				   uint64_t at)
{
	return (struct lp_log_head){
		.shard = log->identity.shard,
		.tag = log->identity.tag,
		.incarnation = log->super.incarnation,
		.seq = log->next_seq,
		.oldest_needed = LP_MIN(log->trim_seq, log->next_seq),
		.acked_seq = log->durable_seq,
		.slot_seq = log->super.slot_seq,
		.ring_block = lpi_log_ring_block(log, at),
		.chain = log->chain,
		.batch_bytes = (uint32_t)batch_bytes_of(frame),
		.change_cnt = frame->change_cnt,
		.payload_cnt = frame->data_cnt,
	};
}

static void frame_enter(struct lp_log *log, struct lp_log_frame *frame, uint64_t gap,
			uint64_t blocks)
{
	uint64_t at = log->head_at + gap;
	struct lp_log_head head = head_for(log, frame, at);
	frame->log = log;
	frame->done = false;
	frame->seq = head.seq;
	frame->oldest_needed = head.oldest_needed;
	frame->blocks = (uint32_t)(gap + blocks);
	frame->slot = log->free_slots;
	log->free_slots = frame->slot->next;
	*lpi_log_place(log, head.seq) = lpi_log_head_place(log, at);
	meta_encode(log, frame, &head, frame->slot->meta);
	LP_ASSERT(head.total_blocks == blocks);
	log->chain = head.crc;
	log->record += frame->record_cnt;
	log->head_at = at + blocks;
	log->next_seq++;
	log->carried_seq = head.oldest_needed;
	log->flight_frames++;
	log->flight_blocks += frame->blocks;
	lpi_log_frames_push_back(&log->flight, frame);
	frame_submit(frame, &head);
}

int lp_log_append(struct lp_log *log, struct lp_log_frame *frame)
{
	const struct lp_log_limits *limits = &log->options.limits;
	LP_ASSERT(log->magic == LPI_LOG_MAGIC && log->closing == NULL);
	LP_ASSERT(lp_reactor_is_mine(log->options.reactor));
	if (log->state == LPI_LOG_ERROR)
		return -EIO;
	LP_ASSERT(log->state == LPI_LOG_READY);
	uint64_t blocks =
		lp_log_frame_blocks(batch_bytes_of(frame), frame->change_cnt, frame->data_cnt);
	if (blocks > limits->frame_blocks || blocks - frame->data_cnt > limits->meta_blocks)
		return -EMSGSIZE;
	LP_ASSERT(!frame->trims_only || (blocks == 1 && log->trim_seq > log->carried_seq));
	uint64_t gap = gap_before(log, blocks);
	if (log->flight_frames == limits->flight_frames ||
	    log->flight_blocks + gap + blocks > limits->flight_blocks)
		return -EAGAIN;
	if (!has_room(log, gap + blocks, frame->trims_only)) {
		log->short_of_room = true;
		advance_if_worth(log);
		return -EAGAIN;
	}
	log->short_of_room = log->short_of_room && frame->trims_only;
	frame_enter(log, frame, gap, blocks);
	return 0;
}

/* --- Acknowledge -------------------------------------------------------------------------------
 */

static void settle(struct lp_log *log, struct lp_log_frame *frame)
{
	log->flight_frames--;
	log->flight_blocks -= frame->blocks;
	frame->slot->next = log->free_slots;
	log->free_slots = frame->slot;
	frame->slot = NULL;
	if (frame->seq < log->failed_seq) {
		LP_ASSERT(frame->op.result == 0 && frame->seq == log->durable_seq + 1);
		frame->result = 0;
		log->durable_seq = frame->seq;
		log->carried_durable = frame->oldest_needed;
	} else {
		frame->result = frame->op.result < 0 ? frame->op.result : log->err;
	}
	LP_ASSERT(frame->result <= 0);
}

static void frame_complete(struct lp_bdev_op *op)
{
	struct lp_log_frame *done = LP_CONTAINER_OF(op, struct lp_log_frame, op);
	struct lp_log *log = done->log;
	struct lp_log_frame *frame = NULL;
	LP_ASSERT(log->magic == LPI_LOG_MAGIC && !done->done);
	done->done = true;
	lp_bdev_observe(log->options.observer, op, log->options.reactor);
	if (op->result < 0)
		fail(log, op->result, done->seq);
	while ((frame = lpi_log_frames_first(&log->flight)) != NULL && frame->done) {
		lpi_log_frames_remove(frame);
		settle(log, frame);
		frame->complete(frame);
	}
	advance_if_worth(log);
	wake(log);
}

/* --- Space -------------------------------------------------------------------------------------
 */

void lp_log_trim(struct lp_log *log, uint64_t oldest_needed)
{
	LP_ASSERT(log->state == LPI_LOG_READY || log->state == LPI_LOG_ERROR);
	LP_ASSERT(oldest_needed >= log->trim_seq && oldest_needed <= log->durable_seq + 1);
	log->trim_seq = oldest_needed;
}

bool lp_log_can_trim(const struct lp_log *log)
{
	return log->trim_seq > log->carried_seq;
}

bool lp_log_needs_trim_frame(const struct lp_log *log)
{
	if (log->state != LPI_LOG_READY || log->closing != NULL ||
	    log->trim_seq == log->carried_seq)
		return false;
	uint64_t gain = place_of(log, log->trim_seq).at - place_of(log, log->carried_seq).at;
	return log->short_of_room || log->super_wanted || gain >= log->options.area.ring_blocks / 8;
}

void lp_log_read_usage(const struct lp_log *log, struct lp_log_usage *ret_usage)
{
	LP_ASSERT(log->state == LPI_LOG_READY || log->state == LPI_LOG_ERROR);
	const struct lpi_log_place oldest = place_of(log, log->trim_seq);
	*ret_usage = (struct lp_log_usage){
		.ring_blocks = log->options.area.ring_blocks - LP_LOG_RESERVE_BLOCKS,
		.needed_blocks = log->head_at - oldest.at,
		.needed_frames = log->next_seq - log->trim_seq,
		.needed_records = log->record - oldest.record,
		.held_blocks = log->head_at - log->start_at,
		.held_frames = log->next_seq - log->super.start_seq,
		.flight_blocks = log->flight_blocks,
		.flight_frames = log->flight_frames,
	};
}

/* Rule L6: a start puts each record into the index again, however few blocks they are in. */
static bool has_records(const struct lp_log *log, const struct lp_log_usage *usage, uint32_t limit)
{
	return log->options.limits.records_max != 0 && usage->needed_records >= limit;
}

bool lp_log_is_half(const struct lp_log *log)
{
	struct lp_log_usage usage;
	lp_log_read_usage(log, &usage);
	return usage.needed_blocks >= usage.ring_blocks / 2 ||
	       has_records(log, &usage, log->options.limits.records_max / 2);
}

uint64_t lp_log_tight_blocks(const struct lp_log *log)
{
	uint64_t ring_blocks = log->options.area.ring_blocks;
	uint64_t keep = LP_MAX(ring_blocks / 4, 4 * (uint64_t)log->options.limits.frame_blocks);
	return ring_blocks - LP_MIN(keep, ring_blocks);
}

bool lp_log_is_tight(const struct lp_log *log)
{
	struct lp_log_usage usage;
	uint32_t records_max = log->options.limits.records_max;
	lp_log_read_usage(log, &usage);
	return usage.needed_blocks >= lp_log_tight_blocks(log) ||
	       has_records(log, &usage, records_max - records_max / 4);
}

bool lp_log_takes(const struct lp_log *log, uint64_t blocks)
{
	uint64_t end = log->head_at + gap_before(log, blocks) + blocks;
	uint64_t needed = end - place_of(log, log->trim_seq).at;
	return needed + LP_LOG_RESERVE_BLOCKS <= log->options.area.ring_blocks;
}

bool lp_log_is_full(const struct lp_log *log)
{
	uint64_t longest = log->options.limits.frame_blocks;
	return !has_room(log, gap_before(log, longest) + longest, false);
}

uint64_t lp_log_next_seq(const struct lp_log *log)
{
	return log->next_seq;
}

uint64_t lp_log_durable_seq(const struct lp_log *log)
{
	return log->durable_seq;
}

uint64_t lp_log_incarnation(const struct lp_log *log)
{
	return log->super.incarnation;
}

int lp_log_error(const struct lp_log *log)
{
	return log->err;
}

/* --- Close -------------------------------------------------------------------------------------
 */

static void close_finish(struct lp_task *task)
{
	struct lp_log_closing *closing = LP_CONTAINER_OF(task, struct lp_log_closing, task);
	struct lp_log *log = closing->log;
	log->closing = NULL;
	closing->complete(closing);
}

/* Called at first, and when a superblock write has ended. */
static void close_step(struct lp_log *log)
{
	struct lp_log_closing *closing = log->closing;
	if (log->super_in_flight)
		return;
	if (log->state == LPI_LOG_READY && (log->super.flags & LP_LOG_SUPER_FLAG_CLEAN) == 0) {
		super_submit(log, LP_LOG_SUPER_FLAG_CLEAN);
		return;
	}
	closing->result = log->state == LPI_LOG_READY ? 0 : -EIO;
	if (log->state == LPI_LOG_READY)
		log->state = LPI_LOG_CLOSED;
	closing->task.run = close_finish;
	lp_task_queue(log->options.reactor, &closing->task);
}

void lp_log_close(struct lp_log *log, struct lp_log_closing *closing)
{
	LP_ASSERT(log->magic == LPI_LOG_MAGIC && log->closing == NULL);
	LP_ASSERT(log->flight_frames == 0 && log->state != LPI_LOG_RECOVERING);
	closing->log = log;
	closing->task = (struct lp_task){.run = NULL};
	log->closing = closing;
	close_step(log);
}
