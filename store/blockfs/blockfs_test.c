/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: files hold what was published and nothing else is seen (rule L8); names change in one step;
 * space is given back only after its record, and all of it (rule S1); full is a state that deletes
 * end (rule S5); damage is found and named; failures fence.
 * Method: a memory device for the ways, the simulated one for faults, bits flipped in every kind of
 * structure. Power cuts are in blockfs/crash_test.c. */
#include "store/blockfs/blockfs_rig_test.h"
#include "store/device/bdev_driver.h"

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

static void test_sizes(void **state)
{
	(void)state;
	static const uint64_t sizes[] = {0,       1,       1023,    1024,    1025,   4095,
					 4096,    4097,    8192,    65535,   266240, 266241,
					 1048575, 1048576, 1048577, 3000001, 5242880};
	struct lpi_fs_bench bench;
	char name[32];
	lpi_fs_setup_mem(&bench, 30, 16);
	for (size_t i = 0; i < LP_ARRAY_SIZE(sizes); i++) {
		(void)snprintf(name, sizeof(name), "db/%06zu.sst", i);
		lp_test_ok(lpi_fs_put(bench.fs, name, i, sizes[i]));
		assert_int_equal(lpi_fs_get(bench.fs, name, i), sizes[i]);
	}
	for (int round = 0; round < 2; round++) {
		for (size_t i = 0; i < LP_ARRAY_SIZE(sizes); i++) {
			(void)snprintf(name, sizeof(name), "db/%06zu.sst", i);
			assert_int_equal(lpi_fs_get(bench.fs, name, i), sizes[i]);
			lp_test_ok(lp_blockfs_verify(bench.fs, name));
		}
		lpi_fs_reopen(&bench);
	}
	for (size_t i = 0; i < LP_ARRAY_SIZE(sizes); i++) {
		(void)snprintf(name, sizeof(name), "db/%06zu.sst", i);
		lp_test_ok(lp_blockfs_delete(bench.fs, name));
	}
	assert_int_equal(lpi_fs_stats(bench.fs).used_bytes, 0);
	lpi_fs_teardown(&bench);
}

/* Rule L8: nothing beyond what was synced is seen, also by a reader that was there before. */
static void test_published_only(void **state)
{
	(void)state;
	struct lpi_fs_bench bench;
	struct lp_blockfs_writer *writer = NULL;
	struct lp_blockfs_reader *reader = NULL;
	uint8_t byte = 0;
	uint64_t got = 99;
	lpi_fs_setup_mem(&bench, 8, 16);
	lp_test_ok(lp_blockfs_create(bench.fs, "a", true, &writer));
	lp_test_ok(lp_blockfs_open_reader(bench.fs, "a", &reader));
	uint64_t total = 0;
	for (uint64_t step = 1; step < 700000; step = step * 3 + 1) {
		lp_test_ok(lpi_fs_append(writer, 7, step));
		assert_int_equal(lp_blockfs_size(reader), total);
		lp_test_ok(lp_blockfs_pread(reader, &byte, 1, total, &got));
		assert_int_equal(got, 0);
		lp_test_ok(lp_blockfs_sync(writer));
		assert_int_equal(lpi_fs_get(bench.fs, "a", 7), total + step);
		total += step;
		assert_int_equal(lp_blockfs_written(writer), total);
	}
	lp_test_ok(lpi_fs_append(writer, 7, 5000));
	lp_blockfs_abandon(writer);
	assert_int_equal(lpi_fs_get(bench.fs, "a", 7), total);
	lp_blockfs_close_reader(reader);
	lpi_fs_reopen(&bench);
	assert_int_equal(lpi_fs_get(bench.fs, "a", 7), total);
	lpi_fs_teardown(&bench);
}

/* A long file that is synced often gets one crc table after the other; the old ones are freed. */
static void test_tables(void **state)
{
	(void)state;
	struct lpi_fs_bench bench;
	struct lp_blockfs_writer *writer = NULL;
	lpi_fs_setup_mem(&bench, 12, 16);
	lp_test_ok(lp_blockfs_create(bench.fs, "1.sst", true, &writer));
	for (int i = 0; i < 25; i++) {
		lp_test_ok(lpi_fs_append(writer, 1, 400001));
		lp_test_ok(lp_blockfs_sync(writer));
		lp_test_ok(lp_blockfs_check(bench.fs));
	}
	assert_int_equal(lpi_fs_get(bench.fs, "1.sst", 1), 10000025);
	lp_blockfs_abandon(writer);
	lpi_fs_reopen(&bench);
	assert_int_equal(lpi_fs_get(bench.fs, "1.sst", 1), 10000025);
	lpi_fs_teardown(&bench);
}

/* A sync of a few bytes is one write and no flush. */
static void test_cost_of_sync(void **state)
{
	(void)state;
	struct lpi_fs_bench bench;
	struct lp_blockfs_writer *writer = NULL;
	lpi_fs_setup_mem(&bench, 8, 64);
	lp_test_ok(lp_blockfs_create(bench.fs, "MANIFEST-1", true, &writer));
	for (int i = 0; i < 30; i++) {
		struct lp_blockfs_stats before = lpi_fs_stats(bench.fs);
		lp_test_ok(lpi_fs_append(writer, 1, 100));
		lp_test_ok(lp_blockfs_sync(writer));
		lp_test_ok(lp_blockfs_sync(writer)); /* nothing new: nothing written */
		struct lp_blockfs_stats after = lpi_fs_stats(bench.fs);
		assert_int_equal(after.frame_cnt, before.frame_cnt + 1);
		assert_int_equal(after.write_cnt, before.write_cnt);
		assert_int_equal(after.flush_cnt, before.flush_cnt);
	}
	lp_test_ok(lp_blockfs_finish(writer));
	/* Larger ones flush once. */
	struct lp_blockfs_stats before = lpi_fs_stats(bench.fs);
	lp_test_ok(lpi_fs_put(bench.fs, "1.sst", 2, 3 * LP_MIB + 5));
	struct lp_blockfs_stats after = lpi_fs_stats(bench.fs);
	assert_int_equal(after.flush_cnt, before.flush_cnt + 1);
	assert_int_equal(after.frame_cnt, before.frame_cnt + 2);
	assert_in_range(after.write_bytes - before.write_bytes, 3 * LP_MIB,
			3 * LP_MIB + 12 * LP_KIB);
	assert_int_equal(after.bytes[LP_BLOCKFS_MANIFEST], 3000);
	assert_int_equal(after.bytes[LP_BLOCKFS_SST], 3 * LP_MIB + 5);
	lpi_fs_teardown(&bench);
}

