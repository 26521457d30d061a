/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: faults strike where their rules say and do what they say, while running and at a cut:
 * clauses SIM17 to SIM27 of store/device/sim/README.md.
 * Method: one rule at a time on a plain device; then what reads and cuts give. */
#include "store/device/sim/sim_test.h"

#define SECTOR UINT64_C(4096)
#define WRITES (LP_SIM_OP(LP_BDEV_WRITE) | LP_SIM_OP(LP_BDEV_WRITE_THROUGH))

static void open_plain(struct lpi_bench *bench)
{
	struct lp_sim_profile profile = lpi_bench_plain_profile(4096);
	lpi_bench_init(bench, &profile, 1);
}

static uint32_t add(struct lpi_bench *bench, struct lp_sim_rule rule)
{
	return lp_sim_rule_add(bench->sim, &rule);
}

static int write_tag(struct lpi_bench *bench, int tag, uint64_t sector_idx, uint64_t sector_cnt)
{
	return lpi_bench_do(bench, LP_BDEV_WRITE, tag, sector_idx, sector_cnt);
}

static int write_through(struct lpi_bench *bench, int tag, uint64_t sector_idx, uint64_t sector_cnt)
{
	return lpi_bench_do(bench, LP_BDEV_WRITE_THROUGH, tag, sector_idx, sector_cnt);
}

static int read_one(struct lpi_bench *bench, uint64_t sector_idx)
{
	return lpi_bench_do(bench, LP_BDEV_READ, 0, sector_idx, 1);
}

static int flush(struct lpi_bench *bench)
{
	return lpi_bench_do(bench, LP_BDEV_FLUSH, 0, 0, 1);
}

/* How many of the sectors hold the tag; the others must hold the other one. */
static int count_tags(struct lp_bdev *bdev, int tag, int other, uint64_t sector_cnt)
{
	int cnt = 0;
	for (uint64_t i = 0; i < sector_cnt; i++) {
		int got = lpi_bench_peek(bdev, i);
		assert_true(got == tag || got == other);
		cnt += got == tag;
	}
	return cnt;
}

static void failed_write(enum lp_sim_fault fault, int err, enum lp_bdev_opcode opcode)
{
	struct lpi_bench bench;
	open_plain(&bench);
	lp_test_ok(write_through(&bench, 1, 0, 16));
	(void)add(&bench, (struct lp_sim_rule){.fault = fault, .opcode_mask = WRITES});
	lp_test_err(err, lpi_bench_do(&bench, opcode, 2, 0, 16));
	lp_sim_rules_clear(bench.sim);
	int stored = count_tags(bench.bdev, 2, 1, 16);
	assert_in_range(stored, 2, 14);
	/* Nothing of it is durable, even of a write-through, until a flush; then what was
	 * stored is, and nothing else. */
	for (uint64_t i = 0; i < 16; i++) {
		if (lpi_bench_peek(bench.bdev, i) == 2)
			LP_BENCH_EXPECT(&bench, i, 1, 2);
		else
			LP_BENCH_EXPECT(&bench, i, 1);
	}
	lp_test_ok(flush(&bench));
	for (uint64_t i = 0; i < 16; i++)
		LP_BENCH_EXPECT(&bench, i, lpi_bench_peek(bench.bdev, i));
	lpi_bench_fini(&bench);
}

static void test_sim17_eio(void **state)
{
	(void)state;
	failed_write(LP_SIM_EIO, -EIO, LP_BDEV_WRITE);
	failed_write(LP_SIM_EIO, -EIO, LP_BDEV_WRITE_THROUGH);
	struct lpi_bench bench;
	open_plain(&bench);
	(void)add(&bench, (struct lp_sim_rule){.fault = LP_SIM_EIO});
	lp_test_err(-EIO, read_one(&bench, 0));
	lp_test_err(-EIO, lpi_bench_do(&bench, LP_BDEV_DISCARD, 0, 0, 1));
	lp_sim_rules_clear(bench.sim);
	lp_test_ok(read_one(&bench, 0));
	lpi_bench_fini(&bench);
}

/* While it is in flight all of a write that will fail may be met. */
static void test_sim17_eio_in_flight(void **state)
{
	(void)state;
	struct lpi_bench bench;
	open_plain(&bench);
	(void)add(&bench, (struct lp_sim_rule){.fault = LP_SIM_EIO});
	struct lpi_bench_op *op = lpi_bench_submit(&bench, LP_BDEV_WRITE, 1, 0, 8);
	for (uint64_t i = 0; i < 8; i++)
		LP_BENCH_EXPECT(&bench, i, 0, 1);
	lpi_bench_wait(&bench, op);
	lp_test_err(-EIO, op->op.result);
	free(op);
	lpi_bench_fini(&bench);
}

