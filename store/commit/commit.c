/* SPDX-License-Identifier: Apache-2.0 */
/* Commit groups are in a fixed ring: group `seq` lives in slot seq % GROUPS, from collecting until
 * it is both durable and inserted. These numbers describe the whole state:
 *
 *     inserted_seq, durable_seq <= submitted_seq == collecting seq - 1
 *
 * A group gets the log's next number when its first change comes. Before the group is sealed, a
 * frame that only trims may take that number, when the log is short of room. Then the group gets
 * the next number, and the owner is told (`numbered`). `applied` in the batch is set when the group
 * is sealed.
 */
#include "store/commit/commit.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "store/commit/manifest_barrier.h"
#include "store/record/keys.h"

#define GROUPS            16u /* collecting, in flight, or waiting for the index */
#define FLIGHT_DEFAULT    2u
#define ARENA_CHUNK_BYTES (256u << 10)
#define ARENA_BYTES_MAX   (64u << 20)
#define INSERT_RETRY_NS   (LP_NS_PER_MS / 2)
#define GROUP_RESERVE     1024u /* bytes of a group's batch for the pipeline's own records */
#define INSERTS_PER_TURN  128u  /* records at most, and the rest of a group: some 2 ms */
#define UNWAITED_MIN      4u    /* groups in a row without a waiter, before one is held */
#define HOLD_SHARE        4u    /* a group that has this part of its limits is submitted at once */

LP_LIST_DEFINE(waiters, struct lp_commit_waiter, node);
LP_LIST_DEFINE(dirty_list, struct lp_commit_dirty, node);

struct group {
	struct lp_log_frame frame;
	struct lp_commit *commit;
	struct lp_arena arena;
	struct lp_kv_batch *batch;
	struct lp_kv_batch *owed; /* records for the frame only, which come before the others */
	struct lp_overlay_group keys;
	struct waiters waiters;          /* for durability */
	struct waiters inserted_waiters; /* for the index */
	struct dirty_list dirty;
	struct lp_log_change *changes;
	struct lp_log_data *data;
	struct lp_buf **bufs;       /* one reference per data block */
	struct lp_commit_need used; /* reserved */
	uint32_t change_cnt;
	uint32_t data_cnt;
	uint64_t seq;
	uint64_t sealed_seq; /* the number `applied` was last set to; 0: not sealed yet */
	uint64_t whole_seq;  /* and the other number in that record: lp_commit_whole_seq() */
	bool submitted;
	bool durable;
	bool inserted;
};

struct lp_commit {
	struct lp_commit_options options;
	struct lp_source source;
	struct lp_task insert_task;
	bool index_is_left;
	struct lp_timer insert_timer;
	struct lp_timer hold_timer; /* armed while a group is held */
	bool hold_is_over;
	uint32_t unwaited_cnt; /* groups in a row */
	struct lp_log_waiter log_waiter;
	bool waits_for_log;
	bool is_door_closed;
	bool is_paused;
	struct waiters room_waiters;
	struct waiters ready_waiters; /* told by ready_task */
	struct lp_task ready_task;
	struct lp_payments payments;
	struct lp_log_frame trim_frame;
	bool trim_in_flight;
	int error;
	uint32_t group_payload_max;
	uint32_t group_batch_max;

	uint64_t first;       /* ring positions: oldest group that is not recycled, */
	uint64_t next_insert; /* the first that is not inserted, */
	uint64_t collecting;  /* and the one that collects */
	struct group groups[GROUPS];
	uint64_t inserted_seq;
	uint64_t durable_seq;
	uint32_t flight;
	struct lp_commit_stats stats;

	bool inline_barrier;
	struct lp_barrier barrier; /* RocksDB's threads wait there */
};

static struct group *group_at(struct lp_commit *commit, uint64_t position)
{
	return &commit->groups[position % GROUPS];
}

static struct group *collecting(struct lp_commit *commit)
{
	return group_at(commit, commit->collecting);
}

static bool group_is_empty(const struct group *group)
{
	return lp_kv_batch_cnt(group->batch) == 0 && lp_kv_batch_cnt(group->owed) == 0 &&
	       group->data_cnt == 0 && group->change_cnt == 0 && dirty_list_is_empty(&group->dirty);
}

/* The group gets no more waiters. */
static bool group_is_done(const struct group *group)
{
	return group->durable || (!group->submitted && group_is_empty(group));
}

/* --- Waiters ---------------------------------------------------------------------------------- */

static void tell_all(struct waiters *list, int result)
{
	struct waiters now;
	waiters_init(&now);
	waiters_splice_back(&now, list);
	struct lp_commit_waiter *waiter;
	while ((waiter = waiters_pop_front(&now)) != NULL)
		waiter->told(waiter, result);
}

