/* SPDX-License-Identifier: Apache-2.0 */
/* One directory after the other: those that are found are put on the list, and the walk is over
 * when its end is reached. So there is no recursion, however deep the tree is. */
#include "cli/remote/tree.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cli/remote/remote.h"

int lpi_cli_texts_add(struct lpi_cli_texts *list, const char *text)
{
	if (list->cnt == list->room) {
		size_t room = LP_MAX(list->room * 2, (size_t)64);
		char **texts = realloc(list->texts, room * sizeof(*texts));
		if (texts == NULL) {
			(void)lpi_cli_fail(text, "out of memory");
			return -ENOMEM;
		}
		list->texts = texts;
		list->room = room;
	}
	list->texts[list->cnt] = strdup(text);
	if (list->texts[list->cnt] == NULL) {
		(void)lpi_cli_fail(text, "out of memory");
		return -ENOMEM;
	}
	list->cnt++;
	return 0;
}

void lpi_cli_texts_fini(struct lpi_cli_texts *list)
{
	for (size_t i = 0; i < list->cnt; i++)
		free(list->texts[i]);
	free(list->texts);
	*list = (struct lpi_cli_texts){.texts = NULL};
}

int lpi_item_name(const struct lapis_item *item, char *ret_name)
{
	const char *name = item->name;
	size_t len = item->name_bytes;
	bool is_dots = (len == 1 && name[0] == '.') || (len == 2 && memcmp(name, "..", 2) == 0);
	if (len == 0 || len > LPI_NAME_MAX || is_dots || memchr(name, '/', len) != NULL ||
	    memchr(name, '\0', len) != NULL) {
		(void)lpi_cli_fail(
			"the daemon",
			"it sent an invalid name in a list (update or check the daemon)");
		return -EPROTO;
	}
	memcpy(ret_name, name, len);
	ret_name[len] = '\0';
	return 0;
}

/* --- One directory ---------------------------------------------------------------------------- */

int lpi_tree_open(const char *key, uint32_t flags, struct lpi_tree_dir *ret_dir)
{
	char prefix[LPI_KEY_MAX + 2];
	struct lapis *lapis = lpi_remote();
	*ret_dir = (struct lpi_tree_dir){.key = key, .skip = strlen(key) + 1};
	if (lapis == NULL)
		return -ENOTCONN;
	ret_dir->is_deep = lpi_key_is_deep(key);
	(void)snprintf(prefix, sizeof(prefix), "%s/", key);
	int err = ret_dir->is_deep ? lapis_opendir(lapis, key, flags, &ret_dir->list)
				   : lapis_list_open(lapis, prefix, NULL, LAPIS_DELIMIT | flags,
						     &ret_dir->list);
	if (err < 0)
		(void)lpi_remote_fail(key, err);
	return err;
}

void lpi_tree_close(struct lpi_tree_dir *dir)
{
	lapis_list_close(dir->list);
	dir->list = NULL;
}

/* A list of nothing says the same of what is empty, what is not there and what is a file. */
static int check_empty(const struct lpi_tree_dir *dir)
{
	struct lapis_attrs attrs;
	int err = lapis_stat(lpi_remote(), dir->key, &attrs);
	if (err == -ENOENT || (err == 0 && attrs.type == LAPIS_DIR))
		return err;
	if (err < 0)
		(void)lpi_remote_fail(dir->key, err);
	else
		(void)lpi_remote_fail_text(dir->key, 0, "a file, no directory");
	return err < 0 ? err : -ENOTDIR;
}

/* Of "KEY/NAME", or "KEY/NAME/" of a directory, the name. */
static int cut_name(const struct lpi_tree_dir *dir, const struct lapis_item *item, char *ret_name)
{
	struct lapis_item name = {.name = "", .name_bytes = 0};
	bool is_dir =
		item->type == 0 && item->name_bytes > 0 && item->name[item->name_bytes - 1] == '/';
	if (item->name_bytes > dir->skip && memcmp(item->name, dir->key, dir->skip - 1) == 0) {
		name.name = item->name + dir->skip;
		name.name_bytes = item->name_bytes - (uint32_t)dir->skip - (is_dir ? 1 : 0);
	}
	return lpi_item_name(&name, ret_name);
}

int lpi_tree_next(struct lpi_tree_dir *dir, char *ret_name, struct lapis_attrs *ret_attrs)
{
	struct lapis_item item;
	int more = lapis_list_next(dir->list, &item);
	if (more < 0 && more != -ENOENT)
		(void)lpi_remote_fail(dir->key, more);
	if (more == 0 && !dir->has_any)
		return check_empty(dir);
	if (more <= 0)
		return more;
	dir->has_any = true;
	*ret_attrs = item.attrs;
	ret_attrs->type = item.type != 0 ? (uint8_t)item.type : LAPIS_DIR;
	more = dir->is_deep ? lpi_item_name(&item, ret_name) : cut_name(dir, &item, ret_name);
	return more < 0 ? more : 1;
}

/* --- All that is below ------------------------------------------------------------------------ */

struct walk {
	uint32_t flags;
	lpi_tree_fn *visit;
	void *arg;
	struct lpi_cli_texts *dirs;
};

static int visit_one(const struct walk *walk, const char *dir, const char *name,
		     const struct lapis_attrs *attrs)
{
	char key[LPI_KEY_MAX + 1];
	if (lpi_key_join(dir, name, key) < 0)
		return -ENAMETOOLONG;
	if (attrs->type == LAPIS_DIR)
		return lpi_cli_texts_add(walk->dirs, key);
	return walk->visit(walk->arg, key, attrs);
}

static int walk_dir(const struct walk *walk, const char *key)
{
	struct lpi_tree_dir dir;
	struct lapis_attrs attrs;
	char name[LPI_NAME_MAX + 1];
	int err = lpi_tree_open(key, walk->flags, &dir);
	while (err >= 0 && (err = lpi_tree_next(&dir, name, &attrs)) > 0)
		err = visit_one(walk, key, name, &attrs);
	lpi_tree_close(&dir);
	/* It may have gone meanwhile. */
	return err == -ENOENT ? 0 : err;
}

int lpi_tree_walk(const char *key, uint32_t flags, lpi_tree_fn *visit, void *arg,
		  struct lpi_cli_texts *ret_dirs)
{
	const struct walk walk = {flags, visit, arg, ret_dirs};
	size_t at = ret_dirs->cnt;
	int err = lpi_remote() == NULL ? -ENOTCONN : lpi_cli_texts_add(ret_dirs, key);
	for (; err == 0 && at < ret_dirs->cnt; at++)
		err = walk_dir(&walk, ret_dirs->texts[at]);
	return err;
}
