/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: rot in any structure of blockfs is an error or is repaired, never wrong data and never a
 * silent end of the journal (rules L8, and L1 for this journal); bytes of any kind do not crash it.
 * Method: bits flipped in every block, lost writes, unreadable blocks; decoders fed with changed
 * frames whose checksums are right. */
#include "store/blockfs/blockfs_rig_test.h"

#include "base/crc32c.h"

#define HALF 16u
/* Where the superblocks and the journal are. */
#define AREA (16 * UINT64_C(4096))

static void flip(struct lp_bdev *bdev, uint64_t offset, uint8_t mask)
{
	static _Alignas(4096) uint8_t buf[4096];
	uint64_t block = lp_align_down(offset, 4096);
	lp_test_ok(lp_bdev_read_sync(bdev, buf, 4096, block));
	buf[offset % 4096] ^= mask;
	lp_test_ok(lp_bdev_write_sync(bdev, buf, 4096, block, true));
}

/* Every block of file data and of the crc table: an error that names the file, and only for reads
 * that need it. */
static void test_rot_data(void **state)
{
	(void)state;
	struct lpi_fs_bench bench;
	static uint8_t buf[4096];
	uint64_t hit_cnt = 0;
	uint64_t table_cnt = 0;
	lpi_fs_setup_mem(&bench, 3, HALF);
	lp_test_ok(lpi_fs_put(bench.fs, "db/7.sst", 1, 400000)); /* 98 blocks and a table */
	for (uint64_t block = 256; block < 400; block++) {
		struct lp_blockfs_reader *reader = NULL;
		unsigned bad_cnt = 0;
		flip(bench.data, block * 4096 + block * 7 % 4096, 0x10);
		lp_test_ok(lp_blockfs_open_reader(bench.fs, "db/7.sst", &reader));
		for (uint64_t offset = 0; offset < 400000; offset += 4096) {
			uint64_t got = 0;
			int err = lp_blockfs_pread(reader, buf, 100, offset, &got);
			if (err == 0)
				continue;
			lp_test_err(-EBADMSG, err);
			bad_cnt++;
			const struct lp_corruption *found = lp_corruption_find(0);
			assert_non_null(strstr(found->what, "db/7.sst"));
			if (strstr(found->what, "table") == NULL)
				assert_int_equal(found->offset, offset);
		}
		lp_blockfs_close_reader(reader);
		assert_true(bad_cnt == 0 || bad_cnt == 1 || bad_cnt == 98);
		hit_cnt += bad_cnt == 1;
		table_cnt += bad_cnt == 98;
		lp_test_err(bad_cnt == 0 ? 0 : -EBADMSG, lp_blockfs_verify(bench.fs, "db/7.sst"));
		flip(bench.data, block * 4096 + block * 7 % 4096, 0x10);
	}
	assert_int_equal(hit_cnt, 98);
	assert_int_equal(table_cnt, 1);
	lpi_fs_teardown(&bench);
}

/* A lost or misdirected write leaves an old block, which is consistent in itself (rule L8). */
static void test_lost_write(void **state)
{
	(void)state;
	struct lpi_fs_bench bench;
	lpi_fs_setup(&bench, lpi_disk_sim(LP_FS_BLOCKS(3) * LP_BLOCK_BYTES, LP_SIM_CONSUMER, 1),
		     NULL, HALF);
	lp_test_ok(lpi_fs_put(bench.fs, "old", 1, 200000));
	lp_test_ok(lp_blockfs_delete(bench.fs, "old"));
	struct lp_sim_rule rule = {
		.fault = LP_SIM_LOST, .opcode_mask = LP_SIM_OP(LP_BDEV_WRITE), .fire_cnt = 1};
	(void)lp_sim_rule_add(lp_sim_of(bench.data), &rule);
	lp_test_ok(lpi_fs_put(bench.fs, "new", 2, 200000));
	lp_test_err(-EBADMSG, lp_blockfs_verify(bench.fs, "new"));
	lpi_fs_teardown(&bench);
}

