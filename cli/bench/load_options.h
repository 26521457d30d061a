/* SPDX-License-Identifier: Apache-2.0 */
/* The call of `lapis bench`: its options, and what is meant by those that were not given.
 *
 * Threads: the main thread only. What the options point to is argv's.
 */
#ifndef LP_CLI_BENCH_LOAD_OPTIONS_H
#define LP_CLI_BENCH_LOAD_OPTIONS_H

#include "cli/bench/load.h"
#include "cli/cli.h"

struct lpi_load_call {
	struct lpi_load_options load;
	bool is_json;
	const char *interval_path; /* NULL: none */
	/* What was given: the rest is filled in. */
	bool has_seconds;
	bool has_warmup;
	bool has_object_size;
	bool has_objects;
	bool has_order;
};

/* -1: go on; else the exit status, --help or the error having been printed. */
int lpi_load_call_parse(const struct lpi_cli_command *self, int argc, char **argv,
			struct lpi_load_call *ret_call);

#endif
