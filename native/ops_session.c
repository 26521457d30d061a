/* SPDX-License-Identifier: Apache-2.0 */
/* Opcodes about a connection: its handshake, its opens, its uploads. Also the opcodes that are
 * passed on to the administration.
 *
 * The record of an open is made before the inode is opened, so every open has a record. When the
 * connection ends, all opens are given back by their records. */
#include <stdio.h>

#include "native/door_impl.h"
#include "native/ops.h"

/* --- Handshake
 * -------------------------------------------------------------------------------------- */

static int check_hello(struct lpi_request *request, const struct lp_wire_hello *hello)
{
	if (hello->version_min > LP_WIRE_VERSION || hello->version_max < LP_WIRE_VERSION) {
		lpi_request_why(request, "none of these versions is spoken here");
		return -EPROTONOSUPPORT;
	}
	if (hello->auth != 0) {
		lpi_request_why(request, "this authentication is not known");
		return -EOPNOTSUPP;
	}
	if (hello->crc_mode > LP_WIRE_CRC_ALL ||
	    (hello->shard != LP_WIRE_ANY_SHARD &&
	     hello->shard >= request->door->options.shard_cnt)) {
		lpi_request_why(request, "no such shard, or mode of checksums");
		return -EINVAL;
	}
	return 0;
}

int lpi_meta_hello(struct lpi_request *request, struct lp_reader *reader)
{
	struct lp_wire_hello hello;
	struct lpi_conn *conn = request->conn;
	if (conn->state != LPI_CONN_GREETING) {
		lpi_request_why(request, "hello has been said");
		return -EISCONN;
	}
	if (!lp_wire_part(reader, lp_wire_hello, &hello) || hello.name_bytes > LP_WIRE_TEXT_MAX)
		return -EINVAL;
	const char *name = lp_wire_bytes(reader, hello.name_bytes);
	if (name == NULL)
		return -EINVAL;
	memcpy(conn->client_name, name, hello.name_bytes);
	conn->client_name[hello.name_bytes] = '\0';
	return check_hello(request, &hello);
}

/* After a hello that was refused there is nothing to go on with. */
void lpi_undo_hello(struct lpi_request *request)
{
	if (request->conn->state == LPI_CONN_GREETING)
		lpi_conn_finish(request->conn);
}

static uint64_t uuid_half(const uint8_t *uuid)
{
	return lp_get_le64(uuid);
}

static uint64_t features_of(const struct lpi_conn *conn)
{
	bool is_long = conn->meta_max == LP_WIRE_LONG_META_MAX;
	return (is_long ? LP_WIRE_FEATURE_LONG_META : 0) |
	       (conn->hears_signs ? LP_WIRE_FEATURE_GOES_ON : 0);
}

static void welcome(struct lpi_request *request, enum lp_wire_crc crc_mode)
{
	const struct lp_door_options *options = &request->door->options;
	size_t name_bytes = options->server_name == NULL ? 0 : strlen(options->server_name);
	name_bytes = LP_MIN(name_bytes, (size_t)LP_WIRE_TEXT_MAX);
	const struct lp_wire_welcome out = {
		.version = LP_WIRE_VERSION,
		.crc_mode = crc_mode,
		.features = features_of(request->conn),
		.credits = request->conn->credits,
		.credit_bytes = (uint32_t)options->credit_bytes_max,
		.shard_cnt = options->shard_cnt,
		.shard = options->shard_idx,
		.uuid_low = uuid_half(options->store_uuid),
		.uuid_high = uuid_half(options->store_uuid + 8),
		.server_bytes = (uint16_t)name_bytes,
	};
	struct lp_writer *writer =
		lpi_request_writer(request, LP_WIRE_WELCOME_SIZE + (uint32_t)name_bytes);
	if (writer == NULL)
		return;
	lp_wire_put_part(writer, lp_wire_welcome, &out);
	lp_writer_bytes(writer, options->server_name, name_bytes);
	lpi_request_answer(request);
}

void lpi_run_hello(struct lpi_request *request)
{
	struct lpi_conn *conn = request->conn;
	const struct lp_door_options *options = &request->door->options;
	struct lp_wire_hello hello;
	lp_wire_hello_decode(request->meta, &hello);
	if (hello.shard != LP_WIRE_ANY_SHARD && hello.shard != options->shard_idx &&
	    options->hand_over != NULL) {
		conn->is_leaving = true;
		conn->leave_to = hello.shard;
		return;
	}
	enum lp_wire_crc crc_mode =
		(enum lp_wire_crc)LP_MAX(hello.crc_mode, (uint32_t)options->crc_min);
	uint32_t credits = hello.credits == 0 ? options->credits_max : hello.credits;
	conn->credits = LP_MIN(credits, options->credits_max);
	conn->state = LPI_CONN_SERVING;
	if ((hello.features & LP_WIRE_FEATURE_LONG_META) != 0)
		conn->meta_max = LP_WIRE_LONG_META_MAX;
	conn->hears_signs = (hello.features & LP_WIRE_FEATURE_GOES_ON) != 0;
	/* The reply of hello has checksums in any mode. */
	welcome(request, crc_mode);
	conn->crc_mode = crc_mode;
}

