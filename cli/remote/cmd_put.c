/* SPDX-License-Identifier: Apache-2.0 */
/* lapis put, get and cat: whole objects and ranges of them. */
#include <fcntl.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "cli/remote/remote.h"
#include "cli/remote/transfer.h"

#define AT_ONCE    8u
#define SPARSE_MIN (UINT64_C(8) << 20)

/* --- put -------------------------------------------------------------------------------------- */

static int read_write_path(const struct lpi_cli_command *self, const char *text, uint8_t *ret_path)
{
	static const char *const names[] = {"auto", "inline", "deferred", "direct"};
	for (size_t i = 0; i < LP_ARRAY_SIZE(names); i++) {
		if (strcmp(text, names[i]) == 0) {
			*ret_path = (uint8_t)i;
			return 0;
		}
	}
	return lpi_cli_usage(self, "%s is not one of auto, inline, deferred, direct", text);
}

/* "NAME=VALUE", which is cut at the '='. */
static int read_xattr(const struct lpi_cli_command *self, const char *text,
		      struct lapis_pair *ret_pair)
{
	const char *equals = strchr(text, '=');
	if (equals == NULL || equals == text)
		return lpi_cli_usage(self, "%s is not of the form NAME=VALUE", text);
	*ret_pair = (struct lapis_pair){.name = text,
					.name_bytes = (uint32_t)(equals - text),
					.value = equals + 1,
					.value_bytes = (uint32_t)strlen(equals + 1)};
	return 0;
}

int lpi_put_all(const struct lpi_args *args, const struct lpi_put_file *options)
{
	struct lpi_tasks jobs;
	char key[LPI_KEY_MAX + 1];
	const char *dst = args->names[args->cnt - 1];
	if (lpi_tasks_init(&jobs, AT_ONCE) != LP_EXIT_OK)
		return LP_EXIT_FAILED;
	if (args->cnt == 2) {
		struct stat st;
		if (stat(args->names[0], &st) == 0 && S_ISREG(st.st_mode))
			jobs.progress.total_bytes = (uint64_t)st.st_size;
	}
	for (int i = 0; i < args->cnt - 1; i++) {
		struct lpi_put_file upload = *options;
		upload.path = args->names[i];
		upload.subject = args->names[i];
		upload.key = dst;
		if (lpi_key_is_dir_form(dst)) {
			upload.key = key;
			if (lpi_key_join(dst, lpi_key_name(args->names[i]), key) < 0 ||
			    lpi_key_check(key) != 0) {
				jobs.failed++;
				continue;
			}
		}
		lpi_put_file(&jobs, &upload);
	}
	return lpi_tasks_finish(&jobs);
}

int lpi_put_check(const struct lpi_cli_command *self, const struct lpi_args *args)
{
	const char *dst = args->names[args->cnt - 1];
	bool into_dir = lpi_key_is_dir_form(dst);
	if (args->cnt > 2 && !into_dir)
		return lpi_cli_usage(
			self, "several files need a KEY that ends in /, and %s does not", dst);
	for (int i = 0; into_dir && i < args->cnt - 1; i++) {
		if (strcmp(args->names[i], "-") == 0)
			return lpi_cli_usage(
				self,
				"standard input has no name to use in the store: give a whole key");
	}
	int status = lpi_key_check_target(dst);
	if (status == 0 && into_dir)
		status = lpi_names_check_into(self, args->names, args->cnt - 1, dst);
	return status;
}

static int run_put(const struct lpi_cli_command *self, int argc, char **argv)
{
	static const struct option longs[] = {{"if-absent", no_argument, NULL, 'n'},
					      {"write-path", required_argument, NULL, 'w'},
					      {"times", no_argument, NULL, 't'},
					      {"xattr", required_argument, NULL, 'x'},
					      {"no-progress", no_argument, NULL, 'P'},
					      {"help", no_argument, NULL, 'h'},
					      {NULL, 0, NULL, 0}};
	static const struct lpi_args_form form = {"", longs, 2, 100000};
	struct lpi_put_file upload = {.dir_fd = AT_FDCWD};
	struct lpi_args args;
	int status = lpi_args_parse(self, argc, argv, &form, &args);
	if (status >= 0)
		return status;
	lpi_progress_command(args.has['P']);
	status = lpi_put_check(self, &args);
	if (status == 0 && args.has['w'])
		status = read_write_path(self, args.value['w'], &upload.write_path);
	if (status == 0 && args.has['x'])
		status = read_xattr(self, args.value['x'], &upload.xattr);
	if (status != 0)
		return status;
	upload.condition = args.has['n'] ? LAPIS_IF_ABSENT : LAPIS_IF_ANY;
	upload.keeps_times = args.has['t'];
	return lpi_put_all(&args, &upload);
}

