/* SPDX-License-Identifier: Apache-2.0 */
/* lapis mb, rb, bucket, mv, stat: names and attributes. */
#include <getopt.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli/remote/remote.h"

static const struct option help_only[] = {{"help", no_argument, NULL, 'h'}, {NULL, 0, NULL, 0}};

/* --- Buckets ---------------------------------------------------------------------------------- */

static int check_bucket(const struct lpi_cli_command *self, char *bucket)
{
	size_t len = strlen(bucket);
	if (len > 1 && bucket[len - 1] == '/')
		bucket[len - 1] = '\0';
	if (strchr(bucket, '/') != NULL)
		return lpi_cli_usage(self, "%s: a bucket's name has no / (put makes directories)",
				     bucket);
	return lpi_key_check(bucket);
}

static int run_mb(const struct lpi_cli_command *self, int argc, char **argv)
{
	static const struct option longs[] = {{"no-spread", no_argument, NULL, 'n'},
					      {"help", no_argument, NULL, 'h'},
					      {NULL, 0, NULL, 0}};
	static const struct lpi_args_form form = {"", longs, 1, 100000};
	struct lpi_args args;
	int status = lpi_args_parse(self, argc, argv, &form, &args);
	if (status >= 0)
		return status;
	status = 0;
	for (int i = 0; i < args.cnt && status == 0; i++)
		status = check_bucket(self, args.names[i]);
	for (int i = 0; i < args.cnt && status != LP_EXIT_USAGE; i++) {
		struct lapis *lapis = lpi_remote();
		if (lapis == NULL)
			return LP_EXIT_FAILED;
		int err = lapis_mkdir(lapis, args.names[i], 0755, args.has['n'] ? 0 : LAPIS_SPREAD);
		if (err < 0)
			status = lpi_remote_fail(args.names[i], err);
	}
	return status;
}

const struct lpi_cli_command lpi_remote_mb = {
	.name = "mb",
	.synopsis = "[--no-spread] BUCKET ...",
	.summary = "Make buckets",
	.help = "  --no-spread  keep the bucket's names on one shard: renames in it become "
		"faster,\n"
		"               everything else slower\n"
		"  --help       this text\n",
	.run = run_mb,
};

static int run_rb(const struct lpi_cli_command *self, int argc, char **argv)
{
	static const struct lpi_args_form form = {"", help_only, 1, 100000};
	struct lpi_args args;
	int status = lpi_args_parse(self, argc, argv, &form, &args);
	if (status >= 0)
		return status;
	status = 0;
	for (int i = 0; i < args.cnt && status == 0; i++)
		status = check_bucket(self, args.names[i]);
	for (int i = 0; i < args.cnt && status != LP_EXIT_USAGE; i++) {
		struct lapis *lapis = lpi_remote();
		if (lapis == NULL)
			return LP_EXIT_FAILED;
		int err = lapis_rmdir(lapis, args.names[i]);
		if (err < 0)
			status = lpi_remote_fail(args.names[i], err);
	}
	return status;
}

const struct lpi_cli_command lpi_remote_rb = {
	.name = "rb",
	.synopsis = "BUCKET ...",
	.summary = "Remove empty buckets",
	.help = "  --help  this text\n"
		"\n"
		"lapis rm -r BUCKET removes a bucket with everything in it.\n",
	.run = run_rb,
};

/* --- What a bucket is like -------------------------------------------------------------------- */

static int bucket_get(const struct lpi_cli_command *self, const char *bucket, const char *name)
{
	struct lapis_attrs attrs;
	struct lapis *lapis = lpi_remote();
	if (lapis == NULL)
		return LP_EXIT_FAILED;
	int err = lapis_stat(lapis, bucket, &attrs);
	if (err < 0)
		return lpi_remote_fail(bucket, err);
	const char *spread = (attrs.flags & LAPIS_ATTR_SPREAD) != 0 ? "yes" : "no";
	bool any = false;
	if (name == NULL || strcmp(name, "spread") == 0)
		any = printf("%s%s\n", name == NULL ? "spread  " : "", spread) > 0;
	if (name == NULL || strcmp(name, "mode") == 0)
		any = printf("%s%04o\n", name == NULL ? "mode    " : "", attrs.mode) > 0;
	if (name == NULL || strcmp(name, "uid") == 0)
		any = printf("%s%u\n", name == NULL ? "uid     " : "", attrs.uid) > 0;
	if (name == NULL || strcmp(name, "gid") == 0)
		any = printf("%s%u\n", name == NULL ? "gid     " : "", attrs.gid) > 0;
	if (!any)
		return lpi_cli_usage(self, "%s is not one of spread, mode, uid, gid", name);
	return LP_EXIT_OK;
}

