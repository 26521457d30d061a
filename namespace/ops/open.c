/* SPDX-License-Identifier: Apache-2.0 */
/* Open, close, sync.
 *
 * An open counts first and then looks whether the inode exists. A removal of the last name looks at
 * the count when it is submitted. So one of the two sees the other (pact.c). */
#include <errno.h>

#include "namespace/change/ns_state.h"
#include "namespace/ops/names.h"

static struct lpi_job *job_of(struct lpi_call *call)
{
	return LP_CONTAINER_OF(call, struct lpi_job_ask, call)->job;
}

/* --- Counting --------------------------------------------------------------------------------- */

bool lpi_open_is_mounts(const struct lp_ns_op *op)
{
	return op->is_mounts && (op->opcode == LP_NS_OPEN || op->opcode == LP_NS_MAKE);
}

static void run_count(struct lpi_call *call)
{
	const struct lpi_job *job = job_of(call);
	struct lpi_opens *opens = call->to->opens;
	int r = lpi_open_is_mounts(job->op) ? lpi_opens_add_mounts(opens, job->counted)
					    : lpi_opens_add(opens, job->counted, 1);
	lpi_call_end(call, r);
}

static void counted_one(struct lpi_job *job)
{
	int r = job->asks[0].call.result;
	lpi_step_fn *next = job->dir_stat.next;
	if (r < 0) {
		/* The loss of its last name may be only ordered. */
		job->seen_shards |= UINT64_C(1) << lp_ino_shard(job->counted);
		job->counted.nr = 0;
		job->dir_stat.result = r == -ESTALE ? -ENOENT : r;
		next(job);
		return;
	}
	lpi_stat(job, job->counted, false, next);
}

void lpi_open_count(struct lpi_job *job, struct lp_ino ino, lpi_step_fn *next)
{
	LP_ASSERT(job->counted.nr == 0);
	job->counted = ino;
	job->dir_stat.next = next;
	lpi_job_run(job, lp_ino_shard(ino), 0, run_count);
	lpi_job_wait(job, counted_one);
}

static void run_uncount(struct lpi_call *call)
{
	const struct lpi_job *job = job_of(call);
	/* It may have been closed with all opens of the mount. */
	if (lpi_open_is_mounts(job->op))
		(void)lpi_opens_drop_mounts(call->to->opens, job->counted, 1);
	else
		lpi_opens_drop(call->to->opens, job->counted, 1);
	lpi_call_end(call, 0);
}

static void uncounted(struct lpi_job *job)
{
	job->counted.nr = 0;
	job->uncounted(job);
}

void lpi_open_uncount(struct lpi_job *job, lpi_step_fn *next)
{
	if (job->counted.nr == 0) {
		next(job);
		return;
	}
	job->uncounted = next;
	lpi_job_run(job, lp_ino_shard(job->counted), 0, run_uncount);
	lpi_job_wait(job, uncounted);
}

static void end_with_result(struct lpi_job *job)
{
	lpi_job_end(job, job->result);
}

static void let_go_and_end(struct lpi_job *job)
{
	if (job->held.nr == 0)
		lpi_job_end(job, job->result);
	else
		lpi_let_go(job, job->held, end_with_result);
}

void lpi_names_end(struct lpi_job *job, int result)
{
	if (result >= 0) {
		lpi_job_end(job, result);
		return;
	}
	job->result = result;
	lpi_open_uncount(job, let_go_and_end);
}

/* --- Open, close ------------------------------------------------------------------------------ */

static void opened(struct lpi_job *job)
{
	int r = job->dir_stat.result;
	if (r >= 0)
		job->op->open.found = lpi_stat_found(job);
	lpi_names_end(job, r == -ENOENT ? -ESTALE : r);
}

void lpi_begin_open(struct lpi_job *job)
{
	struct lp_ino ino = job->op->open.ino;
	if (!lpi_ino_is_sane(job->ns, ino)) {
		lpi_job_fail(job, -ESTALE);
		return;
	}
	lpi_open_count(job, ino, opened);
}

static void run_close(struct lpi_call *call)
{
	struct lp_ns *ns = call->to;
	const struct lp_ns_op *op = job_of(call)->op;
	struct lp_ino ino = op->open.ino;
	uint32_t count = op->open.count;
	bool was_open = count > 0 && !op->is_mounts && count <= lpi_opens_cnt(ns->opens, ino);
	if (was_open)
		lpi_opens_drop(ns->opens, ino, count);
	else if (count > 0 && op->is_mounts)
		was_open = lpi_opens_drop_mounts(ns->opens, ino, count);
	lpi_call_end(call, was_open ? 0 : -EINVAL);
}

static void closed(struct lpi_job *job)
{
	lpi_job_end(job, job->asks[0].call.result);
}

void lpi_begin_close(struct lpi_job *job)
{
	struct lp_ino ino = job->op->open.ino;
	if (!lpi_ino_is_sane(job->ns, ino)) {
		lpi_job_fail(job, -ESTALE);
		return;
	}
	lpi_job_run(job, lp_ino_shard(ino), 0, run_close);
	lpi_job_wait(job, closed);
}

/* --- Sync ------------------------------------------------------------------------------------- */

static bool sync_some(struct lpi_job *job);

static void synced(struct lpi_job *job)
{
	for (uint32_t i = 0; i < job->dir_stat.asked; i++) {
		int r = job->asks[i].call.result;
		if (r >= 0)
			continue;
		job->op->sync.failed_cnt++;
		job->result = job->result < 0 ? job->result : r;
	}
	if (!sync_some(job))
		lpi_job_end(job, job->result);
}

/* Syncs some shards at a time, except those with nothing to make durable, so that no sleeping
 * thread is woken without need. False: there are no more. */
static bool sync_some(struct lpi_job *job)
{
	struct lpi_dir_stat *at = &job->dir_stat;
	at->asked = 0;
	while (at->asked < LPI_JOB_ASKS && at->shard_idx < job->ns->options.shard_cnt) {
		uint32_t shard_idx = at->shard_idx++;
		if (!lpi_call_is_unsynced(job->ns->peers[shard_idx]))
			continue;
		lpi_job_op(job, at->asked)->opcode = LP_STORE_SYNC;
		lpi_job_ask(job, shard_idx, at->asked++, false);
	}
	if (at->asked > 0)
		lpi_job_wait(job, synced);
	return at->asked > 0;
}

void lpi_begin_sync(struct lpi_job *job)
{
	job->op->sync.failed_cnt = 0;
	if (!sync_some(job))
		lpi_job_fail(job, 0);
}
