/* SPDX-License-Identifier: Apache-2.0 */
/* Changes of the mode that a transaction entails, and refusals by rights.
 *
 * An access list contains the mode, so setting one sets nine mode bits in the same change. A file
 * that a peer other than root changes must not keep another user's rights
 * (namespace/state/rights.h). A change of data or of the list removes the privilege bits; a change
 * of data also removes a capability. The door adds a guard for each, behind the client's guards and
 * before the changes:
 *
 *   [client's guards][ours: mode][ours: no capability][client's changes][times, perhaps the mode]
 *
 * At first the request expects that there are no bits, which costs only the guard. If the guard
 * fails, the request reads the mode, and the guard then expects the mode that was read. If there is
 * a capability, its removal replaces its guard. A request that tries again for either reason waits
 * for earlier ones, and later ones wait for it (door D8). */
#include "namespace/state/acl.h"
#include "native/door_impl.h"
#include "native/ops.h"

#include <errno.h>

#include "store/attrs.h"
#include "store/device/bdev.h"

enum { OWN_MODE, OWN_CAPABILITY };

static bool is_name(struct lp_bytes name, const char *what)
{
	return name.len == strlen(what) && memcmp(name.data, what, name.len) == 0;
}

/* --- Refusals --------------------------------------------------------------------------------- */

static bool host_is_full(const struct lpi_request *request)
{
	const struct lp_bdev *bdev = request->door->options.bdev;
	return bdev != NULL && lp_bdev_is_host_full(bdev);
}

int lpi_check_xattr_name(struct lpi_request *request, struct lp_bytes name)
{
	if (!lpi_request_rights(request).is_limited || !lp_rights_is_roots_xattr(name))
		return 0;
	lpi_request_why(request, "xattrs of security and trusted are root's");
	return -EPERM;
}

int lpi_check_new_mode(struct lpi_request *request, struct lp_ns_who who, uint16_t mode)
{
	const struct lp_rights rights = lpi_request_rights(request);
	int r = lp_rights_check_new(&rights, who.uid, who.gid, mode);
	if (r < 0)
		lpi_request_why(request, "set-user-ID and set-group-ID are for one's own files");
	return r;
}

/* The namespace refused it, and gives no reason but the error. */
const char *lpi_why_refused(const struct lpi_request *request, int err)
{
	const struct lp_ns_op *op = &request->piece.op;
	if (err == -EINVAL && op->opcode == LP_NS_SET &&
	    lp_attrs_fault(&op->set.attrs, op->set.mask) != NULL)
		return "no file can have this owner, group or time";
	if (err == -ENOSPC && host_is_full(request))
		return "the file system that holds the image has no space (make room there, or "
		       "remove something here)";
	if (err != -EPERM)
		return "";
	if (op->opcode == LP_NS_LINK)
		return "it is a directory, or immutable or append-only, or its new directory is";
	if (op->opcode != LP_NS_SET || !op->rights.is_limited)
		return "it is immutable or append-only, or its directory is (lapis chattr)";
	if ((op->set.mask & LP_ATTR_FLAGS) != 0)
		return "only root makes things immutable or append-only, or takes that away";
	return "";
}

/* --- Entailed changes ------------------------------------------------------------------------- */

bool lpi_sets_list(const struct lp_change *change)
{
	return change->type == LP_CHANGE_XATTR_SET && is_name(change->named.name, LP_ACL_ACCESS);
}

static bool takes_list(const struct lp_change *change)
{
	return change->type == LP_CHANGE_XATTR_REMOVE && is_name(change->named.name, LP_ACL_ACCESS);
}

/* How many guards of the door it needs. */
static uint32_t count_own(const struct lpi_request *request, const struct lp_change *changes)
{
	const struct lp_store_op *op = &request->piece.op.store.op;
	bool has_data = false;
	bool has_list = request->list != NULL;
	if (!lpi_request_rights(request).is_limited)
		return has_list ? 1 : 0;
	for (uint32_t i = 0; i < op->txn.change_cnt; i++) {
		has_data = has_data || lpi_is_data_change(changes[i].type);
		has_list = has_list || takes_list(&changes[i]);
	}
	return has_data ? 2 : has_list ? 1 : 0;
}

/* Makes room for these guards, before the first change. */
static int add_own(struct lpi_request *request, struct lp_change *changes, uint32_t cnt)
{
	struct lp_store_op *op = &request->piece.op.store.op;
	uint32_t at = 0;
	if (op->txn.change_cnt + cnt > LP_STORE_CHANGES_MAX)
		return -E2BIG;
	while (changes[at].type < LP_CHANGE_CREATE)
		at++;
	LP_ASSERT(at < op->txn.change_cnt);
	memmove(&changes[at + cnt], &changes[at], (op->txn.change_cnt - at) * sizeof(*changes));
	request->own_at = at;
	request->own_cnt = cnt;
	op->txn.change_cnt += cnt;
	if (request->list != NULL)
		request->list += cnt;
	return 0;
}

/* The last change sets the times. */
static struct lp_change *times_of(struct lpi_request *request, struct lp_change *changes)
{
	struct lp_change *last = &changes[request->piece.op.store.op.txn.change_cnt - 1];
	LP_ASSERT(last->type == LP_CHANGE_SET && last->inode.attrs == &request->attrs);
	return last;
}