static int bucket_set(const struct lpi_cli_command *self, char **names)
{
	struct lapis_attrs attrs = {.type = LAPIS_DIR};
	uint64_t id = 0;
	uint32_t mask = 0;
	char *end = NULL;
	unsigned long mode = strtoul(names[2], &end, 8);
	if (strcmp(names[1], "mode") == 0 && *end == '\0' && end != names[2] && mode <= 07777)
		mask = LAPIS_SET_MODE;
	else if (strcmp(names[1], "uid") == 0 &&
		 lpi_cli_parse_number(names[2], 0, UINT32_MAX - 1, &id) == 0)
		mask = LAPIS_SET_UID;
	else if (strcmp(names[1], "gid") == 0 &&
		 lpi_cli_parse_number(names[2], 0, UINT32_MAX - 1, &id) == 0)
		mask = LAPIS_SET_GID;
	else
		return lpi_cli_usage(self,
				     "cannot set %s to %s: set mode (octal), uid or gid (numbers)",
				     names[1], names[2]);
	attrs.mode = (uint16_t)mode;
	attrs.uid = (uint32_t)id;
	attrs.gid = (uint32_t)id;
	struct lapis *lapis = lpi_remote();
	if (lapis == NULL)
		return LP_EXIT_FAILED;
	int err = lapis_set(lapis, names[0], &attrs, mask, NULL);
	return err < 0 ? lpi_remote_fail(names[0], err) : LP_EXIT_OK;
}

static int run_bucket(const struct lpi_cli_command *self, int argc, char **argv)
{
	static const struct lpi_args_form form = {"", help_only, 2, 4};
	struct lpi_args args;
	int status = lpi_args_parse(self, argc, argv, &form, &args);
	if (status >= 0)
		return status;
	status = check_bucket(self, args.names[1]);
	if (status != 0)
		return status;
	if (strcmp(args.names[0], "get") == 0 && args.cnt <= 3)
		return bucket_get(self, args.names[1], args.cnt == 3 ? args.names[2] : NULL);
	if (strcmp(args.names[0], "set") == 0 && args.cnt == 4)
		return bucket_set(self, args.names + 1);
	return lpi_cli_usage(self, "write get BUCKET [NAME], or set BUCKET NAME VALUE");
}

const struct lpi_cli_command lpi_remote_bucket = {
	.name = "bucket",
	.synopsis = "get BUCKET [NAME] | set BUCKET NAME VALUE",
	.summary = "Show or change the attributes of a bucket",
	.help = "  --help  this text\n"
		"\n"
		"NAME is mode (octal), uid, gid, or spread, which is fixed when the bucket is "
		"made.\n",
	.run = run_bucket,
};

/* --- mv --------------------------------------------------------------------------------------- */

static int move_one(const char *src, const char *dst, const struct lpi_args *args)
{
	struct lapis *lapis = lpi_remote();
	struct lapis_result result = {.size = sizeof(result)};
	const struct lapis_request request = {.size = sizeof(request),
					      .op = LAPIS_MOVE,
					      .path = src,
					      .to_path = dst,
					      .condition = args->has['n'] ? LAPIS_IF_ABSENT
									  : LAPIS_IF_ANY};
	if (lapis == NULL)
		return LP_EXIT_FAILED;
	if (lpi_key_is_inside(dst, src) && strcmp(dst, src) != 0)
		return lpi_cli_fail(
			src, "cannot be moved into itself: %s is inside it (choose a key outside)",
			dst);
	int err = lapis_call(lapis, &request, &result);
	lapis_result_fini(&result);
	if (err == -EISDIR)
		return lpi_remote_fail_into(dst);
	return err < 0 ? lpi_remote_fail(src, err) : LP_EXIT_OK;
}

static int run_mv(const struct lpi_cli_command *self, int argc, char **argv)
{
	static const struct option longs[] = {{"if-absent", no_argument, NULL, 'n'},
					      {"help", no_argument, NULL, 'h'},
					      {NULL, 0, NULL, 0}};
	static const struct lpi_args_form form = {"", longs, 2, 100000};
	struct lpi_args args;
	int status = lpi_args_parse(self, argc, argv, &form, &args);
	if (status >= 0)
		return status;
	return lpi_keys_to_one(self, &args, move_one);
}

const struct lpi_cli_command lpi_remote_mv = {
	.name = "mv",
	.synopsis = "[--if-absent] SRC ... DST",
	.summary = "Rename objects or directories",
	.help = "  --if-absent  fail if something of that key exists\n"
		"  --help       this text\n"
		"\n"
		"A DST that ends in / takes any number of sources, each under its own name. Each\n"
		"move is atomic, and replaces an object that has the new key.\n",
	.run = run_mv,
};

/* --- stat ------------------------------------------------------------------------------------- */