static void test_sim17_atomic(void **state)
{
	(void)state;
	struct lp_sim_profile profile = lpi_bench_plain_profile(512);
	struct lpi_bench bench;
	int seen[2] = {0};
	profile.atomic_write_bytes = 4096;
	lpi_bench_init(&bench, &profile, 1);
	for (int n = 0; n < 40; n++) {
		lp_test_ok(write_tag(&bench, 1, 0, 8));
		(void)add(&bench, (struct lp_sim_rule){.fault = LP_SIM_EIO});
		lp_test_err(-EIO, write_tag(&bench, 2, 0, 8));
		lp_sim_rules_clear(bench.sim);
		int stored = count_tags(bench.bdev, 2, 1, 8);
		assert_true(stored == 0 || stored == 8);
		seen[stored / 8]++;
	}
	assert_true(seen[0] > 5 && seen[1] > 5);
	lpi_bench_fini(&bench);
}

static void fail_flush(struct lpi_bench *bench)
{
	(void)add(bench, (struct lp_sim_rule){.fault = LP_SIM_EIO,
					      .opcode_mask = LP_SIM_OP(LP_BDEV_FLUSH)});
	lp_test_err(-EIO, flush(bench));
	lp_sim_rules_clear(bench->sim);
	lp_bdev_trust(bench->bdev); /* what the device itself says is looked at here */
}

static void test_sim18_failed_flush_keeps(void **state)
{
	(void)state;
	struct lpi_bench bench;
	open_plain(&bench);
	lp_test_ok(write_tag(&bench, 1, 0, 1));
	fail_flush(&bench);
	assert_int_equal(lpi_bench_peek(bench.bdev, 0), 1);
	LP_BENCH_EXPECT(&bench, 0, 0, 1);
	lp_test_ok(flush(&bench));
	LP_BENCH_EXPECT(&bench, 0, 1);
	lpi_bench_fini(&bench);
}

static void test_sim18_failed_flush_drops(void **state)
{
	(void)state;
	struct lp_sim_profile profile = lpi_bench_plain_profile(4096);
	struct lpi_bench bench;
	profile.drops_on_failed_flush = true;
	/* Longer than a flush, so that it is still in flight when that fails. */
	profile.latency[LP_BDEV_WRITE_THROUGH] = (struct lp_sim_latency){50000, 60000};
	lpi_bench_init(&bench, &profile, 1);
	lp_test_ok(write_tag(&bench, 1, 0, 1));
	lp_test_ok(flush(&bench));
	lp_test_ok(write_tag(&bench, 2, 0, 2));
	struct lpi_bench_op *op = lpi_bench_submit(&bench, LP_BDEV_WRITE_THROUGH, 3, 2, 1);
	fail_flush(&bench);
	assert_int_equal(lpi_bench_peek(bench.bdev, 0), 1);
	assert_int_equal(lpi_bench_peek(bench.bdev, 1), 0);
	assert_false(op->done);
	lp_test_ok(flush(&bench));
	LP_BENCH_EXPECT(&bench, 0, 1);
	LP_BENCH_EXPECT(&bench, 1, 0);
	lpi_bench_wait(&bench, op);
	lp_test_ok(op->op.result);
	LP_BENCH_EXPECT(&bench, 2, 3);
	free(op);
	lpi_bench_fini(&bench);
}

/* --- SIM33, SIM34 ------------------------------------------------------------------------------
 */

static void open_without_fua(struct lpi_bench *bench, uint64_t seed)
{
	struct lp_sim_profile profile = lpi_bench_plain_profile(4096);
	profile.drops_on_failed_flush = true;
	profile.through_flushes = true;
	/* Longer than all else, so that they are still in flight when that fails. */
	profile.latency[LP_BDEV_WRITE_THROUGH] = (struct lp_sim_latency){50000, 60000};
	lpi_bench_init(bench, &profile, seed);
	assert_true(lp_bdev_caps(bench->bdev)->through_flushes);
}

