/* SPDX-License-Identifier: Apache-2.0 */
/* Holds of a mount on inodes that it was told of and has not forgotten (rule N5).
 *
 * An operation that holds an inode counts first and then reads its attributes, as an open does. A
 * removal of the last name looks at the count when it is submitted. So one of the two sees the
 * other. */
#include "namespace/change/ns_state.h"
#include "namespace/ops/names.h"
#include "namespace/state/kernel_holds.h"

static struct lpi_job *job_of(struct lpi_call *call)
{
	return LP_CONTAINER_OF(call, struct lpi_job_ask, call)->job;
}

/* --- One -------------------------------------------------------------------------------------- */

static void run_let_go(struct lpi_call *call)
{
	lpi_opens_let_go(call->to->opens, job_of(call)->held, 1);
	lpi_call_end(call, 0);
}

void lpi_let_go(struct lpi_job *job, struct lp_ino ino, lpi_step_fn *next)
{
	job->held = ino;
	lpi_job_run(job, lp_ino_shard(ino), 0, run_let_go);
	lpi_job_wait(job, next);
}

/* --- Forget ----------------------------------------------------------------------------------- */

/* Each shard takes its own inodes. */
static void run_forget(struct lpi_call *call)
{
	const struct lp_ns_op *op = job_of(call)->op;
	struct lp_ns *ns = call->to;
	if (op->forget.all)
		lpi_opens_let_go_all(ns->opens);
	for (uint32_t i = 0; i < op->forget.cnt; i++) {
		const struct lp_ns_forgotten *item = &op->forget.items[i];
		if (lp_ino_shard(item->ino) == ns->options.shard_idx)
			lpi_opens_let_go(ns->opens, item->ino, item->count);
	}
	lpi_call_end(call, 0);
}

static bool has_any(const struct lp_ns_op *op, uint32_t shard_idx)
{
	for (uint32_t i = 0; i < op->forget.cnt; i++) {
		if (lp_ino_shard(op->forget.items[i].ino) == shard_idx)
			return true;
	}
	return op->forget.all;
}

/* Asks some shards at a time. */
static void forget_more(struct lpi_job *job)
{
	struct lpi_dir_stat *at = &job->dir_stat;
	at->asked = 0;
	for (; at->asked < LPI_JOB_ASKS && at->shard_idx < job->ns->options.shard_cnt;
	     at->shard_idx++) {
		if (has_any(job->op, at->shard_idx))
			lpi_job_run(job, at->shard_idx, at->asked++, run_forget);
	}
	if (at->asked == 0)
		lpi_job_end(job, 0);
	else
		lpi_job_wait(job, forget_more);
}

static void forgotten(struct lpi_job *job)
{
	lpi_job_end(job, 0);
}

void lpi_begin_forget(struct lpi_job *job)
{
	bool any = false;
	for (uint32_t i = 0; !any && i < job->ns->options.shard_cnt; i++)
		any = has_any(job->op, i);
	/* Never answered from inside the submit. */
	if (any)
		forget_more(job);
	else
		lpi_job_soon(job, forgotten);
}

/* --- Too many --------------------------------------------------------------------------------- */

/* Inodes are spread almost evenly, so each shard checks its part of max. */
uint32_t lp_ns_crowd(struct lp_ns *ns, uint64_t max, struct lp_ino *ret_inos, uint32_t inos_max)
{
	struct lpi_held_stats held;
	lpi_opens_read_held(ns->opens, &held);
	LP_ASSERT(ns->options.shard_cnt > 0);
	if (held.inodes <= max / ns->options.shard_cnt)
		return 0;
	return lpi_opens_some_held(ns->opens, ret_inos, inos_max);
}
