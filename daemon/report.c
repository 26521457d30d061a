/* SPDX-License-Identifier: Apache-2.0 */
/* Counters are shown by tables: a name, and where the number is in its struct. */
#include "daemon/report.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "daemon/ops.h"

#define SLOW_SHOWN_MAX 100u
#define SHARDS_SHOWN   64u

struct counter {
	const char *name;
	size_t offset; /* of a uint64_t */
	bool is_gauge;
};

#define COUNTER(type, field)                                                                       \
	{                                                                                          \
#field, offsetof(struct type, field), false                                        \
	}
#define GAUGE(type, field)                                                                         \
	{                                                                                          \
#field, offsetof(struct type, field), true                                         \
	}

static const struct counter store_counters[] = {
	COUNTER(lp_store_stats, written_bytes),   COUNTER(lp_store_stats, read_bytes),
	COUNTER(lp_store_stats, inode_hits),      COUNTER(lp_store_stats, inode_misses),
	COUNTER(lp_store_stats, index_waits),     COUNTER(lp_store_stats, space_waits),
	COUNTER(lp_store_stats, commits),         GAUGE(lp_store_stats, free_blocks),
	GAUGE(lp_store_stats, used_blocks),       GAUGE(lp_store_stats, budget_bytes),
	GAUGE(lp_store_stats, nodes_bytes),       GAUGE(lp_store_stats, nodes_limit_bytes),
	GAUGE(lp_store_stats, index_cache_bytes), GAUGE(lp_store_stats, index_cache_limit_bytes),
	GAUGE(lp_store_stats, memtable_bytes),    GAUGE(lp_store_stats, index_filter_bytes),
	GAUGE(lp_store_stats, pools_bytes),       GAUGE(lp_store_stats, pending_bytes),
	COUNTER(lp_store_stats, log_writes),      COUNTER(lp_store_stats, log_bytes),
	COUNTER(lp_store_stats, data_writes),     COUNTER(lp_store_stats, data_bytes),
	COUNTER(lp_store_stats, data_reads),      COUNTER(lp_store_stats, data_read_bytes),
	COUNTER(lp_store_stats, flushes),
};

static const struct counter ns_counters[] = {
	COUNTER(lp_ns_stats, remote_calls), COUNTER(lp_ns_stats, local_txns),
	COUNTER(lp_ns_stats, shared_txns),  COUNTER(lp_ns_stats, lock_waits),
	GAUGE(lp_ns_stats, opens),          GAUGE(lp_ns_stats, orphans),
	GAUGE(lp_ns_stats, queued),         COUNTER(lp_ns_stats, cache_hits),
	COUNTER(lp_ns_stats, cache_misses),
};

static const struct counter door_counters[] = {
	GAUGE(lp_door_stats, conns),           COUNTER(lp_door_stats, conns_total),
	COUNTER(lp_door_stats, conns_refused), COUNTER(lp_door_stats, received_bytes),
	COUNTER(lp_door_stats, sent_bytes),    COUNTER(lp_door_stats, receives),
	COUNTER(lp_door_stats, sends),         GAUGE(lp_door_stats, requests_under_way),
	COUNTER(lp_door_stats, throttled),     COUNTER(lp_door_stats, bad_messages),
	COUNTER(lp_door_stats, timeouts),
};

static const struct counter reactor_counters[] = {
	COUNTER(lp_reactor_stats, turns),        COUNTER(lp_reactor_stats, enters),
	COUNTER(lp_reactor_stats, sleeps),       COUNTER(lp_reactor_stats, ios),
	COUNTER(lp_reactor_stats, msgs),         COUNTER(lp_reactor_stats, wakes_sent),
	COUNTER(lp_reactor_stats, absences),     COUNTER(lp_reactor_stats, absences_preempted),
	GAUGE(lp_reactor_stats, absence_max_ns),
};

static const struct counter bufs_counters[] = {
	GAUGE(lp_bufs_stats, region_bytes),
	GAUGE(lp_bufs_stats, used_bytes),
	GAUGE(lp_bufs_stats, used_max_bytes),
	COUNTER(lp_bufs_stats, failed_cnt),
};