static void test_pread_ranges(void **state)
{
	(void)state;
	struct lpi_fs_bench bench;
	struct lp_blockfs_reader *reader = NULL;
	static _Alignas(4096) uint8_t buf[2 * 1048576];
	struct lp_prng prng;
	lp_prng_init(&prng, 4);
	lpi_fs_setup_mem(&bench, 8, 16);
	uint64_t size = 2 * LP_MIB + 777;
	lp_test_ok(lpi_fs_put(bench.fs, "x", 3, size));
	lp_test_ok(lp_blockfs_open_reader(bench.fs, "x", &reader));
	for (int i = 0; i < 300; i++) {
		uint64_t got = 0;
		uint64_t len = lp_prng_below(&prng, UINT64_C(1) << lp_prng_below(&prng, 20)) + 1;
		uint64_t offset = lp_prng_below(&prng, size + 10);
		uint64_t shift = lp_prng_below(&prng, 2);
		if (lp_prng_chance(&prng, 1, 4)) {
			offset = lp_align_down(offset, 4096);
			len = lp_align_up(len, 4096);
			shift = 0;
		}
		lp_test_ok(lp_blockfs_pread(reader, buf + shift, len, offset, &got));
		assert_int_equal(got, offset >= size ? 0 : LP_MIN(len, size - offset));
		for (uint64_t k = 0; k < got; k++)
			assert_int_equal(buf[shift + k], lpi_fs_byte(3, offset + k));
	}
	lp_blockfs_close_reader(reader);
	lpi_fs_teardown(&bench);
}

/* Reads what was put off; false: nothing could be planned. */
static bool read_planned(struct lp_fetch *fetch, uint8_t *blocks)
{
	assert_true(fetch->was_put_off);
	assert_null(fetch->data);
	if (fetch->block_cnt == 0)
		return false;
	assert_true(fetch->block_cnt <= LP_FETCH_BLOCKS);
	lp_test_ok(lp_bdev_read_sync(fetch->bdev, blocks, fetch->block_cnt * LP_BLOCK_BYTES,
				     fetch->device_bytes));
	return true;
}

/* A read that was put off gives what a blocking one does, and only to the file it is of. */
static void test_fetches(void **state)
{
	(void)state;
	struct lpi_fs_bench bench;
	struct lp_blockfs_reader *reader = NULL;
	struct lp_blockfs_reader *other = NULL;
	static _Alignas(4096) uint8_t blocks[LP_FETCH_BLOCKS * LP_BLOCK_BYTES];
	static uint8_t buf[LP_FETCH_BLOCKS * LP_BLOCK_BYTES];
	const uint64_t size = 2 * LP_MIB + 777;
	struct lp_prng prng;
	uint64_t got = 0;
	int planned = 0;
	lp_prng_init(&prng, 5);
	lpi_fs_setup_mem(&bench, 8, 16);
	lp_test_ok(lpi_fs_put(bench.fs, "x", 3, size));
	lp_test_ok(lpi_fs_put(bench.fs, "y", 4, size));
	lpi_fs_reopen(&bench);
	lp_test_ok(lp_blockfs_open_reader(bench.fs, "x", &reader));
	lp_test_ok(lp_blockfs_open_reader(bench.fs, "y", &other));
	struct lp_fetch fetch = {.block_cnt = 0};
	/* The table of crcs is still on the device. */
	lp_test_err(-EAGAIN, lp_blockfs_pread_fetched(reader, buf, 10, 5000, &fetch));
	assert_false(read_planned(&fetch, blocks));
	lp_test_ok(lp_blockfs_pread(reader, buf, 10, 5000, &got));
	lp_test_ok(lp_blockfs_pread(other, buf, 10, 5000, &got));
	for (int i = 0; i < 300; i++) {
		uint64_t len = lp_prng_between(&prng, 1, sizeof(buf));
		uint64_t offset = lp_prng_below(&prng, size - len);
		fetch = (struct lp_fetch){.block_cnt = 0};
		lp_test_err(-EAGAIN, lp_blockfs_pread_fetched(reader, buf, len, offset, &fetch));
		if (!read_planned(&fetch, blocks))
			continue;
		planned++;
		assert_true(lp_fetch_is_whole(&fetch, blocks));
		fetch.data = blocks;
		lp_test_ok(lp_blockfs_pread_fetched(reader, buf, len, offset, &fetch));
		for (uint64_t k = 0; k < len; k++)
			assert_int_equal(buf[k], lpi_fs_byte(3, offset + k));
		blocks[lp_prng_below(&prng, fetch.block_cnt * LP_BLOCK_BYTES)] ^= 1;
		assert_false(lp_fetch_is_whole(&fetch, blocks));
		/* The same place of another file is none of it. */
		lp_test_err(-EAGAIN, lp_blockfs_pread_fetched(other, buf, len, offset, &fetch));
		assert_true(fetch.was_put_off);
		assert_null(fetch.data);
	}
	assert_true(planned > 250);
	/* More than a fetch holds, and nothing. */
	lp_test_err(-EAGAIN, lp_blockfs_pread_fetched(reader, buf, sizeof(buf), 1, &fetch));
	assert_false(read_planned(&fetch, blocks));
	lp_test_err(-EAGAIN, lp_blockfs_pread_fetched(reader, buf, 0, 1, &fetch));
	assert_false(read_planned(&fetch, blocks));
	lp_blockfs_close_reader(reader);
	lp_blockfs_close_reader(other);
	lpi_fs_teardown(&bench);
}

