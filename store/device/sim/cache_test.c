/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: what a power cut may leave, and what it may not: clauses SIM7 to SIM16 of
 * store/device/sim/README.md. Method: each test brings the device to a state and cuts it there with
 * hundreds of seeds; the set of outcomes of a sector must be exactly the set the clause allows. */
#include "store/device/sim/sim_test.h"

static void open_plain(struct lpi_bench *bench, uint32_t sector_bytes)
{
	struct lp_sim_profile profile = lpi_bench_plain_profile(sector_bytes);
	/* Flushes are slower than writes, so that writes can complete beside them. */
	profile.latency[LP_BDEV_FLUSH] = (struct lp_sim_latency){10000, 20000};
	lpi_bench_init(bench, &profile, 1);
}

static int write_tag(struct lpi_bench *bench, int tag, uint64_t sector_idx, uint64_t sector_cnt)
{
	return lpi_bench_do(bench, LP_BDEV_WRITE, tag, sector_idx, sector_cnt);
}

static int write_through(struct lpi_bench *bench, int tag, uint64_t sector_idx, uint64_t sector_cnt)
{
	return lpi_bench_do(bench, LP_BDEV_WRITE_THROUGH, tag, sector_idx, sector_cnt);
}

static int flush(struct lpi_bench *bench)
{
	return lpi_bench_do(bench, LP_BDEV_FLUSH, 0, 0, 1);
}

static struct lp_bdev *cut_now(struct lpi_bench *bench, uint64_t seed)
{
	struct lp_sim_cutter *cutter = NULL;
	lp_test_ok(lp_sim_cutter_new(bench->sim, NULL, &cutter));
	while (lp_sim_cutter_next(cutter))
		continue;
	struct lp_bdev *left = lp_sim_cutter_cut(cutter, seed);
	lp_sim_cutter_free(cutter);
	return left;
}

/* Bit i of the result: sector i holds the tag after this cut. */
static unsigned survivors(struct lpi_bench *bench, int tag, uint64_t sector_cnt, uint64_t seed)
{
	struct lp_bdev *left = cut_now(bench, seed);
	unsigned bits = 0;
	for (uint64_t i = 0; i < sector_cnt; i++)
		bits |= (unsigned)(lpi_bench_peek(left, i) == tag) << i;
	lp_bdev_close(left);
	return bits;
}

/* How many of the 2^sector_cnt sets of survivors are met. */
static unsigned combinations(struct lpi_bench *bench, int tag, uint64_t sector_cnt)
{
	bool seen[256] = {false};
	unsigned cnt = 0;
	for (uint64_t seed = 0; seed < LP_BENCH_SEED_CNT; seed++) {
		unsigned bits = survivors(bench, tag, sector_cnt, seed);
		cnt += !seen[bits];
		seen[bits] = true;
	}
	return cnt;
}

static void test_sim7_complete_is_not_durable(void **state)
{
	(void)state;
	struct lpi_bench bench;
	open_plain(&bench, 4096);
	lp_test_ok(write_tag(&bench, 1, 0, 4));
	LP_BENCH_EXPECT(&bench, 0, 0, 1);
	LP_BENCH_EXPECT(&bench, 3, 0, 1);
	LP_BENCH_EXPECT(&bench, 4, 0);
	/* Sector by sector: every combination is met. */
	assert_int_equal(combinations(&bench, 1, 4), 16);
	lpi_bench_fini(&bench);
}

static void test_sim8_in_flight(void **state)
{
	(void)state;
	for (int through = 0; through < 2; through++) {
		struct lpi_bench bench;
		open_plain(&bench, 512);
		struct lpi_bench_op *op = lpi_bench_submit(
			&bench, through ? LP_BDEV_WRITE_THROUGH : LP_BDEV_WRITE, 1, 0, 4);
		assert_int_equal(combinations(&bench, 1, 4), 16);
		lpi_bench_wait(&bench, op);
		free(op);
		lpi_bench_fini(&bench);
	}
}

