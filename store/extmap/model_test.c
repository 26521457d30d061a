/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: the extent map says of every block what was last said of it, gives back every device block
 * exactly once, keeps crcs and sharing (rules W2, S4), whatever is loaded, unloaded, encoded and
 * read again on the way.
 * Method: random operations against a plain array of blocks; dense files, and ones so sparse that
 * the root cannot name all leaves. */
#include "store/extmap/world_test.h"

static bool is_wanted(const struct lpi_world_block *block, enum lp_extmap_seek what)
{
	switch (what) {
	case LP_EXTMAP_SEEK_DATA:
		return block->kind == LP_EXTMAP_DATA;
	case LP_EXTMAP_SEEK_HOLE:
		return block->kind != LP_EXTMAP_DATA;
	case LP_EXTMAP_SEEK_ALLOCATED:
		return block->kind != LP_EXTMAP_HOLE;
	case LP_EXTMAP_SEEK_FREE:
		return block->kind == LP_EXTMAP_HOLE;
	}
	return false;
}

static void check_seek(struct lpi_map_world *w, uint64_t from, enum lp_extmap_seek what)
{
	uint64_t want = from;
	uint64_t got = from;
	int err;
	while (want < w->blocks && !is_wanted(&w->model[want], what))
		want++;
	do {
		LPI_WORLD_RETRY(w, err, lp_extmap_seek(&w->map, got, what, &got));
	} while (err == 1);
	if (want == w->blocks && what != LP_EXTMAP_SEEK_HOLE && what != LP_EXTMAP_SEEK_FREE) {
		lp_test_err(-ENXIO, err);
		return;
	}
	lp_test_ok(err);
	assert_true(got == want);
}

static void check_some(struct lpi_map_world *w)
{
	struct lp_extmap_range range = lpi_world_random_range(w, LPI_WORLD_RANDOM_MAX);
	bool plain = true;
	int got;
	for (uint64_t b = range.first; b < range.first + range.cnt; b++)
		plain &= w->model[b].kind == LP_EXTMAP_DATA && !w->model[b].is_shared;
	LPI_WORLD_RETRY(w, got, lp_extmap_can_overwrite(&w->map, range));
	assert_int_equal(got, plain);
	lpi_world_check_lookup(w, range);
	check_seek(w, range.first, (enum lp_extmap_seek)lp_prng_below(&w->prng, 4));
}

/* The longest part of the range, from its first block on, that can take the operation. */
static uint64_t prefix_of(const struct lpi_map_world *w, struct lp_extmap_range range,
			  enum lp_extmap_segment_kind kind)
{
	uint64_t cnt = 0;
	while (cnt < range.cnt && w->model[range.first + cnt].kind == kind &&
	       !w->model[range.first + cnt].is_shared)
		cnt++;
	return cnt;
}

static void op_write_in_place(struct lpi_map_world *w, struct lp_extmap_range range)
{
	uint32_t crcs[LPI_WORLD_OP_MAX];
	int result;
	bool unwritten = w->model[range.first].kind == LP_EXTMAP_UNWRITTEN;
	range.cnt = prefix_of(w, range, unwritten ? LP_EXTMAP_UNWRITTEN : LP_EXTMAP_DATA);
	if (range.cnt == 0)
		return;
	lp_prng_fill(&w->prng, crcs, sizeof(crcs));
	if (unwritten) {
		LPI_WORLD_RETRY(w, result, lp_extmap_reserve(&w->map, range, 0));
		lp_test_ok(result);
		lp_extmap_mark_written(&w->map, range, crcs);
	} else {
		LPI_WORLD_RETRY(w, result, lp_extmap_can_overwrite(&w->map, range));
		assert_int_equal(result, 1);
		lp_extmap_update_crcs(&w->map, range, crcs);
	}
	for (uint64_t i = 0; i < range.cnt; i++) {
		w->model[range.first + i].kind = LP_EXTMAP_DATA;
		w->model[range.first + i].crc = crcs[i];
	}
}

static void op_share(struct lpi_map_world *w, struct lp_extmap_range range)
{
	int result;
	LPI_WORLD_RETRY(w, result, lp_extmap_reserve(&w->map, range, 0));
	lp_test_ok(result);
	lp_extmap_mark_shared(&w->map, range);
	for (uint64_t i = 0; i < range.cnt; i++) {
		struct lpi_world_block *block = &w->model[range.first + i];
		block->is_shared = block->kind == LP_EXTMAP_DATA;
	}
}

