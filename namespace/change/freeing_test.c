/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: a store is full only when nothing more is being freed (P6): what finds no space while the
 * kernel is about to forget what was removed, on this shard or another, waits for that, and for
 * what is really in use no longer than a moment.
 * Method: shards on a simulated device, full of what is preallocated; inodes that are held, and
 * forgotten in simulated time. */
#include "namespace/ops/paths_rig_test.h"
#include "namespace/shard/ns_sim_test.h"

/* More than a shard keeps for itself when another one asks for space (rule S5). */
#define VICTIM_BYTES (UINT64_C(24) << 20)
#define STEP_BYTES   (UINT64_C(8) << 20)
#define MORE_BYTES   (UINT64_C(2) << 20)
#define FILES        LPI_NS_SIM_SHARDS

static const struct lp_ino root = {1};

struct world {
	struct lpi_ns_sim *sim;
	struct lp_ns_op op;
	/* One on each shard, which together take all the space there is. */
	struct lp_ino files[FILES];
	uint64_t ends[FILES];
	struct lp_ino victim; /* on shard 0, held */
	struct lp_ino bucket; /* spread */
	char path[24];
	uint32_t puts;
	struct lp_timer idle_timer;
	/* The victim is to be forgotten. */
	struct lp_timer forget_timer;
	struct lp_ns_op forget_op;
	struct lp_ns_forgotten item;
};

static struct lp_ns_op *begin(struct world *world, enum lp_ns_opcode opcode)
{
	world->op = (struct lp_ns_op){.opcode = opcode, .ack = LP_ACK_ORDERED};
	return &world->op;
}

static int run(struct world *world)
{
	return lpi_ns_sim_do(world->sim, &world->op);
}

static struct lp_ino make(struct world *world, struct lp_ino dir, const char *name, uint8_t type)
{
	struct lp_ns_op *op = begin(world, LP_NS_MAKE);
	op->hold = type == LP_INODE_TYPE_FILE;
	op->make.dir = dir;
	op->make.name = lpi_ns_sim_bytes(name);
	op->make.type = type;
	op->make.mode = 0755;
	lp_test_ok(run(world));
	return world->op.make.found.ino;
}

static int take_away(struct world *world, struct lp_ino dir, const char *name, bool is_dir)
{
	struct lp_ns_op *op = begin(world, LP_NS_REMOVE);
	op->remove.dir = dir;
	op->remove.name = lpi_ns_sim_bytes(name);
	op->remove.is_dir = is_dir;
	return run(world);
}

static int allocate(struct world *world, struct lp_ino ino, uint64_t offset, uint64_t length)
{
	const struct lp_change change = {.type = LP_CHANGE_PREALLOC,
					 .ino = ino,
					 .data = {.offset = offset, .length = length}};
	struct lp_ns_op *op = begin(world, LP_NS_STORE);
	op->store.ino = ino;
	op->store.op = (struct lp_store_op){
		.opcode = LP_STORE_TXN,
		.txn = {.changes = &change, .change_cnt = 1, .ack = LP_ACK_ORDERED}};
	return run(world);
}

static int grow(struct world *world, uint32_t shard_idx, uint64_t length)
{
	int r = allocate(world, world->files[shard_idx], world->ends[shard_idx], length);
	if (r >= 0)
		world->ends[shard_idx] += length;
	return r;
}

/* Directories go round the shards. */
static void make_files(struct world *world)
{
	for (uint32_t made = 0; made < FILES;) {
		char name[8];
		(void)snprintf(name, sizeof(name), "d%u", (unsigned)made);
		struct lp_ino dir = make(world, root, name, LP_INODE_TYPE_DIR);
		uint32_t shard_idx = lp_ino_shard(dir);
		if (world->files[shard_idx].nr != 0) {
			lp_test_ok(take_away(world, root, name, true));
			continue;
		}
		world->files[shard_idx] = make(world, dir, "file", LP_INODE_TYPE_FILE);
		made++;
	}
}

static void idle(struct world *world, uint64_t ns)
{
	uint64_t end_ns = world->sim->clock.now_ns + ns;
	lp_timer_start(world->sim->reactor, &world->idle_timer, end_ns);
	while (world->sim->clock.now_ns < end_ns)
		(void)lpi_ns_sim_turn(world->sim);
}

static void nothing(struct lp_timer *timer)
{
	(void)timer;
}

/* Space that was freed for one shard may be room for another: repeats until no shard takes any
 * more. */
