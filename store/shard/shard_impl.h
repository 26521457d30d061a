/* SPDX-License-Identifier: Apache-2.0 */
/* Internals that the files of a shard share.
 *
 * Threads, blocking, errors: as store/shard/shard.h says.
 *
 *   shard.c             running: what happens in one part is told to the others
 *   shard/open.c        opening and closing
 *   shard/replay.c      what the log held
 *   shard/lease.c       space for itself
 *   shard/lend_chunks.c space for others
 *   shard/reclaim.c     room for the index
 *   shard/bad_blocks.c  blocks that cannot be written
 */
#ifndef LP_STORE_SHARD_SHARD_IMPL_H
#define LP_STORE_SHARD_SHARD_IMPL_H

#include <pthread.h>
#include <stdatomic.h>

#include "store/index/async.h"
#include "store/index/plan.h"
#include "store/kvfs/blockfs.h"
#include "store/kvfs/read_only.h"
#include "store/shard/shard.h"

#define LPI_SHARD_PINS    64u /* runs of write-back in flight, at most */
#define LPI_SHARD_RETURNS 16u /* chunks returned at once */
#define LPI_SHARD_GIFTS   64u /* chunks of which single blocks change hands at once */
/* With fewer free blocks another chunk is leased: so many, but at most that part of the device. */
#define LPI_LOW_WATER_BLOCKS UINT64_C(4096)
#define LPI_LOW_WATER_SHARE  16u
/* Of the budget the trees of a hybrid allocator have this part. */
#define LPI_TREES_SHARE 32u

struct lpi_shard_pin {
	struct lp_space_pin pin;
	struct lp_list_node node; /* of the free ones, or of those in use */
};

LP_LIST_DEFINE(lpi_pin_list, struct lpi_shard_pin, node);
LP_LIST_DEFINE(lpi_space_waiters, struct lp_commit_waiter, node);

/* A reclaim of room for the index: shard/reclaim.c. */
struct lpi_reclaim {
	bool is_running;
	bool is_checkpointed;
	bool is_compacted;
	uint32_t rounds;
	uint64_t start_ns;
	uint64_t next_ns;      /* not before */
	uint64_t inserted_seq; /* what was in the index when the last one began, */
	uint64_t removals;     /* and how many removals there had been */
	struct lp_commit_waiter waiter;
	struct lp_work work;
	int result;
	struct lp_timer timer;       /* armed: it is worth waiting for it */
	struct lp_timer start_timer; /* armed: it will begin */
	struct lpi_space_waiters waiters;
	uint32_t chunks[LPI_SHARD_RETURNS]; /* to be returned by the work */
	uint32_t chunk_cnt;
};

/* Chunks that another shard asks for: shard/lend_chunks.c. */
struct lpi_lend {
	bool is_stopped; /* it does not listen */
	bool is_running;
	bool is_recorded;
	uint32_t rounds;
	uint64_t end_ns;
	bool has_set_aside;  /* in this round, once */
	bool is_aside;       /* what is in gifts; not given yet */
	uint64_t aside_seq;  /* the last frame that may speak of it */
	uint64_t record_seq; /* where its records are */
	bool is_going_home;
	bool is_in_doubt;  /* this round has given something, or did not come to its end */
	uint64_t askers;   /* a bit for each shard that asked */
	uint64_t removals; /* and blocks in use, as a round found them that gave nothing */
	uint64_t used_blocks;
	struct lp_msg msg;
	_Atomic bool msg_sent;
	struct lp_commit_waiter waiter;
	struct lp_work work;
	struct lp_timer timer;
	uint32_t chunks[LPI_SHARD_RETURNS]; /* to be returned by the work */
	uint32_t chunk_cnt;
	struct lp_chunk_blocks gifts[LPI_SHARD_GIFTS]; /* to be given by the work */
	uint32_t gift_cnt;
	int give_result;
};

/* What the last question has told, and when it was put. */
struct lpi_space_question {
	uint64_t nr;       /* questions so far */
	uint64_t moves;    /* lp_chunks_moves() of before it, */
	uint64_t evasions; /* and lp_chunks_evasions() */
	bool was_in_vain;  /* and everybody has said so */
};

/* Blocks that cannot be written: shard/bad_blocks.c. */
struct lpi_bad {
	struct lp_space_pin *holds; /* one for each; NULL: there has been none */
	uint32_t cnt;
	int64_t since_ns;    /* of the day: the first */
	struct lp_task task; /* queued: there are new ones */
};

