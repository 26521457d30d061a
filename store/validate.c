/* SPDX-License-Identifier: Apache-2.0 */
/* One function for each kind of change and of operation. Whether attributes suit a type is asked
 * of lp_inode_fault(), so that no inode can be made here that its record could not hold. */
#include "store/store_kinds.h"

#include <string.h>

#include "base/error.h"
#include "store/record/values.h"

/* --- Parts ------------------------------------------------------------------------------------ */

typedef bool name_check_fn(const void *name, size_t len);

static bool is_absent(struct lp_bytes bytes)
{
	return bytes.data == NULL;
}

/* Bytes that may be absent, and are then none. */
static int check_bytes(struct lp_bytes bytes, uint32_t len_max)
{
	if (is_absent(bytes))
		return bytes.len == 0 ? 0 : -EINVAL;
	return bytes.len <= len_max ? 0 : -E2BIG;
}

static int check_name(struct lp_bytes name, uint32_t len_max, name_check_fn *is_valid)
{
	if (is_absent(name))
		return -EINVAL;
	if (name.len > len_max)
		return -ENAMETOOLONG;
	return is_valid(name.data, name.len) ? 0 : -EINVAL;
}

static int check_entry_name(struct lp_bytes name)
{
	return check_name(name, LP_KEY_NAME_MAX, lp_key_name_is_valid);
}

static int check_xattr_name(struct lp_bytes name)
{
	return check_name(name, LP_KEY_NAME_MAX, lp_key_xattr_name_is_valid);
}

static int check_omap_key(struct lp_bytes name)
{
	return check_name(name, LP_KEY_OMAP_MAX, lp_key_omap_key_is_valid);
}

static int check_record_key(struct lp_bytes name)
{
	return !is_absent(name) && lp_key_record_is_valid(name.data, name.len) ? 0 : -EINVAL;
}

/* What the store itself keeps among the store-wide records. */
static bool is_own_record(struct lp_bytes name)
{
	static const char *const own[] = {"applied", "alloc", "gone", "inodes", "policy", "trim"};
	const char *text = (const char *)name.data + 1;
	size_t len = strnlen(text, name.len - 1);
	if (*(const char *)name.data != LP_KEY_SPACE_STORE)
		return false;
	for (size_t i = 0; i < LP_ARRAY_SIZE(own); i++) {
		if (len == strlen(own[i]) && memcmp(text, own[i], len) == 0)
			return true;
	}
	return false;
}

static int check_record_change(struct lp_bytes name)
{
	int err = check_record_key(name);
	return err == 0 && is_own_record(name) ? -EINVAL : err;
}

static int check_value(struct lp_bytes value)
{
	return check_bytes(value, LP_STORE_VALUE_MAX);
}

/* What is put under U is what the store finds there when it is opened. */
static int check_mark(const struct lp_change *change)
{
	struct lp_bytes value = change->named.value;
	struct lp_key key;
	if (lpi_change_mark_of(change).nr == 0 || is_absent(value))
		return 0;
	lp_key_of_ino(&key, LP_KEY_SPACE_UNFINISHED, lpi_change_mark_of(change));
	return lp_unfinished_is_mark(value.data, value.len, &key) ? 0 : -EINVAL;
}

static int check_present_value(struct lp_bytes value)
{
	return is_absent(value) ? -EINVAL : check_value(value);
}

static int check_end(uint64_t offset, uint64_t length)
{
	return lp_range_outside(offset, length, LP_STORE_FILE_MAX) ? -EFBIG : 0;
}

/* --- Changes of inodes ------------------------------------------------------------------------ */

static struct lp_inode_bytes borrow(struct lp_bytes bytes)
{
	if (bytes.len == 0)
		return (struct lp_inode_bytes){NULL, 0};
	return (struct lp_inode_bytes){bytes.data, bytes.len};
}

static int check_texts(const struct lp_change *change)
{
	int err = check_bytes(change->inode.name, UINT32_MAX);
	return err == 0 ? check_bytes(change->inode.target, UINT32_MAX) : err;
}

