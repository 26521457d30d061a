/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/bench/load_report.h"

#include <inttypes.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "cli/cli.h"
#include "cli/json.h"

static double seconds_of(const struct lpi_load_result *result)
{
	return (double)result->took_ns / (double)LP_NS_PER_S;
}

static double per_second(const struct lpi_load_result *result, uint64_t cnt)
{
	return result->took_ns > 0 ? (double)cnt / seconds_of(result) : 0.0;
}

static double per_op(const struct lpi_load_result *result, double what)
{
	return result->all.ops > 0 ? what / (double)result->all.ops : 0.0;
}

static double to_us(double ns)
{
	return ns / (double)LP_NS_PER_US;
}

static double percentile_us(const struct lp_hist *hist, uint32_t ppm)
{
	return to_us((double)lp_hist_percentile(hist, ppm));
}

static bool is_used(const struct lpi_load_part *part)
{
	return part->ops + part->errors > 0;
}

static uint32_t used_kinds(const struct lpi_load_result *result)
{
	uint32_t cnt = 0;
	for (int i = 0; i < LPI_LOAD_KIND_CNT; i++)
		cnt += is_used(&result->kinds[i]);
	return cnt;
}

uint64_t lpi_load_error_sum(const struct lpi_load *load)
{
	size_t cnt = 0;
	uint64_t sum = 0;
	const struct lpi_load_error *errors = lpi_load_errors(load, &cnt);
	for (size_t i = 0; i < cnt; i++)
		sum += errors[i].cnt;
	return sum;
}

static const char *order_name(enum lpi_load_order order)
{
	static const char *const names[] = {"sequential", "uniform", "zipf"};
	return names[order];
}

/* As it can be given. */
static void format_sizes(const struct lpi_load_sizes *sizes, char *buf, size_t len)
{
	size_t at = 0;
	buf[0] = '\0';
	for (uint32_t i = 0; i < sizes->cnt && at < len; i++) {
		const struct lpi_load_size *size = &sizes->items[i];
		int n = snprintf(buf + at, len - at, "%s%" PRIu64, i > 0 ? "," : "",
				 size->low_bytes);
		at += (size_t)LP_MAX(n, 0);
		if (size->high_bytes != size->low_bytes && at < len)
			at += (size_t)LP_MAX(snprintf(buf + at, len - at, "%c%" PRIu64,
						      size->is_log ? '~' : '-', size->high_bytes),
					     0);
		if (sizes->cnt > 1 && at < len)
			at += (size_t)LP_MAX(
				snprintf(buf + at, len - at, ":%" PRIu32, size->weight), 0);
	}
}

/* --- While it runs ---------------------------------------------------------------------------- */

void lpi_load_report_second(char *buf, size_t len, const struct lpi_load_second *second,
			    uint64_t errors_sum)
{
	double took = second->until_s - second->from_s;
	double rate = took > 0 ? (double)second->ops / took : 0.0;
	double bytes = took > 0 ? (double)second->bytes / took : 0.0;
	(void)snprintf(buf, len,
		       "%6.0f s %10.0f /s %9.1f MiB/s   p50 %8.0f us  p99 %8.0f us  max %8.0f us"
		       "   errors %" PRIu64,
		       second->until_s, rate, bytes / 1048576, to_us((double)second->p50_ns),
		       to_us((double)second->p99_ns), to_us((double)second->max_ns), errors_sum);
}

void lpi_load_report_csv(FILE *to, const struct lpi_load *load)
{
	size_t cnt = 0;
	const struct lpi_load_second *seconds = lpi_load_seconds(load, &cnt);
	(void)fputs("from_s,until_s,ops,errors,bytes,p50_us,p99_us,max_us\n", to);
	for (size_t i = 0; i < cnt; i++)
		(void)fprintf(to, "%.3f,%.3f,%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%.3f,%.3f,%.3f\n",
			      seconds[i].from_s, seconds[i].until_s, seconds[i].ops,
			      seconds[i].errors, seconds[i].bytes, to_us((double)seconds[i].p50_ns),
			      to_us((double)seconds[i].p99_ns), to_us((double)seconds[i].max_ns));
}

void lpi_load_report_errors(const struct lpi_load *load)
{
	size_t cnt = 0;
	const struct lpi_load_error *errors = lpi_load_errors(load, &cnt);
	for (size_t i = 0; i < cnt; i++)
		(void)lpi_cli_fail(errors[i].key, "%s: %s (%" PRIu64 " such error%s)",
				   lpi_load_kind_name(errors[i].kind), errors[i].text,
				   errors[i].cnt, errors[i].cnt == 1 ? "" : "s");
}

