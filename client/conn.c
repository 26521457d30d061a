/* SPDX-License-Identifier: Apache-2.0 */
/* A connection's life: DOWN -> CONNECTING -> GREETING -> UP -> DOWN. It is made once and comes up
 * as often as it is needed; `generation` tells one time from another. */
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/error.h"
#include "client/impl.h"

int lpi_link_new(struct lapis *lapis, uint32_t shard, struct lpi_link **ret_conn)
{
	struct lpi_link *conn = calloc(1, sizeof(*conn));
	if (conn == NULL)
		return -ENOMEM;
	conn->in = malloc(LPI_READ_BYTES);
	if (conn->in == NULL) {
		free(conn);
		return -ENOMEM;
	}
	conn->lapis = lapis;
	conn->fd = -1;
	conn->share_fd = -1;
	conn->shard = shard;
	lpi_ops_init(&conn->queue);
	lpi_ops_init(&conn->sending);
	*ret_conn = conn;
	return 0;
}

void lpi_link_free(struct lpi_link *conn)
{
	if (conn == NULL)
		return;
	LP_ASSERT(conn->state == LPI_STATE_DOWN);
	free(conn->piece);
	free(conn->in);
	free(conn);
}

/* --- Going down ------------------------------------------------------------------------------- */

static bool is_any_up(const struct lapis *lapis, const struct lpi_link *but)
{
	for (uint32_t i = 0; i < lapis->conn_cnt; i++) {
		if (lapis->conns[i] != but && lapis->conns[i]->state == LPI_STATE_UP)
			return true;
	}
	return false;
}

/* Whoever has ended and whose callback is still to come does not ask any more. */
static bool is_anything_asked(const struct lapis *lapis)
{
	const struct lpi_op *op;
	LP_LIST_FOREACH (lpi_all, &lapis->all, op) {
		if (op->place != LPI_PLACE_DONE)
			return true;
	}
	return false;
}

/* How long a connection is tried again is the time of those who want one: a handle at rest that
 * loses it tries nothing, and who asks an hour later has all of it. */
static void start_clock(struct lpi_link *conn)
{
	struct lapis *lapis = conn->lapis;
	if (lapis->down_ns == 0 && !is_any_up(lapis, conn) && is_anything_asked(lapis))
		lapis->down_ns = lpi_now(lapis);
}

static void note_failure(struct lpi_link *conn, int err, const char *text)
{
	struct lapis *lapis = conn->lapis;
	uint64_t now = lpi_now(lapis);
	lapis->failure = err;
	(void)snprintf(lapis->failure_text, sizeof(lapis->failure_text), "%.*s",
		       (int)sizeof(lapis->failure_text) - 1, text);
	conn->backoff_ns = conn->backoff_ns == 0 ? LPI_BACKOFF_MIN
						 : LP_MIN(conn->backoff_ns * 2, LPI_BACKOFF_MAX);
	conn->retry_ns = now + conn->backoff_ns;
	if (lapis->ordered_nr != lapis->synced_nr && conn->state == LPI_STATE_UP)
		lapis->lost_ordered = true;
}

/* Of one whose message was wholly handed to the socket. */
static void end_sent(struct lpi_op *op)
{
	struct lapis *lapis = op->lapis;
	op->place = LPI_PLACE_NONE;
	op->conn = NULL;
	if (!op->is_safe) {
		lpi_finish(op, -LAPIS_EUNKNOWN,
			   "the connection broke before the answer came: whether it was done is "
			   "not known (look, then decide)");
		return;
	}
	if (++op->tries >= LPI_LINK_TRIES_MAX) {
		(void)lpi_op_printf(op, 0, "the connection broke %u times: %.200s", op->tries,
				    lapis->failure_text);
		lpi_finish(op, -ENOTCONN, op->text);
		return;
	}
	lpi_op_drop_value(op);
	lpi_counter_add(&lapis->counters.retries);
	lpi_wait(op);
}

static void end_unsent(struct lpi_op *op)
{
	if (op->is_stub) {
		lpi_op_free(op);
		return;
	}
	op->place = LPI_PLACE_NONE;
	op->conn = NULL;
	lpi_wait(op);
}

