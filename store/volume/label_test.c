/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: a label is read as it was written, damage of one copy is repaired and of both is named, a
 * label that breaks a rule is refused, and creating, updating and growing survive a power cut at
 * any instant (rule S5, rule S7).
 * Method: plans over many sizes; single fields broken; bit rot in either copy; cuts at every event
 * of the simulated device; a memory device for growth, with blocks copied between sizes. */
#include "store/volume/volume_test.h"

#include "base/crc32c.h"
#include "base/error.h"
#include "store/space/space.h"
#include "store/volume/label_impl.h"

#define TINY_BYTES (1024 * UINT64_C(4096))

static struct lp_label_why why;
static _Alignas(4096) uint8_t block[4096];

static void block_read(struct lp_bdev *bdev, uint64_t idx)
{
	lp_test_ok(lp_bdev_read_sync(bdev, block, sizeof(block), idx * sizeof(block)));
}

static void block_write(struct lp_bdev *bdev, uint64_t idx)
{
	lp_test_ok(lp_bdev_write_sync(bdev, block, sizeof(block), idx * sizeof(block), true));
}

static void format(struct lp_bdev *bdev, const struct lp_disk_label *label)
{
	lp_test_ok(lp_label_format_begin(bdev, label));
	lp_test_ok(lp_label_format_commit(bdev, label));
}

/* --- Plans ----------------------------------------------------------------------------------- */

static void test_plan_defaults(void **state)
{
	(void)state;
	struct lp_label_plan plan;
	struct lp_label_wish wish = lpi_disk_wish(UINT64_C(1) << 40, 4);
	lp_test_ok(lp_label_make_plan(&wish, &plan, &why));
	assert_int_equal(plan.data.chunk_blocks, 256 * LP_MIB / 4096);
	assert_in_range(plan.data.chunk_cnt, 4090, 4096);
	assert_int_equal(plan.data.log_blocks[3], LP_GIB / 4 / 4096);
	assert_int_equal(plan.data.files_blocks[3], 2 + 64 * LP_MIB / 4096);
	assert_int_equal(plan.db.role, 0);
	assert_int_equal(plan.wal.role, 0);
	assert_int_equal(lp_label_log_area(&plan.data, 1).block, plan.data.region_block[1]);
	assert_int_equal(lp_label_files_area(&plan.data, 1).block,
			 plan.data.region_block[1] + LP_GIB / 4 / 4096);
}

/* Every plan keeps the rules, leaves room for 16 times the chunks, or for all there can be, and the
 * least size that an error names is indeed enough and a block less is not. */
static void test_plan_sizes(void **state)
{
	(void)state;
	struct lp_prng prng;
	lp_prng_init(&prng, 1);
	for (int i = 0; i < 2000; i++) {
		struct lp_label_plan plan;
		struct lp_label_wish wish = lpi_disk_wish(
			lp_prng_below(&prng, UINT64_C(1) << lp_prng_between(&prng, 14, 50)),
			(uint32_t)lp_prng_between(&prng, 1, 64));
		int err = lp_label_make_plan(&wish, &plan, &why);
		if (err == -ENOSPC) {
			assert_true(why.min_bytes > wish.data_bytes);
			wish.data_bytes = why.min_bytes;
			/* A larger device may get larger areas, but the limits are reached soon. */
			for (int k = 0; k < 8 && err == -ENOSPC; k++) {
				err = lp_label_make_plan(&wish, &plan, &why);
				wish.data_bytes = LP_MAX(why.min_bytes, wish.data_bytes);
			}
		}
		lp_test_ok(err);
		lp_test_ok(lp_label_check(&plan.data, plan.data.size_blocks));
		assert_true(lpi_label_table_room(plan.data.table_slot_blocks) >=
			    LP_MIN(16 * (uint64_t)plan.data.chunk_cnt, LP_SPACE_CHUNKS_MAX));
		assert_true(plan.data.chunk_cnt < 8192 || plan.data.chunk_blocks == 262144);
	}
}

/* No more chunks are planned than a shard can open, however many there would be, and no table that
 * is longer than one write. */
