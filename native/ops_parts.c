/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by most opcodes: references, and pieces of operations and replies. */
#include <stdio.h>

#include "native/door_impl.h"
#include "native/ops.h"

/* --- References ---------------------------------------------------------------------------------
 */

static uint32_t decode_ref(struct lpi_ref *ref, enum lpi_ref_kind kind, const uint8_t *bytes,
			   struct lp_reader *reader)
{
	struct lp_wire_ref wire;
	lp_wire_ref_decode(bytes, &wire);
	if (!lp_wire_ref_reserved_is_zero(&wire))
		lp_reader_fail(reader);
	ref->kind = kind;
	ref->ino.nr = wire.ino;
	return wire.path_bytes;
}

static int read_path(struct lpi_ref *ref, uint32_t path_bytes, struct lp_reader *reader)
{
	const char *path = lp_wire_bytes(reader, path_bytes);
	if (path == NULL)
		return -EINVAL;
	ref->path = (struct lp_bytes){path, path_bytes};
	if (path_bytes > LP_WIRE_PATH_MAX)
		return -ENAMETOOLONG;
	/* An empty path is no key and no name. */
	if (ref->kind != LPI_REF_INO && path_bytes == 0)
		return -EINVAL;
	return ref->kind == LPI_REF_KEY && ref->ino.nr != 0 ? -EINVAL : 0;
}

int lpi_read_ref(struct lpi_request *request, enum lpi_ref_kind kind, const uint8_t *bytes,
		 struct lp_reader *reader)
{
	struct lpi_ref *ref = &request->refs[0];
	return read_path(ref, decode_ref(ref, kind, bytes, reader), reader);
}

int lpi_read_refs(struct lpi_request *request, enum lpi_ref_kind from, enum lpi_ref_kind to,
		  const struct lp_wire_two *two, struct lp_reader *reader)
{
	uint32_t first = decode_ref(&request->refs[0], from, two->ref, reader);
	uint32_t second = decode_ref(&request->refs[1], to, two->to, reader);
	int r = read_path(&request->refs[0], first, reader);
	return r < 0 ? r : read_path(&request->refs[1], second, reader);
}

/* --- Pieces of operations and replies -----------------------------------------------------------
 */

enum lp_store_ack lpi_request_ack(const struct lpi_request *request)
{
	return (request->header.flags & LP_WIRE_FLAG_ORDERED) != 0 ? LP_ACK_ORDERED
								   : LP_ACK_DURABLE;
}

struct lp_ns_op *lpi_request_op(struct lpi_request *request, enum lp_ns_opcode opcode)
{
	struct lp_ns_op *op = &request->piece.op;
	op->opcode = opcode;
	op->ack = lpi_request_ack(request);
	op->who = (struct lp_ns_who){request->conn->peer.uid, request->conn->peer.gid};
	op->rights = lpi_request_rights(request);
	return op;
}

struct lp_store_op *lpi_request_store_op(struct lpi_request *request, enum lp_store_opcode opcode)
{
	struct lp_store_op *op = &lpi_request_op(request, LP_NS_STORE)->store.op;
	op->opcode = opcode;
	return op;
}

void lpi_request_txn(struct lpi_request *request, const struct lp_change *changes,
		     uint32_t change_cnt)
{
	struct lp_store_op *op = lpi_request_store_op(request, LP_STORE_TXN);
	op->txn.changes = changes;
	op->txn.change_cnt = change_cnt;
	op->txn.ack = lpi_request_ack(request);
}

void lpi_change_times(struct lpi_request *request, struct lp_change *change, bool with_mtime)
{
	request->attrs.ctime_ns = lpi_request_wall_ns(request);
	request->attrs.mtime_ns = request->attrs.ctime_ns;
	change->type = LP_CHANGE_SET;
	change->inode.attrs = &request->attrs;
	change->inode.mask = LP_ATTR_CTIME | (with_mtime ? LP_ATTR_MTIME : 0);
}

struct lp_payload lpi_request_payload(const struct lpi_request *request)
{
	return (struct lp_payload){
		.segs = request->segs,
		.seg_cnt = request->seg_cnt,
		.crcs = request->crcs,
		.crc_cnt = lp_wire_piece_cnt(request->header.offset, request->header.data_bytes)};
}

int lpi_request_who(struct lpi_request *request, uint32_t uid, uint32_t gid,
		    struct lp_ns_who *ret_who)
{
	const struct lp_peer *peer = &request->conn->peer;
	struct lp_ns_who who = {uid == LP_WIRE_NO_OWNER ? peer->uid : uid,
				gid == LP_WIRE_NO_OWNER ? peer->gid : gid};
	if (peer->uid != 0 && (who.uid != peer->uid || who.gid != peer->gid)) {
		lpi_request_why(request, "only root gives to others");
		return -EPERM;
	}
	*ret_who = who;
	return 0;
}

void lpi_request_why(struct lpi_request *request, const char *why)
{
	(void)snprintf(request->why, sizeof(request->why), "%s", why);
}

void lpi_put_attrs(struct lp_writer *writer, const struct lp_ns_found *found)
{
	const struct lp_attrs *attrs = &found->attrs;
	const struct lp_wire_attrs wire = {
		.ino = found->ino.nr,
		.size_bytes = attrs->size_bytes,
		.blocks = attrs->blocks,
		.version_nr = attrs->version_nr,
		.atime_ns = attrs->atime_ns,
		.mtime_ns = attrs->mtime_ns,
		.ctime_ns = attrs->ctime_ns,
		.btime_ns = attrs->btime_ns,
		.parent_ino = attrs->parent.nr,
		.entries_cnt = found->entries_cnt,
		.uid = attrs->uid,
		.gid = attrs->gid,
		.nlink = attrs->nlink,
		.flags = attrs->flags & LP_WIRE_ATTR_FLAG_ALL,
		.rdev = attrs->rdev,
		.mode = attrs->mode,
		.type = attrs->type,
	};
	lp_wire_put_part(writer, lp_wire_attrs, &wire);
}

void lpi_answer_found(struct lpi_request *request, const struct lp_ns_found *found)
{
	struct lp_writer *writer = lpi_request_writer(request, LP_WIRE_ATTRS_SIZE);
	if (writer == NULL)
		return;
	lpi_put_attrs(writer, found);
	lpi_request_answer(request);
}

bool lpi_is_data_change(enum lp_change_type type)
{
	return type == LP_CHANGE_WRITE || type == LP_CHANGE_TRUNCATE || type == LP_CHANGE_PUNCH ||
	       type == LP_CHANGE_PREALLOC || type == LP_CHANGE_CLONE;
}
