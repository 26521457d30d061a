/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: with a cache of data and read-ahead a read gives back exactly what it would without them
 * (P4), also where the crc could not tell old content from new; who reads at random pays nothing,
 * who reads from front to back reads each block once and before it is wanted; the budget holds.
 * Method: files made by hand beside a copy of what they should read as; contents made so that they
 * have the crc of the one before; the device's reads are counted. */
#include "store/block/block_rig_test.h"

#define FILE_NR     5u
#define CACHE_BYTES (UINT64_C(8) << 20)
#define SLOW_NS     (5 * LP_NS_PER_MS)

static struct lpi_cached_stats stats_of(const struct lpi_rig *rig)
{
	struct lpi_cached_stats stats;
	lpi_cached_read_stats(rig->block->cached, &stats);
	return stats;
}

static uint64_t device_reads(const struct lpi_rig *rig)
{
	return lp_bdev_stats(rig->block->data)->ops[LP_BDEV_READ];
}

static uint64_t device_blocks_read(const struct lpi_rig *rig)
{
	return lp_bdev_stats(rig->block->data)->bytes[LP_BDEV_READ] / LP_BLOCK_BYTES;
}

static void read_block(struct lpi_rig *rig, const struct lpi_rig_file *file, uint64_t block)
{
	lpi_rig_read(rig, file, block * LP_BLOCK_BYTES, LP_BLOCK_BYTES);
}

static void drain(struct lpi_rig *rig)
{
	for (int i = 0; i < 100000 && lp_pending_stats(rig->block->pending)->versions > 0; i++)
		lpi_rig_turn(rig);
	assert_int_equal(lp_pending_stats(rig->block->pending)->versions, 0);
	lpi_rig_settle(rig);
}

static void finish(struct lpi_rig *rig, struct lpi_rig_file *file)
{
	struct lp_bufs_stats bufs;
	drain(rig);
	while (!lpi_cached_is_idle(rig->block))
		lpi_rig_turn(rig);
	assert_int_equal(lp_pool_free_cnt(rig->block->ios), rig->ios);
	assert_int_equal(lp_pool_free_cnt(rig->block->reads), rig->slots);
	lp_bufs_read_stats(rig->bufs, &bufs);
	assert_int_equal(bufs.used_bytes, LP_BUF_MEDIUM); /* the store's zeros */
	/* Nobody has any: all are the cache's. */
	assert_int_equal(stats_of(rig).bytes, stats_of(rig).cache.bytes);
	lpi_rig_close(rig, false);
	lpi_rig_file_fini(file);
	lpi_rig_fini(rig);
}

static void make_file(struct lpi_rig *rig, struct lpi_rig_file *file)
{
	lpi_rig_init(rig);
	lpi_rig_file_init(rig, file, FILE_NR, LPI_RIG_BLOCKS * LP_BLOCK_BYTES);
	lpi_rig_map(rig, file, (struct lp_extmap_range){0, 200}, LPI_RIG_WRITTEN, 1);
	lpi_rig_map(rig, file, (struct lp_extmap_range){200, 120}, LPI_RIG_WRITTEN, 1);
	lpi_rig_settle(rig);
}

/* --- Two contents with one crc ---------------------------------------------------------------- */

/* Changes a block's last four bytes so that it has this crc, which is linear in its bits. */
static void forge(uint8_t *bytes, uint32_t want)
{
	uint32_t rows[32];
	uint32_t bits[32];
	memset(bytes + LP_BLOCK_BYTES - 4, 0, 4);
	uint32_t base = lp_crc32c(0, bytes, LP_BLOCK_BYTES);
	uint32_t left = base ^ want;
	uint32_t flips = 0;
	for (uint32_t i = 0; i < 32; i++) {
		bytes[LP_BLOCK_BYTES - 4 + i / 8] ^= (uint8_t)(1u << i % 8);
		rows[i] = lp_crc32c(0, bytes, LP_BLOCK_BYTES) ^ base;
		bits[i] = 1u << i;
		bytes[LP_BLOCK_BYTES - 4 + i / 8] ^= (uint8_t)(1u << i % 8);
	}
	for (uint32_t i = 0; i < 32; i++) {
		/* One row has bit i, the others do not. */
		uint32_t pivot = i;
		while (pivot < 32 && (rows[pivot] >> i & 1) == 0)
			pivot++;
		assert_true(pivot < 32);
		uint32_t row = rows[pivot];
		uint32_t bit = bits[pivot];
		rows[pivot] = rows[i];
		bits[pivot] = bits[i];
		rows[i] = row;
		bits[i] = bit;
		for (uint32_t k = i + 1; k < 32; k++) {
			bits[k] ^= rows[k] >> i & 1 ? bit : 0;
			rows[k] ^= rows[k] >> i & 1 ? row : 0;
		}
		flips ^= left >> i & 1 ? bit : 0;
		left ^= left >> i & 1 ? row : 0;
	}
	for (uint32_t i = 0; i < 32; i++)
		bytes[LP_BLOCK_BYTES - 4 + i / 8] ^= (uint8_t)((flips >> i & 1) << i % 8);
	assert_int_equal(lp_crc32c(0, bytes, LP_BLOCK_BYTES), want);
}