/* Told in a later turn, even when there is nothing to wait for, by the pipeline's own task. */
static void tell_soon(struct lp_commit *commit, struct lp_commit_waiter *waiter)
{
	waiters_push_back(&commit->ready_waiters, waiter);
	if (!lp_task_is_queued(&commit->ready_task))
		lp_task_queue(commit->options.reactor, &commit->ready_task);
}

static void ready_task_run(struct lp_task *task)
{
	struct lp_commit *commit = LP_CONTAINER_OF(task, struct lp_commit, ready_task);
	tell_all(&commit->ready_waiters, commit->error != 0 ? -EIO : 0);
}

/* Rule L7: from here on no group is acknowledged and no change admitted. */
static void fail(struct lp_commit *commit, int err)
{
	if (commit->error != 0)
		return;
	commit->error = err;
	lp_timer_stop(commit->options.reactor, &commit->hold_timer);
	lp_barrier_fail(&commit->barrier);
	/* The waiters told below may ask what has happened. */
	commit->options.events->failed(commit->options.events, err);
	for (uint64_t p = commit->first; p <= commit->collecting; p++) {
		struct group *group = group_at(commit, p);
		while (dirty_list_pop_front(&group->dirty) != NULL)
			continue;
		/* A change that is in no frame has certainly not happened. */
		tell_all(&group->waiters, group->submitted ? -EIO : -EROFS);
		tell_all(&group->inserted_waiters, -EIO);
	}
	tell_all(&commit->room_waiters, -EIO);
}

/* --- Groups ------------------------------------------------------------------------------------
 */

static void group_fini(struct group *group)
{
	lp_kv_batch_free(group->batch);
	lp_kv_batch_free(group->owed);
	lp_arena_fini(&group->arena);
	free(group->changes);
	free(group->data);
	free(group->bufs);
}

/* Clears all groups before anything can fail, so that group_fini() can be called for each. */
static void group_clear(struct lp_commit *commit, struct group *group)
{
	group->commit = commit;
	waiters_init(&group->waiters);
	waiters_init(&group->inserted_waiters);
	dirty_list_init(&group->dirty);
}

static int group_init(struct lp_commit *commit, struct group *group)
{
	uint32_t payload_max = commit->group_payload_max;
	group->changes = calloc(LP_COMMIT_CHANGES_MAX, sizeof(*group->changes));
	group->data = calloc(payload_max, sizeof(*group->data));
	group->bufs = calloc(payload_max, sizeof(struct lp_buf *));
	int err = lp_arena_init(&group->arena, ARENA_CHUNK_BYTES, ARENA_BYTES_MAX);
	if (err == 0)
		err = lp_kv_batch_new(commit->group_batch_max, &group->batch);
	if (err == 0)
		err = lp_kv_batch_new(commit->group_batch_max, &group->owed);
	if (err == 0 && (group->changes == NULL || group->data == NULL || group->bufs == NULL))
		err = -ENOMEM;
	return err;
}

static void group_drop_bufs(struct group *group)
{
	for (uint32_t i = 0; i < group->data_cnt; i++)
		lp_buf_put(group->bufs[i]);
	group->data_cnt = 0;
}

/* Groups that are durable and inserted, in either order, free their slots. */
static void recycle(struct lp_commit *commit)
{
	while (commit->first < commit->collecting) {
		struct group *group = group_at(commit, commit->first);
		/* After an error a group that looks durable is not, but then no waiter is told
		 * success. */
		if (!group->durable || !group->inserted)
			break;
		lp_overlay_drop(commit->options.overlay, &group->keys);
		lp_arena_reset(&group->arena);
		lp_kv_batch_clear(group->batch);
		lp_kv_batch_clear(group->owed);
		group->change_cnt = 0;
		group->sealed_seq = 0;
		group->used = (struct lp_commit_need){0};
		group->submitted = false;
		group->durable = false;
		group->inserted = false;
		commit->first++;
	}
}

/* --- Durable ------------------------------------------------------------------------------------
 */

static void frame_complete(struct lp_log_frame *frame)
{
	struct group *group = LP_CONTAINER_OF(frame, struct group, frame);
	struct lp_commit *commit = group->commit;
	LP_ASSERT(group->submitted && !group->durable);
	commit->flight--;
	group_drop_bufs(group);
	group->durable = true; /* or never: after an error this is not read any more */
	if (frame->result < 0) {
		fail(commit, frame->result);
		return;
	}
	LP_ASSERT(frame->seq > commit->durable_seq);
	commit->durable_seq = frame->seq;
	lp_barrier_pass(&commit->barrier, commit->durable_seq);
	if (commit->error != 0)
		return;
	commit->options.events->durable(commit->options.events, frame->seq, group->changes,
					group->change_cnt);
	tell_all(&group->waiters, 0);
	recycle(commit);
}

