/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: what a shard must have to be opened, and exists twice or has one bit that flipped, is
 * mended by a repair, and told by a check; where nothing is left, it is said which structure of
 * which device it is. Nothing else is written. Method: the small store of check/fsck_rig_test.h,
 * damaged on its device.
 */
#include "store/check/fsck_rig_test.h"

#include "base/crc32c.h"
#include "store/blockfs/blockfs.h"

static struct lpi_fsck_rig rig;

/* Flips a bit of a block, or makes it zeros. */
static void damage(uint64_t block, int64_t bit)
{
	_Alignas(4096) static uint8_t bytes[4096];
	lp_test_ok(lp_bdev_read_sync(rig.bdev, bytes, sizeof(bytes), block * LP_BLOCK_BYTES));
	if (bit < 0)
		memset(bytes, 0, sizeof(bytes));
	else
		bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
	lp_test_ok(
		lp_bdev_write_sync(rig.bdev, bytes, sizeof(bytes), block * LP_BLOCK_BYTES, true));
}

/* One superblock of a log, and of a journal of files: a bit in what it says, in its sum, behind
 * both; and all of it. That it is so is told, and mended. */
static void test_super_copies(void **state)
{
	static const int64_t bits[] = {8L * 33, 8L * 4 + 5, 8L * 20 + 3, 8L * 4000, -1};
	(void)state;
	struct lp_disk_label label;
	lpi_rig_init(&rig, 2);
	lpi_rig_fill(&rig);
	lp_test_ok(lp_label_read(rig.bdev, false, &label, NULL));
	for (uint32_t i = 0; i < 8; i++) {
		struct lp_extent area = i % 2 == 0 ? lp_label_log_area(&label, i / 4)
						   : lp_label_files_area(&label, i / 4);
		for (unsigned j = 0; j < LP_ARRAY_SIZE(bits); j++) {
			const struct lpi_fsck_want want = {
				bits[j] < 0 ? LP_FSCK_SUPER_COPY : LP_FSCK_BIT, 0, true};
			damage(area.block + i / 2 % 2, bits[j]);
			lp_test_ok(lpi_rig_run(&rig, false));
			lpi_rig_compare(&rig, &want, 1, false);
			assert_int_equal(rig.report.problems, 1);
			lp_test_ok(lpi_rig_run(&rig, true));
			lpi_rig_compare(&rig, &want, 1, true);
			lp_test_ok(lpi_rig_run(&rig, false));
			lpi_rig_compare(&rig, NULL, 0, false);
		}
	}
	lpi_rig_fini(&rig);
}

/* A bit in each block of the chunks that has anything: in tables of the index, in other files of
 * it, and in data. Returns how many. */
static uint64_t flip_all(const struct lp_disk_label *label, uint8_t *block)
{
	static const uint8_t zeros[LP_BLOCK_BYTES];
	uint64_t cnt = 0;
	for (uint64_t i = label->chunk_base; i < label->size_blocks - 1; i++) {
		lp_test_ok(lp_bdev_read_sync(rig.bdev, block, LP_BLOCK_BYTES, i * LP_BLOCK_BYTES));
		if (memcmp(block, zeros, sizeof(zeros)) == 0)
			continue;
		damage(i, (int64_t)(i * 97 % 32768));
		cnt++;
	}
	return cnt;
}

static uint32_t sum_of_chunks(const struct lp_disk_label *label, uint8_t *block)
{
	uint32_t sum = 0;
	for (uint64_t i = label->chunk_base; i < label->size_blocks - 1; i++) {
		lp_test_ok(lp_bdev_read_sync(rig.bdev, block, LP_BLOCK_BYTES, i * LP_BLOCK_BYTES));
		sum = lp_crc32c(sum, block, LP_BLOCK_BYTES);
	}
	return sum;
}

/* Files of the index are mended where their journal is whole. Where a frame of it is missing, what
 * it lists may be files that are gone, and nothing of their blocks is touched. */
