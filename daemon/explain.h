/* SPDX-License-Identifier: Apache-2.0 */
/* Explain: where one object is, and how the store would handle a write to it.
 *
 * Threads: the shard's whose door was asked.
 * Blocking: none.
 * Memory: per request.
 */
#ifndef LP_DAEMON_EXPLAIN_H
#define LP_DAEMON_EXPLAIN_H

#include "daemon/service_impl.h"

/* Explains the object admin->ino. Answers by lp_door_answer_admin(), in a later turn. */
void lpi_explain(struct lpi_shard *shard, struct lp_admin *admin);

#endif
