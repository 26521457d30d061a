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
	uint64_t begun; /* of who waits for space only: see lp_shard_questions() */
	void (*told)(struct lp_commit_waiter *waiter, int result);
};

/* Something in memory whose record is written once per group, however often it changes: encode()
 * puts it into the group that is being sealed. */
struct lp_commit_dirty {
	struct lp_list_node node;
	int (*encode)(struct lp_commit_dirty *dirty, struct lp_commit *commit);
};

/* What the owner learns, in sequence. */
struct lp_commit_events {
	/* Before the group's waiters are told. changes: as they were put. */
	void (*durable)(struct lp_commit_events *events, uint64_t seq,
			const struct lp_log_change *changes, uint32_t change_cnt);
	/* The group that collects, known by `from` so far, is number `to`. */
	void (*numbered)(struct lp_commit_events *events, uint64_t from, uint64_t to);
	/* The group's batch is in the index: what it pinned may be evicted once it is durable. */
	void (*inserted)(struct lp_commit_events *events, uint64_t seq);
	/* So is some of what was owed; lp_commit_whole_seq() may have risen. NULL: nobody listens.
	 */
	void (*paid)(struct lp_commit_events *events);
	/* Once. */
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
	uint64_t hold_ns; /* how long a group may collect that nobody waits for; 0: not at all */
	uint64_t applied; /* what the index holds: the last frame's number */
};

/* What an operation may put into the group, at most. */
struct lp_commit_need {
	uint32_t batch_bytes; /* keys, values, and LP_COMMIT_RECORD_BYTES for each */
	uint32_t change_cnt;
	uint32_t data_cnt;
	bool is_relief; /* what makes room in the log: also while the door is closed, and into the
			   part of a group that is kept for it */
};

#define LP_COMMIT_RECORD_BYTES 32u
#define LP_COMMIT_CHANGES_MAX  4096u /* of one group */

int lp_commit_new(const struct lp_commit_options *options,
		  struct lp_commit **ret_commit) LP_MUST_CHECK;
/* Nothing may be waiting or in flight. Accepts NULL. */
void lp_commit_free(struct lp_commit *commit);
/* Collecting is empty, nothing in flight, everything inserted. */
bool lp_commit_is_idle(const struct lp_commit *commit);
/* All that was put is durable, if no error has ended it. */
bool lp_commit_is_settled(const struct lp_commit *commit);
/* 0, or the error that ended it. */
int lp_commit_error(const struct lp_commit *commit);

/* As if a frame had failed; what is in flight still ends. err says why: half of an operation is in
 * the group, and the other half cannot be. */
void lp_commit_give_up(struct lp_commit *commit, int err);
/* The same, for an immediate stop. */
static inline void lp_commit_abort(struct lp_commit *commit)
{
	lp_commit_give_up(commit, -ECANCELED);
}
/* Nothing is put into the index from here on, nor is it asked anything: it may be closed. For an
 * end, when the commit is idle or has failed. */
void lp_commit_leave_index(struct lp_commit *commit);

/* For an orderly stop: a frame that says what the log need not keep, though there is room. Idle
 * again when it is durable. */
void lp_commit_trim(struct lp_commit *commit);

/* True: the need fits into the group that collects, and is set aside for what is put before this
 * turn ends; a reservation does not outlive the turn, for the group may be sealed then. False: try
 * again when told by lp_commit_wait_room(). -- A need beyond a whole group is our bug, asserted. */
bool lp_commit_reserve(struct lp_commit *commit, const struct lp_commit_need *need) LP_MUST_CHECK;
/* It would fit into an empty group. */
bool lp_commit_need_is_possible(const struct lp_commit *commit, const struct lp_commit_need *need);
/* Payload blocks that one group may have. */
uint32_t lp_commit_payload_max(const struct lp_commit *commit);
/* told() is called, with 0 or the pipeline's error, when a new group collects. */
void lp_commit_wait_room(struct lp_commit *commit, struct lp_commit_waiter *waiter);

