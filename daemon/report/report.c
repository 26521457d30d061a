/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/report/report.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "daemon/report/counters.h"

#define SLOW_SHOWN_MAX 100u
#define SHARDS_SHOWN   64u

const char *lpi_report_op(uint32_t code)
{
	return lp_door_op_name((uint16_t)code);
}

/* --- JSON ------------------------------------------------------------------------------------- */

static void json_counters(struct lpi_text *text, const char *key, const void *stats,
			  const struct lpi_counter_table *counters)
{
	lpi_json_open(text, key, '{');
	for (size_t i = 0; i < counters->cnt; i++)
		lpi_json_number(text, counters->items[i].name,
				lpi_counter_read(stats, &counters->items[i]));
	lpi_json_close(text, '}');
}

/* Operations of several shards together. */
static void json_ops(struct lpi_text *text, const struct lpi_shard_report *shards, uint32_t cnt)
{
	static struct lp_hist sum; /* the control thread's */
	lpi_json_open(text, "ops", '{');
	for (uint32_t op = 0; op < LPI_REPORT_OPCODES; op++) {
		uint64_t requests = 0;
		uint64_t errors = 0;
		uint64_t absent = 0;
		lp_hist_reset(&sum);
		for (uint32_t i = 0; i < cnt; i++) {
			requests += shards[i].door.requests[op];
			errors += shards[i].door.errors[op];
			absent += shards[i].door.absent[op];
			if (shards[i].has_latency[op])
				lp_hist_merge(&sum, &shards[i].latency[op]);
		}
		if (requests + errors == 0 || lpi_report_op(op) == NULL)
			continue;
		lpi_json_open(text, lpi_report_op(op), '{');
		lpi_json_number(text, "count", requests);
		lpi_json_number(text, "errors", errors);
		lpi_json_number(text, "absent", absent);
		if (sum.count > 0)
			lpi_json_latency(text, &sum);
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
	json_counters(text, "store", &shard->store, &lpi_store_counters);
	json_counters(text, "namespace", &shard->ns, &lpi_ns_counters);
	json_counters(text, "connections", &shard->door, &lpi_door_counters);
	lpi_json_close(text, '}');
}

static void json_thread(struct lpi_text *text, const struct lpi_thread_report *thread, uint32_t idx)
{
	lpi_json_open(text, NULL, '{');
	lpi_json_number(text, "thread", idx);
	json_counters(text, "reactor", &thread->reactor, &lpi_reactor_counters);
	lpi_json_open(text, "absences_by_phase", '{');
	for (int i = 0; i < LP_PHASE_CNT; i++)
		lpi_json_number(text, lp_reactor_phase_name((enum lp_reactor_phase)i),
				thread->reactor.absences_by_phase[i]);
	lpi_json_close(text, '}');
	json_counters(text, "buffers", &thread->bufs, &lpi_bufs_counters);
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

/* Sums over all shards. */
struct totals {
	uint64_t available_blocks;
	bool takes_more; /* some shard takes more: unleased blocks are available */
	uint64_t used_blocks;
	uint64_t conns;
	uint64_t requests;
	uint64_t errors;
	uint64_t absent;
};

static struct totals add_up(const struct lpi_report *report)
{
	struct totals sum = {.conns = 0};
	for (uint32_t i = 0; i < report->shard_cnt; i++) {
		const struct lpi_shard_report *shard = &report->shards[i];
		sum.used_blocks += shard->store.used_blocks;
		sum.available_blocks += shard->store.free_blocks - shard->store.kept_blocks;
		sum.takes_more |= !shard->store.takes_no_more;
		sum.conns += shard->door.conns;
		for (uint32_t op = 0; op < LPI_REPORT_OPCODES; op++) {
			sum.requests += shard->door.requests[op];
			sum.errors += shard->door.errors[op];
			sum.absent += shard->door.absent[op];
		}
	}
	return sum;
}

static void json_bad_places(const struct lpi_report *report, struct lpi_text *text)
{
	uint32_t shown = 0;
	lpi_json_open(text, "places", '[');
	for (uint32_t i = 0; i < report->shard_cnt; i++) {
		const struct lp_bad_blocks *bad = &report->shards[i].bad;
		for (uint32_t k = 0; k < bad->shown && shown < LP_BAD_BLOCKS_SHOWN; k++, shown++) {
			lpi_json_open(text, NULL, '{');
			lpi_json_number(text, "shard", report->shards[i].idx);
			lpi_json_number(text, "block", bad->blocks[k]);
			lpi_json_close(text, '}');
		}
	}
	lpi_json_close(text, ']');
}

/* Of the data device (rule L6). */
static void json_bad(const struct lpi_report *report, struct lpi_text *text)
{
	uint64_t cnt = 0;
	int64_t since_ns = INT64_MAX;
	for (uint32_t i = 0; i < report->shard_cnt; i++) {
		const struct lp_bad_blocks *bad = &report->shards[i].bad;
		cnt += bad->cnt;
		if (bad->cnt > 0)
			since_ns = LP_MIN(since_ns, bad->since_ns);
	}
	lpi_json_open(text, "bad_blocks", '{');
	lpi_json_number(text, "count", cnt);
	if (cnt > 0) {
		lpi_json_number(text, "since", (uint64_t)since_ns / LP_NS_PER_S);
		json_bad_places(report, text);
	}
	lpi_json_close(text, '}');
}

static void json_damage(const struct lpi_report *report, struct lpi_text *text)
{
	uint64_t objects = 0;
	bool is_full = false;
	for (uint32_t i = 0; i < report->shard_cnt; i++) {
		objects += report->shards[i].damage.objects;
		is_full |= report->shards[i].damage.is_full;
	}
	lpi_json_number(text, "damaged_objects", objects);
	lpi_json_bool(text, "damaged_list_full", is_full);
}

static void json_scrub_sum(const struct lpi_report *report, struct lpi_text *text)
{
	bool is_running = false;
	uint64_t damaged = 0;
	int64_t whole_ns = INT64_MAX;
	for (uint32_t i = 0; i < report->shard_cnt; i++) {
		const struct lpi_scrub_report *scrub = &report->shards[i].scrub;
		is_running |= scrub->stats.is_running;
		damaged += scrub->damaged;
		whole_ns = LP_MIN(whole_ns, scrub->whole_ns);
	}
	lpi_json_open(text, "scrub", '{');
	lpi_json_bool(text, "running", is_running);
	lpi_json_number(text, "damaged", damaged);
	lpi_json_number(text, "whole_ns", (uint64_t)whole_ns); /* 0: not all shards */
	lpi_json_close(text, '}');
}

void lpi_report_status(const struct lpi_report *report, struct lpi_text *text)
{
	struct totals sum = add_up(report);
	lpi_json_open(text, NULL, '{');
	json_head(report, text);
	lpi_json_number(text, "connections", sum.conns);
	lpi_json_number(text, "requests", sum.requests);
	lpi_json_number(text, "errors", sum.errors);
	lpi_json_number(text, "absent", sum.absent);
	lpi_json_number(text, "used_bytes", sum.used_blocks * LP_WIRE_BLOCK_BYTES);
	uint64_t available_bytes =
		sum.available_blocks * LP_WIRE_BLOCK_BYTES + report->unleased_bytes;
	/* Bytes that the file system of an image cannot give are not available. */
	available_bytes -= LP_MIN(available_bytes, report->host_lack_bytes);
	lpi_json_number(text, "available_bytes", sum.takes_more ? available_bytes : 0);
	lpi_json_number(text, "rss_bytes", report->heap.rss_bytes);
	json_devices(report, text);
	json_bad(report, text);
	json_damage(report, text);
	json_scrub_sum(report, text);
	lpi_mount_report_status(report, text);
	lpi_json_close(text, '}');
}

static void json_process(const struct lpi_report *report, struct lpi_text *text)
{
	lpi_json_open(text, "process", '{');
	lpi_json_number(text, "rss_bytes", report->heap.rss_bytes);
	lpi_json_number(text, "heap_used_bytes", report->heap.used_bytes);
	lpi_json_number(text, "heap_held_bytes", report->heap.held_bytes);
	lpi_json_number(text, "heap_givebacks", report->heap_givebacks);
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
	lpi_mount_report_json(report, text);
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

static const char *state_name(const struct lp_slow_request *slow, uint32_t state)
{
	return slow->is_mounts ? lp_fuse_state_name(state) : lp_door_state_name(state);
}

const char *lpi_report_slow_op(const struct lp_slow_request *slow)
{
	const char *name =
		slow->is_mounts ? lpi_mount_op_name(slow->opcode) : lpi_report_op(slow->opcode);
	return name != NULL ? name : "unknown";
}

/* The time of a request by its states, in their order. */
static void json_timeline(struct lpi_text *text, const struct lp_slow_request *slow)
{
	const char *name = NULL;
	lpi_json_open(text, "timeline", '[');
	for (uint32_t i = 0; (name = state_name(slow, i)) != NULL; i++) {
		if (slow->state_ns[i] < LP_NS_PER_US)
			continue;
		lpi_json_open(text, NULL, '{');
		lpi_json_string(text, "state", name);
		lpi_json_real(text, "ms", (double)slow->state_ns[i] / 1e6);
		lpi_json_close(text, '}');
	}
	lpi_json_close(text, ']');
}

static void json_slow(struct lpi_text *text, const struct lp_slow_request *slow)
{
	lpi_json_open(text, NULL, '{');
	lpi_json_string(text, "door", slow->is_mounts ? "mount" : "native");
	lpi_json_string(text, "operation", lpi_report_slow_op(slow));
	lpi_json_string(text, "object", slow->object);
	lpi_json_number(text, "began_ns", slow->began_ns);
	lpi_json_real(text, "took_ms", (double)slow->took_ns / 1e6);
	lpi_json_number(text, "bytes", slow->bytes);
	lpi_json_string(text, "result", slow->status == 0 ? "ok" : lp_strerror(slow->status));
	json_timeline(text, slow);
	lpi_json_close(text, '}');
}

static uint32_t pick_slow(const struct lp_slow_request *slow, uint32_t cnt, uint64_t least_ns,
			  const struct lp_slow_request **ret)
{
	uint32_t picked = 0;
	for (uint32_t i = 0; i < cnt; i++) {
		if (slow[i].took_ns >= least_ns)
			ret[picked++] = &slow[i];
	}
	return picked;
}

void lpi_report_slow(const struct lpi_report *report, uint64_t least_ns, struct lpi_text *text)
{
	/* There are at most as many threads as shards. */
	static const struct lp_slow_request *all[2 * SHARDS_SHOWN * LP_SLOW_MAX];
	uint32_t cnt = 0;
	for (uint32_t i = 0; i < report->shard_cnt; i++)
		cnt += pick_slow(report->shards[i].slow, report->shards[i].slow_cnt, least_ns,
				 all + cnt);
	for (uint32_t i = 0; i < report->thread_cnt; i++)
		cnt += pick_slow(report->mounts[i].slow, report->mounts[i].slow_cnt, least_ns,
				 all + cnt);
	/* Pointers are what is sorted. NOLINTNEXTLINE(bugprone-sizeof-expression) */
	qsort(all, cnt, sizeof(all[0]), by_time);
	lpi_json_open(text, NULL, '[');
	for (uint32_t i = 0; i < LP_MIN(cnt, SLOW_SHOWN_MAX); i++)
		json_slow(text, all[i]);
	lpi_json_close(text, ']');
}

static void json_under_way(struct lpi_text *text, const char *place, uint32_t idx,
			   const struct lp_under_way *row)
{
	lpi_json_open(text, NULL, '{');
	lpi_json_string(text, "part", row->part);
	lpi_json_number(text, place, idx);
	lpi_json_string(text, "operation", row->operation);
	lpi_json_string(text, "object", row->object);
	lpi_json_number(text, "inode", row->ino_nr);
	lpi_json_string(text, "state", row->state);
	lpi_json_string(text, "waits_for", row->waits_for != NULL ? row->waits_for : "");
	lpi_json_real(text, "ms", (double)row->age_ns / 1e6);
	lpi_json_number(text, "held_bytes", row->held_bytes);
	lpi_json_close(text, '}');
}

static void json_buffers(const struct lpi_report *report, struct lpi_text *text)
{
	lpi_json_open(text, "buffers", '[');
	for (uint32_t i = 0; i < report->thread_cnt; i++) {
		const struct lp_bufs_stats *bufs = &report->threads[i].bufs;
		lpi_json_open(text, NULL, '{');
		lpi_json_number(text, "thread", i);
		lpi_json_number(text, "region_bytes", bufs->region_bytes);
		lpi_json_number(text, "used_bytes", bufs->used_bytes);
		lpi_json_number(text, "reserved_bytes", bufs->reserved_bytes);
		lpi_json_close(text, '}');
	}
	lpi_json_close(text, ']');
}

void lpi_report_stuck(const struct lpi_report *report, struct lpi_text *text)
{
	uint64_t all = 0;
	lpi_json_open(text, NULL, '{');
	lpi_json_real(text, "still_ms", (double)report->still_ns / 1e6);
	json_buffers(report, text);
	lpi_json_open(text, "under_way", '[');
	for (uint32_t i = 0; i < report->thread_cnt; i++) {
		const struct lpi_thread_report *thread = &report->threads[i];
		all += thread->under_way_all;
		for (uint32_t k = 0; k < thread->under_way_cnt; k++)
			json_under_way(text, "thread", i, &thread->under_way[k]);
	}
	for (uint32_t i = 0; i < report->shard_cnt; i++) {
		const struct lpi_shard_report *shard = &report->shards[i];
		all += shard->under_way_all;
		for (uint32_t k = 0; k < shard->under_way_cnt; k++)
			json_under_way(text, "shard", shard->idx, &shard->under_way[k]);
	}
	lpi_json_close(text, ']');
	lpi_json_number(text, "under_way_all", all);
	lpi_json_close(text, '}');
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

void lpi_report_scrub(const struct lpi_report *report, struct lpi_text *text)
{
	bool is_running = false;
	uint64_t damaged = 0;
	lpi_json_open(text, NULL, '{');
	lpi_json_open(text, "shards", '[');
	for (uint32_t i = 0; i < report->shard_cnt; i++) {
		const struct lpi_scrub_report *scrub = &report->shards[i].scrub;
		is_running |= scrub->stats.is_running;
		damaged += scrub->damaged;
		lpi_scrub_json(text, i, scrub);
	}
	lpi_json_close(text, ']');
	lpi_json_bool(text, "running", is_running);
	lpi_json_number(text, "damaged", damaged);
	json_damage(report, text);
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
