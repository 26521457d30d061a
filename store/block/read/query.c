/* SPDX-License-Identifier: Apache-2.0 */
/* The life of a question. A question about an inode claims it, so that it sees all earlier
 * submissions. A name or a record is looked up without a claim. */
#include <stdlib.h>

#include "store/block/read/query.h"

#define ENDS (LP_SM_TO(LPI_QUERY_DONE) | LP_SM_TO(LPI_QUERY_FAILED))

static const struct lp_sm_state query_states[LPI_QUERY_STATES] = {
	[LPI_QUERY_CLAIM] = {"CLAIM", LP_SM_INITIAL, LP_SM_TO(LPI_QUERY_RESOLVE)},
	[LPI_QUERY_RESOLVE] = {"RESOLVE", 0,
			       LP_SM_TO(LPI_QUERY_CLAIM) | LP_SM_TO(LPI_QUERY_INDEX) |
				       LP_SM_TO(LPI_QUERY_INSERTED) | LP_SM_TO(LPI_QUERY_SCAN) |
				       LP_SM_TO(LPI_QUERY_DURABLE) | ENDS},
	[LPI_QUERY_INDEX] = {"INDEX", 0, LP_SM_TO(LPI_QUERY_CLAIM) | LP_SM_TO(LPI_QUERY_RESOLVE)},
	[LPI_QUERY_INSERTED] = {"INSERTED", 0, LP_SM_TO(LPI_QUERY_RESOLVE)},
	[LPI_QUERY_SCAN] = {"SCAN", 0, LP_SM_TO(LPI_QUERY_RESOLVE)},
	[LPI_QUERY_DURABLE] = {"DURABLE", 0, ENDS},
	[LPI_QUERY_DONE] = {"DONE", LP_SM_FINAL, 0},
	[LPI_QUERY_FAILED] = {"FAILED", LP_SM_FINAL | LP_SM_FAILURE, 0},
};

static bool is_sound(const struct lp_sm *sm, unsigned prev)
{
	const struct lpi_query *query = LP_SM_OWNER(sm, struct lpi_query, sm);
	bool has_nothing = query->iter == NULL && query->pinned == NULL && !query->is_waiting;
	(void)prev;
	switch ((enum lpi_query_state)sm->state) {
	case LPI_QUERY_DURABLE:
		return query->iter == NULL && query->pinned == NULL;
	case LPI_QUERY_DONE:
		return has_nothing && query->result == 0;
	case LPI_QUERY_FAILED:
		return has_nothing && query->result < 0;
	case LPI_QUERY_CLAIM:
	case LPI_QUERY_RESOLVE:
	case LPI_QUERY_INDEX:
	case LPI_QUERY_INSERTED:
	case LPI_QUERY_SCAN:
	case LPI_QUERY_STATES:
		break;
	}
	return true;
}

const struct lp_sm_table lpi_query_table = {
	.name = "query",
	.states = query_states,
	.state_cnt = LPI_QUERY_STATES,
	.invariant = is_sound,
};

size_t lpi_query_bytes(void)
{
	return sizeof(struct lpi_query);
}

static void move(struct lpi_query *query, enum lpi_query_state state)
{
	lp_sm_move(&query->sm, state, lp_reactor_now_ns(lpi_query_block(query)->options.reactor));
}

/* --- Groups that were seen ---------------------------------------------------------------------
 */

void lpi_query_saw_index(struct lpi_query *query)
{
	struct lp_commit *commit = lpi_query_block(query)->commit;
	if (commit == NULL || lp_commit_inserted_seq(commit) <= lp_commit_durable_seq(commit))
		return;
	/* Records in the index were submitted: they are of the group before the collecting one, or
	 * older. */
	lpi_query_saw_group(query, lp_commit_group(commit) - 1);
}

/* Every change of an entry is noted in the fragment. The fragment leaves memory only when the index
 * has all of them and they are durable. So without a fragment in memory no change of the directory
 * is on its way. */
static uint64_t entries_group(struct lpi_query *query, struct lp_ino dir)
{
	struct lpi_node *node =
		lpi_node_peek(&lpi_query_block(query)->nodes, LPI_NODE_FRAGMENT, dir.nr);
	return node != NULL ? node->group : 0;
}

bool lpi_query_has_entries(struct lpi_query *query, struct lp_ino dir)
{
	uint64_t group = entries_group(query, dir);
	return group == 0 || lp_commit_group_is_inserted(lpi_query_block(query)->commit, group);
}

void lpi_query_saw_entries(struct lpi_query *query, struct lp_ino dir)
{
	struct lp_commit *commit = lpi_query_block(query)->commit;
	/* The index has no records of the collecting group, as above, though the fragment may be of
	 * it. */
	if (commit != NULL)
		lpi_query_saw_group(query,
				    LP_MIN(entries_group(query, dir), lp_commit_group(commit) - 1));
}