static void op_truncate(struct lpi_map_world *w, uint64_t first)
{
	int more = 1;
	uint64_t blocks = 0;
	uint64_t want = 0;
	for (uint64_t b = first; b < w->blocks; b++)
		want += w->model[b].kind != LP_EXTMAP_HOLE;
	while (more == 1) {
		struct lp_extmap_released released = {w->released_items, 0, 100};
		LPI_WORLD_RETRY(w, more, lp_extmap_truncate_step(&w->map, first, &released));
		lp_test_ok(more);
		for (size_t i = 0; i < released.cnt; i++)
			blocks += released.items[i].extent.cnt;
	}
	assert_true(blocks == want);
	memset(&w->model[first], 0, (w->blocks - first) * sizeof(w->model[0]));
}

static void op_memory(struct lpi_map_world *w)
{
	uint32_t leaves = w->blocks / LP_EXTMAP_LEAF_BLOCKS;
	switch (lp_prng_below(&w->prng, 4)) {
	case 0:
		lpi_world_reload(w);
		break;
	case 1:
		lpi_world_commit(w);
		if (lp_prng_chance(&w->prng, 1, 4))
			lpi_world_pay_all(w);
		(void)lp_extmap_shrink(&w->map, lp_prng_below(&w->prng, 4000));
		break;
	default:
		lpi_world_commit(w);
		for (int n = 0; n < 20; n++) {
			uint32_t idx = (uint32_t)lp_prng_below(&w->prng, leaves);
			bool was_owed = lpi_world_is_owed(w, idx);
			int err = lp_extmap_unload(&w->map, idx);
			/* Only leaf 0 can be in the root. */
			assert_true(err == (was_owed ? -EBUSY : 0) || (err == -EBUSY && idx == 0));
		}
		break;
	}
}

static void step(struct lpi_map_world *w, uint32_t range_max, uint64_t punch_percent)
{
	struct lp_extmap_range range = lpi_world_random_range(w, range_max);
	uint64_t draw = lp_prng_below(&w->prng, 100);
	if (draw < punch_percent)
		lpi_world_punch(w, range);
	else if (draw < 70)
		lpi_world_replace(w, range);
	else if (draw < 82)
		op_write_in_place(w, range);
	else if (draw < 88)
		op_share(w, range);
	else if (draw < 89)
		op_truncate(w, lp_prng_between(&w->prng, w->blocks / 2, w->blocks));
	else
		op_memory(w);
}

static void run_model(uint64_t seed, uint32_t leaves, uint32_t range_max, int steps)
{
	struct lpi_map_world *w = lpi_world_new(seed, leaves);
	for (int n = 0; n < steps; n++) {
		/* The file grows, is full of holes, shrinks, in turn. */
		step(w, range_max, n / 150 % 3 == 2 ? 50 : 15);
		if (n % 150 == 140 && lp_prng_chance(&w->prng, 1, 3))
			op_truncate(w, lp_prng_below(&w->prng, LP_MIN(w->blocks, 200U)));
		check_some(w);
		if (n % 50 == 0)
			lpi_world_check_all(w);
	}
	lpi_world_check_all(w);
	lpi_world_reload(w);
	lpi_world_check_all(w);
	assert_true(leaves == 1 || (w->asked > 0 && w->owed > 0));
	assert_int_equal(w->unsure > 0, leaves == LPI_WORLD_LEAVES_MAX);
	lpi_world_free(w);
}

static void test_model_one_leaf(void **state)
{
	(void)state;
	run_model(1, 1, 20, 1500);
}

static void test_model_few_leaves(void **state)
{
	(void)state;
	for (uint64_t seed = 2; seed < 6; seed++)
		run_model(seed, 3, 100, 1000);
}

static void test_model_dense(void **state)
{
	(void)state;
	for (uint64_t seed = 6; seed < 9; seed++)
		run_model(seed, 40, LPI_WORLD_RANDOM_MAX, 1000);
}

static void test_model_sparse(void **state)
{
	(void)state;
	for (uint64_t seed = 9; seed < 11; seed++)
		run_model(seed, LPI_WORLD_LEAVES_MAX, 20, 1200);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_model_one_leaf),
		cmocka_unit_test(test_model_few_leaves),
		cmocka_unit_test(test_model_dense),
		cmocka_unit_test(test_model_sparse),
	};
	return lp_test_main(tests, "store/extmap/model");
}
