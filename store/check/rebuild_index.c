/* SPDX-License-Identifier: Apache-2.0 */
/* The index of a shard that does not open, made anew in a copy of the store. What it is made of is
 * read from the store that was copied, which stays as it is: records out of the tables that are
 * whole, out of whole blocks of others, and out of the log (store/salvage/salvage.h).
 *
 * In this order, all of it on the copy:
 *   payloads   what waited in the log is written to its place, for the new log has nothing
 *   log, files formatted, as by mkfs
 *   index      the records; and of each chunk, that all of it is in use
 *
 * Then the shard is opened as ever, and checked and repaired as ever. The check frees what no map
 * names, counts entries and references, and says by name what is lost.
 *
 * A number of an inode is never given again (rule N5). The record that says how far they were
 * given may be lost, and so may the inodes of the last ones. So the new one is far beyond all that
 * are known. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "base/endian.h"
#include "base/error.h"
#include "store/blockfs/blockfs.h"
#include "store/check/fsck_impl.h"
#include "store/extmap/leaf.h"
#include "store/kvfs/blockfs.h"
#include "store/log/limits.h"
#include "store/log/log.h"
#include "store/salvage/salvage.h"
#include "store/space/record.h"
#include "store/space/space.h"

#define BATCH_BYTES (UINT32_C(256) << 10)
#define BATCH_MAX   1024u /* records */
#define STALL_US    1000u
/* More than any store has given since a record of theirs was lost. */
#define INO_AHEAD (UINT64_C(1) << 32)

struct rebuild {
	struct lpi_fsck_shard *shard;
	struct lp_salvage *salvage;
	struct lp_salvage_shard_report report;
	/* Sorted: blocks whose content may have to be written. */
	uint64_t *payloads;
	size_t payload_cnt;
	size_t payload_room;
	uint8_t *block;
	uint8_t *other; /* two blocks, to compare */
	/* The new index. */
	struct lp_blockfs *files;
	struct lp_kvfs_blockfs kvfs;
	struct lp_kv *kv;
	struct lp_kv_batch *batch;
	uint64_t record_cnt;
	uint64_t ino_max; /* counter of the largest number that is known */
};

/* --- Payloads --------------------------------------------------------------------------------- */

static int note_payload(void *arg, uint64_t block)
{
	struct rebuild *rebuild = arg;
	if (rebuild->payload_cnt == rebuild->payload_room) {
		size_t room = LP_MAX(2 * rebuild->payload_room, (size_t)256);
		uint64_t *more = reallocarray(rebuild->payloads, room, sizeof(*more));
		if (more == NULL)
			return -ENOMEM;
		rebuild->payloads = more;
		rebuild->payload_room = room;
	}
	rebuild->payloads[rebuild->payload_cnt++] = block;
	return 0;
}

static int by_number(const void *a, const void *b)
{
	uint64_t one = *(const uint64_t *)a;
	uint64_t other = *(const uint64_t *)b;
	return one < other ? -1 : one > other;
}

/* The block that a map names, if it waited: what belongs there, unless it is there. */
static int settle_block(struct rebuild *rebuild, uint64_t block, uint32_t crc)
{
	struct lp_bdev *bdev = rebuild->shard->fsck->devices.bdev[LP_ROLE_DATA];
	if (bsearch(&block, rebuild->payloads, rebuild->payload_cnt, sizeof(block), by_number) ==
	    NULL)
		return 0;
	if (lp_bdev_read_sync(bdev, rebuild->other, LP_BLOCK_BYTES, block * LP_BLOCK_BYTES) == 0 &&
	    lp_crc32c(0, rebuild->other, LP_BLOCK_BYTES) == crc)
		return 0;
	int found = lp_salvage_find_payload(rebuild->salvage, block, crc, rebuild->block);
	if (found <= 0)
		return found;
	return lp_bdev_write_sync(bdev, rebuild->block, LP_BLOCK_BYTES, block * LP_BLOCK_BYTES,
				  false);
}

static int settle_leaf(struct rebuild *rebuild, const struct lpi_leaf *leaf)
{
	const struct lp_disk_label *label = &rebuild->shard->fsck->devices.label[LP_ROLE_DATA];
	int err = 0;
	for (uint32_t i = 0; i < leaf->words_cnt && err == 0; i++) {
		uint64_t word = leaf->words[i];
		for (uint32_t j = 0; j < lpi_word_cnt(word) && err == 0; j++) {
			uint64_t block = lpi_word_block(word) + j;
			if (lpi_word_is_unwritten(word) || block < label->chunk_base ||
			    block >= label->size_blocks - 1)
				continue;
			err = settle_block(rebuild, block,
					   lpi_leaf_crc(leaf, lpi_word_first(word) + j));
		}
	}
	return err;
}