/* A file that takes the place of another on the device, or its name, is not served with what was
 * read of that (rule L8). */
static void test_fetch_of_a_file_that_is_gone(void **state)
{
	(void)state;
	struct lpi_fs_bench bench;
	struct lp_blockfs_reader *reader = NULL;
	static _Alignas(4096) uint8_t blocks[LP_FETCH_BLOCKS * LP_BLOCK_BYTES];
	uint8_t buf[100];
	struct lp_fetch fetch = {.block_cnt = 0};
	lpi_fs_setup_mem(&bench, 8, 16);
	lp_test_ok(lpi_fs_put(bench.fs, "x", 3, 100000));
	lp_test_ok(lp_blockfs_open_reader(bench.fs, "x", &reader));
	lp_test_err(-EAGAIN, lp_blockfs_pread_fetched(reader, buf, 100, 5000, &fetch));
	assert_true(read_planned(&fetch, blocks));
	assert_true(lp_fetch_is_whole(&fetch, blocks));
	lp_blockfs_close_reader(reader);
	lp_test_ok(lp_blockfs_delete(bench.fs, "x"));
	lp_test_ok(lpi_fs_put(bench.fs, "x", 4, 100000));
	lp_test_ok(lp_blockfs_open_reader(bench.fs, "x", &reader));
	fetch.data = blocks;
	lp_test_err(-EAGAIN, lp_blockfs_pread_fetched(reader, buf, 100, 5000, &fetch));
	assert_true(read_planned(&fetch, blocks));
	fetch.data = blocks;
	lp_test_ok(lp_blockfs_pread_fetched(reader, buf, 100, 5000, &fetch));
	for (uint64_t k = 0; k < sizeof(buf); k++)
		assert_int_equal(buf[k], lpi_fs_byte(4, 5000 + k));
	lp_blockfs_close_reader(reader);
	lpi_fs_teardown(&bench);
}

#define ALL_BYTES 256u

static int count_name(const char *rest, void *arg)
{
	char *all = arg;
	size_t len = strlen(all);
	return snprintf(all + len, ALL_BYTES - len, "%s ", rest) < 0;
}

static int stop_at_first(const char *rest, void *arg)
{
	(void)arg;
	return rest[0] == 'a' ? 7 : 0;
}

static void test_names(void **state)
{
	(void)state;
	struct lpi_fs_bench bench;
	struct lp_blockfs_writer *writer = NULL;
	char all[ALL_BYTES] = "";
	char longest[LP_BLOCKFS_NAME_MAX + 2];
	int64_t mtime = 0;
	lpi_fs_setup_mem(&bench, 8, 16);
	lp_test_ok(lpi_fs_put(bench.fs, "db/b", 1, 10));
	lp_test_ok(lpi_fs_put(bench.fs, "db/a", 2, 20));
	lp_test_ok(lpi_fs_put(bench.fs, "dc", 3, 30));
	lp_test_ok(lp_blockfs_list(bench.fs, "db/", count_name, all));
	assert_string_equal(all, "a b ");
	assert_int_equal(lp_blockfs_list(bench.fs, "db/", stop_at_first, NULL), 7);
	lp_test_err(-EEXIST, lp_blockfs_create(bench.fs, "dc", true, &writer));
	lp_test_err(-EINVAL, lp_blockfs_create(bench.fs, "", true, &writer));
	memset(longest, 'x', sizeof(longest) - 1);
	longest[LP_BLOCKFS_NAME_MAX + 1] = 0;
	lp_test_err(-EINVAL, lp_blockfs_create(bench.fs, longest, true, &writer));
	lp_test_err(-EINVAL, lp_blockfs_rename(bench.fs, "dc", longest));
	lp_test_ok(lp_blockfs_rename(bench.fs, "dc", longest + 1));
	lp_test_err(-ENOENT, lp_blockfs_rename(bench.fs, "dc", "x"));
	lp_test_err(-ENOENT, lp_blockfs_delete(bench.fs, "dc"));
	lp_test_ok(lp_blockfs_rename(bench.fs, "db/a", "db/a"));
	lp_test_ok(lp_blockfs_rename(bench.fs, "db/a", "db/b"));
	lpi_fs_reopen(&bench);
	assert_int_equal(lpi_fs_get(bench.fs, "db/b", 2), 20);
	assert_int_equal(lpi_fs_get(bench.fs, longest + 1, 3), 30);
	lp_test_err(-ENOENT, lp_blockfs_stat(bench.fs, "db/a", NULL, NULL));
	lp_clock_sim_advance_to(&bench.clock, 9000);
	lp_test_ok(lpi_fs_put(bench.fs, "db/b", 5, 5));
	lp_test_ok(lp_blockfs_stat(bench.fs, "db/b", NULL, &mtime));
	assert_int_equal(mtime, lp_clock_wall_ns(&bench.clock.clock));
	lpi_fs_teardown(&bench);
}

