/* SPDX-License-Identifier: Apache-2.0 */
/* Receiving. A message is taken as its bytes arrive. The header is copied into the connection;
 * meta, checksums and data are copied into the request that the header makes. So only the few bytes
 * of a header are buffered elsewhere. Data is copied once, or not at all where it is received into
 * its place.
 *
 *   HEADER -> (a request, within credits) -> REST -> DATA -> lpi_request_begin() -> HEADER
 *
 * A receive is made only when the socket has something (a poll on the ring says so), into the
 * buffers of the awaited data and then the door's receive buffer. If a step lacks credits, a
 * request or buffers, the rest of the received bytes is set aside. Nothing more is received before
 * these are taken, so the kernel's buffer fills and the client stops. */
#include <poll.h>
#include <stdlib.h>
#include <unistd.h>

#include <liburing.h>

#include "base/crc32c.h"
#include "native/door_impl.h"

#define CHECK_BYTES (64u << 10) /* of a message's data that has come are checked at once */

/* --- When not to read ------------------------------------------------------------------------- */

static void throttle(struct lpi_conn *conn, enum lpi_throttle why)
{
	struct lp_door *door = conn->door;
	conn->throttle = why;
	door->stats.throttled++;
	/* The connection waits for its own requests only. */
	if (why == LPI_THROTTLE_CREDITS) {
		conn->throttled_ns = 0;
		return;
	}
	/* It may be tried many times; it waits for others since the first. */
	if (conn->throttled_ns == 0)
		conn->throttled_ns = lpi_door_now_ns(door);
	conn->waits_for_own = why == LPI_THROTTLE_USER;
	/* Such a connection goes on when its user gives something back, and does not count as
	 * starved. */
	if (why == LPI_THROTTLE_USER) {
		lpi_throttled_list_push_back(&door->capped, conn);
		conn->user->waiting_cnt++;
		return;
	}
	lpi_throttled_list_push_back(&door->throttled, conn);
	/* The pool does not report when a buffer is given back. */
	if (why == LPI_THROTTLE_BUFFERS && !lp_timer_is_armed(&door->retry))
		lp_timer_start(door->options.reactor, &door->retry,
			       lpi_door_now_ns(door) + LP_NS_PER_MS);
}

/* Throttled by a limit of all users together, or of its own user. */
static void throttle_for(struct lpi_conn *conn, enum lpi_quota_kind kind,
			 enum lpi_quota_verdict verdict, enum lpi_throttle why)
{
	if (conn->throttled_ns == 0)
		lpi_conn_note_limit(conn, kind, verdict, false);
	throttle(conn, verdict == LPI_QUOTA_OWN ? LPI_THROTTLE_USER : why);
}

/* Called before the received bytes are parsed: the pace begins anew where a message begins or ends
 * in them. */
static void keep_pace(struct lpi_conn *conn, uint64_t bytes)
{
	bool is_amid = conn->head_bytes > 0 || conn->state == LPI_CONN_GREETING;
	conn->paced_bytes += bytes;
	if (!is_amid || conn->paced_bytes >= LPI_PACE_BYTES)
		lpi_conn_begin_pace(conn);
}

void lpi_conn_say(struct lpi_conn *conn, int err, const char *why)
{
	struct lpi_reply *reply = &conn->last_words;
	size_t len = LP_MIN(strlen(why), (size_t)LP_WIRE_TEXT_MAX);
	struct lp_wire_header header = {
		.kind = LP_WIRE_KIND_REPLY, .status = (uint32_t)-err, .meta_bytes = (uint32_t)len};
	if (lp_list_node_is_linked(&reply->node) || !lpi_conn_is_alive(conn))
		return;
	memcpy(reply->head + LP_WIRE_HEADER_SIZE, why, len);
	reply->rest_bytes = (uint32_t)len;
	lp_wire_header_seal(&header, conn->crc_mode, reply->head + LP_WIRE_HEADER_SIZE,
			    reply->head);
	lpi_conn_queue(conn, reply);
	lpi_conn_finish(conn);
}

