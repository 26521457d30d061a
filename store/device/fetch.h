/* SPDX-License-Identifier: Apache-2.0 */
/* A read of the index that was put off: what a call into RocksDB wanted of the device and did not
 * wait for. Who asked reads it by his own channel and calls again; he is then served from here.
 *
 * It holds nothing of the file system: a file's blocks never change and its id is never used again,
 * so what was read of it is right for whoever finds the file open under that id afterwards. If it
 * is gone meanwhile, so are the tables that named it, and nobody asks.
 *
 * Threads: its owner's. Blocking, allocation, errors: none. Limits: LP_FETCH_BLOCKS in one piece on
 * the device; what is longer or in pieces only a blocking call reads.
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
