/* SPDX-License-Identifier: Apache-2.0 */
/* Open files: open, read, write, fsync, release.
 *
 * A write's data stays where the kernel's message landed, in buffers that the store takes as they
 * are. Its checksums begin here (rule W2), one for each piece that the file's grid of blocks cuts
 * from the data. For data that goes to the device directly, the store makes the checksums while the
 * device writes. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "base/crc32c.h"
#include "fuse/channel_state.h"
#include "fuse/ops/change.h"
#include "fuse/ops/ops.h"

#define BLOCK_BYTES 4096u
#define PARTS       4u /* parts of a refused write; each is tried alone */

/* --- Open, release ---------------------------------------------------------------------------- */

static void closed(struct lpi_fuse_request *request)
{
	lpi_fuse_end(request, 0);
}

/* A kernel that writes back sends whole pages, also for an append. Such a page begins before the
 * end, and an append-only file refuses writes there. So appends to such a file bypass the kernel's
 * cache. */
static bool is_written_back_apart(const struct lpi_fuse_request *request)
{
	bool is_append = (request->op.open.found.attrs.flags & LP_INODE_FLAG_APPEND) != 0;
	bool writes = (request->message.in.open.flags & O_ACCMODE) != O_RDONLY;
	return is_append && writes && request->channel->options.behaviour.writeback;
}

/* Cached data is valid as long as cached attributes: while the kernel remembers the inode it is
 * told of changes, and when it forgets the inode the data is dropped. */
static uint32_t open_flags(const struct lpi_fuse_request *request)
{
	if (request->message.header.opcode != FUSE_OPEN)
		return 0;
	if (is_written_back_apart(request))
		return FOPEN_DIRECT_IO;
	bool is_due = lpi_fuse_is_read_due(request, request->message.in.open.flags,
					   &request->op.open.found.attrs);
	uint32_t flags = lpi_fuse_open_flags(request, is_due);
	if (flags == 0)
		lpi_fuse_pages_expect_drop(request->channel, lpi_fuse_node(request));
	return flags;
}

static void open_refused(struct lpi_fuse_request *request)
{
	lpi_fuse_answer(request, -EPERM);
}

/* Closes a file that the kernel does not know to be open, because no release will come. */
static void close_now(struct lpi_fuse_request *request, lpi_fuse_step_fn *next)
{
	struct lp_ns_op *op = lpi_fuse_op(request, LP_NS_CLOSE);
	op->open.ino = lpi_fuse_node(request);
	op->open.count = 1;
	lpi_fuse_submit(request, next);
}

static void opened(struct lpi_fuse_request *request)
{
	struct fuse_open_out out = {.fh = 0};
	if (request->op.result < 0) {
		lpi_fuse_run_end(request->channel, lpi_fuse_node(request),
				 lpi_fuse_run_bit(request));
		lpi_fuse_answer(request, request->op.result);
		return;
	}
	if (!lpi_fuse_flags_let_open(request->op.open.found.attrs.flags,
				     request->message.in.open.flags)) {
		lpi_fuse_run_end(request->channel, lpi_fuse_node(request),
				 lpi_fuse_run_bit(request));
		close_now(request, open_refused);
		return;
	}
	if (request->message.header.opcode == FUSE_OPENDIR)
		out.fh = lpi_fuse_begin_reading(request);
	else
		out.fh = lpi_fuse_handle_new(request, lpi_fuse_node(request),
					     request->message.in.open.flags);
	out.open_flags = open_flags(request);
	if (lpi_fuse_tell(request, &out, sizeof(out))) {
		lpi_fuse_end(request, 0);
		return;
	}
	if (request->message.header.opcode == FUSE_OPENDIR)
		lpi_fuse_end_reading(request, out.fh);
	else
		lpi_fuse_handle_drop(request->channel, lpi_fuse_node(request), out.fh);
	close_now(request, closed);
}

static void may_open(struct lpi_fuse_request *request)
{
	if (request->failure < 0) {
		lpi_fuse_answer(request, request->failure);
		return;
	}
	lpi_fuse_op(request, LP_NS_OPEN)->open.ino = lpi_fuse_node(request);
	lpi_fuse_submit(request, opened);
}

