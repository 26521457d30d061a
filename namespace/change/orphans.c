/* SPDX-License-Identifier: Apache-2.0 */
/* A transaction for each orphan removes the inode and its `U` record. No operation waits for it, so
 * it is only ordered. An orphan that was closed is removed at once. A kernel forgets each removed
 * file by itself, and no client can ask for such a file any more. These orphans are gathered for up
 * to 20 ms and share one write of the log, so there are at most some 50 such writes in a second. A
 * large batch does not wait for more, and none waits while an operation finds no space (freeing.h).
 * Large files take the store longer than this (rule S6). The next start removes orphans whose
 * removal failed or was lost in a crash. */
#include <errno.h>
#include <stdlib.h>

#include "namespace/change/ns_state.h"

#define AT_ONCE   64u
#define GATHER_NS (20 * LP_NS_PER_MS)

struct removal {
	struct lpi_orphans *orphans;
	struct lp_ino ino; /* nr 0: idle */
	struct lpi_call call;
	struct lp_store_op op;
	struct lp_change change;
};

struct lpi_orphans {
	struct lp_ns *ns;
	struct lp_timer timer; /* armed: something under way of the ns's */
	uint32_t waiting;      /* to be taken */
	uint32_t going;        /* these, and those that are being removed */
	struct removal removals[AT_ONCE];
};

static void removed(struct lpi_call *call);

static void begin(struct removal *removal)
{
	struct lp_ns *ns = removal->orphans->ns;
	LP_ASSERT(removal->ino.nr == 0 && removal->orphans->waiting > 0);
	removal->orphans->waiting--;
	removal->ino = lpi_opens_take_dead(ns->opens);
	LP_ASSERT(removal->ino.nr != 0);
	ns->under_way++;
	removal->change = (struct lp_change){.type = LP_CHANGE_REMOVE, .ino = removal->ino};
	removal->op = (struct lp_store_op){
		.opcode = LP_STORE_TXN,
		.txn = {.changes = &removal->change, .change_cnt = 1, .ack = LP_ACK_ORDERED}};
	removal->call.done = removed;
	lpi_call_store(ns, ns->options.shard_idx, &removal->call, &removal->op, false);
}

static void begin_all(struct lpi_orphans *orphans)
{
	for (uint32_t i = 0; i < AT_ONCE && orphans->waiting > 0; i++) {
		if (orphans->removals[i].ino.nr == 0)
			begin(&orphans->removals[i]);
	}
}

static void gathered(struct lp_timer *timer)
{
	struct lpi_orphans *orphans = LP_CONTAINER_OF(timer, struct lpi_orphans, timer);
	begin_all(orphans);
	lpi_ns_left(orphans->ns);
}

static void gather(struct lpi_orphans *orphans)
{
	struct lp_reactor *reactor = orphans->ns->options.reactor;
	if (orphans->waiting == 0 || lp_timer_is_armed(&orphans->timer))
		return;
	orphans->ns->under_way++;
	lp_timer_start(reactor, &orphans->timer, lp_reactor_now_ns(reactor) + GATHER_NS);
}

static void removed(struct lpi_call *call)
{
	struct removal *removal = LP_CONTAINER_OF(call, struct removal, call);
	struct lpi_orphans *orphans = removal->orphans;
	lpi_opens_forget_dead(orphans->ns->opens, removal->ino);
	removal->ino.nr = 0;
	orphans->going--;
	if (orphans->waiting >= AT_ONCE)
		begin(removal);
	else
		gather(orphans);
	lpi_ns_left(orphans->ns);
}

void lpi_orphans_told(void *arg, enum lpi_orphan_event event)
{
	struct lp_ns *ns = arg;
	struct lpi_orphans *orphans = ns->orphans;
	if (event == LPI_ORPHAN_HELD) {
		lpi_freeing_held(ns);
		return;
	}
	orphans->waiting++;
	orphans->going++;
	lpi_freeing_begin(ns);
	if (event == LPI_ORPHAN_CLOSED || orphans->waiting >= AT_ONCE)
		begin_all(orphans);
	else
		gather(orphans);
}

void lpi_orphans_hurry(struct lp_ns *ns)
{
	begin_all(ns->orphans);
}

bool lpi_orphans_are_going(const struct lpi_orphans *orphans)
{
	return orphans->going > 0;
}

int lpi_orphans_new(struct lp_ns *ns, struct lpi_orphans **ret_orphans)
{
	struct lpi_orphans *orphans = calloc(1, sizeof(*orphans));
	if (orphans == NULL)
		return -ENOMEM;
	orphans->ns = ns;
	orphans->timer.fire = gathered;
	for (uint32_t i = 0; i < AT_ONCE; i++)
		orphans->removals[i].orphans = orphans;
	*ret_orphans = orphans;
	return 0;
}

void lpi_orphans_free(struct lpi_orphans *orphans)
{
	if (orphans != NULL)
		lp_timer_stop(orphans->ns->options.reactor, &orphans->timer);
	free(orphans);
}
