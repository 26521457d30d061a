/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: byte order and alignment of every accessor; big-endian keys sort as their numbers.
 * Method: bytes written out by hand, at an odd address; order by memcmp over the edges. */
#include "base/testing/test.h"

#include "base/endian.h"

static const unsigned char bytes[] = {0xee, 0x01, 0x82, 0x03, 0x84, 0x05, 0x86, 0x07, 0x88, 0xee};

static void test_get(void **state)
{
	(void)state;
	assert_int_equal(lp_get_le16(bytes + 1), 0x8201);
	assert_int_equal(lp_get_le32(bytes + 1), 0x84038201);
	assert_true(lp_get_le64(bytes + 1) == UINT64_C(0x8807860584038201));
	assert_int_equal(lp_get_be32(bytes + 1), 0x01820384);
	assert_true(lp_get_be64(bytes + 1) == UINT64_C(0x0182038405860788));
}

static void test_put(void **state)
{
	(void)state;
	unsigned char to[10];
	memset(to, 0xee, sizeof(to));
	lp_put_le16(to + 1, 0x8201);
	assert_memory_equal(to, bytes, 3);
	assert_int_equal(to[3], 0xee);
	lp_put_le32(to + 1, 0x84038201);
	assert_memory_equal(to, bytes, 5);
	assert_int_equal(to[5], 0xee);
	lp_put_le64(to + 1, UINT64_C(0x8807860584038201));
	assert_memory_equal(to, bytes, sizeof(to));

	memset(to, 0xee, sizeof(to));
	lp_put_be32(to + 1, 0x01820384);
	assert_memory_equal(to, bytes, 5);
	assert_int_equal(to[5], 0xee);
	lp_put_be64(to + 1, UINT64_C(0x0182038405860788));
	assert_memory_equal(to, bytes, sizeof(to));
}

static void test_big_endian_sorts(void **state)
{
	(void)state;
	static const uint64_t rising[] = {0,          1,
					  0xff,       0x100,
					  UINT32_MAX, UINT64_C(1) << 32,
					  INT64_MAX,  UINT64_C(1) << 63,
					  UINT64_MAX};
	unsigned char prev[8];
	lp_put_be64(prev, rising[0]);
	for (size_t i = 1; i < LP_ARRAY_SIZE(rising); i++) {
		unsigned char key[8];
		lp_put_be64(key, rising[i]);
		assert_true(memcmp(prev, key, sizeof(key)) < 0);
		memcpy(prev, key, sizeof(key));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_get),
		cmocka_unit_test(test_put),
		cmocka_unit_test(test_big_endian_sorts),
	};
	return lp_test_main(tests, "base/endian");
}
