/* SPDX-License-Identifier: Apache-2.0 */
/* One round: choose runs of neighbouring blocks and write them. Flush when all requested blocks are
 * written, or many blocks since the last flush. Writes go on meanwhile, so a log that is nearly
 * full gets room in small pieces, and not all at once after a long wait. Then write-back rests
 * until it is hurried or its timer fires.
 *
 * The more payloads wait, the fewer writes they take. A block that is rewritten while it waits
 * saves a write, and so does each neighbour that waits as well. If a third of random blocks wait,
 * one write takes two blocks. So under load write-back does not write every payload at once: it
 * writes those beyond a number, and those that have become old.
 *
 * New writes begin when half of those under way have ended. So several completions share one turn
 * of the reactor, and several writes one submission.
 *
 * A failed run is written again after a pause, each block alone, so that the neighbours of a bad
 * block reach the device. A block that has failed TRIES_MAX times is left to the owner (rule L6).
 */
#include "store/commit/writeback.h"

#include <stdlib.h>

#include "base/assert.h"

#define RUNS           32u  /* writes in flight at most */
#define REFILL_RUNS    16u  /* or fewer: more are begun */
#define RUN_BLOCKS_MAX 128u /* of one write */
#define FLUSH_BLOCKS   UINT64_C(1024)
#define TRIES_MAX      6u /* of one block */
#define RETRY_NS       (10 * LP_NS_PER_MS)

struct run {
	struct lp_bdev_op op;
	struct lp_writeback *writeback;
	struct lp_list_node node; /* of the free ones */
	struct lp_extent extent;
	uint32_t failures; /* of its only block; 0 for a longer run */
	struct iovec iov[RUN_BLOCKS_MAX];
	struct lp_pending_version *versions[RUN_BLOCKS_MAX];
};

LP_LIST_DEFINE(run_list, struct run, node);

struct lp_writeback {
	struct lp_writeback_options options;
	struct lp_timer timer;
	struct lp_task task;
	struct lp_bdev_op flush;
	bool flushing;
	bool hurried; /* until all payloads of frames up to hurry_seq are in their blocks */
	uint64_t hurry_seq;
	uint64_t old_seq;    /* frames up to this one were durable when the last old payloads were
				written */
	uint64_t old_at_ns;  /* when the waiting payloads count as old */
	uint64_t added_then; /* when the timer was started */
	bool must_retry;
	bool stopped;
	bool failed;
	bool round_failed;
	bool round_is_full; /* a write of the round failed for lack of space in an image file's
			       host, */
	bool round_is_bad;  /* or for another reason, */
	int refused;        /* and the owner does not take the block over */
	bool is_full;
	uint32_t flight;
	uint64_t fresh_blocks; /* written since the last flush began; */
	uint64_t flush_blocks; /* this many are enough for one flush */
	struct run_list free;
	struct run runs[RUNS];
	struct lp_writeback_stats stats;
};

static void step(struct lp_writeback *wb);

static void fail(struct lp_writeback *wb, int err)
{
	if (wb->failed)
		return;
	wb->failed = true;
	wb->options.events->failed(wb->options.events, err);
}

static void step_later(struct lp_writeback *wb, uint64_t delay_ns)
{
	uint64_t at_ns = lp_reactor_now_ns(wb->options.reactor) + delay_ns;
	if (lp_timer_is_armed(&wb->timer))
		return;
	wb->added_then = lp_pending_stats(wb->options.pending)->added;
	lp_timer_start(wb->options.reactor, &wb->timer, at_ns);
}

static void retry_later(struct lp_writeback *wb)
{
	wb->must_retry = true;
	step_later(wb, RETRY_NS);
}

static void step_soon(struct lp_writeback *wb)
{
	if (!lp_task_is_queued(&wb->task))
		lp_task_queue(wb->options.reactor, &wb->task);
}

/* --- Flush --------------------------------------------------------------------------------------
 */

static void flush_complete(struct lp_bdev_op *op)
{
	struct lp_writeback *wb = LP_CONTAINER_OF(op, struct lp_writeback, flush);
	int err = op->result;
	wb->flushing = false;
	lp_bdev_observe(wb->options.observer, op, wb->options.reactor);
	lp_pending_flush_end(wb->options.pending, err == 0);
	if (err < 0) {
		/* Rule L7: a failed flush is never retried as if nothing had happened. */
		fail(wb, err);
		return;
	}
	wb->options.events->settled(wb->options.events);
	step_soon(wb);
}

static void flush_begin(struct lp_writeback *wb)
{
	wb->fresh_blocks = 0;
	lp_pending_flush_begin(wb->options.pending);
	if (!lp_bdev_caps(lp_bdev_of(wb->options.chan))->volatile_cache) {
		lp_pending_flush_end(wb->options.pending, true);
		wb->options.events->settled(wb->options.events);
		step_soon(wb);
		return;
	}
	wb->flushing = true;
	wb->stats.flushes++;
	wb->flush.opcode = LP_BDEV_FLUSH;
	wb->flush.complete = flush_complete;
	lp_bdev_submit(wb->options.chan, &wb->flush);
}

