/* SPDX-License-Identifier: Apache-2.0 */
/* Reads of data.
 *
 *   CLAIM     until the inode's claim is held: all earlier submissions have been applied
 *   RESOLVE   inode and leaves are looked at, each block's source is chosen, and from here on
 *             pinned or referenced; the claim is released
 *   INDEX     a helper fetches the inode or a leaf; then CLAIM again
 *   MEMORY    until there may be buffers or ios; then CLAIM again
 *   AHEAD     until wanted blocks that are being read ahead have come, or will not; then CLAIM
 *             again
 *   DEVICE    until the device has read; every block is verified against its crc
 *   DURABLE   until the state that was seen is durable (store I6); the wait begins with the
 * device's DONE      segments and slot are the caller's until lp_store_end() FAILED    nothing is
 * held
 *
 * A block's crc is that of the map as of RESOLVE, and so is its content. A pending payload is
 * referenced, and a block on the device is pinned, so that neither write-back nor a new owner
 * overwrites it. This ends with the pin. So when a block is bad, or the device fails, the whole
 * read begins once more, from the claim and without the cache. A block that is bad then is really
 * bad.
 */
#include "store/block/read/read.h"

#include "store/block/core/data_cache.h"

#define ENDS (LP_SM_TO(LPI_READ_DONE) | LP_SM_TO(LPI_READ_FAILED))

static const struct lp_sm_state read_states[LPI_READ_STATES] = {
	[LPI_READ_CLAIM] = {"CLAIM", LP_SM_INITIAL, LP_SM_TO(LPI_READ_RESOLVE)},
	[LPI_READ_RESOLVE] = {"RESOLVE", 0,
			      LP_SM_TO(LPI_READ_INDEX) | LP_SM_TO(LPI_READ_MEMORY) |
				      LP_SM_TO(LPI_READ_AHEAD) | LP_SM_TO(LPI_READ_DEVICE) |
				      LP_SM_TO(LPI_READ_DURABLE) | LP_SM_TO(LPI_READ_CLAIM) | ENDS},
	[LPI_READ_INDEX] = {"INDEX", 0, LP_SM_TO(LPI_READ_CLAIM) | LP_SM_TO(LPI_READ_RESOLVE)},
	[LPI_READ_MEMORY] = {"MEMORY", 0, LP_SM_TO(LPI_READ_CLAIM)},
	[LPI_READ_AHEAD] = {"AHEAD", 0, LP_SM_TO(LPI_READ_CLAIM)},
	[LPI_READ_DEVICE] = {"DEVICE", 0,
			     LP_SM_TO(LPI_READ_DURABLE) | LP_SM_TO(LPI_READ_CLAIM) | ENDS},
	[LPI_READ_DURABLE] = {"DURABLE", 0, LP_SM_TO(LPI_READ_CLAIM) | ENDS},
	[LPI_READ_DONE] = {"DONE", LP_SM_FINAL, 0},
	[LPI_READ_FAILED] = {"FAILED", LP_SM_FINAL | LP_SM_FAILURE, 0},
};

static bool is_sound(const struct lp_sm *sm, unsigned prev)
{
	const struct lpi_read *read = LP_SM_OWNER(sm, struct lpi_read, sm);
	(void)prev;
	switch ((enum lpi_read_state)sm->state) {
	case LPI_READ_CLAIM:
	case LPI_READ_MEMORY:
	case LPI_READ_AHEAD:
		return read->seg_cnt == 0 && !read->waits_durable;
	case LPI_READ_DURABLE:
		return read->waits_durable && read->job.running == 0;
	case LPI_READ_DONE:
		return read->result == 0 && !read->waits_durable && !read->is_again;
	case LPI_READ_FAILED:
		return read->result < 0 && !read->waits_durable && read->job.running == 0;
	case LPI_READ_RESOLVE:
	case LPI_READ_INDEX:
	case LPI_READ_DEVICE:
	case LPI_READ_STATES:
		break;
	}
	return true;
}

const struct lp_sm_table lpi_read_table = {
	.name = "read",
	.states = read_states,
	.state_cnt = LPI_READ_STATES,
	.invariant = is_sound,
};

size_t lpi_read_bytes(void)
{
	return sizeof(struct lpi_read);
}

static void move(struct lpi_read *read, enum lpi_read_state state)
{
	lp_sm_move(&read->sm, state, lp_reactor_now_ns(lpi_read_block(read)->options.reactor));
}

/* --- The end ---------------------------------------------------------------------------------- */

static void begin(struct lpi_read *read, struct lpi_block *block, struct lp_store_op *op);

/* The slot comes back. A waiting read begins in a later task, not here, because a read that fails
 * at once would begin the next one. */
