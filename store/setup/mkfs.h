/* SPDX-License-Identifier: Apache-2.0 */
/* mkfs: makes an empty store on one to three devices.
 *
 * Threads: any.
 * Blocking: all of it.
 * Memory: options are the caller's.
 * Errors: as of store/volume/label.h's plan (-EINVAL, -ENOSPC, with the reason in why), and
 * whatever the devices say.
 *
 * Until the last step, the writing of the labels, nothing on the devices looks like a store. A
 * mkfs that was interrupted has made none.
 */
#ifndef LP_STORE_SETUP_MKFS_H
#define LP_STORE_SETUP_MKFS_H

#include "store/volume/label.h"

struct lp_mkfs_options {
	struct lp_bdev *bdev[LP_ROLES]; /* db and wal may be NULL */
	const char *path[LP_ROLES];     /* recorded, to find them again */
	uint32_t shard_cnt;
	uint64_t chunk_bytes;            /* 0: by the size of the device */
	uint64_t log_bytes;              /* of each shard; 0: by the size of the device */
	int64_t created_ns;              /* wall time */
	uint8_t seed[5 * LP_UUID_BYTES]; /* random: uuids and the logs' salt are made of it */
};

int lp_store_mkfs(const struct lp_mkfs_options *options, struct lp_disk_label *ret_label,
		  struct lp_label_why *why) LP_MUST_CHECK;

#endif
