/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: the options' table is sound; files and flags set their values, in their order; wrong text
 * is refused with its place, and changes nothing.
 * Method: texts with their results, tables of errors. */
#include "base/testing/test.h"

#include <unistd.h>

#include "daemon/config/config.h"

static void test_table(void **state)
{
	(void)state;
	struct lp_config config;
	char text[LP_CONFIG_TEXT_MAX];
	char why[LP_WHY_MAX];
	lp_config_init(&config);
	for (int i = 0; i < LP_OPT_CNT; i++) {
		enum lp_option option;
		assert_ptr_equal(&lp_options[i], lp_config_find(lp_options[i].name, &option));
		assert_int_equal(i, (int)option);
		if (i > 0)
			assert_true(strcmp(lp_options[i - 1].name, lp_options[i].name) < 0);
		/* A shown value can be set. */
		(void)lp_config_format(&config, option, text, sizeof(text));
		if (text[0] != '\0')
			lp_test_ok(lp_config_set(&config, option, text, why));
	}
	assert_int_equal(UINT64_C(1) << 30, lp_config_number(&config, LP_OPT_MEMORY));
	assert_int_equal(0660, lp_config_number(&config, LP_OPT_SOCKET_MODE));
	assert_null(lp_config_text(&config, LP_OPT_DEVICE));
}

static void test_file(void **state)
{
	(void)state;
	static const char file[] = "# all of it\n"
				   "\n"
				   "device = /dev/a b\t# two words\r\n"
				   "memory=256M\n"
				   "  listen = unix:/run/x#y\n"
				   "listen = tcp:127.0.0.1:7000\n"
				   "write-path = direct";
	struct lp_config config;
	char why[LP_WHY_MAX];
	char text[64];
	size_t pos = 0;
	lp_config_init(&config);
	lp_test_ok(lp_config_parse(&config, "f", file, sizeof(file) - 1, why));
	assert_string_equal("/dev/a b", lp_config_text(&config, LP_OPT_DEVICE));
	assert_int_equal(UINT64_C(256) << 20, lp_config_number(&config, LP_OPT_MEMORY));
	assert_int_equal(3, lp_config_number(&config, LP_OPT_WRITE_PATH));
	assert_true(lp_config_item(&config, LP_OPT_LISTEN, &pos, text, sizeof(text)));
	assert_string_equal("unix:/run/x#y", text);
	assert_true(lp_config_item(&config, LP_OPT_LISTEN, &pos, text, sizeof(text)));
	assert_string_equal("tcp:127.0.0.1:7000", text);
	assert_false(lp_config_item(&config, LP_OPT_LISTEN, &pos, text, sizeof(text)));
	(void)lp_config_format(&config, LP_OPT_LISTEN, text, sizeof(text));
	assert_string_equal("unix:/run/x#y,tcp:127.0.0.1:7000", text);
}

static void test_bad_files(void **state)
{
	(void)state;
	static const struct {
		const char *text;
		const char *why;
	} cases[] = {
		{"\n\nmemroy = 1G\n", "f:3: memroy: there is no such option"},
		{"memory\n", "f:1: memory is not of the form NAME = VALUE"},
		{"memory = 10Q\n", "f:1: memory: 10Q is not a size (such as 4096, 64K or 1.5G)"},
		{"memory = 1M\n", "f:1: memory: 1M is out of range: 128 MiB to 16 TiB"},
		{"threads = 65\n", "f:1: threads: 65 is out of range: 0 to 64"},
		{"threads = -1\n", "f:1: threads: -1 is not a number"},
		{"store = disk\n", "f:1: store: disk is not one of block, mem, file"},
		{"socket-mode = 0999\n", "f:1: socket-mode: 0999 is not a mode (such as 0660)"},
		{"socket-mode = 7777\n", "f:1: socket-mode: 7777 is out of range: 00 to 0777"},
		{"user =\n", "f:1: user: its value is empty"},
		{"user = a\nuser = b\n", "f:2: user: given twice"},
		{"user = a\x01\n", "f:1: user: its value has a control character"},
		{"config = x\n", "f:1: config: there is no such option"},
		{"\x1b[31m = x\n", "f:1: \x1b[31m: there is no such option"},
	};
	for (size_t i = 0; i < LP_ARRAY_SIZE(cases); i++) {
		struct lp_config config;
		struct lp_config before;
		char why[LP_WHY_MAX] = "";
		lp_config_init(&config);
		before = config;
		lp_test_err(-EINVAL, lp_config_parse(&config, "f", cases[i].text,
						     strlen(cases[i].text), why));
		assert_string_equal(cases[i].why, why);
		assert_memory_equal(&before, &config, sizeof(config));
	}
}

