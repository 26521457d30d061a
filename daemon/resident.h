/* SPDX-License-Identifier: Apache-2.0 */
/* What a thread's buffers have of memory, and that they have it no longer than they use it.
 *
 * Buffers get their memory as they are used, from the lowest on (base/memory/buf.h), and are
 * registered with the kernel as far as that has come: what is registered is pinned, so all of it at
 * the start would be all of it resident for ever. A look, each second, registers what has been used
 * since the last one; until then I/O with it goes the ordinary way.
 *
 * What no buffer has come to in a whole period of `idle`, and in the one before it, is no longer
 * registered, and goes back to the system. So what a load uses stays while it runs and for `idle`
 * after it, however short its pauses are. While the process has more than it was allowed a period
 * is LPI_RESIDENT_SHORT_NS: what an earlier load has left is in the way of what this one needs. The
 * same is known of requests: a thread is at rest when none has ended, and none was under way, for
 * `idle`; then its stores' caches may go, too.
 *
 * Threads: the thread's own. Blocking: registering takes the kernel some 10 us for each MiB that
 * it has not pinned yet. Allocation: none. Errors: none: what the kernel does not register is used
 * without.
 */
#ifndef LP_DAEMON_RESIDENT_H
#define LP_DAEMON_RESIDENT_H

#include "base/loop/reactor.h"
#include "base/memory/account.h"
#include "base/memory/buf.h"

#define LPI_RESIDENT_SHORT_NS (2 * LP_NS_PER_S)

struct lpi_resident {
	struct lp_account memory; /* of the buffers */
	struct lp_account pinned; /* of it: registered */
	struct lp_reactor *reactor;
	struct lp_bufs *bufs;
	bool registers;            /* unless nobody does I/O by the ring */
	uint64_t registered_bytes; /* at most */
	uint64_t refused_bytes;    /* so many the kernel has not registered; 0: it never said so */
	uint64_t reached_bytes;    /* in this period */
	uint64_t before_bytes;     /* in the one before */
	uint64_t period_began_ns;
	uint64_t moved;    /* requests that had ended at the last look */
	uint64_t moved_ns; /* when that had changed, or one was under way */
};

struct lpi_resident_look {
	uint64_t idle_ns;   /* 0: what was used once stays */
	bool is_short;      /* the process has more memory than it was allowed */
	uint64_t moved;     /* requests that have ended, ever */
	uint64_t under_way; /* now */
};

void lpi_resident_init(struct lpi_resident *resident, struct lp_reactor *reactor,
		       struct lp_bufs *bufs, bool registers, unsigned thread_idx);
/* Nothing is registered any more, and no look follows. Accepts zeroed memory. */
void lpi_resident_fini(struct lpi_resident *resident);
/* Each second or so. True: the thread is at rest. */
bool lpi_resident_look(struct lpi_resident *resident, const struct lpi_resident_look *look);

#endif