struct lp_shard {
	struct lp_shard_options options;
	struct lp_index_plan plan;
	struct lp_log_limits limits;
	struct lp_bdev_chan *data;
	struct lp_bdev_chan *log_chan;  /* the same, or of the wal device */
	struct lp_kv_chans index_chans; /* apart: what is read of the index counts for itself */
	struct lp_blockfs *files;
	struct lp_kvfs_blockfs kvfs;
	struct lp_kvfs_ro *kvfs_ro; /* above it; NULL unless read-only */
	struct lp_kv *kv;
	struct lp_overlay *overlay;
	struct lp_space *space;
	struct lp_pending *pending;
	struct lp_deferrals *deferrals; /* NULL read-only */
	struct lp_pending_events pending_events;
	struct lp_discards *discards; /* NULL: nothing is discarded */
	struct lp_log *log;
	struct lp_writeback *writeback;
	struct lp_commit *commit;
	_Atomic(struct lp_commit *) barrier_commit; /* the same, for RocksDB's threads */
	struct lp_chunks *chunks;

	struct lp_commit_events commit_events;
	struct lp_writeback_events writeback_events;
	struct lpi_shard_pin pins[LPI_SHARD_PINS];
	struct lpi_pin_list pins_free;
	struct lpi_pin_list pins_used;

	/* The index tells from its threads; one message at a time brings it here. */
	struct lp_kv_events kv_events;
	struct lp_msg kv_msg;
	_Atomic bool kv_msg_sent;
	_Atomic uint64_t kv_persisted; /* `applied` as of the last flush, */
	_Atomic uint64_t kv_whole;     /* and up to where it was whole (commit/owed_records.h) */
	_Atomic bool kv_is_unread;     /* these could not be read then */
	_Atomic int kv_error;       /* the newest that a resume may end; 0: none since the last */
	_Atomic int kv_error_final; /* one that only reopening ends; 0: none */
	_Atomic bool kv_is_short;   /* a compaction found no space */
	pthread_mutex_t kv_reason_lock;
	char kv_reason[LP_SHARD_REASON_BYTES / 2]; /* of the newest error */
	struct lp_timer resume_timer;
	struct lp_work resume_work;
	int resume_result;
	uint32_t return_chunks[LPI_SHARD_RETURNS]; /* by the resume */
	uint32_t return_cnt;
	uint32_t resume_failures; /* in a row, for other reasons than a full device */
	struct lp_work flush_work;
	struct lp_timer flush_timer; /* armed after a flush was refused, or is unread */
	int flush_result;
	int reread_result;        /* of what could not be read when it was flushed */
	uint32_t reread_failures; /* in a row, while the door is closed */

	struct lp_work lease_work;
	int lease_result;
	uint32_t lease_chunk;
	uint32_t lease_hint;
	struct lp_chunk_blocks lease_gifts[LPI_SHARD_GIFTS]; /* instead of a chunk */
	uint32_t lease_gift_cnt;
	bool lease_exhausted;
	bool lease_may_ask;       /* others for theirs: somebody waits */
	bool lease_has_asked;     /* and nobody was refused since */
	bool lease_is_asking;     /* when it was tried the last time they had not all answered */
	uint64_t lease_end_ns;    /* their answers are not waited for any longer */
	uint64_t lease_poll_ns;   /* until it is looked again whether they have */
	_Atomic bool lease_holds; /* a chunk, or blocks, that the shard has not taken up yet */
	struct lpi_space_question question;
	bool gave_way; /* to those who wait for space: discards */
	struct lp_timer lease_timer;
	struct lpi_space_waiters space_waiters;

	struct lpi_reclaim reclaim;
	struct lpi_lend lend;
	struct lpi_bad bad;
	uint64_t freeing_blocks;
	uint64_t start_versions; /* payloads that wait when write-back begins */
	uint64_t renewed_seq;    /* the newest frame with payloads that ride once more, */
	uint64_t renewed_cnt;    /* and how many those are */
	uint64_t removals;       /* that may have made room in the index */

	uint64_t persisted_seq; /* the shard thread's copy of kv_persisted, */
	uint64_t whole_seq;     /* and of kv_whole */
	uint64_t trimmed_seq;
	uint64_t record_seq;   /* the newest frame with a checkpoint record */
	uint8_t *record;       /* room for one checkpoint record */
	uint8_t *change_bytes; /* room for the changes of one frame */
	int error;
	char reason[LP_SHARD_REASON_BYTES];
	bool defers_to_index; /* as the last lp_shard_defer_need() found it */
	bool is_door_closed;  /* the log is too full for more than making room */
	bool closing;
	struct lp_shard_recovery recovery;
	struct lp_bufs *replay_bufs; /* read-only: of what is pending; or NULL */
};

/* Records of deferred payloads in the index as it is now. */
int lpi_shard_count_records(struct lp_shard *shard, uint64_t *ret_cnt) LP_MUST_CHECK;

/* Waits in a way that lets everybody else work. */
void lpi_shard_turn(struct lp_shard *shard);
/* The log, just made, is recovered, and what it holds is put where it belongs; then the space is
 * complete. */
int lpi_shard_replay(struct lp_shard *shard) LP_MUST_CHECK;

void lpi_shard_init_running(struct lp_shard *shard);
/* Everything stands: begins what a shard does by itself. */
void lpi_shard_begin(struct lp_shard *shard);
/* The log may forget what is durable elsewhere. */
void lpi_shard_trim(struct lp_shard *shard);
/* Some records of the chunks whose changes have been in the log for the longest go into the group
 * that collects. False when there are no more. */