static void put_slot(struct lpi_read *read)
{
	struct lpi_block *block = lpi_read_block(read);
	lpi_begun_end(&read->begun);
	lp_pool_put(block->reads, read);
	block->running--;
	if (lpi_op_list_is_empty(&block->slots.waiting_reads))
		return;
	struct lpi_read *next = lp_pool_get(block->reads);
	if (next == NULL)
		return; /* the pool was made smaller */
	begin(next, block, lpi_op_list_pop_front(&block->slots.waiting_reads));
	lpi_hold_soon(&next->hold);
}

static void publish(struct lpi_read *read)
{
	struct lp_store_op *op = read->op;
	uint32_t head = (uint32_t)(op->read.offset & (LP_BLOCK_BYTES - 1));
	if (read->seg_cnt > 0) {
		uint64_t planned_bytes = (uint64_t)read->block_cnt << LP_BLOCK_SHIFT;
		read->segs[0].offset += head;
		read->segs[0].len -= head;
		read->segs[read->seg_cnt - 1].len -= (uint32_t)(planned_bytes - head - read->bytes);
	}
	op->read.segs = read->segs;
	op->read.seg_cnt = read->seg_cnt;
	op->read.crcs = read->crcs;
	op->read.crc_cnt = read->block_cnt;
	op->read.bytes = read->bytes;
	op->work = read;
	lpi_read_block(read)->given_reads++;
	lpi_read_block(read)->stats.read_bytes += read->bytes;
}

static void finish(struct lpi_read *read)
{
	struct lpi_block *block = lpi_read_block(read);
	struct lp_store_op *op = read->op;
	int result = read->result;
	if (result < 0) {
		lpi_read_give_back(read);
		put_slot(read);
		lpi_block_memory_freed(block);
	} else {
		publish(read);
	}
	lpi_block_complete(block, op, result);
}

void lpi_read_end(struct lpi_block *block, struct lp_store_op *op)
{
	struct lpi_read *read = op->work;
	LP_ASSERT(read->op == op && lp_sm_state(&read->sm) == LPI_READ_DONE);
	op->work = NULL;
	block->given_reads--;
	lpi_read_give_back(read);
	put_slot(read);
	lpi_block_memory_freed(block);
}

/* --- States ----------------------------------------------------------------------------------- */

/* Each step returns whether it goes on at once, with the next state. */

static bool on_claim(struct lpi_read *read)
{
	if (!lpi_hold_claim(&read->hold, read->op->read.ino))
		return false;
	move(read, LPI_READ_RESOLVE);
	return true;
}

/* Store I6, for the state that was seen. */
static void wait_until_durable(struct lpi_read *read, const struct lpi_node *node)
{
	if (lpi_node_is_durable(node))
		return;
	if (read->op->sees_ordered) {
		read->op->saw_ordered = true;
		return;
	}
	read->waits_durable = true;
	lp_commit_wait_group(lpi_read_block(read)->commit, node->group, &read->durable_waiter);
}

static bool conclude(struct lpi_read *read)
{
	if (read->waits_durable) {
		move(read, LPI_READ_DURABLE);
		return false;
	}
	if (read->result == 0 && read->is_again) {
		read->is_again = false;
		read->is_second = true;
		lpi_read_block(read)->rereads++;
		lpi_read_give_back(read);
		move(read, LPI_READ_CLAIM);
		return true;
	}
	move(read, read->result < 0 ? LPI_READ_FAILED : LPI_READ_DONE);
	return false;
}

/* All bytes are there, or will never be. */
static bool settle(struct lpi_read *read)
{
	int err = read->result == 0 ? lpi_read_check(read) : 0;
	if (err < 0 && !read->is_second)
		read->is_again = true;
	else if (err < 0)
		read->result = err;
	if (!lpi_io_list_is_empty(&read->job.ios)) {
		lpi_block_job_fini(&read->job);
		lpi_block_memory_freed(lpi_read_block(read));
	}
	return conclude(read);
}

static bool wait_for_memory(struct lpi_read *read)
{
	/* Other waiters are not told of this memory: two reads would wake each other for ever. */
	lpi_read_give_back(read);
	lpi_hold_release(&read->hold);
	move(read, LPI_READ_MEMORY);
	lpi_block_wait_memory(lpi_read_block(read), &read->waiter);
	return false;
}

static bool wait_for_ahead(struct lpi_read *read)
{
	read->ahead_waits++;
	lpi_hold_release(&read->hold);
	move(read, LPI_READ_AHEAD);
	return false;
}

/* The stream that the read continues. */
static struct lp_stream *see(struct lpi_read *read)
{
	const struct lp_store_op *op = read->op;
	if (!read->is_cached || read->is_seen || read->bytes == 0)
		return NULL;
	struct lp_stream *stream = lpi_ahead_see(lpi_read_block(read)->cached, op->read.ino,
						 op->read.offset, read->bytes);
	read->is_seen = true;
	read->goes_on = stream != NULL && op->read.offset % LP_BLOCK_BYTES != 0;
	return stream;
}

