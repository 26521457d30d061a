/* SPDX-License-Identifier: Apache-2.0 */
/* Attributes of inodes and of the file system: getattr, setattr, readlink, statfs. */
#include <errno.h>
#include <linux/stat.h>
#include <string.h>

#include "fuse/channel_state.h"
#include "fuse/kernel/sync.h"
#include "fuse/ops/change.h"
#include "fuse/ops/ops.h"
#include "store/attrs.h"
#include "store/record/inode.h"
#include "store/volume/devices.h"

#define MODE_BITS 07777u

static int gone(int err)
{
	return err == -ENOENT ? -ESTALE : err;
}

/* --- Getattr ---------------------------------------------------------------------------------- */

static void known(struct lpi_fuse_request *request)
{
	const struct lp_ns_op *op = &request->op;
	if (op->result < 0)
		lpi_fuse_answer(request, gone(op->result));
	else
		lpi_fuse_answer_attrs(request, op->stat.found.ino, &op->stat.found.attrs);
}

void lpi_fuse_getattr(struct lpi_fuse_request *request)
{
	if (request->is_known) {
		request->op.result = 0;
		known(request);
		return;
	}
	lpi_fuse_op(request, LP_NS_STAT)->stat.ino = lpi_fuse_node(request);
	lpi_fuse_submit(request, known);
}

/* --- Statx ------------------------------------------------------------------------------------ */

/* The form for kernels from 6.6 on: the times, then the struct of the system call itself. */
struct statx_out {
	uint64_t attr_valid;
	uint32_t attr_valid_nsec;
	uint32_t flags;
	uint64_t spare[2];
	struct statx stat;
};

static_assert(sizeof(struct statx) == 256, "as the protocol has it");

static struct statx_timestamp timestamp(uint64_t s, uint32_t ns)
{
	return (struct statx_timestamp){.tv_sec = (int64_t)s, .tv_nsec = ns};
}

static void statx_known(struct lpi_fuse_request *request)
{
	const struct lp_ns_found *found = &request->op.stat.found;
	uint64_t attr_ns = lpi_fuse_attrs_ns(request, &found->attrs);
	struct fuse_attr attr;
	if (request->op.result < 0) {
		lpi_fuse_answer(request, gone(request->op.result));
		return;
	}
	lpi_fuse_fill_attr(found->ino, &found->attrs, &attr);
	struct statx_out out = {.attr_valid = attr_ns / LP_NS_PER_S,
				.attr_valid_nsec = (uint32_t)(attr_ns % LP_NS_PER_S)};
	uint64_t born_s = 0;
	uint32_t born_ns = 0;
	lpi_fuse_split_time(found->attrs.btime_ns, &born_s, &born_ns);
	out.stat = (struct statx){.stx_mask = STATX_BASIC_STATS | STATX_BTIME,
				  .stx_blksize = attr.blksize,
				  .stx_nlink = attr.nlink,
				  .stx_uid = attr.uid,
				  .stx_gid = attr.gid,
				  .stx_mode = (uint16_t)attr.mode,
				  .stx_ino = attr.ino,
				  .stx_size = attr.size,
				  .stx_blocks = attr.blocks,
				  .stx_atime = timestamp(attr.atime, attr.atimensec),
				  .stx_btime = timestamp(born_s, born_ns),
				  .stx_ctime = timestamp(attr.ctime, attr.ctimensec),
				  .stx_mtime = timestamp(attr.mtime, attr.mtimensec),
				  /* As new_decode_dev() of the kernel has it. */
				  .stx_rdev_major = (attr.rdev >> 8) & 0xfff,
				  .stx_rdev_minor =
					  (attr.rdev & 0xff) | ((attr.rdev >> 12) & 0xfff00)};
	lpi_fuse_answer_bytes(request, &out, sizeof(out));
}

void lpi_fuse_statx(struct lpi_fuse_request *request)
{
	lpi_fuse_op(request, LP_NS_STAT)->stat.ino = lpi_fuse_node(request);
	lpi_fuse_submit(request, statx_known);
}

