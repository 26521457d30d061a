/* SPDX-License-Identifier: Apache-2.0 */
/* Lists: the records of a range of keys, in their order.
 *
 * Iterators do not see the overlay, so a list begins when all earlier changes are in the index
 * (rule W1). For a directory's entries the fragment says whether they are, and which group the
 * answer must wait for. So the list does not wait for changes elsewhere. A list goes through
 * records in the index's memory in the shard's thread, some records a turn. Where a read of the
 * device is needed, a helper fetches the rest, buffer by buffer.
 *
 * An inode's xattrs are in two places, its own list and A keys, and may move from one to the other.
 * So the inode stays claimed while both are merged. Other lists claim nothing.
 */
#include <string.h>

#include "base/error.h"
#include "store/block/read/query.h"

#define RECORDS_PER_TURN 256u
#define SCAN_BYTES       LP_BUF_MEDIUM /* a longer record gets a buffer of its size */

/* --- Xattrs of the inode's own list ----------------------------------------------------------- */

static bool is_asked_for(const struct lp_store_op *op, struct lp_inode_bytes name)
{
	const struct lp_bytes *after = &op->list.after;
	const struct lp_bytes *from = &op->list.from;
	const struct lp_bytes *prefix = &op->list.prefix;
	if (after->data != NULL && lp_key_compare(name.at, name.len, after->data, after->len) <= 0)
		return false;
	if (from->data != NULL && lp_key_compare(name.at, name.len, from->data, from->len) < 0)
		return false;
	return prefix->len == 0 ||
	       (prefix->len <= name.len && memcmp(name.at, prefix->data, prefix->len) == 0);
}

/* An empty value is there, too. */
static struct lp_bytes bytes_of(const void *data, size_t len)
{
	return (struct lp_bytes){len > 0 ? data : "", (uint32_t)len};
}

/* Puts the xattrs with names up to this one, or all when it is NULL; *ret_is_same when this one was
 * among them. */
static int put_own_xattrs(struct lpi_query *query, const struct lp_key_view *up_to,
			  bool *ret_is_same)
{
	struct lp_xattr xattr;
	size_t offset = query->xattr_offset;
	while (lp_xattrs_next(query->pinned->rec.xattrs, &offset, &xattr)) {
		int order = up_to == NULL ? -1
					  : lp_key_compare(xattr.name.at, xattr.name.len,
							   up_to->name, up_to->name_len);
		if (order > 0)
			return 0;
		const struct lp_list_item item = {
			.name = bytes_of(xattr.name.at, xattr.name.len),
			.value = bytes_of(xattr.value.at, xattr.value.len)};
		int err = is_asked_for(query->op, xattr.name) ? lpi_list_put(query->op, &item) : 0;
		if (err < 0)
			return err;
		*ret_is_same = order == 0;
		query->xattr_offset = offset;
	}
	return 0;
}

/* --- One record ------------------------------------------------------------------------------- */

/* own: the same key, built here. */
static int take_entry(struct lpi_query *query, const struct lp_key *own, struct lp_kv_bytes key,
		      struct lp_kv_bytes value)
{
	struct lp_dirent_value dirent;
	int err = lp_dirent_read(value.data, value.len, own, &dirent);
	if (err < 0)
		return err;
	const struct lp_list_item item = {
		.name = bytes_of((const uint8_t *)key.data + query->base_len,
				 key.len - query->base_len),
		.ino = {dirent.ino},
		.insertion = dirent.insertion,
		.type = dirent.type};
	return lpi_list_put(query->op, &item);
}

static int take_inode(struct lpi_query *query, const struct lp_key_view *view,
		      struct lp_kv_bytes key, struct lp_kv_bytes value)
{
	struct lp_inode inode;
	int err = lp_inode_decode(value.data, value.len, view->ino, &inode);
	if (err < 0)
		query->op->list.damaged = view->ino;
	if (err < 0 || (inode.flags & LP_INODE_FLAG_REMOVED) != 0)
		return err;
	const struct lp_list_item item = {
		.name = bytes_of((const uint8_t *)key.data + query->base_len,
				 key.len - query->base_len)};
	return lpi_list_put(query->op, &item);
}

static int take_xattr(struct lpi_query *query, const struct lp_key_view *view,
		      struct lp_kv_bytes value)
{
	bool is_same = false;
	int err = put_own_xattrs(query, view, &is_same);
	if (err < 0 || is_same)
		return err; /* the inode's own counts, as it does for a get */
	const struct lp_list_item item = {.name = bytes_of(view->name, view->name_len),
					  .value = bytes_of(value.data, value.len)};
	return lpi_list_put(query->op, &item);
}

/* A mark whose key names no inode was recorded and counted when the store was opened
 * (lpi_trims_open()). Its inode is unknown, and the list must still find the marks behind it. A
 * damaged record of a change over several shards is not skipped. */
