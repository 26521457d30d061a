/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: what cannot be a key is told from what can before a daemon is asked (rule N6), options are
 * read as their command declares them, a file keeps its holes, and a transfer says how long it will
 * take. Method: tables of texts, files of known blocks, times that the test gives. */
#include "base/testing/test.h"

#include <fcntl.h>
#include <getopt.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/remote/remote.h"
#include "cli/remote/transfer.h"
#include "cli/remote/tree.h"

static void test_keys(void **state)
{
	(void)state;
	static const char *const good[] = {"a", "a/b", "...", ".a/b.", "a b\n/\xff", "-"};
	static const char *const bad[] = {"",  "/",    "/a",   "a/",   "a//b",
					  ".", "a/..", "../a", "a/./b"};
	char name[258];
	for (size_t i = 0; i < LP_ARRAY_SIZE(good); i++)
		assert_int_equal(lpi_key_check(good[i]), 0);
	for (size_t i = 0; i < LP_ARRAY_SIZE(bad); i++)
		assert_int_equal(lpi_key_check(bad[i]), LP_EXIT_USAGE);
	memset(name, 'n', sizeof(name));
	name[255] = '\0';
	assert_int_equal(lpi_key_check(name), 0);
	name[255] = 'n';
	name[256] = '\0';
	assert_int_equal(lpi_key_check(name), LP_EXIT_USAGE);
}

static void test_targets(void **state)
{
	(void)state;
	static const char *const good[] = {"a", "a/", "a/b/"};
	static const char *const bad[] = {"", "/", "//", "a//", "/a/", "../", "a/./"};
	for (size_t i = 0; i < LP_ARRAY_SIZE(good); i++)
		assert_int_equal(lpi_key_check_target(good[i]), 0);
	for (size_t i = 0; i < LP_ARRAY_SIZE(bad); i++)
		assert_int_equal(lpi_key_check_target(bad[i]), LP_EXIT_USAGE);
}

static void test_join(void **state)
{
	(void)state;
	char key[LPI_KEY_MAX + 1];
	char dir[LPI_KEY_MAX];
	lp_test_ok(lpi_key_join("a/b", "c", key));
	assert_string_equal(key, "a/b/c");
	lp_test_ok(lpi_key_join("a/", "c", key));
	assert_string_equal(key, "a/c");
	lp_test_ok(lpi_key_join("", "c", key));
	assert_string_equal(key, "c");
	assert_string_equal(lpi_key_name("a/b/c"), "c");
	assert_string_equal(lpi_key_name("c"), "c");
	memset(dir, 'd', sizeof(dir));
	dir[sizeof(dir) - 1] = '\0';
	lp_test_err(-ENAMETOOLONG, lpi_key_join(dir, "c", key));
}

/* Two that would become one are found among many, in no time: they come in any order. */
static void test_into(void **state)
{
	(void)state;
	enum { CNT = 100000 };
	static const struct lpi_cli_command command = {.name = "x", .synopsis = "KEY"};
	static char text[CNT][16];
	static char *names[CNT];
	for (int i = 0; i < CNT; i++) {
		(void)snprintf(text[i], sizeof(text[i]), "%d/%d", i % 7, (i * 7919) % CNT);
		names[i] = text[i];
	}
	assert_int_equal(lpi_names_check_into(&command, names, CNT, "b/"), 0);
	names[CNT - 1] = names[1] + 2;
	assert_int_equal(lpi_names_check_into(&command, names, CNT - 1, "b/"), 0);
	assert_int_equal(lpi_names_check_into(&command, names, CNT, "b/"), LP_EXIT_USAGE);
	assert_int_equal(lpi_names_check_into(&command, names, 1, "b/"), 0);
	assert_int_equal(lpi_names_check_into(&command, names, 0, "b/"), 0);
}

