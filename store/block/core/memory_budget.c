/* SPDX-License-Identifier: Apache-2.0 */
#include "store/block/core/memory_budget.h"

#include <stdlib.h>

#include "store/block/core/block.h"
#include "store/block/core/data_cache.h"

#define MEMTABLES       5u /* the default of lp_kv_options.write_buffer_cnt, and one */
#define MEMTABLE_MIN    (UINT64_C(4) << 20)
#define MEMTABLE_MAX    (UINT64_C(64) << 20)
#define REST_NODE_CALLS 1024u /* of lpi_nodes_shrink(), each of which looks at 64 nodes */
#define REST_NODES_NS   LP_NS_PER_MS
#define NODES_SHARE     3u /* at first the nodes get less than this part of the budget */

static const char *const part_names[LPI_MEMORY_PARTS] = {
	[LPI_MEMORY_NODES] = "store nodes",         [LPI_MEMORY_INDEX_CACHE] = "index cache",
	[LPI_MEMORY_MEMTABLES] = "index memtables", [LPI_MEMORY_FILTERS] = "index filters",
	[LPI_MEMORY_POOLS] = "store pools",         [LPI_MEMORY_PENDING] = "deferred payloads",
	[LPI_MEMORY_DATA_CACHE] = "data cache",     [LPI_MEMORY_SPACE] = "free space",
};

/* Accounts of the same name are told apart by a number. It is not the shard's number, because two
 * open stores may have the same one. */
static _Atomic unsigned opened_cnt;

/* --- Division --------------------------------------------------------------------------------- */

static uint64_t data_bytes_max(const struct lp_store_options *options)
{
	return options->memory_bytes / 2;
}

uint64_t lpi_memory_of_pools(const struct lp_store_options *options, uint64_t op_bytes)
{
	uint64_t of_scratch = sizeof(struct lp_extmap_segment) + sizeof(struct lp_extmap_release) +
			      sizeof(uint32_t);
	uint64_t of_cached =
		options->data_cache_bytes > 0 ? lpi_cached_own_bytes(data_bytes_max(options)) : 0;
	return options->ops_max * op_bytes + of_cached + LPI_IOS * sizeof(struct lpi_io) +
	       LPI_SCRATCH_BLOCKS * of_scratch + LP_BUF_MEDIUM +
	       lpi_nodes_table_bytes(options->memory_bytes / NODES_SHARE) +
	       lpi_owing_bytes(options->memory_bytes / NODES_SHARE);
}

void lpi_memory_divide(struct lpi_memory *memory, const struct lp_store_options *options,
		       uint64_t pool_bytes)
{
	uint64_t data_bytes = LP_MIN(options->data_cache_bytes, data_bytes_max(options));
	uint64_t budget = options->memory_bytes - data_bytes;
	uint64_t memtable = LP_MIN(LP_MAX(budget / 12, MEMTABLE_MIN), MEMTABLE_MAX);
	if (options->index_buffer_bytes != 0)
		memtable = options->index_buffer_bytes;
	*memory =
		(struct lpi_memory){.budget_bytes = budget,
				    .data_cache_bytes = data_bytes,
				    .data_bytes_min = data_bytes / LPI_MEMORY_FLOOR,
				    .data_bytes_max = data_bytes > 0 ? data_bytes_max(options) : 0,
				    .memtable_bytes = memtable,
				    .filter_bytes = budget / 24,
				    .pool_bytes = pool_bytes};
	uint64_t taken = MEMTABLES * memtable + memory->filter_bytes + pool_bytes;
	uint64_t least = 2 * (budget / LPI_MEMORY_FLOOR);
	memory->caches_bytes = LP_MAX(budget > taken ? budget - taken : 0, least);
	memory->index_cache_bytes = memory->caches_bytes / 2;
	memory->nodes_bytes = memory->caches_bytes - memory->index_cache_bytes;
}

/* --- Balance ---------------------------------------------------------------------------------- */

/* Bytes for both caches, less the excess of the filters and all other deductions. */
static uint64_t caches_now(const struct lpi_memory *memory, uint64_t filter_bytes)
{
	uint64_t least = 2 * (memory->budget_bytes / LPI_MEMORY_FLOOR);
	uint64_t over = filter_bytes - LP_MIN(filter_bytes, memory->filter_bytes);
	over += memory->lost_bytes + memory->space_bytes;
	uint64_t left = memory->caches_bytes - LP_MIN(memory->caches_bytes, over);
	return LP_MAX(left, least);
}

