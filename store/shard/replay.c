/* SPDX-License-Identifier: Apache-2.0 */
/* Replay of the log when a shard is opened.
 *
 * Frames are delivered before it is known whether the log is sound (rule L1). Until then their
 * content stays in memory: batches go into the memtable, changes into the space, and of the
 * payloads only the blocks in the log and on the device. The replay looks through all frames before
 * it touches the first payload, because a later frame may have freed or replaced its block (rule
 * S3).
 *
 * When the log has been judged sound, the replay reads the remaining payloads back from it, checks
 * them again, writes them to their blocks, and flushes. So a shard that serves has nothing pending
 * from a former run except payloads that cannot be written. This goes in batches, which are pieces
 * of the log. The payloads that a frame has in one run are read in one read, with the headers
 * between them. In the order of their device blocks, each block would need a read of its own.
 * Within a batch the payloads are written in the order of their device blocks. So the number of
 * buffers does not depend on the size of the log. Read-only, the payloads go into pending instead,
 * in buffers made for them, because readers look there first.
 *
 * The payloads that the index keeps (store/commit/deferred_records.h), as they are after the
 * replay, are written too. A record whose block is free is only deleted, unless it stays. A record
 * wins over a payload in the frame that puts it, or in an earlier one. It wins even if it was
 * deleted since, because then its block has been written. Records are read from the index in the
 * order of their numbers, and written in batches by device block.
 *
 * A payload whose block cannot be written stays where it is (rule L6): in the log until the shard
 * runs and moves it (shard/bad_blocks.c), or in its record. The replay also tries to write records
 * that stay and whose blocks are free. If that succeeds the block is good again. A payload whose
 * block in an image file has no space in the host stays where it is as well (P6). It is pending as
 * if the shard had never stopped: the log keeps its frame, and write-back tries it again for ever.
 *
 * A crash during the replay is like a crash before it: the log still has all frames, and the index
 * its records, which are deleted when the shard runs. Damage to a record is as bad as damage to a
 * frame: the shard is refused. Read-only, a damaged record is left out, and the block's checksum
 * shows the damage.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/crc32c.h"
#include "base/error.h"
#include "format/space.h"
#include "store/commit/replay_payloads.h"
#include "store/record/keys.h"
#include "store/record/values.h"
#include "store/shard/shard_impl.h"

#define STALL_RETRY_NS    (10 * LP_NS_PER_MS)
#define STALL_RETRIES_MAX 6000u /* one minute */
#define IDLE_PAUSES_MAX   100u  /* one second in all */
#define RESUME_PAUSE_NS   (200 * LP_NS_PER_MS)
#define RESUMES_MAX       5u
#define LAND_BLOCKS       2048u /* of the log: one batch */
#define LAND_FLIGHT_MAX   128u
#define LAND_READ_BLOCKS  256u /* of one read */
#define LAND_GAP_BLOCKS   8u   /* read along with the wanted blocks on either side */
#define LAND_WRITES_MAX   5u   /* attempts to write a batch */
#define BUFS_SLAB_BYTES   (UINT64_C(1) << 20)
#define FRAME_RECORDS_MAX LP_LOG_FRAME_BLOCKS_MAX /* each record is longer than a block */

struct record_walk;

struct replay {
	struct lp_log_recovery recovery;
	struct lp_shard *shard;
	struct lp_kv_batch *batch;
	struct lp_replay_payloads *payloads;
	struct record_walk *walk;
	uint64_t record_cnt;  /* records of the index whose blocks are in use */
	uint32_t idle_pauses; /* during the whole replay */
	bool has_begun;
	bool done;
};

/* --- Frames ----------------------------------------------------------------------------------- */

static void pause_for(uint64_t pause_ns)
{
	const struct timespec pause = {.tv_nsec = (long)pause_ns};
	(void)nanosleep(&pause, NULL);
}

/* A full memtable waits for its flush, and the flush may wait for a compaction. The replay waits
 * for a slow one, because giving up would begin it anew at the next start, and get no further. */
static int bear_stall(struct lp_shard *shard, uint32_t *stalls)
{
	uint32_t max = shard->options.replay_stalls_max;
	int why = lp_kv_compact_error(shard->kv);
	*stalls = why < 0 ? *stalls + 1 : 0;
	if (*stalls > (max != 0 ? max : STALL_RETRIES_MAX))
		return why;
	if (shard->options.sim_clock == NULL)
		pause_for(STALL_RETRY_NS);
	else if (!lp_kv_sim_run_one(shard->kv))
		return -EIO;
	return 0;
}

/* A flush has failed, possibly for lack of space. Space that can be regained has been freed by the
 * index itself, or by another shard. */
static int bear_failure(struct lp_shard *shard, uint32_t *failures, int err)
{
	if (++*failures > RESUMES_MAX)
		return err;
	if (shard->options.sim_clock == NULL)
		pause_for(RESUME_PAUSE_NS);
	int ignored = lp_kv_resume(shard->kv); /* if it fails, the next write fails too */
	(void)ignored;
	return 0;
}

