/* SPDX-License-Identifier: Apache-2.0 */
/* lapis status, stats, slow, explain, config, alloc, heap: what a daemon says of itself. */
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

#include "cli/json.h"
#include "cli/remote/remote.h"

/* A JSON text as it came, or for people. */
static int show(uint32_t op, const char *text, const char *subject, bool json)
{
	char *answer = NULL;
	struct lapis *lapis = lpi_remote();
	if (lapis == NULL)
		return LP_EXIT_FAILED;
	int err = lapis_admin(lapis, op, text, &answer);
	if (err < 0)
		return lpi_remote_fail(subject, err);
	if (json)
		(void)puts(answer);
	else
		lpi_cli_json_show(stdout, answer);
	free(answer);
	return LP_EXIT_OK;
}

static const struct option json_only[] = {
	{"json", no_argument, NULL, 'j'}, {"help", no_argument, NULL, 'h'}, {NULL, 0, NULL, 0}};

#define JSON_HELP                                                                                  \
	"  --json  as JSON\n"                                                                      \
	"  --help  this text\n"

/* --- status ----------------------------------------------------------------------------------- */

/* "2 days", "3 h": the two largest would tell no more. */
static void format_span(double seconds, char *buf, size_t len)
{
	static const struct {
		double seconds;
		const char *name;
	} units[] = {{86400, "days"}, {3600, "h"}, {60, "min"}, {1, "s"}};
	size_t i = 0;
	while (i + 1 < LP_ARRAY_SIZE(units) && seconds < 2 * units[i].seconds)
		i++;
	(void)snprintf(buf, len, "%.0f %s", seconds / units[i].seconds, units[i].name);
}

static void print_text(const char *answer, const char *path)
{
	char text[1024];
	lpi_cli_print_escaped(stdout, lpi_cli_json_text(answer, path, text, sizeof(text)));
}

static void print_devices(const char *answer)
{
	char path[64];
	char size[32];
	char text[8];
	for (unsigned i = 0;; i++) {
		(void)snprintf(path, sizeof(path), "devices.%u.size_bytes", i);
		double bytes = lpi_cli_json_number(answer, path);
		if (bytes == 0)
			break;
		(void)lpi_cli_format_size((uint64_t)bytes, size, sizeof(size));
		(void)fputs("device    ", stdout);
		(void)snprintf(path, sizeof(path), "devices.%u.path", i);
		print_text(answer, path);
		(void)snprintf(path, sizeof(path), "devices.%u.silent", i);
		bool is_silent =
			strcmp(lpi_cli_json_word(answer, path, text, sizeof(text)), "true") == 0;
		(void)printf(", %s%s\n", size, is_silent ? ", does not answer" : "");
	}
}

static void print_bad_blocks(const char *answer)
{
	char since[40];
	char path[64];
	double cnt = lpi_cli_json_number(answer, "bad_blocks.count");
	double began = lpi_cli_json_number(answer, "bad_blocks.since");
	if (cnt == 0)
		return;
	lpi_format_time((int64_t)began * INT64_C(1000000000), since, sizeof(since));
	(void)printf("bad       %.0f block%s that cannot be written, since %s:", cnt,
		     cnt == 1 ? "" : "s", since);
	double shown = 0;
	for (;; shown++) {
		(void)snprintf(path, sizeof(path), "bad_blocks.places.%.0f.block", shown);
		double block = lpi_cli_json_number(answer, path);
		if (block == 0)
			break;
		(void)printf(" %.0f", block);
	}
	(void)puts(shown < cnt ? " ..." : "");
}

static void print_damaged(const char *answer)
{
	char word[8];
	double objects = lpi_cli_json_number(answer, "damaged_objects");
	bool is_full = strcmp(lpi_cli_json_word(answer, "damaged_list_full", word, sizeof(word)),
			      "true") == 0;
	if (objects > 0)
		(void)printf("damaged   %.0f%s object%s (see lapis scrub --list)\n", objects,
			     is_full ? " or more" : "", objects == 1 ? "" : "s");
}

