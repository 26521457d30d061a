/* SPDX-License-Identifier: Apache-2.0 */
/* Opening and closing a shard.
 *
 * Open, in this order, each part on the ones before: blockfs, the index, the free space as the
 * index has it, the log, which is replayed (shard/replay.c), the pipeline. The time to start
 * follows from the length of the log, not from the number of objects.
 *
 * Read-only: the same, but blockfs is below a layer in memory that takes RocksDB's writes. The log
 * is read and judged, and then left alone. There is no pipeline and no write-back, so nothing of
 * the shard runs by itself.
 *
 * Close: all changes become durable, payloads go to their blocks, the index flushes, the log is
 * trimmed and closed. An index that fails, for lack of space or otherwise, is resumed as usual.
 * When it makes no progress for some time, the close goes on without it. The log is then neither
 * trimmed nor closed, and has all that was acknowledged.
 */
#include <stdlib.h>
#include <string.h>

#include "base/endian.h"
#include "base/error.h"
#include "base/memory/pool.h"
#include "store/log/limits.h"
#include "store/record/keys.h"
#include "store/shard/shard_impl.h"

#define DEFERRED_DEFAULT  UINT64_C(32768) /* blocks: 128 MiB */
#define BAD_DEFAULT       1024u
#define OVERLAY_BUCKETS   4096u
#define WRITEBACK_WAIT_NS (100 * LP_NS_PER_MS)
#define WRITEBACK_OLD_NS  (2 * LP_NS_PER_S)
#define CLOSE_PATIENCE_NS (10 * LP_NS_PER_S)
#define LOG_BLOCKS_MAX    LP_POOL_OBJECTS_MAX

void lpi_shard_turn(struct lp_shard *shard)
{
	if (shard->options.sim_clock != NULL && shard->kv != NULL)
		(void)lp_kv_sim_run_one(shard->kv);
	(void)lp_reactor_turn(shard->options.reactor, true);
}

/* --- The parts -------------------------------------------------------------------------------- */

static int open_index_channels(struct lp_shard *shard)
{
	const enum lp_device_role devices[LP_KV_CHANS_MAX] = {LP_ROLE_DATA, LP_ROLE_DB};
	int err = 0;
	for (uint32_t i = 0; i < LP_KV_CHANS_MAX && err == 0; i++) {
		struct lp_bdev *bdev = shard->options.devices->bdev[devices[i]];
		if (bdev != NULL)
			err = lp_bdev_attach(bdev, shard->options.reactor,
					     &shard->index_chans.chans[i]);
	}
	return err;
}

static int open_channels(struct lp_shard *shard)
{
	struct lp_devices *devices = shard->options.devices;
	struct lp_reactor *reactor = shard->options.reactor;
	enum lp_device_role of_log = lp_devices_of_log(devices);
	shard->chunks = devices->chunks[LP_ROLE_DATA];
	int err = lp_bdev_attach(devices->bdev[LP_ROLE_DATA], reactor, &shard->data);
	if (err == 0 && of_log == LP_ROLE_DATA)
		shard->log_chan = shard->data;
	else if (err == 0)
		err = lp_bdev_attach(devices->bdev[of_log], reactor, &shard->log_chan);
	return err == 0 ? open_index_channels(shard) : err;
}

static int manifest_barrier(void *arg)
{
	struct lp_shard *shard = arg;
	/* Before the pipeline runs the index holds nothing beyond the log: replayed frames were
	 * flushed before they were read. */
	struct lp_commit *commit = atomic_load(&shard->barrier_commit);
	return commit != NULL ? lp_commit_barrier(commit) : 0;
}

static uint64_t chunks_bytes(const struct lp_disk_label *label)
{
	return (uint64_t)label->chunk_cnt * label->chunk_blocks * LP_BLOCK_BYTES;
}

/* How much of the device the index may use, and how much is reserved for it (rule L8). */
static void make_plan(struct lp_shard *shard)
{
	const struct lp_devices *devices = shard->options.devices;
	const struct lp_index_wish wish = {
		.device_bytes = chunks_bytes(&devices->label[LP_ROLE_DATA]) +
				chunks_bytes(&devices->label[LP_ROLE_DB]),
		.shard_cnt = devices->label[LP_ROLE_DATA].shard_cnt,
		.memory_bytes = shard->options.memory_bytes,
		.buffer_bytes = shard->options.index_buffer_bytes,
		.reserve_bytes = shard->options.files_reserve_bytes,
	};
	lp_index_make_plan(&wish, &shard->plan);
}

