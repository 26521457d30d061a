/* SPDX-License-Identifier: Apache-2.0 */
/* Stat, set and readdir of directories of both kinds, on one, two and three shards. */
#include "namespace/state/acl_rig_test.h"

static const struct lp_ino root = {1};

typedef void check_fn(struct lpi_t *t, bool is_spread);

static void on_all(check_fn *check)
{
	for (uint32_t shards = 1; shards <= 3; shards++) {
		struct lpi_t t;
		lpi_t_begin(&t, shards);
		check(&t, false);
		check(&t, true);
		lpi_t_end(&t);
	}
}

static struct lp_ino make_dir(struct lpi_t *t, bool is_spread)
{
	return is_spread ? lpi_t_spread(t, root, "spread") : lpi_t_dir(t, root, "plain");
}

/* --- Stat, set -------------------------------------------------------------------------------- */

static void check_stat(struct lpi_t *t, bool is_spread)
{
	struct lp_ino dir = make_dir(t, is_spread);
	for (uint32_t i = 0; i < 10; i++) {
		char name[] = "name0";
		name[4] = (char)('0' + i);
		lpi_t_later(t);
		(void)lpi_t_file(t, dir, name);
		int64_t now_ns = lp_clock_wall_ns(&t->rig->clock.clock);
		lp_test_ok(lpi_t_stat(t, dir));
		const struct lp_ns_found *found = &t->op->stat.found;
		assert_int_equal(found->entries_cnt, i + 1);
		assert_int_equal(found->attrs.size_bytes, 5 * (i + 1));
		assert_int_equal(found->attrs.mtime_ns, now_ns);
		assert_int_equal(found->attrs.ctime_ns, now_ns);
		lp_test_ok(lpi_t_lookup(t, root, is_spread ? "spread" : "plain"));
		assert_int_equal(t->op->lookup.found.entries_cnt, i + 1);
		assert_int_equal(t->op->lookup.found.attrs.mtime_ns, now_ns);
	}
	assert_int_equal(lpi_t_stat(t, (struct lp_ino){0}), -ESTALE);
	assert_int_equal(lpi_t_stat(t, (struct lp_ino){12345}), -ESTALE);
}

static void test_stat(void **state)
{
	(void)state;
	on_all(check_stat);
}

/* A change over two shards takes its time first, and is made last: the directory's times are those
 * of the one that came between. */
static void test_made_late(void **state)
{
	(void)state;
	struct lpi_t t;
	lpi_t_begin(&t, 3);
	struct lp_ino dir = lpi_t_dir(&t, root, "dir");
	for (uint32_t turns = 0; turns < 60; turns++) {
		struct lpi_ns_hand hand = {.op = {.opcode = LP_NS_MAKE}};
		char name[16];
		(void)snprintf(name, sizeof(name), "dir%u", turns);
		hand.op.make.dir = dir;
		hand.op.make.name = lpi_t_bytes(name);
		hand.op.make.type = LP_INODE_TYPE_DIR;
		lpi_ns_rig_submit(t.rig, turns % 3, &hand);
		for (uint32_t i = 0; i < turns; i++)
			(void)lpi_ns_rig_turn(t.rig);
		lpi_t_later(&t);
		int64_t now_ns = lp_clock_wall_ns(&t.rig->clock.clock);
		name[0] = 'f';
		(void)lpi_t_file(&t, dir, name);
		lp_test_ok(lpi_ns_rig_wait(t.rig, &hand));
		const struct lp_attrs attrs = lpi_t_attrs(&t, dir);
		assert_true(attrs.mtime_ns >= now_ns);
		assert_true(attrs.ctime_ns >= now_ns);
	}
	lpi_t_end(&t);
}

