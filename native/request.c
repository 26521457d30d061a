/* SPDX-License-Identifier: Apache-2.0 */
/* The steps:
 *
 *   REST, DATA   conn.c copies the received bytes; data is checked at once, while it is in the
 *                processor's cache. lpi_request_begin() follows when the message is complete: it
 *                reads the meta and prepares the operation
 *   WAIT         a change and other requests that name the same path are done one after the other,
 *                in the order of arrival. The same holds for the same number, if a request does not
 *                go to the store at once
 *   FIND         each reference is walked or looked up, unless it is a number
 *   WORK         the operation; if a path's object is gone meanwhile, the path is looked up again
 *   REPLY        in the connection's queue until it has been sent
 *   CLOSE        only of a get that held its object open
 *
 * If the client has gone, an answer ends the request in its present state (DROPPED).
 *
 * A request by number usually becomes one operation of the store in its turn. The store keeps the
 * order of these, so they run at the same time and are not noted. A request that looks (enum
 * lpi_request_look) asks for something first and submits its change later. Others would overtake it
 * meanwhile. So it is noted, with its numbers: it waits for earlier ones that look, and all later
 * ones wait for it. A change of data by a peer that is not root is noted, too. It looks if a guard
 * about the peer's rights fails, which turns out late. If earlier requests look at that time, it
 * begins anew when they are done. */
#include "native/request.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/crc32c.h"
#include "base/hash.h"
#include "namespace/state/rights.h"
#include "native/door_impl.h"

#define TO LP_SM_TO
static const struct lp_sm_state states[LPI_REQUEST_STATE_CNT] = {
	[LPI_REQUEST_REST] = {"REST", LP_SM_INITIAL,
			      TO(LPI_REQUEST_DATA) | TO(LPI_REQUEST_WAIT) | TO(LPI_REQUEST_FIND) |
				      TO(LPI_REQUEST_REPLY) | TO(LPI_REQUEST_DROPPED)},
	[LPI_REQUEST_DATA] = {"DATA", 0,
			      TO(LPI_REQUEST_WAIT) | TO(LPI_REQUEST_FIND) | TO(LPI_REQUEST_REPLY) |
				      TO(LPI_REQUEST_DROPPED)},
	[LPI_REQUEST_WAIT] = {"WAIT", 0,
			      TO(LPI_REQUEST_FIND) | TO(LPI_REQUEST_REPLY) |
				      TO(LPI_REQUEST_DROPPED)},
	[LPI_REQUEST_FIND] = {"FIND", 0,
			      TO(LPI_REQUEST_WORK) | TO(LPI_REQUEST_REPLY) |
				      TO(LPI_REQUEST_DROPPED)},
	[LPI_REQUEST_WORK] = {"WORK", 0,
			      TO(LPI_REQUEST_WAIT) | TO(LPI_REQUEST_FIND) | TO(LPI_REQUEST_CLOSE) |
				      TO(LPI_REQUEST_REPLY) | TO(LPI_REQUEST_DROPPED)},
	[LPI_REQUEST_CLOSE] = {"CLOSE", 0, TO(LPI_REQUEST_DONE) | TO(LPI_REQUEST_DROPPED)},
	[LPI_REQUEST_REPLY] = {"REPLY", 0,
			       TO(LPI_REQUEST_CLOSE) | TO(LPI_REQUEST_DONE) |
				       TO(LPI_REQUEST_DROPPED)},
	[LPI_REQUEST_DONE] = {"DONE", LP_SM_FINAL, 0},
	[LPI_REQUEST_DROPPED] = {"DROPPED", LP_SM_FINAL | LP_SM_FAILURE, 0},
};
#undef TO

const struct lp_sm_table lpi_request_table = {
	.name = "request", .states = states, .state_cnt = LPI_REQUEST_STATE_CNT};

void lpi_request_move(struct lpi_request *request, enum lpi_request_state state)
{
	uint64_t now_ns = lpi_door_now_ns(request->door);
	request->state_ns[lp_sm_state(&request->sm)] += now_ns - request->sm.entered_ns;
	lp_sm_move(&request->sm, state, now_ns);
}

struct lp_rights lpi_request_rights(const struct lpi_request *request)
{
	const struct lp_peer *peer = &request->conn->peer;
	/* Any user may connect by TCP, even if the daemon takes the client for a certain one. */
	if (!peer->is_unix)
		return (struct lp_rights){
			.is_limited = true, .uid = LP_RIGHTS_NOBODY, .gid = LP_RIGHTS_NOBODY};
	return (struct lp_rights){.is_limited = peer->uid != 0, .uid = peer->uid, .gid = peer->gid};
}

/* --- Birth and death -------------------------------------------------------------------------- */

