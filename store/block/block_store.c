/* SPDX-License-Identifier: Apache-2.0 */
/* Opening and closing a block store, and dispatch of operations to its parts. */
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "store/block/block_parts.h"
#include "store/block/core/data_cache.h"
#include "store/block/read/query.h"
#include "store/block/read/read.h"
#include "store/block/write/freeing.h"
#include "store/block/write/txn.h"
#include "store/index/plan.h"

#define MEMORY_DEFAULT (UINT64_C(256) << 20)
#define OPS_DEFAULT    256u
#define CLAIM_BUCKETS  4096u
#define INLINE_DEFAULT LP_INODE_INLINE_MAX

static void observe(const struct lp_sm *sm, unsigned state, uint64_t ns, void *arg)
{
	struct lpi_state_times *times = arg;
	(void)sm;
	times[state].cnt++;
	times[state].ns += ns;
}

/* --- Calls ------------------------------------------------------------------------------------ */

static void dispatch(struct lpi_block *block, struct lp_store_op *op)
{
	if (op->opcode == LP_STORE_TXN)
		lpi_txn_submit(block, op);
	else if (op->opcode == LP_STORE_READ)
		lpi_read_submit(block, op);
	else
		lpi_query_submit(block, op);
}

static const struct lpi_block_calls calls = {
	.dispatch = dispatch,
	.takes_back = lpi_reopen_takes_back,
	.end_view = lpi_view_is_over,
};

static void block_submit(struct lp_store *store, struct lp_store_op *op)
{
	struct lpi_block *block = lpi_block_of(store);
	int err = lpi_store_check(op);
	if (err == 0)
		err = lpi_reopen_admit(block, op);
	if (err < 0)
		lpi_block_complete(block, op, err);
	else if (LP_UNLIKELY(lpi_reopen_holds(block, op)))
		return;
	else if (!lpi_op_list_is_empty(&block->slots.waiting_txns))
		/* No operation overtakes a transaction that has no slot yet. */
		lpi_op_list_push_back(&block->slots.waiting_txns, op);
	else
		dispatch(block, op);
}

static void block_end(struct lp_store *store, struct lp_store_op *op)
{
	lpi_read_end(lpi_block_of(store), op);
}

static struct lp_ino block_new_ino(struct lp_store *store)
{
	return lpi_ino_new(lpi_block_of(store));
}

static int block_error(const struct lp_store *store)
{
	const struct lpi_block *block = lpi_block_of((struct lp_store *)(uintptr_t)store);
	return block->reopen.health.error;
}

static bool block_is_settled(const struct lp_store *store)
{
	const struct lpi_block *block = lpi_block_of((struct lp_store *)(uintptr_t)store);
	return block->reopen.health.error == 0 &&
	       (block->commit == NULL || lp_commit_is_settled(block->commit));
}

static bool block_is_freeing(const struct lp_store *store, struct lp_store_freeing *since)
{
	const struct lpi_block *block = lpi_block_of((struct lp_store *)(uintptr_t)store);
	return block->reopen.health.error == 0 && !block->options.read_only &&
	       lpi_block_is_freeing(block, since);
}

static void block_read_bad(const struct lp_store *store, struct lp_bad_blocks *ret_bad)
{
	const struct lpi_block *block = lpi_block_of((struct lp_store *)(uintptr_t)store);
	if (block->shard != NULL)
		lp_shard_read_bad(block->shard, ret_bad);
}

static void block_read_health(const struct lp_store *store, struct lp_store_health *ret_health)
{
	lpi_reopen_read_health(lpi_block_of((struct lp_store *)(uintptr_t)store), ret_health);
}

static void block_set_write_path(struct lp_store *store, enum lp_write_path path)
{
	lpi_block_of(store)->write_path = path;
}

static void block_set_lost_bytes(struct lp_store *store, uint64_t bytes)
{
	lpi_block_of(store)->memory.lost_bytes = bytes;
}

static bool block_rest(struct lp_store *store)
{
	return lpi_memory_rest(lpi_block_of(store));
}

static void block_set_deferred_store(struct lp_store *store, enum lp_deferred_store kind)
{
	struct lpi_block *block = lpi_block_of(store);
	if (block->commit != NULL)
		lp_shard_set_deferred_store(block->shard, kind);
}

