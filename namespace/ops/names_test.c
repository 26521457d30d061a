/* SPDX-License-Identifier: Apache-2.0 */
/* Make, lookup, link, remove, open, close, sync: each on one, two and three shards, submitted on
 * all of them in turn. */
#include "namespace/ops/names_rig_test.h"

static const char *const long_name = "0123456789012345678901234567890123456789012345678901234567890"
				     "123456789012345678901234567890"
				     "0123456789012345678901234567890123456789012345678901234567890"
				     "123456789012345678901234567890"
				     "0123456789012345678901234567890123456789012345678901234567890"
				     "123456789012345678901234567890"
				     "0123456789";

static const struct lp_ino root = {1};

/* --- Make ------------------------------------------------------------------------------------- */

static void check_make(struct lpi_t *t)
{
	static const enum lp_inode_type types[] = {LP_INODE_TYPE_FILE,    LP_INODE_TYPE_SYMLINK,
						   LP_INODE_TYPE_FIFO,    LP_INODE_TYPE_SOCKET,
						   LP_INODE_TYPE_CHARDEV, LP_INODE_TYPE_BLOCKDEV};
	struct lp_ino dirs[] = {root, lpi_t_dir(t, root, "plain"), lpi_t_spread(t, root, "spread")};
	for (size_t d = 0; d < LP_ARRAY_SIZE(dirs); d++) {
		for (size_t i = 0; i < LP_ARRAY_SIZE(types); i++) {
			char name[] = "x0";
			name[1] = (char)('0' + i);
			lp_test_ok(lpi_t_make(t, dirs[d], name, types[i]));
			assert_true(t->op->make.created);
			struct lp_ns_found made = t->op->make.found;
			/* On the shard of its entry. */
			assert_int_equal(
				lp_ino_shard(made.ino),
				lp_ns_shard_of(t->rig->ns[t->home], dirs[d], lpi_t_bytes(name)));
			lp_test_ok(lpi_t_lookup(t, dirs[d], name));
			assert_int_equal(t->op->lookup.found.ino.nr, made.ino.nr);
			assert_memory_equal(&t->op->lookup.found.attrs, &made.attrs,
					    sizeof(made.attrs));
			assert_int_equal(made.attrs.nlink, 1);
			assert_int_equal(made.attrs.uid, 7);
			assert_int_equal(made.attrs.gid, 8);
			assert_int_equal(made.attrs.mode, 0640);
			assert_int_equal(made.attrs.parent.nr, dirs[d].nr);
			assert_int_equal(lpi_t_make(t, dirs[d], name, types[i]), -EEXIST);
		}
	}
}

static void test_make(void **state)
{
	(void)state;
	lpi_t_on_all(check_make);
}

static void check_make_faults(struct lpi_t *t)
{
	struct lp_ino dir = lpi_t_dir(t, root, "dir");
	struct lp_ino file = lpi_t_file(t, root, "file");
	assert_int_equal(lpi_t_make(t, root, long_name, LP_INODE_TYPE_FILE), -ENAMETOOLONG);
	assert_int_equal(lpi_t_make(t, root, "", LP_INODE_TYPE_FILE), -EINVAL);
	assert_int_equal(lpi_t_make(t, root, "..", LP_INODE_TYPE_FILE), -EINVAL);
	assert_int_equal(lpi_t_make(t, root, "a/b", LP_INODE_TYPE_DIR), -EINVAL);
	assert_int_equal(lpi_t_make(t, file, "a", LP_INODE_TYPE_FILE), -ENOTDIR);
	assert_int_equal(lpi_t_make(t, (struct lp_ino){77777}, "a", LP_INODE_TYPE_FILE), -ESTALE);
	assert_int_equal(lpi_t_make(t, (struct lp_ino){UINT64_MAX}, "a", LP_INODE_TYPE_FILE),
			 -ESTALE);
	lpi_t_fill_make(t, dir, "s", LP_INODE_TYPE_SYMLINK);
	assert_int_equal(lpi_t_do(t), -ENOENT);
	lpi_t_fill_make(t, dir, "s", LP_INODE_TYPE_FILE);
	t->op->make.spread = true;
	assert_int_equal(lpi_t_do(t), -EINVAL);
	lpi_t_fill_make(t, dir, "s", LP_INODE_TYPE_FILE);
	t->op->make.xattr_cnt = LP_NS_XATTRS_MAX + 1;
	assert_int_equal(lpi_t_do(t), -E2BIG);
	/* Every shard had looked at it before it went. */
	for (uint32_t i = 0; i < t->rig->shard_cnt; i++)
		assert_int_equal(lpi_t_find(t, dir, "a").nr, 0);
	lp_test_ok(lpi_t_remove(t, root, "dir", true));
	for (uint32_t i = 0; i < t->rig->shard_cnt; i++) {
		assert_int_equal(lpi_t_make(t, dir, "a", LP_INODE_TYPE_FILE), -ENOENT);
		assert_int_equal(lpi_t_make(t, dir, "a", LP_INODE_TYPE_DIR), -ENOENT);
		assert_int_equal(lpi_t_link(t, file, dir, "a"), -ENOENT);
		assert_int_equal(lpi_t_rename(t, root, "file", dir, "a", 0), -ENOENT);
	}
}

