/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: a change on one shard takes one write before it is answered, one over two shards two, one
 * after the other (docs/targets.md), also right behind another one; what is only ordered takes none
 * on one shard; whoever is told that something is in his way can rely on that (P3); and what is
 * asked by key takes none while others write, unless it is just what they write.
 * Method: a simulated device whose write-through takes a time that everything else is nothing
 * against: how often that fits into an operation's. */
#include "namespace/shard/ns_sim_test.h"

#define WRITE_NS (100 * LP_NS_PER_MS)
#define ROUNDS   (4 * LPI_NS_SIM_SHARDS)

static const struct lp_ino root = {1};

struct world {
	struct lpi_ns_sim *sim;
	struct lp_ns_op op;
	enum lp_store_ack ack;
	uint64_t writes; /* in sequence, in the last operation */
};

static struct lp_ns_op *begin(struct world *world, enum lp_ns_opcode opcode)
{
	world->op = (struct lp_ns_op){.opcode = opcode, .ack = world->ack};
	return &world->op;
}

static int run(struct world *world)
{
	uint64_t from_ns = world->sim->clock.now_ns;
	(void)lpi_ns_sim_do(world->sim, &world->op);
	uint64_t took_ns = world->sim->clock.now_ns - from_ns;
	assert_true(took_ns % WRITE_NS < WRITE_NS / 2);
	world->writes = took_ns / WRITE_NS;
	return world->op.result;
}

static int make(struct world *world, struct lp_ino dir, const char *name, bool is_spread)
{
	struct lp_ns_op *op = begin(world, LP_NS_MAKE);
	op->make.dir = dir;
	op->make.name = lpi_ns_sim_bytes(name);
	op->make.type = LP_INODE_TYPE_DIR;
	op->make.mode = 0755;
	op->make.spread = is_spread;
	return run(world);
}

static int take_away(struct world *world, struct lp_ino dir, const char *name)
{
	struct lp_ns_op *op = begin(world, LP_NS_REMOVE);
	op->remove.dir = dir;
	op->remove.name = lpi_ns_sim_bytes(name);
	op->remove.is_dir = true;
	return run(world);
}

static int rename_to(struct world *world, struct lp_ino dir, const char *name, struct lp_ino to_dir,
		     const char *to_name)
{
	struct lp_ns_op *op = begin(world, LP_NS_RENAME);
	op->rename.dir = dir;
	op->rename.name = lpi_ns_sim_bytes(name);
	op->rename.to_dir = to_dir;
	op->rename.to_name = lpi_ns_sim_bytes(to_name);
	return run(world);
}

static void sync_all(struct world *world)
{
	(void)begin(world, LP_NS_SYNC);
	lp_test_ok(run(world));
}

static void world_begin(struct world *world, enum lp_store_ack ack)
{
	const struct lp_sim_rule slow = {.fault = LP_SIM_SLOW,
					 .opcode_mask = LP_SIM_OP(LP_BDEV_WRITE_THROUGH),
					 .arg = WRITE_NS};
	*world = (struct world){.ack = ack};
	world->sim = lpi_ns_sim_boot(lpi_ns_sim_mkfs(9));
	lp_test_ok(lpi_ns_sim_start(world->sim));
	(void)lp_sim_rule_add(lp_sim_of(world->sim->bdev), &slow);
}

static void world_end(struct world *world)
{
	lp_sim_rules_clear(lp_sim_of(world->sim->bdev));
	lpi_ns_sim_stop(world->sim);
	lp_test_ok(lpi_ns_sim_close(world->sim, false));
	lpi_ns_sim_fini(world->sim);
	free(world->sim);
}

/* Of a change to the root and an inode of that shard. */
static void check_writes(struct world *world, uint32_t shard_idx, const char *what)
{
	bool is_local = shard_idx == lp_ino_shard(root);
	uint64_t local = world->ack == LP_ACK_DURABLE ? 1 : 0;
	uint64_t limit = is_local ? local : 2;
	if (world->writes > limit)
		print_error("%s: %u writes in sequence, not %u\n", what, (unsigned)world->writes,
			    (unsigned)limit);
	assert_true(world->writes <= limit);
	/* Else its first write would wait behind others of which nobody was told. */
	if (world->ack == LP_ACK_ORDERED)
		sync_all(world);
}

/* One right after the other, in one directory. */
static void count_one_after_the_other(struct world *world, bool is_spread)
{
	struct lp_ino inos[ROUNDS];
	char name[16];
	lp_test_ok(make(world, root, "first", is_spread)); /* lookups of the root, once */
	for (uint32_t i = 0; i < ROUNDS; i++) {
		(void)snprintf(name, sizeof(name), "d%u", (unsigned)i);
		lp_test_ok(make(world, root, name, is_spread));
		inos[i] = world->op.make.found.ino;
		check_writes(world, lp_ino_shard(inos[i]), "mkdir");
	}
	sync_all(world);
	for (uint32_t i = 0; i < ROUNDS; i++) {
		char to_name[16];
		(void)snprintf(name, sizeof(name), "d%u", (unsigned)i);
		(void)snprintf(to_name, sizeof(to_name), "e%u", (unsigned)i);
		lp_test_ok(rename_to(world, root, name, root, to_name));
		check_writes(world, lp_ino_shard(inos[i]), "rename");
	}
	sync_all(world);
	for (uint32_t i = 0; i < ROUNDS; i++) {
		(void)snprintf(name, sizeof(name), "e%u", (unsigned)i);
		lp_test_ok(take_away(world, root, name));
		/* All shards have a fragment of one that is spread. */
		check_writes(world, is_spread ? 1 : lp_ino_shard(inos[i]), "rmdir");
	}
}

