/* SPDX-License-Identifier: Apache-2.0 */
/* lapis ls: keys in order, page after page, so that it takes no more memory for a hundred million.
 */
#include <getopt.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli/remote/remote.h"

struct listing {
	bool is_long;
	bool is_json;
	bool is_raw; /* ended by NUL */
	bool is_terminal;
	uint64_t cnt;
};

static void print_item(struct listing *out, const char *key, const struct lapis_item *item)
{
	char mode[16] = "d---------";
	char time[40] = "-";
	bool is_dir = item->type == LAPIS_DIR || item->type == 0;
	bool has_slash = is_dir && lpi_key_is_dir_form(key);
	if (out->is_json) {
		(void)fputs(out->cnt == 0 ? "[\n" : ",\n", stdout);
		if (item->has_attrs == 1) {
			lpi_print_attrs_json(stdout, key, &item->attrs);
			return;
		}
		(void)fputs("{\"key\": ", stdout);
		lpi_cli_print_json(stdout, key);
		(void)printf(", \"type\": \"%s\"}", lpi_type_name(item->type));
		return;
	}
	if (out->is_long && item->has_attrs == 1) {
		lpi_format_mode(&item->attrs, mode);
		lpi_format_time(item->attrs.mtime_ns, time, sizeof(time));
	}
	if (out->is_long)
		(void)printf("%s %14" PRIu64 "  %-19s  ", mode,
			     item->has_attrs == 1 ? item->attrs.size_bytes : 0, time);
	if (out->is_terminal && !out->is_raw && is_dir)
		(void)fputs(lpi_color(stdout, "1;34"), stdout);
	if (out->is_terminal && !out->is_raw)
		lpi_cli_print_escaped(stdout, key);
	else
		(void)fputs_unlocked(key, stdout);
	if (is_dir && !has_slash)
		(void)fputc_unlocked('/', stdout);
	if (out->is_terminal && !out->is_raw && is_dir)
		(void)fputs(lpi_color(stdout, "0"), stdout);
	(void)fputc_unlocked(out->is_raw ? '\0' : '\n', stdout);
}

/* One key and what ends it. */
static void put_item(struct listing *out, const struct lapis_item *item)
{
	static char key[LPI_KEY_MAX + 2];
	size_t len = LP_MIN(item->name_bytes, sizeof(key) - 1);
	memcpy(key, item->name, len);
	key[len] = '\0';
	print_item(out, key, item);
	out->cnt++;
}

static int list_keys(struct listing *out, const char *prefix, bool recursive)
{
	struct lapis_list *list = NULL;
	struct lapis_item item;
	struct lapis *lapis = lpi_remote();
	bool with_attrs = out->is_long || out->is_json;
	uint32_t flags = (recursive ? 0 : LAPIS_DELIMIT) | (with_attrs ? LAPIS_ATTRS : 0);
	if (lapis == NULL)
		return LP_EXIT_FAILED;
	int err = lapis_list_open(lapis, prefix, NULL, flags, &list);
	while (err >= 0 && (err = lapis_list_next(list, &item)) > 0) {
		put_item(out, &item);
		if (ferror(stdout))
			break;
	}
	lapis_list_close(list);
	return err < 0 ? lpi_remote_fail(prefix[0] != '\0' ? prefix : "ls", err) : LP_EXIT_OK;
}

/* BUCKET means what is in it; a bucket that is not there is an error, a prefix that nothing begins
 * with is not. */
static int find_prefix(const char *name, char *ret_prefix)
{
	char bucket[LPI_KEY_MAX + 1];
	struct lapis_attrs attrs;
	size_t len = strcspn(name, "/");
	if (strstr(name, "//") != NULL) {
		(void)lpi_cli_fail(name, "a key cannot contain //");
		return LP_EXIT_USAGE;
	}
	if (strlen(name) > LPI_KEY_MAX - 1 || len == 0) {
		(void)lpi_cli_fail(name, "is not a key: begin with the name of a bucket");
		return LP_EXIT_USAGE;
	}
	(void)snprintf(bucket, sizeof(bucket), "%.*s", (int)len, name);
	(void)snprintf(ret_prefix, LPI_KEY_MAX + 1, "%s", name);
	struct lapis *lapis = lpi_remote();
	if (lapis == NULL)
		return LP_EXIT_FAILED;
	int status = lpi_key_check(bucket);
	if (status != 0)
		return status;
	int err = lapis_stat(lapis, bucket, &attrs);
	if (err < 0)
		return lpi_remote_fail(bucket, err);
	if (name[len] == '\0' && attrs.type == LAPIS_DIR)
		(void)snprintf(ret_prefix, LPI_KEY_MAX + 1, "%s/", name);
	return LP_EXIT_OK;
}

static int run_ls(const struct lpi_cli_command *self, int argc, char **argv)
{
	static const struct option longs[] = {
		{"long", no_argument, NULL, 'l'}, {"recursive", no_argument, NULL, 'r'},
		{"null", no_argument, NULL, '0'}, {"json", no_argument, NULL, 'j'},
		{"help", no_argument, NULL, 'h'}, {NULL, 0, NULL, 0}};
	static const struct lpi_args_form form = {"lr0", longs, 0, 1};
	char prefix[LPI_KEY_MAX + 1] = "";
	struct lpi_args args;
	int status = lpi_args_parse(self, argc, argv, &form, &args);
	if (status >= 0)
		return status;
	struct listing out = {
		.is_long = args.has['l'], .is_json = args.has['j'], .is_raw = args.has['0']};
	/* Asked once: of a million keys it would be a quarter of the time. */
	out.is_terminal = lpi_is_terminal(stdout);
	status = LP_EXIT_OK;
	if (args.cnt == 1 && args.names[0][0] != '\0')
		status = find_prefix(args.names[0], prefix);
	if (status == LP_EXIT_OK)
		status = list_keys(&out, prefix, args.has['r']);
	if (out.is_json && status == LP_EXIT_OK)
		(void)fputs(out.cnt == 0 ? "[]\n" : "\n]\n", stdout);
	return status;
}

const struct lpi_cli_command lpi_remote_ls = {
	.name = "ls",
	.synopsis = "[-l] [-r] [-0 | --json] [BUCKET[/PREFIX]]",
	.summary = "List keys in order",
	.help = "  -l, --long       also mode, size and modification time\n"
		"  -r, --recursive  all keys below; otherwise everything behind the next / is one "
		"line\n"
		"  -0, --null       end each key with a NUL byte, and print it unchanged\n"
		"  --json           a JSON array\n"
		"  --help           this text\n"
		"\n"
		"Lists keys that begin with PREFIX, which may end anywhere: BUCKET/DIR/ lists "
		"what\n"
		"is in a directory. On a terminal, control characters in keys are shown escaped.\n",
	.run = run_ls,
};