static void trim_complete(struct lp_log_frame *frame)
{
	struct lp_commit *commit = LP_CONTAINER_OF(frame, struct lp_commit, trim_frame);
	commit->trim_in_flight = false;
	if (frame->result < 0) {
		fail(commit, frame->result);
		return;
	}
	commit->durable_seq = frame->seq;
	lp_barrier_pass(&commit->barrier, commit->durable_seq);
}

/* --- Into the index --------------------------------------------------------------------------- */

static int insert_group(struct lp_commit *commit, struct group *group)
{
	lp_barrier_enter(&commit->barrier, group->seq); /* before the write: rule L4 */
	int err = lp_kv_write(commit->options.kv, group->batch);
	if (err < 0)
		return err;
	group->inserted = true;
	commit->inserted_seq = group->seq;
	commit->next_insert++;
	lp_payments_group_inserted(&commit->payments, group->whole_seq);
	commit->options.events->inserted(commit->options.events, group->seq);
	tell_all(&group->inserted_waiters, 0);
	return 0;
}

static int insert_payment(struct lp_commit *commit)
{
	int err = lp_payments_write(&commit->payments, commit->options.kv);
	commit->stats.paid = commit->payments.put_cnt;
	if (err == 0 && commit->options.events->paid != NULL)
		commit->options.events->paid(commit->options.events);
	return err;
}

static void insert_soon(struct lp_commit *commit)
{
	if (!commit->index_is_left && !lp_task_is_queued(&commit->insert_task) &&
	    !lp_timer_is_armed(&commit->insert_timer))
		lp_task_queue(commit->options.reactor, &commit->insert_task);
}

/* All groups are in the index: some of the owed records are written next, in a turn of its own.
 * Not while the collecting group has been sealed and is in no frame, because the nodes of its
 * owed records are not dirty any more (store I2). */
static int pay_some(struct lp_commit *commit)
{
	if (collecting(commit)->sealed_seq != 0)
		return 0; /* its submission runs this again */
	int err = lp_payments_build(&commit->payments, commit->inserted_seq,
				    group_is_empty(collecting(commit)));
	if (err == 0 && lp_payments_are_busy(&commit->payments))
		insert_soon(commit);
	return err;
}

static bool has_uninserted(const struct lp_commit *commit)
{
	return commit->next_insert < commit->collecting;
}

/* Rule L5: groups are inserted in sequence, and none after one that failed. After a stall many
 * groups wait; they are not all inserted in one turn. */
static int insert_some(struct lp_commit *commit)
{
	int err = 0;
	if (commit->payments.is_built)
		err = insert_payment(commit);
	for (uint64_t cnt = 0; err == 0 && commit->error == 0 && has_uninserted(commit);) {
		struct group *group = group_at(commit, commit->next_insert);
		cnt += lp_kv_batch_cnt(group->batch);
		err = insert_group(commit, group);
		if (cnt >= INSERTS_PER_TURN && has_uninserted(commit)) {
			insert_soon(commit);
			return err;
		}
	}
	return err == 0 && commit->error == 0 ? pay_some(commit) : err;
}

static void insert_groups(struct lp_commit *commit)
{
	bool was_stopped = lp_kv_is_stopped(commit->options.kv);
	int err = commit->error == 0 ? insert_some(commit) : 0;
	if (err == -EIO && (was_stopped || lp_kv_is_stopped(commit->options.kv)))
		err = -EAGAIN;
	/* The index has stopped, for lack of space or by an error. It is resumed, and then takes
	 * the same batch. It may have been resumed by now, so earlier events count, too. */
	if (err == -EAGAIN || err == -ENOSPC) {
		commit->stats.insert_retries++;
		lp_timer_start(commit->options.reactor, &commit->insert_timer,
			       lp_reactor_now_ns(commit->options.reactor) + INSERT_RETRY_NS);
	} else if (err < 0) {
		fail(commit, err);
	}
	recycle(commit);
}

static void insert_task_run(struct lp_task *task)
{
	insert_groups(LP_CONTAINER_OF(task, struct lp_commit, insert_task));
}

static void insert_timer_fire(struct lp_timer *timer)
{
	insert_groups(LP_CONTAINER_OF(timer, struct lp_commit, insert_timer));
}

/* --- Sealing ---------------------------------------------------------------------------------- */