/* The content of a log fills many memtables, and faster than tables are merged. On a device that is
 * nearly full a compaction of all of them would not find its room, and no later one would either.
 */
static bool should_compact_first(const struct lp_shard *shard)
{
	uint64_t debt = lp_kv_debt_bytes(shard->kv);
	return !shard->options.read_only && (debt > 0 || lp_kv_is_flushing(shard->kv)) &&
	       lp_kv_error(shard->kv) == 0 && lp_kv_compact_error(shard->kv) == 0 &&
	       lp_blockfs_room_bytes(shard->files) < shard->plan.grow_bytes + debt;
}

/* False: the index does nothing in the background. */
static bool wait_for_index(struct replay *replay)
{
	struct lp_shard *shard = replay->shard;
	if (shard->options.sim_clock != NULL)
		return lp_kv_sim_run_one(shard->kv);
	struct lp_kv_stats stats;
	lp_kv_read_stats(shard->kv, &stats);
	if (stats.flushing + stats.compacting == 0 && ++replay->idle_pauses > IDLE_PAUSES_MAX)
		return false;
	pause_for(STALL_RETRY_NS);
	return true;
}

/* Rule L8: one memtable at a time, and no compaction larger than it must be. */
static void keep_room(struct replay *replay)
{
	while (should_compact_first(replay->shard) && wait_for_index(replay))
		;
}

/* A stalled write is waited for. After a failure the wait is bounded. */
static int write_batch(struct lp_shard *shard, struct lp_kv_batch *batch)
{
	uint32_t stalls = 0;
	uint32_t failures = 0;
	int err = 0;
	while (err == 0) {
		err = lp_kv_write(shard->kv, batch);
		if (err == 0)
			break;
		int why = lp_kv_error(shard->kv);
		if (err == -EAGAIN && why == 0)
			err = bear_stall(shard, &stalls);
		else if (err == -EAGAIN || err == -ENOSPC || err == -EIO)
			err = bear_failure(shard, &failures, why < 0 ? why : err);
	}
	return err;
}

/* The records of a frame whose group is in the index, but whose own index write may still be
 * deferred (rule L9). Nothing else of such a frame is written again. Until the replay reaches the
 * end, the index has older records than it had before. If that state became durable and nothing
 * more, the next start must still find the index's position and the blocks in use as they were. */
struct owed_walk {
	struct lp_kv_batch_visitor visitor;
	struct lp_kv_batch *batch;
};

static int owed_put(struct lp_kv_batch_visitor *visitor, struct lp_kv_bytes key,
		    struct lp_kv_bytes value)
{
	struct owed_walk *walk = LP_CONTAINER_OF(visitor, struct owed_walk, visitor);
	return lp_key_may_be_owed(key) ? lp_kv_batch_put(walk->batch, key, value) : 0;
}

static int owed_del(struct lp_kv_batch_visitor *visitor, struct lp_kv_bytes key)
{
	struct owed_walk *walk = LP_CONTAINER_OF(visitor, struct owed_walk, visitor);
	return lp_key_may_be_owed(key) ? lp_kv_batch_delete(walk->batch, key) : 0;
}

static int load_owed(struct lp_kv_batch *batch, struct lp_kv_bytes data)
{
	struct owed_walk walk = {.visitor = {.put = owed_put, .del = owed_del}, .batch = batch};
	lp_kv_batch_clear(batch);
	return lp_kv_walk(data, &walk.visitor);
}

static int replay_batch(struct replay *replay, const struct lp_log_view *view)
{
	struct lp_kv_bytes data = {view->batch, view->head.batch_bytes};
	if (view->head.seq <= replay->shard->whole_seq || data.len == 0)
		return 0;
	int err = view->head.seq <= replay->recovery.applied
			  ? load_owed(replay->batch, data)
			  : lp_kv_batch_load(replay->batch, data);
	if (err < 0)
		return err;
	replay->recovery.record_cnt = lp_kv_batch_cnt(replay->batch);
	keep_room(replay);
	return write_batch(replay->shard, replay->batch);
}

static int read_applied(struct lp_shard *shard, const struct lp_key *key, uint64_t *ret_seq,
			uint64_t *ret_whole_seq)
{
	struct lp_kv_value value;
	int err = lp_kv_get(shard->kv, (struct lp_kv_bytes){key->bytes, key->len}, &value);
	if (err < 0)
		return err == -ENOENT ? 0 : err;
	err = lp_applied_decode(value.bytes, ret_seq, ret_whole_seq);
	lp_kv_value_release(&value);
	return err;
}

/* The index now has all of the frames, and its record says so. Otherwise the log would be kept, as
 * if some index writes were still deferred. */
