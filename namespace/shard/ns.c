/* SPDX-License-Identifier: Apache-2.0 */
/* An operation gets a call (LP_NS_STORE) or a job (all others) out of a pool, or waits in the queue
 * until one comes back. So the number of operations at work is bounded, and waiting ones are served
 * in order. */
#include "namespace/ns.h"

#include <errno.h>
#include <stdlib.h>

#include "namespace/change/ns_state.h"
#include "namespace/ops/copy.h"
#include "namespace/ops/list.h"
#include "namespace/ops/names.h"
#include "namespace/ops/paths.h"
#include "namespace/state/kernel_holds.h"
#include "namespace/values.h"
#include "store/attrs.h"

static lpi_begin_fn *const begin[LP_NS_OPCODE_CNT] = {
	[LP_NS_STAT] = lpi_begin_stat,       [LP_NS_SET] = lpi_begin_set,
	[LP_NS_OPEN] = lpi_begin_open,       [LP_NS_CLOSE] = lpi_begin_close,
	[LP_NS_SYNC] = lpi_begin_sync,       [LP_NS_LOOKUP] = lpi_begin_lookup,
	[LP_NS_MAKE] = lpi_begin_make,       [LP_NS_REMOVE] = lpi_begin_remove,
	[LP_NS_LINK] = lpi_begin_link,       [LP_NS_RENAME] = lpi_begin_rename,
	[LP_NS_READDIR] = lpi_begin_readdir, [LP_NS_WALK] = lpi_begin_walk,
	[LP_NS_PUT] = lpi_begin_put,         [LP_NS_UPLOAD] = lpi_begin_upload,
	[LP_NS_COMMIT] = lpi_begin_commit,   [LP_NS_DELETE] = lpi_begin_delete,
	[LP_NS_COPY] = lpi_begin_copy,       [LP_NS_MOVE] = lpi_begin_move,
	[LP_NS_LIST] = lpi_begin_list,       [LP_NS_FORGET] = lpi_begin_forget,
};

/* --- Operations on one inode ------------------------------------------------------------------ */

/* True for changes on which names and link counts do not depend. */
static bool is_own_change(const struct lp_ns *ns, const struct lp_change *change)
{
	switch (change->type) {
	case LP_GUARD_INODE:
	case LP_GUARD_XATTR:
	case LP_GUARD_NO_XATTR:
	case LP_CHANGE_WRITE:
	case LP_CHANGE_TRUNCATE:
	case LP_CHANGE_PUNCH:
	case LP_CHANGE_PREALLOC:
	case LP_CHANGE_XATTR_SET:
	case LP_CHANGE_XATTR_REMOVE:
	case LP_CHANGE_OMAP_SET:
	case LP_CHANGE_OMAP_REMOVE:
		return true;
	case LP_CHANGE_CLONE:
		return lp_ino_shard(change->clone.src) == lp_ino_shard(change->ino) &&
		       lpi_ino_is_sane(ns, change->clone.src);
	case LP_CHANGE_SET:
		return (change->inode.mask & ~(LP_ATTR_MODE | LP_ATTR_UID | LP_ATTR_GID |
					       LP_ATTR_ATIME | LP_ATTR_MTIME | LP_ATTR_CTIME)) ==
			       0 &&
		       lp_attrs_fault(change->inode.attrs, change->inode.mask) == NULL;
	default:
		return false;
	}
}

static bool is_own_op(const struct lp_ns *ns, struct lp_ino ino, const struct lp_store_op *op)
{
	switch (op->opcode) {
	case LP_STORE_READ:
		return op->read.ino.nr == ino.nr;
	case LP_STORE_SEEK:
		return op->seek.ino.nr == ino.nr;
	case LP_STORE_GET:
		return op->get.ino.nr == ino.nr && op->get.space != LP_STORE_RECORDS;
	case LP_STORE_LIST:
		return op->list.ino.nr == ino.nr &&
		       (op->list.space == LP_STORE_XATTRS || op->list.space == LP_STORE_OMAP);
	case LP_STORE_TXN:
		for (uint32_t i = 0; i < op->txn.change_cnt; i++) {
			if (op->txn.changes[i].ino.nr != ino.nr ||
			    !is_own_change(ns, &op->txn.changes[i]))
				return false;
		}
		return op->txn.change_cnt > 0;
	case LP_STORE_STAT:
	case LP_STORE_LOOKUP:
	case LP_STORE_DIR:
	case LP_STORE_SYNC:
	case LP_STORE_OPCODE_CNT:
		break;
	}
	return false;
}

