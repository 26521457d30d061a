/* SPDX-License-Identifier: Apache-2.0 */
/* Shard by shard: the tables among the files of its index, or, where the list of these files is
 * damaged, all chunks that it has for files; then its log. Nothing of a shard is opened as a daemon
 * opens it, so nothing that is damaged keeps the rest from being read.
 */
#include "store/salvage/salvage.h"

#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/error.h"
#include "store/extmap/leaf.h"
#include "store/log/format.h"
#include "store/salvage/journal.h"
#include "store/salvage/salvage_impl.h"
#include "store/salvage/table.h"
#include "store/volume/chunks.h"

#define WINDOW_BYTES  (UINT64_C(16) << 20)
#define OVERLAP_BYTES (UINT64_C(1) << 20) /* more than any block of a table */
#define CACHE_BYTES   (UINT64_C(16) << 20)
#define BUFFER_BYTES  (UINT64_C(16) << 20)
#define BATCH_BYTES   8192u

void lpi_salvage_read_blocks(struct lp_bdev *bdev, uint8_t *bytes, uint64_t block, uint64_t cnt)
{
	uint64_t device_blocks = bdev != NULL ? lp_bdev_caps(bdev)->size_bytes / LP_BLOCK_BYTES : 0;
	bool is_there = block < device_blocks && cnt <= device_blocks - block;
	if (is_there &&
	    lp_bdev_read_sync(bdev, bytes, cnt * LP_BLOCK_BYTES, block * LP_BLOCK_BYTES) == 0)
		return;
	for (uint64_t i = 0; i < cnt; i++) {
		uint8_t *at = bytes + i * LP_BLOCK_BYTES;
		if (block + i >= device_blocks ||
		    lp_bdev_read_sync(bdev, at, LP_BLOCK_BYTES, (block + i) * LP_BLOCK_BYTES) < 0)
			memset(at, 0, LP_BLOCK_BYTES);
	}
}

/* --- Tables ----------------------------------------------------------------------------------- */

struct visit {
	struct lp_salvage_visitor visitor;
	struct lp_salvage *salvage;
};

static int see_record(struct lp_salvage_visitor *visitor, const struct lp_salvage_record *record)
{
	const struct lp_kv_bytes nothing = {NULL, 0};
	struct lp_kv_bytes value = record->value;
	if (value.data == NULL)
		value.data = "";
	return lpi_salvage_add(LP_CONTAINER_OF(visitor, struct visit, visitor)->salvage,
			       record->key, record->is_deletion ? nothing : value,
			       record->sequence);
}

static int scan(struct lp_salvage *salvage, const uint8_t *bytes, size_t len)
{
	struct visit visit = {.visitor = {.record = see_record}, .salvage = salvage};
	struct lp_salvage_table_report report = {.blocks = 0};
	int err = lp_salvage_table_scan(bytes, len, &visit.visitor, &report);
	salvage->report.table_blocks += report.blocks;
	salvage->report.records += report.records;
	return err;
}

static bool is_table(const char *name)
{
	size_t len = strlen(name);
	return len > 4 && strcmp(name + len - 4, ".sst") == 0;
}

static int scan_files(struct lp_salvage *salvage, struct lp_blockfs_salvage *files,
		      uint32_t file_cnt)
{
	int err = 0;
	for (uint32_t i = 0; i < file_cnt && err == 0; i++) {
		uint8_t *bytes = NULL;
		size_t len = 0;
		uint64_t bad = 0;
		if (!is_table(lp_blockfs_salvage_name(files, i)))
			continue;
		err = lp_blockfs_salvage_read(files, i, &bytes, &len, &bad);
		if (err == 0)
			err = scan(salvage, bytes, len);
		salvage->report.tables++;
		salvage->report.bad_blocks += bad;
		free(bytes);
	}
	return err;
}

/* In windows that overlap, so that each block of a table is whole in one of them. */
static int scan_chunk(struct lp_salvage *salvage, struct lp_bdev *bdev, struct lp_extent extent,
		      uint8_t *window)
{
	uint64_t step = (WINDOW_BYTES - OVERLAP_BYTES) / LP_BLOCK_BYTES;
	int err = 0;
	for (uint64_t done = 0; done < extent.cnt && err == 0; done += step) {
		uint64_t cnt = LP_MIN(extent.cnt - done, WINDOW_BYTES / LP_BLOCK_BYTES);
		lpi_salvage_read_blocks(bdev, window, extent.block + done, cnt);
		err = scan(salvage, window, cnt * LP_BLOCK_BYTES);
	}
	return err;
}

