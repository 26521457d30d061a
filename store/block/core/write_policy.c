/* SPDX-License-Identifier: Apache-2.0 */
/* The device's cache decides whether the two kinds of data writes differ. With a volatile cache,
 * direct writes are write-through. Write-back's writes are not, and a flush that many share makes
 * them durable. Then write-back's writes are place writes, and the policy is told that no flush is
 * waited for, as its header requires. Without a volatile cache both kinds are the same operation,
 * and both are data writes. */
#include "store/block/core/write_policy.h"

#include <stdio.h>

#include "base/error.h"
#include "store/block/core/block.h"
#include "store/record/keys.h"

/* --- Times of operations ---------------------------------------------------------------------- */

static void log_completed(struct lp_bdev_observer *observer, const struct lp_bdev_op *op,
			  uint64_t ns, uint64_t waited_ns)
{
	struct lpi_policy *policy = LP_CONTAINER_OF(observer, struct lpi_policy, log_observer);
	LP_ASSERT(op->opcode == LP_BDEV_WRITE_THROUGH);
	lp_policy_observe(&policy->costs, LP_POLICY_LOG_WRITE, op->length_bytes, op->depth, ns,
			  waited_ns);
}

static void data_completed(struct lp_bdev_observer *observer, const struct lp_bdev_op *op,
			   uint64_t ns, uint64_t waited_ns)
{
	struct lpi_policy *policy = LP_CONTAINER_OF(observer, struct lpi_policy, data_observer);
	enum lp_bdev_opcode direct = policy->writes_through ? LP_BDEV_WRITE_THROUGH : LP_BDEV_WRITE;
	if (op->opcode == LP_BDEV_FLUSH)
		lp_policy_observe(&policy->costs, LP_POLICY_FLUSH, 0, op->depth, ns, waited_ns);
	else
		lp_policy_observe(&policy->costs,
				  op->opcode == direct ? LP_POLICY_DATA_WRITE
						       : LP_POLICY_PLACE_WRITE,
				  op->length_bytes, op->depth, ns, waited_ns);
}

/* --- Choosing --------------------------------------------------------------------------------- */

static uint32_t depth_of(const struct lpi_policy *policy)
{
	return (policy->depth_x256 + 128) / 256;
}

/* Transactions come and go with the frames, many at a time. The depth is their number when all are
 * there: the largest number seen, which decays slowly. */
static void note_depth(struct lpi_block *block)
{
	struct lpi_policy *policy = &block->policy;
	uint32_t now = block->options.ops_max - lp_pool_free_cnt(block->txns);
	uint32_t faded = policy->depth_x256 - policy->depth_x256 / 256;
	policy->depth_x256 = LP_MAX(faded, 256 * now);
}

/* Each sample counts a quarter. Without new samples the value moves back to its default. */
static void note_places(struct lpi_block *block)
{
	struct lpi_policy *policy = &block->policy;
	const struct lp_pending_stats *pending = lp_pending_stats(lp_shard_pending(block->shard));
	const struct lp_writeback_stats *writeback = lp_shard_writeback_stats(block->shard);
	double share = policy->costs.place_share;
	uint64_t places = pending->written + pending->superseded + pending->freed;
	if (++policy->chosen_cnt < LPI_POLICY_PLACES)
		return;
	policy->chosen_cnt = 0;
	if (places - policy->places >= LPI_POLICY_PLACES / 2) {
		double writes = (double)(writeback->writes - policy->place_writes);
		share += (writes / (double)(places - policy->places) - share) / 4;
	} else {
		share += (LPI_POLICY_SHARE - share) / 64;
	}
	policy->places = places;
	policy->place_writes = writeback->writes;
	lp_policy_set_place_share(&policy->costs, share);
}

/* From the first of LPI_POLICY_THREAD writes to the first of the next ones, the thread has worked
 * for a measured time, and the model had guessed one. Guesses are multiplied with the ratio of the
 * two. */
