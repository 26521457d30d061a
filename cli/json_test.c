/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: what a daemon answers is found by its path and shown without punctuation, and any other
 * bytes end quietly. Method: texts, whole and cut at each byte. */
#include "base/test.h"

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
	assert_string_equal(lpi_cli_json_text(sample, "b.c.1.d", buf, sizeof(buf)), "x\\\"y");
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
	shown("{\"a\": 1, \"b\": {\"c\": \"x\\\"y\"}}", buf, sizeof(buf));
	assert_string_equal(buf, "a  1\nb  \n  c  x\"y\n");
	memset(buf, 0, sizeof(buf));
	shown("\"auto\"", buf, sizeof(buf));
	assert_string_equal(buf, "auto\n");
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
		cmocka_unit_test(test_any_bytes),
	};
	return lp_test_main(tests, "cli/json");
}
