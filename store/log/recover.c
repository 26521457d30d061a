/* SPDX-License-Identifier: Apache-2.0 */
/* The reading side of the log: docs/format/log.md, "Reading it", step by step.
 *
 *   READ_SUPERS -> WALK -> PROBE -> FLUSH -> WRITE_SUPER -> DONE
 *                            `---- read_only --------------^
 *
 * One operation is in flight at a time; its completion stores nothing but the result and calls
 * step(), which holds the whole order. Any state may end in FAILED; nothing was written then, but
 * for a superblock in WRITE_SUPER.
 *
 * WALK takes frame after frame. PROBE looks beyond the place where no successor stands, and
 * decides between a torn tail and corruption (rule L1): the two look the same at the gap itself.
 * FLUSH is there because the former process may have died while the device lived: a frame that can
 * be read need not be durable, and the new superblock declares that it is.
 *
 * head_at, next_seq and chain of the log are the end of the last good frame, all the time.
 */
#include "store/log/log.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store/log/impl.h"

/* Read at once, beside what the longest frame takes. */
#define PIECE_BLOCKS 256u

enum { READ_SUPERS, WALK, PROBE, FLUSH, WRITE_SUPER, DONE, FAILED, STATE_CNT };

/* What a part of step() says, beside -errno. */
enum {
	GO_ON,
	WAIT, /* an operation is in flight */
};

static const struct lp_sm_state states[STATE_CNT] = {
	[READ_SUPERS] = {"READ_SUPERS", LP_SM_INITIAL, LP_SM_TO(WALK) | LP_SM_TO(FAILED)},
	[WALK] = {"WALK", 0, LP_SM_TO(PROBE) | LP_SM_TO(FAILED)},
	[PROBE] = {"PROBE", 0, LP_SM_TO(FLUSH) | LP_SM_TO(DONE) | LP_SM_TO(FAILED)},
	[FLUSH] = {"FLUSH", 0, LP_SM_TO(WRITE_SUPER) | LP_SM_TO(FAILED)},
	[WRITE_SUPER] = {"WRITE_SUPER", 0, LP_SM_TO(DONE) | LP_SM_TO(FAILED)},
	[DONE] = {"DONE", LP_SM_FINAL, 0},
	[FAILED] = {"FAILED", LP_SM_FINAL | LP_SM_FAILURE, 0},
};

static bool scan_invariant(const struct lp_sm *sm, unsigned prev)
{
	const struct lpi_log_scan *scan = LP_SM_OWNER(sm, struct lpi_log_scan, sm);
	(void)prev;
	switch (lp_sm_state(sm)) {
	case WALK:
	case PROBE:
		return scan->buf != NULL && scan->buf_blocks > 0;
	case FLUSH:
	case WRITE_SUPER:
		return !scan->recovery->read_only;
	default:
		return scan->recovery != NULL;
	}
}

const struct lp_sm_table lpi_log_scan_table = {
	.name = "log recovery",
	.states = states,
	.state_cnt = STATE_CNT,
	.invariant = scan_invariant,
};

void lpi_log_scan_free(struct lp_log *log)
{
	free(log->scan.buf);
	log->scan.buf = NULL;
}

static void move(struct lp_log *log, unsigned state)
{
	lp_sm_move(&log->scan.sm, state, lp_reactor_now_ns(log->options.reactor));
}

/* --- Reading ------------------------------------------------------------------------------------
 */

static void op_complete(struct lp_bdev_op *op);

static void submit(struct lp_log *log, enum lp_bdev_opcode opcode, void *buf, uint64_t bytes,
		   uint64_t offset_bytes)
{
	struct lp_bdev_op *op = &log->scan.op;
	lp_bdev_op_prep(op, opcode, buf, bytes, offset_bytes);
	op->complete = op_complete;
	lp_bdev_submit(log->options.chan, op);
}

