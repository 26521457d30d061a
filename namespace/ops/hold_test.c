/* SPDX-License-Identifier: Apache-2.0 */
/* What a mount was told of (rule N5): counted once for each result that has attributes, not for
 * what fails, and there until it has been forgotten as often, whatever becomes of its names; on
 * one, two and three shards. */
#include "base/prng.h"
#include "namespace/ops/names_rig_test.h"

static const struct lp_ino root = {1};

/* How many inodes are held. */
static uint64_t held_cnt(struct lpi_t *t)
{
	struct lp_ns_stats stats;
	uint64_t cnt = 0;
	for (uint32_t i = 0; i < t->rig->shard_cnt; i++) {
		lp_ns_read_stats(t->rig->ns[i], &stats);
		assert_int_equal(stats.held_uncounted + stats.held_unbalanced, 0);
		cnt += stats.held;
	}
	return cnt;
}

static uint64_t orphan_cnt(struct lpi_t *t)
{
	uint64_t cnt = 0;
	for (uint32_t i = 0; i < t->rig->shard_cnt; i++)
		cnt += lpi_opens_orphans(t->rig->ns[i]->opens);
	return cnt;
}

/* The kernel has forgotten it so often. */
static void forget(struct lpi_t *t, struct lp_ino ino, uint64_t count)
{
	const struct lp_ns_forgotten item = {.ino = ino, .count = count};
	lpi_t_op(t, LP_NS_FORGET);
	t->op->forget.items = &item;
	t->op->forget.cnt = 1;
	lp_test_ok(lpi_t_do(t));
}

static int lookup_held(struct lpi_t *t, struct lp_ino dir, const char *name)
{
	lpi_t_op(t, LP_NS_LOOKUP);
	t->op->hold = true;
	t->op->lookup.dir = dir;
	t->op->lookup.name = lpi_t_bytes(name);
	return lpi_t_do(t);
}

/* Gone, once what is under way has ended. */
static void check_gone(struct lpi_t *t, struct lp_ino ino)
{
	lpi_t_idle(t);
	assert_int_equal(lpi_t_stat(t, ino), -ESTALE);
	assert_int_equal(orphan_cnt(t), 0);
}

/* --- Counting --------------------------------------------------------------------------------- */

static void check_counts(struct lpi_t *t)
{
	struct lp_ino dirs[] = {root, lpi_t_dir(t, root, "plain"), lpi_t_spread(t, root, "spread")};
	for (size_t d = 0; d < LP_ARRAY_SIZE(dirs); d++) {
		lpi_t_fill_make(t, dirs[d], "made", LP_INODE_TYPE_FILE);
		t->op->hold = true;
		lp_test_ok(lpi_t_do(t));
		struct lp_ino ino = t->op->make.found.ino;
		assert_int_equal(held_cnt(t), 1);
		/* Those that fail. */
		lpi_t_fill_make(t, dirs[d], "made", LP_INODE_TYPE_FILE);
		t->op->hold = true;
		assert_int_equal(lpi_t_do(t), -EEXIST);
		lpi_t_fill_make(t, dirs[d], "made", LP_INODE_TYPE_FILE);
		t->op->hold = t->op->make.open = true;
		assert_int_equal(lpi_t_do(t), -EEXIST);
		assert_int_equal(lookup_held(t, dirs[d], "other"), -ENOENT);
		lpi_t_op(t, LP_NS_LINK);
		t->op->hold = true;
		t->op->link.ino = ino;
		t->op->link.dir = dirs[d];
		t->op->link.name = lpi_t_bytes("made");
		assert_int_equal(lpi_t_do(t), -EEXIST);
		/* Those that succeed: 4 in all. */
		lp_test_ok(lookup_held(t, dirs[d], "made"));
		assert_int_equal(t->op->lookup.found.ino.nr, ino.nr);
		assert_int_equal(t->op->lookup.found.attrs.mode, 0640);
		lpi_t_op(t, LP_NS_LINK);
		t->op->hold = true;
		t->op->link.ino = ino;
		t->op->link.dir = dirs[d];
		t->op->link.name = lpi_t_bytes("linked");
		lp_test_ok(lpi_t_do(t));
		lpi_t_op(t, LP_NS_STAT);
		t->op->hold = true;
		t->op->stat.ino = ino;
		lp_test_ok(lpi_t_do(t));
		forget(t, ino, 3);
		assert_int_equal(held_cnt(t), 1);
		forget(t, ino, 1);
		assert_int_equal(held_cnt(t), 0);
		/* A directory. */
		lp_test_ok(lookup_held(t, root, d == 2 ? "spread" : "plain"));
		assert_int_equal(held_cnt(t), 1);
		forget(t, t->op->lookup.found.ino, 1);
		assert_int_equal(held_cnt(t), 0);
	}
	/* One that is no inode's. */
	lpi_t_op(t, LP_NS_STAT);
	t->op->hold = true;
	t->op->stat.ino = (struct lp_ino){4711};
	assert_int_equal(lpi_t_do(t), -ESTALE);
	lpi_t_fill_make(t, root, "made", LP_INODE_TYPE_FILE);
	t->op->hold = t->op->make.or_open = true;
	assert_int_equal(lpi_t_do(t), -EINVAL);
	assert_int_equal(held_cnt(t), 0);
}