static void print_scrub(const char *answer)
{
	char word[8];
	char when[40];
	double damaged = lpi_cli_json_number(answer, "scrub.damaged");
	double whole_ns = lpi_cli_json_number(answer, "scrub.whole_ns");
	(void)lpi_cli_json_word(answer, "scrub.running", word, sizeof(word));
	if (strcmp(word, "true") == 0) {
		(void)fputs("scrub     running", stdout);
	} else if (whole_ns > 0) {
		lpi_format_time((int64_t)whole_ns, when, sizeof(when));
		(void)printf("scrub     %s", when);
	} else if (damaged > 0) {
		(void)fputs("scrub     ended early", stdout);
	} else {
		return;
	}
	if (damaged > 0)
		(void)printf(", %.0f damaged (see lapis scrub)\n", damaged);
	else
		(void)puts(", nothing damaged");
}

static void print_mount(const char *answer)
{
	char text[8];
	if (lpi_cli_json_text(answer, "mount.dir", text, sizeof(text))[0] == '\0')
		return;
	(void)fputs("mount     ", stdout);
	print_text(answer, "mount.dir");
	(void)fputs(" by ", stdout);
	print_text(answer, "mount.transport");
	(void)printf("; requests %.0f, answered by an error %.0f, under way %.0f\n",
		     lpi_cli_json_number(answer, "mount.requests"),
		     lpi_cli_json_number(answer, "mount.errors"),
		     lpi_cli_json_number(answer, "mount.under_way"));
}

static void print_status(const char *answer, const char *state, bool is_ok)
{
	char since[40];
	char span[32];
	char memory[32];
	char used[32];
	char available[32];
	double began = lpi_cli_json_number(answer, "state_since");
	double shards = lpi_cli_json_number(answer, "shards_cnt");
	double threads = lpi_cli_json_number(answer, "threads_cnt");
	double conns = lpi_cli_json_number(answer, "connections");
	lpi_format_time((int64_t)began * INT64_C(1000000000), since, sizeof(since));
	format_span(lpi_cli_json_number(answer, "uptime_s"), span, sizeof(span));
	(void)lpi_cli_format_size((uint64_t)lpi_cli_json_number(answer, "rss_bytes"), memory,
				  sizeof(memory));
	(void)lpi_cli_format_size((uint64_t)lpi_cli_json_number(answer, "used_bytes"), used,
				  sizeof(used));
	(void)lpi_cli_format_size((uint64_t)lpi_cli_json_number(answer, "available_bytes"),
				  available, sizeof(available));
	(void)fputs(lpi_color(stdout, is_ok ? "1;32" : "1;31"), stdout);
	lpi_cli_print_escaped(stdout, state);
	(void)printf("%s since %s%s", lpi_color(stdout, "0"), since, is_ok ? "" : ": ");
	print_text(answer, "reason");
	(void)fputs("\ndaemon    ", stdout);
	print_text(answer, "server");
	(void)printf(", up %s, %s of memory\nstore     ", span, memory);
	print_text(answer, "store");
	(void)putchar(' ');
	print_text(answer, "uuid");
	(void)printf("\nshards    %.0f on %.0f thread%s\ndata      %s, %s available\n", shards,
		     threads, threads == 1 ? "" : "s", used, available);
	(void)printf("requests  %.0f since the start, %.0f for missing objects, %.0f failed; "
		     "%.0f connection%s now\n",
		     lpi_cli_json_number(answer, "requests"), lpi_cli_json_number(answer, "absent"),
		     lpi_cli_json_number(answer, "errors"), conns, conns == 1 ? "" : "s");
	print_devices(answer);
	print_bad_blocks(answer);
	print_damaged(answer);
	print_scrub(answer);
	print_mount(answer);
}

static int run_status(const struct lpi_cli_command *self, int argc, char **argv)
{
	static const struct lpi_args_form form = {"", json_only, 0, 0};
	struct lpi_args args;
	char state[32];
	char *answer = NULL;
	int status = lpi_args_parse(self, argc, argv, &form, &args);
	if (status >= 0)
		return status;
	struct lapis *lapis = lpi_remote();
	if (lapis == NULL)
		return LP_EXIT_FAILED;
	int err = lapis_admin(lapis, LAPIS_STATUS, NULL, &answer);
	if (err < 0)
		return lpi_remote_fail("status", err);
	(void)lpi_cli_json_text(answer, "state", state, sizeof(state));
	if (args.has['j'])
		(void)puts(answer);
	else
		print_status(answer, state, strcmp(state, "ok") == 0);
	free(answer);
	return LP_EXIT_OK;
}

const struct lpi_cli_command lpi_remote_status = {
	.name = "status",
	.synopsis = "[--json]",
	.summary = "Show the health of the daemon and its store",
	.help = JSON_HELP,
	.run = run_status,
};