static bool has_files_on(const struct lp_devices *devices, enum lp_device_role device,
			 uint32_t shard_idx)
{
	struct lp_chunks *chunks = devices->chunks[device];
	return chunks != NULL &&
	       lp_chunks_find(chunks, shard_idx, LP_CHUNK_USE_FILES, 0) != LP_CHUNK_NONE;
}

/* Chunks of the data device for the reserves of those other shards that have leased nothing yet. A
 * reserve is leased on the fastest device that has room. */
static uint32_t missing_chunks(const struct lp_shard *shard)
{
	const struct lp_devices *devices = shard->options.devices;
	const struct lp_disk_label *label = &devices->label[LP_ROLE_DATA];
	uint64_t chunk_bytes = (uint64_t)label->chunk_blocks * LP_BLOCK_BYTES;
	uint64_t bytes = 0;
	for (uint32_t i = 0; i < label->shard_cnt; i++) {
		if (i != shard->options.shard_idx && !has_files_on(devices, LP_ROLE_DB, i) &&
		    !has_files_on(devices, LP_ROLE_DATA, i))
			bytes += shard->plan.reserve_bytes;
	}
	return (uint32_t)((bytes + chunk_bytes - 1) / chunk_bytes);
}

/* This shard has leased its reserve; objects leave the chunks that shards without a reserve still
 * need. Other shards open at the same time. A shard that looked earlier, and reports after this
 * one, looks again, and so does this one. So the last report was true when it was made. A shard
 * leases its first chunk once, so there are no more rounds than shards. */
static void keep_for_others(struct lp_shard *shard)
{
	const struct lp_devices *devices = shard->options.devices;
	uint32_t shard_cnt = devices->label[LP_ROLE_DATA].shard_cnt;
	if (devices->files_reserve_bytes != 0 || shard->options.read_only)
		return;
	uint32_t missing = missing_chunks(shard);
	for (uint32_t i = 0; i < shard_cnt; i++) {
		uint32_t said = missing;
		lp_chunks_set_files_reserve(shard->chunks, said);
		missing = missing_chunks(shard);
		if (missing == said)
			break;
	}
}

static int open_files(struct lp_shard *shard)
{
	struct lp_devices *devices = shard->options.devices;
	enum lp_device_role where = lp_devices_of_files(devices);
	struct lp_blockfs_options options = {
		.data = {devices->bdev[LP_ROLE_DATA], devices->chunks[LP_ROLE_DATA]},
		.db = {devices->bdev[LP_ROLE_DB], devices->chunks[LP_ROLE_DB]},
		.journal_bdev = devices->bdev[where],
		.area = lp_label_files_area(&devices->label[where], shard->options.shard_idx),
		.shard_idx = shard->options.shard_idx,
		.reserve_bytes = shard->plan.reserve_bytes,
		.clock = shard->options.sim_clock,
		.read_only = shard->options.read_only,
	};
	memcpy(options.store_uuid, devices->label[LP_ROLE_DATA].store_uuid,
	       sizeof(options.store_uuid));
	int err = lp_blockfs_open(&options, &shard->files);
	if (err < 0)
		return err;
	keep_for_others(shard);
	lp_blockfs_set_manifest_barrier(shard->files, manifest_barrier, shard);
	lp_kvfs_blockfs_init(&shard->kvfs, shard->files);
	if (shard->options.read_only)
		err = lp_kvfs_ro_new(&shard->kvfs.kvfs, &shard->kvfs_ro);
	return err;
}

/* The label is input, and says only where the log is. The shard cannot account for the frames of a
 * larger log, and no store with a larger log was ever opened. */
static int check_log_area(const struct lp_shard *shard)
{
	const struct lp_devices *devices = shard->options.devices;
	const struct lp_disk_label *label = &devices->label[lp_devices_of_log(devices)];
	uint64_t cnt = lp_label_log_area(label, shard->options.shard_idx).cnt;
	uint64_t least = LP_LOG_SLOT_CNT + LP_LOG_RING_BLOCKS_MIN;
	if (cnt >= least && cnt <= LOG_BLOCKS_MAX)
		return 0;
	return LP_CORRUPT(LP_OFFSET_NONE,
			  "device label: the log of shard %u has %llu blocks, not %llu to %u",
			  shard->options.shard_idx, (unsigned long long)cnt,
			  (unsigned long long)least, LOG_BLOCKS_MAX);
}

