/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: in a copy of a store a shard that does not open gets an index of what its old one and its
 * log still have; names that are left nowhere but in inodes come back; and what is missing is said.
 * The store that was copied is only read.
 * Method: the small store of check/fsck_rig_test.h on two shards, damaged on its device, and a copy
 * of that.
 */
#include "store/check/fsck_rig_test.h"

#include "base/crc32c.h"
#include "store/kvfs/memory.h"

#define PIECE 65536u

static struct lpi_fsck_rig rig;

static void zero(uint64_t block, uint64_t cnt)
{
	_Alignas(4096) static uint8_t zeros[4096];
	for (uint64_t i = 0; i < cnt; i++)
		lp_test_ok(lp_bdev_write_sync(rig.bdev, zeros, sizeof(zeros),
					      (block + i) * LP_BLOCK_BYTES, true));
}

/* Of all bytes; with `to` they are written there, too. */
static uint32_t read_all(struct lp_bdev *from, struct lp_bdev *to)
{
	_Alignas(4096) static uint8_t bytes[PIECE];
	uint64_t size = lp_bdev_caps(from)->size_bytes;
	uint32_t sum = 0;
	for (uint64_t at = 0; at < size; at += PIECE) {
		uint64_t len = LP_MIN(size - at, (uint64_t)PIECE);
		lp_test_ok(lp_bdev_read_sync(from, bytes, len, at));
		sum = lp_crc32c(sum, bytes, len);
		if (to != NULL)
			lp_test_ok(lp_bdev_write_sync(to, bytes, len, at, false));
	}
	return sum;
}

/* The rig's device is a copy from here on, and is mended with a new index. */
static void rebuild(void)
{
	struct lp_kvfs_mem *scratch = NULL;
	struct lp_kvfs_mem_stats stats;
	struct lp_bdev *source = NULL;
	struct lp_label_why why;
	lp_test_ok(lp_kvfs_mem_new(1, &scratch));
	lp_test_ok(lp_bdev_open_mem(lp_bdev_caps(rig.bdev)->size_bytes, 4096, &source));
	uint32_t sum = read_all(rig.bdev, source);
	const struct lp_fsck_rebuild from = {
		.bdev = {source}, .scratch = lp_kvfs_mem_fs(scratch), .salt = 77};
	const struct lp_fsck_options options = {.reactor = rig.reactor,
						.workers = rig.workers,
						.bufs = rig.bufs,
						.bdev = {rig.bdev},
						.events = &rig.events,
						.sim_clock = &rig.clock.clock,
						.index_cache_bytes = 1 << 20,
						.index_buffer_bytes = 1 << 16,
						.files_reserve_bytes = 1 << 20,
						.deep = true,
						.repair = true,
						.rebuild = &from};
	rig.events.found = lpi_rig_found;
	rig.found_cnt = 0;
	lp_test_ok(lp_fsck_run(&options, &rig.report, &why));
	assert_int_equal(read_all(source, NULL), sum);
	lp_kvfs_mem_read_stats(scratch, &stats);
	assert_int_equal(stats.files, 0);
	lp_bdev_close(source);
	lp_kvfs_mem_free(scratch);
}

static unsigned count(enum lp_fsck_kind kind, bool is_repaired)
{
	unsigned cnt = 0;
	for (uint32_t i = 0; i < rig.found_cnt; i++)
		cnt += rig.found[i].kind == kind && rig.found[i].is_repaired == is_repaired;
	return cnt;
}

static void set_up(void)
{
	lpi_rig_init(&rig, 2);
	rig.deep = true;
	lpi_rig_fill(&rig);
}

/* All of it is there, and in order. */
static void expect_whole(void)
{
	lp_test_ok(lpi_rig_run(&rig, false));
	lpi_rig_compare(&rig, NULL, 0, false);
	assert_int_equal(rig.report.inodes, 8);
	assert_int_equal(rig.report.entries, 7);
}

/* A store in order is not made anew. */
static void test_in_order(void **state)
{
	(void)state;
	set_up();
	rebuild();
	assert_int_equal(rig.found_cnt, 0);
	expect_whole();
	lpi_rig_fini(&rig);
}

