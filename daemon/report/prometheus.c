/* SPDX-License-Identifier: Apache-2.0 */
/* The numbers in the format of Prometheus. Families follow one another. Each has a sentence of help
 * and its type before its series, and no series comes twice. Units are seconds and bytes; counters
 * end in "_total". tests/wire/admin.py and tests/system/metrics.sh check this.
 *
 * Latencies are histograms. Internally they have many more buckets, each 1/32 of its value wide
 * (base/struct/hist.h). A bound of Prometheus that lies within such a bucket does not count it. So
 * a value up to 3.1 % below a bound may be counted at the next one, but no value is shown as
 * quicker than it was. The bounds never change, so stored values of different versions can be added
 * up.
 */
#include <stdio.h>
#include <string.h>

#include "daemon/report/counters.h"
#include "daemon/report/health.h"
#include "daemon/report/report.h"
#include "wire/wire.h"

/* From answers out of memory up to the timeouts of clients. */
static const struct {
	const char *le;
	uint64_t ns;
} bounds[] = {{"0.00001", 10 * LP_NS_PER_US},  {"0.000025", 25 * LP_NS_PER_US},
	      {"0.00005", 50 * LP_NS_PER_US},  {"0.0001", 100 * LP_NS_PER_US},
	      {"0.00025", 250 * LP_NS_PER_US}, {"0.0005", 500 * LP_NS_PER_US},
	      {"0.001", LP_NS_PER_MS},         {"0.0025", 2500 * LP_NS_PER_US},
	      {"0.005", 5 * LP_NS_PER_MS},     {"0.01", 10 * LP_NS_PER_MS},
	      {"0.025", 25 * LP_NS_PER_MS},    {"0.05", 50 * LP_NS_PER_MS},
	      {"0.1", 100 * LP_NS_PER_MS},     {"0.25", 250 * LP_NS_PER_MS},
	      {"0.5", 500 * LP_NS_PER_MS},     {"1", LP_NS_PER_S},
	      {"2.5", 2500 * LP_NS_PER_MS},    {"5", 5 * LP_NS_PER_S},
	      {"10", 10 * LP_NS_PER_S},        {"30", 30 * LP_NS_PER_S}};

/* Counters of several units. Those of unit i are at first + i * stride. */
struct group {
	const char *name;
	const char *label; /* name of the units' label; NULL: there is only one unit */
	const void *first;
	size_t stride;
	uint32_t cnt;
	const char *help; /* of an array */
};

/* Writes the lines before the series of a family. The names here have no "lapis_" before them. */
static void begin_family(struct lpi_text *text, const char *name, const char *type,
			 const char *help)
{
	lpi_text_printf(text, "# HELP lapis_%s %s\n# TYPE lapis_%s %s\n", name, help, name, type);
}

static void print_seconds(struct lpi_text *text, uint64_t ns)
{
	lpi_text_printf(text, "%llu.%09llu", (unsigned long long)(ns / LP_NS_PER_S),
			(unsigned long long)(ns % LP_NS_PER_S));
}

static void print_value(struct lpi_text *text, const struct lpi_counter *counter, uint64_t value)
{
	if (counter->unit == LPI_UNIT_NS)
		print_seconds(text, value);
	else
		lpi_text_printf(text, "%llu",
				(unsigned long long)(counter->unit == LPI_UNIT_BLOCKS
							     ? value * LP_WIRE_BLOCK_BYTES
							     : value));
}

static void print_labels(struct lpi_text *text, const struct group *group, uint32_t unit,
			 const struct lpi_counter *counter)
{
	const char *comma = group->label != NULL && counter->label != NULL ? "," : "";
	if (group->label == NULL && counter->label == NULL)
		return;
	lpi_text_printf(text, "{");
	if (group->label != NULL)
		lpi_text_printf(text, "%s=\"%u\"", group->label, unit);
	if (counter->label != NULL)
		lpi_text_printf(text, "%s%s=\"%s\"", comma, counter->label, counter->label_value);
	lpi_text_printf(text, "}");
}

static const char *metric_of(const struct lpi_counter *counter)
{
	return counter->metric != NULL ? counter->metric : counter->name;
}

static void prometheus_counters(struct lpi_text *text, const struct group *group,
				const struct lpi_counter_table *counters)
{
	char family[80];
	for (size_t k = 0; k < counters->cnt; k++) {
		const struct lpi_counter *counter = &counters->items[k];
		bool is_first = k == 0 || strcmp(metric_of(counter), metric_of(counter - 1)) != 0;
		(void)snprintf(family, sizeof(family), "%s_%s%s", group->name, metric_of(counter),
			       counter->is_gauge ? "" : "_total");
		if (is_first)
			begin_family(text, family, counter->is_gauge ? "gauge" : "counter",
				     counter->help);
		for (uint32_t i = 0; i < group->cnt; i++) {
			const char *stats = (const char *)group->first + i * group->stride;
			lpi_text_printf(text, "lapis_%s", family);
			print_labels(text, group, i, counter);
			lpi_text_printf(text, " ");
			print_value(text, counter, lpi_counter_read(stats, counter));
			lpi_text_printf(text, "\n");
		}
	}
}

