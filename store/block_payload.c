/* SPDX-License-Identifier: Apache-2.0 */
#include "store/block_payload.h"

#include "base/assert.h"

void lpi_payload_skip(struct lpi_seg_cursor *cursor, uint64_t bytes)
{
	while (bytes > 0) {
		uint32_t len = 0;
		(void)lpi_seg_cursor_next(cursor, (uint32_t)LP_MIN(bytes, (uint64_t)UINT32_MAX),
					  &len);
		bytes -= len;
	}
}

bool lpi_payload_block(struct lpi_seg_cursor *cursor, struct lp_seg *ret_seg)
{
	const struct lpi_seg_cursor before = *cursor;
	uint32_t len = 0;
	const uint8_t *at = lpi_seg_cursor_next(cursor, (uint32_t)LP_BLOCK_BYTES, &len);
	if (len == LP_BLOCK_BYTES && ((uintptr_t)at & (LP_BLOCK_BYTES - 1)) == 0) {
		*ret_seg =
			(struct lp_seg){before.seg->buf, before.seg->offset + before.offset, len};
		return true;
	}
	*cursor = before;
	return false;
}
