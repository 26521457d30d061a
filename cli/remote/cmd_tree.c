/* SPDX-License-Identifier: Apache-2.0 */
/* lapis rm and du, and cp inside the store: what may be done to a whole tree. */
#include <getopt.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli/remote/remote.h"
#include "cli/remote/tasks.h"
#include "cli/remote/tree.h"

/* The more are under way, the more of them share a commit. */
#define REMOVALS_AT_ONCE 256u
#define COPIES_AT_ONCE   32u

/* --- rm --------------------------------------------------------------------------------------- */

static int remove_file(void *arg, const char *key, const struct lapis_attrs *attrs)
{
	(void)attrs;
	const struct lpi_key_task about = {.key = key, .ignores_missing = true};
	struct lapis_request request = {.op = LAPIS_REMOVE, .path = key};
	lpi_tasks_submit_key(arg, &about, &request);
	return 0;
}

/* Inner ones first. */
static void remove_dirs(struct lpi_tasks *jobs, const struct lpi_cli_texts *dirs, bool alone)
{
	for (size_t i = dirs->cnt; i-- > 0;) {
		const char *key = dirs->texts[i];
		const struct lpi_key_task about = {.key = key, .ignores_missing = true};
		struct lapis_request request = {.op = LAPIS_REMOVE, .path = key};
		request.flags = LAPIS_IS_DIR;
		if (i == 0 && !alone) {
			request.op = LAPIS_DELETE;
			request.flags = LAPIS_OR_DIR;
		}
		lpi_tasks_submit_key(jobs, &about, &request);
		/* Its parent may be next. */
		(void)lpi_tasks_finish(jobs);
	}
}

int lpi_tree_remove(const char *key, bool alone)
{
	struct lpi_tasks jobs;
	struct lpi_cli_texts dirs = {.texts = NULL};
	if (lpi_tasks_init(&jobs, REMOVALS_AT_ONCE) != LP_EXIT_OK)
		return LP_EXIT_FAILED;
	int err = lpi_tree_walk(key, 0, remove_file, &jobs, &dirs);
	int status = lpi_tasks_finish(&jobs);
	if (err == 0 && status == LP_EXIT_OK)
		remove_dirs(&jobs, &dirs, alone);
	lpi_cli_texts_fini(&dirs);
	return err < 0 ? LP_EXIT_FAILED : lpi_tasks_finish(&jobs);
}

/* One key, which with -r may be a directory. */
static int remove_key(const char *key, bool recursive, bool force)
{
	struct lapis_attrs attrs = {.type = LAPIS_FILE};
	struct lapis *lapis = lpi_remote();
	if (lapis == NULL)
		return LP_EXIT_FAILED;
	int err = recursive ? lapis_stat(lapis, key, &attrs) : 0;
	if (err == 0 && attrs.type == LAPIS_DIR)
		return lpi_tree_remove(key, false);
	if (err == 0)
		err = lapis_delete(lapis, key);
	if (err == 0 || (force && err == -ENOENT))
		return LP_EXIT_OK;
	return lpi_remote_fail(key, err);
}

static int run_rm(const struct lpi_cli_command *self, int argc, char **argv)
{
	static const struct option longs[] = {{"recursive", no_argument, NULL, 'r'},
					      {"force", no_argument, NULL, 'f'},
					      {"help", no_argument, NULL, 'h'},
					      {NULL, 0, NULL, 0}};
	static const struct lpi_args_form form = {"rf", longs, 1, 100000};
	struct lpi_args args;
	int status = lpi_args_parse(self, argc, argv, &form, &args);
	if (status >= 0)
		return status;
	for (int i = 0; i < args.cnt; i++) {
		size_t len = strlen(args.names[i]);
		/* A directory may be given with the / that ls shows. */
		if (args.has['r'] && len > 1 && args.names[i][len - 1] == '/')
			args.names[i][len - 1] = '\0';
	}
	status = lpi_keys_check(args.names, args.cnt);
	for (int i = 0; i < args.cnt && status != LP_EXIT_USAGE; i++) {
		if (remove_key(args.names[i], args.has['r'], args.has['f']) != LP_EXIT_OK)
			status = LP_EXIT_FAILED;
	}
	return status;
}

