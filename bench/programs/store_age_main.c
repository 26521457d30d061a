/* SPDX-License-Identifier: Apache-2.0 */
/* What does age do to a store that is nearly full? (bench/store-age)
 *
 *   store_age AGED FRESH hybrid|bitmap|extent [TURNOVERS [FILL [SEED]]]
 *
 * Both devices hold new stores of one shard and one size. What fits is found out by
 * filling AGED until it is full; then objects are removed until FILL percent of that is left (95),
 * and objects are removed and created at random until the content was replaced TURNOVERS times.
 * FRESH is only filled as far. Then both do the same mix of operations in turns that replace a
 * hundredth of the content each, so that a noisy neighbour meets both and FRESH stays so: whole
 * objects are read, created and removed, of 1 to 256 blocks, evenly spread over the powers of two.
 *
 * Prints one JSON object: per store the medians of bytes per second and of the thread's CPU time
 * per MiB, what the device was asked for per object, and how fragmented the free space is. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/crc32c.h"
#include "base/prng.h"
#include "bench/programs/machine.h"

#define DEPTH        8u
#define FILL_PERCENT 95u
#define FILL_MAX     98u
#define SIZE_POWERS  8u   /* 1 to 256 blocks */
#define BLOCKS_MAX   256u /* of an object */
#define ROUNDS       11u
#define TURNOVERS    10u
#define BUFS_BYTES   (UINT64_C(512) << 20) /* for both */
#define PICKS_MAX    64u                   /* tries to find an object that nobody is reading */

struct object {
	struct lp_ino ino;
	uint32_t block_cnt;
	uint32_t readers;
};

enum action { READ, CREATE, REMOVE, ACTIONS };

/* What was done in a round, or since. */
struct sum {
	uint64_t bytes;
	uint64_t ops[ACTIONS];
	uint64_t created_blocks;
};

struct slot {
	struct lp_store_op op;
	struct lp_change changes[2];
	struct lp_attrs attrs;
	struct lp_seg segs[BLOCKS_MAX];
	struct store *store;
	enum action action;
	struct object object;
	bool is_busy;
};

struct store {
	struct lpi_machine rig;
	struct slot slots[DEPTH];
	struct lp_prng prng;
	struct lp_buf *pattern[BLOCKS_MAX];
	uint32_t crcs[BLOCKS_MAX];
	struct object *objects;
	uint64_t object_cnt;
	uint64_t object_max;
	uint64_t live_blocks;
	uint32_t next_size;
	uint64_t target_blocks; /* UINT64_MAX: until it is full */
	uint64_t goal_blocks;   /* so many are to be created in this phase */
	bool reads;
	bool is_full;
	struct sum sum;
	double mb_per_s[ROUNDS];
	double cpu_us_per_mib[ROUNDS];
};

static struct store aged;
static struct store fresh;

static void go(struct slot *slot);

/* --- Operations ------------------------------------------------------------------------------- */

static uint32_t random_size(struct store *store)
{
	uint32_t power = UINT32_C(1) << lp_prng_below(&store->prng, SIZE_POWERS);
	return power + (uint32_t)lp_prng_below(&store->prng, power + 1);
}

/* An object that nobody reads is taken out of the table; for a read it stays, with a reader. */
static bool pick(struct store *store, struct slot *slot, bool take)
{
	for (uint32_t i = 0; i < PICKS_MAX && store->object_cnt > 0; i++) {
		uint64_t idx = lp_prng_below(&store->prng, store->object_cnt);
		struct object *object = &store->objects[idx];
		if (take && object->readers > 0)
			continue;
		if (!take)
			object->readers++;
		slot->object = *object;
		if (take)
			*object = store->objects[--store->object_cnt];
		return true;
	}
	return false;
}

static void unread(struct store *store, struct lp_ino ino)
{
	for (uint64_t i = 0; i < store->object_cnt; i++) {
		if (store->objects[i].ino.nr == ino.nr) {
			store->objects[i].readers--;
			return;
		}
	}
	LPI_MACHINE_CHECK(false);
}