static void test_locks(void **state)
{
	(void)state;
	struct lpi_fs_bench bench;
	lpi_fs_setup_mem(&bench, 8, 16);
	lp_test_ok(lp_blockfs_lock(bench.fs, "db/LOCK"));
	lp_test_err(-EAGAIN, lp_blockfs_lock(bench.fs, "db/LOCK"));
	lp_test_ok(lp_blockfs_lock(bench.fs, "db2/LOCK"));
	lp_test_ok(lp_blockfs_unlock(bench.fs, "db/LOCK"));
	lp_test_err(-ENOENT, lp_blockfs_unlock(bench.fs, "db/LOCK"));
	lp_test_ok(lp_blockfs_lock(bench.fs, "db/LOCK"));
	lp_test_err(-ENOENT, lp_blockfs_stat(bench.fs, "db/LOCK", NULL, NULL));
	lpi_fs_teardown(&bench);
}

/* Data stays while anybody has it open, and its blocks are nobody else's until then. */
static void test_delete_open(void **state)
{
	(void)state;
	struct lpi_fs_bench bench;
	struct lp_blockfs_reader *readers[3];
	struct lp_blockfs_writer *writer = NULL;
	static uint8_t buf[300000];
	uint64_t got = 0;
	lpi_fs_setup_mem(&bench, 8, 16);
	const char *names[] = {"deleted", "replaced", "truncated"};
	for (size_t i = 0; i < 3; i++) {
		lp_test_ok(lpi_fs_put(bench.fs, names[i], i, sizeof(buf)));
		lp_test_ok(lp_blockfs_open_reader(bench.fs, names[i], &readers[i]));
	}
	lp_test_ok(lpi_fs_put(bench.fs, "new", 9, 5000));
	lp_test_ok(lp_blockfs_delete(bench.fs, "deleted"));
	lp_test_ok(lp_blockfs_rename(bench.fs, "new", "replaced"));
	lp_test_ok(lpi_fs_put(bench.fs, "truncated", 10, 0));
	lp_test_ok(lpi_fs_put(bench.fs, "more", 11, 2 * LP_MIB));
	lp_test_ok(lp_blockfs_check(bench.fs));
	for (size_t i = 0; i < 3; i++) {
		lp_test_ok(lp_blockfs_pread(readers[i], buf, sizeof(buf), 0, &got));
		assert_int_equal(got, sizeof(buf));
		for (uint64_t k = 0; k < sizeof(buf); k++)
			assert_int_equal(buf[k], lpi_fs_byte(i, k));
	}
	uint64_t used = lpi_fs_stats(bench.fs).used_bytes;
	for (size_t i = 0; i < 3; i++)
		lp_blockfs_close_reader(readers[i]);
	assert_true(lpi_fs_stats(bench.fs).used_bytes <= used - 3 * sizeof(buf));

	/* One that is deleted while being written ends without a trace. */
	lp_test_ok(lp_blockfs_create(bench.fs, "w", true, &writer));
	lp_test_ok(lpi_fs_append(writer, 1, 100000));
	lp_test_ok(lp_blockfs_sync(writer));
	lp_test_ok(lp_blockfs_delete(bench.fs, "w"));
	lp_test_ok(lpi_fs_append(writer, 1, 2 * LP_MIB));
	lp_test_ok(lp_blockfs_check(bench.fs));
	lp_test_ok(lp_blockfs_sync(writer));
	lp_test_ok(lp_blockfs_finish(writer));
	lp_test_err(-ENOENT, lp_blockfs_stat(bench.fs, "w", NULL, NULL));
	lpi_fs_reopen(&bench);
	assert_int_equal(lpi_fs_stats(bench.fs).file_cnt, 3);
	lpi_fs_teardown(&bench);
}

/* --- Space ----------------------------------------------------------------------------------- */

static uint32_t leased(struct lp_chunks *chunks)
{
	struct lp_chunks_stats stats;
	lp_chunks_stats(chunks, &stats);
	return stats.cnt[LP_CHUNK_USE_FILES];
}

/* Full: the append fails, what was published stays, deletes work, and then it is writable. */
static void test_full(void **state)
{
	(void)state;
	struct lpi_fs_bench bench;
	lpi_fs_setup_mem(&bench, 4, 16);
	lp_test_ok(lpi_fs_put(bench.fs, "a", 1, 2 * LP_MIB));
	for (int round = 0; round < 5; round++) {
		struct lp_blockfs_writer *writer = NULL;
		lp_test_ok(lp_blockfs_create(bench.fs, "b", false, &writer));
		lp_test_ok(lpi_fs_append(writer, 2, 9999));
		lp_test_ok(lp_blockfs_sync(writer));
		lp_test_err(-ENOSPC, lpi_fs_append(writer, 2, 5 * LP_MIB));
		lp_test_err(-ENOSPC, lp_blockfs_sync(writer));
		lp_test_err(-ENOSPC, lp_blockfs_finish(writer));
		lp_test_ok(lp_blockfs_check(bench.fs));
		assert_int_equal(lpi_fs_get(bench.fs, "a", 1), 2 * LP_MIB);
		assert_int_equal(lpi_fs_get(bench.fs, "b", 2), 9999);
		lp_test_ok(lp_blockfs_delete(bench.fs, "b"));
		/* With the crc table this needs the very last blocks. */
		lp_test_ok(lpi_fs_put(bench.fs, "c", 3, 2 * LP_MIB - 8 * LP_KIB));
		lp_test_ok(lp_blockfs_delete(bench.fs, "c"));
		lpi_fs_reopen(&bench);
	}
	assert_false(lpi_fs_stats(bench.fs).failed);
	lpi_fs_teardown(&bench);
}

