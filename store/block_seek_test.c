/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: a search for data or a hole gives a true answer wherever the leaves of the map are: in
 * memory, in the index, one by one or many beside each other, named by the root or not.
 * Method: files mapped by hand beside a model; each search warm, and cold. */
#include "store/block_test.h"

#include "base/crc32c.h"

static int do_op(struct lpi_rig *rig, struct lpi_rig_op *op)
{
	int result = lpi_rig_do(rig, op);
	assert_int_equal(rig->block->running, 0);
	assert_int_equal(lp_claims_cnt(rig->block->claims), 0);
	return result;
}

static int64_t seek(struct lpi_rig *rig, uint64_t ino, uint64_t offset, bool hole)
{
	struct lpi_rig_op op = {.op = {.opcode = LP_STORE_SEEK,
				       .seek = {.ino = {ino}, .offset = offset, .hole = hole}}};
	int result = do_op(rig, &op);
	return result < 0 ? result : (int64_t)op.op.seek.found;
}

/* What a file whose written blocks are these must answer. */
static int64_t seek_in(const bool *is_data, uint64_t size_bytes, uint64_t offset, bool hole)
{
	if (offset >= size_bytes)
		return -ENXIO;
	uint64_t block = offset / LP_BLOCK_BYTES;
	uint64_t end = lp_bytes_to_blocks_up(size_bytes);
	while (block < end && is_data[block] == hole)
		block++;
	if (block == end)
		return hole ? (int64_t)size_bytes : -ENXIO;
	return (int64_t)LP_MAX(block * LP_BLOCK_BYTES, offset);
}

static void test_seek(void **state)
{
	(void)state;
	struct lpi_rig rig = {.slots = 0};
	struct lpi_rig_file file;
	struct lp_prng prng;
	bool is_data[LPI_RIG_BLOCKS] = {false};
	lpi_rig_init(&rig);
	lpi_rig_file_init(&rig, &file, 5, 310 * LP_BLOCK_BYTES + 5);
	lp_prng_init(&prng, 1);
	for (uint64_t block = 3; block < 290;) {
		struct lp_extmap_range range = {block, lp_prng_between(&prng, 1, 40)};
		bool is_unwritten = lp_prng_chance(&prng, 1, 3);
		range.cnt = LP_MIN(range.cnt, 290 - block);
		lpi_rig_map(&rig, &file, range, is_unwritten ? LPI_RIG_UNWRITTEN : LPI_RIG_WRITTEN,
			    1);
		for (uint64_t i = 0; i < range.cnt; i++)
			is_data[block + i] = !is_unwritten;
		block += range.cnt + lp_prng_below(&prng, 3) * 20;
	}
	/* Warm; then cold now and then. */
	for (int round = 0; round < 2; round++) {
		for (uint64_t i = 0; i * 4095 < file.size_bytes + 8192; i++) {
			uint64_t offset = i * 4095;
			assert_int_equal(seek(&rig, 5, offset, i % 2 == 0),
					 seek_in(is_data, file.size_bytes, offset, i % 2 == 0));
			if (round == 1 && i % 40 == 0)
				lpi_rig_reopen(&rig);
			assert_int_equal(seek(&rig, 5, offset, i % 2 != 0),
					 seek_in(is_data, file.size_bytes, offset, i % 2 != 0));
		}
	}
	assert_int_equal(seek(&rig, 6, 0, false), -ENOENT);
	lpi_rig_inode(&rig, 7, LP_INODE_TYPE_DIR);
	assert_int_equal(seek(&rig, 7, 0, false), -EISDIR);
	lpi_rig_inode(&rig, 8, LP_INODE_TYPE_FIFO);
	assert_int_equal(seek(&rig, 8, 0, false), -EINVAL);
	lpi_rig_close(&rig, false);
	lpi_rig_file_fini(&file);
	lpi_rig_fini(&rig);
}

/* Content in the inode: its end is told to the byte. */
static void test_seek_inline(void **state)
{
	static const uint8_t content[100] = {1};
	(void)state;
	struct lpi_rig rig = {.slots = 0};
	lpi_rig_init(&rig);
	struct lpi_inode *inode = lpi_rig_inode(&rig, 5, LP_INODE_TYPE_FILE);
	inode->rec.size_bytes = 10000;
	assert_int_equal(seek(&rig, 5, 0, false), -ENXIO); /* all of it a hole */
	assert_int_equal(seek(&rig, 5, 77, true), 77);
	lpi_rig_reserve(&rig);
	lp_test_ok(lpi_inode_make_room(inode, LPI_PART_CONTENT, 100));
	lpi_inode_set_part(inode, LPI_PART_CONTENT, content, sizeof(content));
	inode->rec.content_crc = lp_crc32c(0, content, sizeof(content));
	lpi_node_changed(&inode->node);
	for (int round = 0; round < 2; round++) {
		assert_int_equal(seek(&rig, 5, 0, false), 0);
		assert_int_equal(seek(&rig, 5, 99, false), 99);
		assert_int_equal(seek(&rig, 5, 100, false), -ENXIO);
		assert_int_equal(seek(&rig, 5, 0, true), 100);
		assert_int_equal(seek(&rig, 5, 100, true), 100);
		assert_int_equal(seek(&rig, 5, 9999, true), 9999);
		assert_int_equal(seek(&rig, 5, 10000, true), -ENXIO);
		lpi_rig_reopen(&rig);
	}
	lpi_rig_close(&rig, false);
	lpi_rig_fini(&rig);
}