static bool is_lost_mark(const struct lpi_query *query, struct lp_kv_bytes key)
{
	return query->op->list.space == LP_STORE_RECORDS && key.len > 0 &&
	       *(const uint8_t *)key.data == LP_KEY_SPACE_UNFINISHED;
}

/* The next iterator goes on behind this key. If the key is longer than any of ours, it goes on
 * behind all keys with the same beginning. */
static void go_behind(struct lpi_query *query, struct lp_kv_bytes key)
{
	struct lp_key *first = &query->range.first;
	if (key.len > LP_KEY_BYTES_MAX) {
		bool is_any = lp_key_after(key.data, LP_KEY_BYTES_MAX, first);
		LP_ASSERT(is_any);
		return;
	}
	memcpy(first->bytes, key.data, key.len);
	first->bytes[key.len] = 0;
	first->len = key.len + 1;
}

/* -ENOBUFS: the page is full. A record that is damaged is an error. */
static int take(struct lpi_query *query, struct lp_kv_bytes key, struct lp_kv_bytes value)
{
	struct lp_key_view view;
	struct lp_key *first = &query->range.first;
	int err = lp_key_parse(key.data, key.len, &view);
	if (err < 0 && is_lost_mark(query, key)) {
		go_behind(query, key);
		return 0;
	}
	if (err < 0)
		return err;
	/* Where another iterator would go on: the least key above this one, if it is taken. */
	memcpy(first->bytes, key.data, key.len);
	first->len = key.len;
	switch (query->op->list.space) {
	case LP_STORE_ENTRIES:
		err = take_entry(query, first, key, value);
		break;
	case LP_STORE_INODES:
		err = take_inode(query, &view, key, value);
		break;
	case LP_STORE_XATTRS:
		err = take_xattr(query, &view, value);
		break;
	case LP_STORE_OMAP:
	case LP_STORE_RECORDS:
	case LP_STORE_TARGET:
	case LP_STORE_NAME:
	case LP_STORE_SPACE_CNT:
	default:
		err = lpi_list_put(query->op, &(struct lp_list_item){
						      .name = bytes_of((const uint8_t *)key.data +
									       query->base_len,
								       key.len - query->base_len),
						      .value = bytes_of(value.data, value.len)});
		break;
	}
	if (err < 0)
		return err;
	go_behind(query, key);
	return 0;
}

/* --- The walk --------------------------------------------------------------------------------- */

/* err: -ENOENT when all records were seen, -ENOBUFS when the page is full. Damage behind the
 * requested number of records is reported by the next page. */
static int end_page(struct lpi_query *query, int err)
{
	struct lp_store_op *op = query->op;
	bool ignored = false;
	if ((err == -EUCLEAN || err == -EBADMSG) && op->list.items_max > 0 &&
	    op->list.items == op->list.items_max) {
		op->list.more = true;
		op->list.damaged.nr = 0;
		return lpi_list_end(op);
	}
	if (err == -ENOENT && query->pinned != NULL)
		err = put_own_xattrs(query, NULL, &ignored);
	if (err == -ENOENT || err == -ENOBUFS)
		err = 0;
	return err < 0 ? err : lpi_list_end(query->op);
}

static int end(struct lpi_query *query, int err)
{
	if (query->op->list.space == LP_STORE_ENTRIES)
		lpi_query_saw_entries(query, query->op->list.ino);
	else
		lpi_query_saw_index(query);
	return end_page(query, err);
}

static int scanned(struct lpi_query *query);

static int scan(struct lpi_query *query, size_t bytes)
{
	uint32_t max = query->op->list.items_max;
	/* One record more shows whether there are more. */
	max = max == 0 ? 0 : max - query->op->list.items + 1;
	query->go_on = scanned;
	return lpi_query_scan(query, max, bytes);
}

static int scanned(struct lpi_query *query)
{
	const struct lp_kv_scan_op *found = &query->scan;
	struct lp_kv_bytes key;
	struct lp_kv_bytes value;
	size_t pos = 0;
	int err = found->result;
	if (err == -ENOBUFS)
		return scan(query, found->used);
	while (err == 0 && lp_kv_scan_next(found, &pos, &key, &value))
		err = take(query, key, value);
	if (err == 0 && found->more)
		return scan(query, SCAN_BYTES);
	return end(query, err == 0 ? -ENOENT : err);
}

/* err: result of the iterator's last move. */
static int walk(struct lpi_query *query, int err);

static int walk_on(struct lpi_query *query)
{
	return walk(query, 0);
}

static int walk(struct lpi_query *query, int err)
{
	for (uint32_t n = 0; err == 0; n++) {
		if (n == RECORDS_PER_TURN) {
			query->go_on = walk_on;
			return LPI_WAIT_TURN;
		}
		err = take(query, lp_kv_iter_key(query->iter), lp_kv_iter_value(query->iter));
		if (err == 0)
			err = lp_kv_iter_next(query->iter);
	}
	lp_kv_iter_close(query->iter);
	query->iter = NULL;
	return err == -EAGAIN ? scan(query, SCAN_BYTES) : end(query, err);
}