static struct lpi_request *take(struct lp_door *door)
{
	if (!door->options.without_pool)
		return lp_pool_get(door->requests);
	if (door->under_way >= door->options.requests_max)
		return NULL;
	return malloc(sizeof(struct lpi_request));
}

struct lpi_request *lpi_request_new(struct lpi_conn *conn, const struct lp_wire_header *header)
{
	struct lp_door *door = conn->door;
	struct lpi_request *request = take(door);
	if (request == NULL)
		return NULL;
	memset(request, 0, offsetof(struct lpi_request, piece.reply.head));
	request->why[0] = '\0';
	lp_sm_init(&request->sm, &lpi_request_table, NULL, lpi_door_now_ns(door));
	request->door = door;
	request->conn = conn;
	request->header = *header;
	request->opcode = lpi_opcode_find(door->opcodes, header->opcode);
	request->piece.request = request;
	request->piece.reply.piece = &request->piece;
	lpi_piece_list_init(&request->get.reading);
	lpi_request_list_push_back(&conn->requests, request);
	conn->under_way++;
	conn->under_way_bytes += header->data_bytes;
	door->under_way++;
	lpi_conn_force(conn, LPI_QUOTA_REQUESTS, 1);
	return request;
}

/* --- Memory of a request ---------------------------------------------------------------------- */

struct lp_buf *lpi_request_buf(struct lpi_request *request, uint32_t bytes)
{
	struct lp_buf *buf = lp_buf_new(request->door->options.bufs, bytes);
	if (buf == NULL)
		lpi_door_note_refused(request->door);
	return buf;
}

struct lp_buf *lpi_request_room(struct lpi_request *request, uint32_t bytes)
{
	if (request->room == NULL)
		request->room = lpi_request_buf(request, bytes);
	return request->room;
}

/* A request that waits behind another one of its client may wait as long as the client reads
 * nothing. So its data is counted until it is at work, or answered (door D3). */
static void end_receiving(struct lpi_request *request)
{
	LP_ASSERT(request->door->receiving_bytes >= request->receiving_bytes);
	request->door->receiving_bytes -= request->receiving_bytes;
	lpi_conn_give(request->conn, LPI_QUOTA_COMING, request->receiving_bytes);
	request->receiving_bytes = 0;
}

static void give_buf(struct lp_buf **buf)
{
	lp_buf_put(*buf);
	*buf = NULL;
}

static void give_buffers(struct lpi_request *request)
{
	give_buf(&request->meta_buf);
	give_buf(&request->crcs_buf);
	give_buf(&request->room);
	for (uint32_t i = 0; i < request->seg_cnt; i++)
		lp_buf_put(request->segs[i].buf);
	request->seg_cnt = 0;
	end_receiving(request);
}

/* After its reply was sent the request may be among the slow ones, which are reported with the ends
 * of their paths. */
static void keep_name(struct lpi_request *request)
{
	struct lp_bytes *path = &request->refs[0].path;
	uint32_t len = LP_MIN(path->len, LPI_META_INLINE);
	if (request->meta_buf == NULL || len == 0)
		return;
	memcpy(request->meta_inline, (const uint8_t *)path->data + (path->len - len), len);
	*path = (struct lp_bytes){request->meta_inline, len};
}

/* The last answer is made: keeps only its memory, because the client may be slow to read it. */
static void answered(struct lpi_request *request)
{
	const struct lp_buf *rest = request->piece.reply.rest;
	keep_name(request);
	give_buffers(request);
	lpi_request_release(request, rest != NULL ? rest->bytes : 0);
}

static void wake_waiting(struct lpi_conn *conn);

static void count_down(struct lpi_conn *conn, const uint64_t *hashes, uint32_t cnt)
{
	for (uint32_t i = 0; i < cnt; i++) {
		uint16_t *names = &conn->names[hashes[i] % LPI_CONN_NAMES];
		LP_ASSERT(*names > 0);
		(*names)--;
	}
}

/* True if others may wait for it. */
static bool is_noted(const struct lpi_request *request)
{
	return request->path_cnt > 0 || request->look != LPI_LOOK_NEVER;
}

static void forget_names(struct lpi_request *request)
{
	struct lpi_conn *conn = request->conn;
	count_down(conn, request->path_hashes, request->path_cnt);
	if (request->look != LPI_LOOK_NEVER)
		count_down(conn, request->number_hashes, request->number_cnt);
	if (request->look == LPI_LOOK_FIRST) {
		LP_ASSERT(conn->looking > 0);
		conn->looking--;
	}
	request->path_cnt = 0;
	request->look = LPI_LOOK_NEVER;
}

