/* SPDX-License-Identifier: Apache-2.0 */
/* Remount: other options for a mount that is there (-o remount of mount(8)).
 *
 * Threads: any.
 * Blocking: all of it; it asks the mount.
 * Memory: none.
 * Errors: with one sentence in why, LP_FUSE_WHY_MAX bytes.
 *
 * The flags of a mount can change: ro, nosuid, nodev, noexec and the like, which are the kernel's,
 * and which access times are kept, which the daemon is told (fuse/ops/settings.h). A flag that is
 * not named stays as it is. mount(8) also names the options of fstab. So an option that cannot
 * change may be named if it says what is so already. Otherwise it is refused, and nothing is
 * changed.
 */
#ifndef LP_FUSE_MOUNT_REMOUNT_H
#define LP_FUSE_MOUNT_REMOUNT_H

#include <stddef.h>

#include "base/compiler.h"

/* A mount as it is. */
struct lpi_fuse_mounted {
	unsigned long flags;  /* MS_RDONLY and so on */
	const char *options;  /* the options that its daemon was given */
	const char *command;  /* the daemon's: words with a 0 behind each */
	size_t command_bytes; /* 0: it is not known */
};

/* The mount's new flags by these options. Of MS_NOATIME, MS_RELATIME and MS_STRICTATIME they have
 * exactly one. -EINVAL: an option is unknown, or cannot change. */
int lpi_fuse_remount_flags(const struct lpi_fuse_mounted *mounted, const char *options,
			   unsigned long *ret_flags, char *why) LP_MUST_CHECK;
/* The word of fuse/ops/settings.h that the daemon is to be told. */
const char *lpi_fuse_remount_word(unsigned long flags);

int lp_fuse_remount(const char *dir, const char *options, char *why) LP_MUST_CHECK;

#endif
