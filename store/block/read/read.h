/* SPDX-License-Identifier: Apache-2.0 */
/* Read of data, as the two files that carry it out see it.
 *
 * Threads: the store's.
 * Blocking: none.
 * Errors: the read's result.
 *
 * block/read/read.c has the order of the steps. block/read/plan.c chooses the source of each block
 * and verifies it.
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
	uint64_t device_block; /* 0: the bytes were in memory */
	uint32_t offset;
};

/* Must not be cleared as a whole: a short read touches only the beginnings of the arrays. */
struct lpi_read {
	struct lp_sm sm;
	struct lpi_begun begun;
	struct lp_store_op *op;
	int result;
	bool waits_durable;
	bool is_again;  /* a block was bad: the read must begin once more */
	bool is_second; /* the read has begun once more */
	bool is_cached; /* the read goes through the cache of data */
	bool is_seen;   /* the detection of streams has seen it */
	bool goes_on;   /* an earlier read had the beginning of the first block */
	uint32_t ahead_waits;
	uint32_t block_cnt;
	uint32_t planned; /* blocks that have a source */
	uint32_t seg_cnt;
	uint32_t segment_cnt;
	uint64_t bytes;
	uint64_t since;       /* lpi_cached_now() at the time of the plan */
	struct lp_bufs *into; /* of the op, if the data goes there */
	struct lpi_block_job job;
	struct lp_commit_waiter durable_waiter;
	struct lp_commit_waiter waiter; /* for memory, or blocks being read ahead */
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

/* Looks up the inode and the map of the range. *ret_inode is set when the inode was found, even if
 * readers do not see it. 0; -EAGAIN: the index must be read; errors. */
int lpi_read_look(struct lpi_read *read, struct lpi_inode **ret_inode) LP_MUST_CHECK;
/* True when some of it is being read ahead: read->waiter is told when it has come. */
bool lpi_read_awaits_ahead(struct lpi_read *read) LP_MUST_CHECK;
/* Chooses the source of each block. Blocks on the device are in the job, not yet submitted.
 * -ENOBUFS: no buffer, or no io, is left. -EUCLEAN. After an error the sources must be given back.
 */
int lpi_read_plan(struct lpi_read *read, const struct lpi_inode *inode) LP_MUST_CHECK;
/* All bytes are there: verifies blocks against their crcs, and makes the crcs of the pieces. -EIO,
 * -EBADMSG. */
int lpi_read_check(struct lpi_read *read) LP_MUST_CHECK;
/* Gives back all chosen sources. The device must not be reading. */
void lpi_read_give_back(struct lpi_read *read);

/* Begins a read; lpi_read_end() gives its data back. Without a free slot the read waits. The caller
 * ensures that it does not overtake an earlier transaction. */
void lpi_read_submit(struct lpi_block *block, struct lp_store_op *op);
void lpi_read_end(struct lpi_block *block, struct lp_store_op *op);
size_t lpi_read_bytes(void); /* of a slot */
extern const struct lp_sm_table lpi_read_table;

#endif
