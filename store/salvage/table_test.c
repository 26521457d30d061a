/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: of a damaged table all records are read but those of the damaged block, and none that was
 * never written.
 * Method: a table that the index has made, with one bit flipped at places all over it, its end cut
 * off, and bytes in front of it. The values say what their keys are. */
#include "store/index/kv_rig_test.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/prng.h"
#include "store/salvage/flipped_bit.h"
#include "store/salvage/table.h"

#define RECORDS    600u
#define FLIPS      300u
#define FOOTER     53u
#define BLOCK_MOST 160u /* records in one block of 4 KiB, more than there are */

static struct lp_test_kv test;
static uint8_t *table;
static size_t table_len;
static char table_name[64];

/* Counts records; each must be one that was written. */
struct counter {
	struct lp_salvage_visitor visitor;
	uint32_t values;
	uint32_t deletions;
	bool seen[RECORDS];
};

static int count(struct lp_salvage_visitor *visitor, const struct lp_salvage_record *record)
{
	struct counter *counter = LP_CONTAINER_OF(visitor, struct counter, visitor);
	char key[32] = "";
	char value[96];
	assert_true(record->key.len < sizeof(key));
	memcpy(key, record->key.data, record->key.len);
	unsigned number = (unsigned)strtoul(key + strlen("record-"), NULL, 10);
	assert_true(number < RECORDS && !counter->seen[number]);
	counter->seen[number] = true;
	counter->deletions += record->is_deletion;
	counter->values += !record->is_deletion;
	if (record->is_deletion)
		return 0;
	(void)snprintf(value, sizeof(value), "what record-%05u has", number);
	assert_int_equal(record->value.len, strlen(value));
	assert_memory_equal(record->value.data, value, record->value.len);
	return 0;
}

static struct counter scan(const uint8_t *bytes, size_t len)
{
	struct counter counter = {.visitor = {.record = count}};
	struct lp_salvage_table_report report = {.blocks = 0};
	lp_test_ok(lp_salvage_table_scan(bytes, len, &counter.visitor, &report));
	assert_int_equal(report.records, counter.values + counter.deletions);
	return counter;
}

static int note_table(const char *name, void *arg)
{
	(void)arg;
	if (lp_kvfs_kind_of(name) == LP_KVFS_TABLE)
		(void)snprintf(table_name, sizeof(table_name), "%s", name);
	return 0;
}

static int set_up(void **state)
{
	struct lp_kvfs_stat stat;
	struct lp_kvfs_file *file = NULL;
	char key[32];
	char value[96];
	(void)state;
	lp_test_kv_init(&test, false, 1);
	test.options.write_buffer_bytes = UINT64_C(4) << 20;
	lp_test_kv_open(&test);
	for (unsigned i = 0; i < RECORDS; i++) {
		(void)snprintf(key, sizeof(key), "record-%05u", i);
		(void)snprintf(value, sizeof(value), "what record-%05u has", i);
		lp_test_ok(lp_test_kv_put(&test, key, value));
	}
	lp_test_ok(lp_kv_flush_wait(test.kv));
	struct lp_kvfs *fs = lp_kvfs_mem_fs(test.mem);
	lp_test_ok(fs->ops->list(fs, note_table, NULL));
	lp_test_ok(fs->ops->stat(fs, table_name, &stat));
	table_len = stat.size_bytes;
	table = malloc(table_len);
	assert_non_null(table);
	lp_test_ok(fs->ops->open(fs, table_name, &file));
	assert_int_equal(file->fs->ops->pread(file, table, table_len, 0), table_len);
	lp_test_ok(fs->ops->close(file));
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	free(table);
	lp_test_kv_fini(&test);
	return 0;
}

static void test_whole(void **state)
{
	(void)state;
	assert_int_equal(scan(table, table_len).values, RECORDS);
}

static void test_one_bit(void **state)
{
	struct lp_prng prng;
	(void)state;
	lp_prng_init(&prng, 34);
	for (unsigned i = 0; i < FLIPS; i++) {
		uint64_t bit = lp_prng_below(&prng, table_len * 8);
		lp_mend_flip(table, bit);
		struct counter counter = scan(table, table_len);
		assert_true(counter.values >= RECORDS - BLOCK_MOST && counter.deletions == 0);
		lp_mend_flip(table, bit);
	}
}

