/* SPDX-License-Identifier: Apache-2.0 */
/* The contract of store/device/bdev.h, checked at each crossing so that every kind of device may
 * rely on it, and the counters, so that all kinds count alike. */
#include "store/device/bdev_driver.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>

#include "store/record/types.h"

static const char *const opcode_names[LP_BDEV_OPCODE_CNT] = {
	[LP_BDEV_READ] = "read",
	[LP_BDEV_WRITE] = "write",
	[LP_BDEV_WRITE_THROUGH] = "write-through",
	[LP_BDEV_FLUSH] = "flush",
	[LP_BDEV_DISCARD] = "discard",
};

const char *lp_bdev_opcode_name(enum lp_bdev_opcode opcode)
{
	LP_ASSERT(opcode < LP_BDEV_OPCODE_CNT);
	return opcode_names[opcode];
}

void lpi_bdev_init(struct lp_bdev *bdev, const struct lp_bdev_kind *kind, const char *name)
{
	bdev->kind = kind;
	bdev->doubt = &bdev->is_doubted;
	/* A longer name is cut: it is only shown. */
	(void)snprintf(bdev->name, sizeof(bdev->name), "%s", name);
	(void)pthread_mutex_init(&bdev->failure_lock, NULL); /* cannot fail on Linux */
}

void lp_bdev_close(struct lp_bdev *bdev)
{
	if (bdev == NULL)
		return;
	LP_ASSERT(atomic_load(&bdev->chan_cnt) == 0);
	(void)pthread_mutex_destroy(&bdev->failure_lock); /* nobody holds it */
	bdev->kind->close(bdev);
}

bool lpi_bdev_can_be(uint32_t block_bytes)
{
	return lp_is_power_of_two(block_bytes) && block_bytes <= LP_BLOCK_BYTES;
}

const struct lp_bdev_caps *lp_bdev_caps(const struct lp_bdev *bdev)
{
	return &bdev->caps;
}

const char *lp_bdev_name(const struct lp_bdev *bdev)
{
	return bdev->name;
}

int lp_bdev_refresh_size(struct lp_bdev *bdev)
{
	return bdev->kind->refresh_size(bdev);
}

/* --- What failed ------------------------------------------------------------------------------ */

static bool is_flush(const struct lp_bdev *bdev, enum lp_bdev_opcode opcode)
{
	return opcode == LP_BDEV_FLUSH ||
	       (opcode == LP_BDEV_WRITE_THROUGH && bdev->caps.through_flushes);
}

/* That the host's file system is full is said before anything is flushed. */
static bool is_of_a_flush(const struct lp_bdev *bdev, const struct lp_bdev_failure *failure)
{
	bool is_before = failure->opcode == LP_BDEV_WRITE_THROUGH && failure->result == -ENOSPC;
	return is_flush(bdev, failure->opcode) && !is_before;
}

void lpi_bdev_note_failure(struct lp_bdev *bdev, const struct lp_bdev_failure *failure)
{
	if (is_of_a_flush(bdev, failure))
		atomic_store(bdev->doubt, true);
	if (failure->opcode == LP_BDEV_READ || failure->opcode == LP_BDEV_DISCARD)
		return;
	if (failure->result == -ENOSPC && bdev->caps.is_file) {
		atomic_fetch_add(&bdev->no_space_cnt, 1);
		atomic_store(&bdev->is_host_full, true);
	}
	(void)pthread_mutex_lock(&bdev->failure_lock);
	bdev->failure = *failure;
	(void)pthread_mutex_unlock(&bdev->failure_lock);
}

bool lp_bdev_last_failure(struct lp_bdev *bdev, struct lp_bdev_failure *ret_failure)
{
	(void)pthread_mutex_lock(&bdev->failure_lock);
	*ret_failure = bdev->failure;
	(void)pthread_mutex_unlock(&bdev->failure_lock);
	return ret_failure->result < 0;
}

void lp_bdev_trust(struct lp_bdev *bdev)
{
	atomic_store(bdev->doubt, false);
}

