/* SPDX-License-Identifier: Apache-2.0 */
/* Dropping of the kernel's cached pages after a write that has made them wrong.
 *
 * Threads: the channel's; threads of their own tell the kernel. They are not the notifier's, which
 *   may wait for a directory's lock, whose holder may wait for the lock of a file that a writer has
 *   (rule M3).
 * Blocking: none.
 * Memory: allocated in init.
 * Limits: LPI_FUSE_DROPS_MAX of a channel at a time. No write waits for more than
 *   LPI_FUSE_DROP_LIMIT_NS.
 *
 * fuse/kernel/pages.h says when pages may be wrong. The kernel hears that the write is done only
 * when they are dropped:
 *
 *   written   the store has done it; the request and its buffers are given back, so what the
 *             kernel waits for below never waits for them
 *   telling   a thread of its own writes INVAL_INODE. The kernel waits for pages that are being
 *             read, and for pages whose own write is under way: these requests are served meanwhile
 *   told      the same thread answers the write. One that came by io_uring keeps its request and
 *             its entry, and is answered on the channel's thread
 *
 * The kernel may wait for a page whose read it does not send before a write is answered. It has
 * only LP_FUSE_BACKGROUND_MAX requests by AIO and of readahead at a time, and only so many entries
 * of io_uring. So when most of these wait here (a crowd), a write is answered when the thread is
 * seen to be stuck at its last page. A page whose read comes later cannot be wrong. If all threads
 * are stuck, writes that wait for a thread are answered, too, and may show old data until one of
 * them goes on.
 *
 * A write through the cache may cover its last page in part. If that page was not there before, the
 * kernel keeps it locked until the answer, and it cannot be wrong either. So the kernel is told of
 * the last page by itself, after the others. If it is stuck there the write is answered.
 */
#ifndef LP_FUSE_KERNEL_DROP_H
#define LP_FUSE_KERNEL_DROP_H

#include "base/loop/workers.h"
#include "fuse/kernel/pages.h"
#include "fuse/request.h"

#define LPI_FUSE_DROPS_MAX      512u /* of a channel at a time */
#define LPI_FUSE_DROP_LIMIT_NS  (2 * LP_NS_PER_S)
#define LPI_FUSE_DROP_LOOK_NS   (10 * LP_NS_PER_MS) /* between two checks for a stuck thread */
#define LPI_FUSE_DROP_STUCK_NS  (50 * LP_NS_PER_MS) /* without an ended drop: all are stuck */
#define LPI_FUSE_DROPS_HURRY_AT (LP_FUSE_BACKGROUND_MAX / 4 * 3) /* of a mount at a time */

struct lpi_fuse_drop {
	struct lp_work work;
	struct lp_timer limit;
	struct lp_msg msg;                /* to the channel that has read the request */
	struct lp_fuse_channel *channel;  /* the channel where the write was done */
	struct lp_fuse_channel *home;     /* that has read the request, if no entry has it */
	struct lpi_fuse_request *request; /* that came by io_uring, until it is answered */
	_Atomic uint32_t *held_cnt;       /* of its queue; NULL: the request came by a descriptor */
	struct lp_ino ino;
	uint64_t offset;
	uint64_t length;    /* 0: to the end */
	uint64_t last_page; /* where the last page begins */
	uint64_t began_ns;
	uint64_t unique;
	int fd; /* home's */
	int err;
	uint32_t bytes;
	uint32_t fills;
	bool is_all;
	bool is_through;         /* the write was one through the cache */
	bool may_lock;           /* the kernel may lock the last page until the answer */
	bool was_stuck;          /* at the last check */
	_Atomic int tid;         /* of the thread that works on it; 0: not known */
	_Atomic bool is_at_last; /* all but the last page have been dropped */
	_Atomic bool is_answered;
};

struct lpi_fuse_drops {
	struct lp_pool *pool;
	struct lpi_fuse_list waiting; /* requests without a place in the pool */
	uint32_t cnt;                 /* at work */
	_Atomic uint32_t parked_cnt;  /* by this channel's descriptor: not answered, or not ended */
	_Atomic uint32_t held_cnt;    /* of all channels, of the first one: not answered */
	_Atomic uint64_t ended_ns;    /* in the first channel's: when the last drop ended */
};

int lpi_fuse_drops_init(struct lpi_fuse_drops *drops) LP_MUST_CHECK;
void lpi_fuse_drops_fini(struct lpi_fuse_drops *drops);

/* A write of so many bytes has been done; or, with an error, may have been done. False: there is
 * nothing to drop, and the caller answers. True: this module answers, and the caller must not touch
 * the request any more. */
bool lpi_fuse_drop(struct lpi_fuse_request *request, int err, uint32_t bytes);
/* Whether a drop is under way on this channel. */
bool lpi_fuse_is_dropping(const struct lp_fuse_channel *channel);
/* Whether an answer by the channel's descriptor is still to come. */
bool lpi_fuse_is_parking(const struct lp_fuse_channel *channel);

#endif
