/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks of the device that cannot be written (rule L6).
 *
 * A deferred payload whose block cannot be written would hold its frame, and so the log, for ever.
 * So the payload moves into the index. A commit puts a record of it that stays
 * (store/commit/deferred_records.h). When that commit is durable the log need not keep the payload.
 * The map that names the block is left alone. A block has one content, whichever files share it,
 * and readers find the payload by the block. For that reason the payload goes to the index and not
 * to another block: the shard need not find out which files have the block. Nothing but the block
 * itself can change meanwhile, and pending knows of that. A crash finds either the payload in the
 * log or the record.
 *
 *   write-back gives up a block -> the block is noted and held, its payload is stuck
 *   a group has room            -> a record of the payload; that version is settled
 *   the block is overwritten    -> write-back tries the new payload, which may come here again
 *   the block is freed          -> its content is forgotten, but the block is held: while the shard
 *                                  runs, and by the record after that
 *   an opening                  -> tries to write the block; if that fails the block is noted again
 *
 * Each bad block costs one block of memory and one of the index, beside those of the deferred
 * payloads. So however little memory there is for payloads, an opening serves all earlier bad
 * blocks. A device with more than a few of them can no longer be trusted: then the shard becomes
 * read-only (rule L7).
 */
#include <stdlib.h>
#include <string.h>

#include "store/shard/shard_impl.h"

bool lpi_bad_note(struct lp_shard *shard, uint64_t block)
{
	struct lpi_bad *bad = &shard->bad;
	for (uint32_t i = 0; i < bad->cnt; i++) {
		if (bad->holds[i].extent.block == block)
			return true;
	}
	uint32_t max = shard->options.bad_blocks_max;
	if (bad->holds == NULL)
		bad->holds = calloc(max, sizeof(*bad->holds));
	if (bad->holds == NULL || bad->cnt == max)
		return false;
	if (bad->cnt == 0)
		bad->since_ns = lp_clock_wall_ns(lp_reactor_clock(shard->options.reactor));
	lp_space_hold(shard->space, &bad->holds[bad->cnt++], (struct lp_extent){block, 1});
	return true;
}

struct lp_seg lpi_bad_copy(struct lp_shard *shard, const uint8_t *block)
{
	struct lp_seg seg = {.buf = lp_buf_new_ranked(shard->options.bufs, (uint32_t)LP_BLOCK_BYTES,
						      LP_BUF_COPY),
			     .len = (uint32_t)LP_BLOCK_BYTES};
	if (seg.buf != NULL)
		memcpy(seg.buf->data, block, LP_BLOCK_BYTES);
	return seg;
}

static void move(struct lp_shard *shard, const struct lp_pending_block *block, struct lp_seg seg)
{
	const struct lp_log_payload about = {.device_block = block->block, .crc = block->crc};
	/* A copy, because a reference to a larger buffer would keep all of it. Without room for a
	 * copy the reference is kept. */
	struct lp_seg own = lpi_bad_copy(shard, block->data);
	if (own.buf == NULL) {
		own = seg;
		(void)lp_buf_get(own.buf);
	}
	uint64_t record = lp_deferrals_put(shard->deferrals, &about, own);
	int err = lp_pending_add_stuck(shard->pending, lp_commit_seq(shard->commit), block, own,
				       record, true);
	LP_ASSERT(err == 0); /* there was room */
	lp_buf_put(own.buf);
}

void lpi_bad_move_some(struct lp_shard *shard)
{
	const struct lp_commit_need need = {.batch_bytes = LP_DEFERRALS_PUT_NEED,
					    .is_relief = true};
	struct lp_pending_block block;
	struct lp_seg seg;
	/* If some stay stuck, the next durable frame, or the next payload that reaches its block,
	 * calls this function again. */
	while (shard->error == 0 && !shard->closing && lp_commit_error(shard->commit) == 0 &&
	       lp_pending_room(shard->pending) > 0 && lp_deferrals_room(shard->deferrals) > 0 &&
	       lp_pending_find_stuck(shard->pending, &block, &seg) &&
	       lp_commit_reserve(shard->commit, &need))
		move(shard, &block, seg);
}

uint32_t lp_shard_bad_blocks(const struct lp_shard *shard)
{
	return shard->bad.cnt;
}

void lp_shard_read_bad(const struct lp_shard *shard, struct lp_bad_blocks *ret_bad)
{
	const struct lpi_bad *bad = &shard->bad;
	*ret_bad = (struct lp_bad_blocks){.cnt = bad->cnt,
					  .shown = LP_MIN(bad->cnt, LP_BAD_BLOCKS_SHOWN),
					  .since_ns = bad->since_ns};
	for (uint32_t i = 0; i < ret_bad->shown; i++)
		ret_bad->blocks[i] = bad->holds[i].extent.block;
}

void lpi_bad_fini(struct lp_shard *shard)
{
	struct lpi_bad *bad = &shard->bad;
	for (uint32_t i = 0; i < bad->cnt; i++)
		lp_space_unpin(shard->space, &bad->holds[i]);
	lp_task_cancel(&bad->task);
	free(bad->holds);
}