static int check_attrs(const struct lp_change *change, const struct lp_inode *inode)
{
	int err = check_texts(change);
	if (err < 0)
		return err;
	if (inode->name.len > LP_KEY_NAME_MAX || inode->target.len > LP_INODE_TARGET_MAX)
		return -ENAMETOOLONG;
	if ((inode->flags & ~LP_INODE_FLAGS_SETTABLE) != 0)
		return -EINVAL;
	return lp_inode_fault(inode) == NULL ? 0 : -EINVAL;
}

static int check_create(const struct lp_change *change)
{
	const struct lp_attrs *attrs = change->inode.attrs;
	if (attrs == NULL)
		return -EINVAL;
	const struct lp_inode inode = {
		.ino = change->ino,
		.parent = attrs->parent,
		.type = attrs->type,
		.mode = attrs->mode,
		.flags = attrs->flags,
		.rdev = attrs->rdev,
		.name = borrow(change->inode.name),
		.target = borrow(change->inode.target),
		.size_bytes = change->inode.target.len,
	};
	return check_attrs(change, &inode);
}

/* Attributes of which not all values are right. Of the others, as times, all that each write
 * sets, there is nothing to ask. */
#define JUDGED_ATTRS (LP_ATTR_MODE | LP_ATTR_FLAGS | LP_ATTR_PARENT)

/* What is set in an otherwise blameless inode of the type. */
static int check_set_of(const struct lp_change *change, uint8_t type)
{
	const struct lp_attrs *attrs = change->inode.attrs;
	uint32_t mask = change->inode.mask;
	if ((mask & JUDGED_ATTRS) == 0 && change->ino.nr != 0)
		return check_texts(change);
	struct lp_inode inode = {.ino = change->ino, .type = type};
	if (type == LP_INODE_TYPE_DIR)
		inode.parent = change->ino;
	if (type == LP_INODE_TYPE_SYMLINK) {
		inode.target = (struct lp_inode_bytes){(const uint8_t *)"x", 1};
		inode.size_bytes = 1;
	}
	if ((mask & LP_ATTR_MODE) != 0)
		inode.mode = attrs->mode;
	if ((mask & LP_ATTR_FLAGS) != 0)
		inode.flags = attrs->flags;
	if ((mask & LP_ATTR_PARENT) != 0) {
		inode.parent = attrs->parent;
		inode.name = borrow(change->inode.name);
	}
	return check_attrs(change, &inode);
}

int lpi_store_check_set(const struct lp_change *change, uint8_t type)
{
	LP_ASSERT(change->type == LP_CHANGE_SET);
	return check_set_of(change, type);
}

/* The type is not known yet: a directory may have most, except to be an orphan, which a file
 * may. */
static int check_set(const struct lp_change *change)
{
	if ((change->inode.mask & ~LP_ATTRS_ALL) != 0)
		return -EINVAL;
	if (change->inode.attrs == NULL)
		return -EINVAL;
	int err = check_set_of(change, LP_INODE_TYPE_DIR);
	return err == -EINVAL ? check_set_of(change, LP_INODE_TYPE_FILE) : err;
}

/* --- Changes of data -------------------------------------------------------------------------- */

/* Its segments hold the length, no more and no less. */
static int check_segs(const struct lp_payload *payload, uint64_t length)
{
	uint64_t left = length;
	if (payload->segs == NULL)
		return -EINVAL;
	for (uint32_t i = 0; i < payload->seg_cnt; i++) {
		const struct lp_seg *seg = &payload->segs[i];
		if (seg->buf == NULL || seg->len == 0 || seg->len > left)
			return -EINVAL;
		if (lp_range_outside(seg->offset, seg->len, seg->buf->bytes))
			return -EINVAL;
		left -= seg->len;
	}
	return left == 0 ? 0 : -EINVAL;
}

