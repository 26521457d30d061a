/* SPDX-License-Identifier: Apache-2.0 */
/* Space that a shard gives to another shard that finds none left (rule S5).
 *
 * A shard keeps the chunks that it leased after their objects are gone. It returns them after an
 * index flush, and only if it has far too many. Another shard cannot wait for that. Before it
 * refuses a write it asks all others, and refuses only when all have answered and there is still no
 * space.
 *
 * A shard that is asked first frees the blocks that wait for their discard. Then it gives away half
 * of its free space and keeps the other half. A shard that needs more asks again. So a shard that
 * goes on asking gets all free space except LP_SHARD_CUT_BLOCKS, and one question leaves no shard
 * without space.
 *
 *   chunks that hold nothing  are returned; the first shard that asks for a chunk leases them
 *   free blocks of others     are given to the shards that asked, in equal parts (lp_chunks_give())
 *
 * Space can be given away only when it is durably known to be free. So unless enough of it is known
 * already, the shard puts the records of the space and has the index flushed, once per round.
 * Blocks freed meanwhile are for the next shard that asks. If that shard asks before the answer,
 * the round is repeated once before the answer. An idle shard does the same. On a device that is
 * really full the round would be in vain each time. So it runs only when something was freed since
 * the last one, or when free space has no record.
 *
 *   asked -> [records of the space, until there are no more] -> [flush] -> [return or give] ->
 *   answer
 *
 * If the shard then has nothing to give though it has free space, it is busy. It then sets blocks
 * aside, repeats the round once, and gives those.
 *
 * A shard with waiters of its own gives nothing. Otherwise two shards that both lack a little space
 * would exchange their last blocks for ever.
 *
 * Single free blocks of another shard's chunk go back to the shard that leased the chunk, when
 * there is enough space without them, because only a whole chunk can be returned. The shard looks
 * for such blocks after an index flush, because then the records of the space are persisted. */
#include <stdlib.h>

#include "store/shard/shard_impl.h"

#define ROUNDS_MAX  4096u
#define PATIENCE_NS (20 * LP_NS_PER_S)
#define POLL_NS     (2 * LP_NS_PER_MS)
/* One part in this many of the space to give is enough to begin with, if its free state is durable.
 */
#define ENOUGH_SHARE 4u
#define LOOKS_MAX    (4 * LPI_SHARD_GIFTS) /* chunks that one round looks at */

static void step(struct lp_shard *shard);
static void asked(void *arg);
static bool is_worth_it(const struct lp_shard *shard);

static uint64_t now_of(const struct lp_shard *shard)
{
	return lp_reactor_now_ns(shard->options.reactor);
}

static bool is_over(const struct lp_shard *shard)
{
	return shard->lend.is_stopped || shard->closing || shard->error != 0 ||
	       lp_kv_error(shard->kv) < 0;
}

static bool must_end(const struct lp_shard *shard)
{
	return is_over(shard) || now_of(shard) >= shard->lend.end_ns;
}

static uint64_t free_of(const struct lp_shard *shard)
{
	uint64_t free_blocks = lp_alloc_free_blocks(lp_space_alloc(shard->space));
	return free_blocks - LP_MIN(free_blocks, LP_SHARD_CUT_BLOCKS);
}

/* Nothing could be given, and that stays so until something is freed. A shard with waiters of its
 * own did not even try. */
static void note_vain(struct lp_shard *shard)
{
	if (!lpi_space_waiters_is_empty(&shard->space_waiters))
		return;
	shard->lend.removals = shard->removals;
	shard->lend.used_blocks = lp_space_used_blocks(shard->space);
}

/* The asking shard has missed nothing: this shard has nothing that it could have given, and none of
 * its space is on its way. Then the answer holds for all writers that began before the question
 * (lp_shard_has_no_space()). A shard that is busy, or has waiters of its own, may have space that
 * it does not give. */
static bool has_nothing(const struct lp_shard *shard)
{
	if (shard->lend.is_in_doubt || is_over(shard) || lpi_shard_is_handing_over(shard) ||
	    lpi_shard_is_taking_up(shard))
		return false;
	return free_of(shard) == 0 ||
	       (lpi_space_waiters_is_empty(&shard->space_waiters) && !is_worth_it(shard));
}

