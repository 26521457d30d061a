/* SPDX-License-Identifier: Apache-2.0 */
/* Lets a store use all of a device that has become larger.
 *
 * The label takes up the new size, then the chunk table the new chunks; what is stored stays where
 * it is. The power may fail at any time: the store then has the old size or the new one, and
 * growing it again completes what was begun (docs/format/disk.md).
 *
 * Threads: any; blocks. The store is open nowhere. Errors: as of store/volume/label.h and
 * store/volume/chunks.h; -EFBIG when there can be no other chunk: the chunk table was made for
 * LP_LABEL_GROWTH_MAX times the first size, and a shard cannot open more than store/space/space.h
 * says. why has the sentence.
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
