/* SPDX-License-Identifier: Apache-2.0 */
/* Bits that flipped in a log of which the input says what its device holds.
 *
 *   byte 0: 1 repair crcs, 4 repair payload crcs too, 8 and 16 flip a bit then; byte 1: which
 *   then pieces, as in log_fuzz.c
 *
 * The search ends on any device. It leaves the device as it was. What it tells of is one bit from
 * what is there. Written back, all of it, nothing more is told. */
#include <errno.h>

#include "base/error.h"
#include "store/salvage/mend_log.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/repair.h"

#define AREA_BLOCK   1u
#define RING_BLOCKS  16u
#define AREA_BLOCKS  (LP_LOG_SLOT_CNT + RING_BLOCKS)
#define DEVICE_BYTES ((AREA_BLOCK + AREA_BLOCKS) * LP_BLOCK_BYTES)
#define TOLD_MAX     64u

#define FLAG_REPAIR         1u
#define FLAG_REPAIR_PAYLOAD 4u
#define FLAG_FLIP           8u
#define FLAG_FLIP_AGAIN     16u

static _Alignas(4096) uint8_t device[DEVICE_BYTES];
static _Alignas(4096) uint8_t after[DEVICE_BYTES];

struct told {
	struct lp_mender mender;
	uint32_t cnt;
};

static void put_piece(unsigned block, const uint8_t *bytes, size_t len)
{
	uint64_t at = (AREA_BLOCK + block) * LP_BLOCK_BYTES;
	if (block < AREA_BLOCKS)
		memcpy(device + at, bytes, LP_MIN(len, DEVICE_BYTES - at));
}

static void put_pieces(const uint8_t *bytes, size_t len)
{
	memset(device, 0, sizeof(device));
	for (size_t at = 2; at + 4 <= len;) {
		size_t piece = LP_MIN((size_t)lp_get_le16(bytes + at + 2), len - at - 4);
		put_piece(bytes[at], bytes + at + 4, piece);
		put_piece(bytes[at + 1], bytes + at + 4, piece);
		at += 4 + piece;
	}
}

static void repair_frame(uint8_t *block, uint64_t left_blocks, bool payload)
{
	struct lp_log_head head;
	struct lp_log_view view;
	lp_log_head_decode(block, &head);
	uint64_t meta_blocks = lp_log_meta_blocks(&head);
	if (meta_blocks + head.payload_cnt > left_blocks)
		return;
	lp_log_view_init(&view, &head, block);
	for (uint32_t i = 0; payload && i < head.payload_cnt; i++) {
		struct lp_log_payload about;
		uint32_t crc = lp_crc32c(0, lp_log_view_payload(&view, i, &about), LP_BLOCK_BYTES);
		lp_put_le32(block + LP_LOG_HEAD_SIZE + i * (size_t)LP_LOG_PAYLOAD_SIZE +
				    LP_LOG_PAYLOAD_CRC_OFF,
			    crc);
	}
	lpi_fuzz_repair_crc(block, meta_blocks * LP_BLOCK_BYTES, LP_LOG_HEAD_CRC_OFF);
}

static void repair(bool payload)
{
	for (uint64_t i = AREA_BLOCK + AREA_BLOCKS; i > AREA_BLOCK; i--) {
		uint8_t *block = device + (i - 1) * LP_BLOCK_BYTES;
		if (lp_get_le32(block) == LP_LOG_MAGIC_SUPER)
			lpi_fuzz_repair_crc(block, LP_BLOCK_BYTES, LP_LOG_SUPER_CRC_OFF);
		else if (lp_get_le32(block) == LP_LOG_MAGIC_FRAME)
			repair_frame(block, AREA_BLOCK + AREA_BLOCKS - (i - 1), payload);
	}
}

/* `after` is what is on the device, with what was told written into it. */
static void on_told(struct lp_mender *mender, struct lp_bdev *bdev, uint64_t block,
		    const void *bytes, const char *what)
{
	struct told *told = LP_CONTAINER_OF(mender, struct told, mender);
	unsigned bits = 0;
	(void)bdev;
	LP_ASSERT(what[0] != '\0' && block < DEVICE_BYTES / LP_BLOCK_BYTES);
	for (size_t i = 0; i < LP_BLOCK_BYTES; i++) {
		uint8_t *at = after + block * LP_BLOCK_BYTES + i;
		bits += (unsigned)__builtin_popcount(*at ^ ((const uint8_t *)bytes)[i]);
		*at = ((const uint8_t *)bytes)[i];
	}
	LP_ASSERT(bits == 1);
	LP_ASSERT(told->cnt++ < TOLD_MAX);
}

static uint32_t look(struct lp_bdev *bdev)
{
	const struct lp_extent area = {AREA_BLOCK, AREA_BLOCKS};
	struct told told = {.mender.mended = on_told};
	LP_ASSERT(lp_log_mend(bdev, area, 1, &told.mender) == 0);
	return told.cnt;
}

static void write_all(struct lp_bdev *bdev, const uint8_t *bytes)
{
	LP_ASSERT(lp_bdev_write_sync(bdev, bytes, DEVICE_BYTES, 0, true) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
	static _Alignas(4096) uint8_t now[DEVICE_BYTES];
	struct lp_bdev *bdev = NULL;
	if (len < 2)
		return 0;
	put_pieces(bytes, len);
	if ((bytes[0] & FLAG_REPAIR) != 0)
		repair((bytes[0] & FLAG_REPAIR_PAYLOAD) != 0);
	uint64_t bit =
		(AREA_BLOCK + LP_LOG_SLOT_CNT) * LP_BLOCK_BYTES * 8 + bytes[1] * UINT64_C(61);
	if ((bytes[0] & FLAG_FLIP) != 0)
		lp_mend_flip(device, bit);
	if ((bytes[0] & FLAG_FLIP_AGAIN) != 0)
		lp_mend_flip(device, bit + LP_BLOCK_BYTES * UINT64_C(8));
	LP_ASSERT(lp_bdev_open_mem(DEVICE_BYTES, LP_BLOCK_BYTES, &bdev) == 0);
	write_all(bdev, device);
	memcpy(after, device, sizeof(after));
	uint32_t cnt = look(bdev);
	LP_ASSERT(lp_bdev_read_sync(bdev, now, DEVICE_BYTES, 0) == 0);
	LP_ASSERT(memcmp(now, device, sizeof(now)) == 0);
	write_all(bdev, after);
	LP_ASSERT(cnt == 0 || look(bdev) == 0);
	lp_bdev_close(bdev);
	return 0;
}