static int check_write(const struct lp_change *change)
{
	const struct lp_payload *payload = &change->data.payload;
	uint64_t length = change->data.length;
	/* The end is known when it is written: until then it may be anywhere on the grid. */
	uint64_t offset = change->data.offset == LP_STORE_APPEND ? 0 : change->data.offset;
	if (length == 0 || (unsigned)change->data.path >= LP_PATH_CNT)
		return -EINVAL;
	if (length > LP_STORE_WRITE_MAX)
		return -E2BIG;
	int err = check_end(offset, length);
	if (err < 0)
		return err;
	if (payload->crcs == NULL || payload->crc_cnt != lpi_piece_cnt(offset, length))
		return -EINVAL;
	return check_segs(payload, length);
}

static int check_range(uint64_t offset, uint64_t length)
{
	if (length == 0)
		return -EINVAL;
	return length > LP_STORE_RANGE_MAX ? -E2BIG : check_end(offset, length);
}

static int check_clone(const struct lp_change *change)
{
	uint64_t offset = change->clone.offset;
	uint64_t src_offset = change->clone.src_offset;
	uint64_t length = change->clone.length;
	if (change->clone.src.nr == 0)
		return -EINVAL;
	if (!lp_is_aligned(offset | src_offset, LP_BLOCK_BYTES))
		return -EINVAL;
	int err = check_range(offset, length);
	if (err == 0)
		err = check_range(src_offset, length);
	if (err < 0 || change->clone.src.nr != change->ino.nr)
		return err;
	bool is_apart = src_offset + length <= offset || offset + length <= src_offset;
	return is_apart ? 0 : -EINVAL;
}

/* --- Small changes ---------------------------------------------------------------------------- */

static int check_entry_set(const struct lp_change *change)
{
	if (change->named.target.nr == 0 || lp_inode_type_name(change->named.target_type) == NULL)
		return -EINVAL;
	return check_entry_name(change->named.name);
}

static int check_named(const struct lp_change *change, int name_err, bool has_value)
{
	if (name_err < 0)
		return name_err;
	return has_value ? check_present_value(change->named.value)
			 : check_value(change->named.value);
}

static int check_record_value(const struct lp_change *change)
{
	int err = check_named(change, check_record_change(change->named.name), false);
	return err == 0 ? check_mark(change) : err;
}

static int check_dir(const struct lp_change *change)
{
	if (change->dir.seal && change->dir.unseal)
		return -EINVAL;
	bool does_more = change->dir.seal || change->dir.unseal || change->dir.mtime_ns != 0 ||
			 change->dir.ctime_ns != 0;
	return change->dir.drop && does_more ? -EINVAL : 0;
}

static int check_change(const struct lp_change *change)
{
	struct lp_bytes name = change->named.name; /* looked at where there is one */
	switch (change->type) {
	case LP_GUARD_INODE:
	case LP_GUARD_NO_INODE:
	case LP_GUARD_EMPTY:
	case LP_CHANGE_LINK:
	case LP_CHANGE_REMOVE:
		return 0;
	case LP_GUARD_DIR:
		return name.data == NULL ? 0 : check_entry_name(name);
	case LP_GUARD_ENTRY:
	case LP_GUARD_NO_ENTRY:
	case LP_CHANGE_ENTRY_REMOVE:
		return check_entry_name(name);
	case LP_GUARD_XATTR:
	case LP_GUARD_NO_XATTR:
	case LP_CHANGE_XATTR_REMOVE:
		return check_named(change, check_xattr_name(name), false);
	case LP_GUARD_RECORD:
	case LP_GUARD_NO_RECORD:
		return check_named(change, check_record_key(name), false);
	case LP_CHANGE_RECORD:
		return check_record_value(change);
	case LP_CHANGE_CREATE:
		return check_create(change);
	case LP_CHANGE_SET:
		return check_set(change);
	case LP_CHANGE_WRITE:
		return check_write(change);
	case LP_CHANGE_TRUNCATE:
		return check_end(change->data.offset, 0);
	case LP_CHANGE_PUNCH:
	case LP_CHANGE_PREALLOC:
		return check_range(change->data.offset, change->data.length);
	case LP_CHANGE_CLONE:
		return check_clone(change);
	case LP_CHANGE_XATTR_SET:
		return check_named(change, check_xattr_name(name), true);
	case LP_CHANGE_OMAP_SET:
		return check_named(change, check_omap_key(name), true);
	case LP_CHANGE_OMAP_REMOVE:
		return check_omap_key(name);
	case LP_CHANGE_ENTRY_SET:
		return check_entry_set(change);
	case LP_CHANGE_DIR:
		return check_dir(change);
	case LP_CHANGE_CNT:
		break;
	}
	return -EINVAL; /* of no known type */
}

