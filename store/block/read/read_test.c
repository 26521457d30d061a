/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: a read gives back exactly what is in the file, with a right crc for every piece, from
 * whatever source (W2, P4); it waits for what it must (claim, index, memory, durability: store I6)
 * and holds nothing afterwards; and what is damaged is never given back.
 * Method: files made by hand beside a copy of what they should read as; every source, every edge,
 * random ranges; then one cause of trouble per test. */
#include "store/block/block_rig_test.h"

#include "base/crc32c.h"
#include "store/block/core/read_claim.h"

#define FILE_NR 5u

/* When nothing is pending any more, only the store's zeros are in a buffer. */
static void assert_no_leak(struct lpi_rig *rig)
{
	struct lp_bufs_stats stats;
	for (int i = 0; i < 1000 && lp_pending_stats(rig->block->pending)->versions > 0; i++)
		lpi_rig_turn(rig);
	lpi_rig_settle(rig);
	lp_bufs_read_stats(rig->bufs, &stats);
	assert_int_equal(stats.used_bytes, LP_BUF_MEDIUM);
	assert_int_equal(rig->block->zeros->refs, 1);
	assert_int_equal(lp_pool_free_cnt(rig->block->ios), rig->ios);
	assert_int_equal(lp_pool_free_cnt(rig->block->reads), rig->slots);
}

/* Every kind of block beside every other, a hole at the end, and a size that is no multiple. */
static void make_mixture(struct lpi_rig *rig, struct lpi_rig_file *file)
{
	lpi_rig_file_init(rig, file, FILE_NR, 299 * LP_BLOCK_BYTES + 1234);
	lpi_rig_map(rig, file, (struct lp_extmap_range){0, 1}, LPI_RIG_WRITTEN, 1);
	lpi_rig_map(rig, file, (struct lp_extmap_range){2, 5}, LPI_RIG_WRITTEN, 1);
	lpi_rig_map(rig, file, (struct lp_extmap_range){7, 3}, LPI_RIG_UNWRITTEN, 1);
	lpi_rig_map(rig, file, (struct lp_extmap_range){10, 2}, LPI_RIG_DEFERRED, 1);
	lpi_rig_map(rig, file, (struct lp_extmap_range){12, 9}, LPI_RIG_SHARED, 1);
	lpi_rig_map(rig, file, (struct lp_extmap_range){21, 20}, LPI_RIG_WRITTEN, 1);
	lpi_rig_map(rig, file, (struct lp_extmap_range){41, 3}, LPI_RIG_UNWRITTEN, 1);
	lpi_rig_map(rig, file, (struct lp_extmap_range){60, 140}, LPI_RIG_WRITTEN, 1);
	lpi_rig_map(rig, file, (struct lp_extmap_range){220, 70}, LPI_RIG_WRITTEN, 1);
	lpi_rig_map(rig, file, (struct lp_extmap_range){299, 1}, LPI_RIG_WRITTEN, 1);
	/* Of an extent on the device, a block in the middle has newer content that is pending. */
	for (uint64_t block = 100; block < 110; block += 4) {
		uint32_t crc = lpi_rig_fill(file, block, 2);
		lpi_rig_reserve(rig);
		lp_extmap_update_crcs(&lpi_rig_find(rig, file->ino)->map,
				      (struct lp_extmap_range){block, 1}, &crc);
		lpi_rig_defer(rig, file, (struct lp_extmap_range){block, 1}, &crc);
		lpi_node_changed(&lpi_rig_find(rig, file->ino)->node);
	}
}

/* A store with that file, in the index. */
static void start(struct lpi_rig *rig, struct lpi_rig_file *file)
{
	lpi_rig_init(rig);
	make_mixture(rig, file);
	lpi_rig_settle(rig);
}

static void stop(struct lpi_rig *rig, struct lpi_rig_file *file)
{
	lpi_rig_close(rig, false);
	lpi_rig_file_fini(file);
	lpi_rig_fini(rig);
}

static void test_table(void **state)
{
	char why[200] = "";
	(void)state;
	if (lp_sm_table_check(&lpi_read_table, why, sizeof(why)) < 0)
		print_error("%s\n", why);
	assert_string_equal(why, "");
}

static void test_every_source(void **state)
{
	(void)state;
	struct lpi_rig rig = {.slots = 0};
	struct lpi_rig_file file;
	struct lp_prng prng;
	lpi_rig_init(&rig);
	make_mixture(&rig, &file);
	lp_prng_init(&prng, 3);
	lpi_rig_read(&rig, &file, 0, LP_STORE_READ_MAX);
	lpi_rig_read(&rig, &file, 1, LP_STORE_READ_MAX); /* 257 blocks */
	lpi_rig_read(&rig, &file, 40 * LP_BLOCK_BYTES + 4095, LP_STORE_READ_MAX);
	lpi_rig_read(&rig, &file, 60 * LP_BLOCK_BYTES, 128 * LP_BLOCK_BYTES);
	for (uint64_t block = 0; block < 300; block++)
		lpi_rig_read(&rig, &file, block * LP_BLOCK_BYTES, LP_BLOCK_BYTES);
	for (int i = 0; i < 300; i++) {
		uint64_t offset = lp_prng_below(&prng, file.size_bytes + 5000);
		uint64_t length = lp_prng_below(&prng, i % 3 == 0 ? LP_STORE_READ_MAX : 30000);
		if (i % 4 == 0)
			offset = lp_align_down(offset, LP_BLOCK_BYTES);
		lpi_rig_read(&rig, &file, offset, length);
	}
	/* The same when what was pending is in its place. */
	lpi_rig_reopen(&rig);
	assert_int_equal(lp_pending_stats(rig.block->pending)->versions, 0);
	lpi_rig_read(&rig, &file, 3, LP_STORE_READ_MAX);
	lpi_rig_read(&rig, &file, 100 * LP_BLOCK_BYTES, 40000);
	assert_true(rig.block->stats.index_waits > 0);
	assert_true(rig.block->read_times.states[0].cnt > 0);
	assert_no_leak(&rig);
	stop(&rig, &file);
}

