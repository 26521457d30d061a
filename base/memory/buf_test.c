/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: buffers are aligned and disjoint, references keep them, slabs become whole again, an empty
 * region is reported, a rank gets the slabs set aside for it, and other processes can only read a
 * shared region.
 * Method: a random run in which each buffer is filled with its own number, and the number is
 * checked before the buffer is put back. */
#include "base/testing/test.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/memory/buf.h"
#include "base/prng.h"
#include "base/testing/test_death.h"

#define MIB (UINT64_C(1) << 20)

static void test_sizes_and_alignment(void **state)
{
	(void)state;
	static const struct {
		uint32_t want;
		uint32_t got;
	} cases[] = {{1, LP_BUF_SMALL},      {4096, LP_BUF_SMALL}, {4097, 8192},
		     {65536, LP_BUF_MEDIUM}, {65537, 131072},      {1048576, LP_BUF_LARGE}};
	struct lp_bufs *bufs = NULL;
	lp_test_ok(lp_bufs_new(4 * MIB, &bufs));
	for (size_t i = 0; i < LP_ARRAY_SIZE(cases); i++) {
		struct lp_buf *buf = lp_buf_new(bufs, cases[i].want);
		assert_non_null(buf);
		assert_int_equal(buf->bytes, cases[i].got);
		assert_int_equal(lp_buf_size(cases[i].want), cases[i].got);
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

/* However the region is cut up, callers that take and give back the same number again and again get
 * the same buffers, which the processor's caches have. */
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

/* Data of any length lies in few buffers that waste little of their room. */
static void test_taking_what_is_needed(void **state)
{
	(void)state;
	enum { MAX = 12 };
	static const struct {
		uint32_t bytes;
		uint32_t skip;
		uint32_t cnt;
		uint32_t used;
	} cases[] = {
		{1, 0, 1, 4096},
		{4096, 1, 1, 8192},
		{65537, 0, 2, 69632},
		{71680, 0, 2, 73728},
		{200 << 10, 0, 3, 200 << 10},
		{1000 << 10, 0, 1, 1 << 20},
		{1 << 20, 0, 1, 1 << 20},
		{4 << 20, 0, 4, 4 << 20},
		{4 << 20, 4095, 5, (4 << 20) + 4096},
	};
	struct lp_bufs *bufs = NULL;
	struct lp_bufs_stats stats;
	struct lp_prng prng;
	lp_prng_init(&prng, 7);
	lp_test_ok(lp_bufs_new(8 * MIB, &bufs));
	for (size_t i = 0; i < 3000; i++) {
		bool is_case = i < LP_ARRAY_SIZE(cases);
		uint32_t bytes = 1 + (uint32_t)lp_prng_below(&prng, 4 << 20);
		uint32_t skip = (uint32_t)lp_prng_below(&prng, 4096);
		struct lp_seg segs[MAX];
		uint64_t sum = 0;
		if (is_case) {
			bytes = cases[i].bytes;
			skip = cases[i].skip;
		}
		uint32_t cnt = lp_bufs_take(bufs, bytes, skip, LP_BUF_REQUEST, segs, MAX);
		lp_bufs_read_stats(bufs, &stats);
		assert_in_range(cnt, 1, MAX);
		if (is_case) {
			assert_int_equal(cnt, cases[i].cnt);
			assert_int_equal(stats.used_bytes, cases[i].used);
		}
		/* At most a seventh of the blocks' bytes is left over. */
		uint64_t blocks_bytes = lp_align_up((uint64_t)bytes + skip, 4096);
		assert_true(stats.used_bytes <= blocks_bytes + blocks_bytes / 7);
		assert_int_equal(segs[0].offset, skip);
		for (uint32_t k = 0; k < cnt; k++) {
			assert_true(segs[k].offset + segs[k].len <= segs[k].buf->bytes);
			assert_true(k == 0 || segs[k].offset == 0);
			/* Blocks of the object lie in one buffer each. */
			assert_true(k + 1 == cnt || (segs[k].offset + segs[k].len) % 4096 == 0);
			sum += segs[k].len;
			lp_buf_put(segs[k].buf);
		}
		assert_int_equal(sum, bytes);
	}
	lp_bufs_free(bufs);
}

/* If large buffers lack, smaller ones are taken. A request that does not fit takes none. */
static void test_taking_what_is_left(void **state)
{
	(void)state;
	struct lp_bufs *bufs = NULL;
	struct lp_bufs_stats stats;
	struct lp_buf *large[4];
	struct lp_seg segs[12];
	lp_test_ok(lp_bufs_new(2 * MIB, &bufs));
	for (size_t i = 0; i < LP_ARRAY_SIZE(large); i++)
		large[i] = lp_buf_new(bufs, 512 << 10);
	lp_buf_put(large[1]);
	lp_buf_put(large[2]);
	uint32_t cnt = lp_bufs_take(bufs, 1 << 20, 0, LP_BUF_REQUEST, segs, 12);
	assert_int_equal(cnt, 2);
	lp_buf_put(segs[1].buf);
	assert_int_equal(lp_bufs_take(bufs, 1 << 20, 0, LP_BUF_REQUEST, segs + 1, 11), 0);
	assert_int_equal(lp_bufs_take(bufs, 512 << 10, 0, LP_BUF_REQUEST, segs + 1, 1), 1);
	lp_buf_put(segs[1].buf);
	lp_buf_put(segs[0].buf);
	lp_buf_put(large[0]);
	lp_buf_put(large[3]);
	lp_bufs_read_stats(bufs, &stats);
	assert_int_equal(stats.used_bytes, 0);
	lp_bufs_free(bufs);
}

/* Rule B1: however many buffers lower ranks have, and wherever they lie, a rank gets the slabs set
 * aside for it, and gets them again after it has given them back. */
static void test_ranks(void **state)
{
	(void)state;
	enum { SLABS = 12, SMALL_MAX = SLABS * 256 };
	struct lp_bufs *bufs = NULL;
	struct lp_buf *low[SMALL_MAX];
	struct lp_buf *high[8];
	struct lp_bufs_stats stats;
	uint32_t low_cnt = 0;
	lp_test_ok(lp_bufs_new(SLABS * MIB, &bufs));
	lp_bufs_reserve(bufs, LP_BUF_CARRY, 2);
	lp_bufs_reserve(bufs, LP_BUF_COPY, 3);
	lp_bufs_read_stats(bufs, &stats);
	assert_int_equal(stats.reserved_bytes, 5 * MIB);
	for (int round = 0; round < 3; round++) {
		/* A high rank has opened slabs that are mostly free. */
		high[0] = lp_buf_new_ranked(bufs, 1, LP_BUF_COPY);
		high[1] = lp_buf_new_ranked(bufs, 1, LP_BUF_CARRY);
		while (low_cnt < SMALL_MAX &&
		       (low[low_cnt] = lp_buf_new(bufs, LP_BUF_SMALL)) != NULL)
			low_cnt++;
		assert_int_equal(low_cnt, (SLABS - 5) * 256);
		assert_null(lp_buf_new_ranked(bufs, LP_BUF_SMALL, LP_BUF_MOUNT));
		lp_buf_put(high[0]);
		lp_buf_put(high[1]);
		assert_null(lp_buf_new(bufs, LP_BUF_SMALL));
		for (int i = 0; i < 2; i++)
			high[i] = lp_buf_new_ranked(bufs, LP_BUF_LARGE, LP_BUF_CARRY);
		assert_non_null(high[1]);
		assert_null(lp_buf_new_ranked(bufs, 1, LP_BUF_CARRY));
		for (int i = 2; i < 5; i++)
			high[i] = lp_buf_new_ranked(bufs, LP_BUF_LARGE, LP_BUF_COPY);
		assert_non_null(high[4]);
		assert_null(lp_buf_new_ranked(bufs, 1, LP_BUF_COPY));
		/* A high rank uses buffers that a low one leaves. */
		lp_buf_put(low[--low_cnt]);
		high[5] = lp_buf_new_ranked(bufs, 1, LP_BUF_COPY);
		assert_non_null(high[5]);
		for (int i = 0; i < 6; i++)
			lp_buf_put(high[i]);
		while (low_cnt > 0)
			lp_buf_put(low[--low_cnt]);
	}
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
	for (unsigned rank = LP_BUF_REQUEST + 1; rank < LP_BUF_RANKS; rank++)
		lp_bufs_reserve(bufs, (enum lp_buf_rank)rank, 1);
	for (int step = 0; step < 50000; step++) {
		uint32_t i = (uint32_t)lp_prng_below(&prng, HELD);
		if (held[i] != NULL) {
			check(held[i], i);
			lp_buf_put(held[i]);
			held[i] = NULL;
			continue;
		}
		uint32_t shift = (uint32_t)lp_prng_below(&prng, 21);
		enum lp_buf_rank rank = (enum lp_buf_rank)lp_prng_below(&prng, LP_BUF_RANKS);
		held[i] = lp_buf_new_ranked(bufs, UINT32_C(1) << shift, rank);
		if (held[i] != NULL)
			fill(held[i], i);
	}
	for (uint32_t i = 0; i < HELD; i++)
		lp_buf_put(held[i]);
	/* All slabs are whole again. */
	struct lp_buf *large[16];
	for (size_t i = 0; i < LP_ARRAY_SIZE(large); i++) {
		large[i] = lp_buf_new_ranked(bufs, LP_BUF_LARGE, LP_BUF_COPY);
		assert_non_null(large[i]);
	}
	for (size_t i = 0; i < LP_ARRAY_SIZE(large); i++)
		lp_buf_put(large[i]);
	lp_bufs_free(bufs);
}

/* Another process can read data that one process writes, and can do nothing else. It keeps no
 * memory. */
/* How many pages of the region have memory. */
static uint64_t resident_pages(const struct lp_bufs *bufs)
{
	uint64_t bytes = 0;
	uint64_t cnt = 0;
	void *region = lp_bufs_region(bufs, &bytes);
	unsigned char *pages = malloc(bytes / 4096);
	assert_non_null(pages);
	assert_int_equal(mincore(region, bytes, pages), 0);
	for (uint64_t i = 0; i < bytes / 4096; i++)
		cnt += pages[i] & 1;
	free(pages);
	return cnt;
}

static void test_the_lowest_slab_is_opened(void **state)
{
	(void)state;
	struct lp_bufs *bufs = NULL;
	struct lp_buf *large[200];
	uint64_t bytes;
	lp_test_ok(lp_bufs_new(200 * MIB, &bufs));
	const uint8_t *region = lp_bufs_region(bufs, &bytes);
	for (uint32_t i = 0; i < 200; i++) {
		large[i] = lp_buf_new(bufs, LP_BUF_LARGE);
		assert_non_null(large[i]);
		assert_ptr_equal(large[i]->data, region + i * MIB);
	}
	assert_null(lp_buf_new(bufs, LP_BUF_LARGE));
	/* In any order back: the lowest of them is the next. */
	static const uint32_t order[] = {63, 3, 64, 150, 199};
	static const uint32_t sorted[] = {3, 63, 64, 150, 199};
	for (uint32_t i = 0; i < LP_ARRAY_SIZE(order); i++)
		lp_buf_put(large[order[i]]);
	for (uint32_t i = 0; i < LP_ARRAY_SIZE(sorted); i++) {
		struct lp_buf *buf = lp_buf_new(bufs, LP_BUF_LARGE);
		assert_non_null(buf);
		assert_ptr_equal(buf->data, region + sorted[i] * MIB);
		large[sorted[i]] = buf;
	}
	for (uint32_t i = 0; i < 200; i++)
		lp_buf_put(large[i]);
	lp_bufs_free(bufs);
}

static void test_reach(void **state)
{
	(void)state;
	struct lp_bufs *bufs = NULL;
	struct lp_buf *large[7];
	lp_test_ok(lp_bufs_new(16 * MIB, &bufs));
	assert_int_equal(lp_bufs_reach(bufs), 0);
	assert_int_equal(lp_bufs_resident_bytes(bufs), 0);
	for (uint32_t i = 0; i < 7; i++) {
		large[i] = lp_buf_new(bufs, LP_BUF_LARGE);
		assert_non_null(large[i]);
	}
	for (uint32_t i = 0; i < 6; i++)
		lp_buf_put(large[i]);
	assert_int_equal(lp_bufs_reach(bufs), 7 * MIB);
	assert_int_equal(lp_bufs_reach(bufs), 7 * MIB); /* the last is still out */
	lp_buf_put(large[6]);
	assert_int_equal(lp_bufs_reach(bufs), 7 * MIB); /* it was, meanwhile */
	assert_int_equal(lp_bufs_reach(bufs), 0);
	lp_buf_put(lp_buf_new(bufs, 1));
	assert_int_equal(lp_bufs_reach(bufs), MIB);
	assert_int_equal(lp_bufs_resident_bytes(bufs), 7 * MIB);
	lp_bufs_free(bufs);
}

/* Buffers that are out, or kept, keep their content. The rest of the region has no memory. */
static void try_to_trim(struct lp_bufs *bufs)
{
	struct lp_buf *large[9]; /* of a region of so many: its last huge page is half */
	for (uint32_t i = 0; i < 9; i++) {
		large[i] = lp_buf_new(bufs, LP_BUF_LARGE);
		assert_non_null(large[i]);
		memset(large[i]->data, (int)i + 1, LP_BUF_LARGE);
	}
	assert_int_equal(resident_pages(bufs), 9 * 256);
	for (uint32_t i = 0; i < 9; i++) {
		if (i != 5)
			lp_buf_put(large[i]);
	}
	(void)lp_bufs_reach(bufs);
	lp_bufs_trim(bufs, MIB + 1); /* in whole huge pages: 2 MiB */
	assert_int_equal(resident_pages(bufs), 4 * 256);
	assert_int_equal(lp_bufs_resident_bytes(bufs), 6 * MIB);
	assert_int_equal(large[5]->data[77], 6);
	lp_buf_put(large[5]);
	lp_bufs_trim(bufs, 2 * MIB);
	assert_int_equal(resident_pages(bufs), 2 * 256);
	(void)lp_bufs_reach(bufs); /* with the one that was out */
	lp_bufs_trim(bufs, 0);
	assert_int_equal(resident_pages(bufs), 0);
	assert_int_equal(lp_bufs_resident_bytes(bufs), 0);
	struct lp_buf *again = lp_buf_new(bufs, LP_BUF_LARGE);
	assert_non_null(again);
	memset(again->data, 1, LP_BUF_LARGE);
	assert_int_equal(again->data[LP_BUF_LARGE - 1], 1);
	lp_buf_put(again);
}

static void test_trim(void **state)
{
	(void)state;
	struct lp_bufs *bufs = NULL;
	int fd;
	lp_test_ok(lp_bufs_new(9 * MIB, &bufs));
	try_to_trim(bufs);
	try_to_trim(bufs);
	lp_bufs_free(bufs);
	lp_test_ok(lp_bufs_new_shared(9 * MIB, &bufs, &fd));
	try_to_trim(bufs);
	lp_bufs_free(bufs);
	(void)close(fd);
}

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
		cmocka_unit_test(test_taking_what_is_needed),
		cmocka_unit_test(test_taking_what_is_left),
		cmocka_unit_test(test_ranks),
		cmocka_unit_test(test_leak_is_noticed),
		cmocka_unit_test(test_random_run),
		cmocka_unit_test(test_the_lowest_slab_is_opened),
		cmocka_unit_test(test_reach),
		cmocka_unit_test(test_trim),
		cmocka_unit_test(test_shared),
	};
	return lp_test_main(tests, "base/memory/buf");
}