void lpi_request_end(struct lpi_request *request)
{
	struct lpi_conn *conn = request->conn;
	struct lp_door *door = request->door;
	uint64_t data_bytes = request->header.data_bytes;
	bool was_noted = is_noted(request);
	if (!lp_sm_is_final(&request->sm))
		lpi_request_move(request, LPI_REQUEST_DONE);
	LP_ASSERT(!lp_list_node_is_linked(&request->wait_node));
	lpi_piece_free(&request->piece);
	give_buffers(request);
	lpi_request_release(request, 0);
	forget_names(request);
	lpi_request_list_remove(request);
	LP_ASSERT(conn->under_way > 0 && door->under_way > 0);
	conn->under_way--;
	conn->under_way_bytes -= data_bytes;
	door->under_way--;
	lpi_conn_give(conn, LPI_QUOTA_REQUESTS, 1);
	if (door->options.without_pool)
		free(request);
	else
		lp_pool_put(door->requests, request);
	if (was_noted)
		wake_waiting(conn);
	lpi_conn_request_ended(conn);
}

void lpi_request_refuse(struct lpi_request *request, int err, const char *why)
{
	if (request->refused != 0)
		return;
	request->refused = err;
	(void)snprintf(request->why, sizeof(request->why), "%s", why);
}

void lpi_request_abandon(struct lpi_request *request)
{
	lpi_request_move(request, LPI_REQUEST_DROPPED);
	lpi_request_end(request);
}

/* --- Pieces and replies ----------------------------------------------------------------------- */

struct lpi_piece *lpi_piece_new(struct lpi_request *request)
{
	struct lpi_conn *conn = request->conn;
	enum lpi_quota_verdict verdict =
		lpi_quota_ask(&conn->door->quota, conn->user, LPI_QUOTA_PIECES, 1, 1);
	struct lpi_piece *piece = NULL;
	if (verdict == LPI_QUOTA_OK)
		piece = lp_pool_get(request->door->pieces);
	else
		lpi_conn_note_limit(conn, LPI_QUOTA_PIECES, verdict, false);
	if (piece == NULL)
		return NULL;
	lpi_conn_force(conn, LPI_QUOTA_PIECES, 1);
	memset(piece, 0, offsetof(struct lpi_piece, reply.head));
	piece->request = request;
	piece->reply.piece = piece;
	return piece;
}

bool lpi_piece_budget(struct lpi_piece *piece, uint64_t bytes)
{
	struct lpi_conn *conn = piece->request->conn;
	struct lp_door *door = conn->door;
	uint64_t left = lpi_conn_reply_room(conn, bytes);
	if (conn->reply_bytes > 0 && conn->reply_bytes + bytes > door->options.credit_bytes_max)
		return false;
	if (door->reply_bytes > 0 && bytes > left)
		return false;
	/* As with requests, a connection gets no more of the room than it leaves to the others. */
	if (conn->reply_bytes > 0 && conn->reply_bytes + bytes > left)
		return false;
	if (lpi_conn_take(conn, LPI_QUOTA_GOING, conn->reply_bytes, bytes) != LPI_QUOTA_OK)
		return false;
	conn->reply_bytes += bytes;
	door->reply_bytes += bytes;
	piece->budget_bytes = bytes;
	return true;
}

void lpi_piece_free(struct lpi_piece *piece)
{
	struct lp_door *door = piece->request->door;
	if (piece->holds)
		lp_ns_end(door->options.ns, &piece->op);
	lp_buf_put(piece->reply.rest);
	piece->reply.rest = NULL;
	piece->holds = false;
	piece->is_out = false;
	piece->is_read = false;
	LP_ASSERT(piece->request->conn->reply_bytes >= piece->budget_bytes);
	piece->request->conn->reply_bytes -= piece->budget_bytes;
	door->reply_bytes -= piece->budget_bytes;
	lpi_conn_give(piece->request->conn, LPI_QUOTA_GOING, piece->budget_bytes);
	piece->budget_bytes = 0;
	piece->reply.segs = NULL;
	piece->reply.seg_cnt = 0;
	piece->reply.data_bytes = 0;
	piece->reply.is_shared = false;
	if (piece == &piece->request->piece)
		return;
	lpi_conn_give(piece->request->conn, LPI_QUOTA_PIECES, 1);
	lp_pool_put(door->pieces, piece);
}

/* The shard of the request's object, as far as it is known. */
static uint32_t best_shard(const struct lpi_request *request)
{
	const struct lpi_ref *ref = &request->refs[0];
	if (ref->kind == LPI_REF_KEY)
		return lp_ns_shard_of_path(request->door->options.ns, ref->path);
	if (ref->kind == LPI_REF_INO && ref->found.nr != 0)
		return lp_ino_shard(ref->found);
	return request->door->options.shard_idx;
}

