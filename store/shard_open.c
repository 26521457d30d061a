/* SPDX-License-Identifier: Apache-2.0 */
/* Opening and closing a shard.
 *
 * Open, in this order, each on what is below it: blockfs, the index, what the index says of
 * free space, the log. Frames of the log are delivered before it is known whether the log is sound
 * (rule L1): until then everything made of them stays in memory: batches go into the memtable,
 * payloads into pending, changes into the space. When the log has been judged sound, the pipeline
 * starts, and payloads go to their place in the background: the time to start follows from the
 * length of the log, not from the number of objects.
 *
 * Close: what was put becomes durable; payloads go to their place, the index flushes, the log is
 * trimmed and closed.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/endian.h"
#include "base/error.h"
#include "format/space.h"
#include "store/keys.h"
#include "store/log_limits.h"
#include "store/shard_impl.h"

#define DEFERRED_DEFAULT  UINT64_C(16384) /* blocks: 64 MiB */
#define OVERLAY_BUCKETS   4096u
#define LOW_WATER_BLOCKS  UINT64_C(4096)
#define WRITEBACK_WAIT_NS (100 * LP_NS_PER_MS)
#define STALL_RETRY_NS    (10 * LP_NS_PER_MS)
#define STALL_RETRIES_MAX 6000u /* a minute */

struct replay {
	struct lp_log_recovery recovery;
	struct lp_shard *shard;
	struct lp_kv_batch *batch;
	bool done;
};

/* Waits in a way that lets everybody else work. */
static void turn(struct lp_shard *shard)
{
	if (shard->options.sim_clock != NULL && shard->kv != NULL)
		(void)lp_kv_sim_run_one(shard->kv);
	(void)lp_reactor_turn(shard->options.reactor, true);
}

/* --- The parts -------------------------------------------------------------------------------- */

static int open_channels(struct lp_shard *shard)
{
	struct lp_devices *devices = shard->options.devices;
	struct lp_reactor *reactor = shard->options.reactor;
	enum lp_mkfs_device of_log = lp_devices_of_log(devices);
	shard->chunks = devices->chunks[LP_MKFS_DATA];
	int err = lp_bdev_attach(devices->bdev[LP_MKFS_DATA], reactor, &shard->data);
	if (err == 0 && of_log == LP_MKFS_DATA)
		shard->log_chan = shard->data;
	else if (err == 0)
		err = lp_bdev_attach(devices->bdev[of_log], reactor, &shard->log_chan);
	return err;
}

static int manifest_barrier(void *arg)
{
	struct lp_shard *shard = arg;
	/* Before the pipeline runs the index holds nothing the log does not: what is replayed was
	 * flushed before it was read. */
	struct lp_commit *commit = atomic_load(&shard->barrier_commit);
	return commit != NULL ? lp_commit_barrier(commit) : 0;
}

static int open_files(struct lp_shard *shard)
{
	struct lp_devices *devices = shard->options.devices;
	enum lp_mkfs_device where = lp_devices_of_files(devices);
	struct lp_blockfs_options options = {
		.data = {devices->bdev[LP_MKFS_DATA], devices->chunks[LP_MKFS_DATA]},
		.db = {devices->bdev[LP_MKFS_DB], devices->chunks[LP_MKFS_DB]},
		.journal_bdev = devices->bdev[where],
		.area = lp_label_files_area(&devices->label[where], shard->options.shard_idx),
		.shard_idx = shard->options.shard_idx,
		.reserve_bytes = shard->options.files_reserve_bytes,
		.clock = shard->options.sim_clock,
	};
	memcpy(options.store_uuid, devices->label[LP_MKFS_DATA].store_uuid,
	       sizeof(options.store_uuid));
	int err = lp_blockfs_open(&options, &shard->files);
	if (err < 0)
		return err;
	lp_blockfs_set_manifest_barrier(shard->files, manifest_barrier, shard);
	lp_kvfs_blockfs_init(&shard->kvfs, shard->files);
	return 0;
}

