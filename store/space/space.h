/* SPDX-License-Identifier: Apache-2.0 */
/* Object space of one shard: its chunks, and which blocks are free, in use, or soon free.
 *
 * Threads: one owner.
 * Blocking: none.
 * Memory: that of the allocator, and two bitmaps for each chunk.
 * Errors: as each function says. Bytes from a device that make no sense give -EBADMSG or
 * -EUCLEAN. After an error of load_record or replay_frame the space is good for lp_space_free()
 * only.
 *
 * Two views are kept. The live allocator says what may be taken now. A durable bitmap per chunk
 * says what durable frames say, and nothing else. Checkpoint records are computed from the
 * durable view alone (rule S2).
 *
 * The life of a block:
 *   lp_space_take       free -> taken: out of the allocator, no one else knows
 *   lp_shard_taken      the group's frame will say so       (or lp_space_untake: free again)
 *   ..._frame_durable   in use
 *   lp_shard_freed      a later group's frame will say that it is not
 *   ..._frame_durable   not in use, but waiting while an I/O on it is in flight (rule S3)
 *   last lp_space_unpin free
 *
 * The shard puts both changes into the group that collects (lp_commit_change()), and passes them
 * on when that is durable. Only the test of this module, which has a space and no pipeline, uses
 * the groups of changes below.
 *
 * A hold is a pin without an I/O. It keeps a block from being reused, for example while the index
 * still has a deferred payload for it (store/commit/deferred_records.h). Blocks that a failed
 * group took are never given back, because the store is in its ERROR state then.
 *
 * The life of a space: new, chunk_add for each owned chunk, load_record for each record,
 * replay_frame for each frame of the log, recovered. From then on all the rest. A new store has
 * nothing to load or replay.
 */
#ifndef LP_STORE_SPACE_SPACE_H
#define LP_STORE_SPACE_SPACE_H

#include "base/struct/bitmap.h"
#include "base/struct/list.h"
#include "store/space/alloc.h"

#define LP_SPACE_CHUNK_BLOCKS_MIN UINT32_C(64)
#define LP_SPACE_CHUNK_BLOCKS_MAX (UINT32_C(1) << 18) /* 1 GiB */
#define LP_SPACE_CHUNKS_MAX       (UINT32_C(1) << 22)
/* No checkpoint record is longer, header and bitmap. */
#define LP_SPACE_RECORD_BYTES_MAX (40 + LP_SPACE_CHUNK_BLOCKS_MAX / 8)

struct lp_space;

struct lp_space_config {
	enum lp_alloc_kind alloc_kind;
	uint64_t alloc_memory_max_bytes; /* as in lp_alloc_config */
	uint64_t base_block;             /* where chunk 0 begins on the device */
	uint32_t chunk_blocks;           /* a power of two within the limits above */
	uint32_t chunk_cnt_max;          /* chunks are numbered 0..chunk_cnt_max-1 */
	uint64_t low_water_blocks;       /* with fewer free blocks another chunk is wanted */
};

/* -ENOMEM. */
int lp_space_new(const struct lp_space_config *config, struct lp_space **ret_space) LP_MUST_CHECK;
/* Asserts that nothing is pinned. NULL is fine. */
void lp_space_free(struct lp_space *space);

/* --- Recovery --- */

/* The value of the record for a chunk, as the index held it when it was opened, before frames were
 * put into it. Also for chunks that are not owned any more: their record must say that all is
 * free. -EBADMSG, -EUCLEAN, -ENOMEM. */
int lp_space_load_record(struct lp_space *space, uint32_t idx, const void *value,
			 size_t len) LP_MUST_CHECK;
/* The changes of one frame, in order of sequence; frames that a record contains do no harm.
 * -EUCLEAN when it takes what is in use or not the shard's. What it frees is as in
 * lp_space_frame_durable().
 */
int lp_space_replay_frame(struct lp_space *space, uint64_t seq, const void *changes,
			  size_t len) LP_MUST_CHECK;
/* All frames were replayed, the last of them durable_seq: builds the live allocator. -ENOMEM. */
int lp_space_recovered(struct lp_space *space, uint64_t durable_seq) LP_MUST_CHECK;

/* --- Chunks --- */

/* The shard owns the chunk from now on; the lease is durable. -EEXIST, -ENOMEM. */
int lp_space_chunk_add(struct lp_space *space, uint32_t idx) LP_MUST_CHECK;
/* Blocks of a chunk, which the shard did not have, are its own from now on; that is durable. A
 * guest has blocks of a chunk that another shard leased. Before the space is recovered, too.
 * -ENOMEM: some, perhaps none, are not in use until the next opening. */
