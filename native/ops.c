/* SPDX-License-Identifier: Apache-2.0 */
/* The table, and what most of its functions need. */
#include "native/ops.h"

#include <stdio.h>

#include "native/door_impl.h"

static const struct lpi_opcode opcodes[] = {
	{.name = "hello",
	 .code = LP_WIRE_OP_HELLO,
	 .begin = lpi_meta_hello,
	 .run = lpi_run_hello,
	 .undo = lpi_undo_hello},
	{.name = "ping", .code = LP_WIRE_OP_PING, .begin = lpi_meta_ping, .run = lpi_run_ping},
	{.name = "share", .code = LP_WIRE_OP_SHARE, .begin = lpi_meta_share, .run = lpi_run_share},
	{.name = "stat",
	 .code = LP_WIRE_OP_STAT,
	 .begin = lpi_meta_stat,
	 .run = lpi_run_stat,
	 .answer = lpi_answer_stat},
	{.name = "get",
	 .code = LP_WIRE_OP_GET,
	 .begin = lpi_meta_get,
	 .run = lpi_run_get,
	 .sent = lpi_get_sent},
	{.name = "put",
	 .code = LP_WIRE_OP_PUT,
	 .held_bytes = LP_BUF_SMALL,
	 .has_data = true,
	 .is_change = true,
	 .begin = lpi_meta_put,
	 .answer = lpi_answer_put},
	{.name = "upload",
	 .code = LP_WIRE_OP_UPLOAD,
	 .begin = lpi_meta_upload,
	 .answer = lpi_answer_upload,
	 .undo = lpi_undo_open},
	{.name = "write",
	 .code = LP_WIRE_OP_WRITE,
	 .has_data = true,
	 .is_change = true,
	 .begin = lpi_meta_write,
	 .run = lpi_run_change,
	 .answer = lpi_answer_written},
	{.name = "commit",
	 .code = LP_WIRE_OP_COMMIT,
	 .held_bytes = LP_BUF_SMALL,
	 .is_change = true,
	 .begin = lpi_meta_commit,
	 .answer = lpi_answer_commit,
	 .undo = lpi_undo_commit},
	{.name = "abort",
	 .code = LP_WIRE_OP_ABORT,
	 .is_change = true,
	 .begin = lpi_meta_close,
	 .run = lpi_run_close},
	{.name = "delete", .code = LP_WIRE_OP_DELETE, .is_change = true, .begin = lpi_meta_delete},
	{.name = "list",
	 .code = LP_WIRE_OP_LIST,
	 .held_bytes = 2 * LP_BUF_MEDIUM,
	 .begin = lpi_meta_list,
	 .answer = lpi_answer_items},
	{.name = "copy",
	 .code = LP_WIRE_OP_COPY,
	 .is_change = true,
	 .begin = lpi_meta_copy,
	 .answer = lpi_answer_copy,
	 .sent = lpi_sent_sign,
	 .steps = lpi_steps_copy},
	{.name = "move",
	 .code = LP_WIRE_OP_MOVE,
	 .is_change = true,
	 .begin = lpi_meta_move,
	 .answer = lpi_answer_copy},
	{.name = "open",
	 .code = LP_WIRE_OP_OPEN,
	 .begin = lpi_meta_open,
	 .run = lpi_run_open,
	 .answer = lpi_answer_stat,
	 .undo = lpi_undo_open},
	{.name = "close",
	 .code = LP_WIRE_OP_CLOSE,
	 .is_change = true,
	 .begin = lpi_meta_close,
	 .run = lpi_run_close},
	{.name = "truncate",
	 .code = LP_WIRE_OP_TRUNCATE,
	 .is_change = true,
	 .begin = lpi_meta_truncate,
	 .run = lpi_run_change,
	 .answer = lpi_answer_written},
	{.name = "punch",
	 .code = LP_WIRE_OP_PUNCH,
	 .is_change = true,
	 .begin = lpi_meta_punch,
	 .run = lpi_run_change,
	 .answer = lpi_answer_written},
	{.name = "prealloc",
	 .code = LP_WIRE_OP_PREALLOC,
	 .is_change = true,
	 .begin = lpi_meta_prealloc,
	 .run = lpi_run_change,
	 .answer = lpi_answer_written},
	{.name = "seek",
	 .code = LP_WIRE_OP_SEEK,
	 .begin = lpi_meta_seek,
	 .answer = lpi_answer_seek},
	{.name = "clone",
	 .code = LP_WIRE_OP_CLONE,
	 .is_change = true,
	 .begin = lpi_meta_clone,
	 .run = lpi_run_clone,
	 .answer = lpi_answer_written},
	{.name = "set",
	 .code = LP_WIRE_OP_SET,
	 .is_change = true,
	 .begin = lpi_meta_set,
	 .answer = lpi_answer_set},
	{.name = "xattr_get",
	 .code = LP_WIRE_OP_XATTR_GET,
	 .held_bytes = LP_BUF_MEDIUM,
	 .begin = lpi_meta_xattr_get,
	 .run = lpi_run_value,
	 .answer = lpi_answer_value},
	{.name = "xattr_set",
	 .code = LP_WIRE_OP_XATTR_SET,
	 .is_change = true,
	 .begin = lpi_meta_xattr_set,
	 .run = lpi_run_change},
	{.name = "xattr_remove",
	 .code = LP_WIRE_OP_XATTR_REMOVE,
	 .is_change = true,
	 .begin = lpi_meta_xattr_remove,
	 .run = lpi_run_change},
	{.name = "xattr_list",
	 .code = LP_WIRE_OP_XATTR_LIST,
	 .held_bytes = 2 * LP_BUF_MEDIUM,
	 .begin = lpi_meta_xattr_list,
	 .run = lpi_run_pairs,
	 .answer = lpi_answer_pairs},
	{.name = "omap_get",
	 .code = LP_WIRE_OP_OMAP_GET,
	 .held_bytes = LP_BUF_MEDIUM,
	 .begin = lpi_meta_omap_get,
	 .run = lpi_run_value,
	 .answer = lpi_answer_value},
	{.name = "omap_set",
	 .code = LP_WIRE_OP_OMAP_SET,
	 .is_change = true,
	 .begin = lpi_meta_omap_set},
	{.name = "omap_remove",
	 .code = LP_WIRE_OP_OMAP_REMOVE,
	 .is_change = true,
	 .begin = lpi_meta_omap_remove},
	{.name = "omap_list",
	 .code = LP_WIRE_OP_OMAP_LIST,
	 .held_bytes = 2 * LP_BUF_MEDIUM,
	 .begin = lpi_meta_omap_list,
	 .run = lpi_run_pairs,
	 .answer = lpi_answer_pairs},
	{.name = "compound",
	 .code = LP_WIRE_OP_COMPOUND,
	 .held_bytes = LP_BUF_SMALL,
	 .has_data = true,
	 .is_change = true,
	 .begin = lpi_meta_compound,
	 .run = lpi_run_change,
	 .answer = lpi_answer_written},
	{.name = "make",
	 .code = LP_WIRE_OP_MAKE,
	 .is_change = true,
	 .begin = lpi_meta_make,
	 .answer = lpi_answer_make,
	 .undo = lpi_undo_open},
	{.name = "remove", .code = LP_WIRE_OP_REMOVE, .is_change = true, .begin = lpi_meta_remove},
	{.name = "link",
	 .code = LP_WIRE_OP_LINK,
	 .is_change = true,
	 .begin = lpi_meta_link,
	 .answer = lpi_answer_link},
	{.name = "rename", .code = LP_WIRE_OP_RENAME, .is_change = true, .begin = lpi_meta_rename},
	{.name = "readdir",
	 .code = LP_WIRE_OP_READDIR,
	 .held_bytes = 2 * LP_BUF_MEDIUM,
	 .begin = lpi_meta_readdir,
	 .answer = lpi_answer_items},
	{.name = "readlink",
	 .code = LP_WIRE_OP_READLINK,
	 .held_bytes = LP_BUF_MEDIUM,
	 .begin = lpi_meta_readlink,
	 .run = lpi_run_value,
	 .answer = lpi_answer_value},
	{.name = "sync", .code = LP_WIRE_OP_SYNC, .begin = lpi_meta_sync},
	{.name = "status",
	 .code = LP_WIRE_OP_STATUS,
	 .held_bytes = LP_BUF_MEDIUM,
	 .begin = lpi_meta_admin,
	 .run = lpi_run_admin,
	 .sent = lpi_admin_sent},
	{.name = "stats",
	 .code = LP_WIRE_OP_STATS,
	 .held_bytes = LP_BUF_MEDIUM,
	 .begin = lpi_meta_admin_text,
	 .run = lpi_run_admin,
	 .sent = lpi_admin_sent},
	{.name = "slow",
	 .code = LP_WIRE_OP_SLOW,
	 .held_bytes = LP_BUF_MEDIUM,
	 .begin = lpi_meta_admin,
	 .run = lpi_run_admin,
	 .sent = lpi_admin_sent},
	{.name = "config_get",
	 .code = LP_WIRE_OP_CONFIG_GET,
	 .held_bytes = LP_BUF_MEDIUM,
	 .begin = lpi_meta_admin_text,
	 .run = lpi_run_admin,
	 .sent = lpi_admin_sent},
	{.name = "config_set",
	 .code = LP_WIRE_OP_CONFIG_SET,
	 .held_bytes = LP_BUF_MEDIUM,
	 .begin = lpi_meta_admin_text,
	 .run = lpi_run_admin,
	 .sent = lpi_admin_sent},
	{.name = "explain",
	 .code = LP_WIRE_OP_EXPLAIN,
	 .held_bytes = LP_BUF_MEDIUM,
	 .begin = lpi_meta_explain,
	 .run = lpi_run_admin,
	 .sent = lpi_admin_sent},
	{.name = "alloc",
	 .code = LP_WIRE_OP_ALLOC,
	 .held_bytes = LP_BUF_MEDIUM,
	 .begin = lpi_meta_admin_text,
	 .run = lpi_run_admin,
	 .sent = lpi_admin_sent},
	{.name = "heap",
	 .code = LP_WIRE_OP_HEAP,
	 .held_bytes = LP_BUF_MEDIUM,
	 .begin = lpi_meta_admin_text,
	 .run = lpi_run_admin,
	 .sent = lpi_admin_sent},
	{.name = "scrub",
	 .code = LP_WIRE_OP_SCRUB,
	 .held_bytes = LP_BUF_MEDIUM,
	 .begin = lpi_meta_admin_text,
	 .run = lpi_run_admin,
	 .sent = lpi_admin_sent},
	{.name = "check",
	 .code = LP_WIRE_OP_CHECK,
	 .held_bytes = LP_BUF_MEDIUM,
	 .begin = lpi_meta_admin_text,
	 .run = lpi_run_admin,
	 .sent = lpi_admin_sent},
};

const struct lpi_opcode *lpi_opcode_at(uint32_t idx)
{
	return idx < LP_ARRAY_SIZE(opcodes) ? &opcodes[idx] : NULL;
}

const struct lpi_opcode *lpi_opcode_find(uint16_t code)
{
	/* The table is in the order of the codes. */
	uint32_t low = 0;
	uint32_t high = LP_ARRAY_SIZE(opcodes);
	while (low < high) {
		uint32_t mid = (low + high) / 2;
		if (opcodes[mid].code == code)
			return &opcodes[mid];
		if (opcodes[mid].code < code)
			low = mid + 1;
		else
			high = mid;
	}
	return NULL;
}

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
	/* Of a key the empty one is no name; of a name neither. */
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
