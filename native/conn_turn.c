/* SPDX-License-Identifier: Apache-2.0 */
/* When a connection has its turn: for a receive, for a send, or to be ended. These functions only
 * put it into the door's lists, or poll its socket. The work itself is done above (conn.c,
 * conn_send.c, conn_end.c) when the door comes to it. */
#include <poll.h>
#include <sys/socket.h>

#include <liburing.h>

#include "native/door_impl.h"

/* --- To be read from -------------------------------------------------------------------------- */

bool lpi_conn_may_read(const struct lpi_conn *conn)
{
	return conn->state <= LPI_CONN_SERVING && !conn->at_end && !conn->is_leaving &&
	       conn->throttle == LPI_THROTTLE_NONE;
}

static void polled(struct lp_io *io)
{
	struct lpi_conn *conn = LP_CONTAINER_OF(io, struct lpi_conn, poll_io);
	conn->read_all = false;
	lpi_conn_go_on(conn);
}

/* True for a complete header, or a message without meta, that a throttle held up: no new byte will
 * wake the connection. */
bool lpi_conn_is_held_up(const struct lpi_conn *conn)
{
	if (conn->part == LPI_PART_HEADER)
		return conn->head_bytes == LP_WIRE_HEADER_SIZE;
	return conn->part == LPI_PART_REST && conn->coming->meta == NULL &&
	       lp_wire_rest_bytes(&conn->header) == 0;
}

static void make_ready(struct lp_door *door, struct lpi_conn *conn)
{
	bool was_empty = lpi_ready_list_is_empty(&door->ready);
	lpi_ready_list_push_back(&door->ready, conn);
	if (was_empty && !lp_task_is_queued(&door->kick))
		lp_task_queue(door->options.reactor, &door->kick);
}

void lpi_conn_go_on(struct lpi_conn *conn)
{
	struct lp_door *door = conn->door;
	if (!lpi_conn_may_read(conn) || lpi_ready_list_is_linked(conn) ||
	    !lp_io_is_idle(&conn->poll_io))
		return;
	/* A poll reports only bytes in the socket (door D10). */
	if (conn->stash != NULL || !conn->read_all || lpi_conn_is_held_up(conn)) {
		make_ready(door, conn);
		return;
	}
	conn->poll_io.complete = polled;
	io_uring_prep_poll_add(lp_reactor_sqe(door->options.reactor, &conn->poll_io), conn->fd,
			       POLLIN);
}

void lpi_conn_leave_throttled(struct lpi_conn *conn)
{
	if (!lpi_throttled_list_is_linked(conn))
		return;
	lpi_throttled_list_remove(conn);
	if (conn->throttle != LPI_THROTTLE_USER)
		return;
	LP_ASSERT(conn->user->waiting_cnt > 0);
	conn->user->waiting_cnt--;
}

void lpi_conn_begin_pace(struct lpi_conn *conn)
{
	conn->pace_ns = lpi_door_now_ns(conn->door);
	conn->paced_bytes = 0;
}

void lpi_conn_unthrottle(struct lpi_conn *conn)
{
	lpi_conn_leave_throttled(conn);
	conn->throttle = LPI_THROTTLE_NONE;
	/* The door did not read, so the client was not silent. */
	conn->progress_ns = lpi_door_now_ns(conn->door);
	lpi_conn_begin_pace(conn);
	lpi_conn_go_on(conn);
}

void lpi_conn_request_ended(struct lpi_conn *conn)
{
	conn->active_ns = lpi_door_now_ns(conn->door);
	if (conn->throttle == LPI_THROTTLE_CREDITS)
		lpi_conn_unthrottle(conn);
	conn = lpi_throttled_list_first(&conn->door->throttled);
	if (conn != NULL)
		lpi_conn_unthrottle(conn);
}

/* --- To be sent to ---------------------------------------------------------------------------- */

void lpi_conn_queue(struct lpi_conn *conn, struct lpi_reply *reply)
{
	LP_ASSERT(lpi_conn_is_alive(conn));
	lpi_reply_list_push_back(&conn->replies, reply);
	if (lp_io_is_idle(&conn->send_io) && !lpi_send_list_is_linked(conn))
		lpi_send_list_push_back(&conn->door->sendable, conn);
}

/* --- To end ----------------------------------------------------------------------------------- */

static void expect_end(struct lpi_conn *conn)
{
	if (!lp_list_node_is_linked(&conn->end_node))
		lpi_end_list_push_back(&conn->door->ending, conn);
}

void lpi_conn_finish(struct lpi_conn *conn)
{
	if (conn->state >= LPI_CONN_PARTING)
		return;
	conn->state = LPI_CONN_PARTING;
	expect_end(conn);
}

void lpi_conn_end(struct lpi_conn *conn)
{
	if (conn->state >= LPI_CONN_ENDING)
		return;
	conn->state = LPI_CONN_ENDING;
	/* Polls and sends that are under way complete. The result of the shutdown does not
	 * matter. */
	if (conn->fd >= 0)
		(void)shutdown(conn->fd, SHUT_RDWR);
	expect_end(conn);
}