/* The leaf of a record, if it is one: of an inode whose map is in it, or a piece of a map. */
static int settle_record(void *arg, struct lp_kv_bytes key, struct lp_kv_bytes value)
{
	struct rebuild *rebuild = arg;
	struct lpi_fsck_leaf memory;
	struct lp_extmap_root root;
	struct lp_key_view view;
	struct lp_inode inode;
	const struct lpi_leaf *leaf = NULL;
	if (lp_key_parse(key.data, key.len, &view) < 0)
		return 0;
	if (view.space == LP_KEY_SPACE_MAP) {
		leaf = lpi_fsck_leaf_read(&memory, value, view.ino, view.number);
	} else if (view.space == LP_KEY_SPACE_INODE &&
		   lp_inode_decode(value.data, value.len, view.ino, &inode) == 0 &&
		   inode.map.len >= LP_EXTMAP_ROOT_SIZE) {
		lp_extmap_root_decode(inode.map.at, &root);
		if (root.kind == LP_EXTMAP_KIND_INLINE)
			leaf = lpi_fsck_leaf_read(
				&memory,
				(struct lp_kv_bytes){inode.map.at + LP_EXTMAP_ROOT_SIZE,
						     inode.map.len - LP_EXTMAP_ROOT_SIZE},
				view.ino, 0);
	}
	return leaf != NULL ? settle_leaf(rebuild, leaf) : 0;
}

static int settle_payloads(struct rebuild *rebuild)
{
	int err = lp_salvage_each_payload(rebuild->salvage, note_payload, rebuild);
	if (err < 0 || rebuild->payload_cnt == 0)
		return err;
	qsort(rebuild->payloads, rebuild->payload_cnt, sizeof(uint64_t), by_number);
	return lp_salvage_each_record(rebuild->salvage, settle_record, rebuild);
}

/* --- Formats ---------------------------------------------------------------------------------- */

static int format_log(const struct lpi_fsck_shard *shard)
{
	const struct lp_devices *devices = &shard->fsck->devices;
	enum lp_device_role device = lp_devices_of_log(devices);
	const struct lp_disk_label *label = &devices->label[device];
	struct lp_extent extent = lp_label_log_area(label, shard->idx);
	struct lp_log_area area = {.block = extent.block,
				   .ring_blocks = extent.cnt - LP_LOG_SLOT_CNT,
				   .shard = shard->idx};
	memcpy(area.store_uuid, label->store_uuid, sizeof(area.store_uuid));
	const struct lp_log_limits limits = lp_log_limits_for(area.ring_blocks);
	return lp_log_format(devices->bdev[device], &area, &limits,
			     shard->fsck->options->rebuild->salt + shard->idx);
}

static int open_files(struct rebuild *rebuild)
{
	const struct lp_devices *devices = &rebuild->shard->fsck->devices;
	enum lp_device_role where = lp_devices_of_files(devices);
	struct lp_blockfs_options options = {
		.data = {devices->bdev[LP_ROLE_DATA], devices->chunks[LP_ROLE_DATA]},
		.db = {devices->bdev[LP_ROLE_DB], devices->chunks[LP_ROLE_DB]},
		.journal_bdev = devices->bdev[where],
		.area = lp_label_files_area(&devices->label[where], rebuild->shard->idx),
		.shard_idx = rebuild->shard->idx,
		.reserve_bytes = rebuild->shard->fsck->options->files_reserve_bytes};
	memcpy(options.store_uuid, devices->label[LP_ROLE_DATA].store_uuid,
	       sizeof(options.store_uuid));
	int err = lp_blockfs_format(&options);
	return err < 0 ? err : lp_blockfs_open(&options, &rebuild->files);
}

/* --- The index -------------------------------------------------------------------------------- */

static int write_batch(struct rebuild *rebuild)
{
	int err = -EAGAIN;
	while (err == -EAGAIN) {
		err = lp_kv_write(rebuild->kv, rebuild->batch);
		if (err == -EAGAIN && rebuild->shard->fsck->options->sim_clock != NULL)
			(void)lp_kv_sim_run_one(rebuild->kv);
		else if (err == -EAGAIN)
			(void)usleep(STALL_US); /* its flushes run on other threads */
	}
	lp_kv_batch_clear(rebuild->batch);
	return err;
}

static int put(struct rebuild *rebuild, struct lp_kv_bytes key, struct lp_kv_bytes value)
{
	int err = lp_kv_batch_put(rebuild->batch, key, value);
	bool is_full = lp_kv_batch_cnt(rebuild->batch) >= BATCH_MAX ||
		       lp_kv_batch_data(rebuild->batch).len >= BATCH_BYTES;
	return err == 0 && is_full ? write_batch(rebuild) : err;
}

