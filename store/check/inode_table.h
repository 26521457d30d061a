/* SPDX-License-Identifier: Apache-2.0 */
/* Table of inodes for the check of names, bounded: inodes that do not fit wait for a round.
 *
 * Threads: one.
 * Blocking: none.
 * Memory: allocated at init.
 * Errors: -ENOMEM at init.
 *
 * A round has the inodes whose hash ends in a given pattern of bits. When the limit is reached
 * the pattern grows by a bit, and inodes that do not fit it any more are left to a later round.
 * An inode in the table is counted in full, whenever that happens, as long as all inodes are put
 * in before anything is counted.
 */
#ifndef LP_STORE_CHECK_INODE_TABLE_H
#define LP_STORE_CHECK_INODE_TABLE_H

#include "store/record/types.h"

#define LPI_FSCK_ROUND_BITS_MAX 32u

struct lpi_fsck_node {
	uint64_t ino; /* 0: an empty place */
	uint64_t parent;
	uint32_t nlink;
	uint32_t names;   /* entries that point to it */
	uint32_t subdirs; /* entries of it that are directories */
	uint8_t type;
	bool is_sound : 1;      /* the record could be read: what is above is known */
	bool is_unfinished : 1; /* has a U record */
	bool is_going : 1;      /* by that it is to be deleted: orphan, upload */
	bool is_removal : 1;    /* by that a removal goes on, or it is a bad one */
	bool is_removed : 1;    /* the record says that it has been: nobody sees it any more */
	bool is_misplaced : 1;  /* an entry points to it from elsewhere than it says */
	bool is_spread : 1;     /* its entries are on all shards */
	bool is_followed : 1;   /* its way up to a root was looked at */
};

struct lpi_fsck_round {
	uint32_t pattern;
	uint32_t bits;
};

struct lpi_fsck_names {
	struct lpi_fsck_node *nodes;
	uint64_t places; /* a power of two, as the next one */
	uint64_t places_max;
	uint64_t cnt;
	struct lpi_fsck_round now;
	struct lpi_fsck_round later[LPI_FSCK_ROUND_BITS_MAX + 1];
	uint32_t later_cnt;
};

int lpi_fsck_names_init(struct lpi_fsck_names *names, uint64_t bytes_max) LP_MUST_CHECK;
void lpi_fsck_names_fini(struct lpi_fsck_names *names);

/* The inode belongs to this round. */
bool lpi_fsck_names_has_turn(const struct lpi_fsck_names *names, struct lp_ino ino);
/* Puts in an inode of this round, unless it is there; NULL when the round has just become smaller
 * and it is not of it any more. Valid until the next one. */
struct lpi_fsck_node *lpi_fsck_names_add(struct lpi_fsck_names *names, struct lp_ino ino);
/* NULL: not there. */
struct lpi_fsck_node *lpi_fsck_names_find(struct lpi_fsck_names *names, struct lp_ino ino);
/* Empty, for the next round. False when that was the last. */
bool lpi_fsck_names_next_round(struct lpi_fsck_names *names);

#endif