static void end(struct lp_shard *shard)
{
	lpi_lend_put_back(shard);
	shard->lend.is_running = false;
	shard->lend.askers = 0;
	if (!has_nothing(shard))
		lp_chunks_evade(shard->chunks, shard->options.shard_idx);
	if (!lp_chunks_answer(shard->chunks, shard->options.shard_idx))
		asked(shard);
}

/* --- Gifts ------------------------------------------------------------------------------------ */

/* Some free space cannot be given because it has no record. */
static bool has_unrecorded(const struct lp_shard *shard)
{
	return lp_space_loose_blocks(shard->space) <
	       lp_alloc_free_blocks(lp_space_alloc(shard->space));
}

static uint64_t half_of(uint64_t cnt)
{
	return cnt / 2 + cnt % 2;
}

static uint32_t choose_chunks(struct lp_shard *shard)
{
	const struct lp_space *space = shard->space;
	uint32_t empty_cnt = 0;
	uint32_t chunk = 0;
	for (uint32_t from = 0; empty_cnt < 2 * LPI_SHARD_RETURNS &&
				lp_space_chunk_find_empty(space, from, LP_SHARD_CUT_BLOCKS, &chunk);
	     from = chunk + 1)
		empty_cnt++;
	return lpi_shard_choose_empty(shard, LP_SHARD_CUT_BLOCKS, (uint32_t)half_of(empty_cnt),
				      shard->lend.chunks);
}

/* Room for another gift, which is still empty. */
static struct lp_chunk_blocks *gift_begin(struct lp_shard *shard)
{
	struct lpi_lend *lend = &shard->lend;
	uint64_t bit_cnt = lp_chunks_chunk_blocks(shard->chunks);
	uint64_t *words = NULL;
	if (lend->gift_cnt < LPI_SHARD_GIFTS)
		words = calloc(lp_bitmap_word_cnt(bit_cnt), sizeof(*words));
	if (words == NULL)
		return NULL;
	lp_bitmap_init(&lend->gifts[lend->gift_cnt].blocks, words, bit_cnt);
	return &lend->gifts[lend->gift_cnt];
}

static uint64_t gift_take(struct lp_shard *shard, uint32_t chunk, uint32_t to_idx, uint64_t max)
{
	struct lp_chunk_blocks *gift = gift_begin(shard);
	if (gift == NULL)
		return 0;
	bool is_guest = lp_space_is_guest(shard->space, chunk);
	gift->chunk_idx = chunk;
	gift->shard_idx = to_idx;
	gift->has_gone = false;
	gift->home_idx = is_guest ? LP_CHUNKS_HOME : shard->options.shard_idx;
	uint64_t cnt = shard->lend.is_aside
			       ? lp_space_set_aside(shard->space, chunk, max, &gift->blocks)
			       : lp_space_blocks_remove(shard->space, chunk, max, &gift->blocks);
	if (cnt > 0)
		shard->lend.gift_cnt++;
	else
		free(gift->blocks.words);
	return cnt;
}

/* The shard that asked next after this one; there must be one. */
static uint32_t next_asker(uint64_t askers, uint32_t idx)
{
	do
		idx = (idx + 1) % LP_SHARDS_MAX;
	while ((askers >> idx & 1) == 0);
	return idx;
}

static bool next_chunk(const struct lp_shard *shard, struct lp_space_loose *loose)
{
	return shard->lend.is_aside ? lp_space_next_any(shard->space, loose)
				    : lp_space_next_loose(shard->space, false, loose);
}

/* Equal parts for each shard that asked, and one part stays. The shards take turns chunk by chunk.
 */
