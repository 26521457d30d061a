/* SPDX-License-Identifier: Apache-2.0 */
/* Xattrs, omap and the targets of symlinks: read straight into the reply where they are one value,
 * into a buffer of the request where they are a list. */
#include "daemon/door_impl.h"
#include "namespace/acl.h"

static_assert(LP_WIRE_VALUE_MAX == LP_NS_VALUE_MAX, "what one door takes the other can read");

/* --- One
 * ------------------------------------------------------------------------------------------ */

static int read_named(struct lpi_request *request, struct lp_reader *reader,
		      struct lp_wire_named *ret_named, struct lp_bytes *ret_name,
		      struct lp_bytes *ret_value)
{
	if (!lp_wire_part(reader, lp_wire_named, ret_named))
		return -EINVAL;
	int r = lpi_read_ref(request, LPI_REF_INO, ret_named->ref, reader);
	if (r < 0)
		return r;
	const char *name = lp_wire_bytes(reader, ret_named->name_bytes);
	const char *value = lp_wire_bytes(reader, ret_named->value_bytes);
	if (value == NULL)
		return -EINVAL;
	if (ret_named->value_bytes > LP_WIRE_VALUE_MAX)
		return -E2BIG;
	*ret_name = (struct lp_bytes){name, ret_named->name_bytes};
	*ret_value = (struct lp_bytes){value, ret_named->value_bytes};
	return 0;
}

/* The answer's buffer, in which the value has its place already. */
static int prepare_value(struct lpi_request *request, struct lp_store_op *op)
{
	struct lpi_reply *reply = &request->piece.reply;
	reply->rest = lp_buf_new(request->door->options.bufs, LP_BUF_MEDIUM);
	if (reply->rest == NULL)
		return -EAGAIN;
	op->get.buf = reply->rest->data + LP_WIRE_VALUE_SIZE;
	op->get.buf_len = LP_WIRE_VALUE_MAX;
	return 0;
}

void lpi_answer_value(struct lpi_request *request)
{
	const struct lp_store_op *op = &request->piece.op.store.op;
	const struct lp_wire_value value = {.value_bytes = op->get.value_len};
	struct lp_writer *writer = lpi_request_writer(request, LP_WIRE_META_MAX);
	if (writer == NULL)
		return;
	lp_wire_put_part(writer, lp_wire_value, &value);
	/* It is there. */
	(void)lp_writer_reserve(writer, op->get.value_len);
	lpi_request_answer(request);
}

static int begin_one_get(struct lpi_request *request, struct lp_reader *reader,
			 enum lp_store_space space)
{
	struct lp_wire_named named;
	struct lp_bytes name;
	struct lp_bytes value;
	struct lp_store_op *op = lpi_request_store_op(request, LP_STORE_GET);
	int r = read_named(request, reader, &named, &name, &value);
	if (r < 0)
		return r;
	if (value.len > 0 || named.condition != LP_WIRE_IF_ANY)
		return -EINVAL;
	op->get.space = space;
	op->get.name = name;
	return prepare_value(request, op);
}

int lpi_meta_xattr_get(struct lpi_request *request, struct lp_reader *reader)
{
	return begin_one_get(request, reader, LP_STORE_XATTRS);
}

int lpi_meta_omap_get(struct lpi_request *request, struct lp_reader *reader)
{
	return begin_one_get(request, reader, LP_STORE_OMAP);
}

int lpi_meta_readlink(struct lpi_request *request, struct lp_reader *reader)
{
	struct lp_store_op *op = lpi_request_store_op(request, LP_STORE_GET);
	const uint8_t *ref = lp_reader_bytes(reader, LP_WIRE_REF_SIZE);
	if (ref == NULL)
		return -EINVAL;
	int r = lpi_read_ref(request, LPI_REF_INO, ref, reader);
	op->get.space = LP_STORE_TARGET;
	return r < 0 ? r : prepare_value(request, op);
}

int lpi_check_xattr(struct lpi_request *request, struct lp_bytes name, struct lp_bytes value)
{
	if (value.len > LP_WIRE_VALUE_MAX)
		return -E2BIG;
	int r = lp_acl_check_xattr(name, value);
	if (r < 0)
		lpi_request_why(request, "this is no access control list");
	return r;
}

