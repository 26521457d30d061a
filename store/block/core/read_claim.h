/* SPDX-License-Identifier: Apache-2.0 */
/* Claim of an operation that only looks, and its fetches from the index.
 *
 * Threads: the store's.
 * Blocking: none.
 * Memory: none is allocated.
 * Errors: those of the fetches, by the calls of block/core/point_read.c.
 *
 * An operation claims its inode, so that it sees what was submitted before it, looks, and
 * releases the claim. When something is not in memory it also releases the claim while a helper
 * fetches that, and then queues for it again. So many cold reads of one file fetch side by side.
 * An operation that had to fetch too often keeps its claim meanwhile. Then nobody can change a
 * fetched record before it is used.
 */
#ifndef LP_STORE_BLOCK_CORE_READ_CLAIM_H
#define LP_STORE_BLOCK_CORE_READ_CLAIM_H

#include "store/block/core/block.h"

struct lpi_hold {
	struct lpi_block *block;
	/* What was waited for has come. Never from inside a call below, nor another's. */
	void (*ready)(struct lpi_hold *hold);
	struct lp_task task;
	uint32_t fetches;
	bool is_kept;  /* `claimed`, for the calls of block/core/point_read.c */
	bool saw_trim; /* when a leaf was asked for: that changes leaves, whoever has the claim */
	struct lpi_warmer warmer;
	struct lp_claim_set claims;
};

void lpi_hold_init(struct lpi_hold *hold, struct lpi_block *block,
		   void (*ready)(struct lpi_hold *hold));
static inline bool lpi_hold_has_claim(const struct lpi_hold *hold)
{
	return lp_claim_set_is_granted(&hold->claims);
}
/* True when the claim is held. Else ready() comes when it is. */
bool lpi_hold_claim(struct lpi_hold *hold, struct lp_ino ino) LP_MUST_CHECK;
/* After -EAGAIN: ready() comes when it was fetched, with or without the claim. keep: with it, if it
 * is held now. */
void lpi_hold_fetch(struct lpi_hold *hold, bool keep);
/* lpi_leaves_get() of its warmer. */
int lpi_hold_leaves(struct lpi_hold *hold, struct lpi_inode *inode) LP_MUST_CHECK;
/* ready() comes soon. */
void lpi_hold_soon(struct lpi_hold *hold);
/* The claim and what was fetched are given back; nothing is being fetched. */
void lpi_hold_release(struct lpi_hold *hold);

#endif
