/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: a name that was added is never said to be missing, at no size of the table; few others are
 * said to be there; memory and the time of one addition have bounds.
 * Method: numbers as names, all of them asked for again and again while the table grows. */
#include "store/nodes/name_filter.h"

#include "base/testing/test.h"

static bool add(struct lp_names *names, uint32_t nr)
{
	return lp_names_add(names, &nr, sizeof(nr));
}

static bool may_have(const struct lp_names *names, uint32_t nr)
{
	return lp_names_may_have(names, &nr, sizeof(nr));
}

static void test_all_are_known(void **state)
{
	(void)state;
	enum { CNT = 20000 };
	uint32_t wrong = 0;
	struct lp_names *names = lp_names_new(7);
	assert_non_null(names);
	assert_false(may_have(names, 0));
	for (uint32_t i = 0; i < CNT; i++) {
		assert_true(add(names, i));
		/* All while it is small and whenever a growth is half done, some at other times. */
		uint32_t step = i < 1000 || i % 1777 == 0 ? 1 : 1000;
		for (uint32_t j = i % step; j <= i; j += step)
			assert_true(may_have(names, j));
		wrong += may_have(names, CNT + i);
	}
	assert_in_range(wrong, 0, 2);
	assert_in_range(lp_names_bytes(names), UINT64_C(4) * CNT, UINT64_C(16) * CNT);
	lp_names_free(names);
	lp_names_free(NULL);
}

/* A name that comes and goes takes its place once. */
static void test_again(void **state)
{
	(void)state;
	struct lp_names *names = lp_names_new(0);
	assert_non_null(names);
	uint64_t bytes = lp_names_bytes(names);
	for (unsigned i = 0; i < 10000; i++)
		assert_true(add(names, i % 5));
	assert_int_equal(lp_names_bytes(names), bytes);
	for (uint32_t i = 0; i < 5; i++)
		assert_true(may_have(names, i));
	lp_names_free(names);
}

static void test_lengths(void **state)
{
	(void)state;
	static const char text[] = "nnnnnnnnnnnnnnnnnnnn";
	struct lp_names *names = lp_names_new(3);
	assert_non_null(names);
	for (size_t len = 1; len < sizeof(text); len++) {
		assert_false(lp_names_may_have(names, text, len));
		assert_true(lp_names_add(names, text, len));
		assert_true(lp_names_may_have(names, text, len));
	}
	lp_names_free(names);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_all_are_known),
		cmocka_unit_test(test_again),
		cmocka_unit_test(test_lengths),
	};
	return lp_test_main(tests, "store/nodes/name_filter");
}
