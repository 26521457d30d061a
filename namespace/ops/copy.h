/* SPDX-License-Identifier: Apache-2.0 */
/* Pool of memory for copies that are at work on a shard.
 *
 * Threads: the shard's.
 * Blocking: none.
 * Memory: allocated by new only. A copy that finds none waits.
 * Limits: LPI_COPIES.
 */
#ifndef LP_NAMESPACE_OPS_COPY_H
#define LP_NAMESPACE_OPS_COPY_H

#include "base/memory/pool.h"
#include "namespace/change/job.h"

#define LPI_COPIES 8u /* at work at a time */

/* -ENOMEM. */
int lpi_copies_new(struct lp_pool **ret_pages) LP_MUST_CHECK;
/* Gives the job's page, if it has one, to the next copy that waits. */
void lpi_copy_give_page(struct lpi_job *job);

#endif
