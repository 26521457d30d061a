/* SPDX-License-Identifier: Apache-2.0 */
/* Answers of operations, and the count of operations under way on a shard.
 *
 * Threads: the shard's.
 * Blocking, memory: none.
 */
#ifndef LP_NAMESPACE_CHANGE_ANSWER_H
#define LP_NAMESPACE_CHANGE_ANSWER_H

#include "namespace/ns.h"

struct lpi_job;
struct lpi_pact;

/* Functions of the rooms above that this room calls; set when a namespace is opened. */
struct lpi_ns_above {
	/* A change over several shards cannot be brought to its end before the next opening. */
	void (*pact_is_stuck)(struct lp_ns *ns, struct lpi_pact *pact);
	/* An operation or its follow-up work has ended while the namespace stops: perhaps it was
	 * the last. */
	void (*look_stopped)(struct lp_ns *ns);
	/* Ends a job that fails while it walks a path, or that must take a name back. */
	void (*fail_path)(struct lpi_job *job, int result);
	void (*fail_named)(struct lpi_job *job, int result);
};

/* Answers the operation; its job may go on. */
void lpi_ns_answer(struct lp_ns *ns, struct lp_ns_op *op, int result);
/* An item that counted in under_way has ended. */
void lpi_ns_left(struct lp_ns *ns);
/* The operation of a stuck change has ended: a stop does not wait for the change any more. */
void lpi_ns_stranded(struct lp_ns *ns);

/* True if operations wait for a job or a call, or for fewer notices. */
bool lpi_ns_has_queued(const struct lp_ns *ns);
void lpi_ns_wake_queue(struct lp_ns *ns);
/* True if all jobs belong to pacts that are never over: none is given back. */
bool lpi_ns_has_lost_jobs(const struct lp_ns *ns);

/* True if a transaction that needs a durable answer was refused because of state that may not be
 * durable (P3). */
bool lpi_txn_rests_on_seen(const struct lp_store_op *op, int result);

#endif