/* --- Flags ------------------------------------------------------------------------------------ */

static bool is_behind_end(uint64_t offset, uint64_t size_bytes)
{
	return offset == LP_STORE_APPEND || offset >= size_bytes;
}

/* Times come with what is appended. */
static bool is_appending(const struct lp_change *change, uint64_t size_bytes)
{
	const uint32_t times = LP_ATTR_ATIME | LP_ATTR_MTIME | LP_ATTR_CTIME;
	switch (change->type) {
	case LP_CHANGE_SET:
		return (change->inode.mask & ~times) == 0;
	case LP_CHANGE_WRITE:
	case LP_CHANGE_TRUNCATE:
		return is_behind_end(change->data.offset, size_bytes);
	case LP_CHANGE_CLONE:
		return is_behind_end(change->clone.offset, size_bytes);
	case LP_CHANGE_PREALLOC:
		return true;
	default:
		return false;
	}
}

int lpi_store_heed_flags(const struct lp_store_op *op, const struct lp_change *change,
			 uint32_t flags, uint64_t size_bytes)
{
	bool is_read = change->type == LP_CHANGE_SET && change->inode.mask == LP_ATTR_ATIME;
	if (!op->txn.heeds_flags || (flags & LP_INODE_FLAGS_KEEPING) == 0 || is_read)
		return 0;
	if ((flags & LP_INODE_FLAG_IMMUTABLE) != 0)
		return -EPERM;
	return is_appending(change, size_bytes) ? 0 : -EPERM;
}

/* --- Transactions ----------------------------------------------------------------------------- */

enum touched_kind {
	TOUCHED_INO, /* the inode, or the directory of that number */
	TOUCHED_ENTRY,
	TOUCHED_XATTR,
	TOUCHED_OMAP,
	TOUCHED_RECORD
};

struct touched {
	enum touched_kind kind;
	struct lp_ino ino;
	struct lp_bytes name;
};

struct touched_set {
	struct touched items[LP_STORE_TOUCHED_MAX];
	uint32_t cnt;
};

/* False when it is one too many. */
static bool touch(struct touched_set *set, enum touched_kind kind, struct lp_ino ino,
		  struct lp_bytes name)
{
	for (uint32_t i = 0; i < set->cnt; i++) {
		const struct touched *item = &set->items[i];
		bool is_same = item->kind == kind && item->ino.nr == ino.nr;
		if (is_same && item->name.len == name.len &&
		    (name.len == 0 || memcmp(item->name.data, name.data, name.len) == 0))
			return true;
	}
	if (set->cnt == LP_STORE_TOUCHED_MAX)
		return false;
	set->items[set->cnt++] = (struct touched){kind, ino, name};
	return true;
}

