/* SPDX-License-Identifier: Apache-2.0 */
/* Two kinds of data writes are told apart by the device's cache. A volatile one: direct writes go
 * through it, write-back's do not, and are made durable by a flush that many share. Then the latter
 * are place writes, and the policy is told that no flush is waited for, as its header wants it.
 * Else both are the same operation, and both are data writes. */
#include "store/block_policy.h"

#include <stdio.h>

#include "base/error.h"
#include "store/block_txn.h"
#include "store/keys.h"

/* --- What operations take --------------------------------------------------------------------- */

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

/* Transactions come and go with the frames, many at a time: what counts is how many they are when
 * all are there. The most that was seen, forgotten slowly. */
static void note_depth(struct lpi_block *block)
{
	struct lpi_policy *policy = &block->policy;
	uint32_t now = block->options.ops_max - lp_pool_free_cnt(block->txns);
	uint32_t faded = policy->depth_x256 - policy->depth_x256 / 256;
	policy->depth_x256 = LP_MAX(faded, 256 * now);
}

/* One write in so many. */
static uint32_t trial_share(const struct lpi_policy *policy)
{
	if (LPI_POLICY_TRIALS - policy->trials_left < LPI_POLICY_FIRST)
		return LPI_POLICY_FIRST_SHARE;
	return policy->trials_left > 0 ? LPI_POLICY_TRIAL_SHARE : LPI_POLICY_LATE_SHARE;
}

/* Whether this write should rather show what the other path takes. */
static bool is_trial(struct lpi_policy *policy)
{
	if (policy->trial_left > 0) {
		policy->trial_left--;
		return true;
	}
	uint32_t cnt = LP_MAX(LPI_POLICY_BURST * depth_of(policy), LPI_POLICY_TRIAL_MIN);
	cnt = LP_MIN(cnt, LPI_POLICY_TRIAL_MAX);
	policy->same_cnt++;
	if (++policy->asked_cnt < cnt * trial_share(policy))
		return false;
	policy->asked_cnt = 0;
	policy->trials_left -= LP_MIN(policy->trials_left, 1u);
	policy->trial_cnt = cnt;
	policy->trial_left = cnt;
	policy->same_cnt = 0;
	return false;
}

/* Those that were under way when the path changed have ended, or nearly. Not each: those of one
 * frame end together, and are one and the same news. */
static bool is_to_be_seen(const struct lpi_policy *policy, bool is_trial)
{
	uint32_t depth = depth_of(policy);
	uint32_t nr = is_trial ? policy->trial_left : policy->same_cnt;
	bool is_among_its_own = is_trial ? policy->trial_left < policy->trial_cnt / 2
					 : policy->same_cnt >= 2 * depth;
	return is_among_its_own && nr % LP_MAX(depth / LPI_POLICY_SEEN_SHARE, 1u) == 0;
}

/* Each sample counts a quarter; what is not known any more goes back to what is assumed. */
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

/* From the first of so many writes to the first of the next ones the thread has worked so long, and
 * the model had guessed so much: their ratio is what guesses are multiplied with. */
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

enum lp_write_path lpi_policy_choose(struct lpi_block *block, uint64_t bytes, bool is_ordered,
				     struct lpi_policy_write *ret_write)
{
	struct lpi_policy *policy = &block->policy;
	bool is_other = false;
	note_depth(block);
	note_places(block);
	uint32_t depth = depth_of(policy);
	enum lp_write_path path = is_ordered
					  ? lp_policy_choose_ordered(&policy->costs, bytes, depth)
					  : lp_policy_choose(&policy->costs, bytes, depth);
	if (policy->costs.flips != policy->seen_flips)
		policy->same_cnt = 0;
	policy->seen_flips = policy->costs.flips;
	if (bytes <= policy->costs.payload_bytes)
		is_other = is_trial(policy);
	if (is_other)
		path = path == LP_PATH_DIRECT ? LP_PATH_DEFERRED : LP_PATH_DIRECT;
	LP_ASSERT(path == LP_PATH_DIRECT || path == LP_PATH_DEFERRED);
	note_thread(block, path, bytes);
	*ret_write = (struct lpi_policy_write){
		.bytes = bytes, .depth = depth, .path = path, .is_trial = is_other};
	if (!is_ordered && is_to_be_seen(policy, is_other))
		ret_write->begun_ns = lp_reactor_now_ns(block->options.reactor);
	return path;
}

void lpi_policy_written(struct lpi_block *block, const struct lpi_policy_write *write)
{
	if (write->begun_ns == 0)
		return;
	lp_policy_observe_write(&block->policy.costs, write->path, write->bytes, write->depth,
				lp_reactor_now_ns(block->options.reactor) - write->begun_ns,
				write->is_trial);
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
	return lp_policy_explain(&block->policy.costs, LP_MAX(bytes, UINT64_C(1)),
				 depth_of(&block->policy), buf, len);
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
				      .data_observer = {data_completed},
				      .trials_left = LPI_POLICY_TRIALS};
}

static int load(struct lpi_block *block)
{
	struct lp_kv_value value;
	struct lp_key key;
	lp_key_of_store(&key, "policy");
	int err = lp_kv_get(block->kv, (struct lp_kv_bytes){key.bytes, key.len}, &value);
	if (err < 0)
		return err == -ENOENT ? 0 : err;
	/* Recorded when it is damaged; then all is learned anew. */
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
		return 0;                              /* nothing is written */
	policy->writes_through = caps->volatile_cache; /* lpi_block_data_opcode() */
	lp_policy_set_place_share(&policy->costs, LPI_POLICY_SHARE);
	uint64_t payload_bytes = lp_commit_payload_max(block->commit) * LP_BLOCK_BYTES;
	lp_policy_set_payload_max(&policy->costs, (uint32_t)payload_bytes);
	int err = load(block);
	policy->saved_cnt = policy->costs.sample_cnt;
	policy->saved_ns = lp_reactor_now_ns(block->options.reactor);
	return err;
}
