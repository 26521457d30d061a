/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: buffers are aligned and disjoint, references keep them, slabs become whole again, an
 * empty region says so, and one that is shown to others is theirs to read and no more.
 * Method: a random run in which each buffer is filled with its own number, and the number is
 * checked before it is put back. */
#include "base/test.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/buf.h"
#include "base/prng.h"
#include "base/test_death.h"

#define MIB (UINT64_C(1) << 20)

static void test_sizes_and_alignment(void **state)
{
	(void)state;
	static const struct {
		uint32_t want;
		uint32_t got;
	} cases[] = {{1, LP_BUF_SMALL},      {4096, LP_BUF_SMALL},  {4097, LP_BUF_MEDIUM},
		     {65536, LP_BUF_MEDIUM}, {65537, LP_BUF_LARGE}, {1048576, LP_BUF_LARGE}};
	struct lp_bufs *bufs = NULL;
	lp_test_ok(lp_bufs_new(4 * MIB, &bufs));
	for (size_t i = 0; i < LP_ARRAY_SIZE(cases); i++) {
		struct lp_buf *buf = lp_buf_new(bufs, cases[i].want);
		assert_non_null(buf);
		assert_int_equal(buf->bytes, cases[i].got);
		assert_true(lp_is_aligned((uintptr_t)buf->data, cases[i].got));
		lp_buf_put(buf);
	}
	lp_bufs_free(bufs);
}

static void test_empty_region_and_reuse_by_another_class(void **state)
{
	(void)state;
	struct lp_bufs *bufs = NULL;
	struct lp_buf *small[2 * 256];
	struct lp_bufs_stats stats;
	lp_test_ok(lp_bufs_new(2 * MIB + 5, &bufs));
	for (size_t i = 0; i < LP_ARRAY_SIZE(small); i++) {
		small[i] = lp_buf_new(bufs, LP_BUF_SMALL);
		assert_non_null(small[i]);
	}
	assert_null(lp_buf_new(bufs, LP_BUF_SMALL));
	assert_null(lp_buf_new(bufs, LP_BUF_LARGE));
	lp_bufs_read_stats(bufs, &stats);
	assert_int_equal(stats.failed_cnt, 2);
	assert_int_equal(stats.used_bytes, 2 * MIB);
	for (size_t i = 0; i < LP_ARRAY_SIZE(small); i++)
		lp_buf_put(small[i]);
	struct lp_buf *a = lp_buf_new(bufs, LP_BUF_LARGE);
	struct lp_buf *b = lp_buf_new(bufs, LP_BUF_LARGE);
	assert_non_null(a);
	assert_non_null(b);
	lp_buf_put(a);
	lp_buf_put(b);
	lp_bufs_free(bufs);
}

static void test_references(void **state)
{
	(void)state;
	struct lp_bufs *bufs = NULL;
	struct lp_bufs_stats stats;
	lp_test_ok(lp_bufs_new(MIB, &bufs));
	struct lp_buf *buf = lp_buf_new(bufs, 10);
	assert_ptr_equal(lp_buf_get(buf), buf);
	lp_buf_put(buf);
	lp_bufs_read_stats(bufs, &stats);
	assert_int_equal(stats.used_bytes, LP_BUF_SMALL);
	buf->data[0] = 1; /* still ours */
	lp_buf_put(buf);
	lp_buf_put(NULL);
	lp_bufs_read_stats(bufs, &stats);
	assert_int_equal(stats.used_bytes, 0);
	lp_bufs_free(bufs);
}

/* However the region is cut up, those who take and give back the same number again and again have
 * the same buffers, which the processor's caches have too. */
static void test_what_was_given_back_is_had_next(void **state)
{
	(void)state;
	enum { SLABS = 4, ALL = SLABS * 256, TAKEN = 100 };
	struct lp_bufs *bufs = NULL;
	struct lp_buf *held[ALL];
	struct lp_buf *first[TAKEN];
	struct lp_buf *taken[TAKEN];
	lp_test_ok(lp_bufs_new(SLABS * MIB, &bufs));
	for (int i = 0; i < ALL; i++)
		held[i] = lp_buf_new(bufs, LP_BUF_SMALL);
	for (int i = 0; i < ALL; i += 2)
		lp_buf_put(held[i]);
	for (int i = 0; i < TAKEN; i++)
		first[i] = lp_buf_new(bufs, LP_BUF_SMALL);
	for (int round = 0; round < 10; round++) {
		for (int i = 0; i < TAKEN; i++)
			lp_buf_put(round == 0 ? first[i] : taken[i]);
		for (int i = 0; i < TAKEN; i++)
			taken[i] = lp_buf_new(bufs, LP_BUF_SMALL);
	}
	for (int i = 0; i < TAKEN; i++) {
		bool is_known = false;
		for (int k = 0; k < TAKEN; k++)
			is_known = is_known || taken[i] == first[k];
		assert_true(is_known);
		lp_buf_put(taken[i]);
	}
	for (int i = 1; i < ALL; i += 2)
		lp_buf_put(held[i]);
	lp_bufs_free(bufs);
}

