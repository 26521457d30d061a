/* SPDX-License-Identifier: Apache-2.0 */
/* Claims: a queue per inode or name that keeps operations in order (design 5.5).
 *
 * Threads: one.
 * Blocking: none.
 * Memory: allocated at new. A claim lives in its operation, so the table never grows.
 * Errors: -ENOMEM at new.
 * Limits: LP_CLAIMS_PER_SET claims of one operation.
 *
 * An operation claims all inodes it touches at once, when it arrives. It holds them when it is
 * first in each of their queues. All its places are taken in one step, so two operations never wait
 * for each other. It releases them once its changes are ordered. So no operation waits for a device
 * without need.
 *
 * An operation that only looks at an inode, and changes nothing of it, shares its place. Sharing
 * operations that are next to each other at the front of a queue hold the inode together. So a
 * thousand puts into one directory do not wait for each other, though each checks that the
 * directory exists.
 */
#ifndef LP_STORE_BLOCK_CORE_CLAIMS_H
#define LP_STORE_BLOCK_CORE_CLAIMS_H

#include <errno.h>

#include "base/struct/list.h"

#define LP_CLAIMS_PER_SET 16u

struct lp_claims;
struct lp_claim_set;

/* One place in one queue. All fields are private. */
struct lp_claim {
	struct lp_claim *next_in_bucket; /* of queue heads with the same hash */
	struct lp_claim *before;         /* the one before it in this queue; NULL: it is the head */
	struct lp_claim *behind;         /* the next in this queue */
	struct lp_claim *last;           /* of a head: the end of its queue */
	struct lp_claim_set *set;
	uint64_t key;
	bool is_shared;
	bool is_held;
};

struct lp_claim_set {
	/* Called when the last place was reached, from inside another set's release. It should only
	 * queue the operation to run. Not called when acquire() returned true. */
	void (*granted)(struct lp_claim_set *set);
	uint32_t cnt;
	uint32_t waiting_cnt; /* places not held yet */
	bool is_acquired;
	struct lp_claim claims[LP_CLAIMS_PER_SET];
};

/* buckets: a power of two. */
int lp_claims_new(uint32_t buckets, struct lp_claims **ret_claims) LP_MUST_CHECK;
/* No key may be claimed. Accepts NULL. */
void lp_claims_free(struct lp_claims *claims);

/* Before acquire; a key that is there already is not added again. False when the set is full. */
bool lp_claim_set_add(struct lp_claim_set *set, uint64_t key) LP_MUST_CHECK;
/* The same for a key that other sharing claims may hold at the same time. A key added both ways is
 * not shared.
 */
bool lp_claim_set_share(struct lp_claim_set *set, uint64_t key) LP_MUST_CHECK;

/* True when all keys are held now. The set must not be moved until release. */
bool lp_claims_acquire(struct lp_claims *claims, struct lp_claim_set *set) LP_MUST_CHECK;
/* Also while the set still waits: then its places are given up. The set is empty afterwards. */
void lp_claims_release(struct lp_claims *claims, struct lp_claim_set *set);

static inline bool lp_claim_set_is_granted(const struct lp_claim_set *set)
{
	return set->is_acquired && set->waiting_cnt == 0;
}

/* Places taken in all queues. */
uint64_t lp_claims_cnt(const struct lp_claims *claims);

#endif
