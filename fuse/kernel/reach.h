/* SPDX-License-Identifier: Apache-2.0 */
/* To an inode as the mount's kernel has it, without a name: by its number (open_by_handle_at).
 *
 * By such a descriptor the kernel can be made to ask for attributes. No message to it does that.
 *
 * Threads: one that nobody who serves waits for, for the mount is asked on the way (rule M3).
 * Blocking: that. Allocation: none.
 */
#ifndef LP_FUSE_KERNEL_REACH_H
#define LP_FUSE_KERNEL_REACH_H

#include "fuse/channel.h"

/* A descriptor of O_PATH. -ESTALE: the kernel does not know the inode. -ENOENT: the mount is not
 * where it was made, or is not root's; or as the kernel says. */
int lpi_fuse_reach(const struct lp_fuse_channel *channel, struct lp_ino ino) LP_MUST_CHECK;

#endif
