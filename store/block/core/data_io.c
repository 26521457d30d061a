/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs: several reads or writes of the data device, pinned in the space while they run (rule S3).
 *
 * Small writes are gathered until the turn is over. New objects get blocks side by side, so the
 * writes of hundreds of transactions in one turn are a few runs of blocks. One device write for
 * each run costs a fraction of one for each block, in CPU and in the device. No write waits longer
 * for it, because the submissions of a turn reach the kernel only when the next one begins. */
#include <string.h>

#include "store/block/core/block.h"

#define SMALL_BLOCKS_MAX 4u /* of a write that is gathered */
#define RUN_BLOCKS_MAX                                                                             \
	32u /* of those that are written together: several for a device's channels                 \
	     */

void lpi_block_job_init(struct lpi_block_job *job, struct lpi_block *block,
			void (*ended)(struct lpi_block_job *job))
{
	*job = (struct lpi_block_job){.block = block, .ended = ended};
	lpi_io_list_init(&job->ios);
}

struct lpi_io *lpi_block_job_add(struct lpi_block_job *job, enum lp_bdev_opcode opcode,
				 struct lp_extent extent)
{
	LP_ASSERT(job->running == 0 && extent.cnt > 0);
	struct lpi_io *io = lp_pool_get(job->block->ios);
	if (io == NULL)
		return NULL;
	io->op = (struct lp_bdev_op){.opcode = opcode};
	io->pin = (struct lp_space_pin){.extent = extent};
	io->job = job;
	io->extent = extent;
	io->iov_cnt = 0;
	lp_list_node_init(&io->node);
	lpi_io_list_push_back(&job->ios, io);
	return io;
}

bool lpi_io_add(struct lpi_io *io, struct lp_seg seg)
{
	if (io->iov_cnt == LPI_IO_IOVS)
		return false;
	io->bufs[io->iov_cnt] = lp_buf_get(seg.buf);
	io->iov[io->iov_cnt++] = (struct iovec){
		.iov_base = seg.buf->data + seg.offset,
		.iov_len = seg.len,
	};
	return true;
}

static void io_ended(struct lpi_io *io, int result)
{
	struct lpi_block_job *job = io->job;
	lp_space_unpin(job->block->space, &io->pin);
	if (result < 0 && job->result == 0)
		job->result = result;
	LP_ASSERT(job->running > 0);
	job->running--;
	if (job->running == 0)
		job->ended(job);
}

static void io_complete(struct lp_bdev_op *op)
{
	struct lpi_io *io = LP_CONTAINER_OF(op, struct lpi_io, op);
	struct lpi_block_job *job = io->job;
	if (op->opcode != LP_BDEV_READ)
		lp_bdev_observe(&job->block->policy.data_observer, op, job->block->options.reactor);
	io_ended(io, op->result);
}

static void submit_op(struct lpi_block *block, struct lpi_io *io)
{
	if (io->op.opcode == LP_BDEV_WRITE_THROUGH) {
		block->data_throughs++;
		block->data_through_bytes += io->op.length_bytes;
	}
	lp_bdev_submit(block->data, &io->op);
}

/* --- Writes that are gathered ----------------------------------------------------------------- */

/* The policy learns the time of one write among the others, because it is asked for that. */
static void run_complete(struct lp_bdev_op *op)
{
	struct lpi_io *io = LP_CONTAINER_OF(op, struct lpi_io, op);
	struct lpi_block *block = io->job->block;
	int result = op->result;
	op->length_bytes = io->extent.cnt * LP_BLOCK_BYTES;
	op->depth = LP_MAX(op->depth, io->along_depth);
	lp_bdev_observe(&block->policy.data_observer, op, block->options.reactor);
	while (io != NULL) {
		/* When the job has ended, another job may use the io. */
		struct lpi_io *next = io->next_along;
		block->gather.running--;
		io_ended(io, result);
		io = next;
	}
}