static void free_with_buffer_out(void *arg)
{
	struct lp_bufs *bufs = arg;
	struct lp_buf *leaked = lp_buf_new(bufs, 1);
	assert_non_null(leaked);
	lp_bufs_free(bufs);
}

static void test_leak_is_noticed(void **state)
{
	(void)state;
	struct lp_bufs *bufs = NULL;
	lp_test_ok(lp_bufs_new(MIB, &bufs));
	lp_test_dies(free_with_buffer_out, bufs);
	lp_bufs_free(bufs);
}

static void fill(const struct lp_buf *buf, uint32_t number)
{
	for (uint32_t at = 0; at < buf->bytes; at += 4096)
		memcpy(buf->data + at, &number, sizeof(number));
}

static void check(const struct lp_buf *buf, uint32_t number)
{
	for (uint32_t at = 0; at < buf->bytes; at += 4096)
		assert_memory_equal(buf->data + at, &number, sizeof(number));
}

static void test_random_run(void **state)
{
	(void)state;
	enum { HELD = 200 };
	struct lp_buf *held[HELD] = {NULL};
	struct lp_bufs *bufs = NULL;
	struct lp_prng prng;
	lp_prng_init(&prng, 3);
	lp_test_ok(lp_bufs_new(16 * MIB, &bufs));
	for (int step = 0; step < 50000; step++) {
		uint32_t i = (uint32_t)lp_prng_below(&prng, HELD);
		if (held[i] != NULL) {
			check(held[i], i);
			lp_buf_put(held[i]);
			held[i] = NULL;
			continue;
		}
		uint32_t shift = (uint32_t)lp_prng_below(&prng, 21);
		held[i] = lp_buf_new(bufs, UINT32_C(1) << shift);
		if (held[i] != NULL)
			fill(held[i], i);
	}
	for (uint32_t i = 0; i < HELD; i++)
		lp_buf_put(held[i]);
	/* All slabs are whole again. */
	struct lp_buf *large[16];
	for (size_t i = 0; i < LP_ARRAY_SIZE(large); i++) {
		large[i] = lp_buf_new(bufs, LP_BUF_LARGE);
		assert_non_null(large[i]);
	}
	for (size_t i = 0; i < LP_ARRAY_SIZE(large); i++)
		lp_buf_put(large[i]);
	lp_bufs_free(bufs);
}

/* What one process writes another one reads, and can do nothing else with; and it keeps nothing. */
static void test_shared(void **state)
{
	(void)state;
	struct lp_bufs *bufs = NULL;
	int fd = -1;
	lp_test_ok(lp_bufs_new_shared(2 * MIB + 1, &bufs, &fd));
	uint64_t bytes = 0;
	const uint8_t *region = lp_bufs_region(bufs, &bytes);
	assert_int_equal(bytes, 2 * MIB);
	struct lp_buf *buf = lp_buf_new(bufs, LP_BUF_LARGE);
	assert_non_null(buf);
	assert_true(lp_is_aligned((uintptr_t)buf->data, LP_BUF_LARGE));
	size_t at = (size_t)(buf->data - region);
	memset(buf->data, 0x5a, LP_BUF_LARGE);
	uint8_t *seen = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0);
	assert_true(seen != MAP_FAILED);
	for (size_t i = 0; i < LP_BUF_LARGE; i += 511)
		assert_int_equal(seen[at + i], 0x5a);

	assert_int_equal(mprotect(seen, bytes, PROT_READ | PROT_WRITE), -1);
	assert_true(mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED);
	assert_int_equal(write(fd, "x", 1), -1);
	assert_int_equal(ftruncate(fd, 0), -1);
	assert_int_equal(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096), -1);
	assert_int_equal(madvise(seen, bytes, MADV_REMOVE), -1);
	struct stat stat;
	assert_int_equal(fstat(fd, &stat), 0);
	assert_int_equal(stat.st_mode & 07777, 0400);
	assert_true(stat.st_blocks > 0);

	lp_buf_put(buf);
	lp_bufs_free(bufs);
	assert_int_equal(fstat(fd, &stat), 0);
	assert_int_equal(stat.st_size, 2 * MIB);
	assert_int_equal(stat.st_blocks, 0);
	assert_int_equal(seen[at], 0);
	assert_int_equal(munmap(seen, bytes), 0);
	assert_int_equal(close(fd), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_sizes_and_alignment),
		cmocka_unit_test(test_empty_region_and_reuse_by_another_class),
		cmocka_unit_test(test_references),
		cmocka_unit_test(test_what_was_given_back_is_had_next),
		cmocka_unit_test(test_leak_is_noticed),
		cmocka_unit_test(test_random_run),
		cmocka_unit_test(test_shared),
	};
	return lp_test_main(tests, "base/buf");
}