static void test_counts(void **state)
{
	(void)state;
	lpi_t_on_all(check_counts);
}

/* Each entry that has attributes is held, directories too; and forgotten in one go. */
static void check_readdir(struct lpi_t *t)
{
	struct lp_ns_forgotten items[64];
	uint8_t buf[16384];
	struct lp_ns_item item;
	uint32_t pos = 0;
	uint32_t cnt = 0;
	struct lp_ino dir = lpi_t_spread(t, root, "dir");
	for (uint32_t i = 0; i < 40; i++) {
		char name[] = "n00";
		name[1] = (char)('0' + i / 10);
		name[2] = (char)('0' + i % 10);
		if (i % 5 == 0)
			(void)lpi_t_dir(t, dir, name);
		else
			(void)lpi_t_file(t, dir, name);
	}
	lpi_t_op(t, LP_NS_READDIR);
	t->op->hold = true;
	t->op->readdir.dir = dir;
	t->op->readdir.buf = buf;
	t->op->readdir.buf_len = sizeof(buf);
	t->op->readdir.with_attrs = true;
	lp_test_ok(lpi_t_do(t));
	while (lp_ns_next(t->op, &pos, &item)) {
		assert_true(item.has_attrs);
		items[cnt++] = (struct lp_ns_forgotten){.ino = item.ino, .count = 1};
	}
	assert_int_equal(cnt, 40);
	assert_int_equal(held_cnt(t), cnt);
	lpi_t_op(t, LP_NS_FORGET);
	t->op->forget.items = items;
	t->op->forget.cnt = cnt;
	lp_test_ok(lpi_t_do(t));
	assert_int_equal(held_cnt(t), 0);
}

static void test_readdir(void **state)
{
	(void)state;
	lpi_t_on_all(check_readdir);
}

/* --- Names that go ---------------------------------------------------------------------------- */