void lpi_fuse_open(struct lpi_fuse_request *request)
{
	lpi_fuse_run(request, may_open);
}

void lpi_fuse_release(struct lpi_fuse_request *request)
{
	struct lp_ns_op *op = lpi_fuse_op(request, LP_NS_CLOSE);
	op->open.ino = lpi_fuse_node(request);
	op->open.count = 1;
	/* The bits of a directory's handle belong to its reading. */
	if (request->message.header.opcode == FUSE_RELEASE)
		lpi_fuse_handle_drop(request->channel, op->open.ino,
				     request->message.in.release.fh);
	lpi_fuse_submit(request, lpi_fuse_answer_result);
}

static void synced(struct lpi_fuse_request *request)
{
	uint64_t handle = request->message.in.fsync.fh;
	/* A directory's handle is its reading's, so an error is reported each time. */
	if (request->message.header.opcode == FUSE_FSYNCDIR)
		lpi_fuse_answer(request, LP_MIN(request->op.result, 0));
	else
		lpi_fuse_answer(request, lpi_fuse_sync_verdict(request, handle));
}

/* Of a file or directory: also makes its entry durable, and the directories above (rule M1). */
void lpi_fuse_fsync(struct lpi_fuse_request *request)
{
	lpi_fuse_sync(request, synced);
}

void lpi_fuse_syncfs(struct lpi_fuse_request *request)
{
	lpi_fuse_sync(request, lpi_fuse_answer_result);
}

/* --- Read ------------------------------------------------------------------------------------- */

/* Answers. The request then holds no data any more, but has not ended. */
static void tell_read(struct lpi_fuse_request *request)
{
	struct lp_fuse_channel *channel = request->channel;
	const struct lp_store_op *op = &request->op.store.op;
	channel->stats.read_bytes += op->read.bytes;
	lpi_fuse_answer_segs(request, op->read.segs, op->read.seg_cnt);
	lp_ns_end(channel->options.ns, &request->op);
}

static void end_read(struct lpi_fuse_request *request)
{
	lpi_fuse_end(request, 0);
}

static void has_touched(struct lpi_fuse_request *request)
{
	tell_read(request);
	lpi_fuse_carry_end(request->channel);
	end_read(request);
}

static void has_read(struct lpi_fuse_request *request)
{
	int r = request->op.result;
	if (r < 0) {
		lpi_fuse_answer(request, r == -ENOENT ? -ESTALE : r);
	} else if ((request->message.in.read.flags & O_NOATIME) != 0) {
		tell_read(request);
		end_read(request);
	} else if (lpi_fuse_carry_try(request)) {
		lpi_fuse_touch(request, has_touched);
	} else {
		/* Too many requests are under way. A stat right after this read may see the old
		 * access time. */
		tell_read(request);
		lpi_fuse_touch(request, end_read);
	}
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
	if (!lpi_fuse_is_uncached(request))
		lpi_fuse_pages_fill(request->channel, ino);
	struct lp_store_op *op = lpi_fuse_store_op(request, LP_STORE_READ, ino);
	op->read.ino = ino;
	op->read.offset = in->offset;
	op->read.length = in->size;
	op->read.rank = LP_BUF_MOUNT;
	lpi_fuse_submit(request, has_read);
}

/* --- Write ------------------------------------------------------------------------------------ */

/* The number of pieces that the grid of blocks cuts from a range. */
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

/* Whether the data was copied to this thread's memory, or landed there. */
static bool is_adopted(const struct lpi_fuse_request *request)
{
	return request->room != NULL;
}

static void answer_written(struct lpi_fuse_request *request, uint64_t bytes)
{
	const struct fuse_write_out out = {.size = (uint32_t)bytes};
	request->channel->stats.written_bytes += bytes;
	if (!lpi_fuse_drop(request, 0, out.size))
		lpi_fuse_answer_bytes(request, &out, sizeof(out));
}

/* The kernel may have made several requests of one direct write (FUSE_ASYNC_DIO). */
static bool may_be_split(const struct lpi_fuse_request *request)
{
	const struct fuse_write_in *in = &request->message.in.write;
	return (in->flags & O_DIRECT) != 0 && (in->write_flags & FUSE_WRITE_CACHE) == 0 &&
	       (in->fh & LPI_FUSE_HANDLE_DIRECT) == 0;
}