struct store_call {
	struct lpi_call call;
	struct lp_ns_op *op;
	/* The refusal of a transaction: ordered state that it rests on must be made durable before
	 * the answer. */
	int refusal;
	struct lp_store_op sync;
};

static void put_call(struct lp_ns *ns, struct lpi_call *call)
{
	lp_pool_put(ns->calls, LP_CONTAINER_OF(call, struct store_call, call));
	lpi_ns_left(ns);
}

static void end_store(struct lpi_call *call, int r)
{
	struct lp_ns_op *op = LP_CONTAINER_OF(call, struct store_call, call)->op;
	struct lp_ns *ns = op->home;
	struct lpi_notice *notice = NULL;
	lpi_notice_txn(ns, op, r, &notice);
	/* The call of a successful read has the buffers that lp_ns_end() gives back. */
	if (op->store.op.opcode != LP_STORE_READ || r < 0) {
		op->work = NULL;
		put_call(ns, call);
	}
	if (notice != NULL)
		lpi_notice_tell(notice, op, r);
	else
		lpi_ns_answer(ns, op, r);
}

static void refusal_durable(struct lpi_call *call)
{
	int refusal = LP_CONTAINER_OF(call, struct store_call, call)->refusal;
	end_store(call, call->result < 0 ? call->result : refusal);
}

static void store_done(struct lpi_call *call)
{
	struct store_call *own = LP_CONTAINER_OF(call, struct store_call, call);
	struct lp_ns *ns = own->op->home;
	uint32_t shard_idx = lp_ino_shard(own->op->store.ino);
	if (!lpi_txn_rests_on_seen(&own->op->store.op, call->result) ||
	    !lpi_call_is_unsynced(ns->peers[shard_idx])) {
		end_store(call, call->result);
		return;
	}
	own->refusal = call->result;
	own->sync = (struct lp_store_op){.opcode = LP_STORE_SYNC};
	*call = (struct lpi_call){.done = refusal_durable};
	lpi_call_store(ns, shard_idx, call, &own->sync, false);
}

static void refuse_in_turn(struct lpi_call *call)
{
	end_store(call, call->result);
}

static void run_refusal(struct lpi_call *call)
{
	lpi_call_end(call, -EINVAL);
}

static void begin_store(struct lp_ns *ns, struct store_call *own, struct lp_ns_op *op)
{
	struct lp_ino ino = op->store.ino;
	struct lpi_call *call = &own->call;
	own->op = op;
	*call = (struct lpi_call){
		.done = store_done, .may_wait_space = !op->store.is_impatient, .keeps_turn = true};
	op->work = call;
	if (lpi_ino_is_sane(ns, ino) && is_own_op(ns, ino, &op->store.op)) {
		lpi_call_store(ns, lp_ino_shard(ino), call, &op->store.op, true);
		return;
	}
	call->run = run_refusal;
	call->done = refuse_in_turn;
	lpi_call_start(ns, ns->options.shard_idx, call);
}

void lp_ns_end(struct lp_ns *ns, struct lp_ns_op *op)
{
	struct lpi_call *call = op->work;
	LP_ASSERT(op->opcode == LP_NS_STORE && op->store.op.opcode == LP_STORE_READ);
	LP_ASSERT(call != NULL && op->home == ns);
	op->work = NULL;
	lpi_call_end_read(call);
	put_call(ns, call);
}

/* --- Submitting ------------------------------------------------------------------------------- */

bool lp_ns_asks_first(const struct lp_ns_op *op)
{
	return op->opcode != LP_NS_STORE || lpi_txn_may_own(&op->store.op);
}

/* True for a change that a directory may have, and that is not refused. */
static bool may_own(const struct lp_ns *ns, const struct lp_ns_op *op)
{
	return op->opcode == LP_NS_STORE && lp_ns_asks_first(op) &&
	       lpi_ino_is_sane(ns, op->store.ino) && is_own_op(ns, op->store.ino, &op->store.op);
}

