/* SPDX-License-Identifier: Apache-2.0 */
/* Question: what does the extent map cost an overwrite of 4 KiB, in time, in bytes for the log and
 * the index, and in memory, for a file of 4 KiB, 4 MiB and 1 GiB?
 *
 * "overwrite": lp_extmap_can_overwrite(), lp_extmap_update_crcs(), then the dirty leaf and root
 * are encoded, each at a random place. "lookup" asks for one random block with its crc. "load" is
 * one leaf decoded and checked. Medians of ROUNDS rounds; bytes and memory are exact.
 * Files lie in extents of 4 MiB, as an allocator with some fragmentation gives them. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/prng.h"
#include "store/extmap/extmap.h"

#define ROUNDS        9
#define OPS           100000u
#define EXTENT_BLOCKS 1024u

static const struct lp_ino ino = {1};
static uint8_t buf[LP_EXTMAP_ROOT_BYTES_MAX];
static uint32_t crcs[EXTENT_BLOCKS];

static void die(const char *what)
{
	(void)fprintf(stderr, "extmap_bench: %s\n", what);
	_exit(1);
}

static void fill(struct lp_extmap *map, uint64_t blocks)
{
	struct lp_extmap_released released = {NULL, 0, 0};
	for (uint64_t at = 0; at < blocks; at += EXTENT_BLOCKS) {
		struct lp_extmap_range range = {at, LP_MIN(blocks - at, EXTENT_BLOCKS)};
		struct lp_extent extent = {1000 + 2 * at, range.cnt};
		struct lp_extmap_new fresh = {&extent, 1, crcs, false};
		if (lp_extmap_reserve(map, range, 1) < 0)
			die("no memory");
		lp_extmap_replace(map, range, &fresh, &released);
	}
}

static size_t encode_all(struct lp_extmap *map)
{
	struct lp_extmap_piece piece;
	size_t bytes = 0;
	while (lp_extmap_take_dirty(map, buf, &piece))
		bytes += piece.len;
	if (lp_extmap_root_is_dirty(map))
		bytes += lp_extmap_encode_root(map, buf);
	return bytes;
}

static uint64_t run_overwrites(struct lp_extmap *map, uint64_t blocks, struct lp_prng *prng)
{
	uint64_t bytes = 0;
	for (unsigned n = 0; n < OPS; n++) {
		struct lp_extmap_range range = {lp_prng_below(prng, blocks), 1};
		uint32_t crc = (uint32_t)n;
		if (lp_extmap_can_overwrite(map, range) != 1)
			die("cannot overwrite");
		lp_extmap_update_crcs(map, range, &crc);
		bytes += encode_all(map);
	}
	return bytes;
}

static uint64_t run_lookups(struct lp_extmap *map, uint64_t blocks, struct lp_prng *prng)
{
	uint64_t sum = 0;
	for (unsigned n = 0; n < OPS; n++) {
		struct lp_extmap_range range = {lp_prng_below(prng, blocks), 1};
		struct lp_extmap_segment segment;
		uint32_t crc;
		if (lp_extmap_lookup(map, range, &segment, 1, &crc) != 1)
			die("lookup");
		sum += segment.block + crc;
	}
	return sum;
}

/* One leaf over and over, from the state in which it is not in memory. */
static uint64_t run_loads(struct lp_extmap *map, uint64_t blocks, struct lp_prng *prng)
{
	uint8_t leaf[LP_EXTMAP_LEAF_BYTES_MAX];
	struct lp_extmap_piece piece;
	struct lp_extmap_range range = {0, 1};
	(void)prng;
	if (blocks <= LP_EXTMAP_LEAF_BLOCKS)
		return 0;
	lp_extmap_update_crcs(map, range, crcs);
	if (!lp_extmap_take_dirty(map, leaf, &piece))
		die("nothing dirty");
	for (unsigned n = 0; n < OPS; n++) {
		if (lp_extmap_unload(map, 0) != 0 || lp_extmap_load(map, 0, leaf, piece.len) != 0)
			die("load");
	}
	return piece.len;
}

static int compare(const void *a, const void *b)
{
	const double *x = a;
	const double *y = b;
	return (*x > *y) - (*x < *y);
}

/* Nanoseconds an operation; *ret_sum is what the last round returned. */
static double measure(uint64_t (*run)(struct lp_extmap *, uint64_t, struct lp_prng *),
		      struct lp_extmap *map, uint64_t blocks, uint64_t *ret_sum)
{
	const struct lp_clock *clock = lp_clock_system();
	double ns[ROUNDS];
	struct lp_prng prng;
	lp_prng_init(&prng, 1);
	for (int round = 0; round < ROUNDS; round++) {
		uint64_t start = lp_clock_mono_ns(clock);
		*ret_sum = run(map, blocks, &prng);
		ns[round] = (double)(lp_clock_mono_ns(clock) - start) / OPS;
	}
	qsort(ns, ROUNDS, sizeof(ns[0]), compare);
	return ns[ROUNDS / 2];
}

static void bench(const char *name, uint64_t blocks)
{
	struct lp_extmap map;
	uint64_t bytes = 0;
	uint64_t unused = 0;
	lp_extmap_init(&map, ino, NULL);
	fill(&map, blocks);
	size_t stored = encode_all(&map);
	double overwrite = measure(run_overwrites, &map, blocks, &bytes);
	double lookup = measure(run_lookups, &map, blocks, &unused);
	double load = measure(run_loads, &map, blocks, &unused);
	printf("%-8s %9.0f ns %9.0f ns %9.0f ns %9.1f %12zu %12zu\n", name, overwrite, lookup, load,
	       (double)bytes / OPS, stored, lp_extmap_bytes(&map) + sizeof(map));
	lp_extmap_fini(&map);
}

int main(void)
{
	printf("%-8s %12s %12s %12s %9s %12s %12s\n", "file", "overwrite", "lookup", "load",
	       "bytes/op", "index bytes", "memory");
	bench("4 KiB", 1);
	bench("256 KiB", 64);
	bench("4 MiB", 1024);
	bench("1 GiB", 262144);
	return 0;
}
