/* SPDX-License-Identifier: Apache-2.0 */
/* RocksDB's files in blockfs: binds store/kvfs/kvfs.h to store/blockfs/blockfs.h.
 *
 * Threads, blocking, errors: as store/kvfs/kvfs.h asks of a file system.
 *
 * The manifest barrier is blockfs's own (lp_blockfs_set_manifest_barrier). It also stands before
 * the publishing of appended bytes.
 */
#ifndef LP_STORE_KVFS_BLOCKFS_H
#define LP_STORE_KVFS_BLOCKFS_H

#include "store/blockfs/blockfs.h"
#include "store/kvfs/kvfs.h"

struct lp_kvfs_blockfs {
	struct lp_kvfs kvfs; /* for the index */
	struct lp_blockfs *fs;
};

/* fs outlives it. Nothing to be undone. */
void lp_kvfs_blockfs_init(struct lp_kvfs_blockfs *self, struct lp_blockfs *fs);

#endif
