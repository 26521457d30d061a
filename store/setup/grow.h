/* SPDX-License-Identifier: Apache-2.0 */
/* Growing a store onto a device that has become larger.
 *
 * Threads: any. The store is open nowhere.
 * Blocking: all of it.
 * Memory: that of an open chunk table.
 * Errors: as of store/volume/label.h and store/volume/chunks.h. -EFBIG when there can be no other
 * chunk. why has the sentence.
 * Limits: the chunk table was made for LP_LABEL_GROWTH_MAX times the first size, and a shard
 * cannot open more chunks than store/space/space.h says.
 *
 * The label takes up the new size, then the chunk table the new chunks. Stored data stays where
 * it is. The power may fail at any time: the store then has the old size or the new one. Growing
 * it again completes a growth that was begun (docs/format/disk.md).
 */
#ifndef LP_STORE_SETUP_GROW_H
#define LP_STORE_SETUP_GROW_H

#include "store/volume/label.h"

struct lp_grow_result {
	uint64_t old_blocks;  /* of the device, as the label had it */
	uint64_t new_blocks;  /* the same: the device has not become larger */
	uint64_t idle_blocks; /* at its end, that can be no chunks */
	/* Chunks that the table has no room for beside its splits. An opening takes them up when
	 * the blocks that shards have lent each other have gone home. */
	uint64_t waiting_blocks;
};

int lp_store_grow(struct lp_bdev *bdev, struct lp_grow_result *ret_result,
		  struct lp_label_why *why) LP_MUST_CHECK;

#endif
