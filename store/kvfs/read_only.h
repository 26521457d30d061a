/* SPDX-License-Identifier: Apache-2.0 */
/* Files for RocksDB on top of files that must not change: what it makes, replaces, renames or
 * removes is so in memory only, and gone with this. What lies below is opened, read, listed and
 * asked for its size, and nothing else.
 *
 * Memory: what is written, until it is removed or this is freed. -ENOMEM.
 * Threads, blocking: as store/kvfs/kvfs.h asks of a file system. Errors: of reading, those of the
 * files below; -EROFS for a rename of one of these, which RocksDB does not do.
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