/* Blocks [from, from + cnt) of the ring, in memory; or NULL, and they are being read. */
static const uint8_t *window(struct lp_log *log, uint64_t from, uint64_t cnt)
{
	struct lpi_log_scan *scan = &log->scan;
	uint64_t ring_blocks = log->options.area.ring_blocks;
	LP_ASSERT(cnt <= scan->buf_blocks && from + cnt <= ring_blocks);
	uint64_t end = scan->buf_from + scan->buf_cnt;
	bool inside = from >= scan->buf_from && from < end;
	uint8_t *at = scan->buf + (inside ? (from - scan->buf_from) * LP_BLOCK_BYTES : 0);
	if (inside && from + cnt <= end)
		return at;
	uint64_t kept = inside ? end - from : 0;
	if (kept > 0)
		memmove(scan->buf, at, kept * LP_BLOCK_BYTES);
	scan->buf_from = from;
	scan->buf_cnt = kept;
	scan->read_cnt = LP_MIN(scan->buf_blocks - kept, ring_blocks - from - kept);
	submit(log, LP_BDEV_READ, scan->buf + kept * LP_BLOCK_BYTES,
	       scan->read_cnt * LP_BLOCK_BYTES, lpi_log_offset_bytes(log, from + kept));
	return NULL;
}

enum look {
	LOOK_WAIT,
	LOOK_NOTHING,
	LOOK_STANDS, /* a frame of ours, its meta part whole; of any number */
};

static enum look look_at(struct lp_log *log, uint64_t ring_block, struct lp_log_head *ret_head)
{
	struct lp_log_head head;
	const uint8_t *block = window(log, ring_block, 1);
	if (block == NULL)
		return LOOK_WAIT;
	if (lp_log_head_read(block, &log->identity, ring_block, &head) != LP_LOG_FOUND)
		return LOOK_NOTHING;
	const uint8_t *meta = window(log, ring_block, lp_log_meta_blocks(&head));
	if (meta == NULL)
		return LOOK_WAIT;
	if (!lp_log_meta_is_right(meta, &head)) {
		if (head.seq == log->next_seq)
			(void)snprintf(log->scan.why, sizeof(log->scan.why), "crc wrong");
		return LOOK_NOTHING;
	}
	*ret_head = head;
	return LOOK_STANDS;
}

/* --- READ_SUPERS
 * ---------------------------------------------------------------------------------- */

/* Remembers the place for the caller, and gives it back for the report. */
static uint64_t blame(struct lp_log *log, uint64_t offset_bytes)
{
	log->scan.recovery->offset_bytes = offset_bytes;
	return offset_bytes;
}

static bool super_is_ours(const struct lp_log_area *area, const struct lp_log_super *super,
			  unsigned slot)
{
	return super->slot_seq % LP_LOG_SLOT_CNT == slot && super->area_block == area->block &&
	       super->ring_blocks == area->ring_blocks && super->shard == area->shard &&
	       memcmp(super->store_uuid, area->store_uuid, sizeof(super->store_uuid)) == 0;
}

/* 1 when the slot holds a superblock to believe, 0 when it holds none, which one torn write may
 * do to one slot. */
static int slot_read(struct lp_log *log, unsigned slot, struct lp_log_super *ret_super)
{
	uint64_t offset_bytes = (log->options.area.block + slot) * LP_BLOCK_BYTES;
	const uint8_t *block = log->super_block + slot * LP_BLOCK_BYTES;
	switch (lp_log_super_read(block, ret_super)) {
	case LP_LOG_FOUND:
		if (super_is_ours(&log->options.area, ret_super, slot))
			return 1;
		return LP_CORRUPT(blame(log, offset_bytes),
				  "log: superblock %" PRIu64 " of another place, shard or store",
				  ret_super->slot_seq);
	case LP_LOG_NEWER:
		blame(log, offset_bytes);
		return -ENOTSUP;
	case LP_LOG_ALIEN:
		return LP_CORRUPT(blame(log, offset_bytes),
				  "log: superblock %" PRIu64 " breaks the rules of the format",
				  ret_super->slot_seq);
	case LP_LOG_ABSENT:
	case LP_LOG_BROKEN:
		return 0;
	}
	LP_UNREACHABLE();
}

static int choose_super(struct lp_log *log)
{
	bool any = false;
	for (unsigned slot = 0; slot < LP_LOG_SLOT_CNT; slot++) {
		struct lp_log_super super;
		int found = slot_read(log, slot, &super);
		if (found < 0)
			return found;
		if (found == 0 || (any && super.slot_seq < log->super.slot_seq))
			continue;
		log->super = super;
		any = true;
	}
	if (any)
		return 0;
	return LP_CORRUPT_CRC(blame(log, log->options.area.block * LP_BLOCK_BYTES),
			      "log: neither superblock can be read");
}

