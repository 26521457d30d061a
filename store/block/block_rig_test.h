/* SPDX-License-Identifier: Apache-2.0 */
/* Test rig: a block store on a simulated device, without transactions.
 *
 * Only *_test.c files include this. Tests of operations that only look put inodes, blocks and
 * records there by hand, in one group each. Of a file the rig keeps the bytes that a read should
 * give. Each file has at most LPI_RIG_BLOCKS blocks.
 */
#ifndef LP_STORE_BLOCK_BLOCK_RIG_TEST_H
#define LP_STORE_BLOCK_BLOCK_RIG_TEST_H

#include "store/block/read/query.h"
#include "store/block/read/read.h"
#include "store/device/sim/sim_test.h"

#include "base/crc32c.h"
#include "store/block/core/data_cache.h"
#include "store/setup/mkfs.h"

#define LPI_RIG_BYTES  (UINT64_C(96) << 20)
#define LPI_RIG_BLOCKS 320u
#define LPI_RIG_TURNS  200000

/* A machine: a device, and a store on it. */
struct lpi_rig {
	struct lp_clock_sim clock;
	struct lp_reactor *reactor;
	struct lp_workers *workers;
	struct lp_bufs *bufs;
	struct lp_bdev *bdev;
	struct lp_devices devices;
	struct lpi_block *block; /* while it is open */
	uint32_t slots;          /* of reads, and of queries */
	uint32_t ios;
	uint64_t bufs_bytes;
	uint64_t cache_bytes; /* of data; 0: none */
	uint32_t completed;
};

struct lpi_rig_op {
	struct lp_store_op op;
	uint32_t order; /* of completion, from 1; 0: not yet */
	struct lpi_rig *rig;
};

struct lpi_rig_file {
	struct lp_ino ino;
	uint64_t size_bytes;
	uint8_t *bytes; /* LPI_RIG_BLOCKS blocks */
	uint64_t device[LPI_RIG_BLOCKS];
};

/* --- Birth and death -------------------------------------------------------------------------- */

static inline void lpi_rig_turn(struct lpi_rig *rig)
{
	(void)lp_store_sim_run_one(&rig->block->base);
	(void)lp_reactor_turn(rig->reactor, true);
}

static inline struct lp_pool *lpi_rig_pool(const char *name, size_t bytes, uint32_t limit)
{
	const struct lp_pool_config config = {.name = name, .object_bytes = bytes, .limit = limit};
	struct lp_pool *pool = NULL;
	lp_test_ok(lp_pool_new(&config, &pool));
	return pool;
}

/* A store has more ios than some tests want. */
static inline void lpi_rig_limit_ios(struct lpi_rig *rig)
{
	lp_pool_free(rig->block->ios);
	rig->block->ios = lpi_rig_pool("ios", sizeof(struct lpi_io), rig->ios);
}

static inline void lpi_rig_open(struct lpi_rig *rig)
{
	const struct lp_devices_options devices = {.bdev = {rig->bdev}};
	const struct lp_store_options options = {.reactor = rig->reactor,
						 .workers = rig->workers,
						 .devices = &rig->devices,
						 .bufs = rig->bufs,
						 .sim_clock = &rig->clock.clock,
						 .index_buffer_bytes = 1 << 20,
						 .deferred_blocks_max = 800,
						 .files_reserve_bytes = 1 << 20,
						 .data_cache_bytes = rig->cache_bytes,
						 .ops_max = rig->slots};
	struct lp_store *store = NULL;
	struct lp_label_why why;
	lp_test_ok(lp_devices_open(&devices, &rig->devices, &why));
	lp_test_ok(lp_store_open(&options, &store));
	rig->block = lpi_block_of(store);
	lpi_rig_limit_ios(rig);
}

/* Nothing of any operation is left. */
static inline void lpi_rig_close(struct lpi_rig *rig, bool abandon)
{
	struct lpi_block *block = rig->block;
	assert_int_equal(block->running, 0);
	assert_int_equal(lp_claims_cnt(block->claims), 0);
	int err = lp_store_close(&block->base, abandon);
	assert_true(err == 0 || abandon);
	lp_devices_close(&rig->devices);
	rig->block = NULL;
}

