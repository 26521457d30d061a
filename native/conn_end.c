/* SPDX-License-Identifier: Apache-2.0 */
/* Opens of a connection, and its end (which begins in conn_turn.c).
 *
 *   PARTING   requests under way are answered, and the answers sent
 *   ENDING    the socket is shut: the kernel gives back the poll and the send; requests that are at
 *             work come to their end, without an answer
 *   CLOSING   its open inodes are closed, one after the other; then it is freed
 *
 * Steps from one to the next are taken in the door's flush only, so that no other function that has
 * a pointer to a connection finds it freed. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/hash.h"
#include "native/door_impl.h"

/* --- Opens --------------------------------------------------------------------------------------
 */

static struct lpi_open_bucket *bucket_of(struct lp_door *door, struct lp_ino ino)
{
	return &door->open_buckets[lp_hash_u64(&ino.nr, sizeof(ino.nr), 0) % LPI_OPEN_BUCKETS];
}

struct lpi_open *lpi_open_new(struct lpi_conn *conn, char *why, size_t why_len)
{
	struct lpi_quota *quota = &conn->door->quota;
	(void)snprintf(why, why_len, "this connection has %u objects open, as many as one may",
		       conn->open_cnt);
	if (conn->open_cnt >= LPI_CONN_OPENS_MAX)
		return NULL;
	enum lpi_quota_verdict verdict = lpi_quota_ask(quota, conn->user, LPI_QUOTA_OPENS,
						       conn->open_cnt / LPI_OPENS_FEW, 1);
	if (verdict != LPI_QUOTA_OK) {
		lpi_conn_note_limit(conn, LPI_QUOTA_OPENS, verdict, true);
		lpi_quota_explain(quota, conn->user, LPI_QUOTA_OPENS, verdict, why, why_len);
		return NULL;
	}
	struct lpi_open *open = lp_pool_get(conn->door->opens);
	(void)snprintf(why, why_len, "no memory");
	if (open == NULL)
		return NULL;
	why[0] = '\0';
	lpi_conn_force(conn, LPI_QUOTA_OPENS, 1);
	memset(open, 0, sizeof(*open));
	open->conn = conn;
	conn->open_cnt++;
	return open;
}

static void free_open(struct lpi_open *open)
{
	struct lpi_conn *conn = open->conn;
	if (lp_list_node_is_linked(&open->node)) {
		lpi_open_list_remove(open);
		lpi_open_bucket_remove(open);
	}
	LP_ASSERT(conn->open_cnt > 0);
	conn->open_cnt--;
	lpi_conn_give(conn, LPI_QUOTA_OPENS, 1);
	lp_pool_put(conn->door->opens, open);
}

struct lpi_open *lpi_open_find(const struct lpi_conn *conn, struct lp_ino ino)
{
	struct lpi_open *it = NULL;
	LP_LIST_FOREACH (lpi_open_bucket, bucket_of(conn->door, ino), it) {
		if (it->conn == conn && it->ino.nr == ino.nr)
			return it;
	}
	return NULL;
}

void lpi_open_add(struct lpi_open *open, struct lp_ino ino, bool is_upload)
{
	struct lpi_conn *conn = open->conn;
	struct lpi_open *before = lpi_open_find(conn, ino);
	if (before != NULL) {
		before->count++;
		free_open(open);
		return;
	}
	open->ino = ino;
	open->count = 1;
	open->is_upload = is_upload;
	lpi_open_list_push_back(&conn->opens, open);
	lpi_open_bucket_push_back(bucket_of(conn->door, ino), open);
}

void lpi_open_drop(struct lpi_open *open)
{
	if (open->count > 1)
		open->count--;
	else
		free_open(open);
}

/* --- The end ------------------------------------------------------------------------------------
 */

void lpi_door_check_stopped(struct lp_door *door)
{
	if (door->is_stopping && lpi_conn_list_is_empty(&door->conns) &&
	    !lp_task_is_queued(&door->stopped_task))
		lp_task_queue(door->options.reactor, &door->stopped_task);
}

static void conn_gone(struct lp_door *door)
{
	LP_ASSERT(door->stats.conns > 0);
	door->stats.conns--;
	lpi_door_check_stopped(door);
}

static void free_conn(struct lpi_conn *conn)
{
	struct lp_door *door = conn->door;
	LP_ASSERT(conn->open_cnt == 0 && conn->under_way == 0 && conn->reply_bytes == 0 &&
		  conn->held_bytes == 0);
	if (conn->share != NULL) {
		door->stats.share_bytes -= lpi_share_bytes(conn->share);
		lpi_conn_give(conn, LPI_QUOTA_SHARED, lpi_share_bytes(conn->share));
	}
	lpi_share_free(conn->share);
	lpi_end_list_remove(conn);
	lpi_conn_list_remove(conn);
	if (conn->fd >= 0)
		close(conn->fd);
	lpi_conn_give_place(conn);
	lpi_quota_leave(&door->quota, conn->user);
	door->turned_away_cnt -= conn->is_turned_away;
	free(conn);
	conn_gone(door);
}

static void gave_back(struct lp_ns_op *op)
{
	struct lpi_conn *conn = LP_CONTAINER_OF(op, struct lpi_conn, close_op);
	/* A failed device is reported elsewhere: this client is gone. */
	conn->is_giving_back = false;
}

static void give_back_opens(struct lpi_conn *conn)
{
	struct lpi_open *open = lpi_open_list_first(&conn->opens);
	if (conn->is_giving_back)
		return;
	if (open == NULL) {
		free_conn(conn);
		return;
	}
	conn->is_giving_back = true;
	conn->close_op = (struct lp_ns_op){.opcode = LP_NS_CLOSE,
					   .complete = gave_back,
					   .open = {.ino = open->ino, .count = open->count}};
	free_open(open);
	lp_ns_submit(conn->door->options.ns, &conn->close_op);
}

static void leave_lists(struct lpi_conn *conn)
{
	if (lpi_ready_list_is_linked(conn))
		lpi_ready_list_remove(conn);
	if (lpi_send_list_is_linked(conn))
		lpi_send_list_remove(conn);
	lpi_conn_leave_throttled(conn);
}

static void check_ending(struct lpi_conn *conn)
{
	leave_lists(conn);
	lpi_conn_forget_message(conn);
	if (!lp_io_is_idle(&conn->poll_io) || !lp_io_is_idle(&conn->send_io))
		return;
	lpi_conn_drop_replies(conn);
	if (conn->under_way > 0)
		return;
	conn->state = LPI_CONN_CLOSING;
}

/* If the socket were closed before a client that was turned away has sent its hello, the client
 * would get an error from sending and not read the answer. */
static bool is_lingering(const struct lpi_conn *conn)
{
	return conn->is_turned_away && !conn->is_heard && !conn->door->is_stopping &&
	       lpi_door_now_ns(conn->door) - conn->turned_away_ns < LPI_LINGER_NS;
}

void lpi_conn_check_end(struct lpi_conn *conn)
{
	if (conn->state == LPI_CONN_PARTING) {
		lpi_conn_forget_message(conn);
		if (conn->under_way == 0 && lpi_reply_list_is_empty(&conn->replies) &&
		    lp_io_is_idle(&conn->send_io) && !is_lingering(conn))
			lpi_conn_end(conn);
	}
	if (conn->state == LPI_CONN_ENDING)
		check_ending(conn);
	if (conn->state == LPI_CONN_CLOSING)
		give_back_opens(conn);
}
