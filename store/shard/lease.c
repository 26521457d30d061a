/* SPDX-License-Identifier: Apache-2.0 */
/* Space for a shard: a leased chunk, or blocks that other shards give instead (rule S5).
 *
 * When little space is left the shard leases a chunk, if there is one. A write that finds no space
 * cannot wait for that: it gets a chunk, or blocks that other shards have given, or the shard asks
 * all others. The write is refused when all have answered and there is still no space.
 *
 * The chunk table may be on a slow device, so a helper thread accesses it. */
#include "store/shard/shard_impl.h"

#define LEASE_RETRY_NS LP_NS_PER_S
/* Delay between two looks for the answers of other shards; it doubles each time. */
#define LEASE_POLL_FIRST_NS (100 * LP_NS_PER_US)
#define LEASE_POLL_NS       (2 * LP_NS_PER_MS)
#define LEASE_PATIENCE_NS   (30 * LP_NS_PER_S) /* a thread that hangs is not waited for longer */

/* --- Questions -------------------------------------------------------------------------------- */

/* Each question has a number. A writer notes the number of the last question when it begins. A
 * question that found no space answers all writers that began before it was put, also those that
 * have not looked for space yet (rule S5). Otherwise the writers of one file, which take turns,
 * would each ask anew.
 *
 * The answer holds only while no space moves. Free space that was on its way from one shard to
 * another would have been found in neither. So the answer counts only if no shard had any space,
 * none was on its way (lpi_shard_is_handing_over()), and the table has not changed since just
 * before the question. */

static void question_put(struct lp_shard *shard)
{
	struct lpi_space_question *question = &shard->question;
	question->nr++;
	question->was_in_vain = false;
	question->moves = lp_chunks_moves(shard->chunks);
	question->evasions = lp_chunks_evasions(shard->chunks, shard->options.shard_idx);
}

static bool has_moved(const struct lp_shard *shard)
{
	return lp_chunks_moves(shard->chunks) != shard->question.moves;
}

/* Called before the waiters are told. */
static void question_answered(struct lp_shard *shard, bool is_vain)
{
	struct lpi_space_question *question = &shard->question;
	uint64_t evasions = lp_chunks_evasions(shard->chunks, shard->options.shard_idx);
	question->was_in_vain = is_vain && shard->error == 0 && !shard->closing &&
				!shard->lease_is_asking && evasions == question->evasions &&
				!has_moved(shard);
}

uint64_t lp_shard_questions(const struct lp_shard *shard)
{
	return shard->question.nr;
}

bool lpi_shard_is_handing_over(const struct lp_shard *shard)
{
	return shard->lend.gift_cnt > 0 || !lp_work_is_idle(&shard->lend.work) ||
	       shard->reclaim.chunk_cnt > 0 ||
	       (shard->return_cnt > 0 && !lp_work_is_idle(&shard->resume_work));
}

bool lpi_shard_is_taking_up(const struct lp_shard *shard)
{
	/* The order matters: a helper sets lease_holds before it takes a gift out of the table. */
	return lp_chunks_gift_blocks(shard->chunks, shard->options.shard_idx) > 0 ||
	       atomic_load(&shard->lease_holds);
}

bool lp_shard_has_no_space(struct lp_shard *shard, uint64_t begun)
{
	const struct lpi_space_question *question = &shard->question;
	if (!question->was_in_vain || begun >= question->nr || has_moved(shard) ||
	    lpi_shard_is_handing_over(shard) || shard->error != 0 || shard->closing)
		return false;
	return !lpi_shard_let_go(shard);
}

/* --- Waiters ---------------------------------------------------------------------------------- */

/* All waiters, or only those that the last question answers. */
static void tell(struct lp_shard *shard, int result, bool is_all)
{
	struct lpi_space_waiters later;
	struct lpi_space_waiters now;
	struct lp_commit_waiter *waiter;
	lpi_space_waiters_init(&later);
	lpi_space_waiters_init(&now);
	while ((waiter = lpi_space_waiters_pop_front(&shard->space_waiters)) != NULL) {
		bool is_now = is_all || waiter->begun < shard->question.nr;
		lpi_space_waiters_push_back(is_now ? &now : &later, waiter);
	}
	lpi_space_waiters_splice_back(&shard->space_waiters, &later);
	while ((waiter = lpi_space_waiters_pop_front(&now)) != NULL)
		waiter->told(waiter, result);
}