void lpi_conn_part(struct lpi_conn *conn, int err, const char *why)
{
	conn->door->stats.bad_messages++;
	lpi_conn_say(conn, err, why);
}

/* --- Parts of a message -------------------------------------------------------------------------
 */

/* Copies received bytes into an incomplete part; returns how many. */
static uint32_t copy_part(uint8_t *to, uint32_t *have, uint32_t want, const uint8_t *bytes,
			  uint32_t len)
{
	uint32_t take = LP_MIN(want - *have, len);
	if (take > 0)
		memcpy(to + *have, bytes, take);
	*have += take;
	return take;
}

/* Checks the header in the connection. An error of this message alone refuses the request, not the
 * connection. */
static void check_request(struct lpi_conn *conn, struct lpi_request *request)
{
	const struct lp_wire_header *header = &request->header;
	uint32_t pieces = lp_wire_piece_cnt(header->offset, header->data_bytes);
	if (request->opcode == NULL)
		lpi_request_refuse(request, -ENOSYS, "this opcode is not known");
	if ((header->flags & ~(uint32_t)LP_WIRE_FLAG_ORDERED) != 0)
		lpi_request_refuse(request, -EOPNOTSUPP, "a flag that is not known");
	if (header->status != 0 || header->shard != 0)
		lpi_request_refuse(request, -EINVAL, "status and shard of a request are 0");
	if (header->data_bytes == 0 && header->offset != 0)
		lpi_request_refuse(request, -EINVAL, "an offset without data");
	if (header->data_bytes > 0 && header->offset > UINT64_MAX - header->data_bytes)
		lpi_request_refuse(request, -EFBIG, "data beyond all files");
	if (request->opcode != NULL && header->data_bytes > 0 && !request->opcode->has_data)
		lpi_request_refuse(request, -EINVAL, "this opcode has no data");
	if (header->crc_cnt != (conn->crc_mode == LP_WIRE_CRC_ALL ? pieces : 0))
		lpi_request_refuse(request, -EINVAL,
				   "checksums of data other than hello agreed on");
}

static bool is_within_credits(const struct lpi_conn *conn)
{
	const struct lp_door *door = conn->door;
	/* A connection may have as many as are left for the others, and the last quarter is only
	 * for connections that have none. So the next one finds a request, and need not wait until
	 * clients that read nothing are closed. */
	uint32_t left = door->options.requests_max - door->under_way;
	uint32_t more_than = LP_MAX(conn->under_way, door->options.requests_max / 4);
	if (conn->under_way >= conn->credits || (conn->under_way > 0 && left <= more_than))
		return false;
	return conn->under_way_bytes == 0 ||
	       conn->under_way_bytes + conn->header.data_bytes <= door->options.credit_bytes_max;
}

/* Takes the buffers for meta and checksums that the header asks for: all of them, or none. */
static bool take_rest_bufs(struct lpi_request *request, uint32_t meta_bytes, uint32_t crc_bytes)
{
	struct lp_bufs *bufs = request->door->options.bufs;
	request->meta_buf = meta_bytes > 0 ? lp_buf_new(bufs, meta_bytes) : NULL;
	request->crcs_buf = crc_bytes > 0 ? lp_buf_new(bufs, crc_bytes) : NULL;
	if ((meta_bytes == 0 || request->meta_buf != NULL) &&
	    (crc_bytes == 0 || request->crcs_buf != NULL))
		return true;
	lp_buf_put(request->meta_buf);
	lp_buf_put(request->crcs_buf);
	request->meta_buf = NULL;
	request->crcs_buf = NULL;
	return false;
}

