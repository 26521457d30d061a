/* SPDX-License-Identifier: Apache-2.0 */
/* The queue behind messages between threads: many senders, one receiver, intrusive.
 *
 * Threads: push and claim_wake by any; take, is_empty and the setting of `asleep` by the receiver.
 *
 * A sender links its messages into a chain, newest first, and pushes the chain with one
 * compare-and-swap; the receiver takes all messages with one exchange and reverses their order. So
 * the order of each sender is kept, and a batch costs one contended operation at each end. The
 * inbox is never full: the messages live in bounded pools of their senders.
 *
 * `asleep` is half of the wake-up protocol. The receiver sets it, looks into the inbox once more,
 * and only then sleeps; the sender pushes, then looks at it. All four accesses are sequentially
 * consistent, so at least one side sees the other: no message waits beside a sleeper.
 */
#ifndef LP_BASE_LOOP_INBOX_H
#define LP_BASE_LOOP_INBOX_H

#include <stdatomic.h>

#include "base/compiler.h"

struct lp_reactor;

struct lp_msg {
	struct lp_msg *next; /* the queue's, from send until deliver() */
	/* On the receiver's thread. The message is the receiver's from here on. */
	void (*deliver)(struct lp_reactor *to, struct lp_msg *msg);
};

struct lp_inbox {
	LP_CACHE_ALIGNED _Atomic(struct lp_msg *) newest;
	LP_CACHE_ALIGNED _Atomic uint32_t asleep;
};

/* A chain from newest to oldest along next. */
static inline void lp_inbox_push(struct lp_inbox *inbox, struct lp_msg *newest,
				 struct lp_msg *oldest)
{
	struct lp_msg *head = atomic_load_explicit(&inbox->newest, memory_order_relaxed);
	do {
		oldest->next = head;
	} while (!atomic_compare_exchange_weak(&inbox->newest, &head, newest));
}

/* True for exactly one of the senders that find the receiver asleep. This sender must wake it. */
static inline bool lp_inbox_claim_wake(struct lp_inbox *inbox)
{
	return atomic_load(&inbox->asleep) != 0 && atomic_exchange(&inbox->asleep, 0) != 0;
}

static inline bool lp_inbox_is_empty(struct lp_inbox *inbox)
{
	return atomic_load(&inbox->newest) == NULL;
}

/* All messages, oldest first along next; NULL if there are none. *ret_last is the newest. */
static inline struct lp_msg *lp_inbox_take(struct lp_inbox *inbox, struct lp_msg **ret_last)
{
	/* A plain look first: an empty inbox must not cost a write to a shared line each turn. */
	if (atomic_load_explicit(&inbox->newest, memory_order_relaxed) == NULL)
		return NULL;
	struct lp_msg *msg = atomic_exchange_explicit(&inbox->newest, NULL, memory_order_acquire);
	struct lp_msg *oldest_first = NULL;
	*ret_last = msg;
	while (msg != NULL) {
		struct lp_msg *older = msg->next;
		msg->next = oldest_first;
		oldest_first = msg;
		msg = older;
	}
	return oldest_first;
}

#endif
