/* SPDX-License-Identifier: Apache-2.0 */
/* Write path for writes without a chosen one: deferred or direct, as measured here.
 *
 * Threads: the store's.
 * Blocking: open only.
 * Memory: none is allocated.
 * Errors: a damaged record is recorded by lp_corrupt() and otherwise as good as none: it is
 * advice, not data.
 *
 * store/writepath/latency_model.h is fed with the times of the store's own operations, asked for
 * each write, and kept in the index.
 *
 * A write shorter than a block is deferred. Directly it would take a block of its own, and those
 * of one object would come one after the other. For longer writes that wait for the log,
 * store/writepath/trial.h decides for each class of size and depth. It begins where the policy
 * says, except for single blocks. These begin deferred, which is better on nearly all devices,
 * and their trials are far apart, because each trial leaves blocks anywhere. A write that does
 * not wait takes the policy's path, or, if it is long, the path of those that wait.
 *
 * How many writes write-back makes for each payload shows only where much is deferred for long.
 * It is counted over LPI_POLICY_PLACES payloads at a time. The count is slowly forgotten while
 * writes are direct, because then nobody knows. At first, too, LPI_POLICY_SHARE is assumed.
 *
 * The learned values ride along in the frame of a transaction every LPI_POLICY_SAVE samples, or
 * when some of them are an hour old, and are put once more at closing. So they never cost a frame
 * while the store works. A crash loses those that came since, which does no harm.
 */
#ifndef LP_STORE_BLOCK_CORE_WRITE_POLICY_H
#define LP_STORE_BLOCK_CORE_WRITE_POLICY_H

#include "store/commit/commit.h"
#include "store/device/bdev.h"
#include "store/writepath/latency_model.h"
#include "store/writepath/trial.h"

#define LPI_DEFER_BLOCKS     64u /* a larger write goes its direct way */
#define LPI_POLICY_SAVE      16384u
#define LPI_POLICY_SAVE_NS   (3600 * LP_NS_PER_S)
#define LPI_POLICY_BLOCK_FAR 256u /* for LP_CONTEST_NEAR */
#define LPI_POLICY_PLACES    1024u
#define LPI_POLICY_SHARE     0.8
#define LPI_POLICY_THREAD    64u /* writes of one look at the thread's time */
/* What lpi_policy_put() puts. */
#define LPI_POLICY_NEED ((uint32_t)(LP_COMMIT_RECORD_BYTES + 16 + LP_POLICY_VALUE_SIZE))

struct lpi_block;

struct lpi_policy {
	struct lp_policy costs;
	struct lp_bdev_observer log_observer;
	struct lp_bdev_observer data_observer;
	bool writes_through; /* direct writes do, for the device's cache is volatile */
	uint32_t depth_x256; /* transactions under way, smoothed */
	struct lp_contest contests[LP_POLICY_CLASS_CNT][LP_POLICY_DEPTH_CNT];
	uint32_t chosen_cnt;   /* since the share was last looked at */
	uint64_t places;       /* write-back was done with, */
	uint64_t place_writes; /* and these it took, then */
	/* Writes of which the thread's time is looked at together: how many, what they were guessed
	 * to take of it, and the time and how long the thread had waited when the first one came.
	 */
	uint32_t thread_cnt;
	double thread_guessed_ns;
	uint64_t thread_from_ns;
	uint64_t thread_waited_ns;
	uint64_t saved_cnt; /* samples, when they were last put or read, */
	uint64_t saved_ns;  /* and when that was */
};

/* The observers may be given to others from here on. */
void lpi_policy_init(struct lpi_policy *policy);
/* The store's parts are there: what kind of device it is, and what was learned of it. May block. */
int lpi_policy_open(struct lpi_block *block) LP_MUST_CHECK;

/* A write whose whole time is to be seen. */
struct lpi_policy_write {
	struct lp_contest *contest; /* NULL: it is not seen */
	struct lp_contest_write of;
	uint64_t begun_ns;
};

/* LP_PATH_DEFERRED or LP_PATH_DIRECT for a write that may take both. */
enum lp_write_path lpi_policy_choose(struct lpi_block *block, uint64_t bytes, bool is_ordered,
				     struct lpi_policy_write *ret_write);
/* It is acknowledged. */
void lpi_policy_written(struct lpi_block *block, const struct lpi_policy_write *write);
/* As lp_store_explain(). */
int lpi_policy_explain(const struct lpi_block *block, uint64_t bytes, char *buf, size_t len);

/* It is time to put what was learned into a group. */
static inline bool lpi_policy_is_due(const struct lpi_policy *policy, uint64_t now_ns)
{
	uint64_t fresh = policy->costs.sample_cnt - policy->saved_cnt;
	return fresh >= LPI_POLICY_SAVE ||
	       (fresh > 0 && now_ns - policy->saved_ns >= LPI_POLICY_SAVE_NS);
}

/* Room was reserved. */
void lpi_policy_put(struct lpi_block *block);
/* At closing: puts what is new, if there is room without waiting. */
void lpi_policy_close(struct lpi_block *block);

#endif
