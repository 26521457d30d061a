/* SPDX-License-Identifier: Apache-2.0 */
/* Goal (NS7): what is immutable does not change, and what is append-only only grows, whichever
 * operation is tried, on whichever shard, also at the moment at which the flag is set; and without
 * the flag all of it works. Method: one to three shards in simulated time, each operation submitted
 * on the next one; for what happens at the same time each number of turns between the two is tried.
 */
#include "namespace/ops/paths_rig_test.h"

static const struct lp_ino root = {1};

#define IMMUTABLE ((uint32_t)LP_INODE_FLAG_IMMUTABLE)
#define APPEND    ((uint32_t)LP_INODE_FLAG_APPEND)

static void fill_set(struct lpi_t *t, struct lp_ino ino, struct lp_attrs attrs, uint32_t mask)
{
	lpi_t_op(t, LP_NS_SET);
	t->op->set.ino = ino;
	t->op->set.attrs = attrs;
	t->op->set.mask = mask;
}

static int set(struct lpi_t *t, struct lp_ino ino, struct lp_attrs attrs, uint32_t mask)
{
	fill_set(t, ino, attrs, mask);
	return lpi_t_do(t);
}

static void set_flags(struct lpi_t *t, struct lp_ino ino, uint32_t flags)
{
	lp_test_ok(set(t, ino, (struct lp_attrs){.flags = flags}, LP_ATTR_FLAGS));
	assert_int_equal(t->op->set.found.attrs.flags & LP_INODE_FLAGS_KEEPING, flags);
}

static int touch(struct lpi_t *t, struct lp_ino ino)
{
	int64_t now_ns = lp_clock_wall_ns(&t->rig->clock.clock);
	fill_set(t, ino, (struct lp_attrs){.atime_ns = now_ns, .mtime_ns = now_ns},
		 LP_ATTR_ATIME | LP_ATTR_MTIME);
	t->op->set.passes = APPEND;
	return lpi_t_do(t);
}

/* --- Changes of one inode --------------------------------------------------------------------- */

static int change(struct lpi_t *t, struct lp_change what, struct lp_ino ino)
{
	what.ino = ino;
	lpi_t_op(t, LP_NS_STORE);
	t->op->store.ino = ino;
	t->op->store.op = (struct lp_store_op){.opcode = LP_STORE_TXN,
					       .txn = {.changes = &what, .change_cnt = 1}};
	int r = lpi_t_do(t);
	t->op->store.op.txn.changes = NULL; /* it ends here */
	return r;
}

static int data(struct lpi_t *t, struct lp_ino ino, enum lp_change_type type, uint64_t offset,
		uint64_t length)
{
	return change(
		t, (struct lp_change){.type = type, .data = {.offset = offset, .length = length}},
		ino);
}

static int write_to(struct lpi_t *t, struct lp_ino ino, uint64_t offset)
{
	struct lpi_tp_data payload;
	t->home = (t->home + 1) % t->rig->shard_cnt;
	lpi_tp_data_fill(&payload, t->rig->bufs[t->home], 10, 'w');
	const struct lp_change write = {
		.type = LP_CHANGE_WRITE,
		.ino = ino,
		.data = {.offset = offset, .length = 10, .payload = payload.payload}};
	lpi_t_op(t, LP_NS_STORE);
	t->op->store.ino = ino;
	t->op->store.op = (struct lp_store_op){.opcode = LP_STORE_TXN,
					       .txn = {.changes = &write, .change_cnt = 1}};
	int r = lpi_ns_rig_do(t->rig, t->home, &t->hand);
	t->op->store.op.txn.changes = NULL;
	lpi_tp_data_drop(&payload);
	return r;
}

static int named(struct lpi_t *t, struct lp_ino ino, enum lp_change_type type)
{
	struct lp_change what = {.type = type, .named = {.name = lpi_t_bytes("user.n")}};
	if (type == LP_CHANGE_XATTR_SET || type == LP_CHANGE_OMAP_SET)
		what.named.value = lpi_t_bytes("value");
	return change(t, what, ino);
}

