/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: a lease or a return is durable when it is acknowledged and never half done (rules S1, S5);
 * rot in one slot loses nothing, in both it is named; the files' reserve is kept from objects
 * (rule L8); a failed write fences the table (rule L7 in spirit).
 * Method: a memory device for the ways of the table, the simulated one cut at every event, a random
 * run against a plain array. */
#include "store/volume/volume_test.h"

#include <pthread.h>

#include "base/crc32c.h"
#include "store/space/space.h"

#define BLOCKS    (UINT64_C(256) * 17)
#define CHUNK_CNT 15u

static struct lp_chunks *open_table(struct lp_bdev *bdev, const struct lp_disk_label *label,
				    uint32_t reserve_cnt)
{
	struct lp_chunks *chunks = NULL;
	struct lp_chunks_options options = {.label = label, .files_reserve_cnt = reserve_cnt};
	lp_test_ok(lp_chunks_open(bdev, &options, &chunks));
	return chunks;
}

static uint32_t lease(struct lp_chunks *chunks, uint32_t shard_idx, enum lp_chunk_use use,
		      uint32_t hint_idx)
{
	uint32_t idx = LP_CHUNK_NONE;
	lp_test_ok(lp_chunks_lease(chunks, shard_idx, use, hint_idx, &idx));
	return idx;
}

static void test_ways(void **state)
{
	(void)state;
	struct lp_bdev *bdev = NULL;
	struct lp_disk_label label = lpi_disk_tiny_label(BLOCKS, CHUNK_CNT);
	lp_test_ok(lp_bdev_open_mem(BLOCKS * 4096, 4096, &bdev));
	lp_test_ok(lp_chunks_format(bdev, &label));
	struct lp_chunks *chunks = open_table(bdev, &label, 0);
	assert_int_equal(lease(chunks, 1, LP_CHUNK_USE_FILES, 7), 7);
	assert_int_equal(lease(chunks, 1, LP_CHUNK_USE_OBJECTS, 7), 8);
	assert_int_equal(lease(chunks, 0, LP_CHUNK_USE_FILES, 14), 14);
	assert_int_equal(lease(chunks, 0, LP_CHUNK_USE_META, 14), 0);
	assert_int_equal(lease(chunks, 0, LP_CHUNK_USE_FILES, LP_CHUNK_NONE), 1);
	assert_int_equal(lp_chunks_find(chunks, 0, LP_CHUNK_USE_FILES, 0), 1);
	assert_int_equal(lp_chunks_find(chunks, 0, LP_CHUNK_USE_FILES, 2), 14);
	assert_int_equal(lp_chunks_find(chunks, 0, LP_CHUNK_USE_FILES, 15), LP_CHUNK_NONE);
	lp_test_ok(lp_chunks_return(chunks, 0, LP_CHUNK_USE_FILES, 14));
	lp_chunks_close(chunks);

	chunks = open_table(bdev, &label, 0);
	uint32_t shard_idx = 99;
	assert_int_equal(lp_chunks_owner(chunks, 8, &shard_idx), LP_CHUNK_USE_OBJECTS);
	assert_int_equal(shard_idx, 1);
	assert_int_equal(lp_chunks_owner(chunks, 14, &shard_idx), LP_CHUNK_USE_FREE);
	assert_int_equal(lp_chunks_extent(chunks, 2).block, 256 + 512);
	assert_int_equal(lp_chunks_of_block(chunks, 255), LP_CHUNK_NONE);
	assert_int_equal(lp_chunks_of_block(chunks, 256 + 511), 1);
	assert_int_equal(lp_chunks_of_block(chunks, BLOCKS - 256), LP_CHUNK_NONE);
	struct lp_chunks_stats stats;
	lp_chunks_stats(chunks, &stats);
	assert_int_equal(stats.total_cnt, CHUNK_CNT);
	assert_int_equal(stats.cnt[LP_CHUNK_USE_FREE], 11);
	assert_int_equal(stats.cnt[LP_CHUNK_USE_FILES], 2);
	lp_chunks_close(chunks);
	lp_chunks_close(NULL);
	lp_bdev_close(bdev);
}

/* Rule L8: objects may not take the last chunks, files may. */
static void test_reserve(void **state)
{
	(void)state;
	struct lp_bdev *bdev = NULL;
	struct lp_disk_label label = lpi_disk_tiny_label(BLOCKS, CHUNK_CNT);
	uint32_t idx = 0;
	lp_test_ok(lp_bdev_open_mem(BLOCKS * 4096, 4096, &bdev));
	lp_test_ok(lp_chunks_format(bdev, &label));
	struct lp_chunks *chunks = open_table(bdev, &label, 3);
	for (unsigned i = 0; i < CHUNK_CNT - 3; i++) {
		assert_int_equal(lp_chunks_for_objects_cnt(chunks), CHUNK_CNT - 3 - i);
		(void)lease(chunks, 0, LP_CHUNK_USE_OBJECTS, 0);
	}
	assert_int_equal(lp_chunks_for_objects_cnt(chunks), 0);
	lp_test_err(-ENOSPC, lp_chunks_lease(chunks, 0, LP_CHUNK_USE_OBJECTS, 0, &idx));
	(void)lease(chunks, 0, LP_CHUNK_USE_FILES, 0);
	(void)lease(chunks, 0, LP_CHUNK_USE_META, 0);
	assert_int_equal(lp_chunks_for_objects_cnt(chunks), 0); /* of one that is free */
	lp_chunks_set_files_reserve(chunks, 0);
	assert_int_equal(lp_chunks_for_objects_cnt(chunks), 1);
	(void)lease(chunks, 1, LP_CHUNK_USE_OBJECTS, 0);
	lp_test_err(-ENOSPC, lp_chunks_lease(chunks, 0, LP_CHUNK_USE_FILES, 0, &idx));
	lp_test_ok(lp_chunks_return(chunks, 0, LP_CHUNK_USE_OBJECTS, 4));
	assert_int_equal(lease(chunks, 0, LP_CHUNK_USE_FILES, 9), 4);
	lp_chunks_close(chunks);
	lp_bdev_close(bdev);
}

static uint64_t slot_offset(uint32_t slot_idx)
{
	return (1 + (uint64_t)slot_idx) * 4096;
}

static void slot_flip(struct lp_bdev *bdev, uint32_t slot_idx, uint64_t bit)
{
	static _Alignas(4096) uint8_t buf[4096];
	lp_test_ok(lp_bdev_read_sync(bdev, buf, sizeof(buf), slot_offset(slot_idx)));
	buf[bit / 8] ^= (uint8_t)(1u << bit % 8);
	lp_test_ok(lp_bdev_write_sync(bdev, buf, sizeof(buf), slot_offset(slot_idx), true));
}