/* --- For a person ----------------------------------------------------------------------------- */

static void print_what(const struct lpi_load_options *options)
{
	char sizes[256];
	char object[32] = "";
	bool uses_files = lpi_load_uses_files(options->op);
	bool is_fixed = options->sizes.low_bytes == options->sizes.high_bytes;
	format_sizes(&options->sizes, sizes, sizeof(sizes));
	if (is_fixed)
		(void)lpi_cli_format_size(options->sizes.low_bytes, sizes, sizeof(sizes));
	if (uses_files)
		(void)lpi_cli_format_size(options->object_bytes, object, sizeof(object));
	(void)printf(" of %s%s", sizes, is_fixed ? "" : " bytes");
	if (options->objects_cnt == 0) {
		(void)fputs(", new objects", stdout);
		return;
	}
	(void)printf(", %" PRIu64 " %s%s, %s", options->objects_cnt,
		     uses_files ? "files of " : "objects", object, order_name(options->order));
	if (options->order == LPI_LOAD_ZIPF)
		(void)printf(" %.3g", options->theta);
	if (options->op == LPI_LOAD_MIXED || options->op == LPI_LOAD_PUTGET)
		(void)printf(", %u %% reads", options->reads_percent);
}

static void print_head(const struct lpi_load_options *options)
{
	(void)fputs(lpi_load_op_name(options->op), stdout);
	if (options->op != LPI_LOAD_PING)
		print_what(options);
	(void)printf(", depth %u, %u connection%s", options->depth, options->conns_cnt,
		     options->conns_cnt == 1 ? "" : "s");
	if (options->rate > 0)
		(void)printf(", %.6g /s %s", options->rate,
			     options->is_poisson ? "at random" : "evenly");
	(void)putchar('\n');
}

static void print_latency(const char *name, const struct lp_hist *hist)
{
	(void)printf("%-12s mean %.1f, p50 %.1f, p95 %.1f, p99 %.1f, p99.9 %.1f, p99.99 %.1f, "
		     "max %.1f\n",
		     name, to_us(lp_hist_mean(hist)), percentile_us(hist, LP_HIST_P50),
		     percentile_us(hist, LP_HIST_P95), percentile_us(hist, LP_HIST_P99),
		     percentile_us(hist, LP_HIST_P999), percentile_us(hist, LP_HIST_P9999),
		     percentile_us(hist, LP_HIST_P100));
}

static void print_kinds(const struct lpi_load_result *result)
{
	for (int i = 0; used_kinds(result) > 1 && i < LPI_LOAD_KIND_CNT; i++) {
		const struct lpi_load_part *part = &result->kinds[i];
		char name[16];
		if (!is_used(part))
			continue;
		(void)snprintf(name, sizeof(name), "  %s",
			       lpi_load_kind_name((enum lpi_load_kind)i));
		(void)printf("%-12s %" PRIu64 ", %.0f /s, %.1f MiB/s, %" PRIu64 " errors\n", name,
			     part->ops, per_second(result, part->ops),
			     per_second(result, part->bytes) / 1048576, part->errors);
		print_latency("", &part->latency_ns);
	}
}

static void print_schedule(const struct lpi_load_report *report)
{
	const struct lpi_load_result *result = lpi_load_result(report->load);
	if (lpi_load_options(report->load)->rate <= 0)
		return;
	(void)printf("%-12s %" PRIu64 " begun more than 1 ms after they were due, the latest "
		     "%.1f ms; %" PRIu64 " never%s\n",
		     "schedule", result->late_cnt, (double)result->late_max_ns / 1e6,
		     result->unsent_cnt,
		     result->unsent_cnt > 0 ? ": the rate was not reached" : "");
}

static void print_verified(const struct lpi_load_report *report)
{
	const struct lpi_load_result *result = lpi_load_result(report->load);
	if (!lpi_load_options(report->load)->is_verified)
		return;
	(void)printf("%-12s every read; at the end %" PRIu64
		     " object%s or parts read back: %" PRIu64 " wrong\n",
		     "verified", result->checked, result->checked == 1 ? "" : "s",
		     result->mismatches);
}

