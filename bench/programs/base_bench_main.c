/* SPDX-License-Identifier: Apache-2.0 */
/* What the smallest parts cost, in nanoseconds a call: crc32c and its combination, recording in a
 * histogram, hashing. Question answered: may an operation of a few microseconds afford it?
 *
 * Each case is calibrated to rounds of ROUND_NS and run ROUND_CNT times; printed are the median
 * and the least of the rounds, for neighbours on the machine only ever add. Each checksum and hash
 * starts from the one before (latency, not throughput); the histogram's calls may overlap. All of
 * it runs from warm caches. */
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/crc32c.h"
#include "base/hash.h"
#include "base/prng.h"
#include "base/struct/hist.h"

#define ROUND_NS  (4 * LP_NS_PER_MS)
#define ROUND_CNT 15
#define BUF_BYTES 65536

static unsigned char buf[BUF_BYTES];
static struct lp_hist hist;
static uint64_t samples[4096]; /* latencies as they come: spread over some powers of two */

static uint64_t crc_of(uint64_t cnt, size_t len)
{
	uint32_t crc = 0;
	for (uint64_t i = 0; i < cnt; i++)
		crc = lp_crc32c(crc, buf, len);
	return crc;
}

static uint64_t crc_64(uint64_t cnt)
{
	return crc_of(cnt, 64);
}

static uint64_t crc_4k(uint64_t cnt)
{
	return crc_of(cnt, 4096);
}

static uint64_t crc_64k(uint64_t cnt)
{
	return crc_of(cnt, BUF_BYTES);
}

static uint64_t crc_4k_table(uint64_t cnt)
{
	uint32_t crc = 0;
	for (uint64_t i = 0; i < cnt; i++)
		crc = lp_crc32c_table(crc, buf, 4096);
	return crc;
}

static uint64_t combine_4k(uint64_t cnt)
{
	uint32_t crc = 1;
	for (uint64_t i = 0; i < cnt; i++)
		crc = lp_crc32c_combine(crc, 12345, 4096);
	return crc;
}

/* Lengths with no digit zero: the dearest. */
static uint64_t combine_huge(uint64_t cnt)
{
	uint32_t crc = 1;
	for (uint64_t i = 0; i < cnt; i++)
		crc = lp_crc32c_combine(crc, 12345, UINT64_C(0x123456789abcdef1) + (i & 7));
	return crc;
}

static uint64_t combine_huge_portable(uint64_t cnt)
{
	uint32_t crc = 1;
	for (uint64_t i = 0; i < cnt; i++)
		crc = lp_crc32c_combine_portable(crc, 12345,
						 UINT64_C(0x123456789abcdef1) + (i & 7));
	return crc;
}

static uint64_t hist_record(uint64_t cnt)
{
	for (uint64_t i = 0; i < cnt; i++)
		lp_hist_record(&hist, samples[i % LP_ARRAY_SIZE(samples)]);
	return hist.sum;
}

static uint64_t hist_percentile(uint64_t cnt)
{
	uint64_t sum = 0;
	for (uint64_t i = 0; i < cnt; i++)
		sum += lp_hist_percentile(&hist, LP_HIST_P999);
	return sum;
}

static uint64_t hash_of(uint64_t cnt, size_t len)
{
	uint64_t hash = 0;
	for (uint64_t i = 0; i < cnt; i++)
		hash = lp_hash_u64(buf, len, hash);
	return hash;
}

static uint64_t hash_16(uint64_t cnt)
{
	return hash_of(cnt, 16);
}

static uint64_t hash_64(uint64_t cnt)
{
	return hash_of(cnt, 64);
}

struct bench {
	const char *name;
	uint64_t (*run)(uint64_t cnt);
};

static const struct bench benches[] = {
	{"crc32c 64 B", crc_64},
	{"crc32c 4 KiB", crc_4k},
	{"crc32c 64 KiB", crc_64k},
	{"crc32c 4 KiB, table", crc_4k_table},
	{"crc32c combine, 4 KiB", combine_4k},
	{"crc32c combine, huge", combine_huge},
	{"crc32c combine, huge, portable", combine_huge_portable},
	{"hist record", hist_record},
	{"hist percentile", hist_percentile},
	{"xxh3 16 B", hash_16},
	{"xxh3 64 B", hash_64},
};

/* Keeps the compiler from dropping a result. */
static volatile uint64_t sink;

static uint64_t time_of(const struct bench *bench, uint64_t cnt)
{
	const struct lp_clock *clock = lp_clock_system();
	uint64_t start = lp_clock_mono_ns(clock);
	sink = bench->run(cnt);
	return lp_clock_mono_ns(clock) - start;
}

static uint64_t calibrate(const struct bench *bench)
{
	uint64_t cnt = 1;
	while (time_of(bench, cnt) < ROUND_NS)
		cnt *= 2;
	return cnt;
}

static int compare(const void *a, const void *b)
{
	const uint64_t *x = a;
	const uint64_t *y = b;
	return (*x > *y) - (*x < *y);
}

static void report(const struct bench *bench)
{
	uint64_t rounds[ROUND_CNT];
	uint64_t cnt = calibrate(bench);
	for (size_t i = 0; i < ROUND_CNT; i++)
		rounds[i] = time_of(bench, cnt);
	qsort(rounds, ROUND_CNT, sizeof(rounds[0]), compare);
	uint64_t median = rounds[ROUND_CNT / 2];
	printf("%-32s %10.2f %10.2f\n", bench->name, (double)median / (double)cnt,
	       (double)rounds[0] / (double)cnt);
}

int main(void)
{
	struct lp_prng prng;
	lp_prng_init(&prng, 1);
	lp_prng_fill(&prng, buf, sizeof(buf));
	for (size_t i = 0; i < LP_ARRAY_SIZE(samples); i++)
		samples[i] = lp_prng_u64(&prng) >> lp_prng_between(&prng, 40, 55);
	lp_hist_reset(&hist);
	printf("%-32s %10s %10s\n", "ns a call", "median", "least");
	for (size_t i = 0; i < LP_ARRAY_SIZE(benches); i++)
		report(&benches[i]);
	return 0;
}
