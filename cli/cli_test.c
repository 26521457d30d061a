/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: sizes and numbers are read as people write them, and nothing else is; whatever is in a
 * name, what is printed of it is one line, and as JSON a string. Method: tables of texts. */
#include "base/test.h"

#include "cli/cli.h"

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
		lp_test_err(cases[i].err, lpi_cli_parse_size(cases[i].text, &bytes));
		assert_true(bytes == cases[i].bytes);
	}
}

static void test_numbers(void **state)
{
	(void)state;
	uint64_t value = 7;
	lp_test_ok(lpi_cli_parse_number("64", 1, 64, &value));
	assert_int_equal(value, 64);
	lp_test_err(-ERANGE, lpi_cli_parse_number("65", 1, 64, &value));
	lp_test_err(-ERANGE, lpi_cli_parse_number("0", 1, 64, &value));
	lp_test_err(-ERANGE, lpi_cli_parse_number("99999999999999999999", 1, UINT64_MAX, &value));
	lp_test_err(-EINVAL, lpi_cli_parse_number("6a", 1, 64, &value));
	lp_test_err(-EINVAL, lpi_cli_parse_number("", 1, 64, &value));
	lp_test_err(-EINVAL, lpi_cli_parse_number("-1", 1, 64, &value));
	assert_int_equal(value, 64);
}

static void test_format(void **state)
{
	(void)state;
	char text[32];
	(void)lpi_cli_format_size(0, text, sizeof(text));
	assert_string_equal(text, "0 B");
	(void)lpi_cli_format_size(1536, text, sizeof(text));
	assert_string_equal(text, "1.5 KiB");
	(void)lpi_cli_format_size(UINT64_C(1) << 30, text, sizeof(text));
	assert_string_equal(text, "1 GiB");
}

static void check_printed(void (*print)(FILE *to, const char *text), const char *text,
			  const char *want)
{
	char buf[128] = "";
	FILE *to = fmemopen(buf, sizeof(buf), "w");
	assert_non_null(to);
	print(to, text);
	assert_int_equal(fclose(to), 0);
	assert_string_equal(buf, want);
}

static void test_print(void **state)
{
	(void)state;
	check_printed(lpi_cli_print_escaped, "a\n\x7f b\xff", "a\\x0a\\x7f b\xff");
	check_printed(lpi_cli_print_json, "plain /a", "\"plain /a\"");
	check_printed(lpi_cli_print_json, "\"\\\n", "\"\\\"\\\\\\u000a\"");
	check_printed(lpi_cli_print_json, "\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80",
		      "\"\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80\"");
	/* Cut short, too long for what it says, a surrogate, beyond the last. */
	check_printed(lpi_cli_print_json, "\xc3", "\"\\\\xc3\"");
	check_printed(lpi_cli_print_json, "\xc1\x81", "\"\\\\xc1\\\\x81\"");
	check_printed(lpi_cli_print_json, "\xed\xa0\x80", "\"\\\\xed\\\\xa0\\\\x80\"");
	check_printed(lpi_cli_print_json, "\xf4\x90\x80\x80", "\"\\\\xf4\\\\x90\\\\x80\\\\x80\"");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_sizes),
		cmocka_unit_test(test_numbers),
		cmocka_unit_test(test_format),
		cmocka_unit_test(test_print),
	};
	return lp_test_main(tests, "cli/cli");
}