static int declare_whole(struct replay *replay)
{
	struct lp_key key;
	uint8_t value[LP_APPLIED_BYTES_MAX];
	uint64_t seq = 0;
	uint64_t whole_seq = 0;
	lp_key_of_store(&key, "applied");
	int err = read_applied(replay->shard, &key, &seq, &whole_seq);
	if (err < 0 || whole_seq == seq)
		return err;
	lp_kv_batch_clear(replay->batch);
	size_t len = lp_applied_encode(seq, seq, value);
	err = lp_kv_batch_put(replay->batch, (struct lp_kv_bytes){key.bytes, key.len},
			      (struct lp_kv_bytes){value, len});
	return err < 0 ? err : write_batch(replay->shard, replay->batch);
}

/* The first frame of the log is the first frame with a change that the index lacks, or an older
 * one. */
static int check_begin(struct replay *replay, uint64_t seq)
{
	uint64_t whole_seq = replay->shard->whole_seq;
	if (replay->has_begun || seq <= whole_seq + 1) {
		replay->has_begun = true;
		return 0;
	}
	return LP_CORRUPT(
		LP_OFFSET_NONE,
		"log: starts at frame %llu, but the index has all of them only up to %llu",
		(unsigned long long)seq, (unsigned long long)whole_seq);
}

/* Whether the block belongs to the shard is checked later, and only for payloads that are still
 * wanted, because the chunk of an obsolete frame may have been returned since. But no device has
 * such a block, and a block behind the last possible one would wrap to block 0. */
static int check_device_block(const struct lp_log_view *view, uint64_t block, uint64_t log_block)
{
	if (block < LP_DEVICE_BLOCKS_MAX)
		return 0;
	return LP_CORRUPT(log_block * LP_BLOCK_BYTES,
			  "log: frame %llu has a payload for block %llu, which no device has",
			  (unsigned long long)view->head.seq, (unsigned long long)block);
}

static int replay_payloads(struct replay *replay, const struct lp_log_view *view)
{
	int err = 0;
	for (uint32_t i = 0; i < view->head.payload_cnt && err == 0; i++) {
		struct lp_log_payload about;
		(void)lp_log_view_payload(view, i, &about);
		const struct lp_replay_payload payload = {
			.extent = {about.device_block, 1},
			.log_block = lp_log_payload_block(replay->shard->log, view, i),
			.seq = view->head.seq,
			.crc = about.crc,
		};
		err = check_device_block(view, about.device_block, payload.log_block);
		if (err == 0)
			err = lp_replay_payloads_add(replay->payloads, &payload);
	}
	return err;
}

/* Records that a frame puts and does not delete again. Each has newer content for its block than
 * the payloads of this frame and of those before it, even if the record itself is deleted by now.
 */
struct record_walk {
	struct lp_kv_batch_visitor visitor;
	uint32_t cnt;
	struct {
		uint64_t number;
		uint64_t block;
	} puts[FRAME_RECORDS_MAX];
};

static struct record_walk *of_visitor(struct lp_kv_batch_visitor *visitor)
{
	return LP_CONTAINER_OF(visitor, struct record_walk, visitor);
}

static bool is_record(struct lp_kv_bytes key)
{
	return key.len > 0 && *(const uint8_t *)key.data == LP_KEY_SPACE_DEFERRED;
}

static int visit_put(struct lp_kv_batch_visitor *visitor, struct lp_kv_bytes bytes,
		     struct lp_kv_bytes value)
{
	struct record_walk *walk = of_visitor(visitor);
	struct lp_deferred_value about;
	struct lp_key_view view;
	struct lp_key key;
	if (!is_record(bytes))
		return 0;
	int err = lp_key_parse(bytes.data, bytes.len, &view);
	if (err < 0)
		return err;
	lp_key_of_number(&key, LP_KEY_SPACE_DEFERRED, view.number);
	err = lp_deferred_read(value.data, value.len, &key, &about);
	if (err < 0)
		return err;
	LP_ASSERT(walk->cnt < FRAME_RECORDS_MAX); /* no frame is longer */
	walk->puts[walk->cnt].number = view.number;
	walk->puts[walk->cnt++].block = about.device_block;
	return 0;
}

static int visit_del(struct lp_kv_batch_visitor *visitor, struct lp_kv_bytes bytes)
{
	struct record_walk *walk = of_visitor(visitor);
	struct lp_key_view view;
	if (!is_record(bytes))
		return 0;
	int err = lp_key_parse(bytes.data, bytes.len, &view);
	for (uint32_t i = 0; err == 0 && i < walk->cnt; i++) {
		if (walk->puts[i].number == view.number)
			walk->puts[i] = walk->puts[--walk->cnt];
	}
	return err;
}

