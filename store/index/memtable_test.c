/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: memtables hold what was put into them, in the order of the bytes of the keys and newest
 * first, for who reads while it is written, too; those that are large enough are in huge pages; the
 * memory of one that was flushed is that of the next one; and where there is none the batch stays
 * whole, and nobody waits for ever.
 * Method: random records beside an array that has them all; threads that read behind one that
 * writes; what the kernel says of this process's memory, if it knows huge pages at all; an
 * aligned_alloc() of our own, which counts and fails. */
#include "store/index/kv_rig_test.h"

#include <pthread.h>
#include <sys/mman.h>

#include "base/memory/huge.h"
#include "base/prng.h"
#include "base/sanitize.h"

#define MIB UINT64_C(1048576)

static struct lp_test_kv test;

/* --- Memory ------------------------------------------------------------------------------------
 */

#define SMALL_CHUNK 16384u /* of small memtables */

static _Atomic uint64_t chunks_made;
static _Atomic bool is_short;

/* In place of the C library's: nobody else here asks for as much as a chunk in this way. */
void *lp_test_aligned_alloc(size_t alignment, size_t size) __asm__("aligned_alloc");

void *lp_test_aligned_alloc(size_t alignment, size_t size)
{
	void *memory = NULL;
	if (size >= SMALL_CHUNK && is_short)
		return NULL;
	chunks_made += size >= SMALL_CHUNK;
	return posix_memalign(&memory, alignment, size) == 0 ? memory : NULL;
}

/* Bytes of this process for which huge pages were asked for. */
static uint64_t marked_bytes(void)
{
	char line[512];
	uint64_t sum = 0;
	unsigned long long size = 0;
	FILE *maps = fopen("/proc/self/smaps", "r");
	assert_non_null(maps);
	while (fgets(line, sizeof(line), maps) != NULL) {
		char *end = NULL;
		unsigned long long begin = strtoull(line, &end, 16);
		if (end != line && *end == '-')
			size = strtoull(end + 1, NULL, 16) - begin;
		else if (strncmp(line, "VmFlags:", 8) == 0 && strstr(line, " hg") != NULL)
			sum += size;
	}
	(void)fclose(maps);
	return sum;
}

static bool can_be_seen(void)
{
	const size_t bytes = 2 * (size_t)LP_HUGE_BYTES;
	void *memory =
		mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_ptr_not_equal(memory, MAP_FAILED);
	uint64_t before = marked_bytes();
	(void)lp_huge_advise(memory, bytes);
	bool is_seen = marked_bytes() > before;
	assert_int_equal(munmap(memory, bytes), 0);
#if LP_SAN_ADDRESS || LP_SAN_THREAD
	is_seen = false; /* their memory is their own */
#endif
	return is_seen;
}

static void open_with(uint64_t write_buffer_bytes)
{
	lp_test_kv_init(&test, false, 1);
	test.options.write_buffer_bytes = write_buffer_bytes;
	lp_test_kv_open(&test);
}

static void put_some(uint32_t cnt)
{
	static char value[1000];
	memset(value, 'v', sizeof(value) - 1);
	for (uint32_t i = 0; i < cnt; i++) {
		char key[16];
		(void)snprintf(key, sizeof(key), "k%08u", i * 7919 % cnt);
		int err = -EAGAIN;
		while (err == -EAGAIN) /* tables are being written */
			err = lp_test_kv_put(&test, key, value);
		lp_test_ok(err);
	}
	for (uint32_t i = 0; i < cnt; i++) {
		char key[16];
		(void)snprintf(key, sizeof(key), "k%08u", i);
		lp_test_kv_expect(&test, key, value);
	}
	lp_test_kv_expect(&test, "k", NULL);
}

static void test_large(void **state)
{
	(void)state;
	uint64_t before = marked_bytes();
	open_with(16 * MIB);
	put_some(4000);
	if (can_be_seen())
		assert_true(marked_bytes() >= before + 2 * LP_HUGE_BYTES);
	put_some(40000);
	lp_test_kv_fini(&test);
}

static void test_small(void **state)
{
	(void)state;
	uint64_t before = marked_bytes();
	open_with(MIB);
	put_some(4000);
	assert_int_equal(marked_bytes(), before);
	lp_test_kv_fini(&test);
}