/* Other bytes for a block of the file, with the crc that it has. */
static uint32_t forge_block(struct lpi_rig_file *file, uint64_t block, uint64_t seed)
{
	uint32_t crc = lp_crc32c(0, lpi_rig_block_at(file, block), LP_BLOCK_BYTES);
	(void)lpi_rig_fill(file, block, seed);
	forge(lpi_rig_block_at(file, block), crc);
	return crc;
}

static void overwrite(struct lpi_rig *rig, struct lpi_rig_file *file, uint64_t block, uint32_t crc)
{
	const struct lp_extmap_range range = {block, 1};
	lpi_rig_reserve(rig);
	lp_extmap_update_crcs(&lpi_rig_find(rig, file->ino)->map, range, &crc);
	lpi_rig_defer(rig, file, range, &crc);
	lpi_node_changed(&lpi_rig_find(rig, file->ino)->node);
}

/* A block that is in the cache is rewritten in its place; the crc stays. */
static void test_rewritten_with_the_same_crc(void **state)
{
	struct lpi_rig rig = {.cache_bytes = CACHE_BYTES};
	struct lpi_rig_file file;
	(void)state;
	make_file(&rig, &file);
	read_block(&rig, &file, 7);
	read_block(&rig, &file, 7);
	assert_int_equal(stats_of(&rig).cache.hits, 1);
	overwrite(&rig, &file, 7, forge_block(&file, 7, 2));
	read_block(&rig, &file, 7);
	drain(&rig);
	/* It is in use: it has its new content without being read. */
	uint64_t reads = device_reads(&rig);
	read_block(&rig, &file, 7);
	assert_int_equal(device_reads(&rig), reads);
	finish(&rig, &file);
}

static void read_slowly(struct lpi_rig *rig)
{
	const struct lp_sim_rule slow = {
		.fault = LP_SIM_SLOW, .opcode_mask = LP_SIM_OP(LP_BDEV_READ), .arg = SLOW_NS};
	lp_sim_rule_add(lp_sim_of(rig->bdev), &slow);
}

/* The same while it is being read, by a reader or ahead of one. */
static void test_rewritten_on_its_way(void **state)
{
	(void)state;
	for (int is_ahead = 0; is_ahead < 2; is_ahead++) {
		struct lpi_rig rig = {.cache_bytes = CACHE_BYTES};
		struct lpi_rig_file file;
		make_file(&rig, &file);
		struct lpi_rig_file before = file;
		before.bytes = malloc(LPI_RIG_BLOCKS * LP_BLOCK_BYTES);
		assert_non_null(before.bytes);
		memcpy(before.bytes, file.bytes, LPI_RIG_BLOCKS * LP_BLOCK_BYTES);
		read_slowly(&rig);
		for (uint64_t block = 0; block < 2 && is_ahead; block++)
			read_block(&rig, &file, block);
		struct lpi_rig_op op =
			lpi_rig_read_op(file.ino, 2 * LP_BLOCK_BYTES, LP_BLOCK_BYTES);
		lpi_rig_submit(&rig, &op);
		assert_int_equal(stats_of(&rig).ahead_reads, is_ahead);
		uint64_t block = is_ahead ? 3 : 2;
		overwrite(&rig, &file, block, forge_block(&file, block, 2));
		assert_int_equal(lpi_rig_wait(&rig, &op), 0);
		lpi_rig_judge(&before, &op.op);
		lpi_read_end(rig.block, &op.op);
		drain(&rig);
		assert_false(lpi_cached_has(rig.block->cached, file.device[block]));
		assert_int_equal(lpi_cached_has(rig.block->cached, file.device[4]), is_ahead);
		assert_int_equal(stats_of(&rig).cache.late, 1);
		assert_int_equal(stats_of(&rig).ahead_lost, is_ahead);
		read_block(&rig, &file, block);
		read_block(&rig, &file, block);
		free(before.bytes);
		finish(&rig, &file);
	}
}

