/* SPDX-License-Identifier: Apache-2.0 */
/* Rename: each pair of a moved and a replaced inode, between all kinds of directories, on one, two
 * and three shards. */
#include "base/hash.h"
#include "namespace/ops/paths_rig_test.h"

static const struct lp_ino root = {1};

enum thing { NOTHING, A_FILE, A_DIR, A_SPREAD_DIR, A_FULL_DIR, A_FULL_SPREAD_DIR, THING_CNT };

static bool thing_is_dir(enum thing thing)
{
	return thing >= A_DIR;
}

static bool thing_is_full(enum thing thing)
{
	return thing >= A_FULL_DIR;
}

static struct lp_ino put_thing(struct lpi_t *t, struct lp_ino dir, const char *name,
			       enum thing thing)
{
	struct lp_ino ino = {0};
	if (thing == A_FILE)
		ino = lpi_t_file(t, dir, name);
	else if (thing == A_DIR || thing == A_FULL_DIR)
		ino = lpi_t_dir(t, dir, name);
	else if (thing != NOTHING)
		ino = lpi_t_spread(t, dir, name);
	if (thing_is_full(thing))
		(void)lpi_t_file(t, ino, "inside");
	return ino;
}

/* The result by POSIX. */
static int expected(enum thing from, enum thing to, uint32_t flags)
{
	if (from == NOTHING)
		return -ENOENT;
	if ((flags & LP_NS_RENAME_NOREPLACE) != 0 && to != NOTHING)
		return -EEXIST;
	if ((flags & LP_NS_RENAME_EXCHANGE) != 0)
		return to == NOTHING ? -ENOENT : 0;
	if (to == NOTHING)
		return 0;
	if (thing_is_dir(from) && !thing_is_dir(to))
		return -ENOTDIR;
	if (!thing_is_dir(from) && thing_is_dir(to))
		return -EISDIR;
	return thing_is_full(to) ? -ENOTEMPTY : 0;
}

static void take_away(struct lpi_t *t, struct lp_ino dir, const char *name, struct lp_ino ino,
		      enum thing thing)
{
	if (thing_is_full(thing))
		lp_test_ok(lpi_t_remove(t, ino, "inside", false));
	lp_test_ok(lpi_t_remove(t, dir, name, thing_is_dir(thing)));
}

struct pair {
	struct lp_ino dirs[2];
	enum thing things[2];
	struct lp_ino inos[2];
	uint32_t flags;
};

static void check_after(struct lpi_t *t, const struct pair *pair)
{
	bool is_exchange = (pair->flags & LP_NS_RENAME_EXCHANGE) != 0;
	struct lp_ino from = lpi_t_find(t, pair->dirs[0], "from");
	struct lp_ino to = lpi_t_find(t, pair->dirs[1], "to");
	assert_int_equal(to.nr, pair->inos[0].nr);
	assert_int_equal(from.nr, is_exchange ? pair->inos[1].nr : 0);
	assert_int_equal(lpi_t_attrs(t, to).parent.nr, pair->dirs[1].nr);
	if (is_exchange)
		assert_int_equal(lpi_t_attrs(t, from).parent.nr, pair->dirs[0].nr);
	take_away(t, pair->dirs[1], "to", to, pair->things[0]);
	if (is_exchange)
		take_away(t, pair->dirs[0], "from", from, pair->things[1]);
	lpi_t_idle(t);
	if (pair->inos[1].nr != 0)
		assert_int_equal(lpi_t_stat(t, pair->inos[1]), -ESTALE);
}

