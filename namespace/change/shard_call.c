/* SPDX-License-Identifier: Apache-2.0 */
/* A call and its answer are messages of the reactors, or tasks on the same shard. Only one thread
 * uses the struct at a time; the queue between the threads orders their writes.
 *
 * A write from another shard: its payload is copied on this shard, into buffers that the store will
 * keep. A read for another shard: the answer stays the store's until the caller has copied it and
 * sent the call once more, to be ended.
 *
 * A call that finds no buffer or transfer waits in a list that is tried again each millisecond.
 * Buffers are short only when the thread is very busy, and the pool does not report when one is
 * given back. No other call takes one before that, so small calls do not pass a large one for ever.
 * A transaction that finds no space on the device while some is about to be freed (freeing.h) waits
 * in the same list.
 *
 * Carried data is held only while the store works. So the ranks of its buffers lie between those
 * that a request is received into and those that the store needs (rule B1).
 *
 * Operations by number take effect on their inode in the order of arrival (NS6). So if the first
 * has to wait for buffers, later ones on the inode wait in the same list (keeps_turn). Inodes are
 * compared by hash, so another one may wait with it without need. A call that waits for space does
 * not hold others up: it may wait long, and for the effect of a later one. */
#include "namespace/change/shard_call.h"

#include <errno.h>
#include <stdatomic.h>

#include "namespace/change/ns_state.h"

/* --- There and back --------------------------------------------------------------------------- */

static void run_task(struct lp_task *task)
{
	struct lpi_call *call = LP_CONTAINER_OF(task, struct lpi_call, via.task);
	call->run(call);
}

static void run_message(struct lp_reactor *reactor, struct lp_msg *msg)
{
	struct lpi_call *call = LP_CONTAINER_OF(msg, struct lpi_call, via.msg);
	LP_ASSERT(reactor == call->to->options.reactor);
	call->run(call);
}

static void tell_caller(struct lpi_call *call)
{
	call->from = NULL;
	call->done(call);
}

static void done_task(struct lp_task *task)
{
	tell_caller(LP_CONTAINER_OF(task, struct lpi_call, via.task));
}

static void done_message(struct lp_reactor *reactor, struct lp_msg *msg)
{
	struct lpi_call *call = LP_CONTAINER_OF(msg, struct lpi_call, via.msg);
	LP_ASSERT(reactor == call->from->options.reactor);
	tell_caller(call);
}

void lpi_call_start(struct lp_ns *from, uint32_t shard_idx, struct lpi_call *call)
{
	LP_ASSERT(lpi_call_is_idle(call));
	LP_ASSERT(call->run != NULL && call->done != NULL);
	LP_ASSERT(shard_idx < from->options.shard_cnt);
	call->from = from;
	call->to = from->peers[shard_idx];
	if (call->to == from) {
		call->via.task = (struct lp_task){.run = run_task};
		lp_task_queue(from->options.reactor, &call->via.task);
		return;
	}
	from->stats.face.remote_calls++;
	call->via.msg = (struct lp_msg){.deliver = run_message};
	lp_reactor_send(from->options.reactor, call->to->options.reactor, &call->via.msg);
}

void lpi_call_here(struct lp_ns *ns, struct lpi_call *call)
{
	LP_ASSERT(lpi_call_is_idle(call));
	call->from = ns;
	call->to = ns;
}

void lpi_call_end(struct lpi_call *call, int result)
{
	call->result = result;
	if (call->to == call->from) {
		call->via.task = (struct lp_task){.run = done_task};
		lp_task_queue(call->from->options.reactor, &call->via.task);
		return;
	}
	call->via.msg = (struct lp_msg){.deliver = done_message};
	lp_reactor_send(call->to->options.reactor, call->from->options.reactor, &call->via.msg);
}

/* --- Waiting for buffers or space ------------------------------------------------------------- */

static void run_store(struct lpi_call *call);
static void bring_read(struct lpi_call *call);
static struct lpi_lock look_of(const struct lp_store_op *op);