static void print_stat(const char *key, const struct lapis_attrs *attrs)
{
	char mode[16];
	char time[3][40];
	char size[32];
	lpi_format_mode(attrs, mode);
	lpi_format_time(attrs->mtime_ns, time[0], sizeof(time[0]));
	lpi_format_time(attrs->ctime_ns, time[1], sizeof(time[1]));
	lpi_format_time(attrs->btime_ns, time[2], sizeof(time[2]));
	(void)lpi_cli_format_size(attrs->blocks * 4096, size, sizeof(size));
	(void)fputs("key      ", stdout);
	lpi_print_name(stdout, key, '\n');
	(void)printf("type     %s\nsize     %" PRIu64 "\nspace    %s\nmode     %s (%04o)\n"
		     "owner    %u:%u\nlinks    %u\nino      %" PRIu64 "\nversion  %" PRIu64 "\n",
		     lpi_type_name(attrs->type), attrs->size_bytes, size, mode, attrs->mode,
		     attrs->uid, attrs->gid, attrs->nlink, attrs->ino, attrs->version);
	if (attrs->type == LAPIS_DIR)
		(void)printf("entries  %" PRIu64 "\n", attrs->entries_cnt);
	bool is_immutable = (attrs->flags & LAPIS_ATTR_IMMUTABLE) != 0;
	bool is_append = (attrs->flags & LAPIS_ATTR_APPEND) != 0;
	if (is_immutable || is_append)
		(void)printf("flags    %s%s%s\n", is_immutable ? "immutable" : "",
			     is_immutable && is_append ? ", " : "", is_append ? "append-only" : "");
	(void)printf("changed  %s\nstatus   %s\nmade     %s\n", time[0], time[1], time[2]);
}

static int run_stat(const struct lpi_cli_command *self, int argc, char **argv)
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
		struct lapis_attrs attrs;
		struct lapis *lapis = lpi_remote();
		if (lapis == NULL)
			return LP_EXIT_FAILED;
		int err = lapis_stat(lapis, args.names[i], &attrs);
		if (err < 0) {
			status = lpi_remote_fail(args.names[i], err);
		} else if (args.has['j']) {
			lpi_print_attrs_json(stdout, args.names[i], &attrs);
			(void)putchar('\n');
		} else {
			print_stat(args.names[i], &attrs);
		}
	}
	return status;
}

const struct lpi_cli_command lpi_remote_stat = {
	.name = "stat",
	.synopsis = "[--json] KEY ...",
	.summary = "Show the attributes of objects",
	.help = "  --json  one JSON object in a line for each\n"
		"  --help  this text\n",
	.run = run_stat,
};

/* --- chattr ----------------------------------------------------------------------------------- */

/* Words with commas between them. */
static int parse_flags(const char *text, uint32_t *ret_flags)
{
	static const struct {
		const char *name;
		uint32_t flag;
	} words[] = {{"none", 0},
		     {"immutable", LAPIS_ATTR_IMMUTABLE},
		     {"append-only", LAPIS_ATTR_APPEND}};
	uint32_t flags = 0;
	while (true) {
		size_t len = strcspn(text, ",");
		size_t i = 0;
		while (i < LP_ARRAY_SIZE(words) &&
		       (strlen(words[i].name) != len || strncmp(text, words[i].name, len) != 0))
			i++;
		if (i == LP_ARRAY_SIZE(words))
			return -EINVAL;
		flags |= words[i].flag;
		if (text[len] == '\0')
			break;
		text += len + 1;
	}
	*ret_flags = flags;
	return 0;
}

static int run_chattr(const struct lpi_cli_command *self, int argc, char **argv)
{
	static const struct lpi_args_form form = {"", help_only, 2, 100000};
	struct lapis_attrs attrs = {.flags = 0};
	struct lpi_args args;
	int status = lpi_args_parse(self, argc, argv, &form, &args);
	if (status >= 0)
		return status;
	if (parse_flags(args.names[0], &attrs.flags) < 0)
		return lpi_cli_usage(self,
				     "%s is not immutable, append-only, both with a comma, or none",
				     args.names[0]);
	status = lpi_keys_check(args.names + 1, args.cnt - 1);
	for (int i = 1; i < args.cnt && status != LP_EXIT_USAGE; i++) {
		struct lapis *lapis = lpi_remote();
		if (lapis == NULL)
			return LP_EXIT_FAILED;
		int err = lapis_set(lapis, args.names[i], &attrs, LAPIS_SET_FLAGS, NULL);
		if (err < 0)
			status = lpi_remote_fail(args.names[i], err);
	}
	return status;
}

const struct lpi_cli_command lpi_remote_chattr = {
	.name = "chattr",
	.synopsis = "none|immutable|append-only[,...] KEY ...",
	.summary = "Set which changes objects allow",
	.help = "  --help  this text\n"
		"\n"
		"An immutable object does not change; no name can be added to or removed from "
		"such\n"
		"a directory. Data can only be appended to an append-only object, and such a\n"
		"directory takes only new names. Only root may set them, through a unix socket.\n"
		"lapis stat shows them; on a mount, lsattr.\n",
	.run = run_chattr,
};
