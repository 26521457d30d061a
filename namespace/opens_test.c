/* SPDX-License-Identifier: Apache-2.0 */
/* Who has what open, and what becomes of orphans (namespace NS5). */
#include "namespace/opens.h"

#include "base/test.h"

struct listener {
	uint32_t told;
};

static void collect(void *arg)
{
	((struct listener *)arg)->told++;
}

static struct lpi_opens *opens_new(struct listener *listener)
{
	struct lpi_opens *opens = NULL;
	listener->told = 0;
	lp_test_ok(lpi_opens_new(collect, listener, &opens));
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
	/* It may be opened again as long as it is open. */
	lp_test_ok(lpi_opens_add(opens, ino, 1));
	lpi_opens_drop(opens, ino, 2);
	assert_int_equal(lpi_opens_dead(opens).nr, 0);
	assert_int_equal(listener.told, 0);
	lpi_opens_drop(opens, ino, 1);
	assert_int_equal(listener.told, 1);
	assert_int_equal(lpi_opens_dead(opens).nr, ino.nr);
	/* And not after that. */
	lp_test_err(-ESTALE, lpi_opens_add(opens, ino, 1));
	lpi_opens_forget_dead(opens, ino);
	assert_int_equal(lpi_opens_dead(opens).nr, 0);
	assert_int_equal(lpi_opens_orphans(opens), 0);
	assert_int_equal(lpi_opens_inodes(opens), 0);
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
	assert_int_equal(lpi_opens_dead(opens).nr, a.nr);
	lpi_opens_forget_dead(opens, a);
	assert_int_equal(lpi_opens_dead(opens).nr, b.nr);
	lpi_opens_forget_dead(opens, b);
	assert_int_equal(lpi_opens_inodes(opens), 0);
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
		cmocka_unit_test(test_counts),
		cmocka_unit_test(test_orphan),
		cmocka_unit_test(test_closed_before),
		cmocka_unit_test(test_many),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