const struct lpi_cli_command lpi_remote_put = {
	.name = "put",
	.synopsis = "[OPTION ...] FILE|- ... KEY",
	.summary = "Store files as objects",
	.help = "  --if-absent           fail if an object of that key exists\n"
		"  --no-progress         do not show progress, even on a terminal\n"
		"  --times               give the object the file's mode and modification time\n"
		"  --xattr NAME=VALUE    give the object this extended attribute\n"
		"  --write-path PATH     auto (the default), inline, deferred or direct\n"
		"  --help                this text\n"
		"\n"
		"FILE - is standard input. A KEY that ends in / takes any number of files, each\n"
		"under its own name. Missing directories are made. An object is replaced as a\n"
		"whole: a reader sees the old object or the new one. Long runs of zeros are not\n"
		"sent, and take no space. When the command returns, the object is durable.\n",
	.run = run_put,
};

/* --- get -------------------------------------------------------------------------------------- */

/* "A-B" with both ends, "A-". */
static int read_range(const struct lpi_cli_command *self, const char *text, uint64_t *ret_offset,
		      uint64_t *ret_length)
{
	char first[32];
	uint64_t a = 0;
	uint64_t b = UINT64_MAX - 1;
	const char *dash = strchr(text, '-');
	size_t len = dash != NULL ? (size_t)(dash - text) : sizeof(first);
	bool ok = len < sizeof(first);
	if (ok) {
		memcpy(first, text, len);
		first[len] = '\0';
		ok = lpi_cli_parse_size(first, &a) == 0 &&
		     (dash[1] == '\0' || lpi_cli_parse_size(dash + 1, &b) == 0) && b >= a;
	}
	if (!ok)
		return lpi_cli_usage(
			self, "%s is not a range: A-B means bytes A to B, A- means all from A on",
			text);
	*ret_offset = a;
	*ret_length = dash[1] == '\0' ? LAPIS_TO_END : b - a + 1;
	return 0;
}

/* What is no file but a device or pipe. */
struct stream {
	const char *name;
	int fd;
	int err; /* of a write */
};

static int write_stream(void *arg, uint64_t offset, const void *data, size_t len)
{
	struct stream *to = arg;
	const char *at = data;
	(void)offset;
	while (len > 0) {
		ssize_t n = write(to->fd, at, len);
		if (n < 0 && errno != EINTR)
			return to->err = -errno;
		at += LP_MAX(n, (ssize_t)0);
		len -= (size_t)LP_MAX(n, (ssize_t)0);
	}
	return 0;
}

/* It gets the bytes as they come. */
static int get_to_stream(const struct lpi_get_file *what, struct stream *to)
{
	struct lapis *lapis = lpi_remote();
	if (lapis == NULL)
		return LP_EXIT_FAILED;
	int err = lapis_get_to(lapis, what->key, what->offset, what->length, write_stream, to);
	if (to->err < 0)
		return lpi_cli_fail(to->name, "%s", lp_strerror(to->err));
	return err < 0 ? lpi_remote_fail(what->key, err) : LP_EXIT_OK;
}

static int get_to_stdout(const struct lpi_get_file *what)
{
	struct stream to = {.name = "standard output", .fd = STDOUT_FILENO};
	return get_to_stream(what, &to);
}

static int get_to_file(struct lpi_get_file *download, char *path)
{
	struct lpi_tasks jobs;
	struct lapis_attrs attrs;
	char *slash = strrchr(path, '/');
	if (lpi_tasks_init(&jobs, 1) != LP_EXIT_OK)
		return LP_EXIT_FAILED;
	int err = lapis_stat(jobs.lapis, download->key, &attrs);
	if (err == 0 && attrs.type == LAPIS_DIR)
		return lpi_remote_fail_text(download->key, 0,
					    "a directory (lapis sync copies trees)");
	if (err < 0)
		return lpi_remote_fail(download->key, err);
	if (slash != NULL)
		*slash = '\0';
	const char *dir = slash == NULL ? "." : slash == path ? "/" : path;
	download->dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (download->dir_fd < 0)
		return lpi_cli_fail(dir, "%s", lp_strerror(-errno));
	download->path = slash != NULL ? slash + 1 : path;
	download->subject = download->path;
	download->is_maybe_sparse = attrs.size_bytes >= SPARSE_MIN;
	download->mtime_ns = attrs.mtime_ns;
	download->mode = lpi_copy_mode(attrs.mode, attrs.uid, attrs.gid);
	jobs.progress.total_bytes = download->length == LAPIS_TO_END ? attrs.size_bytes : 0;
	lpi_get_file(&jobs, download);
	int status = lpi_tasks_finish(&jobs);
	/* Its name, too; not every file system can do that. */
	if (status == LP_EXIT_OK && fsync(download->dir_fd) < 0 && errno != EINVAL)
		status = lpi_cli_fail(dir, "%s", lp_strerror(-errno));
	(void)close(download->dir_fd);
	return status;
}

