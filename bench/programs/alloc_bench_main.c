/* SPDX-License-Identifier: Apache-2.0 */
/* What a block allocator costs, per kind: nanoseconds of CPU for a take and for a release, on a
 * fresh and on an aged device; how fragmented the device is, and how much memory that takes.
 * Questions answered: is the allocator's share of a write negligible (aims: take and release of one
 * block at once under 150 ns fresh, under 1000 ns aged), and which kind should be the default?
 *
 * Aged: filled to 95 % (--fill), then objects removed at random and others put in their place until
 * the device's content was replaced TURNOVERS times; sizes from 1 to 1024 blocks, evenly spread
 * over the powers of two. `churn` is what it takes to remove 1 MiB of them and to make as much
 * again, with the cache misses of an array of extents in it: what is removed at a time is one
 * extent, and where free space is in small pieces that is little. `pieces` are the extents of an
 * object then. Probes of one block hold PROBE_CNT blocks at a time and return them in random order.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/prng.h"
#include "store/space/alloc.h"

#define FILL_USUAL      95u
#define FILL_MAX        98u
#define TURNOVERS_USUAL 10u
#define GIB_MAX         (UINT64_C(16) << 10)
#define PROBE_CNT       20000u
#define ROUND_CNT       9u
#define OBJECT_EXTENTS  16u
/* What a hybrid may use for its trees: less than an aged device wants, so that both halves show. */
#define HYBRID_BYTES (UINT64_C(2) << 20)

/* Nanoseconds each. */
struct cost {
	double pair;
	double take;
	double release;
};

/* What is asked for. */
struct plan {
	enum lp_alloc_kind kind; /* LP_ALLOC_KIND_CNT: all */
	uint64_t device_gib;     /* 0: the usual ones */
	unsigned turnovers;
	unsigned fill_percent;
	uint64_t seed;
	bool is_json;
};

struct result {
	const char *kind;
	uint64_t device_gib;
	struct cost fresh;
	struct cost aged;
	double churn_ns; /* for 1 MiB */
	double pieces;   /* of an object */
	double score;
	uint64_t run_cnt;
	uint64_t memory_bytes;
};

struct bench {
	struct lp_alloc *alloc;
	struct lp_prng prng;
	uint64_t block_cnt;
	uint64_t keep_free;        /* blocks */
	struct lp_extent *extents; /* that are held */
	uint64_t extent_cnt;
	uint64_t extent_max;
	uint64_t object_cnt; /* made */
	uint64_t piece_cnt;  /* of these */
};

static void die(const char *what)
{
	(void)fprintf(stderr, "alloc_bench: %s\n", what);
	exit(1); /* NOLINT(concurrency-mt-unsafe): one thread */
}

/* CPU time of this thread, the only one: what others do meanwhile is not in it. */
static uint64_t now_ns(void)
{
	struct timespec now;
	if (clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now) != 0)
		die("no CPU clock for threads");
	return (uint64_t)now.tv_sec * LP_NS_PER_S + (uint64_t)now.tv_nsec;
}

static void release(struct bench *bench, struct lp_extent extent)
{
	if (lp_alloc_release(bench->alloc, extent) != 0)
		die("no memory");
}

/* Returns how many blocks it got. */
static uint64_t take_object(struct bench *bench, uint64_t want)
{
	struct lp_alloc_options options = {.hint = LP_ALLOC_NO_HINT, .extents_max = OBJECT_EXTENTS};
	uint64_t blocks = 0;
	if (bench->extent_cnt + OBJECT_EXTENTS > bench->extent_max)
		die("more extents than foreseen");
	int cnt = lp_alloc_take(bench->alloc, want, &options, &bench->extents[bench->extent_cnt],
				&blocks);
	if (cnt < 0)
		die("the device is full");
	bench->extent_cnt += (uint64_t)cnt;
	bench->piece_cnt += (uint64_t)cnt;
	bench->object_cnt++;
	return blocks;
}

