/* SPDX-License-Identifier: Apache-2.0 */
/* Notices to a mount of others' changes (rule M2), for each operation that changes something, on
 * one, two and three shards. The watcher answers when the test wants it. The operation's answer
 * waits for that without holding locks (rule M3), but not for ever. */
#include "base/crc32c.h"
#include "namespace/ops/names_rig_test.h"

static const struct lp_ino root = {1};

#define HEARD_MAX 64u

/* Of one item, whose name is a string. */
struct heard {
	uint64_t ino;
	uint64_t offset;
	uint64_t length;
	bool has_data;
	char name[256];
};

/* One watcher of all shards. */
struct watcher {
	struct lpi_t *t;
	struct lp_ns_notice *waiting[HEARD_MAX]; /* while it does not answer */
	uint32_t waiting_cnt;
	bool is_holding;
	uint64_t unknown; /* an inode that the kernel does not know; 0: none */
	struct heard heard[HEARD_MAX];
	uint32_t cnt;
	uint32_t tells;
	uint32_t lates;
};

static void end_one(struct watcher *watcher, struct lp_ns_notice *notice)
{
	for (uint32_t i = 0; i < notice->item_cnt; i++)
		notice->items[i].is_unknown = notice->items[i].name_len == 0 &&
					      notice->items[i].ino.nr == watcher->unknown;
	lp_ns_told(notice);
}

static void end_soon(struct lp_work *work)
{
	struct lp_ns_notice *notice = LP_CONTAINER_OF(work, struct lp_ns_notice, work);
	end_one(notice->teller, notice);
}

static void no_work(struct lp_work *work)
{
	(void)work;
}

static struct lp_workers *workers;

static void tell(void *arg, struct lp_ns_notice *notice)
{
	struct watcher *watcher = arg;
	watcher->tells++;
	for (uint32_t i = 0; i < notice->item_cnt; i++) {
		const struct lp_ns_news *item = &notice->items[i];
		struct heard *heard = &watcher->heard[watcher->cnt++];
		assert_true(watcher->cnt <= HEARD_MAX);
		*heard = (struct heard){.ino = item->ino.nr,
					.offset = item->offset,
					.length = item->length,
					.has_data = item->has_data};
		memcpy(heard->name, notice->names + item->name_at, item->name_len);
	}
	notice->teller = watcher;
	if (watcher->is_holding) {
		watcher->waiting[watcher->waiting_cnt++] = notice;
		return;
	}
	notice->work.run = no_work;
	notice->work.done = end_soon;
	lp_workers_submit(workers, notice->ns->options.reactor, &notice->work);
}

static void late(void *arg)
{
	((struct watcher *)arg)->lates++;
}

static void go_on(struct watcher *watcher)
{
	watcher->is_holding = false;
	while (watcher->waiting_cnt > 0)
		end_one(watcher, watcher->waiting[--watcher->waiting_cnt]);
}

static void watch(struct watcher *watcher, struct lpi_t *t)
{
	*watcher = (struct watcher){.t = t};
	const struct lp_ns_watch face = {.tell = tell, .late = late, .arg = watcher};
	for (uint32_t i = 0; i < t->rig->shard_cnt; i++)
		lp_ns_watch(t->rig->ns[i], &face);
}

static void unwatch(struct lpi_t *t)
{
	for (uint32_t i = 0; i < t->rig->shard_cnt; i++)
		lp_ns_watch(t->rig->ns[i], NULL);
}

static void deafen(struct watcher *watcher)
{
	watcher->cnt = 0;
	watcher->tells = 0;
}

/* HEARD_MAX: nothing was heard of it. */
static uint32_t find(const struct watcher *watcher, struct lp_ino ino, const char *name)
{
	for (uint32_t i = 0; i < watcher->cnt; i++) {
		if (watcher->heard[i].ino == ino.nr && strcmp(watcher->heard[i].name, name) == 0)
			return i;
	}
	return HEARD_MAX;
}

static const struct heard *expect(const struct watcher *watcher, struct lp_ino ino,
				  const char *name)
{
	uint32_t at = find(watcher, ino, name);
	assert_true(at < HEARD_MAX);
	return &watcher->heard[at];
}

