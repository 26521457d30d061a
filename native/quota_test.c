/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: whatever users take and never give back, the administration and each other user find a
 * part. Method: each rule of quota.h by itself, with numbers that can be counted by hand; then
 * users who take all they get, in random order, against what the rules promise. */
#include "base/testing/test.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include "base/prng.h"
#include "native/quota.h"

#define MAX 160u /* kept: 10; so 150 for users, and 75 for one of several */

static struct lpi_quota *quota_new(uint32_t percent)
{
	struct lpi_quota *quota = malloc(sizeof(*quota));
	assert_non_null(quota);
	lpi_quota_init(quota, percent);
	for (int kind = 0; kind < LPI_QUOTA_KIND_CNT; kind++)
		quota->max[kind] = MAX;
	return quota;
}

static void quota_free(struct lpi_quota *quota)
{
	lpi_quota_fini(quota);
	free(quota);
}

static struct lpi_quota_user *join(struct lpi_quota *quota, uint32_t uid)
{
	const struct lp_who who = lp_who_user(uid, uid == 0);
	struct lpi_quota_user *user = NULL;
	lp_test_ok(lpi_quota_join(quota, &who, &user));
	return user;
}

/* As many as he gets, one after the other. */
static uint64_t take_all(struct lpi_quota *quota, struct lpi_quota_user *user, uint64_t has)
{
	uint64_t cnt = 0;
	while (lpi_quota_ask(quota, user, LPI_QUOTA_CONNS, has, 1) == LPI_QUOTA_OK) {
		lpi_quota_take(quota, user, LPI_QUOTA_CONNS, 1);
		cnt++;
		assert_true(cnt <= MAX);
	}
	return cnt;
}

static void leave(struct lpi_quota *quota, struct lpi_quota_user *user)
{
	lpi_quota_give(quota, user, LPI_QUOTA_CONNS, user->used[LPI_QUOTA_CONNS]);
	lpi_quota_leave(quota, user);
}

static void one_user_has_all_his_connections_together(void **state)
{
	struct lpi_quota *quota = quota_new(50);
	struct lpi_quota_user *first = join(quota, 7);
	struct lpi_quota_user *again = join(quota, 7);
	struct lpi_quota_user *other = join(quota, 8);
	(void)state;
	assert_ptr_equal(first, again);
	assert_ptr_not_equal(first, other);
	assert_int_equal(quota->user_cnt, 2);
	lpi_quota_leave(quota, again);
	assert_int_equal(quota->user_cnt, 2);
	lpi_quota_leave(quota, first);
	lpi_quota_leave(quota, other);
	assert_int_equal(quota->user_cnt, 0);
	quota_free(quota);
}

static void who_is_alone_leaves_an_eighth(void **state)
{
	struct lpi_quota *quota = quota_new(50);
	struct lpi_quota_user *user = join(quota, 7);
	(void)state;
	/* 150 - 18; connections that have something leave a quarter: 150 - 37. */
	assert_int_equal(take_all(quota, user, 1), 113);
	assert_int_equal(take_all(quota, user, 0), 132 - 113);
	assert_int_equal(lpi_quota_ask(quota, user, LPI_QUOTA_CONNS, 0, 1), LPI_QUOTA_OWN);
	leave(quota, user);
	quota_free(quota);
}

static void beside_others_a_user_has_his_share(void **state)
{
	struct lpi_quota *quota = quota_new(50);
	struct lpi_quota_user *greedy = join(quota, 7);
	struct lpi_quota_user *other = join(quota, 8);
	(void)state;
	assert_int_equal(take_all(quota, greedy, 1), 57);
	assert_int_equal(take_all(quota, greedy, 0), 75 - 57);
	assert_int_equal(lpi_quota_ask(quota, greedy, LPI_QUOTA_CONNS, 0, 1), LPI_QUOTA_OWN);
	assert_int_equal(lpi_quota_left(quota, greedy, LPI_QUOTA_CONNS), 0);
	assert_int_equal(lpi_quota_left(quota, other, LPI_QUOTA_CONNS), 75);
	assert_int_equal(take_all(quota, other, 0), 75);
	leave(quota, greedy);
	leave(quota, other);
	quota_free(quota);
}

