/* SPDX-License-Identifier: Apache-2.0 */
/* Running shard: this file alone tells each part of a shard what happens in the others.
 *
 *   a frame is durable     -> space and pending learn it; write-back looks; the log is trimmed
 *   payloads are settled   -> the log is trimmed; records of them are deleted
 *   the index has flushed  -> space learns what is persisted; the log is trimmed
 *   the log is half full   -> write-back hurries, deferred index writes are done, the space is
 *                             checkpointed, the index flushes
 *   space runs low         -> a helper leases a chunk
 *
 * The oldest frame that the log must keep is the lowest of three: the first that the index has not
 * persisted whole (rule L9), the first with a payload that is not in its block, and the first with
 * a change of space that no persisted record contains (rule S2).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "format/space.h"
#include "store/record/keys.h"
#include "store/shard/shard_impl.h"

#define RECORDS_PER_FRAME      8u /* or more, of small chunks: */
#define RECORD_BYTES_PER_FRAME (UINT64_C(64) << 10)
#define RESUME_NS              LP_NS_PER_S
#define REFUSED_NS             (10 * LP_NS_PER_MS)
#define RESUMES_MAX            5u
#define REREADS_MAX            5u /* with RESUME_NS between them */

/* The operation that failed, and the last error of the device if one failed. */
static void set_reason(struct lp_shard *shard, int err, const char *what, struct lp_bdev *bdev)
{
	struct lp_bdev_failure failure;
	char where[LP_SHARD_REASON_BYTES / 2] = "";
	if (bdev != NULL && lp_bdev_last_failure(bdev, &failure)) {
		err = failure.result;
		(void)snprintf(where, sizeof(where), "%s: ", lp_bdev_name(bdev));
		size_t len = strlen(where);
		if (failure.opcode == LP_BDEV_FLUSH)
			(void)snprintf(where + len, sizeof(where) - len, "flush: ");
		else
			(void)snprintf(
				where + len, sizeof(where) - len,
				"%s of %llu bytes at %llu: ", lp_bdev_opcode_name(failure.opcode),
				(unsigned long long)failure.length_bytes,
				(unsigned long long)failure.offset_bytes);
	}
	(void)snprintf(shard->reason, sizeof(shard->reason), "%s: %s%s", what, where,
		       lp_strerror(err));
}

/* Rule L7. bdev: the device that failed; NULL: no device failed. */
void lpi_shard_fail(struct lp_shard *shard, int err, const char *what, struct lp_bdev *bdev)
{
	LP_ASSERT(err <
		  0); /* otherwise it would not count as failed, and would be reported again */
	if (shard->error != 0)
		return;
	shard->error = err;
	set_reason(shard, err, what, bdev);
	/* Waiters for durability are told, and nothing more is admitted (rule L7). */
	if (lp_commit_error(shard->commit) == 0)
		lp_commit_abort(shard->commit);
	lp_writeback_stop(shard->writeback);
	lpi_lease_tell(shard, -EIO);
	if (shard->options.events != NULL)
		shard->options.events->failed(shard->options.events, err, shard->reason);
}

static void fail_by_index(struct lp_shard *shard, int err)
{
	char what[LP_SHARD_REASON_BYTES / 2 + 32];
	(void)pthread_mutex_lock(&shard->kv_reason_lock);
	(void)snprintf(what, sizeof(what), "the index cannot be written%s%s",
		       shard->kv_reason[0] != 0 ? ": " : "", shard->kv_reason);
	(void)pthread_mutex_unlock(&shard->kv_reason_lock);
	lpi_shard_fail(shard, err, what, NULL);
}

/* --- Trimming and pressure -------------------------------------------------------------------- */

void lpi_shard_trim(struct lp_shard *shard)
{
	uint64_t oldest = shard->whole_seq + 1;
	oldest = LP_MIN(oldest, lp_pending_oldest_seq(shard->pending));
	oldest = LP_MIN(oldest, lp_space_log_start(shard->space));
	oldest = LP_MIN(oldest, lp_log_durable_seq(shard->log) + 1);
	/* The trim position never moves back. */
	oldest = LP_MAX(oldest, shard->trimmed_seq);
	shard->trimmed_seq = oldest;
	if (lp_log_error(shard->log) == 0)
		lp_log_trim(shard->log, oldest);
}

static int read_persisted(struct lp_shard *shard);

