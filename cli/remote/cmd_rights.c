/* SPDX-License-Identifier: Apache-2.0 */
/* lapis chown and chmod: what chown(1) and chmod(1) do on a mount, for a store that has none, or
 * whose mount cannot be entered any more. The root of the store is "/" here, which is no key
 * otherwise. */
#include <errno.h>
#include <getopt.h>
#include <grp.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>

#include "cli/remote/remote.h"
#include "cli/remote/tasks.h"
#include "cli/remote/tree.h"

#define AT_ONCE     32u
#define SET_ID_BITS 06000u
#define IN_GROUP_X  00010u
#define NOBODY      UINT32_MAX /* no owner has this number */
#define ENTRY_BYTES 65536u     /* of the list of users or groups */

struct wanted {
	struct lpi_tasks jobs;
	struct lapis_attrs attrs;
	uint32_t mask;
	bool is_recursive;
};

/* --- One of them ------------------------------------------------------------------------------ */

/* As Linux does it: a program that gets another owner or group does not keep the right to run as
 * that. Returns whether the mode has to be set. */
static bool loses_rights(const struct wanted *wanted, const struct lapis_attrs *old,
			 uint16_t *ret_mode)
{
	unsigned mode = old->mode & ~04000u;
	if ((wanted->mask & (LAPIS_SET_UID | LAPIS_SET_GID)) == 0 || old->type != LAPIS_FILE)
		return false;
	if ((mode & IN_GROUP_X) != 0)
		mode &= ~SET_ID_BITS;
	*ret_mode = (uint16_t)mode;
	return mode != old->mode;
}

static int set_one(void *arg, const char *key, const struct lapis_attrs *old)
{
	struct wanted *wanted = arg;
	struct lapis_attrs attrs = wanted->attrs;
	const struct lpi_key_task about = {.key = key, .ignores_missing = wanted->is_recursive};
	struct lapis_request request = {
		.op = LAPIS_SET, .path = key, .attrs = &attrs, .mask = wanted->mask};
	/* A mode of a symbolic link nobody looks at, and chmod(1) does not set it. */
	if (wanted->is_recursive && old->type == LAPIS_SYMLINK && wanted->mask == LAPIS_SET_MODE)
		return 0;
	if (loses_rights(wanted, old, &attrs.mode))
		request.mask |= LAPIS_SET_MODE;
	lpi_tasks_submit_key(&wanted->jobs, &about, &request);
	return 0;
}

/* --- A tree ----------------------------------------------------------------------------------- */

/* What is in it first: who loses the right to a directory has been below it by then. */
static int set_tree(struct wanted *wanted, const char *key)
{
	const struct lapis_attrs old = {.type = LAPIS_DIR};
	struct lpi_cli_texts dirs = {.texts = NULL};
	int err = lpi_tree_walk(key, LAPIS_ATTRS, set_one, wanted, &dirs);
	for (size_t i = dirs.cnt; i-- > 0 && err == 0;)
		err = set_one(wanted, dirs.texts[i], &old);
	lpi_cli_texts_fini(&dirs);
	return err < 0 ? LP_EXIT_FAILED : LP_EXIT_OK;
}

static int set_key(struct wanted *wanted, const char *name)
{
	const char *key = strcmp(name, "/") == 0 ? "" : name;
	struct lapis_attrs old;
	int err = lapis_stat(wanted->jobs.lapis, key, &old);
	if (err < 0)
		return lpi_remote_fail(name, err);
	if (wanted->is_recursive && old.type == LAPIS_DIR)
		return set_tree(wanted, key);
	return set_one(wanted, key, &old) < 0 ? LP_EXIT_FAILED : LP_EXIT_OK;
}

static int check_names(char **names, int cnt)
{
	int status = LP_EXIT_OK;
	for (int i = 0; i < cnt && status == LP_EXIT_OK; i++) {
		size_t len = strlen(names[i]);
		/* A directory may be given with the / that ls shows. */
		if (len > 1 && names[i][len - 1] == '/')
			names[i][len - 1] = '\0';
		if (strcmp(names[i], "/") != 0)
			status = lpi_key_check(names[i]);
	}
	return status;
}

static int set_all(struct wanted *wanted, char **names, int cnt)
{
	int status = lpi_tasks_init(&wanted->jobs, AT_ONCE);
	if (status != LP_EXIT_OK)
		return status;
	for (int i = 0; i < cnt; i++) {
		if (set_key(wanted, names[i]) != LP_EXIT_OK)
			status = LP_EXIT_FAILED;
	}
	return lpi_tasks_finish(&wanted->jobs) != LP_EXIT_OK ? LP_EXIT_FAILED : status;
}

static const struct option longs[] = {{"recursive", no_argument, NULL, 'r'},
				      {"help", no_argument, NULL, 'h'},
				      {NULL, 0, NULL, 0}};