static void test_make_faults(void **state)
{
	(void)state;
	lpi_t_on_all(check_make_faults);
}

static void check_make_dirs(struct lpi_t *t)
{
	uint32_t on[3] = {0, 0, 0};
	for (uint32_t i = 0; i < 9; i++) {
		char name[] = "d0";
		name[1] = (char)('0' + i);
		lpi_t_fill_make(t, root, name, LP_INODE_TYPE_DIR);
		assert_int_equal(lpi_ns_rig_do(t->rig, 0, &t->hand), 0);
		on[lp_ino_shard(t->op->make.found.ino)]++;
		assert_int_equal(t->op->make.found.attrs.nlink, 2);
		assert_int_equal(lpi_t_nlink(t, t->op->make.found.ino), 2);
		assert_int_equal(lpi_t_nlink(t, root), 3 + i);
	}
	for (uint32_t i = 0; i < t->rig->shard_cnt; i++)
		assert_true(on[i] >= 9 / t->rig->shard_cnt);
	/* A spread one has a link count of 1, whatever is in it. */
	struct lp_ino spread = lpi_t_spread(t, root, "spread");
	assert_int_equal(lpi_t_nlink(t, spread), 1);
	struct lp_ino below = lpi_t_dir(t, spread, "below");
	assert_int_equal(lpi_t_nlink(t, spread), 1);
	assert_int_equal(lpi_t_nlink(t, below), 2);
	assert_int_equal(lp_ino_shard(below),
			 lp_ns_shard_of(t->rig->ns[t->home], spread, lpi_t_bytes("below")));
	assert_int_equal(lpi_t_nlink(t, root), 12);
}

static void test_make_dirs(void **state)
{
	(void)state;
	lpi_t_on_all(check_make_dirs);
}

static void set_nlink(struct lpi_t *t, struct lp_ino ino, uint32_t nlink)
{
	const struct lp_attrs attrs = {.nlink = nlink};
	const struct lp_change change = {.type = LP_CHANGE_SET,
					 .ino = ino,
					 .inode = {.attrs = &attrs, .mask = LP_ATTR_NLINK}};
	struct lp_store_op op = {.opcode = LP_STORE_TXN,
				 .txn = {.changes = &change, .change_cnt = 1}};
	lpi_t_store(t, lp_ino_shard(ino), &op);
}