bool lpi_shard_checkpoint_some(struct lp_shard *shard);
/* Asks for a flush of all that is in the index now; once, until that is persisted. */
void lpi_shard_flush_index(struct lp_shard *shard);
/* In a second, unless the shard closes or has failed: empty chunks go back to the device, so that
 * the index may have them, and it is resumed. */
void lpi_shard_resume_later(struct lp_shard *shard);
/* What the index told so far, taken up by the shard's thread. */
void lpi_shard_take_up_kv_news(struct lp_shard *shard);
/* Somebody lacks space: what waits for its discard is free, as far as none has begun. Whether there
 * was any; gave_way says so as well. */
bool lpi_shard_let_go(struct lp_shard *shard);
/* Chunks that hold nothing, `max` and LPI_SHARD_RETURNS at most, out of use now and to be returned
 * by a helper; so many blocks stay free. */
uint32_t lpi_shard_choose_empty(struct lp_shard *shard, uint64_t keep_blocks, uint32_t max,
				uint32_t *ret_chunks);
/* What did not work is its reason; bdev: the device, if it was one. It goes on read-only (rule L7).
 */
void lpi_shard_fail(struct lp_shard *shard, int err, const char *what, struct lp_bdev *bdev);
/* Somebody else's blocks have become the shard's, or are about to: takes them up. */
void lpi_shard_take_gifts(struct lp_shard *shard);
/* It has given away what it does not need now, and leases nothing ahead for a while. */
void lpi_shard_has_lent(struct lp_shard *shard);
/* Chunks or blocks are out of its space, and not in the table or with somebody else yet. */
bool lpi_shard_is_handing_over(const struct lp_shard *shard);
/* The opposite: somebody has given it blocks, or it has leased a chunk, and its space has them not
 * yet. */
bool lpi_shard_is_taking_up(const struct lp_shard *shard);
/* Files, or other shards, lack what this one does not need. */
bool lpi_shard_should_return(const struct lp_shard *shard);

void lpi_lease_init(struct lp_shard *shard);
/* Leases a chunk, if there is little space left. */
void lpi_lease_look(struct lp_shard *shard);
/* All who wait for space. */
void lpi_lease_tell(struct lp_shard *shard, int result);

void lpi_reclaim_init(struct lp_shard *shard);
/* Returns chunks that hold nothing, if somebody lacks them. */
void lpi_reclaim_look(struct lp_shard *shard);
/* lp_shard_admit() would let it in as things are; nothing is done about it if not. */
bool lpi_reclaim_has_room(const struct lp_shard *shard, enum lp_shard_use use);
bool lpi_reclaim_is_idle(const struct lp_shard *shard);
/* Also tells those who wait. */
void lpi_reclaim_stop(struct lp_shard *shard);

void lpi_lend_init(struct lp_shard *shard);
/* From now on other shards may ask; until the stop. */
void lpi_lend_begin(struct lp_shard *shard);
/* By a helper: what others gave to this shard. False: nothing. Then, on the shard's thread: takes
 * it up; false: there was nothing. */
bool lpi_lend_collect(struct lp_shard *shard);
bool lpi_lend_take_up(struct lp_shard *shard);
/* After the index was flushed: blocks of chunks that others leased go back to these. */
void lpi_lend_look(struct lp_shard *shard);
/* Own writers wait: what was set aside for others and is not given yet is theirs. */
void lpi_lend_put_back(struct lp_shard *shard);
bool lpi_lend_is_idle(const struct lp_shard *shard);
void lpi_lend_stop(struct lp_shard *shard);

/* The block cannot be written: nobody else gets it. False: there are too many already. */
bool lpi_bad_note(struct lp_shard *shard, uint64_t block) LP_MUST_CHECK;
/* What it should hold, in a buffer of its own; none: there is no memory. */
struct lp_seg lpi_bad_copy(struct lp_shard *shard, const uint8_t *block);
/* Payloads that are stuck go into the index, as far as there is room. */
void lpi_bad_move_some(struct lp_shard *shard);
/* Payloads of frame `seq` and before, which wait for the host of an image, ride in a newer frame,
 * if that leads to a shorter log; as many as fit. */
void lpi_renew_some(struct lp_shard *shard, uint64_t seq);
/* The log has something that is no payload: without it, it would be shorter. */
bool lpi_renew_helps(const struct lp_shard *shard);
void lpi_renew_numbered(struct lp_shard *shard, uint64_t from, uint64_t to);

/* When nothing is pending any more. */
void lpi_bad_fini(struct lp_shard *shard);

/* Nothing of the shard's own is under way. */
bool lpi_shard_is_quiet(const struct lp_shard *shard);
/* Also tells those who wait for space. */
void lpi_shard_stop_timers(struct lp_shard *shard);

#endif
