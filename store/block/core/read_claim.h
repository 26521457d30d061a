/* SPDX-License-Identifier: Apache-2.0 */
/* Claim of an operation that only looks, and its fetches from the index.
 *
 * Threads: the store's.
 * Blocking: none.
 * Memory: none is allocated.
 * Errors: those of the fetches, by the calls of block/core/point_read.c.
 *
 * An operation claims its inode, so that it sees all earlier submissions. It looks, and releases
 * the claim. When a record is not in memory it also releases the claim while a helper fetches the
 * record, and then queues for the claim again. So many cold reads of one file fetch side by side.
 * An operation that had to fetch too often keeps its claim meanwhile. Then no other operation can
 * change a fetched record before it is used.
 */
#ifndef LP_STORE_BLOCK_CORE_READ_CLAIM_H
#define LP_STORE_BLOCK_CORE_READ_CLAIM_H

#include "store/block/core/block.h"

struct lpi_hold {
	struct lpi_block *block;
	/* The wait has ended. Never called from inside a call below, nor from another hold's. */
	void (*ready)(struct lpi_hold *hold);
	struct lp_task task;
	uint32_t fetches;
	bool is_kept;  /* `claimed`, for the calls of block/core/point_read.c */
	bool saw_trim; /* when a leaf was fetched: a trim changes leaves whatever claims are held */
	struct lpi_warmer warmer;
	struct lp_claim_set claims;
};

void lpi_hold_init(struct lpi_hold *hold, struct lpi_block *block,
		   void (*ready)(struct lpi_hold *hold));
static inline bool lpi_hold_has_claim(const struct lpi_hold *hold)
{
	return lp_claim_set_is_granted(&hold->claims);
}
/* True when the claim is held. Otherwise ready() is called when it is. */
bool lpi_hold_claim(struct lpi_hold *hold, struct lp_ino ino) LP_MUST_CHECK;
/* After -EAGAIN: ready() is called after the fetch, with or without the claim. keep: with it, if it
 * is held now. */
void lpi_hold_fetch(struct lpi_hold *hold, bool keep);
/* lpi_leaves_get() with its warmer. */
int lpi_hold_leaves(struct lpi_hold *hold, struct lpi_inode *inode) LP_MUST_CHECK;
/* ready() is called in this turn or the next. */
void lpi_hold_soon(struct lpi_hold *hold);
/* Gives back the claim and the fetched values; no fetch may be running. */
void lpi_hold_release(struct lpi_hold *hold);

#endif
