/* SPDX-License-Identifier: Apache-2.0 */
/* Commit pipeline: operations put changes into groups, each group is one log frame.
 *
 * Threads: the reactor's, except lp_commit_barrier(), in which RocksDB's threads wait.
 * Blocking: only lp_commit_barrier().
 * Memory: groups are allocated at new. Each has an arena for its entries, reset with the group.
 * Errors: room is reserved before an operation changes anything. A later failure (memory) puts
 * the pipeline into ERROR, because half an operation must not be committed.
 *
 *      put, delete, data, change, dirty            one frame, one write-through
 *   COLLECTING ------------------------> SUBMITTED ----------------------------> durable
 *                 seal, in flush()           |                                      |
 *                                            +--> inserted in the index --> both: recycled
 *
 * Design 5.5 argues it.
 * - A group is sealed when a turn begins and the log has a slot free: at once when idle. While
 *   frames are in flight, later changes collect.
 * - The last free log slot is reserved for a group that has a waiter. Without this, a group that
 *   holds only write-back's own records could take it.
 * - With hold_ns a group collects for so long while it has no waiter and is small, if the last
 *   few groups had none either. Otherwise a caller that orders first and waits afterwards would
 *   wait for all of its frame, not for the rest of it.
 * - The batch enters the index after its frame was submitted, in sequence, from this thread
 *   (store I2, rules L4, L5). Owed records of it enter later (commit/owed_records.h, rule L9).
 * - Waiters are told in sequence (store I5). After a failed frame nothing more is acknowledged
 *   (store I7, rule L7). Waiters get -EIO, "outcome unknown", or -EROFS, "certainly not done",
 *   when their group had not become a frame yet. Nothing is taken in any more.
 */
#ifndef LP_STORE_COMMIT_COMMIT_H
#define LP_STORE_COMMIT_COMMIT_H

#include <errno.h>

#include "base/memory/buf.h"
#include "store/commit/overlay.h"
#include "store/commit/owed_records.h"
#include "store/index/kv.h"
#include "store/log/log.h"
#include "store/record/types.h"

struct lp_commit;

/* Told when all that was put before lp_commit_wait() is durable: result 0, or the error. */
struct lp_commit_waiter {
	struct lp_list_node node;
	uint64_t begun; /* for lp_shard_wait_space() only: see lp_shard_questions() */
	void (*told)(struct lp_commit_waiter *waiter, int result);
};

/* Something in memory whose record is written once per group, however often it changes: encode()
 * puts it into the group that is being sealed. */
struct lp_commit_dirty {
	struct lp_list_node node;
	int (*encode)(struct lp_commit_dirty *dirty, struct lp_commit *commit);
};

/* Events for the owner, in sequence. */
struct lp_commit_events {
	/* Called before the group's waiters are told. changes: as they were put. */
	void (*durable)(struct lp_commit_events *events, uint64_t seq,
			const struct lp_log_change *changes, uint32_t change_cnt);
	/* The collecting group, known as number `from` so far, is number `to`. */
	void (*numbered)(struct lp_commit_events *events, uint64_t from, uint64_t to);
	/* The group's batch is in the index: once the group is durable its pinned memory may be
	 * evicted. */
	void (*inserted)(struct lp_commit_events *events, uint64_t seq);
	/* Some owed records were written to the index; lp_commit_whole_seq() may have risen.
	 * May be NULL.
	 */
	void (*paid)(struct lp_commit_events *events);
	/* Called once. */
	void (*failed)(struct lp_commit_events *events, int err);
};

struct lp_commit_options {
	struct lp_reactor *reactor;
	struct lp_log *log; /* recovered */
	struct lp_kv *kv;
	struct lp_overlay *overlay;
	struct lp_commit_events *events;
	struct lp_log_limits limits; /* of the log */
	uint32_t flight_max;         /* frames in flight before groups wait and grow; 0: 2 */
	uint64_t hold_ns; /* how long a group without a waiter may collect; 0: not at all */
	uint64_t applied; /* the number of the last frame that the index has */
};