static void flush_run(struct lp_work *work)
{
	struct lp_shard *shard = LP_CONTAINER_OF(work, struct lp_shard, flush_work);
	shard->flush_result = lp_kv_flush(shard->kv);
	shard->reread_result = 0;
	if (shard->flush_result == 0 && atomic_load(&shard->kv_is_unread))
		shard->reread_result = read_persisted(shard);
}

static void relieve(struct lp_shard *shard);

static void flush_fire(struct lp_timer *timer)
{
	relieve(LP_CONTAINER_OF(timer, struct lp_shard, flush_timer));
}

static void ask_again(struct lp_shard *shard, uint64_t pause_ns)
{
	lp_timer_start(shard->options.reactor, &shard->flush_timer,
		       lp_reactor_now_ns(shard->options.reactor) + pause_ns);
}

/* The index may have flushed, but it is not known up to which frame, so nothing is trimmed. As long
 * as the log has room, writes go on, and the next flush makes a newer table, which also has the
 * number. When the log has no room and the number cannot be read for REREADS_MAX tries, all writers
 * would wait for ever, so the shard fails. */
static void reread_failed(struct lp_shard *shard)
{
	if (shard->is_door_closed && ++shard->reread_failures > REREADS_MAX)
		lpi_shard_fail(shard, shard->reread_result, "the index cannot be read", NULL);
	else
		ask_again(shard, RESUME_NS);
}

/* The flush was refused: nothing has begun. The cause of the stall (a compaction, or flushes of
 * older memtables) may end without an event, or with less persisted than needed. While the log is
 * tight nothing is written, so no memtable fills by itself. Therefore the flush is requested again.
 * Real failures come as events, too. */
static void flush_done(struct lp_work *work)
{
	struct lp_shard *shard = LP_CONTAINER_OF(work, struct lp_shard, flush_work);
	if (shard->closing || shard->error != 0)
		return;
	if (shard->flush_result < 0) {
		ask_again(shard, REFUSED_NS);
	} else if (shard->reread_result < 0) {
		reread_failed(shard);
	} else {
		shard->reread_failures = 0;
		relieve(shard); /* requests made meanwhile found it busy */
	}
}

/* One flush at a time. Only the index can say whether a flush has ended. The persisted number
 * cannot, because frames that put nothing into the index have numbers, too. */
void lpi_shard_flush_index(struct lp_shard *shard)
{
	if (lp_kv_is_flushing(shard->kv) || shard->closing ||
	    !lp_work_is_idle(&shard->flush_work) || lp_timer_is_armed(&shard->flush_timer))
		return;
	lp_workers_submit(shard->options.workers, shard->options.reactor, &shard->flush_work);
}

bool lpi_shard_checkpoint_some(struct lp_shard *shard)
{
	const struct lp_disk_label *label = &shard->options.devices->label[LP_ROLE_DATA];
	const struct lp_commit_need need = {.batch_bytes = LP_SPACE_RECORD_SIZE +
							   label->chunk_blocks / 8 +
							   LP_COMMIT_RECORD_BYTES,
					    .is_relief = true};
	uint64_t records = LP_MAX(RECORD_BYTES_PER_FRAME / need.batch_bytes, RECORDS_PER_FRAME);
	for (uint64_t i = 0; i < records; i++) {
		struct lp_key key;
		uint32_t chunk;
		size_t len;
		if (!lp_commit_reserve(shard->commit, &need))
			return true;
		if (lp_space_checkpoint_next(shard->space, lp_commit_seq(shard->commit),
					     shard->record, &chunk, &len) == 0)
			return false;
		shard->record_seq = lp_commit_seq(shard->commit);
		lp_key_of_store_number(&key, "alloc", chunk);
		lp_commit_put(shard->commit, (struct lp_kv_bytes){key.bytes, key.len},
			      (struct lp_kv_bytes){shard->record, len});
	}
	return true;
}

/* The log fills up, so all work that frees its oldest frames is done now. A record helps only when
 * it is persisted. So the index flushes once, when all records are in it, because each flush makes
 * a table, and every later lookup must search one table more. It flushes earlier when time is
 * short. */