static void seal(struct lpi_piece *piece, uint32_t meta_bytes, int err, bool more)
{
	struct lpi_request *request = piece->request;
	struct lpi_reply *reply = &piece->reply;
	const struct lp_store_op *read = &piece->op.store.op;
	struct lp_wire_header header = {
		.kind = LP_WIRE_KIND_REPLY,
		.opcode = request->header.opcode,
		.request_id = request->header.request_id,
		.flags = (more ? LP_WIRE_FLAG_MORE : 0) |
			 (reply->is_shared ? LP_WIRE_FLAG_SHARED : 0),
		.status = (uint32_t)-err,
		.shard = best_shard(request),
		.meta_bytes = meta_bytes,
		.data_bytes = reply->data_bytes,
		.offset = reply->data_bytes > 0 ? piece->offset : 0,
	};
	/* The checksums of a read follow its meta, which is short. */
	if (reply->data_bytes > 0 && request->conn->crc_mode == LP_WIRE_CRC_ALL) {
		LP_ASSERT(reply->rest == NULL);
		LP_ASSERT(meta_bytes + read->read.crc_cnt * 4 <= LPI_REST_INLINE);
		header.crc_cnt = read->read.crc_cnt;
		lp_wire_crcs_encode(read->read.crcs, header.crc_cnt,
				    reply->head + LP_WIRE_HEADER_SIZE + meta_bytes);
	}
	reply->rest_bytes = lp_wire_rest_bytes(&header);
	lp_wire_header_seal(&header, request->conn->crc_mode,
			    reply->rest != NULL ? reply->rest->data
						: reply->head + LP_WIRE_HEADER_SIZE,
			    reply->head);
	if (!reply->is_shared)
		return;
	reply->seg_cnt = 0;
	reply->data_bytes = 0;
}

static void queue(struct lpi_piece *piece, uint32_t meta_bytes, int err, bool more)
{
	struct lpi_request *request = piece->request;
	struct lpi_conn *conn = request->conn;
	bool was_noted = !more && is_noted(request);
	piece->is_out = true;
	if (!more) {
		lpi_request_move(request, LPI_REQUEST_REPLY);
		piece->reply.is_last = true;
		lpi_door_note_end(request, err);
		forget_names(request);
	}
	seal(piece, meta_bytes, err, more);
	if (!more)
		answered(request);
	/* If the client has gone it ends the request at once. */
	if (lpi_conn_is_alive(conn))
		lpi_conn_queue(conn, &piece->reply);
	else
		lpi_reply_done(&piece->reply);
	if (was_noted)
		wake_waiting(conn);
}

void lpi_piece_queue(struct lpi_piece *piece, uint32_t meta_bytes, bool more)
{
	queue(piece, meta_bytes, 0, more);
}

void lpi_piece_queue_error(struct lpi_piece *piece, int err, const char *why)
{
	struct lpi_request *request = piece->request;
	struct lp_writer writer;
	size_t bytes = 0;
	lp_buf_put(piece->reply.rest);
	piece->reply.rest = NULL;
	piece->reply.data_bytes = 0;
	piece->reply.seg_cnt = 0;
	lp_writer_init(&writer, piece->reply.head + LP_WIRE_HEADER_SIZE, LPI_REST_INLINE);
	/* The index of the compound's guard or change that failed. */
	if (request->header.opcode == LP_WIRE_OP_COMPOUND) {
		struct lp_wire_written written = {.failed_idx = piece->op.store.op.txn.failed_idx};
		lp_wire_put_part(&writer, lp_wire_written, &written);
	}
	lp_writer_bytes(&writer, why, LP_MIN(strlen(why), (size_t)LP_WIRE_TEXT_MAX));
	bool fits = lp_writer_finish(&writer, &bytes);
	LP_ASSERT(fits);
	queue(piece, (uint32_t)bytes, err, false);
}

struct lp_writer *lpi_request_writer(struct lpi_request *request, uint32_t meta_max)
{
	struct lpi_reply *reply = &request->piece.reply;
	struct lp_writer *writer = &request->door->writer;
	LP_ASSERT(meta_max <= request->conn->meta_max);
	if (meta_max <= LPI_REST_INLINE) {
		lp_writer_init(writer, reply->head + LP_WIRE_HEADER_SIZE, LPI_REST_INLINE);
		return writer;
	}
	if (reply->rest == NULL)
		reply->rest = lpi_request_buf(request, meta_max);
	if (reply->rest == NULL) {
		lpi_request_fail(request, -EAGAIN, "no buffer for the answer");
		return NULL;
	}
	lp_writer_init(writer, reply->rest->data, meta_max);
	return writer;
}