/* All writes of a run have the same length; otherwise their time would teach nothing. */
static bool goes_along(const struct lpi_io *first, const struct lpi_io *io)
{
	return first->op.opcode == io->op.opcode && first->extent.cnt == io->extent.cnt &&
	       lp_extent_end(first->last_along->extent) == io->extent.block &&
	       (first->along_cnt + 1) * io->extent.cnt <= RUN_BLOCKS_MAX &&
	       first->op.iov_cnt + io->iov_cnt <= LPI_IO_IOVS;
}

static void gather(struct lpi_block *block, struct lpi_io *io)
{
	LP_ASSERT(block->gather.ios.head.prev != NULL); /* started */
	struct lpi_io *first = lpi_gather_list_last(&block->gather.ios);
	io->op.complete = run_complete;
	io->next_along = NULL;
	io->last_along = io;
	io->along_cnt = 1;
	block->gather.running++;
	if (first == NULL || !goes_along(first, io)) {
		lp_list_node_init(&io->gather_node);
		lpi_gather_list_push_back(&block->gather.ios, io);
		return;
	}
	memcpy(first->iov + first->op.iov_cnt, io->iov, io->iov_cnt * sizeof(io->iov[0]));
	first->op.iov_cnt += io->iov_cnt;
	first->op.length_bytes += io->op.length_bytes;
	first->last_along->next_along = io;
	first->last_along = io;
	first->along_cnt++;
}

static void gather_flush(struct lp_source *source)
{
	struct lpi_gather *gather = LP_CONTAINER_OF(source, struct lpi_gather, source);
	struct lpi_block *block = LP_CONTAINER_OF(gather, struct lpi_block, gather);
	struct lpi_io *io;
	while ((io = lpi_gather_list_pop_front(&gather->ios)) != NULL) {
		io->along_depth = (uint32_t)LP_MIN(gather->running, (uint64_t)UINT32_MAX);
		submit_op(block, io);
	}
}

void lpi_gather_start(struct lpi_block *block)
{
	lpi_gather_list_init(&block->gather.ios);
	block->gather.running = 0;
	block->gather.source = (struct lp_source){.name = "data writes", .flush = gather_flush};
	lp_source_add(block->options.reactor, &block->gather.source);
}

void lpi_gather_stop(struct lpi_block *block)
{
	LP_ASSERT(block->gather.running == 0);
	if (lp_list_node_is_linked(&block->gather.source.node))
		lp_source_remove(block->options.reactor, &block->gather.source);
}

/* --- Jobs that run ---------------------------------------------------------------------------- */

static void submit(struct lpi_block_job *job, struct lpi_io *io)
{
	struct lpi_block *block = job->block;
	struct lp_bdev_op *op = &io->op;
	op->offset_bytes = io->extent.block * LP_BLOCK_BYTES;
	op->length_bytes = io->extent.cnt * LP_BLOCK_BYTES;
	op->iov = io->iov;
	op->iov_cnt = io->iov_cnt;
	op->complete = io_complete;
	lp_space_pin(block->space, &io->pin, io->extent);
	if (op->opcode != LP_BDEV_READ && io->extent.cnt <= SMALL_BLOCKS_MAX)
		gather(block, io);
	else
		submit_op(block, io);
}

void lpi_block_job_run(struct lpi_block_job *job)
{
	LP_ASSERT(!lpi_io_list_is_empty(&job->ios) && job->running == 0);
	struct lpi_io *io;
	for (io = lpi_io_list_first(&job->ios); io != NULL; io = lpi_io_list_next(&job->ios, io))
		job->running++;
	/* A completion never comes inside a submit, so the list does not change here. */
	for (io = lpi_io_list_first(&job->ios); io != NULL; io = lpi_io_list_next(&job->ios, io))
		submit(job, io);
}

void lpi_block_job_fini(struct lpi_block_job *job)
{
	struct lpi_io *io;
	LP_ASSERT(job->running == 0);
	while ((io = lpi_io_list_pop_front(&job->ios)) != NULL) {
		for (uint32_t i = 0; i < io->iov_cnt; i++)
			lp_buf_put(io->bufs[i]);
		lp_pool_put(job->block->ios, io);
	}
}
