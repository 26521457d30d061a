/* SPDX-License-Identifier: Apache-2.0 */
/* The open block store: its struct, and which file does what.
 *
 * Threads: the store's.
 * Blocking: only opening and closing, and calls that say so.
 * Memory: the pools of operations and ios, sized at open.
 * Errors: as said per call.
 *
 *   block_store.c                       opening, closing, dispatch
 *   block/reopen.c                      after a failure: read-only from the device (rule L7)
 *   block/view.c                        coming to rest, so that its state can be looked at
 *   block/under_way.c                   operations under way, for reports
 *   block/core/slots.c                  waiting for slots and memory; completion
 *   block/core/point_read.c             point reads of the index; nodes and leaves into memory
 *   block/core/data_io.c                reads and writes of extents on the data device
 *   block/core/ino_numbers.c            numbers of inodes, and which no record can have
 *   block/core/memory_budget.c          how much memory each part has
 *   block/core/data_cache.c             the cache of data, and reading ahead into it
 *   block/core/write_policy.c           which path a write takes when none was chosen
 *   block/core/read_claim.c             the claim of an operation that only looks
 *   block/write/txn.c                   the life of a transaction, from claim to durable
 *   block/write/prepare.c               its needs, brought into memory; its guards
 *   block/write/apply.c                 its changes, in one go
 *   block/write/plan.c                  changes of data, planned: blocks, edges, path
 *   block/write/stage_data.c            what they wait for: read, merged, allocated, written
 *   block/write/edit.c                  and done
 *   block/write/place_in_full_store.c   where the blocks of a write go on a full store
 *   block/write/freeing.c               waiting for blocks that will soon be free
 *   block/write/shared_extents.c        extents with several owners
 *   block/write/trim.c                  large removals and truncations, cut up (rule S6)
 *   block/read/read.c                   reads of data: their life
 *   block/read/plan.c                   where each block of a read comes from
 *   block/read/query.c                  the other questions: their life
 *   block/read/get.c                    short answers: one inode, one name, one value
 *   block/read/list.c                   lists
 *   block/read/seek.c                   where data begins or ends
 *
 * One rule makes all of it simple. Steps that may wait (reading the index or the device, room,
 * space) come first and change nothing that others can see. When nothing is missing any more, all
 * changes are made in one piece of one turn, and cannot fail.
 */
#ifndef LP_STORE_BLOCK_CORE_BLOCK_H
#define LP_STORE_BLOCK_CORE_BLOCK_H

#include "base/memory/pool.h"
#include "base/struct/sm.h"
#include "store/block/core/claims.h"
#include "store/block/core/data_io.h"
#include "store/block/core/ino_numbers.h"
#include "store/block/core/memory_budget.h"
#include "store/block/core/point_read.h"
#include "store/block/core/reopen_state.h"
#include "store/block/core/slots.h"
#include "store/block/core/write_policy.h"
#include "store/record/csum.h"
#include "store/shard/shard.h"
#include "store/store_kinds.h"

struct lp_pause;
struct lp_view;
struct lpi_txn;
struct lpi_read;
struct lpi_trims;
struct lpi_cached;

#define LPI_SCRATCH_BLOCKS (LP_STORE_RANGE_MAX / LP_BLOCK_BYTES + 2)

/* How long operations stayed in one state. */
struct lpi_state_times {
	uint64_t cnt;
	uint64_t ns;
};

/* How long operations of one kind stayed in each of their states. */
struct lpi_kind_times {
	struct lp_sm_observer observer;
	struct lpi_state_times states[LP_SM_STATES_MAX];
};

/* Working memory for the changes of one turn. */
struct lpi_scratch {
	struct lp_extmap_segment *segments; /* LPI_SCRATCH_BLOCKS */
	struct lp_extmap_release *releases; /* LPI_SCRATCH_BLOCKS + 1 */
	uint32_t *crcs;                     /* LPI_SCRATCH_BLOCKS */
};

struct lpi_block {
	struct lp_store base;
	struct lp_store_options options;
	/* This and its parts are NULL while the shard is being opened again, or could not be. */
	struct lp_shard *shard;
	struct lp_commit *commit; /* NULL: read-only */
	struct lp_kv *kv;
	struct lp_overlay *overlay;
	struct lp_space *space;
	struct lp_pending *pending;
	struct lp_bdev_chan *data;
	struct lp_claims *claims;
	struct lpi_nodes nodes;
	struct lp_pool *txns;
	struct lp_pool *reads;
	struct lp_pool *queries;
	struct lp_pool *ios;
	struct lpi_gather gather;
	const struct lpi_block_calls *calls;
	struct lpi_slots slots;
	struct lp_buf *zeros; /* 64 KiB of them */
	/* Reads and queries that wait until the store is open again. */
	struct lpi_op_list held;
	struct lpi_reopen reopen;
	struct lp_pause *pause; /* NULL: none; as the next one */
	struct lp_view *view;   /* reads the index, which stays open until the view has ended */
	bool is_closing;
	uint64_t given_reads; /* of the running reads: completed, and not given back yet */
	uint64_t running;     /* transactions, reads, queries, trims at work */
	struct lpi_ino_numbers inos;
	struct lpi_trims *trims;
	struct lpi_cached *cached; /* NULL: no data is cached */
	enum lp_write_path write_path;
	bool plays_full; /* for tests: writes are placed as on a full store */
	struct lpi_policy policy;
	struct lpi_memory memory;
	uint32_t inline_max;
	struct lpi_kind_times txn_times;
	struct lpi_kind_times read_times;
	struct lpi_kind_times query_times;
	uint64_t rereads;     /* reads that were repeated because a block was bad or unreadable */
	uint64_t read_errors; /* reads that the device refused twice */
	struct lpi_scratch scratch;
	uint64_t data_throughs; /* write-throughs of the direct path; the others are the log's */
	uint64_t data_through_bytes;
	struct lp_store_stats stats;
	struct lp_store_stats past; /* device requests before a failure */
};

static inline struct lpi_block *lpi_block_of(struct lp_store *store)
{
	return LP_CONTAINER_OF(store, struct lpi_block, base);
}

#endif