const struct lpi_cli_command lpi_remote_rm = {
	.name = "rm",
	.synopsis = "[-r] [-f] KEY ...",
	.summary = "Remove objects",
	.help = "  -r, --recursive  also directories and buckets, with everything in them\n"
		"  -f, --force      ignore keys that do not exist\n"
		"  --help           this text\n"
		"\n"
		"A directory that a put made is removed together with the last object in it.\n",
	.run = run_rm,
};

/* --- cp --------------------------------------------------------------------------------------- */

struct copy {
	struct lpi_tasks *jobs;
	const char *from;
	const char *to;
	uint32_t condition;
	char key[LPI_KEY_MAX + 1];
};

static int new_key(struct copy *copy, const char *key)
{
	const char *rest = key + strlen(copy->from);
	return lpi_key_join(copy->to, rest[0] == '/' ? rest + 1 : rest, copy->key);
}

static int copy_file(void *arg, const char *key, const struct lapis_attrs *attrs)
{
	struct copy *copy = arg;
	(void)attrs;
	if (new_key(copy, key) < 0)
		return -ENAMETOOLONG;
	const struct lpi_key_task about = {.key = key};
	struct lapis_request request = {
		.op = LAPIS_COPY, .path = key, .to_path = copy->key, .condition = copy->condition};
	lpi_tasks_submit_key(copy->jobs, &about, &request);
	return 0;
}

/* Those that are there already will do; the rest is made, so that empty ones are there, too. */
static void copy_dirs(struct copy *copy, const struct lpi_cli_texts *dirs)
{
	for (size_t i = 0; i < dirs->cnt; i++) {
		const char *key = dirs->texts[i];
		const char *rest = key + strlen(copy->from);
		int n = snprintf(copy->key, sizeof(copy->key), "%s%s", copy->to, rest);
		if (n >= (int)sizeof(copy->key))
			continue; /* what is in it has failed */
		int err = lapis_mkdir(copy->jobs->lapis, copy->key, 0755, LAPIS_SPREAD);
		if (err < 0 && err != -EEXIST)
			lpi_tasks_fail(copy->jobs, copy->key, err, lapis_error_text());
	}
}

static int copy_tree(const char *src, const char *dst, uint32_t condition)
{
	struct lpi_tasks jobs;
	struct lpi_cli_texts dirs = {.texts = NULL};
	struct copy copy = {&jobs, src, dst, condition, ""};
	if (lpi_key_is_inside(dst, src))
		return lpi_cli_fail(
			src, "cannot be copied into itself: %s is inside it (choose a key outside)",
			dst);
	if (lpi_tasks_init(&jobs, COPIES_AT_ONCE) != LP_EXIT_OK)
		return LP_EXIT_FAILED;
	int err = lpi_tree_walk(src, 0, copy_file, &copy, &dirs);
	(void)lpi_tasks_finish(&jobs);
	copy_dirs(&copy, &dirs);
	lpi_cli_texts_fini(&dirs);
	return err < 0 ? LP_EXIT_FAILED : lpi_tasks_finish(&jobs);
}