static void test_plan_limits(void **state)
{
	static const struct {
		uint64_t data_bytes;
		uint64_t chunk_bytes;
		bool is_whole;
	} cases[] = {
		{UINT64_C(1) << 40, LP_MIB, true},   {UINT64_C(5) << 40, LP_MIB, false},
		{UINT64_C(64) << 40, LP_MIB, false}, {UINT64_C(200) << 40, 0, true},
		{UINT64_C(300) << 40, 0, false},     {UINT64_C(1) << 60, LP_GIB, false},
	};
	(void)state;
	for (size_t i = 0; i < LP_ARRAY_SIZE(cases); i++) {
		struct lp_label_plan plan;
		struct lp_label_wish wish = lpi_disk_wish(cases[i].data_bytes, 1);
		wish.chunk_bytes = cases[i].chunk_bytes;
		wish.log_bytes = 8 * LP_MIB;
		lp_test_ok(lp_label_make_plan(&wish, &plan, &why));
		const struct lp_disk_label *label = &plan.data;
		uint64_t end = label->chunk_base + (uint64_t)label->chunk_cnt * label->chunk_blocks;
		lp_test_ok(lp_label_check(label, label->size_blocks));
		assert_true(label->chunk_cnt <= LP_SPACE_CHUNKS_MAX);
		assert_true(end <= LP_ALLOC_BLOCKS_MAX);
		assert_true(label->table_slot_blocks * LP_BLOCK_BYTES <= LP_BDEV_IO_MAX);
		assert_int_equal(label->size_blocks - 1 - end < label->chunk_blocks,
				 cases[i].is_whole);
	}
}

static void test_plan_minimum(void **state)
{
	(void)state;
	struct lp_label_plan plan;
	struct lp_label_wish wish = lpi_disk_wish(4096, 1);
	lp_test_err(-ENOSPC, lp_label_make_plan(&wish, &plan, &why));
	assert_non_null(strstr(why.text, "at least for 1 shards"));
	uint64_t min_bytes = why.min_bytes;
	wish.data_bytes = min_bytes - 4096;
	lp_test_err(-ENOSPC, lp_label_make_plan(&wish, &plan, NULL));
	wish.data_bytes = min_bytes;
	lp_test_ok(lp_label_make_plan(&wish, &plan, NULL));
}

static void test_plan_devices(void **state)
{
	(void)state;
	struct lp_label_plan plan;
	struct lp_label_wish wish = lpi_disk_wish(4 * LP_GIB, 2);
	wish.db_bytes = LP_GIB;
	wish.wal_bytes = 256 * LP_MIB;
	wish.db_path = "/dev/db";
	wish.wal_path = "/dev/wal";
	lp_test_ok(lp_label_make_plan(&wish, &plan, &why));
	lp_test_ok(lp_label_check(&plan.data, plan.data.size_blocks));
	lp_test_ok(lp_label_check(&plan.db, plan.db.size_blocks));
	lp_test_ok(lp_label_check(&plan.wal, plan.wal.size_blocks));
	assert_int_equal(plan.data.log_blocks[0] + plan.data.files_blocks[0], 0);
	assert_int_equal(plan.db.log_blocks[1], 0);
	assert_true(plan.db.files_blocks[1] != 0 && plan.db.chunk_cnt != 0);
	assert_true(plan.wal.log_blocks[1] != 0 && plan.wal.chunk_cnt == 0);
	assert_string_equal((char *)plan.data.db_path, "/dev/db");
	assert_memory_equal(plan.data.wal_uuid, plan.wal.device_uuid, 16);

	wish.wal_bytes = 8 * LP_MIB;
	lp_test_err(-ENOSPC, lp_label_make_plan(&wish, &plan, &why));
	assert_non_null(strstr(why.text, "wal device"));
}

static void test_plan_wrong(void **state)
{
	(void)state;
	struct lp_label_plan plan;
	struct lp_label_wish wish = lpi_disk_wish(LP_GIB, 0);
	lp_test_err(-EINVAL, lp_label_make_plan(&wish, &plan, &why));
	wish.shard_cnt = 65;
	lp_test_err(-EINVAL, lp_label_make_plan(&wish, &plan, &why));
	wish.shard_cnt = 1;
	wish.chunk_bytes = 3 * LP_MIB;
	lp_test_err(-EINVAL, lp_label_make_plan(&wish, &plan, &why));
	wish.chunk_bytes = 2 * LP_GIB;
	lp_test_err(-EINVAL, lp_label_make_plan(&wish, &plan, &why));
	wish.chunk_bytes = 0;
	wish.log_bytes = UINT64_MAX;
	lp_test_err(-EINVAL, lp_label_make_plan(&wish, &plan, &why));
	/* What a shard can open with any budget of memory. */
	wish.data_bytes = 100 * LP_GIB;
	wish.log_bytes = 32 * LP_GIB;
	lp_test_ok(lp_label_make_plan(&wish, &plan, &why));
	assert_int_equal(plan.data.log_blocks[0], 32 * LP_GIB / 4096);
	wish.log_bytes++;
	lp_test_err(-EINVAL, lp_label_make_plan(&wish, &plan, &why));
	assert_non_null(strstr(why.text, "32 GiB"));
	wish.log_bytes = 0;
	wish.journal_bytes = (UINT64_C(1) << 40) + 1;
	lp_test_err(-EINVAL, lp_label_make_plan(&wish, &plan, &why));
	wish.journal_bytes = 0;
	wish.data_bytes = LP_GIB;
	char path[257];
	memset(path, 'x', 256);
	path[256] = 0;
	wish.db_path = path;
	lp_test_err(-EINVAL, lp_label_make_plan(&wish, &plan, &why));
	path[255] = 0;
	lp_test_ok(lp_label_make_plan(&wish, &plan, &why));
}

