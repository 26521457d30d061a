/* SPDX-License-Identifier: Apache-2.0 */
/* What a damaged journal still says of files, on a device of which the input says what it holds.
 *
 *   byte 0: 1 repair superblocks, 2 repair frames, 16 flip a bit then, 32 there is no superblock
 *   then as in blockfs_fuzz.c (flags 4 and 8 mean nothing): a superblock, then pieces, of which
 *   `blocks beyond` says, if it is odd, that the piece goes into the other half as well
 *
 * It ends on any device, in bounded memory, and leaves it as it was. What it tells of a bit is one
 * bit from what is there. Each file can be read, twice with the same result. */
#include <errno.h>

#include "base/error.h"
#include "store/salvage/journal.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/repair.h"

#define FLAG_REPAIR_SUPER  1u
#define FLAG_REPAIR_FRAMES 2u
#define FLAG_FLIP          16u
#define FLAG_NO_SUPER      32u

#define HALF_BLOCKS  16u
#define AREA_BLOCKS  (2u + 2u * HALF_BLOCKS)
#define DEVICE_BYTES ((AREA_BLOCKS + 8u) * LP_BLOCK_BYTES)
#define FRAME_MAGIC  UINT32_C(0x4a46424c)
#define PIECE_BYTES  4u
#define SUPER_OFFSET 1u

static _Alignas(4096) uint8_t device[DEVICE_BYTES];

static void put_piece(unsigned half, unsigned block, const uint8_t *bytes, size_t len)
{
	uint64_t at = (2 + half * HALF_BLOCKS + block % HALF_BLOCKS) * LP_BLOCK_BYTES;
	memcpy(device + at, bytes, LP_MIN(len, DEVICE_BYTES - at));
}

static void put_pieces(const uint8_t *bytes, size_t len)
{
	for (size_t at = 0; at + PIECE_BYTES <= len;) {
		size_t piece = LP_MIN((size_t)lp_get_le16(bytes + at + 2), len - at - PIECE_BYTES);
		put_piece(0, bytes[at], bytes + at + PIECE_BYTES, piece);
		if (bytes[at + 1] % 2 != 0)
			put_piece(1, bytes[at], bytes + at + PIECE_BYTES, piece);
		at += PIECE_BYTES + piece;
	}
}

static void repair_frames(void)
{
	uint32_t prev_crc = 0;
	for (size_t at = 2 * LP_BLOCK_BYTES; at < AREA_BLOCKS * LP_BLOCK_BYTES;) {
		uint8_t *frame = device + at;
		uint64_t len = LP_BLOCKFS_FRAME_SIZE;
		len += lp_get_le32(frame + LP_BLOCKFS_FRAME_LENGTH_BYTES_OFF);
		len = lp_align_up(len, LP_BLOCK_BYTES);
		if (lp_get_le32(frame) != FRAME_MAGIC || len > AREA_BLOCKS * LP_BLOCK_BYTES - at) {
			at += LP_BLOCK_BYTES;
			continue;
		}
		lp_put_le32(frame + LP_BLOCKFS_FRAME_PREV_CRC_OFF, prev_crc);
		lpi_fuzz_repair_crc(frame, len, LP_BLOCKFS_FRAME_CRC_OFF);
		prev_crc = lp_get_le32(frame + LP_BLOCKFS_FRAME_CRC_OFF);
		at += len;
	}
}

static void on_told(struct lp_mender *mender, struct lp_bdev *bdev, uint64_t block,
		    const void *bytes, const char *what)
{
	unsigned bits = 0;
	(void)mender;
	(void)bdev;
	LP_ASSERT(what[0] != '\0' && block < DEVICE_BYTES / LP_BLOCK_BYTES);
	for (size_t i = 0; i < LP_BLOCK_BYTES; i++)
		bits += (unsigned)__builtin_popcount(device[block * LP_BLOCK_BYTES + i] ^
						     ((const uint8_t *)bytes)[i]);
	LP_ASSERT(bits == 1);
}

/* A sum of all that the files hold. */
static uint32_t read_all(const struct lp_blockfs_options *options)
{
	struct lp_mender mender = {.mended = on_told};
	struct lp_blockfs_salvage *files = NULL;
	struct lp_blockfs_salvage_report report;
	LP_ASSERT(lp_blockfs_salvage_open(options, &mender, &files, &report) == 0);
	uint32_t sum = report.frame_cnt + report.lost_frame_cnt * 7 + report.is_whole;
	for (uint32_t i = 0; i < report.file_cnt; i++) {
		uint8_t *bytes = NULL;
		size_t len = 0;
		uint64_t bad = 0;
		const char *name = lp_blockfs_salvage_name(files, i);
		LP_ASSERT(lp_blockfs_salvage_read(files, i, &bytes, &len, &bad) == 0);
		sum = lp_crc32c(sum, name, strlen(name));
		if (len > 0)
			sum = lp_crc32c(sum, bytes, len);
		free(bytes);
	}
	lp_blockfs_salvage_close(files);
	return sum;
}

static void make_device(const uint8_t *bytes, size_t len, const struct lp_blockfs_super *super)
{
	memset(device, 0, sizeof(device));
	for (uint32_t i = 0; i < 2 && (bytes[0] & FLAG_NO_SUPER) == 0; i++) {
		struct lp_blockfs_super copy = *super;
		uint8_t *block = device + i * LP_BLOCK_BYTES;
		copy.slot = i;
		copy.half_blocks = HALF_BLOCKS;
		copy.active_half = 0;
		lp_blockfs_super_encode(&copy, block);
		if ((bytes[0] & FLAG_REPAIR_SUPER) != 0)
			lpi_fuzz_repair_crc(block, LP_BLOCK_BYTES, LP_BLOCKFS_SUPER_CRC_OFF);
	}
	put_pieces(bytes + SUPER_OFFSET + LP_BLOCKFS_SUPER_SIZE,
		   len - SUPER_OFFSET - LP_BLOCKFS_SUPER_SIZE);
	if ((bytes[0] & FLAG_REPAIR_FRAMES) != 0)
		repair_frames();
	if ((bytes[0] & FLAG_FLIP) != 0)
		device[2 * LP_BLOCK_BYTES + len * 37 % (3 * LP_BLOCK_BYTES)] ^= 2;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
	static _Alignas(4096) uint8_t now[DEVICE_BYTES];
	struct lp_bdev *bdev = NULL;
	struct lp_blockfs_super super;
	struct lp_blockfs_options options = {.area = {0, AREA_BLOCKS}};
	if (len < SUPER_OFFSET + LP_BLOCKFS_SUPER_SIZE)
		return 0;
	lp_blockfs_super_decode(bytes + SUPER_OFFSET, &super);
	make_device(bytes, len, &super);
	LP_ASSERT(lp_bdev_open_mem(DEVICE_BYTES, LP_BLOCK_BYTES, &bdev) == 0);
	LP_ASSERT(lp_bdev_write_sync(bdev, device, DEVICE_BYTES, 0, true) == 0);
	options.data.bdev = bdev;
	options.journal_bdev = bdev;
	options.shard_idx = super.shard;
	memcpy(options.store_uuid, super.store_uuid, sizeof(options.store_uuid));
	LP_ASSERT(read_all(&options) == read_all(&options));
	LP_ASSERT(lp_bdev_read_sync(bdev, now, DEVICE_BYTES, 0) == 0);
	LP_ASSERT(memcmp(now, device, sizeof(now)) == 0);
	lp_bdev_close(bdev);
	return 0;
}
