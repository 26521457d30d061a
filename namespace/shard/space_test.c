/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: nobody is told that the store is full while there was space all the time since he had begun
 * (rule S5), though one question for space answers many; and there are few questions.
 * Method: shards on a simulated device that are full, and each has a file. Many writers at once
 * make these files longer by a block each, and now and then something is freed in one of them. In
 * each turn the free blocks of all shards are counted. Who is refused must have seen a turn in
 * which nobody had any to give. */
#include "namespace/shard/ns_sim_test.h"
#include "store/block/core/block.h"
#include "store/shard/shard_impl.h"

#define STEP_BYTES  (UINT64_C(8) << 20)
#define WRITERS_MAX 24u
#define PHASE_TURNS 400u
#define TURNS       24000u
#define HOLES_MAX   48u

static const struct lp_ino root = {1};

struct writer {
	struct lp_ns_op op;
	struct lp_change change;
	uint32_t shard_idx;
	bool is_busy;
	bool saw_none;
};

struct world {
	struct lpi_ns_sim *sim;
	struct lp_prng prng;
	struct lp_ino files[LPI_NS_SIM_SHARDS];
	uint64_t ends[LPI_NS_SIM_SHARDS];
	uint64_t holes_at[LPI_NS_SIM_SHARDS];
	struct writer writers[WRITERS_MAX];
	struct writer puncher;
	uint32_t shards; /* a bit for each that is written to in this phase */
	uint64_t free[LPI_NS_SIM_SHARDS];
	uint32_t written;
	uint32_t refused;
};

static struct lp_shard *shard_of(const struct world *world, uint32_t idx)
{
	return lpi_block_of(world->sim->hand[idx].store)->shard;
}

/* What the shard can give now. Who has waiters of his own gives nothing. */
static uint64_t spare_of(const struct world *world, uint32_t idx, uint32_t asker_idx)
{
	const struct lp_shard *shard = shard_of(world, idx);
	uint64_t cnt = lp_alloc_free_blocks(lp_space_alloc(shard->space));
	if (idx != asker_idx && !lpi_space_waiters_is_empty(&shard->space_waiters))
		return 0;
	return cnt - LP_MIN(cnt, LP_SHARD_CUT_BLOCKS);
}

static void look(struct world *world)
{
	for (uint32_t i = 0; i < WRITERS_MAX; i++) {
		struct writer *writer = &world->writers[i];
		uint64_t cnt = 0;
		for (uint32_t k = 0; k < LPI_NS_SIM_SHARDS; k++)
			cnt += spare_of(world, k, writer->shard_idx);
		if (cnt == 0 || lp_chunks_is_split_up(shard_of(world, 0)->chunks))
			writer->saw_none = true;
	}
}

static void turn(struct world *world)
{
	(void)lpi_ns_sim_turn(world->sim);
	look(world);
}

/* --- Operations ------------------------------------------------------------------------------- */

static struct lp_ino make(struct world *world, struct lp_ino dir, const char *name, uint8_t type)
{
	struct lp_ns_op op = {.opcode = LP_NS_MAKE};
	op.make.dir = dir;
	op.make.name = lpi_ns_sim_bytes(name);
	op.make.type = type;
	op.make.mode = 0755;
	lp_test_ok(lpi_ns_sim_do(world->sim, &op));
	return op.make.found.ino;
}

/* Directories go round the shards, and files are where theirs is. */
static void make_files(struct world *world)
{
	for (uint32_t made = 0; made < LPI_NS_SIM_SHARDS;) {
		char name[8];
		(void)snprintf(name, sizeof(name), "d%u",
			       (unsigned)lp_prng_below(&world->prng, 1000000));
		struct lp_ino dir = make(world, root, name, LP_INODE_TYPE_DIR);
		uint32_t shard_idx = lp_ino_shard(dir);
		if (world->files[shard_idx].nr != 0)
			continue;
		world->files[shard_idx] = make(world, dir, "file", LP_INODE_TYPE_FILE);
		made++;
	}
}

static void completed(struct lp_ns_op *op)
{
	struct writer *writer = LP_CONTAINER_OF(op, struct writer, op);
	assert_true(writer->is_busy);
	writer->is_busy = false;
}

static void submit(struct world *world, struct writer *writer, enum lp_change_type type,
		   uint64_t offset, uint64_t length)
{
	struct lp_ino ino = world->files[writer->shard_idx];
	writer->change = (struct lp_change){
		.type = type, .ino = ino, .data = {.offset = offset, .length = length}};
	writer->op = (struct lp_ns_op){.opcode = LP_NS_STORE, .complete = completed};
	writer->op.store.ino = ino;
	writer->op.store.op = (struct lp_store_op){
		.opcode = LP_STORE_TXN,
		.txn = {.changes = &writer->change, .change_cnt = 1, .ack = LP_ACK_ORDERED}};
	writer->is_busy = true;
	writer->saw_none = false;
	lp_ns_submit(world->sim->ns[writer->shard_idx], &writer->op);
}