static void test_shape_of_segments(void **state)
{
	(void)state;
	struct lpi_rig rig = {.slots = 0};
	struct lpi_rig_file file;
	lpi_rig_init(&rig);
	lpi_rig_file_init(&rig, &file, FILE_NR, 300 * LP_BLOCK_BYTES);
	lpi_rig_map(&rig, &file, (struct lp_extmap_range){0, 256}, LPI_RIG_WRITTEN, 1);
	const struct {
		uint64_t blocks;
		uint32_t segs;
		uint32_t used; /* of buffers, in bytes */
	} cases[] = {{1, 1, 4096},          {5, 2, 5 * 4096}, {8, 1, 32768},    {16, 1, 65536},
		     {17, 2, 65536 + 4096}, {128, 1, 524288}, {256, 1, 1048576}};
	for (size_t i = 0; i < LP_ARRAY_SIZE(cases); i++) {
		struct lp_bufs_stats before;
		struct lp_bufs_stats after;
		struct lpi_rig_op op =
			lpi_rig_read_op(file.ino, 0, cases[i].blocks * LP_BLOCK_BYTES);
		lpi_rig_settle(&rig);
		lp_bufs_read_stats(rig.bufs, &before);
		uint64_t reads = lp_bdev_stats(rig.block->data)->ops[LP_BDEV_READ];
		assert_int_equal(lpi_rig_do(&rig, &op), 0);
		lp_bufs_read_stats(rig.bufs, &after);
		assert_int_equal(op.op.read.seg_cnt, cases[i].segs);
		assert_int_equal(after.used_bytes - before.used_bytes, cases[i].used);
		assert_int_equal(lp_bdev_stats(rig.block->data)->ops[LP_BDEV_READ], reads + 1);
		/* The ios have gone back already. */
		assert_int_equal(lp_pool_free_cnt(rig.block->ios), rig.ios);
		lpi_read_end(rig.block, &op.op);
	}
	stop(&rig, &file);
}

/* How much of what is read at offset lies in the caller's buffers; it is what it should be. */
static uint64_t read_into(struct lpi_rig *rig, const struct lpi_rig_file *file, uint64_t offset,
			  uint64_t length, struct lp_bufs *into)
{
	struct lpi_rig_op op = lpi_rig_read_op(file->ino, offset, length);
	uint64_t bytes = 0;
	op.op.read.into = into;
	assert_int_equal(lpi_rig_do(rig, &op), 0);
	lpi_rig_judge(file, &op.op);
	for (uint32_t i = 0; i < op.op.read.seg_cnt; i++) {
		const struct lp_seg *seg = &op.op.read.segs[i];
		if (seg->buf->home != into)
			continue;
		assert_true(seg->buf->bytes >= LP_BUF_MEDIUM);
		bytes += seg->len;
	}
	lpi_read_end(rig->block, &op.op);
	return bytes;
}

static void test_into_the_callers_memory(void **state)
{
	(void)state;
	struct lpi_rig rig = {.slots = 0};
	struct lpi_rig_file file;
	struct lpi_rig_file mixed;
	struct lp_bufs *into = NULL;
	struct lp_buf *held[3] = {NULL};
	struct lp_bufs_stats stats;
	const uint64_t mib = LP_STORE_READ_MAX;
	lp_test_ok(lp_bufs_new(3 * mib, &into));
	start(&rig, &mixed);
	lpi_rig_file_init(&rig, &file, FILE_NR + 1, 320 * LP_BLOCK_BYTES);
	lpi_rig_map(&rig, &file, (struct lp_extmap_range){0, 200}, LPI_RIG_WRITTEN, 1);
	lpi_rig_map(&rig, &file, (struct lp_extmap_range){203, 117}, LPI_RIG_WRITTEN, 1);
	lpi_rig_map(&rig, &file, (struct lp_extmap_range){200, 3}, LPI_RIG_WRITTEN, 1);
	lpi_rig_settle(&rig);
	/* Of one piece, of several, off the grid. */
	assert_int_equal(read_into(&rig, &file, 0, 200 * LP_BLOCK_BYTES, into),
			 200 * LP_BLOCK_BYTES);
	assert_int_equal(read_into(&rig, &file, 0, mib, into), mib);
	assert_int_equal(read_into(&rig, &file, 5, mib, into), mib);
	assert_int_equal(read_into(&rig, &file, 310 * LP_BLOCK_BYTES - 3, mib, into),
			 10 * LP_BLOCK_BYTES + 3);
	/* Holes, what is pending, what is in many pieces: nothing. */
	assert_int_equal(read_into(&rig, &mixed, 0, mib, into), 0);
	/* As long as there is room. */
	for (size_t i = 0; i < LP_ARRAY_SIZE(held); i++)
		held[i] = lp_buf_new(into, LP_BUF_LARGE);
	assert_int_equal(read_into(&rig, &file, 0, mib, into), 0);
	lp_buf_put(held[0]);
	assert_true(read_into(&rig, &file, 0, mib, into) < mib);
	for (size_t i = 1; i < LP_ARRAY_SIZE(held); i++)
		lp_buf_put(held[i]);
	assert_int_equal(read_into(&rig, &file, 0, mib, into), mib);
	lp_bufs_read_stats(into, &stats);
	assert_int_equal(stats.used_bytes, 0);
	assert_no_leak(&rig);
	lpi_rig_file_fini(&mixed);
	stop(&rig, &file);
	lp_bufs_free(into);
}

