/* SPDX-License-Identifier: Apache-2.0 */
/* The life of an operation, from when it enters the handle until it is on the list of what has
 * ended: its deadline, and the list in which it waits. Nothing here looks for a connection.
 */
#include <stdio.h>

#include "base/error.h"
#include "client/handle.h"
#include "client/op.h"

/* The handle that this thread is running, if any: its callbacks may not wait. */
static _Thread_local const struct lapis *running;

uint64_t lpi_now(const struct lapis *lapis)
{
	return lp_clock_mono_ns(lapis->clock);
}

bool lpi_is_running(const struct lapis *lapis)
{
	return running == lapis;
}

const struct lapis *lpi_set_running(const struct lapis *lapis)
{
	const struct lapis *before = running;
	running = lapis;
	return before;
}

static void disarm(struct lpi_op *op)
{
	if (lpi_usual_is_linked(op))
		lpi_usual_remove(op);
	else if (lpi_deadlines_is_linked(op))
		lpi_deadlines_remove(&op->lapis->deadlines, op);
}

void lpi_arm(struct lpi_op *op)
{
	struct lapis *lapis = op->lapis;
	disarm(op);
	op->deadline_ns = lapis->run_ns + op->timeout_ns;
	if (op->timeout_ns != lapis->options.timeout_ms * LP_NS_PER_MS) {
		lpi_deadlines_insert(&lapis->deadlines, op);
		return;
	}
	lpi_usual_push_back(&lapis->usual, op);
}

struct lpi_op *lpi_first_deadline(const struct lapis *lapis)
{
	struct lpi_op *usual = lpi_usual_first(&lapis->usual);
	struct lpi_op *other = lpi_deadlines_first(&lapis->deadlines);
	if (usual == NULL || other == NULL)
		return usual == NULL ? other : usual;
	return other->deadline_ns < usual->deadline_ns ? other : usual;
}

void lpi_wait(struct lpi_op *op)
{
	LP_ASSERT(op->place == LPI_PLACE_NONE);
	op->place = LPI_PLACE_WAITING;
	lpi_ops_push_back(&op->lapis->waiting, op);
}

void lpi_enter(struct lpi_op *op)
{
	lpi_all_push_back(&op->lapis->all, op);
	lpi_counter_add(&op->lapis->counters.requests);
}

void lpi_begin_own(struct lpi_op *op)
{
	LP_ASSERT(op->upload == NULL);
	atomic_fetch_add(&op->lapis->held_cnt, 1);
	lpi_enter(op);
	lpi_arm(op);
	lpi_wait(op);
}

void lpi_finish(struct lpi_op *op, int status, const char *text)
{
	LP_ASSERT(op->place == LPI_PLACE_NONE && op->conn == NULL);
	disarm(op);
	if (text[0] == '\0')
		op->text[0] = '\0';
	else if (text != op->text)
		(void)snprintf(op->text, sizeof(op->text), "%s", text);
	op->result.status = status;
	op->result.text = op->text;
	op->result.id = op->id;
	op->place = LPI_PLACE_DONE;
	lpi_ops_push_back(&op->lapis->done, op);
}
