/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: paths lead where their names do, and never where a directory was before it was renamed or
 * removed. Method: on one to three shards in simulated time, each operation submitted on the next
 * one; for the caches all turns of a rename are gone through with walks from everywhere. */
#include "namespace/ops/paths_rig_test.h"

/* Rule N6: what no key can be. */
static void test_check(void **state)
{
	(void)state;
	static const struct {
		const char *path;
		int result;
	} cases[] = {
		{"", 0},         {"a", 0},         {"a/b", 0},          {"a//b", -EINVAL},
		{"/", -EINVAL},  {"/a", -EINVAL},  {"a/", -EINVAL},     {".", -EINVAL},
		{"..", -EINVAL}, {"a/.", -EINVAL}, {"a/../b", -EINVAL}, {"...", 0},
		{".a/..b", 0},   {"//", -EINVAL},
	};
	static char path[LP_NS_PATH_MAX + 1];
	for (size_t i = 0; i < LP_ARRAY_SIZE(cases); i++)
		assert_int_equal(lp_ns_path_check(lpi_t_bytes(cases[i].path)), cases[i].result);
	assert_int_equal(lp_ns_path_check((struct lp_bytes){"a\0b", 3}), -EINVAL);
	memset(path, 'a', sizeof(path));
	assert_int_equal(lp_ns_path_check((struct lp_bytes){path, 255}), 0);
	assert_int_equal(lp_ns_path_check((struct lp_bytes){path, 256}), -ENAMETOOLONG);
	for (size_t i = 1; i < sizeof(path); i += 2)
		path[i] = '/';
	/* So many names: 256 may be. */
	assert_int_equal(lp_ns_path_check((struct lp_bytes){path, 2 * LP_NS_DEPTH_MAX - 1}), 0);
	assert_int_equal(lp_ns_path_check((struct lp_bytes){path, 2 * LP_NS_DEPTH_MAX + 1}),
			 -ENAMETOOLONG);
	for (size_t i = 0; i < sizeof(path); i++)
		path[i] = i % 200 == 199 ? '/' : 'a';
	assert_int_equal(lp_ns_path_check((struct lp_bytes){path, LP_NS_PATH_MAX}), 0);
	assert_int_equal(lp_ns_path_check((struct lp_bytes){path, LP_NS_PATH_MAX + 1}),
			 -ENAMETOOLONG);
}

static void walk_on(uint32_t shard_cnt)
{
	struct lpi_t t;
	lpi_t_begin(&t, shard_cnt);
	struct lp_ino a = lpi_t_spread(&t, LP_INO_ROOT, "a");
	struct lp_ino b = lpi_t_dir(&t, a, "b");
	struct lp_ino c = lpi_t_file(&t, b, "c");
	lp_test_ok(lpi_t_make(&t, b, "s", LP_INODE_TYPE_SYMLINK));
	struct lp_ino s = t.op->make.found.ino;
	for (uint32_t i = 0; i < 2 * shard_cnt; i++) { /* with cold caches, and warm ones */
		assert_int_equal(lpi_tp_find(&t, "").nr, LP_INO_ROOT.nr);
		assert_int_equal(lpi_tp_find(&t, "a").nr, a.nr);
		assert_int_equal(lpi_tp_find(&t, "a/b").nr, b.nr);
		assert_int_equal(lpi_tp_find(&t, "a/b/c").nr, c.nr);
		assert_int_equal(t.op->walk.found.attrs.mode, 0640);
		assert_int_equal(lpi_tp_find(&t, "a/b/s").nr, s.nr); /* not followed */
		assert_int_equal(lpi_tp_walk(&t, "a/b/x"), -ENOENT);
		assert_int_equal(lpi_tp_walk(&t, "a/x/c"), -ENOENT);
		assert_int_equal(lpi_tp_walk(&t, "a/b/c/d"), -ENOTDIR); /* rule N6 */
		assert_int_equal(lpi_tp_walk(&t, "a/b/s/d"), -ENOTDIR);
		assert_int_equal(lpi_tp_walk(&t, "a//b"), -EINVAL);
	}
	struct lp_ns_stats stats;
	lp_ns_read_stats(t.rig->ns[0], &stats);
	assert_true(stats.cache_hits > 0);
	/* Open in one go. */
	lpi_t_op(&t, LP_NS_WALK);
	t.op->walk.path = lpi_t_bytes("a/b/c");
	t.op->walk.open = true;
	lp_test_ok(lpi_t_do(&t));
	lp_test_ok(lpi_tp_delete(&t, "a/b/c"));
	assert_int_equal(lpi_t_attrs(&t, c).nlink, 0);
	lp_test_ok(lpi_t_close(&t, c));
	lpi_t_idle(&t);
	assert_int_equal(lpi_t_stat(&t, c), -ESTALE);
	assert_int_equal(lpi_tp_walk(&t, "a/b/c"), -ENOENT);
	lpi_tp_end(&t, 4);
}