/* Whether the kernel may revert this write. If a direct write beyond the end fails, or comes short,
 * which is the same to the kernel, it sets the size to the end that it remembers. Others may have
 * moved the end since, and the kernel does not ask. So a revert cuts nothing off. Data that was
 * written by the failed write stays, too, because the writer of a block cannot be told.
 *
 * It cannot be told either whether the write is beyond the end that the kernel remembers. Others
 * may have made the file longer since, or shorter, and this may be one of several requests for one
 * write. So each failed write is noted, at any offset. By a handle of FOPEN_DIRECT_IO the kernel
 * only reverts writes that its caller does not wait for. A request does not show that, so with such
 * a handle a new size may be one that a program wants. */
static bool may_be_taken_back(const struct lpi_fuse_request *request)
{
	return may_be_split(request) && !request->channel->options.behaviour.is_only_door;
}

/* err: an error, or 0 if the write came short. */
static void fail_write(struct lpi_fuse_request *request, int err)
{
	if (may_be_taken_back(request))
		lpi_fuse_note_failed(request, request->message.in.write.fh);
	if (err == 0)
		answer_written(request, request->at);
	else if (!lpi_fuse_drop(request, err == -ENOENT ? -ESTALE : err, 0))
		lpi_fuse_answer(request, err == -ENOENT ? -ESTALE : err);
}

static void all_synced(struct lpi_fuse_request *request)
{
	int err = lpi_fuse_sync_verdict(request, request->message.in.write.fh);
	if (err < 0)
		fail_write(request, err);
	else if (request->at < request->message.in.write.size)
		fail_write(request, 0);
	else
		answer_written(request, request->at);
}

/* Bytes of the write are done. If the write must be durable, its own change already is, or it has
 * failed. The rest, the file's entry and the directories above, usually needs no work. */
static void written(struct lpi_fuse_request *request, uint64_t bytes)
{
	request->at = bytes;
	if (lpi_fuse_is_dsync(request) && !request->channel->options.behaviour.sync)
		lpi_fuse_sync(request, all_synced);
	else if (bytes < request->message.in.write.size)
		fail_write(request, 0);
	else
		answer_written(request, bytes);
}

/* The data's bytes from..from + length, as segments of their own. Returns their number. */
static uint32_t cut_segs(struct lpi_fuse_request *request, uint64_t from, uint64_t length)
{
	const struct lp_seg *segs = is_adopted(request) ? &request->adopted : request->segs;
	uint32_t cnt = 0;
	for (; length > 0; segs++) {
		if (from >= segs->len) {
			from -= segs->len;
			continue;
		}
		uint32_t len = (uint32_t)LP_MIN(length, segs->len - from);
		LP_ASSERT(cnt < LPI_FUSE_SEGS);
		request->part[cnt++] =
			(struct lp_seg){segs->buf, segs->offset + (uint32_t)from, len};
		length -= len;
		from = 0;
	}
	return cnt;
}

static void submit_write(struct lpi_fuse_request *request, const struct lp_change *write,
			 lpi_fuse_step_fn *next)
{
	const struct fuse_write_in *in = &request->message.in.write;
	struct lp_change *change = lpi_fuse_change_data(request, LP_CHANGE_WRITE, 0);
	change->data = write->data;
	change->data.path = LP_PATH_AUTO;
	if ((in->write_flags & FUSE_WRITE_CACHE) != 0 &&
	    request->channel->options.behaviour.writeback)
		lpi_fuse_change_no_times(request);
	bool kills = (in->write_flags & FUSE_WRITE_KILL_SUIDGID) != 0 && request->at == 0;
	lpi_fuse_change_submit(request, kills, next);
}

/* --- Without space for all of it ---------------------------------------------------------------
 */

/* A full store overwrites content in place, by way of the log, and a frame takes less than a write
 * may have. So a write that finds no space is tried once more in parts, each a change of its own,
 * and then in smaller ones. at: the bytes written. left: the bytes tried at a time. A refused size
 * is never tried again, because that would take as long and end the same way. */

