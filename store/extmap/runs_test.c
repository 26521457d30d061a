/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: the runs name exactly the leaves that were added and not removed, until one is dropped,
 * and then never one that was not added.
 * Method: random adds and removes against an array of bools, with and without more runs than a
 * root holds. */
#include "base/testing/test.h"

#include "base/prng.h"
#include "store/extmap/runs.h"

#define LEAVES 400u

struct world {
	struct lpi_runs runs;
	struct lpi_run items[LPI_RUNS_MAX + 1];
	bool model[LEAVES];
	unsigned dropped;
};

static void world_init(struct world *w)
{
	memset(w, 0, sizeof(*w));
	lpi_runs_init(&w->runs);
	w->runs.items = w->items;
	w->runs.max = LP_ARRAY_SIZE(w->items);
}

static void check(const struct world *w)
{
	uint64_t sum = 0;
	assert_true(lpi_runs_are_sound(&w->runs, LEAVES));
	for (uint32_t idx = 0; idx < LEAVES; idx++) {
		bool has = lpi_runs_has(&w->runs, idx);
		assert_true(w->dropped > 0 ? w->model[idx] || !has : has == w->model[idx]);
		sum += has;
		const struct lpi_run *next = lpi_runs_next(&w->runs, idx);
		assert_true(next == NULL || lpi_run_end(*next) > idx);
	}
	assert_true(sum == w->runs.sum);
}

static void step(struct lp_prng *prng, struct world *w, uint64_t add_permille)
{
	uint32_t idx = (uint32_t)lp_prng_below(prng, LEAVES);
	bool had = lpi_runs_has(&w->runs, idx);
	if (lp_prng_below(prng, 1000) < add_permille) {
		assert_int_equal(lpi_runs_add(&w->runs, idx), !had);
		w->model[idx] = true;
	} else {
		assert_int_equal(lpi_runs_remove(&w->runs, idx), had);
		w->model[idx] = false;
	}
	bool full = w->runs.cnt > LPI_RUNS_MAX;
	assert_int_equal(lpi_runs_drop(&w->runs, idx).cnt > 0, full);
	w->dropped += full;
	/* What was just added is not what is dropped. */
	assert_int_equal(lpi_runs_has(&w->runs, idx), w->model[idx]);
}

static void test_model(void **state)
{
	(void)state;
	static const uint64_t add_permille[] = {30, 500, 970};
	for (uint64_t seed = 0; seed < 6; seed++) {
		struct lp_prng prng;
		struct world w;
		world_init(&w);
		lp_prng_init(&prng, seed);
		for (int n = 0; n < 1500; n++) {
			step(&prng, &w, add_permille[seed % 3]);
			check(&w);
		}
		assert_int_equal(w.dropped > 0, seed % 3 != 0);
	}
}

/* A dense file never needs more than the run that is built in. */
static void test_one_run(void **state)
{
	(void)state;
	struct lpi_runs runs;
	lpi_runs_init(&runs);
	assert_null(lpi_runs_next(&runs, 0));
	for (uint32_t idx = 0; idx < 1000; idx++)
		assert_true(lpi_runs_add(&runs, idx));
	assert_int_equal(runs.cnt, 1);
	for (uint32_t idx = 1000; idx > 0; idx--)
		assert_true(lpi_runs_remove(&runs, idx - 1));
	assert_int_equal(runs.cnt, 0);
	assert_true(lpi_runs_are_sound(&runs, 1));
}

static void test_drops_the_shortest(void **state)
{
	(void)state;
	struct world w;
	world_init(&w);
	for (uint32_t i = 0; i < LPI_RUNS_MAX + 1; i++) {
		(void)lpi_runs_add(&w.runs, i * 4);
		if (i != 7 && i != 9)
			(void)lpi_runs_add(&w.runs, i * 4 + 1);
	}
	struct lpi_run dropped = lpi_runs_drop(&w.runs, 7 * 4);
	assert_int_equal(dropped.first, 9 * 4);
	assert_int_equal(dropped.cnt, 1);
	assert_true(lpi_runs_has(&w.runs, 7 * 4));
	assert_false(lpi_runs_has(&w.runs, 9 * 4));
	assert_int_equal(w.runs.cnt, LPI_RUNS_MAX);
	assert_int_equal(lpi_runs_drop(&w.runs, 0).cnt, 0);
}

static void test_unsound(void **state)
{
	(void)state;
	static const struct lpi_run bad[][2] = {
		{{1, 2}, {3, 1}}, /* no gap */
		{{1, 2}, {2, 1}}, /* overlap */
		{{5, 1}, {2, 2}}, /* order */
		{{1, 0}, {2, 3}}, /* empty */
		{{1, 1}, {9, 2}}, /* beyond */
		{{1, 1}, {3, 3}}, /* sum */
		{{1, 1}, {UINT32_MAX, 2}},
	};
	struct world w;
	world_init(&w);
	w.runs.cnt = 2;
	w.runs.sum = 3;
	w.items[0] = (struct lpi_run){1, 1};
	w.items[1] = (struct lpi_run){8, 2};
	assert_true(lpi_runs_are_sound(&w.runs, 10));
	for (size_t i = 0; i < LP_ARRAY_SIZE(bad); i++) {
		memcpy(w.items, bad[i], sizeof(bad[i]));
		assert_false(lpi_runs_are_sound(&w.runs, 10));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_model),
		cmocka_unit_test(test_one_run),
		cmocka_unit_test(test_drops_the_shortest),
		cmocka_unit_test(test_unsound),
	};
	return lp_test_main(tests, "store/extmap/runs");
}
