/* SPDX-License-Identifier: Apache-2.0 */
/* Groups of the calling process, beyond the one that a message names.
 *
 * Threads: any.
 * Blocking: it reads a file of /proc, which is made from memory.
 * Memory: none.
 *
 * A message names one group. A process may be in others as well, which the kernel does not tell.
 * They are read from /proc. Only rare requests need them.
 */
#ifndef LP_FUSE_OPS_CALLER_H
#define LP_FUSE_OPS_CALLER_H

#include <stdbool.h>
#include <stdint.h>

#include "fuse/proto.h"

/* Whether the caller is in the group. False if that cannot be known: the process has ended, is not
 * visible from here, or is in more than about 700 groups. */
bool lpi_fuse_caller_is_in(const struct fuse_in_header *header, uint32_t gid);
/* The same by the text of /proc/PID/status, as far as it was read. */
bool lpi_fuse_status_has_group(const char *status, uint32_t gid);

#endif