/* What a daemon lists is not believed: it could name what is outside. */
static void test_item_names(void **state)
{
	(void)state;
	static const struct {
		const char *name;
		size_t len;
		int err;
	} cases[] = {{"a", 1, 0},          {"..a", 3, 0},          {"", 0, -EPROTO},
		     {".", 1, -EPROTO},    {"..", 2, -EPROTO},     {"a/b", 3, -EPROTO},
		     {"a\0b", 3, -EPROTO}, {"../../x", 7, -EPROTO}};
	char name[256];
	for (size_t i = 0; i < LP_ARRAY_SIZE(cases); i++) {
		const struct lapis_item item = {.name = cases[i].name, .name_bytes = cases[i].len};
		lp_test_err(cases[i].err, lpi_item_name(&item, name));
	}
}

static void test_args(void **state)
{
	(void)state;
	static const struct option longs[] = {{"long", no_argument, NULL, 'l'},
					      {"size", required_argument, NULL, 's'},
					      {NULL, 0, NULL, 0}};
	static const struct lpi_args_form form = {"l", longs, 1, 2};
	static const struct lpi_cli_command command = {.name = "x", .synopsis = "KEY"};
	char words[][8] = {"x", "a", "--size", "5", "-l", "--", "-b", "c"};
	char *argv[LP_ARRAY_SIZE(words) + 1] = {NULL};
	struct lpi_args args;
	for (size_t i = 0; i < LP_ARRAY_SIZE(words); i++)
		argv[i] = words[i];
	optind = 0;
	assert_int_equal(lpi_args_parse(&command, 7, argv, &form, &args), -1);
	assert_true(args.has['l'] && args.has['s']);
	assert_string_equal(args.value['s'], "5");
	assert_int_equal(args.cnt, 2);
	assert_string_equal(args.names[0], "a");
	assert_string_equal(args.names[1], "-b");
	optind = 0;
	assert_int_equal(lpi_args_parse(&command, 8, argv, &form, &args), LP_EXIT_USAGE);
	optind = 0;
	assert_int_equal(lpi_args_parse(&command, 1, argv, &form, &args), LP_EXIT_USAGE);
}

static void test_sparse(void **state)
{
	(void)state;
	static uint8_t data[5 * 4096];
	static uint8_t back[6 * 4096];
	char path[] = "/tmp/lapis-sparse-XXXXXX";
	int fd = mkstemp(path);
	assert_true(fd >= 0);
	assert_int_equal(unlink(path), 0);
	memset(data + 4096, 0x5a, 4096);
	data[5 * 4096 - 1] = 1;
	/* Not on the grid: pieces of 96 bytes, four blocks, and the rest. */
	lp_test_ok(lpi_write_sparse(fd, 4000, data, sizeof(data)));
	assert_int_equal(pread(fd, back, sizeof(back), 4000), sizeof(data));
	assert_memory_equal(back, data, sizeof(data));
	struct stat st;
	assert_int_equal(fstat(fd, &st), 0);
	assert_true(st.st_blocks * 512 < st.st_size);
	assert_int_equal(close(fd), 0);
}

static void test_progress(void **state)
{
	(void)state;
	char line[200];
	struct lpi_progress progress = {.total_bytes = UINT64_C(3) << 30,
					.done_bytes = UINT64_C(1) << 30,
					.began_ns = LP_NS_PER_S};
	(void)lpi_progress_format(&progress, 3 * LP_NS_PER_S, line, sizeof(line));
	assert_string_equal(line, "1 GiB of 3 GiB, 512 MiB/s, 0:00:04 left");
	progress.items = 7;
	progress.total_bytes = 0;
	(void)lpi_progress_format(&progress, 2 * LP_NS_PER_S, line, sizeof(line));
	assert_string_equal(line, "7 done, 1 GiB, 1 GiB/s");
	/* No time has gone by: no rate, and no end in sight. */
	(void)lpi_progress_format(&progress, LP_NS_PER_S, line, sizeof(line));
	assert_string_equal(line, "7 done, 1 GiB, 0 B/s");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_keys),     cmocka_unit_test(test_targets),
		cmocka_unit_test(test_join),     cmocka_unit_test(test_item_names),
		cmocka_unit_test(test_args),     cmocka_unit_test(test_sparse),
		cmocka_unit_test(test_progress), cmocka_unit_test(test_into),
	};
	return lp_test_main(tests, "cli/remote/remote");
}
