/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: what a change of data needs of a cold extent map is fetched at once: an operation waits for
 * the index a few times, not once for each piece of the map. A transaction that asks the index for
 * more than a cache has room for comes to its end.
 * Method: a file whose map has many large leaves, on a simulated device; the store is opened anew,
 * all of the file is punched, and the waits for the index are counted. An inode has large xattrs;
 * the store is opened anew with little memory, and one transaction guards and removes them all. */
#include "store/block/block_sim_test.h"

#include "store/extmap/extmap.h"

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

enum { XATTRS = 8 };

static struct lp_bytes xattr_name(size_t idx)
{
	static const char names[] = "abcdefgh";
	return (struct lp_bytes){names + idx, 1};
}

static void test_more_than_a_cache_holds(void **state)
{
	(void)state;
	static uint8_t value[LP_STORE_VALUE_MAX];
	const struct lp_bytes whole = {value, sizeof(value)};
	const struct lp_attrs attrs = {.type = LP_INODE_TYPE_FILE, .mode = 0600, .nlink = 1};
	const struct lp_change create = {
		.type = LP_CHANGE_CREATE, .ino = files[0], .inode = {.attrs = &attrs}};
	struct lp_change changes[2 * XATTRS];
	struct lpi_store_rig rig;
	lpi_store_rig_start(&rig, 1);
	lp_test_ok(lpi_hand_change(&rig.hand, create));
	for (size_t i = 0; i < XATTRS; i++) {
		changes[i] = (struct lp_change){.type = LP_CHANGE_XATTR_SET,
						.ino = files[0],
						.named = {.name = xattr_name(i), .value = whole}};
		lp_test_ok(lpi_hand_change(&rig.hand, changes[i]));
		changes[i].type = LP_GUARD_XATTR;
		changes[XATTRS + i] = (struct lp_change){.type = LP_CHANGE_XATTR_REMOVE,
							 .ino = files[0],
							 .named = {.name = xattr_name(i)}};
	}
	lp_test_ok(lpi_store_rig_close(&rig, false));
	rig.memory_bytes = UINT64_C(256) << 10;
	lp_test_ok(lpi_store_rig_open(&rig));
	uint64_t before = waits(&rig);
	lp_test_ok(lpi_hand_txn(&rig.hand, changes, 2 * XATTRS));
	assert_in_range(waits(&rig) - before, XATTRS, 3 * XATTRS);
	lp_test_ok(lpi_store_rig_close(&rig, false));
	lpi_store_rig_check(&rig);
	lpi_store_rig_fini(&rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_waits),
		cmocka_unit_test(test_more_than_a_cache_holds),
	};
	return lp_test_main(tests, "store/block/read/cold_index");
}