static const struct {
	const char *name;
	uint32_t ppm;
} quantiles[] = {{"0.5", LP_HIST_P50},
		 {"0.95", LP_HIST_P95},
		 {"0.99", LP_HIST_P99},
		 {"0.999", LP_HIST_P999}};

const char *lpi_report_op(uint32_t code)
{
	const struct lpi_opcode *opcode = lpi_opcode_find((uint16_t)code);
	return opcode == NULL ? NULL : opcode->name;
}

static uint64_t read_counter(const void *stats, const struct counter *counter)
{
	uint64_t value;
	memcpy(&value, (const char *)stats + counter->offset, sizeof(value));
	return value;
}

/* --- JSON ------------------------------------------------------------------------------------- */

static void json_counters(struct lpi_text *text, const char *key, const void *stats,
			  const struct counter *counters, size_t cnt)
{
	lpi_json_open(text, key, '{');
	for (size_t i = 0; i < cnt; i++)
		lpi_json_number(text, counters[i].name, read_counter(stats, &counters[i]));
	lpi_json_close(text, '}');
}

static void json_latency(struct lpi_text *text, const struct lp_hist *hist)
{
	lpi_json_open(text, "latency_us", '{');
	lpi_json_real(text, "mean", lp_hist_mean(hist) / 1e3);
	lpi_json_real(text, "p50", (double)lp_hist_percentile(hist, LP_HIST_P50) / 1e3);
	lpi_json_real(text, "p95", (double)lp_hist_percentile(hist, LP_HIST_P95) / 1e3);
	lpi_json_real(text, "p99", (double)lp_hist_percentile(hist, LP_HIST_P99) / 1e3);
	lpi_json_real(text, "p999", (double)lp_hist_percentile(hist, LP_HIST_P999) / 1e3);
	lpi_json_real(text, "max", (double)hist->max / 1e3);
	lpi_json_close(text, '}');
}

/* Operations of some shards together. */
static void json_ops(struct lpi_text *text, const struct lpi_shard_report *shards, uint32_t cnt)
{
	static struct lp_hist sum; /* the control thread's */
	lpi_json_open(text, "ops", '{');
	for (uint32_t op = 0; op < LPI_REPORT_OPCODES; op++) {
		uint64_t requests = 0;
		uint64_t errors = 0;
		lp_hist_reset(&sum);
		for (uint32_t i = 0; i < cnt; i++) {
			requests += shards[i].door.requests[op];
			errors += shards[i].door.errors[op];
			if (shards[i].has_latency[op])
				lp_hist_merge(&sum, &shards[i].latency[op]);
		}
		if (requests + errors == 0 || lpi_report_op(op) == NULL)
			continue;
		lpi_json_open(text, lpi_report_op(op), '{');
		lpi_json_number(text, "count", requests);
		lpi_json_number(text, "errors", errors);
		if (sum.count > 0)
			json_latency(text, &sum);
		lpi_json_close(text, '}');
	}
	lpi_json_close(text, '}');
}

static void json_times(struct lpi_text *text, const struct lpi_shard_report *shard)
{
	lpi_json_open(text, "states", '[');
	for (size_t i = 0; i < shard->time_cnt; i++) {
		const struct lp_store_time *time = &shard->times[i];
		if (time->cnt == 0)
			continue;
		lpi_json_open(text, NULL, '{');
		lpi_json_string(text, "operation", time->operation);
		lpi_json_string(text, "state", time->state);
		lpi_json_number(text, "count", time->cnt);
		lpi_json_real(text, "mean_us", (double)time->ns / (double)time->cnt / 1e3);
		lpi_json_close(text, '}');
	}
	lpi_json_close(text, ']');
}

static void json_paths(struct lpi_text *text, const struct lp_store_stats *stats)
{
	lpi_json_open(text, "writes_by_path", '{');
	for (int i = LP_PATH_AUTO + 1; i < LP_PATH_CNT; i++)
		lpi_json_number(text, lp_write_path_name((enum lp_write_path)i),
				stats->writes_by_path[i]);
	lpi_json_close(text, '}');
}

