/* SPDX-License-Identifier: Apache-2.0 */
/* lapis top: what the daemon did since the last look, again and again. */
#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "cli/json.h"
#include "cli/remote/remote.h"

static const char *const operations[] = {
	"get",       "put",      "upload",   "write",     "commit",   "delete",
	"stat",      "list",     "copy",     "move",      "open",     "set",
	"make",      "remove",   "rename",   "readdir",   "sync",     "xattr_get",
	"xattr_set", "omap_get", "omap_set", "omap_list", "compound", "ping"};

/* Numbers of all shards at one time. */
struct look {
	double ns;
	double counts[LP_ARRAY_SIZE(operations)];
	double errors[LP_ARRAY_SIZE(operations)];
	double us[LP_ARRAY_SIZE(operations)]; /* that all of them took */
	double received;
	double sent;
	double written;
	double read;
	double commits;
	double under_way;
	double conns;
	double used_blocks;
};

/* Sums a number over the shards. */
static double sum(const char *stats, const char *path)
{
	char whole[128];
	double total = 0;
	for (int i = 0; i < 64; i++) {
		char shard[32];
		(void)snprintf(shard, sizeof(shard), "shards.%d.shard", i);
		(void)snprintf(whole, sizeof(whole), "shards.%d.%s", i, path);
		double value = lpi_cli_json_number(stats, whole);
		if (value == 0 && i > 0 && lpi_cli_json_number(stats, shard) == 0)
			break;
		total += value;
	}
	return total;
}

static void read_look(const char *stats, struct look *look)
{
	char path[64];
	*look = (struct look){.ns = (double)lp_clock_mono_ns(lp_clock_system())};
	for (size_t i = 0; i < LP_ARRAY_SIZE(operations); i++) {
		(void)snprintf(path, sizeof(path), "ops.%s.count", operations[i]);
		look->counts[i] = lpi_cli_json_number(stats, path);
		(void)snprintf(path, sizeof(path), "ops.%s.errors", operations[i]);
		look->errors[i] = lpi_cli_json_number(stats, path);
		(void)snprintf(path, sizeof(path), "ops.%s.latency_us.mean", operations[i]);
		look->us[i] = lpi_cli_json_number(stats, path) * look->counts[i];
	}
	look->received = sum(stats, "connections.received_bytes");
	look->sent = sum(stats, "connections.sent_bytes") + sum(stats, "connections.shared_bytes");
	look->written = sum(stats, "store.written_bytes");
	look->read = sum(stats, "store.read_bytes");
	look->commits = sum(stats, "store.commits");
	look->under_way = sum(stats, "connections.requests_under_way");
	look->conns = sum(stats, "connections.conns");
	look->used_blocks = sum(stats, "store.used_blocks");
}

static void print_rate(const char *what, double bytes, double seconds)
{
	char text[32];
	(void)lpi_cli_format_size((uint64_t)(bytes > 0 ? bytes / seconds : 0), text, sizeof(text));
	(void)printf("%s %10s/s", what, text);
}

static void print_totals(const struct look *now, const struct look *before, double seconds)
{
	char used[32];
	(void)lpi_cli_format_size((uint64_t)now->used_blocks * 4096, used, sizeof(used));
	(void)printf("connections %.0f, requests under way %.0f, commits/s %.0f, %s of data\n",
		     now->conns, now->under_way, (now->commits - before->commits) / seconds, used);
	print_rate("clients: in ", now->received - before->received, seconds);
	print_rate(", out ", now->sent - before->sent, seconds);
	print_rate("\nobjects: in ", now->written - before->written, seconds);
	print_rate(", out ", now->read - before->read, seconds);
	(void)putchar('\n');
}

static void print_look(const char *stats, const struct look *now, const struct look *before)
{
	double seconds = (now->ns - before->ns) / (double)LP_NS_PER_S;
	print_totals(now, before, seconds);
	(void)printf("%s%-12s %12s %12s %12s %18s%s\n", lpi_color(stdout, "7"), "operation",
		     "per second", "errors/s", "mean us", "p99 us since start",
		     lpi_color(stdout, "0"));
	for (size_t i = 0; i < LP_ARRAY_SIZE(operations); i++) {
		char path[64];
		char mean[32] = "-";
		double cnt = now->counts[i] - before->counts[i];
		if (now->counts[i] == 0)
			continue;
		(void)snprintf(path, sizeof(path), "ops.%s.latency_us.p99", operations[i]);
		if (cnt > 0)
			(void)snprintf(mean, sizeof(mean), "%.0f",
				       LP_MAX((now->us[i] - before->us[i]) / cnt, 0.0));
		(void)printf("%-12s %12.0f %12.0f %12s %18.0f\n", operations[i], cnt / seconds,
			     (now->errors[i] - before->errors[i]) / seconds, mean,
			     lpi_cli_json_number(stats, path));
	}
}

static int watch(uint64_t seconds, uint64_t cnt)
{
	struct look before = {0};
	struct lapis *lapis = lpi_remote();
	bool clears = lpi_is_terminal(stdout);
	const struct timespec pause = {.tv_sec = (time_t)seconds};
	if (lapis == NULL)
		return LP_EXIT_FAILED;
	for (uint64_t i = 0; i <= cnt; i++) {
		char *stats = NULL;
		struct look now;
		int err = lapis_admin(lapis, LAPIS_STATS, "json", &stats);
		if (err < 0)
			return lpi_remote_fail("top", err);
		read_look(stats, &now);
		/* The first is what the others are compared with. */
		if (i > 0) {
			(void)fputs(clears ? "\033[H\033[J" : "", stdout);
			print_look(stats, &now, &before);
			(void)fflush(stdout);
		}
		before = now;
		free(stats);
		if (i < cnt)
			(void)nanosleep(&pause, NULL);
	}
	return LP_EXIT_OK;
}

static int run_top(const struct lpi_cli_command *self, int argc, char **argv)
{
	static const struct option longs[] = {{"seconds", required_argument, NULL, 'd'},
					      {"count", required_argument, NULL, 'n'},
					      {"help", no_argument, NULL, 'h'},
					      {NULL, 0, NULL, 0}};
	static const struct lpi_args_form form = {"", longs, 0, 0};
	uint64_t seconds = 1;
	uint64_t cnt = UINT64_MAX - 1;
	struct lpi_args args;
	int status = lpi_args_parse(self, argc, argv, &form, &args);
	if (status >= 0)
		return status;
	if (args.has['d'] && lpi_cli_parse_number(args.value['d'], 1, 3600, &seconds) < 0)
		return lpi_cli_usage(self, "--seconds must be from 1 to 3600");
	if (args.has['n'] && lpi_cli_parse_number(args.value['n'], 1, 1000000, &cnt) < 0)
		return lpi_cli_usage(self, "--count must be from 1 to 1000000");
	return watch(seconds, cnt);
}

const struct lpi_cli_command lpi_remote_top = {
	.name = "top",
	.synopsis = "[--seconds N] [--count N]",
	.summary = "Watch what the daemon does",
	.help = "  --seconds N  time between two samples; the default is 1\n"
		"  --count N    end after N samples; otherwise it runs until it is interrupted\n"
		"  --help       this text\n"
		"\n"
		"Rates and means are those since the previous sample.\n",
	.run = run_top,
};