static int open_index(struct lp_shard *shard)
{
	const struct lp_kv_options options = {
		.fs = &shard->kvfs.kvfs,
		.sim_clock = shard->options.sim_clock,
		.events = &shard->kv_events,
		.cache_bytes = shard->options.index_cache_bytes,
		.write_buffer_bytes = shard->options.index_buffer_bytes,
		.create = true,
	};
	struct lp_key key;
	struct lp_kv_value value;
	int err = lp_kv_open(&options, &shard->kv);
	if (err < 0)
		return err;
	lp_key_of_store(&key, "applied");
	err = lp_kv_get(shard->kv, (struct lp_kv_bytes){key.bytes, key.len}, &value);
	if (err == -ENOENT)
		return 0;
	if (err < 0)
		return err;
	if (value.bytes.len == 8)
		shard->persisted_seq = lp_get_le64(value.bytes.data);
	else
		err = LP_CORRUPT(LP_OFFSET_NONE, "the index's record \"applied\" has %zu bytes",
				 value.bytes.len);
	lp_kv_value_release(&value);
	atomic_store(&shard->kv_persisted, shard->persisted_seq);
	shard->recovery.applied = shard->persisted_seq;
	return err;
}

/* --- The space -------------------------------------------------------------------------------- */

static int load_record(struct lp_shard *shard, struct lp_kv_iter *iter)
{
	struct lp_kv_bytes key = lp_kv_iter_key(iter);
	struct lp_kv_bytes value = lp_kv_iter_value(iter);
	struct lp_key_view view;
	int err = lp_key_parse(key.data, key.len, &view);
	if (err < 0)
		return err;
	if (view.number >= shard->options.devices->label[LP_MKFS_DATA].chunk_cnt)
		return LP_CORRUPT(LP_OFFSET_NONE,
				  "a space record of chunk %llu, which is not there",
				  (unsigned long long)view.number);
	return lp_space_load_record(shard->space, (uint32_t)view.number, value.data, value.len);
}

static int load_records(struct lp_shard *shard)
{
	struct lp_key_range range;
	struct lp_kv_iter *iter = NULL;
	lp_key_range_of_store(&range, "alloc");
	int err =
		lp_kv_iter_open(shard->kv, (struct lp_kv_bytes){range.first.bytes, range.first.len},
				(struct lp_kv_bytes){range.end.bytes, range.end.len}, false, &iter);
	if (err < 0)
		return err;
	err = lp_kv_iter_seek_first(iter);
	while (err == 0) {
		err = load_record(shard, iter);
		if (err == 0)
			err = lp_kv_iter_next(iter);
	}
	lp_kv_iter_close(iter);
	return err == -ENOENT ? 0 : err;
}

static int open_space(struct lp_shard *shard)
{
	const struct lp_disk_label *label = &shard->options.devices->label[LP_MKFS_DATA];
	const struct lp_space_config config = {
		.alloc_kind = shard->options.alloc_kind,
		.base_block = label->chunk_base,
		.chunk_blocks = label->chunk_blocks,
		.chunk_cnt_max = label->chunk_cnt,
		.low_water_blocks = LP_MIN(LOW_WATER_BLOCKS, (uint64_t)label->chunk_blocks),
	};
	int err = lp_space_new(&config, &shard->space);
	uint32_t chunk = LP_CHUNK_NONE;
	for (uint32_t from = 0; err == 0 && from < label->chunk_cnt; from = chunk + 1) {
		chunk = lp_chunks_find(shard->chunks, shard->options.shard_idx,
				       LP_CHUNK_USE_OBJECTS, from);
		if (chunk == LP_CHUNK_NONE)
			break;
		err = lp_space_chunk_add(shard->space, chunk);
		shard->lease_hint = chunk + 1;
	}
	return err == 0 ? load_records(shard) : err;
}

/* --- The log ---------------------------------------------------------------------------------- */

