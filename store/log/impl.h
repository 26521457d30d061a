/* SPDX-License-Identifier: Apache-2.0 */
/* Internals that log.c (appending) and log/recover.c (reading) share.
 *
 * Threads: the reactor's.
 * Blocking, errors: as store/log/log.h says.
 *
 * Places in the ring are kept as a count of blocks that never wraps ("at"). at % ring_blocks is
 * the ring block. A log that was just recovered counts from the ring block of its start.
 */
#ifndef LP_STORE_LOG_IMPL_H
#define LP_STORE_LOG_IMPL_H

#include "base/error.h"
#include "base/struct/list.h"
#include "base/struct/sm.h"
#include "store/log/log.h"

#define LPI_LOG_MAGIC UINT32_C(0x6c6f6721)

enum lpi_log_state {
	LPI_LOG_NEW,
	LPI_LOG_RECOVERING,
	LPI_LOG_READY,
	LPI_LOG_ERROR,
	LPI_LOG_CLOSED,
};

/* Where a frame that recovery may have to begin with stands. */
struct lpi_log_place {
	uint64_t at;
	uint32_t chain;  /* crc of the frame before */
	uint32_t record; /* how many records came before, since the log was opened; may wrap */
};

/* What a frame in flight needs of the log's memory. */
struct lpi_log_slot {
	struct lpi_log_slot *next; /* in the list of free ones */
	uint8_t *meta;
	struct iovec *iov;
};

LP_LIST_DEFINE(lpi_log_frames, struct lp_log_frame, node);
LP_LIST_DEFINE(lpi_log_waiters, struct lp_log_waiter, node);

/* Recovery's reading: see log/recover.c. */
struct lpi_log_scan {
	struct lp_sm sm;
	struct lp_log_recovery *recovery;
	struct lp_bdev_op op;

	uint8_t *buf; /* buf_blocks; holds ring blocks [buf_from, buf_from + buf_cnt) */
	uint64_t buf_blocks;
	uint64_t buf_from;
	uint64_t buf_cnt;
	uint64_t read_cnt; /* what the read in flight will add */

	/* Of the last good frame; its end, number and crc are in head_at, next_seq and chain. */
	uint64_t acked_seq;
	uint64_t slot_seq;
	uint64_t incarnation;
	uint64_t oldest_needed;
	bool at_front;      /* looking for the next one at ring block 0 */
	uint64_t probe_cnt; /* blocks of the window behind the gap that were looked at */
	char why[LP_CORRUPTION_TEXT_MAX]; /* what the gap itself looks like */
};

struct lp_log {
	uint32_t magic;
	enum lpi_log_state state;
	int err;
	struct lp_log_options options;
	struct lp_log_identity identity;
	struct lp_log_super super; /* the durable one */

	uint64_t head_at;
	uint64_t start_at; /* of the durable superblock */
	uint64_t next_seq;
	uint32_t chain;  /* crc of the newest frame */
	uint32_t record; /* of all frames so far; differences count, so it may wrap */

	uint64_t durable_seq;
	uint64_t failed_seq;      /* this one and later ones are not acknowledged */
	uint64_t trim_seq;        /* what the caller does not need below */
	uint64_t carried_seq;     /* the same, as the newest frame names it */
	uint64_t carried_durable; /* the same, as the newest durable frame names it */

	struct lpi_log_frames flight;
	uint32_t flight_frames;
	uint32_t flight_blocks;
	struct lpi_log_waiters waiters;
	bool short_of_room; /* an append was refused for want of ring blocks */

	struct lpi_log_place *places; /* of seq at seq & places_mask, from super.start_seq on */
	uint64_t places_mask;

	struct lpi_log_slot *free_slots;
	struct lpi_log_slot *slots;
	uint8_t *metas;
	struct iovec *iovs;

	struct lp_bdev_op super_op;
	bool super_in_flight;
	bool super_wanted; /* by lp_log_advance() */
	struct lp_log_super super_next;
	uint64_t super_next_at;
	uint8_t *super_block; /* LP_LOG_SLOT_CNT blocks: also for reading both */
	struct lp_log_closing *closing;

	struct lpi_log_scan scan;
};

static inline uint64_t lpi_log_ring_block(const struct lp_log *log, uint64_t at)
{
	return at % log->options.area.ring_blocks;
}

static inline uint64_t lpi_log_offset_bytes(const struct lp_log *log, uint64_t ring_block)
{
	return (log->options.area.block + LP_LOG_SLOT_CNT + ring_block) * LP_BLOCK_BYTES;
}

static inline struct lpi_log_place *lpi_log_place(struct lp_log *log, uint64_t seq)
{
	return &log->places[seq & log->places_mask];
}

/* Of the frame that comes next, if it begins at `at`. */
static inline struct lpi_log_place lpi_log_head_place(const struct lp_log *log, uint64_t at)
{
	return (struct lpi_log_place){.at = at, .chain = log->chain, .record = log->record};
}

/* Fills the block of a superblock and prepares its write to the slot that is its turn. */
void lpi_log_super_prep(struct lp_log *log, const struct lp_log_super *super,
			struct lp_bdev_op *op);

void lpi_log_scan_free(struct lp_log *log);
extern const struct lp_sm_table lpi_log_scan_table;

#endif
