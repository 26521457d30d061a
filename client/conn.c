/* SPDX-License-Identifier: Apache-2.0 */
/* A connection's life: DOWN -> CONNECTING -> GREETING -> UP -> DOWN. It is made once and comes up
 * as often as it is needed; `generation` tells one time from another. Here it comes up, and takes
 * what epoll says; how it goes down is in down.c. */
#include <netinet/tcp.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/error.h"
#include "client/connection.h"
#include "client/handle.h"

#define LAST_ROUNDS 64 /* of receiving from a connection that takes nothing any more */

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

/* The daemon has closed: what it had answered before that has come, and counts. */
static void take_last(struct lpi_link *conn)
{
	for (int i = 0; i < LAST_ROUNDS && conn->state == LPI_STATE_UP; i++)
		lpi_link_receive(conn);
}

void lpi_link_send(struct lpi_link *conn)
{
	int err = lpi_link_flush(conn);
	if (err == 0)
		return;
	take_last(conn);
	lpi_link_fail(conn, err, "cannot send: %s", lp_strerror(err));
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
		lpi_link_send(conn);
}
