/* SPDX-License-Identifier: Apache-2.0 */
/* Transaction of the block store, as the files that carry it out see it.
 *
 * Threads: the store's.
 * Blocking: only lpi_trims_open().
 * Memory: a struct lpi_txn is a slot of the pool of transactions.
 * Errors: the transaction's result. Each step of RESOLVE returns LPI_WAIT when lpi_txn_run() will
 *   be called again, 0 to go on, or an error.
 *
 *   CLAIM -> RESOLVE <-> INDEX, READ, SPACE, DATA_IO, ROOM, MEMORY, TRIM
 *                |
 *                +-> LOGGED -> DONE          (or FAILED from anywhere)
 *
 * RESOLVE checks all needs of the transaction, in order. It requests missing ones, and checks again
 * when they have come. The turn in which nothing is missing applies all changes.
 */
#ifndef LP_STORE_BLOCK_WRITE_TXN_H
#define LP_STORE_BLOCK_WRITE_TXN_H

#include "store/block/core/block.h"
#include "store/block/write/freeing.h"

#define LPI_WAIT         1
#define LPI_INO_NEED     (LP_COMMIT_RECORD_BYTES + 32)
#define LPI_NODES_MAX    256u /* pinned by one transaction */
#define LPI_EDIT_BLOCKS  (LP_STORE_WRITE_MAX / LP_BLOCK_BYTES + 2)
#define LPI_SOLOS_MAX    3u
#define LPI_COPIES_MAX   8u
#define LPI_GROUPS_MAX   32u /* of shared blocks, released by one change of data */
#define LPI_GROUPS_SMALL 8u  /* the same for a removal at once */
#define LPI_LEAF_NEED    ((uint32_t)(LP_EXTMAP_LEAF_BYTES_MAX + LP_COMMIT_RECORD_BYTES + 17))

enum lpi_txn_state {
	LPI_TXN_CLAIM,
	LPI_TXN_RESOLVE,
	LPI_TXN_INDEX,
	LPI_TXN_READ,
	LPI_TXN_SPACE,
	LPI_TXN_DATA_IO,
	LPI_TXN_ROOM,
	LPI_TXN_MEMORY,
	LPI_TXN_TRIM,
	LPI_TXN_LOGGED,
	LPI_TXN_DONE,
	LPI_TXN_FAILED,
	LPI_TXN_STATES,
};

extern const struct lp_sm_table lpi_txn_table;

/* Results of the checks of one change. */
struct lpi_slot {
	struct lpi_inode *inode;
	struct lpi_fragment *fragment;
	struct lpi_trim *trim; /* for a removal in steps */
	uint64_t insertion;    /* of an entry that exists */
	uint64_t target_nr;    /* the inode that it names */
	bool existed;          /* the entry, xattr, record */
	/* The lookup is done, and its result passed. The result is kept while the transaction waits
	 * for the next one, because a cache need not have room for all of them. */
	bool was_found;
};

/* An inode as it will be after the changes so far. */
struct lpi_touched {
	struct lpi_inode *inode;
	int64_t nlink;
	uint8_t type;
	bool will_exist;
	bool is_changed;
	bool is_newer; /* its version goes up */
};

/* One block with new content that the request does not have as a whole: the edge of a range, or
 * former inline content. */
struct lpi_solo {
	uint64_t block;                  /* of the file */
	struct lp_csum_piece piece;      /* the new part of it; len 0: none */
	const struct lpi_inode *content; /* whose inline data is the old content; or NULL */
	struct lp_buf *buf;              /* the old content, later the new one */
	uint64_t old_device;
	uint32_t old_crc;
	uint32_t crc; /* of the new content */
	uint64_t device;
	bool is_zero;       /* the old content is zeros, whatever the buffer contains */
	bool is_read;       /* the old content must be read from the device */
	bool is_in_place;   /* written over the old block */
	bool is_unwritten;  /* the block has space, but no content */
	bool is_in_range;   /* part of the written range, which determines its block */
	bool has_new_block; /* `device` was taken from the space */
};

