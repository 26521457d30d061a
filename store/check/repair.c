/* SPDX-License-Identifier: Apache-2.0 */
/* Repairs are ordinary commits: each is whole or not there, and a check that is interrupted has
 * done some of them. Those that were made so far are durable when they have settled. */
#include "base/error.h"
#include "store/check/fsck_impl.h"

struct wait {
	struct lp_commit_waiter waiter;
	bool done;
	int result;
};

static void told(struct lp_commit_waiter *waiter, int result)
{
	struct wait *wait = LP_CONTAINER_OF(waiter, struct wait, waiter);
	wait->done = true;
	wait->result = result;
}

void lpi_fsck_turn(struct lpi_fsck_shard *shard)
{
	if (shard->fsck->options->sim_clock != NULL)
		(void)lp_shard_sim_run_one(shard->shard);
	(void)lp_reactor_turn(shard->fsck->options->reactor, true);
}

int64_t lpi_fsck_now_ns(const struct lpi_fsck *fsck)
{
	if (!fsck->options->repair)
		return 0; /* nothing is written */
	return lp_clock_wall_ns(lp_reactor_clock(fsck->options->reactor));
}

/* Room for one repair in the group that collects. */
static int reserve(struct lpi_fsck_shard *shard, const struct lp_commit_need *need)
{
	struct lp_commit *commit = lp_shard_commit(shard->shard);
	LP_ASSERT(shard->fsck->options->repair);
	while (!lp_commit_reserve(commit, need)) {
		struct wait wait = {.waiter.told = told};
		lp_commit_wait_room(commit, &wait.waiter);
		while (!wait.done)
			lpi_fsck_turn(shard);
		if (wait.result < 0)
			return wait.result;
	}
	return lp_shard_error(shard->shard);
}

int lpi_fsck_put(struct lpi_fsck_shard *shard, struct lp_kv_bytes key, struct lp_kv_bytes value)
{
	const struct lp_commit_need need = {.batch_bytes = (uint32_t)(key.len + value.len) +
							   LP_COMMIT_RECORD_BYTES};
	int err = reserve(shard, &need);
	if (err < 0)
		return err;
	if (value.data == NULL)
		lp_commit_delete(lp_shard_commit(shard->shard), key);
	else
		lp_commit_put(lp_shard_commit(shard->shard), key, value);
	return 0;
}

int lpi_fsck_free(struct lpi_fsck_shard *shard, struct lp_extent extent)
{
	const struct lp_commit_need need = {.change_cnt = 1};
	int err = reserve(shard, &need);
	if (err == 0)
		lp_shard_freed(shard->shard, extent);
	return err;
}

/* The allocator gives what is asked for when it is free: else it gives something else. */
static int take_exactly(struct lp_space *space, struct lp_extent want)
{
	const struct lp_alloc_options options = {
		.hint = want.block, .extents_max = 1, .is_contiguous = true};
	struct lp_extent got;
	uint64_t blocks;
	if (!lp_alloc_is_free(lp_space_alloc(space), want))
		return -EBUSY;
	int err = lp_space_take(space, want.cnt, &options, &got, &blocks);
	if (err < 0)
		return err == -ENOSPC ? -EBUSY : err;
	if (got.block == want.block && got.cnt == want.cnt)
		return 0;
	lp_space_untake(space, got);
	return -EBUSY;
}

int lpi_fsck_take(struct lpi_fsck_shard *shard, struct lp_extent extent)
{
	const struct lp_commit_need need = {.change_cnt = 1};
	int err = reserve(shard, &need);
	if (err == 0)
		err = take_exactly(lp_shard_space(shard->shard), extent);
	if (err == 0)
		lp_shard_taken(shard->shard, extent);
	return err;
}

int lpi_fsck_settle(struct lpi_fsck_shard *shard)
{
	struct wait durable = {.waiter.told = told};
	struct wait inserted = {.waiter.told = told};
	if (!shard->fsck->options->repair)
		return 0;
	struct lp_commit *commit = lp_shard_commit(shard->shard);
	lp_commit_wait(commit, &durable.waiter);
	lp_commit_wait_inserted(commit, &inserted.waiter);
	while (!durable.done || !inserted.done)
		lpi_fsck_turn(shard);
	return durable.result < 0 ? durable.result : inserted.result;
}