/* One that fails takes along what others have written; it covers no more than itself. */
static void test_sim33_through_flushes(void **state)
{
	(void)state;
	struct lpi_bench bench;
	open_without_fua(&bench, 1);
	lp_test_ok(write_tag(&bench, 1, 0, 1));
	lp_test_ok(write_through(&bench, 2, 1, 1));
	LP_BENCH_EXPECT(&bench, 0, 0, 1);
	LP_BENCH_EXPECT(&bench, 1, 2);
	(void)add(&bench, (struct lp_sim_rule){.fault = LP_SIM_EIO, .fire_cnt = 1});
	lp_test_err(-EIO, write_through(&bench, 3, 2, 1));
	assert_int_equal(lpi_bench_peek(bench.bdev, 0), 0);
	LP_BENCH_EXPECT(&bench, 0, 0);
	LP_BENCH_EXPECT(&bench, 1, 2);
	/* That there is no space is said before anything is flushed. */
	lp_bdev_trust(bench.bdev);
	lp_test_ok(write_tag(&bench, 4, 0, 1));
	(void)add(&bench, (struct lp_sim_rule){.fault = LP_SIM_ENOSPC, .fire_cnt = 1});
	lp_test_err(-ENOSPC, write_through(&bench, 5, 3, 1));
	assert_int_equal(lpi_bench_peek(bench.bdev, 0), 4);
	lp_test_ok(flush(&bench));
	LP_BENCH_EXPECT(&bench, 0, 4);
	lpi_bench_fini(&bench);
}

/* What is in flight when a flush fails may be lost with it, and its owner is not told by the
 * device; but by the contract (store/device/bdev.h). */
static void test_sim33_lost_in_flight(void **state)
{
	(void)state;
	uint32_t lost_cnt = 0;
	for (uint64_t seed = 1; seed <= 40; seed++) {
		struct lpi_bench bench;
		open_without_fua(&bench, seed);
		struct lpi_bench_op *op = lpi_bench_submit(&bench, LP_BDEV_WRITE_THROUGH, 3, 2, 1);
		fail_flush(&bench);
		assert_false(op->done);
		lpi_bench_wait(&bench, op);
		lp_test_ok(op->op.result); /* for it is trusted again */
		int tag = lpi_bench_peek(bench.bdev, 2);
		assert_true(tag == 3 || tag == 0);
		if (tag == 3)
			LP_BENCH_EXPECT(&bench, 2, 3);
		else
			LP_BENCH_EXPECT(&bench, 2, 0);
		lost_cnt += tag == 0 ? 1 : 0;
		free(op);
		lpi_bench_fini(&bench);
	}
	assert_in_range(lost_cnt, 10, 30);
}

/* Each kind of operation may be beside it; itself it takes place. */
static void test_sim34_foreign(void **state)
{
	(void)state;
	struct lp_sim_profile profile = lpi_bench_plain_profile(4096);
	profile.drops_on_failed_flush = true;
	for (int opcode = 0; opcode < LP_BDEV_OPCODE_CNT; opcode++) {
		struct lpi_bench bench;
		struct lp_sim_event event;
		lpi_bench_init(&bench, &profile, 1);
		lp_test_ok(write_tag(&bench, 1, 0, 1));
		uint64_t first = lp_sim_event_count(bench.sim);
		(void)add(&bench, (struct lp_sim_rule){.fault = LP_SIM_FOREIGN, .fire_cnt = 1});
		int err = lpi_bench_do(&bench, (enum lp_bdev_opcode)opcode, 2, 1, 1);
		assert_int_equal(err, opcode == LP_BDEV_FLUSH ? -EIO : 0);
		assert_int_equal(lpi_bench_peek(bench.bdev, 0), 0);
		if (opcode == LP_BDEV_WRITE || opcode == LP_BDEV_WRITE_THROUGH)
			assert_int_equal(lpi_bench_peek(bench.bdev, 1), 2);
		lp_sim_event_get(bench.sim, first + 2, &event);
		assert_int_equal(event.type, LP_SIM_COMPLETE);
		assert_int_equal(event.opcode, LP_BDEV_FLUSH);
		assert_int_equal(event.result, -EIO);
		LP_BENCH_EXPECT(&bench, 0, 0);
		lpi_bench_fini(&bench);
	}
}

/* --- What store/device/bdev.h makes of it
 * -------------------------------------------------------------
 */

