/* SPDX-License-Identifier: Apache-2.0 */
/* A search climbs until a level's word shows what it looks for and comes down again, so it costs
 * as much as there are levels. A change goes upwards only while a summary bit changes.
 *
 * The search for a long run skips from one completely free word to the next; one for a short run
 * goes from run to run, which is bounded unless the caller insists. */
#include "store/space/free_bits.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define WORD_BITS ((uint64_t)LP_BITMAP_WORD_BITS)
/* Runs of this length hold a free word wherever they begin. */
#define LONG_RUN (2 * WORD_BITS - 1)
/* What a search that is not patient looks at: this many runs, and for long ones this many words. */
#define FIT_RUNS_MAX  32u
#define FIT_WORDS_MAX (UINT64_C(1) << 14)
#define PART_RUNS_MAX 32u

void lpi_freebits_init(struct lpi_freebits *bits)
{
	*bits = (struct lpi_freebits){0};
}

void lpi_freebits_fini(struct lpi_freebits *bits)
{
	for (unsigned i = 0; i < bits->level_cnt; i++) {
		free(bits->any[i].words);
		if (i > 0)
			free(bits->full[i].words);
	}
	lpi_freebits_init(bits);
}

static uint64_t *words_new(uint64_t bit_cnt)
{
	return calloc(lp_bitmap_word_cnt(bit_cnt), sizeof(uint64_t));
}

/* New levels, all zero. */
static int build(struct lpi_freebits *bits, uint64_t block_cnt)
{
	bits->block_cnt = block_cnt;
	for (uint64_t cnt = block_cnt;; cnt = lp_bitmap_word_cnt(cnt)) {
		unsigned i = bits->level_cnt;
		LP_ASSERT(i < LPI_FREEBITS_LEVELS_MAX);
		uint64_t *any = words_new(cnt);
		uint64_t *full = i == 0 ? any : words_new(cnt);
		if (any == NULL || full == NULL) {
			free(any);
			if (full != any)
				free(full);
			lpi_freebits_fini(bits);
			return -ENOMEM;
		}
		lp_bitmap_init(&bits->any[i], any, cnt);
		lp_bitmap_init(&bits->full[i], full, cnt);
		bits->level_cnt++;
		if (cnt <= WORD_BITS)
			return 0;
	}
}

int lpi_freebits_grow(struct lpi_freebits *bits, uint64_t block_cnt)
{
	LP_ASSERT(block_cnt <= LP_ALLOC_BLOCKS_MAX);
	if (block_cnt <= bits->block_cnt)
		return 0;
	/* Half as much again, for a device that is learnt of piece by piece. */
	uint64_t target = LP_MAX(block_cnt, bits->block_cnt + bits->block_cnt / 2);
	target = LP_MIN(lp_align_up(target, WORD_BITS), LP_ALLOC_BLOCKS_MAX);
	struct lpi_freebits bigger = {0};
	int rc = build(&bigger, target);
	if (rc != 0)
		return rc;
	uint64_t pos = lpi_freebits_find_free(bits, 0);
	while (pos < bits->block_cnt) {
		uint64_t end = lpi_freebits_find_used(bits, pos);
		lpi_freebits_add(&bigger, (struct lp_extent){.block = pos, .cnt = end - pos});
		pos = lpi_freebits_find_free(bits, end);
	}
	LP_ASSERT(bigger.free_blocks == bits->free_blocks);
	lpi_freebits_fini(bits);
	*bits = bigger;
	return 0;
}

uint64_t lpi_freebits_memory_bytes(const struct lpi_freebits *bits)
{
	uint64_t bytes = 0;
	for (unsigned i = 0; i < bits->level_cnt; i++)
		bytes += lp_bitmap_word_cnt(bits->any[i].bit_cnt) * 8 * (i == 0 ? 1 : 2);
	return bytes;
}

/* Sets a bit to `value`; true when that changed it. */
static bool put_bit(struct lp_bitmap *bitmap, uint64_t pos, bool value)
{
	uint64_t *word = &bitmap->words[pos / WORD_BITS];
	uint64_t before = *word;
	uint64_t mask = UINT64_C(1) << (pos % WORD_BITS);
	*word = value ? before | mask : before & ~mask;
	return *word != before;
}