/* What has happened since the clock was set back is not hidden by what happened before. */
static void test_clock_set_back(void **state)
{
	(void)state;
	struct lpi_t t;
	lpi_t_begin(&t, 1);
	struct lp_ino dir = lpi_t_dir(&t, root, "dir");
	t.rig->clock.wall_base_ns += 3600 * (int64_t)LP_NS_PER_S;
	(void)lpi_t_file(&t, dir, "before");
	t.rig->clock.wall_base_ns -= 3600 * (int64_t)LP_NS_PER_S;
	lpi_t_later(&t);
	(void)lpi_t_file(&t, dir, "after");
	assert_int_equal(lpi_t_attrs(&t, dir).mtime_ns, lp_clock_wall_ns(&t.rig->clock.clock));
	lpi_t_end(&t);
}

static int set(struct lpi_t *t, struct lp_ino ino, const struct lp_attrs *attrs, uint32_t mask)
{
	lpi_t_op(t, LP_NS_SET);
	t->op->set.ino = ino;
	t->op->set.attrs = *attrs;
	t->op->set.mask = mask;
	return lpi_t_do(t);
}

/* Times that are set are the directory's, though its fragments know younger ones; and what happens
 * later is younger again. */
static void check_set_times(struct lpi_t *t, bool is_spread)
{
	struct lp_ino dir = make_dir(t, is_spread);
	static const int64_t times[] = {1000, 0, -1000, INT64_C(1) << 40};
	for (size_t i = 0; i < LP_ARRAY_SIZE(times); i++) {
		for (uint32_t k = 0; k < 5; k++) {
			char name[] = "a0";
			name[0] = (char)('a' + i);
			name[1] = (char)('0' + k);
			(void)lpi_t_file(t, dir, name);
		}
		const struct lp_attrs attrs = {.mtime_ns = times[i], .atime_ns = 5};
		lpi_t_later(t);
		int64_t now_ns = lp_clock_wall_ns(&t->rig->clock.clock);
		lp_test_ok(set(t, dir, &attrs, LP_ATTR_MTIME | LP_ATTR_ATIME));
		assert_int_equal(t->op->set.found.attrs.mtime_ns, times[i]);
		assert_int_equal(lpi_t_attrs(t, dir).mtime_ns, times[i]);
		assert_int_equal(lpi_t_attrs(t, dir).atime_ns, 5);
		assert_int_equal(lpi_t_attrs(t, dir).ctime_ns, now_ns);
	}
	const struct lp_attrs past = {.ctime_ns = 77};
	lp_test_ok(set(t, dir, &past, LP_ATTR_CTIME));
	assert_int_equal(lpi_t_attrs(t, dir).ctime_ns, 77);
	lpi_t_later(t);
	lp_test_ok(lpi_t_remove(t, dir, "a0", false));
	assert_int_equal(lpi_t_attrs(t, dir).mtime_ns, lp_clock_wall_ns(&t->rig->clock.clock));
}

static void test_set_times(void **state)
{
	(void)state;
	on_all(check_set_times);
}

/* Each change of a directory shows, also of one whose mtime was set into the future. What was set
 * stays until then; and of one that was removed, and is open, it is what it says. */
static void check_set_future(struct lpi_t *t)
{
	struct lp_ino dir = make_dir(t, false);
	int64_t now_ns = lp_clock_wall_ns(&t->rig->clock.clock);
	const struct lp_attrs future = {.mtime_ns = now_ns + 3600 * (int64_t)LP_NS_PER_S};
	for (uint32_t i = 0; i < 4; i++) {
		lp_test_ok(set(t, dir, &future, LP_ATTR_MTIME));
		assert_int_equal(lpi_t_attrs(t, dir).mtime_ns, future.mtime_ns);
		lpi_t_later(t);
		now_ns = lp_clock_wall_ns(&t->rig->clock.clock);
		if (i % 2 == 0)
			lp_test_ok(lpi_t_make(t, dir, "d", LP_INODE_TYPE_DIR));
		else
			lp_test_ok(lpi_t_remove(t, dir, "d", true));
		assert_int_equal(lpi_t_attrs(t, dir).mtime_ns, now_ns);
		/* Another mode is no change of it. */
		lp_test_ok(lpi_t_chmod(t, dir, (uint16_t)(0700 + i)));
		assert_int_equal(lpi_t_attrs(t, dir).mtime_ns, now_ns);
	}
	lp_test_ok(lpi_t_open(t, dir));
	lp_test_ok(lpi_t_remove(t, root, "plain", true));
	lp_test_ok(set(t, dir, &future, LP_ATTR_MTIME));
	assert_int_equal(lpi_t_attrs(t, dir).mtime_ns, future.mtime_ns);
	lp_test_ok(lpi_t_close(t, dir));
}