static void check_link_max(struct lpi_t *t)
{
	struct lp_ino dir = lpi_t_dir(t, root, "dir");
	struct lp_ino file = lpi_t_file(t, root, "file");
	struct lp_ino other = lpi_t_dir(t, root, "other");
	set_nlink(t, dir, LP_NS_LINK_MAX);
	set_nlink(t, file, LP_NS_LINK_MAX);
	assert_int_equal(lpi_t_make(t, dir, "sub", LP_INODE_TYPE_DIR), -EMLINK);
	assert_int_equal(lpi_t_rename(t, root, "other", dir, "sub", 0), -EMLINK);
	assert_int_equal(lpi_t_link(t, file, root, "link"), -EMLINK);
	lp_test_ok(lpi_t_make(t, dir, "sub", LP_INODE_TYPE_FILE));
	assert_int_equal(lpi_t_rename(t, root, "other", dir, "sub", LP_NS_RENAME_EXCHANGE),
			 -EMLINK);
	assert_int_equal(lpi_t_rename(t, dir, "sub", root, "other", LP_NS_RENAME_EXCHANGE),
			 -EMLINK);
	set_nlink(t, dir, 2);
	set_nlink(t, file, 1);
	assert_int_equal(lpi_t_find(t, root, "other").nr, other.nr);
}

static void test_link_max(void **state)
{
	(void)state;
	lpi_t_on_all(check_link_max);
}

static void check_xattrs(struct lpi_t *t)
{
	static const struct lp_ns_named_value xattrs[] = {{{"user.a", 6}, {"1", 1}},
							  {{"user.b", 6}, {"22", 2}}};
	static const enum lp_inode_type types[] = {LP_INODE_TYPE_FILE, LP_INODE_TYPE_DIR};
	for (uint32_t i = 0; i < 8; i++) {
		char name[] = "x0";
		char value[4];
		name[1] = (char)('0' + i);
		lpi_t_fill_make(t, root, name, types[i % 2]);
		t->op->make.xattrs = xattrs;
		t->op->make.xattr_cnt = 2;
		lp_test_ok(lpi_t_do(t));
		struct lp_ino ino = t->op->make.found.ino;
		lpi_t_op(t, LP_NS_STORE);
		t->op->store.ino = ino;
		t->op->store.op.opcode = LP_STORE_GET;
		t->op->store.op.get.space = LP_STORE_XATTRS;
		t->op->store.op.get.ino = ino;
		t->op->store.op.get.name = xattrs[1].name;
		t->op->store.op.get.buf = value;
		t->op->store.op.get.buf_len = sizeof(value);
		lp_test_ok(lpi_t_do(t));
		assert_int_equal(t->op->store.op.get.value_len, 2);
		assert_memory_equal(value, "22", 2);
	}
}

static void test_xattrs(void **state)
{
	(void)state;
	lpi_t_on_all(check_xattrs);
}

/* --- Open ------------------------------------------------------------------------------------- */

static uint32_t opens(const struct lpi_t *t)
{
	uint32_t cnt = 0;
	for (uint32_t i = 0; i < t->rig->shard_cnt; i++)
		cnt += lpi_opens_inodes(t->rig->ns[i]->opens);
	return cnt;
}

static int make_open(struct lpi_t *t, struct lp_ino dir, const char *name, bool or_open)
{
	lpi_t_fill_make(t, dir, name, LP_INODE_TYPE_FILE);
	t->op->make.open = true;
	t->op->make.or_open = or_open;
	return lpi_t_do(t);
}