/* The block's next owner: takes until it is this one. */
static void take_again(struct lpi_rig *rig, struct lpi_rig_file *file, uint64_t block,
		       uint64_t device_block)
{
	static struct lp_extent others[20000];
	uint32_t cnt = 0;
	const struct lp_alloc_options options = {.hint = LP_ALLOC_NO_HINT, .extents_max = 1};
	struct lp_extent extent = {0};
	uint64_t got = 0;
	for (; cnt < LP_ARRAY_SIZE(others) && extent.block != device_block; cnt++) {
		assert_int_equal(lp_space_take(rig->block->space, 1, &options, &extent, &got), 1);
		others[cnt] = extent;
	}
	assert_int_equal(extent.block, device_block);
	for (uint32_t i = 0; i + 1 < cnt; i++)
		lp_space_untake(rig->block->space, others[i]);
	uint32_t crc = lp_crc32c(0, lpi_rig_block_at(file, block), LP_BLOCK_BYTES);
	const struct lp_extmap_range range = {block, 1};
	const struct lp_extmap_new fresh = {.extents = &extent, .extents_cnt = 1, .crcs = &crc};
	struct lp_extmap_release items[4];
	struct lp_extmap_released released = {.items = items, .max = 4};
	struct lpi_inode *inode = lpi_rig_find(rig, file->ino);
	lpi_rig_reserve(rig);
	lp_shard_taken(rig->block->shard, extent);
	lp_test_ok(lp_bdev_write_sync(rig->bdev, lpi_rig_block_at(file, block), LP_BLOCK_BYTES,
				      device_block * LP_BLOCK_BYTES, false));
	lp_test_ok(lp_extmap_reserve(&inode->map, range, 1));
	lp_extmap_replace(&inode->map, range, &fresh, &released);
	for (size_t i = 0; i < released.cnt; i++)
		lpi_block_freed(rig->block, items[i].extent);
	lpi_node_changed(&inode->node);
	file->device[block] = device_block;
}

/* A block that is in the cache, or on its way, is freed and gets a new owner, whose content has the
 * crc of the old one's. */
static void test_freed_and_taken_with_the_same_crc(void **state)
{
	(void)state;
	for (int is_on_its_way = 0; is_on_its_way < 2; is_on_its_way++) {
		struct lpi_rig rig = {.cache_bytes = CACHE_BYTES};
		struct lpi_rig_file file;
		make_file(&rig, &file);
		uint64_t device = file.device[9];
		uint32_t crc = lp_crc32c(0, lpi_rig_block_at(&file, 9), LP_BLOCK_BYTES);
		struct lpi_rig_op op =
			lpi_rig_read_op(file.ino, 9 * LP_BLOCK_BYTES, LP_BLOCK_BYTES);
		if (is_on_its_way)
			read_slowly(&rig);
		lpi_rig_submit(&rig, &op);
		if (!is_on_its_way)
			assert_int_equal(lpi_rig_wait(&rig, &op), 0);
		lpi_rig_map(&rig, &file, (struct lp_extmap_range){9, 1}, LPI_RIG_WRITTEN, 3);
		assert_int_equal(lpi_rig_wait(&rig, &op), 0);
		lpi_read_end(rig.block, &op.op);
		lpi_rig_settle(&rig);
		assert_false(lpi_cached_has(rig.block->cached, device));
		(void)lpi_rig_fill(&file, 250, 77);
		forge(lpi_rig_block_at(&file, 250), crc);
		take_again(&rig, &file, 250, device);
		read_block(&rig, &file, 250);
		read_block(&rig, &file, 9);
		read_block(&rig, &file, 250);
		finish(&rig, &file);
	}
}

/* --- Reads ------------------------------------------------------------------------------------ */

