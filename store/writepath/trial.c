/* SPDX-License-Identifier: Apache-2.0 */
/* Runs: writes on the chosen path, a trial on the other, and so on. Of a run those are looked at
 * that begin when the path has found its pace: those before have ended, which is so when twice as
 * many as are under way have begun, and deferred ones have gathered: what came one by one at first
 * goes in frames of one, and it takes some rounds until most are in one. Not each is looked at:
 * those of one frame end together, and are the same news. */
#include "store/writepath/trial.h"

#include <stdlib.h>

#include "base/assert.h"
#include "store/record/types.h"

#define SLOWER      1.5 /* than the path that is taken: a trial need not go on, */
#define HOPELESS    3.0 /* nor begin, though its first ones have less to wait for */
#define LOOK_MAX    0.5 /* a gain that counts in full: */
#define TRIAL_LOOK  1.0 /* so much of a trial, */
#define WINDOW_LOOK 0.125
#define SELDOM      2u   /* trials of which the mean is taken, */
#define OFTEN       8u   /* and other windows */
#define BELIEVED    0.8  /* of what comes later, after one more trial */
#define WILD        32.0 /* times the median: it counts for no more; */
#define STOPS       4.0  /* a direct one while deferred ones are being done, and a trial */
#define PER_DEPTH   8u   /* one in so many of those under way is looked at */
#define DIRECT_PACE 2u   /* times as many as are under way, until a path has its pace */
#define FRAMES_PACE 6u
#define LONG        512u /* windows: storms of write-back come and go */
#define NS_MIN      1.0
#define NS_MAX      1e12

static enum lp_write_path other_path(enum lp_write_path path)
{
	return path == LP_PATH_DIRECT ? LP_PATH_DEFERRED : LP_PATH_DIRECT;
}

static double within(double low, double x, double high)
{
	return LP_MIN(LP_MAX(x, low), high);
}

/* --- Runs ------------------------------------------------------------------------------------- */

static uint32_t stride_of(uint32_t depth)
{
	return LP_MAX(depth / PER_DEPTH, 1u);
}

static uint32_t pace_of(enum lp_write_path path, uint32_t depth)
{
	return depth * (path == LP_PATH_DIRECT ? DIRECT_PACE : FRAMES_PACE);
}

static uint32_t trial_length(uint32_t depth, enum lp_write_path path)
{
	return pace_of(path, depth) + LP_CONTEST_WINDOW * stride_of(depth);
}

static enum lp_write_path path_of_run(const struct lp_contest *contest)
{
	return contest->is_trial ? other_path(contest->path) : contest->path;
}

static void begin_run(struct lp_contest *contest, bool is_trial)
{
	contest->is_trial = is_trial;
	contest->is_over = false;
	if (is_trial) {
		contest->is_decisive = contest->is_doubted;
		contest->is_doubted = false;
	}
	contest->run++;
	contest->run_cnt = 0;
	contest->seen_cnt = 0;
	contest->early_cnt = 0;
	contest->early_ns = 0;
	contest->windows[is_trial] =
		(struct lp_contest_window){.path = path_of_run(contest), .run = contest->run};
}

static bool is_trial_due(const struct lp_contest *contest, uint32_t depth)
{
	uint64_t length = trial_length(depth, other_path(contest->path));
	return contest->is_doubted || contest->run_cnt >= contest->far * length;
}

void lp_contest_init(struct lp_contest *contest, enum lp_write_path path, uint32_t far)
{
	LP_ASSERT(path == LP_PATH_DIRECT || path == LP_PATH_DEFERRED);
	*contest = (struct lp_contest){.is_begun = true, .path = path, .far = far};
	begin_run(contest, false);
}