static bool touch_change(struct touched_set *set, const struct lp_change *change)
{
	const struct lp_bytes none = {NULL, 0};
	struct lp_bytes name = change->named.name;
	enum lp_change_type type = change->type;
	if (type == LP_CHANGE_RECORD && lpi_change_mark_of(change).nr != 0 &&
	    !touch(set, TOUCHED_INO, lpi_change_mark_of(change), none))
		return false;
	if (type == LP_GUARD_RECORD || type == LP_GUARD_NO_RECORD || type == LP_CHANGE_RECORD)
		return touch(set, TOUCHED_RECORD, (struct lp_ino){0}, name);
	if (!touch(set, TOUCHED_INO, change->ino, none))
		return false;
	if (type == LP_CHANGE_CLONE)
		return touch(set, TOUCHED_INO, change->clone.src, none);
	if (type == LP_GUARD_DIR && name.data == NULL)
		return true;
	if (type == LP_GUARD_ENTRY || type == LP_GUARD_NO_ENTRY || type == LP_GUARD_DIR ||
	    type == LP_CHANGE_ENTRY_SET || type == LP_CHANGE_ENTRY_REMOVE)
		return touch(set, TOUCHED_ENTRY, change->ino, name);
	if (type == LP_GUARD_XATTR || type == LP_GUARD_NO_XATTR || type == LP_CHANGE_XATTR_SET ||
	    type == LP_CHANGE_XATTR_REMOVE)
		return touch(set, TOUCHED_XATTR, change->ino, name);
	if (type == LP_CHANGE_OMAP_SET || type == LP_CHANGE_OMAP_REMOVE)
		return touch(set, TOUCHED_OMAP, change->ino, name);
	return true;
}

static int check_touched(struct lp_store_op *op)
{
	struct touched_set set = {.cnt = 0};
	for (uint32_t i = 0; i < op->txn.change_cnt; i++) {
		if (!touch_change(&set, &op->txn.changes[i])) {
			op->txn.failed_idx = i;
			return -E2BIG;
		}
	}
	return 0;
}

static bool is_made_again(const struct lp_store_op *op, uint32_t idx)
{
	const struct lp_change *changes = op->txn.changes;
	for (uint32_t i = 0; i < idx; i++)
		if (changes[i].type == LP_CHANGE_REMOVE && changes[i].ino.nr == changes[idx].ino.nr)
			return true;
	return false;
}

static bool has_ino(enum lp_change_type type)
{
	return type != LP_GUARD_RECORD && type != LP_GUARD_NO_RECORD && type != LP_CHANGE_RECORD;
}

/* What a change may not be beside those before it. */
static int check_place(const struct lp_store_op *op, uint32_t idx)
{
	const struct lp_change *change = &op->txn.changes[idx];
	if (has_ino(change->type) && change->ino.nr == 0)
		return -EINVAL;
	if (idx > 0 && lpi_change_is_guard(change->type) && !lpi_change_is_guard(change[-1].type))
		return -EINVAL;
	if (change->type == LP_CHANGE_CREATE && is_made_again(op, idx))
		return -EINVAL;
	return 0;
}

static bool is_of_entry(enum lp_change_type type)
{
	return type == LP_CHANGE_ENTRY_SET || type == LP_CHANGE_ENTRY_REMOVE;
}

static bool is_of_xattr(enum lp_change_type type)
{
	return type == LP_CHANGE_XATTR_SET || type == LP_CHANGE_XATTR_REMOVE;
}

static bool is_same_name(const struct lp_change *a, const struct lp_change *b)
{
	return a->named.name.len == b->named.name.len &&
	       memcmp(a->named.name.data, b->named.name.data, a->named.name.len) == 0;
}

/* Where the store may put a mark of its own. */
static bool is_marked(const struct lp_change *change, const struct lp_change *mark)
{
	bool may_mark = change->type == LP_CHANGE_REMOVE || change->type == LP_CHANGE_TRUNCATE;
	return may_mark && change->ino.nr == lpi_change_mark_of(mark).nr;
}

/* What is removed is not made or written by the same transaction, what is made not preallocated, a
 * fragment that was dropped not made again, and an entry or xattr is changed once. a comes before
 * b. */
