/* SPDX-License-Identifier: Apache-2.0 */
/* What an operation has changed that a mount's kernel may remember, and the wait until it was told
 * (rule M2).
 *
 *   job.c, ns.c   know what was changed, of whatever operation: lpi_notice_pact(), lpi_notice_txn()
 *   state/kernel_holds.h        knows who may remember it: most of the time nobody, and then there
 * is no notice the watcher   (fuse) tells the kernel, on a thread of its own (rule M3) told what
 * the kernel did not know is looked at again: it may be on its way there over          the
 * operation is answered
 *
 * A rename through the mount is told only in one case. The kernel moves what it remembers under the
 * old name. If somebody else has changed that name and the kernel has not been told yet, it moves
 * the wrong thing, and would go on to remember it under the new name. So it is told of the new name
 * then, behind the rename; and whoever changed the old name is answered when that is told, too.
 *
 * When the kernel is told, the operation has given back its locks and its job: what the kernel
 * waits for meanwhile never waits for the operation. After LPI_NOTICE_LIMIT_NS it is answered all
 * the same, and the telling goes on.
 *
 * Threads: the shard's where the operation was submitted. Blocking: none. Allocation: the pool of
 * notices grows when more are at work than LPI_NOTICES_MAX, beyond which no operation that might
 * need one begins. Without memory what has changed is not told, which is counted.
 */
#ifndef LP_NAMESPACE_CHANGE_NOTICES_H
#define LP_NAMESPACE_CHANGE_NOTICES_H

#include <stdatomic.h>

#include "namespace/ns.h"

#define LPI_NOTICES_MAX       256u
#define LPI_NOTICES_LIMIT_MAX 16384u /* of the pool */
#define LPI_NOTICE_LIMIT_NS   (2 * LP_NS_PER_S)
#define LPI_UNTOLD_NAMES      4096u

/* What a mount's kernel has not been told yet, of all shards. */
struct lpi_untold {
	_Atomic uint32_t names[LPI_UNTOLD_NAMES]; /* by hash: how many changes of the name */
	_Atomic uint32_t moves;                   /* renames that it has to be told of */
};

struct lpi_job;
struct lpi_notice;
struct lp_pool;

int lpi_notices_new(struct lp_ns *ns) LP_MUST_CHECK;
void lpi_notices_free(struct lp_ns *ns);
/* Whether the operation must wait until there are fewer. */
bool lpi_notice_must_wait(const struct lp_ns *ns, const struct lp_ns_op *op);

/* The outcome of the job's change is known: what it has changed is added to job->notice. */
void lpi_notice_pact(struct lpi_job *job);
/* The same of an LP_NS_STORE, added to *notice. */
void lpi_notice_txn(struct lp_ns *ns, const struct lp_ns_op *op, int result,
		    struct lpi_notice **notice);
/* Tells it, and what is behind it; then answers the operation. A mount's own is answered at once.
 */
void lpi_notice_tell(struct lpi_notice *first, struct lp_ns_op *op, int result);

#endif
