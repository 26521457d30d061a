/* SPDX-License-Identifier: Apache-2.0 */
/* Block device interface: io_uring, memory and simulation behind one set of calls.
 *
 * Threads: operations are submitted on a channel by its reactor's thread and complete on it. The
 * blocking calls at the end are for other threads (RocksDB's): they may run on any thread at any
 * time.
 * Blocking: only the calls that say so.
 * Memory: the caller embeds each operation. It is the device's from its submission until it
 * completes.
 * Errors: the result is 0 or a negative errno: -EIO, -ENODEV, -ENOSPC of a sparse image's host,
 * also for a quota there. Short transfers are continued inside. No operation succeeds in part for
 * the caller, though parts of a failed write may have reached the device.
 * Limits: offsets, lengths and buffers are multiples of caps.block_bytes. A breach is our own
 * bug, and asserted.
 *
 * A struct lp_bdev is a device that was opened once. A struct lp_bdev_chan is one reactor's way
 * to it. An operation completes in a later turn, never inside the submit.
 *
 * Durability: a completed LP_BDEV_WRITE may still be lost with the power. It is durable once an
 * LP_BDEV_FLUSH that was submitted after its completion has completed. A completed
 * LP_BDEV_WRITE_THROUGH is durable itself and says nothing of other writes (rule L3).
 *
 * Flushes are shared. One that fails may have dropped writes of any user of the device, and the
 * next flush, of another user, would succeed. So after the first failed flush every flush of the
 * device gives -EIO, whoever asks, until all is opened anew (rule L7, lp_bdev_trust()). A
 * write-through that is a flush as well (caps.through_flushes) counts as one, in both ways. A
 * blocking write-through that fails counts as one in any case, where a flush is needed.
 */
#ifndef LP_STORE_DEVICE_BDEV_H
#define LP_STORE_DEVICE_BDEV_H

#include <sys/uio.h>

#include "base/loop/reactor.h"

enum lp_bdev_opcode {
	LP_BDEV_READ,
	LP_BDEV_WRITE,
	LP_BDEV_WRITE_THROUGH,
	LP_BDEV_FLUSH,
	LP_BDEV_DISCARD, /* contents become undefined: old, zero or a mixture by block */
	LP_BDEV_OPCODE_CNT
};

struct lp_bdev_caps {
	uint64_t size_bytes;         /* a multiple of block_bytes */
	uint32_t block_bytes;        /* alignment of offset, length and memory: 512 or 4096 */
	uint32_t physical_bytes;     /* what the device writes without read-modify-write */
	uint32_t atomic_write_bytes; /* a write this long and aligned is never torn; >= block_bytes
				      */
	bool volatile_cache;         /* completed writes need a flush to be durable */
	/* A write-through is a write and a flush there: when it fails, others' writes may be lost
	 * with it, and their own flush would not say so. */
	bool through_flushes;
	bool rotational;
	bool can_discard;
	bool is_file; /* an image in a host file system: may meet ENOSPC */
};

struct lp_bdev;
struct lp_bdev_chan;

/* One operation. The caller sets the upper part; the struct, its iov array and its buffers are
 * the device's from submit until complete() begins. The array is changed by short transfers. */
struct lp_bdev_op {
	enum lp_bdev_opcode opcode;
	uint64_t offset_bytes;
	uint64_t length_bytes; /* the sum of iov for reads and writes */
	struct iovec *iov;     /* reads and writes; &op->one for a single buffer */
	uint32_t iov_cnt;      /* 1 to LP_BDEV_IOV_MAX */
	struct iovec one;
	void (*complete)(struct lp_bdev_op *op);

	int result; /* valid from complete() on: 0 or -errno */

	/* The device's. */
	struct lp_io io;
	struct lp_task task;
	struct lp_list_node node;
	struct lp_bdev_chan *chan;
	uint64_t done_bytes;
	/* For reading in complete(), as of the turn of its submission: the time, how long the
	 * thread had waited in all, and how many were in flight on the channel, this one included.
	 */
	uint64_t submitted_ns;
	uint64_t submitted_waited_ns;
	uint32_t depth;
	uint32_t retry_cnt;
};

