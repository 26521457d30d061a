/* SPDX-License-Identifier: Apache-2.0 */
/* Each block of the ring may begin a frame: its header says so, and its crc. All that are there are
 * noted, then used in their order. Frames that the index has already are used as well, as long as
 * none is missing behind them: what they say of a key is what the newest of them says. Behind a
 * frame that is missing an older one must not count more than the index.
 */
#include <stdlib.h>

#include "base/error.h"
#include "store/salvage/mend_log.h"
#include "store/salvage/salvage_impl.h"

struct place {
	uint64_t seq;
	uint64_t incarnation;
	uint64_t ring_block;
	uint32_t chain;
};

struct reading {
	struct lp_salvage *salvage;
	struct lp_extent area;
	struct lp_log_super super;
	struct lp_log_identity identity;
	uint8_t *frame;    /* LP_LOG_FRAME_BLOCKS_MAX blocks of the ring, and of what was mended */
	uint64_t from;     /* the first of them */
	uint64_t from_cnt; /* how many there are */
	struct place *places;
	size_t cnt;
	size_t room;
	uint64_t order; /* of the frame that is walked */
};

static bool read_super(struct reading *reading)
{
	const struct lp_salvage *salvage = reading->salvage;
	bool has_one = false;
	for (uint32_t i = 0; i < LP_LOG_SLOT_CNT; i++) {
		struct lp_log_super super;
		lpi_salvage_read_blocks(salvage->log_bdev, reading->frame, reading->area.block + i,
					1);
		if (lp_log_super_read(reading->frame, &super) != LP_LOG_FOUND ||
		    super.shard != salvage->shard_idx || super.area_block != reading->area.block ||
		    super.ring_blocks > reading->area.cnt - LP_LOG_SLOT_CNT ||
		    (has_one && super.slot_seq < reading->super.slot_seq))
			continue;
		reading->super = super;
		has_one = true;
	}
	return has_one;
}

static uint64_t ring_first(const struct reading *reading)
{
	return reading->area.block + LP_LOG_SLOT_CNT;
}

/* These blocks of the ring, until the next call. Many are read at once. */
static uint8_t *look(struct reading *reading, uint64_t ring_block, uint64_t cnt)
{
	bool is_inside = ring_block >= reading->from &&
			 ring_block + cnt <= reading->from + reading->from_cnt;
	if (!is_inside) {
		reading->from = ring_block;
		reading->from_cnt = LP_MIN(reading->super.ring_blocks - ring_block,
					   (uint64_t)LP_LOG_FRAME_BLOCKS_MAX);
		lpi_salvage_read_blocks(reading->salvage->log_bdev, reading->frame,
					ring_first(reading) + ring_block, reading->from_cnt);
	}
	return reading->frame + (ring_block - reading->from) * LP_BLOCK_BYTES;
}

/* The frame that stands there. */
static const uint8_t *read_frame(struct reading *reading, uint64_t ring_block,
				 struct lp_log_head *ret)
{
	const uint8_t *bytes = look(reading, ring_block, 1);
	if (lp_log_head_read(bytes, &reading->identity, ring_block, ret) != LP_LOG_FOUND)
		return NULL;
	bytes = look(reading, ring_block, ret->total_blocks);
	return lp_log_meta_is_right(bytes, ret) ? bytes : NULL;
}

/* The frame that stands there but for one bit, behind one that was found. */
static const uint8_t *read_mended(struct reading *reading, const struct lp_log_head *want,
				  uint64_t ring_block, struct lp_log_head *ret)
{
	uint64_t room =
		LP_MIN(reading->super.ring_blocks - ring_block, (uint64_t)LP_LOG_FRAME_BLOCKS_MAX);
	uint8_t *bytes = look(reading, ring_block, room);
	if (lp_log_mend_frame(bytes, room, &reading->identity, ring_block, want) == LP_MEND_NONE)
		return NULL;
	return lp_log_head_read(bytes, &reading->identity, ring_block, ret) == LP_LOG_FOUND ? bytes
											    : NULL;
}

/* Void ones are of an incarnation that a recovery has ended. */
static bool is_meant(const struct reading *reading, const struct lp_log_head *head)
{
	const struct lp_log_super *super = &reading->super;
	return head->seq >= super->start_seq && head->incarnation <= super->incarnation &&
	       (head->seq < super->first_seq || head->incarnation == super->incarnation);
}

static int note(struct reading *reading, const struct lp_log_head *head)
{
	if (reading->cnt == reading->room) {
		size_t room = LP_MAX(2 * reading->room, (size_t)256);
		struct place *more = reallocarray(reading->places, room, sizeof(*more));
		if (more == NULL)
			return -ENOMEM;
		reading->places = more;
		reading->room = room;
	}
	reading->places[reading->cnt++] =
		(struct place){head->seq, head->incarnation, head->ring_block, head->chain};
	return 0;
}

