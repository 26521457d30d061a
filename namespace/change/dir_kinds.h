/* SPDX-License-Identifier: Apache-2.0 */
/* Kinds of directories that are known here: spread or not, and whether they are there.
 *
 * Threads: the shard's.
 * Blocking: none.
 * Memory: a table of fixed size. A place holds the directory that took it first.
 */
#ifndef LP_NAMESPACE_CHANGE_DIR_KINDS_H
#define LP_NAMESPACE_CHANGE_DIR_KINDS_H

#include "store/record/types.h"

struct lp_ns;

/* The properties of a directory that never change. */
struct lpi_dir_kind {
	struct lp_ino ino; /* nr 0: nothing is here */
	bool is_spread;
	bool is_alive; /* no constant: see lpi_dir_is_alive() */
};

/* True, and whether the directory is spread, if that is known here. */
bool lpi_dir_kind_find(const struct lp_ns *ns, struct lp_ino dir, bool *ret_is_spread);
void lpi_dir_kind_learn(struct lp_ns *ns, struct lp_ino dir, bool is_spread);

/* Whether a directory is known to be there. An operation asks and tells while it holds a name of
 * the directory *on this shard*. No message is needed for that: a removal of the directory first
 * holds its whole fragment on every shard. Then no name of it is held here, and the knowledge is
 * forgotten (lpi_dir_alive_forget()). An operation that gets a name after that asks the inode's
 * shard, and waits there for the outcome. */
bool lpi_dir_is_alive(const struct lp_ns *ns, struct lp_ino dir);
void lpi_dir_alive_learn(struct lp_ns *ns, struct lp_ino dir);
void lpi_dir_alive_forget(struct lp_ns *ns, struct lp_ino dir);

#endif