void lpi_lease_tell(struct lp_shard *shard, int result)
{
	tell(shard, result, true);
}

/* --- Leasing ---------------------------------------------------------------------------------- */

static void find_space(struct lp_shard *shard)
{
	/* Space that files lack of their reserve comes first (rule L8). */
	lp_blockfs_settle(shard->files);
	/* Read before the lease is tried: a shard that has answered has returned its spare chunks
	 * before. */
	shard->lease_is_asking = shard->lease_has_asked &&
				 lp_chunks_is_asking(shard->chunks, shard->options.shard_idx);
	/* Blocks that others gave to this shard are as good as a chunk. */
	shard->lease_result = lpi_lend_collect(shard) ? 0 : -ENOSPC;
	if (shard->lease_result == 0)
		return;
	shard->lease_result =
		lp_chunks_lease(shard->chunks, shard->options.shard_idx, LP_CHUNK_USE_OBJECTS,
				shard->lease_hint, &shard->lease_chunk);
	if (shard->lease_result != -ENOSPC || !shard->lease_may_ask || shard->lease_has_asked)
		return;
	shard->lease_has_asked = true;
	shard->lease_is_asking = lp_chunks_ask(shard->chunks, shard->options.shard_idx);
}

static void lease_run(struct lp_work *work)
{
	struct lp_shard *shard = LP_CONTAINER_OF(work, struct lp_shard, lease_work);
	atomic_store(&shard->lease_holds, true);
	find_space(shard);
	if (shard->lease_result < 0)
		atomic_store(&shard->lease_holds, false);
}

static void lease(struct lp_shard *shard);

static void poll_later(struct lp_shard *shard)
{
	lp_timer_start(shard->options.reactor, &shard->lease_timer,
		       lp_reactor_now_ns(shard->options.reactor) + shard->lease_poll_ns);
	shard->lease_poll_ns = LP_MIN(2 * shard->lease_poll_ns, LEASE_POLL_NS);
}

/* A helper would find nothing now, and not all shards have answered. */
static bool must_wait(const struct lp_shard *shard)
{
	uint32_t self_idx = shard->options.shard_idx;
	return lp_work_is_idle(&shard->lease_work) && shard->lease_has_asked &&
	       lp_chunks_is_asking(shard->chunks, self_idx) &&
	       lp_chunks_gift_blocks(shard->chunks, self_idx) == 0 &&
	       lp_chunks_for_objects_cnt(shard->chunks) == 0 &&
	       lp_reactor_now_ns(shard->options.reactor) < shard->lease_end_ns;
}

/* No chunk is left, but others may have space that they do not need (rule S5). Waiters go on
 * waiting until all shards have answered. */
static bool may_lease_yet(struct lp_shard *shard)
{
	if (shard->closing || shard->error != 0 ||
	    lpi_space_waiters_is_empty(&shard->space_waiters))
		return false;
	if (!shard->lease_has_asked) { /* no waiter when it was tried */
		lease(shard);
		return true;
	}
	if (!shard->lease_is_asking ||
	    lp_reactor_now_ns(shard->options.reactor) >= shard->lease_end_ns)
		return false;
	poll_later(shard);
	return true;
}

/* The leased chunk, or the blocks that were given instead. */
static int add_space(struct lp_shard *shard)
{
	int err = 0;
	if (!lpi_lend_take_up(shard)) {
		shard->lease_hint = shard->lease_chunk + 1;
		err = lp_space_chunk_add(shard->space, shard->lease_chunk);
	}
	atomic_store(&shard->lease_holds, false);
	return err;
}

