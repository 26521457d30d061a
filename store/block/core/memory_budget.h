/* SPDX-License-Identifier: Apache-2.0 */
/* Memory budget of a store: how it is divided, and moved where misses hurt (design 5.9).
 *
 * Threads: the store's.
 * Blocking: none, except RocksDB's mutex for moments, once a second.
 * Errors: none.
 *
 * Of the budget, less the part for cached data:
 *
 * - memtables: 1/12 each, five of them (four wait at most while one fills), from 4 to 64 MiB.
 *   Larger ones are compacted less, but more than a twelfth leaves too little to read with.
 * - filters: 1/24: the tables' indexes and filters, about 2.5 bytes a key, outside of any cache.
 *   They must be in memory whatever they take. The excess goes off the caches.
 * - pools: the slots of operations, known to the byte.
 * - caches: all the rest: the index's blocks and the nodes, half and half at first. Off that goes
 *   what the allocator turned out to hold beside its used memory, and what the free space takes.
 *
 * Neither of these two gets less than LPI_MEMORY_FLOOR of it all. So a budget that is too small
 * for its memtables and pools is exceeded: by as much as the sum of these says, never by more.
 *
 * Once in a second in which something is done, one 64th of one cache goes to another, if that one
 * is full and missed more, by cost. A missing node takes some microseconds of looking in the
 * index. A missing block of the index or of data takes a read of the device, LPI_MEMORY_READ_COST
 * times that. A cache that is not full misses for want of use, not of memory. Of the misses for
 * data those count that a larger cache would have answered: a reader of far more data than there
 * is memory misses whatever is done for it.
 *
 * The part for data, if there is one, stays between an LPI_MEMORY_FLOOR of its first size and
 * half of the whole budget. It moves by LPI_MEMORY_DATA_STEP at most, because its blocks are
 * given back one by one.
 */
#ifndef LP_STORE_BLOCK_CORE_MEMORY_BUDGET_H
#define LP_STORE_BLOCK_CORE_MEMORY_BUDGET_H

#include "base/memory/account.h"
#include "store/index/kv.h"
#include "store/store.h"

#define LPI_MEMORY_FLOOR     8u  /* parts of the budget */
#define LPI_MEMORY_STEP      64u /* parts of the cache that gives */
#define LPI_MEMORY_DATA_STEP (UINT64_C(2) << 20)
#define LPI_MEMORY_READ_COST 16u
#define LPI_MEMORY_COST_MIN  256u /* of a second's misses: less than that hurts nobody */
#define LPI_MEMORY_LOOK_NS   LP_NS_PER_S

#define LPI_MEMORY_REST_STEP  (UINT64_C(32) << 20) /* of one cache, at a call */
#define LPI_MEMORY_REST_LEAST (UINT64_C(1) << 20)  /* of a cache: less is left alone */
#define LPI_MEMORY_REST_FLUSH (UINT64_C(2) << 20)  /* of memtables: less is not worth a table */
#define LPI_MEMORY_REST_FLUSHES                                                                    \
	8u /* calls that wait for a flush; one that fails is not waited for */

struct lpi_block;

enum lpi_memory_part {
	LPI_MEMORY_NODES,
	LPI_MEMORY_INDEX_CACHE,
	LPI_MEMORY_DATA_CACHE,
	LPI_MEMORY_MEMTABLES,
	LPI_MEMORY_FILTERS,
	LPI_MEMORY_POOLS,
	LPI_MEMORY_SPACE,   /* what is free, and the state of each chunk */
	LPI_MEMORY_PENDING, /* payloads that wait for their place; in buffers, not of the budget */
	LPI_MEMORY_PARTS
};

struct lpi_memory {
	uint64_t budget_bytes;   /* less what is for data at first */
	uint64_t data_bytes_min; /* 0, all three: no data is cached */
	uint64_t data_bytes_max;
	uint64_t memtable_bytes; /* one */
	uint64_t filter_bytes;   /* what they may take before the caches shrink */
	uint64_t pool_bytes;
	uint64_t caches_bytes; /* both, while the filters keep to their part */
	uint64_t lost_bytes;   /* of both, to the allocator's holes: lp_store_set_lost_bytes(), */
	uint64_t space_bytes;  /* and to what is known of the free space */
	/* As they are now. */
	uint64_t index_cache_bytes;
	uint64_t nodes_bytes;
	uint64_t data_cache_bytes;
	/* Of the last look. */
	uint64_t next_ns;
	uint64_t node_misses;
	uint64_t index_misses;
	uint64_t data_misses;
	/* At rest. */
	uint64_t rested_bytes;       /* written to the index when it was last asked to flush */
	uint32_t rest_flushes;       /* how often more its flush is waited for */
	struct lp_account *accounts; /* LPI_MEMORY_PARTS; NULL: not yet */
};

/* Of one period. */
struct lpi_memory_misses {
	uint64_t nodes;
	uint64_t index;
	bool nodes_are_full;
	bool index_is_full;
	uint64_t data; /* of blocks that were put out not long ago */
	bool data_is_full;
};

/* The defaults of the options have been set. */
void lpi_memory_divide(struct lpi_memory *memory, const struct lp_store_options *options,
		       uint64_t pool_bytes);
/* One step: the caches are what they should be now. */
void lpi_memory_balance(struct lpi_memory *memory, const struct lpi_memory_misses *misses,
			uint64_t filter_bytes);

/* What the pools and fixed arrays of such a store take. */
uint64_t lpi_memory_of_pools(const struct lp_store_options *options, uint64_t op_bytes);
/* Begins to account. -ENOMEM. */
int lpi_memory_init(struct lpi_block *block) LP_MUST_CHECK;
void lpi_memory_fini(struct lpi_block *block);
/* A second is over. */
void lpi_memory_look(struct lpi_block *block);
/* lp_store_rest(): what caches hold goes, the most used of it last; their limits stay as they are,
 * so all comes back as it is used again. */
bool lpi_memory_rest(struct lpi_block *block);
/* The fields about memory. */
void lpi_memory_read_stats(struct lpi_block *block, struct lp_store_stats *stats);

#endif
