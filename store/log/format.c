/* SPDX-License-Identifier: Apache-2.0 */
/* The order of checks matters: nothing read from a header is used as a length before it was held
 * against the limits, and the crc is asked before anything else in the frame is believed. */
#include "store/log/format.h"

#include <string.h>

#include "base/assert.h"
#include "base/crc32c.h"
#include "base/hash.h"

#define UUID_BYTES LP_LOG_SUPER_STORE_UUID_SIZE

/* The crc of bytes in which the 32-bit crc field at LP_LOG_*_CRC_OFF counts as zero. */
static uint32_t crc_without_field(const void *bytes, size_t len)
{
	static_assert(LP_LOG_SUPER_CRC_OFF == 4 && LP_LOG_HEAD_CRC_OFF == 4,
		      "both records have their crc in the same place");
	static const uint8_t zeros[4];
	const uint8_t *from = bytes;
	LP_ASSERT(len > LP_LOG_HEAD_SIZE);
	uint32_t crc = lp_crc32c(0, from, 4);
	crc = lp_crc32c(crc, zeros, 4);
	return lp_crc32c(crc, from + 8, len - 8);
}

static bool is_zero(const uint8_t *bytes, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (bytes[i] != 0)
			return false;
	return true;
}

/* --- Superblock ----------------------------------------------------------------------------- */

void lp_log_super_write(const struct lp_log_super *super, void *ret_block)
{
	struct lp_log_super out = *super;
	out.magic = LP_LOG_MAGIC_SUPER;
	out.version = LP_LOG_VERSION_NEWEST;
	out.crc = 0;
	LP_ASSERT(lp_log_super_reserved_is_zero(&out));
	memset(ret_block, 0, LP_BLOCK_BYTES);
	lp_log_super_encode(&out, ret_block);
	out.crc = crc_without_field(ret_block, LP_BLOCK_BYTES);
	lp_log_super_encode(&out, ret_block);
}

/* What a superblock must fulfil by itself, whoever wrote it. */
static bool super_is_sound(const struct lp_log_super *super)
{
	if (!lp_log_super_reserved_is_zero(super) ||
	    (super->flags & ~(uint32_t)LP_LOG_SUPER_FLAG_ALL) != 0)
		return false;
	if (super->slot_seq == 0 || super->incarnation == 0 || super->first_seq == 0)
		return false;
	/* Then nothing that is added to one of these can overflow. */
	if (super->slot_seq > LP_LOG_SEQ_MAX || super->incarnation > LP_LOG_SEQ_MAX ||
	    super->acked_seq > LP_LOG_SEQ_MAX)
		return false;
	if (super->start_seq == 0 || super->first_seq - 1 > super->acked_seq ||
	    super->start_seq - 1 > super->acked_seq)
		return false;
	if (super->ring_blocks == 0 || super->ring_blocks > LP_LOG_RING_BLOCKS_MAX ||
	    super->start_block >= super->ring_blocks)
		return false;
	return super->frame_blocks_max != 0 && super->frame_blocks_max <= super->ring_blocks &&
	       super->frame_blocks_max <= LP_LOG_FRAME_BLOCKS_MAX &&
	       super->flight_frames_max != 0 &&
	       super->flight_frames_max <= LP_LOG_FLIGHT_FRAMES_MAX &&
	       super->flight_blocks_max != 0 && super->flight_blocks_max <= super->ring_blocks;
}

enum lp_log_found lp_log_super_read(const void *block, struct lp_log_super *ret_super)
{
	struct lp_log_super super;
	lp_log_super_decode(block, &super);
	if (super.magic != LP_LOG_MAGIC_SUPER)
		return LP_LOG_ABSENT;
	if (super.crc != crc_without_field(block, LP_BLOCK_BYTES))
		return LP_LOG_BROKEN;
	*ret_super = super;
	if (super.version > LP_LOG_VERSION_NEWEST)
		return LP_LOG_NEWER;
	const uint8_t *rest = (const uint8_t *)block + LP_LOG_SUPER_SIZE;
	if (super.version == 0 || !super_is_sound(&super) ||
	    !is_zero(rest, LP_BLOCK_BYTES - LP_LOG_SUPER_SIZE))
		return LP_LOG_ALIEN;
	return LP_LOG_FOUND;
}

/* --- Frame ------------------------------------------------------------------------------------ */

uint64_t lp_log_tag(const uint8_t *store_uuid, uint64_t salt)
{
	return lp_hash_u64(store_uuid, UUID_BYTES, salt);
}

