/* SPDX-License-Identifier: Apache-2.0 */
/* Test rig: a store of one shard on a simulated device, with simulated time and jobs.
 *
 * Only *_test.c files include this. Everything, helpers included, runs on the test's thread: a
 * caller that waits for something turns the rig. With lpi_shard_rig_init_threads() it is on a
 * device in memory, with real time, jobs and helpers.
 */
#ifndef LP_STORE_SHARD_SHARD_RIG_TEST_H
#define LP_STORE_SHARD_SHARD_RIG_TEST_H

#include "store/device/sim/sim_test.h"

#include "base/crc32c.h"
#include "base/endian.h"
#include "store/setup/mkfs.h"
#include "store/shard/shard.h"

#define LP_RIG_SIZE_BYTES  (UINT64_C(96) << 20)
#define LP_RIG_LOG_BYTES   (UINT64_C(1) << 20) /* made the least there may be: 8 MiB */
#define LP_RIG_TURNS_MAX   1000000
#define LP_RIG_BATCH_BYTES 65536u

/* A machine: a device, and a shard on it. The wishes may be changed before each opening. */
struct lpi_shard_rig {
	struct lp_clock_sim clock;
	struct lp_reactor *reactor;
	struct lp_workers *workers;
	struct lp_bufs *bufs;
	struct lp_bdev *bdev;
	struct lp_devices devices;
	struct lp_shard *shard;
	bool has_threads;
	/* Wishes. */
	uint64_t deferred_max;
	uint32_t bad_max;
	uint64_t index_buffer_bytes;
	uint64_t files_reserve_bytes;
	uint32_t log_records_max;
	uint32_t replay_stalls_max;
	uint64_t memory_bytes;
	enum lp_alloc_kind alloc_kind;
	bool read_only;
};

static inline void lpi_shard_rig_init_as(struct lpi_shard_rig *rig, struct lp_bdev *bdev,
					 bool has_threads)
{
	*rig = (struct lpi_shard_rig){.bdev = bdev,
				      .has_threads = has_threads,
				      .deferred_max = 64,
				      .index_buffer_bytes = 1 << 16,
				      .files_reserve_bytes = 1 << 20};
	lp_clock_sim_init(&rig->clock, LP_NS_PER_S, INT64_C(1700000000) * (int64_t)LP_NS_PER_S);
	const struct lp_reactor_options options = {.name = "rig",
						   .sim = has_threads ? NULL : &rig->clock};
	lp_test_ok(lp_reactor_new(&options, &rig->reactor));
	lp_test_ok(lp_reactor_start(rig->reactor));
	lp_test_ok(lp_workers_new(has_threads ? 2 : 0, &rig->workers));
	lp_test_ok(lp_bufs_new(UINT64_C(8) << 20, &rig->bufs));
}

static inline void lpi_shard_rig_init(struct lpi_shard_rig *rig, struct lp_bdev *bdev)
{
	lpi_shard_rig_init_as(rig, bdev, false);
}

static inline void lpi_shard_rig_init_threads(struct lpi_shard_rig *rig, struct lp_bdev *bdev)
{
	lpi_shard_rig_init_as(rig, bdev, true);
}

/* Instead of the buffers there are; none of these may be in use. */
static inline void lpi_shard_rig_set_bufs(struct lpi_shard_rig *rig, uint64_t bytes)
{
	lp_bufs_free(rig->bufs);
	lp_test_ok(lp_bufs_new(bytes, &rig->bufs));
}

static inline int lpi_shard_rig_open(struct lpi_shard_rig *rig)
{
	const struct lp_devices_options devices = {.bdev = {rig->bdev},
						   .read_only = rig->read_only};
	const struct lp_shard_options options = {.reactor = rig->reactor,
						 .workers = rig->workers,
						 .devices = &rig->devices,
						 .bufs = rig->bufs,
						 .sim_clock = rig->has_threads ? NULL
									       : &rig->clock.clock,
						 .index_cache_bytes = 1 << 20,
						 .index_buffer_bytes = rig->index_buffer_bytes,
						 .deferred_blocks_max = rig->deferred_max,
						 .bad_blocks_max = rig->bad_max,
						 .files_reserve_bytes = rig->files_reserve_bytes,
						 .log_records_max = rig->log_records_max,
						 .replay_stalls_max = rig->replay_stalls_max,
						 .memory_bytes = rig->memory_bytes,
						 .alloc_kind = rig->alloc_kind,
						 .read_only = rig->read_only};
	struct lp_label_why why;
	int err = lp_devices_open(&devices, &rig->devices, &why);
	if (err < 0)
		return err;
	err = lp_shard_open(&options, &rig->shard);
	if (err < 0)
		lp_devices_close(&rig->devices);
	return err;
}