static void json_shard(struct lpi_text *text, const struct lpi_shard_report *shard)
{
	lpi_json_open(text, NULL, '{');
	lpi_json_number(text, "shard", shard->idx);
	lpi_json_number(text, "thread", shard->thread_idx);
	lpi_json_string(text, "state", lp_store_state_name(shard->health.state));
	lpi_json_string(text, "reason", shard->health.reason);
	json_ops(text, shard, 1);
	json_times(text, shard);
	json_paths(text, &shard->store);
	json_counters(text, "store", &shard->store, store_counters, LP_ARRAY_SIZE(store_counters));
	json_counters(text, "namespace", &shard->ns, ns_counters, LP_ARRAY_SIZE(ns_counters));
	json_counters(text, "connections", &shard->door, door_counters,
		      LP_ARRAY_SIZE(door_counters));
	lpi_json_close(text, '}');
}

static void json_thread(struct lpi_text *text, const struct lpi_thread_report *thread, uint32_t idx)
{
	lpi_json_open(text, NULL, '{');
	lpi_json_number(text, "thread", idx);
	json_counters(text, "reactor", &thread->reactor, reactor_counters,
		      LP_ARRAY_SIZE(reactor_counters));
	lpi_json_open(text, "absences_by_phase", '{');
	for (int i = 0; i < LP_PHASE_CNT; i++)
		lpi_json_number(text, lp_reactor_phase_name((enum lp_reactor_phase)i),
				thread->reactor.absences_by_phase[i]);
	lpi_json_close(text, '}');
	json_counters(text, "buffers", &thread->bufs, bufs_counters, LP_ARRAY_SIZE(bufs_counters));
	lpi_json_close(text, '}');
}

static void json_devices(const struct lpi_report *report, struct lpi_text *text)
{
	lpi_json_open(text, "devices", '[');
	for (uint32_t i = 0; i < LPI_REPORT_DEVICES; i++) {
		const struct lpi_device_report *device = &report->devices[i];
		if (device->name == NULL)
			continue;
		lpi_json_open(text, NULL, '{');
		lpi_json_string(text, "path", device->name);
		lpi_json_number(text, "size_bytes", device->size_bytes);
		lpi_json_bool(text, "silent", device->is_silent);
		lpi_json_number(text, "index_reads", device->sync.ops[LP_BDEV_READ]);
		lpi_json_number(text, "index_read_bytes", device->sync.bytes[LP_BDEV_READ]);
		lpi_json_number(text, "index_writes",
				device->sync.ops[LP_BDEV_WRITE] +
					device->sync.ops[LP_BDEV_WRITE_THROUGH]);
		lpi_json_number(text, "index_written_bytes",
				device->sync.bytes[LP_BDEV_WRITE] +
					device->sync.bytes[LP_BDEV_WRITE_THROUGH]);
		lpi_json_number(text, "index_flushes", device->sync.ops[LP_BDEV_FLUSH]);
		lpi_json_number(text, "index_errors", device->sync.errors);
		lpi_json_close(text, '}');
	}
	lpi_json_close(text, ']');
}

static void json_head(const struct lpi_report *report, struct lpi_text *text)
{
	lpi_json_string(text, "server", report->server);
	lpi_json_string(text, "allocator", report->allocator);
	lpi_json_string(text, "store", report->store_kind);
	lpi_json_string(text, "uuid", report->store_uuid);
	lpi_json_string(text, "state", report->state);
	lpi_json_string(text, "reason", report->reason);
	lpi_json_number(text, "state_since", report->state_since_ns / LP_NS_PER_S);
	lpi_json_real(text, "uptime_s", (double)report->uptime_ns / 1e9);
	lpi_json_number(text, "shards_cnt", report->shard_cnt);
	lpi_json_number(text, "threads_cnt", report->thread_cnt);
}