static int clone_to(struct lpi_t *t, struct lp_ino ino, struct lp_ino src, uint64_t offset)
{
	return change(t,
		      (struct lp_change){.type = LP_CHANGE_CLONE,
					 .clone = {.src = src, .offset = offset, .length = 4096}},
		      ino);
}

/* As the mount does for who has read. */
static int note_read(struct lpi_t *t, struct lp_ino ino)
{
	static const struct lp_attrs read = {.atime_ns = 77};
	return change(t,
		      (struct lp_change){.type = LP_CHANGE_SET,
					 .inode = {.attrs = &read, .mask = LP_ATTR_ATIME}},
		      ino);
}

/* The result of each that neither appends nor is a time of now. */
static void check_other_changes(struct lpi_t *t, struct lp_ino ino, int want)
{
	static const uint32_t masks[] = {LP_ATTR_MODE,  LP_ATTR_UID,   LP_ATTR_GID,
					 LP_ATTR_ATIME, LP_ATTR_MTIME, LP_ATTR_BTIME};
	for (size_t i = 0; i < LP_ARRAY_SIZE(masks); i++)
		assert_int_equal(set(t, ino, (struct lp_attrs){.mode = 0600}, masks[i]), want);
	assert_int_equal(named(t, ino, LP_CHANGE_XATTR_SET), want);
	assert_int_equal(named(t, ino, LP_CHANGE_OMAP_SET), want);
	assert_int_equal(named(t, ino, LP_CHANGE_OMAP_REMOVE), want);
	assert_int_equal(named(t, ino, LP_CHANGE_XATTR_REMOVE), want);
}

static void check_other_data(struct lpi_t *t, struct lp_ino ino, struct lp_ino src, int want)
{
	assert_int_equal(write_to(t, ino, 0), want);
	assert_int_equal(write_to(t, ino, 8000), want);
	assert_int_equal(clone_to(t, ino, src, 0), want);
	assert_int_equal(data(t, ino, LP_CHANGE_PUNCH, 0, 10), want);
	assert_int_equal(data(t, ino, LP_CHANGE_TRUNCATE, 8191, 0), want);
}

static void check_appending(struct lpi_t *t, struct lp_ino ino, struct lp_ino src, int want)
{
	assert_int_equal(data(t, ino, LP_CHANGE_PREALLOC, 0, 8192), want);
	assert_int_equal(write_to(t, ino, LP_STORE_APPEND), want);
	assert_int_equal(write_to(t, ino, 10000), want);
	assert_int_equal(data(t, ino, LP_CHANGE_TRUNCATE, 12288, 0), want);
	assert_int_equal(clone_to(t, ino, src, 12288), want);
	assert_int_equal(touch(t, ino), want);
}

/* Two files of one shard, for clones are of such. */
static void two_files(struct lpi_t *t, struct lp_ino *ret_file, struct lp_ino *ret_src)
{
	struct lp_ino dir = lpi_t_dir(t, root, "dir");
	*ret_file = lpi_t_file(t, dir, "file");
	*ret_src = lpi_t_file(t, dir, "src");
	lpi_tp_write(t, *ret_file, 0, 8192, 1);
	lpi_tp_write(t, *ret_src, 0, 4096, 2);
}

static void check_changes(struct lpi_t *t)
{
	struct lp_ino file;
	struct lp_ino src;
	two_files(t, &file, &src);
	set_flags(t, file, IMMUTABLE);
	const struct lp_attrs before = lpi_t_attrs(t, file);
	check_other_data(t, file, src, -EPERM);
	check_appending(t, file, src, -EPERM);
	check_other_changes(t, file, -EPERM);
	const struct lp_attrs after = lpi_t_attrs(t, file);
	assert_memory_equal(&before, &after, sizeof(before));
	lp_test_ok(note_read(t, file));
	/* With other things flags are refused as these are. */
	struct lp_attrs attrs = {.mode = 0600, .flags = APPEND};
	assert_int_equal(set(t, file, attrs, LP_ATTR_FLAGS | LP_ATTR_MODE), -EPERM);
	/* What it is the source of is no change of it. */
	set_flags(t, src, IMMUTABLE | APPEND);
	set_flags(t, file, 0);
	lp_test_ok(clone_to(t, file, src, 0));
	set_flags(t, file, APPEND);
	check_other_data(t, file, src, -EPERM);
	check_other_changes(t, file, -EPERM);
	check_appending(t, file, src, 0);
	lp_test_ok(note_read(t, file));
	/* Both: no more than with one. */
	set_flags(t, file, APPEND | IMMUTABLE);
	assert_int_equal(write_to(t, file, LP_STORE_APPEND), -EPERM);
	set_flags(t, file, 0);
	check_other_data(t, file, src, 0);
	check_appending(t, file, src, 0);
	check_other_changes(t, file, 0);
}