int lpi_meta_ping(struct lpi_request *request, struct lp_reader *reader)
{
	(void)request;
	(void)reader;
	return 0;
}

void lpi_run_ping(struct lpi_request *request)
{
	if (lpi_request_writer(request, 0) != NULL)
		lpi_request_answer(request);
}

/* --- Shared memory
 * ---------------------------------------------------------------------------------- */

/* A smaller region is not worth its cost. */
#define SHARE_BYTES_MIN (UINT64_C(2) << 20)

int lpi_meta_share(struct lpi_request *request, struct lp_reader *reader)
{
	struct lp_wire_share share;
	(void)request;
	return lp_wire_part(reader, lp_wire_share, &share) && share.bytes > 0 ? 0 : -EINVAL;
}

/* 0, or an error, whose reason is in *why. */
static int new_share(struct lpi_conn *conn, uint64_t wanted, const char **why)
{
	const struct lpi_quota *quota = &conn->door->quota;
	uint64_t left = lpi_quota_left(quota, conn->user, LPI_QUOTA_SHARED);
	uint64_t bytes = LP_MIN(LP_MAX(wanted, SHARE_BYTES_MIN), LP_WIRE_SHARE_MAX);
	/* Without checksums the client would not notice that it read the data too late (see
	 * lpi_share_free()). */
	*why = "memory is shared through a unix socket, with all checksums";
	if (!conn->peer.is_unix || conn->crc_mode != LP_WIRE_CRC_ALL)
		return -EOPNOTSUPP;
	*why = "this connection shares memory already";
	if (conn->share != NULL)
		return -EALREADY;
	*why = "no memory is left to be shared with this user (user-share)";
	bytes = LP_MIN(bytes, left);
	if (bytes < SHARE_BYTES_MIN) {
		lpi_conn_note_limit(conn, LPI_QUOTA_SHARED, LPI_QUOTA_OWN, false);
		return -ENOMEM;
	}
	*why = "no memory";
	if (lpi_share_new(bytes, &conn->share) < 0)
		return -ENOMEM;
	lpi_conn_force(conn, LPI_QUOTA_SHARED, lpi_share_bytes(conn->share));
	return 0;
}

void lpi_run_share(struct lpi_request *request)
{
	struct lpi_conn *conn = request->conn;
	struct lp_wire_share share;
	const char *why = "";
	lp_wire_share_decode(request->meta, &share);
	int err = new_share(conn, share.bytes, &why);
	if (err < 0) {
		lpi_request_fail(request, err, why);
		return;
	}
	share.bytes = lpi_share_bytes(conn->share);
	conn->door->stats.share_bytes += share.bytes;
	struct lp_writer *writer = lpi_request_writer(request, LP_WIRE_SHARE_SIZE);
	LP_ASSERT(writer != NULL); /* short enough to fit */
	lp_wire_put_part(writer, lp_wire_share, &share);
	lpi_request_answer(request);
}

/* --- Opens and uploads
 * ------------------------------------------------------------------------------ */

int lpi_reserve_open(struct lpi_request *request)
{
	request->open = lpi_open_new(request->conn, request->why, sizeof(request->why));
	return request->open != NULL ? 0 : -EMFILE;
}

/* request->open is set only if the open failed. */
void lpi_undo_open(struct lpi_request *request)
{
	if (request->open != NULL)
		lpi_open_drop(request->open);
	request->open = NULL;
}

int lpi_meta_open(struct lpi_request *request, struct lp_reader *reader)
{
	const uint8_t *ref = lp_reader_bytes(reader, LP_WIRE_REF_SIZE);
	if (ref == NULL)
		return -EINVAL;
	lpi_request_op(request, LP_NS_OPEN)->open.count = 1;
	int r = lpi_read_ref(request, LPI_REF_INO, ref, reader);
	return r < 0 ? r : lpi_reserve_open(request);
}

static void opened(struct lp_ns_op *op)
{
	struct lpi_piece *piece = LP_CONTAINER_OF(op, struct lpi_piece, op);
	struct lpi_request *request = piece->request;
	if (op->result < 0) {
		if (!lpi_request_again(request, op->result))
			lpi_request_fail(request, op->result, "");
		return;
	}
	lpi_open_add(request->open, request->refs[0].found, false);
	request->open = NULL;
	/* The present attributes. */
	lpi_request_op(request, LP_NS_STAT)->stat.ino = request->refs[0].found;
	lpi_request_submit(request);
}

