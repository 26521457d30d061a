/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: order, membership and the "unlinked" asserts of the typed lists.
 * Method: small lists checked against the order written in the test. */
#include "base/testing/test.h"

#include "base/struct/list.h"

struct item {
	int value;
	struct lp_list_node node;
	struct lp_list_node other;
};

LP_LIST_DEFINE(items, struct item, node);
LP_LIST_DEFINE(others, struct item, other);

static void expect(const struct items *list, const char *want)
{
	char got[32] = "";
	struct item *it;
	LP_LIST_FOREACH (items, list, it) {
		size_t len = strlen(got);
		(void)snprintf(got + len, sizeof(got) - len, "%d", it->value);
	}
	assert_string_equal(got, want);
	/* Backwards is the mirror image. */
	size_t pos = strlen(want);
	for (it = items_last(list); it != NULL; it = items_prev(list, it))
		assert_int_equal(it->value, want[--pos] - '0');
	assert_int_equal(pos, 0);
	assert_int_equal(items_count(list), strlen(want));
}

static void test_order(void **state)
{
	(void)state;
	struct items list;
	items_init(&list);
	assert_true(items_is_empty(&list));
	assert_null(items_pop_front(&list));
	struct item i[6] = {{0}};
	for (int n = 0; n < 6; n++)
		i[n].value = n;
	items_push_back(&list, &i[2]);
	items_push_back(&list, &i[4]);
	items_push_front(&list, &i[1]);
	items_insert_after(&i[2], &i[3]);
	items_insert_before(&i[1], &i[0]);
	expect(&list, "01234");
	assert_true(items_is_linked(&i[3]));
	items_remove(&i[3]);
	assert_false(items_is_linked(&i[3]));
	expect(&list, "0124");
	assert_ptr_equal(items_pop_front(&list), &i[0]);

	struct items more;
	items_init(&more);
	items_splice_back(&list, &more);
	expect(&list, "124");
	items_push_back(&more, &i[5]);
	items_push_back(&more, &i[0]);
	items_splice_back(&list, &more);
	assert_true(items_is_empty(&more));
	expect(&list, "12450");
}

static void test_remove_while_walking(void **state)
{
	(void)state;
	struct items list;
	struct item i[5] = {{0}};
	struct item *it;
	struct item *tmp;
	items_init(&list);
	for (int n = 0; n < 5; n++) {
		i[n].value = n;
		items_push_back(&list, &i[n]);
	}
	LP_LIST_FOREACH_SAFE (items, &list, it, tmp) {
		if (it->value % 2 == 0)
			items_remove(it);
	}
	expect(&list, "13");
}

static void test_two_lists_at_once(void **state)
{
	(void)state;
	struct items a;
	struct others b;
	struct item one = {.value = 1};
	items_init(&a);
	others_init(&b);
	items_push_back(&a, &one);
	others_push_back(&b, &one);
	items_remove(&one);
	assert_ptr_equal(others_first(&b), &one);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_order),
		cmocka_unit_test(test_remove_while_walking),
		cmocka_unit_test(test_two_lists_at_once),
	};
	return lp_test_main(tests, "base/struct/list");
}
