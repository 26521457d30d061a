/* SPDX-License-Identifier: Apache-2.0 */
/* Commit log of a shard: frames in a ring of blocks, one write-through for each.
 *
 * Threads: the reactor's. lp_log_format() and lp_log_is_new() block and belong to any other
 * thread.
 * Blocking: none but these two. Nothing completes inside the call that began it.
 * Memory: nothing is allocated after recovery. The log copies meta parts. Payload blocks stay the
 * log's from append to complete(). A recovery's or closing's complete() may free the log; those
 * of frames and waiters may not.
 * Errors: -EAGAIN is for waiting (lp_log_wait). Corruption is -EBADMSG or -EUCLEAN, recorded by
 * lp_corrupt(). -EIO the device's. -EMSGSIZE a frame beyond the limits. -ENOTSUP a newer format.
 * Limits: struct lp_log_limits.
 *
 * A frame is what a commit group must not lose (docs/format/log.md, rules L1 to L7;
 * store/log/README.md).
 *
 *   format (mkfs) ... new -> recover -> append, append, trim ... -> close -> free
 *
 * Frames are acknowledged strictly in sequence. A frame whose complete() said 0 survives any loss
 * of power: recovery delivers it, or refuses because it cannot.
 *
 * After a failed write of a frame or superblock the log is in ERROR (rule L7). Frames from the
 * failed one on complete with the error, in sequence, even those whose own write succeeded.
 * append gives -EIO, and nothing is written any more. The way out is to close the log and recover
 * anew. A frame that failed may turn up in that recovery: its outcome is unknown.
 */
#ifndef LP_STORE_LOG_LOG_H
#define LP_STORE_LOG_LOG_H

#include "store/device/bdev.h"
#include "store/log/format.h"

struct lp_log;

/* --- Where it lies, and its limits -------------------------------------------------------------
 */

struct lp_log_area {
	uint64_t block; /* of the device; the area has lp_log_area_blocks() */
	uint64_t ring_blocks;
	uint8_t store_uuid[LP_LOG_SUPER_STORE_UUID_SIZE];
	uint32_t shard;
};

/* May differ from one run to the next. */
struct lp_log_limits {
	uint32_t flight_frames; /* submitted and not acknowledged; 1 to LP_LOG_FLIGHT_FRAMES_MAX */
	uint32_t flight_blocks; /* at least 2 * frame_blocks, at most half of the ring */
	uint32_t frame_blocks;  /* one frame, payload included; at most LP_LOG_FRAME_BLOCKS_MAX, and
				 * an eighth of the ring */
	uint32_t meta_blocks;   /* of those, without payload; flight_frames of these are held */
	uint32_t records_max;   /* of the frames that are needed; 0: as many as there is room for */
};

#define LP_LOG_RING_BLOCKS_MIN 16u
/* Kept free for frames that only trim (rule L4). */
#define LP_LOG_RESERVE_BLOCKS 4u

static inline uint64_t lp_log_area_blocks(uint64_t ring_blocks)
{
	return LP_LOG_SLOT_CNT + ring_blocks;
}

/* 0 or -EINVAL. */
int lp_log_check_limits(const struct lp_log_area *area,
			const struct lp_log_limits *limits) LP_MUST_CHECK;

/* Blocks: writes all of the area (rule S7), what was there before is gone. salt is from a source
 * of random numbers: it keeps what clients write from passing for a frame. -EINVAL for limits or
 * an area beyond the device. */
int lp_log_format(struct lp_bdev *bdev, const struct lp_log_area *area,
		  const struct lp_log_limits *limits, uint64_t salt) LP_MUST_CHECK;

/* Blocks. Whether no recovery that writes has ever come to its end: then no frame was ever
 * appended. Both superblocks must say so; one that cannot be believed says the contrary. -ENOMEM,
 * and what the device says. */