static void print_server(const char *stats)
{
	char name[64];
	char store[16];
	char rss[32];
	if (stats == NULL)
		return;
	uint64_t bytes = (uint64_t)lpi_cli_json_number(stats, "process.rss_bytes");
	(void)lpi_cli_format_size(bytes, rss, sizeof(rss));
	(void)printf("%-12s ", "server");
	lpi_cli_print_escaped(stdout, lpi_cli_json_text(stats, "server", name, sizeof(name)));
	(void)fputs(", ", stdout);
	lpi_cli_print_escaped(stdout, lpi_cli_json_text(stats, "store", store, sizeof(store)));
	(void)printf(" store, shards %.0f, threads %.0f, RSS %s\n",
		     lpi_cli_json_number(stats, "shards_cnt"),
		     lpi_cli_json_number(stats, "threads_cnt"), rss);
}

void lpi_load_report_text(const struct lpi_load_report *report)
{
	const struct lpi_load_result *result = lpi_load_result(report->load);
	print_head(lpi_load_options(report->load));
	(void)printf("%-12s %" PRIu64 " in %.3f s, %" PRIu64 " errors%s\n", "operations",
		     result->all.ops, seconds_of(result), lpi_load_error_sum(report->load),
		     report->is_interrupted ? ", interrupted" : "");
	(void)printf("%-12s %.0f /s, %.1f MiB/s\n", "rate", per_second(result, result->all.ops),
		     per_second(result, result->all.bytes) / 1048576);
	print_latency("latency us", &result->all.latency_ns);
	print_kinds(result);
	if (result->items > 0)
		(void)printf("%-12s %" PRIu64 ", %.0f /s\n", "names", result->items,
			     per_second(result, result->items));
	print_schedule(report);
	print_verified(report);
	(void)printf("%-12s %.2f us of CPU an operation (user %.2f, system %.2f); sends %.4f, "
		     "receives %.4f\n",
		     "client", to_us(per_op(result, (double)(result->user_ns + result->system_ns))),
		     to_us(per_op(result, (double)result->user_ns)),
		     to_us(per_op(result, (double)result->system_ns)),
		     per_op(result, (double)result->sends),
		     per_op(result, (double)result->receives));
	print_server(report->stats_after);
}

/* --- JSON ------------------------------------------------------------------------------------- */

static void json_latency(FILE *to, const struct lp_hist *hist)
{
	(void)fprintf(to,
		      "\"latency_us\": {\"mean\": %.3f, \"min\": %.3f, \"p50\": %.3f, "
		      "\"p95\": %.3f, \"p99\": %.3f, \"p999\": %.3f, \"p9999\": %.3f, "
		      "\"max\": %.3f}",
		      to_us(lp_hist_mean(hist)), percentile_us(hist, 0),
		      percentile_us(hist, LP_HIST_P50), percentile_us(hist, LP_HIST_P95),
		      percentile_us(hist, LP_HIST_P99), percentile_us(hist, LP_HIST_P999),
		      percentile_us(hist, LP_HIST_P9999), percentile_us(hist, LP_HIST_P100));
}

/* [lowest, highest, how many], in nanoseconds: what percentile curves are drawn from. */
static void json_histogram(FILE *to, const struct lp_hist *hist)
{
	struct lp_hist_bucket bucket;
	size_t pos = 0;
	const char *comma = "";
	(void)fputs("\"histogram_ns\": [", to);
	while (lp_hist_next(hist, &pos, &bucket)) {
		(void)fprintf(to, "%s[%" PRIu64 ", %" PRIu64 ", %" PRIu64 "]", comma, bucket.low,
			      LP_MIN(bucket.high, hist->max), bucket.count);
		comma = ", ";
	}
	(void)fputc(']', to);
}

static void json_kinds(FILE *to, const struct lpi_load_result *result)
{
	const char *comma = "";
	(void)fputs(", \"by_operation\": {", to);
	for (int i = 0; i < LPI_LOAD_KIND_CNT; i++) {
		const struct lpi_load_part *part = &result->kinds[i];
		if (!is_used(part))
			continue;
		(void)fprintf(to,
			      "%s\"%s\": {\"ops\": %" PRIu64 ", \"errors\": %" PRIu64
			      ", \"iops\": %.1f, \"bytes_per_s\": %.0f, ",
			      comma, lpi_load_kind_name((enum lpi_load_kind)i), part->ops,
			      part->errors, per_second(result, part->ops),
			      per_second(result, part->bytes));
		json_latency(to, &part->latency_ns);
		(void)fputs(", ", to);
		json_histogram(to, &part->latency_ns);
		(void)fputc('}', to);
		comma = ", ";
	}
	(void)fputc('}', to);
}

static const char *yes_no(bool is)
{
	return is ? "true" : "false";
}

