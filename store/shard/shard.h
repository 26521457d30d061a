/* SPDX-License-Identifier: Apache-2.0 */
/* Foundation of one shard: log, index, space and commit pipeline, opened and kept running.
 *
 * Threads: the reactor's. lp_shard_open() and lp_shard_close() turn the reactor while they wait.
 * Blocking: none but these two, and the calls for a helper.
 * Memory: opening needs memory of fixed size. Read-only, records and payloads that are only in
 * the log are kept in memory, and take as much as in the log.
 * Errors: opening fails with the error of a part, corruption recorded by lp_corrupt(), and has
 * then changed nothing that a next opening would miss. A shard whose device fails is in ERROR
 * (rule L7): lp_shard_error(). The way out is to close it and open it again, read-only if the
 * device cannot be written any more.
 *
 * It has the log, the index, the object space, deferred payloads, write-back and the commit
 * pipeline, and tells each part what it must know of the others. Objects are built on it. By
 * itself it takes payloads to their place, flushes the index and checkpoints the space when the
 * log is half full or room is needed. It trims the log and leases chunks ahead of need. It
 * returns chunks that hold nothing when files or other shards lack them. It resumes the index
 * when space has come back. A few blocks that cannot be written are borne: the index has their
 * content (rule L6).
 *
 * Opening takes the log's content to its place, payloads included, before anything is served. The
 * time follows from the log's length. Of its payloads deferred_blocks_max at most are deferred,
 * or more if the index has not been flushed for long.
 *
 * Read-only, nothing at all is written to any device, not even what a recovery would write. All
 * durable state can be read, and nothing else be done: there is no commit pipeline. A device that
 * fails every write can be read so (rule L7).
 */
#ifndef LP_STORE_SHARD_SHARD_H
#define LP_STORE_SHARD_SHARD_H

#include "base/loop/workers.h"
#include "base/memory/buf.h"
#include "store/commit/commit.h"
#include "store/commit/deferred_payloads.h"
#include "store/commit/deferred_records.h"
#include "store/commit/writeback.h"
#include "store/space/discards.h"
#include "store/space/space.h"
#include "store/volume/devices.h"

/* Free blocks that a shard never gives to another one: for operations that cut files
 * (block/core/data_io.h). */
#define LP_SHARD_CUT_BLOCKS UINT64_C(64)

struct lp_shard;

#define LP_SHARD_REASON_BYTES 256u

struct lp_shard_events {
	/* Called once: nothing is acknowledged any more (rule L7). Called from inside the code that
	 * found the failure. The reason is one line for people, with the error, and with device and
	 * offset if a device failed.
	 */
	void (*failed)(struct lp_shard_events *events, int err, const char *reason);
};

/* Blocks that a change may still defer though it is not deferred itself: its edges, and inline data
 * that moves.
 */
#define LP_SHARD_DEFERRED_MIN UINT64_C(8)

struct lp_shard_options {
	struct lp_reactor *reactor;
	struct lp_workers *workers;
	struct lp_devices *devices; /* outlive the shard */
	struct lp_bufs *bufs;       /* of the reactor's thread; opening takes few or none */
	uint32_t shard_idx;
	enum lp_alloc_kind alloc_kind;
	const struct lp_clock *sim_clock; /* NULL, or that of a simulation */
	uint64_t index_cache_bytes;       /* 0: the index's default, as below */
	uint64_t index_buffer_bytes;
	uint64_t memory_bytes;        /* 0: a default; for the following, see store/index/plan.h */
	uint64_t deferred_blocks_max; /* payloads waiting for their place; 0: a default; at least
				       * LP_SHARD_DEFERRED_MIN */
	uint32_t bad_blocks_max; /* blocks that cannot be written, beside these; 0: a default */
	uint64_t files_reserve_bytes; /* 0: a default */
	uint32_t log_records_max; /* records that a start puts into the index again; 0: a default */
	uint32_t replay_stalls_max; /* retries of one batch, 10 ms each, while compactions fail; 0:
				       a default */
	enum lp_deferred_store deferred_store;
	uint64_t hold_ns; /* as in lp_commit_options */
	bool discard;     /* discard freed space in the background, if the device can */
	bool read_only;   /* a must if the devices are */
	/* Read-only: frames of the log from this one on are ignored, because they may not be
	 * durable; 0: none are. */
	uint64_t seq_end;
	struct lp_shard_events *events;        /* or NULL */
	struct lp_bdev_observer *log_observer; /* of frames; or NULL */
	struct lp_bdev_observer *writeback_observer;
};

/* -EROFS: the devices are open for reading only, but options.read_only is not set. */
int lp_shard_open(const struct lp_shard_options *options,
		  struct lp_shard **ret_shard) LP_MUST_CHECK;
