/* SPDX-License-Identifier: Apache-2.0 */
/* Each key that is held or waited for has an entry in a chained hash table: its holders are
 * counted, waiting locks are in its queue. A name's lock goes through two entries: first its
 * directory's, shared, then its own. It waits in one queue only.
 *
 * A release takes locks that can go on from the queue's front. They are collected in a list first,
 * and granted() is called afterwards, because it may acquire and release again.
 *
 * An exclusive holder that never lets go makes the entry refuse all locks. A shared one makes it
 * refuse exclusive locks only: in a directory with one such name, all others are free. */
#include "namespace/state/locks.h"

#include <stdlib.h>

#include "base/hash.h"
#include "base/memory/pool.h"

#define ENTRIES_FIRST 1024u /* at a time, before more memory is taken */
/* As many as are usually held at a time, with room to spare. In a table for all possible locks each
 * one would be elsewhere in memory, and in no cache. */
#define BUCKETS_MAX 4096u

LP_LIST_DEFINE(lpi_lock_queue, struct lpi_lock, node);

struct lpi_lock_entry {
	enum lpi_lock_kind kind;
	struct lp_ino ino;
	uint64_t hash;
	struct lpi_lock_entry *next_in_bucket;
	const struct lpi_lock *owner; /* the exclusive holder, or NULL */
	uint32_t shared_cnt;
	uint32_t hard_cnt;
	uint32_t stuck_cnt; /* of the holders, those that will never let go */
	uint32_t stuck_hard_cnt;
	struct lpi_lock_queue waiting;
	struct lpi_lock_queue looking;
};

struct lpi_locks {
	struct lp_pool *entries;
	uint64_t seq;
	uint64_t waits;
	uint32_t cnt;
	uint32_t hard_cnt;
	uint32_t mask;
	uint32_t limit_max; /* of entries */
	struct lpi_lock_entry *buckets[];
};

int lpi_locks_new(uint32_t locks_max, struct lpi_locks **ret_locks)
{
	uint32_t buckets = 64;
	while (buckets < locks_max && buckets < BUCKETS_MAX)
		buckets *= 2;
	struct lpi_locks *locks =
		calloc(1, sizeof(*locks) + (size_t)buckets * sizeof(struct lpi_lock_entry *));
	if (locks == NULL)
		return -ENOMEM;
	locks->mask = buckets - 1;
	/* A lock has two entries at most: its own and its directory's. Most have none of their own
	 * at a time, so memory is taken as it is needed. */
	const struct lp_pool_config config = {.name = "locks",
					      .object_bytes = sizeof(struct lpi_lock_entry),
					      .limit = ENTRIES_FIRST,
					      .limit_max = LP_MAX(2 * locks_max, ENTRIES_FIRST)};
	locks->limit_max = config.limit_max;
	int r = lp_pool_new(&config, &locks->entries);
	if (r < 0) {
		free(locks);
		return r;
	}
	*ret_locks = locks;
	return 0;
}

void lpi_locks_free(struct lpi_locks *locks)
{
	if (locks == NULL)
		return;
	for (uint32_t i = 0; i <= locks->mask; i++) {
		while (locks->buckets[i] != NULL) {
			struct lpi_lock_entry *entry = locks->buckets[i];
			locks->buckets[i] = entry->next_in_bucket;
			lp_pool_put(locks->entries, entry);
		}
	}
	lp_pool_free(locks->entries);
	free(locks);
}

uint64_t lpi_lock_hash(const void *name, size_t len)
{
	return lp_hash_u64(name, len, 0);
}

/* --- Entries ---------------------------------------------------------------------------------- */

static struct lpi_lock_entry **find(struct lpi_locks *locks, enum lpi_lock_kind kind,
				    struct lp_ino ino, uint64_t hash)
{
	uint64_t mixed = (ino.nr ^ hash ^ (uint64_t)kind << 62) * UINT64_C(0x9e3779b97f4a7c15);
	struct lpi_lock_entry **link = &locks->buckets[(mixed >> 32 ^ mixed) & locks->mask];
	while (*link != NULL &&
	       ((*link)->kind != kind || (*link)->ino.nr != ino.nr || (*link)->hash != hash))
		link = &(*link)->next_in_bucket;
	return link;
}

static struct lpi_lock_entry *find_or_make(struct lpi_locks *locks, enum lpi_lock_kind kind,
					   struct lp_ino ino, uint64_t hash)
{
	struct lpi_lock_entry **link = find(locks, kind, ino, hash);
	if (*link != NULL)
		return *link;
	struct lpi_lock_entry *entry = lp_pool_get(locks->entries);
	if (entry == NULL) {
		struct lp_pool_stats stats;
		lp_pool_read_stats(locks->entries, &stats);
		int r = lp_pool_resize(locks->entries, LP_MIN(2 * stats.limit, locks->limit_max));
		LP_ASSERT(r == 0);
		entry = lp_pool_get(locks->entries);
	}
	LP_ASSERT(entry != NULL);
	*entry = (struct lpi_lock_entry){.kind = kind, .ino = ino, .hash = hash};
	lpi_lock_queue_init(&entry->waiting);
	lpi_lock_queue_init(&entry->looking);
	*link = entry;
	locks->cnt++;
	return entry;
}

