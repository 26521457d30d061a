/* SPDX-License-Identifier: Apache-2.0 */
/* Figures of the mount, thread by thread, and how they are shown.
 *
 * Threads: read() is for the channel's thread; all others are for the owner of struct lpi_report.
 * Blocking, errors: none.
 * Memory: the text's.
 */
#ifndef LP_DAEMON_REPORT_MOUNT_REPORT_H
#define LP_DAEMON_REPORT_MOUNT_REPORT_H

#include "daemon/report/text.h"
#include "fuse/channel.h"

struct lpi_report;

/* How requests come and answers go. */
#define LPI_MOUNT_BY_DEVICE   "/dev/fuse, a descriptor for each thread"
#define LPI_MOUNT_BY_IO_URING "io_uring, a queue for each CPU"

struct lpi_mount_report {
	struct lp_fuse_channel_stats stats;
	bool has_latency[LP_FUSE_OPCODES];
	struct lp_hist latency[LP_FUSE_OPCODES];
	struct lp_slow_request slow[LP_SLOW_MAX];
	uint32_t slow_cnt;
};

/* NULL: all figures are zero. */
void lpi_mount_report_read(struct lp_fuse_channel *channel, struct lpi_mount_report *ret);

/* "read" for FUSE_READ, "unknown" for 0; NULL: there is no such opcode. */
const char *lpi_mount_op_name(uint32_t opcode);

/* Adds a member "mount" to the open object, if there is a mount. */
void lpi_mount_report_status(const struct lpi_report *report, struct lpi_text *text);
void lpi_mount_report_json(const struct lpi_report *report, struct lpi_text *text);

#endif