/* What an operation may put into the group, at most. */
struct lp_commit_need {
	uint32_t batch_bytes; /* keys, values, and LP_COMMIT_RECORD_BYTES for each */
	uint32_t change_cnt;
	uint32_t data_cnt;
	bool is_relief; /* for changes that make room in the log: admitted while the door is closed,
			   and into the part of a group that is reserved for them */
};

#define LP_COMMIT_RECORD_BYTES 32u
#define LP_COMMIT_CHANGES_MAX  4096u /* of one group */

int lp_commit_new(const struct lp_commit_options *options,
		  struct lp_commit **ret_commit) LP_MUST_CHECK;
/* Nothing may be waiting or in flight. Accepts NULL. */
void lp_commit_free(struct lp_commit *commit);
/* The collecting group is empty, nothing is in flight, everything is inserted. */
bool lp_commit_is_idle(const struct lp_commit *commit);
/* All changes are durable, if no error has ended the pipeline. */
bool lp_commit_is_settled(const struct lp_commit *commit);
/* 0, or the error that ended the pipeline. */
int lp_commit_error(const struct lp_commit *commit);

/* Acts as if a frame had failed; frames in flight still end. err is the reason: half of an
 * operation is in the group, and the other half cannot be put. */
void lp_commit_give_up(struct lp_commit *commit, int err);
/* The same, for an immediate stop. */
static inline void lp_commit_abort(struct lp_commit *commit)
{
	lp_commit_give_up(commit, -ECANCELED);
}
/* From here on the pipeline neither writes to the index nor reads it, so the index may be closed.
 * Called at the end, when the pipeline is idle or has failed. */
void lp_commit_leave_index(struct lp_commit *commit);

/* For an orderly stop: submits a frame that trims the log, though there is room. The pipeline is
 * idle again when the frame is durable. */
void lp_commit_trim(struct lp_commit *commit);

/* True: the need fits into the collecting group and is reserved until this turn ends. A reservation
 * does not outlive the turn, because the group may be sealed then. False: try again when told by
 * lp_commit_wait_room(). A need beyond a whole group is a bug of the caller, and asserted. */
bool lp_commit_reserve(struct lp_commit *commit, const struct lp_commit_need *need) LP_MUST_CHECK;
/* Whether the need would fit into an empty group. */
bool lp_commit_need_is_possible(const struct lp_commit *commit, const struct lp_commit_need *need);
/* Payload blocks that one group may have. */
uint32_t lp_commit_payload_max(const struct lp_commit *commit);
/* told() is called, with 0 or the pipeline's error, when a new group collects. */
void lp_commit_wait_room(struct lp_commit *commit, struct lp_commit_waiter *waiter);

/* While the door is closed no new change is admitted. Changes already admitted go on, and so do
 * those that make room, for which the log must keep space (rule L4). Waiters for room are told when
 * it opens. */
void lp_commit_close_door(struct lp_commit *commit, bool is_closed);

/* The same as a second door, for a caller that needs a short time without changes. The caller keeps
 * it short. */
void lp_commit_pause(struct lp_commit *commit, bool is_paused);
/* The index has everything: no group collects, none is in flight, and no record is deferred. */
bool lp_commit_is_quiet(const struct lp_commit *commit);

/* The largest number of groups is in flight or waits for the index; the collecting group waits. */
bool lp_commit_is_stalled(const struct lp_commit *commit);

/* Tells the waiters for room to look again, though nothing has changed here. */
void lp_commit_wake_room(struct lp_commit *commit);

/* The number of the collecting group. */
uint64_t lp_commit_seq(const struct lp_commit *commit);
uint64_t lp_commit_durable_seq(const struct lp_commit *commit);
uint64_t lp_commit_inserted_seq(const struct lp_commit *commit);
/* The index has all records of the frames up to this one: their owed records have been written.
 */