/* Rule L7: once a flush has failed none is believed, whoever asks and in whichever way. */
static void test_flushes_are_doubted(void **state)
{
	(void)state;
	_Alignas(4096) static unsigned char buf[4096];
	for (int kind = 0; kind < 4; kind++) {
		struct lp_sim_profile profile = lpi_bench_plain_profile(4096);
		struct lp_bdev_failure failure;
		struct lpi_bench bench;
		bool without_fua = kind >= 2;
		bool by_through = kind % 2 == 1;
		profile.through_flushes = without_fua;
		lpi_bench_init(&bench, &profile, 1);
		(void)add(&bench, (struct lp_sim_rule){.fault = LP_SIM_EIO, .fire_cnt = 1});
		lp_test_err(-EIO, by_through ? write_through(&bench, 1, 0, 1) : flush(&bench));
		/* With FUA such a write is a matter of its own. */
		int r = by_through && !without_fua ? 0 : -EIO;
		assert_int_equal(flush(&bench), r);
		assert_int_equal(lp_bdev_flush_sync(bench.bdev), r);
		r = without_fua ? r : 0;
		assert_int_equal(write_through(&bench, 2, 0, 1), r);
		assert_int_equal(lp_bdev_write_sync(bench.bdev, buf, 4096, 4096, true), r);
		/* Nothing else is touched by it, and what has failed is what the device said. */
		lp_test_ok(write_tag(&bench, 3, 0, 1));
		lp_test_ok(read_one(&bench, 0));
		lp_test_ok(lpi_bench_do(&bench, LP_BDEV_DISCARD, 0, 0, 1));
		assert_int_equal(lp_bdev_stats(bench.chan)->errors, 1);
		assert_true(lp_bdev_last_failure(bench.bdev, &failure));
		assert_int_equal(failure.opcode,
				 by_through ? LP_BDEV_WRITE_THROUGH : LP_BDEV_FLUSH);
		lp_bdev_trust(bench.bdev);
		lp_test_ok(flush(&bench));
		lp_test_ok(write_through(&bench, 2, 0, 1));
		lpi_bench_fini(&bench);
	}
}

/* Behind a blocking write-through the kernel flushes, also where there is FUA, and does not say
 * which of the two has failed. */
static void test_blocking_write_through_flushes(void **state)
{
	(void)state;
	static const struct {
		enum lp_sim_fault fault;
		bool power_protected;
		bool is_flush;
	} cases[] = {{LP_SIM_EIO, false, true},
		     {LP_SIM_EIO, true, false},
		     {LP_SIM_ENOSPC, false, false}};
	_Alignas(4096) static unsigned char buf[4096];
	for (size_t i = 0; i < LP_ARRAY_SIZE(cases); i++) {
		struct lp_sim_profile profile = lpi_bench_plain_profile(4096);
		struct lpi_bench bench;
		int r = cases[i].is_flush ? -EIO : 0;
		profile.drops_on_failed_flush = true;
		profile.power_protected = cases[i].power_protected;
		lpi_bench_init(&bench, &profile, 1);
		lp_test_ok(write_tag(&bench, 1, 0, 1));
		(void)add(&bench, (struct lp_sim_rule){.fault = cases[i].fault, .fire_cnt = 1});
		lp_test_err(cases[i].fault == LP_SIM_EIO ? -EIO : -ENOSPC,
			    lp_bdev_write_sync(bench.bdev, buf, 4096, 4096, true));
		/* Unflushed, and gone. */
		assert_int_equal(lpi_bench_peek(bench.bdev, 0), cases[i].is_flush ? 0 : 1);
		assert_int_equal(flush(&bench), r);
		assert_int_equal(lp_bdev_flush_sync(bench.bdev), r);
		/* What is written by FUA is durable in itself. */
		lp_test_ok(write_through(&bench, 2, 0, 1));
		lp_test_ok(lp_bdev_write_sync(bench.bdev, buf, 4096, 4096, true));
		lp_bdev_trust(bench.bdev);
		lp_test_ok(flush(&bench));
		lpi_bench_fini(&bench);
	}
}

/* Two devices may be parts of one disk. */
static void test_doubt_is_shared(void **state)
{
	(void)state;
	struct lpi_bench one;
	struct lpi_bench two;
	open_plain(&one);
	open_plain(&two);
	lp_bdev_tie(two.bdev, one.bdev);
	(void)add(&two, (struct lp_sim_rule){.fault = LP_SIM_EIO, .fire_cnt = 1});
	lp_test_err(-EIO, flush(&two));
	lp_test_err(-EIO, flush(&one));
	lp_bdev_trust(one.bdev);
	lp_test_ok(flush(&two));
	(void)add(&one, (struct lp_sim_rule){.fault = LP_SIM_EIO, .fire_cnt = 1});
	lp_test_err(-EIO, flush(&one));
	lp_bdev_tie(two.bdev, NULL);
	lp_test_err(-EIO, flush(&two)); /* that it has been is not forgotten */
	lp_bdev_trust(two.bdev);
	lp_test_ok(flush(&two));
	lp_test_err(-EIO, flush(&one));
	lpi_bench_fini(&one);
	lpi_bench_fini(&two);
}