enum lp_write_path lp_contest_begin(struct lp_contest *contest, uint32_t depth, uint32_t blocks,
				    struct lp_contest_write *ret_write)
{
	LP_ASSERT(contest->is_begun && depth > 0);
	if (contest->is_trial && (contest->is_over || contest->seen_cnt == LP_CONTEST_WINDOW)) {
		contest->far = LP_MIN(2 * contest->far, LP_CONTEST_FAR);
		begin_run(contest, false);
	} else if (!contest->is_trial && is_trial_due(contest, depth)) {
		begin_run(contest, true);
	}
	contest->run_cnt++;
	enum lp_write_path path = path_of_run(contest);
	/* The first ones of all begin together, and have it at once. */
	bool is_at_pace = contest->run_cnt > (contest->run == 1 ? depth : pace_of(path, depth));
	bool is_seen = is_at_pace && contest->run_cnt % stride_of(depth) == 0;
	contest->seen_cnt += is_seen;
	*ret_write = (struct lp_contest_write){.is_seen = is_seen,
					       .is_trial = contest->is_trial,
					       .run = contest->run,
					       .depth = depth,
					       .blocks = blocks};
	return path;
}

/* --- What was seen ---------------------------------------------------------------------------- */

static int compare_ns(const void *a, const void *b)
{
	double x = *(const double *)a;
	double y = *(const double *)b;
	return (x > y) - (x < y);
}

/* Where the thread was not running is no news, and what stops a direct write while deferred ones
 * are being done is none of its own. */
static double tame_mean(struct lp_contest_window *window, double wild)
{
	double sum_ns = 0;
	qsort(window->ns, window->cnt, sizeof(window->ns[0]), compare_ns);
	for (uint32_t i = 0; i < window->cnt; i++)
		sum_ns += LP_MIN(window->ns[i], wild * window->ns[window->cnt / 2]);
	return sum_ns / window->cnt;
}

static void learn(struct lp_contest_mean *mean, double ns, uint32_t cnt_max)
{
	mean->cnt = LP_MIN(mean->cnt + 1, cnt_max);
	mean->ns += (ns - mean->ns) / mean->cnt;
}

double lp_contest_ns(const struct lp_contest *contest, enum lp_write_path path)
{
	if (path == LP_PATH_DIRECT)
		return contest->direct.ns;
	if (contest->whole.cnt > 0)
		return contest->whole.ns;
	return contest->burst.cnt > 0 ? contest->burst.ns + contest->later_ns : 0;
}

static void learn_direct(struct lp_contest *contest, double ns, bool is_trial, bool is_slowed)
{
	if (is_slowed && !is_trial)
		return;
	if (is_slowed && contest->whole.cnt > 0 && contest->burst.cnt > 0)
		ns *= LP_MIN(contest->burst.ns / contest->whole.ns, 1.0);
	learn(&contest->direct, ns, is_trial ? SELDOM : OFTEN);
}

/* Since the path was taken; true: most of what was deferred is done, and the mean is that of all.
 */
static bool learn_whole(struct lp_contest *contest, double ns, const struct lp_contest_later *later)
{
	struct lp_contest_mean *all = &contest->all;
	if (all->cnt == 0)
		contest->taken = *later;
	learn(all, ns, LONG);
	uint64_t added = later->added - contest->taken.added;
	uint64_t done = later->done - contest->taken.done;
	if (contest->whole.cnt == 0 && (done == 0 || done < added - added / 4))
		return false;
	contest->whole = *all;
	return true;
}

static void learn_deferred(struct lp_contest *contest, double ns, bool is_trial, bool is_slowed,
			   const struct lp_contest_later *later)
{
	if (is_trial) {
		learn(&contest->burst, ns, SELDOM);
		contest->later_ns *= BELIEVED;
		return;
	}
	if (!is_slowed)
		learn(&contest->burst, ns, OFTEN);
	if (learn_whole(contest, ns, later) && contest->burst.cnt > 0)
		contest->later_ns = LP_MAX(contest->whole.ns - contest->burst.ns, 0.0);
}

static void flip(struct lp_contest *contest)
{
	contest->path = other_path(contest->path);
	contest->lean = 0;
	contest->is_doubted = false;
	contest->flips++;
	contest->whole = (struct lp_contest_mean){.cnt = 0};
	contest->all = contest->whole;
	begin_run(contest, false);
}

