/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: one bit that flipped in a frame of a log, or in a payload of one that was acknowledged, is
 * found and told as it was; and nothing is told of what may be a frame that was torn, or whose
 * records would not be right. A long log is read once, not once for each frame.
 * Method: a log of frames made by hand, on memory; bits flipped at places all over them. */
#include "base/testing/test.h"

#include <stdlib.h>

#include "base/crc32c.h"
#include "store/index/kv.h"
#include "store/log/log.h"
#include "store/record/values.h"
#include "store/salvage/mend_log.h"

#define AREA   3u
#define RING   2048u
#define FRAMES 9u
#define SALT   UINT64_C(0x5a17)

struct world {
	struct lp_bdev *bdev;
	struct lp_extent area;
	struct lp_log_super super;
	uint64_t seq;
	uint64_t at; /* ring block of the next frame */
	uint32_t chain;
	uint64_t place[FRAMES];
	uint64_t meta_blocks[FRAMES];
	uint32_t cnt;
};

struct told {
	struct lp_mender mender;
	uint32_t cnt;
	uint64_t block; /* the last one */
	uint8_t bytes[LP_BLOCK_BYTES];
};

static _Alignas(4096) uint8_t buf[LP_BLOCK_BYTES];
static _Alignas(4096) uint8_t frame_bytes[16 * LP_BLOCK_BYTES];

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

static uint64_t block_of(const struct world *world, uint64_t ring_block)
{
	return world->area.block + LP_LOG_SLOT_CNT + ring_block;
}

static void write_at(const struct world *world, uint64_t ring_block, const void *bytes,
		     uint64_t blocks)
{
	lp_test_ok(lp_bdev_write_sync(world->bdev, bytes, blocks * LP_BLOCK_BYTES,
				      block_of(world, ring_block) * LP_BLOCK_BYTES, true));
}

static void flip(const struct world *world, uint64_t ring_block, uint64_t bit)
{
	uint64_t block = block_of(world, ring_block) + bit / 8 / LP_BLOCK_BYTES;
	lp_test_ok(lp_bdev_read_sync(world->bdev, buf, LP_BLOCK_BYTES, block * LP_BLOCK_BYTES));
	lp_mend_flip(buf, bit % (8 * LP_BLOCK_BYTES));
	lp_test_ok(
		lp_bdev_write_sync(world->bdev, buf, LP_BLOCK_BYTES, block * LP_BLOCK_BYTES, true));
}

/* A batch of one mark, and as many bytes of an attribute. */
static void make_batch(struct lp_kv_batch *batch, uint64_t ino, size_t len)
{
	static uint8_t value[20000];
	struct lp_unfinished_value mark = {.kind = LP_UNFINISHED_KIND_ORPHAN};
	uint8_t mark_bytes[LP_UNFINISHED_VALUE_SIZE];
	struct lp_key key;
	lp_key_of_ino(&key, LP_KEY_SPACE_UNFINISHED, (struct lp_ino){ino});
	lp_unfinished_write(&mark, &key, mark_bytes);
	lp_kv_batch_clear(batch);
	lp_test_ok(lp_kv_batch_put(batch, (struct lp_kv_bytes){key.bytes, key.len},
				   (struct lp_kv_bytes){mark_bytes, sizeof(mark_bytes)}));
	lp_key_of_name(&key, LP_KEY_SPACE_XATTR, (struct lp_ino){ino}, "user.x", 6);
	memset(value, (int)ino, len);
	lp_test_ok(lp_kv_batch_put(batch, (struct lp_kv_bytes){key.bytes, key.len},
				   (struct lp_kv_bytes){value, len}));
}

