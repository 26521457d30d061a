/* SPDX-License-Identifier: Apache-2.0 */
/* Owed records: in a frame of the log, and not yet in the index (rule L9).
 *
 * Threads: the shard's.
 * Blocking: none.
 * Memory: one batch; the notes are the owner's.
 * Errors: of putting, in `error`.
 *
 * A record that is overwritten again and again need not enter the index with each frame. The log
 * has it, and its owner keeps it in memory. So the owner may owe it: the record goes into the
 * frame only. All that is owed is paid when the log is to be trimmed, or when too much is owed.
 * Then the newest state of each record is put into the index, once, in the order of the keys,
 * some of it at a time. A record that was changed k times is inserted once, and beside its
 * neighbours, which costs a fraction of an insertion anywhere.
 *
 *   whole      the frame up to which the index lacks nothing: `S applied` says it beside the number
 *              of its group, in each group's batch; the log may forget no frame behind it
 *   paid       all that was owed in frames up to here has been put, or is in a newer frame
 *
 * A payment holds nothing that has changed since its last frame: that is in the frame of the
 * group that collects. So the index never has a record that no frame has. For the same reason
 * `whole` may rise only with a batch that is inserted after that group: with the group's own or,
 * while nothing collects, with a payment's. So that group must fit into the log though nothing is
 * trimmed. The owner of the pipeline therefore closes its door in time.
 */
#ifndef LP_STORE_COMMIT_OWED_RECORDS_H
#define LP_STORE_COMMIT_OWED_RECORDS_H

#include "store/index/kv.h"

struct lp_payments;

/* Who owes. */
struct lp_owed {
	/* All that is owed now is to be paid; what comes later need not be. */
	void (*begin)(struct lp_owed *owed);
	/* Puts some more of it, by lp_payments_put(), but nothing that has changed since it was put
	 * into a frame. True: that was the last. */
	bool (*pay)(struct lp_owed *owed, struct lp_payments *payments);
	uint64_t cnt; /* of records, or more than there are */
};

/* Zeroed memory may be given to lp_payments_fini(). Fields are for reading. */
struct lp_payments {
	struct lp_owed *owed;      /* NULL: nothing is ever owed */
	struct lp_kv_batch *batch; /* what is put next */
	bool is_wanted;
	bool is_running;   /* from begin() to the last pay() */
	bool is_built;     /* the batch is to be written before anything else */
	uint64_t upto_seq; /* what is being paid: that of frames up to this one */
	uint64_t paid_seq;
	uint64_t whole_seq;    /* as the index has it */
	uint64_t declares_seq; /* what the batch says of it; 0: nothing */
	uint64_t put_cnt;      /* records paid since the opening */
	int error;             /* of putting */
};

/* whole_seq: that of the index. -ENOMEM. */
int lp_payments_init(struct lp_payments *payments, uint64_t whole_seq) LP_MUST_CHECK;
void lp_payments_fini(struct lp_payments *payments);

/* All that is owed now is to be paid. Nothing happens when that is being done already, or what was
 * paid last has not made the index whole yet: who goes on wanting it asks again. */
void lp_payments_want(struct lp_payments *payments);
/* There is something to do without waiting for anything. */
bool lp_payments_are_busy(const struct lp_payments *payments);

/* Up to where the index will be whole, for the batch of group `seq` to say: all that the group owes
 * has been counted. */
uint64_t lp_payments_seal(struct lp_payments *payments, uint64_t seq);
/* That batch is in the index. */
void lp_payments_group_inserted(struct lp_payments *payments, uint64_t whole_seq);

/* All groups up to inserted_seq are in the index, and none that was submitted is not. is_idle:
 * nothing collects. Builds what is to be written next, if anything. */
int lp_payments_build(struct lp_payments *payments, uint64_t inserted_seq,
		      bool is_idle) LP_MUST_CHECK;
/* From pay(). */
void lp_payments_put(struct lp_payments *payments, struct lp_kv_bytes key,
		     struct lp_kv_bytes value);
/* Into the index; as lp_kv_write(). */
int lp_payments_write(struct lp_payments *payments, struct lp_kv *kv) LP_MUST_CHECK;

/* --- The value of `S applied` ----------------------------------------------------------------- */

#define LP_APPLIED_BYTES_MAX 16u

/* Returns its length: the second number is there only when it is another one. */
size_t lp_applied_encode(uint64_t seq, uint64_t whole_seq, uint8_t *buf);
/* -EUCLEAN. */
int lp_applied_decode(struct lp_kv_bytes value, uint64_t *ret_seq,
		      uint64_t *ret_whole_seq) LP_MUST_CHECK;
/* Only records of such keys are ever owed: what says where the index stands (spaces, marks,
 * deferred payloads), and what is looked for by ranges, enters with its group. */
bool lp_key_may_be_owed(struct lp_kv_bytes key);

#endif