/* Each block apart from the next: as many ios as there can be. */
static void test_fragments(void **state)
{
	(void)state;
	struct lpi_rig rig = {.ios = LPI_READ_IOS_MAX};
	struct lpi_rig_file file;
	lpi_rig_init(&rig);
	lpi_rig_file_init(&rig, &file, FILE_NR, 300 * LP_BLOCK_BYTES);
	for (uint64_t block = 0; block < 300; block += 2)
		lpi_rig_map(&rig, &file, (struct lp_extmap_range){block, 1}, LPI_RIG_WRITTEN, 1);
	for (uint64_t block = 1; block < 300; block += 2)
		lpi_rig_map(&rig, &file, (struct lp_extmap_range){block, 1}, LPI_RIG_WRITTEN, 1);
	lpi_rig_read(&rig, &file, 4095, LP_STORE_READ_MAX);
	/* The second has what it needs as soon as the first has read. */
	struct lpi_rig_op ops[2] = {lpi_rig_read_op(file.ino, 1, LP_STORE_READ_MAX),
				    lpi_rig_read_op(file.ino, 8192, LP_STORE_READ_MAX)};
	lpi_rig_settle(&rig);
	uint64_t before_ns = rig.clock.now_ns;
	lpi_rig_submit(&rig, &ops[0]);
	lpi_rig_submit(&rig, &ops[1]);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(lpi_rig_wait(&rig, &ops[i]), 0);
		lpi_rig_judge(&file, &ops[i].op);
	}
	assert_true(rig.clock.now_ns - before_ns < LP_NS_PER_MS / 2);
	lpi_read_end(rig.block, &ops[0].op);
	lpi_read_end(rig.block, &ops[1].op);
	assert_no_leak(&rig);
	stop(&rig, &file);
}

static void test_inline(void **state)
{
	(void)state;
	struct lpi_rig rig = {.slots = 0};
	const uint64_t sizes[] = {
		1, 100, 2048, 4096, 4097, 3 * LP_BLOCK_BYTES + 7, 260 * LP_BLOCK_BYTES};
	lpi_rig_init(&rig);
	for (uint64_t i = 0; i < LP_ARRAY_SIZE(sizes); i++) {
		struct lpi_rig_file file;
		uint32_t len = (uint32_t)LP_MIN(sizes[i], 1500 + i * 91);
		lpi_rig_file_init(&rig, &file, 10 + i, sizes[i]);
		struct lpi_inode *inode = lpi_rig_find(&rig, file.ino);
		(void)lpi_rig_fill(&file, 0, i);
		memset(file.bytes + len, 0, LP_BLOCK_BYTES - len);
		lp_test_ok(lpi_inode_make_room(inode, LPI_PART_CONTENT, len));
		lpi_inode_set_part(inode, LPI_PART_CONTENT, file.bytes, len);
		inode->rec.content_crc = lp_crc32c(0, file.bytes, len);
		lpi_node_changed(&inode->node);
		for (uint64_t offset = 0; offset < 5000; offset += 321) {
			lpi_rig_read(&rig, &file, offset, 1);
			lpi_rig_read(&rig, &file, offset, len);
			lpi_rig_read(&rig, &file, offset, LP_STORE_READ_MAX);
		}
		/* In memory it went bad: no piece of it gets a new crc. */
		lpi_rig_settle(&rig);
		lpi_inode_part_memory(inode, LPI_PART_CONTENT)[len - 1] ^= 1;
		assert_int_equal(lpi_rig_read_result(&rig, file.ino, 0, 1), -EBADMSG);
		lpi_inode_part_memory(inode, LPI_PART_CONTENT)[len - 1] ^= 1;
		lpi_rig_file_fini(&file);
	}
	assert_no_leak(&rig);
	lpi_rig_close(&rig, false);
	lpi_rig_fini(&rig);
}

static void test_what_is_no_file(void **state)
{
	(void)state;
	struct lpi_rig rig = {.slots = 0};
	struct lpi_rig_file file;
	lpi_rig_init(&rig);
	lpi_rig_file_init(&rig, &file, FILE_NR, 10);
	lpi_rig_inode(&rig, 6, LP_INODE_TYPE_DIR);
	lpi_rig_inode(&rig, 7, LP_INODE_TYPE_FIFO);
	lpi_rig_inode(&rig, 8, LP_INODE_TYPE_FILE)->rec.flags = LP_INODE_FLAG_REMOVED;
	for (int round = 0; round < 2; round++) {
		assert_int_equal(lpi_rig_read_result(&rig, (struct lp_ino){6}, 0, 1), -EISDIR);
		assert_int_equal(lpi_rig_read_result(&rig, (struct lp_ino){7}, 0, 1), -EINVAL);
		assert_int_equal(lpi_rig_read_result(&rig, (struct lp_ino){8}, 0, 1), -ENOENT);
		assert_int_equal(lpi_rig_read_result(&rig, (struct lp_ino){9}, 0, 1), -ENOENT);
		lpi_rig_read(&rig, &file, 0, 10);
		lpi_rig_read(&rig, &file, 0, 0);
		lpi_rig_read(&rig, &file, 10, 1);
		lpi_rig_read(&rig, &file, UINT64_MAX, LP_STORE_READ_MAX);
		lpi_rig_reopen(&rig);
	}
	assert_no_leak(&rig);
	stop(&rig, &file);
}

