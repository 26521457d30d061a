/* SPDX-License-Identifier: Apache-2.0 */
/* The devices of one store: labels checked against each other, chunk tables open.
 *
 * Threads: open and close by one; the chunk tables by any (but not shard threads). The rest does
 * not change in between.
 * Blocking: open, close.
 * Memory: the devices are borrowed and stay the caller's.
 * Errors: as store/volume/label.h and store/volume/chunks.h. -ENXIO when a device that the data
 * device names was not given. -EXDEV when one belongs to another store or has another role. why
 * has the sentence.
 *
 * All shards of a process share them. Opening them for writing restores trust in a device of
 * which a flush has failed (lp_bdev_trust()).
 */
#ifndef LP_STORE_VOLUME_DEVICES_H
#define LP_STORE_VOLUME_DEVICES_H

#include "store/volume/chunks.h"
#include "store/volume/label.h"

struct lp_devices {
	struct lp_bdev *bdev[LP_ROLES]; /* borrowed; NULL: there is none */
	struct lp_disk_label label[LP_ROLES];
	struct lp_chunks *chunks[LP_ROLES]; /* of data and db */
	uint64_t files_reserve_bytes;       /* as asked for */
	bool read_only;
	bool are_tied; /* a failed flush of one is one of all (lp_bdev_tie()) */
};

struct lp_devices_options {
	struct lp_bdev *bdev[LP_ROLES]; /* stay open, and the caller's, until after close */
	/* What leases for objects must leave free (rule L8), besides what each shard leased ahead
	 * for its own files. 0: what the shards need that were never opened. */
	uint64_t files_reserve_bytes;
	bool read_only; /* nothing is written, repaired or leased */
	/* Where db and wal were found, absolute: the data device's label says it from now on, for
	 * who is not told (NULL: what it says stays). It stays as well when the path is too long
	 * for the label, or the label cannot be written, which is no reason not to open. */
	const char *path[LP_ROLES];
};

int lp_devices_open(const struct lp_devices_options *options, struct lp_devices *ret_devices,
		    struct lp_label_why *why) LP_MUST_CHECK;
void lp_devices_close(struct lp_devices *devices);

/* Where shard N's log is, and blockfs's journal. */
enum lp_device_role lp_devices_of_log(const struct lp_devices *devices);
enum lp_device_role lp_devices_of_files(const struct lp_devices *devices);

/* A path of a device that means the same in any working directory, for labels. What begins with a
 * slash is as it was given; of what does not the directory is resolved, and the last name is not:
 * it may be one that stays while what it leads to changes. -ENAMETOOLONG: it has len bytes or more;
 * -ENOENT and the like: the directory. */
int lp_devices_absolute_path(const char *path, char *ret_path, size_t len) LP_MUST_CHECK;

/* What a person can do about a device that lp_bdev_open_uring() refused: " (...)", or "". */
const char *lp_devices_advice(int err);

#endif
