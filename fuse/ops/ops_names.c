/* SPDX-License-Identifier: Apache-2.0 */
/* Names: look up, make, remove, rename, link.
 *
 * Permissions have been checked by the kernel. It leaves to us the attributes that a new inode
 * inherits from its directory, so the directory is looked at first. If it has the set-group-id bit,
 * a new inode gets its group, and a new directory the bit. It also gives its default access list.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <string.h>
#include <sys/stat.h>

#include "fuse/channel_state.h"
#include "fuse/ops/ops.h"
#include "namespace/state/acl.h"

#define MODE_BITS 07777u

/* --- Lookup ----------------------------------------------------------------------------------- */

static void found(struct lpi_fuse_request *request)
{
	const struct lp_ns_op *op = &request->op;
	uint64_t entry_ns = lpi_fuse_entry_ns(request);
	const struct fuse_entry_out none = {.entry_valid = entry_ns / LP_NS_PER_S,
					    .entry_valid_nsec = (uint32_t)(entry_ns % LP_NS_PER_S)};
	/* A removed directory has no entries, and none can be made in it. */
	int r = op->result == -ESTALE ? -ENOENT : op->result;
	if (r >= 0)
		lpi_fuse_answer_entry(request, &op->lookup.found);
	else if (r == -ENOENT && entry_ns > 0)
		lpi_fuse_answer_bytes(request, &none, sizeof(none));
	else
		lpi_fuse_answer(request, r);
}

/* A caller that has only a number, such as an NFS server, looks up "." and "..". */

static void dot_found(struct lpi_fuse_request *request)
{
	if (request->op.result < 0)
		lpi_fuse_answer(request,
				request->op.result == -ENOENT ? -ESTALE : request->op.result);
	else
		lpi_fuse_answer_entry(request, &request->op.stat.found);
}

static void above_known(struct lpi_fuse_request *request)
{
	struct lp_ino parent = request->op.stat.found.attrs.parent;
	if (request->op.result < 0) {
		lpi_fuse_answer(request, request->op.result);
		return;
	}
	lpi_fuse_op(request, LP_NS_STAT)->stat.ino = parent.nr == 0 ? LP_INO_ROOT : parent;
	request->op.hold = true;
	lpi_fuse_submit(request, dot_found);
}

static bool is_dots(struct lp_bytes name)
{
	return name.len <= 2 && memcmp(name.data, "..", name.len) == 0;
}

void lpi_fuse_lookup(struct lpi_fuse_request *request)
{
	if (is_dots(request->message.names[0])) {
		bool is_one = request->message.names[0].len == 1;
		lpi_fuse_op(request, LP_NS_STAT)->stat.ino = lpi_fuse_node(request);
		request->op.hold = is_one;
		lpi_fuse_submit(request, is_one ? dot_found : above_known);
		return;
	}
	struct lp_ns_op *op = lpi_fuse_op(request, LP_NS_LOOKUP);
	op->lookup.dir = lpi_fuse_node(request);
	op->lookup.name = request->message.names[0];
	op->hold = true;
	lpi_fuse_submit(request, found);
}

/* --- Make ------------------------------------------------------------------------------------- */

static void made(struct lpi_fuse_request *request)
{
	const struct lp_ns_op *op = &request->op;
	if (op->result < 0)
		lpi_fuse_answer(request, op->result);
	else
		lpi_fuse_answer_entry(request, &op->make.found);
}

static void closed_again(struct lpi_fuse_request *request)
{
	lpi_fuse_let_go(request, request->op.open.ino);
}

static void made_open(struct lpi_fuse_request *request)
{
	struct {
		struct fuse_entry_out entry;
		struct fuse_open_out open;
	} out = {.open = {.fh = 0}};
	const struct lp_ns_op *op = &request->op;
	struct lp_ino ino = op->make.found.ino;
	int r = op->result;
	/* The kernel thought that there was no such name, so it has not checked the caller's right
	 * to open it. It must look the name up again. */
	if (r == -EEXIST && (request->message.in.create.flags & O_EXCL) == 0)
		r = -ESTALE;
	if (r < 0) {
		lpi_fuse_answer(request, r);
		return;
	}
	out.open.fh = lpi_fuse_handle_new(request, ino, request->message.in.create.flags);
	out.open.open_flags = lpi_fuse_open_flags(request, false);
	lpi_fuse_fill_entry(request, &op->make.found, &out.entry);
	if (lpi_fuse_tell(request, &out, sizeof(out))) {
		lpi_fuse_end(request, 0);
		return;
	}
	lpi_fuse_handle_drop(request->channel, ino, out.open.fh);
	struct lp_ns_op *close_op = lpi_fuse_op(request, LP_NS_CLOSE);
	close_op->open.ino = ino;
	close_op->open.count = 1;
	lpi_fuse_submit(request, closed_again);
}

