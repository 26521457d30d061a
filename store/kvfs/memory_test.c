/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: the files in memory behave as struct lp_kvfs_ops promises, fail when told to, and keep at a
 * restart exactly what had been synced (or, torn, some prefix beyond it).
 * Method: the operations called directly, without RocksDB. */
#include "base/testing/test.h"

#include "store/kvfs/memory.h"

static struct lp_kvfs_mem *mem;
static struct lp_kvfs *fs;

static int set_up(void **state)
{
	(void)state;
	lp_test_ok(lp_kvfs_mem_new(5, &mem));
	fs = lp_kvfs_mem_fs(mem);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	lp_kvfs_mem_free(mem);
	return 0;
}

static void make_file(const char *name, const char *synced, const char *rest)
{
	struct lp_kvfs_file *file;
	lp_test_ok(fs->ops->create(fs, name, &file));
	lp_test_ok(fs->ops->append(file, synced, strlen(synced)));
	lp_test_ok(fs->ops->sync(file));
	lp_test_ok(fs->ops->append(file, rest, strlen(rest)));
	lp_test_ok(fs->ops->close(file));
}

static void expect(const char *name, const char *content)
{
	struct lp_kvfs_file *file;
	struct lp_kvfs_stat stat;
	char buf[64];
	lp_test_ok(fs->ops->open(fs, name, &file));
	assert_int_equal(fs->ops->pread(file, buf, sizeof(buf), 0), strlen(content));
	assert_memory_equal(buf, content, strlen(content));
	assert_int_equal(fs->ops->pread(file, buf, 1, 100), 0);
	lp_test_ok(fs->ops->close(file));
	lp_test_ok(fs->ops->stat(fs, name, &stat));
	assert_int_equal(stat.size_bytes, strlen(content));
}

static int count_names(const char *name, void *arg)
{
	assert_true(name[0] != '\0');
	return ++*(int *)arg == 3 ? -ECANCELED : 0;
}

static void test_names(void **state)
{
	(void)state;
	struct lp_kvfs_file *file;
	struct lp_kvfs_stat stat;
	int cnt = 0;
	char buf[8];
	make_file("a", "one", "");
	make_file("b", "two", "more");
	make_file("a", "three", ""); /* replaces */
	expect("a", "three");
	expect("b", "twomore");
	lp_test_ok(fs->ops->open(fs, "b", &file));
	lp_test_ok(fs->ops->rename(fs, "a", "b"));
	expect("b", "three");
	assert_int_equal(fs->ops->pread(file, buf, 3, 0), 3); /* the old one, to its end */
	assert_memory_equal(buf, "two", 3);
	lp_test_ok(fs->ops->close(file));
	lp_test_err(-ENOENT, fs->ops->stat(fs, "a", &stat));
	lp_test_err(-ENOENT, fs->ops->open(fs, "a", &file));
	lp_test_err(-ENOENT, fs->ops->remove(fs, "a"));
	lp_test_err(-ENOENT, fs->ops->rename(fs, "a", "c"));
	make_file("c", "", "");
	make_file("d", "", "");
	lp_test_err(-ECANCELED, fs->ops->list(fs, count_names, &cnt));
	lp_test_ok(fs->ops->remove(fs, "d"));
	cnt = 0;
	lp_test_ok(fs->ops->list(fs, count_names, &cnt));
	assert_int_equal(cnt, 2);
	lp_kvfs_mem_free(NULL);
}

static void test_restart_keeps_what_was_synced(void **state)
{
	(void)state;
	make_file("000001.sst", "kept", "lost");
	make_file("000002.sst", "whole", "");
	lp_kvfs_mem_restart(mem, false);
	expect("000001.sst", "kept");
	expect("000002.sst", "whole");
	bool seen[5] = {false};
	for (int i = 0; i < 200; i++) {
		struct lp_kvfs_stat stat;
		make_file("t", "kept", "lost");
		lp_kvfs_mem_restart(mem, true);
		lp_test_ok(fs->ops->stat(fs, "t", &stat));
		assert_true(stat.size_bytes >= 4 && stat.size_bytes <= 8);
		seen[stat.size_bytes - 4] = true;
	}
	for (int i = 0; i < 5; i++)
		assert_true(seen[i]);
}

static void test_faults_hit_what_they_name(void **state)
{
	(void)state;
	struct lp_kvfs_file *table;
	struct lp_kvfs_file *other;
	struct lp_kvfs_mem_stats stats;
	lp_test_ok(fs->ops->create(fs, "000001.sst", &table));
	lp_test_ok(fs->ops->create(fs, "CURRENT", &other));
	const struct lp_kvfs_mem_fault fault = {.ops = LP_KVFS_MEM_APPEND | LP_KVFS_MEM_SYNC,
						.kinds = 1u << LP_KVFS_TABLE,
						.skip = 1,
						.times = 2,
						.err = -ENOSPC};
	lp_kvfs_mem_set_fault(mem, &fault);
	lp_test_ok(fs->ops->append(other, "x", 1));
	lp_test_ok(fs->ops->append(table, "x", 1));
	lp_test_err(-ENOSPC, fs->ops->append(table, "y", 1));
	lp_test_ok(fs->ops->sync(other));
	lp_test_err(-ENOSPC, fs->ops->sync(table));
	lp_test_ok(fs->ops->append(table, "z", 1));
	lp_test_ok(fs->ops->close(table));
	lp_test_ok(fs->ops->close(other));
	expect("000001.sst", "xz");
	lp_kvfs_mem_read_stats(mem, &stats);
	assert_int_equal(stats.failed, 2);
	assert_int_equal(stats.files, 2);
	assert_int_equal(stats.live_bytes, 3);
}

static void test_without_power_nothing_happens(void **state)
{
	(void)state;
	struct lp_kvfs_file *file;
	lp_test_ok(fs->ops->create(fs, "a", &file));
	lp_kvfs_mem_cut_after(mem, 2);
	lp_test_ok(fs->ops->append(file, "x", 1));
	lp_test_ok(fs->ops->sync(file));
	assert_false(lp_kvfs_mem_is_cut(mem));
	lp_test_err(-EIO, fs->ops->append(file, "y", 1));
	assert_true(lp_kvfs_mem_is_cut(mem));
	lp_test_err(-EIO, fs->ops->sync(file));
	lp_test_err(-EIO, fs->ops->remove(fs, "a"));
	lp_test_ok(fs->ops->close(file));
	lp_kvfs_mem_restart(mem, true);
	expect("a", "x");
}

static void test_kinds(void **state)
{
	(void)state;
	assert_int_equal(lp_kvfs_kind_of("000123.sst"), LP_KVFS_TABLE);
	assert_int_equal(lp_kvfs_kind_of("MANIFEST-000001"), LP_KVFS_MANIFEST);
	assert_int_equal(lp_kvfs_kind_of("000004.log"), LP_KVFS_WAL);
	assert_int_equal(lp_kvfs_kind_of("CURRENT"), LP_KVFS_OTHER);
	assert_int_equal(lp_kvfs_kind_of("sst"), LP_KVFS_OTHER);
	assert_int_equal(lp_kvfs_kind_of(""), LP_KVFS_OTHER);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_names),
		TEST(test_restart_keeps_what_was_synced),
		TEST(test_faults_hit_what_they_name),
		TEST(test_without_power_nothing_happens),
		TEST(test_kinds),
	};
	return lp_test_main(tests, "kvfs_mem");
}
