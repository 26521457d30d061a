/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: a deep check finds each block that is not what its checksum says, with the file, the offset
 * and the path, also one that waits for its place; what cannot be read is told apart; and nothing
 * of it is changed by a repair (promise P4).
 * Method: a small store; bits flipped on the device, a payload deferred, reads that fail. */
#include "store/check/fsck_rig_test.h"

#include "store/device/sim/bdev_sim.h"

static struct lpi_fsck_rig rig;

static void flip_block(uint64_t block)
{
	_Alignas(4096) static uint8_t bytes[4096];
	lp_test_ok(lp_bdev_read_sync(rig.bdev, bytes, sizeof(bytes), block * LP_BLOCK_BYTES));
	bytes[block % sizeof(bytes)] ^= 0x10;
	lp_test_ok(
		lp_bdev_write_sync(rig.bdev, bytes, sizeof(bytes), block * LP_BLOCK_BYTES, true));
}

static void test_flipped_bit(void **state)
{
	(void)state;
	lpi_rig_init(&rig, 1);
	lpi_rig_fill(&rig);
	flip_block(rig.a.block + 1);
	flip_block(rig.a.block + 2);
	LPI_RIG_EXPECT(&rig, {LP_FSCK_DATA, 3, false});
	assert_int_equal(rig.found[0].offset_bytes, LP_BLOCK_BYTES);
	assert_int_equal(rig.found[0].extent.block, rig.a.block + 1);
	assert_int_equal(rig.found[0].extent.cnt, 2);
	assert_non_null(strstr(rig.texts[0], "/d/a (inode 3)"));
	/* Nobody looks at what was never written, nor without being asked to. */
	flip_block(rig.a.block + 1);
	flip_block(rig.a.block + 2);
	flip_block(rig.b.block + 25);
	lp_test_ok(lpi_rig_run(&rig, false));
	assert_int_equal(rig.found_cnt, 0);
	flip_block(rig.b.block + 5);
	rig.deep = false;
	lp_test_ok(lpi_rig_run(&rig, false));
	assert_int_equal(rig.found_cnt, 0);
	assert_int_equal(rig.report.read_blocks, 0);
	rig.deep = true;
	/* Both files that share a block have the damage. */
	flip_block(rig.b.block);
	LPI_RIG_EXPECT(&rig, {LP_FSCK_DATA, 4, false}, {LP_FSCK_DATA, 4, false},
		       {LP_FSCK_DATA, 5, false});
	lpi_rig_fini(&rig);
}

/* A block full of `tag` becomes a payload of *about, whose crc follows. */
static void defer(const struct lp_log_payload *about, int tag)
{
	struct lp_seg seg = {.buf = lp_buf_new(rig.bufs, 4096), .len = 4096};
	struct lp_log_payload payload = *about;
	assert_non_null(seg.buf);
	memset(seg.buf->data, tag, 4096);
	payload.crc = lp_crc32c(0, seg.buf->data, 4096);
	lp_shard_defer(rig.shards[0], &payload, seg);
	lp_buf_put(seg.buf);
}

/* All is durable; then as after a crash. */
static void settle_and_die(void)
{
	lpi_rig_settle(&rig);
	lp_test_ok(lp_shard_close(rig.shards[0], true));
	lp_devices_close(&rig.devices);
}

/* The newest content is in the log only: the map has its crc, the device does not have the
 * block. */
static void test_deferred(void **state)
{
	(void)state;
	struct lp_kv_value value;
	struct lp_inode inode;
	struct lp_extmap map;
	lpi_rig_init(&rig, 1);
	lpi_rig_fill(&rig);
	flip_block(rig.a.block);
	lpi_rig_open(&rig);
	(void)lpi_rig_commit(&rig, 0, 0);
	defer(&(struct lp_log_payload){.ino = 3, .device_block = rig.a.block},
	      (int)(rig.a.block & 0xff));
	settle_and_die();
	lp_test_ok(lpi_rig_run(&rig, false));
	lpi_rig_compare(&rig, NULL, 0, false);
	/* And one whose payload is another one than the map says. */
	lpi_rig_open(&rig);
	lpi_rig_get_inode(&rig, 7, &value, &inode);
	inode.size_bytes = 1;
	lp_extmap_init(&map, inode.ino, NULL);
	struct lp_extent extent = lpi_rig_take(&rig, 1);
	lpi_rig_map(&map, 0, extent, true, false);
	lpi_rig_put_file(&rig, &inode, &map);
	lp_kv_value_release(&value);
	(void)lpi_rig_commit(&rig, 0, 0);
	defer(&(struct lp_log_payload){.ino = 7, .device_block = extent.block},
	      1 + (int)(extent.block & 0x7f));
	settle_and_die();
	LPI_RIG_EXPECT(&rig, {LP_FSCK_DATA, 7, false});
	lpi_rig_fini(&rig);
}