static void expect_inode(const struct watcher *watcher, struct lp_ino ino)
{
	assert_false(expect(watcher, ino, "")->has_data);
}

/* With its directory's attributes. */
static void expect_name(const struct watcher *watcher, struct lp_ino dir, const char *name)
{
	(void)expect(watcher, dir, name);
	expect_inode(watcher, dir);
}

static void expect_data(const struct watcher *watcher, struct lp_ino ino, uint64_t offset,
			uint64_t length)
{
	const struct heard *heard = expect(watcher, ino, "");
	assert_true(heard->has_data);
	assert_int_equal(heard->offset, offset);
	assert_int_equal(heard->length, length);
}

/* The kernel knows it from now on. */
static void hold(struct lpi_t *t, struct lp_ino ino)
{
	lpi_t_op(t, LP_NS_STAT);
	t->op->hold = true;
	t->op->stat.ino = ino;
	lp_test_ok(lpi_t_do(t));
}

static void forget(struct lpi_t *t, struct lp_ino ino)
{
	const struct lp_ns_forgotten item = {.ino = ino, .count = 1};
	lpi_t_op(t, LP_NS_FORGET);
	t->op->forget.items = &item;
	t->op->forget.cnt = 1;
	lp_test_ok(lpi_t_do(t));
}

typedef void check_fn(struct lpi_t *t, struct watcher *watcher);

static void on_all(check_fn *check)
{
	for (uint32_t shards = 1; shards <= 3; shards++) {
		struct lpi_t t;
		static struct watcher watcher;
		lp_test_ok(lp_workers_new(0, &workers));
		lpi_t_begin(&t, shards);
		watch(&watcher, &t);
		check(&t, &watcher);
		lpi_t_idle(&t);
		for (uint32_t i = 0; i < shards; i++)
			assert_int_equal(t.rig->ns[i]->notices_out, 0);
		lpi_t_end(&t);
		lp_workers_free(workers);
	}
}

static void fill_put(struct lpi_t *t, const char *path)
{
	lpi_t_op(t, LP_NS_PUT);
	t->op->put.path = lpi_t_bytes(path);
	t->op->put.mode = 0644;
}

static struct lp_ino put(struct lpi_t *t, const char *path)
{
	fill_put(t, path);
	lp_test_ok(lpi_t_do(t));
	return t->op->put.found.ino;
}

/* --- Names ------------------------------------------------------------------------------------ */

static void check_names(struct lpi_t *t, struct watcher *watcher)
{
	struct lp_ino dirs[] = {lpi_t_dir(t, root, "plain"), lpi_t_spread(t, root, "spread")};
	struct lp_ino other = lpi_t_dir(t, root, "other");
	hold(t, other);
	for (size_t d = 0; d < LP_ARRAY_SIZE(dirs); d++) {
		struct lp_ino dir = dirs[d];
		/* No kernel knows the directory. */
		(void)lpi_t_file(t, dir, "unseen");
		assert_int_equal(lpi_t_remove(t, dir, "unseen", false), 0);
		hold(t, dir);
		deafen(watcher);
		struct lp_ino file = lpi_t_file(t, dir, "file");
		expect_name(watcher, dir, "file");
		assert_int_equal(find(watcher, file, ""), HEARD_MAX);
		hold(t, file);
		deafen(watcher);
		lp_test_ok(lpi_t_link(t, file, other, "link"));
		expect_name(watcher, other, "link");
		expect_inode(watcher, file);
		deafen(watcher);
		lp_test_ok(lpi_t_rename(t, dir, "file", other, "moved", 0));
		expect_name(watcher, dir, "file");
		expect_name(watcher, other, "moved");
		expect_inode(watcher, file);
		/* Over something. */
		struct lp_ino gone = lpi_t_file(t, dir, "gone");
		hold(t, gone);
		deafen(watcher);
		lp_test_ok(lpi_t_rename(t, other, "moved", dir, "gone", 0));
		expect_name(watcher, other, "moved");
		expect_name(watcher, dir, "gone");
		expect_inode(watcher, gone);
		deafen(watcher);
		lp_test_ok(lpi_t_remove(t, dir, "gone", false));
		expect_name(watcher, dir, "gone");
		expect_inode(watcher, file);
		deafen(watcher);
		lp_test_ok(lpi_t_remove(t, other, "link", false));
		expect_name(watcher, other, "link");
		/* Directories. */
		deafen(watcher);
		struct lp_ino sub = lpi_t_spread(t, dir, "sub");
		expect_name(watcher, dir, "sub");
		hold(t, sub);
		deafen(watcher);
		lp_test_ok(lpi_t_remove(t, dir, "sub", true));
		expect_name(watcher, dir, "sub");
		expect_inode(watcher, sub);
		forget(t, sub);
		forget(t, file);
		forget(t, gone);
		forget(t, dir);
	}
}