/* Also from one who took all while he was alone. */
static void who_has_nothing_gets_what_is_left(void **state)
{
	struct lpi_quota *quota = quota_new(90);
	struct lpi_quota_user *greedy[2] = {join(quota, 7), NULL};
	(void)state;
	assert_int_equal(take_all(quota, greedy[0], 0), 132);
	greedy[1] = join(quota, 8);
	assert_int_equal(lpi_quota_ask(quota, greedy[1], LPI_QUOTA_CONNS, 0, 18), LPI_QUOTA_OK);
	assert_int_equal(lpi_quota_ask(quota, greedy[1], LPI_QUOTA_CONNS, 0, 19), LPI_QUOTA_ALL);
	assert_int_equal(take_all(quota, greedy[1], 0), 18);
	leave(quota, greedy[0]);
	leave(quota, greedy[1]);
	quota_free(quota);
}

static void a_part_is_kept_for_the_administration(void **state)
{
	struct lpi_quota *quota = quota_new(100);
	struct lpi_quota_user *users[2] = {join(quota, 7), join(quota, 8)};
	struct lpi_quota_user *root = join(quota, 0);
	(void)state;
	for (int i = 0; i < 2; i++)
		(void)take_all(quota, users[i], 0);
	assert_int_equal(quota->used[LPI_QUOTA_CONNS], 150);
	assert_int_equal(lpi_quota_ask(quota, users[1], LPI_QUOTA_CONNS, 0, 1), LPI_QUOTA_ALL);
	assert_int_equal(take_all(quota, root, 0), 10);
	assert_int_equal(lpi_quota_ask(quota, root, LPI_QUOTA_CONNS, 0, 1), LPI_QUOTA_ALL);
	leave(quota, users[0]);
	leave(quota, users[1]);
	leave(quota, root);
	quota_free(quota);
}

/* One message may be larger than a small store's room. */
static void the_first_one_always_fits(void **state)
{
	struct lpi_quota *quota = quota_new(50);
	struct lpi_quota_user *user = join(quota, 7);
	(void)state;
	assert_int_equal(lpi_quota_ask(quota, user, LPI_QUOTA_COMING, 0, 1000), LPI_QUOTA_OK);
	lpi_quota_take(quota, user, LPI_QUOTA_COMING, 1000);
	assert_int_equal(lpi_quota_ask(quota, user, LPI_QUOTA_COMING, 0, 1), LPI_QUOTA_ALL);
	assert_int_equal(lpi_quota_left(quota, user, LPI_QUOTA_COMING), 0);
	lpi_quota_give(quota, user, LPI_QUOTA_COMING, 1000);
	lpi_quota_leave(quota, user);
	quota_free(quota);
}

static void large_numbers_do_not_overflow(void **state)
{
	struct lpi_quota *quota = quota_new(50);
	struct lpi_quota_user *users[2] = {join(quota, 0), join(quota, 8)};
	(void)state;
	quota->max[LPI_QUOTA_GOING] = UINT64_MAX;
	assert_int_equal(lpi_quota_left(quota, users[0], LPI_QUOTA_GOING), UINT64_MAX / 2);
	lpi_quota_take(quota, users[1], LPI_QUOTA_GOING, 1);
	assert_int_equal(lpi_quota_ask(quota, users[1], LPI_QUOTA_GOING, 0, UINT64_MAX),
			 LPI_QUOTA_ALL);
	lpi_quota_give(quota, users[1], LPI_QUOTA_GOING, 1);
	lpi_quota_leave(quota, users[0]);
	lpi_quota_leave(quota, users[1]);
	quota_free(quota);
}

#define USERS 5u

/* Greedy users take and give at random. Nobody has more than his share while others are there, a
 * user without anything gets one as long as less than the room is taken, the kept part stays. */
static void run_at_random(uint64_t seed)
{
	struct lpi_quota *quota = quota_new(50);
	struct lpi_quota_user *users[USERS];
	struct lp_prng prng;
	lp_prng_init(&prng, seed);
	for (uint32_t i = 0; i < USERS; i++)
		users[i] = join(quota, 100 + i);
	for (int step = 0; step < 5000; step++) {
		struct lpi_quota_user *user = users[lp_prng_below(&prng, USERS)];
		uint64_t *used = &user->used[LPI_QUOTA_OPENS];
		uint64_t amount = 1 + lp_prng_below(&prng, 9);
		uint64_t all = quota->used[LPI_QUOTA_OPENS];
		bool ok =
			lpi_quota_ask(quota, user, LPI_QUOTA_OPENS, *used, amount) == LPI_QUOTA_OK;
		if (lp_prng_below(&prng, 4) == 0 && *used > 0) {
			lpi_quota_give(quota, user, LPI_QUOTA_OPENS,
				       1 + lp_prng_below(&prng, (uint32_t)*used));
			continue;
		}
		if (*used == 0 && all + amount <= 150)
			assert_true(ok);
		if (all > 0 && (all + amount > 150 || (*used > 0 && *used + amount > 75)))
			assert_false(ok);
		if (ok)
			lpi_quota_take(quota, user, LPI_QUOTA_OPENS, amount);
		assert_true(quota->used[LPI_QUOTA_OPENS] <= 150);
	}
	for (uint32_t i = 0; i < USERS; i++) {
		lpi_quota_give(quota, users[i], LPI_QUOTA_OPENS, users[i]->used[LPI_QUOTA_OPENS]);
		lpi_quota_leave(quota, users[i]);
	}
	quota_free(quota);
}

