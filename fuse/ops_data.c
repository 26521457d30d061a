/* SPDX-License-Identifier: Apache-2.0 */
/* Open files: open, read, write, fsync, release.
 *
 * A write's data is where the kernel's message put it, in buffers that the store takes as they are.
 * Its checksums begin here (rule W2), one for each piece that the file's grid of blocks cuts from
 * it: the store has them made when the device has the data, if that goes there directly. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "base/crc32c.h"
#include "fuse/change.h"
#include "fuse/channel_impl.h"
#include "fuse/ops.h"

#define BLOCK_BYTES 4096u

/* --- Open, release ---------------------------------------------------------------------------- */

static void closed(struct lpi_fuse_request *request)
{
	lpi_fuse_end(request, 0);
}

static void opened(struct lpi_fuse_request *request)
{
	struct fuse_open_out out = {.fh = 0};
	if (request->op.result < 0) {
		lpi_fuse_answer(request, request->op.result);
		return;
	}
	if (request->message.header.opcode == FUSE_OPENDIR)
		out.fh = lpi_fuse_begin_reading(request);
	else
		out.fh = lpi_fuse_handle_new(request->channel);
	/* What it has of the data is as good as its attributes: while it remembers the inode, it is
	 * told of what is changed, and when it forgets it, the data is gone. */
	if (request->message.header.opcode == FUSE_OPEN && lpi_fuse_is_direct(request))
		out.open_flags = FOPEN_DIRECT_IO;
	else if (request->message.header.opcode == FUSE_OPEN && lpi_fuse_attr_ns(request) > 0)
		out.open_flags = FOPEN_KEEP_CACHE;
	if (lpi_fuse_tell(request, &out, sizeof(out))) {
		lpi_fuse_end(request, 0);
		return;
	}
	if (request->message.header.opcode == FUSE_OPENDIR)
		lpi_fuse_end_reading(request, out.fh);
	/* Nobody will release what nobody knows to be open. */
	struct lp_ns_op *op = lpi_fuse_op(request, LP_NS_CLOSE);
	op->open.ino = lpi_fuse_node(request);
	op->open.count = 1;
	lpi_fuse_submit(request, closed);
}

void lpi_fuse_open(struct lpi_fuse_request *request)
{
	lpi_fuse_op(request, LP_NS_OPEN)->open.ino = lpi_fuse_node(request);
	lpi_fuse_submit(request, opened);
}

void lpi_fuse_release(struct lpi_fuse_request *request)
{
	struct lp_ns_op *op = lpi_fuse_op(request, LP_NS_CLOSE);
	op->open.ino = lpi_fuse_node(request);
	op->open.count = 1;
	lpi_fuse_submit(request, lpi_fuse_answer_result);
}

static void synced(struct lpi_fuse_request *request)
{
	uint64_t handle = request->message.in.fsync.fh;
	/* A directory's handle is its reading's: who asks by that is told each time. */
	if (request->message.header.opcode == FUSE_FSYNCDIR)
		lpi_fuse_answer(request, LP_MIN(request->op.result, 0));
	else
		lpi_fuse_answer(request, lpi_fuse_sync_verdict(request, handle));
}

/* Of a file or directory: also its entry, and the directories above (rule M1). */
void lpi_fuse_fsync(struct lpi_fuse_request *request)
{
	lpi_fuse_sync(request, synced);
}

void lpi_fuse_syncfs(struct lpi_fuse_request *request)
{
	lpi_fuse_sync(request, lpi_fuse_answer_result);
}

/* --- Read ------------------------------------------------------------------------------------- */

static void answer_read(struct lpi_fuse_request *request)
{
	struct lp_fuse_channel *channel = request->channel;
	const struct lp_store_op *op = &request->op.store.op;
	channel->stats.read_bytes += op->read.bytes;
	lpi_fuse_answer_segs(request, op->read.segs, op->read.seg_cnt);
	lp_ns_end(channel->options.ns, &request->op);
	lpi_fuse_end(request, 0);
}

static void has_read(struct lpi_fuse_request *request)
{
	int r = request->op.result;
	if (r < 0)
		lpi_fuse_answer(request, r == -ENOENT ? -ESTALE : r);
	else if ((request->message.in.read.flags & O_NOATIME) != 0)
		answer_read(request);
	else
		lpi_fuse_touch(request, answer_read);
}

void lpi_fuse_read(struct lpi_fuse_request *request)
{
	const struct fuse_read_in *in = &request->message.in.read;
	struct lp_ino ino = lpi_fuse_node(request);
	if (in->size > LP_STORE_READ_MAX || in->offset > INT64_MAX) {
		lpi_fuse_answer(request, -EINVAL);
		return;
	}
	lpi_fuse_take_budget(request, in->size);
	struct lp_store_op *op = lpi_fuse_store_op(request, LP_STORE_READ, ino);
	op->read.ino = ino;
	op->read.offset = in->offset;
	op->read.length = in->size;
	lpi_fuse_submit(request, has_read);
}

/* --- Write ------------------------------------------------------------------------------------ */