static void test_changes(void **state)
{
	(void)state;
	lpi_t_on_all(check_changes);
}

/* --- Names of what has a flag ----------------------------------------------------------------- */

static int two_paths(struct lpi_t *t, enum lp_ns_opcode opcode, const char *from, const char *to)
{
	lpi_t_op(t, opcode);
	t->op->copy.path = lpi_t_bytes(from);
	t->op->copy.to_path = lpi_t_bytes(to);
	return lpi_t_do(t);
}

/* dir/f has the flag. */
static void check_names_of(struct lpi_t *t, struct lp_ino dir, uint32_t flag)
{
	struct lp_ino ino = lpi_tp_find(t, "dir/f");
	struct lp_ino other = lpi_t_dir(t, root, "other");
	(void)lpi_t_file(t, other, "x");
	set_flags(t, ino, flag);
	assert_int_equal(lpi_t_remove(t, dir, "f", false), -EPERM);
	assert_int_equal(lpi_tp_delete(t, "dir/f"), -EPERM);
	assert_int_equal(lpi_t_link(t, ino, other, "l"), -EPERM);
	assert_int_equal(lpi_t_rename(t, dir, "f", dir, "g", 0), -EPERM);
	assert_int_equal(lpi_t_rename(t, dir, "f", other, "x", 0), -EPERM);
	assert_int_equal(lpi_t_rename(t, other, "x", dir, "f", 0), -EPERM);
	assert_int_equal(lpi_t_rename(t, other, "x", dir, "f", LP_NS_RENAME_EXCHANGE), -EPERM);
	assert_int_equal(lpi_t_rename(t, dir, "f", other, "x", LP_NS_RENAME_EXCHANGE), -EPERM);
	assert_int_equal(two_paths(t, LP_NS_MOVE, "dir/f", "other/y"), -EPERM);
	assert_int_equal(two_paths(t, LP_NS_MOVE, "other/x", "dir/f"), -EPERM);
	assert_int_equal(two_paths(t, LP_NS_COPY, "other/x", "dir/f"), -EPERM);
	assert_int_equal(lpi_tp_put(t, "dir/f", 4000), -EPERM);
	assert_int_equal(lpi_tp_put(t, "dir/f", 0), -EPERM);
	assert_int_equal(lpi_tp_find(t, "dir/f").nr, ino.nr);
	assert_int_equal(lpi_t_nlink(t, ino), 1);
	/* A copy is nobody's but its own. */
	lp_test_ok(two_paths(t, LP_NS_COPY, "dir/f", "other/copy"));
	assert_int_equal(lpi_t_attrs(t, lpi_tp_find(t, "other/copy")).flags, 0);
	set_flags(t, ino, 0);
	lp_test_ok(lpi_tp_put(t, "dir/f", 4000));
	lp_test_ok(lpi_t_rename(t, dir, "f", other, "x", 0));
	lp_test_ok(lpi_tp_delete(t, "other/x"));
	lp_test_ok(lpi_tp_delete(t, "other/copy"));
	lp_test_ok(lpi_t_remove(t, root, "other", true));
	lp_test_ok(lpi_tp_put(t, "dir/f", 10));
}

static void on_both_kinds(struct lpi_t *t,
			  void (*check)(struct lpi_t *t, struct lp_ino dir, uint32_t flag))
{
	for (uint32_t i = 0; i < 4; i++) {
		struct lp_ino dir =
			i % 2 == 0 ? lpi_t_dir(t, root, "dir") : lpi_t_spread(t, root, "dir");
		(void)lpi_t_file(t, dir, "f");
		check(t, dir, i < 2 ? IMMUTABLE : APPEND);
		lp_test_ok(lpi_t_remove(t, dir, "f", false));
		lp_test_ok(lpi_t_remove(t, root, "dir", true));
	}
}