/* --- Reading --------------------------------------------------------------------------------- */

static void test_round_trip(void **state)
{
	(void)state;
	struct lp_bdev *bdev = NULL;
	struct lp_label_plan plan;
	struct lp_disk_label got;
	struct lp_label_wish wish = lpi_disk_wish(64 * LP_MIB, 1);
	lp_test_ok(lp_bdev_open_mem(64 * LP_MIB, 512, &bdev));
	lp_test_ok(lp_label_make_plan(&wish, &plan, &why));
	lp_test_err(-EMEDIUMTYPE, lp_label_read(bdev, true, &got, &why));
	assert_non_null(strstr(why.text, "not a device of a Lapis store"));
	format(bdev, &plan.data);
	lp_test_ok(lp_label_read(bdev, true, &got, &why));
	assert_string_equal(why.text, "");
	assert_int_equal(got.created_ns, 12345);
	assert_memory_equal(got.region_block, plan.data.region_block, sizeof(got.region_block));
	lp_test_ok(lp_label_update(bdev, &got));
	assert_int_equal(got.sequence, 2);
	lp_bdev_close(bdev);
}

/* Rule S7: all fixed regions are written at mkfs, and no old label survives its beginning. */
static void test_format_writes_regions(void **state)
{
	(void)state;
	struct lp_bdev *bdev = NULL;
	struct lp_disk_label label = lpi_disk_tiny_label(1024, 2);
	struct lp_disk_label got;
	lp_test_ok(lp_bdev_open_mem(TINY_BYTES, 4096, &bdev));
	memset(block, 0xee, sizeof(block));
	for (uint64_t i = 0; i < 1024; i++)
		block_write(bdev, i);
	format(bdev, &label);
	lp_test_ok(lp_label_format_begin(bdev, &label));
	lp_test_err(-EMEDIUMTYPE, lp_label_read(bdev, true, &got, &why));
	for (uint64_t i = 0; i < 1024; i++) {
		bool in_table = i >= 1 && i < 3;
		bool in_region = (i >= 8 && i < 43) || (i >= 64 && i < 99);
		bool fixed = i == 0 || i == 1023 || in_table || in_region;
		block_read(bdev, i);
		assert_int_equal(block[17], fixed ? 0 : 0xee);
	}
	lp_bdev_close(bdev);
}

/* Any single bit of either copy may rot: the other copy serves, and opening repairs. */
static void test_rot(void **state)
{
	(void)state;
	struct lp_bdev *bdev = NULL;
	struct lp_disk_label label = lpi_disk_tiny_label(1024, 2);
	struct lp_disk_label got;
	lp_test_ok(lp_bdev_open_mem(TINY_BYTES, 4096, &bdev));
	format(bdev, &label);
	for (unsigned bit = 0; bit < 4096 * 8; bit += 13) {
		uint64_t idx = bit % 2 == 0 ? 0 : 1023;
		block_read(bdev, idx);
		block[bit / 8] ^= (uint8_t)(1u << bit % 8);
		block_write(bdev, idx);
		lp_test_ok(lp_label_read(bdev, false, &got, &why));
		lp_test_ok(lp_label_read(bdev, true, &got, &why));
		assert_memory_equal(got.device_uuid, label.device_uuid, 16);
		block_read(bdev, idx);
		lp_test_ok(lp_label_decode(block, idx, 1024, &got, NULL));
	}
	for (uint64_t idx = 0; idx < 1024; idx += 1023) {
		block_read(bdev, idx);
		block[100] ^= 1;
		block_write(bdev, idx);
	}
	lp_test_err(-EBADMSG, lp_label_read(bdev, true, &got, &why));
	lp_bdev_close(bdev);
}

