/* SPDX-License-Identifier: Apache-2.0 */
/* Slots of operations: which operations wait for a slot or for memory, are at work, or have ended.
 *
 * Threads: the shard's.
 * Blocking: none.
 *
 * An operation without a slot waits in its list and begins when a slot comes back. No operation
 * overtakes a transaction that waits. */
#ifndef LP_STORE_BLOCK_CORE_SLOTS_H
#define LP_STORE_BLOCK_CORE_SLOTS_H

#include "base/loop/reactor.h"
#include "base/struct/list.h"
#include "base/struct/sm.h"
#include "store/commit/commit.h"
#include "store/store.h"

struct lpi_block;

LP_LIST_DEFINE(lpi_op_list, struct lp_store_op, node);
LP_LIST_DEFINE(lpi_waiter_list, struct lp_commit_waiter, node);

LP_LIST_DEFINE(lpi_soon_list, struct lp_task, node);

/* A transaction or a read that has begun, for reports of operations under way. */
struct lpi_begun {
	struct lp_list_node node;
	const struct lp_sm *sm;
	const struct lp_store_op *op;
	uint64_t began_ns;
};

LP_LIST_DEFINE(lpi_begun_list, struct lpi_begun, node);

/* Calls from lower rooms to upper ones; set when a store is made. */
struct lpi_block_calls {
	/* Passes an operation to its part, which takes a slot or lets it wait. */
	void (*dispatch)(struct lpi_block *block, struct lp_store_op *op);
	/* After a failure: the operation has ended with result because of it, and holds nothing any
	 * more. True: it begins again when the store is open again. False: its submitter is told.
	 */
	bool (*takes_back)(struct lpi_block *block, struct lp_store_op *op, int result);
	/* A view keeps space in use: its reader is asked to end. */
	void (*end_view)(struct lpi_block *block);
};

struct lpi_slots {
	/* Waiting for a slot of the pool, in order; waiting_txns also has all operations behind
	 * one. */
	struct lpi_op_list waiting_txns;
	struct lpi_op_list waiting_reads;
	struct lpi_op_list waiting_queries;
	/* Waiting for buffers, or for ios: tried again when some came back, or by the timer. */
	struct lpi_waiter_list memory_waiters;
	struct lp_timer memory_timer;
	/* Tasks that go on, but not from inside the release that allowed it: granted claims. */
	struct lpi_soon_list soon;
	struct lp_task soon_task;
	bool is_soon;                /* soon_task is running */
	struct lpi_begun_list begun; /* transactions and reads, the oldest first */
	struct lpi_op_list done;     /* completed; done_task tells the submitters */
	struct lp_task done_task;
	struct lp_task admit_task;
};

void lpi_slots_init(struct lpi_slots *slots);

/* Runs the task in this turn or the next, after those queued this way before. A task that another
 * one queues runs in the same turn. So the operations of a file run one after the other, and all of
 * a turn share a frame. */
void lpi_block_soon(struct lpi_block *block, struct lp_task *task);

/* Completes an operation: counts it; complete() is called later in the turn or in the next one. */
void lpi_block_complete(struct lpi_block *block, struct lp_store_op *op, int result);

/* The waiter is told with 0 when there may be buffers or ios again; never inside this call. */
void lpi_block_wait_memory(struct lpi_block *block, struct lp_commit_waiter *waiter);
/* Buffers or ios came back. */
void lpi_block_memory_freed(struct lpi_block *block);

/* A slot of the transactions' pool is free again: waiting operations may go on, in a later task. */
void lpi_block_slot_freed(struct lpi_block *block);

/* Notes that an operation has begun, until its slot goes back (block/under_way.c). */
void lpi_begun_add(struct lpi_block *block, struct lpi_begun *begun, const struct lp_sm *sm,
		   const struct lp_store_op *op);
void lpi_begun_end(struct lpi_begun *begun);

/* The claims of an inode, an entry, a record. */
uint64_t lpi_claim_of_ino(struct lp_ino ino);
uint64_t lpi_claim_of_name(enum lp_key_space space, struct lp_ino ino, const struct lp_bytes *name);

#endif
