/* SPDX-License-Identifier: Apache-2.0 */
/* A connection and its requests take and give back parts of their user's share (quota.h) and of the
 * door's memory for meta. When something is given back, a connection that waits for it may go
 * on. */
#include "base/log.h"
#include "native/door_impl.h"

/* --- Taking and giving ------------------------------------------------------------------------ */

void lpi_conn_tell_refused(const struct lpi_conn *conn, enum lpi_quota_kind kind,
			   enum lpi_quota_verdict verdict)
{
	const struct lp_door *door = conn->door;
	char why[LP_WIRE_TEXT_MAX + 1];
	lpi_quota_explain(&door->quota, conn->user, kind, verdict, why, sizeof(why));
	LP_LOG_WARN("shard %u: %s is refused: %s", door->options.shard_idx, conn->peer.address,
		    why);
}

void lpi_conn_note_limit(struct lpi_conn *conn, enum lpi_quota_kind kind,
			 enum lpi_quota_verdict verdict, bool is_refused)
{
	conn->door->quota.met[kind]++;
	if (is_refused)
		lpi_conn_tell_refused(conn, kind, verdict);
}

enum lpi_quota_verdict lpi_conn_take(struct lpi_conn *conn, enum lpi_quota_kind kind, uint64_t has,
				     uint64_t amount)
{
	struct lpi_quota *quota = &conn->door->quota;
	enum lpi_quota_verdict verdict = lpi_quota_ask(quota, conn->user, kind, has, amount);
	if (verdict == LPI_QUOTA_OK)
		lpi_quota_take(quota, conn->user, kind, amount);
	return verdict;
}

void lpi_conn_force(struct lpi_conn *conn, enum lpi_quota_kind kind, uint64_t amount)
{
	lpi_quota_take(&conn->door->quota, conn->user, kind, amount);
}

/* Usually the first one: few users are at their limits. */
static struct lpi_conn *first_capped(struct lp_door *door, const struct lpi_quota_user *user)
{
	struct lpi_conn *conn = NULL;
	LP_LIST_FOREACH (lpi_throttled_list, &door->capped, conn) {
		if (conn->user == user)
			return conn;
	}
	return NULL;
}

void lpi_conn_give(struct lpi_conn *conn, enum lpi_quota_kind kind, uint64_t amount)
{
	struct lp_door *door = conn->door;
	if (amount == 0)
		return;
	lpi_quota_give(&door->quota, conn->user, kind, amount);
	if (conn->user->waiting_cnt == 0)
		return;
	struct lpi_conn *waiting = first_capped(door, conn->user);
	LP_ASSERT(waiting != NULL);
	lpi_conn_unthrottle(waiting);
}

void lpi_conn_give_place(struct lpi_conn *conn)
{
	if (!conn->has_place)
		return;
	conn->has_place = false;
	lpi_conn_give(conn, LPI_QUOTA_CONNS, 1);
}

/* --- Room for meta ------------------------------------------------------------------------------
 */

/* As with requests, the last quarter is for connections that hold nothing yet, and no connection
 * gets more than it leaves to the others. So a client that does not read its answers leaves memory
 * for those of others (door D3). */
enum lpi_quota_verdict lpi_request_hold(struct lpi_request *request, uint32_t bytes)
{
	struct lpi_conn *conn = request->conn;
	struct lp_door *door = request->door;
	uint64_t room = door->held_bytes_max;
	if (conn->held_bytes > 0)
		room -= room / 4;
	uint64_t left = room - LP_MIN(door->held_bytes, room);
	if (door->held_bytes > 0 && conn->held_bytes + bytes > left)
		return LPI_QUOTA_ALL;
	enum lpi_quota_verdict verdict =
		lpi_conn_take(conn, LPI_QUOTA_META, conn->held_bytes, bytes);
	if (verdict != LPI_QUOTA_OK)
		return verdict;
	request->held_bytes += bytes;
	conn->held_bytes += bytes;
	door->held_bytes += bytes;
	return LPI_QUOTA_OK;
}

void lpi_request_release(struct lpi_request *request, uint32_t keep_bytes)
{
	uint32_t bytes = request->held_bytes - LP_MIN(keep_bytes, request->held_bytes);
	LP_ASSERT(request->conn->held_bytes >= bytes && request->door->held_bytes >= bytes);
	request->held_bytes -= bytes;
	request->conn->held_bytes -= bytes;
	request->door->held_bytes -= bytes;
	lpi_conn_give(request->conn, LPI_QUOTA_META, bytes);
}
