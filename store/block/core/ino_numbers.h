/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers of inodes, and which of them no record can have. */
#ifndef LP_STORE_BLOCK_CORE_INO_NUMBERS_H
#define LP_STORE_BLOCK_CORE_INO_NUMBERS_H

#include "store/record/types.h"

struct lpi_block;

#define LPI_FRESH_INOS 4096u /* more than transactions at work, which take numbers one by one */

struct lpi_ino_numbers {
	uint64_t next; /* the next counter to be given */
	/* For the last LPI_FRESH_INOS counters given: a bit for each that no create has used, so
	 * that the index need not be searched for a record that it cannot have. */
	uint64_t fresh[LPI_FRESH_INOS / 64];
	uint64_t bound; /* below it all numbers may be in use: `S inodes` has it */
};

/* The store has given the number since it was opened, and it was not used: no record of it was ever
 * written. */
bool lpi_ino_is_fresh(const struct lpi_block *block, struct lp_ino ino);
/* The next number; it is fresh. */
struct lp_ino lpi_ino_new(struct lpi_block *block);
/* A new inode uses the number, in the turn that applies it. */
void lpi_ino_use(struct lpi_block *block, struct lp_ino ino);
/* Puts the new bound into the collecting group: after a crash no number up to this one is given
 * again. */
void lpi_ino_set_aside(struct lpi_block *block, struct lp_ino ino);
/* Reads the bound below which numbers may be in use. */
int lpi_ino_open(struct lpi_block *block) LP_MUST_CHECK;

#endif