/* --- stats ------------------------------------------------------------------------------------ */

static int run_stats(const struct lpi_cli_command *self, int argc, char **argv)
{
	static const struct option longs[] = {{"json", no_argument, NULL, 'j'},
					      {"prometheus", no_argument, NULL, 'p'},
					      {"help", no_argument, NULL, 'h'},
					      {NULL, 0, NULL, 0}};
	static const struct lpi_args_form form = {"", longs, 0, 0};
	struct lpi_args args;
	int status = lpi_args_parse(self, argc, argv, &form, &args);
	if (status >= 0)
		return status;
	if (args.has['p'])
		return show(LAPIS_STATS, "prometheus", "stats", true);
	return show(LAPIS_STATS, "json", "stats", args.has['j']);
}

const struct lpi_cli_command lpi_remote_stats = {
	.name = "stats",
	.synopsis = "[--json | --prometheus]",
	.summary = "Show the daemon's counters",
	.help = "  --json        as JSON\n"
		"  --prometheus  in the text format of Prometheus\n"
		"  --help        this text\n",
	.run = run_stats,
};

/* --- slow, explain ---------------------------------------------------------------------------- */

static double slow_number(const char *answer, unsigned idx, const char *name)
{
	char path[64];
	(void)snprintf(path, sizeof(path), "%u.%s", idx, name);
	return lpi_cli_json_number(answer, path);
}

/* Where the time of one went: "  WAIT 12.0  WORK 1003.1". */
static void print_timeline(const char *answer, unsigned idx)
{
	char path[48];
	char state[64];
	for (unsigned i = 0;; i++) {
		(void)snprintf(path, sizeof(path), "%u.timeline.%u.state", idx, i);
		(void)lpi_cli_json_text(answer, path, state, sizeof(state));
		if (state[0] == '\0')
			break;
		(void)snprintf(path, sizeof(path), "timeline.%u.ms", i);
		(void)fputs("  ", stdout);
		lpi_cli_print_escaped(stdout, state);
		(void)printf(" %.1f", slow_number(answer, idx, path));
	}
	(void)putchar('\n');
}

/* A text of one, and spaces up to where the next column begins. */
static void print_column(const char *answer, unsigned idx, const char *name, int width)
{
	char path[64];
	char text[1024];
	(void)snprintf(path, sizeof(path), "%u.%s", idx, name);
	int len = (int)strlen(lpi_cli_json_text(answer, path, text, sizeof(text)));
	lpi_cli_print_escaped(stdout, text);
	(void)printf("%*s ", LP_MAX(width - len, 0), "");
}

static void print_slow(const char *answer)
{
	char path[64];
	if (slow_number(answer, 0, "began_ns") == 0) {
		(void)puts("nothing was slow (lapis config get slow-ms says from when it is)");
		return;
	}
	(void)printf("%s%-19s %10s  %-6s %-10s %10s  %-8s object%s\n", lpi_color(stdout, "7"),
		     "began", "took ms", "door", "operation", "bytes", "result",
		     lpi_color(stdout, "0"));
	for (unsigned i = 0; slow_number(answer, i, "began_ns") != 0; i++) {
		char began[40];
		lpi_format_time((int64_t)slow_number(answer, i, "began_ns"), began, sizeof(began));
		(void)printf("%-19s %10.1f  ", began, slow_number(answer, i, "took_ms"));
		print_column(answer, i, "door", 6);
		print_column(answer, i, "operation", 10);
		(void)printf("%10.0f  ", slow_number(answer, i, "bytes"));
		print_column(answer, i, "result", 8);
		(void)snprintf(path, sizeof(path), "%u.object", i);
		print_text(answer, path);
		(void)putchar('\n');
		print_timeline(answer, i);
	}
}

/* What a command without arguments asks for, and how it shows the answer that is not for --json. */
struct question {
	uint32_t op;
	const char *text; /* or NULL */
	void (*print)(const char *answer);
};

static int ask(const struct lpi_cli_command *self, int argc, char **argv,
	       const struct question *question)
{
	static const struct lpi_args_form form = {"", json_only, 0, 0};
	struct lpi_args args;
	char *answer = NULL;
	int status = lpi_args_parse(self, argc, argv, &form, &args);
	if (status >= 0)
		return status;
	struct lapis *lapis = lpi_remote();
	if (lapis == NULL)
		return LP_EXIT_FAILED;
	int err = lapis_admin(lapis, question->op, question->text, &answer);
	if (err < 0)
		return lpi_remote_fail(self->name, err);
	if (args.has['j'])
		(void)puts(answer);
	else
		question->print(answer);
	free(answer);
	return LP_EXIT_OK;
}

