/* SPDX-License-Identifier: Apache-2.0 */
/* Chunks for another shard that finds none left (rule S5).
 *
 * A shard keeps the chunks that it had to lease, also when their objects have gone: they are
 * returned when the index was flushed and there are far too many of them. Another shard cannot wait
 * for that: who is about to be refused asks all others, and refuses only when they have answered
 * and still there is none.
 *
 * Who is asked lets go what waits for its discard, and if it has more than it needs makes it known
 * durably that some chunks are empty: puts the records of the space, has the index flushed, and
 * returns what is empty then. Once: what is freed meanwhile is for the next who asks, also if he
 * asks before the answer: then all this is done once more before it. An idle shard does it, too. On
 * a device that is really full that would be in vain each time: so it is done only when something
 * was freed since.
 *
 *   asked -> [records of the space, until there are no more] -> [flush] -> [return] -> answer
 */
#include "store/shard_impl.h"

#define ROUNDS_MAX  4096u
#define PATIENCE_NS (20 * LP_NS_PER_S)
#define POLL_NS     (2 * LP_NS_PER_MS)

static void step(struct lp_shard *shard);
static void asked(void *arg);

static uint64_t now_of(const struct lp_shard *shard)
{
	return lp_reactor_now_ns(shard->options.reactor);
}

static bool must_end(const struct lp_shard *shard)
{
	const struct lpi_lend *lend = &shard->lend;
	return lend->is_stopped || shard->closing || shard->error != 0 ||
	       lp_kv_error(shard->kv) < 0 || now_of(shard) >= lend->end_ns;
}

static void end(struct lp_shard *shard)
{
	shard->lend.is_running = false;
	if (!lp_chunks_answer(shard->chunks, shard->options.shard_idx))
		asked(shard);
}

/* --- The steps -------------------------------------------------------------------------------- */

static void work_run(struct lp_work *work)
{
	struct lp_shard *shard = LP_CONTAINER_OF(work, struct lp_shard, lend.work);
	struct lpi_lend *lend = &shard->lend;
	for (uint32_t i = 0; i < lend->chunk_cnt; i++) {
		/* What cannot be returned stays leased, and is found empty at the next opening. */
		int ignored = lp_chunks_return(shard->chunks, shard->options.shard_idx,
					       LP_CHUNK_USE_OBJECTS, lend->chunks[i]);
		(void)ignored;
	}
}

static void work_done(struct lp_work *work)
{
	end(LP_CONTAINER_OF(work, struct lp_shard, lend.work));
}

static bool give(struct lp_shard *shard)
{
	struct lpi_lend *lend = &shard->lend;
	lend->chunk_cnt = lpi_shard_choose_empty(shard, lend->chunks);
	if (lend->chunk_cnt == 0)
		return false;
	lp_workers_submit(shard->options.workers, shard->options.reactor, &lend->work);
	return true;
}

static void poll_later(struct lp_shard *shard)
{
	lp_timer_start(shard->options.reactor, &shard->lend.timer, now_of(shard) + POLL_NS);
}

static void step(struct lp_shard *shard)
{
	struct lpi_lend *lend = &shard->lend;
	LP_ASSERT(lend->is_running);
	if (must_end(shard)) {
		end(shard);
		return;
	}
	if (!lend->is_recorded) {
		/* A record counts when it is in the index: then the flush has it. */
		lend->is_recorded =
			!lpi_shard_checkpoint_some(shard) || ++lend->rounds >= ROUNDS_MAX;
		lp_commit_wait_inserted(shard->commit, &lend->waiter);
		return;
	}
	lpi_shard_take_up_kv_news(shard);
	if (shard->persisted_seq < shard->record_seq) {
		lpi_shard_flush_index(shard);
		poll_later(shard);
		return;
	}
	if (give(shard))
		return;
	lend->removals = shard->removals;
	lend->used_blocks = lp_space_used_blocks(shard->space);
	end(shard);
}

static void told(struct lp_commit_waiter *waiter, int result)
{
	(void)result; /* the shard's error is looked at */
	step(LP_CONTAINER_OF(waiter, struct lp_shard, lend.waiter));
}

static void timer_fire(struct lp_timer *timer)
{
	step(LP_CONTAINER_OF(timer, struct lp_shard, lend.timer));
}

/* If nothing was freed since a round in vain, another one would be, too. */
static bool is_worth_it(const struct lp_shard *shard)
{
	return lp_space_has_surplus(shard->space) &&
	       (shard->lend.removals != shard->removals ||
		shard->lend.used_blocks != lp_space_used_blocks(shard->space));
}

static void begin(struct lp_shard *shard)
{
	struct lpi_lend *lend = &shard->lend;
	if (lend->is_running)
		return; /* its end is the answer */
	lend->is_running = true;
	lend->is_recorded = false;
	lend->rounds = 0;
	lend->end_ns = now_of(shard) + PATIENCE_NS;
	/* Else what was just freed would look as if it were in use for another second. */
	lpi_shard_let_go(shard);
	if (!must_end(shard) && give(shard))
		return;
	if (!must_end(shard) && is_worth_it(shard))
		step(shard);
	else
		end(shard);
}

/* --- Who asks --------------------------------------------------------------------------------- */

/* On the thread of whoever asks, or at the end of a round. */
static void asked(void *arg)
{
	struct lp_shard *shard = arg;
	if (!atomic_exchange(&shard->lend.msg_sent, true))
		lp_reactor_post(shard->options.reactor, &shard->lend.msg);
}

static void deliver(struct lp_reactor *to, struct lp_msg *msg)
{
	struct lp_shard *shard = LP_CONTAINER_OF(msg, struct lp_shard, lend.msg);
	(void)to;
	atomic_store(&shard->lend.msg_sent, false);
	begin(shard);
}

/* --- Birth and death -------------------------------------------------------------------------- */

void lpi_lend_init(struct lp_shard *shard)
{
	struct lpi_lend *lend = &shard->lend;
	lend->waiter.told = told;
	lend->work = (struct lp_work){.run = work_run, .done = work_done};
	lend->timer.fire = timer_fire;
	lend->msg.deliver = deliver;
	lend->is_stopped = true;
}

void lpi_lend_begin(struct lp_shard *shard)
{
	shard->lend.is_stopped = false;
	lp_chunks_listen(shard->chunks, shard->options.shard_idx, asked, shard);
}

bool lpi_lend_is_idle(const struct lp_shard *shard)
{
	return !shard->lend.is_running && !atomic_load(&shard->lend.msg_sent);
}

void lpi_lend_stop(struct lp_shard *shard)
{
	struct lpi_lend *lend = &shard->lend;
	if (lend->is_stopped)
		return;
	lend->is_stopped = true;
	lp_chunks_listen(shard->chunks, shard->options.shard_idx, NULL, NULL);
	if (!lp_timer_is_armed(&lend->timer))
		return;
	lp_timer_stop(shard->options.reactor, &lend->timer);
	end(shard);
}
