/* SPDX-License-Identifier: Apache-2.0 */
/* What a load is reported as: lines on a terminal while it runs, a table, one JSON object, CSV.
 *
 * Threads: the main thread only.
 */
#ifndef LP_CLI_BENCH_LOAD_REPORT_H
#define LP_CLI_BENCH_LOAD_REPORT_H

#include "cli/bench/load.h"

#include <stdio.h>

struct lpi_load_report {
	const struct lpi_load *load;
	bool is_interrupted;
	const char *stats_before; /* what the daemon says of itself, JSON; NULL: nothing */
	const char *stats_after;
};

/* Errors of all phases. */
uint64_t lpi_load_error_sum(const struct lpi_load *load);

void lpi_load_report_text(const struct lpi_load_report *report);
void lpi_load_report_json(FILE *to, const struct lpi_load_report *report);
/* The seconds, with a line of names. */
void lpi_load_report_csv(FILE *to, const struct lpi_load *load);
/* One second in one line, without its end. */
void lpi_load_report_second(char *buf, size_t len, const struct lpi_load_second *second,
			    uint64_t errors_sum);
/* The first error of each kind, a line each, as errors are printed. */
void lpi_load_report_errors(const struct lpi_load *load);

#endif
