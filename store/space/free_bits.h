/* SPDX-License-Identifier: Apache-2.0 */
/* Free blocks as a bitmap with summary levels: the constant-memory part of the allocator.
 *
 * Threads: one owner.
 * Blocking: none.
 * Memory: taken for the whole address range at once, but zeroed by the kernel: parts that were
 * never free cost address space only.
 * Errors: -ENOMEM from grow, which leaves all as it was.
 *
 * Private to store/ (store/space/alloc.h). Bit set = block free. The summaries spare a search
 * from looking at one bit after another.
 */
#ifndef LP_STORE_SPACE_FREE_BITS_H
#define LP_STORE_SPACE_FREE_BITS_H

#include "base/struct/bitmap.h"
#include "store/space/alloc.h"

/* 64^6 is LP_ALLOC_BLOCKS_MAX: 256 TiB. */
#define LPI_FREEBITS_LEVELS_MAX 6

struct lpi_freebits {
	uint64_t block_cnt; /* there is memory for: a multiple of 64 */
	uint64_t free_blocks;
	unsigned level_cnt; /* 0 before the first grow */
	/* Level 0 is the blocks, once. Above it, bit i says of word i below: is any bit set in it
	 * (of `any`), are all (of `full`)? The top level is one word. */
	struct lp_bitmap any[LPI_FREEBITS_LEVELS_MAX];
	struct lp_bitmap full[LPI_FREEBITS_LEVELS_MAX];
};

/* What is looked for. unit is a power of two: an extent begins and ends at its multiples. */
struct lpi_fit {
	uint64_t want;
	uint64_t unit;
	uint64_t from;   /* where the search starts; it goes around */
	bool is_patient; /* look at everything rather than give up after a while */
};

void lpi_freebits_init(struct lpi_freebits *bits);
void lpi_freebits_fini(struct lpi_freebits *bits);
/* Memory for blocks 0..block_cnt-1; what is there already is kept. Never shrinks. */
int lpi_freebits_grow(struct lpi_freebits *bits, uint64_t block_cnt) LP_MUST_CHECK;
uint64_t lpi_freebits_memory_bytes(const struct lpi_freebits *bits);

/* Asserts that none of the blocks was free, or that all were. */
void lpi_freebits_add(struct lpi_freebits *bits, struct lp_extent extent);
void lpi_freebits_remove(struct lpi_freebits *bits, struct lp_extent extent);

bool lpi_freebits_is_free(const struct lpi_freebits *bits, struct lp_extent extent);
/* The first free, or not free, block at or after pos; block_cnt when there is none. */
uint64_t lpi_freebits_find_free(const struct lpi_freebits *bits, uint64_t pos);
uint64_t lpi_freebits_find_used(const struct lpi_freebits *bits, uint64_t pos);
/* The first block of the free run that ends before `end`; `end` when the block before is not
 * free. */
uint64_t lpi_freebits_run_start(const struct lpi_freebits *bits, uint64_t end);

/* `want` blocks in one piece, the first that fit. False when there is no such run, or none was
 * found soon and the search was not patient. */
bool lpi_freebits_find_fit(const struct lpi_freebits *bits, const struct lpi_fit *fit,
			   struct lp_extent *ret_extent);
/* The longest of some runs, at most `want`; false only when no run holds one unit. */
bool lpi_freebits_find_part(const struct lpi_freebits *bits, const struct lpi_fit *fit,
			    struct lp_extent *ret_extent);

/* The blocks of [from, to) between the first and the last multiple of unit. */
static inline struct lp_extent lpi_usable(uint64_t from, uint64_t to, uint64_t unit)
{
	uint64_t first = lp_align_up(from, unit);
	uint64_t end = lp_align_down(to, unit);
	return (struct lp_extent){.block = first, .cnt = end > first ? end - first : 0};
}

#endif
