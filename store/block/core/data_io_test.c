/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: small writes of one turn that lie side by side reach the device as few long ones, with each
 * block where it belongs; every job ends once, with the error of the write that carried it; blocks
 * stay pinned until then (rule S3).
 * Method: jobs of one and more blocks submitted in one turn, in order, with gaps, backwards, mixed
 * with others, and with a device that refuses; what the device was asked is counted, and what it
 * has is read. */
#include "store/block/block_rig_test.h"

#define JOBS 80u

struct test_job {
	struct lpi_block_job job;
	struct lp_extent extent;
	uint32_t ended;
	bool was_pinned;
};

struct fixture {
	struct lpi_rig rig;
	struct lp_extent space;
	struct test_job jobs[JOBS];
	uint32_t job_cnt;
	uint64_t writes_before;
};

static void job_ended(struct lpi_block_job *job)
{
	struct test_job *own = LP_CONTAINER_OF(job, struct test_job, job);
	own->ended++;
	own->was_pinned |= lp_space_is_pinned(job->block->space, own->extent);
	lpi_block_job_fini(
		job); /* its ios may be had again while others of the run have not ended */
}

/* What the policy would learn of the last write. */
static uint64_t seen_bytes;
static uint32_t seen_depth;

static void observe(struct lp_bdev_observer *observer, const struct lp_bdev_op *op, uint64_t ns,
		    uint64_t waited_ns)
{
	(void)observer;
	assert_true(waited_ns <= ns);
	seen_bytes = op->length_bytes;
	seen_depth = op->depth;
}

static void init(struct fixture *fx)
{
	memset(fx, 0, sizeof(*fx));
	lpi_rig_init(&fx->rig);
	fx->rig.block->policy.data_observer.completed = observe;
	fx->space = lpi_rig_take(&fx->rig, UINT64_C(2) * JOBS);
}

static void fini(struct fixture *fx)
{
	lp_space_untake(fx->rig.block->space, fx->space);
	lpi_rig_close(&fx->rig, false);
	lpi_rig_fini(&fx->rig);
}

static uint64_t data_writes(const struct fixture *fx)
{
	const struct lp_bdev_stats *stats = lp_bdev_stats(fx->rig.block->data);
	return stats->ops[LP_BDEV_WRITE];
}

static void begin(struct fixture *fx)
{
	fx->job_cnt = 0;
	lpi_rig_settle(&fx->rig);
	fx->writes_before = data_writes(fx);
}

static uint8_t byte_of(uint64_t block)
{
	return (uint8_t)(block * 37 + 11);
}

/* A job that writes cnt blocks from the at-th of the space on, each in memory of its own. */
static void submit(struct fixture *fx, uint64_t at, uint64_t cnt)
{
	struct test_job *own = &fx->jobs[fx->job_cnt++];
	LP_ASSERT(fx->job_cnt <= JOBS);
	*own = (struct test_job){.extent = {fx->space.block + at, cnt}};
	lpi_block_job_init(&own->job, fx->rig.block, job_ended);
	struct lpi_io *io = lpi_block_job_add(&own->job, LP_BDEV_WRITE, own->extent);
	assert_non_null(io);
	for (uint64_t i = 0; i < cnt; i++) {
		struct lp_seg seg = {lp_buf_new(fx->rig.bufs, 4096), 0, 4096};
		assert_non_null(seg.buf);
		memset(seg.buf->data, byte_of(own->extent.block + i), 4096);
		assert_true(lpi_io_add(io, seg));
		lp_buf_put(seg.buf);
	}
	lpi_block_job_run(&own->job);
	assert_true(lp_space_is_pinned(fx->rig.block->space, own->extent));
	assert_int_equal(own->ended, 0);
}

static void wait_all(struct fixture *fx)
{
	for (uint32_t i = 0; i < fx->job_cnt; i++) {
		for (int k = 0; k < LPI_RIG_TURNS && fx->jobs[i].ended == 0; k++)
			lpi_rig_turn(&fx->rig);
		assert_int_equal(fx->jobs[i].ended, 1);
		assert_false(fx->jobs[i].was_pinned);
	}
	assert_int_equal(fx->rig.block->gather.running, 0);
	assert_int_equal(lp_pool_free_cnt(fx->rig.block->ios), fx->rig.ios);
}

