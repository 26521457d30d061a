/* SPDX-License-Identifier: Apache-2.0 */
/* Question: what does one update of a counter that several threads share cost, and is the way
 * base/struct/percpu.h goes the cheapest of those whose memory does not grow with the threads?
 *
 * Each technique is run with 1, 2, 8 and 32 threads, in rounds in which all take turns, so that
 * a noisy neighbour meets all of them; the median of the rounds counts. The cost is the threads'
 * own CPU time per update, and beside it the wall time per update of all threads together. Each
 * run checks that no update was lost.
 *
 * Target: at each number of threads, in both measures, ours is at most 10 % above the best of the
 * techniques with a bounded number of shards. Exit status 0 when it holds, 1 when it does not. */
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/struct/percpu.h"

#define ROUNDS        5
#define THREADS_MAX   32u
#define SHARDS        64u
#define UPDATES_USUAL UINT64_C(32000000)
#define TOLERANCE     1.10

struct shard {
	LP_CACHE_ALIGNED _Atomic uint64_t value;
};

static struct shard shared;
static struct shard shards[SHARDS];
static struct shard per_thread[THREADS_MAX];
static struct lp_percpu *percpu;

static void add_atomic(struct shard *shard)
{
	atomic_fetch_add_explicit(&shard->value, 1, memory_order_relaxed);
}

static void run_shared(uint64_t updates, unsigned thread)
{
	(void)thread;
	for (uint64_t i = 0; i < updates; i++)
		add_atomic(&shared);
}

static void run_hashed(uint64_t updates, unsigned thread)
{
	(void)thread;
	for (uint64_t i = 0; i < updates; i++) {
		/* Fibonacci hashing: the top 6 bits of a product choose one of 64. */
		uint64_t hash = (uint64_t)pthread_self() * UINT64_C(0x9e3779b97f4a7c15);
		add_atomic(&shards[hash >> 58]);
	}
}

static void run_getcpu(uint64_t updates, unsigned thread)
{
	(void)thread;
	for (uint64_t i = 0; i < updates; i++)
		add_atomic(&shards[(unsigned)sched_getcpu() % SHARDS]);
}

static void run_rseq_cpu(uint64_t updates, unsigned thread)
{
	(void)thread;
	for (uint64_t i = 0; i < updates; i++)
		add_atomic(&shards[lp_percpu_cpu() % SHARDS]);
}

static void run_ours(uint64_t updates, unsigned thread)
{
	(void)thread;
	for (uint64_t i = 0; i < updates; i++)
		lp_percpu_add(percpu, 0, 1);
}

static void run_per_thread(uint64_t updates, unsigned thread)
{
	_Atomic uint64_t *value = &per_thread[thread].value;
	for (uint64_t i = 0; i < updates; i++) {
		uint64_t now = atomic_load_explicit(value, memory_order_relaxed);
		atomic_store_explicit(value, now + 1, memory_order_relaxed);
	}
}

static const struct technique {
	const char *name;
	void (*run)(uint64_t updates, unsigned thread);
	bool is_bounded;
} techniques[] = {
	{"shared-atomic", run_shared, true},   {"hashed-64-atomic", run_hashed, true},
	{"getcpu-atomic", run_getcpu, true},   {"rseq-cpu-atomic", run_rseq_cpu, true},
	{"ours-rseq-section", run_ours, true}, {"per-thread-plain", run_per_thread, false},
};
#define TECHNIQUES LP_ARRAY_SIZE(techniques)
#define OURS       4u

static const unsigned thread_counts[] = {1, 2, 8, 32};
#define COUNTS LP_ARRAY_SIZE(thread_counts)

struct cost {
	double cpu_ns;  /* CPU time of the threads per update */
	double wall_ns; /* wall time per update, of all threads together */
};

struct worker {
	pthread_t thread;
	pthread_barrier_t *barrier;
	const struct technique *technique;
	uint64_t updates;
	unsigned number;
	uint64_t start_ns;
	uint64_t end_ns;
	uint64_t cpu_ns;
};

static void die(const char *what)
{
	(void)fprintf(stderr, "counter_bench: %s\n", what);
	_exit(1); /* other threads may be running */
}

static uint64_t thread_cpu_ns(void)
{
	struct timespec ts;
	if (clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts) != 0)
		die("no CPU clock for threads");
	return (uint64_t)ts.tv_sec * LP_NS_PER_S + (uint64_t)ts.tv_nsec;
}