static void begin_refused(struct lpi_job *job)
{
	lpi_job_fail(job, -EINVAL);
}

/* False when no job or call is left for it. */
static bool begin_one(struct lp_ns *ns, struct lp_ns_op *op)
{
	lpi_begin_fn *first = begin[op->opcode];
	if (may_own(ns, op))
		first = lpi_begin_own_store;
	else if (lpi_values_fault(op) != NULL)
		first = begin_refused;
	if (first == NULL) {
		struct store_call *call = lp_pool_get(ns->calls);
		if (call == NULL)
			return false;
		ns->under_way++;
		begin_store(ns, call, op);
		return true;
	}
	struct lpi_job *job = lp_pool_get(ns->jobs);
	if (job == NULL)
		return false;
	ns->under_way++;
	lpi_job_begin(ns, job, op, first);
	return true;
}

static void check_stopped(struct lp_ns *ns);

/* Moves operations that may go on, or must be refused, into the other queue. */
static void pass_notice_queue(struct lp_ns *ns)
{
	struct lp_ns_op *op = NULL;
	while ((op = lpi_ns_op_list_first(&ns->notice_queue)) != NULL) {
		if (ns->state == LPI_NS_SERVING && lpi_notice_must_wait(ns, op))
			return;
		lpi_ns_op_list_remove(op);
		lpi_ns_op_list_push_back(&ns->queue, op);
	}
}

/* True if neither a job nor, if it needs none, a call will be given back. */
static bool waits_for_ever(const struct lp_ns *ns)
{
	return lpi_ns_has_lost_jobs(ns) && lp_pool_free_cnt(ns->calls) > 0;
}

/* Begins waiting operations as far as possible. When the namespace stops, refuses all of them. */
static void run_queue(struct lp_task *task)
{
	struct lp_ns *ns = LP_CONTAINER_OF(task, struct lp_ns, queue_task);
	struct lp_ns_op *op = NULL;
	pass_notice_queue(ns);
	while ((op = lpi_ns_op_list_first(&ns->queue)) != NULL) {
		if (ns->state != LPI_NS_SERVING) {
			lpi_ns_op_list_remove(op);
			lpi_ns_answer(ns, op, -EAGAIN);
			continue;
		}
		if (begin_one(ns, op)) {
			lpi_ns_op_list_remove(op);
			continue;
		}
		if (!waits_for_ever(ns))
			return;
		lpi_ns_op_list_remove(op);
		lpi_ns_answer(ns, op, -EIO);
	}
	check_stopped(ns);
}

void lp_ns_submit(struct lp_ns *ns, struct lp_ns_op *op)
{
	LP_ASSERT(op->complete != NULL && op->opcode < LP_NS_OPCODE_CNT);
	LP_ASSERT(lp_reactor_is_mine(ns->options.reactor));
	op->home = ns;
	op->work = NULL;
	if (op->opcode == LP_NS_STORE && op->store.op.opcode == LP_STORE_TXN)
		op->store.op.txn.heeds_flags = true;
	/* A queue of its own, because a notice may wait for operations in the other queue. */
	if (ns->state == LPI_NS_SERVING && lpi_notice_must_wait(ns, op)) {
		lpi_ns_op_list_push_back(&ns->notice_queue, op);
		return;
	}
	if (ns->state == LPI_NS_SERVING && lpi_ns_op_list_is_empty(&ns->queue) && begin_one(ns, op))
		return;
	lpi_ns_op_list_push_back(&ns->queue, op);
	/* Otherwise the operation that gives a call or job back does this. */
	if (ns->state != LPI_NS_SERVING || lpi_ns_has_lost_jobs(ns))
		lpi_ns_wake_queue(ns);
}

static void check_stopped(struct lp_ns *ns)
{
	if (ns->state != LPI_NS_STOPPING || ns->under_way > ns->stranded_cnt ||
	    lpi_ns_has_queued(ns))
		return;
	if (!ns->is_arriving) {
		ns->is_arriving = true;
		/* Other shards may still ask this shard for something until they have arrived,
		 * too. */
		lpi_call_start(ns, 0, &ns->stop_call);
	} else if (ns->has_arrived) {
		ns->state = LPI_NS_STOPPED;
		ns->stopped(ns, ns->stopped_arg);
	}
}