static void check_names(struct lpi_t *t)
{
	on_both_kinds(t, check_names_of);
}

static void test_names(void **state)
{
	(void)state;
	lpi_t_on_all(check_names);
}

/* --- Directories ------------------------------------------------------------------------------ */

/* What adds a name, and nothing else. Each leaves all as it was. */
static void check_adding(struct lpi_t *t, struct lp_ino dir, struct lp_ino other, int want)
{
	struct lp_ino x = lpi_tp_find(t, "other/x");
	for (uint32_t i = 0; i < 6; i++) {
		char name[] = "d0";
		char path[] = "dir/p0/q";
		name[1] = (char)((want == 0 ? '0' : 'A') + i);
		path[5] = name[1];
		assert_int_equal(lpi_t_make(t, dir, name, LP_INODE_TYPE_DIR), want);
		name[0] = 'r';
		assert_int_equal(lpi_t_make(t, dir, name, LP_INODE_TYPE_FILE), want);
		name[0] = 's';
		assert_int_equal(lpi_t_make(t, dir, name, LP_INODE_TYPE_SYMLINK), want);
		name[0] = 'l';
		assert_int_equal(lpi_t_link(t, x, dir, name), want);
		assert_int_equal(lpi_tp_put(t, path, 4000), want);
		path[6] = '\0';
		path[4] = 'o';
		assert_int_equal(lpi_tp_put(t, path, 4000), want);
	}
	assert_int_equal(lpi_t_rename(t, other, "moving", dir, "moved", 0), want);
	assert_int_equal(lpi_t_rename(t, other, "moving dir", dir, "moved dir", 0), want);
	assert_int_equal(two_paths(t, LP_NS_COPY, "other/x", "dir/copied"), want);
}

/* What takes a name away, or lets it lead elsewhere. */
static void check_taking(struct lpi_t *t, struct lp_ino dir, struct lp_ino other)
{
	assert_int_equal(lpi_t_remove(t, dir, "f", false), -EPERM);
	assert_int_equal(lpi_t_remove(t, dir, "sub", true), -EPERM);
	assert_int_equal(lpi_tp_delete(t, "dir/f"), -EPERM);
	assert_int_equal(lpi_tp_delete_as(t, "dir/sub", true, LP_NS_IF_ANY, 0), -EPERM);
	assert_int_equal(lpi_tp_put(t, "dir/f", 4000), -EPERM);
	assert_int_equal(lpi_t_rename(t, dir, "f", dir, "f2", 0), -EPERM);
	assert_int_equal(lpi_t_rename(t, dir, "f", other, "f", 0), -EPERM);
	assert_int_equal(lpi_t_rename(t, dir, "f", other, "x", 0), -EPERM);
	assert_int_equal(lpi_t_rename(t, dir, "sub", other, "sub", 0), -EPERM);
	assert_int_equal(lpi_t_rename(t, other, "x", dir, "f", 0), -EPERM);
	assert_int_equal(lpi_t_rename(t, other, "empty", dir, "sub", 0), -EPERM);
	assert_int_equal(lpi_t_rename(t, other, "x", dir, "f", LP_NS_RENAME_EXCHANGE), -EPERM);
	assert_int_equal(lpi_t_rename(t, dir, "f", other, "x", LP_NS_RENAME_EXCHANGE), -EPERM);
	assert_int_equal(two_paths(t, LP_NS_MOVE, "dir/f", "other/y"), -EPERM);
	assert_int_equal(two_paths(t, LP_NS_MOVE, "other/x", "dir/f"), -EPERM);
	assert_int_equal(two_paths(t, LP_NS_COPY, "other/x", "dir/f"), -EPERM);
	/* The directory itself. */
	assert_int_equal(lpi_t_remove(t, root, "dir", true), -EPERM);
	assert_int_equal(lpi_t_rename(t, root, "dir", root, "dir2", 0), -EPERM);
	assert_int_equal(lpi_t_rename(t, root, "dir", other, "dir", 0), -EPERM);
	assert_int_equal(lpi_t_rename(t, other, "empty", root, "dir", 0), -EPERM);
	assert_int_equal(named(t, dir, LP_CHANGE_XATTR_SET), -EPERM);
	assert_int_equal(set(t, dir, (struct lp_attrs){.mode = 0700}, LP_ATTR_MODE), -EPERM);
}

