/* SPDX-License-Identifier: Apache-2.0 */
/* Guard process that ends a mount's connection when the daemon is killed (mount F7).
 *
 * Threads: any one; the thread that starts it must live as long as the mount.
 * Blocking: a few milliseconds.
 * Errors: without a guard the mount works, but may hang after kill -9.
 *
 * The kernel ends a connection when its last descriptor is closed, which a killed process does at
 * its end. But a thread that tells the kernel of a change to a directory waits in the kernel for
 * that directory's lock, and the lock's holder may wait for an answer of the daemon. Then neither
 * ends, nor does the process, nor any look at the mount. So a small process (lapis_mount_guard) has
 * a descriptor that ends the connection, and uses it when the daemon is gone.
 */
#ifndef LP_FUSE_MOUNT_GUARD_H
#define LP_FUSE_MOUNT_GUARD_H

#include <sys/types.h>

#include "base/compiler.h"

#define LPI_FUSE_GUARD_PROGRAM "lapis_mount_guard"

/* abort_fd: of fusectl. -errno: no guard was started; the mount works without. */
int lpi_fuse_guard_start(int abort_fd, pid_t *ret_pid) LP_MUST_CHECK;
/* The mount has ended, or is being ended. pid 0: there is no guard. */
void lpi_fuse_guard_stop(pid_t pid);

#endif