/* The next frame, in frame_bytes and on the device. */
static void put_frame(struct world *world, struct lp_kv_bytes batch, uint32_t payload_cnt)
{
	struct lp_log_head head = {.tag = lp_log_tag(world->super.store_uuid, world->super.salt),
				   .shard = world->super.shard,
				   .incarnation = world->super.incarnation,
				   .seq = world->seq,
				   .oldest_needed = 1,
				   .acked_seq = world->seq - 1,
				   .slot_seq = world->super.slot_seq,
				   .ring_block = world->at,
				   .chain = world->chain,
				   .batch_bytes = (uint32_t)batch.len,
				   .payload_cnt = payload_cnt};
	uint64_t meta = lp_log_meta_blocks(&head);
	uint8_t *at = frame_bytes + LP_LOG_HEAD_SIZE;
	assert_true((meta + payload_cnt) * LP_BLOCK_BYTES <= sizeof(frame_bytes));
	memset(frame_bytes, 0, sizeof(frame_bytes));
	for (uint32_t i = 0; i < payload_cnt; i++) {
		uint8_t *block = frame_bytes + (meta + i) * LP_BLOCK_BYTES;
		memset(block, (int)(world->seq * 16 + i), LP_BLOCK_BYTES);
		struct lp_log_payload payload = {.ino = 5,
						 .file_block = i,
						 .device_block = 4000 + i,
						 .crc = lp_crc32c(0, block, LP_BLOCK_BYTES)};
		lp_log_payload_encode(&payload, at);
		at += LP_LOG_PAYLOAD_SIZE;
	}
	memcpy(at, batch.data, batch.len);
	lp_log_head_write(&head, frame_bytes);
	write_at(world, world->at, frame_bytes, meta + payload_cnt);
	if (world->cnt < FRAMES) {
		world->place[world->cnt] = world->at;
		world->meta_blocks[world->cnt++] = meta;
	}
	world->at += meta + payload_cnt;
	world->seq++;
	world->chain = head.crc;
}

static void set_up(struct world *world)
{
	struct lp_log_area area = {.block = AREA, .ring_blocks = RING, .shard = 5};
	const struct lp_log_limits limits = {
		.flight_frames = 6, .flight_blocks = 512, .frame_blocks = 128, .meta_blocks = 8};
	memset(world, 0, sizeof(*world));
	memset(area.store_uuid, 0xab, sizeof(area.store_uuid));
	lp_test_ok(
		lp_bdev_open_mem((AREA + RING + 3) * (uint64_t)LP_BLOCK_BYTES, 512, &world->bdev));
	lp_test_ok(lp_log_format(world->bdev, &area, &limits, SALT));
	world->area = (struct lp_extent){AREA, RING + LP_LOG_SLOT_CNT};
	lp_test_ok(
		lp_bdev_read_sync(world->bdev, buf, LP_BLOCK_BYTES, (AREA + 1) * LP_BLOCK_BYTES));
	assert_int_equal(lp_log_super_read(buf, &world->super), LP_LOG_FOUND);
	world->seq = world->super.start_seq;
	world->at = world->super.start_block;
}

/* Frames of one meta block and of several, with payloads and without. */
static void fill(struct world *world)
{
	struct lp_kv_batch *batch = NULL;
	lp_test_ok(lp_kv_batch_new(1024, &batch));
	for (uint32_t i = 0; i < FRAMES; i++) {
		make_batch(batch, 100 + i, i % 3 == 2 ? 15000 : 200);
		put_frame(world, lp_kv_batch_data(batch), i % 2 * 3);
	}
	lp_kv_batch_free(batch);
}

static struct told look(const struct world *world)
{
	struct told told = {.mender.mended = note};
	lp_test_ok(lp_log_mend(world->bdev, world->area, world->super.shard, &told.mender));
	return told;
}

static void test_nothing_to_do(void **state)
{
	struct world world;
	(void)state;
	set_up(&world);
	assert_int_equal(look(&world).cnt, 0);
	fill(&world);
	assert_int_equal(look(&world).cnt, 0);
	lp_bdev_close(world.bdev);
}

/* Of the meta part of each frame, the last one, too. */
static void test_bit_of_a_frame(void **state)
{
	static uint8_t before[LP_BLOCK_BYTES];
	static const uint64_t bytes[] = {0, 5, 33, 64, 72, 77, 85, 100, 300, 4000, 9000};
	struct world world;
	(void)state;
	set_up(&world);
	fill(&world);
	for (uint32_t i = 0; i < FRAMES; i++) {
		for (unsigned j = 0; j < LP_ARRAY_SIZE(bytes); j++) {
			uint64_t block = world.place[i] + bytes[j] / LP_BLOCK_BYTES;
			if (bytes[j] >= world.meta_blocks[i] * LP_BLOCK_BYTES)
				continue;
			lp_test_ok(lp_bdev_read_sync(world.bdev, before, LP_BLOCK_BYTES,
						     block_of(&world, block) * LP_BLOCK_BYTES));
			flip(&world, world.place[i], bytes[j] * 8 + j % 8);
			struct told told = look(&world);
			assert_int_equal(told.cnt, 1);
			assert_int_equal(told.block, block_of(&world, block));
			assert_memory_equal(told.bytes, before, sizeof(before));
			flip(&world, world.place[i], bytes[j] * 8 + j % 8);
		}
	}
	lp_bdev_close(world.bdev);
}