/* For each unit an array, one number for each name. A number that has always been 0 is not shown.
 */
static void prometheus_array(struct lpi_text *text, const struct group *group, const char *label,
			     const char *(*name_of)(uint32_t idx), uint32_t cnt)
{
	char family[80];
	(void)snprintf(family, sizeof(family), "%s_total", group->name);
	begin_family(text, family, "counter", group->help);
	for (uint32_t i = 0; i < group->cnt; i++) {
		const char *array = (const char *)group->first + i * group->stride;
		for (uint32_t k = 0; k < cnt; k++) {
			uint64_t value;
			memcpy(&value, array + k * sizeof(value), sizeof(value));
			if (value > 0 && name_of(k) != NULL)
				lpi_text_printf(text, "lapis_%s{%s=\"%u\",%s=\"%s\"} %llu\n",
						family, group->label, i, label, name_of(k),
						(unsigned long long)value);
		}
	}
}

struct number {
	const char *name;
	const char *type;
	uint64_t value;
	const char *help;
};

static void prometheus_numbers(struct lpi_text *text, const struct number *numbers, size_t cnt)
{
	for (size_t i = 0; i < cnt; i++) {
		begin_family(text, numbers[i].name, numbers[i].type, numbers[i].help);
		lpi_text_printf(text, "lapis_%s %llu\n", numbers[i].name,
				(unsigned long long)numbers[i].value);
	}
}

/* The histogram of one operation of one unit. */
static void prometheus_histogram(struct lpi_text *text, const struct group *group, uint32_t idx,
				 const char *op, const struct lp_hist *hist)
{
	char labels[100];
	struct lp_hist_bucket bucket;
	uint64_t below = 0;
	size_t pos = 0;
	bool more = lp_hist_next(hist, &pos, &bucket);
	(void)snprintf(labels, sizeof(labels), "%s=\"%u\",op=\"%s\"", group->label, idx, op);
	for (size_t k = 0; k < LP_ARRAY_SIZE(bounds); k++) {
		for (; more && bucket.high <= bounds[k].ns;
		     more = lp_hist_next(hist, &pos, &bucket))
			below += bucket.count;
		lpi_text_printf(text, "lapis_%s_bucket{%s,le=\"%s\"} %llu\n", group->name, labels,
				bounds[k].le, (unsigned long long)below);
	}
	lpi_text_printf(text, "lapis_%s_bucket{%s,le=\"+Inf\"} %llu\nlapis_%s_sum{%s} ",
			group->name, labels, (unsigned long long)hist->count, group->name, labels);
	print_seconds(text, hist->sum);
	lpi_text_printf(text, "\nlapis_%s_count{%s} %llu\n", group->name, labels,
			(unsigned long long)hist->count);
}

static void prometheus_latency(const struct lpi_report *report, struct lpi_text *text)
{
	const struct group group = {.name = "request_duration_seconds", .label = "shard"};
	begin_family(text, group.name, "histogram",
		     "Time from the end of a request on a socket to its answer.");
	for (uint32_t i = 0; i < report->shard_cnt; i++) {
		const struct lpi_shard_report *shard = &report->shards[i];
		for (uint32_t op = 0; op < LPI_REPORT_OPCODES; op++) {
			if (shard->has_latency[op] && lpi_report_op(op) != NULL)
				prometheus_histogram(text, &group, i, lpi_report_op(op),
						     &shard->latency[op]);
		}
	}
}