/* A superblock slot may rot, and is repaired; both may not. */
static void test_rot_super(void **state)
{
	(void)state;
	struct lpi_fs_bench bench;
	lpi_fs_setup_mem(&bench, 3, HALF);
	lp_test_ok(lpi_fs_put(bench.fs, "a", 1, 5000));
	for (uint64_t at = 0; at < 4096; at += 5) {
		flip(bench.data, (16 + at % 2) * 4096 + at, 1);
		lpi_fs_reopen(&bench);
		assert_int_equal(lpi_fs_get(bench.fs, "a", 1), 5000);
	}
	lpi_fs_close(&bench);
	flip(bench.data, 16 * 4096 + 20, 1);
	flip(bench.data, 17 * 4096 + 21, 1);
	lp_test_err(-EBADMSG, lpi_fs_try_open(&bench));
	lpi_fs_teardown(&bench);
}

/* Each change of the superblock is in both slots when it counts. */
static void test_super_twice(void **state)
{
	(void)state;
	static _Alignas(4096) uint8_t buf[4096];
	struct lpi_fs_bench bench;
	struct lp_blockfs_super super[2];
	lpi_fs_setup_mem(&bench, 3, HALF);
	for (int i = 0; i < 30; i++) {
		lp_test_ok(lpi_fs_put(bench.fs, "a", 1, 100));
		for (uint32_t slot = 0; slot < 2; slot++) {
			lp_test_ok(lp_bdev_read_sync(bench.data, buf, 4096,
						     AREA + slot * LP_BLOCK_BYTES));
			lp_test_ok(lp_blockfs_decode_super(buf, slot, &super[slot]));
		}
		assert_int_equal(super[0].sequence, super[1].sequence);
		assert_int_equal(super[0].generation, super[1].generation);
	}
	assert_true(super[0].generation > 2);
	lpi_fs_teardown(&bench);
}

/* Rot in a frame that others follow is never taken for the end (as rule L1). Only the last frame
 * cannot be told from one that was torn. */
static void test_rot_journal(void **state)
{
	(void)state;
	struct lpi_fs_bench bench;
	char name[16];
	unsigned lost_cnt = 0;
	unsigned error_cnt = 0;
	unsigned spare_cnt = 0;
	lpi_fs_setup_mem(&bench, 3, HALF);
	for (unsigned i = 0; i < 3; i++) {
		(void)snprintf(name, sizeof(name), "f%u", i);
		lp_test_ok(lpi_fs_put(bench.fs, name, i, 100));
	}
	lp_test_ok(lp_blockfs_delete(bench.fs, "f1"));
	uint64_t used = 1 + 3 * 2 + 1; /* snapshot, create and publish each, delete */
	/* The first snapshot was taken into half 0. */
	for (uint64_t block = 0; block < HALF; block++) {
		flip(bench.data, (18 + block) * 4096 + block * 311 % 60, 2);
		lpi_fs_close(&bench);
		int err = lpi_fs_try_open(&bench);
		if (block < used - 1) {
			lp_test_err(-EBADMSG, err);
			error_cnt++;
		} else {
			lp_test_ok(err);
			bool lost = lp_blockfs_stat(bench.fs, "f1", NULL, NULL) == 0;
			lost_cnt += lost;
			spare_cnt += !lost;
			assert_int_equal(lpi_fs_get(bench.fs, "f2", 2), 100);
		}
		lpi_fs_close(&bench);
		flip(bench.data, (18 + block) * 4096 + block * 311 % 60, 2);
		lp_test_ok(lpi_fs_try_open(&bench));
	}
	assert_int_equal(error_cnt, used - 1);
	assert_int_equal(lost_cnt, 1);
	assert_int_equal(spare_cnt, HALF - used);
	lpi_fs_teardown(&bench);
}

/* A block that cannot be read is no end of the journal. */
static void test_journal_unreadable(void **state)
{
	(void)state;
	struct lpi_fs_bench bench;
	lpi_fs_setup(&bench, lpi_disk_sim(LP_FS_BLOCKS(3) * LP_BLOCK_BYTES, LP_SIM_CONSUMER, 1),
		     NULL, HALF);
	lp_test_ok(lpi_fs_put(bench.fs, "a", 1, 100));
	lpi_fs_close(&bench);
	lp_sim_spoil(lp_sim_of(bench.data), 4096, AREA + 4 * UINT64_C(4096));
	lp_test_err(-EIO, lpi_fs_try_open(&bench));
	lpi_fs_teardown(&bench);
}