/* Moves bytes to the data cache, or from it. */
static void move_data(struct lpi_memory *memory, uint64_t data_cost, uint64_t other_cost,
		      uint64_t filter_bytes)
{
	uint64_t caches = caches_now(memory, filter_bytes);
	uint64_t least = 2 * (memory->budget_bytes / LPI_MEMORY_FLOOR);
	uint64_t step = 0;
	if (data_cost >= LPI_MEMORY_COST_MIN && data_cost > other_cost) {
		step = LP_MIN(caches / LPI_MEMORY_STEP, LPI_MEMORY_DATA_STEP);
		step = LP_MIN(step, caches - least);
		step = LP_MIN(step, memory->data_bytes_max - memory->data_cache_bytes);
		memory->data_cache_bytes += step;
		memory->caches_bytes -= step;
	} else if (other_cost >= LPI_MEMORY_COST_MIN && other_cost > data_cost) {
		step = LP_MIN(memory->data_cache_bytes / LPI_MEMORY_STEP, LPI_MEMORY_DATA_STEP);
		step = LP_MIN(step, memory->data_cache_bytes - memory->data_bytes_min);
		memory->data_cache_bytes -= step;
		memory->caches_bytes += step;
	}
}

void lpi_memory_balance(struct lpi_memory *memory, const struct lpi_memory_misses *misses,
			uint64_t filter_bytes)
{
	uint64_t floor = memory->budget_bytes / LPI_MEMORY_FLOOR;
	uint64_t before = memory->index_cache_bytes + memory->nodes_bytes;
	uint64_t node_cost = misses->nodes_are_full ? misses->nodes : 0;
	uint64_t index_cost = misses->index_is_full ? misses->index * LPI_MEMORY_READ_COST : 0;
	uint64_t data_cost = misses->data_is_full ? misses->data * LPI_MEMORY_READ_COST : 0;
	if (memory->data_cache_bytes > 0)
		move_data(memory, data_cost, LP_MAX(node_cost, index_cost), filter_bytes);
	uint64_t caches = caches_now(memory, filter_bytes);
	/* In proportion, when there is less or more for both. */
	uint64_t index = (uint64_t)((double)memory->index_cache_bytes * (double)caches /
				    (double)LP_MAX(before, UINT64_C(1)));
	if (index_cost >= LPI_MEMORY_COST_MIN && index_cost > node_cost)
		index += (caches - LP_MIN(index, caches)) / LPI_MEMORY_STEP;
	else if (node_cost >= LPI_MEMORY_COST_MIN && node_cost > index_cost)
		index -= index / LPI_MEMORY_STEP;
	LP_ASSERT(caches >= 2 * floor);
	memory->index_cache_bytes = LP_MIN(LP_MAX(index, floor), caches - floor);
	memory->nodes_bytes = caches - memory->index_cache_bytes;
}

/* --- Accounts --------------------------------------------------------------------------------- */

static void account(struct lpi_memory *memory, enum lpi_memory_part part, uint64_t bytes,
		    uint64_t items)
{
	struct lp_account *one = &memory->accounts[part];
	uint64_t bytes_before = lp_account_bytes(one);
	uint64_t items_before = lp_account_items(one);
	lp_account_sub(one, bytes_before, items_before);
	lp_account_add(one, bytes, items);
}

static void account_all(struct lpi_block *block, const struct lp_kv_stats *kv)
{
	struct lpi_memory *memory = &block->memory;
	uint64_t held = lp_pending_stats(block->pending)->versions;
	account(memory, LPI_MEMORY_NODES, block->nodes.bytes, block->nodes.cnt);
	account(memory, LPI_MEMORY_INDEX_CACHE, kv->cache_bytes, 1);
	account(memory, LPI_MEMORY_MEMTABLES, kv->memtable_bytes, kv->waiting_cnt + 1);
	account(memory, LPI_MEMORY_FILTERS, kv->index_bytes, 1);
	account(memory, LPI_MEMORY_POOLS, memory->pool_bytes, 1);
	account(memory, LPI_MEMORY_SPACE, memory->space_bytes, 1);
	account(memory, LPI_MEMORY_PENDING, held * LP_BLOCK_BYTES, held);
	if (block->cached == NULL)
		return;
	struct lpi_cached_stats data;
	lpi_cached_read_stats(block->cached, &data);
	account(memory, LPI_MEMORY_DATA_CACHE, data.bytes, data.cache.blocks);
}

