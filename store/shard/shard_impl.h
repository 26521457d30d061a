/* SPDX-License-Identifier: Apache-2.0 */
/* Internals that the files of a shard share.
 *
 * Threads, blocking, errors: as store/shard/shard.h says.
 *
 *   shard.c             running: tells each part what happens in the others
 *   shard/open.c        opening and closing
 *   shard/replay.c      replay of the log
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
#define LPI_SHARD_GIFTS   64u /* chunks whose single blocks are given at once */
/* With fewer free blocks than this, but at most that part of the device, another chunk is leased.
 */
#define LPI_LOW_WATER_BLOCKS UINT64_C(4096)
#define LPI_LOW_WATER_SHARE  16u
/* Part of the budget for the trees of a hybrid allocator. */
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
	uint64_t next_ns;      /* earliest start */
	uint64_t inserted_seq; /* inserted into the index when the last one began, */
	uint64_t removals;     /* and removals until then */
	struct lp_commit_waiter waiter;
	struct lp_work work;
	int result;
	struct lp_timer timer;       /* armed: waiters wait for its end */
	struct lp_timer start_timer; /* armed: it will begin */
	struct lpi_space_waiters waiters;
	uint32_t chunks[LPI_SHARD_RETURNS]; /* to be returned by the work */
	uint32_t chunk_cnt;
};

/* Chunks that another shard asks for: shard/lend_chunks.c. */
struct lpi_lend {
	bool is_stopped; /* refuses questions */
	bool is_running;
	bool is_recorded;
	uint32_t rounds;
	uint64_t end_ns;
	bool has_set_aside;  /* in this round, once */
	bool is_aside;       /* gifts has blocks set aside that are not given yet */
	uint64_t aside_seq;  /* the last frame that may mention them */
	uint64_t record_seq; /* frame of their records */
	bool is_going_home;
	bool is_in_doubt;  /* this round has given something, or did not come to its end */
	uint64_t askers;   /* one bit for each shard that asked */
	uint64_t removals; /* and blocks in use, at the last round that gave nothing */
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

/* Result of the last question, and the state when it was put. */
struct lpi_space_question {
	uint64_t nr;       /* questions so far */
	uint64_t moves;    /* lp_chunks_moves() before the question, */
	uint64_t evasions; /* and lp_chunks_evasions() */
	bool was_in_vain;  /* all shards answered that they had no space */
};

/* Blocks that cannot be written: shard/bad_blocks.c. */
struct lpi_bad {
	struct lp_space_pin *holds; /* one for each bad block; NULL: none so far */
	uint32_t cnt;
	int64_t since_ns;    /* wall clock time of the first */
	struct lp_task task; /* queued: there are new bad blocks */
};

struct lp_shard {
	struct lp_shard_options options;
	struct lp_index_plan plan;
	struct lp_log_limits limits;
	struct lp_bdev_chan *data;
	struct lp_bdev_chan *log_chan;  /* the same, or of the wal device */
	struct lp_kv_chans index_chans; /* separate, so that reads of the index are counted apart */
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

	/* The index reports from its own threads; one message at a time brings the report to this
	 * thread. */
	struct lp_kv_events kv_events;
	struct lp_msg kv_msg;
	_Atomic bool kv_msg_sent;
	_Atomic uint64_t kv_persisted; /* `applied` as of the last flush, */
	_Atomic uint64_t kv_whole;     /* and up to where it was whole (commit/owed_records.h) */
	_Atomic bool kv_is_unread;     /* these numbers could not be read after the flush */
	_Atomic int kv_error;       /* the newest that a resume may end; 0: none since the last */
	_Atomic int kv_error_final; /* one that only reopening ends; 0: none */
	_Atomic bool kv_is_short;   /* a compaction found no space */
	pthread_mutex_t kv_reason_lock;
	char kv_reason[LP_SHARD_REASON_BYTES / 2]; /* of the newest error */
	struct lp_timer resume_timer;
	struct lp_work resume_work;
	int resume_result;
	uint32_t return_chunks[LPI_SHARD_RETURNS]; /* to be returned by the resume */
	uint32_t return_cnt;
	uint32_t resume_failures; /* in a row, for other reasons than a full device */
	struct lp_work flush_work;
	struct lp_timer flush_timer; /* armed after a flush was refused, or is unread */
	int flush_result;
	int reread_result;        /* of reading the persisted number again */
	uint32_t reread_failures; /* in a row, while the log admits no writes */

	struct lp_work lease_work;
	int lease_result;
	uint32_t lease_chunk;
	uint32_t lease_hint;
	struct lp_chunk_blocks lease_gifts[LPI_SHARD_GIFTS]; /* instead of a chunk */
	uint32_t lease_gift_cnt;
	bool lease_exhausted;
	bool lease_may_ask;       /* ask other shards for space, because a write waits */
	bool lease_has_asked;     /* others were asked, and no waiter was refused since */
	bool lease_is_asking;     /* at the last attempt not all shards had answered */
	uint64_t lease_end_ns;    /* answers are not waited for after this */
	uint64_t lease_poll_ns;   /* until the next look for answers */
	_Atomic bool lease_holds; /* a chunk, or blocks, that are not in its space yet */
	struct lpi_space_question question;
	bool gave_way; /* blocks waiting for a discard were freed for waiters */
	struct lp_timer lease_timer;
	struct lpi_space_waiters space_waiters;