static void relieve(struct lp_shard *shard)
{
	bool is_tight = lp_log_is_tight(shard->log);
	if (shard->error == 0 && is_tight != shard->is_door_closed) {
		shard->is_door_closed = !shard->is_door_closed;
		lp_commit_close_door(shard->commit, shard->is_door_closed);
	}
	if (shard->error != 0 || shard->closing || !lp_log_is_half(shard->log))
		return;
	uint64_t durable = lp_log_durable_seq(shard->log);
	uint64_t far = shard->trimmed_seq + (durable + 1 - shard->trimmed_seq) / 2;
	if (lp_pending_oldest_seq(shard->pending) <= far)
		lp_writeback_hurry(shard->writeback, is_tight ? durable : far);
	lpi_renew_some(shard, far);
	if (lp_space_unrecorded_seq(shard->space) <= far)
		(void)lpi_shard_checkpoint_some(shard);
	uint64_t whole = lp_commit_whole_seq(shard->commit);
	if (whole < far)
		lp_commit_pay(shard->commit);
	bool some_are_missing = whole < far || lp_space_unrecorded_seq(shard->space) <= far;
	bool is_wanted =
		shard->whole_seq < LP_MIN(whole, far) || shard->persisted_seq < shard->record_seq;
	if (is_wanted && lp_commit_inserted_seq(shard->commit) >= shard->record_seq &&
	    (!some_are_missing || is_tight))
		lpi_shard_flush_index(shard);
	/* Otherwise waiters for room would wait for room that does not come. */
	if (lp_writeback_is_full(shard->writeback) && lp_shard_is_stuck(shard))
		lp_commit_wake_room(shard->commit);
}

/* --- Events of the pipeline ------------------------------------------------------------------- */

static struct lp_shard *of_commit(struct lp_commit_events *events)
{
	return LP_CONTAINER_OF(events, struct lp_shard, commit_events);
}

/* A payload holds the buffer that it came in, which may be much larger than the payload. */
static bool is_short_of_bufs(const struct lp_shard *shard)
{
	struct lp_bufs_stats stats;
	if (shard->options.bufs == NULL)
		return false;
	lp_bufs_read_stats(shard->options.bufs, &stats);
	return stats.used_bytes >= stats.region_bytes / 2;
}

static void on_durable(struct lp_commit_events *events, uint64_t seq,
		       const struct lp_log_change *changes, uint32_t change_cnt)
{
	struct lp_shard *shard = of_commit(events);
	/* A change of the log and one of the space have the same 16 bytes. */
	for (uint32_t i = 0; i < change_cnt; i++) {
		lp_log_change_encode(&changes[i],
				     shard->change_bytes + (size_t)i * LP_LOG_CHANGE_SIZE);
		if (changes[i].op == LP_SPACE_CHANGE_KIND_FREE)
			shard->freeing_blocks -= changes[i].cnt;
	}
	lp_space_frame_durable(shard->space, seq, shard->change_bytes,
			       (size_t)change_cnt * LP_LOG_CHANGE_SIZE);
	lp_pending_frame_durable(shard->pending, seq);
	lp_deferrals_durable(shard->deferrals);
	lpi_bad_move_some(shard);
	lp_writeback_look(shard->writeback);
	if (is_short_of_bufs(shard))
		lp_shard_want_bufs(shard);
	lpi_shard_trim(shard);
	relieve(shard);
	if (change_cnt > 0)
		lpi_lease_look(shard);
}

static void on_numbered(struct lp_commit_events *events, uint64_t from, uint64_t to)
{
	struct lp_shard *shard = of_commit(events);
	lp_pending_renumber(shard->pending, from, to);
	lpi_renew_numbered(shard, from, to);
	/* Records made for the old number do not count; a later checkpoint makes them again. */
	lp_space_checkpoint_abandon(shard->space, from);
	if (shard->record_seq == from)
		shard->record_seq = 0; /* no record is on its way */
}

static void on_inserted(struct lp_commit_events *events, uint64_t seq)
{
	struct lp_shard *shard = of_commit(events);
	/* A record that is in the index now can be flushed. No other event may come to start that.
	 */
	if (shard->is_door_closed || seq == shard->record_seq)
		relieve(shard);
}

static void on_paid(struct lp_commit_events *events)
{
	/* A flush may have waited for this alone, and no frame follows to start it. */
	relieve(of_commit(events));
}

static void on_failed(struct lp_commit_events *events, int err)
{
	struct lp_shard *shard = of_commit(events);
	if (lp_log_error(shard->log) < 0)
		lpi_shard_fail(shard, err, "the log cannot be written",
			       lp_bdev_of(shard->log_chan));
	else if (lp_kv_error(shard->kv) < 0)
		fail_by_index(shard, err);
	else
		lpi_shard_fail(shard, err, "a commit was given up", NULL);
}