static bool summarize(struct lpi_freebits *bits, unsigned level, uint64_t word_idx)
{
	uint64_t any = bits->any[level - 1].words[word_idx];
	uint64_t full = bits->full[level - 1].words[word_idx];
	bool is_changed = put_bit(&bits->any[level], word_idx, any != 0);
	return put_bit(&bits->full[level], word_idx, full == UINT64_MAX) || is_changed;
}

/* Bits first..last of level 0 have become `value`: tells the levels above. */
static void propagate(struct lpi_freebits *bits, uint64_t first, uint64_t last, bool value)
{
	for (unsigned level = 1; level < bits->level_cnt; level++) {
		first /= WORD_BITS;
		last /= WORD_BITS;
		bool is_changed = summarize(bits, level, first);
		if (last != first && summarize(bits, level, last))
			is_changed = true;
		if (last > first + 1) {
			(value ? lp_bitmap_set : lp_bitmap_clear)(&bits->any[level], first + 1,
								  last);
			(value ? lp_bitmap_set : lp_bitmap_clear)(&bits->full[level], first + 1,
								  last);
			is_changed = true;
		}
		if (!is_changed)
			return;
	}
}

void lpi_freebits_add(struct lpi_freebits *bits, struct lp_extent extent)
{
	uint64_t end = lp_extent_end(extent);
	LP_ASSERT(extent.cnt > 0 && end <= bits->block_cnt);
	LP_ASSERT(lpi_freebits_find_free(bits, extent.block) >= end);
	lp_bitmap_set(&bits->any[0], extent.block, end);
	propagate(bits, extent.block, end - 1, true);
	bits->free_blocks += extent.cnt;
}

void lpi_freebits_remove(struct lpi_freebits *bits, struct lp_extent extent)
{
	LP_ASSERT(lpi_freebits_is_free(bits, extent));
	lp_bitmap_clear(&bits->any[0], extent.block, lp_extent_end(extent));
	propagate(bits, extent.block, lp_extent_end(extent) - 1, false);
	bits->free_blocks -= extent.cnt;
}

bool lpi_freebits_is_free(const struct lpi_freebits *bits, struct lp_extent extent)
{
	uint64_t end = lp_extent_end(extent);
	LP_ASSERT(extent.cnt > 0);
	return end <= bits->block_cnt && lpi_freebits_find_used(bits, extent.block) >= end;
}

/* levels are `any`, or, with flip all ones, `full`. A summary bit beyond the last word below reads
 * as "not full", hence the checks on the way down. */
static uint64_t find(const struct lpi_freebits *bits, const struct lp_bitmap *levels, uint64_t flip,
		     uint64_t pos)
{
	unsigned level = 0;
	uint64_t hits = 0;
	for (; level < bits->level_cnt; level++) {
		if (pos >= levels[level].bit_cnt)
			return bits->block_cnt;
		uint64_t idx = pos / WORD_BITS;
		hits = (levels[level].words[idx] ^ flip) & (UINT64_MAX << (pos % WORD_BITS));
		if (hits != 0)
			break;
		pos = idx + 1;
	}
	if (hits == 0)
		return bits->block_cnt;
	for (;;) {
		pos = pos / WORD_BITS * WORD_BITS + (uint64_t)__builtin_ctzll(hits);
		if (pos >= levels[level].bit_cnt)
			return bits->block_cnt;
		if (level == 0)
			return pos;
		hits = levels[--level].words[pos] ^ flip;
		LP_ASSERT(hits != 0);
		pos *= WORD_BITS;
	}
}

uint64_t lpi_freebits_find_free(const struct lpi_freebits *bits, uint64_t pos)
{
	return find(bits, bits->any, 0, pos);
}

uint64_t lpi_freebits_find_used(const struct lpi_freebits *bits, uint64_t pos)
{
	return find(bits, bits->full, UINT64_MAX, pos);
}

uint64_t lpi_freebits_run_start(const struct lpi_freebits *bits, uint64_t end)
{
	while (end > 0) {
		uint64_t word = bits->any[0].words[(end - 1) / WORD_BITS];
		unsigned above = (unsigned)(WORD_BITS - 1 - (end - 1) % WORD_BITS);
		uint64_t used = ~word << above;
		if (used != 0)
			return end - LP_MIN((uint64_t)__builtin_clzll(used), end);
		end -= WORD_BITS - above;
	}
	return 0;
}