static int seal(struct lp_commit *commit, struct group *group)
{
	struct lp_commit_dirty *dirty;
	while ((dirty = dirty_list_pop_front(&group->dirty)) != NULL) {
		int err = dirty->encode(dirty, commit);
		if (err < 0)
			return err;
	}
	struct lp_key key;
	uint8_t value[LP_APPLIED_BYTES_MAX];
	uint64_t seq = lp_log_next_seq(commit->options.log);
	if (seq != group->seq)
		commit->options.events->numbered(commit->options.events, group->seq, seq);
	group->seq = seq;
	if (group->sealed_seq == seq)
		return 0; /* it was sealed before, when the log had no room */
	group->sealed_seq = seq;
	group->whole_seq = lp_payments_seal(&commit->payments, seq);
	lp_key_of_store(&key, "applied");
	size_t len = lp_applied_encode(seq, group->whole_seq, value);
	return lp_kv_batch_put(group->batch, (struct lp_kv_bytes){key.bytes, key.len},
			       (struct lp_kv_bytes){value, len});
}

static void log_ready(struct lp_log_waiter *waiter)
{
	/* The next turn's flush tries again. */
	LP_CONTAINER_OF(waiter, struct lp_commit, log_waiter)->waits_for_log = false;
}

static void wait_for_log(struct lp_commit *commit)
{
	if (commit->waits_for_log)
		return;
	commit->waits_for_log = true;
	lp_log_wait(commit->options.log, &commit->log_waiter);
}

static int append(struct lp_commit *commit, struct group *group)
{
	struct lp_kv_joined joined;
	struct iovec pieces[LP_ARRAY_SIZE(joined.pieces)];
	lp_kv_batch_join(group->owed, group->batch, &joined);
	for (size_t i = 0; i < LP_ARRAY_SIZE(pieces); i++)
		pieces[i] = (struct iovec){.iov_base = (void *)(uintptr_t)joined.pieces[i].data,
					   .iov_len = joined.pieces[i].len};
	group->frame = (struct lp_log_frame){.batch = pieces,
					     .batch_cnt = LP_ARRAY_SIZE(pieces),
					     .record_cnt = lp_kv_batch_cnt(group->owed) +
							   lp_kv_batch_cnt(group->batch),
					     .changes = group->changes,
					     .change_cnt = group->change_cnt,
					     .data = group->data,
					     .data_cnt = group->data_cnt,
					     .complete = frame_complete};
	int err = lp_log_append(commit->options.log, &group->frame);
	LP_ASSERT(err != -EMSGSIZE); /* lp_commit_reserve() ensured it */
	return err;
}

static void tell_room(struct lp_commit *commit);

static void begin_group(struct lp_commit *commit)
{
	struct group *group = collecting(commit);
	LP_ASSERT(group_is_empty(group) && !group->submitted);
	group->seq = lp_log_next_seq(commit->options.log);
}

/* The group becomes a frame, and the next one collects. */
static void submit(struct lp_commit *commit)
{
	struct group *group = collecting(commit);
	int err = append(commit, group);
	if (err == -EAGAIN) {
		wait_for_log(commit);
		return;
	}
	if (err < 0) {
		fail(commit, err);
		return;
	}
	LP_ASSERT(group->frame.seq == group->seq);
	group->submitted = true;
	lp_timer_stop(commit->options.reactor, &commit->hold_timer);
	commit->hold_is_over = false;
	commit->unwaited_cnt++;
	commit->flight++;
	commit->collecting++;
	commit->stats.groups++;
	begin_group(commit);
	insert_soon(commit); /* it may be inserted only after the submission */
	tell_room(commit);
}

void lp_commit_trim(struct lp_commit *commit)
{
	if (commit->trim_in_flight || commit->error != 0 || !lp_log_can_trim(commit->options.log))
		return;
	commit->trim_frame = (struct lp_log_frame){.trims_only = true, .complete = trim_complete};
	int err = lp_log_append(commit->options.log, &commit->trim_frame);
	if (err == 0) {
		commit->trim_in_flight = true;
		commit->stats.trims++;
	} else if (err != -EAGAIN) {
		fail(commit, err);
	}
}

static void trim_if_needed(struct lp_commit *commit)
{
	if (lp_log_needs_trim_frame(commit->options.log))
		lp_commit_trim(commit);
}

/* There is a free slot for the next collecting group. */
static bool has_free_group(const struct lp_commit *commit)
{
	return commit->collecting + 1 - commit->first < GROUPS;
}

bool lp_commit_is_stalled(const struct lp_commit *commit)
{
	return !has_free_group(commit);
}

