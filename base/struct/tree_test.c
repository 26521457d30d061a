/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: the tree holds what was put in, in order, balanced, and says no to misuse.
 * Method: every order of inserting and removing few keys; random operations on many against an
 * array of bools; the tree's own check of its structure after each step; asserts in a child. */
#include "base/testing/test_death.h"

#include "base/prng.h"
#include "base/struct/tree.h"

#define ITEM_CNT 512

struct item {
	unsigned key;
	struct lp_tree_node node;
};

static bool item_less(const struct item *a, const struct item *b)
{
	return a->key < b->key;
}

LP_TREE_DEFINE(items, struct item, node, item_less);

static struct item all[ITEM_CNT];
static bool is_in[ITEM_CNT];
static struct items tree;

static int setup(void **state)
{
	(void)state;
	memset(all, 0, sizeof(all));
	memset(is_in, 0, sizeof(is_in));
	items_init(&tree);
	for (unsigned i = 0; i < ITEM_CNT; i++)
		all[i].key = i;
	return 0;
}

static void put(unsigned key)
{
	items_insert(&tree, &all[key]);
	is_in[key] = true;
}

static void drop(unsigned key)
{
	items_remove(&tree, &all[key]);
	is_in[key] = false;
}

static void check_order(void)
{
	assert_true(lp_tree_is_sound(&tree.tree));
	struct item *it = items_first(&tree);
	struct item *before = NULL;
	for (unsigned i = 0; i < ITEM_CNT; i++) {
		assert_int_equal(items_is_linked(&all[i]), is_in[i]);
		if (!is_in[i])
			continue;
		assert_ptr_equal(it, &all[i]);
		assert_ptr_equal(items_prev(it), before);
		before = it;
		it = items_next(it);
	}
	assert_null(it);
	assert_ptr_equal(items_last(&tree), before);
	assert_int_equal(items_is_empty(&tree), before == NULL);
}

static void check_search(unsigned key)
{
	unsigned ge = key;
	while (ge < ITEM_CNT && !is_in[ge])
		ge++;
	unsigned lt = key;
	while (lt > 0 && !is_in[lt - 1])
		lt--;
	struct item wanted = {.key = key};
	assert_ptr_equal(items_find_ge(&tree, &wanted), ge < ITEM_CNT ? &all[ge] : NULL);
	assert_ptr_equal(items_find_lt(&tree, &wanted), lt > 0 ? &all[lt - 1] : NULL);
}

/* The n-th permutation of 0..cnt-1. */
static void permutation(unsigned n, unsigned cnt, unsigned *ret_keys)
{
	for (unsigned i = 0; i < cnt; i++)
		ret_keys[i] = i;
	for (unsigned i = cnt; i > 1; n /= i, i--) {
		unsigned pick = n % i;
		unsigned key = ret_keys[pick];
		ret_keys[pick] = ret_keys[i - 1];
		ret_keys[i - 1] = key;
	}
}

static void test_every_order(void **state)
{
	(void)state;
	unsigned in[6];
	unsigned out[6];
	for (unsigned n = 0; n < 720; n++) {
		permutation(n, 6, in);
		for (unsigned m = 0; m < 720; m += 7) {
			permutation((m + n) % 720, 6, out);
			for (unsigned i = 0; i < 6; i++)
				put(in[i]);
			for (unsigned i = 0; i < 6; i++) {
				assert_true(lp_tree_is_sound(&tree.tree));
				drop(out[i]);
			}
			assert_true(items_is_empty(&tree));
		}
	}
}

static void test_ascending_and_descending(void **state)
{
	(void)state;
	for (unsigned i = 0; i < ITEM_CNT; i++)
		put(i);
	check_order();
	for (unsigned i = 0; i < ITEM_CNT; i++) {
		drop(i);
		assert_true(lp_tree_is_sound(&tree.tree));
	}
	for (unsigned i = ITEM_CNT; i > 0; i--)
		put(i - 1);
	check_order();
}

static void test_random(void **state)
{
	(void)state;
	struct lp_prng prng;
	lp_prng_init(&prng, 1);
	for (int n = 0; n < 20000; n++) {
		unsigned key = (unsigned)lp_prng_below(&prng, ITEM_CNT);
		bool is_filling = n / 3000 % 2 == 0;
		if (!is_in[key] && lp_prng_chance(&prng, is_filling ? 3 : 1, 4))
			put(key);
		else if (is_in[key] && lp_prng_chance(&prng, is_filling ? 1 : 3, 4))
			drop(key);
		assert_true(n % 8 != 0 || lp_tree_is_sound(&tree.tree));
		check_search((unsigned)lp_prng_below(&prng, ITEM_CNT));
		if (n % 100 == 0)
			check_order();
	}
}

static void test_broken_balance_is_noticed(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 7; i++)
		put(i);
	all[5].node.parent ^= 1;
	assert_false(lp_tree_is_sound(&tree.tree));
	all[5].node.parent ^= 1;
	assert_true(lp_tree_is_sound(&tree.tree));
}

static void insert_twice(void *arg)
{
	(void)arg;
	items_insert(&tree, &all[1]);
}

static void insert_equal(void *arg)
{
	(void)arg;
	static struct item twin = {.key = 1};
	items_insert(&tree, &twin);
}

static void remove_unlinked(void *arg)
{
	(void)arg;
	items_remove(&tree, &all[2]);
}

static void test_misuse_asserts(void **state)
{
	(void)state;
	put(0);
	put(1);
	lp_test_dies(insert_twice, NULL);
	lp_test_dies(insert_equal, NULL);
	lp_test_dies(remove_unlinked, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_every_order, setup),
		cmocka_unit_test_setup(test_ascending_and_descending, setup),
		cmocka_unit_test_setup(test_random, setup),
		cmocka_unit_test_setup(test_broken_balance_is_noticed, setup),
		cmocka_unit_test_setup(test_misuse_asserts, setup),
	};
	return lp_test_main(tests, "base/struct/tree");
}