void lpi_request_answer(struct lpi_request *request)
{
	size_t bytes = 0;
	bool fits = lp_writer_finish(&request->door->writer, &bytes);
	LP_ASSERT(fits);
	queue(&request->piece, (uint32_t)bytes, 0, false);
}

void lpi_request_fail(struct lpi_request *request, int err, const char *why)
{
	LP_ASSERT(err < 0);
	if (request->opcode != NULL && request->opcode->undo != NULL)
		request->opcode->undo(request);
	lpi_piece_queue_error(&request->piece, err, why);
}

void lpi_reply_done(struct lpi_reply *reply)
{
	struct lpi_piece *piece = reply->piece;
	if (piece == NULL)
		return;
	struct lpi_request *request = piece->request;
	if (request->opcode != NULL && request->opcode->sent != NULL) {
		request->opcode->sent(request, piece);
		return;
	}
	lpi_request_end(request);
}

/* --- Receiving data --------------------------------------------------------------------------- */

/* Checks the pieces of one segment, which hold len bytes, against their checksums. For a client
 * that sends none they are computed. */
static void check_pieces(struct lpi_request *request, const uint8_t *data, uint32_t len)
{
	uint64_t offset = request->header.offset + request->checked;
	uint32_t *crcs = request->crcs + request->checked_pieces;
	uint32_t cnt = lp_wire_piece_cnt(offset, len);
	uint32_t bad = cnt;
	if (request->header.crc_cnt == 0)
		lp_wire_crcs_make(data, offset, len, crcs);
	else
		bad = lp_wire_crcs_check(data, offset, len, crcs);
	if (bad < cnt) {
		request->refused = -EBADMSG;
		(void)snprintf(request->why, sizeof(request->why),
			       "piece %u of the data does not match its checksum",
			       request->checked_pieces + bad);
	}
	request->checked += len;
	request->checked_pieces += cnt;
}

/* How many bytes of the data have been received, without the beginning of a piece. */
static uint32_t whole_bytes(const struct lpi_request *request)
{
	uint32_t bytes = request->received;
	uint32_t begun = (uint32_t)((request->header.offset + bytes) % LP_WIRE_BLOCK_BYTES);
	if (bytes >= request->header.data_bytes)
		return request->header.data_bytes;
	return bytes - LP_MIN(bytes, begun);
}

void lpi_request_check(struct lpi_request *request)
{
	uint32_t end = whole_bytes(request);
	uint32_t begin = 0; /* of the segment */
	/* A piece does not go on in another segment. */
	for (uint32_t i = 0; i < request->seg_cnt && request->refused == 0; i++) {
		const struct lp_seg *seg = &request->segs[i];
		uint32_t upto = LP_MIN(begin + seg->len, end);
		if (request->checked < upto)
			check_pieces(request,
				     seg->buf->data + seg->offset + (request->checked - begin),
				     upto - request->checked);
		begin += seg->len;
	}
}

static int read_meta(struct lpi_request *request)
{
	struct lp_reader reader;
	lp_reader_init(&reader, request->meta, request->header.meta_bytes);
	int r = request->opcode->begin(request, &reader);
	if (r >= 0)
		r = lp_wire_end(&reader);
	return r;
}

/* --- Order of requests ------------------------------------------------------------------------ */

static void note_paths(struct lpi_request *request)
{
	for (uint32_t i = 0; i < LP_ARRAY_SIZE(request->refs); i++) {
		const struct lpi_ref *ref = &request->refs[i];
		if (ref->kind == LPI_REF_NONE || ref->path.len == 0)
			continue;
		uint64_t hash = lp_hash_u64(ref->path.data, ref->path.len, ref->ino.nr);
		request->path_hashes[request->path_cnt++] = hash;
		request->conn->names[hash % LPI_CONN_NAMES]++;
	}
}

static bool is_number(const struct lpi_ref *ref)
{
	return ref->kind == LPI_REF_INO && ref->path.len == 0;
}

static void add_number(struct lpi_request *request, struct lp_ino ino)
{
	LP_ASSERT(request->number_cnt < LP_ARRAY_SIZE(request->number_hashes));
	request->number_hashes[request->number_cnt++] =
		lp_hash_u64(&ino.nr, sizeof(ino.nr), UINT64_MAX);
}

static void hash_numbers(struct lpi_request *request)
{
	struct lp_ino other = {0};
	if (request->number_cnt > 0)
		return;
	if (request->opcode->other_number != NULL)
		other = request->opcode->other_number(request);
	for (uint32_t i = 0; i < LP_ARRAY_SIZE(request->refs); i++) {
		const struct lpi_ref *ref = &request->refs[i];
		if (is_number(ref))
			add_number(request, ref->ino.nr == 0 ? LP_INO_ROOT : ref->ino);
	}
	if (other.nr != 0)
		add_number(request, other);
}