static void check_pair(struct lpi_t *t, struct pair *pair)
{
	uint32_t links[2] = {lpi_t_nlink(t, pair->dirs[0]), lpi_t_nlink(t, pair->dirs[1])};
	pair->inos[0] = put_thing(t, pair->dirs[0], "from", pair->things[0]);
	pair->inos[1] = put_thing(t, pair->dirs[1], "to", pair->things[1]);
	int want = expected(pair->things[0], pair->things[1], pair->flags);
	int got = lpi_t_rename(t, pair->dirs[0], "from", pair->dirs[1], "to", pair->flags);
	assert_int_equal(got, want);
	if (got >= 0) {
		assert_int_equal(t->op->rename.moved.nr, pair->inos[0].nr);
		assert_int_equal(t->op->rename.replaced.nr, pair->inos[1].nr);
		check_after(t, pair);
	} else {
		assert_int_equal(lpi_t_find(t, pair->dirs[0], "from").nr, pair->inos[0].nr);
		assert_int_equal(lpi_t_find(t, pair->dirs[1], "to").nr, pair->inos[1].nr);
		if (pair->things[0] != NOTHING)
			take_away(t, pair->dirs[0], "from", pair->inos[0], pair->things[0]);
		if (pair->things[1] != NOTHING)
			take_away(t, pair->dirs[1], "to", pair->inos[1], pair->things[1]);
	}
	/* namespace NS1 */
	assert_int_equal(lpi_t_nlink(t, pair->dirs[0]), links[0]);
	assert_int_equal(lpi_t_nlink(t, pair->dirs[1]), links[1]);
}

static void check_all_pairs(struct lpi_t *t)
{
	static const uint32_t flags[] = {0, LP_NS_RENAME_NOREPLACE, LP_NS_RENAME_EXCHANGE};
	const struct lp_ino dirs[] = {root, lpi_t_dir(t, root, "a"), lpi_t_dir(t, root, "b"),
				      lpi_t_spread(t, root, "c"), lpi_t_spread(t, root, "d")};
	for (uint32_t i = 0; i < 5 * 5 * 3; i++) {
		/* With a sanitizer some of them, and others for each i. */
		uint32_t step = LP_ASSERT_SLOW_ON ? 7 : 1;
		for (uint32_t k = i % step; k < THING_CNT * THING_CNT; k += step) {
			struct pair pair = {.dirs = {dirs[i % 5], dirs[i / 5 % 5]},
					    .things = {k % THING_CNT, k / THING_CNT},
					    .flags = flags[i / 25]};
			check_pair(t, &pair);
		}
	}
}

static void test_all_pairs(void **state)
{
	(void)state;
	lpi_t_on_all(check_all_pairs);
}

static void check_same(struct lpi_t *t)
{
	struct lp_ino spread = lpi_t_spread(t, root, "spread");
	struct lp_ino ino = lpi_t_file(t, root, "one");
	lp_test_ok(lpi_t_link(t, ino, spread, "two"));
	lp_test_ok(lpi_t_rename(t, root, "one", spread, "two", 0));
	lp_test_ok(lpi_t_rename(t, root, "one", root, "one", 0));
	lp_test_ok(lpi_t_rename(t, root, "one", spread, "two", LP_NS_RENAME_EXCHANGE));
	assert_int_equal(lpi_t_rename(t, root, "one", root, "one", LP_NS_RENAME_NOREPLACE),
			 -EEXIST);
	assert_int_equal(lpi_t_find(t, root, "one").nr, ino.nr);
	assert_int_equal(lpi_t_find(t, spread, "two").nr, ino.nr);
	assert_int_equal(lpi_t_nlink(t, ino), 2);
	assert_int_equal(lpi_t_rename(t, root, "none", root, "none", 0), -ENOENT);
	assert_int_equal(lpi_t_rename(t, root, "one", root, "x", 4), -EINVAL);
	assert_int_equal(lpi_t_rename(t, root, "one", root, "x", 3), -EINVAL);
	assert_int_equal(lpi_t_rename(t, root, "one", root, ".", 0), -EINVAL);
	assert_int_equal(lpi_t_rename(t, root, "one", ino, "x", 0), -ENOTDIR);
}

static void test_same(void **state)
{
	(void)state;
	lpi_t_on_all(check_same);
}

