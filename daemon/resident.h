/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of a thread's buffers: registered as it is used, and returned to the system when idle.
 *
 * Buffers get their memory as they are used, from the lowest on (base/memory/buf.h). They are
 * registered with the kernel up to the highest used one. Registered memory is pinned, so
 * registering all of it at the start would keep all of it resident for ever. A check each second
 * registers the buffers that were used since the last one. Until then their I/O is not registered
 * I/O.
 *
 * Memory that no buffer has used in a whole period of `idle`, and in the one before it, is
 * unregistered and returned to the system. So the memory of a load stays while it runs and for
 * `idle` after it, however short its pauses are. While the process has more memory than it was
 * allowed, a period is LPI_RESIDENT_SHORT_NS, because memory left by an earlier load is in the way
 * of the present one. Requests are watched in the same way: a thread is at rest when no request has
 * ended, and none was under way, for `idle`. Then its stores' caches may go, too.
 *
 * Threads: the thread's own. Blocking: registering takes the kernel some 10 us for each MiB that it
 * has not pinned yet. Allocation: none. Errors: none: what the kernel does not register is used
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
	struct lp_account pinned; /* registered part of memory */
	struct lp_reactor *reactor;
	struct lp_bufs *bufs;
	bool registers;            /* unless I/O bypasses the ring */
	uint64_t registered_bytes; /* at most */
	uint64_t
		refused_bytes; /* more than this the kernel did not register; 0: it never refused */
	uint64_t reached_bytes; /* the highest use in this period */
	uint64_t before_bytes;  /* the same in the one before */
	uint64_t period_began_ns;
	uint64_t moved;    /* requests that had ended at the last check */
	uint64_t moved_ns; /* when `moved` last changed, or a request was under way */
};

struct lpi_resident_look {
	uint64_t idle_ns;   /* 0: used memory stays for ever */
	bool is_short;      /* the process has more memory than it was allowed */
	uint64_t moved;     /* all requests that have ended */
	uint64_t under_way; /* now */
};

void lpi_resident_init(struct lpi_resident *resident, struct lp_reactor *reactor,
		       struct lp_bufs *bufs, bool registers, unsigned thread_idx);
/* Nothing is registered any more, and no check follows. Accepts zeroed memory. */
void lpi_resident_fini(struct lpi_resident *resident);
/* Called each second or so. True: the thread is at rest. */
bool lpi_resident_look(struct lpi_resident *resident, const struct lpi_resident_look *look);

#endif
