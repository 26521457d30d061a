/* SPDX-License-Identifier: Apache-2.0 */
/* Who has what open, and what becomes of orphans (namespace NS5). */
#include "namespace/state/open_inodes.h"

#include "base/testing/test.h"
#include "namespace/state/kernel_holds.h"

struct listener {
	uint32_t told; /* of those that nobody needs any more */
	uint32_t held; /* of those that are only held */
};

static void told(void *arg, enum lpi_orphan_event event)
{
	struct listener *listener = arg;
	listener->told += event != LPI_ORPHAN_HELD;
	listener->held += event == LPI_ORPHAN_HELD;
}

static struct lpi_opens *opens_new(struct listener *listener)
{
	struct lpi_opens *opens = NULL;
	*listener = (struct listener){0};
	lp_test_ok(lpi_opens_new(told, listener, &opens));
	return opens;
}

static void test_counts(void **state)
{
	(void)state;
	struct listener listener;
	struct lpi_opens *opens = opens_new(&listener);
	const struct lp_ino a = {5};
	const struct lp_ino b = {6};
	assert_int_equal(lpi_opens_cnt(opens, a), 0);
	lp_test_ok(lpi_opens_add(opens, a, 1));
	lp_test_ok(lpi_opens_add(opens, a, 2));
	lp_test_ok(lpi_opens_add(opens, b, 1));
	assert_int_equal(lpi_opens_cnt(opens, a), 3);
	assert_int_equal(lpi_opens_inodes(opens), 2);
	lp_test_err(-ENFILE, lpi_opens_add(opens, a, UINT32_MAX - 2));
	assert_int_equal(lpi_opens_cnt(opens, a), 3);
	lpi_opens_drop(opens, a, 1);
	lpi_opens_drop(opens, a, 2);
	assert_int_equal(lpi_opens_inodes(opens), 1);
	assert_int_equal(lpi_opens_cnt(opens, b), 1);
	assert_int_equal(listener.told, 0);
	/* What is open still is forgotten. */
	lpi_opens_free(opens);
}

static void test_orphan(void **state)
{
	(void)state;
	struct listener listener;
	struct lpi_opens *opens = opens_new(&listener);
	const struct lp_ino ino = {5};
	lp_test_ok(lpi_opens_add(opens, ino, 2));
	lpi_opens_orphan(opens, ino);
	assert_int_equal(lpi_opens_orphans(opens), 1);
	assert_true(lpi_opens_is_orphan(opens, ino));
	/* Where the link count was too low it loses its last name once more. */
	lpi_opens_orphan(opens, ino);
	assert_int_equal(lpi_opens_orphans(opens), 1);
	/* It may be opened again as long as it is open. */
	lp_test_ok(lpi_opens_add(opens, ino, 1));
	lpi_opens_drop(opens, ino, 2);
	assert_int_equal(lpi_opens_take_dead(opens).nr, 0);
	assert_int_equal(listener.told, 0);
	lpi_opens_drop(opens, ino, 1);
	assert_int_equal(listener.told, 1);
	assert_int_equal(lpi_opens_take_dead(opens).nr, ino.nr);
	/* And not after that. */
	lp_test_err(-ESTALE, lpi_opens_add(opens, ino, 1));
	lpi_opens_forget_dead(opens, ino);
	assert_int_equal(lpi_opens_take_dead(opens).nr, 0);
	assert_int_equal(lpi_opens_orphans(opens), 0);
	assert_int_equal(lpi_opens_inodes(opens), 0);
	assert_false(lpi_opens_is_orphan(opens, ino));
	lpi_opens_free(opens);
}

/* Closed between the decision that it will be an orphan, and the moment at which it is one. */
static void test_closed_before(void **state)
{
	(void)state;
	struct listener listener;
	struct lpi_opens *opens = opens_new(&listener);
	const struct lp_ino a = {5};
	const struct lp_ino b = {6};
	lpi_opens_orphan(opens, a);
	lpi_opens_orphan(opens, b);
	assert_int_equal(listener.told, 2);
	assert_int_equal(lpi_opens_take_dead(opens).nr, a.nr);
	assert_int_equal(lpi_opens_take_dead(opens).nr, b.nr);
	lpi_opens_forget_dead(opens, a);
	lpi_opens_forget_dead(opens, b);
	assert_int_equal(lpi_opens_inodes(opens), 0);
	lpi_opens_free(opens);
}

