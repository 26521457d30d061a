/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: a pool gives each object once, up to its limit, aligned; last in, first out; the limit
 * moves both ways while objects are out; what is free gives its memory back and no other; misuse
 * dies at the put; counters are exact.
 * Method: small pools by hand, then random gets, puts and resizes against a list of what is out.
 * A forked child shows each assert, and under AddressSanitizer the poison. */
#include "base/testing/test.h"

#include <sys/mman.h>

#include "base/memory/pool.h"
#include "base/prng.h"
#include "base/sanitize.h"
#include "base/testing/test_death.h"

static struct lp_pool *pool_of(size_t bytes, uint32_t align, uint32_t limit, uint32_t limit_max)
{
	struct lp_pool_config config = {.name = "test",
					.object_bytes = bytes,
					.align = align,
					.limit = limit,
					.limit_max = limit_max};
	struct lp_pool *pool = NULL;
	lp_test_ok(lp_pool_new(&config, &pool));
	assert_non_null(pool);
	return pool;
}

static struct lp_pool_stats stats_of(const struct lp_pool *pool)
{
	struct lp_pool_stats stats;
	lp_pool_read_stats(pool, &stats);
	return stats;
}

static void test_get_until_empty(void **state)
{
	(void)state;
	static const size_t sizes[] = {1, 8, 127, 128, 129, 5000};
	static const uint32_t aligns[] = {0, 1, 16, 4096};
	for (size_t i = 0; i < LP_ARRAY_SIZE(sizes) * LP_ARRAY_SIZE(aligns); i++) {
		size_t bytes = sizes[i % LP_ARRAY_SIZE(sizes)];
		uint32_t align = aligns[i / LP_ARRAY_SIZE(sizes)];
		struct lp_pool *pool = pool_of(bytes, align, 5, 0);
		char *objects[5];
		for (uint32_t n = 0; n < 5; n++) {
			objects[n] = lp_pool_get(pool);
			assert_non_null(objects[n]);
			assert_true(lp_is_aligned((uintptr_t)objects[n], align == 0 ? 128 : align));
			assert_int_equal(lp_pool_index(pool, objects[n]), n);
			memset(objects[n], (int)n, bytes);
		}
		assert_null(lp_pool_get(pool));
		for (uint32_t n = 0; n < 5; n++) {
			assert_int_equal(objects[n][0], n);
			assert_int_equal(objects[n][bytes - 1], n);
			lp_pool_put(pool, objects[n]);
		}
		assert_true(lp_pool_is_sound(pool));
		lp_pool_free(pool);
	}
	lp_pool_free(NULL);
}

static void test_last_in_first_out(void **state)
{
	(void)state;
	struct lp_pool *pool = pool_of(64, 0, 4, 0);
	void *a = lp_pool_get(pool);
	void *b = lp_pool_get(pool);
	lp_pool_put(pool, a);
	lp_pool_put(pool, b);
	assert_ptr_equal(lp_pool_get(pool), b);
	assert_ptr_equal(lp_pool_get(pool), a);
	lp_pool_put(pool, b);
	lp_pool_put(pool, a);
	lp_pool_free(pool);
}

static void test_counters(void **state)
{
	(void)state;
	struct lp_pool *pool = pool_of(100, 0, 2, 3);
	void *a = lp_pool_get(pool);
	void *b = lp_pool_get(pool);
	assert_null(lp_pool_get(pool));
	assert_null(lp_pool_get(pool));
	lp_pool_put(pool, a);
	struct lp_pool_stats stats = stats_of(pool);
	assert_string_equal(stats.name, "test");
	assert_int_equal(stats.object_bytes, 100);
	assert_int_equal(stats.limit, 2);
	assert_int_equal(stats.capacity, 2);
	assert_int_equal(stats.in_use, 1);
	assert_int_equal(stats.high_water, 2);
	assert_int_equal(stats.gets_failed, 2);
	assert_int_equal(lp_pool_free_cnt(pool), 1);
	lp_pool_put(pool, b);
	lp_pool_free(pool);
}

static void test_resize(void **state)
{
	(void)state;
	struct lp_pool *pool = pool_of(32, 0, 2, 40);
	void *out[40];
	out[0] = lp_pool_get(pool);
	out[1] = lp_pool_get(pool);
	assert_null(lp_pool_get(pool));
	/* A small step up brings a slab of a useful size, but the limit is exact. */
	lp_test_ok(lp_pool_resize(pool, 3));
	assert_int_equal(stats_of(pool).capacity, 5);
	out[2] = lp_pool_get(pool);
	assert_non_null(out[2]);
	assert_null(lp_pool_get(pool));

	/* Lowered below the objects that are out: no object is given until enough came back. */
	lp_test_ok(lp_pool_resize(pool, 1));
	assert_int_equal(lp_pool_free_cnt(pool), 0);
	lp_pool_put(pool, out[2]);
	lp_pool_put(pool, out[1]);
	assert_null(lp_pool_get(pool));
	lp_pool_put(pool, out[0]);
	out[0] = lp_pool_get(pool);
	assert_non_null(out[0]);
	assert_null(lp_pool_get(pool));
	lp_pool_put(pool, out[0]);

	/* One at a time to the maximum: the number of slabs stays bounded. */
	for (uint32_t limit = 1; limit <= 40; limit++)
		lp_test_ok(lp_pool_resize(pool, limit));
	assert_int_equal(stats_of(pool).capacity, 40);
	for (uint32_t i = 0; i < 40; i++) {
		out[i] = lp_pool_get(pool);
		assert_non_null(out[i]);
		memset(out[i], (int)i, 32);
		for (uint32_t j = 0; j < i; j++)
			assert_ptr_not_equal(out[i], out[j]);
	}
	assert_null(lp_pool_get(pool));
	for (uint32_t i = 0; i < 40; i++)
		lp_pool_put(pool, out[i]);
	lp_pool_free(pool);
}