/* --- Writes ----------------------------------------------------------------------------------- */

/* No write is in flight any more. Failed writes are tried again after a pause. If they only lack
 * space they are tried for ever, because the device does not fail then (P6). */
static void end_round(struct lp_writeback *wb)
{
	bool was_full = wb->is_full;
	bool is_bad = wb->round_is_bad;
	wb->is_full = wb->round_is_full && !wb->round_is_bad;
	wb->round_failed = false;
	wb->round_is_full = false;
	wb->round_is_bad = false;
	if (wb->is_full) {
		retry_later(wb);
		if (!was_full && wb->options.events->full != NULL)
			wb->options.events->full(wb->options.events);
		return;
	}
	if (wb->refused < 0)
		fail(wb, wb->refused);
	else if (is_bad)
		retry_later(wb);
	else
		step_soon(wb);
}

/* The block has used up its tries; only the owner may still store its payload. */
static void give_up(struct lp_writeback *wb, uint64_t block, struct lp_pending_version *version,
		    int err)
{
	struct lp_writeback_events *events = wb->options.events;
	if (events->unwritable != NULL && events->unwritable(events, block))
		lp_pending_stick(wb->options.pending, version);
	else
		wb->refused = err;
}

static void run_failed(struct lp_writeback *wb, struct run *run, int err)
{
	/* A full host does not mean that the block is bad. */
	bool is_bad = err != -ENOSPC;
	for (uint64_t i = 0; i < run->extent.cnt; i++) {
		bool stays = lp_pending_failed(wb->options.pending, run->versions[i], is_bad);
		if (stays && is_bad && run->failures + 1 >= TRIES_MAX)
			give_up(wb, run->extent.block + i, run->versions[i], err);
	}
	wb->stats.retries++;
	wb->round_failed = true;
	wb->round_is_full |= !is_bad;
	wb->round_is_bad |= is_bad;
}

static void run_complete(struct lp_bdev_op *op)
{
	struct run *run = LP_CONTAINER_OF(op, struct run, op);
	struct lp_writeback *wb = run->writeback;
	wb->flight--;
	lp_bdev_observe(wb->options.observer, op, wb->options.reactor);
	for (uint64_t i = 0; i < run->extent.cnt && op->result == 0; i++)
		lp_pending_written(wb->options.pending, run->versions[i]);
	if (op->result < 0) {
		run_failed(wb, run, op->result);
	} else {
		wb->fresh_blocks += run->extent.cnt;
		/* The host has space again, so far. A round may be long. */
		wb->is_full &= wb->round_is_full;
	}
	wb->options.events->ended(wb->options.events, run->extent);
	run_list_push_front(&wb->free, run);
	if (wb->flight == 0)
		end_round(wb);
	else if (wb->flight <= REFILL_RUNS)
		step_soon(wb);
}

static void run_submit(struct lp_writeback *wb, const struct lp_pending_block *blocks, uint32_t cnt)
{
	struct run *run = run_list_pop_front(&wb->free);
	LP_ASSERT(run != NULL); /* flight < RUNS */
	run->writeback = wb;
	run->extent = (struct lp_extent){blocks[0].block, cnt};
	run->failures = blocks[0].failures;
	LP_ASSERT(run->failures == 0 || cnt == 1);
	for (uint32_t i = 0; i < cnt; i++) {
		/* The device only reads from this memory. */
		run->iov[i].iov_base = (void *)(uintptr_t)blocks[i].data;
		run->iov[i].iov_len = LP_BLOCK_BYTES;
		run->versions[i] = blocks[i].version;
	}
	run->op.opcode = LP_BDEV_WRITE;
	run->op.offset_bytes = run->extent.block * LP_BLOCK_BYTES;
	run->op.length_bytes = cnt * LP_BLOCK_BYTES;
	run->op.iov = run->iov;
	run->op.iov_cnt = cnt;
	run->op.complete = run_complete;
	wb->flight++;
	wb->stats.writes++;
	wb->stats.blocks += cnt;
	wb->options.events->begins(wb->options.events, run->extent);
	lp_bdev_submit(wb->options.chan, &run->op);
}

static bool may_write(uint64_t block, void *arg)
{
	struct lp_writeback *wb = arg;
	return wb->options.events->may_write(wb->options.events, block);
}

/* So many payloads are held, including those that are written and wait for the flush. */
static bool are_many(const struct lp_writeback *wb)
{
	return lp_pending_writable(wb->options.pending) >= wb->options.start_versions;
}

static bool is_time(const struct lp_writeback *wb)
{
	const struct lp_pending *pending = wb->options.pending;
	return lp_pending_is_choosing(pending) ||
	       lp_pending_ready(pending) >= wb->options.start_versions ||
	       (wb->hurried && lp_pending_has_ready(pending, wb->hurry_seq));
}

