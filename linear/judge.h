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
 * Views. Where the kernel of the mount remembers, it is told of a change before that is answered
 * (rule M2), but who looks through a socket may have seen it earlier. So looks that may have come
 * from its memory (LPI_CACHED), and looks at the sockets beside them (LPI_SHARP), are each judged
 * with all changes, but not with each other.
 *
 * Threads: one per call. Memory: that of each state on the way, and 16 bytes for each that was met;
 * bounded by LPI_JUDGE_STEPS_MAX.
 */
#ifndef LP_LINEAR_JUDGE_H
#define LP_LINEAR_JUDGE_H

#include "linear/act.h"

#define LPI_JUDGE_STEPS_MAX 30000000u /* beyond these it gives up */

enum lpi_view {
	LPI_VIEW_SOCKETS, /* all but LPI_CACHED */
	LPI_VIEW_MOUNT    /* all but LPI_SHARP */
};

struct lpi_verdict {
	size_t act_cnt; /* that counted */
	size_t left_out;
	uint64_t step_cnt;
	bool is_good;
	bool has_given_up; /* it is not good, but has not been shown to be bad either */
};

/* Judges one group's acts as this view has them. If they are not good, `file` is told how far they
 * went and what could not follow; it may be NULL. -ENOMEM. */
int lpi_judge(const struct lpi_acts *acts, unsigned group, enum lpi_view view, FILE *file,
	      struct lpi_verdict *ret_verdict) LP_MUST_CHECK;

#endif
