/* SPDX-License-Identifier: Apache-2.0 */
/* lapis xattr and omap: names and values that are attached to an object. */
#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "cli/remote/remote.h"

#define VALUE_MAX 65536u

struct pairs_kind {
	uint32_t get;
	uint32_t set;
	uint32_t remove;
	uint32_t list;
	const char *what;
};

static const struct pairs_kind xattr_kind = {LAPIS_XATTR_GET, LAPIS_XATTR_SET, LAPIS_XATTR_REMOVE,
					     LAPIS_XATTR_LIST, "attribute"};
static const struct pairs_kind omap_kind = {LAPIS_OMAP_GET, LAPIS_OMAP_SET, LAPIS_OMAP_REMOVE,
					    LAPIS_OMAP_LIST, "entry"};

/* Names the entry in what goes wrong: that of the object alone would not say which. */
static int pair_fail(const struct pairs_kind *kind, const char *key, const char *name, int err)
{
	char subject[LPI_KEY_MAX + 2048];
	(void)snprintf(subject, sizeof(subject), "%s: %s %s", key, kind->what, name);
	if (err == -ENODATA)
		return lpi_remote_fail_text(subject, err, "there is no such one");
	if (err == -EOPNOTSUPP)
		return lpi_remote_fail_text(subject, err,
					    "no such kind (names begin with user., or trusted.)");
	return lpi_remote_fail(subject, err);
}

/* A value as it is; on a terminal a line of its own. */
static void print_value(const void *value, size_t len)
{
	(void)fwrite(value, 1, len, stdout);
	if (lpi_is_terminal(stdout))
		(void)putchar('\n');
}

static int get_pair(const struct pairs_kind *kind, const char *key, const char *name)
{
	struct lapis_result result = {.size = sizeof(result)};
	const struct lapis_request request = {
		.size = sizeof(request), .op = kind->get, .path = key, .name = name};
	int err = lapis_call(lpi_remote(), &request, &result);
	if (err == 0)
		print_value(result.value, result.value_bytes);
	lapis_result_fini(&result);
	return err < 0 ? pair_fail(kind, key, name, err) : LP_EXIT_OK;
}

static int change_pair(const struct pairs_kind *kind, const char *key,
		       struct lapis_request *request)
{
	struct lapis_result result = {.size = sizeof(result)};
	request->size = sizeof(*request);
	request->path = key;
	int err = lapis_call(lpi_remote(), request, &result);
	lapis_result_fini(&result);
	return err < 0 ? pair_fail(kind, key, request->name, err) : LP_EXIT_OK;
}

static int set_pair(const struct pairs_kind *kind, const char *key, const char *name,
		    const char *value)
{
	static char bytes[VALUE_MAX + 1];
	size_t len = strlen(value);
	struct lapis_request request = {.op = kind->set, .name = name, .value = value};
	if (strcmp(value, "-") == 0) {
		len = fread(bytes, 1, sizeof(bytes), stdin);
		if (ferror(stdin))
			return lpi_cli_fail("standard input", "%s", lp_strerror(-errno));
		request.value = bytes;
	}
	if (len > VALUE_MAX)
		return lpi_cli_fail(
			key, "the value has more than %u bytes (store it as an object: lapis put)",
			VALUE_MAX);
	request.value_bytes = len;
	return change_pair(kind, key, &request);
}

/* --- Lists ------------------------------------------------------------------------------------ */

/* As lpi_print_name(), but that of an entry may have NULs in it. */
static void print_pair_name(const char *name, size_t len, char end)
{
	if (end != '\0' && lpi_is_terminal(stdout))
		lpi_cli_print_escaped_bytes(stdout, name, len);
	else
		(void)fwrite(name, 1, len, stdout);
	(void)putchar(end);
}

static void print_pair(const struct lapis_pair *pair, const struct lpi_args *args, bool is_first)
{
	static char name[1025];
	static char value[VALUE_MAX + 1];
	size_t name_len = LP_MIN((size_t)pair->name_bytes, sizeof(name) - 1);
	size_t value_len = LP_MIN((size_t)pair->value_bytes, sizeof(value) - 1);
	memcpy(name, pair->name, name_len);
	name[name_len] = '\0';
	if (value_len > 0)
		memcpy(value, pair->value, value_len);
	value[value_len] = '\0';
	if (args->has['j']) {
		(void)fputs(is_first ? "[\n{\"name\": " : ",\n{\"name\": ", stdout);
		lpi_cli_print_json_bytes(stdout, name, name_len);
		(void)fputs(", \"value\": ", stdout);
		lpi_cli_print_json_bytes(stdout, value, value_len);
		(void)printf(", \"value_bytes\": %u}", pair->value_bytes);
	} else if (args->has['l']) {
		lpi_cli_print_escaped_bytes(stdout, name, name_len);
		(void)fputs(" = ", stdout);
		lpi_cli_print_escaped_bytes(stdout, value, value_len);
		(void)putchar('\n');
	} else {
		print_pair_name(name, name_len, args->has['0'] ? '\0' : '\n');
	}
}

