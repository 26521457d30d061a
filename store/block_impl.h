/* SPDX-License-Identifier: Apache-2.0 */
/* The block store: the store over a shard. What its files share.
 *
 *   block_store.c    opening, closing, which operation goes where
 *   block_point.c    point reads of the index; nodes and leaves brought into memory
 *   block_io.c       reads and writes of extents on the data device
 *   block_txn.c      the life of a transaction, from claim to durable
 *   block_prepare.c  what a transaction needs, brought into memory; its guards
 *   block_apply.c    its changes, in one go
 *   block_data.c     changes of data: what is read, merged, allocated, and what is put in its place
 *   block_memory.c   who has how much memory
 *   block_policy.c   which path a write takes when it is to be chosen
 *   block_shared.c   extents with several owners
 *   block_trim.c     large removals and truncations, cut up (rule S6)
 *   block_hold.c     the claim of an operation that only looks, and what it fetches
 *   block_read.c     reads of data: their life
 *   block_read_plan.c  where each block of a read comes from, and whether it is right
 *   block_query.c    the other questions: their life
 *   block_get.c      short answers: one inode, one name, one value
 *   block_list.c     lists
 *   block_seek.c     where data begins or ends
 *
 * One rule makes all of it simple: what may wait (reading the index or the device, room, space)
 * comes first and changes nothing that others can see; when nothing is missing any more, all
 * changes are made in one piece of one turn, and cannot fail.
 */
#ifndef LP_STORE_BLOCK_IMPL_H
#define LP_STORE_BLOCK_IMPL_H

#include "base/pool.h"
#include "base/sm.h"
#include "store/bdev.h"
#include "store/block_memory.h"
#include "store/block_policy.h"
#include "store/claims.h"
#include "store/csum.h"
#include "store/kv_async.h"
#include "store/node.h"
#include "store/shard.h"
#include "store/store_impl.h"

struct lpi_block;

/* --- Point reads of the index (block_point.c) ------------------------------------------------- */

/* A value, and who holds its memory: the overlay, RocksDB, or a warmer. Not to be moved. */
struct lpi_point {
	struct lp_kv_bytes bytes; /* data NULL: there is no record */
	struct lp_kv_value pinned;
	bool is_pinned;
	bool is_overlay; /* decided by what is not in the index yet, also that there is no record */
};

/* Fetches one key that the index does not have in its cache, for an operation that tries again
 * afterwards. */
struct lpi_warmer {
	struct lpi_block *block;
	struct lp_kv_get_op get;
	void (*ready)(struct lpi_warmer *warmer);
	struct lp_key key;
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
/* The leaves that the map said are missing (its call returned -EAGAIN), at most `max` of them. 0:
 * call the map again. */
int lpi_leaves_get(struct lpi_warmer *warmer, struct lpi_inode *inode, bool claimed) LP_MUST_CHECK;

/* --- Extents on the device (block_io.c) ------------------------------------------------------- */

#define LPI_IO_IOVS 64u
#define LPI_IOS     2048u /* of all operations */

struct lpi_job;

/* One read or write of a run of blocks, pinned meanwhile (rule S3). */
struct lpi_io {
	struct lp_bdev_op op;
	struct lp_space_pin pin;
	struct lpi_job *job;
	struct lp_extent extent;
	struct lp_buf *bufs[LPI_IO_IOVS]; /* references held */
	struct iovec iov[LPI_IO_IOVS];
	uint32_t iov_cnt;
	struct lp_list_node node; /* of the job */
};

LP_LIST_DEFINE(lpi_io_list, struct lpi_io, node);

/* Several of them, and who is told when all have ended. */
struct lpi_job {
	struct lpi_block *block;
	struct lpi_io_list ios; /* not submitted yet, then ended: see each user */
	uint32_t running;
	int result; /* 0, or the first error */
	void (*ended)(struct lpi_job *job);
};

/* --- The store -------------------------------------------------------------------------------- */

struct lpi_txn;
struct lpi_read;
struct lpi_trims;

#define LPI_SCRATCH_BLOCKS (LP_STORE_RANGE_MAX / LP_BLOCK_BYTES + 2)

/* How long operations stayed in one state. */
struct lpi_state_times {
	uint64_t cnt;
	uint64_t ns;
};

LP_LIST_DEFINE(lpi_op_list, struct lp_store_op, node);
LP_LIST_DEFINE(lpi_waiter_list, struct lp_commit_waiter, node);

struct lpi_block {
	struct lp_store base;
	struct lp_store_options options;
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
	struct lpi_op_list
		waiting_txns; /* for a slot of the pool, and what came behind, in order */
	struct lpi_op_list waiting_reads;
	struct lpi_op_list waiting_queries;
	/* For buffers, or for ios: tried again when some came back, or soon. */
	struct lpi_waiter_list memory_waiters;
	struct lp_timer memory_timer;
	struct lp_buf *zeros; /* 64 KiB of them */
	uint64_t running;     /* transactions, reads, queries, trims at work */
	uint64_t ino_next;    /* the next counter to be given */
	uint64_t ino_bound;   /* below it everything may be in use: `S inodes` says so */
	struct lpi_trims *trims;
	enum lp_write_path write_path;
	struct lpi_policy policy;
	struct lpi_memory memory;
	uint32_t inline_max;
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
};

static inline struct lpi_block *lpi_block_of(struct lp_store *store)
{
	return LP_CONTAINER_OF(store, struct lpi_block, base);
}

/* Completes an operation: counts it; complete() is called a little later. */
void lpi_block_complete(struct lpi_block *block, struct lp_store_op *op, int result);
/* Told, with 0, when buffers or ios may be had again; later, never inside. */
void lpi_block_wait_memory(struct lpi_block *block, struct lp_commit_waiter *waiter);
/* Something came back. */
void lpi_block_memory_freed(struct lpi_block *block);

/* The claims of an inode, an entry, a record. */
uint64_t lpi_claim_of_ino(struct lp_ino ino);
uint64_t lpi_claim_of_name(enum lp_key_space space, struct lp_ino ino, const struct lp_bytes *name);

/* Begins a job; more may be added until lpi_block_job_run(). */
void lpi_job_init(struct lpi_job *job, struct lpi_block *block, void (*ended)(struct lpi_job *job));
/* A read or write of an extent, to be filled with buffers; NULL when there is none left. */
struct lpi_io *lpi_job_add(struct lpi_job *job, enum lp_bdev_opcode opcode,
			   struct lp_extent extent) LP_MUST_CHECK;
/* The next part of its memory; takes a reference. False when the io has no place for more. */
bool lpi_io_add(struct lpi_io *io, struct lp_seg seg) LP_MUST_CHECK;
/* Submits all. ended() comes later; at least one io was added. */
void lpi_block_job_run(struct lpi_job *job);
/* All ios go back: before they ran, or after they ended. */
void lpi_job_fini(struct lpi_job *job);

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