static bool is_small(const struct lp_commit *commit, const struct group *group)
{
	return group->used.batch_bytes < commit->group_batch_max / HOLD_SHARE &&
	       group->data_cnt < commit->group_payload_max / HOLD_SHARE &&
	       group->change_cnt < LP_COMMIT_CHANGES_MAX / HOLD_SHARE;
}

static void hold_timer_fire(struct lp_timer *timer)
{
	LP_CONTAINER_OF(timer, struct lp_commit, hold_timer)->hold_is_over = true;
}

/* The group has a waiter, or is large: it is submitted as soon as possible. */
static bool is_wanted(const struct lp_commit *commit, const struct group *group)
{
	return commit->is_door_closed || commit->is_paused || !waiters_is_empty(&group->waiters) ||
	       !waiters_is_empty(&group->inserted_waiters) ||
	       !waiters_is_empty(&commit->room_waiters) || !is_small(commit, group);
}

/* Holds the group so that more changes can share its frame. The last free slot for a frame in
 * flight is for groups with waiters. Write-back's own records would block it; they go with such a
 * group, or when no waiter is there.
 */
static bool hold(struct lp_commit *commit, const struct group *group)
{
	if (is_wanted(commit, group))
		return false;
	if (commit->flight > 0 && commit->flight + 1 >= commit->options.flight_max)
		return true;
	if (commit->options.hold_ns == 0 || commit->hold_is_over ||
	    commit->unwaited_cnt < UNWAITED_MIN)
		return false;
	if (!lp_timer_is_armed(&commit->hold_timer))
		lp_timer_start(commit->options.reactor, &commit->hold_timer,
			       lp_reactor_now_ns(commit->options.reactor) +
				       commit->options.hold_ns);
	return true;
}

static void commit_flush(struct lp_source *source)
{
	struct lp_commit *commit = LP_CONTAINER_OF(source, struct lp_commit, source);
	struct group *group = collecting(commit);
	if (commit->error != 0)
		return;
	if (group_is_empty(group)) {
		/* Reserved room that was not used is free again. */
		group->used = (struct lp_commit_need){0};
		tell_room(commit);
		trim_if_needed(commit);
		return;
	}
	if (commit->waits_for_log)
		trim_if_needed(commit); /* a trim may be needed to get room */
	if (commit->flight >= commit->options.flight_max || commit->waits_for_log ||
	    !has_free_group(commit) || hold(commit, group))
		return;
	/* A group is sealed again if the log has no room now: later changes only add to it. */
	int err = seal(commit, group);
	if (err < 0)
		fail(commit, err);
	else
		submit(commit);
}

/* --- Putting ---------------------------------------------------------------------------------- */

/* Frames that make room have records, too, so a part of each group is reserved for them. */
static uint64_t meta_blocks_for(const struct lp_commit *commit, const struct lp_commit_need *need)
{
	uint64_t blocks = commit->options.limits.meta_blocks;
	return need->is_relief ? blocks : blocks - blocks / 8;
}

static uint64_t meta_bytes_of(const struct lp_commit_need *used)
{
	return used->batch_bytes + GROUP_RESERVE +
	       used->data_cnt * (uint64_t)sizeof(struct lp_log_payload);
}

static bool fits(const struct lp_commit *commit, const struct lp_commit_need *used)
{
	const struct lp_log_limits *limits = &commit->options.limits;
	uint64_t meta_bytes = meta_bytes_of(used);
	return used->change_cnt <= LP_COMMIT_CHANGES_MAX &&
	       used->data_cnt <= commit->group_payload_max &&
	       lp_log_frame_blocks(meta_bytes, used->change_cnt, 0) <=
		       meta_blocks_for(commit, used) &&
	       lp_log_frame_blocks(meta_bytes, used->change_cnt, used->data_cnt) <=
		       limits->frame_blocks;
}

bool lp_commit_need_is_possible(const struct lp_commit *commit, const struct lp_commit_need *need)
{
	return fits(commit, need);
}

uint32_t lp_commit_payload_max(const struct lp_commit *commit)
{
	return commit->group_payload_max;
}

/* Rule L9: while a group waits for the log no owed record is written to the index, and without
 * these writes the log is not trimmed. The closed door keeps other changes out in time. This check
 * keeps out changes that make room. */
static bool log_takes(const struct lp_commit *commit, const struct lp_commit_need *used)
{
	uint64_t blocks =
		lp_log_frame_blocks(meta_bytes_of(used), used->change_cnt, used->data_cnt);
	return lp_log_takes(commit->options.log, blocks);
}

