/* SPDX-License-Identifier: Apache-2.0 */
/* Internals of the block store: its struct, point reads, data I/O, and which file does what.
 *
 * Threads: the store's.
 * Blocking: only opening and closing, and calls that say so.
 * Memory: the pools of operations and ios, sized at open.
 * Errors: as said per call.
 *
 *   block_store.c                       opening, closing, slots, dispatch
 *   block/reopen.c                      after a failure: read-only from the device (rule L7)
 *   block/view.c                        coming to rest, so that its state can be looked at
 *   block/under_way.c                   operations under way, for reports
 *   block/core/point_read.c             point reads of the index; nodes and leaves into memory
 *   block/core/data_io.c                reads and writes of extents on the data device
 *   block/core/ino_numbers.c            numbers of inodes, and which no record can have
 *   block/core/memory_budget.c          who has how much memory
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
#ifndef LP_STORE_BLOCK_CORE_BLOCK_IMPL_H
#define LP_STORE_BLOCK_CORE_BLOCK_IMPL_H

#include "base/memory/pool.h"
#include "base/struct/sm.h"
#include "store/block/core/claims.h"
#include "store/block/core/memory_budget.h"
#include "store/block/core/write_policy.h"
#include "store/device/bdev.h"
#include "store/index/async.h"
#include "store/nodes/node.h"
#include "store/record/csum.h"
#include "store/shard/shard.h"
#include "store/store_impl.h"

struct lpi_block;

/* --- Point reads of the index (block/core/point_read.c)
 * ------------------------------------------------- */

/* A value, and who holds its memory: the overlay, RocksDB, or a warmer. Not to be moved. */
struct lpi_point {
	struct lp_kv_bytes bytes; /* data NULL: there is no record */
	struct lp_kv_value pinned;
	bool is_pinned;
	uint64_t group; /* that has decided it, also that there is no record, and may not be durable
			   yet; 0: none */
};

/* Fetches one key that the index does not have in its cache, for an operation that tries again
 * afterwards. */
struct lpi_warmer {
	struct lpi_block *block;
	struct lp_kv_get_op get;
	void (*ready)(struct lpi_warmer *warmer);
	struct lp_key key;
	struct lp_key end;     /* len 0; or what lies up to here is wanted as well */
	uint64_t inserted_seq; /* of the index, when it was asked */
	bool is_wanted;        /* a key was not in the cache */
	bool is_running;
	bool has_result; /* get.result, and get.value if that is 0 */
};

/* 0, also when there is no such record. -EAGAIN: lpi_warmer_start(), then all over again. owned:
 * the record of a node or leaf, which is never in the overlay. claimed: nobody else may change it
 * while the warmer runs. */
int lpi_point_get(struct lpi_warmer *warmer, const struct lp_key *key, bool owned, bool claimed,
		  struct lpi_point *ret_point) LP_MUST_CHECK;
void lpi_point_end(struct lpi_point *point);

void lpi_warmer_init(struct lpi_warmer *warmer, struct lpi_block *block,
		     void (*ready)(struct lpi_warmer *warmer));
/* After -EAGAIN; ready() is called later. */
void lpi_warmer_start(struct lpi_warmer *warmer);
/* Gives back what it holds; not while it runs. */
void lpi_warmer_fini(struct lpi_warmer *warmer);

/* The node, from memory or the index; not pinned. 0, -EAGAIN as above, or an error. claimed: as
 * above. */
int lpi_node_get(struct lpi_warmer *warmer, enum lpi_node_kind kind, uint64_t id, bool claimed,
		 struct lpi_node **ret_node) LP_MUST_CHECK;
/* An inode that is there for readers: -ENOENT. */
int lpi_inode_get(struct lpi_warmer *warmer, struct lp_ino ino, bool claimed,
		  struct lpi_inode **ret_inode) LP_MUST_CHECK;
/* The leaves that the map said are missing (its call returned -EAGAIN). 0:
 * call the map again. */
int lpi_leaves_get(struct lpi_warmer *warmer, struct lpi_inode *inode, bool claimed) LP_MUST_CHECK;
/* Of these the root names none, and there may be any number: a scan finds them. */
static inline bool lpi_leaves_are_unnamed(const struct lpi_inode *inode)
{
	struct lp_extmap_leaves missing = lp_extmap_missing(&inode->map);
	return missing.first < missing.last;
}
/* What a scan of these leaves' keys has found, into the map. */
int lpi_leaves_load(struct lpi_inode *inode, const struct lp_kv_scan_op *found,
		    struct lp_extmap_leaves leaves) LP_MUST_CHECK;