/* A chunk that the journal uses and the table gives to another is found at open. */
static void test_foreign_chunk(void **state)
{
	(void)state;
	struct lpi_fs_bench bench;
	lpi_fs_setup_mem(&bench, 3, HALF);
	lp_test_ok(lpi_fs_put(bench.fs, "a", 1, 100000));
	lpi_fs_close(&bench);
	lp_test_ok(lp_chunks_format(bench.data, &bench.label));
	lp_test_err(-EUCLEAN, lpi_fs_try_open(&bench));
	lpi_fs_teardown(&bench);
}

/* --- Bytes that may be anything ----------------------------------------------------------------
 */

/* Changed frames with right checksums: an error or a sound table, never a crash. */
static void test_decode_junk(void **state)
{
	(void)state;
	static _Alignas(4096) uint8_t super_bytes[4096];
	static _Alignas(4096) uint8_t half[HALF * 4096];
	static _Alignas(4096) uint8_t junk[HALF * 4096];
	struct lpi_fs_bench bench;
	struct lp_blockfs_super super;
	struct lp_prng prng;
	unsigned bad_cnt = 0;
	lp_prng_init(&prng, 5);
	lpi_fs_setup_mem(&bench, 3, HALF);
	lp_test_ok(lpi_fs_put(bench.fs, "abc", 1, 700));
	lp_test_ok(lpi_fs_put(bench.fs, "def", 2, 400000));
	lp_test_ok(lp_blockfs_rename(bench.fs, "abc", "ghi"));
	lp_test_ok(lp_bdev_read_sync(bench.data, super_bytes, 4096, AREA));
	lp_test_ok(lp_bdev_read_sync(bench.data, half, sizeof(half), AREA + 2 * UINT64_C(4096)));
	lp_test_ok(lp_blockfs_decode_super(super_bytes, 0, &super));
	lp_test_err(-EUCLEAN, lp_blockfs_decode_super(super_bytes, 1, &super));
	lp_test_ok(lp_blockfs_decode_half(half, sizeof(half), &super));
	for (int i = 0; i < 8000; i++) {
		memcpy(junk, half, sizeof(half));
		uint8_t *frame = junk + lp_prng_below(&prng, 6) * 4096;
		lp_prng_fill(&prng, frame + lp_prng_between(&prng, 64, 200),
			     lp_prng_between(&prng, 1, 9));
		/* The frames behind it are gone, or they would all be "beyond a gap". */
		memset(frame + 4096, 0, (size_t)(junk + sizeof(junk) - frame) - 4096);
		lp_put_le32(frame + LP_BLOCKFS_FRAME_CRC_OFF, 0);
		lp_put_le32(frame + LP_BLOCKFS_FRAME_CRC_OFF, lp_crc32c(0, frame, 4096));
		bad_cnt += lp_blockfs_decode_half(junk, sizeof(junk), &super) < 0;
	}
	assert_in_range(bad_cnt, 2000, 7999);
	/* A frame that is sound in itself and not the one its successor knew. */
	memcpy(junk, half, sizeof(half));
	junk[4096 + LP_BLOCKFS_FRAME_SIZE + LP_BLOCKFS_RECORD_SIZE +
	     LP_BLOCKFS_NAME_MTIME_NS_OFF] ^= 1;
	lp_put_le32(junk + 4096 + LP_BLOCKFS_FRAME_CRC_OFF, 0);
	lp_put_le32(junk + 4096 + LP_BLOCKFS_FRAME_CRC_OFF, lp_crc32c(0, junk + 4096, 4096));
	lp_test_err(-EBADMSG, lp_blockfs_decode_half(junk, sizeof(junk), &super));
	for (size_t len = 0; len < sizeof(half); len += 1000)
		(void)!lp_blockfs_decode_half(half, len, &super);
	lpi_fs_teardown(&bench);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_rot_data),      cmocka_unit_test(test_lost_write),
		cmocka_unit_test(test_rot_super),     cmocka_unit_test(test_super_twice),
		cmocka_unit_test(test_rot_journal),   cmocka_unit_test(test_journal_unreadable),
		cmocka_unit_test(test_foreign_chunk), cmocka_unit_test(test_decode_junk),
	};
	return lp_test_main(tests, "blockfs_rot");
}
