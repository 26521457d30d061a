/* SPDX-License-Identifier: Apache-2.0 */
#include "store/block/core/payload.h"

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

uint64_t lpi_payload_run(struct lpi_seg_cursor *cursor, uint64_t max, struct lp_seg *ret_seg)
{
	const struct lpi_seg_cursor before = *cursor;
	uint64_t most = LP_MIN(max, (uint64_t)UINT32_MAX >> LP_BLOCK_SHIFT);
	uint32_t len = 0;
	const uint8_t *at = lpi_seg_cursor_next(cursor, (uint32_t)(most << LP_BLOCK_SHIFT), &len);
	uint32_t whole = len & ~(uint32_t)(LP_BLOCK_BYTES - 1);
	if (whole == 0 || ((uintptr_t)at & (LP_BLOCK_BYTES - 1)) != 0) {
		*cursor = before;
		return 0;
	}
	if (whole < len) {
		*cursor = before;
		(void)lpi_seg_cursor_next(cursor, whole, &len);
	}
	*ret_seg = (struct lp_seg){before.seg->buf, before.seg->offset + before.offset, whole};
	return whole >> LP_BLOCK_SHIFT;
}