static void lease_done(struct lp_work *work)
{
	struct lp_shard *shard = LP_CONTAINER_OF(work, struct lp_shard, lease_work);
	int err = shard->lease_result;
	if (err == -ENOSPC && may_lease_yet(shard))
		return;
	bool has_asked = shard->lease_has_asked;
	shard->lease_has_asked = false;
	if (err == 0)
		err = add_space(shard);
	shard->lease_exhausted = err == -ENOSPC;
	if (err < 0 && err != -ENOSPC)
		lpi_shard_fail(shard, err, "the chunk table cannot be written",
			       lp_bdev_of(shard->data));
	/* No chunk is left, but blocks that waited for a discard became free after the waiters
	 * asked. */
	bool is_vain = err < 0 && !shard->gave_way;
	shard->gave_way = false;
	if (has_asked)
		question_answered(shard, is_vain);
	bool is_all = !is_vain || shard->error != 0 || shard->closing;
	tell(shard, shard->error != 0 ? -EIO : is_vain ? err : 0, is_all);
	if (!lpi_space_waiters_is_empty(&shard->space_waiters))
		lease(shard); /* for writers that began after the question */
	if (err == 0)
		lpi_lease_look(shard);
	else if (shard->error == 0 && !shard->closing)
		lp_timer_start(shard->options.reactor, &shard->lease_timer,
			       lp_reactor_now_ns(shard->options.reactor) + LEASE_RETRY_NS);
}

static void lease(struct lp_shard *shard)
{
	if (!lp_work_is_idle(&shard->lease_work) || shard->closing || shard->error != 0)
		return;
	shard->lease_may_ask = !lpi_space_waiters_is_empty(&shard->space_waiters);
	if (!shard->lease_has_asked) {
		shard->lease_end_ns = lp_reactor_now_ns(shard->options.reactor) + LEASE_PATIENCE_NS;
		shard->lease_poll_ns = LEASE_POLL_FIRST_NS;
	}
	if (!shard->lease_has_asked && shard->lease_may_ask)
		question_put(shard);
	lp_workers_submit(shard->options.workers, shard->options.reactor, &shard->lease_work);
}

void lpi_shard_take_gifts(struct lp_shard *shard)
{
	if (lp_chunks_gift_blocks(shard->chunks, shard->options.shard_idx) > 0)
		lease(shard);
}

/* Otherwise this shard would take back the chunk that the other one is about to lease. */
void lpi_shard_has_lent(struct lp_shard *shard)
{
	if (!lpi_space_waiters_is_empty(&shard->space_waiters) || shard->closing)
		return;
	shard->lease_exhausted = true;
	lp_timer_start(shard->options.reactor, &shard->lease_timer,
		       lp_reactor_now_ns(shard->options.reactor) + LEASE_RETRY_NS);
}

void lpi_lease_look(struct lp_shard *shard)
{
	/* A full device is asked again at intervals, not with each frame. */
	if (lp_space_wants_chunk(shard->space) && !shard->lease_exhausted)
		lease(shard);
}

static void lease_fire(struct lp_timer *timer)
{
	struct lp_shard *shard = LP_CONTAINER_OF(timer, struct lp_shard, lease_timer);
	shard->lease_exhausted = false;
	if (lpi_space_waiters_is_empty(&shard->space_waiters))
		lpi_lease_look(shard);
	else if (must_wait(shard))
		poll_later(shard);
	else
		lease(shard);
}

void lp_shard_wait_space(struct lp_shard *shard, struct lp_commit_waiter *waiter)
{
	LP_ASSERT(!shard->options.read_only);
	if (shard->error != 0) {
		lp_commit_wait_room(shard->commit, waiter); /* it will report the error */
		return;
	}
	lpi_space_waiters_push_back(&shard->space_waiters, waiter);
	lpi_shard_let_go(shard);
	lpi_lend_put_back(shard);
	lease(shard);
}

uint64_t lp_shard_gift_blocks(const struct lp_shard *shard)
{
	return lp_chunks_gift_blocks(shard->chunks, shard->options.shard_idx);
}

void lpi_lease_init(struct lp_shard *shard)
{
	shard->lease_work = (struct lp_work){.run = lease_run, .done = lease_done};
	shard->lease_timer.fire = lease_fire;
	lpi_space_waiters_init(&shard->space_waiters);
}
