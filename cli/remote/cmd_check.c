/* SPDX-License-Identifier: Apache-2.0 */
/* lapis check: the structure of the store, as lapis fsck sees it, while the daemon serves. */
#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cli/json.h"
#include "cli/remote/remote.h"

/* NULL: said already, *ret_status. */
static char *ask(const char *what, int *ret_status)
{
	char *answer = NULL;
	struct lapis *lapis = lpi_remote();
	*ret_status = LP_EXIT_FAILED;
	if (lapis == NULL)
		return NULL;
	int err = lapis_admin(lapis, LAPIS_CHECK, what, &answer);
	if (err < 0)
		*ret_status = lpi_remote_fail("check", err);
	return err < 0 ? NULL : answer;
}

static bool is_in_state(const char *answer, const char *state)
{
	char word[16];
	return strcmp(lpi_cli_json_text(answer, "state", word, sizeof(word)), state) == 0;
}

/* Frees what there was. */
static char *wait_for_end(char *answer, int *ret_status)
{
	struct timespec pause = {.tv_nsec = 5000000};
	while (answer != NULL && is_in_state(answer, "running")) {
		(void)nanosleep(&pause, NULL);
		if (pause.tv_nsec < 200000000)
			pause.tv_nsec *= 2;
		free(answer);
		answer = ask("status", ret_status);
	}
	return answer;
}

/* --- What is shown -----------------------------------------------------------------------------
 */

static const char *field_of(const char *answer, unsigned finding, const char *name, char *buf,
			    size_t len)
{
	char path[80];
	(void)snprintf(path, sizeof(path), "findings.%u.%s", finding, name);
	return lpi_cli_json_text(answer, path, buf, len);
}

static void print_findings(const char *answer)
{
	static const char *const fields[] = {"severity", "kind", "object", "text"};
	char text[1024];
	double found =
		lpi_cli_json_number(answer, "problems") + lpi_cli_json_number(answer, "warnings");
	unsigned i = 0;
	for (; field_of(answer, i, "kind", text, sizeof(text))[0] != '\0'; i++) {
		for (size_t f = 0; f < LP_ARRAY_SIZE(fields); f++) {
			(void)fputs(f > 0 ? ": " : "", stdout);
			(void)field_of(answer, i, fields[f], text, sizeof(text));
			lpi_cli_print_escaped(stdout, text);
		}
		(void)putchar('\n');
	}
	if (i < found)
		(void)printf("and %.0f more\n", found - i);
}

static void print_counts(const char *answer)
{
	double problems = lpi_cli_json_number(answer, "problems");
	double warnings = lpi_cli_json_number(answer, "warnings");
	(void)printf(
		"%.0f inodes, %.0f entries, %.0f blocks: ", lpi_cli_json_number(answer, "inodes"),
		lpi_cli_json_number(answer, "entries"), lpi_cli_json_number(answer, "blocks"));
	if (problems + warnings == 0)
		(void)puts("clean");
	else
		(void)printf("%s%.0f problem%s%s, %.0f warning%s\n", lpi_color(stdout, "1;31"),
			     problems, problems == 1 ? "" : "s", lpi_color(stdout, "0"), warnings,
			     warnings == 1 ? "" : "s");
}

static void print_all(const char *answer)
{
	char when[40];
	char text[200];
	if (is_in_state(answer, "never")) {
		(void)puts("not checked since the daemon was started");
		return;
	}
	bool is_running = is_in_state(answer, "running");
	double at = lpi_cli_json_number(answer, is_running ? "began_ns" : "ended_ns");
	lpi_format_time((int64_t)at, when, sizeof(when));
	if (is_running) {
		(void)printf("running since %s\n", when);
	} else if (is_in_state(answer, "done")) {
		print_findings(answer);
		(void)printf("%s: ", when);
		print_counts(answer);
	} else {
		print_findings(answer);
		(void)printf("%s: ended early: ", when);
		lpi_cli_print_escaped(
			stdout, is_in_state(answer, "stopped")
					? "stopped"
					: lpi_cli_json_text(answer, "error", text, sizeof(text)));
		(void)putchar('\n');
	}
}

static int run_check(const struct lpi_cli_command *self, int argc, char **argv)
{
	static const struct option options[] = {{"json", no_argument, NULL, 'j'},
						{"help", no_argument, NULL, 'h'},
						{NULL, 0, NULL, 0}};
	static const struct lpi_args_form form = {"", options, 0, 1};
	struct lpi_args args;
	int status = lpi_args_parse(self, argc, argv, &form, &args);
	if (status >= 0)
		return status;
	const char *what = args.cnt > 0 ? args.names[0] : "start";
	bool waits = args.cnt == 0;
	if (strcmp(what, "status") != 0 && strcmp(what, "start") != 0 && strcmp(what, "stop") != 0)
		return lpi_cli_usage(self, "%s is not one of status, start, stop", what);
	char *answer = ask(what, &status);
	if (waits)
		answer = wait_for_end(answer, &status);
	if (answer == NULL)
		return status;
	if (args.has['j'])
		(void)puts(answer);
	else
		print_all(answer);
	bool is_good = is_in_state(answer, "done") && lpi_cli_json_number(answer, "problems") == 0;
	free(answer);
	return is_good || !waits ? LP_EXIT_OK : LP_EXIT_FAILED;
}

const struct lpi_cli_command lpi_remote_check = {
	.name = "check",
	.synopsis = "[--json] [status | start | stop]",
	.summary = "Check the structure of the store while the daemon serves",
	.help = "  --json  as JSON\n"
		"  --help  this text\n"
		"\n"
		"Checks everything except data, as it is at one moment. Changes wait for as long "
		"as\n"
		"the requests under way take to finish. The exit status is 1 when anything is "
		"wrong,\n"
		"or the check did not reach its end. start returns at once; status shows the last\n"
		"check. lapis scrub checks data. To repair, stop the daemon and run lapis fsck.\n",
	.run = run_check,
};
