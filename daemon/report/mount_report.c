/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/report/mount_report.h"

#include <string.h>

#include "daemon/report/counters.h"
#include "daemon/report/report.h"

void lpi_mount_report_read(struct lp_fuse_channel *channel, struct lpi_mount_report *ret)
{
	if (channel == NULL) {
		memset(&ret->stats, 0, sizeof(ret->stats));
		memset(ret->has_latency, 0, sizeof(ret->has_latency));
		ret->slow_cnt = 0;
		return;
	}
	lp_fuse_channel_read_stats(channel, &ret->stats);
	ret->slow_cnt = lp_fuse_channel_slow(channel, ret->slow, LP_SLOW_MAX);
	for (uint32_t op = 0; op < LP_FUSE_OPCODES; op++) {
		const struct lp_hist *hist = lp_fuse_channel_latency(channel, op);
		ret->has_latency[op] = hist != NULL;
		if (hist != NULL)
			ret->latency[op] = *hist;
	}
}

const char *lpi_mount_op_name(uint32_t opcode)
{
	const struct lp_fuse_opcode *known = lp_fuse_opcode_find(opcode);
	if (opcode == 0)
		return "unknown";
	return known == NULL ? NULL : known->name;
}

/* The sum over all threads. */
static uint64_t sum_of(const struct lpi_report *report, const struct lpi_counter *counter)
{
	uint64_t sum = 0;
	for (uint32_t i = 0; i < report->thread_cnt; i++)
		sum += lpi_counter_read(&report->mounts[i].stats, counter);
	return sum;
}

static void count_ops(const struct lpi_report *report, uint32_t op, uint64_t *ret_requests,
		      uint64_t *ret_errors)
{
	*ret_requests = 0;
	*ret_errors = 0;
	for (uint32_t i = 0; i < report->thread_cnt; i++) {
		*ret_requests += report->mounts[i].stats.requests[op];
		*ret_errors += report->mounts[i].stats.errors[op];
	}
}

static void json_head(const struct lpi_report *report, struct lpi_text *text)
{
	uint64_t requests = 0;
	uint64_t errors = 0;
	for (uint32_t op = 0; op < LP_FUSE_OPCODES; op++) {
		uint64_t op_requests;
		uint64_t op_errors;
		count_ops(report, op, &op_requests, &op_errors);
		requests += op_requests;
		errors += op_errors;
	}
	lpi_json_string(text, "dir", report->mount_dir);
	lpi_json_string(text, "transport",
			report->mount_by_ring ? LPI_MOUNT_BY_IO_URING : LPI_MOUNT_BY_DEVICE);
	lpi_json_number(text, "requests", requests);
	lpi_json_number(text, "errors", errors);
	for (size_t i = 0; i < lpi_mount_counters.cnt; i++)
		lpi_json_number(text, lpi_mount_counters.items[i].name,
				sum_of(report, &lpi_mount_counters.items[i]));
}

void lpi_mount_report_status(const struct lpi_report *report, struct lpi_text *text)
{
	if (report->mount_dir == NULL)
		return;
	lpi_json_open(text, "mount", '{');
	json_head(report, text);
	lpi_json_close(text, '}');
}

static void json_op(const struct lpi_report *report, uint32_t op, struct lpi_text *text)
{
	static struct lp_hist sum; /* the control thread's */
	uint64_t requests;
	uint64_t errors;
	count_ops(report, op, &requests, &errors);
	if (requests == 0 || lpi_mount_op_name(op) == NULL)
		return;
	lp_hist_reset(&sum);
	for (uint32_t i = 0; i < report->thread_cnt; i++) {
		if (report->mounts[i].has_latency[op])
			lp_hist_merge(&sum, &report->mounts[i].latency[op]);
	}
	lpi_json_open(text, lpi_mount_op_name(op), '{');
	lpi_json_number(text, "count", requests);
	lpi_json_number(text, "errors", errors);
	lpi_json_latency(text, &sum);
	lpi_json_close(text, '}');
}

void lpi_mount_report_json(const struct lpi_report *report, struct lpi_text *text)
{
	if (report->mount_dir == NULL)
		return;
	lpi_json_open(text, "mount", '{');
	json_head(report, text);
	lpi_json_open(text, "ops", '{');
	for (uint32_t op = 0; op < LP_FUSE_OPCODES; op++)
		json_op(report, op, text);
	lpi_json_close(text, '}');
	lpi_json_close(text, '}');
}