/* Who wants to know how long operations take. Those who submit them tell of each that succeeded,
 * from complete(); ns: from its submission to the turn it completed in. What of that the thread
 * waited (waited_ns) it certainly took; while the thread was at work it may have been done already.
 */
struct lp_bdev_observer {
	void (*completed)(struct lp_bdev_observer *observer, const struct lp_bdev_op *op,
			  uint64_t ns, uint64_t waited_ns);
};

/* observer NULL: nobody. */
static inline void lp_bdev_observe(struct lp_bdev_observer *observer, const struct lp_bdev_op *op,
				   const struct lp_reactor *reactor)
{
	if (observer != NULL && op->result == 0)
		observer->completed(observer, op, lp_reactor_now_ns(reactor) - op->submitted_ns,
				    lp_reactor_waited_ns(reactor) - op->submitted_waited_ns);
}

#define LP_BDEV_IOV_MAX 1024u
/* The longest single read, write or discard. */
#define LP_BDEV_IO_MAX (UINT64_C(1) << 30)

/* Exact counts of what was asked of the device; durable writes are counted apart. */
struct lp_bdev_stats {
	uint64_t ops[LP_BDEV_OPCODE_CNT];
	uint64_t bytes[LP_BDEV_OPCODE_CNT];
	uint64_t errors;
	uint64_t shorts; /* transfers that had to be continued */
	uint64_t late;   /* of a delayed device: its inner one took longer than the model */
};

/* --- Opening ---------------------------------------------------------------------------------- */

struct lp_bdev_open_options {
	bool read_only;
	bool exclusive; /* O_EXCL on a block device, a lock on a file: -EBUSY if taken */
};

/* A block device or an image file, by io_uring and O_DIRECT. -ENOTSUP: its block_bytes would be
 * larger. */
int lp_bdev_open_uring(const char *path, const struct lp_bdev_open_options *options,
		       struct lp_bdev **ret_bdev) LP_MUST_CHECK;
/* Memory: nothing persists. */
int lp_bdev_open_mem(uint64_t size_bytes, uint32_t block_bytes,
		     struct lp_bdev **ret_bdev) LP_MUST_CHECK;
/* The simulated device is opened in store/device/sim/bdev_sim.h. */

/* Every channel must be detached. Accepts NULL. */
void lp_bdev_close(struct lp_bdev *bdev);

const struct lp_bdev_caps *lp_bdev_caps(const struct lp_bdev *bdev);
const char *lp_bdev_name(const struct lp_bdev *bdev);
/* Asks the device for its size again (it may have grown); updates caps. */
int lp_bdev_refresh_size(struct lp_bdev *bdev) LP_MUST_CHECK;
/* What the blocking calls did. */
void lp_bdev_sync_stats(const struct lp_bdev *bdev, struct lp_bdev_stats *ret_stats);
/* What was done through channels that have been detached. No channel is being detached. */
void lp_bdev_past_stats(const struct lp_bdev *bdev, struct lp_bdev_stats *ret_stats);

/* --- What failed ------------------------------------------------------------------------------ */

/* A write or flush that failed. */
struct lp_bdev_failure {
	enum lp_bdev_opcode opcode;
	int result;
	uint64_t offset_bytes; /* not of a flush */
	uint64_t length_bytes;
};

/* The newest one, of whichever channel or thread. False: none has failed. Any thread. */
bool lp_bdev_last_failure(struct lp_bdev *bdev, struct lp_bdev_failure *ret_failure);
/* Flushes are believed again. For whoever opens what is on the device from the beginning: nobody
 * else uses it, and nothing is remembered of what was written before a flush failed. */
void lp_bdev_trust(struct lp_bdev *bdev);
/* They may be partitions, or files, of one disk, so a flush that fails on one counts for both. With
 * NULL this one is alone again, as it must be before the other is closed. Nobody uses it
 * meanwhile. */
