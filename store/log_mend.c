/* SPDX-License-Identifier: Apache-2.0 */
/* Frame after frame, as a recovery reads them. Where the next one does not stand it would end, or
 * refuse; here each bit of the header is tried, then the one that the crc says. */
#include "store/log_mend.h"

#include <stdlib.h>

#include "base/crc32c.h"
#include "base/error.h"

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

static bool is_frame(const uint8_t *frame, uint64_t room_blocks,
		     const struct lp_log_identity *identity, uint64_t ring_block,
		     const struct lp_log_head *want)
{
	struct lp_log_head head;
	return reads(frame, room_blocks, identity, ring_block, &head) && head.seq == want->seq &&
	       head.chain == want->chain && lp_log_meta_is_right(frame, &head);
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
		if (is_frame(frame, room_blocks, identity, ring_block, want))
			return bit;
		lp_mend_flip(frame, bit);
	}
	for (bit = 0; bit < LP_LOG_HEAD_SIZE * UINT64_C(8); bit++) {
		lp_mend_flip(frame, bit);
		if (is_frame(frame, room_blocks, identity, ring_block, want))
			return bit;
		lp_mend_flip(frame, bit);
	}
	return LP_MEND_NONE;
}

struct walk {
	struct lp_bdev *bdev;
	struct lp_extent area;
	struct lp_mender *mender;
	struct lp_log_super super;
	struct lp_log_identity identity;
	struct lp_log_head want; /* number and chain of the next frame */
	uint8_t *frame;          /* LP_LOG_FRAME_BLOCKS_MAX blocks */
	uint64_t room_blocks;    /* that were read into it */
};

static bool read_super(struct walk *walk, uint32_t shard_idx)
{
	bool has_one = false;
	for (uint32_t i = 0; i < LP_LOG_SLOT_CNT; i++) {
		struct lp_log_super super;
		if (lp_bdev_read_sync(walk->bdev, walk->frame, LP_BLOCK_BYTES,
				      (walk->area.block + i) * LP_BLOCK_BYTES) < 0 ||
		    lp_log_super_read(walk->frame, &super) != LP_LOG_FOUND ||
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

/* The frame that is wanted stands there; with may_mend also one that does but for a bit. */
static int stands(struct walk *walk, uint64_t ring_block, bool may_mend, bool *ret)
{
	*ret = false;
	if (ring_block >= walk->super.ring_blocks)
		return 0;
	walk->room_blocks =
		LP_MIN(walk->super.ring_blocks - ring_block, (uint64_t)LP_LOG_FRAME_BLOCKS_MAX);
	int err = lp_bdev_read_sync(walk->bdev, walk->frame, walk->room_blocks * LP_BLOCK_BYTES,
				    device_block(walk, ring_block) * LP_BLOCK_BYTES);
	if (err < 0)
		return err;
	*ret = is_frame(walk->frame, walk->room_blocks, &walk->identity, ring_block, &walk->want);
	if (*ret || !may_mend)
		return 0;
	uint64_t bit = lp_log_mend_frame(walk->frame, walk->room_blocks, &walk->identity,
					 ring_block, &walk->want);
	if (bit == LP_MEND_NONE)
		return 0;
	uint64_t in_frame = bit / 8 / LP_BLOCK_BYTES;
	walk->mender->mended(walk->mender, walk->bdev, device_block(walk, ring_block) + in_frame,
			     walk->frame + in_frame * LP_BLOCK_BYTES, "a frame of the log");
	*ret = true;
	return 0;
}

static int walk_frames(struct walk *walk)
{
	const uint64_t ring_blocks = walk->super.ring_blocks;
	uint64_t at = walk->super.start_block;
	/* Each frame takes a block at least. */
	for (uint64_t i = 0; i < ring_blocks; i++) {
		uint64_t places[] = {at, 0, at, 0};
		uint64_t place = 0;
		bool is_there = false;
		int err = 0;
		for (unsigned j = 0; j < LP_ARRAY_SIZE(places) && err == 0 && !is_there; j++) {
			place = places[j];
			err = stands(walk, place, j >= 2, &is_there);
		}
		struct lp_log_head head;
		if (err < 0 || !is_there ||
		    !reads(walk->frame, walk->room_blocks, &walk->identity, place, &head))
			return err;
		at = place + head.total_blocks;
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
	walk.frame = aligned_alloc(LP_BLOCK_BYTES, LP_LOG_FRAME_BLOCKS_MAX * LP_BLOCK_BYTES);
	if (walk.frame == NULL)
		return -ENOMEM;
	int err = 0;
	if (read_super(&walk, shard_idx)) {
		walk.identity = (struct lp_log_identity){
			.tag = lp_log_tag(walk.super.store_uuid, walk.super.salt),
			.ring_blocks = walk.super.ring_blocks,
			.shard = shard_idx,
			.frame_blocks_max = walk.super.frame_blocks_max};
		walk.want = (struct lp_log_head){.seq = walk.super.start_seq,
						 .chain = walk.super.start_chain};
		err = walk_frames(&walk);
	}
	free(walk.frame);
	return err;
}