/* The kernel knows all changes of the mount itself. A failed operation and one that only reads
 * change nothing. */
static void check_silent(struct lpi_t *t, struct watcher *watcher)
{
	struct lp_ino dir = lpi_t_spread(t, root, "dir");
	hold(t, dir);
	deafen(watcher);
	for (uint32_t i = 0; i < 4; i++) {
		char name[] = "0";
		name[0] = (char)('0' + i);
		lpi_t_fill_make(t, dir, name, LP_INODE_TYPE_FILE);
		t->op->is_mounts = true;
		lp_test_ok(lpi_t_do(t));
	}
	assert_int_equal(lpi_t_remove(t, dir, "none", false), -ENOENT);
	assert_int_equal(lpi_t_make(t, dir, "0", LP_INODE_TYPE_FILE), -EEXIST);
	lp_test_ok(lpi_t_lookup(t, dir, "1"));
	lp_test_ok(lpi_t_stat(t, dir));
	assert_int_equal(watcher->tells, 0);
	/* Inodes that no kernel knows, or no longer knows. */
	forget(t, dir);
	lp_test_ok(lpi_t_remove(t, dir, "1", false));
	assert_int_equal(watcher->tells, 0);
	unwatch(t);
	(void)lpi_t_file(t, root, "unwatched");
	assert_int_equal(watcher->tells, 0);
}

/* --- Attributes and data ---------------------------------------------------------------------- */

static void txn(struct lpi_t *t, struct lp_change *changes, uint32_t cnt)
{
	lpi_t_op(t, LP_NS_STORE);
	t->op->store.ino = changes[0].ino;
	t->op->store.op.opcode = LP_STORE_TXN;
	t->op->store.op.txn.changes = changes;
	t->op->store.op.txn.change_cnt = cnt;
	lp_test_ok(lpi_t_do(t));
}

static void txn_data(struct lpi_t *t, enum lp_change_type type, struct lp_ino ino, uint64_t offset,
		     uint64_t length)
{
	struct lp_change change = {.type = type, .ino = ino};
	change.data.offset = offset;
	change.data.length = length;
	txn(t, &change, 1);
}

