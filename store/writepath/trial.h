/* SPDX-License-Identifier: Apache-2.0 */
/* Trials of the two write paths: the one is taken that whole writes showed to be quicker.
 *
 * Threads: a struct lp_contest belongs to one.
 * Blocking, allocation, errors: none; no I/O.
 *
 * There is one contest for each size and depth of writes (design 5.7, `auto`). Compared is the
 * time of a write, from the choice of its path to its acknowledgement, over how many are under
 * way at once. By Little's law that is the time per write of clients that keep so many going,
 * whatever bounds them. It is looked at a window at a time.
 *
 * A path that is not taken is not known. So now and then a run of writes takes the other one, a
 * trial. Writes that were under way before end first. A trial ends early if it is much slower. A
 * direct one ends at once if its first writes take several times as long, because on a disk it
 * would take a second to be sure of how much. The next trial is twice as far, up to
 * LP_CONTEST_FAR.
 *
 * A deferred write has a part that comes later. Its time is not in the write itself, but in the
 * writes that run while the later part is done. So the contest is told how much is deferred and
 * how much of it is done. A trial, and writes that are seen while nothing is done, are a *burst*.
 * The mean of all writes since the path was taken, which counts when three quarters of the
 * deferred ones are done, is the *whole*: write-back comes in storms, and no window tells what
 * they cost. The difference is the cost of the later part, and is added to a burst. As long as it
 * is not known it is taken for nothing. Then deferring is tried, and it becomes known. It is
 * believed a little less with each trial, because it may have been seen in a bad moment, and
 * would never be looked at again.
 *
 * While deferred writes are being done they slow direct ones. A trial is cut by that part, a long
 * stop of one write is left out, and other windows do not count.
 *
 * Deciding: each window adds a part of the gain of the other path, less LP_CONTEST_MARGIN, to a
 * sum. A trial adds eight times as much. At 1 the path changes. So a path that is half as good
 * again is taken after one trial, one that is a tenth better after some dozen windows, and noise
 * changes little. Windows may bring the sum there: the path became slower than the other one was
 * some time ago, which may be true of both now. Then a trial is due at once. It forgets all that
 * was seen before it, and decides. If it keeps deferring, another one is near.
 */
#ifndef LP_STORE_WRITEPATH_TRIAL_H
#define LP_STORE_WRITEPATH_TRIAL_H

#include "store/writepath/latency_model.h"

#define LP_CONTEST_WINDOW 32u   /* writes that are looked at together */
#define LP_CONTEST_SOON   8u    /* of these, for a trial that is much slower */
#define LP_CONTEST_NEAR   16u   /* from trial to trial: so many times its length, at first, */
#define LP_CONTEST_FAR    1024u /* and in the end */
#define LP_CONTEST_MARGIN 0.02

/* What was deferred since the store was opened, and what of it is done: written, or not
 * needed any more. In blocks. */
struct lp_contest_later {
	uint64_t added;
	uint64_t done;
};

/* All fields are private. */
struct lp_contest_window {
	enum lp_write_path path;
	uint32_t run;
	uint32_t cnt;
	struct lp_contest_later from; /* when the first of them was acknowledged */
	double ns[LP_CONTEST_WINDOW];
};

struct lp_contest_mean {
	double ns;    /* a write takes; 0: not known */
	uint32_t cnt; /* windows, up to what their weight depends on */
};

struct lp_contest {
	bool is_begun;
	enum lp_write_path path;
	bool is_trial;
	bool is_over;       /* the trial need not go on */
	bool is_doubted;    /* the path: a trial is due, */
	bool is_decisive;   /* and is on: what it shows stands for all before */
	uint32_t run;       /* a number for those that follow each other on one path */
	uint32_t run_cnt;   /* of the one that is on, */
	uint32_t seen_cnt;  /* and of these are looked at */
	uint32_t early_cnt; /* of a direct trial: ended that are not, */
	double early_ns;    /* and what they took */
	uint32_t far;       /* how many times its length the next trial is away */
	struct lp_contest_window windows[2]; /* of the path, of trials */
	struct lp_contest_mean direct;
	struct lp_contest_mean burst; /* of deferred ones, without the later part, */
	struct lp_contest_mean whole; /* and with it; cnt 0: that is not known */
	double later_ns;
	struct lp_contest_mean all;    /* of deferred ones, since the path was taken; */
	struct lp_contest_later taken; /* what was deferred and done then */
	double lean;                   /* towards the other */
	uint32_t flips;
};

/* One whose end is told if is_seen, or is_trial. */
struct lp_contest_write {
	bool is_seen;
	bool is_trial;
	uint32_t run;
	uint32_t depth;
	uint32_t blocks;
};

/* Where to begin, and how far the first trial is: LP_CONTEST_NEAR to LP_CONTEST_FAR. */
void lp_contest_init(struct lp_contest *contest, enum lp_write_path path, uint32_t far);
/* A write of so many blocks begins, which is one of `depth` > 0 then: the path that it takes. */
enum lp_write_path lp_contest_begin(struct lp_contest *contest, uint32_t depth, uint32_t blocks,
				    struct lp_contest_write *ret_write);
/* It was acknowledged, and took ns in all. */
void lp_contest_end(struct lp_contest *contest, const struct lp_contest_write *write, uint64_t ns,
		    const struct lp_contest_later *later);
/* What a write takes, per write, with what comes later, as far as that is known; 0: nothing is. */
double lp_contest_ns(const struct lp_contest *contest, enum lp_write_path path);

#endif