static void change(struct lpi_rig *rig, struct lpi_rig_file *file, struct lp_prng *prng)
{
	static const enum lpi_rig_how hows[] = {LPI_RIG_WRITTEN, LPI_RIG_DEFERRED,
						LPI_RIG_UNWRITTEN, LPI_RIG_SHARED};
	struct lp_extmap_range range = {lp_prng_below(prng, 300), lp_prng_between(prng, 1, 12)};
	uint64_t seed = lp_prng_u64(prng) >> 32;
	if (lp_prng_chance(prng, 1, 3)) {
		lpi_rig_map(rig, file, range, hows[lp_prng_below(prng, 4)], seed);
		return;
	}
	/* In place, where something is written. */
	struct lp_extmap_segment segment;
	assert_int_equal(lp_extmap_lookup(&lpi_rig_find(rig, file->ino)->map,
					  (struct lp_extmap_range){range.first, 1}, &segment, 1,
					  NULL),
			 1);
	if (segment.kind == LP_EXTMAP_DATA && !segment.is_shared)
		overwrite(rig, file, range.first, lpi_rig_fill(file, range.first, seed));
}

/* Some reads are under way, and what they read changes: each gives what was there when it had its
 * plan, before or after the change. */
static void judge_one_of(const struct lpi_rig_file *before, const struct lpi_rig_file *after,
			 const struct lp_store_op *op)
{
	uint64_t at = op->read.offset;
	bool is_before = true;
	for (uint32_t i = 0; i < op->read.seg_cnt; i++) {
		const struct lp_seg *seg = &op->read.segs[i];
		is_before &=
			memcmp(seg->buf->data + seg->offset, before->bytes + at, seg->len) == 0;
		at += seg->len;
	}
	lpi_rig_judge(is_before ? before : after, op);
}

static void read_and_change(struct lpi_rig *rig, struct lpi_rig_file *file, struct lp_prng *prng,
			    uint8_t *before)
{
	static const uint64_t lengths[] = {100, 4096, 4096, 5000, 30000, 65536, 200000};
	struct lpi_rig_op ops[6];
	struct lpi_rig_file copy = *file;
	uint64_t cnt = lp_prng_between(prng, 1, 6);
	uint64_t at = lp_prng_below(prng, file->size_bytes);
	uint64_t length = lengths[lp_prng_below(prng, LP_ARRAY_SIZE(lengths))];
	copy.bytes = before;
	memcpy(before, file->bytes, LPI_RIG_BLOCKS * LP_BLOCK_BYTES);
	for (uint64_t i = 0; i < cnt; i++) {
		ops[i] = lpi_rig_read_op(file->ino, at, length);
		lpi_rig_submit(rig, &ops[i]);
		at = lp_prng_chance(prng, 7, 8) ? at + length
						: lp_prng_below(prng, file->size_bytes);
	}
	if (lp_prng_chance(prng, 1, 2))
		change(rig, file, prng);
	for (uint64_t i = 0; i < cnt; i++) {
		assert_int_equal(lpi_rig_wait(rig, &ops[i]), 0);
		judge_one_of(&copy, file, &ops[i].op);
		lpi_read_end(rig->block, &ops[i].op);
	}
}

/* With budgets so small that blocks are put out all the time. */
static void test_same_with_any_budget(void **state)
{
	static const uint64_t budgets[] = {5000, 100000, UINT64_C(1) << 20, CACHE_BYTES};
	(void)state;
	for (size_t i = 0; i < LP_ARRAY_SIZE(budgets); i++) {
		struct lpi_rig rig = {.cache_bytes = budgets[i]};
		struct lpi_rig_file file;
		struct lp_prng prng;
		uint8_t *before = malloc(LPI_RIG_BLOCKS * LP_BLOCK_BYTES);
		assert_non_null(before);
		lp_prng_init(&prng, i + 1);
		make_file(&rig, &file);
		for (int n = 0; n < (LP_ASSERT_SLOW_ON ? 120 : 1500); n++) {
			read_and_change(&rig, &file, &prng, before);
			assert_true(stats_of(&rig).bytes <= LP_MAX(budgets[i], 4 * LP_BLOCK_BYTES));
		}
		struct lpi_cached_stats stats = stats_of(&rig);
		assert_true(stats.cache.inserts > 100 && stats.cache.misses > 100);
		assert_true(stats.cache.evictions > 100 || budgets[i] == CACHE_BYTES);
		assert_true(stats.cache.hits > 50 || budgets[i] < 100000);
		assert_true(stats.ahead_reads > 5 || budgets[i] < CACHE_BYTES);
		free(before);
		finish(&rig, &file);
	}
}