static void empty(struct lpi_t *t, struct lp_ino dir)
{
	uint8_t page[16384]; /* not shared with the calls below */
	uint32_t pos = 0;
	struct lp_ns_item item;
	struct lpi_ns_hand list = {
		.op = {.opcode = LP_NS_READDIR,
		       .readdir = {.dir = dir, .buf = page, .buf_len = sizeof(page)}}};
	lp_test_ok(lpi_ns_rig_do(t->rig, 0, &list));
	assert_false(list.op.readdir.more);
	while (lp_ns_next(&list.op, &pos, &item)) {
		char name[256] = "";
		memcpy(name, item.name.data, item.name.len);
		if (item.type == LP_INODE_TYPE_DIR)
			empty(t, item.ino);
		/* It may have gone with what was in it, if a put had made it. */
		int r = lpi_t_remove(t, dir, name, item.type == LP_INODE_TYPE_DIR);
		assert_true(r == 0 || r == -ENOENT);
	}
}

static void check_dir(struct lpi_t *t, struct lp_ino dir, uint32_t flag)
{
	struct lp_ino other = lpi_t_dir(t, root, "other");
	(void)lpi_t_file(t, other, "x");
	(void)lpi_t_file(t, other, "moving");
	(void)lpi_t_dir(t, other, "moving dir");
	(void)lpi_t_dir(t, other, "empty");
	(void)lpi_t_dir(t, dir, "sub");
	/* Each shard remembers that the directory is there. */
	check_adding(t, dir, other, 0);
	for (uint32_t i = 0; i < 12; i++) {
		char name[] = "z0";
		name[1] = (char)('0' + i);
		(void)lpi_t_file(t, dir, name);
		lp_test_ok(lpi_t_remove(t, dir, name, false));
	}
	lp_test_ok(lpi_t_rename(t, dir, "moved", other, "moving", 0));
	lp_test_ok(lpi_t_rename(t, dir, "moved dir", other, "moving dir", 0));
	struct lp_ino file = lpi_t_find(t, dir, "f");
	struct lp_ino sub = lpi_t_find(t, dir, "sub");
	set_flags(t, dir, flag);
	check_taking(t, dir, other);
	if (flag == IMMUTABLE)
		check_adding(t, dir, other, -EPERM);
	assert_int_equal(lpi_t_find(t, dir, "f").nr, file.nr);
	assert_int_equal(lpi_t_find(t, dir, "sub").nr, sub.nr);
	/* What is in it is not so itself. */
	lp_test_ok(write_to(t, file, 0));
	(void)lpi_t_file(t, sub, "below");
	lp_test_ok(lpi_t_remove(t, sub, "below", false));
	set_flags(t, dir, 0);
	empty(t, dir);
	lp_test_ok(lpi_t_make(t, dir, "f", LP_INODE_TYPE_FILE));
	(void)lpi_t_dir(t, dir, "sub");
	if (flag == APPEND) {
		set_flags(t, dir, flag);
		check_adding(t, dir, other, 0);
		check_taking(t, dir, other);
		set_flags(t, dir, 0);
	}
	empty(t, dir);
	(void)lpi_t_file(t, dir, "f");
	empty(t, other);
	lp_test_ok(lpi_t_remove(t, root, "other", true));
}

static void check_dirs(struct lpi_t *t)
{
	on_both_kinds(t, check_dir);
}

static void test_dirs(void **state)
{
	(void)state;
	lpi_t_on_all(check_dirs);
}

/* --- Who may ---------------------------------------------------------------------------------- */