static void make(struct lpi_fuse_request *request)
{
	const struct lp_fuse_message *message = &request->message;
	bool is_unnamed = message->header.opcode == FUSE_TMPFILE;
	bool is_create = message->header.opcode == FUSE_CREATE || is_unnamed;
	struct lp_ns_op *op = lpi_fuse_op(request, LP_NS_MAKE);
	op->make.dir = lpi_fuse_node(request);
	if (!is_unnamed)
		op->make.name = message->names[0];
	op->make.unnamed = is_unnamed;
	op->make.xattrs = request->xattrs;
	op->make.xattr_cnt = request->xattr_cnt;
	op->make.type = request->attrs.type;
	op->make.mode = request->attrs.mode;
	op->make.rdev = request->attrs.rdev;
	if (request->attrs.type == LP_INODE_TYPE_SYMLINK)
		op->make.target = message->names[1];
	if (request->attrs.gid != UINT32_MAX)
		op->who.gid = request->attrs.gid;
	op->make.open = is_create;
	op->hold = true;
	lpi_fuse_submit(request, is_create ? made_open : made);
}

/* Without a default list the umask of the process counts, which the kernel leaves to us. */
static uint32_t umask_of(const struct lp_fuse_message *message)
{
	switch (message->header.opcode) {
	case FUSE_MKNOD:
		return message->in.mknod.umask;
	case FUSE_MKDIR:
		return message->in.mkdir.umask;
	case FUSE_SYMLINK:
		return 0;
	default:
		return message->in.create.umask;
	}
}

/* In the room, the new inode's list is behind the default list. */
static void inherit(struct lpi_fuse_request *request, uint32_t len)
{
	uint8_t *acl = request->room->data + len;
	uint32_t cnt = 0;
	memcpy(acl, request->room->data, len);
	request->attrs.mode = lp_acl_create(acl, len, request->attrs.mode);
	if (!lp_acl_is_mode(acl, len))
		request->xattrs[cnt++] = (struct lp_ns_named_value){
			.name = {LP_ACL_ACCESS, sizeof(LP_ACL_ACCESS) - 1}, .value = {acl, len}};
	if (request->attrs.type == LP_INODE_TYPE_DIR)
		request->xattrs[cnt++] = (struct lp_ns_named_value){
			.name = {LP_ACL_DEFAULT, sizeof(LP_ACL_DEFAULT) - 1},
			.value = {request->room->data, len}};
	request->xattr_cnt = cnt;
	make(request);
}

static void look_for_list(struct lpi_fuse_request *request, void *buf, uint32_t buf_len);

static void list_known(struct lpi_fuse_request *request)
{
	const struct lp_store_op *op = &request->op.store.op;
	uint32_t len = op->get.value_len;
	int r = request->op.result;
	/* The first call only asks whether there is a list. */
	if (r == -ERANGE && request->room == NULL) {
		struct lp_buf *room = lpi_fuse_room(request, LP_BUF_MEDIUM, list_known);
		if (room != NULL)
			look_for_list(request, room->data, room->bytes);
		return;
	}
	if (r == -ENODATA || (r >= 0 && lp_acl_check(op->get.buf, len) < 0)) {
		request->attrs.mode &= (uint16_t)~umask_of(&request->message);
		make(request);
	} else if (r < 0 || 2 * len > request->room->bytes) {
		lpi_fuse_answer(request, r < 0 ? r : -E2BIG);
	} else {
		inherit(request, len);
	}
}

static void look_for_list(struct lpi_fuse_request *request, void *buf, uint32_t buf_len)
{
	struct lp_ino dir = lpi_fuse_node(request);
	struct lp_store_op *op = lpi_fuse_store_op(request, LP_STORE_GET, dir);
	op->get.space = LP_STORE_XATTRS;
	op->get.ino = dir;
	op->get.name = (struct lp_bytes){LP_ACL_DEFAULT, sizeof(LP_ACL_DEFAULT) - 1};
	op->get.buf = buf;
	op->get.buf_len = buf_len;
	lpi_fuse_submit(request, list_known);
}

static void parent_known(struct lpi_fuse_request *request)
{
	const struct lp_attrs *dir = &request->op.stat.found.attrs;
	if (request->op.result < 0) {
		lpi_fuse_answer(request, request->op.result);
		return;
	}
	request->attrs.gid = UINT32_MAX;
	if ((dir->mode & S_ISGID) != 0) {
		request->attrs.gid = dir->gid;
		if (request->attrs.type == LP_INODE_TYPE_DIR)
			request->attrs.mode |= S_ISGID;
	}
	if (request->attrs.type == LP_INODE_TYPE_SYMLINK)
		make(request);
	else
		look_for_list(request, request->after_name, 0);
}

static void begin_make(struct lpi_fuse_request *request, uint8_t type, uint32_t mode, uint32_t rdev)
{
	if (type == 0) {
		lpi_fuse_answer(request, -EINVAL);
		return;
	}
	request->attrs.type = type;
	request->attrs.mode = (uint16_t)(mode & MODE_BITS);
	request->attrs.rdev = rdev;
	lpi_fuse_op(request, LP_NS_STAT)->stat.ino = lpi_fuse_node(request);
	lpi_fuse_submit(request, parent_known);
}