static struct lp_log_area log_area(const struct lp_shard *shard)
{
	const struct lp_devices *devices = shard->options.devices;
	const struct lp_disk_label *label = &devices->label[lp_devices_of_log(devices)];
	struct lp_extent extent = lp_label_log_area(label, shard->options.shard_idx);
	struct lp_log_area area = {.block = extent.block,
				   .ring_blocks = extent.cnt - LP_LOG_SLOT_CNT,
				   .shard = shard->options.shard_idx};
	memcpy(area.store_uuid, label->store_uuid, sizeof(area.store_uuid));
	return area;
}

/* Only the first opening makes an index, before the log's first recovery and so before its first
 * frame. At later openings a missing index means that it was lost. */
static int open_or_make_index(struct lp_shard *shard, struct lp_kv_options *options)
{
	const struct lp_log_area area = log_area(shard);
	int err = lp_log_is_new(lp_bdev_of(shard->log_chan), &area, &options->create);
	if (err == 0)
		err = lp_kv_open(options, &shard->kv);
	return err == -ENOENT ? LP_CORRUPT(LP_OFFSET_NONE, "the index of shard %u is gone",
					   shard->options.shard_idx)
			      : err;
}

static int open_index(struct lp_shard *shard)
{
	bool read_only = shard->options.read_only;
	struct lp_kv_options options = {
		.fs = read_only ? lp_kvfs_ro_fs(shard->kvfs_ro) : &shard->kvfs.kvfs,
		.sim_clock = shard->options.sim_clock,
		.events = read_only ? NULL : &shard->kv_events,
		.cache_bytes = shard->options.index_cache_bytes,
		.write_buffer_bytes = shard->plan.buffer_bytes,
		.no_compaction = read_only, /* it would only cost memory */
	};
	struct lp_key key;
	struct lp_kv_value value;
	int err = open_or_make_index(shard, &options);
	if (err < 0)
		return err;
	lp_key_of_store(&key, "applied");
	err = lp_kv_get(shard->kv, (struct lp_kv_bytes){key.bytes, key.len}, &value);
	if (err == -ENOENT)
		return 0;
	if (err < 0)
		return err;
	err = lp_applied_decode(value.bytes, &shard->persisted_seq, &shard->whole_seq);
	lp_kv_value_release(&value);
	atomic_store(&shard->kv_persisted, shard->persisted_seq);
	atomic_store(&shard->kv_whole, shard->whole_seq);
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
	if (view.number >= shard->options.devices->label[LP_ROLE_DATA].chunk_cnt)
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

/* Free space in small pieces would make the trees grow without bound (promise P5): 64 bytes for
 * each piece. An extent allocator has nothing but trees, and would have to fail. */
static uint64_t trees_bytes_max(const struct lp_shard *shard)
{
	uint64_t memory = shard->options.memory_bytes;
	if (shard->options.alloc_kind != LP_ALLOC_HYBRID)
		return 0;
	return (memory != 0 ? memory : LP_INDEX_MEMORY_DEFAULT) / LPI_TREES_SHARE;
}

/* Adds the space that the table assigns to the shard: whole chunks, and blocks of others' chunks.
 */
static int add_chunks(struct lp_shard *shard)
{
	uint32_t self_idx = shard->options.shard_idx;
	uint64_t bit_cnt = lp_chunks_chunk_blocks(shard->chunks);
	size_t bytes = lp_bitmap_word_cnt(bit_cnt) * sizeof(uint64_t);
	struct lp_chunk_blocks found;
	uint64_t *words = calloc(1, bytes);
	if (words == NULL)
		return -ENOMEM;
	lp_bitmap_init(&found.blocks, words, bit_cnt);
	int err = 0;
	for (uint32_t from = 0;
	     err == 0 && lp_chunks_find_blocks(shard->chunks, self_idx, from, &found);
	     from = found.chunk_idx + 1) {
		bool is_guest = found.home_idx != self_idx;
		bool is_whole = !is_guest && lp_bitmap_is_set(&found.blocks, 0, bit_cnt);
		err = is_whole ? lp_space_chunk_add(shard->space, found.chunk_idx)
			       : lp_space_blocks_add(shard->space, found.chunk_idx, is_guest,
						     &found.blocks);
		shard->lease_hint = found.chunk_idx + 1;
		memset(words, 0, bytes);
	}
	free(words);
	return err;
}

static int open_space(struct lp_shard *shard)
{
	const struct lp_disk_label *label = &shard->options.devices->label[LP_ROLE_DATA];
	const struct lp_space_config config = {
		.alloc_kind = shard->options.alloc_kind,
		.alloc_memory_max_bytes = trees_bytes_max(shard),
		.base_block = label->chunk_base,
		.chunk_blocks = label->chunk_blocks,
		.chunk_cnt_max = label->chunk_cnt,
		.low_water_blocks = LP_MIN(LPI_LOW_WATER_BLOCKS, (uint64_t)label->chunk_cnt *
									 label->chunk_blocks /
									 LPI_LOW_WATER_SHARE),
	};
	int err = lp_space_new(&config, &shard->space);
	if (err == 0)
		err = add_chunks(shard);
	return err == 0 ? load_records(shard) : err;
}

/* --- The log ---------------------------------------------------------------------------------- */

/* For a log of the largest size this is fewer than the log may hold; the caller that adds gets an
 * error then. */
static uint64_t limit_of(uint64_t cnt)
{
	return LP_MIN(cnt, (uint64_t)LP_POOL_OBJECTS_MAX);
}

static int open_log(struct lp_shard *shard)
{
	struct lp_log_options options = {
		.reactor = shard->options.reactor,
		.chan = shard->log_chan,
		.area = log_area(shard),
		.observer = shard->options.log_observer,
	};
	options.limits = lp_log_limits_for(options.area.ring_blocks);
	if (shard->options.log_records_max != 0)
		options.limits.records_max = shard->options.log_records_max;
	shard->limits = options.limits;
	/* Read-only, the log bounds the deferred payloads, whatever the limit was when it was
	 * written.
	 */
	uint64_t deferred = shard->options.deferred_blocks_max;
	if (shard->options.read_only)
		deferred = LP_MAX(deferred, options.area.ring_blocks);
	/* The index keeps at most one for each bad block, and pending two, because the next comes
	 * while the last is still there. */
	uint64_t records = 2 * (uint64_t)shard->options.bad_blocks_max;
	int err = lpi_shard_count_records(shard, &records);
	if (err == 0)
		err = lp_pending_new(limit_of(deferred + records), &shard->pending);
	/* A record may be replaced by another before it is deleted, and a replay may add the
	 * records of frames. */
	if (err == 0 && !shard->options.read_only)
		err = lp_deferrals_new(shard->space,
				       limit_of(2 * deferred + records + options.area.ring_blocks),
				       &shard->deferrals);
	if (err == 0)
		err = lp_log_new(&options, &shard->log);
	/* Writes of a process that died may be in the device's cache only. Anything built on them
	 * must not become durable before them (rule L3). */
	if (err == 0 && !shard->options.read_only)
		err = lp_bdev_flush_sync(lp_bdev_of(shard->log_chan));
	return err == 0 ? lpi_shard_replay(shard) : err;
}

/* Write-back starts at this number of waiting payloads: no more than fit into the log when each
 * takes two of its blocks, as payloads that come one by one do. */
static uint64_t writeback_start(const struct lp_shard *shard)
{
	uint64_t start =
		LP_MIN(shard->options.deferred_blocks_max / 2, lp_log_tight_blocks(shard->log) / 3);
	return LP_MAX(start, UINT64_C(1));
}

static int open_pipeline(struct lp_shard *shard)
{
	shard->start_versions = writeback_start(shard);
	const struct lp_writeback_options writeback = {
		.reactor = shard->options.reactor,
		.chan = shard->data,
		.pending = shard->pending,
		.events = &shard->writeback_events,
		.start_versions = shard->start_versions,
		.wait_ns = WRITEBACK_WAIT_NS,
		.old_ns = WRITEBACK_OLD_NS,
		.observer = shard->options.writeback_observer,
	};
	struct lp_commit_options commit = {
		.reactor = shard->options.reactor,
		.log = shard->log,
		.kv = shard->kv,
		.events = &shard->commit_events,
		.limits = shard->limits,
		.hold_ns = shard->options.hold_ns,
		.applied = shard->recovery.last_seq,
	};
	commit.overlay = shard->overlay;
	int err = lp_writeback_new(&writeback, &shard->writeback);
	if (err == 0)
		err = lp_commit_new(&commit, &shard->commit);
	if (err == 0 && shard->options.sim_clock != NULL)
		lp_commit_set_inline_barrier(shard->commit, true);
	if (err == 0) {
		atomic_store(&shard->barrier_commit, shard->commit);
		lp_pending_set_events(shard->pending, &shard->pending_events);
		lp_deferrals_start(shard->deferrals, shard->commit);
	}
	return err;
}

static void discard(void *discards, struct lp_extent extent)
{
	lp_discards_add(discards, extent);
}

static int open_discards(struct lp_shard *shard)
{
	const struct lp_discards_options options = {
		.reactor = shard->options.reactor, .chan = shard->data, .space = shard->space};
	if (!shard->options.discard || !lp_bdev_caps(lp_bdev_of(shard->data))->can_discard)
		return 0;
	int err = lp_discards_new(&options, &shard->discards);
	if (err == 0)
		lp_space_tell_freed(shard->space, discard, shard->discards);
	return err;
}

static int open_all(struct lp_shard *shard)
{
	make_plan(shard);
	int err = open_channels(shard);
	if (err == 0)
		err = check_log_area(shard);
	if (err == 0)
		err = open_files(shard);
	if (err == 0)
		err = open_index(shard);
	if (err == 0)
		err = open_space(shard);
	if (err == 0)
		err = open_log(shard);
	if (err == 0)
		err = lp_overlay_new(OVERLAY_BUCKETS, 0, &shard->overlay);
	if (err == 0 && !shard->options.read_only)
		err = open_discards(shard);
	if (err == 0 && !shard->options.read_only)
		err = open_pipeline(shard);
	return err;
}

int lp_shard_open(const struct lp_shard_options *options, struct lp_shard **ret_shard)
{
	if (options->devices->read_only && !options->read_only)
		return -EROFS;
	LP_ASSERT(options->read_only || options->seq_end == 0);
	struct lp_shard *shard = calloc(1, sizeof(*shard));
	if (shard == NULL)
		return -ENOMEM;
	shard->options = *options;
	if (shard->options.deferred_blocks_max == 0)
		shard->options.deferred_blocks_max = DEFERRED_DEFAULT;
	shard->options.deferred_blocks_max =
		LP_MAX(shard->options.deferred_blocks_max, LP_SHARD_DEFERRED_MIN);
	if (shard->options.bad_blocks_max == 0)
		shard->options.bad_blocks_max = BAD_DEFAULT;
	uint64_t start_ns = lp_clock_mono_ns(lp_reactor_clock(options->reactor));
	shard->record = malloc(LP_SPACE_RECORD_BYTES_MAX);
	shard->change_bytes = malloc((size_t)LP_COMMIT_CHANGES_MAX * LP_LOG_CHANGE_SIZE);
	lpi_shard_init_running(shard);
	int err = shard->record == NULL || shard->change_bytes == NULL ? -ENOMEM : open_all(shard);
	if (err < 0) {
		/* The first error is the one that matters. */
		int ignored = lp_shard_close(shard, true);
		(void)ignored;
		return err;
	}
	shard->recovery.took_ns = lp_clock_mono_ns(lp_reactor_clock(options->reactor)) - start_ns;
	if (!shard->options.read_only)
		lpi_shard_begin(shard);
	*ret_shard = shard;
	return 0;
}

/* --- Aside ----------------------------------------------------------------------------------- */

static void close_channels(struct lp_shard *shard)
{
	if (shard->log_chan != shard->data)
		lp_bdev_detach(shard->log_chan);
	lp_bdev_detach(shard->data);
	for (uint32_t i = 0; i < LP_KV_CHANS_MAX; i++)
		lp_bdev_detach(shard->index_chans.chans[i]);
	shard->index_chans = (struct lp_kv_chans){.chans = {NULL}};
	shard->log_chan = NULL;
	shard->data = NULL;
}

static int open_on(struct lp_reactor *reactor, const struct lp_shard_options *options,
		   struct lp_shard **ret_shard)
{
	struct lp_shard_options own = *options;
	struct lp_shard *shard = NULL;
	int err = lp_reactor_start(reactor);
	own.reactor = reactor;
	if (err == 0)
		err = lp_shard_open(&own, &shard);
	if (err < 0)
		return err;
	LP_ASSERT(shard != NULL);
	/* The log has been read and is not needed any more. */
	lp_log_free(shard->log);
	shard->log = NULL;
	close_channels(shard);
	shard->options.reactor = NULL;
	*ret_shard = shard;
	return 0;
}

int lp_shard_open_aside(const struct lp_shard_options *options, struct lp_shard **ret_shard)
{
	struct lp_reactor *reactor = NULL;
	LP_ASSERT(options->read_only);
	int err = lp_reactor_new_like(options->reactor, "reopening", &reactor);
	if (err < 0)
		return err;
	err = open_on(reactor, options, ret_shard);
	lp_reactor_free(reactor);
	return err;
}

int lp_shard_adopt(struct lp_shard *shard, struct lp_reactor *reactor)
{
	LP_ASSERT(shard->options.read_only && shard->options.reactor == NULL);
	shard->options.reactor = reactor;
	lp_pending_rebind(shard->pending);
	return open_channels(shard);
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

/* Since when the index has made no progress, and why. */
struct patience {
	uint64_t since_ns;
	uint64_t progress;
	int err; /* 0: it is slow, but has not failed */
};

static bool is_over(struct lp_shard *shard, struct patience *patience)
{
	uint64_t now_ns = lp_reactor_now_ns(shard->options.reactor);
	uint64_t progress = shard->persisted_seq + lp_commit_inserted_seq(shard->commit) +
			    lp_commit_whole_seq(shard->commit);
	int err = lp_kv_error(shard->kv);
	if (err == 0)
		err = lp_kv_compact_error(shard->kv);
	if (patience->since_ns == 0 || progress != patience->progress)
		*patience = (struct patience){.since_ns = now_ns, .progress = progress};
	if (err < 0)
		patience->err = err;
	return patience->err < 0 && now_ns - patience->since_ns >= CLOSE_PATIENCE_NS;
}

/* 0, or why waiting is in vain. */
static int wait_idle(struct lp_shard *shard, struct patience *patience)
{
	while (!lp_commit_is_idle(shard->commit) && shard->error == 0) {
		if (is_over(shard, patience))
			return patience->err;
		lpi_shard_turn(shard);
	}
	return shard->error;
}

/* All payloads are in their blocks, or settled. */
static int land_pending(struct lp_shard *shard)
{
	const struct lp_pending_stats *stats = lp_pending_stats(shard->pending);
	while (stats->versions > stats->settled && shard->error == 0) {
		if (lp_writeback_is_full(shard->writeback))
			return -ENOSPC; /* the log keeps it */
		/* A payload that is being moved waits for its frame, not for write-back. */
		if (lp_writeback_is_idle(shard->writeback) && lp_commit_is_idle(shard->commit) &&
		    lp_pending_writable(shard->pending) > 0)
			lp_writeback_hurry(shard->writeback, UINT64_MAX);
		lpi_shard_turn(shard);
	}
	return shard->error;
}

/* The records of deferred payloads are deleted from the index, durably. */
static int wait_deletions(struct lp_shard *shard, struct patience *patience)
{
	while (!lp_deferrals_is_settled(shard->deferrals) && shard->error == 0) {
		if (is_over(shard, patience))
			return patience->err;
		lpi_shard_turn(shard);
	}
	return shard->error;
}

static int checkpoint(struct lp_shard *shard, struct patience *patience)
{
	while (lpi_shard_checkpoint_some(shard) && shard->error == 0) {
		if (is_over(shard, patience))
			return patience->err;
		lpi_shard_turn(shard);
	}
	return wait_idle(shard, patience);
}

/* All deferred index writes are done (rule L9). */
static int pay_all(struct lp_shard *shard, struct patience *patience)
{
	while (lp_commit_whole_seq(shard->commit) < lp_commit_inserted_seq(shard->commit) &&
	       shard->error == 0) {
		if (is_over(shard, patience))
			return patience->err;
		lp_commit_pay(shard->commit);
		lpi_shard_turn(shard);
	}
	return wait_idle(shard, patience);
}

/* False: not within the time allowed. */
static bool is_resumed(struct lp_shard *shard, struct patience *patience)
{
	lpi_shard_resume_later(shard);
	while (shard->error == 0 &&
	       (lp_kv_error(shard->kv) < 0 || lp_timer_is_armed(&shard->resume_timer))) {
		if (is_over(shard, patience))
			return false;
		lpi_shard_turn(shard);
	}
	while (!lpi_shard_is_quiet(shard))
		lpi_shard_turn(shard);
	return true;
}

/* After this has returned, no other part asks for a flush or a resume. */
static int flush_index(struct lp_shard *shard, struct patience *patience)
{
	while (!lpi_shard_is_quiet(shard))
		lpi_shard_turn(shard);
	shard->flush_work = (struct lp_work){.run = index_flush_run, .done = nothing_more};
	while (shard->error == 0) {
		lp_workers_submit(shard->options.workers, shard->options.reactor,
				  &shard->flush_work);
		while (!lpi_shard_is_quiet(shard))
			lpi_shard_turn(shard);
		if (shard->flush_result == 0)
			break;
		patience->err = shard->flush_result;
		if (!is_resumed(shard, patience))
			return patience->err;
	}
	return shard->error;
}

/* All changes are durable, in their blocks, and in the index's tables. */
static int settle(struct lp_shard *shard)
{
	struct patience patience = {.since_ns = 0};
	int err = wait_idle(shard, &patience);
	if (err == 0)
		err = land_pending(shard);
	if (err == 0)
		err = wait_deletions(shard, &patience);
	if (err == 0)
		err = checkpoint(shard, &patience);
	if (err == 0)
		err = pay_all(shard, &patience);
	if (err == 0)
		err = flush_index(shard, &patience);
	if (err < 0)
		return err;
	/* No frame of the log is needed any more: a last frame says so. */
	lpi_shard_trim(shard);
	lp_commit_trim(shard->commit);
	return wait_idle(shard, &patience);
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
		lpi_shard_turn(shard);
	return closing.closing.result;
}

void lp_shard_stop(struct lp_shard *shard)
{
	shard->closing = true;
	lpi_shard_stop_timers(shard);
	if (!lp_commit_is_idle(shard->commit) && lp_commit_error(shard->commit) == 0)
		lp_commit_abort(shard->commit);
	lp_commit_leave_index(shard->commit);
	lp_writeback_stop(shard->writeback);
}

bool lp_shard_is_stopped(const struct lp_shard *shard)
{
	return lp_commit_is_idle(shard->commit) && lp_writeback_is_idle(shard->writeback) &&
	       lpi_shard_is_quiet(shard) && lp_log_is_idle(shard->log);
}

/* Stops all activity, in order or at once. */
static int stop(struct lp_shard *shard, bool abandon)
{
	/* No space is given away while the shard makes its changes durable. */
	lpi_lend_stop(shard);
	int err = abandon ? 0 : settle(shard);
	lp_shard_stop(shard);
	while (!lp_shard_is_stopped(shard))
		lpi_shard_turn(shard);
	if (err == 0 && !abandon)
		err = close_log(shard);
	return err;
}

/* The index's jobs may still reach the barrier, and find nothing to wait for. */
static int close_index(struct lp_shard *shard)
{
	int err = lp_kv_close(shard->kv);
	shard->kv = NULL;
	return err;
}

void lp_shard_close_index(struct lp_shard *shard)
{
	LP_ASSERT(shard->error != 0 && shard->closing);
	/* Changes that the index could not write any more are in the log. */
	int ignored = close_index(shard);
	(void)ignored;
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
	int kv_err = close_index(shard);
	if (err == 0 && !abandon)
		err = kv_err;
	while (!lpi_shard_is_quiet(shard))
		lpi_shard_turn(shard);
	lp_commit_free(shard->commit);
	lp_writeback_free(shard->writeback);
	lp_log_free(shard->log);
	lp_pending_free(shard->pending);
	lp_bufs_free(shard->replay_bufs);
	lp_deferrals_free(shard->deferrals);
	lp_discards_free(shard->discards);
	lpi_bad_fini(shard);
	lp_space_free(shard->space);
	lp_overlay_free(shard->overlay);
	lp_kvfs_ro_free(shard->kvfs_ro);
	lp_blockfs_close(shard->files);
	close_channels(shard);
	free(shard->record);
	free(shard->change_bytes);
	(void)pthread_mutex_destroy(&shard->kv_reason_lock);
	free(shard);
	return err;
}
