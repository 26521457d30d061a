/* SPDX-License-Identifier: Apache-2.0 */
/* A value's bucket is its leading 6 bits (the first of which is always 1) and the position of the
 * highest. The index arithmetic in the header puts these ranges behind one another without gaps. */
#include "base/struct/hist.h"

#include <string.h>

#include "base/assert.h"

static uint64_t bucket_low(size_t idx)
{
	size_t row = idx >> LP_HIST_SUB_BITS;
	if (row < 2)
		return idx;
	uint64_t lead = (idx & ((1U << LP_HIST_SUB_BITS) - 1)) | (1U << LP_HIST_SUB_BITS);
	return lead << (row - 1);
}

static uint64_t bucket_high(size_t idx)
{
	return idx + 1 == LP_HIST_BUCKET_CNT ? UINT64_MAX : bucket_low(idx + 1) - 1;
}

void lp_hist_reset(struct lp_hist *hist)
{
	memset(hist, 0, sizeof(*hist));
	hist->min = UINT64_MAX;
}

void lp_hist_merge(struct lp_hist *hist, const struct lp_hist *from)
{
	hist->count += from->count;
	hist->sum += from->sum;
	hist->min = LP_MIN(hist->min, from->min);
	hist->max = LP_MAX(hist->max, from->max);
	for (size_t i = 0; i < LP_HIST_BUCKET_CNT; i++)
		hist->buckets[i] += from->buckets[i];
}

void lp_hist_subtract(struct lp_hist *hist, const struct lp_hist *earlier)
{
	LP_ASSERT(earlier->count <= hist->count);
	uint64_t min = UINT64_MAX;
	uint64_t max = 0;
	for (size_t i = 0; i < LP_HIST_BUCKET_CNT; i++) {
		LP_ASSERT(earlier->buckets[i] <= hist->buckets[i]);
		hist->buckets[i] -= earlier->buckets[i];
		if (hist->buckets[i] == 0)
			continue;
		min = LP_MIN(min, bucket_low(i));
		max = bucket_high(i);
	}
	hist->count -= earlier->count;
	hist->sum -= earlier->sum;
	hist->min = hist->count == 0 ? UINT64_MAX : LP_MAX(min, hist->min);
	hist->max = LP_MIN(max, hist->max);
}

/* The number of values that must lie at or below the answer: count * ppm / 10^6, rounded up. Split
 * so that no count overflows. */
static uint64_t rank_of(uint64_t count, uint32_t ppm)
{
	uint64_t whole = count / LP_HIST_P100 * ppm;
	uint64_t rest = count % LP_HIST_P100 * ppm;
	return whole + (rest + LP_HIST_P100 - 1) / LP_HIST_P100;
}

uint64_t lp_hist_percentile(const struct lp_hist *hist, uint32_t ppm)
{
	LP_ASSERT(ppm <= LP_HIST_P100);
	if (hist->count == 0)
		return 0;
	uint64_t rank = rank_of(hist->count, ppm);
	if (rank == 0)
		return hist->min;
	uint64_t seen = 0;
	for (size_t i = lp_hist_index(hist->min); i < LP_HIST_BUCKET_CNT; i++) {
		seen += hist->buckets[i];
		if (seen >= rank)
			return LP_MIN(bucket_high(i), hist->max);
	}
	LP_UNREACHABLE(); /* the buckets sum up to count */
}

double lp_hist_mean(const struct lp_hist *hist)
{
	return hist->count == 0 ? 0.0 : (double)hist->sum / (double)hist->count;
}

bool lp_hist_next(const struct lp_hist *hist, size_t *pos, struct lp_hist_bucket *ret_bucket)
{
	for (; *pos < LP_HIST_BUCKET_CNT; (*pos)++) {
		if (hist->buckets[*pos] == 0)
			continue;
		*ret_bucket = (struct lp_hist_bucket){.low = bucket_low(*pos),
						      .high = bucket_high(*pos),
						      .count = hist->buckets[*pos]};
		(*pos)++;
		return true;
	}
	return false;
}