static void note_thread(struct lpi_block *block, enum lp_write_path path, uint64_t bytes)
{
	struct lpi_policy *policy = &block->policy;
	uint64_t now_ns = lp_reactor_now_ns(block->options.reactor);
	uint64_t waited_ns = lp_reactor_waited_ns(block->options.reactor);
	if (policy->thread_cnt == LPI_POLICY_THREAD) {
		uint64_t passed_ns = now_ns - policy->thread_from_ns;
		uint64_t idle_ns = waited_ns - policy->thread_waited_ns;
		lp_policy_observe_thread(&policy->costs, policy->thread_guessed_ns,
					 passed_ns - idle_ns, idle_ns >= passed_ns / 4);
		policy->thread_cnt = 0;
	}
	if (policy->thread_cnt == 0) {
		policy->thread_from_ns = now_ns;
		policy->thread_waited_ns = waited_ns;
		policy->thread_guessed_ns = 0;
	}
	policy->thread_cnt++;
	policy->thread_guessed_ns += lp_policy_thread_ns(path, bytes);
}

static struct lp_contest *contest_of(struct lpi_policy *policy, uint64_t bytes, uint32_t depth)
{
	struct lp_contest *contest =
		&policy->contests[lp_policy_class_idx(bytes)][lp_policy_depth_idx(depth)];
	if (contest->is_begun)
		return contest;
	if (bytes <= LP_BLOCK_BYTES)
		lp_contest_init(contest, LP_PATH_DEFERRED, LPI_POLICY_BLOCK_FAR);
	else
		lp_contest_init(contest, lp_policy_choose(&policy->costs, bytes, depth),
				LP_CONTEST_NEAR);
	return contest;
}

static enum lp_write_path choose(struct lpi_block *block, uint64_t bytes, bool is_ordered,
				 struct lpi_policy_write *ret_write)
{
	struct lpi_policy *policy = &block->policy;
	uint32_t depth = LP_MAX(depth_of(policy), 1u);
	if (bytes < LP_BLOCK_BYTES)
		return LP_PATH_DEFERRED;
	if (bytes > policy->costs.payload_bytes)
		return LP_PATH_DIRECT;
	if (is_ordered && bytes <= LP_POLICY_ORDERED_BYTES)
		return lp_policy_choose_ordered(&policy->costs, bytes, depth);
	struct lp_contest *contest = contest_of(policy, bytes, depth);
	if (is_ordered)
		return contest->path;
	uint32_t blocks = (uint32_t)(lp_align_up(bytes, LP_BLOCK_BYTES) / LP_BLOCK_BYTES);
	enum lp_write_path path = lp_contest_begin(contest, depth, blocks, &ret_write->of);
	ret_write->contest = contest;
	ret_write->begun_ns = lp_reactor_now_ns(block->options.reactor);
	return path;
}

enum lp_write_path lpi_policy_choose(struct lpi_block *block, uint64_t bytes, bool is_ordered,
				     struct lpi_policy_write *ret_write)
{
	*ret_write = (struct lpi_policy_write){.contest = NULL};
	note_depth(block);
	note_places(block);
	enum lp_write_path path = choose(block, bytes, is_ordered, ret_write);
	note_thread(block, path, bytes);
	return path;
}

void lpi_policy_written(struct lpi_block *block, const struct lpi_policy_write *write)
{
	if (write->contest == NULL || !(write->of.is_seen || write->of.is_trial))
		return;
	const struct lp_pending_stats *pending = lp_pending_stats(lp_shard_pending(block->shard));
	const struct lp_contest_later later = {.added = pending->added,
					       .done = pending->written + pending->superseded +
						       pending->freed};
	lp_contest_end(write->contest, &write->of,
		       lp_reactor_now_ns(block->options.reactor) - write->begun_ns, &later);
}

#define US(ns) ((ns) / 1000)

/* Measured times of whole writes, and the sums of the device operations' times. */
static int explain_contest(const struct lpi_policy *policy, uint64_t bytes, char *buf, size_t len)
{
	uint32_t depth = LP_MAX(depth_of(policy), 1u);
	const struct lp_contest *contest =
		&policy->contests[lp_policy_class_idx(bytes)][lp_policy_depth_idx(depth)];
	int cnt = 0;
	if (contest->is_begun)
		cnt = snprintf(
			buf, len,
			"%s: of %u at once each took %.1f us deferred (%.1f of them for what "
			"comes later), %.1f direct (0: none yet), changed %u times; by the "
			"device's times: ",
			lp_write_path_name(contest->path), depth,
			US(lp_contest_ns(contest, LP_PATH_DEFERRED)), US(contest->later_ns),
			US(lp_contest_ns(contest, LP_PATH_DIRECT)), contest->flips);
	size_t used = LP_MIN((size_t)LP_MAX(cnt, 0), len);
	int more = lp_policy_explain(&policy->costs, bytes, depth, buf + used, len - used);
	return cnt < 0 || more < 0 ? -1 : cnt + more;
}