/* Two overlapping writes in flight: either may come out on top, whole. */
static void test_sim8_no_order(void **state)
{
	(void)state;
	struct lpi_bench bench;
	open_plain(&bench, 512);
	struct lpi_bench_op *a = lpi_bench_submit(&bench, LP_BDEV_WRITE, 1, 0, 1);
	struct lpi_bench_op *b = lpi_bench_submit(&bench, LP_BDEV_WRITE, 2, 0, 1);
	int cnts[3] = {0};
	for (uint64_t seed = 0; seed < LP_BENCH_SEED_CNT; seed++) {
		struct lp_bdev *left = cut_now(&bench, seed);
		int tag = lpi_bench_peek(left, 0);
		assert_in_range(tag, 0, 2);
		cnts[tag]++;
		lp_bdev_close(left);
	}
	/* Neither is favoured: with a fixed order one would win twice as often. */
	assert_in_range(cnts[0], LP_BENCH_SEED_CNT / 10, LP_BENCH_SEED_CNT / 2);
	assert_in_range(cnts[1], LP_BENCH_SEED_CNT * 3 / 10, LP_BENCH_SEED_CNT / 2);
	assert_in_range(cnts[2], LP_BENCH_SEED_CNT * 3 / 10, LP_BENCH_SEED_CNT / 2);
	lpi_bench_wait(&bench, a);
	lpi_bench_wait(&bench, b);
	free(a);
	free(b);
	lpi_bench_fini(&bench);
}

static void test_sim9_flush_covers_what_completed(void **state)
{
	(void)state;
	struct lpi_bench bench;
	open_plain(&bench, 4096);
	lp_test_ok(write_tag(&bench, 1, 0, 2));
	struct lpi_bench_op *op = lpi_bench_submit(&bench, LP_BDEV_FLUSH, 0, 0, 1);
	LP_BENCH_EXPECT(&bench, 0, 0, 1); /* not yet */
	lpi_bench_wait(&bench, op);
	lp_test_ok(op->op.result);
	LP_BENCH_EXPECT(&bench, 0, 1);
	LP_BENCH_EXPECT(&bench, 1, 1);
	free(op);
	lpi_bench_fini(&bench);
}

static void test_sim9_flush_covers_no_more(void **state)
{
	(void)state;
	struct lpi_bench bench;
	open_plain(&bench, 4096);
	struct lpi_bench_op *flying = lpi_bench_submit(&bench, LP_BDEV_WRITE, 1, 0, 1);
	struct lpi_bench_op *op = lpi_bench_submit(&bench, LP_BDEV_FLUSH, 0, 0, 1);
	struct lpi_bench_op *late = lpi_bench_submit(&bench, LP_BDEV_WRITE, 1, 1, 1);
	lpi_bench_wait(&bench, op);
	/* Both completed before the flush did, neither before it was submitted. */
	assert_true(flying->done && late->done);
	LP_BENCH_EXPECT(&bench, 0, 0, 1);
	LP_BENCH_EXPECT(&bench, 1, 0, 1);
	lp_test_ok(flush(&bench));
	LP_BENCH_EXPECT(&bench, 0, 1);
	LP_BENCH_EXPECT(&bench, 1, 1);
	free(flying);
	free(op);
	free(late);
	lpi_bench_fini(&bench);
}

static void test_sim10_write_through(void **state)
{
	(void)state;
	struct lpi_bench bench;
	open_plain(&bench, 4096);
	lp_test_ok(write_tag(&bench, 1, 0, 3));
	lp_test_ok(write_through(&bench, 2, 1, 1));
	LP_BENCH_EXPECT(&bench, 1, 2);    /* and tag 1 cannot come back */
	LP_BENCH_EXPECT(&bench, 0, 0, 1); /* nothing else went with it */
	LP_BENCH_EXPECT(&bench, 2, 0, 1);
	/* A later flush of the older write does not bring it back either. */
	lp_test_ok(flush(&bench));
	LP_BENCH_EXPECT(&bench, 0, 1);
	LP_BENCH_EXPECT(&bench, 1, 2);
	LP_BENCH_EXPECT(&bench, 2, 1);
	lpi_bench_fini(&bench);
}