static void pact_is_stuck(struct lp_ns *ns, struct lpi_pact *pact)
{
	lpi_pact_list_push_back(&ns->pacts_stuck, pact);
	ns->stats.stuck++;
	/* Other pacts go on with the rooms that it does not need any more. */
	lpi_pact_put_rooms(pact);
	lpi_pact_begin_waiting(ns);
	struct lpi_job *job = LP_CONTAINER_OF(pact, struct lpi_job, pact);
	lpi_job_renew_wide(job);
	lpi_job_stuck(job);
}

/* --- A point that all shards must reach ------------------------------------------------------- */

void lpi_ns_arrive(struct lpi_call *call)
{
	struct lp_ns *ns = call->to;
	struct lpi_call *one = NULL;
	LP_ASSERT(ns->options.shard_idx == 0);
	lpi_call_list_push_back(&ns->arrived, call);
	/* call->result is the arriving shard's result; all get the first error. */
	if (call->result < 0 && ns->arrived_result >= 0)
		ns->arrived_result = call->result;
	if (++ns->arrived_cnt < ns->options.shard_cnt)
		return;
	int r = ns->arrived_result;
	ns->arrived_cnt = 0;
	ns->arrived_result = 0;
	while ((one = lpi_call_list_pop_front(&ns->arrived)) != NULL)
		lpi_call_end(one, r);
}

/* --- Opening, closing ------------------------------------------------------------------------- */

static void retry_calls(struct lp_timer *timer)
{
	lpi_calls_retry(LP_CONTAINER_OF(timer, struct lp_ns, again_timer));
}

static void all_stopped(struct lpi_call *call)
{
	struct lp_ns *ns = LP_CONTAINER_OF(call, struct lp_ns, stop_call);
	ns->has_arrived = true;
	/* The last calls of other shards may have begun something: the removal of an orphan. */
	check_stopped(ns);
}

static int new_pools(struct lp_ns *ns)
{
	uint32_t ops = ns->options.ops_max;
	const struct lp_pool_config calls = {
		.name = "namespace calls", .object_bytes = sizeof(struct store_call), .limit = ops};
	const struct lp_pool_config jobs = {
		.name = "namespace jobs", .object_bytes = sizeof(struct lpi_job), .limit = ops};
	const struct lp_pool_config rooms = {.name = "namespace records",
					     .object_bytes = sizeof(struct lpi_part_room),
					     .limit = LPI_ROOMS};
	const struct lp_pool_config transfers = {.name = "namespace transfers",
						 .object_bytes = sizeof(struct lpi_transfer),
						 .limit = LPI_TRANSFERS};
	const struct lp_pool_config batches = {.name = "namespace batches",
					       .object_bytes = sizeof(struct lpi_stat_batch),
					       .limit = LPI_STAT_BATCHES};
	static_assert(LPI_ROOMS >= LPI_WIDES * LPI_PACT_PARTS, "the widest change finds room");
	int r = lp_pool_new(&calls, &ns->calls);
	if (r >= 0)
		r = lp_pool_new(&jobs, &ns->jobs);
	if (r >= 0)
		r = lp_pool_new(&rooms, &ns->rooms);
	if (r >= 0)
		r = lpi_lists_new(ns->options.shard_cnt, &ns->lists);
	if (r >= 0)
		r = lpi_copies_new(&ns->copy_pages);
	if (r >= 0)
		r = lp_pool_new(&batches, &ns->batches);
	if (r >= 0)
		r = lpi_notices_new(ns);
	return r < 0 ? r : lp_pool_new(&transfers, &ns->transfers);
}

static int add_wide(struct lp_ns *ns)
{
	struct lpi_wide *wide = NULL;
	int r = lpi_wide_new(ns->options.shard_cnt, &wide);
	if (r < 0)
		return r;
	wide->next = ns->wides;
	ns->wides = wide;
	ns->wide_cnt++;
	return 0;
}