static void keep_in_index(const struct lp_log_payload *about, int tag)
{
	struct lp_commit_need need = {.batch_bytes = 100};
	lp_shard_set_deferred_store(rig.shards[0], LP_DEFERRED_KV);
	lp_shard_defer_need(rig.shards[0], 1, &need);
	assert_int_equal(need.data_cnt, 0); /* a record it is */
	while (!lp_commit_reserve(lp_shard_commit(rig.shards[0]), &need))
		lpi_rig_turn(&rig, 0);
	defer(about, tag);
}

/* The same, kept by the index: each must be what the map of its file says. */
static void test_deferred_in_the_index(void **state)
{
	(void)state;
	lpi_rig_init(&rig, 1);
	lpi_rig_fill(&rig);
	flip_block(rig.a.block);
	lpi_rig_open(&rig);
	keep_in_index(&(struct lp_log_payload){.ino = 3, .device_block = rig.a.block},
		      (int)(rig.a.block & 0xff));
	settle_and_die();
	lp_test_ok(lpi_rig_run(&rig, false));
	lpi_rig_compare(&rig, NULL, 0, false);
	/* Three that are wrong: other content, another file, a block in use that no file has. */
	lpi_rig_open(&rig);
	struct lp_extent lost = lpi_rig_take(&rig, 1);
	(void)lpi_rig_commit(&rig, 0, 0);
	keep_in_index(&(struct lp_log_payload){.ino = 3, .device_block = rig.a.block},
		      1 + (int)(rig.a.block & 0x7f));
	keep_in_index(&(struct lp_log_payload){.ino = 5, .device_block = rig.a.block + 1},
		      (int)((rig.a.block + 1) & 0xff));
	keep_in_index(&(struct lp_log_payload){.ino = 3, .device_block = lost.block}, 9);
	settle_and_die();
	lp_test_ok(lpi_rig_run(&rig, false));
	uint32_t found = 0;
	for (uint32_t i = 0; i < rig.found_cnt; i++)
		found += rig.found[i].kind == LP_FSCK_DEFERRED;
	assert_int_equal(found, 3);
	lpi_rig_fini(&rig);
}

/* More in a row than one read takes, and more pieces than are read at a time. */
static void test_many_blocks(void **state)
{
	(void)state;
	struct lp_extent extent[40];
	struct lp_inode inode = lpi_rig_inode(7, LP_INODE_TYPE_FILE, 2, "l", 2);
	struct lp_extmap map;
	lpi_rig_init(&rig, 1);
	lpi_rig_fill(&rig);
	lpi_rig_open(&rig);
	lp_extmap_init(&map, inode.ino, NULL);
	for (uint64_t i = 0; i < LP_ARRAY_SIZE(extent); i++) {
		extent[i] = lpi_rig_take(&rig, i < 10 ? 60 : 1);
		lpi_rig_map(&map, i < 10 ? i * 60 : 3 * i * 60, extent[i], true, false);
	}
	inode.size_bytes = 7200 * LP_BLOCK_BYTES;
	lpi_rig_put_file(&rig, &inode, &map);
	lpi_rig_settle(&rig);
	lpi_rig_close(&rig);
	lp_test_ok(lpi_rig_run(&rig, false));
	lpi_rig_compare(&rig, NULL, 0, false);
	assert_int_equal(rig.report.read_blocks, 28 + 600 + 30);
	flip_block(extent[9].block + 59);
	flip_block(extent[39].block);
	LPI_RIG_EXPECT(&rig, {LP_FSCK_DATA, 7, false}, {LP_FSCK_DATA, 7, false});
	lpi_rig_fini(&rig);
}

static void test_unreadable(void **state)
{
	(void)state;
	const struct lp_sim_options options = {.profile = lp_sim_preset(LP_SIM_PROTECTED),
					       .size_bytes = LPI_RIG_BYTES,
					       .log_metadata_only = true};
	struct lp_bdev *bdev = NULL;
	lp_test_ok(lp_bdev_open_sim(&options, &bdev));
	lpi_rig_init_on(&rig, bdev, 1);
	lpi_rig_mkfs(&rig);
	lpi_rig_fill(&rig);
	lp_sim_spoil(lp_sim_of(bdev), LP_BLOCK_BYTES, (rig.a.block + 1) * LP_BLOCK_BYTES);
	flip_block(rig.a.block + 3);
	LPI_RIG_EXPECT(&rig, {LP_FSCK_DATA_READ, 3, false}, {LP_FSCK_DATA, 3, false});
	assert_int_equal(rig.found[0].extent.block, rig.a.block + 1);
	assert_int_equal(rig.found[1].extent.block, rig.a.block + 3);
	lpi_rig_fini(&rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_flipped_bit),
		cmocka_unit_test(test_deferred),
		cmocka_unit_test(test_deferred_in_the_index),
		cmocka_unit_test(test_many_blocks),
		cmocka_unit_test(test_unreadable),
	};
	return lp_test_main(tests, "store/check/read_all_data");
}
