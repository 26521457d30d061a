/* SPDX-License-Identifier: Apache-2.0 */
/* Files for RocksDB in a directory of the host's file system.
 *
 * What a name says is durable when the call that changed it returns: the directory is synced after
 * each. The host's file system is trusted to give back what it was given: RocksDB's checksums find
 * what is damaged, but not a block that was never written and still holds an older one.
 *
 * Threads: any, as kvfs.h says. Blocking: all of it. Allocation: one struct for an open file.
 * Errors: negative errno, the host's own.
 */
#ifndef LP_STORE_KVFS_POSIX_H
#define LP_STORE_KVFS_POSIX_H

#include "store/kvfs/kvfs.h"

/* The caller's; dir_fd stays open as long as it is in use. */
struct lp_kvfs_posix {
	struct lp_kvfs kvfs;
	int dir_fd;
};

void lp_kvfs_posix_init(struct lp_kvfs_posix *self, int dir_fd);

#endif
