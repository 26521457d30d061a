/* SPDX-License-Identifier: Apache-2.0 */
/* The flags of an inode that chattr sets and lsattr shows: immutable and append-only.
 *
 * The kernel asks for them by two pairs of ioctls, FS_IOC_GETFLAGS and FS_IOC_SETFLAGS, and
 * FS_IOC_FSGETXATTR and FS_IOC_FSSETXATTR, which say the same. Before it sets any it reads them by
 * the second pair. It checks that the caller owns the inode, and has CAP_LINUX_IMMUTABLE in the
 * first user namespace if one of the two flags changes. A kernel before 5.13 checks neither, so we
 * do not rely on it: only user 0, as the mount's connection counts users, changes them.
 *
 * The kernel does not know the flags, and asks us for all operations that they might forbid, except
 * one: it changes pages of a file that was mapped or opened before the flag was set. So dirty pages
 * are written first, as ext4 does it. The store refuses later changes of such a page, and the next
 * fsync fails. If too many requests want pages written at once the answer is EBUSY. */
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <string.h>

#include "fuse/channel_state.h"
#include "fuse/ops/ops.h"

#define KNOWN_FLAGS  ((uint32_t)FS_IMMUTABLE_FL | (uint32_t)FS_APPEND_FL)
#define KNOWN_XFLAGS ((uint32_t)FS_XFLAG_IMMUTABLE | (uint32_t)FS_XFLAG_APPEND)

struct flags_out {
	struct fuse_ioctl_out out;
	uint32_t flags;
};

struct xattr_out {
	struct fuse_ioctl_out out;
	struct fsxattr xattr;
};

static_assert(sizeof(struct flags_out) == 20, "as the protocol has it");
static_assert(sizeof(struct xattr_out) == 16 + 28, "as the protocol has it");

static int gone(int err)
{
	return err == -ENOENT ? -ESTALE : err;
}

static uint32_t pick(uint32_t flags, uint32_t flag, uint32_t as)
{
	return (flags & flag) != 0 ? as : 0;
}

/* --- Get -------------------------------------------------------------------------------------- */

static void answer_flags(struct lpi_fuse_request *request, uint32_t flags)
{
	const struct flags_out out = {
		.flags = pick(flags, LP_INODE_FLAG_IMMUTABLE, FS_IMMUTABLE_FL) |
			 pick(flags, LP_INODE_FLAG_APPEND, FS_APPEND_FL)};
	lpi_fuse_answer_bytes(request, &out, sizeof(out));
}

static void answer_xattr(struct lpi_fuse_request *request, uint32_t flags)
{
	const struct xattr_out out = {
		.xattr.fsx_xflags = pick(flags, LP_INODE_FLAG_IMMUTABLE, FS_XFLAG_IMMUTABLE) |
				    pick(flags, LP_INODE_FLAG_APPEND, FS_XFLAG_APPEND)};
	lpi_fuse_answer_bytes(request, &out, sizeof(out));
}

static void known(struct lpi_fuse_request *request)
{
	const struct lp_ns_op *op = &request->op;
	if (op->result < 0)
		lpi_fuse_answer(request, gone(op->result));
	else if (request->message.in.ioctl.cmd == FS_IOC_GETFLAGS)
		answer_flags(request, op->stat.found.attrs.flags);
	else
		answer_xattr(request, op->stat.found.attrs.flags);
}

static void get(struct lpi_fuse_request *request, uint32_t bytes)
{
	if (request->message.in.ioctl.out_size < bytes) {
		lpi_fuse_answer(request, -EINVAL);
		return;
	}
	lpi_fuse_op(request, LP_NS_STAT)->stat.ino = lpi_fuse_node(request);
	lpi_fuse_submit(request, known);
}

/* --- Set -------------------------------------------------------------------------------------- */

static void answer_set(struct lpi_fuse_request *request)
{
	const struct fuse_ioctl_out out = {.result = 0};
	lpi_fuse_answer_bytes(request, &out, sizeof(out));
}

/* The kernel takes an ioctl for no change of attributes, but ctime has changed. So it is told to
 * forget the attributes. There is no page at the offset. */
static void was_set(struct lpi_fuse_request *request)
{
	if (request->op.result < 0)
		lpi_fuse_answer(request, gone(request->op.result));
	else if (request->channel->options.launderer == NULL ||
		 lpi_fuse_launder(request, INT64_MAX, answer_set) < 0)
		answer_set(request);
}

