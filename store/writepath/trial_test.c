/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: of two paths the one is taken that is the quicker for long, wherever one begins: also if
 * its burst is quicker and what comes later makes it the slower one, and if the other way round;
 * what it costs to look is little, noise changes little, and what has changed, or was seen in a bad
 * moment, is found out. Method: clients that keep a number of writes going on a device of which is
 * said how long each path takes for one, and the later part of a deferred one, which begins when
 * much of it waits. */
#include "base/testing/test.h"

#include "base/prng.h"
#include "store/writepath/trial.h"

#define DEPTH_MAX 128u
#define WAITS_MAX 4000u /* deferred blocks, until they are done */

struct world {
	double burst_us;
	double later_us;
	double direct_us;
	uint32_t lump; /* what comes later is in the way of one in so many, and as much longer */
	double noise;  /* a write takes up to so many times as long, or as short */
	uint32_t depth;
	uint32_t blocks;
	struct lp_prng prng;
	struct lp_contest contest;
	struct lp_contest_later later;
	bool is_doing; /* what was deferred */
	double now_us;
	struct lp_contest_write writes[DEPTH_MAX];
	enum lp_write_path paths[DEPTH_MAX];
	double begun_us[DEPTH_MAX];
	uint64_t begun_cnt;
	uint64_t cnts[LP_PATH_CNT]; /* begun, by path */
};

static void begin_one(struct world *world)
{
	uint32_t at = (uint32_t)(world->begun_cnt++ % world->depth);
	world->paths[at] =
		lp_contest_begin(&world->contest, world->depth, world->blocks, &world->writes[at]);
	world->begun_us[at] = world->now_us;
	world->cnts[world->paths[at]]++;
}

static void init(struct world *world, enum lp_write_path path, uint32_t depth)
{
	lp_prng_init(&world->prng, 1);
	lp_contest_init(&world->contest, path, LP_CONTEST_NEAR);
	world->depth = depth;
	world->blocks = LP_MAX(world->blocks, 4u);
	for (uint32_t i = 0; i < depth; i++)
		begin_one(world);
}

static double noise_of(struct world *world)
{
	double part = (double)lp_prng_below(&world->prng, 1000) / 1000;
	double factor = 1 + part * (world->noise - 1);
	return world->noise == 0 ? 1 : lp_prng_below(&world->prng, 2) == 0 ? factor : 1 / factor;
}

/* Once much waits it is done, as much for each write as that defers, or, if nothing is deferred any
 * more, as much again until it is all done. */
static double later_us(struct world *world, bool is_deferred)
{
	uint64_t waits = world->later.added - world->later.done;
	world->is_doing = waits > WAITS_MAX || (world->is_doing && waits >= world->blocks);
	if (is_deferred)
		world->later.added += world->blocks;
	if (!world->is_doing)
		return 0;
	world->later.done += world->blocks;
	if (world->lump == 0)
		return world->later_us;
	return world->begun_cnt % world->lump == 0 ? world->later_us * world->lump : 0;
}

/* The oldest ends, and the next one begins. */
static void run(struct world *world, uint64_t cnt)
{
	for (uint64_t i = 0; i < cnt; i++) {
		uint32_t at = (uint32_t)(world->begun_cnt % world->depth);
		bool is_deferred = world->paths[at] == LP_PATH_DEFERRED;
		double us = is_deferred ? world->burst_us : world->direct_us;
		us += later_us(world, is_deferred);
		world->now_us += us * noise_of(world);
		lp_contest_end(&world->contest, &world->writes[at],
			       (uint64_t)((world->now_us - world->begun_us[at]) * 1000),
			       &world->later);
		begin_one(world);
	}
}

/* Of the next writes so many per cent take the path. */
static double share_of(struct world *world, enum lp_write_path path, uint64_t cnt)
{
	uint64_t before = world->cnts[path];
	run(world, cnt);
	return 100.0 * (double)(world->cnts[path] - before) / (double)cnt;
}

struct case_of {
	double burst_us;
	double later_us;
	double direct_us;
	enum lp_write_path better;
};