static bool is_in_conflict(const struct lp_change *a, const struct lp_change *b)
{
	if (is_marked(a, b) || is_marked(b, a))
		return true;
	if (a->ino.nr != b->ino.nr)
		return false;
	bool makes_fragment = b->type == LP_CHANGE_ENTRY_SET || b->type == LP_CHANGE_DIR;
	if (a->type == LP_CHANGE_CREATE && b->type == LP_CHANGE_PREALLOC)
		return true; /* its space is taken in commits before that which makes the inode */
	if (lpi_change_drops(a) && makes_fragment && !lpi_change_drops(b))
		return true;
	if (a->type == LP_CHANGE_REMOVE || b->type == LP_CHANGE_REMOVE) {
		enum lp_change_type other = a->type == LP_CHANGE_REMOVE ? b->type : a->type;
		return other == LP_CHANGE_CREATE || lpi_change_is_data(other);
	}
	bool is_same_kind = (is_of_entry(a->type) && is_of_entry(b->type)) ||
			    (is_of_xattr(a->type) && is_of_xattr(b->type));
	return is_same_kind && is_same_name(a, b);
}

/* Guards, which stand before all changes, change nothing. */
static int check_conflicts(const struct lp_store_op *op, uint32_t idx)
{
	const struct lp_change *changes = op->txn.changes;
	if (lpi_change_is_guard(changes[idx].type))
		return 0;
	for (uint32_t i = idx; i > 0 && !lpi_change_is_guard(changes[i - 1].type); i--) {
		if (is_in_conflict(&changes[i - 1], &changes[idx]))
			return -EINVAL;
	}
	return 0;
}

static int check_txn(struct lp_store_op *op)
{
	uint32_t data_cnt = 0;
	if (op->txn.change_cnt > LP_STORE_CHANGES_MAX)
		return -E2BIG;
	if (op->txn.change_cnt == 0 || op->txn.changes == NULL)
		return -EINVAL;
	if (op->txn.ack != LP_ACK_DURABLE && op->txn.ack != LP_ACK_ORDERED)
		return -EINVAL;
	for (uint32_t i = 0; i < op->txn.change_cnt; i++) {
		const struct lp_change *change = &op->txn.changes[i];
		int err = check_change(change);
		if (err == 0)
			err = check_place(op, i);
		data_cnt += lpi_change_is_data(change->type);
		if (err == 0 && data_cnt > 1)
			err = -EINVAL;
		if (err == 0)
			err = check_conflicts(op, i);
		if (err < 0) {
			op->txn.failed_idx = i;
			return err;
		}
	}
	/* A change touches two things at most. */
	return op->txn.change_cnt * 2 > LP_STORE_TOUCHED_MAX ? check_touched(op) : 0;
}

/* --- Other operations ------------------------------------------------------------------------- */

static int check_ino(struct lp_ino ino)
{
	return ino.nr != 0 ? 0 : -EINVAL;
}

static int check_buf(const void *buf, uint32_t buf_len)
{
	return buf != NULL || buf_len == 0 ? 0 : -EINVAL;
}

static int check_read(const struct lp_store_op *op)
{
	if (op->read.length > LP_STORE_READ_MAX)
		return -E2BIG;
	return check_ino(op->read.ino);
}

static int check_lookup(const struct lp_store_op *op)
{
	int err = check_ino(op->lookup.dir);
	return err < 0 ? err : check_entry_name(op->lookup.name);
}

static int check_get(const struct lp_store_op *op)
{
	int err = check_buf(op->get.buf, op->get.buf_len);
	if (err < 0)
		return err;
	switch (op->get.space) {
	case LP_STORE_XATTRS:
		err = check_xattr_name(op->get.name);
		break;
	case LP_STORE_OMAP:
		err = check_omap_key(op->get.name);
		break;
	case LP_STORE_TARGET:
	case LP_STORE_NAME:
		break;
	case LP_STORE_RECORDS:
		return check_record_key(op->get.name);
	case LP_STORE_ENTRIES:
	case LP_STORE_INODES:
	case LP_STORE_SPACE_CNT:
		return -EINVAL;
	}
	return err < 0 ? err : check_ino(op->get.ino);
}

