/* SPDX-License-Identifier: Apache-2.0 */
/* lapis cp: between this machine and the store, and inside the store.
 *
 * One rule says what a name is. What begins with /, ./ or ../, or is -, . or .., is here: no key
 * can be so. What begins with lapis: is in the store. Any other name is a key. Such a name could
 * have been meant for a file, though, where nothing else in the call is marked as here. If there is
 * a file of that name then, nothing is copied, and both ways to write it are said.
 *
 * Files go as put and get have them, trees as sync does; this only decides. */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "cli/remote/remote.h"
#include "cli/remote/sync.h"
#include "cli/remote/transfer.h"

#define JOBS 16u

static bool is_here(const char *name)
{
	return strcmp(name, "-") == 0 || lpi_name_is_local(name);
}

static bool is_local_dir(const char *name)
{
	struct stat st;
	return stat(name, &st) == 0 && S_ISDIR(st.st_mode);
}

/* DIR and DIR/ are the same where it is copied from. */
static void cut_slashes(char *name)
{
	for (size_t len = strlen(name); len > 1 && name[len - 1] == '/'; len--)
		name[len - 1] = '\0';
}

/* --- From here -------------------------------------------------------------------------------- */

static int put_tree(char *src, const char *dst)
{
	char key[LPI_KEY_MAX + 1];
	if (lpi_key_is_dir_form(dst) && lpi_key_join(dst, lpi_key_name(src), key) < 0)
		return LP_EXIT_FAILED;
	struct lpi_sync sync = {
		.local = src, .key = lpi_key_is_dir_form(dst) ? key : dst, .compares = true};
	int status = lpi_key_check(sync.key);
	return status != 0 ? status : lpi_sync_run(&sync, true, JOBS);
}

/* What is wrong with the call, before anything is copied. */
static int check_up(const struct lpi_cli_command *self, const struct lpi_args *args)
{
	int cnt = args->cnt - 1;
	const char *dst = args->names[cnt];
	bool into_dir = lpi_key_is_dir_form(dst);
	for (int i = 0; i < cnt; i++) {
		char *src = args->names[i];
		bool is_dir = strcmp(src, "-") != 0 && is_local_dir(src);
		if (is_dir && !args->has['r'])
			return lpi_cli_fail(src,
					    "is a directory (-r copies it with everything in it)");
		if (is_dir && args->has['n'])
			return lpi_cli_usage(self, "--if-absent does not work for a directory: %s",
					     src);
		cut_slashes(src);
		const char *name = lpi_key_name(src);
		if (is_dir && into_dir &&
		    (name[0] == '\0' || strcmp(name, ".") == 0 || strcmp(name, "..") == 0))
			return lpi_cli_usage(
				self, "%s has no name to use in the store: give a whole key", src);
	}
	return lpi_put_check(self, args);
}

static int copy_up(const struct lpi_cli_command *self, const struct lpi_args *args)
{
	const struct lpi_put_file upload = {
		.dir_fd = AT_FDCWD, .condition = args->has['n'] ? LAPIS_IF_ABSENT : LAPIS_IF_ANY};
	char *dst = args->names[args->cnt - 1];
	int status = check_up(self, args);
	if (status != 0)
		return status;
	if (!args->has['r'])
		return lpi_put_all(args, &upload);
	for (int i = 0; i < args->cnt - 1; i++) {
		char *pair[] = {args->names[i], dst};
		const struct lpi_args one = {.cnt = 2, .names = pair};
		bool is_tree = strcmp(pair[0], "-") != 0 && is_local_dir(pair[0]);
		int got = is_tree ? put_tree(pair[0], dst) : lpi_put_all(&one, &upload);
		status = got != LP_EXIT_OK ? got : status;
	}
	return status;
}

/* --- To here ---------------------------------------------------------------------------------- */

static int get_tree(const char *key, const char *dst)
{
	char path[2 * LPI_KEY_MAX];
	bool into_dir = lpi_key_is_dir_form(dst);
	int n = snprintf(path, sizeof(path), "%s%s", dst, into_dir ? lpi_key_name(key) : "");
	if (n >= (int)sizeof(path))
		return lpi_cli_fail(dst, "the path is too long");
	struct lpi_sync sync = {.local = path, .key = key, .compares = true};
	return lpi_sync_run(&sync, false, JOBS);
}

static int get_key(const char *key, const char *dst, bool recursive)
{
	struct lapis_attrs attrs;
	struct lapis *lapis = lpi_remote();
	if (lapis == NULL)
		return LP_EXIT_FAILED;
	if (strcmp(dst, "-") != 0) {
		int err = lapis_stat(lapis, key, &attrs);
		if (err < 0)
			return lpi_remote_fail(key, err);
		if (attrs.type == LAPIS_DIR && recursive)
			return get_tree(key, dst);
		if (attrs.type == LAPIS_DIR)
			return lpi_cli_fail(key,
					    "is a directory (-r copies it with everything in it)");
	}
	struct lpi_get_file download = {.key = key, .length = LAPIS_TO_END};
	return lpi_get_one(&download, dst);
}

