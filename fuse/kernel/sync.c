/* SPDX-License-Identifier: Apache-2.0 */
/* A handle is (bits | number of the open << 8 | failed shards that had been reported by then).
 * Entry number % TOLD_SLOTS of the table is the same for the handle that got the last report.
 * Shards fail for good and one after the other, so a count says which. Numbers are a multiple of
 * the count of channels and the channel's place among them, so that no two are equal. */
#include "fuse/kernel/sync.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/error.h"
#include "fuse/channel_state.h"

#define TOLD_SLOTS  (UINT32_C(1) << 15)
#define FAILED_BITS 8u
#define FAILED_MASK ((UINT64_C(1) << FAILED_BITS) - 1)

static_assert((LPI_FUSE_HANDLE_DSYNC ^ LPI_FUSE_HANDLE_DIRECT ^ LPI_FUSE_HANDLE_MAPS ^
	       LPI_FUSE_HANDLE_UNCACHED) == UINT64_C(15) << 60,
	      "a bit of a handle means one thing");

struct lpi_fuse_told {
	_Atomic uint64_t failed_cnt; /* the most that any handle has been told of */
	_Atomic uint64_t handles[TOLD_SLOTS];
	_Atomic uint64_t failed[TOLD_SLOTS]; /* handles whose failed write may be reverted */
};

/* --- Rounds ----------------------------------------------------------------------------------- */

static void begin_rounds(struct lpi_fuse_syncs *syncs);

static void synced(struct lp_ns_op *op)
{
	struct lpi_fuse_round *round = LP_CONTAINER_OF(op, struct lpi_fuse_round, op);
	struct lpi_fuse_request *request = NULL;
	int result = op->result;
	uint32_t failed_cnt = op->sync.failed_cnt;
	struct lpi_fuse_list done;
	lpi_fuse_list_init(&done);
	lpi_fuse_list_splice_back(&done, &round->requests);
	begin_rounds(&round->channel->syncs);
	while ((request = lpi_fuse_list_pop_front(&done)) != NULL) {
		request->op.result = result;
		request->op.sync.failed_cnt = failed_cnt;
		request->next(request);
	}
}

static void begin_rounds(struct lpi_fuse_syncs *syncs)
{
	for (uint32_t i = 0; i < LPI_FUSE_SYNC_ROUNDS; i++) {
		struct lpi_fuse_round *round = &syncs->rounds[i];
		if (lpi_fuse_list_is_empty(&syncs->waiting))
			return;
		if (!lpi_fuse_list_is_empty(&round->requests))
			continue;
		lpi_fuse_list_splice_back(&round->requests, &syncs->waiting);
		round->op = (struct lp_ns_op){.opcode = LP_NS_SYNC, .complete = synced};
		lp_ns_submit(round->channel->options.ns, &round->op);
	}
}

void lpi_fuse_sync(struct lpi_fuse_request *request, lpi_fuse_step_fn *next)
{
	struct lpi_fuse_syncs *syncs = &request->channel->syncs;
	request->next = next;
	lpi_fuse_list_push_back(&syncs->waiting, request);
	begin_rounds(syncs);
}

int lpi_fuse_syncs_init(struct lp_fuse_channel *channel)
{
	struct lpi_fuse_syncs *syncs = &channel->syncs;
	lpi_fuse_list_init(&syncs->waiting);
	for (uint32_t i = 0; i < LPI_FUSE_SYNC_ROUNDS; i++) {
		syncs->rounds[i].channel = channel;
		lpi_fuse_list_init(&syncs->rounds[i].requests);
	}
	/* Zeros take no memory until a failure is reported. */
	syncs->told = calloc(1, sizeof(*syncs->told));
	return syncs->told == NULL ? -ENOMEM : 0;
}

void lpi_fuse_syncs_fini(struct lp_fuse_channel *channel)
{
	free(channel->syncs.told);
}

/* --- Reports of failures ---------------------------------------------------------------------- */

static struct lpi_fuse_told *told_of(const struct lp_fuse_channel *channel)
{
	return channel->peers[0]->syncs.told;
}

uint64_t lpi_fuse_handle_new(const struct lpi_fuse_request *request, struct lp_ino ino,
			     uint32_t flags)
{
	struct lp_fuse_channel *channel = request->channel;
	uint64_t bits = lpi_fuse_is_direct(request) ? LPI_FUSE_HANDLE_DIRECT : 0;
	bits |= (flags & O_DSYNC) != 0 ? LPI_FUSE_HANDLE_DSYNC : 0;
	bits |= lpi_fuse_mapper_add(channel, ino, flags);
	bits |= lpi_fuse_pages_open(channel, ino, flags);
	bits |= lpi_fuse_run_bit(request);
	uint64_t nr = ++channel->syncs.handle_cnt * channel->peer_cnt + channel->idx;
	return bits | nr << FAILED_BITS | atomic_load(&told_of(channel)->failed_cnt);
}

void lpi_fuse_handle_drop(const struct lp_fuse_channel *channel, struct lp_ino ino, uint64_t handle)
{
	lpi_fuse_mapper_drop(channel, ino, handle);
	lpi_fuse_pages_close(channel, ino, handle);
	lpi_fuse_run_end(channel, ino, handle);
}

static _Atomic uint64_t *failed_slot(const struct lpi_fuse_request *request, uint64_t handle)
{
	return &told_of(request->channel)->failed[(handle >> FAILED_BITS) % TOLD_SLOTS];
}

void lpi_fuse_note_failed(const struct lpi_fuse_request *request, uint64_t handle)
{
	atomic_store(failed_slot(request, handle), handle);
}

bool lpi_fuse_take_failed(const struct lpi_fuse_request *request, uint64_t handle)
{
	return handle != 0 &&
	       atomic_compare_exchange_strong(failed_slot(request, handle), &handle, 0);
}

int lpi_fuse_sync_verdict(const struct lpi_fuse_request *request, uint64_t handle)
{
	struct lpi_fuse_told *told = told_of(request->channel);
	uint64_t failed_cnt = request->op.sync.failed_cnt;
	uint64_t nr = handle >> FAILED_BITS;
	if (request->op.result >= 0 || failed_cnt == 0)
		return LP_MIN(request->op.result, 0);
	LP_ASSERT(failed_cnt <= FAILED_MASK);
	_Atomic uint64_t *slot = &told->handles[nr % TOLD_SLOTS];
	uint64_t last = atomic_load(slot);
	if (last >> FAILED_BITS == nr)
		handle = last;
	if ((handle & FAILED_MASK) >= failed_cnt)
		return 0;
	atomic_store(slot, nr << FAILED_BITS | failed_cnt);
	uint64_t most = atomic_load(&told->failed_cnt);
	while (most < failed_cnt &&
	       !atomic_compare_exchange_weak(&told->failed_cnt, &most, failed_cnt))
		continue;
	return -EIO;
}
