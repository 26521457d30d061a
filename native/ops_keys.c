/* SPDX-License-Identifier: Apache-2.0 */
/* Objects by their keys: paths from the root, which the namespace follows by itself. */
#include "native/door_impl.h"
#include "native/ops.h"

static_assert((int)LP_WIRE_IF_ANY == (int)LP_NS_IF_ANY &&
		      (int)LP_WIRE_IF_ABSENT == (int)LP_NS_IF_ABSENT &&
		      (int)LP_WIRE_IF_EXISTS == (int)LP_NS_IF_EXISTS &&
		      (int)LP_WIRE_IF_VERSION == (int)LP_NS_IF_VERSION,
	      "conditions are the same on the wire and inside");

/* --- Put
 * -------------------------------------------------------------------------------------------- */

/* Reads the pairs behind the path into a buffer. */
static int read_xattrs(struct lpi_request *request, struct lp_reader *reader, uint32_t cnt)
{
	struct lp_ns_op *op = &request->piece.op;
	if (cnt == 0)
		return 0;
	if (cnt > LPI_PUT_XATTRS)
		return -E2BIG;
	struct lp_buf *room = lpi_request_room(request, LP_BUF_SMALL);
	if (room == NULL)
		return -EAGAIN;
	struct lp_ns_named_value *xattrs = (struct lp_ns_named_value *)(void *)room->data;
	for (uint32_t i = 0; i < cnt; i++) {
		struct lp_wire_pair pair;
		if (!lp_wire_part(reader, lp_wire_pair, &pair))
			return -EINVAL;
		const char *name = lp_wire_bytes(reader, pair.name_bytes);
		const char *value = lp_wire_bytes(reader, pair.value_bytes);
		if (value == NULL)
			return -EINVAL;
		xattrs[i].name = (struct lp_bytes){name, pair.name_bytes};
		xattrs[i].value = (struct lp_bytes){value, pair.value_bytes};
		int r = lpi_check_xattr(request, xattrs[i].name, xattrs[i].value);
		if (r < 0)
			return r;
	}
	op->put.xattrs = xattrs;
	op->put.xattr_cnt = cnt;
	return 0;
}

int lpi_read_put(struct lpi_request *request, const struct lp_wire_put *put,
		 struct lp_reader *reader)
{
	struct lp_ns_op *op = &request->piece.op;
	if (put->condition > LP_WIRE_IF_VERSION || put->write_path >= LP_PATH_CNT ||
	    (put->mode > 07777 && put->mode != LP_WIRE_NO_MODE))
		return -EINVAL;
	int r = lpi_request_who(request, put->uid, put->gid, &op->who);
	if (r >= 0 && put->mode != LP_WIRE_NO_MODE)
		r = lpi_check_new_mode(request, op->who, put->mode);
	if (r >= 0)
		r = lpi_read_ref(request, LPI_REF_KEY, put->ref, reader);
	if (r < 0)
		return r;
	op->put.path = request->refs[0].path;
	op->put.condition = (enum lp_ns_if)put->condition;
	op->put.version_nr = put->version_nr;
	op->put.mode = put->mode == LP_WIRE_NO_MODE ? 0644 : put->mode;
	op->put.mtime_ns = put->mtime_ns;
	op->put.write_path = (enum lp_write_path)put->write_path;
	return read_xattrs(request, reader, put->xattr_cnt);
}

int lpi_meta_put(struct lpi_request *request, struct lp_reader *reader)
{
	struct lp_wire_put put;
	struct lp_ns_op *op = lpi_request_op(request, LP_NS_PUT);
	if (!lp_wire_part(reader, lp_wire_put, &put))
		return -EINVAL;
	if (request->header.offset != 0) {
		lpi_request_why(request, "a put is a whole object, from offset 0");
		return -EINVAL;
	}
	op->put.payload = lpi_request_payload(request);
	op->put.length = request->header.data_bytes;
	return lpi_read_put(request, &put, reader);
}

void lpi_answer_put(struct lpi_request *request)
{
	lpi_answer_found(request, &request->piece.op.put.found);
}

/* --- Others
 * ----------------------------------------------------------------------------------------- */

int lpi_meta_delete(struct lpi_request *request, struct lp_reader *reader)
{
	struct lp_wire_delete delete;
	struct lp_ns_op *op = lpi_request_op(request, LP_NS_DELETE);
	if (!lp_wire_part(reader, lp_wire_delete, &delete) || delete.or_dir > 1 ||
	    delete.condition > LP_WIRE_IF_VERSION)
		return -EINVAL;
	int r = lpi_read_ref(request, LPI_REF_KEY, delete.ref, reader);
	op->delete.path = request->refs[0].path;
	op->delete.condition = (enum lp_ns_if) delete.condition;
	op->delete.version_nr = delete.version_nr;
	op->delete.or_dir = delete.or_dir == 1;
	return r;
}

static int begin_two(struct lpi_request *request, struct lp_reader *reader,
		     enum lp_ns_opcode opcode)
{
	struct lp_wire_two two;
	struct lp_ns_op *op = lpi_request_op(request, opcode);
	if (!lp_wire_part(reader, lp_wire_two, &two) || two.condition > LP_WIRE_IF_VERSION)
		return -EINVAL;
	int r = lpi_read_refs(request, LPI_REF_KEY, LPI_REF_KEY, &two, reader);
	op->copy.path = request->refs[0].path;
	op->copy.to_path = request->refs[1].path;
	op->copy.condition = (enum lp_ns_if)two.condition;
	op->copy.version_nr = two.version_nr;
	return r;
}

int lpi_meta_copy(struct lpi_request *request, struct lp_reader *reader)
{
	return begin_two(request, reader, LP_NS_COPY);
}

int lpi_meta_move(struct lpi_request *request, struct lp_reader *reader)
{
	return begin_two(request, reader, LP_NS_MOVE);
}

void lpi_answer_copy(struct lpi_request *request)
{
	lpi_answer_found(request, &request->piece.op.copy.found);
}

uint64_t lpi_steps_copy(const struct lpi_request *request)
{
	return request->piece.op.copy.steps;
}

int lpi_meta_list(struct lpi_request *request, struct lp_reader *reader)
{
	struct lp_wire_list list;
	struct lp_ns_op *op = lpi_request_op(request, LP_NS_LIST);
	if (!lp_wire_part(reader, lp_wire_list, &list) || list.delimit > 1 || list.with_attrs > 1)
		return -EINVAL;
	const char *prefix = lp_wire_bytes(reader, list.prefix_bytes);
	const char *after = lp_wire_bytes(reader, list.after_bytes);
	if (after == NULL)
		return -EINVAL;
	struct lp_buf *room = lpi_request_room(request, LP_BUF_MEDIUM);
	if (room == NULL)
		return -EAGAIN;
	op->list.prefix = (struct lp_bytes){prefix, list.prefix_bytes};
	op->list.after = (struct lp_bytes){list.after_bytes > 0 ? after : NULL, list.after_bytes};
	op->list.delimit = list.delimit == 1;
	op->list.with_attrs = list.with_attrs == 1;
	op->list.items_max = list.items_max;
	op->list.buf = room->data;
	op->list.buf_len = LP_BUF_MEDIUM;
	request->items_max = list.items_max;
	return 0;
}
