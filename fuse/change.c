/* SPDX-License-Identifier: Apache-2.0 */
/* One transaction: [guard: no capability][the data][times, and the mode if it changes]. A file with
 * a capability fails the guard, and then the attribute's removal stands in its place; that is the
 * rare case, and the common one costs nothing but the guard. The mode is looked at first only if
 * the kernel says that bits must go. */
#include "fuse/change.h"

#include <errno.h>
#include <sys/stat.h>

#include "fuse/channel_impl.h"

/* Somebody sets and removes it all the time: then he has won. */
#define TRIES_MAX 4u

static void submit(struct lpi_fuse_request *request);

uint16_t lpi_fuse_mode_killed(uint16_t mode)
{
	unsigned killed = mode & ~(unsigned)S_ISUID;
	/* Without the group's right to execute the bit stands for mandatory locks. */
	if ((mode & S_IXGRP) != 0)
		killed &= ~(unsigned)S_ISGID;
	return (uint16_t)killed;
}

bool lpi_fuse_kills(const struct lpi_fuse_request *request)
{
	return request->message.header.uid != 0;
}

struct lp_change *lpi_fuse_change_data(struct lpi_fuse_request *request, enum lp_change_type type,
				       uint32_t mask)
{
	struct lp_change *changes = request->changes;
	int64_t now_ns = lpi_fuse_wall_ns(request);
	if ((mask & LP_ATTR_MTIME) == 0)
		request->attrs.mtime_ns = now_ns;
	if ((mask & LP_ATTR_CTIME) == 0)
		request->attrs.ctime_ns = now_ns;
	changes[0] = (struct lp_change){.type = LP_GUARD_NO_XATTR};
	changes[0].named.name =
		(struct lp_bytes){LPI_FUSE_CAPABILITY, sizeof(LPI_FUSE_CAPABILITY) - 1};
	changes[1] = (struct lp_change){.type = type};
	changes[2] = (struct lp_change){.type = LP_CHANGE_SET};
	changes[2].inode.attrs = &request->attrs;
	changes[2].inode.mask = mask | LP_ATTR_MTIME | LP_ATTR_CTIME;
	return &changes[1];
}

void lpi_fuse_change_no_times(struct lpi_fuse_request *request)
{
	request->changes[2].inode.mask &= ~(uint32_t)(LP_ATTR_MTIME | LP_ATTR_CTIME);
}

static void changed(struct lpi_fuse_request *request)
{
	const struct lp_store_op *op = &request->op.store.op;
	int r = request->op.result;
	bool is_guard = r < 0 && op->txn.failed_idx == 0;
	bool has_capability = is_guard && r == -EEXIST;
	if ((has_capability || (is_guard && r == -ENODATA)) && ++request->count < TRIES_MAX) {
		request->changes[0].type =
			has_capability ? LP_CHANGE_XATTR_REMOVE : LP_GUARD_NO_XATTR;
		submit(request);
		return;
	}
	request->after(request);
}

static void submit(struct lpi_fuse_request *request)
{
	lpi_fuse_txn(request, lpi_fuse_node(request), 3);
	if (request->message.header.opcode == FUSE_WRITE)
		request->op.store.believed_end = request->message.in.write.offset;
	lpi_fuse_submit(request, changed);
}

static void mode_known(struct lpi_fuse_request *request)
{
	const struct lp_attrs *attrs = &request->op.stat.found.attrs;
	if (request->op.result < 0) {
		request->after(request);
		return;
	}
	uint32_t *mask = &request->changes[2].inode.mask;
	uint16_t mode = (*mask & LP_ATTR_MODE) != 0 ? request->attrs.mode : attrs->mode;
	uint16_t killed = lpi_fuse_mode_killed(mode);
	if (killed != mode) {
		request->attrs.mode = killed;
		*mask |= LP_ATTR_MODE;
	}
	submit(request);
}

void lpi_fuse_change_submit(struct lpi_fuse_request *request, bool kill_suidgid,
			    lpi_fuse_step_fn *next)
{
	request->after = next;
	request->count = 0;
	if (!kill_suidgid) {
		submit(request);
		return;
	}
	lpi_fuse_op(request, LP_NS_STAT)->stat.ino = lpi_fuse_node(request);
	lpi_fuse_submit(request, mode_known);
}
