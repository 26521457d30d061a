/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: operations whose shard fails under them (rule L7). State that they had shown is taken back
 * where a kernel remembers it (rule M2), and opens that they had given are given back. Method:
 * shards on a simulated device; the log of one cannot be written any more. */
#include "namespace/ops/paths_rig_test.h"
#include "namespace/shard/ns_sim_test.h"

#define BROKEN    1u
#define HEARD_MAX 32u

static const struct lp_ino root = {1};

struct asked {
	struct lp_ns_op op;
	bool is_done;
};

struct world {
	struct lpi_ns_sim *sim;
	struct asked asked;
	struct lp_ino dir; /* on the shard that is to fail */
	/* What a mount is told, which knows everything. */
	struct lp_ns_notice *waiting[HEARD_MAX];
	uint32_t waiting_cnt;
	struct lp_ino heard[HEARD_MAX];
	uint32_t heard_cnt;
};

static void answered(struct lp_ns_op *op)
{
	LP_CONTAINER_OF(op, struct asked, op)->is_done = true;
}

static void submit(struct world *world, struct asked *asked)
{
	asked->op.complete = answered;
	asked->is_done = false;
	lp_ns_submit(world->sim->ns[0], &asked->op);
}

static void turn(struct world *world)
{
	while (world->waiting_cnt > 0)
		lp_ns_told(world->waiting[--world->waiting_cnt]);
	(void)lpi_ns_sim_turn(world->sim);
}

static int wait_for(struct world *world, struct asked *asked)
{
	for (uint32_t i = 0; !asked->is_done; i++) {
		assert_true(i < LPI_NS_SIM_TURNS_MAX);
		turn(world);
	}
	return asked->op.result;
}

static struct lp_ns_op *begin(struct world *world, enum lp_ns_opcode opcode, enum lp_store_ack ack)
{
	world->asked.op = (struct lp_ns_op){.opcode = opcode, .ack = ack};
	return &world->asked.op;
}

static int run(struct world *world)
{
	submit(world, &world->asked);
	return wait_for(world, &world->asked);
}

static void tell(void *arg, struct lp_ns_notice *notice)
{
	struct world *world = arg;
	LP_ASSERT(world->waiting_cnt < HEARD_MAX);
	world->waiting[world->waiting_cnt++] = notice;
	for (uint32_t i = 0; i < notice->item_cnt; i++) {
		LP_ASSERT(world->heard_cnt < HEARD_MAX);
		world->heard[world->heard_cnt++] = notice->items[i].ino;
	}
}

static bool has_heard(const struct world *world, struct lp_ino ino)
{
	for (uint32_t i = 0; i < world->heard_cnt; i++) {
		if (world->heard[i].nr == ino.nr)
			return true;
	}
	return false;
}

/* --- The world -------------------------------------------------------------------------------- */

static void fill_make(struct lp_ns_op *op, struct lp_ino dir, const char *name, uint8_t type)
{
	op->make.dir = dir;
	op->make.name = lpi_ns_sim_bytes(name);
	op->make.type = type;
	op->make.mode = 0644;
}

static struct lp_ino make(struct world *world, struct lp_ino dir, const char *name, uint8_t type)
{
	fill_make(begin(world, LP_NS_MAKE, LP_ACK_DURABLE), dir, name, type);
	lp_test_ok(run(world));
	return world->asked.op.make.found.ino;
}

/* Directories go round the shards. */
static void make_dir(struct world *world)
{
	char name[] = "0";
	while (lp_ino_shard(world->dir) != BROKEN) {
		assert_true(name[0] <= '9');
		world->dir = make(world, root, name, LP_INODE_TYPE_DIR);
		name[0]++;
	}
}

static void world_begin(struct world *world, uint64_t seed)
{
	const struct lp_ns_watch watch = {.tell = tell, .arg = world};
	*world = (struct world){.sim = lpi_ns_sim_boot(lpi_ns_sim_mkfs(seed))};
	lp_test_ok(lpi_ns_sim_start(world->sim));
	make_dir(world);
	for (uint32_t i = 0; i < LPI_NS_SIM_SHARDS; i++)
		lp_ns_watch(world->sim->ns[i], &watch);
}

static void world_end(struct world *world)
{
	for (uint32_t i = 0; i < LPI_NS_SIM_SHARDS; i++)
		lp_ns_watch(world->sim->ns[i], NULL);
	lpi_ns_sim_end_failed(world->sim);
}

/* --- What was shown --------------------------------------------------------------------------- */

static void fill_set(struct asked *asked, struct lp_ino ino)
{
	asked->op = (struct lp_ns_op){.opcode = LP_NS_SET};
	asked->op.set.ino = ino;
	asked->op.set.attrs.mode = 0600;
	asked->op.set.mask = LP_ATTR_MODE;
}

