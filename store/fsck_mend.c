/* SPDX-License-Identifier: Apache-2.0 */
/* Bits that flipped in what a shard must have to be opened: the journal of its index's files, the
 * blocks of these files, the frames of its log. Each has a checksum, and something else that what
 * is found is held against: the frame before and after it, or the library's own checksum of the
 * same bytes. So before the shard is opened the bit is known, and a repair flips it back.
 *
 * Data of objects has one checksum and nothing else, so nothing of it is mended.
 */
#include <stdlib.h>
#include <string.h>

#include "store/blockfs_salvage.h"
#include "store/fsck_impl.h"
#include "store/log_mend.h"

struct fsck_mender {
	struct lp_mender mender;
	struct lpi_fsck_shard *shard;
	int err; /* of a write */
};

static void found_bit(struct lp_mender *mender, struct lp_bdev *bdev, uint64_t block,
		      const void *bytes, const char *what)
{
	struct fsck_mender *self = LP_CONTAINER_OF(mender, struct fsck_mender, mender);
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

static int mend_files(struct lpi_fsck_shard *shard, struct lp_mender *mender)
{
	const struct lp_devices *devices = &shard->fsck->devices;
	enum lp_mkfs_device where = lp_devices_of_files(devices);
	struct lp_blockfs_salvage *files = NULL;
	struct lp_blockfs_salvage_report report;
	struct lp_blockfs_options options = {
		.data.bdev = devices->bdev[LP_MKFS_DATA],
		.db.bdev = devices->bdev[LP_MKFS_DB],
		.journal_bdev = devices->bdev[where],
		.area = lp_label_files_area(&devices->label[where], shard->idx),
		.shard_idx = shard->idx};
	memcpy(options.store_uuid, devices->label[LP_MKFS_DATA].store_uuid,
	       sizeof(options.store_uuid));
	int err = lp_blockfs_salvage_open(&options, mender, &files, &report);
	for (uint32_t i = 0; err == 0 && i < report.file_cnt; i++) {
		uint8_t *bytes = NULL;
		size_t len = 0;
		uint64_t bad = 0;
		err = lp_blockfs_salvage_read(files, i, &bytes, &len, &bad);
		free(bytes);
	}
	lp_blockfs_salvage_close(files);
	return err;
}

int lpi_fsck_mend(struct lpi_fsck_shard *shard)
{
	const struct lp_devices *devices = &shard->fsck->devices;
	enum lp_mkfs_device where = lp_devices_of_log(devices);
	struct fsck_mender mender = {.mender = {.mended = found_bit}, .shard = shard};
	int err = mend_files(shard, &mender.mender);
	if (err == 0)
		err = lp_log_mend(devices->bdev[where],
				  lp_label_log_area(&devices->label[where], shard->idx), shard->idx,
				  &mender.mender);
	/* What cannot be read of a log is found again by who opens it. */
	if (err == -ENOMEM)
		return err;
	return mender.err;
}