static void check_names(struct lpi_t *t)
{
	struct lp_ino dirs[] = {root, lpi_t_dir(t, root, "plain"), lpi_t_spread(t, root, "spread")};
	for (size_t d = 0; d < LP_ARRAY_SIZE(dirs); d++) {
		/* Removed. */
		struct lp_ino ino = lpi_t_file(t, dirs[d], "file");
		lp_test_ok(lookup_held(t, dirs[d], "file"));
		lp_test_ok(lpi_t_remove(t, dirs[d], "file", false));
		assert_int_equal(lpi_t_nlink(t, ino), 0);
		/* It may be opened still, and closing it changes nothing. */
		lp_test_ok(lpi_t_open(t, ino));
		lp_test_ok(lpi_t_close(t, ino));
		lpi_t_idle(t);
		assert_int_equal(lpi_t_nlink(t, ino), 0);
		forget(t, ino, 1);
		check_gone(t, ino);
		/* Replaced, and open when it is forgotten. */
		ino = lpi_t_file(t, dirs[d], "old");
		(void)lpi_t_file(t, dirs[d], "new");
		lp_test_ok(lookup_held(t, dirs[d], "old"));
		lp_test_ok(lpi_t_rename(t, dirs[d], "new", dirs[d], "old", 0));
		assert_int_equal(lpi_t_nlink(t, ino), 0);
		lp_test_ok(lpi_t_open(t, ino));
		forget(t, ino, 1);
		lpi_t_idle(t);
		assert_int_equal(lpi_t_nlink(t, ino), 0);
		lp_test_ok(lpi_t_close(t, ino));
		check_gone(t, ino);
		/* A directory. */
		ino = lpi_t_spread(t, dirs[d], "dir");
		lp_test_ok(lookup_held(t, dirs[d], "dir"));
		lp_test_ok(lpi_t_remove(t, dirs[d], "dir", true));
		assert_int_equal(lpi_t_stat(t, ino), 0);
		assert_int_equal(lpi_t_make(t, ino, "late", LP_INODE_TYPE_FILE), -ENOENT);
		forget(t, ino, 1);
		check_gone(t, ino);
	}
	assert_int_equal(held_cnt(t), 0);
}

static void test_names(void **state)
{
	(void)state;
	lpi_t_on_all(check_names);
}

/* The mount goes: what only it knew of goes with it, at once and many at a time. */
static void check_all(struct lpi_t *t)
{
	struct lp_ino dir = lpi_t_spread(t, root, "dir");
	struct lp_ino inos[50];
	for (uint32_t i = 0; i < LP_ARRAY_SIZE(inos); i++) {
		inos[i] = lpi_t_file(t, dir, "file");
		lp_test_ok(lookup_held(t, dir, "file"));
		lp_test_ok(lpi_t_remove(t, dir, "file", false));
	}
	assert_int_equal(orphan_cnt(t), LP_ARRAY_SIZE(inos));
	lpi_t_op(t, LP_NS_FORGET);
	t->op->forget.all = true;
	lp_test_ok(lpi_t_do(t));
	assert_int_equal(held_cnt(t), 0);
	for (uint32_t i = 0; i < LP_ARRAY_SIZE(inos); i++)
		check_gone(t, inos[i]);
}

static void test_all(void **state)
{
	(void)state;
	lpi_t_on_all(check_all);
}

/* --- At full speed ---------------------------------------------------------------------------- */

#define PAIRS  4u
#define ROUNDS 300u

/* Renames over a name, and lookups of it, with other times between their beginnings in each round:
 * what a lookup was told of is there, always. */
