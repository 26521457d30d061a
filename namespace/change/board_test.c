/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: what the board says of a directory without a message is what a stat tells, from the moment
 * at which a change was answered, whatever shards took part; and while a change is under way it is
 * how the directory was before, or is afterwards.
 * Method: names come and go, move and are replaced, modes and times are set, in a directory that is
 * spread and in one that is not, durable and ordered. After each turn the board is read through all
 * shards, and when the change was answered the directory is asked for as well. What is read and
 * asked for most of the time is on the board most of the time. */
#include "base/prng.h"
#include "namespace/change/board.h"
#include "namespace/shard/ns_sim_test.h"

#define CHANGES 600u
#define NAMES   6u
#define DIRS    2u

struct world {
	struct lpi_ns_sim *sim;
	struct lp_prng prng;
	struct lp_ino dirs[DIRS];
	struct lp_ns_found before[DIRS]; /* the change under way, or the next one */
	uint64_t peeks;
	uint64_t hits;
};

static uint32_t pick(struct world *world, uint32_t limit)
{
	return (uint32_t)lp_prng_below(&world->prng, limit);
}

static struct lp_ns_found stat_of(struct world *world, struct lp_ino dir)
{
	struct lp_ns_op op = {.opcode = LP_NS_STAT, .ack = LP_ACK_ORDERED, .stat = {.ino = dir}};
	lp_test_ok(lpi_ns_sim_do(world->sim, &op));
	return op.stat.found;
}

static bool is_same(const struct lp_ns_found *a, const struct lp_ns_found *b)
{
	return a->entries_cnt == b->entries_cnt && a->attrs.size_bytes == b->attrs.size_bytes &&
	       a->attrs.mode == b->attrs.mode && a->attrs.nlink == b->attrs.nlink &&
	       a->attrs.mtime_ns == b->attrs.mtime_ns && a->attrs.ctime_ns == b->attrs.ctime_ns &&
	       a->attrs.version_nr == b->attrs.version_nr;
}

static void peek(struct world *world)
{
	for (uint32_t i = 0; i < DIRS; i++) {
		struct lp_ns *ns = world->sim->ns[pick(world, LPI_NS_SIM_SHARDS)];
		struct lp_ns_found found;
		if (!lp_ns_peek_dir(ns, world->dirs[i], &found))
			continue;
		/* Some shards may have made their part already, and others have not. */
		bool is_old = found.entries_cnt == world->before[i].entries_cnt;
		bool is_older = found.attrs.version_nr < world->before[i].attrs.version_nr;
		assert_false(is_older);
		assert_true(is_old || found.attrs.mtime_ns >= world->before[i].attrs.mtime_ns);
	}
}

static void do_it(struct world *world, struct lp_ns_op *op)
{
	struct lpi_ns_sim_asked asked = {.op = *op};
	asked.op.ack = pick(world, 2) == 0 ? LP_ACK_ORDERED : LP_ACK_DURABLE;
	asked.op.complete = lpi_ns_sim_answered;
	lp_ns_submit(world->sim->ns[pick(world, LPI_NS_SIM_SHARDS)], &asked.op);
	while (!asked.is_done) {
		peek(world);
		(void)lpi_ns_sim_turn(world->sim);
	}
}

/* Nothing else is under way, so the directories do not change from here on. */
static void check(struct world *world)
{
	for (uint32_t i = 0; i < DIRS; i++) {
		struct lp_ns_found peeked;
		bool is_hit = lp_ns_peek_dir(world->sim->ns[0], world->dirs[i], &peeked);
		struct lp_ns_found now = stat_of(world, world->dirs[i]);
		if (is_hit)
			assert_true(is_same(&peeked, &now));
		for (uint32_t j = pick(world, 8); j > 0; j--)
			(void)lpi_ns_sim_turn(world->sim);
		is_hit = lp_ns_peek_dir(world->sim->ns[1], world->dirs[i], &peeked);
		if (is_hit)
			assert_true(is_same(&peeked, &now));
		world->peeks++;
		world->hits += is_hit;
		world->before[i] = now;
	}
}

static struct lp_bytes name_of(uint32_t nr)
{
	static const char *const names[NAMES] = {"a", "bb", "ccc", "dddd", "eeeee", "ffffff"};
	return lpi_ns_sim_bytes(names[nr % NAMES]);
}

static void make(struct world *world, struct lp_ns_op *op, uint32_t dir, uint32_t name)
{
	*op = (struct lp_ns_op){.opcode = LP_NS_MAKE};
	op->make.dir = world->dirs[dir];
	op->make.name = name_of(name);
	op->make.mode = 0700;
	op->make.type = name % 3 == 0 ? LP_INODE_TYPE_DIR : LP_INODE_TYPE_FILE;
}

static void take_away(struct world *world, struct lp_ns_op *op, uint32_t dir, uint32_t name)
{
	*op = (struct lp_ns_op){.opcode = LP_NS_REMOVE};
	op->remove.dir = world->dirs[dir];
	op->remove.name = name_of(name);
	op->remove.is_dir = name % 3 == 0;
}

static void move(struct world *world, struct lp_ns_op *op, uint32_t dir, uint32_t name)
{
	*op = (struct lp_ns_op){.opcode = LP_NS_RENAME};
	op->rename.dir = world->dirs[dir];
	op->rename.name = name_of(name);
	op->rename.to_dir = world->dirs[pick(world, DIRS)];
	op->rename.to_name = name_of(pick(world, NAMES));
}

static void set(struct world *world, struct lp_ns_op *op, uint32_t dir, uint32_t name)
{
	*op = (struct lp_ns_op){.opcode = LP_NS_SET};
	op->set.ino = world->dirs[dir];
	op->set.attrs.mode = (uint16_t)(0700 | name);
	op->set.attrs.mtime_ns = (int64_t)pick(world, 1000000);
	op->set.mask = name % 2 == 0 ? LP_ATTR_MODE : LP_ATTR_MTIME;
}

static void test_random_changes(void **state)
{
	static void (*const changes[])(struct world *, struct lp_ns_op *, uint32_t,
				       uint32_t) = {make, make, take_away, move, set};
	struct world world = {.sim = lpi_ns_sim_boot(lpi_ns_sim_mkfs(5))};
	(void)state;
	lp_prng_init(&world.prng, 5);
	lp_test_ok(lpi_ns_sim_start(world.sim));
	for (uint32_t i = 0; i < DIRS; i++) {
		struct lp_ns_op op = {.opcode = LP_NS_MAKE};
		op.make.dir = LP_INO_ROOT;
		op.make.name = name_of(i);
		op.make.type = LP_INODE_TYPE_DIR;
		op.make.mode = 0700;
		op.make.spread = i == 0;
		lp_test_ok(lpi_ns_sim_do(world.sim, &op));
		world.dirs[i] = op.make.found.ino;
	}
	check(&world);
	for (uint32_t i = 0; i < CHANGES; i++) {
		struct lp_ns_op op;
		changes[pick(&world, LP_ARRAY_SIZE(changes))](&world, &op, pick(&world, DIRS),
							      pick(&world, NAMES));
		do_it(&world, &op);
		check(&world);
	}
	assert_true(world.hits > world.peeks / 4);
	lpi_ns_sim_stop(world.sim);
	lp_test_ok(lpi_ns_sim_close(world.sim, false));
	lpi_ns_sim_fini(world.sim);
	free(world.sim);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_random_changes),
	};
	return lp_test_main(tests, "namespace/change/board");
}