static int copy_down(const struct lpi_cli_command *self, const struct lpi_args *args)
{
	int cnt = args->cnt - 1;
	const char *dst = args->names[cnt];
	bool into_dir = lpi_key_is_dir_form(dst) || is_local_dir(dst);
	if (args->has['n'])
		return lpi_cli_usage(
			self, "--if-absent works only when DST is in the store, and %s is local",
			dst);
	if (cnt > 1 && !into_dir)
		return lpi_cli_usage(
			self, "several keys need a directory as DST, and %s is not one", dst);
	for (int i = 0; i < cnt && args->has['r']; i++)
		cut_slashes(args->names[i]);
	int status = lpi_keys_check(args->names, cnt);
	if (status == 0)
		status = lpi_names_check_into(self, args->names, cnt, dst);
	if (status != 0)
		return status;
	if (lpi_key_is_dir_form(dst) && mkdir(dst, 0777) < 0 && errno != EEXIST)
		return lpi_cli_fail(dst, "%s", lp_strerror(-errno));
	for (int i = 0; i < cnt; i++) {
		if (get_key(args->names[i], dst, args->has['r']) != LP_EXIT_OK)
			status = LP_EXIT_FAILED;
	}
	return status;
}

/* --- Which way -------------------------------------------------------------------------------- */

/* Nothing is marked as here: what is not marked as the store's either must not be a file's name. */
static int check_plain(const struct lpi_cli_command *self, const struct lpi_args *args)
{
	struct stat st;
	for (int i = 0; i < args->cnt; i++) {
		const char *name = args->names[i];
		if (lpi_name_in_store(name) == NULL && name[0] != '\0' && lstat(name, &st) == 0)
			return lpi_cli_usage(
				self,
				"is %s a local file or a key? write ./%s for the file, "
				"lapis:%s for the key",
				name, name, name);
	}
	return 0;
}

static void cut_schemes(const struct lpi_args *args)
{
	for (int i = 0; i < args->cnt; i++) {
		const char *key = lpi_name_in_store(args->names[i]);
		if (key != NULL)
			args->names[i] += key - args->names[i];
	}
}

static int run_cp(const struct lpi_cli_command *self, int argc, char **argv)
{
	static const struct option longs[] = {{"recursive", no_argument, NULL, 'r'},
					      {"if-absent", no_argument, NULL, 'n'},
					      {"no-progress", no_argument, NULL, 'P'},
					      {"help", no_argument, NULL, 'h'},
					      {NULL, 0, NULL, 0}};
	static const struct lpi_args_form form = {"r", longs, 2, 100000};
	struct lpi_args args;
	int status = lpi_args_parse(self, argc, argv, &form, &args);
	if (status >= 0)
		return status;
	lpi_progress_command(args.has['P']);
	const char *src = args.names[0];
	const char *dst = args.names[args.cnt - 1];
	for (int i = 1; i < args.cnt - 1; i++) {
		if (is_here(args.names[i]) != is_here(src))
			return lpi_cli_usage(self,
					     "%s and %s are not on the same side: all SRC must be "
					     "local, or all keys",
					     src, args.names[i]);
	}
	if (is_here(src) && is_here(dst))
		return lpi_cli_usage(
			self, "%s and %s are both local: one side must be in the store", src, dst);
	if (!is_here(src) && !is_here(dst))
		status = check_plain(self, &args);
	else
		status = 0;
	if (status != 0)
		return status;
	cut_schemes(&args);
	if (is_here(src))
		return copy_up(self, &args);
	return is_here(dst) ? copy_down(self, &args) : lpi_keys_to_one(self, &args, lpi_copy_key);
}

const struct lpi_cli_command lpi_remote_cp = {
	.name = "cp",
	.synopsis = "[-r] [--if-absent] [--no-progress] SRC ... DST",
	.summary = "Copy objects inside the store, or between it and local files",
	.help = "  -r, --recursive  also directories, with everything in them\n"
		"  --if-absent      fail if something of that key exists\n"
		"  --no-progress    do not show progress, even on a terminal\n"
		"  --help           this text\n"
		"\n"
		"A name that begins with /, ./ or ../ is local; so are . and .., and -, which is\n"
		"standard input or output. A name that begins with lapis: is a key. Any other "
		"name\n"
		"is a key, too. But if no name is local, and a local file of that name exists, cp\n"
		"asks which one is meant, and copies nothing.\n"
		"\n"
		"A DST that ends in / takes any number of sources, each under its own name. A "
		"copy\n"
		"inside the store shares the data until one of the two changes. A directory that "
		"is\n"
		"copied to or from the store keeps modes and times, as with lapis sync.\n",
	.run = run_cp,
};