/* --- Events of write-back --------------------------------------------------------------------- */

static struct lp_shard *of_writeback(struct lp_writeback_events *events)
{
	return LP_CONTAINER_OF(events, struct lp_shard, writeback_events);
}

static bool may_write(struct lp_writeback_events *events, uint64_t block)
{
	/* A reader or a discard uses it: later. */
	return !lp_space_is_pinned(of_writeback(events)->space, (struct lp_extent){block, 1});
}

static void writing_begins(struct lp_writeback_events *events, struct lp_extent extent)
{
	struct lp_shard *shard = of_writeback(events);
	struct lpi_shard_pin *pin = lpi_pin_list_pop_front(&shard->pins_free);
	LP_ASSERT(pin != NULL);
	lp_space_pin(shard->space, &pin->pin, extent);
	lpi_pin_list_push_back(&shard->pins_used, pin);
}

static void writing_ended(struct lp_writeback_events *events, struct lp_extent extent)
{
	struct lp_shard *shard = of_writeback(events);
	struct lpi_shard_pin *pin = lpi_pin_list_first(&shard->pins_used);
	while (pin != NULL && pin->pin.extent.block != extent.block)
		pin = lpi_pin_list_next(&shard->pins_used, pin);
	LP_ASSERT(pin != NULL); /* writing_begins() made it */
	lp_space_unpin(shard->space, &pin->pin);
	lpi_pin_list_remove(pin);
	lpi_pin_list_push_front(&shard->pins_free, pin);
}

static void payload_done(struct lp_pending_events *events, uint64_t record)
{
	struct lp_shard *shard = LP_CONTAINER_OF(events, struct lp_shard, pending_events);
	lp_deferrals_done(shard->deferrals, record);
	lp_deferrals_delete_some(shard->deferrals);
}

static void settled(struct lp_writeback_events *events)
{
	lpi_bad_move_some(of_writeback(events));
	lpi_shard_trim(of_writeback(events));
	relieve(of_writeback(events));
}

static void move_bad(struct lp_task *task)
{
	lpi_bad_move_some(LP_CONTAINER_OF(task, struct lp_shard, bad.task));
}

static bool unwritable(struct lp_writeback_events *events, uint64_t block)
{
	struct lp_shard *shard = of_writeback(events);
	if (!lpi_bad_note(shard, block))
		return false;
	/* The version becomes stuck only after this call has returned. */
	if (!lp_task_is_queued(&shard->bad.task))
		lp_task_queue(shard->options.reactor, &shard->bad.task);
	return true;
}

/* Waiters for room in a log that cannot be trimmed learn that waiting is in vain. */
static void writeback_full(struct lp_writeback_events *events)
{
	lp_commit_wake_room(of_writeback(events)->commit);
	relieve(of_writeback(events));
}

static void writeback_failed(struct lp_writeback_events *events, int err)
{
	struct lp_shard *shard = of_writeback(events);
	lpi_shard_fail(shard, err, "deferred data cannot be written", lp_bdev_of(shard->data));
}

/* --- Events of the index, on its own threads -------------------------------------------------- */

static struct lp_shard *of_kv(struct lp_kv_events *events)
{
	return LP_CONTAINER_OF(events, struct lp_shard, kv_events);
}

static void post_kv_msg(struct lp_shard *shard)
{
	if (!atomic_exchange(&shard->kv_msg_sent, true))
		lp_reactor_post(shard->options.reactor, &shard->kv_msg);
}

static void raise_to(_Atomic uint64_t *number, uint64_t value)
{
	uint64_t seen = atomic_load(number);
	while (seen < value && !atomic_compare_exchange_weak(number, &seen, value))
		;
}

/* Reads the number up to which the index's tables are persisted. Any thread but the shard's. */
static int read_persisted(struct lp_shard *shard)
{
	struct lp_key key;
	struct lp_kv_value value;
	uint64_t seq = 0;
	uint64_t whole_seq = 0;
	lp_key_of_store(&key, "applied");
	/* Cleared before the read: two threads may read at once, and one that looked before a flush
	 * does not know its number, which the other thread could not read. */
	atomic_store(&shard->kv_is_unread, false);
	int err = lp_kv_get_persisted(shard->kv, (struct lp_kv_bytes){key.bytes, key.len}, &value);
	if (err == -ENOENT)
		return 0;
	if (err == 0) {
		err = lp_applied_decode(value.bytes, &seq, &whole_seq);
		lp_kv_value_release(&value);
	}
	if (err < 0) {
		atomic_store(&shard->kv_is_unread, true);
		return err;
	}
	raise_to(&shard->kv_whole, whole_seq);
	raise_to(&shard->kv_persisted, seq);
	post_kv_msg(shard);
	return 0;
}

