/* SPDX-License-Identifier: Apache-2.0 */
/* lapis bench: the order of its phases, what is shown meanwhile, and what is left of it.
 *
 * An interrupt ends what is being measured; what there is by then is reported, and what was made is
 * removed. A second one ends the program. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "cli/bench/load_options.h"
#include "cli/bench/load_report.h"
#include "cli/remote/remote.h"

static void on_signal(int number)
{
	(void)number;
	lpi_load_stop();
}

static void catch_signals(void)
{
	struct sigaction action = {.sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND};
	(void)sigemptyset(&action.sa_mask);
	/* Cannot fail for these. */
	(void)sigaction(SIGINT, &action, NULL);
	(void)sigaction(SIGTERM, &action, NULL);
	/* Who does not want the whole report must not keep us from removing what was made. */
	(void)signal(SIGPIPE, SIG_IGN);
}

/* --- A terminal ------------------------------------------------------------------------------- */

struct progress {
	bool has_line; /* one that will be written over */
};

static void end_line(struct progress *progress)
{
	if (progress->has_line)
		(void)fputs("\r\033[K", stderr);
	progress->has_line = false;
}

static void show(void *arg, const struct lpi_load *load)
{
	struct progress *progress = arg;
	uint64_t done = 0;
	uint64_t all = 0;
	size_t cnt = 0;
	char line[200];
	const char *phase = lpi_load_phase(load, &done, &all);
	const struct lpi_load_second *seconds = lpi_load_seconds(load, &cnt);
	end_line(progress);
	if (strcmp(phase, "measuring") == 0 && cnt > 0) {
		lpi_load_report_second(line, sizeof(line), &seconds[cnt - 1],
				       lpi_load_error_sum(load));
		(void)fprintf(stderr, "%s\n", line);
		return;
	}
	(void)fprintf(stderr, "%s: %llu of %llu", phase, (unsigned long long)done,
		      (unsigned long long)all);
	(void)fflush(stderr);
	progress->has_line = true;
}

/* --- The phases ------------------------------------------------------------------------------- */

struct run {
	const struct lpi_load_call *call;
	struct lpi_load *load;
	struct progress progress;
	char *stats_before;
	char *stats_after;
	int error; /* of the phase that failed */
	bool has_measured;
	char why[512];
};

static void keep_error(struct run *run, int err)
{
	if (run->error != 0 || err == 0)
		return;
	run->error = err;
	(void)snprintf(run->why, sizeof(run->why), "%s",
		       err == -EINTR ? "" : lpi_load_why(run->load));
}

static void measure(struct run *run)
{
	struct lpi_load *load = run->load;
	int err = lpi_load_open(load);
	if (err == 0)
		err = lpi_load_prepare(load);
	if (err == 0 && !run->call->load.only_prepares)
		err = lpi_load_warm(load);
	if (err == 0 && !run->call->load.only_prepares) {
		/* A daemon too old to tell is measured all the same. */
		run->stats_before = lpi_load_ask_stats(load);
		err = lpi_load_measure(load);
		run->has_measured = true;
		if (err != -EIO)
			run->stats_after = lpi_load_ask_stats(load);
	}
	keep_error(run, err);
	if (err == 0 && run->has_measured)
		keep_error(run, lpi_load_check(load));
}

static int write_series(const struct run *run)
{
	const char *path = run->call->interval_path;
	if (path == NULL || !run->has_measured)
		return LP_EXIT_OK;
	FILE *to = fopen(path, "we");
	if (to == NULL)
		return lpi_cli_fail(path, "%s", lp_strerror(-errno));
	lpi_load_report_csv(to, run->load);
	bool is_bad = ferror(to) != 0;
	if (fclose(to) != 0 || is_bad)
		return lpi_cli_fail(path, "%s", lp_strerror(-errno));
	return LP_EXIT_OK;
}

static int report(struct run *run)
{
	const struct lpi_load_report what = {.load = run->load,
					     .is_interrupted = lpi_load_is_stopped(),
					     .stats_before = run->stats_before,
					     .stats_after = run->stats_after};
	if (run->has_measured && run->call->is_json)
		lpi_load_report_json(stdout, &what);
	else if (run->has_measured)
		lpi_load_report_text(&what);
	lpi_load_report_errors(run->load);
	if (run->error == -EIO)
		return lpi_cli_fail(run->call->load.bucket, "%s", run->why);
	if (!run->has_measured && lpi_load_is_stopped())
		return lpi_cli_fail(run->call->load.bucket,
				    "interrupted before anything was measured");
	return lpi_load_error_sum(run->load) > 0 ? LP_EXIT_FAILED : LP_EXIT_OK;
}

