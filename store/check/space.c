/* SPDX-License-Identifier: Apache-2.0 */
/* Phases 2 and 5: what extents name must be in use, and nothing else. Both sides are bitmaps,
 * compared run by run; only where a run differs it is looked at block by block.
 *
 * What is named is taken at once, before somebody else gets it. What is not is freed when all
 * shards, counts and names were looked at: any of them may tell that a map is not what it was, and
 * whoever gets the block next must find no count of it. */
#include "store/check/fsck_impl.h"

static int found_leak(struct lpi_fsck_shard *shard, struct lp_extent extent)
{
	struct lpi_fsck_at at = {.kind = LP_FSCK_LEAK, .shard = shard, .extent = extent};
	/* What is damaged may name them; what cannot be read may have counts of them. */
	bool in_doubt = shard->maps_in_doubt || shard->is_broken;
	at.is_repaired = shard->fsck->options->repair && !in_doubt;
	lpi_fsck_found(shard->fsck, &at,
		       "%llu blocks from %llu on are in use, but nothing names them%s",
		       (unsigned long long)extent.cnt, (unsigned long long)extent.block,
		       in_doubt ? " (a damaged record may)" : "");
	return at.is_repaired ? lpi_fsck_free(shard, extent) : 0;
}

static int found_untaken(struct lpi_fsck_shard *shard, struct lp_extent extent)
{
	struct lpi_fsck_at at = {.kind = LP_FSCK_UNTAKEN, .shard = shard, .extent = extent};
	int err = shard->fsck->options->repair ? lpi_fsck_take(shard, extent) : -EBUSY;
	at.is_repaired = err == 0;
	lpi_fsck_found(shard->fsck, &at, "%llu blocks from %llu on hold data, but count as free",
		       (unsigned long long)extent.cnt, (unsigned long long)extent.block);
	return err == -EBUSY ? 0 : err;
}

/* The blocks of a run, all named or none, some of which are not as they should be. */
static int search_run(struct lpi_fsck_shard *shard, struct lp_extent run, bool is_named)
{
	uint64_t end = lp_extent_end(run);
	int err = 0;
	for (uint64_t block = run.block; block < end && err == 0;) {
		struct lp_extent wrong = {block, 0};
		while (lp_extent_end(wrong) < end &&
		       lpi_fsck_is_used(shard, (struct lp_extent){lp_extent_end(wrong), 1}) !=
			       is_named)
			wrong.cnt++;
		if (wrong.cnt > 0)
			err = is_named ? found_untaken(shard, wrong) : found_leak(shard, wrong);
		block = lp_extent_end(wrong) + 1;
	}
	return err;
}

static int check_chunk(struct lpi_fsck_shard *shard, struct lp_extent chunk, bool of_named)
{
	struct lp_extent run;
	int err = 0;
	for (uint64_t block = chunk.block; block < lp_extent_end(chunk) && err == 0;
	     block = lp_extent_end(run)) {
		bool is_named;
		run = lpi_fsck_blocks_run(&shard->blocks, block, &is_named);
		if (is_named != of_named)
			continue;
		bool is_right =
			is_named ? lpi_fsck_is_used(shard, run) : lpi_fsck_is_unused(shard, run);
		if (!is_right)
			err = search_run(shard, run, is_named);
	}
	return err;
}

static int check_chunks(struct lpi_fsck_shard *shard, bool of_named)
{
	int err = 0;
	for (uint32_t i = 0; i < shard->blocks.chunk_cnt && err == 0; i++) {
		/* An empty one may have been returned since it was looked at first. */
		if (shard->blocks.owned[i] != NULL && lpi_fsck_owns(shard, i))
			err = check_chunk(shard, lpi_fsck_blocks_chunk(&shard->blocks, i),
					  of_named);
	}
	return err == 0 ? lpi_fsck_settle(shard) : err;
}

int lpi_fsck_space_named(struct lpi_fsck_shard *shard)
{
	return check_chunks(shard, true);
}

int lpi_fsck_space_unnamed(struct lpi_fsck_shard *shard)
{
	return check_chunks(shard, false);
}
