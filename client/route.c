/* SPDX-License-Identifier: Apache-2.0 */
/* To which connection a request goes: that of its shard, if one is known and up or comes up, else
 * any. What waits for the first connection is given up when that has failed for long enough.
 */
#include "client/connection.h"
#include "client/handle.h"
#include "client/op.h"

/* Up, coming up, or made to. */
static bool is_usable(struct lpi_link *conn)
{
	if (conn == NULL)
		return false;
	if (conn->state == LPI_STATE_DOWN && conn->retry_ns <= lpi_now(conn->lapis))
		lpi_link_connect(conn);
	return conn->state != LPI_STATE_DOWN;
}

static struct lpi_link *conn_for(struct lapis *lapis, uint32_t shard)
{
	if (shard >= LPI_SHARDS_MAX || lapis->shard_cnt == 0)
		return NULL;
	if (lapis->by_shard[shard] == NULL && lapis->conn_cnt < LPI_SHARDS_MAX) {
		struct lpi_link *conn = NULL;
		if (lpi_link_new(lapis, shard, &conn) < 0)
			return NULL;
		lapis->conns[lapis->conn_cnt++] = conn;
		lapis->by_shard[shard] = conn;
	}
	return lapis->by_shard[shard];
}

static struct lpi_link *any_conn(struct lapis *lapis)
{
	for (uint32_t i = 0; i < lapis->conn_cnt; i++) {
		if (lapis->conns[i]->state == LPI_STATE_UP)
			return lapis->conns[i];
	}
	/* The first one always is there; the others come up when they are asked for. */
	return is_usable(lapis->conns[0]) ? lapis->conns[0] : NULL;
}

/* Gives the operation to a connection, or lets it wait. */
static void route(struct lpi_op *op)
{
	struct lapis *lapis = op->lapis;
	struct lpi_link *conn = op->pin;
	if (conn != NULL &&
	    (conn->generation != op->pin_generation || conn->state != LPI_STATE_UP)) {
		lpi_finish(op, -ENOTCONN, "the connection that this belongs to has gone");
		return;
	}
	if (conn == NULL)
		conn = conn_for(lapis, lpi_route_find(op));
	if (op->pin == NULL && !is_usable(conn))
		conn = any_conn(lapis);
	if (conn != NULL)
		lpi_link_queue(conn, op);
	else
		lpi_wait(op);
}

/* Nothing is up and nothing is coming up: how long is that to be hoped for? */
static bool has_given_up(const struct lapis *lapis)
{
	if (lapis->down_ns == 0)
		return false;
	if (lapis->failure == -ESTALE || lapis->failure == -EPROTONOSUPPORT)
		return true;
	uint64_t down_ns = lpi_now(lapis) - lapis->down_ns;
	/* The daemon is there, and many ask for it at this moment. */
	if (lapis->failure == -EAGAIN && down_ns < lapis->options.connect_ms * LP_NS_PER_MS)
		return false;
	if (lapis->shard_cnt == 0 && !(lapis->options.flags & LAPIS_WAIT))
		return true;
	return down_ns >= lapis->options.reconnect_ms * LP_NS_PER_MS;
}

static void give_up(struct lapis *lapis)
{
	struct lpi_op *op;
	bool was_up = lapis->shard_cnt != 0;
	while ((op = lpi_ops_pop_front(&lapis->waiting)) != NULL) {
		op->place = LPI_PLACE_NONE;
		lpi_finish(op, was_up ? -ENOTCONN : lapis->failure, lapis->failure_text);
	}
	/* Who asks later has all the time again, and is not kept waiting for the first try. */
	lapis->down_ns = 0;
	for (uint32_t i = 0; i < lapis->conn_cnt; i++) {
		lapis->conns[i]->backoff_ns = 0;
		lapis->conns[i]->retry_ns = 0;
	}
}

void lpi_route_waiting(struct lapis *lapis)
{
	struct lpi_ops ready;
	struct lpi_op *op;
	uint64_t now = lpi_now(lapis);
	lpi_ops_init(&ready);
	lpi_ops_splice_back(&ready, &lapis->waiting);
	struct lpi_op *next;
	LP_LIST_FOREACH_SAFE (lpi_ops, &lapis->later, op, next) {
		if (op->later_ns > now)
			continue;
		lpi_ops_remove(op);
		lpi_counter_add(&lapis->counters.retries);
		lpi_ops_push_back(&ready, op);
	}
	while ((op = lpi_ops_pop_front(&ready)) != NULL) {
		op->place = LPI_PLACE_NONE;
		route(op);
	}
	/* What has just been given to a connection may be back already. */
	if (!lpi_ops_is_empty(&lapis->waiting) && has_given_up(lapis))
		give_up(lapis);
}