static int check_records_prefix(struct lp_bytes prefix)
{
	if (is_absent(prefix) || prefix.len == 0)
		return -EINVAL;
	uint8_t space = *(const uint8_t *)prefix.data;
	bool is_open = space == LP_KEY_SPACE_STORE || space == LP_KEY_SPACE_TXN ||
		       space == LP_KEY_SPACE_UNFINISHED;
	return is_open ? 0 : -EINVAL;
}

static int check_list(const struct lp_store_op *op)
{
	const struct lp_bytes *bounds[] = {&op->list.after, &op->list.from, &op->list.prefix};
	for (size_t i = 0; i < LP_ARRAY_SIZE(bounds); i++)
		if (check_bytes(*bounds[i], UINT32_MAX) < 0)
			return -EINVAL;
	if (!is_absent(op->list.after) && !is_absent(op->list.from))
		return -EINVAL;
	if (check_buf(op->list.buf, op->list.buf_len) < 0)
		return -EINVAL;
	switch (op->list.space) {
	case LP_STORE_XATTRS:
	case LP_STORE_OMAP:
	case LP_STORE_ENTRIES:
		return check_ino(op->list.ino);
	case LP_STORE_RECORDS:
		return check_records_prefix(op->list.prefix);
	case LP_STORE_INODES:
		return 0;
	case LP_STORE_TARGET:
	case LP_STORE_NAME:
	case LP_STORE_SPACE_CNT:
		break;
	}
	return -EINVAL;
}

/* --- All -------------------------------------------------------------------------------------- */

static void clear_txn(struct lp_store_op *op)
{
	op->txn.failed_idx = op->txn.change_cnt;
	op->txn.offset = 0;
	op->txn.is_unknown = false;
	op->txn.version_nr = 0;
	op->txn.path = LP_PATH_AUTO;
}

static void clear_read(struct lp_store_op *op)
{
	op->read.segs = NULL;
	op->read.crcs = NULL;
	op->read.seg_cnt = 0;
	op->read.crc_cnt = 0;
	op->read.bytes = 0;
	op->read.size_bytes = 0;
	op->read.version_nr = 0;
}

static void clear_lookup(struct lp_store_op *op)
{
	op->lookup.ino.nr = 0;
	op->lookup.insertion = 0;
	op->lookup.type = 0;
	op->lookup.has_attrs = false;
	memset(&op->lookup.attrs, 0, sizeof(op->lookup.attrs));
}

static void clear_list(struct lp_store_op *op)
{
	op->list.items = 0;
	op->list.used = 0;
	op->list.more = false;
	op->list.damaged.nr = 0;
}

static void clear_dir(struct lp_store_op *op)
{
	op->dir.entries_cnt = 0;
	op->dir.name_bytes = 0;
	op->dir.next_insertion = 0;
	op->dir.mtime_ns = 0;
	op->dir.ctime_ns = 0;
	op->dir.is_sealed = false;
}

int lpi_store_check(struct lp_store_op *op)
{
	op->result = 0;
	op->saw_ordered = false;
	switch (op->opcode) {
	case LP_STORE_TXN:
		clear_txn(op);
		return check_txn(op);
	case LP_STORE_READ:
		clear_read(op);
		return check_read(op);
	case LP_STORE_STAT:
		memset(&op->stat.attrs, 0, sizeof(op->stat.attrs));
		return check_ino(op->stat.ino);
	case LP_STORE_LOOKUP:
		clear_lookup(op);
		return check_lookup(op);
	case LP_STORE_GET:
		op->get.value_len = 0;
		return check_get(op);
	case LP_STORE_LIST:
		clear_list(op);
		return check_list(op);
	case LP_STORE_SEEK:
		op->seek.found = 0;
		return check_ino(op->seek.ino);
	case LP_STORE_DIR:
		clear_dir(op);
		return check_ino(op->dir.ino);
	case LP_STORE_SYNC:
		return 0;
	case LP_STORE_OPCODE_CNT:
		break;
	}
	return -EINVAL; /* of no known kind */
}
