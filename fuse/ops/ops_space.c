/* SPDX-License-Identifier: Apache-2.0 */
/* Ranges of files: fallocate, lseek for data and holes, copy_file_range.
 *
 * fallocate goes in steps of one change's maximum length; it is not atomic, as on other file
 * systems. If it fails, it gives back the blocks that it took behind the file's end. Users do not
 * see them there, and only a truncation would free them. So before it begins it asks for the file's
 * end, and for the first block behind the end that was set aside before. All blocks up to there are
 * its own. (Blocks that it took between such blocks stay.)
 *
 * A copy does one step and answers how far it came; the caller asks again for the rest. The step is
 * a clone, by reference, if both files are on one shard and the range is on the grid of blocks.
 * Otherwise data is read and written, and keeps its checksums if it keeps its place on the grid. A
 * hole of the source is one step up to the next data of either file, however long that is: it
 * becomes a hole of the target. */
#include <errno.h>
#include <linux/falloc.h>
#include <string.h>
#include <unistd.h>

#include "fuse/channel_state.h"
#include "fuse/ops/change.h"
#include "fuse/ops/ops.h"

#define BLOCK_BYTES 4096u
#define COPIED_MAX  (UINT64_C(1) << 30) /* of holes, in one step of a copy */
#define LOOKS_MAX   16u                 /* searches for blocks that were set aside before */
#define KNOWN_MODES                                                                                \
	((uint32_t)FALLOC_FL_KEEP_SIZE | (uint32_t)FALLOC_FL_PUNCH_HOLE |                          \
	 (uint32_t)FALLOC_FL_ZERO_RANGE)

static int gone(int err)
{
	return err == -ENOENT ? -ESTALE : err;
}

/* --- Fallocate -------------------------------------------------------------------------------- */

/* at and left are the part still to be done; zeroing goes over the range twice. */

static void go_on(struct lpi_fuse_request *request);
static void next_range(struct lpi_fuse_request *request);
static void make_longer(struct lpi_fuse_request *request);

static void answer_failed(struct lpi_fuse_request *request)
{
	lpi_fuse_answer(request, gone(request->op.result));
}

/* The earlier steps stay, but the kernel takes an error to mean that nothing changed, and keeps old
 * pages and attributes. So it is first told to drop them, unless too many requests do so already.
 */
static void fail_range(struct lpi_fuse_request *request)
{
	const struct fuse_fallocate_in *in = &request->message.in.fallocate;
	if (request->channel->options.launderer == NULL ||
	    lpi_fuse_launder(request, in->offset, answer_failed) < 0)
		answer_failed(request);
}

static void range_synced(struct lpi_fuse_request *request)
{
	request->op.result = lpi_fuse_sync_verdict(request, request->message.in.fallocate.fh);
	if (request->op.result < 0)
		fail_range(request);
	else
		lpi_fuse_answer(request, 0);
}

static void give_back(struct lpi_fuse_request *request);

static void given_back(struct lpi_fuse_request *request)
{
	if (request->op.result == 0 && request->taken_from < request->taken_to) {
		give_back(request);
		return;
	}
	request->op.result = request->given_up;
	fail_range(request);
}

/* Gives back a step's blocks. If another caller has made the file longer meanwhile, it may have
 * written there, so the rest stays. */
static void give_back(struct lpi_fuse_request *request)
{
	struct lp_change *changes = request->changes;
	uint64_t length = LP_MIN(request->taken_to - request->taken_from, LP_STORE_RANGE_MAX);
	changes[0] = (struct lp_change){.type = LP_GUARD_INODE};
	changes[0].guard.shorter_than = request->size_bytes + 1;
	changes[1] = (struct lp_change){.type = LP_CHANGE_PUNCH};
	changes[1].data.offset = request->taken_from;
	changes[1].data.length = length;
	request->taken_from += length;
	lpi_fuse_txn(request, lpi_fuse_node(request), 2);
	lpi_fuse_submit(request, given_back);
}

/* The failed step may have done a part of its work. */
static void fail_step(struct lpi_fuse_request *request)
{
	request->given_up = request->op.result;
	request->taken_to = LP_MIN(request->taken_to, request->at);
	request->op.result = 0;
	if (request->is_punching)
		request->taken_to = 0;
	given_back(request);
}

/* All of the range is done, and durable if it must be. The end is as for a write. */
static void end_range(struct lpi_fuse_request *request)
{
	if (lpi_fuse_is_dsync(request) && !request->channel->options.behaviour.sync)
		lpi_fuse_sync(request, range_synced);
	else
		lpi_fuse_answer(request, 0);
}