static void *work(void *arg)
{
	struct worker *worker = arg;
	const struct lp_clock *clock = lp_clock_system();
	/* Pages and branch predictors are warm before the start. */
	worker->technique->run(1000, worker->number);
	(void)pthread_barrier_wait(worker->barrier); /* one thread gets a special value */
	worker->start_ns = lp_clock_mono_ns(clock);
	uint64_t cpu_ns = thread_cpu_ns();
	worker->technique->run(worker->updates, worker->number);
	worker->cpu_ns = thread_cpu_ns() - cpu_ns;
	worker->end_ns = lp_clock_mono_ns(clock);
	return NULL;
}

static void reset_counters(void)
{
	atomic_store(&shared.value, 0);
	for (unsigned i = 0; i < SHARDS; i++)
		atomic_store(&shards[i].value, 0);
	for (unsigned i = 0; i < THREADS_MAX; i++)
		atomic_store(&per_thread[i].value, 0);
	lp_percpu_free(percpu);
	percpu = lp_percpu_new(1);
	if (percpu == NULL)
		die("no memory");
}

static uint64_t sum_of_counters(void)
{
	uint64_t sum = atomic_load(&shared.value) + (uint64_t)lp_percpu_sum(percpu, 0);
	for (unsigned i = 0; i < SHARDS; i++)
		sum += atomic_load(&shards[i].value);
	for (unsigned i = 0; i < THREADS_MAX; i++)
		sum += atomic_load(&per_thread[i].value);
	return sum;
}

static struct cost measure(const struct technique *technique, unsigned threads, uint64_t updates)
{
	struct worker workers[THREADS_MAX];
	pthread_barrier_t barrier;
	uint64_t each = updates / threads;
	reset_counters();
	if (pthread_barrier_init(&barrier, NULL, threads) != 0)
		die("no barrier");
	for (unsigned i = 0; i < threads; i++) {
		workers[i] = (struct worker){
			.barrier = &barrier, .technique = technique, .updates = each, .number = i};
		if (pthread_create(&workers[i].thread, NULL, work, &workers[i]) != 0)
			die("no thread");
	}
	uint64_t cpu_ns = 0;
	uint64_t start_ns = UINT64_MAX;
	uint64_t end_ns = 0;
	for (unsigned i = 0; i < threads; i++) {
		if (pthread_join(workers[i].thread, NULL) != 0)
			die("a thread was lost");
		cpu_ns += workers[i].cpu_ns;
		start_ns = LP_MIN(start_ns, workers[i].start_ns);
		end_ns = LP_MAX(end_ns, workers[i].end_ns);
	}
	(void)pthread_barrier_destroy(&barrier); /* nobody waits there any more */
	if (sum_of_counters() != (each + 1000) * threads)
		die("updates were lost");
	double total = (double)(each * threads);
	return (struct cost){(double)cpu_ns / total, (double)(end_ns - start_ns) / total};
}

static int compare_doubles(const void *a, const void *b)
{
	const double *x = a;
	const double *y = b;
	return (*x > *y) - (*x < *y);
}

static struct cost median(const struct cost rounds[ROUNDS])
{
	double cpu[ROUNDS];
	double wall[ROUNDS];
	for (int i = 0; i < ROUNDS; i++) {
		cpu[i] = rounds[i].cpu_ns;
		wall[i] = rounds[i].wall_ns;
	}
	qsort(cpu, ROUNDS, sizeof(cpu[0]), compare_doubles);
	qsort(wall, ROUNDS, sizeof(wall[0]), compare_doubles);
	return (struct cost){cpu[ROUNDS / 2], wall[ROUNDS / 2]};
}

struct verdict {
	struct cost best; /* of the other techniques with bounded shards */
	const char *best_cpu_name;
	const char *best_wall_name;
	bool is_pass;
};

static struct verdict judge(const struct cost costs[TECHNIQUES])
{
	struct verdict verdict = {costs[0], techniques[0].name, techniques[0].name, false};
	for (size_t i = 0; i < TECHNIQUES; i++) {
		if (!techniques[i].is_bounded || i == OURS)
			continue;
		if (costs[i].cpu_ns < verdict.best.cpu_ns) {
			verdict.best.cpu_ns = costs[i].cpu_ns;
			verdict.best_cpu_name = techniques[i].name;
		}
		if (costs[i].wall_ns < verdict.best.wall_ns) {
			verdict.best.wall_ns = costs[i].wall_ns;
			verdict.best_wall_name = techniques[i].name;
		}
	}
	verdict.is_pass = costs[OURS].cpu_ns <= verdict.best.cpu_ns * TOLERANCE &&
			  costs[OURS].wall_ns <= verdict.best.wall_ns * TOLERANCE;
	return verdict;
}