static void check_rights(struct lpi_t *t)
{
	struct lp_ino ino = lpi_t_file(t, root, "f");
	static const uint32_t flags[] = {IMMUTABLE, APPEND, 0};
	for (size_t i = 0; i < LP_ARRAY_SIZE(flags); i++) {
		for (size_t k = 0; k < LP_ARRAY_SIZE(flags); k++) {
			set_flags(t, ino, flags[i]);
			fill_set(t, ino, (struct lp_attrs){.flags = flags[k]}, LP_ATTR_FLAGS);
			/* He owns it. */
			t->op->rights = (struct lp_rights){.is_limited = true, .uid = 7, .gid = 8};
			assert_int_equal(lpi_t_do(t), i == k ? 0 : -EPERM);
			assert_int_equal(lpi_t_attrs(t, ino).flags, flags[i]);
		}
	}
}

static void test_rights(void **state)
{
	(void)state;
	lpi_t_on_all(check_rights);
}

/* --- An inode without a name ------------------------------------------------------------------ */

/* One that is open, and was removed, goes when it is closed, whatever it has. */
static void check_orphan(struct lpi_t *t)
{
	struct lp_ino ino = lpi_t_file(t, root, "f");
	lp_test_ok(lpi_t_open(t, ino));
	lp_test_ok(lpi_t_remove(t, root, "f", false));
	set_flags(t, ino, IMMUTABLE);
	assert_int_equal(write_to(t, ino, 0), -EPERM);
	lp_test_ok(lpi_t_close(t, ino));
	lpi_t_idle(t);
	assert_int_equal(lpi_t_stat(t, ino), -ESTALE);
}

static void test_orphan(void **state)
{
	(void)state;
	lpi_t_on_all(check_orphan);
}

/* --- At the same time ------------------------------------------------------------------------- */

/* A directory: when the flag is answered its names are those that there will be. */
static void race_names(struct lpi_t *t, uint32_t turns, bool is_spread)
{
	struct lp_ino dir = is_spread ? lpi_t_spread(t, root, "d") : lpi_t_dir(t, root, "d");
	struct lp_ino other = lpi_t_dir(t, root, "o");
	struct lpi_ns_hand hands[6];
	static const char *const names[] = {"a", "b", "c", "d", "e", "f"};
	char go[][4] = {"g0", "g1", "g2"};
	for (uint32_t i = 0; i < 3; i++)
		(void)lpi_t_file(t, dir, go[i]);
	(void)lpi_t_dir(t, other, "m");
	for (uint32_t i = 0; i < 6; i++) {
		hands[i] = (struct lpi_ns_hand){.op = {.opcode = LP_NS_MAKE}};
		hands[i].op.make.dir = dir;
		hands[i].op.make.name = lpi_t_bytes(names[i]);
		hands[i].op.make.type = i % 2 == 0 ? LP_INODE_TYPE_FILE : LP_INODE_TYPE_DIR;
		if (i == 3 || i == 5)
			hands[i].op = (struct lp_ns_op){
				.opcode = LP_NS_REMOVE,
				.remove = {.dir = dir, .name = lpi_t_bytes(go[i / 2])}};
		if (i == 4)
			hands[i].op = (struct lp_ns_op){.opcode = LP_NS_RENAME,
							.rename = {.dir = other,
								   .name = lpi_t_bytes("m"),
								   .to_dir = dir,
								   .to_name = lpi_t_bytes("m")}};
		lpi_ns_rig_submit(t->rig, i % t->rig->shard_cnt, &hands[i]);
	}
	for (uint32_t i = 0; i < turns; i++)
		(void)lpi_ns_rig_turn(t->rig);
	set_flags(t, dir, IMMUTABLE);
	lp_test_ok(lpi_t_stat(t, dir));
	uint64_t cnt = t->op->stat.found.entries_cnt;
	uint64_t expected = 3;
	for (uint32_t i = 0; i < 6; i++) {
		int r = lpi_ns_rig_wait(t->rig, &hands[i]);
		assert_true(r == 0 || r == -EPERM);
		if (r == 0 && hands[i].op.opcode == LP_NS_REMOVE)
			expected--;
		else if (r == 0)
			expected++;
	}
	lpi_t_idle(t);
	lp_test_ok(lpi_t_stat(t, dir));
	assert_int_equal(t->op->stat.found.entries_cnt, cnt);
	assert_int_equal(cnt, expected);
	set_flags(t, dir, 0);
	empty(t, dir);
	empty(t, other);
	lp_test_ok(lpi_t_remove(t, root, "d", true));
	lp_test_ok(lpi_t_remove(t, root, "o", true));
}