static uint64_t memtable_bytes(void)
{
	struct lp_kv_stats stats;
	lp_kv_read_stats(test.kv, &stats);
	return stats.memtable_bytes;
}

/* Makes a table of them, and frees their memory. */
static void flush(void)
{
	lp_test_ok(lp_kv_flush_wait(test.kv));
	lp_test_kv_run_all(&test);
}

/* A memtable is full when so much went into it. */
static void test_memory_is_kept(void **state)
{
	(void)state;
	lp_test_kv_init(&test, true, 1);
	test.options.write_buffer_bytes = 16 * (uint64_t)SMALL_CHUNK;
	test.options.no_compaction = true;
	lp_test_kv_open(&test);
	uint64_t empty = memtable_bytes();
	put_some(200);
	flush();
	uint64_t made = chunks_made;
	uint64_t kept = memtable_bytes() - empty;
	assert_true(kept >= UINT64_C(200) * 1000);
	for (int round = 0; round < 6; round++) {
		put_some(200);
		flush();
	}
	assert_int_equal(chunks_made, made);
	/* Several that wait, and go at once: what one has is kept. */
	put_some(600);
	flush();
	assert_true(chunks_made > made);
	assert_true(memtable_bytes() <= empty + test.options.write_buffer_bytes);
	/* Until it is dropped; then it is made again. */
	uint64_t full = memtable_bytes();
	made = chunks_made;
	uint64_t dropped = lp_kv_drop_kept(test.kv);
	assert_true(dropped > 0);
	assert_int_equal(memtable_bytes(), full - dropped);
	assert_int_equal(lp_kv_drop_kept(test.kv), 0);
	put_some(200);
	assert_true(chunks_made > made);
	lp_test_kv_fini(&test);
}

/* RocksDB is left in the middle of a write. */
static void test_memory_is_short(void **state)
{
	(void)state;
	static char value[6000];
	static uint8_t before[4 * sizeof(value)];
	lp_test_kv_init(&test, true, 1);
	lp_test_kv_open(&test);
	memset(value, 'v', sizeof(value));
	lp_test_ok(lp_test_kv_put(&test, "a", "1"));
	lp_kv_batch_clear(test.batch);
	for (int i = 0; i < 3; i++) {
		char key[] = {(char)('b' + i), '\0'};
		lp_test_ok(lp_kv_batch_put(test.batch, lp_test_text(key),
					   (struct lp_kv_bytes){value, sizeof(value)}));
	}
	struct lp_kv_bytes data = lp_kv_batch_data(test.batch);
	size_t len = data.len;
	memcpy(before, data.data, len);
	is_short = true;
	lp_test_err(-ENOMEM, lp_kv_write(test.kv, test.batch));
	is_short = false;
	data = lp_kv_batch_data(test.batch);
	assert_int_equal(data.len, len);
	assert_memory_equal((const uint8_t *)data.data + 8, before + 8, len - 8);
	assert_int_equal(lp_kv_batch_cnt(test.batch), 3);
	/* None of these waits for that write to end. */
	lp_test_err(-ENOMEM, lp_kv_write(test.kv, test.batch));
	lp_test_err(-ENOMEM, lp_kv_flush(test.kv));
	lp_test_err(-ENOMEM, lp_kv_flush_wait(test.kv));
	lp_test_err(-ENOMEM, lp_kv_resume(test.kv));
	lp_test_err(-ENOMEM, lp_kv_error(test.kv));
	lp_test_kv_expect(&test, "a", "1");
	lp_kv_batch_clear(test.batch);
	lp_test_ok(lp_kv_batch_put(test.batch, lp_test_text("e"), lp_test_text("5")));
	lp_test_kv_fini(&test);
}

/* --- Order -------------------------------------------------------------------------------------
 */

#define KEYS 2000u