void lp_bdev_tie(struct lp_bdev *bdev, struct lp_bdev *to)
{
	bool is_doubted = atomic_load(bdev->doubt);
	bdev->doubt = to == NULL ? &bdev->is_doubted : to->doubt;
	if (is_doubted)
		atomic_store(bdev->doubt, true);
}

/* What the operation's owner is told, of what the device says (rule L7). */
static int believed(struct lp_bdev *bdev, enum lp_bdev_opcode opcode, int result)
{
	bool is_vain = result == 0 && is_flush(bdev, opcode) && atomic_load(bdev->doubt);
	return LP_UNLIKELY(is_vain) ? -EIO : result;
}

/* --- The contract ----------------------------------------------------------------------------- */

static void assert_range(const struct lp_bdev *bdev, uint64_t length_bytes, uint64_t offset_bytes)
{
	LP_ASSERT(lp_is_aligned(offset_bytes | length_bytes, bdev->caps.block_bytes));
	LP_ASSERT(length_bytes > 0 && length_bytes <= LP_BDEV_IO_MAX);
	LP_ASSERT(!lp_range_outside(offset_bytes, length_bytes, bdev->caps.size_bytes));
}

static bool has_data(enum lp_bdev_opcode opcode)
{
	return opcode <= LP_BDEV_WRITE_THROUGH;
}

static void assert_op(const struct lp_bdev_chan *chan, const struct lp_bdev_op *op)
{
	LP_ASSERT(op->opcode < LP_BDEV_OPCODE_CNT);
	LP_ASSERT(op->complete != NULL);
	if (op->opcode == LP_BDEV_FLUSH)
		return;
	assert_range(chan->bdev, op->length_bytes, op->offset_bytes);
	if (!has_data(op->opcode))
		return;
	LP_ASSERT(op->iov_cnt >= 1 && op->iov_cnt <= LP_BDEV_IOV_MAX);
	uint64_t sum = 0;
	uint64_t bits = 0;
	for (uint32_t i = 0; i < op->iov_cnt; i++) {
		sum += op->iov[i].iov_len;
		bits |= op->iov[i].iov_len | (uintptr_t)op->iov[i].iov_base;
	}
	LP_ASSERT(sum == op->length_bytes);
	LP_ASSERT(lp_is_aligned(bits, chan->bdev->caps.block_bytes));
}

int lp_bdev_attach(struct lp_bdev *bdev, struct lp_reactor *reactor, struct lp_bdev_chan **ret_chan)
{
	struct lp_bdev_chan *chan = NULL;
	int err = bdev->kind->attach(bdev, reactor, &chan);
	if (err < 0)
		return err;
	chan->bdev = bdev;
	chan->reactor = reactor;
	atomic_fetch_add(&bdev->chan_cnt, 1);
	*ret_chan = chan;
	return 0;
}

void lp_bdev_detach(struct lp_bdev_chan *chan)
{
	if (chan == NULL)
		return;
	LP_ASSERT(chan->inflight == 0);
	struct lp_bdev *bdev = chan->bdev;
	for (int i = 0; i < LP_BDEV_OPCODE_CNT; i++) {
		atomic_fetch_add(&bdev->past_ops[i], chan->stats.ops[i]);
		atomic_fetch_add(&bdev->past_bytes[i], chan->stats.bytes[i]);
	}
	atomic_fetch_add(&bdev->past_errors, chan->stats.errors);
	atomic_fetch_add(&bdev->past_shorts, chan->stats.shorts);
	atomic_fetch_add(&bdev->past_late, chan->stats.late);
	bdev->kind->detach(chan);
	uint32_t before = atomic_fetch_sub(&bdev->chan_cnt, 1);
	LP_ASSERT(before > 0);
}