void lp_bdev_tie(struct lp_bdev *bdev, struct lp_bdev *to);

/* How large the device is now, which somebody may have changed below us: what lp_bdev_caps() says
 * stays as it was when it was opened. Blocking. -ENOTTY: it is of a kind that never changes. */
int lp_bdev_read_size(struct lp_bdev *bdev, uint64_t *ret_bytes) LP_MUST_CHECK;

/* --- The host of an image file ---
 *
 * A sparse image takes space of the file system that holds it as it is written. When that has none
 * any more the store is full, whatever is free in it. Of any other device none of this is so. */

struct lp_bdev_host {
	uint64_t free_bytes;   /* of the file system */
	uint64_t absent_bytes; /* of the image: what has no space there yet */
};

/* Asks the host, and keeps what it lacks for lp_bdev_host_lack_bytes(). Blocking. -ENOTTY: this is
 * no image file. */
int lp_bdev_read_host(struct lp_bdev *bdev, struct lp_bdev_host *ret_host) LP_MUST_CHECK;
/* The range has space there from now on, until it is discarded. Blocking. -ENOSPC. */
int lp_bdev_secure(struct lp_bdev *bdev, uint64_t length_bytes,
		   uint64_t offset_bytes) LP_MUST_CHECK;
/* How many writes have failed for want of space there. Any thread; and the rest, too. */
uint64_t lp_bdev_no_space_cnt(const struct lp_bdev *bdev);
/* One has failed since lp_bdev_host_has_space() was called last. */
bool lp_bdev_is_host_full(const struct lp_bdev *bdev);
void lp_bdev_host_has_space(struct lp_bdev *bdev);
/* So much of what is absent the host could not give, when it was asked last. */
uint64_t lp_bdev_host_lack_bytes(const struct lp_bdev *bdev);

/* --- Asynchronous, by the reactor's thread ---------------------------------------------------- */

int lp_bdev_attach(struct lp_bdev *bdev, struct lp_reactor *reactor,
		   struct lp_bdev_chan **ret_chan) LP_MUST_CHECK;
/* Nothing may be in flight. Accepts NULL. */
void lp_bdev_detach(struct lp_bdev_chan *chan);

void lp_bdev_submit(struct lp_bdev_chan *chan, struct lp_bdev_op *op);

/* Convenience: fills the upper part for one buffer. */
static inline void lp_bdev_op_prep(struct lp_bdev_op *op, enum lp_bdev_opcode opcode, void *buf,
				   uint64_t length_bytes, uint64_t offset_bytes)
{
	op->opcode = opcode;
	op->offset_bytes = offset_bytes;
	op->length_bytes = length_bytes;
	op->one = (struct iovec){.iov_base = buf, .iov_len = length_bytes};
	op->iov = &op->one;
	op->iov_cnt = 1;
}

uint64_t lp_bdev_inflight(const struct lp_bdev_chan *chan);
const struct lp_bdev_stats *lp_bdev_stats(const struct lp_bdev_chan *chan);
struct lp_bdev *lp_bdev_of(const struct lp_bdev_chan *chan);
const char *lp_bdev_opcode_name(enum lp_bdev_opcode opcode);

/* --- Blocking, by any other thread ------------------------------------------------------------ */

int lp_bdev_read_sync(struct lp_bdev *bdev, void *buf, uint64_t length_bytes,
		      uint64_t offset_bytes) LP_MUST_CHECK;
/* through: durable on return. */
int lp_bdev_write_sync(struct lp_bdev *bdev, const void *buf, uint64_t length_bytes,
		       uint64_t offset_bytes, bool through) LP_MUST_CHECK;
int lp_bdev_flush_sync(struct lp_bdev *bdev) LP_MUST_CHECK;
int lp_bdev_discard_sync(struct lp_bdev *bdev, uint64_t length_bytes,
			 uint64_t offset_bytes) LP_MUST_CHECK;

#endif
