/* SPDX-License-Identifier: Apache-2.0 */
/* Calls between shards: a function that runs on the thread of any shard, and its answer.
 *
 * Threads: start and done() on the caller's, run() and end on the callee's.
 * Blocking: none.
 * Memory: none. A store call on another shard that carries data takes a struct lpi_transfer out of
 *   a pool there, or waits for one.
 * Ownership: a call is a struct of its caller's. From lpi_call_start() until done() begins, it and
 *   the memory that it points to are the callee's.
 *
 * How it works:
 *   1. run() is called on the shard's thread. It ends, at once or later, with lpi_call_end() there.
 *   2. done() is called on the caller's thread, never from inside lpi_call_start(). On the same
 *      shard it all goes the same way, without messages.
 *   3. Store operations are calls as well: lpi_call_store(). Buffers belong to threads. So the data
 *      of a write is copied into buffers of the other shard, and the data of a read into buffers of
 *      this one. On the same shard nothing is copied. When buffers are short the call waits for
 *      some.
 */
#ifndef LP_NAMESPACE_CHANGE_SHARD_CALL_H
#define LP_NAMESPACE_CHANGE_SHARD_CALL_H

#include "namespace/change/freeing.h"
#include "namespace/state/locks.h"
#include "store/store.h"

struct lp_ns;

#define LPI_TRANSFER_SEGS 12u /* buffers: seven, or more where large ones are out */

/* A write from another thread: its payload in buffers of this one. */
struct lpi_transfer {
	const struct lp_change *original;
	uint32_t seg_cnt;
	struct lp_seg segs[LPI_TRANSFER_SEGS];
	struct lp_change changes[LP_STORE_CHANGES_MAX];
};

/* Zeroed memory is an idle call. */
struct lpi_call {
	union {
		struct lp_msg msg;
		struct lp_task task;
	} via;
	struct lp_ns *from; /* NULL: idle */
	struct lp_ns *to;
	void (*run)(struct lpi_call *call);  /* on the shard's thread */
	void (*done)(struct lpi_call *call); /* on the caller's */
	int result;

	/* A store call's. */
	struct lp_store_op *store_op;
	void (*stored)(struct lpi_call *call); /* NULL: lpi_call_end() */
	struct lpi_lock look;                  /* what the operation waits for */
	bool shows_dir;    /* of a mount's STAT of a directory: the board is told */
	bool doubts_attrs; /* of a lookup: a change was being decided when it began */
	bool saw_ordered;  /* result: see struct lp_store_op */
	/* See lpi_call_hold(). */
	bool holds;
	bool has_held; /* result: of a STAT, or of a lookup that has attributes */
	struct lp_store_op *stat_op;
	struct lp_store_op *lookup_op; /* while stat_op is under way */
	struct lpi_transfer *transfer;
	struct lp_ns *home;                         /* as from, for longer */
	void (*caller_done)(struct lpi_call *call); /* of a read from elsewhere */
	struct lp_seg seg;                          /* of a read's answer that was brought here */
	struct lp_buf *crcs;                        /* the same: its checksums */
	/* Set by the caller: a transaction that finds no space while some is about to be freed is
	 * submitted again, without any other step in between. So all that was decided before it was
	 * submitted must still hold. */
	bool may_wait_space;
	/* Set by the caller, of a STAT of a directory: it does not wait for names in it that are
	 * being decided. They change its counts and times, but never whether it exists, its kind
	 * and its place. */
	bool passes_names;
	/* Set by a caller that holds no lock: the call is about the inode of `look`, and does not
	 * pass an earlier call on it that waits for buffers. */
	bool keeps_turn;
	bool in_turn; /* counted in ns->turns */
	struct lpi_freeing_wait space_wait;
	struct lp_ns *round_of;   /* of freeing.c's own */
	struct lp_list_node node; /* in trying_again */
	uint64_t waits_since_ns;  /* since when it has been in that list, again and again; 0: it was
				     not */
};

LP_LIST_DEFINE(lpi_call_list, struct lpi_call, node);

/* run and done are set. */
void lpi_call_start(struct lp_ns *from, uint32_t shard_idx, struct lpi_call *call);
/* The same without run(): the caller is on the callee's thread already, and ends it later. */
void lpi_call_here(struct lp_ns *ns, struct lpi_call *call);
/* On the callee's thread, once for each run(). */
void lpi_call_end(struct lpi_call *call, int result);

/* op is filled in except complete; done is set. op->result is call->result. With wait_for_hard the
 * operation first waits for changes over several shards of its inode or name to be decided. */
void lpi_call_store(struct lp_ns *from, uint32_t shard_idx, struct lpi_call *call,
		    struct lp_store_op *op, bool wait_for_hard);
/* Call it before lpi_call_store() of a STAT or LOOKUP, once. The inode is held
 * (state/open_inodes.h) on its shard before its attributes are read. So a removal sees the hold,
 * and so does a change after the attributes were read. A failed operation holds nothing. A lookup
 * reads the attributes by stat_op, which is the call's meanwhile, if the inode is on the entry's
 * shard and no directory. Otherwise it returns no attributes, and holds nothing. */
void lpi_call_hold(struct lpi_call *call, struct lp_store_op *stat_op);
/* Call it inside run(), before anything is decided for the operation that lpi_call_submit() then
 * submits at once. Brings the payload among these changes to this thread. False: the call has to
 * wait for buffers, and run() is called again. */
bool lpi_call_bring_data(struct lpi_call *call, const struct lp_change *changes, uint32_t cnt);
/* From inside run(), on the shard's thread: submits store_op, with a payload of this thread.
 * stored() is called there when it has completed; from inside it lpi_call_submit() may be called
 * again, or lpi_call_end(). */
void lpi_call_submit(struct lpi_call *call);
/* Gives back the buffers of a read that succeeded. */
void lpi_call_end_read(struct lpi_call *call);

/* True if a sync of this shard has anything to wait for. Any thread: the answer holds for all
 * changes that the caller has seen or was told of. */
bool lpi_call_is_unsynced(const struct lp_ns *ns);
/* On the shard's thread, in each turn. */
void lpi_call_look_settled(struct lp_ns *ns);

/* Calls that found no buffers, or no space, try again. */
void lpi_calls_retry(struct lp_ns *ns);

static inline bool lpi_call_is_idle(const struct lpi_call *call)
{
	return call->from == NULL;
}

#endif
