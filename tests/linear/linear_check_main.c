/* SPDX-License-Identifier: Apache-2.0 */
/* Judges a history that doors_load recorded:
 *
 *   linear_check FILE...
 *
 * The files are the lives of one daemon's store, in order. Says "good" and how much was judged,
 * with status 0; else what nobody can explain, with status 1; 2 if it could not be judged. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "tests/linear/judge.h"

/* 0, 1 or 2, as the program. */
static int judge_group(const struct lpi_acts *acts, unsigned group, struct lpi_verdict *sum)
{
	sum->is_good = true;
	for (unsigned view = 0; view < LPI_VIEWS; view++) {
		struct lpi_verdict verdict;
		if (!lpi_view_is_needed(acts, group, (enum lpi_view)view))
			continue;
		int err = lpi_judge(acts, group, (enum lpi_view)view, stdout, &verdict);
		if (err < 0) {
			(void)fprintf(stderr, "linear_check: g%u: %s\n", group, lp_strerror(err));
			return 2;
		}
		sum->act_cnt += verdict.act_cnt;
		sum->left_out += verdict.left_out;
		sum->step_cnt += verdict.step_cnt;
		if (!verdict.is_good)
			return 1;
	}
	return 0;
}

int main(int argc, char **argv)
{
	struct lpi_acts acts = {0};
	struct lpi_verdict sum = {0};
	int status = argc > 1 ? 0 : 2;
	for (int i = 1; i < argc && status == 0; i++) {
		int err = lpi_acts_load(&acts, argv[i]);
		if (err < 0) {
			(void)fprintf(stderr, "linear_check: %s: %s\n", argv[i], lp_strerror(err));
			status = 2;
		}
	}
	for (unsigned group = 0; group < LPI_GROUPS && status == 0; group++)
		status = judge_group(&acts, group, &sum);
	if (status == 0)
		(void)printf("good: %zu acts, %zu left out, %" PRIu64 " steps\n", sum.act_cnt,
			     sum.left_out, sum.step_cnt);
	lpi_acts_fini(&acts);
	return status;
}
