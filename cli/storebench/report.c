/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/storebench/report.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "cli/cli.h"

static double per_op(const struct lpi_bench_report *report, uint64_t count)
{
	return report->result.ops > 0 ? (double)count / (double)report->result.ops : 0.0;
}

static double per_second(const struct lpi_bench_report *report, uint64_t count)
{
	double seconds = (double)report->result.took_ns / (double)LP_NS_PER_S;
	return seconds > 0 ? (double)count / seconds : 0.0;
}

static double to_us(double ns)
{
	return ns / (double)LP_NS_PER_US;
}

static double percentile_us(const struct lpi_bench_report *report, uint32_t ppm)
{
	return to_us((double)lp_hist_percentile(&report->result.latency_ns, ppm));
}

/* --- For a person ----------------------------------------------------------------------------- */

static void print_head(const struct lpi_bench_report *report)
{
	const struct lpi_bench_options *options = report->options;
	char size[32];
	char object[32];
	(void)lpi_cli_format_size(options->size_bytes, size, sizeof(size));
	(void)lpi_cli_format_size(options->object_bytes, object, sizeof(object));
	(void)printf("%s of %s, depth %u", lpi_bench_kind_name(options->kind), size,
		     options->depth);
	if (options->kind != LPI_BENCH_CREATE)
		(void)printf(", %" PRIu64 " object%s of %s", options->objects_cnt,
			     options->objects_cnt == 1 ? "" : "s", object);
	(void)printf(", %s store, write path %s, deferred in the %s, delay %s\n", report->store,
		     report->write_path, report->deferred_store, report->delay);
}

static void print_times(const struct lpi_bench_report *report)
{
	const struct lpi_bench_result *result = &report->result;
	(void)printf("%-14s %" PRIu64 " in %.3f s, %" PRIu64 " errors%s\n", "operations",
		     result->ops, (double)result->took_ns / (double)LP_NS_PER_S, result->errors,
		     report->options->verify ? ", verified" : "");
	(void)printf("%-14s %.0f /s, %.1f MiB/s\n", "rate", per_second(report, result->ops),
		     per_second(report, result->bytes) / 1048576);
	(void)printf("%-14s mean %.1f, p50 %.1f, p95 %.1f, p99 %.1f, p99.9 %.1f, max %.1f\n",
		     "latency us", to_us(lp_hist_mean(&result->latency_ns)),
		     percentile_us(report, LP_HIST_P50), percentile_us(report, LP_HIST_P95),
		     percentile_us(report, LP_HIST_P99), percentile_us(report, LP_HIST_P999),
		     percentile_us(report, LP_HIST_P100));
	(void)printf("%-14s shard thread %.2f, whole process %.2f\n", "cpu us per op",
		     to_us(per_op(report, result->thread_cpu_ns)),
		     to_us(per_op(report, result->process_cpu_ns)));
}

/* With the time that it took to close the store: what was deferred has to be done, too. */
static double settled_rate(const struct lpi_bench_report *report)
{
	uint64_t ns = report->result.took_ns + report->close_ns;
	return ns > 0 ? (double)report->result.ops * (double)LP_NS_PER_S / (double)ns : 0;
}

static void print_counts(const struct lpi_bench_report *report)
{
	const struct lpi_bench_counts *counts = &report->counts;
	(void)printf("%-14s log writes %.4f (%.0f B), data writes %.4f (%.0f B), flushes %.4f, "
		     "data reads %.4f\n",
		     "device per op", per_op(report, counts->log_writes),
		     per_op(report, counts->log_bytes), per_op(report, counts->data_writes),
		     per_op(report, counts->data_bytes), per_op(report, counts->flushes),
		     per_op(report, counts->data_reads));
	(void)printf("%-14s writes %.4f (%.0f B), flushes %.4f, reads %.4f (%.0f B)\n",
		     "index per op", per_op(report, counts->background_writes),
		     per_op(report, counts->background_bytes),
		     per_op(report, counts->background_flushes),
		     per_op(report, counts->background_reads),
		     per_op(report, counts->background_read_bytes));
	if (counts->settled_bytes > 0)
		(void)printf("%-14s %.0f B written per op, %.0f /s until all was in its place\n",
			     "settled", per_op(report, counts->settled_bytes),
			     settled_rate(report));
	if (counts->late_ops > 0 && strcmp(report->delay, "none") != 0)
		(void)printf(
			"%-14s %.1f %% of the device's operations took longer than %s has them\n",
			"late", 100.0 * (double)counts->late_ops / (double)counts->device_ops,
			report->delay);
	(void)printf(
		"%-14s turns %.4f, calls %.4f an op; %" PRIu64 " absences above 1 ms (%" PRIu64
		" preempted, %" PRIu64 " blocked), longest %.2f ms, by our own work %.2f ms (%s)\n",
		"reactor", per_op(report, counts->turns), per_op(report, counts->enters),
		counts->absences, counts->absences_preempted, counts->absences_blocked,
		(double)counts->absence_max_ns / (double)LP_NS_PER_MS,
		(double)counts->absence_own_max_ns / (double)LP_NS_PER_MS, counts->absence_phase);
	(void)printf("%-14s commits %" PRIu64 ", inode misses %" PRIu64 ", waits for index %" PRIu64
		     ", for space %" PRIu64 "; opened in %.1f ms\n",
		     "store", counts->commits, counts->inode_misses, counts->index_waits,
		     counts->space_waits, (double)report->open_ns / (double)LP_NS_PER_MS);
}

