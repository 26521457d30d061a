/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: a change over several shards that is stuck (rule N1) is in the way of those who are about
 * what it is about, and of nobody else: names beside it can be made, linked, moved and removed,
 * whichever shard was asked. Method: shards on a simulated device; the log of the one that decides
 * about a new directory in the root cannot be written, so whether it was made is in doubt. */
#include "namespace/shard/ns_sim_test.h"

#define BROKEN 1u
#define SOUND  2u

static const struct lp_ino root = {1};

struct world {
	struct lpi_ns_sim *sim;
	uint32_t home;     /* the shard that is asked */
	struct lp_ino dir; /* /a, on a shard that goes on */
};

/* --- Operations ------------------------------------------------------------------------------- */

struct asked {
	struct lp_ns_op op;
	bool is_done;
};

static void answered(struct lp_ns_op *op)
{
	LP_CONTAINER_OF(op, struct asked, op)->is_done = true;
}

static int run(struct world *world, struct lp_ns_op *op)
{
	struct asked asked = {.op = *op};
	asked.op.complete = answered;
	lp_ns_submit(world->sim->ns[world->home], &asked.op);
	for (uint32_t i = 0; !asked.is_done; i++) {
		assert_true(i < LPI_NS_SIM_TURNS_MAX);
		(void)lpi_ns_sim_turn(world->sim);
	}
	*op = asked.op;
	return op->result;
}

static int make(struct world *world, struct lp_ino dir, const char *name, uint8_t type,
		struct lp_ino *ret_ino)
{
	struct lp_ns_op op = {.opcode = LP_NS_MAKE};
	op.make.dir = dir;
	op.make.name = lpi_ns_sim_bytes(name);
	op.make.type = type;
	op.make.mode = 0755;
	int r = run(world, &op);
	if (ret_ino != NULL)
		*ret_ino = op.make.found.ino;
	return r;
}

static int lookup(struct world *world, struct lp_ino dir, const char *name, struct lp_ino *ret_ino)
{
	struct lp_ns_op op = {.opcode = LP_NS_LOOKUP};
	op.lookup.dir = dir;
	op.lookup.name = lpi_ns_sim_bytes(name);
	int r = run(world, &op);
	if (ret_ino != NULL)
		*ret_ino = op.lookup.found.ino;
	return r;
}

static int rename_to(struct world *world, struct lp_ino dir, const char *name, struct lp_ino to_dir,
		     const char *to_name)
{
	struct lp_ns_op op = {.opcode = LP_NS_RENAME};
	op.rename.dir = dir;
	op.rename.name = lpi_ns_sim_bytes(name);
	op.rename.to_dir = to_dir;
	op.rename.to_name = lpi_ns_sim_bytes(to_name);
	return run(world, &op);
}

static int link_to(struct world *world, struct lp_ino ino, struct lp_ino dir, const char *name)
{
	struct lp_ns_op op = {.opcode = LP_NS_LINK};
	op.link.ino = ino;
	op.link.dir = dir;
	op.link.name = lpi_ns_sim_bytes(name);
	return run(world, &op);
}

static int remove_name(struct world *world, struct lp_ino dir, const char *name, bool is_dir)
{
	struct lp_ns_op op = {.opcode = LP_NS_REMOVE};
	op.remove.dir = dir;
	op.remove.name = lpi_ns_sim_bytes(name);
	op.remove.is_dir = is_dir;
	return run(world, &op);
}

static int stat_of(struct world *world, struct lp_ino ino)
{
	struct lp_ns_op op = {.opcode = LP_NS_STAT};
	op.stat.ino = ino;
	return run(world, &op);
}

static int list_names(struct world *world, struct lp_ino dir)
{
	uint8_t buf[LP_NS_READDIR_MIN];
	struct lp_ns_op op = {.opcode = LP_NS_READDIR};
	op.readdir.dir = dir;
	op.readdir.buf = buf;
	op.readdir.buf_len = sizeof(buf);
	return run(world, &op);
}

static int put(struct world *world, const char *path)
{
	struct lp_ns_op op = {.opcode = LP_NS_PUT};
	op.put.path = lpi_ns_sim_bytes(path);
	op.put.mode = 0644;
	return run(world, &op);
}

static int delete_path(struct world *world, const char *path)
{
	struct lp_ns_op op = {.opcode = LP_NS_DELETE};
	op.delete.path = lpi_ns_sim_bytes(path);
	return run(world, &op);
}

/* --- The world -------------------------------------------------------------------------------- */

/* Directories go round the shards. */
static struct lp_ino make_dir_on(struct world *world, const char *name, uint32_t shard_idx)
{
	for (uint32_t i = 0; i <= LPI_NS_SIM_SHARDS; i++) {
		struct lp_ino ino = {0};
		lp_test_ok(make(world, root, name, LP_INODE_TYPE_DIR, &ino));
		if (lp_ino_shard(ino) == shard_idx)
			return ino;
		lp_test_ok(remove_name(world, root, name, true));
	}
	fail();
	return root;
}

static uint64_t stuck_cnt(const struct world *world)
{
	uint64_t cnt = 0;
	for (uint32_t i = 0; i < LPI_NS_SIM_SHARDS; i++) {
		struct lp_ns_stats stats;
		lp_ns_read_stats(world->sim->ns[i], &stats);
		cnt += stats.stuck;
	}
	return cnt;
}

