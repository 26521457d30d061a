/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptor of an inode as the mount's kernel has it, by its number (open_by_handle_at).
 *
 * Threads: one that no serving thread waits for, because the mount is asked on the way (rule M3).
 * Blocking: that question.
 * Memory: none.
 *
 * By such a descriptor the kernel can be made to ask for attributes. No message to it does that.
 */
#ifndef LP_FUSE_KERNEL_REACH_H
#define LP_FUSE_KERNEL_REACH_H

#include "fuse/channel.h"

/* A descriptor of O_PATH. -ESTALE: the kernel does not know the inode. -ENOENT: the mount is not
 * where it was made, or is not root's; or as the kernel says. */
int lpi_fuse_reach(const struct lp_fuse_channel *channel, struct lp_ino ino) LP_MUST_CHECK;

#endif
