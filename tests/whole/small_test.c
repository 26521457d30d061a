/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: no short sequence of operations, whatever moment the power fails at, leaves what it may not
 * (P1 to P4, rules L1, N1, W3, S6).
 * Method: every sequence of up to three operations of a set over two names, a spread directory and
 * one that is not, on two shards, under each kind of device, cut at every event from the last
 * operation's beginning on, until nothing is left of it; some of the recoveries are cut as well.
 * What comes before the last one a shorter sequence has been through. The usual test goes through
 * half of those of one operation, and some of the others; LAPIS_TEST_FACTOR=1000 through all. */
#include "base/testing/test_long.h"
#include "tests/whole/list.h"
#include "tests/whole/run_test.h"

#define SETUP_CNT (uint32_t) LP_ARRAY_SIZE(setup)
#define SET_CNT   (uint32_t) LP_ARRAY_SIZE(set)
#define ALL       1000u /* this factor: all sequences */
/* Else one in so many of those of two and three. */
#define ONE_IN_2 (LP_ASSERT_SLOW_ON ? 600u : 100u)
#define ONE_IN_3 (LP_ASSERT_SLOW_ON ? 10000u : 2500u)

/* Slots: a spread directory, one that is not, on the other shard; in each a file. */
enum { SPREAD = 8, PLAIN = 16, ONE = 24, TWO = 32 };
enum { NAME_A, NAME_B, NAME_SPREAD, NAME_PLAIN };

static const struct lpi_whole_op setup[] = {
	{.kind = LPI_WHOLE_MAKE,
	 .id = 1,
	 .type = LP_INODE_TYPE_DIR,
	 .flags = LPI_WHOLE_SPREAD,
	 .name = NAME_SPREAD,
	 .mode = 0755},
	{.kind = LPI_WHOLE_MAKE,
	 .id = 2,
	 .home = 1,
	 .type = LP_INODE_TYPE_DIR,
	 .name = NAME_PLAIN,
	 .mode = 0755},
	{.kind = LPI_WHOLE_MAKE,
	 .id = 3,
	 .type = LP_INODE_TYPE_FILE,
	 .dir = SPREAD,
	 .name = NAME_A},
	{.kind = LPI_WHOLE_MAKE, .id = 4, .type = LP_INODE_TYPE_FILE, .dir = PLAIN, .name = NAME_B},
	{.kind = LPI_WHOLE_WRITE, .id = 5, .node = ONE, .length = 9000, .seed = 1},
	{.kind = LPI_WHOLE_WRITE, .id = 6, .node = TWO, .length = 300, .seed = 2},
};

/* Of each the id is its place in the sequence. */
static const struct lpi_whole_op set[] = {
	{.kind = LPI_WHOLE_WRITE,
	 .node = ONE,
	 .flags = LPI_WHOLE_ORDERED,
	 .offset = 4000,
	 .length = 5000,
	 .seed = 4},
	{.kind = LPI_WHOLE_WRITE, .node = ONE, .length = 4096, .seed = 5, .path = LP_PATH_DEFERRED},
	{.kind = LPI_WHOLE_APPEND, .node = TWO, .length = 70000, .seed = 7},
	{.kind = LPI_WHOLE_TRUNCATE, .node = ONE, .offset = 5000, .flags = LPI_WHOLE_ORDERED},
	{.kind = LPI_WHOLE_PUT,
	 .depth = 2,
	 .names = {NAME_SPREAD, NAME_A},
	 .length = 5000,
	 .seed = 8,
	 .mode = 0600},
	{.kind = LPI_WHOLE_PUT,
	 .depth = 3,
	 .names = {NAME_SPREAD, NAME_B, NAME_B},
	 .length = 100,
	 .seed = 10},
	{.kind = LPI_WHOLE_DELETE, .depth = 3, .names = {NAME_SPREAD, NAME_B, NAME_B}},
	{.kind = LPI_WHOLE_RENAME,
	 .dir = SPREAD,
	 .name = NAME_A,
	 .to_dir = PLAIN,
	 .to_name = NAME_B},
	{.kind = LPI_WHOLE_RENAME,
	 .dir = PLAIN,
	 .name = NAME_B,
	 .to_dir = SPREAD,
	 .to_name = NAME_A,
	 .flags = LPI_WHOLE_EXCHANGE | LPI_WHOLE_ORDERED},
	{.kind = LPI_WHOLE_RENAME,
	 .dir = LPI_WHOLE_ROOT,
	 .name = NAME_PLAIN,
	 .to_dir = SPREAD,
	 .to_name = NAME_B,
	 .flags = LPI_WHOLE_ORDERED},
	{.kind = LPI_WHOLE_LINK, .node = ONE, .dir = PLAIN, .name = NAME_A},
	{.kind = LPI_WHOLE_REMOVE, .dir = SPREAD, .name = NAME_A, .flags = LPI_WHOLE_ORDERED},
	{.kind = LPI_WHOLE_WRITE, .node = ONE, .length = 300, .seed = 9},
	{.kind = LPI_WHOLE_MAKE,
	 .type = LP_INODE_TYPE_DIR,
	 .dir = PLAIN,
	 .name = NAME_A,
	 .flags = LPI_WHOLE_ORDERED,
	 .home = 1},
	{.kind = LPI_WHOLE_REMOVE,
	 .dir = LPI_WHOLE_ROOT,
	 .name = NAME_PLAIN,
	 .flags = LPI_WHOLE_IS_DIR},
	{.kind = LPI_WHOLE_COPY,
	 .depth = 2,
	 .names = {NAME_SPREAD, NAME_A},
	 .to_depth = 2,
	 .to_names = {NAME_PLAIN, NAME_B},
	 .seed = 11},
	{.kind = LPI_WHOLE_XATTR_SET,
	 .node = TWO,
	 .name = LPI_WHOLE_XATTR_ACL,
	 .length = 28,
	 .seed = 13,
	 .flags = LPI_WHOLE_ORDERED},
};