static void prometheus_mount(const struct lpi_report *report, struct lpi_text *text)
{
	const struct lpi_mount_report *mounts = report->mounts;
	const uint32_t cnt = report->thread_cnt;
	const struct group groups[] = {
		{"mount_requests", "thread", &mounts->stats.requests, sizeof(*mounts), cnt,
		 "Requests of the mount's kernel that were answered."},
		{"mount_request_errors", "thread", &mounts->stats.errors, sizeof(*mounts), cnt,
		 "Requests of the mount's kernel that were answered with an error."},
		{"mount", "thread", &mounts->stats, sizeof(*mounts), cnt, NULL},
		{.name = "mount_request_duration_seconds", .label = "thread"},
	};
	begin_family(text, "mount_by_io_uring", "gauge",
		     "Whether requests of the mount's kernel come by io_uring: 1 or 0.");
	lpi_text_printf(text, "lapis_mount_by_io_uring %d\n", report->mount_by_ring);
	prometheus_array(text, &groups[0], "op", lpi_mount_op_name, LP_FUSE_OPCODES);
	prometheus_array(text, &groups[1], "op", lpi_mount_op_name, LP_FUSE_OPCODES);
	prometheus_counters(text, &groups[2], &lpi_mount_counters);
	begin_family(text, groups[3].name, "histogram",
		     "Time from reading a request of the mount's kernel to its answer.");
	for (uint32_t i = 0; i < cnt; i++) {
		for (uint32_t op = 0; op < LP_FUSE_OPCODES; op++) {
			if (mounts[i].has_latency[op] && lpi_mount_op_name(op) != NULL)
				prometheus_histogram(text, &groups[3], i, lpi_mount_op_name(op),
						     &mounts[i].latency[op]);
		}
	}
}

static void prometheus_states(const struct lpi_report *report, struct lpi_text *text, bool seconds)
{
	const char *family = seconds ? "state_seconds_total" : "state_left_total";
	begin_family(text, family, "counter",
		     seconds ? "Time that operations of the store have spent in a state."
			     : "Times that operations of the store have left a state.");
	for (uint32_t i = 0; i < report->shard_cnt; i++) {
		for (size_t k = 0; k < report->shards[i].time_cnt; k++) {
			const struct lp_store_time *time = &report->shards[i].times[k];
			lpi_text_printf(text, "lapis_%s{shard=\"%u\",op=\"%s\",state=\"%s\"} ",
					family, i, time->operation, time->state);
			if (seconds)
				print_seconds(text, time->ns);
			else
				lpi_text_printf(text, "%llu", (unsigned long long)time->cnt);
			lpi_text_printf(text, "\n");
		}
	}
}

/* The index's operations: on its own threads, by blocking calls. */
static void prometheus_device_ops(const struct lpi_report *report, struct lpi_text *text,
				  bool wants_bytes)
{
	const char *family = wants_bytes ? "device_index_bytes_total" : "device_index_ops_total";
	begin_family(text, family, "counter",
		     wants_bytes ? "Bytes that the index's own threads have moved, by device."
				 : "Operations of the index's own threads, by device.");
	for (uint32_t i = 0; i < LPI_REPORT_DEVICES; i++) {
		const struct lp_bdev_stats *sync = &report->devices[i].sync;
		for (int op = 0; report->devices[i].name != NULL && op < LP_BDEV_OPCODE_CNT; op++)
			lpi_text_printf(text, "lapis_%s{device=\"%u\",op=\"%s\"} %llu\n", family, i,
					lp_bdev_opcode_name((enum lp_bdev_opcode)op),
					(unsigned long long)(wants_bytes ? sync->bytes[op]
									 : sync->ops[op]));
	}
}

static void prometheus_devices(const struct lpi_report *report, struct lpi_text *text)
{
	begin_family(text, "device_silent", "gauge",
		     "Whether a device has not answered for too long: 1 or 0.");
	for (uint32_t i = 0; i < LPI_REPORT_DEVICES; i++) {
		if (report->devices[i].name != NULL)
			lpi_text_printf(text, "lapis_device_silent{device=\"%u\"} %d\n", i,
					report->devices[i].is_silent);
	}
	prometheus_device_ops(report, text, false);
	prometheus_device_ops(report, text, true);
	begin_family(text, "device_index_errors_total", "counter",
		     "Operations of the index's own threads that failed, by device.");
	for (uint32_t i = 0; i < LPI_REPORT_DEVICES; i++) {
		if (report->devices[i].name != NULL)
			lpi_text_printf(text,
					"lapis_device_index_errors_total{device=\"%u\"} %llu\n", i,
					(unsigned long long)report->devices[i].sync.errors);
	}
}

/* The first bad blocks of each shard, so the label has few values. lapis_store_bad_blocks has their
 * number. */
static void prometheus_bad(const struct lpi_report *report, struct lpi_text *text)
{
	begin_family(text, "store_bad_block_timestamp_seconds", "gauge",
		     "When a block was found that cannot be written, in seconds since 1970.");
	for (uint32_t i = 0; i < report->shard_cnt; i++) {
		const struct lp_bad_blocks *bad = &report->shards[i].bad;
		for (uint32_t k = 0; k < bad->shown; k++)
			lpi_text_printf(text,
					"lapis_store_bad_block_timestamp_seconds{shard=\"%u\","
					"block=\"%llu\"} %lld\n",
					i, (unsigned long long)bad->blocks[k],
					(long long)(bad->since_ns / (int64_t)LP_NS_PER_S));
	}
}

