/* SPDX-License-Identifier: Apache-2.0 */
/* Which path a write takes that nobody chose one for: store/policy.h, fed with what the store's own
 * operations take, asked for each write, and kept in the index.
 *
 * A path that is never taken cannot be judged, only guessed at. So a small share of the writes of
 * `auto` takes the other one: in short bursts, for single ones among others teach nothing, and
 * LPI_POLICY_BURST times as many as are under way, for what whole writes take shows in the second
 * half, when those before have ended. Rarer after the first few, and still rarer after
 * LPI_POLICY_TRIALS: what has changed, or was seen in a bad moment, must not be believed for ever.
 *
 * How many writes write-back makes for each payload shows only where much is deferred for long: it
 * is counted over LPI_POLICY_PLACES payloads at a time. What was counted is slowly forgotten while
 * writes are direct, for then nobody knows; at first, too, LPI_POLICY_SHARE is assumed.
 *
 * What was learned rides along in the frame of a transaction every LPI_POLICY_SAVE samples, or when
 * some of it is an hour old, and is put once more at closing: it never costs a frame while the
 * store works. A crash loses what came since, which does no harm.
 *
 * Threads: the store's. Blocking: open only. Allocation: none. Errors: a damaged record is
 * recorded by lp_corrupt() and otherwise as good as none, for it is advice, not data.
 */
#ifndef LP_STORE_BLOCK_POLICY_H
#define LP_STORE_BLOCK_POLICY_H

#include "store/bdev.h"
#include "store/commit.h"
#include "store/policy.h"

#define LPI_POLICY_SAVE        16384u
#define LPI_POLICY_SAVE_NS     (3600 * LP_NS_PER_S)
#define LPI_POLICY_TRIAL_SHARE 128u /* one write in so many; */
#define LPI_POLICY_FIRST_SHARE 16u  /* of the first few trials */
#define LPI_POLICY_FIRST       4u
#define LPI_POLICY_TRIALS      32u
#define LPI_POLICY_LATE_SHARE  1024u /* of those after them */
#define LPI_POLICY_BURST       4u
#define LPI_POLICY_TRIAL_MIN   16u /* writes of one */
#define LPI_POLICY_TRIAL_MAX   1024u
#define LPI_POLICY_SEEN_SHARE  4u /* so many of as many writes as are under way */
#define LPI_POLICY_PLACES      1024u
#define LPI_POLICY_SHARE       0.8
#define LPI_POLICY_THREAD      64u /* writes of one look at the thread's time */
/* What lpi_policy_put() puts. */
#define LPI_POLICY_NEED ((uint32_t)(LP_COMMIT_RECORD_BYTES + 16 + LP_POLICY_VALUE_SIZE))

struct lpi_block;

struct lpi_policy {
	struct lp_policy costs;
	struct lp_bdev_observer log_observer;
	struct lp_bdev_observer data_observer;
	bool writes_through; /* direct writes do, for the device's cache is volatile */
	uint32_t depth_x256; /* transactions under way, smoothed */
	uint32_t asked_cnt;  /* since the last trial */
	uint32_t trials_left;
	uint32_t trial_cnt;  /* writes of the one under way, or of the last */
	uint32_t trial_left; /* of these */
	uint32_t same_cnt;   /* writes since the last of a trial, or since a choice was changed, */
	uint32_t seen_flips; /* of which there were so many */
	uint32_t chosen_cnt; /* since the share was last looked at */
	uint64_t places;     /* write-back was done with, */
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
	uint64_t begun_ns; /* 0: it is not */
	uint64_t bytes;
	uint32_t depth;
	enum lp_write_path path;
	bool is_trial;
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
