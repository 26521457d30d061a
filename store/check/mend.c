/* SPDX-License-Identifier: Apache-2.0 */
/* Bits that flipped in what a shard must have to be opened: the journal of its index's files, the
 * blocks of these files, the frames of its log. A checksum says which bit it was, and that alone is
 * not believed: what was damaged in more than one bit may look so, too. Each is held against
 * something else before it is written back:
 *
 *   frames of the journal   number and sum of the frame before; the records fit to all before them
 *   frames of the log       number and sum of the frame before; each record, and each payload
 *   tables of the index     the library's own checksums of all their blocks
 *   other files of it       that nothing else of the file is wrong
 *
 * Files are looked at only where nothing of the journal is missing: a file that is gone may be
 * listed otherwise, and its blocks be another one's.
 *
 * Data of objects has one checksum and nothing else, so nothing of it is mended.
 */
#include <stdlib.h>
#include <string.h>

#include "store/check/fsck_impl.h"
#include "store/kvfs/memory.h"
#include "store/salvage/journal.h"
#include "store/salvage/mend_log.h"

/* A file with more of them is not one that some bits flipped in. */
#define FILE_BITS_MAX 16u

struct found_block {
	struct lp_bdev *bdev;
	uint64_t block;
	const char *what;
	uint8_t *bytes; /* aligned */
};

struct fsck_mender {
	struct lp_mender mender;
	struct lpi_fsck_shard *shard;
	int err; /* of a write */
	/* Of the file that is being read: until it is known to be right with them. */
	struct found_block blocks[FILE_BITS_MAX];
	uint32_t cnt;  /* may be more than that */
	bool is_alien; /* it names blocks that are not the shard's for files: not believed */
};

static void mend_block(struct fsck_mender *self, struct lp_bdev *bdev, uint64_t block,
		       const void *bytes, const char *what)
{
	struct lpi_fsck *fsck = self->shard->fsck;
	const struct lpi_fsck_at at = {
		.kind = LP_FSCK_BIT, .shard = self->shard, .is_repaired = !fsck->read_only};
	if (self->err < 0)
		return;
	if (!fsck->read_only)
		self->err = lp_bdev_write_sync(bdev, bytes, LP_BLOCK_BYTES, block * LP_BLOCK_BYTES,
					       true);
	if (self->err == 0)
		lpi_fsck_found(fsck, &at, "one bit has flipped in %s: block %llu of %s", what,
			       (unsigned long long)block, lp_bdev_name(bdev));
}

static void found_bit(struct lp_mender *mender, struct lp_bdev *bdev, uint64_t block,
		      const void *bytes, const char *what)
{
	mend_block(LP_CONTAINER_OF(mender, struct fsck_mender, mender), bdev, block, bytes, what);
}

/* --- Files ------------------------------------------------------------------------------------ */

/* The block is in a chunk that the shard has for files of its index: only there is it written. */
static bool is_of_files(const struct lpi_fsck_shard *shard, const struct lp_bdev *bdev,
			uint64_t block)
{
	const struct lp_devices *devices = &shard->fsck->devices;
	for (int i = 0; i < LP_ROLES; i++) {
		const struct lp_disk_label *label = &devices->label[i];
		if (devices->bdev[i] != bdev || devices->chunks[i] == NULL ||
		    block < label->chunk_base)
			continue;
		uint64_t chunk = (block - label->chunk_base) / label->chunk_blocks;
		return chunk < label->chunk_cnt &&
		       lp_chunks_find(devices->chunks[i], shard->idx, LP_CHUNK_USE_FILES,
				      (uint32_t)chunk) == chunk;
	}
	return false;
}

static void found_in_file(struct lp_mender *mender, struct lp_bdev *bdev, uint64_t block,
			  const void *bytes, const char *what)
{
	struct fsck_mender *self = LP_CONTAINER_OF(mender, struct fsck_mender, mender);
	uint8_t *copy = NULL;
	if (!is_of_files(self->shard, bdev, block)) {
		self->is_alien = true;
		return;
	}
	if (self->cnt < FILE_BITS_MAX) {
		copy = aligned_alloc(LP_BLOCK_BYTES, LP_BLOCK_BYTES);
		if (copy == NULL) {
			self->err = -ENOMEM;
			return;
		}
		memcpy(copy, bytes, LP_BLOCK_BYTES);
		self->blocks[self->cnt] = (struct found_block){bdev, block, what, copy};
	}
	self->cnt++;
}

