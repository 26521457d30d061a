/* SPDX-License-Identifier: Apache-2.0 */
/* The order in which things happen. Operations wait in one queue:
 *
 *   queue -> evaluated by a helper, on top of the open group
 *              |  reads of data, lists and seeks: by helpers side by side, when no group is there
 *   open group: collects, while the sealed one is on its way
 *              |  sealed: one frame of the journal, one write-through
 *   sealed group: when the frame is durable, its waiters are told; then a helper applies it: blocks
 *              |  to their files, records into the index
 *   half of the journal is needed: a helper makes durable all that was applied (checkpoint), and
 *              the journal forgets it
 *
 * Whoever evaluates sees the open group, the sealed one and the index, one over the other. Applying
 * changes the index and the files, so nobody reads or evaluates meanwhile; it waits for those who
 * do, and comes first when they have ended.
 *
 * An operation that has seen something that is not durable is told with the group that has it
 * (store I6), unless it does not mind. After a failed frame, or a failed sync, nothing more is
 * taken in (rule L7): what was not durable is dropped, and what is durable is in the index and the
 * files, so it can be read on. After a failed apply the two are not as the journal says, and
 * nothing can be read. The way out of both is to open the store again, which replays the journal.
 */
#include "store/filestore/filestore_impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "store/commit/owed_records.h"

#define EVALUATE_MAX   64u /* operations at a time */
#define BUF_RETRY_NS   LP_NS_PER_MS
#define HOLD_PAYLOADS  64u /* a group of that is not held */
#define BATCH_RESERVED (UINT64_C(64) << 10)

static void step_run(struct lp_task *task)
{
	lpi_fstore_step(LP_CONTAINER_OF(task, struct lpi_fstore_store, step_task));
}

void lpi_fstore_step_soon(struct lpi_fstore_store *store)
{
	if (!lp_task_is_queued(&store->step_task))
		lp_task_queue(store->reactor, &store->step_task);
}

/* --- Telling ---------------------------------------------------------------------------------- */

static void deliver(struct lp_task *task)
{
	struct lpi_fstore_store *store =
		LP_CONTAINER_OF(task, struct lpi_fstore_store, deliver_task);
	struct lpi_fstore_ops ready;
	struct lp_store_op *op;
	lpi_fstore_ops_init(&ready);
	lpi_fstore_ops_splice_back(&ready, &store->done);
	while ((op = lpi_fstore_ops_pop_front(&ready)) != NULL) {
		if (op->opcode < LP_STORE_OPCODE_CNT) {
			store->stats.ops[op->opcode]++;
			store->stats.errors[op->opcode] += op->result < 0;
		}
		lpi_store_tell_damage(store->options.events, op);
		op->complete(op);
	}
	if (store->is_health_due) {
		store->is_health_due = false;
		store->options.events->health(store->options.events, &store->health);
	}
}

static void deliver_soon(struct lpi_fstore_store *store)
{
	if (!lp_task_is_queued(&store->deliver_task))
		lp_task_queue(store->reactor, &store->deliver_task);
}

static void give_read(struct lpi_fstore_store *store, struct lp_store_op *op)
{
	struct lpi_fstore_read *read = op->work;
	op->work = NULL;
	for (uint32_t i = 0; i < read->buf_cnt; i++)
		lp_buf_put(read->bufs[i]);
	read->buf_cnt = 0;
	read->next = store->free_reads;
	store->free_reads = read;
	LP_ASSERT(store->reads_cnt > 0);
	store->reads_cnt--;
}

static void count_done(struct lpi_fstore_store *store, const struct lp_store_op *op)
{
	if (op->opcode == LP_STORE_READ)
		store->stats.read_bytes += op->read.bytes;
	if (op->opcode != LP_STORE_TXN)
		return;
	for (uint32_t i = 0; i < op->txn.change_cnt; i++) {
		if (op->txn.changes[i].type != LP_CHANGE_WRITE)
			continue;
		store->stats.written_bytes += op->txn.changes[i].data.length;
		store->stats.writes_by_path[op->txn.path]++;
	}
}

/* The operation has its result. */
static void end_op(struct lpi_fstore_store *store, struct lp_store_op *op)
{
	if (op->work != NULL && (op->opcode != LP_STORE_READ || op->result < 0))
		give_read(store, op);
	if (op->result < 0 && op->opcode == LP_STORE_READ) {
		op->read.seg_cnt = 0;
		op->read.crc_cnt = 0;
		op->read.bytes = 0;
	}
	if (op->result >= 0)
		count_done(store, op);
	lpi_fstore_ops_push_back(&store->done, op);
	deliver_soon(store);
}

