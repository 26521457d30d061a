/* SPDX-License-Identifier: Apache-2.0 */
/* Extended attributes, and access control lists, which are some of them.
 *
 * The kernel has checked the caller's rights. It knows four kinds of names. The native door may
 * have set others, which the kernel would refuse to read, so they are not listed.
 *
 * 'ls -l' asks for the label of each file, and the kernel keeps no answer, so labels are half of
 * its requests. A kernel without SELinux has no use for them. A program that is told that labels
 * are not supported does not ask for those of other files of the mount. So this is the answer for a
 * file without a label, until the mount has seen the first label. From then on each file is looked
 * at. A file with a label always shows it. */
#include <errno.h>
#include <linux/limits.h>
#include <linux/xattr.h>
#include <string.h>
#include <sys/stat.h>

#include "fuse/channel_state.h"
#include "fuse/ops/ops.h"
#include "fuse/ops/settings.h"
#include "namespace/state/acl.h"

#define NO_RIGHTS 07000u /* of a mode: set-user-id, set-group-id, sticky */

/* Others change the list all the time; after so many tries the request fails. */
#define TRIES_MAX 8u

static bool is_name(struct lp_bytes name, const char *text)
{
	return name.len == strlen(text) && memcmp(name.data, text, name.len) == 0;
}

static bool begins_with(struct lp_bytes name, const char *text)
{
	return name.len > strlen(text) && memcmp(name.data, text, strlen(text)) == 0;
}

static bool is_label(struct lp_bytes name)
{
	return is_name(name, XATTR_NAME_SELINUX);
}

/* The flag of all channels, because a label may be on any file. */
static _Atomic bool *has_labels(const struct lpi_fuse_request *request)
{
	return &request->channel->peers[0]->has_labels;
}

static void note_name(const struct lpi_fuse_request *request, struct lp_bytes name)
{
	if (is_label(name))
		atomic_store_explicit(has_labels(request), true, memory_order_relaxed);
}

static bool lacks_labels(const struct lpi_fuse_request *request)
{
	return request->channel->options.behaviour.no_selinux &&
	       is_label(request->message.names[0]) &&
	       !atomic_load_explicit(has_labels(request), memory_order_relaxed);
}

static bool is_list(struct lp_bytes name)
{
	return is_name(name, LP_ACL_ACCESS) || is_name(name, LP_ACL_DEFAULT);
}

static bool is_known(const struct lpi_fuse_request *request, struct lp_bytes name)
{
	/* Only privileged callers see trusted attributes. */
	if (begins_with(name, XATTR_TRUSTED_PREFIX))
		return request->message.header.uid == 0;
	return begins_with(name, XATTR_USER_PREFIX) || begins_with(name, XATTR_SECURITY_PREFIX) ||
	       is_list(name);
}

/* Whether the name is only the prefix of a kind. */
static bool is_kind_alone(struct lp_bytes name)
{
	return is_name(name, XATTR_USER_PREFIX) || is_name(name, XATTR_TRUSTED_PREFIX) ||
	       is_name(name, XATTR_SECURITY_PREFIX);
}

/* Attributes of any other kind cannot be set from here. */
static bool refuse_name(struct lpi_fuse_request *request)
{
	struct lp_bytes name = request->message.names[0];
	if (is_known(request, name) || begins_with(name, XATTR_TRUSTED_PREFIX))
		return false;
	lpi_fuse_answer(request, is_kind_alone(name) ? -EINVAL : -EOPNOTSUPP);
	return true;
}

static int gone(int err)
{
	return err == -ENOENT ? -ESTALE : err;
}

/* --- Get, list -------------------------------------------------------------------------------- */

static void answer_size(struct lpi_fuse_request *request, uint32_t size)
{
	const struct fuse_getxattr_out out = {.size = size};
	lpi_fuse_answer_bytes(request, &out, sizeof(out));
}

static void got(struct lpi_fuse_request *request)
{
	const struct lp_store_op *op = &request->op.store.op;
	uint32_t size = request->message.in.getxattr.size;
	int r = request->op.result;
	if (r == 0 || r == -ERANGE)
		note_name(request, request->message.names[0]);
	if (size == 0 && (r == 0 || r == -ERANGE))
		answer_size(request, op->get.value_len);
	else if (r == -ENODATA && lacks_labels(request))
		lpi_fuse_answer(request, -EOPNOTSUPP);
	else if (r < 0)
		lpi_fuse_answer(request, gone(r));
	else
		lpi_fuse_answer_bytes(request, request->room->data, op->get.value_len);
}

void lpi_fuse_getxattr(struct lpi_fuse_request *request)
{
	uint32_t size = LP_MIN(request->message.in.getxattr.size, LP_STORE_VALUE_MAX);
	if (lpi_fuse_is_settings(request)) {
		lpi_fuse_get_settings(request);
		return;
	}
	if (refuse_name(request))
		return;
	struct lp_buf *room = lpi_fuse_room(request, LP_MAX(size, 1u), lpi_fuse_getxattr);
	struct lp_ino ino = lpi_fuse_node(request);
	if (room == NULL)
		return;
	struct lp_store_op *op = lpi_fuse_store_op(request, LP_STORE_GET, ino);
	op->get.space = LP_STORE_XATTRS;
	op->get.ino = ino;
	op->get.name = request->message.names[0];
	op->get.buf = room->data;
	op->get.buf_len = size;
	lpi_fuse_submit(request, got);
}

