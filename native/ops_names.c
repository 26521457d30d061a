/* SPDX-License-Identifier: Apache-2.0 */
/* Inodes and names in directories. */
#include "native/door_impl.h"
#include "native/ops.h"

/* --- By reference
 * ----------------------------------------------------------------------------------- */

static int read_plain_ref(struct lpi_request *request, struct lp_reader *reader)
{
	const uint8_t *ref = lp_reader_bytes(reader, LP_WIRE_REF_SIZE);
	return ref == NULL ? -EINVAL : lpi_read_ref(request, LPI_REF_INO, ref, reader);
}

int lpi_meta_stat(struct lpi_request *request, struct lp_reader *reader)
{
	(void)lpi_request_op(request, LP_NS_STAT);
	return read_plain_ref(request, reader);
}

/* The lookup has returned the attributes already. */
void lpi_run_stat(struct lpi_request *request)
{
	if (request->refs[0].path.len > 0)
		lpi_answer_found(request, &request->found);
	else
		lpi_request_submit(request);
}

void lpi_answer_stat(struct lpi_request *request)
{
	lpi_answer_found(request, &request->piece.op.stat.found);
}

/* Like the owner of a new inode: only root may name another user. */
static int check_owner(struct lpi_request *request, const struct lp_attrs *attrs, uint32_t mask)
{
	bool has_uid = (mask & LP_ATTR_UID) != 0;
	bool has_gid = (mask & LP_ATTR_GID) != 0;
	struct lp_ns_who who;
	return lpi_request_who(request, has_uid ? attrs->uid : LP_WIRE_NO_OWNER,
			       has_gid ? attrs->gid : LP_WIRE_NO_OWNER, &who);
}

int lpi_meta_set(struct lpi_request *request, struct lp_reader *reader)
{
	struct lp_wire_set set;
	struct lp_wire_attrs attrs;
	struct lp_ns_op *op = lpi_request_op(request, LP_NS_SET);
	int64_t now = lpi_request_wall_ns(request);
	if (!lp_wire_part(reader, lp_wire_set, &set) || (set.mask & ~LP_WIRE_SET_ALL) != 0)
		return -EINVAL;
	lp_wire_attrs_decode(set.attrs, &attrs);
	if (!lp_wire_attrs_reserved_is_zero(&attrs) || attrs.mode > 07777 ||
	    (attrs.flags & ~LP_WIRE_ATTR_FLAG_ALL) != 0)
		return -EINVAL;
	op->set.attrs = (struct lp_attrs){.mode = attrs.mode,
					  .uid = attrs.uid,
					  .gid = attrs.gid,
					  .flags = attrs.flags,
					  .atime_ns = attrs.atime_ns,
					  .mtime_ns = attrs.mtime_ns,
					  .ctime_ns = attrs.ctime_ns,
					  .btime_ns = attrs.btime_ns};
	/* The bits of both are the same; those of "now" are not the namespace's. */
	op->set.mask = set.mask & LP_ATTRS_ALL;
	/* An append sets the times to now as well, so an append-only inode allows that. */
	if ((set.mask & (LP_WIRE_SET_ATIME | LP_WIRE_SET_MTIME)) == 0)
		op->set.passes = LP_INODE_FLAG_APPEND;
	if ((set.mask & LP_WIRE_SET_ATIME_NOW) != 0) {
		op->set.attrs.atime_ns = now;
		op->set.mask |= LP_ATTR_ATIME;
	}
	if ((set.mask & LP_WIRE_SET_MTIME_NOW) != 0) {
		op->set.attrs.mtime_ns = now;
		op->set.mask |= LP_ATTR_MTIME;
	}
	int r = check_owner(request, &op->set.attrs, op->set.mask);
	return r < 0 ? r : lpi_read_ref(request, LPI_REF_INO, set.ref, reader);
}

static_assert((int)LP_WIRE_SET_MODE == (int)LP_ATTR_MODE &&
		      (int)LP_WIRE_SET_UID == (int)LP_ATTR_UID &&
		      (int)LP_WIRE_SET_GID == (int)LP_ATTR_GID &&
		      (int)LP_WIRE_SET_ATIME == (int)LP_ATTR_ATIME &&
		      (int)LP_WIRE_SET_MTIME == (int)LP_ATTR_MTIME &&
		      (int)LP_WIRE_SET_CTIME == (int)LP_ATTR_CTIME &&
		      (int)LP_WIRE_SET_BTIME == (int)LP_ATTR_BTIME &&
		      (int)LP_WIRE_SET_FLAGS == (int)LP_ATTR_FLAGS,
	      "masks are the same on the wire and inside");

