/* SPDX-License-Identifier: Apache-2.0 */
/* Xattrs, omap and the targets of symlinks. A single value is read straight into the reply, a list
 * into a buffer of the request.
 *
 * Nearly all fit into a medium buffer. A longer one is read again into a large buffer, if the
 * connection's messages are long enough for the answer. */
#include "namespace/state/acl.h"
#include "native/door_impl.h"
#include "native/ops.h"

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

/* Takes the answer's buffer, in which the value has its place already. */
static int prepare_value(struct lpi_request *request, struct lp_store_op *op)
{
	struct lpi_reply *reply = &request->piece.reply;
	reply->rest = lpi_request_buf(request, LP_BUF_MEDIUM);
	if (reply->rest == NULL)
		return -EAGAIN;
	op->get.buf = reply->rest->data + LP_WIRE_VALUE_SIZE;
	op->get.buf_len = LP_BUF_MEDIUM - LP_WIRE_VALUE_SIZE;
	return 0;
}

static void submit_again(struct lpi_request *request, void (*complete)(struct lp_ns_op *op))
{
	request->piece.op.complete = complete;
	lp_ns_submit(request->door->options.ns, &request->piece.op);
}

/* Replaces the buffer that was too short by a large one; NULL: the request has failed. Large
 * buffers count as data to be sent, because there are few. cnt: how many the request takes, with
 * the answer's. */
static struct lp_buf *take_large(struct lpi_request *request, struct lp_buf **buf, uint32_t cnt)
{
	lp_buf_put(*buf);
	*buf = NULL;
	if (request->conn->meta_max < LP_WIRE_LONG_META_MAX) {
		lpi_request_fail(
			request, -EMSGSIZE,
			"a value is too long for the messages of this client (it is too old)");
		return NULL;
	}
	if (lpi_piece_budget(&request->piece, (uint64_t)cnt * LP_BUF_LARGE))
		*buf = lpi_request_buf(request, LP_BUF_LARGE);
	if (*buf == NULL)
		lpi_request_fail(request, -EAGAIN, "no buffer for the answer");
	return *buf;
}

static void value_known(struct lp_ns_op *op)
{
	struct lpi_piece *piece = LP_CONTAINER_OF(op, struct lpi_piece, op);
	struct lp_store_op *store = &op->store.op;
	if (op->result != -ERANGE || piece->reply.rest->bytes == LP_BUF_LARGE) {
		lpi_request_worked(op);
		return;
	}
	struct lp_buf *large = take_large(piece->request, &piece->reply.rest, 1);
	if (large == NULL)
		return;
	store->get.buf = large->data + LP_WIRE_VALUE_SIZE;
	store->get.buf_len = LP_WIRE_VALUE_MAX;
	submit_again(piece->request, value_known);
}

void lpi_run_value(struct lpi_request *request)
{
	submit_again(request, value_known);
}

void lpi_answer_value(struct lpi_request *request)
{
	const struct lp_store_op *op = &request->piece.op.store.op;
	const struct lp_wire_value value = {.value_bytes = op->get.value_len};
	bool is_long = request->piece.reply.rest->bytes == LP_BUF_LARGE;
	struct lp_writer *writer =
		lpi_request_writer(request, is_long ? LP_WIRE_LONG_META_MAX : LP_WIRE_META_MAX);
	if (writer == NULL)
		return;
	lp_wire_put_part(writer, lp_wire_value, &value);
	/* The value is in its place. */
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
	int r = lpi_check_xattr_name(request, name);
	if (r < 0)
		return r;
	r = lp_acl_check_xattr(name, value);
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

static int begin_plain_change(struct lpi_request *request, struct lp_reader *reader,
			      enum lp_change_type type)
{
	struct lp_wire_named named;
	int r = begin_one_change(request, reader, type, &named);
	return r >= 0 && named.condition != LP_WIRE_IF_ANY ? -EINVAL : r;
}

int lpi_meta_xattr_remove(struct lpi_request *request, struct lp_reader *reader)
{
	int r = begin_plain_change(request, reader, LP_CHANGE_XATTR_REMOVE);
	return r < 0 ? r : lpi_check_xattr_name(request, request->changes[0].named.name);
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

static void pairs_known(struct lp_ns_op *op)
{
	struct lpi_piece *piece = LP_CONTAINER_OF(op, struct lpi_piece, op);
	struct lpi_request *request = piece->request;
	struct lp_store_op *store = &op->store.op;
	if (op->result != -ERANGE || request->room->bytes == LP_BUF_LARGE) {
		lpi_request_worked(op);
		return;
	}
	struct lp_buf *large = take_large(request, &request->room, 2);
	if (large == NULL)
		return;
	store->list.buf = large->data;
	store->list.buf_len = LP_WIRE_LONG_META_MAX;
	submit_again(request, pairs_known);
}

void lpi_run_pairs(struct lpi_request *request)
{
	submit_again(request, pairs_known);
}

/* Answers with as many pairs as fit, because a pair may take more bytes here than in the store's
 * records. */
void lpi_answer_pairs(struct lpi_request *request)
{
	const struct lp_store_op *op = &request->piece.op.store.op;
	struct lp_wire_listed listed = {.more = op->list.more ? 1 : 0};
	struct lp_list_item item;
	uint32_t pos = 0;
	bool is_long = request->room->bytes == LP_BUF_LARGE;
	struct lp_writer *writer =
		lpi_request_writer(request, is_long ? LP_WIRE_LONG_META_MAX : LP_WIRE_META_MAX);
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
