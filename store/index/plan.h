/* SPDX-License-Identifier: Apache-2.0 */
/* Sizes of the index's buffers, and the space that is kept free for it (rule L8).
 *
 * Threads: any.
 * Blocking, errors: none.
 *
 * They follow from the size of the device and the budget of memory. One flush and the largest
 * compaction take space in proportion to a memtable, and so do the first level and the tables. On
 * a small device memtables are small, so that no more than an eighth of it is kept free. On a
 * large one the memory decides.
 */
#ifndef LP_STORE_INDEX_PLAN_H
#define LP_STORE_INDEX_PLAN_H

#include "store/record/types.h"

#define LP_INDEX_MEMORY_DEFAULT (UINT64_C(256) << 20)
/* Of a device, at most this part is kept free, unless its memtables are the smallest. */
#define LP_INDEX_RESERVE_SHARE 8u

struct lp_index_plan {
	uint64_t buffer_bytes; /* one memtable; table and level sizes follow from it
				  (store/index/kv.h) */
	/* Of one shard: what is leased ahead for files, and not there for objects. What changes
	 * nothing but to make the index grow is refused when the room falls below grow_bytes, what
	 * rewrites records below rewrite_bytes; removals may use all of it. */
	uint64_t reserve_bytes;
	uint64_t grow_bytes;
	uint64_t rewrite_bytes;
};

/* device_bytes: of all devices that files may be on, in chunks. memory_bytes: the shard's budget,
 * 0: the default. buffer_bytes: 0, or the wish for one; reserve_bytes: the same. */
struct lp_index_wish {
	uint64_t device_bytes;
	uint32_t shard_cnt;
	uint64_t memory_bytes;
	uint64_t buffer_bytes;
	uint64_t reserve_bytes;
};
void lp_index_make_plan(const struct lp_index_wish *wish, struct lp_index_plan *ret_plan);

#endif
