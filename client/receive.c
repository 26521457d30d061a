/* SPDX-License-Identifier: Apache-2.0 */
/* What a connection receives. One readv() takes the rest of the data that is coming, to where it
 * belongs, and behind it whatever messages have come, into the connection's buffer.
 *
 * A message is taken in three steps: header, what is between header and data (which fits into the
 * buffer as a whole), data. Data for a caller's buffer goes there at once; for a callback it is
 * collected, for nothing is handed out that was not verified.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/error.h"
#include "client/connection.h"
#include "client/handle.h"
#include "client/op.h"

#define ROUNDS_MAX 16 /* receives of one connection before another has its turn */

static int fault(struct lpi_link *conn, int err, const char *what)
{
	lpi_link_fail(conn, err, "%s", what);
	return err;
}

/* --- The greeting ----------------------------------------------------------------------------- */

static int take_slots(struct lpi_link *conn, uint32_t credits)
{
	uint32_t cnt = LP_MIN(credits, LPI_CREDITS_MAX);
	conn->slots = calloc(cnt, sizeof(*conn->slots));
	conn->free_slots = calloc(cnt, sizeof(*conn->free_slots));
	if (conn->slots == NULL || conn->free_slots == NULL)
		return -ENOMEM;
	for (uint32_t i = 0; i < cnt; i++)
		conn->free_slots[i] = i;
	/* Only now: who ends the connection looks into so many slots. */
	conn->credits = cnt;
	return 0;
}

static enum lp_wire_crc wanted_mode(const struct lapis *lapis)
{
	return (enum lp_wire_crc)(LP_WIRE_CRC_ALL - lapis->options.crc);
}

static int check_welcome(struct lpi_link *conn, const struct lp_wire_welcome *welcome)
{
	struct lapis *lapis = conn->lapis;
	if (welcome->version != LP_WIRE_VERSION)
		return fault(conn, -EPROTONOSUPPORT, "the daemon speaks no version that we do");
	if (welcome->crc_mode > LP_WIRE_CRC_ALL || welcome->crc_mode < wanted_mode(lapis))
		return fault(conn, -EPROTO, "the daemon gives fewer checksums than were asked for");
	if (welcome->credits == 0 || welcome->shard_cnt == 0 ||
	    welcome->shard >= welcome->shard_cnt ||
	    (welcome->features & ~(uint64_t)LP_WIRE_FEATURE_ALL) != 0)
		return fault(conn, -EPROTO, "the daemon's greeting makes no sense");
	if (lapis->shard_cnt != 0 &&
	    (lapis->uuid[0] != welcome->uuid_low || lapis->uuid[1] != welcome->uuid_high))
		return fault(conn, -ESTALE, "another store answers there now");
	return 0;
}

static void note_shard(struct lpi_link *conn, const struct lp_wire_welcome *welcome)
{
	struct lapis *lapis = conn->lapis;
	lapis->uuid[0] = welcome->uuid_low;
	lapis->uuid[1] = welcome->uuid_high;
	lapis->shard_cnt = welcome->shard_cnt;
	lapis->down_ns = 0;
	lapis->address_idx = conn->address_idx;
	/* Another one than was asked for: that remains the place to ask, so that not every
	 * request for it makes a connection. */
	if (conn->shard == LPI_ANY_SHARD)
		conn->shard = welcome->shard;
	if (conn->shard < LPI_SHARDS_MAX && lapis->by_shard[conn->shard] == NULL)
		lapis->by_shard[conn->shard] = conn;
}

