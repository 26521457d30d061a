/* SPDX-License-Identifier: Apache-2.0 */
/* Room for the index on a full device (rules L8, S5).
 *
 * A transaction causes index writes later, at a memtable flush and at compactions. Admission
 * therefore checks the room first, and admits only changes that can always be written. As space
 * runs out it refuses growth, then rewrites. Removals go on, because they make room. Three things
 * turn removals into room:
 *
 *   records of the space   are put, so that an empty chunk is durably known to be empty;
 *   a compaction           makes tombstones meet the records that they delete;
 *   returned chunks        that hold no object can be leased by any part that needs one.
 *
 * They take time, and are useless unless something was changed since the last time. So they are
 * done when a change is about to be refused, once for all waiters, and not again too soon. Chunks
 * alone are returned after an index flush when another part lacks them.
 */
#include "base/error.h"
#include "store/shard/shard_impl.h"

#define ROUNDS_MAX   4096u
#define PATIENCE_NS  LP_NS_PER_S /* of the waiters */
#define AGAIN_NS     LP_NS_PER_MS
#define FRAMES_MIN   1000u /* of rewriting make another reclaim worthwhile, too */
#define SURPLUS_FREE 8u    /* times the low-water mark is more than needed */

static void step(struct lp_shard *shard);

static void tell(struct lp_shard *shard, int result)
{
	struct lpi_space_waiters now;
	struct lp_commit_waiter *waiter;
	lpi_space_waiters_init(&now);
	lpi_space_waiters_splice_back(&now, &shard->reclaim.waiters);
	while ((waiter = lpi_space_waiters_pop_front(&now)) != NULL)
		waiter->told(waiter, result);
}

static uint64_t now_of(const struct lp_shard *shard)
{
	return lp_reactor_now_ns(shard->options.reactor);
}

/* --- The work of a helper --------------------------------------------------------------------- */

static void return_chunks(struct lp_shard *shard)
{
	struct lpi_reclaim *reclaim = &shard->reclaim;
	for (uint32_t i = 0; i < reclaim->chunk_cnt; i++) {
		/* A chunk that cannot be returned stays leased, and the next opening finds it
		 * empty. */
		int ignored = lp_chunks_return(shard->chunks, shard->options.shard_idx,
					       LP_CHUNK_USE_OBJECTS, reclaim->chunks[i]);
		(void)ignored;
	}
	lp_blockfs_settle(shard->files);
}

static void work_run(struct lp_work *work)
{
	struct lp_shard *shard = LP_CONTAINER_OF(work, struct lp_shard, reclaim.work);
	const struct lp_kv_bytes open_end = {.data = NULL};
	if (shard->reclaim.chunk_cnt > 0) {
		return_chunks(shard);
		return;
	}
	/* A failure comes as an event, or does not matter: then there is no more room than before.
	 */
	shard->reclaim.result = lp_kv_compact(shard->kv, open_end, open_end);
}

static void work_done(struct lp_work *work)
{
	struct lp_shard *shard = LP_CONTAINER_OF(work, struct lp_shard, reclaim.work);
	struct lpi_reclaim *reclaim = &shard->reclaim;
	if (reclaim->chunk_cnt == 0 && reclaim->result == -EAGAIN) {
		lp_timer_start(shard->options.reactor, &reclaim->start_timer,
			       now_of(shard) + AGAIN_NS);
		return;
	}
	if (reclaim->chunk_cnt == 0)
		reclaim->is_compacted = true;
	reclaim->chunk_cnt = 0;
	step(shard);
}

/* --- The steps -------------------------------------------------------------------------------- */

static void end(struct lp_shard *shard)
{
	struct lpi_reclaim *reclaim = &shard->reclaim;
	uint64_t now_ns = now_of(shard);
	reclaim->is_running = false;
	/* At most half of the time is spent on reclaims. */
	reclaim->next_ns = now_ns + (now_ns - reclaim->start_ns);
	lp_timer_stop(shard->options.reactor, &reclaim->timer);
	tell(shard, 0);
}

static uint32_t choose(struct lp_shard *shard)
{
	return lpi_shard_choose_empty(shard, lp_space_keep_blocks(shard->space), LPI_SHARD_RETURNS,
				      shard->reclaim.chunks);
}