static void was_extended(struct lpi_fuse_request *request)
{
	int r = request->op.result;
	/* The file is that long already. */
	if (r == -ECANCELED)
		r = 0;
	request->op.result = r;
	if (r < 0)
		fail_step(request);
	else
		end_range(request);
}

/* Another caller may make the file longer meanwhile through the other door, and that must not be
 * lost. So the change itself guards the size. */
static void make_longer(struct lpi_fuse_request *request)
{
	const struct fuse_fallocate_in *in = &request->message.in.fallocate;
	struct lp_change *changes = request->changes;
	uint64_t end = in->offset + in->length;
	changes[0] = (struct lp_change){.type = LP_GUARD_INODE};
	changes[0].guard.shorter_than = end;
	changes[1] = (struct lp_change){.type = LP_CHANGE_TRUNCATE};
	changes[1].data.offset = end;
	lpi_fuse_txn(request, lpi_fuse_node(request), 2);
	lpi_fuse_submit(request, was_extended);
}

static void range_done(struct lpi_fuse_request *request)
{
	const struct fuse_fallocate_in *in = &request->message.in.fallocate;
	if (request->op.result < 0) {
		fail_step(request);
		return;
	}
	if (request->left > 0) {
		go_on(request);
	} else if (request->is_punching && (in->mode & FALLOC_FL_ZERO_RANGE) != 0) {
		request->is_punching = false;
		request->at = in->offset;
		request->left = in->length;
		next_range(request);
	} else if ((in->mode & FALLOC_FL_KEEP_SIZE) == 0) {
		make_longer(request);
	} else {
		end_range(request);
	}
}

static void next_range(struct lpi_fuse_request *request)
{
	bool is_first = request->at == request->message.in.fallocate.offset;
	uint64_t length = LP_MIN(request->left, LP_STORE_RANGE_MAX - request->at % BLOCK_BYTES);
	struct lp_change *change = lpi_fuse_change_data(
		request, request->is_punching ? LP_CHANGE_PUNCH : LP_CHANGE_PREALLOC, 0);
	change->data.offset = request->at;
	change->data.length = length;
	request->at += length;
	request->left -= length;
	lpi_fuse_change_submit(request, is_first && lpi_fuse_kills(request), range_done);
}

static void space_found(struct lpi_fuse_request *request)
{
	uint64_t end = request->at + request->left;
	uint64_t found = request->op.store.op.seek.found;
	if (request->op.result < 0 && request->op.result != -ENXIO) {
		fail_range(request);
		return;
	}
	if (request->op.result < 0 || found >= end) { /* no block is behind it */
		request->op.result = 0;
		request->left = 0;
		range_done(request);
		return;
	}
	request->at = found;
	request->left = end - found;
	next_range(request);
}

/* A step over an empty range costs a change all the same, and a range can have a million. */
static void go_on(struct lpi_fuse_request *request)
{
	struct lp_ino ino = lpi_fuse_node(request);
	if (!request->is_punching) {
		next_range(request);
		return;
	}
	struct lp_store_op *op = lpi_fuse_store_op(request, LP_STORE_SEEK, ino);
	op->seek.ino = ino;
	op->seek.offset = request->at;
	op->seek.space = true;
	lpi_fuse_submit(request, space_found);
}

static void look_behind_end(struct lpi_fuse_request *request);

static void seek_space(struct lpi_fuse_request *request, bool hole, lpi_fuse_step_fn *next)
{
	struct lp_store_op *op = lpi_fuse_store_op(request, LP_STORE_SEEK, lpi_fuse_node(request));
	op->seek.ino = lpi_fuse_node(request);
	op->seek.offset = request->taken_from;
	op->seek.space = true;
	op->seek.hole = hole;
	lpi_fuse_submit(request, next);
}

/* The end of the blocks that were set aside is known. */
static void free_found(struct lpi_fuse_request *request)
{
	const struct lp_store_op *op = &request->op.store.op;
	request->taken_to = 0;
	if (request->op.result == 0 && op->seek.found > request->taken_from &&
	    ++request->count < LOOKS_MAX) {
		request->taken_from = op->seek.found;
		look_behind_end(request);
		return;
	}
	next_range(request); /* it will not give back any block */
}

/* The beginning of blocks that were set aside is known. If there are none, all blocks up to the
 * range's end will be its own. */