static int take_welcome(struct lpi_link *conn, const uint8_t *meta)
{
	struct lp_reader reader;
	struct lp_wire_welcome welcome;
	const struct lp_wire_header *header = &conn->header;
	lp_reader_init(&reader, meta, header->meta_bytes);
	if (header->opcode != LP_WIRE_OP_HELLO && header->opcode != 0)
		return fault(conn, -EPROTO, "the daemon does not greet");
	if (header->status != 0) {
		lpi_link_fail(conn, header->status < 4096 ? -(int)header->status : -EPROTO,
			      "the daemon refuses: %.*s",
			      (int)LP_MIN(header->meta_bytes, LP_WIRE_TEXT_MAX),
			      (const char *)meta);
		return -EPROTO;
	}
	if (!lp_wire_part(&reader, lp_wire_welcome, &welcome) ||
	    lp_wire_bytes(&reader, welcome.server_bytes) == NULL || lp_wire_end(&reader) < 0)
		return fault(conn, -EPROTO, "the daemon's greeting makes no sense");
	int err = check_welcome(conn, &welcome);
	if (err < 0)
		return err;
	if (take_slots(conn, welcome.credits) < 0)
		return fault(conn, -ENOMEM, "no memory for a connection");
	conn->mode = (enum lp_wire_crc)welcome.crc_mode;
	if ((welcome.features & LP_WIRE_FEATURE_LONG_META) != 0)
		conn->meta_max = LP_WIRE_LONG_META_MAX;
	conn->credit_bytes = welcome.credit_bytes;
	conn->state = LPI_STATE_UP;
	conn->backoff_ns = 0;
	lpi_counter_add(&conn->lapis->counters.connects);
	note_shard(conn, &welcome);
	return 0;
}

/* --- Replies ---------------------------------------------------------------------------------- */

static struct lpi_credit *find_slot(struct lpi_link *conn)
{
	uint64_t id = conn->header.request_id;
	uint32_t idx = (uint32_t)(id % LPI_CREDITS_MAX);
	if (idx >= conn->credits || !conn->slots[idx].is_busy || conn->slots[idx].wire_id != id)
		return NULL;
	return &conn->slots[idx];
}

void lpi_link_give_up(struct lpi_link *conn, uint64_t ino, bool is_upload)
{
	struct lpi_op *op = NULL;
	const struct lapis_request request = {
		.op = is_upload ? LAPIS_ABORT : LAPIS_CLOSE, .ino = ino, .timeout_ms = UINT32_MAX};
	/* Without memory it stays open until the connection ends. */
	if (lpi_op_new(conn->lapis, &request, &op) < 0)
		return;
	op->pin = conn;
	op->pin_generation = conn->generation;
	lpi_begin_own(op);
}

/* An open whose caller has gone: nobody would close it. */
static void close_again(struct lpi_link *conn, uint16_t opcode, const uint8_t *meta, uint32_t len)
{
	struct lp_reader reader;
	struct lp_wire_attrs attrs;
	lp_reader_init(&reader, meta, len);
	if (lp_wire_part(&reader, lp_wire_attrs, &attrs))
		lpi_link_give_up(conn, attrs.ino, opcode == LP_WIRE_OP_UPLOAD);
}

static void end_slot(struct lpi_link *conn, struct lpi_credit *slot)
{
	struct lpi_op *op = slot->op;
	lpi_link_free_slot(conn, slot);
	if (op != NULL) {
		op->place = LPI_PLACE_NONE;
		op->conn = NULL;
		op->by = conn;
		op->by_generation = conn->generation;
	}
}

/* The meta of an error is a text; that of a compound says first which guard or change it was. */
static void read_error(struct lpi_op *op, const uint8_t *meta, uint32_t meta_bytes)
{
	struct lp_reader reader;
	struct lp_wire_written written;
	lp_reader_init(&reader, meta, meta_bytes);
	if (op->result.op == LAPIS_COMPOUND && lp_wire_part(&reader, lp_wire_written, &written))
		op->result.failed_idx = written.failed_idx;
	size_t len = LP_MIN(lp_reader_remaining(&reader), (size_t)LP_WIRE_TEXT_MAX);
	(void)lpi_op_printf(op, 0, "%.*s", (int)len, lp_wire_bytes(&reader, (uint32_t)len));
}

