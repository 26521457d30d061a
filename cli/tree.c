/* SPDX-License-Identifier: Apache-2.0 */
/* One directory after the other: those that are found are put on the list, and the walk is over
 * when its end is reached. So there is no recursion, however deep the tree is. */
#include "cli/tree.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cli/remote.h"

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
	if (len == 0 || len > 255 || is_dots || memchr(name, '/', len) != NULL ||
	    memchr(name, '\0', len) != NULL) {
		(void)lpi_cli_fail("the daemon", "it lists a name that cannot be one");
		return -EPROTO;
	}
	memcpy(ret_name, name, len);
	ret_name[len] = '\0';
	return 0;
}

struct walk {
	lpi_tree_fn *visit;
	void *arg;
	struct lpi_cli_texts *dirs;
};

static int visit_item(const struct walk *walk, const char *dir, const struct lapis_item *item)
{
	char name[256];
	char key[LPI_KEY_MAX + 1];
	if (lpi_item_name(item, name) < 0)
		return -EPROTO;
	if (lpi_key_join(dir, name, key) < 0)
		return -ENAMETOOLONG;
	if (item->type == LAPIS_DIR)
		return lpi_cli_texts_add(walk->dirs, key);
	return walk->visit(walk->arg, key, &item->attrs);
}

static int walk_dir(const struct walk *walk, const char *dir)
{
	struct lapis_list *list = NULL;
	struct lapis_item item;
	int err = lapis_opendir(lpi_remote(), dir, LAPIS_ATTRS, &list);
	while (err >= 0 && (err = lapis_list_next(list, &item)) > 0) {
		int r = visit_item(walk, dir, &item);
		if (r < 0) {
			lapis_list_close(list);
			return r;
		}
	}
	lapis_list_close(list);
	/* It may have gone meanwhile. */
	if (err < 0 && err != -ENOENT)
		(void)lpi_remote_fail(dir, err);
	return err == -ENOENT ? 0 : err;
}

int lpi_tree_walk(const char *key, lpi_tree_fn *visit, void *arg, struct lpi_cli_texts *ret_dirs)
{
	const struct walk walk = {visit, arg, ret_dirs};
	size_t at = ret_dirs->cnt;
	int err = lpi_remote() == NULL ? -ENOTCONN : lpi_cli_texts_add(ret_dirs, key);
	for (; err == 0 && at < ret_dirs->cnt; at++)
		err = walk_dir(&walk, ret_dirs->texts[at]);
	return err;
}