/* Keys of which many begin in the same way, or are the beginning of another. */
static struct lp_kv_bytes key_of(uint32_t number, uint8_t *buf)
{
	struct lp_prng prng;
	size_t len = 1 + number % 40;
	lp_prng_init(&prng, number);
	memset(buf, 0xff, 200);
	buf[0] = (uint8_t)(number % 3);
	for (size_t i = len / 2; i < len; i++)
		buf[i] = (uint8_t)(lp_prng_below(&prng, 3) * 127);
	buf[len] = (uint8_t)(number >> 8);
	buf[len + 1] = (uint8_t)number;
	len += 2;
	/* Longer than what one byte says the length of. */
	if (number % 7 == 0)
		len += 120;
	return (struct lp_kv_bytes){buf, len};
}

static int by_bytes(const void *a, const void *b)
{
	uint8_t a_buf[200];
	uint8_t b_buf[200];
	struct lp_kv_bytes x = key_of(*(const uint32_t *)a, a_buf);
	struct lp_kv_bytes y = key_of(*(const uint32_t *)b, b_buf);
	int order = memcmp(x.data, y.data, LP_MIN(x.len, y.len));
	return order != 0 ? order : (x.len > y.len) - (x.len < y.len);
}

static void expect_at(struct lp_kv_iter *iter, uint32_t number)
{
	uint8_t buf[200];
	struct lp_kv_bytes want = key_of(number, buf);
	struct lp_kv_bytes got = lp_kv_iter_key(iter);
	assert_int_equal(got.len, want.len);
	assert_memory_equal(got.data, want.data, want.len);
}

/* Those that are there, in order, from both sides; and what is found by looking for each, and for
 * those that are not there. */
static void check_order(const uint32_t *sorted, const bool *is_there)
{
	const struct lp_kv_bytes none = {0};
	struct lp_kv_iter *iter = NULL;
	uint8_t buf[200];
	lp_test_ok(lp_kv_iter_open(test.kv, none, none, true, &iter));
	int err = lp_kv_iter_seek_first(iter);
	for (uint32_t i = 0; i < KEYS; i++) {
		if (!is_there[sorted[i]])
			continue;
		lp_test_ok(err);
		expect_at(iter, sorted[i]);
		err = lp_kv_iter_next(iter);
	}
	lp_test_err(-ENOENT, err);
	err = lp_kv_iter_seek_last(iter);
	uint32_t behind = KEYS;
	for (uint32_t i = KEYS; i-- > 0;) {
		if (is_there[sorted[i]]) {
			lp_test_ok(err);
			expect_at(iter, sorted[i]);
			err = lp_kv_iter_prev(iter);
		}
	}
	lp_test_err(-ENOENT, err);
	for (uint32_t i = KEYS; i-- > 0;) {
		behind = is_there[sorted[i]] ? i : behind;
		err = lp_kv_iter_seek(iter, key_of(sorted[i], buf));
		lp_test_err(behind < KEYS ? 0 : -ENOENT, err);
		if (behind < KEYS)
			expect_at(iter, sorted[behind]);
	}
	lp_kv_iter_close(iter);
}

static void check_values(const uint32_t *value_of, const bool *is_there)
{
	uint8_t buf[200];
	for (uint32_t i = 0; i < KEYS; i++) {
		struct lp_kv_value got;
		int err = lp_kv_get(test.kv, key_of(i, buf), &got);
		lp_test_err(is_there[i] ? 0 : -ENOENT, err);
		if (err < 0)
			continue;
		assert_int_equal(got.bytes.len, sizeof(uint32_t));
		assert_memory_equal(got.bytes.data, &value_of[i], sizeof(uint32_t));
		lp_kv_value_release(&got);
	}
}

static void change_at_random(struct lp_prng *prng, uint32_t *value_of, bool *is_there)
{
	uint8_t buf[200];
	lp_kv_batch_clear(test.batch);
	/* Some neighbours in either direction, and some anywhere. */
	uint32_t first = (uint32_t)lp_prng_below(prng, KEYS);
	uint32_t step = (uint32_t)lp_prng_below(prng, 3);
	for (uint32_t i = 0; i < 20; i++) {
		uint32_t number = step == 2 ? (uint32_t)lp_prng_below(prng, KEYS)
					    : (first + (step == 0 ? i : KEYS - i)) % KEYS;
		struct lp_kv_bytes key = key_of(number, buf);
		is_there[number] = lp_prng_chance(prng, 4, 5);
		value_of[number] = (uint32_t)lp_prng_u64(prng);
		if (is_there[number])
			lp_test_ok(lp_kv_batch_put(
				test.batch, key,
				(struct lp_kv_bytes){&value_of[number], sizeof(uint32_t)}));
		else
			lp_test_ok(lp_kv_batch_delete(test.batch, key));
	}
	lp_test_ok(lp_kv_write(test.kv, test.batch));
}

