/* SPDX-License-Identifier: Apache-2.0 */
/* Read of data, as the two files that carry it out see it.
 *
 * Threads: the store's.
 * Blocking: none.
 * Errors: the read's result.
 *
 * block/read/read.c has the order of it all. block/read/plan.c says where each block comes from
 * and whether it is what it should be.
 */
#ifndef LP_STORE_BLOCK_READ_READ_H
#define LP_STORE_BLOCK_READ_READ_H

#include "store/block/core/read_claim.h"

#define LPI_READ_BLOCKS_MAX ((uint32_t)(LP_STORE_READ_MAX / LP_BLOCK_BYTES + 1))

enum lpi_read_state {
	LPI_READ_CLAIM,
	LPI_READ_RESOLVE,
	LPI_READ_INDEX,
	LPI_READ_MEMORY,
	LPI_READ_AHEAD,
	LPI_READ_DEVICE,
	LPI_READ_DURABLE,
	LPI_READ_DONE,
	LPI_READ_FAILED,
	LPI_READ_STATES,
};

/* Where a block's bytes are, or will be. */
struct lpi_source {
	struct lp_buf *buf;
	uint64_t device_block; /* 0: it was in memory */
	uint32_t offset;
};

/* Not to be cleared as a whole: of the arrays a short read touches the beginnings. */
struct lpi_read {
	struct lp_sm sm;
	struct lpi_begun begun;
	struct lp_store_op *op;
	int result;
	bool waits_durable;
	bool is_again;  /* a block was bad: to begin once more */
	bool is_second; /* this has begun once more */
	bool is_cached; /* it goes through the cache of data */
	bool is_seen;   /* by who looks for sequential readers */
	bool goes_on;   /* of the first block somebody has had the beginning */
	uint32_t ahead_waits;
	uint32_t block_cnt;
	uint32_t planned; /* blocks that have a source */
	uint32_t seg_cnt;
	uint32_t segment_cnt;
	uint64_t bytes;
	uint64_t since;       /* lpi_cached_now() of the plan */
	struct lp_bufs *into; /* of the op, if this is to go there */
	struct lpi_block_job job;
	struct lp_commit_waiter durable_waiter;
	struct lp_commit_waiter waiter; /* for memory, or what is read ahead */
	struct lpi_hold hold;
	struct lp_seg segs[LPI_READ_BLOCKS_MAX];
	uint32_t crcs[LPI_READ_BLOCKS_MAX]; /* of blocks, then of pieces */
	struct lpi_source sources[LPI_READ_BLOCKS_MAX];
	struct lp_extmap_segment segments[LPI_READ_BLOCKS_MAX];
};

static inline struct lpi_block *lpi_read_block(const struct lpi_read *read)
{
	return read->hold.block;
}

/* What is to be read, and what the map says of it. *ret_inode is set when it was found, also when
 * there is none for readers. 0; -EAGAIN: the index is to be asked; errors. */
int lpi_read_look(struct lpi_read *read, struct lpi_inode **ret_inode) LP_MUST_CHECK;
/* True when some of it is being read ahead: read->waiter is told when it has come. */
bool lpi_read_awaits_ahead(struct lpi_read *read) LP_MUST_CHECK;
/* Chooses the source of each block; what the device has is in the job, not yet submitted. -ENOBUFS:
 * no buffer, or no io, is left. -EUCLEAN. What was chosen has to be given back then. */
int lpi_read_plan(struct lpi_read *read, const struct lpi_inode *inode) LP_MUST_CHECK;
/* All bytes are there: holds blocks against their crcs, and makes those of the pieces. -EIO,
 * -EBADMSG. */
int lpi_read_check(struct lpi_read *read) LP_MUST_CHECK;
/* Whatever was chosen is chosen no more. Nothing is being read. */
void lpi_read_give_back(struct lpi_read *read);

/* Where a read begins, and where its caller gives its data back. Without a free slot it waits; the
 * caller sees to it that it does not pass a transaction that came before it. */
void lpi_read_submit(struct lpi_block *block, struct lp_store_op *op);
void lpi_read_end(struct lpi_block *block, struct lp_store_op *op);
size_t lpi_read_bytes(void); /* of a slot */
extern const struct lp_sm_table lpi_read_table;

#endif