/* As an operation of the store alone. */
static void fill_txn(struct asked *asked, struct lp_change *change, struct lp_ino ino)
{
	static const struct lp_attrs attrs = {.mode = 0600};
	*change = (struct lp_change){.type = LP_CHANGE_SET, .ino = ino};
	change->inode.attrs = &attrs;
	change->inode.mask = LP_ATTR_MODE;
	asked->op = (struct lp_ns_op){.opcode = LP_NS_STORE};
	asked->op.store.ino = ino;
	asked->op.store.op = (struct lp_store_op){.opcode = LP_STORE_TXN,
						  .txn = {.changes = change, .change_cnt = 1}};
}

/* The mount looks at it, and its kernel remembers what it saw. */
static uint32_t mode_shown(struct world *world, struct lp_ino ino)
{
	struct lp_ns_op *op = begin(world, LP_NS_STAT, LP_ACK_ORDERED);
	op->is_mounts = true;
	op->hold = true;
	op->stat.ino = ino;
	lp_test_ok(run(world));
	return world->asked.op.stat.found.attrs.mode;
}

#define CHANGES 4u
#define FRAMES  2u /* of the log that are written at a time */

/* The first ones are in frames that cannot be written: their outcome is unknown. The others wait
 * for the next frame, which is never written: they certainly have not happened. All of them can be
 * seen until the shard goes back to the durable state. So a kernel that remembers them is told when
 * they end. */
static void test_lost_is_told(void **state)
{
	(void)state;
	struct world world;
	struct asked changes[CHANGES];
	struct lp_change change;
	struct lp_ino files[CHANGES];
	char name[] = "0";
	world_begin(&world, 21);
	for (uint32_t i = 0; i < CHANGES; i++, name[0]++)
		files[i] = make(&world, world.dir, name, LP_INODE_TYPE_FILE);
	lpi_ns_sim_break_log(world.sim, BROKEN);
	for (uint32_t i = 0; i < CHANGES; i++) {
		if (i + 1 < CHANGES)
			fill_set(&changes[i], files[i]);
		else
			fill_txn(&changes[i], &change, files[i]);
		submit(&world, &changes[i]);
		while (mode_shown(&world, files[i]) != 0600)
			assert_false(changes[0].is_done);
	}
	world.heard_cnt = 0;
	for (uint32_t i = 0; i < CHANGES; i++) {
		assert_int_equal(wait_for(&world, &changes[i]), i < FRAMES ? -EIO : -EROFS);
		assert_true(has_heard(&world, files[i]));
	}
	lpi_ns_sim_wait_read_only(world.sim, BROKEN);
	for (uint32_t i = 0; i < CHANGES; i++)
		assert_int_equal(mode_shown(&world, files[i]), 0644);
	world_end(&world);
}

/* --- Data that cannot be written -------------------------------------------------------------- */

#define DATA_BYTES 16384u

static int put_over(struct world *world, const char *path)
{
	struct lpi_tp_data data;
	lpi_tp_data_fill(&data, world->sim->bufs, DATA_BYTES, 'p');
	struct lp_ns_op *op = begin(world, LP_NS_PUT, LP_ACK_DURABLE);
	op->put.path = lpi_ns_sim_bytes(path);
	op->put.mode = 0644;
	op->put.length = DATA_BYTES;
	op->put.payload = data.payload;
	op->put.write_path = LP_PATH_DIRECT;
	int r = run(world);
	lpi_tp_data_drop(&data);
	return r;
}

/* The put changes two shards, and its data cannot be written: it certainly did not happen, so
 * nothing stays in doubt, and the next one is made. */
static void test_data_fails(void **state)
{
	(void)state;
	struct world world;
	struct lp_ns_stats stats;
	char path[] = "0/f";
	world_begin(&world, 24);
	struct lp_ino file = make(&world, root, "f", LP_INODE_TYPE_FILE);
	assert_true(lp_ino_shard(file) != BROKEN);
	struct lp_ns_op *op = begin(&world, LP_NS_RENAME, LP_ACK_DURABLE);
	op->rename.dir = root;
	op->rename.name = lpi_ns_sim_bytes("f");
	op->rename.to_dir = world.dir;
	op->rename.to_name = lpi_ns_sim_bytes("f");
	lp_test_ok(run(&world));
	for (bool is_found = false; !is_found;) {
		op = begin(&world, LP_NS_LOOKUP, LP_ACK_DURABLE);
		op->lookup.dir = root;
		op->lookup.name = (struct lp_bytes){path, 1};
		lp_test_ok(run(&world));
		is_found = world.asked.op.lookup.found.ino.nr == world.dir.nr;
		path[0] = (char)(path[0] + !is_found);
	}
	const struct lp_disk_label *label = &world.sim->devices.label[LP_ROLE_DATA];
	const struct lp_sim_rule rule = {.fault = LP_SIM_EIO,
					 .opcode_mask = LP_SIM_OP(LP_BDEV_WRITE) |
							LP_SIM_OP(LP_BDEV_WRITE_THROUGH),
					 .offset_bytes = label->chunk_base * LP_BLOCK_BYTES,
					 .fire_cnt = 1};
	uint32_t number = lp_sim_rule_add(lp_sim_of(world.sim->bdev), &rule);
	assert_int_equal(put_over(&world, path), -EIO);
	assert_int_equal(lp_sim_rule_fired(lp_sim_of(world.sim->bdev), number), 1);
	for (uint32_t i = 0; i < LPI_NS_SIM_SHARDS; i++) {
		lp_ns_read_stats(world.sim->ns[i], &stats);
		assert_int_equal(stats.stuck, 0);
	}
	lp_test_ok(put_over(&world, path));
	lpi_ns_sim_stop(world.sim);
	lp_test_ok(lpi_ns_sim_close(world.sim, false));
	lpi_ns_sim_fini(world.sim);
	free(world.sim);
}