/* A full memtable waits for its flush: so do we, for a bounded time. */
static int write_batch(struct lp_shard *shard, struct lp_kv_batch *batch)
{
	for (uint32_t tries = 0; tries < STALL_RETRIES_MAX; tries++) {
		int err = lp_kv_write(shard->kv, batch);
		if (err != -EAGAIN)
			return err;
		if (shard->options.sim_clock != NULL) {
			if (!lp_kv_sim_run_one(shard->kv))
				return -EIO;
			continue;
		}
		const struct timespec pause = {.tv_nsec = (long)STALL_RETRY_NS};
		(void)nanosleep(&pause, NULL);
	}
	return -ETIMEDOUT;
}

static int replay_batch(struct replay *replay, const struct lp_log_view *view)
{
	struct lp_kv_bytes data = {view->batch, view->head.batch_bytes};
	if (view->head.seq <= replay->recovery.applied || data.len == 0)
		return 0;
	int err = lp_kv_batch_load(replay->batch, data);
	return err < 0 ? err : write_batch(replay->shard, replay->batch);
}

static int replay_payload(struct lp_shard *shard, uint64_t seq, const struct lp_log_payload *about,
			  const uint8_t *block)
{
	struct lp_seg seg = {.buf = lp_buf_new(shard->options.bufs, (uint32_t)LP_BLOCK_BYTES),
			     .len = (uint32_t)LP_BLOCK_BYTES};
	if (seg.buf == NULL)
		return -ENOMEM;
	memcpy(seg.buf->data, block, LP_BLOCK_BYTES);
	int err = lp_pending_add(shard->pending, seq, about->device_block, seg, about->crc);
	lp_buf_put(seg.buf);
	return err == -EAGAIN ? -ENOMEM : err;
}

static int replay_frame(struct lp_log_recovery *recovery, const struct lp_log_view *view)
{
	struct replay *replay = LP_CONTAINER_OF(recovery, struct replay, recovery);
	struct lp_shard *shard = replay->shard;
	uint64_t seq = view->head.seq;
	int err = replay_batch(replay, view);
	for (uint32_t i = 0; i < view->head.payload_cnt && err == 0; i++) {
		struct lp_log_payload about;
		const uint8_t *block = lp_log_view_payload(view, i, &about);
		err = replay_payload(shard, seq, &about, block);
	}
	for (uint32_t i = 0; i < view->head.change_cnt && err == 0; i++) {
		struct lp_log_change change;
		lp_log_view_change(view, i, &change);
		if (change.op == LP_SPACE_CHANGE_KIND_FREE && change.cnt > 0)
			err = lp_pending_freed(shard->pending, seq,
					       (struct lp_extent){change.block, change.cnt});
	}
	if (err == 0)
		err = lp_space_replay_frame(shard->space, seq, view->changes,
					    (size_t)view->head.change_cnt * LP_LOG_CHANGE_SIZE);
	if (err == 0)
		lp_pending_frame_durable(shard->pending, seq);
	return err;
}

static void replay_complete(struct lp_log_recovery *recovery)
{
	LP_CONTAINER_OF(recovery, struct replay, recovery)->done = true;
}

static int recover_log(struct lp_shard *shard, struct replay *replay)
{
	replay->shard = shard;
	replay->recovery = (struct lp_log_recovery){.applied = shard->persisted_seq,
						    .frame = replay_frame,
						    .complete = replay_complete};
	int err = lp_kv_batch_new(1 << 16, &replay->batch);
	if (err < 0)
		return err;
	lp_log_recover(shard->log, &replay->recovery);
	while (!replay->done)
		turn(shard);
	lp_kv_batch_free(replay->batch);
	shard->recovery.last_seq = replay->recovery.last_seq;
	shard->recovery.frames = replay->recovery.frame_cnt;
	shard->recovery.was_clean = replay->recovery.was_clean;
	if (replay->recovery.result == 0) {
		/* Frames before this one were still there, but are done with. */
		shard->trimmed_seq = replay->recovery.oldest_needed;
		lp_pending_forget_before(shard->pending, shard->trimmed_seq);
	}
	shard->recovery.payloads = lp_pending_stats(shard->pending)->versions;
	return replay->recovery.result;
}