static void drop_if_idle(struct lpi_locks *locks, struct lpi_lock_entry *entry)
{
	if (entry->owner != NULL || entry->shared_cnt > 0 ||
	    !lpi_lock_queue_is_empty(&entry->waiting) || !lpi_lock_queue_is_empty(&entry->looking))
		return;
	LP_ASSERT(entry->hard_cnt == 0);
	struct lpi_lock_entry **link = find(locks, entry->kind, entry->ino, entry->hash);
	LP_ASSERT(*link == entry);
	*link = entry->next_in_bucket;
	lp_pool_put(locks->entries, entry);
	locks->cnt--;
}

/* --- Acquiring -------------------------------------------------------------------------------- */

static void wait_at(struct lpi_locks *locks, struct lpi_lock_entry *entry, struct lpi_lock *lock)
{
	locks->waits++;
	lpi_lock_queue_push_back(&entry->waiting, lock);
}

/* Refuses a lock, which is in no queue. A name gives back its hold on its directory. */
static bool refuse(struct lpi_lock *lock, bool shares)
{
	if (shares && lock->fragment != NULL)
		lock->fragment->shared_cnt--;
	lock->entry = NULL;
	lock->fragment = NULL;
	lock->result = -EIO;
	return true;
}

/* Enters the lock's own entry, after its directory's if it is a name. */
static bool enter_own(struct lpi_locks *locks, struct lpi_lock *lock)
{
	uint64_t hash = lock->kind == LPI_LOCK_NAME ? lock->hash : 0;
	struct lpi_lock_entry *entry = find_or_make(locks, lock->kind, lock->ino, hash);
	if (entry->stuck_cnt > 0)
		return refuse(lock, true);
	lock->entry = entry;
	if (entry->owner != NULL || entry->shared_cnt > 0 ||
	    !lpi_lock_queue_is_empty(&entry->waiting)) {
		wait_at(locks, entry, lock);
		return false;
	}
	entry->owner = lock;
	lock->is_held = true;
	return true;
}

bool lpi_lock_acquire(struct lpi_locks *locks, struct lpi_lock *lock)
{
	LP_ASSERT(!lock->is_held && !lp_list_node_is_linked(&lock->node));
	LP_ASSERT(lock->granted != NULL);
	lock->is_hard = false;
	lock->result = 0;
	lock->fragment = NULL;
	if (lock->kind != LPI_LOCK_NAME)
		return enter_own(locks, lock);
	struct lpi_lock_entry *fragment = find_or_make(locks, LPI_LOCK_FRAGMENT, lock->ino, 0);
	lock->fragment = fragment;
	bool has_sibling = lock->sibling != NULL;
	if (has_sibling)
		LP_ASSERT(lock->sibling->is_held && lock->sibling->fragment == fragment);
	if (fragment->owner != NULL && fragment->stuck_cnt > 0)
		return refuse(lock, false);
	if (!has_sibling &&
	    (fragment->owner != NULL || !lpi_lock_queue_is_empty(&fragment->waiting))) {
		lock->entry = NULL;
		wait_at(locks, fragment, lock);
		return false;
	}
	fragment->shared_cnt++;
	return enter_own(locks, lock);
}

/* --- Releasing -------------------------------------------------------------------------------- */

/* Moves locks that can go on at this entry into `ready`. A name's lock that got its directory's
 * entry goes on to its own, and is ready when it has that. */
static void advance(struct lpi_locks *locks, struct lpi_lock_entry *entry,
		    struct lpi_lock_queue *ready)
{
	for (;;) {
		struct lpi_lock *lock = lpi_lock_queue_first(&entry->waiting);
		if (lock == NULL || entry->owner != NULL)
			return;
		if (lock->entry == entry) {
			if (entry->shared_cnt > 0)
				return;
			lpi_lock_queue_remove(lock);
			entry->owner = lock;
			lock->is_held = true;
			lpi_lock_queue_push_back(ready, lock);
			return;
		}
		LP_ASSERT(lock->fragment == entry);
		lpi_lock_queue_remove(lock);
		entry->shared_cnt++;
		if (enter_own(locks, lock))
			lpi_lock_queue_push_back(ready, lock);
	}
}

/* A hard holder that came before some looks is gone. */
static void release_looks(struct lpi_lock_entry *entry, uint64_t hard_seq,
			  struct lpi_lock_queue *ready)
{
	struct lpi_lock *look = NULL;
	struct lpi_lock *next = NULL;
	LP_ASSERT(entry->hard_cnt > 0);
	entry->hard_cnt--;
	LP_LIST_FOREACH_SAFE (lpi_lock_queue, &entry->looking, look, next) {
		if (look->seq < hard_seq || --look->looks_left > 0)
			continue;
		lpi_lock_queue_remove(look);
		lpi_lock_queue_push_back(ready, look);
	}
}