/* Rot in either slot, the newest included, takes no lease back: a chunk given to two shards would
 * be the end of both. */
static void test_rot(void **state)
{
	(void)state;
	struct lp_bdev *bdev = NULL;
	struct lp_chunks *chunks = NULL;
	struct lp_disk_label label = lpi_disk_tiny_label(BLOCKS, CHUNK_CNT);
	struct lp_chunks_options options = {.label = &label};
	lp_test_ok(lp_bdev_open_mem(BLOCKS * 4096, 4096, &bdev));
	lp_test_ok(lp_chunks_format(bdev, &label));
	chunks = open_table(bdev, &label, 0);
	for (uint32_t i = 0; i < 5; i++)
		(void)lease(chunks, i % 2, LP_CHUNK_USE_FILES, 0);
	lp_chunks_close(chunks);
	uint64_t bit_cnt = (LP_DISK_CHUNKS_SIZE + (uint64_t)CHUNK_CNT * LP_DISK_CHUNK_SIZE) * 8;
	for (uint64_t bit = 0; bit < bit_cnt; bit++) {
		slot_flip(bdev, bit % 2, bit);
		chunks = open_table(bdev, &label, 0);
		assert_int_equal(lp_chunks_find(chunks, 0, LP_CHUNK_USE_FILES, 3), 4);
		lp_chunks_close(chunks);
		/* It was repaired: now the other may rot. */
		slot_flip(bdev, 1 - bit % 2, bit);
		options.read_only = true;
		lp_test_ok(lp_chunks_open(bdev, &options, &chunks));
		assert_int_equal(lp_chunks_find(chunks, 0, LP_CHUNK_USE_FILES, 3), 4);
		uint32_t idx = 0;
		lp_test_err(-EROFS, lp_chunks_lease(chunks, 0, LP_CHUNK_USE_FILES, 0, &idx));
		lp_chunks_close(chunks);
		slot_flip(bdev, 1 - bit % 2, bit);
	}
	slot_flip(bdev, 0, 300);
	slot_flip(bdev, 1, 301);
	lp_test_err(-EBADMSG, lp_chunks_open(bdev, &options, &chunks));
	lp_bdev_close(bdev);
}

/* A slot whose crc is right and whose content breaks a rule. */
static void test_rules(void **state)
{
	(void)state;
	static uint8_t slot[4096];
	static const struct {
		size_t at;
		uint8_t value;
	} bad[] = {{LP_DISK_CHUNKS_VERSION_OFF, 2},
		   {LP_DISK_CHUNKS_SLOT_OFF, 1},
		   {LP_DISK_CHUNKS_DEVICE_UUID_OFF, 'x'},
		   {LP_DISK_CHUNKS_RESERVED_OFF, 1},
		   {LP_DISK_CHUNKS_CHUNK_CNT_OFF + 3, 1},
		   {LP_DISK_CHUNKS_SIZE + 4, LP_CHUNK_USE_META + 1},
		   {LP_DISK_CHUNKS_SIZE + 5, 64},
		   {LP_DISK_CHUNKS_SIZE + 3, 1}}; /* free, yet owned */
	struct lp_disk_chunks header = {
		.magic = 0x4b43504c, .version = 1, .sequence = 1, .chunk_cnt = 4};
	struct lp_disk_chunks got;
	size_t len = LP_DISK_CHUNKS_SIZE + 8;
	for (size_t i = 0; i <= LP_ARRAY_SIZE(bad); i++) {
		memset(slot, 0, sizeof(slot));
		lp_disk_chunks_encode(&header, slot);
		slot[LP_DISK_CHUNKS_SIZE + 4] = LP_CHUNK_USE_FILES;
		if (i < LP_ARRAY_SIZE(bad))
			slot[bad[i].at] = bad[i].value;
		lp_put_le32(slot + LP_DISK_CHUNKS_CRC_OFF, 0);
		lp_put_le32(slot + LP_DISK_CHUNKS_CRC_OFF, lp_crc32c(0, slot, len));
		int want = i < LP_ARRAY_SIZE(bad) ? -EUCLEAN : 0;
		lp_test_err(want, lp_chunks_decode(slot, len, 0, header.device_uuid, &got));
	}
	for (size_t cut = 0; cut < len; cut++)
		assert_true(lp_chunks_decode(slot, cut, 0, header.device_uuid, &got) < 0);
}

static void test_geometry_mismatch(void **state)
{
	(void)state;
	struct lp_bdev *bdev = NULL;
	struct lp_chunks *chunks = NULL;
	struct lp_disk_label label = lpi_disk_tiny_label(BLOCKS, CHUNK_CNT);
	struct lp_chunks_options options = {.label = &label};
	lp_test_ok(lp_bdev_open_mem(BLOCKS * 4096, 4096, &bdev));
	lp_test_ok(lp_chunks_format(bdev, &label));
	label.chunk_cnt--;
	lp_test_err(-EUCLEAN, lp_chunks_open(bdev, &options, &chunks));
	lp_bdev_close(bdev);
}

/* Chunks that no label can name any more are left out of the table when nobody has them. */
static void expect_cut(struct lp_bdev *bdev, const struct lp_disk_label *label, bool read_only)
{
	struct lp_chunks_options options = {.label = label, .read_only = read_only};
	struct lp_chunks *chunks = NULL;
	struct lp_chunks_stats stats;
	lp_test_ok(lp_chunks_open(bdev, &options, &chunks));
	lp_chunks_stats(chunks, &stats);
	assert_int_equal(stats.total_cnt, LP_SPACE_CHUNKS_MAX);
	assert_int_equal(stats.cnt[LP_CHUNK_USE_FREE], LP_SPACE_CHUNKS_MAX - 1);
	assert_int_equal(lp_chunks_find(chunks, 0, LP_CHUNK_USE_OBJECTS, 0), 5);
	lp_chunks_close(chunks);
}