static void forget_found(struct fsck_mender *self)
{
	for (uint32_t i = 0; i < LP_MIN(self->cnt, FILE_BITS_MAX); i++)
		free(self->blocks[i].bytes);
	self->cnt = 0;
	self->is_alien = false;
}

/* Whether the library takes these bytes for a table. -ENOMEM. */
static int table_is_right(const char *name, const uint8_t *bytes, size_t len)
{
	struct lp_kvfs_mem *mem = NULL;
	struct lp_kvfs_file *file = NULL;
	int err = lp_kvfs_mem_new(1, &mem);
	if (err < 0)
		return err;
	struct lp_kvfs *fs = lp_kvfs_mem_fs(mem);
	err = fs->ops->create(fs, name, &file);
	if (err == 0) {
		err = fs->ops->append(file, bytes, len);
		if (err == 0)
			err = fs->ops->sync(file);
		int close_err = fs->ops->close(file);
		err = err == 0 ? close_err : err;
	}
	if (err == 0)
		err = lp_kv_check_table(fs, name);
	lp_kvfs_mem_free(mem);
	return err == -ENOMEM ? err : err == 0;
}

/* A file as it is with the bits that were found. bad: blocks of which none is known. */
static int judge_file(struct fsck_mender *self, const char *path, const uint8_t *bytes, size_t len,
		      uint64_t bad)
{
	const char *slash = strrchr(path, '/');
	const char *name = slash != NULL ? slash + 1 : path;
	self->shard->has_bad_files = self->shard->has_bad_files || bad > 0;
	if (self->cnt == 0 || bad > 0 || self->is_alien)
		return 0;
	int is_right = self->cnt == 1;
	if (lp_kvfs_kind_of(name) == LP_KVFS_TABLE)
		is_right = self->cnt <= FILE_BITS_MAX ? table_is_right(name, bytes, len) : 0;
	self->shard->has_bad_files = self->shard->has_bad_files || is_right <= 0;
	for (uint32_t i = 0; is_right > 0 && i < self->cnt; i++)
		mend_block(self, self->blocks[i].bdev, self->blocks[i].block, self->blocks[i].bytes,
			   self->blocks[i].what);
	return is_right < 0 ? is_right : 0;
}

static int mend_file(struct fsck_mender *self, struct lp_blockfs_salvage *files, uint32_t idx)
{
	uint8_t *bytes = NULL;
	size_t len = 0;
	uint64_t bad = 0;
	int err = lp_blockfs_salvage_read(files, idx, &bytes, &len, &bad);
	if (err == 0 && self->err == 0)
		err = judge_file(self, lp_blockfs_salvage_name(files, idx), bytes, len, bad);
	forget_found(self);
	free(bytes);
	return err == 0 ? self->err : err;
}

static int mend_files(struct fsck_mender *self)
{
	const struct lp_devices *devices = &self->shard->fsck->devices;
	enum lp_device_role where = lp_devices_of_files(devices);
	uint32_t shard_idx = self->shard->idx;
	struct lp_blockfs_salvage *files = NULL;
	struct lp_blockfs_salvage_report report;
	struct lp_blockfs_options options = {
		.data.bdev = devices->bdev[LP_ROLE_DATA],
		.db.bdev = devices->bdev[LP_ROLE_DB],
		.journal_bdev = devices->bdev[where],
		.area = lp_label_files_area(&devices->label[where], shard_idx),
		.shard_idx = shard_idx};
	memcpy(options.store_uuid, devices->label[LP_ROLE_DATA].store_uuid,
	       sizeof(options.store_uuid));
	self->mender.mended = found_bit;
	int err = lp_blockfs_salvage_open(&options, &self->mender, &files, &report);
	if (err < 0)
		return err;
	self->mender.mended = found_in_file;
	for (uint32_t i = 0; err == 0 && report.is_whole && i < report.file_cnt; i++)
		err = mend_file(self, files, i);
	lp_blockfs_salvage_close(files);
	return err;
}

/* --- Both ------------------------------------------------------------------------------------- */

int lpi_fsck_mend(struct lpi_fsck_shard *shard)
{
	const struct lp_devices *devices = &shard->fsck->devices;
	enum lp_device_role where = lp_devices_of_log(devices);
	struct fsck_mender mender = {.shard = shard};
	int err = mend_files(&mender);
	mender.mender.mended = found_bit;
	if (err == 0)
		err = lp_log_mend(devices->bdev[where],
				  lp_label_log_area(&devices->label[where], shard->idx), shard->idx,
				  &mender.mender);
	/* What cannot be read of a log is found again by who opens it. */
	if (err == -ENOMEM)
		return err;
	return mender.err;
}