static int scan_chunks_of(struct lp_salvage *salvage, enum lp_device_role device, uint8_t *window)
{
	const struct lp_disk_label *label = &salvage->label[device];
	const struct lp_chunks_options options = {.label = label, .read_only = true};
	struct lp_bdev *bdev = salvage->options.bdev[device];
	struct lp_chunks *chunks = NULL;
	if (bdev == NULL || label->chunk_cnt == 0)
		return 0;
	int err = lp_chunks_open(bdev, &options, &chunks);
	if (err < 0)
		return err == -ENOMEM ? err : 0;
	uint32_t idx = lp_chunks_find(chunks, salvage->shard_idx, LP_CHUNK_USE_FILES, 0);
	while (idx != LP_CHUNK_NONE && err == 0) {
		const struct lp_extent extent = {label->chunk_base +
							 (uint64_t)idx * label->chunk_blocks,
						 label->chunk_blocks};
		err = scan_chunk(salvage, bdev, extent, window);
		idx = lp_chunks_find(chunks, salvage->shard_idx, LP_CHUNK_USE_FILES, idx + 1);
	}
	lp_chunks_close(chunks);
	return err;
}

static int scan_chunks(struct lp_salvage *salvage)
{
	uint8_t *window = aligned_alloc(LP_BLOCK_BYTES, WINDOW_BYTES);
	if (window == NULL)
		return -ENOMEM;
	int err = scan_chunks_of(salvage, LP_ROLE_DATA, window);
	if (err == 0)
		err = scan_chunks_of(salvage, LP_ROLE_DB, window);
	free(window);
	return err;
}

struct counting {
	struct lp_mender mender;
	struct lp_salvage *salvage;
};

static void count_mended(struct lp_mender *mender, struct lp_bdev *bdev, uint64_t block,
			 const void *bytes, const char *what)
{
	(void)bdev; /* nothing is written */
	(void)block;
	(void)bytes;
	(void)what;
	LP_CONTAINER_OF(mender, struct counting, mender)->salvage->report.mended_bits++;
}

static int collect_tables(struct lp_salvage *salvage)
{
	struct counting counting = {.mender = {.mended = count_mended}, .salvage = salvage};
	enum lp_device_role where = salvage->files_bdev == salvage->options.bdev[LP_ROLE_DB]
					    ? LP_ROLE_DB
					    : LP_ROLE_DATA;
	struct lp_blockfs_salvage *files = NULL;
	struct lp_blockfs_salvage_report report;
	struct lp_blockfs_options options = {
		.data.bdev = salvage->options.bdev[LP_ROLE_DATA],
		.db.bdev = salvage->options.bdev[LP_ROLE_DB],
		.journal_bdev = salvage->files_bdev,
		.area = lp_label_files_area(&salvage->label[where], salvage->shard_idx),
		.shard_idx = salvage->shard_idx};
	memcpy(options.store_uuid, salvage->label[LP_ROLE_DATA].store_uuid,
	       sizeof(options.store_uuid));
	int err = lp_blockfs_salvage_open(&options, &counting.mender, &files, &report);
	if (err < 0)
		return err;
	salvage->report.journal_lost = report.lost_frame_cnt;
	salvage->report.has_files = report.has_super;
	err = scan_files(salvage, files, report.file_cnt);
	lp_blockfs_salvage_close(files);
	if (err == 0 && (report.lost_frame_cnt > 0 || !report.has_super))
		err = scan_chunks(salvage);
	return err;
}

/* --- Opening ---------------------------------------------------------------------------------- */

static int collect_shard(struct lp_salvage *salvage, uint32_t idx, uint8_t *frame)
{
	salvage->shard_idx = idx;
	salvage->applied_order = 0;
	salvage->whole_seq = 0;
	salvage->report = (struct lp_salvage_shard_report){.tables = 0};
	int err = collect_tables(salvage);
	if (err == 0)
		err = lpi_salvage_log(salvage, frame);
	if (err == 0 && salvage->options.collected != NULL)
		salvage->options.collected(salvage->options.arg, idx, &salvage->report);
	return err;
}

static int collect(struct lp_salvage *salvage)
{
	uint32_t shard_cnt = salvage->label[LP_ROLE_DATA].shard_cnt;
	uint8_t *frame = aligned_alloc(LP_BLOCK_BYTES, LP_LOG_FRAME_BLOCKS_MAX * LP_BLOCK_BYTES);
	if (frame == NULL)
		return -ENOMEM;
	int err = 0;
	for (uint32_t i = 0; i < shard_cnt && err == 0; i++) {
		if (!salvage->options.for_index || i == salvage->options.shard_idx)
			err = collect_shard(salvage, i, frame);
	}
	free(frame);
	return err;
}

