/* SPDX-License-Identifier: Apache-2.0 */
/* Write path for writes without a chosen one: deferred or direct, as measured here.
 *
 * Threads: the store's.
 * Blocking: open only.
 * Memory: none is allocated.
 * Errors: a damaged record is recorded by lp_corrupt(), and otherwise ignored: it is advice, not
 *   data.
 *
 * store/writepath/latency_model.h is fed with the times of the store's own operations. It is asked
 * for each write, and kept in the index.
 *
 * A write shorter than a block is deferred. A direct write would take a block of its own, and the
 * writes of one object would come one after the other. For longer writes that wait for the log,
 * store/writepath/trial.h decides for each class of size and depth. It begins with the policy's
 * choice, except for single blocks. These begin deferred, which is better on nearly all devices,
 * and their trials are far apart, because each trial leaves blocks at random places. A write that
 * does not wait takes the policy's path, or, if it is long, the path of writes that wait.
 *
 * The number of write-back's writes per payload is visible only where much is deferred for long. It
 * is counted over LPI_POLICY_PLACES payloads at a time. While writes are direct the count decays
 * slowly to LPI_POLICY_SHARE, because nothing is measured then. This is also its first value.
 *
 * The learned values go into the frame of a transaction every LPI_POLICY_SAVE samples, or when some
 * of them are an hour old, and are put once more at closing. So they never cost a frame while the
 * store works. A crash loses the values learned since, which does no harm.
 */
#ifndef LP_STORE_BLOCK_CORE_WRITE_POLICY_H
#define LP_STORE_BLOCK_CORE_WRITE_POLICY_H

#include "store/commit/commit.h"
#include "store/device/bdev.h"
#include "store/writepath/latency_model.h"
#include "store/writepath/trial.h"

#define LPI_DEFER_BLOCKS     64u /* a larger write takes the direct path */
#define LPI_POLICY_SAVE      16384u
#define LPI_POLICY_SAVE_NS   (3600 * LP_NS_PER_S)
#define LPI_POLICY_BLOCK_FAR 256u /* for LP_CONTEST_NEAR */
#define LPI_POLICY_PLACES    1024u
#define LPI_POLICY_SHARE     0.8
#define LPI_POLICY_THREAD    64u /* writes per measurement of the thread's time */
/* Bytes that lpi_policy_put() puts. */
#define LPI_POLICY_NEED ((uint32_t)(LP_COMMIT_RECORD_BYTES + 16 + LP_POLICY_VALUE_SIZE))

struct lpi_block;

struct lpi_policy {
	struct lp_policy costs;
	struct lp_bdev_observer log_observer;
	struct lp_bdev_observer data_observer;
	bool writes_through; /* direct writes are write-through, because the device's cache is
				volatile */
	uint32_t depth_x256; /* transactions under way, smoothed */
	struct lp_contest contests[LP_POLICY_CLASS_CNT][LP_POLICY_DEPTH_CNT];
	uint32_t chosen_cnt;   /* since the share was last updated */
	uint64_t places;       /* written by write-back at the last update, */
	uint64_t place_writes; /* and the writes for them, then */
	/* Writes of one measurement of the thread's time: their number, their guessed time, and the
	 * time and the thread's waiting time when the first one came.
	 */
	uint32_t thread_cnt;
	double thread_guessed_ns;
	uint64_t thread_from_ns;
	uint64_t thread_waited_ns;
	uint64_t saved_cnt; /* samples at the last save or load, */
	uint64_t saved_ns;  /* and when that was */
};

/* The observers may be passed on from here on. */
void lpi_policy_init(struct lpi_policy *policy);
/* The store's parts exist: reads the kind of device, and the learned values. May block. */
int lpi_policy_open(struct lpi_block *block) LP_MUST_CHECK;

/* A write whose whole time is measured. */
struct lpi_policy_write {
	struct lp_contest *contest; /* NULL: it is not measured */
	struct lp_contest_write of;
	uint64_t begun_ns;
};

/* LP_PATH_DEFERRED or LP_PATH_DIRECT for a write that may take either. */
enum lp_write_path lpi_policy_choose(struct lpi_block *block, uint64_t bytes, bool is_ordered,
				     struct lpi_policy_write *ret_write);
/* The write is acknowledged. */
void lpi_policy_written(struct lpi_block *block, const struct lpi_policy_write *write);
/* As lp_store_explain(). */
int lpi_policy_explain(const struct lpi_block *block, uint64_t bytes, char *buf, size_t len);

/* It is time to put the learned values into a group. */
static inline bool lpi_policy_is_due(const struct lpi_policy *policy, uint64_t now_ns)
{
	uint64_t fresh = policy->costs.sample_cnt - policy->saved_cnt;
	return fresh >= LPI_POLICY_SAVE ||
	       (fresh > 0 && now_ns - policy->saved_ns >= LPI_POLICY_SAVE_NS);
}

/* Room must be reserved. */
void lpi_policy_put(struct lpi_block *block);
/* At closing: puts new values, if there is room without waiting. */
void lpi_policy_close(struct lpi_block *block);

#endif
