/* SPDX-License-Identifier: Apache-2.0 */
/* Notices: tell a mount's kernel of changes by others, before the answer (rule M2).
 *
 * Threads: the shard's where the operation was submitted.
 * Blocking: none.
 * Memory: the pool of notices grows when more than LPI_NOTICES_MAX are at work. Beyond that number
 *   only operations of the mount begin, if they might need one: a notice may wait for them.
 * Errors: none. Without memory the kernel is not told of a change, which is counted.
 * Limits: an operation is answered after LPI_NOTICE_LIMIT_NS in any case; the telling goes on.
 *
 * How it works:
 *   1. When the outcome of a change is known, lpi_notice_pact() or lpi_notice_txn() reads the
 *      changes themselves: entries and their directories, inodes, ranges of data. No operation can
 *      forget to report one.
 *   2. state/kernel_holds.h says whether a kernel may remember them. If none may, as is usual,
 *      there is no notice.
 *   3. The operation gives back its locks and its job. The kernel may wait for a directory's lock
 *      while the holder of that lock waits for the operation.
 *   4. The watcher (fuse) tells the kernel, on a thread of its own (rule M3). Then the operation is
 *      answered.
 *   5. The kernel may not know a name. Then nothing is left to do: it enters the result of a lookup
 *      under the directory's lock, which the notice takes, too.
 *   6. The kernel may not know an inode that is held. Then an answer with older attributes may be
 *      on its way. The inode's shard is asked whether it is still held; if so the kernel is told
 *      again, a millisecond later.
 *   7. If the kernel knows the inode, it takes no attributes that were asked for before the notice.
 *
 * A change of the mount itself makes no notice, except for one case of a rename. The kernel moves
 * what it remembers under the old name. If another client has changed that name, and the kernel has
 * not been told yet, it moves the wrong entry and would remember it under the new name. Then it is
 * told of the new name, behind the rename; the other client is answered when that is told, too.
 *
 * An operation that changes much (a path of many directories) has several notices. A notice in each
 * job was rejected: with all jobs waiting for the kernel, the mount would have none to go on with.
 */
#ifndef LP_NAMESPACE_CHANGE_NOTICES_H
#define LP_NAMESPACE_CHANGE_NOTICES_H

#include <stdatomic.h>

#include "namespace/ns.h"

#define LPI_NOTICES_MAX       256u
#define LPI_NOTICES_LIMIT_MAX 16384u /* of the pool */
#define LPI_NOTICE_LIMIT_NS   (2 * LP_NS_PER_S)
#define LPI_UNTOLD_NAMES      4096u

/* Changes that a mount's kernel has not been told of yet, of all shards. */
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

/* Called when the outcome of the job's change is known: adds its changes to job->notice. */
void lpi_notice_pact(struct lpi_job *job);
/* The same of an LP_NS_STORE, added to *notice. */
void lpi_notice_txn(struct lp_ns *ns, const struct lp_ns_op *op, int result,
		    struct lpi_notice **notice);
/* Tells the kernel of this notice and the ones chained to it, then answers the operation. A mount's
 * own operation is answered at once. */
void lpi_notice_tell(struct lpi_notice *first, struct lp_ns_op *op, int result);

#endif