enum lpi_edit_stage {
	LPI_EDIT_PLAN,
	LPI_EDIT_SOLOS,
	LPI_EDIT_READ,
	LPI_EDIT_MERGE,
	LPI_EDIT_COPY,
	LPI_EDIT_ALLOC,
	LPI_EDIT_WRITE,
	LPI_EDIT_WRITTEN,
	LPI_EDIT_RESERVE,
	LPI_EDIT_READY,
};

/* The change of data. */
struct lpi_edit {
	const struct lp_change *change; /* NULL: there is none */
	struct lpi_inode *inode;
	uint32_t change_idx;
	enum lpi_edit_stage stage;
	uint64_t offset; /* first byte of a write, appended or not */
	uint64_t length;
	struct lp_extmap_range range; /* of blocks that are replaced or punched; cnt 0: none */
	enum lp_write_path path;
	struct lpi_policy_write seen;
	bool is_in_place;  /* the range is overwritten in place */
	bool is_unwritten; /* the range has space, but no content */
	bool is_mixed; /* some blocks of the range stay in place (block/write/place_in_full_store.c)
			*/
	bool is_refused;   /* there was no space for the whole range */
	bool is_early;     /* data is written before the claim is held */
	bool is_last_step; /* of a preallocation */
	uint32_t solo_cnt;
	uint32_t copy_cnt;
	uint32_t copy_bytes; /* of each */
	uint32_t extent_cnt;
	uint64_t extent_blocks;
	uint64_t own_cnt;      /* of a mixed range: blocks that are overwritten in place, */
	uint64_t new_cnt;      /* and blocks that need new space */
	uint32_t need_changes; /* extents released, at most */
	uint32_t need_leaves;
	struct lpi_trim *trim;
	/* Gets the shared blocks of the range if they have too many count groups for one commit; or
	 * NULL. */
	struct lpi_inode *grave;
	struct lpi_trim *grave_trim;
	struct lpi_inode *src; /* for a clone */
	const uint32_t *piece_crcs;
	const uint32_t *crcs; /* of the range's blocks */
	struct lpi_block_job job;
	struct lpi_solo solos[LPI_SOLOS_MAX];
	struct lp_buf *copies[LPI_COPIES_MAX];
	struct lp_extent extents[LPI_EDIT_BLOCKS];
	uint32_t own_crcs[LPI_EDIT_BLOCKS];
};

struct lpi_txn {
	struct lp_sm sm;
	struct lpi_begun begun;
	struct lpi_block *block;
	struct lp_store_op *op;
	struct lp_commit_waiter waiter;
	struct lp_claim_set claims;
	struct lp_task task;
	bool is_claimed;
	bool is_resolved;  /* nodes, guards, entries */
	bool is_admitted;  /* the index has room for it */
	bool must_wait_io; /* the transaction failed, but data is still being written */
	int result;
	struct lpi_hope hope;      /* for blocks that will soon be free */
	uint64_t index_counted_ns; /* time of the last counted check */
	uint32_t index_tries;
	uint32_t node_cnt;
	uint32_t touched_cnt;
	struct lp_commit_need need; /* without the edit's */
	struct lpi_touched touched[LP_STORE_TOUCHED_MAX];
	struct lpi_slot slots[LP_STORE_CHANGES_MAX];
	struct lpi_node *nodes[LPI_NODES_MAX];
	struct lpi_warmer warmer;
	struct lpi_edit edit;
};

static inline void lpi_txn_move(struct lpi_txn *txn, enum lpi_txn_state state)
{
	if (lp_sm_state(&txn->sm) != state)
		lp_sm_move(&txn->sm, state, lp_reactor_now_ns(txn->block->options.reactor));
}