static void check_inodes(struct lpi_t *t, struct watcher *watcher)
{
	struct lp_ino dirs[] = {lpi_t_dir(t, root, "plain"), lpi_t_spread(t, root, "spread")};
	for (size_t d = 0; d < LP_ARRAY_SIZE(dirs); d++) {
		struct lp_ino file = lpi_t_file(t, dirs[d], "file");
		hold(t, file);
		deafen(watcher);
		lpi_t_op(t, LP_NS_SET);
		t->op->set.ino = file;
		t->op->set.attrs.mode = 0600;
		t->op->set.mask = LP_ATTR_MODE;
		lp_test_ok(lpi_t_do(t));
		expect_inode(watcher, file);
		assert_int_equal(watcher->cnt, 1);
		struct lp_change change = {.type = LP_CHANGE_XATTR_SET, .ino = file};
		change.named.name = lpi_t_bytes("user.a");
		change.named.value = lpi_t_bytes("value");
		deafen(watcher);
		txn(t, &change, 1);
		expect_inode(watcher, file);
		/* Longer, then a hole, then shorter; of several changes of data the range of all.
		 */
		deafen(watcher);
		txn_data(t, LP_CHANGE_TRUNCATE, file, 100000, 0);
		expect_data(watcher, file, 100000, 0);
		deafen(watcher);
		txn_data(t, LP_CHANGE_PUNCH, file, 4096, 8192);
		expect_data(watcher, file, 4096, 8192);
		deafen(watcher);
		txn_data(t, LP_CHANGE_TRUNCATE, file, 5000, 0);
		expect_data(watcher, file, 5000, 0);
		assert_int_equal(watcher->cnt, 1);
		forget(t, file);
		/* Of a directory: what a put made becomes one's own, too. */
		(void)put(t, d == 0 ? "made/by/put" : "made/again/by/put");
		struct lp_ino made = lpi_t_find(t, root, "made");
		hold(t, made);
		deafen(watcher);
		change.ino = made;
		txn(t, &change, 1);
		expect_inode(watcher, made);
		hold(t, dirs[d]);
		deafen(watcher);
		lpi_t_op(t, LP_NS_SET);
		t->op->set.ino = dirs[d];
		t->op->set.attrs.mtime_ns = 5;
		t->op->set.mask = LP_ATTR_MTIME;
		lp_test_ok(lpi_t_do(t));
		expect_inode(watcher, dirs[d]);
		assert_int_equal(watcher->cnt, 1);
		forget(t, made);
		forget(t, dirs[d]);
	}
}

/* Data that is written, also at the end, wherever that is. */
static void check_written(struct lpi_t *t, struct watcher *watcher)
{
	struct lp_ino file = lpi_t_file(t, root, "file");
	hold(t, file);
	for (uint32_t i = 0; i < 3; i++) {
		uint32_t home = (t->home + 1) % t->rig->shard_cnt;
		struct lp_buf *buf = lp_buf_new(t->rig->bufs[home], 100);
		assert_non_null(buf);
		memset(buf->data, 'x', 100);
		const struct lp_seg seg = {.buf = buf, .len = 100};
		uint32_t crc = lp_crc32c(0, buf->data, 100);
		struct lp_change change = {.type = LP_CHANGE_WRITE, .ino = file};
		change.data.offset = i == 0 ? 200 : LP_STORE_APPEND;
		change.data.length = 100;
		change.data.payload =
			(struct lp_payload){.segs = &seg, .crcs = &crc, .seg_cnt = 1, .crc_cnt = 1};
		deafen(watcher);
		txn(t, &change, 1);
		expect_data(watcher, file, 200 + UINT64_C(100) * i, 100);
		lp_buf_put(buf);
	}
	forget(t, file);
}

/* --- Paths ------------------------------------------------------------------------------------ */

/* All directories that a put makes and a delete takes along are said, however many, also when they
 * do not fit into one notice. */
static void check_paths(struct lpi_t *t, struct watcher *watcher)
{
	const char *path = "bucket/aaaaaaaaaa/bbbbbbbbbb/cccccccccc/dddddddddd/eeeeeeeeee/"
			   "ffffffffff/gggggggggg/hhhhhhhhhh/iiiiiiiiii/key";
	struct lp_ino dirs[11];
	char name[11] = "";
	uint32_t cnt = 0;
	/* The kernel has seen that there is no bucket. */
	deafen(watcher);
	struct lp_ino key = put(t, path);
	expect_name(watcher, root, "bucket");
	struct lp_ino dir = lpi_t_find(t, root, "bucket");
	for (int c = 'a'; c <= 'i'; c++) {
		dirs[cnt++] = dir;
		memset(name, c, sizeof(name) - 1);
		dir = lpi_t_find(t, dir, name);
		assert_true(dir.nr != 0);
	}
	dirs[cnt++] = dir;
	for (uint32_t i = 0; i < cnt; i++)
		hold(t, dirs[i]);
	hold(t, key);
	deafen(watcher);
	assert_int_not_equal(put(t, path).nr, key.nr);
	expect_name(watcher, dir, "key");
	expect_inode(watcher, key);
	assert_int_equal(watcher->cnt, 3);
	deafen(watcher);
	lpi_t_op(t, LP_NS_DELETE);
	t->op->delete.path = lpi_t_bytes(path);
	lp_test_ok(lpi_t_do(t));
	expect_name(watcher, dir, "key");
	for (uint32_t i = 0; i + 1 < cnt; i++) {
		memset(name, (int)('a' + i), sizeof(name) - 1);
		expect_name(watcher, dirs[i], name);
	}
	expect_name(watcher, root, "bucket");
	assert_true(watcher->tells > 1);
	for (uint32_t i = 0; i < cnt; i++)
		forget(t, dirs[i]);
	forget(t, key);
}