static void test_partial_hits(void **state)
{
	struct lpi_rig rig = {.cache_bytes = CACHE_BYTES};
	struct lpi_rig_file file;
	(void)state;
	make_file(&rig, &file);
	read_block(&rig, &file, 20);
	read_block(&rig, &file, 24);
	overwrite(&rig, &file, 22, lpi_rig_fill(&file, 22, 9));
	uint64_t before = device_blocks_read(&rig);
	lpi_rig_read(&rig, &file, 18 * LP_BLOCK_BYTES, 8 * LP_BLOCK_BYTES);
	assert_int_equal(device_blocks_read(&rig) - before, 5);
	lpi_rig_read(&rig, &file, 18 * LP_BLOCK_BYTES + 100, 7 * LP_BLOCK_BYTES);
	assert_int_equal(device_blocks_read(&rig) - before, 5);
	/* A hit is the cache's own buffer: nothing is copied. */
	uint64_t copies = stats_of(&rig).cache.copies;
	struct lpi_rig_op op = lpi_rig_read_op(file.ino, 20 * LP_BLOCK_BYTES, LP_BLOCK_BYTES);
	assert_int_equal(lpi_rig_do(&rig, &op), 0);
	assert_int_equal(op.op.read.segs[0].buf->refs, 2);
	lpi_read_end(rig.block, &op.op);
	assert_int_equal(stats_of(&rig).cache.copies, copies);
	finish(&rig, &file);
}

/* Large reads pass by: they find nothing and leave nothing. */
static void test_large_reads(void **state)
{
	struct lpi_rig rig = {.cache_bytes = CACHE_BYTES};
	struct lpi_rig_file file;
	(void)state;
	make_file(&rig, &file);
	for (uint64_t i = 0; i < 6; i++)
		lpi_rig_read(&rig, &file, i * (LPI_CACHED_READ_MAX + 1), LPI_CACHED_READ_MAX + 1);
	struct lpi_cached_stats stats = stats_of(&rig);
	assert_int_equal(stats.cache.inserts + stats.cache.misses + stats.ahead_reads, 0);
	uint64_t reads = device_reads(&rig);
	lpi_rig_read(&rig, &file, 0, LP_STORE_READ_MAX / 2);
	assert_int_equal(device_reads(&rig), reads + 1);
	finish(&rig, &file);
}

/* A pass over much else does not put out what is in use. */
static void test_scan(void **state)
{
	struct lpi_rig rig = {.cache_bytes = 400000}; /* 80 blocks */
	struct lpi_rig_file file;
	(void)state;
	make_file(&rig, &file);
	for (int round = 0; round < 4; round++) {
		for (uint64_t block = 0; block < 40; block++)
			read_block(&rig, &file, block * 7 % 40);
	}
	for (uint64_t at = 50 * LP_BLOCK_BYTES; at < file.size_bytes; at += 1000)
		lpi_rig_read(&rig, &file, at, 1000);
	uint64_t reads = device_reads(&rig);
	for (uint64_t block = 0; block < 40; block++)
		read_block(&rig, &file, block * 7 % 40);
	assert_true(device_reads(&rig) - reads <= 2);
	finish(&rig, &file);
}

/* --- Damage ----------------------------------------------------------------------------------- */

static void test_bad_in_memory(void **state)
{
	struct lpi_rig rig = {.cache_bytes = CACHE_BYTES};
	struct lpi_rig_file file;
	(void)state;
	make_file(&rig, &file);
	struct lpi_rig_op op = lpi_rig_read_op(file.ino, 30 * LP_BLOCK_BYTES, LP_BLOCK_BYTES);
	assert_int_equal(lpi_rig_do(&rig, &op), 0);
	op.op.read.segs[0].buf->data[op.op.read.segs[0].offset + 5] ^= 1;
	lpi_read_end(rig.block, &op.op);
	/* A piece of it is held against the map: it is read from the device, and the bad one goes.
	 */
	uint64_t found = lp_corruption_count();
	uint64_t reads = device_reads(&rig);
	lpi_rig_read(&rig, &file, 30 * LP_BLOCK_BYTES + 10, 10);
	assert_int_equal(device_reads(&rig), reads + 1);
	assert_int_equal(lp_corruption_count(), found);
	read_block(&rig, &file, 30);
	read_block(&rig, &file, 30);
	finish(&rig, &file);
}

static void rot(struct lpi_rig *rig, uint64_t device_block)
{
	_Alignas(4096) static uint8_t bytes[4096];
	lp_test_ok(lp_bdev_write_sync(rig->bdev, bytes, sizeof(bytes),
				      device_block * LP_BLOCK_BYTES, false));
}

/* What is not in the cache is found to be damaged, by who asks for it and nobody else; and the
 * device that refuses is met by who asks. */
