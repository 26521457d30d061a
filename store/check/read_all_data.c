/* SPDX-License-Identifier: Apache-2.0 */
/* Reads all written blocks in long pieces, some at a time, and holds them against their checksums.
 * What waits for its place is held against it in memory: that is what a reader would get.
 *
 * A slot is free, collecting (one at most: the last that was added to), reading, or read. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/error.h"
#include "store/check/fsck_impl.h"

#define SLOTS       8u
#define SLOT_BLOCKS 256u

enum slot_state { SLOT_FREE, SLOT_COLLECTING, SLOT_READING, SLOT_READ };

struct slot {
	struct lp_bdev_op op;
	enum slot_state state;
	struct lp_ino ino;
	uint64_t logical; /* of the first block, in the file */
	struct lp_extent extent;
	uint8_t *buf;
	uint32_t crcs[SLOT_BLOCKS];
};

struct lpi_fsck_deep {
	struct lpi_fsck_shard *shard;
	struct slot *last; /* collecting, or NULL */
	struct slot slots[SLOTS];
};

int lpi_fsck_deep_new(struct lpi_fsck_shard *shard, struct lpi_fsck_deep **ret)
{
	struct lpi_fsck_deep *deep = calloc(1, sizeof(*deep));
	if (deep == NULL)
		return -ENOMEM;
	deep->shard = shard;
	for (size_t i = 0; i < SLOTS; i++) {
		deep->slots[i].buf = aligned_alloc(LP_BLOCK_BYTES, SLOT_BLOCKS * LP_BLOCK_BYTES);
		if (deep->slots[i].buf == NULL) {
			lpi_fsck_deep_free(deep);
			return -ENOMEM;
		}
	}
	*ret = deep;
	return 0;
}

void lpi_fsck_deep_free(struct lpi_fsck_deep *deep)
{
	if (deep == NULL)
		return;
	for (size_t i = 0; i < SLOTS; i++) {
		LP_ASSERT(deep->slots[i].state != SLOT_READING);
		free(deep->slots[i].buf);
	}
	free(deep);
}

/* --- Judging ---------------------------------------------------------------------------------- */

/* Some blocks in a row have the same fault. */
static void found_blocks(struct lpi_fsck_deep *deep, const struct slot *slot, uint64_t first,
			 uint64_t cnt, enum lp_fsck_kind kind)
{
	const struct lpi_fsck_at at = {.kind = kind,
				       .shard = deep->shard,
				       .ino = slot->ino,
				       .extent = {slot->extent.block + first, cnt},
				       .has_offset = true,
				       .offset_bytes = (slot->logical + first) << LP_BLOCK_SHIFT};
	lpi_fsck_found(deep->shard->fsck, &at, "%" PRIu64 " bytes at offset %llu (block %llu) %s",
		       cnt * LP_BLOCK_BYTES, (unsigned long long)at.offset_bytes,
		       (unsigned long long)at.extent.block,
		       kind == LP_FSCK_DATA ? "are damaged" : "cannot be read");
}

/* LP_FSCK_KIND_CNT: in order. After a read of all has failed each is read by itself. */
static enum lp_fsck_kind judge_block(struct lpi_fsck_deep *deep, struct slot *slot, uint64_t i)
{
	uint8_t *block = slot->buf + i * LP_BLOCK_BYTES;
	struct lp_bdev *bdev = lp_bdev_of(lp_shard_data(deep->shard->shard));
	if (slot->op.result < 0 && lp_bdev_read_sync(bdev, block, LP_BLOCK_BYTES,
						     (slot->extent.block + i) * LP_BLOCK_BYTES) < 0)
		return LP_FSCK_DATA_READ;
	return lp_crc32c(0, block, LP_BLOCK_BYTES) == slot->crcs[i] ? LP_FSCK_KIND_CNT
								    : LP_FSCK_DATA;
}

static void judge(struct lpi_fsck_deep *deep, struct slot *slot)
{
	enum lp_fsck_kind last = LP_FSCK_KIND_CNT;
	uint64_t first = 0;
	LP_ASSERT(slot->state == SLOT_READ);
	for (uint64_t i = 0; i < slot->extent.cnt; i++) {
		enum lp_fsck_kind kind = judge_block(deep, slot, i);
		if (kind == last)
			continue;
		if (last != LP_FSCK_KIND_CNT)
			found_blocks(deep, slot, first, i - first, last);
		last = kind;
		first = i;
	}
	if (last != LP_FSCK_KIND_CNT)
		found_blocks(deep, slot, first, slot->extent.cnt - first, last);
	deep->shard->fsck->report->read_blocks += slot->extent.cnt;
	lpi_fsck_moved(deep->shard->fsck);
	slot->state = SLOT_FREE;
}