static void look(struct lp_contest *contest, bool is_trial)
{
	double mine_ns = lp_contest_ns(contest, contest->path);
	double other_ns = lp_contest_ns(contest, other_path(contest->path));
	if (mine_ns == 0 || other_ns == 0)
		return;
	double gain = within(-LOOK_MAX, mine_ns / other_ns - 1 - LP_CONTEST_MARGIN, LOOK_MAX);
	double share = is_trial ? TRIAL_LOOK : WINDOW_LOOK;
	contest->lean = within(0, contest->lean + share * gain / LOOK_MAX, 1);
	if (contest->lean == 1 && is_trial)
		flip(contest);
	else
		contest->is_doubted = contest->lean == 1;
}

/* A trial that is much slower than what is taken need not show how much. */
static bool is_enough(const struct lp_contest *contest, const struct lp_contest_window *window,
		      bool is_trial)
{
	double mine_ns = lp_contest_ns(contest, contest->path);
	double sum_ns = 0;
	if (window->cnt == LP_CONTEST_WINDOW)
		return true;
	if (!is_trial || window->cnt < LP_CONTEST_SOON || mine_ns == 0)
		return false;
	for (uint32_t i = 0; i < window->cnt; i++)
		sum_ns += LP_MIN(window->ns[i], STOPS * mine_ns);
	return sum_ns > SLOWER * mine_ns * window->cnt;
}

static void learn_window(struct lp_contest *contest, struct lp_contest_window *window,
			 bool is_trial, bool is_slowed, const struct lp_contest_later *later)
{
	bool is_direct = window->path == LP_PATH_DIRECT;
	double mean_ns = tame_mean(window, is_slowed && is_direct ? STOPS : WILD);
	if (is_trial && contest->is_decisive)
		(is_direct ? &contest->direct : &contest->burst)->cnt = 0;
	if (is_direct)
		learn_direct(contest, mean_ns, is_trial, is_slowed);
	else
		learn_deferred(contest, mean_ns, is_trial, is_slowed, later);
}

/* Of a direct trial, mostly before it has its pace. What it would show is not known then, and
 * nothing is learned but that it is not now that it could be the better one. */
static void look_early(struct lp_contest *contest, const struct lp_contest_write *write,
		       uint64_t ns)
{
	double mine_ns = lp_contest_ns(contest, contest->path);
	if (!contest->is_trial || contest->run != write->run || contest->is_decisive ||
	    contest->path == LP_PATH_DIRECT || mine_ns == 0)
		return;
	contest->early_cnt++;
	contest->early_ns += (double)ns / write->depth;
	if (contest->early_cnt >= LP_CONTEST_SOON &&
	    contest->early_ns > HOPELESS * mine_ns * contest->early_cnt)
		contest->is_over = true;
}

void lp_contest_end(struct lp_contest *contest, const struct lp_contest_write *write, uint64_t ns,
		    const struct lp_contest_later *later)
{
	struct lp_contest_window *window = &contest->windows[write->is_trial];
	if (write->is_trial && !write->is_seen)
		look_early(contest, write, ns);
	if (!write->is_seen || window->run != write->run || window->cnt == LP_CONTEST_WINDOW)
		return;
	if (window->cnt == 0)
		window->from = *later;
	window->ns[window->cnt++] = within(NS_MIN, (double)ns, NS_MAX) / write->depth;
	if (!is_enough(contest, window, write->is_trial))
		return;
	uint64_t blocks = (uint64_t)window->cnt * stride_of(write->depth) * write->blocks;
	bool is_slowed = later->done - window->from.done > blocks / 8;
	learn_window(contest, window, write->is_trial, is_slowed, later);
	/* A trial's window stays full: what comes behind it belongs to nothing. */
	window->cnt = write->is_trial ? LP_CONTEST_WINDOW : 0;
	if (write->is_trial && contest->run == write->run)
		contest->is_over = true;
	look(contest, write->is_trial);
	/* It may have been in the way of what was deferred: another one soon, which replaces it. */
	if (write->is_trial && contest->is_decisive && contest->path == LP_PATH_DEFERRED &&
	    window->path == LP_PATH_DIRECT) {
		contest->far = LP_CONTEST_NEAR;
		contest->direct.cnt = 0;
	}
}