static void test_bad_on_the_device(void **state)
{
	struct lpi_rig rig = {.cache_bytes = CACHE_BYTES};
	struct lpi_rig_file file;
	(void)state;
	make_file(&rig, &file);
	read_block(&rig, &file, 100);
	rot(&rig, file.device[100]);
	rot(&rig, file.device[10]);
	const struct lp_sim_rule eio = {.fault = LP_SIM_EIO,
					.opcode_mask = LP_SIM_OP(LP_BDEV_READ),
					.offset_bytes = file.device[60] * LP_BLOCK_BYTES,
					.length_bytes = LP_BLOCK_BYTES};
	lp_sim_rule_add(lp_sim_of(rig.bdev), &eio);
	uint64_t found = lp_corruption_count();
	for (uint64_t block = 0; block < 10; block++)
		read_block(&rig, &file, block);
	assert_true(stats_of(&rig).ahead_lost > 0);
	assert_int_equal(lp_corruption_count(), found);
	assert_int_equal(lpi_rig_read_result(&rig, file.ino, 10 * LP_BLOCK_BYTES, 4096), -EBADMSG);
	assert_int_equal(lpi_rig_read_result(&rig, file.ino, 10 * LP_BLOCK_BYTES, 4096), -EBADMSG);
	assert_int_equal(lp_corruption_count(), found + 2);
	for (uint64_t block = 11; block < 60; block++)
		read_block(&rig, &file, block);
	assert_int_equal(rig.block->read_errors, 0);
	assert_int_equal(lpi_rig_read_result(&rig, file.ino, 60 * LP_BLOCK_BYTES, 4096), -EIO);
	read_block(&rig, &file, 61);
	read_block(&rig, &file, 100); /* which is in memory, and well */
	finish(&rig, &file);
}

/* --- Reading ahead ---------------------------------------------------------------------------- */

static void test_sequential(void **state)
{
	static const uint64_t lengths[] = {1000, 4096, 16384, 65536};
	(void)state;
	for (size_t i = 0; i < LP_ARRAY_SIZE(lengths); i++) {
		struct lpi_rig rig = {.cache_bytes = UINT64_C(32) << 20};
		struct lpi_rig_file file;
		make_file(&rig, &file);
		read_slowly(&rig);
		uint64_t start_ns = rig.clock.now_ns;
		uint64_t blocks = device_blocks_read(&rig);
		uint64_t reads = device_reads(&rig);
		for (uint64_t at = 0; at < file.size_bytes; at += lengths[i])
			lpi_rig_read(&rig, &file, at, lengths[i]);
		/* Each block once, in few reads, and much of the time that these take saved. */
		assert_int_equal(device_blocks_read(&rig) - blocks, LPI_RIG_BLOCKS);
		struct lpi_cached_stats stats = stats_of(&rig);
		assert_int_equal(stats.cache.ahead_used, stats.ahead_blocks);
		assert_int_equal(stats.ahead_lost + stats.cache.ahead_wasted, 0);
		assert_int_equal(device_reads(&rig) - reads - stats.ahead_reads,
				 lengths[i] == 1000 ? 1 : 3);
		assert_true(stats.ahead_reads <= 20);
		assert_true(stats.ahead_waits > 0);
		assert_true(rig.clock.now_ns - start_ns < 14 * SLOW_NS);
		finish(&rig, &file);
	}
}

/* What is in memory is not read ahead: cached, pending, or on its way. */
static void test_ahead_of_what_is_there(void **state)
{
	struct lpi_rig rig = {.cache_bytes = UINT64_C(32) << 20};
	struct lpi_rig_file file;
	(void)state;
	make_file(&rig, &file);
	uint64_t blocks = device_blocks_read(&rig);
	read_block(&rig, &file, 20);
	read_block(&rig, &file, 210);
	read_slowly(&rig);
	read_block(&rig, &file, 0);
	read_block(&rig, &file, 1);
	overwrite(&rig, &file, 30, lpi_rig_fill(&file, 30, 9));
	/* Two readers of the same, one close behind the other. */
	struct lpi_rig_op ops[2] = {lpi_rig_read_op(file.ino, 2 * LP_BLOCK_BYTES, LP_BLOCK_BYTES),
				    lpi_rig_read_op(file.ino, 3 * LP_BLOCK_BYTES, LP_BLOCK_BYTES)};
	lpi_rig_submit(&rig, &ops[0]);
	assert_int_equal(stats_of(&rig).ahead_blocks, LP_STREAMS_WINDOW_MIN - 2);
	lpi_rig_submit(&rig, &ops[1]);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(lpi_rig_wait(&rig, &ops[i]), 0);
		lpi_rig_judge(&file, &ops[i].op);
		lpi_read_end(rig.block, &ops[i].op);
	}
	for (uint64_t block = 4; block < LPI_RIG_BLOCKS; block++)
		read_block(&rig, &file, block);
	/* Each once, but for the one that was pending all the while. */
	assert_int_equal(device_blocks_read(&rig) - blocks, LPI_RIG_BLOCKS - 1);
	assert_int_equal(stats_of(&rig).ahead_lost, 0);
	finish(&rig, &file);
}