/* Rule N3: no directory goes below itself. */
static void check_loops(struct lpi_t *t)
{
	struct lp_ino a = lpi_t_dir(t, root, "a");
	struct lp_ino b = lpi_t_spread(t, a, "b");
	struct lp_ino c = lpi_t_dir(t, b, "c");
	struct lp_ino other = lpi_t_dir(t, root, "other");
	assert_int_equal(lpi_t_rename(t, root, "a", a, "x", 0), -EINVAL);
	assert_int_equal(lpi_t_rename(t, root, "a", b, "x", 0), -EINVAL);
	assert_int_equal(lpi_t_rename(t, root, "a", c, "x", 0), -EINVAL);
	assert_int_equal(lpi_t_rename(t, a, "b", c, "x", 0), -EINVAL);
	assert_int_equal(lpi_t_rename(t, root, "a", b, "c", LP_NS_RENAME_EXCHANGE), -EINVAL);
	assert_int_equal(lpi_t_rename(t, b, "c", root, "a", LP_NS_RENAME_EXCHANGE), -EINVAL);
	assert_int_equal(lpi_t_rename(t, a, "b", root, "a", LP_NS_RENAME_EXCHANGE), -EINVAL);
	assert_int_equal(lpi_t_rename(t, a, "b", root, "a", 0), -ENOTEMPTY);
	assert_int_equal(lpi_t_rename(t, b, "c", root, "a", 0), -ENOTEMPTY);
	lp_test_ok(lpi_t_rename(t, a, "b", other, "b", 0));
	assert_int_equal(lpi_t_attrs(t, b).parent.nr, other.nr);
	lp_test_ok(lpi_t_rename(t, root, "a", c, "a", 0));
	assert_int_equal(lpi_t_rename(t, root, "other", a, "x", 0), -EINVAL);
	assert_int_equal(lpi_t_nlink(t, root), 3);
	assert_int_equal(lpi_t_nlink(t, other), 3);
	assert_int_equal(lpi_t_nlink(t, b), 1);
	assert_int_equal(lpi_t_nlink(t, c), 3);
	assert_int_equal(lpi_t_nlink(t, a), 2);
}

static void test_loops(void **state)
{
	(void)state;
	lpi_t_on_all(check_loops);
}

/* The replaced inode lives on while it is open. The moved one has a new ctime, its directories new
 * times, and other links of both are as they were. */
static void check_replaced(struct lpi_t *t)
{
	struct lp_ino spread = lpi_t_spread(t, root, "spread");
	struct lp_ino moved = lpi_t_file(t, root, "moved");
	struct lp_ino gone = lpi_t_file(t, spread, "gone");
	struct lp_ino linked = lpi_t_file(t, spread, "linked");
	lp_test_ok(lpi_t_link(t, linked, root, "link"));
	lp_test_ok(lpi_t_open(t, gone));
	lpi_t_later(t);
	int64_t now_ns = lp_clock_wall_ns(&t->rig->clock.clock);
	lp_test_ok(lpi_t_rename(t, root, "moved", spread, "gone", 0));
	assert_int_equal(lpi_t_nlink(t, gone), 0);
	assert_int_equal(lpi_t_attrs(t, gone).ctime_ns, now_ns);
	assert_int_equal(lpi_t_attrs(t, moved).ctime_ns, now_ns);
	assert_int_equal(lpi_t_attrs(t, root).mtime_ns, now_ns);
	assert_int_equal(lpi_t_attrs(t, spread).mtime_ns, now_ns);
	assert_int_equal(lpi_t_attrs(t, spread).ctime_ns, now_ns);
	lp_test_ok(lpi_t_close(t, gone));
	lpi_t_idle(t);
	assert_int_equal(lpi_t_stat(t, gone), -ESTALE);
	lpi_t_later(t);
	lp_test_ok(lpi_t_rename(t, spread, "gone", spread, "linked", 0));
	assert_int_equal(lpi_t_nlink(t, linked), 1);
	assert_int_equal(lpi_t_attrs(t, linked).ctime_ns, now_ns + (int64_t)LP_NS_PER_S);
	assert_int_equal(lpi_t_find(t, root, "link").nr, linked.nr);
}

static void test_replaced(void **state)
{
	(void)state;
	lpi_t_on_all(check_replaced);
}

/* Directories are renamed onto others from which an entry is renamed at the same time: there is no
 * deadlock. */