/* --- Damage ----------------------------------------------------------------------------------- */

static void overwrite(struct lpi_rig *rig, uint64_t block, uint8_t with)
{
	_Alignas(4096) static uint8_t bytes[4096];
	memset(bytes, with, sizeof(bytes));
	lp_test_ok(
		lp_bdev_write_sync(rig->bdev, bytes, sizeof(bytes), block * LP_BLOCK_BYTES, false));
}

static void test_bad_block(void **state)
{
	(void)state;
	struct lpi_rig rig = {.slots = 0};
	struct lpi_rig_file file;
	lpi_rig_init(&rig);
	make_mixture(&rig, &file);
	lpi_rig_read(&rig, &file, 0, LP_STORE_READ_MAX);
	overwrite(&rig, file.device[25], 0);
	uint64_t found = lp_corruption_count();
	/* Whole, and each part of it. */
	assert_int_equal(lpi_rig_read_result(&rig, file.ino, 20 * LP_BLOCK_BYTES, 40000), -EBADMSG);
	assert_int_equal(lp_corruption_count(), found + 1);
	assert_non_null(strstr(lp_corruption_find(0)->what, "inode 5, offset 102400, block "));
	assert_int_equal(lp_corruption_find(0)->offset, file.device[25] * LP_BLOCK_BYTES);
	assert_int_equal(lpi_rig_read_result(&rig, file.ino, 25 * LP_BLOCK_BYTES + 100, 1),
			 -EBADMSG);
	assert_int_equal(lpi_rig_read_result(&rig, file.ino, 0, 25 * LP_BLOCK_BYTES + 1), -EBADMSG);
	assert_int_equal(rig.block->rereads, 3);
	/* Its neighbours are well. */
	lpi_rig_read(&rig, &file, 0, 25 * LP_BLOCK_BYTES);
	lpi_rig_read(&rig, &file, 26 * LP_BLOCK_BYTES, 100000);
	assert_int_equal(rig.block->rereads, 3);
	assert_int_equal(rig.block->read_errors, 0);
	assert_no_leak(&rig);
	stop(&rig, &file);
}

static void test_bad_once(void **state)
{
	(void)state;
	struct lpi_rig rig = {.slots = 0};
	struct lpi_rig_file file;
	start(&rig, &file);
	/* Old content comes back once. */
	const struct lp_sim_rule stale = {.fault = LP_SIM_STALE,
					  .offset_bytes = file.device[25] * LP_BLOCK_BYTES,
					  .length_bytes = LP_BLOCK_BYTES,
					  .fire_cnt = 1};
	overwrite(&rig, file.device[25], 1);
	lp_sim_rule_add(lp_sim_of(rig.bdev), &stale);
	lp_test_ok(lp_bdev_write_sync(rig.bdev, lpi_rig_block_at(&file, 25), LP_BLOCK_BYTES,
				      file.device[25] * LP_BLOCK_BYTES, false));
	uint64_t found = lp_corruption_count();
	lpi_rig_read(&rig, &file, 1, 300000);
	assert_int_equal(rig.block->rereads, 1);
	assert_int_equal(lp_corruption_count(), found);
	/* The device refuses once; then always. */
	struct lp_sim_rule eio = {.fault = LP_SIM_EIO,
				  .opcode_mask = LP_SIM_OP(LP_BDEV_READ),
				  .offset_bytes = file.device[30] * LP_BLOCK_BYTES,
				  .length_bytes = LP_BLOCK_BYTES,
				  .fire_cnt = 1};
	lp_sim_rule_add(lp_sim_of(rig.bdev), &eio);
	lpi_rig_read(&rig, &file, 1, 300000);
	assert_int_equal(rig.block->rereads, 2);
	assert_int_equal(rig.block->read_errors, 0);
	eio.fire_cnt = 0;
	lp_sim_rule_add(lp_sim_of(rig.bdev), &eio);
	assert_int_equal(lpi_rig_read_result(&rig, file.ino, 1, 300000), -EIO);
	assert_int_equal(rig.block->read_errors, 1);
	lpi_rig_read(&rig, &file, 31 * LP_BLOCK_BYTES, 100000);
	assert_no_leak(&rig);
	stop(&rig, &file);
}

static void test_pending_that_is_not_the_maps(void **state)
{
	(void)state;
	struct lpi_rig rig = {.slots = 0};
	struct lpi_rig_file file;
	struct lp_seg seg;
	uint32_t crc = 0;
	start(&rig, &file);
	/* A piece of what went bad in memory gets no new crc. */
	assert_true(lp_pending_find(rig.block->pending, file.device[10], &seg, &crc));
	seg.buf->data[seg.offset + 4000] ^= 1;
	assert_int_equal(lpi_rig_read_result(&rig, file.ino, 10 * LP_BLOCK_BYTES, 10), -EBADMSG);
	seg.buf->data[seg.offset + 4000] ^= 1;
	lpi_rig_read(&rig, &file, 10 * LP_BLOCK_BYTES, 10);
	/* The map says otherwise. */
	lpi_rig_reserve(&rig);
	crc ^= 1;
	lp_extmap_update_crcs(&lpi_rig_find(&rig, file.ino)->map, (struct lp_extmap_range){10, 1},
			      &crc);
	lpi_node_changed(&lpi_rig_find(&rig, file.ino)->node);
	assert_int_equal(lpi_rig_read_result(&rig, file.ino, 9 * LP_BLOCK_BYTES, 10000), -EUCLEAN);
	assert_int_equal(lpi_rig_read_result(&rig, file.ino, 2 * LP_BLOCK_BYTES, 50000), -EUCLEAN);
	lpi_rig_read(&rig, &file, 11 * LP_BLOCK_BYTES, 100000);
	assert_no_leak(&rig);
	lpi_rig_close(&rig, true);
	lpi_rig_file_fini(&file);
	lpi_rig_fini(&rig);
}