static int allocate(struct world *world, uint32_t shard_idx, uint64_t length)
{
	struct writer *writer = &world->puncher;
	writer->shard_idx = shard_idx;
	submit(world, writer, LP_CHANGE_PREALLOC, world->ends[shard_idx], length);
	world->ends[shard_idx] += length;
	for (uint32_t i = 0; writer->is_busy; i++) {
		assert_true(i < LPI_NS_SIM_TURNS_MAX);
		turn(world);
	}
	return writer->op.result;
}

/* --- The load --------------------------------------------------------------------------------- */

static uint64_t questions(const struct world *world)
{
	uint64_t cnt = 0;
	for (uint32_t i = 0; i < LPI_NS_SIM_SHARDS; i++)
		cnt += lp_shard_questions(shard_of(world, i));
	return cnt;
}

static void world_begin(struct world *world, uint64_t seed)
{
	*world = (struct world){.sim = lpi_ns_sim_boot(lpi_ns_sim_mkfs(seed))};
	lp_prng_init(&world->prng, seed);
	lp_test_ok(lpi_ns_sim_start(world->sim));
	make_files(world);
	for (uint64_t bytes = STEP_BYTES; bytes >= LP_BLOCK_BYTES; bytes /= 8) {
		for (uint32_t full = 0; full < LPI_NS_SIM_SHARDS;) {
			full = 0;
			for (uint32_t i = 0; i < LPI_NS_SIM_SHARDS; i++)
				full += allocate(world, i, bytes) < 0;
		}
	}
	world->puncher.op.result = 0;
}

static void world_end(struct world *world)
{
	lpi_ns_sim_stop(world->sim);
	lp_test_ok(lpi_ns_sim_close(world->sim, false));
	lpi_ns_sim_fsck(world->sim);
	lpi_ns_sim_fini(world->sim);
	free(world->sim);
}

/* Some blocks in a row, or every second one, or a whole step of the filling. */
static void punch(struct world *world)
{
	struct writer *writer = &world->puncher;
	if (writer->is_busy)
		return;
	uint32_t idx = (uint32_t)lp_prng_below(&world->prng, LPI_NS_SIM_SHARDS);
	uint64_t cnt = 1 + lp_prng_below(&world->prng, HOLES_MAX);
	uint64_t at = world->holes_at[idx];
	writer->shard_idx = idx;
	if (at + (cnt + 1) * LP_BLOCK_BYTES > world->ends[idx])
		at = 0;
	submit(world, writer, LP_CHANGE_PUNCH, at, cnt * LP_BLOCK_BYTES);
	world->holes_at[idx] = at + (cnt + 1) * LP_BLOCK_BYTES;
}

static void judge(struct world *world, struct writer *writer)
{
	if (writer->op.result >= 0) {
		world->written++;
		return;
	}
	lp_test_err(-ENOSPC, writer->op.result);
	assert_true(writer->saw_none);
	world->refused++;
}

/* As many writers as there are, for as long as the phase lasts. */
static void write_more(struct world *world)
{
	for (uint32_t i = 0; i < WRITERS_MAX; i++) {
		struct writer *writer = &world->writers[i];
		uint32_t idx = i % LPI_NS_SIM_SHARDS;
		if (writer->is_busy || (world->shards >> idx & 1) == 0)
			continue;
		if (writer->op.complete != NULL)
			judge(world, writer);
		writer->op.complete = NULL;
		if (lp_prng_below(&world->prng, 4) != 0)
			continue;
		writer->shard_idx = idx;
		submit(world, writer, LP_CHANGE_PREALLOC, world->ends[idx], LP_BLOCK_BYTES);
		world->ends[idx] += LP_BLOCK_BYTES;
	}
}

static void wait_all(struct world *world)
{
	for (uint32_t i = 0; i < WRITERS_MAX; i++) {
		struct writer *writer = &world->writers[i];
		for (uint32_t turns = 0; writer->is_busy; turns++) {
			assert_true(turns < LPI_NS_SIM_TURNS_MAX);
			turn(world);
		}
		if (writer->op.complete != NULL)
			judge(world, writer);
		writer->op.complete = NULL;
	}
	while (world->puncher.is_busy)
		turn(world);
	lp_test_ok(world->puncher.op.result);
}

static void run(uint64_t seed)
{
	struct world world;
	world_begin(&world, seed);
	uint64_t before = questions(&world);
	for (uint32_t i = 0; i < TURNS; i++) {
		if (i % PHASE_TURNS == 0) {
			wait_all(&world);
			world.shards = 1 + (uint32_t)lp_prng_below(&world.prng, 7);
		}
		if (lp_prng_below(&world.prng, 200) == 0)
			punch(&world);
		write_more(&world);
		turn(&world);
	}
	wait_all(&world);
	assert_true(world.written > 100);
	assert_true(world.refused > 100);
	assert_true(questions(&world) - before < world.refused / 2);
	world_end(&world);
}

static void test_never_without_need(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= (LP_ASSERT_SLOW_ON ? 1 : 3); seed++)
		run(seed);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_never_without_need),
	};
	return lp_test_main(tests, "namespace/shard/space");
}
