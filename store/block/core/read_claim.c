/* SPDX-License-Identifier: Apache-2.0 */
/* A claim is granted from inside another operation's release, so a task continues with it. */
#include "store/block/core/read_claim.h"

/* Fetches for an inode and the leaves of the longest read. A fetch that came too late for its claim
 * has still warmed the index's cache, so few operations ever need more. */
#define FETCHES_UNCLAIMED_MAX 7u

static void task_run(struct lp_task *task)
{
	struct lpi_hold *hold = LP_CONTAINER_OF(task, struct lpi_hold, task);
	hold->ready(hold);
}

static void granted(struct lp_claim_set *claims)
{
	lpi_hold_soon(LP_CONTAINER_OF(claims, struct lpi_hold, claims));
}

static void fetched(struct lpi_warmer *warmer)
{
	struct lpi_hold *hold = LP_CONTAINER_OF(warmer, struct lpi_hold, warmer);
	hold->ready(hold);
}

void lpi_hold_init(struct lpi_hold *hold, struct lpi_block *block,
		   void (*ready)(struct lpi_hold *hold))
{
	hold->block = block;
	hold->ready = ready;
	hold->task.run = task_run;
	lp_list_node_init(&hold->task.node);
	hold->fetches = 0;
	hold->is_kept = false;
	hold->saw_trim = false;
	lpi_warmer_init(&hold->warmer, block, fetched);
	/* The set is not cleared as a whole, because it has room for many claims. */
	hold->claims.granted = granted;
	hold->claims.cnt = 0;
	hold->claims.waiting_cnt = 0;
	hold->claims.is_acquired = false;
}

bool lpi_hold_claim(struct lpi_hold *hold, struct lp_ino ino)
{
	if (hold->claims.is_acquired)
		return lpi_hold_has_claim(hold);
	bool fits = lp_claim_set_add(&hold->claims, lpi_claim_of_ino(ino));
	LP_ASSERT(fits); /* it is the only one in the set */
	return lp_claims_acquire(hold->block->claims, &hold->claims);
}

static void give_up_claim(struct lpi_hold *hold)
{
	hold->is_kept = false;
	if (hold->claims.is_acquired)
		lp_claims_release(hold->block->claims, &hold->claims);
}

void lpi_hold_fetch(struct lpi_hold *hold, bool keep)
{
	hold->fetches++;
	if (lpi_hold_has_claim(hold) && (keep || hold->fetches > FETCHES_UNCLAIMED_MAX))
		hold->is_kept = true;
	else
		give_up_claim(hold);
	lpi_warmer_start(&hold->warmer);
}

int lpi_hold_leaves(struct lpi_hold *hold, struct lpi_inode *inode)
{
	int err = lpi_leaves_get(&hold->warmer, inode, hold->is_kept && !hold->saw_trim);
	if (err == -EAGAIN)
		hold->saw_trim = inode->trim != NULL;
	return err;
}

void lpi_hold_soon(struct lpi_hold *hold)
{
	lpi_block_soon(hold->block, &hold->task);
}

void lpi_hold_release(struct lpi_hold *hold)
{
	give_up_claim(hold);
	lpi_warmer_fini(&hold->warmer);
	/* The nodes that were loaded for this read may have exceeded the budget. */
	lpi_nodes_shrink(&hold->block->nodes);
}
