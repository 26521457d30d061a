/* SPDX-License-Identifier: Apache-2.0 */
/* A change on one shard, or on several shards as one (rule N1): the protocol.
 *
 * Threads: the pact's home is the shard where it began. Parts go to their shards by calls, and
 *   belong to them meanwhile.
 * Blocking, memory: none.
 * Errors: decided() has the first error that a part met. -EIO of the deciding part means that the
 *   outcome is unknown, unless its store had failed before and so did nothing. With an unknown
 *   outcome the others stay prepared and locked until the store is opened again, and over() does
 *   not come. -ENOSPC comes before anything is promised. What was promised may use the space that
 *   is kept for removals (rule L8). If there is no space at all, its end is tried again until the
 *   namespace stops; then it is left to the next start, and over() does not come either.
 * Limits: LPI_PART_CHANGES, LPI_PACT_PARTS.
 *
 * A pact consists of parts, one for each shard: the changes to be made there, and the locks that
 * are held there. Locks come from a job (namespace/change/job.h). The pact releases them, on their
 * shard, when nothing there can change any more. At most one part may bring values that do not fit
 * into a record: data, xattrs, a symlink's target. That part coordinates.
 *
 *   one part:  ------------------------------ MAKE -> decided, over
 *   several:   PREPARE all others -> DECIDE -> decided; FINISH all others -> over
 *                      \-> ABORT all others -> decided (failed), over
 *
 * The shard where the operation was submitted need not take part. One of those that take part is
 * the coordinator. It is the shard of a new inode, which may have xattrs and may be used by its
 * number as soon as that is known; or of an inode that gets its first name, which may be closed as
 * soon as that is answered. Otherwise it is the shard of the new or changed entry, or else the
 * lowest.
 *
 *   - PREPARE, on all others at once: one transaction checks the guards and puts a `T` record with
 *     the changes to be made here, the coordinator and the time. What these changes will read is
 *     guarded, too, because damage can be refused now but not later. The transaction is admitted
 *     only where there is room for these changes, as one that grows where they do. Otherwise it is
 *     -ENOSPC, and nothing is promised. The seal of a fragment that is to go is part of it.
 *   - DECIDE: one transaction of the coordinator makes its own changes and puts a `T` record that
 *     lists the others. When it is durable, the change has happened and the operation is answered.
 *     So there are two device writes in sequence.
 *   - FINISH: each other shard makes its changes and removes its `T` record in one transaction,
 *     unlocks, and reports. A sealed fragment is dropped (rule N2); the one beside the inode goes
 *     with the inode. When all have finished durably, the coordinator removes its record with its
 *     next commit.
 *   - ABORT, if a shard could not prepare: the others remove record and seal.
 *   - In doubt: the deciding write failed, and it is unknown whether it is on the device. All
 *     others stay prepared and locked until the store is opened again. So does a shard that cannot
 *     finish. `stuck` counts these changes. A read or change of a locked inode or name gets -EIO.
 *     Other names of the same directory are free. Adding, moving or removing one asks only whether
 *     the directory is there, of which kind and where, and no name in it changes that. A list of
 *     the directory needs all of its names, and its times, size and link count are changed by each.
 *     Those are refused.
 *
 * The changes that a prepared record promises cannot fail. Locks keep conflicting changes away.
 * Finish, abort and forget may use the space that is kept for removals. So may all parts of a
 * change that takes something away and lets nothing grow. Only the host of an image may be out of
 * space all the same. Then the end is tried again (`finish_retries`), and the locks stay. A stop
 * does not wait for it, because the next start has the records (shard/start.c). To count the room
 * of each promise until it ends was rejected: the plan of the index's reserve (store/index/plan.c)
 * covers what was admitted, and an end is no more than that.
 *
 * Messages are part of the operation, one slot for each use, so no operation waits for a message of
 * another.
 */
#ifndef LP_NAMESPACE_CHANGE_PACT_H
#define LP_NAMESPACE_CHANGE_PACT_H

#include "namespace/change/shard_call.h"
#include "namespace/state/pact_record.h"
#include "store/record/values.h"

#define LPI_PART_CHANGES 22u /* guards too */
#define LPI_PART_LOCKS   9u  /* of one job: all of them, and one of the wide set */
#define LPI_PACT_PARTS   (LP_SHARDS_MAX + 8u)

struct lpi_pact;