static void path_op(struct lpi_t *t, enum lp_ns_opcode opcode, const char *path, const char *to)
{
	lpi_t_op(t, opcode);
	t->op->copy.path = lpi_t_bytes(path);
	t->op->copy.to_path = lpi_t_bytes(to);
	lp_test_ok(lpi_t_do(t));
}

static void check_uploads(struct lpi_t *t, struct watcher *watcher)
{
	struct lp_ino old = put(t, "bucket/old");
	(void)put(t, "bucket/source");
	struct lp_ino bucket = lpi_t_find(t, root, "bucket");
	hold(t, bucket);
	hold(t, old);
	deafen(watcher);
	path_op(t, LP_NS_COPY, "bucket/source", "bucket/old");
	expect_name(watcher, bucket, "old");
	expect_inode(watcher, old);
	deafen(watcher);
	path_op(t, LP_NS_MOVE, "bucket/source", "bucket/moved");
	expect_name(watcher, bucket, "source");
	expect_name(watcher, bucket, "moved");
	lpi_t_op(t, LP_NS_UPLOAD);
	t->op->put.path = lpi_t_bytes("bucket/moved");
	t->op->put.mode = 0644;
	lp_test_ok(lpi_t_do(t));
	struct lp_ino upload = t->op->put.found.ino;
	deafen(watcher);
	fill_put(t, "bucket/moved");
	t->op->opcode = LP_NS_COMMIT;
	t->op->put.ino = upload;
	lp_test_ok(lpi_t_do(t));
	expect_name(watcher, bucket, "moved");
	forget(t, old);
	forget(t, bucket);
}

/* --- Waiting ---------------------------------------------------------------------------------- */

static void turns(struct lpi_t *t, uint32_t cnt)
{
	for (uint32_t i = 0; i < cnt; i++)
		(void)lpi_ns_rig_turn(t->rig);
}

/* Until the watcher has counted so far; time does not go on by itself to the limit. */
static void turn_until(struct lpi_t *t, const uint32_t *counted, uint32_t cnt)
{
	for (uint32_t i = 0; *counted < cnt; i++) {
		assert_true(i < LPI_T_TURNS_MAX);
		turns(t, 1);
	}
}

static uint32_t locks_cnt(const struct lpi_t *t)
{
	uint32_t cnt = 0;
	for (uint32_t i = 0; i < t->rig->shard_cnt; i++)
		cnt += lpi_locks_cnt(t->rig->ns[i]->locks);
	return cnt;
}

/* While the answer waits nothing is locked: the mount goes on with the same names (rule M3). */
static void check_waits(struct lpi_t *t, struct watcher *watcher)
{
	struct lpi_ns_hand native = {.op = {.opcode = LP_NS_MAKE}};
	struct lp_ino dir = lpi_t_spread(t, root, "dir");
	hold(t, dir);
	watcher->is_holding = true;
	native.op.make.dir = dir;
	native.op.make.name = lpi_t_bytes("name");
	native.op.make.type = LP_INODE_TYPE_FILE;
	lpi_ns_rig_submit(t->rig, 0, &native);
	turn_until(t, &watcher->waiting_cnt, 1);
	assert_false(native.is_done);
	assert_int_equal(locks_cnt(t), 0);
	assert_int_equal(lp_pool_free_cnt(t->rig->ns[0]->jobs), 64);
	/* It can be seen, of course. */
	lpi_t_op(t, LP_NS_RENAME);
	t->op->is_mounts = true;
	t->op->rename.dir = dir;
	t->op->rename.name = lpi_t_bytes("name");
	t->op->rename.to_dir = root;
	t->op->rename.to_name = lpi_t_bytes("other");
	lp_test_ok(lpi_t_do(t));
	assert_false(native.is_done);
	go_on(watcher);
	lp_test_ok(lpi_ns_rig_wait(t->rig, &native));
	assert_int_equal(watcher->lates, 0);
	forget(t, dir);
}