static void retry_later(struct lp_ns *ns, struct lpi_call *call, void (*again)(struct lpi_call *))
{
	call->run = again;
	if (call->waits_since_ns == 0)
		call->waits_since_ns = lp_reactor_now_ns(ns->options.reactor);
	lpi_call_list_push_back(&ns->trying_again, call);
	if (!lp_timer_is_armed(&ns->again_timer))
		lp_timer_start(ns->options.reactor, &ns->again_timer,
			       lp_reactor_now_ns(ns->options.reactor) + LP_NS_PER_MS);
}

static uint32_t *turn_of(struct lp_ns *ns, const struct lpi_call *call)
{
	uint64_t hash = call->look.ino.nr * UINT64_C(0x9e3779b97f4a7c15);
	return &ns->turns[(hash >> 32) & (LPI_TURNS - 1)];
}

/* Looks from the beginning again, because a change may have begun to be decided meanwhile. */
static void wait_in_turn(struct lp_ns *ns, struct lpi_call *call)
{
	LP_ASSERT(!call->in_turn);
	if (call->keeps_turn) {
		call->look = look_of(call->store_op);
		call->in_turn = true;
		(*turn_of(ns, call))++;
	}
	retry_later(ns, call, run_store);
}

static bool is_behind(struct lp_ns *ns, const struct lpi_call *call)
{
	return call->keeps_turn && *turn_of(ns, call) > 0;
}

static void leave_turn(struct lp_ns *ns, struct lpi_call *call)
{
	if (!call->in_turn)
		return;
	LP_ASSERT(*turn_of(ns, call) > 0);
	call->in_turn = false;
	(*turn_of(ns, call))--;
}

/* A call that has to wait again is counted before the next one is tried. */
void lpi_calls_retry(struct lp_ns *ns)
{
	struct lpi_call_list waiting;
	struct lpi_call *call = NULL;
	lpi_call_list_init(&waiting);
	lpi_call_list_splice_back(&waiting, &ns->trying_again);
	ns->are_carries_short = false;
	ns->are_answers_short = false;
	LP_LIST_FOREACH (lpi_call_list, &waiting, call)
		leave_turn(ns, call);
	while ((call = lpi_call_list_pop_front(&waiting)) != NULL)
		call->run(call);
}

static void put_buffers(struct lpi_transfer *transfer)
{
	for (uint32_t i = 0; i < transfer->seg_cnt; i++)
		lp_buf_put(transfer->segs[i].buf);
	transfer->seg_cnt = 0;
}

/* Copies the content of segments into new buffers. False, with nothing taken, when they are
 * short. */
static bool copy_to_buffers(struct lp_bufs *bufs, const struct lp_payload *from, uint64_t length,
			    struct lpi_transfer *to)
{
	uint32_t src = 0;
	uint32_t src_offset = 0;
	LP_ASSERT(length > 0 && length <= LP_STORE_WRITE_MAX);
	to->seg_cnt =
		lp_bufs_take(bufs, (uint32_t)length, 0, LP_BUF_CARRY, to->segs, LPI_TRANSFER_SEGS);
	for (uint32_t i = 0; i < to->seg_cnt; i++) {
		for (uint32_t filled = 0; filled < to->segs[i].len;) {
			const struct lp_seg *seg = &from->segs[src];
			uint32_t part = LP_MIN(to->segs[i].len - filled, seg->len - src_offset);
			memcpy(to->segs[i].buf->data + filled,
			       seg->buf->data + seg->offset + src_offset, part);
			filled += part;
			src_offset += part;
			if (src_offset == seg->len) {
				src++;
				src_offset = 0;
			}
		}
	}
	return to->seg_cnt > 0;
}

/* --- Calls under way -------------------------------------------------------------------------- */

static const char *wait_of(const struct lpi_call *call)
{
	if (call->run == bring_read)
		return "buffers for a copy of what was read";
	if (call->may_wait_space && call->space_wait.since_ns != 0)
		return "space that is being freed";
	return "buffers for data of another shard";
}

static uint64_t held_by(const struct lpi_call *call)
{
	uint64_t bytes = 0;
	for (uint32_t i = 0; call->transfer != NULL && i < call->transfer->seg_cnt; i++)
		bytes += call->transfer->segs[i].buf->bytes;
	return bytes;
}

