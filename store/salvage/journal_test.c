/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: what a damaged journal still says of files is read, a bit that flipped is found and told,
 * and nothing is told that might not be one: a journal of which something is missing is said to be
 * so, and a frame that was torn is not taken for one with a bit that flipped. Bytes that claim
 * much take neither memory nor time without end.
 * Method: a file system with files whose bytes follow from a seed; bits flipped, frames zeroed,
 * and frames made by hand whose checksums are right. */
#include "store/blockfs/blockfs_rig_test.h"

#include "base/crc32c.h"
#include "store/salvage/journal.h"

#define HALF  16u
#define AREA  16u
#define FIRST (AREA + 2u) /* block of the first half, which is active */

static _Alignas(4096) uint8_t block_bytes[LP_BLOCK_BYTES];

struct told {
	struct lp_mender mender;
	uint32_t cnt;
	uint64_t block;
	uint8_t bytes[LP_BLOCK_BYTES];
};

static void note(struct lp_mender *mender, struct lp_bdev *bdev, uint64_t block, const void *bytes,
		 const char *what)
{
	struct told *told = LP_CONTAINER_OF(mender, struct told, mender);
	assert_non_null(bdev);
	assert_true(strlen(what) > 0);
	told->cnt++;
	told->block = block;
	memcpy(told->bytes, bytes, LP_BLOCK_BYTES);
}

static struct told told;

static struct lp_blockfs_salvage *open_files(struct lpi_fs_bench *bench,
					     struct lp_blockfs_salvage_report *report)
{
	struct lp_blockfs_salvage *files = NULL;
	memset(&told, 0, sizeof(told));
	told.mender.mended = note;
	lp_test_ok(lp_blockfs_salvage_open(&bench->options, &told.mender, &files, report));
	return files;
}

/* How many blocks of it are bad; its bytes must be those of the seed if none is. -1: it is not
 * there. */
static int64_t read_file(struct lp_blockfs_salvage *files, uint32_t cnt, const char *name,
			 uint64_t seed, uint64_t len)
{
	for (uint32_t i = 0; i < cnt; i++) {
		uint8_t *bytes = NULL;
		size_t got = 0;
		uint64_t bad = 0;
		if (strcmp(lp_blockfs_salvage_name(files, i), name) != 0)
			continue;
		lp_test_ok(lp_blockfs_salvage_read(files, i, &bytes, &got, &bad));
		for (uint64_t at = 0; bad == 0 && at < len; at++)
			assert_int_equal(bytes[at], lpi_fs_byte(seed, at));
		if (bad == 0)
			assert_int_equal(got, len);
		free(bytes);
		return (int64_t)bad;
	}
	return -1;
}

static void read_block(struct lp_bdev *bdev, uint64_t block)
{
	lp_test_ok(lp_bdev_read_sync(bdev, block_bytes, LP_BLOCK_BYTES, block * LP_BLOCK_BYTES));
}

static void write_block(struct lp_bdev *bdev, uint64_t block)
{
	lp_test_ok(lp_bdev_write_sync(bdev, block_bytes, LP_BLOCK_BYTES, block * LP_BLOCK_BYTES,
				      true));
}

static void flip(struct lp_bdev *bdev, uint64_t block, uint64_t bit)
{
	read_block(bdev, block);
	block_bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
	write_block(bdev, block);
}

static void set_up(struct lpi_fs_bench *bench)
{
	char name[16];
	lpi_fs_setup_mem(bench, 3, HALF);
	for (unsigned i = 0; i < 3; i++) {
		(void)snprintf(name, sizeof(name), "f%u", i);
		lp_test_ok(lpi_fs_put(bench->fs, name, i, 9000 + i));
	}
	lpi_fs_close(bench);
}