static void space_behind_found(struct lpi_fuse_request *request)
{
	const struct fuse_fallocate_in *in = &request->message.in.fallocate;
	uint64_t end = in->offset + in->length;
	uint64_t found = request->op.result == 0 ? request->op.store.op.seek.found : end;
	request->taken_to = end;
	if (request->op.result < 0 && request->op.result != -ENXIO)
		request->taken_to = 0;
	if (found >= end) {
		next_range(request);
		return;
	}
	request->taken_from = found;
	seek_space(request, true, free_found);
}

static void look_behind_end(struct lpi_fuse_request *request)
{
	const struct fuse_fallocate_in *in = &request->message.in.fallocate;
	request->taken_to = in->offset + in->length;
	/* A zeroed range is freed before it is set aside anew, so all blocks will be its own. */
	if (request->taken_from >= request->taken_to || request->is_punching)
		next_range(request);
	else
		seek_space(request, false, space_behind_found);
}

static void size_found(struct lpi_fuse_request *request)
{
	const struct fuse_fallocate_in *in = &request->message.in.fallocate;
	if (request->op.result < 0) {
		fail_range(request);
		return;
	}
	request->size_bytes = request->op.stat.found.attrs.size_bytes;
	/* A block that is only partly behind the end, or in the range, stays. */
	request->taken_from = lp_align_up(LP_MAX(in->offset, request->size_bytes), BLOCK_BYTES);
	look_behind_end(request);
}

void lpi_fuse_fallocate(struct lpi_fuse_request *request)
{
	const struct fuse_fallocate_in *in = &request->message.in.fallocate;
	bool punches = (in->mode & FALLOC_FL_PUNCH_HOLE) != 0;
	bool zeroes = (in->mode & FALLOC_FL_ZERO_RANGE) != 0;
	uint64_t end = 0;
	int err = 0;
	bool keeps = (in->mode & FALLOC_FL_KEEP_SIZE) != 0;
	if ((in->mode & ~KNOWN_MODES) != 0 || (punches && (zeroes || !keeps)))
		err = -EOPNOTSUPP;
	else if (in->length == 0)
		err = -EINVAL;
	else if (lp_add_overflows(in->offset, in->length, &end) || end > LP_STORE_FILE_MAX)
		err = -EFBIG;
	if (err < 0) {
		lpi_fuse_answer(request, err);
		return;
	}
	request->at = in->offset;
	request->left = in->length;
	request->is_punching = punches || zeroes;
	if (punches) {
		next_range(request);
		return;
	}
	lpi_fuse_op(request, LP_NS_STAT)->stat.ino = lpi_fuse_node(request);
	lpi_fuse_submit(request, size_found);
}

/* --- Seek ------------------------------------------------------------------------------------- */

static void sought(struct lpi_fuse_request *request)
{
	const struct fuse_lseek_out out = {.offset = request->op.store.op.seek.found};
	if (request->op.result < 0)
		lpi_fuse_answer(request, gone(request->op.result));
	else
		lpi_fuse_answer_bytes(request, &out, sizeof(out));
}

static void seek(struct lpi_fuse_request *request)
{
	const struct fuse_lseek_in *in = &request->message.in.lseek;
	struct lp_ino ino = lpi_fuse_node(request);
	struct lp_store_op *op = lpi_fuse_store_op(request, LP_STORE_SEEK, ino);
	op->seek.ino = ino;
	op->seek.offset = in->offset;
	op->seek.hole = in->whence == SEEK_HOLE;
	lpi_fuse_submit(request, sought);
}

static void end_known(struct lpi_fuse_request *request)
{
	const struct fuse_lseek_in *in = &request->message.in.lseek;
	uint64_t size_bytes = request->op.stat.found.attrs.size_bytes;
	struct fuse_lseek_out out = {.offset = in->whence == SEEK_HOLE ? size_bytes : in->offset};
	if (request->op.result < 0)
		lpi_fuse_answer(request, gone(request->op.result));
	else if (in->offset >= size_bytes)
		lpi_fuse_answer(request, -ENXIO);
	else
		lpi_fuse_answer_bytes(request, &out, sizeof(out));
}

/* The whole file may be data that the kernel holds back. */
static void call_all_data(struct lpi_fuse_request *request)
{
	lpi_fuse_op(request, LP_NS_STAT)->stat.ino = lpi_fuse_node(request);
	lpi_fuse_submit(request, end_known);
}