static int walk_begin(struct lpi_query *query)
{
	const struct lp_key_range *range = &query->range;
	int err = lp_kv_iter_open(lpi_query_block(query)->kv,
				  (struct lp_kv_bytes){range->first.bytes, range->first.len},
				  (struct lp_kv_bytes){range->end.bytes, range->end.len}, true,
				  &query->iter);
	if (err < 0)
		return end(query, err);
	return walk(query, lp_kv_iter_seek_first(query->iter));
}

/* --- The range -------------------------------------------------------------------------------- */

/* A part that does not fit makes no difference: no key is as long as a bound can be. */
static void append(struct lp_key *key, const void *bytes, size_t len)
{
	size_t part = LP_MIN(len, sizeof(key->bytes) - key->len);
	if (part > 0)
		memcpy(key->bytes + key->len, bytes, part);
	key->len += part;
}

static void copy_key(struct lp_key *to, const struct lp_key *from)
{
	to->len = from->len;
	memcpy(to->bytes, from->bytes, from->len);
}

/* The bytes of keys before the names. */
static void set_base(struct lpi_query *query, struct lp_key *ret_base)
{
	const struct lp_store_op *op = query->op;
	struct lp_key_range *range = &query->range;
	switch (op->list.space) {
	case LP_STORE_ENTRIES:
		lp_key_range_of_ino(range, LP_KEY_SPACE_DIRENT, op->list.ino);
		break;
	case LP_STORE_XATTRS:
		lp_key_range_of_ino(range, LP_KEY_SPACE_XATTR, op->list.ino);
		break;
	case LP_STORE_OMAP:
		lp_key_range_of_ino(range, LP_KEY_SPACE_OMAP, op->list.ino);
		break;
	case LP_STORE_INODES:
		lp_key_range_of_space(range, LP_KEY_SPACE_INODE);
		break;
	case LP_STORE_RECORDS:
		range->first.len = 0;
		break;
	case LP_STORE_TARGET:
	case LP_STORE_NAME:
	case LP_STORE_SPACE_CNT:
	default:
		LP_UNREACHABLE();
	}
	copy_key(ret_base, &range->first);
	query->base_len = ret_base->len;
}

/* False: the range must be empty. */
static bool set_range(struct lpi_query *query)
{
	const struct lp_store_op *op = query->op;
	struct lp_key_range *range = &query->range;
	struct lp_key bound;
	set_base(query, &bound);
	if (op->list.prefix.len > LP_KEY_BYTES_MAX - bound.len)
		return false; /* longer than any name */
	append(&range->first, op->list.prefix.data, op->list.prefix.len);
	bool has_end = lp_key_after(range->first.bytes, range->first.len, &range->end);
	LP_ASSERT(has_end); /* no space is 0xff, and lpi_store_check() has checked the records'
			       prefix */
	append(&bound, op->list.from.data, op->list.from.len);
	append(&bound, op->list.after.data, op->list.after.len);
	if (op->list.after.data != NULL)
		append(&bound, "", 1); /* the next higher string is the same one with a NUL */
	if (lp_key_compare(bound.bytes, bound.len, range->first.bytes, range->first.len) > 0)
		copy_key(&range->first, &bound);
	return lp_key_compare(range->first.bytes, range->first.len, range->end.bytes,
			      range->end.len) < 0;
}

/* --- The beginning ---------------------------------------------------------------------------- */

/* Whether the inode has keys; -ENOENT when it does not exist. */
static int look_at_inode(struct lpi_query *query, bool *ret_has_keys)
{
	struct lpi_inode *inode;
	int err = lpi_query_inode(query, &inode);
	if (err < 0)
		return err;
	*ret_has_keys = (inode->rec.flags & LP_INODE_FLAG_HAS_KEYS) != 0;
	if (query->op->list.space == LP_STORE_XATTRS) {
		lpi_node_pin(&inode->node);
		query->pinned = inode;
		query->xattr_offset = 0;
	} else {
		lpi_hold_release(&query->hold);
		query->ino.nr = 0;
	}
	return 0;
}

/* All earlier changes that may be in the list are in the index. */
static bool is_inserted(struct lpi_query *query)
{
	const struct lp_store_op *op = query->op;
	struct lp_commit *commit = lpi_query_block(query)->commit;
	return commit == NULL || lp_commit_is_idle(commit) ||
	       (op->list.space == LP_STORE_ENTRIES && lpi_query_has_entries(query, op->list.ino));
}

int lpi_query_list(struct lpi_query *query)
{
	bool has_keys = true;
	int err = query->ino.nr != 0 ? look_at_inode(query, &has_keys) : 0;
	if (err < 0)
		return err;
	if (!has_keys || !set_range(query))
		return end_page(query, -ENOENT);
	query->go_on = walk_begin;
	return is_inserted(query) ? walk_begin(query) : LPI_WAIT_INSERTED;
}