/* --- What was given --------------------------------------------------------------------------- */

/* An open by a name that is not durable waits for that. If the name is lost, so is the open: the
 * caller gets an error, and will not close it. */
static void test_failed_open_is_not_open(void **state)
{
	(void)state;
	struct world world;
	struct lp_ns_stats stats;
	world_begin(&world, 22);
	lpi_ns_sim_break_log(world.sim, BROKEN);
	fill_make(begin(&world, LP_NS_MAKE, LP_ACK_ORDERED), world.dir, "new", LP_INODE_TYPE_FILE);
	world.asked.op.is_mounts = true;
	lp_test_ok(run(&world));
	struct lp_ns_op *op = begin(&world, LP_NS_MAKE, LP_ACK_DURABLE);
	fill_make(op, world.dir, "new", LP_INODE_TYPE_FILE);
	op->make.or_open = true;
	op->make.open = true;
	assert_int_equal(lpi_ns_sim_state(world.sim, BROKEN), LP_STORE_OK);
	assert_int_equal(run(&world), -EIO);
	lp_ns_read_stats(world.sim->ns[BROKEN], &stats);
	assert_int_equal(stats.opens, 0);
	world_end(&world);
}

/* Operations of several changes over several shards, one after the other: each waits for the end
 * of the one before, which may never come. */
static const struct {
	enum lp_ns_opcode opcode;
	const char *path;
	const char *to_path;
} chains[] = {
	{LP_NS_DELETE, "b/d/e/f", NULL},  /* and three directories */
	{LP_NS_PUT, "c/x/y/z", NULL},     /* into as many that are made first */
	{LP_NS_MOVE, "b/d/e/f", "q/r/s"}, /* both */
	{LP_NS_COPY, "b/d/e/f", "b/q/r/s/copy"},
};

static void fill_chain(struct lp_ns_op *op, size_t idx)
{
	*op = (struct lp_ns_op){.opcode = chains[idx].opcode};
	if (op->opcode == LP_NS_DELETE) {
		op->delete.path = lpi_ns_sim_bytes(chains[idx].path);
	} else if (op->opcode == LP_NS_PUT) {
		op->put.path = lpi_ns_sim_bytes(chains[idx].path);
		op->put.mode = 0644;
	} else {
		op->copy.path = lpi_ns_sim_bytes(chains[idx].path);
		op->copy.to_path = lpi_ns_sim_bytes(chains[idx].to_path);
	}
}

/* The shard's log takes some more writes, and then none. Returns whether it came to that. */
static bool fail_chain(size_t idx, uint32_t shard_idx, uint32_t writes)
{
	struct lpi_ns_sim *sim = lpi_ns_sim_boot(lpi_ns_sim_mkfs(23));
	struct lp_ns_op op = {.opcode = LP_NS_PUT};
	struct lp_extent area = lp_label_log_area(&sim->devices.label[LP_ROLE_DATA], shard_idx);
	const struct lp_sim_rule rule = {.fault = LP_SIM_EIO,
					 .opcode_mask = LP_SIM_OP(LP_BDEV_WRITE_THROUGH),
					 .offset_bytes = area.block * LP_BLOCK_BYTES,
					 .length_bytes = area.cnt * LP_BLOCK_BYTES,
					 .skip_cnt = writes};
	lp_test_ok(lpi_ns_sim_start(sim));
	op.put.path = lpi_ns_sim_bytes("b/d/e/f");
	op.put.mode = 0644;
	lp_test_ok(lpi_ns_sim_do(sim, &op));
	uint32_t number = lp_sim_rule_add(lp_sim_of(sim->bdev), &rule);
	fill_chain(&op, idx);
	int result = lpi_ns_sim_do(sim, &op); /* fails the test if it takes for ever */
	assert_true(result == 0 || result == -EIO || result == -EROFS);
	bool has_fired = lp_sim_rule_fired(lp_sim_of(sim->bdev), number) > 0;
	assert_true(has_fired || result == 0);
	lp_sim_rules_clear(lp_sim_of(sim->bdev));
	lpi_ns_sim_stop(sim);
	(void)lpi_ns_sim_close(sim, false);
	lpi_ns_sim_fini(sim);
	free(sim);
	return has_fired;
}

