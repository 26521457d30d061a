/* SPDX-License-Identifier: Apache-2.0 */
/* Which users are short because of their own connections (quota.h), and how a new connection gets
 * the place of an idle one.
 *
 * The connection that gives way is the longest idle one of the user with most connections; if the
 * new connection's user is at its own limit, one of that user. Those without a hello come first. A
 * connection is idle if it has no unanswered request and no open inode, and has sent nothing for a
 * while. The client library connects again at its next request. A connection that has begun a
 * message and stopped is idle, too, after LPI_STARVED_NS.
 *
 * Only the LOOK_MAX oldest connections are looked at. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "base/log.h"
#include "native/door_impl.h"

#define LOOK_MAX     1024u /* connections that are looked at to find one that gives way */
#define GIVE_WAY_MAX 32u   /* connections that give way for a new one */

/* --- Users that are short --------------------------------------------------------------------- */

static bool waits_long(const struct lp_door *door, uint64_t since_ns)
{
	return since_ns != 0 && lpi_door_now_ns(door) - since_ns > LPI_PATIENCE_NS;
}

static bool is_out_of_reply_room(const struct lpi_request *request)
{
	const struct lpi_conn *conn = request->conn;
	return lpi_quota_ask(&conn->door->quota, conn->user, LPI_QUOTA_GOING, conn->reply_bytes,
			     LPI_SMALL_BYTES) == LPI_QUOTA_OWN;
}

void lpi_door_look_at_users(struct lp_door *door)
{
	struct lpi_quota_user *user = NULL;
	struct lpi_conn *conn = NULL;
	struct lpi_request *request = NULL;
	struct lpi_throttled_list waiting;
	LP_LIST_FOREACH (lpi_quota_users, &door->quota.users, user)
		user->is_short = false;
	LP_LIST_FOREACH (lpi_conn_list, &door->conns, conn) {
		if (conn->waits_for_own && waits_long(door, conn->throttled_ns))
			conn->user->is_short = true;
	}
	LP_LIST_FOREACH (lpi_wait_list, &door->short_of_room, request) {
		if (waits_long(door, request->waits_ns) && is_out_of_reply_room(request))
			request->conn->user->is_short = true;
	}
	LP_LIST_FOREACH (lpi_quota_users, &door->quota.users, user) {
		if (!user->is_short || user->short_ns == 0)
			user->short_ns = user->is_short ? lpi_door_now_ns(door) : 0;
	}
	/* A user's share grows when another user has gone, so all try again. */
	lpi_throttled_list_init(&waiting);
	lpi_throttled_list_splice_back(&waiting, &door->capped);
	while ((conn = lpi_throttled_list_first(&waiting)) != NULL)
		lpi_conn_unthrottle(conn);
}

/* --- Places -------------------------------------------------------------------------------------
 */

/* True if no byte is waiting in its socket: none would be lost. */
static bool says_nothing(const struct lpi_conn *conn)
{
	uint8_t byte;
	return recv(conn->fd, &byte, sizeof(byte), MSG_PEEK | MSG_DONTWAIT) < 0;
}

static bool is_idle(const struct lpi_conn *conn)
{
	uint64_t silent_ns = lpi_door_now_ns(conn->door) - conn->active_ns;
	uint64_t idle_ns = conn->state == LPI_CONN_GREETING ? LPI_PATIENCE_NS : LPI_IDLE_NS;
	if (conn->coming != NULL || conn->head_bytes > 0)
		idle_ns = LPI_STARVED_NS;
	return conn->has_place && conn->state <= LPI_CONN_SERVING && !conn->is_leaving &&
	       conn->under_way == (conn->coming != NULL) && conn->stash == NULL &&
	       conn->open_cnt == 0 && lpi_reply_list_is_empty(&conn->replies) &&
	       lp_io_is_idle(&conn->send_io) && conn->throttle == LPI_THROTTLE_NONE &&
	       silent_ns >= idle_ns;
}