static void test_sim11_any_version(void **state)
{
	(void)state;
	struct lpi_bench bench;
	open_plain(&bench, 4096);
	lp_test_ok(write_through(&bench, 9, 0, 2));
	lp_test_ok(write_tag(&bench, 1, 0, 1));
	lp_test_ok(write_tag(&bench, 2, 0, 2));
	lp_test_ok(write_tag(&bench, 3, 0, 1));
	LP_BENCH_EXPECT(&bench, 0, 9, 1, 2, 3);
	LP_BENCH_EXPECT(&bench, 1, 9, 2);
	/* With a flush between, what was before it is gone. */
	lp_test_ok(flush(&bench));
	lp_test_ok(write_tag(&bench, 4, 0, 1));
	LP_BENCH_EXPECT(&bench, 0, 3, 4);
	/* A flush that covers only some of them. */
	struct lpi_bench_op *op = lpi_bench_submit(&bench, LP_BDEV_FLUSH, 0, 0, 1);
	lp_test_ok(write_tag(&bench, 5, 0, 1));
	lpi_bench_wait(&bench, op);
	LP_BENCH_EXPECT(&bench, 0, 4, 5);
	free(op);
	lpi_bench_fini(&bench);
}

/* Runs before and after a flush, against a write-through beside them. */
static void test_sim11_through_among_others(void **state)
{
	(void)state;
	struct lpi_bench bench;
	open_plain(&bench, 4096);
	lp_test_ok(write_tag(&bench, 1, 0, 1));
	lp_test_ok(write_through(&bench, 2, 0, 1));
	lp_test_ok(write_tag(&bench, 3, 0, 1));
	LP_BENCH_EXPECT(&bench, 0, 2, 3);
	lpi_bench_fini(&bench);
}

static void test_sim12_atomic(void **state)
{
	(void)state;
	struct lp_sim_profile profile = lpi_bench_plain_profile(512);
	struct lpi_bench bench;
	profile.atomic_write_bytes = 2048;
	profile.tears_sectors = true;
	profile.leaves_garbage = true;
	lpi_bench_init(&bench, &profile, 1);
	lp_test_ok(write_tag(&bench, 1, 0, 4));
	LP_BENCH_EXPECT(&bench, 2, 0, 1); /* neither torn nor garbage */
	assert_int_equal(combinations(&bench, 1, 4), 2);
	lp_test_ok(write_through(&bench, 9, 0, 8));
	/* In flight, and shorter than the unit. */
	struct lpi_bench_op *op = lpi_bench_submit(&bench, LP_BDEV_WRITE_THROUGH, 2, 1, 3);
	for (uint64_t seed = 0; seed < LP_BENCH_SEED_CNT; seed++) {
		unsigned bits = survivors(&bench, 2, 4, seed);
		assert_true(bits == 0 || bits == 0xe);
	}
	lpi_bench_wait(&bench, op);
	free(op);
	/* Across a boundary, and longer than the unit: no promise. */
	lp_test_ok(write_tag(&bench, 3, 2, 4));
	assert_true(combinations(&bench, 3, 6) > 8);
	lp_test_ok(write_through(&bench, 9, 0, 8));
	lp_test_ok(write_tag(&bench, 4, 0, 8));
	assert_true(combinations(&bench, 4, 4) == 16);
	lpi_bench_fini(&bench);
}

/* Counts the zeroed among the sectors; the others must hold the tag. */
static int zeros_in(struct lp_bdev *bdev, int tag, uint64_t sector_cnt)
{
	int cnt = 0;
	for (uint64_t i = 0; i < sector_cnt; i++) {
		int got = lpi_bench_peek(bdev, i);
		assert_true(got == 0 || got == tag);
		cnt += got == 0;
	}
	return cnt;
}

static void test_sim13_discard(void **state)
{
	(void)state;
	struct lpi_bench bench;
	open_plain(&bench, 4096);
	lp_test_ok(write_through(&bench, 1, 0, 16));
	LP_BENCH_EXPECT(&bench, 0, 1);
	lp_test_ok(lpi_bench_do(&bench, LP_BDEV_DISCARD, 0, 0, 16));
	/* Reads: a mixture, and the same each time. */
	assert_in_range(zeros_in(bench.bdev, 1, 16), 2, 14);
	assert_int_equal(zeros_in(bench.bdev, 1, 16), zeros_in(bench.bdev, 1, 16));
	LP_BENCH_EXPECT(&bench, 0, 0, 1);
	/* A flush does not decide it, a lost rewrite neither. */
	lp_test_ok(flush(&bench));
	LP_BENCH_EXPECT(&bench, 0, 0, 1);
	lp_test_ok(write_tag(&bench, 2, 0, 1));
	assert_int_equal(lpi_bench_peek(bench.bdev, 0), 2);
	LP_BENCH_EXPECT(&bench, 0, 0, 1, 2);
	lp_test_ok(flush(&bench));
	LP_BENCH_EXPECT(&bench, 0, 2);
	LP_BENCH_EXPECT(&bench, 1, 0, 1);
	lpi_bench_fini(&bench);
}