static void test_takes_the_better(void **state)
{
	(void)state;
	static const struct case_of cases[] = {
		{5, 1, 11, LP_PATH_DEFERRED},   {12, 7, 15, LP_PATH_DIRECT},
		{12, 1, 15, LP_PATH_DEFERRED},  {30, 20, 16, LP_PATH_DIRECT},
		{65, 3, 170, LP_PATH_DEFERRED}, {1000, 5, 2100, LP_PATH_DEFERRED},
		{20, 12, 26, LP_PATH_DIRECT},   {70, 0, 1200, LP_PATH_DEFERRED},
		{300, 40, 160, LP_PATH_DIRECT},
	};
	static const enum lp_write_path paths[] = {LP_PATH_DEFERRED, LP_PATH_DIRECT};
	static const uint32_t depths[] = {1, 3, 15, 16, 64, 128};
	for (size_t i = 0; i < LP_ARRAY_SIZE(cases) * LP_ARRAY_SIZE(paths) * LP_ARRAY_SIZE(depths);
	     i++) {
		const struct case_of *one = &cases[i % LP_ARRAY_SIZE(cases)];
		size_t nr = i / LP_ARRAY_SIZE(cases);
		struct world world = {.burst_us = one->burst_us,
				      .later_us = one->later_us,
				      .direct_us = one->direct_us,
				      .noise = 1.3};
		init(&world, paths[nr % LP_ARRAY_SIZE(paths)], depths[nr / LP_ARRAY_SIZE(paths)]);
		run(&world, 2000 * (uint64_t)LP_MAX(world.depth, 10u));
		double share = share_of(&world, one->better, 100000);
		if (share < 95)
			print_message("case %zu, from %s, depth %u: %.1f %%\n",
				      i % LP_ARRAY_SIZE(cases),
				      lp_write_path_name(paths[nr % LP_ARRAY_SIZE(paths)]),
				      world.depth, share);
		assert_true(share >= 95);
		assert_true(world.contest.flips <= 6);
	}
}

/* Nothing is to be gained: it stays where it is. */
static void test_noise_changes_little(void **state)
{
	(void)state;
	static const enum lp_write_path paths[] = {LP_PATH_DEFERRED, LP_PATH_DIRECT};
	for (size_t i = 0; i < LP_ARRAY_SIZE(paths); i++) {
		struct world world = {.burst_us = 100, .direct_us = 100, .noise = 3};
		init(&world, paths[i], 16);
		run(&world, 1000000);
		assert_true(world.contest.flips <= 8);
	}
}

static void test_change_is_followed(void **state)
{
	(void)state;
	struct world world = {.burst_us = 50, .direct_us = 100, .noise = 1.3};
	init(&world, LP_PATH_DEFERRED, 16);
	run(&world, 300000);
	world.direct_us = 20;
	run(&world, 400000);
	assert_true(share_of(&world, LP_PATH_DIRECT, 100000) > 98);
	world.direct_us = 100;
	run(&world, 20000);
	assert_true(share_of(&world, LP_PATH_DEFERRED, 100000) > 98);
}

/* What comes later took long for a while; direct is taken, until it is tried again. */
static void test_a_bad_moment_is_not_for_ever(void **state)
{
	(void)state;
	struct world world = {.burst_us = 50, .later_us = 400, .direct_us = 100, .noise = 1.3};
	init(&world, LP_PATH_DEFERRED, 16);
	run(&world, 50000);
	assert_true(share_of(&world, LP_PATH_DIRECT, 10000) > 90);
	world.later_us = 5;
	run(&world, 2000000);
	assert_true(share_of(&world, LP_PATH_DEFERRED, 100000) > 98);
}

/* All is slow for a while, and what the other path took was seen before that. Each time, a flip
 * then needs a way back. */
