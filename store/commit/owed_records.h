/* SPDX-License-Identifier: Apache-2.0 */
/* Owed records: in a frame of the log, and not yet in the index (rule L9).
 *
 * Threads: the shard's.
 * Blocking: none.
 * Memory: one batch; the notes are the owner's.
 * Errors: of putting, in `error`.
 *
 * A record that is overwritten again and again need not enter the index with each frame. The log
 * has it, and its owner keeps it in memory. So the owner may defer the write to the index: the
 * record then goes into the frame only, and is *owed*. All owed records are written
 * to the index when the log must be trimmed, or when too many are owed: they are *paid*. The
 * newest state of each record is written once, in key order, some records at a time. A record that
 * was changed k times is inserted once, and beside its neighbours, which costs a fraction of an
 * insertion at a random place.
 *
 *   whole      the frame up to which the index lacks nothing. `S applied` has it beside the number
 *              of its group, in each group's batch. The log may forget no later frame.
 *   paid       all owed records of frames up to here have been put, or are in a newer frame
 *
 * A payment holds no record that has changed since its last frame, because the new value is in the
 * frame of the collecting group. So the index never has a record that no frame has. For the same
 * reason `whole` may rise only with a batch that is inserted after that group: with the group's own
 * batch or, while nothing collects, with a payment's. So that group must fit into the log though
 * nothing is trimmed. The owner of the pipeline therefore closes its door in time.
 */
#ifndef LP_STORE_COMMIT_OWED_RECORDS_H
#define LP_STORE_COMMIT_OWED_RECORDS_H

#include "store/index/kv.h"

struct lp_payments;

/* Owner of owed records. */
struct lp_owed {
	/* All records owed so far are to be paid; later ones need not be. */
	void (*begin)(struct lp_owed *owed);
	/* Puts some of them by lp_payments_put(), but no record that has changed since it was put
	 * into a frame. True: these were the last. */
	bool (*pay)(struct lp_owed *owed, struct lp_payments *payments);
	uint64_t cnt; /* owed records, or an upper bound */
};

/* Zeroed memory may be given to lp_payments_fini(). Fields are for reading. */
struct lp_payments {
	struct lp_owed *owed;      /* NULL: no record is ever deferred */
	struct lp_kv_batch *batch; /* the records to be put next */
	bool is_wanted;
	bool is_running;   /* from begin() to the last pay() */
	bool is_built;     /* the batch must be written before any other */
	uint64_t upto_seq; /* the payment covers the frames up to this one */
	uint64_t paid_seq;
	uint64_t whole_seq;    /* as recorded in the index */
	uint64_t declares_seq; /* the number that the batch records; 0: none */
	uint64_t put_cnt;      /* records paid since the opening */
	int error;             /* of putting */
};

/* whole_seq: that of the index. -ENOMEM. */
int lp_payments_init(struct lp_payments *payments, uint64_t whole_seq) LP_MUST_CHECK;
void lp_payments_fini(struct lp_payments *payments);

/* All records deferred so far are to be paid. Does nothing if that is being done already, or if the
 * last payment has not made the index whole yet. A caller that still wants it asks again. */
void lp_payments_want(struct lp_payments *payments);
/* A step can be done without waiting. */
bool lp_payments_are_busy(const struct lp_payments *payments);

/* The frame up to which the index will be whole, to be recorded in the batch of group `seq`. All
 * owed records of the group must be counted by then. */
uint64_t lp_payments_seal(struct lp_payments *payments, uint64_t seq);
/* That batch is in the index. */
void lp_payments_group_inserted(struct lp_payments *payments, uint64_t whole_seq);

/* All groups up to inserted_seq are in the index, and no submitted group is missing there. is_idle:
 * no group collects. Builds the next batch, if there is one. */
int lp_payments_build(struct lp_payments *payments, uint64_t inserted_seq,
		      bool is_idle) LP_MUST_CHECK;
/* Called from pay(). */
void lp_payments_put(struct lp_payments *payments, struct lp_kv_bytes key,
		     struct lp_kv_bytes value);
/* Writes the batch into the index; as lp_kv_write(). */
int lp_payments_write(struct lp_payments *payments, struct lp_kv *kv) LP_MUST_CHECK;

/* --- The value of `S applied` ----------------------------------------------------------------- */

#define LP_APPLIED_BYTES_MAX 16u

/* Returns its length. The second number is encoded only when it differs from the first. */
size_t lp_applied_encode(uint64_t seq, uint64_t whole_seq, uint8_t *buf);
/* -EUCLEAN. */
int lp_applied_decode(struct lp_kv_bytes value, uint64_t *ret_seq,
		      uint64_t *ret_whole_seq) LP_MUST_CHECK;
/* Only records of such keys are ever deferred. Records of the index's position (spaces, marks,
 * deferred payloads), and records that are looked for by ranges, enter with their group. */
bool lp_key_may_be_owed(struct lp_kv_bytes key);

#endif