/* A bit in each frame, header or not: told once, and what is told is what was there. */
static void test_bit_of_a_frame(void **state)
{
	static uint8_t before[LP_BLOCK_BYTES];
	static const uint64_t bits[] = {3, 8L * 30 + 5, 8L * 66 + 1, 8L * 100};
	struct lpi_fs_bench bench;
	(void)state;
	set_up(&bench);
	for (uint64_t frame = 0; frame < 7; frame++) {
		for (unsigned i = 0; i < LP_ARRAY_SIZE(bits); i++) {
			struct lp_blockfs_salvage_report report;
			read_block(bench.data, FIRST + frame);
			memcpy(before, block_bytes, sizeof(before));
			flip(bench.data, FIRST + frame, bits[i]);
			struct lp_blockfs_salvage *files = open_files(&bench, &report);
			assert_int_equal(told.cnt, 1);
			assert_int_equal(told.block, FIRST + frame);
			assert_memory_equal(told.bytes, before, sizeof(before));
			assert_true(report.is_whole && report.lost_frame_cnt == 0);
			assert_int_equal(read_file(files, report.file_cnt, "f2", 2, 9002), 0);
			lp_blockfs_salvage_close(files);
			flip(bench.data, FIRST + frame, bits[i]);
		}
	}
	lpi_fs_teardown(&bench);
}

/* A frame in the middle is gone: what others say is used, and that something is missing is known.
 * That the last one is gone nobody can tell. */
static void test_frame_is_gone(void **state)
{
	struct lpi_fs_bench bench;
	struct lp_blockfs_salvage_report report;
	(void)state;
	set_up(&bench);
	struct lp_blockfs_salvage *files = open_files(&bench, &report);
	assert_true(report.is_whole && report.has_super && told.cnt == 0);
	assert_int_equal(report.file_cnt, 3);
	lp_blockfs_salvage_close(files);
	read_block(bench.data, FIRST + 3);
	memset(block_bytes, 0, sizeof(block_bytes));
	write_block(bench.data, FIRST + 3);
	files = open_files(&bench, &report);
	assert_false(report.is_whole);
	assert_int_equal(report.lost_frame_cnt, 1);
	assert_int_equal(read_file(files, report.file_cnt, "f2", 2, 9002), 0);
	lp_blockfs_salvage_close(files);
	lpi_fs_teardown(&bench);
}

/* The crc of a frame that stands in a buffer. */
static void sum_up(uint8_t *frame, size_t len)
{
	lp_put_le32(frame + LP_BLOCKFS_FRAME_CRC_OFF, 0);
	lp_put_le32(frame + LP_BLOCKFS_FRAME_CRC_OFF, lp_crc32c(0, frame, len));
}

/* The first block of a frame behind the last one, with these records. */
static void make_next(struct lpi_fs_bench *bench, uint64_t last, uint32_t length_bytes)
{
	struct lp_blockfs_frame head;
	read_block(bench->data, FIRST + last);
	lp_blockfs_frame_decode(block_bytes, &head);
	head.sequence++;
	head.prev_crc = head.crc;
	head.length_bytes = length_bytes;
	memset(block_bytes, 0, sizeof(block_bytes));
	lp_blockfs_frame_encode(&head, block_bytes);
}

/* What is not a frame, and whose sum is one bit's away from that of one. So it is, by chance, with
 * a frame that was torn. Its records do not fit, so no bit of it is told. */
