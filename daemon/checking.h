/* SPDX-License-Identifier: Apache-2.0 */
/* Check of the structure of all shards while they serve, as `lapis fsck` does it offline.
 *
 * Threads: the control thread's; it asks the others by errands.
 * Blocking: none.
 * Memory: allocated at the beginning, and for findings.
 * Errors: those of a check are in its report.
 *
 * It does what `lapis fsck` does to a store that no process has open, except the reading of data
 * (daemon/report/scrubbing.h does that) and repairs.
 *
 *   IDLE -> HOLD -> PAUSE -> TAKE -> LOOK -> CLEAN -> IDLE
 *
 *   HOLD   no change over several shards begins, and those under way end
 *   PAUSE  all shards come to rest
 *   TAKE   each keeps a view of itself, and goes on
 *   LOOK   a thread of its own looks at the views
 *   CLEAN  they are ended, and whatever is still held goes on
 *
 * From PAUSE to TAKE, changes wait for as long as the device takes for the operations under way. A
 * step that fails goes to CLEAN.
 */
#ifndef LP_DAEMON_CHECKING_H
#define LP_DAEMON_CHECKING_H

#include "daemon/report/text.h"

struct lp_service;
struct lpi_checking;

int lpi_checking_new(struct lp_service *service, struct lpi_checking **ret_checking) LP_MUST_CHECK;
/* Idle. Accepts NULL. */
void lpi_checking_free(struct lpi_checking *checking);

/* "status", "start" or "stop"; -EINVAL: another word. "start" does not disturb a check that is
 * under way. */
int lpi_checking_ask(struct lpi_checking *checking, const char *what) LP_MUST_CHECK;
void lpi_checking_json(const struct lpi_checking *checking, struct lpi_text *text);

/* Begins no more checks, and ends the one under way. Then calls stopped(), perhaps at once. */
void lpi_checking_stop(struct lpi_checking *checking, void (*stopped)(struct lp_service *service));

#endif
