/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: what whole writes took goes before what the device's operations promise; but few of them,
 * or wild ones, count for little. Method: a device whose times make direct the better path for 4
 * KiB, and writes that say otherwise. */
#include "base/test.h"

#include <math.h>

#include "store/policy.h"

/* 4 KiB at depth 1: deferred is to take 100 us, direct 90. */
static void observe_device(struct lp_policy *policy)
{
	static const struct {
		enum lp_policy_kind kind;
		uint64_t bytes;
		uint64_t us;
	} times[] = {{LP_POLICY_LOG_WRITE, 8192, 100},
		     {LP_POLICY_DATA_WRITE, 4096, 40},
		     {LP_POLICY_LOG_WRITE, 4096, 50}};
	for (size_t i = 0; i < LP_ARRAY_SIZE(times); i++)
		lp_policy_observe(policy, times[i].kind, times[i].bytes, 1, times[i].us * 1000,
				  times[i].us * 1000);
	/* Its load is next to nothing. */
	for (int i = 0; i < 20; i++)
		lp_policy_observe(policy, LP_POLICY_DATA_WRITE, 4096, 64, 40000, 40000);
}

static void prepare(struct lp_policy *policy)
{
	lp_policy_init(policy, false, false);
	for (int i = 0; i < 200; i++)
		observe_device(policy);
	lp_policy_settle(policy);
}

static void see_writes(struct lp_policy *policy, enum lp_write_path path, uint64_t us, uint32_t cnt)
{
	for (uint32_t i = 0; i < cnt; i++)
		lp_policy_observe_write(policy, path, 4096, 1, us * 1000, false);
}

/* The path for 4 KiB at depth 1, as often as it may be looked at. */
static enum lp_write_path path_after_looks(struct lp_policy *policy)
{
	enum lp_write_path path = LP_PATH_AUTO;
	for (int i = 0; i < 20; i++) {
		observe_device(policy);
		path = lp_policy_choose(policy, 4096, 1);
	}
	return path;
}

/* By the device's times direct is the better one (90 us to 100); what writes take decides. */
static void test_whole_writes_go_before(void **state)
{
	(void)state;
	struct lp_policy policy;
	prepare(&policy);
	assert_int_equal(path_after_looks(&policy), LP_PATH_DIRECT);
	/* Too few of them are nothing; of one path alone, they say that all is slow. */
	see_writes(&policy, LP_PATH_DIRECT, 300, LP_POLICY_WRITES - 1);
	assert_int_equal(policy.writes[1][0][0].cnt, 0);
	see_writes(&policy, LP_PATH_DIRECT, 300, 1);
	assert_int_equal(policy.writes[1][0][0].cnt, 1);
	assert_int_equal(path_after_looks(&policy), LP_PATH_DIRECT);
	see_writes(&policy, LP_PATH_DEFERRED, 200, LP_POLICY_WRITES);
	assert_int_equal(path_after_looks(&policy), LP_PATH_DEFERRED);
	/* At another size, and at another depth, nothing was seen. */
	assert_int_equal(lp_policy_choose(&policy, 8192, 1), LP_PATH_DIRECT);
	/* It is followed, also on the path that only trials take. */
	see_writes(&policy, LP_PATH_DEFERRED, 400, 20 * LP_POLICY_WRITES);
	assert_int_equal(path_after_looks(&policy), LP_PATH_DIRECT);
	for (uint32_t i = 0; i < 6 * LP_POLICY_WRITES; i++)
		lp_policy_observe_write(&policy, LP_PATH_DEFERRED, 4096, 1, 100000, true);
	assert_int_equal(path_after_looks(&policy), LP_PATH_DEFERRED);
}

/* Half of them are as always. The others may have waited for a processor. */
static void test_wild_writes_count_little(void **state)
{
	(void)state;
	struct lp_policy policy;
	lp_policy_init(&policy, false, false);
	for (uint32_t i = 0; i < 50 * LP_POLICY_WRITES; i++) {
		bool is_wild = i % LP_POLICY_WRITES < 3;
		see_writes(&policy, LP_PATH_DEFERRED, is_wild ? 50000 : 100, 1);
	}
	const double seen_us = policy.writes[0][0][0].ns / 1000;
	assert_true(seen_us > 99 && seen_us < 140);
}

/* Their share of the time is what counts, whatever the depth; what a trial leaves for later comes
 * to it when it is compared, and is in what others took. */
static void test_writes_share_the_time(void **state)
{
	(void)state;
	struct lp_policy policy;
	lp_policy_init(&policy, false, false);
	for (uint32_t i = 0; i < LP_POLICY_WRITES; i++) {
		lp_policy_observe_write(&policy, LP_PATH_DIRECT, 4096, 64, 640000, true);
		lp_policy_observe_write(&policy, LP_PATH_DEFERRED, 4096, 64, 640000, true);
	}
	assert_true(fabs(policy.writes[1][0][6].ns - 10000) < 1);
	assert_true(fabs(policy.writes[0][0][6].ns - 10000) < 1);
	assert_true(policy.lacks_later[0][6]);
	for (uint32_t i = 0; i < LP_POLICY_WRITES; i++)
		lp_policy_observe_write(&policy, LP_PATH_DEFERRED, 4096, 64, 640000, false);
	assert_false(policy.lacks_later[0][6]);
	assert_true(policy.writes[0][0][6].ns > 10000);
}

/* A new store guesses what the later write of a deferred one takes, from what direct writes take
 * that are alone; when write-back has shown it, that counts, without another trial. */
static void test_later_write_becomes_known(void **state)
{
	(void)state;
	const uint64_t bytes = 65536;
	struct lp_policy policy;
	lp_policy_init(&policy, false, false);
	for (int i = 0; i < 20; i++) {
		lp_policy_observe(&policy, LP_POLICY_DATA_WRITE, bytes, 1, 900000, 900000);
		lp_policy_observe(&policy, LP_POLICY_LOG_WRITE, 4096, 1, 1000000, 1000000);
	}
	lp_policy_settle(&policy);
	for (int i = 0; i < 64; i++)
		lp_policy_observe_write(&policy, LP_PATH_DIRECT, bytes, 16, 2400000, false);
	for (unsigned i = 0; i < LP_POLICY_WRITES; i++)
		lp_policy_observe_write(&policy, LP_PATH_DEFERRED, bytes, 16, 1600000, true);
	for (int i = 0; i < 400; i++) {
		lp_policy_observe(&policy, LP_POLICY_LOG_WRITE, 4096, 1, 1000000, 1000000);
		(void)lp_policy_choose(&policy, bytes, 16);
	}
	assert_int_equal(lp_policy_choose(&policy, bytes, 16), LP_PATH_DIRECT);
	for (int i = 0; i < 400; i++) {
		lp_policy_observe(&policy, LP_POLICY_PLACE_WRITE, bytes, 32, 400000, 400000);
		(void)lp_policy_choose(&policy, bytes, 16);
	}
	assert_int_equal(lp_policy_choose(&policy, bytes, 16), LP_PATH_DEFERRED);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_whole_writes_go_before),
		cmocka_unit_test(test_wild_writes_count_little),
		cmocka_unit_test(test_writes_share_the_time),
		cmocka_unit_test(test_later_write_becomes_known),
	};
	return lp_test_main(tests, "store/policy_writes");
}
