/* SPDX-License-Identifier: Apache-2.0 */
/* Memory for the lists of keys that are at work on a shard: there is one pool of it, whose size is
 * known at start; who finds none waits.
 *
 * Threads: the shard's. Blocking: none. Allocation: new only.
 */
#ifndef LP_NAMESPACE_OPS_LIST_H
#define LP_NAMESPACE_OPS_LIST_H

#include "base/memory/pool.h"
#include "namespace/change/job.h"

#define LPI_LISTS 8u /* at work at a time */

/* -ENOMEM. */
int lpi_lists_new(uint32_t shard_cnt, struct lp_pool **ret_lists) LP_MUST_CHECK;

#endif