static void test_set_future(void **state)
{
	(void)state;
	lpi_t_on_all(check_set_future);
}

/* A mode is the access list as well, whoever sets it: its mask, where it has one. What is no list
 * is left alone. */
static void check_set_list(struct lpi_t *t, bool is_spread)
{
	struct lp_ino dir = make_dir(t, is_spread);
	const struct lp_ino inos[] = {dir, lpi_t_file(t, dir, "file")};
	uint8_t list[LPI_T_LIST_BYTES];
	uint8_t wanted[LPI_T_LIST_BYTES];
	for (size_t i = 0; i < LP_ARRAY_SIZE(inos); i++) {
		lp_test_ok(lpi_t_chmod(t, inos[i], 0751));
		assert_false(lpi_t_list_get(t, inos[i], list));
		lpi_t_list_fill(list, 6);
		lpi_t_list_set(t, inos[i], list);
		lp_test_ok(lpi_t_chmod(t, inos[i], 0610));
		assert_int_equal(t->op->set.found.attrs.mode, 0610);
		lpi_t_list_fill(wanted, 1);
		assert_true(lpi_t_list_get(t, inos[i], list));
		assert_memory_equal(list, wanted, sizeof(list));
		/* With times, which those of a directory's fragments go with. */
		const struct lp_attrs attrs = {.mode = 02640, .mtime_ns = 5};
		lp_test_ok(set(t, inos[i], &attrs, LP_ATTR_MODE | LP_ATTR_MTIME));
		assert_int_equal(lpi_t_attrs(t, inos[i]).mode, 02640);
		assert_int_equal(lpi_t_attrs(t, inos[i]).mtime_ns, 5);
		lpi_t_list_fill(wanted, 4);
		assert_true(lpi_t_list_get(t, inos[i], list));
		assert_memory_equal(list, wanted, sizeof(list));
		list[0] = 3;
		lpi_t_list_set(t, inos[i], list);
		lp_test_ok(lpi_t_chmod(t, inos[i], 0600));
		wanted[0] = 3;
		assert_true(lpi_t_list_get(t, inos[i], list));
		assert_memory_equal(list, wanted, sizeof(list));
	}
}

static void test_set_list(void **state)
{
	(void)state;
	on_all(check_set_list);
}

/* Another list, or the first one, comes at any moment of a change of the mode: afterwards they
 * agree, or the list came last and is as it was given. */
static void list_meets_mode(uint32_t turns, uint32_t home, bool has_list)
{
	struct lpi_t t;
	struct lpi_ns_hand hand = {.op = {.opcode = LP_NS_SET}};
	uint8_t list[LPI_T_LIST_BYTES];
	lpi_t_begin(&t, 2);
	struct lp_ino ino = lpi_t_file(&t, root, "file");
	lpi_t_list_fill(list, 1);
	if (has_list)
		lpi_t_list_set(&t, ino, list);
	hand.op.set.ino = ino;
	hand.op.set.mask = LP_ATTR_MODE;
	hand.op.set.attrs.mode = 0640;
	lpi_ns_rig_submit(t.rig, turns % 2, &hand);
	for (uint32_t i = 0; i < turns / 2; i++)
		(void)lpi_ns_rig_turn(t.rig);
	lpi_t_list_fill(list, 7);
	list[LPI_T_LIST_NAMED] = 5;
	t.home = home;
	lpi_t_list_set(&t, ino, list);
	uint64_t list_nr = t.op->store.op.txn.version_nr;
	lp_test_ok(lpi_ns_rig_wait(t.rig, &hand));
	const struct lp_attrs attrs = lpi_t_attrs(&t, ino);
	bool is_last = attrs.version_nr == list_nr;
	assert_int_equal(attrs.mode, 0640);
	assert_true(lpi_t_list_get(&t, ino, list));
	assert_int_equal(lp_acl_mode(list, sizeof(list)), is_last ? 0670 : 0640);
	assert_int_equal(list[LPI_T_LIST_NAMED], 5);
	lpi_t_end(&t);
}

