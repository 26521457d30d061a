/* SPDX-License-Identifier: Apache-2.0 */
/* When half of the journal is needed, or a frame waits for room in it: a helper makes durable all
 * that was applied, and the journal forgets it. If it needs a frame to say so it gets one. */
#include "store/filestore/filestore_impl.h"

static void checkpoint_run(struct lp_work *work)
{
	struct lpi_fstore_store *store =
		LP_CONTAINER_OF(work, struct lpi_fstore_store, checkpoint_work);
	store->checkpoint_result = lpi_fstore_checkpoint(store);
}

static void trim_complete(struct lp_log_frame *frame)
{
	struct lpi_fstore_store *store =
		LP_CONTAINER_OF(frame, struct lpi_fstore_store, trim_frame);
	store->is_trimming = false;
	if (frame->result < 0)
		lpi_fstore_fail(store, frame->result, false, "the journal cannot be written");
	lpi_fstore_step_soon(store);
}

void lpi_fstore_trim(struct lpi_fstore_store *store)
{
	if (store->is_trimming || !lp_log_can_trim(store->log))
		return;
	store->trim_frame = (struct lp_log_frame){.trims_only = true, .complete = trim_complete};
	int err = lp_log_append(store->log, &store->trim_frame);
	store->is_trimming = err == 0;
	if (err < 0 && err != -EAGAIN)
		lpi_fstore_fail(store, err, false, "the journal");
}

void lpi_fstore_try_trim(struct lpi_fstore_store *store)
{
	if (!store->is_writing && lp_log_needs_trim_frame(store->log))
		lpi_fstore_trim(store);
}

static void checkpoint_done(struct lp_work *work)
{
	struct lpi_fstore_store *store =
		LP_CONTAINER_OF(work, struct lpi_fstore_store, checkpoint_work);
	store->is_checkpointing = false;
	store->stats.flushes++;
	if (store->checkpoint_result == -ENOSPC) {
		/* The index is tried again; all is in the journal as long. */
		lp_timer_start(store->reactor, &store->retry_timer,
			       lp_reactor_now_ns(store->reactor) + LP_NS_PER_S);
		return;
	}
	if (store->checkpoint_result < 0) {
		lpi_fstore_fail(store, store->checkpoint_result, false,
				"the host cannot make durable");
	} else {
		lp_log_trim(store->log, store->checkpoint_seq + 1);
		lp_log_advance(store->log);
		store->trimmed_seq = store->checkpoint_seq;
	}
	lpi_fstore_step(store);
}

void lpi_fstore_try_checkpoint(struct lpi_fstore_store *store)
{
	if (store->is_checkpointing || lp_timer_is_armed(&store->retry_timer) ||
	    store->applied_seq == store->trimmed_seq ||
	    (!store->is_waiting_for_log && !lp_log_is_half(store->log)))
		return;
	store->is_checkpointing = true;
	store->checkpoint_seq = store->applied_seq;
	lp_workers_submit(store->options.workers, store->reactor, &store->checkpoint_work);
}

void lpi_fstore_checkpoint_init(struct lpi_fstore_store *store)
{
	store->checkpoint_work = (struct lp_work){.run = checkpoint_run, .done = checkpoint_done};
}
