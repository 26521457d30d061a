/* SPDX-License-Identifier: Apache-2.0 */
/* Test rig: a blockfs on one or two small devices, and files whose bytes follow from a seed.
 *
 * Only *_test.c files include this.
 */
#ifndef LP_STORE_BLOCKFS_BLOCKFS_RIG_TEST_H
#define LP_STORE_BLOCKFS_BLOCKFS_RIG_TEST_H

#include "store/blockfs/blockfs.h"
#include "store/volume/volume_test.h"

/* The fixed part of lpi_disk_tiny_label() and this many chunks of 1 MiB. */
#define LP_FS_BLOCKS(chunk_cnt) (256 * ((uint64_t)(chunk_cnt) + 1) + 1)

struct lpi_fs_bench {
	struct lp_disk_label label;
	struct lp_bdev *data;
	struct lp_bdev *db; /* or NULL */
	struct lp_chunks *data_chunks;
	struct lp_chunks *db_chunks;
	struct lp_clock_sim clock;
	struct lp_blockfs_options options;
	struct lp_blockfs *fs;
};

static inline int lpi_fs_try_open(struct lpi_fs_bench *bench)
{
	struct lp_chunks_options options = {.label = &bench->label,
					    .read_only = bench->options.read_only};
	bench->fs = NULL;
	bench->data_chunks = NULL;
	bench->db_chunks = NULL;
	lp_bdev_trust(bench->data);
	if (bench->db != NULL)
		lp_bdev_trust(bench->db);
	int err = lp_chunks_open(bench->data, &options, &bench->data_chunks);
	if (err == 0 && bench->db != NULL)
		err = lp_chunks_open(bench->db, &options, &bench->db_chunks);
	bench->options.data = (struct lp_blockfs_device){bench->data, bench->data_chunks};
	bench->options.db = (struct lp_blockfs_device){bench->db, bench->db_chunks};
	bench->options.journal_bdev = bench->data;
	return err < 0 ? err : lp_blockfs_open(&bench->options, &bench->fs);
}

static inline void lpi_fs_close(struct lpi_fs_bench *bench)
{
	lp_blockfs_close(bench->fs);
	lp_chunks_close(bench->data_chunks);
	lp_chunks_close(bench->db_chunks);
	bench->fs = NULL;
	bench->data_chunks = NULL;
	bench->db_chunks = NULL;
}

/* half_blocks: of the journal. Takes the devices. */
static inline void lpi_fs_setup(struct lpi_fs_bench *bench, struct lp_bdev *data,
				struct lp_bdev *db, uint32_t half_blocks)
{
	memset(bench, 0, sizeof(*bench));
	uint64_t size_blocks = lp_bdev_caps(data)->size_bytes / LP_BLOCK_BYTES;
	lp_clock_sim_init(&bench->clock, 1000, 5000);
	bench->label = lpi_disk_tiny_label(size_blocks, (uint32_t)((size_blocks - 257) / 256));
	bench->data = data;
	bench->db = db;
	assert_true(16 + 2 + 2 * half_blocks <= bench->label.chunk_base);
	bench->options.area = (struct lp_extent){.block = 16, .cnt = 2 + 2 * half_blocks};
	bench->options.clock = &bench->clock.clock;
	memcpy(bench->options.store_uuid, bench->label.store_uuid, 16);
	bench->options.journal_bdev = data;
	lp_test_ok(lp_chunks_format(data, &bench->label));
	if (db != NULL)
		lp_test_ok(lp_chunks_format(db, &bench->label));
	lp_test_ok(lp_blockfs_format(&bench->options));
	lp_test_ok(lpi_fs_try_open(bench));
}

static inline void lpi_fs_setup_mem(struct lpi_fs_bench *bench, uint32_t chunk_cnt,
				    uint32_t half_blocks)
{
	struct lp_bdev *data = NULL;
	lp_test_ok(lp_bdev_open_mem(LP_FS_BLOCKS(chunk_cnt) * LP_BLOCK_BYTES, 512, &data));
	lpi_fs_setup(bench, data, NULL, half_blocks);
}