static int open_log(struct lp_shard *shard)
{
	const struct lp_devices *devices = shard->options.devices;
	const struct lp_disk_label *label = &devices->label[lp_devices_of_log(devices)];
	struct lp_extent extent = lp_label_log_area(label, shard->options.shard_idx);
	struct lp_log_options options = {
		.reactor = shard->options.reactor,
		.chan = shard->log_chan,
		.area = {.block = extent.block,
			 .ring_blocks = extent.cnt - LP_LOG_SLOT_CNT,
			 .shard = shard->options.shard_idx},
	};
	memcpy(options.area.store_uuid, label->store_uuid, sizeof(options.area.store_uuid));
	options.limits = lp_log_limits_for(options.area.ring_blocks);
	shard->limits = options.limits;
	/* The log bounds what a replay finds, whatever the limit was when it was written. */
	uint64_t deferred = LP_MAX(shard->options.deferred_blocks_max, options.area.ring_blocks);
	struct replay replay = {.done = false};
	int err = lp_pending_new(deferred, &shard->pending);
	if (err == 0)
		err = lp_log_new(&options, &shard->log);
	/* What a process that died had written may be in the device's cache only: what is built on
	 * it must not become durable before it (rule L3). */
	if (err == 0)
		err = lp_bdev_flush_sync(lp_bdev_of(shard->log_chan));
	if (err == 0)
		err = recover_log(shard, &replay);
	if (err == 0)
		err = lp_space_recovered(shard->space, shard->recovery.last_seq);
	return err;
}

static int open_pipeline(struct lp_shard *shard)
{
	const struct lp_writeback_options writeback = {
		.reactor = shard->options.reactor,
		.chan = shard->data,
		.pending = shard->pending,
		.events = &shard->writeback_events,
		.start_versions = shard->options.deferred_blocks_max / 4,
		.wait_ns = WRITEBACK_WAIT_NS,
	};
	struct lp_commit_options commit = {
		.reactor = shard->options.reactor,
		.log = shard->log,
		.kv = shard->kv,
		.events = &shard->commit_events,
		.limits = shard->limits,
		.applied = shard->recovery.last_seq,
	};
	int err = lp_overlay_new(OVERLAY_BUCKETS, 0, &shard->overlay);
	commit.overlay = shard->overlay;
	if (err == 0)
		err = lp_writeback_new(&writeback, &shard->writeback);
	if (err == 0)
		err = lp_commit_new(&commit, &shard->commit);
	if (err == 0 && shard->options.sim_clock != NULL)
		lp_commit_set_inline_barrier(shard->commit, true);
	if (err == 0)
		atomic_store(&shard->barrier_commit, shard->commit);
	return err;
}

static int open_all(struct lp_shard *shard)
{
	int err = open_channels(shard);
	if (err == 0)
		err = open_files(shard);
	if (err == 0)
		err = open_index(shard);
	if (err == 0)
		err = open_space(shard);
	if (err == 0)
		err = open_log(shard);
	if (err == 0)
		err = open_pipeline(shard);
	return err;
}

int lp_shard_open(const struct lp_shard_options *options, struct lp_shard **ret_shard)
{
	struct lp_shard *shard = calloc(1, sizeof(*shard));
	if (shard == NULL)
		return -ENOMEM;
	shard->options = *options;
	if (shard->options.deferred_blocks_max == 0)
		shard->options.deferred_blocks_max = DEFERRED_DEFAULT;
	uint64_t start_ns = lp_clock_mono_ns(lp_reactor_clock(options->reactor));
	shard->record = malloc(LP_SPACE_RECORD_BYTES_MAX);
	shard->change_bytes = malloc((size_t)LP_COMMIT_CHANGES_MAX * LP_LOG_CHANGE_SIZE);
	lpi_shard_init_running(shard);
	int err = shard->record == NULL || shard->change_bytes == NULL ? -ENOMEM : open_all(shard);
	if (err < 0) {
		/* The error that matters is the one we have. */
		int ignored = lp_shard_close(shard, true);
		(void)ignored;
		return err;
	}
	shard->recovery.took_ns = lp_clock_mono_ns(lp_reactor_clock(options->reactor)) - start_ns;
	lpi_shard_begin(shard);
	*ret_shard = shard;
	return 0;
}