static uint32_t buf_bytes(uint32_t bytes)
{
	static_assert(LP_WIRE_LONG_META_MAX <= LP_BUF_LARGE && LP_WIRE_CRCS_MAX * 4 <= LP_BUF_LARGE,
		      "one buffer holds them");
	return bytes == 0 ? 0 : lp_buf_size(bytes);
}

/* Takes memory for meta and checksums, and for what the operation will need later. So the request
 * waits here if there is too little, and need not be refused later. */
static bool take_rest(struct lpi_conn *conn, struct lpi_request *request)
{
	uint32_t meta_bytes = request->header.meta_bytes;
	/* One for each piece. For a client that sends none they are computed here. */
	uint32_t crc_cnt = lp_wire_piece_cnt(request->header.offset, request->header.data_bytes);
	uint32_t crc_bytes = crc_cnt > LPI_CRCS_INLINE ? crc_cnt * 4 : 0;
	if (meta_bytes <= LPI_META_INLINE)
		meta_bytes = 0;
	uint32_t held_bytes = buf_bytes(meta_bytes) + buf_bytes(crc_bytes);
	if (request->opcode != NULL)
		held_bytes += request->opcode->held_bytes;
	enum lpi_quota_verdict verdict =
		held_bytes > 0 ? lpi_request_hold(request, held_bytes) : LPI_QUOTA_OK;
	if (verdict != LPI_QUOTA_OK) {
		throttle_for(conn, LPI_QUOTA_META, verdict,
			     conn->held_bytes > 0 ? LPI_THROTTLE_CREDITS : LPI_THROTTLE_BUFFERS);
		return false;
	}
	if (!take_rest_bufs(request, meta_bytes, crc_bytes)) {
		lpi_request_release(request, 0);
		throttle(conn, LPI_THROTTLE_BUFFERS);
		return false;
	}
	conn->throttled_ns = 0;
	request->meta = request->meta_buf != NULL ? request->meta_buf->data : request->meta_inline;
	request->crcs = request->crcs_buf != NULL ? (uint32_t *)(void *)request->crcs_buf->data
						  : request->crcs_inline;
	return true;
}

/* Takes a request for the header in the connection. False: there is none now. */
static bool take_request(struct lpi_conn *conn)
{
	if (!is_within_credits(conn)) {
		throttle(conn, LPI_THROTTLE_CREDITS);
		return false;
	}
	enum lpi_quota_verdict verdict = lpi_quota_ask(&conn->door->quota, conn->user,
						       LPI_QUOTA_REQUESTS, conn->under_way, 1);
	if (verdict != LPI_QUOTA_OK) {
		throttle_for(conn, LPI_QUOTA_REQUESTS, verdict, LPI_THROTTLE_REQUESTS);
		return false;
	}
	conn->coming = lpi_request_new(conn, &conn->header);
	if (conn->coming == NULL) {
		throttle(conn, LPI_THROTTLE_REQUESTS);
		return false;
	}
	conn->throttled_ns = 0;
	check_request(conn, conn->coming);
	conn->part = LPI_PART_REST;
	return true;
}

/* A notice needs no request and no credit. */
static bool take_notice(struct lpi_conn *conn)
{
	const struct lp_wire_header *header = &conn->header;
	bool is_release = header->opcode == LP_WIRE_OP_RELEASE && header->flags == 0 &&
			  header->status == 0 && header->shard == 0 && header->meta_bytes == 0 &&
			  header->data_bytes == 0 && header->crc_cnt == 0;
	if (conn->share == NULL || !is_release ||
	    lpi_share_release(conn->share, header->offset) < 0) {
		lpi_conn_part(conn, -EPROTO, "a notice of what cannot be");
		return false;
	}
	conn->head_bytes = 0;
	lpi_conn_begin_pace(conn);
	return false;
}