/* Gives each thing's state: 1 for the present state, 0 for the others. */
static void prometheus_health(const struct lpi_report *report, struct lpi_text *text)
{
	begin_family(text, "up", "gauge", "Whether the daemon answers: always 1.");
	lpi_text_printf(text, "lapis_up 1\n");
	begin_family(text, "build_info", "gauge", "Which daemon this is: always 1.");
	lpi_text_printf(text, "lapis_build_info{version=\"%s\",allocator=\"%s\",store=\"%s\"} 1\n",
			LAPIS_VERSION, report->allocator, report->store_kind);
	begin_family(text, "health", "gauge",
		     "State of the daemon: 1 for the one that it is in, 0 for the others.");
	for (int k = 0; k < LPI_HEALTH_STATE_CNT; k++) {
		const char *name = lpi_health_name((enum lpi_health_state)k);
		lpi_text_printf(text, "lapis_health{state=\"%s\"} %d\n", name,
				strcmp(name, report->state) == 0);
	}
	begin_family(text, "store_health", "gauge",
		     "State of a shard's store: 1 for the one that it is in, 0 for the others.");
	for (uint32_t i = 0; i < report->shard_cnt; i++) {
		for (int k = 0; k < LP_STORE_STATE_CNT; k++)
			lpi_text_printf(text, "lapis_store_health{shard=\"%u\",state=\"%s\"} %d\n",
					i, lp_store_state_name((enum lp_store_state)k),
					report->shards[i].health.state == (enum lp_store_state)k);
	}
}

static void prometheus_process(const struct lpi_report *report, struct lpi_text *text)
{
	const struct number numbers[] = {
		{"uptime_seconds", "gauge", report->uptime_ns / LP_NS_PER_S,
		 "Time since the daemon was started."},
		{"resident_memory_bytes", "gauge", report->heap.rss_bytes,
		 "Resident memory of the daemon."},
		{"heap_used_bytes", "gauge", report->heap.used_bytes,
		 "Memory that the daemon has from its allocator."},
		{"heap_held_bytes", "gauge", report->heap.held_bytes,
		 "Memory that the allocator has from the kernel."},
		{"heap_givebacks_total", "counter", report->heap_givebacks,
		 "Times that the daemon has given unused memory back."},
		{"corruptions_total", "counter", report->corruptions,
		 "Damaged data or structures that were met since the start."},
		{"peers_refused_total", "counter", report->peers_refused,
		 "Connections refused because of whose they were."},
	};
	prometheus_numbers(text, numbers, LP_ARRAY_SIZE(numbers));
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
		{"requests", "shard", &shards->door.requests, sizeof(*shards), cnt,
		 "Requests on sockets that were answered."},
		{"request_errors", "shard", &shards->door.errors, sizeof(*shards), cnt,
		 "Requests on sockets that were answered with an error."},
		{"request_absent", "shard", &shards->door.absent, sizeof(*shards), cnt,
		 "Requests on sockets for what is not there. They are no errors."},
		{"namespace_ops", "shard", &shards->ns.ops, sizeof(*shards), cnt,
		 "Operations of the namespace that have ended."},
		{"namespace_op_errors", "shard", &shards->ns.errors, sizeof(*shards), cnt,
		 "Operations of the namespace that have failed."},
		{"store_ops", "shard", &shards->store.ops, sizeof(*shards), cnt,
		 "Operations of the store that have ended."},
		{"store_op_errors", "shard", &shards->store.errors, sizeof(*shards), cnt,
		 "Operations of the store that have failed."},
		{"store_writes", "shard", &shards->store.writes_by_path, sizeof(*shards), cnt,
		 "Writes of objects' data by the path that they took."},
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
		{"store", "shard", &shards->store, sizeof(*shards), shard_cnt, NULL},
		{"namespace", "shard", &shards->ns, sizeof(*shards), shard_cnt, NULL},
		{"connections", "shard", &shards->door, sizeof(*shards), shard_cnt, NULL},
		{"thread", "thread", &threads->reactor, sizeof(*threads), thread_cnt, NULL},
		{"buffers", "thread", &threads->bufs, sizeof(*threads), thread_cnt, NULL},
		{"helpers", NULL, &report->workers, 0, 1, NULL},
		{"log", NULL, &report->log, 0, 1, NULL},
		{"scrub", "shard", &shards->scrub.stats.sum, sizeof(*shards), shard_cnt, NULL},
		{"damaged", "shard", &shards->damage, sizeof(*shards), shard_cnt, NULL},
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
	if (report->mount_dir != NULL)
		prometheus_mount(report, text);
}