/* Nothing of it has happened, or is known. */
static void refuse_op(struct lpi_fstore_store *store, struct lp_store_op *op)
{
	op->result = op->opcode == LP_STORE_TXN ? -EROFS : -EIO;
	end_op(store, op);
}

/* --- Failing ---------------------------------------------------------------------------------- */

/* Once, and once more if nothing can be read either; what was not durable is dropped when nobody
 * looks at it any more. */
void lpi_fstore_fail(struct lpi_fstore_store *store, int err, bool is_dead, const char *what)
{
	struct lp_store_health *health = &store->health;
	bool is_worse = is_dead && !store->is_dead;
	if (store->error != 0 && !is_worse)
		return;
	store->is_dead = is_dead;
	store->error = err;
	*health = (struct lp_store_health){
		.state = is_dead ? LP_STORE_DEAD : LP_STORE_READ_ONLY,
		.error = err,
		.since_ns = lp_clock_wall_ns(lp_reactor_clock(store->reactor))};
	(void)snprintf(health->reason, sizeof(health->reason), "%s: %s", what, lp_strerror(err));
	store->is_health_due =
		store->options.events != NULL && store->options.events->health != NULL;
	deliver_soon(store);
	lpi_fstore_step_soon(store);
}

static void group_clear(struct lpi_fstore_group *group)
{
	LP_ASSERT(lpi_fstore_ops_is_empty(&group->waiters));
	lpi_fstore_overlay_clear(&group->overlay);
	group->change_cnt = 0;
	group->is_wanted = false;
	group->is_used = false;
	free(group->data);
	group->data = NULL;
	group->data_cnt = 0;
}

static void refuse_waiters(struct lpi_fstore_store *store, struct lpi_fstore_group *group)
{
	struct lp_store_op *op;
	while ((op = lpi_fstore_ops_pop_front(&group->waiters)) != NULL)
		refuse_op(store, op);
}

/* After a failure, when nothing is under way. Questions that were being answered when it came may
 * wait for the frame that failed. */
static void drop_groups(struct lpi_fstore_store *store)
{
	refuse_waiters(store, store->open);
	group_clear(store->open);
	if (store->sealed != NULL)
		refuse_waiters(store, store->sealed);
	if (store->sealed != NULL && !store->is_dead) {
		group_clear(store->sealed);
		store->sealed = NULL;
	}
	store->needs_quiet = false;
}

/* --- Groups ----------------------------------------------------------------------------------- */

static bool has_groups(const struct lpi_fstore_store *store)
{
	return store->open->is_used || store->sealed != NULL;
}

/* The one to wait for by who has seen all there is; NULL: it is durable. */
static struct lpi_fstore_group *undurable(struct lpi_fstore_store *store)
{
	if (store->open->is_used)
		return store->open;
	return store->sealed != NULL && !store->is_durable ? store->sealed : NULL;
}

static void wait_for(struct lpi_fstore_group *group, struct lp_store_op *op)
{
	group->is_wanted = true;
	lpi_fstore_ops_push_back(&group->waiters, op);
}

static void frame_complete(struct lp_log_frame *frame)
{
	struct lpi_fstore_group *group = LP_CONTAINER_OF(frame, struct lpi_fstore_group, frame);
	struct lpi_fstore_store *store = group->store;
	struct lp_store_op *op;
	LP_ASSERT(store->sealed == group && !store->is_durable);
	if (frame->result < 0)
		lpi_fstore_fail(store, frame->result, false, "the journal cannot be written");
	while ((op = lpi_fstore_ops_pop_front(&group->waiters)) != NULL) {
		if (frame->result < 0) {
			op->result = -EIO;
			if (op->opcode == LP_STORE_TXN)
				op->txn.is_unknown = true;
		}
		end_op(store, op);
	}
	store->is_durable = frame->result == 0;
	store->is_writing = false;
	group->seq = frame->seq;
	lpi_fstore_step_soon(store);
}