/* While the door is closed nothing new is let in, but what was taken in goes on, and what makes
 * room: the log must keep space for these (rule L4). Those that wait are told when it opens. */
void lp_commit_close_door(struct lp_commit *commit, bool is_closed);

/* The same as a second door, for who wants nothing to change for a moment, and sees to it that it
 * is a short one. */
void lp_commit_pause(struct lp_commit *commit, bool is_paused);
/* The index has all there is: nothing collects, nothing is in flight, and nothing is owed. */
bool lp_commit_is_quiet(const struct lp_commit *commit);

/* As many groups as may wait for the index do, or are in flight: the one that collects waits. */
bool lp_commit_is_stalled(const struct lp_commit *commit);

/* Those that wait for room are told that they look again, though nothing has changed here. */
void lp_commit_wake_room(struct lp_commit *commit);

/* The number of the group that collects. */
uint64_t lp_commit_seq(const struct lp_commit *commit);
uint64_t lp_commit_durable_seq(const struct lp_commit *commit);
uint64_t lp_commit_inserted_seq(const struct lp_commit *commit);
/* The index has all of the frames up to this one: what was owed of them has been paid. */
uint64_t lp_commit_whole_seq(const struct lp_commit *commit);

/* Into the group that collects. On failure the pipeline is in ERROR. */
void lp_commit_put(struct lp_commit *commit, struct lp_kv_bytes key, struct lp_kv_bytes value);
void lp_commit_delete(struct lp_commit *commit, struct lp_kv_bytes key);
/* The same, but not in the overlay: for records that their owner keeps in memory until the group
 * is inserted and durable, so that nobody looks for them. */
void lp_commit_put_owned(struct lp_commit *commit, struct lp_kv_bytes key,
			 struct lp_kv_bytes value);
void lp_commit_delete_owned(struct lp_commit *commit, struct lp_kv_bytes key);
/* Its records may be owed from now on. It lasts as long as anything is put. */
void lp_commit_set_owed(struct lp_commit *commit, struct lp_owed *owed);
/* Whether a record of the group that is being sealed may be owed. */
bool lp_commit_may_owe(const struct lp_commit *commit);
/* As lp_commit_put_owned(), but into the frame only: the caller, who counts it in lp_owed.cnt,
 * keeps it and pays it later. The index has some version of the record, or a group before this one
 * puts one there. */
void lp_commit_owe(struct lp_commit *commit, struct lp_kv_bytes key, struct lp_kv_bytes value);
/* All that is owed now is to be paid, in this turn and the next ones. */
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

/* For what was put until now, or seen of it (store I6): told when it is durable, at the earliest
 * in the next turn. */
void lp_commit_wait(struct lp_commit *commit, struct lp_commit_waiter *waiter);
/* Told when all that was put until now is in the index, for iterators (rule W1). */
void lp_commit_wait_inserted(struct lp_commit *commit, struct lp_commit_waiter *waiter);

/* A name for the group that collects which, unlike its number, stays: 1, 2, ... */
uint64_t lp_commit_group(const struct lp_commit *commit);
bool lp_commit_group_is_durable(const struct lp_commit *commit, uint64_t group);
/* Also of the group that collects, while it is empty: then what was paid is in the index. */
bool lp_commit_group_is_inserted(const struct lp_commit *commit, uint64_t group);
/* Told when that group is durable; something was put into it. */
void lp_commit_wait_group(struct lp_commit *commit, uint64_t group,
			  struct lp_commit_waiter *waiter);

/* arg is the struct lp_commit. Any thread but the reactor's; waits until the log is durable up to
 * what had begun to enter the index when the wait began (rule L4). 0, or -EROFS once the log has
 * failed: what RocksDB has is then more than the log may have, and must not be persisted. */
int lp_commit_barrier(void *arg) LP_MUST_CHECK;
/* For a simulation, where nobody else turns the reactor: the barrier turns it itself. */
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