/* Without footer, index block and filter, and not from the first byte on. */
static void test_pieces(void **state)
{
	(void)state;
	assert_int_equal(scan(table, table_len / 2).deletions, 0);
	assert_true(scan(table, table_len / 2).values >= RECORDS / 3);
	assert_true(scan(table + 7, table_len - 7).values >= RECORDS - BLOCK_MOST);
	assert_int_equal(scan(table, 0).values, 0);
}

/* The library's own checksums, by which a bit that was found is judged before it is written back:
 * each bit of a table is below one of them, but for those at its end that say nothing. */
static void test_library_sees_each_bit(void **state)
{
	struct lp_kvfs *fs = lp_kvfs_mem_fs(test.mem);
	struct lp_kvfs_file *file = NULL;
	struct lp_prng prng;
	unsigned seen = 0;
	(void)state;
	lp_prng_init(&prng, 9);
	for (unsigned i = 0; i < FLIPS; i++) {
		/* A third of them in the last blocks, which say where all else is. */
		uint64_t bits = i % 3 == 0 ? 16000 : table_len * 8;
		uint64_t bit = table_len * 8 - 1 - lp_prng_below(&prng, bits);
		if (i > 0)
			lp_mend_flip(table, bit);
		lp_test_ok(fs->ops->create(fs, "900000.sst", &file));
		lp_test_ok(fs->ops->append(file, table, table_len));
		lp_test_ok(fs->ops->sync(file));
		lp_test_ok(fs->ops->close(file));
		int err = lp_kv_check_table(fs, "900000.sst");
		if (i == 0)
			lp_test_ok(err);
		bool is_in_footer = bit >= (table_len - FOOTER) * 8;
		seen += err < 0 || (is_in_footer && i > 0);
		if (i > 0)
			lp_mend_flip(table, bit);
	}
	assert_int_equal(seen, FLIPS - 1);
	lp_test_ok(fs->ops->remove(fs, "900000.sst"));
	assert_true(lp_kv_check_table(fs, "900000.sst") < 0);
}

/* Bytes that look like entries of a block everywhere, and never end one: each byte is gone over a
 * bounded number of times. Without the bound this takes hours. */
static void test_entries_without_end(void **state)
{
	static const uint8_t entry[12] = {0, 9, 0, 'k', 1, 1, 1, 1, 1, 1, 1, 1};
	const size_t len = (size_t)32 << 20;
	uint8_t *bytes = malloc(len);
	(void)state;
	assert_non_null(bytes);
	for (size_t i = 0; i < len; i++)
		bytes[i] = entry[i % sizeof(entry)];
	assert_int_equal(scan(bytes, len).values, 0);
	free(bytes);
}

static int refuse(struct lp_salvage_visitor *visitor, const struct lp_salvage_record *record)
{
	(void)visitor;
	(void)record;
	return -ECANCELED;
}

static void test_visitor_ends_it(void **state)
{
	struct lp_salvage_visitor visitor = {.record = refuse};
	struct lp_salvage_table_report report = {.blocks = 0};
	(void)state;
	lp_test_err(-ECANCELED, lp_salvage_table_scan(table, table_len, &visitor, &report));
	assert_int_equal(report.records, 1);
}

/* A table's own format, whatever the bytes: nothing beyond them is read (the sanitizers see it). */
static void test_any_bytes(void **state)
{
	struct lp_prng prng;
	uint8_t *bytes = malloc(512);
	(void)state;
	assert_non_null(bytes);
	lp_prng_init(&prng, 35);
	for (unsigned i = 0; i < 2000; i++) {
		for (unsigned j = 0; j < 512; j++)
			bytes[j] = (uint8_t)lp_prng_below(&prng, i % 2 == 0 ? 256 : 24);
		struct counter counter = scan(bytes, 512);
		assert_int_equal(counter.values + counter.deletions, 0);
	}
	free(bytes);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_whole),
		cmocka_unit_test(test_one_bit),
		cmocka_unit_test(test_pieces),
		cmocka_unit_test(test_library_sees_each_bit),
		cmocka_unit_test(test_entries_without_end),
		cmocka_unit_test(test_visitor_ends_it),
		cmocka_unit_test(test_any_bytes),
	};
	return lp_test_main_with(tests, "store/salvage/table", set_up, tear_down);
}