static void laundered(struct lpi_fuse_request *request)
{
	if (request->failure < 0)
		call_all_data(request);
	else
		seek(request);
}

void lpi_fuse_lseek(struct lpi_fuse_request *request)
{
	const struct fuse_lseek_in *in = &request->message.in.lseek;
	struct lp_ino ino = lpi_fuse_node(request);
	/* Data that the kernel still holds back would look like a hole. So the whole file is
	 * reported as data. */
	if (request->channel->options.behaviour.writeback) {
		lpi_fuse_answer(request, -ENOSYS);
		return;
	}
	if (in->whence != SEEK_DATA && in->whence != SEEK_HOLE) {
		lpi_fuse_answer(request, -EINVAL);
		return;
	}
	if (in->offset > INT64_MAX || request->channel->options.launderer == NULL ||
	    !lpi_fuse_may_be_mapped(request->channel, ino)) {
		seek(request);
		return;
	}
	if (lpi_fuse_launder(request, in->offset, laundered) < 0)
		call_all_data(request);
}

/* --- Copy ------------------------------------------------------------------------------------- */

static struct lp_ino copy_target(const struct lpi_fuse_request *request)
{
	return (struct lp_ino){request->message.in.copy.nodeid_out};
}

static void answer_copied(struct lpi_fuse_request *request)
{
	const struct fuse_write_out out = {.size = (uint32_t)request->left};
	lpi_fuse_answer_bytes(request, &out, sizeof(out));
}

static void copy_synced(struct lpi_fuse_request *request)
{
	int err = lpi_fuse_sync_verdict(request, request->message.in.copy.fh_out);
	if (err < 0)
		lpi_fuse_answer(request, err);
	else
		answer_copied(request);
}

/* Ends as a write does: the change itself is durable already, if it must be. */
static void end_copy(struct lpi_fuse_request *request)
{
	if (lpi_fuse_is_dsync(request) && !request->channel->options.behaviour.sync)
		lpi_fuse_sync(request, copy_synced);
	else
		answer_copied(request);
}

static void copy_by_data(struct lpi_fuse_request *request);

static void end_source(struct lpi_fuse_request *request)
{
	struct lp_fuse_channel *channel = request->channel;
	if (request->source.result >= 0)
		lp_ns_end(channel->options.ns, &request->source);
	lpi_fuse_carry_end(channel);
}

static uint64_t copy_length(const struct lpi_fuse_request *request)
{
	const struct fuse_copy_file_range_in *in = &request->message.in.copy;
	/* At most as many pieces on the grid as a write may have. */
	uint64_t most = LP_FUSE_WRITE_MAX >> 2 * request->tries;
	uint64_t length = LP_MIN(in->len, most - in->off_out % BLOCK_BYTES);
	return LP_MIN(length, request->limit - in->off_in);
}

/* A full store may have space for a smaller copy, as for any write. A refused size is never tried
 * again. */
static void copy_written(struct lpi_fuse_request *request)
{
	int r = request->op.result;
	end_source(request);
	if (r == -ENOSPC && request->left > LP_STORE_KEPT_MAX) {
		do
			request->tries++;
		while (copy_length(request) >= request->left);
		request->is_impatient = true;
		copy_by_data(request);
	} else if (r < 0) {
		lpi_fuse_answer(request, gone(r));
	} else {
		end_copy(request);
	}
}

static void copy_read(struct lp_ns_op *op)
{
	struct lpi_fuse_request *request = LP_CONTAINER_OF(op, struct lpi_fuse_request, source);
	const struct fuse_copy_file_range_in *in = &request->message.in.copy;
	const struct lp_store_op *read = &op->store.op;
	request->left = op->result < 0 ? 0 : read->read.bytes;
	if (request->left == 0) {
		end_source(request);
		if (op->result < 0)
			lpi_fuse_answer(request, gone(op->result));
		else
			answer_copied(request);
		return;
	}
	bool same_grid = in->off_in % BLOCK_BYTES == in->off_out % BLOCK_BYTES;
	struct lp_change *change = lpi_fuse_change_data(request, LP_CHANGE_WRITE, 0);
	change->data.offset = in->off_out;
	change->data.length = request->left;
	change->data.payload = (struct lp_payload){
		.segs = read->read.segs,
		.crcs = same_grid ? read->read.crcs : request->crcs,
		.seg_cnt = read->read.seg_cnt,
		.crc_cnt = same_grid ? read->read.crc_cnt
				     : lpi_fuse_sum_pieces(read->read.segs, read->read.seg_cnt,
							   in->off_out, request->crcs)};
	change->data.path = LP_PATH_AUTO;
	lpi_fuse_change_submit(request, lpi_fuse_kills(request), copy_written);
}