/* --- Reading ---------------------------------------------------------------------------------- */

static void complete(struct lp_bdev_op *op)
{
	struct slot *slot = LP_CONTAINER_OF(op, struct slot, op);
	LP_ASSERT(slot->state == SLOT_READING);
	slot->state = SLOT_READ;
}

static void submit_last(struct lpi_fsck_deep *deep)
{
	struct slot *slot = deep->last;
	if (slot == NULL)
		return;
	deep->last = NULL;
	slot->state = SLOT_READING;
	lp_bdev_op_prep(&slot->op, LP_BDEV_READ, slot->buf, slot->extent.cnt * LP_BLOCK_BYTES,
			slot->extent.block * LP_BLOCK_BYTES);
	slot->op.complete = complete;
	lp_bdev_submit(lp_shard_data(deep->shard->shard), &slot->op);
}

/* Judges what was read; returns a free slot, or NULL when all are being read. */
static struct slot *reap(struct lpi_fsck_deep *deep, uint32_t *ret_reading)
{
	struct slot *free_slot = NULL;
	*ret_reading = 0;
	for (size_t i = 0; i < SLOTS; i++) {
		struct slot *slot = &deep->slots[i];
		if (slot->state == SLOT_READ)
			judge(deep, slot);
		if (slot->state == SLOT_FREE)
			free_slot = slot;
		*ret_reading += slot->state == SLOT_READING;
	}
	return free_slot;
}

static struct slot *get_slot(struct lpi_fsck_deep *deep)
{
	uint32_t reading;
	struct slot *slot;
	while ((slot = reap(deep, &reading)) == NULL)
		lpi_fsck_turn(deep->shard);
	return slot;
}

void lpi_fsck_deep_finish(struct lpi_fsck_deep *deep)
{
	uint32_t reading;
	submit_last(deep);
	(void)reap(deep, &reading);
	while (reading > 0) {
		lpi_fsck_turn(deep->shard);
		(void)reap(deep, &reading);
	}
}

/* True when the block is held in memory, and was judged. */
static bool judge_pending(struct lpi_fsck_deep *deep, struct lp_ino ino, uint64_t logical,
			  uint64_t block, uint32_t crc)
{
	struct lp_seg seg;
	uint32_t pending_crc;
	if (!lp_pending_find(lp_shard_pending(deep->shard->shard), block, &seg, &pending_crc))
		return false;
	const struct slot one = {.ino = ino, .logical = logical, .extent = {block, 1}};
	deep->shard->fsck->report->read_blocks++;
	if (lp_crc32c(0, seg.buf->data + seg.offset, LP_BLOCK_BYTES) != crc)
		found_blocks(deep, &one, 0, 1, LP_FSCK_DATA);
	return true;
}

static bool continues(const struct slot *slot, struct lp_ino ino, uint64_t logical, uint64_t block)
{
	return slot != NULL && slot->ino.nr == ino.nr && slot->extent.cnt < SLOT_BLOCKS &&
	       slot->logical + slot->extent.cnt == logical && lp_extent_end(slot->extent) == block;
}

void lpi_fsck_deep_add(struct lpi_fsck_deep *deep, struct lp_ino ino, uint64_t logical,
		       struct lp_extent extent, const uint32_t *crcs)
{
	for (uint64_t i = 0; i < extent.cnt; i++) {
		uint64_t block = extent.block + i;
		if (judge_pending(deep, ino, logical + i, block, crcs[i]))
			continue;
		if (!continues(deep->last, ino, logical + i, block)) {
			submit_last(deep);
			deep->last = get_slot(deep);
			deep->last->state = SLOT_COLLECTING;
			deep->last->ino = ino;
			deep->last->logical = logical + i;
			deep->last->extent = (struct lp_extent){block, 0};
		}
		deep->last->crcs[deep->last->extent.cnt++] = crcs[i];
	}
}