static void test_bufpool(void **state)
{
	(void)state;
	struct lp_pool *pool = NULL;
	lp_test_ok(lp_bufpool_new("buffers", 65536, 4, 8, &pool));
	char *buf = lp_pool_get(pool);
	assert_true(lp_is_aligned((uintptr_t)buf, 4096));
	memset(buf, 1, 65536);
	lp_pool_put(pool, buf);
	lp_pool_free(pool);
	/* More than there is memory for: an error, not a crash, and the output is untouched. */
	struct lp_pool *none = NULL;
	lp_test_err(-ENOMEM, lp_bufpool_new("huge", SIZE_MAX / 4, 8, 8, &none));
	lp_test_err(-ENOMEM, lp_bufpool_new("huger", SIZE_MAX - 1, 1, 1, &none));
	assert_null(none);
}

/* One random step; out[] is the model. Returns the new number of objects that are out. */
static uint32_t random_step(struct lp_pool *pool, struct lp_prng *prng, uint64_t **out,
			    uint32_t cnt)
{
	uint32_t limit = stats_of(pool).limit;
	if (lp_prng_chance(prng, 1, 50)) {
		lp_test_ok(lp_pool_resize(pool, (uint32_t)lp_prng_between(prng, 1, 300)));
	} else if (lp_prng_chance(prng, 1, 2)) {
		uint64_t *object = lp_pool_get(pool);
		assert_int_equal(object != NULL, cnt < limit);
		if (object != NULL) {
			*object = (uint64_t)(uintptr_t)object;
			out[cnt++] = object;
		}
	} else if (cnt > 0) {
		uint64_t pick = lp_prng_below(prng, cnt);
		assert_true(*out[pick] == (uint64_t)(uintptr_t)out[pick]);
		lp_pool_put(pool, out[pick]);
		out[pick] = out[--cnt];
	}
	assert_int_equal(stats_of(pool).in_use, cnt);
	return cnt;
}

static void test_random_against_model(void **state)
{
	(void)state;
	uint64_t *out[300];
	for (uint64_t seed = 1; seed <= 5; seed++) {
		struct lp_prng prng;
		lp_prng_init(&prng, seed);
		struct lp_pool *pool = pool_of(24, 8, 7, 300);
		uint32_t cnt = 0;
		for (int step = 0; step < 20000; step++)
			cnt = random_step(pool, &prng, out, cnt);
		assert_true(lp_pool_is_sound(pool));
		while (cnt > 0)
			lp_pool_put(pool, out[--cnt]);
		lp_pool_free(pool);
	}
}

static void put_twice(void *arg)
{
	struct lp_pool *pool = arg;
	void *object = lp_pool_get(pool);
	lp_pool_put(pool, object);
	lp_pool_put(pool, object);
}

static void put_a_stranger(void *arg)
{
	char stranger[256];
	lp_pool_put(arg, stranger);
}

static void put_the_middle(void *arg)
{
	char *object = lp_pool_get(arg);
	lp_pool_put(arg, object + 1);
}

static void put_beyond_the_end(void *arg)
{
	char *object = lp_pool_get(arg);
	while (lp_pool_get(arg) != NULL)
		;
	lp_pool_put(arg, object + (size_t)128 * 4);
}

static void free_with_object_out(void *arg)
{
	if (lp_pool_get(arg) != NULL)
		lp_pool_free(arg);
}

static void write_after_put(void *arg)
{
	char *volatile object = lp_pool_get(arg);
	lp_pool_put(arg, object);
	object[0] = 1;
	if (lp_pool_get(arg) == NULL)
		_exit(1);
}

/* So many bytes from there have memory, in whole pages inside. */
static size_t resident_bytes(const void *from, size_t bytes)
{
	size_t cnt = 0;
	unsigned char page;
	uintptr_t at = lp_align_up((uintptr_t)from, 4096);
	uintptr_t end = lp_align_down((uintptr_t)from + bytes, 4096);
	for (; at < end; at += 4096) {
		assert_int_equal(
			mincore((uint8_t *)(uintptr_t)from + (at - (uintptr_t)from), 4096, &page),
			0);
		cnt += (page & 1) != 0 ? 4096 : 0;
	}
	return cnt;
}

