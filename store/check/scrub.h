/* SPDX-License-Identifier: Apache-2.0 */
/* Scrub: a pass over all data of a store, in the background, at a bounded rate.
 *
 * Threads: the reactor's.
 * Blocking: none.
 * Memory: none is allocated after new.
 * Errors: of the store, told in the stats. A pass goes on behind what cannot be read, or listed.
 * Limits: one request at a time, of LP_SCRUB_READ_BYTES at most.
 *
 * Data that nobody reads is otherwise never checked. Inode by inode, in the order of their
 * numbers, all data is read from the device, past the cache of data, a piece at a time. The rate
 * counts each inode as a block. The store holds each block against its checksum, as it does for
 * any reader, sees that it does not count as free, and says which is damaged. Data that is being
 * changed or removed meanwhile is no damage. Blocks around a damaged one are read one by one, so
 * that each lost one is named.
 *
 *   IDLE -> LIST -> SEEK -> SPAN -> READ ... READ -> SEEK ... -> LIST ... -> IDLE
 *
 * A pass can be begun behind an inode that an earlier one had reached.
 */
#ifndef LP_STORE_CHECK_SCRUB_H
#define LP_STORE_CHECK_SCRUB_H

#include "base/loop/reactor.h"
#include "store/store.h"

#define LP_SCRUB_READ_BYTES   (UINT64_C(256) << 10)
#define LP_SCRUB_NAMED        16u /* damaged places that are remembered, the first of a pass */
#define LP_SCRUB_RATE_NOLIMIT UINT64_C(0)

struct lp_scrub;

struct lp_scrub_place {
	struct lp_ino ino;
	uint64_t offset;
	int error; /* -EBADMSG, -EUCLEAN (of the index), or -EIO */
};

/* Of all passes since it was made. */
struct lp_scrub_sum {
	uint64_t passes; /* whole ones */
	uint64_t objects;
	uint64_t bytes;
	uint64_t damaged;
};

/* Of the pass under way, or else of the last one. */
struct lp_scrub_stats {
	bool is_running;
	bool is_whole; /* it went through to the end */
	int error;     /* that ended it; 0: none */
	uint64_t objects;
	uint64_t bytes;
	uint64_t damaged; /* places */
	struct lp_scrub_sum sum;
	struct lp_ino at;    /* all inodes up to this one have been read, */
	uint64_t at_damaged; /* and had so many damaged places */
	int64_t began_ns;    /* of the day; 0: never */
	int64_t ended_ns;
	uint32_t named_cnt;
	struct lp_scrub_place named[LP_SCRUB_NAMED];
};

/* What a pass has found of one inode. */
struct lp_scrub_verdict {
	struct lp_ino ino;
	uint64_t places; /* that are damaged */
	uint64_t offset; /* the first of them, */
	int error;       /* and what it is; 0: none is damaged */
	bool is_unsure;  /* not all of it was read, for another reason than damage */
};

struct lp_scrub_options {
	struct lp_reactor *reactor;
	struct lp_store *store;
	uint64_t bytes_per_s; /* LP_SCRUB_RATE_NOLIMIT: as fast as one request after the other goes
			       */
	/* A pass has ended; may be NULL. Not from inside a call. */
	void (*ended)(void *arg);
	/* An inode has been read, or is gone; may be NULL. It submits nothing to this module. */
	void (*passed)(void *arg, const struct lp_scrub_verdict *verdict);
	void *ended_arg; /* of both */
};

int lp_scrub_new(const struct lp_scrub_options *options, struct lp_scrub **ret_scrub) LP_MUST_CHECK;
/* Idle. Accepts NULL. */
void lp_scrub_free(struct lp_scrub *scrub);

/* Of all inodes behind this one; nr 0: of all. -EALREADY: one is under way. */
int lp_scrub_start(struct lp_scrub *scrub, struct lp_ino behind) LP_MUST_CHECK;
/* Of this inode only. The same. */
int lp_scrub_start_one(struct lp_scrub *scrub, struct lp_ino ino) LP_MUST_CHECK;
/* The pass ends with what it is at. */
void lp_scrub_stop(struct lp_scrub *scrub);
bool lp_scrub_is_idle(const struct lp_scrub *scrub);
/* From the next request on. */
void lp_scrub_set_rate(struct lp_scrub *scrub, uint64_t bytes_per_s);
const struct lp_scrub_stats *lp_scrub_stats(const struct lp_scrub *scrub);

#endif
