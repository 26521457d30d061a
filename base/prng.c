/* SPDX-License-Identifier: Apache-2.0 */
/* xoshiro256** (Blackman, Vigna), seeded by SplitMix64 as its authors advise. */
#include "base/prng.h"

#include <string.h>

#include "base/assert.h"

static uint64_t splitmix(uint64_t *x)
{
	uint64_t z = (*x += UINT64_C(0x9e3779b97f4a7c15));
	z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
	return z ^ (z >> 31);
}

static uint64_t rotl(uint64_t x, unsigned bits)
{
	return (x << bits) | (x >> (64 - bits));
}

void lp_prng_init(struct lp_prng *prng, uint64_t seed)
{
	for (size_t i = 0; i < LP_ARRAY_SIZE(prng->state); i++)
		prng->state[i] = splitmix(&seed);
}

void lp_prng_fork(const struct lp_prng *prng, uint64_t stream, struct lp_prng *ret_fork)
{
	uint64_t seed = stream;
	for (size_t i = 0; i < LP_ARRAY_SIZE(prng->state); i++)
		seed = splitmix(&seed) ^ rotl(prng->state[i], (unsigned)(7 * i + 1));
	lp_prng_init(ret_fork, seed);
}

uint64_t lp_prng_u64(struct lp_prng *prng)
{
	uint64_t *s = prng->state;
	uint64_t result = rotl(s[1] * 5, 7) * 9;
	uint64_t t = s[1] << 17;
	s[2] ^= s[0];
	s[3] ^= s[1];
	s[1] ^= s[2];
	s[0] ^= s[3];
	s[2] ^= t;
	s[3] = rotl(s[3], 45);
	return result;
}

uint64_t lp_prng_below(struct lp_prng *prng, uint64_t limit)
{
	LP_ASSERT(limit > 0);
	/* Throws away draws from the uneven rest at the top: fewer than one in two. */
	uint64_t uneven = (UINT64_MAX % limit + 1) % limit;
	uint64_t draw = lp_prng_u64(prng);
	while (draw > UINT64_MAX - uneven)
		draw = lp_prng_u64(prng);
	return draw % limit;
}

uint64_t lp_prng_between(struct lp_prng *prng, uint64_t low, uint64_t high)
{
	LP_ASSERT(low <= high);
	if (low == 0 && high == UINT64_MAX)
		return lp_prng_u64(prng);
	return low + lp_prng_below(prng, high - low + 1);
}

bool lp_prng_chance(struct lp_prng *prng, uint32_t numerator, uint32_t denominator)
{
	return lp_prng_below(prng, denominator) < numerator;
}

double lp_prng_unit(struct lp_prng *prng)
{
	return (double)(lp_prng_u64(prng) >> 11) * 0x1.0p-53;
}

void lp_prng_fill(struct lp_prng *prng, void *buf, size_t len)
{
	unsigned char *to = buf;
	while (len > 0) {
		uint64_t draw = lp_prng_u64(prng);
		size_t part = LP_MIN(len, sizeof(draw));
		memcpy(to, &draw, part);
		to += part;
		len -= part;
	}
}
