/* SPDX-License-Identifier: Apache-2.0 */
/* Each connection goes through these steps: it receives until the head is complete, asks the
 * administration, sends the answer, and is shut down. A timer shuts down the socket of a connection
 * that takes too long; the I/O in flight on it then ends by itself. */
#include "daemon/http.h"

#include <liburing.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/error.h"
#include "base/log.h"
#include "daemon/admin.h"

struct conn {
	struct lpi_http *http;
	int fd;      /* -1: free */
	uint64_t nr; /* in the order in which they were accepted */
	struct lp_io io;
	struct lp_timer timer;
	bool is_asking;
	size_t received;
	size_t sent;
	struct lpi_question question;
	struct lpi_text reply;
	char head[LPI_HTTP_HEAD_MAX + 1];
};

struct lpi_http {
	struct lp_service *service;
	struct lp_listener *listener;
	uint64_t accepted_cnt;
	struct conn conns[LPI_HTTP_CONNS];
};

static void end(struct conn *conn)
{
	lp_timer_stop(conn->http->service->reactor, &conn->timer);
	(void)close(conn->fd); /* errors of sending are ignored */
	lpi_text_fini(&conn->reply);
	lpi_text_fini(&conn->question.answer);
	conn->fd = -1;
}

static void too_late(struct lp_timer *timer)
{
	struct conn *conn = LP_CONTAINER_OF(timer, struct conn, timer);
	(void)shutdown(conn->fd, SHUT_RDWR); /* it may be closed already */
}

/* --- The answer ------------------------------------------------------------------------------- */

static void send_more(struct conn *conn);

static void sent(struct lp_io *io)
{
	struct conn *conn = LP_CONTAINER_OF(io, struct conn, io);
	if (io->result > 0)
		conn->sent += (size_t)io->result;
	if (io->result <= 0 || conn->sent == conn->reply.len)
		end(conn);
	else
		send_more(conn);
}

static void send_more(struct conn *conn)
{
	conn->io.complete = sent;
	struct io_uring_sqe *sqe = lp_reactor_sqe(conn->http->service->reactor, &conn->io);
	io_uring_prep_send(sqe, conn->fd, conn->reply.bytes + conn->sent,
			   conn->reply.len - conn->sent, MSG_NOSIGNAL);
}

static void reply(struct conn *conn, const char *status, const char *body, size_t len)
{
	lpi_text_printf(&conn->reply,
			"HTTP/1.1 %s\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"
			"Content-Length: %zu\r\nConnection: close\r\n\r\n%.*s",
			status, len, (int)len, body);
	if (conn->reply.failed)
		end(conn);
	else
		send_more(conn);
}

static void answered(struct lpi_question *question)
{
	struct conn *conn = LP_CONTAINER_OF(question, struct conn, question);
	conn->is_asking = false;
	if (question->result < 0)
		reply(conn, "503 Service Unavailable", "", 0);
	else
		reply(conn, "200 OK", question->answer.bytes, question->answer.len);
}

static void ask(struct conn *conn)
{
	conn->is_asking = true;
	conn->question = (struct lpi_question){.opcode = LP_WIRE_OP_STATS,
					       .text = "prometheus",
					       .text_len = sizeof("prometheus") - 1,
					       .answered = answered};
	lpi_gather_ask(conn->http->service->gather, &conn->question);
}

/* --- The request ------------------------------------------------------------------------------ */

static void receive(struct conn *conn);

static void take_request(struct conn *conn)
{
	static const char metrics[] = "GET /metrics";
	size_t len = sizeof(metrics) - 1;
	if (strncmp(conn->head, "GET ", 4) != 0)
		reply(conn, "405 Method Not Allowed", "only GET\n", 9);
	else if (strncmp(conn->head, metrics, len) == 0 &&
		 (conn->head[len] == ' ' || conn->head[len] == '?'))
		ask(conn);
	else
		reply(conn, "404 Not Found", "only /metrics\n", 14);
}

