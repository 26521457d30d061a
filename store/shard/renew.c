/* SPDX-License-Identifier: Apache-2.0 */
/* Payloads that wait for space of an image's host (rules S7, L6).
 *
 * A payload whose block has no space in the host holds its frame, and so the log behind it, until
 * the host has space again. One such payload is enough to fill the log: removals fill the rest. So
 * when half of the log is in use, the oldest payloads are written again in the collecting frame.
 * When that frame is durable the former version is superseded, as by any overwrite, and the log is
 * trimmed.
 *
 *   a crash before that    the old frame has the payload, and the log keeps it
 *   a crash after it       the new frame has the same bytes; it wins, as the newer one
 *
 * The payloads could go to the index instead, as those of blocks that cannot be written do
 * (shard/bad_blocks.c). But the index has only the host space that its chunks have, and removals
 * need that.
 *
 * A renewal must gain room. So nothing is renewed unless all other users of the log allow a trim up
 * to there, nor before the frame of the last renewed payloads is durable, nor where payloads are
 * most of the log's content. A bound prevents that last case. While the host is full, payloads for
 * new places are deferred only up to the number at which write-back begins, a third of the log, and
 * payloads for other places up to half as much again.
 */
#include "store/shard/shard_impl.h"

/* Of the log, at least this part must be neither waiting payloads nor free. */
#define GAIN_SHARE 8u

static struct lp_bdev *data_bdev(const struct lp_shard *shard)
{
	return lp_bdev_of(shard->data);
}

/* A payload waits for the host, or did a moment ago. */
static bool is_host_full(const struct lp_shard *shard)
{
	return lp_writeback_is_full(shard->writeback) || lp_bdev_is_host_full(data_bdev(shard));
}

static bool is_under_way(const struct lp_shard *shard)
{
	return shard->renewed_seq > lp_log_durable_seq(shard->log);
}

bool lpi_renew_helps(const struct lp_shard *shard)
{
	const struct lp_pending_stats *stats = lp_pending_stats(shard->pending);
	struct lp_log_usage usage;
	lp_log_read_usage(shard->log, &usage);
	bool has_records = usage.needed_records >= shard->limits.records_max / 2;
	return usage.needed_blocks >= stats->in_log + usage.ring_blocks / GAIN_SHARE || has_records;
}

static bool may_renew(const struct lp_shard *shard)
{
	return lp_writeback_is_full(shard->writeback) && !is_under_way(shard) &&
	       lp_commit_error(shard->commit) == 0 && lpi_renew_helps(shard);
}

void lpi_renew_some(struct lp_shard *shard, uint64_t seq)
{
	const struct lp_commit_need need = {.data_cnt = 1, .is_relief = true};
	struct lp_pending_block block = {.version = NULL};
	struct lp_seg seg;
	uint64_t others = LP_MIN(shard->whole_seq + 1, lp_space_log_start(shard->space));
	if (!may_renew(shard))
		return;
	shard->renewed_cnt = 0;
	while (lp_pending_room(shard->pending) > 0 &&
	       lp_pending_find_old(shard->pending, LP_MIN(seq, others - 1), &block, &seg) &&
	       lp_commit_reserve(shard->commit, &need)) {
		/* The owner of the block does not matter here: payloads are found by their block.
		 */
		const struct lp_log_payload about = {.device_block = block.block, .crc = block.crc};
		lp_commit_data(shard->commit, &about, seg);
		shard->renewed_seq = lp_commit_seq(shard->commit);
		int err = lp_pending_add(shard->pending, shard->renewed_seq, block.block, seg,
					 block.crc);
		LP_ASSERT(err == 0); /* there was room */
		shard->renewed_cnt++;
	}
}

void lpi_renew_numbered(struct lp_shard *shard, uint64_t from, uint64_t to)
{
	if (shard->renewed_seq == from)
		shard->renewed_seq = to;
}

bool lp_shard_may_defer(const struct lp_shard *shard, uint64_t cnt, bool is_to_new_place)
{
	const struct lp_pending_stats *stats = lp_pending_stats(shard->pending);
	if (cnt > lp_shard_defer_room(shard))
		return false;
	if (cnt == 0 || LP_LIKELY(!is_host_full(shard)))
		return true;
	uint64_t held = stats->versions - stats->stuck - stats->settled;
	/* Renewed payloads are counted twice. */
	held -= is_under_way(shard) ? LP_MIN(held, shard->renewed_cnt) : 0;
	/* If no payload waits, a write may use all the room, or it would wait for ever. */
	if (held == 0)
		return true;
	uint64_t limit = shard->start_versions + (is_to_new_place ? 0 : shard->start_versions / 2);
	return held + cnt <= limit;
}