/* Over all shards. */
struct totals {
	uint64_t free_blocks;
	uint64_t used_blocks;
	uint64_t conns;
	uint64_t requests;
	uint64_t errors;
};

static struct totals add_up(const struct lpi_report *report)
{
	struct totals sum = {.conns = 0};
	for (uint32_t i = 0; i < report->shard_cnt; i++) {
		const struct lpi_shard_report *shard = &report->shards[i];
		sum.used_blocks += shard->store.used_blocks;
		/* Shards share the device: each sees what none of them has. */
		sum.free_blocks = LP_MAX(sum.free_blocks, shard->store.free_blocks);
		sum.conns += shard->door.conns;
		for (uint32_t op = 0; op < LPI_REPORT_OPCODES; op++) {
			sum.requests += shard->door.requests[op];
			sum.errors += shard->door.errors[op];
		}
	}
	return sum;
}

void lpi_report_status(const struct lpi_report *report, struct lpi_text *text)
{
	struct totals sum = add_up(report);
	lpi_json_open(text, NULL, '{');
	json_head(report, text);
	lpi_json_number(text, "connections", sum.conns);
	lpi_json_number(text, "requests", sum.requests);
	lpi_json_number(text, "errors", sum.errors);
	lpi_json_number(text, "used_bytes", sum.used_blocks * LP_WIRE_BLOCK_BYTES);
	lpi_json_number(text, "rss_bytes", report->heap.rss_bytes);
	json_devices(report, text);
	lpi_json_close(text, '}');
}

static void json_process(const struct lpi_report *report, struct lpi_text *text)
{
	lpi_json_open(text, "process", '{');
	lpi_json_number(text, "rss_bytes", report->heap.rss_bytes);
	lpi_json_number(text, "heap_used_bytes", report->heap.used_bytes);
	lpi_json_number(text, "heap_held_bytes", report->heap.held_bytes);
	lpi_json_number(text, "corruptions", report->corruptions);
	lpi_json_number(text, "peers_refused", report->peers_refused);
	lpi_json_number(text, "log_lines", report->log.lines);
	lpi_json_number(text, "log_suppressed", report->log.suppressed);
	lpi_json_number(text, "log_dropped", report->log.dropped);
	lpi_json_number(text, "helpers_submitted", report->workers.submitted);
	lpi_json_number(text, "helpers_queued", report->workers.queued);
	lpi_json_number(text, "helpers_queued_max", report->workers.queued_max);
	lpi_json_close(text, '}');
}

void lpi_report_json(const struct lpi_report *report, struct lpi_text *text)
{
	lpi_json_open(text, NULL, '{');
	json_head(report, text);
	json_process(report, text);
	json_devices(report, text);
	json_ops(text, report->shards, report->shard_cnt);
	lpi_json_open(text, "threads", '[');
	for (uint32_t i = 0; i < report->thread_cnt; i++)
		json_thread(text, &report->threads[i], i);
	lpi_json_close(text, ']');
	lpi_json_open(text, "shards", '[');
	for (uint32_t i = 0; i < report->shard_cnt; i++)
		json_shard(text, &report->shards[i]);
	lpi_json_close(text, ']');
	lpi_json_close(text, '}');
}

/* --- Slow ones, the allocator ----------------------------------------------------------------- */

static int by_time(const void *a, const void *b)
{
	const struct lp_slow_request *const *one = a;
	const struct lp_slow_request *const *other = b;
	if ((*one)->took_ns == (*other)->took_ns)
		return 0;
	return (*one)->took_ns < (*other)->took_ns ? 1 : -1;
}

static void json_slow(struct lpi_text *text, const struct lp_slow_request *slow)
{
	const char *name = lpi_report_op(slow->opcode);
	lpi_json_open(text, NULL, '{');
	lpi_json_string(text, "operation", name != NULL ? name : "unknown");
	lpi_json_string(text, "object", slow->object);
	lpi_json_number(text, "began_ns", slow->began_ns);
	lpi_json_real(text, "took_ms", (double)slow->took_ns / 1e6);
	lpi_json_number(text, "bytes", slow->bytes);
	lpi_json_string(text, "result", slow->status == 0 ? "ok" : lp_strerror(slow->status));
	lpi_json_close(text, '}');
}