/* The next directory that this shard makes will be on the one whose log breaks. */
static void get_stuck(struct world *world)
{
	world->home = 0;
	(void)make_dir_on(world, "before", BROKEN - 1);
	lpi_ns_sim_break_log(world->sim, BROKEN);
	assert_int_equal(make(world, root, "stuck", LP_INODE_TYPE_DIR, NULL), -EIO);
	lpi_ns_sim_wait_read_only(world->sim, BROKEN);
	for (uint32_t i = 0; stuck_cnt(world) == 0; i++) {
		assert_true(i < LPI_NS_SIM_TURNS_MAX);
		(void)lpi_ns_sim_turn(world->sim);
	}
}

static void world_begin(struct world *world)
{
	*world = (struct world){.sim = lpi_ns_sim_boot(lpi_ns_sim_mkfs(41))};
	lp_test_ok(lpi_ns_sim_start(world->sim));
	world->dir = make_dir_on(world, "a", SOUND);
	lp_test_ok(make(world, world->dir, "g", LP_INODE_TYPE_FILE, NULL));
	lp_test_ok(make(world, root, "f", LP_INODE_TYPE_FILE, NULL));
	(void)make_dir_on(world, "empty", SOUND);
	get_stuck(world);
}

/* What was done while it was stuck is there, and agrees with what became of that. */
static void world_end(struct world *world, const char *const *names)
{
	lp_sim_rules_clear(lp_sim_of(world->sim->bdev));
	lpi_ns_sim_stop(world->sim);
	assert_true(lpi_ns_sim_close(world->sim, false) < 0);
	lpi_ns_sim_open(world->sim);
	lp_test_ok(lpi_ns_sim_start(world->sim));
	for (; *names != NULL; names++)
		lp_test_ok(lookup(world, root, *names, NULL));
	lp_test_ok(stat_of(world, root));
	lpi_ns_sim_stop(world->sim);
	lp_test_ok(lpi_ns_sim_close(world->sim, false));
	lpi_ns_sim_fsck(world->sim);
	lpi_ns_sim_fini(world->sim);
	free(world->sim);
}

/* --- Beside it -------------------------------------------------------------------------------- */

/* Round the shards: only those on the one that has failed are refused. */
static void make_dirs(struct world *world)
{
	static const char *const names[] = {"m0", "m1", "m2"};
	uint32_t made = 0;
	for (uint32_t i = 0; i < LPI_NS_SIM_SHARDS; i++)
		made += make(world, root, names[i], LP_INODE_TYPE_DIR, NULL) == 0;
	assert_int_equal(made, LPI_NS_SIM_SHARDS - 1);
}

static void test_beside(void **state)
{
	static const char *const names[] = {"a", "n", "l", "moved", "back", NULL};
	(void)state;
	for (uint32_t home = 0; home < LPI_NS_SIM_SHARDS; home++) {
		struct world world;
		struct lp_ino file = {0};
		world_begin(&world);
		world.home = home;
		make_dirs(&world);
		lp_test_ok(make(&world, root, "n", LP_INODE_TYPE_FILE, NULL));
		lp_test_ok(lookup(&world, world.dir, "g", &file));
		lp_test_ok(link_to(&world, file, root, "l"));
		lp_test_ok(rename_to(&world, world.dir, "g", root, "moved"));
		lp_test_ok(rename_to(&world, root, "empty", world.dir, "sub"));
		lp_test_ok(rename_to(&world, world.dir, "sub", root, "back"));
		lp_test_ok(remove_name(&world, root, "f", false));
		lp_test_ok(remove_name(&world, root, "before", true));
		lp_test_ok(put(&world, "p"));
		lp_test_ok(delete_path(&world, "p"));
		lp_test_ok(put(&world, "a/p"));
		assert_int_equal(stuck_cnt(&world), 1);
		world_end(&world, names);
	}
}

/* --- Itself ----------------------------------------------------------------------------------- */

/* Whatever would show, or rest on, whether it was made. */
static void test_itself(void **state)
{
	static const char *const names[] = {"a", "empty", NULL};
	(void)state;
	for (uint32_t home = 0; home < LPI_NS_SIM_SHARDS; home++) {
		struct world world;
		world_begin(&world);
		world.home = home;
		assert_int_equal(lookup(&world, root, "stuck", NULL), -EIO);
		assert_int_equal(make(&world, root, "stuck", LP_INODE_TYPE_FILE, NULL), -EIO);
		assert_int_equal(rename_to(&world, root, "empty", root, "stuck"), -EIO);
		assert_int_equal(remove_name(&world, root, "stuck", true), -EIO);
		assert_int_equal(put(&world, "stuck/x"), -EIO);
		/* Of its directory, what one more name in it changes. */
		assert_int_equal(stat_of(&world, root), -EIO);
		assert_int_equal(list_names(&world, root), -EIO);
		assert_int_equal(stuck_cnt(&world), 1);
		world_end(&world, names);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_beside),
		cmocka_unit_test(test_itself),
	};
	return lp_test_main(tests, "namespace/shard/stuck");
}
