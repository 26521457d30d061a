/* SPDX-License-Identifier: Apache-2.0 */
/* What the fuzzers of single records share: a checksum made right, so that an input comes past it,
 * and memory of exactly the input's length, so that the sanitizer sees a read behind its end.
 *
 * Threads: any. Ownership: a copy is the caller's to free. Errors: none; no memory is asserted.
 */
#ifndef LP_TESTS_FUZZ_REPAIR_H
#define LP_TESTS_FUZZ_REPAIR_H

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/crc32c.h"
#include "base/endian.h"

/* Over len bytes in which the crc field itself counts as zero. */
static inline void lpi_fuzz_repair_crc(uint8_t *record, size_t len, size_t crc_off)
{
	LP_ASSERT(crc_off + sizeof(uint32_t) <= len);
	lp_put_le32(record + crc_off, 0);
	lp_put_le32(record + crc_off, lp_crc32c(0, record, len));
}

static inline uint8_t *lpi_fuzz_copy(const uint8_t *bytes, size_t len)
{
	uint8_t *copy = calloc(LP_MAX(len, (size_t)1), 1);
	LP_ASSERT(copy != NULL);
	if (len > 0)
		memcpy(copy, bytes, len);
	return copy;
}

#endif