void lpi_report_slow(const struct lpi_report *report, uint64_t least_ns, struct lpi_text *text)
{
	static const struct lp_slow_request *all[SHARDS_SHOWN * LP_DOOR_SLOW_MAX];
	uint32_t cnt = 0;
	for (uint32_t i = 0; i < report->shard_cnt; i++) {
		const struct lpi_shard_report *shard = &report->shards[i];
		for (uint32_t k = 0; k < shard->slow_cnt; k++) {
			if (shard->slow[k].took_ns >= least_ns)
				all[cnt++] = &shard->slow[k];
		}
	}
	/* Pointers are what is sorted. NOLINTNEXTLINE(bugprone-sizeof-expression) */
	qsort(all, cnt, sizeof(all[0]), by_time);
	lpi_json_open(text, NULL, '[');
	for (uint32_t i = 0; i < LP_MIN(cnt, SLOW_SHOWN_MAX); i++)
		json_slow(text, all[i]);
	lpi_json_close(text, ']');
}

void lpi_report_alloc(const struct lpi_report *report, struct lpi_text *text)
{
	lpi_json_open(text, NULL, '{');
	lpi_json_open(text, "shards", '[');
	for (uint32_t i = 0; i < report->shard_cnt; i++) {
		const struct lpi_shard_report *shard = &report->shards[i];
		lpi_json_open(text, NULL, '{');
		lpi_json_number(text, "shard", shard->idx);
		lpi_json_real(text, "score", shard->alloc_score);
		lpi_json_number(text, "free_blocks", shard->store.free_blocks);
		lpi_json_number(text, "used_blocks", shard->store.used_blocks);
		lpi_json_close(text, '}');
	}
	lpi_json_close(text, ']');
	lpi_json_close(text, '}');
}

static void json_usage(struct lpi_text *text, uint32_t idx, const struct lp_store_usage *usage)
{
	lpi_json_open(text, NULL, '{');
	lpi_json_number(text, "shard", idx);
	lpi_json_real(text, "score", usage->score);
	lpi_json_number(text, "free_blocks", usage->free_blocks);
	lpi_json_number(text, "used_blocks", usage->used_blocks);
	lpi_json_number(text, "largest_run_blocks", usage->largest_run_blocks);
	lpi_json_number(text, "alloc_bytes", usage->alloc_bytes);
	lpi_json_number(text, "index_bytes", usage->index_bytes);
	lpi_json_number(text, "log_ring_blocks", usage->log_ring_blocks);
	lpi_json_number(text, "log_needed_blocks", usage->log_needed_blocks);
	lpi_json_close(text, '}');
}

void lpi_report_dump(const struct lpi_report *report, struct lpi_text *text)
{
	struct lpi_text words = {.bytes = NULL};
	lpi_json_open(text, NULL, '{');
	lpi_json_open(text, "shards", '[');
	for (uint32_t i = 0; i < report->shard_cnt; i++)
		json_usage(text, i, &report->shards[i].usage);
	lpi_json_close(text, ']');
	lpi_json_open(text, "heap", '{');
	lpi_json_string(text, "allocator", report->allocator);
	lpi_json_number(text, "used_bytes", report->heap.used_bytes);
	lpi_json_number(text, "held_bytes", report->heap.held_bytes);
	lpi_json_number(text, "rss_bytes", report->heap.rss_bytes);
	lpi_heap_dump(&words);
	lpi_json_string(text, "dump", words.bytes != NULL && !words.failed ? words.bytes : "");
	lpi_json_close(text, '}');
	lpi_json_close(text, '}');
	lpi_text_fini(&words);
}

/* --- Prometheus ------------------------------------------------------------------------------- */