static uint64_t random_size(struct bench *bench)
{
	uint64_t power = UINT64_C(1) << lp_prng_below(&bench->prng, 10);
	return power + lp_prng_below(&bench->prng, power + 1);
}

static void fill(struct bench *bench)
{
	while (lp_alloc_free_blocks(bench->alloc) > bench->keep_free)
		(void)take_object(bench, random_size(bench));
}

/* Returns nanoseconds for each MiB that is replaced. */
static double age(struct bench *bench, unsigned turnovers)
{
	uint64_t to_replace = (bench->block_cnt - bench->keep_free) * turnovers;
	uint64_t replaced = 0;
	uint64_t start = now_ns();
	bench->object_cnt = 0;
	bench->piece_cnt = 0;
	while (replaced < to_replace) {
		uint64_t idx = lp_prng_below(&bench->prng, bench->extent_cnt);
		struct lp_extent extent = bench->extents[idx];
		bench->extents[idx] = bench->extents[--bench->extent_cnt];
		release(bench, extent);
		replaced += extent.cnt;
		fill(bench);
	}
	double mib = (double)replaced / (double)(1 << (20 - LP_BLOCK_SHIFT));
	return replaced == 0 ? 0 : (double)(now_ns() - start) / mib;
}

static void shuffle(struct bench *bench, struct lp_extent *extents, uint64_t cnt)
{
	for (uint64_t i = cnt; i > 1; i--) {
		uint64_t k = lp_prng_below(&bench->prng, i);
		struct lp_extent extent = extents[k];
		extents[k] = extents[i - 1];
		extents[i - 1] = extent;
	}
}

static int compare(const void *a, const void *b)
{
	const double *x = a;
	const double *y = b;
	return (*x > *y) - (*x < *y);
}

static struct lp_extent take_block(struct bench *bench)
{
	struct lp_alloc_options options = {.hint = LP_ALLOC_NO_HINT, .extents_max = 1};
	struct lp_extent extent;
	uint64_t blocks;
	if (lp_alloc_take(bench->alloc, 1, &options, &extent, &blocks) != 1)
		die("the device is full");
	return extent;
}

static struct cost probe_once(struct bench *bench)
{
	static struct lp_extent held[PROBE_CNT];
	struct cost cost;
	uint64_t start = now_ns();
	for (unsigned i = 0; i < PROBE_CNT; i++)
		release(bench, take_block(bench));
	cost.pair = (double)(now_ns() - start) / PROBE_CNT;
	start = now_ns();
	for (unsigned i = 0; i < PROBE_CNT; i++)
		held[i] = take_block(bench);
	cost.take = (double)(now_ns() - start) / PROBE_CNT;
	shuffle(bench, held, PROBE_CNT);
	start = now_ns();
	for (unsigned i = 0; i < PROBE_CNT; i++)
		release(bench, held[i]);
	cost.release = (double)(now_ns() - start) / PROBE_CNT;
	return cost;
}

/* Medians of the rounds, each for itself. */
static struct cost probe(struct bench *bench)
{
	double costs[3][ROUND_CNT];
	for (unsigned i = 0; i < ROUND_CNT; i++) {
		struct cost cost = probe_once(bench);
		costs[0][i] = cost.pair;
		costs[1][i] = cost.take;
		costs[2][i] = cost.release;
	}
	for (unsigned i = 0; i < 3; i++)
		qsort(costs[i], ROUND_CNT, sizeof(costs[i][0]), compare);
	return (struct cost){.pair = costs[0][ROUND_CNT / 2],
			     .take = costs[1][ROUND_CNT / 2],
			     .release = costs[2][ROUND_CNT / 2]};
}

static uint64_t count_runs(const struct lp_alloc *alloc)
{
	uint64_t cnt = 0;
	struct lp_extent run = {0};
	while (lp_alloc_next_free(alloc, lp_extent_end(run), &run))
		cnt++;
	return cnt;
}