/* True: more of the message is to come. */
static bool take_header(struct lpi_conn *conn)
{
	const char *why = "";
	int r = lp_wire_header_read(conn->head, conn->crc_mode, conn->meta_max, &conn->header,
				    &why);
	if (r >= 0 && conn->header.kind == LP_WIRE_KIND_NOTICE)
		return take_notice(conn);
	if (r >= 0 && conn->header.kind != LP_WIRE_KIND_REQUEST) {
		r = -EPROTO;
		why = "a client sends requests";
	}
	if (r >= 0 && conn->state == LPI_CONN_GREETING &&
	    (conn->header.opcode != LP_WIRE_OP_HELLO || conn->header.data_bytes > 0)) {
		r = -EPROTO;
		why = "the first message is a hello";
	}
	if (r < 0) {
		lpi_conn_part(conn, r, why);
		return false;
	}
	return take_request(conn);
}

static bool check_rest(struct lpi_conn *conn, struct lpi_request *request)
{
	const struct lp_wire_header *header = &request->header;
	uint32_t crc = lp_crc32c(0, request->meta, header->meta_bytes);
	uint8_t *crcs = (uint8_t *)request->crcs;
	crc = lp_crc32c(crc, crcs, (size_t)header->crc_cnt * 4);
	if (conn->crc_mode == LP_WIRE_CRC_OFF || lp_wire_rest_bytes(header) == 0)
		crc = 0;
	if (crc != header->meta_crc) {
		lpi_conn_part(conn, -EBADMSG, "the checksum of a meta does not match");
		return false;
	}
	lp_wire_crcs_decode(crcs, header->crc_cnt, request->crcs);
	return true;
}

/* Takes all buffers for the data at once, so that no request waits for one while it holds others.
 * Blocks of the object's grid lie on pages, as devices want it. False: throttled. */
static bool take_segs(struct lpi_conn *conn, struct lpi_request *request)
{
	struct lp_door *door = conn->door;
	uint32_t left = request->header.data_bytes;
	uint32_t skip = request->header.offset % LP_WIRE_BLOCK_BYTES;
	/* A quarter of the room is for small data, which so does not wait behind large data that is
	 * not sent. */
	uint64_t room = door->receiving_bytes_max;
	if (left > LPI_SMALL_BYTES)
		room -= room / 4;
	/* Data of the connection's other requests counts, also when they are already at work. */
	uint64_t has = conn->under_way_bytes - left;
	enum lpi_quota_verdict verdict =
		lpi_quota_ask(&door->quota, conn->user, LPI_QUOTA_COMING, has, left);
	if (verdict == LPI_QUOTA_OK && door->receiving_bytes > 0 &&
	    door->receiving_bytes + left > room)
		verdict = LPI_QUOTA_ALL;
	if (verdict != LPI_QUOTA_OK) {
		throttle_for(conn, LPI_QUOTA_COMING, verdict, LPI_THROTTLE_BUFFERS);
		return false;
	}
	request->seg_cnt = lp_bufs_take(door->options.bufs, left, skip, LP_BUF_REQUEST,
					request->segs, LPI_DATA_SEGS);
	if (request->seg_cnt == 0) {
		throttle(conn, LPI_THROTTLE_BUFFERS);
		return false;
	}
	lpi_conn_force(conn, LPI_QUOTA_COMING, left);
	conn->throttled_ns = 0;
	request->receiving_bytes = request->header.data_bytes;
	door->receiving_bytes += request->receiving_bytes;
	return true;
}

static void drop_stash(struct lpi_conn *conn)
{
	if (conn->stash != NULL)
		lpi_conn_give(conn, LPI_QUOTA_STASH, conn->stash_bytes);
	free(conn->stash);
	conn->stash = NULL;
	conn->stash_bytes = 0;
	conn->stash_at = 0;
}

static struct lpi_request *take_coming(struct lpi_conn *conn)
{
	struct lpi_request *request = conn->coming;
	conn->coming = NULL;
	conn->part = LPI_PART_HEADER;
	conn->head_bytes = 0;
	lpi_conn_begin_pace(conn);
	return request;
}