/* Returns whether it began any write. */
static bool write_some(struct lp_writeback *wb)
{
	struct lp_pending_block blocks[RUN_BLOCKS_MAX];
	bool wrote = false;
	if (wb->flight > REFILL_RUNS)
		return false;
	while (wb->flight < RUNS && is_time(wb)) {
		uint32_t cnt = lp_pending_choose(wb->options.pending, blocks, RUN_BLOCKS_MAX,
						 may_write, wb);
		if (cnt == 0)
			break;
		run_submit(wb, blocks, cnt);
		wrote = true;
	}
	return wrote;
}

static void step(struct lp_writeback *wb)
{
	if (wb->failed || wb->stopped || wb->round_failed)
		return;
	bool is_writing = write_some(wb) || wb->flight > 0;
	if (wb->flushing)
		return; /* its end runs the next step */
	if (wb->fresh_blocks >= wb->flush_blocks) {
		flush_begin(wb);
		return;
	}
	if (is_writing)
		return;
	/* A steady writer does not get a flush for every few of its blocks: they wait for more. */
	bool must_flush = wb->hurried || are_many(wb);
	wb->hurried = false;
	if (must_flush && lp_pending_unflushed(wb->options.pending) > 0)
		flush_begin(wb);
	else if (lp_pending_writable(wb->options.pending) > 0)
		step_later(wb, wb->options.wait_ns);
}

static void task_run(struct lp_task *task)
{
	step(LP_CONTAINER_OF(task, struct lp_writeback, task));
}

static void hurry(struct lp_writeback *wb, uint64_t seq)
{
	wb->hurry_seq = wb->hurried ? LP_MAX(wb->hurry_seq, seq) : seq;
	wb->hurried = true;
}

/* No new payload came, or the payloads seen at the last time are old now, or a failed write is
 * tried again. */
static void timer_fire(struct lp_timer *timer)
{
	struct lp_writeback *wb = LP_CONTAINER_OF(timer, struct lp_writeback, timer);
	uint64_t now_ns = lp_reactor_now_ns(wb->options.reactor);
	uint64_t durable = lp_pending_durable_seq(wb->options.pending);
	bool is_idle = lp_pending_stats(wb->options.pending)->added == wb->added_then;
	if (is_idle || wb->must_retry)
		hurry(wb, durable);
	wb->must_retry = false;
	if (now_ns >= wb->old_at_ns) {
		hurry(wb, wb->old_seq);
		wb->old_seq = durable;
		wb->old_at_ns = now_ns + wb->options.old_ns;
	}
	step(wb);
}

/* --- Birth and death -------------------------------------------------------------------------- */

int lp_writeback_new(const struct lp_writeback_options *options,
		     struct lp_writeback **ret_writeback)
{
	struct lp_writeback *wb = calloc(1, sizeof(*wb));
	if (wb == NULL)
		return -ENOMEM;
	wb->options = *options;
	/* Most payloads may wait in a small store, too. */
	wb->flush_blocks = LP_MIN(FLUSH_BLOCKS, LP_MAX(options->start_versions / 4, UINT64_C(1)));
	wb->timer.fire = timer_fire;
	wb->task.run = task_run;
	run_list_init(&wb->free);
	for (uint32_t i = 0; i < RUNS; i++)
		run_list_push_back(&wb->free, &wb->runs[i]);
	*ret_writeback = wb;
	return 0;
}

void lp_writeback_free(struct lp_writeback *wb)
{
	if (wb == NULL)
		return;
	LP_ASSERT(wb->flight == 0 && !wb->flushing);
	if (lp_timer_is_armed(&wb->timer))
		lp_timer_stop(wb->options.reactor, &wb->timer);
	lp_task_cancel(&wb->task);
	free(wb);
}

void lp_writeback_look(struct lp_writeback *wb)
{
	if (wb->failed || wb->stopped)
		return;
	if (is_time(wb))
		step_soon(wb);
	else if (lp_pending_writable(wb->options.pending) > 0)
		step_later(wb, wb->options.wait_ns);
}

void lp_writeback_hurry(struct lp_writeback *wb, uint64_t seq)
{
	if (wb->failed || wb->stopped)
		return;
	hurry(wb, seq);
	step_soon(wb);
}

void lp_writeback_stop(struct lp_writeback *wb)
{
	wb->stopped = true;
	if (lp_timer_is_armed(&wb->timer))
		lp_timer_stop(wb->options.reactor, &wb->timer);
}

bool lp_writeback_is_full(const struct lp_writeback *wb)
{
	return wb->is_full;
}

bool lp_writeback_is_idle(const struct lp_writeback *wb)
{
	return wb->flight == 0 && !wb->flushing;
}

const struct lp_writeback_stats *lp_writeback_stats(const struct lp_writeback *wb)
{
	return &wb->stats;
}