/* An unreadable copy is like a rotten one, and its rewrite heals it. */
static void test_unreadable(void **state)
{
	(void)state;
	struct lp_bdev *bdev = lpi_disk_sim(TINY_BYTES, LP_SIM_CONSUMER, 1);
	struct lp_disk_label label = lpi_disk_tiny_label(1024, 2);
	struct lp_disk_label got;
	format(bdev, &label);
	lp_sim_spoil(lp_sim_of(bdev), 4096, 0);
	lp_test_ok(lp_label_read(bdev, true, &got, &why));
	lp_sim_spoil(lp_sim_of(bdev), 4096, TINY_BYTES - 4096);
	lp_test_ok(lp_label_read(bdev, false, &got, &why));
	lp_sim_spoil(lp_sim_of(bdev), 4096, 0);
	lp_test_err(-EIO, lp_label_read(bdev, false, &got, &why));
	lp_bdev_close(bdev);
}

static int decode_changed(const struct lp_disk_label *label)
{
	struct lp_disk_label got;
	lp_label_encode(label, 0, block);
	return lp_label_decode(block, 0, 1024, &got, &why);
}

static void test_versions(void **state)
{
	(void)state;
	struct lp_bdev *bdev = NULL;
	struct lp_disk_label label = lpi_disk_tiny_label(1024, 2);
	struct lp_disk_label got;
	lp_test_ok(lp_bdev_open_mem(TINY_BYTES, 4096, &bdev));
	format(bdev, &label);
	label.version = 7;
	lp_label_encode(&label, 0, block);
	block_write(bdev, 0);
	lp_test_err(-ENOTSUP, lp_label_read(bdev, true, &got, &why));
	assert_int_equal(why.version, 7);
	assert_non_null(strstr(why.text, "format version 7"));
	label.version = 0;
	lp_test_err(-ESTALE, decode_changed(&label));
	label.version = LP_DISK_VERSION;
	label.incompat = 4;
	lp_test_err(-ENOTSUP, decode_changed(&label));
	label.incompat = 0;
	label.compat = 4;
	lp_test_ok(decode_changed(&label));
	label.ro_compat = 4;
	format(bdev, &label);
	lp_test_ok(lp_label_read(bdev, false, &got, &why));
	lp_test_err(-EROFS, lp_label_read(bdev, true, &got, &why));
	lp_bdev_close(bdev);
}

#define BREAK(change, field)                                                                       \
	do {                                                                                       \
		struct lp_disk_label bad = lpi_disk_tiny_label(1024, 2);                           \
		lp_test_ok(decode_changed(&bad));                                                  \
		bad.change;                                                                        \
		lp_test_err(-EUCLEAN, decode_changed(&bad));                                       \
		assert_non_null(strstr(lp_corruption_find(0)->what, field));                       \
	} while (0)

static void test_rules(void **state)
{
	(void)state;
	BREAK(block_bytes = 512, "block_bytes");
	BREAK(size_blocks = 1025, "size_blocks");
	BREAK(size_blocks = 1, "size_blocks");
	BREAK(size_blocks = UINT64_MAX, "size_blocks");
	BREAK(sequence = 0, "sequence");
	BREAK(role = 0, "role");
	BREAK(role = 4, "role");
	BREAK(shard_cnt = 0, "shard_cnt");
	BREAK(shard_cnt = 65, "shard_cnt");
	BREAK(reserved[2383] = 1, "reserved");
	BREAK(db_path[9] = 1, "db_path");
	BREAK(wal_path[255] = 1, "wal_path");
	BREAK(chunk_blocks = 128, "chunk_blocks");
	BREAK(chunk_blocks = 257, "chunk_blocks");
	BREAK(chunk_blocks = 524288, "chunk_blocks");
	BREAK(chunk_cnt = 0, "chunk_cnt");
	BREAK(chunk_cnt = 3, "chunk_cnt");
	BREAK(chunk_base = 0, "chunk_base");
	BREAK(chunk_base = 1024, "chunk_base");
	BREAK(chunk_base = 600, "chunk_cnt");
	BREAK(table_block = 0, "table_block");
	BREAK(table_block = 255, "table_block");
	BREAK(table_slot_blocks = 0, "table_slot_blocks");
	BREAK(table_slot_blocks = UINT32_MAX, "table_block");
	BREAK(table_slot_blocks = 4, "overlaps the chunk table");
	BREAK(region_block[0] = 0, "region_block");
	BREAK(region_block[0] = 50, "region_block 1 overlaps 0");
	BREAK(region_block[1] = 222, "region_block");
	BREAK(region_block[1] = UINT64_MAX, "region_block");
	BREAK(log_blocks[1] = UINT32_MAX, "region_block");
	BREAK(region_block[2] = 100, "region_block");
	BREAK(files_blocks[63] = 1, "files_blocks");
	BREAK(role = LP_DISK_ROLE_WAL, "chunk_base");

	struct lp_disk_label label = lpi_disk_tiny_label(1024, 2);
	lp_label_encode(&label, 1023, block);
	struct lp_disk_label got;
	lp_test_err(-EUCLEAN, lp_label_decode(block, 0, 1024, &got, NULL));
	lp_test_ok(lp_label_decode(block, 1023, 1024, &got, NULL));
}

