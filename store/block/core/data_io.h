/* SPDX-License-Identifier: Apache-2.0 */
/* Reads and writes of extents on the data device, and jobs that are several of them.
 *
 * Small writes wait until the turn is over. Writes that are next to each other become one. */
#ifndef LP_STORE_BLOCK_CORE_DATA_IO_H
#define LP_STORE_BLOCK_CORE_DATA_IO_H

#include "base/memory/pool.h"
#include "store/device/bdev.h"
#include "store/shard/shard.h"
#include "store/space/space.h"
#include "store/store.h"

#define LPI_IO_IOVS 64u
/* Free blocks for operations that cut files with shared blocks: twice a punch, which has two ends.
 */
#define LPI_CUT_BLOCKS LP_SHARD_CUT_BLOCKS
#define LPI_IOS        2048u /* for all operations */
/* As many ios as one read may need at once: block->ios has at least these. */
#define LPI_READ_IOS_MAX (LP_STORE_READ_MAX / LP_BLOCK_BYTES + 1)

struct lpi_block;
struct lpi_block_job;

/* One read or write of a run of blocks, which stays pinned meanwhile (rule S3). */
struct lpi_io {
	struct lp_bdev_op op; /* in the first io of those that are written together */
	struct lp_space_pin pin;
	struct lpi_block_job *job;
	struct lp_extent extent;
	struct lp_buf *bufs[LPI_IO_IOVS]; /* references held */
	struct iovec iov[LPI_IO_IOVS];
	uint32_t iov_cnt;         /* its own; after them, those of the ios written with it */
	struct lp_list_node node; /* the job's list */
	/* Ios written together: the next one, and in the first io the last one and their number. */
	struct lpi_io *next_along;
	struct lpi_io *last_along;
	uint32_t along_cnt;
	uint32_t along_depth; /* small writes that ran when it was submitted */
	struct lp_list_node gather_node;
};

LP_LIST_DEFINE(lpi_io_list, struct lpi_io, node);
/* NOLINTNEXTLINE(clang-analyzer-unix.Malloc) */
LP_LIST_DEFINE(lpi_gather_list, struct lpi_io, gather_node);

/* Small writes of this turn, which become a few large ones when the next turn begins. */
struct lpi_gather {
	struct lp_source source;
	struct lpi_gather_list ios; /* the first of each run */
	uint64_t running;           /* small writes that have not ended, including gathered ones */
};

/* Several ios, and the call when all have ended. */
struct lpi_block_job {
	struct lpi_block *block;
	struct lpi_io_list ios; /* not submitted yet, then ended: see each user */
	uint32_t running;
	int result; /* 0, or the first error */
	void (*ended)(struct lpi_block_job *job);
};

/* Begins a job; ios may be added until lpi_block_job_run(). */
void lpi_block_job_init(struct lpi_block_job *job, struct lpi_block *block,
			void (*ended)(struct lpi_block_job *job));
/* A read or write of an extent, to be filled with buffers; NULL when no io is left. */
struct lpi_io *lpi_block_job_add(struct lpi_block_job *job, enum lp_bdev_opcode opcode,
				 struct lp_extent extent) LP_MUST_CHECK;
/* Adds the next part of the io's memory; takes a reference. False when the io is full. */
bool lpi_io_add(struct lpi_io *io, struct lp_seg seg) LP_MUST_CHECK;
/* Submits all ios. ended() is called later; at least one io must have been added. Small writes wait
 * until the turn is over, for others that continue them. */
void lpi_block_job_run(struct lpi_block_job *job);
/* Gives back all ios: before they ran, or after they ended. */
void lpi_block_job_fini(struct lpi_block_job *job);
/* Before the first job that writes, and after the last one. */
void lpi_gather_start(struct lpi_block *block);
void lpi_gather_stop(struct lpi_block *block); /* also when it was not started */

#endif