int lpi_get_one(struct lpi_get_file *download, const char *file)
{
	char path[2 * LPI_KEY_MAX];
	struct stat st;
	if (strcmp(file, "-") == 0)
		return get_to_stdout(download);
	bool exists = stat(file, &st) == 0;
	bool into_dir = lpi_key_is_dir_form(file) || (exists && S_ISDIR(st.st_mode));
	int n = snprintf(path, sizeof(path), "%s%s%s", file, into_dir ? "/" : "",
			 into_dir ? lpi_key_name(download->key) : "");
	if (n >= (int)sizeof(path))
		return lpi_cli_fail(file, "the path is too long");
	if (!exists || into_dir || S_ISREG(st.st_mode))
		return get_to_file(download, path);
	struct stream to = {.name = file, .fd = open(file, O_WRONLY | O_CLOEXEC | O_NOCTTY)};
	if (to.fd < 0)
		return lpi_cli_fail(file, "%s", lp_strerror(-errno));
	int status = get_to_stream(download, &to);
	if (close(to.fd) < 0)
		status = lpi_cli_fail(file, "%s", lp_strerror(-errno));
	return status;
}

static int run_get(const struct lpi_cli_command *self, int argc, char **argv)
{
	static const struct option longs[] = {{"range", required_argument, NULL, 'r'},
					      {"times", no_argument, NULL, 't'},
					      {"no-progress", no_argument, NULL, 'P'},
					      {"help", no_argument, NULL, 'h'},
					      {NULL, 0, NULL, 0}};
	static const struct lpi_args_form form = {"", longs, 1, 2};
	struct lpi_get_file download = {.length = LAPIS_TO_END};
	struct lpi_args args;
	int status = lpi_args_parse(self, argc, argv, &form, &args);
	if (status >= 0)
		return status;
	lpi_progress_command(args.has['P']);
	download.key = args.names[0];
	download.keeps_times = args.has['t'];
	status = lpi_key_check(download.key);
	if (status == 0 && args.has['r'])
		status = read_range(self, args.value['r'], &download.offset, &download.length);
	if (status != 0)
		return status;
	const char *file = args.cnt == 2 ? args.names[1] : lpi_key_name(download.key);
	/* A key may end in "/-": what was not given is no word of standard output. */
	return lpi_get_one(&download, args.cnt == 2 || strcmp(file, "-") != 0 ? file : "./-");
}

const struct lpi_cli_command lpi_remote_get = {
	.name = "get",
	.synopsis = "[OPTION ...] KEY [FILE|-]",
	.summary = "Fetch an object into a file",
	.help = "  --range A-B    bytes A to B, both included, from 0; A-: all from A on\n"
		"  --times        give the file the object's mode and modification time\n"
		"  --no-progress  do not show progress, even on a terminal\n"
		"  --help         this text\n"
		"\n"
		"Without FILE, the file has the last name of the key, in this directory. FILE - "
		"is\n"
		"standard output. The file appears when it is complete and durable; blocks of "
		"zeros\n"
		"are holes in it. Every byte was checked against the checksum that it was put "
		"with.\n",
	.run = run_get,
};

/* --- cat -------------------------------------------------------------------------------------- */

static int run_cat(const struct lpi_cli_command *self, int argc, char **argv)
{
	static const struct option longs[] = {{"help", no_argument, NULL, 'h'}, {NULL, 0, NULL, 0}};
	static const struct lpi_args_form form = {"", longs, 1, 100000};
	struct lpi_args args;
	int status = lpi_args_parse(self, argc, argv, &form, &args);
	if (status >= 0)
		return status;
	status = lpi_keys_check(args.names, args.cnt);
	for (int i = 0; i < args.cnt && status != LP_EXIT_USAGE; i++) {
		const struct lpi_get_file what = {.key = args.names[i], .length = LAPIS_TO_END};
		if (get_to_stdout(&what) != LP_EXIT_OK)
			status = LP_EXIT_FAILED;
	}
	return status;
}

const struct lpi_cli_command lpi_remote_cat = {
	.name = "cat",
	.synopsis = "KEY ...",
	.summary = "Print objects",
	.help = "  --help  this text\n",
	.run = run_cat,
};
