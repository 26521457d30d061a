/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: a delete takes the directories along that puts made and that it emptied, and never an
 * object that a put brings meanwhile (rule N2). Method: on one to three shards in simulated time;
 * puts and deletes begin so many turns one after the other, for all numbers that matter, and from
 * all shards. */
#include "namespace/ops/paths_rig_test.h"

static void basic_on(uint32_t shard_cnt)
{
	struct lpi_t t;
	lpi_t_begin(&t, shard_cnt);
	lp_test_ok(lpi_tp_put(&t, "a/b/c/x", 10));
	lp_test_ok(lpi_tp_put(&t, "a/b/y", 10));
	assert_int_equal(lpi_tp_delete(&t, "a/b/z"), -ENOENT);
	assert_int_equal(lpi_tp_delete(&t, "a/z/z"), -ENOENT);
	assert_int_equal(lpi_tp_delete(&t, "a/b/y/z"), -ENOTDIR);
	assert_int_equal(lpi_tp_delete(&t, "a/b"), -EISDIR);
	assert_int_equal(lpi_tp_delete(&t, ""), -EISDIR);
	assert_int_equal(lpi_tp_delete_as(&t, "", true, LP_NS_IF_ANY, 0), -EBUSY);
	assert_int_equal(lpi_tp_delete_as(&t, "a/b", true, LP_NS_IF_ANY, 0), -ENOTEMPTY);
	lp_test_ok(lpi_tp_delete(&t, "a/b/c/x"));
	assert_int_equal(lpi_tp_walk(&t, "a/b/c"), -ENOENT);
	lp_test_ok(lpi_tp_walk(&t, "a/b"));
	lp_test_ok(lpi_tp_delete(&t, "a/b/y"));
	assert_int_equal(lpi_tp_walk(&t, "a"), -ENOENT);
	/* A directory that a client made explicitly, or has set attributes of, stays, and so do
	 * those above it. */
	(void)lpi_t_dir(&t, LP_INO_ROOT, "mine");
	lp_test_ok(lpi_tp_put(&t, "mine/b/x", 10));
	lp_test_ok(lpi_tp_delete(&t, "mine/b/x"));
	lp_test_ok(lpi_tp_walk(&t, "mine"));
	assert_int_equal(lpi_tp_walk(&t, "mine/b"), -ENOENT);
	lp_test_ok(lpi_tp_put(&t, "a/b/c/x", 10));
	lpi_t_op(&t, LP_NS_SET);
	struct lp_ino b = lpi_tp_find(&t, "a/b");
	lpi_t_op(&t, LP_NS_SET);
	t.op->set.ino = b;
	t.op->set.mask = LP_ATTR_MODE;
	t.op->set.attrs.mode = 0700;
	lp_test_ok(lpi_t_do(&t));
	lp_test_ok(lpi_tp_delete(&t, "a/b/c/x"));
	assert_int_equal(lpi_tp_walk(&t, "a/b/c"), -ENOENT);
	lp_test_ok(lpi_tp_walk(&t, "a/b"));
	/* Explicitly, and so that what is above it goes along. */
	lp_test_ok(lpi_tp_delete_as(&t, "a/b", true, LP_NS_IF_ANY, 0));
	assert_int_equal(lpi_tp_walk(&t, "a"), -ENOENT);
	/* Another link keeps it. */
	lp_test_ok(lpi_tp_put(&t, "a/x", 10));
	lp_test_ok(lpi_t_link(&t, lpi_tp_find(&t, "a/x"), lpi_tp_find(&t, "mine"), "x"));
	lp_test_ok(lpi_tp_delete(&t, "a/x"));
	assert_int_equal(lpi_tp_length(&t, "mine/x"), 10);
	lpi_tp_end(&t, 3);
}

static void test_basic(void **state)
{
	(void)state;
	for (uint32_t i = 1; i <= 3; i++)
		basic_on(i);
}

/* Rule N2: if a client stores something with a directory it no longer vanishes, also without
 * LP_NS_SET. */