uint64_t lp_log_meta_bytes(const struct lp_log_head *head)
{
	return lp_log_parts_bytes(head->batch_bytes, head->change_cnt, head->payload_cnt);
}

uint64_t lp_log_meta_blocks(const struct lp_log_head *head)
{
	return lp_bytes_to_blocks_up(lp_log_meta_bytes(head));
}

void lp_log_head_write(struct lp_log_head *head, void *meta)
{
	uint64_t meta_blocks = lp_log_meta_blocks(head);
	LP_ASSERT(meta_blocks + head->payload_cnt <= LP_LOG_FRAME_BLOCKS_MAX);
	head->magic = LP_LOG_MAGIC_FRAME;
	head->version = LP_LOG_VERSION_NEWEST;
	head->total_blocks = (uint32_t)(meta_blocks + head->payload_cnt);
	head->crc = 0;
	LP_ASSERT(head->acked_seq < head->seq && head->oldest_needed <= head->seq);
	lp_log_head_encode(head, meta);
	head->crc = crc_without_field(meta, meta_blocks * LP_BLOCK_BYTES);
	lp_log_head_encode(head, meta);
}

static bool head_is_sound(const struct lp_log_head *head, const struct lp_log_identity *identity)
{
	if (!lp_log_head_reserved_is_zero(head) || head->flags != 0)
		return false;
	if (head->seq > LP_LOG_SEQ_MAX || head->acked_seq >= head->seq ||
	    head->oldest_needed == 0 || head->oldest_needed > head->seq)
		return false;
	if (head->total_blocks > identity->frame_blocks_max ||
	    head->total_blocks > identity->ring_blocks - head->ring_block)
		return false;
	return lp_log_meta_blocks(head) + head->payload_cnt == head->total_blocks;
}

enum lp_log_found lp_log_head_read(const void *block, const struct lp_log_identity *identity,
				   uint64_t ring_block, struct lp_log_head *ret_head)
{
	struct lp_log_head head;
	LP_ASSERT(ring_block < identity->ring_blocks);
	lp_log_head_decode(block, &head);
	if (head.magic != LP_LOG_MAGIC_FRAME || head.version != LP_LOG_VERSION_NEWEST)
		return LP_LOG_ABSENT;
	if (head.tag != identity->tag || head.shard != identity->shard ||
	    head.ring_block != ring_block)
		return LP_LOG_ABSENT;
	if (!head_is_sound(&head, identity))
		return LP_LOG_ABSENT;
	*ret_head = head;
	return LP_LOG_FOUND;
}

bool lp_log_meta_is_right(const void *meta, const struct lp_log_head *head)
{
	return crc_without_field(meta, lp_log_meta_blocks(head) * LP_BLOCK_BYTES) == head->crc;
}

bool lp_log_data_is_right(const void *frame, const struct lp_log_head *head, uint32_t *ret_idx)
{
	struct lp_log_view view;
	lp_log_view_init(&view, head, frame);
	for (uint32_t i = 0; i < head->payload_cnt; i++) {
		struct lp_log_payload payload;
		const uint8_t *block = lp_log_view_payload(&view, i, &payload);
		if (lp_crc32c(0, block, LP_BLOCK_BYTES) != payload.crc) {
			*ret_idx = i;
			return false;
		}
	}
	return true;
}

/* --- Views --------------------------------------------------------------------------------------
 */

void lp_log_view_init(struct lp_log_view *view, const struct lp_log_head *head, const void *frame)
{
	const uint8_t *bytes = frame;
	view->head = *head;
	view->payloads = bytes + LP_LOG_HEAD_SIZE;
	view->changes = view->payloads + head->payload_cnt * (size_t)LP_LOG_PAYLOAD_SIZE;
	view->batch = view->changes + head->change_cnt * (size_t)LP_LOG_CHANGE_SIZE;
	view->data = bytes + lp_log_meta_blocks(head) * LP_BLOCK_BYTES;
}

void lp_log_view_change(const struct lp_log_view *view, uint32_t idx,
			struct lp_log_change *ret_change)
{
	LP_ASSERT(idx < view->head.change_cnt);
	lp_log_change_decode(view->changes + idx * (size_t)LP_LOG_CHANGE_SIZE, ret_change);
}

const uint8_t *lp_log_view_payload(const struct lp_log_view *view, uint32_t idx,
				   struct lp_log_payload *ret_payload)
{
	LP_ASSERT(idx < view->head.payload_cnt);
	lp_log_payload_decode(view->payloads + idx * (size_t)LP_LOG_PAYLOAD_SIZE, ret_payload);
	return view->data + idx * (size_t)LP_BLOCK_BYTES;
}