/* Of payloads: in one frame, in two, and several in one. */
static void test_bit_of_a_payload(void **state)
{
	struct world world;
	(void)state;
	set_up(&world);
	fill(&world);
	uint64_t payloads = world.place[1] + world.meta_blocks[1];
	flip(&world, payloads, 12345);
	assert_int_equal(look(&world).cnt, 1);
	assert_int_equal(look(&world).block, block_of(&world, payloads));
	flip(&world, payloads + 2, 7);
	flip(&world, world.place[3] + world.meta_blocks[3] + 1, 32767);
	assert_int_equal(look(&world).cnt, 3);
	/* Two bits in one block: none of that frame is told, and nothing behind it. */
	flip(&world, payloads + 1, 100);
	flip(&world, payloads + 1, 200);
	assert_int_equal(look(&world).cnt, 0);
	lp_bdev_close(world.bdev);
}

/* One whose payload is wrong may be torn, as long as nothing says that it was acknowledged. */
static void test_last_frame_may_be_torn(void **state)
{
	struct lp_kv_batch *batch = NULL;
	struct world world;
	(void)state;
	set_up(&world);
	lp_test_ok(lp_kv_batch_new(1024, &batch));
	make_batch(batch, 7, 100);
	put_frame(&world, lp_kv_batch_data(batch), 2);
	flip(&world, world.place[0] + world.meta_blocks[0], 99);
	assert_int_equal(look(&world).cnt, 0);
	put_frame(&world, lp_kv_batch_data(batch), 0);
	assert_int_equal(look(&world).cnt, 1);
	lp_kv_batch_free(batch);
	lp_bdev_close(world.bdev);
}

/* A frame whose crc a single bit makes right, but whose records are not: so it may be, by chance,
 * with one that was torn. */
static void test_records_that_are_wrong(void **state)
{
	struct lp_kv_batch *batch = NULL;
	struct world world;
	uint8_t bytes[2000];
	(void)state;
	lp_test_ok(lp_kv_batch_new(1024, &batch));
	for (unsigned i = 0; i < 3; i++) {
		set_up(&world);
		make_batch(batch, 7, 1000);
		struct lp_kv_bytes data = lp_kv_batch_data(batch);
		memcpy(bytes, data.data, data.len);
		/* The value of the mark; its key; the number of records. */
		bytes[i == 0 ? 30 : (i == 1 ? 14 : 8)] ^= 0x41;
		put_frame(&world, (struct lp_kv_bytes){bytes, data.len}, 0);
		flip(&world, world.place[0], 8L * 700);
		assert_int_equal(look(&world).cnt, 0);
		lp_bdev_close(world.bdev);
	}
	lp_kv_batch_free(batch);
}

/* What is read of a log of many small frames is a few times its length at most. */
static void test_reads_little(void **state)
{
	struct lp_kv_batch *batch = NULL;
	struct world world;
	(void)state;
	set_up(&world);
	lp_test_ok(lp_kv_batch_new(1024, &batch));
	make_batch(batch, 7, 100);
	while (world.at + 1 < RING)
		put_frame(&world, lp_kv_batch_data(batch), 0);
	struct lp_bdev_stats before;
	struct lp_bdev_stats after;
	lp_bdev_sync_stats(world.bdev, &before);
	flip(&world, RING - 2, 8L * 110);
	assert_int_equal(look(&world).cnt, 1);
	lp_bdev_sync_stats(world.bdev, &after);
	assert_true(after.bytes[LP_BDEV_READ] - before.bytes[LP_BDEV_READ] <
		    UINT64_C(8) * RING * LP_BLOCK_BYTES);
	lp_kv_batch_free(batch);
	lp_bdev_close(world.bdev);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_nothing_to_do),
		cmocka_unit_test(test_bit_of_a_frame),
		cmocka_unit_test(test_bit_of_a_payload),
		cmocka_unit_test(test_last_frame_may_be_torn),
		cmocka_unit_test(test_records_that_are_wrong),
		cmocka_unit_test(test_reads_little),
	};
	return lp_test_main(tests, "store/salvage/mend_log");
}