/* A journal that could not describe more files refuses them; deletes and all else go on. */
static void test_journal_full(void **state)
{
	(void)state;
	struct lpi_fs_bench bench;
	char name[64];
	uint32_t cnt = 0;
	int err = 0;
	lpi_fs_setup_mem(&bench, 4, 16);
	for (; cnt < 10000 && err == 0; cnt += err == 0) {
		(void)snprintf(name, sizeof(name), "file-with-a-rather-long-name-%u", cnt);
		err = lpi_fs_put(bench.fs, name, cnt, 500);
	}
	lp_test_err(-ENOSPC, err);
	assert_in_range(cnt, 50, 200);
	lp_test_ok(lp_blockfs_rename(bench.fs, "file-with-a-rather-long-name-1", "short"));
	lpi_fs_reopen(&bench);
	for (uint32_t i = 2; i < cnt; i++) {
		(void)snprintf(name, sizeof(name), "file-with-a-rather-long-name-%u", i);
		assert_int_equal(lpi_fs_get(bench.fs, name, i), 500);
		lp_test_ok(lp_blockfs_delete(bench.fs, name));
	}
	lp_test_ok(lpi_fs_put(bench.fs, "again", 1, 500));
	lpi_fs_teardown(&bench);
}

/* Rules L8, S5: chunks are leased ahead for the reserve, and given back when empty. */
static void test_reserve(void **state)
{
	(void)state;
	struct lpi_fs_bench bench;
	lpi_fs_setup_mem(&bench, 20, 16);
	assert_int_equal(leased(bench.data_chunks), 0);
	bench.options.reserve_bytes = 3 * LP_MIB;
	lpi_fs_reopen(&bench);
	assert_int_equal(leased(bench.data_chunks), 3);
	lp_test_ok(lpi_fs_put(bench.fs, "a", 1, 6 * LP_MIB));
	assert_true(lpi_fs_stats(bench.fs).free_bytes >= 3 * LP_MIB);
	assert_in_range(leased(bench.data_chunks), 9, 11);
	lp_test_ok(lp_blockfs_delete(bench.fs, "a"));
	assert_in_range(leased(bench.data_chunks), 3, 5);
	/* Whoever takes all else leaves the reserve to the files. */
	uint32_t idx = 0;
	while (lp_chunks_lease(bench.data_chunks, 1, LP_CHUNK_USE_OBJECTS, 0, &idx) == 0)
		continue;
	lp_test_ok(lpi_fs_put(bench.fs, "b", 2, 2 * LP_MIB));
	struct lp_blockfs_stats stats = lpi_fs_stats(bench.fs);
	assert_true(stats.free_bytes < stats.reserve_bytes);
	lpi_fs_teardown(&bench);
}

static void test_spill(void **state)
{
	(void)state;
	struct lpi_fs_bench bench;
	struct lp_bdev *data = NULL;
	struct lp_bdev *db = NULL;
	lp_test_ok(lp_bdev_open_mem(LP_FS_BLOCKS(4) * LP_BLOCK_BYTES, 4096, &data));
	lp_test_ok(lp_bdev_open_mem(LP_FS_BLOCKS(4) * LP_BLOCK_BYTES, 4096, &db));
	lpi_fs_setup(&bench, data, db, 16);
	lp_test_ok(lpi_fs_put(bench.fs, "fits", 1, 3 * LP_MIB));
	assert_int_equal(lpi_fs_stats(bench.fs).spilled_bytes, 0);
	assert_int_equal(leased(bench.data_chunks), 0);
	lp_test_ok(lpi_fs_put(bench.fs, "spills", 2, 3 * LP_MIB));
	struct lp_blockfs_stats stats = lpi_fs_stats(bench.fs);
	assert_in_range(stats.spilled_bytes, 2 * LP_MIB, 2 * LP_MIB + 8 * LP_KIB);
	assert_true(stats.spill_cnt > 0);
	lpi_fs_reopen(&bench);
	assert_int_equal(lpi_fs_get(bench.fs, "fits", 1), 3 * LP_MIB);
	assert_int_equal(lpi_fs_get(bench.fs, "spills", 2), 3 * LP_MIB);
	lp_test_ok(lp_blockfs_delete(bench.fs, "spills"));
	assert_int_equal(lpi_fs_stats(bench.fs).spilled_bytes, 0);
	lpi_fs_teardown(&bench);
}

/* Free space in crumbs: large units fall back to blocks, and the file is right. */
static void test_fragmented(void **state)
{
	(void)state;
	struct lpi_fs_bench bench;
	char name[32];
	lpi_fs_setup_mem(&bench, 2, 100);
	for (unsigned i = 0; i < 500; i++) {
		(void)snprintf(name, sizeof(name), "%u", i);
		lp_test_ok(lpi_fs_put(bench.fs, name, i, 4096));
	}
	for (unsigned i = 0; i < 500; i += 2) {
		(void)snprintf(name, sizeof(name), "%u", i);
		lp_test_ok(lp_blockfs_delete(bench.fs, name));
	}
	lp_test_ok(lpi_fs_put(bench.fs, "crumbs", 7, 960 * LP_KIB));
	lpi_fs_reopen(&bench);
	assert_int_equal(lpi_fs_get(bench.fs, "crumbs", 7), 960 * LP_KIB);
	lpi_fs_teardown(&bench);
}

/* --- The barrier ------------------------------------------------------------------------------ */

struct barrier {
	unsigned cnt;
	int err;
};

static int barrier_wait(void *arg)
{
	struct barrier *barrier = arg;
	barrier->cnt++;
	return barrier->err;
}