void lp_ns_under_way(struct lp_ns *ns, struct lp_under_way_list *list)
{
	uint64_t now_ns = lp_reactor_now_ns(ns->options.reactor);
	struct lpi_call *call = NULL;
	LP_LIST_FOREACH (lpi_call_list, &ns->trying_again, call) {
		struct lp_under_way *row = lp_under_way_add(list);
		if (row == NULL)
			continue;
		row->part = "names";
		row->operation = call->run == bring_read ? "read" : "change";
		row->state = "WAITING";
		row->waits_for = wait_of(call);
		row->age_ns = now_ns - LP_MIN(call->waits_since_ns, now_ns);
		row->held_bytes = held_by(call);
		row->ino_nr = call->store_op != NULL ? look_of(call->store_op).ino.nr : 0;
	}
}

/* --- Syncing ---------------------------------------------------------------------------------- */

/* A shard is unsynced from the submission of a transaction, before its changes can be seen, until
 * none is under way and all is durable. This is checked in each turn. All transactions of the
 * namespace pass here. */

static void note_submitted(struct lp_ns *ns, const struct lp_store_op *op)
{
	if (op->opcode != LP_STORE_TXN)
		return;
	ns->txns_under_way++;
	/* A shard that has failed takes no more changes; earlier ones are noted already. */
	if (lp_store_error(ns->options.store) < 0)
		return;
	atomic_store_explicit(&ns->is_unsynced, true, memory_order_release);
}

static void note_completed(struct lp_ns *ns, const struct lp_store_op *op)
{
	if (op->opcode == LP_STORE_TXN)
		ns->txns_under_way--;
}

void lpi_call_look_settled(struct lp_ns *ns)
{
	if (lpi_call_is_unsynced(ns) && ns->txns_under_way == 0 &&
	    lp_store_is_settled(ns->options.store))
		atomic_store_explicit(&ns->is_unsynced, false, memory_order_release);
}

bool lpi_call_is_unsynced(const struct lp_ns *ns)
{
	return atomic_load_explicit(&ns->is_unsynced, memory_order_acquire);
}

/* --- Store operations, on the shard ----------------------------------------------------------- */

/* Reads the attributes of the inode that a lookup found, and holds it from here on. False: it has
 * none to read here. */
static bool stat_found(struct lpi_call *call)
{
	struct lp_store_op *lookup = call->store_op;
	lookup->lookup.has_attrs = false;
	if (lookup->result < 0 || lookup->lookup.type == LP_INODE_TYPE_DIR ||
	    lp_ino_shard(lookup->lookup.ino) != call->to->options.shard_idx)
		return false;
	call->lookup_op = lookup;
	*call->stat_op = (struct lp_store_op){.opcode = LP_STORE_STAT,
					      .sees_ordered = lookup->sees_ordered,
					      .stat = {.ino = lookup->lookup.ino}};
	call->store_op = call->stat_op;
	call->look = look_of(call->stat_op);
	run_store(call);
	return true;
}

/* Makes the lookup the call's operation again, with the attributes that were read. */
static void take_stat(struct lpi_call *call)
{
	const struct lp_store_op *stat = call->store_op;
	struct lp_store_op *lookup = call->lookup_op;
	if (lookup == NULL)
		return;
	call->store_op = lookup;
	call->lookup_op = NULL;
	lookup->lookup.has_attrs = stat->result >= 0;
	if (stat->result >= 0)
		lookup->lookup.attrs = stat->stat.attrs;
	else if (stat->result != -ENOENT)
		lookup->result = stat->result;
}

/* True when the call goes on with another operation. */
static bool finish_held(struct lpi_call *call)
{
	struct lp_store_op *op = call->store_op;
	if (op->opcode == LP_STORE_LOOKUP)
		return stat_found(call);
	if (call->has_held && op->result < 0) {
		lpi_opens_let_go(call->to->opens, op->stat.ino, 1);
		call->has_held = false;
	}
	take_stat(call);
	return false;
}

/* True: the call goes on by itself. A store is full only when nothing more is being freed (P6). */
static bool waits_for_space(struct lpi_call *call)
{
	struct lp_ns *ns = call->to;
	if (!call->may_wait_space || ns->state != LPI_NS_SERVING ||
	    !lpi_freeing_goes_on(ns, &call->space_wait))
		return false;
	ns->stats.face.freeing_waits++;
	lpi_orphans_hurry(ns);
	/* Looks again, because a change of the inode may have begun to be decided meanwhile, but
	 * not if the call itself is a step of such a change. */
	retry_later(ns, call, call->stored == NULL ? run_store : lpi_call_submit);
	return true;
}