static struct result run(const struct plan *plan, enum lp_alloc_kind kind, uint64_t device_gib)
{
	struct bench bench = {.block_cnt = device_gib << (30 - LP_BLOCK_SHIFT)};
	struct result result = {.kind = lp_alloc_kind_name(kind), .device_gib = device_gib};
	struct lp_alloc_config config = {.kind = kind,
					 .block_cnt = bench.block_cnt,
					 .memory_max_bytes =
						 kind == LP_ALLOC_HYBRID ? HYBRID_BYTES : 0};
	lp_prng_init(&bench.prng, plan->seed);
	bench.keep_free = bench.block_cnt / 100 * (100 - plan->fill_percent);
	bench.extent_max = bench.block_cnt / 16 + OBJECT_EXTENTS;
	bench.extents = malloc(bench.extent_max * sizeof(*bench.extents));
	if (bench.extents == NULL || lp_alloc_new(&config, &bench.alloc) != 0)
		die("no memory");
	if (lp_alloc_add_range(bench.alloc, (struct lp_extent){0, bench.block_cnt}) != 0)
		die("no memory");
	result.fresh = probe(&bench);
	fill(&bench);
	result.churn_ns = age(&bench, plan->turnovers);
	result.pieces = (double)bench.piece_cnt / (double)LP_MAX(bench.object_cnt, UINT64_C(1));
	result.aged = probe(&bench);
	result.score = lp_alloc_score(bench.alloc);
	result.run_cnt = count_runs(bench.alloc);
	result.memory_bytes = lp_alloc_memory_bytes(bench.alloc);
	lp_alloc_free(bench.alloc);
	free(bench.extents);
	return result;
}

static void print_head(void)
{
	(void)printf("ns:                 fresh device             aged device\n"
		     "%-8s%6s%8s%8s%8s%8s%8s%8s%8s%8s%8s%9s%8s\n",
		     "kind", "GiB", "pair", "take", "release", "pair", "take", "release", "churn",
		     "pieces", "score", "runs", "MiB");
}

static void print_row(const struct result *r)
{
	(void)printf("%-8s%6" PRIu64 "%8.0f%8.0f%8.0f%8.0f%8.0f%8.0f%8.0f%8.2f%8.3f%9" PRIu64
		     "%8.1f\n",
		     r->kind, r->device_gib, r->fresh.pair, r->fresh.take, r->fresh.release,
		     r->aged.pair, r->aged.take, r->aged.release, r->churn_ns, r->pieces, r->score,
		     r->run_cnt, (double)r->memory_bytes / (1 << 20));
}

static void print_json_cost(const char *name, const struct cost *cost)
{
	(void)printf("\"%s_ns\":{\"pair\":%.1f,\"take\":%.1f,\"release\":%.1f},", name, cost->pair,
		     cost->take, cost->release);
}

static void print_json(const struct result *r, bool is_first)
{
	(void)printf("%s{\"kind\":\"%s\",\"device_gib\":%" PRIu64 ",", is_first ? "" : ",", r->kind,
		     r->device_gib);
	print_json_cost("fresh", &r->fresh);
	print_json_cost("aged", &r->aged);
	(void)printf("\"churn_ns\":%.1f,\"pieces\":%.3f,\"score\":%.4f,\"runs\":%" PRIu64
		     ",\"memory_bytes\":%" PRIu64 "}",
		     r->churn_ns, r->pieces, r->score, r->run_cnt, r->memory_bytes);
}

