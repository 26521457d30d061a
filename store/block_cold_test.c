/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: what a change of data needs of a cold extent map is fetched at once: an operation waits for
 * the index a few times, not once for each piece of the map.
 * Method: a file whose map has many large leaves, on a simulated device; the store is opened anew,
 * all of the file is punched, and the waits for the index are counted. */
#include "store/block_sim_test.h"

#include "store/extmap.h"

#define LEAVES 64u
#define BLOCKS ((uint64_t)LEAVES * LP_EXTMAP_LEAF_BLOCKS)

static const struct lp_ino files[] = {{100}, {101}};
static const uint8_t bytes[LP_BLOCK_BYTES];

/* Block by block in turn, so that each block is an extent of its own and the maps are large. */
static void make_files(struct lpi_store_rig *rig)
{
	const struct lp_attrs attrs = {.type = LP_INODE_TYPE_FILE, .mode = 0600, .nlink = 1};
	for (size_t i = 0; i < LP_ARRAY_SIZE(files); i++)
		lp_test_ok(lpi_hand_change(&rig->hand,
					   (struct lp_change){.type = LP_CHANGE_CREATE,
							      .ino = files[i],
							      .inode = {.attrs = &attrs}}));
	for (uint64_t n = 0; n < BLOCKS; n++)
		for (size_t i = 0; i < LP_ARRAY_SIZE(files); i++)
			lp_test_ok(lpi_hand_write(&rig->hand, files[i], n * LP_BLOCK_BYTES, bytes,
						  sizeof(bytes)));
}

static uint64_t waits(struct lpi_store_rig *rig)
{
	struct lp_store_stats stats;
	lp_store_read_stats(rig->hand.store, &stats);
	return stats.index_waits;
}

static void test_waits(void **state)
{
	(void)state;
	const struct lp_change punch = {.type = LP_CHANGE_PUNCH,
					.ino = files[0],
					.data = {.length = BLOCKS * LP_BLOCK_BYTES}};
	struct lpi_store_rig rig;
	lpi_store_rig_start(&rig, 1);
	make_files(&rig);
	lp_test_ok(lpi_store_rig_close(&rig, false));
	lp_test_ok(lpi_store_rig_open(&rig));
	uint64_t before = waits(&rig);
	lp_test_ok(lpi_hand_change(&rig.hand, punch));
	uint64_t cnt = waits(&rig) - before;
	assert_in_range(cnt, 1, 2); /* the inode; the first leaf, and with it all others */
	lp_test_ok(lpi_store_rig_close(&rig, false));
	lpi_store_rig_check(&rig);
	lpi_store_rig_fini(&rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_waits)};
	return lp_test_main(tests, "store/block_cold");
}
