/* SPDX-License-Identifier: Apache-2.0 */
/* Memory accounted by name and shard: "inodes", "data cache", "write buffers", ...
 *
 * Threads: add, sub and the queries of one account are its owner's. The slow builds assert that it
 *   stays the thread that used it first. The writer needs no atomic read-modify-write, because it
 *   is the only one. set_limit, the readers and the listing may run on any thread. What they see of
 *   different counters need not be of the same instant.
 * Blocking: init, fini and the listing take a mutex; the others do not.
 * Memory, errors: none.
 *
 * A holder of much memory has a struct lp_account, one for each shard and name, and counts taken
 * and returned memory in it. A registry adds up all accounts of one name, for the metrics and for
 * the division of the memory budget.
 */
#ifndef LP_BASE_MEMORY_ACCOUNT_H
#define LP_BASE_MEMORY_ACCOUNT_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/struct/list.h"

#define LP_ACCOUNT_NO_LIMIT UINT64_MAX

struct lp_account {
	LP_CACHE_ALIGNED _Atomic uint64_t bytes; /* the counters are written by the owner only */
	_Atomic uint64_t items;
	_Atomic uint64_t bytes_max; /* most that was ever held */
	_Atomic uint64_t limit_bytes;
	pthread_t owner;
	bool is_bound;
	unsigned shard;
	const char *name;         /* static string */
	struct lp_list_node node; /* registry's mutex */
};

/* All accounts of one name, or of all names, added up. */
struct lp_account_sum {
	const char *name; /* NULL in a total */
	uint64_t bytes;
	uint64_t items;
	uint64_t bytes_max;   /* sum of the shards' high waters: no less than that of the sum */
	uint64_t limit_bytes; /* LP_ACCOUNT_NO_LIMIT when one of them has none */
	uint64_t over_bytes;  /* sum of each account's excess: room in one account does not help
				 another */
	unsigned accounts_cnt;
};

/* The account starts empty, without a limit, in the registry. Its memory is the caller's, aligned
 * as its type says (malloc is not enough), and stays in place until fini. */
void lp_account_init(struct lp_account *account, const char *name, unsigned shard);
/* Asserts that all was given back. */
void lp_account_fini(struct lp_account *account);
/* Another thread takes the account over; the caller has ordered the two. */
void lp_account_rebind(struct lp_account *account);

/* Any thread. The limit is not enforced: the owner calls lp_account_over_bytes() and evicts. */
void lp_account_set_limit(struct lp_account *account, uint64_t limit_bytes);

/* True if the calling thread is the owner, or becomes it now. */
static inline bool lp_account_is_mine(struct lp_account *account)
{
	if (!account->is_bound) {
		account->owner = pthread_self();
		account->is_bound = true;
	}
	return pthread_equal(account->owner, pthread_self()) != 0;
}

static inline uint64_t lp_account_bytes(const struct lp_account *account)
{
	return atomic_load_explicit(&account->bytes, memory_order_relaxed);
}

static inline uint64_t lp_account_items(const struct lp_account *account)
{
	return atomic_load_explicit(&account->items, memory_order_relaxed);
}

/* Owner: memory was taken. A load and a store, relaxed, are plain instructions. */
static inline void lp_account_add(struct lp_account *account, uint64_t bytes, uint64_t items)
{
	LP_ASSERT_SLOW(lp_account_is_mine(account));
	uint64_t sum = lp_account_bytes(account) + bytes;
	LP_ASSERT(sum >= bytes);
	atomic_store_explicit(&account->bytes, sum, memory_order_relaxed);
	atomic_store_explicit(&account->items, lp_account_items(account) + items,
			      memory_order_relaxed);
	if (sum > atomic_load_explicit(&account->bytes_max, memory_order_relaxed))
		atomic_store_explicit(&account->bytes_max, sum, memory_order_relaxed);
}

/* Owner: memory was given back, no more than was taken. */
static inline void lp_account_sub(struct lp_account *account, uint64_t bytes, uint64_t items)
{
	LP_ASSERT_SLOW(lp_account_is_mine(account));
	uint64_t bytes_held = lp_account_bytes(account);
	uint64_t items_held = lp_account_items(account);
	LP_ASSERT(bytes_held >= bytes);
	LP_ASSERT(items_held >= items);
	atomic_store_explicit(&account->bytes, bytes_held - bytes, memory_order_relaxed);
	atomic_store_explicit(&account->items, items_held - items, memory_order_relaxed);
}

/* The bytes that must go for the account to be within its limit; 0 if it is. */
static inline uint64_t lp_account_over_bytes(const struct lp_account *account)
{
	uint64_t bytes = lp_account_bytes(account);
	uint64_t limit = atomic_load_explicit(&account->limit_bytes, memory_order_relaxed);
	return bytes > limit ? bytes - limit : 0;
}

/* Any thread: one row per name, in the order in which the names first came, at most max rows.
 * Returns the number of names, which may be more than max. */
size_t lp_account_list(struct lp_account_sum *ret_rows, size_t max);
/* Any thread: the accounts of one name. False, and *ret_sum untouched, when there is none. */
bool lp_account_find_sum(const char *name, struct lp_account_sum *ret_sum);
/* Any thread: the sum of all accounts. */
void lp_account_total(struct lp_account_sum *ret_total);

#endif