/* mkfs leaves two whole superblocks of incarnation 1, and the first recovery writes one of 2: when
 * that was torn, the log is not new any more. */
static bool supers_are_new(const struct lp_log_area *area, const uint8_t *blocks)
{
	for (unsigned slot = 0; slot < LP_LOG_SLOT_CNT; slot++) {
		struct lp_log_super super;
		if (lp_log_super_read(blocks + slot * LP_BLOCK_BYTES, &super) != LP_LOG_FOUND ||
		    !super_is_ours(area, &super, slot) || super.incarnation > 1)
			return false;
	}
	return true;
}

int lp_log_is_new(struct lp_bdev *bdev, const struct lp_log_area *area, bool *ret_new)
{
	uint64_t bytes = LP_LOG_SLOT_CNT * LP_BLOCK_BYTES;
	uint8_t *blocks = aligned_alloc(LP_BLOCK_BYTES, bytes);
	if (blocks == NULL)
		return -ENOMEM;
	int err = lp_bdev_read_sync(bdev, blocks, bytes, area->block * LP_BLOCK_BYTES);
	if (err == 0)
		*ret_new = supers_are_new(area, blocks);
	free(blocks);
	return err;
}

static int walk_begin(struct lp_log *log)
{
	const struct lp_log_super *super = &log->super;
	struct lpi_log_scan *scan = &log->scan;
	if (scan->recovery->applied + 1 < super->start_seq)
		return LP_CORRUPT(blame(log, LP_OFFSET_NONE),
				  "log: starts at frame %" PRIu64
				  ", but the index has only %" PRIu64,
				  super->start_seq, scan->recovery->applied);
	scan->recovery->was_clean = (super->flags & LP_LOG_SUPER_FLAG_CLEAN) != 0;
	scan->buf_blocks = LP_MIN(super->frame_blocks_max + PIECE_BLOCKS, super->ring_blocks);
	scan->buf = aligned_alloc(LP_BLOCK_BYTES, scan->buf_blocks * LP_BLOCK_BYTES);
	if (scan->buf == NULL)
		return -ENOMEM;
	log->identity = (struct lp_log_identity){
		.tag = lp_log_tag(super->store_uuid, super->salt),
		.ring_blocks = super->ring_blocks,
		.shard = super->shard,
		.frame_blocks_max = super->frame_blocks_max,
	};
	log->start_at = super->start_block;
	log->head_at = super->start_block;
	log->next_seq = super->start_seq;
	log->chain = super->start_chain;
	move(log, WALK);
	return GO_ON;
}

/* --- WALK ---------------------------------------------------------------------------------------
 */

/* Numbers from first_seq on belong to the superblock's incarnation, and only they: what a former
 * incarnation wrote under such a number was never acknowledged (rule L2). */
static bool incarnation_fits(const struct lp_log *log, const struct lp_log_head *head)
{
	const struct lp_log_super *super = &log->super;
	if (head->incarnation < log->scan.incarnation)
		return false;
	if (head->seq < super->first_seq)
		return head->incarnation < super->incarnation;
	return head->incarnation == super->incarnation;
}

/* A frame stands at ring block 0 only if it is too long for the rest of the ring. */
static bool place_fits(const struct lp_log *log, const struct lp_log_head *head)
{
	uint64_t expected = lpi_log_ring_block(log, log->head_at);
	return head->ring_block == expected ||
	       head->total_blocks > log->options.area.ring_blocks - expected;
}

/* What only our own fault, or a device that lies, can bring about in a frame that chains. */
static int check_order(struct lp_log *log, const struct lp_log_head *head, uint64_t end_at)
{
	const struct lpi_log_scan *scan = &log->scan;
	uint64_t offset_bytes = lpi_log_offset_bytes(log, head->ring_block);
	if (head->slot_seq > log->super.slot_seq)
		return LP_CORRUPT(blame(log, offset_bytes),
				  "log: frame %" PRIu64 " knows superblock %" PRIu64
				  ", the newest found is %" PRIu64,
				  head->seq, head->slot_seq, log->super.slot_seq);
	if (head->slot_seq < scan->slot_seq || head->acked_seq < scan->acked_seq ||
	    head->oldest_needed < scan->oldest_needed)
		return LP_CORRUPT(blame(log, offset_bytes),
				  "log: frame %" PRIu64 " takes back what an earlier one says",
				  head->seq);
	if (end_at - log->start_at > log->options.area.ring_blocks)
		return LP_CORRUPT(blame(log, offset_bytes),
				  "log: frame %" PRIu64 " overlaps the start of the log",
				  head->seq);
	return 0;
}