static void note_ino(struct rebuild *rebuild, struct lp_ino ino)
{
	if (lp_ino_shard(ino) == rebuild->shard->idx)
		rebuild->ino_max = LP_MAX(rebuild->ino_max, ino.nr & (LP_INO_COUNTER_END - 1));
}

static bool is_bound(const struct lp_key_view *view)
{
	static const char name[] = "inodes";
	return view->space == LP_KEY_SPACE_STORE && view->name_len == sizeof(name) - 1 &&
	       memcmp(view->name, name, sizeof(name) - 1) == 0;
}

static int put_record(void *arg, struct lp_kv_bytes key, struct lp_kv_bytes value)
{
	struct rebuild *rebuild = arg;
	struct lp_dirent_value entry;
	struct lp_key_view view;
	struct lp_key copy = {.len = key.len};
	if (key.len > sizeof(copy.bytes) || lp_key_parse(key.data, key.len, &view) < 0)
		return 0;
	memcpy(copy.bytes, key.data, key.len);
	note_ino(rebuild, view.ino);
	if (view.space == LP_KEY_SPACE_DIRENT &&
	    lp_dirent_read(value.data, value.len, &copy, &entry) == 0)
		note_ino(rebuild, (struct lp_ino){entry.ino});
	if (is_bound(&view)) {
		if (value.len == sizeof(uint64_t))
			rebuild->ino_max = LP_MAX(rebuild->ino_max, lp_get_le64(value.data));
		return 0;
	}
	rebuild->record_cnt++;
	return put(rebuild, key, value);
}

static int put_bound(struct rebuild *rebuild)
{
	uint8_t value[sizeof(uint64_t)];
	struct lp_key key;
	lp_key_of_store(&key, "inodes");
	lp_put_le64(value, LP_MIN(rebuild->ino_max + INO_AHEAD, LP_INO_COUNTER_END - 1));
	return put(rebuild, (struct lp_kv_bytes){key.bytes, key.len},
		   (struct lp_kv_bytes){value, sizeof(value)});
}

/* All blocks of the chunks that the shard has for objects. */
static int put_space(struct rebuild *rebuild)
{
	struct lp_chunks *chunks = rebuild->shard->fsck->devices.chunks[LP_ROLE_DATA];
	uint64_t bit_cnt = lp_chunks_chunk_blocks(chunks);
	size_t bytes = lp_bitmap_word_cnt(bit_cnt) * sizeof(uint64_t);
	uint64_t *words = calloc(1, bytes);
	uint8_t *value = malloc(LP_SPACE_RECORD_BYTES_MAX);
	struct lp_chunk_blocks found;
	int err = words == NULL || value == NULL ? -ENOMEM : 0;
	if (err == 0)
		lp_bitmap_init(&found.blocks, words, bit_cnt);
	for (uint32_t from = 0;
	     err == 0 && lp_chunks_find_blocks(chunks, rebuild->shard->idx, from, &found);
	     from = found.chunk_idx + 1) {
		const struct lpi_space_record record = {.chunk = found.chunk_idx,
							.used = found.blocks};
		struct lp_key key;
		lp_key_of_store_number(&key, "alloc", found.chunk_idx);
		err = put(rebuild, (struct lp_kv_bytes){key.bytes, key.len},
			  (struct lp_kv_bytes){value, lpi_space_record_encode(&record, value)});
		memset(words, 0, bytes);
	}
	free(words);
	free(value);
	return err;
}

static int fill_index(struct rebuild *rebuild)
{
	int err = lp_salvage_each_record(rebuild->salvage, put_record, rebuild);
	if (err == 0)
		err = put_bound(rebuild);
	if (err == 0)
		err = put_space(rebuild);
	if (err == 0)
		err = write_batch(rebuild);
	return err == 0 ? lp_kv_flush_wait(rebuild->kv) : err;
}

static int make_index(struct rebuild *rebuild)
{
	const struct lp_fsck_options *options = rebuild->shard->fsck->options;
	int err = open_files(rebuild);
	if (err < 0)
		return err;
	lp_kvfs_blockfs_init(&rebuild->kvfs, rebuild->files);
	const struct lp_kv_options of_kv = {.fs = &rebuild->kvfs.kvfs,
					    .sim_clock = options->sim_clock,
					    .cache_bytes = options->index_cache_bytes,
					    .write_buffer_bytes = options->index_buffer_bytes,
					    .create = true};
	err = lp_kv_open(&of_kv, &rebuild->kv);
	if (err == 0)
		err = fill_index(rebuild);
	int close_err = lp_kv_close(rebuild->kv);
	rebuild->kv = NULL;
	lp_blockfs_close(rebuild->files);
	rebuild->files = NULL;
	return err == 0 ? close_err : err;
}