void lpi_answer_set(struct lpi_request *request)
{
	lpi_answer_found(request, &request->piece.op.set.found);
}

int lpi_meta_sync(struct lpi_request *request, struct lp_reader *reader)
{
	(void)reader;
	(void)lpi_request_op(request, LP_NS_SYNC);
	return 0;
}

/* --- By name
 * ---------------------------------------------------------------------------------------- */

static int check_make(struct lpi_request *request, const struct lp_wire_make *make,
		      struct lp_ns_who who)
{
	bool is_device =
		make->type == LP_INODE_TYPE_BLOCKDEV || make->type == LP_INODE_TYPE_CHARDEV;
	if (is_device && lpi_request_rights(request).is_limited) {
		lpi_request_why(request, "only root makes devices");
		return -EPERM;
	}
	return make->type == LP_INODE_TYPE_DIR ? 0 : lpi_check_new_mode(request, who, make->mode);
}

int lpi_meta_make(struct lpi_request *request, struct lp_reader *reader)
{
	struct lp_wire_make make;
	struct lp_ns_op *op = lpi_request_op(request, LP_NS_MAKE);
	if (!lp_wire_part(reader, lp_wire_make, &make) || make.spread > 1 || make.or_open > 1 ||
	    make.open > 1 || make.mode > 07777)
		return -EINVAL;
	bool is_file = make.type == LP_INODE_TYPE_FILE;
	bool is_dir = make.type == LP_INODE_TYPE_DIR;
	bool is_link = make.type == LP_INODE_TYPE_SYMLINK;
	if (make.type < LP_INODE_TYPE_FILE || make.type > LP_INODE_TYPE_BLOCKDEV ||
	    (make.spread == 1 && !is_dir) || ((make.or_open == 1 || make.open == 1) && !is_file) ||
	    is_link != (make.target_bytes > 0)) {
		lpi_request_why(request, "this does not suit the type");
		return -EINVAL;
	}
	int r = lpi_request_who(request, make.uid, make.gid, &op->who);
	if (r >= 0)
		r = check_make(request, &make, op->who);
	if (r < 0)
		return r;
	r = lpi_read_ref(request, LPI_REF_NAME, make.ref, reader);
	if (r < 0)
		return r;
	const char *target = lp_wire_bytes(reader, make.target_bytes);
	if (target == NULL)
		return -EINVAL;
	if (is_link)
		op->make.target = (struct lp_bytes){target, make.target_bytes};
	op->make.rdev = make.rdev;
	op->make.mode = make.mode;
	op->make.type = make.type;
	op->make.spread = make.spread == 1;
	op->make.or_open = make.or_open == 1;
	op->make.open = make.open == 1;
	return make.open == 1 ? lpi_reserve_open(request) : 0;
}

void lpi_answer_make(struct lpi_request *request)
{
	struct lp_ns_op *op = &request->piece.op;
	if (request->open != NULL)
		lpi_open_add(request->open, op->make.found.ino, false);
	request->open = NULL;
	lpi_answer_found(request, &op->make.found);
}

int lpi_meta_remove(struct lpi_request *request, struct lp_reader *reader)
{
	struct lp_wire_remove remove;
	struct lp_ns_op *op = lpi_request_op(request, LP_NS_REMOVE);
	if (!lp_wire_part(reader, lp_wire_remove, &remove) || remove.is_dir > 1)
		return -EINVAL;
	op->remove.is_dir = remove.is_dir == 1;
	return lpi_read_ref(request, LPI_REF_NAME, remove.ref, reader);
}

int lpi_meta_link(struct lpi_request *request, struct lp_reader *reader)
{
	struct lp_wire_two two;
	(void)lpi_request_op(request, LP_NS_LINK);
	if (!lp_wire_part(reader, lp_wire_two, &two) || two.condition != 0 || two.version_nr != 0)
		return -EINVAL;
	return lpi_read_refs(request, LPI_REF_INO, LPI_REF_NAME, &two, reader);
}

