/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: what is read of an extent map is input: a root and leaves that contradict each other are
 * refused, whatever bytes they are, and a lost leaf is never a hole.
 * Method: roots and leaves that were changed by hand, or at random, beside a plain array of blocks.
 */
#include "store/extmap/runs.h"
#include "store/extmap/world_test.h"

/* Of leaves that no run names there are as many as the count says beyond the runs. One more, if it
 * was accepted, would be named by its next change, and then the runs would name more than there
 * are.
 */
static void test_leaves_beyond_count(void **state)
{
	(void)state;
	struct lpi_map_world *w = lpi_world_new(31, 10);
	lpi_world_replace(w, (struct lp_extmap_range){0, 1});
	lpi_world_replace(w, (struct lp_extmap_range){320, 1});
	lpi_world_replace(w, (struct lp_extmap_range){448, 1});
	lpi_world_reload(w);
	struct lp_extmap_root root = {.version = 1,
				      .kind = LP_EXTMAP_KIND_SPLIT,
				      .runs_cnt = 1,
				      .leaves_cnt = 2,
				      .blocks_cnt = 2};
	uint8_t bytes[LP_EXTMAP_ROOT_SIZE + LP_EXTMAP_RUN_SIZE];
	lp_extmap_root_encode(&root, bytes);
	lp_extmap_run_encode(&(struct lp_extmap_run){0, 1}, bytes + LP_EXTMAP_ROOT_SIZE);
	lp_extmap_fini(&w->map);
	lp_extmap_init(&w->map, lpi_world_ino, &w->mem);
	lp_test_ok(lp_extmap_load_root(&w->map, bytes, sizeof(bytes)));
	lp_test_ok(lp_extmap_load(&w->map, 5, w->kv[5].bytes, w->kv[5].len));
	lp_test_err(-EUCLEAN, lp_extmap_load(&w->map, 7, w->kv[7].bytes, w->kv[7].len));
	lp_test_ok(lp_extmap_load(&w->map, 0, w->kv[0].bytes, w->kv[0].len));
	assert_true(lpi_extmap_is_sound(&w->map));
	/* Also when another one has made place in memory; its change must not break the map. */
	lp_test_ok(lp_extmap_unload(&w->map, 5));
	lp_test_ok(lp_extmap_load(&w->map, 7, w->kv[7].bytes, w->kv[7].len));
	lpi_world_punch(w, (struct lp_extmap_range){448, 1});
	assert_true(lpi_extmap_is_sound(&w->map));
	lpi_world_free(w);
}

/* As many runs as a root may have, one of which is split by a punch. */
static void test_one_run_too_many(void **state)
{
	(void)state;
	const uint64_t leaf = LP_EXTMAP_LEAF_BLOCKS;
	const uint64_t split = LPI_RUNS_MAX / 2;
	struct lpi_map_world *w = lpi_world_new(32, LPI_WORLD_LEAVES_MAX);
	for (uint64_t i = 0; i < LPI_RUNS_MAX; i++) {
		uint64_t leaves = i == split ? 3 : 1;
		lpi_world_replace(w, (struct lp_extmap_range){4 * i * leaf, leaves * leaf});
	}
	lpi_world_reload(w);
	lpi_world_punch(w, (struct lp_extmap_range){(4 * split + 1) * leaf, leaf});
	assert_true(lpi_extmap_is_sound(&w->map));
	lpi_world_reload(w);
	lpi_world_check_all(w);
	lpi_world_free(w);
}