static int run_call(const struct lpi_load_call *call)
{
	struct run run = {.call = call};
	int status = lpi_load_new(&call->load, &run.load);
	if (status < 0)
		return lpi_cli_fail("bench", "%s", lp_strerror(status));
	if (lpi_is_terminal(stderr))
		lpi_load_set_tick(run.load, show, &run.progress);
	catch_signals();
	measure(&run);
	end_line(&run.progress);
	status = report(&run);
	if (write_series(&run) != LP_EXIT_OK)
		status = LP_EXIT_FAILED;
	(void)fflush(stdout); /* lpi_end_output() says what is wrong with it */
	int err = lpi_load_clean(run.load);
	end_line(&run.progress);
	if (err < 0)
		status = lpi_cli_fail(call->load.bucket, "%s", lpi_load_why(run.load));
	lpi_load_free(run.load);
	free(run.stats_before);
	free(run.stats_after);
	return status;
}

static int run_bench(const struct lpi_cli_command *self, int argc, char **argv)
{
	struct lpi_load_call call;
	int status = lpi_load_call_parse(self, argc, argv, &call);
	if (status >= 0)
		return status;
	call.load.address = lpi_remote_address();
	return run_call(&call);
}

const struct lpi_cli_command lpi_remote_bench = {
	.name = "bench",
	.synopsis = "[--op OP] [--size SIZES] [--depth N] [--seconds N | --ops N] [OPTION]...",
	.summary = "Measure a daemon under load: throughput and latency",
	.help = "The operation:\n"
		"  --op OP            on files: randwrite (default), randread, write, read (front "
		"to\n"
		"                     back), mixed; on objects: put, get, putget, stat, delete, "
		"list;\n"
		"                     ping\n"
		"  --size SIZES       size of one operation (default: 4K): SIZE, A-B (uniform), "
		"A~B\n"
		"                     (uniform in the logarithm), or several with weights:\n"
		"                     4K:70,64K:20,1M:10\n"
		"  --objects N        how many files or objects (default: 16 files, 1000 or 10000\n"
		"                     objects; put makes new ones)\n"
		"  --object-size BYTES  size of each file (default: 16M)\n"
		"  --dist DIST        which objects and places: uniform, sequential, "
		"zipf[:EXPONENT]\n"
		"  --reads PERCENT    how many operations of mixed and putget read (default: 70)\n"
		"  --items N          names that one list asks for (default: 1000)\n"
		"  --seed N           seed of all random choices (default: 1)\n"
		"  --write-path PATH  auto (default), inline, deferred, direct\n"
		"\n"
		"The load:\n"
		"  --depth N          requests under way, over all connections (default: 16)\n"
		"  --connections N    handles, each with a connection to each shard (default: 1)\n"
		"  --rate N           begin N operations a second, however fast answers come;\n"
		"                     latencies count from when a request was due (default: begin\n"
		"                     the next one when one ends)\n"
		"  --poisson          with --rate: at random intervals instead of even ones\n"
		"  --seconds N        how long to run (default: 10)\n"
		"  --ops N            how many operations to run\n"
		"  --warmup N         seconds that do not count (default: a tenth, at most 2)\n"
		"  --crc MODE         checksums on the wire: all (default), header, off\n"
		"  --timeout N        seconds that an answer may take (default: 30)\n"
		"  --reconnect N      go on if the daemon is back within N seconds (default: end)\n"
		"\n"
		"The objects and the result:\n"
		"  --verify           check every byte read, and at the end all that was written\n"
		"  --bucket NAME      where the objects are (default: lapis-bench); made if "
		"missing\n"
		"  --keep             leave the objects for the next run\n"
		"  --prepare-only     make the objects, measure nothing, leave them\n"
		"  --ready            the objects exist: do not look for each of them first\n"
		"  --interval FILE    write a CSV line for each second\n"
		"  --json             one JSON object instead of a table\n"
		"  --help             this text\n"
		"\n"
		"The command removes what it made; nothing else in the store is touched. An\n"
		"interrupt ends the run with the result so far. The exit status is 1 when "
		"anything\n"
		"failed or was wrong.\n",
	.run = run_bench,
};
