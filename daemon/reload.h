/* SPDX-License-Identifier: Apache-2.0 */
/* Reload by SIGHUP: the configuration is read again, and live options are changed.
 *
 * Threads: the control thread.
 * Blocking: none.
 * Memory: allocated at the start, and for answers.
 *
 * Each option that is live and differs is set as `lapis config set` sets it, one after the other:
 * all threads take it, or none. An option that can be set at the start only, and differs now, is
 * named in the log. The log also has each change, and a summary.
 */
#ifndef LP_DAEMON_RELOAD_H
#define LP_DAEMON_RELOAD_H

#include "daemon/admin.h"

struct lpi_reload;

/* started: the configuration at the daemon's start; copied. -ENOMEM. */
int lpi_reload_new(struct lp_service *service, const struct lp_config *started,
		   struct lpi_reload **ret_reload) LP_MUST_CHECK;
/* No reload is under way. Accepts NULL. */
void lpi_reload_free(struct lpi_reload *reload);
/* wanted is copied. If a reload is under way, it begins again with the new configuration. */
void lpi_reload_begin(struct lpi_reload *reload, const struct lp_config *wanted);

#endif