static void test_no_frame_with_the_sum_of_one(void **state)
{
	struct lpi_fs_bench bench;
	struct lp_blockfs_salvage_report report;
	(void)state;
	set_up(&bench);
	/* A delete of a file that is not there. */
	make_next(&bench, 6, 16);
	lp_put_le16(block_bytes + LP_BLOCKFS_FRAME_SIZE, LP_BLOCKFS_TYPE_DELETE);
	lp_put_le32(block_bytes + LP_BLOCKFS_FRAME_SIZE + 4, 8);
	lp_put_le64(block_bytes + LP_BLOCKFS_FRAME_SIZE + 8, 77);
	sum_up(block_bytes, LP_BLOCK_BYTES);
	block_bytes[80] ^= 4;
	write_block(bench.data, FIRST + 7);
	struct lp_blockfs_salvage *files = open_files(&bench, &report);
	assert_int_equal(told.cnt, 0);
	lp_blockfs_salvage_close(files);
	/* One that fits, and what is behind it is of something else. */
	make_next(&bench, 6, 16);
	lp_put_le16(block_bytes + LP_BLOCKFS_FRAME_SIZE, LP_BLOCKFS_TYPE_DELETE);
	lp_put_le32(block_bytes + LP_BLOCKFS_FRAME_SIZE + 4, 8);
	lp_put_le64(block_bytes + LP_BLOCKFS_FRAME_SIZE + 8, 1);
	memset(block_bytes + 2048, 7, 2048);
	sum_up(block_bytes, LP_BLOCK_BYTES);
	block_bytes[80] ^= 4;
	write_block(bench.data, FIRST + 7);
	files = open_files(&bench, &report);
	assert_int_equal(told.cnt, 0);
	assert_int_equal(read_file(files, report.file_cnt, "f0", 0, 9000), 0);
	lp_blockfs_salvage_close(files);
	lpi_fs_teardown(&bench);
}

/* A file of more blocks than there are: not read, and all of it is bad. */
static void test_file_that_claims_too_much(void **state)
{
	const uint64_t claimed = UINT64_C(1) << 31;
	struct lpi_fs_bench bench;
	struct lp_blockfs_salvage_report report;
	uint8_t *at = block_bytes + LP_BLOCKFS_FRAME_SIZE;
	(void)state;
	set_up(&bench);
	uint32_t name_len = LP_BLOCKFS_RECORD_SIZE + LP_BLOCKFS_NAME_SIZE + 1;
	uint64_t table_blocks = claimed / 1024;
	uint32_t publish_len = LP_BLOCKFS_PUBLISH_SIZE + 2 * LP_BLOCKFS_EXTENT_SIZE;
	make_next(&bench, 6, name_len + LP_BLOCKFS_RECORD_SIZE + publish_len);
	struct lp_blockfs_record record = {.type = LP_BLOCKFS_TYPE_CREATE,
					   .length_bytes = LP_BLOCKFS_NAME_SIZE + 1};
	struct lp_blockfs_name name = {.file_id = 99, .name_bytes = 1};
	lp_blockfs_record_encode(&record, at);
	lp_blockfs_name_encode(&name, at + LP_BLOCKFS_RECORD_SIZE);
	at[name_len - 1] = 'x';
	at += name_len;
	record = (struct lp_blockfs_record){.type = LP_BLOCKFS_TYPE_PUBLISH,
					    .length_bytes = publish_len};
	struct lp_blockfs_publish publish = {.file_id = 99,
					     .size_bytes = claimed * LP_BLOCK_BYTES,
					     .flags = LP_BLOCKFS_FLAG_TABLE,
					     .extent_cnt = 1,
					     .table_extent_cnt = 1};
	struct lp_blockfs_extent extent = {
		.block = 300, .block_cnt = (uint32_t)claimed, .role = LP_DISK_ROLE_DATA};
	lp_blockfs_record_encode(&record, at);
	lp_blockfs_publish_encode(&publish, at + LP_BLOCKFS_RECORD_SIZE);
	at += LP_BLOCKFS_RECORD_SIZE + LP_BLOCKFS_PUBLISH_SIZE;
	lp_blockfs_extent_encode(&extent, at);
	extent.block_cnt = (uint32_t)table_blocks;
	lp_blockfs_extent_encode(&extent, at + LP_BLOCKFS_EXTENT_SIZE);
	sum_up(block_bytes, LP_BLOCK_BYTES);
	write_block(bench.data, FIRST + 7);
	struct lp_blockfs_salvage *files = open_files(&bench, &report);
	assert_int_equal(report.file_cnt, 4);
	assert_int_equal(read_file(files, report.file_cnt, "x", 0, 0), (int64_t)claimed);
	assert_int_equal(read_file(files, report.file_cnt, "f1", 1, 9001), 0);
	lp_blockfs_salvage_close(files);
	lpi_fs_teardown(&bench);
}