static void check_make_open(struct lpi_t *t)
{
	struct lp_ino spread = lpi_t_spread(t, root, "spread");
	struct lp_ino dirs[] = {root, spread};
	for (size_t d = 0; d < LP_ARRAY_SIZE(dirs); d++) {
		lp_test_ok(make_open(t, dirs[d], "file", false));
		struct lp_ino ino = t->op->make.found.ino;
		assert_int_equal(opens(t), 1);
		assert_int_equal(make_open(t, dirs[d], "file", false), -EEXIST);
		assert_int_equal(opens(t), 1);
		/* Moved to wherever: the inode is on another shard than its entry, perhaps. */
		lp_test_ok(lpi_t_rename(t, dirs[d], "file", dirs[1 - d], "moved", 0));
		lp_test_ok(make_open(t, dirs[1 - d], "moved", true));
		assert_false(t->op->make.created);
		assert_int_equal(t->op->make.found.ino.nr, ino.nr);
		lp_test_ok(make_open(t, dirs[1 - d], "new", true));
		assert_true(t->op->make.created);
		lp_test_ok(lpi_t_close(t, t->op->make.found.ino));
		assert_int_equal(opens(t), 1);
		lp_test_ok(lpi_t_remove(t, dirs[1 - d], "moved", false));
		assert_int_equal(lpi_t_attrs(t, ino).nlink, 0);
		assert_int_equal(lpi_t_link(t, ino, root, "again"), -ENOENT);
		lp_test_ok(lpi_t_close(t, ino));
		lp_test_ok(lpi_t_stat(t, ino));
		lp_test_ok(lpi_t_close(t, ino));
		assert_int_equal(lpi_t_close(t, ino), -EINVAL);
		lpi_t_idle(t);
		assert_int_equal(lpi_t_stat(t, ino), -ESTALE);
		assert_int_equal(lpi_t_open(t, ino), -ESTALE);
		assert_int_equal(opens(t), 0);
		lp_test_ok(lpi_t_remove(t, dirs[1 - d], "new", false));
	}
	(void)lpi_t_dir(t, root, "dir");
	assert_int_equal(make_open(t, root, "dir", true), -EISDIR);
	lp_test_ok(lpi_t_make(t, root, "link", LP_INODE_TYPE_SYMLINK));
	assert_int_equal(make_open(t, root, "link", true), -EEXIST);
	assert_int_equal(opens(t), 0);
}

/* namespace NS5 */
static void test_make_open(void **state)
{
	(void)state;
	lpi_t_on_all(check_make_open);
}

static struct lp_ino make_unnamed(struct lpi_t *t, struct lp_ino dir)
{
	lpi_t_fill_make(t, dir, "", LP_INODE_TYPE_FILE);
	t->op->make.unnamed = true;
	lp_test_ok(lpi_t_do(t));
	assert_true(t->op->make.created);
	return t->op->make.found.ino;
}

/* A file without a name vanishes when it is closed, or gets a name once. */
static void check_unnamed(struct lpi_t *t)
{
	struct lp_ino spread = lpi_t_spread(t, root, "spread");
	struct lp_ino dirs[] = {root, spread, lpi_t_dir(t, root, "dir")};
	for (size_t d = 0; d < LP_ARRAY_SIZE(dirs); d++) {
		struct lp_ino ino = make_unnamed(t, dirs[d]);
		assert_int_equal(lpi_t_nlink(t, ino), 0);
		lp_test_ok(lpi_t_close(t, ino));
		lpi_t_idle(t);
		assert_int_equal(lpi_t_stat(t, ino), -ESTALE);
		ino = make_unnamed(t, dirs[d]);
		assert_int_equal(lpi_t_link(t, ino, root, "dir"), -EEXIST);
		assert_int_equal(lpi_t_nlink(t, ino), 0);
		lp_test_ok(lpi_t_link(t, ino, spread, "named"));
		assert_int_equal(t->op->link.found.attrs.nlink, 1);
		assert_int_equal(lpi_t_nlink(t, ino), 1);
		if (d == 0)
			lp_test_ok(lpi_t_close(t, ino));
		assert_int_equal(lpi_t_find(t, spread, "named").nr, ino.nr);
		lp_test_ok(lpi_t_remove(t, spread, "named", false));
		if (d != 0) {
			assert_int_equal(lpi_t_link(t, ino, spread, "named"), -ENOENT);
			lp_test_ok(lpi_t_close(t, ino));
		}
		lpi_t_idle(t);
		assert_int_equal(lpi_t_stat(t, ino), -ESTALE);
		assert_int_equal(opens(t), 0);
	}
}

static void test_unnamed(void **state)
{
	(void)state;
	lpi_t_on_all(check_unnamed);
}