static void fill(struct world *world)
{
	for (uint32_t full = 0; full < FILES;) {
		full = 0;
		for (uint32_t i = 0; i < FILES; i++) {
			uint32_t steps = 0;
			while (grow(world, i, STEP_BYTES) >= 0)
				steps++;
			assert_int_equal(world->op.result, -ENOSPC);
			full += steps == 0;
		}
	}
	/* The last step of each was taken in part. */
	for (uint32_t i = 0; i < FILES; i++)
		world->ends[i] += STEP_BYTES;
}

static void forgot(struct lp_ns_op *op)
{
	(void)op;
}

static void forget(struct lp_timer *timer)
{
	struct world *world = LP_CONTAINER_OF(timer, struct world, forget_timer);
	world->item = (struct lp_ns_forgotten){.ino = world->victim, .count = 1};
	world->forget_op = (struct lp_ns_op){.opcode = LP_NS_FORGET,
					     .complete = forgot,
					     .forget = {.items = &world->item, .cnt = 1}};
	lp_ns_submit(world->sim->ns[0], &world->forget_op);
}

static void world_begin(struct world *world)
{
	*world = (struct world){.idle_timer = {.fire = nothing}, .forget_timer = {.fire = forget}};
	world->sim = lpi_ns_sim_boot(lpi_ns_sim_mkfs(5));
	lp_test_ok(lpi_ns_sim_start(world->sim));
	make_files(world);
	world->victim = make(world, root, "victim", LP_INODE_TYPE_FILE);
	struct lp_ns_op *op = begin(world, LP_NS_MAKE);
	op->make.dir = root;
	op->make.name = lpi_ns_sim_bytes("bucket");
	op->make.type = LP_INODE_TYPE_DIR;
	op->make.spread = true;
	lp_test_ok(run(world));
	world->bucket = world->op.make.found.ino;
	for (uint64_t at = 0; at < VICTIM_BYTES; at += STEP_BYTES)
		lp_test_ok(allocate(world, world->victim, at, STEP_BYTES));
	fill(world);
	idle(world, LP_NS_PER_S);
	for (uint32_t i = 0; i < FILES; i++)
		assert_int_equal(grow(world, i, MORE_BYTES), -ENOSPC);
}

static void world_end(struct world *world)
{
	lpi_ns_sim_stop(world->sim);
	lp_test_ok(lpi_ns_sim_close(world->sim, false));
	lpi_ns_sim_fsck(world->sim);
	lpi_ns_sim_fini(world->sim);
	free(world->sim);
}

static void forget_in(struct world *world, uint64_t ns)
{
	lp_timer_start(world->sim->reactor, &world->forget_timer, world->sim->clock.now_ns + ns);
}

static uint64_t freeing_waits(const struct world *world)
{
	uint64_t cnt = 0;
	for (uint32_t i = 0; i < LPI_NS_SIM_SHARDS; i++) {
		struct lp_ns_stats stats;
		lp_ns_read_stats(world->sim->ns[i], &stats);
		cnt += stats.freeing_waits;
	}
	return cnt;
}

/* P6: the kernel forgets the inode delay_ns later, before or after an operation finds no space. */
static void check_waits(uint32_t shard_idx, uint64_t delay_ns)
{
	struct world world;
	world_begin(&world);
	lp_test_ok(take_away(&world, root, "victim", false));
	forget_in(&world, delay_ns);
	lp_test_ok(grow(&world, shard_idx, MORE_BYTES));
	assert_true(freeing_waits(&world) > 0);
	world_end(&world);
}

static void test_waits(void **state)
{
	static const uint64_t delays_ns[] = {1, LP_NS_PER_MS, 50 * LP_NS_PER_MS};
	(void)state;
	/* A sanitizer needs many times as long for each. */
	uint32_t stride = LP_ASSERT_SLOW_ON ? 2 : 1;
	for (uint32_t i = stride - 1; i < LP_ARRAY_SIZE(delays_ns); i += stride) {
		check_waits(0, delays_ns[i]);
		check_waits(1, delays_ns[i]);
	}
}