static void test_too_many_chunks(void **state)
{
	(void)state;
	const uint32_t beyond = LP_SPACE_CHUNKS_MAX + 1000;
	struct lp_disk_label label = lpi_disk_tiny_label(UINT64_C(6) << 28, beyond);
	struct lp_chunks_options options = {.label = &label};
	struct lp_bdev *bdev = lpi_disk_sim(UINT64_C(6) << 40, LP_SIM_CONSUMER, 1);
	struct lp_chunks *chunks = NULL;
	label.table_block = 256;
	label.table_slot_blocks = 3000;
	label.chunk_base = 8192;
	lp_test_ok(lp_chunks_format(bdev, &label));
	chunks = open_table(bdev, &label, 0);
	assert_int_equal(lease(chunks, 0, LP_CHUNK_USE_OBJECTS, 5), 5);
	lp_chunks_close(chunks);
	label.chunk_cnt = LP_SPACE_CHUNKS_MAX - 1; /* there could be more: another device's */
	lp_test_err(-EUCLEAN, lp_chunks_open(bdev, &options, &chunks));
	label.chunk_cnt = LP_SPACE_CHUNKS_MAX;
	expect_cut(bdev, &label, true);
	expect_cut(bdev, &label, false);
	label.chunk_cnt = beyond;
	chunks = open_table(bdev, &label, 0);
	assert_int_equal(lease(chunks, 0, LP_CHUNK_USE_OBJECTS, beyond - 1), beyond - 1);
	lp_chunks_close(chunks);
	label.chunk_cnt = LP_SPACE_CHUNKS_MAX;
	lp_test_err(-EUCLEAN, lp_chunks_open(bdev, &options, &chunks));
	lp_bdev_close(bdev);
}

/* Rule S5: a device can grow. The table takes up what the label has, in use or at open. */
static void test_grow(void **state)
{
	(void)state;
	struct lp_bdev *bdev = NULL;
	struct lp_disk_label label = lpi_disk_tiny_label(BLOCKS, 3);
	struct lp_chunks_stats stats;
	lp_test_ok(lp_bdev_open_mem(BLOCKS * 4096, 4096, &bdev));
	lp_test_ok(lp_chunks_format(bdev, &label));
	struct lp_chunks *chunks = open_table(bdev, &label, 0);
	(void)lease(chunks, 0, LP_CHUNK_USE_OBJECTS, 2);
	label.chunk_cnt = 9;
	lp_test_ok(lp_chunks_grow(chunks, &label));
	lp_test_ok(lp_chunks_grow(chunks, &label));
	assert_int_equal(lease(chunks, 1, LP_CHUNK_USE_OBJECTS, 8), 8);
	lp_chunks_close(chunks);
	label.chunk_cnt = CHUNK_CNT;
	chunks = open_table(bdev, &label, 0);
	lp_chunks_stats(chunks, &stats);
	assert_int_equal(stats.cnt[LP_CHUNK_USE_FREE], CHUNK_CNT - 2);
	assert_int_equal(lease(chunks, 1, LP_CHUNK_USE_OBJECTS, 14), 14);
	lp_chunks_close(chunks);
	chunks = open_table(bdev, &label, 0);
	assert_int_equal(lp_chunks_find(chunks, 1, LP_CHUNK_USE_OBJECTS, 9), 14);
	lp_chunks_close(chunks);
	lp_bdev_close(bdev);
}

/* --- Single blocks --------------------------------------------------------------------------- */

#define CHUNK_BLOCKS 256u
#define GIFT_WORDS   (CHUNK_BLOCKS / 64)

static void told(void *arg)
{
	++*(uint32_t *)arg;
}

/* Blocks [from, to) of a chunk for a shard, with words of the caller. */
static struct lp_chunk_blocks part(uint64_t *words, uint32_t chunk_idx, uint32_t shard_idx,
				   uint64_t from, uint64_t to)
{
	struct lp_chunk_blocks blocks = {.chunk_idx = chunk_idx, .shard_idx = shard_idx};
	memset(words, 0, GIFT_WORDS * sizeof(*words));
	lp_bitmap_init(&blocks.blocks, words, CHUNK_BLOCKS);
	lp_bitmap_set(&blocks.blocks, from, to);
	return blocks;
}

/* The shard has just these blocks of the chunk. */
static bool has_part(struct lp_chunks *chunks, uint32_t shard_idx, uint32_t chunk_idx,
		     uint64_t from, uint64_t to)
{
	uint64_t words[GIFT_WORDS] = {0};
	struct lp_chunk_blocks found = {.chunk_idx = 0};
	lp_bitmap_init(&found.blocks, words, CHUNK_BLOCKS);
	bool has = lp_chunks_find_blocks(chunks, shard_idx, chunk_idx, &found) &&
		   found.chunk_idx == chunk_idx;
	if (from == to || !has)
		return has == (from != to);
	return lp_bitmap_is_set(&found.blocks, from, to) &&
	       lp_bitmap_count(&found.blocks, 0, CHUNK_BLOCKS) == to - from;
}

/* What a gift makes of a table, now and at the next opening; who is told; and how it comes back. */
static void test_gifts(void **state)
{
	(void)state;
	struct lp_bdev *bdev = NULL;
	struct lp_disk_label label = lpi_disk_tiny_label(BLOCKS, CHUNK_CNT);
	struct lp_chunk_blocks got;
	struct lp_chunks_stats stats;
	uint64_t words[2][GIFT_WORDS];
	uint32_t told_cnt[2] = {0, 0};
	lp_test_ok(lp_bdev_open_mem(BLOCKS * 4096, 4096, &bdev));
	lp_test_ok(lp_chunks_format(bdev, &label));
	struct lp_chunks *chunks = open_table(bdev, &label, 0);
	assert_int_equal(lease(chunks, 0, LP_CHUNK_USE_OBJECTS, 3), 3);
	assert_int_equal(lease(chunks, 1, LP_CHUNK_USE_OBJECTS, 7), 7);
	assert_true(has_part(chunks, 0, 3, 0, CHUNK_BLOCKS));
	struct lp_chunk_blocks one = part(words[0], 3, 1, 10, 20);
	lp_test_err(-EBUSY, lp_chunks_give(chunks, 0, &one, 1));
	assert_true(has_part(chunks, 0, 3, 0, CHUNK_BLOCKS));
	lp_chunks_listen(chunks, 0, told, &told_cnt[0]);
	lp_chunks_listen(chunks, 1, told, &told_cnt[1]);
	lp_test_ok(lp_chunks_give(chunks, 0, &one, 1));
	assert_int_equal(told_cnt[1], 1);
	assert_int_equal(lp_chunks_gift_blocks(chunks, 1), 10);
	assert_true(lp_chunks_take_gift(chunks, 1, &got));
	assert_int_equal(got.chunk_idx, 3);
	assert_int_equal(got.home_idx, 0);
	assert_true(lp_bitmap_is_set(&got.blocks, 10, 20));
	free(got.blocks.words);
	assert_false(lp_chunks_take_gift(chunks, 1, &got));
	assert_int_equal(lp_chunks_gift_blocks(chunks, 1), 0);
	assert_true(has_part(chunks, 1, 3, 10, 20));
	lp_chunks_close(chunks);
	chunks = open_table(bdev, &label, 0);
	assert_true(has_part(chunks, 1, 3, 10, 20));
	assert_false(has_part(chunks, 0, 3, 0, CHUNK_BLOCKS));
	lp_chunks_stats(chunks, &stats);
	assert_int_equal(stats.split_cnt, 1);
	/* Who ends before it has taken a gift up has it all the same. */
	lp_chunks_listen(chunks, 0, told, &told_cnt[0]);
	lp_chunks_listen(chunks, 1, told, &told_cnt[1]);
	struct lp_chunk_blocks both[2] = {part(words[0], 3, LP_CHUNKS_HOME, 10, 15),
					  part(words[1], 7, 0, 0, CHUNK_BLOCKS)};
	lp_test_ok(lp_chunks_give(chunks, 1, both, 2));
	lp_chunks_listen(chunks, 0, NULL, NULL);
	assert_int_equal(lp_chunks_gift_blocks(chunks, 0), 0);
	assert_false(lp_chunks_take_gift(chunks, 0, &got));
	assert_true(has_part(chunks, 1, 3, 15, 20));
	assert_true(has_part(chunks, 1, 7, 0, 0));
	assert_true(has_part(chunks, 0, 7, 0, CHUNK_BLOCKS));
	lp_chunks_listen(chunks, 0, told, &told_cnt[0]);
	both[0] = part(words[0], 3, 0, 15, 20);
	lp_test_ok(lp_chunks_give(chunks, 1, both, 1));
	both[1] = part(words[1], 7, 1, 0, CHUNK_BLOCKS);
	lp_test_ok(lp_chunks_give(chunks, 0, &both[1], 1));
	lp_chunks_stats(chunks, &stats);
	assert_int_equal(stats.split_cnt, 0);
	lp_test_ok(lp_chunks_return(chunks, 0, LP_CHUNK_USE_OBJECTS, 3));
	lp_chunks_close(chunks);
	lp_bdev_close(bdev);
}

