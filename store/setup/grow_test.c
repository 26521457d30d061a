/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: a store on a device that became larger uses all of it afterwards, with all that is in it;
 * wherever the power fails meanwhile, it opens and is in order with the old size or the new one
 * (rule S5); and the limit of growth is an error that says so.
 * Method: a small store is copied to a larger simulated device, and grown there, with a cut at
 * every event; each time it is checked deeply, grown again, and checked again. */
#include "store/check/fsck_rig_test.h"

#include "store/device/sim/bdev_sim.h"
#include "store/setup/grow.h"
#include "store/setup/mkfs.h"
#include "store/volume/label_impl.h"

#define STEP_BYTES (UINT64_C(1) << 20)

static struct lpi_fsck_rig rig;
static struct lp_label_why why;
static struct lp_grow_result result;

static void copy(struct lp_bdev *from, struct lp_bdev *to, uint64_t bytes)
{
	uint8_t *buf = aligned_alloc(4096, STEP_BYTES);
	assert_non_null(buf);
	for (uint64_t at = 0; at < bytes; at += STEP_BYTES) {
		lp_test_ok(lp_bdev_read_sync(from, buf, STEP_BYTES, at));
		lp_test_ok(lp_bdev_write_sync(to, buf, STEP_BYTES, at, false));
	}
	lp_test_ok(lp_bdev_flush_sync(to));
	free(buf);
}

static struct lp_bdev *sim_of_size(uint64_t bytes, enum lp_sim_preset preset)
{
	const struct lp_sim_options options = {.profile = lp_sim_preset(preset),
					       .size_bytes = bytes};
	struct lp_bdev *bdev = NULL;
	lp_test_ok(lp_bdev_open_sim(&options, &bdev));
	return bdev;
}

/* The store of the picture, on a device of twice its size. */
static struct lp_bdev *enlarged(enum lp_sim_preset preset)
{
	struct lp_bdev *large = sim_of_size(2 * LPI_RIG_BYTES, preset);
	lpi_rig_init(&rig, 1);
	lpi_rig_fill(&rig);
	copy(rig.bdev, large, LPI_RIG_BYTES);
	lpi_rig_fini(&rig);
	lp_sim_trim_log(lp_sim_of(large));
	return large;
}

static void check_all_there(uint64_t size_bytes)
{
	struct lp_disk_label label;
	lp_test_ok(lpi_rig_run(&rig, false));
	lpi_rig_compare(&rig, NULL, 0, false);
	assert_int_equal(rig.report.inodes, 8);
	assert_int_equal(rig.report.read_blocks, 28);
	lp_test_ok(lp_label_read(rig.bdev, false, &label, &why));
	assert_int_equal(label.size_blocks * LP_BLOCK_BYTES, size_bytes);
}

static uint32_t chunk_cnt(void)
{
	const struct lp_devices_options options = {.bdev = {rig.bdev}, .read_only = true};
	struct lp_devices devices;
	struct lp_chunks_stats stats;
	lp_test_ok(lp_devices_open(&options, &devices, &why));
	lp_chunks_stats(devices.chunks[LP_ROLE_DATA], &stats);
	lp_devices_close(&devices);
	return stats.total_cnt;
}

static void test_grow(void **state)
{
	(void)state;
	lpi_rig_init_on(&rig, enlarged(LP_SIM_PROTECTED), 1);
	rig.deep = true;
	uint32_t before = chunk_cnt();
	check_all_there(LPI_RIG_BYTES);
	lp_test_ok(lp_store_grow(rig.bdev, &result, &why));
	assert_int_equal(result.old_blocks * LP_BLOCK_BYTES, LPI_RIG_BYTES);
	assert_int_equal(result.new_blocks * LP_BLOCK_BYTES, 2 * LPI_RIG_BYTES);
	assert_int_equal(result.idle_blocks, 0);
	check_all_there(2 * LPI_RIG_BYTES);
	assert_int_equal(chunk_cnt() - before, 64); /* of 1 MiB */
	lp_test_ok(lp_store_grow(rig.bdev, &result, &why));
	assert_int_equal(result.old_blocks, result.new_blocks);
	check_all_there(2 * LPI_RIG_BYTES);
	lpi_rig_fini(&rig);
}

