/* SPDX-License-Identifier: Apache-2.0 */
/* A copy of a store in new image files, for `lapis fsck --repair --to FILE`: FILE for the data
 * device, FILE.db and FILE.wal for the others. What a device cannot read is zeros there. The label
 * of the copy names the copies.
 *
 * Threads: the main thread; all calls block. Errors: said in a person's words; files that were made
 * are removed then.
 */
#ifndef LP_CLI_OFFLINE_FSCK_COPY_H
#define LP_CLI_OFFLINE_FSCK_COPY_H

#include "store/check/fsck.h"
#include "store/kvfs/posix.h"

#define LPI_FSCK_COPY_PATH_MAX 4096u

struct lpi_fsck_copy {
	const char *to;
	char path[LP_ROLES][LPI_FSCK_COPY_PATH_MAX];
	bool is_made[LP_ROLES];
	struct lp_bdev *bdev[LP_ROLES];
	char scratch_path[LPI_FSCK_COPY_PATH_MAX]; /* a directory beside it, for the time of a check
						    */
	int scratch_fd;                            /* -1: there is none */
	struct lp_kvfs_posix scratch;
	uint64_t unread_blocks; /* that a device could not read */
};

/* source: the devices, which stay the caller's; NULL: there is none. */
int lpi_fsck_copy_make(struct lpi_fsck_copy *copy, const char *to,
		       struct lp_bdev *const source[LP_ROLES]) LP_MUST_CHECK;
/* Closes the copy, which stays if is_kept. Of one that was zeroed, too. */
void lpi_fsck_copy_close(struct lpi_fsck_copy *copy, bool is_kept);

#endif