/* Goes on from the present state; its claims must be held. */
/* Begins a transaction. Without a free slot it waits, and so do all later operations. */
void lpi_txn_submit(struct lpi_block *block, struct lp_store_op *op);
size_t lpi_txn_bytes(void); /* of a slot */
void lpi_txn_run(struct lpi_txn *txn);
/* The same, in a later task. */
void lpi_txn_queue(struct lpi_txn *txn);
/* The edit's data was written, or could not be. */
void lpi_txn_io_ended(struct lpi_txn *txn);
/* Waits, in that state, for the waiter or the warmer; returns LPI_WAIT. */
int lpi_txn_wait_index(struct lpi_txn *txn);
int lpi_txn_wait_memory(struct lpi_txn *txn);
int lpi_txn_wait_space(struct lpi_txn *txn);
/* 0, LPI_WAIT, -ENOSPC: whether the index has room for the transaction's changes. */
int lpi_txn_admit(struct lpi_txn *txn, enum lp_shard_use use);
/* No space could be leased: true when some will be freed, and another try is worthwhile. */
bool lpi_txn_may_hope_for_space(struct lpi_txn *txn);
/* The same for room in the index; is_busy: compactions are due. */
bool lpi_txn_hope_for_index(struct lpi_txn *txn, bool is_busy);
/* Pins a node once; -EFBIG when there are too many. */
int lpi_txn_pin(struct lpi_txn *txn, struct lpi_node *node) LP_MUST_CHECK;
struct lpi_touched *lpi_txn_touched(struct lpi_txn *txn, struct lp_ino ino);

/* block/write/prepare.c: nodes, names, guards; then the fragments' guards, which are checked last.
 */
int lpi_txn_resolve(struct lpi_txn *txn) LP_MUST_CHECK;
int lpi_txn_check_fragments(struct lpi_txn *txn) LP_MUST_CHECK;

/* block/write/stage_data.c */
/* Begins the parts that need no claim. */
void lpi_edit_begin(struct lpi_txn *txn);
/* Whether the change is possible with the sizes of the files; src of a clone. -EINVAL, -EFBIG. */
int lpi_edit_check(const struct lp_change *change, const struct lpi_inode *inode,
		   const struct lpi_inode *src) LP_MUST_CHECK;
int lpi_edit_prepare(struct lpi_txn *txn) LP_MUST_CHECK;
/* Adds the edit's needs of the group; `need` must have all other needs of the transaction. */
void lpi_edit_need(const struct lpi_txn *txn, struct lp_commit_need *need);
void lpi_edit_apply(struct lpi_txn *txn);
/* Gives back unused resources. No I/O may be under way. */
void lpi_edit_fini(struct lpi_txn *txn, bool is_applied);
bool lpi_edit_is_writing(const struct lpi_edit *edit);

/* block/write/apply.c */
void lpi_txn_apply(struct lpi_txn *txn);

/* --- Shared extents (block/write/shared_extents.c)
 * ---------------------------------------------------------- */

/* Costs of releasing a range of the inode's map: counts of shared blocks in memory and pinned by
 * `pin`, extents released. 0, -EAGAIN (index: start the warmer), -EFBIG, errors. */
struct lpi_release_plan {
	struct lpi_warmer *warmer;
	int (*pin)(void *arg, struct lpi_node *node);
	void *arg;
	uint32_t changes;   /* result: extents that are freed, at most */
	uint32_t refs_cnt;  /* result: groups of counts touched */
	bool counts_only;   /* no node is pinned */
	bool spares_shared; /* shared blocks move elsewhere */
};
int lpi_release_prepare(struct lpi_release_plan *plan, struct lpi_inode *inode,
			struct lp_extmap_range range, bool claimed) LP_MUST_CHECK;
/* The number of count groups for that, at most. 0, -EAGAIN, errors. */
int lpi_release_count(struct lpi_release_plan *plan, struct lpi_inode *inode,
		      struct lp_extmap_range range, bool claimed) LP_MUST_CHECK;
/* Puts into the collecting group: released extents are freed, or have one owner less. */
void lpi_release_apply(struct lpi_block *block, const struct lp_extmap_released *released);
/* Brings the counts of blocks that a clone will share into memory and pins them. 0, -EAGAIN,
 * -EMLINK, -EFBIG, errors. */
int lpi_share_prepare(struct lpi_txn *txn, const struct lp_extmap_segment *segment) LP_MUST_CHECK;
/* One more owner of an extent, whose counts are pinned. */
void lpi_share_apply(struct lpi_block *block, struct lp_extent extent, bool already_shared);

/* --- Cut-up work (block/write/trim.c)
 * --------------------------------------------------------------- */