/* A page of the store at a time comes to the beginning of the room. Names are gathered behind it.
 * Large rooms are few, so a request with names for one begins again in it. */
#define PAGE_BYTES 8192u

static_assert(LP_BUF_LARGE - PAGE_BYTES >= XATTR_LIST_MAX, "all that may be listed has room");

static void list_page(struct lpi_fuse_request *request);

static void list_in_large_room(struct lpi_fuse_request *request)
{
	request->left = 0;
	request->after_len = 0;
	if (lpi_fuse_room(request, LP_BUF_LARGE, list_in_large_room) != NULL)
		list_page(request);
}

/* The names do not fit: begins again in the next larger room, or fails. */
static void have_no_room(struct lpi_fuse_request *request)
{
	if (request->room->bytes >= LP_BUF_LARGE) {
		lpi_fuse_answer(request, -E2BIG);
		return;
	}
	lp_buf_put(request->room);
	request->room = NULL;
	list_in_large_room(request);
}

static void listed(struct lpi_fuse_request *request)
{
	const struct lp_store_op *op = &request->op.store.op;
	uint32_t names_max = LP_MIN(request->room->bytes - PAGE_BYTES, (uint32_t)XATTR_LIST_MAX);
	uint8_t *names = request->room->data + PAGE_BYTES;
	uint32_t size = request->message.in.getxattr.size;
	struct lp_list_item item;
	uint32_t pos = 0;
	if (request->op.result < 0) {
		lpi_fuse_answer(request, gone(request->op.result));
		return;
	}
	while (lp_store_list_next(op, &pos, &item)) {
		memcpy(request->after_name, item.name.data, item.name.len);
		request->after_len = item.name.len;
		note_name(request, item.name);
		if (!is_known(request, item.name))
			continue;
		if (request->left + item.name.len + 1 > names_max) {
			have_no_room(request);
			return;
		}
		memcpy(names + request->left, item.name.data, item.name.len);
		names[request->left + item.name.len] = 0;
		request->left += item.name.len + 1;
	}
	if (op->list.more)
		list_page(request);
	else if (size == 0)
		answer_size(request, (uint32_t)request->left);
	else if (request->left > size)
		lpi_fuse_answer(request, -ERANGE);
	else
		lpi_fuse_answer_bytes(request, names, request->left);
}

static void list_page(struct lpi_fuse_request *request)
{
	struct lp_ino ino = lpi_fuse_node(request);
	struct lp_store_op *op = lpi_fuse_store_op(request, LP_STORE_LIST, ino);
	op->list.space = LP_STORE_XATTRS;
	op->list.ino = ino;
	if (request->after_len > 0)
		op->list.after = (struct lp_bytes){request->after_name, request->after_len};
	op->list.buf = request->room->data;
	op->list.buf_len = PAGE_BYTES;
	lpi_fuse_submit(request, listed);
}

void lpi_fuse_listxattr(struct lpi_fuse_request *request)
{
	if (lpi_fuse_room(request, LP_BUF_MEDIUM, lpi_fuse_listxattr) != NULL)
		list_page(request);
}

/* --- Set, remove ------------------------------------------------------------------------------ */

static void answer_changed(struct lpi_fuse_request *request)
{
	lpi_fuse_answer(request, gone(LP_MIN(request->op.result, 0)));
}

static struct lp_change *change_of(struct lpi_fuse_request *request, uint32_t idx,
				   enum lp_change_type type)
{
	request->changes[idx] = (struct lp_change){.type = type};
	return &request->changes[idx];
}

static void set_attrs(struct lpi_fuse_request *request, uint32_t idx, uint32_t mask)
{
	struct lp_change *set = change_of(request, idx, LP_CHANGE_SET);
	request->attrs.ctime_ns = lpi_fuse_wall_ns(request);
	set->inode.attrs = &request->attrs;
	set->inode.mask = mask | LP_ATTR_CTIME;
}

static void set_value(struct lpi_fuse_request *request, uint32_t idx)
{
	const struct lp_fuse_message *message = &request->message;
	struct lp_change *change = change_of(request, idx, LP_CHANGE_XATTR_SET);
	/* A value of no bytes is allowed. */
	const void *value = message->data == NULL ? (const void *)"" : message->data;
	change->named.name = message->names[0];
	change->named.value = (struct lp_bytes){value, message->data_bytes};
}