/* Another store on the same device: nothing is in memory any more. */
static inline void lpi_rig_reopen(struct lpi_rig *rig)
{
	lpi_rig_close(rig, false);
	lpi_rig_open(rig);
}

static inline void lpi_rig_mkfs(struct lp_bdev *bdev)
{
	struct lp_mkfs_options options = {
		.bdev = {bdev}, .shard_cnt = 1, .log_bytes = UINT64_C(2) << 20};
	struct lp_disk_label label;
	struct lp_label_why why;
	for (size_t i = 0; i < sizeof(options.seed); i++)
		options.seed[i] = (uint8_t)(i * 7 + 1);
	lp_test_ok(lp_store_mkfs(&options, &label, &why));
}

/* Of a space that there is not, or of one that is not looked at. */
static inline void lpi_rig_filler_key(struct lp_key *key, uint64_t i)
{
	lp_key_of_number(key, LP_KEY_SPACE_TXN, i);
	if (i % 2 == 0)
		key->bytes[0] = LP_KEY_SPACE_INODE + 1;
}

/* Records that nobody reads, before and behind those of the store: else opening, which reads some
 * of these, would bring all of a small index into its cache. */
static inline void lpi_rig_fill_index(struct lpi_rig *rig)
{
	static const uint8_t value[200];
	const struct lp_commit_need need = {.batch_bytes = 400};
	struct lp_key key;
	for (uint64_t i = 0; i < 200; i++) {
		lpi_rig_filler_key(&key, i);
		while (!lp_commit_reserve(rig->block->commit, &need))
			lpi_rig_turn(rig);
		lp_commit_put(rig->block->commit, (struct lp_kv_bytes){key.bytes, key.len},
			      (struct lp_kv_bytes){value, sizeof(value)});
	}
}

/* slots, ios and bufs_bytes may be set before: 0 is a default. */
static inline void lpi_rig_init(struct lpi_rig *rig)
{
	struct lp_sim_profile profile = lpi_bench_plain_profile(4096);
	const struct lp_sim_options sim = {.profile = &profile,
					   .size_bytes = LPI_RIG_BYTES,
					   .seed = 7,
					   .log_metadata_only = true};
	const struct lp_reactor_options options = {.name = "sim", .sim = &rig->clock};
	rig->slots = rig->slots != 0 ? rig->slots : 16;
	rig->ios = rig->ios != 0 ? rig->ios : 1024;
	rig->bufs_bytes = rig->bufs_bytes != 0 ? rig->bufs_bytes : UINT64_C(24) << 20;
	lp_clock_sim_init(&rig->clock, LP_NS_PER_S, INT64_C(1700000000) * (int64_t)LP_NS_PER_S);
	lp_test_ok(lp_reactor_new(&options, &rig->reactor));
	lp_test_ok(lp_reactor_start(rig->reactor));
	lp_test_ok(lp_workers_new(0, &rig->workers));
	lp_test_ok(lp_bufs_new(rig->bufs_bytes, &rig->bufs));
	lp_test_ok(lp_bdev_open_sim(&sim, &rig->bdev));
	lpi_rig_mkfs(rig->bdev);
	lpi_rig_open(rig);
	lpi_rig_fill_index(rig);
}

static inline void lpi_rig_fini(struct lpi_rig *rig)
{
	if (rig->block != NULL)
		lpi_rig_close(rig, true);
	lp_bufs_free(rig->bufs); /* asserts that none is held */
	lp_workers_free(rig->workers);
	lp_reactor_free(rig->reactor);
	lp_bdev_close(rig->bdev);
}

/* --- Operations ------------------------------------------------------------------------------- */

static inline void lpi_rig_completed(struct lp_store_op *op)
{
	struct lpi_rig_op *own = LP_CONTAINER_OF(op, struct lpi_rig_op, op);
	assert_int_equal(own->order, 0);
	own->order = ++own->rig->completed;
}

static inline void lpi_rig_submit(struct lpi_rig *rig, struct lpi_rig_op *op)
{
	uint32_t before = rig->completed;
	op->rig = rig;
	op->order = 0;
	op->op.complete = lpi_rig_completed;
	lp_store_submit(&rig->block->base, &op->op);
	assert_int_equal(rig->completed, before); /* never inside */
}

