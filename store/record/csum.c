/* SPDX-License-Identifier: Apache-2.0 */
/* A merge takes the crcs of the three parts of the old block, in front, under and behind the
 * piece. Together they must give the crc that was stored: that is the verification, and it costs
 * two combinations (some ten nanoseconds) instead of a second pass over the block. */
#include "store/record/csum.h"

#include "base/assert.h"
#include "base/error.h"

static int mismatch(uint32_t got, uint32_t want, uint64_t device_block)
{
	return LP_CORRUPT_CRC(device_block << LP_BLOCK_SHIFT,
			      "block %llu: its crc is %08x, stored is %08x",
			      (unsigned long long)device_block, got, want);
}

int lp_csum_verify(const void *block, uint32_t crc, uint64_t device_block)
{
	uint32_t got = lp_crc32c(0, block, LP_BLOCK_BYTES);
	return LP_LIKELY(got == crc) ? 0 : mismatch(got, crc, device_block);
}

static uint32_t tail_bytes(const struct lp_csum_piece *piece)
{
	LP_ASSERT(piece->len_bytes > 0);
	LP_ASSERT(!lp_range_outside(piece->offset_bytes, piece->len_bytes, LP_BLOCK_BYTES));
	return (uint32_t)LP_BLOCK_BYTES - piece->offset_bytes - piece->len_bytes;
}

static uint32_t join(uint32_t head, uint32_t middle, uint32_t tail,
		     const struct lp_csum_piece *piece)
{
	uint32_t crc = lp_crc32c_combine(head, middle, piece->len_bytes);
	return lp_crc32c_combine(crc, tail, tail_bytes(piece));
}

int lp_csum_merge(const void *old_block, uint32_t old_crc, uint64_t device_block,
		  const struct lp_csum_piece *piece, uint32_t *ret_crc)
{
	const uint8_t *at = old_block;
	size_t tail_len = tail_bytes(piece);
	uint32_t head = lp_crc32c(0, at, piece->offset_bytes);
	uint32_t under = lp_crc32c(0, at + piece->offset_bytes, piece->len_bytes);
	uint32_t tail = lp_crc32c(0, at + piece->offset_bytes + piece->len_bytes, tail_len);
	uint32_t got = join(head, under, tail, piece);
	if (LP_UNLIKELY(got != old_crc))
		return mismatch(got, old_crc, device_block);
	*ret_crc = join(head, piece->crc, tail, piece);
	return 0;
}

uint32_t lp_csum_merge_zeros(const struct lp_csum_piece *piece)
{
	return join(lp_csum_zeros(piece->offset_bytes), piece->crc,
		    lp_csum_zeros(tail_bytes(piece)), piece);
}

struct lp_csum_piece lp_csum_zero_piece(uint32_t offset_bytes, uint32_t len_bytes)
{
	struct lp_csum_piece piece = {offset_bytes, len_bytes, lp_csum_zeros(len_bytes)};
	(void)tail_bytes(&piece); /* for its asserts */
	return piece;
}