static const struct lpi_args_form form = {"r", longs, 2, 100000};

/* --- chown ------------------------------------------------------------------------------------ */

static int parse_number(const char *text, uint32_t *ret_id)
{
	uint64_t number = 0;
	if (lpi_cli_parse_number(text, 0, NOBODY - 1, &number) < 0)
		return -EINVAL;
	*ret_id = (uint32_t)number;
	return 0;
}

static int parse_user(const char *text, uint32_t *ret_id)
{
	char entry[ENTRY_BYTES];
	struct passwd user;
	struct passwd *found = NULL;
	(void)getpwnam_r(text, &user, entry, sizeof(entry), &found); /* found says it */
	if (found == NULL)
		return parse_number(text, ret_id);
	*ret_id = found->pw_uid;
	return 0;
}

static int parse_group(const char *text, uint32_t *ret_id)
{
	char entry[ENTRY_BYTES];
	struct group group;
	struct group *found = NULL;
	(void)getgrnam_r(text, &group, entry, sizeof(entry), &found); /* found says it */
	if (found == NULL)
		return parse_number(text, ret_id);
	*ret_id = found->gr_gid;
	return 0;
}

/* OWNER, OWNER:GROUP or :GROUP, which is cut at the colon. */
static int parse_owner(char *text, struct wanted *wanted)
{
	char *group = strchr(text, ':');
	if (group != NULL)
		*group++ = '\0';
	if (text[0] != '\0' && parse_user(text, &wanted->attrs.uid) < 0)
		return -EINVAL;
	if (group != NULL && parse_group(group, &wanted->attrs.gid) < 0)
		return -EINVAL;
	if (text[0] != '\0')
		wanted->mask |= LAPIS_SET_UID;
	if (group != NULL)
		wanted->mask |= LAPIS_SET_GID;
	return wanted->mask == 0 ? -EINVAL : 0;
}

static int run_chown(const struct lpi_cli_command *self, int argc, char **argv)
{
	struct wanted wanted = {.mask = 0};
	struct lpi_args args;
	int status = lpi_args_parse(self, argc, argv, &form, &args);
	if (status >= 0)
		return status;
	wanted.is_recursive = args.has['r'];
	char *text = strdup(args.names[0]);
	int err = text == NULL ? -ENOMEM : parse_owner(text, &wanted);
	free(text);
	if (err == -ENOMEM)
		return lpi_cli_fail("chown", "out of memory");
	if (err < 0)
		return lpi_cli_usage(
			self,
			"%s is not OWNER, OWNER:GROUP or :GROUP with names of this machine "
			"or numbers up to %u",
			args.names[0], NOBODY - 1);
	status = check_names(args.names + 1, args.cnt - 1);
	return status != LP_EXIT_OK ? status : set_all(&wanted, args.names + 1, args.cnt - 1);
}

const struct lpi_cli_command lpi_remote_chown = {
	.name = "chown",
	.synopsis = "[-r] OWNER[:GROUP]|:GROUP KEY ...",
	.summary = "Set the owner of objects",
	.help = "  -r, --recursive  also everything in directories\n"
		"  --help           this text\n"
		"\n"
		"OWNER and GROUP are names that this machine knows, or numbers. The KEY / is the\n"
		"root directory of the store. Only root may do this, through a unix socket. A "
		"file\n"
		"loses set-user-ID and set-group-ID.\n",
	.run = run_chown,
};

/* --- chmod ------------------------------------------------------------------------------------ */

static int run_chmod(const struct lpi_cli_command *self, int argc, char **argv)
{
	struct wanted wanted = {.mask = LAPIS_SET_MODE};
	struct lpi_args args;
	char *end = NULL;
	int status = lpi_args_parse(self, argc, argv, &form, &args);
	if (status >= 0)
		return status;
	wanted.is_recursive = args.has['r'];
	const char *text = args.names[0];
	unsigned long mode = strtoul(text, &end, 8);
	if (strspn(text, "01234567") != strlen(text) || end == text || mode > 07777)
		return lpi_cli_usage(self, "%s is not a mode: give octal digits, 7777 at most",
				     text);
	wanted.attrs.mode = (uint16_t)mode;
	status = check_names(args.names + 1, args.cnt - 1);
	return status != LP_EXIT_OK ? status : set_all(&wanted, args.names + 1, args.cnt - 1);
}

const struct lpi_cli_command lpi_remote_chmod = {
	.name = "chmod",
	.synopsis = "[-r] MODE KEY ...",
	.summary = "Set the mode of objects, which decides who may use them on a mount",
	.help = "  -r, --recursive  also everything in directories\n"
		"  --help           this text\n"
		"\n"
		"MODE is octal, such as 0640. The KEY / is the root directory of the store. Only\n"
		"root may set set-user-ID and set-group-ID on another user's object. An access "
		"list\n"
		"is changed to match the mode.\n",
	.run = run_chmod,
};