static inline void lpi_fs_teardown(struct lpi_fs_bench *bench)
{
	if (bench->fs != NULL)
		lp_test_ok(lp_blockfs_check(bench->fs));
	lpi_fs_close(bench);
	lp_bdev_close(bench->data);
	lp_bdev_close(bench->db);
}

static inline void lpi_fs_reopen(struct lpi_fs_bench *bench)
{
	lp_test_ok(lp_blockfs_check(bench->fs));
	lpi_fs_close(bench);
	lp_test_ok(lpi_fs_try_open(bench));
	lp_test_ok(lp_blockfs_check(bench->fs));
}

static inline uint64_t lpi_fs_word(uint64_t seed, uint64_t offset)
{
	uint64_t value = (offset / 8 + 1) * UINT64_C(0x9e3779b97f4a7c15) + seed * 0xd1b54a33;
	return value ^ value >> 29;
}

/* The byte at an offset of the file with that seed. */
static inline uint8_t lpi_fs_byte(uint64_t seed, uint64_t offset)
{
	return (uint8_t)(lpi_fs_word(seed, offset) >> (offset % 8 * 8));
}

static inline void lpi_fs_fill(uint8_t *buf, uint64_t seed, uint64_t offset, uint64_t len)
{
	uint64_t done = 0;
	for (; done < len && (offset + done) % 8 != 0; done++)
		buf[done] = lpi_fs_byte(seed, offset + done);
	for (; len - done >= 8; done += 8)
		lp_put_le64(buf + done, lpi_fs_word(seed, offset + done));
	for (; done < len; done++)
		buf[done] = lpi_fs_byte(seed, offset + done);
}

/* Appends the next len bytes of that seed. */
static inline int lpi_fs_append(struct lp_blockfs_writer *writer, uint64_t seed, uint64_t len)
{
	uint8_t *buf = malloc(len + 1);
	assert_non_null(buf);
	lpi_fs_fill(buf, seed, lp_blockfs_written(writer), len);
	int err = lp_blockfs_append(writer, buf, len);
	free(buf);
	return err;
}

/* A finished file. */
static inline int lpi_fs_put(struct lp_blockfs *fs, const char *name, uint64_t seed, uint64_t len)
{
	struct lp_blockfs_writer *writer = NULL;
	int err = lp_blockfs_create(fs, name, false, &writer);
	if (err < 0)
		return err;
	(void)lpi_fs_append(writer, seed, len); /* finish gives the same error */
	return lp_blockfs_finish(writer);
}

/* The file's length; its bytes must be those of the seed. -errno. */
static inline int64_t lpi_fs_get(struct lp_blockfs *fs, const char *name, uint64_t seed)
{
	struct lp_blockfs_reader *reader = NULL;
	int err = lp_blockfs_open_reader(fs, name, &reader);
	if (err < 0)
		return err;
	uint64_t size = lp_blockfs_size(reader);
	uint64_t got = 0;
	uint8_t *buf = malloc(size + 2);
	assert_non_null(buf);
	err = lp_blockfs_pread(reader, buf, size + 1, 0, &got);
	if (err == 0) {
		assert_int_equal(got, size);
		uint8_t *want = malloc(size + 1);
		assert_non_null(want);
		lpi_fs_fill(want, seed, 0, size);
		assert_memory_equal(buf, want, size);
		free(want);
	}
	lp_blockfs_close_reader(reader);
	free(buf);
	return err < 0 ? err : (int64_t)size;
}

static inline struct lp_blockfs_stats lpi_fs_stats(struct lp_blockfs *fs)
{
	struct lp_blockfs_stats stats;
	lp_blockfs_stats(fs, &stats);
	return stats;
}

#endif
