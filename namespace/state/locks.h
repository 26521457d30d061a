/* SPDX-License-Identifier: Apache-2.0 */
/* Locks of names, directory fragments and inodes of one shard, held while a change is made.
 *
 * Threads: the shard's.
 * Blocking: none.
 * Memory: allocated by new, and for more entries when more are held than ever before.
 * Errors: a lock that can never be granted is refused, with lock->result.
 * Limits: locks_max at a time, asserted: locks live in operations, whose number is bounded, and so
 *   is the memory for them.
 *
 * How it works:
 *   - A lock is a struct of its owner's. Locks of names and inodes are exclusive.
 *   - A name's lock brings a shared hold on its directory's fragment. A lock of the whole fragment
 *     waits for all of these.
 *   - Waiting is in the order of arrival. granted() is called from inside another lock's release,
 *     and should do no more than start the next step.
 *   - A look is no lock. It waits for the *hard* holders that were there when it came, and then
 *     holds nothing. The change of a hard holder is being decided over several shards.
 *   - A holder that will never let go says so (lpi_lock_fail()). Locks and looks that wait for it,
 *     or come later, are refused.
 *
 * The order in which owners must ask is in namespace/change/README.md. Nothing here finds circles.
 */
#ifndef LP_NAMESPACE_STATE_LOCKS_H
#define LP_NAMESPACE_STATE_LOCKS_H

#include <errno.h>

#include "base/struct/list.h"
#include "store/record/types.h"

struct lpi_locks;
struct lpi_lock_entry;

enum lpi_lock_kind {
	LPI_LOCK_TOKEN, /* the only one: of the operation that moves a directory */
	LPI_LOCK_NAME,
	LPI_LOCK_INODE,
	LPI_LOCK_FRAGMENT /* all names of a directory on this shard */
};

/* Zeroed memory is an idle lock. kind, ino, hash, sibling and granted are set before it is asked
 * for. */
struct lpi_lock {
	enum lpi_lock_kind kind;
	struct lp_ino ino; /* NAME, FRAGMENT: the directory */
	uint64_t hash;     /* NAME: lpi_lock_hash() */
	/* NAME: another name of the same directory and shard that the owner holds, or NULL. With it
	 * the owner does not wait for locks that wait for that name. */
	const struct lpi_lock *sibling;
	void (*granted)(struct lpi_lock *lock);
	/* Private. */
	struct lpi_lock_entry *fragment; /* NAME: of its directory, shared */
	struct lpi_lock_entry *entry;
	struct lp_list_node node; /* where it waits */
	uint64_t seq;             /* order: of a look's arrival, or of a lock becoming hard */
	uint32_t looks_left;      /* a look: hard holders to wait for */
	int result;               /* -EIO: it is not held, and no owner will get it any more */
	bool is_held;
	bool is_hard;
};

/* -ENOMEM. */
int lpi_locks_new(uint32_t locks_max, struct lpi_locks **ret_locks) LP_MUST_CHECK;
/* Only failed locks may be held or waited for; it does not touch them. Accepts NULL. */
void lpi_locks_free(struct lpi_locks *locks);

/* The hash of a name, for its lock. Names that share a hash share a lock. */
uint64_t lpi_lock_hash(const void *name, size_t len);

/* True when the lock is held now, or never will be: see result. Otherwise granted() is called
 * then. */
bool lpi_lock_acquire(struct lpi_locks *locks, struct lpi_lock *lock) LP_MUST_CHECK;
/* From now on looks wait for this lock, which is held. */
void lpi_lock_harden(struct lpi_locks *locks, struct lpi_lock *lock);
/* The lock is held before, and idle afterwards. */
void lpi_lock_release(struct lpi_locks *locks, struct lpi_lock *lock);
/* The lock is held, and stays held until the table is freed. */
void lpi_lock_fail(struct lpi_locks *locks, struct lpi_lock *lock);

/* True when no hard holder is in the way now. Otherwise granted() is called when those that were
 * there have ended. In both cases the look is idle then. With result -EIO a holder has failed. */
bool lpi_lock_look(struct lpi_locks *locks, struct lpi_lock *look) LP_MUST_CHECK;

static inline bool lpi_lock_is_held(const struct lpi_lock *lock)
{
	return lock->is_held;
}

/* Locks that are hard now. */
uint32_t lpi_locks_hard(const struct lpi_locks *locks);
/* Keys that are held or waited for. */
uint32_t lpi_locks_cnt(const struct lpi_locks *locks);
/* How often a lock or a look had to wait. */
uint64_t lpi_locks_waits(const struct lpi_locks *locks);

#endif
