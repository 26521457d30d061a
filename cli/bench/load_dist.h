/* SPDX-License-Identifier: Apache-2.0 */
/* What a load draws at random: sizes, and places (objects, or ranges of files).
 *
 * Sizes are written "4K", "4K-1M" (uniform between both), "4K~1M" (uniform in its logarithm, as
 * many small ones as large ones), or several of these with their weights: "4K:70,64K:20,1M:10".
 *
 * Threads: each struct belongs to one. Blocking, allocation: none.
 */
#ifndef LP_CLI_BENCH_LOAD_DIST_H
#define LP_CLI_BENCH_LOAD_DIST_H

#include "base/prng.h"

/* --- Sizes ------------------------------------------------------------------------------------ */

#define LPI_LOAD_SIZES_MAX 16u
#define LPI_LOAD_UNIT_MAX  4096u

struct lpi_load_size {
	uint64_t low_bytes;
	uint64_t high_bytes; /* the same: no range */
	bool is_log;
	uint32_t weight;
};

struct lpi_load_sizes {
	struct lpi_load_size items[LPI_LOAD_SIZES_MAX];
	uint32_t cnt;
	uint64_t weight_sum;
	uint64_t low_bytes; /* of all */
	uint64_t high_bytes;
	uint64_t
		unit_bytes; /* a power of two, at most LPI_LOAD_UNIT_MAX, that divides every size */
};

/* -EINVAL: is no such thing; -ERANGE: a size of 0, a number that is too large. */
int lpi_load_sizes_parse(const char *text, struct lpi_load_sizes *ret_sizes) LP_MUST_CHECK;
/* The size that belongs to a random number: always the same one. */
uint64_t lpi_load_sizes_pick(const struct lpi_load_sizes *sizes, uint64_t random);
/* Spreads the bits of a number over all of the result: neighbours have nothing in common. */
uint64_t lpi_load_mix(uint64_t number);

/* --- Places ----------------------------------------------------------------------------------- */

enum lpi_load_order { LPI_LOAD_SEQUENTIAL, LPI_LOAD_UNIFORM, LPI_LOAD_ZIPF };

/* With LPI_LOAD_ZIPF the place of rank k is drawn with a probability of k^-theta; which places are
 * the frequent ones depends on their number only, and they lie far from each other. */
struct lpi_load_places {
	enum lpi_load_order order;
	uint64_t cnt;
	uint64_t next; /* sequential */
	uint64_t step; /* of one rank to the next; has no divisor in common with cnt */
	/* The integral of x^-theta, at the ends of the ranks; and how near to a whole number is
	 * near enough. */
	double theta;
	double low;
	double high;
	double near;
};

/* cnt > 0; theta > 0. */
void lpi_load_places_init(struct lpi_load_places *places, enum lpi_load_order order, double theta,
			  uint64_t cnt);
uint64_t lpi_load_places_next(struct lpi_load_places *places, struct lp_prng *prng);

#endif