static void test_order(void **state)
{
	(void)state;
	static uint32_t sorted[KEYS];
	static uint32_t value_of[KEYS];
	static bool is_there[KEYS];
	struct lp_prng prng;
	lp_prng_init(&prng, 3);
	open_with(16 * MIB);
	for (uint32_t i = 0; i < KEYS; i++)
		sorted[i] = i;
	qsort(sorted, KEYS, sizeof(sorted[0]), by_bytes);
	for (uint32_t round = 0; round < 600; round++) {
		change_at_random(&prng, value_of, is_there);
		if (round % 60 != 59)
			continue;
		check_order(sorted, is_there);
		check_values(value_of, is_there);
	}
	/* And what comes of it in a table. */
	lp_test_ok(lp_kv_flush_wait(test.kv));
	check_values(value_of, is_there);
	lp_test_kv_fini(&test);
}

/* --- Readers -----------------------------------------------------------------------------------
 */

#define READERS 2u
#define WRITTEN 20000u

static _Atomic uint32_t written_cnt;

/* In an order of their own. */
static void name_of(uint32_t i, char (*name)[16])
{
	(void)snprintf(*name, sizeof(*name), "r%08x", i * 2654435761u);
}

/* What was written before is there; and whatever is there is in order. */
static void *read_behind(void *arg)
{
	struct lp_prng prng;
	const struct lp_kv_bytes none = {0};
	char name[16];
	char last[16];
	lp_prng_init(&prng, (uintptr_t)arg);
	for (uint32_t cnt = 0; cnt < WRITTEN;) {
		struct lp_kv_value value;
		struct lp_kv_iter *iter = NULL;
		cnt = atomic_load(&written_cnt);
		for (uint32_t i = 0; i < 50 && cnt > 0; i++) {
			name_of((uint32_t)lp_prng_below(&prng, cnt), &name);
			lp_test_ok(lp_kv_get(test.kv, lp_test_text(name), &value));
			lp_kv_value_release(&value);
		}
		lp_test_ok(lp_kv_iter_open(test.kv, none, none, false, &iter));
		name_of((uint32_t)lp_prng_u64(&prng), &name);
		memcpy(last, name, sizeof(last));
		int err = lp_kv_iter_seek(iter, lp_test_text(name));
		for (uint32_t i = 0; i < 50 && err == 0; i++) {
			struct lp_kv_bytes key = lp_kv_iter_key(iter);
			assert_int_equal(key.len, 9);
			assert_true(memcmp(key.data, last, 9) >= (i > 0));
			memcpy(last, key.data, 9);
			err = i % 5 == 4 ? lp_kv_iter_prev(iter) : lp_kv_iter_next(iter);
			if (i % 5 == 4 && err == 0)
				err = lp_kv_iter_next(iter);
			if (i % 5 == 4 && err == 0)
				err = lp_kv_iter_next(iter);
		}
		lp_kv_iter_close(iter);
	}
	return NULL;
}

static void test_readers(void **state)
{
	(void)state;
	pthread_t threads[READERS];
	open_with(16 * MIB);
	atomic_store(&written_cnt, 0);
	for (uintptr_t i = 0; i < READERS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, read_behind, (void *)(i + 1)),
				 0);
	for (uint32_t i = 0; i < WRITTEN; i++) {
		char name[16];
		name_of(i, &name);
		lp_test_ok(lp_test_kv_put(&test, name, "value"));
		atomic_store(&written_cnt, i + 1);
	}
	for (uint32_t i = 0; i < READERS; i++)
		assert_int_equal(pthread_join(threads[i], NULL), 0);
	lp_test_kv_fini(&test);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_small),          cmocka_unit_test(test_large),
		cmocka_unit_test(test_memory_is_kept), cmocka_unit_test(test_memory_is_short),
		cmocka_unit_test(test_order),          cmocka_unit_test(test_readers),
	};
	return lp_test_main(tests, "kv_table");
}