void lpi_run_open(struct lpi_request *request)
{
	struct lp_ns_op *op = lpi_request_op(request, LP_NS_OPEN);
	/* The record was used for an object that was gone when its attributes were read. */
	if (request->open == NULL && lpi_reserve_open(request) < 0) {
		lpi_request_fail(request, -EMFILE, request->why);
		return;
	}
	op->open.ino = request->refs[0].found;
	op->open.count = 1;
	op->complete = opened;
	lp_ns_submit(request->door->options.ns, op);
}

int lpi_meta_close(struct lpi_request *request, struct lp_reader *reader)
{
	const uint8_t *ref = lp_reader_bytes(reader, LP_WIRE_REF_SIZE);
	if (ref == NULL)
		return -EINVAL;
	lpi_request_op(request, LP_NS_CLOSE)->open.count = 1;
	int r = lpi_read_ref(request, LPI_REF_INO, ref, reader);
	if (r < 0)
		return r;
	return request->refs[0].path.len > 0 ? -EINVAL : 0;
}

/* Closes inodes that this connection has open by now, also by the request right before: it closes
 * them even if the reply is lost. */
void lpi_run_close(struct lpi_request *request)
{
	bool is_upload = request->header.opcode == LP_WIRE_OP_ABORT;
	struct lpi_open *open = lpi_open_find(request->conn, request->refs[0].ino);
	if (open == NULL || open->is_upload != is_upload || open->busy > 0) {
		lpi_request_fail(request, -EBADF,
				 is_upload ? "this connection has no such upload"
					   : "this connection does not have it open");
		return;
	}
	lpi_open_drop(open);
	lpi_request_submit(request);
}

int lpi_meta_upload(struct lpi_request *request, struct lp_reader *reader)
{
	const uint8_t *ref = lp_reader_bytes(reader, LP_WIRE_REF_SIZE);
	struct lp_ns_op *op = lpi_request_op(request, LP_NS_UPLOAD);
	if (ref == NULL)
		return -EINVAL;
	int r = lpi_read_ref(request, LPI_REF_KEY, ref, reader);
	op->put.path = request->refs[0].path;
	return r < 0 ? r : lpi_reserve_open(request);
}

void lpi_answer_upload(struct lpi_request *request)
{
	const struct lp_ns_op *op = &request->piece.op;
	lpi_open_add(request->open, op->put.found.ino, true);
	request->open = NULL;
	lpi_answer_found(request, &op->put.found);
}

int lpi_meta_commit(struct lpi_request *request, struct lp_reader *reader)
{
	struct lp_wire_commit commit;
	struct lp_wire_put put;
	struct lp_ns_op *op = lpi_request_op(request, LP_NS_COMMIT);
	if (!lp_wire_part(reader, lp_wire_commit, &commit))
		return -EINVAL;
	lp_wire_put_decode(commit.put, &put);
	if (!lp_wire_put_reserved_is_zero(&put))
		return -EINVAL;
	int r = lpi_read_put(request, &put, reader);
	if (r < 0)
		return r;
	op->put.ino.nr = commit.ino;
	struct lpi_open *open = lpi_open_find(request->conn, op->put.ino);
	if (open == NULL || !open->is_upload || open->busy > 0) {
		lpi_request_why(request, "this connection has no such upload");
		return -EBADF;
	}
	open->busy++;
	request->open = open;
	return 0;
}

struct lp_ino lpi_commit_source(const struct lpi_request *request)
{
	return request->piece.op.put.ino;
}

void lpi_answer_commit(struct lpi_request *request)
{
	request->open->busy--;
	lpi_open_drop(request->open);
	request->open = NULL;
	lpi_answer_found(request, &request->piece.op.put.found);
}

/* The upload stays. */
void lpi_undo_commit(struct lpi_request *request)
{
	if (request->open != NULL)
		request->open->busy--;
	request->open = NULL;
}

/* --- Administration
 * --------------------------------------------------------------------------------- */

int lpi_meta_admin(struct lpi_request *request, struct lp_reader *reader)
{
	(void)reader;
	request->admin.opcode = request->header.opcode;
	return 0;
}

int lpi_meta_admin_text(struct lpi_request *request, struct lp_reader *reader)
{
	struct lp_wire_text text;
	if (!lp_wire_part(reader, lp_wire_text, &text) || text.text_bytes > LP_WIRE_PATH_MAX)
		return -EINVAL;
	const char *bytes = lp_wire_bytes(reader, text.text_bytes);
	if (bytes == NULL)
		return -EINVAL;
	request->admin.opcode = request->header.opcode;
	request->admin.text = (struct lp_bytes){bytes, text.text_bytes};
	return 0;
}

