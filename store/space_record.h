/* SPDX-License-Identifier: Apache-2.0 */
/* The record of one chunk: what of it is in use as of a frame, as bytes (docs/format/space.md).
 * Private to store/.
 *
 * Threads: any. Blocking, allocation: none. Errors: -EBADMSG, -EUCLEAN for bytes that are not a
 * record of this chunk; nothing in them is trusted.
 */
#ifndef LP_STORE_SPACE_RECORD_H
#define LP_STORE_SPACE_RECORD_H

#include "base/bitmap.h"

struct lpi_space_record {
	uint32_t chunk;
	uint64_t as_of;
	struct lp_bitmap used; /* words of the caller; whole words */
};

/* buf has room for header and raw bitmap. Returns the length. */
size_t lpi_space_record_encode(const struct lpi_space_record *record, void *buf);
/* The caller fills in chunk, which must be in the bytes too, and `used` with zeroed words, whose
 * content is undefined after an error. Fills in as_of. */
int lpi_space_record_decode(const void *buf, size_t len,
			    struct lpi_space_record *record) LP_MUST_CHECK;

#endif