/* Inodes that the kernel keeps are in use: an operation waits for them once, and not long. */
static void test_full_in_a_moment(void **state)
{
	(void)state;
	struct world world;
	world_begin(&world);
	lp_test_ok(take_away(&world, root, "victim", false));
	uint64_t from_ns = world.sim->clock.now_ns;
	assert_int_equal(grow(&world, 0, MORE_BYTES), -ENOSPC);
	assert_true(world.sim->clock.now_ns - from_ns >= LPI_FREEING_HELD_NS);
	assert_true(world.sim->clock.now_ns - from_ns < 2 * LPI_FREEING_HELD_NS);
	from_ns = world.sim->clock.now_ns;
	assert_int_equal(grow(&world, 0, MORE_BYTES), -ENOSPC);
	assert_true(world.sim->clock.now_ns - from_ns < LPI_FREEING_HELD_NS / 2);
	/* And when it has been forgotten after all there is room. */
	forget_in(&world, LP_NS_PER_MS);
	idle(&world, LP_NS_PER_S);
	lp_test_ok(grow(&world, 0, MORE_BYTES));
	world_end(&world);
}

/* --- Orphans that may be about to be freed ---------------------------------------------------- */

/* The victim is not held, but open; and it loses its name. */
static void begin_with_open(struct world *world)
{
	world_begin(world);
	begin(world, LP_NS_OPEN)->open.ino = world->victim;
	world->op.open.count = 1;
	lp_test_ok(run(world));
	forget_in(world, 1);
	idle(world, LP_NS_PER_MS);
	lp_test_ok(take_away(world, root, "victim", false));
	idle(world, LP_NS_PER_S);
}

static void close_victim(struct lp_timer *timer)
{
	struct world *world = LP_CONTAINER_OF(timer, struct world, forget_timer);
	world->forget_op = (struct lp_ns_op){.opcode = LP_NS_CLOSE,
					     .complete = forgot,
					     .open = {.ino = world->victim, .count = 1}};
	lp_ns_submit(world->sim->ns[0], &world->forget_op);
}

/* P6: the inode was closed before, but a slow thread reports it after an operation has found no
 * space, in a turn of its own. */
static void test_close_on_its_way(void **state)
{
	(void)state;
	for (uint32_t shard_idx = 0; shard_idx < 2; shard_idx++) {
		struct world world;
		begin_with_open(&world);
		world.forget_timer.fire = close_victim;
		forget_in(&world, LPI_FREEING_ROUNDS / 2 * LP_NS_PER_MS);
		lp_test_ok(grow(&world, shard_idx, MORE_BYTES));
		world_end(&world);
	}
}

/* An open inode is in use, which is known as soon as all shards have answered. */
static void test_open_is_in_use(void **state)
{
	(void)state;
	struct world world;
	begin_with_open(&world);
	uint64_t from_ns = world.sim->clock.now_ns;
	assert_int_equal(grow(&world, 0, MORE_BYTES), -ENOSPC);
	assert_true(world.sim->clock.now_ns - from_ns < LPI_FREEING_HELD_NS / 2);
	world.forget_timer.fire = close_victim;
	forget_in(&world, 1);
	idle(&world, LP_NS_PER_S);
	lp_test_ok(grow(&world, 0, MORE_BYTES));
	world_end(&world);
}

/* --- It takes as long as it takes ------------------------------------------------------------- */

static void test_slow_device(void **state)
{
	(void)state;
	struct world world;
	world_begin(&world);
	const struct lp_sim_rule slow = {.fault = LP_SIM_SLOW,
					 .opcode_mask = LP_SIM_OP(LP_BDEV_WRITE_THROUGH),
					 .arg = 5 * LP_NS_PER_S};
	lp_test_ok(take_away(&world, root, "victim", false));
	(void)lp_sim_rule_add(lp_sim_of(world.sim->bdev), &slow);
	forget_in(&world, 1);
	lp_test_ok(grow(&world, 0, MORE_BYTES));
	lp_sim_rules_clear(lp_sim_of(world.sim->bdev));
	world_end(&world);
}

#define PINS_MAX 512u

/* I/O on freed blocks never ends: no operation waits for ever, in the store and here together. */
static void test_hung_io(void **state)
{
	(void)state;
	static struct lp_space_pin pins[PINS_MAX];
	struct world world;
	uint32_t cnt = 0;
	world_begin(&world);
	struct lp_space *space = lpi_block_of(world.sim->hand[0].store)->space;
	const struct lp_space_config *config = lp_space_config(space);
	for (uint32_t i = 0; i < config->chunk_cnt_max; i++) {
		uint64_t base = config->base_block + (uint64_t)i * config->chunk_blocks;
		if (!lp_space_owns(space, i))
			continue;
		assert_true(cnt < PINS_MAX);
		lp_space_pin(space, &pins[cnt++], (struct lp_extent){base, config->chunk_blocks});
	}
	lp_test_ok(take_away(&world, root, "victim", false));
	forget_in(&world, 1);
	uint64_t from_ns = world.sim->clock.now_ns;
	assert_int_equal(grow(&world, 0, MORE_BYTES), -ENOSPC);
	assert_true(world.sim->clock.now_ns - from_ns < 2 * LPI_FREEING_MAX_NS);
	while (cnt > 0)
		lp_space_unpin(space, &pins[--cnt]);
	idle(&world, LP_NS_PER_S);
	lp_test_ok(grow(&world, 0, MORE_BYTES));
	world_end(&world);
}