static void test_lost_leaf(void **state)
{
	(void)state;
	struct lpi_map_world *w = lpi_world_new(30, 10);
	struct lp_extmap_segment segment;
	lpi_world_replace(w, (struct lp_extmap_range){0, 640});
	lpi_world_reload(w);
	lp_test_err(-EAGAIN,
		    lp_extmap_lookup(&w->map, (struct lp_extmap_range){70, 1}, &segment, 1, NULL));
	struct lp_extmap_leaves missing = lp_extmap_missing(&w->map);
	assert_int_equal(missing.first, 1);
	assert_int_equal(missing.last, 1);
	lp_test_err(-EUCLEAN, lp_extmap_loaded(&w->map, missing));
	/* One leaf's value under the key of another is none. */
	lp_test_err(-EBADMSG, lp_extmap_load(&w->map, 1, w->kv[2].bytes, w->kv[2].len));
	lp_test_ok(lp_extmap_load(&w->map, 1, w->kv[1].bytes, w->kv[1].len));
	lp_test_ok(lp_extmap_loaded(&w->map, missing));
	lpi_world_check_all(w);
	/* One that the root excludes. */
	lp_test_err(-EUCLEAN, lp_extmap_load(&w->map, 10, w->kv[1].bytes, w->kv[1].len));
	uint32_t idx = 0;
	lp_test_err(-EUCLEAN, lp_extmap_leaf_of_key(&w->map, 65, &idx));
	lp_test_err(-EUCLEAN, lp_extmap_leaf_of_key(&w->map, LP_EXTMAP_BLOCKS_MAX, &idx));
	lpi_world_free(w);
}

/* A root that says less than its leaves have: no count may run below zero. */
static void test_root_that_lies(void **state)
{
	(void)state;
	struct lpi_map_world *w = lpi_world_new(31, 10);
	lpi_world_replace(w, (struct lp_extmap_range){0, 640});
	lpi_world_commit(w);
	for (uint64_t blocks = 10; blocks < 640; blocks += 21) {
		lp_extmap_fini(&w->map);
		lp_extmap_init(&w->map, lpi_world_ino, &w->mem);
		lp_put_le64(w->root + LP_EXTMAP_ROOT_BLOCKS_CNT_OFF, blocks);
		lp_test_ok(lp_extmap_load_root(&w->map, w->root, w->root_len));
		int err = 0;
		for (uint32_t idx = 0; idx < 10 && err == 0; idx++)
			err = lp_extmap_load(&w->map, idx, w->kv[idx].bytes, w->kv[idx].len);
		lp_test_err(-EUCLEAN, err);
		assert_true(lpi_extmap_is_sound(&w->map));
	}
	lpi_world_free(w);
}

static void test_mutated_roots(void **state)
{
	(void)state;
	unsigned taken = 0;
	for (uint64_t seed = 40; seed < 44; seed++) {
		struct lpi_map_world *w = lpi_world_new(seed, 40);
		for (uint64_t n = 0; n < seed - 39; n++)
			lpi_world_replace(w,
					  (struct lp_extmap_range){n * 200, seed == 40 ? 30 : 90});
		lpi_world_commit(w);
		for (int n = 0; n < 3000; n++) {
			size_t len = w->root_len;
			if (lp_prng_chance(&w->prng, 1, 10))
				len = lp_prng_below(&w->prng, len + 1);
			uint8_t *exact = malloc(LP_MAX(len, 1));
			assert_non_null(exact);
			memcpy(exact, w->root, len);
			for (uint64_t flips = lp_prng_below(&w->prng, 3); flips > 0 && len > 0;
			     flips--)
				exact[lp_prng_below(&w->prng, len)] ^=
					(uint8_t)(1U << lp_prng_below(&w->prng, 8));
			struct lp_extmap map;
			uint8_t again[LP_EXTMAP_ROOT_BYTES_MAX];
			lp_extmap_init(&map, lpi_world_ino, NULL);
			int err = lp_extmap_load_root(&map, exact, len);
			assert_true(err == 0 || err == -EUCLEAN || err == -EBADMSG);
			assert_true(lpi_extmap_is_sound(&map));
			if (err == 0) {
				assert_int_equal(lp_extmap_encode_root(&map, again), len);
				assert_memory_equal(again, exact, len);
				taken++;
			}
			lp_extmap_fini(&map);
			free(exact);
		}
		lpi_world_free(w);
	}
	assert_true(taken > 1000 && taken < 11000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_leaves_beyond_count), cmocka_unit_test(test_one_run_too_many),
		cmocka_unit_test(test_lost_leaf),           cmocka_unit_test(test_root_that_lies),
		cmocka_unit_test(test_mutated_roots),
	};
	return lp_test_main(tests, "store/extmap/damage");
}