static void note_numbers(struct lpi_request *request, enum lpi_request_look look)
{
	struct lpi_conn *conn = request->conn;
	if (look <= request->look)
		return;
	hash_numbers(request);
	/* Only by path, which is noted already. */
	if (request->number_cnt == 0)
		return;
	for (uint32_t i = 0; request->look == LPI_LOOK_NEVER && i < request->number_cnt; i++)
		conn->names[request->number_hashes[i] % LPI_CONN_NAMES]++;
	if (look == LPI_LOOK_FIRST)
		conn->looking++;
	request->look = look;
}

/* A request whose operation is with the store as soon as it is submitted costs nothing here. */
static enum lpi_request_look look_of(const struct lpi_request *request)
{
	const struct lp_ns_op *op = &request->piece.op;
	/* A stat of a directory asks several shards. */
	if (op->opcode == LP_NS_STAT)
		return LPI_LOOK_PERHAPS;
	if (request->list != NULL || lp_ns_asks_first(op))
		return LPI_LOOK_FIRST;
	/* A guard of the door may fail: see ops_rights.c. Then a clone also has to wait for an
	 * earlier write to its source. */
	if (op->store.op.opcode != LP_STORE_TXN || !lpi_request_rights(request).is_limited)
		return LPI_LOOK_NEVER;
	return request->header.opcode == LP_WIRE_OP_CLONE ? LPI_LOOK_FIRST : LPI_LOOK_PERHAPS;
}

static bool share(const uint64_t *a, uint32_t a_cnt, const uint64_t *b, uint32_t b_cnt)
{
	for (uint32_t i = 0; i < a_cnt; i++) {
		for (uint32_t j = 0; j < b_cnt; j++) {
			if (a[i] == b[j])
				return true;
		}
	}
	return false;
}

/* True if `earlier` is on the same number and may get to the store later. If it is not known yet
 * whether it looks, only requests that look wait for it; the others follow it into the store in
 * order. */
static bool may_be_overtaken(const struct lpi_request *earlier, const struct lpi_request *by)
{
	bool looks = earlier->look == LPI_LOOK_FIRST ||
		     (earlier->look == LPI_LOOK_PERHAPS && by->look == LPI_LOOK_FIRST);
	return looks && share(earlier->number_hashes, earlier->number_cnt, by->number_hashes,
			      by->number_cnt);
}

static bool holds_back(const struct lpi_request *earlier, const struct lpi_request *request)
{
	if (!earlier->opcode->is_change && !request->opcode->is_change)
		return false;
	return share(earlier->path_hashes, earlier->path_cnt, request->path_hashes,
		     request->path_cnt) ||
	       may_be_overtaken(earlier, request);
}

/* How many others may be at work on the paths and numbers that it names. Numbers matter only while
 * any request looks; if this request looks, it is counted among these. */
static uint32_t count_others(struct lpi_request *request)
{
	const struct lpi_conn *conn = request->conn;
	uint32_t own = request->look == LPI_LOOK_NEVER ? 0 : 1;
	uint32_t others = 0;
	for (uint32_t i = 0; i < request->path_cnt; i++)
		others += conn->names[request->path_hashes[i] % LPI_CONN_NAMES] - 1u;
	if (conn->looking == 0)
		return others;
	hash_numbers(request);
	for (uint32_t i = 0; i < request->number_cnt; i++)
		others += conn->names[request->number_hashes[i] % LPI_CONN_NAMES] - own;
	return others;
}

/* True if an earlier request is not done that it must not overtake. */
static bool must_wait(struct lpi_request *request)
{
	if (count_others(request) == 0)
		return false;
	struct lpi_request *it = NULL;
	LP_LIST_FOREACH (lpi_request_list, &request->conn->requests, it) {
		if (it == request)
			return false;
		if (it->sm.state >= LPI_REQUEST_REPLY || it->opcode == NULL)
			continue;
		if (holds_back(it, request))
			return true;
	}
	return false;
}

static void wait_for_others(struct lpi_request *request)
{
	lpi_request_move(request, LPI_REQUEST_WAIT);
	lpi_wait_list_push_back(&request->conn->waiting, request);
}

void lpi_request_note_look(struct lpi_request *request)
{
	note_numbers(request, LPI_LOOK_FIRST);
}

bool lpi_request_waits_to_look(struct lpi_request *request)
{
	note_numbers(request, LPI_LOOK_FIRST);
	if (!must_wait(request))
		return false;
	wait_for_others(request);
	return true;
}