static void read_source(struct lpi_fuse_request *request)
{
	const struct fuse_copy_file_range_in *in = &request->message.in.copy;
	struct lp_ns_op *op = &request->source;
	uint64_t length = copy_length(request);
	memset(op, 0, sizeof(*op));
	if (request->tries == 0)
		lpi_fuse_take_budget(request, (uint32_t)length);
	op->opcode = LP_NS_STORE;
	op->complete = copy_read;
	op->store.ino = lpi_fuse_own(request);
	op->store.op.opcode = LP_STORE_READ;
	op->store.op.sees_ordered = true; /* the target's data is not durable yet either */
	op->store.op.read.ino = lpi_fuse_own(request);
	op->store.op.read.offset = in->off_in;
	op->store.op.read.length = length;
	op->store.op.read.rank = LP_BUF_MOUNT;
	lp_ns_submit(request->channel->options.ns, op);
}

static void copy_by_data(struct lpi_fuse_request *request)
{
	lpi_fuse_carry_begin(request, read_source);
}

static void cloned(struct lpi_fuse_request *request)
{
	int r = request->op.result;
	if (r == -EFBIG || r == -EINVAL || r == -EXDEV)
		copy_by_data(request);
	else if (r < 0)
		lpi_fuse_answer(request, gone(r));
	else
		end_copy(request);
}

/* How long a clone may be by the store's rules: whole blocks, or up to where both files end. */
static uint64_t clone_length(const struct lpi_fuse_request *request, uint64_t source_bytes,
			     uint64_t target_bytes)
{
	const struct fuse_copy_file_range_in *in = &request->message.in.copy;
	bool is_aligned = in->off_in % BLOCK_BYTES == 0 && in->off_out % BLOCK_BYTES == 0;
	if (!is_aligned || in->off_in >= source_bytes)
		return 0;
	uint64_t length = LP_MIN(LP_MIN(in->len, LP_STORE_RANGE_MAX), source_bytes - in->off_in);
	bool to_ends = in->off_in + length == source_bytes && target_bytes <= in->off_out + length;
	return to_ends ? length : lp_align_down(length, BLOCK_BYTES);
}

static bool is_on_one_shard(const struct lpi_fuse_request *request)
{
	return lp_ino_shard(lpi_fuse_own(request)) == lp_ino_shard(request->ino);
}

static void target_size_known(struct lpi_fuse_request *request)
{
	const struct fuse_copy_file_range_in *in = &request->message.in.copy;
	int r = request->op.result;
	if (r < 0) {
		lpi_fuse_answer(request, gone(r));
		return;
	}
	request->left = clone_length(request, request->at, request->op.stat.found.attrs.size_bytes);
	if (request->left == 0) {
		copy_by_data(request);
		return;
	}
	struct lp_change *change = lpi_fuse_change_data(request, LP_CHANGE_CLONE, 0);
	change->clone.src = lpi_fuse_own(request);
	change->clone.src_offset = in->off_in;
	change->clone.offset = in->off_out;
	change->clone.length = request->left;
	lpi_fuse_change_submit(request, lpi_fuse_kills(request), cloned);
}

/* Clones if possible; otherwise copies data up to the limit. */
static void copy_data(struct lpi_fuse_request *request)
{
	if (!is_on_one_shard(request)) {
		copy_by_data(request);
		return;
	}
	lpi_fuse_op(request, LP_NS_STAT)->stat.ino = copy_target(request);
	lpi_fuse_submit(request, target_size_known);
}

/* The target was shorter and now ends with the copied range. A target that is long enough already
 * will do. */
static void hole_extended(struct lpi_fuse_request *request)
{
	int r = request->op.result;
	if (r < 0 && r != -ECANCELED)
		lpi_fuse_answer(request, gone(r));
	else
		end_copy(request);
}

