/* SPDX-License-Identifier: Apache-2.0 */
/* Frame after frame, as a recovery reads them, through a window that is read at once. Where the
 * next one does not stand a recovery would end, or refuse. Here the bit that the crc says is tried,
 * then each one of the header. */
#include "store/salvage/mend_log.h"

#include <stdlib.h>

#include "base/crc32c.h"
#include "base/error.h"
#include "store/index/kv.h"
#include "store/salvage/record_check.h"

/* The longest frame, and what is read ahead. */
#define WINDOW_BLOCKS (LP_LOG_FRAME_BLOCKS_MAX + 256u)

static uint32_t crc_of_meta(const uint8_t *meta, size_t len)
{
	static const uint8_t zeros[LP_LOG_HEAD_CRC_SIZE];
	size_t rest = LP_LOG_HEAD_CRC_OFF + LP_LOG_HEAD_CRC_SIZE;
	uint32_t crc = lp_crc32c(0, meta, LP_LOG_HEAD_CRC_OFF);
	crc = lp_crc32c(crc, zeros, sizeof(zeros));
	return lp_crc32c(crc, meta + rest, len - rest);
}

static bool reads(const uint8_t *frame, uint64_t room_blocks,
		  const struct lp_log_identity *identity, uint64_t ring_block,
		  struct lp_log_head *ret)
{
	return lp_log_head_read(frame, identity, ring_block, ret) == LP_LOG_FOUND &&
	       ret->total_blocks <= room_blocks;
}

/* --- What is believed ------------------------------------------------------------------------- */

static int check_put(struct lp_kv_batch_visitor *visitor, struct lp_kv_bytes key,
		     struct lp_kv_bytes value)
{
	(void)visitor;
	return lpi_record_is_right(key, value) ? 0 : -EUCLEAN;
}

static int check_delete(struct lp_kv_batch_visitor *visitor, struct lp_kv_bytes key)
{
	struct lp_key_view view;
	(void)visitor;
	return lp_key_parse(key.data, key.len, &view);
}

static bool records_are_right(const uint8_t *frame, const struct lp_log_head *head)
{
	struct lp_kv_batch_visitor visitor = {.put = check_put, .del = check_delete};
	struct lp_log_view view;
	lp_log_view_init(&view, head, frame);
	return head->batch_bytes == 0 ||
	       lp_kv_walk((struct lp_kv_bytes){view.batch, head->batch_bytes}, &visitor) == 0;
}

static bool is_frame(const uint8_t *frame, uint64_t room_blocks,
		     const struct lp_log_identity *identity, uint64_t ring_block,
		     const struct lp_log_head *want, struct lp_log_head *ret_head)
{
	return reads(frame, room_blocks, identity, ring_block, ret_head) &&
	       ret_head->seq == want->seq && ret_head->chain == want->chain &&
	       lp_log_meta_is_right(frame, ret_head);
}

static bool is_sound(const uint8_t *frame, uint64_t room_blocks,
		     const struct lp_log_identity *identity, uint64_t ring_block,
		     const struct lp_log_head *want)
{
	struct lp_log_head head;
	return is_frame(frame, room_blocks, identity, ring_block, want, &head) &&
	       records_are_right(frame, &head);
}

uint64_t lp_log_mend_frame(uint8_t *frame, uint64_t room_blocks,
			   const struct lp_log_identity *identity, uint64_t ring_block,
			   const struct lp_log_head *want)
{
	struct lp_log_head head;
	uint64_t bit = LP_MEND_NONE;
	if (reads(frame, room_blocks, identity, ring_block, &head)) {
		size_t len = lp_log_meta_blocks(&head) * LP_BLOCK_BYTES;
		bit = lp_mend_find(len, crc_of_meta(frame, len), head.crc);
	}
	if (bit != LP_MEND_NONE && bit / 8 >= LP_LOG_HEAD_SIZE) {
		lp_mend_flip(frame, bit);
		if (is_sound(frame, room_blocks, identity, ring_block, want))
			return bit;
		lp_mend_flip(frame, bit);
	}
	for (bit = 0; bit < LP_LOG_HEAD_SIZE * UINT64_C(8); bit++) {
		lp_mend_flip(frame, bit);
		if (is_sound(frame, room_blocks, identity, ring_block, want))
			return bit;
		lp_mend_flip(frame, bit);
	}
	return LP_MEND_NONE;
}

/* --- The walk --------------------------------------------------------------------------------- */

struct walk {
	struct lp_bdev *bdev;
	struct lp_extent area;
	struct lp_mender *mender;
	struct lp_log_super super;
	struct lp_log_identity identity;
	struct lp_log_head want; /* number and chain of the next frame */
	uint8_t *window;         /* WINDOW_BLOCKS */
	uint64_t from;           /* ring block that it begins with */
	uint64_t cnt;            /* blocks of the ring in it */
	uint8_t *next;           /* LP_LOG_FRAME_BLOCKS_MAX blocks, for a look behind a frame */
};

