/* SPDX-License-Identifier: Apache-2.0 */
/* A deferred read of the index: blocks that a call into RocksDB wanted and did not wait for.
 *
 * Threads: its owner's.
 * Blocking: none.
 * Memory: none is allocated. The blocks are the caller's.
 * Errors: none.
 * Limits: LP_FETCH_BLOCKS in one piece on the device. Only a blocking call reads what is longer
 * or in pieces.
 *
 * The caller reads the blocks on its own channel and calls again. The second call is then served
 * from here. A fetch holds nothing of the file system: the blocks of a file never change and its
 * id is never used again. So the blocks are right for any caller that later finds the file open
 * under that id. If the file is gone, so are the tables that named it, and no caller asks.
 */
#ifndef LP_STORE_DEVICE_FETCH_H
#define LP_STORE_DEVICE_FETCH_H

#include "base/compiler.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A table's block of 4 KiB with its trailer lies in two; a record may be longer. */
#define LP_FETCH_BLOCKS 8u

struct lp_bdev;

struct lp_fetch {
	struct lp_bdev *bdev;
	uint64_t device_bytes; /* where */
	uint64_t file_id;
	uint64_t file_block;            /* the first one, of the file */
	uint32_t block_cnt;             /* 0: nothing to be read */
	uint32_t crcs[LP_FETCH_BLOCKS]; /* of the blocks */
	bool was_put_off;               /* by the last call: its answer means nothing */
	const uint8_t *data;            /* the blocks, checked; the caller's; NULL: not read */
};

/* The blocks as they were read have the crcs that they should have. */
bool lp_fetch_is_whole(const struct lp_fetch *fetch, const uint8_t *blocks) LP_MUST_CHECK;

#ifdef __cplusplus
}
#endif

#endif