/* The blocks with their checksums, which the group's own records of maps have. */
static int fill_data(struct lpi_fstore_group *group)
{
	const struct lpi_fstore_view view = {.layers = {&group->overlay}, .layer_cnt = 1};
	struct lpi_mapleaf leaf = {.data = 0};
	struct lpi_object_place known = {.block = UINT64_MAX};
	uint32_t cnt = 0;
	group->data = calloc(LP_MAX(group->overlay.payload_cnt, 1u), sizeof(*group->data));
	if (group->data == NULL)
		return -ENOMEM;
	struct lpi_object_place place = {.block = 0};
	const struct lpi_fstore_rec *rec = lpi_fstore_overlay_payloads(&group->overlay);
	for (; rec != NULL && rec->key[0] == LPI_PAYLOAD_SPACE; rec = lpi_fstore_recs_next(rec)) {
		if (rec->value == NULL)
			continue;
		lpi_payload_place(rec, &place);
		uint64_t first = lp_align_down(place.block, LPI_LEAF_BLOCKS);
		if (known.ino.nr != place.ino.nr || known.block != first) {
			int err = lpi_mapleaf_get(&view, place.ino, first, &leaf);
			if (err < 0)
				return err;
			known = (struct lpi_object_place){.ino = place.ino, .block = first};
		}
		LP_ASSERT(cnt < group->overlay.payload_cnt);
		LP_ASSERT((leaf.data & lpi_mapleaf_bit(place.block)) != 0);
		group->data[cnt++] = (struct lp_log_data){
			.about = {.ino = place.ino.nr,
				  .file_block = place.block,
				  .device_block = place.side,
				  .crc = leaf.crcs[lpi_mapleaf_slot(place.block)]},
			.block = rec->value};
	}
	group->data_cnt = cnt;
	return 0;
}

static int put_applied(struct lpi_fstore_store *store, struct lp_kv_batch *batch)
{
	uint8_t value[LP_APPLIED_BYTES_MAX];
	struct lp_key key;
	uint64_t seq = lp_log_next_seq(store->log);
	size_t len = lp_applied_encode(seq, seq, value);
	lp_key_of_store(&key, "applied");
	return lp_kv_batch_put(batch, lpi_kv_bytes_of(&key), (struct lp_kv_bytes){value, len});
}

static int fill_batch(struct lpi_fstore_store *store, struct lpi_fstore_group *group)
{
	const struct lpi_fstore_rec *rec = lpi_fstore_recs_first(&group->overlay.recs);
	int err = 0;
	lp_kv_batch_clear(group->batch);
	for (; rec != NULL && err == 0; rec = lpi_fstore_recs_next(rec)) {
		struct lp_kv_bytes key = {rec->key, rec->key_len};
		if (rec->key[0] == LPI_PAYLOAD_SPACE)
			continue;
		err = rec->value == NULL
			      ? lp_kv_batch_delete(group->batch, key)
			      : lp_kv_batch_put(group->batch, key,
						(struct lp_kv_bytes){rec->value, rec->value_len});
	}
	return err < 0 ? err : put_applied(store, group->batch);
}

/* The frame of what the group has, under the number that the next frame gets. */
static int append(struct lpi_fstore_store *store, struct lpi_fstore_group *group)
{
	int err = fill_batch(store, group);
	if (err == 0 && group->data == NULL)
		err = fill_data(group);
	if (err < 0)
		return err;
	struct lp_kv_bytes bytes = lp_kv_batch_data(group->batch);
	group->piece =
		(struct iovec){.iov_base = (void *)(uintptr_t)bytes.data, .iov_len = bytes.len};
	group->frame = (struct lp_log_frame){.batch = &group->piece,
					     .batch_cnt = 1,
					     .record_cnt = lp_kv_batch_cnt(group->batch),
					     .changes = group->changes,
					     .change_cnt = group->change_cnt,
					     .data = group->data,
					     .data_cnt = group->data_cnt,
					     .complete = frame_complete};
	return lp_log_append(store->log, &group->frame);
}

static void log_ready(struct lp_log_waiter *waiter)
{
	struct lpi_fstore_store *store =
		LP_CONTAINER_OF(waiter, struct lpi_fstore_store, log_waiter);
	store->is_waiting_for_log = false;
	lpi_fstore_step_soon(store);
}

static bool is_due(const struct lpi_fstore_store *store)
{
	const struct lpi_fstore_group *group = store->open;
	return group->is_wanted || store->needs_quiet || store->hold_is_over ||
	       store->options.hold_ns == 0 || group->overlay.payload_cnt >= HOLD_PAYLOADS;
}

