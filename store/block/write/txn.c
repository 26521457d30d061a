/* SPDX-License-Identifier: Apache-2.0 */
/* The life of a transaction: claims, the round of preparing and waiting, applied, durable. */
#include "store/block/write/edit.h"

#define WAITS                                                                                      \
	(LP_SM_TO(LPI_TXN_INDEX) | LP_SM_TO(LPI_TXN_READ) | LP_SM_TO(LPI_TXN_SPACE) |              \
	 LP_SM_TO(LPI_TXN_DATA_IO) | LP_SM_TO(LPI_TXN_ROOM) | LP_SM_TO(LPI_TXN_MEMORY) |           \
	 LP_SM_TO(LPI_TXN_TRIM))
#define BACK (LP_SM_TO(LPI_TXN_RESOLVE) | LP_SM_TO(LPI_TXN_FAILED))

static const struct lp_sm_state txn_states[LPI_TXN_STATES] = {
	[LPI_TXN_CLAIM] = {"CLAIM", LP_SM_INITIAL, BACK},
	[LPI_TXN_RESOLVE] = {"RESOLVE", 0,
			     WAITS | LP_SM_TO(LPI_TXN_LOGGED) | LP_SM_TO(LPI_TXN_FAILED)},
	[LPI_TXN_INDEX] = {"INDEX", 0, BACK},
	[LPI_TXN_READ] = {"READ", 0, BACK},
	[LPI_TXN_SPACE] = {"SPACE", 0, BACK},
	[LPI_TXN_DATA_IO] = {"DATA_IO", 0, BACK},
	[LPI_TXN_ROOM] = {"ROOM", 0, BACK},
	[LPI_TXN_MEMORY] = {"MEMORY", 0, BACK},
	[LPI_TXN_TRIM] = {"TRIM", 0, BACK},
	[LPI_TXN_LOGGED] = {"LOGGED", 0, LP_SM_TO(LPI_TXN_DONE) | LP_SM_TO(LPI_TXN_FAILED)},
	[LPI_TXN_DONE] = {"DONE", LP_SM_FINAL, 0},
	[LPI_TXN_FAILED] = {"FAILED", LP_SM_FINAL | LP_SM_FAILURE, 0},
};

const struct lp_sm_table lpi_txn_table = {
	.name = "transaction",
	.states = txn_states,
	.state_cnt = LPI_TXN_STATES,
};

size_t lpi_txn_bytes(void)
{
	return sizeof(struct lpi_txn);
}

/* --- The end ---------------------------------------------------------------------------------- */

/* Gives back all that the transaction held. */
static void end(struct lpi_txn *txn, int result)
{
	struct lpi_block *block = txn->block;
	struct lp_store_op *op = txn->op;
	lpi_warmer_fini(&txn->warmer);
	lpi_begun_end(&txn->begun);
	lp_pool_put(block->txns, txn);
	block->running--;
	lpi_block_complete(block, op, result);
	lpi_block_slot_freed(block);
}

static void let_go(struct lpi_txn *txn)
{
	for (uint32_t i = 0; i < txn->node_cnt; i++)
		lpi_node_unpin(txn->nodes[i]);
	txn->node_cnt = 0;
	if (txn->claims.cnt > 0) /* changes of fragments alone claim nothing */
		lp_claims_release(txn->block->claims, &txn->claims);
	lpi_nodes_shrink(&txn->block->nodes);
}

static void drop_trims(struct lpi_txn *txn)
{
	for (uint32_t i = 0; i < txn->op->txn.change_cnt; i++) {
		if (txn->slots[i].trim != NULL)
			lpi_trim_free(txn->slots[i].trim);
		txn->slots[i].trim = NULL;
	}
}