void lp_bdev_submit(struct lp_bdev_chan *chan, struct lp_bdev_op *op)
{
	assert_op(chan, op);
	LP_ASSERT(lp_reactor_is_mine(chan->reactor));
	op->chan = chan;
	op->done_bytes = 0;
	op->retry_cnt = 0;
	op->submitted_ns = lp_reactor_now_ns(chan->reactor);
	op->submitted_waited_ns = lp_reactor_waited_ns(chan->reactor);
	chan->inflight++;
	op->depth = (uint32_t)LP_MIN(chan->inflight, (uint64_t)UINT32_MAX);
	chan->stats.ops[op->opcode]++;
	if (op->opcode != LP_BDEV_FLUSH)
		chan->stats.bytes[op->opcode] += op->length_bytes;
	chan->bdev->kind->submit(chan, op);
}

/* A quota of the host's file system is the end of its space as well (rule S7), and is said as early
 * as that. Not of a flush: after that nobody knows what is there. */
static int known_as(enum lp_bdev_opcode opcode, int result)
{
	return result == -EDQUOT && has_data(opcode) ? -ENOSPC : result;
}

void lpi_bdev_complete(struct lp_bdev_op *op, int result)
{
	struct lp_bdev_chan *chan = op->chan;
	LP_ASSERT(result <= 0);
	LP_ASSERT(chan->inflight > 0);
	chan->inflight--;
	result = known_as(op->opcode, result);
	if (LP_UNLIKELY(result < 0)) {
		const struct lp_bdev_failure failure = {.opcode = op->opcode,
							.result = result,
							.offset_bytes = op->offset_bytes,
							.length_bytes = op->length_bytes};
		chan->stats.errors++;
		lpi_bdev_note_failure(chan->bdev, &failure);
	}
	op->chan = NULL;
	op->result = believed(chan->bdev, op->opcode, result);
	op->complete(op);
}

uint64_t lp_bdev_inflight(const struct lp_bdev_chan *chan)
{
	return chan->inflight;
}

const struct lp_bdev_stats *lp_bdev_stats(const struct lp_bdev_chan *chan)
{
	return &chan->stats;
}

struct lp_bdev *lp_bdev_of(const struct lp_bdev_chan *chan)
{
	return chan->bdev;
}

/* --- The host of an image file
 * ---------------------------------------------------------------------------------- */

int lp_bdev_read_size(struct lp_bdev *bdev, uint64_t *ret_bytes)
{
	return bdev->kind->read_size == NULL ? -ENOTTY : bdev->kind->read_size(bdev, ret_bytes);
}

int lp_bdev_read_host(struct lp_bdev *bdev, struct lp_bdev_host *ret_host)
{
	struct lp_bdev_host host = {.free_bytes = 0};
	if (!bdev->caps.is_file || bdev->kind->read_host == NULL)
		return -ENOTTY;
	int err = bdev->kind->read_host(bdev, &host);
	if (err < 0)
		return err;
	atomic_store(&bdev->host_lack_bytes,
		     host.absent_bytes - LP_MIN(host.absent_bytes, host.free_bytes));
	*ret_host = host;
	return 0;
}

int lp_bdev_secure(struct lp_bdev *bdev, uint64_t length_bytes, uint64_t offset_bytes)
{
	assert_range(bdev, length_bytes, offset_bytes);
	if (!bdev->caps.is_file || bdev->kind->secure == NULL)
		return 0;
	int err = bdev->kind->secure(bdev, length_bytes, offset_bytes);
	/* A file system that cannot do this has no such promise. */
	if (err == -EOPNOTSUPP || err == -ENOSYS)
		return 0;
	return err == -EDQUOT ? -ENOSPC : err;
}

uint64_t lp_bdev_no_space_cnt(const struct lp_bdev *bdev)
{
	return atomic_load(&bdev->no_space_cnt);
}

bool lp_bdev_is_host_full(const struct lp_bdev *bdev)
{
	return atomic_load_explicit(&bdev->is_host_full, memory_order_relaxed);
}

void lp_bdev_host_has_space(struct lp_bdev *bdev)
{
	atomic_store(&bdev->is_host_full, false);
}

uint64_t lp_bdev_host_lack_bytes(const struct lp_bdev *bdev)
{
	return atomic_load_explicit(&bdev->host_lack_bytes, memory_order_relaxed);
}