static void try_seal(struct lpi_fstore_store *store)
{
	struct lpi_fstore_group *group = store->open;
	/* While it is evaluated the helper has it. */
	if (store->is_evaluating || !group->is_used || store->sealed != NULL ||
	    store->is_waiting_for_log)
		return;
	if (!is_due(store)) {
		if (!lp_timer_is_armed(&store->hold_timer))
			lp_timer_start(store->reactor, &store->hold_timer,
				       lp_reactor_now_ns(store->reactor) + store->options.hold_ns);
		return;
	}
	int err = append(store, group);
	if (err == -EAGAIN) {
		free(group->data); /* more may come to it meanwhile */
		group->data = NULL;
		store->is_waiting_for_log = true;
		lp_log_wait(store->log, &store->log_waiter);
		return;
	}
	if (err < 0) {
		lpi_fstore_fail(store, err, false, "the journal");
		return;
	}
	lp_timer_stop(store->reactor, &store->hold_timer);
	store->hold_is_over = false;
	store->sealed = group;
	store->is_durable = false;
	store->is_writing = true;
	store->open = group == &store->groups[0] ? &store->groups[1] : &store->groups[0];
	store->stats.commits++;
	store->stats.log_writes++;
	store->stats.log_bytes += group->frame.blocks * LP_BLOCK_BYTES;
}

static void hold_fire(struct lp_timer *timer)
{
	struct lpi_fstore_store *store =
		LP_CONTAINER_OF(timer, struct lpi_fstore_store, hold_timer);
	store->hold_is_over = true;
	lpi_fstore_step_soon(store);
}

/* --- Applying --------------------------------------------------------------------------------- */

static void apply_run(struct lp_work *work)
{
	struct lpi_fstore_store *store = LP_CONTAINER_OF(work, struct lpi_fstore_store, apply_work);
	store->apply_result = lpi_fstore_apply(store, store->sealed);
}

static void apply_done(struct lp_work *work)
{
	struct lpi_fstore_store *store = LP_CONTAINER_OF(work, struct lpi_fstore_store, apply_work);
	struct lpi_fstore_group *group = store->sealed;
	store->is_applying = false;
	if (store->apply_result < 0) {
		lpi_fstore_fail(store, store->apply_result, true,
				"what the journal has cannot be applied");
	} else {
		store->applied_seq = group->seq;
		store->stats.data_writes += group->data_cnt;
		store->stats.data_bytes += group->data_cnt * LP_BLOCK_BYTES;
		group_clear(group);
		store->sealed = NULL;
	}
	lpi_fstore_step(store);
}

static void try_apply(struct lpi_fstore_store *store)
{
	if (store->sealed == NULL || !store->is_durable || store->is_applying ||
	    store->is_evaluating || store->readers > 0)
		return;
	store->is_applying = true;
	lp_workers_submit(store->options.workers, store->reactor, &store->apply_work);
}

/* --- Reads by helpers ------------------------------------------------------------------------- */

static bool needs_work(const struct lp_store_op *op)
{
	return op->opcode == LP_STORE_READ || op->opcode == LP_STORE_LIST ||
	       op->opcode == LP_STORE_SEEK;
}

/* One that takes all that is left, or a smaller one when that is all there is. */
static struct lp_buf *new_buf(struct lp_bufs *bufs, uint64_t left, enum lp_buf_rank rank)
{
	uint32_t size = lp_buf_size((uint32_t)LP_MIN(left, (uint64_t)LP_BUF_LARGE));
	struct lp_buf *buf = NULL;
	for (; buf == NULL && size >= LP_BUF_SMALL; size /= 2)
		buf = lp_buf_new_ranked(bufs, size, rank);
	return buf;
}

static bool take_bufs(struct lpi_fstore_store *store, struct lpi_fstore_read *read,
		      const struct lp_store_op *op)
{
	uint64_t begin = lp_align_down(op->read.offset, LP_BLOCK_BYTES);
	uint64_t end = lp_align_up(op->read.offset + op->read.length, LP_BLOCK_BYTES);
	while (begin < end) {
		struct lp_buf *buf = new_buf(store->options.bufs, end - begin, op->read.rank);
		if (buf == NULL)
			return false;
		read->bufs[read->buf_cnt++] = buf;
		begin += buf->bytes;
	}
	return true;
}

/* What a helper needs for it; false: not now. */
static bool prepare_read(struct lpi_fstore_store *store, struct lp_store_op *op)
{
	struct lpi_fstore_read *read = store->free_reads;
	if (read != NULL)
		store->free_reads = read->next;
	else
		read = malloc(sizeof(*read));
	if (read == NULL)
		return false;
	read->store = store;
	read->op = op;
	read->buf_cnt = 0;
	op->work = read;
	store->reads_cnt++;
	if (op->opcode != LP_STORE_READ || take_bufs(store, read, op))
		return true;
	give_read(store, op);
	return false;
}