/* Makes all changes durable and closes the log, so that the next start is short. After an error, or
 * with abandon, it only waits for I/O in flight. It waits ten seconds for an index that fails and
 * makes no progress though it is resumed. Accepts NULL. The shard is gone in any case. The result
 * says whether all changes reached the device and their final blocks. Acknowledged changes are on
 * the device in any case, and the next opening finds them. */
int lp_shard_close(struct lp_shard *shard, bool abandon) LP_MUST_CHECK;

/* --- After a failure ---------------------------------------------------------------------------
 *
 * A shard that has failed is taken apart, and opened again read-only, by its thread and a helper
 * in turn, so that the thread never waits:
 *
 *   thread: lp_shard_stop(), turns until lp_shard_is_stopped()
 *   helper: lp_shard_close_index()
 *   thread: turns until lp_shard_is_stopped(), lp_shard_close(), which waits for nothing then
 *   helper: lp_shard_open_aside()
 *   thread: lp_shard_adopt()
 */

/* The shard begins nothing more; work under way ends. */
void lp_shard_stop(struct lp_shard *shard);
/* Nothing is under way. */
bool lp_shard_is_stopped(const struct lp_shard *shard);
/* May block. Meanwhile only the shard's index parts may be used, and only by this call. */
void lp_shard_close_index(struct lp_shard *shard);
/* As lp_shard_open() read-only, but called by a helper, which turns a reactor of its own meanwhile.
 * options.reactor says of which kind. The shard has no way to its devices until it is adopted. */
int lp_shard_open_aside(const struct lp_shard_options *options,
			struct lp_shard **ret_shard) LP_MUST_CHECK;
/* The shard belongs to this reactor from now on. After an error it may only be closed. */
int lp_shard_adopt(struct lp_shard *shard, struct lp_reactor *reactor) LP_MUST_CHECK;

int lp_shard_error(const struct lp_shard *shard);
/* Why it failed; "" while it has not. */
const char *lp_shard_reason(const struct lp_shard *shard);
/* 0, or why the index cannot be written at present. The shard goes on and tries again. -ENOSPC
 * among others. */
int lp_shard_index_error(const struct lp_shard *shard);
/* The last frame that is known to be durable. */
uint64_t lp_shard_durable_seq(const struct lp_shard *shard);

bool lp_shard_is_read_only(const struct lp_shard *shard);

/* The parts that objects use. Read-only there is no pipeline: NULL; the overlay is empty. */
struct lp_commit *lp_shard_commit(struct lp_shard *shard);
struct lp_kv *lp_shard_kv(struct lp_shard *shard);
struct lp_overlay *lp_shard_overlay(struct lp_shard *shard);
struct lp_space *lp_shard_space(struct lp_shard *shard);
struct lp_pending *lp_shard_pending(struct lp_shard *shard);
const struct lp_writeback_stats *lp_shard_writeback_stats(const struct lp_shard *shard);
struct lp_bdev_chan *lp_shard_data(struct lp_shard *shard);
/* Channel of the log: the same as the data channel, unless the store has a device for the log. */
struct lp_bdev_chan *lp_shard_log_chan(struct lp_shard *shard);

/* Channels through which the index's tables are read. */
struct lp_kv_chans;
struct lp_kv_chans *lp_shard_index_chans(struct lp_shard *shard);

/* The shard has been idle for long: memory of finished operations goes back to the system, and the
 * index's memory too if `flushes`. */
void lp_shard_rest(struct lp_shard *shard, bool flushes);
/* An operation waits for buffers: deferred payloads that hold buffers go to their blocks. */
void lp_shard_want_bufs(struct lp_shard *shard);
/* How many more payloads may be deferred (rule L6). Read-only this is 0, and no other call from
 * here down to waiting for space may be made (asserted). */
uint64_t lp_shard_defer_room(const struct lp_shard *shard);
/* Whether `cnt` more payloads may be deferred now. While the host of an image is full the limit is
 * lower, or payloads that wait for it would fill the log. It is lowest for new places, which may
 * have no space there. */
bool lp_shard_may_defer(const struct lp_shard *shard, uint64_t cnt, bool is_to_new_place);
/* How many payloads may be deferred when none waits. An operation that needs more would wait for
 * ever. At least LP_SHARD_DEFERRED_MIN, whatever was configured. */
uint64_t lp_shard_defer_max(const struct lp_shard *shard);
/* Takes effect with the next lp_shard_defer_need(). Payloads that wait already keep their store. */
void lp_shard_set_deferred_store(struct lp_shard *shard, enum lp_deferred_store kind);
/* Adds what `cnt` deferred blocks need of a group; `need` must already have the rest of the
 * transaction's needs. The blocks are kept as configured. The log keeps them when the index has no
 * room for them, or a group has not. The caller then reserves `need` and defers in the same turn.
 */