static void map_one(struct lpi_rig *rig, struct lp_ino ino, uint64_t block)
{
	const struct lp_extent extent = lpi_rig_take(rig, 1);
	const uint32_t crc = 1;
	const struct lp_extmap_range range = {block, 1};
	const struct lp_extmap_new fresh = {.extents = &extent, .extents_cnt = 1, .crcs = &crc};
	struct lp_extmap_released released = {.max = 0};
	struct lpi_inode *inode = lpi_rig_find(rig, ino);
	lpi_rig_reserve(rig);
	lp_shard_taken(rig->block->shard, extent);
	lp_test_ok(lp_extmap_reserve(&inode->map, range, 1));
	lp_extmap_replace(&inode->map, range, &fresh, &released);
	lpi_node_changed(&inode->node);
}

/* More leaves than the root names, far apart; and many beside each other. */
static void test_seek_far(void **state)
{
	(void)state;
	struct lpi_rig rig = {.slots = 0};
	const uint64_t step = UINT64_C(64000);
	const uint64_t cnt = 150;
	const uint64_t dense = 300; /* leaves */
	lpi_rig_init(&rig);
	struct lpi_inode *sparse = lpi_rig_inode(&rig, 5, LP_INODE_TYPE_FILE);
	struct lpi_inode *full = lpi_rig_inode(&rig, 6, LP_INODE_TYPE_FILE);
	sparse->rec.size_bytes = cnt * step * LP_BLOCK_BYTES;
	const uint64_t size_bytes = dense * LP_EXTMAP_LEAF_BLOCKS * LP_BLOCK_BYTES;
	full->rec.size_bytes = size_bytes;
	for (uint64_t i = 0; i < cnt; i++)
		map_one(&rig, (struct lp_ino){5}, i * step + 7);
	for (uint64_t i = 0; i < dense * LP_EXTMAP_LEAF_BLOCKS; i++)
		if (i % 64 == 63 || i > 64 * (dense - 2))
			map_one(&rig, (struct lp_ino){6}, i);
	for (int round = 0; round < 2; round++) {
		for (uint64_t i = 0; i < cnt; i += 1 + i % 5) {
			uint64_t at = (i * step + 7) * LP_BLOCK_BYTES;
			assert_int_equal(seek(&rig, 5, at + 5, false), at + 5);
			assert_int_equal(seek(&rig, 5, at + 5, true), at + LP_BLOCK_BYTES);
			assert_int_equal(seek(&rig, 5, at + LP_BLOCK_BYTES, false),
					 i + 1 < cnt ? (int64_t)(at + step * LP_BLOCK_BYTES)
						     : -ENXIO);
			if (round == 1 && i % 7 == 0)
				lpi_rig_reopen(&rig);
		}
		/* What one scan did not get to is found by the next. */
		lpi_rig_reopen(&rig);
		for (uint64_t i = 0; i + 1 < cnt; i += 5)
			assert_int_equal(seek(&rig, 5, (i * step + 8) * LP_BLOCK_BYTES, false),
					 ((i + 1) * step + 7) * LP_BLOCK_BYTES);
		/* One leaf after the other has to be looked at. */
		uint64_t from = 64 * (dense - 2) * LP_BLOCK_BYTES + LP_BLOCK_BYTES;
		lpi_rig_reopen(&rig);
		assert_int_equal(seek(&rig, 6, from, true), size_bytes);
		assert_int_equal(seek(&rig, 6, 63 * LP_BLOCK_BYTES, true), 64 * LP_BLOCK_BYTES);
	}
	lpi_rig_close(&rig, false);
	lpi_rig_fini(&rig);
}

/* A hole behind many leaves without one: fetched many at a time. */
static void test_seek_scans(void **state)
{
	(void)state;
	struct lpi_rig rig = {.slots = 0};
	const uint64_t leaves = 40;
	lpi_rig_init(&rig);
	struct lpi_inode *inode = lpi_rig_inode(&rig, 5, LP_INODE_TYPE_FILE);
	inode->rec.size_bytes = (leaves * LP_EXTMAP_LEAF_BLOCKS + 9) * LP_BLOCK_BYTES;
	for (uint64_t i = 0; i < leaves; i++) {
		const struct lp_extent extent = lpi_rig_take(&rig, LP_EXTMAP_LEAF_BLOCKS);
		const struct lp_extmap_range range = {i * LP_EXTMAP_LEAF_BLOCKS,
						      LP_EXTMAP_LEAF_BLOCKS};
		const uint32_t crcs[LP_EXTMAP_LEAF_BLOCKS] = {0};
		const struct lp_extmap_new fresh = {
			.extents = &extent, .extents_cnt = 1, .crcs = crcs};
		struct lp_extmap_released released = {.max = 0};
		lpi_rig_reserve(&rig);
		lp_shard_taken(rig.block->shard, extent);
		lp_test_ok(lp_extmap_reserve(&inode->map, range, 1));
		lp_extmap_replace(&inode->map, range, &fresh, &released);
		lpi_node_changed(&inode->node);
	}
	int64_t end = (int64_t)(leaves * LP_EXTMAP_LEAF_BLOCKS * LP_BLOCK_BYTES);
	assert_int_equal(seek(&rig, 5, 0, true), end);
	lpi_rig_reopen(&rig);
	assert_int_equal(seek(&rig, 5, 0, true), end);
	assert_true(rig.block->stats.index_waits <= 3);
	lpi_rig_close(&rig, false);
	lpi_rig_fini(&rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_seek),
		cmocka_unit_test(test_seek_inline),
		cmocka_unit_test(test_seek_far),
		cmocka_unit_test(test_seek_scans),
	};
	return lp_test_main(tests, "store/block_seek");
}