/* The list of the files of an index is gone, of either shard: nothing else is. */
static void test_journal_is_gone(void **state)
{
	struct lp_disk_label label;
	(void)state;
	for (uint32_t shard = 0; shard < 2; shard++) {
		set_up();
		lp_test_ok(lp_label_read(rig.bdev, false, &label, NULL));
		struct lp_extent area = lp_label_files_area(&label, shard);
		zero(area.block, area.cnt);
		rebuild();
		assert_int_equal(rig.report.problems, 0);
		assert_int_equal(count(LP_FSCK_SHARD, true), 1);
		assert_int_equal(rig.report.warnings, 1);
		expect_whole();
		lpi_rig_fini(&rig);
	}
}

/* The log is gone: what the index has is there, and it is said that more may have been. */
static void test_log_is_gone(void **state)
{
	struct lp_disk_label label;
	(void)state;
	set_up();
	lp_test_ok(lp_label_read(rig.bdev, false, &label, NULL));
	struct lp_extent area = lp_label_log_area(&label, 0);
	zero(area.block, area.cnt);
	rebuild();
	assert_int_equal(rig.report.problems, 1);
	assert_int_equal(count(LP_FSCK_SHARD, false), 1);
	expect_whole();
	lpi_rig_fini(&rig);
}

/* Deletes records of the store before it is damaged: then they are lost. */
static void lose(const struct lp_key *key, uint32_t shard)
{
	lpi_rig_open(&rig);
	lpi_rig_put(&rig, shard, key, NULL, 0);
	lpi_rig_settle(&rig);
	lpi_rig_close(&rig);
}

/* The root's inode, a directory's, and entries, of the shard that is made anew. */
static void test_names_come_back(void **state)
{
	struct lp_disk_label label;
	struct lp_key key;
	(void)state;
	set_up();
	lp_key_of_ino(&key, LP_KEY_SPACE_INODE, (struct lp_ino){1});
	lose(&key, 0);
	lp_key_of_ino(&key, LP_KEY_SPACE_INODE, (struct lp_ino){2});
	lose(&key, 0);
	lp_key_of_name(&key, LP_KEY_SPACE_DIRENT, (struct lp_ino){2}, "a", 1);
	lose(&key, 0);
	lp_key_of_name(&key, LP_KEY_SPACE_DIRENT, (struct lp_ino){1}, "s", 1);
	lose(&key, 0);
	lp_test_ok(lp_label_read(rig.bdev, false, &label, NULL));
	struct lp_extent area = lp_label_files_area(&label, 0);
	zero(area.block, 2);
	rebuild();
	assert_int_equal(count(LP_FSCK_ENTRY, true), 2);
	assert_int_equal(count(LP_FSCK_UNREACHABLE, true), 2);
	assert_int_equal(rig.report.problems, 0);
	expect_whole();
	lpi_rig_fini(&rig);
}

/* A number of an inode is not given again: the bound is far beyond those that are known. */
static void test_numbers_are_not_given_again(void **state)
{
	struct lp_disk_label label;
	struct lp_kv_value value;
	struct lp_key key;
	(void)state;
	set_up();
	lp_test_ok(lp_label_read(rig.bdev, false, &label, NULL));
	zero(lp_label_files_area(&label, 0).block, 2);
	rebuild();
	lpi_rig_open(&rig);
	lp_key_of_store(&key, "inodes");
	lp_test_ok(lp_kv_get(lp_shard_kv(rig.shards[0]), (struct lp_kv_bytes){key.bytes, key.len},
			     &value));
	assert_int_equal(value.bytes.len, 8);
	assert_true(lp_get_le64(value.bytes.data) > UINT64_C(1) << 32);
	lp_kv_value_release(&value);
	lpi_rig_close(&rig);
	lpi_rig_fini(&rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_in_order),
		cmocka_unit_test(test_journal_is_gone),
		cmocka_unit_test(test_log_is_gone),
		cmocka_unit_test(test_names_come_back),
		cmocka_unit_test(test_numbers_are_not_given_again),
	};
	return lp_test_main(tests, "store/check/rebuild_index");
}
