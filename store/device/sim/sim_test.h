/* SPDX-License-Identifier: Apache-2.0 */
/* Test rig: a reactor in simulated time, and a simulated device on it.
 *
 * Only *_test.c files include this. One byte, the tag, tells a sector's content. A sector that is
 * not one byte all over is LP_BENCH_MIXED.
 */
#ifndef LP_STORE_DEVICE_SIM_SIM_TEST_H
#define LP_STORE_DEVICE_SIM_SIM_TEST_H

#include "base/testing/test.h"

#include "base/loop/reactor.h"
#include "base/prng.h"
#include "store/device/sim/bdev_sim.h"

#define LP_BENCH_MIXED     256
#define LP_BENCH_TAG_CNT   257
#define LP_BENCH_SEED_CNT  400
#define LP_BENCH_SIZE      (UINT64_C(1) << 20)
#define LP_BENCH_BUF_BYTES 65536u

/* 1 to 2 us for everything: quick, plain, and short of other choices. */
#define LP_BENCH_LATENCY_PLAIN                                                                     \
	{                                                                                          \
		{1000, 2000}, {1000, 2000}, {1000, 2000}, {1000, 2000},                            \
		{                                                                                  \
			1000, 2000                                                                 \
		}                                                                                  \
	}

struct lpi_bench {
	struct lp_clock_sim clock;
	struct lp_reactor *reactor;
	struct lp_bdev *bdev;
	struct lp_sim *sim;
	struct lp_bdev_chan *chan;
};

struct lpi_bench_op {
	struct lp_bdev_op op;
	bool done;
	uint32_t order; /* of completion, over all ops */
	uint64_t done_ns;
	_Alignas(4096) unsigned char buf[LP_BENCH_BUF_BYTES];
};

static inline struct lp_sim_profile lpi_bench_plain_profile(uint32_t sector_bytes)
{
	return (struct lp_sim_profile){
		.name = "plain", .latency = LP_BENCH_LATENCY_PLAIN, .sector_bytes = sector_bytes};
}

/* A preset, or, for every other seed, the same without FUA: a write-through is a write and a flush
 * then, and one that fails loses what others have written. */
static inline struct lp_sim_profile lpi_bench_profile_of(enum lp_sim_preset preset, bool has_fua)
{
	struct lp_sim_profile profile = *lp_sim_preset(preset);
	/* Where nothing can be lost there is no such kind. */
	profile.through_flushes = !has_fua && !profile.power_protected;
	profile.drops_on_failed_flush |= profile.through_flushes;
	return profile;
}

static inline void lpi_bench_init_sized(struct lpi_bench *bench,
					const struct lp_sim_profile *profile, uint64_t seed,
					uint64_t size_bytes)
{
	struct lp_sim_options options = {
		.profile = profile, .size_bytes = size_bytes, .seed = seed};
	lp_clock_sim_init(&bench->clock, LP_NS_PER_S, 0);
	struct lp_reactor_options reactor_options = {
		.name = "sim", .clock = &bench->clock.clock, .sim = &bench->clock};
	lp_test_ok(lp_reactor_new(&reactor_options, &bench->reactor));
	lp_test_ok(lp_reactor_start(bench->reactor));
	lp_test_ok(lp_bdev_open_sim(&options, &bench->bdev));
	bench->sim = lp_sim_of(bench->bdev);
	lp_test_ok(lp_bdev_attach(bench->bdev, bench->reactor, &bench->chan));
}

static inline void lpi_bench_init(struct lpi_bench *bench, const struct lp_sim_profile *profile,
				  uint64_t seed)
{
	lpi_bench_init_sized(bench, profile, seed, LP_BENCH_SIZE);
}

static inline void lpi_bench_fini(struct lpi_bench *bench)
{
	lp_bdev_detach(bench->chan);
	lp_bdev_close(bench->bdev);
	lp_reactor_free(bench->reactor);
}

/* Puts another device below the bench, after a cut. */
static inline void lpi_bench_swap(struct lpi_bench *bench, struct lp_bdev *bdev)
{
	lp_bdev_detach(bench->chan);
	lp_bdev_close(bench->bdev);
	bench->bdev = bdev;
	bench->sim = lp_sim_of(bdev);
	lp_test_ok(lp_bdev_attach(bench->bdev, bench->reactor, &bench->chan));
}

static inline struct lpi_bench_op *lpi_bench_op_new(void)
{
	struct lpi_bench_op *op = aligned_alloc(4096, sizeof(*op));
	assert_non_null(op);
	memset(op, 0, sizeof(*op));
	return op;
}

