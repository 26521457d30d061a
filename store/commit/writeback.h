/* SPDX-License-Identifier: Apache-2.0 */
/* Write-back of deferred payloads to their place, with the flush (rules L3, S4).
 *
 * Threads: the reactor's.
 * Blocking: none.
 * Memory: none is allocated after new.
 * Errors: a failed write is tried again a bounded number of times, in the end block by block.
 * Then the owner may take the payload over (rule L6). If it does not, and when a flush has
 * failed, that is final: nothing is written any more (rule L7).
 *
 * It writes in batches, in device order, with neighbours in one write (design 5.7). After the
 * flush the log may forget the payloads. It lets payloads wait, so that rewrites of a block
 * coalesce and neighbours come together. It begins when there are many, when no more came for a
 * while, when they are old, or when room is needed in the log or a buffer that a payload has
 * (hurry).
 */
#ifndef LP_STORE_COMMIT_WRITEBACK_H
#define LP_STORE_COMMIT_WRITEBACK_H

#include "store/commit/deferred_payloads.h"
#include "store/device/bdev.h"

struct lp_writeback;

struct lp_writeback_events {
	/* Whether a block may be written now: no other I/O is on it. */
	bool (*may_write)(struct lp_writeback_events *events, uint64_t block);
	/* Writes of these blocks begin, and have ended. Between the two the blocks must not get a
	 * new owner. */
	void (*begins)(struct lp_writeback_events *events, struct lp_extent extent);
	void (*ended)(struct lp_writeback_events *events, struct lp_extent extent);
	/* Payloads are in their blocks, durably: lp_pending_oldest_seq() may have moved. */
	void (*settled)(struct lp_writeback_events *events);
	/* Called once: the device failed. */
	void (*failed)(struct lp_writeback_events *events, int err);
	/* The host of an image file has no space for waiting payloads. The writes are tried again
	 * for ever. May be NULL. */
	void (*full)(struct lp_writeback_events *events);
	/* The block cannot be written, and its version will be stuck
	 * (store/commit/deferred_payloads.h). False: the device counts as failed. May be NULL. */
	bool (*unwritable)(struct lp_writeback_events *events, uint64_t block);
};

struct lp_writeback_options {
	struct lp_reactor *reactor;
	struct lp_bdev_chan *chan;
	struct lp_pending *pending;
	struct lp_writeback_events *events;
	uint64_t start_versions;           /* this many waiting payloads start a round, */
	uint64_t wait_ns;                  /* or this long without a new one, */
	uint64_t old_ns;                   /* or this long a wait of the oldest, or twice that */
	struct lp_bdev_observer *observer; /* of writes and flushes; or NULL */
};

struct lp_writeback_stats {
	uint64_t writes;
	uint64_t blocks;
	uint64_t flushes;
	uint64_t retries;
};

int lp_writeback_new(const struct lp_writeback_options *options,
		     struct lp_writeback **ret_writeback) LP_MUST_CHECK;
/* Nothing may be in flight. Accepts NULL. */
void lp_writeback_free(struct lp_writeback *wb);

/* Payloads became durable: looks whether it is time to begin. */
void lp_writeback_look(struct lp_writeback *wb);
/* Payloads that became durable with this frame or before go to their blocks without waiting. */
void lp_writeback_hurry(struct lp_writeback *wb, uint64_t seq);
/* Begins no new write; writes in flight end. */
void lp_writeback_stop(struct lp_writeback *wb);
/* The last attempt found no space. */
bool lp_writeback_is_full(const struct lp_writeback *wb);
/* No write is in flight, and after lp_writeback_stop() none will begin. */
bool lp_writeback_is_idle(const struct lp_writeback *wb);
const struct lp_writeback_stats *lp_writeback_stats(const struct lp_writeback *wb);

#endif