static int usage(FILE *to, int status)
{
	(void)fprintf(to,
		      "usage: alloc_bench [--json] [--turnovers N] [--fill PERCENT] [--kind KIND]\n"
		      "                   [--device-gib N] [--seed N]\n"
		      "  --json          one JSON object instead of the table\n"
		      "  --turnovers N   how often the content is replaced (default %u)\n"
		      "  --fill PERCENT  how full the device is, 1 to %u (default %u)\n"
		      "  --kind KIND     only this allocator: hybrid, bitmap, extent\n"
		      "  --device-gib N  only a device of this size (default: 256 and 1024)\n"
		      "  --seed N        of what is made and removed (default 1)\n",
		      TURNOVERS_USUAL, FILL_MAX, FILL_USUAL);
	return status;
}

static bool parse_number(const char *text, uint64_t min, uint64_t max, uint64_t *ret_number)
{
	char *end = NULL;
	unsigned long long number = strtoull(text, &end, 10);
	if (*text < '0' || *text > '9' || *end != '\0' || number < min || number > max)
		return false;
	*ret_number = number;
	return true;
}

static bool parse_kind(const char *text, enum lp_alloc_kind *ret_kind)
{
	for (int kind = 0; kind < LP_ALLOC_KIND_CNT; kind++) {
		if (strcmp(text, lp_alloc_kind_name((enum lp_alloc_kind)kind)) == 0) {
			*ret_kind = (enum lp_alloc_kind)kind;
			return true;
		}
	}
	return false;
}

static bool parse_value(const char *name, const char *value, struct plan *plan)
{
	uint64_t number = 0;
	if (strcmp(name, "--kind") == 0)
		return parse_kind(value, &plan->kind);
	if (strcmp(name, "--device-gib") == 0)
		return parse_number(value, 1, GIB_MAX, &plan->device_gib);
	if (strcmp(name, "--seed") == 0)
		return parse_number(value, 0, UINT64_MAX, &plan->seed);
	if (strcmp(name, "--turnovers") == 0) {
		bool is_good = parse_number(value, 0, 1000, &number);
		plan->turnovers = (unsigned)number;
		return is_good;
	}
	if (strcmp(name, "--fill") == 0) {
		bool is_good = parse_number(value, 1, FILL_MAX, &number);
		plan->fill_percent = (unsigned)number;
		return is_good;
	}
	return false;
}

static void run_all(const struct plan *plan)
{
	static const uint64_t sizes_gib[] = {256, 1024};
	bool is_first = true;
	for (size_t s = 0; s < LP_ARRAY_SIZE(sizes_gib); s++) {
		uint64_t gib = plan->device_gib != 0 ? plan->device_gib : sizes_gib[s];
		for (int kind = 0; kind < LP_ALLOC_KIND_CNT; kind++) {
			if (plan->kind != LP_ALLOC_KIND_CNT && (int)plan->kind != kind)
				continue;
			struct result result = run(plan, (enum lp_alloc_kind)kind, gib);
			if (plan->is_json)
				print_json(&result, is_first);
			else
				print_row(&result);
			is_first = false;
		}
		if (plan->device_gib != 0)
			break;
	}
}

int main(int argc, char **argv)
{
	struct plan plan = {.kind = LP_ALLOC_KIND_CNT,
			    .turnovers = TURNOVERS_USUAL,
			    .seed = 1,
			    .fill_percent = FILL_USUAL};
	for (int i = 1; i < argc; i++) {
		if (strcmp(argv[i], "--help") == 0)
			return usage(stdout, 0);
		if (strcmp(argv[i], "--json") == 0)
			plan.is_json = true;
		else if (i + 1 == argc || !parse_value(argv[i], argv[i + 1], &plan))
			return usage(stderr, 2);
		else
			i++;
	}
	if (plan.is_json)
		(void)printf("{\"bench\":\"alloc\",\"version\":\"%s\",\"turnovers\":%u,"
			     "\"fill_percent\":%u,\"results\":[",
			     LAPIS_VERSION, plan.turnovers, plan.fill_percent);
	else
		print_head();
	run_all(&plan);
	if (plan.is_json)
		(void)printf("]}\n");
	return 0;
}