/* Rule L4: nothing of a MANIFEST is taken before the barrier, and its error is the append's. */
static void test_barrier(void **state)
{
	(void)state;
	struct lpi_fs_bench bench;
	struct barrier barrier = {.cnt = 0};
	struct lp_blockfs_writer *writer = NULL;
	lpi_fs_setup_mem(&bench, 8, 16);
	lp_blockfs_set_manifest_barrier(bench.fs, barrier_wait, &barrier);
	lp_test_ok(lpi_fs_put(bench.fs, "db/000001.sst", 1, 5000));
	lp_test_ok(lpi_fs_put(bench.fs, "MANIFEST/000001.sst", 1, 5000));
	assert_int_equal(barrier.cnt, 0);
	lp_test_ok(lp_blockfs_create(bench.fs, "db/MANIFEST-000002", true, &writer));
	lp_test_ok(lpi_fs_append(writer, 2, 10));
	assert_int_equal(barrier.cnt, 1);
	lp_test_ok(lp_blockfs_sync(writer));
	assert_int_equal(barrier.cnt, 2);
	barrier.err = -EIO;
	uint64_t frames = lpi_fs_stats(bench.fs).frame_cnt;
	lp_test_err(-EIO, lpi_fs_append(writer, 2, 10));
	lp_test_err(-EIO, lp_blockfs_finish(writer));
	assert_int_equal(lpi_fs_stats(bench.fs).frame_cnt, frames);
	assert_int_equal(lpi_fs_get(bench.fs, "db/MANIFEST-000002", 2), 10);
	assert_false(lpi_fs_stats(bench.fs).failed);

	barrier.err = 0;
	lp_test_ok(lp_blockfs_create(bench.fs, "MANIFEST-3", true, &writer));
	lp_test_ok(lpi_fs_append(writer, 3, 10));
	barrier.err = -ECANCELED;
	lp_test_err(-ECANCELED, lp_blockfs_sync(writer));
	lp_blockfs_abandon(writer);
	assert_int_equal(lpi_fs_get(bench.fs, "MANIFEST-3", 3), 0);
	lpi_fs_teardown(&bench);
}

/* --- Failing devices -------------------------------------------------------------------------- */

static void fs_setup_sim(struct lpi_fs_bench *bench, uint32_t chunk_cnt, uint64_t seed)
{
	lpi_fs_setup(bench,
		     lpi_disk_sim(LP_FS_BLOCKS(chunk_cnt) * LP_BLOCK_BYTES,
				  (enum lp_sim_preset)(seed % LP_SIM_PRESET_CNT), seed),
		     NULL, 16);
}

static void fail_next(struct lpi_fs_bench *bench, unsigned opcode_mask, uint64_t offset,
		      uint64_t len)
{
	struct lp_sim_rule rule = {.fault = LP_SIM_EIO,
				   .opcode_mask = opcode_mask,
				   .offset_bytes = offset,
				   .length_bytes = len,
				   .fire_cnt = 1};
	(void)lp_sim_rule_add(lp_sim_of(bench->data), &rule);
}

/* After a failed flush or journal write all changes are refused, reads are not; reopening shows
 * what had been acknowledged (as rule L7). */
static void test_failed(void **state)
{
	(void)state;
	for (int kind = 0; kind < 2; kind++) {
		struct lpi_fs_bench bench;
		struct lp_blockfs_writer *writer = NULL;
		struct lp_blockfs_writer *other = NULL;
		fs_setup_sim(&bench, 8, 1);
		lp_test_ok(lpi_fs_put(bench.fs, "kept", 1, 70000));
		lp_test_ok(lp_blockfs_create(bench.fs, "other", true, &other));
		lp_test_ok(lpi_fs_append(other, 3, 70000));
		lp_test_ok(lp_blockfs_create(bench.fs, "lost", true, &writer));
		lp_test_ok(lpi_fs_append(writer, 2, 200000));
		fail_next(&bench,
			  kind == 0 ? LP_SIM_OP(LP_BDEV_FLUSH) : LP_SIM_OP(LP_BDEV_WRITE_THROUGH),
			  0, LP_MIB);
		lp_test_err(-EIO, lp_blockfs_sync(writer));
		lp_test_err(-EIO, lp_blockfs_sync(writer));
		lp_test_err(-EIO, lp_blockfs_finish(writer));
		lp_test_err(-EIO, lp_blockfs_sync(other));
		lp_blockfs_abandon(other);
		lp_test_err(-EIO, lp_blockfs_create(bench.fs, "x", true, &writer));
		lp_test_err(-EIO, lp_blockfs_delete(bench.fs, "kept"));
		lp_test_err(-EIO, lp_blockfs_rename(bench.fs, "kept", "x"));
		assert_int_equal(lpi_fs_get(bench.fs, "kept", 1), 70000);
		assert_true(lpi_fs_stats(bench.fs).failed);
		lpi_fs_close(&bench);
		lp_test_ok(lpi_fs_try_open(&bench));
		assert_int_equal(lpi_fs_get(bench.fs, "kept", 1), 70000);
		int64_t size = lpi_fs_get(bench.fs, "lost", 2);
		assert_true(size == 0 || size == 200000);
		lp_test_ok(lpi_fs_put(bench.fs, "x", 4, 100));
		lpi_fs_teardown(&bench);
	}
}

/* Another user's flush of the device fails, and may have dropped what a writer here has written and
 * not flushed yet: its own flush succeeds, but is not believed (rule L7). */
