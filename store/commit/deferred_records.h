/* SPDX-License-Identifier: Apache-2.0 */
/* Deferred payloads kept by the index: `L` records of deferred_store=kv (design 5.7).
 *
 * Threads: the reactor's.
 * Blocking: none.
 * Memory: none is allocated after new.
 * Errors: put and replace need room in the group, which was reserved. A failure after that has
 * put the pipeline into ERROR.
 *
 * This is a record's life from the commit that puts it to the commit that deletes it.
 * store/commit/deferred_payloads.h says what readers see and what goes to its place, whichever
 * way a payload is kept.
 *
 * A power cut leaves the state after some frame. In each such state, for each block:
 *
 *   no record                     the device, or a payload in the log, has the block
 *   a record, the block in use    the record has the block: it is newer than the device, or the
 *                                 same, and newer than any payload in the log
 *   a record, the block free      the record is of no use: it is deleted, the block not touched
 *
 * A record that names no inode is one that stays: its block could not be written (rule L6). The
 * record has the block's content until the block is overwritten or freed. After that it still
 * stays, as long as the shard runs, to hold the block, which must not get another owner. An opening
 * tries to write the block, also if it is free. Only if that succeeds, the record is deleted as any
 * other.
 *
 * Five rules make it so, and at most one record names a block (asserted):
 * - A newer payload for the block, of either kind, deletes the record in its own frame
 *   (lp_deferrals_replace()). So the old one is there until the new one is, and never beside it.
 * - A record that a frame puts, and does not delete again, makes payloads of its block in that
 *   frame and before of no use, also when the record is gone: the log may still have all of them.
 * - A payload that is in its place, durably, has its record deleted in a later frame. Until then
 *   an opening writes the same bytes once more, which does no harm.
 * - The freeing of a block does not wait for its record, because there may be too many in an
 *   extent for one frame. But the block is held (lp_space_hold()) until the record's deletion is
 *   durable. So the block's next owner takes it in a later frame than that, and a record never
 *   meets a block of another owner.
 * - An opening holds the blocks of all records it finds until their deletions are durable.
 */
#ifndef LP_STORE_COMMIT_DEFERRED_RECORDS_H
#define LP_STORE_COMMIT_DEFERRED_RECORDS_H

#include "store/commit/commit.h"
#include "store/record/values.h"
#include "store/space/space.h"

/* "log", "kv". */
const char *lp_deferred_store_name(enum lp_deferred_store kind);

struct lp_deferrals;

/* Bytes in a group: for the deletion of a record; for a record and the deletion of the one before
 * it. */
#define LP_DEFERRALS_DELETE_NEED (9u + LP_COMMIT_RECORD_BYTES)
#define LP_DEFERRALS_PUT_NEED    (2 * LP_DEFERRALS_DELETE_NEED + (uint32_t)LP_DEFERRED_RECORD_BYTES)

/* limit: records at a time, those that an opening finds included. -ENOMEM. */
int lp_deferrals_new(struct lp_space *space, uint64_t limit,
		     struct lp_deferrals **ret_deferrals) LP_MUST_CHECK;
/* Deletes no records. Accepts NULL. */
void lp_deferrals_free(struct lp_deferrals *deferrals);

/* While opening, before the space is recovered: the index has this record of a block in a chunk of
 * the shard. The record will be deleted. -EUCLEAN when the block has another one, -EFBIG when there
 * are more records than the limit. */
int lp_deferrals_found(struct lp_deferrals *deferrals, uint64_t number,
		       uint64_t block) LP_MUST_CHECK;
/* The payload of this record, which was found, is not in its block; the record counts as just put.
 * stays: its block cannot be written. */
void lp_deferrals_keep(struct lp_deferrals *deferrals, uint64_t number, bool stays);
/* Payloads of records that were found and not kept have been written to their blocks, durably. From
 * here on this pipeline puts and deletes records. */
void lp_deferrals_start(struct lp_deferrals *deferrals, struct lp_commit *commit);

/* How many more records there may be. */
uint64_t lp_deferrals_room(const struct lp_deferrals *deferrals);
/* The collecting group puts a record for the block, and deletes the one before it. The record stays
 * if it names no inode. Returns its number, which is not 0. There must be room. */
uint64_t lp_deferrals_put(struct lp_deferrals *deferrals, const struct lp_log_payload *about,
			  struct lp_seg seg);
/* The collecting group has newer content of the block in another way. */
void lp_deferrals_replace(struct lp_deferrals *deferrals, uint64_t block);
/* The payload of the record is in its block, or not needed any more, durably. */
void lp_deferrals_done(struct lp_deferrals *deferrals, uint64_t number);

/* Puts deletions of DONE records into the collecting group, as many as fit; the others follow. */
void lp_deferrals_delete_some(struct lp_deferrals *deferrals);
/* A group became durable. */
void lp_deferrals_durable(struct lp_deferrals *deferrals);
/* No record is DONE, and none has a deletion that is not durable. */
bool lp_deferrals_is_settled(const struct lp_deferrals *deferrals);

struct lp_deferrals_stats {
	uint64_t records; /* that a crash may leave */
	uint64_t put;
	uint64_t found; /* by the opening */
};
/* Memory of deleted records goes back to the system. */
void lp_deferrals_rest(struct lp_deferrals *deferrals);
const struct lp_deferrals_stats *lp_deferrals_stats(const struct lp_deferrals *deferrals);

#endif
