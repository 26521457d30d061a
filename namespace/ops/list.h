/* SPDX-License-Identifier: Apache-2.0 */
/* Pool of memory for the lists of keys that are at work on a shard.
 *
 * Threads: the shard's.
 * Blocking: none.
 * Memory: allocated by new only. A list that finds none waits.
 * Limits: LPI_LISTS.
 */
#ifndef LP_NAMESPACE_OPS_LIST_H
#define LP_NAMESPACE_OPS_LIST_H

#include "base/memory/pool.h"
#include "namespace/change/job.h"

#define LPI_LISTS 8u /* at work at a time */

/* -ENOMEM. */
int lpi_lists_new(uint32_t shard_cnt, struct lp_pool **ret_lists) LP_MUST_CHECK;

#endif