static inline void lpi_bench_op_complete(struct lp_bdev_op *base)
{
	static uint32_t order;
	struct lpi_bench_op *op = LP_CONTAINER_OF(base, struct lpi_bench_op, op);
	assert_false(op->done);
	op->done = true;
	op->order = ++order;
}

/* Sector numbers, not bytes. A write's buffer is filled with the tag. */
static inline struct lpi_bench_op *lpi_bench_submit(struct lpi_bench *bench,
						    enum lp_bdev_opcode opcode, int tag,
						    uint64_t sector_idx, uint64_t sector_cnt)
{
	struct lpi_bench_op *op = lpi_bench_op_new();
	uint32_t sector = lp_bdev_caps(bench->bdev)->block_bytes;
	assert_true(sector_cnt * sector <= sizeof(op->buf));
	memset(op->buf, tag, sizeof(op->buf));
	lp_bdev_op_prep(&op->op, opcode, op->buf, sector_cnt * sector, sector_idx * sector);
	op->op.complete = lpi_bench_op_complete;
	lp_bdev_submit(bench->chan, &op->op);
	return op;
}

static inline void lpi_bench_wait(struct lpi_bench *bench, struct lpi_bench_op *op)
{
	while (!op->done)
		assert_int_not_equal(lp_reactor_turn(bench->reactor, true), 0);
	op->done_ns = bench->clock.now_ns;
}

/* Submits, waits, returns the result. */
static inline int lpi_bench_do(struct lpi_bench *bench, enum lp_bdev_opcode opcode, int tag,
			       uint64_t sector_idx, uint64_t sector_cnt)
{
	struct lpi_bench_op *op = lpi_bench_submit(bench, opcode, tag, sector_idx, sector_cnt);
	lpi_bench_wait(bench, op);
	int result = op->op.result;
	free(op);
	return result;
}

static inline int lpi_bench_tag_of(const unsigned char *sector, uint32_t sector_bytes)
{
	for (uint32_t i = 1; i < sector_bytes; i++)
		if (sector[i] != sector[0])
			return LP_BENCH_MIXED;
	return sector[0];
}

/* What a sector holds. -errno if it cannot be read. */
static inline int lpi_bench_peek(struct lp_bdev *bdev, uint64_t sector_idx)
{
	_Alignas(4096) unsigned char buf[4096];
	uint32_t sector = lp_bdev_caps(bdev)->block_bytes;
	int err = lp_bdev_read_sync(bdev, buf, sector, sector_idx * sector);
	return err < 0 ? err : lpi_bench_tag_of(buf, sector);
}

/* Which tags a sector may hold after a cut right now, over many seeds; without harm. */
static inline void lpi_bench_outcomes(struct lpi_bench *bench, uint64_t sector_idx,
				      bool ret_seen[LP_BENCH_TAG_CNT])
{
	struct lp_sim_cutter *cutter = NULL;
	lp_test_ok(lp_sim_cutter_new(bench->sim, NULL, &cutter));
	while (lp_sim_cutter_next(cutter))
		continue;
	memset(ret_seen, 0, LP_BENCH_TAG_CNT * sizeof(ret_seen[0]));
	for (uint64_t seed = 0; seed < LP_BENCH_SEED_CNT; seed++) {
		struct lp_bdev *left = lp_sim_cutter_cut(cutter, seed);
		int tag = lpi_bench_peek(left, sector_idx);
		assert_in_range(tag, 0, LP_BENCH_MIXED);
		ret_seen[tag] = true;
		lp_bdev_close(left);
	}
	lp_sim_cutter_free(cutter);
}

/* All of these, and nothing else, may be in the sector after a cut. */
#define LP_BENCH_EXPECT(bench, sector_idx, ...)                                                    \
	lpi_bench_expect_set((bench), (sector_idx), (const int[]){__VA_ARGS__},                    \
			     LP_ARRAY_SIZE(((const int[]){__VA_ARGS__})), __LINE__)

static inline void lpi_bench_expect_set(struct lpi_bench *bench, uint64_t sector_idx,
					const int *tags, size_t tag_cnt, int line)
{
	bool seen[LP_BENCH_TAG_CNT];
	lpi_bench_outcomes(bench, sector_idx, seen);
	for (int tag = 0; tag < LP_BENCH_TAG_CNT; tag++) {
		bool wanted = false;
		for (size_t i = 0; i < tag_cnt; i++)
			wanted |= tags[i] == tag;
		if (seen[tag] == wanted)
			continue;
		print_error("line %d: after a cut, tag %d is %s in sector %llu\n", line, tag,
			    wanted ? "never" : "wrongly", (unsigned long long)sector_idx);
		fail();
	}
}

#endif