static int new_tables(struct lp_ns *ns)
{
	/* A job's locks, and those of a wide set; a call may look while it waits. */
	uint32_t locks_max = ns->options.ops_max * (LPI_JOB_LOCKS + 2) * ns->options.shard_cnt;
	ns->dir_kinds = calloc(LPI_DIR_KINDS, sizeof(*ns->dir_kinds));
	if (ns->dir_kinds == NULL)
		return -ENOMEM;
	uint64_t cache_bytes = ns->options.cache_bytes;
	int r = lpi_dircache_new(cache_bytes == 0 ? LPI_DIRCACHE_BYTES : cache_bytes,
				 &ns->dircache);
	if (r >= 0)
		r = lpi_locks_new(LP_MIN(locks_max, LPI_LOCKS_MAX), &ns->locks);
	if (r >= 0)
		r = lpi_opens_new(lpi_orphans_told, ns, &ns->opens);
	if (r >= 0)
		r = lpi_orphans_new(ns, &ns->orphans);
	if (r >= 0)
		r = lpi_board_new(ns, &ns->board);
	if (r >= 0)
		r = lpi_freeing_init(ns);
	for (uint32_t i = 0; i < LPI_WIDES && r >= 0; i++)
		r = add_wide(ns);
	return r < 0 ? r : lpi_start_new(ns, &ns->start);
}

static void each_turn(struct lp_source *source)
{
	struct lp_ns *ns = LP_CONTAINER_OF(source, struct lp_ns, source);
	lpi_call_look_settled(ns);
	lpi_freeing_look(ns);
	if (lp_store_error(ns->options.store) < 0)
		lpi_board_doubt(ns->board);
}

static const struct lpi_ns_above above = {
	.pact_is_stuck = pact_is_stuck,
	.look_stopped = check_stopped,
	.fail_path = lpi_path_end,
	.fail_named = lpi_names_end,
};

int lp_ns_open(const struct lp_ns_options *options, struct lp_ns **ret_ns)
{
	LP_ASSERT(options->shard_cnt > 0 && options->shard_cnt <= LP_SHARDS_MAX);
	LP_ASSERT(options->shard_idx < options->shard_cnt);
	struct lp_ns *ns = calloc(1, sizeof(*ns));
	if (ns == NULL)
		return -ENOMEM;
	ns->options = *options;
	ns->above = &above;
	if (ns->options.ops_max == 0)
		ns->options.ops_max = LP_NS_OPS_MAX;
	lpi_ns_op_list_init(&ns->queue);
	lpi_ns_op_list_init(&ns->notice_queue);
	lpi_pact_list_init(&ns->pacts_waiting);
	lpi_pact_list_init(&ns->pacts_stuck);
	lpi_call_list_init(&ns->trying_again);
	lpi_call_list_init(&ns->arrived);
	lpi_job_list_init(&ns->wide_waiting);
	lpi_job_list_init(&ns->lists_waiting);
	lpi_job_list_init(&ns->copies_waiting);
	ns->source = (struct lp_source){.name = "namespace", .flush = each_turn};
	lp_source_add(ns->options.reactor, &ns->source);
	ns->again_timer.fire = retry_calls;
	ns->queue_task.run = run_queue;
	ns->stop_call.run = lpi_ns_arrive;
	ns->stop_call.done = all_stopped;
	int r = new_pools(ns);
	if (r >= 0)
		r = new_tables(ns);
	if (r < 0) {
		lp_ns_close(ns);
		return r;
	}
	*ret_ns = ns;
	return 0;
}

void lp_ns_start(struct lp_ns *ns, struct lp_ns *const *peers,
		 void (*ready)(struct lp_ns *ns, int result, void *arg), void *arg)
{
	LP_ASSERT(ns->state == LPI_NS_OPENED);
	ns->state = LPI_NS_STARTING;
	ns->peers = peers;
	ns->ready = ready;
	ns->ready_arg = arg;
	lpi_start_run(ns->start);
}

void lpi_ns_started(struct lp_ns *ns, int result)
{
	LP_ASSERT(ns->state == LPI_NS_STARTING);
	lpi_start_free(ns->start);
	ns->start = NULL;
	ns->state = result < 0 ? LPI_NS_OPENED : LPI_NS_SERVING;
	ns->ready(ns, result, ns->ready_arg);
	lpi_ns_wake_queue(ns);
}