enum lpi_part_state {
	LPI_PART_IDLE,
	LPI_PART_PREPARED,
	LPI_PART_ENDED /* made, finished or undone; its locks are released */
};

/* State that a part of several needs besides: its record, and the changes that are read from it
 * again to be made. By then the operation that gave them has been answered. */
struct lpi_part_room {
	uint32_t len;
	uint8_t bytes[LPI_PACT_RECORD_BYTES_MAX];
	struct lpi_pact_decoded decoded;
};

struct lpi_part {
	uint32_t shard_idx;
	uint32_t change_cnt; /* 0: only locks */
	/* A directory whose fragment here must be empty. It is sealed while this is prepared, and
	 * is gone afterwards. A fragment beside the inode goes with the inode. nr 0: none. */
	struct lp_ino sealed;
	/* An inode of this shard that loses its last name. When the change is made it is removed,
	 * or becomes an orphan if it is open. nr 0: none. */
	struct lp_ino unnamed;
	/* An orphan of this shard that gets a name, and is no orphan afterwards. nr 0: none. */
	struct lp_ino adopted;
	uint32_t lock_cnt;
	struct lpi_lock *locks[LPI_PART_LOCKS];

	/* The pact's. */
	struct lpi_pact *pact;
	enum lpi_part_state state;
	struct lpi_call call;
	struct lp_timer retry;
	bool is_orphaned;           /* unnamed: it was open */
	bool is_unnaming;           /* unnamed: it is counted in freeing.h */
	bool is_unknown;            /* the coordinator's: whether it has decided */
	struct lpi_part_room *room; /* out of the home's pool */

	/* Nothing from here on is cleared for a new part; each field is set when it is used. */
	struct lp_store_op op;
	uint8_t key[LPI_PACT_KEY_BYTES];
	struct lp_attrs orphan_attrs;
	uint8_t mark_key[1 + 8]; /* of an inode that is made without a name, or gets one */
	uint8_t mark_value[LP_UNFINISHED_VALUE_SIZE];
	uint8_t orphan_key[1 + 8];
	uint8_t orphan_value[LP_UNFINISHED_VALUE_SIZE];
	struct lp_change changes[LPI_PART_CHANGES]; /* change_cnt of them are there */
};

struct lpi_pact {
	struct lp_ns *ns;
	uint32_t part_cnt;
	struct lpi_part *coordinator; /* the part that must coordinate; NULL: any */
	enum lp_store_ack ack;        /* of one part only */
	/* The outcome is known. */
	void (*decided)(struct lpi_pact *pact);
	/* The pact is not needed any more. Called after decided(). */
	void (*over)(struct lpi_pact *pact);
	/* Results. */
	int result;
	struct lpi_part *failed; /* the part that caused result; op.txn.failed_idx is the change */
	bool is_decided;         /* a later failure does not change result */

	/* Private. */
	uint64_t txid;
	bool is_removal;    /* it takes something away, and nothing grows */
	uint32_t calls_cnt; /* under way */
	void (*next)(struct lpi_pact *pact);
	struct lp_list_node node; /* in the list of those that wait for rooms, or that are stuck */

	struct lpi_part *parts[LPI_PACT_PARTS]; /* not cleared: part_cnt of them are there */
};

LP_LIST_DEFINE(lpi_pact_list, struct lpi_pact, node);

static inline bool lpi_part_has_work(const struct lpi_part *part)
{
	return part->change_cnt > 0 || part->sealed.nr != 0 || part->unnamed.nr != 0;
}

/* Starts it. All fields but the pact's own are set. decided() is never called from inside. */
void lpi_pact_start(struct lpi_pact *pact);
/* Gives back the rooms of a pact that will not go on. */
void lpi_pact_put_rooms(struct lpi_pact *pact);
/* Pacts that wait for rooms go on, as far as there are rooms. */
void lpi_pact_begin_waiting(struct lp_ns *ns);

/* After a crash, on the participant's shard: makes or undoes the changes of a record, and removes
 * it. done is called as for a call. */
struct lpi_pact_redo {
	struct lpi_call call;
	struct lp_store_op op;
	struct lpi_pact_decoded decoded;
	struct lp_change changes[LPI_PACT_CHANGES_MAX + 2];
	uint8_t key[LPI_PACT_KEY_BYTES];
};
void lpi_pact_redo(struct lp_ns *ns, uint64_t txid, bool is_decided, struct lpi_pact_redo *redo);

#endif