static void check_race(struct lpi_t *t)
{
	struct lpi_ns_hand lookups[PAIRS];
	struct lpi_ns_hand renames[PAIRS];
	struct lp_prng prng;
	struct lp_ino dir = lpi_t_spread(t, root, "dir");
	lp_prng_init(&prng, t->rig->shard_cnt);
	(void)lpi_t_file(t, dir, "name");
	for (uint32_t round = 0; round < ROUNDS; round++) {
		static const char *const names[PAIRS] = {"a", "bb", "ccc", "dddd"};
		for (uint32_t i = 0; i < PAIRS; i++)
			(void)lpi_t_file(t, dir, names[i]);
		for (uint32_t i = 0; i < PAIRS; i++) {
			renames[i] = (struct lpi_ns_hand){.op = {.opcode = LP_NS_RENAME}};
			renames[i].op.rename.dir = renames[i].op.rename.to_dir = dir;
			renames[i].op.rename.name = lpi_t_bytes(names[i]);
			renames[i].op.rename.to_name = lpi_t_bytes("name");
			lookups[i] =
				(struct lpi_ns_hand){.op = {.opcode = LP_NS_LOOKUP, .hold = true}};
			lookups[i].op.lookup.dir = dir;
			lookups[i].op.lookup.name = lpi_t_bytes("name");
			lpi_ns_rig_submit(t->rig, i % t->rig->shard_cnt, &renames[i]);
			for (uint64_t k = lp_prng_below(&prng, 12); k > 0; k--)
				(void)lpi_ns_rig_turn(t->rig);
			lpi_ns_rig_submit(t->rig, round % t->rig->shard_cnt, &lookups[i]);
		}
		for (uint32_t i = 0; i < PAIRS; i++) {
			lp_test_ok(lpi_ns_rig_wait(t->rig, &lookups[i]));
			lp_test_ok(lpi_ns_rig_wait(t->rig, &renames[i]));
		}
		lpi_t_idle(t);
		for (uint32_t i = 0; i < PAIRS; i++)
			lp_test_ok(lpi_t_stat(t, lookups[i].op.lookup.found.ino));
		for (uint32_t i = 0; i < PAIRS; i++)
			forget(t, lookups[i].op.lookup.found.ino, 1);
	}
	assert_int_equal(held_cnt(t), 0);
	lpi_t_idle(t);
	assert_int_equal(orphan_cnt(t), 0);
}

static void test_race(void **state)
{
	(void)state;
	lpi_t_on_all(check_race);
}

/* --- What a mount had open -------------------------------------------------------------------- */

static void forget_all(struct lpi_t *t)
{
	lpi_t_op(t, LP_NS_FORGET);
	t->op->forget.all = true;
	lp_test_ok(lpi_t_do(t));
}

static uint64_t open_cnt(struct lpi_t *t)
{
	uint64_t cnt = 0;
	for (uint32_t i = 0; i < t->rig->shard_cnt; i++)
		cnt += lpi_opens_inodes(t->rig->ns[i]->opens);
	return cnt;
}

static int open_or_close(struct lpi_t *t, enum lp_ns_opcode opcode, struct lp_ino ino)
{
	lpi_t_op(t, opcode);
	t->op->is_mounts = true;
	t->op->open.ino = ino;
	t->op->open.count = opcode == LP_NS_CLOSE ? 1 : 0;
	return lpi_t_do(t);
}

static void fill_make_open(struct lpi_t *t, struct lp_ino dir, uint32_t nr, bool is_unnamed)
{
	lpi_t_fill_make(t, dir, nr == 0 ? "x" : "y", LP_INODE_TYPE_FILE);
	t->op->is_mounts = true;
	t->op->hold = true;
	t->op->make.open = !is_unnamed;
	t->op->make.unnamed = is_unnamed;
	if (is_unnamed)
		t->op->make.name = (struct lp_bytes){0};
}