static void store_completed(struct lp_store_op *op)
{
	struct lpi_call *call = op->user;
	note_completed(call->to, op);
	lpi_board_ended(call->to->board, op);
	if (call->shows_dir && op->opcode == LP_STORE_DIR && op->sees_ordered && op->result >= 0)
		lpi_board_want(call->to->board, op->dir.ino);
	call->shows_dir = false;
	call->saw_ordered |= op->saw_ordered;
	if (call->transfer != NULL) {
		put_buffers(call->transfer);
		op->txn.changes = call->transfer->original;
		lp_pool_put(call->to->transfers, call->transfer);
		call->transfer = NULL;
	}
	if (op->result == -ENOSPC && op->opcode == LP_STORE_TXN && waits_for_space(call))
		return;
	if (call->stored != NULL) {
		call->stored(call);
		return;
	}
	if (call->holds) {
		if (finish_held(call))
			return;
		call->holds = false;
		op = call->store_op;
	} else if (op->opcode == LP_STORE_LOOKUP && call->doubts_attrs) {
		op->lookup.has_attrs = false;
	}
	if (call->to != call->from) {
		lpi_call_end(call, op->result);
		return;
	}
	/* The store never completes inside a submit, so this is not inside lpi_call_store(). */
	call->result = op->result;
	tell_caller(call);
}

static const struct lp_change *find_data(const struct lp_change *changes, uint32_t cnt)
{
	for (uint32_t i = 0; i < cnt; i++) {
		if (changes[i].type == LP_CHANGE_WRITE && changes[i].data.length > 0)
			return &changes[i];
	}
	return NULL;
}

static const struct lp_change *data_change(const struct lp_store_op *op)
{
	return op->opcode == LP_STORE_TXN ? find_data(op->txn.changes, op->txn.change_cnt) : NULL;
}

static void submit(struct lpi_call *call)
{
	/* The data of a write is in buffers of this thread. */
	LP_ASSERT(call->from == call->to || call->transfer != NULL ||
		  data_change(call->store_op) == NULL);
	call->store_op->complete = store_completed;
	call->store_op->user = call;
	/* A lookup waits for its name, but which inode it will find is not known before. While any
	 * change is being decided, the caller must ask for the attributes. */
	call->doubts_attrs = lpi_locks_hard(call->to->locks) > 0;
	if (call->may_wait_space)
		lpi_freeing_tries(call->to, &call->space_wait);
	note_submitted(call->to, call->store_op);
	lpi_board_begins(call->to->board, call->store_op);
	lp_store_submit(call->to->options.store, call->store_op);
}

/* Ends the call without the store. */
static void refuse(struct lpi_call *call, int result)
{
	LP_ASSERT(call->stored == NULL);
	call->store_op->result = result;
	take_stat(call);
	call->holds = false;
	lpi_call_end(call, call->store_op->result);
}

/* Copies the payload of a write from another thread into buffers of this one. False, with nothing
 * taken, when buffers are short. */
static bool bring(struct lpi_call *call, const struct lp_change *write)
{
	struct lp_ns *ns = call->to;
	struct lpi_transfer *transfer = ns->are_carries_short ? NULL : lp_pool_get(ns->transfers);
	bool is_brought =
		transfer != NULL && copy_to_buffers(ns->options.bufs, &write->data.payload,
						    write->data.length, transfer);
	if (!is_brought) {
		ns->are_carries_short = true;
		if (transfer != NULL)
			lp_pool_put(ns->transfers, transfer);
		return false;
	}
	call->transfer = transfer;
	return true;
}

bool lpi_call_bring_data(struct lpi_call *call, const struct lp_change *changes, uint32_t cnt)
{
	const struct lp_change *write = find_data(changes, cnt);
	if (write == NULL || call->from == call->to || call->transfer != NULL || bring(call, write))
		return true;
	retry_later(call->to, call, call->run);
	return false;
}

/* A call that has to wait for buffers of a payload looks again afterwards, because a change may
 * have begun to be decided meanwhile. */