static void hole_punched(struct lpi_fuse_request *request)
{
	const struct fuse_copy_file_range_in *in = &request->message.in.copy;
	struct lp_change *changes = request->changes;
	uint64_t end = in->off_out + request->left;
	if (request->op.result < 0) {
		lpi_fuse_answer(request, gone(request->op.result));
		return;
	}
	changes[0] = (struct lp_change){.type = LP_GUARD_INODE};
	changes[0].guard.shorter_than = end;
	changes[1] = (struct lp_change){.type = LP_CHANGE_TRUNCATE};
	changes[1].data.offset = end;
	lpi_fuse_txn(request, copy_target(request), 2);
	lpi_fuse_submit(request, hole_extended);
}

/* Where the target has no data nothing is punched. One block then stands for the range, to change
 * the times and take the privileges. */
static void target_data_found(struct lpi_fuse_request *request)
{
	const struct fuse_copy_file_range_in *in = &request->message.in.copy;
	uint64_t found = request->op.store.op.seek.found;
	uint64_t length = LP_MIN(request->limit - in->off_in, COPIED_MAX);
	int r = request->op.result;
	if (r < 0 && r != -ENXIO) {
		lpi_fuse_answer(request, gone(r));
		return;
	}
	bool is_data = r == 0 && found == in->off_out;
	if (is_data)
		length = LP_MIN(length, LP_STORE_RANGE_MAX - in->off_out % BLOCK_BYTES);
	else if (r == 0)
		length = LP_MIN(length, found - in->off_out);
	struct lp_change *change = lpi_fuse_change_data(request, LP_CHANGE_PUNCH, 0);
	change->data.offset = in->off_out;
	change->data.length = is_data ? length : LP_MIN(length, BLOCK_BYTES);
	request->left = length;
	lpi_fuse_change_submit(request, lpi_fuse_kills(request), hole_punched);
}

static void seek_in(struct lpi_fuse_request *request, struct lp_ino ino, uint64_t offset, bool hole,
		    lpi_fuse_step_fn *next)
{
	struct lp_store_op *op = lpi_fuse_store_op(request, LP_STORE_SEEK, ino);
	op->seek.ino = ino;
	op->seek.offset = offset;
	op->seek.hole = hole;
	lpi_fuse_submit(request, next);
}

/* Does not read beyond the data's end, because holes would become blocks of zeros. */
static void source_hole_found(struct lpi_fuse_request *request)
{
	if (request->op.result == 0)
		request->limit = LP_MIN(request->limit, request->op.store.op.seek.found);
	copy_data(request);
}

static void source_data_found(struct lpi_fuse_request *request)
{
	const struct fuse_copy_file_range_in *in = &request->message.in.copy;
	int r = request->op.result;
	uint64_t found = r == 0 ? request->op.store.op.seek.found : request->limit;
	if (r < 0 && r != -ENXIO) {
		lpi_fuse_answer(request, gone(r));
	} else if (found > in->off_in) {
		request->limit = LP_MIN(request->limit, found);
		seek_in(request, copy_target(request), in->off_out, false, target_data_found);
	} else if (is_on_one_shard(request)) { /* a clone has the same holes */
		copy_data(request);
	} else {
		seek_in(request, lpi_fuse_own(request), in->off_in, true, source_hole_found);
	}
}

static void source_size_known(struct lpi_fuse_request *request)
{
	const struct fuse_copy_file_range_in *in = &request->message.in.copy;
	const struct lp_attrs *attrs = &request->op.stat.found.attrs;
	if (request->op.result < 0) {
		lpi_fuse_answer(request, gone(request->op.result));
		return;
	}
	bool has_holes = attrs->size_bytes > LP_INODE_INLINE_MAX &&
			 attrs->blocks < lp_bytes_to_blocks_up(attrs->size_bytes);
	request->at = attrs->size_bytes;
	request->limit = UINT64_MAX;
	if (!has_holes || in->off_in >= attrs->size_bytes) {
		copy_data(request);
		return;
	}
	request->limit = LP_MIN(attrs->size_bytes, in->off_in + in->len);
	seek_in(request, lpi_fuse_own(request), in->off_in, false, source_data_found);
}

void lpi_fuse_copy(struct lpi_fuse_request *request)
{
	const struct fuse_copy_file_range_in *in = &request->message.in.copy;
	uint64_t end = 0;
	if (in->flags != 0 || lp_add_overflows(in->off_in, in->len, &end) ||
	    lp_add_overflows(in->off_out, in->len, &end)) {
		lpi_fuse_answer(request, -EINVAL);
		return;
	}
	request->ino = copy_target(request);
	lpi_fuse_op(request, LP_NS_STAT)->stat.ino = lpi_fuse_own(request);
	lpi_fuse_submit(request, source_size_known);
}
