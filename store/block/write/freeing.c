/* SPDX-License-Identifier: Apache-2.0 */
/* The stages of a struct lp_store_freeing:
 *
 *   new -> steps -> commit -> io -> come
 *
 * In the stage io `upto` is a number of released blocks in all. It is reached when as many blocks
 * have been released as were waiting. Blocks of others may be released first: then there is as much
 * space as promised all the same. */
#include "store/block/write/freeing.h"

#include "store/block/write/txn.h"

enum stage { STAGE_NEW, STAGE_STEPS, STAGE_COMMIT, STAGE_IO, STAGE_COME };

static bool has_io(const struct lpi_block *block)
{
	const struct lp_discards *discards = lp_shard_discards(block->shard);
	return lp_space_has_io(block->space) ||
	       (discards != NULL && !lp_discards_is_idle(discards));
}

static bool is_committing(const struct lpi_block *block, uint64_t seq)
{
	return lp_shard_freeing_blocks(block->shard) > 0 &&
	       lp_space_durable_seq(block->space) < seq;
}

static bool has_waiting(const struct lpi_block *block, uint64_t released_blocks)
{
	return lp_space_waiting_blocks(block->space) > 0 &&
	       lp_space_released_blocks(block->space) < released_blocks && has_io(block);
}

bool lpi_block_is_freeing(const struct lpi_block *block, struct lp_store_freeing *since)
{
	since->progress =
		lp_space_durable_seq(block->space) + lp_space_released_blocks(block->space);
	if (since->stage == STAGE_NEW) {
		since->upto = lpi_trims_last_nr(block);
		since->stage = STAGE_STEPS;
	}
	if (since->stage == STAGE_STEPS) {
		if (lpi_trims_are_freeing_upto(block, since->upto))
			return true;
		since->upto = lp_commit_seq(block->commit);
		since->stage = STAGE_COMMIT;
	}
	if (since->stage == STAGE_COMMIT) {
		if (is_committing(block, since->upto))
			return true;
		since->upto = lp_space_released_blocks(block->space) +
			      lp_space_waiting_blocks(block->space);
		since->stage = STAGE_IO;
	}
	if (since->stage == STAGE_IO && has_waiting(block, since->upto))
		return true;
	since->stage = STAGE_COME;
	return false;
}

void lpi_hope_tries(struct lpi_hope *hope, const struct lpi_block *block)
{
	hope->released_blocks = lp_space_released_blocks(block->space);
}

bool lpi_hope_counts(uint64_t *counted_ns, const struct lpi_block *block)
{
	uint64_t now_ns = lp_reactor_now_ns(block->options.reactor);
	if (*counted_ns != 0 && now_ns - *counted_ns < LPI_HOPES_NS)
		return false;
	*counted_ns = now_ns;
	return true;
}

bool lpi_hope_goes_on(struct lpi_hope *hope, const struct lpi_block *block)
{
	bool is_coming = lpi_block_is_freeing(block, &hope->freeing);
	bool counts = lpi_hope_counts(&hope->counted_ns, block);
	if (hope->cnt == 0 || hope->progress != hope->freeing.progress)
		hope->idle_cnt = 0;
	hope->progress = hope->freeing.progress;
	hope->cnt += counts;
	hope->idle_cnt += counts;
	if (hope->idle_cnt > LPI_HOPES_IDLE || hope->cnt > LPI_HOPES_MAX)
		return false;
	if (is_coming)
		return true;
	/* All blocks have come, perhaps after the transaction looked for space. */
	bool goes_on =
		!hope->is_last && hope->released_blocks != lp_space_released_blocks(block->space);
	hope->is_last = true;
	return goes_on;
}
