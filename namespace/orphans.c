/* SPDX-License-Identifier: Apache-2.0 */
/* One orphan after the other: a transaction that removes the inode and its `U` record. Large ones
 * take the store longer than this (rule S6). What fails stays for the next start. */
#include <errno.h>
#include <stdlib.h>

#include "namespace/ns_impl.h"

struct lpi_orphans {
	struct lp_ns *ns;
	struct lp_ino ino; /* being removed; nr 0: none */
	struct lpi_call call;
	struct lp_store_op op;
	struct lp_change changes[2];
	uint8_t key[1 + 8];
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

void lpi_orphan_list(struct lp_ino ino, uint8_t ret_key[1 + 8], struct lp_change ret_changes[2])
{
	struct lp_key key;
	lp_key_of_ino(&key, LP_KEY_SPACE_UNFINISHED, ino);
	memcpy(ret_key, key.bytes, key.len);
	ret_changes[0] = (struct lp_change){.type = LP_CHANGE_REMOVE, .ino = ino};
	ret_changes[1] = (struct lp_change){.type = LP_CHANGE_RECORD,
					    .named = {.name = {ret_key, (uint32_t)key.len}}};
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
	lpi_orphan_list(orphans->ino, orphans->key, orphans->changes);
	orphans->op = (struct lp_store_op){
		.opcode = LP_STORE_TXN, .txn = {.changes = orphans->changes, .change_cnt = 2}};
	orphans->call.done = removed;
	lpi_call_store(ns, ns->options.shard_idx, &orphans->call, &orphans->op, false);
}