static void add_index_reads(const struct lp_kv_chans *chans, struct lp_store_stats *stats)
{
	for (uint32_t i = 0; i < LP_KV_CHANS_MAX; i++) {
		if (chans->chans[i] == NULL)
			continue;
		stats->index_reads += lp_bdev_stats(chans->chans[i])->ops[LP_BDEV_READ];
		stats->index_read_bytes += lp_bdev_stats(chans->chans[i])->bytes[LP_BDEV_READ];
	}
}

/* Write-throughs on the log's channel that are not data are frames. */
static void add_device_stats(struct lpi_block *block, struct lp_store_stats *stats)
{
	struct lp_bdev_chan *log_chan = lp_shard_log_chan(block->shard);
	const struct lp_bdev_stats *data = lp_bdev_stats(block->data);
	const struct lp_bdev_stats *log = lp_bdev_stats(log_chan);
	bool is_same = log_chan == block->data;
	stats->log_writes += log->ops[LP_BDEV_WRITE_THROUGH] - (is_same ? block->data_throughs : 0);
	stats->log_bytes +=
		log->bytes[LP_BDEV_WRITE_THROUGH] - (is_same ? block->data_through_bytes : 0);
	stats->data_writes += data->ops[LP_BDEV_WRITE] + block->data_throughs;
	stats->data_bytes += data->bytes[LP_BDEV_WRITE] + block->data_through_bytes;
	stats->data_reads += data->ops[LP_BDEV_READ];
	stats->data_read_bytes += data->bytes[LP_BDEV_READ];
	add_index_reads(lp_shard_index_chans(block->shard), stats);
	stats->flushes += data->ops[LP_BDEV_FLUSH] + (is_same ? 0 : log->ops[LP_BDEV_FLUSH]);
	if (block->commit != NULL)
		stats->commits += lp_commit_stats(block->commit)->groups;
}

void lpi_block_keep_stats(struct lpi_block *block)
{
	add_device_stats(block, &block->past);
	block->data_throughs = 0;
	block->data_through_bytes = 0;
}

static void read_cached_stats(const struct lpi_block *block, struct lp_store_stats *stats)
{
	struct lpi_cached_stats cached;
	if (block->cached == NULL)
		return;
	lpi_cached_read_stats(block->cached, &cached);
	stats->data_cache_bytes = cached.bytes;
	stats->data_hits = cached.cache.hits;
	stats->data_misses = cached.cache.misses;
	stats->ahead_reads = cached.ahead_reads;
	stats->ahead_blocks = cached.ahead_blocks;
	stats->ahead_used = cached.cache.ahead_used;
	stats->ahead_wasted = cached.cache.ahead_wasted + cached.ahead_lost;
	stats->ahead_waits = cached.ahead_waits;
}

static void block_read_stats(struct lp_store *store, struct lp_store_stats *ret_stats)
{
	struct lpi_block *block = lpi_block_of(store);
	struct lp_store_stats *stats = ret_stats;
	*stats = block->stats;
	stats->log_writes = block->past.log_writes;
	stats->log_bytes = block->past.log_bytes;
	stats->data_writes = block->past.data_writes;
	stats->data_bytes = block->past.data_bytes;
	stats->data_reads = block->past.data_reads;
	stats->data_read_bytes = block->past.data_read_bytes;
	stats->index_reads = block->past.index_reads;
	stats->index_read_bytes = block->past.index_read_bytes;
	stats->flushes = block->past.flushes;
	stats->commits = block->past.commits;
	stats->inode_hits = block->nodes.hits;
	stats->inode_misses = block->nodes.misses;
	stats->cached_bytes = block->nodes.bytes;
	stats->shard_idx = block->options.shard_idx;
	lpi_memory_read_stats(block, stats);
	if (block->shard == NULL)
		return;
	stats->takes_no_more = lp_shard_takes_no_more(block->shard);
	stats->free_blocks = lp_alloc_free_blocks(lp_space_alloc(block->space)) +
			     lp_shard_gift_blocks(block->shard);
	stats->kept_blocks = LP_MIN(stats->free_blocks, LPI_CUT_BLOCKS);
	stats->used_blocks = lp_space_used_blocks(block->space);
	add_device_stats(block, stats);
	read_cached_stats(block, stats);
	stats->bad_blocks = lp_shard_bad_blocks(block->shard);
	if (block->commit != NULL)
		stats->deferred_records = lp_deferrals_stats(lp_shard_deferrals(block->shard))->put;
}