static int replay_records(struct replay *replay, const struct lp_log_view *view)
{
	struct lp_kv_bytes data = {view->batch, view->head.batch_bytes};
	struct record_walk *walk = replay->walk;
	walk->cnt = 0;
	int err = data.len > 0 ? lp_kv_walk(data, &walk->visitor) : 0;
	for (uint32_t i = 0; i < walk->cnt && err == 0; i++)
		err = lp_replay_payloads_drop(replay->payloads,
					      (struct lp_extent){walk->puts[i].block, 1});
	return err;
}

static int replay_frees(struct replay *replay, const struct lp_log_view *view)
{
	int err = 0;
	for (uint32_t i = 0; i < view->head.change_cnt && err == 0; i++) {
		struct lp_log_change change;
		lp_log_view_change(view, i, &change);
		if (change.op == LP_SPACE_CHANGE_KIND_FREE && change.cnt > 0)
			err = lp_replay_payloads_drop(replay->payloads,
						      (struct lp_extent){change.block, change.cnt});
	}
	return err;
}

static int replay_frame(struct lp_log_recovery *recovery, const struct lp_log_view *view)
{
	struct replay *replay = LP_CONTAINER_OF(recovery, struct replay, recovery);
	uint64_t seq_end = replay->shard->options.seq_end;
	if (seq_end != 0 && view->head.seq >= seq_end)
		return 0;
	int err = check_begin(replay, view->head.seq);
	if (err == 0)
		err = replay_batch(replay, view);
	if (err == 0)
		err = replay_payloads(replay, view);
	if (err == 0)
		err = replay_records(replay, view);
	if (err == 0)
		err = replay_frees(replay, view);
	if (err == 0)
		err = lp_space_replay_frame(replay->shard->space, view->head.seq, view->changes,
					    (size_t)view->head.change_cnt * LP_LOG_CHANGE_SIZE);
	return err;
}

static void replay_complete(struct lp_log_recovery *recovery)
{
	LP_CONTAINER_OF(recovery, struct replay, recovery)->done = true;
}

/* --- Payloads --------------------------------------------------------------------------------- */

struct landing;

struct land_op {
	struct lp_bdev_op op;
	struct landing *landing;
};

struct land_item {
	struct lp_replay_payload payload;
	uint64_t record; /* number of its record; 0: from the log */
	uint32_t at;     /* this block of `bytes` */
	bool stays;      /* the record does */
};

/* A payload whose block cannot be written. */
struct land_stuck {
	struct land_item item;
	struct lp_seg seg;
	bool is_bad; /* else it only lacks space in the host */
};

/* One batch. */
struct landing {
	struct replay *replay;
	struct lp_bufs *bufs; /* read-only: for the buffers that pending holds */
	uint32_t cnt;
	uint32_t op_cnt;
	uint32_t flight;
	int result; /* the first error */
	struct land_item items[LAND_BLOCKS];
	struct land_op ops[LAND_BLOCKS];
	uint8_t *bytes; /* LAND_BLOCKS blocks */
	struct land_stuck *stuck;
	uint32_t stuck_cnt;
	uint32_t stuck_max;
};

static void land_complete(struct lp_bdev_op *op)
{
	struct landing *landing = LP_CONTAINER_OF(op, struct land_op, op)->landing;
	landing->flight--;
	if (op->result < 0 && landing->result == 0)
		landing->result = op->result;
}

/* Between an extent of the device and the blocks of `bytes` from `at` on. */
static void land_submit(struct landing *landing, struct lp_bdev_chan *chan,
			enum lp_bdev_opcode opcode, struct lp_extent extent, uint32_t at)
{
	LP_ASSERT(at + extent.cnt <= LAND_BLOCKS && landing->op_cnt < LAND_BLOCKS);
	struct land_op *op = &landing->ops[landing->op_cnt++];
	while (landing->flight == LAND_FLIGHT_MAX)
		lpi_shard_turn(landing->replay->shard);
	*op = (struct land_op){.landing = landing, .op.complete = land_complete};
	lp_bdev_op_prep(&op->op, opcode, landing->bytes + at * LP_BLOCK_BYTES,
			extent.cnt * LP_BLOCK_BYTES, extent.block * LP_BLOCK_BYTES);
	landing->flight++;
	lp_bdev_submit(chan, &op->op);
}

static int land_wait(struct landing *landing)
{
	while (landing->flight > 0)
		lpi_shard_turn(landing->replay->shard);
	landing->op_cnt = 0;
	int result = landing->result;
	landing->result = 0;
	return result;
}

/* A frame is our own and its crc was right. Still the replay writes only into blocks of this shard.
 * A block that the shard gave away has no payload left here: it was free before, and replay_frees()
 * has dropped its payloads. */
static int check_place(const struct lp_shard *shard, const struct lp_replay_payload *payload)
{
	if (lp_space_has(shard->space, payload->extent))
		return 0;
	return LP_CORRUPT(payload->log_block * LP_BLOCK_BYTES,
			  "log: frame %llu has a payload for block %llu, which is not the shard's",
			  (unsigned long long)payload->seq,
			  (unsigned long long)payload->extent.block);
}