static void wake_waiting(struct lpi_conn *conn)
{
	if (conn->is_waking)
		return;
	struct lpi_request *request = lpi_wait_list_first(&conn->waiting);
	conn->is_waking = true;
	while (request != NULL) {
		struct lpi_request *next = lpi_wait_list_next(&conn->waiting, request);
		if (!must_wait(request)) {
			lpi_wait_list_remove(request);
			lpi_request_find(request);
			/* This may have ended other requests: from the start again. */
			next = lpi_wait_list_first(&conn->waiting);
		}
		request = next;
	}
	conn->is_waking = false;
}

void lpi_request_begin(struct lpi_request *request)
{
	request->began_ns = request->door->received_ns;
	lpi_request_check(request);
	if (request->refused != 0) {
		lpi_request_fail(request, request->refused, request->why);
		return;
	}
	int r = read_meta(request);
	if (r < 0) {
		lpi_request_fail(request, r,
				 request->why[0] != '\0' ? request->why
							 : "the meta does not fit the opcode");
		return;
	}
	note_paths(request);
	note_numbers(request, look_of(request));
	if (!lpi_conn_is_alive(request->conn) || !must_wait(request))
		lpi_request_find(request);
	else
		wait_for_others(request);
}

/* --- References ------------------------------------------------------------------------------- */

struct lp_change *lpi_request_changes(struct lpi_request *request)
{
	if (request->piece.op.store.op.txn.changes == request->changes)
		return request->changes;
	/* An operation that is no transaction (explain) has neither. */
	if (request->room == NULL)
		return NULL;
	return (struct lp_change *)(void *)request->room->data;
}

static void set_store_ino(struct lpi_request *request, struct lp_ino ino)
{
	struct lp_store_op *op = &request->piece.op.store.op;
	struct lp_change *changes = NULL;
	switch (op->opcode) {
	case LP_STORE_READ:
		op->read.ino = ino;
		break;
	case LP_STORE_SEEK:
		op->seek.ino = ino;
		break;
	case LP_STORE_GET:
		op->get.ino = ino;
		break;
	case LP_STORE_LIST:
		op->list.ino = ino;
		break;
	case LP_STORE_TXN:
		changes = lpi_request_changes(request);
		LP_ASSERT(changes != NULL || op->txn.change_cnt == 0);
		for (uint32_t i = 0; changes != NULL && i < op->txn.change_cnt; i++)
			changes[i].ino = ino;
		break;
	default:
		LP_ASSERT(false);
	}
}

/* Sets the inode of the first reference in the operation. */
static void set_ino(struct lpi_request *request, struct lp_ino ino)
{
	struct lp_ns_op *op = &request->piece.op;
	switch (op->opcode) {
	case LP_NS_STORE:
		op->store.ino = ino;
		set_store_ino(request, ino);
		break;
	case LP_NS_STAT:
		op->stat.ino = ino;
		break;
	case LP_NS_SET:
		op->set.ino = ino;
		break;
	case LP_NS_OPEN:
	case LP_NS_CLOSE:
		op->open.ino = ino;
		break;
	case LP_NS_READDIR:
		op->readdir.dir = ino;
		break;
	case LP_NS_LINK:
		op->link.ino = ino;
		break;
	default:
		break;
	}
}

static void set_name(struct lp_ns_op *op, const struct lpi_ref *ref, bool is_second)
{
	switch (op->opcode) {
	case LP_NS_MAKE:
		op->make.dir = ref->found;
		op->make.name = ref->name;
		break;
	case LP_NS_REMOVE:
		op->remove.dir = ref->found;
		op->remove.name = ref->name;
		break;
	case LP_NS_LINK:
		op->link.dir = ref->found;
		op->link.name = ref->name;
		break;
	case LP_NS_RENAME:
		*(is_second ? &op->rename.to_dir : &op->rename.dir) = ref->found;
		*(is_second ? &op->rename.to_name : &op->rename.name) = ref->name;
		break;
	default:
		LP_ASSERT(false);
	}
}

void lpi_request_worked(struct lp_ns_op *op)
{
	struct lpi_piece *piece = LP_CONTAINER_OF(op, struct lpi_piece, op);
	struct lpi_request *request = piece->request;
	int r = op->result;
	if (r < 0 && lpi_request_again(request, r))
		return;
	/* By number: the inode is gone. */
	if (r == -ENOENT && op->opcode == LP_NS_STORE)
		r = -ESTALE;
	if (r < 0) {
		lpi_request_fail(request, r, request->door->opcodes->why_refused(request, r));
		return;
	}
	if (request->opcode->answer != NULL) {
		request->opcode->answer(request);
		return;
	}
	if (lpi_request_writer(request, 0) != NULL)
		lpi_request_answer(request);
}

void lpi_request_submit(struct lpi_request *request)
{
	request->piece.op.complete = lpi_request_worked;
	lp_ns_submit(request->door->options.ns, &request->piece.op);
}

