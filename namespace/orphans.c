/* SPDX-License-Identifier: Apache-2.0 */
/* One orphan after the other: a transaction that removes the inode, which takes its `U` record
 * along. Large ones take the store longer than this (rule S6). What fails stays for the next start.
 */
#include <errno.h>
#include <stdlib.h>

#include "namespace/ns_impl.h"

struct lpi_orphans {
	struct lp_ns *ns;
	struct lp_ino ino; /* being removed; nr 0: none */
	struct lpi_call call;
	struct lp_store_op op;
	struct lp_change change;
};

int lpi_orphans_new(struct lpi_orphans **ret_orphans)
{
	struct lpi_orphans *orphans = calloc(1, sizeof(*orphans));
	if (orphans == NULL)
		return -ENOMEM;
	*ret_orphans = orphans;
	return 0;
}

void lpi_orphans_free(struct lpi_orphans *orphans)
{
	free(orphans);
}

static void removed(struct lpi_call *call)
{
	struct lpi_orphans *orphans = LP_CONTAINER_OF(call, struct lpi_orphans, call);
	struct lp_ns *ns = orphans->ns;
	lpi_opens_forget_dead(ns->opens, orphans->ino);
	orphans->ino.nr = 0;
	lpi_orphans_collect(ns);
	lpi_ns_left(ns);
}

void lpi_orphans_collect(void *arg)
{
	struct lp_ns *ns = arg;
	struct lpi_orphans *orphans = ns->orphans;
	if (orphans->ino.nr != 0)
		return;
	orphans->ino = lpi_opens_dead(ns->opens);
	if (orphans->ino.nr == 0)
		return;
	ns->under_way++;
	orphans->ns = ns;
	orphans->change = (struct lp_change){.type = LP_CHANGE_REMOVE, .ino = orphans->ino};
	orphans->op = (struct lp_store_op){.opcode = LP_STORE_TXN,
					   .txn = {.changes = &orphans->change, .change_cnt = 1}};
	orphans->call.done = removed;
	lpi_call_store(ns, ns->options.shard_idx, &orphans->call, &orphans->op, false);
}