static int begin_one_change(struct lpi_request *request, struct lp_reader *reader,
			    enum lp_change_type type, struct lp_wire_named *ret_named)
{
	struct lp_change *change = &request->changes[0];
	bool is_set = type == LP_CHANGE_XATTR_SET || type == LP_CHANGE_OMAP_SET;
	int r = read_named(request, reader, ret_named, &change->named.name, &change->named.value);
	if (r < 0)
		return r;
	if (!is_set && change->named.value.len > 0)
		return -EINVAL;
	if (!is_set)
		change->named.value.data = NULL;
	change->type = type;
	lpi_change_times(request, &request->changes[1], false);
	lpi_request_txn(request, request->changes, 2);
	return 0;
}

int lpi_meta_xattr_set(struct lpi_request *request, struct lp_reader *reader)
{
	struct lp_wire_named named;
	struct lp_change *changes = request->changes;
	int r = begin_one_change(request, reader, LP_CHANGE_XATTR_SET, &named);
	if (r >= 0)
		r = lpi_check_xattr(request, changes[0].named.name, changes[0].named.value);
	if (r < 0)
		return r;
	bool is_list = lpi_sets_list(&changes[0]);
	request->list = is_list ? &changes[0] : NULL;
	if (named.condition == LP_WIRE_IF_ANY)
		return 0;
	if (named.condition != LP_WIRE_IF_ABSENT && named.condition != LP_WIRE_IF_EXISTS)
		return -EINVAL;
	changes[2] = changes[1];
	changes[1] = changes[0];
	changes[0] = (struct lp_change){
		.type = named.condition == LP_WIRE_IF_ABSENT ? LP_GUARD_NO_XATTR : LP_GUARD_XATTR,
		.named = {.name = changes[1].named.name}};
	request->list = is_list ? &changes[1] : NULL;
	lpi_request_txn(request, changes, 3);
	return 0;
}

/* --- An access list ---------------------------------------------------------------------------
 */

bool lpi_sets_list(const struct lp_change *change)
{
	struct lp_bytes access = lp_acl_access_name();
	return change->type == LP_CHANGE_XATTR_SET && change->named.name.len == access.len &&
	       memcmp(change->named.name.data, access.data, access.len) == 0;
}

static void look_at_mode(struct lpi_request *request);

/* The client's guards and changes are counted without ours. */
static void list_set(struct lp_ns_op *op)
{
	struct lpi_piece *piece = LP_CONTAINER_OF(op, struct lpi_piece, op);
	struct lpi_request *request = piece->request;
	struct lp_store_op *store = &op->store.op;
	uint32_t guard_idx = (uint32_t)(request->list_guard - store->txn.changes);
	bool is_ours = op->result == -ECANCELED && store->txn.failed_idx == guard_idx;
	if (is_ours && lpi_conn_is_alive(request->conn) && request->tries++ < LPI_TRIES_MAX) {
		look_at_mode(request);
		return;
	}
	if (is_ours)
		op->result = -EAGAIN;
	if (store->txn.failed_idx > guard_idx)
		store->txn.failed_idx--;
	lpi_request_worked(op);
}

/* Behind the client's guards, in front of the first change. */
static void add_guard(struct lpi_request *request, struct lp_change *changes)
{
	struct lp_store_op *op = &request->piece.op.store.op;
	uint32_t at = 0;
	while (changes[at].type < LP_CHANGE_CREATE)
		at++;
	LP_ASSERT(at < op->txn.change_cnt);
	memmove(&changes[at + 1], &changes[at], (op->txn.change_cnt - at) * sizeof(*changes));
	request->list_guard = &changes[at];
	request->list++;
	op->txn.change_cnt++;
}

