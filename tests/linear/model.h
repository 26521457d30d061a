/* SPDX-License-Identifier: Apache-2.0 */
/* What a group of objects is, and what each act does to it when it happens all at once: the
 * sequential specification that histories are judged by.
 *
 * A state is names that lead to inodes, inodes with data, an xattr and a version, and the handles
 * that clients have. Of a group that may lose (LPI_LOSSY) it has the contents that were there since
 * something was durable, too: a crash leaves any of them, for the order within one inode is kept
 * (rule M1). Such a group is one object, n0, that always has this name.
 *
 * Versions are known where somebody was told one. An act between makes the next one unknown, but
 * higher.
 *
 * Threads: plain data, pure functions. Errors: none.
 */
#ifndef LP_TESTS_LINEAR_MODEL_H
#define LP_TESTS_LINEAR_MODEL_H

#include "base/hash.h"
#include "tests/linear/act.h"

#define LPI_INODES (LPI_NAMES + 2 * (LPI_CLIENTS + 1) + 1)
#define LPI_PAST   24u

struct lpi_content {
	uint64_t cells[LPI_CELLS];
	uint64_t xattr; /* 0: there is none */
	uint32_t cell_cnt;
	uint32_t reserved;
};

struct lpi_group_inode {
	struct lpi_content content;
	uint64_t version;     /* 0: not known */
	uint64_t version_min; /* then it is this at least */
	uint32_t nlink;
	uint32_t is_used;
};

struct lpi_group_state {
	struct lpi_group_inode inodes[LPI_INODES];
	int16_t names[LPI_NAMES]; /* of inodes; -1: there is none */
	int16_t handles[LPI_CLIENTS + 1];
	int16_t found[LPI_CLIENTS + 1]; /* by acts by name, which have not yet done anything */
	uint8_t may_lose;
	/* What copies have taken, and not yet put anywhere. */
	uint8_t has_taken[LPI_CLIENTS + 1];
	uint32_t past_cnt;
	struct lpi_content taken[LPI_CLIENTS + 1];
	struct lpi_content past[LPI_PAST]; /* oldest first */
};

enum lpi_step {
	LPI_STEP_NO,  /* it cannot have had this outcome here */
	LPI_STEP_YES, /* *ret_next is what it leaves */
	LPI_STEP_END  /* there is no such choice */
};

void lpi_state_init(struct lpi_group_state *state);
/* Of an act that leaves several possible states `choice` says which: 0, 1, ... until
 * LPI_STEP_END. ret_next is written in any case. */
enum lpi_step lpi_state_step(const struct lpi_group_state *state, const struct lpi_act *act,
			     unsigned choice, struct lpi_group_state *ret_next);
/* The same of two states exactly if nothing tells them apart. */
struct lp_hash128 lpi_state_hash(const struct lpi_group_state *state);
void lpi_state_print(const struct lpi_group_state *state, FILE *file);

#endif
