/* SPDX-License-Identifier: Apache-2.0 */
/* One transaction: [guard: the mode][guard: no capability][the data, if any][times, and the owner
 * or the mode if it changes]. A file with a capability fails its guard. The transaction is then
 * repeated with the removal of the attribute in the guard's place. This case is rare, and the
 * common one costs only the guard. The mode is guarded if the kernel says that bits must go. At
 * first the guard says that there are no such bits. Only if there are, the mode is read and guarded
 * with the value read, because a change of the mode through the other door at that moment must not
 * be lost. */
#include "fuse/ops/change.h"

#include <errno.h>
#include <sys/stat.h>

#include "fuse/channel_state.h"
#include "fuse/ops/caller.h"

#define MODE       0u
#define CAPABILITY 1u
#define DATA       LPI_FUSE_CHANGE_DATA
#define NONE       UINT32_MAX

#define MODE_BITS 07777u

/* Others change the privileges all the time; after so many tries the request fails. */
#define TRIES_MAX 8u

static void submit(struct lpi_fuse_request *request);

bool lpi_fuse_kills(const struct lpi_fuse_request *request)
{
	return request->message.header.uid != 0;
}

/* The index of the change that sets the times: the last one. */
static uint32_t times_idx(const struct lpi_fuse_request *request)
{
	return request->changes[DATA].type == LP_CHANGE_SET ? DATA : DATA + 1;
}

static void guard_nothing(struct lpi_fuse_request *request)
{
	struct lp_change *changes = request->changes;
	changes[MODE] = (struct lp_change){.type = LP_GUARD_INODE};
	changes[CAPABILITY] = (struct lp_change){.type = LP_GUARD_NO_XATTR};
	changes[CAPABILITY].named.name =
		(struct lp_bytes){LPI_FUSE_CAPABILITY, sizeof(LPI_FUSE_CAPABILITY) - 1};
}

static void set_attrs(struct lpi_fuse_request *request, uint32_t idx, uint32_t mask)
{
	struct lp_change *set = &request->changes[idx];
	*set = (struct lp_change){.type = LP_CHANGE_SET};
	set->inode.attrs = &request->attrs;
	set->inode.mask = mask;
}

struct lp_change *lpi_fuse_change_data(struct lpi_fuse_request *request, enum lp_change_type type,
				       uint32_t mask)
{
	int64_t now_ns = lpi_fuse_wall_ns(request);
	if ((mask & LP_ATTR_MTIME) == 0)
		request->attrs.mtime_ns = now_ns;
	if ((mask & LP_ATTR_CTIME) == 0)
		request->attrs.ctime_ns = now_ns;
	guard_nothing(request);
	request->changes[DATA] = (struct lp_change){.type = type};
	set_attrs(request, DATA + 1, mask | LP_ATTR_MTIME | LP_ATTR_CTIME);
	return &request->changes[DATA];
}

void lpi_fuse_change_owner(struct lpi_fuse_request *request, uint32_t mask)
{
	if ((mask & LP_ATTR_CTIME) == 0)
		request->attrs.ctime_ns = lpi_fuse_wall_ns(request);
	guard_nothing(request);
	set_attrs(request, DATA, mask | LP_ATTR_CTIME);
}

void lpi_fuse_change_no_times(struct lpi_fuse_request *request)
{
	request->changes[times_idx(request)].inode.mask &=
		~(uint32_t)(LP_ATTR_MTIME | LP_ATTR_CTIME);
}

static void guard_mode(struct lpi_fuse_request *request, uint16_t mask, uint16_t mode)
{
	request->changes[MODE].guard.mode_mask = mask;
	request->changes[MODE].guard.mode = mode;
}

static bool is_mode_guarded(const struct lpi_fuse_request *request)
{
	const struct lp_change *mode = &request->changes[MODE];
	return mode->guard.mode_mask != 0 || mode->guard.flags != 0;
}

void lpi_fuse_change_unless(struct lpi_fuse_request *request, uint32_t flags)
{
	request->changes[MODE].guard.flags = flags;
}

static bool is_of_data(const struct lpi_fuse_request *request)
{
	return request->changes[DATA].type != LP_CHANGE_SET;
}

