/* SPDX-License-Identifier: Apache-2.0 */
/* Space record of a chunk: which blocks are in use as of a frame (docs/format/space.md).
 *
 * Threads: any.
 * Blocking: none.
 * Memory: none is allocated.
 * Errors: -EBADMSG, -EUCLEAN for bytes that are not a record of this chunk. Nothing in them is
 * trusted.
 *
 * Private to store/.
 */
#ifndef LP_STORE_SPACE_RECORD_H
#define LP_STORE_SPACE_RECORD_H

#include "base/struct/bitmap.h"

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

/* The bits alone, as in a record's body: in the shorter of its two encodings, which is returned.
 * buf has room for the raw ones. */
size_t lpi_space_bits_encode(const struct lp_bitmap *bits, void *buf, uint8_t *ret_encoding);
/* False when these are no such bits. `bits` has zeroed words, whose content is undefined then. */
bool lpi_space_bits_decode(uint8_t encoding, const void *bytes, size_t len, struct lp_bitmap *bits);

#endif