/* Whether a record is written: its block is in use. The block cannot have another owner. */
static bool is_wanted(const struct lp_shard *shard, uint64_t block)
{
	return lp_space_is_used(shard->space, (struct lp_extent){block, 1});
}

static int by_log(const void *a, const void *b)
{
	uint64_t x = ((const struct lp_replay_payload *)a)->log_block;
	uint64_t y = ((const struct lp_replay_payload *)b)->log_block;
	return (x > y) - (x < y);
}

static int by_place(const void *a, const void *b)
{
	uint64_t x = ((const struct land_item *)a)->payload.extent.block;
	uint64_t y = ((const struct land_item *)b)->payload.extent.block;
	return (x > y) - (x < y);
}

/* All payloads that the log still has to deliver, in log order. *ret_cnt: on entry the room in
 * `all`. */
static int land_collect(const struct replay *replay, struct lp_replay_payload *all,
			uint64_t *ret_cnt)
{
	struct lp_replay_payload payload;
	uint64_t at = 0;
	uint64_t cnt = 0;
	int err = 0;
	while (err == 0 && lp_replay_payloads_next(replay->payloads, at, &payload)) {
		LP_ASSERT(payload.extent.cnt == 1 && cnt < *ret_cnt);
		at = payload.extent.block + 1;
		/* Earlier frames were still in the log, but are not needed any more. */
		if (payload.seq < replay->recovery.oldest_needed)
			continue;
		all[cnt++] = payload;
		err = check_place(replay->shard, &payload);
	}
	qsort(all, cnt, sizeof(*all), by_log);
	*ret_cnt = cnt;
	return err;
}

/* The next batch; returns how many of `all` are in it. */
static uint32_t land_choose(struct landing *landing, const struct lp_replay_payload *all,
			    uint64_t cnt)
{
	landing->cnt = 0;
	while (landing->cnt < cnt && all[landing->cnt].log_block - all[0].log_block < LAND_BLOCKS) {
		const struct lp_replay_payload *payload = &all[landing->cnt];
		landing->items[landing->cnt++] =
			(struct land_item){.payload = *payload,
					   .at = (uint32_t)(payload->log_block - all[0].log_block)};
	}
	return landing->cnt;
}

static int land_check(const struct landing *landing)
{
	int err = 0;
	for (uint32_t i = 0; i < landing->cnt && err == 0; i++) {
		const struct lp_replay_payload *payload = &landing->items[i].payload;
		const uint8_t *block = landing->bytes + landing->items[i].at * LP_BLOCK_BYTES;
		if (lp_crc32c(0, block, LP_BLOCK_BYTES) != payload->crc)
			err = LP_CORRUPT_CRC(payload->log_block * LP_BLOCK_BYTES,
					     "log: a payload of frame %llu, read again",
					     (unsigned long long)payload->seq);
	}
	return err;
}

static int land_read(struct landing *landing)
{
	const struct land_item *items = landing->items;
	for (uint32_t from = 0; from < landing->cnt;) {
		uint32_t to = from + 1;
		while (to < landing->cnt &&
		       items[to].at - items[to - 1].at <= 1 + LAND_GAP_BLOCKS &&
		       items[to].at - items[from].at < LAND_READ_BLOCKS)
			to++;
		const struct lp_extent extent = {items[from].payload.log_block,
						 items[to - 1].at - items[from].at + 1};
		land_submit(landing, landing->replay->shard->log_chan, LP_BDEV_READ, extent,
			    items[from].at);
		from = to;
	}
	int err = land_wait(landing);
	return err == 0 ? land_check(landing) : err;
}

/* Payloads that are neighbours both in `bytes` and on the device are written together. */
static int land_write_once(struct landing *landing)
{
	const struct land_item *items = landing->items;
	for (uint32_t from = 0; from < landing->cnt;) {
		uint64_t block = items[from].payload.extent.block;
		uint32_t cnt = 1;
		while (from + cnt < landing->cnt &&
		       items[from + cnt].payload.extent.block == block + cnt &&
		       items[from + cnt].at == items[from].at + cnt)
			cnt++;
		land_submit(landing, landing->replay->shard->data, LP_BDEV_WRITE,
			    (struct lp_extent){block, cnt}, items[from].at);
		from += cnt;
	}
	return land_wait(landing);
}

static int stuck_grow(struct landing *landing)
{
	uint32_t max = LP_MAX(2 * landing->stuck_max, 16u);
	struct land_stuck *bigger = realloc(landing->stuck, max * sizeof(*bigger));
	if (bigger == NULL)
		return -ENOMEM;
	landing->stuck = bigger;
	landing->stuck_max = max;
	return 0;
}

