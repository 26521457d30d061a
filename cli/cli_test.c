/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: whatever is in a name, what is printed of it is one line, and as JSON a string.
 * Method: tables of texts. */
#include "base/testing/test.h"

#include "cli/cli.h"

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
	check_printed(lpi_cli_print_escaped, "a\n\x7f b\xff", "a\\x0a\\x7f b\\xff");
	check_printed(lpi_cli_print_escaped, "\xc3\xa4 \xc2\x9b", "\xc3\xa4 \\xc2\\x9b");
	check_printed(lpi_cli_print_json, "plain /a", "\"plain /a\"");
	check_printed(lpi_cli_print_json, "\"\\\n", "\"\\\"\\\\\\u000a\"");
	check_printed(lpi_cli_print_json, "\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80",
		      "\"\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80\"");
	/* Cut short, too long for what it says, a surrogate, beyond the last. */
	check_printed(lpi_cli_print_json, "\xc3", "\"\\udcc3\"");
	check_printed(lpi_cli_print_json, "\xc1\x81", "\"\\udcc1\\udc81\"");
	check_printed(lpi_cli_print_json, "\xed\xa0\x80", "\"\\udced\\udca0\\udc80\"");
	check_printed(lpi_cli_print_json, "\xf4\x90\x80\x80", "\"\\udcf4\\udc90\\udc80\\udc80\"");
}

/* Values may hold a NUL. */
static void test_print_bytes(void **state)
{
	(void)state;
	char buf[64];
	FILE *to = fmemopen(buf, sizeof(buf), "w");
	assert_non_null(to);
	lpi_cli_print_json_bytes(to, "a\0\xff\xc3", 4);
	assert_int_equal(fclose(to), 0);
	assert_string_equal(buf, "\"a\\u0000\\udcff\\udcc3\"");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_print),
		cmocka_unit_test(test_print_bytes),
	};
	return lp_test_main(tests, "cli/cli");
}
