/* SPDX-License-Identifier: Apache-2.0 */
/* Test rig: a machine with a store in memory; records and blocks are put through commits.
 *
 * Only *_test.c files include this.
 */
#ifndef LP_STORE_CHECK_MACHINE_TEST_H
#define LP_STORE_CHECK_MACHINE_TEST_H

#include "base/testing/test.h"

#include "base/crc32c.h"
#include "base/endian.h"
#include "store/check/fsck_impl.h"
#include "store/setup/mkfs.h"

#define LPI_RIG_BYTES     (UINT64_C(64) << 20)
#define LPI_RIG_FOUND_MAX 64u
#define LPI_RIG_SHARDS    2u

struct lpi_fsck_rig {
	struct lp_clock_sim clock;
	struct lp_reactor *reactor;
	struct lp_workers *workers;
	struct lp_bufs *bufs;
	struct lp_bdev *bdev;
	struct lp_devices devices;
	uint32_t shard_cnt;
	struct lp_shard *shards[LPI_RIG_SHARDS];
	/* Where the files' blocks lie. */
	struct lp_extent a, b, orphan;
	struct lp_ino s; /* inode 8 of the picture */
	/* What the last check found. */
	struct lp_fsck_events events;
	struct lp_fsck_report report;
	struct lp_fsck_finding found[LPI_RIG_FOUND_MAX];
	char texts[LPI_RIG_FOUND_MAX][600];
	uint32_t found_cnt;
	uint64_t names_bytes_max;
	uint32_t refs_groups_max;
	bool deep;
};

/* --- The machine ------------------------------------------------------------------------------ */

static inline void lpi_rig_turn(struct lpi_fsck_rig *rig, uint32_t shard)
{
	(void)lp_shard_sim_run_one(rig->shards[shard]);
	(void)lp_reactor_turn(rig->reactor, true);
}

/* A new shard leases its first chunk by and by. */
static inline void lpi_rig_await_space(struct lpi_fsck_rig *rig, uint32_t shard)
{
	const struct lp_alloc *alloc = lp_space_alloc(lp_shard_space(rig->shards[shard]));
	for (int turns = 0; lp_alloc_free_blocks(alloc) < 256; turns++) {
		assert_true(turns < 1000);
		lpi_rig_turn(rig, shard);
	}
}

static inline void lpi_rig_open(struct lpi_fsck_rig *rig)
{
	const struct lp_devices_options devices = {.bdev = {rig->bdev}};
	struct lp_label_why why;
	lp_test_ok(lp_devices_open(&devices, &rig->devices, &why));
	for (uint32_t i = 0; i < rig->shard_cnt; i++) {
		const struct lp_shard_options options = {.reactor = rig->reactor,
							 .workers = rig->workers,
							 .devices = &rig->devices,
							 .bufs = rig->bufs,
							 .shard_idx = i,
							 .sim_clock = &rig->clock.clock,
							 .index_cache_bytes = 1 << 20,
							 .index_buffer_bytes = 1 << 16,
							 .files_reserve_bytes = 1 << 20};
		lp_test_ok(lp_shard_open(&options, &rig->shards[i]));
		lpi_rig_await_space(rig, i);
	}
}

static inline void lpi_rig_close(struct lpi_fsck_rig *rig)
{
	for (uint32_t i = 0; i < rig->shard_cnt; i++)
		lp_test_ok(lp_shard_close(rig->shards[i], false));
	lp_devices_close(&rig->devices);
}

static inline void lpi_rig_told(struct lp_commit_waiter *waiter, int result)
{
	lp_test_ok(result);
	waiter->told = NULL;
}

/* All that was put is in the index, and durable. */
static inline void lpi_rig_settle(struct lpi_fsck_rig *rig)
{
	for (uint32_t i = 0; i < rig->shard_cnt; i++) {
		struct lp_commit_waiter durable = {.told = lpi_rig_told};
		struct lp_commit_waiter inserted = {.told = lpi_rig_told};
		lp_commit_wait(lp_shard_commit(rig->shards[i]), &durable);
		lp_commit_wait_inserted(lp_shard_commit(rig->shards[i]), &inserted);
		while (durable.told != NULL || inserted.told != NULL)
			lpi_rig_turn(rig, i);
	}
}

/* Without a store on it yet. The device is the rig's. */
static inline void lpi_rig_init_on(struct lpi_fsck_rig *rig, struct lp_bdev *bdev,
				   uint32_t shard_cnt)
{
	memset(rig, 0, sizeof(*rig));
	rig->bdev = bdev;
	rig->shard_cnt = shard_cnt;
	rig->s = lp_ino_make(shard_cnt - 1, 8);
	rig->deep = true;
	lp_clock_sim_init(&rig->clock, LP_NS_PER_S, INT64_C(1700000000) * (int64_t)LP_NS_PER_S);
	const struct lp_reactor_options options = {.name = "sim", .sim = &rig->clock};
	lp_test_ok(lp_reactor_new(&options, &rig->reactor));
	lp_test_ok(lp_reactor_start(rig->reactor));
	lp_test_ok(lp_workers_new(0, &rig->workers));
	lp_test_ok(lp_bufs_new(UINT64_C(8) << 20, &rig->bufs));
}