/* Who does not listen gets nothing, and keeps nobody else from what is given to him. What was for
 * him is the giver's as before, as is all once the table has failed. Only what a write that failed
 * was about may be somebody else's. */
static void test_what_has_gone(void **state)
{
	(void)state;
	struct lp_bdev *bdev = lpi_disk_sim(BLOCKS * 4096, LP_SIM_CONSUMER, 1);
	struct lp_disk_label label = lpi_disk_tiny_label(BLOCKS, CHUNK_CNT);
	const struct lp_sim_rule rule = {.fault = LP_SIM_EIO, .skip_cnt = 1, .fire_cnt = 1};
	struct lp_chunk_blocks got;
	uint64_t words[2][GIFT_WORDS];
	uint32_t cnt = 0;
	lp_test_ok(lp_chunks_format(bdev, &label));
	struct lp_chunks *chunks = open_table(bdev, &label, 0);
	lp_chunks_listen(chunks, 0, told, &cnt);
	lp_chunks_listen(chunks, 1, told, &cnt);
	assert_int_equal(lease(chunks, 0, LP_CHUNK_USE_OBJECTS, 3), 3);
	assert_int_equal(lease(chunks, 0, LP_CHUNK_USE_OBJECTS, 4), 4);
	struct lp_chunk_blocks list[2] = {part(words[0], 3, 2, 10, 20),
					  part(words[1], 4, 1, 10, 20)};
	lp_test_ok(lp_chunks_give(chunks, 0, list, 2));
	assert_false(list[0].has_gone);
	assert_true(list[1].has_gone);
	assert_int_equal(cnt, 1);
	assert_true(has_part(chunks, 0, 3, 0, CHUNK_BLOCKS));
	assert_true(has_part(chunks, 2, 3, 0, 0));
	assert_true(has_part(chunks, 1, 4, 10, 20));
	assert_true(lp_chunks_take_gift(chunks, 1, &got));
	free(got.blocks.words);
	(void)lp_sim_rule_add(lp_sim_of(bdev), &rule);
	list[1] = part(words[1], 4, 1, 30, 40);
	lp_test_err(-EIO, lp_chunks_give(chunks, 0, list, 2));
	assert_false(list[0].has_gone);
	assert_true(list[1].has_gone);
	list[1] = part(words[1], 4, 1, 50, 60);
	lp_test_err(-EIO, lp_chunks_give(chunks, 0, list, 2));
	assert_false(list[0].has_gone);
	assert_false(list[1].has_gone);
	assert_false(lp_chunks_take_gift(chunks, 1, &got));
	lp_chunks_close(chunks);
	lp_bdev_close(bdev);
}

/* The crc of a slot as code reads it that does not know of splits. */
static bool crc_is_right(const uint8_t *slot, size_t end)
{
	uint8_t copy[4096];
	memcpy(copy, slot, end);
	lp_put_le32(copy + LP_DISK_CHUNKS_CRC_OFF, 0);
	return lp_get_le32(slot + LP_DISK_CHUNKS_CRC_OFF) == lp_crc32c(0, copy, end);
}

/* Code that does not know a version says so: what it knows of the slot is sound. What is behind the
 * entries has a checksum of its own, and rot in it is found. */