/* --- Close ------------------------------------------------------------------------------------ */

static void index_flush_run(struct lp_work *work)
{
	struct lp_shard *shard = LP_CONTAINER_OF(work, struct lp_shard, flush_work);
	shard->flush_result = lp_kv_flush_wait(shard->kv);
}

static void nothing_more(struct lp_work *work)
{
	(void)work;
}

static bool is_busy(const struct lp_shard *shard)
{
	return !lp_commit_is_idle(shard->commit) || !lp_writeback_is_idle(shard->writeback) ||
	       !lpi_shard_is_quiet(shard);
}

/* All that was put is durable, in its place, and in the index's tables. */
static int settle(struct lp_shard *shard)
{
	while (!lp_commit_is_idle(shard->commit) && shard->error == 0)
		turn(shard);
	while (lp_pending_stats(shard->pending)->versions > 0 && shard->error == 0) {
		if (lp_writeback_is_idle(shard->writeback))
			lp_writeback_hurry(shard->writeback);
		turn(shard);
	}
	while (lpi_shard_checkpoint_some(shard) && shard->error == 0)
		turn(shard);
	while (!lp_commit_is_idle(shard->commit) && shard->error == 0)
		turn(shard);
	while (!lpi_shard_is_quiet(shard))
		turn(shard);
	if (shard->error != 0)
		return shard->error;
	shard->flush_work = (struct lp_work){.run = index_flush_run, .done = nothing_more};
	lp_workers_submit(shard->options.workers, shard->options.reactor, &shard->flush_work);
	while (!lpi_shard_is_quiet(shard))
		turn(shard);
	/* Nothing of the log is needed any more: a last frame says so. */
	lpi_shard_trim(shard);
	lp_commit_trim(shard->commit);
	while (!lp_commit_is_idle(shard->commit) && shard->error == 0)
		turn(shard);
	return shard->error != 0 ? shard->error : shard->flush_result;
}

struct closing {
	struct lp_log_closing closing;
	bool done;
};

static void closing_complete(struct lp_log_closing *closing)
{
	LP_CONTAINER_OF(closing, struct closing, closing)->done = true;
}

static int close_log(struct lp_shard *shard)
{
	struct closing closing = {.closing.complete = closing_complete};
	lp_log_close(shard->log, &closing.closing);
	while (!closing.done)
		turn(shard);
	return closing.closing.result;
}

/* Stops what runs, in order or at once. */
static int stop(struct lp_shard *shard, bool abandon)
{
	int err = abandon ? 0 : settle(shard);
	shard->closing = true;
	lpi_shard_stop_timers(shard);
	if (!lp_commit_is_idle(shard->commit) && lp_commit_error(shard->commit) == 0)
		lp_commit_abort(shard->commit);
	lp_writeback_stop(shard->writeback);
	while (is_busy(shard) || !lp_log_is_idle(shard->log))
		turn(shard);
	if (err == 0 && !abandon)
		err = close_log(shard);
	return err;
}

int lp_shard_close(struct lp_shard *shard, bool abandon)
{
	if (shard == NULL)
		return 0;
	int err = shard->commit != NULL ? stop(shard, abandon || shard->error != 0) : 0;
	if (err == 0 && !abandon)
		err = shard->error;
	shard->closing = true;
	lpi_shard_stop_timers(shard);
	/* Its jobs may still come to the barrier, and find nothing to wait for. */
	int kv_err = lp_kv_close(shard->kv);
	shard->kv = NULL;
	if (err == 0 && !abandon)
		err = kv_err;
	while (!lpi_shard_is_quiet(shard))
		turn(shard);
	lp_commit_free(shard->commit);
	lp_writeback_free(shard->writeback);
	lp_log_free(shard->log);
	lp_pending_free(shard->pending);
	lp_space_free(shard->space);
	lp_overlay_free(shard->overlay);
	lp_blockfs_close(shard->files);
	if (shard->log_chan != shard->data)
		lp_bdev_detach(shard->log_chan);
	lp_bdev_detach(shard->data);
	free(shard->record);
	free(shard->change_bytes);
	free(shard);
	return err;
}
