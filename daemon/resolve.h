/* SPDX-License-Identifier: Apache-2.0 */
/* Users and groups by name or number, as the options give them.
 *
 * Threads: before others are started, because the system's lists of users are read.
 * Blocking: yes.
 * Errors: -EINVAL with a sentence.
 */
#ifndef LP_DAEMON_RESOLVE_H
#define LP_DAEMON_RESOLVE_H

#include "daemon/config/config.h"
#include "daemon/listen.h"

/* allow-uids and allow-gids. */
int lpi_resolve_access(const struct lp_config *config, struct lp_access *ret_access,
		       char *why) LP_MUST_CHECK;
/* A user's number, and its primary group. */
int lpi_resolve_user(const char *name, uint32_t *ret_uid, uint32_t *ret_gid,
		     char *why) LP_MUST_CHECK;

#endif