void lp_ns_stop(struct lp_ns *ns, void (*stopped)(struct lp_ns *ns, void *arg), void *arg)
{
	LP_ASSERT(ns->state == LPI_NS_SERVING);
	ns->state = LPI_NS_STOPPING;
	ns->stopped = stopped;
	ns->stopped_arg = arg;
	lpi_ns_wake_queue(ns);
	check_stopped(ns);
}

/* Frees jobs of stuck changes, which never end. */
static void free_stuck(struct lp_ns *ns)
{
	struct lpi_pact *pact = NULL;
	while ((pact = lpi_pact_list_pop_front(&ns->pacts_stuck)) != NULL) {
		struct lpi_job *job = LP_CONTAINER_OF(pact, struct lpi_job, pact);
		lpi_pact_put_rooms(pact);
		lpi_wide_free(job->wide);
		lp_pool_put(ns->jobs, job);
		ns->under_way--;
	}
}

void lp_ns_close(struct lp_ns *ns)
{
	if (ns == NULL)
		return;
	lp_source_remove(ns->options.reactor, &ns->source);
	lpi_start_free(ns->start);
	lpi_wide_free(ns->wides);
	lpi_orphans_free(ns->orphans);
	lpi_board_free(ns->board);
	lpi_freeing_fini(ns);
	lpi_opens_free(ns->opens);
	free_stuck(ns);
	/* Operations that still wait, for an abandoned store or a stuck change, wait in memory that
	 * goes with the process. */
	if (ns->under_way == 0) {
		lpi_locks_free(ns->locks);
		lp_pool_free(ns->jobs);
		lp_pool_free(ns->calls);
		lp_pool_free(ns->rooms);
		lp_pool_free(ns->transfers);
		lp_pool_free(ns->lists);
		lp_pool_free(ns->batches);
		lp_pool_free(ns->copy_pages);
		lpi_notices_free(ns);
	}
	lpi_dircache_free(ns->dircache);
	free(ns->dir_kinds);
	free(ns);
}

void lp_ns_hold_shared(struct lp_ns *ns, bool are_held)
{
	ns->are_shared_held = are_held;
	if (!are_held)
		lpi_pact_begin_waiting(ns);
}

bool lp_ns_has_shared(const struct lp_ns *ns)
{
	struct lp_pool_stats rooms;
	lp_pool_read_stats(ns->rooms, &rooms);
	return rooms.in_use > 0;
}

void lp_ns_rest(struct lp_ns *ns)
{
	struct lp_pool *const pools[] = {ns->calls, ns->jobs,    ns->rooms,      ns->transfers,
					 ns->lists, ns->batches, ns->copy_pages, ns->notices};
	for (size_t i = 0; i < LP_ARRAY_SIZE(pools); i++)
		(void)lp_pool_trim(pools[i]);
}

void lp_ns_read_stats(const struct lp_ns *ns, struct lp_ns_stats *ret_stats)
{
	struct lpi_held_stats held;
	lpi_opens_read_held(ns->opens, &held);
	*ret_stats = ns->stats.face;
	ret_stats->lock_waits = lpi_locks_waits(ns->locks);
	ret_stats->opens = lpi_opens_inodes(ns->opens);
	ret_stats->orphans = lpi_opens_orphans(ns->opens);
	ret_stats->held = held.inodes;
	ret_stats->held_bytes = held.bytes;
	ret_stats->held_uncounted = held.uncounted;
	ret_stats->held_unbalanced = held.unbalanced;
	ret_stats->cache_hits = lpi_dircache_hits(ns->dircache);
	ret_stats->cache_misses = lpi_dircache_misses(ns->dircache);
	ret_stats->queued =
		lpi_ns_op_list_count(&ns->queue) + lpi_ns_op_list_count(&ns->notice_queue);
	ret_stats->finish_retries = ns->stats.finish_retries;
	ret_stats->stuck = ns->stats.stuck;
}

uint32_t lp_ns_shard_of(struct lp_ns *ns, struct lp_ino dir, struct lp_bytes name)
{
	bool is_spread = false;
	if (!lpi_ino_is_sane(ns, dir) || !lpi_dir_kind_find(ns, dir, &is_spread))
		return ns->options.shard_idx;
	return lpi_shard_of_entry(ns, dir, is_spread, name);
}