static bool on_resolve(struct lpi_read *read)
{
	struct lpi_inode *inode = NULL;
	int err = lpi_read_look(read, &inode);
	if (err == -EAGAIN) {
		move(read, LPI_READ_INDEX);
		lpi_hold_fetch(&read->hold, false);
		return false;
	}
	struct lp_stream *stream = err == 0 ? see(read) : NULL;
	if (err == 0 && read->is_cached && lpi_read_awaits_ahead(read))
		return wait_for_ahead(read);
	if (err == 0)
		err = lpi_read_plan(read, inode);
	if (err == -ENOBUFS)
		return wait_for_memory(read);
	read->result = err;
	if (inode != NULL)
		wait_until_durable(read, &inode->node);
	bool is_planned = err == 0 && !lpi_io_list_is_empty(&read->job.ios);
	if (is_planned) {
		move(read, LPI_READ_DEVICE);
		lpi_block_job_run(&read->job);
	}
	if (err == 0 && stream != NULL)
		lpi_ahead_go_on(lpi_read_block(read)->cached, &read->hold, inode, stream);
	/* From here on the inode may change, or be removed. */
	lpi_hold_release(&read->hold);
	return is_planned ? false : settle(read);
}

static bool step(struct lpi_read *read)
{
	switch ((enum lpi_read_state)lp_sm_state(&read->sm)) {
	case LPI_READ_CLAIM:
		return on_claim(read);
	case LPI_READ_RESOLVE:
		return on_resolve(read);
	case LPI_READ_INDEX:
		move(read, lpi_hold_has_claim(&read->hold) ? LPI_READ_RESOLVE : LPI_READ_CLAIM);
		return true;
	case LPI_READ_MEMORY:
	case LPI_READ_AHEAD:
		move(read, LPI_READ_CLAIM);
		return true;
	case LPI_READ_DEVICE:
		return settle(read);
	case LPI_READ_DURABLE:
		return conclude(read);
	case LPI_READ_DONE:
	case LPI_READ_FAILED:
	case LPI_READ_STATES:
		break;
	}
	LP_UNREACHABLE();
}

static void run(struct lpi_read *read)
{
	while (step(read))
		continue;
	if (lp_sm_is_final(&read->sm))
		finish(read);
}

/* --- Callbacks -------------------------------------------------------------------------------- */

static void ready(struct lpi_hold *hold)
{
	run(LP_CONTAINER_OF(hold, struct lpi_read, hold));
}

static void device_ended(struct lpi_block_job *job)
{
	run(LP_CONTAINER_OF(job, struct lpi_read, job));
}

static void wait_told(struct lp_commit_waiter *waiter, int result)
{
	(void)result; /* RESOLVE finds an error of the shard again */
	run(LP_CONTAINER_OF(waiter, struct lpi_read, waiter));
}

static void durable_told(struct lp_commit_waiter *waiter, int result)
{
	struct lpi_read *read = LP_CONTAINER_OF(waiter, struct lpi_read, durable_waiter);
	read->waits_durable = false;
	if (result < 0 && read->result == 0)
		read->result = -EIO;
	if (lp_sm_state(&read->sm) == LPI_READ_DURABLE)
		run(read);
	else
		LP_ASSERT(lp_sm_state(&read->sm) == LPI_READ_DEVICE);
}

/* --- The beginning ---------------------------------------------------------------------------- */

static void begin(struct lpi_read *read, struct lpi_block *block, struct lp_store_op *op)
{
	block->running++;
	read->op = op;
	lpi_begun_add(block, &read->begun, &read->sm, op);
	read->result = 0;
	read->waits_durable = false;
	read->is_again = false;
	read->is_second = false;
	read->block_cnt = 0;
	read->planned = 0;
	read->seg_cnt = 0;
	read->segment_cnt = 0;
	read->bytes = 0;
	read->durable_waiter = (struct lp_commit_waiter){.told = durable_told};
	read->since = 0;
	read->is_cached = block->cached != NULL && !op->read.from_device &&
			  op->read.length <= LPI_CACHED_READ_MAX;
	read->is_seen = false;
	read->goes_on = false;
	read->ahead_waits = 0;
	read->waiter = (struct lp_commit_waiter){.told = wait_told};
	lpi_hold_init(&read->hold, block, ready);
	lpi_block_job_init(&read->job, block, device_ended);
	lp_sm_init(&read->sm, &lpi_read_table, &block->read_times.observer,
		   lp_reactor_now_ns(block->options.reactor));
}

void lpi_read_submit(struct lpi_block *block, struct lp_store_op *op)
{
	/* No read overtakes waiting ones. */
	struct lpi_read *read = lpi_op_list_is_empty(&block->slots.waiting_reads)
					? lp_pool_get(block->reads)
					: NULL;
	if (read == NULL) {
		lpi_op_list_push_back(&block->slots.waiting_reads, op);
		return;
	}
	begin(read, block, op);
	run(read);
}