/* --- Waiting ---------------------------------------------------------------------------------- */

static void turn_some(struct lpi_rig *rig, int turns)
{
	for (int i = 0; i < turns; i++)
		lpi_rig_turn(rig);
}

static void test_no_buffers(void **state)
{
	(void)state;
	struct lpi_rig rig = {.bufs_bytes = UINT64_C(4) << 20};
	struct lpi_rig_file file;
	struct lp_buf *held[2000] = {NULL};
	uint32_t held_cnt = 0;
	lpi_rig_init(&rig);
	lpi_rig_file_init(&rig, &file, FILE_NR, 300 * LP_BLOCK_BYTES);
	lpi_rig_map(&rig, &file, (struct lp_extmap_range){0, 140}, LPI_RIG_WRITTEN, 1);
	lpi_rig_map(&rig, &file, (struct lp_extmap_range){140, 140}, LPI_RIG_WRITTEN, 1);
	lpi_rig_settle(&rig);
	while ((held[held_cnt] = lp_buf_new(rig.bufs, LP_BUF_SMALL)) != NULL)
		held_cnt++;
	assert_true(held_cnt > 700); /* a quarter is cut into larger ones */
	struct lpi_rig_op small = lpi_rig_read_op(file.ino, 5000, 100);
	struct lpi_rig_op large = lpi_rig_read_op(file.ino, 0, LP_STORE_READ_MAX);
	struct lpi_rig_op zeros = lpi_rig_read_op(file.ino, 290 * LP_BLOCK_BYTES, 10000);
	lpi_rig_submit(&rig, &large);
	lpi_rig_submit(&rig, &small);
	lpi_rig_submit(&rig, &zeros);
	turn_some(&rig, 50);
	/* Nothing is held while they wait, and who needs nothing does not wait. */
	assert_true(large.order == 0 && small.order == 0 && zeros.order != 0);
	assert_int_equal(lp_claims_cnt(rig.block->claims), 0);
	assert_int_equal(lp_pool_free_cnt(rig.block->ios), rig.ios);
	lp_buf_put(held[--held_cnt]);
	assert_int_equal(lpi_rig_wait(&rig, &small), 0);
	lpi_rig_judge(&file, &small.op);
	/* The large one takes whatever sizes there are. */
	for (uint32_t i = 1; i < held_cnt; i += 2) {
		lp_buf_put(held[i]);
		held[i] = NULL;
	}
	assert_int_equal(lpi_rig_wait(&rig, &large), 0);
	lpi_rig_judge(&file, &large.op);
	assert_true(large.op.read.seg_cnt > 1);
	lpi_read_end(rig.block, &large.op);
	lpi_read_end(rig.block, &small.op);
	lpi_read_end(rig.block, &zeros.op);
	while (held_cnt > 0)
		lp_buf_put(held[--held_cnt]);
	assert_no_leak(&rig);
	stop(&rig, &file);
}

static void test_no_ios(void **state)
{
	(void)state;
	struct lpi_rig rig = {.ios = 300};
	struct lpi_rig_file file;
	void *held[300];
	start(&rig, &file);
	for (size_t i = 0; i < 299; i++)
		held[i] = lp_pool_get(rig.block->ios);
	struct lpi_rig_op op = lpi_rig_read_op(file.ino, 0, LP_STORE_READ_MAX);
	lpi_rig_submit(&rig, &op);
	turn_some(&rig, 50);
	assert_int_equal(op.order, 0);
	assert_int_equal(lp_pool_free_cnt(rig.block->ios), 1);
	struct lpi_rig_op one =
		lpi_rig_read_op(file.ino, 0, LP_BLOCK_BYTES); /* for which one is enough */
	assert_int_equal(lpi_rig_do(&rig, &one), 0);
	lpi_read_end(rig.block, &one.op);
	assert_int_equal(op.order, 0);
	for (size_t i = 0; i < 299; i++)
		lp_pool_put(rig.block->ios, held[i]);
	assert_int_equal(lpi_rig_wait(&rig, &op), 0);
	lpi_rig_judge(&file, &op.op);
	lpi_read_end(rig.block, &op.op);
	assert_no_leak(&rig);
	stop(&rig, &file);
}

static void test_slots(void **state)
{
	(void)state;
	struct lpi_rig rig = {.slots = 2};
	struct lpi_rig_file file;
	struct lpi_rig_op ops[12];
	start(&rig, &file);
	for (uint64_t i = 0; i < LP_ARRAY_SIZE(ops); i++) {
		/* Some fail, and hold no slot then. */
		ops[i] = lpi_rig_read_op(i % 3 == 2 ? (struct lp_ino){99} : file.ino, i * 5000,
					 5000);
		lpi_rig_submit(&rig, &ops[i]);
	}
	turn_some(&rig, 50);
	assert_int_equal(rig.block->running, 2);
	for (uint64_t i = 0; i < LP_ARRAY_SIZE(ops); i++) {
		assert_int_equal(lpi_rig_wait(&rig, &ops[i]), i % 3 == 2 ? -ENOENT : 0);
		if (ops[i].op.result < 0)
			continue;
		lpi_rig_judge(&file, &ops[i].op);
		lpi_read_end(rig.block, &ops[i].op);
	}
	assert_int_equal(rig.block->running, 0);
	assert_no_leak(&rig);
	stop(&rig, &file);
}