static void test_a_foreign_flush_fails(void **state)
{
	(void)state;
	struct lpi_fs_bench bench;
	static _Alignas(LP_BLOCK_BYTES) uint8_t block[LP_BLOCK_BYTES];
	/* A write-through may be one that is a flush, too. */
	for (int kind = 0; kind < 3; kind++) {
		struct lp_blockfs_writer *writer = NULL;
		fs_setup_sim(&bench, 8, 1);
		uint64_t free_block = lp_bdev_caps(bench.data)->size_bytes - LP_BLOCK_BYTES;
		bench.data->caps.through_flushes = kind == 1;
		lp_test_ok(lpi_fs_put(bench.fs, "kept", 1, 70000));
		lp_test_ok(lp_blockfs_create(bench.fs, "lost", true, &writer));
		lp_test_ok(lpi_fs_append(writer, 2, 2 * LP_MIB));
		fail_next(&bench, LP_SIM_OP(kind == 0 ? LP_BDEV_FLUSH : LP_BDEV_WRITE_THROUGH), 0,
			  0);
		assert_int_equal(kind == 0 ? lp_bdev_flush_sync(bench.data)
					   : lp_bdev_write_sync(bench.data, block, sizeof(block),
								free_block, true),
				 -EIO);
		if (kind == 2) {
			lp_test_ok(lp_blockfs_sync(writer));
			lp_blockfs_abandon(writer);
			lpi_fs_teardown(&bench);
			continue;
		}
		lp_test_err(-EIO, lp_blockfs_sync(writer));
		lp_blockfs_abandon(writer);
		assert_true(lpi_fs_stats(bench.fs).failed);
		lpi_fs_close(&bench);
		lp_test_ok(lpi_fs_try_open(&bench));
		assert_int_equal(lpi_fs_get(bench.fs, "kept", 1), 70000);
		assert_int_equal(lpi_fs_get(bench.fs, "lost", 2), 0);
		lp_test_ok(lpi_fs_put(bench.fs, "x", 4, 2 * LP_MIB));
		lpi_fs_teardown(&bench);
	}
}

/* A chunk is given back, and one of the two copies of the table cannot be written: after the next
 * opening it may be anybody's, so nothing is kept in it until then. */
static void test_failed_return(void **state)
{
	(void)state;
	for (uint32_t skip = 0; skip < 2; skip++) {
		struct lpi_fs_bench bench;
		char name[] = "0";
		fs_setup_sim(&bench, 8, 1);
		uint64_t slot_bytes = bench.label.table_slot_blocks * LP_BLOCK_BYTES;
		lp_test_ok(lpi_fs_put(bench.fs, "a", 1, 4 * LP_MIB));
		uint32_t before = leased(bench.data_chunks);
		const struct lp_sim_rule rule = {.fault = LP_SIM_EIO,
						 .offset_bytes =
							 bench.label.table_block * LP_BLOCK_BYTES,
						 .length_bytes = 2 * slot_bytes,
						 .skip_cnt = skip,
						 .fire_cnt = 1};
		uint32_t number = lp_sim_rule_add(lp_sim_of(bench.data), &rule);
		lp_test_ok(lp_blockfs_delete(bench.fs, "a"));
		assert_int_equal(lp_sim_rule_fired(lp_sim_of(bench.data), number), 1);
		assert_int_equal(leased(bench.data_chunks), before);
		while (lpi_fs_put(bench.fs, name, (uint64_t)name[0], 500000) == 0)
			name[0]++;
		assert_true(name[0] > '2');
		lpi_fs_close(&bench);
		lp_test_ok(lpi_fs_try_open(&bench));
		while (name[0]-- > '0')
			assert_int_equal(lpi_fs_get(bench.fs, name, (uint64_t)name[0]), 500000);
		lpi_fs_teardown(&bench);
	}
}

/* A data write that fails concerns its writer only. */
static void test_failed_data(void **state)
{
	(void)state;
	struct lpi_fs_bench bench;
	struct lp_blockfs_writer *writer = NULL;
	fs_setup_sim(&bench, 8, 1);
	lp_test_ok(lp_blockfs_create(bench.fs, "a", true, &writer));
	fail_next(&bench, LP_SIM_OP(LP_BDEV_WRITE), 256 * UINT64_C(4096), 0);
	lp_test_err(-EIO, lpi_fs_append(writer, 2, 2 * LP_MIB));
	lp_test_err(-EIO, lp_blockfs_finish(writer));
	lp_test_ok(lp_blockfs_check(bench.fs));
	lp_test_ok(lpi_fs_put(bench.fs, "b", 3, 2 * LP_MIB));
	assert_int_equal(lpi_fs_get(bench.fs, "b", 3), 2 * LP_MIB);
	lpi_fs_teardown(&bench);
}

static void test_read_only(void **state)
{
	(void)state;
	struct lpi_fs_bench bench;
	struct lp_blockfs_writer *writer = NULL;
	lpi_fs_setup_mem(&bench, 8, 16);
	lp_test_ok(lpi_fs_put(bench.fs, "a", 1, 70000));
	bench.options.read_only = true;
	lpi_fs_reopen(&bench);
	assert_int_equal(lpi_fs_get(bench.fs, "a", 1), 70000);
	lp_test_err(-EROFS, lp_blockfs_create(bench.fs, "b", true, &writer));
	lp_test_err(-EROFS, lp_blockfs_delete(bench.fs, "a"));
	lp_test_err(-EROFS, lp_blockfs_rename(bench.fs, "a", "b"));
	lpi_fs_teardown(&bench);
}

/* --- Threads --------------------------------------------------------------------------------- */

struct worker {
	pthread_t thread;
	struct lp_blockfs *fs;
	unsigned idx;
};

static void *worker_run(void *arg)
{
	struct worker *worker = arg;
	char name[32];
	char other[32];
	for (unsigned i = 0; i < 25; i++) {
		uint64_t seed = worker->idx * 1000 + i;
		(void)snprintf(name, sizeof(name), "%u/%u.sst", worker->idx, i);
		(void)snprintf(other, sizeof(other), "%u/%u.sst", worker->idx, i / 2);
		lp_test_ok(lpi_fs_put(worker->fs, name, seed, seed % 7 * 50000));
		assert_int_equal(lpi_fs_get(worker->fs, name, seed), seed % 7 * 50000);
		/* Read by others, too, while names and journal change below them. */
		(void)snprintf(other, sizeof(other), "%u/%u.sst", (worker->idx + 1) % 4, i / 2);
		int64_t size = lpi_fs_get(worker->fs, other, (worker->idx + 1) % 4 * 1000 + i / 2);
		assert_true(size >= 0 || size == -ENOENT);
		if (i % 3 == 0)
			lp_test_ok(lp_blockfs_delete(worker->fs, name));
		else if (i % 3 == 1)
			lp_test_ok(lp_blockfs_rename(worker->fs, name, "common"));
	}
	return NULL;
}