static void test_sim19_latent(void **state)
{
	(void)state;
	struct lpi_bench bench;
	open_plain(&bench);
	lp_test_ok(write_through(&bench, 1, 0, 8));
	(void)add(&bench, (struct lp_sim_rule){.fault = LP_SIM_LATENT,
					       .offset_bytes = 2 * SECTOR,
					       .length_bytes = 3 * SECTOR,
					       .fire_cnt = 1});
	lp_test_ok(read_one(&bench, 1));
	/* Only what was read is spoiled: sectors 2 and 3, not 4. */
	lp_test_err(-EIO, lpi_bench_do(&bench, LP_BDEV_READ, 0, 0, 4));
	lp_test_ok(read_one(&bench, 1));
	lp_test_err(-EIO, read_one(&bench, 2));
	lp_test_err(-EIO, read_one(&bench, 3));
	assert_int_equal(lpi_bench_peek(bench.bdev, 3), -EIO);
	lp_test_ok(read_one(&bench, 4));
	/* It outlives a cut. */
	uint64_t last = lp_sim_event_count(bench.sim) - 1;
	struct lp_bdev *left = NULL;
	lp_test_ok(lp_sim_image_at(bench.sim, last, NULL, 1, &left));
	assert_int_equal(lpi_bench_peek(left, 2), -EIO);
	assert_int_equal(lpi_bench_peek(left, 4), 1);
	lp_bdev_close(left);
	/* A write that fails does not heal, one that succeeds does, where it goes. */
	(void)add(&bench, (struct lp_sim_rule){.fault = LP_SIM_EIO, .opcode_mask = WRITES});
	for (int n = 0; n < 10; n++) /* some of them reach the medium all the same */
		lp_test_err(-EIO, write_tag(&bench, 2, 2, 1));
	lp_test_err(-EIO, read_one(&bench, 2));
	lp_sim_rules_clear(bench.sim);
	lp_test_ok(write_tag(&bench, 2, 2, 1));
	lp_test_ok(read_one(&bench, 2));
	lp_test_err(-EIO, read_one(&bench, 3));
	lpi_bench_fini(&bench);
}

static void test_sim19_spoil(void **state)
{
	(void)state;
	struct lpi_bench bench;
	open_plain(&bench);
	lp_sim_spoil(bench.sim, 6 * SECTOR, 4096);
	lp_sim_spoil(bench.sim, 1, 2 * SECTOR + 17);
	for (uint64_t i = 0; i < 8; i++)
		assert_int_equal(lpi_bench_peek(bench.bdev, i), i >= 1 && i < 7 ? -EIO : 0);
	/* Out of the middle, then the rest in one. */
	lp_test_ok(write_tag(&bench, 1, 3, 2));
	for (uint64_t i = 1; i < 7; i++)
		assert_int_equal(lpi_bench_peek(bench.bdev, i), i == 3 || i == 4 ? 1 : -EIO);
	lp_test_ok(write_tag(&bench, 2, 0, 8));
	assert_int_equal(count_tags(bench.bdev, 2, 2, 8), 8);
	lpi_bench_fini(&bench);
}

/* Bits in which the device differs from the tag in the sectors given. */
static int flipped_bits(struct lp_bdev *bdev, int tag, uint64_t sector_idx, uint64_t sector_cnt)
{
	_Alignas(4096) unsigned char buf[4096];
	int cnt = 0;
	for (uint64_t i = 0; i < sector_cnt; i++) {
		lp_test_ok(lp_bdev_read_sync(bdev, buf, 4096, (sector_idx + i) * SECTOR));
		for (size_t k = 0; k < sizeof(buf); k++)
			cnt += __builtin_popcount(buf[k] ^ (unsigned)tag);
	}
	return cnt;
}

static int flipped_after_cut(struct lpi_bench *bench, int tag, uint64_t seed)
{
	struct lp_bdev *left = NULL;
	uint64_t last = lp_sim_event_count(bench->sim) - 1;
	lp_test_ok(lp_sim_image_at(bench->sim, last, NULL, seed, &left));
	int cnt = flipped_bits(left, tag, 0, 1);
	lp_bdev_close(left);
	return cnt;
}

static void test_sim20_rot(void **state)
{
	(void)state;
	struct lpi_bench bench;
	open_plain(&bench);
	lp_test_ok(write_through(&bench, 1, 0, 8));
	lp_sim_rot(bench.sim, 100, 10, 5);
	assert_int_equal(flipped_bits(bench.bdev, 1, 0, 1), 5);
	assert_int_equal(flipped_bits(bench.bdev, 1, 1, 7), 0);
	for (uint64_t seed = 0; seed < 20; seed++)
		assert_int_equal(flipped_after_cut(&bench, 1, seed), 5);
	lp_test_ok(flush(&bench));
	assert_int_equal(flipped_bits(bench.bdev, 1, 0, 1), 5);
	assert_int_equal(flipped_after_cut(&bench, 1, 0), 5);
	/* A rewrite heals it, once it is durable. */
	lp_test_ok(write_tag(&bench, 1, 0, 1));
	assert_int_equal(flipped_bits(bench.bdev, 1, 0, 1), 0);
	bool seen[6] = {false};
	for (uint64_t seed = 0; seed < 50; seed++)
		seen[flipped_after_cut(&bench, 1, seed)] = true;
	assert_true(seen[0] && seen[5]);
	lp_test_ok(flush(&bench));
	assert_int_equal(flipped_after_cut(&bench, 1, 0), 0);
	lpi_bench_fini(&bench);
}