/* What a crash leaves of files without names goes with the next start. */
static void test_unnamed_restart(void **state)
{
	(void)state;
	struct lpi_t t;
	lpi_t_begin(&t, 2);
	struct lp_ino lost = make_unnamed(&t, root);
	struct lp_ino kept = make_unnamed(&t, root);
	struct lp_ino gone = lpi_t_file(&t, root, "gone");
	lp_test_ok(lpi_t_link(&t, kept, root, "kept"));
	lp_test_ok(lpi_t_open(&t, gone));
	lp_test_ok(lpi_t_remove(&t, root, "gone", false));
	lpi_t_idle(&t);
	lpi_ns_rig_stop(t.rig);
	lp_test_ok(lpi_ns_rig_start(t.rig));
	assert_int_equal(lpi_t_stat(&t, lost), -ESTALE);
	assert_int_equal(lpi_t_stat(&t, gone), -ESTALE);
	assert_int_equal(lpi_t_nlink(&t, kept), 1);
	lpi_t_end(&t);
}

/* Where there is nothing to make durable nobody is asked, and the answer comes as any other. What
 * there is: fuse/kernel/sync_test. */
static void test_sync_of_nothing(void **state)
{
	(void)state;
	for (uint32_t shards = 1; shards <= 4; shards++) {
		struct lpi_t t;
		lpi_t_begin(&t, shards);
		lpi_t_op(&t, LP_NS_SYNC);
		lp_test_ok(lpi_t_do(&t));
		struct lp_store_stats stats;
		for (uint32_t i = 0; i < shards; i++) {
			lp_store_read_stats(t.rig->store[i], &stats);
			assert_int_equal(stats.ops[LP_STORE_SYNC], 0);
		}
		lpi_t_end(&t);
	}
}

/* --- Link ------------------------------------------------------------------------------------- */

static void check_link(struct lpi_t *t)
{
	struct lp_ino dir = lpi_t_dir(t, root, "dir");
	struct lp_ino spread = lpi_t_spread(t, root, "spread");
	struct lp_ino dirs[] = {root, dir, spread};
	struct lp_ino ino = lpi_t_file(t, root, "file");
	for (uint32_t i = 0; i < 9; i++) {
		char name[] = "l0";
		name[1] = (char)('0' + i);
		lpi_t_later(t);
		int64_t before = lpi_t_attrs(t, ino).ctime_ns;
		lp_test_ok(lpi_t_link(t, ino, dirs[i % 3], name));
		struct lp_attrs told = t->op->link.found.attrs;
		assert_int_equal(told.nlink, i + 2);
		struct lp_attrs attrs = lpi_t_attrs(t, ino);
		assert_memory_equal(&attrs, &told, sizeof(told));
		assert_true(attrs.ctime_ns > before);
		assert_int_equal(lpi_t_link(t, ino, dirs[i % 3], name), -EEXIST);
		lp_test_ok(lpi_t_lookup(t, dirs[i % 3], name));
		assert_int_equal(t->op->lookup.found.attrs.nlink, i + 2);
	}
	assert_int_equal(lpi_t_link(t, dir, root, "a"), -EPERM);
	assert_int_equal(lpi_t_link(t, (struct lp_ino){99999}, root, "a"), -ENOENT);
	for (uint32_t i = 0; i < 9; i++) {
		char name[] = "l0";
		name[1] = (char)('0' + i);
		lpi_t_later(t);
		int64_t before = lpi_t_attrs(t, ino).ctime_ns;
		lp_test_ok(lpi_t_remove(t, dirs[i % 3], name, false));
		assert_int_equal(t->op->remove.ino.nr, ino.nr);
		assert_int_equal(lpi_t_nlink(t, ino), 9 - i);
		assert_true(lpi_t_attrs(t, ino).ctime_ns > before);
	}
	lp_test_ok(lpi_t_remove(t, root, "file", false));
	lpi_t_idle(t);
	assert_int_equal(lpi_t_stat(t, ino), -ESTALE);
}

/* namespace NS1 */
static void test_link(void **state)
{
	(void)state;
	lpi_t_on_all(check_link);
}

/* Who has been told that a change over two shards has happened finds it at once, also where it is
 * being finished: the lookup is submitted from inside the answer. */