static void set_plain(struct lpi_fuse_request *request)
{
	uint32_t flags = request->message.in.setxattr.flags;
	uint32_t cnt = 0;
	if ((flags & (XATTR_CREATE | XATTR_REPLACE)) != 0) {
		bool must_be = (flags & XATTR_REPLACE) != 0;
		change_of(request, cnt++, must_be ? LP_GUARD_XATTR : LP_GUARD_NO_XATTR)
			->named.name = request->message.names[0];
	}
	set_value(request, cnt++);
	set_attrs(request, cnt++, 0);
	lpi_fuse_txn(request, lpi_fuse_node(request), cnt);
	lpi_fuse_submit(request, answer_changed);
}

static void look_at_mode(struct lpi_fuse_request *request);

/* [guard: the bits that are no rights][the list][the mode]. Where the list says no more than a
 * mode, the file shall have no list: it is removed, or a guard that there is none stands in its
 * place. */
#define ACL_MODE 0u
#define ACL_LIST 1u

static void submit_acl(struct lpi_fuse_request *request);

static void acl_set(struct lpi_fuse_request *request)
{
	struct lp_change *list = &request->changes[ACL_LIST];
	uint32_t failed = request->op.store.op.txn.failed_idx;
	int r = request->op.result;
	bool is_other_mode = r == -ECANCELED && failed == ACL_MODE;
	bool is_other_list = failed == ACL_LIST && (r == -ENODATA || r == -EEXIST);
	if (!is_other_mode && !is_other_list) {
		answer_changed(request);
	} else if (++request->tries >= TRIES_MAX) {
		lpi_fuse_answer(request, -EAGAIN);
	} else if (is_other_mode) {
		look_at_mode(request);
	} else {
		list->type = r == -ENODATA ? LP_GUARD_NO_XATTR : LP_CHANGE_XATTR_REMOVE;
		submit_acl(request);
	}
}

static void submit_acl(struct lpi_fuse_request *request)
{
	lpi_fuse_txn(request, lpi_fuse_node(request), 3);
	lpi_fuse_submit(request, acl_set);
}

/* An access list also sets the mode, except for the bits that are no rights. A change of those
 * through the other door meanwhile must not be lost. */
static void acl_mode_known(struct lpi_fuse_request *request)
{
	const struct lp_fuse_message *message = &request->message;
	const struct lp_attrs *attrs = &request->op.stat.found.attrs;
	if (request->op.result < 0) {
		lpi_fuse_answer(request, gone(request->op.result));
		return;
	}
	uint32_t mode = (attrs->mode & NO_RIGHTS) | lp_acl_mode(message->data, message->data_bytes);
	if ((message->in.setxattr.setxattr_flags & FUSE_SETXATTR_ACL_KILL_SGID) != 0)
		mode &= ~(uint32_t)S_ISGID;
	struct lp_change *guard = change_of(request, ACL_MODE, LP_GUARD_INODE);
	guard->guard.mode_mask = NO_RIGHTS;
	guard->guard.mode = attrs->mode;
	request->attrs.mode = (uint16_t)mode;
	if (lp_acl_is_mode(message->data, message->data_bytes))
		change_of(request, ACL_LIST, LP_CHANGE_XATTR_REMOVE)->named.name =
			message->names[0];
	else
		set_value(request, ACL_LIST);
	set_attrs(request, 2, LP_ATTR_MODE);
	submit_acl(request);
}

static void look_at_mode(struct lpi_fuse_request *request)
{
	lpi_fuse_op(request, LP_NS_STAT)->stat.ino = lpi_fuse_node(request);
	lpi_fuse_submit(request, acl_mode_known);
}

void lpi_fuse_setxattr(struct lpi_fuse_request *request)
{
	const struct lp_fuse_message *message = &request->message;
	bool is_access = is_name(message->names[0], LP_ACL_ACCESS);
	if (lpi_fuse_is_settings(request)) {
		lpi_fuse_set_settings(request);
		return;
	}
	if (refuse_name(request))
		return;
	note_name(request, message->names[0]);
	/* The kernel's own limit. */
	if (message->data_bytes > LP_NS_VALUE_MAX) {
		lpi_fuse_answer(request, -E2BIG);
		return;
	}
	if (!is_list(message->names[0])) {
		set_plain(request);
		return;
	}
	int err = lp_acl_check(message->data, message->data_bytes);
	if (err < 0) {
		lpi_fuse_answer(request, err);
	} else if (is_access) {
		look_at_mode(request);
	} else {
		set_plain(request);
	}
}

/* Where there is no list, the mode acts as the list and cannot be removed: nothing is to be done.
 */
static void was_removed(struct lpi_fuse_request *request)
{
	if (request->op.result == -ENODATA && is_list(request->message.names[0]))
		lpi_fuse_answer(request, 0);
	else
		answer_changed(request);
}

void lpi_fuse_removexattr(struct lpi_fuse_request *request)
{
	if (refuse_name(request))
		return;
	change_of(request, 0, LP_CHANGE_XATTR_REMOVE)->named.name = request->message.names[0];
	set_attrs(request, 1, 0);
	lpi_fuse_txn(request, lpi_fuse_node(request), 2);
	lpi_fuse_submit(request, was_removed);
}