static inline int lpi_rig_wait(struct lpi_rig *rig, struct lpi_rig_op *op)
{
	for (int i = 0; i < LPI_RIG_TURNS && op->order == 0; i++)
		lpi_rig_turn(rig);
	assert_int_not_equal(op->order, 0);
	return op->op.result;
}

static inline int lpi_rig_do(struct lpi_rig *rig, struct lpi_rig_op *op)
{
	lpi_rig_submit(rig, op);
	return lpi_rig_wait(rig, op);
}

/* --- Putting things there --------------------------------------------------------------------- */

/* Room for what follows in this turn. */
static inline void lpi_rig_reserve(struct lpi_rig *rig)
{
	const struct lp_commit_need need = {.batch_bytes = 24000, .change_cnt = 64, .data_cnt = 32};
	while (!lp_commit_reserve(rig->block->commit, &need))
		lpi_rig_turn(rig);
}

/* All is durable, and in the index. */
static inline void lpi_rig_settle(struct lpi_rig *rig)
{
	while (!lp_commit_is_idle(rig->block->commit))
		lpi_rig_turn(rig);
}

/* An inode that was not there. */
static inline struct lpi_inode *lpi_rig_inode(struct lpi_rig *rig, uint64_t nr, uint8_t type)
{
	struct lpi_node *node = lpi_node_find(&rig->block->nodes, LPI_NODE_INODE, nr);
	lpi_rig_reserve(rig);
	if (node == NULL)
		lp_test_ok(lpi_node_load(&rig->block->nodes, LPI_NODE_INODE, nr,
					 (struct lp_kv_bytes){0}, &node));
	struct lpi_inode *inode = lpi_inode_of(node);
	assert_false(node->exists);
	node->exists = true;
	inode->rec.type = type;
	inode->rec.mode = 0644;
	inode->rec.nlink = 1;
	inode->rec.version_nr = 1;
	inode->rec.parent.nr = type == LP_INODE_TYPE_DIR ? nr : 0;
	lpi_node_changed(node);
	return inode;
}

static inline struct lpi_inode *lpi_rig_find(struct lpi_rig *rig, struct lp_ino ino)
{
	struct lpi_node *node = lpi_node_find(&rig->block->nodes, LPI_NODE_INODE, ino.nr);
	assert_non_null(node);
	return lpi_inode_of(node);
}

static inline void lpi_rig_file_init(struct lpi_rig *rig, struct lpi_rig_file *file, uint64_t nr,
				     uint64_t size_bytes)
{
	*file = (struct lpi_rig_file){.ino = {nr}, .size_bytes = size_bytes};
	file->bytes = aligned_alloc(LP_BLOCK_BYTES, LPI_RIG_BLOCKS * LP_BLOCK_BYTES);
	assert_non_null(file->bytes);
	memset(file->bytes, 0, LPI_RIG_BLOCKS * LP_BLOCK_BYTES);
	lpi_rig_inode(rig, nr, LP_INODE_TYPE_FILE)->rec.size_bytes = size_bytes;
}

static inline void lpi_rig_file_fini(struct lpi_rig_file *file)
{
	free(file->bytes);
}

static inline uint8_t *lpi_rig_block_at(struct lpi_rig_file *file, uint64_t block)
{
	assert_true(block < LPI_RIG_BLOCKS);
	return file->bytes + block * LP_BLOCK_BYTES;
}

/* New bytes for a block, zeros beyond the end of the file; returns their crc. */
static inline uint32_t lpi_rig_fill(struct lpi_rig_file *file, uint64_t block, uint64_t seed)
{
	struct lp_prng prng;
	uint8_t *at = lpi_rig_block_at(file, block);
	lp_prng_init(&prng, seed * 1000 + block + file->ino.nr * 77);
	for (uint64_t i = 0; i < LP_BLOCK_BYTES; i++) {
		bool is_beyond = block * LP_BLOCK_BYTES + i >= file->size_bytes;
		at[i] = is_beyond ? 0 : (uint8_t)lp_prng_u64(&prng);
	}
	return lp_crc32c(0, at, LP_BLOCK_BYTES);
}