/* The rig takes the device. */
static uint64_t check_cut(struct lp_bdev *left)
{
	struct lp_disk_label label;
	lp_test_ok(lp_label_read(left, false, &label, &why));
	uint64_t size_bytes = label.size_blocks * LP_BLOCK_BYTES;
	assert_true(size_bytes == LPI_RIG_BYTES || size_bytes == 2 * LPI_RIG_BYTES);
	lpi_rig_init_on(&rig, left, 1);
	rig.deep = true;
	lp_test_ok(lpi_rig_run(&rig, true)); /* copies that differ are told, and made equal */
	assert_int_equal(rig.report.problems, 0);
	check_all_there(size_bytes);
	lp_test_ok(lp_store_grow(rig.bdev, &result, &why));
	check_all_there(2 * LPI_RIG_BYTES);
	assert_int_equal(chunk_cnt(), (2 * LPI_RIG_BYTES >> 20) - 1 - label.chunk_base / 256);
	lpi_rig_fini(&rig);
	return size_bytes;
}

static void test_cuts(void **state)
{
	(void)state;
	struct lp_sim_cutter *cutter = NULL;
	uint64_t old_cnt = 0;
	uint64_t cnt = 0;
	bool more;
	struct lp_bdev *bdev = enlarged(LP_SIM_CONSUMER);
	lp_test_ok(lp_store_grow(bdev, &result, &why));
	lp_test_ok(lp_sim_cutter_new(lp_sim_of(bdev), NULL, &cutter));
	do {
		uint64_t event = lp_sim_cutter_event(cutter);
		struct lp_bdev *left = event % 4 == 3 ? lp_sim_cutter_crash(cutter, event)
						      : lp_sim_cutter_cut(cutter, event);
		old_cnt += check_cut(left) == LPI_RIG_BYTES;
		cnt++;
		more = lp_sim_cutter_next(cutter);
		/* Every other one where each costs ten times as much. */
		if (more && LP_ASSERT_SLOW_ON)
			more = lp_sim_cutter_next(cutter);
	} while (more);
	assert_true(old_cnt > 0 && old_cnt < cnt);
	lp_sim_cutter_free(cutter);
	lp_bdev_close(bdev);
}

/* A table for a bounded number of chunks: more than fits is left idle, and what is full is told. */
static void test_limit(void **state)
{
	(void)state;
	struct lp_bdev *large = sim_of_size(UINT64_C(2) << 30, LP_SIM_PROTECTED);
	struct lp_bdev *larger = sim_of_size(UINT64_C(3) << 30, LP_SIM_PROTECTED);
	struct lp_disk_label label;
	lpi_rig_init(&rig, 1);
	lpi_rig_fill(&rig);
	copy(rig.bdev, large, LPI_RIG_BYTES);
	lp_test_ok(lp_store_grow(large, &result, &why));
	lp_test_ok(lp_label_read(large, false, &label, &why));
	/* A slot is a whole block: it has room for somewhat more than 16 times. */
	assert_true(label.chunk_cnt >= 16 * (LPI_RIG_BYTES >> 20));
	assert_true(result.idle_blocks > 0 && result.idle_blocks % 256 == 0);
	copy(large, larger, LPI_RIG_BYTES);
	lp_test_err(-EFBIG, lp_store_grow(larger, &result, &why));
	assert_non_null(strstr(why.text, "16 times"));
	lp_bdev_close(large);
	lp_bdev_close(larger);
	lpi_rig_fini(&rig);
}

static void ignore(void *arg)
{
	(void)arg;
}

/* Every other of some blocks of each chunk is lent, until the table has no room to say so. */
static void lend_much(struct lp_bdev *bdev, const struct lp_disk_label *label)
{
	const struct lp_chunks_options options = {.label = label};
	uint64_t words[256 / 64] = {0};
	struct lp_chunk_blocks one;
	struct lp_chunks *chunks = NULL;
	int err = 0;
	assert_int_equal(label->chunk_blocks, 256);
	lp_bitmap_init(&one.blocks, words, 256);
	lp_test_ok(lp_chunks_open(bdev, &options, &chunks));
	for (uint32_t to = 1; to < LP_SHARDS_MAX; to++)
		lp_chunks_listen(chunks, to, ignore, NULL);
	while (lp_chunks_lease(chunks, 0, LP_CHUNK_USE_OBJECTS, 0, &one.chunk_idx) == 0) {
		for (uint32_t to = 1; to < LP_SHARDS_MAX && err == 0; to++) {
			one.shard_idx = to;
			lp_bitmap_clear(&one.blocks, 0, 256);
			lp_bitmap_set(&one.blocks, UINT64_C(4) * to, UINT64_C(4) * to + 1);
			lp_bitmap_set(&one.blocks, 4 * to + 2, 4 * to + 3);
			err = lp_chunks_give(chunks, 0, &one, 1);
		}
	}
	lp_test_err(-ENOSPC, err);
	lp_chunks_close(chunks);
}

