/* SPDX-License-Identifier: Apache-2.0 */
/* A connection's memory, and how it goes down: what is surely not done waits for another one, the
 * rest ends. This is below sending and receiving, for both may find that it has broken.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/error.h"
#include "client/connection.h"
#include "client/handle.h"
#include "client/op.h"

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

int lpi_link_piece_new(struct lpi_link *conn)
{
	if (conn->piece == NULL)
		conn->piece = malloc(LP_WIRE_PIECE_MAX);
	return conn->piece != NULL ? 0 : -ENOMEM;
}

void lpi_link_turn_away(struct lpi_link *conn, const struct lpi_credit *slot)
{
	if (!conn->in_data || conn->data_slot != slot)
		return;
	if (lpi_link_piece_new(conn) == 0)
		conn->target = conn->piece;
	else
		lpi_link_fail(conn, -ENOMEM, "no memory to receive into");
}