bool lp_commit_reserve(struct lp_commit *commit, const struct lp_commit_need *need)
{
	struct group *group = collecting(commit);
	struct lp_commit_need used = group->used;
	if ((commit->is_door_closed || commit->is_paused) && !need->is_relief)
		return false;
	used.batch_bytes += need->batch_bytes;
	used.change_cnt += need->change_cnt;
	used.data_cnt += need->data_cnt;
	used.is_relief = need->is_relief;
	if (need->is_relief && !log_takes(commit, &used))
		return false;
	if (fits(commit, &used)) {
		group->used = used;
		return true;
	}
	LP_ASSERT(group->used.batch_bytes + group->used.change_cnt + group->used.data_cnt >
		  0); /* the need is beyond a whole group */
	return false;
}

static void tell_room(struct lp_commit *commit)
{
	if (!commit->is_door_closed && !commit->is_paused)
		tell_all(&commit->room_waiters, 0);
}

void lp_commit_close_door(struct lp_commit *commit, bool is_closed)
{
	commit->is_door_closed = is_closed;
	if (!is_closed)
		lp_commit_wake_room(commit);
}

void lp_commit_pause(struct lp_commit *commit, bool is_paused)
{
	commit->is_paused = is_paused;
	if (!is_paused)
		lp_commit_wake_room(commit);
}

bool lp_commit_is_quiet(const struct lp_commit *commit)
{
	return lp_commit_is_idle(commit) &&
	       commit->payments.whole_seq >= lp_commit_inserted_seq(commit);
}

void lp_commit_wake_room(struct lp_commit *commit)
{
	/* In a later turn, because the caller that opens the door is in the middle of its own work.
	 */
	if (waiters_is_empty(&commit->room_waiters))
		return;
	waiters_splice_back(&commit->ready_waiters, &commit->room_waiters);
	if (!lp_task_is_queued(&commit->ready_task))
		lp_task_queue(commit->options.reactor, &commit->ready_task);
}

void lp_commit_wait_room(struct lp_commit *commit, struct lp_commit_waiter *waiter)
{
	if (commit->error != 0)
		tell_soon(commit, waiter);
	else
		waiters_push_back(&commit->room_waiters, waiter);
}

/* The group that takes a change; numbers it if this is its first. */
static struct group *group_for_change(struct lp_commit *commit)
{
	struct group *group = collecting(commit);
	if (group_is_empty(group))
		group->seq = lp_log_next_seq(commit->options.log);
	return group;
}

/* value NULL deletes. */
static void put_owned(struct lp_commit *commit, struct lp_kv_bytes key,
		      const struct lp_kv_bytes *value)
{
	if (commit->error != 0)
		return;
	struct group *group = group_for_change(commit);
	int err = value != NULL ? lp_kv_batch_put(group->batch, key, *value)
				: lp_kv_batch_delete(group->batch, key);
	commit->stats.puts++;
	if (err < 0)
		fail(commit, err);
}

static void put_seen(struct lp_commit *commit, struct lp_kv_bytes key,
		     const struct lp_kv_bytes *value)
{
	put_owned(commit, key, value);
	if (commit->error != 0)
		return;
	struct group *group = collecting(commit);
	const struct lp_overlay_entry entry = {
		.group = lp_commit_group(commit),
		.key = key.data,
		.key_len = (uint32_t)key.len,
		.value = value != NULL ? value->data : NULL,
		.value_len = value != NULL ? (uint32_t)value->len : 0,
	};
	int err = lp_overlay_put(commit->options.overlay, &group->keys, &group->arena, &entry);
	if (err < 0)
		fail(commit, err);
}

void lp_commit_put(struct lp_commit *commit, struct lp_kv_bytes key, struct lp_kv_bytes value)
{
	LP_ASSERT(value.data != NULL);
	put_seen(commit, key, &value);
}

void lp_commit_delete(struct lp_commit *commit, struct lp_kv_bytes key)
{
	put_seen(commit, key, NULL);
}

void lp_commit_put_owned(struct lp_commit *commit, struct lp_kv_bytes key, struct lp_kv_bytes value)
{
	LP_ASSERT(value.data != NULL);
	put_owned(commit, key, &value);
}

void lp_commit_delete_owned(struct lp_commit *commit, struct lp_kv_bytes key)
{
	put_owned(commit, key, NULL);
}

void lp_commit_set_owed(struct lp_commit *commit, struct lp_owed *owed)
{
	commit->payments.owed = owed;
}

/* A group that is sealed once more, because the log had no room, defers no more records. Deferred
 * records stand before the others in its frame, and those may be older ones of the same key. */
bool lp_commit_may_owe(const struct lp_commit *commit)
{
	return commit->error == 0 && commit->groups[commit->collecting % GROUPS].sealed_seq == 0;
}

