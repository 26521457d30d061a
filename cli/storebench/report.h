/* SPDX-License-Identifier: Apache-2.0 */
/* What a run of the store's benchmark found, as a table for a person or one JSON object.
 *
 * Threads: any. Blocking: writes to standard output.
 */
#ifndef LP_CLI_STOREBENCH_REPORT_H
#define LP_CLI_STOREBENCH_REPORT_H

#include "cli/storebench/store_bench.h"
#include "store/device/bdev.h"

/* Exact, of the measured phase. "Background" are the blocking calls: the index's own threads. */
struct lpi_bench_counts {
	uint64_t log_writes;
	uint64_t log_bytes;
	uint64_t data_writes;
	uint64_t data_bytes;
	uint64_t data_reads;
	uint64_t data_read_bytes;
	uint64_t flushes;
	uint64_t background_reads;
	uint64_t background_read_bytes;
	uint64_t background_writes; /* written through or not */
	uint64_t background_bytes;
	uint64_t background_flushes;
	uint64_t commits;
	uint64_t paths[LP_PATH_CNT];
	uint64_t inode_misses;
	uint64_t index_waits;
	uint64_t space_waits;
	/* Blocks in memory, and read ahead: as in struct lp_store_stats. */
	uint64_t data_hits;
	uint64_t data_misses;
	uint64_t ahead_reads;
	uint64_t ahead_blocks;
	uint64_t ahead_used;
	uint64_t ahead_wasted;
	uint64_t ahead_waits;
	uint64_t turns;
	uint64_t enters;
	uint64_t absences;
	uint64_t absences_preempted;
	uint64_t absences_blocked;
	uint64_t absence_max_ns;
	uint64_t absence_own_max_ns;
	const char *absence_phase; /* in which the longest of our own was; static */
	/* Written to the devices from the start of the measured phase until the store was closed
	 * after it, so that all write-back and flushing of the index is in it. 0: not known. */
	uint64_t settled_bytes;
	/* Operations of the devices from the opening of the store to its close, and those of them
	 * that took longer than the delay says. */
	uint64_t device_ops;
	uint64_t late_ops;
};

struct lpi_bench_report {
	const struct lpi_bench_options *options;
	const char *store; /* "block", "mem", "file" */
	const char *write_path;
	const char *deferred_store;
	const char *allocator;
	const char *delay;           /* "none" */
	struct lp_store_usage usage; /* at the end of the measured phase */
	uint64_t open_ns;            /* what opening the store took, recovery included, */
	uint64_t close_ns;           /* and closing it after the measured phase */
	struct lpi_bench_result result;
	struct lpi_bench_counts counts;
	char explain[512]; /* the choice of the write path; empty: not asked for */
	/* In the order of the store, of the measured phase; none: not asked for. */
	struct lp_store_time times[LP_STORE_TIMES_MAX];
	size_t times_cnt;
};

void lpi_bench_report_text(const struct lpi_bench_report *report);
void lpi_bench_report_json(const struct lpi_bench_report *report);

#endif