int lpi_query_inode(struct lpi_query *query, struct lpi_inode **ret_inode)
{
	*ret_inode = NULL;
	int err = lpi_inode_get(&query->hold.warmer, query->ino, query->hold.is_kept, ret_inode);
	if (*ret_inode != NULL)
		lpi_query_saw_group(query, (*ret_inode)->node.group);
	return err;
}

/* --- Scans ------------------------------------------------------------------------------------ */

static void scan_done(struct lp_kv_scan_op *scan);

int lpi_query_scan(struct lpi_query *query, uint32_t records_max, size_t bytes)
{
	if (query->scan_max < bytes) {
		free(query->scan_buf);
		query->scan_buf = malloc(bytes);
		query->scan_max = query->scan_buf != NULL ? bytes : 0;
	}
	if (query->scan_buf == NULL)
		return -ENOMEM;
	const struct lp_key_range *range = &query->range;
	query->scan = (struct lp_kv_scan_op){
		.kv = lpi_query_block(query)->kv,
		.lower = {range->first.bytes, range->first.len},
		.upper = {range->end.bytes, range->end.len},
		.buf = query->scan_buf,
		.buf_len = query->scan_max,
		.records_max = records_max,
		.done = scan_done,
	};
	return LPI_WAIT_SCAN;
}

/* --- The end ---------------------------------------------------------------------------------- */

static void begin(struct lpi_query *query, struct lpi_block *block, struct lp_store_op *op);

static void let_go(struct lpi_query *query)
{
	lp_kv_iter_close(query->iter);
	query->iter = NULL;
	free(query->scan_buf);
	query->scan_buf = NULL;
	query->scan_max = 0;
	if (query->pinned != NULL)
		lpi_node_unpin(&query->pinned->node);
	query->pinned = NULL;
	lpi_hold_release(&query->hold);
}

/* The slot comes back. A waiting operation begins in a later task, not here. */
static void put_slot(struct lpi_query *query)
{
	struct lpi_block *block = lpi_query_block(query);
	lp_pool_put(block->queries, query);
	block->running--;
	if (lpi_op_list_is_empty(&block->slots.waiting_queries))
		return;
	struct lpi_query *next = lp_pool_get(block->queries);
	if (next == NULL)
		return; /* the pool was made smaller */
	begin(next, block, lpi_op_list_pop_front(&block->slots.waiting_queries));
	lpi_hold_soon(&next->hold);
}

static void finish(struct lpi_query *query)
{
	struct lpi_block *block = lpi_query_block(query);
	struct lp_store_op *op = query->op;
	int result = query->result;
	put_slot(query);
	lpi_block_complete(block, op, result);
}

/* --- States ----------------------------------------------------------------------------------- */

/* Each step returns whether it goes on at once, with the next state. */

static bool conclude(struct lpi_query *query)
{
	move(query, query->result < 0 ? LPI_QUERY_FAILED : LPI_QUERY_DONE);
	return false;
}

static bool answer(struct lpi_query *query, int result)
{
	struct lp_commit *commit = lpi_query_block(query)->commit;
	struct lp_store_op *op = query->op;
	query->result = result;
	let_go(query);
	LP_ASSERT(op->opcode != LP_STORE_SYNC || !op->sees_ordered);
	bool is_durable = commit == NULL ||
			  (!query->saw_all && lp_commit_group_is_durable(commit, query->group));
	op->saw_ordered = !is_durable && op->sees_ordered;
	if (is_durable || op->sees_ordered)
		return conclude(query);
	move(query, LPI_QUERY_DURABLE);
	query->is_waiting = true;
	if (query->saw_all)
		lp_commit_wait(commit, &query->waiter);
	else
		lp_commit_wait_group(commit, query->group, &query->waiter);
	return false;
}

static bool on_claim(struct lpi_query *query)
{
	if (query->ino.nr != 0 && !lpi_hold_claim(&query->hold, query->ino))
		return false;
	move(query, LPI_QUERY_RESOLVE);
	return true;
}

static bool on_resolve(struct lpi_query *query)
{
	struct lpi_block *block = lpi_query_block(query);
	int next = query->result; /* result of a wait that failed */
	if (next == 0)
		next = lp_shard_error(block->shard) != 0 ? -EIO : query->go_on(query);
	switch (next) {
	case -EAGAIN:
		move(query, LPI_QUERY_INDEX);
		lpi_hold_fetch(&query->hold, query->keeps_claim);
		return false;
	case LPI_WAIT_CLAIM:
		lpi_hold_release(&query->hold);
		move(query, LPI_QUERY_CLAIM);
		return true;
	case LPI_WAIT_INSERTED:
		move(query, LPI_QUERY_INSERTED);
		query->is_waiting = true;
		lp_commit_wait_inserted(block->commit, &query->waiter);
		return false;
	case LPI_WAIT_SCAN:
		move(query, LPI_QUERY_SCAN);
		block->stats.index_waits++;
		lp_kv_scan_submit(block->options.workers, block->options.reactor, &query->scan);
		return false;
	case LPI_WAIT_TURN:
		lpi_hold_soon(&query->hold);
		return false;
	default:
		LP_ASSERT(next <= 0);
		return answer(query, next);
	}
}