static void test_threads(void **state)
{
	(void)state;
	struct lpi_fs_bench bench;
	struct worker workers[4];
	lpi_fs_setup_mem(&bench, 30, 16);
	bench.options.reserve_bytes = 2 * LP_MIB;
	lpi_fs_reopen(&bench);
	for (unsigned i = 0; i < 4; i++) {
		workers[i] = (struct worker){.fs = bench.fs, .idx = i};
		assert_int_equal(pthread_create(&workers[i].thread, NULL, worker_run, &workers[i]),
				 0);
	}
	for (unsigned i = 0; i < 4; i++)
		assert_int_equal(pthread_join(workers[i].thread, NULL), 0);
	assert_true(lpi_fs_stats(bench.fs).snapshot_cnt > 0);
	lpi_fs_reopen(&bench);
	assert_int_equal(lpi_fs_stats(bench.fs).file_cnt, 4 * 8 + 1);
	lpi_fs_teardown(&bench);
}

/* --- Who only looks --------------------------------------------------------------------------- */

static struct {
	const struct lp_bdev_kind *kind;
	struct lp_bdev_kind held_kind;
	uint64_t begin_bytes; /* a write between these waits */
	uint64_t end_bytes;
	struct lp_blockfs *fs;
	_Atomic bool is_held;
	_Atomic bool is_let_go;
	_Atomic bool has_looked;
} hold;

static void nap(void)
{
	const struct timespec pause = {.tv_nsec = 1000000};
	(void)nanosleep(&pause, NULL);
}

static int held_sync(struct lp_bdev *bdev, enum lp_bdev_opcode opcode, void *buf,
		     uint64_t length_bytes, uint64_t offset_bytes)
{
	bool is_write = opcode == LP_BDEV_WRITE || opcode == LP_BDEV_WRITE_THROUGH;
	if (is_write && offset_bytes >= hold.begin_bytes && offset_bytes < hold.end_bytes) {
		hold.is_held = true;
		while (!hold.is_let_go)
			nap();
	}
	return hold.kind->sync(bdev, opcode, buf, length_bytes, offset_bytes);
}

static void *delete_run(void *arg)
{
	lp_test_ok(lp_blockfs_delete(hold.fs, arg));
	return NULL;
}

static void *look_run(void *arg)
{
	*(struct lp_blockfs_stats *)arg = lpi_fs_stats(hold.fs);
	hold.has_looked = true;
	return NULL;
}

/* While a chunk is given back, which waits for the device, the shard's thread may look. */
static void test_stats_wait_for_no_device(void **state)
{
	(void)state;
	enum { NAPS_MAX = 5000 };
	struct lpi_fs_bench bench;
	struct lp_blockfs_stats stats;
	char name[] = "a";
	pthread_t changer;
	pthread_t looker;
	lpi_fs_setup_mem(&bench, 8, 16);
	lp_test_ok(lpi_fs_put(bench.fs, name, 1, 4 * LP_MIB));
	struct lp_blockfs_stats before = lpi_fs_stats(bench.fs);
	hold.fs = bench.fs;
	hold.kind = bench.data->kind;
	hold.held_kind = *bench.data->kind;
	hold.held_kind.sync = held_sync;
	hold.begin_bytes = bench.label.table_block * LP_BLOCK_BYTES;
	hold.end_bytes =
		hold.begin_bytes + UINT64_C(2) * bench.label.table_slot_blocks * LP_BLOCK_BYTES;
	bench.data->kind = &hold.held_kind;
	assert_int_equal(pthread_create(&changer, NULL, delete_run, name), 0);
	for (int i = 0; i < NAPS_MAX && !hold.is_held; i++)
		nap();
	assert_true(hold.is_held);
	assert_int_equal(pthread_create(&looker, NULL, look_run, &stats), 0);
	for (int i = 0; i < NAPS_MAX && !hold.has_looked; i++)
		nap();
	bool has_looked = hold.has_looked;
	hold.is_let_go = true;
	assert_int_equal(pthread_join(changer, NULL), 0);
	assert_int_equal(pthread_join(looker, NULL), 0);
	assert_true(has_looked);
	assert_true(stats.used_bytes <= before.used_bytes);
	assert_true(lpi_fs_stats(bench.fs).used_bytes < before.used_bytes);
	bench.data->kind = hold.kind;
	lpi_fs_teardown(&bench);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_sizes),
		cmocka_unit_test(test_published_only),
		cmocka_unit_test(test_tables),
		cmocka_unit_test(test_cost_of_sync),
		cmocka_unit_test(test_pread_ranges),
		cmocka_unit_test(test_fetches),
		cmocka_unit_test(test_fetch_of_a_file_that_is_gone),
		cmocka_unit_test(test_names),
		cmocka_unit_test(test_locks),
		cmocka_unit_test(test_delete_open),
		cmocka_unit_test(test_full),
		cmocka_unit_test(test_journal_full),
		cmocka_unit_test(test_reserve),
		cmocka_unit_test(test_spill),
		cmocka_unit_test(test_fragmented),
		cmocka_unit_test(test_barrier),
		cmocka_unit_test(test_failed),
		cmocka_unit_test(test_a_foreign_flush_fails),
		cmocka_unit_test(test_failed_data),
		cmocka_unit_test(test_read_only),
		cmocka_unit_test(test_threads),
		cmocka_unit_test(test_failed_return),
		cmocka_unit_test(test_stats_wait_for_no_device),
	};
	return lp_test_main(tests, "blockfs");
}
