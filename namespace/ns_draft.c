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

void lpi_begin_copy(struct lpi_job *job) { begin_not_yet(job); }
void lpi_begin_move(struct lpi_job *job) { begin_not_yet(job); }