static void check_circles(struct lpi_t *t)
{
	static const char *const paths[][2] = {{"a", "b"}, {"b", "a"}, {"a", "a"}, {"b", "b"}};
	for (uint32_t round = 0; round < 40; round++) {
		struct lp_ino dirs[2] = {lpi_t_dir(t, root, "a"), lpi_t_spread(t, root, "b")};
		struct lpi_ns_hand hands[4] = {0};
		(void)lpi_t_dir(t, dirs[0], "x");
		if (round % 2 == 0)
			(void)lpi_t_dir(t, dirs[1], "x");
		for (uint32_t i = 0; i < 4; i++) {
			struct lp_ns_op *op = &hands[i].op;
			op->opcode = LP_NS_RENAME;
			op->rename.dir = dirs[paths[i][0][0] - 'a'];
			op->rename.name = LPI_NS_RIG_BYTES("x");
			op->rename.to_dir = root;
			op->rename.to_name = lpi_t_bytes(paths[i][1]);
			lpi_ns_rig_submit(t->rig, (i + round) % t->rig->shard_cnt, &hands[i]);
			for (uint32_t turns = round % 7; turns > 0; turns--)
				(void)lpi_ns_rig_turn(t->rig);
		}
		for (uint32_t i = 0; i < 4; i++)
			(void)lpi_ns_rig_wait(t->rig, &hands[i]);
		struct lp_ino left[2] = {lpi_t_find(t, root, "a"), lpi_t_find(t, root, "b")};
		for (uint32_t i = 0; i < 2; i++) {
			int r = lpi_t_remove(t, left[i], "x", true);
			assert_true(r == 0 || r == -ENOENT);
		}
		lp_test_ok(lpi_t_remove(t, root, "a", true));
		lp_test_ok(lpi_t_remove(t, root, "b", true));
		assert_int_equal(lpi_t_nlink(t, root), 2);
	}
}

static void test_circles(void **state)
{
	(void)state;
	lpi_t_on_all(check_circles);
}

/* Two directories that go into each other at the same time: one of them does, or neither could be
 * reached any more (rule N3). */
static void check_into_each_other(struct lpi_t *t)
{
	for (uint32_t round = 0; round < 80; round++) {
		struct lp_ino dirs[2] = {lpi_t_dir(t, root, "a"),
					 round % 2 == 0 ? lpi_t_dir(t, root, "b")
							: lpi_t_spread(t, root, "b")};
		static const char *const names[2] = {"a", "b"};
		struct lpi_ns_hand hands[2] = {0};
		int results[2];
		for (uint32_t i = 0; i < 2; i++) {
			struct lp_ns_op *op = &hands[i].op;
			op->opcode = LP_NS_RENAME;
			op->rename.dir = root;
			op->rename.name = lpi_t_bytes(names[i]);
			op->rename.to_dir = dirs[1 - i];
			op->rename.to_name = LPI_NS_RIG_BYTES("x");
			lpi_ns_rig_submit(t->rig, (i + round) % t->rig->shard_cnt, &hands[i]);
			for (uint32_t turns = round / 2; turns > 0 && i == 0; turns--)
				(void)lpi_ns_rig_turn(t->rig);
		}
		for (uint32_t i = 0; i < 2; i++)
			results[i] = lpi_ns_rig_wait(t->rig, &hands[i]);
		uint32_t moved = results[0] == 0 ? 0 : 1;
		assert_int_equal(results[moved], 0);
		assert_int_equal(results[1 - moved], -EINVAL);
		lp_test_ok(lpi_t_remove(t, dirs[1 - moved], "x", true));
		lp_test_ok(lpi_t_remove(t, root, names[1 - moved], true));
		assert_int_equal(lpi_t_nlink(t, root), 2);
	}
}

static void test_into_each_other(void **state)
{
	(void)state;
	lpi_t_on_all(check_into_each_other);
}

/* p/d is removed while p/d/x is renamed onto p: either waits for all of a directory in which the
 * other one holds a name. */