static uint64_t state_cnt;
static uint64_t sequence_cnt;

static bool is_long(void)
{
	return lp_test_factor() >= ALL;
}

/* All sequences take hours, so they can be run in parts, each for itself: LAPIS_TEST_PART of
 * LAPIS_TEST_PARTS. */
static bool is_in_part(uint32_t idx)
{
	return idx % lp_test_env("LAPIS_TEST_PARTS", 1) == lp_test_env("LAPIS_TEST_PART", 0);
}

static bool run_ops(struct lpi_whole_run *run, const struct lpi_whole_op *ops, uint32_t cnt)
{
	for (uint32_t i = 0; i < cnt; i++) {
		if (!lpi_whole_run_op(run, &ops[i]))
			return false;
		if (i + 1 == SETUP_CNT)
			lp_sim_trim_log(lpi_whole_device(run));
	}
	/* What the last one has not changed a shorter sequence has been through. */
	const struct lpi_whole_step *last = &run->steps[run->step_cnt - 1];
	run->options.first_event = last->has_changed ? last->sent_event : LPI_WHOLE_NEVER;
	return lpi_whole_run_end(run);
}

static void tell(const struct lpi_whole_options *options, const struct lpi_whole_op *ops,
		 uint32_t cnt)
{
	static struct lpi_whole_list list;
	for (uint32_t i = 0; i < cnt; i++)
		lpi_whole_list_add(&list, &ops[i]);
	lpi_whole_options_write(options, list.head);
	print_error("to be run again by whole_test --replay:\n");
	lpi_whole_list_print(&list, stderr);
	fail();
}

/* The numbers of its operations in the set. */
static void check_sequence(const uint32_t *numbers, uint32_t cnt, enum lp_sim_preset preset)
{
	struct lpi_whole_op ops[SETUP_CNT + 3];
	struct lpi_whole_options options;
	lpi_whole_options_of(1 + preset + lp_test_seed_shift(), &options);
	options.shard_cnt = 2;
	options.preset = preset;
	options.nested = is_long() ? 4 : 40;
	memcpy(ops, setup, sizeof(setup));
	for (uint32_t i = 0; i < cnt; i++) {
		ops[SETUP_CNT + i] = set[numbers[i]];
		ops[SETUP_CNT + i].id = SETUP_CNT + 1 + i;
	}
	struct lpi_whole_run *run = lpi_whole_run_new(&options);
	if (!run_ops(run, ops, SETUP_CNT + cnt))
		tell(&options, ops, SETUP_CNT + cnt);
	if (run->options.first_event != LPI_WHOLE_NEVER && !lpi_whole_run_cut(run))
		tell(&options, ops, SETUP_CNT + cnt);
	state_cnt += run->states;
	sequence_cnt++;
	lpi_whole_run_free(run);
}

/* Of all sequences of so many operations under all devices one of so many. */
static void check_some(uint32_t cnt, uint32_t one_in)
{
	uint32_t all = LP_SIM_PRESET_CNT;
	struct lp_prng prng;
	lp_prng_init(&prng, cnt + lp_test_seed_shift());
	for (uint32_t i = 0; i < cnt; i++)
		all *= SET_CNT;
	for (uint32_t i = 0; i < all; i++) {
		uint32_t rest = i / LP_SIM_PRESET_CNT;
		uint32_t numbers[3];
		for (uint32_t j = 0; j < cnt; j++) {
			numbers[j] = rest % SET_CNT;
			rest /= SET_CNT;
		}
		bool is_drawn = lp_prng_below(&prng, one_in) < lp_test_factor();
		if (is_long() ? is_in_part(i) : is_drawn)
			check_sequence(numbers, cnt, (enum lp_sim_preset)(i % LP_SIM_PRESET_CNT));
	}
}

static void test_one(void **state)
{
	(void)state;
	check_some(1, LP_ASSERT_SLOW_ON ? 20 : 2);
}

