/* SPDX-License-Identifier: Apache-2.0 */
/* The registry is a list of all accounts under a mutex that only start, stop and the listing take.
 * Accounts of one name are found by comparing names. There are tens of accounts, and the listing is
 * called a few times a second at most. An account is inserted behind the last one of its name, so
 * that a listing is one walk. */
#include "base/memory/account.h"

#include <string.h>

LP_LIST_DEFINE(accounts, struct lp_account, node);

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
/* An empty list points to itself. */
static struct accounts registry = {.head = {&registry.head, &registry.head}};

static void lock(void)
{
	int rc = pthread_mutex_lock(&mutex);
	LP_ASSERT(rc == 0);
}

static void unlock(void)
{
	int rc = pthread_mutex_unlock(&mutex);
	LP_ASSERT(rc == 0);
}

void lp_account_init(struct lp_account *account, const char *name, unsigned shard)
{
	LP_ASSERT(name != NULL);
	LP_ASSERT(lp_is_aligned((uintptr_t)account, LP_CACHE_LINE));
	*account = (struct lp_account){
		.limit_bytes = LP_ACCOUNT_NO_LIMIT, .name = name, .shard = shard};
	struct lp_account *after = NULL;
	struct lp_account *it;
	lock();
	LP_LIST_FOREACH (accounts, &registry, it) {
		if (strcmp(it->name, name) != 0)
			continue;
		LP_ASSERT(it->shard != shard);
		after = it;
	}
	if (after != NULL)
		accounts_insert_after(after, account);
	else
		accounts_push_back(&registry, account);
	unlock();
}

void lp_account_fini(struct lp_account *account)
{
	LP_ASSERT(lp_account_bytes(account) == 0);
	LP_ASSERT(lp_account_items(account) == 0);
	lock();
	accounts_remove(account);
	unlock();
}

void lp_account_rebind(struct lp_account *account)
{
	account->is_bound = false;
}

void lp_account_set_limit(struct lp_account *account, uint64_t limit_bytes)
{
	atomic_store_explicit(&account->limit_bytes, limit_bytes, memory_order_relaxed);
}

static void add_to_sum(struct lp_account_sum *sum, const struct lp_account *account)
{
	uint64_t limit = atomic_load_explicit(&account->limit_bytes, memory_order_relaxed);
	sum->bytes += lp_account_bytes(account);
	sum->items += lp_account_items(account);
	sum->bytes_max += atomic_load_explicit(&account->bytes_max, memory_order_relaxed);
	/* Limits are numbers from a configuration: a sum that overflows becomes "none". */
	if (lp_add_overflows(sum->limit_bytes, limit, &sum->limit_bytes))
		sum->limit_bytes = LP_ACCOUNT_NO_LIMIT;
	sum->over_bytes += lp_account_over_bytes(account);
	sum->accounts_cnt++;
}

size_t lp_account_list(struct lp_account_sum *ret_rows, size_t max)
{
	size_t names_cnt = 0;
	const char *name = NULL;
	struct lp_account *it;
	lock();
	LP_LIST_FOREACH (accounts, &registry, it) {
		if (name == NULL || strcmp(it->name, name) != 0) {
			name = it->name;
			if (names_cnt < max)
				ret_rows[names_cnt] = (struct lp_account_sum){.name = name};
			names_cnt++;
		}
		if (names_cnt <= max)
			add_to_sum(&ret_rows[names_cnt - 1], it);
	}
	unlock();
	return names_cnt;
}

bool lp_account_find_sum(const char *name, struct lp_account_sum *ret_sum)
{
	struct lp_account_sum sum = {.name = NULL};
	struct lp_account *it;
	lock();
	LP_LIST_FOREACH (accounts, &registry, it) {
		if (strcmp(it->name, name) != 0)
			continue;
		sum.name = it->name;
		add_to_sum(&sum, it);
	}
	unlock();
	if (sum.name == NULL)
		return false;
	*ret_sum = sum;
	return true;
}

void lp_account_total(struct lp_account_sum *ret_total)
{
	struct lp_account_sum sum = {.name = NULL};
	struct lp_account *it;
	lock();
	LP_LIST_FOREACH (accounts, &registry, it)
		add_to_sum(&sum, it);
	unlock();
	*ret_total = sum;
}