static void mounts_rename(struct lpi_t *t, struct lp_ino dir, const char *name, const char *to_name,
			  uint32_t flags)
{
	lpi_t_op(t, LP_NS_RENAME);
	t->op->is_mounts = true;
	t->op->rename.dir = dir;
	t->op->rename.name = lpi_t_bytes(name);
	t->op->rename.to_dir = dir;
	t->op->rename.to_name = lpi_t_bytes(to_name);
	t->op->rename.flags = flags;
	lp_test_ok(lpi_t_do(t));
}

/* Another object has the name, and the kernel does not know it yet when the mount renames the name.
 * The kernel moves the old entry. It is told of the new name after the rename, and the put is not
 * answered until it knows that. */
static void check_moved(struct lpi_t *t, struct watcher *watcher)
{
	static const uint32_t flags[] = {0, LP_NS_RENAME_EXCHANGE};
	struct lp_ino dir = lpi_t_spread(t, root, "dir");
	hold(t, dir);
	for (size_t i = 0; i < LP_ARRAY_SIZE(flags); i++) {
		struct lpi_ns_hand native = {.op = {.opcode = LP_NS_PUT}};
		hold(t, put(t, "dir/name"));
		(void)put(t, "dir/other");
		deafen(watcher);
		mounts_rename(t, dir, "other", "another", 0);
		assert_int_equal(watcher->tells, 0);
		mounts_rename(t, dir, "another", "other", 0);
		watcher->is_holding = true;
		native.op.put.path = lpi_t_bytes("dir/name");
		native.op.put.mode = 0644;
		lpi_ns_rig_submit(t->rig, 0, &native);
		turn_until(t, &watcher->waiting_cnt, 1);
		expect_name(watcher, dir, "name");
		deafen(watcher);
		/* The second time the name that is put is the one that something is exchanged for.
		 */
		if (flags[i] == 0)
			mounts_rename(t, dir, "name", "moved", 0);
		else
			mounts_rename(t, dir, "other", "name", flags[i]);
		assert_int_equal(watcher->waiting_cnt, 2);
		(void)expect(watcher, dir, flags[i] == 0 ? "moved" : "other");
		assert_int_equal(watcher->cnt, 1);
		struct lp_ns_notice *moved = watcher->waiting[--watcher->waiting_cnt];
		end_one(watcher, watcher->waiting[--watcher->waiting_cnt]);
		watcher->is_holding = false;
		turns(t, 100);
		assert_false(native.is_done);
		end_one(watcher, moved);
		lp_test_ok(lpi_ns_rig_wait(t->rig, &native));
		assert_int_equal(watcher->lates, 0);
	}
	forget(t, dir);
}

/* An operation waits only so long for the kernel to be told, once; the telling goes on all the
 * same. */
static void check_limit(struct lpi_t *t, struct watcher *watcher)
{
	struct lp_ns_stats stats;
	struct lp_ino dir = lpi_t_spread(t, root, "dir");
	uint64_t lates = 0;
	hold(t, dir);
	watcher->is_holding = true;
	uint64_t began_ns = t->rig->clock.now_ns;
	lp_test_ok(lpi_t_make(t, dir, "name", LP_INODE_TYPE_FILE));
	assert_in_range(t->rig->clock.now_ns - began_ns, 2 * LP_NS_PER_S, 3 * LP_NS_PER_S);
	assert_int_equal(watcher->waiting_cnt, 1);
	assert_int_equal(watcher->lates, 1);
	for (uint32_t i = 0; i < t->rig->shard_cnt; i++) {
		lp_ns_read_stats(t->rig->ns[i], &stats);
		lates += stats.told_late;
	}
	assert_int_equal(lates, 1);
	go_on(watcher);
	forget(t, dir);
}

