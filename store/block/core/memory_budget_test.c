/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: the budget is divided as the header says, whatever it is; the index's filters come off the
 * caches, not off what is free; memory moves to where misses cost most, slowly, and stops at the
 * floors.
 * Method: the division and the balance are functions of numbers; they get all sorts of numbers.
 * What the store does with them is looked at in block/core/write_policy_test.c's rig by its
 * counters. */
#include "base/testing/test.h"

#include "base/prng.h"
#include "store/block/core/memory_budget.h"
#include "store/cache/block_cache.h"
#include "store/nodes/node.h"

#define MIB   (UINT64_C(1) << 20)
#define POOLS (16 * MIB)

static struct lpi_memory divided(uint64_t memory_bytes, uint64_t data_cache_bytes)
{
	const struct lp_store_options options = {.memory_bytes = memory_bytes,
						 .data_cache_bytes = data_cache_bytes};
	struct lpi_memory memory;
	lpi_memory_divide(&memory, &options, POOLS);
	return memory;
}

static uint64_t sum_of(const struct lpi_memory *memory)
{
	return 5 * memory->memtable_bytes + memory->filter_bytes + memory->pool_bytes +
	       memory->index_cache_bytes + memory->nodes_bytes + memory->data_cache_bytes;
}

static void test_division(void **state)
{
	(void)state;
	struct lpi_memory memory = divided(256 * MIB, 0);
	assert_int_equal(sum_of(&memory), 256 * MIB);
	assert_int_equal(memory.memtable_bytes, 256 * MIB / 12);
	assert_true(memory.nodes_bytes > 56 * MIB && memory.nodes_bytes < 72 * MIB);
	assert_true(memory.nodes_bytes - memory.index_cache_bytes <= 1);
	/* Much: memtables have a limit, the caches get the rest. */
	memory = divided(8192 * MIB, 0);
	assert_int_equal(sum_of(&memory), 8192 * MIB);
	assert_int_equal(memory.memtable_bytes, 64 * MIB);
	assert_true(memory.nodes_bytes > 3072 * MIB);
	/* Little: the floors hold, and what is exceeded is what memtables and pools need. */
	memory = divided(16 * MIB, 0);
	assert_int_equal(memory.memtable_bytes, 4 * MIB);
	assert_int_equal(memory.nodes_bytes, 2 * MIB);
	assert_int_equal(memory.index_cache_bytes, 2 * MIB);
	/* A part for cached data comes first, and is half at most. */
	memory = divided(512 * MIB, 256 * MIB);
	assert_int_equal(memory.data_cache_bytes, 256 * MIB);
	assert_int_equal(memory.index_cache_bytes, divided(256 * MIB, 0).index_cache_bytes);
	assert_int_equal(sum_of(&memory), 512 * MIB);
	assert_int_equal(divided(512 * MIB, 512 * MIB).data_cache_bytes, 256 * MIB);
}

static void test_given_memtable(void **state)
{
	const struct lp_store_options options = {.memory_bytes = 256 * MIB,
						 .index_buffer_bytes = MIB};
	struct lpi_memory memory;
	(void)state;
	lpi_memory_divide(&memory, &options, POOLS);
	assert_int_equal(memory.memtable_bytes, MIB);
	assert_int_equal(sum_of(&memory), 256 * MIB);
}

static void test_filters(void **state)
{
	const struct lpi_memory_misses none = {0};
	struct lpi_memory memory = divided(256 * MIB, 0);
	uint64_t caches = memory.caches_bytes;
	uint64_t sum = sum_of(&memory);
	(void)state;
	lpi_memory_balance(&memory, &none, memory.filter_bytes);
	assert_int_equal(memory.nodes_bytes + memory.index_cache_bytes, caches);
	lpi_memory_balance(&memory, &none, memory.filter_bytes + 20 * MIB);
	assert_int_equal(memory.nodes_bytes + memory.index_cache_bytes, caches - 20 * MIB);
	assert_int_equal(sum_of(&memory), sum - 20 * MIB);
	assert_true(memory.nodes_bytes - memory.index_cache_bytes <= 2);
	/* More than both can give. */
	lpi_memory_balance(&memory, &none, 1024 * MIB);
	assert_int_equal(memory.nodes_bytes, 32 * MIB);
	assert_int_equal(memory.index_cache_bytes, 32 * MIB);
	lpi_memory_balance(&memory, &none, 0);
	assert_int_equal(memory.nodes_bytes + memory.index_cache_bytes, caches);
}

