/* SPDX-License-Identifier: Apache-2.0 */
/* Some orphans at a time, each by a transaction that removes the inode, which takes its `U` record
 * along. Nobody waits for these, so they are only ordered: they go with whatever is committed next,
 * and what a crash loses the next start does again. Large ones take the store longer than this
 * (rule S6). What fails stays for the next start. */
#include <errno.h>
#include <stdlib.h>

#include "namespace/ns_impl.h"

#define AT_ONCE 16u

struct removal {
	struct lpi_orphans *orphans;
	struct lp_ino ino; /* nr 0: idle */
	struct lpi_call call;
	struct lp_store_op op;
	struct lp_change change;
};

struct lpi_orphans {
	struct lp_ns *ns;
	struct removal removals[AT_ONCE];
};

int lpi_orphans_new(struct lp_ns *ns, struct lpi_orphans **ret_orphans)
{
	struct lpi_orphans *orphans = calloc(1, sizeof(*orphans));
	if (orphans == NULL)
		return -ENOMEM;
	orphans->ns = ns;
	for (uint32_t i = 0; i < AT_ONCE; i++)
		orphans->removals[i].orphans = orphans;
	*ret_orphans = orphans;
	return 0;
}

void lpi_orphans_free(struct lpi_orphans *orphans)
{
	free(orphans);
}

static bool begin(struct removal *removal)
{
	struct lp_ns *ns = removal->orphans->ns;
	removal->ino = lpi_opens_take_dead(ns->opens);
	if (removal->ino.nr == 0)
		return false;
	ns->under_way++;
	removal->change = (struct lp_change){.type = LP_CHANGE_REMOVE, .ino = removal->ino};
	removal->op = (struct lp_store_op){
		.opcode = LP_STORE_TXN,
		.txn = {.changes = &removal->change, .change_cnt = 1, .ack = LP_ACK_ORDERED}};
	lpi_call_store(ns, ns->options.shard_idx, &removal->call, &removal->op, false);
	return true;
}

static void removed(struct lpi_call *call)
{
	struct removal *removal = LP_CONTAINER_OF(call, struct removal, call);
	struct lp_ns *ns = removal->orphans->ns;
	lpi_opens_forget_dead(ns->opens, removal->ino);
	(void)begin(removal); /* false: it is idle now */
	lpi_ns_left(ns);
}

void lpi_orphans_collect(void *arg)
{
	struct lp_ns *ns = arg;
	for (uint32_t i = 0; i < AT_ONCE; i++) {
		struct removal *removal = &ns->orphans->removals[i];
		removal->call.done = removed;
		if (removal->ino.nr == 0 && !begin(removal))
			return;
	}
}
