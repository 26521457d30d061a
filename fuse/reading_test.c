/* SPDX-License-Identifier: Apache-2.0 */
/* Readings: their handles, the ranges that they remember, and the ranges that they forget at the
 * limit. channel_dirs_test.c checks that no entry is told twice or missed. */
#include "fuse/reading.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "base/testing/test.h"

static const struct lp_ino dir = {77};

static struct lp_bytes bytes(const char *text)
{
	return (struct lp_bytes){text, (uint32_t)strlen(text)};
}

static struct lpi_reading *take_new(struct lpi_readings *readings, uint64_t *ret_handle)
{
	*ret_handle = lpi_readings_open(readings, dir);
	assert_int_not_equal(*ret_handle, 0);
	struct lpi_reading *reading = lpi_readings_take(readings, *ret_handle, dir);
	assert_non_null(reading);
	return reading;
}

/* Rule: a handle is taken by one at a time, and only while it is open. */
static void test_handles(void **state)
{
	(void)state;
	struct lpi_readings readings;
	lp_test_ok(lpi_readings_init(&readings));
	readings.owner_idx = 3;
	uint64_t handle = 0;
	struct lpi_reading *reading = take_new(&readings, &handle);
	assert_int_equal(lpi_reading_owner(handle), 3);
	assert_null(lpi_readings_take(&readings, handle, dir));
	lpi_reading_give_back(reading);
	assert_null(lpi_readings_take(&readings, handle, (struct lp_ino){78}));
	assert_ptr_equal(lpi_readings_take(&readings, handle, dir), reading);
	lpi_reading_give_back(reading);
	assert_null(lpi_readings_take(&readings, handle ^ UINT64_C(1) << 40, dir));
	assert_null(lpi_readings_take(&readings, handle | 0xffffff, dir));
	lpi_readings_close(&readings, handle | 0xffffff);
	lpi_readings_close(&readings, handle);
	lpi_readings_close(&readings, handle);
	assert_null(lpi_readings_take(&readings, handle, dir));
	/* The slot is used again, and is not reached by the old handle. */
	uint64_t again = 0;
	assert_ptr_equal(take_new(&readings, &again), reading);
	assert_int_not_equal(again, handle);
	assert_null(lpi_readings_take(&readings, handle, dir));
	lpi_readings_close(&readings, again);
	lpi_readings_fini(&readings);
}

static void test_all_of_them(void **state)
{
	(void)state;
	struct lpi_readings readings;
	lp_test_ok(lpi_readings_init(&readings));
	uint64_t *handles = calloc(LPI_READINGS_MAX, sizeof(*handles));
	assert_non_null(handles);
	for (uint32_t round = 0; round < 2; round++) {
		for (uint32_t i = 0; i < LPI_READINGS_MAX; i++) {
			handles[i] = lpi_readings_open(&readings, dir);
			assert_int_not_equal(handles[i], 0);
		}
		assert_int_equal(lpi_readings_open(&readings, dir), 0);
		for (uint32_t i = 0; i < LPI_READINGS_MAX; i++)
			lpi_readings_close(&readings, handles[i]);
	}
	free(handles);
	lpi_readings_fini(&readings);
}

struct closer {
	struct lpi_readings *readings;
	_Atomic uint64_t handle; /* 0: none; UINT64_MAX: the end */
};

static void *close_some(void *arg)
{
	struct closer *closer = arg;
	for (;;) {
		uint64_t handle = atomic_exchange(&closer->handle, 0);
		if (handle == UINT64_MAX)
			return NULL;
		if (handle == 0) {
			(void)sched_yield();
			continue;
		}
		struct lpi_reading *reading = lpi_readings_take(closer->readings, handle, dir);
		assert_non_null(reading);
		lp_test_ok(lpi_reading_next_range(reading, 1, bytes("name")));
		lpi_reading_give_back(reading);
		lpi_readings_close(closer->readings, handle);
	}
}

