/* SPDX-License-Identifier: Apache-2.0 */
#include "namespace/change/answer.h"

#include "namespace/change/ns_state.h"

bool lpi_txn_rests_on_seen(const struct lp_store_op *op, int result)
{
	return op->opcode == LP_STORE_TXN && op->txn.ack == LP_ACK_DURABLE && result < 0 &&
	       result != -EIO && result != -EROFS;
}

/* All jobs belong to pacts that are never over (lpi_ns_stranded()): none is given back. */
bool lpi_ns_has_lost_jobs(const struct lp_ns *ns)
{
	return ns->stranded_cnt >= ns->options.ops_max;
}

bool lpi_ns_has_queued(const struct lp_ns *ns)
{
	return !lpi_ns_op_list_is_empty(&ns->queue) || !lpi_ns_op_list_is_empty(&ns->notice_queue);
}

void lpi_ns_wake_queue(struct lp_ns *ns)
{
	if (lpi_ns_has_queued(ns) && !lp_task_is_queued(&ns->queue_task))
		lp_task_queue(ns->options.reactor, &ns->queue_task);
}

void lpi_ns_answer(struct lp_ns *ns, struct lp_ns_op *op, int result)
{
	ns->stats.face.ops[op->opcode]++;
	if (result < 0)
		ns->stats.face.errors[op->opcode]++;
	op->result = result;
	if (op->opcode == LP_NS_STORE)
		op->store.op.result = result;
	op->complete(op);
}

void lpi_ns_stranded(struct lp_ns *ns)
{
	ns->stranded_cnt++;
	if (lpi_ns_has_lost_jobs(ns))
		lpi_ns_wake_queue(ns);
	if (ns->state == LPI_NS_STOPPING)
		ns->above->look_stopped(ns);
}

void lpi_ns_left(struct lp_ns *ns)
{
	LP_ASSERT(ns->under_way > 0);
	ns->under_way--;
	lpi_ns_wake_queue(ns);
	if (ns->state == LPI_NS_STOPPING)
		ns->above->look_stopped(ns);
}