static void json_parameters(FILE *to, const struct lpi_load_options *options)
{
	static const char *const crcs[] = {"all", "header", "off"};
	static const char *const paths[] = {"auto", "inline", "deferred", "direct"};
	char sizes[512];
	bool uses_files = lpi_load_uses_files(options->op);
	format_sizes(&options->sizes, sizes, sizeof(sizes));
	(void)fprintf(to,
		      ", \"parameters\": {\"op\": \"%s\", \"size\": \"%s\", \"objects\": %" PRIu64,
		      lpi_load_op_name(options->op), sizes, options->objects_cnt);
	(void)fprintf(to, ", \"object_size\": %" PRIu64 ", \"dist\": \"%s\", \"theta\": %.6g",
		      uses_files ? options->object_bytes : 0, order_name(options->order),
		      options->order == LPI_LOAD_ZIPF ? options->theta : 0.0);
	(void)fprintf(to,
		      ", \"reads\": %u, \"items\": %u, \"depth\": %u, \"connections\": %u, "
		      "\"seconds\": %.6g, \"ops\": %" PRIu64 ", \"warmup\": %.6g",
		      options->reads_percent, options->items_max, options->depth,
		      options->conns_cnt, (double)options->run_ns / 1e9, options->ops_max,
		      (double)options->warmup_ns / 1e9);
	(void)fprintf(to,
		      ", \"rate\": %.6g, \"poisson\": %s, \"verify\": %s, \"seed\": %" PRIu64
		      ", \"crc\": \"%s\", \"write_path\": \"%s\", \"timeout\": %.6g, "
		      "\"reconnect\": %.6g, \"bucket\": ",
		      options->rate, yes_no(options->is_poisson), yes_no(options->is_verified),
		      options->seed, crcs[options->crc], paths[options->write_path],
		      options->timeout_ms / 1e3, options->reconnect_ms / 1e3);
	lpi_cli_print_json(to, options->bucket);
	(void)fputc('}', to);
}

static void json_client(FILE *to, const struct lpi_load_result *result)
{
	(void)fprintf(to,
		      ", \"client\": {\"version\": \"%s\", \"user_s\": %.6f, \"system_s\": %.6f, "
		      "\"cpu_us_per_op\": %.4f, \"user_us_per_op\": %.4f, "
		      "\"system_us_per_op\": %.4f",
		      lapis_version(), (double)result->user_ns / 1e9,
		      (double)result->system_ns / 1e9,
		      to_us(per_op(result, (double)(result->user_ns + result->system_ns))),
		      to_us(per_op(result, (double)result->user_ns)),
		      to_us(per_op(result, (double)result->system_ns)));
	(void)fprintf(to,
		      ", \"sends\": %" PRIu64 ", \"receives\": %" PRIu64 ", \"retries\": %" PRIu64
		      ", \"connects\": %" PRIu64 ", \"shard_misses\": %" PRIu64 "}",
		      result->sends, result->receives, result->retries, result->connects,
		      result->shard_misses);
}

static void json_errors(FILE *to, const struct lpi_load *load)
{
	size_t cnt = 0;
	const struct lpi_load_error *errors = lpi_load_errors(load, &cnt);
	(void)fputs(", \"error_kinds\": [", to);
	for (size_t i = 0; i < cnt; i++) {
		(void)fprintf(to, "%s{\"operation\": \"%s\", \"error\": ", i > 0 ? ", " : "",
			      lpi_load_kind_name(errors[i].kind));
		lpi_cli_print_json(to, lp_strerror(errors[i].status));
		(void)fprintf(to, ", \"count\": %" PRIu64 ", \"first_key\": ", errors[i].cnt);
		lpi_cli_print_json(to, errors[i].key);
		(void)fputs(", \"first\": ", to);
		lpi_cli_print_json(to, errors[i].text);
		(void)fputc('}', to);
	}
	(void)fputc(']', to);
}

static void json_seconds(FILE *to, const struct lpi_load *load)
{
	size_t cnt = 0;
	const struct lpi_load_second *seconds = lpi_load_seconds(load, &cnt);
	(void)fputs(", \"series\": [", to);
	for (size_t i = 0; i < cnt; i++)
		(void)fprintf(to,
			      "%s{\"from_s\": %.3f, \"until_s\": %.3f, \"ops\": %" PRIu64
			      ", \"errors\": %" PRIu64 ", \"bytes\": %" PRIu64
			      ", \"p50_us\": %.3f, \"p99_us\": %.3f, \"max_us\": %.3f}",
			      i > 0 ? ", " : "", seconds[i].from_s, seconds[i].until_s,
			      seconds[i].ops, seconds[i].errors, seconds[i].bytes,
			      to_us((double)seconds[i].p50_ns), to_us((double)seconds[i].p99_ns),
			      to_us((double)seconds[i].max_ns));
	(void)fputc(']', to);
}

