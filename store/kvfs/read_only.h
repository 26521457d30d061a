/* SPDX-License-Identifier: Apache-2.0 */
/* RocksDB's files on top of files that must not change: writes stay in memory.
 *
 * Threads, blocking: as store/kvfs/kvfs.h asks of a file system.
 * Memory: written bytes, until their file is removed or this is freed. -ENOMEM.
 * Errors: of reading, those of the files below. -EROFS for a rename of one of these, which
 * RocksDB does not do.
 *
 * Files that RocksDB makes, replaces, renames or removes are so in memory only, and the changes
 * are gone with this. The files below are opened, read, listed and asked for their size, and
 * nothing else.
 */
#ifndef LP_STORE_KVFS_READ_ONLY_H
#define LP_STORE_KVFS_READ_ONLY_H

#include "store/kvfs/kvfs.h"

struct lp_kvfs_ro;

/* lower stays the caller's and outlives it. */
int lp_kvfs_ro_new(struct lp_kvfs *lower, struct lp_kvfs_ro **ret_ro) LP_MUST_CHECK;
/* Accepts NULL. No file may be open (asserted). */
void lp_kvfs_ro_free(struct lp_kvfs_ro *ro);
struct lp_kvfs *lp_kvfs_ro_fs(struct lp_kvfs_ro *ro);

#endif