static void test_list_meets_mode(void **state)
{
	(void)state;
	for (uint32_t i = 0; i < 96; i++) {
		list_meets_mode(i / 2, i % 2, true);
		list_meets_mode(i / 2, i % 2, false);
	}
}

static void mark_made_by_put(struct lpi_t *t, struct lp_ino dir)
{
	struct lp_attrs attrs = lpi_t_attrs(t, dir);
	attrs.flags |= LP_INODE_FLAG_MADE_BY_PUT;
	const struct lp_change change = {.type = LP_CHANGE_SET,
					 .ino = dir,
					 .inode = {.attrs = &attrs, .mask = LP_ATTR_FLAGS}};
	struct lp_store_op op = {.opcode = LP_STORE_TXN,
				 .txn = {.changes = &change, .change_cnt = 1}};
	lpi_t_store(t, lp_ino_shard(dir), &op);
}

/* Rule N2: who sets anything of a directory keeps it. */
static void check_set_owns(struct lpi_t *t, bool is_spread)
{
	struct lp_ino dir = make_dir(t, is_spread);
	uint32_t spread = is_spread ? LP_INODE_FLAG_SPREAD : 0;
	struct lp_attrs attrs = {.mode = 0711, .uid = 3, .gid = 4};
	static const uint32_t masks[] = {LP_ATTR_MODE, LP_ATTR_UID, LP_ATTR_GID, LP_ATTR_MTIME};
	for (size_t i = 0; i < LP_ARRAY_SIZE(masks); i++) {
		mark_made_by_put(t, dir);
		lp_test_ok(set(t, dir, &attrs, masks[i]));
		assert_int_equal(lpi_t_attrs(t, dir).flags, spread);
	}
	assert_int_equal(lpi_t_attrs(t, dir).mode, 0711);
	assert_int_equal(lpi_t_attrs(t, dir).uid, 3);
	assert_int_equal(lpi_t_attrs(t, dir).gid, 4);
	/* Flags that are the namespace's own cannot be set or taken. */
	attrs.flags = LP_INODE_FLAG_IMMUTABLE | LP_INODE_FLAG_SEALED | LP_INODE_FLAG_MADE_BY_PUT;
	lp_test_ok(set(t, dir, &attrs, LP_ATTR_FLAGS));
	assert_int_equal(lpi_t_attrs(t, dir).flags, spread | LP_INODE_FLAG_IMMUTABLE);
	assert_int_equal(set(t, dir, &attrs, LP_ATTR_NLINK), -EINVAL);
	assert_int_equal(set(t, dir, &attrs, LP_ATTR_PARENT), -EINVAL);
	attrs.mode = 010000;
	assert_int_equal(set(t, dir, &attrs, LP_ATTR_MODE), -EINVAL);
	assert_int_equal(set(t, (struct lp_ino){4711}, &attrs, LP_ATTR_UID), -ESTALE);
}

static void test_set_owns(void **state)
{
	(void)state;
	on_all(check_set_owns);
}

static void check_set_file(struct lpi_t *t, bool is_spread)
{
	struct lp_ino ino = lpi_t_file(t, make_dir(t, is_spread), "file");
	const struct lp_attrs attrs = {.mode = 0600, .mtime_ns = 9, .flags = LP_INODE_FLAG_APPEND};
	lpi_t_later(t);
	lp_test_ok(set(t, ino, &attrs, LP_ATTR_MODE | LP_ATTR_MTIME));
	struct lp_attrs got = lpi_t_attrs(t, ino);
	assert_memory_equal(&got, &t->op->stat.found.attrs, sizeof(got));
	assert_int_equal(got.mode, 0600);
	assert_int_equal(got.mtime_ns, 9);
	assert_int_equal(got.flags, 0);
	assert_int_equal(got.ctime_ns, lp_clock_wall_ns(&t->rig->clock.clock));
	lp_test_ok(set(t, ino, &attrs, LP_ATTR_FLAGS));
	assert_int_equal(lpi_t_attrs(t, ino).flags, LP_INODE_FLAG_APPEND);
}