/* What a mount was told of stays until it has forgotten it (rule N5), open or not: the last of both
 * lets it go. */
static void test_held(void **state)
{
	(void)state;
	struct listener listener;
	struct lpi_opens *opens = opens_new(&listener);
	const struct lp_ino ino = {5};
	lp_test_ok(lpi_opens_hold(opens, ino));
	lp_test_ok(lpi_opens_hold(opens, ino));
	assert_true(lpi_opens_is_needed(opens, ino));
	lpi_opens_orphan(opens, ino);
	assert_int_equal(listener.held, 1);
	assert_int_equal(lpi_opens_held_orphans(opens), 1);
	lp_test_ok(lpi_opens_add(opens, ino, 1));
	assert_int_equal(lpi_opens_held_orphans(opens), 0);
	lpi_opens_let_go(opens, ino, 2);
	lp_test_ok(lpi_opens_hold(opens, ino));
	assert_int_equal(listener.held, 1);
	lpi_opens_drop(opens, ino, 1);
	assert_int_equal(listener.held, 2);
	assert_int_equal(lpi_opens_held_orphans(opens), 1);
	assert_int_equal(listener.told, 0);
	lpi_opens_let_go(opens, ino, 1);
	assert_int_equal(listener.told, 1);
	assert_int_equal(lpi_opens_held_orphans(opens), 0);
	lp_test_err(-ESTALE, lpi_opens_hold(opens, ino));
	assert_int_equal(lpi_opens_take_dead(opens).nr, ino.nr);
	lpi_opens_forget_dead(opens, ino);
	lpi_opens_free(opens);
}

/* The mount has gone: nothing is held, and what is open stays. */
static void test_held_all(void **state)
{
	(void)state;
	struct listener listener;
	struct lpi_opens *opens = opens_new(&listener);
	struct lpi_held_stats stats;
	const struct lp_ino open = {3000};
	for (uint32_t i = 1; i <= 3000; i++) {
		lp_test_ok(lpi_opens_hold(opens, (struct lp_ino){i}));
		if (i % 3 == 0 && i != open.nr)
			lpi_opens_orphan(opens, (struct lp_ino){i});
	}
	lp_test_ok(lpi_opens_add(opens, open, 1));
	lpi_opens_orphan(opens, open);
	lpi_opens_read_held(opens, &stats);
	assert_int_equal(stats.inodes, 3000);
	assert_int_equal(listener.told, 0);
	lpi_opens_let_go_all(opens);
	lpi_opens_read_held(opens, &stats);
	assert_int_equal(stats.inodes, 0);
	assert_int_equal(listener.told, 999);
	assert_int_equal(lpi_opens_held_orphans(opens), 0);
	assert_false(lpi_opens_is_needed(opens, (struct lp_ino){7}));
	assert_true(lpi_opens_is_needed(opens, open));
	/* A forget that was on its way does no harm. */
	lpi_opens_let_go(opens, (struct lp_ino){7}, 1);
	lpi_opens_free(opens);
}

/* The table grows, and finds all of them again. */
static void test_many(void **state)
{
	(void)state;
	struct listener listener;
	struct lpi_opens *opens = opens_new(&listener);
	const uint32_t cnt = 5000;
	for (uint32_t i = 1; i <= cnt; i++)
		lp_test_ok(lpi_opens_add(opens, (struct lp_ino){i}, i));
	assert_int_equal(lpi_opens_inodes(opens), cnt);
	for (uint32_t i = 1; i <= cnt; i++) {
		assert_int_equal(lpi_opens_cnt(opens, (struct lp_ino){i}), i);
		lpi_opens_drop(opens, (struct lp_ino){i}, i);
	}
	assert_int_equal(lpi_opens_inodes(opens), 0);
	lpi_opens_free(opens);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_counts),        cmocka_unit_test(test_orphan),
		cmocka_unit_test(test_closed_before), cmocka_unit_test(test_held),
		cmocka_unit_test(test_held_all),      cmocka_unit_test(test_many),
	};
	return lp_test_main(tests, "namespace/state/open_inodes");
}
