/* SPDX-License-Identifier: Apache-2.0 */
/* The head of each queue stands in a chained hash table; the others hang behind it. A head that
 * leaves is replaced in its bucket by the next, who thereby holds the key. */
#include "store/claims.h"

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

bool lp_claim_set_add(struct lp_claim_set *set, uint64_t key)
{
	LP_ASSERT(!set->is_acquired);
	for (uint32_t i = 0; i < set->cnt; i++) {
		if (set->claims[i].key == key)
			return true;
	}
	if (set->cnt == LP_CLAIMS_PER_SET)
		return false;
	set->claims[set->cnt++] = (struct lp_claim){.key = key, .set = set};
	return true;
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
		claim->next_in_bucket = NULL;
		claim->behind = NULL;
		if (*link == NULL) {
			claim->last = claim;
			*link = claim;
			continue;
		}
		(*link)->last->behind = claim;
		(*link)->last = claim;
		set->waiting_cnt++;
	}
	return set->waiting_cnt == 0;
}

/* The head leaves: the next in its queue holds the key from now on. */
static void pass_on(struct lp_claim **link, const struct lp_claim *head)
{
	struct lp_claim *next = head->behind;
	if (next == NULL) {
		*link = head->next_in_bucket;
		return;
	}
	next->next_in_bucket = head->next_in_bucket;
	next->last = head->last;
	*link = next;
	LP_ASSERT(next->set->waiting_cnt > 0);
	if (--next->set->waiting_cnt == 0)
		next->set->granted(next->set);
}

static void leave_queue(struct lp_claim *head, const struct lp_claim *claim)
{
	struct lp_claim *before = head;
	while (before->behind != claim)
		before = before->behind;
	before->behind = claim->behind;
	if (head->last == claim)
		head->last = before;
}

void lp_claims_release(struct lp_claims *claims, struct lp_claim_set *set)
{
	LP_ASSERT(set->is_acquired);
	set->is_acquired = false;
	claims->cnt -= set->cnt;
	for (uint32_t i = 0; i < set->cnt; i++) {
		struct lp_claim *claim = &set->claims[i];
		struct lp_claim **link = find_head(claims, claim->key);
		LP_ASSERT(*link != NULL);
		if (*link == claim)
			pass_on(link, claim);
		else
			leave_queue(*link, claim);
	}
	set->cnt = 0;
	set->waiting_cnt = 0;
}

uint64_t lp_claims_cnt(const struct lp_claims *claims)
{
	return claims->cnt;
}
