/* SPDX-License-Identifier: Apache-2.0 */
/* Each operation splits a range into a first word, words in between, and a last one. The masks of
 * the first and the last have the bits that belong to the range. */
#include "base/struct/bitmap.h"

#include <string.h>

#define WORD_BITS LP_BITMAP_WORD_BITS

/* A range that is not empty, in words. When first_idx == last_idx both masks apply. */
struct span {
	uint64_t first_idx;
	uint64_t last_idx;
	uint64_t first_mask;
	uint64_t last_mask;
};

static void check_range(const struct lp_bitmap *bitmap, uint64_t from, uint64_t to)
{
	LP_ASSERT(from <= to);
	LP_ASSERT(to <= bitmap->bit_cnt);
}

static struct span span_of(uint64_t from, uint64_t to)
{
	return (struct span){
		.first_idx = from / WORD_BITS,
		.last_idx = (to - 1) / WORD_BITS,
		.first_mask = UINT64_MAX << (from % WORD_BITS),
		.last_mask = UINT64_MAX >> (WORD_BITS - 1 - (to - 1) % WORD_BITS),
	};
}

void lp_bitmap_init(struct lp_bitmap *bitmap, uint64_t *words, uint64_t bit_cnt)
{
	LP_ASSERT(words != NULL || bit_cnt == 0);
	LP_ASSERT(bit_cnt <= LP_BITMAP_BIT_CNT_MAX);
	*bitmap = (struct lp_bitmap){.words = words, .bit_cnt = bit_cnt};
}

void lp_bitmap_set(struct lp_bitmap *bitmap, uint64_t from, uint64_t to)
{
	check_range(bitmap, from, to);
	if (from == to)
		return;
	struct span s = span_of(from, to);
	if (s.first_idx == s.last_idx) {
		bitmap->words[s.first_idx] |= s.first_mask & s.last_mask;
		return;
	}
	bitmap->words[s.first_idx] |= s.first_mask;
	memset(&bitmap->words[s.first_idx + 1], 0xff, (s.last_idx - s.first_idx - 1) * 8);
	bitmap->words[s.last_idx] |= s.last_mask;
}

void lp_bitmap_clear(struct lp_bitmap *bitmap, uint64_t from, uint64_t to)
{
	check_range(bitmap, from, to);
	if (from == to)
		return;
	struct span s = span_of(from, to);
	if (s.first_idx == s.last_idx) {
		bitmap->words[s.first_idx] &= ~(s.first_mask & s.last_mask);
		return;
	}
	bitmap->words[s.first_idx] &= ~s.first_mask;
	memset(&bitmap->words[s.first_idx + 1], 0, (s.last_idx - s.first_idx - 1) * 8);
	bitmap->words[s.last_idx] &= ~s.last_mask;
}

bool lp_bitmap_is_set(const struct lp_bitmap *bitmap, uint64_t from, uint64_t to)
{
	return lp_bitmap_find_clear(bitmap, from, to) == to;
}

bool lp_bitmap_is_clear(const struct lp_bitmap *bitmap, uint64_t from, uint64_t to)
{
	return lp_bitmap_find_set(bitmap, from, to) == to;
}

static uint64_t ones(uint64_t word)
{
	return (uint64_t)__builtin_popcountll(word);
}

uint64_t lp_bitmap_count(const struct lp_bitmap *bitmap, uint64_t from, uint64_t to)
{
	check_range(bitmap, from, to);
	if (from == to)
		return 0;
	struct span s = span_of(from, to);
	if (s.first_idx == s.last_idx)
		return ones(bitmap->words[s.first_idx] & s.first_mask & s.last_mask);
	uint64_t cnt = ones(bitmap->words[s.first_idx] & s.first_mask);
	for (uint64_t idx = s.first_idx + 1; idx < s.last_idx; idx++)
		cnt += ones(bitmap->words[idx]);
	return cnt + ones(bitmap->words[s.last_idx] & s.last_mask);
}

/* flip is all ones to search for a clear bit. The last word is not masked: a hit beyond `to` does
 * not count. */
static uint64_t find_first(const struct lp_bitmap *bitmap, uint64_t from, uint64_t to,
			   uint64_t flip)
{
	check_range(bitmap, from, to);
	if (from == to)
		return to;
	struct span s = span_of(from, to);
	uint64_t idx = s.first_idx;
	uint64_t word = (bitmap->words[idx] ^ flip) & s.first_mask;
	while (word == 0) {
		if (idx == s.last_idx)
			return to;
		word = bitmap->words[++idx] ^ flip;
	}
	uint64_t pos = idx * WORD_BITS + (uint64_t)__builtin_ctzll(word);
	return LP_MIN(pos, to);
}

uint64_t lp_bitmap_find_set(const struct lp_bitmap *bitmap, uint64_t from, uint64_t to)
{
	return find_first(bitmap, from, to, 0);
}

uint64_t lp_bitmap_find_clear(const struct lp_bitmap *bitmap, uint64_t from, uint64_t to)
{
	return find_first(bitmap, from, to, UINT64_MAX);
}

uint64_t lp_bitmap_find_set_end(const struct lp_bitmap *bitmap, uint64_t from, uint64_t to)
{
	check_range(bitmap, from, to);
	if (from == to)
		return from;
	struct span s = span_of(from, to);
	uint64_t idx = s.last_idx;
	uint64_t word = bitmap->words[idx] & s.last_mask;
	while (word == 0) {
		if (idx == s.first_idx)
			return from;
		word = bitmap->words[--idx];
	}
	uint64_t end = (idx + 1) * WORD_BITS - (uint64_t)__builtin_clzll(word);
	return LP_MAX(end, from);
}

/* A set bit in the window rules out every start up to itself. So the search looks for the last set
 * bit in it, and the next window begins behind that. */
uint64_t lp_bitmap_find_clear_run(const struct lp_bitmap *bitmap, uint64_t from, uint64_t to,
				  uint64_t cnt)
{
	check_range(bitmap, from, to);
	LP_ASSERT(cnt > 0);
	while (to - from >= cnt) {
		from = lp_bitmap_find_clear(bitmap, from, to);
		if (to - from < cnt)
			return to;
		uint64_t next = lp_bitmap_find_set_end(bitmap, from, from + cnt);
		if (next == from)
			return from;
		from = next;
	}
	return to;
}
