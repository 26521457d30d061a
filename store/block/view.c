/* SPDX-License-Identifier: Apache-2.0 */
/* Pauses and views (store/view.h). The pipeline admits nothing, its groups go their way, and
 * deferred index writes are done. A timer checks whether the pipeline is quiet, because no single
 * event says so. */
#include "store/block/block_parts.h"

#include "store/view.h"

#define LOOK_NS (100 * LP_NS_PER_US)
/* A pause gives up if the device takes this long for a frame, because clients wait. */
#define REST_NS (2 * LP_NS_PER_S)

/* 0, or why this store cannot pause. */
static int may_rest(const struct lpi_block *block)
{
	if (block->reopen.has_failed || block->commit == NULL)
		return -EROFS;
	return lp_commit_error(block->commit) < 0 ? -EROFS : 0;
}

static void end_pause(struct lpi_block *block)
{
	block->pause = NULL;
	if (block->commit != NULL)
		lp_commit_pause(block->commit, false);
}

static void look(struct lp_timer *timer)
{
	struct lp_pause *pause = LP_CONTAINER_OF(timer, struct lp_pause, timer);
	struct lpi_block *block = lpi_block_of(pause->store);
	uint64_t now_ns = lp_reactor_now_ns(block->options.reactor);
	int err = may_rest(block);
	if (err == 0 && !lp_commit_is_quiet(block->commit)) {
		if (now_ns < pause->until_ns) {
			lp_commit_pay(block->commit);
			lp_timer_start(block->options.reactor, timer, now_ns + LOOK_NS);
			return;
		}
		err = -EAGAIN;
	}
	if (err < 0)
		end_pause(block);
	pause->rested(pause, err);
}

int lpi_view_pause(struct lp_store *store, struct lp_pause *pause)
{
	struct lpi_block *block = lpi_block_of(store);
	uint64_t now_ns = lp_reactor_now_ns(block->options.reactor);
	int err = may_rest(block);
	if (err == 0 && (block->pause != NULL || block->view != NULL))
		err = -EBUSY;
	if (err < 0)
		return err;
	pause->store = store;
	pause->timer = (struct lp_timer){.fire = look};
	pause->until_ns = now_ns + REST_NS;
	block->pause = pause;
	lp_commit_pause(block->commit, true);
	lp_timer_start(block->options.reactor, &pause->timer, now_ns);
	return 0;
}

void lpi_view_resume(struct lp_store *store, struct lp_pause *pause)
{
	struct lpi_block *block = lpi_block_of(store);
	LP_ASSERT(block->pause == pause);
	end_pause(block);
}

int lpi_view_take(struct lp_store *store, struct lp_view **ret_view)
{
	struct lpi_block *block = lpi_block_of(store);
	LP_ASSERT(block->pause != NULL && block->view == NULL);
	int err = may_rest(block);
	/* Changes that make room in the log go on during a pause. */
	if (err == 0 && !lp_commit_is_quiet(block->commit))
		err = -EAGAIN;
	if (err == 0)
		err = lpi_view_new(block->options.shard_idx, block->kv, block->space, ret_view);
	if (err == 0)
		block->view = *ret_view;
	return err;
}

void lpi_view_end(struct lp_store *store, struct lp_view *view)
{
	struct lpi_block *block = lpi_block_of(store);
	LP_ASSERT(block->view == view);
	block->view = NULL;
	lpi_view_free(view);
}

void lpi_view_is_over(struct lpi_block *block)
{
	if (block->view != NULL)
		atomic_store_explicit(&block->view->is_over, true, memory_order_relaxed);
}