/* --- Setattr ---------------------------------------------------------------------------------- */

/* A time that does not fit into nanoseconds since 1970 becomes the nearest that does, as with any
 * file system that has a last year (here 2262). */
static int64_t join_time(uint64_t s, uint32_t ns)
{
	int64_t second = LP_MAX(LP_MIN((int64_t)s, LP_TIME_S_MAX), -LP_TIME_S_MAX);
	return second * (int64_t)LP_NS_PER_S + (int64_t)LP_MIN(ns, (uint32_t)LP_NS_PER_S - 1);
}

/* Takes the attributes that the kernel sets. Returns the mask. */
static uint32_t take_attrs(const struct lpi_fuse_request *request, struct lp_attrs *attrs)
{
	const struct fuse_setattr_in *in = &request->message.in.setattr;
	int64_t now_ns = lpi_fuse_wall_ns(request);
	static const struct {
		uint32_t valid;
		uint32_t mask;
	} masks[] = {{FATTR_MODE, LP_ATTR_MODE},   {FATTR_UID, LP_ATTR_UID},
		     {FATTR_GID, LP_ATTR_GID},     {FATTR_ATIME, LP_ATTR_ATIME},
		     {FATTR_MTIME, LP_ATTR_MTIME}, {FATTR_CTIME, LP_ATTR_CTIME}};
	uint32_t mask = 0;
	for (size_t i = 0; i < LP_ARRAY_SIZE(masks); i++) {
		if ((in->valid & masks[i].valid) != 0)
			mask |= masks[i].mask;
	}
	attrs->mode = (uint16_t)(in->mode & MODE_BITS);
	attrs->uid = in->uid;
	attrs->gid = in->gid;
	bool atime_now = (in->valid & FATTR_ATIME_NOW) != 0;
	bool mtime_now = (in->valid & FATTR_MTIME_NOW) != 0;
	attrs->atime_ns = atime_now ? now_ns : join_time(in->atime, in->atimensec);
	attrs->mtime_ns = mtime_now ? now_ns : join_time(in->mtime, in->mtimensec);
	attrs->ctime_ns =
		(mask & LP_ATTR_CTIME) != 0 ? join_time(in->ctime, in->ctimensec) : now_ns;
	return mask;
}

static void was_set(struct lpi_fuse_request *request)
{
	const struct lp_ns_op *op = &request->op;
	if (op->result < 0)
		lpi_fuse_answer(request, gone(op->result));
	else
		lpi_fuse_answer_attrs(request, op->set.found.ino, &op->set.found.attrs);
}

static void was_cut(struct lpi_fuse_request *request)
{
	if (request->op.result < 0)
		lpi_fuse_answer(request,
				request->op.result == -ENOENT ? -ESTALE : request->op.result);
	else
		lpi_fuse_getattr(request);
}

static void cut(struct lpi_fuse_request *request, uint32_t mask)
{
	const struct fuse_setattr_in *in = &request->message.in.setattr;
	struct lp_change *change = lpi_fuse_change_data(request, LP_CHANGE_TRUNCATE, mask);
	change->data.offset = in->size;
	/* Append-only files grow by appends and by fallocate, but not by this. */
	lpi_fuse_change_unless(request, LP_INODE_FLAGS_KEEPING);
	lpi_fuse_change_submit(request, (in->valid & FATTR_KILL_SUIDGID) != 0, was_cut);
}

/* Flags of the inode that do not forbid the times that are set. Setting the times to now is also
 * part of an append. A kernel that writes back gives mtime's value, even where it is now. It keeps
 * the times of its own writes, and sends them in this form at any time, so the flag may have been
 * set after those writes. */
