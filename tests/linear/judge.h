/* SPDX-License-Identifier: Apache-2.0 */
/* The judge: is there an order of a group's acts, in which each happens at one moment between its
 * invocation and its return, that explains what everybody saw? That is linearizability; with starts
 * of the daemon as acts, it says as well that what was acknowledged survives them.
 *
 * Which acts count. An act of unknown outcome may have happened until the daemon was gone, or not
 * at all. A look of unknown outcome says nothing. What a mount's look saw while a change of
 * unknown outcome was under way may be lost, for only the sockets wait until what they show is
 * durable (promise P3): such looks are left out, of groups that may not lose.
 *
 * Views. Where the kernel of the mount remembers, it is told of a change before the change is
 * answered (rule M2). Until then a socket may show the change already and the mount not yet. The
 * mount may even show one part of it and not another: the kernel is told of each page, of the
 * attributes and of each name one after the other. So there are several views of one history. Each
 * has all changes, and the looks of one kind:
 *
 *   LPI_VIEW_SOCKETS  those at the sockets (LPI_SHARP)
 *   LPI_VIEW_NAMES    those of the kernel's memory (LPI_CACHED) that found no name
 *   LPI_VIEW_SIZES    those of sizes and counts of names
 *   LPI_VIEW_XATTRS   those of extended attributes
 *   LPI_VIEW_CELLS+k  those of cell k
 *
 * A look through the mount that the daemon has answered is in all views, and so is whoever opens
 * something. In the views of the kernel's memory nobody is told versions, for these say what came
 * before what.
 *
 * Threads: one per call. Memory: that of each state on the way, and 16 bytes for each that was met;
 * bounded by LPI_JUDGE_STEPS_MAX.
 */
#ifndef LP_TESTS_LINEAR_JUDGE_H
#define LP_TESTS_LINEAR_JUDGE_H

#include "tests/linear/act.h"

#define LPI_JUDGE_STEPS_MAX 30000000u /* beyond these it gives up */

enum lpi_view {
	LPI_VIEW_SOCKETS,
	LPI_VIEW_NAMES,
	LPI_VIEW_SIZES,
	LPI_VIEW_XATTRS,
	LPI_VIEW_CELLS,
	LPI_VIEWS = LPI_VIEW_CELLS + (int)LPI_CELLS
};

struct lpi_verdict {
	size_t act_cnt; /* that counted */
	size_t left_out;
	uint64_t step_cnt;
	bool is_good;
	bool has_given_up; /* it is not good, but has not been shown to be bad either */
};

/* Whether this group has looks that only this view has. */
bool lpi_view_is_needed(const struct lpi_acts *acts, unsigned group, enum lpi_view view);
/* Judges one group's acts as this view has them. If they are not good, `file` is told how far they
 * went and what could not follow; it may be NULL. -ENOMEM. */
int lpi_judge(const struct lpi_acts *acts, unsigned group, enum lpi_view view, FILE *file,
	      struct lpi_verdict *ret_verdict) LP_MUST_CHECK;

#endif