static void test_set_file(void **state)
{
	(void)state;
	on_all(check_set_file);
}

/* --- Readdir ---------------------------------------------------------------------------------- */

#define NAMES 400u

struct seen {
	uint8_t times[NAMES];
	uint64_t last;
	uint32_t calls;
};

static void name_of(uint32_t nr, char *ret)
{
	/* Of many lengths, and in no order of insertion. */
	static const char fill[] = "abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz";
	(void)snprintf(ret, 80, "%03u%.*s", nr * 7 % NAMES, (int)(nr % 50), fill);
}

static uint32_t nr_of(struct lp_bytes name)
{
	const char *at = name.data;
	uint32_t found = (uint32_t)(at[0] - '0') * 100 + (uint32_t)(at[1] - '0') * 10 +
			 (uint32_t)(at[2] - '0');
	for (uint32_t nr = 0; nr < NAMES; nr++) {
		if (nr * 7 % NAMES == found)
			return nr;
	}
	return NAMES;
}

/* One call; false at the end. */
static bool read_some(struct lpi_t *t, struct lp_ino dir, struct seen *seen, void *buf,
		      uint32_t len)
{
	lpi_t_op(t, LP_NS_READDIR);
	t->op->readdir.dir = dir;
	t->op->readdir.cookie = seen->last;
	t->op->readdir.buf = buf;
	t->op->readdir.buf_len = len;
	t->op->readdir.with_attrs = seen->calls % 3 == 1;
	lp_test_ok(lpi_t_do(t));
	uint32_t pos = 0;
	uint32_t cnt = 0;
	struct lp_ns_item item;
	while (lp_ns_next(t->op, &pos, &item)) {
		assert_true(item.cookie > seen->last);
		seen->last = item.cookie;
		seen->times[nr_of(item.name)]++;
		cnt++;
		assert_int_equal(item.has_attrs, seen->calls % 3 == 1);
		if (item.has_attrs)
			assert_int_equal(item.attrs.type, item.type);
	}
	assert_int_equal(cnt, t->op->readdir.items);
	assert_true(cnt > 0 || !t->op->readdir.more);
	seen->calls++;
	return t->op->readdir.more;
}

static void change_one(struct lpi_t *t, struct lp_ino dir, uint32_t nr, bool make)
{
	char name[80];
	name_of(nr, name);
	if (make)
		(void)lpi_t_file(t, dir, name);
	else
		lp_test_ok(lpi_t_remove(t, dir, name, false));
}

/* Rule N4: even numbers are there throughout, and seen once each; odd ones come and go. */
static void check_readdir(struct lpi_t *t, bool is_spread)
{
	static const uint32_t lens[] = {LP_NS_READDIR_MIN, 4096, 10000, 262144};
	static uint8_t buf[262144];
	struct lp_ino dir = make_dir(t, is_spread);
	for (uint32_t nr = 0; nr < NAMES; nr += 2)
		change_one(t, dir, nr, true);
	for (size_t i = 0; i < LP_ARRAY_SIZE(lens); i++) {
		struct seen seen = {.last = 0};
		bool is_there[NAMES] = {false};
		for (uint32_t round = 0; read_some(t, dir, &seen, buf, lens[i]); round++) {
			for (uint32_t k = 0; k < 5; k++) {
				uint32_t nr = (round * 5 + k) * 2 * 3 % NAMES + 1;
				change_one(t, dir, nr, !is_there[nr]);
				is_there[nr] = !is_there[nr];
			}
		}
		for (uint32_t nr = 0; nr < NAMES; nr += 2)
			assert_int_equal(seen.times[nr], 1);
		assert_true(lens[i] < 262144 ? seen.calls > 2 : seen.calls == 1);
		for (uint32_t nr = 1; nr < NAMES; nr += 2) {
			if (is_there[nr])
				change_one(t, dir, nr, false);
		}
	}
}

