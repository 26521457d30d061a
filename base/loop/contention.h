/* SPDX-License-Identifier: Apache-2.0 */
/* Contention: whether a thread has to wait for a processor.
 *
 * Threads: the one that has called init.
 * Blocking: none; one pread() of the proc file system each LP_CONTENTION_LOOK_NS.
 * Errors: none; where the kernel does not say, no thread waits.
 *
 * The scheduler records how long each thread was ready to run but did not run (run_delay, in
 * /proc/thread-self/schedstat). A thread that does not share its processor waits for less than a
 * hundredth of the time. A thread that must share waits for a tenth and more. So a thread can know
 * whether spinning takes the processor away from another one.
 */
#ifndef LP_BASE_LOOP_CONTENTION_H
#define LP_BASE_LOOP_CONTENTION_H

#include "base/clock.h"

#define LP_CONTENTION_LOOK_NS (100 * LP_NS_PER_MS)

struct lp_contention {
	int fd; /* -1: cannot be known */
	uint64_t looked_ns;
	uint64_t delay_ns; /* as of looked_ns */
	bool is_contended;
};

/* path: instead of the thread's own file, for tests; or NULL. */
void lp_contention_init(struct lp_contention *contention, const char *path, uint64_t now_ns);
void lp_contention_fini(struct lp_contention *contention);

/* Whether it waited for more than a twentieth of the time between the last two looks. */
bool lp_contention_look(struct lp_contention *contention, uint64_t now_ns);

#endif