static void expect_written(struct fixture *fx)
{
	static _Alignas(4096) uint8_t bytes[4096]; /* as the device wants it */
	static uint8_t want[4096];
	for (uint32_t i = 0; i < fx->job_cnt; i++) {
		const struct lp_extent *extent = &fx->jobs[i].extent;
		assert_int_equal(fx->jobs[i].job.result, 0);
		for (uint64_t k = 0; k < extent->cnt; k++) {
			lp_test_ok(lp_bdev_read_sync(fx->rig.bdev, bytes, sizeof(bytes),
						     (extent->block + k) * LP_BLOCK_BYTES));
			memset(want, byte_of(extent->block + k), sizeof(want));
			assert_memory_equal(bytes, want, sizeof(want));
		}
	}
}

static void expect_writes(struct fixture *fx, uint64_t cnt)
{
	wait_all(fx);
	assert_int_equal(data_writes(fx) - fx->writes_before, cnt);
	expect_written(fx);
}

static void test_side_by_side(void **state)
{
	(void)state;
	static struct fixture fx;
	init(&fx);
	begin(&fx);
	for (uint64_t i = 0; i < 64; i++)
		submit(&fx, i, 1);
	assert_int_equal(data_writes(&fx), fx.writes_before); /* the turn is not over */
	expect_writes(&fx, 2);                                /* of 32 blocks each */
	begin(&fx);
	submit(&fx, 5, 1);
	expect_writes(&fx, 1);
	assert_int_equal(seen_depth, 1);
	begin(&fx);
	for (uint64_t i = 0; i < 16; i++)
		submit(&fx, 4 * i, 4);
	expect_writes(&fx, 2);
	fini(&fx);
}

static void test_not_side_by_side(void **state)
{
	(void)state;
	static struct fixture fx;
	init(&fx);
	begin(&fx); /* gaps */
	for (uint64_t i = 0; i < 20; i++)
		submit(&fx, 2 * i, 1);
	expect_writes(&fx, 20);
	begin(&fx); /* backwards */
	for (uint64_t i = 0; i < 20; i++)
		submit(&fx, 40 - i, 1);
	expect_writes(&fx, 20);
	begin(&fx); /* of different lengths: 1, 2, 1, 2 */
	for (uint64_t i = 0; i < 10; i++)
		submit(&fx, i / 2 * 3 + i % 2, 1 + i % 2);
	expect_writes(&fx, 10);
	begin(&fx); /* long ones go at once, and stay what they are */
	submit(&fx, 0, 8);
	assert_int_equal(data_writes(&fx), fx.writes_before + 1);
	submit(&fx, 8, 8);
	expect_writes(&fx, 2);
	fini(&fx);
}

/* One refused write is the error of all that it carried, and of no other. */
static void test_refused(void **state)
{
	(void)state;
	static struct fixture fx;
	init(&fx);
	const struct lp_sim_rule eio = {.fault = LP_SIM_EIO,
					.opcode_mask = LP_SIM_OP(LP_BDEV_WRITE),
					.offset_bytes = (fx.space.block + 40) * LP_BLOCK_BYTES,
					.length_bytes = LP_BLOCK_BYTES,
					.fire_cnt = 1};
	begin(&fx);
	lp_sim_rule_add(lp_sim_of(fx.rig.bdev), &eio);
	for (uint64_t i = 0; i < 70; i++)
		submit(&fx, i, 1);
	wait_all(&fx);
	for (uint64_t i = 0; i < 70; i++)
		assert_int_equal(fx.jobs[i].job.result, i / 32 == 1 ? -EIO : 0);
	begin(&fx);
	for (uint64_t i = 0; i < 70; i++)
		submit(&fx, i, 1);
	expect_writes(&fx, 3);
	fini(&fx);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_side_by_side),
		cmocka_unit_test(test_not_side_by_side),
		cmocka_unit_test(test_refused),
	};
	return lp_test_main(tests, "store/block/core/data_io");
}
