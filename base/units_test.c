/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: sizes and numbers are read in the usual notations, and other texts are refused.
 * Method: tables of texts with what they mean, the edges among them. */
#include "base/testing/test.h"

#include "base/units.h"

static void test_sizes(void **state)
{
	(void)state;
	static const struct {
		const char *text;
		uint64_t bytes;
		int err;
	} cases[] = {
		{"0", 0, 0},
		{"4096", 4096, 0},
		{"64K", 65536, 0},
		{"64k", 65536, 0},
		{"1M", 1048576, 0},
		{"1.5GiB", UINT64_C(1610612736), 0},
		{"2T", UINT64_C(2) << 40, 0},
		{"", 0, -EINVAL},
		{"-1", 0, -EINVAL},
		{" 1", 0, -EINVAL},
		{"1 G", 0, -EINVAL},
		{"1GB", 0, -EINVAL},
		{"0x10", 0, -EINVAL},
		{"1e99", 0, -ERANGE},
		{"nan", 0, -EINVAL},
		{"99999999T", 0, -ERANGE},
	};
	for (size_t i = 0; i < LP_ARRAY_SIZE(cases); i++) {
		uint64_t bytes = 0;
		lp_test_err(cases[i].err, lp_parse_bytes(cases[i].text, &bytes));
		assert_true(bytes == cases[i].bytes);
	}
}

static void test_numbers(void **state)
{
	(void)state;
	uint64_t value = 7;
	lp_test_ok(lp_parse_number("64", 1, 64, &value));
	assert_int_equal(value, 64);
	lp_test_err(-ERANGE, lp_parse_number("65", 1, 64, &value));
	lp_test_err(-ERANGE, lp_parse_number("0", 1, 64, &value));
	lp_test_err(-ERANGE, lp_parse_number("99999999999999999999", 1, UINT64_MAX, &value));
	lp_test_err(-EINVAL, lp_parse_number("6a", 1, 64, &value));
	lp_test_err(-EINVAL, lp_parse_number("", 1, 64, &value));
	lp_test_err(-EINVAL, lp_parse_number("-1", 1, 64, &value));
	assert_int_equal(value, 64);
}

static void test_format(void **state)
{
	(void)state;
	char text[32];
	(void)lp_format_bytes(0, text, sizeof(text));
	assert_string_equal(text, "0 B");
	(void)lp_format_bytes(1536, text, sizeof(text));
	assert_string_equal(text, "1.5 KiB");
	(void)lp_format_bytes(UINT64_C(1) << 30, text, sizeof(text));
	assert_string_equal(text, "1 GiB");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_sizes),
		cmocka_unit_test(test_numbers),
		cmocka_unit_test(test_format),
	};
	return lp_test_main(tests, "units");
}