/* --- Extents on the device (block/core/data_io.c)
 * ------------------------------------------------------- */

#define LPI_IO_IOVS 64u
/* Of free space, for what cuts files that share theirs: twice a punch, which has two ends. */
#define LPI_CUT_BLOCKS LP_SHARD_CUT_BLOCKS
#define LPI_IOS        2048u /* of all operations */

struct lpi_block_job;

/* One read or write of a run of blocks, pinned meanwhile (rule S3). */
struct lpi_io {
	struct lp_bdev_op op; /* of the first of those that are written together */
	struct lp_space_pin pin;
	struct lpi_block_job *job;
	struct lp_extent extent;
	struct lp_buf *bufs[LPI_IO_IOVS]; /* references held */
	struct iovec iov[LPI_IO_IOVS];
	uint32_t iov_cnt;         /* its own; behind them, those of the ones it takes along */
	struct lp_list_node node; /* of the job */
	/* Written together: the next one, and of the first the last and how many. */
	struct lpi_io *next_along;
	struct lpi_io *last_along;
	uint32_t along_cnt;
	uint32_t along_depth; /* small writes that ran when it was submitted */
	struct lp_list_node gather_node;
};

LP_LIST_DEFINE(lpi_io_list, struct lpi_io, node);
/* NOLINTNEXTLINE(clang-analyzer-unix.Malloc) */
LP_LIST_DEFINE(lpi_gather_list, struct lpi_io, gather_node);

/* Small writes of this turn, which become few large ones when the next one begins. */
struct lpi_gather {
	struct lp_source source;
	struct lpi_gather_list ios; /* the first of each run */
	uint64_t running;           /* small writes that have not ended, these included */
};

/* Several of them, and who is told when all have ended. */
struct lpi_block_job {
	struct lpi_block *block;
	struct lpi_io_list ios; /* not submitted yet, then ended: see each user */
	uint32_t running;
	int result; /* 0, or the first error */
	void (*ended)(struct lpi_block_job *job);
};

/* --- After a failure (block/reopen.c) ----------------------------------------------------------
 */

enum lpi_reopen_phase {
	LPI_REOPEN_NONE,    /* it has not failed, or all has been done about it */
	LPI_REOPEN_DRAIN,   /* until nothing is under way */
	LPI_REOPEN_INDEX,   /* a helper closes the index */
	LPI_REOPEN_SETTLE,  /* until the index's last news have come */
	LPI_REOPEN_OPENING, /* a helper opens the shard read-only; there is none */
};

struct lpi_reopen {
	enum lpi_reopen_phase phase;
	bool has_failed;
	struct lp_store_health health; /* but for DEGRADED, which is asked for */
	struct lp_shard_events shard_events;
	struct lp_task task;
	struct lp_timer timer;
	struct lp_work work;
	int result;             /* of the opening */
	struct lp_shard *shard; /* that was opened */
	uint64_t seq_end;
};

/* --- The store -------------------------------------------------------------------------------- */

struct lp_pause;
struct lp_view;
struct lpi_txn;
struct lpi_read;
struct lpi_trims;
struct lpi_cached;

#define LPI_SCRATCH_BLOCKS (LP_STORE_RANGE_MAX / LP_BLOCK_BYTES + 2)

#define LPI_FRESH_INOS 4096u /* more than transactions at work, which take numbers one by one */

/* How long operations stayed in one state. */
struct lpi_state_times {
	uint64_t cnt;
	uint64_t ns;
};

LP_LIST_DEFINE(lpi_op_list, struct lp_store_op, node);
LP_LIST_DEFINE(lpi_waiter_list, struct lp_commit_waiter, node);

LP_LIST_DEFINE(lpi_soon_list, struct lp_task, node);

/* A transaction or a read that has begun, for whoever asks what is under way. */
struct lpi_begun {
	struct lp_list_node node;
	const struct lp_sm *sm;
	const struct lp_store_op *op;
	uint64_t began_ns;
};

LP_LIST_DEFINE(lpi_begun_list, struct lpi_begun, node);