/* What the allocator holds beside, they do without. */
static void test_lost(void **state)
{
	const struct lpi_memory_misses none = {0};
	struct lpi_memory memory = divided(256 * MIB, 0);
	uint64_t caches = memory.caches_bytes;
	(void)state;
	memory.lost_bytes = 10 * MIB;
	lpi_memory_balance(&memory, &none, memory.filter_bytes + 20 * MIB);
	assert_int_equal(memory.nodes_bytes + memory.index_cache_bytes, caches - 30 * MIB);
	memory.lost_bytes = 1024 * MIB;
	lpi_memory_balance(&memory, &none, 0);
	assert_int_equal(memory.nodes_bytes + memory.index_cache_bytes, 64 * MIB);
	memory.lost_bytes = 0;
	lpi_memory_balance(&memory, &none, 0);
	assert_int_equal(memory.nodes_bytes + memory.index_cache_bytes, caches);
}

/* Nor do they have what the state of the space takes. */
static void test_space(void **state)
{
	const struct lpi_memory_misses none = {0};
	struct lpi_memory memory = divided(256 * MIB, 0);
	uint64_t caches = memory.caches_bytes;
	(void)state;
	memory.space_bytes = 12 * MIB;
	lpi_memory_balance(&memory, &none, 0);
	assert_int_equal(memory.nodes_bytes + memory.index_cache_bytes, caches - 12 * MIB);
}

static void test_moves(void **state)
{
	struct lpi_memory memory = divided(256 * MIB, 0);
	const struct lpi_memory start = memory;
	struct lpi_memory_misses misses = {.nodes = 10000, .nodes_are_full = true};
	(void)state;
	lpi_memory_balance(&memory, &misses, 0);
	assert_int_equal(start.index_cache_bytes - memory.index_cache_bytes,
			 start.index_cache_bytes / LPI_MEMORY_STEP);
	for (int i = 0; i < 1000; i++)
		lpi_memory_balance(&memory, &misses, 0);
	assert_int_equal(memory.index_cache_bytes, 32 * MIB);
	assert_int_equal(memory.nodes_bytes, start.caches_bytes - 32 * MIB);
	/* A miss of the index costs more; and the way back is open. */
	misses.index = 1000;
	misses.index_is_full = true;
	lpi_memory_balance(&memory, &misses, 0);
	assert_true(memory.index_cache_bytes > 32 * MIB);
	for (int i = 0; i < 1000; i++)
		lpi_memory_balance(&memory, &misses, 0);
	assert_int_equal(memory.nodes_bytes, 32 * MIB);
}

static void test_stays(void **state)
{
	static const struct lpi_memory_misses quiet[] = {
		{0, 0, true, true, 0, false},
		{LPI_MEMORY_COST_MIN - 1, 0, true, true, 0, false},
		{0, LPI_MEMORY_COST_MIN / LPI_MEMORY_READ_COST - 1, true, true, 0, false},
		{100000, 0, false, true, 0, false}, /* misses of what was never there */
		{0, 100000, true, false, 0, false},
		{16000, 1000, true, true, 0, false}, /* both alike */
	};
	(void)state;
	for (size_t i = 0; i < LP_ARRAY_SIZE(quiet); i++) {
		struct lpi_memory memory = divided(256 * MIB, 0);
		uint64_t before = memory.nodes_bytes;
		for (int k = 0; k < 10; k++)
			lpi_memory_balance(&memory, &quiet[i], 0);
		assert_true(memory.nodes_bytes - before + 1 <= 2);
	}
}