int lp_log_is_new(struct lp_bdev *bdev, const struct lp_log_area *area,
		  bool *ret_new) LP_MUST_CHECK;

/* --- Birth ------------------------------------------------------------------------------------ */

struct lp_log_options {
	struct lp_reactor *reactor;
	struct lp_bdev_chan *chan;
	struct lp_log_area area;
	struct lp_log_limits limits;
	struct lp_bdev_observer *observer; /* of frames; or NULL */
};

/* -ENOMEM, or -EINVAL as lp_log_format(). Only lp_log_recover() may follow. */
int lp_log_new(const struct lp_log_options *options, struct lp_log **ret_log) LP_MUST_CHECK;
/* Nothing may be in flight (lp_log_is_idle, asserted), nobody waiting. Accepts NULL. */
void lp_log_free(struct lp_log *log);
bool lp_log_is_idle(const struct lp_log *log);

/* --- Recovery --------------------------------------------------------------------------------- */

/* Embedded by the caller and the log's until complete(). */
struct lp_log_recovery {
	uint64_t applied; /* by the index, as it persists it; 0 if nothing */
	bool read_only;   /* deliver, judge, write nothing: the log cannot be used afterwards */
	/* Each whole frame from the start on, in sequence. What it makes of them stays in memory
	 * until complete() says 0. An error ends the recovery and is its result. */
	int (*frame)(struct lp_log_recovery *recovery, const struct lp_log_view *view);
	/* Set by frame(): records of its batch that the index lacks. */
	uint32_t record_cnt;
	/* result 0: the log is ready for append. Else nothing was written, but for a superblock
	 * whose own write failed, and the log can only be freed. */
	void (*complete)(struct lp_log_recovery *recovery);

	/* Valid from complete() on. */
	int result;
	bool was_clean;         /* the log had been closed */
	uint64_t first_seq;     /* of what was delivered; last_seq + 1 if nothing was */
	uint64_t last_seq;      /* the end of the log; M - 1 if corruption was found at M */
	uint64_t oldest_needed; /* according to the last frame */
	uint64_t frame_cnt;
	uint64_t torn_cnt; /* frames beyond the end that stood, and had never been acknowledged */
	uint64_t offset_bytes; /* where on the device it failed; LP_OFFSET_NONE if nowhere */
};

/* Where on the device a payload block of a frame that recovery delivers stands. idx as of
 * lp_log_view_payload(). It stays there until frames are appended, or the log is trimmed later. */
uint64_t lp_log_payload_block(const struct lp_log *log, const struct lp_log_view *view,
			      uint32_t idx);
void lp_log_recover(struct lp_log *log, struct lp_log_recovery *recovery);

/* --- Append ------------------------------------------------------------------------------------
 */

/* One payload block and what is written about it. about.crc is the crc of the block: the log
 * writes it and does not compute it, but for the slow builds, which assert it. */
struct lp_log_data {
	struct lp_log_payload about;
	const void *block; /* LP_BLOCK_BYTES, aligned for the device */
};

/* One frame; the caller embeds it. It is the log's from a successful append until complete()
 * begins. Batch, changes and the array of data are copied in append, the data blocks are not. */
struct lp_log_frame {
	const struct iovec *batch; /* pieces of one batch */
	const struct lp_log_change *changes;
	const struct lp_log_data *data;
	uint32_t batch_cnt;  /* pieces */
	uint32_t record_cnt; /* of the batch: what the limit on records counts */
	uint32_t change_cnt;
	uint32_t data_cnt;
	bool trims_only; /* empty, and may use the reserve: see lp_log_needs_trim_frame() */
	void (*complete)(struct lp_log_frame *frame);

	uint64_t seq; /* valid from append on */
	int result;   /* valid from complete() on: 0 or -errno */

	/* The log's. */
	struct lp_bdev_op op;
	struct lp_list_node node;
	struct lp_log *log;
	struct lpi_log_slot *slot;
	uint64_t oldest_needed;
	uint32_t blocks; /* with the gap before it */
	bool done;
};

