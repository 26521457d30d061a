/* SPDX-License-Identifier: Apache-2.0 */
/* Unmounting, also of a mount without a daemon.
 *
 * Threads: any.
 * Blocking: all of it.
 * Memory: the libraries'.
 * Errors: those of umount(2).
 *
 * It stands apart from the session because `lapis umount` needs nothing else of the mount.
 */
#ifndef LP_FUSE_MOUNT_UMOUNT_H
#define LP_FUSE_MOUNT_UMOUNT_H

#include <stdbool.h>
#include <sys/types.h>

#include "base/compiler.h"

/* The type in the table of mounts, behind "fuse.". */
#define LPI_FUSE_SUBTYPE "lapis"

/* Whether a file system is a mount of Lapis, of this store or another. Takes stat's st_dev. */
bool lp_fuse_is_mount(dev_t dev);
/* -EINVAL: it is no Lapis mount. -EBUSY: it is in use and lazy is false. With lazy it is detached
 * at once, and ends when no program uses it any more. -EPERM. */
int lp_fuse_umount(const char *dir, bool lazy) LP_MUST_CHECK;
/* The path without links, into PATH_MAX bytes; also of a mount whose daemon has ended. */
int lpi_fuse_real_path(const char *dir, char *ret_path) LP_MUST_CHECK;
/* Whether the mount on this path, which has no links, is ours. Does not touch the mount. */
bool lpi_fuse_is_ours(const char *path);
/* The same. If it is ours, also gives its source: the daemon's device, or the value of the option
 * fsname. ret_source holds PATH_MAX bytes. */
bool lpi_fuse_is_ours_of(const char *path, char *ret_source);
/* Unmounts without checking the type; dir is an absolute path without links. */
int lpi_fuse_unmount(const char *dir, bool lazy) LP_MUST_CHECK;

#endif