#define LPI_TRIM_NODES_MAX 64u
#define LPI_TRIM_STEPS_MAX 128u /* steps whose deletions are not in the index yet */
#define LPI_TRIM_LEAVES    8u   /* of one commit, at most */

/* Leaves that a step has emptied, and the group that deletes their records. */
struct lpi_trim_emptied {
	struct lp_extmap_leaves leaves;
	uint64_t group;
};

struct lpi_trim {
	struct lpi_block *block;
	struct lpi_inode *inode; /* pinned */
	uint64_t nr;             /* number in the order in which they began */
	uint64_t place;          /* place in the queue of waiting trims */
	uint64_t cut_block;      /* the first block to be freed */
	uint64_t from_block;     /* all blocks up to here are freed */
	int error; /* damage: it cannot go on, and the blocks behind the cut must stay hidden */
	uint32_t refusals; /* refused reads, since its last progress */
	uint32_t steps;    /* since it was last resumed */
	bool is_removal;
	bool is_running;
	bool is_looking; /* a scan for leaves that the root does not name */
	bool has_begun;  /* a scan of leaves or keys has begun, */
	bool has_scanned;
	bool must_wait_inserted; /* before the next one */
	uint8_t phase;
	uint32_t node_cnt;
	struct lpi_waiter_list waiters;
	struct lp_commit_waiter waiter;
	struct lp_task task;
	struct lp_timer timer;    /* armed after a refusal, until the retry */
	struct lp_list_node node; /* of block->trims */
	struct lp_kv_scan_op scan;
	struct lp_key_range scan_range;
	struct lp_extmap_leaves leaves; /* leaves that the scan looks for */
	uint8_t *scan_buf;
	struct lpi_warmer warmer;
	struct lpi_node *nodes[LPI_TRIM_NODES_MAX];
	/* A ring: emptied_cnt of them from emptied_first on. */
	struct lpi_trim_emptied emptied[LPI_TRIM_STEPS_MAX];
	uint32_t emptied_first;
	uint32_t emptied_cnt;
};

int lpi_trim_new(struct lpi_block *block, struct lpi_trim **ret_trim) LP_MUST_CHECK;
void lpi_trim_free(struct lpi_trim *trim);
/* Called in a turn that applies: marks the inode's record, and puts its U record into the same
 * group. From now on the store owns the trim. */
void lpi_trim_begin(struct lpi_trim *trim, struct lpi_inode *inode, uint64_t from_block,
		    bool is_removal);
/* Called in such a turn: a trim that damage has stopped becomes that of a removal, as above. */
void lpi_trim_remove(struct lpi_trim *trim);
/* For the opening: as lpi_trim_begin(), but the U record is there already. */
void lpi_trim_resume(struct lpi_trim *trim, struct lpi_inode *inode, uint64_t from_block,
		     bool is_removal);
/* Bytes that lpi_trim_begin() puts. */
#define LPI_TRIM_NEED ((uint32_t)(LP_COMMIT_RECORD_BYTES + 9 + LP_UNFINISHED_VALUE_SIZE))
/* Told when the inode is not being trimmed any more. */
void lpi_trim_wait(struct lpi_trim *trim, struct lp_commit_waiter *waiter);
int lpi_trims_new(struct lpi_block *block) LP_MUST_CHECK;
void lpi_trims_free(struct lpi_block *block);
/* Resumes the trims that were not finished when the store was last open. May block. */
int lpi_trims_open(struct lpi_block *block) LP_MUST_CHECK;
/* Ends the trims early; they are idle some turns later. */
void lpi_trims_stop(struct lpi_block *block);
bool lpi_trims_are_idle(const struct lpi_block *block);
/* True: the trims will free space, because some did not meet damage. */
bool lpi_trims_are_freeing(const struct lpi_block *block);
/* The same for trims that had begun when nr was the last number. */
uint64_t lpi_trims_last_nr(const struct lpi_block *block);
bool lpi_trims_are_freeing_upto(const struct lpi_block *block, uint64_t nr);
/* So many trims wait that another removal must wait as well. */
bool lpi_trims_are_many(const struct lpi_block *block);

#endif
