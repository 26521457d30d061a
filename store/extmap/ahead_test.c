/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: who goes through the leaves of a very sparse file, one after the other, does not look
 * through all of them each time (P5), and misses none. Method: more leaves than runs can name, of
 * which some go and others come on the way. */
#include "store/extmap/ahead.h"
#include "store/extmap/runs.h"
#include "store/extmap/world_test.h"

static uint64_t first_allocated(struct lp_extmap *map)
{
	uint64_t at = 0;
	lp_test_ok(lp_extmap_seek(map, 0, LP_EXTMAP_SEEK_ALLOCATED, &at));
	return at;
}

static void punch_one(struct lp_extmap *map, uint64_t at)
{
	struct lp_extmap_released released = {&(struct lp_extmap_release){{0, 0}, false}, 0, 1};
	assert_int_equal(lp_extmap_reserve(map, (struct lp_extmap_range){at, 1}, 0), 1);
	lp_extmap_punch(map, (struct lp_extmap_range){at, 1}, &released);
}

/* Leaves that no run names, so many that who asks for one after the other may not look through all
 * of them each time (P5); also while they go, and while others come. */
static void test_many_unnamed_leaves(void **state)
{
	(void)state;
	const uint64_t leaf = LP_EXTMAP_LEAF_BLOCKS;
	const uint64_t cnt = UINT64_C(20) * LPI_AHEAD_MAX;
	const uint64_t looks_max = 2 * cnt / LPI_AHEAD_MAX;
	struct lp_extmap map;
	struct lp_extent extent = {1000, 1};
	struct lp_extmap_new space = {&extent, 1, NULL, false};
	uint64_t end = 3 * cnt;
	uint64_t at = 0;
	lp_extmap_init(&map, lpi_world_ino, NULL);
	for (uint64_t i = 0; i < cnt; i++)
		lpi_world_put_extents(&map, 3 * i * leaf, &space, 1);
	/* Nothing is written, so all of them are looked at. */
	while (lp_extmap_seek(&map, at, LP_EXTMAP_SEEK_DATA, &at) == 1)
		continue;
	assert_true(map.ahead->looks > 0 && map.ahead->looks <= looks_max);
	for (uint64_t i = 0; i < cnt; i++) {
		assert_int_equal(first_allocated(&map), 3 * i * leaf);
		punch_one(&map, 3 * i * leaf);
		if (i % 512 != 0)
			continue;
		lpi_world_put_extents(&map, (3 * i + 2) * leaf, &space, 1);
		for (uint32_t n = 0; n < 2 * LPI_RUNS_MAX; n++, end += 3) /* which are named */
			lpi_world_put_extents(&map, end * leaf, &space, 1);
		assert_int_equal(first_allocated(&map), (3 * i + 2) * leaf);
		punch_one(&map, (3 * i + 2) * leaf);
	}
	assert_int_equal(first_allocated(&map), 3 * cnt * leaf);
	assert_true(map.ahead->looks <= 2 * looks_max);
	lp_extmap_fini(&map);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_many_unnamed_leaves),
	};
	return lp_test_main(tests, "store/extmap/ahead");
}