static void kv_flushed(struct lp_kv_events *events)
{
	struct lp_shard *shard = of_kv(events);
	/* A failure leaves the former number. The log then keeps more than it must until the number
	 * is read again at the next flush request. The shard must still hear that this flush has
	 * ended: while the log is tight no other event makes it request a flush. */
	if (read_persisted(shard) < 0)
		post_kv_msg(shard);
}

/* Reported once, until the shard has handled it. */
static void kv_compact_failed(struct lp_kv_events *events, int err)
{
	struct lp_shard *shard = of_kv(events);
	if (err == -ENOSPC && !atomic_exchange(&shard->kv_is_short, true))
		post_kv_msg(shard);
}

static void kv_failed(struct lp_kv_events *events, int err, bool final, const char *reason)
{
	struct lp_shard *shard = of_kv(events);
	(void)pthread_mutex_lock(&shard->kv_reason_lock);
	(void)snprintf(shard->kv_reason, sizeof(shard->kv_reason), "%s", reason);
	(void)pthread_mutex_unlock(&shard->kv_reason_lock);
	/* A final error has a place of its own, because a resume that begins at this moment forgets
	 * the newest error. */
	if (final)
		atomic_store(&shard->kv_error_final, err < 0 ? err : -EIO);
	else
		atomic_store(&shard->kv_error, err);
	post_kv_msg(shard);
}

static void resume_run(struct lp_work *work)
{
	struct lp_shard *shard = LP_CONTAINER_OF(work, struct lp_shard, resume_work);
	for (uint32_t i = 0; i < shard->return_cnt; i++) {
		/* A chunk that cannot be returned stays leased, and the next opening finds it
		 * empty. */
		int ignored = lp_chunks_return(shard->chunks, shard->options.shard_idx,
					       LP_CHUNK_USE_OBJECTS, shard->return_chunks[i]);
		(void)ignored;
	}
	/* An index that has not stopped is not resumed: the resume would wait for it. */
	shard->resume_result = lp_kv_error(shard->kv) < 0 ? lp_kv_resume(shard->kv) : 0;
}

void lpi_shard_resume_later(struct lp_shard *shard)
{
	if (!lp_timer_is_armed(&shard->resume_timer) && !shard->closing && shard->error == 0)
		lp_timer_start(shard->options.reactor, &shard->resume_timer,
			       lp_reactor_now_ns(shard->options.reactor) + RESUME_NS);
}

static bool should_resume(const struct lp_shard *shard)
{
	return atomic_load(&shard->kv_error) != 0 || atomic_load(&shard->kv_is_short);
}

static void resume_done(struct lp_work *work)
{
	struct lp_shard *shard = LP_CONTAINER_OF(work, struct lp_shard, resume_work);
	if (shard->resume_result == 0) {
		shard->resume_failures = 0;
		/* Failures meanwhile were reported, and the timer may have found this resume busy.
		 */
		if (should_resume(shard))
			lpi_shard_resume_later(shard);
		return;
	}
	/* A full device may get room again. One that goes on failing is given up (rule L5). */
	if (shard->resume_result != -ENOSPC && ++shard->resume_failures > RESUMES_MAX) {
		fail_by_index(shard, shard->resume_result);
		return;
	}
	lpi_shard_resume_later(shard);
	/* Waiters for room in a log that cannot be trimmed learn that waiting is in vain. */
	if (shard->resume_result == -ENOSPC)
		lp_commit_wake_room(shard->commit);
}

bool lpi_shard_let_go(struct lp_shard *shard)
{
	bool has_any = shard->discards != NULL && lp_discards_give_way(shard->discards) > 0;
	shard->gave_way = shard->gave_way || has_any;
	return has_any;
}