static void test_sim20_rot_by_rule(void **state)
{
	(void)state;
	struct lpi_bench bench;
	open_plain(&bench);
	lp_test_ok(write_through(&bench, 1, 0, 2));
	(void)add(&bench, (struct lp_sim_rule){.fault = LP_SIM_ROT,
					       .opcode_mask = LP_SIM_OP(LP_BDEV_READ),
					       .length_bytes = 4096,
					       .fire_cnt = 1,
					       .arg = 3});
	struct lpi_bench_op *op = lpi_bench_submit(&bench, LP_BDEV_READ, 0, 0, 2);
	lpi_bench_wait(&bench, op);
	assert_int_equal(lpi_bench_tag_of(op->buf, 4096), LP_BENCH_MIXED); /* this read sees it */
	assert_int_equal(lpi_bench_tag_of(op->buf + 4096, 4096), 1);
	free(op);
	assert_int_equal(flipped_bits(bench.bdev, 1, 0, 2), 3);
	(void)add(&bench,
		  (struct lp_sim_rule){
			  .fault = LP_SIM_ROT, .opcode_mask = WRITES, .fire_cnt = 1, .arg = 4});
	lp_test_ok(write_through(&bench, 1, 0, 1));
	assert_int_equal(flipped_bits(bench.bdev, 1, 0, 2), 4);
	lpi_bench_fini(&bench);
}

/* Rot of a discarded sector is as open as the discard is; on a protected device it is at once in
 * the medium. */
static void test_sim20_rot_beside_discard(void **state)
{
	(void)state;
	struct lp_sim_profile profile = lpi_bench_plain_profile(4096);
	struct lpi_bench bench;
	for (int protected = 0; protected < 2; protected ++) {
		profile.power_protected = protected == 1;
		lpi_bench_init(&bench, &profile, 1);
		lp_test_ok(lpi_bench_do(&bench, LP_BDEV_DISCARD, 0, 0, 1));
		lp_sim_rot(bench.sim, 4096, 0, 7);
		lp_test_ok(flush(&bench));
		assert_int_equal(flipped_bits(bench.bdev, 0, 0, 1), 7);
		for (uint64_t seed = 0; seed < 20; seed++)
			assert_int_equal(flipped_after_cut(&bench, 0, seed), 7);
		lpi_bench_fini(&bench);
	}
}

static void test_sim21_misdirected(void **state)
{
	(void)state;
	struct lpi_bench bench;
	open_plain(&bench);
	lp_test_ok(write_through(&bench, 1, 0, 4));
	(void)add(&bench, (struct lp_sim_rule){
				  .fault = LP_SIM_MISDIRECT, .fire_cnt = 2, .arg = 10 * SECTOR});
	struct lpi_bench_op *op = lpi_bench_submit(&bench, LP_BDEV_WRITE, 2, 0, 2);
	LP_BENCH_EXPECT(&bench, 10, 0, 2);
	lpi_bench_wait(&bench, op);
	lp_test_ok(op->op.result);
	free(op);
	assert_int_equal(count_tags(bench.bdev, 1, 1, 4), 4);
	assert_int_equal(lpi_bench_peek(bench.bdev, 10), 2);
	assert_int_equal(lpi_bench_peek(bench.bdev, 11), 2);
	LP_BENCH_EXPECT(&bench, 0, 1);
	LP_BENCH_EXPECT(&bench, 10, 0, 2);
	lp_test_ok(write_through(&bench, 3, 0, 1));
	LP_BENCH_EXPECT(&bench, 10, 3);
	lp_sim_rules_clear(bench.sim);
	/* Near the end it is moved back. */
	uint64_t last = LP_BENCH_SIZE / 4096 - 1;
	(void)add(&bench, (struct lp_sim_rule){.fault = LP_SIM_MISDIRECT, .arg = last * SECTOR});
	lp_test_ok(write_tag(&bench, 4, 0, 3));
	assert_int_equal(lpi_bench_peek(bench.bdev, last - 2), 4);
	assert_int_equal(lpi_bench_peek(bench.bdev, last), 4);
	lpi_bench_fini(&bench);
}