static void block_read_usage(struct lp_store *store, struct lp_store_usage *ret_usage)
{
	struct lpi_block *block = lpi_block_of(store);
	if (block->shard == NULL) { /* it is being opened again, or could not be */
		*ret_usage = (struct lp_store_usage){0};
		return;
	}
	const struct lp_alloc *alloc = lp_space_alloc(block->space);
	const struct lp_shard_recovery *recovery = lp_shard_recovery(block->shard);
	struct lp_shard_usage usage;
	lp_shard_read_usage(block->shard, &usage);
	*ret_usage = (struct lp_store_usage){
		.free_blocks = lp_alloc_free_blocks(alloc),
		.used_blocks = lp_space_used_blocks(block->space),
		.largest_run_blocks = lp_alloc_largest_run(alloc),
		.score = lp_alloc_score(alloc),
		.alloc_bytes = lp_alloc_memory_bytes(alloc),
		.index_bytes = usage.index_bytes,
		.log_ring_blocks = usage.log_ring_blocks,
		.log_needed_blocks = usage.log_needed_blocks,
		.log_needed_records = usage.log_needed_records,
		.start_frames = recovery->frames,
		.start_payloads = recovery->payloads,
		.start_ns = recovery->took_ns,
	};
}

static int block_explain(const struct lp_store *store, uint64_t bytes, char *buf, size_t len)
{
	return lpi_policy_explain(lpi_block_of((struct lp_store *)(uintptr_t)store), bytes, buf,
				  len);
}

static double block_alloc_score(const struct lp_store *store)
{
	const struct lpi_block *block = lpi_block_of((struct lp_store *)(uintptr_t)store);
	if (block->shard == NULL)
		return 0;
	return lp_alloc_score(lp_space_alloc(lp_shard_space(block->shard)));
}

static size_t add_times(const struct lp_sm_table *table, const struct lpi_state_times *times,
			struct lp_store_time *ret_rows, size_t max)
{
	for (unsigned i = 0; i < LP_MIN((size_t)table->state_cnt, max); i++)
		ret_rows[i] = (struct lp_store_time){.operation = table->name,
						     .state = table->states[i].name,
						     .cnt = times[i].cnt,
						     .ns = times[i].ns};
	return table->state_cnt;
}

static size_t block_read_times(const struct lp_store *store, struct lp_store_time *ret_rows,
			       size_t max)
{
	const struct lpi_block *block = lpi_block_of((struct lp_store *)(uintptr_t)store);
	const struct {
		const struct lp_sm_table *table;
		const struct lpi_state_times *times;
	} all[] = {{&lpi_txn_table, block->txn_times.states},
		   {&lpi_read_table, block->read_times.states},
		   {&lpi_query_table, block->query_times.states}};
	size_t cnt = 0;
	for (size_t i = 0; i < LP_ARRAY_SIZE(all); i++) {
		size_t skip = LP_MIN(cnt, max);
		cnt += add_times(all[i].table, all[i].times, ret_rows + skip, max - skip);
	}
	return cnt;
}

static bool block_sim_run_one(struct lp_store *store)
{
	struct lpi_block *block = lpi_block_of(store);
	return block->shard != NULL && lp_shard_sim_run_one(block->shard);
}

static int block_close(struct lp_store *store, bool abandon);

static const struct lpi_store_calls block_calls = {
	.submit = block_submit,
	.end = block_end,
	.new_ino = block_new_ino,
	.close = block_close,
	.error = block_error,
	.is_settled = block_is_settled,
	.is_freeing = block_is_freeing,
	.read_bad = block_read_bad,
	.read_health = block_read_health,
	.set_write_path = block_set_write_path,
	.set_deferred_store = block_set_deferred_store,
	.set_lost_bytes = block_set_lost_bytes,
	.rest = block_rest,
	.read_stats = block_read_stats,
	.read_usage = block_read_usage,
	.explain = block_explain,
	.alloc_score = block_alloc_score,
	.read_times = block_read_times,
	.under_way = lpi_begun_show,
	.sim_run_one = block_sim_run_one,
	.pause = lpi_view_pause,
	.resume = lpi_view_resume,
	.view_take = lpi_view_take,
	.view_end = lpi_view_end,
};

