/* SPDX-License-Identifier: Apache-2.0 */
/* Extent map of one inode, in memory: where each block of a file lies, and its crc32c.
 *
 * Threads: one.
 * Blocking: none. A call handles at most LP_EXTMAP_RANGE_MAX blocks, or says so.
 * Memory: the caller embeds the map. Leaves are the map's, from its struct lp_extmap_mem.
 * Errors: -EAGAIN, -ENOMEM, -EUCLEAN, -EBADMSG as said. After any of them the map says what it
 * said before.
 * Limits: 2^32 blocks (16 TiB) a file, device blocks below 2^48.
 *
 * A file is cut into leaves of 64 blocks (256 KiB), the design's X shards: leaf N has the blocks
 * from 64 N on. The root, in the inode's record, says how much there is and which leaves exist. A
 * map of leaf 0 alone keeps that leaf in the root (docs/format/extmap.md). Leaves are loaded when
 * needed, and each is encoded by itself.
 *
 * Two steps make a change. lp_extmap_reserve() loads nothing and changes nothing that can be
 * seen. It says -EAGAIN when a leaf of the range is not in memory (lp_extmap_missing() names what
 * to read), and -ENOMEM when memory is short. Otherwise it makes room for the worst case, and the
 * change after it cannot fail. A reservation holds until the next change, reservation or
 * lp_extmap_unreserve(). Loading leaves does not touch it, and unloading spares its leaves. There
 * is one at a time.
 *
 * Leaves that are not in memory: where the root's runs name all leaves, a leaf that is not named
 * is a hole, and one that is named must be there (-EUCLEAN if not). Very sparse files may have
 * leaves that the root does not name; for these the index is asked. The caller unloads a leaf
 * only when its newest value can be read back: the batch that lp_extmap_take_dirty() gave it for
 * is in the index (rule W1).
 *
 * Why a fixed grid of 64 blocks. A 4 KiB overwrite encodes one leaf again: 8 bytes of head, 8 per
 * extent, 4 per block. Of a file of 1 GiB in large extents (bench/programs/extmap_bench_main.c):
 *     blocks per leaf        16     32     64    128    400   1024
 *     bytes per overwrite    80    144    272    528   1616   4112   without the key of 17
 *     leaves              16384   8192   4096   2048    656    256
 *     KiB in the index     1552   1288   1156   1090   1046   1032
 * The payload is written twice, to the log and to its place. The target of 2.6 x leaves 0.6 x
 * 4096 = 2458 bytes for all else. 64 blocks spend 289 of these in the log, and leave room for
 * RocksDB to write the leaf another seven times. 128 leave room for three. Below 64 the savings,
 * at most 200 bytes, are small beside the payload. Every halving doubles the keys, each of which
 * costs in batch, memtable and SST. A leaf of 64 extents, the worst, is 776 bytes, so no leaf
 * ever has to be split. Its place follows from its number, so no list of leaves grows with the
 * file. A write of 4 MiB puts 16 leaves.
 */
#ifndef LP_STORE_EXTMAP_EXTMAP_H
#define LP_STORE_EXTMAP_EXTMAP_H

#include "store/extmap/leaf.h"
#include "store/extmap/runs.h"

#define LP_EXTMAP_LEAF_BLOCKS     LPI_LEAF_BLOCKS
#define LP_EXTMAP_BLOCKS_MAX      (UINT64_C(1) << 32)
#define LP_EXTMAP_LEAVES_MAX      (LP_EXTMAP_BLOCKS_MAX / LP_EXTMAP_LEAF_BLOCKS)
#define LP_EXTMAP_RANGE_MAX       UINT64_C(65536) /* blocks of one call: 256 MiB */
#define LP_EXTMAP_LEAF_BYTES_MAX  LPI_LEAF_BYTES_MAX
#define LP_EXTMAP_ROOT_BYTES_MAX  (LP_EXTMAP_ROOT_SIZE + LP_EXTMAP_LEAF_BYTES_MAX)
#define LP_EXTMAP_STEP_LEAVES_MAX 256u /* of one lp_extmap_truncate_step() */

/* Where the memory comes from. alloc may return NULL. */
struct lp_extmap_mem {
	void *(*alloc)(void *arg, size_t bytes);
	void (*free)(void *arg, void *memory, size_t bytes);
	void *arg;
};

/* Logical blocks: first <= b < first + cnt. */
struct lp_extmap_range {
	uint64_t first;
	uint64_t cnt;
};

/* Leaves, or the numbers of leaves: first <= n <= last. */
struct lp_extmap_leaves {
	uint32_t first;
	uint32_t last;
};

LP_LIST_DEFINE(lpi_leaf_list, struct lpi_leaf, dirty_node);