static void test_each_is_answered(void **state)
{
	uint32_t cnt = 0;
	(void)state;
	for (size_t i = 0; i < LP_ARRAY_SIZE(chains); i++) {
		for (uint32_t shard_idx = 0; shard_idx < LPI_NS_SIM_SHARDS; shard_idx++) {
			uint32_t writes = 0;
			while (fail_chain(i, shard_idx, writes))
				writes++;
			cnt += writes;
		}
	}
	assert_true(cnt > 50);
}

/* --- A stop meanwhile ------------------------------------------------------------------------- */

/* Keeps a shard's log busy until the operation has been answered or all has stopped. */
struct busy {
	struct lp_store_op op;
	struct lp_change change;
	struct lp_attrs attrs;
	const struct world *world;
	bool is_done;
};

static void keep_busy(struct lp_store_op *op)
{
	struct busy *busy = op->user;
	const struct lpi_ns_sim *sim = busy->world->sim;
	busy->is_done = busy->world->asked.is_done || sim->stopped_cnt > 0;
	if (!busy->is_done)
		lp_store_submit(sim->hand[0].store, op);
}

static void begin_busy(struct busy *busy, const struct world *world, struct lp_ino ino)
{
	*busy = (struct busy){.world = world, .attrs = {.mode = 0600}};
	busy->change = (struct lp_change){.type = LP_CHANGE_SET, .ino = ino};
	busy->change.inode.attrs = &busy->attrs;
	busy->change.inode.mask = LP_ATTR_MODE;
	busy->op = (struct lp_store_op){.opcode = LP_STORE_TXN,
					.txn = {.changes = &busy->change, .change_cnt = 1},
					.complete = keep_busy,
					.user = busy};
	lp_store_submit(world->sim->hand[0].store, &busy->op);
}

/* Its change is never over, but it has to make durable what it has seen on another shard, and is
 * answered then: a stop waits for that, and closes nothing under it. */
static void test_stop_waits_for_the_doubtful(void **state)
{
	(void)state;
	struct world world;
	struct busy busy;
	struct lp_ns_stats stats;
	world_begin(&world, 25);
	for (uint32_t i = 0; i < LPI_NS_SIM_SHARDS; i++)
		lp_ns_watch(world.sim->ns[i], NULL);
	struct lp_ino other = make(&world, root, "other", LP_INODE_TYPE_FILE);
	lpi_ns_sim_break_log(world.sim, BROKEN);
	fill_make(begin(&world, LP_NS_MAKE, LP_ACK_ORDERED), root, "new", LP_INODE_TYPE_FILE);
	world.asked.op.is_mounts = true;
	lp_test_ok(run(&world));
	struct lp_ns_op *op = begin(&world, LP_NS_RENAME, LP_ACK_DURABLE);
	op->rename.dir = root;
	op->rename.name = lpi_ns_sim_bytes("new");
	op->rename.to_dir = world.dir;
	op->rename.to_name = lpi_ns_sim_bytes("new");
	world.sim->stopped_cnt = 0;
	submit(&world, &world.asked);
	begin_busy(&busy, &world, other);
	for (uint64_t stuck = 0; stuck == 0 && !world.asked.is_done;) {
		lp_ns_read_stats(world.sim->ns[0], &stats);
		stuck = stats.stuck;
		if (stuck == 0)
			turn(&world);
	}
	assert_int_equal(stats.stuck, 1);
	assert_false(world.asked.is_done);
	lpi_ns_sim_stop(world.sim);
	assert_true(world.asked.is_done);
	assert_int_equal(world.asked.op.result, -EIO);
	while (!busy.is_done)
		turn(&world);
	lp_sim_rules_clear(lp_sim_of(world.sim->bdev));
	assert_true(lpi_ns_sim_close(world.sim, false) < 0);
	lpi_ns_sim_fini(world.sim);
	free(world.sim);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_each_is_answered),
		cmocka_unit_test(test_lost_is_told),
		cmocka_unit_test(test_data_fails),
		cmocka_unit_test(test_failed_open_is_not_open),
		cmocka_unit_test(test_stop_waits_for_the_doubtful),
	};
	return lp_test_main(tests, "namespace/shard/failed");
}
