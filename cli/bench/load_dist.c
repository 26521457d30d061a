/* SPDX-License-Identifier: Apache-2.0 */
/* Zipf numbers are made by rejection from the integral (W. Hoermann and G. Derflinger, 1996): no
 * table, so that the number of places does not matter, and any exponent will do. A point under the
 * curve x^-theta is drawn by inverting its integral H, and rounded to rank k; it is taken when it
 * lies in the part that the bar of k, whose area is k^-theta, has of it. Almost all are. */
#include "cli/bench/load_dist.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/units.h"

#define TERM_MAX 64u
#define GOLDEN   0.6180339887498949 /* neighbours come far from each other, and from later ones */

/* --- Sizes ------------------------------------------------------------------------------------ */

static int parse_bytes(const char *text, uint64_t *ret_bytes)
{
	uint64_t bytes = 0;
	int err = lp_parse_bytes(text, &bytes);
	if (err == 0 && (bytes == 0 || bytes > UINT64_C(1) << 50))
		err = -ERANGE;
	if (err == 0)
		*ret_bytes = bytes;
	return err;
}

/* "4K", "4K-1M", "4K~1M", each perhaps with ":WEIGHT". The text is cut in pieces. */
static int parse_term(char *term, struct lpi_load_size *ret)
{
	struct lpi_load_size size = {.weight = 1};
	uint64_t weight = 1;
	char *colon = strchr(term, ':');
	int err = 0;
	if (colon != NULL) {
		*colon = '\0';
		err = lp_parse_number(colon + 1, 1, 1000000, &weight);
	}
	size.weight = (uint32_t)weight;
	char *dash = strpbrk(term, "-~");
	if (dash != NULL) {
		size.is_log = *dash == '~';
		*dash = '\0';
	}
	if (err == 0)
		err = parse_bytes(term, &size.low_bytes);
	size.high_bytes = size.low_bytes;
	if (err == 0 && dash != NULL)
		err = parse_bytes(dash + 1, &size.high_bytes);
	if (err == 0 && size.high_bytes < size.low_bytes)
		err = -ERANGE;
	if (err == 0)
		*ret = size;
	return err;
}

static void add_term(struct lpi_load_sizes *sizes, const struct lpi_load_size *size)
{
	uint64_t bits = size->low_bytes | size->high_bytes | sizes->unit_bytes;
	sizes->unit_bytes = bits & (~bits + 1);
	sizes->low_bytes = LP_MIN(sizes->low_bytes, size->low_bytes);
	sizes->high_bytes = LP_MAX(sizes->high_bytes, size->high_bytes);
	sizes->weight_sum += size->weight;
	sizes->items[sizes->cnt++] = *size;
}

int lpi_load_sizes_parse(const char *text, struct lpi_load_sizes *ret_sizes)
{
	struct lpi_load_sizes sizes = {.low_bytes = UINT64_MAX, .unit_bytes = LPI_LOAD_UNIT_MAX};
	const char *at = text;
	for (;;) {
		char term[TERM_MAX];
		struct lpi_load_size size = {.low_bytes = 0};
		size_t len = strcspn(at, ",");
		if (len == 0 || len >= sizeof(term) || sizes.cnt == LPI_LOAD_SIZES_MAX)
			return -EINVAL;
		memcpy(term, at, len);
		term[len] = '\0';
		int err = parse_term(term, &size);
		if (err < 0)
			return err;
		add_term(&sizes, &size);
		if (at[len] == '\0')
			break;
		at += len + 1;
	}
	*ret_sizes = sizes;
	return 0;
}