/* The last change sets the times. */
static void mode_known(struct lp_ns_op *op)
{
	struct lpi_request *request = LP_CONTAINER_OF(op, struct lpi_request, find);
	struct lp_store_op *store = &request->piece.op.store.op;
	struct lp_change *changes = lpi_request_changes(request);
	const struct lp_attrs *attrs = &op->stat.found.attrs;
	if (op->result < 0) {
		if (!lpi_request_again(request, op->result))
			lpi_request_fail(request, op->result, "");
		return;
	}
	if (request->list_guard == NULL)
		add_guard(request, changes);
	*request->list_guard = (struct lp_change){.type = LP_GUARD_INODE, .ino = op->stat.ino};
	request->list_guard->guard.version_nr = attrs->version_nr;
	struct lp_bytes list = request->list->named.value;
	struct lp_change *last = &changes[store->txn.change_cnt - 1];
	LP_ASSERT(last->type == LP_CHANGE_SET && last->inode.attrs == &request->attrs);
	request->attrs.mode = (uint16_t)((attrs->mode & 07000) | lp_acl_mode(list.data, list.len));
	last->inode.mask |= LP_ATTR_MODE;
	request->piece.op.complete = list_set;
	lp_ns_submit(request->door->options.ns, &request->piece.op);
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

/* The bits of the mode that the list is go with it, in the same transaction, guarded by what the
 * others were. */
void lpi_run_with_list(struct lpi_request *request)
{
	if (request->list != NULL)
		look_at_mode(request);
	else
		lpi_request_submit(request);
}

static int begin_plain_change(struct lpi_request *request, struct lp_reader *reader,
			      enum lp_change_type type)
{
	struct lp_wire_named named;
	int r = begin_one_change(request, reader, type, &named);
	return r >= 0 && named.condition != LP_WIRE_IF_ANY ? -EINVAL : r;
}

int lpi_meta_xattr_remove(struct lpi_request *request, struct lp_reader *reader)
{
	return begin_plain_change(request, reader, LP_CHANGE_XATTR_REMOVE);
}

int lpi_meta_omap_set(struct lpi_request *request, struct lp_reader *reader)
{
	return begin_plain_change(request, reader, LP_CHANGE_OMAP_SET);
}

int lpi_meta_omap_remove(struct lpi_request *request, struct lp_reader *reader)
{
	return begin_plain_change(request, reader, LP_CHANGE_OMAP_REMOVE);
}

/* --- Many
 * ----------------------------------------------------------------------------------------- */

static int begin_some(struct lpi_request *request, struct lp_reader *reader,
		      enum lp_store_space space)
{
	struct lp_wire_range range;
	struct lp_store_op *op = lpi_request_store_op(request, LP_STORE_LIST);
	if (!lp_wire_part(reader, lp_wire_range, &range) || range.with_values > 1)
		return -EINVAL;
	int r = lpi_read_ref(request, LPI_REF_INO, range.ref, reader);
	if (r < 0)
		return r;
	const char *after = lp_wire_bytes(reader, range.after_bytes);
	const char *prefix = lp_wire_bytes(reader, range.prefix_bytes);
	if (prefix == NULL)
		return -EINVAL;
	struct lp_buf *room = lpi_request_room(request, LP_BUF_MEDIUM);
	if (room == NULL)
		return -EAGAIN;
	op->list.space = space;
	op->list.after = (struct lp_bytes){range.after_bytes > 0 ? after : NULL, range.after_bytes};
	op->list.prefix =
		(struct lp_bytes){range.prefix_bytes > 0 ? prefix : NULL, range.prefix_bytes};
	op->list.items_max = range.items_max;
	op->list.with_values = range.with_values == 1;
	op->list.buf = room->data;
	op->list.buf_len = LP_BUF_MEDIUM;
	return 0;
}

int lpi_meta_xattr_list(struct lpi_request *request, struct lp_reader *reader)
{
	return begin_some(request, reader, LP_STORE_XATTRS);
}

int lpi_meta_omap_list(struct lpi_request *request, struct lp_reader *reader)
{
	return begin_some(request, reader, LP_STORE_OMAP);
}

/* As many as fit: what the store's records held may take more here. */
void lpi_answer_pairs(struct lpi_request *request)
{
	const struct lp_store_op *op = &request->piece.op.store.op;
	struct lp_wire_listed listed = {.more = op->list.more ? 1 : 0};
	struct lp_list_item item;
	uint32_t pos = 0;
	struct lp_writer *writer = lpi_request_writer(request, LP_WIRE_META_MAX);
	if (writer == NULL)
		return;
	uint8_t *head = lp_writer_reserve(writer, LP_WIRE_LISTED_SIZE);
	while (lp_store_list_next(op, &pos, &item)) {
		const struct lp_wire_pair pair = {
			.name_bytes = (uint16_t)item.name.len,
			.value_bytes = item.value.data != NULL ? item.value.len : 0};
		if (lp_writer_remaining(writer) <
		    (size_t)LP_WIRE_PAIR_SIZE + pair.name_bytes + pair.value_bytes) {
			listed.more = 1;
			break;
		}
		lp_wire_put_part(writer, lp_wire_pair, &pair);
		lp_writer_bytes(writer, item.name.data, pair.name_bytes);
		if (pair.value_bytes > 0)
			lp_writer_bytes(writer, item.value.data, pair.value_bytes);
		listed.item_cnt++;
	}
	lp_wire_listed_encode(&listed, head);
	lpi_request_answer(request);
}