static int find_frames(struct reading *reading)
{
	struct lp_log_head want = {.seq = reading->super.start_seq,
				   .chain = reading->super.start_chain};
	uint64_t expected = reading->super.start_block;
	int err = 0;
	for (uint64_t at = 0; at < reading->super.ring_blocks && err == 0;) {
		struct lp_log_head head;
		bool is_there = read_frame(reading, at, &head) != NULL;
		if (!is_there && at == expected && read_mended(reading, &want, at, &head) != NULL) {
			is_there = true;
			reading->salvage->report.mended_bits++;
		}
		if (is_there && is_meant(reading, &head)) {
			err = note(reading, &head);
			expected = at + head.total_blocks;
			want = (struct lp_log_head){.seq = head.seq + 1, .chain = head.crc};
		}
		at += is_there ? head.total_blocks : 1;
	}
	return err;
}

static int by_seq(const void *a, const void *b)
{
	const struct place *one = a;
	const struct place *other = b;
	if (one->seq != other->seq)
		return one->seq < other->seq ? -1 : 1;
	return one->incarnation < other->incarnation ? -1 : one->incarnation > other->incarnation;
}

/* The first frame that is used. */
static uint64_t first_used(struct reading *reading)
{
	struct lp_salvage *salvage = reading->salvage;
	uint64_t next = reading->super.start_seq;
	uint64_t first = next;
	for (size_t i = 0; i < reading->cnt; i++) {
		uint64_t seq = reading->places[i].seq;
		if (seq > next) {
			salvage->report.log_lost += seq - next;
			if (next <= salvage->whole_seq)
				first = LP_MIN(seq, salvage->whole_seq + 1);
		}
		next = seq + 1;
	}
	if (next <= reading->super.acked_seq)
		salvage->report.log_lost += reading->super.acked_seq + 1 - next;
	return next <= salvage->whole_seq ? salvage->whole_seq + 1 : first;
}

/* --- What frames say -------------------------------------------------------------------------- */

struct visit {
	struct lp_kv_batch_visitor visitor;
	struct reading *reading;
};

static int see_put(struct lp_kv_batch_visitor *visitor, struct lp_kv_bytes key,
		   struct lp_kv_bytes value)
{
	struct reading *reading = LP_CONTAINER_OF(visitor, struct visit, visitor)->reading;
	return lpi_salvage_add(reading->salvage, key, value, reading->order);
}

static int see_delete(struct lp_kv_batch_visitor *visitor, struct lp_kv_bytes key)
{
	struct reading *reading = LP_CONTAINER_OF(visitor, struct visit, visitor)->reading;
	return lpi_salvage_add(reading->salvage, key, (struct lp_kv_bytes){NULL, 0},
			       reading->order);
}

static int use_frame(struct reading *reading, const struct lp_log_head *head, const uint8_t *frame,
		     bool with_records)
{
	struct visit visit = {.visitor = {.put = see_put, .del = see_delete}, .reading = reading};
	struct lp_log_view view;
	uint64_t first = ring_first(reading) + head->ring_block + lp_log_meta_blocks(head);
	int err = 0;
	lp_log_view_init(&view, head, frame);
	for (uint32_t i = 0; i < head->payload_cnt && err == 0; i++) {
		struct lp_log_payload payload;
		const uint8_t *block = lp_log_view_payload(&view, i, &payload);
		(void)block; /* it is read when it is needed */
		err = lpi_salvage_add_payload(reading->salvage, payload.device_block, payload.crc,
					      (first + i) * LP_BLOCK_BYTES);
	}
	reading->order = LPI_SALVAGE_LOG_ORDER + head->seq;
	reading->salvage->report.log_frames += with_records;
	if (err == 0 && with_records)
		err = lp_kv_walk((struct lp_kv_bytes){view.batch, head->batch_bytes},
				 &visit.visitor);
	return err == -EUCLEAN ? 0 : err; /* what could be read of it was used */
}

static int use_frames(struct reading *reading)
{
	int err = 0;
	uint64_t first = first_used(reading);
	for (size_t i = 0; i < reading->cnt && err == 0; i++) {
		struct lp_log_head head;
		const struct place *place = &reading->places[i];
		const struct lp_log_head want = {.seq = place->seq, .chain = place->chain};
		const uint8_t *frame = read_frame(reading, place->ring_block, &head);
		if (frame == NULL)
			frame = read_mended(reading, &want, place->ring_block, &head);
		if (frame != NULL)
			err = use_frame(reading, &head, frame, head.seq >= first);
	}
	return err;
}

int lpi_salvage_log(struct lp_salvage *salvage, uint8_t *frame_bytes)
{
	enum lp_device_role device = salvage->log_bdev == salvage->options.bdev[LP_ROLE_WAL]
					     ? LP_ROLE_WAL
					     : LP_ROLE_DATA;
	struct reading reading = {
		.salvage = salvage,
		.area = lp_label_log_area(&salvage->label[device], salvage->shard_idx),
		.frame = frame_bytes};
	if (reading.area.cnt <= LP_LOG_SLOT_CNT || !read_super(&reading))
		return 0;
	salvage->report.has_log = true;
	reading.identity = (struct lp_log_identity){
		.tag = lp_log_tag(reading.super.store_uuid, reading.super.salt),
		.ring_blocks = reading.super.ring_blocks,
		.shard = salvage->shard_idx,
		.frame_blocks_max = LP_LOG_FRAME_BLOCKS_MAX};
	int err = find_frames(&reading);
	if (err == 0 && reading.cnt > 0) {
		qsort(reading.places, reading.cnt, sizeof(*reading.places), by_seq);
		err = use_frames(&reading);
	}
	free(reading.places);
	return err;
}
