/* SPDX-License-Identifier: Apache-2.0 */
/* Draws operations on the whole namespace at random, from one seed: every kind with every option,
 * sizes and offsets at the edges; few names, so that they collide, or many, so that what lists them
 * takes several pages. What an operation is about is mostly there, as the model says, and sometimes
 * not.
 *
 * Threads: one. Errors, allocation: none.
 */
#ifndef LP_TESTS_WHOLE_DRAW_H
#define LP_TESTS_WHOLE_DRAW_H

#include "base/prng.h"
#include "tests/whole/model.h"

/* What a run is mostly about. */
enum lpi_whole_mood {
	LPI_WHOLE_MOOD_ALL,
	LPI_WHOLE_MOOD_DATA,
	LPI_WHOLE_MOOD_NAMES,
	LPI_WHOLE_MOOD_PATHS,
	LPI_WHOLE_MOOD_CNT
};

struct lpi_whole_draw {
	struct lp_prng prng;
	enum lpi_whole_mood mood;
	uint32_t next_id;
	uint32_t names;     /* so many are used */
	uint32_t pages_max; /* of all files together: then they are cut */
	bool orders;        /* some are acknowledged when they are ordered */
};

void lpi_whole_draw_init(struct lpi_whole_draw *draw, uint64_t seed);
void lpi_whole_draw_op(struct lpi_whole_draw *draw, const struct lpi_whole *whole,
		       struct lpi_whole_op *ret_op);

#endif
