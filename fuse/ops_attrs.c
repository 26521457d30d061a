/* SPDX-License-Identifier: Apache-2.0 */
/* Attributes of inodes and of the whole: getattr, setattr, readlink, statfs. */
#include <errno.h>
#include <string.h>

#include "fuse/channel_impl.h"
#include "fuse/ops.h"
#include "store/devices.h"
#include "store/inode.h"

#define MODE_BITS 07777u

/* --- Getattr ---------------------------------------------------------------------------------- */

static void known(struct lpi_fuse_request *request)
{
	const struct lp_ns_op *op = &request->op;
	if (op->result < 0)
		lpi_fuse_answer(request, op->result == -ENOENT ? -ESTALE : op->result);
	else
		lpi_fuse_answer_attrs(request, op->stat.found.ino, &op->stat.found.attrs);
}

void lpi_fuse_getattr(struct lpi_fuse_request *request)
{
	lpi_fuse_op(request, LP_NS_STAT)->stat.ino = lpi_fuse_node(request);
	lpi_fuse_submit(request, known);
}

/* --- Setattr ---------------------------------------------------------------------------------- */

static int64_t join_time(uint64_t s, uint32_t ns)
{
	return (int64_t)s * (int64_t)LP_NS_PER_S + ns;
}

static bool time_fits(uint64_t s, uint32_t ns)
{
	int64_t most = INT64_MAX / (int64_t)LP_NS_PER_S - 1;
	return (int64_t)s <= most && (int64_t)s >= -most && ns < LP_NS_PER_S;
}

/* What the kernel asks for, as a mask and attributes; -EINVAL: a time that cannot be. */
static int take_attrs(const struct lpi_fuse_request *request, struct lp_attrs *attrs,
		      uint32_t *ret_mask)
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
	if (((mask & LP_ATTR_ATIME) != 0 && !atime_now && !time_fits(in->atime, in->atimensec)) ||
	    ((mask & LP_ATTR_MTIME) != 0 && !mtime_now && !time_fits(in->mtime, in->mtimensec)) ||
	    ((mask & LP_ATTR_CTIME) != 0 && !time_fits(in->ctime, in->ctimensec)))
		return -EINVAL;
	attrs->atime_ns = atime_now ? now_ns : join_time(in->atime, in->atimensec);
	attrs->mtime_ns = mtime_now ? now_ns : join_time(in->mtime, in->mtimensec);
	attrs->ctime_ns =
		(mask & LP_ATTR_CTIME) != 0 ? join_time(in->ctime, in->ctimensec) : now_ns;
	*ret_mask = mask;
	return 0;
}

static void was_set(struct lpi_fuse_request *request)
{
	const struct lp_ns_op *op = &request->op;
	if (op->result < 0)
		lpi_fuse_answer(request, op->result == -ENOENT ? -ESTALE : op->result);
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
	struct lp_change *change = request->changes;
	if ((mask & LP_ATTR_MTIME) == 0)
		request->attrs.mtime_ns = request->attrs.ctime_ns;
	change[0] = (struct lp_change){.type = LP_CHANGE_TRUNCATE};
	change[0].data.offset = request->message.in.setattr.size;
	change[1] = (struct lp_change){.type = LP_CHANGE_SET};
	change[1].inode.attrs = &request->attrs;
	change[1].inode.mask = mask | LP_ATTR_MTIME | LP_ATTR_CTIME;
	lpi_fuse_txn(request, lpi_fuse_node(request), 2);
	lpi_fuse_submit(request, was_cut);
}

void lpi_fuse_setattr(struct lpi_fuse_request *request)
{
	uint32_t mask = 0;
	int err = take_attrs(request, &request->attrs, &mask);
	if (err < 0) {
		lpi_fuse_answer(request, err);
		return;
	}
	if ((request->message.in.setattr.valid & FATTR_SIZE) != 0) {
		cut(request, mask);
		return;
	}
	if (mask == 0) {
		lpi_fuse_getattr(request);
		return;
	}
	struct lp_ns_op *op = lpi_fuse_op(request, LP_NS_SET);
	op->set.ino = lpi_fuse_node(request);
	op->set.attrs = request->attrs;
	op->set.mask = mask;
	lpi_fuse_submit(request, was_set);
}

/* --- Readlink --------------------------------------------------------------------------------- */

static void target_read(struct lpi_fuse_request *request)
{
	const struct lp_ns_op *op = &request->op;
	if (op->result < 0)
		lpi_fuse_answer(request, op->result == -ENOENT ? -ESTALE : op->result);
	else
		lpi_fuse_answer_bytes(request, request->room->data, op->store.op.get.value_len);
}

void lpi_fuse_readlink(struct lpi_fuse_request *request)
{
	struct lp_buf *room = lpi_fuse_room(request, LP_BUF_SMALL);
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

/* The request goes round the threads as a message, and each adds what its stores have. What no
 * shard has leased is free for each of them. */

static void answer_statfs(struct lpi_fuse_request *request)
{
	const struct lp_devices *devices = request->channel->options.devices;
	struct fuse_statfs_out out = {.st = {.bsize = 4096, .frsize = 4096, .namelen = 255}};
	uint64_t free_blocks = request->free_blocks;
	uint64_t blocks = request->free_blocks + request->used_blocks;
	if (devices != NULL) {
		struct lp_chunks *chunks = devices->chunks[LP_MKFS_DATA];
		uint32_t chunk_blocks = lp_chunks_chunk_blocks(chunks);
		free_blocks += (uint64_t)lp_chunks_free_cnt(chunks) * chunk_blocks;
		blocks = devices->label[LP_MKFS_DATA].size_blocks;
	}
	out.st.blocks = LP_MAX(blocks, free_blocks);
	out.st.bfree = free_blocks;
	out.st.bavail = free_blocks;
	/* There is no table of inodes that could be full. */
	out.st.files = out.st.blocks;
	out.st.ffree = out.st.bfree;
	lpi_fuse_answer_bytes(request, &out, sizeof(out));
}

static void add_space(struct lpi_fuse_request *request, const struct lp_fuse_channel *channel)
{
	for (uint32_t i = 0; i < channel->options.store_cnt; i++) {
		struct lp_store_stats stats;
		lp_store_read_stats(channel->options.stores[i], &stats);
		request->used_blocks += stats.used_blocks;
		request->free_blocks += stats.free_blocks;
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