static void test_sim22_lost(void **state)
{
	(void)state;
	struct lpi_bench bench;
	open_plain(&bench);
	lp_test_ok(write_through(&bench, 1, 0, 1));
	(void)add(&bench, (struct lp_sim_rule){.fault = LP_SIM_LOST, .fire_cnt = 2});
	lp_test_ok(write_tag(&bench, 2, 0, 1));
	lp_test_ok(write_through(&bench, 3, 0, 1));
	lp_test_ok(flush(&bench));
	assert_int_equal(lpi_bench_peek(bench.bdev, 0), 1);
	LP_BENCH_EXPECT(&bench, 0, 1);
	lp_test_ok(write_through(&bench, 4, 0, 1));
	assert_int_equal(lpi_bench_peek(bench.bdev, 0), 4);
	lpi_bench_fini(&bench);
}

static void test_sim23_stale(void **state)
{
	(void)state;
	struct lpi_bench bench;
	open_plain(&bench);
	lp_test_ok(write_through(&bench, 1, 0, 16));
	(void)add(&bench,
		  (struct lp_sim_rule){.fault = LP_SIM_STALE, .skip_cnt = 1, .fire_cnt = 1});
	lp_test_ok(write_through(&bench, 2, 0, 16));
	for (int n = 0; n < 3; n++) {
		struct lpi_bench_op *op = lpi_bench_submit(&bench, LP_BDEV_READ, 0, 0, 16);
		lpi_bench_wait(&bench, op);
		/* All of it, not a mixture. */
		assert_int_equal(lpi_bench_tag_of(op->buf, 16 * SECTOR), n == 1 ? 1 : 2);
		free(op);
	}
	LP_BENCH_EXPECT(&bench, 0, 2);
	lpi_bench_fini(&bench);
}

static void test_sim24_slow(void **state)
{
	(void)state;
	struct lpi_bench bench;
	open_plain(&bench);
	(void)add(&bench, (struct lp_sim_rule){.fault = LP_SIM_SLOW,
					       .opcode_mask = LP_SIM_OP(LP_BDEV_FLUSH),
					       .arg = 7 * LP_NS_PER_S});
	struct lpi_bench_op *op = lpi_bench_submit(&bench, LP_BDEV_FLUSH, 0, 0, 1);
	uint64_t start_ns = bench.clock.now_ns;
	lp_test_ok(write_tag(&bench, 1, 0, 1));
	assert_true(bench.clock.now_ns - start_ns <= 2000);
	assert_false(op->done);
	lpi_bench_wait(&bench, op);
	assert_in_range(bench.clock.now_ns - start_ns, 7 * LP_NS_PER_S, 7 * LP_NS_PER_S + 4000);
	free(op);
	start_ns = bench.clock.now_ns;
	lp_test_ok(lp_bdev_flush_sync(bench.bdev));
	assert_true(bench.clock.now_ns == start_ns);
	lpi_bench_fini(&bench);
}

static void test_sim25_enospc(void **state)
{
	(void)state;
	failed_write(LP_SIM_ENOSPC, -ENOSPC, LP_BDEV_WRITE);
	failed_write(LP_SIM_ENOSPC, -ENOSPC, LP_BDEV_WRITE_THROUGH);
}

static void test_sim26_vanish(void **state)
{
	(void)state;
	struct lpi_bench bench;
	open_plain(&bench);
	lp_test_ok(write_through(&bench, 1, 0, 2));
	struct lpi_bench_op *before = lpi_bench_submit(&bench, LP_BDEV_WRITE_THROUGH, 2, 0, 1);
	(void)add(&bench,
		  (struct lp_sim_rule){.fault = LP_SIM_VANISH, .skip_cnt = 1, .fire_cnt = 1});
	lp_test_ok(read_one(&bench, 1));
	lp_test_err(-ENODEV, write_tag(&bench, 3, 1, 1));
	lpi_bench_wait(&bench, before);
	lp_test_ok(before->op.result);
	free(before);
	lp_test_err(-ENODEV, read_one(&bench, 0));
	lp_test_err(-ENODEV, flush(&bench));
	lp_test_err(-ENODEV, lpi_bench_do(&bench, LP_BDEV_DISCARD, 0, 0, 2));
	lp_test_err(-ENODEV, lp_bdev_flush_sync(bench.bdev));
	lp_test_err(-ENODEV, lp_bdev_refresh_size(bench.bdev));
	lp_sim_rules_clear(bench.sim); /* it does not come back */
	lp_test_err(-ENODEV, read_one(&bench, 0));
	LP_BENCH_EXPECT(&bench, 0, 2);
	LP_BENCH_EXPECT(&bench, 1, 1);
	lpi_bench_fini(&bench);
}

/* --- SIM27 -------------------------------------------------------------------------------------
 */