/* --- Closing ---------------------------------------------------------------------------------- */

static void free_parts(struct lpi_block *block)
{
	lpi_memory_fini(block);
	lpi_nodes_fini(&block->nodes);
	lpi_trims_free(block);
	lpi_cached_close(block);
	lp_claims_free(block->claims);
	lp_pool_free(block->txns);
	lp_pool_free(block->reads);
	lp_pool_free(block->queries);
	lp_pool_free(block->ios);
	lp_buf_put(block->zeros);
	free(block->scratch.segments);
	free(block->scratch.releases);
	free(block->scratch.crcs);
	free(block);
}

static bool is_quiet(const struct lpi_block *block)
{
	return block->running == 0 && lpi_trims_are_idle(block) && lpi_cached_is_idle(block) &&
	       lpi_op_list_is_empty(&block->slots.done);
}

static int block_close(struct lp_store *store, bool abandon)
{
	struct lpi_block *block = lpi_block_of(store);
	LP_ASSERT(block->running == 0 && lpi_op_list_is_empty(&block->held));
	LP_ASSERT(block->pause == NULL && block->view == NULL);
	block->is_closing = true;
	if (abandon && block->commit != NULL)
		lp_commit_abort(block->commit);
	lpi_trims_stop(block);
	lpi_reopen_end(block);
	while (!is_quiet(block)) {
		if (block->options.sim_clock != NULL)
			(void)block_sim_run_one(store);
		(void)lp_reactor_turn(block->options.reactor, true);
	}
	lp_timer_stop(block->options.reactor, &block->slots.memory_timer);
	lpi_gather_stop(block);
	if (!abandon && block->commit != NULL)
		lpi_policy_close(block);
	int failed = block->reopen.health.error;
	int err = lp_shard_close(block->shard, abandon);
	free_parts(block);
	return err == 0 && !abandon ? failed : err;
}

/* --- Opening ---------------------------------------------------------------------------------- */

static int make_parts(struct lpi_block *block)
{
	uint32_t ops = block->options.ops_max;
	const struct lp_pool_config txns = {
		.name = "transactions", .object_bytes = lpi_txn_bytes(), .limit = ops};
	const struct lp_pool_config reads = {
		.name = "reads", .object_bytes = lpi_read_bytes(), .limit = ops};
	const struct lp_pool_config queries = {
		.name = "queries", .object_bytes = lpi_query_bytes(), .limit = ops};
	const struct lp_pool_config ios = {
		.name = "ios", .object_bytes = sizeof(struct lpi_io), .limit = LPI_IOS};
	int err = lp_claims_new(CLAIM_BUCKETS, &block->claims);
	if (err == 0)
		err = lpi_trims_new(block);
	if (err == 0)
		err = lp_pool_new(&txns, &block->txns);
	if (err == 0)
		err = lp_pool_new(&reads, &block->reads);
	if (err == 0)
		err = lp_pool_new(&queries, &block->queries);
	if (err == 0)
		err = lp_pool_new(&ios, &block->ios);
	block->scratch.segments = calloc(LPI_SCRATCH_BLOCKS, sizeof(*block->scratch.segments));
	block->scratch.releases = calloc(LPI_SCRATCH_BLOCKS, sizeof(*block->scratch.releases));
	block->scratch.crcs = calloc(LPI_SCRATCH_BLOCKS, sizeof(*block->scratch.crcs));
	block->zeros = lp_buf_new(block->options.bufs, LP_BUF_MEDIUM);
	if (err == 0 && (block->scratch.segments == NULL || block->scratch.releases == NULL ||
			 block->scratch.crcs == NULL || block->zeros == NULL))
		err = -ENOMEM;
	if (err == 0)
		memset(block->zeros->data, 0, LP_BUF_MEDIUM);
	return err;
}

