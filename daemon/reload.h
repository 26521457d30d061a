/* SPDX-License-Identifier: Apache-2.0 */
/* SIGHUP: the configuration is read again, and what may change while the daemon runs is changed.
 *
 * Each option that is live and differs is set as `lapis config set` sets it, one after the other:
 * all threads take it, or none. What can only be set at the start and differs now is said. All that
 * is done is in the log, and so is the sum.
 *
 * Threads: the control thread. Blocking: none. Allocation: at the start, and of answers.
 */
#ifndef LP_DAEMON_RELOAD_H
#define LP_DAEMON_RELOAD_H

#include "daemon/admin.h"

struct lpi_reload;

/* started is what the daemon was started with, and is copied. -ENOMEM. */
int lpi_reload_new(struct lp_service *service, const struct lp_config *started,
		   struct lpi_reload **ret_reload) LP_MUST_CHECK;
/* Nothing is under way. Accepts NULL. */
void lpi_reload_free(struct lpi_reload *reload);
/* wanted is copied. While one is under way a new one is taken up by it, from the beginning. */
void lpi_reload_begin(struct lpi_reload *reload, const struct lp_config *wanted);

#endif