static void own_on(uint32_t shard_cnt)
{
	struct lpi_t t;
	lpi_t_begin(&t, shard_cnt);
	const struct lp_attrs attrs = {.type = LP_INODE_TYPE_DIR, .mode = 0700};
	const struct lp_change kinds[] = {
		{.type = LP_CHANGE_XATTR_SET,
		 .named = {.name = LPI_NS_RIG_BYTES("user.a"), .value = LPI_NS_RIG_BYTES("1")}},
		{.type = LP_CHANGE_OMAP_SET,
		 .named = {.name = LPI_NS_RIG_BYTES("a"), .value = LPI_NS_RIG_BYTES("1")}},
		{.type = LP_CHANGE_SET, .inode = {.attrs = &attrs, .mask = LP_ATTR_MODE}}};
	for (size_t i = 0; i < LP_ARRAY_SIZE(kinds); i++) {
		struct lp_change change = kinds[i];
		lp_test_ok(lpi_tp_put(&t, "a/b/x", 10));
		change.ino = lpi_tp_find(&t, "a/b");
		for (uint32_t k = 0; k < 2; k++) {
			lpi_t_op(&t, LP_NS_STORE);
			t.op->store.ino = change.ino;
			t.op->store.op =
				(struct lp_store_op){.opcode = LP_STORE_TXN,
						     .txn = {.changes = &change, .change_cnt = 1}};
			lp_test_ok(lpi_t_do(&t));
		}
		assert_int_equal(lpi_t_attrs(&t, change.ino).flags & LP_INODE_FLAG_MADE_BY_PUT, 0);
		lp_test_ok(lpi_tp_delete(&t, "a/b/x"));
		assert_int_equal(lpi_tp_find(&t, "a/b").nr, change.ino.nr);
		lp_test_ok(lpi_tp_delete_as(&t, "a/b", true, LP_NS_IF_ANY, 0));
		assert_int_equal(lpi_tp_walk(&t, "a"), -ENOENT);
	}
	/* That it was listed in a mount does not: it goes with what was in it. */
	const struct lp_attrs read = {.atime_ns = 5};
	struct lp_change change = {.type = LP_CHANGE_SET,
				   .inode = {.attrs = &read, .mask = LP_ATTR_ATIME}};
	lp_test_ok(lpi_tp_put(&t, "a/b/x", 10));
	change.ino = lpi_tp_find(&t, "a/b");
	lpi_t_op(&t, LP_NS_STORE);
	t.op->store.ino = change.ino;
	t.op->store.op = (struct lp_store_op){.opcode = LP_STORE_TXN,
					      .txn = {.changes = &change, .change_cnt = 1}};
	lp_test_ok(lpi_t_do(&t));
	lp_test_ok(lpi_tp_delete(&t, "a/b/x"));
	assert_int_equal(lpi_tp_walk(&t, "a"), -ENOENT);
	/* On what is not there, and on a file, as ever. */
	change = kinds[0];
	change.ino = (struct lp_ino){12345};
	lpi_t_op(&t, LP_NS_STORE);
	t.op->store.ino = change.ino;
	t.op->store.op = (struct lp_store_op){.opcode = LP_STORE_TXN,
					      .txn = {.changes = &change, .change_cnt = 1}};
	assert_int_equal(lpi_t_do(&t), -ENOENT);
	assert_int_equal(t.op->store.op.result, -ENOENT);
	lp_test_ok(lpi_tp_put(&t, "f", 10));
	lpi_tp_set_xattr(&t, lpi_tp_find(&t, "f"), "user.a", "1");
	assert_true(lpi_tp_has_xattr(&t, lpi_tp_find(&t, "f"), "user.a", "1"));
	lpi_tp_end(&t, 2);
}

static void test_own(void **state)
{
	(void)state;
	for (uint32_t i = 1; i <= 3; i++)
		own_on(i);
}

/* --- Interleavings ---------------------------------------------------------------------------- */

#define TURNS 80u
/* Of the turns, with a sanitizer one in so many. */
#define STEP (LP_ASSERT_SLOW_ON ? 11u : 1u)