static void test_sim27_mask_and_range(void **state)
{
	(void)state;
	struct lpi_bench bench;
	open_plain(&bench);
	uint32_t rule = add(&bench, (struct lp_sim_rule){.fault = LP_SIM_EIO,
							 .opcode_mask = LP_SIM_OP(LP_BDEV_READ),
							 .offset_bytes = 8 * SECTOR,
							 .length_bytes = 2 * SECTOR});
	lp_test_ok(write_tag(&bench, 1, 8, 2));
	lp_test_ok(lpi_bench_do(&bench, LP_BDEV_READ, 0, 0, 8));
	lp_test_ok(read_one(&bench, 10));
	lp_test_ok(flush(&bench));
	assert_int_equal(lp_sim_rule_fired(bench.sim, rule), 0);
	lp_test_err(-EIO, read_one(&bench, 8));
	lp_test_err(-EIO, read_one(&bench, 9));
	lp_test_err(-EIO, lpi_bench_do(&bench, LP_BDEV_READ, 0, 7, 2));
	lp_test_err(-EIO, lpi_bench_do(&bench, LP_BDEV_READ, 0, 0, 16));
	assert_int_equal(lp_sim_rule_fired(bench.sim, rule), 4);
	lp_sim_rules_clear(bench.sim);
	/* A flush meets any range; length 0 goes to the end. */
	(void)add(&bench,
		  (struct lp_sim_rule){.fault = LP_SIM_EIO, .offset_bytes = LP_BENCH_SIZE - 4096});
	lp_test_err(-EIO, flush(&bench));
	lp_test_ok(read_one(&bench, LP_BENCH_SIZE / 4096 - 2));
	lp_test_err(-EIO, read_one(&bench, LP_BENCH_SIZE / 4096 - 1));
	lpi_bench_fini(&bench);
}

static void test_sim27_counts(void **state)
{
	(void)state;
	struct lpi_bench bench;
	open_plain(&bench);
	uint32_t first = add(
		&bench, (struct lp_sim_rule){.fault = LP_SIM_EIO, .skip_cnt = 3, .fire_cnt = 2});
	/* Counts for itself, though the first has already struck. */
	uint32_t second =
		add(&bench, (struct lp_sim_rule){.fault = LP_SIM_SLOW, .skip_cnt = 4, .arg = 1});
	for (int n = 0; n < 8; n++)
		assert_int_equal(read_one(&bench, 0), n == 3 || n == 4 ? -EIO : 0);
	assert_int_equal(lp_sim_rule_fired(bench.sim, first), 2);
	assert_int_equal(lp_sim_rule_fired(bench.sim, second), 4);
	lpi_bench_fini(&bench);
}

static void test_sim27_chance(void **state)
{
	(void)state;
	struct lpi_bench bench;
	open_plain(&bench);
	(void)add(&bench, (struct lp_sim_rule){.fault = LP_SIM_EIO, .chance_ppm = 250000});
	int failed_cnt = 0;
	for (int n = 0; n < 1000; n++)
		failed_cnt += read_one(&bench, 0) < 0;
	assert_in_range(failed_cnt, 200, 300);
	lpi_bench_fini(&bench);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_sim17_eio),
		cmocka_unit_test(test_sim17_eio_in_flight),
		cmocka_unit_test(test_sim17_atomic),
		cmocka_unit_test(test_sim18_failed_flush_keeps),
		cmocka_unit_test(test_sim18_failed_flush_drops),
		cmocka_unit_test(test_sim19_latent),
		cmocka_unit_test(test_sim19_spoil),
		cmocka_unit_test(test_sim20_rot),
		cmocka_unit_test(test_sim20_rot_by_rule),
		cmocka_unit_test(test_sim20_rot_beside_discard),
		cmocka_unit_test(test_sim21_misdirected),
		cmocka_unit_test(test_sim22_lost),
		cmocka_unit_test(test_sim23_stale),
		cmocka_unit_test(test_sim24_slow),
		cmocka_unit_test(test_sim25_enospc),
		cmocka_unit_test(test_sim26_vanish),
		cmocka_unit_test(test_sim33_through_flushes),
		cmocka_unit_test(test_sim33_lost_in_flight),
		cmocka_unit_test(test_sim34_foreign),
		cmocka_unit_test(test_flushes_are_doubted),
		cmocka_unit_test(test_blocking_write_through_flushes),
		cmocka_unit_test(test_doubt_is_shared),
		cmocka_unit_test(test_sim27_mask_and_range),
		cmocka_unit_test(test_sim27_counts),
		cmocka_unit_test(test_sim27_chance),
	};
	return lp_test_main(tests, "store/device/sim/fault");
}