static void end_all(struct lpi_link *conn)
{
	struct lpi_op *op;
	for (uint32_t i = 0; i < conn->credits; i++) {
		struct lpi_credit *slot = &conn->slots[i];
		if (slot->is_busy && slot->op != NULL && slot->op->place == LPI_PLACE_SENT)
			end_sent(slot->op);
	}
	while ((op = lpi_ops_pop_front(&conn->sending)) != NULL)
		end_unsent(op);
	while ((op = lpi_ops_pop_front(&conn->queue)) != NULL)
		end_unsent(op);
}

/* Not for ever. */
static void ask_elsewhere(struct lpi_op *op, const uint8_t *text, uint32_t len)
{
	if (++op->tries < LPI_LINK_TRIES_MAX) {
		lpi_counter_add(&op->lapis->counters.retries);
		lpi_wait(op);
		return;
	}
	(void)lpi_op_printf(op, 0, "the daemon ended the connection %u times: %.*s", op->tries,
			    (int)LP_MIN(len, (uint32_t)LP_WIRE_TEXT_MAX), (const char *)text);
	lpi_finish(op, -EUSERS, op->text);
}

/* The daemon ends the connection for want of places, when nothing that it has read is unanswered:
 * what is, it has not read, and none of that was done. */
void lpi_link_turned_away(struct lpi_link *conn, const uint8_t *text)
{
	for (uint32_t i = 0; i < conn->credits; i++) {
		struct lpi_credit *slot = &conn->slots[i];
		if (slot->is_busy && slot->op != NULL && slot->op->place == LPI_PLACE_SENT) {
			struct lpi_op *op = slot->op;
			slot->op = NULL;
			op->place = LPI_PLACE_NONE;
			op->conn = NULL;
			lpi_op_drop_value(op);
			ask_elsewhere(op, text, conn->header.meta_bytes);
		}
	}
	lpi_link_fail(conn, -EUSERS, "the daemon ended the connection: %.*s",
		      (int)LP_MIN(conn->header.meta_bytes, LP_WIRE_TEXT_MAX), (const char *)text);
}