static void test_what_slows_both_changes_nothing(void **state)
{
	(void)state;
	struct world world = {
		.burst_us = 73, .later_us = 20, .direct_us = 74, .noise = 1.1, .blocks = 64};
	init(&world, LP_PATH_DIRECT, 1);
	run(&world, 20000);
	uint32_t flips = world.contest.flips;
	for (uint32_t i = 0; i < 10; i++) {
		world.burst_us = world.direct_us = 170;
		run(&world, 1500);
		world.burst_us = 73;
		world.direct_us = 74;
		assert_true(share_of(&world, LP_PATH_DIRECT, 8000) > 95);
	}
	assert_int_equal(world.contest.flips, flips);
}

/* What comes later stops one write in a hundred for a millisecond or two, and no other: it counts
 * as much as if each had its share. */
static void test_rare_and_long_counts(void **state)
{
	(void)state;
	struct world world = {.burst_us = 73, .later_us = 24, .direct_us = 85, .lump = 70};
	world.noise = 1.1;
	init(&world, LP_PATH_DEFERRED, 1);
	run(&world, 100000);
	assert_true(share_of(&world, LP_PATH_DIRECT, 400000) > 90);
}

/* The trial that decides is slowed, by what was deferred: another one follows soon. */
static void test_a_bad_trial_is_repeated(void **state)
{
	(void)state;
	struct world world = {
		.burst_us = 73, .later_us = 5, .direct_us = 100, .noise = 1.1, .blocks = 64};
	init(&world, LP_PATH_DEFERRED, 1);
	run(&world, 200000);
	assert_int_equal(world.contest.far, LP_CONTEST_FAR);
	world.burst_us = 120;
	for (uint32_t i = 0; i < 100000 && !world.contest.is_decisive; i++)
		run(&world, 1);
	assert_true(world.contest.is_decisive && world.contest.is_trial);
	world.direct_us = 400;
	while (world.contest.is_trial)
		run(&world, 1);
	assert_int_equal(world.contest.path, LP_PATH_DEFERRED);
	world.direct_us = 100;
	run(&world, 10000);
	assert_int_equal(world.contest.path, LP_PATH_DIRECT);
}

/* A trial that is sixteen times slower is over when that is clear. */
static void test_a_slow_trial_is_short(void **state)
{
	(void)state;
	struct world world = {.burst_us = 70, .direct_us = 1200, .noise = 1.1};
	init(&world, LP_PATH_DEFERRED, 16);
	run(&world, 100000);
	assert_true(world.cnts[LP_PATH_DIRECT] > 0);
	/* The first 8, and those that are under way then. */
	assert_true(world.cnts[LP_PATH_DIRECT] <= (uint64_t)(8 + 16) * (world.contest.run / 2));
	assert_true(share_of(&world, LP_PATH_DIRECT, 1000000) < 0.1);
}

/* One that is slower, but not by so much, is looked at: with what comes later it may be the better
 * one. */
static void test_a_slower_trial_is_looked_at(void **state)
{
	(void)state;
	struct world world = {.burst_us = 70, .later_us = 90, .direct_us = 140, .noise = 1.1};
	init(&world, LP_PATH_DEFERRED, 16);
	run(&world, 400000);
	assert_int_equal(world.contest.path, LP_PATH_DIRECT);
	/* And if it looks hopeless beside a burst it is tried again when that has become dear. */
	world = (struct world){.burst_us = 10, .later_us = 190, .direct_us = 140, .noise = 1.1};
	init(&world, LP_PATH_DEFERRED, 16);
	run(&world, 400000);
	assert_int_equal(world.contest.path, LP_PATH_DIRECT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_takes_the_better),
		cmocka_unit_test(test_noise_changes_little),
		cmocka_unit_test(test_change_is_followed),
		cmocka_unit_test(test_a_bad_moment_is_not_for_ever),
		cmocka_unit_test(test_what_slows_both_changes_nothing),
		cmocka_unit_test(test_rare_and_long_counts),
		cmocka_unit_test(test_a_bad_trial_is_repeated),
		cmocka_unit_test(test_a_slow_trial_is_short),
		cmocka_unit_test(test_a_slower_trial_is_looked_at),
	};
	return lp_test_main(tests, "store/writepath/trial");
}
