/* SPDX-License-Identifier: Apache-2.0 */
/* A superblock of blockfs, and the half of the journal that it describes.
 *
 *   byte 0: 1 repair the superblock's crc, 2 repair frames, 4 it lies in slot 1
 *   then the superblock without the zeros behind it, then pieces of the half: u8 block, u8 blocks
 *   that the half has beyond it, u16 length, bytes
 *   8: pieces are records instead, a frame each: u8 type, u8 unused, u16 length, body
 *
 * Repairing frames makes their crcs right and chains each to the one before. A superblock that is
 * accepted is what its encoder makes of it. Replay of any half ends, twice with the same result. */
#include <errno.h>

#include "store/blockfs/blockfs.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/repair.h"

#define FLAG_REPAIR_SUPER  1u
#define FLAG_REPAIR_FRAMES 2u
#define FLAG_SECOND        4u
#define FLAG_RECORDS       8u

#define PIECE_BYTES  4u
#define HALF_BLOCKS  16u
#define HALF_BYTES   (HALF_BLOCKS * LP_BLOCK_BYTES)
#define FRAME_MAGIC  UINT32_C(0x4a46424c)
#define RECORD_MAX   (LP_BLOCK_BYTES - LP_BLOCKFS_FRAME_SIZE - LP_BLOCKFS_RECORD_SIZE)
#define SUPER_OFFSET 1u

static uint8_t half[HALF_BYTES];

/* Returns how much of the half there is. */
static size_t put_pieces(const uint8_t *bytes, size_t len)
{
	size_t half_len = 0;
	memset(half, 0, sizeof(half));
	for (size_t at = 0; at + PIECE_BYTES <= len;) {
		size_t piece = LP_MIN((size_t)lp_get_le16(bytes + at + 2), len - at - PIECE_BYTES);
		size_t to = bytes[at] % HALF_BLOCKS * LP_BLOCK_BYTES;
		memcpy(half + to, bytes + at + PIECE_BYTES, LP_MIN(piece, HALF_BYTES - to));
		size_t end =
			lp_align_up(to + piece, LP_BLOCK_BYTES) + bytes[at + 1] * LP_BLOCK_BYTES;
		half_len = LP_MAX(half_len, LP_MIN(end, HALF_BYTES));
		at += PIECE_BYTES + piece;
	}
	return half_len;
}

static void put_record(const struct lp_blockfs_super *super, uint64_t idx, const uint8_t *piece,
		       size_t len)
{
	uint8_t *block = half + idx * LP_BLOCK_BYTES;
	struct lp_blockfs_record record = {.type = piece[0], .length_bytes = (uint32_t)len};
	struct lp_blockfs_frame frame = {.magic = FRAME_MAGIC,
					 .length_bytes = LP_BLOCKFS_RECORD_SIZE + (uint32_t)len,
					 .version = 1,
					 .shard = (uint16_t)super->shard,
					 .sequence = super->snapshot_first + idx,
					 .generation = super->generation};
	memcpy(frame.store_uuid, super->store_uuid, sizeof(frame.store_uuid));
	lp_blockfs_frame_encode(&frame, block);
	lp_blockfs_record_encode(&record, block + LP_BLOCKFS_FRAME_SIZE);
	memcpy(block + LP_BLOCKFS_FRAME_SIZE + LP_BLOCKFS_RECORD_SIZE, piece + PIECE_BYTES, len);
}

static size_t put_records(const struct lp_blockfs_super *super, const uint8_t *bytes, size_t len)
{
	uint64_t idx = 0;
	memset(half, 0, sizeof(half));
	for (size_t at = 0; at + PIECE_BYTES <= len && idx < HALF_BLOCKS; idx++) {
		size_t piece = LP_MIN((size_t)lp_get_le16(bytes + at + 2), len - at - PIECE_BYTES);
		put_record(super, idx, bytes + at, LP_MIN(piece, RECORD_MAX));
		at += PIECE_BYTES + piece;
	}
	return idx * LP_BLOCK_BYTES;
}

static void repair_frames(size_t len)
{
	uint32_t prev_crc = 0;
	for (size_t at = 0; at < len;) {
		uint8_t *frame = half + at;
		uint64_t frame_len = LP_BLOCKFS_FRAME_SIZE;
		frame_len += lp_get_le32(frame + LP_BLOCKFS_FRAME_LENGTH_BYTES_OFF);
		frame_len = lp_align_up(frame_len, LP_BLOCK_BYTES);
		if (lp_get_le32(frame) != FRAME_MAGIC || frame_len > len - at) {
			at += LP_BLOCK_BYTES;
			continue;
		}
		lp_put_le32(frame + LP_BLOCKFS_FRAME_PREV_CRC_OFF, prev_crc);
		lpi_fuzz_repair_crc(frame, frame_len, LP_BLOCKFS_FRAME_CRC_OFF);
		prev_crc = lp_get_le32(frame + LP_BLOCKFS_FRAME_CRC_OFF);
		at += frame_len;
	}
}

static void check_half(const struct lp_blockfs_super *super, size_t len)
{
	uint8_t *exact = lpi_fuzz_copy(half, len);
	int err = lp_blockfs_decode_half(exact, len, super);
	LP_ASSERT(err == 0 || err == -EBADMSG || err == -EUCLEAN);
	LP_ASSERT(lp_blockfs_decode_half(exact, len, super) == err);
	LP_ASSERT(memcmp(exact, half, len) == 0);
	free(exact);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
	static uint8_t block[LP_BLOCK_BYTES];
	static uint8_t again[LP_BLOCKFS_SUPER_SIZE];
	struct lp_blockfs_super super;
	if (len < SUPER_OFFSET + LP_BLOCKFS_SUPER_SIZE)
		return 0;
	memset(block, 0, sizeof(block));
	memcpy(block, bytes + SUPER_OFFSET, LP_BLOCKFS_SUPER_SIZE);
	if ((bytes[0] & FLAG_REPAIR_SUPER) != 0)
		lpi_fuzz_repair_crc(block, sizeof(block), LP_BLOCKFS_SUPER_CRC_OFF);
	if (lp_blockfs_decode_super(block, (bytes[0] & FLAG_SECOND) != 0, &super) < 0)
		return 0;
	lp_blockfs_super_encode(&super, again);
	LP_ASSERT(memcmp(again, block, sizeof(again)) == 0);
	size_t from = SUPER_OFFSET + LP_BLOCKFS_SUPER_SIZE;
	size_t half_len = (bytes[0] & FLAG_RECORDS) != 0
				  ? put_records(&super, bytes + from, len - from)
				  : put_pieces(bytes + from, len - from);
	if ((bytes[0] & FLAG_REPAIR_FRAMES) != 0)
		repair_frames(half_len);
	check_half(&super, half_len);
	return 0;
}