static void read_run(struct lp_work *work)
{
	struct lpi_fstore_read *read = LP_CONTAINER_OF(work, struct lpi_fstore_read, work);
	const struct lpi_fstore_view view = {.layer_cnt = 0, .kv = read->store->kv};
	struct lp_store_op *op = read->op;
	if (op->opcode == LP_STORE_READ)
		op->result = lpi_fstore_read_data(read->store, &view, op);
	else if (op->opcode == LP_STORE_LIST)
		op->result = lpi_fstore_list(read->store, op);
	else
		op->result = lpi_fstore_seek(read->store, op);
}

static void read_done(struct lp_work *work)
{
	struct lpi_fstore_read *read = LP_CONTAINER_OF(work, struct lpi_fstore_read, work);
	struct lpi_fstore_store *store = read->store;
	LP_ASSERT(store->readers > 0);
	store->readers--;
	end_op(store, read->op);
	lpi_fstore_step_soon(store);
}

static void buf_fire(struct lp_timer *timer)
{
	lpi_fstore_step_soon(LP_CONTAINER_OF(timer, struct lpi_fstore_store, buf_timer));
}

static void retry_fire(struct lp_timer *timer)
{
	lpi_fstore_step_soon(LP_CONTAINER_OF(timer, struct lpi_fstore_store, retry_timer));
}

static void wait_for_bufs(struct lpi_fstore_store *store)
{
	if (!lp_timer_is_armed(&store->buf_timer))
		lp_timer_start(store->reactor, &store->buf_timer,
			       lp_reactor_now_ns(store->reactor) + BUF_RETRY_NS);
}

/* All of these that stand in front. */
static void start_reads(struct lpi_fstore_store *store)
{
	struct lp_store_op *op;
	while ((op = lpi_fstore_ops_first(&store->queue)) != NULL && needs_work(op)) {
		if (!prepare_read(store, op)) {
			wait_for_bufs(store);
			return;
		}
		lpi_fstore_ops_remove(op);
		struct lpi_fstore_read *read = op->work;
		read->work = (struct lp_work){.run = read_run, .done = read_done};
		store->readers++;
		lp_workers_submit(store->options.workers, store->reactor, &read->work);
	}
}

/* --- Evaluating ------------------------------------------------------------------------------- */

static void eval_run(struct lp_work *work)
{
	struct lpi_fstore_eval *eval = LP_CONTAINER_OF(work, struct lpi_fstore_eval, work);
	lpi_fstore_evaluate(eval->store);
}

static void end_evaluated(struct lpi_fstore_store *store, struct lp_store_op *op)
{
	struct lpi_fstore_group *group = undurable(store);
	bool may_go = op->opcode == LP_STORE_TXN ? op->txn.ack == LP_ACK_ORDERED : op->sees_ordered;
	op->saw_ordered = op->opcode != LP_STORE_TXN && may_go && group != NULL;
	if (group == NULL || may_go)
		end_op(store, op);
	else
		wait_for(group, op);
}

/* What was not evaluated stands in front again. */
static void put_back(struct lpi_fstore_store *store)
{
	struct lpi_fstore_ops *todo = &store->eval->todo;
	struct lp_store_op *op;
	LP_LIST_FOREACH (lpi_fstore_ops, todo, op)
		if (op->work != NULL)
			give_read(store, op);
	lpi_fstore_ops_splice_back(todo, &store->queue);
	lpi_fstore_ops_splice_back(&store->queue, todo);
}

static void eval_done(struct lp_work *work)
{
	struct lpi_fstore_eval *eval = LP_CONTAINER_OF(work, struct lpi_fstore_eval, work);
	struct lpi_fstore_store *store = eval->store;
	struct lp_store_op *op;
	store->is_evaluating = false;
	store->is_freeing = eval->gone_is_left || eval->trim_ino != 0;
	store->stats.free_blocks = eval->free_blocks;
	store->stats.used_blocks = eval->used_blocks;
	/* Whoever waits for that no group is under way does not wait in vain. */
	LP_ASSERT(!eval->is_later || has_groups(store));
	store->needs_quiet = eval->is_later || eval->trim_ino != 0;
	store->open->is_wanted = store->open->is_wanted || eval->is_full;
	put_back(store);
	if (eval->fatal < 0)
		lpi_fstore_fail(store, eval->fatal, false, "the host");
	while ((op = lpi_fstore_ops_pop_front(&eval->done)) != NULL) {
		if (eval->fatal < 0) {
			op->result = -EIO;
			end_op(store, op);
		} else {
			end_evaluated(store, op);
		}
	}
	lpi_fstore_step(store);
}

