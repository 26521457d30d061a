/* SPDX-License-Identifier: Apache-2.0 */
/* View of a store as it was at one moment: its index, and which space was in use.
 *
 * Threads: the store's. A call marked [any] is for one thread at a time.
 * Blocking: only calls marked [any] may block.
 * Memory: a bit for each block, copied in one go: 32 KiB for each GiB of space.
 * Errors: -ENOTSUP the store is of another kind. -EROFS it has failed, or is read-only. -EBUSY
 * there is a view, or a pause. -EAGAIN it does not come to rest. -ENOMEM.
 * Limits: one view of each store.
 *
 * The view is looked at while the store goes on. Overwritten parts of the index keep their space
 * until the view ends. Data is not kept: the blocks of an extent may be overwritten.
 *
 * To get views of several shards that agree with each other, pause all of them, take the views
 * when all have come to rest, and resume them:
 *
 *   lp_store_pause ... rested() -> lp_store_view_take ... -> lp_store_resume -> lp_store_view_end
 *
 * A store that has come to rest acknowledges no change, and its index has all there is. A change
 * that one shard acknowledged before another was paused is in both views.
 */
#ifndef LP_STORE_VIEW_H
#define LP_STORE_VIEW_H

#include <stdatomic.h>

#include "base/loop/reactor.h"
#include "base/struct/bitmap.h"
#include "store/index/kv.h"
#include "store/store.h"

struct lp_space;

/* Fields are for reading. */
struct lp_view {
	uint32_t shard_idx;
	struct lp_kv *kv;
	struct lp_kv_snapshot *snapshot;
	uint64_t base_block; /* where chunk 0 begins on the device */
	uint32_t chunk_blocks;
	uint32_t chunk_cnt;
	struct lp_bitmap *used; /* of each chunk; words NULL: it is not owned */
	struct lp_bitmap *mine; /* which of its blocks are the shard's; words NULL: all */
	_Atomic bool is_over;   /* [any] to be ended soon: the store has failed, or is full */
};

/* --- Pausing -----------------------------------------------------------------------------------
 */

/* Embedded by who pauses. */
struct lp_pause {
	/* 0: the store is at rest until it is resumed. Or an error: then it goes on, and is not to
	 * be resumed. Once, and never from inside lp_store_pause(). */
	void (*rested)(struct lp_pause *pause, int result);
	/* The store's. */
	struct lp_store *store;
	struct lp_timer timer;
	uint64_t until_ns;
};

/* Changes wait until it is resumed, so who pauses is quick. After an error there is no pause. */
int lp_store_pause(struct lp_store *store, struct lp_pause *pause) LP_MUST_CHECK;
void lp_store_resume(struct lp_store *store, struct lp_pause *pause);

/* --- Views -------------------------------------------------------------------------------------
 */

/* Of a store at rest. */
int lp_store_view_take(struct lp_store *store, struct lp_view **ret_view) LP_MUST_CHECK;
/* Each view, also one that is over; before the store is closed. */
void lp_store_view_end(struct lp_store *store, struct lp_view *view);

/* For stores: -ENOMEM. */
int lpi_view_new(uint32_t shard_idx, struct lp_kv *kv, const struct lp_space *space,
		 struct lp_view **ret_view) LP_MUST_CHECK;
void lpi_view_free(struct lp_view *view); /* accepts NULL */

/* --- [any] -------------------------------------------------------------------------------------
 */

static inline bool lp_view_owns(const struct lp_view *view, uint32_t chunk)
{
	return chunk < view->chunk_cnt && view->used[chunk].words != NULL;
}

/* All of the extent, which is in chunks that were owned, was in use, or none. */
bool lp_view_is_used(const struct lp_view *view, struct lp_extent extent);
bool lp_view_is_unused(const struct lp_view *view, struct lp_extent extent);

#endif