/* The index may lease chunks that hold nothing (rule S5). */
uint32_t lpi_shard_choose_empty(struct lp_shard *shard, uint64_t keep_blocks, uint32_t max,
				uint32_t *ret_chunks)
{
	uint32_t chunk = 0;
	uint32_t cnt = 0;
	max = LP_MIN(max, LPI_SHARD_RETURNS);
	for (uint32_t from = 0;
	     cnt < max && lp_space_chunk_find_empty(shard->space, from, keep_blocks, &chunk);
	     from = chunk + 1) {
		if (lp_space_chunk_remove(shard->space, chunk) == 0)
			ret_chunks[cnt++] = chunk;
	}
	return cnt;
}

static void resume_fire(struct lp_timer *timer)
{
	struct lp_shard *shard = LP_CONTAINER_OF(timer, struct lp_shard, resume_timer);
	/* A running resume looks for newer failures at its end. After a final one the shard fails,
	 * as a message is about to say. */
	if (!lp_work_is_idle(&shard->resume_work) || atomic_load(&shard->kv_error_final) != 0)
		return;
	/* Cleared before the resume, so that a newer failure is not forgotten. */
	bool full = atomic_exchange(&shard->kv_error, 0) == -ENOSPC;
	full = atomic_exchange(&shard->kv_is_short, false) || full;
	shard->return_cnt = 0;
	if (full || shard->resume_result == -ENOSPC) {
		lpi_shard_let_go(shard);
		shard->return_cnt =
			lpi_shard_choose_empty(shard, lp_space_keep_blocks(shard->space),
					       LPI_SHARD_RETURNS, shard->return_chunks);
	}
	lp_workers_submit(shard->options.workers, shard->options.reactor, &shard->resume_work);
}

void lpi_shard_take_up_kv_news(struct lp_shard *shard)
{
	uint64_t persisted = atomic_load(&shard->kv_persisted);
	uint64_t whole = atomic_load(&shard->kv_whole);
	if (persisted > shard->persisted_seq || whole > shard->whole_seq) {
		/* Each number by itself, because two flushes that end together may be reported in
		 * any order. */
		shard->persisted_seq = LP_MAX(shard->persisted_seq, persisted);
		shard->whole_seq = LP_MAX(shard->whole_seq, whole);
		lp_space_persisted(shard->space, shard->persisted_seq);
		lpi_shard_trim(shard);
		lpi_reclaim_look(shard);
		lpi_lend_look(shard);
	}
	relieve(shard);
	int final = atomic_load(&shard->kv_error_final);
	if (final != 0)
		fail_by_index(shard, final);
	else if (should_resume(shard))
		lpi_shard_resume_later(shard);
}

static void kv_deliver(struct lp_reactor *to, struct lp_msg *msg)
{
	struct lp_shard *shard = LP_CONTAINER_OF(msg, struct lp_shard, kv_msg);
	(void)to;
	atomic_store(&shard->kv_msg_sent, false);
	/* While the shard opens or closes not all parts exist. The opening handles this state at
	 * its end. */
	if (shard->commit != NULL && !shard->closing)
		lpi_shard_take_up_kv_news(shard);
}

/* --- Space that will be free ------------------------------------------------------------------ */

uint64_t lp_shard_freeing_blocks(const struct lp_shard *shard)
{
	return shard->freeing_blocks;
}

void lp_shard_want_bufs(struct lp_shard *shard)
{
	if (shard->writeback != NULL)
		lp_writeback_hurry(shard->writeback, lp_log_durable_seq(shard->log));
}

void lp_shard_rest(struct lp_shard *shard, bool flushes)
{
	if (shard->commit == NULL || shard->error != 0)
		return;
	lp_pending_rest(shard->pending);
	lp_deferrals_rest(shard->deferrals);
	if (flushes)
		lpi_shard_flush_index(shard);
}

uint64_t lp_shard_defer_room(const struct lp_shard *shard)
{
	const struct lp_pending_stats *stats = lp_pending_stats(shard->pending);
	uint64_t held = stats->versions - stats->stuck - stats->settled;
	uint64_t limit = shard->options.deferred_blocks_max;
	if (shard->options.read_only)
		return 0;
	uint64_t room =
		LP_MIN(lp_pending_room(shard->pending), lp_deferrals_room(shard->deferrals));
	return held < limit ? LP_MIN(limit - held, room) : 0;
}

uint64_t lp_shard_defer_max(const struct lp_shard *shard)
{
	return shard->options.deferred_blocks_max;
}

/* --- For transactions ------------------------------------------------------------------------- */

void lp_shard_set_deferred_store(struct lp_shard *shard, enum lp_deferred_store kind)
{
	shard->options.deferred_store = kind;
}