static void test_sim13_discard_in_flight(void **state)
{
	(void)state;
	struct lpi_bench bench;
	open_plain(&bench, 4096);
	lp_test_ok(write_through(&bench, 1, 0, 16));
	struct lpi_bench_op *op = lpi_bench_submit(&bench, LP_BDEV_DISCARD, 0, 0, 16);
	LP_BENCH_EXPECT(&bench, 0, 0, 1);
	assert_in_range(zeros_in(bench.bdev, 1, 16), 2, 14);
	lpi_bench_wait(&bench, op);
	free(op);
	lpi_bench_fini(&bench);
}

/* Beyond the limit the oldest keep what reads saw: no endless list. */
static void test_sim13_many_discards(void **state)
{
	(void)state;
	struct lp_sim_profile profile = lpi_bench_plain_profile(512);
	struct lpi_bench bench;
	int before[600];
	uint64_t cnt = LP_ARRAY_SIZE(before);
	lpi_bench_init(&bench, &profile, 2);
	for (uint64_t i = 0; i < cnt; i += 100)
		lp_test_ok(write_through(&bench, 1, i, 100));
	for (uint64_t i = 0; i < cnt; i++)
		lp_test_ok(lpi_bench_do(&bench, LP_BDEV_DISCARD, 0, i, 1));
	LP_BENCH_EXPECT(&bench, 0, 0, 1);
	lp_test_ok(flush(&bench));
	for (uint64_t i = 0; i < cnt; i++)
		before[i] = lpi_bench_peek(bench.bdev, i);
	struct lp_bdev *left = cut_now(&bench, 7);
	for (uint64_t i = 0; i < cnt - 256; i++)
		assert_int_equal(lpi_bench_peek(left, i), before[i]);
	lp_bdev_close(left);
	LP_BENCH_EXPECT(&bench, cnt - 1, 0, 1);
	lpi_bench_fini(&bench);
}

static void test_sim13_no_discard(void **state)
{
	(void)state;
	struct lp_sim_profile profile = lpi_bench_plain_profile(4096);
	struct lpi_bench bench;
	profile.no_discard = true;
	lpi_bench_init(&bench, &profile, 1);
	lp_test_ok(write_through(&bench, 1, 0, 8));
	lp_test_err(-EOPNOTSUPP, lpi_bench_do(&bench, LP_BDEV_DISCARD, 0, 0, 8));
	assert_int_equal(zeros_in(bench.bdev, 1, 8), 0);
	LP_BENCH_EXPECT(&bench, 0, 1);
	lpi_bench_fini(&bench);
}

static void test_sim14_half_a_sector(void **state)
{
	(void)state;
	_Alignas(4096) unsigned char buf[4096];
	bool first_half = false;
	bool second_half = false;
	struct lp_sim_profile profile = lpi_bench_plain_profile(4096);
	struct lpi_bench bench;
	profile.tears_sectors = true;
	lpi_bench_init(&bench, &profile, 1);
	lp_test_ok(write_through(&bench, 1, 0, 1));
	LP_BENCH_EXPECT(&bench, 0, 1); /* what is durable is never torn */
	lp_test_ok(write_tag(&bench, 2, 0, 1));
	LP_BENCH_EXPECT(&bench, 0, 1, 2, LP_BENCH_MIXED);
	for (uint64_t seed = 0; seed < LP_BENCH_SEED_CNT; seed++) {
		struct lp_bdev *left = cut_now(&bench, seed);
		lp_test_ok(lp_bdev_read_sync(left, buf, 4096, 0));
		int first = lpi_bench_tag_of(buf, 2048);
		int second = lpi_bench_tag_of(buf + 2048, 2048);
		assert_in_range(first, 1, 2);
		assert_in_range(second, 1, 2);
		first_half |= first == 2 && second == 1;
		second_half |= first == 1 && second == 2;
		lp_bdev_close(left);
	}
	assert_true(first_half && second_half);
	lpi_bench_fini(&bench);
}

