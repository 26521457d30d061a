/* SPDX-License-Identifier: Apache-2.0 */
#include "base/hash.h"

#include <xxhash.h>

#include "base/assert.h"

uint64_t lp_hash_u64(const void *buf, size_t len, uint64_t seed)
{
	LP_ASSERT(buf != NULL || len == 0);
	return XXH3_64bits_withSeed(buf, len, seed);
}

struct lp_hash128 lp_hash_u128(const void *buf, size_t len, uint64_t seed)
{
	LP_ASSERT(buf != NULL || len == 0);
	XXH128_hash_t hash = XXH3_128bits_withSeed(buf, len, seed);
	return (struct lp_hash128){.low = hash.low64, .high = hash.high64};
}