void lp_shard_defer_need(struct lp_shard *shard, uint32_t cnt, struct lp_commit_need *need)
{
	struct lp_commit_need kept = *need;
	kept.batch_bytes += cnt * LP_DEFERRALS_PUT_NEED;
	/* Records make the index larger for a while, so they are admitted like growth (rule L8). */
	shard->defers_to_index = cnt > 0 && shard->options.deferred_store == LP_DEFERRED_KV &&
				 lp_commit_need_is_possible(shard->commit, &kept) &&
				 lpi_reclaim_has_room(shard, LP_SHARD_GROWS);
	if (shard->defers_to_index) {
		*need = kept;
		return;
	}
	need->data_cnt += cnt;
	if (lp_deferrals_stats(shard->deferrals)->records > 0)
		need->batch_bytes += cnt * LP_DEFERRALS_DELETE_NEED;
}

/* One device write in either case: the payload is in the frame, as one of its blocks or as a record
 * of its batch. */
void lp_shard_defer(struct lp_shard *shard, const struct lp_log_payload *about, struct lp_seg seg)
{
	const struct lp_pending_block block = {.block = about->device_block, .crc = about->crc};
	LP_ASSERT(!shard->options.read_only);
	if (shard->error != 0)
		return;
	uint64_t record = 0;
	if (shard->defers_to_index) {
		record = lp_deferrals_put(shard->deferrals, about, seg);
	} else {
		lp_commit_data(shard->commit, about, seg);
		lp_deferrals_replace(shard->deferrals, about->device_block);
	}
	uint64_t seq = lp_commit_seq(shard->commit);
	int err = record != 0 ? lp_pending_add_kept(shard->pending, seq, &block, seg, record)
			      : lp_pending_add(shard->pending, seq, block.block, seg, block.crc);
	LP_ASSERT(err == 0); /* there was room */
}

const struct lp_discards *lp_shard_discards(const struct lp_shard *shard)
{
	return shard->discards;
}

const struct lp_deferrals *lp_shard_deferrals(const struct lp_shard *shard)
{
	return shard->deferrals;
}

static void change(struct lp_shard *shard, struct lp_extent extent, uint32_t kind)
{
	LP_ASSERT(extent.cnt > 0 && extent.cnt <= UINT32_MAX);
	LP_ASSERT(!shard->options.read_only);
	const struct lp_log_change about = {
		.block = extent.block, .cnt = (uint32_t)extent.cnt, .op = kind};
	lp_commit_change(shard->commit, &about);
}

void lp_shard_taken(struct lp_shard *shard, struct lp_extent extent)
{
	if (shard->error == 0)
		change(shard, extent, LP_SPACE_CHANGE_KIND_TAKE);
}

void lp_shard_freed(struct lp_shard *shard, struct lp_extent extent)
{
	if (shard->error != 0)
		return;
	change(shard, extent, LP_SPACE_CHANGE_KIND_FREE);
	shard->freeing_blocks += extent.cnt;
	int err = lp_pending_freed(shard->pending, lp_commit_seq(shard->commit), extent);
	if (err < 0)
		/* Half a change must not be committed. */
		lpi_shard_fail(shard, err, "a block could not be freed", NULL);
}

/* --- Birth ------------------------------------------------------------------------------------ */

void lpi_shard_init_running(struct lp_shard *shard)
{
	shard->commit_events = (struct lp_commit_events){.durable = on_durable,
							 .numbered = on_numbered,
							 .inserted = on_inserted,
							 .paid = on_paid,
							 .failed = on_failed};
	shard->writeback_events = (struct lp_writeback_events){.may_write = may_write,
							       .begins = writing_begins,
							       .ended = writing_ended,
							       .unwritable = unwritable,
							       .settled = settled,
							       .full = writeback_full,
							       .failed = writeback_failed};
	shard->kv_events = (struct lp_kv_events){
		.flushed = kv_flushed, .failed = kv_failed, .compact_failed = kv_compact_failed};
	shard->pending_events = (struct lp_pending_events){.done = payload_done};
	shard->kv_msg.deliver = kv_deliver;
	shard->resume_timer.fire = resume_fire;
	shard->resume_work = (struct lp_work){.run = resume_run, .done = resume_done};
	shard->flush_work = (struct lp_work){.run = flush_run, .done = flush_done};
	shard->flush_timer.fire = flush_fire;
	(void)pthread_mutex_init(&shard->kv_reason_lock, NULL); /* cannot fail on Linux */
	lpi_lease_init(shard);
	shard->bad.task.run = move_bad;
	lpi_reclaim_init(shard);
	lpi_lend_init(shard);
	lpi_pin_list_init(&shard->pins_free);
	lpi_pin_list_init(&shard->pins_used);
	for (size_t i = 0; i < LPI_SHARD_PINS; i++)
		lpi_pin_list_push_back(&shard->pins_free, &shard->pins[i]);
}