static void greedy_users_leave_others_their_part(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 20; seed++) {
		print_message("seed %llu\n", (unsigned long long)seed);
		run_at_random(seed);
	}
}

static struct lp_who address(const char *text)
{
	struct sockaddr_in6 in6 = {.sin6_family = AF_INET6, .sin6_port = 1234};
	struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = 1234};
	if (inet_pton(AF_INET6, text, &in6.sin6_addr) == 1)
		return lp_who_address(&in6);
	assert_int_equal(inet_pton(AF_INET, text, &in.sin_addr), 1);
	return lp_who_address(&in);
}

static void assert_called(struct lp_who who, const char *text)
{
	char buf[LP_WHO_TEXT_MAX];
	lp_who_format(&who, buf, sizeof(buf));
	assert_string_equal(buf, text);
}

/* Who can connect from one address of this machine can do so from all of them. */
static void addresses_of_this_machine_are_one(void **state)
{
	const struct lp_who one = address("127.0.0.1");
	static const char *const same[] = {"127.9.8.7", "::1", "::ffff:127.0.0.9"};
	static const char *const others[] = {"10.0.0.1", "128.0.0.1", "::2", "fe80::1"};
	(void)state;
	for (size_t i = 0; i < LP_ARRAY_SIZE(same); i++) {
		const struct lp_who who = address(same[i]);
		assert_true(lp_who_is_same(&one, &who));
	}
	for (size_t i = 0; i < LP_ARRAY_SIZE(others); i++) {
		const struct lp_who who = address(others[i]);
		assert_false(lp_who_is_same(&one, &who));
		assert_false(who.is_admin);
	}
	const struct lp_who mapped = address("::ffff:10.0.0.1");
	const struct lp_who plain = address("10.0.0.1");
	assert_true(lp_who_is_same(&mapped, &plain));
	assert_called(one, "TCP from this machine");
	assert_called(plain, "TCP from 10.0.0.1");
	assert_called(address("fe80::1"), "TCP from fe80::1");
	assert_called(lp_who_user(4294967294u, false), "user 4294967294");
}

static void a_refusal_says_which_limit_of_whom(void **state)
{
	struct lpi_quota *quota = quota_new(50);
	struct lpi_quota_user *user = join(quota, 7);
	struct lpi_quota_user *other = join(quota, 8);
	char why[160];
	(void)state;
	(void)take_all(quota, user, 0);
	lpi_quota_explain(quota, user, LPI_QUOTA_CONNS, LPI_QUOTA_OWN, why, sizeof(why));
	assert_string_equal(why, "user 7 has 75 of this shard's 160 connections, its limit "
				 "(connections-max, user-share)");
	lpi_quota_explain(quota, other, LPI_QUOTA_CONNS, LPI_QUOTA_ALL, why, sizeof(why));
	assert_string_equal(why, "all users together have this shard's 160 connections "
				 "(connections-max, user-share)");
	for (int kind = 0; kind < LPI_QUOTA_KIND_CNT; kind++) {
		quota->max[kind] = UINT64_MAX;
		lpi_quota_explain(quota, user, (enum lpi_quota_kind)kind, LPI_QUOTA_OWN, why,
				  sizeof(why));
		/* It has room in an answer, and is whole. */
		assert_true(strlen(why) < sizeof(why) - 1);
		assert_int_equal(why[strlen(why) - 1], ')');
	}
	leave(quota, user);
	lpi_quota_leave(quota, other);
	quota_free(quota);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_user_has_all_his_connections_together),
		cmocka_unit_test(who_is_alone_leaves_an_eighth),
		cmocka_unit_test(beside_others_a_user_has_his_share),
		cmocka_unit_test(who_has_nothing_gets_what_is_left),
		cmocka_unit_test(a_part_is_kept_for_the_administration),
		cmocka_unit_test(the_first_one_always_fits),
		cmocka_unit_test(large_numbers_do_not_overflow),
		cmocka_unit_test(greedy_users_leave_others_their_part),
		cmocka_unit_test(addresses_of_this_machine_are_one),
		cmocka_unit_test(a_refusal_says_which_limit_of_whom),
	};
	return lp_test_main(tests, "native/quota");
}
