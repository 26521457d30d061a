/* SPDX-License-Identifier: Apache-2.0 */
/* Figures of the daemon, collected on their threads, and shown as JSON and for Prometheus.
 *
 * Threads: a struct belongs to one. Those of shards and threads are filled on their threads and
 *   then read by the control thread.
 * Blocking, errors: none.
 * Memory: the text's.
 */
#ifndef LP_DAEMON_REPORT_REPORT_H
#define LP_DAEMON_REPORT_REPORT_H

#include "base/log.h"
#include "base/loop/workers.h"
#include "daemon/report/heap.h"
#include "daemon/report/mount_report.h"
#include "daemon/report/scrubbing.h"
#include "daemon/report/text.h"
#include "native/conn.h"
#include "store/device/bdev.h"

#define LPI_REPORT_OPCODES 96u
#define LPI_REPORT_DEVICES 3u

struct lpi_shard_report {
	uint32_t idx;
	uint32_t thread_idx;
	struct lp_store_health health; /* of its store */
	struct lp_bad_blocks bad;
	double alloc_score;
	struct lp_store_usage usage; /* for lpi_report_dump() only */
	struct lp_store_stats store;
	struct lp_ns_stats ns;
	struct lp_door_stats door;
	struct lp_store_time times[LP_STORE_TIMES_MAX];
	size_t time_cnt;
	struct lp_slow_request slow[LP_SLOW_MAX];
	uint32_t slow_cnt;
	struct lpi_scrub_report scrub;
	struct lpi_damage_stats damage;
	/* For lpi_report_stuck() only: of the shard's door, names and store. */
	struct lp_under_way under_way[3 * LP_UNDER_WAY_MAX];
	uint32_t under_way_cnt;
	uint64_t under_way_all; /* also those beyond the table */
	bool has_latency[LPI_REPORT_OPCODES];
	struct lp_hist latency[LPI_REPORT_OPCODES];
};

struct lpi_thread_report {
	struct lp_reactor_stats reactor;
	struct lp_bufs_stats bufs;
	/* For lpi_report_stuck() only: requests of the mount that this thread has read. */
	struct lp_under_way under_way[LP_UNDER_WAY_MAX];
	uint32_t under_way_cnt;
	uint64_t under_way_all;
};

struct lpi_device_report {
	const char *name; /* NULL: there is no device */
	uint64_t size_bytes;
	bool is_silent;
	struct lp_bdev_stats sync; /* blocking calls, which the index makes */
};

struct lpi_report {
	const char *server;
	const char *allocator;
	const char *store_kind;
	const char *state;
	const char *reason;
	uint64_t still_ns; /* for how long nothing has moved although an operation is under way */
	uint64_t state_since_ns; /* of the day */
	char store_uuid[40];
	uint64_t uptime_ns;
	uint64_t corruptions;
	uint64_t peers_refused;
	uint32_t shard_cnt;
	uint32_t thread_cnt;
	struct lpi_heap_stats heap;
	uint64_t heap_givebacks; /* how often the daemon itself gave memory back */
	struct lp_workers_stats workers;
	struct lp_log_stats log;
	struct lpi_device_report devices[LPI_REPORT_DEVICES];
	uint64_t host_lack_bytes; /* of the free bytes: those that an image's file system cannot
				     give */
	uint64_t unleased_bytes;  /* for objects, not leased by any shard yet */
	const struct lpi_shard_report *shards;
	const struct lpi_thread_report *threads;
	const char *mount_dir;                 /* NULL: there is no mount */
	bool mount_by_ring;                    /* requests come by io_uring */
	const struct lpi_mount_report *mounts; /* of each thread, if there is one */
};

void lpi_report_scrub(const struct lpi_report *report, struct lpi_text *text);
/* "get" for LP_WIRE_OP_GET; NULL: there is no such operation. */
const char *lpi_report_op(uint32_t code);

/* "get", or "lookup" for the mount's; "unknown". */
const char *lpi_report_slow_op(const struct lp_slow_request *slow);

void lpi_report_status(const struct lpi_report *report, struct lpi_text *text);
void lpi_report_json(const struct lpi_report *report, struct lpi_text *text);
void lpi_report_prometheus(const struct lpi_report *report, struct lpi_text *text);
/* The slowest requests of both doors that took at least least_ns, slowest first. */
void lpi_report_slow(const struct lpi_report *report, uint64_t least_ns, struct lpi_text *text);
/* Operations under way, by part, with the resources that each holds and waits for. */
void lpi_report_stuck(const struct lpi_report *report, struct lpi_text *text);
void lpi_report_alloc(const struct lpi_report *report, struct lpi_text *text);
/* Both kinds of allocators: of blocks, by shard, and of memory. */
void lpi_report_dump(const struct lpi_report *report, struct lpi_text *text);

#endif