static void set_limits(struct lpi_memory *memory)
{
	lp_account_set_limit(&memory->accounts[LPI_MEMORY_NODES], memory->nodes_bytes);
	lp_account_set_limit(&memory->accounts[LPI_MEMORY_INDEX_CACHE], memory->index_cache_bytes);
	lp_account_set_limit(&memory->accounts[LPI_MEMORY_DATA_CACHE], memory->data_cache_bytes);
}

int lpi_memory_init(struct lpi_block *block)
{
	struct lpi_memory *memory = &block->memory;
	struct lp_account *accounts =
		aligned_alloc(_Alignof(struct lp_account), LPI_MEMORY_PARTS * sizeof(*accounts));
	if (accounts == NULL)
		return -ENOMEM;
	unsigned nr = atomic_fetch_add(&opened_cnt, 1);
	for (int i = 0; i < LPI_MEMORY_PARTS; i++)
		lp_account_init(&accounts[i], part_names[i], nr);
	memory->accounts = accounts;
	lp_account_set_limit(&accounts[LPI_MEMORY_MEMTABLES], MEMTABLES * memory->memtable_bytes);
	lp_account_set_limit(&accounts[LPI_MEMORY_FILTERS], memory->filter_bytes);
	set_limits(memory);
	lpi_memory_look(block);
	return 0;
}

void lpi_memory_fini(struct lpi_block *block)
{
	struct lpi_memory *memory = &block->memory;
	if (memory->accounts == NULL)
		return;
	for (int i = 0; i < LPI_MEMORY_PARTS; i++) {
		account(memory, (enum lpi_memory_part)i, 0, 0);
		lp_account_fini(&memory->accounts[i]);
	}
	free(memory->accounts);
	memory->accounts = NULL;
}

/* --- Once a second ---------------------------------------------------------------------------- */

/* Nearly full: eviction leaves a little room. */
static bool is_full(uint64_t bytes, uint64_t limit_bytes)
{
	return bytes >= limit_bytes - limit_bytes / 8;
}

static void look_at_data(struct lpi_block *block, struct lpi_memory_misses *misses)
{
	struct lpi_memory *memory = &block->memory;
	struct lpi_cached_stats stats;
	if (block->cached == NULL)
		return;
	lpi_cached_look(block->cached);
	lpi_cached_read_stats(block->cached, &stats);
	misses->data = stats.cache.ghost_inserts - memory->data_misses;
	misses->data_is_full = lpi_cached_is_full(block->cached);
	memory->data_misses = stats.cache.ghost_inserts;
}

void lpi_memory_look(struct lpi_block *block)
{
	struct lpi_memory *memory = &block->memory;
	uint64_t index_before = memory->index_cache_bytes;
	uint64_t data_before = memory->data_cache_bytes;
	struct lp_kv_stats kv;
	if (block->kv == NULL)
		return;
	lp_kv_read_stats(block->kv, &kv);
	struct lpi_memory_misses misses = {
		.nodes = block->nodes.misses - memory->node_misses,
		.index = kv.cached_missed_cnt - memory->index_misses,
		.nodes_are_full = is_full(block->nodes.bytes, memory->nodes_bytes),
		.index_is_full = is_full(kv.cache_bytes, memory->index_cache_bytes),
	};
	look_at_data(block, &misses);
	memory->node_misses = block->nodes.misses;
	memory->index_misses = kv.cached_missed_cnt;
	memory->next_ns = lp_reactor_now_ns(block->options.reactor) + LPI_MEMORY_LOOK_NS;
	memory->space_bytes = lp_space_memory_bytes(block->space);
	lpi_memory_balance(memory, &misses, kv.index_bytes);
	if (memory->index_cache_bytes != index_before)
		lp_kv_set_cache_bytes(block->kv, memory->index_cache_bytes);
	block->nodes.limit_bytes = memory->nodes_bytes;
	if (memory->data_cache_bytes != data_before)
		lpi_cached_resize(block->cached, memory->data_cache_bytes);
	set_limits(memory);
	account_all(block, &kv);
}

/* --- At rest ---------------------------------------------------------------------------------- */

