/* SPDX-License-Identifier: Apache-2.0 */
/* The numbers as Prometheus wants them: families one after the other, each with its type before
 * its series, no series twice. tests/wire/admin.py holds that. */
#include <string.h>

#include "daemon/counters.h"
#include "daemon/health.h"
#include "daemon/report.h"

static const struct {
	const char *name;
	uint32_t ppm;
} quantiles[] = {{"0.5", LP_HIST_P50},
		 {"0.95", LP_HIST_P95},
		 {"0.99", LP_HIST_P99},
		 {"0.999", LP_HIST_P999}};

/* Counters of several units: those of unit i are at first + i * stride. */
struct group {
	const char *name;
	const char *label; /* what a unit is; NULL: there is only one */
	const void *first;
	size_t stride;
	uint32_t cnt;
};

static void prometheus_counters(struct lpi_text *text, const struct group *group,
				const struct lpi_counter_table *counters)
{
	for (size_t k = 0; k < counters->cnt; k++) {
		const struct lpi_counter *counter = &counters->items[k];
		size_t len = strlen(counter->name);
		/* "conns_total" is called so already. */
		bool is_total = len > 6 && strcmp(counter->name + len - 6, "_total") == 0;
		const char *end = counter->is_gauge || is_total ? "" : "_total";
		lpi_text_printf(text, "# TYPE lapis_%s_%s%s %s\n", group->name, counter->name, end,
				counter->is_gauge ? "gauge" : "counter");
		for (uint32_t i = 0; i < group->cnt; i++) {
			const char *stats = (const char *)group->first + i * group->stride;
			unsigned long long value = lpi_counter_read(stats, counter);
			lpi_text_printf(text, "lapis_%s_%s%s", group->name, counter->name, end);
			if (group->label != NULL)
				lpi_text_printf(text, "{%s=\"%u\"}", group->label, i);
			lpi_text_printf(text, " %llu\n", value);
		}
	}
}

/* Of each unit an array, one number for each name; those that are 0 and have always been are not
 * shown. */
static void prometheus_array(struct lpi_text *text, const struct group *group, const char *label,
			     const char *(*name_of)(uint32_t idx), uint32_t cnt)
{
	lpi_text_printf(text, "# TYPE lapis_%s_total counter\n", group->name);
	for (uint32_t i = 0; i < group->cnt; i++) {
		const char *array = (const char *)group->first + i * group->stride;
		for (uint32_t k = 0; k < cnt; k++) {
			uint64_t value;
			memcpy(&value, array + k * sizeof(value), sizeof(value));
			if (value > 0 && name_of(k) != NULL)
				lpi_text_printf(text, "lapis_%s_total{%s=\"%u\",%s=\"%s\"} %llu\n",
						group->name, group->label, i, label, name_of(k),
						(unsigned long long)value);
		}
	}
}

static void prometheus_number(struct lpi_text *text, const char *name, const char *type,
			      uint64_t value)
{
	lpi_text_printf(text, "# TYPE lapis_%s %s\nlapis_%s %llu\n", name, type, name,
			(unsigned long long)value);
}

/* One operation of one unit. */
static void prometheus_summary(struct lpi_text *text, const struct group *group, uint32_t idx,
			       const char *op, const struct lp_hist *hist)
{
	const char *name = group->name;
	const char *label = group->label;
	for (size_t q = 0; q < LP_ARRAY_SIZE(quantiles); q++)
		lpi_text_printf(text,
				"lapis_%s_seconds{%s=\"%u\",op=\"%s\",quantile=\"%s\"} %.9g\n",
				name, label, idx, op, quantiles[q].name,
				(double)lp_hist_percentile(hist, quantiles[q].ppm) / 1e9);
	lpi_text_printf(text,
			"lapis_%s_seconds_sum{%s=\"%u\",op=\"%s\"} %.9g\n"
			"lapis_%s_seconds_count{%s=\"%u\",op=\"%s\"} %llu\n",
			name, label, idx, op, (double)hist->sum / 1e9, name, label, idx, op,
			(unsigned long long)hist->count);
}

static void prometheus_latency(const struct lpi_report *report, struct lpi_text *text)
{
	const struct group group = {.name = "request", .label = "shard"};
	lpi_text_printf(text, "# TYPE lapis_request_seconds summary\n");
	for (uint32_t i = 0; i < report->shard_cnt; i++) {
		const struct lpi_shard_report *shard = &report->shards[i];
		for (uint32_t op = 0; op < LPI_REPORT_OPCODES; op++) {
			if (shard->has_latency[op] && lpi_report_op(op) != NULL)
				prometheus_summary(text, &group, i, lpi_report_op(op),
						   &shard->latency[op]);
		}
	}
}

