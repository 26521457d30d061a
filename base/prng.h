/* SPDX-License-Identifier: Apache-2.0 */
/* Seeded pseudo-random numbers: the same sequence for the same seed.
 *
 * Threads: a struct lp_prng belongs to one.
 * Blocking, memory, errors: none.
 *
 * The sequence is the same on every machine and in every later version, because seeds are written
 * into bug reports. It is not for secrets.
 */
#ifndef LP_BASE_PRNG_H
#define LP_BASE_PRNG_H

#include "base/compiler.h"

struct lp_prng {
	uint64_t state[4]; /* xoshiro256**; never all zero */
};

void lp_prng_init(struct lp_prng *prng, uint64_t seed);
/* A generator of its own for `stream`, without moving `prng`: parts of a simulation draw from
 * their own streams, so that one more draw in one does not change the others. */
void lp_prng_fork(const struct lp_prng *prng, uint64_t stream, struct lp_prng *ret_fork);

uint64_t lp_prng_u64(struct lp_prng *prng);
/* Uniform in [0, limit), without bias; limit > 0. */
uint64_t lp_prng_below(struct lp_prng *prng, uint64_t limit);
/* Uniform in [low, high], both included. */
uint64_t lp_prng_between(struct lp_prng *prng, uint64_t low, uint64_t high);
/* True with probability numerator / denominator. */
bool lp_prng_chance(struct lp_prng *prng, uint32_t numerator, uint32_t denominator);
/* Uniform in [0, 1). */
double lp_prng_unit(struct lp_prng *prng);
void lp_prng_fill(struct lp_prng *prng, void *buf, size_t len);

#endif