/* err: result of the block's write. A record that was marked bad before stays marked. */
static int land_stick(struct landing *landing, const struct land_item *item, int err)
{
	struct lp_shard *shard = landing->replay->shard;
	bool is_bad = err != -ENOSPC || item->stays;
	if (is_bad && !lpi_bad_note(shard, item->payload.extent.block))
		return err;
	if (landing->stuck_cnt == landing->stuck_max) {
		int grown = stuck_grow(landing);
		if (grown < 0)
			return grown;
	}
	struct lp_seg seg = lpi_bad_copy(shard, landing->bytes + item->at * LP_BLOCK_BYTES);
	if (seg.buf == NULL)
		return is_bad ? -ENOMEM : err;
	landing->stuck[landing->stuck_cnt++] = (struct land_stuck){*item, seg, is_bad};
	return 0;
}

/* Writes one payload at a time, which shows which ones cannot be written. */
static int land_write_each(struct landing *landing)
{
	for (uint32_t i = 0; i < landing->cnt; i++) {
		const struct land_item *item = &landing->items[i];
		land_submit(landing, landing->replay->shard->data, LP_BDEV_WRITE,
			    item->payload.extent, item->at);
		int err = land_wait(landing);
		if (err < 0)
			err = land_stick(landing, item, err);
		if (err < 0)
			return err;
	}
	return 0;
}

static int land_write(struct landing *landing)
{
	int err = -EIO;
	qsort(landing->items, landing->cnt, sizeof(landing->items[0]), by_place);
	for (uint32_t tries = 0; tries < LAND_WRITES_MAX && err < 0; tries++)
		err = land_write_once(landing);
	return err < 0 ? land_write_each(landing) : 0;
}

static int by_seq(const void *a, const void *b)
{
	uint64_t x = ((const struct land_stuck *)a)->item.payload.seq;
	uint64_t y = ((const struct land_stuck *)b)->item.payload.seq;
	return (x > y) - (x < y);
}

static int land_pend_one(struct lp_shard *shard, const struct land_stuck *stuck, uint64_t seq)
{
	const struct lp_replay_payload *payload = &stuck->item.payload;
	const struct lp_pending_block about = {.block = payload->extent.block, .crc = payload->crc};
	uint64_t record = stuck->item.record;
	int err;
	if (stuck->is_bad)
		err = lp_pending_add_stuck(shard->pending, seq, &about, stuck->seg, record,
					   stuck->item.stays);
	else if (record != 0)
		err = lp_pending_add_kept(shard->pending, seq, &about, stuck->seg, record);
	else
		err = lp_pending_add(shard->pending, seq, about.block, stuck->seg, about.crc);
	return err == -EAGAIN ? -ENOSPC : err; /* fewer payloads may wait than did before */
}

/* A payload that could not be written is pending, and needs its frame or its record. */
static int land_pend(struct landing *landing)
{
	struct lp_shard *shard = landing->replay->shard;
	uint64_t last_seq = landing->replay->recovery.last_seq;
	int err = 0;
	if (landing->stuck_cnt == 0)
		return 0;
	qsort(landing->stuck, landing->stuck_cnt, sizeof(landing->stuck[0]), by_seq);
	for (uint32_t i = 0; i < landing->stuck_cnt && err == 0; i++) {
		const struct land_stuck *stuck = &landing->stuck[i];
		const struct land_item *item = &stuck->item;
		uint64_t seq = item->record != 0 ? last_seq : item->payload.seq;
		if (item->record != 0)
			lp_deferrals_keep(shard->deferrals, item->record, stuck->is_bad);
		if (is_wanted(shard, item->payload.extent.block))
			err = land_pend_one(shard, stuck, seq);
	}
	if (err == 0)
		lp_pending_frame_durable(shard->pending, last_seq);
	return err;
}

static void land_stuck_free(struct landing *landing)
{
	for (uint32_t i = 0; i < landing->stuck_cnt; i++)
		lp_buf_put(landing->stuck[i].seg.buf);
	free(landing->stuck);
}

/* The frame number means nothing any more, because all frames are durable. */
static int land_hold(struct landing *landing)
{
	struct replay *replay = landing->replay;
	int err = 0;
	for (uint32_t i = 0; i < landing->cnt && err == 0; i++) {
		const struct land_item *item = &landing->items[i];
		struct lp_seg seg = {.buf = lp_buf_new(landing->bufs, (uint32_t)LP_BLOCK_BYTES),
				     .len = (uint32_t)LP_BLOCK_BYTES};
		LP_ASSERT(seg.buf != NULL); /* there is one for each payload */
		memcpy(seg.buf->data, landing->bytes + item->at * LP_BLOCK_BYTES, LP_BLOCK_BYTES);
		err = lp_pending_add(replay->shard->pending, replay->recovery.last_seq,
				     item->payload.extent.block, seg, item->payload.crc);
		lp_buf_put(seg.buf);
		/* Noted so that it can be reported. Too many do no harm, because a read-only shard
		 * writes nowhere. */
		bool is_noted =
			item->stays && lpi_bad_note(replay->shard, item->payload.extent.block);
		(void)is_noted;
	}
	return err;
}

