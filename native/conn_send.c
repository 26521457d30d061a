/* SPDX-License-Identifier: Apache-2.0 */
/* Sending. Replies queue up during a turn (conn_turn.c); when the next begins, all queued replies
 * of a socket go in one send, one send at a time. A reply is done when the kernel has all of it. */
#include <liburing.h>

#include "native/door_impl.h"

static uint64_t reply_bytes(const struct lpi_reply *reply)
{
	return (uint64_t)LP_WIRE_HEADER_SIZE + reply->rest_bytes + reply->data_bytes;
}

void lpi_conn_drop_replies(struct lpi_conn *conn)
{
	struct lpi_reply *reply = NULL;
	LP_ASSERT(lp_io_is_idle(&conn->send_io));
	while ((reply = lpi_reply_list_pop_front(&conn->replies)) != NULL)
		lpi_reply_done(reply);
}

/* --- Signs ------------------------------------------------------------------------------------ */

/* A client waits only a limited time for an answer. While a long request progresses, signs tell the
 * client so; otherwise it could not tell it from one that hangs. One sign is under way at a time,
 * so a client that reads none gets no more. */
static void give_sign(struct lpi_request *request)
{
	uint64_t now_ns = lpi_door_now_ns(request->door);
	uint64_t steps = request->opcode->steps(request);
	uint64_t since_ns = LP_MAX(request->began_ns, request->sign.at_ns);
	if (request->sign.is_out || steps == request->sign.steps || now_ns - since_ns < LPI_SIGN_NS)
		return;
	struct lpi_piece *piece = lpi_piece_new(request);
	if (piece == NULL) /* none is left; it is tried again at the next tick */
		return;
	request->sign.steps = steps;
	request->sign.at_ns = now_ns;
	request->sign.is_out = true;
	lpi_piece_queue(piece, 0, true);
}

void lpi_conn_give_signs(struct lpi_conn *conn)
{
	struct lpi_request *request = NULL;
	if (!conn->hears_signs)
		return;
	LP_LIST_FOREACH (lpi_request_list, &conn->requests, request) {
		if (lp_sm_state(&request->sm) == LPI_REQUEST_WORK && request->opcode->steps != NULL)
			give_sign(request);
	}
}

void lpi_sent_sign(struct lpi_request *request, struct lpi_piece *piece)
{
	if (piece == &request->piece) {
		request->sign.is_end = true;
	} else {
		lpi_piece_free(piece);
		request->sign.is_out = false;
	}
	/* If the client is gone, the last reply may have been dropped while a sign was being
	 * sent. */
	if (request->sign.is_end && !request->sign.is_out)
		lpi_request_end(request);
}

/* --- Sending ---------------------------------------------------------------------------------- */

/* The vectors of one send, of at most LPI_IOVS. */
struct gather {
	struct lpi_conn *conn;
	uint32_t cnt;
	uint64_t bytes;
	uint64_t skip; /* bytes of these that were sent already */
};

/* False: the vectors are full. */
static bool add(struct gather *gather, uint8_t *data, uint32_t len)
{
	struct iovec *last = gather->cnt > 0 ? &gather->conn->iovs[gather->cnt - 1] : NULL;
	if (gather->skip >= len) {
		gather->skip -= len;
		return true;
	}
	data += gather->skip;
	len -= (uint32_t)gather->skip;
	gather->skip = 0;
	gather->bytes += len;
	if (last != NULL && (uint8_t *)last->iov_base + last->iov_len == data) {
		last->iov_len += len;
		return true;
	}
	if (gather->cnt == LPI_IOVS) {
		gather->bytes -= len;
		return false;
	}
	gather->conn->iovs[gather->cnt++] = (struct iovec){data, len};
	return true;
}

static bool add_reply(struct gather *gather, struct lpi_reply *reply)
{
	uint32_t inline_bytes = reply->rest == NULL ? reply->rest_bytes : 0;
	if (!add(gather, reply->head, LP_WIRE_HEADER_SIZE + inline_bytes))
		return false;
	if (reply->rest != NULL && !add(gather, reply->rest->data, reply->rest_bytes))
		return false;
	for (uint32_t i = 0; i < reply->seg_cnt; i++) {
		const struct lp_seg *seg = &reply->segs[i];
		if (!add(gather, seg->buf->data + seg->offset, seg->len))
			return false;
	}
	return true;
}

static void keep_pace(struct lpi_conn *conn, uint64_t bytes, bool is_all)
{
	conn->send_paced_bytes += bytes;
	if (!is_all && conn->send_paced_bytes < LPI_PACE_BYTES)
		return;
	conn->send_pace_ns = is_all ? 0 : lpi_door_now_ns(conn->door);
	conn->send_paced_bytes = 0;
}

static void sent(struct lp_io *io)
{
	struct lpi_conn *conn = LP_CONTAINER_OF(io, struct lpi_conn, send_io);
	struct lp_door *door = conn->door;
	struct lpi_reply *reply = NULL;
	if (io->result < 0 && io->result != -EAGAIN && io->result != -EINTR) {
		lpi_conn_end(conn);
		return;
	}
	uint64_t bytes = io->result > 0 ? (uint64_t)io->result : 0;
	door->stats.sent_bytes += bytes;
	if (io->result > 0 && conn->msg.msg_controllen > 0)
		lpi_share_sent(conn->share);
	bytes += conn->first_sent_bytes;
	while ((reply = lpi_reply_list_first(&conn->replies)) != NULL &&
	       bytes >= reply_bytes(reply)) {
		bytes -= reply_bytes(reply);
		lpi_reply_list_remove(reply);
		lpi_reply_done(reply);
	}
	keep_pace(conn, io->result > 0 ? (uint64_t)io->result : 0, reply == NULL);
	conn->first_sent_bytes = bytes;
	if (reply != NULL && !lpi_send_list_is_linked(conn))
		lpi_send_list_push_back(&door->sendable, conn);
}

void lpi_conn_send(struct lpi_conn *conn)
{
	struct lp_door *door = conn->door;
	struct gather gather = {.conn = conn, .skip = conn->first_sent_bytes};
	struct lpi_reply *reply = NULL;
	uint64_t now_ns = lp_clock_mono_ns(lp_reactor_clock(door->options.reactor));
	LP_ASSERT(lp_io_is_idle(&conn->send_io));
	LP_LIST_FOREACH (lpi_reply_list, &conn->replies, reply) {
		if (reply->is_last)
			lpi_door_note_time(reply->piece->request, now_ns);
		reply->is_last = false;
		if (!add_reply(&gather, reply) || gather.bytes >= LPI_SEND_BYTES ||
		    door->options.without_batching)
			break;
	}
	if (gather.cnt == 0)
		return;
	conn->msg = (struct msghdr){.msg_iov = conn->iovs, .msg_iovlen = gather.cnt};
	if (conn->share != NULL)
		lpi_share_attach(conn->share, &conn->msg);
	conn->send_io.complete = sent;
	conn->send_began_ns = lpi_door_now_ns(door);
	if (conn->send_pace_ns == 0)
		conn->send_pace_ns = conn->send_began_ns;
	door->stats.sends++;
	io_uring_prep_sendmsg(lp_reactor_sqe(door->options.reactor, &conn->send_io), conn->fd,
			      &conn->msg, MSG_NOSIGNAL);
}