static uint32_t passes(const struct lpi_fuse_request *request)
{
	bool writes_back = request->channel->options.behaviour.writeback;
	uint32_t valid = request->message.in.setattr.valid;
	bool sets_atime = (valid & FATTR_ATIME) != 0 && (valid & FATTR_ATIME_NOW) == 0;
	bool sets_mtime = (valid & FATTR_MTIME) != 0 && (valid & FATTR_MTIME_NOW) == 0;
	if (writes_back && (valid & ~(uint32_t)FATTR_FH) == (FATTR_MTIME | FATTR_CTIME))
		return LP_INODE_FLAGS_KEEPING;
	return sets_atime || (sets_mtime && !writes_back) ? 0 : LP_INODE_FLAG_APPEND;
}

static void set(struct lpi_fuse_request *request, uint32_t mask)
{
	struct lp_ns_op *op = lpi_fuse_op(request, LP_NS_SET);
	op->set.ino = lpi_fuse_node(request);
	op->set.attrs = request->attrs;
	op->set.mask = mask;
	op->set.passes = passes(request);
	lpi_fuse_submit(request, was_set);
}

/* The mode that came with a new owner also changes the access list. */
static void was_owned(struct lpi_fuse_request *request)
{
	uint32_t mask = take_attrs(request, &request->attrs);
	request->attrs.mode = lpi_fuse_mode_killed(request->attrs.mode, false);
	if (request->op.result < 0)
		lpi_fuse_answer(request, gone(request->op.result));
	else if ((mask & LP_ATTR_MODE) != 0)
		set(request, mask & (LP_ATTR_MODE | LP_ATTR_CTIME));
	else
		lpi_fuse_getattr(request);
}

/* Sets a new owner. The old owner's privileges are removed in the same transaction. */
static void own(struct lpi_fuse_request *request, uint32_t mask)
{
	lpi_fuse_change_owner(request, mask & ~(uint32_t)LP_ATTR_MODE);
	lpi_fuse_change_submit(request, true, was_owned);
}

/* Whether this may be the kernel's revert of a failed write. */
static bool may_take_back(const struct lpi_fuse_request *request)
{
	const struct fuse_setattr_in *in = &request->message.in.setattr;
	return (in->valid & FATTR_SIZE) != 0 && (in->valid & FATTR_FH) != 0 &&
	       lpi_fuse_take_failed(request, in->fh);
}

void lpi_fuse_setattr(struct lpi_fuse_request *request)
{
	uint32_t valid = request->message.in.setattr.valid;
	uint32_t mask = take_attrs(request, &request->attrs);
	/* If the kernel reverts a write, this is an old end, and must not be set. Otherwise a
	 * program wants this size. The kernel ignores the answer to a revert; the program has to
	 * ask once more. */
	if (may_take_back(request)) {
		lpi_fuse_answer(request, -EINTR);
		return;
	}
	if ((mask & LP_ATTR_ATIME) != 0)
		lpi_fuse_atime_is_set(request);
	if ((valid & FATTR_SIZE) != 0) {
		cut(request, mask);
	} else if ((valid & FATTR_KILL_SUIDGID) != 0) {
		own(request, mask);
	} else if (mask != 0) {
		set(request, mask);
	} else {
		lpi_fuse_getattr(request);
	}
}

/* --- Readlink --------------------------------------------------------------------------------- */

static void answer_target(struct lpi_fuse_request *request)
{
	lpi_fuse_answer_bytes(request, request->room->data, request->op.store.op.get.value_len);
}

static void target_read(struct lpi_fuse_request *request)
{
	if (request->op.result < 0)
		lpi_fuse_answer(request, gone(request->op.result));
	else
		lpi_fuse_touch(request, answer_target);
}

void lpi_fuse_readlink(struct lpi_fuse_request *request)
{
	struct lp_buf *room = lpi_fuse_room(request, LP_BUF_SMALL, lpi_fuse_readlink);
	if (room == NULL)
		return;
	struct lp_ino ino = lpi_fuse_node(request);
	struct lp_store_op *op = lpi_fuse_store_op(request, LP_STORE_GET, ino);
	op->get.space = LP_STORE_TARGET;
	op->get.ino = ino;
	op->get.buf = room->data;
	op->get.buf_len = room->bytes;
	lpi_fuse_submit(request, target_read);
}