/* Behind a blocking write-through to a block device the kernel flushes in any case, and does not
 * say which of the two has failed (generic_write_sync() in block/fops.c). An asynchronous one it
 * leaves before that. */
static bool may_be_a_failed_flush(const struct lp_bdev *bdev, enum lp_bdev_opcode opcode, int err)
{
	return opcode == LP_BDEV_WRITE_THROUGH && err != -ENOSPC && bdev->caps.volatile_cache;
}

static int sync_call(struct lp_bdev *bdev, enum lp_bdev_opcode opcode, void *buf,
		     uint64_t length_bytes, uint64_t offset_bytes)
{
	if (opcode != LP_BDEV_FLUSH)
		assert_range(bdev, length_bytes, offset_bytes);
	LP_ASSERT(lp_is_aligned((uintptr_t)buf, bdev->caps.block_bytes));
	atomic_fetch_add_explicit(&bdev->sync_ops[opcode], 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&bdev->sync_bytes[opcode], length_bytes, memory_order_relaxed);
	int err = known_as(opcode, bdev->kind->sync(bdev, opcode, buf, length_bytes, offset_bytes));
	LP_ASSERT(err <= 0);
	if (LP_UNLIKELY(err < 0)) {
		const struct lp_bdev_failure failure = {.opcode = opcode,
							.result = err,
							.offset_bytes = offset_bytes,
							.length_bytes = length_bytes};
		atomic_fetch_add_explicit(&bdev->sync_errors, 1, memory_order_relaxed);
		lpi_bdev_note_failure(bdev, &failure);
		if (may_be_a_failed_flush(bdev, opcode, err))
			atomic_store(bdev->doubt, true);
	}
	return believed(bdev, opcode, err);
}

int lp_bdev_read_sync(struct lp_bdev *bdev, void *buf, uint64_t length_bytes, uint64_t offset_bytes)
{
	return sync_call(bdev, LP_BDEV_READ, buf, length_bytes, offset_bytes);
}

int lp_bdev_write_sync(struct lp_bdev *bdev, const void *buf, uint64_t length_bytes,
		       uint64_t offset_bytes, bool through)
{
	/* The kind's sync() takes one pointer type for both directions and only reads this one. */
	void *from = (void *)(uintptr_t)buf;
	return sync_call(bdev, through ? LP_BDEV_WRITE_THROUGH : LP_BDEV_WRITE, from, length_bytes,
			 offset_bytes);
}

int lp_bdev_flush_sync(struct lp_bdev *bdev)
{
	return sync_call(bdev, LP_BDEV_FLUSH, NULL, 0, 0);
}

int lp_bdev_discard_sync(struct lp_bdev *bdev, uint64_t length_bytes, uint64_t offset_bytes)
{
	return sync_call(bdev, LP_BDEV_DISCARD, NULL, length_bytes, offset_bytes);
}

void lp_bdev_sync_stats(const struct lp_bdev *bdev, struct lp_bdev_stats *ret_stats)
{
	*ret_stats = (struct lp_bdev_stats){0};
	for (int i = 0; i < LP_BDEV_OPCODE_CNT; i++) {
		ret_stats->ops[i] = atomic_load_explicit(&bdev->sync_ops[i], memory_order_relaxed);
		ret_stats->bytes[i] =
			atomic_load_explicit(&bdev->sync_bytes[i], memory_order_relaxed);
	}
	ret_stats->errors = atomic_load_explicit(&bdev->sync_errors, memory_order_relaxed);
}

void lp_bdev_past_stats(const struct lp_bdev *bdev, struct lp_bdev_stats *ret_stats)
{
	*ret_stats = (struct lp_bdev_stats){
		.errors = atomic_load(&bdev->past_errors),
		.shorts = atomic_load(&bdev->past_shorts),
		.late = atomic_load(&bdev->past_late),
	};
	for (int i = 0; i < LP_BDEV_OPCODE_CNT; i++) {
		ret_stats->ops[i] = atomic_load(&bdev->past_ops[i]);
		ret_stats->bytes[i] = atomic_load(&bdev->past_bytes[i]);
	}
}