/* A label that says there are chunks on 6 TiB, of 1 MiB, and has a table for them. */
static struct lp_disk_label large_label(void)
{
	struct lp_disk_label label = lpi_disk_tiny_label(UINT64_C(6) << 28, 6000000);
	label.table_block = 256;
	label.table_slot_blocks = 3000;
	label.chunk_base = 8192;
	return label;
}

#define BREAK_LARGE(change, field)                                                                 \
	do {                                                                                       \
		struct lp_disk_label bad = large_label();                                          \
		bad.chunk_cnt = LP_SPACE_CHUNKS_MAX;                                               \
		lp_test_ok(lp_label_check(&bad, UINT64_MAX));                                      \
		bad.change;                                                                        \
		lp_test_err(-EUCLEAN, lp_label_check(&bad, UINT64_MAX));                           \
		assert_non_null(strstr(lp_corruption_find(0)->what, field));                       \
	} while (0)

/* What holds for labels of all sizes does for large ones, where a field can be larger than the
 * program can bear. */
static void test_rules_of_large(void **state)
{
	(void)state;
	BREAK_LARGE(chunk_cnt++, "chunk_cnt");
	struct lp_disk_label label = large_label();
	label.chunk_cnt = 1;
	label.size_blocks = 2 * LP_ALLOC_BLOCKS_MAX;
	label.chunk_base = LP_ALLOC_BLOCKS_MAX - label.chunk_blocks;
	lp_test_ok(lp_label_check(&label, UINT64_MAX));
	label.chunk_base++;
	lp_test_err(-EUCLEAN, lp_label_check(&label, UINT64_MAX));
	assert_non_null(strstr(lp_corruption_find(0)->what, "chunk_base"));
	label = large_label();
	label.size_blocks = UINT64_C(1) << 40;
	label.chunk_blocks = 262144;
	label.chunk_cnt = (uint32_t)((LP_ALLOC_BLOCKS_MAX - label.chunk_base) / 262144);
	lp_test_ok(lp_label_check(&label, UINT64_MAX));
	label.chunk_cnt++;
	lp_test_err(-EUCLEAN, lp_label_check(&label, UINT64_MAX));
	/* A slot is read in one. */
	label = large_label();
	label.chunk_cnt = 1;
	label.chunk_base = UINT64_C(1) << 24;
	label.table_slot_blocks = LP_BDEV_IO_MAX / LP_BLOCK_BYTES;
	lp_test_ok(lp_label_check(&label, UINT64_MAX));
	label.table_slot_blocks++;
	lp_test_err(-EUCLEAN, lp_label_check(&label, UINT64_MAX));
	assert_non_null(strstr(lp_corruption_find(0)->what, "table_slot_blocks"));
}

/* Such labels were written once: chunks that nobody could use are left out, and the rest is there.
 */
static void test_too_many_chunks(void **state)
{
	(void)state;
	struct lp_disk_label got;
	struct lp_disk_label label = large_label();
	lp_label_encode(&label, 0, block);
	lp_test_ok(lp_label_decode(block, 0, label.size_blocks, &got, NULL));
	assert_int_equal(got.chunk_cnt, LP_SPACE_CHUNKS_MAX);
	/* But no more than the device or the table can hold. */
	label.size_blocks -= UINT64_C(2) << 28;
	lp_label_encode(&label, 0, block);
	lp_test_err(-EUCLEAN, lp_label_decode(block, 0, label.size_blocks, &got, NULL));
	label = large_label();
	label.table_slot_blocks = 2500;
	lp_label_encode(&label, 0, block);
	lp_test_err(-EUCLEAN, lp_label_decode(block, 0, label.size_blocks, &got, NULL));
}