/* The put, whenever it began, has happened in the end: its object is there. */
static void race_on(uint32_t shard_cnt, uint32_t turns, const char *deleted, const char *put_path,
		    bool put_first)
{
	struct lpi_t t;
	struct lpi_tp_put put;
	struct lpi_ns_hand del = {.op = {.opcode = LP_NS_DELETE}};
	lpi_t_begin(&t, shard_cnt);
	lp_test_ok(lpi_tp_put(&t, deleted, 10));
	/* Warm caches, which are the danger. */
	for (uint32_t i = 0; i < shard_cnt; i++)
		lp_test_ok(lpi_tp_walk(&t, deleted));
	uint32_t home = turns % shard_cnt;
	lpi_tp_put_fill(&put, &t, home, put_path, 20);
	del.op.delete.path = lpi_t_bytes(deleted);
	lpi_ns_rig_submit(t.rig, put_first ? home : 0, put_first ? &put.hand : &del);
	for (uint32_t i = 0; i < turns; i++)
		(void)lpi_ns_rig_turn(t.rig);
	lpi_ns_rig_submit(t.rig, put_first ? 0 : home, put_first ? &del : &put.hand);
	lp_test_ok(lpi_ns_rig_wait(t.rig, &put.hand));
	lp_test_ok(lpi_ns_rig_wait(t.rig, &del));
	lpi_tp_put_drop(&put);
	assert_int_equal(lpi_tp_length(&t, put_path), 20);
	assert_int_equal(lpi_tp_walk(&t, deleted), -ENOENT);
	lp_test_ok(lpi_tp_delete(&t, put_path));
	assert_int_equal(lpi_tp_walk(&t, "a"), -ENOENT);
	lpi_tp_end(&t, 1);
}

/* Rule N2: a put into a directory that is being removed because it is empty. */
static void test_put_beside(void **state)
{
	(void)state;
	for (uint32_t shard_cnt = 1; shard_cnt <= 3; shard_cnt++) {
		for (uint32_t turns = 0; turns < TURNS; turns += STEP) {
			race_on(shard_cnt, turns, "a/b/x", "a/b/y", false);
			race_on(shard_cnt, turns, "a/b/x", "a/b/c/y", true);
		}
	}
}

#define RACERS 12u

/* Many at once, on few keys below one directory: each put that was answered last for its key is
 * there unless a delete was under way then, and no directory is left over in the end. */
static void test_storm(void **state)
{
	(void)state;
	static const char *const paths[] = {"a/b/x", "a/b/y", "a/b/c/z", "a/w"};
	for (uint64_t seed = 1; seed <= (LP_ASSERT_SLOW_ON ? 9 : 60); seed++) {
		struct lpi_t t;
		struct lp_prng prng;
		struct lpi_tp_put puts[RACERS];
		uint32_t shard_cnt = 1 + (uint32_t)(seed % 3);
		lp_prng_init(&prng, seed);
		lpi_t_begin(&t, shard_cnt);
		for (uint32_t i = 0; i < RACERS; i++) {
			uint32_t home = (uint32_t)lp_prng_below(&prng, shard_cnt);
			const char *path = paths[lp_prng_below(&prng, 4)];
			bool is_put = lp_prng_chance(&prng, 1, 2);
			lpi_tp_put_fill(&puts[i], &t, home, path, is_put ? 30 + i : 0);
			if (!is_put) {
				puts[i].hand.op = (struct lp_ns_op){.opcode = LP_NS_DELETE};
				puts[i].hand.op.delete.path = lpi_t_bytes(path);
			}
			lpi_ns_rig_submit(t.rig, home, &puts[i].hand);
			for (uint64_t n = lp_prng_below(&prng, 12); n > 0; n--)
				(void)lpi_ns_rig_turn(t.rig);
		}
		for (uint32_t i = 0; i < RACERS; i++) {
			int r = lpi_ns_rig_wait(t.rig, &puts[i].hand);
			if (puts[i].hand.op.opcode == LP_NS_PUT)
				lp_test_ok(r);
			else
				assert_true(r == 0 || r == -ENOENT);
			lpi_tp_put_drop(&puts[i]);
		}
		for (uint32_t i = 0; i < 4; i++) {
			int r = lpi_tp_delete(&t, paths[i]);
			assert_true(r == 0 || r == -ENOENT);
		}
		assert_int_equal(lpi_tp_walk(&t, "a"), -ENOENT);
		lpi_tp_end(&t, 1);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_basic),
		cmocka_unit_test(test_own),
		cmocka_unit_test(test_put_beside),
		cmocka_unit_test(test_storm),
	};
	return lp_test_main(tests, "namespace/ops/delete");
}