static void test_walk(void **state)
{
	(void)state;
	for (uint32_t i = 1; i <= 3; i++)
		walk_on(i);
}

/* The shard of an entry is known as far as the caches know. */
static void test_shard_of_path(void **state)
{
	(void)state;
	struct lpi_t t;
	lpi_t_begin(&t, 3);
	struct lp_ino a = lpi_t_spread(&t, LP_INO_ROOT, "a");
	for (uint32_t i = 0; i < 3; i++)
		(void)lpi_tp_walk(&t, "a/x");
	for (uint32_t i = 0; i < 3; i++) {
		struct lp_ns *ns = t.rig->ns[i];
		assert_int_equal(lp_ns_shard_of_path(ns, lpi_t_bytes("a/x")),
				 lpi_shard_of_entry(ns, a, true, lpi_t_bytes("x")));
		assert_int_equal(lp_ns_shard_of_path(ns, lpi_t_bytes("a")), 0);
		assert_int_equal(lp_ns_shard_of_path(ns, lpi_t_bytes("")), i);
	}
	lpi_tp_end(&t, 2);
}

/* --- The caches ------------------------------------------------------------------------------- */

#define WALKS 6u

/* One operation, and walks of `path` from all shards that begin after so many turns of it. */
struct race {
	struct lpi_t t;
	struct lpi_ns_hand change;
	struct lpi_ns_hand walks[WALKS];
};

static void begin_walk(struct race *race, uint32_t i, const char *path)
{
	race->walks[i] = (struct lpi_ns_hand){.op = {.opcode = LP_NS_WALK}};
	race->walks[i].op.walk.path = lpi_t_bytes(path);
	lpi_ns_rig_submit(race->t.rig, i % race->t.rig->shard_cnt, &race->walks[i]);
}

/* Walks under way when it is answered may have found the old one or the new one; those that begin
 * then, none but the new one. */
static void race_on(struct race *race, uint32_t turns, struct lp_ino before, struct lp_ino after)
{
	struct lpi_t *t = &race->t;
	lpi_ns_rig_submit(t->rig, turns % t->rig->shard_cnt, &race->change);
	for (uint32_t i = 0; i < turns && !race->change.is_done; i++)
		(void)lpi_ns_rig_turn(t->rig);
	for (uint32_t i = 0; i < WALKS; i++)
		begin_walk(race, i, "a/b/c");
	lp_test_ok(lpi_ns_rig_wait(t->rig, &race->change));
	struct lpi_ns_hand late[LPI_NS_RIG_SHARDS_MAX];
	for (uint32_t i = 0; i < t->rig->shard_cnt; i++) {
		late[i] = (struct lpi_ns_hand){.op = {.opcode = LP_NS_WALK}};
		late[i].op.walk.path = lpi_t_bytes("a/b/c");
		lpi_ns_rig_submit(t->rig, i, &late[i]);
	}
	for (uint32_t i = 0; i < WALKS; i++) {
		int r = lpi_ns_rig_wait(t->rig, &race->walks[i]);
		uint64_t nr = r == -ENOENT ? 0 : race->walks[i].op.walk.found.ino.nr;
		assert_true(nr == before.nr || nr == after.nr);
	}
	for (uint32_t i = 0; i < t->rig->shard_cnt; i++) {
		int r = lpi_ns_rig_wait(t->rig, &late[i]);
		assert_int_equal(r, after.nr == 0 ? -ENOENT : 0);
		if (r == 0)
			assert_int_equal(late[i].op.walk.found.ino.nr, after.nr);
	}
}