uint64_t lp_log_payload_block(const struct lp_log *log, const struct lp_log_view *view,
			      uint32_t idx)
{
	LP_ASSERT(idx < view->head.payload_cnt);
	uint64_t ring_block = view->head.ring_block + lp_log_meta_blocks(&view->head) + idx;
	return lpi_log_offset_bytes(log, ring_block) / LP_BLOCK_BYTES;
}

static int take_frame(struct lp_log *log, const struct lp_log_head *head, const uint8_t *bytes)
{
	struct lpi_log_scan *scan = &log->scan;
	struct lp_log_recovery *recovery = scan->recovery;
	struct lp_log_view view;
	uint64_t expected = lpi_log_ring_block(log, log->head_at);
	uint64_t gap = head->ring_block == expected ? 0 : log->options.area.ring_blocks - expected;
	uint64_t at = log->head_at + gap;
	int err = check_order(log, head, at + head->total_blocks);
	if (err < 0)
		return err;
	*lpi_log_place(log, head->seq) = lpi_log_head_place(log, at);
	log->head_at = at + head->total_blocks;
	log->next_seq = head->seq + 1;
	log->chain = head->crc;
	scan->acked_seq = head->acked_seq;
	scan->slot_seq = head->slot_seq;
	scan->incarnation = head->incarnation;
	scan->oldest_needed = head->oldest_needed;
	scan->at_front = false;
	scan->why[0] = 0;
	recovery->frame_cnt++;
	lp_log_view_init(&view, head, bytes);
	recovery->record_cnt = 0;
	err = recovery->frame(recovery, &view);
	log->record += recovery->record_cnt;
	return err < 0 ? err : GO_ON;
}

/* Rule L1, what is known without looking further: somebody else says that the frame existed. */
static int gap_begin(struct lp_log *log)
{
	const struct lp_log_recovery *recovery = log->scan.recovery;
	uint64_t missing = log->next_seq;
	uint64_t offset_bytes = lpi_log_offset_bytes(log, lpi_log_ring_block(log, log->head_at));
	const char *why = log->scan.why[0] != 0 ? log->scan.why : "nothing there";
	if (log->super.acked_seq >= missing)
		return LP_CORRUPT(blame(log, offset_bytes),
				  "log: frame %" PRIu64
				  " is lost (%s), superblock has it at %" PRIu64,
				  missing, why, log->super.acked_seq);
	if (recovery->applied >= missing)
		return LP_CORRUPT(blame(log, offset_bytes),
				  "log: frame %" PRIu64 " is lost (%s), the index is at %" PRIu64,
				  missing, why, recovery->applied);
	move(log, PROBE);
	return GO_ON;
}

static int walk(struct lp_log *log)
{
	struct lpi_log_scan *scan = &log->scan;
	struct lp_log_head head;
	uint32_t bad_idx = 0;
	uint64_t ring_block = scan->at_front ? 0 : lpi_log_ring_block(log, log->head_at);
	enum look look = look_at(log, ring_block, &head);
	if (look == LOOK_WAIT)
		return WAIT;
	bool is_next = look == LOOK_STANDS && head.seq == log->next_seq &&
		       incarnation_fits(log, &head) && place_fits(log, &head);
	if (is_next && head.chain != log->chain) {
		/* A number is given once in an incarnation, so this is not from another time. */
		if (head.incarnation == log->super.incarnation)
			return LP_CORRUPT(blame(log, lpi_log_offset_bytes(log, ring_block)),
					  "log: frame %" PRIu64
					  " does not follow the one before it",
					  head.seq);
		is_next = false;
	}
	if (is_next) {
		const uint8_t *bytes = window(log, ring_block, head.total_blocks);
		if (bytes == NULL)
			return WAIT;
		if (lp_log_data_is_right(bytes, &head, &bad_idx))
			return take_frame(log, &head, bytes);
		/* It may be of a former incarnation, torn and void, and the frame that came after
		 * it too long for the rest of the ring: that says its own superblock only. */
		(void)snprintf(scan->why, sizeof(scan->why), "payload %" PRIu32 " wrong", bad_idx);
	}
	if (ring_block != 0) {
		scan->at_front = true;
		return GO_ON;
	}
	return gap_begin(log);
}

