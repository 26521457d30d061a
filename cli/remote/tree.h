/* SPDX-License-Identifier: Apache-2.0 */
/* A walk through all that is below a directory of the store, and growing lists of texts.
 *
 * Threads: the main thread only. Blocking: what asks the daemon. Errors are printed.
 */
#ifndef LP_CLI_REMOTE_TREE_H
#define LP_CLI_REMOTE_TREE_H

#include "cli/cli.h"
#include "client/lapis.h"

#define LPI_NAME_MAX 255 /* bytes of a name */

struct lpi_cli_texts {
	char **texts;
	size_t cnt;
	size_t room;
};

/* -ENOMEM, printed. */
int lpi_cli_texts_add(struct lpi_cli_texts *list, const char *text);
void lpi_cli_texts_fini(struct lpi_cli_texts *list);

/* A name from the daemon, checked and as a C string: what is in it could otherwise lead out of the
 * directory it is in. -EPROTO, printed. */
int lpi_item_name(const struct lapis_item *item, char *ret_name);

/* What is in a directory of the store, in any order. By list, not by readdir: that walks through
 * all of a directory for each reply, which for one of a hundred thousand names takes minutes. */
struct lpi_tree_dir {
	struct lapis_list *list;
	const char *key; /* the caller's */
	size_t skip;     /* of what is listed, to its name */
	bool has_any;
	bool is_deep; /* what may be no key is read, for it is not listed */
};

/* flags: LAPIS_ATTRS, or 0: of what is in it only the type is known. To be closed also when this
 * fails. */
int lpi_tree_open(const char *key, uint32_t flags, struct lpi_tree_dir *ret_dir);
void lpi_tree_close(struct lpi_tree_dir *dir);
/* 1: another one; of directories only the type is known. 0: that was all. -ENOENT: there is no such
 * directory; other errors have been printed. */
int lpi_tree_next(struct lpi_tree_dir *dir, char *ret_name, struct lapis_attrs *ret_attrs);

/* What is not a directory; negative ends the walk, and has been printed. */
typedef int lpi_tree_fn(void *arg, const char *key, const struct lapis_attrs *attrs);

/* flags: as above: attributes cost the daemon most of a list. ret_dirs: each directory, the first
 * one included, before what is in it; the caller's, also when this fails. */
int lpi_tree_walk(const char *key, uint32_t flags, lpi_tree_fn *visit, void *arg,
		  struct lpi_cli_texts *ret_dirs);

/* Removes a directory with all that is in it; as an object would go, with directories above it that
 * a put made and that are empty then, or alone. The exit status. */
int lpi_tree_remove(const char *key, bool alone);

#endif