/* An operation that looked before the freeing ended, and is told after that, looks once more,
 * however long ago it was. One that looked after that does not. */
static void test_told_late(void **state)
{
	(void)state;
	struct world world;
	struct lpi_freeing_wait wait = {0};
	world_begin(&world);
	struct lp_ns *ns = world.sim->ns[1];
	lp_test_ok(take_away(&world, root, "victim", false));
	lpi_freeing_tries(ns, &wait);
	forget_in(&world, 1);
	idle(&world, LP_NS_PER_S);
	assert_true(lpi_freeing_goes_on(ns, &wait));
	lpi_freeing_tries(ns, &wait);
	assert_false(lpi_freeing_goes_on(ns, &wait));
	world_end(&world);
}

/* The next name below the bucket whose entry is on shard 1. */
static const char *far_name(struct world *world)
{
	struct lp_ns *ns = world->sim->ns[0];
	do
		(void)snprintf(world->path, sizeof(world->path), "bucket/f%u",
			       (unsigned)world->puts++);
	while (lp_ns_shard_of(ns, world->bucket, lpi_ns_sim_bytes(strchr(world->path, '/') + 1)) !=
	       1);
	return strchr(world->path, '/') + 1;
}

/* An object at the path, from shard 0. */
static int put_if(struct world *world, enum lp_ns_if condition)
{
	struct lpi_tp_data data;
	lpi_tp_data_fill(&data, world->sim->bufs, LPI_TP_BYTES_MAX, 'f');
	struct lp_ns_op *op = begin(world, LP_NS_PUT);
	op->ack = LP_ACK_DURABLE;
	op->put.path = lpi_ns_sim_bytes(world->path);
	op->put.mode = 0644;
	op->put.condition = condition;
	op->put.length = LPI_TP_BYTES_MAX;
	op->put.payload = data.payload;
	op->put.write_path = LP_PATH_DIRECT;
	int r = run(world);
	lpi_tp_data_drop(&data);
	return r;
}

static int put(struct world *world)
{
	return put_if(world, LP_NS_IF_ANY);
}

/* A new object whose entry, and data, are on shard 1. */
static int put_far(struct world *world)
{
	(void)far_name(world);
	return put(world);
}

/* Data from another thread is copied anew for each try, to buffers of the shard (an assertion in
 * change/shard_call.c). The buffers of the earlier try have been given back. */
static void test_waits_with_data(void **state)
{
	(void)state;
	struct world world;
	world_begin(&world);
	while (put_far(&world) >= 0)
		assert_true(world.puts < 4096);
	assert_int_equal(world.op.result, -ENOSPC);
	uint64_t waits = freeing_waits(&world);
	lp_test_ok(take_away(&world, root, "victim", false));
	forget_in(&world, 50 * LP_NS_PER_MS);
	lp_test_ok(put_far(&world));
	assert_true(freeing_waits(&world) > waits);
	world_end(&world);
}

#define VALUE_BYTES 4096u

/* One of many values, which fill an index. */
static int set_value(struct world *world, struct lp_ino ino, uint32_t nr)
{
	static const uint8_t bytes[VALUE_BYTES];
	const struct lp_change change = {
		.type = LP_CHANGE_OMAP_SET,
		.ino = ino,
		.named = {.name = {&nr, sizeof(nr)}, .value = {bytes, sizeof(bytes)}}};
	struct lp_ns_op *op = begin(world, LP_NS_STORE);
	op->store.ino = ino;
	op->store.op = (struct lp_store_op){
		.opcode = LP_STORE_TXN,
		.txn = {.changes = &change, .change_cnt = 1, .ack = LP_ACK_ORDERED}};
	return run(world);
}

#define SOURCE_VALUES 16u

/* A source of many values, and so many others, or as many as there is space for: returns how many.
 */