static void take_error(struct lpi_link *conn, struct lpi_credit *slot, const uint8_t *meta)
{
	struct lpi_op *op = slot->op;
	uint32_t status = conn->header.status;
	int err = status < 4096 ? -(int)status : -EPROTO;
	uint64_t upload_ino = slot->upload_ino;
	end_slot(conn, slot);
	/* Of a put that was given up: now it is known that its commit was not done. */
	if (op == NULL && upload_ino != 0)
		lpi_link_give_up(conn, upload_ino, true);
	if (op == NULL)
		return;
	read_error(op, meta, conn->header.meta_bytes);
	if (op->text[0] == '\0')
		(void)lpi_op_printf(op, 0, "%s", lp_strerror(err));
	if (err == -ECANCELED && op->has_version)
		(void)lpi_op_printf(op, 0,
				    "the object changed while the connection was lost in "
				    "the middle of reading it (read it again)");
	if (err == -EAGAIN) {
		op->later_ns = lpi_now(op->lapis) +
			       (LPI_BACKOFF_MIN << LP_MIN(op->busy_cnt, LPI_BUSY_SHIFT_MAX));
		op->busy_cnt++;
		lpi_op_drop_value(op);
		op->place = LPI_PLACE_LATER;
		lpi_ops_push_back(&op->lapis->later, op);
		return;
	}
	lpi_finish(op, err, op->text);
}

static void finish_sync(struct lpi_op *op)
{
	struct lapis *lapis = op->lapis;
	lapis->synced_nr = LP_MAX(lapis->synced_nr, op->ordered_nr);
	if (!lapis->lost_ordered) {
		lpi_finish(op, 0, "");
		return;
	}
	lapis->lost_ordered = false;
	lpi_finish(op, -LAPIS_EUNKNOWN,
		   "a connection broke before what was ordered on it was known to be durable");
}

/* A reply without an error and without data. */
static int take_answer(struct lpi_link *conn, struct lpi_credit *slot, const uint8_t *meta)
{
	struct lpi_op *op = slot->op;
	bool more = (conn->header.flags & LP_WIRE_FLAG_MORE) != 0;
	/* It goes on: the time begins anew. */
	if (more && slot->opcode == LP_WIRE_OP_COPY && conn->header.meta_bytes == 0) {
		if (op != NULL)
			lpi_arm(op);
		return 0;
	}
	if (more && slot->opcode < LP_WIRE_OP_STATUS)
		return fault(conn, -EPROTO, "an answer in parts, where there must be one");
	int err = op == NULL ? 0 : lpi_reply_decode(op, meta, conn->header.meta_bytes);
	if (err == -EPROTO)
		return fault(conn, -EPROTO, "an answer does not fit its request");
	if (op != NULL && err == 0 && more) {
		lpi_arm(op);
		return 0;
	}
	if (more) {
		if (op != NULL) {
			(void)lpi_link_forget(op);
			lpi_finish(op, err, "no memory for the answer");
		}
		return 0;
	}
	bool close = op == NULL && slot->opens;
	uint16_t opcode = slot->opcode;
	end_slot(conn, slot);
	if (close)
		close_again(conn, opcode, meta, conn->header.meta_bytes);
	if (op == NULL)
		return 0;
	if (op->wire_flags & LP_WIRE_FLAG_ORDERED)
		op->lapis->ordered_nr++;
	if (op->opcode == LP_WIRE_OP_SYNC)
		finish_sync(op);
	else
		lpi_finish(op, err, err < 0 ? "no memory for the answer" : "");
	return 0;
}

/* --- Data ------------------------------------------------------------------------------------- */

static void finish_get(struct lpi_op *op)
{
	struct lapis_result *result = &op->result;
	uint64_t size = LP_MIN(op->first_bytes, result->object_bytes);
	uint64_t due = size > op->offset ? LP_MIN(size - op->offset, op->length) : 0;
	if (result->data_bytes < due)
		lpi_finish(op, -EPROTO, "the daemon sent less than there is");
	else
		lpi_finish(op, 0, "");
}