/* In front, and to be evaluated with what is before it. */
static bool take_next(struct lpi_fstore_store *store)
{
	struct lp_store_op *op = lpi_fstore_ops_first(&store->queue);
	if (op == NULL || op->opcode == LP_STORE_SYNC)
		return false;
	if (needs_work(op)) {
		bool is_layered = op->opcode == LP_STORE_READ && op->sees_ordered;
		if (!is_layered || !prepare_read(store, op))
			return false;
	}
	lpi_fstore_ops_remove(op);
	lpi_fstore_ops_push_back(&store->eval->todo, op);
	return true;
}

static void start_evaluation(struct lpi_fstore_store *store)
{
	uint32_t cnt = 0;
	while (cnt < EVALUATE_MAX && take_next(store))
		cnt++;
	bool has_own =
		store->is_freeing && !has_groups(store) && store->error == 0 && !store->is_closing;
	if (cnt == 0 && !has_own)
		return;
	store->is_evaluating = true;
	store->eval->write_path = store->write_path;
	store->eval->is_read_only = store->error != 0;
	lp_workers_submit(store->options.workers, store->reactor, &store->eval->work);
}

/* Completes when all before it is durable; what comes behind it does not wait. */
static void start_syncs(struct lpi_fstore_store *store)
{
	struct lp_store_op *op;
	while ((op = lpi_fstore_ops_first(&store->queue)) != NULL && op->opcode == LP_STORE_SYNC) {
		struct lpi_fstore_group *group = undurable(store);
		lpi_fstore_ops_remove(op);
		if (group == NULL)
			end_op(store, op);
		else
			wait_for(group, op);
	}
}

static void start_front(struct lpi_fstore_store *store)
{
	start_syncs(store);
	const struct lp_store_op *op = lpi_fstore_ops_first(&store->queue);
	bool is_layered = op != NULL && op->opcode == LP_STORE_READ && op->sees_ordered;
	if (op != NULL && needs_work(op) && !(is_layered && has_groups(store))) {
		if (has_groups(store))
			store->open->is_wanted = true;
		else
			start_reads(store);
		return;
	}
	start_evaluation(store);
	if (!store->is_evaluating && op != NULL && is_layered)
		wait_for_bufs(store);
}

/* --- The step --------------------------------------------------------------------------------- */

static bool is_busy(const struct lpi_fstore_store *store)
{
	return store->is_evaluating || store->is_applying || store->is_writing ||
	       store->is_checkpointing || store->is_trimming;
}

/* Nothing is changed any more; what is durable is read, if it can be. */
static void step_failed(struct lpi_fstore_store *store)
{
	struct lpi_fstore_ops left;
	struct lp_store_op *op;
	if (is_busy(store))
		return;
	if (store->is_waiting_for_log)
		lp_log_wait_cancel(&store->log_waiter);
	store->is_waiting_for_log = false;
	lp_timer_stop(store->reactor, &store->hold_timer);
	/* Durable, and to be read: it is applied first. */
	if (store->sealed != NULL && store->is_durable && !store->is_dead) {
		try_apply(store);
		return;
	}
	drop_groups(store);
	lpi_fstore_ops_init(&left);
	lpi_fstore_ops_splice_back(&left, &store->queue);
	while ((op = lpi_fstore_ops_pop_front(&left)) != NULL) {
		if (op->opcode == LP_STORE_TXN || op->opcode == LP_STORE_SYNC || store->is_dead)
			refuse_op(store, op);
		else
			lpi_fstore_ops_push_back(&store->queue, op);
	}
	start_front(store);
}

void lpi_fstore_step(struct lpi_fstore_store *store)
{
	if (store->error != 0) {
		step_failed(store);
		return;
	}
	try_apply(store);
	try_seal(store);
	lpi_fstore_try_checkpoint(store);
	lpi_fstore_try_trim(store);
	bool may_start = !store->is_evaluating && !store->is_applying;
	if (may_start && !(store->needs_quiet && has_groups(store)))
		start_front(store);
	try_seal(store); /* what stands in front may want it now */
}

bool lpi_fstore_is_idle(const struct lpi_fstore_store *store)
{
	return !is_busy(store) && store->readers == 0 && lpi_fstore_ops_is_empty(&store->queue) &&
	       lpi_fstore_ops_is_empty(&store->done) && !lp_task_is_queued(&store->step_task) &&
	       (store->error != 0 || !has_groups(store));
}

