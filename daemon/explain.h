/* SPDX-License-Identifier: Apache-2.0 */
/* Where one object is, and what the store would do with a write to it.
 *
 * Threads: the shard's whose door was asked.
 * Blocking: none.
 * Memory: per request.
 */
#ifndef LP_DAEMON_EXPLAIN_H
#define LP_DAEMON_EXPLAIN_H

#include "daemon/service_impl.h"

/* Answers by lp_door_answer_admin(), in a later turn. admin->ino is what is asked about. */
void lpi_explain(struct lpi_shard *shard, struct lp_admin *admin);

#endif