/* Whether the caller may not set the group's bit of this file. For a change of data the kernel has
 * said, or lpi_fuse_kills() has shown, that the caller is not privileged. A new owner takes bits
 * from any caller's file. */
static bool is_stranger(const struct lpi_fuse_request *request, const struct lp_attrs *attrs)
{
	const struct fuse_in_header *header = &request->message.header;
	if (!is_of_data(request) && header->uid == 0)
		return false;
	return !lpi_fuse_caller_is_in(header, attrs->gid);
}

/* The caller's groups are looked up only where they matter. */
static uint16_t mode_left(const struct lpi_fuse_request *request, const struct lp_attrs *attrs)
{
	bool is_doubtful = (attrs->mode & (S_ISGID | S_IXGRP)) == S_ISGID;
	return lpi_fuse_mode_killed(attrs->mode, is_doubtful && is_stranger(request, attrs));
}

static void end(struct lpi_fuse_request *request)
{
	lpi_fuse_killed(request);
	request->after(request);
}

/* The mode is known, and the remaining bits follow from it. A change of data that takes bits must
 * not reach a program that is about to be run (fuse/privileges.h). */
static void mode_known(struct lpi_fuse_request *request)
{
	const struct lp_attrs *attrs = &request->op.stat.found.attrs;
	uint32_t *mask = &request->changes[times_idx(request)].inode.mask;
	if (request->op.result < 0) {
		end(request);
		return;
	}
	guard_mode(request, MODE_BITS, attrs->mode);
	request->attrs.mode = mode_left(request, attrs);
	*mask &= ~(uint32_t)LP_ATTR_MODE;
	if (request->attrs.mode != attrs->mode) {
		*mask |= LP_ATTR_MODE;
		request->op.result = is_of_data(request) ? lpi_fuse_kill(request) : 0;
		if (request->op.result < 0) {
			end(request);
			return;
		}
	}
	submit(request);
}

static void look_at_mode(struct lpi_fuse_request *request)
{
	lpi_fuse_op(request, LP_NS_STAT)->stat.ino = lpi_fuse_node(request);
	lpi_fuse_submit(request, mode_known);
}

/* The guard that did not hold. */
static uint32_t failed_guard(const struct lpi_fuse_request *request)
{
	int r = request->op.result;
	uint32_t failed = request->op.store.op.txn.failed_idx;
	failed += is_mode_guarded(request) ? MODE : CAPABILITY;
	if (failed == MODE && r == -ECANCELED)
		return MODE;
	return failed == CAPABILITY && (r == -EEXIST || r == -ENODATA) ? CAPABILITY : NONE;
}

static void changed(struct lpi_fuse_request *request)
{
	uint32_t failed = request->op.result < 0 ? failed_guard(request) : NONE;
	if (failed == NONE) {
		end(request);
	} else if (++request->count >= TRIES_MAX) {
		request->op.result = -EAGAIN;
		end(request);
	} else if (failed == MODE) {
		look_at_mode(request);
	} else {
		request->changes[CAPABILITY].type =
			request->op.result == -EEXIST ? LP_CHANGE_XATTR_REMOVE : LP_GUARD_NO_XATTR;
		submit(request);
	}
}

static void submit(struct lpi_fuse_request *request)
{
	lpi_fuse_txn(request, lpi_fuse_node(request), times_idx(request) + 1);
	if (!is_mode_guarded(request)) {
		request->op.store.op.txn.changes += CAPABILITY;
		request->op.store.op.txn.change_cnt -= CAPABILITY;
	}
	if (request->message.header.opcode == FUSE_WRITE)
		request->op.store.believed_end = request->message.in.write.offset;
	lpi_fuse_submit(request, changed);
}

void lpi_fuse_change_submit(struct lpi_fuse_request *request, bool kill_suidgid,
			    lpi_fuse_step_fn *next)
{
	bool is_set = (request->changes[times_idx(request)].inode.mask & LP_ATTR_MODE) != 0;
	request->after = next;
	request->count = 0;
	/* The kernel has already taken the bits from a mode in the request that the caller may not
	 * set. */
	if (kill_suidgid && is_set)
		request->attrs.mode = lpi_fuse_mode_killed(request->attrs.mode, false);
	else if (kill_suidgid)
		guard_mode(request, S_ISUID | S_ISGID, 0);
	submit(request);
}