/* Goes through the runs that start in [pos, end), as far as they can be of interest. */
struct scan {
	const struct lpi_freebits *bits;
	const struct lpi_fit *fit;
	uint64_t pos;
	uint64_t end;
	unsigned runs_left;
	uint64_t words_left; /* for long runs */
};

/* The start of a run that holds a free word, or `end`. */
static uint64_t next_long_run(struct scan *scan)
{
	const struct lp_bitmap *words = &scan->bits->full[1];
	uint64_t first = lp_bitmap_word_cnt(scan->pos);
	if (first >= words->bit_cnt)
		return scan->end;
	uint64_t to = first + LP_MIN(scan->words_left, words->bit_cnt - first);
	uint64_t idx = lp_bitmap_find_set(words, first, to);
	scan->words_left -= idx - first;
	if (idx == to)
		return scan->end;
	uint64_t start = idx * WORD_BITS;
	if (idx > 0) {
		uint64_t used = ~scan->bits->any[0].words[idx - 1];
		start -= used == 0 ? WORD_BITS : (uint64_t)__builtin_clzll(used);
	}
	return LP_MAX(start, scan->pos);
}

/* False at the end, or when patience is. */
static bool scan_next(struct scan *scan, struct lp_extent *ret_usable)
{
	if (scan->runs_left == 0 || scan->pos >= scan->end)
		return false;
	bool is_long = scan->fit->want >= LONG_RUN && scan->bits->level_cnt > 1;
	uint64_t start =
		is_long ? next_long_run(scan) : lpi_freebits_find_free(scan->bits, scan->pos);
	if (start >= scan->end)
		return false;
	scan->runs_left--;
	scan->pos = lpi_freebits_find_used(scan->bits, start);
	*ret_usable = lpi_usable(start, scan->pos, scan->fit->unit);
	return true;
}

bool lpi_freebits_find_fit(const struct lpi_freebits *bits, const struct lpi_fit *fit,
			   struct lp_extent *ret_extent)
{
	uint64_t from = fit->from < bits->block_cnt ? fit->from : 0;
	struct scan scan = {.bits = bits,
			    .fit = fit,
			    .runs_left = fit->is_patient ? UINT32_MAX : FIT_RUNS_MAX,
			    .words_left = fit->is_patient ? UINT64_MAX : FIT_WORDS_MAX};
	if (bits->free_blocks < fit->want)
		return false;
	/* First from `from`, then from the beginning, where the last run may go on beyond `from`.
	 */
	for (int pass = 0; pass < 2; pass++) {
		scan.pos = pass == 0 ? from : 0;
		scan.end = pass == 0 ? bits->block_cnt : from;
		struct lp_extent usable;
		while (scan_next(&scan, &usable)) {
			if (usable.cnt < fit->want)
				continue;
			*ret_extent = (struct lp_extent){.block = usable.block, .cnt = fit->want};
			return true;
		}
	}
	return false;
}

bool lpi_freebits_find_part(const struct lpi_freebits *bits, const struct lpi_fit *fit,
			    struct lp_extent *ret_extent)
{
	uint64_t from = fit->from < bits->block_cnt ? fit->from : 0;
	/* Every run is of interest, so none is skipped for being short. */
	struct lpi_fit any = {.want = 1, .unit = fit->unit};
	struct scan scan = {.bits = bits, .fit = &any, .runs_left = UINT32_MAX};
	struct lp_extent best = {0};
	unsigned seen = 0;
	for (int pass = 0; pass < 2; pass++) {
		scan.pos = pass == 0 ? from : 0;
		scan.end = pass == 0 ? bits->block_cnt : from;
		struct lp_extent usable;
		while ((seen < PART_RUNS_MAX || best.cnt == 0) && scan_next(&scan, &usable)) {
			seen++;
			if (usable.cnt > best.cnt)
				best = usable;
		}
	}
	if (best.cnt == 0)
		return false;
	best.cnt = LP_MIN(best.cnt, lp_align_down(fit->want, fit->unit));
	*ret_extent = best;
	return true;
}
