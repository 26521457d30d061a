/* SPDX-License-Identifier: Apache-2.0 */
/* Finding the one bit that flipped in bytes whose crc32c is known.
 *
 * Threads: any.
 * Blocking: none.
 * Memory: none is allocated.
 *
 * A crc32c tells any two byte strings apart that differ in one bit. So if one bit flipped, bytes
 * and crc tell what was there before. If more was damaged, bytes of n bits may be taken for
 * others with a chance of n in 2^32. So a user of this holds the result against something else as
 * well, or only reads data that has checksums of its own.
 */
#ifndef LP_STORE_SALVAGE_FLIPPED_BIT_H
#define LP_STORE_SALVAGE_FLIPPED_BIT_H

#include "base/compiler.h"

#define LP_MEND_NONE UINT64_MAX

struct lp_bdev;

/* Embedded by who wants to know of bits that were found. */
struct lp_mender {
	/* A block as it was before one bit of it flipped, aligned to its size. It may be written
	 * back. what: one line. */
	void (*mended)(struct lp_mender *mender, struct lp_bdev *bdev, uint64_t block,
		       const void *bytes, const char *what);
};

/* The bit, counted from the lowest of the first byte, that must flip so that the bytes, whose
 * crc32c is `found`, have the one that is wanted. LP_MEND_NONE: no single one does, or none must.
 */
uint64_t lp_mend_find(size_t len, uint32_t found, uint32_t wanted);

static inline void lp_mend_flip(void *bytes, uint64_t bit)
{
	((uint8_t *)bytes)[bit / 8] ^= (uint8_t)(1u << bit % 8);
}

#endif