static void choose_gifts(struct lp_shard *shard)
{
	struct lpi_lend *lend = &shard->lend;
	struct lp_space_loose loose = {.is_begun = false};
	uint32_t asker_cnt = (uint32_t)__builtin_popcountll(lend->askers);
	uint64_t each = half_of(free_of(shard)) / asker_cnt;
	uint64_t left = LP_MAX(each, UINT64_C(1)) * asker_cnt;
	uint32_t to_idx = LP_SHARDS_MAX - 1;
	left = LP_MIN(left, free_of(shard));
	for (uint32_t i = 0; i < LOOKS_MAX && left > 0; i++) {
		if (lend->gift_cnt + asker_cnt > LPI_SHARD_GIFTS || !next_chunk(shard, &loose))
			break;
		uint64_t of_chunk = LP_MIN(loose.cnt, left);
		uint64_t part = (of_chunk + asker_cnt - 1) / asker_cnt;
		uint64_t cnt = 1;
		for (uint32_t k = 0; k < asker_cnt && cnt > 0 && of_chunk > 0; k++) {
			to_idx = next_asker(lend->askers, to_idx);
			cnt = gift_take(shard, loose.chunk, to_idx, LP_MIN(part, of_chunk));
			of_chunk -= cnt;
			left -= cnt;
			if (!lp_space_owns(shard->space, loose.chunk))
				break; /* all free blocks are given */
		}
	}
}

/* --- Blocks set aside ---
 *
 * A busy shard changes its chunks with each frame, so no chunk ever has all of its changes in a
 * record. Then the shard sets blocks aside. No later frame mentions these blocks, so a record newer
 * than that moment makes them as good to give as others. */

void lpi_lend_put_back(struct lp_shard *shard)
{
	struct lpi_lend *lend = &shard->lend;
	if (!lend->is_aside)
		return;
	for (uint32_t i = 0; i < lend->gift_cnt; i++) {
		lp_space_put_back(shard->space, lend->gifts[i].chunk_idx, &lend->gifts[i].blocks);
		free(lend->gifts[i].blocks.words);
	}
	/* The shard's own waiting writers may use them. */
	shard->gave_way = shard->gave_way || lend->gift_cnt > 0;
	lend->gift_cnt = 0;
	lend->is_aside = false;
}

/* Once in a round, when the shard has nothing else to give. */
static bool set_aside(struct lp_shard *shard)
{
	struct lpi_lend *lend = &shard->lend;
	if (lend->has_set_aside || lend->askers == 0 || !has_unrecorded(shard) ||
	    !lpi_space_waiters_is_empty(&shard->space_waiters))
		return false;
	lend->has_set_aside = true;
	lend->is_aside = true;
	choose_gifts(shard);
	lend->is_aside = lend->gift_cnt > 0;
	lend->aside_seq = lp_space_durable_seq(shard->space);
	lend->is_recorded = false;
	lend->rounds = 0;
	return lend->is_aside;
}

/* Gives the blocks set aside whose free state is in a record by now. */
static bool give_aside(struct lp_shard *shard)
{
	struct lpi_lend *lend = &shard->lend;
	uint32_t kept = 0;
	for (uint32_t i = 0; i < lend->gift_cnt; i++) {
		struct lp_chunk_blocks *gift = &lend->gifts[i];
		if (lp_space_is_recorded(shard->space, gift->chunk_idx, lend->aside_seq) &&
		    lp_space_let_go(shard->space, gift->chunk_idx, &gift->blocks) == 0) {
			lend->gifts[kept++] = *gift;
			continue;
		}
		lp_space_put_back(shard->space, gift->chunk_idx, &gift->blocks);
		free(gift->blocks.words);
	}
	lend->gift_cnt = kept;
	lend->is_aside = false;
	lend->chunk_cnt = 0;
	if (kept > 0)
		lp_workers_submit(shard->options.workers, shard->options.reactor, &lend->work);
	return kept > 0;
}

/* Blocks that were not given are the shard's own again. */
static void take_back(struct lp_shard *shard)
{
	struct lpi_lend *lend = &shard->lend;
	for (uint32_t i = 0; i < lend->gift_cnt; i++) {
		const struct lp_chunk_blocks *gift = &lend->gifts[i];
		if (gift->has_gone)
			continue;
		/* Blocks without memory for them here are the shard's again at its next opening. */
		int ignored = lp_space_blocks_add(shard->space, gift->chunk_idx,
						  gift->home_idx != shard->options.shard_idx,
						  &gift->blocks);
		(void)ignored;
	}
}

/* --- Gifts to this shard ---------------------------------------------------------------------- */

