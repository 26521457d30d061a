/* SPDX-License-Identifier: Apache-2.0 */
/* Operations that are not written yet. */
#include <errno.h>

#include "namespace/ns_impl.h"

static void not_yet(struct lpi_job *job)
{
	lpi_job_end(job, -ENOSYS);
}

static void begin_not_yet(struct lpi_job *job)
{
	lpi_job_soon(job, not_yet);
}

void lpi_begin_walk(struct lpi_job *job) { begin_not_yet(job); }
void lpi_begin_put(struct lpi_job *job) { begin_not_yet(job); }
void lpi_begin_upload(struct lpi_job *job) { begin_not_yet(job); }
void lpi_begin_commit(struct lpi_job *job) { begin_not_yet(job); }
void lpi_begin_delete(struct lpi_job *job) { begin_not_yet(job); }
void lpi_begin_copy(struct lpi_job *job) { begin_not_yet(job); }
void lpi_begin_move(struct lpi_job *job) { begin_not_yet(job); }
void lpi_begin_list(struct lpi_job *job) { begin_not_yet(job); }

/* No shard remembers paths yet. */
void lpi_paths_freeze(struct lpi_job *job, lpi_step_fn *next) { next(job); }
void lpi_paths_thaw(struct lpi_job *job, lpi_step_fn *next) { next(job); }

/* Nothing is remembered of paths yet. */
uint32_t lp_ns_shard_of_path(struct lp_ns *ns, struct lp_bytes path)
{
	(void)path;
	return ns->options.shard_idx;
}