int lp_space_blocks_add(struct lp_space *space, uint32_t idx, bool is_guest,
			const struct lp_bitmap *blocks) LP_MUST_CHECK;
/* A chunk at or behind `from` that can be given back: the shard's as a whole, and free, durably and
 * live; its record, if it ever needed one, is persisted; and so many blocks stay free without it.
 * False when there is none. */
bool lp_space_chunk_find_empty(const struct lp_space *space, uint32_t from, uint64_t keep_blocks,
			       uint32_t *ret_chunk);
/* Twice the low-water mark: what a shard keeps that others only may need. */
uint64_t lp_space_keep_blocks(const struct lp_space *space);
bool lp_space_is_guest(const struct lp_space *space, uint32_t idx);
/* A walk through the chunks whose free blocks can be given away, those with most of them first. All
 * changes of such a chunk are in a persisted record. Zeroed before the first call. */
struct lp_space_loose {
	uint32_t chunk;
	uint64_t cnt; /* not in use; some may be taken */
	bool is_begun;
};
/* of_guest: only of chunks in which the shard is a guest. False: there are no more. Taking blocks
 * away meanwhile does no harm. */
bool lp_space_next_loose(const struct lp_space *space, bool of_guest, struct lp_space_loose *loose);
/* The same through all chunks, with changes that no persisted record has, too. */
bool lp_space_next_any(const struct lp_space *space, struct lp_space_loose *loose);
/* How many blocks of all such chunks are not in use. */
uint64_t lp_space_loose_blocks(const struct lp_space *space);
/* Free blocks of that chunk, `max` at most, are the shard's no more: no record, no frame and no I/O
 * of it says anything of them. They are set in ret_blocks, which is zeroed. Returns how many. The
 * caller gives them to somebody durably, or calls lp_space_blocks_add(). */
uint64_t lp_space_blocks_remove(struct lp_space *space, uint32_t idx, uint64_t max,
				struct lp_bitmap *ret_blocks);
/* The same for a chunk that is changed all the time: the blocks are set aside first. They are the
 * shard's then, but nobody can take them, so no later frame speaks of them. When all changes up to
 * the frame that was durable then are in a persisted record of the chunk, they can be let go: after
 * that they are as what lp_space_blocks_remove() took. Or they are put back. */
uint64_t lp_space_set_aside(struct lp_space *space, uint32_t idx, uint64_t max,
			    struct lp_bitmap *ret_blocks);
bool lp_space_is_recorded(const struct lp_space *space, uint32_t idx, uint64_t seq);
/* -ENOMEM: they are still set aside. */
int lp_space_let_go(struct lp_space *space, uint32_t idx,
		    const struct lp_bitmap *blocks) LP_MUST_CHECK;
/* What finds no memory is not in use until the next opening. */
void lp_space_put_back(struct lp_space *space, uint32_t idx, const struct lp_bitmap *blocks);
/* The chunk is out of use at once; after that the caller may end its lease. Its record stays in the
 * index, for it says from which frame on changes count should the chunk come back.
 * -EBUSY unless it can be given back, but for the low-water mark. -ENOMEM with extent only. */
int lp_space_chunk_remove(struct lp_space *space, uint32_t idx) LP_MUST_CHECK;
bool lp_space_owns(const struct lp_space *space, uint32_t idx);
/* Fewer blocks are free than the low-water mark. */
bool lp_space_wants_chunk(const struct lp_space *space);

/* --- Taking and freeing --- */

/* As lp_alloc_take(). */
int lp_space_take(struct lp_space *space, uint64_t want, const struct lp_alloc_options *options,
		  struct lp_extent *ret_extents, uint64_t *ret_blocks) LP_MUST_CHECK;
/* Blocks that were taken and are in no group's changes are free again, once no I/O is on them. */
void lp_space_untake(struct lp_space *space, struct lp_extent extent);

/* The changes of one group, built in memory of the caller: the frame. */
struct lp_space_group {
	uint8_t *bytes;
	size_t size; /* bytes there is room for */
	size_t len;  /* bytes in use */
};

void lp_space_group_init(struct lp_space_group *group, void *bytes, size_t size);
/* Whether this many more changes surely fit. */
bool lp_space_group_has_room(const struct lp_space_group *group, unsigned change_cnt);
/* -EAGAIN: the frame has no room for another change; it belongs into the next. */
int lp_space_log_take(struct lp_space_group *group, struct lp_extent extent) LP_MUST_CHECK;
int lp_space_log_free(struct lp_space_group *group, struct lp_extent extent) LP_MUST_CHECK;