int lpi_copy_key(const char *src, const char *dst, const struct lpi_args *args)
{
	struct lapis_attrs attrs = {.type = LAPIS_FILE};
	struct lapis_result result = {.size = sizeof(result)};
	struct lapis *lapis = lpi_remote();
	uint32_t condition = args->has['n'] ? LAPIS_IF_ABSENT : LAPIS_IF_ANY;
	if (lapis == NULL)
		return LP_EXIT_FAILED;
	if (args->has['r'] && lapis_stat(lapis, src, &attrs) == 0 && attrs.type == LAPIS_DIR)
		return copy_tree(src, dst, condition);
	const struct lapis_request request = {.size = sizeof(request),
					      .op = LAPIS_COPY,
					      .path = src,
					      .to_path = dst,
					      .condition = condition};
	int err = lapis_call(lapis, &request, &result);
	lapis_result_fini(&result);
	if (err != -EISDIR)
		return err < 0 ? lpi_remote_fail(src, err) : LP_EXIT_OK;
	if (lapis_stat(lapis, src, &attrs) == 0 && attrs.type != LAPIS_DIR)
		return lpi_remote_fail_into(dst);
	return lpi_cli_fail(src, "is a directory (-r copies it with everything in it)");
}

/* --- du --------------------------------------------------------------------------------------- */

struct usage {
	uint64_t files;
	uint64_t size_bytes;
	uint64_t blocks;
};

static int count_file(void *arg, const char *key, const struct lapis_attrs *attrs)
{
	struct usage *usage = arg;
	(void)key;
	usage->files++;
	usage->size_bytes += attrs->size_bytes;
	usage->blocks += attrs->blocks;
	return 0;
}

static int measure(const char *key, bool json)
{
	struct usage usage = {.files = 0};
	struct lpi_cli_texts dirs = {.texts = NULL};
	struct lapis_attrs attrs;
	char size[32];
	char space[32];
	struct lapis *lapis = lpi_remote();
	if (lapis == NULL)
		return LP_EXIT_FAILED;
	int err = lapis_stat(lapis, key, &attrs);
	if (err < 0)
		return lpi_remote_fail(key, err);
	if (attrs.type == LAPIS_DIR)
		err = lpi_tree_walk(key, LAPIS_ATTRS, count_file, &usage, &dirs);
	else
		err = count_file(&usage, key, &attrs);
	size_t dir_cnt = dirs.cnt;
	lpi_cli_texts_fini(&dirs);
	if (err < 0)
		return LP_EXIT_FAILED;
	if (json) {
		(void)fputs("{\"key\": ", stdout);
		lpi_cli_print_json(stdout, key);
		(void)printf(", \"objects\": %" PRIu64 ", \"directories\": %zu, \"size_bytes\": "
			     "%" PRIu64 ", \"allocated_bytes\": %" PRIu64 "}\n",
			     usage.files, dir_cnt, usage.size_bytes, usage.blocks * 4096);
		return LP_EXIT_OK;
	}
	(void)lpi_cli_format_size(usage.size_bytes, size, sizeof(size));
	(void)lpi_cli_format_size(usage.blocks * 4096, space, sizeof(space));
	(void)printf("%s in %" PRIu64 " object%s, taking %s  ", size, usage.files,
		     usage.files == 1 ? "" : "s", space);
	lpi_print_name(stdout, key, '\n');
	return LP_EXIT_OK;
}

static int run_du(const struct lpi_cli_command *self, int argc, char **argv)
{
	static const struct option longs[] = {{"json", no_argument, NULL, 'j'},
					      {"help", no_argument, NULL, 'h'},
					      {NULL, 0, NULL, 0}};
	static const struct lpi_args_form form = {"", longs, 1, 100000};
	struct lpi_args args;
	int status = lpi_args_parse(self, argc, argv, &form, &args);
	if (status >= 0)
		return status;
	status = lpi_keys_check(args.names, args.cnt);
	for (int i = 0; i < args.cnt && status != LP_EXIT_USAGE; i++) {
		if (measure(args.names[i], args.has['j']) != LP_EXIT_OK)
			status = LP_EXIT_FAILED;
	}
	return status;
}

const struct lpi_cli_command lpi_remote_du = {
	.name = "du",
	.synopsis = "[--json] KEY ...",
	.summary = "Count the objects below keys, and the space they take",
	.help = "  --json  one JSON object in a line for each\n"
		"  --help  this text\n",
	.run = run_du,
};