void lpi_answer_link(struct lpi_request *request)
{
	lpi_answer_found(request, &request->piece.op.link.found);
}

int lpi_meta_rename(struct lpi_request *request, struct lp_reader *reader)
{
	struct lp_wire_two two;
	struct lp_ns_op *op = lpi_request_op(request, LP_NS_RENAME);
	if (!lp_wire_part(reader, lp_wire_two, &two) ||
	    (two.condition & ~LP_WIRE_RENAME_ALL) != 0 || two.version_nr != 0)
		return -EINVAL;
	op->rename.flags = two.condition;
	return lpi_read_refs(request, LPI_REF_NAME, LPI_REF_NAME, &two, reader);
}

static_assert((int)LP_WIRE_RENAME_NOREPLACE == (int)LP_NS_RENAME_NOREPLACE &&
		      (int)LP_WIRE_RENAME_EXCHANGE == (int)LP_NS_RENAME_EXCHANGE,
	      "flags are the same on the wire and inside");

/* --- Listings
 * --------------------------------------------------------------------------------------- */

int lpi_meta_readdir(struct lpi_request *request, struct lp_reader *reader)
{
	struct lp_wire_readdir readdir;
	struct lp_ns_op *op = lpi_request_op(request, LP_NS_READDIR);
	if (!lp_wire_part(reader, lp_wire_readdir, &readdir) || readdir.with_attrs > 1 ||
	    readdir.by_name > 1)
		return -EINVAL;
	int r = lpi_read_ref(request, LPI_REF_INO, readdir.ref, reader);
	if (r < 0)
		return r;
	const char *after = lp_wire_bytes(reader, readdir.after_bytes);
	if (after == NULL)
		return -EINVAL;
	struct lp_buf *room = lpi_request_room(request, LP_BUF_MEDIUM);
	if (room == NULL)
		return -EAGAIN;
	op->readdir.cookie = readdir.cookie;
	op->readdir.with_attrs = readdir.with_attrs == 1;
	op->readdir.by_name = readdir.by_name == 1;
	op->readdir.after = (struct lp_bytes){after, readdir.after_bytes};
	op->readdir.buf = room->data;
	op->readdir.buf_len = LP_BUF_MEDIUM;
	request->items_max = readdir.items_max;
	return 0;
}

static bool put_item(struct lp_writer *writer, const struct lp_ns_item *item)
{
	const struct lp_wire_item wire = {.ino = item->ino.nr,
					  .cookie = item->cookie,
					  .name_bytes = (uint16_t)item->name.len,
					  .type = item->type,
					  .has_attrs = item->has_attrs ? 1 : 0};
	if (lp_writer_remaining(writer) <
	    (size_t)LP_WIRE_ITEM_SIZE + item->name.len + (item->has_attrs ? LP_WIRE_ATTRS_SIZE : 0))
		return false;
	lp_wire_put_part(writer, lp_wire_item, &wire);
	lp_writer_bytes(writer, item->name.data, item->name.len);
	if (item->has_attrs) {
		const struct lp_ns_found found = {.ino = item->ino, .attrs = item->attrs};
		lpi_put_attrs(writer, &found);
	}
	return true;
}

/* Answers with as many items as fit, and as were asked for. */
void lpi_answer_items(struct lpi_request *request)
{
	const struct lp_ns_op *op = &request->piece.op;
	bool more = op->opcode == LP_NS_LIST ? op->list.more : op->readdir.more;
	uint32_t items_max = request->items_max == 0 ? UINT32_MAX : request->items_max;
	struct lp_wire_listed listed = {.more = more ? 1 : 0};
	struct lp_ns_item item;
	uint32_t pos = 0;
	struct lp_writer *writer = lpi_request_writer(request, LP_WIRE_META_MAX);
	if (writer == NULL)
		return;
	uint8_t *head = lp_writer_reserve(writer, LP_WIRE_LISTED_SIZE);
	while (lp_ns_next(op, &pos, &item)) {
		if (listed.item_cnt == items_max || !put_item(writer, &item)) {
			listed.more = 1;
			break;
		}
		listed.item_cnt++;
	}
	lp_wire_listed_encode(&listed, head);
	lpi_request_answer(request);
}