void lpi_block_shard_options(struct lpi_block *block, struct lp_shard_options *ret_options)
{
	const struct lp_store_options *options = &block->options;
	*ret_options = (struct lp_shard_options){
		.reactor = options->reactor,
		.workers = options->workers,
		.devices = options->devices,
		.bufs = options->bufs,
		.shard_idx = options->shard_idx,
		.alloc_kind = options->alloc_kind,
		.sim_clock = options->sim_clock,
		.index_cache_bytes = block->memory.index_cache_bytes,
		.index_buffer_bytes = options->index_buffer_bytes,
		.memory_bytes = options->memory_bytes,
		.deferred_blocks_max = options->deferred_blocks_max,
		.files_reserve_bytes = options->files_reserve_bytes,
		.deferred_store = options->deferred_store,
		.hold_ns = options->hold_ns,
		.discard = options->discard,
		.read_only = options->read_only,
		.events = &block->reopen.shard_events,
		.log_observer = &block->policy.log_observer,
		.writeback_observer = &block->policy.data_observer,
	};
}

void lpi_block_set_shard(struct lpi_block *block, struct lp_shard *shard)
{
	bool has = shard != NULL;
	block->shard = shard;
	block->commit = has ? lp_shard_commit(shard) : NULL;
	block->kv = has ? lp_shard_kv(shard) : NULL;
	block->overlay = has ? lp_shard_overlay(shard) : NULL;
	block->space = has ? lp_shard_space(shard) : NULL;
	block->pending = has ? lp_shard_pending(shard) : NULL;
	block->data = has ? lp_shard_data(shard) : NULL;
}

static int open_shard(struct lpi_block *block)
{
	struct lp_shard_options options;
	struct lp_shard *shard = NULL;
	lpi_block_shard_options(block, &options);
	int err = lp_shard_open(&options, &shard);
	if (err == 0)
		lpi_block_set_shard(block, shard);
	return err;
}

static void set_defaults(struct lpi_block *block)
{
	struct lp_store_options *options = &block->options;
	if (options->memory_bytes == 0)
		options->memory_bytes = LP_INDEX_MEMORY_DEFAULT;
	if (options->ops_max == 0)
		options->ops_max = OPS_DEFAULT;
	block->write_path = options->write_path;
	block->inline_max = LP_MIN(options->inline_max, (uint32_t)LP_INODE_INLINE_MAX);
	if (options->inline_max == 0)
		block->inline_max = INLINE_DEFAULT;
	if (options->inline_max == LP_STORE_NO_INLINE)
		block->inline_max = 0;
}

/* For tables of names chosen by clients. A simulation uses the same seed each time. */
static uint64_t names_seed(const struct lp_store_options *options)
{
	uint64_t seed = 0;
	if (options->sim_clock == NULL && getrandom(&seed, sizeof(seed), 0) != sizeof(seed))
		seed = (uintptr_t)options ^ lp_clock_mono_ns(lp_reactor_clock(options->reactor));
	return seed;
}

int lp_store_open(const struct lp_store_options *options, struct lp_store **ret_store)
{
	struct lpi_block *block = calloc(1, sizeof(*block));
	if (block == NULL)
		return -ENOMEM;
	block->base.calls = &block_calls;
	block->options = *options;
	set_defaults(block);
	lpi_slots_init(&block->slots);
	block->calls = &calls;
	lpi_reopen_init(block);
	block->txn_times.observer = (struct lp_sm_observer){observe, block->txn_times.states};
	block->read_times.observer = (struct lp_sm_observer){observe, block->read_times.states};
	block->query_times.observer = (struct lp_sm_observer){observe, block->query_times.states};
	lpi_policy_init(&block->policy);
	lpi_memory_divide(&block->memory, &block->options,
			  lpi_memory_of_pools(&block->options, lpi_txn_bytes() + lpi_read_bytes() +
								       lpi_query_bytes()));
	int err = open_shard(block);
	if (err < 0) {
		lp_task_cancel(&block->reopen.task);
		free(block);
		return err;
	}
	lpi_gather_start(block);
	err = lpi_nodes_init(&block->nodes, block->commit, block->memory.nodes_bytes);
	block->nodes.names_seed = names_seed(options);
	if (err == 0)
		err = make_parts(block);
	if (err == 0)
		err = lpi_cached_open(block, block->memory.data_cache_bytes,
				      block->memory.data_bytes_max);
	if (err == 0)
		err = lpi_memory_init(block);
	if (err == 0)
		err = lpi_policy_open(block);
	if (err == 0)
		err = lpi_ino_open(block);
	if (err == 0 && block->commit != NULL)
		err = lpi_trims_open(block);
	if (err < 0) {
		(void)block_close(&block->base, true);
		return err;
	}
	*ret_store = &block->base;
	return 0;
}