static inline int lpi_shard_rig_close(struct lpi_shard_rig *rig, bool abandon)
{
	int err = lp_shard_close(rig->shard, abandon);
	rig->shard = NULL;
	lp_devices_close(&rig->devices);
	return err;
}

static inline void lpi_shard_rig_fini(struct lpi_shard_rig *rig)
{
	lp_bufs_free(rig->bufs);
	lp_workers_free(rig->workers);
	lp_reactor_free(rig->reactor);
	lp_bdev_close(rig->bdev);
}

static inline void lpi_shard_rig_mkfs(struct lp_bdev *bdev, uint64_t log_bytes)
{
	struct lp_mkfs_options options = {.bdev = {bdev}, .shard_cnt = 1, .log_bytes = log_bytes};
	struct lp_disk_label label;
	struct lp_label_why why;
	for (size_t i = 0; i < sizeof(options.seed); i++)
		options.seed[i] = (uint8_t)(i * 7 + 1);
	int err = lp_store_mkfs(&options, &label, &why);
	if (err < 0)
		print_error("mkfs: %s\n", why.text);
	lp_test_ok(err);
}

/* An empty device. */
static inline struct lp_bdev *lpi_shard_rig_device(uint64_t seed, uint64_t size_bytes)
{
	struct lp_sim_profile profile = lpi_bench_plain_profile(4096);
	const struct lp_sim_options options = {
		.profile = &profile, .size_bytes = size_bytes, .seed = seed};
	struct lp_bdev *bdev = NULL;
	lp_test_ok(lp_bdev_open_sim(&options, &bdev));
	return bdev;
}

/* A device with an empty store, whose log of events begins behind that. */
static inline struct lp_bdev *lpi_shard_rig_store(uint64_t seed)
{
	struct lp_bdev *bdev = lpi_shard_rig_device(seed, LP_RIG_SIZE_BYTES);
	lpi_shard_rig_mkfs(bdev, LP_RIG_LOG_BYTES);
	lp_sim_trim_log(lp_sim_of(bdev));
	return bdev;
}

static inline void lpi_shard_rig_turn(struct lpi_shard_rig *rig)
{
	if (!rig->has_threads)
		(void)lp_shard_sim_run_one(rig->shard);
	(void)lp_reactor_turn(rig->reactor, true);
}

/* --- Waiting ---------------------------------------------------------------------------------- */

struct lpi_shard_told {
	struct lp_commit_waiter waiter;
	bool done;
	int result;
};

static inline void lpi_shard_told(struct lp_commit_waiter *waiter, int result)
{
	struct lpi_shard_told *told = LP_CONTAINER_OF(waiter, struct lpi_shard_told, waiter);
	assert_false(told->done);
	told->done = true;
	told->result = result;
}

/* False when it takes more turns than anything may. */
static inline bool lpi_shard_rig_wait(struct lpi_shard_rig *rig, const struct lpi_shard_told *told)
{
	for (int i = 0; i < LP_RIG_TURNS_MAX && !told->done; i++)
		lpi_shard_rig_turn(rig);
	return told->done;
}

/* All that was put is durable. */
static inline void lpi_shard_rig_sync(struct lpi_shard_rig *rig)
{
	struct lpi_shard_told told = {.waiter.told = lpi_shard_told};
	lp_commit_wait(lp_shard_commit(rig->shard), &told.waiter);
	assert_true(lpi_shard_rig_wait(rig, &told));
	assert_int_equal(told.result, 0);
}

/* --- Doing ------------------------------------------------------------------------------------ */

/* Waits for room as long as it takes; nothing may have been put in this turn. */
static inline void lpi_shard_rig_reserve(struct lpi_shard_rig *rig,
					 const struct lp_commit_need *need)
{
	int turns = 0;
	while (!lp_commit_reserve(lp_shard_commit(rig->shard), need)) {
		lpi_shard_rig_turn(rig);
		assert_true(++turns < LP_RIG_TURNS_MAX);
	}
}

static inline struct lp_kv_bytes lpi_shard_key(char space, uint64_t number, uint8_t *buf)
{
	buf[0] = (uint8_t)space;
	lp_put_be64(buf + 1, number);
	return (struct lp_kv_bytes){buf, 9};
}