static void test_versions(void **state)
{
	(void)state;
	static _Alignas(4096) uint8_t slot[4096];
	struct lp_bdev *bdev = NULL;
	struct lp_disk_label label = lpi_disk_tiny_label(BLOCKS, CHUNK_CNT);
	struct lp_disk_chunks header;
	uint64_t words[GIFT_WORDS];
	uint32_t cnt = 0;
	size_t end = LP_DISK_CHUNKS_SIZE + CHUNK_CNT * (size_t)LP_DISK_CHUNK_SIZE;
	lp_test_ok(lp_bdev_open_mem(BLOCKS * 4096, 4096, &bdev));
	lp_test_ok(lp_chunks_format(bdev, &label));
	struct lp_chunks *chunks = open_table(bdev, &label, 0);
	lp_chunks_listen(chunks, 1, told, &cnt);
	assert_int_equal(lease(chunks, 0, LP_CHUNK_USE_OBJECTS, 3), 3);
	lp_test_ok(lp_bdev_read_sync(bdev, slot, sizeof(slot), slot_offset(0)));
	assert_true(crc_is_right(slot, end));
	assert_int_equal(lp_get_le32(slot + LP_DISK_CHUNKS_VERSION_OFF), 1);
	struct lp_chunk_blocks one = part(words, 3, 1, 10, 20);
	lp_test_ok(lp_chunks_give(chunks, 0, &one, 1));
	lp_chunks_close(chunks);
	lp_test_ok(lp_bdev_read_sync(bdev, slot, sizeof(slot), slot_offset(0)));
	assert_true(crc_is_right(slot, end));
	assert_int_equal(lp_get_le32(slot + LP_DISK_CHUNKS_VERSION_OFF), 2);
	lp_test_ok(lp_chunks_decode(slot, sizeof(slot), 0, label.device_uuid, &header));
	assert_true(header.split_bytes > 0);
	for (uint64_t bit = 8 * end; bit < 8 * (end + header.split_bytes); bit++) {
		struct lp_disk_chunks got;
		slot[bit / 8] ^= (uint8_t)(1u << bit % 8);
		lp_test_err(-EBADMSG,
			    lp_chunks_decode(slot, sizeof(slot), 0, label.device_uuid, &got));
		slot[bit / 8] ^= (uint8_t)(1u << bit % 8);
	}
	lp_put_le32(slot + LP_DISK_CHUNKS_VERSION_OFF, 3);
	lp_put_le32(slot + LP_DISK_CHUNKS_SPLIT_BYTES_OFF, 0x77777777);
	lp_put_le32(slot + LP_DISK_CHUNKS_CRC_OFF, 0);
	lp_put_le32(slot + LP_DISK_CHUNKS_CRC_OFF, lp_crc32c(0, slot, end));
	lp_test_err(-EUCLEAN, lp_chunks_decode(slot, sizeof(slot), 0, label.device_uuid, &header));
	assert_non_null(strstr(lp_corruption_find(0)->what, "version 3"));
	lp_bdev_close(bdev);
}

/* A few more for a table that has no room: the first makes a split shorter, and is all that is
 * given. */
static void give_what_fits(struct lp_chunks *chunks, uint32_t given)
{
	struct lp_chunk_blocks list[8];
	uint64_t words[8][GIFT_WORDS];
	list[0] = part(words[0], 0, 1, 5, 6);
	for (uint32_t i = 1; i < 8; i++) {
		uint32_t to = 1 + (given + i) / CHUNK_CNT;
		list[i] = part(words[i], (given + i) % CHUNK_CNT, to, UINT64_C(4) * to,
			       UINT64_C(4) * to + 1);
		lp_bitmap_set(&list[i].blocks, 4 * to + 2, 4 * to + 3);
	}
	lp_test_ok(lp_chunks_give(chunks, 0, list, 8));
	assert_true(list[0].has_gone);
	assert_false(list[7].has_gone);
	assert_true(lp_chunks_is_split_up(chunks));
	list[0] = part(words[0], 0, LP_CHUNKS_HOME, 5, 6);
	lp_test_ok(lp_chunks_give(chunks, 1, list, 1));
	assert_false(lp_chunks_is_split_up(chunks));
}

/* The table has no room for more splits: it is as it was, and says so. One that grows then takes up
 * no more chunks than fit, and the others when there is room. */
static void test_split_up(void **state)
{
	(void)state;
	struct lp_bdev *bdev = NULL;
	struct lp_disk_label label = lpi_disk_tiny_label(BLOCKS, CHUNK_CNT);
	struct lp_chunks_options options = {.label = &label};
	struct lp_chunks_stats stats;
	uint64_t words[GIFT_WORDS];
	uint32_t cnt = 0;
	uint32_t given = 0;
	int err = 0;
	label.chunk_blocks = 256;
	label.table_slot_blocks = 1;
	lp_test_ok(lp_bdev_open_mem(BLOCKS * 4096, 4096, &bdev));
	lp_test_ok(lp_chunks_format(bdev, &label));
	struct lp_chunks *chunks = open_table(bdev, &label, 0);
	for (uint32_t i = 0; i < LP_SHARDS_MAX; i++)
		lp_chunks_listen(chunks, i, told, &cnt);
	for (uint32_t i = 0; i < CHUNK_CNT; i++)
		assert_int_equal(lease(chunks, 0, LP_CHUNK_USE_OBJECTS, i), i);
	while (err == 0) {
		assert_true(given < CHUNK_CNT * (LP_SHARDS_MAX - 1));
		assert_false(lp_chunks_is_split_up(chunks));
		uint32_t to = 1 + given / CHUNK_CNT;
		struct lp_chunk_blocks one = part(words, given % CHUNK_CNT, to, 0, 0);
		for (uint64_t k = UINT64_C(4) * to; k < UINT64_C(4) * (to + 1); k += 2)
			lp_bitmap_set(&one.blocks, k, k + 1);
		err = lp_chunks_give(chunks, 0, &one, 1);
		given += err == 0;
	}
	lp_test_err(-ENOSPC, err);
	assert_true(given > 100);
	assert_true(lp_chunks_is_split_up(chunks));
	assert_int_equal(cnt, given);
	lp_chunks_stats(chunks, &stats);
	assert_int_equal(stats.split_cnt, given);
	give_what_fits(chunks, given);
	lp_chunks_close(chunks);
	label.chunk_cnt = 240;
	lp_test_ok(lp_chunks_open(bdev, &options, &chunks));
	lp_chunks_stats(chunks, &stats);
	assert_int_equal(stats.split_cnt, given);
	assert_true(stats.total_cnt >= CHUNK_CNT && stats.total_cnt < 240);
	lp_chunks_listen(chunks, 0, told, &cnt);
	for (uint32_t i = 0; i < 60; i++) {
		uint32_t to = 1 + i / CHUNK_CNT;
		struct lp_chunk_blocks one = part(words, i % CHUNK_CNT, 0, 0, 0);
		for (uint64_t k = UINT64_C(4) * to; k < UINT64_C(4) * (to + 1); k += 2)
			lp_bitmap_set(&one.blocks, k, k + 1);
		lp_test_ok(lp_chunks_give(chunks, to, &one, 1));
	}
	lp_test_ok(lp_chunks_grow(chunks, &label));
	lp_chunks_stats(chunks, &stats);
	assert_int_equal(stats.total_cnt, 240);
	assert_int_equal(stats.cnt[LP_CHUNK_USE_FREE], 240 - CHUNK_CNT);
	lp_chunks_close(chunks);
	lp_test_ok(lp_chunks_open(bdev, &options, &chunks));
	lp_chunks_close(chunks);
	lp_bdev_close(bdev);
}

/* After a failed write to either slot nothing more is leased, memory is as before, and reopening
 * finds the table before or after, whole. What the device says makes no difference: a slot that
 * found no space on the host is no full table, for the other slot may have the change. */