static void work(struct lpi_request *request)
{
	struct lp_ns_op *op = &request->piece.op;
	for (uint32_t i = 0; i < LP_ARRAY_SIZE(request->refs); i++) {
		const struct lpi_ref *ref = &request->refs[i];
		if (ref->kind == LPI_REF_INO)
			set_ino(request, ref->found);
		else if (ref->kind == LPI_REF_NAME)
			set_name(op, ref, i > 0);
	}
	lpi_request_move(request, LPI_REQUEST_WORK);
	if (request->opcode->run != NULL) {
		request->opcode->run(request);
		return;
	}
	lpi_request_submit(request);
}

/* -ENOENT means that the inode that a path led to is gone; another one may be there by now. */
static bool is_by_number(enum lp_ns_opcode opcode)
{
	return opcode == LP_NS_STORE || opcode == LP_NS_STAT || opcode == LP_NS_SET ||
	       opcode == LP_NS_OPEN || opcode == LP_NS_LINK;
}

bool lpi_request_again(struct lpi_request *request, int result)
{
	const struct lpi_ref *ref = &request->refs[0];
	bool is_gone = result == -ESTALE || (result == -ENOENT && ref->kind == LPI_REF_INO &&
					     is_by_number(request->piece.op.opcode));
	if (!is_gone || ref->kind == LPI_REF_NONE || ref->kind == LPI_REF_KEY)
		return false;
	if (ref->path.len == 0 && request->refs[1].path.len == 0)
		return false;
	if (request->tries++ >= LPI_TRIES_MAX || !lpi_conn_is_alive(request->conn))
		return false;
	lpi_request_find(request);
	return true;
}

static void find_next(struct lpi_request *request);

static void found(struct lp_ns_op *op)
{
	struct lpi_request *request = LP_CONTAINER_OF(op, struct lpi_request, find);
	struct lpi_ref *ref = &request->refs[request->ref_idx];
	if (op->result < 0) {
		/* A number that was given for the directory, or that of the path before. */
		if (op->result == -ESTALE && lpi_request_again(request, op->result))
			return;
		lpi_request_fail(request, op->result, "");
		return;
	}
	const struct lp_ns_found *what =
		op->opcode == LP_NS_WALK ? &op->walk.found : &op->lookup.found;
	ref->found = what->ino;
	if (request->ref_idx == 0)
		request->found = *what;
	request->ref_idx++;
	find_next(request);
}

static void look(struct lpi_request *request, struct lp_ino dir, struct lp_bytes path)
{
	struct lp_ns_op *op = &request->find;
	memset(op, 0, sizeof(*op));
	op->complete = found;
	op->opcode = dir.nr == 0 ? LP_NS_WALK : LP_NS_LOOKUP;
	if (dir.nr == 0) {
		op->walk.path = path;
	} else {
		op->lookup.dir = dir;
		op->lookup.name = path;
	}
	lp_ns_submit(request->door->options.ns, op);
}

/* False: the inode is being looked up. */
static bool find_ino(struct lpi_request *request, struct lpi_ref *ref)
{
	if (ref->path.len == 0) {
		ref->found = ref->ino.nr == 0 ? LP_INO_ROOT : ref->ino;
		return true;
	}
	look(request, ref->ino, ref->path);
	return false;
}

static bool find_name(struct lpi_request *request, struct lpi_ref *ref)
{
	const char *path = ref->path.data;
	uint32_t at = ref->path.len;
	if (ref->ino.nr != 0) {
		ref->found = ref->ino;
		ref->name = ref->path;
		return true;
	}
	while (at > 0 && path[at - 1] != '/')
		at--;
	ref->name = (struct lp_bytes){path + at, ref->path.len - at};
	if (at == 0) {
		ref->found = LP_INO_ROOT;
		return true;
	}
	/* An empty path is the root; a slash at the beginning is not. */
	look(request, (struct lp_ino){0}, at == 1 ? ref->path : (struct lp_bytes){path, at - 1});
	return false;
}

static void find_next(struct lpi_request *request)
{
	for (; request->ref_idx < LP_ARRAY_SIZE(request->refs); request->ref_idx++) {
		struct lpi_ref *ref = &request->refs[request->ref_idx];
		if (ref->kind == LPI_REF_INO && !find_ino(request, ref))
			return;
		if (ref->kind == LPI_REF_NAME && !find_name(request, ref))
			return;
	}
	work(request);
}

void lpi_request_find(struct lpi_request *request)
{
	if (lp_sm_state(&request->sm) != LPI_REQUEST_FIND)
		lpi_request_move(request, LPI_REQUEST_FIND);
	end_receiving(request);
	request->ref_idx = 0;
	find_next(request);
}
