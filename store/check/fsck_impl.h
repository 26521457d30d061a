/* SPDX-License-Identifier: Apache-2.0 */
/* Internals that the parts of the checker share, and the order of its phases.
 *
 * Threads: the reactor's.
 * Blocking: all of it.
 * Errors: functions that return int fail only when the whole check must end: no memory, a device
 * that fails while it is repaired. Damage is a finding, and no error.
 *
 *   fsck.c                  opens, runs the phases below, closes
 *   check/report.c          findings, and the path of an inode
 *   check/copies.c          copies of labels and chunk tables
 *   check/superblocks.c     both superblocks of a shard's log, and of its journal of files
 *   check/mend.c            bits that flipped in what a shard must have to be opened
 *   check/rebuild_index.c   an index made anew, in a copy
 *   check/reconnect_names.c names in such a copy
 *   check/source.c          where records and used space come from
 *   check/cursor.c          records of one space of an index, parsed
 *   check/walk.c            phase 1, per shard: all records, inode by inode
 *   check/map.c             its extent maps
 *   check/read_all_data.c   and their blocks
 *   check/deferred.c        and what of them the index keeps
 *   check/named_blocks.c    which blocks extents name
 *   check/space.c           phase 2, per shard: what they name is in use
 *   check/refs.c            phase 3, per shard: against the counts of shared blocks
 *   check/links.c           phase 4, over all shards: entries and links
 *   check/inode_table.c     its table of inodes
 *   check/space.c           phase 5, per shard: nothing else is in use
 *   check/repair.c          repairs, as ordinary commits
 *
 * Blocks and records are taken back last: when all was seen that may put that in doubt, and when
 * the counts of the blocks are durably gone, because the next owner of a block may share it.
 * store/check/doubt.md is the table of which finding puts what in doubt, and which repair asks
 * for it.
 */
#ifndef LP_STORE_CHECK_FSCK_IMPL_H
#define LP_STORE_CHECK_FSCK_IMPL_H

#include "store/check/fsck.h"
#include "store/check/named_blocks.h"
#include "store/extmap/extmap.h"
#include "store/record/inode.h"
#include "store/record/ref_counts.h"
#include "store/record/values.h"
#include "store/shard/shard.h"
#include "store/view.h"

struct lpi_fsck;
struct lpi_fsck_deep;
struct lpi_fsck_deferred;

/* Structures of a shard whose superblock exists twice. */
enum lpi_fsck_super_kind { LPI_FSCK_SUPER_LOG, LPI_FSCK_SUPER_FILES, LPI_FSCK_SUPER_CNT };

/* As they were before the shard was opened. */
struct lpi_fsck_super {
	bool is_damaged[2];
	bool is_old; /* both are right, and not the same, which they should be */
};

struct lpi_fsck_shard {
	struct lpi_fsck *fsck;
	struct lp_shard *shard;     /* NULL: does not open, or it is a view that is looked at */
	const struct lp_view *view; /* NULL: it is the shard */
	uint32_t idx;
	bool maps_in_doubt; /* some map may name other blocks than are known: see
			       store/check/doubt.md */
	bool is_broken; /* some part of the index cannot be read: what is missing may be there */
	/* Some key cannot be read, or is none of ours: what is missing may be under it. */
	bool inodes_hidden;
	bool entries_hidden;
	struct lpi_fsck_super supers[LPI_FSCK_SUPER_CNT];
	bool is_rebuilt;    /* its index is a new one, in a copy */
	bool has_bad_files; /* of its index: in more than bits that were mended */
	struct lpi_fsck_blocks blocks;
	struct lpi_fsck_deep *deep;         /* NULL: not deep */
	struct lpi_fsck_deferred *deferred; /* of this moment */
};

struct lpi_fsck {
	const struct lp_fsck_options *options;
	struct lp_fsck_report *report;
	bool read_only; /* nothing is written to the devices, by opening either */
	struct lp_devices devices;
	struct lpi_fsck_shard *shards; /* report->shards of them */
	bool names_in_doubt;           /* some entry or inode cannot be read, or is not final */
	bool is_over;                  /* it was ended, and has not looked at everything */
};

/* --- Findings --------------------------------------------------------------------------------- */

struct lpi_fsck_at {
	enum lp_fsck_kind kind;
	const struct lpi_fsck_shard *shard; /* or NULL */
	struct lp_ino ino;
	struct lp_extent extent;
	bool has_offset;
	uint64_t offset_bytes;
	bool is_warning;
	bool is_repaired;
};

/* It has gone on: says so to who wants to know. */
void lpi_fsck_moved(struct lpi_fsck *fsck);
void lpi_fsck_found(struct lpi_fsck *fsck, const struct lpi_fsck_at *at, const char *fmt, ...)
	LP_PRINTF(3, 4);
