/* SPDX-License-Identifier: Apache-2.0 */
/* Edit: a change of data, between the files that plan, stage, place and apply it.
 *
 * Threads: the store's.
 * Blocking: none.
 * Errors: as said per call; applying cannot fail.
 *
 * block/write/plan.c says what is to be done, block/write/stage_data.c what it waits for,
 * block/write/place_in_full_store.c where it goes. block/write/edit.c does it.
 */
#ifndef LP_STORE_BLOCK_WRITE_EDIT_H
#define LP_STORE_BLOCK_WRITE_EDIT_H

#include "store/block/core/payload.h"
#include "store/block/write/txn.h"

/* --- block/write/plan.c
 * ----------------------------------------------------------------------------- */

void lpi_edit_init(struct lpi_edit *edit);
/* The path of a write of so many bytes, if it is not inline. Called once for each write. */
enum lp_write_path lpi_edit_choose_path(struct lpi_txn *txn, uint64_t length);
/* True: a write that was to be direct may be deferred instead. */
bool lpi_edit_may_defer(const struct lpi_txn *txn);
int lpi_edit_plan(struct lpi_txn *txn) LP_MUST_CHECK;
/* For a clone: brings the counts of the blocks to be shared into memory. */
int lpi_edit_plan_shared(struct lpi_txn *txn) LP_MUST_CHECK;
/* For a clone: the blocks of the source. */
struct lp_extmap_range lpi_edit_src_range(const struct lpi_edit *edit);
struct lpi_solo *lpi_edit_add_solo(struct lpi_edit *edit, uint64_t block, bool is_in_range);
/* The first segments of a range. */
#define LPI_FOUND_MAX 8
struct lpi_found {
	struct lp_extmap_segment segments[LPI_FOUND_MAX];
	int cnt;
};
/* As lp_extmap_lookup(), with the leaves brought in. 0, LPI_WAIT, or an error. */
int lpi_edit_lookup(struct lpi_txn *txn, struct lpi_inode *inode, struct lp_extmap_range range,
		    struct lpi_found *ret_found) LP_MUST_CHECK;

/* --- block/write/place_in_full_store.c
 * ---------------------------------------------------------------------------- */

/* Whether all of the range may be written in place, because it is the file's alone, or because it
 * has space and no content. 0, LPI_WAIT, or an error. */
int lpi_edit_look_at_range(struct lpi_txn *txn) LP_MUST_CHECK;
/* The write found no space. True the first time: then it is tried again with existing blocks in
 * place. */
bool lpi_edit_was_refused(struct lpi_edit *edit);
/* Plans that second try. 0: it needs less space than the first. -ENOSPC: it does not; else as
 * above. */
int lpi_edit_keep_places(struct lpi_txn *txn) LP_MUST_CHECK;
/* The second try found no space either: the write is planned anew when there is space. */
void lpi_edit_leave_places(struct lpi_edit *edit);

/* Checks that the unchanged parts of the leaves name none of the given blocks. Otherwise a leaf
 * would name a block twice, and could not be read. 0, LPI_WAIT, or an error. */
int lpi_edit_check_given(struct lpi_txn *txn) LP_MUST_CHECK;

/* Place of one run of a mixed range. */
enum lpi_place_kind {
	LPI_PLACE_OWN,       /* over content that is the file's own */
	LPI_PLACE_SET_ASIDE, /* in its preallocated block, which has no content yet */
	LPI_PLACE_NEW,       /* in a new block that was taken for it */
};

struct lpi_range_place {
	struct lp_extmap_range range; /* of the file */
	uint64_t block;               /* of the device */
	enum lpi_place_kind kind;
};

struct lpi_places_at {
	const struct lpi_edit *edit;
	struct lp_extmap_range left;
	uint32_t extent_idx;
	uint64_t extent_used;
};

struct lpi_places_at lpi_places_begin(const struct lpi_edit *edit);
/* False: that was all. The map may have changed for ranges already passed. */
bool lpi_places_next(struct lpi_places_at *at, struct lpi_range_place *ret_place);

/* --- block/write/edit.c
 * ----------------------------------------------------------------------------- */

/* The blocks of the written range, as segments of memory, in order. */
struct lpi_range_at {
	const struct lpi_edit *edit;
	struct lpi_seg_cursor payload;
	uint64_t block;  /* of the file */
	uint64_t copied; /* bytes of the copies passed */
};

struct lpi_range_at lpi_range_begin(const struct lpi_edit *edit);
/* The next blocks, up to `max`, that are contiguous in memory; returns how many. 0: the next one is
 * not aligned in memory, and needs a copy. */
uint64_t lpi_range_run(struct lpi_range_at *at, uint64_t max, struct lp_seg *ret_seg);
/* Passes so many blocks, which are not written there. */
void lpi_range_skip(struct lpi_range_at *at, uint64_t blocks);
/* Adds up to `max` blocks to the io; returns how many, at least one. */
uint64_t lpi_range_fill(struct lpi_range_at *at, struct lpi_io *io, uint64_t max);

/* Whether the edit was given one of these blocks, which a map named already: damage. */
bool lpi_edit_is_given(const struct lpi_txn *txn, struct lp_extent extent);

/* Collects the crc of each block of the range, once the solos are merged. */
void lpi_edit_collect_crcs(struct lpi_edit *edit);
/* Blocks whose payloads go into the frame. */
uint64_t lpi_edit_deferred(const struct lpi_edit *edit);
void lpi_edit_drop_copies(struct lpi_edit *edit);
/* After one step of several: its resources are used up, and planning begins again. */
void lpi_edit_next_step(struct lpi_txn *txn);
enum lp_bdev_opcode lpi_block_data_opcode(const struct lpi_block *block);

#endif