void lpi_call_submit(struct lpi_call *call)
{
	struct lp_ns *ns = call->to;
	struct lp_store_op *op = call->store_op;
	const struct lp_change *write = data_change(op);
	if (is_behind(ns, call)) {
		wait_in_turn(ns, call);
		return;
	}
	if (call->holds && op->opcode == LP_STORE_STAT) {
		call->has_held = lpi_opens_hold(ns->opens, op->stat.ino) == 0;
		/* The inode is being removed. */
		if (!call->has_held) {
			refuse(call, -ENOENT);
			return;
		}
	}
	if (write == NULL || call->from == ns) {
		submit(call);
		return;
	}
	if (call->transfer == NULL && !bring(call, write)) {
		wait_in_turn(ns, call);
		return;
	}
	struct lpi_transfer *transfer = call->transfer;
	memcpy(transfer->changes, op->txn.changes, op->txn.change_cnt * sizeof(struct lp_change));
	struct lp_payload *payload = &transfer->changes[write - op->txn.changes].data.payload;
	payload->segs = transfer->segs;
	payload->seg_cnt = transfer->seg_cnt;
	transfer->original = op->txn.changes;
	op->txn.changes = transfer->changes;
	submit(call);
}

/* A directory's link count changes with its names. So a STAT waits for changes of these, too,
 * unless the count does not matter. It is refused if such a change is stuck: its state stays
 * unknown until the next opening. */
static void look_further(struct lpi_call *call)
{
	struct lpi_lock *look = &call->look;
	if (look->result < 0) {
		refuse(call, look->result);
		return;
	}
	if (call->store_op->opcode == LP_STORE_STAT && look->kind == LPI_LOCK_INODE &&
	    !call->passes_names) {
		look->kind = LPI_LOCK_FRAGMENT;
		if (!lpi_lock_look(call->to->locks, look))
			return;
		if (look->result < 0) {
			refuse(call, look->result);
			return;
		}
	}
	lpi_call_submit(call);
}

static void look_granted(struct lpi_lock *look)
{
	look_further(LP_CONTAINER_OF(look, struct lpi_call, look));
}

static void run_store(struct lpi_call *call)
{
	call->look.granted = look_granted;
	if (call->look.ino.nr == 0)
		lpi_call_submit(call);
	else if (lpi_lock_look(call->to->locks, &call->look))
		look_further(call);
}

/* The inode or name of an operation, for the look before it. */
static struct lpi_lock look_of(const struct lp_store_op *op)
{
	switch (op->opcode) {
	case LP_STORE_TXN:
		return (struct lpi_lock){.kind = LPI_LOCK_INODE, .ino = op->txn.changes[0].ino};
	case LP_STORE_READ:
		return (struct lpi_lock){.kind = LPI_LOCK_INODE, .ino = op->read.ino};
	case LP_STORE_STAT:
		return (struct lpi_lock){.kind = LPI_LOCK_INODE, .ino = op->stat.ino};
	case LP_STORE_LOOKUP:
		return (struct lpi_lock){
			.kind = LPI_LOCK_NAME,
			.ino = op->lookup.dir,
			.hash = lpi_lock_hash(op->lookup.name.data, op->lookup.name.len)};
	case LP_STORE_GET:
		return (struct lpi_lock){.kind = LPI_LOCK_INODE, .ino = op->get.ino};
	case LP_STORE_LIST:
		return (struct lpi_lock){.kind = op->list.space == LP_STORE_ENTRIES
							 ? LPI_LOCK_FRAGMENT
							 : LPI_LOCK_INODE,
					 .ino = op->list.ino};
	case LP_STORE_SEEK:
		return (struct lpi_lock){.kind = LPI_LOCK_INODE, .ino = op->seek.ino};
	case LP_STORE_DIR:
		return (struct lpi_lock){.kind = LPI_LOCK_FRAGMENT, .ino = op->dir.ino};
	case LP_STORE_SYNC:
	case LP_STORE_OPCODE_CNT:
		break;
	}
	return (struct lpi_lock){0};
}

/* --- Store operations, at the caller's -------------------------------------------------------- */