void lpi_fstore_abandon(struct lpi_fstore_store *store)
{
	store->error = store->error != 0 ? store->error : -ECANCELED;
	store->is_dead = true;
	lpi_fstore_step_soon(store);
}

void lpi_fstore_want_all(struct lpi_fstore_store *store)
{
	if (store->is_evaluating || !store->open->is_used || store->open->is_wanted)
		return;
	store->open->is_wanted = true;
	lpi_fstore_step_soon(store);
}

/* --- The face --------------------------------------------------------------------------------- */

static void fstore_submit(struct lp_store *base, struct lp_store_op *op)
{
	struct lpi_fstore_store *store = lpi_fstore_store_of(base);
	LP_ASSERT(lp_reactor_is_mine(store->reactor));
	op->work = NULL;
	op->saw_ordered = false;
	op->result = lpi_store_check(op);
	if (op->result < 0) {
		end_op(store, op);
		return;
	}
	lpi_payload_sum(op);
	/* Numbers that tests and tools choose themselves are not given again (rule N5). */
	for (uint32_t i = 0; op->opcode == LP_STORE_TXN && i < op->txn.change_cnt; i++) {
		const struct lp_change *change = &op->txn.changes[i];
		if (change->type == LP_CHANGE_CREATE &&
		    lp_ino_shard(change->ino) == store->options.shard_idx)
			store->next_ino = LP_MAX(store->next_ino, change->ino.nr + 1);
	}
	lpi_fstore_ops_push_back(&store->queue, op);
	lpi_fstore_step_soon(store);
}

static void fstore_end(struct lp_store *base, struct lp_store_op *op)
{
	LP_ASSERT(op->work != NULL);
	give_read(lpi_fstore_store_of(base), op);
}

static struct lp_ino fstore_new_ino(struct lp_store *base)
{
	return (struct lp_ino){lpi_fstore_store_of(base)->next_ino++};
}

static const struct lpi_fstore_store *of(const struct lp_store *base)
{
	return lpi_fstore_store_of((struct lp_store *)(uintptr_t)base);
}

static int fstore_error(const struct lp_store *base)
{
	return of(base)->error;
}

static bool fstore_is_settled(const struct lp_store *base)
{
	const struct lpi_fstore_store *store = of(base);
	return !store->is_evaluating && !store->open->is_used &&
	       (store->sealed == NULL || store->is_durable);
}

static bool fstore_is_freeing(const struct lp_store *base, struct lp_store_freeing *since)
{
	/* The host frees at once, so what is left is little and does not wait for others. */
	since->progress = of(base)->stats.free_blocks;
	return of(base)->error == 0 && of(base)->is_freeing;
}

static void fstore_read_health(const struct lp_store *base, struct lp_store_health *ret_health)
{
	*ret_health = of(base)->health;
}

static void fstore_set_write_path(struct lp_store *base, enum lp_write_path path)
{
	lpi_fstore_store_of(base)->write_path = path;
}

static void fstore_set_deferred_store(struct lp_store *base, enum lp_deferred_store kind)
{
	(void)base; /* what waits for its place is in the journal */
	(void)kind;
}

static void fstore_read_stats(struct lp_store *base, struct lp_store_stats *ret_stats)
{
	struct lpi_fstore_store *store = lpi_fstore_store_of(base);
	struct lp_kv_stats kv;
	lp_kv_read_stats(store->kv, &kv);
	*ret_stats = store->stats;
	ret_stats->budget_bytes = store->options.memory_bytes;
	ret_stats->index_cache_bytes = kv.cache_bytes;
	ret_stats->memtable_bytes = kv.memtable_bytes;
	ret_stats->index_filter_bytes = kv.index_bytes;
	lpi_note_index(&kv, ret_stats);
}

static void fstore_read_usage(struct lp_store *base, struct lp_store_usage *ret_usage)
{
	struct lpi_fstore_store *store = lpi_fstore_store_of(base);
	struct lp_log_usage log;
	struct lp_kv_stats kv;
	lp_kv_read_stats(store->kv, &kv);
	lp_log_read_usage(store->log, &log);
	*ret_usage = (struct lp_store_usage){.free_blocks = store->stats.free_blocks,
					     .used_blocks = store->stats.used_blocks,
					     .index_bytes = kv.table_bytes,
					     .log_ring_blocks = log.ring_blocks,
					     .log_needed_blocks = log.needed_blocks,
					     .log_needed_records = log.needed_records,
					     .start_frames = store->start_frames,
					     .start_payloads = store->start_payloads,
					     .start_ns = store->start_ns};
}