/* All fields are private. */
struct lp_extmap {
	struct lp_ino ino;
	const struct lp_extmap_mem *mem;
	uint64_t blocks_cnt;        /* mapped, in memory or not */
	uint64_t loaded_blocks_cnt; /* mapped by leaves in memory */
	uint32_t leaves_cnt;        /* that map something, in memory or not */
	uint32_t loaded_cnt;        /* that map something, in memory */
	uint32_t unnamed_cnt;       /* of these, in no run */
	uint32_t objects_cnt;       /* in memory, empty ones included: hash table of them */
	uint32_t table_bits;
	struct lpi_leaf **table; /* NULL while table_bits is 0: then only one leaf */
	struct lpi_leaf *one;
	struct lpi_runs runs;
	struct lpi_ahead *ahead; /* of a large table with leaves that no run names, or NULL */
	uint32_t known_first;    /* leaves n, known_first <= n < known_end: each that exists is in
				    memory */
	uint32_t known_end;      /* or in a run */
	uint32_t hand;           /* place in the table where lp_extmap_shrink() goes on */
	struct lp_extmap_leaves missing;
	struct lp_extmap_range reserved; /* cnt 0: none */
	struct lpi_leaf_list dirty;
	uint32_t owed_cnt; /* leaves, clean ones, whose newest piece the index has not got yet */
	size_t bytes;      /* of leaves, table, runs and what is ahead */
	bool is_inline;
	bool root_dirty;
};

enum lp_extmap_segment_kind {
	LP_EXTMAP_HOLE,
	LP_EXTMAP_UNWRITTEN, /* reads as zeros, has space */
	LP_EXTMAP_DATA,
};

/* A run of logical blocks of one kind, contiguous on the device unless a hole. */
struct lp_extmap_segment {
	struct lp_extmap_range range;
	uint64_t block; /* on the device; 0 for a hole */
	enum lp_extmap_segment_kind kind;
	bool is_shared;
};

/* What takes the place of a range: extents in the order of the file. */
struct lp_extmap_new {
	const struct lp_extent *extents; /* together as many blocks as the range */
	size_t extents_cnt;
	const uint32_t *crcs; /* one per block; NULL: unwritten */
	bool is_shared;       /* a clone's; not with unwritten */
};

/* A leaf to be written to the index. */
struct lp_extmap_piece {
	uint64_t block; /* of its X key */
	size_t len;     /* 0: the key is to be deleted */
	bool is_owed;   /* to the index (commit/owed_records.h): there was a piece before, which it
			   replaces */
};

/* --- birth and death ---------------------------------------------------------------------- */

/* An empty map. mem NULL is malloc; it outlives the map, which stays in place until fini. */
void lp_extmap_init(struct lp_extmap *map, struct lp_ino ino, const struct lp_extmap_mem *mem);
/* Also with dirty leaves, which are lost: after a failed commit all is read again (rule L7). */
void lp_extmap_fini(struct lp_extmap *map);

/* Fills an empty map from a root; len 0 is the root of a map of nothing. */
int lp_extmap_load_root(struct lp_extmap *map, const void *bytes, size_t len) LP_MUST_CHECK;

/* --- leaves ------------------------------------------------------------------------------- */

/* After -EAGAIN: the first of these is needed and not in memory; those after it are needed too, or
 * not there. Read the X keys from 64 * first to 64 * last (an iterator, or a get where first is
 * last), give what is found to lp_extmap_load(), say so by lp_extmap_loaded(), then retry. To stop
 * early, for instance at the first that is found, give lp_extmap_loaded() that one as the last. */
static inline struct lp_extmap_leaves lp_extmap_missing(const struct lp_extmap *map)
{
	return map->missing;
}
/* The leaf of an X key's block: -EUCLEAN when no leaf begins there. */
int lp_extmap_leaf_of_key(const struct lp_extmap *map, uint64_t block,
			  uint32_t *ret_idx) LP_MUST_CHECK;
/* -EBADMSG, -EUCLEAN, -ENOMEM. A leaf that is in memory already is left as it is. */
int lp_extmap_load(struct lp_extmap *map, uint32_t idx, const void *bytes,
		   size_t len) LP_MUST_CHECK;
/* All of these were looked for, and what was found was loaded. -EUCLEAN when one that the root
 * names was not. */
int lp_extmap_loaded(struct lp_extmap *map, struct lp_extmap_leaves leaves) LP_MUST_CHECK;

/* -EBUSY when it is dirty, owed, reserved, or in the root; 0 also when it was not in memory. */
int lp_extmap_unload(struct lp_extmap *map, uint32_t idx) LP_MUST_CHECK;
/* Unloads what has not been looked at lately, until `bytes` are free or all was seen twice.
 * Returns how many bytes came free. */
size_t lp_extmap_shrink(struct lp_extmap *map, size_t bytes);

/* What the map takes, without struct lp_extmap itself. */
static inline size_t lp_extmap_bytes(const struct lp_extmap *map)
{
	return map->bytes;
}

/* The next leaf that must be written, which is then clean: false when there is none. At most
 * LP_EXTMAP_LEAF_BYTES_MAX bytes. Leaves first, then the root: both into one commit. */
bool lp_extmap_take_dirty(struct lp_extmap *map, uint8_t *buf, struct lp_extmap_piece *ret);
/* The same; the piece may be owed. Then the leaf stays in memory until it is paid, or has changed
 * again. */
