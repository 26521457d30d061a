/* SPDX-License-Identifier: Apache-2.0 */
#include "store/block/core/slots.h"

#include "base/hash.h"
#include "store/block/core/block.h"

#define MEMORY_RETRY_NS LP_NS_PER_MS
#define SOON_MAX        256u /* in one turn */

static void run_done(struct lp_task *task)
{
	struct lpi_block *block = LP_CONTAINER_OF(task, struct lpi_block, slots.done_task);
	struct lpi_op_list now;
	struct lp_store_op *op;
	lpi_op_list_init(&now);
	lpi_op_list_splice_back(&now, &block->slots.done);
	while ((op = lpi_op_list_pop_front(&now)) != NULL) {
		lpi_store_tell_damage(block->options.events, op);
		op->complete(op);
		if (lp_reactor_is_long(block->options.reactor))
			break;
	}
	if (lpi_op_list_is_empty(&now))
		return;
	/* Operations that ended meanwhile come behind them. */
	lpi_op_list_splice_back(&now, &block->slots.done);
	lpi_op_list_splice_back(&block->slots.done, &now);
	if (!lp_task_is_queued(task))
		lp_task_queue(block->options.reactor, task);
}

static void run_soon(struct lp_task *task)
{
	struct lpi_block *block = LP_CONTAINER_OF(task, struct lpi_block, slots.soon_task);
	struct lp_task *next = NULL;
	block->slots.is_soon = true;
	for (uint32_t i = 0; i < SOON_MAX; i++) {
		next = lpi_soon_list_pop_front(&block->slots.soon);
		if (next == NULL)
			break;
		next->run(next);
	}
	block->slots.is_soon = false;
	if (!lpi_soon_list_is_empty(&block->slots.soon))
		lp_task_queue(block->options.reactor, &block->slots.soon_task);
}

void lpi_block_soon(struct lpi_block *block, struct lp_task *task)
{
	lpi_soon_list_push_back(&block->slots.soon, task);
	if (!block->slots.is_soon && !lp_task_is_queued(&block->slots.soon_task))
		lp_task_queue(block->options.reactor, &block->slots.soon_task);
}

void lpi_block_complete(struct lpi_block *block, struct lp_store_op *op, int result)
{
	if (LP_UNLIKELY(block->reopen.phase == LPI_REOPEN_DRAIN) &&
	    block->calls->takes_back(block, op, result))
		return;
	op->result = result;
	block->stats.ops[op->opcode]++;
	if (result < 0)
		block->stats.errors[op->opcode]++;
	if (lp_reactor_now_ns(block->options.reactor) >= block->memory.next_ns)
		lpi_memory_look(block);
	lpi_op_list_push_back(&block->slots.done, op);
	if (!lp_task_is_queued(&block->slots.done_task))
		lp_task_queue(block->options.reactor, &block->slots.done_task);
}

static void memory_fire(struct lp_timer *timer)
{
	struct lpi_block *block = LP_CONTAINER_OF(timer, struct lpi_block, slots.memory_timer);
	struct lpi_waiter_list now;
	struct lp_commit_waiter *waiter;
	lpi_waiter_list_init(&now);
	lpi_waiter_list_splice_back(&now, &block->slots.memory_waiters);
	while ((waiter = lpi_waiter_list_pop_front(&now)) != NULL)
		waiter->told(waiter, 0);
}

void lpi_block_wait_memory(struct lpi_block *block, struct lp_commit_waiter *waiter)
{
	uint64_t now_ns = lp_reactor_now_ns(block->options.reactor);
	lpi_waiter_list_push_back(&block->slots.memory_waiters, waiter);
	if (!lp_timer_is_armed(&block->slots.memory_timer))
		lp_timer_start(block->options.reactor, &block->slots.memory_timer,
			       now_ns + MEMORY_RETRY_NS);
	lp_shard_want_bufs(block->shard);
}

void lpi_block_memory_freed(struct lpi_block *block)
{
	if (!lpi_waiter_list_is_empty(&block->slots.memory_waiters))
		lp_timer_start(block->options.reactor, &block->slots.memory_timer,
			       lp_reactor_now_ns(block->options.reactor));
}

uint64_t lpi_claim_of_ino(struct lp_ino ino)
{
	return ino.nr;
}

uint64_t lpi_claim_of_name(enum lp_key_space space, struct lp_ino ino, const struct lp_bytes *name)
{
	return lp_hash_u64(name->data, name->len, ino.nr ^ (uint64_t)space << 48);
}

/* Operations behind a transaction without a slot go with it; the next transaction may wait again.
 */
static void run_admit(struct lp_task *task)
{
	struct lpi_block *block = LP_CONTAINER_OF(task, struct lpi_block, slots.admit_task);
	while (!lpi_op_list_is_empty(&block->slots.waiting_txns)) {
		struct lp_store_op *next = lpi_op_list_first(&block->slots.waiting_txns);
		if (next->opcode == LP_STORE_TXN && lp_pool_free_cnt(block->txns) == 0)
			return;
		lpi_op_list_remove(next);
		block->calls->dispatch(block, next);
	}
}

void lpi_block_slot_freed(struct lpi_block *block)
{
	if (!lpi_op_list_is_empty(&block->slots.waiting_txns) &&
	    !lp_task_is_queued(&block->slots.admit_task))
		lp_task_queue(block->options.reactor, &block->slots.admit_task);
}

void lpi_begun_add(struct lpi_block *block, struct lpi_begun *begun, const struct lp_sm *sm,
		   const struct lp_store_op *op)
{
	*begun = (struct lpi_begun){
		.sm = sm, .op = op, .began_ns = lp_reactor_now_ns(block->options.reactor)};
	lpi_begun_list_push_back(&block->slots.begun, begun);
}

void lpi_begun_end(struct lpi_begun *begun)
{
	lpi_begun_list_remove(begun);
}

void lpi_slots_init(struct lpi_slots *slots)
{
	lpi_op_list_init(&slots->waiting_txns);
	lpi_op_list_init(&slots->waiting_reads);
	lpi_op_list_init(&slots->waiting_queries);
	lpi_op_list_init(&slots->done);
	lpi_waiter_list_init(&slots->memory_waiters);
	lpi_begun_list_init(&slots->begun);
	lpi_soon_list_init(&slots->soon);
	slots->soon_task.run = run_soon;
	slots->done_task.run = run_done;
	slots->admit_task.run = run_admit;
	slots->memory_timer.fire = memory_fire;
}