static void let_go(struct lpi_call *call)
{
	lp_store_end(call->to->options.store, call->store_op);
	lpi_call_end(call, 0);
}

static void brought(struct lpi_call *call)
{
	struct lp_store_op *op = call->store_op;
	call->result = op->result;
	op->read.segs = op->read.bytes > 0 ? &call->seg : NULL;
	op->read.seg_cnt = op->read.bytes > 0 ? 1 : 0;
	op->read.crcs = call->crcs == NULL ? NULL : (const uint32_t *)(void *)call->crcs->data;
	call->caller_done(call);
}

/* Copies an answer in the other thread's buffers; then that thread may give them back. */
static void bring_read(struct lpi_call *call)
{
	struct lp_ns *ns = call->home;
	struct lp_store_op *op = call->store_op;
	uint32_t shard_idx = call->to->options.shard_idx;
	if (op->result < 0) {
		call->caller_done(call);
		return;
	}
	if (op->read.bytes > 0 && ns->are_answers_short) {
		retry_later(ns, call, bring_read);
		return;
	}
	if (op->read.bytes > 0) {
		struct lp_buf *data = lp_buf_new_ranked(ns->options.bufs, (uint32_t)op->read.bytes,
							LP_BUF_ANSWER);
		struct lp_buf *crcs =
			lp_buf_new_ranked(ns->options.bufs, LP_BUF_SMALL, LP_BUF_ANSWER);
		if (data == NULL || crcs == NULL) {
			lp_buf_put(data);
			lp_buf_put(crcs);
			ns->are_answers_short = true;
			retry_later(ns, call, bring_read);
			return;
		}
		uint32_t at = 0;
		for (uint32_t i = 0; i < op->read.seg_cnt; i++) {
			const struct lp_seg *seg = &op->read.segs[i];
			memcpy(data->data + at, seg->buf->data + seg->offset, seg->len);
			at += seg->len;
		}
		LP_ASSERT(at == op->read.bytes);
		memcpy(crcs->data, op->read.crcs, op->read.crc_cnt * sizeof(uint32_t));
		call->seg = (struct lp_seg){.buf = data, .len = at};
		call->crcs = crcs;
	}
	call->run = let_go;
	call->done = brought;
	lpi_call_start(ns, shard_idx, call);
}

void lpi_call_store(struct lp_ns *from, uint32_t shard_idx, struct lpi_call *call,
		    struct lp_store_op *op, bool wait_for_hard)
{
	LP_ASSERT(lpi_call_is_idle(call));
	LP_ASSERT((LP_STORE_READ_MAX >> LP_BLOCK_SHIFT) + 1 <= LP_BUF_SMALL / sizeof(uint32_t));
	call->store_op = op;
	call->look = wait_for_hard ? look_of(op) : (struct lpi_lock){0};
	call->stored = NULL;
	call->saw_ordered = false;
	call->space_wait = (struct lpi_freeing_wait){0};
	call->transfer = NULL;
	call->crcs = NULL;
	call->waits_since_ns = 0;
	call->home = from;
	call->run = run_store;
	if (op->opcode == LP_STORE_READ && shard_idx != from->options.shard_idx) {
		call->caller_done = call->done;
		call->done = bring_read;
		/* Those buffers are of the caller's thread, which copies the answer into its own
		 * later. */
		op->read.into = NULL;
	}
	if (shard_idx != from->options.shard_idx) {
		lpi_call_start(from, shard_idx, call);
		return;
	}
	lpi_call_here(from, call);
	run_store(call);
}

void lpi_call_hold(struct lpi_call *call, struct lp_store_op *stat_op)
{
	LP_ASSERT(lpi_call_is_idle(call));
	call->holds = true;
	call->has_held = false;
	call->stat_op = stat_op;
	call->lookup_op = NULL;
}

void lpi_call_end_read(struct lpi_call *call)
{
	LP_ASSERT(lpi_call_is_idle(call));
	LP_ASSERT(call->store_op->opcode == LP_STORE_READ);
	if (call->to == call->home) {
		lp_store_end(call->to->options.store, call->store_op);
		return;
	}
	if (call->crcs == NULL)
		return;
	lp_buf_put(call->seg.buf);
	lp_buf_put(call->crcs);
	call->crcs = NULL;
}