static void add_object(struct store *store, struct object object)
{
	if (store->object_cnt == store->object_max) {
		store->object_max = LP_MAX(2 * store->object_max, UINT64_C(4096));
		store->objects =
			realloc(store->objects, store->object_max * sizeof(*store->objects));
		LPI_MACHINE_CHECK(store->objects != NULL);
	}
	store->objects[store->object_cnt++] = object;
}

static void account(struct slot *slot)
{
	struct store *store = slot->store;
	uint32_t cnt = slot->object.block_cnt;
	store->sum.ops[slot->action]++;
	if (slot->action == REMOVE)
		return;
	store->sum.bytes += cnt * LP_BLOCK_BYTES;
	if (slot->action == READ) {
		LPI_MACHINE_CHECK(slot->op.read.bytes == cnt * LP_BLOCK_BYTES);
		lp_store_end(store->rig.store, &slot->op);
		unread(store, slot->object.ino);
		return;
	}
	store->sum.created_blocks += cnt;
	add_object(store, slot->object);
}

static void complete(struct lp_store_op *op)
{
	struct slot *slot = LP_CONTAINER_OF(op, struct slot, op);
	struct store *store = slot->store;
	slot->is_busy = false;
	if (op->result == -ENOSPC && slot->action == CREATE) {
		store->is_full = true;
		store->live_blocks -= slot->object.block_cnt;
	} else {
		if (op->result < 0)
			(void)fprintf(stderr, "store_age: action %d: %s\n", (int)slot->action,
				      lp_strerror(op->result));
		LPI_MACHINE_CHECK(op->result == 0);
		account(slot);
	}
	go(slot);
}

static void submit_create(struct slot *slot, uint32_t block_cnt)
{
	struct store *store = slot->store;
	slot->action = CREATE;
	slot->object = (struct object){lp_store_new_ino(store->rig.store), block_cnt, 0};
	slot->attrs = (struct lp_attrs){.mode = 0644, .nlink = 1, .type = LP_INODE_TYPE_FILE};
	for (uint32_t i = 0; i < block_cnt; i++)
		slot->segs[i] = (struct lp_seg){store->pattern[i], 0, LP_BUF_SMALL};
	slot->changes[0] = (struct lp_change){.type = LP_CHANGE_CREATE,
					      .ino = slot->object.ino,
					      .inode = {.attrs = &slot->attrs}};
	slot->changes[1] = (struct lp_change){
		.type = LP_CHANGE_WRITE,
		.ino = slot->object.ino,
		.data = {.length = block_cnt * LP_BLOCK_BYTES,
			 .payload = {slot->segs, store->crcs, block_cnt, block_cnt}}};
	slot->op = (struct lp_store_op){.opcode = LP_STORE_TXN,
					.txn = {.changes = slot->changes, .change_cnt = 2}};
	store->live_blocks += block_cnt;
}

static void submit_remove(struct slot *slot)
{
	slot->action = REMOVE;
	slot->changes[0] = (struct lp_change){.type = LP_CHANGE_REMOVE, .ino = slot->object.ino};
	slot->op = (struct lp_store_op){.opcode = LP_STORE_TXN,
					.txn = {.changes = slot->changes, .change_cnt = 1}};
	slot->store->live_blocks -= slot->object.block_cnt;
}

static void submit_read(struct slot *slot)
{
	slot->action = READ;
	slot->op =
		(struct lp_store_op){.opcode = LP_STORE_READ,
				     .read = {.ino = slot->object.ino,
					      .length = slot->object.block_cnt * LP_BLOCK_BYTES}};
}

static bool is_over(const struct store *store)
{
	return store->is_full || store->sum.created_blocks >= store->goal_blocks;
}

/* A size waits until there is room for it: else large objects would become fewer with time. */
static uint32_t take_size(struct store *store)
{
	uint32_t size = store->next_size;
	store->next_size = random_size(store);
	return size;
}

