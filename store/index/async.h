/* SPDX-License-Identifier: Apache-2.0 */
/* Asynchronous index calls: what may block in kv.h, run by a reactor's helpers.
 *
 * Threads: the reactor's.
 * Blocking: none here.
 * Memory: none is allocated. The caller embeds each operation. It, and all it points to, is ours
 * from submit until its done() begins.
 * Errors: in `result`: what the call of kv.h returned.
 * Limits: as many at a time as the caller has operations. A scan returns as much as fits its
 * buffer.
 *
 * done() is called on the submitting reactor, never inside submit.
 */
#ifndef LP_STORE_INDEX_ASYNC_H
#define LP_STORE_INDEX_ASYNC_H

#include "base/loop/workers.h"
#include "store/device/bdev.h"
#include "store/index/kv.h"

#define LP_KV_WARM_MAX 64u
/* Devices that tables lie on. */
#define LP_KV_CHANS_MAX 2u

/* Of those who wait for one read: that many are looked up in the turn in which it ends. */
#define LP_KV_SHARERS_MAX 64u

#define LP_KV_READING_BUCKETS 64u

struct lp_kv_get_op;

/* Channels of the reactor by which tables are read without a helper; NULL: none. */
struct lp_kv_chans {
	struct lp_bdev_chan *chans[LP_KV_CHANS_MAX];
	/* What is being read by them, so that nobody reads the same at the same time. */
	struct lp_kv_get_op *reading[LP_KV_READING_BUCKETS];
};

/* lp_kv_get() for what lp_kv_get_cached() did not know, or lp_kv_get_persisted().
 *
 * What the former has put off is read by the reactor, if it is of a device in `chans`, and then
 * looked up again there: no thread is woken for it. Who wants blocks that another one is reading
 * waits for that read, for neighbours in the index are asked for together, and lie in one block.
 * All else is a helper's: what is not in one piece, what lies behind the key, what was read in
 * error or damaged, so that it is told by him who reads it once more. */
struct lp_kv_get_op {
	struct lp_kv *kv;
	struct lp_kv_bytes key; /* borrowed */
	struct lp_kv_chans *chans;
	struct lp_fetch fetch; /* of lp_kv_get_cached() for this key; zeroed: nothing was put off */
	/* Borrowed; data NULL: none. What lies behind the key, up to here, will be asked for next:
	 * it is read as well, so that the index has it in its cache; LP_KV_WARM_MAX records at
	 * most. */
	struct lp_kv_bytes warm_end;
	bool persisted;
	void (*done)(struct lp_kv_get_op *op);
	int result;
	bool is_of_now; /* as of done(), for the reactor has looked; else it may be older */
	struct lp_kv_value value; /* if result is 0: to be released */
	struct lp_work work;
	struct lp_workers *workers;
	struct lp_reactor *reactor;
	struct lp_bdev_op read;
	void *blocks; /* that are read */
	uint32_t reads;
	struct lp_kv_get_op *next_reading; /* of its bucket */
	struct lp_kv_get_op *sharers;      /* who wait for this read */
	struct lp_kv_get_op *next_sharer;
	uint32_t sharer_cnt;
};

/* Records of [lower, upper), in order, copied to a buffer until it or records_max is full. */
struct lp_kv_scan_op {
	struct lp_kv *kv;
	struct lp_kv_bytes lower; /* borrowed, as the next two; data NULL: open */
	struct lp_kv_bytes upper;
	void *buf;
	size_t buf_len;
	uint32_t records_max; /* 0: only the buffer limits */
	void (*done)(struct lp_kv_scan_op *op);
	/* 0, also when nothing was found. -ENOBUFS: not even the first record fits; `used` is what
	 * it needs. */
	int result;
	uint32_t records;
	size_t used; /* bytes of buf */
	bool more;   /* there are records behind the last one */
	struct lp_work work;
};

/* A call without results of its own: lp_kv_flush, lp_kv_flush_wait, lp_kv_resume. */
struct lp_kv_call_op {
	struct lp_kv *kv;
	int (*call)(struct lp_kv *kv);
	void (*done)(struct lp_kv_call_op *op);
	int result;
	struct lp_work work;
};

void lp_kv_get_submit(struct lp_workers *workers, struct lp_reactor *reactor,
		      struct lp_kv_get_op *op);
void lp_kv_scan_submit(struct lp_workers *workers, struct lp_reactor *reactor,
		       struct lp_kv_scan_op *op);
void lp_kv_call_submit(struct lp_workers *workers, struct lp_reactor *reactor,
		       struct lp_kv_call_op *op);

/* Walks what a scan found. *pos is 0 at first; false at the end. The bytes lie in the buffer. */
bool lp_kv_scan_next(const struct lp_kv_scan_op *op, size_t *pos, struct lp_kv_bytes *ret_key,
		     struct lp_kv_bytes *ret_value);

#endif