void lpi_fuse_mknod(struct lpi_fuse_request *request)
{
	const struct fuse_mknod_in *in = &request->message.in.mknod;
	uint8_t type = lpi_fuse_type(in->mode);
	bool is_device = type == LP_INODE_TYPE_CHARDEV || type == LP_INODE_TYPE_BLOCKDEV;
	begin_make(request, type, in->mode, is_device ? in->rdev : 0);
}

void lpi_fuse_mkdir(struct lpi_fuse_request *request)
{
	begin_make(request, LP_INODE_TYPE_DIR, request->message.in.mkdir.mode, 0);
}

void lpi_fuse_symlink(struct lpi_fuse_request *request)
{
	begin_make(request, LP_INODE_TYPE_SYMLINK, 0777, 0);
}

void lpi_fuse_create(struct lpi_fuse_request *request)
{
	begin_make(request, LP_INODE_TYPE_FILE, request->message.in.create.mode, 0);
}

/* --- Remove, link ----------------------------------------------------------------------------- */

static void keeper_known(struct lpi_fuse_request *request)
{
	const struct lp_attrs *attrs = &request->op.stat.found.attrs;
	bool keeps = request->op.result >= 0 && (attrs->flags & LP_INODE_FLAGS_KEEPING) != 0;
	lpi_fuse_answer(request, keeps ? -EPERM : -ENOTEMPTY);
}

/* A directory cannot be removed because it has entries. If its parent is immutable or append-only,
 * Linux reports that first. The namespace checks that later, so the parent's flags are read here.
 */
static void answer_gone(struct lpi_fuse_request *request, struct lp_ino dir)
{
	if (request->op.result != -ENOTEMPTY) {
		lpi_fuse_answer_result(request);
		return;
	}
	lpi_fuse_op(request, LP_NS_STAT)->stat.ino = dir;
	lpi_fuse_submit(request, keeper_known);
}

static void removed(struct lpi_fuse_request *request)
{
	answer_gone(request, lpi_fuse_node(request));
}

static void remove_name(struct lpi_fuse_request *request, bool is_dir)
{
	struct lp_ns_op *op = lpi_fuse_op(request, LP_NS_REMOVE);
	op->remove.dir = lpi_fuse_node(request);
	op->remove.name = request->message.names[0];
	op->remove.is_dir = is_dir;
	lpi_fuse_submit(request, removed);
}

void lpi_fuse_unlink(struct lpi_fuse_request *request)
{
	remove_name(request, false);
}

void lpi_fuse_rmdir(struct lpi_fuse_request *request)
{
	remove_name(request, true);
}

static void linked(struct lpi_fuse_request *request)
{
	const struct lp_ns_op *op = &request->op;
	if (op->result < 0)
		lpi_fuse_answer(request, op->result);
	else
		lpi_fuse_answer_entry(request, &op->link.found);
}

void lpi_fuse_link(struct lpi_fuse_request *request)
{
	struct lp_ns_op *op = lpi_fuse_op(request, LP_NS_LINK);
	op->link.ino.nr = request->message.in.link.oldnodeid;
	op->link.dir = lpi_fuse_node(request);
	op->link.name = request->message.names[0];
	op->hold = true;
	lpi_fuse_submit(request, linked);
}

/* --- Rename ----------------------------------------------------------------------------------- */

static struct lp_ino renamed_to(const struct lpi_fuse_request *request)
{
	const union lp_fuse_in *in = &request->message.in;
	bool has_flags = request->message.header.opcode == FUSE_RENAME2;
	return (struct lp_ino){has_flags ? in->rename2.newdir : in->rename.newdir};
}

static void renamed(struct lpi_fuse_request *request)
{
	answer_gone(request, renamed_to(request));
}

/* A rename that replaces a file first makes the new content durable (rule M1). Nothing need be done
 * here for that. The moved inode changes in the rename's transaction (rule N3), so its shard takes
 * part, and earlier writes to it are in the log before that. */
void lpi_fuse_rename(struct lpi_fuse_request *request)
{
	const struct lp_fuse_message *message = &request->message;
	bool has_flags = message->header.opcode == FUSE_RENAME2;
	uint32_t flags = has_flags ? message->in.rename2.flags : 0;
	if ((flags & ~(uint32_t)(RENAME_NOREPLACE | RENAME_EXCHANGE)) != 0) {
		lpi_fuse_answer(request, -EINVAL);
		return;
	}
	struct lp_ns_op *op = lpi_fuse_op(request, LP_NS_RENAME);
	op->rename.dir = lpi_fuse_node(request);
	op->rename.name = message->names[0];
	op->rename.to_dir = renamed_to(request);
	op->rename.to_name = message->names[1];
	if ((flags & RENAME_NOREPLACE) != 0)
		op->rename.flags |= LP_NS_RENAME_NOREPLACE;
	if ((flags & RENAME_EXCHANGE) != 0)
		op->rename.flags |= LP_NS_RENAME_EXCHANGE;
	lpi_fuse_submit(request, renamed);
}
