/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: a call of lapis bench means what it says, what was not given depends on the operation, and
 * a call that makes no sense is refused. Method: calls as lists of words. What is printed is looked
 * at by the system test. */
#include "base/testing/test.h"

#include <getopt.h>

#include "cli/bench/load_options.h"
#include "cli/remote/remote.h"

#define WORDS_MAX 24

/* The words are cut at blanks. Returns what the parser does. */
static int parse(const char *line, struct lpi_load_call *ret_call)
{
	static char text[512];
	char *words[WORDS_MAX];
	int cnt = 0;
	char *rest = text;
	(void)snprintf(text, sizeof(text), "bench %s", line);
	for (char *word = strtok_r(text, " ", &rest); word != NULL;
	     word = strtok_r(NULL, " ", &rest)) {
		assert_true(cnt < WORDS_MAX - 1);
		words[cnt++] = word;
	}
	words[cnt] = NULL;
	optind = 0; /* getopt begins anew */
	return lpi_load_call_parse(&lpi_remote_bench, cnt, words, ret_call);
}

static struct lpi_load_call parsed(const char *line)
{
	struct lpi_load_call call;
	if (parse(line, &call) != -1)
		fail_msg("refused: %s", line);
	return call;
}

static void test_defaults(void **state)
{
	(void)state;
	struct lpi_load_options load = parsed("").load;
	assert_int_equal(load.op, LPI_LOAD_RANDWRITE);
	assert_int_equal(load.sizes.low_bytes, 4096);
	assert_int_equal(load.objects_cnt, 16);
	assert_int_equal(load.object_bytes, 16 << 20);
	assert_int_equal(load.order, LPI_LOAD_UNIFORM);
	assert_true(load.run_ns == 10000000000 && load.warmup_ns == 1000000000);
	assert_int_equal(load.ops_max, 0);
	assert_string_equal(load.bucket, "lapis-bench");
	assert_int_equal(parsed("--op read").load.order, LPI_LOAD_SEQUENTIAL);
	assert_int_equal(parsed("--op put").load.objects_cnt, 0);
	assert_int_equal(parsed("--op get").load.objects_cnt, 1000);
	assert_int_equal(parsed("--op stat").load.objects_cnt, 10000);
	load = parsed("--op delete --objects 50").load;
	assert_true(load.ops_max == 50 && load.run_ns == 0 && load.warmup_ns == 0);
	load = parsed("--ops 10").load;
	assert_true(load.ops_max == 10 && load.run_ns == 0 && load.warmup_ns == 0);
	assert_true(parsed("--seconds 100").load.warmup_ns == 2000000000);
}

static void test_all_options(void **state)
{
	(void)state;
	struct lpi_load_call call = parsed(
		"--op mixed --size 4K:70,64K:30 --objects 3 --object-size 1M --dist zipf:1.2 "
		"--reads 33 --depth 7 --connections 2 --seconds 0.5 --warmup 0");
	assert_int_equal(call.load.op, LPI_LOAD_MIXED);
	assert_true(call.load.sizes.cnt == 2 && call.load.sizes.unit_bytes == 4096);
	assert_true(call.load.objects_cnt == 3 && call.load.object_bytes == 1 << 20);
	assert_true(call.load.order == LPI_LOAD_ZIPF && call.load.theta == 1.2);
	assert_true(call.load.reads_percent == 33 && call.load.depth == 7);
	assert_true(call.load.conns_cnt == 2 && call.load.run_ns == 500000000);
	assert_int_equal(call.load.warmup_ns, 0);
	call = parsed("--rate 2500.5 --poisson --verify --bucket b --keep --seed 9 --crc header "
		      "--write-path direct --timeout 2 --reconnect 0.5 --interval f --json");
	assert_true(call.load.rate == 2500.5 && call.load.is_poisson && call.load.is_verified);
	assert_string_equal(call.load.bucket, "b");
	assert_true(call.load.is_kept && call.load.seed == 9);
	assert_true(call.load.crc == LAPIS_CRC_HEADER);
	assert_true(call.load.write_path == LAPIS_PATH_DIRECT);
	assert_true(call.load.timeout_ms == 2000 && call.load.reconnect_ms == 500);
	assert_true(call.is_json);
	assert_string_equal(call.interval_path, "f");
	call = parsed("--op list --items 5 --prepare-only --ops 3");
	assert_true(call.load.items_max == 5 && call.load.only_prepares && call.load.is_kept);
	call = parsed("--op get --ready");
	assert_true(call.load.is_ready && call.load.is_kept);
}

static void test_refused(void **state)
{
	(void)state;
	static const char *const calls[] = {
		"more",
		"--bogus",
		"--op",
		"--op frobnicate",
		"--size 0",
		"--size 5M",
		"--size 4K-",
		"--op put --size 2G",
		"--objects 0",
		"--object-size 1K",
		"--objects 1000000000 --object-size 1T",
		"--dist zipf:0",
		"--dist zipfy",
		"--dist zipf:x",
		"--reads 101",
		"--depth 0",
		"--depth 5000",
		"--connections 65",
		"--connections 4 --depth 3",
		"--seconds soon",
		"--seconds 0",
		"--seconds -1",
		"--rate 0",
		"--poisson",
		"--crc some",
		"--write-path scenic",
		"--bucket a/b",
		"--bucket .",
		"--op put --prepare-only",
		"--op get --ready --prepare-only",
		"--op randread --ready",
		"--verify --size 1000",
		"--op put --verify --size 10",
		"--verify --objects 1000 --object-size 1G",
		"--op get --verify --size 1G --depth 64",
	};
	for (size_t i = 0; i < LP_ARRAY_SIZE(calls); i++) {
		struct lpi_load_call call = {.interval_path = "untouched"};
		if (parse(calls[i], &call) != LP_EXIT_USAGE)
			fail_msg("not refused: %s", calls[i]);
		assert_string_equal(call.interval_path, "untouched");
	}
}

static void test_names(void **state)
{
	(void)state;
	for (int i = 0; i < LPI_LOAD_OP_CNT; i++)
		assert_int_equal(lpi_load_op_parse(lpi_load_op_name((enum lpi_load_op)i)), i);
	assert_int_equal(lpi_load_op_parse("nothing"), -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_defaults),
		cmocka_unit_test(test_all_options),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_names),
	};
	return lp_test_main(tests, "cli/bench/load_options");
}