/* The part for data grows and shrinks; none stays none. */
static void test_data(void **state)
{
	const struct lpi_memory_misses data = {.data = 1000, .data_is_full = true};
	const struct lpi_memory_misses nodes = {.nodes = 10000, .nodes_are_full = true};
	struct lpi_memory memory = divided(256 * MIB, 64 * MIB);
	const struct lpi_memory start = memory;
	uint64_t sum = sum_of(&memory);
	(void)state;
	lpi_memory_balance(&memory, &data, 0);
	uint64_t step = memory.data_cache_bytes - start.data_cache_bytes;
	assert_true(step > 0 && step <= LPI_MEMORY_DATA_STEP);
	assert_int_equal(step, start.caches_bytes / LPI_MEMORY_STEP);
	for (int i = 0; i < 1000; i++)
		lpi_memory_balance(&memory, &data, 0);
	assert_int_equal(memory.data_cache_bytes, start.data_cache_bytes + start.caches_bytes -
							  2 * (memory.budget_bytes / 8));
	assert_int_equal(sum_of(&memory), sum);
	for (int i = 0; i < 3000; i++)
		lpi_memory_balance(&memory, &nodes, 0);
	assert_int_equal(memory.data_cache_bytes, 8 * MIB);
	assert_int_equal(sum_of(&memory), sum);
	/* Misses that no larger cache would have answered are not even counted; a few hurt nobody,
	 * and one that is not full needs no more. */
	const struct lpi_memory_misses few = {
		.data = LPI_MEMORY_COST_MIN / LPI_MEMORY_READ_COST - 1, .data_is_full = true};
	const struct lpi_memory_misses unused = {.data = 1000};
	lpi_memory_balance(&memory, &few, 0);
	lpi_memory_balance(&memory, &unused, 0);
	assert_int_equal(memory.data_cache_bytes, 8 * MIB);
	memory = divided(256 * MIB, 0);
	lpi_memory_balance(&memory, &data, 0);
	assert_int_equal(memory.data_cache_bytes, 0);
}

static void test_any_numbers(void **state)
{
	struct lp_prng prng;
	(void)state;
	lp_prng_init(&prng, 3);
	for (int i = 0; i < 2000; i++) {
		uint64_t bytes = lp_prng_below(&prng, UINT64_C(1) << (16 + i % 30)) + 1;
		struct lpi_memory memory = divided(bytes, lp_prng_below(&prng, bytes));
		uint64_t floor = memory.budget_bytes / LPI_MEMORY_FLOOR;
		uint64_t both = memory.caches_bytes + memory.data_cache_bytes;
		for (int k = 0; k < 20; k++) {
			const struct lpi_memory_misses misses = {
				lp_prng_below(&prng, 100000), lp_prng_below(&prng, 10000),
				lp_prng_below(&prng, 2) == 0, lp_prng_below(&prng, 2) == 0,
				lp_prng_below(&prng, 10000),  lp_prng_below(&prng, 2) == 0};
			lpi_memory_balance(&memory, &misses, lp_prng_below(&prng, bytes));
			assert_true(memory.nodes_bytes >= floor);
			assert_true(memory.index_cache_bytes >= floor);
			assert_true(memory.nodes_bytes + memory.index_cache_bytes <=
				    memory.caches_bytes);
			assert_true(memory.data_cache_bytes >= memory.data_bytes_min);
			assert_true(memory.data_cache_bytes <= memory.data_bytes_max);
			assert_int_equal(memory.caches_bytes + memory.data_cache_bytes, both);
		}
	}
}

/* The table of nodes has a bucket for about each node that fits, so that chains stay short with any
 * budget; and takes a part of it that is known. */
static void test_table_of_nodes(void **state)
{
	(void)state;
	uint64_t least = lpi_nodes_table_bytes(0);
	assert_true(least > 0 && least <= MIB);
	for (uint64_t bytes = MIB; bytes <= 16384 * MIB; bytes *= 3) {
		uint64_t table = lpi_nodes_table_bytes(bytes);
		assert_true(table >= bytes / 512 * sizeof(void *));
		assert_true(table <= LP_MAX(least, bytes / 256 * sizeof(void *)));
	}
}

/* The table of cached blocks is as large as the largest part for data wants it, from the beginning,
 * and touched all over: whatever that part is now it is counted. */
static void test_table_of_blocks(void **state)
{
	(void)state;
	const struct lp_store_options without = {.memory_bytes = 1024 * MIB, .ops_max = 16};
	struct lp_store_options with = without;
	with.data_cache_bytes = 16 * MIB;
	uint64_t more = lpi_memory_of_pools(&with, 1) - lpi_memory_of_pools(&without, 1);
	uint64_t table = lp_block_cache_table_bytes(512 * MIB / (4096 + 192));
	assert_true(table >= MIB && table <= 8 * MIB);
	assert_true(more >= table && more <= table + MIB);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_table_of_nodes),
		cmocka_unit_test(test_division),
		cmocka_unit_test(test_given_memtable),
		cmocka_unit_test(test_filters),
		cmocka_unit_test(test_lost),
		cmocka_unit_test(test_space),
		cmocka_unit_test(test_moves),
		cmocka_unit_test(test_stays),
		cmocka_unit_test(test_data),
		cmocka_unit_test(test_any_numbers),
		cmocka_unit_test(test_table_of_blocks),
	};
	return lp_test_main(tests, "store/block/core/memory_budget");
}