struct lpi_block {
	struct lp_store base;
	struct lp_store_options options;
	/* This and what belongs to it is NULL while it is being opened again, or could not be. */
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
	struct lpi_begun_list begun; /* of both, the oldest first */
	struct lp_pool *queries;
	struct lp_pool *ios;
	struct lpi_gather gather;
	struct lpi_op_list
		waiting_txns; /* for a slot of the pool, and what came behind, in order */
	struct lpi_op_list waiting_reads;
	struct lpi_op_list waiting_queries;
	/* For buffers, or for ios: tried again when some came back, or soon. */
	struct lpi_waiter_list memory_waiters;
	struct lp_timer memory_timer;
	struct lp_buf *zeros; /* 64 KiB of them */
	/* Reads and questions that wait until the store was opened again. */
	struct lpi_op_list held;
	struct lpi_reopen reopen;
	struct lp_pause *pause; /* NULL: none; as the next one */
	struct lp_view *view;   /* reads the index, which is not closed before it has ended */
	bool is_closing;
	uint64_t given_reads; /* completed, and not given back yet: of those that are running */
	uint64_t running;     /* transactions, reads, queries, trims at work */
	uint64_t ino_next;    /* the next counter to be given */
	/* Of the last LPI_FRESH_INOS counters given: a bit for each that no create has used, so
	 * that the index need not be asked for a record that it cannot have. */
	uint64_t ino_fresh[LPI_FRESH_INOS / 64];
	uint64_t ino_bound; /* below it everything may be in use: `S inodes` says so */
	struct lpi_trims *trims;
	struct lpi_cached *cached; /* NULL: no data is cached */
	enum lp_write_path write_path;
	bool plays_full; /* for tests: writes go where they would on a full store */
	struct lpi_policy policy;
	struct lpi_memory memory;
	uint32_t inline_max;
	/* What is to go on, and not from inside of what let it: claims that were granted. */
	struct lpi_soon_list soon;
	struct lp_task soon_task;
	bool is_soon;            /* it runs */
	struct lpi_op_list done; /* completed, to be told by done_task */
	struct lp_task done_task;
	struct lp_task admit_task;
	struct lp_sm_observer txn_observer;
	struct lp_sm_observer read_observer;
	struct lp_sm_observer query_observer;
	struct lpi_state_times txn_times[LP_SM_STATES_MAX];
	struct lpi_state_times read_times[LP_SM_STATES_MAX];
	struct lpi_state_times query_times[LP_SM_STATES_MAX];
	uint64_t rereads;     /* reads that were begun once more: a block was bad, or unreadable */
	uint64_t read_errors; /* reads that the device refused twice */
	/* What one turn works with: for whoever applies changes. */
	struct lp_extmap_segment *segments; /* LPI_SCRATCH_BLOCKS */
	struct lp_extmap_release *releases; /* LPI_SCRATCH_BLOCKS + 1 */
	uint32_t *crcs;                     /* LPI_SCRATCH_BLOCKS */
	uint64_t data_throughs;             /* of the direct path: the log's are the others */
	uint64_t data_through_bytes;
	struct lp_store_stats stats;
	struct lp_store_stats past; /* what was asked of devices before a failure */
};

static inline struct lpi_block *lpi_block_of(struct lp_store *store)
{
	return LP_CONTAINER_OF(store, struct lpi_block, base);
}

/* block/view.c: calls of store/view.h. */
int lpi_view_pause(struct lp_store *store, struct lp_pause *pause) LP_MUST_CHECK;
void lpi_view_resume(struct lp_store *store, struct lp_pause *pause);
int lpi_view_take(struct lp_store *store, struct lp_view **ret_view) LP_MUST_CHECK;
void lpi_view_end(struct lp_store *store, struct lp_view *view);
/* Who looks at a view, if there is one, is to come to an end. */
void lpi_view_is_over(struct lpi_block *block);

void lpi_reopen_init(struct lpi_block *block);
/* 0, or with what the operation ends at once. */
int lpi_reopen_admit(const struct lpi_block *block, const struct lp_store_op *op) LP_MUST_CHECK;
/* It is not to be begun now, and is kept until it can be. */
bool lpi_reopen_holds(struct lpi_block *block, struct lp_store_op *op);
/* The same for one that ended because of the failure, and has nothing any more. */
bool lpi_reopen_takes_back(struct lpi_block *block, struct lp_store_op *op, int result);
/* For closing: nothing more comes of it. */
void lpi_reopen_end(struct lpi_block *block);
void lpi_reopen_read_health(const struct lpi_block *block, struct lp_store_health *ret_health);
/* Opens the shard; then the block's pointers to its parts are set. */
void lpi_block_shard_options(struct lpi_block *block, struct lp_shard_options *ret_options);
void lpi_block_set_shard(struct lpi_block *block, struct lp_shard *shard);
/* What was asked of the devices by the shard there is goes into block->past. */
void lpi_block_keep_stats(struct lpi_block *block);
/* The number was given by this store since it was opened, and has not been used: no record of it
 * was ever written. (block/core/ino_numbers.c) */