static void check_remove_circle(struct lpi_t *t)
{
	for (uint32_t round = 0; round < 60; round++) {
		struct lp_ino p =
			round % 2 == 0 ? lpi_t_dir(t, root, "p") : lpi_t_spread(t, root, "p");
		struct lp_ino d = round % 3 == 0 ? lpi_t_dir(t, p, "d") : lpi_t_spread(t, p, "d");
		struct lpi_ns_hand remove = {.op = {.opcode = LP_NS_REMOVE}};
		struct lpi_ns_hand rename = {.op = {.opcode = LP_NS_RENAME}};
		(void)lpi_t_dir(t, d, "x");
		remove.op.remove.dir = p;
		remove.op.remove.name = LPI_NS_RIG_BYTES("d");
		remove.op.remove.is_dir = true;
		rename.op.rename.dir = d;
		rename.op.rename.name = LPI_NS_RIG_BYTES("x");
		rename.op.rename.to_dir = root;
		rename.op.rename.to_name = LPI_NS_RIG_BYTES("p");
		uint32_t shard_cnt = t->rig->shard_cnt;
		lpi_ns_rig_submit(t->rig, round % shard_cnt, &rename);
		for (uint32_t turns = round / 2; turns > 0; turns--)
			(void)lpi_ns_rig_turn(t->rig);
		lpi_ns_rig_submit(t->rig, (round + 1) % shard_cnt, &remove);
		assert_int_equal(lpi_ns_rig_wait(t->rig, &rename), -ENOTEMPTY);
		assert_int_equal(lpi_ns_rig_wait(t->rig, &remove), -ENOTEMPTY);
		lp_test_ok(lpi_t_remove(t, d, "x", true));
		lp_test_ok(lpi_t_remove(t, p, "d", true));
		lp_test_ok(lpi_t_remove(t, root, "p", true));
	}
}

/* The same with a name in d that is not there, which is to become p/d. */
static void check_remove_circle_absent(struct lpi_t *t)
{
	for (uint32_t round = 0; round < 60; round++) {
		struct lp_ino p = lpi_t_dir(t, root, "p");
		struct lp_ino d = round % 3 == 0 ? lpi_t_dir(t, p, "d") : lpi_t_spread(t, p, "d");
		struct lpi_ns_hand remove = {.op = {.opcode = LP_NS_REMOVE}};
		struct lpi_ns_hand rename = {.op = {.opcode = LP_NS_RENAME}};
		remove.op.remove.dir = p;
		remove.op.remove.name = LPI_NS_RIG_BYTES("d");
		remove.op.remove.is_dir = true;
		rename.op.rename.dir = d;
		rename.op.rename.name = LPI_NS_RIG_BYTES("x");
		rename.op.rename.to_dir = p;
		rename.op.rename.to_name = LPI_NS_RIG_BYTES("d");
		uint32_t shard_cnt = t->rig->shard_cnt;
		lpi_ns_rig_submit(t->rig, round % shard_cnt, &remove);
		for (uint32_t turns = round / 4; turns > 0; turns--)
			(void)lpi_ns_rig_turn(t->rig);
		lpi_ns_rig_submit(t->rig, (round + 1) % shard_cnt, &rename);
		int r = lpi_ns_rig_wait(t->rig, &rename);
		assert_true(r == -ENOENT || r == -ESTALE);
		lp_test_ok(lpi_ns_rig_wait(t->rig, &remove));
		lp_test_ok(lpi_t_remove(t, root, "p", true));
	}
}

static void test_remove_circle_absent(void **state)
{
	(void)state;
	lpi_t_on_all(check_remove_circle_absent);
}

/* namespace NS2 */
static void test_remove_circle(void **state)
{
	(void)state;
	lpi_t_on_all(check_remove_circle);
}

/* Names of the same lpi_lock_hash(): eight bytes that are XXH3's own key make the next eight count
 * for nothing. Where a name is, however, is said by another hash. */
#define ALIKE_LEN 32