static void test_readdir(void **state)
{
	(void)state;
	on_all(check_readdir);
}

/* Directories have the attributes that their stat says; what is on another shard has them, too. */
static void check_readdir_attrs(struct lpi_t *t, bool is_spread)
{
	static uint8_t buf[16384];
	struct lp_ino dir = make_dir(t, is_spread);
	for (uint32_t i = 0; i < 6; i++) {
		char name[] = "d0";
		name[1] = (char)('0' + i);
		struct lp_ino below =
			i % 2 == 0 ? lpi_t_dir(t, dir, name) : lpi_t_spread(t, dir, name);
		(void)lpi_t_file(t, below, "inside");
		name[0] = 'f';
		lp_test_ok(lpi_t_link(t, lpi_t_file(t, root, "tmp"), dir, name));
		lp_test_ok(lpi_t_remove(t, root, "tmp", false));
	}
	lpi_t_op(t, LP_NS_READDIR);
	t->op->readdir.dir = dir;
	t->op->readdir.buf = buf;
	t->op->readdir.buf_len = sizeof(buf);
	t->op->readdir.with_attrs = true;
	lp_test_ok(lpi_t_do(t));
	struct lp_ns_op op = *t->op;
	assert_int_equal(op.readdir.items, 12);
	assert_false(op.readdir.more);
	struct lp_ns_item item;
	for (uint32_t pos = 0; lp_ns_next(&op, &pos, &item);) {
		assert_true(item.has_attrs);
		struct lp_attrs attrs = lpi_t_attrs(t, item.ino);
		assert_memory_equal(&attrs, &item.attrs, sizeof(attrs));
		if (item.type == LP_INODE_TYPE_DIR)
			assert_int_equal(item.attrs.size_bytes, 6);
	}
}

static void test_readdir_attrs(void **state)
{
	(void)state;
	on_all(check_readdir_attrs);
}

static void check_readdir_faults(struct lpi_t *t, bool is_spread)
{
	uint8_t buf[LP_NS_READDIR_MIN];
	struct lp_ino dir = make_dir(t, is_spread);
	const struct {
		struct lp_ino dir;
		uint64_t cookie;
		uint32_t buf_len;
		int result;
	} tries[] = {{dir, 0, LP_NS_READDIR_MIN, 0},
		     {dir, 0, LP_NS_READDIR_MIN - 1, -EINVAL},
		     {dir, UINT64_MAX, LP_NS_READDIR_MIN, -EINVAL},
		     {{9999}, 0, LP_NS_READDIR_MIN, -ESTALE},
		     {lpi_t_file(t, dir, "file"), 0, LP_NS_READDIR_MIN, -ENOTDIR}};
	for (size_t i = 0; i < LP_ARRAY_SIZE(tries); i++) {
		lpi_t_op(t, LP_NS_READDIR);
		t->op->readdir.dir = tries[i].dir;
		t->op->readdir.cookie = tries[i].cookie;
		t->op->readdir.buf = buf;
		t->op->readdir.buf_len = tries[i].buf_len;
		assert_int_equal(lpi_t_do(t), tries[i].result);
	}
}

static void test_readdir_faults(void **state)
{
	(void)state;
	on_all(check_readdir_faults);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_stat),           cmocka_unit_test(test_set_times),
		cmocka_unit_test(test_set_list),       cmocka_unit_test(test_list_meets_mode),
		cmocka_unit_test(test_set_owns),       cmocka_unit_test(test_set_file),
		cmocka_unit_test(test_readdir),        cmocka_unit_test(test_readdir_attrs),
		cmocka_unit_test(test_readdir_faults), cmocka_unit_test(test_made_late),
		cmocka_unit_test(test_clock_set_back), cmocka_unit_test(test_set_future),
	};
	return lp_test_main(tests, "namespace/ops/dirs");
}