struct chain {
	struct lp_ns_op first;
	struct lp_ns *ns; /* where the second is submitted */
	struct lpi_ns_hand second;
};

static void first_done(struct lp_ns_op *op)
{
	struct chain *chain = LP_CONTAINER_OF(op, struct chain, first);
	lp_test_ok(op->result);
	chain->second.op.complete = lpi_ns_hand_done;
	lp_ns_submit(chain->ns, &chain->second.op);
}

static void check_told(struct lpi_t *t)
{
	static const char *const names[] = {"a", "b", "c", "d", "e", "f"};
	struct lp_ino spread = lpi_t_spread(t, root, "spread");
	for (size_t i = 0; i < LP_ARRAY_SIZE(names); i++) {
		struct lp_ino ino = lpi_t_file(t, spread, names[i]);
		uint32_t shard_idx = lp_ino_shard(ino);
		struct chain chain = {.ns = t->rig->ns[shard_idx]};
		chain.first = (struct lp_ns_op){.opcode = LP_NS_LINK, .complete = first_done};
		chain.first.link.ino = ino;
		chain.first.link.dir = root;
		chain.first.link.name = lpi_t_bytes(names[i]);
		chain.second.op.opcode = LP_NS_LOOKUP;
		chain.second.op.lookup.dir = spread;
		chain.second.op.lookup.name = lpi_t_bytes(names[i]);
		lp_ns_submit(t->rig->ns[shard_idx], &chain.first);
		lp_test_ok(lpi_ns_rig_wait(t->rig, &chain.second));
		assert_int_equal(chain.second.op.lookup.found.attrs.nlink, 2);
		/* A directory's count, too, which its names' changes change. */
		char below[] = "dir0";
		below[3] = (char)('0' + i);
		struct chain made = {.ns = t->rig->ns[0]};
		made.first = (struct lp_ns_op){.opcode = LP_NS_MAKE, .complete = first_done};
		made.first.make.dir = root;
		made.first.make.name = lpi_t_bytes(below);
		made.first.make.type = LP_INODE_TYPE_DIR;
		made.second.op.opcode = LP_NS_STAT;
		made.second.op.stat.ino = root;
		lp_ns_submit(t->rig->ns[0], &made.first);
		lp_test_ok(lpi_ns_rig_wait(t->rig, &made.second));
		assert_int_equal(made.second.op.stat.found.attrs.nlink, 4 + i);
	}
}

static void test_told(void **state)
{
	(void)state;
	lpi_t_on_all(check_told);
}

/* --- Remove ----------------------------------------------------------------------------------- */

/* Nothing is left of a directory, on any shard. */
static void expect_no_fragments(struct lpi_t *t, struct lp_ino dir)
{
	for (uint32_t i = 0; i < t->rig->shard_cnt; i++) {
		struct lp_store_op op = {.opcode = LP_STORE_DIR, .dir = {.ino = dir}};
		lpi_t_store(t, i, &op);
		assert_int_equal(op.dir.entries_cnt, 0);
		assert_false(op.dir.is_sealed);
		assert_int_equal(op.dir.mtime_ns, 0);
	}
}

