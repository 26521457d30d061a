/* SPDX-License-Identifier: Apache-2.0 */
/* Histogram of latencies (or other numbers) with fixed memory and a bounded relative error.
 *
 * Threads: a struct lp_hist belongs to one; others are given copies.
 * Blocking, memory: none.
 * Limits: values above LP_HIST_VALUE_MAX are counted in the last bucket. The sum wraps at 2^64 (584
 *   years, in nanoseconds).
 *
 * Values below 64 have a bucket each. From there every power of two has 32 buckets of equal width,
 * so a percentile is at most 1/32 (3.1 %) above the true value and never below it. Count, sum,
 * smallest and greatest value are exact. The struct is about 9 KiB, embeddable, and all zeros
 * except min when empty.
 */
#ifndef LP_BASE_STRUCT_HIST_H
#define LP_BASE_STRUCT_HIST_H

#include "base/compiler.h"

#define LP_HIST_SUB_BITS   5
#define LP_HIST_VALUE_BITS 40
#define LP_HIST_VALUE_MAX  ((UINT64_C(1) << LP_HIST_VALUE_BITS) - 1)
#define LP_HIST_BUCKET_CNT ((size_t)(LP_HIST_VALUE_BITS - LP_HIST_SUB_BITS + 1) << LP_HIST_SUB_BITS)

/* Percentiles are given in parts per million, so that 99.99 % is exact. */
#define LP_HIST_P50   500000U
#define LP_HIST_P95   950000U
#define LP_HIST_P99   990000U
#define LP_HIST_P999  999000U
#define LP_HIST_P9999 999900U
#define LP_HIST_P100  1000000U

struct lp_hist {
	uint64_t count;
	uint64_t sum;
	uint64_t min; /* UINT64_MAX when empty */
	uint64_t max; /* 0 when empty */
	uint64_t buckets[LP_HIST_BUCKET_CNT];
};

struct lp_hist_bucket {
	uint64_t low;  /* smallest value that is counted here */
	uint64_t high; /* greatest; UINT64_MAX in the last bucket */
	uint64_t count;
};

/* Also empties a used one. */
void lp_hist_reset(struct lp_hist *hist);

/* The bucket of a value: no branch, a handful of instructions. */
static inline size_t lp_hist_index(uint64_t value)
{
	value = LP_MIN(value, LP_HIST_VALUE_MAX);
	/* The bit put in makes all values below 64 come out with shift 0, as themselves. */
	unsigned top = 63U - (unsigned)__builtin_clzll(value | (UINT64_C(1) << LP_HIST_SUB_BITS));
	unsigned shift = top - LP_HIST_SUB_BITS;
	return ((size_t)shift << LP_HIST_SUB_BITS) + (size_t)(value >> shift);
}

static inline void lp_hist_record(struct lp_hist *hist, uint64_t value)
{
	hist->count++;
	hist->sum += value;
	hist->min = LP_MIN(hist->min, value);
	hist->max = LP_MAX(hist->max, value);
	hist->buckets[lp_hist_index(value)]++;
}

/* Adds the counts of `from`. */
void lp_hist_merge(struct lp_hist *hist, const struct lp_hist *from);

/* Takes away the counts of `earlier`, a former copy of this histogram. The interval between the two
 * is left. Its count and sum are exact. Its min and max are the bounds of the outermost buckets
 * that are not empty, limited to those of the whole. */
void lp_hist_subtract(struct lp_hist *hist, const struct lp_hist *earlier);

/* The smallest bound that at least ppm millionths of the values do not exceed; the exact minimum
 * for 0 and maximum for LP_HIST_P100. 0 when empty. ppm <= LP_HIST_P100. */
uint64_t lp_hist_percentile(const struct lp_hist *hist, uint32_t ppm);

/* 0 when empty. */
double lp_hist_mean(const struct lp_hist *hist);

/* Walks the buckets that are not empty, smallest values first: start with *pos = 0; false at the
 * end. */
bool lp_hist_next(const struct lp_hist *hist, size_t *pos, struct lp_hist_bucket *ret_bucket);

#endif
