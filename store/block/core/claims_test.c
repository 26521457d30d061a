/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: on every key the sets are served in the order of their arrival, one at a time or several
 * that share it, and each is served in the end.
 * Method: random sets over few keys, released in random order, against a list per key. */
#include "base/testing/test.h"

#include "base/assert.h"
#include "base/prng.h"
#include "store/block/core/claims.h"

#define SETS 30u
#define KEYS 6u

struct op {
	struct lp_claim_set set;
	uint64_t arrived; /* 0: idle */
	bool granted;
};

static struct op ops[SETS];

static void granted(struct lp_claim_set *set)
{
	struct op *op = LP_CONTAINER_OF(set, struct op, set);
	assert_false(op->granted);
	op->granted = true;
}

/* Its claim of the key; NULL: it has none. */
static const struct lp_claim *claim_of(const struct op *op, uint64_t key)
{
	for (uint32_t i = 0; i < op->set.cnt; i++) {
		if (op->set.claims[i].key == key)
			return &op->set.claims[i];
	}
	return NULL;
}

/* In the queue of each of its keys nobody stands before it, by arrival, unless all of them and it
 * share the key. */
static bool is_first_everywhere(const struct op *op)
{
	for (uint64_t key = 0; key < KEYS; key++) {
		const struct lp_claim *own = claim_of(op, key);
		if (own == NULL)
			continue;
		for (size_t i = 0; i < SETS; i++) {
			if (ops[i].arrived == 0 || ops[i].arrived >= op->arrived)
				continue;
			const struct lp_claim *other = claim_of(&ops[i], key);
			if (other != NULL && !(own->is_shared && other->is_shared))
				return false;
		}
	}
	return true;
}

static void test_order(void **state)
{
	(void)state;
	struct lp_claims *claims = NULL;
	struct lp_prng prng;
	uint64_t clock = 0;
	lp_prng_init(&prng, 9);
	lp_test_ok(lp_claims_new(2, &claims));
	for (int step = 0; step < 20000; step++) {
		struct op *op = &ops[lp_prng_below(&prng, SETS)];
		if (op->arrived == 0) {
			*op = (struct op){.set.granted = granted, .arrived = ++clock};
			uint64_t cnt = lp_prng_between(&prng, 1, 4);
			for (uint64_t i = 0; i < cnt; i++) {
				uint64_t key = lp_prng_below(&prng, KEYS);
				if (lp_prng_chance(&prng, 2, 3))
					assert_true(lp_claim_set_share(&op->set, key));
				else
					assert_true(lp_claim_set_add(&op->set, key));
			}
			op->granted = lp_claims_acquire(claims, &op->set);
		} else if (op->granted || lp_prng_chance(&prng, 1, 10)) {
			/* Done; or given up while it waits. */
			op->arrived = 0;
			lp_claims_release(claims, &op->set);
		}
		for (size_t i = 0; i < SETS; i++) {
			if (ops[i].arrived == 0)
				continue;
			assert_int_equal(ops[i].granted, is_first_everywhere(&ops[i]));
			assert_int_equal(ops[i].granted, lp_claim_set_is_granted(&ops[i].set));
		}
	}
	for (size_t i = 0; i < SETS; i++) {
		if (ops[i].arrived != 0)
			lp_claims_release(claims, &ops[i].set);
		ops[i].arrived = 0;
	}
	assert_int_equal(lp_claims_cnt(claims), 0);
	lp_claims_free(claims);
}

static void test_full_set(void **state)
{
	(void)state;
	struct lp_claim_set set = {.granted = granted};
	for (uint64_t key = 0; key < LP_CLAIMS_PER_SET; key++)
		assert_true(lp_claim_set_add(&set, key));
	assert_true(lp_claim_set_add(&set, 3)); /* there already */
	assert_false(lp_claim_set_add(&set, 99));
}

/* Whoever changes what it also looks at does not share it. */
static void test_both_ways(void **state)
{
	(void)state;
	struct lp_claim_set set = {.granted = granted};
	assert_true(lp_claim_set_share(&set, 1));
	assert_true(set.claims[0].is_shared);
	assert_true(lp_claim_set_add(&set, 1));
	assert_false(set.claims[0].is_shared);
	assert_true(lp_claim_set_share(&set, 1));
	assert_false(set.claims[0].is_shared);
	assert_int_equal(set.cnt, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_order),
		cmocka_unit_test(test_full_set),
		cmocka_unit_test(test_both_ways),
	};
	return lp_test_main(tests, "store/block/core/claims");
}
