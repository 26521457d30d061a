/* SPDX-License-Identifier: Apache-2.0 */
/* The log's records and its recovery, on a device of which the input says what it holds.
 *
 *   byte 0: 1 repair crcs, 2 read only, 4 repair payload crcs too; byte 1: what the index applied
 *   then pieces: u8 block of the area, u8 block it is repeated at, u16 length, bytes
 *
 * Without the repair hardly an input would come past a crc. Recovery of any device must end; what
 * it delivers is in sequence and readable to its last byte; a refusal and a read-only recovery
 * leave the device as it was; after a success the log can be appended to, and the next recovery
 * finds the same end, with that frame. */
#include "tests/fuzz/fuzz.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/crc32c.h"
#include "base/endian.h"
#include "store/log/log.h"

#define AREA_BLOCK   1u
#define RING_BLOCKS  16u
#define BLOCK_CNT    (AREA_BLOCK + LP_LOG_SLOT_CNT + RING_BLOCKS)
#define DEVICE_BYTES (BLOCK_CNT * LP_BLOCK_BYTES)

#define FLAG_REPAIR         1u
#define FLAG_READ_ONLY      2u
#define FLAG_REPAIR_PAYLOAD 4u

/* One recovery and what came of it. */
struct trial {
	struct lp_clock_sim clock;
	struct lp_reactor *reactor;
	struct lp_bdev_chan *chan;
	struct lp_log *log;
	struct lp_log_recovery recovery;
	struct lp_log_frame frame;
	uint64_t next_seq;
	uint32_t sum; /* of all that was delivered */
	bool done;
	bool appended;
};

static _Alignas(4096) uint8_t device[DEVICE_BYTES];
static _Alignas(4096) uint8_t after[DEVICE_BYTES];

static void put_piece(unsigned block, const uint8_t *bytes, size_t len)
{
	if (block >= LP_LOG_SLOT_CNT + RING_BLOCKS)
		return;
	uint64_t at = (AREA_BLOCK + block) * LP_BLOCK_BYTES;
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

/* Over len bytes in which the crc field, at 4 in both records, counts as zero. */
static void repair_crc(uint8_t *record, size_t len)
{
	lp_put_le32(record + 4, 0);
	lp_put_le32(record + 4, lp_crc32c(0, record, len));
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
	repair_crc(block, meta_blocks * LP_BLOCK_BYTES);
}

static void repair(bool payload)
{
	for (uint64_t i = BLOCK_CNT; i > AREA_BLOCK; i--) {
		uint8_t *block = device + (i - 1) * LP_BLOCK_BYTES;
		if (lp_get_le32(block) == LP_LOG_MAGIC_SUPER)
			repair_crc(block, LP_BLOCK_BYTES);
		else if (lp_get_le32(block) == LP_LOG_MAGIC_FRAME)
			repair_frame(block, BLOCK_CNT - (i - 1), payload);
	}
}

static int on_frame(struct lp_log_recovery *recovery, const struct lp_log_view *view)
{
	struct trial *trial = LP_CONTAINER_OF(recovery, struct trial, recovery);
	struct lp_log_change change;
	struct lp_log_payload payload;
	LP_ASSERT(trial->next_seq == 0 || view->head.seq == trial->next_seq);
	trial->next_seq = view->head.seq + 1;
	trial->sum = lp_crc32c(trial->sum, view->batch, view->head.batch_bytes);
	for (uint32_t i = 0; i < view->head.change_cnt; i++) {
		lp_log_view_change(view, i, &change);
		trial->sum += change.cnt;
	}
	for (uint32_t i = 0; i < view->head.payload_cnt; i++) {
		const uint8_t *block = lp_log_view_payload(view, i, &payload);
		LP_ASSERT(lp_crc32c(0, block, LP_BLOCK_BYTES) == payload.crc);
	}
	return 0;
}

static void on_recovered(struct lp_log_recovery *recovery)
{
	LP_CONTAINER_OF(recovery, struct trial, recovery)->done = true;
}

static void on_appended(struct lp_log_frame *frame)
{
	LP_ASSERT(frame->result == 0);
	LP_CONTAINER_OF(frame, struct trial, frame)->appended = true;
}

static void must(int result)
{
	LP_ASSERT(result == 0);
}

static void trial_open(struct trial *trial, struct lp_bdev *bdev, uint64_t applied, bool read_only)
{
	*trial = (struct trial){.recovery = {.applied = applied,
					     .read_only = read_only,
					     .frame = on_frame,
					     .complete = on_recovered}};
	lp_clock_sim_init(&trial->clock, LP_NS_PER_S, 0);
	struct lp_reactor_options reactor_options = {
		.name = "fuzz", .clock = &trial->clock.clock, .sim = &trial->clock};
	must(lp_reactor_new(&reactor_options, &trial->reactor));
	must(lp_reactor_start(trial->reactor));
	must(lp_bdev_attach(bdev, trial->reactor, &trial->chan));
	struct lp_log_options options = {
		.reactor = trial->reactor,
		.chan = trial->chan,
		.area = {.block = AREA_BLOCK, .ring_blocks = RING_BLOCKS, .shard = 1},
		.limits = {4, 8, 2, 2, 0},
	};
	memset(options.area.store_uuid, 0x11, sizeof(options.area.store_uuid));
	must(lp_log_new(&options, &trial->log));
	lp_log_recover(trial->log, &trial->recovery);
	while (!trial->done)
		LP_ASSERT(lp_reactor_turn(trial->reactor, true) != 0);
}

static void trial_append(struct trial *trial)
{
	trial->frame.complete = on_appended;
	int err = lp_log_append(trial->log, &trial->frame);
	LP_ASSERT(err == 0 || err == -EAGAIN);
	while (!lp_log_is_idle(trial->log))
		LP_ASSERT(lp_reactor_turn(trial->reactor, true) != 0);
}

static void trial_close(struct trial *trial)
{
	lp_log_free(trial->log);
	lp_bdev_detach(trial->chan);
	lp_reactor_free(trial->reactor);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
	struct lp_bdev *bdev = NULL;
	struct trial first;
	struct trial second;
	if (len < 2)
		return 0;
	put_pieces(bytes, len);
	if ((bytes[0] & FLAG_REPAIR) != 0)
		repair((bytes[0] & FLAG_REPAIR_PAYLOAD) != 0);
	bool read_only = (bytes[0] & FLAG_READ_ONLY) != 0;
	must(lp_bdev_open_mem(DEVICE_BYTES, LP_BLOCK_BYTES, &bdev));
	must(lp_bdev_write_sync(bdev, device, DEVICE_BYTES, 0, false));
	trial_open(&first, bdev, bytes[1], read_only);
	must(lp_bdev_read_sync(bdev, after, DEVICE_BYTES, 0));
	if (first.recovery.result < 0 || read_only) {
		LP_ASSERT(memcmp(device, after, DEVICE_BYTES) == 0);
	} else {
		trial_append(&first);
		trial_open(&second, bdev, first.recovery.last_seq, false);
		/* Forged frames elsewhere in the ring may make it refuse; but not find another end.
		 */
		if (second.recovery.result == 0)
			LP_ASSERT(second.recovery.last_seq ==
				  first.recovery.last_seq + first.appended);
		trial_close(&second);
	}
	trial_close(&first);
	lp_bdev_close(bdev);
	return 0;
}