static void fill_rename(struct race *race, struct lp_ino dir, const char *name, const char *to,
			uint32_t flags)
{
	race->change = (struct lpi_ns_hand){.op = {.opcode = LP_NS_RENAME}};
	race->change.op.rename.dir = dir;
	race->change.op.rename.name = lpi_t_bytes(name);
	race->change.op.rename.to_dir = dir;
	race->change.op.rename.to_name = lpi_t_bytes(to);
	race->change.op.rename.flags = flags;
}

/* Two directories change places, one is renamed away, and one is removed: with walks from all
 * shards beginning at each turn of it, and from all at once when it was answered. */
static void coherent_on(uint32_t shard_cnt, bool is_spread)
{
	struct race race;
	struct lpi_t *t = &race.t;
	lpi_t_begin(t, shard_cnt);
	struct lp_ino a =
		is_spread ? lpi_t_spread(t, LP_INO_ROOT, "a") : lpi_t_dir(t, LP_INO_ROOT, "a");
	struct lp_ino b = lpi_t_dir(t, a, "b");
	struct lp_ino other = lpi_t_dir(t, a, "other");
	struct lp_ino first = lpi_t_file(t, b, "c");
	struct lp_ino second = lpi_t_file(t, other, "c");
	for (uint32_t turns = 0; turns < 30; turns++) {
		fill_rename(&race, a, "b", "other", LP_NS_RENAME_EXCHANGE);
		race_on(&race, turns, turns % 2 == 0 ? first : second,
			turns % 2 == 0 ? second : first);
	}
	for (uint32_t turns = 0; turns < 30; turns++) {
		const struct lp_ino none = {0};
		fill_rename(&race, a, "b", "away", 0);
		race_on(&race, turns, first, none);
		fill_rename(&race, a, "away", "b", 0);
		race_on(&race, turns, none, first);
	}
	for (uint32_t turns = 0; turns < 30; turns++) {
		/* A new directory in the place of one that was removed. */
		struct lp_ino b2 = lpi_t_dir(t, a, "b2");
		for (uint32_t i = 0; i < shard_cnt; i++)
			assert_int_equal(lpi_tp_find(t, "a/b2").nr, b2.nr);
		(void)lpi_tp_walk(t, "a/b2/c");
		race.change = (struct lpi_ns_hand){.op = {.opcode = LP_NS_REMOVE}};
		race.change.op.remove.dir = a;
		race.change.op.remove.name = lpi_t_bytes("b2");
		race.change.op.remove.is_dir = true;
		race_on(&race, turns, first, first);
		b2 = lpi_t_spread(t, a, "b2");
		struct lp_ino c = lpi_t_file(t, b2, "c");
		for (uint32_t i = 0; i < shard_cnt; i++)
			assert_int_equal(lpi_tp_find(t, "a/b2/c").nr, c.nr);
		lp_test_ok(lpi_tp_delete(t, "a/b2/c"));
		lp_test_ok(lpi_t_remove(t, a, "b2", true));
		for (uint32_t i = 0; i < shard_cnt; i++)
			assert_int_equal(lpi_tp_walk(t, "a/b2/c"), -ENOENT);
	}
	lpi_tp_end(t, 6);
}

static void test_coherent(void **state)
{
	(void)state;
	for (uint32_t i = 1; i <= 3; i++) {
		coherent_on(i, false);
		coherent_on(i, true);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_check),
		cmocka_unit_test(test_walk),
		cmocka_unit_test(test_shard_of_path),
		cmocka_unit_test(test_coherent),
	};
	return lp_test_main(tests, "namespace/ops/paths");
}