/* An inode that the kernel does not know although it is held will come to know it, so it is told
 * until it does, or has been found to have forgotten it. */
static void check_unknown(struct lpi_t *t, struct watcher *watcher)
{
	struct lpi_ns_hand native = {.op = {.opcode = LP_NS_SET}};
	struct lp_ino dir = lpi_t_dir(t, root, "dir");
	struct lp_ino file = lpi_t_file(t, dir, "file");
	for (uint32_t forgets = 0; forgets < 2; forgets++) {
		hold(t, file);
		deafen(watcher);
		watcher->unknown = file.nr;
		native.op.set.ino = file;
		native.op.set.attrs.mode = 0600;
		native.op.set.mask = LP_ATTR_MODE;
		lpi_ns_rig_submit(t->rig, 0, &native);
		turn_until(t, &watcher->tells, 10);
		assert_false(native.is_done);
		if (forgets == 0)
			watcher->unknown = 0;
		else
			forget(t, file);
		lp_test_ok(lpi_ns_rig_wait(t->rig, &native));
		assert_in_range(watcher->tells, 10, 12);
		if (forgets == 0)
			forget(t, file);
	}
	/* A name that it does not know is as good as told. */
	hold(t, dir);
	deafen(watcher);
	watcher->unknown = 0;
	(void)lpi_t_file(t, dir, "other");
	assert_int_equal(watcher->tells, 1);
	forget(t, dir);
}

/* Without memory to count what the kernel was told of, any inode may be known to it; but an answer
 * is on its way for a moment only, and so whoever changes something waits no longer than that. */
static void check_uncounted(struct lpi_t *t, struct watcher *watcher)
{
	struct lp_ino file = lpi_t_file(t, root, "file");
	lpi_opens_miss(t->rig->ns[lp_ino_shard(file)]->opens);
	deafen(watcher);
	watcher->unknown = file.nr;
	uint64_t began_ns = t->rig->clock.now_ns;
	lpi_t_op(t, LP_NS_SET);
	t->op->set.ino = file;
	t->op->set.attrs.mode = 0600;
	t->op->set.mask = LP_ATTR_MODE;
	lp_test_ok(lpi_t_do(t));
	assert_in_range(t->rig->clock.now_ns - began_ns, 40 * LP_NS_PER_MS, 100 * LP_NS_PER_MS);
	assert_true(watcher->tells > 2);
	assert_int_equal(watcher->lates, 0);
	watcher->unknown = 0;
}

/* Operations that wait when the mount ends are answered then; the order of the two does not
 * matter. */
static void check_unwatched(struct lpi_t *t, struct watcher *watcher)
{
	struct lpi_ns_hand native = {.op = {.opcode = LP_NS_SET}};
	struct lp_ino file = lpi_t_file(t, root, "file");
	hold(t, file);
	watcher->unknown = file.nr;
	native.op.set.ino = file;
	native.op.set.attrs.mode = 0600;
	native.op.set.mask = LP_ATTR_MODE;
	lpi_ns_rig_submit(t->rig, 0, &native);
	turn_until(t, &watcher->tells, 3);
	unwatch(t);
	lp_test_ok(lpi_ns_rig_wait(t->rig, &native));
	assert_true(watcher->tells <= 4);
	/* And what was under way when a mount began is told to that. */
	lpi_ns_rig_submit(t->rig, 0, &native);
	watch(watcher, t);
	lp_test_ok(lpi_ns_rig_wait(t->rig, &native));
	expect_inode(watcher, file);
	forget(t, file);
}

/* More than there are notices wait for them to come back, but the mount does not; and when the
 * namespace stops, those that wait are refused, and those that are being told are answered. */