static inline void lpi_rig_mkfs(struct lpi_fsck_rig *rig)
{
	struct lp_mkfs_options mkfs = {
		.bdev = {rig->bdev}, .shard_cnt = rig->shard_cnt, .log_bytes = UINT64_C(1) << 20};
	struct lp_disk_label label;
	struct lp_label_why why;
	for (size_t i = 0; i < sizeof(mkfs.seed); i++)
		mkfs.seed[i] = (uint8_t)(i * 7 + 1);
	lp_test_ok(lp_store_mkfs(&mkfs, &label, &why));
}

static inline void lpi_rig_init(struct lpi_fsck_rig *rig, uint32_t shard_cnt)
{
	struct lp_bdev *bdev = NULL;
	lp_test_ok(lp_bdev_open_mem(LPI_RIG_BYTES, 4096, &bdev));
	lpi_rig_init_on(rig, bdev, shard_cnt);
	lpi_rig_mkfs(rig);
}

static inline void lpi_rig_fini(struct lpi_fsck_rig *rig)
{
	lp_bufs_free(rig->bufs);
	lp_workers_free(rig->workers);
	lp_reactor_free(rig->reactor);
	lp_bdev_close(rig->bdev);
}

/* --- Records ---------------------------------------------------------------------------------- */

static inline struct lp_commit *lpi_rig_commit(struct lpi_fsck_rig *rig, uint32_t shard,
					       size_t bytes)
{
	const struct lp_commit_need need = {.batch_bytes = (uint32_t)bytes + LP_COMMIT_RECORD_BYTES,
					    .change_cnt = 1,
					    .data_cnt = 1};
	struct lp_commit *commit = lp_shard_commit(rig->shards[shard]);
	if (!lp_commit_reserve(commit, &need)) {
		lpi_rig_settle(rig);
		assert_true(lp_commit_reserve(commit, &need));
	}
	return commit;
}

/* len 0 deletes. */
static inline void lpi_rig_put(struct lpi_fsck_rig *rig, uint32_t shard, const struct lp_key *key,
			       const void *value, size_t len)
{
	struct lp_commit *commit = lpi_rig_commit(rig, shard, key->len + len);
	if (len == 0)
		lp_commit_delete(commit, (struct lp_kv_bytes){key->bytes, key->len});
	else
		lp_commit_put(commit, (struct lp_kv_bytes){key->bytes, key->len},
			      (struct lp_kv_bytes){value, len});
}

static inline void lpi_rig_put_inode(struct lpi_fsck_rig *rig, const struct lp_inode *inode)
{
	uint8_t bytes[LP_INODE_BYTES_MAX];
	struct lp_key key;
	lp_key_of_ino(&key, LP_KEY_SPACE_INODE, inode->ino);
	lpi_rig_put(rig, lp_ino_shard(inode->ino), &key, bytes, lp_inode_encode(inode, bytes));
}

/* Reads an inode, which borrows from *value, to be released. */
static inline void lpi_rig_get_inode(struct lpi_fsck_rig *rig, uint64_t nr,
				     struct lp_kv_value *value, struct lp_inode *ret)
{
	struct lp_ino ino = {nr};
	struct lp_key key;
	lpi_rig_settle(rig);
	lp_key_of_ino(&key, LP_KEY_SPACE_INODE, ino);
	lp_test_ok(lp_kv_get(lp_shard_kv(rig->shards[lp_ino_shard(ino)]),
			     (struct lp_kv_bytes){key.bytes, key.len}, value));
	lp_test_ok(lp_inode_decode(value->bytes.data, value->bytes.len, ino, ret));
}

static inline void lpi_rig_put_entry(struct lpi_fsck_rig *rig, uint64_t dir, const char *name,
				     uint64_t ino, uint8_t type, uint64_t insertion)
{
	const struct lp_dirent_value value = {.ino = ino, .type = type, .insertion = insertion};
	uint8_t bytes[LP_DIRENT_VALUE_SIZE];
	struct lp_key key;
	lp_key_of_name(&key, LP_KEY_SPACE_DIRENT, (struct lp_ino){dir}, name, strlen(name));
	lp_dirent_write(&value, &key, bytes);
	lpi_rig_put(rig, lp_ino_shard((struct lp_ino){dir}), &key, bytes, sizeof(bytes));
}

static inline void lpi_rig_put_fragment(struct lpi_fsck_rig *rig, uint64_t dir, uint64_t cnt,
					uint64_t name_bytes, uint64_t next)
{
	const struct lp_fragment_value value = {
		.entries_cnt = cnt, .name_bytes = name_bytes, .next_insertion = next};
	uint8_t bytes[LP_FRAGMENT_VALUE_SIZE];
	struct lp_key key;
	lp_key_of_ino(&key, LP_KEY_SPACE_FRAGMENT, (struct lp_ino){dir});
	lp_fragment_write(&value, &key, bytes);
	lpi_rig_put(rig, lp_ino_shard((struct lp_ino){dir}), &key, bytes, sizeof(bytes));
}