/* Bytes of any kind give an error, never a crash. With the crc made right, all that is accepted
 * keeps the rules. */
static void test_decode_junk(void **state)
{
	(void)state;
	struct lp_prng prng;
	struct lp_disk_label got;
	lp_prng_init(&prng, 3);
	for (int i = 0; i < 20000; i++) {
		struct lp_disk_label label = lpi_disk_tiny_label(1024, 2);
		lp_label_encode(&label, 0, block);
		size_t at = lp_prng_between(&prng, LP_DISK_LABEL_SEQUENCE_OFF,
					    LP_DISK_LABEL_RESERVED_OFF - 9);
		lp_prng_fill(&prng, block + at, lp_prng_between(&prng, 1, 8));
		memset(block + LP_DISK_LABEL_CRC_OFF, 0, 4);
		lp_put_le32(block + LP_DISK_LABEL_CRC_OFF, lp_crc32c(0, block, sizeof(block)));
		if (lp_label_decode(block, 0, 1024, &got, NULL) == 0)
			lp_test_ok(lp_label_check(&got, 1024));
	}
}

/* --- Power cuts ------------------------------------------------------------------------------ */

struct cut_arg {
	uint64_t sequence_min;
	uint64_t sequence_max;
	uint64_t none_cnt;
	uint64_t old_cnt;
	uint64_t new_cnt;
};

static void cut_check(struct lp_bdev *left, uint64_t event, void *opaque)
{
	(void)event;
	struct cut_arg *arg = opaque;
	struct lp_disk_label first;
	struct lp_disk_label again;
	int err = lp_label_read(left, true, &first, &why);
	if (err < 0) {
		/* Nothing is there before the first creation is complete. */
		assert_int_equal(arg->sequence_min, 0);
		arg->none_cnt++;
		return;
	}
	assert_in_range(first.sequence, arg->sequence_min, arg->sequence_max);
	*(first.sequence == arg->sequence_max ? &arg->new_cnt : &arg->old_cnt) += 1;
	lp_test_ok(lp_label_read(left, false, &again, &why));
	assert_int_equal(again.sequence, first.sequence);
	/* What was repaired is so in both copies. */
	for (uint64_t idx = 0; idx < 1024; idx += 1023) {
		block_read(left, idx);
		lp_test_ok(lp_label_decode(block, idx, 1024, &again, NULL));
		assert_int_equal(again.sequence, first.sequence);
	}
}

static void test_cut_format_and_update(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < 8; seed++) {
		struct lp_bdev *bdev = lpi_disk_sim(
			TINY_BYTES, (enum lp_sim_preset)(seed % LP_SIM_PRESET_CNT), seed);
		struct lp_disk_label label = lpi_disk_tiny_label(1024, 2);
		struct cut_arg arg = {.sequence_min = 0, .sequence_max = 1};
		format(bdev, &label);
		(void)lpi_disk_cut_everywhere(bdev, 0, 4, cut_check, &arg);
		assert_true(arg.none_cnt > 0 && arg.new_cnt > 0);
		uint64_t from = lp_sim_event_count(lp_sim_of(bdev));
		lp_test_ok(lp_label_update(bdev, &label));
		arg = (struct cut_arg){.sequence_min = 1, .sequence_max = 2};
		(void)lpi_disk_cut_everywhere(bdev, from, 8, cut_check, &arg);
		assert_true(arg.old_cnt > 0 && arg.new_cnt > 0);
		lp_bdev_close(bdev);
	}
}

/* The old store's regions are untouched while its label is valid, the new one's are all zero. */
static void refmt_check(struct lp_bdev *left, uint64_t event, void *opaque)
{
	(void)event;
	(void)opaque;
	struct lp_disk_label got;
	if (lp_label_read(left, true, &got, &why) < 0)
		return;
	for (uint64_t i = 8; i < 43; i++) {
		block_read(left, i);
		assert_int_equal(block[9], got.store_uuid[0] == 'N' ? 0 : 0xee);
	}
}