static int run_slow(const struct lpi_cli_command *self, int argc, char **argv)
{
	static const struct question question = {LAPIS_SLOW, NULL, print_slow};
	return ask(self, argc, argv, &question);
}

const struct lpi_cli_command lpi_remote_slow = {
	.name = "slow",
	.synopsis = "[--json]",
	.summary = "Show the slowest recent operations, and where their time went",
	.help = JSON_HELP
	"\n"
	"Below each operation are the states that it went through, in milliseconds: REST\n"
	"and DATA while the message arrived, WAIT for an earlier request on the same key,\n"
	"FIND to look up the key, WORK in the store, REPLY until the answer was sent.\n",
	.run = run_slow,
};

/* --- stuck ------------------------------------------------------------------------------------ */

static void print_stuck_row(const char *answer, const char *row)
{
	static const struct {
		const char *name;
		int width;
	} columns[] = {{"part", 6}, {"operation", 10}, {"state", 9}, {"waits_for", 0}};
	char path[64];
	char text[1024];
	(void)snprintf(path, sizeof(path), "%s.ms", row);
	(void)printf("%10.1f  ", lpi_cli_json_number(answer, path));
	(void)snprintf(path, sizeof(path), "%s.held_bytes", row);
	(void)printf("%10.0f  ", lpi_cli_json_number(answer, path));
	(void)snprintf(path, sizeof(path), "%s.inode", row);
	(void)printf("%-14.0f  ", lpi_cli_json_number(answer, path));
	for (size_t i = 0; i < LP_ARRAY_SIZE(columns); i++) {
		(void)snprintf(path, sizeof(path), "%s.%s", row, columns[i].name);
		(void)printf("%-*s  ", columns[i].width,
			     lpi_cli_json_text(answer, path, text, sizeof(text)));
	}
	(void)snprintf(path, sizeof(path), "%s.object", row);
	lpi_cli_print_escaped(stdout, lpi_cli_json_text(answer, path, text, sizeof(text)));
	(void)putchar('\n');
}

static void print_stuck(const char *answer)
{
	double all = lpi_cli_json_number(answer, "under_way_all");
	double still_ms = lpi_cli_json_number(answer, "still_ms");
	unsigned shown = 0;
	if (all == 0) {
		(void)puts("nothing is under way");
		return;
	}
	(void)printf("%s%10s  %10s  %-14s  %-6s  %-10s  %-9s  waits for, object%s\n",
		     lpi_color(stdout, "7"), "ms", "holds", "inode", "part", "operation", "state",
		     lpi_color(stdout, "0"));
	for (;; shown++) {
		char row[32];
		char path[64];
		char part[16];
		(void)snprintf(row, sizeof(row), "under_way.%u", shown);
		(void)snprintf(path, sizeof(path), "%s.part", row);
		if (lpi_cli_json_text(answer, path, part, sizeof(part))[0] == '\0')
			break;
		print_stuck_row(answer, row);
	}
	if (all > shown)
		(void)printf("and %.0f more\n", all - shown);
	if (still_ms >= 2000)
		(void)printf("nothing has moved for %.0f seconds\n", still_ms / 1000);
}

static int run_stuck(const struct lpi_cli_command *self, int argc, char **argv)
{
	static const struct question question = {LAPIS_STATS, "stuck", print_stuck};
	return ask(self, argc, argv, &question);
}

const struct lpi_cli_command lpi_remote_stuck = {
	.name = "stuck",
	.synopsis = "[--json]",
	.summary = "Show requests under way, what they hold and what they wait for",
	.help = JSON_HELP
	"\n"
	"Each part of the daemon has its own rows. Sockets and the mount show requests,\n"
	"names show what waits for buffers or space, the store shows changes and reads. A\n"
	"request and the work that it caused have the same inode. The last line says for\n"
	"how long nothing has moved.\n",
	.run = run_stuck,
};