void lpi_lock_release(struct lpi_locks *locks, struct lpi_lock *lock)
{
	struct lpi_lock_entry *entry = lock->entry;
	struct lpi_lock_entry *fragment = lock->fragment;
	struct lpi_lock_queue ready;
	LP_ASSERT(lock->is_held && entry->owner == lock);
	lpi_lock_queue_init(&ready);
	if (lock->is_hard) {
		LP_ASSERT(locks->hard_cnt > 0);
		locks->hard_cnt--;
		release_looks(entry, lock->seq, &ready);
		if (fragment != NULL)
			release_looks(fragment, lock->seq, &ready);
	}
	entry->owner = NULL;
	lock->is_held = false;
	lock->entry = NULL;
	lock->fragment = NULL;
	advance(locks, entry, &ready);
	drop_if_idle(locks, entry);
	if (fragment != NULL) {
		fragment->shared_cnt--;
		advance(locks, fragment, &ready);
		drop_if_idle(locks, fragment);
	}
	for (struct lpi_lock *next; (next = lpi_lock_queue_pop_front(&ready)) != NULL;)
		next->granted(next);
}

/* Refuses locks that wait at this entry for a holder that never lets go. A refused lock may have
 * been in the way of others, at its directory or in the queue. */
static void refuse_waiting(struct lpi_locks *locks, struct lpi_lock_entry *entry,
			   struct lpi_lock_queue *ready)
{
	struct lpi_lock *lock = NULL;
	struct lpi_lock *next = NULL;
	LP_LIST_FOREACH_SAFE (lpi_lock_queue, &entry->waiting, lock, next) {
		struct lpi_lock_entry *fragment = lock->entry == entry ? lock->fragment : NULL;
		if (lock->entry != entry && entry->owner == NULL)
			continue;
		lpi_lock_queue_remove(lock);
		(void)refuse(lock, fragment != NULL);
		lpi_lock_queue_push_back(ready, lock);
		if (fragment != NULL)
			advance(locks, fragment, ready);
	}
	advance(locks, entry, ready);
}

static void refuse_looking(struct lpi_lock_entry *entry, uint64_t hard_seq,
			   struct lpi_lock_queue *ready)
{
	struct lpi_lock *look = NULL;
	struct lpi_lock *next = NULL;
	entry->stuck_hard_cnt++;
	LP_LIST_FOREACH_SAFE (lpi_lock_queue, &entry->looking, look, next) {
		if (look->seq < hard_seq)
			continue;
		lpi_lock_queue_remove(look);
		look->result = -EIO;
		lpi_lock_queue_push_back(ready, look);
	}
}

void lpi_lock_fail(struct lpi_locks *locks, struct lpi_lock *lock)
{
	struct lpi_lock_entry *entry = lock->entry;
	struct lpi_lock_entry *fragment = lock->fragment;
	struct lpi_lock_queue ready;
	LP_ASSERT(lock->is_held && entry->owner == lock);
	lpi_lock_queue_init(&ready);
	entry->stuck_cnt++;
	if (fragment != NULL)
		fragment->stuck_cnt++;
	if (lock->is_hard) {
		refuse_looking(entry, lock->seq, &ready);
		if (fragment != NULL)
			refuse_looking(fragment, lock->seq, &ready);
	}
	refuse_waiting(locks, entry, &ready);
	if (fragment != NULL)
		refuse_waiting(locks, fragment, &ready);
	for (struct lpi_lock *next; (next = lpi_lock_queue_pop_front(&ready)) != NULL;)
		next->granted(next);
}

void lpi_lock_harden(struct lpi_locks *locks, struct lpi_lock *lock)
{
	LP_ASSERT(lock->is_held);
	if (lock->is_hard)
		return;
	lock->is_hard = true;
	locks->hard_cnt++;
	lock->seq = ++locks->seq;
	lock->entry->hard_cnt++;
	if (lock->fragment != NULL)
		lock->fragment->hard_cnt++;
}

bool lpi_lock_look(struct lpi_locks *locks, struct lpi_lock *look)
{
	LP_ASSERT(!look->is_held && !lp_list_node_is_linked(&look->node));
	LP_ASSERT(look->granted != NULL);
	uint64_t hash = look->kind == LPI_LOCK_NAME ? look->hash : 0;
	look->result = 0;
	if (locks->cnt == 0)
		return true;
	struct lpi_lock_entry *entry = *find(locks, look->kind, look->ino, hash);
	if (entry == NULL || entry->hard_cnt == 0)
		return true;
	if (entry->stuck_hard_cnt > 0) {
		look->result = -EIO;
		return true;
	}
	locks->waits++;
	look->looks_left = entry->hard_cnt;
	look->seq = ++locks->seq;
	lpi_lock_queue_push_back(&entry->looking, look);
	return false;
}

uint32_t lpi_locks_hard(const struct lpi_locks *locks)
{
	return locks->hard_cnt;
}

uint32_t lpi_locks_cnt(const struct lpi_locks *locks)
{
	return locks->cnt;
}

uint64_t lpi_locks_waits(const struct lpi_locks *locks)
{
	return locks->waits;
}