static void step(struct lp_shard *shard)
{
	struct lpi_reclaim *reclaim = &shard->reclaim;
	if (!reclaim->is_running) /* chunks only */
		return;
	if (shard->error != 0 || shard->closing) {
		end(shard);
		return;
	}
	if (!reclaim->is_checkpointed) {
		/* A record counts when it is in the index, because only then the compaction's flush
		 * includes it. */
		if (!lpi_shard_checkpoint_some(shard) || ++reclaim->rounds >= ROUNDS_MAX)
			reclaim->is_checkpointed = true;
		lp_commit_wait_inserted(shard->commit, &reclaim->waiter);
		return;
	}
	if (reclaim->is_compacted) {
		lpi_shard_take_up_kv_news(shard);
		lpi_shard_let_go(shard);
		if (lpi_shard_should_return(shard))
			reclaim->chunk_cnt = choose(shard);
		if (reclaim->chunk_cnt == 0) {
			end(shard);
			return;
		}
	}
	lp_workers_submit(shard->options.workers, shard->options.reactor, &reclaim->work);
}

static void told(struct lp_commit_waiter *waiter, int result)
{
	(void)result; /* the shard's error is checked instead */
	step(LP_CONTAINER_OF(waiter, struct lp_shard, reclaim.waiter));
}

static void timer_fire(struct lp_timer *timer)
{
	tell(LP_CONTAINER_OF(timer, struct lp_shard, reclaim.timer), -ENOSPC);
}

/* If nothing was changed since the last reclaim, another one is in vain. */
static bool is_worth_it(const struct lp_shard *shard)
{
	const struct lpi_reclaim *reclaim = &shard->reclaim;
	return lp_work_is_idle(&reclaim->work) && !shard->closing && shard->error == 0 &&
	       lp_kv_error(shard->kv) == 0 &&
	       (reclaim->removals != shard->removals ||
		lp_commit_inserted_seq(shard->commit) >= reclaim->inserted_seq + FRAMES_MIN);
}

static void begin(struct lp_shard *shard)
{
	struct lpi_reclaim *reclaim = &shard->reclaim;
	reclaim->is_running = true;
	reclaim->is_checkpointed = false;
	reclaim->is_compacted = false;
	reclaim->rounds = 0;
	reclaim->removals = shard->removals;
	reclaim->inserted_seq = lp_commit_inserted_seq(shard->commit);
	reclaim->start_ns = now_of(shard);
	lp_timer_start(shard->options.reactor, &reclaim->timer, reclaim->start_ns + PATIENCE_NS);
	lp_commit_wait_inserted(shard->commit, &reclaim->waiter);
}

static void start_fire(struct lp_timer *timer)
{
	struct lp_shard *shard = LP_CONTAINER_OF(timer, struct lp_shard, reclaim.start_timer);
	if (shard->reclaim.is_running)
		step(shard);
	else if (is_worth_it(shard))
		begin(shard);
	else
		tell(shard, 0);
}

/* Starts a reclaim now, later, or not at all. */
static void consider(struct lp_shard *shard)
{
	struct lpi_reclaim *reclaim = &shard->reclaim;
	uint64_t now_ns = now_of(shard);
	if (reclaim->is_running || lp_timer_is_armed(&reclaim->start_timer) || !is_worth_it(shard))
		return;
	if (now_ns >= reclaim->next_ns)
		begin(shard);
	else if (reclaim->next_ns - now_ns <= PATIENCE_NS)
		lp_timer_start(shard->options.reactor, &reclaim->start_timer, reclaim->next_ns);
}

static bool is_coming(const struct lp_shard *shard)
{
	return lp_timer_is_armed(&shard->reclaim.timer) ||
	       lp_timer_is_armed(&shard->reclaim.start_timer);
}

/* --- Whether there is room -------------------------------------------------------------------- */

bool lpi_reclaim_has_room(const struct lp_shard *shard, enum lp_shard_use use)
{
	uint64_t room = lp_blockfs_room_bytes(shard->files);
	switch (use) {
	case LP_SHARD_GROWS:
		/* Writers that are faster than compactions make the compactions larger than
		 * planned. */
		return room >= shard->plan.grow_bytes + lp_kv_debt_bytes(shard->kv);
	case LP_SHARD_REWRITES:
		return room >= shard->plan.rewrite_bytes;
	case LP_SHARD_FREES:
	case LP_SHARD_FREES_LATER:
	default:
		return true;
	}
}

bool lp_shard_cannot_write_back(const struct lp_shard *shard)
{
	return lp_writeback_is_full(shard->writeback);
}