static int run_explain(const struct lpi_cli_command *self, int argc, char **argv)
{
	static const struct lpi_args_form form = {"", json_only, 1, 1};
	struct lpi_args args;
	char *answer = NULL;
	struct lapis_result result = {.size = sizeof(result)};
	int status = lpi_args_parse(self, argc, argv, &form, &args);
	if (status >= 0)
		return status;
	status = lpi_key_check(args.names[0]);
	if (status != 0)
		return status;
	struct lapis *lapis = lpi_remote();
	const struct lapis_request request = {
		.size = sizeof(request), .op = LAPIS_EXPLAIN, .path = args.names[0]};
	if (lapis == NULL)
		return LP_EXIT_FAILED;
	int err = lapis_call(lapis, &request, &result);
	if (err == 0)
		answer = strndup(result.value, result.value_bytes);
	lapis_result_fini(&result);
	if (err < 0)
		return lpi_remote_fail(args.names[0], err);
	if (answer == NULL)
		return lpi_cli_fail(args.names[0], "out of memory");
	if (args.has['j'])
		(void)puts(answer);
	else
		lpi_cli_json_show(stdout, answer);
	free(answer);
	return LP_EXIT_OK;
}

const struct lpi_cli_command lpi_remote_explain = {
	.name = "explain",
	.synopsis = "[--json] KEY",
	.summary = "Show where an object is, how it would be written, and why",
	.help = JSON_HELP,
	.run = run_explain,
};

/* --- config ----------------------------------------------------------------------------------- */

static int run_config(const struct lpi_cli_command *self, int argc, char **argv)
{
	static const struct lpi_args_form form = {"", json_only, 1, 3};
	struct lpi_args args;
	char text[4096];
	int status = lpi_args_parse(self, argc, argv, &form, &args);
	if (status >= 0)
		return status;
	const char *name = args.cnt > 1 ? args.names[1] : "";
	const char *subject = args.cnt > 1 ? name : "config";
	if (strcmp(args.names[0], "get") == 0 && args.cnt <= 2)
		return show(LAPIS_CONFIG_GET, name, subject, args.has['j']);
	if (strcmp(args.names[0], "set") != 0 || args.cnt != 3)
		return lpi_cli_usage(self, "write get [NAME], or set NAME VALUE");
	int n = snprintf(text, sizeof(text), "%s=%s", name, args.names[2]);
	if (n >= (int)sizeof(text))
		return lpi_cli_usage(self, "the value is too long");
	return show(LAPIS_CONFIG_SET, text, "config", args.has['j']);
}

const struct lpi_cli_command lpi_remote_config = {
	.name = "config",
	.synopsis = "[--json] get [NAME] | set NAME VALUE",
	.summary = "Show or change options of the running daemon",
	.help = JSON_HELP
	"\n"
	"A change holds until the daemon ends; its configuration file is not changed.\n",
	.run = run_config,
};

/* --- alloc, heap ------------------------------------------------------------------------------ */

static int run_one_of(const struct lpi_cli_command *self, uint32_t op, const char *const *words,
		      int argc, char **argv)
{
	static const struct lpi_args_form form = {"", json_only, 1, 1};
	struct lpi_args args;
	int status = lpi_args_parse(self, argc, argv, &form, &args);
	if (status >= 0)
		return status;
	for (int i = 0; i < 2; i++) {
		if (strcmp(args.names[0], words[i]) == 0)
			return show(op, words[i], self->name, args.has['j']);
	}
	return lpi_cli_usage(self, "%s is neither %s nor %s", args.names[0], words[0], words[1]);
}

static int run_alloc(const struct lpi_cli_command *self, int argc, char **argv)
{
	static const char *const words[] = {"score", "dump"};
	return run_one_of(self, LAPIS_ALLOC, words, argc, argv);
}

const struct lpi_cli_command lpi_remote_alloc = {
	.name = "alloc",
	.synopsis = "[--json] score | dump",
	.summary = "Show how space and memory are allocated",
	.help = JSON_HELP
	"\n"
	"score says how fragmented the free space of each shard is. dump prints everything\n"
	"that is known of it, and of the daemon's memory.\n",
	.run = run_alloc,
};

static int run_heap(const struct lpi_cli_command *self, int argc, char **argv)
{
	static const char *const words[] = {"stats", "release"};
	return run_one_of(self, LAPIS_HEAP, words, argc, argv);
}

const struct lpi_cli_command lpi_remote_heap = {
	.name = "heap",
	.synopsis = "[--json] stats | release",
	.summary = "Show the daemon's memory, or make it return free memory",
	.help = JSON_HELP,
	.run = run_heap,
};
