/* SPDX-License-Identifier: Apache-2.0 */
/* Unmounting, also of a mount without a daemon.
 *
 * Threads: any.
 * Blocking: all of it.
 * Memory: the libraries'.
 * Errors: as umount(2) says them.
 *
 * It stands apart from the session because `lapis umount` needs nothing else of the mount.
 */
#ifndef LP_FUSE_MOUNT_UMOUNT_H
#define LP_FUSE_MOUNT_UMOUNT_H

#include <stdbool.h>
#include <sys/types.h>

#include "base/compiler.h"

/* What the table of mounts calls it, behind "fuse.". */
#define LPI_FUSE_SUBTYPE "lapis"

/* Whether a file system is a mount of Lapis, of this store or another; by stat's st_dev. */
bool lp_fuse_is_mount(dev_t dev);
/* -EINVAL: it is no Lapis mount; -EBUSY: in use, unless lazy: then it is taken out of sight at
 * once, and goes when nobody uses it any more; -EPERM. */
int lp_fuse_umount(const char *dir, bool lazy) LP_MUST_CHECK;
/* The path without links, also of a mount whose daemon is gone; into PATH_MAX bytes. */
int lpi_fuse_real_path(const char *dir, char *ret_path) LP_MUST_CHECK;
/* Whether what is mounted on this path, which has no links, is ours. It is not touched. */
bool lpi_fuse_is_ours(const char *path);
/* The same; if it is, what of: the daemon's device, or what the option fsname said. ret_source
 * holds PATH_MAX bytes. */
bool lpi_fuse_is_ours_of(const char *path, char *ret_source);
/* Without a look at what it is; an absolute path without links. */
int lpi_fuse_unmount(const char *dir, bool lazy) LP_MUST_CHECK;

#endif
