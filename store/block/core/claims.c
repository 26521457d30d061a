/* SPDX-License-Identifier: Apache-2.0 */
/* The head of each queue stands in a chained hash table; the other claims hang behind it. When a
 * head leaves, the next claim takes its place in the bucket. The claims that hold the key are the
 * front of the queue: one claim that does not share, or all claims that share before the first that
 * does not. */
#include "store/block/core/claims.h"

#include <stdlib.h>

#include "base/assert.h"

struct lp_claims {
	uint64_t mask;
	uint64_t cnt;
	struct lp_claim *buckets[];
};

int lp_claims_new(uint32_t buckets, struct lp_claims **ret_claims)
{
	LP_ASSERT(lp_is_power_of_two(buckets));
	struct lp_claims *claims =
		calloc(1, sizeof(*claims) + (size_t)buckets * sizeof(struct lp_claim *));
	if (claims == NULL)
		return -ENOMEM;
	claims->mask = buckets - 1;
	*ret_claims = claims;
	return 0;
}

void lp_claims_free(struct lp_claims *claims)
{
	if (claims == NULL)
		return;
	LP_ASSERT(claims->cnt == 0);
	free(claims);
}

static struct lp_claim **find_head(struct lp_claims *claims, uint64_t key)
{
	uint64_t hash = key * UINT64_C(0x9e3779b97f4a7c15);
	struct lp_claim **link = &claims->buckets[(hash >> 32 ^ hash) & claims->mask];
	while (*link != NULL && (*link)->key != key)
		link = &(*link)->next_in_bucket;
	return link;
}

static bool add(struct lp_claim_set *set, uint64_t key, bool is_shared)
{
	LP_ASSERT(!set->is_acquired);
	for (uint32_t i = 0; i < set->cnt; i++) {
		if (set->claims[i].key != key)
			continue;
		set->claims[i].is_shared = set->claims[i].is_shared && is_shared;
		return true;
	}
	if (set->cnt == LP_CLAIMS_PER_SET)
		return false;
	set->claims[set->cnt++] = (struct lp_claim){.key = key, .set = set, .is_shared = is_shared};
	return true;
}

bool lp_claim_set_add(struct lp_claim_set *set, uint64_t key)
{
	return add(set, key, false);
}

bool lp_claim_set_share(struct lp_claim_set *set, uint64_t key)
{
	return add(set, key, true);
}

bool lp_claims_acquire(struct lp_claims *claims, struct lp_claim_set *set)
{
	LP_ASSERT(!set->is_acquired);
	set->is_acquired = true;
	set->waiting_cnt = 0;
	claims->cnt += set->cnt;
	for (uint32_t i = 0; i < set->cnt; i++) {
		struct lp_claim *claim = &set->claims[i];
		struct lp_claim **link = find_head(claims, claim->key);
		struct lp_claim *head = *link;
		claim->next_in_bucket = NULL;
		claim->behind = NULL;
		claim->before = head != NULL ? head->last : NULL;
		claim->is_held = head == NULL ||
				 (claim->is_shared && head->last->is_shared && head->last->is_held);
		set->waiting_cnt += !claim->is_held;
		if (head == NULL) {
			claim->last = claim;
			*link = claim;
			continue;
		}
		head->last->behind = claim;
		head->last = claim;
	}
	return set->waiting_cnt == 0;
}

/* Grants the key to the next claim, and if that shares, to the sharing claims right behind it. */
static void grant_from(struct lp_claim *claim)
{
	bool is_first = true;
	while (claim != NULL && !claim->is_held && (is_first || claim->is_shared)) {
		struct lp_claim *behind = claim->is_shared ? claim->behind : NULL;
		claim->is_held = true;
		is_first = false;
		LP_ASSERT(claim->set->waiting_cnt > 0);
		if (--claim->set->waiting_cnt == 0)
			claim->set->granted(claim->set);
		claim = behind;
	}
}

static void leave_queue(struct lp_claim **link, const struct lp_claim *claim)
{
	struct lp_claim *head = *link;
	struct lp_claim *behind = claim->behind;
	if (behind != NULL)
		behind->before = claim->before;
	if (claim->before != NULL) {
		claim->before->behind = behind;
		if (head->last == claim)
			head->last = claim->before;
	} else if (behind != NULL) {
		behind->next_in_bucket = head->next_in_bucket;
		behind->last = head->last;
		*link = behind;
	} else {
		*link = head->next_in_bucket;
	}
	/* Behind sharing claims that still hold the key only other sharing claims may hold it. */
	bool is_next =
		claim->before == NULL || (claim->before->is_held && claim->before->is_shared &&
					  behind != NULL && behind->is_shared);
	if (is_next)
		grant_from(behind);
}

void lp_claims_release(struct lp_claims *claims, struct lp_claim_set *set)
{
	LP_ASSERT(set->is_acquired);
	set->is_acquired = false;
	claims->cnt -= set->cnt;
	for (uint32_t i = 0; i < set->cnt; i++) {
		struct lp_claim **link = find_head(claims, set->claims[i].key);
		LP_ASSERT(*link != NULL);
		leave_queue(link, &set->claims[i]);
	}
	set->cnt = 0;
	set->waiting_cnt = 0;
}

uint64_t lp_claims_cnt(const struct lp_claims *claims)
{
	return claims->cnt;
}