static bool read_super(struct walk *walk, uint32_t shard_idx)
{
	bool has_one = false;
	for (uint32_t i = 0; i < LP_LOG_SLOT_CNT; i++) {
		struct lp_log_super super;
		if (lp_bdev_read_sync(walk->bdev, walk->window, LP_BLOCK_BYTES,
				      (walk->area.block + i) * LP_BLOCK_BYTES) < 0 ||
		    lp_log_super_read(walk->window, &super) != LP_LOG_FOUND ||
		    super.shard != shard_idx || super.area_block != walk->area.block ||
		    super.ring_blocks + LP_LOG_SLOT_CNT > walk->area.cnt ||
		    (has_one && super.slot_seq < walk->super.slot_seq))
			continue;
		walk->super = super;
		has_one = true;
	}
	return has_one;
}

static uint64_t device_block(const struct walk *walk, uint64_t ring_block)
{
	return walk->area.block + LP_LOG_SLOT_CNT + ring_block;
}

static uint64_t room_at(const struct walk *walk, uint64_t ring_block)
{
	return LP_MIN(walk->super.ring_blocks - ring_block, (uint64_t)LP_LOG_FRAME_BLOCKS_MAX);
}

static int read_ring(const struct walk *walk, void *buf, uint64_t ring_block, uint64_t cnt)
{
	return lp_bdev_read_sync(walk->bdev, buf, cnt * LP_BLOCK_BYTES,
				 device_block(walk, ring_block) * LP_BLOCK_BYTES);
}

/* These blocks of the ring, in memory until the next call. More is read ahead, if it can be. */
static int look(struct walk *walk, uint64_t ring_block, uint64_t cnt, uint8_t **ret)
{
	LP_ASSERT(cnt <= WINDOW_BLOCKS && ring_block + cnt <= walk->super.ring_blocks);
	bool is_inside = ring_block >= walk->from && ring_block + cnt <= walk->from + walk->cnt;
	if (!is_inside) {
		uint64_t want =
			LP_MIN(walk->super.ring_blocks - ring_block, (uint64_t)WINDOW_BLOCKS);
		int err = read_ring(walk, walk->window, ring_block, want);
		walk->from = ring_block;
		walk->cnt = err == 0 ? want : 0;
		if (err < 0) {
			err = read_ring(walk, walk->window, ring_block, cnt);
			walk->cnt = err == 0 ? cnt : 0;
		}
		if (err < 0)
			return err;
	}
	*ret = walk->window + (ring_block - walk->from) * LP_BLOCK_BYTES;
	return 0;
}

/* 1: the frame that is wanted stands there, its meta part whole. */
static int stands(struct walk *walk, uint64_t ring_block, struct lp_log_head *ret_head)
{
	uint8_t *bytes = NULL;
	int err = look(walk, ring_block, 1, &bytes);
	if (err < 0)
		return err;
	if (!reads(bytes, room_at(walk, ring_block), &walk->identity, ring_block, ret_head))
		return 0;
	err = look(walk, ring_block, lp_log_meta_blocks(ret_head), &bytes);
	if (err < 0)
		return err;
	return is_frame(bytes, room_at(walk, ring_block), &walk->identity, ring_block, &walk->want,
			ret_head);
}

/* 1: a frame with this number and chain stands where the next one may. */
static int is_followed(const struct walk *walk, const struct lp_log_head *head)
{
	uint64_t behind = head->ring_block + head->total_blocks;
	const uint64_t places[] = {behind, 0};
	const struct lp_log_head want = {.seq = head->seq + 1, .chain = head->crc};
	for (unsigned i = 0; i < LP_ARRAY_SIZE(places); i++) {
		struct lp_log_head found;
		if (places[i] >= walk->super.ring_blocks)
			continue;
		uint64_t room = room_at(walk, places[i]);
		int err = read_ring(walk, walk->next, places[i], room);
		if (err < 0)
			return err;
		if (is_frame(walk->next, room, &walk->identity, places[i], &want, &found))
			return 1;
	}
	return 0;
}

/* The bits of its payloads flip back, if a single one was wrong in each that is not right. 1: all
 * are right then; of those that were not it is told. */
