/* SPDX-License-Identifier: Apache-2.0 */
/* The mount's own attribute: reports the mount's options and changes its access times.
 *
 * Threads: the channel's.
 * Blocking, memory: none.
 *
 * It is an attribute of the mount's root that only root can read and write. The helper of mount(8)
 * remounts by it (fuse/mount/remount.h).
 *
 *   reading it    the daemon's process, a space, and the options that it was mounted with
 *   writing it    which access times are kept from now on: one of the words below
 *
 * It is there without a socket, and a process that reaches the mount reaches its daemon. It is not
 * listed, and nothing of it is stored.
 */
#ifndef LP_FUSE_OPS_SETTINGS_H
#define LP_FUSE_OPS_SETTINGS_H

#include "fuse/request.h"

#define LPI_FUSE_SETTINGS     "trusted.lapis.mount"
#define LPI_FUSE_SETTINGS_MAX 4096u

/* Words. */
#define LPI_FUSE_ATIMES_ALL          "atime"
#define LPI_FUSE_ATIMES_NO_DIRS      "nodiratime"
#define LPI_FUSE_ATIMES_NONE         "noatime"
#define LPI_FUSE_ATIMES_EACH         "strictatime"
#define LPI_FUSE_ATIMES_EACH_NO_DIRS "strictatime,nodiratime"

/* Whether the request's first name is this attribute. */
bool lpi_fuse_is_settings(const struct lpi_fuse_request *request);
void lpi_fuse_get_settings(struct lpi_fuse_request *request);
/* -EINVAL: the value is none of the words. */
void lpi_fuse_set_settings(struct lpi_fuse_request *request);

#endif