static void write_part(struct lpi_fuse_request *request);

static uint64_t part_length(const struct lpi_fuse_request *request)
{
	const struct fuse_write_in *in = &request->message.in.write;
	uint64_t offset = in->offset + request->at;
	return LP_MIN(request->left - offset % BLOCK_BYTES, in->size - request->at);
}

/* False: the refused size was so small that a part of it would be refused, too. */
static bool make_smaller(struct lpi_fuse_request *request, uint64_t refused)
{
	if (refused <= LP_STORE_KEPT_MAX)
		return false;
	do
		request->left /= PARTS;
	while (part_length(request) >= refused);
	LP_ASSERT(request->left >= LP_STORE_KEPT_MAX);
	return true;
}

static void part_written(struct lpi_fuse_request *request)
{
	const struct fuse_write_in *in = &request->message.in.write;
	int r = request->op.result;
	if (r == -ENOSPC && make_smaller(request, part_length(request))) {
		write_part(request);
		return;
	}
	if (r >= 0)
		request->at += request->changes[LPI_FUSE_CHANGE_DATA].data.length;
	/* After a write-back no program learns how much was written. And if a direct write comes
	 * short, the kernel tells the program EIO, which is misleading for a full store. */
	bool is_answer = request->at > 0 && (in->write_flags & FUSE_WRITE_CACHE) == 0 &&
			 !may_be_split(request);
	if (r >= 0 && request->at < in->size)
		write_part(request);
	else if (r >= 0 || is_answer)
		written(request, request->at);
	else
		fail_write(request, r);
}

static void write_part(struct lpi_fuse_request *request)
{
	const struct fuse_write_in *in = &request->message.in.write;
	struct lp_change write = {.type = LP_CHANGE_WRITE};
	uint64_t offset = in->offset + request->at;
	uint64_t length = part_length(request);
	uint64_t passed = offset / BLOCK_BYTES - in->offset / BLOCK_BYTES;
	write.data.offset = offset;
	write.data.length = length;
	write.data.payload = (struct lp_payload){.segs = request->part,
						 .crcs = request->crcs + passed,
						 .seg_cnt = cut_segs(request, request->at, length),
						 .crc_cnt = piece_cnt(offset, (uint32_t)length)};
	submit_write(request, &write, part_written);
}

static void has_written(struct lpi_fuse_request *request)
{
	uint32_t size = request->message.in.write.size;
	int r = request->op.result;
	request->left = LP_FUSE_WRITE_MAX;
	/* An append overwrites nothing. */
	if (r == -ENOSPC && lpi_fuse_write_offset(request) != LP_STORE_APPEND &&
	    make_smaller(request, size)) {
		if (!is_adopted(request))
			sum_own(request); /* if the checksums were not made yet */
		request->is_impatient = true;
		write_part(request);
	} else if (r < 0) {
		fail_write(request, r);
	} else {
		written(request, size);
	}
}

void lpi_fuse_write(struct lpi_fuse_request *request)
{
	const struct fuse_write_in *in = &request->message.in.write;
	struct lp_change write = {.type = LP_CHANGE_WRITE};
	if (in->size == 0) {
		answer_written(request, 0);
		return;
	}
	lpi_fuse_take_budget(request, in->size);
	if (!lpi_fuse_is_uncached(request))
		lpi_fuse_pages_fill(request->channel, lpi_fuse_node(request));
	request->adopted = (struct lp_seg){.buf = request->room, .len = in->size};
	if (!is_adopted(request))
		request->crc_cnt = piece_cnt(lpi_fuse_write_grid(request), in->size);
	write.data.offset = lpi_fuse_write_offset(request);
	write.data.length = in->size;
	write.data.payload =
		(struct lp_payload){.segs = is_adopted(request) ? &request->adopted : request->segs,
				    .crcs = request->crcs,
				    .seg_cnt = is_adopted(request) ? 1 : request->seg_cnt,
				    .crc_cnt = request->crc_cnt,
				    .sum = is_adopted(request) ? NULL : sum_own,
				    .sum_arg = request};
	request->at = 0;
	submit_write(request, &write, has_written);
}