bool lp_shard_is_stuck(const struct lp_shard *shard)
{
	bool has_stopped = lp_kv_error(shard->kv) == -ENOSPC;
	if (has_stopped && lp_commit_is_stalled(shard->commit))
		return true;
	bool is_held_up = lp_writeback_is_full(shard->writeback) && !lpi_renew_helps(shard);
	return (has_stopped || is_held_up) && lp_log_is_tight(shard->log);
}

void lp_shard_note_removal(struct lp_shard *shard)
{
	shard->removals++;
}

/* Rewrites may wait for compactions, because they need no room beyond that of the compactions. */
static bool compactions_may_help(const struct lp_shard *shard, enum lp_shard_use use)
{
	return lp_kv_debt_bytes(shard->kv) > 0 && lp_kv_compact_error(shard->kv) == 0 &&
	       (use == LP_SHARD_REWRITES || lpi_reclaim_has_room(shard, LP_SHARD_REWRITES));
}

bool lp_shard_takes_no_more(const struct lp_shard *shard)
{
	if (shard->options.read_only || shard->error != 0 || lp_kv_error(shard->kv) == -ENOSPC)
		return true;
	return !lpi_reclaim_has_room(shard, LP_SHARD_GROWS) &&
	       !compactions_may_help(shard, LP_SHARD_GROWS);
}

int lp_shard_admit(struct lp_shard *shard, enum lp_shard_use use)
{
	LP_ASSERT(!shard->options.read_only);
	/* The index has stopped for lack of space: changes that are let in only wait in the log. */
	if (lp_kv_error(shard->kv) == -ENOSPC && use != LP_SHARD_FREES)
		return -ENOSPC;
	if (lpi_reclaim_has_room(shard, use))
		return 0;
	if (compactions_may_help(shard, use))
		return -EBUSY;
	consider(shard);
	return is_coming(shard) ? -EAGAIN : -ENOSPC;
}

void lp_shard_wait_index_room(struct lp_shard *shard, struct lp_commit_waiter *waiter)
{
	LP_ASSERT(is_coming(shard));
	lpi_space_waiters_push_back(&shard->reclaim.waiters, waiter);
}

bool lpi_shard_should_return(const struct lp_shard *shard)
{
	const struct lp_disk_label *label = &shard->options.devices->label[LP_ROLE_DATA];
	uint64_t total = (uint64_t)label->chunk_cnt * label->chunk_blocks;
	uint64_t free = lp_alloc_free_blocks(lp_space_alloc(shard->space));
	uint64_t low_water = LP_MIN(LPI_LOW_WATER_BLOCKS, total / LPI_LOW_WATER_SHARE);
	if (lp_blockfs_room_bytes(shard->files) < shard->plan.reserve_bytes)
		return true;
	return label->shard_cnt > 1 && free > SURPLUS_FREE * (low_water + label->chunk_blocks);
}

void lpi_reclaim_look(struct lp_shard *shard)
{
	struct lpi_reclaim *reclaim = &shard->reclaim;
	if (reclaim->is_running || !lp_work_is_idle(&reclaim->work) || shard->closing ||
	    shard->error != 0 || !lpi_shard_should_return(shard))
		return;
	reclaim->chunk_cnt = choose(shard);
	if (reclaim->chunk_cnt > 0)
		lp_workers_submit(shard->options.workers, shard->options.reactor, &reclaim->work);
}

/* --- Birth and death -------------------------------------------------------------------------- */

void lpi_reclaim_init(struct lp_shard *shard)
{
	struct lpi_reclaim *reclaim = &shard->reclaim;
	reclaim->waiter.told = told;
	reclaim->work = (struct lp_work){.run = work_run, .done = work_done};
	reclaim->timer.fire = timer_fire;
	reclaim->start_timer.fire = start_fire;
	shard->removals = 1; /* there may have been some before the opening */
	lpi_space_waiters_init(&reclaim->waiters);
}

bool lpi_reclaim_is_idle(const struct lp_shard *shard)
{
	return !shard->reclaim.is_running && lp_work_is_idle(&shard->reclaim.work);
}

void lpi_reclaim_stop(struct lp_shard *shard)
{
	lp_timer_stop(shard->options.reactor, &shard->reclaim.timer);
	if (lp_timer_is_armed(&shard->reclaim.start_timer)) {
		lp_timer_stop(shard->options.reactor, &shard->reclaim.start_timer);
		step(shard); /* ends the reclaim */
	}
	tell(shard, -EIO);
}
