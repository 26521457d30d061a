/* SPDX-License-Identifier: Apache-2.0 */
/* Flipped bits in a log: in the meta part of a frame, or in its payloads.
 *
 * Threads: any, one per log.
 * Blocking: lp_log_mend(). Nothing is written.
 * Errors: -ENOMEM, and what the device says.
 *
 * For `lapis salvage` and `lapis fsck`.
 *
 * A bit of the meta part is found by the frame's crc, and by its place behind the frame before
 * it, whose crc it names. A frame that was torn while it was written may look the same, by
 * chance. So the result is believed only if its batch can be read, each record of it is right by
 * itself, and the payloads are right.
 *
 * A bit of a payload is found by that payload's crc, and there is nothing else to hold it
 * against. So it is believed only if the frame was acknowledged, and so cannot be torn: a
 * superblock says so, or a frame stands behind it.
 */
#ifndef LP_STORE_SALVAGE_MEND_LOG_H
#define LP_STORE_SALVAGE_MEND_LOG_H

#include "store/device/bdev.h"
#include "store/log/format.h"
#include "store/salvage/flipped_bit.h"

/* frame: room_blocks of what stands at ring_block. The bit after whose flip it is the frame with
 * that number and chain, and its records are right; it has flipped then. LP_MEND_NONE: no single
 * one. Payloads are not looked at. */
uint64_t lp_log_mend_frame(uint8_t *frame, uint64_t room_blocks,
			   const struct lp_log_identity *identity, uint64_t ring_block,
			   const struct lp_log_head *want);

/* Tells of each such bit in the frames from the start of the log on. */
int lp_log_mend(struct lp_bdev *bdev, struct lp_extent area, uint32_t shard_idx,
		struct lp_mender *mender) LP_MUST_CHECK;

#endif
