/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: what is made, replaced and removed is seen as in one file system, and the files below stay
 * as they are, byte for byte and name for name.
 * Method: the operations called directly, over files in memory whose hash of operations tells
 * whether anything but reading came to them; then an index opened, written and flushed on top. */
#include "store/index/kv_rig_test.h"

#include "store/kvfs/read_only.h"

static struct lp_kvfs_mem *below;
static struct lp_kvfs *lower;
static struct lp_kvfs_ro *ro;
static struct lp_kvfs *fs;

static void make_file(struct lp_kvfs *where, const char *name, const char *content)
{
	struct lp_kvfs_file *file;
	lp_test_ok(where->ops->create(where, name, &file));
	assert_ptr_equal(file->fs, where);
	lp_test_ok(where->ops->append(file, content, strlen(content)));
	lp_test_ok(where->ops->sync(file));
	lp_test_ok(where->ops->close(file));
}

static int set_up(void **state)
{
	(void)state;
	lp_test_ok(lp_kvfs_mem_new(5, &below));
	lower = lp_kvfs_mem_fs(below);
	make_file(lower, "one", "below one");
	make_file(lower, "two", "below two");
	lp_test_ok(lp_kvfs_ro_new(lower, &ro));
	fs = lp_kvfs_ro_fs(ro);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	lp_kvfs_ro_free(ro);
	lp_kvfs_mem_free(below);
	return 0;
}

static uint64_t changes_below(void)
{
	struct lp_kvfs_mem_stats stats;
	lp_kvfs_mem_read_stats(below, &stats);
	return stats.changes;
}

static void expect(const char *name, const char *content)
{
	struct lp_kvfs_file *file;
	struct lp_kvfs_stat stat;
	char buf[64];
	if (content == NULL) {
		lp_test_err(-ENOENT, fs->ops->open(fs, name, &file));
		lp_test_err(-ENOENT, fs->ops->stat(fs, name, &stat));
		return;
	}
	lp_test_ok(fs->ops->open(fs, name, &file));
	assert_ptr_equal(file->fs, fs);
	assert_int_equal(fs->ops->pread(file, buf, sizeof(buf), 0), strlen(content));
	assert_memory_equal(buf, content, strlen(content));
	lp_test_ok(fs->ops->close(file));
	lp_test_ok(fs->ops->stat(fs, name, &stat));
	assert_int_equal(stat.size_bytes, strlen(content));
}

struct names {
	uint32_t cnt;
	char all[64]; /* first letters, in any order */
	int stop_after;
};

static int collect(const char *name, void *arg)
{
	struct names *names = arg;
	names->all[names->cnt++] = name[0];
	return --names->stop_after == 0 ? -ECANCELED : 0;
}

static void expect_names(const char *letters)
{
	struct names names = {.cnt = 0};
	lp_test_ok(fs->ops->list(fs, collect, &names));
	assert_int_equal(names.cnt, strlen(letters));
	for (const char *letter = letters; *letter != 0; letter++)
		assert_non_null(memchr(names.all, *letter, names.cnt));
}

static void test_layers(void **state)
{
	(void)state;
	uint64_t before = changes_below();
	expect("one", "below one");
	expect_names("ot");
	make_file(fs, "three", "above three");
	expect("three", "above three");
	make_file(fs, "one", "above one"); /* replaced */
	expect("one", "above one");
	/* Both layers have "two", then neither. */
	make_file(fs, "two", "above two");
	expect_names("ott");
	lp_test_ok(fs->ops->remove(fs, "two"));
	expect("two", NULL);
	lp_test_err(-ENOENT, fs->ops->remove(fs, "two"));
	expect_names("ot");
	make_file(fs, "two", "again");
	expect("two", "again");
	lp_test_ok(fs->ops->remove(fs, "two"));
	expect("two", NULL);
	assert_int_equal(changes_below(), before);
}

