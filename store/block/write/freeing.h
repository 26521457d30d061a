/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks that will soon be free, and how long a request that finds none waits for them.
 *
 * Threads: the shard's. Blocking, allocation, errors: none.
 * Limits: LPI_HOPES_IDLE checks without progress, LPI_HOPES_MAX checks in all.
 *
 * A store is full only when no block that had been freed at the time of the request is still on its
 * way (P6). Such blocks pass three stages: the work that frees in steps (rule S6), the commits that
 * make it durable, then the I/O and the discards on the blocks (rule S3). The request waits for one
 * stage after the other, for each up to where it stood when the one before had been passed. So
 * requests that free and take space all the time keep no other request waiting. Blocks that are
 * held (a block that cannot be written, a record in the index) are not waited for.
 *
 * A request whose last look for space was before the last of these blocks came tries once more.
 *
 * The wait has no timeout. It ends when the blocks are free, when no more can become free, or when
 * the limits of checks are reached.
 */
#ifndef LP_STORE_BLOCK_WRITE_FREEING_H
#define LP_STORE_BLOCK_WRITE_FREEING_H

#include <stdbool.h>
#include <stdint.h>

#include "store/store.h"

/* Counted checks: without any progress; and in all. Checks that come because memory was given back
 * do not count: thousands of them pass before any block could have moved. */
#define LPI_HOPES_IDLE 10000u
#define LPI_HOPES_MAX  60000u
#define LPI_HOPES_NS   LP_NS_PER_MS /* from one counted check to the next, at least */

struct lpi_block;

/* State of one transaction; zeroed when it begins. */
struct lpi_hope {
	struct lp_store_freeing freeing;
	uint64_t released_blocks; /* in all, at its last try */
	uint64_t progress;
	uint64_t counted_ns; /* time of the last counted check */
	uint32_t idle_cnt;
	uint32_t cnt;
	bool is_last;
};

/* See lp_store_is_freeing(). */
bool lpi_block_is_freeing(const struct lpi_block *block, struct lp_store_freeing *since);

/* The transaction is about to look for space. */
void lpi_hope_tries(struct lpi_hope *hope, const struct lpi_block *block);
/* The transaction found none: whether it is worth trying again, a moment later. */
bool lpi_hope_goes_on(struct lpi_hope *hope, const struct lpi_block *block);

/* Whether a check counts, the last counted one being at *counted_ns; 0: there was none. */
bool lpi_hope_counts(uint64_t *counted_ns, const struct lpi_block *block);

#endif