static void test_cut_reformat(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < 8; seed++) {
		struct lp_bdev *bdev = lpi_disk_sim(
			TINY_BYTES, (enum lp_sim_preset)(seed % LP_SIM_PRESET_CNT), seed);
		struct lp_disk_label label = lpi_disk_tiny_label(1024, 2);
		format(bdev, &label);
		memset(block, 0xee, sizeof(block));
		for (uint64_t i = 8; i < 43; i++)
			block_write(bdev, i);
		uint64_t from = lp_sim_event_count(lp_sim_of(bdev));
		label.store_uuid[0] = 'N';
		label.device_uuid[0] = 'N';
		format(bdev, &label);
		(void)lpi_disk_cut_everywhere(bdev, from, 4, refmt_check, NULL);
		lp_bdev_close(bdev);
	}
}

/* A device that is larger than its label says: the label of 512 blocks, formatted on one of that
 * size, is copied to one of 1024. */
static struct lp_bdev *enlarged(struct lp_disk_label *ret_label, uint64_t seed)
{
	struct lp_bdev *small = NULL;
	struct lp_bdev *large = lpi_disk_sim(TINY_BYTES, LP_SIM_HOSTILE, seed);
	*ret_label = lpi_disk_tiny_label(512, 0);
	ret_label->chunk_base = 128;
	ret_label->chunk_cnt = 1;
	lp_test_ok(lp_bdev_open_mem(TINY_BYTES / 2, 4096, &small));
	format(small, ret_label);
	for (uint64_t i = 0; i < 512; i += 511) {
		block_read(small, i);
		block_write(large, i);
	}
	lp_bdev_close(small);
	return large;
}

static void grow_check(struct lp_bdev *left, uint64_t event, void *opaque)
{
	(void)event;
	struct cut_arg *arg = opaque;
	struct lp_disk_label got;
	lp_test_ok(lp_label_read(left, true, &got, &why));
	if (got.sequence == 1) {
		assert_int_equal(got.size_blocks, 512);
		arg->old_cnt++;
		lp_test_ok(lp_label_grow(left, &got)); /* and again, to the end */
	} else {
		arg->new_cnt++;
	}
	assert_int_equal(got.size_blocks, 1024);
	assert_int_equal(got.chunk_cnt, 3);
	lp_test_err(-EALREADY, lp_label_grow(left, &got));
	/* Either new copy alone is enough. */
	memset(block, 0xff, sizeof(block));
	block_write(left, event % 2 == 0 ? 0 : 1023);
	lp_test_ok(lp_label_read(left, true, &got, &why));
	assert_int_equal(got.size_blocks, 1024);
}

/* A device that was made smaller is told from one that is damaged. */
static void test_cut_off(void **state)
{
	struct lp_bdev *whole = NULL;
	struct lp_bdev *rest = NULL;
	struct lp_disk_label label = lpi_disk_tiny_label(1024, 0);
	(void)state;
	lp_test_ok(lp_bdev_open_mem(TINY_BYTES, 4096, &whole));
	lp_test_ok(lp_bdev_open_mem(TINY_BYTES / 2, 4096, &rest));
	format(whole, &label);
	for (uint64_t i = 0; i < 512; i++) {
		block_read(whole, i);
		block_write(rest, i);
	}
	lp_test_err(-EUCLEAN, lp_label_read(rest, false, &label, &why));
	assert_non_null(strstr(why.text, "has 4 MiB, and the device only 2"));
	lp_bdev_close(whole);
	lp_bdev_close(rest);
}

/* Cut off where it once had its end: what was left there does not count, nor replace the first
 * copy, which is the store's when the rest has come back. */
static void test_cut_off_where_it_ended(void **state)
{
	struct lp_bdev *rest = NULL;
	struct lp_disk_label label;
	struct lp_bdev *whole = enlarged(&label, 3);
	(void)state;
	lp_test_ok(lp_label_read(whole, true, &label, &why));
	lp_test_ok(lp_label_grow(whole, &label));
	lp_test_ok(lp_bdev_open_mem(TINY_BYTES / 2, 4096, &rest));
	for (uint64_t i = 0; i < 512; i++) {
		block_read(whole, i);
		block_write(rest, i);
	}
	lp_test_err(-EUCLEAN, lp_label_read(rest, true, &label, &why));
	assert_non_null(strstr(why.text, "has 4 MiB, and the device only 2"));
	uint8_t first[LP_BLOCK_BYTES];
	block_read(rest, 0);
	memcpy(first, block, sizeof(first));
	block_read(whole, 0);
	assert_memory_equal(first, block, sizeof(first));
	lp_bdev_close(whole);
	lp_bdev_close(rest);
}