/* What the newest corruption of this thread was, as a decoder said it. */
const char *lpi_fsck_last_corruption(void);

/* --- Disk ------------------------------------------------------------------------------------- */

/* Before anything is opened: the raw copies. Opening mends them unless it is read-only. */
int lpi_fsck_labels(struct lpi_fsck *fsck) LP_MUST_CHECK;
int lpi_fsck_tables(struct lpi_fsck *fsck) LP_MUST_CHECK;

/* Before a shard is opened, and after: its superblocks. Opening mends them, too. */
int lpi_fsck_supers_look(struct lpi_fsck_shard *shard) LP_MUST_CHECK;
void lpi_fsck_supers_tell(struct lpi_fsck_shard *shard);

/* Before a shard is opened: bits that flipped in what must be right for that (check/mend.c). */
int lpi_fsck_mend(struct lpi_fsck_shard *shard) LP_MUST_CHECK;

/* Of a shard that does not open, in a copy of the store. It can be opened then. */
int lpi_fsck_rebuild(struct lpi_fsck_shard *shard) LP_MUST_CHECK;
/* Then, when all shards are open: directories and entries that follow from what is left. */
int lpi_fsck_reconnect(struct lpi_fsck *fsck) LP_MUST_CHECK;

/* --- What is looked at: a shard that nobody else has open, or a view of one (check/source.c)
 * ------
 */

static inline bool lpi_fsck_is_there(const struct lpi_fsck_shard *shard)
{
	return shard->shard != NULL || shard->view != NULL;
}

/* Of the index. */
int lpi_fsck_get(const struct lpi_fsck_shard *shard, const struct lp_key *key,
		 struct lp_kv_value *ret_value) LP_MUST_CHECK;
/* Bounds with data NULL are open. */
int lpi_fsck_iter_open(const struct lpi_fsck_shard *shard, struct lp_kv_bytes lower,
		       struct lp_kv_bytes upper, struct lp_kv_iter **ret_iter) LP_MUST_CHECK;
/* The chunk's blocks are the shard's. */
/* Which blocks of a chunk that the shard owns are its own; NULL: all. */
const struct lp_bitmap *lpi_fsck_mine(const struct lpi_fsck_shard *shard, uint32_t chunk);
bool lpi_fsck_owns(const struct lpi_fsck_shard *shard, uint32_t chunk);
/* All blocks of an extent in chunks that are owned are in use, or none. */
bool lpi_fsck_is_used(const struct lpi_fsck_shard *shard, struct lp_extent extent);
bool lpi_fsck_is_unused(const struct lpi_fsck_shard *shard, struct lp_extent extent);
/* What is looked at is not to be looked at any more: the check ends. */
bool lpi_fsck_is_over(const struct lpi_fsck_shard *shard);
/* Maps of any shard may name blocks of any other. */
void lpi_fsck_doubt_all_maps(struct lpi_fsck *fsck);

/* --- Records ---------------------------------------------------------------------------------- */

struct lpi_fsck_cursor {
	struct lpi_fsck_shard *shard;
	struct lp_kv_iter *iter;
	enum lp_key_space space;
	bool is_quiet; /* an earlier cursor has told of damage already */
	bool is_at_end;
	struct lp_key_view view; /* of key; this and the next two unless at the end */
	struct lp_kv_bytes key;
	struct lp_kv_bytes value;
};

/* On the first record of the space whose key can be parsed. A part of the index that cannot be read
 * is found and ends it. */
int lpi_fsck_cursor_open(struct lpi_fsck_cursor *cursor, struct lpi_fsck_shard *shard,
			 enum lp_key_space space, bool is_quiet) LP_MUST_CHECK;
void lpi_fsck_cursor_next(struct lpi_fsck_cursor *cursor);
/* Zeroed ones too. */
void lpi_fsck_cursor_close(struct lpi_fsck_cursor *cursor);
/* Keys that are in no space of ours. */
int lpi_fsck_foreign_keys(struct lpi_fsck_shard *shard) LP_MUST_CHECK;
/* Marks of unfinished work whose keys cannot be parsed: a repair takes them away. */
int lpi_fsck_bad_marks(struct lpi_fsck_shard *shard) LP_MUST_CHECK;
/* The crc-checked key of a record, for the value decoders. */
void lpi_fsck_cursor_key(const struct lpi_fsck_cursor *cursor, struct lp_key *ret);

/* --- Phase 1 ---------------------------------------------------------------------------------- */

/* What is known of one inode number while its records go by. */
struct lpi_fsck_object {
	struct lp_ino ino;
	bool has_record;
	bool is_sound; /* the record could be read: inode is valid */
	struct lp_inode inode;
	bool has_unfinished; /* in any form */
	struct lp_extmap map;
	bool has_map; /* map is valid: a root that could be read */
	uint64_t leaves_cnt;
	uint64_t run_leaves_cnt; /* of these, those that a run names */
	uint64_t blocks_cnt;
	bool has_bad_leaf;
	bool told_stray;
	bool told_size;
};

