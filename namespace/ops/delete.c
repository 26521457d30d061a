/* SPDX-License-Identifier: Apache-2.0 */
/* Delete, and removal of the directories that it empties (rule N2).
 *
 * The deletion is durable before a directory is looked at. A put may add a name to the directory at
 * any time. So the directory is removed as by rmdir, with all its names locked, and only if it is
 * still the same one, made by a put, and empty. A put that comes too late begins again from the
 * root and makes another one. An error or a crash leaves an empty directory, which the next delete
 * below it removes. */
#include <errno.h>

#include "namespace/change/ns_state.h"
#include "namespace/ops/paths.h"

/* --- Upwards ---------------------------------------------------------------------------------- */

static void prune_look(struct lpi_job *job);

static void prune_removed(struct lpi_job *job)
{
	if (job->result == -EIO) /* with an unknown outcome the pact is never over */
		job->pruning.next(job);
	else if (job->result < 0)
		lpi_job_again(job, job->pruning.next);
	else
		lpi_job_again(job, prune_look);
}

static void prune_walked(struct lpi_job *job)
{
	struct lp_ino dir = job->removal.only;
	if (job->walk.result < 0) {
		job->pruning.next(job);
		return;
	}
	job->removal =
		(struct lpi_removal){.takes_dir = true, .only = dir, .only_made_by_put = true};
	job->stopped = prune_removed;
	lpi_remove(job);
}

static void prune_known(struct lpi_job *job)
{
	const struct lpi_dir_stat *stat = &job->dir_stat;
	if (stat->result < 0 || stat->entries_cnt > 0 ||
	    (stat->attrs.flags & LP_INODE_FLAG_MADE_BY_PUT) == 0) {
		job->pruning.next(job);
		return;
	}
	job->removal.only = stat->ino;
	lpi_walk(job, job->pruning.path, false, prune_walked);
}

/* Most directories are not empty, and that is seen at once where the entry was. */
static void prune_asked(struct lpi_job *job)
{
	const struct lpi_job_ask *ask = &job->asks[0];
	if (ask->call.result < 0 || ask->op.dir.entries_cnt > 0)
		job->pruning.next(job);
	else
		lpi_stat(job, job->entry.dir, false, prune_known);
}

/* job->entry is the removed entry's; its directory may be removed now. */
static void prune_look(struct lpi_job *job)
{
	struct lp_bytes *path = &job->pruning.path;
	const char *data = path->data;
	while (path->len > 0 && data[path->len - 1] != '/')
		path->len--;
	if (path->len == 0) { /* it was in the root */
		job->pruning.next(job);
		return;
	}
	path->len--;
	struct lp_store_op *op = lpi_job_op(job, 0);
	op->opcode = LP_STORE_DIR;
	op->dir.ino = job->entry.dir;
	lpi_job_ask(job, job->entry.shard_idx, 0, false);
	lpi_job_wait(job, prune_asked);
}

void lpi_prune(struct lpi_job *job, struct lp_bytes path, lpi_step_fn *next)
{
	job->pruning = (struct lpi_pruning){.path = path, .next = next};
	prune_look(job);
}

/* --- LP_NS_DELETE ----------------------------------------------------------------------------- */

static void delete_pruned(struct lpi_job *job)
{
	lpi_path_end(job, 0);
}

static void begin_prune(struct lpi_job *job)
{
	lpi_prune(job, job->op->delete.path, delete_pruned);
}

static void deleted(struct lpi_job *job)
{
	if (job->result < 0)
		lpi_path_end(job, job->result);
	else
		lpi_job_again(job, begin_prune);
}

static void delete_walked(struct lpi_job *job)
{
	const struct lp_ns_op *op = job->op;
	if (job->walk.result < 0) {
		lpi_path_end(job, job->walk.result);
		return;
	}
	job->removal = (struct lpi_removal){.takes_file = true,
					    .takes_dir = op->delete.or_dir,
					    .condition = op->delete.condition,
					    .version_nr = op->delete.version_nr};
	job->stopped = deleted;
	lpi_remove(job);
}

void lpi_begin_delete(struct lpi_job *job)
{
	const struct lp_ns_op *op = job->op;
	int r = lp_ns_path_check(op->delete.path);
	if (r >= 0 && op->delete.path.len == 0)
		r = op->delete.or_dir ? -EBUSY : -EISDIR; /* the root */
	if (r >= 0 && op->delete.condition > LP_NS_IF_VERSION)
		r = -EINVAL;
	/* An object that must be absent cannot be deleted. */
	if (r >= 0 && op->delete.condition == LP_NS_IF_ABSENT)
		r = -EINVAL;
	if (r < 0)
		lpi_path_end(job, r);
	else
		lpi_walk(job, op->delete.path, false, delete_walked);
}