static void fail(struct lpi_txn *txn, int err)
{
	LP_ASSERT(err < 0);
	if (lpi_edit_is_writing(&txn->edit)) {
		/* Its blocks may not be given to others yet. */
		txn->must_wait_io = true;
		txn->result = err;
		return;
	}
	/* The transaction is in no frame, so it has certainly not happened. */
	if (err == -EIO && lp_shard_error(txn->block->shard) != 0)
		err = -EROFS;
	lpi_edit_fini(txn, false);
	drop_trims(txn);
	let_go(txn);
	lpi_txn_move(txn, LPI_TXN_FAILED);
	end(txn, err);
}

/* --- Preparing -------------------------------------------------------------------------------- */

int lpi_txn_pin(struct lpi_txn *txn, struct lpi_node *node)
{
	for (uint32_t i = 0; i < txn->node_cnt; i++) {
		if (txn->nodes[i] == node)
			return 0;
	}
	if (txn->node_cnt == LPI_NODES_MAX)
		return -EFBIG;
	lpi_node_pin(node);
	txn->nodes[txn->node_cnt++] = node;
	return 0;
}

struct lpi_touched *lpi_txn_touched(struct lpi_txn *txn, struct lp_ino ino)
{
	for (uint32_t i = 0; i < txn->touched_cnt; i++) {
		if (txn->touched[i].inode->rec.ino.nr == ino.nr)
			return &txn->touched[i];
	}
	return NULL;
}

int lpi_txn_wait_index(struct lpi_txn *txn)
{
	lpi_txn_move(txn, LPI_TXN_INDEX);
	lpi_warmer_start(&txn->warmer);
	return LPI_WAIT;
}

int lpi_txn_wait_memory(struct lpi_txn *txn)
{
	lpi_txn_move(txn, LPI_TXN_MEMORY);
	lpi_block_wait_memory(txn->block, &txn->waiter);
	return LPI_WAIT;
}

/* The values that the policy learned go into the same group, if there is room for both. */
static bool reserve_more(struct lpi_txn *txn, const struct lp_commit_need *need)
{
	struct lpi_block *block = txn->block;
	struct lp_commit_need more = *need;
	more.batch_bytes += LPI_POLICY_NEED;
	if (!lp_commit_need_is_possible(block->commit, &more) ||
	    !lp_commit_reserve(block->commit, &more))
		return false;
	lpi_policy_put(block);
	return true;
}

static int reserve(struct lpi_txn *txn)
{
	struct lpi_block *block = txn->block;
	struct lp_commit_need need = txn->need;
	for (uint32_t i = 0; i < txn->node_cnt; i++)
		need.batch_bytes += lpi_node_need(txn->nodes[i]);
	/* The bound of inode numbers may have to be raised. */
	need.batch_bytes += LPI_INO_NEED;
	lpi_edit_need(txn, &need);
	if (!lp_commit_need_is_possible(block->commit, &need))
		return -E2BIG;
	/* The log is full of changes for which the index has no space, or a change in the
	 * collecting group would wait until there is some. */
	if (lp_shard_is_stuck(block->shard))
		return -ENOSPC;
	uint64_t now_ns = lp_reactor_now_ns(block->options.reactor);
	if (lpi_policy_is_due(&block->policy, now_ns) && reserve_more(txn, &need))
		return 0;
	if (lp_commit_reserve(block->commit, &need))
		return 0;
	lpi_txn_move(txn, LPI_TXN_ROOM);
	lp_commit_wait_room(block->commit, &txn->waiter);
	return LPI_WAIT;
}

/* Effect of one change on the index. For a write it is known only after planning. */
static enum lp_shard_use use_of(const struct lpi_txn *txn, uint32_t idx)
{
	const struct lp_change *change = &txn->op->txn.changes[idx];
	switch (change->type) {
	case LP_CHANGE_CREATE:
	case LP_CHANGE_PREALLOC:
	case LP_CHANGE_CLONE:
	case LP_CHANGE_OMAP_SET:
		return LP_SHARD_GROWS;
	case LP_CHANGE_ENTRY_SET:
	case LP_CHANGE_XATTR_SET:
		return txn->slots[idx].existed ? LP_SHARD_REWRITES : LP_SHARD_GROWS;
	case LP_CHANGE_WRITE:
	case LP_CHANGE_SET:
	case LP_CHANGE_LINK:
	case LP_CHANGE_RECORD:
		return LP_SHARD_REWRITES;
	case LP_CHANGE_DIR:
		return change->dir.drop ? LP_SHARD_FREES : LP_SHARD_REWRITES;
	default:
		return LP_SHARD_FREES;
	}
}

