/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of the operations under way at one moment, to find out why nothing moves.
 *
 * Threads: rows are filled on the thread that has the work, and then handed on.
 * Blocking, memory, errors: none.
 *
 * Each part of the daemon reports its work: the doors report requests, the namespace reports
 * operations that wait for buffers or space, and the store reports transactions and reads. A
 * request of a door and the operations that it has led to are rows of their own. They belong
 * together by the inode or the object's name.
 */
#ifndef LP_BASE_UNDER_WAY_H
#define LP_BASE_UNDER_WAY_H

#include <stddef.h>
#include <stdint.h>

#define LP_UNDER_WAY_MAX 64u /* rows of one part of one shard */

/* All texts are static. */
struct lp_under_way {
	const char
		*part; /* the part of the daemon that has it: "socket", "mount", "names", "store" */
	const char *operation; /* such as "put" */
	const char *state;     /* by the name that counters use */
	const char *waits_for; /* NULL: for nothing known to this part */
	uint64_t age_ns;       /* since it began, or began to wait */
	uint64_t held_bytes;   /* of buffers */
	uint64_t ino_nr;       /* 0: no inode is known */
	char object[96];       /* the end of its path, or empty */
};

/* A list that takes rows; those beyond the maximum are only counted. */
struct lp_under_way_list {
	struct lp_under_way *rows;
	uint32_t max;
	uint32_t cnt; /* rows filled */
	uint64_t all; /* also those without a place */
};

/* A cleared row; NULL: the list is full. */
static inline struct lp_under_way *lp_under_way_add(struct lp_under_way_list *list)
{
	list->all++;
	if (list->cnt == list->max)
		return NULL;
	struct lp_under_way *row = &list->rows[list->cnt++];
	*row = (struct lp_under_way){.object = ""};
	return row;
}

#endif