/* Changes enter the index all the while: what was fetched is too old each time. */
static void read_while_index_moves(struct lpi_rig *rig, const struct lpi_rig_file *file,
				   uint64_t cache_bytes)
{
	struct lpi_rig_op op = lpi_rig_read_op(file->ino, 1, LP_STORE_READ_MAX);
	struct lp_key key;
	lp_key_of_store(&key, "test");
	lpi_rig_reopen(rig);
	lp_kv_set_cache_bytes(rig->block->kv, cache_bytes);
	lpi_rig_submit(rig, &op);
	for (uint32_t n = 0; op.order == 0; n++) {
		lpi_rig_put(rig, &key, &n, sizeof(n));
		lpi_rig_turn(rig);
		assert_true(n < 300);
	}
	assert_int_equal(op.op.result, 0);
	lpi_rig_judge(file, &op.op);
	lpi_read_end(rig->block, &op.op);
}

/* Many reads of a file of which nothing is in memory, at the same time. */
static void test_cold(void **state)
{
	(void)state;
	struct lpi_rig rig = {.slots = 16};
	struct lpi_rig_file file;
	struct lpi_rig_op ops[16];
	lpi_rig_init(&rig);
	make_mixture(&rig, &file);
	for (int round = 0; round < 3; round++) {
		lpi_rig_reopen(&rig);
		for (uint64_t i = 0; i < LP_ARRAY_SIZE(ops); i++) {
			ops[i] = lpi_rig_read_op(file.ino, i * 75000, i % 2 == 0 ? 4096 : 300000);
			lpi_rig_submit(&rig, &ops[i]);
		}
		/* All of them fetch at once: none holds the claim meanwhile. */
		turn_some(&rig, 1);
		assert_int_equal(lp_claims_cnt(rig.block->claims), 0);
		assert_true(rig.block->stats.index_waits >= 16);
		for (uint64_t i = 0; i < LP_ARRAY_SIZE(ops); i++) {
			assert_int_equal(lpi_rig_wait(&rig, &ops[i]), 0);
			lpi_rig_judge(&file, &ops[i].op);
			lpi_read_end(rig.block, &ops[i].op);
		}
	}
	read_while_index_moves(&rig, &file, 1 << 20);
	/* And the cache keeps nothing of what was fetched: in the end the claim is kept. */
	read_while_index_moves(&rig, &file, 0);
	/* Leaves that are loaded are accounted for. */
	lpi_rig_reopen(&rig);
	lpi_rig_read(&rig, &file, 0, 1);
	uint64_t bytes = rig.block->nodes.bytes;
	lpi_rig_read(&rig, &file, 64 * LP_BLOCK_BYTES, 1);
	assert_true(rig.block->nodes.bytes > bytes);
	/* What leaves memory comes back. */
	rig.block->nodes.limit_bytes = 1;
	for (uint64_t i = 0; i < 20; i++) {
		lpi_rig_settle(&rig);
		lpi_rig_read(&rig, &file, i * 50000, 100000);
	}
	assert_true(rig.block->nodes.evictions > 3);
	assert_no_leak(&rig);
	stop(&rig, &file);
}

static void hold_ready(struct lpi_hold *hold)
{
	hold->ready = NULL;
}

/* Who had to fetch again and again keeps its claim in the end. */
static void test_many_fetches(void **state)
{
	(void)state;
	struct lpi_rig rig = {.slots = 0};
	struct lpi_hold hold;
	lpi_rig_init(&rig);
	lpi_rig_reopen(&rig);
	lp_kv_set_cache_bytes(rig.block->kv, 0);
	lpi_hold_init(&hold, rig.block, hold_ready);
	for (uint64_t i = 0; i < 10; i++) {
		struct lpi_point point;
		struct lp_key key;
		assert_true(lpi_hold_claim(&hold, (struct lp_ino){5}));
		/* Records that fill the index: each in another place of it. */
		lpi_rig_filler_key(&key, i / 2 * 40 + i % 2);
		lp_test_err(-EAGAIN,
			    lpi_point_get(&hold.warmer, &key, false, hold.is_kept, &point));
		hold.ready = hold_ready;
		lpi_hold_fetch(&hold, false);
		assert_int_equal(lpi_hold_has_claim(&hold), hold.fetches > 7);
		assert_int_equal(hold.is_kept, hold.fetches > 7);
		while (hold.ready != NULL)
			lpi_rig_turn(&rig);
	}
	assert_int_equal(hold.fetches, 10);
	lpi_hold_release(&hold);
	assert_false(hold.is_kept);
	lpi_rig_close(&rig, false);
	lpi_rig_fini(&rig);
}

static void wait_for_hold(struct lpi_rig *rig, struct lpi_hold *hold)
{
	hold->ready = hold_ready;
	lpi_hold_fetch(hold, true);
	while (hold->ready != NULL)
		lpi_rig_turn(rig);
}