/* Each block of both halves claims to begin a frame up to the end, and none is one. */
static void test_headers_without_end(void **state)
{
	const uint32_t half = 8192;
	const uint64_t blocks = AREA + 2 + 2 * (uint64_t)half;
	struct lp_bdev *bdev = NULL;
	struct lp_blockfs_salvage *files = NULL;
	struct lp_blockfs_salvage_report report;
	struct lp_blockfs_options options = {.area = {AREA, 2 + 2 * half}};
	uint8_t *bytes = aligned_alloc(LP_BLOCK_BYTES, 2 * (size_t)half * LP_BLOCK_BYTES);
	(void)state;
	assert_non_null(bytes);
	lp_test_ok(lp_bdev_open_mem(blocks * LP_BLOCK_BYTES, 512, &bdev));
	memset(bytes, 0, 2 * (size_t)half * LP_BLOCK_BYTES);
	for (uint32_t i = 0; i < 2 * half; i++) {
		struct lp_blockfs_frame head = {.magic = UINT32_C(0x4a46424c),
						.version = 1,
						.sequence = i + 1,
						.generation = 1,
						.length_bytes = (half - i % half) * 4096 - 64};
		lp_blockfs_frame_encode(&head, bytes + i * (size_t)LP_BLOCK_BYTES);
	}
	for (uint32_t i = 0; i < 2 * half; i += 256)
		lp_test_ok(lp_bdev_write_sync(bdev, bytes + i * (size_t)LP_BLOCK_BYTES,
					      256 * LP_BLOCK_BYTES, (AREA + 2 + i) * UINT64_C(4096),
					      true));
	free(bytes);
	options.data.bdev = bdev;
	options.journal_bdev = bdev;
	lp_test_ok(lp_blockfs_salvage_open(&options, NULL, &files, &report));
	assert_int_equal(report.file_cnt, 0);
	assert_false(report.has_super || report.is_whole);
	lp_blockfs_salvage_close(files);
	lp_bdev_close(bdev);
}

/* A bit in a block of a file, and one in its list of checksums. */
static void test_bit_of_a_file(void **state)
{
	struct lpi_fs_bench bench;
	struct lp_blockfs_salvage_report report;
	uint64_t hits = 0;
	(void)state;
	lpi_fs_setup_mem(&bench, 3, HALF);
	lp_test_ok(lpi_fs_put(bench.fs, "7.sst", 1, 400000)); /* 98 blocks and a table */
	lpi_fs_close(&bench);
	for (uint64_t block = 256; block < 400; block++) {
		flip(bench.data, block, block * 97 % 32768);
		struct lp_blockfs_salvage *files = open_files(&bench, &report);
		assert_int_equal(read_file(files, report.file_cnt, "7.sst", 1, 400000), 0);
		assert_true(told.cnt <= 1);
		flip(bench.data, block, block * 97 % 32768);
		if (told.cnt > 0) {
			assert_int_equal(told.block, block);
			assert_memory_equal(told.bytes, block_bytes, LP_BLOCK_BYTES);
			hits++;
		}
		lp_blockfs_salvage_close(files);
	}
	assert_int_equal(hits, 99);
	lpi_fs_teardown(&bench);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_bit_of_a_frame),
		cmocka_unit_test(test_frame_is_gone),
		cmocka_unit_test(test_no_frame_with_the_sum_of_one),
		cmocka_unit_test(test_file_that_claims_too_much),
		cmocka_unit_test(test_headers_without_end),
		cmocka_unit_test(test_bit_of_a_file),
	};
	return lp_test_main(tests, "store/salvage/journal");
}