static int damaged(const struct lpi_link *conn, struct lpi_op *op)
{
	const struct lp_wire_header *header = &conn->header;
	if (conn->mode != LP_WIRE_CRC_ALL || header->data_bytes == 0)
		return 0;
	uint32_t bad =
		lp_wire_crcs_check(conn->target, header->offset, header->data_bytes, conn->crcs);
	if (header->crc_cnt != 0 && bad == header->crc_cnt)
		return 0;
	return lpi_op_printf(op, LP_CORRUPT_CRC(header->offset, "data of a reply"),
			     "data at offset %llu was damaged on its way here (read it again)",
			     (unsigned long long)header->offset);
}

/* All of a piece is there. */
static void take_data(struct lpi_link *conn)
{
	struct lpi_credit *slot = conn->data_slot;
	struct lpi_op *op = slot->op;
	const struct lp_wire_header *header = &conn->header;
	bool more = (header->flags & LP_WIRE_FLAG_MORE) != 0;
	conn->in_data = false;
	if (op == NULL) {
		if (!more)
			lpi_link_free_slot(conn, slot);
		return;
	}
	int err = conn->is_checked ? 0 : damaged(conn, op);
	if (err == 0 && op->sink != NULL && header->data_bytes > 0) {
		err = op->sink(op->sink_arg, header->offset, conn->target, header->data_bytes);
		if (err < 0)
			(void)lpi_op_printf(op, 0, "whoever reads gave up: %s", lp_strerror(err));
	}
	if (err < 0) {
		(void)lpi_link_forget(op);
		if (!more)
			lpi_link_free_slot(conn, slot);
		lpi_finish(op, err, op->text);
		return;
	}
	op->result.data_bytes += header->data_bytes;
	op->has_version = true;
	/* A reader who pauses may be cut off as often as he likes, if he gets on in between:
	 * further than ever, for one that begins again each time would otherwise do so for ever. */
	if (op->result.data_bytes > op->furthest_bytes) {
		op->furthest_bytes = op->result.data_bytes;
		op->tries = 0;
	}
	if (more) {
		lpi_arm(op);
		return;
	}
	end_slot(conn, slot);
	finish_get(op);
}

/* It was damaged, or read when the daemon had already ended the connection: then that is seen when
 * all has been received that came before. */
static void ask_again(struct lpi_link *conn, struct lpi_op *op, const char *why)
{
	(void)lpi_link_forget(op);
	if (++op->tries < LPI_LINK_TRIES_MAX) {
		lpi_counter_add(&op->lapis->counters.retries);
		lpi_wait(op);
		return;
	}
	int err = LP_CORRUPT_CRC(conn->header.offset, "data in shared memory");
	lpi_finish(op, lpi_op_printf(op, err, "%s, %u times", why, op->tries), op->text);
}

/* What it brings is there already. */
static int take_shared(struct lpi_link *conn, const uint8_t *rest)
{
	struct lpi_op *op = conn->data_slot->op;
	const char *why = "";
	int err = lpi_shared_take(conn, rest, op != NULL, &why);
	if (err < 0 && (err != -EBADMSG || op == NULL))
		return fault(conn, err, why);
	if (err < 0)
		ask_again(conn, op, why);
	conn->target_bytes = conn->header.data_bytes;
	conn->is_checked = true;
	return 0;
}