void lp_shard_defer_need(struct lp_shard *shard, uint32_t cnt, struct lp_commit_need *need);
/* One deferred block: into the collecting group, and pending (rule S4). Room was reserved, and
 * lp_shard_defer_room() is not 0. */
void lp_shard_defer(struct lp_shard *shard, const struct lp_log_payload *about, struct lp_seg seg);
/* Taken blocks go into the collecting group's changes. So do freed ones; their pending payloads are
 * dropped when that is durable. Room was reserved: one change each. */
void lp_shard_taken(struct lp_shard *shard, struct lp_extent extent);
void lp_shard_freed(struct lp_shard *shard, struct lp_extent extent);

/* How often the shard has asked others for space. A transaction that will need space notes this
 * when it begins.
 */
uint64_t lp_shard_questions(const struct lp_shard *shard);
/* Told with 0 when there may be more space than now, or with -ENOSPC when all chunks are leased and
 * the shard cannot get more. waiter->begun is lp_shard_questions() as of the transaction's begin: a
 * question put before that does not answer the transaction (rule S5). */
void lp_shard_wait_space(struct lp_shard *shard, struct lp_commit_waiter *waiter);
/* Called right after a transaction has found no space. True: a question put since it began has been
 * answered in vain, and nothing has moved since. Then there is no space for this transaction, and
 * it need not wait for another question. */
bool lp_shard_has_no_space(struct lp_shard *shard, uint64_t begun);
/* Blocks that another shard gave to this one, and that this shard has not added to its space yet.
 */
uint64_t lp_shard_gift_blocks(const struct lp_shard *shard);
/* Blocks whose freeing is put, but not durable yet. */
uint64_t lp_shard_freeing_blocks(const struct lp_shard *shard);

/* Effect of a transaction on the index. */
enum lp_shard_use {
	LP_SHARD_FREES,       /* removes, or makes smaller */
	LP_SHARD_FREES_LATER, /* the same, but refused while the index has stopped */
	LP_SHARD_REWRITES,    /* existing records */
	LP_SHARD_GROWS,
};
/* 0: the index has the room for it, also to go on afterwards (rule L8). -ENOSPC. -EBUSY:
 * compactions that are due may still make room; ask again a moment later, but not for ever.
 * -EAGAIN: the index is being compacted and empty chunks are returned, because something was
 * removed since the last such attempt: lp_shard_wait_index_room(), then ask again. */
int lp_shard_admit(struct lp_shard *shard, enum lp_shard_use use) LP_MUST_CHECK;
/* True: lp_shard_admit() would at present refuse changes that make the index larger, or all
 * changes. */
bool lp_shard_takes_no_more(const struct lp_shard *shard);
/* Something was removed from the index. */
void lp_shard_note_removal(struct lp_shard *shard);
/* The index, or the host of an image file, has no space, and the log is full of changes that wait
 * for it; or the largest number of groups waits for the index. */
bool lp_shard_is_stuck(const struct lp_shard *shard);
/* The host of an image file has no space for deferred payloads. Write-back tries again and again.
 */
bool lp_shard_cannot_write_back(const struct lp_shard *shard);
/* Told with 0 when that attempt has ended, or with -ENOSPC when it takes long. */
void lp_shard_wait_index_room(struct lp_shard *shard, struct lp_commit_waiter *waiter);

/* A simulation's driver calls this between turns: runs one of the index's jobs. */
bool lp_shard_sim_run_one(struct lp_shard *shard);

struct lp_shard_usage {
	uint64_t index_bytes; /* of its files, in whole blocks */
	uint64_t log_ring_blocks;
	uint64_t log_needed_blocks;
	uint32_t log_needed_records;
};
void lp_shard_read_usage(const struct lp_shard *shard, struct lp_shard_usage *ret_usage);
/* NULL read-only. */
const struct lp_deferrals *lp_shard_deferrals(const struct lp_shard *shard);
/* Blocks that could not be written since the shard was opened; read-only, those that the index
 * records.
 */
uint32_t lp_shard_bad_blocks(const struct lp_shard *shard);
void lp_shard_read_bad(const struct lp_shard *shard, struct lp_bad_blocks *ret_bad);
/* NULL: nothing is discarded. */
const struct lp_discards *lp_shard_discards(const struct lp_shard *shard);

struct lp_shard_recovery {
	uint64_t applied;  /* the last frame that the index had persisted */
	uint64_t last_seq; /* the end of the log */
	uint64_t frames;   /* replayed */
	uint64_t payloads; /* blocks that may not have been written to their place yet */
	uint64_t records;  /* of these, those that the index kept */
	uint64_t took_ns;
	bool was_clean;
};
const struct lp_shard_recovery *lp_shard_recovery(const struct lp_shard *shard);

#endif
