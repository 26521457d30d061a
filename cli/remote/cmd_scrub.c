/* SPDX-License-Identifier: Apache-2.0 */
/* lapis scrub: all data is read and held against its checksums while the daemon serves. */
#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/json.h"
#include "cli/progress.h"
#include "cli/remote/remote.h"

#define SHARDS_MAX 64u

static double number_of(const char *answer, unsigned shard, const char *name)
{
	char path[80];
	(void)snprintf(path, sizeof(path), "shards.%u.%s", shard, name);
	return lpi_cli_json_number(answer, path);
}

static const char *text_of(const char *answer, unsigned shard, const char *name, char *buf,
			   size_t len)
{
	char path[80];
	(void)snprintf(path, sizeof(path), "shards.%u.%s", shard, name);
	return lpi_cli_json_text(answer, path, buf, len);
}

/* As it is written there: a double would not hold every inode's number. */
static const char *word_of(const char *answer, unsigned shard, unsigned place, const char *name,
			   char *buf, size_t len)
{
	char path[80];
	(void)snprintf(path, sizeof(path), "shards.%u.places.%u.%s", shard, place, name);
	return lpi_cli_json_word(answer, path, buf, len);
}

static void print_word(const char *before, const char *answer, unsigned shard, unsigned place,
		       const char *name)
{
	char word[32];
	(void)fputs(before, stdout);
	lpi_cli_print_escaped(stdout, word_of(answer, shard, place, name, word, sizeof(word)));
}

static void print_places(const char *answer, unsigned shard)
{
	char name[40];
	char ino[32];
	char why[200];
	double damaged = number_of(answer, shard, "damaged");
	unsigned i = 0;
	for (; word_of(answer, shard, i, "ino", ino, sizeof(ino))[0] != '\0'; i++) {
		(void)snprintf(name, sizeof(name), "places.%u.error", i);
		print_word("          inode ", answer, shard, i, "ino");
		print_word(", offset ", answer, shard, i, "offset");
		(void)fputs(": ", stdout);
		lpi_cli_print_escaped(stdout, text_of(answer, shard, name, why, sizeof(why)));
		(void)putchar('\n');
	}
	if (i < damaged)
		(void)printf("          and %.0f more (lapis scrub --list names the objects)\n",
			     damaged - i);
}

static void print_damaged(double damaged)
{
	if (damaged == 0)
		(void)fputs("nothing damaged", stdout);
	else
		(void)printf("%s%.0f damaged%s", lpi_color(stdout, "1;31"), damaged,
			     lpi_color(stdout, "0"));
}

static void print_shard(const char *answer, unsigned shard, const char *state)
{
	char size[32];
	char when[40];
	bool is_running = strcmp(state, "running") == 0;
	double damaged = number_of(answer, shard, "damaged");
	double next_s = number_of(answer, shard, "next_s");
	(void)printf("shard %-3u ", shard);
	lpi_cli_print_escaped(stdout, state);
	if (strcmp(state, "idle") == 0) {
		lpi_format_time((int64_t)number_of(answer, shard, "whole_ns"), when, sizeof(when));
		(void)printf(", all checked %s: ", when);
		print_damaged(damaged);
	} else if (strcmp(state, "never") != 0) {
		double at = number_of(answer, shard, is_running ? "began_ns" : "ended_ns");
		lpi_format_time((int64_t)at, when, sizeof(when));
		(void)lpi_cli_format_size((uint64_t)number_of(answer, shard, "bytes"), size,
					  sizeof(size));
		(void)printf("%s %s: %.0f objects, %s, ", is_running ? " since" : "", when,
			     number_of(answer, shard, "objects"), size);
		print_damaged(damaged);
	}
	if (!is_running && next_s > 0)
		(void)printf("; the next begins in %.1f h", next_s / 3600);
	(void)putchar('\n');
	print_places(answer, shard);
}

static void print_all(const char *answer)
{
	char state[32];
	for (unsigned i = 0; i < SHARDS_MAX; i++) {
		if (text_of(answer, i, "state", state, sizeof(state))[0] == '\0')
			break;
		print_shard(answer, i, state);
	}
}

/* NULL: said already, *ret_status. */
static char *ask(const char *what, int *ret_status)
{
	char *answer = NULL;
	struct lapis *lapis = lpi_remote();
	*ret_status = LP_EXIT_FAILED;
	if (lapis == NULL)
		return NULL;
	int err = lapis_admin(lapis, LAPIS_SCRUB, what, &answer);
	if (err < 0)
		*ret_status = lpi_remote_fail("scrub", err);
	return err < 0 ? NULL : answer;
}

