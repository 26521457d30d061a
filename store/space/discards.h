/* SPDX-License-Identifier: Apache-2.0 */
/* Background discards of freed space (design 5.7), so that device and host can reuse it.
 *
 * Threads: the reactor's.
 * Blocking: none.
 * Memory: none is allocated after new.
 * Errors: none. A discard that fails is counted; a device that knows none is asked once.
 * Limits: the rate is bounded (LP_DISCARD_BYTES_PER_S), and so is what waits
 * (LP_DISCARD_EXTENTS).
 *
 *   freed, durably -> WAITING -> discarded -> free
 *                        \--- somebody needs the space, or there are too many: free, not discarded
 *
 * Waiting blocks are held (lp_space_hold()): nobody takes them, so nothing is written there. A
 * discard is submitted only when no I/O of the former owner is in flight on it (rule S3). The
 * free is durable by then, so no crash brings the former owner back.
 *
 * Discards are advice, not a duty. Pieces below LP_DISCARD_MIN_BLOCKS that met no neighbour while
 * they waited are let go, and so are those that a crash or a close interrupts.
 */
#ifndef LP_STORE_SPACE_DISCARDS_H
#define LP_STORE_SPACE_DISCARDS_H

#include "store/device/bdev.h"
#include "store/space/space.h"

struct lp_discards;

#define LP_DISCARD_MIN_BLOCKS    8u
#define LP_DISCARD_EXTENTS       1024u /* waiting at most */
#define LP_DISCARD_WAIT_NS       LP_NS_PER_S
#define LP_DISCARD_BYTES_PER_S   (UINT64_C(256) << 20)
#define LP_DISCARD_FLIGHT        2u
#define LP_DISCARD_OP_BLOCKS_MAX (UINT64_C(4096)) /* 16 MiB */

struct lp_discards_options {
	struct lp_reactor *reactor;
	struct lp_bdev_chan *chan;
	struct lp_space *space;
	uint64_t bytes_per_s; /* 0: LP_DISCARD_BYTES_PER_S */
};

struct lp_discards_stats {
	uint64_t ops;
	uint64_t blocks;
	uint64_t let_go_blocks; /* free without a discard */
	uint64_t failed;
};

int lp_discards_new(const struct lp_discards_options *options,
		    struct lp_discards **ret_discards) LP_MUST_CHECK;
/* Stopped and idle. Accepts NULL. */
void lp_discards_free(struct lp_discards *discards);

/* The freeing of the extent is durable, and nobody can take it yet (lp_space_tell_freed()). */
void lp_discards_add(struct lp_discards *discards, struct lp_extent extent);
/* Space is short: what has not begun is free now. Returns how many blocks that were. */
uint64_t lp_discards_give_way(struct lp_discards *discards);
/* The same, and nothing begins any more. */
void lp_discards_stop(struct lp_discards *discards);
/* Nothing is in flight. */
bool lp_discards_is_idle(const struct lp_discards *discards);
const struct lp_discards_stats *lp_discards_stats(const struct lp_discards *discards);

#endif
