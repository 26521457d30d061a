/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: what a daemon answers is found by its path and shown without punctuation, and any other
 * bytes end quietly. Method: texts, whole and cut at each byte. */
#include "base/testing/test.h"

#include "cli/json.h"

static const char sample[] =
	"{\"a\": 1.5, \"b\": {\"c\": [10, {\"d\": \"x\\\"y\"}, [3]], \"e\": true},"
	" \"empty\": {}, \"none\": [], \"last\": \"z\"}";

static void test_find(void **state)
{
	(void)state;
	char buf[16];
	assert_true(lpi_cli_json_number(sample, "a") == 1.5);
	assert_true(lpi_cli_json_number(sample, "b.c.0") == 10);
	assert_true(lpi_cli_json_number(sample, "b.c.2.0") == 3);
	assert_true(lpi_cli_json_number(sample, "b.c.7") == 0);
	assert_true(lpi_cli_json_number(sample, "b") == 0);
	assert_true(lpi_cli_json_number(sample, "b.c.d") == 0);
	assert_string_equal(lpi_cli_json_text(sample, "last", buf, sizeof(buf)), "z");
	assert_string_equal(lpi_cli_json_text(sample, "b.c.1.d", buf, sizeof(buf)), "x\"y");
	assert_string_equal(lpi_cli_json_text(sample, "a", buf, sizeof(buf)), "");
	assert_string_equal(lpi_cli_json_text(sample, "nothing", buf, sizeof(buf)), "");
}

static void shown(const char *text, char *buf, size_t len)
{
	FILE *to = fmemopen(buf, len, "w");
	assert_non_null(to);
	lpi_cli_json_show(to, text);
	assert_int_equal(fclose(to), 0);
}

static void test_show(void **state)
{
	(void)state;
	char buf[512] = "";
	shown("{\"a\": 1, \"bcd\": {\"c\": \"x\\\"y\", \"d\": 2}, \"none\": \"\"}", buf,
	      sizeof(buf));
	assert_string_equal(buf, "a     1\nbcd   c x\"y  d 2\nnone\n");
	memset(buf, 0, sizeof(buf));
	shown("{\"n\": [{\"a\": 1, \"b\": {\"c\": 2}}, {\"a\": 3}, 4], \"e\": {}}", buf,
	      sizeof(buf));
	assert_string_equal(buf, "n\n  0\n    a  1\n    b  c 2\n  a 3\n  4\ne\n");
	memset(buf, 0, sizeof(buf));
	shown("[1.23456, 12.3456, 123.456, 1234.56, 0.00123, 1.5e+09, -1.23456, 123456]", buf,
	      sizeof(buf));
	assert_string_equal(buf, "1.23\n12.3\n123\n1234\n0.00\n1.5e+09\n-1.23\n123456\n");
	memset(buf, 0, sizeof(buf));
	shown("{\"why\": \"twelve words of some length  that would not fit into a single line of a "
	      "terminal\"}",
	      buf, sizeof(buf));
	assert_string_equal(buf,
			    "why  twelve words of some length  that would not fit into a single "
			    "line of a\n     terminal\n");
	memset(buf, 0, sizeof(buf));
	shown("\"auto\"", buf, sizeof(buf));
	assert_string_equal(buf, "auto\n");
}

/* Strings are read as any writer of JSON may write them; what a terminal would not show is shown
 * escaped, once. */
static void test_strings(void **state)
{
	(void)state;
	static const char text[] =
		"{\"a\": \"1\\u00e9\\ud83d\\ude00\\n\\\\\\/\\u00\", \"b\": \"\\ud83d\\"
		"u0041\", \"c\": \"\\u0000x\"}";
	char buf[64];
	assert_string_equal(lpi_cli_json_text(text, "a", buf, sizeof(buf)),
			    "1\xc3\xa9\xf0\x9f\x98\x80\n\\/u00");
	assert_string_equal(lpi_cli_json_text(text, "a", buf, 7), "1\xc3\xa9");
	/* Half of a pair stands for itself, which is no UTF-8. */
	assert_string_equal(lpi_cli_json_text(text, "b", buf, sizeof(buf)), "\xed\xa0\xbd"
									    "A");
	assert_string_equal(lpi_cli_json_text(text, "c", buf, sizeof(buf)), "u0000x");
	memset(buf, 0, sizeof(buf));
	shown("\"a\\nb\\\\c\\u00e9\"", buf, sizeof(buf));
	assert_string_equal(buf, "a\\x0ab\\c\xc3\xa9\n");
}

/* P7: each beginning of a text, and depth beyond what is kept. */
static void test_any_bytes(void **state)
{
	(void)state;
	char text[sizeof(sample)];
	char buf[1024];
	char deep[200];
	for (size_t len = 0; len < sizeof(sample); len++) {
		memcpy(text, sample, len);
		text[len] = '\0';
		shown(text, buf, sizeof(buf));
		assert_true(lpi_cli_json_number(text, "zz") == 0);
	}
	memset(deep, '[', sizeof(deep) - 1);
	deep[sizeof(deep) - 1] = '\0';
	shown(deep, buf, sizeof(buf));
	assert_true(lpi_cli_json_number(deep, "0.0.0.0") == 0);
	assert_true(lpi_cli_json_number("}{]:,\"", "a") == 0);
	assert_true(lpi_cli_json_number("{\"a\" 1}", "a") == 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_find),
		cmocka_unit_test(test_show),
		cmocka_unit_test(test_strings),
		cmocka_unit_test(test_any_bytes),
	};
	return lp_test_main(tests, "cli/json");
}