static void print_cache(const struct lpi_bench_report *report)
{
	const struct lpi_bench_counts *counts = &report->counts;
	if (counts->data_hits + counts->data_misses + counts->ahead_reads == 0)
		return;
	(void)printf("%-14s hits %" PRIu64 ", misses %" PRIu64 " blocks; read ahead %" PRIu64
		     " blocks in %" PRIu64 " reads, used %" PRIu64 ", wasted %" PRIu64
		     ", waited for %" PRIu64 " times\n",
		     "data cache", counts->data_hits, counts->data_misses, counts->ahead_blocks,
		     counts->ahead_reads, counts->ahead_used, counts->ahead_wasted,
		     counts->ahead_waits);
}

static void print_states(const struct lpi_bench_report *report)
{
	for (size_t i = 0; i < report->times_cnt; i++) {
		const struct lp_store_time *time = &report->times[i];
		if (time->cnt > 0)
			(void)printf("%-14s %-8s %" PRIu64 " times, mean %.2f us, %.2f us an op\n",
				     time->operation, time->state, time->cnt,
				     to_us((double)time->ns / (double)time->cnt),
				     to_us(per_op(report, time->ns)));
	}
}

void lpi_bench_report_text(const struct lpi_bench_report *report)
{
	print_head(report);
	print_times(report);
	print_counts(report);
	print_cache(report);
	if (report->explain[0] != '\0')
		(void)printf("%-14s %s\n", "write path", report->explain);
	print_states(report);
}

/* --- JSON ------------------------------------------------------------------------------------- */

static void json_count(const char *name, uint64_t value)
{
	(void)printf(", \"%s\": %" PRIu64, name, value);
}

static void json_real(const char *name, double value)
{
	(void)printf(", \"%s\": %.6g", name, value);
}

static void json_options(const struct lpi_bench_report *report)
{
	const struct lpi_bench_options *options = report->options;
	(void)printf("{\"op\": \"%s\", \"store\": \"%s\", \"write_path\": \"%s\", "
		     "\"deferred_store\": \"%s\", \"allocator\": \"%s\", \"delay\": \"%s\", "
		     "\"verify\": %s",
		     lpi_bench_kind_name(options->kind), report->store, report->write_path,
		     report->deferred_store, report->allocator, report->delay,
		     options->verify ? "true" : "false");
	json_count("size", options->size_bytes);
	json_count("depth", options->depth);
	json_count("objects", options->objects_cnt);
	json_count("object_size", options->object_bytes);
	json_count("seed", options->seed);
}

static void json_times(const struct lpi_bench_report *report)
{
	const struct lpi_bench_result *result = &report->result;
	json_count("ops", result->ops);
	json_count("writes", result->writes);
	json_count("errors", result->errors);
	(void)printf(", \"seconds\": %.6f, \"iops\": %.1f, \"bytes_per_s\": %.0f",
		     (double)result->took_ns / (double)LP_NS_PER_S, per_second(report, result->ops),
		     per_second(report, result->bytes));
	if (report->counts.settled_bytes > 0)
		json_real("settled_iops", settled_rate(report));
	(void)printf(", \"latency_us\": {\"mean\": %.3f, \"p50\": %.3f, \"p95\": %.3f, "
		     "\"p99\": %.3f, \"p999\": %.3f, \"max\": %.3f}",
		     to_us(lp_hist_mean(&result->latency_ns)), percentile_us(report, LP_HIST_P50),
		     percentile_us(report, LP_HIST_P95), percentile_us(report, LP_HIST_P99),
		     percentile_us(report, LP_HIST_P999), percentile_us(report, LP_HIST_P100));
	(void)printf(", \"cpu_us_per_op\": {\"thread\": %.4f, \"process\": %.4f}",
		     to_us(per_op(report, result->thread_cpu_ns)),
		     to_us(per_op(report, result->process_cpu_ns)));
}

/* [lowest, highest, how many], in nanoseconds: what percentile curves are drawn from. */
static void json_histogram(const struct lp_hist *hist)
{
	struct lp_hist_bucket bucket;
	size_t pos = 0;
	const char *comma = "";
	(void)fputs(", \"histogram_ns\": [", stdout);
	while (lp_hist_next(hist, &pos, &bucket)) {
		(void)printf("%s[%" PRIu64 ", %" PRIu64 ", %" PRIu64 "]", comma, bucket.low,
			     LP_MIN(bucket.high, hist->max), bucket.count);
		comma = ", ";
	}
	(void)fputs("]", stdout);
}