static void message_ends(struct lpi_conn *conn)
{
	lpi_request_begin(take_coming(conn));
}

void lpi_conn_forget_message(struct lpi_conn *conn)
{
	if (conn->coming != NULL)
		lpi_request_abandon(take_coming(conn));
	conn->throttled_ns = 0;
	drop_stash(conn);
}

static void rest_ends(struct lpi_conn *conn)
{
	struct lpi_request *request = conn->coming;
	if (!check_rest(conn, request))
		return;
	request->received = 0;
	if (request->header.data_bytes == 0) {
		message_ends(conn);
		return;
	}
	conn->part = LPI_PART_DATA;
	lpi_request_move(request, LPI_REQUEST_DATA);
}

/* Meta, then checksums. */
static uint32_t receive_rest(struct lpi_conn *conn, const uint8_t *bytes, uint32_t len)
{
	struct lpi_request *request = conn->coming;
	uint32_t meta_bytes = request->header.meta_bytes;
	uint32_t crc_bytes = request->header.crc_cnt * 4;
	uint32_t used = 0;
	if (request->meta == NULL && !take_rest(conn, request))
		return 0;
	if (request->received < meta_bytes)
		used = copy_part(request->meta, &request->received, meta_bytes, bytes, len);
	if (request->received >= meta_bytes && crc_bytes > 0) {
		uint32_t have = request->received - meta_bytes;
		used += copy_part((uint8_t *)request->crcs, &have, crc_bytes, bytes + used,
				  len - used);
		request->received = meta_bytes + have;
	}
	if (request->received == meta_bytes + crc_bytes)
		rest_ends(conn);
	return used;
}

static void data_came(struct lpi_conn *conn, uint32_t bytes)
{
	struct lpi_request *request = conn->coming;
	request->received += bytes;
	LP_ASSERT(request->received <= request->header.data_bytes);
	if (request->received == request->header.data_bytes)
		message_ends(conn);
	else if (request->received - request->checked >= CHECK_BYTES)
		lpi_request_check(request);
}

/* The parts of the segments that are not filled yet. */
static uint32_t unfilled(const struct lpi_request *request, struct iovec *ret_iovs)
{
	uint32_t skip = request->received;
	uint32_t cnt = 0;
	for (uint32_t i = 0; i < request->seg_cnt; i++) {
		const struct lp_seg *seg = &request->segs[i];
		uint32_t part = LP_MIN(skip, seg->len);
		skip -= part;
		if (part < seg->len)
			ret_iovs[cnt++] = (struct iovec){seg->buf->data + seg->offset + part,
							 seg->len - part};
	}
	return cnt;
}

static uint32_t receive_data(struct lpi_conn *conn, const uint8_t *bytes, uint32_t len)
{
	struct lpi_request *request = conn->coming;
	struct iovec iovs[LPI_DATA_SEGS];
	uint32_t used = LP_MIN(len, request->header.data_bytes - request->received);
	/* The data of a refused request is only read. */
	if (request->refused != 0) {
		data_came(conn, used);
		return used;
	}
	if (request->seg_cnt == 0 && !take_segs(conn, request))
		return 0;
	uint32_t cnt = unfilled(request, iovs);
	uint32_t copied = 0;
	for (uint32_t i = 0; i < cnt && copied < used; i++) {
		size_t part = LP_MIN(iovs[i].iov_len, (size_t)(used - copied));
		memcpy(iovs[i].iov_base, bytes + copied, part);
		copied += (uint32_t)part;
	}
	data_came(conn, used);
	return used;
}

static uint32_t receive_header(struct lpi_conn *conn, const uint8_t *bytes, uint32_t len)
{
	uint32_t used = copy_part(conn->head, &conn->head_bytes, LP_WIRE_HEADER_SIZE, bytes, len);
	if (conn->head_bytes < LP_WIRE_HEADER_SIZE || !take_header(conn))
		return used;
	/* A message that ends with its header. */
	if (lp_wire_rest_bytes(&conn->header) == 0)
		(void)receive_rest(conn, conn->head, 0);
	return used;
}

