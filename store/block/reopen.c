/* SPDX-License-Identifier: Apache-2.0 */
/* Read-only, not dead (rule L7). When the shard has failed, operations under way end. Then all
 * state in memory is dropped, because it is unknown which of it is durable. The durable state is
 * read back from the device, up to the last frame that was known to be durable. A helper does the
 * steps that wait or block; this thread checks by a timer whether it may go on.
 *
 *   DRAIN -> INDEX -> SETTLE -> OPENING -> (read-only, or dead)
 *
 * Reads and questions that come meanwhile are held, and so are those that the failure ended: they
 * begin once more. So a reader notices only the delay, and that changes that were not durable are
 * gone. The pools of the submitters bound their number.
 */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "store/block/block_parts.h"
#include "store/block/core/data_cache.h"
#include "store/block/write/txn.h"

#define LOOK_NS LP_NS_PER_MS

/* --- Health ----------------------------------------------------------------------------------- */

static void set_health(struct lpi_block *block, enum lp_store_state state)
{
	struct lp_store_health *health = &block->reopen.health;
	health->state = state;
	health->since_ns = lp_clock_wall_ns(lp_reactor_clock(block->options.reactor));
}

static void tell(struct lpi_block *block)
{
	struct lp_store_events *events = block->options.events;
	if (events != NULL && !block->is_closing)
		events->health(events, &block->reopen.health);
}

void lpi_reopen_read_health(const struct lpi_block *block, struct lp_store_health *ret_health)
{
	*ret_health = block->reopen.health;
	int err = block->shard != NULL && ret_health->state == LP_STORE_OK
			  ? lp_shard_index_error(block->shard)
			  : 0;
	/* A full device has not failed (P6). */
	if (err == 0 || err == -ENOSPC)
		return;
	ret_health->state = LP_STORE_DEGRADED;
	(void)snprintf(ret_health->reason, sizeof(ret_health->reason),
		       "the index cannot be written, and is tried again: %s", lp_strerror(err));
}

/* --- Operations during the reopening -----------------------------------------------------------
 */

static bool is_kept(const struct lp_store_op *op)
{
	return op->opcode != LP_STORE_TXN && op->opcode != LP_STORE_SYNC;
}

int lpi_reopen_admit(const struct lpi_block *block, const struct lp_store_op *op)
{
	const struct lpi_reopen *reopen = &block->reopen;
	if (op->opcode == LP_STORE_TXN)
		return reopen->has_failed || block->options.read_only ? -EROFS : 0;
	/* Ordered transactions may be lost, and a sync must report that. */
	if (op->opcode == LP_STORE_SYNC && reopen->has_failed)
		return -EIO;
	return reopen->health.state == LP_STORE_DEAD ? -EIO : 0;
}

bool lpi_reopen_holds(struct lpi_block *block, struct lp_store_op *op)
{
	if (block->reopen.phase == LPI_REOPEN_NONE)
		return false;
	LP_ASSERT(is_kept(op));
	lpi_op_list_push_back(&block->held, op);
	return true;
}

bool lpi_reopen_takes_back(struct lpi_block *block, struct lp_store_op *op, int result)
{
	/* Operations that waited for a group in no frame get -EROFS. */
	bool is_told = result == -EIO || result == -EROFS;
	if (block->reopen.phase != LPI_REOPEN_DRAIN || !is_told || !is_kept(op))
		return false;
	int err = lpi_store_check(op); /* clears the results */
	LP_ASSERT(err == 0);           /* it was right before */
	lpi_op_list_push_back(&block->held, op);
	return true;
}

/* Operations that had no slot yet. */
static void take_waiting(struct lpi_block *block, struct lpi_op_list *list)
{
	struct lpi_op_list now;
	struct lp_store_op *op;
	lpi_op_list_init(&now);
	lpi_op_list_splice_back(&now, list);
	while ((op = lpi_op_list_pop_front(&now)) != NULL) {
		int err = lpi_reopen_admit(block, op);
		if (err < 0)
			lpi_block_complete(block, op, err);
		else
			lpi_op_list_push_back(&block->held, op);
	}
}

static void release_held(struct lpi_block *block)
{
	struct lpi_op_list now;
	struct lp_store_op *op;
	lpi_op_list_init(&now);
	lpi_op_list_splice_back(&now, &block->held);
	while ((op = lpi_op_list_pop_front(&now)) != NULL) {
		int err = lpi_reopen_admit(block, op);
		if (err < 0)
			lpi_block_complete(block, op, err);
		else
			block->calls->dispatch(block, op);
	}
}

/* --- From phase to phase ---------------------------------------------------------------------- */

static void look_later(struct lpi_block *block)
{
	struct lp_reactor *reactor = block->options.reactor;
	lp_timer_start(reactor, &block->reopen.timer, lp_reactor_now_ns(reactor) + LOOK_NS);
}

static void submit_work(struct lpi_block *block, void (*run)(struct lp_work *work),
			void (*done)(struct lp_work *work))
{
	block->reopen.work = (struct lp_work){.run = run, .done = done};
	lp_workers_submit(block->options.workers, block->options.reactor, &block->reopen.work);
}

static struct lpi_block *of_work(struct lp_work *work)
{
	return LP_CONTAINER_OF(work, struct lpi_block, reopen.work);
}

/* Reads that were answered hold only buffers. */
static bool is_drained(const struct lpi_block *block)
{
	return block->running == block->given_reads && lpi_trims_are_idle(block) &&
	       lpi_cached_is_idle(block) && lp_shard_is_stopped(block->shard) &&
	       block->view == NULL;
}