static void test_files_with_bits(void **state)
{
	(void)state;
	_Alignas(4096) static uint8_t block[4096];
	struct lp_disk_label label;
	lpi_rig_init(&rig, 1);
	rig.deep = false; /* data stays damaged */
	lpi_rig_fill(&rig);
	lp_test_ok(lp_label_read(rig.bdev, false, &label, NULL));
	assert_true(flip_all(&label, block) > 4);
	uint64_t files = lp_label_files_area(&label, 0).block;
	struct lp_blockfs_super super;
	lp_test_ok(lp_bdev_read_sync(rig.bdev, block, sizeof(block), files * LP_BLOCK_BYTES));
	lp_test_ok(lp_blockfs_decode_super(block, 0, &super));
	uint64_t frame = files + 2 + super.active_half * (uint64_t)super.half_blocks + 2;
	static uint8_t kept[4096];
	lp_test_ok(lp_bdev_read_sync(rig.bdev, block, sizeof(block), frame * LP_BLOCK_BYTES));
	memcpy(kept, block, sizeof(kept));
	damage(frame, -1);
	uint32_t sum = sum_of_chunks(&label, block);
	lp_test_ok(lpi_rig_run(&rig, true));
	lpi_rig_compare(&rig, &(const struct lpi_fsck_want){LP_FSCK_SHARD, 0, false}, 1, true);
	assert_int_equal(sum_of_chunks(&label, block), sum);
	memcpy(block, kept, sizeof(block));
	lp_test_ok(
		lp_bdev_write_sync(rig.bdev, block, sizeof(block), frame * LP_BLOCK_BYTES, true));
	lp_test_ok(lpi_rig_run(&rig, true));
	assert_true(rig.found_cnt > 0 && rig.report.problems == 0);
	for (uint32_t i = 0; i < rig.found_cnt; i++)
		assert_int_equal(rig.found[i].kind, LP_FSCK_BIT);
	lp_test_ok(lpi_rig_run(&rig, false));
	lpi_rig_compare(&rig, NULL, 0, false);
	lpi_rig_fini(&rig);
}

/* Both: which structure of which device, and what to do next. Nothing is written. */
static void test_no_super_is_left(void **state)
{
	static const char *const names[] = {"its log", "the journal of its index's files"};
	(void)state;
	struct lp_disk_label label;
	for (unsigned i = 0; i < 2; i++) {
		lpi_rig_init(&rig, 1);
		lpi_rig_fill(&rig);
		lp_test_ok(lp_label_read(rig.bdev, false, &label, NULL));
		struct lp_extent area =
			i == 0 ? lp_label_log_area(&label, 0) : lp_label_files_area(&label, 0);
		damage(area.block, -1);
		damage(area.block + 1, -1);
		lp_test_ok(lpi_rig_run(&rig, true));
		lpi_rig_compare(&rig,
				(const struct lpi_fsck_want[]){{LP_FSCK_SUPER_COPY, 0, false},
							       {LP_FSCK_SHARD, 0, false}},
				2, true);
		assert_non_null(strstr(rig.texts[0], names[i]));
		assert_non_null(strstr(rig.texts[0], lp_bdev_name(rig.bdev)));
		assert_non_null(strstr(rig.texts[1], "lapis salvage"));
		lpi_rig_fini(&rig);
	}
}

/* Both copies of a label, or of a table of chunks: the sentence says so. */
static void test_no_copy_is_left(void **state)
{
	(void)state;
	const struct lp_fsck_options options = {.events = &rig.events};
	struct lp_disk_label label;
	struct lp_label_why why;
	lpi_rig_init(&rig, 1);
	lpi_rig_fill(&rig);
	lp_test_ok(lp_label_read(rig.bdev, false, &label, NULL));
	struct lp_fsck_options of_run = options;
	of_run.bdev[LP_ROLE_DATA] = rig.bdev;
	rig.events.found = lpi_rig_found;
	damage(label.table_block, 8L * 70);
	damage(label.table_block + label.table_slot_blocks, 8L * 70);
	lp_test_err(-EBADMSG, lp_fsck_run(&of_run, &rig.report, &why));
	assert_non_null(strstr(why.text, "both copies of the chunk table on the data device"));
	assert_non_null(strstr(why.text, "lapis salvage"));
	damage(0, 8L * 150);
	damage(label.size_blocks - 1, 8L * 150);
	lp_test_err(-EBADMSG, lp_fsck_run(&of_run, &rig.report, &why));
	assert_non_null(strstr(why.text, "neither copy of its label can be read"));
	lpi_rig_fini(&rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_super_copies),
		cmocka_unit_test(test_files_with_bits),
		cmocka_unit_test(test_no_super_is_left),
		cmocka_unit_test(test_no_copy_is_left),
	};
	return lp_test_main(tests, "store/check/mend");
}