static void type_line(struct lpi_text *text, const char *group, const struct counter *counter)
{
	lpi_text_printf(text, "# TYPE lapis_%s_%s%s %s\n", group, counter->name,
			counter->is_gauge ? "" : "_total", counter->is_gauge ? "gauge" : "counter");
}

/* Counters of several units: those of unit i are at first + i * stride. */
struct group {
	const char *name;
	const char *label; /* what a unit is */
	const void *first;
	size_t stride;
	uint32_t cnt;
};

/* One family after the other, as the format wants it. */
static void prometheus_counters(struct lpi_text *text, const struct group *group,
				const struct counter *counters, size_t counter_cnt)
{
	for (size_t k = 0; k < counter_cnt; k++) {
		const struct counter *counter = &counters[k];
		type_line(text, group->name, counter);
		for (uint32_t i = 0; i < group->cnt; i++) {
			const char *stats = (const char *)group->first + i * group->stride;
			lpi_text_printf(text, "lapis_%s_%s%s{%s=\"%u\"} %llu\n", group->name,
					counter->name, counter->is_gauge ? "" : "_total",
					group->label, i,
					(unsigned long long)read_counter(stats, counter));
		}
	}
}

static void prometheus_number(struct lpi_text *text, const char *name, const char *type,
			      uint64_t value)
{
	lpi_text_printf(text, "# TYPE lapis_%s %s\nlapis_%s %llu\n", name, type, name,
			(unsigned long long)value);
}

static void prometheus_requests(const struct lpi_report *report, struct lpi_text *text, bool errors)
{
	const char *family = errors ? "request_errors" : "requests";
	lpi_text_printf(text, "# TYPE lapis_%s_total counter\n", family);
	for (uint32_t i = 0; i < report->shard_cnt; i++) {
		const struct lp_door_stats *door = &report->shards[i].door;
		for (uint32_t op = 0; op < LPI_REPORT_OPCODES; op++) {
			uint64_t value = errors ? door->errors[op] : door->requests[op];
			if (value == 0 || lpi_report_op(op) == NULL)
				continue;
			lpi_text_printf(text, "lapis_%s_total{shard=\"%u\",op=\"%s\"} %llu\n",
					family, i, lpi_report_op(op), (unsigned long long)value);
		}
	}
}

static void prometheus_latency(const struct lpi_report *report, struct lpi_text *text)
{
	lpi_text_printf(text, "# TYPE lapis_request_seconds summary\n");
	for (uint32_t i = 0; i < report->shard_cnt; i++) {
		const struct lpi_shard_report *shard = &report->shards[i];
		for (uint32_t op = 0; op < LPI_REPORT_OPCODES; op++) {
			const struct lp_hist *hist = &shard->latency[op];
			if (!shard->has_latency[op] || lpi_report_op(op) == NULL)
				continue;
			for (size_t q = 0; q < LP_ARRAY_SIZE(quantiles); q++)
				lpi_text_printf(text,
						"lapis_request_seconds{shard=\"%u\",op=\"%s\","
						"quantile=\"%s\"} %.9g\n",
						i, lpi_report_op(op), quantiles[q].name,
						(double)lp_hist_percentile(hist, quantiles[q].ppm) /
							1e9);
			lpi_text_printf(text,
					"lapis_request_seconds_sum{shard=\"%u\",op=\"%s\"} %.9g\n"
					"lapis_request_seconds_count{shard=\"%u\",op=\"%s\"} "
					"%llu\n",
					i, lpi_report_op(op), (double)hist->sum / 1e9, i,
					lpi_report_op(op), (unsigned long long)hist->count);
		}
	}
}

static void prometheus_states(const struct lpi_report *report, struct lpi_text *text, bool seconds)
{
	const char *family = seconds ? "state_seconds" : "state_left";
	lpi_text_printf(text, "# TYPE lapis_%s_total counter\n", family);
	for (uint32_t i = 0; i < report->shard_cnt; i++) {
		for (size_t k = 0; k < report->shards[i].time_cnt; k++) {
			const struct lp_store_time *time = &report->shards[i].times[k];
			lpi_text_printf(text,
					"lapis_%s_total{shard=\"%u\",operation=\"%s\",state=\"%s\"}"
					" %.9g\n",
					family, i, time->operation, time->state,
					seconds ? (double)time->ns / 1e9 : (double)time->cnt);
		}
	}
}

