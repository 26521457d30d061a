/* SPDX-License-Identifier: Apache-2.0 */
/* Return of the allocator's free memory to the system (P5).
 *
 * Threads: one, the reactor's.
 * Blocking: a look reads /proc.
 * Memory, errors: none.
 *
 * When stores at rest have emptied their caches, this memory is given back to the system as well,
 * however little memory the process has.
 *
 * The memory budget bounds what the daemon uses. It does not bound the memory that an allocator
 * keeps in holes between used blocks. Only this module does.
 *   1. When the process has more than it was allowed, and a share, a helper has the allocator give
 *      back free memory. That takes the allocator's locks for milliseconds. So it is not done
 *      before it is needed, and less and less often where it does not help.
 *   2. What cannot be given back the stores' caches do without: lost_bytes grows while there is too
 *      much, and shrinks, more slowly, while there is less than was allowed. With fewer blocks in
 *      the caches there are fewer holes, and new blocks find place in those.
 */
#ifndef LP_DAEMON_REPORT_GIVEBACK_H
#define LP_DAEMON_REPORT_GIVEBACK_H

#include "base/loop/workers.h"

#define LPI_GIVEBACK_BACKOFF_MAX_NS (UINT64_C(64) * LP_NS_PER_S)
#define LPI_GIVEBACK_LOST_SHARE     4u /* of the memory, the most that the caches do without */

struct lpi_giveback {
	struct lp_work work;
	uint64_t memory_bytes; /* the memory that was allowed */
	uint64_t limit_bytes;  /* more resident memory than this is too much */
	uint64_t lost_bytes;   /* lost to holes that cannot be given back; for
				  lp_store_set_lost_bytes() */
	uint64_t next_ns;      /* not before */
	uint64_t wait_ns;      /* doubled each time that a release did not help */
	uint64_t cnt;          /* how often memory was given back */
	bool is_busy;
	bool is_short;     /* at the last look */
	uint32_t rest_cnt; /* checks since then at which stores gave memory to the allocator */
};

void lpi_giveback_init(struct lpi_giveback *giveback, uint64_t memory_bytes);
/* Called before a look. has_given: stores at rest have given memory back since the last one. */
void lpi_giveback_rest(struct lpi_giveback *giveback, bool has_given, struct lp_workers *workers,
		       struct lp_reactor *reactor);
/* Called at intervals. */
void lpi_giveback_look(struct lpi_giveback *giveback, struct lp_workers *workers,
		       struct lp_reactor *reactor);
/* Whether the process had too much memory at the last look. */
bool lpi_giveback_is_short(const struct lpi_giveback *giveback);
/* Whether no helper is at work. */
bool lpi_giveback_is_idle(const struct lpi_giveback *giveback);

#endif