static bool rest_nodes(struct lpi_block *block)
{
	struct lpi_nodes *nodes = &block->nodes;
	const struct lp_clock *clock = lp_reactor_clock(block->options.reactor);
	uint64_t limit_bytes = nodes->limit_bytes;
	uint64_t before = nodes->bytes;
	if (before <= LPI_MEMORY_REST_LEAST)
		return false;
	uint64_t until_ns = lp_clock_mono_ns(clock) + REST_NODES_NS;
	nodes->limit_bytes = LPI_MEMORY_REST_LEAST;
	for (uint32_t i = 0; i < REST_NODE_CALLS && nodes->bytes > nodes->limit_bytes &&
			     lp_clock_mono_ns(clock) < until_ns;
	     i++)
		lpi_nodes_shrink(nodes);
	nodes->limit_bytes = limit_bytes;
	return nodes->bytes < before;
}

static bool rest_index_cache(struct lpi_block *block, uint64_t bytes)
{
	if (bytes <= LPI_MEMORY_REST_LEAST)
		return false;
	/* The cache is divided into parts: the limit for all of them must not be zero. */
	uint64_t left = bytes - LP_MIN(bytes, LPI_MEMORY_REST_STEP);
	lp_kv_set_cache_bytes(block->kv, LP_MAX(left, LPI_MEMORY_REST_LEAST));
	lp_kv_set_cache_bytes(block->kv, block->memory.index_cache_bytes);
	return true;
}

/* A flush that does not come is not waited for long, and requested again only when more was
 * written. */
static bool rest_memtables(struct lpi_block *block, const struct lp_kv_stats *kv, bool *ret_flushes)
{
	struct lpi_memory *memory = &block->memory;
	uint64_t kept_bytes = lp_kv_drop_kept(block->kv);
	uint64_t held_bytes = kv->memtable_bytes - LP_MIN(kv->memtable_bytes, kept_bytes);
	if (held_bytes <= LPI_MEMORY_REST_FLUSH)
		return kept_bytes > 0;
	if (memory->rested_bytes != kv->written_bytes) {
		memory->rested_bytes = kv->written_bytes;
		memory->rest_flushes = LPI_MEMORY_REST_FLUSHES;
		*ret_flushes = true;
	}
	if (memory->rest_flushes == 0)
		return kept_bytes > 0;
	memory->rest_flushes--;
	return true;
}

bool lpi_memory_rest(struct lpi_block *block)
{
	struct lp_kv_stats kv;
	bool flushes = false;
	if (block->kv == NULL || block->reopen.health.error != 0)
		return false;
	lp_kv_read_stats(block->kv, &kv);
	bool has_given = rest_nodes(block);
	has_given |= rest_index_cache(block, kv.cache_bytes);
	has_given |= rest_memtables(block, &kv, &flushes);
	if (block->cached != NULL)
		has_given |= lpi_cached_rest(block->cached, LPI_MEMORY_REST_STEP);
	struct lp_pool *const pools[] = {block->txns, block->reads, block->queries, block->ios};
	for (size_t i = 0; i < LP_ARRAY_SIZE(pools); i++)
		(void)lp_pool_trim(pools[i]);
	lp_shard_rest(block->shard, flushes);
	return has_given;
}

void lpi_memory_read_stats(struct lpi_block *block, struct lp_store_stats *stats)
{
	const struct lpi_memory *memory = &block->memory;
	struct lp_kv_stats kv = {0};
	stats->budget_bytes = block->options.memory_bytes;
	stats->pools_bytes = memory->pool_bytes;
	if (block->kv == NULL)
		return;
	lp_kv_read_stats(block->kv, &kv);
	account_all(block, &kv);
	stats->nodes_bytes = block->nodes.bytes;
	stats->nodes_limit_bytes = memory->nodes_bytes;
	stats->index_cache_bytes = kv.cache_bytes;
	stats->index_cache_limit_bytes = memory->index_cache_bytes;
	stats->memtable_bytes = kv.memtable_bytes;
	stats->index_filter_bytes = kv.index_bytes;
	stats->space_bytes = memory->space_bytes;
	lpi_note_index(&kv, stats);
	stats->data_cache_limit_bytes = memory->data_cache_bytes;
	stats->pending_bytes = lp_pending_stats(block->pending)->versions * LP_BLOCK_BYTES;
}
