/* SPDX-License-Identifier: Apache-2.0 */
/* RocksDB's files in a directory of the host's file system.
 *
 * Threads: any, as kvfs.h says.
 * Blocking: all of it.
 * Memory: one struct for an open file.
 * Errors: negative errno, the host's own.
 *
 * A change of a name is durable when the call returns: the directory is synced after each. The
 * host's file system is trusted to give back what it was given. RocksDB's checksums find damage,
 * but not a block that was never written and still holds an older one.
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