uint64_t lp_commit_whole_seq(const struct lp_commit *commit);

/* Put into the collecting group. On failure the pipeline is in ERROR. */
void lp_commit_put(struct lp_commit *commit, struct lp_kv_bytes key, struct lp_kv_bytes value);
void lp_commit_delete(struct lp_commit *commit, struct lp_kv_bytes key);
/* The same, but not in the overlay: for records that their owner keeps in memory until the group is
 * inserted and durable, so that no reader looks for them here. */
void lp_commit_put_owned(struct lp_commit *commit, struct lp_kv_bytes key,
			 struct lp_kv_bytes value);
void lp_commit_delete_owned(struct lp_commit *commit, struct lp_kv_bytes key);
/* Index writes of the owner's records may be deferred from now on. `owed` must live until the last
 * change is put. */
void lp_commit_set_owed(struct lp_commit *commit, struct lp_owed *owed);
/* Whether the index write of a record of the group that is being sealed may be deferred. */
bool lp_commit_may_owe(const struct lp_commit *commit);
/* As lp_commit_put_owned(), but into the frame only. The caller counts the record in lp_owed.cnt,
 * keeps it, and writes it to the index later. The index has some version of the record, or an
 * earlier group puts one there. */
void lp_commit_owe(struct lp_commit *commit, struct lp_kv_bytes key, struct lp_kv_bytes value);
/* All index writes deferred so far are to be done, in this turn and the next ones. */
void lp_commit_pay(struct lp_commit *commit);
/* about.crc is that of the block; a reference to the buffer is kept until the frame is written. */
void lp_commit_data(struct lp_commit *commit, const struct lp_log_payload *about,
		    struct lp_seg seg);
void lp_commit_change(struct lp_commit *commit, const struct lp_log_change *change);
void lp_commit_dirty(struct lp_commit *commit, struct lp_commit_dirty *dirty);
static inline bool lp_commit_is_dirty(const struct lp_commit_dirty *dirty)
{
	return lp_list_node_is_linked(&dirty->node);
}

/* Told, at the earliest in the next turn, when all changes put or seen until now are durable (store
 * I6). */
void lp_commit_wait(struct lp_commit *commit, struct lp_commit_waiter *waiter);
/* Told when all changes put until now are in the index, for iterators (rule W1). */
void lp_commit_wait_inserted(struct lp_commit *commit, struct lp_commit_waiter *waiter);

/* A name for the collecting group which, unlike its number, does not change: 1, 2, ... */
uint64_t lp_commit_group(const struct lp_commit *commit);
bool lp_commit_group_is_durable(const struct lp_commit *commit, uint64_t group);
/* True also for the collecting group, while it is empty and the records of the last payment are in
 * the index. */
bool lp_commit_group_is_inserted(const struct lp_commit *commit, uint64_t group);
/* Told when that group is durable; the group must not be empty. */
void lp_commit_wait_group(struct lp_commit *commit, uint64_t group,
			  struct lp_commit_waiter *waiter);

/* arg is the struct lp_commit. Any thread but the reactor's. Waits until the log is durable up to
 * the frame that had begun to enter the index when the wait began (rule L4). 0, or -EROFS once the
 * log has failed: then RocksDB may have more than the log, and must not persist it. */
int lp_commit_barrier(void *arg) LP_MUST_CHECK;
/* For a simulation, where no other code turns the reactor: the barrier turns it itself. */
void lp_commit_set_inline_barrier(struct lp_commit *commit, bool is_inline);

struct lp_commit_stats {
	uint64_t groups;
	uint64_t trims; /* frames that only trimmed */
	uint64_t puts;
	uint64_t data_blocks;
	uint64_t owed;           /* puts that did not enter the index with their group */
	uint64_t paid;           /* records that entered it later */
	uint64_t insert_retries; /* the index was stalled */
	uint32_t flight;
	uint32_t uninserted;
};
const struct lp_commit_stats *lp_commit_stats(const struct lp_commit *commit);

#endif
