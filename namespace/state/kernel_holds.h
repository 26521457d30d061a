/* SPDX-License-Identifier: Apache-2.0 */
/* Lookup counts: how often a mount's kernel was told of each inode of this shard (rule N5).
 *
 * Threads: the shard's, except lpi_held_may().
 * Blocking: none.
 * Memory: the table grows and shrinks by pieces, one at a time, each in less than a millisecond at
 *   ten million inodes. 16 bytes for each inode, at most 43 with empty places, and LPI_HELD_MARKS
 *   marks.
 * Errors: none. Without memory an inode is not counted. What is forgotten more often than it was
 *   counted is forgotten. Both are in the counters.
 * Limits: none of its own; the kernel decides what it remembers.
 *
 * The kernel counts how often it was given a number, and says when it has forgotten it as often.
 */
#ifndef LP_NAMESPACE_STATE_KERNEL_HOLDS_H
#define LP_NAMESPACE_STATE_KERNEL_HOLDS_H

#include "store/store.h"

/* What other threads look at: a power of two. */
#define LPI_HELD_MARKS 65536u

struct lpi_held;

struct lpi_held_stats {
	uint64_t inodes;
	uint64_t bytes;      /* of the table */
	uint64_t uncounted;  /* there was no memory for it */
	uint64_t unbalanced; /* forgotten, but never counted */
};

int lpi_held_new(struct lpi_held **ret_held) LP_MUST_CHECK;
/* Accepts NULL. */
void lpi_held_free(struct lpi_held *held);

void lpi_held_add(struct lpi_held *held, struct lp_ino ino);
/* One more was told of that is not counted: from now on nobody knows, as without memory. */
void lpi_held_miss(struct lpi_held *held);
/* True when that was the last of it. */
bool lpi_held_drop(struct lpi_held *held, struct lp_ino ino, uint64_t count);
/* 0: nobody knows of it. */
uint64_t lpi_held_cnt(const struct lpi_held *held, struct lp_ino ino);
/* As far as is known: as above, but yes to all while any could not be counted. */
bool lpi_held_is(const struct lpi_held *held, struct lp_ino ino);
/* No only if nobody knows of it. Any thread. Who adds an inode does so before he looks at what he
 * will tell of it. So whoever learns of a change from the thread where it was made, and then asks
 * here, is told of everybody who had looked at that thread before: the look comes between the two.
 */
bool lpi_held_may(const struct lpi_held *held, struct lp_ino ino);
/* Some of them, others each time; returns how many. */
uint32_t lpi_held_some(struct lpi_held *held, struct lp_ino *ret_inos, uint32_t inos_max);
/* Nobody knows of anything any more. */
void lpi_held_clear(struct lpi_held *held);

void lpi_held_read_stats(const struct lpi_held *held, struct lpi_held_stats *ret_stats);

#endif