int lpi_meta_explain(struct lpi_request *request, struct lp_reader *reader)
{
	const uint8_t *ref = lp_reader_bytes(reader, LP_WIRE_REF_SIZE);
	if (ref == NULL)
		return -EINVAL;
	int r = lpi_read_ref(request, LPI_REF_INO, ref, reader);
	request->admin.opcode = request->header.opcode;
	request->admin.text = request->refs[0].path;
	return r;
}

void lpi_run_admin(struct lpi_request *request)
{
	const struct lp_door_options *options = &request->door->options;
	if (options->admin == NULL) {
		lpi_request_fail(request, -ENOSYS, "there is no administration here");
		return;
	}
	request->admin.request = request;
	request->admin.ino = request->refs[0].found;
	options->admin(options->arg, &request->admin);
}

static void queue_value(struct lpi_request *request, struct lpi_piece *piece, const char *text,
			size_t len, bool more)
{
	const struct lp_wire_value value = {.value_bytes = (uint32_t)len};
	lp_wire_value_encode(&value, piece->reply.rest->data);
	memcpy(piece->reply.rest->data + LP_WIRE_VALUE_SIZE, text, len);
	request->admin_replies++;
	lpi_piece_queue(piece, LP_WIRE_VALUE_SIZE + (uint32_t)len, more);
}

/* All parts get their buffers before the first is queued: the answer is whole or an error. One part
 * is out of the request's share; the others count as data to be sent. */
static int take_parts(struct lpi_request *request, size_t part_cnt, struct lpi_piece **parts)
{
	size_t cnt = 0;
	bool has_room =
		part_cnt == 1 || lpi_piece_budget(&request->piece, (part_cnt - 1) * LP_BUF_MEDIUM);
	for (; has_room && cnt < part_cnt; cnt++) {
		struct lpi_piece *piece =
			cnt + 1 == part_cnt ? &request->piece : lpi_piece_new(request);
		if (piece == NULL)
			break;
		parts[cnt] = piece;
		piece->reply.rest = lp_buf_new(request->door->admin_bufs, LP_BUF_MEDIUM);
		if (piece->reply.rest == NULL)
			piece->reply.rest = lpi_request_buf(request, LP_BUF_MEDIUM);
		if (piece->reply.rest == NULL) {
			cnt++;
			break;
		}
	}
	if (cnt == part_cnt && request->piece.reply.rest != NULL)
		return 0;
	for (size_t i = 0; i < cnt && i + 1 < part_cnt; i++)
		lpi_piece_free(parts[i]);
	lpi_piece_free(&request->piece);
	/* Otherwise its own answers take the room, and no other connection is to blame. */
	if (request->conn->reply_bytes == 0)
		lpi_door_note_refused(request->door);
	return -EAGAIN;
}

void lpi_admin_sent(struct lpi_request *request, struct lpi_piece *piece)
{
	/* An error has one reply, which is not counted. */
	if (request->admin_replies > 0)
		request->admin_replies--;
	if (piece != &request->piece)
		lpi_piece_free(piece);
	if (request->admin_replies == 0)
		lpi_request_end(request);
}

void lp_door_answer_admin(struct lp_door *door, struct lp_admin *admin, int result,
			  const char *text, size_t len)
{
	struct lpi_request *request = admin->request;
	struct lpi_piece *parts[LPI_ADMIN_PARTS];
	char why[LP_WIRE_TEXT_MAX + 1];
	size_t part_cnt = len == 0 ? 1 : (len + LP_WIRE_PART_MAX - 1) / LP_WIRE_PART_MAX;
	LP_ASSERT(request->door == door);
	if (result < 0) {
		(void)snprintf(why, sizeof(why), "%.*s", (int)LP_MIN(len, (size_t)LP_WIRE_TEXT_MAX),
			       text);
		lpi_request_fail(request, result, why);
		return;
	}
	if (!lpi_conn_is_alive(request->conn))
		part_cnt = 1;
	if (part_cnt > LPI_ADMIN_PARTS || take_parts(request, part_cnt, parts) < 0) {
		lpi_request_fail(request, -EAGAIN, "no room for the answer");
		return;
	}
	for (size_t i = 0; i < part_cnt; i++) {
		size_t at = i * LP_WIRE_PART_MAX;
		size_t part = LP_MIN(len - at, (size_t)LP_WIRE_PART_MAX);
		queue_value(request, parts[i], text + at, part, i + 1 < part_cnt);
	}
}