static void check_remove_dir(struct lpi_t *t, bool is_spread)
{
	static const char *const names[] = {"a", "b", "c", "d", "e", "f", "g", "h"};
	struct lp_ino dir = is_spread ? lpi_t_spread(t, root, "dir") : lpi_t_dir(t, root, "dir");
	uint32_t before = lpi_t_nlink(t, root);
	(void)lpi_t_file(t, root, "file");
	assert_int_equal(lpi_t_remove(t, root, "dir", false), -EISDIR);
	assert_int_equal(lpi_t_remove(t, root, "file", true), -ENOTDIR);
	assert_int_equal(lpi_t_remove(t, root, "none", true), -ENOENT);
	for (uint32_t i = 0; i < LP_ARRAY_SIZE(names); i++) {
		(void)lpi_t_file(t, dir, names[i]);
		assert_int_equal(lpi_t_remove(t, root, "dir", true), -ENOTEMPTY);
		lp_test_ok(lpi_t_remove(t, dir, names[i], false));
	}
	lpi_t_later(t);
	int64_t mtime_ns = lpi_t_attrs(t, root).mtime_ns;
	lp_test_ok(lpi_t_remove(t, root, "dir", true));
	assert_int_equal(lpi_t_nlink(t, root), before - 1);
	assert_true(lpi_t_attrs(t, root).mtime_ns > mtime_ns);
	lpi_t_idle(t);
	assert_int_equal(lpi_t_stat(t, dir), -ESTALE);
	expect_no_fragments(t, dir);
	for (uint32_t i = 0; i < LP_ARRAY_SIZE(names); i++) {
		int r = lpi_t_make(t, dir, names[i], LP_INODE_TYPE_FILE);
		assert_true(r == -ENOENT || r == -ESTALE); /* who knew the number, who did not */
	}
	lpi_t_idle(t);
	expect_no_fragments(t, dir);
	lp_test_ok(lpi_t_remove(t, root, "file", false));
}

static void check_rmdir(struct lpi_t *t)
{
	check_remove_dir(t, false);
	check_remove_dir(t, true);
}

/* Rule N2. */
static void test_rmdir(void **state)
{
	(void)state;
	lpi_t_on_all(check_rmdir);
}

/* Who has to wait for a name takes it away later than he asked; what was done in the directory
 * meanwhile is not younger than that. The name is held by a change over two shards. */
static void check_waits(struct lpi_t *t, enum lp_ns_opcode opcode)
{
	struct lp_ino dir = lpi_t_dir(t, root, "dir");
	uint32_t home = lp_ino_shard(dir);
	struct lp_ino file = dir;
	for (uint32_t i = 0; lp_ino_shard(file) == home; i++) {
		char name[] = "0";
		name[0] = (char)('0' + i);
		assert_true(i < 9);
		file = lpi_t_file(t, lpi_t_dir(t, root, name), "file");
	}
	struct lpi_ns_hand linked = {.op = {.opcode = LP_NS_LINK}};
	struct lpi_ns_hand removed = {.op = {.opcode = opcode}};
	linked.op.link.ino = file;
	linked.op.link.dir = dir;
	linked.op.link.name = lpi_t_bytes("name");
	lpi_ns_rig_submit(t->rig, home, &linked);
	if (opcode == LP_NS_REMOVE) {
		removed.op.remove.dir = dir;
		removed.op.remove.name = lpi_t_bytes("name");
	} else {
		removed.op.delete.path = lpi_t_bytes("dir/name");
	}
	lpi_ns_rig_submit(t->rig, home, &removed);
	lpi_t_later(t);
	int64_t later_ns = lp_clock_wall_ns(&t->rig->clock.clock);
	lpi_t_fill_make(t, dir, "other", LP_INODE_TYPE_FILE);
	lp_test_ok(lpi_ns_rig_do(t->rig, home, &t->hand));
	assert_true(t->op->make.found.attrs.mtime_ns >= later_ns);
	assert_false(removed.is_done);
	lp_test_ok(lpi_ns_rig_wait(t->rig, &linked));
	lp_test_ok(lpi_ns_rig_wait(t->rig, &removed));
	assert_int_equal(lpi_t_find(t, dir, "name").nr, 0);
	struct lp_attrs attrs = lpi_t_attrs(t, dir);
	assert_true(attrs.mtime_ns >= later_ns && attrs.ctime_ns >= later_ns);
	assert_true(lpi_t_attrs(t, file).ctime_ns >= later_ns);
}

static void test_waits(void **state)
{
	static const enum lp_ns_opcode opcodes[] = {LP_NS_REMOVE, LP_NS_DELETE};
	(void)state;
	for (size_t i = 0; i < LP_ARRAY_SIZE(opcodes); i++) {
		struct lpi_t t;
		lpi_t_begin(&t, 3);
		check_waits(&t, opcodes[i]);
		lpi_t_end(&t);
	}
}