/* --- All of it -------------------------------------------------------------------------------- */

static void note_report(void *arg, uint32_t shard_idx, const struct lp_salvage_shard_report *report)
{
	struct rebuild *rebuild = arg;
	LP_ASSERT(shard_idx == rebuild->shard->idx);
	rebuild->report = *report;
}

static int write_all(struct rebuild *rebuild)
{
	const struct lp_devices *devices = &rebuild->shard->fsck->devices;
	int err = settle_payloads(rebuild);
	if (err == 0)
		err = lp_bdev_flush_sync(devices->bdev[LP_ROLE_DATA]);
	if (err == 0)
		err = format_log(rebuild->shard);
	if (err == 0)
		err = make_index(rebuild);
	for (int i = 0; i < LP_ROLES && err == 0; i++) {
		if (devices->bdev[i] != NULL)
			err = lp_bdev_flush_sync(devices->bdev[i]);
	}
	return err;
}

/* The first name, and no more. */
static int take_name(const char *name, void *arg)
{
	(void)snprintf(arg, LP_KVFS_NAME_MAX + 1, "%s", name);
	return 1;
}

/* One by one: nothing may be removed while names are listed. */
static int empty_scratch(struct lp_kvfs *fs)
{
	char name[LP_KVFS_NAME_MAX + 1];
	int err = fs->ops->list(fs, take_name, name);
	while (err > 0) {
		err = fs->ops->remove(fs, name);
		if (err == 0)
			err = fs->ops->list(fs, take_name, name);
	}
	return err;
}

/* What is known to be missing in what the index was made of. Where that had names, those are found
 * by the check, as far as anything is left that says them. */
static void tell(const struct rebuild *rebuild)
{
	const struct lp_salvage_shard_report *report = &rebuild->report;
	struct lpi_fsck *fsck = rebuild->shard->fsck;
	struct lpi_fsck_at at = {
		.kind = LP_FSCK_SHARD, .shard = rebuild->shard, .is_repaired = true};
	lpi_fsck_found(fsck, &at,
		       "its index was made anew, of %llu records: %llu tables and %llu frames of "
		       "the log were read",
		       (unsigned long long)rebuild->record_cnt, (unsigned long long)report->tables,
		       (unsigned long long)report->log_frames);
	at.is_repaired = false;
	if (!report->has_log)
		lpi_fsck_found(fsck, &at,
			       "nothing of its log can be read: what it had acknowledged since the "
			       "index was last written is lost");
	if (report->log_lost > 0)
		lpi_fsck_found(fsck, &at,
			       "%llu frames of its log are damaged: what they had acknowledged is "
			       "lost, unless the index had it",
			       (unsigned long long)report->log_lost);
	if (report->bad_blocks + report->bad_records > 0)
		lpi_fsck_found(fsck, &at,
			       "%llu blocks of its tables and %llu records are damaged: what is "
			       "not elsewhere is lost",
			       (unsigned long long)report->bad_blocks,
			       (unsigned long long)report->bad_records);
	at.is_warning = true;
	if (!report->has_files || report->journal_lost > 0)
		lpi_fsck_found(fsck, &at,
			       "the list of its index's files is damaged: what was removed may be "
			       "there again");
}

int lpi_fsck_rebuild(struct lpi_fsck_shard *shard)
{
	const struct lp_fsck_rebuild *from = shard->fsck->options->rebuild;
	struct rebuild rebuild = {.shard = shard};
	struct lp_salvage_options options = {.scratch = from->scratch,
					     .for_index = true,
					     .shard_idx = shard->idx,
					     .collected = note_report,
					     .arg = &rebuild};
	struct lp_label_why why;
	LP_ASSERT(!shard->fsck->read_only);
	for (int i = 0; i < LP_ROLES; i++)
		options.bdev[i] = from->bdev[i];
	rebuild.block = aligned_alloc(LP_BLOCK_BYTES, LP_BLOCK_BYTES);
	rebuild.other = aligned_alloc(LP_BLOCK_BYTES, LP_BLOCK_BYTES);
	int err = rebuild.block == NULL || rebuild.other == NULL ? -ENOMEM : 0;
	if (err == 0)
		err = lp_kv_batch_new(BATCH_BYTES, &rebuild.batch);
	if (err == 0)
		err = lp_salvage_open(&options, &rebuild.salvage, &why);
	if (err == 0)
		err = write_all(&rebuild);
	lp_salvage_close(rebuild.salvage);
	lp_kv_batch_free(rebuild.batch);
	free(rebuild.payloads);
	free(rebuild.block);
	free(rebuild.other);
	if (err == 0)
		err = empty_scratch(from->scratch);
	if (err == 0)
		tell(&rebuild);
	return err;
}