static bool is_running(const char *answer)
{
	char word[8];
	return strcmp(lpi_cli_json_word(answer, "running", word, sizeof(word)), "true") == 0;
}

static void print_progress(const char *answer)
{
	double objects = 0;
	double bytes = 0;
	char size[32];
	char state[32];
	for (unsigned i = 0; i < SHARDS_MAX; i++) {
		if (text_of(answer, i, "state", state, sizeof(state))[0] == '\0')
			break;
		objects += number_of(answer, i, "objects");
		bytes += number_of(answer, i, "bytes");
	}
	(void)lpi_cli_format_size((uint64_t)bytes, size, sizeof(size));
	(void)fprintf(stderr, "\r%.0f objects, %s, %.0f damaged\033[K", objects, size,
		      lpi_cli_json_number(answer, "damaged"));
	(void)fflush(stderr);
}

static char *wait_for_end(char *answer, int *ret_status)
{
	static const struct timespec pause = {.tv_nsec = 200000000};
	bool is_drawn = false;
	struct lpi_progress line;
	lpi_progress_start(&line, 0);
	while (answer != NULL && is_running(answer)) {
		uint64_t now_ns = lp_clock_mono_ns(lp_clock_system());
		if (line.is_shown && now_ns - line.began_ns >= LP_NS_PER_S) {
			print_progress(answer);
			is_drawn = true;
		}
		(void)nanosleep(&pause, NULL);
		free(answer);
		answer = ask("status", ret_status);
	}
	if (is_drawn)
		(void)fputs("\r\033[K", stderr);
	return answer;
}

/* Whether the last check of a shard did not come to its end: it has failed, or was stopped. */
static bool is_cut_short(const char *answer)
{
	char state[32];
	for (unsigned i = 0; i < SHARDS_MAX; i++) {
		if (text_of(answer, i, "state", state, sizeof(state))[0] == '\0')
			return false;
		if (strcmp(state, "failed") == 0 || strcmp(state, "stopped") == 0)
			return true;
	}
	return false;
}

static int run_scrub(const struct lpi_cli_command *self, int argc, char **argv)
{
	static const struct option options[] = {{"json", no_argument, NULL, 'j'},
						{"list", no_argument, NULL, 'l'},
						{"no-progress", no_argument, NULL, 'P'},
						{"help", no_argument, NULL, 'h'},
						{NULL, 0, NULL, 0}};
	static const struct lpi_args_form form = {"", options, 0, 1};
	struct lpi_args args;
	int status = lpi_args_parse(self, argc, argv, &form, &args);
	if (status >= 0)
		return status;
	if (args.has['l'] && args.cnt > 0)
		return lpi_cli_usage(self, "--list cannot be combined with %s", args.names[0]);
	if (args.has['l'])
		return lpi_damaged_list(args.has['j']);
	lpi_progress_command(args.has['P']);
	const char *what = args.cnt > 0 ? args.names[0] : "status";
	bool waits = strcmp(what, "wait") == 0;
	if (!waits && strcmp(what, "status") != 0 && strcmp(what, "start") != 0 &&
	    strcmp(what, "stop") != 0)
		return lpi_cli_usage(self, "%s is not one of status, start, stop, wait", what);
	char *answer = ask(waits ? "status" : what, &status);
	if (waits && answer != NULL)
		answer = wait_for_end(answer, &status);
	if (answer == NULL)
		return status;
	if (args.has['j'])
		(void)puts(answer);
	else
		print_all(answer);
	bool is_bad = waits && (lpi_cli_json_number(answer, "damaged") > 0 || is_cut_short(answer));
	free(answer);
	return is_bad ? LP_EXIT_FAILED : LP_EXIT_OK;
}

const struct lpi_cli_command lpi_remote_scrub = {
	.name = "scrub",
	.synopsis = "[--json] [--no-progress] [--list | status | start | stop | wait]",
	.summary = "Check all data against its checksums while the daemon serves",
	.help = "  --json         as JSON\n"
		"  --list         the objects that are known to be damaged, with all their names\n"
		"  --no-progress  with wait: do not show progress, even on a terminal\n"
		"  --help         this text\n"
		"\n"
		"start begins a check of all data, at the rate of the option scrub-rate, and "
		"returns\n"
		"at once. wait waits for the end, and exits with 1 if anything is damaged or a "
		"check\n"
		"did not reach its end. stop ends a check. A check also begins by itself when\n"
		"scrub-interval has passed since the last one, or since a stop.\n"
		"\n"
		"--list has damage that any reader or check has found, also before a restart. An\n"
		"object leaves the list when it is repaired or removed. The exit status is 1 when\n"
		"the list is not empty.\n",
	.run = run_scrub,
};