static void test_two(void **state)
{
	(void)state;
	check_some(2, ONE_IN_2);
}

static void test_three(void **state)
{
	(void)state;
	check_some(3, ONE_IN_3);
}

/* --- Certain sequences ------------------------------------------------------------------------ */

/* Cut at every event from the last operation's beginning on. */
static bool is_right(const struct lpi_whole_options *options, const struct lpi_whole_op *ops,
		     uint32_t cnt)
{
	struct lpi_whole_run *run = lpi_whole_run_new(options);
	bool is_right = true;
	for (uint32_t i = 0; i < cnt; i++)
		assert_true(lpi_whole_run_op(run, &ops[i]));
	run->options.first_event = run->steps[cnt - 1].sent_event;
	is_right = lpi_whole_run_end(run) && lpi_whole_run_cut(run);
	state_cnt += run->states;
	lpi_whole_run_free(run);
	return is_right;
}

/* The removal of a spread directory whose making was only ordered: its seal on another shard is
 * durable before the directory is, and has to leave nothing of one that never was (rule N2). */
static void test_removed_early(void **state)
{
	static const struct lpi_whole_op ops[] = {{.kind = LPI_WHOLE_MAKE,
						   .id = 1,
						   .flags = LPI_WHOLE_ORDERED | LPI_WHOLE_SPREAD,
						   .home = 3,
						   .type = LP_INODE_TYPE_DIR,
						   .mode = 0700,
						   .name = NAME_A},
						  {.kind = LPI_WHOLE_REMOVE,
						   .id = 2,
						   .flags = LPI_WHOLE_IS_DIR,
						   .home = 7,
						   .name = NAME_A}};
	(void)state;
	for (uint64_t seed = 1; seed <= 4; seed++) {
		struct lpi_whole_options options;
		lpi_whole_options_of(seed, &options);
		options.shard_cnt = seed == 4 ? 2 : 3;
		options.preset = LP_SIM_PRESET_CNT - 1;
		options.nested = 0;
		assert_true(is_right(&options, ops, LP_ARRAY_SIZE(ops)));
	}
}

/* Says what is not durable yet. */
static void tell_early(struct lpi_whole_door *door, const struct lpi_whole *whole,
		       const struct lpi_whole_op *op, struct lpi_whole_answer *ret)
{
	struct lpi_whole_op early = *op;
	early.flags |= lpi_whole_only_asks(op) ? LPI_WHOLE_ORDERED : 0;
	lpi_whole_sim_apply(door, whole, &early, ret);
}

/* What was only ordered and then shown to who asks for what is durable is there after a cut (P3); a
 * door that does not wait for it is found out. */
static void test_shown(void **state)
{
	static const struct lpi_whole_op changes[] = {
		{.kind = LPI_WHOLE_MAKE, .type = LP_INODE_TYPE_FILE, .name = NAME_A},
		{.kind = LPI_WHOLE_SET, .mask = LP_ATTR_MODE, .mode = 0700},
		{.kind = LPI_WHOLE_WRITE, .node = ONE, .length = 300, .seed = 9},
	};
	static const struct lpi_whole_op asks[] = {
		{.kind = LPI_WHOLE_LOOKUP, .name = NAME_A},
		{.kind = LPI_WHOLE_STAT},
		{.kind = LPI_WHOLE_READ, .node = ONE, .length = 400},
	};
	(void)state;
	for (uint32_t i = 0; i < LP_ARRAY_SIZE(asks); i++) {
		struct lpi_whole_options options;
		struct lpi_whole_op ops[SETUP_CNT + 2];
		bool is_noticed = false;
		memcpy(ops, setup, sizeof(setup));
		ops[SETUP_CNT] = changes[i];
		ops[SETUP_CNT].flags |= LPI_WHOLE_ORDERED;
		ops[SETUP_CNT + 1] = asks[i];
		for (uint32_t j = SETUP_CNT; j < SETUP_CNT + 2; j++)
			ops[j].id = j + 1;
		/* Whether a cut comes between, and loses it, is chance: half of the seeds do. */
		for (uint64_t seed = 1; !is_noticed && seed < 20; seed++) {
			lpi_whole_options_of(seed, &options);
			options.shard_cnt = 2;
			assert_true(is_right(&options, ops, SETUP_CNT + 2));
			options.apply = tell_early;
			is_noticed = !is_right(&options, ops, SETUP_CNT + 2);
		}
		assert_true(is_noticed);
	}
}

static void test_tell(void **state)
{
	(void)state;
	lpi_whole_fresh_free();
	print_message("%llu sequences run\n", (unsigned long long)sequence_cnt);
	lp_test_tell_crash_states(state_cnt);
	assert_true(state_cnt > 10);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_one),   cmocka_unit_test(test_two),
		cmocka_unit_test(test_three), cmocka_unit_test(test_removed_early),
		cmocka_unit_test(test_shown), cmocka_unit_test(test_tell),
	};
	return lp_test_main(tests, "tests/whole/small");
}