bool lpi_lend_collect(struct lp_shard *shard)
{
	shard->lease_gift_cnt = 0;
	while (shard->lease_gift_cnt < LPI_SHARD_GIFTS &&
	       lp_chunks_take_gift(shard->chunks, shard->options.shard_idx,
				   &shard->lease_gifts[shard->lease_gift_cnt]))
		shard->lease_gift_cnt++;
	return shard->lease_gift_cnt > 0;
}

bool lpi_lend_take_up(struct lp_shard *shard)
{
	bool had_any = shard->lease_gift_cnt > 0;
	for (uint32_t i = 0; i < shard->lease_gift_cnt; i++) {
		struct lp_chunk_blocks *gift = &shard->lease_gifts[i];
		/* Blocks without memory for them here are the shard's again at its next opening. */
		int ignored = lp_space_blocks_add(shard->space, gift->chunk_idx,
						  gift->home_idx != shard->options.shard_idx,
						  &gift->blocks);
		(void)ignored;
		free(gift->blocks.words);
	}
	shard->lease_gift_cnt = 0;
	return had_any;
}

/* --- The steps -------------------------------------------------------------------------------- */

static void work_run(struct lp_work *work)
{
	struct lp_shard *shard = LP_CONTAINER_OF(work, struct lp_shard, lend.work);
	struct lpi_lend *lend = &shard->lend;
	uint32_t self_idx = shard->options.shard_idx;
	for (uint32_t i = 0; i < lend->chunk_cnt; i++) {
		/* A chunk that cannot be returned stays leased, and the next opening finds it
		 * empty. */
		int ignored = lp_chunks_return(shard->chunks, self_idx, LP_CHUNK_USE_OBJECTS,
					       lend->chunks[i]);
		(void)ignored;
	}
	lend->give_result = 0;
	if (lend->gift_cnt > 0)
		lend->give_result =
			lp_chunks_give(shard->chunks, self_idx, lend->gifts, lend->gift_cnt);
}

static void work_done(struct lp_work *work)
{
	struct lp_shard *shard = LP_CONTAINER_OF(work, struct lp_shard, lend.work);
	struct lpi_lend *lend = &shard->lend;
	bool is_vain = lend->chunk_cnt == 0 && lend->give_result == -ENOSPC;
	take_back(shard);
	for (uint32_t i = 0; i < lend->gift_cnt; i++)
		free(lend->gifts[i].blocks.words);
	lend->gift_cnt = 0;
	if (lend->is_going_home) {
		/* Shards that asked meanwhile still need an answer. */
		lend->is_going_home = false;
		lend->is_running = false;
		asked(shard);
		return;
	}
	if (is_vain)
		note_vain(shard);
	else
		lpi_shard_has_lent(shard);
	lend->is_in_doubt = !is_vain;
	end(shard);
}

static bool give(struct lp_shard *shard)
{
	struct lpi_lend *lend = &shard->lend;
	lend->askers |= lp_chunks_askers(shard->chunks, shard->options.shard_idx);
	lend->chunk_cnt = 0;
	if (lend->askers == 0 || !lpi_space_waiters_is_empty(&shard->space_waiters))
		return false;
	lend->chunk_cnt = choose_chunks(shard);
	if (lend->chunk_cnt == 0)
		choose_gifts(shard);
	if (lend->chunk_cnt + lend->gift_cnt == 0)
		return false;
	lp_workers_submit(shard->options.workers, shard->options.reactor, &lend->work);
	return true;
}

static void poll_later(struct lp_shard *shard)
{
	lp_timer_start(shard->options.reactor, &shard->lend.timer, now_of(shard) + POLL_NS);
}

/* Puts some more records. A record counts when it is in the index, because only then does the flush
 * include it. */
static void put_records(struct lp_shard *shard)
{
	struct lpi_lend *lend = &shard->lend;
	bool is_last = !lpi_shard_checkpoint_some(shard) || ++lend->rounds >= ROUNDS_MAX;
	/* Later changes do not concern the blocks set aside. */
	bool is_enough = lend->is_aside && lp_space_unrecorded_seq(shard->space) > lend->aside_seq;
	lend->is_recorded = is_last || is_enough;
	lend->record_seq = shard->record_seq;
	lp_commit_wait_inserted(shard->commit, &lend->waiter);
}

