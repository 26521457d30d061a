/* SPDX-License-Identifier: Apache-2.0 */
/* A change on one shard, or on several shards as one (rule N1). README.md has the protocol.
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
 * shard, when nothing there can change any more. At most one part may bring what does not fit into
 * a record: data, xattrs, a symlink's target. That part coordinates.
 *
 *   one part:  ------------------------------ MAKE -> decided, over
 *   several:   PREPARE all others -> DECIDE -> decided; FINISH all others -> over
 *                      \-> ABORT all others -> decided (failed), over
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
	LPI_PART_ENDED /* made, finished, or undone: its locks are released */
};

/* What a part of several needs besides: its record, and the changes that are read from it again to
 * be made, for by then the operation that gave them has been answered. */
struct lpi_part_room {
	uint32_t len;
	uint8_t bytes[LPI_PACT_RECORD_BYTES_MAX];
	struct lpi_pact_decoded decoded;
};

struct lpi_part {
	uint32_t shard_idx;
	uint32_t change_cnt; /* 0: only locks */
	/* A directory whose fragment here must be empty and is sealed while this is prepared, and
	 * is gone afterwards; beside the inode it goes with that. nr 0: none. */
	struct lp_ino sealed;
	/* An inode of this shard that loses its last name: when it comes to that, it is removed, or
	 * made an orphan if it is open. nr 0: none. */
	struct lp_ino unnamed;
	/* An orphan of this shard that gets a name, and is none any more. nr 0: none. */
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

	/* From here on nothing is cleared for a new part: each is when it is used. */
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
	struct lpi_part *coordinator; /* who must; NULL: whoever */
	enum lp_store_ack ack;        /* of one part only */
	/* The outcome is known. */
	void (*decided)(struct lpi_pact *pact);
	/* Nothing of it is needed any more. Called after decided(). */
	void (*over)(struct lpi_pact *pact);
	/* Results. */
	int result;
	struct lpi_part *failed; /* whose error result is; op.txn.failed_idx says which change */
	bool is_decided;         /* what fails from now on is no result */

	/* Private. */
	uint64_t txid;
	bool is_removal;    /* it takes something away, and nothing grows */
	uint32_t calls_cnt; /* under way */
	void (*next)(struct lpi_pact *pact);
	struct lp_list_node node; /* of those that wait for rooms, or of those that are stuck */

	struct lpi_part *parts[LPI_PACT_PARTS]; /* not cleared: part_cnt of them are there */
};

LP_LIST_DEFINE(lpi_pact_list, struct lpi_pact, node);

static inline bool lpi_part_has_work(const struct lpi_part *part)
{
	return part->change_cnt > 0 || part->sealed.nr != 0 || part->unnamed.nr != 0;
}

/* All is set but what is the pact's. decided() is never called from inside. */
void lpi_pact_start(struct lpi_pact *pact);
/* Of one that will not go on. */
void lpi_pact_put_rooms(struct lpi_pact *pact);
/* Those that wait for rooms go on, as far as there are some. */
void lpi_pact_begin_waiting(struct lp_ns *ns);

/* After a crash, on the participant's shard: makes, or undoes, what a record says, and removes it.
 * done as of a call. */
struct lpi_pact_redo {
	struct lpi_call call;
	struct lp_store_op op;
	struct lpi_pact_decoded decoded;
	struct lp_change changes[LPI_PACT_CHANGES_MAX + 2];
	uint8_t key[LPI_PACT_KEY_BYTES];
};
void lpi_pact_redo(struct lp_ns *ns, uint64_t txid, bool is_decided, struct lpi_pact_redo *redo);

#endif