/* Only without a sanitizer, and without checks that write into free objects. */
static void test_trim(void **state)
{
	(void)state;
	enum { CNT = 4096, BYTES = 3072 };
	const size_t bytes = (size_t)CNT * BYTES;
	/* No pattern is written into free objects, and no other code reads them. */
	const bool has_plain_memory = LP_ASSERT_SLOW_ON + LP_SAN_ADDRESS == 0;
	struct lp_pool *pool = pool_of(BYTES, 0, CNT, 0);
	uint8_t *out[CNT];
	for (uint32_t i = 0; i < CNT; i++) {
		out[i] = lp_pool_get(pool);
		assert_non_null(out[i]);
		memset(out[i], (int)i, BYTES);
	}
	const uint8_t *first = out[0];
	assert_int_equal(lp_pool_trim(pool), 0); /* all are out */
	/* In another order than they went out, except one in the middle. */
	for (uint32_t i = 0; i < CNT; i++) {
		uint32_t number = i * 1001 % CNT;
		if (number != 2000)
			lp_pool_put(pool, out[number]);
	}
	size_t given_bytes = lp_pool_trim(pool);
	assert_in_range(given_bytes, (CNT - 8) * BYTES, CNT * BYTES);
	if (has_plain_memory)
		assert_true(resident_bytes(first, bytes) <= bytes / CNT * 4);
	assert_int_equal(out[2000][0], (uint8_t)2000);
	assert_int_equal(out[2000][BYTES - 1], (uint8_t)2000);
	assert_true(lp_pool_is_sound(pool));
	assert_int_equal(lp_pool_trim(pool), 0); /* nothing since */
	lp_pool_put(pool, out[2000]);
	/* The lowest goes out first, and only touched objects have memory. */
	for (uint32_t i = 0; i < 16; i++) {
		out[i] = lp_pool_get(pool);
		memset(out[i], 1, BYTES);
	}
	if (has_plain_memory)
		assert_true(resident_bytes(first, bytes) <= bytes / CNT * 20);
	for (uint32_t i = 0; i < 16; i++)
		lp_pool_put(pool, out[i]);
	assert_true(lp_pool_trim(pool) > 0);
	assert_int_equal(stats_of(pool).high_water, CNT);
	assert_true(lp_pool_is_sound(pool));
	lp_pool_free(pool);
}

/* The same with memory of a later slab. */
static void test_trim_of_slabs(void **state)
{
	(void)state;
	enum { FIRST = 100, ALL = 1600, BYTES = 4096 };
	struct lp_pool *pool = pool_of(BYTES, 4096, FIRST, ALL);
	uint8_t *out[ALL];
	lp_test_ok(lp_pool_resize(pool, ALL));
	for (int round = 0; round < 3; round++) {
		for (uint32_t i = 0; i < ALL; i++) {
			out[i] = lp_pool_get(pool);
			assert_non_null(out[i]);
			memset(out[i], (int)i, BYTES);
		}
		for (uint32_t i = 0; i < ALL; i++) {
			assert_int_equal(out[i][BYTES - 1], (uint8_t)i);
			lp_pool_put(pool, out[i]);
		}
		assert_int_equal(lp_pool_trim(pool), ALL * BYTES);
		assert_true(lp_pool_is_sound(pool));
	}
	lp_pool_free(pool);
}

static void test_misuse_dies(void **state)
{
	(void)state;
	struct lp_pool *pool = pool_of(100, 0, 4, 0);
	lp_test_dies(put_twice, pool);
	lp_test_dies(put_a_stranger, pool);
	lp_test_dies(put_the_middle, pool);
	lp_test_dies(put_beyond_the_end, pool);
	lp_test_dies(free_with_object_out, pool);
	/* AddressSanitizer ends the child its own way, and is asked below. */
	if (!LP_SAN_ADDRESS)
		assert_int_equal(lp_test_aborts(write_after_put, pool), LP_ASSERT_SLOW_ON);
	lp_pool_free(pool);
}

#if LP_SAN_ADDRESS
static void test_free_objects_are_poisoned(void **state)
{
	(void)state;
	struct lp_pool *pool = pool_of(100, 0, 4, 0);
	char *object = lp_pool_get(pool);
	assert_false(__asan_address_is_poisoned(object));
	assert_false(__asan_address_is_poisoned(object + 99));
	assert_true(__asan_address_is_poisoned(object + 100)); /* the padding */
	lp_pool_put(pool, object);
	assert_true(__asan_address_is_poisoned(object));
	assert_true(__asan_address_is_poisoned(object + 99));
	lp_pool_free(pool);
}
#endif

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_get_until_empty),
		cmocka_unit_test(test_last_in_first_out),
		cmocka_unit_test(test_counters),
		cmocka_unit_test(test_resize),
		cmocka_unit_test(test_bufpool),
		cmocka_unit_test(test_random_against_model),
		cmocka_unit_test(test_trim),
		cmocka_unit_test(test_trim_of_slabs),
		cmocka_unit_test(test_misuse_dies),
#if LP_SAN_ADDRESS
		cmocka_unit_test(test_free_objects_are_poisoned),
#endif
	};
	return lp_test_main(tests, "base/memory/pool");
}