static struct lpi_inode *hold_inode(struct lpi_rig *rig, struct lpi_hold *hold, struct lp_ino ino)
{
	struct lpi_inode *inode = NULL;
	assert_true(lpi_hold_claim(hold, ino));
	while (lpi_inode_get(&hold->warmer, ino, hold->is_kept, &inode) == -EAGAIN)
		wait_for_hold(rig, hold);
	assert_non_null(inode);
	return inode;
}

/* A claim keeps a leaf as it is while it is fetched, but for a trim: what the index had then is
 * asked for again. */
static void test_leaf_beside_trim(void **state)
{
	(void)state;
	for (int has_trim = 0; has_trim < 2; has_trim++) {
		struct lpi_rig rig = {.slots = 0};
		struct lpi_rig_file file;
		struct lpi_hold hold;
		struct lp_extmap_segment segment;
		struct lp_key key;
		start(&rig, &file);
		lpi_rig_reopen(&rig);
		lp_kv_set_cache_bytes(rig.block->kv, 0);
		lpi_hold_init(&hold, rig.block, hold_ready);
		struct lpi_inode *inode = hold_inode(&rig, &hold, file.ino);
		const struct lp_extmap_range range = {64, 1};
		lp_test_err(-EAGAIN, lp_extmap_lookup(&inode->map, range, &segment, 1, NULL));
		inode->trim = has_trim != 0 ? (struct lpi_trim *)&hold : NULL; /* only looked at */
		lp_test_err(-EAGAIN, lpi_hold_leaves(&hold, inode));
		wait_for_hold(&rig, &hold);
		/* As the trim would, which ends. */
		lpi_rig_reserve(&rig);
		lp_key_of_map(&key, file.ino, 64);
		lp_commit_delete(rig.block->commit, (struct lp_kv_bytes){key.bytes, key.len});
		lpi_rig_settle(&rig);
		inode->trim = NULL;
		assert_int_equal(lpi_hold_leaves(&hold, inode), has_trim != 0 ? -EUCLEAN : 0);
		lpi_hold_release(&hold);
		stop(&rig, &file);
	}
}

/* A leaf that the root names and the index has not. */
static void test_lost_leaf(void **state)
{
	(void)state;
	struct lpi_rig rig = {.slots = 0};
	struct lpi_rig_file file;
	struct lp_key key;
	start(&rig, &file);
	lpi_rig_reopen(&rig); /* nothing is owed, so nobody puts it back */
	lpi_rig_reserve(&rig);
	lp_key_of_map(&key, file.ino, 64);
	lp_commit_delete(rig.block->commit, (struct lp_kv_bytes){key.bytes, key.len});
	lpi_rig_reopen(&rig);
	assert_int_equal(lpi_rig_read_result(&rig, file.ino, 64 * LP_BLOCK_BYTES, 10), -EUCLEAN);
	lpi_rig_read(&rig, &file, 0, 64 * LP_BLOCK_BYTES);
	assert_no_leak(&rig);
	stop(&rig, &file);
}

/* Store I6: what was seen is durable when the reply comes. */
static void test_waits_until_durable(void **state)
{
	(void)state;
	struct lpi_rig rig = {.slots = 0};
	struct lpi_rig_file file;
	start(&rig, &file);
	/* Flushes, and the log's writes, take their time. */
	const struct lp_sim_rule slow = {.fault = LP_SIM_SLOW,
					 .opcode_mask = LP_SIM_OP(LP_BDEV_WRITE_THROUGH),
					 .arg = 50 * LP_NS_PER_MS};
	lp_sim_rule_add(lp_sim_of(rig.bdev), &slow);
	for (int round = 0; round < 4; round++) {
		uint64_t offset = round % 2 == 0 ? 10 * LP_BLOCK_BYTES : 22 * LP_BLOCK_BYTES;
		struct lpi_inode *inode = lpi_rig_find(&rig, file.ino);
		lpi_rig_reserve(&rig);
		inode->rec.mtime_ns++;
		lpi_node_changed(&inode->node);
		uint64_t group = inode->node.group;
		/* From memory, from the device; also what says that there is nothing. */
		struct lpi_rig_op op = lpi_rig_read_op(file.ino, offset, 4096);
		struct lpi_rig_op beyond = lpi_rig_read_op(file.ino, file.size_bytes, 4096);
		lpi_rig_submit(&rig, &op);
		lpi_rig_submit(&rig, &beyond);
		uint64_t before_ns = rig.clock.now_ns;
		assert_int_equal(lpi_rig_wait(&rig, &op), 0);
		assert_int_equal(lpi_rig_wait(&rig, &beyond), 0);
		assert_true(lp_commit_group_is_durable(rig.block->commit, group));
		assert_true(rig.clock.now_ns - before_ns >= 50 * LP_NS_PER_MS);
		lpi_rig_judge(&file, &op.op);
		lpi_read_end(rig.block, &op.op);
		lpi_read_end(rig.block, &beyond.op);
		/* Nothing to wait for now. */
		before_ns = rig.clock.now_ns;
		lpi_rig_read(&rig, &file, offset, 4096);
		assert_true(rig.clock.now_ns - before_ns < LP_NS_PER_MS);
	}
	lp_sim_rules_clear(lp_sim_of(rig.bdev));
	stop(&rig, &file);
}

