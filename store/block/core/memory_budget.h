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
 *   They must be in memory whatever their size. Any excess is taken from the caches.
 * - pools: the slots of operations, known to the byte.
 * - caches: all the rest: the index's blocks and the nodes, half and half at first. Two amounts are
 *   taken from them: memory that the allocator holds beside its used memory, and memory of the free
 *   space.
 *
 * Neither of these two caches gets less than LPI_MEMORY_FLOOR of the budget. So a budget that is
 * too small for its memtables and pools is exceeded, by no more than the sum of these parts.
 *
 * Once in a second with operations, one 64th of one cache goes to another, if that one is full and
 * its misses cost more. A missing node costs a look into the index, some microseconds. A missing
 * block of the index or of data costs a read of the device, LPI_MEMORY_READ_COST times that. A
 * cache that is not full misses for lack of use, not of memory. Of the misses for data only those
 * count that a larger cache would have answered: a reader of far more data than memory misses in
 * any case.
 *
 * The part for data, if there is one, stays between an LPI_MEMORY_FLOOR of its first size and half
 * of the whole budget. It moves by LPI_MEMORY_DATA_STEP at most, because its blocks are given back
 * one by one.
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
#define LPI_MEMORY_COST_MIN  256u /* misses of one second; fewer do no harm */
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
	LPI_MEMORY_SPACE,   /* the free space, and the state of each chunk */
	LPI_MEMORY_PENDING, /* waiting payloads; in buffers, not part of the budget */
	LPI_MEMORY_PARTS
};

struct lpi_memory {
	uint64_t budget_bytes;   /* without the first part for data */
	uint64_t data_bytes_min; /* 0, all three: no data is cached */
	uint64_t data_bytes_max;
	uint64_t memtable_bytes; /* one */
	uint64_t filter_bytes;   /* largest size before the caches shrink */
	uint64_t pool_bytes;
	uint64_t caches_bytes; /* both, while the filters keep within their part */
	uint64_t lost_bytes;   /* taken from both, lost in the allocator's holes:
				  lp_store_set_lost_bytes(), */
	uint64_t space_bytes;  /* and for the free space */
	/* Present sizes. */
	uint64_t index_cache_bytes;
	uint64_t nodes_bytes;
	uint64_t data_cache_bytes;
	/* State at the last look. */
	uint64_t next_ns;
	uint64_t node_misses;
	uint64_t index_misses;
	uint64_t data_misses;
	/* While idle. */
	uint64_t rested_bytes;       /* written to the index when its flush was last requested */
	uint32_t rest_flushes;       /* how many more calls wait for the flush */
	struct lp_account *accounts; /* LPI_MEMORY_PARTS; NULL: not yet */
};

/* Misses of one period. */
struct lpi_memory_misses {
	uint64_t nodes;
	uint64_t index;
	bool nodes_are_full;
	bool index_is_full;
	uint64_t data; /* of blocks that were evicted not long ago */
	bool data_is_full;
};

/* The defaults of the options must be set. */
void lpi_memory_divide(struct lpi_memory *memory, const struct lp_store_options *options,
		       uint64_t pool_bytes);
/* One step: moves the caches towards their proper sizes. */
void lpi_memory_balance(struct lpi_memory *memory, const struct lpi_memory_misses *misses,
			uint64_t filter_bytes);

/* Memory of the pools and fixed arrays of such a store. */
uint64_t lpi_memory_of_pools(const struct lp_store_options *options, uint64_t op_bytes);
/* Begins to account. -ENOMEM. */
int lpi_memory_init(struct lpi_block *block) LP_MUST_CHECK;
void lpi_memory_fini(struct lpi_block *block);
/* Called once a second. */
void lpi_memory_look(struct lpi_block *block);
/* lp_store_rest(): cached content is dropped, the most used last. The limits of the caches stay as
 * they are, so all content comes back as it is used again. */
bool lpi_memory_rest(struct lpi_block *block);
/* Sets the fields about memory. */
void lpi_memory_read_stats(struct lpi_block *block, struct lp_store_stats *stats);

#endif
