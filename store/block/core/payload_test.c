/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: a payload is taken in the longest pieces that lie aligned in memory, with nothing left out
 * or taken twice, and what is not aligned is said to be so.
 * Method: rows of segments in one buffer, taken with every limit, against the bytes one by one. */
#include "base/testing/test.h"

#include "store/block/core/payload.h"

#define BLOCK ((uint32_t)LP_BLOCK_BYTES)

static struct lp_bufs *bufs;
static struct lp_buf *buf;

static int setup(void **state)
{
	(void)state;
	lp_test_ok(lp_bufs_new(LP_BUF_LARGE, &bufs));
	buf = lp_buf_new(bufs, LP_BUF_LARGE);
	assert_non_null(buf);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	lp_buf_put(buf);
	lp_bufs_free(bufs);
	return 0;
}

static void test_aligned(void **state)
{
	(void)state;
	struct lp_seg segs[] = {
		{buf, 3 * BLOCK, 5 * BLOCK}, {buf, 20 * BLOCK, BLOCK}, {buf, 8 * BLOCK, 7 * BLOCK}};
	const uint64_t want[] = {3, 4, 5, 6, 7, 20, 8, 9, 10, 11, 12, 13, 14};
	const struct lp_payload payload = {.segs = segs, .seg_cnt = LP_ARRAY_SIZE(segs)};
	for (uint64_t max = 1; max <= 14; max++) {
		struct lpi_seg_cursor cursor = lpi_seg_cursor_at(&payload);
		uint64_t done = 0;
		while (done < LP_ARRAY_SIZE(want)) {
			struct lp_seg seg;
			uint64_t left = LP_ARRAY_SIZE(want) - done;
			uint64_t got = lpi_payload_run(&cursor, LP_MIN(max, left), &seg);
			assert_in_range(got, 1, max);
			assert_int_equal(seg.len, got * BLOCK);
			assert_ptr_equal(seg.buf, buf);
			for (uint64_t i = 0; i < got; i++)
				assert_int_equal(seg.offset + i * BLOCK, want[done + i] * BLOCK);
			done += got;
		}
		assert_ptr_equal(cursor.seg, segs + 3);
	}
}

static void test_longest(void **state)
{
	(void)state;
	struct lp_seg segs[] = {{buf, 0, LP_BUF_LARGE}};
	const struct lp_payload payload = {.segs = segs, .seg_cnt = 1};
	struct lpi_seg_cursor cursor = lpi_seg_cursor_at(&payload);
	struct lp_seg seg;
	assert_int_equal(lpi_payload_run(&cursor, UINT64_MAX >> LP_BLOCK_SHIFT, &seg), 256);
	assert_int_equal(seg.offset, 0);
	assert_int_equal(seg.len, LP_BUF_LARGE);
}

static void test_not_aligned(void **state)
{
	(void)state;
	/* Two blocks and a half, then from the middle of a block on. */
	struct lp_seg segs[] = {{buf, 0, 2 * BLOCK + 512}, {buf, 4 * BLOCK + 512, 4 * BLOCK - 512}};
	const struct lp_payload payload = {.segs = segs, .seg_cnt = LP_ARRAY_SIZE(segs)};
	struct lpi_seg_cursor cursor = lpi_seg_cursor_at(&payload);
	struct lp_seg seg = {0};
	assert_int_equal(lpi_payload_run(&cursor, 6, &seg), 2);
	assert_int_equal(seg.len, 2 * BLOCK);
	for (int n = 0; n < 2; n++) {
		assert_int_equal(lpi_payload_run(&cursor, 4, &seg), 0);
		assert_ptr_equal(cursor.seg, segs);
		assert_int_equal(cursor.offset, 2 * BLOCK);
	}
	lpi_payload_skip(&cursor, 512);
	assert_int_equal(lpi_payload_run(&cursor, 3, &seg), 0);
	assert_ptr_equal(cursor.seg, segs + 1);
	assert_int_equal(cursor.offset, 0);
	lpi_payload_skip(&cursor, BLOCK - 512);
	assert_int_equal(lpi_payload_run(&cursor, 3, &seg), 3);
	assert_int_equal(seg.offset, 5 * BLOCK);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_aligned, setup, teardown),
		cmocka_unit_test_setup_teardown(test_longest, setup, teardown),
		cmocka_unit_test_setup_teardown(test_not_aligned, setup, teardown),
	};
	return lp_test_main(tests, "store/block/core/payload");
}