/* A flag protects a file, so it is durable at once. */
static void set_now(struct lpi_fuse_request *request)
{
	const struct fuse_in_header *header = &request->message.header;
	struct lp_ns_op *op = lpi_fuse_op(request, LP_NS_SET);
	op->ack = LP_ACK_DURABLE;
	op->rights = (struct lp_rights){
		.is_limited = header->uid != 0, .uid = header->uid, .gid = header->gid};
	op->set.ino = lpi_fuse_node(request);
	op->set.attrs.flags = request->attrs.flags;
	op->set.mask = LP_ATTR_FLAGS;
	lpi_fuse_submit(request, was_set);
}

static bool may_be_dirty(const struct lpi_fuse_request *request)
{
	const struct lp_fuse_channel *channel = request->channel;
	return channel->options.launderer != NULL &&
	       (channel->options.behaviour.writeback ||
		lpi_fuse_may_be_mapped(channel, lpi_fuse_node(request)));
}

static void set(struct lpi_fuse_request *request, uint32_t flags)
{
	request->attrs.flags = flags;
	if (flags == 0 || !may_be_dirty(request))
		set_now(request);
	else if (lpi_fuse_launder(request, 0, set_now) < 0)
		lpi_fuse_answer(request, -EBUSY);
}

static void set_by_flags(struct lpi_fuse_request *request)
{
	uint32_t flags = 0;
	if (request->message.data_bytes < sizeof(flags)) {
		lpi_fuse_answer(request, -EINVAL);
		return;
	}
	memcpy(&flags, request->message.data, sizeof(flags));
	if ((flags & ~KNOWN_FLAGS) != 0) {
		lpi_fuse_answer(request, -EOPNOTSUPP);
		return;
	}
	set(request, pick(flags, FS_IMMUTABLE_FL, LP_INODE_FLAG_IMMUTABLE) |
			     pick(flags, FS_APPEND_FL, LP_INODE_FLAG_APPEND));
}

static void set_by_xattr(struct lpi_fuse_request *request)
{
	struct fsxattr xattr;
	if (request->message.data_bytes < sizeof(xattr)) {
		lpi_fuse_answer(request, -EINVAL);
		return;
	}
	memcpy(&xattr, request->message.data, sizeof(xattr));
	if ((xattr.fsx_xflags & ~KNOWN_XFLAGS) != 0 || xattr.fsx_extsize != 0 ||
	    xattr.fsx_projid != 0 || xattr.fsx_cowextsize != 0) {
		lpi_fuse_answer(request, -EOPNOTSUPP);
		return;
	}
	set(request, pick(xattr.fsx_xflags, FS_XFLAG_IMMUTABLE, LP_INODE_FLAG_IMMUTABLE) |
			     pick(xattr.fsx_xflags, FS_XFLAG_APPEND, LP_INODE_FLAG_APPEND));
}

/* No other ioctl of files is known here. The answer ENOSYS would mean "none at all". */
void lpi_fuse_ioctl(struct lpi_fuse_request *request)
{
	switch (request->message.in.ioctl.cmd) {
	case FS_IOC_GETFLAGS:
		get(request, sizeof(uint32_t));
		break;
	case FS_IOC_FSGETXATTR:
		get(request, sizeof(struct fsxattr));
		break;
	case FS_IOC_SETFLAGS:
		set_by_flags(request);
		break;
	case FS_IOC_FSSETXATTR:
		set_by_xattr(request);
		break;
	default:
		lpi_fuse_answer(request, -ENOTTY);
		break;
	}
}

/* --- Open ------------------------------------------------------------------------------------- */

bool lpi_fuse_flags_let_open(uint32_t flags, uint32_t open_flags)
{
	bool cuts = (open_flags & O_TRUNC) != 0;
	bool writes = (open_flags & O_ACCMODE) != O_RDONLY;
	bool appends = (open_flags & O_APPEND) != 0;
	if ((flags & LP_INODE_FLAG_IMMUTABLE) != 0)
		return !cuts && !writes;
	if ((flags & LP_INODE_FLAG_APPEND) != 0)
		return !cuts && (!writes || appends);
	return true;
}