void lp_commit_owe(struct lp_commit *commit, struct lp_kv_bytes key, struct lp_kv_bytes value)
{
	LP_ASSERT(lp_key_may_be_owed(key) && commit->payments.owed != NULL);
	if (commit->error != 0)
		return;
	int err = lp_kv_batch_put(group_for_change(commit)->owed, key, value);
	commit->stats.puts++;
	commit->stats.owed++;
	if (err < 0)
		fail(commit, err);
}

void lp_commit_pay(struct lp_commit *commit)
{
	if (commit->error != 0)
		return;
	lp_payments_want(&commit->payments);
	insert_soon(commit);
}

void lp_commit_data(struct lp_commit *commit, const struct lp_log_payload *about, struct lp_seg seg)
{
	LP_ASSERT(seg.len == LP_BLOCK_BYTES);
	struct group *group = group_for_change(commit);
	LP_ASSERT(group->data_cnt < commit->group_payload_max);
	group->data[group->data_cnt] = (struct lp_log_data){
		.about = *about,
		.block = seg.buf->data + seg.offset,
	};
	group->bufs[group->data_cnt++] = lp_buf_get(seg.buf);
	commit->stats.data_blocks++;
}

void lp_commit_change(struct lp_commit *commit, const struct lp_log_change *change)
{
	struct group *group = group_for_change(commit);
	LP_ASSERT(group->change_cnt < LP_COMMIT_CHANGES_MAX);
	group->changes[group->change_cnt++] = *change;
}

void lp_commit_dirty(struct lp_commit *commit, struct lp_commit_dirty *dirty)
{
	if (lp_commit_is_dirty(dirty) || commit->error != 0)
		return;
	dirty_list_push_back(&group_for_change(commit)->dirty, dirty);
}

/* --- Waiting ---------------------------------------------------------------------------------- */

void lp_commit_wait(struct lp_commit *commit, struct lp_commit_waiter *waiter)
{
	uint64_t position = commit->collecting;
	struct group *group = group_at(commit, position);
	commit->unwaited_cnt = 0;
	if (commit->error == 0 && group_is_empty(group) && position > commit->first)
		group = group_at(commit, --position);
	if (commit->error != 0 || group_is_done(group))
		tell_soon(commit, waiter);
	else
		waiters_push_back(&group->waiters, waiter);
}

void lp_commit_wait_inserted(struct lp_commit *commit, struct lp_commit_waiter *waiter)
{
	uint64_t position = commit->collecting;
	struct group *group = group_at(commit, position);
	if (group_is_empty(group) && position > commit->first)
		group = group_at(commit, --position);
	if (commit->error != 0 || group->inserted || group_is_empty(group))
		tell_soon(commit, waiter);
	else
		waiters_push_back(&group->inserted_waiters, waiter);
}

/* Groups are named by their ring position and one, so that 0 is none. */
uint64_t lp_commit_group(const struct lp_commit *commit)
{
	return commit->collecting + 1;
}

bool lp_commit_group_is_durable(const struct lp_commit *commit, uint64_t group)
{
	LP_ASSERT(group <= commit->collecting + 1);
	return group <= commit->first || commit->groups[(group - 1) % GROUPS].durable;
}

bool lp_commit_group_is_inserted(const struct lp_commit *commit, uint64_t group)
{
	LP_ASSERT(group <= commit->collecting + 1);
	if (group <= commit->next_insert)
		return true;
	return group == commit->next_insert + 1 && commit->next_insert == commit->collecting &&
	       group_is_empty(&commit->groups[commit->collecting % GROUPS]) &&
	       !commit->payments.is_built;
}

void lp_commit_wait_group(struct lp_commit *commit, uint64_t group, struct lp_commit_waiter *waiter)
{
	commit->unwaited_cnt = 0;
	if (commit->error != 0 || lp_commit_group_is_durable(commit, group))
		tell_soon(commit, waiter);
	else
		waiters_push_back(&group_at(commit, group - 1)->waiters, waiter);
}

int lp_commit_barrier(void *arg)
{
	struct lp_commit *commit = arg;
	uint64_t need_seq = lp_barrier_entering(&commit->barrier); /* read once: rule L4 */
	if (commit->inline_barrier) {
		while (commit->durable_seq < need_seq && commit->error == 0)
			(void)lp_reactor_turn(commit->options.reactor, true);
		return commit->error != 0 ? -EROFS : 0;
	}
	return lp_barrier_wait(&commit->barrier, need_seq);
}

void lp_commit_set_inline_barrier(struct lp_commit *commit, bool is_inline)
{
	commit->inline_barrier = is_inline;
}

/* --- Birth and death -------------------------------------------------------------------------- */