void lpi_link_fail(struct lpi_link *conn, int err, const char *fmt, ...)
{
	char text[LPI_TEXT_MAX];
	va_list ap;
	if (conn->state == LPI_STATE_DOWN)
		return;
	va_start(ap, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	note_failure(conn, err, text);
	conn->state = LPI_STATE_DOWN;
	/* Nothing was promised about what close() would say. */
	if (conn->fd >= 0)
		(void)close(conn->fd);
	conn->fd = -1;
	lpi_shared_drop(conn);
	end_all(conn);
	start_clock(conn);
	free(conn->slots);
	free(conn->free_slots);
	conn->slots = NULL;
	conn->free_slots = NULL;
	conn->credits = 0;
	conn->slots_used = 0;
	conn->bytes_used = 0;
	conn->sent_bytes = 0;
	conn->in_pos = 0;
	conn->in_end = 0;
	conn->in_data = false;
	conn->wants_out = false;
	conn->generation++;
}

/* --- Coming up -------------------------------------------------------------------------------- */

static size_t encode_hello(const struct lpi_link *conn, uint8_t *buf, size_t size)
{
	const struct lapis *lapis = conn->lapis;
	const struct lp_wire_hello hello = {
		.version_min = LP_WIRE_VERSION,
		.version_max = LP_WIRE_VERSION,
		.features = LP_WIRE_FEATURE_LONG_META | LP_WIRE_FEATURE_GOES_ON,
		.crc_mode = LP_WIRE_CRC_ALL - lapis->options.crc,
		.credits = lapis->options.credits,
		.shard = conn->shard,
		.name_bytes = (uint16_t)strlen(lapis->name),
	};
	const struct lp_wire_header header = {
		.kind = LP_WIRE_KIND_REQUEST,
		.opcode = LP_WIRE_OP_HELLO,
		.request_id = 1,
		.meta_bytes = LP_WIRE_HELLO_SIZE + hello.name_bytes,
	};
	struct lp_writer writer;
	size_t len = 0;
	lp_writer_init(&writer, buf, size);
	lp_writer_zeros(&writer, LP_WIRE_HEADER_SIZE);
	lp_wire_put_part(&writer, lp_wire_hello, &hello);
	lp_writer_bytes(&writer, lapis->name, hello.name_bytes);
	LP_ASSERT(lp_writer_finish(&writer, &len));
	lp_wire_header_seal(&header, LP_WIRE_CRC_HEADER, buf + LP_WIRE_HEADER_SIZE, buf);
	return len;
}

static void greet(struct lpi_link *conn)
{
	uint8_t buf[LP_WIRE_HEADER_SIZE + LP_WIRE_HELLO_SIZE + sizeof(conn->lapis->name)];
	size_t len = encode_hello(conn, buf, sizeof(buf));
	struct epoll_event event = {.events = EPOLLIN, .data.ptr = conn};
	if (epoll_ctl(conn->lapis->epoll_fd, EPOLL_CTL_MOD, conn->fd, &event) < 0) {
		lpi_link_fail(conn, -errno, "the socket cannot be watched");
		return;
	}
	/* A new socket has room for so little. */
	if (send(conn->fd, buf, len, MSG_NOSIGNAL | MSG_DONTWAIT) != (ssize_t)len)
		lpi_link_fail(conn, -ENOTCONN, "the greeting could not be sent");
	else
		conn->state = LPI_STATE_GREETING;
	/* Until the daemon has agreed to more. */
	conn->meta_max = LP_WIRE_META_MAX;
}

static void refused(struct lpi_link *conn, int err)
{
	/* ENOENT would say that what was asked for is not there. */
	lpi_link_fail(conn, -ENOTCONN, "no connection to %s: %s (is lapisd running there?)",
		      conn->lapis->address_text, lp_strerror(err));
}

/* 0, also when it is still to be seen. */
static int connect_to(struct lpi_link *conn, const struct lpi_address *address)
{
	struct lapis *lapis = conn->lapis;
	int one = 1;
	int family = address->storage.ss_family;
	conn->deadline_ns = lapis->run_ns + lapis->options.connect_ms * LP_NS_PER_MS;
	conn->fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	struct epoll_event event = {.events = EPOLLOUT, .data.ptr = conn};
	if (conn->fd < 0 || epoll_ctl(lapis->epoll_fd, EPOLL_CTL_ADD, conn->fd, &event) < 0)
		return -errno;
	if (family != AF_UNIX)
		/* Slower without, but not wrong. */
		(void)setsockopt(conn->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	int err = connect(conn->fd, (const struct sockaddr *)&address->storage, address->len);
	/* EAGAIN: the queue of a unix socket is full: it is tried again, has_given_up(). */
	if (err < 0 && errno != EINPROGRESS)
		return -errno;
	if (err == 0)
		greet(conn);
	return 0;
}

/* The one that did not work has said `err`: the next one, or the end. */
static void try_next(struct lpi_link *conn, int err)
{
	struct lapis *lapis = conn->lapis;
	while (err < 0 && conn->address_left > 0) {
		if (conn->fd >= 0)
			(void)close(conn->fd);
		conn->address_left--;
		conn->address_idx = (conn->address_idx + 1) % lapis->address_cnt;
		err = connect_to(conn, &lapis->addresses[conn->address_idx]);
	}
	if (err == -EAGAIN)
		lpi_link_fail(conn, err, "no connection to %s: too many wait there to be let in",
			      lapis->address_text);
	else if (err < 0)
		refused(conn, err);
}

static void connected(struct lpi_link *conn)
{
	int err = 0;
	socklen_t len = sizeof(err);
	if (getsockopt(conn->fd, SOL_SOCKET, SO_ERROR, &err, &len) < 0)
		err = errno;
	if (err != 0)
		try_next(conn, -err);
	else
		greet(conn);
}

void lpi_link_connect(struct lpi_link *conn)
{
	struct lapis *lapis = conn->lapis;
	LP_ASSERT(conn->state == LPI_STATE_DOWN);
	conn->state = LPI_STATE_CONNECTING;
	conn->generation++;
	conn->next_wire = 1;
	conn->address_idx = lapis->address_idx;
	conn->address_left = lapis->address_cnt - 1;
	try_next(conn, connect_to(conn, &lapis->addresses[conn->address_idx]));
}

void lpi_link_expire(struct lpi_link *conn)
{
	if (conn->state == LPI_STATE_CONNECTING && conn->address_left > 0)
		try_next(conn, -ETIMEDOUT);
	else
		lpi_link_fail(conn, -ETIMEDOUT, "no answer from %s within %u ms",
			      conn->lapis->address_text, conn->lapis->options.connect_ms);
}

void lpi_link_event(struct lpi_link *conn, uint32_t events)
{
	if (conn->state == LPI_STATE_CONNECTING) {
		connected(conn);
		return;
	}
	if (events & (EPOLLIN | EPOLLHUP | EPOLLERR))
		lpi_link_receive(conn);
	if (events & EPOLLOUT)
		lpi_link_flush(conn);
}