static int land_flush(struct landing *landing)
{
	struct land_op *op = &landing->ops[0];
	*op = (struct land_op){.landing = landing, .op.complete = land_complete};
	op->op.opcode = LP_BDEV_FLUSH;
	landing->flight++;
	lp_bdev_submit(landing->replay->shard->data, &op->op);
	return land_wait(landing);
}

/* Read-only, the payloads go into memory instead. */
static int land_put(struct landing *landing)
{
	return landing->replay->shard->options.read_only ? land_hold(landing) : land_write(landing);
}

static int land_batches(struct landing *landing, const struct lp_replay_payload *all, uint64_t cnt)
{
	int err = 0;
	for (uint64_t done = 0; done < cnt && err == 0; done += landing->cnt) {
		landing->replay->shard->recovery.payloads +=
			land_choose(landing, all + done, cnt - done);
		err = land_read(landing);
		if (err == 0)
			err = land_put(landing);
	}
	return err;
}

static int land_log(struct landing *landing)
{
	const struct replay *replay = landing->replay;
	uint64_t cnt = lp_replay_payloads_blocks(replay->payloads);
	if (cnt == 0)
		return 0;
	struct lp_replay_payload *all = calloc(cnt, sizeof(*all));
	if (all == NULL)
		return -ENOMEM;
	int err = land_collect(replay, all, &cnt);
	if (err == 0)
		err = land_batches(landing, all, cnt);
	free(all);
	return err;
}

/* --- Payloads that the index keeps ------------------------------------------------------------ */

/* Calls for each record, in the order of their numbers. Read-only, damaged records are left out;
 * the damage has been recorded. */
static int each_record(struct lp_shard *shard, void *arg,
		       int (*call)(void *arg, uint64_t number,
				   const struct lp_deferred_value *about, const uint8_t *block))
{
	struct lp_key_range range;
	struct lp_kv_iter *iter = NULL;
	lp_key_range_of_space(&range, LP_KEY_SPACE_DEFERRED);
	int err =
		lp_kv_iter_open(shard->kv, (struct lp_kv_bytes){range.first.bytes, range.first.len},
				(struct lp_kv_bytes){range.end.bytes, range.end.len}, false, &iter);
	if (err < 0)
		return err;
	for (err = lp_kv_iter_seek_first(iter); err == 0;) {
		struct lp_kv_bytes value = lp_kv_iter_value(iter);
		struct lp_kv_bytes bytes = lp_kv_iter_key(iter);
		struct lp_deferred_value about;
		struct lp_key_view view;
		struct lp_key key;
		err = lp_key_parse(bytes.data, bytes.len, &view);
		if (err == 0) {
			lp_key_of_number(&key, LP_KEY_SPACE_DEFERRED, view.number);
			err = lp_deferred_read(value.data, value.len, &key, &about);
		}
		if (err == 0)
			err = call(arg, view.number, &about,
				   (const uint8_t *)value.data + LP_DEFERRED_VALUE_SIZE);
		else if (shard->options.read_only)
			err = 0;
		if (err == 0)
			err = lp_kv_iter_next(iter);
	}
	lp_kv_iter_close(iter);
	return err == -ENOENT ? 0 : err;
}

static int count_record(void *arg, uint64_t number, const struct lp_deferred_value *about,
			const uint8_t *block)
{
	(void)number;
	(void)about;
	(void)block;
	(*(uint64_t *)arg)++;
	return 0;
}

int lpi_shard_count_records(struct lp_shard *shard, uint64_t *ret_cnt)
{
	return each_record(shard, ret_cnt, count_record);
}

static int check_record_place(const struct lp_shard *shard, uint64_t number, uint64_t block)
{
	if (lp_space_has(shard->space, (struct lp_extent){block, 1}))
		return 0;
	return LP_CORRUPT(LP_OFFSET_NONE,
			  "deferred payload %llu is for block %llu, which is not the shard's",
			  (unsigned long long)number, (unsigned long long)block);
}

static bool is_tried(const struct lp_shard *shard, const struct lp_deferred_value *about)
{
	bool stays = about->ino == 0 && !shard->options.read_only;
	return stays || is_wanted(shard, about->device_block);
}

/* The record will be deleted. Until that is durable its block gets no new owner. */
static int find_record(void *arg, uint64_t number, const struct lp_deferred_value *about,
		       const uint8_t *block)
{
	struct replay *replay = arg;
	struct lp_shard *shard = replay->shard;
	(void)block;
	int err = check_record_place(shard, number, about->device_block);
	if (err < 0)
		return shard->options.read_only ? 0 : err;
	if (!shard->options.read_only)
		err = lp_deferrals_found(shard->deferrals, number, about->device_block);
	if (err == 0 && is_tried(shard, about))
		replay->record_cnt++;
	return err;
}