int lp_commit_new(const struct lp_commit_options *options, struct lp_commit **ret_commit)
{
	struct lp_commit *commit = calloc(1, sizeof(*commit));
	if (commit == NULL)
		return -ENOMEM;
	int err = lp_payments_init(&commit->payments, options->applied);
	if (err < 0) {
		free(commit);
		return err;
	}
	commit->options = *options;
	if (commit->options.flight_max == 0)
		commit->options.flight_max = FLIGHT_DEFAULT;
	LP_ASSERT(commit->options.flight_max + 2 <= GROUPS);
	commit->group_payload_max = options->limits.frame_blocks - options->limits.meta_blocks;
	commit->group_batch_max = options->limits.meta_blocks * (uint32_t)LP_BLOCK_BYTES;
	waiters_init(&commit->room_waiters);
	waiters_init(&commit->ready_waiters);
	commit->insert_task.run = insert_task_run;
	commit->ready_task.run = ready_task_run;
	commit->insert_timer.fire = insert_timer_fire;
	commit->hold_timer.fire = hold_timer_fire;
	commit->log_waiter.ready = log_ready;
	commit->durable_seq = lp_log_durable_seq(options->log);
	commit->inserted_seq = options->applied;
	lp_barrier_init(&commit->barrier, options->applied, commit->durable_seq);
	for (uint32_t i = 0; i < GROUPS; i++)
		group_clear(commit, &commit->groups[i]);
	for (uint32_t i = 0; i < GROUPS; i++) {
		err = group_init(commit, &commit->groups[i]);
		if (err < 0) {
			lp_commit_free(commit);
			return err;
		}
	}
	begin_group(commit);
	commit->source = (struct lp_source){.name = "commit", .flush = commit_flush};
	lp_source_add(options->reactor, &commit->source);
	*ret_commit = commit;
	return 0;
}

void lp_commit_leave_index(struct lp_commit *commit)
{
	commit->index_is_left = true;
	lp_task_cancel(&commit->insert_task);
	lp_timer_stop(commit->options.reactor, &commit->insert_timer);
}

void lp_commit_free(struct lp_commit *commit)
{
	if (commit == NULL)
		return;
	LP_ASSERT(commit->flight == 0 && !commit->trim_in_flight);
	if (lp_list_node_is_linked(&commit->source.node))
		lp_source_remove(commit->options.reactor, &commit->source);
	if (commit->waits_for_log)
		lp_log_wait_cancel(&commit->log_waiter);
	lp_commit_leave_index(commit);
	lp_task_cancel(&commit->ready_task);
	if (lp_timer_is_armed(&commit->hold_timer))
		lp_timer_stop(commit->options.reactor, &commit->hold_timer);
	for (uint32_t i = 0; i < GROUPS; i++) {
		struct group *group = &commit->groups[i];
		LP_ASSERT(waiters_is_empty(&group->waiters));
		if (group->keys.cnt > 0)
			lp_overlay_drop(commit->options.overlay, &group->keys);
		group_drop_bufs(group);
		group_fini(group);
	}
	lp_payments_fini(&commit->payments);
	lp_barrier_fini(&commit->barrier);
	free(commit);
}

bool lp_commit_is_idle(const struct lp_commit *commit)
{
	return commit->flight == 0 && !commit->trim_in_flight &&
	       (commit->error != 0 ||
		(commit->first == commit->collecting && !lp_payments_are_busy(&commit->payments) &&
		 group_is_empty(&commit->groups[commit->collecting % GROUPS])));
}

bool lp_commit_is_settled(const struct lp_commit *commit)
{
	return commit->flight == 0 && commit->error == 0 &&
	       group_is_empty(&commit->groups[commit->collecting % GROUPS]);
}

void lp_commit_give_up(struct lp_commit *commit, int err)
{
	fail(commit, err);
}

int lp_commit_error(const struct lp_commit *commit)
{
	return commit->error;
}

uint64_t lp_commit_seq(const struct lp_commit *commit)
{
	const struct group *group = &commit->groups[commit->collecting % GROUPS];
	return group_is_empty(group) ? lp_log_next_seq(commit->options.log) : group->seq;
}

uint64_t lp_commit_durable_seq(const struct lp_commit *commit)
{
	return commit->durable_seq;
}

uint64_t lp_commit_inserted_seq(const struct lp_commit *commit)
{
	return commit->inserted_seq;
}

uint64_t lp_commit_whole_seq(const struct lp_commit *commit)
{
	return commit->payments.whole_seq;
}

const struct lp_commit_stats *lp_commit_stats(const struct lp_commit *commit)
{
	return &commit->stats;
}