static void test_failed_write(void **state)
{
	(void)state;
	for (uint32_t i = 0; i < 4; i++) {
		uint32_t skip = i % 2;
		struct lp_bdev *bdev = lpi_disk_sim(BLOCKS * 4096, LP_SIM_CONSUMER, skip);
		struct lp_disk_label label = lpi_disk_tiny_label(BLOCKS, CHUNK_CNT);
		uint32_t idx = 77;
		lp_test_ok(lp_chunks_format(bdev, &label));
		struct lp_chunks *chunks = open_table(bdev, &label, 0);
		(void)lease(chunks, 1, LP_CHUNK_USE_FILES, 0);
		struct lp_sim_rule rule = {.fault = i < 2 ? LP_SIM_EIO : LP_SIM_ENOSPC,
					   .skip_cnt = skip,
					   .fire_cnt = 1};
		(void)lp_sim_rule_add(lp_sim_of(bdev), &rule);
		lp_test_err(-EIO, lp_chunks_lease(chunks, 0, LP_CHUNK_USE_FILES, 0, &idx));
		assert_int_equal(idx, 77);
		assert_int_equal(lp_chunks_find(chunks, 0, LP_CHUNK_USE_FILES, 0), LP_CHUNK_NONE);
		lp_test_err(-EIO, lp_chunks_lease(chunks, 0, LP_CHUNK_USE_FILES, 0, &idx));
		lp_test_err(-EIO, lp_chunks_return(chunks, 1, LP_CHUNK_USE_FILES, 0));
		struct lp_chunks_stats stats;
		lp_chunks_stats(chunks, &stats);
		assert_true(stats.failed);
		assert_int_equal(stats.cnt[LP_CHUNK_USE_FREE], CHUNK_CNT - 1);
		lp_chunks_close(chunks);
		lp_bdev_trust(bdev); /* all is opened anew */
		chunks = open_table(bdev, &label, 0);
		assert_int_equal(lp_chunks_find(chunks, 1, LP_CHUNK_USE_FILES, 0), 0);
		(void)lease(chunks, 0, LP_CHUNK_USE_FILES, 5);
		lp_chunks_close(chunks);
		lp_bdev_close(bdev);
	}
}

/* --- Power cuts ------------------------------------------------------------------------------ */

#define STEP_CNT 24

/* What the table holds after each step, and how many events the device had then. */
struct history {
	struct lp_disk_label label;
	uint8_t owner[STEP_CNT + 1][CHUNK_CNT];   /* 0: free, else use * 8 + shard */
	uint8_t lent_to[STEP_CNT + 1][CHUNK_CNT]; /* its first block: 0 to nobody, else shard + 1 */
	uint64_t event[STEP_CNT + 1];             /* the step is acknowledged from here on */
	uint64_t old_cnt;
	uint64_t new_cnt;
};

static bool lends(struct lp_chunks *chunks, uint32_t chunk_idx, uint32_t home_idx, uint8_t lent_to)
{
	bool lends = has_part(chunks, home_idx, chunk_idx, lent_to != 0, CHUNK_BLOCKS);
	for (uint32_t i = 0; i < 3; i++)
		lends = lends &&
			(i == home_idx || has_part(chunks, i, chunk_idx, 0, lent_to == i + 1));
	return lends;
}

static bool holds(struct lp_chunks *chunks, const struct history *history, unsigned step)
{
	for (uint32_t i = 0; i < CHUNK_CNT; i++) {
		uint32_t shard_idx = 0;
		enum lp_chunk_use use = lp_chunks_owner(chunks, i, &shard_idx);
		if (history->owner[step][i] != use * 8 + shard_idx)
			return false;
		if (use == LP_CHUNK_USE_OBJECTS &&
		    !lends(chunks, i, shard_idx, history->lent_to[step][i]))
			return false;
	}
	return true;
}

static void history_check(struct lp_bdev *left, uint64_t event, void *opaque)
{
	struct history *history = opaque;
	unsigned step = 0;
	while (step < STEP_CNT && history->event[step + 1] <= event)
		step++;
	struct lp_chunks *chunks = open_table(left, &history->label, 0);
	bool is_old = holds(chunks, history, step);
	bool is_new = step < STEP_CNT && holds(chunks, history, step + 1);
	assert_true(is_old || is_new);
	*(is_old ? &history->old_cnt : &history->new_cnt) += 1;
	lp_chunks_close(chunks);
	/* Opening settled it: a power cut now changes nothing more. */
	struct lp_bdev *again = lp_sim_power_cut(lp_sim_of(left), event);
	chunks = open_table(again, &history->label, 0);
	assert_int_equal(holds(chunks, history, step), is_old);
	lp_chunks_close(chunks);
	lp_bdev_close(again);
}

/* The first block of the chunk goes to somebody else, or home. */
static void random_gift(struct lp_chunks *chunks, uint32_t idx, uint32_t home_idx, uint8_t *lent_to)
{
	uint64_t words[GIFT_WORDS];
	uint32_t from_idx = *lent_to == 0 ? home_idx : *lent_to - 1u;
	uint32_t to_idx = (from_idx + 1) % 3;
	struct lp_chunk_blocks one = part(words, idx, to_idx, 0, 1);
	lp_test_ok(lp_chunks_give(chunks, from_idx, &one, 1));
	*lent_to = (uint8_t)(to_idx == home_idx ? 0 : to_idx + 1);
}

static void random_step(struct lp_chunks *chunks, struct lp_prng *prng, uint8_t *owner,
			uint8_t *lent_to)
{
	uint32_t idx = (uint32_t)lp_prng_below(prng, CHUNK_CNT);
	uint32_t shard_idx = (uint32_t)lp_prng_below(prng, 3);
	if (owner[idx] / 8 == LP_CHUNK_USE_OBJECTS &&
	    (lent_to[idx] != 0 || lp_prng_chance(prng, 1, 2))) {
		random_gift(chunks, idx, owner[idx] % 8, &lent_to[idx]);
		return;
	}
	if (owner[idx] != 0 && lp_prng_chance(prng, 1, 2)) {
		lp_test_ok(lp_chunks_return(chunks, owner[idx] % 8,
					    (enum lp_chunk_use)(owner[idx] / 8), idx));
		owner[idx] = 0;
		return;
	}
	enum lp_chunk_use use = (enum lp_chunk_use)lp_prng_between(prng, 1, 3);
	int err = lp_chunks_lease(chunks, shard_idx, use, idx, &idx);
	if (err == -ENOSPC)
		return;
	lp_test_ok(err);
	assert_int_equal(owner[idx], 0);
	owner[idx] = (uint8_t)(use * 8 + shard_idx);
}