static uint32_t fill_index(struct world *world, uint32_t values)
{
	struct lp_ino source = make(world, root, "source", LP_INODE_TYPE_FILE);
	struct lp_ino filler = make(world, root, "filler", LP_INODE_TYPE_FILE);
	uint32_t cnt = 0;
	for (uint32_t i = 0; i < SOURCE_VALUES; i++)
		lp_test_ok(set_value(world, source, i));
	while (cnt < values && set_value(world, filler, cnt) >= 0)
		assert_true(++cnt < 4096);
	return cnt;
}

/* The index has room for a new inode, but not for all that it is to be a copy of. */
static void test_copy_waits(void **state)
{
	(void)state;
	struct world world;
	world_begin(&world);
	uint32_t cnt = fill_index(&world, UINT32_MAX);
	assert_int_equal(world.op.result, -ENOSPC);
	world_end(&world);
	world_begin(&world);
	assert_true(cnt > SOURCE_VALUES);
	(void)fill_index(&world, cnt - SOURCE_VALUES / 2);
	uint64_t waits = freeing_waits(&world);
	lp_test_ok(take_away(&world, root, "victim", false));
	forget_in(&world, 100 * LP_NS_PER_MS);
	struct lp_ns_op *op = begin(&world, LP_NS_COPY);
	op->ack = LP_ACK_DURABLE;
	op->copy.path = lpi_ns_sim_bytes("source");
	op->copy.to_path = lpi_ns_sim_bytes("copy");
	lp_test_ok(run(&world));
	assert_true(freeing_waits(&world) > waits);
	world_end(&world);
}

/* A put that replaces a file on another shard takes its last name. This removal frees no space for
 * the put itself, because it ends only with the put. */
static void test_own_removal(void **state)
{
	(void)state;
	struct world world;
	world_begin(&world);
	struct lp_ino old = make(&world, root, "old", LP_INODE_TYPE_FILE);
	assert_int_equal(lp_ino_shard(old), 0);
	struct lp_ns_op *op = begin(&world, LP_NS_RENAME);
	op->rename.dir = root;
	op->rename.name = lpi_ns_sim_bytes("old");
	op->rename.to_dir = world.bucket;
	op->rename.to_name = lpi_ns_sim_bytes(far_name(&world));
	lp_test_ok(run(&world));
	char path[sizeof(world.path)];
	memcpy(path, world.path, sizeof(path));
	while (put_far(&world) >= 0)
		assert_true(world.puts < 4096);
	idle(&world, LP_NS_PER_S);
	memcpy(world.path, path, sizeof(path));
	uint64_t from_ns = world.sim->clock.now_ns;
	assert_int_equal(put(&world), -ENOSPC);
	assert_true(world.sim->clock.now_ns - from_ns < LP_NS_PER_S);
	world_end(&world);
}

/* An existing name is reported before a lack of space, also where the puts before were all of new
 * names, so that this name is not looked up. */
static void test_full_and_there(void **state)
{
	(void)state;
	struct world world;
	world_begin(&world);
	lp_test_ok(take_away(&world, root, "victim", false));
	forget_in(&world, LP_NS_PER_MS);
	idle(&world, LP_NS_PER_S);
	lp_test_ok(put_far(&world));
	char path[sizeof(world.path)];
	memcpy(path, world.path, sizeof(path));
	while (put_far(&world) >= 0)
		assert_true(world.puts < 4096);
	assert_true(world.puts > 9);
	assert_int_equal(put_far(&world), -ENOSPC);
	memcpy(world.path, path, sizeof(path));
	assert_int_equal(put_if(&world, LP_NS_IF_ABSENT), -EEXIST);
	(void)far_name(&world);
	assert_int_equal(put_if(&world, LP_NS_IF_ABSENT), -ENOSPC);
	struct lp_ns_op *op = begin(&world, LP_NS_MAKE);
	op->make.dir = world.bucket;
	op->make.name = lpi_ns_sim_bytes(strchr(path, '/') + 1);
	op->make.type = LP_INODE_TYPE_FILE;
	assert_int_equal(run(&world), -EEXIST);
	world_end(&world);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_waits),
		cmocka_unit_test(test_full_in_a_moment),
		cmocka_unit_test(test_copy_waits),
		cmocka_unit_test(test_waits_with_data),
		cmocka_unit_test(test_own_removal),
		cmocka_unit_test(test_full_and_there),
		cmocka_unit_test(test_close_on_its_way),
		cmocka_unit_test(test_open_is_in_use),
		cmocka_unit_test(test_slow_device),
		cmocka_unit_test(test_told_late),
		cmocka_unit_test(test_hung_io),
	};
	return lp_test_main(tests, "namespace/change/freeing");
}
