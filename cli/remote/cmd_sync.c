/* SPDX-License-Identifier: Apache-2.0 */
/* lapis sync: which of both is the store's, and what is to be done. */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "cli/remote/remote.h"
#include "cli/remote/sync.h"

#define JOBS_DEFAULT 16u

static bool is_local_dir(const char *name)
{
	struct stat st;
	return stat(name, &st) == 0 && S_ISDIR(st.st_mode);
}

/* 0 or 1: which of the names is local; -1: that cannot be told. */
static int find_local(char **names)
{
	const char *first_key = lpi_name_in_store(names[0]);
	const char *second_key = lpi_name_in_store(names[1]);
	if (first_key != NULL || second_key != NULL) {
		int local = first_key != NULL ? 1 : 0;
		if (first_key != NULL && second_key != NULL)
			return -1;
		/* A key is not cut out of the middle of a name. */
		names[1 - local] +=
			first_key != NULL ? first_key - names[0] : second_key - names[1];
		return local;
	}
	bool first = lpi_name_is_local(names[0]);
	bool second = lpi_name_is_local(names[1]);
	if (first != second)
		return first ? 0 : 1;
	if (first)
		return -1;
	first = is_local_dir(names[0]);
	second = is_local_dir(names[1]);
	return first == second ? -1 : first ? 0 : 1;
}

static void cut_slashes(char *name)
{
	for (size_t len = strlen(name); len > 1 && name[len - 1] == '/'; len--)
		name[len - 1] = '\0';
}

int lpi_sync_run(struct lpi_sync *sync, bool is_up, unsigned jobs)
{
	struct lapis_attrs attrs;
	if (lpi_tasks_init(&sync->jobs, jobs) != LP_EXIT_OK)
		return LP_EXIT_FAILED;
	if (!is_up) {
		int err = lapis_stat(sync->jobs.lapis, sync->key, &attrs);
		if (err < 0)
			return lpi_remote_fail(sync->key, err);
		if (attrs.type != LAPIS_DIR)
			return lpi_cli_fail(sync->key,
					    "is not a directory (lapis get fetches an object)");
		if (!sync->only_says && mkdir(sync->local, 0777) < 0 && errno != EEXIST)
			return lpi_cli_fail(sync->local, "%s", lp_strerror(-errno));
	}
	sync->root_fd = open(sync->local, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (sync->root_fd < 0 && !(sync->only_says && errno == ENOENT))
		return lpi_cli_fail(sync->local, "%s", lp_strerror(-errno));
	int status = LP_EXIT_FAILED;
	/* It would go on without end, or --delete would remove what is still to be read. */
	if (lpi_sync_is_nested(sync))
		(void)lpi_cli_fail(
			sync->local,
			"it and %s overlap: one is inside the other (choose separate places)",
			sync->key);
	else
		status = is_up ? lpi_sync_up(sync) : lpi_sync_down(sync);
	if (sync->root_fd >= 0)
		(void)close(sync->root_fd);
	lpi_cli_texts_fini(&sync->dirs);
	lpi_cli_texts_fini(&sync->zeros);
	lpi_cli_texts_fini(&sync->anew);
	return status;
}

static int run_sync(const struct lpi_cli_command *self, int argc, char **argv)
{
	static const struct option longs[] = {{"delete", no_argument, NULL, 'd'},
					      {"checksum", no_argument, NULL, 'c'},
					      {"dry-run", no_argument, NULL, 'n'},
					      {"jobs", required_argument, NULL, 'j'},
					      {"no-progress", no_argument, NULL, 'P'},
					      {"help", no_argument, NULL, 'h'},
					      {NULL, 0, NULL, 0}};
	static const struct lpi_args_form form = {"nj:", longs, 2, 2};
	uint64_t jobs = JOBS_DEFAULT;
	struct lpi_args args;
	int status = lpi_args_parse(self, argc, argv, &form, &args);
	if (status >= 0)
		return status;
	lpi_progress_command(args.has['P']);
	if (args.has['j'] && lpi_cli_parse_number(args.value['j'], 1, 256, &jobs) < 0)
		return lpi_cli_usage(self, "--jobs must be from 1 to 256");
	int local = find_local(args.names);
	if (local < 0)
		return lpi_cli_usage(
			self, "which one is the local directory, %s or %s? write ./DIR for it",
			args.names[0], args.names[1]);
	cut_slashes(args.names[0]);
	cut_slashes(args.names[1]);
	struct lpi_sync sync = {.local = args.names[local],
				.key = args.names[1 - local],
				.removes = args.has['d'],
				.compares = args.has['c'],
				.only_says = args.has['n']};
	status = lpi_key_check(sync.key);
	return status != 0 ? status : lpi_sync_run(&sync, local == 0, (unsigned)jobs);
}

const struct lpi_cli_command lpi_remote_sync = {
	.name = "sync",
	.synopsis = "[OPTION ...] LOCALDIR KEY | KEY LOCALDIR",
	.summary = "Make a directory in the store like a local one, or the other way round",
	.help = "  --delete        remove what the first does not have, including directories "
		"where\n"
		"                  it has files\n"
		"  --checksum      also compare contents where size and time are the same\n"
		"  -n, --dry-run   only print what would be done\n"
		"  -j, --jobs N    how many files to copy at once, 1 to 256; the default is 16\n"
		"  --no-progress   do not show progress, even on a terminal\n"
		"  --help          this text\n"
		"\n"
		"The second directory is made like the first. LOCALDIR begins with / or ., or KEY\n"
		"begins with lapis:. Otherwise the argument that exists as a local directory is\n"
		"LOCALDIR. Only files whose size or modification time differ are copied, so an\n"
		"interrupted sync goes on when it is run again. Each file is complete or not "
		"there.\n"
		"Modes, times, holes, symlinks and empty directories are kept; owners, extended\n"
		"attributes, maps and hard links are not. Other kinds of files are skipped.\n",
	.run = run_sync,
};