static void check_races(struct lpi_t *t)
{
	for (uint32_t turns = 0; turns < 40; turns++) {
		race_names(t, turns, false);
		race_names(t, turns, true);
	}
}

static void test_races(void **state)
{
	(void)state;
	lpi_t_on_all(check_races);
}

/* A file: its version is the last one when the flag is answered, and it has its name. */
static void race_file(struct lpi_t *t, uint32_t turns, uint32_t what)
{
	struct lp_ino dir = lpi_t_spread(t, root, "d");
	struct lp_ino ino = lpi_t_file(t, dir, "f");
	struct lpi_ns_hand hand = {.op = {.opcode = LP_NS_REMOVE}};
	hand.op.remove.dir = dir;
	hand.op.remove.name = lpi_t_bytes("f");
	const struct lp_change cut = {
		.type = LP_CHANGE_TRUNCATE, .ino = ino, .data = {.offset = 10}};
	if (what == 1)
		hand.op = (struct lp_ns_op){
			.opcode = LP_NS_LINK,
			.link = {.ino = ino, .dir = root, .name = lpi_t_bytes("l")}};
	if (what == 2)
		hand.op = (struct lp_ns_op){.opcode = LP_NS_RENAME,
					    .rename = {.dir = dir,
						       .name = lpi_t_bytes("f"),
						       .to_dir = root,
						       .to_name = lpi_t_bytes("r")}};
	if (what == 3)
		hand.op = (struct lp_ns_op){.opcode = LP_NS_SET,
					    .set = {.ino = ino, .mask = LP_ATTR_MODE}};
	if (what == 4) {
		hand.op = (struct lp_ns_op){.opcode = LP_NS_STORE};
		hand.op.store.ino = ino;
		hand.op.store.op = (struct lp_store_op){.opcode = LP_STORE_TXN,
							.txn = {.changes = &cut, .change_cnt = 1}};
	}
	if (what == 5)
		hand.op =
			(struct lp_ns_op){.opcode = LP_NS_PUT, .put = {.path = lpi_t_bytes("d/f")}};
	lpi_ns_rig_submit(t->rig, turns % t->rig->shard_cnt, &hand);
	for (uint32_t i = 0; i < turns; i++)
		(void)lpi_ns_rig_turn(t->rig);
	int r = set(t, ino, (struct lp_attrs){.flags = IMMUTABLE}, LP_ATTR_FLAGS);
	/* It was removed before. */
	if (r == -ESTALE) {
		lp_test_ok(lpi_ns_rig_wait(t->rig, &hand));
		assert_true(what == 0 || what == 5);
		empty(t, dir);
		lp_test_ok(lpi_t_remove(t, root, "d", true));
		return;
	}
	lp_test_ok(r);
	struct lp_attrs before = lpi_t_attrs(t, ino);
	int other = lpi_ns_rig_wait(t->rig, &hand);
	assert_true(other == 0 || other == -EPERM);
	lpi_t_idle(t);
	struct lp_attrs after = lpi_t_attrs(t, ino);
	assert_memory_equal(&before, &after, sizeof(before));
	set_flags(t, ino, 0);
	empty(t, dir);
	lp_test_ok(lpi_t_remove(t, root, "d", true));
	if (other == 0 && (what == 1 || what == 2))
		lp_test_ok(lpi_t_remove(t, root, what == 1 ? "l" : "r", false));
}

static void check_file_races(struct lpi_t *t)
{
	for (uint32_t turns = 0; turns < 30; turns++) {
		for (uint32_t what = 0; what <= 5; what++)
			race_file(t, turns, what);
	}
}

static void test_file_races(void **state)
{
	(void)state;
	lpi_t_on_all(check_file_races);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_changes),    cmocka_unit_test(test_names),
		cmocka_unit_test(test_dirs),       cmocka_unit_test(test_rights),
		cmocka_unit_test(test_orphan),     cmocka_unit_test(test_races),
		cmocka_unit_test(test_file_races),
	};
	return lp_test_main(tests, "namespace/ops/flags");
}