static void expect_nothing(struct lpi_request *request, struct lp_change *changes)
{
	struct lp_change *own = &changes[request->own_at];
	struct lp_ino ino = request->refs[0].found;
	own[OWN_MODE] = (struct lp_change){.type = LP_GUARD_INODE, .ino = ino};
	own[OWN_MODE].guard.mode_mask = LP_RIGHTS_BITS;
	times_of(request, changes)->inode.mask &= ~(uint32_t)LP_ATTR_MODE;
	if (request->own_cnt <= OWN_CAPABILITY)
		return;
	own[OWN_CAPABILITY] = (struct lp_change){.type = LP_GUARD_NO_XATTR, .ino = ino};
	own[OWN_CAPABILITY].named.name =
		(struct lp_bytes){LP_RIGHTS_CAPABILITY, sizeof(LP_RIGHTS_CAPABILITY) - 1};
}

static void look_at_mode(struct lpi_request *request);
static void changed(struct lp_ns_op *op);

static void submit(struct lpi_request *request)
{
	request->piece.op.complete = changed;
	lp_ns_submit(request->door->options.ns, &request->piece.op);
}

/* True: a guard of the door failed, and the request tries again in another way. */
static bool is_tried_again(struct lpi_request *request, int result)
{
	const struct lp_store_op *op = &request->piece.op.store.op;
	struct lp_change *capability =
		&lpi_request_changes(request)[request->own_at + OWN_CAPABILITY];
	if (!lpi_conn_is_alive(request->conn) || request->tries++ >= LPI_TRIES_MAX)
		return false;
	if (lpi_request_waits_to_look(request))
		return true;
	if (op->txn.failed_idx == request->own_at + OWN_MODE) {
		look_at_mode(request);
		return true;
	}
	capability->type = result == -EEXIST ? LP_CHANGE_XATTR_REMOVE : LP_GUARD_NO_XATTR;
	submit(request);
	return true;
}

static bool is_ours(const struct lpi_request *request, int result)
{
	uint32_t at = request->piece.op.store.op.txn.failed_idx;
	if (result == -ECANCELED)
		return at == request->own_at + OWN_MODE;
	return (result == -EEXIST || result == -ENODATA) && request->own_cnt > OWN_CAPABILITY &&
	       at == request->own_at + OWN_CAPABILITY;
}

/* The client counts its guards and changes without the door's. */
static void changed(struct lp_ns_op *op)
{
	struct lpi_piece *piece = LP_CONTAINER_OF(op, struct lpi_piece, op);
	struct lpi_request *request = piece->request;
	struct lp_store_op *store = &op->store.op;
	bool was_ours = is_ours(request, op->result);
	if (was_ours && is_tried_again(request, op->result))
		return;
	if (was_ours)
		op->result = -EAGAIN;
	if (store->txn.failed_idx >= request->own_at + request->own_cnt)
		store->txn.failed_idx -= request->own_cnt;
	lpi_request_worked(op);
}

static void mode_known(struct lp_ns_op *op)
{
	struct lpi_request *request = LP_CONTAINER_OF(op, struct lpi_request, find);
	const struct lp_rights rights = lpi_request_rights(request);
	const struct lp_attrs *attrs = &op->stat.found.attrs;
	struct lp_change *changes = lpi_request_changes(request);
	if (op->result < 0) {
		if (!lpi_request_again(request, op->result))
			lpi_request_fail(request, op->result, "");
		return;
	}
	struct lp_change *guard = &changes[request->own_at + OWN_MODE];
	guard->guard.mode_mask = 07777;
	guard->guard.mode = attrs->mode;
	guard->guard.has_owner = rights.is_limited;
	guard->guard.uid = attrs->uid;
	guard->guard.gid = attrs->gid;
	uint16_t mode = lp_rights_mode_left(&rights, attrs);
	if (request->list != NULL) {
		struct lp_bytes list = request->list->named.value;
		mode = (uint16_t)((mode & 07000) | lp_acl_mode(list.data, list.len));
	}
	uint32_t *mask = &times_of(request, changes)->inode.mask;
	*mask &= ~(uint32_t)LP_ATTR_MODE;
	if (mode != attrs->mode)
		*mask |= LP_ATTR_MODE;
	request->attrs.mode = mode;
	submit(request);
}

static void look_at_mode(struct lpi_request *request)
{
	struct lp_ns_op *op = &request->find;
	memset(op, 0, sizeof(*op));
	op->opcode = LP_NS_STAT;
	op->complete = mode_known;
	op->stat.ino = request->refs[0].found;
	lp_ns_submit(request->door->options.ns, op);
}

void lpi_run_change(struct lpi_request *request)
{
	struct lp_change *changes = lpi_request_changes(request);
	/* The request may run again, when its object was gone. */
	uint32_t cnt = request->own_cnt > 0 ? 0 : count_own(request, changes);
	if (cnt > 0 && add_own(request, changes, cnt) < 0) {
		lpi_request_fail(request, -E2BIG, "too many guards and changes");
		return;
	}
	if (request->own_cnt == 0) {
		lpi_request_submit(request);
		return;
	}
	expect_nothing(request, changes);
	if (request->list != NULL)
		look_at_mode(request);
	else
		submit(request);
}