/* The next operation of this slot, unless the phase is over. */
static void go(struct slot *slot)
{
	struct store *store = slot->store;
	if (is_over(store))
		return;
	if (store->reads && lp_prng_below(&store->prng, 2) == 0 && pick(store, slot, false))
		submit_read(slot);
	else if (store->live_blocks + store->next_size > store->target_blocks &&
		 pick(store, slot, true))
		submit_remove(slot);
	else
		submit_create(slot, take_size(store));
	slot->op.complete = complete;
	slot->is_busy = true;
	lp_store_submit(store->rig.store, &slot->op);
}

static bool is_busy(const struct store *store)
{
	for (uint32_t i = 0; i < DEPTH; i++) {
		if (store->slots[i].is_busy)
			return true;
	}
	return false;
}

/* Until so many blocks were created, or the store is full. */
static void run(struct store *store, uint64_t blocks)
{
	store->sum = (struct sum){0};
	store->is_full = false;
	store->goal_blocks = blocks;
	for (uint32_t i = 0; i < DEPTH; i++)
		go(&store->slots[i]);
	while (is_busy(store))
		(void)lp_reactor_turn(store->rig.reactor, true);
}

/* --- Phases ----------------------------------------------------------------------------------- */

static void start(struct store *store, const char *path, enum lp_alloc_kind kind,
		  const struct lpi_machine *beside, uint64_t seed)
{
	const struct lpi_machine_options options = {.path = path,
						    .beside = beside,
						    .bufs_bytes = BUFS_BYTES,
						    .alloc_kind = kind,
						    .write_path = LP_PATH_AUTO,
						    .spin_ns = 20000};
	lpi_machine_open(&store->rig, &options);
	lp_prng_init(&store->prng, seed);
	store->next_size = random_size(store);
	for (uint32_t i = 0; i < DEPTH; i++)
		store->slots[i].store = store;
	for (uint32_t i = 0; i < BLOCKS_MAX; i++) {
		store->pattern[i] = lp_buf_new(store->rig.bufs, LP_BUF_SMALL);
		LPI_MACHINE_CHECK(store->pattern[i] != NULL);
		lp_prng_fill(&store->prng, store->pattern[i]->data, LP_BUF_SMALL);
		store->crcs[i] = lp_crc32c(0, store->pattern[i]->data, LP_BUF_SMALL);
	}
}

static void stop(struct store *store)
{
	for (uint32_t i = 0; i < BLOCKS_MAX; i++)
		lp_buf_put(store->pattern[i]);
	lpi_machine_close(&store->rig, false);
	free(store->objects);
}

/* What fits, in blocks of objects. */
static uint64_t fill_up(struct store *store)
{
	store->target_blocks = UINT64_MAX;
	run(store, UINT64_MAX);
	LPI_MACHINE_CHECK(store->is_full);
	return store->live_blocks;
}

static void fill_to(struct store *store, uint64_t blocks)
{
	store->target_blocks = blocks;
	run(store, blocks);
	LPI_MACHINE_CHECK(!store->is_full);
}

static void churn(struct store *store, uint64_t blocks)
{
	store->reads = false;
	run(store, blocks);
	LPI_MACHINE_CHECK(!store->is_full);
}