/* --- PROBE ---------------------------------------------------------------------------------------
 */

/* Rule L1: does a frame that stands beyond the gap show that the missing one was acknowledged? The
 * missing one is of the superblock's incarnation (it is not before first_seq, for acked_seq is at
 * least first_seq - 1), so frames of older ones say nothing: they are void, or of a former lap. */
static const char *evidence(const struct lp_log *log, const struct lp_log_head *head)
{
	const struct lp_log_super *super = &log->super;
	uint64_t missing = log->next_seq;
	if (head->seq <= missing && head->incarnation <= super->incarnation)
		return NULL;
	if (head->incarnation > super->incarnation)
		return "of a later incarnation";
	if (head->incarnation < super->incarnation)
		return NULL;
	if (head->acked_seq >= missing)
		return "says so";
	if (head->seq - missing >= super->flight_frames_max)
		return "too far on";
	uint64_t ring_blocks = super->ring_blocks;
	uint64_t from = lpi_log_ring_block(log, log->head_at);
	uint64_t distance = (head->ring_block + ring_blocks - from) % ring_blocks;
	if (distance + head->total_blocks > super->flight_blocks_max)
		return "too far behind";
	return NULL;
}

static uint64_t probe_blocks(const struct lp_log *log)
{
	const struct lp_log_super *super = &log->super;
	uint64_t blocks = (uint64_t)super->flight_blocks_max + super->frame_blocks_max;
	return LP_MIN(blocks, super->ring_blocks);
}

static int probe_one(struct lp_log *log)
{
	struct lpi_log_scan *scan = &log->scan;
	struct lp_log_head head;
	uint64_t ring_block = lpi_log_ring_block(log, log->head_at + scan->probe_cnt);
	enum look look = look_at(log, ring_block, &head);
	if (look == LOOK_WAIT)
		return WAIT;
	scan->probe_cnt++;
	if (look == LOOK_NOTHING)
		return GO_ON;
	const char *why = evidence(log, &head);
	if (why != NULL) {
		uint64_t gap_block = lpi_log_ring_block(log, log->head_at);
		return LP_CORRUPT(blame(log, lpi_log_offset_bytes(log, gap_block)),
				  "log: frame %" PRIu64 " at ring block %" PRIu64
				  " is lost; %" PRIu64 " at %" PRIu64 ": %s",
				  log->next_seq, gap_block, head.seq, ring_block, why);
	}
	if (head.seq > log->next_seq && head.incarnation == log->super.incarnation)
		scan->recovery->torn_cnt++;
	return GO_ON;
}

static int probe(struct lp_log *log)
{
	while (log->scan.probe_cnt < probe_blocks(log)) {
		int r = probe_one(log);
		if (r != GO_ON)
			return r;
	}
	if (log->scan.recovery->read_only) {
		move(log, DONE);
		return GO_ON;
	}
	move(log, FLUSH);
	submit(log, LP_BDEV_FLUSH, NULL, 0, 0);
	return WAIT;
}

/* --- WRITE_SUPER
 * ---------------------------------------------------------------------------------- */

/* The first frames behind the start name an older one: they are older than the superblock. */
static uint64_t oldest_needed(const struct lp_log *log)
{
	return LP_MAX(log->super.start_seq, log->scan.oldest_needed);
}