enum lpi_rig_how { LPI_RIG_WRITTEN, LPI_RIG_DEFERRED, LPI_RIG_UNWRITTEN, LPI_RIG_SHARED };

static inline struct lp_extent lpi_rig_take(struct lpi_rig *rig, uint64_t cnt)
{
	const struct lp_alloc_options options = {.hint = LP_ALLOC_NO_HINT, .extents_max = 1};
	struct lp_extent extent;
	uint64_t got = 0;
	for (int i = 0; i < 1000; i++) {
		int err = lp_space_take(rig->block->space, cnt, &options, &extent, &got);
		if (err > 0 && got == cnt)
			break;
		if (err > 0)
			lp_space_untake(rig->block->space, extent);
		got = 0;
		lpi_rig_turn(rig); /* a chunk is on its way */
	}
	assert_int_equal(got, cnt);
	return extent;
}

/* Newer content for a run that has blocks: in the log, and pending. It lies in one buffer. */
static inline void lpi_rig_defer(struct lpi_rig *rig, const struct lpi_rig_file *file,
				 struct lp_extmap_range range, const uint32_t *crcs)
{
	uint32_t bytes = (uint32_t)(range.cnt * LP_BLOCK_BYTES);
	struct lp_buf *buf = lp_buf_new(rig->bufs, bytes);
	assert_non_null(buf);
	memcpy(buf->data, file->bytes + range.first * LP_BLOCK_BYTES, bytes);
	for (uint32_t i = 0; i < range.cnt; i++) {
		const struct lp_seg seg = {.buf = buf,
					   .offset = i * (uint32_t)LP_BLOCK_BYTES,
					   .len = (uint32_t)LP_BLOCK_BYTES};
		const struct lp_log_payload about = {.ino = file->ino.nr,
						     .file_block = range.first + i,
						     .device_block = file->device[range.first + i],
						     .crc = crcs[i]};
		lpi_block_defer(rig->block, &about, seg);
	}
	lp_buf_put(buf);
}

/* A run of the file gets new blocks, contiguous on the device, with new bytes in them. */
static inline void lpi_rig_map(struct lpi_rig *rig, struct lpi_rig_file *file,
			       struct lp_extmap_range range, enum lpi_rig_how how, uint64_t seed)
{
	struct lp_extent extent = lpi_rig_take(rig, range.cnt);
	struct lp_extmap_release items[LPI_RIG_BLOCKS];
	struct lp_extmap_released released = {.items = items, .max = LPI_RIG_BLOCKS};
	uint32_t crcs[LPI_RIG_BLOCKS];
	struct lpi_inode *inode = lpi_rig_find(rig, file->ino);
	lpi_rig_reserve(rig);
	lp_shard_taken(rig->block->shard, extent);
	for (uint64_t i = 0; i < range.cnt; i++) {
		uint64_t block = range.first + i;
		file->device[block] = extent.block + i;
		if (how == LPI_RIG_UNWRITTEN)
			memset(lpi_rig_block_at(file, block), 0, LP_BLOCK_BYTES);
		else
			crcs[i] = lpi_rig_fill(file, block, seed);
		if (how == LPI_RIG_WRITTEN || how == LPI_RIG_SHARED)
			lp_test_ok(lp_bdev_write_sync(rig->bdev, lpi_rig_block_at(file, block),
						      LP_BLOCK_BYTES,
						      file->device[block] * LP_BLOCK_BYTES, false));
	}
	if (how == LPI_RIG_DEFERRED)
		lpi_rig_defer(rig, file, range, crcs);
	const struct lp_extmap_new fresh = {.extents = &extent,
					    .extents_cnt = 1,
					    .crcs = how == LPI_RIG_UNWRITTEN ? NULL : crcs,
					    .is_shared = how == LPI_RIG_SHARED};
	lp_test_ok(lp_extmap_reserve(&inode->map, range, 1));
	lp_extmap_replace(&inode->map, range, &fresh, &released);
	for (size_t i = 0; i < released.cnt; i++)
		lpi_block_freed(rig->block, items[i].extent);
	lpi_node_changed(&inode->node);
}

