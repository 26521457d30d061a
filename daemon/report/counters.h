/* SPDX-License-Identifier: Apache-2.0 */
/* Tables of counters: a name, and where the number is in its struct.
 *
 * Threads: any; constant.
 * Blocking, memory, errors: none.
 *
 * What is shown as JSON and to Prometheus is made from the same tables. JSON shows each field under
 * its own name and in its own unit. Prometheus wants a sentence of help, seconds and bytes:
 * `metric` is the name there where it differs from the field's, without the group before it and
 * without "_total" behind it. Arrays by opcode are shown by the modules that know the names.
 */
#ifndef LP_DAEMON_REPORT_COUNTERS_H
#define LP_DAEMON_REPORT_COUNTERS_H

#include "base/compiler.h"

enum lpi_unit {
	LPI_UNIT_ONE,    /* shown as it is: a number, or bytes */
	LPI_UNIT_NS,     /* shown to Prometheus in seconds */
	LPI_UNIT_BLOCKS, /* shown to Prometheus in bytes */
};

struct lpi_counter {
	const char *name;
	const char *help;   /* one sentence */
	const char *metric; /* NULL: the name */
	/* Neighbours with the same metric are one family and differ by this label; NULL: no label.
	 */
	const char *label;
	const char *label_value;
	size_t offset;
	enum lpi_unit unit;
	bool is_gauge;
	bool is_narrow; /* a uint32_t, not a uint64_t */
};

struct lpi_counter_table {
	const struct lpi_counter *items;
	size_t cnt;
};

extern const struct lpi_counter_table lpi_store_counters;   /* struct lp_store_stats */
extern const struct lpi_counter_table lpi_ns_counters;      /* struct lp_ns_stats */
extern const struct lpi_counter_table lpi_door_counters;    /* struct lp_door_stats */
extern const struct lpi_counter_table lpi_reactor_counters; /* struct lp_reactor_stats */
extern const struct lpi_counter_table lpi_bufs_counters;    /* struct lp_bufs_stats */
extern const struct lpi_counter_table lpi_workers_counters; /* struct lp_workers_stats */
extern const struct lpi_counter_table lpi_log_counters;     /* struct lp_log_stats */
extern const struct lpi_counter_table lpi_scrub_counters;   /* struct lp_scrub_sum */
extern const struct lpi_counter_table lpi_damage_counters;  /* struct lpi_damage_stats */
extern const struct lpi_counter_table lpi_mount_counters;   /* struct lp_fuse_channel_stats */

uint64_t lpi_counter_read(const void *stats, const struct lpi_counter *counter);
/* "get", by enum lp_store_opcode and lp_ns_opcode. */
const char *lpi_store_op_name(uint32_t opcode);
const char *lpi_ns_op_name(uint32_t opcode);

#endif