static void fill_alike(char *name, uint32_t nr)
{
	static const uint8_t begin[] = {0xb8, 0xfe, 0x6c, 0x39, 0x23, 0xa4, 0x4b, 0xbe};
	memset(name, 'a', ALIKE_LEN);
	name[ALIKE_LEN] = '\0';
	memcpy(name, begin, sizeof(begin));
	name[8] = (char)('a' + nr);
}

static uint32_t shard_of_name(struct lpi_t *t, struct lp_ino dir, const char *name)
{
	uint64_t hash = lp_hash_u64(name, strlen(name), dir.nr);
	LP_ASSERT(t->rig->shard_cnt > 0);
	return (uint32_t)(hash % t->rig->shard_cnt);
}

/* Two of them, on different shards. */
static void find_alike(struct lpi_t *t, struct lp_ino dir, char names[2][ALIKE_LEN + 1])
{
	uint32_t nr = 0;
	fill_alike(names[0], nr);
	do {
		assert_true(++nr < 26);
		fill_alike(names[1], nr);
	} while (shard_of_name(t, dir, names[0]) == shard_of_name(t, dir, names[1]));
	assert_int_equal(lpi_lock_hash(names[0], ALIKE_LEN), lpi_lock_hash(names[1], ALIKE_LEN));
}

/* A rename to a name that is put meanwhile: the one comes before the other. */
static void check_alike_at(struct lpi_t *t, struct lp_ino dir, char names[2][ALIKE_LEN + 1],
			   uint32_t turns)
{
	struct lp_ino moved = lpi_t_file(t, dir, names[0]);
	struct lpi_ns_hand rename = {.op = {.opcode = LP_NS_RENAME}};
	rename.op.rename.dir = rename.op.rename.to_dir = dir;
	rename.op.rename.name = lpi_t_bytes(names[0]);
	rename.op.rename.to_name = lpi_t_bytes(names[1]);
	char path[ALIKE_LEN + 16];
	(void)snprintf(path, sizeof(path), "spread/%s", names[1]);
	struct lpi_tp_put put;
	lpi_tp_put_fill(&put, t, 0, path, 5);
	lpi_ns_rig_submit(t->rig, turns % t->rig->shard_cnt, &rename);
	for (uint32_t n = 0; n < turns && !rename.is_done; n++)
		(void)lpi_ns_rig_turn(t->rig);
	lpi_ns_rig_submit(t->rig, 0, &put.hand);
	lp_test_ok(lpi_ns_rig_wait(t->rig, &rename));
	lp_test_ok(lpi_ns_rig_wait(t->rig, &put.hand));
	lpi_tp_put_drop(&put);
	lpi_t_idle(t);
	/* namespace NS1: no inode is left without its name. */
	assert_int_equal(lpi_tp_inodes(t), 3);
	assert_int_equal(lpi_t_find(t, dir, names[0]).nr, 0);
	struct lp_ino there = lpi_t_find(t, dir, names[1]);
	assert_true(there.nr == moved.nr || there.nr == put.hand.op.put.found.ino.nr);
	assert_int_equal(lpi_t_nlink(t, there), 1);
	lp_test_ok(lpi_t_remove(t, dir, names[1], false));
	lpi_t_idle(t);
	assert_int_equal(lpi_tp_inodes(t), 2);
}

static void check_alike(struct lpi_t *t)
{
	char names[2][ALIKE_LEN + 1];
	if (t->rig->shard_cnt == 1)
		return;
	struct lp_ino dir = lpi_t_spread(t, root, "spread");
	find_alike(t, dir, names);
	for (uint32_t turns = 0; turns < 64; turns++)
		check_alike_at(t, dir, names, turns);
}

static void test_alike(void **state)
{
	(void)state;
	lpi_t_on_all(check_alike);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_all_pairs),     cmocka_unit_test(test_same),
		cmocka_unit_test(test_loops),         cmocka_unit_test(test_into_each_other),
		cmocka_unit_test(test_replaced),      cmocka_unit_test(test_circles),
		cmocka_unit_test(test_remove_circle), cmocka_unit_test(test_remove_circle_absent),
		cmocka_unit_test(test_alike),
	};
	return lp_test_main(tests, "namespace/ops/rename");
}
