/* SPDX-License-Identifier: Apache-2.0 */
/* A whole run of the store's benchmark: devices, phases, report.
 *
 * Threads: the main thread; blocks until it is done. Errors: said on standard error.
 */
#ifndef LP_CLI_STOREBENCH_RUN_H
#define LP_CLI_STOREBENCH_RUN_H

#include "cli/store_session.h"
#include "cli/storebench/store_bench.h"

struct lpi_bench_run_options {
	struct lpi_bench_options bench; /* without fault */
	struct lpi_session_options session;
	const char *delay; /* name of the profile, to be shown */
	bool json;
	bool keep;    /* leave the objects for the next run */
	bool explain; /* say what would choose the write path, also when it was given */
	bool states;  /* how long operations stayed in each of their states */
	bool abandon; /* end as a kill would: nothing is settled, read back or removed */
};

/* "auto", "inline", "deferred", "direct". */
const char *lpi_bench_path_name(enum lp_write_path path);
/* -1 for an unknown name. */
int lpi_bench_path_parse(const char *name);

/* Prints the report; returns the exit status. */
int lpi_bench_run_all(const struct lpi_bench_run_options *options);

#endif