static void prometheus_devices(const struct lpi_report *report, struct lpi_text *text)
{
	lpi_text_printf(text, "# TYPE lapis_device_silent gauge\n");
	for (uint32_t i = 0; i < LPI_REPORT_DEVICES; i++) {
		if (report->devices[i].name != NULL)
			lpi_text_printf(text, "lapis_device_silent{device=\"%u\"} %d\n", i,
					report->devices[i].is_silent);
	}
	lpi_text_printf(text, "# TYPE lapis_device_index_bytes_total counter\n");
	for (uint32_t i = 0; i < LPI_REPORT_DEVICES; i++) {
		const struct lp_bdev_stats *sync = &report->devices[i].sync;
		if (report->devices[i].name == NULL)
			continue;
		for (int op = 0; op < LP_BDEV_OPCODE_CNT; op++)
			lpi_text_printf(text,
					"lapis_device_index_bytes_total{device=\"%u\",op=\"%s\"} "
					"%llu\n",
					i, lp_bdev_opcode_name((enum lp_bdev_opcode)op),
					(unsigned long long)sync->bytes[op]);
	}
}

static void prometheus_process(const struct lpi_report *report, struct lpi_text *text)
{
	lpi_text_printf(text, "# TYPE lapis_up gauge\nlapis_up{state=\"%s\"} %d\n", report->state,
			strcmp(report->state, "ok") == 0);
	prometheus_number(text, "uptime_seconds", "gauge", report->uptime_ns / LP_NS_PER_S);
	prometheus_number(text, "rss_bytes", "gauge", report->heap.rss_bytes);
	prometheus_number(text, "heap_used_bytes", "gauge", report->heap.used_bytes);
	prometheus_number(text, "heap_held_bytes", "gauge", report->heap.held_bytes);
	prometheus_number(text, "corruptions_total", "counter", report->corruptions);
	prometheus_number(text, "peers_refused_total", "counter", report->peers_refused);
	prometheus_number(text, "log_lines_total", "counter", report->log.lines);
	prometheus_number(text, "log_suppressed_total", "counter", report->log.suppressed);
	prometheus_number(text, "helpers_submitted_total", "counter", report->workers.submitted);
	prometheus_number(text, "helpers_queued", "gauge", report->workers.queued);
}

void lpi_report_prometheus(const struct lpi_report *report, struct lpi_text *text)
{
	const struct lpi_shard_report *shards = report->shards;
	const struct lpi_thread_report *threads = report->threads;
	prometheus_process(report, text);
	prometheus_devices(report, text);
	prometheus_requests(report, text, false);
	prometheus_requests(report, text, true);
	prometheus_latency(report, text);
	prometheus_states(report, text, false);
	prometheus_states(report, text, true);
	const struct group groups[] = {
		{"store", "shard", &shards->store, sizeof(*shards), report->shard_cnt},
		{"namespace", "shard", &shards->ns, sizeof(*shards), report->shard_cnt},
		{"connections", "shard", &shards->door, sizeof(*shards), report->shard_cnt},
		{"thread", "thread", &threads->reactor, sizeof(*threads), report->thread_cnt},
		{"buffers", "thread", &threads->bufs, sizeof(*threads), report->thread_cnt},
	};
	prometheus_counters(text, &groups[0], store_counters, LP_ARRAY_SIZE(store_counters));
	prometheus_counters(text, &groups[1], ns_counters, LP_ARRAY_SIZE(ns_counters));
	prometheus_counters(text, &groups[2], door_counters, LP_ARRAY_SIZE(door_counters));
	prometheus_counters(text, &groups[3], reactor_counters, LP_ARRAY_SIZE(reactor_counters));
	prometheus_counters(text, &groups[4], bufs_counters, LP_ARRAY_SIZE(bufs_counters));
}
