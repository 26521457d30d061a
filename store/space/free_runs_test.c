/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: runs merge and split as they should, the best fit is the best, and -ENOMEM changes nothing.
 * (All kinds of allocators are compared with a model in alloc_test.c.)
 * Method: cases by hand, soundness of both trees after each. */
#include "base/testing/test_death.h"

#include "store/space/free_runs.h"

static struct lpi_freeruns runs;

static int setup(void **state)
{
	(void)state;
	lpi_freeruns_init(&runs, 1); /* one slab */
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	assert_true(lpi_freeruns_is_sound(&runs));
	lpi_freeruns_fini(&runs);
	return 0;
}

static void add(uint64_t block, uint64_t cnt)
{
	lp_test_ok(lpi_freeruns_add(&runs, (struct lp_extent){block, cnt}));
	assert_true(lpi_freeruns_is_sound(&runs));
}

static int cut(uint64_t block, uint64_t cnt)
{
	int rc = lpi_freeruns_remove(&runs, (struct lp_extent){block, cnt});
	assert_true(lpi_freeruns_is_sound(&runs));
	return rc;
}

static void test_merge_and_split(void **state)
{
	(void)state;
	add(10, 5);
	add(20, 5);
	assert_int_equal(runs.run_cnt, 2);
	add(15, 2); /* joins the one before */
	add(18, 2); /* joins the one behind */
	assert_int_equal(runs.run_cnt, 2);
	add(17, 1); /* joins both */
	assert_int_equal(runs.run_cnt, 1);
	assert_int_equal(runs.free_blocks, 15);
	lp_test_ok(cut(12, 3));
	assert_int_equal(runs.run_cnt, 2);
	lp_test_err(-EBUSY, cut(14, 2));
	lp_test_err(-EBUSY, cut(24, 2));
	lp_test_err(-EBUSY, cut(1, 1));
	lp_test_ok(cut(10, 1));
	lp_test_ok(cut(11, 1));
	lp_test_ok(cut(15, 10));
	assert_int_equal(runs.run_cnt, 0);
	assert_int_equal(runs.free_blocks, 0);
}

static void test_best_fit(void **state)
{
	(void)state;
	struct lp_extent extent;
	add(0, 100);
	add(200, 10);
	add(301, 12); /* holds 8 blocks from 304 */
	add(400, 50);
	struct lpi_fit fit = {.want = 9, .unit = 1, .from = LPI_FREERUNS_ANYWHERE};
	assert_non_null(lpi_freeruns_find_fit(&runs, &fit, &extent));
	assert_int_equal(extent.block, 200);
	fit.want = 11;
	assert_non_null(lpi_freeruns_find_fit(&runs, &fit, &extent));
	assert_int_equal(extent.block, 301);
	fit = (struct lpi_fit){.want = 8, .unit = 8, .from = LPI_FREERUNS_ANYWHERE};
	assert_non_null(lpi_freeruns_find_fit(&runs, &fit, &extent));
	assert_int_equal(extent.block, 200);
	fit.from = 210; /* right behind it comes 301 */
	assert_non_null(lpi_freeruns_find_fit(&runs, &fit, &extent));
	assert_int_equal(extent.block, 304);
	fit = (struct lpi_fit){.want = 101, .unit = 1, .from = LPI_FREERUNS_ANYWHERE};
	assert_null(lpi_freeruns_find_fit(&runs, &fit, &extent));
	assert_non_null(lpi_freeruns_find_part(&runs, &fit, &extent));
	assert_int_equal(extent.block, 0);
	assert_int_equal(extent.cnt, 100);
	fit.unit = 128; /* no run holds one, but for the first, were it longer */
	assert_null(lpi_freeruns_find_part(&runs, &fit, &extent));
}

/* More askew runs of the right length than are tried one by one: a longer one is found, and when
 * there is none, the one that fits at the very end. */
static void test_askew_runs(void **state)
{
	(void)state;
	struct lp_extent extent;
	for (uint64_t i = 0; i < 40; i++)
		add(100 * i + 97, 8); /* of 8 aligned blocks it has 7 at most */
	struct lpi_fit fit = {.want = 8, .unit = 8, .from = LPI_FREERUNS_ANYWHERE};
	assert_null(lpi_freeruns_find_fit(&runs, &fit, &extent));
	add(8000, 8);
	assert_non_null(lpi_freeruns_find_fit(&runs, &fit, &extent));
	assert_int_equal(extent.block, 8000);
	lp_test_ok(cut(8000, 8));
	add(9001, 15);
	assert_non_null(lpi_freeruns_find_fit(&runs, &fit, &extent));
	assert_int_equal(extent.block, 9008);
}

static void test_out_of_memory_changes_nothing(void **state)
{
	(void)state;
	uint64_t block = 0;
	while (lpi_freeruns_add(&runs, (struct lp_extent){block, 3}) == 0)
		block += 10;
	assert_int_equal(block / 10, lpi_freeruns_capacity(&runs));
	assert_int_equal(lpi_freeruns_memory_bytes(&runs), LPI_FREERUNS_SLAB_BYTES);
	lp_test_err(-ENOMEM, lpi_freeruns_reserve(&runs));
	lp_test_err(-ENOMEM, cut(1, 1));
	assert_int_equal(runs.free_blocks, block / 10 * 3);
	add(3, 1); /* needs no node */
	lp_test_ok(cut(0, 4));
	lp_test_ok(lpi_freeruns_reserve(&runs));
	lp_test_ok(cut(11, 1));
}

static void add_twice(void *arg)
{
	(void)arg;
	lp_test_ok(lpi_freeruns_add(&runs, (struct lp_extent){9, 2}));
}

static void add_over(void *arg)
{
	(void)arg;
	lp_test_ok(lpi_freeruns_add(&runs, (struct lp_extent){14, 2}));
}

static void test_overlap_asserts(void **state)
{
	(void)state;
	add(10, 5);
	lp_test_dies(add_twice, NULL);
	lp_test_dies(add_over, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_merge_and_split, setup, teardown),
		cmocka_unit_test_setup_teardown(test_best_fit, setup, teardown),
		cmocka_unit_test_setup_teardown(test_askew_runs, setup, teardown),
		cmocka_unit_test_setup_teardown(test_out_of_memory_changes_nothing, setup,
						teardown),
		cmocka_unit_test_setup_teardown(test_overlap_asserts, setup, teardown),
	};
	return lp_test_main(tests, "store/space/free_runs");
}