static inline void lpi_shard_put(struct lp_shard *shard, char space, uint64_t number,
				 uint64_t value)
{
	uint8_t key[9];
	uint8_t bytes[8];
	lp_put_le64(bytes, value);
	lp_commit_put(lp_shard_commit(shard), lpi_shard_key(space, number, key),
		      (struct lp_kv_bytes){bytes, sizeof(bytes)});
}

/* 0 if there is none. */
static inline uint64_t lpi_shard_get(struct lp_shard *shard, char space, uint64_t number)
{
	uint8_t key[9];
	struct lp_kv_value value;
	int err = lp_kv_get(lp_shard_kv(shard), lpi_shard_key(space, number, key), &value);
	if (err == -ENOENT)
		return 0;
	lp_test_ok(err);
	assert_true(value.bytes.len >= 8);
	uint64_t got = lp_get_le64(value.bytes.data);
	lp_kv_value_release(&value);
	return got;
}

/* A transaction that puts value under a key, followed by len - 8 zeros. */
static inline void lpi_shard_rig_put(struct lpi_shard_rig *rig, uint64_t number, uint64_t value,
				     uint32_t len)
{
	static uint8_t bytes[LP_RIG_BATCH_BYTES];
	uint8_t key[9];
	const struct lp_commit_need need = {.batch_bytes = len + 9 + LP_COMMIT_RECORD_BYTES};
	assert_true(len >= 8 && len <= sizeof(bytes));
	lpi_shard_rig_reserve(rig, &need);
	lp_put_le64(bytes, value);
	lp_commit_put(lp_shard_commit(rig->shard), lpi_shard_key('K', number, key),
		      (struct lp_kv_bytes){bytes, len});
}

/* Blocks side by side, taken; their change is put. Returns the first. */
static inline uint64_t lpi_shard_rig_take_run(struct lpi_shard_rig *rig, uint64_t cnt)
{
	const struct lp_alloc_options options = {
		.hint = LP_ALLOC_NO_HINT, .extents_max = 1, .is_contiguous = true};
	const struct lp_commit_need need = {.change_cnt = 1};
	struct lp_extent extent = {0};
	uint64_t got;
	while (lp_space_take(lp_shard_space(rig->shard), cnt, &options, &extent, &got) < 0) {
		struct lpi_shard_told told = {.waiter.told = lpi_shard_told};
		lp_shard_wait_space(rig->shard, &told.waiter);
		assert_true(lpi_shard_rig_wait(rig, &told));
		assert_int_equal(told.result, 0);
	}
	assert_int_equal(got, cnt);
	lpi_shard_rig_reserve(rig, &need);
	lp_shard_taken(rig->shard, extent);
	return extent.block;
}

static inline uint64_t lpi_shard_rig_take(struct lpi_shard_rig *rig)
{
	return lpi_shard_rig_take_run(rig, 1);
}

/* A deferred block of one byte all over; room was reserved. */
static inline void lpi_shard_defer(struct lpi_shard_rig *rig, uint64_t block, int tag)
{
	struct lp_seg seg = {.buf = lp_buf_new(rig->bufs, 4096), .len = 4096};
	assert_non_null(seg.buf);
	memset(seg.buf->data, tag, 4096);
	const struct lp_log_payload about = {
		.ino = 1, .device_block = block, .crc = lp_crc32c(0, seg.buf->data, 4096)};
	lp_shard_defer(rig->shard, &about, seg);
	lp_buf_put(seg.buf);
}

static inline void lpi_shard_rig_defer(struct lpi_shard_rig *rig, uint64_t block, int tag)
{
	const struct lp_commit_need need = {.data_cnt = 1};
	lpi_shard_rig_reserve(rig, &need);
	lpi_shard_defer(rig, block, tag);
}

/* What a reader of the block finds: pending, or in its place. */
static inline int lpi_shard_rig_tag(struct lpi_shard_rig *rig, uint64_t block)
{
	struct lp_seg seg;
	uint32_t crc;
	if (!lp_pending_find(lp_shard_pending(rig->shard), block, &seg, &crc))
		return lpi_bench_peek(rig->bdev, block);
	assert_int_equal(lp_crc32c(0, seg.buf->data + seg.offset, 4096), crc);
	return lpi_bench_tag_of(seg.buf->data + seg.offset, 4096);
}

#endif