bool lpi_ino_is_fresh(const struct lpi_block *block, struct lp_ino ino);
/* The next number; it is fresh. */
struct lp_ino lpi_ino_new(struct lpi_block *block);
/* A new inode uses the number, in the turn that applies it. */
void lpi_ino_use(struct lpi_block *block, struct lp_ino ino);
/* Into the group that collects: after a crash no number up to this one is given again. */
void lpi_ino_set_aside(struct lpi_block *block, struct lp_ino ino);
/* Reads below what the numbers in use are. */
int lpi_ino_open(struct lpi_block *block) LP_MUST_CHECK;

/* Runs the task in this turn or the next, after those that are queued so already. One that is
 * queued by another runs in the same turn: a file's operations go on one after the other, and all
 * those of a turn share a frame. */
void lpi_block_soon(struct lpi_block *block, struct lp_task *task);

/* Completes an operation: counts it; complete() is called a little later. */
void lpi_block_complete(struct lpi_block *block, struct lp_store_op *op, int result);
/* Told, with 0, when buffers or ios may be had again; later, never inside. */
/* Notes that an operation has begun, until its slot goes back (block/under_way.c). */
void lpi_begun_add(struct lpi_block *block, struct lpi_begun *begun, const struct lp_sm *sm,
		   const struct lp_store_op *op);
void lpi_begun_end(struct lpi_begun *begun);
void lpi_begun_show(struct lp_store *store, struct lp_under_way_list *list);

void lpi_block_wait_memory(struct lpi_block *block, struct lp_commit_waiter *waiter);
/* Something came back. */
void lpi_block_memory_freed(struct lpi_block *block);

/* The claims of an inode, an entry, a record. */
uint64_t lpi_claim_of_ino(struct lp_ino ino);
uint64_t lpi_claim_of_name(enum lp_key_space space, struct lp_ino ino, const struct lp_bytes *name);

/* Begins a job; more may be added until lpi_block_job_run(). */
void lpi_block_job_init(struct lpi_block_job *job, struct lpi_block *block,
			void (*ended)(struct lpi_block_job *job));
/* A read or write of an extent, to be filled with buffers; NULL when there is none left. */
struct lpi_io *lpi_block_job_add(struct lpi_block_job *job, enum lp_bdev_opcode opcode,
				 struct lp_extent extent) LP_MUST_CHECK;
/* The next part of its memory; takes a reference. False when the io has no place for more. */
bool lpi_io_add(struct lpi_io *io, struct lp_seg seg) LP_MUST_CHECK;
/* Submits all. ended() comes later; at least one io was added. Small writes wait until the turn is
 * over, for others that go on where they end. */
void lpi_block_job_run(struct lpi_block_job *job);
/* All ios go back: before they ran, or after they ended. */
void lpi_block_job_fini(struct lpi_block_job *job);
/* Before the first job that writes, and after the last one. */
void lpi_gather_start(struct lpi_block *block);
void lpi_gather_stop(struct lpi_block *block); /* also when it was not started */

/* Where each operation begins. Without a free slot of its pool it waits in its list, and begins
 * when a slot comes back. Reads and queries do not look at waiting_txns: who submits sees to it
 * that they do not pass a transaction that came before them. */
/* Hands an operation to its part, which takes a slot or lets it wait. */
void lpi_block_dispatch(struct lpi_block *block, struct lp_store_op *op);
/* A slot of the transactions' pool is free again: what waits may go on, soon. */
void lpi_block_slot_freed(struct lpi_block *block);
void lpi_txn_submit(struct lpi_block *block, struct lp_store_op *op);
void lpi_read_submit(struct lpi_block *block, struct lp_store_op *op);
void lpi_read_end(struct lpi_block *block, struct lp_store_op *op);
void lpi_query_submit(struct lpi_block *block, struct lp_store_op *op);
size_t lpi_txn_bytes(void);
size_t lpi_read_bytes(void);
size_t lpi_query_bytes(void);
extern const struct lp_sm_table lpi_read_table;
extern const struct lp_sm_table lpi_query_table;
/* As many ios as one read may need at once: block->ios has at least these. */
#define LPI_READ_IOS_MAX (LP_STORE_READ_MAX / LP_BLOCK_BYTES + 1)

#endif