static int mend_payloads(struct walk *walk, uint8_t *frame, const struct lp_log_head *head)
{
	struct lp_log_view view;
	uint32_t bad_idx = 0;
	if (lp_log_data_is_right(frame, head, &bad_idx))
		return 1;
	int is_acked = head->seq <= walk->super.acked_seq ? 1 : is_followed(walk, head);
	if (is_acked <= 0)
		return is_acked;
	lp_log_view_init(&view, head, frame);
	for (int round = 0; round < 2; round++) {
		for (uint32_t i = bad_idx; i < head->payload_cnt; i++) {
			struct lp_log_payload payload;
			const uint8_t *block = lp_log_view_payload(&view, i, &payload);
			uint32_t crc = lp_crc32c(0, block, LP_BLOCK_BYTES);
			uint64_t bit = lp_mend_find(LP_BLOCK_BYTES, crc, payload.crc);
			if (crc == payload.crc)
				continue;
			if (bit == LP_MEND_NONE)
				return 0;
			if (round == 0)
				continue; /* whether the others can be mended, too */
			uint64_t in_frame = lp_log_meta_blocks(head) + i;
			lp_mend_flip(frame + in_frame * LP_BLOCK_BYTES, bit);
			walk->mender->mended(walk->mender, walk->bdev,
					     device_block(walk, head->ring_block) + in_frame,
					     frame + in_frame * LP_BLOCK_BYTES,
					     "a block of data that waits in the log");
		}
	}
	return 1;
}

/* The frame that is wanted but for one bit. 1: its head; it was told. */
static int mend_at(struct walk *walk, uint64_t ring_block, struct lp_log_head *ret_head)
{
	uint64_t room = room_at(walk, ring_block);
	uint8_t *frame = NULL;
	int err = look(walk, ring_block, room, &frame);
	if (err < 0)
		return err;
	uint64_t bit = lp_log_mend_frame(frame, room, &walk->identity, ring_block, &walk->want);
	if (bit == LP_MEND_NONE)
		return 0;
	bool is_there = reads(frame, room, &walk->identity, ring_block, ret_head);
	LP_ASSERT(is_there);
	int is_right = mend_payloads(walk, frame, ret_head);
	if (is_right <= 0) {
		lp_mend_flip(frame, bit);
		return is_right;
	}
	uint64_t in_frame = bit / 8 / LP_BLOCK_BYTES;
	walk->mender->mended(walk->mender, walk->bdev, device_block(walk, ring_block) + in_frame,
			     frame + in_frame * LP_BLOCK_BYTES, "a frame of the log");
	return 1;
}

/* 1: the next frame, all of it right now. `at`: behind the one before. */
static int take_next(struct walk *walk, uint64_t at, struct lp_log_head *ret_head)
{
	const uint64_t places[] = {at, 0};
	int found = 0;
	uint8_t *frame = NULL;
	for (unsigned i = 0; i < LP_ARRAY_SIZE(places) && found == 0; i++) {
		if (places[i] < walk->super.ring_blocks)
			found = stands(walk, places[i], ret_head);
	}
	if (found < 0)
		return found;
	if (found > 0) {
		int err = look(walk, ret_head->ring_block, ret_head->total_blocks, &frame);
		return err < 0 ? err : mend_payloads(walk, frame, ret_head);
	}
	for (unsigned i = 0; i < LP_ARRAY_SIZE(places) && found == 0; i++) {
		if (places[i] < walk->super.ring_blocks)
			found = mend_at(walk, places[i], ret_head);
	}
	return found;
}

static int walk_frames(struct walk *walk)
{
	uint64_t at = walk->super.start_block;
	/* Each frame takes a block at least. */
	for (uint64_t i = 0; i < walk->super.ring_blocks; i++) {
		struct lp_log_head head;
		int found = take_next(walk, at, &head);
		if (found <= 0)
			return found;
		at = head.ring_block + head.total_blocks;
		walk->want = (struct lp_log_head){.seq = head.seq + 1, .chain = head.crc};
	}
	return 0;
}

int lp_log_mend(struct lp_bdev *bdev, struct lp_extent area, uint32_t shard_idx,
		struct lp_mender *mender)
{
	struct walk walk = {.bdev = bdev, .area = area, .mender = mender};
	if (area.cnt <= LP_LOG_SLOT_CNT)
		return 0;
	walk.window = aligned_alloc(LP_BLOCK_BYTES, WINDOW_BLOCKS * LP_BLOCK_BYTES);
	walk.next = aligned_alloc(LP_BLOCK_BYTES, LP_LOG_FRAME_BLOCKS_MAX * LP_BLOCK_BYTES);
	int err = walk.window == NULL || walk.next == NULL ? -ENOMEM : 0;
	if (err == 0 && read_super(&walk, shard_idx)) {
		walk.identity = (struct lp_log_identity){
			.tag = lp_log_tag(walk.super.store_uuid, walk.super.salt),
			.ring_blocks = walk.super.ring_blocks,
			.shard = shard_idx,
			.frame_blocks_max = walk.super.frame_blocks_max};
		walk.want = (struct lp_log_head){.seq = walk.super.start_seq,
						 .chain = walk.super.start_chain};
		err = walk_frames(&walk);
	}
	free(walk.next);
	free(walk.window);
	return err;
}