static int list_pairs(const struct pairs_kind *kind, const char *key, const struct lpi_args *args)
{
	struct lapis_list *list = NULL;
	struct lapis_pair pair;
	uint64_t cnt = 0;
	uint32_t flags = args->has['j'] || args->has['l'] ? LAPIS_VALUES : 0;
	int err = lapis_pairs_open(lpi_remote(), key, kind->list, flags, &list);
	while (err >= 0 && (err = lapis_pairs_next(list, &pair)) > 0) {
		print_pair(&pair, args, cnt == 0);
		cnt++;
	}
	lapis_list_close(list);
	if (err < 0)
		return lpi_remote_fail(key, err);
	if (args->has['j'])
		(void)fputs(cnt == 0 ? "[]\n" : "\n]\n", stdout);
	return LP_EXIT_OK;
}

/* --- The commands ----------------------------------------------------------------------------- */

static int run_pairs(const struct lpi_cli_command *self, const struct pairs_kind *kind,
		     const struct lpi_args *args)
{
	const char *verb = args->names[0];
	const char *key = args->names[1];
	int cnt = args->cnt - 2;
	char **rest = args->names + 2;
	bool is_set = strcmp(verb, "set") == 0 && cnt >= 2 && cnt % 2 == 0;
	bool is_get = strcmp(verb, "get") == 0 && cnt == 1;
	bool is_rm = strcmp(verb, "rm") == 0 && cnt >= 1;
	bool is_ls = strcmp(verb, "ls") == 0 && cnt == 0;
	if (!is_set && !is_get && !is_rm && !is_ls)
		return lpi_cli_usage(self, "wrong arguments for %s: write %s", verb,
				     self->synopsis);
	for (int i = 0; i < cnt; i += is_set ? 2 : 1) {
		if (rest[i][0] == '\0')
			return lpi_cli_usage(self, "%s: a name has at least one byte", verb);
	}
	int status = lpi_key_check(key);
	if (status == 0 && lpi_remote() == NULL)
		status = LP_EXIT_FAILED;
	if (status != 0)
		return status;
	if (is_ls)
		return list_pairs(kind, key, args);
	if (is_get)
		return get_pair(kind, key, rest[0]);
	for (int i = 0; i < cnt && status == 0; i += is_set ? 2 : 1) {
		struct lapis_request request = {.op = kind->remove, .name = rest[i]};
		status = is_set ? set_pair(kind, key, rest[i], rest[i + 1])
				: change_pair(kind, key, &request);
	}
	return status;
}

static int run(const struct lpi_cli_command *self, const struct pairs_kind *kind, int argc,
	       char **argv)
{
	static const struct option longs[] = {{"long", no_argument, NULL, 'l'},
					      {"null", no_argument, NULL, '0'},
					      {"json", no_argument, NULL, 'j'},
					      {"help", no_argument, NULL, 'h'},
					      {NULL, 0, NULL, 0}};
	static const struct lpi_args_form form = {"l0", longs, 2, 100000};
	struct lpi_args args;
	int status = lpi_args_parse(self, argc, argv, &form, &args);
	return status >= 0 ? status : run_pairs(self, kind, &args);
}

static int run_xattr(const struct lpi_cli_command *self, int argc, char **argv)
{
	return run(self, &xattr_kind, argc, argv);
}

static int run_omap(const struct lpi_cli_command *self, int argc, char **argv)
{
	return run(self, &omap_kind, argc, argv);
}

#define PAIRS_SYNOPSIS                                                                             \
	"get KEY NAME | set KEY NAME VALUE|- ... | rm KEY NAME ... | ls [-l] [-0 | --json] KEY"
#define PAIRS_OPTIONS                                                                              \
	"  -l, --long  ls: also values\n"                                                          \
	"  -0, --null  ls: end each name with a NUL byte, and print it unchanged\n"                \
	"  --json      ls: a JSON array of names and values\n"                                     \
	"  --help      this text\n"                                                                \
	"\n"                                                                                       \
	"A VALUE of - is read from standard input; write -- before a value that begins with -.\n"

const struct lpi_cli_command lpi_remote_xattr = {
	.name = "xattr",
	.synopsis = PAIRS_SYNOPSIS,
	.summary = "Show or change extended attributes of an object",
	.help = PAIRS_OPTIONS "A mount shows them as extended attributes; names begin with user.\n",
	.run = run_xattr,
};

const struct lpi_cli_command lpi_remote_omap = {
	.name = "omap",
	.synopsis = PAIRS_SYNOPSIS,
	.summary = "Show or change the ordered map of an object",
	.help = PAIRS_OPTIONS "A map holds any number of entries, in the order of their names.\n",
	.run = run_omap,
};