static void test_writes_in_sequence(void **state)
{
	(void)state;
	for (uint32_t i = 0; i < 4; i++) {
		struct world world;
		world_begin(&world, i < 2 ? LP_ACK_DURABLE : LP_ACK_ORDERED);
		count_one_after_the_other(&world, i % 2 == 1);
		world_end(&world);
	}
}

/* P3: what was only ordered, by a mount, is durable when another client is told that it is there;
 * whether the name is in his way or missing. */
static void test_told_is_durable(void **state)
{
	(void)state;
	struct world world;
	world_begin(&world, LP_ACK_DURABLE);
	lp_test_ok(make(&world, root, "dir", false));
	while (lp_ino_shard(world.op.make.found.ino) != lp_ino_shard(root)) {
		lp_test_ok(take_away(&world, root, "dir"));
		lp_test_ok(make(&world, root, "dir", false));
	}
	sync_all(&world);
	world.ack = LP_ACK_ORDERED;
	lp_test_ok(rename_to(&world, root, "dir", root, "gone"));
	assert_int_equal(world.writes, 0);
	world.ack = LP_ACK_DURABLE;
	lp_test_err(-ENOENT, take_away(&world, root, "dir"));
	assert_int_equal(world.writes, 1);
	world.ack = LP_ACK_ORDERED;
	lp_test_ok(rename_to(&world, root, "gone", root, "dir"));
	world.ack = LP_ACK_DURABLE;
	lp_test_err(-EEXIST, make(&world, root, "dir", false));
	assert_int_equal(world.writes, 1);
	lp_test_err(-EEXIST, make(&world, root, "dir", false));
	assert_int_equal(world.writes, 0);
	world_end(&world);
}

/* --- Asked by key, while others write --------------------------------------------------------- */

static struct lp_ns_op key_op(enum lp_ns_opcode opcode, const char *key)
{
	static uint8_t list_buf[4096];
	struct lp_ns_op op = {.opcode = opcode};
	struct lp_bytes path = lpi_ns_sim_bytes(key);
	switch (opcode) {
	case LP_NS_PUT:
		op.put.path = path;
		op.put.mode = 0644;
		break;
	case LP_NS_DELETE:
		op.delete.path = path;
		break;
	case LP_NS_WALK:
		op.walk.path = path;
		break;
	case LP_NS_LIST:
		op.list.prefix = path;
		op.list.with_attrs = true;
		op.list.buf = list_buf;
		op.list.buf_len = sizeof(list_buf);
		break;
	default:
		fail();
	}
	return op;
}

static int do_key(struct world *world, enum lp_ns_opcode opcode, const char *key)
{
	world->op = key_op(opcode, key);
	return run(world);
}

/* The change is made, and on its way to the device; time has not passed. */
static void begin_change(struct world *world, struct lpi_ns_sim_asked *asked)
{
	asked->is_done = false;
	asked->op.complete = lpi_ns_sim_answered;
	lp_ns_submit(world->sim->ns[0], &asked->op);
	for (int i = 0; i < 60; i++) {
		for (uint32_t k = 0; k < world->sim->shard_cnt; k++)
			(void)lp_store_sim_run_one(world->sim->hand[k].store);
		(void)lp_reactor_turn(world->sim->reactor, false);
	}
	assert_false(asked->is_done);
}

static void end_change(struct world *world, const struct lpi_ns_sim_asked *asked)
{
	while (!asked->is_done)
		(void)lpi_ns_sim_turn(world->sim);
	lp_test_ok(asked->op.result);
	sync_all(world);
}

/* writes: how many it waits for when it is about none of what changes. */
static void check_asked(struct world *world, enum lp_ns_opcode opcode, const char *key,
			uint64_t writes)
{
	static const char *const changed[] = {"b/new", "b/old", "b/gone"};
	static const enum lp_ns_opcode how[] = {LP_NS_PUT, LP_NS_PUT, LP_NS_DELETE};
	/* And back. */
	static const enum lp_ns_opcode then[] = {LP_NS_DELETE, LP_NS_PUT, LP_NS_PUT};
	for (uint32_t i = 0; i < LP_ARRAY_SIZE(changed); i++) {
		struct lpi_ns_sim_asked asked = {.op = key_op(how[i], changed[i])};
		uint64_t want = strcmp(changed[i], key) == 0 ? 1 : writes;
		begin_change(world, &asked);
		(void)do_key(world, opcode, key);
		if (world->writes != want)
			print_error("%s while %s changes: %u writes\n", key, changed[i],
				    (unsigned)world->writes);
		assert_int_equal(world->writes, want);
		end_change(world, &asked);
		lp_test_ok(do_key(world, then[i], changed[i]));
	}
}

static void test_asked_by_key(void **state)
{
	(void)state;
	struct world world;
	world_begin(&world, LP_ACK_DURABLE);
	static const char *const keys[] = {"a/is", "b/is", "b/old", "b/gone"};
	for (uint32_t i = 0; i < LP_ARRAY_SIZE(keys); i++)
		lp_test_ok(do_key(&world, LP_NS_PUT, keys[i]));
	sync_all(&world);
	static const char *const asked[] = {"a/is",  "a/never", "b/is",  "b/never",
					    "b/old", "b/new",   "b/gone"};
	for (uint32_t i = 0; i < LP_ARRAY_SIZE(asked); i++)
		check_asked(&world, LP_NS_WALK, asked[i], 0);
	check_asked(&world, LP_NS_LIST, "a/", 0);
	check_asked(&world, LP_NS_LIST, "b/", 1);
	world_end(&world);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_writes_in_sequence),
		cmocka_unit_test(test_told_is_durable),
		cmocka_unit_test(test_asked_by_key),
	};
	return lp_test_main(tests, "namespace/ops/counts");
}