int lpi_fsck_walk(struct lpi_fsck_shard *shard) LP_MUST_CHECK;

/* The map of a sound inode; then each of its leaves; then the end. */
int lpi_fsck_map_begin(struct lpi_fsck_shard *shard, struct lpi_fsck_object *object) LP_MUST_CHECK;
int lpi_fsck_map_leaf(struct lpi_fsck_shard *shard, struct lpi_fsck_object *object,
		      const struct lpi_fsck_cursor *cursor) LP_MUST_CHECK;
/* Whether they are as many as it says; not when some could not be looked at. */
void lpi_fsck_map_judge(struct lpi_fsck_shard *shard, struct lpi_fsck_object *object);
void lpi_fsck_map_end(struct lpi_fsck_object *object);

/* Records of the inode that are there without it, or that it has no room for; told once. */
void lpi_fsck_found_stray(struct lpi_fsck_shard *shard, struct lpi_fsck_object *object,
			  const char *what);

/* A leaf with room for the most. */
struct lpi_fsck_leaf {
	_Alignas(8) uint8_t bytes[sizeof(struct lpi_leaf) +
				  LPI_LEAF_BLOCKS * (sizeof(uint64_t) + sizeof(uint32_t))];
};
/* NULL for one that cannot be read. */
struct lpi_leaf *lpi_fsck_leaf_read(struct lpi_fsck_leaf *memory, struct lp_kv_bytes bytes,
				    struct lp_ino ino, uint64_t block);
/* Calls back for each extent of each leaf of the shard that can be read. */
int lpi_fsck_each_word(struct lpi_fsck_shard *shard,
		       void (*each)(void *arg, struct lp_ino ino, uint64_t word),
		       void *arg) LP_MUST_CHECK;

/* --- Deep ------------------------------------------------------------------------------------- */

int lpi_fsck_deep_new(struct lpi_fsck_shard *shard, struct lpi_fsck_deep **ret) LP_MUST_CHECK;
/* Blocks of a file, with their crcs, to be read some time; what was found before is told. */
void lpi_fsck_deep_add(struct lpi_fsck_deep *deep, struct lp_ino ino, uint64_t logical,
		       struct lp_extent extent, const uint32_t *crcs);
/* Until all was read. */
void lpi_fsck_deep_finish(struct lpi_fsck_deep *deep);
void lpi_fsck_deep_free(struct lpi_fsck_deep *deep);

/* --- Deferred payloads in the index ----------------------------------------------------------- */

/* Reads the records; those that cannot be read or are outside of the shard's space are found. */
int lpi_fsck_deferred_new(struct lpi_fsck_shard *shard,
			  struct lpi_fsck_deferred **ret) LP_MUST_CHECK;
/* An extent of a file within the chunks, with a crc for each block. */
void lpi_fsck_deferred_see(struct lpi_fsck_deferred *deferred, struct lp_ino ino, uint64_t logical,
			   struct lp_extent extent, const uint32_t *crcs, bool is_shared);
/* All extents were seen: those of no use are found. */
void lpi_fsck_deferred_finish(struct lpi_fsck_deferred *deferred);
void lpi_fsck_deferred_free(struct lpi_fsck_deferred *deferred);

/* --- The other phases ------------------------------------------------------------------------- */

/* Takes what is named. */
int lpi_fsck_space_named(struct lpi_fsck_shard *shard) LP_MUST_CHECK;
/* Frees what is not. */
int lpi_fsck_space_unnamed(struct lpi_fsck_shard *shard) LP_MUST_CHECK;
int lpi_fsck_refs(struct lpi_fsck_shard *shard) LP_MUST_CHECK;
int lpi_fsck_links(struct lpi_fsck *fsck) LP_MUST_CHECK;

/* --- Repairs ---------------------------------------------------------------------------------- */

/* value.data NULL deletes. Collected; durable after lpi_fsck_settle(). */
int lpi_fsck_put(struct lpi_fsck_shard *shard, struct lp_kv_bytes key,
		 struct lp_kv_bytes value) LP_MUST_CHECK;
int lpi_fsck_free(struct lpi_fsck_shard *shard, struct lp_extent extent) LP_MUST_CHECK;
/* -EBUSY: not all of it can be had. */
int lpi_fsck_take(struct lpi_fsck_shard *shard, struct lp_extent extent) LP_MUST_CHECK;
int lpi_fsck_settle(struct lpi_fsck_shard *shard) LP_MUST_CHECK;
void lpi_fsck_turn(struct lpi_fsck_shard *shard);
/* Wall time, for records that want one. */
int64_t lpi_fsck_now_ns(const struct lpi_fsck *fsck);

#endif