static bool gives_way_before(const struct lpi_conn *a, const struct lpi_conn *b)
{
	uint64_t a_cnt = a->user->used[LPI_QUOTA_CONNS];
	uint64_t b_cnt = b->user->used[LPI_QUOTA_CONNS];
	if (a_cnt != b_cnt)
		return a_cnt > b_cnt;
	if (a->state != b->state)
		return a->state == LPI_CONN_GREETING;
	return a->active_ns < b->active_ns;
}

/* user: among its connections; NULL: among all. */
static struct lpi_conn *find_idle(struct lp_door *door, const struct lpi_quota_user *user)
{
	struct lpi_conn *best = NULL;
	struct lpi_conn *conn = NULL;
	uint32_t looked = 0;
	LP_LIST_FOREACH (lpi_conn_list, &door->conns, conn) {
		if (looked++ == LOOK_MAX)
			break;
		if ((user == NULL || conn->user == user) && is_idle(conn) &&
		    (best == NULL || gives_way_before(conn, best)) && says_nothing(conn))
			best = conn;
	}
	return best;
}

static void give_way(struct lpi_conn *conn)
{
	char who[LP_WHO_TEXT_MAX];
	char why[LP_WIRE_TEXT_MAX + 1];
	struct lp_door *door = conn->door;
	lp_who_format(&conn->user->who, who, sizeof(who));
	(void)snprintf(why, sizeof(why),
		       "idle, and %s has %llu of this shard's %u connections: it gave way to "
		       "another (connections-max, user-share)",
		       who, (unsigned long long)conn->user->used[LPI_QUOTA_CONNS],
		       door->options.conns_max);
	LP_LOG_INFO("shard %u: %s gives way: %s", door->options.shard_idx, conn->peer.address, why);
	door->stats.conns_gave_way++;
	lpi_conn_give_place(conn);
	lpi_conn_say(conn, -EUSERS, why);
}

enum lpi_quota_verdict lpi_door_find_place(struct lpi_conn *conn)
{
	struct lp_door *door = conn->door;
	enum lpi_quota_verdict verdict = lpi_conn_take(conn, LPI_QUOTA_CONNS, 0, 1);
	door->quota.met[LPI_QUOTA_CONNS] += verdict != LPI_QUOTA_OK;
	/* Several, if the user has more than its share because other users have come since. */
	for (uint32_t i = 0; verdict != LPI_QUOTA_OK && i < GIVE_WAY_MAX; i++) {
		struct lpi_conn *idle =
			find_idle(door, verdict == LPI_QUOTA_OWN ? conn->user : NULL);
		if (idle == NULL)
			break;
		give_way(idle);
		verdict = lpi_conn_take(conn, LPI_QUOTA_CONNS, 0, 1);
	}
	conn->has_place = verdict == LPI_QUOTA_OK;
	return verdict;
}

/* The socket of a client that is turned away has room for so few bytes. The client has sent its
 * hello, or will. */
void lpi_door_turn_away(struct lpi_conn *conn, enum lpi_quota_verdict verdict)
{
	struct lp_door *door = conn->door;
	char why[LP_WIRE_TEXT_MAX + 1];
	lpi_conn_tell_refused(conn, LPI_QUOTA_CONNS, verdict);
	lpi_quota_explain(&door->quota, conn->user, LPI_QUOTA_CONNS, verdict, why, sizeof(why));
	door->stats.conns_refused++;
	conn->turned_away_ns = lpi_door_now_ns(door);
	conn->is_turned_away = true;
	/* If there are too many, a client is told and not waited for. */
	conn->is_heard = conn->stash != NULL || door->turned_away_cnt >= LPI_TURNED_AWAY_MAX;
	door->turned_away_cnt++;
	lpi_conn_say(conn, -EUSERS, why);
	lpi_conn_hear(conn);
}