/* Rules S1, S5: what was acknowledged holds after a cut at any event, what was not is there
 * wholly or not at all. */
static void test_cuts(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < 6; seed++) {
		static struct history history;
		struct lp_prng prng;
		struct lp_bdev *bdev = lpi_disk_sim(
			BLOCKS * 4096, (enum lp_sim_preset)(seed % LP_SIM_PRESET_CNT), seed);
		memset(&history, 0, sizeof(history));
		lp_prng_init(&prng, seed);
		history.label = lpi_disk_tiny_label(BLOCKS, CHUNK_CNT);
		lp_test_ok(lp_chunks_format(bdev, &history.label));
		struct lp_chunks *chunks = open_table(bdev, &history.label, 0);
		uint32_t told_cnt = 0;
		for (uint32_t i = 0; i < 3; i++)
			lp_chunks_listen(chunks, i, told, &told_cnt);
		history.event[0] = lp_sim_event_count(lp_sim_of(bdev));
		for (unsigned i = 1; i <= STEP_CNT; i++) {
			memcpy(history.owner[i], history.owner[i - 1], CHUNK_CNT);
			memcpy(history.lent_to[i], history.lent_to[i - 1], CHUNK_CNT);
			random_step(chunks, &prng, history.owner[i], history.lent_to[i]);
			history.event[i] = lp_sim_event_count(lp_sim_of(bdev));
		}
		lp_chunks_close(chunks);
		(void)lpi_disk_cut_everywhere(bdev, history.event[0], 6, history_check, &history);
		assert_true(history.old_cnt > 0 && history.new_cnt > 0);
		lp_bdev_close(bdev);
	}
}

static void repair_check(struct lp_bdev *left, uint64_t event, void *opaque)
{
	(void)event;
	struct lp_chunks *chunks = open_table(left, opaque, 0);
	assert_int_equal(lp_chunks_find(chunks, 1, LP_CHUNK_USE_FILES, 0), 5);
	lp_chunks_close(chunks);
}

/* The repair of a slot does not endanger the other. */
static void test_cut_repair(void **state)
{
	(void)state;
	for (uint32_t bad = 0; bad < 2; bad++) {
		struct lp_bdev *bdev = lpi_disk_sim(BLOCKS * 4096, LP_SIM_HOSTILE, bad);
		struct lp_disk_label label = lpi_disk_tiny_label(BLOCKS, CHUNK_CNT);
		lp_test_ok(lp_chunks_format(bdev, &label));
		struct lp_chunks *chunks = open_table(bdev, &label, 0);
		assert_int_equal(lease(chunks, 1, LP_CHUNK_USE_FILES, 5), 5);
		lp_chunks_close(chunks);
		slot_flip(bdev, bad, 99);
		uint64_t from = lp_sim_event_count(lp_sim_of(bdev));
		chunks = open_table(bdev, &label, 0);
		lp_chunks_close(chunks);
		(void)lpi_disk_cut_everywhere(bdev, from, 16, repair_check, &label);
		lp_bdev_close(bdev);
	}
}

/* --- Threads --------------------------------------------------------------------------------- */

struct worker {
	pthread_t thread;
	struct lp_chunks *chunks;
	uint32_t shard_idx;
	int err;
};

static void *worker_run(void *arg)
{
	struct worker *worker = arg;
	for (int i = 0; i < 200 && worker->err == 0; i++) {
		uint32_t idx = 0;
		uint32_t owner = 0;
		worker->err = lp_chunks_lease(worker->chunks, worker->shard_idx, LP_CHUNK_USE_FILES,
					      0, &idx);
		if (worker->err == 0 &&
		    (lp_chunks_owner(worker->chunks, idx, &owner) != LP_CHUNK_USE_FILES ||
		     owner != worker->shard_idx))
			worker->err = -EUCLEAN;
		if (worker->err == 0)
			worker->err = lp_chunks_return(worker->chunks, worker->shard_idx,
						       LP_CHUNK_USE_FILES, idx);
	}
	return NULL;
}

static void test_threads(void **state)
{
	(void)state;
	struct lp_bdev *bdev = NULL;
	struct worker workers[4];
	struct lp_disk_label label = lpi_disk_tiny_label(BLOCKS, CHUNK_CNT);
	lp_test_ok(lp_bdev_open_mem(BLOCKS * 4096, 4096, &bdev));
	lp_test_ok(lp_chunks_format(bdev, &label));
	struct lp_chunks *chunks = open_table(bdev, &label, 0);
	for (uint32_t i = 0; i < LP_ARRAY_SIZE(workers); i++) {
		workers[i] = (struct worker){.chunks = chunks, .shard_idx = i};
		assert_int_equal(pthread_create(&workers[i].thread, NULL, worker_run, &workers[i]),
				 0);
	}
	for (uint32_t i = 0; i < LP_ARRAY_SIZE(workers); i++) {
		assert_int_equal(pthread_join(workers[i].thread, NULL), 0);
		lp_test_ok(workers[i].err);
	}
	struct lp_chunks_stats stats;
	lp_chunks_stats(chunks, &stats);
	assert_int_equal(stats.cnt[LP_CHUNK_USE_FREE], CHUNK_CNT);
	assert_int_equal(stats.lease_cnt, 800);
	assert_int_equal(stats.write_cnt, 3200);
	lp_chunks_close(chunks);
	lp_bdev_close(bdev);
}

struct neighbour {
	uint32_t asked_cnt;
};

static void asked(void *arg)
{
	((struct neighbour *)arg)->asked_cnt++;
}

/* As a shard does: it looks who has asked, and then answers. */
static bool look_and_answer(struct lp_chunks *chunks, uint32_t shard_idx)
{
	(void)lp_chunks_askers(chunks, shard_idx);
	return lp_chunks_answer(chunks, shard_idx);
}

/* Each is asked once until he has answered, never who asks himself, nor who has gone. Who was asked
 * again meanwhile looks again before that is an answer, however often it was. */