static void test_flags(void **state)
{
	(void)state;
	char path[] = "config_test.XXXXXX";
	static const char file[] = "threads = 3\nuser = nobody\nlisten = unix:a\n";
	int fd = mkstemp(path);
	assert_true(fd >= 0);
	assert_int_equal(sizeof(file) - 1, write(fd, file, sizeof(file) - 1));
	assert_int_equal(0, close(fd));
	/* A flag overrides the file at any position. */
	char *const argv[] = {
		(char[]){"lapisd"},   (char[]){"--threads=2"}, (char[]){"--config"}, path,
		(char[]){"--listen"}, (char[]){"unix:b"},      (char[]){"store.img"}};
	struct lp_config config;
	struct lp_config_call call;
	char why[LP_WHY_MAX];
	char text[64];
	lp_config_init(&config);
	lp_test_ok(lp_config_parse_flags(&config, (int)LP_ARRAY_SIZE(argv), argv, &call, why));
	assert_int_equal(2, lp_config_number(&config, LP_OPT_THREADS));
	assert_string_equal("nobody", lp_config_text(&config, LP_OPT_USER));
	assert_string_equal("store.img", lp_config_text(&config, LP_OPT_DEVICE));
	(void)lp_config_format(&config, LP_OPT_LISTEN, text, sizeof(text));
	assert_string_equal("unix:a,unix:b", text);
	assert_false(call.help || call.version);
	assert_int_equal(0, unlink(path));
}

static void test_bad_flags(void **state)
{
	(void)state;
	const struct {
		char *words[3];
		const char *why;
	} cases[] = {
		{{(char[]){"--bogus"}, (char[]){"x"}},
		 "--bogus: unknown option (see lapisd --help)"},
		{{(char[]){"--device"}, (char[]){"x"}},
		 "--device: unknown option (see lapisd --help)"},
		{{(char[]){"-x"}}, "-x: unknown option (see lapisd --help)"},
		{{(char[]){"--memory"}}, "--memory needs a value (see lapisd --help)"},
		{{(char[]){"--threads=x"}}, "--threads: x is not a number"},
		{{(char[]){"a"}, (char[]){"b"}},
		 "b: only one DEVICE is allowed (see lapisd --help)"},
		{{(char[]){"--config"}, (char[]){"/nowhere"}},
		 "/nowhere: No such file or directory"},
	};
	for (size_t i = 0; i < LP_ARRAY_SIZE(cases); i++) {
		char *argv[4] = {(char[]){"lapisd"}};
		struct lp_config config;
		struct lp_config_call call;
		char why[LP_WHY_MAX] = "";
		int argc = 1;
		for (int k = 0; k < 3 && cases[i].words[k] != NULL; k++)
			argv[argc++] = cases[i].words[k];
		lp_config_init(&config);
		assert_true(lp_config_parse_flags(&config, argc, argv, &call, why) < 0);
		assert_string_equal(cases[i].why, why);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_table),     cmocka_unit_test(test_file),
		cmocka_unit_test(test_bad_files), cmocka_unit_test(test_flags),
		cmocka_unit_test(test_bad_flags),
	};
	return lp_test_main(tests, "daemon/config/config");
}