static bool is_removal(const struct lp_change *change)
{
	enum lp_change_type type = change->type;
	return lpi_change_drops(change) || type == LP_CHANGE_ENTRY_REMOVE ||
	       type == LP_CHANGE_TRUNCATE || type == LP_CHANGE_PUNCH;
}

int lpi_txn_admit(struct lpi_txn *txn, enum lp_shard_use use)
{
	int err = lp_shard_admit(txn->block->shard, use);
	/* A view keeps space in use. */
	if (err < 0)
		txn->block->calls->end_view(txn->block);
	if (err == -EBUSY || err == -ENOSPC)
		return lpi_txn_hope_for_index(txn, err == -EBUSY) ? LPI_WAIT : -ENOSPC;
	if (err != -EAGAIN)
		return err;
	lpi_txn_move(txn, LPI_TXN_SPACE);
	txn->block->stats.space_waits++;
	lp_shard_wait_index_room(txn->block->shard, &txn->waiter);
	return LPI_WAIT;
}

/* The submitter's statement overrides that of the changes. */
static enum lp_shard_use use_of_all(const struct lpi_txn *txn, enum lp_shard_use own)
{
	switch (txn->op->txn.room) {
	case LP_ROOM_GROWS:
		return LP_SHARD_GROWS;
	case LP_ROOM_FREES:
		return LP_SHARD_FREES_LATER;
	case LP_ROOM_ENDS:
		return LP_SHARD_FREES;
	case LP_ROOM_OWN:
		break;
	}
	return own;
}

/* A rewrite that goes with a removal, such as the times of a directory, counts as part of it. */
static int admit(struct lpi_txn *txn)
{
	enum lp_shard_use use = LP_SHARD_FREES;
	bool removes = false;
	for (uint32_t i = 0; i < txn->op->txn.change_cnt; i++) {
		use = LP_MAX(use, use_of(txn, i));
		removes |= is_removal(&txn->op->txn.changes[i]);
	}
	if (use == LP_SHARD_REWRITES && removes)
		use = LP_SHARD_FREES;
	if (use == LP_SHARD_FREES)
		lp_shard_note_removal(txn->block->shard);
	int err = lpi_txn_admit(txn, use_of_all(txn, use));
	txn->is_admitted = err == 0;
	return err;
}

static int prepare(struct lpi_txn *txn)
{
	int err = lp_shard_error(txn->block->shard) != 0 ? -EROFS : 0;
	if (err == 0 && !txn->is_resolved)
		err = lpi_txn_resolve(txn);
	if (err == -EAGAIN)
		return lpi_txn_wait_index(txn);
	if (err == 0 && !txn->is_admitted)
		err = admit(txn);
	if (err == 0 && txn->edit.change != NULL) {
		err = lpi_edit_prepare(txn);
		if (err < 0)
			txn->op->txn.failed_idx = txn->edit.change_idx;
	}
	if (err == 0)
		err = lpi_txn_check_fragments(txn);
	if (err == 0)
		err = reserve(txn);
	return err;
}

static void logged(struct lpi_txn *txn)
{
	struct lpi_block *block = txn->block;
	lpi_edit_fini(txn, true);
	let_go(txn);
	lpi_txn_move(txn, LPI_TXN_LOGGED);
	/* The pipeline may have ended while the changes were made: then none of them becomes
	 * durable. */
	bool is_lost = lp_shard_error(block->shard) != 0;
	if (!is_lost && txn->op->txn.ack == LP_ACK_DURABLE) {
		lp_commit_wait(block->commit, &txn->waiter);
		return;
	}
	lpi_txn_move(txn, is_lost ? LPI_TXN_FAILED : LPI_TXN_DONE);
	end(txn, is_lost ? -EROFS : 0);
}