/* Chunks that find no room in the table, for it is full of splits, are told. */
static void test_table_full_of_splits(void **state)
{
	(void)state;
	struct lp_bdev *large = sim_of_size(UINT64_C(2) << 30, LP_SIM_PROTECTED);
	struct lp_disk_label label;
	lpi_rig_init(&rig, 1);
	copy(rig.bdev, large, LPI_RIG_BYTES);
	lp_test_ok(lp_label_read(large, false, &label, &why));
	lend_much(large, &label);
	lp_test_ok(lp_store_grow(large, &result, &why));
	assert_true(result.new_blocks > result.old_blocks);
	assert_true(result.waiting_blocks > 0 && result.waiting_blocks % 256 == 0);
	uint64_t waiting_blocks = result.waiting_blocks;
	lp_test_ok(lp_store_grow(large, &result, &why));
	assert_int_equal(result.new_blocks, result.old_blocks);
	assert_int_equal(result.waiting_blocks, waiting_blocks);
	lp_bdev_close(large);
	lpi_rig_fini(&rig);
}

/* Both copies of the label, as growing wrote them once. */
static void name_more_chunks(struct lp_bdev *bdev)
{
	static _Alignas(4096) uint8_t block[LP_BLOCK_BYTES];
	struct lp_disk_label label;
	lp_test_ok(lp_label_read(bdev, false, &label, &why));
	label.chunk_cnt = (uint32_t)lpi_label_table_room(label.table_slot_blocks);
	assert_true(label.chunk_cnt > LP_SPACE_CHUNKS_MAX);
	const uint64_t at[] = {label.size_blocks - 1, 0};
	for (int i = 0; i < 2; i++) {
		lp_label_encode(&label, at[i], block);
		lp_test_ok(lp_bdev_write_sync(bdev, block, sizeof(block), at[i] * sizeof(block),
					      true));
	}
}

/* A store of small chunks grows until it has as many as there may be, and is in order then, as is
 * one that was grown beyond that once. */
static void test_limit_of_chunks(void **state)
{
	(void)state;
	static const uint64_t tib = UINT64_C(1) << 40;
	struct lp_bdev *bdev = sim_of_size(tib / 2, LP_SIM_PROTECTED);
	struct lp_bdev *large = sim_of_size(6 * tib, LP_SIM_PROTECTED);
	struct lp_disk_label label;
	lpi_rig_init_on(&rig, bdev, 1);
	struct lp_mkfs_options mkfs = {.bdev = {bdev},
				       .shard_cnt = 1,
				       .chunk_bytes = UINT64_C(1) << 20,
				       .log_bytes = UINT64_C(1) << 20};
	lp_test_ok(lp_store_mkfs(&mkfs, &label, &why));
	lpi_rig_fill(&rig);
	copy(bdev, large, (label.chunk_base + UINT64_C(8192)) * LP_BLOCK_BYTES);
	lpi_rig_fini(&rig);
	lp_test_ok(lp_store_grow(large, &result, &why));
	assert_int_equal(result.new_blocks * LP_BLOCK_BYTES, 6 * tib);
	assert_in_range(result.idle_blocks * LP_BLOCK_BYTES, 2 * tib - (UINT64_C(1) << 30),
			2 * tib);
	lpi_rig_init_on(&rig, large, 1);
	assert_int_equal(chunk_cnt(), LP_SPACE_CHUNKS_MAX);
	rig.deep = true;
	check_all_there(6 * tib);
	name_more_chunks(large);
	assert_int_equal(chunk_cnt(), LP_SPACE_CHUNKS_MAX);
	check_all_there(6 * tib);
	lp_test_ok(lp_store_grow(rig.bdev, &result, &why));
	assert_int_equal(result.old_blocks, result.new_blocks);
	check_all_there(6 * tib);
	lpi_rig_fini(&rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_grow),
		cmocka_unit_test(test_cuts),
		cmocka_unit_test(test_limit),
		cmocka_unit_test(test_table_full_of_splits),
		cmocka_unit_test(test_limit_of_chunks),
	};
	return lp_test_main(tests, "store/setup/grow");
}