static int begin_data(struct lpi_link *conn, struct lpi_credit *slot, const uint8_t *rest)
{
	const struct lp_wire_header *header = &conn->header;
	struct lpi_op *op = slot->op;
	bool is_shared = (header->flags & LP_WIRE_FLAG_SHARED) != 0;
	uint32_t meta_bytes = header->meta_bytes;
	if (is_shared)
		meta_bytes = LP_MIN(meta_bytes, (uint32_t)LP_WIRE_GOT_SIZE);
	if (op != NULL) {
		uint64_t got = op->result.data_bytes;
		if (header->data_bytes > 0 && header->offset != op->offset + got)
			return fault(conn, -EPROTO, "data that does not follow on what was there");
		if (header->data_bytes > op->length - got)
			return fault(conn, -EPROTO, "more data than was asked for");
		/* The version is that of the first piece: who puts back what he has read, if it is
		 * still of this version, must not overwrite what came between two pieces. */
		uint64_t version = op->result.version;
		if (lpi_reply_decode(op, rest, meta_bytes) < 0)
			return fault(conn, -EPROTO, "an answer does not fit its request");
		if (op->has_version)
			op->result.version = version;
		if (got == 0)
			op->first_bytes = op->result.object_bytes;
	}
	bool direct = op != NULL && op->sink == NULL;
	if (!direct && lpi_link_piece_new(conn) < 0)
		return fault(conn, -ENOMEM, "no memory to receive into");
	conn->target = direct && op->buf != NULL ? op->buf + op->result.data_bytes : conn->piece;
	lp_wire_crcs_decode(rest + header->meta_bytes, header->crc_cnt, conn->crcs);
	conn->data_slot = slot;
	conn->target_bytes = 0;
	conn->is_checked = false;
	conn->in_data = true;
	if ((header->flags & LP_WIRE_FLAG_MORE) != 0 || header->data_bytes >= LPI_SHARE_FROM)
		lpi_shared_ask(conn);
	return is_shared ? take_shared(conn, rest) : 0;
}

/* --- Messages --------------------------------------------------------------------------------- */

static int take_rest(struct lpi_link *conn, const uint8_t *rest)
{
	const struct lp_wire_header *header = &conn->header;
	if (conn->state == LPI_STATE_GREETING)
		return take_welcome(conn, rest);
	lpi_counter_add(&conn->lapis->counters.received);
	if (header->opcode == 0 && header->status == EUSERS) {
		lpi_link_turned_away(conn, rest);
		return -EUSERS;
	}
	if (header->opcode == 0) {
		lpi_link_fail(conn, -EPROTO, "the daemon does not understand: %.*s",
			      (int)LP_MIN(header->meta_bytes, LP_WIRE_TEXT_MAX),
			      (const char *)rest);
		return -EPROTO;
	}
	if (header->opcode == LP_WIRE_OP_SHARE) {
		int err = lpi_shared_answer(conn, rest);
		return err < 0 ? fault(conn, err, "memory that cannot be shared") : 0;
	}
	struct lpi_credit *slot = find_slot(conn);
	if (slot == NULL || slot->opcode != header->opcode ||
	    (slot->op != NULL && slot->op->place != LPI_PLACE_SENT))
		return fault(conn, -EPROTO, "an answer to what was not asked");
	if (slot->op != NULL)
		lpi_route_learn(slot->op, header->shard);
	if (header->status != 0 && header->data_bytes == 0 &&
	    !(header->flags & LP_WIRE_FLAG_MORE)) {
		take_error(conn, slot, rest);
		return 0;
	}
	bool is_shared = (header->flags & LP_WIRE_FLAG_SHARED) != 0;
	bool is_got = header->status == 0 && slot->opcode == LP_WIRE_OP_GET;
	if (is_shared &&
	    (!is_got || header->data_bytes == 0 || header->meta_bytes < LP_WIRE_GOT_SIZE))
		return fault(conn, -EPROTO, "shared data where there is none");
	if (is_got)
		return begin_data(conn, slot, rest);
	if (header->status != 0 || header->data_bytes > 0)
		return fault(conn, -EPROTO, "data where there must be none");
	return take_answer(conn, slot, rest);
}