void lpi_txn_run(struct lpi_txn *txn)
{
	for (;;) {
		lpi_txn_move(txn, LPI_TXN_RESOLVE);
		int err = prepare(txn);
		if (err == LPI_WAIT)
			return;
		if (err < 0) {
			fail(txn, err);
			return;
		}
		lpi_txn_apply(txn);
		if (txn->edit.is_last_step)
			break;
		lpi_edit_next_step(txn);
	}
	logged(txn);
}

/* --- Callbacks -------------------------------------------------------------------------------- */

static void told(struct lp_commit_waiter *waiter, int result)
{
	struct lpi_txn *txn = LP_CONTAINER_OF(waiter, struct lpi_txn, waiter);
	enum lpi_txn_state state = lp_sm_state(&txn->sm);
	if (state == LPI_TXN_LOGGED) {
		if (result == 0 && txn->edit.change != NULL)
			lpi_policy_written(txn->block, &txn->edit.seen);
		txn->op->txn.is_unknown = result == -EIO;
		lpi_txn_move(txn, result < 0 ? LPI_TXN_FAILED : LPI_TXN_DONE);
		end(txn, result);
	} else if (state == LPI_TXN_SPACE && result < 0) {
		if (result == -ENOSPC && lpi_edit_was_refused(&txn->edit))
			lpi_txn_run(txn);
		else if (!lpi_txn_may_hope_for_space(txn))
			fail(txn, result);
	} else {
		lpi_txn_run(txn);
	}
}

static void warmer_ready(struct lpi_warmer *warmer)
{
	lpi_txn_run(LP_CONTAINER_OF(warmer, struct lpi_txn, warmer));
}

static void granted(struct lp_claim_set *set)
{
	/* Called from inside another operation's release, so the transaction goes on in a later
	 * task. */
	struct lpi_txn *txn = LP_CONTAINER_OF(set, struct lpi_txn, claims);
	txn->is_claimed = true;
	lpi_txn_queue(txn);
}

/* --- The beginning ---------------------------------------------------------------------------- */

static bool claim_one(struct lp_claim_set *set, const struct lp_change *change)
{
	switch (change->type) {
	case LP_GUARD_ENTRY:
	case LP_GUARD_NO_ENTRY:
	case LP_CHANGE_ENTRY_SET:
	case LP_CHANGE_ENTRY_REMOVE:
		return lp_claim_set_add(set, lpi_claim_of_name(LP_KEY_SPACE_DIRENT, change->ino,
							       &change->named.name));
	case LP_GUARD_DIR:
		return change->named.name.data == NULL ||
		       lp_claim_set_add(set, lpi_claim_of_name(LP_KEY_SPACE_DIRENT, change->ino,
							       &change->named.name));
	case LP_GUARD_RECORD:
	case LP_GUARD_NO_RECORD:
	case LP_CHANGE_RECORD:
		/* A mark belongs to its inode, which may have one by a trim. */
		if (lpi_change_mark_of(change).nr != 0 &&
		    !lp_claim_set_add(set, lpi_claim_of_ino(lpi_change_mark_of(change))))
			return false;
		return lp_claim_set_add(set,
					lpi_claim_of_name(LP_KEY_SPACE_STORE, (struct lp_ino){0},
							  &change->named.name));
	case LP_GUARD_EMPTY:
	case LP_CHANGE_DIR:
		return true; /* fragments are checked in the turn that applies */
	case LP_GUARD_INODE:
	case LP_GUARD_NO_INODE:
		/* The inode is only looked at. */
		return lp_claim_set_share(set, lpi_claim_of_ino(change->ino));
	case LP_CHANGE_CLONE:
		return lp_claim_set_add(set, lpi_claim_of_ino(change->clone.src)) &&
		       lp_claim_set_add(set, lpi_claim_of_ino(change->ino));
	default:
		return lp_claim_set_add(set, lpi_claim_of_ino(change->ino));
	}
}

