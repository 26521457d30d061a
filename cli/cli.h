/* SPDX-License-Identifier: Apache-2.0 */
/* What the subcommands of `lapis` share: the table they stand in, and how they report.
 *
 * Exit status: 0 success, 1 the operation failed, 2 a wrong call. An error is one line on standard
 * error: "lapis: SUBJECT: what went wrong (what to do)".
 *
 * Threads: the main thread only.
 */
#ifndef LP_CLI_CLI_H
#define LP_CLI_CLI_H

#include <getopt.h>
#include <stdbool.h>
#include <stdio.h>

#include "base/units.h"

#define LP_EXIT_OK     0
#define LP_EXIT_FAILED 1
#define LP_EXIT_USAGE  2

struct lpi_cli_command {
	const char *name;
	const char *synopsis; /* after "lapis NAME " */
	const char *summary;  /* one line, no full stop */
	const char *help;     /* options and what else to know; ends in a newline */
	/* argv[0] is the command's name. Returns the exit status. */
	int (*run)(const struct lpi_cli_command *self, int argc, char **argv);
};

extern const struct lpi_cli_command lpi_cli_mkfs;
extern const struct lpi_cli_command lpi_cli_info;
extern const struct lpi_cli_command lpi_cli_fsck;
extern const struct lpi_cli_command lpi_cli_salvage;
extern const struct lpi_cli_command lpi_cli_grow;
extern const struct lpi_cli_command lpi_cli_store_bench;
extern const struct lpi_cli_command lpi_cli_umount;

/* Prints "lapis: SUBJECT: message" and returns LP_EXIT_FAILED. Both are shown escaped, so that it
 * is one line. */
int lpi_cli_fail(const char *subject, const char *fmt, ...) LP_PRINTF(2, 3);
/* What was printed has been written: else that is said, and it is LP_EXIT_FAILED. */
int lpi_end_output(int status);
/* Text that may hold anything: control characters, and bytes that are no UTF-8, escaped. */
void lpi_cli_print_escaped(FILE *to, const char *text);
/* The same of len bytes, NULs among them, with a NUL behind them. */
void lpi_cli_print_escaped_bytes(FILE *to, const char *text, size_t len);
/* The same as a JSON string, quotes and all, from which the bytes can be had back: one that is no
 * UTF-8, 0xNN, is \udcNN, which nothing else becomes. */
void lpi_cli_print_json(FILE *to, const char *text);
/* The same of len bytes, any, with a NUL behind them. */
void lpi_cli_print_json_bytes(FILE *to, const char *text, size_t len);
/* Prints what is wrong with the call and where help is; returns LP_EXIT_USAGE. */
int lpi_cli_usage(const struct lpi_cli_command *command, const char *fmt, ...) LP_PRINTF(2, 3);
/* The command's help on standard output; returns LP_EXIT_OK. */
int lpi_cli_help(const struct lpi_cli_command *command);
/* The next option of the call: its `val`, above 0, with the value in optarg. -1: the rest are no
 * options, from argv[optind] on. 0: the call ends here with *ret_status, help ('h') or what is
 * wrong with it has been said. */
int lpi_cli_next_option(const struct lpi_cli_command *command, int argc, char **argv,
			const struct option *options, int *ret_status) LP_MUST_CHECK;

/* What a command was given. */
struct lpi_args {
	bool has[128];          /* by the letter of the option */
	const char *value[128]; /* the same; NULL: it has none */
	int cnt;
	char **names; /* what is no option */
};

struct option;

/* How many names a command takes, and its options; each long one has a letter, those that are in
 * shorts may be given by it. */
struct lpi_args_form {
	const char *shorts; /* as getopt's */
	const struct option *longs;
	int min;
	int max;
};

/* -1: go on; else the exit status, --help or the error having been printed. */
int lpi_args_parse(const struct lpi_cli_command *command, int argc, char **argv,
		   const struct lpi_args_form *form, struct lpi_args *ret_args);

/* As in base/units.h. */
LP_MUST_CHECK static inline int lpi_cli_parse_size(const char *text, uint64_t *ret_bytes)
{
	return lp_parse_bytes(text, ret_bytes);
}

LP_MUST_CHECK static inline int lpi_cli_parse_number(const char *text, uint64_t low, uint64_t high,
						     uint64_t *ret_value)
{
	return lp_parse_number(text, low, high, ret_value);
}

static inline int lpi_cli_format_size(uint64_t bytes, char *buf, size_t len)
{
	return lp_format_bytes(bytes, buf, len);
}

/* Whether this goes to a terminal. */
bool lpi_is_terminal(FILE *to);

#endif