static void json_device(const struct lpi_bench_report *report)
{
	const struct lpi_bench_counts *counts = &report->counts;
	(void)printf(", \"device\": {\"log_writes\": %" PRIu64, counts->log_writes);
	json_count("log_bytes", counts->log_bytes);
	json_count("data_writes", counts->data_writes);
	json_count("data_bytes", counts->data_bytes);
	json_count("data_reads", counts->data_reads);
	json_count("data_read_bytes", counts->data_read_bytes);
	json_count("flushes", counts->flushes);
	json_count("background_writes", counts->background_writes);
	json_count("background_bytes", counts->background_bytes);
	json_count("background_flushes", counts->background_flushes);
	json_count("background_reads", counts->background_reads);
	json_count("background_read_bytes", counts->background_read_bytes);
	json_count("settled_bytes", counts->settled_bytes);
	json_count("ops", counts->device_ops);
	json_count("late_ops", counts->late_ops);
	(void)printf("}, \"per_op\": {\"log_writes\": %.6g", per_op(report, counts->log_writes));
	json_real("data_writes", per_op(report, counts->data_writes));
	json_real("data_reads", per_op(report, counts->data_reads));
	json_real("flushes", per_op(report, counts->flushes));
	json_real("background_writes", per_op(report, counts->background_writes));
	json_real("background_flushes", per_op(report, counts->background_flushes));
	json_real("written_bytes", per_op(report, counts->log_bytes + counts->data_bytes +
							  counts->background_bytes));
	json_real("settled_bytes", per_op(report, counts->settled_bytes));
	json_real("enters", per_op(report, counts->enters));
	(void)fputs("}", stdout);
}

static void json_store(const struct lpi_bench_report *report)
{
	const struct lpi_bench_counts *counts = &report->counts;
	(void)printf(", \"reactor\": {\"turns\": %" PRIu64, counts->turns);
	json_count("enters", counts->enters);
	json_count("absences", counts->absences);
	json_count("absences_preempted", counts->absences_preempted);
	json_count("absences_blocked", counts->absences_blocked);
	json_real("absence_own_max_ms", (double)counts->absence_own_max_ns / (double)LP_NS_PER_MS);
	(void)printf(", \"absence_phase\": \"%s\"", counts->absence_phase);
	json_real("absence_max_ms", (double)counts->absence_max_ns / (double)LP_NS_PER_MS);
	(void)printf("}, \"commits\": %" PRIu64, counts->commits);
	(void)printf(", \"paths\": {\"inline\": %" PRIu64 ", \"deferred\": %" PRIu64
		     ", \"direct\": %" PRIu64 "}",
		     counts->paths[LP_PATH_INLINE], counts->paths[LP_PATH_DEFERRED],
		     counts->paths[LP_PATH_DIRECT]);
	json_count("inode_misses", counts->inode_misses);
	json_count("index_waits", counts->index_waits);
	json_count("space_waits", counts->space_waits);
	json_count("data_hits", counts->data_hits);
	json_count("data_misses", counts->data_misses);
	json_count("ahead_reads", counts->ahead_reads);
	json_count("ahead_blocks", counts->ahead_blocks);
	json_count("ahead_used", counts->ahead_used);
	json_count("ahead_wasted", counts->ahead_wasted);
	json_count("ahead_waits", counts->ahead_waits);
	json_count("used_bytes", report->usage.used_blocks * LP_BLOCK_BYTES);
	json_count("index_bytes", report->usage.index_bytes);
	json_real("free_score", report->usage.score);
	json_real("open_seconds", (double)report->open_ns / (double)LP_NS_PER_S);
}

/* Names and the explanation are plain text: nothing in them needs an escape. */
static void json_asked(const struct lpi_bench_report *report)
{
	if (report->explain[0] != '\0')
		(void)printf(", \"explain\": \"%s\"", report->explain);
	for (size_t i = 0; i < report->times_cnt; i++) {
		const struct lp_store_time *time = &report->times[i];
		(void)printf("%s{\"operation\": \"%s\", \"state\": \"%s\"",
			     i == 0 ? ", \"states\": [" : ", ", time->operation, time->state);
		json_count("count", time->cnt);
		json_count("ns", time->ns);
		(void)fputs("}", stdout);
	}
	(void)puts(report->times_cnt > 0 ? "]}" : "}");
}

void lpi_bench_report_json(const struct lpi_bench_report *report)
{
	json_options(report);
	json_times(report);
	json_histogram(&report->result.latency_ns);
	json_device(report);
	json_store(report);
	json_asked(report);
}