static inline void lpi_rig_put_mark(struct lpi_fsck_rig *rig, uint64_t ino, uint8_t kind)
{
	const struct lp_unfinished_value value = {.kind = kind};
	uint8_t bytes[LP_UNFINISHED_VALUE_SIZE];
	struct lp_key key;
	lp_key_of_ino(&key, LP_KEY_SPACE_UNFINISHED, (struct lp_ino){ino});
	lp_unfinished_write(&value, &key, bytes);
	lpi_rig_put(rig, lp_ino_shard((struct lp_ino){ino}), &key, bytes, sizeof(bytes));
}

static inline void lpi_rig_put_refs(struct lpi_fsck_rig *rig, const struct lp_refs *refs)
{
	uint8_t bytes[LP_REFS_BYTES_MAX];
	struct lp_key key;
	lp_refs_key(&key, refs->group);
	lpi_rig_put(rig, 0, &key, bytes, lp_refs_encode(refs, bytes));
}

/* --- Blocks ----------------------------------------------------------------------------------- */

/* One extent of shard 0, taken by a commit, each block filled with its own number. */
static inline struct lp_extent lpi_rig_take(struct lpi_fsck_rig *rig, uint64_t cnt)
{
	const struct lp_alloc_options options = {
		.hint = LP_ALLOC_NO_HINT, .extents_max = 1, .is_contiguous = true};
	_Alignas(4096) static uint8_t block[4096];
	struct lp_extent extent;
	uint64_t got;
	lpi_rig_await_space(rig, 0);
	(void)lpi_rig_commit(rig, 0, 0);
	assert_int_equal(
		lp_space_take(lp_shard_space(rig->shards[0]), cnt, &options, &extent, &got), 1);
	assert_int_equal(got, cnt);
	for (uint64_t i = 0; i < cnt; i++) {
		memset(block, (int)((extent.block + i) & 0xff), sizeof(block));
		lp_test_ok(lp_bdev_write_sync(rig->bdev, block, sizeof(block),
					      (extent.block + i) * LP_BLOCK_BYTES, true));
	}
	lp_shard_taken(rig->shards[0], extent);
	return extent;
}

static inline uint32_t lpi_rig_crc(uint64_t block)
{
	uint8_t bytes[4096];
	memset(bytes, (int)(block & 0xff), sizeof(bytes));
	return lp_crc32c(0, bytes, sizeof(bytes));
}

static inline void lpi_rig_map(struct lp_extmap *map, uint64_t logical, struct lp_extent extent,
			       bool is_written, bool is_shared)
{
	struct lp_extmap_release items[64];
	struct lp_extmap_released released = {items, 0, LP_ARRAY_SIZE(items)};
	const struct lp_extmap_range range = {logical, extent.cnt};
	uint32_t crcs[64];
	for (uint64_t i = 0; i < extent.cnt; i++)
		crcs[i] = lpi_rig_crc(extent.block + i);
	const struct lp_extmap_new fresh = {.extents = &extent,
					    .extents_cnt = 1,
					    .crcs = is_written ? crcs : NULL,
					    .is_shared = is_shared};
	lp_test_ok(lp_extmap_reserve(map, range, 1));
	lp_extmap_replace(map, range, &fresh, &released);
}

/* The inode with this map, and its pieces. The map is done with. */
static inline void lpi_rig_put_file(struct lpi_fsck_rig *rig, struct lp_inode *inode,
				    struct lp_extmap *map)
{
	uint8_t root[LP_EXTMAP_ROOT_BYTES_MAX];
	uint8_t leaf[LP_EXTMAP_LEAF_BYTES_MAX];
	struct lp_extmap_piece piece;
	struct lp_key key;
	while (lp_extmap_take_dirty(map, leaf, &piece)) {
		lp_key_of_map(&key, inode->ino, piece.block);
		lpi_rig_put(rig, lp_ino_shard(inode->ino), &key, leaf, piece.len);
	}
	size_t len = lp_extmap_encode_root(map, root);
	inode->map = (struct lp_inode_bytes){len > 0 ? root : NULL, len};
	lpi_rig_put_inode(rig, inode);
	inode->map = (struct lp_inode_bytes){NULL, 0};
	lp_extmap_fini(map);
}

static inline struct lp_inode lpi_rig_inode(uint64_t nr, uint8_t type, uint64_t parent,
					    const char *name, uint32_t nlink)
{
	struct lp_inode inode = {.ino = {nr}, .type = type, .nlink = nlink, .version_nr = 1};
	inode.parent.nr = parent;
	if (name != NULL)
		inode.name = (struct lp_inode_bytes){(const uint8_t *)name, strlen(name)};
	return inode;
}

#endif