static void test_random_readers_pay_nothing(void **state)
{
	struct lpi_rig rig = {.cache_bytes = CACHE_BYTES};
	struct lpi_rig_file file;
	struct lp_prng prng;
	uint64_t distinct = 0;
	bool was_read[LPI_RIG_BLOCKS] = {false};
	(void)state;
	make_file(&rig, &file);
	lp_prng_init(&prng, 5);
	uint64_t blocks = device_blocks_read(&rig);
	for (int i = 0; i < 500; i++) {
		/* Never one that goes on with the last two. */
		uint64_t block = lp_prng_below(&prng, LPI_RIG_BLOCKS / 2) * 2;
		distinct += !was_read[block];
		was_read[block] = true;
		read_block(&rig, &file, block);
	}
	assert_int_equal(stats_of(&rig).ahead_reads, 0);
	assert_int_equal(device_blocks_read(&rig) - blocks, distinct);
	finish(&rig, &file);
}

/* Whoever is in need comes first; and nothing is read ahead that there is no place for. */
static void test_ahead_makes_way(void **state)
{
	struct lpi_rig rig = {.cache_bytes = CACHE_BYTES, .slots = 2};
	struct lpi_rig_file file;
	static void *held[1024];
	uint32_t held_cnt = 0;
	(void)state;
	make_file(&rig, &file);
	while (lp_pool_free_cnt(rig.block->ios) > LPI_READ_IOS_MAX)
		held[held_cnt++] = lp_pool_get(rig.block->ios);
	for (uint64_t block = 0; block < 20; block++)
		read_block(&rig, &file, block);
	assert_int_equal(stats_of(&rig).ahead_reads, 0);
	while (held_cnt > 0)
		lp_pool_put(rig.block->ios, held[--held_cnt]);
	/* When the sequential one gets its slot another still waits for one. */
	static const uint64_t order[] = {200, 220, 20, 240, 260, 280};
	struct lpi_rig_op ops[LP_ARRAY_SIZE(order)];
	read_slowly(&rig);
	for (size_t i = 0; i < LP_ARRAY_SIZE(order); i++) {
		ops[i] = lpi_rig_read_op(file.ino, order[i] * LP_BLOCK_BYTES, LP_BLOCK_BYTES);
		lpi_rig_submit(&rig, &ops[i]);
	}
	for (size_t i = 0; i < LP_ARRAY_SIZE(order); i++) {
		assert_int_equal(lpi_rig_wait(&rig, &ops[i]), 0);
		lpi_rig_judge(&file, &ops[i].op);
		lpi_read_end(rig.block, &ops[i].op);
	}
	assert_int_equal(stats_of(&rig).ahead_reads, 0);
	/* And now it goes on. */
	read_block(&rig, &file, 21);
	assert_true(stats_of(&rig).ahead_reads > 0);
	finish(&rig, &file);
}

/* What is on its way or unused is a part of the cache's small queue, whoever asks. */
static void test_ahead_is_bounded(void **state)
{
	struct lpi_rig rig = {.cache_bytes = UINT64_C(4) << 20}; /* 850 blocks */
	struct lpi_rig_file file;
	(void)state;
	make_file(&rig, &file);
	for (uint64_t reader = 0; reader < 5; reader++) {
		for (uint64_t block = 0; block < 3; block++)
			read_block(&rig, &file, reader * 60 + block);
	}
	while (!lpi_cached_is_idle(rig.block))
		lpi_rig_turn(&rig);
	struct lpi_cached_stats stats = stats_of(&rig);
	assert_true(stats.ahead_blocks > 32 && stats.ahead_blocks <= 43);
	/* These readers have gone: in some seconds others may have their turn. */
	for (int i = 0; i < 8; i++)
		lpi_cached_look(rig.block->cached);
	for (uint64_t block = 3; block < 6; block++)
		read_block(&rig, &file, 240 + block);
	assert_true(stats_of(&rig).ahead_blocks > stats.ahead_blocks);
	finish(&rig, &file);
}

