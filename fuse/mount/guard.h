/* SPDX-License-Identifier: Apache-2.0 */
/* Ends a mount's connection when the daemon is killed.
 *
 * The kernel does that by itself when the last descriptor of the connection is closed, which a
 * killed process does at its end. But a thread of it that tells the kernel of a change to a
 * directory waits in the kernel for that directory's lock, and who holds the lock may wait for an
 * answer of the daemon: neither ends, and nor does the process, nor any look at the mount. So a
 * small process of its own (lapis_mount_guard) has a descriptor that ends the connection, and uses
 * it when the daemon is gone.
 *
 * Threads: any one; who starts it must live as long as the mount. Blocking: a few milliseconds.
 */
#ifndef LP_FUSE_MOUNT_GUARD_H
#define LP_FUSE_MOUNT_GUARD_H

#include <sys/types.h>

#include "base/compiler.h"

#define LPI_FUSE_GUARD_PROGRAM "lapis_mount_guard"

/* abort_fd: of fusectl. -errno: there is none then, which is bearable. */
int lpi_fuse_guard_start(int abort_fd, pid_t *ret_pid) LP_MUST_CHECK;
/* The mount has ended, or is ended now. pid 0: there is none. */
void lpi_fuse_guard_stop(pid_t pid);

#endif