static int new_super(struct lp_log *log)
{
	const struct lp_log_limits *limits = &log->options.limits;
	uint64_t start_seq = oldest_needed(log);
	struct lpi_log_place start = lpi_log_head_place(log, log->head_at);
	LP_ASSERT(start_seq >= log->super.start_seq && start_seq <= log->next_seq);
	if (start_seq < log->next_seq)
		start = *lpi_log_place(log, start_seq);
	struct lp_log_super *next = &log->super_next;
	*next = log->super;
	next->slot_seq++;
	next->incarnation++;
	next->first_seq = log->next_seq;
	next->acked_seq = log->next_seq - 1;
	next->start_seq = start_seq;
	next->start_block = lpi_log_ring_block(log, start.at);
	next->start_chain = start.chain;
	next->frame_blocks_max = LP_MAX(next->frame_blocks_max, limits->frame_blocks);
	next->flight_frames_max = limits->flight_frames;
	next->flight_blocks_max = limits->flight_blocks;
	next->flags = 0;
	log->super_next_at = start.at;
	move(log, WRITE_SUPER);
	lpi_log_super_prep(log, next, &log->scan.op);
	log->scan.op.complete = op_complete;
	lp_bdev_submit(log->options.chan, &log->scan.op);
	return WAIT;
}

/* The superblock is durable: from now on the log is its own. */
static int open_up(struct lp_log *log)
{
	log->super = log->super_next;
	log->start_at = log->super_next_at;
	log->durable_seq = log->next_seq - 1;
	log->trim_seq = log->super.start_seq;
	log->carried_seq = log->super.start_seq;
	log->carried_durable = log->super.start_seq;
	move(log, DONE);
	return GO_ON;
}

/* --- The whole
 * ------------------------------------------------------------------------------------ */

/* The recovery, and then the log, may be gone when this returns. */
static void finish(struct lp_log *log, int result)
{
	struct lp_log_recovery *recovery = log->scan.recovery;
	recovery->result = result;
	if (log->next_seq != 0) {
		recovery->first_seq = log->next_seq - recovery->frame_cnt;
		recovery->last_seq = log->next_seq - 1;
		recovery->oldest_needed = oldest_needed(log);
	}
	bool ready = result == 0 && !recovery->read_only;
	log->state = ready ? LPI_LOG_READY : LPI_LOG_CLOSED;
	lpi_log_scan_free(log);
	recovery->complete(recovery);
}

static int step_once(struct lp_log *log)
{
	int err = 0;
	switch (lp_sm_state(&log->scan.sm)) {
	case READ_SUPERS:
		err = choose_super(log);
		return err < 0 ? err : walk_begin(log);
	case WALK:
		return walk(log);
	case PROBE:
		return probe(log);
	case FLUSH:
		return new_super(log);
	case WRITE_SUPER:
		return open_up(log);
	default:
		LP_UNREACHABLE();
	}
}

static void step(struct lp_log *log)
{
	int r = GO_ON;
	while (r == GO_ON && !lp_sm_is_final(&log->scan.sm))
		r = step_once(log);
	if (r == WAIT)
		return;
	if (r < 0)
		move(log, FAILED);
	finish(log, r);
}

static void op_complete(struct lp_bdev_op *op)
{
	struct lp_log *log = LP_CONTAINER_OF(op, struct lp_log, scan.op);
	LP_ASSERT(log->state == LPI_LOG_RECOVERING);
	if (op->result < 0) {
		/* Also of a read: what cannot be read is not known to be a gap (rule L1). */
		blame(log, op->offset_bytes);
		move(log, FAILED);
		finish(log, op->result);
		return;
	}
	if (op->opcode == LP_BDEV_READ)
		log->scan.buf_cnt += log->scan.read_cnt;
	step(log);
}

void lp_log_recover(struct lp_log *log, struct lp_log_recovery *recovery)
{
	LP_ASSERT(log->magic == LPI_LOG_MAGIC && log->state == LPI_LOG_NEW);
	LP_ASSERT(recovery->frame != NULL && recovery->complete != NULL);
	log->state = LPI_LOG_RECOVERING;
	log->scan.recovery = recovery;
	recovery->was_clean = false;
	recovery->first_seq = 0;
	recovery->last_seq = 0;
	recovery->oldest_needed = 0;
	recovery->frame_cnt = 0;
	recovery->torn_cnt = 0;
	recovery->offset_bytes = LP_OFFSET_NONE;
	lp_sm_init(&log->scan.sm, &lpi_log_scan_table, NULL,
		   lp_reactor_now_ns(log->options.reactor));
	submit(log, LP_BDEV_READ, log->super_block, LP_LOG_SLOT_CNT * LP_BLOCK_BYTES,
	       log->options.area.block * LP_BLOCK_BYTES);
}