static void check_crowd(struct lpi_t *t, struct watcher *watcher)
{
	static struct lpi_ns_hand natives[40];
	static char names[40][4];
	uint32_t refused = 0;
	watcher->is_holding = true;
	struct lp_ns *ns = t->rig->ns[0];
	const uint32_t cnt = LP_ARRAY_SIZE(natives);
	/* As if the others were out. */
	ns->notices_out += LPI_NOTICES_MAX - 8;
	for (uint32_t i = 0; i < cnt; i++) {
		(void)snprintf(names[i], sizeof(names[i]), "%u", i);
		natives[i] = (struct lpi_ns_hand){.op = {.opcode = LP_NS_MAKE}};
		natives[i].op.make.dir = root;
		natives[i].op.make.name = lpi_t_bytes(names[i]);
		natives[i].op.make.type = LP_INODE_TYPE_FILE;
	}
	for (uint32_t i = 0; i < 8; i++) {
		lpi_ns_rig_submit(t->rig, 0, &natives[i]);
		turn_until(t, &watcher->waiting_cnt, i + 1);
	}
	for (uint32_t i = 8; i < 20; i++)
		lpi_ns_rig_submit(t->rig, 0, &natives[i]);
	lpi_t_op(t, LP_NS_LOOKUP);
	t->op->is_mounts = true;
	t->op->lookup.dir = root;
	t->op->lookup.name = lpi_t_bytes("7");
	lpi_ns_rig_submit(t->rig, 0, &t->hand);
	lp_test_ok(lpi_ns_rig_wait(t->rig, &t->hand));
	for (uint32_t i = 0; i < 20; i++)
		assert_false(natives[i].is_done);
	go_on(watcher);
	for (uint32_t i = 0; i < 20; i++)
		lp_test_ok(lpi_ns_rig_wait(t->rig, &natives[i]));
	/* The same, and then it stops. */
	watcher->is_holding = true;
	for (uint32_t i = 20; i < 28; i++) {
		lpi_ns_rig_submit(t->rig, 0, &natives[i]);
		turn_until(t, &watcher->waiting_cnt, i - 19);
	}
	for (uint32_t i = 28; i < 40; i++)
		lpi_ns_rig_submit(t->rig, 0, &natives[i]);
	ns->notices_out -= LPI_NOTICES_MAX - 8;
	t->rig->stopped_cnt = 0;
	for (uint32_t i = 0; i < t->rig->shard_cnt; i++)
		lp_ns_stop(t->rig->ns[i], lpi_ns_rig_stopped, t->rig);
	turns(t, 20);
	assert_int_equal(t->rig->stopped_cnt, 0);
	for (uint32_t i = 28; i < 40; i++) {
		assert_true(natives[i].is_done);
		refused += natives[i].op.result == -EAGAIN ? 1 : 0;
	}
	assert_int_equal(refused, 12);
	go_on(watcher);
	for (uint32_t i = 20; i < 28; i++)
		lp_test_ok(lpi_ns_rig_wait(t->rig, &natives[i]));
	for (uint32_t i = 0; t->rig->stopped_cnt < t->rig->shard_cnt; i++) {
		assert_true(i < LPI_T_TURNS_MAX);
		turns(t, 1);
	}
	for (uint32_t i = 0; i < t->rig->shard_cnt; i++)
		lp_ns_close(t->rig->ns[i]);
	lp_test_ok(lpi_ns_rig_start(t->rig));
}

#define TEST(name)                                                                                 \
	static void test_##name(void **state)                                                      \
	{                                                                                          \
		(void)state;                                                                       \
		on_all(check_##name);                                                              \
	}
TEST(names)
TEST(silent)
TEST(inodes)
TEST(written)
TEST(paths)
TEST(uploads)
TEST(waits)
TEST(moved)
TEST(limit)
TEST(unknown)
TEST(uncounted)
TEST(unwatched)
TEST(crowd)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_names),     cmocka_unit_test(test_silent),
		cmocka_unit_test(test_inodes),    cmocka_unit_test(test_written),
		cmocka_unit_test(test_paths),     cmocka_unit_test(test_uploads),
		cmocka_unit_test(test_waits),     cmocka_unit_test(test_moved),
		cmocka_unit_test(test_limit),     cmocka_unit_test(test_unknown),
		cmocka_unit_test(test_uncounted), cmocka_unit_test(test_unwatched),
		cmocka_unit_test(test_crowd),
	};
	return lp_test_main(tests, "namespace/change/notices");
}