/* One thread opens readings; others take and close them. */
static void test_threads(void **state)
{
	(void)state;
	struct lpi_readings readings;
	struct closer closer = {.readings = &readings};
	pthread_t thread;
	lp_test_ok(lpi_readings_init(&readings));
	assert_int_equal(pthread_create(&thread, NULL, close_some, &closer), 0);
	for (uint32_t i = 0; i < 2000; i++) {
		uint64_t handle = lpi_readings_open(&readings, dir);
		assert_int_not_equal(handle, 0);
		uint64_t nothing = 0;
		while (!atomic_compare_exchange_weak(&closer.handle, &nothing, handle))
			nothing = 0;
	}
	uint64_t nothing = 0;
	while (!atomic_compare_exchange_weak(&closer.handle, &nothing, UINT64_MAX))
		nothing = 0;
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_true(readings.slots_used < 10);
	lpi_readings_fini(&readings);
}

static void assert_range(struct lpi_reading *reading, uint32_t nr, uint32_t shard_idx,
			 const char *after, const char *until)
{
	struct lpi_reading_range range;
	reading->nr = nr;
	assert_true(lpi_reading_range(reading, &range));
	assert_int_equal(range.shard_idx, shard_idx);
	assert_int_equal(range.after.len, strlen(after));
	assert_memory_equal(range.after.data, after, range.after.len);
	assert_int_equal(range.until.len, strlen(until));
	if (range.until.len > 0)
		assert_memory_equal(range.until.data, until, range.until.len);
	assert_int_equal(range.is_open, nr + 1 == reading->cnt && !reading->is_whole);
}

static void test_ranges(void **state)
{
	(void)state;
	struct lpi_readings readings;
	struct lpi_reading_range range;
	uint64_t handle = 0;
	lp_test_ok(lpi_readings_init(&readings));
	struct lpi_reading *reading = take_new(&readings, &handle);
	assert_range(reading, 0, 0, "", "");
	lpi_reading_learn_shard(reading, 2);
	assert_range(reading, 0, 2, "", "");
	lp_test_ok(lpi_reading_next_range(reading, 2, bytes("m")));
	assert_range(reading, 0, 2, "", "m");
	assert_range(reading, 1, 2, "m", "");
	lp_test_ok(lpi_reading_next_range(reading, 3, bytes("")));
	reading->is_whole = true;
	for (uint32_t round = 0; round < 2; round++) {
		assert_range(reading, 1, 2, "m", "");
		assert_range(reading, 2, 3, "", "");
		assert_range(reading, 0, 2, "", "m");
		/* Ranges survive a rewind; entries made since then do not count. */
		reading->before[2] = 9;
		lpi_reading_rewind(reading);
		assert_int_equal(reading->before[2], 0);
	}
	reading->nr = 3;
	assert_false(lpi_reading_range(reading, &range));
	lpi_readings_close(&readings, handle);
	lpi_readings_fini(&readings);
}

static void test_offsets(void **state)
{
	(void)state;
	struct lpi_readings readings;
	uint64_t handle = 0;
	const uint64_t most = (UINT64_C(1) << LPI_READING_INSERTION_BITS) - 1;
	lp_test_ok(lpi_readings_init(&readings));
	struct lpi_reading *reading = take_new(&readings, &handle);
	lp_test_ok(lpi_reading_seek(reading, 0));
	lp_test_err(-EINVAL, lpi_reading_seek(reading, 1)); /* nothing has been told of it */
	lp_test_ok(lpi_reading_next_range(reading, 0, bytes("m")));
	for (uint32_t nr = 0; nr < 2; nr++) {
		reading->nr = nr;
		uint64_t offset = lpi_reading_offset(reading, most - nr);
		reading->nr = 7;
		assert_int_equal(lpi_reading_seek(reading, offset), nr == 0 ? 0 : -EINVAL);
		reading->is_whole = true;
		lp_test_ok(lpi_reading_seek(reading, offset));
		assert_int_equal(reading->nr, nr);
		assert_int_equal(reading->behind, most - nr);
		reading->is_whole = false;
	}
	lp_test_err(-EINVAL, lpi_reading_seek(reading, INT64_MAX));
	lp_test_err(-EINVAL, lpi_reading_seek(reading, UINT64_MAX));
	lpi_readings_close(&readings, handle);
	lpi_readings_fini(&readings);
}