static int read_labels(struct lp_salvage *salvage, struct lp_label_why *why)
{
	int err = 0;
	for (int i = 0; i < LP_ROLES && err == 0; i++) {
		if (salvage->options.bdev[i] != NULL)
			err = lp_label_read(salvage->options.bdev[i], false, &salvage->label[i],
					    why);
	}
	bool has_wal = salvage->options.bdev[LP_ROLE_WAL] != NULL;
	bool has_db = salvage->options.bdev[LP_ROLE_DB] != NULL;
	salvage->log_bdev = salvage->options.bdev[has_wal ? LP_ROLE_WAL : LP_ROLE_DATA];
	salvage->files_bdev = salvage->options.bdev[has_db ? LP_ROLE_DB : LP_ROLE_DATA];
	return err;
}

int lp_salvage_open(const struct lp_salvage_options *options, struct lp_salvage **ret_salvage,
		    struct lp_label_why *why)
{
	const struct lp_kv_options of_kv = {.fs = options->scratch,
					    .cache_bytes = CACHE_BYTES,
					    .write_buffer_bytes = BUFFER_BYTES,
					    .create = true};
	struct lp_salvage *salvage = calloc(1, sizeof(*salvage));
	*why = (struct lp_label_why){.text = ""};
	if (salvage == NULL)
		return -ENOMEM;
	salvage->options = *options;
	salvage->blocks = aligned_alloc(LP_BLOCK_BYTES, LPI_SALVAGE_BLOCKS * LP_BLOCK_BYTES);
	salvage->value = malloc(LPI_SALVAGE_VALUE_MAX);
	int err = salvage->blocks == NULL || salvage->value == NULL ? -ENOMEM : 0;
	if (err == 0)
		err = read_labels(salvage, why);
	if (err == 0)
		err = lp_kv_batch_new(BATCH_BYTES, &salvage->batch);
	if (err == 0)
		err = lp_kv_open(&of_kv, &salvage->kv);
	if (err == 0)
		err = collect(salvage);
	if (err < 0) {
		lp_salvage_close(salvage);
		return err;
	}
	*ret_salvage = salvage;
	return 0;
}

void lp_salvage_close(struct lp_salvage *salvage)
{
	if (salvage == NULL)
		return;
	int err = lp_kv_close(salvage->kv);
	(void)err; /* it is thrown away */
	lp_kv_batch_free(salvage->batch);
	free(salvage->value);
	free(salvage->blocks);
	free(salvage);
}

/* --- Content ---------------------------------------------------------------------------------- */

struct content {
	struct lp_salvage *salvage;
	const struct lp_inode *inode;
	struct lp_salvage_reader *reader;
};

/* One block; bytes: what the device has there. */
static int give_block(const struct content *content, uint64_t logical, uint64_t device_block,
		      uint32_t crc, uint8_t *bytes)
{
	uint64_t offset = logical * LP_BLOCK_BYTES;
	uint64_t len = LP_MIN(content->inode->size_bytes - offset, (uint64_t)LP_BLOCK_BYTES);
	int is_right = lp_crc32c(0, bytes, LP_BLOCK_BYTES) == crc;
	if (!is_right)
		is_right = lpi_salvage_find_payload(content->salvage, device_block, crc, bytes);
	if (is_right < 0)
		return is_right;
	return is_right > 0 ? content->reader->data(content->reader, offset, bytes, len)
			    : content->reader->damage(content->reader, offset, len);
}

static int give_extent(const struct content *content, const struct lpi_leaf *leaf, uint64_t word)
{
	uint8_t *bytes = content->salvage->blocks;
	uint32_t cnt = lpi_word_cnt(word);
	int err = 0;
	if (lpi_word_is_unwritten(word))
		return 0;
	lpi_salvage_read_blocks(content->salvage->options.bdev[LP_ROLE_DATA], bytes,
				lpi_word_block(word), cnt);
	for (uint32_t i = 0; i < cnt && err == 0; i++) {
		uint32_t in_leaf = lpi_word_first(word) + i;
		uint64_t logical = (uint64_t)leaf->idx * LPI_LEAF_BLOCKS + in_leaf;
		if (logical * LP_BLOCK_BYTES >= content->inode->size_bytes)
			break; /* it was cut off */
		err = give_block(content, logical, lpi_word_block(word) + i,
				 lpi_leaf_crc(leaf, in_leaf), bytes + i * (size_t)LP_BLOCK_BYTES);
	}
	return err;
}

