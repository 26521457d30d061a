/* SPDX-License-Identifier: Apache-2.0 */
/* Leaf of an extent map: extents of 64 logical blocks and their crcs, edited and encoded.
 *
 * Threads: one.
 * Blocking: none.
 * Memory: the caller's. A leaf is one piece of memory that holds at most words_max extents and
 * crcs for its first crcs_max blocks, so that a small file's leaf is small. The editor has made
 * sure of the room (lpi_leaf_copy() into a larger one).
 * Errors: decoding says -EBADMSG or -EUCLEAN, by lp_corrupt().
 *
 * In memory an extent is the same 64-bit word as in the format (docs/format/extmap.md). Extents
 * are sorted, disjoint, and as few as possible: neighbours that continue each other are one.
 */
#ifndef LP_STORE_EXTMAP_LEAF_H
#define LP_STORE_EXTMAP_LEAF_H

#include "base/struct/list.h"
#include "format/extmap.h"
#include "store/record/types.h"

#define LPI_LEAF_BLOCKS      64u
#define LPI_LEAF_SHIFT       6u
#define LPI_LEAF_DEVICE_BITS 48u
#define LPI_LEAF_BYTES_MAX                                                                         \
	(LP_EXTMAP_LEAF_HEAD_SIZE + LPI_LEAF_BLOCKS * (sizeof(uint64_t) + sizeof(uint32_t)))

struct lpi_leaf {
	struct lp_list_node dirty_node; /* the map's */
	uint32_t idx;
	uint8_t words_cnt;  /* 0: maps nothing */
	uint8_t words_max;  /* 1 to 64 */
	uint8_t crcs_max;   /* 1 to 64: no written block lies beyond */
	bool is_stored : 1; /* the map's: an X key exists, or will by a batch under way */
	bool is_owed : 1;   /* the map's: clean, and not in the index yet */
	bool is_used : 1;   /* the map's: looked at since the clock's hand passed */
	uint64_t words[];   /* words_max extents, then crcs_max crcs; 0 for a block not written */
};

/* Where old extents go: the caller's memory. */
struct lp_extmap_release {
	struct lp_extent extent;
	bool is_shared; /* to be dereferenced, not freed (rule S4) */
};

struct lp_extmap_released {
	struct lp_extmap_release *items;
	size_t cnt;
	size_t max;
};

enum lpi_leaf_action {
	LPI_LEAF_REPLACE,      /* what was in the range is released, `insert` comes in its place */
	LPI_LEAF_MARK_WRITTEN, /* all of the range was unwritten */
	LPI_LEAF_MARK_SHARED,  /* what is written becomes shared */
};

struct lpi_leaf_edit {
	enum lpi_leaf_action action;
	uint32_t first; /* blocks of the leaf: first <= b < end */
	uint32_t end;
	const uint64_t *insert; /* REPLACE: sorted extents within the range */
	uint32_t insert_cnt;
	const uint32_t *crcs;                /* of each block of the range; NULL: zeros */
	struct lp_extmap_released *released; /* REPLACE */
};

static inline uint64_t lpi_word(uint64_t block, uint32_t first, uint32_t cnt, uint64_t flags)
{
	LP_ASSERT(cnt > 0 && first + cnt <= LPI_LEAF_BLOCKS);
	LP_ASSERT(block >> LPI_LEAF_DEVICE_BITS == 0);
	return block | (uint64_t)first << 48 | (uint64_t)(cnt - 1) << 54 | flags;
}

static inline uint64_t lpi_word_block(uint64_t word)
{
	return word & ((UINT64_C(1) << LPI_LEAF_DEVICE_BITS) - 1);
}

static inline uint32_t lpi_word_first(uint64_t word)
{
	return (uint32_t)(word >> 48) & 63;
}

static inline uint32_t lpi_word_cnt(uint64_t word)
{
	return ((uint32_t)(word >> 54) & 63) + 1;
}

static inline uint32_t lpi_word_end(uint64_t word)
{
	return lpi_word_first(word) + lpi_word_cnt(word);
}

static inline uint64_t lpi_word_flags(uint64_t word)
{
	return word & LP_EXTMAP_FLAG_ALL;
}

static inline bool lpi_word_is_unwritten(uint64_t word)
{
	return (word & LP_EXTMAP_FLAG_UNWRITTEN) != 0;
}

/* Appends a word, or makes the last one longer where it continues that. */
void lpi_words_push(uint64_t *words, uint32_t *cnt, uint64_t word);

static inline size_t lpi_leaf_bytes(uint32_t words_max, uint32_t crcs_max)
{
	return sizeof(struct lpi_leaf) + words_max * sizeof(uint64_t) + crcs_max * sizeof(uint32_t);
}

static inline uint32_t *lpi_leaf_crcs(struct lpi_leaf *leaf)
{
	return (uint32_t *)(void *)(leaf->words + leaf->words_max);
}

/* 0 for a block that is not written, whether or not the leaf has room for its crc. */
uint32_t lpi_leaf_crc(const struct lpi_leaf *leaf, uint32_t block);

/* The memory is of lpi_leaf_bytes(words_max, crcs_max), aligned for 8. */
void lpi_leaf_init(struct lpi_leaf *leaf, uint32_t idx, uint32_t words_max, uint32_t crcs_max);
/* Copies what the leaf maps and its marks, but for the list node. `to` was initialised, with room
 * enough, and maps nothing. */
void lpi_leaf_copy(struct lpi_leaf *to, const struct lpi_leaf *from);

/* The least crcs_max: one more than the last written block; 0 when none is. */
uint32_t lpi_leaf_crcs_end(const struct lpi_leaf *leaf);

/* Blocks mapped. */
uint32_t lpi_leaf_blocks(const struct lpi_leaf *leaf);

/* How many extents have a block in [first, end): at most so many are released. */
uint32_t lpi_leaf_overlaps(const struct lpi_leaf *leaf, uint32_t first, uint32_t end);

/* Cannot fail. An edit adds at most insert_cnt + 1 extents, or 2 when it marks. The leaf has room
 * for them, and for crcs when there are some; the released list has room for lpi_leaf_overlaps().
 */
void lpi_leaf_edit(struct lpi_leaf *leaf, const struct lpi_leaf_edit *edit);

/* The word that maps the block, or NULL with *ret_end the block up to which nothing is mapped. */
const uint64_t *lpi_leaf_find(const struct lpi_leaf *leaf, uint32_t block, uint32_t *ret_end);

/* Writes at most LPI_LEAF_BYTES_MAX; returns how many. The leaf maps something. */
size_t lpi_leaf_encode(struct lpi_leaf *leaf, struct lp_ino ino, uint8_t *buf);

/* Checks everything a leaf can say. On success *ret_words is how many extents it has and
 * *ret_crcs_end the least crcs_max for it. */
int lpi_leaf_check(const void *bytes, size_t len, struct lp_ino ino, uint32_t idx,
		   uint32_t *ret_words, uint32_t *ret_crcs_end) LP_MUST_CHECK;
/* Fills a leaf that maps nothing, and has the room, from bytes that passed the check. */
void lpi_leaf_decode(struct lpi_leaf *leaf, const void *bytes, size_t len);

/* For LP_ASSERT_SLOW and tests. */
bool lpi_leaf_is_sound(const struct lpi_leaf *leaf);

#endif