static bool is_edit(enum lp_change_type type)
{
	return type >= LP_CHANGE_WRITE && type <= LP_CHANGE_CLONE;
}

static void init(struct lpi_txn *txn, struct lpi_block *block, struct lp_store_op *op)
{
	lp_sm_init(&txn->sm, &lpi_txn_table, &block->txn_times.observer,
		   lp_reactor_now_ns(block->options.reactor));
	txn->block = block;
	txn->op = op;
	lpi_begun_add(block, &txn->begun, &txn->sm, op);
	txn->waiter =
		(struct lp_commit_waiter){.told = told, .begun = lp_shard_questions(block->shard)};
	txn->claims.granted = granted;
	txn->claims.cnt = 0;
	txn->claims.waiting_cnt = 0;
	txn->claims.is_acquired = false;
	txn->is_claimed = false;
	txn->is_resolved = false;
	txn->is_admitted = false;
	txn->must_wait_io = false;
	txn->result = 0;
	txn->node_cnt = 0;
	txn->touched_cnt = 0;
	txn->need = (struct lp_commit_need){0};
	txn->hope = (struct lpi_hope){0};
	txn->index_counted_ns = 0;
	txn->index_tries = 0;
	lp_list_node_init(&txn->task.node);
	lpi_warmer_init(&txn->warmer, block, warmer_ready);
	txn->edit.change = NULL;
	txn->edit.stage = LPI_EDIT_PLAN;
	txn->edit.is_early = false;
	txn->edit.is_last_step = true;
	for (uint32_t i = 0; i < op->txn.change_cnt; i++) {
		txn->slots[i] = (struct lpi_slot){0};
		if (is_edit(op->txn.changes[i].type)) {
			txn->edit.change = &op->txn.changes[i];
			txn->edit.change_idx = i;
		}
	}
	op->txn.failed_idx = op->txn.change_cnt;
}

static void run_task(struct lp_task *task)
{
	struct lpi_txn *txn = LP_CONTAINER_OF(task, struct lpi_txn, task);
	if (txn->is_claimed)
		lpi_txn_run(txn);
}

void lpi_txn_queue(struct lpi_txn *txn)
{
	txn->task.run = run_task;
	if (!lp_task_is_queued(&txn->task))
		lpi_block_soon(txn->block, &txn->task);
}

void lpi_txn_io_ended(struct lpi_txn *txn)
{
	if (txn->must_wait_io)
		fail(txn, txn->result);
	else if (lp_sm_state(&txn->sm) == LPI_TXN_DATA_IO || lp_sm_state(&txn->sm) == LPI_TXN_READ)
		lpi_txn_run(txn);
}

static void start(struct lpi_txn *txn, struct lpi_block *block, struct lp_store_op *op)
{
	init(txn, block, op);
	block->running++;
	for (uint32_t i = 0; i < op->txn.change_cnt; i++) {
		bool fits = claim_one(&txn->claims, &op->txn.changes[i]);
		LP_ASSERT(fits); /* lpi_store_check() has counted */
	}
	if (txn->edit.change != NULL)
		lpi_edit_begin(txn);
	txn->is_claimed = txn->claims.cnt == 0 || lp_claims_acquire(block->claims, &txn->claims);
	if (txn->is_claimed)
		lpi_txn_run(txn);
}

void lpi_txn_submit(struct lpi_block *block, struct lp_store_op *op)
{
	struct lpi_txn *txn = lp_pool_get(block->txns);
	if (txn == NULL)
		lpi_op_list_push_back(&block->slots.waiting_txns, op);
	else
		start(txn, block, op);
}