static int fstore_explain(const struct lp_store *base, uint64_t bytes, char *buf, size_t len)
{
	(void)base;
	return snprintf(buf, len,
			"%llu bytes: %s, for a store in files writes directly from 64 KiB on",
			(unsigned long long)bytes,
			bytes < UINT64_C(65536) ? "through the journal" : "to the object's file");
}

/* The host knows. */
static double fstore_alloc_score(const struct lp_store *base)
{
	(void)base;
	return 0;
}

static size_t fstore_read_times(const struct lp_store *base, struct lp_store_time *ret_rows,
				size_t max)
{
	(void)base; /* none are taken */
	(void)ret_rows;
	(void)max;
	return 0;
}

static bool fstore_sim_run_one(struct lp_store *base)
{
	(void)base;
	return false; /* there is no simulation of a host */
}

const struct lpi_store_calls lpi_fstore_calls = {
	.submit = fstore_submit,
	.end = fstore_end,
	.new_ino = fstore_new_ino,
	.close = lpi_fstore_close,
	.error = fstore_error,
	.is_settled = fstore_is_settled,
	.is_freeing = fstore_is_freeing,
	.read_health = fstore_read_health,
	.set_write_path = fstore_set_write_path,
	.set_deferred_store = fstore_set_deferred_store,
	.read_stats = fstore_read_stats,
	.read_usage = fstore_read_usage,
	.explain = fstore_explain,
	.alloc_score = fstore_alloc_score,
	.read_times = fstore_read_times,
	.sim_run_one = fstore_sim_run_one,
};

int lpi_fstore_calls_init(struct lpi_fstore_store *store)
{
	store->base.calls = &lpi_fstore_calls;
	store->health = (struct lp_store_health){.state = LP_STORE_OK};
	lpi_fstore_ops_init(&store->queue);
	lpi_fstore_ops_init(&store->done);
	store->open = &store->groups[0];
	store->apply_work = (struct lp_work){.run = apply_run, .done = apply_done};
	lpi_fstore_checkpoint_init(store);
	store->step_task.run = step_run;
	store->deliver_task.run = deliver;
	store->hold_timer.fire = hold_fire;
	store->buf_timer.fire = buf_fire;
	store->retry_timer.fire = retry_fire;
	store->log_waiter.ready = log_ready;
	for (uint32_t i = 0; i < LP_ARRAY_SIZE(store->groups); i++) {
		struct lpi_fstore_group *group = &store->groups[i];
		group->store = store;
		lpi_fstore_overlay_init(&group->overlay);
		lpi_fstore_ops_init(&group->waiters);
		int err = lp_kv_batch_new(BATCH_RESERVED, &group->batch);
		if (err < 0)
			return err;
	}
	store->eval = calloc(1, sizeof(*store->eval));
	if (store->eval == NULL)
		return -ENOMEM;
	store->eval->store = store;
	store->eval->work = (struct lp_work){.run = eval_run, .done = eval_done};
	store->eval->bounce = aligned_alloc(LP_BLOCK_BYTES, LPI_LEAF_BLOCKS * LP_BLOCK_BYTES);
	lpi_fstore_ops_init(&store->eval->todo);
	lpi_fstore_ops_init(&store->eval->done);
	lpi_fstore_overlay_init(&store->eval->txn);
	return store->eval->bounce == NULL ? -ENOMEM : 0;
}

void lpi_fstore_calls_fini(struct lpi_fstore_store *store)
{
	struct lpi_fstore_read *next = NULL;
	for (uint32_t i = 0; i < LP_ARRAY_SIZE(store->groups); i++) {
		struct lpi_fstore_group *group = &store->groups[i];
		group_clear(group);
		free(group->changes);
		lp_kv_batch_free(group->batch);
	}
	if (store->eval != NULL) {
		lpi_fstore_overlay_clear(&store->eval->txn);
		free(store->eval->bounce);
	}
	free(store->eval);
	for (struct lpi_fstore_read *read = store->free_reads; read != NULL; read = next) {
		next = read->next;
		free(read);
	}
	if (lp_task_is_queued(&store->step_task))
		lp_task_cancel(&store->step_task);
	if (lp_task_is_queued(&store->deliver_task))
		lp_task_cancel(&store->deliver_task);
	lp_timer_stop(store->reactor, &store->hold_timer);
	lp_timer_stop(store->reactor, &store->buf_timer);
	lp_timer_stop(store->reactor, &store->retry_timer);
}