static int land_batch(struct landing *landing)
{
	int err = land_put(landing);
	landing->replay->shard->recovery.payloads += landing->cnt;
	landing->replay->shard->recovery.records += landing->cnt;
	landing->cnt = 0;
	return err;
}

static int land_record(void *arg, uint64_t number, const struct lp_deferred_value *about,
		       const uint8_t *block)
{
	struct landing *landing = arg;
	struct lp_shard *shard = landing->replay->shard;
	if (check_record_place(shard, number, about->device_block) < 0 || !is_tried(shard, about))
		return 0;
	memcpy(landing->bytes + landing->cnt * LP_BLOCK_BYTES, block, LP_BLOCK_BYTES);
	landing->items[landing->cnt] = (struct land_item){
		.payload = {.extent = {about->device_block, 1}, .crc = about->block_crc},
		.record = number,
		.at = landing->cnt,
		.stays = about->ino == 0,
	};
	return ++landing->cnt == LAND_BLOCKS ? land_batch(landing) : 0;
}

static int land_records(struct landing *landing)
{
	landing->cnt = 0;
	if (landing->replay->record_cnt == 0)
		return 0;
	int err = each_record(landing->replay->shard, landing, land_record);
	return err == 0 ? land_batch(landing) : err;
}

/* --- Both ------------------------------------------------------------------------------------- */

static int land_all(struct landing *landing)
{
	struct lp_shard *shard = landing->replay->shard;
	int err = land_log(landing);
	if (err == 0)
		err = land_records(landing);
	if (err < 0 || shard->recovery.payloads == 0)
		return err;
	if (!shard->options.read_only) {
		err = land_flush(landing);
		return err == 0 ? land_pend(landing) : err;
	}
	lp_pending_frame_durable(shard->pending, landing->replay->recovery.last_seq);
	return 0;
}

static int land(struct replay *replay)
{
	struct lp_shard *shard = replay->shard;
	uint64_t blocks = lp_replay_payloads_blocks(replay->payloads) + replay->record_cnt;
	if (blocks == 0)
		return 0;
	struct landing *landing = calloc(1, sizeof(*landing));
	if (landing == NULL)
		return -ENOMEM;
	landing->replay = replay;
	landing->bytes = aligned_alloc(LP_BLOCK_BYTES, LAND_BLOCKS * LP_BLOCK_BYTES);
	int err = landing->bytes == NULL ? -ENOMEM : 0;
	if (err == 0 && shard->options.read_only)
		err = lp_bufs_new(lp_align_up(blocks * LP_BLOCK_BYTES, BUFS_SLAB_BYTES),
				  &shard->replay_bufs);
	landing->bufs = shard->replay_bufs;
	if (err == 0)
		err = land_all(landing);
	land_stuck_free(landing);
	free(landing->bytes);
	free(landing);
	return err;
}

/* --- The whole -------------------------------------------------------------------------------- */

static int replay_run(struct replay *replay)
{
	struct lp_shard *shard = replay->shard;
	const struct lp_log_recovery *recovery = &replay->recovery;
	int err = lp_kv_batch_new(1 << 16, &replay->batch);
	if (err == 0)
		err = lp_replay_payloads_new(&replay->payloads);
	replay->walk = calloc(1, sizeof(*replay->walk));
	if (err == 0 && replay->walk == NULL)
		err = -ENOMEM;
	if (err < 0)
		return err;
	replay->walk->visitor = (struct lp_kv_batch_visitor){.put = visit_put, .del = visit_del};
	lp_log_recover(shard->log, &replay->recovery);
	while (!replay->done)
		lpi_shard_turn(shard);
	shard->recovery.last_seq = recovery->last_seq;
	if (shard->options.seq_end != 0)
		shard->recovery.last_seq = LP_MIN(recovery->last_seq, shard->options.seq_end - 1);
	shard->recovery.frames = recovery->frame_cnt;
	shard->recovery.was_clean = recovery->was_clean;
	shard->trimmed_seq = recovery->oldest_needed;
	if (recovery->result < 0)
		return recovery->result;
	err = declare_whole(replay);
	if (err == 0)
		err = each_record(shard, replay, find_record);
	return err < 0 ? err : land(replay);
}

int lpi_shard_replay(struct lp_shard *shard)
{
	struct replay replay = {.shard = shard,
				.recovery = {.applied = shard->persisted_seq,
					     .read_only = shard->options.read_only,
					     .frame = replay_frame,
					     .complete = replay_complete}};
	int err = replay_run(&replay);
	lp_replay_payloads_free(replay.payloads);
	lp_kv_batch_free(replay.batch);
	free(replay.walk);
	return err == 0 ? lp_space_recovered(shard->space, shard->recovery.last_seq) : err;
}
