/* SPDX-License-Identifier: Apache-2.0 */
/* Lookup counts: how often a mount's kernel was told of each inode of this shard (rule N5).
 *
 * Threads: the shard's, except lpi_held_may().
 * Blocking: none.
 * Memory: the table grows and shrinks by pieces, one at a time, each in less than a millisecond at
 *   ten million inodes. 16 bytes for each inode, at most 43 with empty places, and LPI_HELD_MARKS
 *   marks.
 * Errors: none. Without memory an inode is not counted. An inode that the kernel forgets more often
 *   than it was counted is removed. Both are in the counters.
 * Limits: none of its own; the kernel decides which inodes it remembers.
 *
 * The kernel counts how often it was given a number, and reports when it has forgotten it as often.
 */
#ifndef LP_NAMESPACE_STATE_KERNEL_HOLDS_H
#define LP_NAMESPACE_STATE_KERNEL_HOLDS_H

#include "store/store.h"

/* Marks that other threads read: a power of two. */
#define LPI_HELD_MARKS 65536u

struct lpi_held;

struct lpi_held_stats {
	uint64_t inodes;
	uint64_t bytes;      /* of the table */
	uint64_t uncounted;  /* inodes not counted because memory was short */
	uint64_t unbalanced; /* forgotten, but never counted */
};

int lpi_held_new(struct lpi_held **ret_held) LP_MUST_CHECK;
/* Accepts NULL. */
void lpi_held_free(struct lpi_held *held);

void lpi_held_add(struct lpi_held *held, struct lp_ino ino);
/* The kernel was told of one more inode, which is not counted. From now on the table is incomplete,
 * as without memory. */
void lpi_held_miss(struct lpi_held *held);
/* True when no hold is left. */
bool lpi_held_drop(struct lpi_held *held, struct lp_ino ino, uint64_t count);
/* 0: no kernel holds it. */
uint64_t lpi_held_cnt(const struct lpi_held *held, struct lp_ino ino);
/* lpi_held_cnt() is not 0; true for every inode while any could not be counted. */
bool lpi_held_is(const struct lpi_held *held, struct lp_ino ino);
/* False only if no kernel holds the inode. Any thread. A thread adds an inode before it reads the
 * attributes that it will tell. So a caller that learns of a change from the thread that made it,
 * and then asks here, sees the hold of each reader that had read the old state on that thread. */
bool lpi_held_may(const struct lpi_held *held, struct lp_ino ino);
/* Returns some of the inodes, other ones at each call. */
uint32_t lpi_held_some(struct lpi_held *held, struct lp_ino *ret_inos, uint32_t inos_max);
/* No kernel holds anything any more. */
void lpi_held_clear(struct lpi_held *held);

void lpi_held_read_stats(const struct lpi_held *held, struct lpi_held_stats *ret_stats);

#endif
