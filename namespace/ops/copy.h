/* SPDX-License-Identifier: Apache-2.0 */
/* Memory for copies that are at work on a shard: there is one pool of it, whose size is known at
 * start; who finds none waits.
 *
 * Threads: the shard's. Blocking: none. Allocation: new only.
 */
#ifndef LP_NAMESPACE_OPS_COPY_H
#define LP_NAMESPACE_OPS_COPY_H

#include "base/memory/pool.h"
#include "namespace/change/job.h"

#define LPI_COPIES 8u /* at work at a time */

/* -ENOMEM. */
int lpi_copies_new(struct lp_pool **ret_pages) LP_MUST_CHECK;
/* If the job has some: to the next one that waits. */
void lpi_copy_give_page(struct lpi_job *job);

#endif