static int take_up(struct lpi_block *block)
{
	struct lp_shard *shard = block->reopen.shard;
	int err = block->reopen.result;
	block->reopen.shard = NULL;
	if (err < 0)
		return err;
	err = lp_shard_adopt(shard, block->options.reactor);
	if (err == 0)
		err = lpi_nodes_init(&block->nodes, NULL, block->memory.nodes_bytes);
	if (err < 0) {
		int ignored = lp_shard_close(shard, true); /* nothing was written to it */
		(void)ignored;
		return err;
	}
	lpi_block_set_shard(block, shard);
	/* The counters of a new index start from 0 again. */
	block->memory.node_misses = 0;
	block->memory.index_misses = 0;
	return 0;
}

static void opening_run(struct lp_work *work)
{
	struct lpi_block *block = of_work(work);
	struct lp_shard_options options;
	lpi_block_shard_options(block, &options);
	options.read_only = true;
	options.seq_end = block->reopen.seq_end;
	options.events = NULL;
	options.log_observer = NULL;
	options.writeback_observer = NULL;
	block->reopen.result = lp_shard_open_aside(&options, &block->reopen.shard);
}

static void opening_done(struct lp_work *work)
{
	struct lpi_block *block = of_work(work);
	struct lp_store_health *health = &block->reopen.health;
	int err = take_up(block);
	block->reopen.phase = LPI_REOPEN_NONE;
	set_health(block, err == 0 ? LP_STORE_READ_ONLY : LP_STORE_DEAD);
	if (err < 0) {
		size_t len = strlen(health->reason);
		(void)snprintf(health->reason + len, sizeof(health->reason) - len,
			       "; and it cannot be read: %s", lp_strerror(err));
	}
	tell(block);
	release_held(block);
}

/* Drops all parts of the failed shard. */
static void drop_shard(struct lpi_block *block)
{
	struct lp_shard *shard = block->shard;
	block->reopen.seq_end = lp_shard_durable_seq(shard) + 1;
	lpi_block_keep_stats(block);
	lpi_cached_forget(block);
	lpi_nodes_fini(&block->nodes);
	lpi_block_set_shard(block, NULL);
	int ignored = lp_shard_close(shard, true); /* its error is the reason for this */
	(void)ignored;
}

static void index_run(struct lp_work *work)
{
	lp_shard_close_index(of_work(work)->shard);
}

static void index_done(struct lp_work *work)
{
	struct lpi_block *block = of_work(work);
	block->reopen.phase = LPI_REOPEN_SETTLE;
	look_later(block);
}

static void look(struct lp_timer *timer)
{
	struct lpi_block *block = LP_CONTAINER_OF(timer, struct lpi_block, reopen.timer);
	if (!is_drained(block)) {
		look_later(block);
	} else if (block->reopen.phase == LPI_REOPEN_DRAIN) {
		block->reopen.phase = LPI_REOPEN_INDEX;
		block->kv = NULL; /* no code may use it any more */
		submit_work(block, index_run, index_done);
	} else {
		drop_shard(block);
		block->reopen.phase = LPI_REOPEN_OPENING;
		submit_work(block, opening_run, opening_done);
	}
}

/* --- The beginning and the end ---------------------------------------------------------------- */

static void begin(struct lp_task *task)
{
	struct lpi_block *block = LP_CONTAINER_OF(task, struct lpi_block, reopen.task);
	tell(block);
	take_waiting(block, &block->slots.waiting_txns);
	take_waiting(block, &block->slots.waiting_reads);
	take_waiting(block, &block->slots.waiting_queries);
	lpi_trims_stop(block);
	lpi_view_is_over(block);
	lp_shard_stop(block->shard);
	look_later(block);
}

/* Called from inside the code that failed, so the work happens later. */
static void shard_failed(struct lp_shard_events *events, int err, const char *reason)
{
	struct lpi_block *block = LP_CONTAINER_OF(events, struct lpi_block, reopen.shard_events);
	struct lpi_reopen *reopen = &block->reopen;
	if (block->is_closing)
		return;
	LP_ASSERT(!reopen->has_failed);
	reopen->has_failed = true;
	reopen->phase = LPI_REOPEN_DRAIN;
	reopen->health.error = err;
	set_health(block, LP_STORE_REOPENING);
	(void)snprintf(reopen->health.reason, sizeof(reopen->health.reason), "%s", reason);
	lp_task_queue(block->options.reactor, &reopen->task);
}

void lpi_reopen_init(struct lpi_block *block)
{
	struct lpi_reopen *reopen = &block->reopen;
	bool read_only = block->options.read_only;
	lpi_op_list_init(&block->held);
	reopen->health.state = read_only ? LP_STORE_READ_ONLY : LP_STORE_OK;
	if (read_only)
		(void)snprintf(reopen->health.reason, sizeof(reopen->health.reason),
			       "opened read-only");
	reopen->shard_events.failed = shard_failed;
	reopen->task.run = begin;
	reopen->timer.fire = look;
}

/* Waits for the end of a helper's work, and takes over a shard that it opened, to close it. */
void lpi_reopen_end(struct lpi_block *block)
{
	struct lpi_reopen *reopen = &block->reopen;
	LP_ASSERT(block->is_closing);
	lp_task_cancel(&reopen->task);
	while (reopen->phase == LPI_REOPEN_INDEX || reopen->phase == LPI_REOPEN_OPENING)
		(void)lp_reactor_turn(block->options.reactor, true);
	lp_timer_stop(block->options.reactor, &reopen->timer);
	reopen->phase = LPI_REOPEN_NONE;
}