int lpi_policy_explain(const struct lpi_block *block, uint64_t bytes, char *buf, size_t len)
{
	enum lp_write_path path = block->write_path;
	if ((path == LP_PATH_AUTO || path == LP_PATH_INLINE) && bytes <= block->inline_max)
		return snprintf(buf, len, "%llu bytes: inline, in an object that has no more",
				(unsigned long long)bytes);
	if (bytes / LP_BLOCK_BYTES > LPI_DEFER_BLOCKS)
		return snprintf(buf, len, "%llu bytes: direct, as all above %llu KiB",
				(unsigned long long)bytes,
				(unsigned long long)LPI_DEFER_BLOCKS * LP_BLOCK_BYTES / 1024);
	if (path == LP_PATH_DIRECT || path == LP_PATH_DEFERRED)
		return snprintf(buf, len, "%llu bytes: %s, as was asked for",
				(unsigned long long)bytes, lp_write_path_name(path));
	if (bytes < LP_BLOCK_BYTES)
		return snprintf(buf, len, "%llu bytes: deferred, as all less than a block",
				(unsigned long long)bytes);
	return explain_contest(&block->policy, bytes, buf, len);
}

/* --- Keeping ---------------------------------------------------------------------------------- */

void lpi_policy_put(struct lpi_block *block)
{
	struct lpi_policy *policy = &block->policy;
	uint8_t value[LP_POLICY_VALUE_SIZE];
	struct lp_key key;
	lp_policy_export(&policy->costs, value);
	lp_key_of_store(&key, "policy");
	lp_commit_put(block->commit, (struct lp_kv_bytes){key.bytes, key.len},
		      (struct lp_kv_bytes){value, sizeof(value)});
	policy->saved_cnt = policy->costs.sample_cnt;
	policy->saved_ns = lp_reactor_now_ns(block->options.reactor);
}

void lpi_policy_close(struct lpi_block *block)
{
	const struct lp_commit_need need = {.batch_bytes = LPI_POLICY_NEED};
	if (lp_shard_error(block->shard) == 0 &&
	    block->policy.costs.sample_cnt != block->policy.saved_cnt &&
	    lp_commit_reserve(block->commit, &need))
		lpi_policy_put(block);
}

/* --- Birth ------------------------------------------------------------------------------------ */

void lpi_policy_init(struct lpi_policy *policy)
{
	*policy = (struct lpi_policy){.log_observer = {log_completed},
				      .data_observer = {data_completed}};
}

static int load(struct lpi_block *block)
{
	struct lp_kv_value value;
	struct lp_key key;
	lp_key_of_store(&key, "policy");
	int err = lp_kv_get(block->kv, (struct lp_kv_bytes){key.bytes, key.len}, &value);
	if (err < 0)
		return err == -ENOENT ? 0 : err;
	/* A damaged record is recorded; then all is learned anew. */
	int ignored = lp_policy_import(&block->policy.costs, value.bytes.data, value.bytes.len);
	(void)ignored;
	lp_kv_value_release(&value);
	return 0;
}

int lpi_policy_open(struct lpi_block *block)
{
	const struct lp_bdev_caps *caps = lp_bdev_caps(lp_bdev_of(block->data));
	struct lpi_policy *policy = &block->policy;
	lp_policy_init(&policy->costs, caps->rotational, false);
	if (block->commit == NULL)
		return 0;                              /* nothing is written in this state */
	policy->writes_through = caps->volatile_cache; /* lpi_block_data_opcode() */
	lp_policy_set_place_share(&policy->costs, LPI_POLICY_SHARE);
	uint64_t payload_bytes = lp_commit_payload_max(block->commit) * LP_BLOCK_BYTES;
	lp_policy_set_payload_max(&policy->costs, (uint32_t)payload_bytes);
	int err = load(block);
	policy->saved_cnt = policy->costs.sample_cnt;
	policy->saved_ns = lp_reactor_now_ns(block->options.reactor);
	return err;
}