static void test_asking(void **state)
{
	(void)state;
	struct lp_bdev *bdev = NULL;
	struct lp_disk_label label = lpi_disk_tiny_label(BLOCKS, CHUNK_CNT);
	struct neighbour neighbours[3] = {{0}};
	lp_test_ok(lp_bdev_open_mem(BLOCKS * 4096, 4096, &bdev));
	lp_test_ok(lp_chunks_format(bdev, &label));
	struct lp_chunks *chunks = open_table(bdev, &label, 0);
	assert_false(lp_chunks_ask(chunks, 0));
	lp_chunks_listen(chunks, 0, asked, &neighbours[0]);
	assert_false(lp_chunks_ask(chunks, 0));
	lp_chunks_listen(chunks, 1, asked, &neighbours[1]);
	lp_chunks_listen(chunks, 2, asked, &neighbours[2]);
	assert_true(lp_chunks_ask(chunks, 0));
	assert_true(lp_chunks_ask(chunks, 0));
	assert_int_equal(neighbours[1].asked_cnt, 1);
	assert_int_equal(neighbours[2].asked_cnt, 1);
	assert_true(lp_chunks_ask(chunks, 2));
	assert_int_equal(neighbours[0].asked_cnt, 1);
	assert_int_equal(neighbours[1].asked_cnt, 1);
	assert_false(look_and_answer(chunks, 1));
	assert_true(lp_chunks_is_asking(chunks, 2));
	assert_true(look_and_answer(chunks, 1));
	assert_true(look_and_answer(chunks, 0));
	assert_true(lp_chunks_is_asking(chunks, 0));
	assert_false(lp_chunks_is_asking(chunks, 2));
	assert_true(lp_chunks_ask(chunks, 2));
	assert_int_equal(neighbours[0].asked_cnt, 2);
	assert_int_equal(neighbours[1].asked_cnt, 2);
	assert_true(look_and_answer(chunks, 1));
	assert_true(look_and_answer(chunks, 0));
	lp_chunks_listen(chunks, 2, NULL, NULL);
	assert_false(lp_chunks_is_asking(chunks, 0));
	lp_chunks_close(chunks);
	lp_bdev_close(bdev);
}

/* A question that came after the last look at who has asked is not answered by that look, and
 * stays. */
static void test_asked_since_the_look(void **state)
{
	(void)state;
	struct lp_bdev *bdev = NULL;
	struct lp_disk_label label = lpi_disk_tiny_label(BLOCKS, CHUNK_CNT);
	struct neighbour neighbours[2] = {{0}};
	lp_test_ok(lp_bdev_open_mem(BLOCKS * 4096, 4096, &bdev));
	lp_test_ok(lp_chunks_format(bdev, &label));
	struct lp_chunks *chunks = open_table(bdev, &label, 0);
	lp_chunks_listen(chunks, 0, asked, &neighbours[0]);
	lp_chunks_listen(chunks, 1, asked, &neighbours[1]);
	assert_true(lp_chunks_answer(chunks, 1));
	assert_true(lp_chunks_ask(chunks, 0));
	assert_false(lp_chunks_answer(chunks, 1));
	assert_false(lp_chunks_answer(chunks, 1));
	assert_true(lp_chunks_is_asking(chunks, 0));
	assert_int_equal(lp_chunks_askers(chunks, 1), 1);
	assert_true(lp_chunks_answer(chunks, 1));
	assert_false(lp_chunks_is_asking(chunks, 0));
	lp_chunks_close(chunks);
	lp_bdev_close(bdev);
}

static bool has_moved(const struct lp_chunks *chunks, uint64_t *was)
{
	bool moved = lp_chunks_moves(chunks) != *was;
	*was = lp_chunks_moves(chunks);
	return moved;
}

/* Rule S5: whatever changes hands is counted, before it does; asking is not, nor what finds none.
 * An evasion is for the others to hear of. */
static void test_moves(void **state)
{
	(void)state;
	struct lp_bdev *bdev = NULL;
	struct lp_disk_label label = lpi_disk_tiny_label(BLOCKS, CHUNK_CNT);
	struct neighbour neighbours[2] = {{0}};
	uint64_t words[GIFT_WORDS];
	uint32_t idx = 0;
	lp_test_ok(lp_bdev_open_mem(BLOCKS * 4096, 4096, &bdev));
	lp_test_ok(lp_chunks_format(bdev, &label));
	struct lp_chunks *chunks = open_table(bdev, &label, 0);
	uint64_t moves = lp_chunks_moves(chunks);
	for (uint32_t i = 0; i < 2; i++) {
		lp_chunks_listen(chunks, i, asked, &neighbours[i]);
		assert_true(has_moved(chunks, &moves));
	}
	assert_int_equal(lease(chunks, 0, LP_CHUNK_USE_OBJECTS, 3), 3);
	assert_true(has_moved(chunks, &moves));
	struct lp_chunk_blocks gift = part(words, 3, 1, 10, 20);
	lp_test_ok(lp_chunks_give(chunks, 0, &gift, 1));
	assert_true(has_moved(chunks, &moves));
	assert_true(lp_chunks_ask(chunks, 0));
	assert_true(look_and_answer(chunks, 1));
	assert_false(has_moved(chunks, &moves));
	while (lp_chunks_lease(chunks, 0, LP_CHUNK_USE_OBJECTS, 0, &idx) == 0)
		assert_true(has_moved(chunks, &moves));
	assert_false(has_moved(chunks, &moves));
	lp_test_ok(lp_chunks_return(chunks, 0, LP_CHUNK_USE_OBJECTS, idx));
	assert_true(has_moved(chunks, &moves));
	lp_chunks_set_files_reserve(chunks, 1);
	assert_true(has_moved(chunks, &moves));
	uint64_t evasions = lp_chunks_evasions(chunks, 0);
	uint64_t own = lp_chunks_evasions(chunks, 1);
	lp_chunks_evade(chunks, 1);
	assert_int_equal(lp_chunks_evasions(chunks, 0), evasions + 1);
	assert_int_equal(lp_chunks_evasions(chunks, 1), own);
	/* Nor does who ceases to listen say that he has nothing. */
	lp_chunks_listen(chunks, 1, NULL, NULL);
	assert_int_equal(lp_chunks_evasions(chunks, 0), evasions + 2);
	lp_chunks_close(chunks);
	lp_bdev_close(bdev);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_moves),           cmocka_unit_test(test_ways),
		cmocka_unit_test(test_asking),          cmocka_unit_test(test_asked_since_the_look),
		cmocka_unit_test(test_reserve),         cmocka_unit_test(test_rot),
		cmocka_unit_test(test_rules),           cmocka_unit_test(test_geometry_mismatch),
		cmocka_unit_test(test_too_many_chunks), cmocka_unit_test(test_grow),
		cmocka_unit_test(test_gifts),           cmocka_unit_test(test_versions),
		cmocka_unit_test(test_what_has_gone),   cmocka_unit_test(test_split_up),
		cmocka_unit_test(test_failed_write),    cmocka_unit_test(test_cuts),
		cmocka_unit_test(test_cut_repair),      cmocka_unit_test(test_threads),
	};
	return lp_test_main(tests, "chunks");
}
