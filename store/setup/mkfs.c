/* SPDX-License-Identifier: Apache-2.0 */
/* The plan divides the devices; then everything but the labels is written and flushed; the labels
 * come last, that of the data device at the very end, for it is what makes a store. */
#include "store/setup/mkfs.h"

#include <string.h>

#include "base/endian.h"
#include "store/blockfs/blockfs.h"
#include "store/log/limits.h"
#include "store/log/log.h"

struct mkfs {
	const struct lp_mkfs_options *options;
	struct lp_label_plan plan;
};

/* A random UUID (version 4) of 16 random bytes. */
static void make_uuid(const uint8_t *random, uint8_t *ret_uuid)
{
	memcpy(ret_uuid, random, LP_UUID_BYTES);
	ret_uuid[6] = (uint8_t)((ret_uuid[6] & 0x0f) | 0x40);
	ret_uuid[8] = (uint8_t)((ret_uuid[8] & 0x3f) | 0x80);
}

static uint64_t size_of(struct lp_bdev *bdev)
{
	return bdev != NULL ? lp_bdev_caps(bdev)->size_bytes : 0;
}

static int plan(struct mkfs *mkfs, struct lp_label_why *why)
{
	const struct lp_mkfs_options *options = mkfs->options;
	struct lp_label_wish wish = {
		.data_bytes = size_of(options->bdev[LP_ROLE_DATA]),
		.db_bytes = size_of(options->bdev[LP_ROLE_DB]),
		.wal_bytes = size_of(options->bdev[LP_ROLE_WAL]),
		.shard_cnt = options->shard_cnt,
		.chunk_bytes = options->chunk_bytes,
		.log_bytes = options->log_bytes,
		.created_ns = options->created_ns,
		.db_path = options->path[LP_ROLE_DB],
		.wal_path = options->path[LP_ROLE_WAL],
	};
	make_uuid(options->seed, wish.store_uuid);
	for (int i = 0; i < LP_ROLES; i++)
		make_uuid(options->seed + (size_t)(i + 1) * LP_UUID_BYTES, wish.device_uuid[i]);
	return lp_label_make_plan(&wish, &mkfs->plan, why);
}

static const struct lp_disk_label *label_of(const struct mkfs *mkfs, int device)
{
	const struct lp_disk_label *const labels[LP_ROLES] = {
		[LP_ROLE_DATA] = &mkfs->plan.data,
		[LP_ROLE_DB] = &mkfs->plan.db,
		[LP_ROLE_WAL] = &mkfs->plan.wal,
	};
	return labels[device];
}

static int begin_device(const struct mkfs *mkfs, int device)
{
	struct lp_bdev *bdev = mkfs->options->bdev[device];
	if (bdev == NULL)
		return 0;
	int err = lp_label_format_begin(bdev, label_of(mkfs, device));
	if (err == 0 && label_of(mkfs, device)->chunk_cnt > 0)
		err = lp_chunks_format(bdev, label_of(mkfs, device));
	return err;
}

static int format_log(const struct mkfs *mkfs, uint32_t shard_idx)
{
	int device = mkfs->options->bdev[LP_ROLE_WAL] != NULL ? LP_ROLE_WAL : LP_ROLE_DATA;
	struct lp_extent extent = lp_label_log_area(label_of(mkfs, device), shard_idx);
	struct lp_log_area area = {.block = extent.block,
				   .ring_blocks = extent.cnt - LP_LOG_SLOT_CNT,
				   .shard = shard_idx};
	memcpy(area.store_uuid, mkfs->plan.data.store_uuid, sizeof(area.store_uuid));
	const struct lp_log_limits limits = lp_log_limits_for(area.ring_blocks);
	uint64_t salt = lp_get_le64(mkfs->options->seed + (size_t)4 * LP_UUID_BYTES) + shard_idx;
	return lp_log_format(mkfs->options->bdev[device], &area, &limits, salt);
}

static int format_files(const struct mkfs *mkfs, uint32_t shard_idx)
{
	int device = mkfs->options->bdev[LP_ROLE_DB] != NULL ? LP_ROLE_DB : LP_ROLE_DATA;
	struct lp_blockfs_options options = {
		.journal_bdev = mkfs->options->bdev[device],
		.area = lp_label_files_area(label_of(mkfs, device), shard_idx),
		.shard_idx = shard_idx,
	};
	memcpy(options.store_uuid, mkfs->plan.data.store_uuid, sizeof(options.store_uuid));
	return lp_blockfs_format(&options);
}

static int write_all(const struct mkfs *mkfs)
{
	int err = 0;
	for (int i = 0; i < LP_ROLES && err == 0; i++)
		err = begin_device(mkfs, i);
	for (uint32_t shard = 0; shard < mkfs->plan.data.shard_cnt && err == 0; shard++) {
		err = format_log(mkfs, shard);
		if (err == 0)
			err = format_files(mkfs, shard);
	}
	for (int i = LP_ROLES - 1; i >= 0 && err == 0; i--) {
		if (mkfs->options->bdev[i] != NULL)
			err = lp_label_format_commit(mkfs->options->bdev[i], label_of(mkfs, i));
	}
	return err;
}

int lp_store_mkfs(const struct lp_mkfs_options *options, struct lp_disk_label *ret_label,
		  struct lp_label_why *why)
{
	struct mkfs mkfs = {.options = options};
	int err = plan(&mkfs, why);
	if (err == 0)
		err = write_all(&mkfs);
	if (err == 0)
		*ret_label = mkfs.plan.data;
	return err;
}