/* Takes as many of the bytes as it can; returns how many. */
static uint32_t consume(struct lpi_conn *conn, const uint8_t *bytes, uint32_t len)
{
	uint32_t at = 0;
	while (at < len && lpi_conn_may_read(conn)) {
		switch (conn->part) {
		case LPI_PART_HEADER:
			/* A complete header waited for credits or a request. */
			at += receive_header(conn, bytes + at, len - at);
			break;
		case LPI_PART_REST:
			at += receive_rest(conn, bytes + at, len - at);
			break;
		case LPI_PART_DATA:
			at += receive_data(conn, bytes + at, len - at);
			break;
		}
	}
	return at;
}

/* --- The stash -------------------------------------------------------------------------------- */

static void set_aside(struct lpi_conn *conn, const uint8_t *bytes, uint32_t len)
{
	LP_ASSERT(conn->stash == NULL);
	uint8_t *stash = malloc(len);
	if (stash == NULL) {
		lpi_conn_part(conn, -ENOMEM, "no memory");
		return;
	}
	memcpy(stash, bytes, len);
	lpi_conn_keep_stash(conn, stash, len);
}

void lpi_conn_keep_stash(struct lpi_conn *conn, uint8_t *stash, uint32_t bytes)
{
	conn->stash = stash;
	conn->stash_bytes = bytes;
	lpi_conn_force(conn, LPI_QUOTA_STASH, bytes);
}

/* Received bytes may have to be stashed. If the user's stashes, or all stashes, are at their limit,
 * it receives LPI_SIP_BYTES at a time. */
static uint32_t scratch_bytes(struct lpi_conn *conn)
{
	struct lp_door *door = conn->door;
	enum lpi_quota_verdict verdict =
		lpi_quota_ask(&door->quota, conn->user, LPI_QUOTA_STASH, 0, LPI_SCRATCH_BYTES);
	if (verdict == LPI_QUOTA_OK)
		return LPI_SCRATCH_BYTES;
	lpi_conn_note_limit(conn, LPI_QUOTA_STASH, verdict, false);
	return LPI_SIP_BYTES;
}

static void leave(struct lpi_conn *conn, const uint8_t *bytes, uint32_t len)
{
	struct lp_door *door = conn->door;
	struct lpi_request *hello = lpi_request_list_first(&conn->requests);
	LP_ASSERT(hello != NULL);
	uint32_t meta_bytes = hello->header.meta_bytes;
	uint32_t head_bytes = LP_WIRE_HEADER_SIZE + meta_bytes;
	uint8_t *head = malloc((size_t)head_bytes + len);
	if (head != NULL) {
		memcpy(head, conn->head, LP_WIRE_HEADER_SIZE);
		memcpy(head + LP_WIRE_HEADER_SIZE, hello->meta, meta_bytes);
		if (len > 0)
			memcpy(head + head_bytes, bytes, len);
		door->options.hand_over(door->options.arg, conn->leave_to, conn->fd, &conn->peer,
					head, head_bytes + len);
		conn->fd = -1;
		free(head);
	}
	lpi_request_abandon(hello);
	lpi_conn_end(conn);
}

/* Takes received bytes, and stashes those that cannot be taken now. */
static void take_bytes(struct lpi_conn *conn, const uint8_t *bytes, uint32_t len)
{
	uint32_t used = consume(conn, bytes, len);
	if (conn->is_leaving && lpi_conn_is_alive(conn)) {
		leave(conn, bytes + used, len - used);
		return;
	}
	if (used < len && conn->state <= LPI_CONN_SERVING)
		set_aside(conn, bytes + used, len - used);
}

