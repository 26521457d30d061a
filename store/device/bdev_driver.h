/* SPDX-License-Identifier: Apache-2.0 */
/* Driver interface: what a kind of block device implements. Private to store/.
 *
 * Threads: as store/device/bdev.h says.
 * Blocking: only in the blocking calls.
 * Memory: a kind embeds struct lp_bdev and struct lp_bdev_chan as first members of its own
 * structs.
 * Errors: as store/device/bdev.h says.
 *
 * store/device/bdev.c checks the contract at each crossing (alignment, range, thread, opcode),
 * counts, and forwards. The driver completes each submitted op exactly once, by
 * lpi_bdev_complete(), in a later turn.
 */
#ifndef LP_STORE_DEVICE_BDEV_DRIVER_H
#define LP_STORE_DEVICE_BDEV_DRIVER_H

#include <pthread.h>

#include "store/device/bdev.h"

struct lp_bdev_kind {
	const char *name;
	void (*close)(struct lp_bdev *bdev);
	int (*refresh_size)(struct lp_bdev *bdev);
	/* Allocates the kind's channel. */
	int (*attach)(struct lp_bdev *bdev, struct lp_reactor *reactor,
		      struct lp_bdev_chan **ret_chan);
	void (*detach)(struct lp_bdev_chan *chan);
	void (*submit)(struct lp_bdev_chan *chan, struct lp_bdev_op *op);
	/* Blocking, any thread. buf is NULL for flush and discard; only read writes to it. */
	int (*sync)(struct lp_bdev *bdev, enum lp_bdev_opcode opcode, void *buf,
		    uint64_t length_bytes, uint64_t offset_bytes);
	/* This and secure() are of an image file (caps.is_file); NULL: the kind has none. */
	int (*read_host)(struct lp_bdev *bdev, struct lp_bdev_host *ret_host);
	/* How large it is now; NULL: the kind never changes. */
	int (*read_size)(struct lp_bdev *bdev, uint64_t *ret_bytes);
	int (*secure)(struct lp_bdev *bdev, uint64_t length_bytes, uint64_t offset_bytes);
};

struct lp_bdev {
	const struct lp_bdev_kind *kind;
	struct lp_bdev_caps caps;
	char name[256];
	_Atomic uint32_t chan_cnt;
	_Atomic uint64_t sync_ops[LP_BDEV_OPCODE_CNT];
	_Atomic uint64_t sync_bytes[LP_BDEV_OPCODE_CNT];
	_Atomic uint64_t sync_errors;
	_Atomic uint64_t past_ops[LP_BDEV_OPCODE_CNT];
	_Atomic uint64_t past_bytes[LP_BDEV_OPCODE_CNT];
	_Atomic uint64_t past_errors;
	_Atomic uint64_t past_shorts;
	_Atomic uint64_t past_late;
	_Atomic uint64_t no_space_cnt;
	_Atomic uint64_t host_lack_bytes;
	_Atomic bool is_host_full;
	_Atomic bool is_doubted;      /* a flush has failed */
	_Atomic bool *doubt;          /* that of this device, or of the one it is tied to */
	pthread_mutex_t failure_lock; /* taken when something fails, and to ask */
	struct lp_bdev_failure failure;
};

struct lp_bdev_chan {
	struct lp_bdev *bdev;
	struct lp_reactor *reactor;
	uint64_t inflight;
	struct lp_bdev_stats stats;
};

/* lp_bdev_close() undoes it, before the kind's close(); a kind that fails to open needs not. */
void lpi_bdev_init(struct lp_bdev *bdev, const struct lp_bdev_kind *kind, const char *name);
/* Whether a device may have it: what is whole blocks of ours must be whole blocks of its own. */
bool lpi_bdev_can_be(uint32_t block_bytes);
/* Of an operation that does not come by here: the kind's own. */
void lpi_bdev_note_failure(struct lp_bdev *bdev, const struct lp_bdev_failure *failure);
/* Counts and calls op->complete; op is the caller's again. */
void lpi_bdev_complete(struct lp_bdev_op *op, int result);

#endif
