/* SPDX-License-Identifier: Apache-2.0 */
/* Block checksums: verified, and combined when a block is written in part (rule W2).
 *
 * Threads: any.
 * Blocking: none.
 * Memory: none is allocated.
 * Errors: -EBADMSG for an old block that does not match its crc, recorded by lp_corrupt().
 *
 * A block's checksum is the crc32c of its 4096 bytes. The sender of the data makes it; this
 * module only carries it on. When a piece of a block is replaced, the new crc is combined from
 * three crcs: that of the bytes in front, the crc that came with the piece, and that of the bytes
 * behind. It is never computed over the merged bytes, because a piece that was damaged in our
 * memory would then get a checksum that calls it right. Bytes beyond the end of a file are zeros
 * up to the end of its block.
 */
#ifndef LP_STORE_RECORD_CSUM_H
#define LP_STORE_RECORD_CSUM_H

#include "base/crc32c.h"
#include "store/record/types.h"

/* The crc of 4096 zero bytes: what a hole and an unwritten block have. */
#define LP_CSUM_ZERO_BLOCK UINT32_C(0x98f94189)

/* A piece of one block, with the crc its sender made over its len_bytes bytes. It lies within the
 * block and is not empty. */
struct lp_csum_piece {
	uint32_t offset_bytes;
	uint32_t len_bytes;
	uint32_t crc;
};

/* The crc of len zero bytes. */
static inline uint32_t lp_csum_zeros(uint64_t len_bytes)
{
	return lp_crc32c_zeros(0, len_bytes);
}

/* Reads the whole block once: 0, or -EBADMSG. device_block is for the message. */
int lp_csum_verify(const void *block, uint32_t crc, uint64_t device_block) LP_MUST_CHECK;

/* The crc of the block after the piece took its place in it. The old block is read once, and in
 * the same pass held against old_crc: there is no way to merge with a block not verified. On
 * -EBADMSG *ret_crc is untouched. */
int lp_csum_merge(const void *old_block, uint32_t old_crc, uint64_t device_block,
		  const struct lp_csum_piece *piece, uint32_t *ret_crc) LP_MUST_CHECK;

/* The same where the old block is a hole, unwritten, or beyond the end: reads nothing. */
uint32_t lp_csum_merge_zeros(const struct lp_csum_piece *piece);

/* A piece of zeros, as truncate and punch write them: crc and all. */
struct lp_csum_piece lp_csum_zero_piece(uint32_t offset_bytes, uint32_t len_bytes);

#endif
