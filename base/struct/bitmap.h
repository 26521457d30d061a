/* SPDX-License-Identifier: Apache-2.0 */
/* Bits in words of 64: search, runs and ranges a word at a time.
 *
 * Threads: a bitmap belongs to one.
 * Blocking, memory, errors: none.
 *
 * Ranges are [from, to), with from <= to <= bit_cnt, which is asserted. A search that finds
 * nothing returns `to`. Bits of the last word beyond bit_cnt are never changed and do not matter.
 *
 * The struct borrows its words, lp_bitmap_word_cnt(bit_cnt) of them, in host byte order.
 */
#ifndef LP_BASE_STRUCT_BITMAP_H
#define LP_BASE_STRUCT_BITMAP_H

#include "base/assert.h"

#define LP_BITMAP_WORD_BITS 64
/* So that no sum of a position and a word overflows. */
#define LP_BITMAP_BIT_CNT_MAX (UINT64_C(1) << 62)

struct lp_bitmap {
	uint64_t *words;
	uint64_t bit_cnt;
};

static inline uint64_t lp_bitmap_word_cnt(uint64_t bit_cnt)
{
	return bit_cnt / LP_BITMAP_WORD_BITS + (bit_cnt % LP_BITMAP_WORD_BITS != 0);
}

/* Does not touch the words, which the caller may have zeroed or loaded. */
void lp_bitmap_init(struct lp_bitmap *bitmap, uint64_t *words, uint64_t bit_cnt);

static inline bool lp_bitmap_test(const struct lp_bitmap *bitmap, uint64_t pos)
{
	LP_ASSERT(pos < bitmap->bit_cnt);
	return (bitmap->words[pos / LP_BITMAP_WORD_BITS] >> (pos % LP_BITMAP_WORD_BITS) & 1) != 0;
}

void lp_bitmap_set(struct lp_bitmap *bitmap, uint64_t from, uint64_t to);
void lp_bitmap_clear(struct lp_bitmap *bitmap, uint64_t from, uint64_t to);

/* Whether all bits of the range are set (or clear); true for an empty range. */
bool lp_bitmap_is_set(const struct lp_bitmap *bitmap, uint64_t from, uint64_t to);
bool lp_bitmap_is_clear(const struct lp_bitmap *bitmap, uint64_t from, uint64_t to);

/* The number of set bits in the range. */
uint64_t lp_bitmap_count(const struct lp_bitmap *bitmap, uint64_t from, uint64_t to);

/* The first set, or clear, bit of the range. The length of the run that begins at `from` is the
 * result of lp_bitmap_find_set() (or _clear), minus from. */
uint64_t lp_bitmap_find_set(const struct lp_bitmap *bitmap, uint64_t from, uint64_t to);
uint64_t lp_bitmap_find_clear(const struct lp_bitmap *bitmap, uint64_t from, uint64_t to);

/* One past the last set bit of the range; `from` when there is none. */
uint64_t lp_bitmap_find_set_end(const struct lp_bitmap *bitmap, uint64_t from, uint64_t to);

/* The first run of cnt clear bits that lies wholly in the range; its start. cnt > 0. A search for a
 * long run reads only a part of the words. */
uint64_t lp_bitmap_find_clear_run(const struct lp_bitmap *bitmap, uint64_t from, uint64_t to,
				  uint64_t cnt);

#endif
