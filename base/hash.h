/* SPDX-License-Identifier: Apache-2.0 */
/* Hashes of names and keys, for placement and tables (XXH3 of xxHash).
 *
 * Threads: any.
 * Blocking, memory, errors: none. buf may be NULL when len is 0.
 *
 * OUTPUTS ARE PERSISTED: which shard holds a directory entry follows from them. For the same bytes
 * and seed they may never change, on any machine, in any later version. The values of XXH3 are
 * frozen since version 0.8 of xxHash; the test holds golden values. Another hash gets another name.
 *
 * It is not for integrity (base/crc32c.h is) and not for secrets. A user that chooses the input can
 * make collisions, so a table of foreign keys takes a seed that the user does not know.
 */
#ifndef LP_BASE_HASH_H
#define LP_BASE_HASH_H

#include "base/compiler.h"

struct lp_hash128 {
	uint64_t low;
	uint64_t high;
};

uint64_t lp_hash_u64(const void *buf, size_t len, uint64_t seed);
struct lp_hash128 lp_hash_u128(const void *buf, size_t len, uint64_t seed);

#endif