void lpi_shard_begin(struct lp_shard *shard)
{
	lpi_shard_take_up_kv_news(shard);
	lpi_bad_move_some(shard);
	lp_writeback_look(shard->writeback); /* for payloads that the opening could not write */
	lpi_shard_trim(shard);
	relieve(shard);
	lpi_lease_look(shard);
	lpi_lend_begin(shard);
}

bool lpi_shard_is_quiet(const struct lp_shard *shard)
{
	if (shard->discards != NULL && !lp_discards_is_idle(shard->discards))
		return false;
	return lp_work_is_idle(&shard->resume_work) && lp_work_is_idle(&shard->flush_work) &&
	       lp_work_is_idle(&shard->lease_work) && lpi_reclaim_is_idle(shard) &&
	       lpi_lend_is_idle(shard) && !atomic_load(&shard->kv_msg_sent);
}

void lpi_shard_stop_timers(struct lp_shard *shard)
{
	lp_timer_stop(shard->options.reactor, &shard->resume_timer);
	lp_timer_stop(shard->options.reactor, &shard->lease_timer);
	lp_timer_stop(shard->options.reactor, &shard->flush_timer);
	if (shard->discards != NULL)
		lp_discards_stop(shard->discards);
	lpi_reclaim_stop(shard);
	lpi_lend_stop(shard);
	lpi_lease_tell(shard, -EIO);
}

int lp_shard_error(const struct lp_shard *shard)
{
	return shard->error;
}

const char *lp_shard_reason(const struct lp_shard *shard)
{
	return shard->reason;
}

int lp_shard_index_error(const struct lp_shard *shard)
{
	return shard->kv != NULL ? lp_kv_error(shard->kv) : 0;
}

uint64_t lp_shard_durable_seq(const struct lp_shard *shard)
{
	return shard->commit != NULL ? lp_commit_durable_seq(shard->commit)
				     : shard->recovery.last_seq;
}

bool lp_shard_is_read_only(const struct lp_shard *shard)
{
	return shard->options.read_only;
}

struct lp_commit *lp_shard_commit(struct lp_shard *shard)
{
	return shard->commit;
}

struct lp_kv *lp_shard_kv(struct lp_shard *shard)
{
	return shard->kv;
}

struct lp_overlay *lp_shard_overlay(struct lp_shard *shard)
{
	return shard->overlay;
}

struct lp_space *lp_shard_space(struct lp_shard *shard)
{
	return shard->space;
}

struct lp_pending *lp_shard_pending(struct lp_shard *shard)
{
	return shard->pending;
}

const struct lp_writeback_stats *lp_shard_writeback_stats(const struct lp_shard *shard)
{
	return lp_writeback_stats(shard->writeback);
}

struct lp_bdev_chan *lp_shard_log_chan(struct lp_shard *shard)
{
	return shard->log_chan;
}

struct lp_kv_chans *lp_shard_index_chans(struct lp_shard *shard)
{
	return &shard->index_chans;
}

struct lp_bdev_chan *lp_shard_data(struct lp_shard *shard)
{
	return shard->data;
}

bool lp_shard_sim_run_one(struct lp_shard *shard)
{
	return shard->kv != NULL && lp_kv_sim_run_one(shard->kv);
}

const struct lp_shard_recovery *lp_shard_recovery(const struct lp_shard *shard)
{
	return &shard->recovery;
}

void lp_shard_read_usage(const struct lp_shard *shard, struct lp_shard_usage *ret_usage)
{
	struct lp_blockfs_stats files;
	struct lp_log_usage log = {0};
	lp_blockfs_stats(shard->files, &files);
	if (!shard->options.read_only)
		lp_log_read_usage(shard->log, &log);
	*ret_usage = (struct lp_shard_usage){.index_bytes = files.used_bytes,
					     .log_ring_blocks = log.ring_blocks,
					     .log_needed_blocks = log.needed_blocks,
					     .log_needed_records = log.needed_records};
}