static void print_table(struct cost costs[COUNTS][TECHNIQUES])
{
	(void)printf("one counter update, median of %d rounds\n", ROUNDS);
	(void)printf("%-8s%-20s%10s%10s%14s\n", "threads", "technique", "cpu ns", "wall ns",
		     "M updates/s");
	for (size_t c = 0; c < COUNTS; c++) {
		struct verdict verdict = judge(costs[c]);
		for (size_t t = 0; t < TECHNIQUES; t++)
			(void)printf("%-8u%-20s%10.2f%10.2f%14.1f%s\n", thread_counts[c],
				     techniques[t].name, costs[c][t].cpu_ns, costs[c][t].wall_ns,
				     1000.0 / costs[c][t].wall_ns,
				     techniques[t].is_bounded ? "" : "  (unbounded shards)");
		(void)printf("%-8u%s: cpu %.2f ns, best other bounded %.2f (%s); wall %.2f ns, "
			     "best other bounded "
			     "%.2f (%s); limit 1.10 x the best\n",
			     thread_counts[c], verdict.is_pass ? "PASS" : "FAIL",
			     costs[c][OURS].cpu_ns, verdict.best.cpu_ns, verdict.best_cpu_name,
			     costs[c][OURS].wall_ns, verdict.best.wall_ns, verdict.best_wall_name);
	}
}

static void print_json(struct cost costs[COUNTS][TECHNIQUES])
{
	struct utsname uts;
	if (uname(&uts) != 0)
		die("no name of the kernel");
	(void)printf("{\"bench\":\"counter\",\"version\":\"%s\",\"kernel\":\"%s\",\"rounds\":%d,"
		     "\"results\":[",
		     LAPIS_VERSION, uts.release, ROUNDS);
	for (size_t c = 0; c < COUNTS; c++) {
		struct verdict verdict = judge(costs[c]);
		(void)printf(
			"%s{\"threads\":%u,\"pass\":%s,\"limit_ratio\":%.2f,\"cpu_ratio\":%.3f,"
			"\"wall_ratio\":%.3f,\"techniques\":[",
			c == 0 ? "" : ",", thread_counts[c], verdict.is_pass ? "true" : "false",
			TOLERANCE, costs[c][OURS].cpu_ns / verdict.best.cpu_ns,
			costs[c][OURS].wall_ns / verdict.best.wall_ns);
		for (size_t t = 0; t < TECHNIQUES; t++)
			(void)printf("%s{\"name\":\"%s\",\"bounded\":%s,\"cpu_ns\":%.3f,"
				     "\"wall_ns\":%.3f}",
				     t == 0 ? "" : ",", techniques[t].name,
				     techniques[t].is_bounded ? "true" : "false",
				     costs[c][t].cpu_ns, costs[c][t].wall_ns);
		(void)printf("]}");
	}
	(void)printf("]}\n");
}

static bool measure_all(struct cost costs[COUNTS][TECHNIQUES], uint64_t updates)
{
	static struct cost all[TECHNIQUES][ROUNDS];
	bool is_pass = true;
	for (size_t c = 0; c < COUNTS; c++) {
		for (int round = 0; round < ROUNDS; round++) {
			for (size_t t = 0; t < TECHNIQUES; t++)
				all[t][round] = measure(&techniques[t], thread_counts[c], updates);
		}
		for (size_t t = 0; t < TECHNIQUES; t++)
			costs[c][t] = median(all[t]);
		is_pass = is_pass && judge(costs[c]).is_pass;
	}
	return is_pass;
}

/* Returns the number, or 0 when it is none or too small to share among the threads. */
static uint64_t parse_updates(const char *text)
{
	char *end = NULL;
	uint64_t updates = strtoull(text, &end, 10);
	return *text >= '0' && *text <= '9' && *end == '\0' && updates >= THREADS_MAX ? updates : 0;
}

static int usage(FILE *to, int status)
{
	(void)fprintf(to,
		      "usage: counter_bench [--json] [--updates N]\n"
		      "  --json       one JSON object instead of the table\n"
		      "  --updates N  updates per run, shared by its threads (default %" PRIu64
		      ", at least %u)\n",
		      UPDATES_USUAL, THREADS_MAX);
	return status;
}

int main(int argc, char **argv)
{
	static struct cost costs[COUNTS][TECHNIQUES];
	bool is_json = false;
	uint64_t updates = UPDATES_USUAL;
	for (int i = 1; i < argc; i++) {
		if (strcmp(argv[i], "--help") == 0)
			return usage(stdout, 0);
		if (strcmp(argv[i], "--json") == 0)
			is_json = true;
		else if (strcmp(argv[i], "--updates") == 0 && i + 1 < argc)
			updates = parse_updates(argv[++i]);
		else
			return usage(stderr, 2);
	}
	if (updates == 0)
		return usage(stderr, 2);
	bool is_pass = measure_all(costs, updates);
	if (is_json)
		print_json(costs);
	else
		print_table(costs);
	lp_percpu_free(percpu);
	return is_pass ? 0 : 1;
}