static void prometheus_mount(const struct lpi_report *report, struct lpi_text *text)
{
	const struct lpi_mount_report *mounts = report->mounts;
	const uint32_t cnt = report->thread_cnt;
	const struct group groups[] = {
		{"mount_requests", "thread", &mounts->stats.requests, sizeof(*mounts), cnt},
		{"mount_request_errors", "thread", &mounts->stats.errors, sizeof(*mounts), cnt},
		{"mount", "thread", &mounts->stats, sizeof(*mounts), cnt},
		{.name = "mount_request", .label = "thread"},
	};
	if (report->mount_dir == NULL)
		return;
	lpi_text_printf(text, "# TYPE lapis_mount_by_io_uring gauge\nlapis_mount_by_io_uring %d\n",
			report->mount_by_ring);
	prometheus_array(text, &groups[0], "op", lpi_mount_op_name, LP_FUSE_OPCODES);
	prometheus_array(text, &groups[1], "op", lpi_mount_op_name, LP_FUSE_OPCODES);
	prometheus_counters(text, &groups[2], &lpi_mount_counters);
	lpi_text_printf(text, "# TYPE lapis_mount_request_seconds summary\n");
	for (uint32_t i = 0; i < cnt; i++) {
		for (uint32_t op = 0; op < LP_FUSE_OPCODES; op++) {
			if (mounts[i].has_latency[op] && lpi_mount_op_name(op) != NULL)
				prometheus_summary(text, &groups[3], i, lpi_mount_op_name(op),
						   &mounts[i].latency[op]);
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

/* What the index did: on its own threads, by blocking calls. */
static void prometheus_device_ops(const struct lpi_report *report, struct lpi_text *text,
				  const char *what)
{
	bool wants_bytes = strcmp(what, "bytes") == 0;
	lpi_text_printf(text, "# TYPE lapis_device_index_%s_total counter\n", what);
	for (uint32_t i = 0; i < LPI_REPORT_DEVICES; i++) {
		const struct lp_bdev_stats *sync = &report->devices[i].sync;
		for (int op = 0; report->devices[i].name != NULL && op < LP_BDEV_OPCODE_CNT; op++)
			lpi_text_printf(
				text, "lapis_device_index_%s_total{device=\"%u\",op=\"%s\"} %llu\n",
				what, i, lp_bdev_opcode_name((enum lp_bdev_opcode)op),
				(unsigned long long)(wants_bytes ? sync->bytes[op]
								 : sync->ops[op]));
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
	prometheus_device_ops(report, text, "ops");
	prometheus_device_ops(report, text, "bytes");
	lpi_text_printf(text, "# TYPE lapis_device_index_errors_total counter\n");
	for (uint32_t i = 0; i < LPI_REPORT_DEVICES; i++) {
		if (report->devices[i].name != NULL)
			lpi_text_printf(text,
					"lapis_device_index_errors_total{device=\"%u\"} %llu\n", i,
					(unsigned long long)report->devices[i].sync.errors);
	}
}

/* How many there are is lapis_store_bad_blocks; these are the first of each shard. */
static void prometheus_bad(const struct lpi_report *report, struct lpi_text *text)
{
	lpi_text_printf(text, "# TYPE lapis_store_bad_block_since_seconds gauge\n");
	for (uint32_t i = 0; i < report->shard_cnt; i++) {
		const struct lp_bad_blocks *bad = &report->shards[i].bad;
		for (uint32_t k = 0; k < bad->shown; k++)
			lpi_text_printf(text,
					"lapis_store_bad_block_since_seconds{shard=\"%u\","
					"block=\"%llu\"} %lld\n",
					i, (unsigned long long)bad->blocks[k],
					(long long)(bad->since_ns / (int64_t)LP_NS_PER_S));
	}
}

/* The states of which each thing has one: 1 for that, 0 for the others. */
static void prometheus_health(const struct lpi_report *report, struct lpi_text *text)
{
	lpi_text_printf(text, "# TYPE lapis_up gauge\nlapis_up 1\n# TYPE lapis_health gauge\n");
	for (int k = 0; k < LPI_HEALTH_STATE_CNT; k++) {
		const char *name = lpi_health_name((enum lpi_health_state)k);
		lpi_text_printf(text, "lapis_health{state=\"%s\"} %d\n", name,
				strcmp(name, report->state) == 0);
	}
	lpi_text_printf(text, "# TYPE lapis_store_health gauge\n");
	for (uint32_t i = 0; i < report->shard_cnt; i++) {
		for (int k = 0; k < LP_STORE_STATE_CNT; k++)
			lpi_text_printf(text, "lapis_store_health{shard=\"%u\",state=\"%s\"} %d\n",
					i, lp_store_state_name((enum lp_store_state)k),
					report->shards[i].health.state == (enum lp_store_state)k);
	}
}

static void prometheus_process(const struct lpi_report *report, struct lpi_text *text)
{
	prometheus_number(text, "uptime_seconds", "gauge", report->uptime_ns / LP_NS_PER_S);
	prometheus_number(text, "rss_bytes", "gauge", report->heap.rss_bytes);
	prometheus_number(text, "heap_used_bytes", "gauge", report->heap.used_bytes);
	prometheus_number(text, "heap_held_bytes", "gauge", report->heap.held_bytes);
	prometheus_number(text, "heap_givebacks_total", "counter", report->heap_givebacks);
	prometheus_number(text, "corruptions_total", "counter", report->corruptions);
	prometheus_number(text, "peers_refused_total", "counter", report->peers_refused);
}

static const char *path_name(uint32_t idx)
{
	return lp_write_path_name((enum lp_write_path)idx);
}

static void prometheus_arrays(const struct lpi_report *report, struct lpi_text *text)
{
	const struct lpi_shard_report *shards = report->shards;
	const uint32_t cnt = report->shard_cnt;
	const struct group groups[] = {
		{"requests", "shard", &shards->door.requests, sizeof(*shards), cnt},
		{"request_errors", "shard", &shards->door.errors, sizeof(*shards), cnt},
		{"request_absent", "shard", &shards->door.absent, sizeof(*shards), cnt},
		{"namespace_ops", "shard", &shards->ns.ops, sizeof(*shards), cnt},
		{"namespace_op_errors", "shard", &shards->ns.errors, sizeof(*shards), cnt},
		{"store_ops", "shard", &shards->store.ops, sizeof(*shards), cnt},
		{"store_op_errors", "shard", &shards->store.errors, sizeof(*shards), cnt},
		{"store_writes", "shard", &shards->store.writes_by_path, sizeof(*shards), cnt},
	};
	prometheus_array(text, &groups[0], "op", lpi_report_op, LPI_REPORT_OPCODES);
	prometheus_array(text, &groups[1], "op", lpi_report_op, LPI_REPORT_OPCODES);
	prometheus_array(text, &groups[2], "op", lpi_report_op, LPI_REPORT_OPCODES);
	prometheus_array(text, &groups[3], "op", lpi_ns_op_name, LP_NS_OPCODE_CNT);
	prometheus_array(text, &groups[4], "op", lpi_ns_op_name, LP_NS_OPCODE_CNT);
	prometheus_array(text, &groups[5], "op", lpi_store_op_name, LP_STORE_OPCODE_CNT);
	prometheus_array(text, &groups[6], "op", lpi_store_op_name, LP_STORE_OPCODE_CNT);
	prometheus_array(text, &groups[7], "path", path_name, LP_PATH_CNT);
}

void lpi_report_prometheus(const struct lpi_report *report, struct lpi_text *text)
{
	const struct lpi_shard_report *shards = report->shards;
	const struct lpi_thread_report *threads = report->threads;
	const uint32_t shard_cnt = report->shard_cnt;
	const uint32_t thread_cnt = report->thread_cnt;
	const struct group groups[] = {
		{"store", "shard", &shards->store, sizeof(*shards), shard_cnt},
		{"namespace", "shard", &shards->ns, sizeof(*shards), shard_cnt},
		{"connections", "shard", &shards->door, sizeof(*shards), shard_cnt},
		{"thread", "thread", &threads->reactor, sizeof(*threads), thread_cnt},
		{"buffers", "thread", &threads->bufs, sizeof(*threads), thread_cnt},
		{"helpers", NULL, &report->workers, 0, 1},
		{"log", NULL, &report->log, 0, 1},
		{"scrub", "shard", &shards->scrub.stats.sum, sizeof(*shards), shard_cnt},
		{"damaged", "shard", &shards->damage, sizeof(*shards), shard_cnt},
	};
	prometheus_health(report, text);
	prometheus_process(report, text);
	prometheus_devices(report, text);
	prometheus_bad(report, text);
	prometheus_arrays(report, text);
	prometheus_latency(report, text);
	prometheus_states(report, text, false);
	prometheus_states(report, text, true);
	prometheus_counters(text, &groups[0], &lpi_store_counters);
	prometheus_counters(text, &groups[1], &lpi_ns_counters);
	prometheus_counters(text, &groups[2], &lpi_door_counters);
	prometheus_counters(text, &groups[3], &lpi_reactor_counters);
	prometheus_counters(text, &groups[4], &lpi_bufs_counters);
	prometheus_counters(text, &groups[5], &lpi_workers_counters);
	prometheus_counters(text, &groups[6], &lpi_log_counters);
	prometheus_counters(text, &groups[7], &lpi_scrub_counters);
	prometheus_counters(text, &groups[8], &lpi_damage_counters);
	prometheus_mount(report, text);
}