bool lp_extmap_take_or_owe(struct lp_extmap *map, uint8_t *buf, struct lp_extmap_piece *ret);
static inline uint32_t lp_extmap_owed_cnt(const struct lp_extmap *map)
{
	return map->owed_cnt;
}
/* As lp_extmap_take_dirty(), of the piece at that block if it is owed, which it is no more then;
 * false when it is not. */
bool lp_extmap_pay(struct lp_extmap *map, uint64_t block, uint8_t *buf,
		   struct lp_extmap_piece *ret);
/* True when the root changed since it was last encoded, so that the inode must be written. */
static inline bool lp_extmap_root_is_dirty(const struct lp_extmap *map)
{
	return map->root_dirty;
}
/* At most LP_EXTMAP_ROOT_BYTES_MAX; returns how many, 0 for a map of nothing. The root is clean
 * then. */
size_t lp_extmap_encode_root(struct lp_extmap *map, uint8_t *buf);

/* --- questions ---------------------------------------------------------------------------- */

/* Blocks with space of their own, unwritten ones included. */
static inline uint64_t lp_extmap_blocks(const struct lp_extmap *map)
{
	return map->blocks_cnt;
}

/* All that is mapped lies in leaf 0, which is in memory with the root. */
static inline bool lp_extmap_is_small(const struct lp_extmap *map)
{
	return map->is_inline;
}

/* What the range is made of: at most `max` segments, in order and without gaps; they end before
 * the range does only when there are more. crcs, if not NULL, gets one per block of what the
 * segments cover, that of zeros for holes and unwritten blocks. Returns the number of segments
 * (> 0), or -EAGAIN. */
int lp_extmap_lookup(struct lp_extmap *map, struct lp_extmap_range range,
		     struct lp_extmap_segment *ret_segments, int max,
		     uint32_t *ret_crcs) LP_MUST_CHECK;

/* 1 when every block is written and not shared, so that it may be overwritten in place (rule S4);
 * 0 when not; -EAGAIN. */
int lp_extmap_can_overwrite(struct lp_extmap *map, struct lp_extmap_range range) LP_MUST_CHECK;

enum lp_extmap_seek {
	LP_EXTMAP_SEEK_DATA,      /* written */
	LP_EXTMAP_SEEK_HOLE,      /* not written: the end of the map counts as one */
	LP_EXTMAP_SEEK_ALLOCATED, /* written or unwritten */
	LP_EXTMAP_SEEK_FREE,      /* neither: the end of the map counts as one */
};

/* The first such block from `from` on. 0; 1 when none was found yet, and *ret_block is where to go
 * on; -ENXIO when there is none; -EAGAIN. For a walk over all extents: seek what is allocated, look
 * up from there. */
int lp_extmap_seek(struct lp_extmap *map, uint64_t from, enum lp_extmap_seek what,
		   uint64_t *ret_block) LP_MUST_CHECK;

/* --- changes ------------------------------------------------------------------------------ */

/* Prepares one change of the range, in which at most extents_max new extents come: 0 for punch and
 * marks. Returns how many entries its released list may get, at most one per block;
 * -EAGAIN; -ENOMEM. */
int lp_extmap_reserve(struct lp_extmap *map, struct lp_extmap_range range,
		      size_t extents_max) LP_MUST_CHECK;
/* The change will not come. */
void lp_extmap_unreserve(struct lp_extmap *map);

/* These need a reservation that holds the range, and use it up. Released extents are appended to
 * the list, joined with its last entry where they continue it. */
void lp_extmap_replace(struct lp_extmap *map, struct lp_extmap_range range,
		       const struct lp_extmap_new *fresh, struct lp_extmap_released *released);
void lp_extmap_punch(struct lp_extmap *map, struct lp_extmap_range range,
		     struct lp_extmap_released *released);
/* All of the range is unwritten; crcs: one per block. */
void lp_extmap_mark_written(struct lp_extmap *map, struct lp_extmap_range range,
			    const uint32_t *crcs);
/* The source of a clone: what is written becomes shared. The clone gets the same extents, as
 * lookup finds them, by lp_extmap_replace() with is_shared; unwritten ones are left out, for a hole
 * reads the same. */
void lp_extmap_mark_shared(struct lp_extmap *map, struct lp_extmap_range range);

/* New contents in the same place: lp_extmap_can_overwrite() said 1. No reservation. */
void lp_extmap_update_crcs(struct lp_extmap *map, struct lp_extmap_range range,
			   const uint32_t *crcs);

/* Punches everything from block `first` on, a bounded part at a time (rule S6). The list has room
 * for LP_EXTMAP_LEAF_BLOCKS more entries. 0 when nothing is left, 1 when there is more to do,
 * -EAGAIN, -ENOMEM. Uses the reservation. */
int lp_extmap_truncate_step(struct lp_extmap *map, uint64_t first,
			    struct lp_extmap_released *released) LP_MUST_CHECK;

/* Every leaf sound, all sums right: for LP_ASSERT_SLOW and tests. */
bool lpi_extmap_is_sound(const struct lp_extmap *map);

#endif