static int take_header(struct lpi_link *conn, const uint8_t *bytes)
{
	const char *why = NULL;
	enum lp_wire_crc mode = conn->state == LPI_STATE_GREETING ? LP_WIRE_CRC_HEADER : conn->mode;
	int err = lp_wire_header_read(bytes, mode, conn->meta_max, &conn->header, &why);
	if (err < 0)
		return fault(conn, err, why);
	if (conn->header.kind != LP_WIRE_KIND_REPLY ||
	    conn->header.data_bytes > LP_WIRE_PIECE_MAX || conn->header.crc_cnt > LP_WIRE_CRCS_MAX)
		return fault(conn, -EPROTO, "the daemon sends what is not a reply");
	if (conn->header.flags & ~(LP_WIRE_FLAG_MORE | LP_WIRE_FLAG_SHARED))
		return fault(conn, -EPROTO, "a reply with flags that are not known here");
	return 0;
}

/* 1: one message, or its part before the data, was taken; 0: more bytes are needed. */
static int take_message(struct lpi_link *conn)
{
	const uint8_t *at = conn->in + conn->in_pos;
	size_t len = conn->in_end - conn->in_pos;
	if (len < LP_WIRE_HEADER_SIZE)
		return 0;
	int err = take_header(conn, at);
	if (err < 0)
		return err;
	size_t whole = LP_WIRE_HEADER_SIZE + lp_wire_rest_bytes(&conn->header);
	if (len < whole)
		return 0;
	enum lp_wire_crc mode = conn->state == LPI_STATE_GREETING ? LP_WIRE_CRC_HEADER : conn->mode;
	if (lp_wire_rest_check(&conn->header, mode, at + LP_WIRE_HEADER_SIZE) < 0)
		return fault(conn, -EBADMSG, "a reply was damaged on its way here");
	conn->in_pos += whole;
	err = take_rest(conn, at + LP_WIRE_HEADER_SIZE);
	return err < 0 ? err : 1;
}

static void take_target(struct lpi_link *conn)
{
	uint32_t len = LP_MIN(conn->header.data_bytes - conn->target_bytes,
			      (uint32_t)(conn->in_end - conn->in_pos));
	if (len > 0)
		memcpy(conn->target + conn->target_bytes, conn->in + conn->in_pos, len);
	conn->target_bytes += len;
	conn->in_pos += len;
}

static void take_all(struct lpi_link *conn)
{
	while (conn->state >= LPI_STATE_GREETING) {
		if (conn->in_data) {
			take_target(conn);
			if (conn->target_bytes < conn->header.data_bytes)
				break;
			take_data(conn);
		} else if (take_message(conn) <= 0) {
			break;
		}
	}
	if (conn->in_pos > 0 && conn->state >= LPI_STATE_GREETING) {
		memmove(conn->in, conn->in + conn->in_pos, conn->in_end - conn->in_pos);
		conn->in_end -= conn->in_pos;
		conn->in_pos = 0;
	}
}

void lpi_link_receive(struct lpi_link *conn)
{
	for (int i = 0; i < ROUNDS_MAX && conn->state >= LPI_STATE_GREETING; i++) {
		struct iovec iov[2];
		int cnt = 0;
		size_t wanted = 0;
		if (conn->in_data) {
			wanted = conn->header.data_bytes - conn->target_bytes;
			iov[cnt++] = (struct iovec){conn->target + conn->target_bytes, wanted};
		}
		size_t room = LPI_READ_BYTES - conn->in_end;
		iov[cnt++] = (struct iovec){conn->in + conn->in_end, room};
		bool may_bring_fd = conn->share_state == LPI_SHARE_ASKED;
		ssize_t n = may_bring_fd ? lpi_shared_receive(conn, iov, cnt)
					 : readv(conn->fd, iov, cnt);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			return;
		if (n <= 0) {
			lpi_link_fail(conn, n < 0 ? -errno : -ECONNRESET,
				      "the daemon closed the connection");
			return;
		}
		lpi_counter_add(&conn->lapis->counters.receives);
		size_t direct = LP_MIN((size_t)n, wanted);
		conn->target_bytes += (uint32_t)direct;
		conn->in_end += (size_t)n - direct;
		take_all(conn);
		lpi_shared_release(conn);
		if ((size_t)n < wanted + room)
			return;
	}
}
