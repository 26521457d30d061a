/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: corruption is recorded with its place, newest first, also when the ring has wrapped, and
 * reaches the sink; errno texts are right.
 * Method: findings are made and read back through the header. */
#include "base/testing/test.h"

#include <pthread.h>

static int sink_cnt;

static void count_sink(const struct lp_corruption *found, void *arg)
{
	assert_non_null(found->file);
	assert_ptr_equal(arg, &sink_cnt);
	sink_cnt++;
}

static void test_record(void **state)
{
	(void)state;
	uint64_t before = lp_corruption_count();
	lp_test_err(-EBADMSG, LP_CORRUPT_CRC(4096, "block %d of inode %d", 1, 77));
	lp_test_err(-EUCLEAN, LP_CORRUPT(LP_OFFSET_NONE, "extent map not sorted"));
	assert_int_equal(lp_corruption_count(), before + 2);

	char text[256];
	const struct lp_corruption *newest = lp_corruption_find(0);
	assert_int_equal(newest->err, -EUCLEAN);
	(void)lp_corruption_to_text(newest, text, sizeof(text));
	assert_non_null(strstr(text, "broken structure: extent map not sorted (found at base/"));
	const struct lp_corruption *second = lp_corruption_find(1);
	assert_int_equal(second->offset, 4096);
	(void)lp_corruption_to_text(second, text, sizeof(text));
	assert_non_null(strstr(text, "checksum mismatch at offset 4096: block 1 of inode 77"));
}

static void test_ring_wraps(void **state)
{
	(void)state;
	for (int n = 0; n < 3 * LP_CORRUPTION_RING_SIZE; n++)
		lp_test_err(-EUCLEAN, LP_CORRUPT((uint64_t)n, "number %d", n));
	for (unsigned idx = 0; idx < LP_CORRUPTION_RING_SIZE; idx++)
		assert_int_equal(lp_corruption_find(idx)->offset,
				 3 * LP_CORRUPTION_RING_SIZE - 1 - idx);
	assert_null(lp_corruption_find(LP_CORRUPTION_RING_SIZE));
}

static void *other_thread(void *arg)
{
	*(bool *)arg = lp_corruption_find(0) == NULL;
	return NULL;
}

static void test_ring_is_per_thread(void **state)
{
	(void)state;
	lp_test_err(-EUCLEAN, LP_CORRUPT(0, "mine"));
	pthread_t thread;
	bool other_is_empty = false;
	assert_int_equal(pthread_create(&thread, NULL, other_thread, &other_is_empty), 0);
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_true(other_is_empty);
}

static void test_sink(void **state)
{
	(void)state;
	lp_corruption_set_sink(count_sink, &sink_cnt);
	lp_test_err(-EBADMSG, LP_CORRUPT_CRC(1, "x"));
	lp_corruption_set_sink(NULL, NULL);
	lp_test_err(-EBADMSG, LP_CORRUPT_CRC(2, "y"));
	assert_int_equal(sink_cnt, 1);
}

static void test_strerror(void **state)
{
	(void)state;
	assert_string_equal(lp_strerror(-ENOSPC), "No space left on device");
	assert_string_equal(lp_strerror(ENOSPC), "No space left on device");
	assert_string_equal(lp_strerror(-99999), "error -99999");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_record),
		cmocka_unit_test(test_ring_wraps),
		cmocka_unit_test(test_ring_is_per_thread),
		cmocka_unit_test(test_sink),
		cmocka_unit_test(test_strerror),
	};
	return lp_test_main(tests, "base/error");
}