static const char *name_of(uint32_t nr)
{
	static char name[256];
	(void)snprintf(name, sizeof(name), "%0*u", 20 + (int)(nr % 200), nr);
	return name;
}

/* With more names than are kept, the oldest are dropped, and only these. Their offsets are refused,
 * not answered wrongly. All memory is accounted for. */
static void test_forgets(void **state)
{
	(void)state;
	struct lpi_readings readings;
	uint64_t handle = 0;
	char after[256];
	lp_test_ok(lpi_readings_init(&readings));
	struct lpi_reading *reading = take_new(&readings, &handle);
	for (uint32_t nr = 1; nr < 20000; nr++) {
		lp_test_ok(lpi_reading_next_range(reading, 0, bytes(name_of(nr))));
		assert_true(reading->first < nr);
		assert_true(reading->bounds_bytes <= LPI_READING_BYTES_MAX);
	}
	assert_true(reading->first > 0 && reading->first < 19000);
	assert_true(atomic_load(&readings.bytes) == LPI_READING_BYTES_MAX);
	for (uint32_t nr = reading->first; nr < 19999; nr += 97) {
		(void)snprintf(after, sizeof(after), "%s", name_of(nr));
		assert_range(reading, nr, 0, after, name_of(nr + 1));
	}
	reading->nr = reading->first - 1;
	lp_test_err(-ENOENT, lpi_reading_seek(reading, lpi_reading_offset(reading, 5)));
	/* A rewind finds the beginning. */
	lpi_reading_rewind(reading);
	assert_range(reading, 0, 0, "", "");
	lpi_reading_give_back(reading);
	lpi_readings_close(&readings, handle);
	assert_int_equal(atomic_load(&readings.bytes), 0);
	lpi_readings_fini(&readings);
}

/* Others have used up the table's limit: each reading has a little memory of its own. */
static void test_no_memory(void **state)
{
	(void)state;
	struct lpi_readings readings;
	uint64_t handle = 0;
	lp_test_ok(lpi_readings_init(&readings));
	atomic_store(&readings.bytes, LPI_READINGS_BYTES_MAX);
	struct lpi_reading *reading = take_new(&readings, &handle);
	for (uint32_t nr = 1; nr < 1000; nr++) {
		char after[256];
		(void)snprintf(after, sizeof(after), "%s", name_of(nr));
		lp_test_ok(lpi_reading_next_range(reading, 0, bytes(after)));
		assert_range(reading, nr, 0, after, "");
		assert_range(reading, nr - 1, 0, nr == 1 ? "" : name_of(nr - 1), after);
	}
	assert_int_equal(atomic_load(&readings.bytes), LPI_READINGS_BYTES_MAX);
	lpi_reading_give_back(reading);
	lpi_readings_close(&readings, handle);
	lpi_readings_fini(&readings);
}

/* More ranges than an offset can tell apart. */
static void test_too_many(void **state)
{
	(void)state;
	struct lpi_readings readings;
	uint64_t handle = 0;
	lp_test_ok(lpi_readings_init(&readings));
	struct lpi_reading *reading = take_new(&readings, &handle);
	/* As if all but the last had been begun and forgotten. */
	reading->first = LPI_READING_RANGES_MAX - 2;
	reading->cnt = LPI_READING_RANGES_MAX - 1;
	lp_test_ok(lpi_reading_next_range(reading, 0, bytes("n")));
	lp_test_err(-EFBIG, lpi_reading_next_range(reading, 0, bytes("n")));
	reading->nr = LPI_READING_RANGES_MAX - 1;
	assert_true(lpi_reading_offset(reading, 5) < INT64_MAX);
	lpi_readings_close(&readings, handle);
	lpi_readings_fini(&readings);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_handles),   cmocka_unit_test(test_all_of_them),
		cmocka_unit_test(test_threads),   cmocka_unit_test(test_ranges),
		cmocka_unit_test(test_offsets),   cmocka_unit_test(test_forgets),
		cmocka_unit_test(test_no_memory), cmocka_unit_test(test_too_many),
	};
	return lp_test_main(tests, "fuse/reading");
}
