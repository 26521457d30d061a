/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: any bytes are shown as valid JSON; text grows to its limit and no further.
 * Method: golden text, strings that need escapes, a text that is too long. */
#include "base/testing/test.h"

#include "daemon/report/text.h"

static void test_json(void **state)
{
	(void)state;
	struct lpi_text text = {.bytes = NULL};
	lpi_json_open(&text, NULL, '{');
	lpi_json_number(&text, "n", UINT64_MAX);
	lpi_json_string(&text, "s", "a\"b\\c\n\x7f\xff");
	lpi_json_string(&text, "utf8", "\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80");
	/* An overlong form, half of a surrogate pair, a number beyond the last, a cut sequence. */
	lpi_json_string(&text, "bad", "\xc0\xaf \xed\xa0\x80 \xf4\x90\x80\x80 \xe2\x82");
	lpi_json_open(&text, "list", '[');
	lpi_json_bool(&text, NULL, true);
	lpi_json_real(&text, NULL, 1.5);
	lpi_json_real(&text, NULL, 1790000000);
	lpi_json_close(&text, ']');
	lpi_json_open(&text, "empty", '{');
	lpi_json_close(&text, '}');
	lpi_json_bool(&text, "last", false);
	lpi_json_close(&text, '}');
	assert_false(text.failed);
	assert_string_equal(
		"{\"n\": 18446744073709551615, "
		"\"s\": \"a\\\"b\\\\c\\u000a\\u007f\\ufffd\", "
		"\"utf8\": \"\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80\", "
		"\"bad\": \"\\ufffd\\ufffd \\ufffd\\ufffd\\ufffd "
		"\\ufffd\\ufffd\\ufffd\\ufffd \\ufffd\\ufffd\", "
		"\"list\": [true, 1.500, 1790000000.000], \"empty\": {}, \"last\": false}",
		text.bytes);
	assert_int_equal(strlen(text.bytes), text.len);
	lpi_text_fini(&text);
}

static void test_limit(void **state)
{
	(void)state;
	struct lpi_text text = {.bytes = NULL};
	for (uint32_t i = 0; i < LPI_REPORT_TEXT_MAX / 1000 + 1 && !text.failed; i++)
		lpi_text_printf(&text, "%1000u", i);
	assert_true(text.failed);
	assert_true(text.len < LPI_REPORT_TEXT_MAX);
	lpi_text_fini(&text);
	assert_false(text.failed);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_json),
		cmocka_unit_test(test_limit),
	};
	return lp_test_main(tests, "daemon/report/text");
}
