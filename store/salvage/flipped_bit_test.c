/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: a bit that flipped is found wherever it is, and nothing is found where it was not one bit.
 * Method: every bit of some lengths; then two bits, and bytes that are right. */
#include "base/testing/test.h"

#include "base/crc32c.h"
#include "store/salvage/flipped_bit.h"

static void test_each_bit(void **state)
{
	static const size_t lens[] = {1, 2, 9, 64, 777};
	uint8_t bytes[777];
	(void)state;
	for (size_t i = 0; i < LP_ARRAY_SIZE(lens); i++) {
		for (size_t j = 0; j < lens[i]; j++)
			bytes[j] = (uint8_t)(j * 37 + i);
		uint32_t wanted = lp_crc32c(0, bytes, lens[i]);
		for (uint64_t bit = 0; bit < 8 * lens[i]; bit++) {
			lp_mend_flip(bytes, bit);
			assert_int_equal(
				lp_mend_find(lens[i], lp_crc32c(0, bytes, lens[i]), wanted), bit);
			lp_mend_flip(bytes, bit);
		}
	}
}

static void test_two_bits(void **state)
{
	uint8_t bytes[64] = {1, 2, 3};
	uint32_t wanted = lp_crc32c(0, bytes, sizeof(bytes));
	(void)state;
	for (uint64_t bit = 1; bit < 8 * sizeof(bytes); bit++) {
		lp_mend_flip(bytes, 0);
		lp_mend_flip(bytes, bit);
		assert_true(lp_mend_find(sizeof(bytes), lp_crc32c(0, bytes, sizeof(bytes)),
					 wanted) == LP_MEND_NONE);
		lp_mend_flip(bytes, 0);
		lp_mend_flip(bytes, bit);
	}
}

static void test_nothing_to_do(void **state)
{
	(void)state;
	assert_true(lp_mend_find(0, 1, 2) == LP_MEND_NONE);
	assert_true(lp_mend_find(4096, 7, 7) == LP_MEND_NONE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_each_bit),
		cmocka_unit_test(test_two_bits),
		cmocka_unit_test(test_nothing_to_do),
	};
	return lp_test_main(tests, "store/salvage/flipped_bit");
}