uint64_t lpi_load_mix(uint64_t number)
{
	uint64_t word = number + UINT64_C(0x9e3779b97f4a7c15);
	word = (word ^ word >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	word = (word ^ word >> 27) * UINT64_C(0x94d049bb133111eb);
	return word ^ word >> 31;
}

/* In [0, 1). */
static double unit(uint64_t random)
{
	return (double)(random >> 11) * 0x1p-53;
}

/* In [0, limit), which is below 2^53. */
static uint64_t scale(uint64_t random, uint64_t limit)
{
	return LP_MIN((uint64_t)(unit(random) * (double)limit), limit - 1);
}

static uint64_t pick_between(const struct lpi_load_size *size, uint64_t unit_bytes, uint64_t random)
{
	uint64_t span = (size->high_bytes - size->low_bytes) / unit_bytes + 1;
	if (!size->is_log)
		return size->low_bytes + scale(random, span) * unit_bytes;
	/* Each size has what is between it and the next one. */
	double low = (double)size->low_bytes;
	double times = (double)(size->high_bytes + unit_bytes) / low;
	double bytes = low * pow(times, unit(random));
	uint64_t steps = (uint64_t)((bytes - low) / (double)unit_bytes);
	return size->low_bytes + LP_MIN(steps, span - 1) * unit_bytes;
}

uint64_t lpi_load_sizes_pick(const struct lpi_load_sizes *sizes, uint64_t random)
{
	const struct lpi_load_size *size = sizes->items;
	uint64_t at = sizes->cnt == 1 ? 0 : scale(lpi_load_mix(~random), sizes->weight_sum);
	while (at >= size->weight) {
		at -= size->weight;
		size++;
	}
	if (size->low_bytes == size->high_bytes)
		return size->low_bytes;
	return pick_between(size, sizes->unit_bytes, random);
}

/* --- Places ----------------------------------------------------------------------------------- */

/* (e^x - 1) / x and log(1 + x) / x, also where x is nearly 0. */
static double grown(double x)
{
	return fabs(x) > 1e-8 ? expm1(x) / x : 1 + x / 2;
}

static double shrunk(double x)
{
	return fabs(x) > 1e-8 ? log1p(x) / x : 1 - x / 2;
}

/* The integral of x^-theta from 1 on, its inverse, and the curve itself. Written so that theta = 1
 * is nothing special. */
static double integral(double theta, double x)
{
	return log(x) * grown((1 - theta) * log(x));
}

static double inverse(double theta, double area)
{
	return exp(area * shrunk(fmax(area * (1 - theta), -1)));
}

static double curve(double theta, double x)
{
	return exp(-theta * log(x));
}

static uint64_t common_divisor(uint64_t a, uint64_t b)
{
	while (b != 0) {
		uint64_t rest = a % b;
		a = b;
		b = rest;
	}
	return a;
}

void lpi_load_places_init(struct lpi_load_places *places, enum lpi_load_order order, double theta,
			  uint64_t cnt)
{
	LP_ASSERT(cnt > 0 && theta > 0);
	*places = (struct lpi_load_places){.order = order, .cnt = cnt, .theta = theta};
	/* So that its product with a rank is a number of 64 bits, also where it has to grow. */
	uint64_t step_max = UINT64_MAX / cnt / 2;
	places->step = LP_MIN((uint64_t)((double)cnt * GOLDEN), step_max) | 1;
	while (common_divisor(places->step, cnt) != 1)
		places->step++;
	places->low = integral(theta, 1.5) - 1;
	places->high = integral(theta, (double)cnt + 0.5);
	places->near = 2 - inverse(theta, integral(theta, 2.5) - curve(theta, 2));
}

/* 1 is the most frequent. */
static uint64_t draw_rank(const struct lpi_load_places *places, struct lp_prng *prng)
{
	double last = (double)places->cnt;
	for (;;) {
		double area = places->high + lp_prng_unit(prng) * (places->low - places->high);
		double x = inverse(places->theta, area);
		double k = fmin(fmax(floor(x + 0.5), 1), last);
		if (k - x <= places->near ||
		    area >= integral(places->theta, k + 0.5) - curve(places->theta, k))
			return (uint64_t)k;
	}
}

uint64_t lpi_load_places_next(struct lpi_load_places *places, struct lp_prng *prng)
{
	uint64_t place = places->next;
	switch (places->order) {
	case LPI_LOAD_SEQUENTIAL:
		places->next = place + 1 == places->cnt ? 0 : place + 1;
		return place;
	case LPI_LOAD_UNIFORM:
		return lp_prng_below(prng, places->cnt);
	case LPI_LOAD_ZIPF:
		break;
	}
	uint64_t rank = draw_rank(places, prng);
	return (rank - 1) * places->step % places->cnt;
}
