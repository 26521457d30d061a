/* SPDX-License-Identifier: Apache-2.0 */
/* Label of a device: its role, how it is divided, and which devices belong to the store.
 *
 * Threads: any, one per device at a time.
 * Blocking: all calls that take a bdev.
 * Memory: labels are the caller's.
 * Errors: a struct lp_label_why holds the sentence for the user.
 *   -EMEDIUMTYPE  no label at all                  -ENOTSUP  a newer format, or unknown features
 *   -ESTALE       an older format: upgrade first   -EROFS    features that only a reader may ignore
 *   -EBADMSG, -EUCLEAN  both copies are damaged    -ENOSPC   (plan) the device is too small
 * and whatever the device says.
 *
 * docs/format/disk.md is the format and says why each step of writing and growing is safe. The
 * label in memory is the format's own struct lp_disk_label. A label that lp_label_read() returns
 * has passed lp_label_check().
 */
#ifndef LP_STORE_VOLUME_LABEL_H
#define LP_STORE_VOLUME_LABEL_H

#include "format/disk.h"
#include "store/device/bdev.h"
#include "store/record/types.h"

/* The devices of a store: its data, and where faster ones are given, its index's files and its
 * logs. */
enum lp_device_role { LP_ROLE_DATA, LP_ROLE_DB, LP_ROLE_WAL, LP_ROLES };

#define LP_DISK_VERSION 1u
/* A chunk table has room for this many times the chunks of mkfs. */
#define LP_LABEL_GROWTH_MAX 16u
#define LP_UUID_BYTES       16u

struct lp_label_why {
	char text[160];     /* empty when there is nothing to say */
	uint32_t version;   /* of the device's format, when that was the trouble */
	uint64_t min_bytes; /* the smallest device, when that was the trouble */
};

/* What mkfs wants. Zero means the default. */
struct lp_label_wish {
	uint64_t data_bytes;
	uint64_t db_bytes;  /* 0: no such device */
	uint64_t wal_bytes; /* 0: no such device */
	uint32_t shard_cnt;
	uint64_t chunk_bytes;   /* a power of two, 1 MiB to 1 GiB; default: some 4096 chunks */
	uint64_t log_bytes;     /* of each shard; default: its part of a 16th of the device */
	uint64_t journal_bytes; /* of one of the two halves of each shard's file journal */
	int64_t created_ns;
	uint8_t store_uuid[LP_UUID_BYTES];
	uint8_t device_uuid[3][LP_UUID_BYTES]; /* data, db, wal */
	const char *db_path;                   /* at most 255 bytes; NULL: none */
	const char *wal_path;
};

struct lp_label_plan {
	struct lp_disk_label data;
	struct lp_disk_label db;  /* role 0 when there is none */
	struct lp_disk_label wal; /* role 0 when there is none */
};

/* -EINVAL for a wish that makes no sense, -ENOSPC for a device that is too small; why (may be
 * NULL) says which, and how large it must be. */
int lp_label_make_plan(const struct lp_label_wish *wish, struct lp_label_plan *ret_plan,
		       struct lp_label_why *why) LP_MUST_CHECK;

/* Creating: begin wipes the labels and writes all fixed regions, so that a sparse image cannot
 * meet ENOSPC there later (rule S7). Then chunk table, logs and journals are formatted. commit
 * flushes and writes the labels. */
int lp_label_format_begin(struct lp_bdev *bdev, const struct lp_disk_label *label) LP_MUST_CHECK;
int lp_label_format_commit(struct lp_bdev *bdev, const struct lp_disk_label *label) LP_MUST_CHECK;

/* repair: opened for writing; a damaged or older copy is rewritten. why may be NULL. */
int lp_label_read(struct lp_bdev *bdev, bool repair, struct lp_disk_label *ret_label,
		  struct lp_label_why *why) LP_MUST_CHECK;

/* Writes both copies with the next sequence number. On failure the label is as before, and the
 * device holds the old or the new one. */
int lp_label_update(struct lp_bdev *bdev, struct lp_disk_label *label) LP_MUST_CHECK;

/* The device has become larger (see lp_bdev_refresh_size()). -EALREADY when it has not. On
 * success label describes the new size; lp_chunks_grow() comes next. */
int lp_label_grow(struct lp_bdev *bdev, struct lp_disk_label *label) LP_MUST_CHECK;

/* Every rule of the format that one label must keep by itself. Names the field that breaks one.
 * device_blocks: how large the device is. */
int lp_label_check(const struct lp_disk_label *label, uint64_t device_blocks) LP_MUST_CHECK;

/* One copy from LP_DISK_LABEL_SIZE bytes that may be anything; block_idx is where it was found. */
int lp_label_decode(const void *bytes, uint64_t block_idx, uint64_t device_blocks,
		    struct lp_disk_label *ret_label, struct lp_label_why *why) LP_MUST_CHECK;
/* Sets copy_block and crc in the bytes only. */
void lp_label_encode(const struct lp_disk_label *label, uint64_t copy_block, void *ret_bytes);

/* A shard's areas on this device; cnt 0 when they are elsewhere. */
struct lp_extent lp_label_log_area(const struct lp_disk_label *label, uint32_t shard_idx);
struct lp_extent lp_label_files_area(const struct lp_disk_label *label, uint32_t shard_idx);

#endif