/* The log fails: what is not durable is never given out, and then nothing is. */
static void test_failed_commit(void **state)
{
	(void)state;
	struct lpi_rig rig = {.slots = 0};
	struct lpi_rig_file file;
	start(&rig, &file);
	const struct lp_sim_rule eio = {.fault = LP_SIM_EIO,
					.opcode_mask = LP_SIM_OP(LP_BDEV_WRITE_THROUGH)};
	lp_sim_rule_add(lp_sim_of(rig.bdev), &eio);
	struct lpi_inode *inode = lpi_rig_find(&rig, file.ino);
	lpi_rig_reserve(&rig);
	lpi_node_changed(&inode->node);
	struct lpi_rig_op pending = lpi_rig_read_op(file.ino, 10 * LP_BLOCK_BYTES, 8192);
	struct lpi_rig_op device = lpi_rig_read_op(file.ino, 0, LP_STORE_READ_MAX);
	lpi_rig_submit(&rig, &pending);
	lpi_rig_submit(&rig, &device);
	/* They wait until the store was opened again, for reading, and see what is durable. */
	assert_int_equal(lpi_rig_wait(&rig, &pending), 0);
	assert_int_equal(lpi_rig_wait(&rig, &device), 0);
	lpi_rig_judge(&file, &pending.op);
	lpi_rig_judge(&file, &device.op);
	lpi_read_end(rig.block, &pending.op);
	lpi_read_end(rig.block, &device.op);
	assert_int_equal(lp_store_error(&rig.block->base), -EIO);
	assert_int_equal(rig.block->running, 0);
	lpi_rig_close(&rig, true);
	lpi_rig_file_fini(&file);
	lpi_rig_fini(&rig);
}

static void granted(struct lp_claim_set *set)
{
	(void)set;
}

/* What was submitted before is waited for and seen; so is not what comes after. */
static void test_claim(void **state)
{
	(void)state;
	struct lpi_rig rig = {.slots = 0};
	struct lpi_rig_file file;
	struct lp_claim_set before = {.granted = granted};
	struct lp_claim_set after = {.granted = granted};
	const struct lp_sim_rule slow = {.fault = LP_SIM_SLOW,
					 .opcode_mask = LP_SIM_OP(LP_BDEV_READ),
					 .arg = 50 * LP_NS_PER_MS};
	lpi_rig_init(&rig);
	lp_sim_rule_add(lp_sim_of(rig.bdev), &slow);
	lpi_rig_file_init(&rig, &file, FILE_NR, 8192);
	assert_true(lp_claim_set_add(&before, lpi_claim_of_ino(file.ino)));
	assert_true(lp_claim_set_add(&after, lpi_claim_of_ino(file.ino)));
	assert_true(lp_claims_acquire(rig.block->claims, &before));
	struct lpi_rig_op op = lpi_rig_read_op(file.ino, 0, 8192);
	lpi_rig_submit(&rig, &op);
	assert_false(lp_claims_acquire(rig.block->claims, &after));
	turn_some(&rig, 20);
	assert_int_equal(op.order, 0);
	lpi_rig_map(&rig, &file, (struct lp_extmap_range){0, 2}, LPI_RIG_WRITTEN, 1);
	lp_claims_release(rig.block->claims, &before);
	for (int i = 0; i < 1000 && !lp_claim_set_is_granted(&after); i++)
		lpi_rig_turn(&rig);
	assert_true(lp_claim_set_is_granted(&after));
	/* The read has its plan: what comes now it does not see. Its blocks are freed, and even
	 * durably so they are nobody's while it reads them (rule S3). */
	struct lpi_rig_file copy = file;
	copy.bytes = malloc(LPI_RIG_BLOCKS * LP_BLOCK_BYTES);
	assert_non_null(copy.bytes);
	memcpy(copy.bytes, file.bytes, LPI_RIG_BLOCKS * LP_BLOCK_BYTES);
	lpi_rig_map(&rig, &file, (struct lp_extmap_range){0, 2}, LPI_RIG_WRITTEN, 2);
	lp_claims_release(rig.block->claims, &after);
	uint64_t group = lpi_rig_find(&rig, file.ino)->node.group;
	while (!lp_commit_group_is_durable(rig.block->commit, group))
		lpi_rig_turn(&rig);
	assert_int_equal(op.order, 0);
	assert_int_equal(lp_space_waiting_blocks(rig.block->space), 2);
	assert_int_equal(lpi_rig_wait(&rig, &op), 0);
	assert_int_equal(lp_space_waiting_blocks(rig.block->space), 0);
	lpi_rig_judge(&copy, &op.op);
	lpi_read_end(rig.block, &op.op);
	lpi_rig_read(&rig, &file, 0, 8192);
	lpi_rig_close(&rig, false);
	lpi_rig_file_fini(&copy);
	lpi_rig_file_fini(&file);
	lpi_rig_fini(&rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_table),
		cmocka_unit_test(test_every_source),
		cmocka_unit_test(test_shape_of_segments),
		cmocka_unit_test(test_into_the_callers_memory),
		cmocka_unit_test(test_fragments),
		cmocka_unit_test(test_inline),
		cmocka_unit_test(test_what_is_no_file),
		cmocka_unit_test(test_bad_block),
		cmocka_unit_test(test_bad_once),
		cmocka_unit_test(test_pending_that_is_not_the_maps),
		cmocka_unit_test(test_no_buffers),
		cmocka_unit_test(test_no_ios),
		cmocka_unit_test(test_slots),
		cmocka_unit_test(test_cold),
		cmocka_unit_test(test_many_fetches),
		cmocka_unit_test(test_leaf_beside_trim),
		cmocka_unit_test(test_lost_leaf),
		cmocka_unit_test(test_waits_until_durable),
		cmocka_unit_test(test_failed_commit),
		cmocka_unit_test(test_claim),
	};
	return lp_test_main(tests, "store/block/read/read");
}
