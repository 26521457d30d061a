/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: sums by name and in total are exact, high water and "over by" follow, misuse dies, and
 * a reader on another thread sees values that were there.
 * Method: a few accounts by hand; then owners that write while another thread lists. */
#include "base/testing/test.h"

#include "base/memory/account.h"
#include "base/testing/test_death.h"

static void test_one_account(void **state)
{
	(void)state;
	struct lp_account account;
	struct lp_account_sum sum = {.bytes = 77};
	assert_false(lp_account_find_sum("inodes", &sum));
	assert_int_equal(sum.bytes, 77);
	lp_account_init(&account, "inodes", 0);
	assert_int_equal(lp_account_over_bytes(&account), 0);
	lp_account_add(&account, 100, 2);
	lp_account_add(&account, 50, 1);
	lp_account_sub(&account, 120, 2);
	lp_account_add(&account, 10, 0);
	assert_int_equal(lp_account_bytes(&account), 40);
	assert_int_equal(lp_account_items(&account), 1);
	lp_account_set_limit(&account, 40);
	assert_int_equal(lp_account_over_bytes(&account), 0);
	lp_account_set_limit(&account, 39);
	assert_int_equal(lp_account_over_bytes(&account), 1);
	lp_account_set_limit(&account, 0);
	assert_int_equal(lp_account_over_bytes(&account), 40);
	assert_true(lp_account_find_sum("inodes", &sum));
	assert_string_equal(sum.name, "inodes");
	assert_int_equal(sum.bytes, 40);
	assert_int_equal(sum.items, 1);
	assert_int_equal(sum.bytes_max, 150);
	assert_int_equal(sum.limit_bytes, 0);
	assert_int_equal(sum.over_bytes, 40);
	assert_int_equal(sum.accounts_cnt, 1);
	lp_account_sub(&account, 40, 1);
	lp_account_fini(&account);
	assert_false(lp_account_find_sum("inodes", &sum));
}

static void test_sums_by_name(void **state)
{
	(void)state;
	struct lp_account inodes[2];
	struct lp_account cache[2];
	struct lp_account_sum rows[3];
	assert_int_equal(lp_account_list(rows, 3), 0);
	/* Shard by shard, as shards start; the names come out together. */
	for (unsigned shard = 0; shard < 2; shard++) {
		lp_account_init(&inodes[shard], "inodes", shard);
		lp_account_init(&cache[shard], "data cache", shard);
		lp_account_add(&inodes[shard], 10 + shard, 1);
		lp_account_add(&cache[shard], 1000, 3);
		lp_account_set_limit(&inodes[shard], shard == 0 ? 4 : 100);
	}
	lp_account_set_limit(&cache[1], 5000);
	assert_int_equal(lp_account_list(rows, 3), 2);
	assert_string_equal(rows[0].name, "inodes");
	assert_int_equal(rows[0].bytes, 21);
	assert_int_equal(rows[0].items, 2);
	assert_int_equal(rows[0].limit_bytes, 104);
	assert_int_equal(rows[0].over_bytes, 6);
	assert_int_equal(rows[0].accounts_cnt, 2);
	assert_string_equal(rows[1].name, "data cache");
	assert_int_equal(rows[1].bytes, 2000);
	assert_true(rows[1].limit_bytes == LP_ACCOUNT_NO_LIMIT);

	/* Too few rows: cut, but the number of names is told. */
	struct lp_account_sum one[2] = {{.bytes = 1}, {.bytes = 42}};
	assert_int_equal(lp_account_list(one, 1), 2);
	assert_int_equal(one[0].bytes, 21);
	assert_int_equal(one[1].bytes, 42);
	assert_int_equal(lp_account_list(NULL, 0), 2);

	struct lp_account_sum total;
	lp_account_total(&total);
	assert_null(total.name);
	assert_int_equal(total.bytes, 2021);
	assert_int_equal(total.items, 8);
	assert_int_equal(total.accounts_cnt, 4);
	for (unsigned shard = 0; shard < 2; shard++) {
		lp_account_sub(&inodes[shard], 10 + shard, 1);
		lp_account_sub(&cache[shard], 1000, 3);
		lp_account_fini(&inodes[shard]);
		lp_account_fini(&cache[shard]);
	}
	assert_int_equal(lp_account_list(rows, 3), 0);
}

enum { ROUNDS = 20000, OWNERS = 3 };

static void *own(void *arg)
{
	struct lp_account *account = arg;
	for (int i = 0; i < ROUNDS; i++) {
		lp_account_add(account, 300, 3);
		lp_account_sub(account, 200, 2);
	}
	return NULL;
}

static void test_readers_on_other_threads(void **state)
{
	(void)state;
	struct lp_account accounts[OWNERS];
	pthread_t threads[OWNERS];
	struct lp_account_sum total;
	for (unsigned i = 0; i < OWNERS; i++) {
		lp_account_init(&accounts[i], "shared", i);
		assert_int_equal(pthread_create(&threads[i], NULL, own, &accounts[i]), 0);
	}
	for (int i = 0; i < 1000; i++) {
		lp_account_total(&total);
		assert_int_equal(total.bytes % 100, 0);
		assert_true(total.bytes <= (uint64_t)OWNERS * (ROUNDS * 100 + 200));
	}
	for (unsigned i = 0; i < OWNERS; i++)
		assert_int_equal(pthread_join(threads[i], NULL), 0);
	lp_account_total(&total);
	assert_int_equal(total.bytes, OWNERS * ROUNDS * 100);
	assert_int_equal(total.items, OWNERS * ROUNDS);
	assert_int_equal(total.bytes_max, OWNERS * (ROUNDS * 100 + 200));
	for (unsigned i = 0; i < OWNERS; i++) {
		lp_account_rebind(&accounts[i]);
		lp_account_sub(&accounts[i], (uint64_t)ROUNDS * 100, ROUNDS);
		lp_account_fini(&accounts[i]);
	}
}

static void sub_too_much(void *arg)
{
	lp_account_sub(arg, 11, 0);
}

static void sub_too_many(void *arg)
{
	lp_account_sub(arg, 0, 2);
}

static void end_with_a_leak(void *arg)
{
	lp_account_fini(arg);
}

static void register_twice(void *arg)
{
	(void)arg;
	struct lp_account other;
	lp_account_init(&other, "strict", 0);
}

static void test_misuse_dies(void **state)
{
	(void)state;
	struct lp_account account;
	lp_account_init(&account, "strict", 0);
	lp_account_add(&account, 10, 1);
	lp_test_dies(sub_too_much, &account);
	lp_test_dies(sub_too_many, &account);
	lp_test_dies(end_with_a_leak, &account);
	lp_test_dies(register_twice, NULL);
	lp_account_sub(&account, 10, 1);
	lp_account_fini(&account);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_one_account),
		cmocka_unit_test(test_sums_by_name),
		cmocka_unit_test(test_readers_on_other_threads),
		cmocka_unit_test(test_misuse_dies),
	};
	return lp_test_main(tests, "base/memory/account");
}