/* True when all of it has been taken. */
static bool take_stash(struct lpi_conn *conn)
{
	uint32_t left = conn->stash_bytes - conn->stash_at;
	uint32_t used = consume(conn, conn->stash + conn->stash_at, left);
	conn->stash_at += used;
	if (conn->is_leaving && lpi_conn_is_alive(conn)) {
		leave(conn, conn->stash + conn->stash_at, left - used);
		drop_stash(conn);
		return false;
	}
	if (used < left && conn->state <= LPI_CONN_SERVING)
		return false;
	drop_stash(conn);
	return lpi_conn_may_read(conn);
}

/* --- One receive --------------------------------------------------------------------------------
 */

/* The first direct_bytes of the received bytes are already in the data's buffers. */
static void sort_received(struct lpi_conn *conn, uint32_t direct_bytes, uint32_t bytes)
{
	uint32_t placed = LP_MIN(direct_bytes, bytes);
	if (placed > 0)
		data_came(conn, placed);
	if (bytes > placed)
		take_bytes(conn, conn->door->scratch, bytes - placed);
}

static void retry_held_up(struct lpi_conn *conn)
{
	if (conn->part == LPI_PART_HEADER)
		(void)receive_header(conn, conn->head, 0);
	else
		(void)receive_rest(conn, conn->head, 0);
}

static void heard(struct lp_io *io)
{
	struct lpi_conn *conn = LP_CONTAINER_OF(io, struct lpi_conn, poll_io);
	ssize_t n = recv(conn->fd, conn->door->scratch, LPI_SCRATCH_BYTES, MSG_DONTWAIT);
	/* The end of its stream counts, too. */
	if (n >= 0 || (errno != EAGAIN && errno != EINTR))
		conn->is_heard = true;
	else
		lpi_conn_hear(conn);
}

void lpi_conn_hear(struct lpi_conn *conn)
{
	if (conn->state != LPI_CONN_PARTING || conn->is_heard)
		return;
	conn->poll_io.complete = heard;
	io_uring_prep_poll_add(lp_reactor_sqe(conn->door->options.reactor, &conn->poll_io),
			       conn->fd, POLLIN);
}

void lpi_conn_receive(struct lpi_conn *conn)
{
	struct lp_door *door = conn->door;
	struct iovec iovs[LPI_DATA_SEGS + 1];
	struct msghdr msg = {.msg_iov = iovs};
	uint32_t direct_bytes = 0;
	if (!lpi_conn_may_read(conn))
		return;
	door->received_ns = lpi_door_now_ns(door);
	if (lpi_conn_is_held_up(conn))
		retry_held_up(conn);
	if (!lpi_conn_may_read(conn) || (conn->stash != NULL && !take_stash(conn)))
		return;
	if (conn->part == LPI_PART_DATA && conn->coming->seg_cnt > 0) {
		msg.msg_iovlen = unfilled(conn->coming, iovs);
		direct_bytes = conn->coming->header.data_bytes - conn->coming->received;
	}
	uint32_t room = scratch_bytes(conn);
	iovs[msg.msg_iovlen++] = (struct iovec){door->scratch, room};
	ssize_t n = recvmsg(conn->fd, &msg, MSG_DONTWAIT);
	door->stats.receives++;
	conn->read_all = n < (ssize_t)direct_bytes + (ssize_t)room;
	if (n > 0) {
		door->received_ns = lp_clock_mono_ns(lp_reactor_clock(door->options.reactor));
		conn->progress_ns = lpi_door_now_ns(door);
		conn->active_ns = conn->progress_ns;
		door->stats.received_bytes += (uint64_t)n;
		keep_pace(conn, (uint64_t)n);
		sort_received(conn, direct_bytes, (uint32_t)n);
	} else if (n == 0) {
		/* The client may still read the answers to its requests. */
		conn->at_end = true;
		lpi_conn_finish(conn);
	} else if (errno != EAGAIN && errno != EINTR) {
		lpi_conn_end(conn);
	}
	lpi_conn_go_on(conn);
}