/* The shard of an entry remembers that the directory is there, until it is removed. */
static void check_alive(struct lpi_t *t)
{
	static const char *const names[] = {"a", "b", "c", "d", "e", "f", "g", "h"};
	struct lp_ino dir = lpi_t_spread(t, root, "dir");
	for (uint32_t gone = 0; gone < 2; gone++) {
		for (size_t i = 0; i < LP_ARRAY_SIZE(names); i++) {
			uint32_t shard_idx =
				(uint32_t)(lp_hash_u64(names[i], 1, dir.nr) % t->rig->shard_cnt);
			lpi_t_fill_make(t, dir, names[i], LP_INODE_TYPE_FILE);
			int r = lpi_ns_rig_do(t->rig, shard_idx, &t->hand);
			assert_true(gone ? r == -ENOENT || r == -ESTALE : r == 0);
			if (gone)
				continue;
			lp_test_ok(lpi_t_remove(t, dir, names[i], false));
			/* The second one there asks nobody. */
			lpi_t_fill_make(t, dir, names[i], LP_INODE_TYPE_FILE);
			uint64_t calls = t->rig->ns[shard_idx]->stats.face.remote_calls;
			lp_test_ok(lpi_ns_rig_do(t->rig, shard_idx, &t->hand));
			assert_int_equal(t->rig->ns[shard_idx]->stats.face.remote_calls, calls);
			lp_test_ok(lpi_t_remove(t, dir, names[i], false));
		}
		if (!gone)
			lp_test_ok(lpi_t_remove(t, root, "dir", true));
	}
	lpi_t_idle(t);
	expect_no_fragments(t, dir);
}

static void test_alive(void **state)
{
	(void)state;
	lpi_t_on_all(check_alive);
}

/* A directory that is open lives on without entries. */
static void check_rmdir_open(struct lpi_t *t)
{
	for (uint32_t i = 0; i < 2; i++) {
		struct lp_ino dir =
			i == 0 ? lpi_t_dir(t, root, "dir") : lpi_t_spread(t, root, "dir");
		lp_test_ok(lpi_t_open(t, dir));
		(void)lpi_t_file(t, dir, "file");
		lp_test_ok(lpi_t_remove(t, dir, "file", false));
		lp_test_ok(lpi_t_remove(t, root, "dir", true));
		assert_int_equal(lpi_t_nlink(t, dir), 0);
		lpi_t_op(t, LP_NS_SET);
		t->op->set.ino = dir;
		t->op->set.attrs.mtime_ns = 7;
		t->op->set.mask = LP_ATTR_MTIME;
		lp_test_ok(lpi_t_do(t));
		for (char name[] = "a"; name[0] < 'i'; name[0]++) {
			assert_int_equal(lpi_t_make(t, dir, name, LP_INODE_TYPE_FILE), -ENOENT);
			assert_int_equal(lpi_t_make(t, dir, name, LP_INODE_TYPE_DIR), -ENOENT);
		}
		lp_test_ok(lpi_t_close(t, dir));
		lpi_t_idle(t);
		assert_int_equal(lpi_t_stat(t, dir), -ESTALE);
		expect_no_fragments(t, dir);
	}
}

static void test_rmdir_open(void **state)
{
	(void)state;
	lpi_t_on_all(check_rmdir_open);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_make),
		cmocka_unit_test(test_make_faults),
		cmocka_unit_test(test_make_dirs),
		cmocka_unit_test(test_link_max),
		cmocka_unit_test(test_xattrs),
		cmocka_unit_test(test_make_open),
		cmocka_unit_test(test_unnamed),
		cmocka_unit_test(test_unnamed_restart),
		cmocka_unit_test(test_sync_of_nothing),
		cmocka_unit_test(test_link),
		cmocka_unit_test(test_alive),
		cmocka_unit_test(test_told),
		cmocka_unit_test(test_rmdir),
		cmocka_unit_test(test_rmdir_open),
		cmocka_unit_test(test_waits),
	};
	return lp_test_main(tests, "namespace/ops/names");
}
