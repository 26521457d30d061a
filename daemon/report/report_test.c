/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: the available space in the status is the space that objects may have: without the blocks
 * kept for cuts of shared blocks (P6), but with the blocks that no shard has leased yet. Prometheus
 * gets histograms in which each value counts from the first bound that it does not exceed, and
 * seconds and bytes. Method: reports of known numbers. */
#include "daemon/report/report.h"

#include "base/testing/test.h"
#include "wire/wire.h"

static void test_available(void **state)
{
	static struct lpi_shard_report shards[2];
	struct lpi_text text = {.bytes = NULL};
	char wanted[64];
	(void)state;
	shards[0].store =
		(struct lp_store_stats){.free_blocks = 1000, .kept_blocks = 64, .used_blocks = 30};
	shards[1].store =
		(struct lp_store_stats){.free_blocks = 20, .kept_blocks = 20, .used_blocks = 3};
	const struct lpi_report report = {.server = "lapisd",
					  .allocator = "none",
					  .store_kind = "block",
					  .state = "ok",
					  .reason = "",
					  .shard_cnt = 2,
					  .shards = shards,
					  .unleased_bytes = 1 << 20};
	lpi_report_status(&report, &text);
	assert_false(text.failed);
	(void)snprintf(wanted, sizeof(wanted), "\"available_bytes\": %u,", 936 * 4096 + (1 << 20));
	assert_non_null(strstr(text.bytes, wanted));
	assert_non_null(strstr(text.bytes, "\"used_bytes\": 135168,"));
	lpi_text_fini(&text);
	/* If one shard takes no more, the other one can have all free space. If both do, no object
	 * can. */
	for (uint32_t i = 0; i < 2; i++) {
		shards[i].store.takes_no_more = true;
		text = (struct lpi_text){.bytes = NULL};
		lpi_report_status(&report, &text);
		assert_false(text.failed);
		assert_int_equal(strstr(text.bytes, wanted) != NULL, i == 0);
		assert_int_equal(strstr(text.bytes, "\"available_bytes\": 0,") != NULL, i == 1);
		lpi_text_fini(&text);
	}
}

static void has_line(const struct lpi_text *text, const char *line)
{
	if (strstr(text->bytes, line) == NULL)
		print_message("no %s in:\n%s", line, text->bytes);
	assert_non_null(strstr(text->bytes, line));
}

static void test_prometheus(void **state)
{
	static struct lpi_shard_report shards[1];
	static struct lpi_thread_report threads[1];
	/* Each just below a bound by more than the width of a bucket inside, or just above it. */
	static const uint64_t values[] = {1,       9600,        10001,       960000,
					  1000001, 29000000000, 30000000001, UINT64_C(1) << 45};
	const uint32_t op = 1;
	struct lpi_text text = {.bytes = NULL};
	uint64_t sum = 0;
	(void)state;
	assert_string_equal(lpi_report_op(op), "hello");
	lp_hist_reset(&shards[0].latency[op]);
	for (size_t i = 0; i < LP_ARRAY_SIZE(values); i++) {
		lp_hist_record(&shards[0].latency[op], values[i]);
		sum += values[i];
	}
	shards[0].has_latency[op] = true;
	shards[0].store.free_blocks = 3;
	shards[0].store.index_stalled_ns = 12345678901;
	shards[0].door.limits_opens = 7;
	const struct lpi_report report = {.allocator = "none",
					  .store_kind = "block",
					  .state = "ok",
					  .reason = "",
					  .shard_cnt = 1,
					  .thread_cnt = 1,
					  .shards = shards,
					  .threads = threads};
	lpi_report_prometheus(&report, &text);
	assert_false(text.failed);
#define BUCKET "\nlapis_request_duration_seconds_bucket{shard=\"0\",op=\"hello\",le="
	has_line(&text, BUCKET "\"0.00001\"} 2\n");
	has_line(&text, BUCKET "\"0.000025\"} 3\n");
	has_line(&text, BUCKET "\"0.0005\"} 3\n");
	has_line(&text, BUCKET "\"0.001\"} 4\n");
	has_line(&text, BUCKET "\"0.0025\"} 5\n");
	has_line(&text, BUCKET "\"10\"} 5\n");
	has_line(&text, BUCKET "\"30\"} 6\n");
	has_line(&text, BUCKET "\"+Inf\"} 8\n");
	has_line(&text, "\nlapis_request_duration_seconds_count{shard=\"0\",op=\"hello\"} 8\n");
	char line[100];
	(void)snprintf(
		line, sizeof(line),
		"\nlapis_request_duration_seconds_sum{shard=\"0\",op=\"hello\"} %llu.%09llu\n",
		(unsigned long long)(sum / LP_NS_PER_S), (unsigned long long)(sum % LP_NS_PER_S));
	has_line(&text, line);
	has_line(&text, "\nlapis_store_free_bytes{shard=\"0\"} 12288\n");
	has_line(&text, "\nlapis_store_index_stalled_seconds_total{shard=\"0\"} 12.345678901\n");
	has_line(&text, "\nlapis_connections_limits_total{shard=\"0\",limit=\"opens\"} 7\n");
	lpi_text_fini(&text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_available),
		cmocka_unit_test(test_prometheus),
	};
	return lp_test_main(tests, "daemon/report/report");
}