static void test_rename(void **state)
{
	(void)state;
	make_file(fs, "new", "new two");
	lp_test_ok(fs->ops->rename(fs, "new", "two")); /* as RocksDB does with CURRENT */
	expect("two", "new two");
	expect("new", NULL);
	expect_names("ot");
	make_file(fs, "one", "new one"); /* left over below from an opening that was cut off */
	lp_test_ok(fs->ops->rename(fs, "one", "two"));
	expect("two", "new one");
	expect("one", NULL);
	expect_names("t");
	lp_test_err(-ENOENT, fs->ops->rename(fs, "none", "two"));
	make_file(lower, "one", "below one");
	expect("one", NULL); /* still hidden */
	lp_kvfs_ro_free(ro);
	lp_test_ok(lp_kvfs_ro_new(lower, &ro));
	fs = lp_kvfs_ro_fs(ro);
	uint64_t before = changes_below();
	lp_test_err(-EROFS, fs->ops->rename(fs, "one", "other"));
	expect("one", "below one");
	expect("other", NULL);
	assert_int_equal(changes_below(), before);
}

static void test_listing_stops(void **state)
{
	(void)state;
	make_file(fs, "above", "");
	for (int after = 1; after <= 3; after++) {
		struct names names = {.stop_after = after};
		lp_test_err(-ECANCELED, fs->ops->list(fs, collect, &names));
		assert_int_equal(names.cnt, after);
	}
}

/* An open file stays readable when its name is gone. */
static void test_removed_while_open(void **state)
{
	(void)state;
	struct lp_kvfs_file *file;
	char buf[16];
	lp_test_ok(fs->ops->open(fs, "one", &file));
	lp_test_ok(fs->ops->remove(fs, "one"));
	assert_int_equal(fs->ops->pread(file, buf, sizeof(buf), 6), 3);
	assert_memory_equal(buf, "one", 3);
	lp_test_ok(fs->ops->close(file));
	expect("one", NULL);
}

static void write_some(struct lp_test_kv *kv, const char *value)
{
	for (int i = 0; i < 200; i++) {
		char key[16];
		(void)snprintf(key, sizeof(key), "k%03d", i);
		lp_test_ok(lp_test_kv_put(kv, key, value));
	}
}

/* The whole of an index: opened, written to, flushed, and nothing of it below. */
static void test_index_on_top(void **state)
{
	(void)state;
	struct lp_test_kv kv;
	struct lp_kvfs_ro *top = NULL;
	lp_test_kv_init(&kv, true, 1);
	lp_test_kv_open(&kv);
	write_some(&kv, "old");
	lp_test_ok(lp_kv_flush_wait(kv.kv));
	lp_test_kv_close(&kv);
	struct lp_kvfs_mem_stats before;
	struct lp_kvfs_mem_stats after;
	lp_kvfs_mem_read_stats(kv.mem, &before);
	lp_test_ok(lp_kvfs_ro_new(lp_kvfs_mem_fs(kv.mem), &top));
	kv.options.fs = lp_kvfs_ro_fs(top);
	kv.options.create = false;
	kv.options.no_compaction = true;
	lp_test_kv_open(&kv);
	lp_test_kv_expect(&kv, "k100", "old");
	/* More tables than would begin a compaction, or stall writes. */
	for (int i = 0; i < 20; i++) {
		write_some(&kv, i == 19 ? "new" : "between");
		lp_test_ok(lp_kv_flush_wait(kv.kv));
	}
	lp_test_kv_expect(&kv, "k100", "new");
	struct lp_kv_stats stats;
	lp_kv_read_stats(kv.kv, &stats);
	assert_int_equal(stats.compact_cnt, 0);
	assert_true(stats.l0_files >= 20);
	lp_test_kv_close(&kv);
	lp_kvfs_ro_free(top);
	lp_kvfs_mem_read_stats(kv.mem, &after);
	assert_int_equal(after.changes, before.changes);
	kv.options.fs = lp_kvfs_mem_fs(kv.mem);
	lp_test_kv_open(&kv);
	lp_test_kv_expect(&kv, "k100", "old");
	lp_test_kv_fini(&kv);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_layers, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_rename, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_listing_stops, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_removed_while_open, set_up, tear_down),
		cmocka_unit_test(test_index_on_top),
	};
	return lp_test_main(tests, "store/kvfs/read_only");
}