/* Blocks such a frame takes, for any numbers; compare with the limits. */
uint64_t lp_log_frame_blocks(uint64_t batch_bytes, uint32_t change_cnt, uint32_t data_cnt);

/* 0: submitted, with the next sequence number. -EAGAIN: no room or too many in flight: see
 * lp_log_wait(). -EMSGSIZE: beyond the limits. -EIO: the log is in ERROR. */
int lp_log_append(struct lp_log *log, struct lp_log_frame *frame) LP_MUST_CHECK;

struct lp_log_waiter {
	void (*ready)(struct lp_log_waiter *waiter);
	struct lp_list_node node;
};

/* ready() is called once, when it is worth to try again, or the log fails. */
void lp_log_wait(struct lp_log *log, struct lp_log_waiter *waiter);
void lp_log_wait_cancel(struct lp_log_waiter *waiter);

uint64_t lp_log_next_seq(const struct lp_log *log);
/* The watermark: all frames up to this one are durable. */
uint64_t lp_log_durable_seq(const struct lp_log *log);
uint64_t lp_log_incarnation(const struct lp_log *log);
/* 0, or the error that put the log into ERROR. */
int lp_log_error(const struct lp_log *log);

/* --- Space -------------------------------------------------------------------------------------
 */

/* Frames before oldest_needed are not needed any more: their effects are durable elsewhere.
 * Never less than before, at most the durable one + 1. Takes effect by later frames: each names it,
 * and the start moves when one of these is durable. */
void lp_log_trim(struct lp_log *log, uint64_t oldest_needed);
/* A frame with trims_only should be written now, unless another frame is about to be: much is to
 * be had by it, or somebody waits for room. */
bool lp_log_needs_trim_frame(const struct lp_log *log);
/* Such a frame would say something new: without that none may be written. */
bool lp_log_can_trim(const struct lp_log *log);
/* Writes the superblock soon, if that moves the start at all. */
void lp_log_advance(struct lp_log *log);

/* For rule L6; the caller counts deferred bytes. "needed" is what trim has not released, "held"
 * what the durable superblock still covers. */
struct lp_log_usage {
	uint64_t ring_blocks; /* without the reserve */
	uint64_t needed_blocks;
	uint64_t needed_frames;
	uint32_t needed_records;
	uint64_t held_blocks;
	uint64_t held_frames;
	uint32_t flight_blocks;
	uint32_t flight_frames;
};

void lp_log_read_usage(const struct lp_log *log, struct lp_log_usage *ret_usage);
/* Half of the ring is needed, or half of the records that there may be: time to flush the index and
 * put payloads to their place. */
bool lp_log_is_half(const struct lp_log *log);
/* So little is left that only what makes room should still be written: enough for the frames under
 * way, the group that collects, and as many again; or a quarter of the records. */
bool lp_log_is_tight(const struct lp_log *log);
/* So many blocks may be needed before it is. */
uint64_t lp_log_tight_blocks(const struct lp_log *log);
/* A frame of so many blocks finds room though nothing more is trimmed: when the start has followed
 * what is needed. */
bool lp_log_takes(const struct lp_log *log, uint64_t blocks);
/* The longest frame might not find room now. */
bool lp_log_is_full(const struct lp_log *log);

/* --- Death -------------------------------------------------------------------------------------
 */

struct lp_log_closing {
	void (*complete)(struct lp_log_closing *closing);
	int result;

	struct lp_task task; /* the log's */
	struct lp_log *log;
};

/* No frame may be in flight (asserted), none may follow. Writes a superblock that tells what was
 * acknowledged, which a log without one cannot know of its last frames. In ERROR, or before
 * recovery, it writes nothing and gives -EIO. The log is to be freed afterwards. */
void lp_log_close(struct lp_log *log, struct lp_log_closing *closing);

#endif