	struct lpi_reclaim reclaim;
	struct lpi_lend lend;
	struct lpi_bad bad;
	uint64_t freeing_blocks;
	uint64_t start_versions; /* waiting payloads at which write-back begins */
	uint64_t renewed_seq;    /* the newest frame with renewed payloads, */
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
	struct lp_bufs *replay_bufs; /* read-only: for pending payloads; or NULL */
};

/* Records of deferred payloads in the index as it is now. */
int lpi_shard_count_records(struct lp_shard *shard, uint64_t *ret_cnt) LP_MUST_CHECK;

/* Waits in a way that lets all other tasks of the thread run. */
void lpi_shard_turn(struct lp_shard *shard);
/* Recovers the log, which was just made, and puts its content where it belongs. Then the space is
 * complete. */
int lpi_shard_replay(struct lp_shard *shard) LP_MUST_CHECK;

void lpi_shard_init_running(struct lp_shard *shard);
/* All parts exist: begins the shard's background work. */
void lpi_shard_begin(struct lp_shard *shard);
/* Lets the log forget frames whose content is durable elsewhere. */
void lpi_shard_trim(struct lp_shard *shard);
/* Puts records of some chunks into the collecting group: those whose changes have been in the log
 * for the longest. False when there are no more. */
bool lpi_shard_checkpoint_some(struct lp_shard *shard);
/* Requests a flush of all that is in the index now; once, until that is persisted. */
void lpi_shard_flush_index(struct lp_shard *shard);
/* After one second, unless the shard closes or has failed: returns empty chunks to the device, so
 * that the index may have them, and resumes the index. */
void lpi_shard_resume_later(struct lp_shard *shard);
/* The shard's thread handles all that the index has reported so far. */
void lpi_shard_take_up_kv_news(struct lp_shard *shard);
/* Space is short: blocks that wait for their discard become free, unless the discard has begun.
 * Returns whether there were any; gave_way says so as well. */
bool lpi_shard_let_go(struct lp_shard *shard);
/* Takes chunks that hold nothing out of use, to be returned by a helper: at most `max` and
 * LPI_SHARD_RETURNS. At least keep_blocks blocks stay free. */
uint32_t lpi_shard_choose_empty(struct lp_shard *shard, uint64_t keep_blocks, uint32_t max,
				uint32_t *ret_chunks);
/* The reason names the operation `what`; bdev: the device, if one failed. The shard goes on
 * read-only (rule L7).
 */
void lpi_shard_fail(struct lp_shard *shard, int err, const char *what, struct lp_bdev *bdev);
/* Blocks of another shard have become this shard's, or are about to: adds them to the space. */
void lpi_shard_take_gifts(struct lp_shard *shard);
/* The shard has given away blocks that it does not need now, and leases nothing ahead for a while.
 */
void lpi_shard_has_lent(struct lp_shard *shard);
/* Chunks or blocks have left its space, and are not in the table or with another shard yet. */
bool lpi_shard_is_handing_over(const struct lp_shard *shard);
/* The opposite: another shard has given it blocks, or it has leased a chunk, and they are not in
 * its space yet. */
bool lpi_shard_is_taking_up(const struct lp_shard *shard);
/* Files, or other shards, lack space that this shard does not need. */
bool lpi_shard_should_return(const struct lp_shard *shard);

void lpi_lease_init(struct lp_shard *shard);
/* Leases a chunk, if there is little space left. */
void lpi_lease_look(struct lp_shard *shard);
/* Tells all waiters for space. */
void lpi_lease_tell(struct lp_shard *shard, int result);

void lpi_reclaim_init(struct lp_shard *shard);
/* Returns chunks that hold nothing, if another part lacks them. */
void lpi_reclaim_look(struct lp_shard *shard);
/* Whether lp_shard_admit() would admit it at present; starts nothing if not. */
bool lpi_reclaim_has_room(const struct lp_shard *shard, enum lp_shard_use use);
bool lpi_reclaim_is_idle(const struct lp_shard *shard);
/* Also tells its waiters. */
void lpi_reclaim_stop(struct lp_shard *shard);

void lpi_lend_init(struct lp_shard *shard);
/* From now on other shards may ask, until lpi_lend_stop(). */
void lpi_lend_begin(struct lp_shard *shard);
/* lpi_lend_collect() is called by a helper and collects blocks that others gave to this shard.
 * False: none. lpi_lend_take_up() then adds them on the shard's thread. False: there were none. */
bool lpi_lend_collect(struct lp_shard *shard);
bool lpi_lend_take_up(struct lp_shard *shard);
/* After an index flush: returns blocks of chunks that others leased to these shards. */
void lpi_lend_look(struct lp_shard *shard);
/* Own writers wait: they get blocks that were set aside for others and are not given yet. */
void lpi_lend_put_back(struct lp_shard *shard);
bool lpi_lend_is_idle(const struct lp_shard *shard);
void lpi_lend_stop(struct lp_shard *shard);

/* The block cannot be written, so it is held and gets no other owner. False: there are too many
 * already. */
bool lpi_bad_note(struct lp_shard *shard, uint64_t block) LP_MUST_CHECK;
/* A copy of the block's content in a buffer of its own; no buffer: there is no memory. */
struct lp_seg lpi_bad_copy(struct lp_shard *shard, const uint8_t *block);
/* Stuck payloads go into the index, as far as there is room. */
void lpi_bad_move_some(struct lp_shard *shard);
/* Writes payloads of frame `seq` and before, which wait for the host of an image, into a newer
 * frame if that shortens the log; as many as fit. */
void lpi_renew_some(struct lp_shard *shard, uint64_t seq);
/* The log has content other than payloads, without which it would be shorter. */
bool lpi_renew_helps(const struct lp_shard *shard);
void lpi_renew_numbered(struct lp_shard *shard, uint64_t from, uint64_t to);

/* Called when nothing is pending any more. */
void lpi_bad_fini(struct lp_shard *shard);

/* None of the shard's own background work is under way. */
bool lpi_shard_is_quiet(const struct lp_shard *shard);
/* Also tells the waiters for space. */
void lpi_shard_stop_timers(struct lp_shard *shard);

#endif