/* The frame is durable, as are all before it: in order of sequence, each once. The changes are
 * those a group built; that what it takes was not in use is asserted. What it frees and is not in
 * use is damage of whoever's map named it: recorded, and left out. */
void lp_space_frame_durable(struct lp_space *space, uint64_t seq, const void *changes, size_t len);

/* freed() is told of all that a durable frame really frees, before it can be taken: who holds it
 * then keeps it so. NULL: nobody is. */
void lp_space_tell_freed(struct lp_space *space, void (*freed)(void *arg, struct lp_extent extent),
			 void *arg);

/* An I/O in flight on a range. Embedded in the operation; its memory must stay until unpin. */
struct lp_space_pin {
	struct lp_extent extent;
	struct lp_list_node node;
	bool is_hold;
	bool was_free; /* a hold's, while it is being recovered */
};

void lp_space_pin(struct lp_space *space, struct lp_space_pin *pin, struct lp_extent extent);
void lp_space_unpin(struct lp_space *space, struct lp_space_pin *pin);
/* No I/O, but something durable would do one at the next opening: what is held is not given away
 * when it is free. Also while the space is being recovered, after all frames. Ends with
 * lp_space_unpin(). */
void lp_space_hold(struct lp_space *space, struct lp_space_pin *pin, struct lp_extent extent);
/* Some I/O is in flight on the range. */
bool lp_space_is_pinned(const struct lp_space *space, struct lp_extent range);

/* --- Checkpoints --- */

/* Makes the record of the chunk whose unrecorded change is the oldest, for the commit that will
 * have sequence commit_seq, as of the last durable frame. buf has LP_SPACE_RECORD_BYTES_MAX
 * bytes. Returns 1, or 0 when no chunk needs a record. Call it as often per commit as
 * the commit can bear. */
int lp_space_checkpoint_next(struct lp_space *space, uint64_t commit_seq, void *buf,
			     uint32_t *ret_chunk, size_t *ret_len) LP_MUST_CHECK;
/* The records made for commit_seq, the newest there are, will not be in that commit. */
void lp_space_checkpoint_abandon(struct lp_space *space, uint64_t commit_seq);
/* The index has persisted all commits up to applied_seq. */
void lp_space_persisted(struct lp_space *space, uint64_t applied_seq);
/* The lowest sequence whose frame is still needed to know what is in use (rule S2). */
uint64_t lp_space_log_start(const struct lp_space *space);
/* Roughly the lowest sequence with a change that no record contains, though it may have one: what
 * the next record is for. UINT64_MAX: no chunk wants one. */
uint64_t lp_space_unrecorded_seq(const struct lp_space *space);

/* --- Queries --- */

uint64_t lp_space_durable_seq(const struct lp_space *space);
/* Blocks durably in use, or waiting for an I/O to end. */
uint64_t lp_space_used_blocks(const struct lp_space *space);
uint64_t lp_space_waiting_blocks(const struct lp_space *space);
/* How many blocks that waited have become free since the space was opened. */
uint64_t lp_space_released_blocks(const struct lp_space *space);
/* I/O in flight, on any blocks; what is only held does not count. */
bool lp_space_has_io(const struct lp_space *space);
/* Whether all blocks of the extent, which the shard owns, are durably in use (or none). */
bool lp_space_is_used(const struct lp_space *space, struct lp_extent extent);
bool lp_space_is_unused(const struct lp_space *space, struct lp_extent extent);
/* Of an extent that may be anything, as a damaged map's: whether it lies in chunks of the shard;
 * and whether, beyond that, no block of it is free or waits to be, as is so of all that a map
 * names. */
bool lp_space_has(const struct lp_space *space, struct lp_extent extent);
bool lp_space_is_taken(const struct lp_space *space, struct lp_extent extent);
const struct lp_alloc *lp_space_alloc(const struct lp_space *space);
/* The allocator's, and of the chunks that the shard has. */
uint64_t lp_space_memory_bytes(const struct lp_space *space);
const struct lp_space_config *lp_space_config(const struct lp_space *space);
/* What of a chunk is durably in use, a bit for each block; NULL: it is not owned. */
const struct lp_bitmap *lp_space_used_map(const struct lp_space *space, uint32_t idx);
/* Which blocks of it are the shard's; NULL: all, or it is not owned. */
const struct lp_bitmap *lp_space_mine_map(const struct lp_space *space, uint32_t idx);

#endif