static void test_cut_grow(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < 16; seed++) {
		struct cut_arg arg = {.old_cnt = 0};
		struct lp_disk_label label;
		struct lp_bdev *bdev = enlarged(&label, seed);
		uint64_t from = lp_sim_event_count(lp_sim_of(bdev));
		lp_test_ok(lp_label_read(bdev, true, &label, &why));
		lp_test_ok(lp_label_grow(bdev, &label));
		(void)lpi_disk_cut_everywhere(bdev, from, 8, grow_check, &arg);
		assert_true(arg.old_cnt > 0 && arg.new_cnt > 0);
		lp_bdev_close(bdev);
	}
}

/* Growth ends where a shard could not open the chunks any more. */
static void test_grow_limit(void **state)
{
	(void)state;
	struct lp_bdev *bdev = lpi_disk_sim(UINT64_C(6) << 40, LP_SIM_CONSUMER, 1);
	struct lp_disk_label label = large_label();
	label.size_blocks = UINT64_C(1) << 28;
	label.chunk_cnt = 1000000;
	format(bdev, &label);
	lp_test_ok(lp_label_grow(bdev, &label));
	assert_int_equal(label.chunk_cnt, LP_SPACE_CHUNKS_MAX);
	assert_int_equal(label.size_blocks, UINT64_C(6) << 28);
	lp_test_ok(lp_label_read(bdev, true, &label, &why));
	assert_int_equal(label.chunk_cnt, LP_SPACE_CHUNKS_MAX);
	lp_bdev_close(bdev);
}

/* What another store left at the end of a larger device does not count, however new. */
static void test_foreign_copy(void **state)
{
	(void)state;
	struct lp_disk_label label;
	struct lp_disk_label got;
	struct lp_bdev *bdev = enlarged(&label, 1);
	struct lp_disk_label foreign = lpi_disk_tiny_label(1024, 2);
	foreign.device_uuid[0] = 'x';
	foreign.sequence = 99;
	lp_label_encode(&foreign, 1023, block);
	block_write(bdev, 1023);
	lp_test_ok(lp_label_read(bdev, true, &got, &why));
	assert_int_equal(got.size_blocks, 512);
	lp_test_ok(lp_label_grow(bdev, &got));
	lp_test_ok(lp_label_read(bdev, true, &got, &why));
	assert_int_equal(got.size_blocks, 1024);
	lp_bdev_close(bdev);
}

/* A write that fails leaves the label in memory as it was. */
static void test_failed_update(void **state)
{
	(void)state;
	struct lp_bdev *bdev = lpi_disk_sim(TINY_BYTES, LP_SIM_CONSUMER, 1);
	struct lp_disk_label label = lpi_disk_tiny_label(1024, 2);
	format(bdev, &label);
	struct lp_sim_rule rule = {.fault = LP_SIM_EIO, .skip_cnt = 1, .fire_cnt = 1};
	(void)lp_sim_rule_add(lp_sim_of(bdev), &rule);
	lp_test_err(-EIO, lp_label_update(bdev, &label));
	assert_int_equal(label.sequence, 1);
	/* It may have been the flush behind it: nothing is believed until all is opened anew. */
	lp_test_err(-EIO, lp_label_read(bdev, true, &label, &why));
	lp_bdev_trust(bdev);
	lp_test_ok(lp_label_read(bdev, true, &label, &why));
	assert_int_equal(label.sequence, 2);
	lp_bdev_close(bdev);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_plan_defaults),
		cmocka_unit_test(test_plan_sizes),
		cmocka_unit_test(test_plan_limits),
		cmocka_unit_test(test_plan_minimum),
		cmocka_unit_test(test_plan_devices),
		cmocka_unit_test(test_plan_wrong),
		cmocka_unit_test(test_round_trip),
		cmocka_unit_test(test_format_writes_regions),
		cmocka_unit_test(test_rot),
		cmocka_unit_test(test_unreadable),
		cmocka_unit_test(test_versions),
		cmocka_unit_test(test_rules),
		cmocka_unit_test(test_rules_of_large),
		cmocka_unit_test(test_too_many_chunks),
		cmocka_unit_test(test_decode_junk),
		cmocka_unit_test(test_cut_format_and_update),
		cmocka_unit_test(test_cut_reformat),
		cmocka_unit_test(test_cut_off),
		cmocka_unit_test(test_cut_off_where_it_ended),
		cmocka_unit_test(test_cut_grow),
		cmocka_unit_test(test_grow_limit),
		cmocka_unit_test(test_foreign_copy),
		cmocka_unit_test(test_failed_update),
	};
	return lp_test_main(tests, "label");
}