/* --- Statfs ----------------------------------------------------------------------------------- */

/* The request goes round the threads as a message, and each adds the figures of its stores. Blocks
 * that no shard has leased are free for each of them. Blocks that are kept for the index, and for
 * cuts of shared blocks, are free, but not available.
 *
 * The available blocks are those for the file or directory that the kernel names. Its shard has
 * blocks of its own and blocks that others lend to it (rule S5), as long as the chunk table has
 * room for the loans. It has none while its index may not grow. */

static void answer_statfs(struct lpi_fuse_request *request)
{
	const struct lp_devices *devices = request->channel->options.devices;
	struct fuse_statfs_out out = {.st = {.bsize = 4096, .frsize = 4096, .namelen = 255}};
	uint64_t free_blocks = request->free_blocks;
	uint64_t blocks = request->free_blocks + request->used_blocks;
	uint64_t available_blocks = request->own_blocks + request->others_blocks;
	if (devices != NULL) {
		struct lp_chunks *chunks = devices->chunks[LP_ROLE_DATA];
		uint32_t chunk_blocks = lp_chunks_chunk_blocks(chunks);
		free_blocks += (uint64_t)lp_chunks_free_cnt(chunks) * chunk_blocks;
		available_blocks += (uint64_t)lp_chunks_for_objects_cnt(chunks) * chunk_blocks;
		if (lp_chunks_is_split_up(chunks))
			available_blocks -= request->others_blocks;
		available_blocks -= LP_MIN(available_blocks, lp_chunks_host_lack_blocks(chunks));
		blocks = devices->label[LP_ROLE_DATA].size_blocks;
	}
	out.st.blocks = LP_MAX(blocks, free_blocks);
	out.st.bfree = free_blocks;
	out.st.bavail = request->takes_no_more ? 0 : available_blocks;
	/* There is no table of inodes that could be full. */
	out.st.files = out.st.blocks;
	out.st.ffree = out.st.bfree;
	lpi_fuse_answer_bytes(request, &out, sizeof(out));
}

static void add_space(struct lpi_fuse_request *request, const struct lp_fuse_channel *channel)
{
	uint32_t own_idx = lp_ino_shard(lpi_fuse_node(request));
	for (uint32_t i = 0; i < channel->options.store_cnt; i++) {
		struct lp_store_stats stats;
		lp_store_read_stats(channel->options.stores[i], &stats);
		request->used_blocks += stats.used_blocks;
		request->free_blocks += stats.free_blocks;
		if (stats.shard_idx == own_idx) {
			request->own_blocks += stats.free_blocks - stats.kept_blocks;
			request->takes_no_more = stats.takes_no_more;
		} else {
			request->others_blocks += stats.free_blocks - stats.kept_blocks;
		}
	}
}

static void statfs_here(struct lp_reactor *reactor, struct lp_msg *msg)
{
	struct lpi_fuse_request *request = LP_CONTAINER_OF(msg, struct lpi_fuse_request, msg);
	const struct lp_fuse_channel *home = request->channel;
	const struct lp_fuse_channel *here = home->peers[request->count];
	LP_ASSERT(lp_reactor_is_mine(here->options.reactor));
	if (request->left == 0) {
		answer_statfs(request);
		return;
	}
	add_space(request, here);
	request->left--;
	request->count = (request->count + 1) % home->peer_cnt;
	lp_reactor_send(reactor, home->peers[request->count]->options.reactor, msg);
}

void lpi_fuse_statfs(struct lpi_fuse_request *request)
{
	struct lp_fuse_channel *channel = request->channel;
	request->count = channel->idx;
	request->left = channel->peer_cnt;
	request->msg.deliver = statfs_here;
	statfs_here(channel->options.reactor, &request->msg);
}