/* A piece may lie in two buffers. */
uint32_t lpi_fuse_copy_pieces(const struct lp_seg *segs, uint32_t seg_cnt, uint64_t offset,
			      uint8_t *to, uint32_t *ret_crcs)
{
	uint32_t left_in_block = BLOCK_BYTES - (uint32_t)(offset % BLOCK_BYTES);
	uint32_t cnt = 0;
	uint32_t crc = 0;
	bool is_begun = false;
	for (uint32_t i = 0; i < seg_cnt; i++) {
		const uint8_t *at = segs[i].buf->data + segs[i].offset;
		uint32_t left = segs[i].len;
		while (left > 0) {
			uint32_t len = LP_MIN(left, left_in_block);
			if (to != NULL)
				to = mempcpy(to, at, len);
			crc = lp_crc32c_ahead(crc, at, len, at + len);
			is_begun = true;
			at += len;
			left -= len;
			left_in_block -= len;
			if (left_in_block > 0)
				continue;
			ret_crcs[cnt++] = crc;
			crc = 0;
			is_begun = false;
			left_in_block = BLOCK_BYTES;
		}
	}
	if (is_begun)
		ret_crcs[cnt++] = crc;
	LP_ASSERT(cnt <= LPI_FUSE_CRCS);
	return cnt;
}

uint32_t lpi_fuse_sum_pieces(const struct lp_seg *segs, uint32_t seg_cnt, uint64_t offset,
			     uint32_t *ret_crcs)
{
	return lpi_fuse_copy_pieces(segs, seg_cnt, offset, NULL, ret_crcs);
}

/* Where the end is says the store, for its kernel may not have heard of what others appended. One
 * that writes back, or directly, cuts what it writes into requests that come in any order, so then
 * it is where the kernel says; and where it writes back at all the end is its own, for it may have
 * more than it has handed over (mount F6). */
uint64_t lpi_fuse_write_offset(const struct lpi_fuse_request *request)
{
	const struct fuse_write_in *in = &request->message.in.write;
	bool is_append = (in->flags & O_APPEND) != 0 && (in->flags & O_DIRECT) == 0 &&
			 (in->write_flags & FUSE_WRITE_CACHE) == 0 &&
			 !request->channel->options.behaviour.writeback;
	return is_append ? LP_STORE_APPEND : in->offset;
}

/* Checksums of what is appended are of pieces as if the end were on the grid. */
uint64_t lpi_fuse_write_grid(const struct lpi_fuse_request *request)
{
	uint64_t offset = lpi_fuse_write_offset(request);
	return offset == LP_STORE_APPEND ? 0 : offset;
}

static void has_written(struct lpi_fuse_request *request)
{
	const struct fuse_write_out out = {.size = request->message.in.write.size};
	int r = request->op.result;
	if (r < 0) {
		lpi_fuse_answer(request, r == -ENOENT ? -ESTALE : r);
		return;
	}
	request->channel->stats.written_bytes += out.size;
	lpi_fuse_answer_bytes(request, &out, sizeof(out));
}

/* How many pieces the grid of blocks cuts from it. */
static uint32_t piece_cnt(uint64_t offset, uint32_t bytes)
{
	return ((uint32_t)(offset % BLOCK_BYTES) + bytes + BLOCK_BYTES - 1) / BLOCK_BYTES;
}

static void sum_own(void *arg)
{
	struct lpi_fuse_request *request = arg;
	uint32_t cnt = lpi_fuse_sum_pieces(request->segs, request->seg_cnt,
					   lpi_fuse_write_grid(request), request->crcs);
	LP_ASSERT(cnt == request->crc_cnt);
}

void lpi_fuse_write(struct lpi_fuse_request *request)
{
	const struct fuse_write_in *in = &request->message.in.write;
	if (in->size == 0) {
		has_written(request);
		return;
	}
	lpi_fuse_take_budget(request, in->size);
	/* What was copied to this thread's memory, or what came there. */
	bool is_adopted = request->room != NULL;
	request->adopted = (struct lp_seg){.buf = request->room, .len = in->size};
	const struct lp_seg *segs = is_adopted ? &request->adopted : request->segs;
	uint32_t seg_cnt = is_adopted ? 1 : request->seg_cnt;
	if (!is_adopted)
		request->crc_cnt = piece_cnt(lpi_fuse_write_grid(request), in->size);
	struct lp_change *change = lpi_fuse_change_data(request, LP_CHANGE_WRITE, 0);
	change->data.offset = lpi_fuse_write_offset(request);
	change->data.length = in->size;
	change->data.payload = (struct lp_payload){.segs = segs,
						   .crcs = request->crcs,
						   .seg_cnt = seg_cnt,
						   .crc_cnt = request->crc_cnt,
						   .sum = is_adopted ? NULL : sum_own,
						   .sum_arg = request};
	change->data.path = LP_PATH_AUTO;
	if ((in->write_flags & FUSE_WRITE_CACHE) != 0 &&
	    request->channel->options.behaviour.writeback)
		lpi_fuse_change_no_times(request);
	lpi_fuse_change_submit(request, (in->write_flags & FUSE_WRITE_KILL_SUIDGID) != 0,
			       has_written);
}