static bool on_index(struct lpi_query *query)
{
	bool must_claim = query->ino.nr != 0 && !lpi_hold_has_claim(&query->hold);
	move(query, must_claim ? LPI_QUERY_CLAIM : LPI_QUERY_RESOLVE);
	return true;
}

static bool step(struct lpi_query *query)
{
	switch ((enum lpi_query_state)lp_sm_state(&query->sm)) {
	case LPI_QUERY_CLAIM:
		return on_claim(query);
	case LPI_QUERY_RESOLVE:
		return on_resolve(query);
	case LPI_QUERY_INDEX:
		return on_index(query);
	case LPI_QUERY_INSERTED:
	case LPI_QUERY_SCAN:
		move(query, LPI_QUERY_RESOLVE);
		return true;
	case LPI_QUERY_DURABLE:
		return conclude(query);
	case LPI_QUERY_DONE:
	case LPI_QUERY_FAILED:
	case LPI_QUERY_STATES:
		break;
	}
	LP_UNREACHABLE();
}

static void run(struct lpi_query *query)
{
	while (step(query))
		continue;
	if (lp_sm_is_final(&query->sm))
		finish(query);
}

static void ready(struct lpi_hold *hold)
{
	run(LP_CONTAINER_OF(hold, struct lpi_query, hold));
}

static void scan_done(struct lp_kv_scan_op *scan)
{
	run(LP_CONTAINER_OF(scan, struct lpi_query, scan));
}

static void told(struct lp_commit_waiter *waiter, int result)
{
	struct lpi_query *query = LP_CONTAINER_OF(waiter, struct lpi_query, waiter);
	query->is_waiting = false;
	if (result < 0)
		query->result = -EIO;
	run(query);
}

/* --- The beginning ---------------------------------------------------------------------------- */

static void choose(struct lpi_query *query)
{
	struct lp_store_op *op = query->op;
	bool has_inode;
	switch (op->opcode) {
	case LP_STORE_STAT:
		query->go_on = lpi_query_stat;
		query->ino = op->stat.ino;
		return;
	case LP_STORE_LOOKUP:
		query->go_on = lpi_query_lookup;
		return;
	case LP_STORE_GET:
		has_inode = op->get.space != LP_STORE_RECORDS;
		query->go_on = has_inode ? lpi_query_get : lpi_query_get_record;
		query->ino.nr = has_inode ? op->get.ino.nr : 0;
		return;
	case LP_STORE_LIST:
		has_inode = op->list.space == LP_STORE_XATTRS || op->list.space == LP_STORE_OMAP;
		query->go_on = lpi_query_list;
		query->ino.nr = has_inode ? op->list.ino.nr : 0;
		return;
	case LP_STORE_SEEK:
		query->go_on = lpi_query_seek;
		query->ino = op->seek.ino;
		return;
	case LP_STORE_DIR:
		query->go_on = lpi_query_dir;
		return;
	case LP_STORE_SYNC:
		query->go_on = lpi_query_sync;
		return;
	case LP_STORE_TXN:
	case LP_STORE_READ:
	case LP_STORE_OPCODE_CNT:
		break;
	}
	LP_UNREACHABLE();
}

static void begin(struct lpi_query *query, struct lpi_block *block, struct lp_store_op *op)
{
	block->running++;
	query->op = op;
	query->ino.nr = 0;
	query->keeps_claim = false;
	query->is_waiting = false;
	query->result = 0;
	query->saw_all = false;
	query->group = 0;
	query->waiter = (struct lp_commit_waiter){.told = told};
	query->iter = NULL;
	query->pinned = NULL;
	query->scan_buf = NULL;
	query->scan_max = 0;
	choose(query);
	lpi_hold_init(&query->hold, block, ready);
	lp_sm_init(&query->sm, &lpi_query_table, &block->query_times.observer,
		   lp_reactor_now_ns(block->options.reactor));
}

void lpi_query_submit(struct lpi_block *block, struct lp_store_op *op)
{
	/* No question overtakes waiting ones. */
	struct lpi_query *query = lpi_op_list_is_empty(&block->slots.waiting_queries)
					  ? lp_pool_get(block->queries)
					  : NULL;
	if (query == NULL) {
		lpi_op_list_push_back(&block->slots.waiting_queries, op);
		return;
	}
	begin(query, block, op);
	run(query);
}