static void test_sim15_garbage(void **state)
{
	(void)state;
	_Alignas(4096) unsigned char buf[4096];
	int garbage_cnt = 0;
	struct lp_sim_profile profile = lpi_bench_plain_profile(4096);
	struct lpi_bench bench;
	profile.leaves_garbage = true;
	lpi_bench_init(&bench, &profile, 1);
	lp_test_ok(write_through(&bench, 1, 0, 1));
	LP_BENCH_EXPECT(&bench, 0, 1);
	struct lpi_bench_op *op = lpi_bench_submit(&bench, LP_BDEV_WRITE, 2, 0, 1);
	LP_BENCH_EXPECT(&bench, 0, 1, 2, LP_BENCH_MIXED);
	for (uint64_t seed = 0; seed < LP_BENCH_SEED_CNT; seed++) {
		struct lp_bdev *left = cut_now(&bench, seed);
		lp_test_ok(lp_bdev_read_sync(left, buf, 4096, 0));
		garbage_cnt += lpi_bench_tag_of(buf, 2048) == LP_BENCH_MIXED &&
			       lpi_bench_tag_of(buf + 2048, 2048) == LP_BENCH_MIXED;
		lp_bdev_close(left);
	}
	assert_true(garbage_cnt > LP_BENCH_SEED_CNT / 50);
	lpi_bench_wait(&bench, op);
	free(op);
	lpi_bench_fini(&bench);
}

static void test_sim16_power_protected(void **state)
{
	(void)state;
	struct lp_sim_profile profile = lpi_bench_plain_profile(512);
	struct lpi_bench bench;
	profile.power_protected = true;
	profile.tears_sectors = true;
	profile.leaves_garbage = true;
	lpi_bench_init(&bench, &profile, 1);
	lp_test_ok(write_tag(&bench, 1, 0, 4));
	LP_BENCH_EXPECT(&bench, 0, 1);
	LP_BENCH_EXPECT(&bench, 3, 1);
	struct lpi_bench_op *op = lpi_bench_submit(&bench, LP_BDEV_WRITE, 2, 0, 4);
	LP_BENCH_EXPECT(&bench, 0, 1, 2);
	assert_int_equal(combinations(&bench, 2, 4), 16);
	lpi_bench_wait(&bench, op);
	free(op);
	LP_BENCH_EXPECT(&bench, 0, 2);
	/* A discard stays open all the same. */
	lp_test_ok(lpi_bench_do(&bench, LP_BDEV_DISCARD, 0, 0, 4));
	LP_BENCH_EXPECT(&bench, 0, 0, 2);
	lpi_bench_fini(&bench);
}

/* The moods: among many sectors all lost and all kept are met, and so is one whole operation
 * beside another that is wholly lost. */
static void test_moods(void **state)
{
	(void)state;
	struct lpi_bench bench;
	open_plain(&bench, 512);
	lp_test_ok(write_tag(&bench, 1, 0, 64));
	lp_test_ok(write_tag(&bench, 1, 64, 64));
	int all = 0;
	int none = 0;
	int one = 0;
	for (uint64_t seed = 0; seed < 100; seed++) {
		struct lp_bdev *left = cut_now(&bench, seed);
		int first = 64 - zeros_in(left, 1, 64);
		int both = 128 - zeros_in(left, 1, 128);
		all += both == 128;
		none += both == 0;
		one += both == 64 && (first == 0 || first == 64);
		lp_bdev_close(left);
	}
	assert_in_range(all, 5, 35);
	assert_in_range(none, 5, 35);
	assert_in_range(one, 2, 30);
	lpi_bench_fini(&bench);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_sim7_complete_is_not_durable),
		cmocka_unit_test(test_sim8_in_flight),
		cmocka_unit_test(test_sim8_no_order),
		cmocka_unit_test(test_sim9_flush_covers_what_completed),
		cmocka_unit_test(test_sim9_flush_covers_no_more),
		cmocka_unit_test(test_sim10_write_through),
		cmocka_unit_test(test_sim11_any_version),
		cmocka_unit_test(test_sim11_through_among_others),
		cmocka_unit_test(test_sim12_atomic),
		cmocka_unit_test(test_sim13_discard),
		cmocka_unit_test(test_sim13_discard_in_flight),
		cmocka_unit_test(test_sim13_many_discards),
		cmocka_unit_test(test_sim13_no_discard),
		cmocka_unit_test(test_sim14_half_a_sector),
		cmocka_unit_test(test_sim15_garbage),
		cmocka_unit_test(test_sim16_power_protected),
		cmocka_unit_test(test_moods),
	};
	return lp_test_main(tests, "store/device/sim/cache");
}