/* --- The daemon's own figures ----------------------------------------------------------------- */

static double sum_over(const char *stats, const char *list, const char *field)
{
	char path[80];
	char word[4];
	double sum = 0;
	for (uint32_t i = 0; i < LPI_LOAD_CONNS_MAX; i++) {
		(void)snprintf(path, sizeof(path), "%s.%u.%s", list, i, field);
		if (lpi_cli_json_word(stats, path, word, sizeof(word))[0] == '\0')
			break;
		sum += lpi_cli_json_number(stats, path);
	}
	return sum;
}

static void json_counts(FILE *to, const char *name, const char *stats)
{
	static const char *const store[] = {"commits",    "log_writes", "data_writes",
					    "data_reads", "read_bytes", "written_bytes"};
	(void)fprintf(to, ", \"%s\": {\"rss_bytes\": %.0f, \"heap_used_bytes\": %.0f", name,
		      lpi_cli_json_number(stats, "process.rss_bytes"),
		      lpi_cli_json_number(stats, "process.heap_used_bytes"));
	for (size_t i = 0; i < LP_ARRAY_SIZE(store); i++) {
		char field[40];
		(void)snprintf(field, sizeof(field), "store.%s", store[i]);
		(void)fprintf(to, ", \"%s\": %.0f", store[i], sum_over(stats, "shards", field));
	}
	(void)fprintf(to, ", \"index_writes\": %.0f, \"index_written_bytes\": %.0f}",
		      sum_over(stats, "devices", "index_writes"),
		      sum_over(stats, "devices", "index_written_bytes"));
}

static void json_server(FILE *to, const struct lpi_load_report *report)
{
	const char *stats = report->stats_before;
	static const char *const words[] = {"server", "allocator", "store"};
	char text[64];
	if (stats == NULL)
		return;
	(void)fputs(", \"server\": {", to);
	for (size_t i = 0; i < LP_ARRAY_SIZE(words); i++) {
		(void)fprintf(to, "\"%s\": ", i == 0 ? "version" : words[i]);
		lpi_cli_print_json(to, lpi_cli_json_text(stats, words[i], text, sizeof(text)));
		(void)fputs(", ", to);
	}
	(void)fprintf(to, "\"shards\": %.0f, \"threads\": %.0f",
		      lpi_cli_json_number(stats, "shards_cnt"),
		      lpi_cli_json_number(stats, "threads_cnt"));
	json_counts(to, "before", stats);
	if (report->stats_after != NULL)
		json_counts(to, "after", report->stats_after);
	(void)fputc('}', to);
}

void lpi_load_report_json(FILE *to, const struct lpi_load_report *report)
{
	const struct lpi_load_options *options = lpi_load_options(report->load);
	const struct lpi_load_result *result = lpi_load_result(report->load);
	(void)fprintf(to,
		      "{\"op\": \"%s\", \"ops\": %" PRIu64 ", \"errors\": %" PRIu64
		      ", \"mismatches\": %" PRIu64 ", \"interrupted\": %s, \"seconds\": %.6f, "
		      "\"iops\": %.1f, \"bytes\": %" PRIu64 ", \"bytes_per_s\": %.0f, ",
		      lpi_load_op_name(options->op), result->all.ops,
		      lpi_load_error_sum(report->load), result->mismatches,
		      yes_no(report->is_interrupted), seconds_of(result),
		      per_second(result, result->all.ops), result->all.bytes,
		      per_second(result, result->all.bytes));
	json_latency(to, &result->all.latency_ns);
	(void)fputs(", ", to);
	json_histogram(to, &result->all.latency_ns);
	json_kinds(to, result);
	(void)fprintf(to,
		      ", \"schedule\": {\"late\": %" PRIu64 ", \"late_max_us\": %.3f, "
		      "\"unsent\": %" PRIu64 "}, \"items\": %" PRIu64 ", \"checked\": %" PRIu64,
		      result->late_cnt, to_us((double)result->late_max_ns), result->unsent_cnt,
		      result->items, result->checked);
	json_parameters(to, options);
	json_client(to, result);
	json_errors(to, report->load);
	json_seconds(to, report->load);
	json_server(to, report);
	(void)fputs("}\n", to);
}