/* Its connection was aborted: nobody will ever close it. */
static void check_all_closed(struct lpi_t *t)
{
	struct lp_ino dirs[] = {root, lpi_t_dir(t, root, "plain"), lpi_t_spread(t, root, "spread")};
	for (size_t d = 0; d < LP_ARRAY_SIZE(dirs); d++) {
		fill_make_open(t, dirs[d], 0, false);
		lp_test_ok(lpi_t_do(t));
		struct lp_ino ino = t->op->make.found.ino;
		lp_test_ok(open_or_close(t, LP_NS_OPEN, ino));
		fill_make_open(t, dirs[d], 1, true);
		lp_test_ok(lpi_t_do(t));
		struct lp_ino unnamed = t->op->make.found.ino;
		struct lp_ino stays = lpi_t_file(t, dirs[d], "stays");
		lp_test_ok(open_or_close(t, LP_NS_OPEN, stays));
		/* One that the other door has open, too. */
		struct lp_ino both = lpi_t_file(t, dirs[d], "both");
		lp_test_ok(open_or_close(t, LP_NS_OPEN, both));
		lp_test_ok(lpi_t_open(t, both));
		lp_test_ok(lpi_t_remove(t, dirs[d], "x", false));
		lp_test_ok(lpi_t_remove(t, dirs[d], "both", false));
		assert_int_equal(orphan_cnt(t), 3);
		forget_all(t);
		for (uint32_t i = 0; orphan_cnt(t) > 1; i++) {
			assert_true(i < LPI_T_TURNS_MAX);
			(void)lpi_ns_rig_turn(t->rig);
		}
		assert_int_equal(open_cnt(t), 1);
		assert_int_equal(lpi_t_stat(t, ino), -ESTALE);
		assert_int_equal(lpi_t_stat(t, unnamed), -ESTALE);
		/* What it still had to say comes too late, and takes nothing from anybody. */
		assert_int_equal(open_or_close(t, LP_NS_CLOSE, ino), -EINVAL);
		assert_int_equal(open_or_close(t, LP_NS_CLOSE, stays), -EINVAL);
		assert_int_equal(open_or_close(t, LP_NS_CLOSE, both), -EINVAL);
		lp_test_ok(lpi_t_stat(t, both));
		lp_test_ok(lpi_t_close(t, both));
		check_gone(t, both);
		assert_int_equal(open_cnt(t), 0);
		lp_test_ok(lpi_t_remove(t, dirs[d], "stays", false));
	}
}

static void test_all_closed(void **state)
{
	(void)state;
	lpi_t_on_all(check_all_closed);
}

/* The same at each turn of what is asked for: an answer that comes later finds nobody, and closes.
 */
static void check_closed_meanwhile(struct lpi_t *t)
{
	struct lp_ino dir = lpi_t_spread(t, root, "spread");
	for (uint32_t turns = 0; turns < 3 * 40; turns++) {
		struct lpi_ns_hand gone = {.op = {.opcode = LP_NS_FORGET}};
		gone.op.forget.all = true;
		if (turns % 3 == 2) {
			struct lp_ino ino = lpi_t_file(t, dir, "x");
			lpi_t_op(t, LP_NS_OPEN);
			t->op->is_mounts = true;
			t->op->open.ino = ino;
		} else {
			fill_make_open(t, dir, 0, turns % 3 == 1);
		}
		struct lpi_ns_hand hand = t->hand;
		lpi_ns_rig_submit(t->rig, turns % t->rig->shard_cnt, &hand);
		for (uint32_t n = 0; n < turns / 3; n++)
			(void)lpi_ns_rig_turn(t->rig);
		lpi_ns_rig_submit(t->rig, 0, &gone);
		int r = lpi_ns_rig_wait(t->rig, &hand);
		lp_test_ok(lpi_ns_rig_wait(t->rig, &gone));
		assert_true(r == 0 || r == -ESTALE);
		struct lp_ino ino = turns % 3 == 2 ? hand.op.open.ino : hand.op.make.found.ino;
		if (r == 0)
			(void)open_or_close(t, LP_NS_CLOSE, ino);
		forget_all(t);
		if (turns % 3 != 1)
			lp_test_ok(lpi_t_remove(t, dir, "x", false));
		check_gone(t, ino);
		assert_int_equal(open_cnt(t), 0);
	}
}

static void test_closed_meanwhile(void **state)
{
	(void)state;
	lpi_t_on_all(check_closed_meanwhile);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_all_closed), cmocka_unit_test(test_closed_meanwhile),
		cmocka_unit_test(test_counts),     cmocka_unit_test(test_readdir),
		cmocka_unit_test(test_names),      cmocka_unit_test(test_all),
		cmocka_unit_test(test_race),
	};
	return lp_test_main(tests, "namespace/ops/hold");
}
