/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs: several reads or writes of the data device, pinned in the space while they run (rule S3).
 */
#include "store/block_impl.h"

void lpi_job_init(struct lpi_job *job, struct lpi_block *block, void (*ended)(struct lpi_job *job))
{
	*job = (struct lpi_job){.block = block, .ended = ended};
	lpi_io_list_init(&job->ios);
}

struct lpi_io *lpi_job_add(struct lpi_job *job, enum lp_bdev_opcode opcode, struct lp_extent extent)
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

static void io_complete(struct lp_bdev_op *op)
{
	struct lpi_io *io = LP_CONTAINER_OF(op, struct lpi_io, op);
	struct lpi_job *job = io->job;
	lp_space_unpin(job->block->space, &io->pin);
	if (op->opcode != LP_BDEV_READ)
		lp_bdev_observe(&job->block->policy.data_observer, op, job->block->options.reactor);
	if (op->result < 0 && job->result == 0)
		job->result = op->result;
	LP_ASSERT(job->running > 0);
	job->running--;
	if (job->running == 0)
		job->ended(job);
}

static void submit(struct lpi_job *job, struct lpi_io *io)
{
	struct lp_bdev_op *op = &io->op;
	op->offset_bytes = io->extent.block * LP_BLOCK_BYTES;
	op->length_bytes = io->extent.cnt * LP_BLOCK_BYTES;
	op->iov = io->iov;
	op->iov_cnt = io->iov_cnt;
	op->complete = io_complete;
	if (op->opcode == LP_BDEV_WRITE_THROUGH) {
		job->block->data_throughs++;
		job->block->data_through_bytes += op->length_bytes;
	}
	lp_space_pin(job->block->space, &io->pin, io->extent);
	lp_bdev_submit(job->block->data, op);
}

void lpi_block_job_run(struct lpi_job *job)
{
	LP_ASSERT(!lpi_io_list_is_empty(&job->ios) && job->running == 0);
	struct lpi_io *io;
	for (io = lpi_io_list_first(&job->ios); io != NULL; io = lpi_io_list_next(&job->ios, io))
		job->running++;
	/* A completion never comes inside a submit, so the list stays as it is. */
	for (io = lpi_io_list_first(&job->ios); io != NULL; io = lpi_io_list_next(&job->ios, io))
		submit(job, io);
}

void lpi_job_fini(struct lpi_job *job)
{
	struct lpi_io *io;
	LP_ASSERT(job->running == 0);
	while ((io = lpi_io_list_pop_front(&job->ios)) != NULL) {
		for (uint32_t i = 0; i < io->iov_cnt; i++)
			lp_buf_put(io->bufs[i]);
		lp_pool_put(job->block->ios, io);
	}
}