static void received(struct lp_io *io)
{
	struct conn *conn = LP_CONTAINER_OF(io, struct conn, io);
	if (io->result <= 0) {
		end(conn);
		return;
	}
	conn->received += (size_t)io->result;
	conn->head[conn->received] = '\0';
	if (strstr(conn->head, "\r\n\r\n") != NULL)
		take_request(conn);
	else if (conn->received == LPI_HTTP_HEAD_MAX)
		reply(conn, "431 Request Header Fields Too Large", "", 0);
	else
		receive(conn);
}

static void receive(struct conn *conn)
{
	conn->io.complete = received;
	struct io_uring_sqe *sqe = lp_reactor_sqe(conn->http->service->reactor, &conn->io);
	io_uring_prep_recv(sqe, conn->fd, conn->head + conn->received,
			   LPI_HTTP_HEAD_MAX - conn->received, 0);
}

/* Keeps the last place free of connections that have sent no request: the oldest of those is
 * closed. */
static void make_room(struct lpi_http *http)
{
	struct conn *oldest = NULL;
	for (uint32_t i = 0; i < LPI_HTTP_CONNS; i++) {
		struct conn *conn = &http->conns[i];
		if (conn->fd < 0)
			return;
		if (!conn->is_asking && conn->reply.len == 0 &&
		    (oldest == NULL || conn->nr < oldest->nr))
			oldest = conn;
	}
	if (oldest != NULL)
		too_late(&oldest->timer);
}

static void accepted(void *arg, int fd, const struct lp_peer *peer)
{
	struct lpi_http *http = arg;
	struct lp_reactor *reactor = http->service->reactor;
	(void)peer;
	for (uint32_t i = 0; i < LPI_HTTP_CONNS; i++) {
		struct conn *conn = &http->conns[i];
		if (conn->fd >= 0)
			continue;
		conn->fd = fd;
		conn->nr = ++http->accepted_cnt;
		conn->received = 0;
		conn->sent = 0;
		lp_timer_start(reactor, &conn->timer,
			       lp_reactor_now_ns(reactor) + LPI_HTTP_TIMEOUT_NS);
		receive(conn);
		make_room(http);
		return;
	}
	(void)close(fd); /* nothing was written */
}

/* --- Life ------------------------------------------------------------------------------------- */

int lpi_http_new(struct lp_service *service, const char *address, struct lpi_http **ret_http,
		 char *why)
{
	struct lp_listener_options options = {.uid = UINT32_MAX, .gid = UINT32_MAX};
	if (strncmp(address, "tcp:", 4) != 0)
		return lpi_refuse(why, -EINVAL, "metrics: %.100s is not of the form tcp:HOST:PORT",
				  address);
	int err = lp_address_parse(address, &options.address, why);
	if (err < 0)
		return err;
	struct lpi_http *http = calloc(1, sizeof(*http));
	if (http == NULL)
		return lpi_refuse(why, -ENOMEM, "metrics: out of memory");
	err = lp_listener_open(&options, &http->listener, why);
	if (err < 0) {
		free(http);
		return err;
	}
	http->service = service;
	for (uint32_t i = 0; i < LPI_HTTP_CONNS; i++) {
		http->conns[i].http = http;
		http->conns[i].fd = -1;
		http->conns[i].timer.fire = too_late;
	}
	*ret_http = http;
	return 0;
}

int lpi_http_start(struct lpi_http *http)
{
	int err = lp_listener_start(http->listener, http->service->reactor, accepted, http);
	if (err == 0)
		LP_LOG_NOTICE("metrics on %s", lp_listener_name(http->listener));
	return err;
}

void lpi_http_stop(struct lpi_http *http)
{
	lp_listener_stop(http->listener);
	for (uint32_t i = 0; i < LPI_HTTP_CONNS; i++) {
		if (http->conns[i].fd >= 0)
			too_late(&http->conns[i].timer);
	}
}

bool lpi_http_is_idle(const struct lpi_http *http)
{
	for (uint32_t i = 0; i < LPI_HTTP_CONNS; i++) {
		if (http->conns[i].fd >= 0)
			return false;
	}
	return lp_listener_is_idle(http->listener);
}

void lpi_http_free(struct lpi_http *http)
{
	if (http == NULL)
		return;
	lp_listener_close(http->listener);
	free(http);
}