static int give_leaf(const struct content *content, uint32_t idx, struct lp_kv_bytes bytes)
{
	_Alignas(8) uint8_t memory[sizeof(struct lpi_leaf) +
				   LPI_LEAF_BLOCKS * (sizeof(uint64_t) + sizeof(uint32_t))];
	struct lpi_leaf *leaf = (struct lpi_leaf *)(void *)memory;
	uint32_t words = 0;
	uint32_t crcs_end = 0;
	int err = 0;
	if (lpi_leaf_check(bytes.data, bytes.len, content->inode->ino, idx, &words, &crcs_end) < 0)
		return 1;
	lpi_leaf_init(leaf, idx, LPI_LEAF_BLOCKS, LPI_LEAF_BLOCKS);
	lpi_leaf_decode(leaf, bytes.data, bytes.len);
	for (uint32_t i = 0; i < leaf->words_cnt && err == 0; i++)
		err = give_extent(content, leaf, leaf->words[i]);
	return err;
}

/* How many leaves there are, or an error. */
static int64_t give_leaves(const struct content *content)
{
	struct lp_kv_iter *iter = NULL;
	struct lp_key_range range;
	int64_t cnt = 0;
	lp_key_range_of_ino(&range, LP_KEY_SPACE_MAP, content->inode->ino);
	int err = lp_kv_iter_open(
		content->salvage->kv, (struct lp_kv_bytes){range.first.bytes, range.first.len},
		(struct lp_kv_bytes){range.end.bytes, range.end.len}, false, &iter);
	if (err < 0)
		return err;
	for (err = lp_kv_iter_seek_first(iter); err == 0; err = lp_kv_iter_next(iter)) {
		struct lp_kv_bytes key = lp_kv_iter_key(iter);
		struct lp_kv_bytes value = lpi_salvage_strip(lp_kv_iter_value(iter));
		struct lp_key_view view;
		if (value.data == NULL || lp_key_parse(key.data, key.len, &view) < 0)
			continue;
		int result = give_leaf(content, (uint32_t)(view.number >> LPI_LEAF_SHIFT), value);
		if (result < 0) {
			err = result;
			break;
		}
		cnt += result == 0;
	}
	lp_kv_iter_close(iter);
	return err == -ENOENT ? cnt : err;
}

int lp_salvage_read(struct lp_salvage *salvage, const struct lp_inode *inode,
		    struct lp_salvage_reader *reader)
{
	const struct content content = {salvage, inode, reader};
	struct lp_extmap_root root;
	if (inode->content.len > 0)
		return reader->data(reader, 0, inode->content.at, inode->content.len);
	if (inode->map.len < LP_EXTMAP_ROOT_SIZE)
		return inode->map.len > 0;
	lp_extmap_root_decode(inode->map.at, &root);
	if (root.kind == LP_EXTMAP_KIND_INLINE)
		return give_leaf(&content, 0,
				 (struct lp_kv_bytes){inode->map.at + LP_EXTMAP_ROOT_SIZE,
						      inode->map.len - LP_EXTMAP_ROOT_SIZE});
	int64_t cnt = give_leaves(&content);
	return cnt < 0 ? (int)cnt : cnt < root.leaves_cnt;
}

int lp_salvage_each_key(struct lp_salvage *salvage, struct lp_ino ino, enum lp_key_space space,
			int (*each)(void *arg, struct lp_kv_bytes name, struct lp_kv_bytes value),
			void *arg)
{
	struct lp_kv_iter *iter = NULL;
	struct lp_key_range range;
	lp_key_range_of_ino(&range, space, ino);
	int err = lp_kv_iter_open(
		salvage->kv, (struct lp_kv_bytes){range.first.bytes, range.first.len},
		(struct lp_kv_bytes){range.end.bytes, range.end.len}, false, &iter);
	if (err < 0)
		return err;
	int result = 0;
	for (err = lp_kv_iter_seek_first(iter); err == 0 && result == 0;
	     err = lp_kv_iter_next(iter)) {
		struct lp_kv_bytes key = lp_kv_iter_key(iter);
		struct lp_kv_bytes value = lpi_salvage_strip(lp_kv_iter_value(iter));
		struct lp_key_view view;
		if (value.data != NULL && lp_key_parse(key.data, key.len, &view) == 0)
			result = each(arg, (struct lp_kv_bytes){view.name, view.name_len}, value);
	}
	lp_kv_iter_close(iter);
	return result < 0 ? result : (err == -ENOENT || err == 0 ? 0 : err);
}