/* --- Reads ------------------------------------------------------------------------------------ */

static inline struct lpi_rig_op lpi_rig_read_op(struct lp_ino ino, uint64_t offset, uint64_t length)
{
	return (struct lpi_rig_op){
		.op = {.opcode = LP_STORE_READ,
		       .read = {.ino = ino, .offset = offset, .length = length}}};
}

/* What a read gave is what the file has: bytes, crcs of pieces, size. */
static inline void lpi_rig_judge(const struct lpi_rig_file *file, const struct lp_store_op *op)
{
	uint64_t offset = op->read.offset;
	uint64_t left = offset < file->size_bytes ? file->size_bytes - offset : 0;
	uint64_t want = LP_MIN(op->read.length, left);
	uint64_t at = offset;
	assert_int_equal(op->result, 0);
	assert_int_equal(op->read.bytes, want);
	assert_int_equal(op->read.size_bytes, file->size_bytes);
	for (uint32_t i = 0; i < op->read.seg_cnt; i++) {
		const struct lp_seg *seg = &op->read.segs[i];
		assert_true(seg->len > 0 && at + seg->len <= offset + want);
		assert_memory_equal(seg->buf->data + seg->offset, file->bytes + at, seg->len);
		if (i > 0)
			assert_false(seg[-1].buf == seg->buf &&
				     seg[-1].offset + seg[-1].len == seg->offset);
		at += seg->len;
	}
	assert_int_equal(at, offset + want);
	assert_int_equal(op->read.crc_cnt, lpi_piece_cnt(offset, want));
	at = offset;
	for (uint32_t i = 0; i < op->read.crc_cnt; i++) {
		uint64_t end =
			LP_MIN(lp_align_down(at, LP_BLOCK_BYTES) + LP_BLOCK_BYTES, offset + want);
		assert_int_equal(op->read.crcs[i], lp_crc32c(0, file->bytes + at, end - at));
		at = end;
	}
}

static inline void lpi_rig_read(struct lpi_rig *rig, const struct lpi_rig_file *file,
				uint64_t offset, uint64_t length)
{
	struct lpi_rig_op op = lpi_rig_read_op(file->ino, offset, length);
	assert_int_equal(lpi_rig_do(rig, &op), 0);
	lpi_rig_judge(file, &op.op);
	lpi_read_end(rig->block, &op.op);
	assert_int_equal(rig->block->running, 0);
}

static inline int lpi_rig_read_result(struct lpi_rig *rig, struct lp_ino ino, uint64_t offset,
				      uint64_t length)
{
	struct lpi_rig_op op = lpi_rig_read_op(ino, offset, length);
	int result = lpi_rig_do(rig, &op);
	if (result == 0)
		lpi_read_end(rig->block, &op.op);
	assert_int_equal(rig->block->running, 0);
	return result;
}

static inline void lpi_rig_put(struct lpi_rig *rig, const struct lp_key *key, const void *value,
			       size_t len)
{
	lpi_rig_reserve(rig);
	lp_commit_put(rig->block->commit, (struct lp_kv_bytes){key->bytes, key->len},
		      (struct lp_kv_bytes){value, len});
}

/* A value among a directory's entries, LP_DIRENT_VALUE_SIZE bytes; its fragment knows of the
 * change, and has no record of its own. */
static inline void lpi_rig_put_entry(struct lpi_rig *rig, struct lp_ino dir,
				     const struct lp_key *key, const void *value)
{
	struct lpi_nodes *nodes = &rig->block->nodes;
	struct lpi_node *fragment = lpi_node_find(nodes, LPI_NODE_FRAGMENT, dir.nr);
	if (fragment == NULL)
		lp_test_ok(lpi_node_load(nodes, LPI_NODE_FRAGMENT, dir.nr, (struct lp_kv_bytes){0},
					 &fragment));
	lpi_node_pin(fragment);
	lpi_rig_put(rig, key, value, LP_DIRENT_VALUE_SIZE);
	lpi_node_noted(fragment);
	lpi_node_unpin(fragment);
}

#endif