static double seconds_of(clockid_t clock)
{
	struct timespec now;
	LPI_MACHINE_CHECK(clock_gettime(clock, &now) == 0);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void measure(struct store *store, uint32_t round, uint64_t blocks)
{
	double wall = seconds_of(CLOCK_MONOTONIC);
	double cpu = seconds_of(CLOCK_THREAD_CPUTIME_ID);
	store->reads = true;
	run(store, blocks);
	LPI_MACHINE_CHECK(!store->is_full);
	wall = seconds_of(CLOCK_MONOTONIC) - wall;
	cpu = seconds_of(CLOCK_THREAD_CPUTIME_ID) - cpu;
	double mib = (double)store->sum.bytes / (1 << 20);
	store->mb_per_s[round] = (double)store->sum.bytes / 1e6 / wall;
	store->cpu_us_per_mib[round] = cpu * 1e6 / mib;
}

static int compare(const void *a, const void *b)
{
	const double *x = a;
	const double *y = b;
	return (*x > *y) - (*x < *y);
}

static double median(double *values)
{
	qsort(values, ROUNDS, sizeof(*values), compare);
	return values[ROUNDS / 2];
}

static void print_store(const char *name, struct store *store, const struct lp_store_stats *before,
			const struct sum *sum)
{
	struct lp_store_stats after;
	struct lp_store_usage usage;
	lp_store_read_stats(store->rig.store, &after);
	lp_store_read_usage(store->rig.store, &usage);
	(void)printf(", \"%s\": {\"mb_per_s\": %.1f, \"cpu_us_per_mib\": %.1f", name,
		     median(store->mb_per_s), median(store->cpu_us_per_mib));
	(void)printf(", \"reads_per_object\": %.3f, \"writes_per_object\": %.3f",
		     (double)(after.data_reads - before->data_reads) / (double)sum->ops[READ],
		     (double)(after.data_writes - before->data_writes) / (double)sum->ops[CREATE]);
	(void)printf(", \"score\": %.3f, \"largest_run_kib\": %" PRIu64 ", \"free_kib\": %" PRIu64
		     ", \"alloc_kib\": %" PRIu64 "}",
		     usage.score, usage.largest_run_blocks * 4, usage.free_blocks * 4,
		     usage.alloc_bytes >> 10);
}

static void add_sum(struct sum *to, const struct sum *more)
{
	for (int i = 0; i < ACTIONS; i++)
		to->ops[i] += more->ops[i];
}

static void compare_stores(void)
{
	struct lp_store_stats before[2];
	struct sum sums[2] = {{0}, {0}};
	double ratios[ROUNDS];
	lp_store_read_stats(aged.rig.store, &before[0]);
	lp_store_read_stats(fresh.rig.store, &before[1]);
	for (uint32_t round = 0; round < ROUNDS; round++) {
		measure(&aged, round, aged.target_blocks / 100);
		add_sum(&sums[0], &aged.sum);
		measure(&fresh, round, aged.target_blocks / 100);
		add_sum(&sums[1], &fresh.sum);
		ratios[round] = aged.mb_per_s[round] / fresh.mb_per_s[round];
	}
	(void)printf("\"ratio\": %.3f", median(ratios));
	print_store("aged", &aged, &before[0], &sums[0]);
	print_store("fresh", &fresh, &before[1], &sums[1]);
}

static int kind_of(const char *name)
{
	for (int i = 0; i < LP_ALLOC_KIND_CNT; i++) {
		if (strcmp(name, lp_alloc_kind_name((enum lp_alloc_kind)i)) == 0)
			return i;
	}
	return -1;
}

/* The number that is an argument, if there is one. */
static uint64_t number_of(int argc, char **argv, int idx, uint64_t usual)
{
	return argc > idx ? strtoull(argv[idx], NULL, 10) : usual;
}

int main(int argc, char **argv)
{
	int kind = argc >= 4 && argc <= 7 ? kind_of(argv[3]) : -1;
	uint64_t turnovers = number_of(argc, argv, 4, TURNOVERS);
	uint64_t fill = number_of(argc, argv, 5, FILL_PERCENT);
	uint64_t seed = number_of(argc, argv, 6, 1);
	if (kind < 0 || fill == 0 || fill > FILL_MAX) {
		(void)fprintf(stderr, "store_age AGED FRESH hybrid|bitmap|extent [TURNOVERS [FILL "
				      "[SEED]]]\n");
		return 2;
	}
	start(&aged, argv[1], (enum lp_alloc_kind)kind, NULL, seed);
	start(&fresh, argv[2], (enum lp_alloc_kind)kind, &aged.rig, seed);
	uint64_t capacity = fill_up(&aged);
	aged.target_blocks = capacity / 100 * fill;
	for (uint64_t i = 0; i < turnovers; i++)
		churn(&aged, aged.target_blocks);
	fill_to(&fresh, aged.target_blocks);
	(void)printf("{\"allocator\": \"%s\", \"turnovers\": %" PRIu64
		     ", \"fill_percent\": %" PRIu64 ", \"capacity_mib\": %" PRIu64 ", ",
		     argv[3], turnovers, fill, capacity / 256);
	compare_stores();
	(void)printf("}\n");
	stop(&fresh);
	stop(&aged);
	return 0;
}