/* The file changes or ends while it is being read. */
static void test_ahead_of_what_changes(void **state)
{
	struct lpi_rig rig = {.cache_bytes = CACHE_BYTES};
	struct lpi_rig_file file;
	(void)state;
	make_file(&rig, &file);
	read_slowly(&rig);
	for (uint64_t block = 0; block < 2; block++)
		read_block(&rig, &file, block);
	struct lpi_rig_op op = lpi_rig_read_op(file.ino, 2 * LP_BLOCK_BYTES, LP_BLOCK_BYTES);
	lpi_rig_submit(&rig, &op);
	struct lp_extent old = {file.device[3], 30};
	assert_false(lpi_cached_is_idle(rig.block));
	/* Its blocks are freed, and nobody's while they are being read (rule S3). */
	lpi_rig_map(&rig, &file, (struct lp_extmap_range){3, 30}, LPI_RIG_WRITTEN, 4);
	lpi_rig_settle(&rig);
	assert_int_equal(lp_space_waiting_blocks(rig.block->space), 30);
	while (!lpi_cached_is_idle(rig.block))
		lpi_rig_turn(&rig);
	assert_int_equal(lp_space_waiting_blocks(rig.block->space), 0);
	assert_int_equal(lpi_rig_wait(&rig, &op), 0);
	lpi_read_end(rig.block, &op.op);
	for (uint64_t i = 0; i < old.cnt; i++)
		assert_false(lpi_cached_has(rig.block->cached, old.block + i));
	for (uint64_t block = 3; block < LPI_RIG_BLOCKS; block++)
		read_block(&rig, &file, block);
	/* Beyond its end nothing is read. */
	uint64_t ahead = stats_of(&rig).ahead_blocks;
	assert_true(ahead <= LPI_RIG_BLOCKS);
	read_block(&rig, &file, LPI_RIG_BLOCKS);
	assert_int_equal(stats_of(&rig).ahead_blocks, ahead);
	finish(&rig, &file);
}

/* --- The budget ------------------------------------------------------------------------------- */

static void test_resize(void **state)
{
	struct lpi_rig rig = {.cache_bytes = CACHE_BYTES};
	struct lpi_rig_file file;
	(void)state;
	make_file(&rig, &file);
	for (uint64_t block = 0; block < LPI_RIG_BLOCKS; block++)
		read_block(&rig, &file, block);
	assert_int_equal(stats_of(&rig).cache.blocks, LPI_RIG_BLOCKS);
	assert_false(lpi_cached_is_full(rig.block->cached));
	lpi_cached_resize(rig.block->cached, 500000);
	assert_true(stats_of(&rig).bytes <= 500000);
	assert_true(lpi_cached_is_full(rig.block->cached));
	for (uint64_t block = 0; block < LPI_RIG_BLOCKS; block++)
		read_block(&rig, &file, block);
	assert_true(stats_of(&rig).bytes <= 500000);
	lpi_cached_resize(rig.block->cached, CACHE_BYTES);
	for (uint64_t block = 0; block < LPI_RIG_BLOCKS; block++)
		read_block(&rig, &file, block);
	assert_int_equal(stats_of(&rig).cache.blocks, LPI_RIG_BLOCKS);
	finish(&rig, &file);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_rewritten_with_the_same_crc),
		cmocka_unit_test(test_rewritten_on_its_way),
		cmocka_unit_test(test_freed_and_taken_with_the_same_crc),
		cmocka_unit_test(test_same_with_any_budget),
		cmocka_unit_test(test_partial_hits),
		cmocka_unit_test(test_large_reads),
		cmocka_unit_test(test_scan),
		cmocka_unit_test(test_bad_in_memory),
		cmocka_unit_test(test_bad_on_the_device),
		cmocka_unit_test(test_sequential),
		cmocka_unit_test(test_ahead_of_what_is_there),
		cmocka_unit_test(test_random_readers_pay_nothing),
		cmocka_unit_test(test_ahead_makes_way),
		cmocka_unit_test(test_ahead_is_bounded),
		cmocka_unit_test(test_ahead_of_what_changes),
		cmocka_unit_test(test_resize),
	};
	return lp_test_main(tests, "store/block/core/data_cache");
}