static void step(struct lp_shard *shard)
{
	struct lpi_lend *lend = &shard->lend;
	LP_ASSERT(lend->is_running);
	if (must_end(shard)) {
		lend->is_in_doubt = true;
		end(shard);
		return;
	}
	if (!lend->is_recorded) {
		put_records(shard);
		return;
	}
	lpi_shard_take_up_kv_news(shard);
	if (shard->persisted_seq < (lend->is_aside ? lend->record_seq : shard->record_seq)) {
		lpi_shard_flush_index(shard);
		poll_later(shard);
		return;
	}
	if (lend->is_aside ? give_aside(shard) : give(shard))
		return;
	if (set_aside(shard)) {
		put_records(shard);
		return;
	}
	note_vain(shard);
	end(shard);
}

static void told(struct lp_commit_waiter *waiter, int result)
{
	(void)result; /* the shard's error is checked instead */
	step(LP_CONTAINER_OF(waiter, struct lp_shard, lend.waiter));
}

static void timer_fire(struct lp_timer *timer)
{
	step(LP_CONTAINER_OF(timer, struct lp_shard, lend.timer));
}

/* If nothing was freed since a round in vain, another round would be in vain, too. The exception is
 * a round in which the shard was busy: its records were old before the index had them. */
static bool is_worth_it(const struct lp_shard *shard)
{
	return free_of(shard) > 0 &&
	       (shard->lend.removals != shard->removals ||
		shard->lend.used_blocks != lp_space_used_blocks(shard->space) ||
		has_unrecorded(shard));
}

/* So much free space can be given as it is that a round for the rest can wait. */
static bool has_enough_loose(const struct lp_shard *shard)
{
	return !is_worth_it(shard) ||
	       lp_space_loose_blocks(shard->space) >= half_of(free_of(shard)) / ENOUGH_SHARE;
}

static void begin(struct lp_shard *shard)
{
	struct lpi_lend *lend = &shard->lend;
	if (lend->is_running)
		return; /* its end sends the answer */
	lend->askers |= lp_chunks_askers(shard->chunks, shard->options.shard_idx);
	if (lend->askers == 0) {
		/* The shard was told of a gift, or an answer went to all shards that asked. */
		end(shard);
		return;
	}
	lend->is_running = true;
	lend->is_recorded = false;
	lend->has_set_aside = false;
	lend->is_in_doubt = false;
	lend->rounds = 0;
	lend->end_ns = now_of(shard) + PATIENCE_NS;
	/* Otherwise blocks that were just freed would count as in use for another second. */
	lpi_shard_let_go(shard);
	if (!must_end(shard) && has_enough_loose(shard) && give(shard))
		return;
	if (!must_end(shard) && is_worth_it(shard))
		step(shard);
	else
		end(shard);
}

/* Blocks that the shard can spare, because it has more or can lease a chunk. */
static bool can_spare(const struct lp_shard *shard, uint64_t cnt)
{
	uint64_t free_blocks = lp_alloc_free_blocks(lp_space_alloc(shard->space));
	uint64_t chunks = lp_chunks_for_objects_cnt(shard->chunks);
	return free_blocks + chunks * lp_chunks_chunk_blocks(shard->chunks) >=
	       lp_space_keep_blocks(shard->space) + cnt;
}

void lpi_lend_look(struct lp_shard *shard)
{
	struct lpi_lend *lend = &shard->lend;
	struct lp_space_loose loose = {.is_begun = false};
	if (lend->is_running || is_over(shard) ||
	    !lpi_space_waiters_is_empty(&shard->space_waiters))
		return;
	for (uint32_t i = 0; i < LPI_SHARD_GIFTS; i++) {
		if (!lp_space_next_loose(shard->space, true, &loose) ||
		    !can_spare(shard, loose.cnt))
			break;
		(void)gift_take(shard, loose.chunk, LP_CHUNKS_HOME,
				loose.cnt); /* if it fails the blocks stay */
	}
	if (lend->gift_cnt == 0)
		return;
	lend->is_running = true;
	lend->is_going_home = true;
	lend->chunk_cnt = 0;
	lp_workers_submit(shard->options.workers, shard->options.reactor, &lend->work);
}

/* --- Questions of other shards ---------------------------------------------------------------- */

/* On the thread of the shard that asks, or at the end of a round. */
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
	lpi_shard_take_gifts(shard);
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
