/* SPDX-License-Identifier: Apache-2.0 */
/* Superblocks and frames of the log as bytes (docs/format/log.md).
 *
 * Threads: any.
 * Blocking: none.
 * Memory: none is allocated.
 * Errors: corruption is not reported from here, because a block without a frame is the usual
 * thing to find behind the last frame.
 *
 * Pure functions. The bytes they read may be any at all. They say what stands at a place;
 * log/recover.c decides what that means for the log as a whole.
 */
#ifndef LP_STORE_LOG_FORMAT_H
#define LP_STORE_LOG_FORMAT_H

#include "format/log.h"
#include "store/record/types.h"

#define LP_LOG_SLOT_CNT 2u
/* Of one frame: what one gathered write can hold, and what recovery must hold in memory. */
#define LP_LOG_FRAME_BLOCKS_MAX  1024u
#define LP_LOG_RING_BLOCKS_MAX   (UINT64_C(1) << 32)
#define LP_LOG_FLIGHT_FRAMES_MAX 1024u
/* Of all that is counted; never reached. */
#define LP_LOG_SEQ_MAX (UINT64_C(1) << 62)

enum lp_log_found {
	LP_LOG_FOUND,  /* the record stands there */
	LP_LOG_ABSENT, /* nothing, or something else */
	LP_LOG_BROKEN, /* its own words are there, but the crc does not match */
	LP_LOG_NEWER,  /* a superblock of a format version that we do not know */
	LP_LOG_ALIEN,  /* a superblock that breaks the rules of the format, though its crc is right
			*/
};

/* --- Superblock ----------------------------------------------------------------------------- */

/* Fills a block; sets magic, version and crc itself. */
void lp_log_super_write(const struct lp_log_super *super, void *ret_block);
/* *ret_super is set when found; also, for messages only, when newer or alien. */
enum lp_log_found lp_log_super_read(const void *block, struct lp_log_super *ret_super);

/* --- Frame ------------------------------------------------------------------------------------ */

/* What a frame's header is held against. */
struct lp_log_identity {
	uint64_t tag; /* lp_log_tag() */
	uint64_t ring_blocks;
	uint32_t shard;
	uint32_t frame_blocks_max;
};

uint64_t lp_log_tag(const uint8_t *store_uuid, uint64_t salt);

/* Bytes before the padding, and blocks with it; all for any numbers. */
static inline uint64_t lp_log_parts_bytes(uint32_t batch_bytes, uint32_t change_cnt,
					  uint32_t payload_cnt)
{
	/* Three products of 32-bit numbers and small sizes: far from the end of 64 bits. */
	return LP_LOG_HEAD_SIZE + payload_cnt * (uint64_t)LP_LOG_PAYLOAD_SIZE +
	       change_cnt * (uint64_t)LP_LOG_CHANGE_SIZE + batch_bytes;
}
uint64_t lp_log_meta_bytes(const struct lp_log_head *head);
uint64_t lp_log_meta_blocks(const struct lp_log_head *head);

/* Completes the header of a meta part in place: magic, version, total_blocks are set from the
 * lengths, the rest is taken from *head; head->crc is set to what was written. What follows the
 * header must be there already, zeros up to the end of the last block included. */
void lp_log_head_write(struct lp_log_head *head, void *meta);

/* Looks at the first block of what may be a frame at that place of the ring. On LP_LOG_FOUND all
 * lengths are sound and fit into the ring; its crc is not yet checked. */
enum lp_log_found lp_log_head_read(const void *block, const struct lp_log_identity *identity,
				   uint64_t ring_block, struct lp_log_head *ret_head);
/* meta: all of lp_log_meta_blocks(). */
bool lp_log_meta_is_right(const void *meta, const struct lp_log_head *head);
/* frame: all of head->total_blocks, its meta part being right. False with the number of a payload
 * block that does not match. */
bool lp_log_data_is_right(const void *frame, const struct lp_log_head *head, uint32_t *ret_idx);

/* --- The parts of a frame that is whole --------------------------------------------------------
 */

/* A frame as recovery hands it out: all pointers are into its buffer, for the length of the call.
 */
struct lp_log_view {
	struct lp_log_head head;
	const uint8_t *batch; /* head.batch_bytes */
	const uint8_t *changes;
	const uint8_t *payloads;
	const uint8_t *data;
};

void lp_log_view_init(struct lp_log_view *view, const struct lp_log_head *head, const void *frame);
/* idx < head.change_cnt */
void lp_log_view_change(const struct lp_log_view *view, uint32_t idx,
			struct lp_log_change *ret_change);
/* idx < head.payload_cnt. Returns the block itself. */
const uint8_t *lp_log_view_payload(const struct lp_log_view *view, uint32_t idx,
				   struct lp_log_payload *ret_payload);

#endif
