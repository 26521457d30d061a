/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: a put replaces wholly, carries over what rule W3 says, makes what is missing, and is one
 * transaction where it can be; uploads do the same in pieces. Method: on one to three shards in
 * simulated time, each operation submitted on the next one; transactions of the stores are counted.
 */
#include "namespace/ops/paths_rig_test.h"
#include "namespace/state/acl_rig_test.h"

static void basic_on(uint32_t shard_cnt)
{
	struct lpi_t t;
	lpi_t_begin(&t, shard_cnt);
	lp_test_ok(lpi_tp_put(&t, "a/b/c", 5000));
	struct lp_ino ino = t.op->put.found.ino;
	const struct lp_attrs told = t.op->put.found.attrs;
	assert_int_equal(told.size_bytes, 5000);
	assert_int_equal(told.nlink, 1);
	assert_int_equal(lpi_tp_find(&t, "a/b/c").nr, ino.nr);
	const struct lp_attrs *found = &t.op->walk.found.attrs;
	assert_int_equal(found->size_bytes, 5000);
	assert_int_equal(found->mode, 0640);
	assert_int_equal(found->uid, 7);
	assert_int_equal(found->version_nr, told.version_nr);
	assert_int_equal(found->mtime_ns, told.mtime_ns);
	assert_int_equal(lpi_tp_length(&t, "a/b/c"), 5000);
	/* Rule N2: directories that a put makes are marked, and spread as those above them. */
	lp_test_ok(lpi_tp_walk(&t, "a"));
	assert_int_equal(t.op->walk.found.attrs.flags,
			 LP_INODE_FLAG_MADE_BY_PUT | LP_INODE_FLAG_SPREAD);
	(void)lpi_tp_find(&t, "a/b");
	assert_int_equal(t.op->walk.found.attrs.flags,
			 LP_INODE_FLAG_MADE_BY_PUT | LP_INODE_FLAG_SPREAD);
	struct lp_ino plain = lpi_t_dir(&t, LP_INO_ROOT, "plain");
	lp_test_ok(lpi_tp_put(&t, "plain/d/x", 1));
	(void)lpi_tp_find(&t, "plain/d");
	assert_int_equal(t.op->walk.found.attrs.flags, LP_INODE_FLAG_MADE_BY_PUT);
	assert_int_equal(lpi_t_nlink(&t, plain), 3);
	/* A key without a slash is a file in the root (rule N6); empty objects. */
	lp_test_ok(lpi_tp_put(&t, "top", 0));
	assert_int_equal(lpi_tp_length(&t, "top"), 0);
	/* Again, with less: it is a new inode, and nothing of the old one is left. */
	lp_test_ok(lpi_tp_put(&t, "a/b/c", 10));
	assert_true(t.op->put.found.ino.nr != ino.nr);
	assert_int_equal(lpi_tp_length(&t, "a/b/c"), 10);
	assert_int_equal(lpi_t_stat(&t, ino), -ESTALE);
	/* Rule N6. */
	assert_int_equal(lpi_tp_put(&t, "a", 1), -EISDIR);
	assert_int_equal(lpi_tp_put(&t, "a/b", 1), -EISDIR);
	assert_int_equal(lpi_tp_put(&t, "", 1), -EISDIR);
	assert_int_equal(lpi_tp_put(&t, "a/b/c/d", 1), -ENOTDIR);
	assert_int_equal(lpi_tp_put(&t, "top/x/y", 1), -ENOTDIR);
	assert_int_equal(lpi_tp_put(&t, "a//b", 1), -EINVAL);
	assert_int_equal(lpi_tp_put(&t, "a/b/", 1), -EINVAL);
	assert_int_equal(lpi_tp_put(&t, "a/../b", 1), -EINVAL);
	/* In the place of what is no file. */
	lp_test_ok(lpi_t_make(&t, plain, "s", LP_INODE_TYPE_SYMLINK));
	lp_test_ok(lpi_tp_put(&t, "plain/s", 7));
	assert_int_equal(lpi_tp_length(&t, "plain/s"), 7);
	assert_int_equal(lpi_t_attrs(&t, lpi_tp_find(&t, "plain/s")).mode, 0640);
	lpi_tp_end(&t, 9);
}

static void test_basic(void **state)
{
	(void)state;
	for (uint32_t i = 1; i <= 3; i++)
		basic_on(i);
}

/* Rule N5: whether the replaced file is open is checked when the put can go on, not before it waits
 * for buffers. */
static void test_opened_while_it_waits(void **state)
{
	(void)state;
	struct lpi_t t;
	struct lpi_tp_put put;
	static struct lp_buf *all[8192];
	uint32_t cnt = 0;
	lpi_t_begin(&t, 2);
	struct lp_ino dir = lpi_t_dir(&t, LP_INO_ROOT, "dir");
	uint32_t there = lp_ino_shard(dir);
	lp_test_ok(lpi_tp_put(&t, "dir/x", 100));
	struct lp_ino old = lpi_tp_find(&t, "dir/x");
	assert_int_equal(lp_ino_shard(old), there);
	uint32_t sizes[] = {LP_BUF_LARGE, LP_BUF_MEDIUM, LP_BUF_SMALL};
	for (size_t i = 0; i < LP_ARRAY_SIZE(sizes); i++) {
		while (cnt < LP_ARRAY_SIZE(all) &&
		       (all[cnt] = lp_buf_new(t.rig->bufs[there], sizes[i])) != NULL)
			cnt++;
	}
	assert_true(cnt < LP_ARRAY_SIZE(all));
	lpi_tp_put_fill(&put, &t, 1 - there, "dir/x", 5000);
	lpi_ns_rig_submit(t.rig, 1 - there, &put.hand);
	for (uint32_t i = 0; i < 100; i++)
		(void)lpi_ns_rig_turn(t.rig);
	assert_false(put.hand.is_done);
	t.home = there;
	lp_test_ok(lpi_t_open(&t, old));
	while (cnt > 0)
		lp_buf_put(all[--cnt]);
	lp_test_ok(lpi_ns_rig_wait(t.rig, &put.hand));
	lpi_tp_put_drop(&put);
	assert_int_equal(lpi_tp_length(&t, "dir/x"), 5000);
	assert_int_equal(lpi_t_attrs(&t, old).size_bytes, 100);
	assert_int_equal(lpi_t_nlink(&t, old), 0);
	lp_test_ok(lpi_t_close(&t, old));
	lpi_t_idle(&t);
	assert_int_equal(lpi_t_stat(&t, old), -ESTALE);
	lpi_tp_end(&t, 3);
}

/* Rule W3: mode, owner and ACL are carried over, xattrs are those of the request, other hard links
 * keep the old data. */
static void carry_on(uint32_t shard_cnt)
{
	struct lpi_t t;
	lpi_t_begin(&t, shard_cnt);
	lp_test_ok(lpi_tp_put(&t, "a/x", 100));
	struct lp_ino old = t.op->put.found.ino;
	lpi_t_op(&t, LP_NS_SET);
	t.op->set.ino = old;
	t.op->set.mask = LP_ATTR_MODE | LP_ATTR_UID | LP_ATTR_GID;
	t.op->set.attrs = (struct lp_attrs){.mode = 0604, .uid = 70, .gid = 80};
	lp_test_ok(lpi_t_do(&t));
	lpi_tp_set_xattr(&t, old, "system.posix_acl_access", "an ACL");
	lpi_tp_set_xattr(&t, old, "user.old", "gone");
	struct lp_ino links = lpi_t_dir(&t, LP_INO_ROOT, "links");
	lp_test_ok(lpi_t_link(&t, old, links, "x"));
	lpi_t_later(&t);
	const struct lp_ns_named_value xattr = {LPI_NS_RIG_BYTES("user.new"),
						LPI_NS_RIG_BYTES("here")};
	struct lpi_tp_put put;
	lpi_tp_put_fill(&put, &t, t.home, "a/x", 200);
	put.hand.op.put.xattrs = &xattr;
	put.hand.op.put.xattr_cnt = 1;
	put.hand.op.put.mtime_ns = 12345;
	lp_test_ok(lpi_ns_rig_do(t.rig, t.home, &put.hand));
	lpi_tp_put_drop(&put);
	struct lp_ino ino = lpi_tp_find(&t, "a/x");
	struct lp_attrs attrs = t.op->walk.found.attrs;
	assert_int_equal(attrs.mode, 0604);
	assert_int_equal(attrs.uid, 70);
	assert_int_equal(attrs.gid, 80);
	assert_int_equal(attrs.mtime_ns, 12345);
	assert_true(lpi_tp_has_xattr(&t, ino, "system.posix_acl_access", "an ACL"));
	assert_true(lpi_tp_has_xattr(&t, ino, "user.new", "here"));
	assert_true(lpi_tp_has_xattr(&t, ino, "user.old", NULL));
	assert_int_equal(lpi_tp_length(&t, "links/x"), 100);
	assert_int_equal(lpi_tp_find(&t, "links/x").nr, old.nr);
	assert_int_equal(lpi_t_nlink(&t, old), 1);
	/* Over the other link, which may be on another shard than its entry. */
	lp_test_ok(lpi_tp_put(&t, "links/x", 300));
	assert_true(lpi_tp_has_xattr(&t, lpi_tp_find(&t, "links/x"), "system.posix_acl_access",
				     "an ACL"));
	assert_int_equal(lpi_t_attrs(&t, lpi_tp_find(&t, "links/x")).uid, 70);
	assert_int_equal(lpi_t_stat(&t, old), -ESTALE);
	lpi_tp_end(&t, 5);
}

/* A put that brings an access list brings the mode that this is, new or over another one. */
static void put_list_on(uint32_t shard_cnt)
{
	struct lpi_t t;
	uint8_t list[LPI_T_LIST_BYTES];
	lpi_t_begin(&t, shard_cnt);
	for (uint8_t mask = 1; mask <= 7; mask++) {
		lpi_t_list_fill(list, mask);
		const struct lp_ns_named_value xattr = {.name = lp_acl_access_name(),
							.value = {list, sizeof(list)}};
		struct lpi_tp_put put;
		lpi_tp_put_fill(&put, &t, t.home, "a/x", 200);
		put.hand.op.put.xattrs = &xattr;
		put.hand.op.put.xattr_cnt = 1;
		lp_test_ok(lpi_ns_rig_do(t.rig, t.home, &put.hand));
		lpi_tp_put_drop(&put);
		assert_int_equal(put.hand.op.put.found.attrs.mode, 0600 | mask << 3);
		lpi_t_list_agrees(&t, put.hand.op.put.found.ino);
	}
	lpi_tp_end(&t, 3);
}

static void test_put_list(void **state)
{
	(void)state;
	for (uint32_t i = 1; i <= 3; i++)
		put_list_on(i);
}

static void test_carry(void **state)
{
	(void)state;
	for (uint32_t i = 1; i <= 3; i++)
		carry_on(i);
}

/* The attributes that are carried over change, without a lock, while the put is at work: it takes
 * over each change that was answered before it. */
enum carried {
	CARRIED_MODE,
	CARRIED_OWNER,
	CARRIED_NEW_ACL,
	CARRIED_ACL,
	CARRIED_NO_ACL,
	CARRIED_CNT
};

static void fill_carried(struct lp_ns_op *op, struct lp_change *change, struct lp_ino ino,
			 enum carried what)
{
	static const struct lp_attrs attrs = {.mode = 0604, .gid = 80};
	change->ino = ino;
	if (what <= CARRIED_OWNER) {
		change->type = LP_CHANGE_SET;
		change->inode.mask = what == CARRIED_MODE ? LP_ATTR_MODE : LP_ATTR_GID;
		change->inode.attrs = &attrs;
	} else {
		bool is_set = what != CARRIED_NO_ACL;
		change->type = is_set ? LP_CHANGE_XATTR_SET : LP_CHANGE_XATTR_REMOVE;
		change->named.name = lp_acl_access_name();
		if (is_set)
			change->named.value = LPI_NS_RIG_BYTES("another");
	}
	op->opcode = LP_NS_STORE;
	op->store.ino = ino;
	op->store.op = (struct lp_store_op){.opcode = LP_STORE_TXN,
					    .txn = {.changes = change, .change_cnt = 1}};
}

static void check_carried(struct lpi_t *t, enum carried what)
{
	struct lp_ino ino = lpi_tp_find(t, "a/x");
	struct lp_attrs attrs = t->op->walk.found.attrs;
	const char *acl = "an ACL";
	if (what == CARRIED_MODE)
		assert_int_equal(attrs.mode, 0604);
	if (what == CARRIED_OWNER)
		assert_int_equal(attrs.gid, 80);
	if (what == CARRIED_ACL || what == CARRIED_NEW_ACL)
		acl = "another";
	if (what <= CARRIED_OWNER || what == CARRIED_NO_ACL)
		acl = NULL;
	assert_true(lpi_tp_has_xattr(t, ino, "system.posix_acl_access", acl));
}

static bool carry_at(struct lpi_t *t, enum carried what, uint32_t turns)
{
	lp_test_ok(lpi_tp_put(t, "a/x", 100));
	struct lp_ino old = t->op->put.found.ino;
	if (what == CARRIED_ACL || what == CARRIED_NO_ACL)
		lpi_tp_set_xattr(t, old, "system.posix_acl_access", "an ACL");
	for (uint32_t i = 0; i < 2; i++) /* its version is far behind */
		lpi_t_later(t);
	struct lp_change change = {0};
	struct lpi_ns_hand hand = {.is_done = false};
	struct lpi_tp_put put;
	fill_carried(&hand.op, &change, old, what);
	lpi_tp_put_fill(&put, t, 0, "a/x", 200);
	lpi_ns_rig_submit(t->rig, 0, &put.hand);
	for (uint32_t n = 0; n < turns && !put.hand.is_done; n++)
		(void)lpi_ns_rig_turn(t->rig);
	bool was_meanwhile = !put.hand.is_done;
	lpi_ns_rig_submit(t->rig, lp_ino_shard(old), &hand);
	int r = lpi_ns_rig_wait(t->rig, &hand);
	hand.op.store.op.txn.changes = NULL;
	lp_test_ok(lpi_ns_rig_wait(t->rig, &put.hand));
	lpi_tp_put_drop(&put);
	assert_true(r == 0 || r == -ESTALE || r == -ENOENT);
	if (r == 0)
		check_carried(t, what);
	lp_test_ok(lpi_tp_delete(t, "a/x"));
	return was_meanwhile;
}

static void test_carry_meanwhile(void **state)
{
	(void)state;
	for (uint32_t shards = 1; shards <= 3; shards++) {
		struct lpi_t t;
		lpi_t_begin(&t, shards);
		for (uint32_t i = 0; i < CARRIED_CNT; i++) {
			for (uint32_t turns = 0; carry_at(&t, (enum carried)i, turns); turns++)
				continue;
		}
		lpi_tp_end(&t, 1);
	}
}

/* As much as there can be in one change: all xattrs that it takes, a list that is carried over, and
 * an old object that somebody has open. */
static void test_carry_most(void **state)
{
	(void)state;
	struct lp_ns_named_value xattrs[2 * LP_NS_XATTRS_MAX];
	char names[2 * LP_NS_XATTRS_MAX][16];
	for (uint32_t i = 0; i < LP_ARRAY_SIZE(xattrs); i++) {
		(void)snprintf(names[i], sizeof(names[i]), "user.%u", i);
		xattrs[i] = (struct lp_ns_named_value){lpi_t_bytes(names[i]),
						       LPI_NS_RIG_BYTES("value")};
	}
	for (uint32_t i = 0; i < 6; i++) {
		struct lpi_t t;
		lpi_t_begin(&t, 1 + i / 2);
		lp_test_ok(lpi_tp_put(&t, "a/x", 100));
		struct lp_ino old = t.op->put.found.ino;
		lpi_tp_set_xattr(&t, old, "system.posix_acl_access", "an ACL");
		lp_test_ok(lpi_t_open(&t, old));
		for (uint32_t n = 0; n < 2; n++)
			lpi_t_later(&t);
		struct lpi_tp_put put;
		lpi_tp_put_fill(&put, &t, 0, "a/x", 200);
		put.hand.op.put.xattrs = xattrs;
		put.hand.op.put.xattr_cnt = (1 + i % 2) * LP_NS_XATTRS_MAX;
		lp_test_ok(lpi_ns_rig_do(t.rig, 0, &put.hand));
		lpi_tp_put_drop(&put);
		assert_true(lpi_tp_has_xattr(&t, lpi_tp_find(&t, "a/x"), "user.7", "value"));
		lp_test_ok(lpi_t_close(&t, old));
		lpi_tp_end(&t, 3);
	}
}

/* Rule W3: a client that has the old object open reads it to its end. */
static void test_open(void **state)
{
	(void)state;
	struct lpi_t t;
	lpi_t_begin(&t, 3);
	lp_test_ok(lpi_tp_put(&t, "a/x", 100));
	struct lp_ino old = t.op->put.found.ino;
	lp_test_ok(lpi_t_open(&t, old));
	lp_test_ok(lpi_tp_put(&t, "a/x", 200));
	assert_int_equal(lpi_tp_length_of(&t, old), 100);
	assert_int_equal(lpi_t_nlink(&t, old), 0);
	lp_test_ok(lpi_t_close(&t, old));
	lpi_t_idle(&t);
	assert_int_equal(lpi_t_stat(&t, old), -ESTALE);
	lpi_tp_end(&t, 3);
}

static void test_conditions(void **state)
{
	(void)state;
	struct lpi_t t;
	lpi_t_begin(&t, 3);
	assert_int_equal(lpi_tp_put_if(&t, "a/x", 1, LP_NS_IF_EXISTS, 0), -ENOENT);
	assert_int_equal(lpi_tp_put_if(&t, "a/x", 1, LP_NS_IF_VERSION, 1), -ENOENT);
	assert_int_equal(lpi_tp_walk(&t, "a"), -ENOENT); /* nothing was made */
	lp_test_ok(lpi_tp_put_if(&t, "a/x", 2, LP_NS_IF_ABSENT, 0));
	assert_int_equal(lpi_tp_put_if(&t, "a/x", 3, LP_NS_IF_ABSENT, 0), -EEXIST);
	assert_int_equal(lpi_tp_put_if(&t, "a/y", 3, LP_NS_IF_EXISTS, 0), -ENOENT);
	lp_test_ok(lpi_tp_put_if(&t, "a/x", 4, LP_NS_IF_EXISTS, 0));
	struct lp_ino ino = t.op->put.found.ino;
	uint64_t version_nr = t.op->put.found.attrs.version_nr;
	assert_int_equal(lpi_tp_put_if(&t, "a/x", 5, LP_NS_IF_VERSION, version_nr + 1), -ECANCELED);
	lpi_tp_set_xattr(&t, ino, "user.x", "changes the version");
	assert_int_equal(lpi_tp_put_if(&t, "a/x", 5, LP_NS_IF_VERSION, version_nr), -ECANCELED);
	version_nr = lpi_t_attrs(&t, ino).version_nr;
	lp_test_ok(lpi_tp_put_if(&t, "a/x", 6, LP_NS_IF_VERSION, version_nr));
	assert_int_equal(lpi_tp_length(&t, "a/x"), 6);
	ino = t.op->store.ino;
	version_nr = lpi_t_attrs(&t, ino).version_nr;
	assert_int_equal(lpi_tp_delete_as(&t, "a/x", false, LP_NS_IF_VERSION, version_nr + 1),
			 -ECANCELED);
	assert_int_equal(lpi_tp_delete_as(&t, "a/x", false, LP_NS_IF_ABSENT, 0), -EINVAL);
	lp_test_ok(lpi_tp_delete_as(&t, "a/x", false, LP_NS_IF_VERSION, version_nr));
	assert_int_equal(lpi_tp_delete_as(&t, "a/x", false, LP_NS_IF_EXISTS, 0), -ENOENT);
	lpi_tp_end(&t, 1);
}

/* A put is one transaction, new or in the place of another; and the directories that are missing
 * are one each. */
static void count_on(uint32_t shard_cnt)
{
	struct lpi_t t;
	lpi_t_begin(&t, shard_cnt);
	uint64_t before = lpi_tp_txns(&t);
	lp_test_ok(lpi_tp_put(&t, "a/b/c", 100));
	assert_int_equal(lpi_tp_txns(&t) - before, 3);
	for (uint32_t i = 0; i < 6; i++) {
		before = lpi_tp_txns(&t);
		lp_test_ok(lpi_tp_put(&t, "a/b/c", 100 + i));
		assert_int_equal(lpi_tp_txns(&t) - before, 1);
		before = lpi_tp_txns(&t);
		char path[16];
		(void)snprintf(path, sizeof(path), "a/b/%u", i);
		lp_test_ok(lpi_tp_put(&t, path, 100));
		assert_int_equal(lpi_tp_txns(&t) - before, 1);
		before = lpi_tp_txns(&t);
		lp_test_ok(lpi_tp_delete(&t, path));
		assert_int_equal(lpi_tp_txns(&t) - before, 1);
	}
	lp_test_ok(lpi_t_make(&t, lpi_tp_find(&t, "a/b"), "stays", LP_INODE_TYPE_FIFO));
	lpi_tp_end(&t, 5);
}

static void test_count(void **state)
{
	(void)state;
	for (uint32_t i = 1; i <= 3; i++)
		count_on(i);
}

/* More xattrs than one transaction takes: still all or nothing. */
static void test_many_xattrs(void **state)
{
	(void)state;
	struct lpi_t t;
	static char names[LP_NS_PUT_XATTRS_MAX + 1][16];
	struct lp_ns_named_value xattrs[LP_NS_PUT_XATTRS_MAX + 1];
	lpi_t_begin(&t, 3);
	for (uint32_t i = 0; i <= LP_NS_PUT_XATTRS_MAX; i++) {
		(void)snprintf(names[i], sizeof(names[i]), "user.%u", i);
		xattrs[i] =
			(struct lp_ns_named_value){lpi_t_bytes(names[i]), lpi_t_bytes(names[i])};
	}
	static const uint32_t cnts[] = {8, 9, 16, 17, 24, LP_NS_PUT_XATTRS_MAX};
	for (size_t i = 0; i < LP_ARRAY_SIZE(cnts); i++) {
		struct lpi_tp_put put;
		t.home = (uint32_t)i % 3;
		lpi_tp_put_fill(&put, &t, t.home, "a/x", 3000);
		put.hand.op.put.xattrs = xattrs;
		put.hand.op.put.xattr_cnt = cnts[i];
		lp_test_ok(lpi_ns_rig_do(t.rig, t.home, &put.hand));
		lpi_tp_put_drop(&put);
		struct lp_ino ino = lpi_tp_find(&t, "a/x");
		for (uint32_t n = 0; n < cnts[i]; n++)
			assert_true(lpi_tp_has_xattr(&t, ino, names[n], names[n]));
		assert_true(lpi_tp_has_xattr(&t, ino, names[cnts[i]], NULL));
		assert_int_equal(lpi_tp_length(&t, "a/x"), 3000);
	}
	struct lpi_tp_put put;
	lpi_tp_put_fill(&put, &t, 0, "a/x", 0);
	put.hand.op.put.xattrs = xattrs;
	put.hand.op.put.xattr_cnt = LP_NS_PUT_XATTRS_MAX + 1;
	assert_int_equal(lpi_ns_rig_do(t.rig, 0, &put.hand), -E2BIG);
	/* A put that cannot take its name leaves nothing. */
	put.hand.op.put.xattr_cnt = 20;
	put.hand.op.put.path = lpi_t_bytes("a");
	assert_int_equal(lpi_ns_rig_do(t.rig, 0, &put.hand), -EISDIR);
	lpi_tp_end(&t, 3);
}

/* --- Uploads ---------------------------------------------------------------------------------- */

static int upload(struct lpi_t *t, const char *path, struct lp_ino *ret_ino)
{
	lpi_t_op(t, LP_NS_UPLOAD);
	t->op->put.path = lpi_t_bytes(path);
	t->op->put.mode = 0600;
	int r = lpi_t_do(t);
	if (r >= 0)
		*ret_ino = t->op->put.found.ino;
	return r;
}

static int commit(struct lpi_t *t, struct lp_ino ino, const char *path, enum lp_ns_if condition)
{
	lpi_t_op(t, LP_NS_COMMIT);
	t->op->put.path = lpi_t_bytes(path);
	t->op->put.ino = ino;
	t->op->put.mode = 0640;
	t->op->put.condition = condition;
	t->op->who = (struct lp_ns_who){.uid = 7, .gid = 8};
	return lpi_t_do(t);
}

static void upload_on(uint32_t shard_cnt)
{
	struct lpi_t t;
	struct lp_ino ino = {0};
	lpi_t_begin(&t, shard_cnt);
	lp_test_ok(upload(&t, "a/b/x", &ino));
	assert_int_equal(lpi_tp_walk(&t, "a"), -ENOENT); /* nothing is made before the commit */
	assert_int_equal(lpi_t_nlink(&t, ino), 0);
	lpi_tp_write(&t, ino, 0, 8192, 12289 & 0xff);
	lpi_tp_write(&t, ino, 8192, 4097, 12289 & 0xff);
	lp_test_ok(commit(&t, ino, "a/b/x", LP_NS_IF_ANY));
	assert_int_equal(t.op->put.found.ino.nr, ino.nr);
	assert_int_equal(t.op->put.found.attrs.size_bytes, 12289);
	struct lp_attrs told = t.op->put.found.attrs;
	assert_int_equal(lpi_tp_length(&t, "a/b/x"), 12289);
	struct lp_attrs attrs = lpi_t_attrs(&t, ino);
	assert_int_equal(attrs.nlink, 1);
	assert_int_equal(attrs.mode, 0640);
	assert_int_equal(attrs.uid, 7);
	assert_int_equal(attrs.version_nr, told.version_nr);
	assert_int_equal(lpi_t_close(&t, ino), -EINVAL); /* it was closed by the commit */
	assert_int_equal(commit(&t, ino, "a/b/y", LP_NS_IF_ANY), -ESTALE);
	/* In the place of another, which is open; then one that fails, and is given up. */
	struct lp_ino next;
	lp_test_ok(lpi_t_open(&t, ino));
	lp_test_ok(upload(&t, "a/b/x", &next));
	lpi_tp_write(&t, next, 0, 100, 100);
	assert_int_equal(commit(&t, next, "a/b", LP_NS_IF_ANY), -EISDIR);
	assert_int_equal(commit(&t, next, "a/b/x", LP_NS_IF_ABSENT), -EEXIST);
	assert_int_equal(lpi_t_nlink(&t, next), 0);
	lp_test_ok(commit(&t, next, "a/b/x", LP_NS_IF_EXISTS));
	assert_int_equal(lpi_tp_length(&t, "a/b/x"), 100);
	assert_int_equal(lpi_tp_length_of(&t, ino), 12289);
	lp_test_ok(lpi_t_close(&t, ino));
	lp_test_ok(upload(&t, "a/b/z", &next));
	lp_test_ok(lpi_t_close(&t, next));
	lpi_t_idle(&t);
	assert_int_equal(lpi_t_stat(&t, next), -ESTALE);
	assert_int_equal(commit(&t, next, "a/b/z", LP_NS_IF_ANY), -ESTALE);
	/* Where it is named may be on another shard than was thought. */
	for (uint32_t i = 0; i < 8; i++) {
		char path[16];
		(void)snprintf(path, sizeof(path), "c/%u", i);
		lp_test_ok(upload(&t, "a/b/x", &next));
		lpi_tp_write(&t, next, 0, 200, 200);
		lp_test_ok(commit(&t, next, path, LP_NS_IF_ANY));
		assert_int_equal(lpi_tp_length(&t, path), 200);
		lp_test_ok(upload(&t, "elsewhere", &next));
		lpi_tp_write(&t, next, 0, 201, 201);
		lp_test_ok(commit(&t, next, path, LP_NS_IF_ANY));
		assert_int_equal(lpi_tp_length(&t, path), 201);
	}
	lpi_tp_end(&t, 4 + 1 + 8);
}

static void test_upload(void **state)
{
	(void)state;
	for (uint32_t i = 1; i <= 3; i++)
		upload_on(i);
}

/* A stop leaves the mark of an upload, and the next start removes it (rule S6). */
static void test_upload_restart(void **state)
{
	(void)state;
	struct lpi_t t;
	struct lp_ino ino = {0};
	lpi_t_begin(&t, 2);
	lp_test_ok(upload(&t, "a/x", &ino));
	lpi_ns_rig_stop(t.rig);
	lp_test_ok(lpi_ns_rig_start(t.rig));
	assert_int_equal(lpi_t_stat(&t, ino), -ESTALE);
	lpi_tp_end(&t, 1);
}

/* --- Names that are expected to be new ---------------------------------------------------------
 */

static uint64_t lookups(const struct lpi_t *t)
{
	uint64_t sum = 0;
	for (uint32_t i = 0; i < t->rig->shard_cnt; i++) {
		struct lp_store_stats stats;
		lp_store_read_stats(t->rig->store[i], &stats);
		sum += stats.ops[LP_STORE_LOOKUP];
	}
	return sum;
}

/* So many that the next one of each shard is expected to be new. Returns how many there are. */
static uint32_t put_new_names(struct lpi_t *t, const char *kind)
{
	const uint32_t cnt = 10 * t->rig->shard_cnt;
	for (uint32_t i = 0; i < cnt; i++) {
		char path[32];
		(void)snprintf(path, sizeof(path), "a/%s%u", kind, i);
		lp_test_ok(lpi_tp_put(t, path, 100));
	}
	return cnt;
}

/* A client that makes many new names does not look each of them up first. If a name exists after
 * all, the put finds it and does as it would have done. */
static void expect_on(uint32_t shard_cnt)
{
	struct lpi_t t;
	lpi_t_begin(&t, shard_cnt);
	uint32_t made = put_new_names(&t, "first");
	uint64_t before = lookups(&t);
	made += put_new_names(&t, "more");
	lp_test_ok(lpi_tp_put_if(&t, "a/absent", 1, LP_NS_IF_ABSENT, 0));
	assert_int_equal(lookups(&t) - before, 0);
	struct lp_ino old = lpi_tp_find(&t, "a/first3");
	lp_test_ok(lpi_tp_put(&t, "a/first3", 55));
	assert_true(t.op->put.found.ino.nr != old.nr);
	assert_int_equal(lpi_tp_length(&t, "a/first3"), 55);
	assert_int_equal(lpi_t_stat(&t, old), -ESTALE);
	made += put_new_names(&t, "again");
	for (uint32_t i = 0; i < shard_cnt; i++)
		assert_int_equal(lpi_tp_put_if(&t, "a/first4", 66, LP_NS_IF_ABSENT, 0), -EEXIST);
	assert_int_equal(lpi_tp_length(&t, "a/first4"), 100);
	lp_test_ok(lpi_tp_put(&t, "a/dir/x", 100));
	made += put_new_names(&t, "last");
	for (uint32_t i = 0; i < shard_cnt; i++)
		assert_int_equal(lpi_tp_put(&t, "a/dir", 66), -EISDIR);
	/* It is looked for again. */
	before = lookups(&t);
	lp_test_ok(lpi_tp_put(&t, "a/one", 100));
	assert_int_equal(lookups(&t) - before, 1);
	lpi_tp_end(&t, 1 + made + 5); /* and the root, a, absent, dir, x, one */
}

static void test_expected(void **state)
{
	(void)state;
	for (uint32_t i = 1; i <= 3; i++)
		expect_on(i);
}

/* --- Several at once -------------------------------------------------------------------------- */

#define RACERS 8u

/* Puts of one key from all shards, with the directories to be made: all succeed, one is left. */
static void test_same_key(void **state)
{
	(void)state;
	for (uint32_t shard_cnt = 1; shard_cnt <= 3; shard_cnt++) {
		struct lpi_t t;
		struct lpi_tp_put puts[RACERS];
		lpi_t_begin(&t, shard_cnt);
		for (uint32_t round = 0; round < 10; round++) {
			for (uint32_t i = 0; i < RACERS; i++) {
				lpi_tp_put_fill(&puts[i], &t, i % shard_cnt, "a/b/c/x", 100 + i);
				lpi_ns_rig_submit(t.rig, i % shard_cnt, &puts[i].hand);
				for (uint32_t n = 0; n < round; n++)
					(void)lpi_ns_rig_turn(t.rig);
			}
			for (uint32_t i = 0; i < RACERS; i++) {
				lp_test_ok(lpi_ns_rig_wait(t.rig, &puts[i].hand));
				lpi_tp_put_drop(&puts[i]);
			}
			assert_in_range(lpi_tp_length(&t, "a/b/c/x"), 100, 100 + RACERS - 1);
			lp_test_ok(lpi_tp_delete(&t, "a/b/c/x"));
			assert_int_equal(lpi_tp_walk(&t, "a"), -ENOENT);
		}
		lpi_tp_end(&t, 1);
	}
}

static uint64_t version_of_put(struct lpi_t *t, const char *path)
{
	lp_test_ok(lpi_tp_put(t, path, 5));
	uint64_t told = t->op->put.found.attrs.version_nr;
	assert_int_equal(lpi_t_attrs(t, lpi_tp_find(t, path)).version_nr, told);
	return told;
}

/* Rule W3: a client that remembers a version of a name never takes another object for it. */
static void test_versions(void **state)
{
	(void)state;
	for (uint32_t shard_cnt = 1; shard_cnt <= 3; shard_cnt++) {
		struct lpi_t t;
		lpi_t_begin(&t, shard_cnt);
		/* What was made, replaced in the same microsecond, and before that, for the clock
		 * went back. */
		uint64_t first = version_of_put(&t, "a/x");
		uint64_t second = version_of_put(&t, "a/x");
		assert_true(first >= UINT64_C(1700000000000000) && second > first);
		t.rig->clock.wall_base_ns -= INT64_C(1000000) * (int64_t)LP_NS_PER_S;
		uint64_t third = version_of_put(&t, "a/x");
		assert_true(third > second);
		/* But nothing is told to have been written later than it was. */
		const struct lp_attrs *attrs = &t.op->put.found.attrs;
		assert_true(lp_version_at(attrs->mtime_ns) < first);
		assert_true(lp_version_at(attrs->btime_ns) < first);
		t.rig->clock.wall_base_ns += INT64_C(1000000) * (int64_t)LP_NS_PER_S;
		assert_int_equal(lpi_tp_put_if(&t, "a/x", 5, LP_NS_IF_VERSION, first), -ECANCELED);
		/* Removed and made again, later. */
		lp_test_ok(lpi_tp_delete(&t, "a/x"));
		lpi_t_later(&t);
		uint64_t fourth = version_of_put(&t, "a/x");
		assert_true(fourth > third);
		assert_int_equal(lpi_tp_put_if(&t, "a/x", 5, LP_NS_IF_VERSION, third), -ECANCELED);
		/* An upload that began before the object was made that it replaces. */
		struct lp_ino ino = {0};
		lp_test_ok(upload(&t, "a/x", &ino));
		lpi_tp_write(&t, ino, 0, 5, 5);
		lpi_t_later(&t);
		uint64_t fifth = version_of_put(&t, "a/x");
		assert_true(lpi_t_attrs(&t, ino).version_nr < fifth);
		lp_test_ok(commit(&t, ino, "a/x", LP_NS_IF_ANY));
		uint64_t sixth = t.op->put.found.attrs.version_nr;
		assert_true(sixth > fifth);
		assert_int_equal(lpi_t_attrs(&t, ino).version_nr, sixth);
		/* An older one that is moved there. */
		struct lp_ino older = lpi_t_file(&t, LP_INO_ROOT, "older");
		lpi_t_later(&t);
		uint64_t seventh = version_of_put(&t, "x");
		assert_true(lpi_t_attrs(&t, older).version_nr < seventh);
		lpi_t_later(&t);
		lp_test_ok(lpi_t_rename(&t, LP_INO_ROOT, "older", LP_INO_ROOT, "x", 0));
		assert_true(lpi_t_attrs(&t, older).version_nr > seventh);
		lpi_t_end(&t);
	}
}

/* One commit of an upload wins. */
static void test_same_upload(void **state)
{
	(void)state;
	for (uint32_t turns = 0; turns < 20; turns++) {
		struct lpi_t t;
		struct lp_ino ino = {0};
		struct lpi_ns_hand hands[2];
		lpi_t_begin(&t, 2);
		lp_test_ok(upload(&t, "a/x", &ino));
		for (uint32_t i = 0; i < 2; i++) {
			hands[i] = (struct lpi_ns_hand){.op = {.opcode = LP_NS_COMMIT}};
			hands[i].op.put.path = lpi_t_bytes(i == 0 ? "a/x" : "b/y");
			hands[i].op.put.ino = ino;
			lpi_ns_rig_submit(t.rig, i, &hands[i]);
			for (uint32_t n = 0; i == 0 && n < turns; n++)
				(void)lpi_ns_rig_turn(t.rig);
		}
		int first = lpi_ns_rig_wait(t.rig, &hands[0]);
		int second = lpi_ns_rig_wait(t.rig, &hands[1]);
		assert_true((first == 0 && second == -ESTALE) || (first == -ESTALE && second == 0));
		assert_int_equal(lpi_t_nlink(&t, ino), 1);
		assert_int_equal(lpi_tp_find(&t, first == 0 ? "a/x" : "b/y").nr, ino.nr);
		lpi_t_end(&t);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_basic),       cmocka_unit_test(test_opened_while_it_waits),
		cmocka_unit_test(test_carry),       cmocka_unit_test(test_carry_meanwhile),
		cmocka_unit_test(test_carry_most),  cmocka_unit_test(test_put_list),
		cmocka_unit_test(test_open),        cmocka_unit_test(test_conditions),
		cmocka_unit_test(test_count),       cmocka_unit_test(test_many_xattrs),
		cmocka_unit_test(test_upload),      cmocka_unit_test(test_upload_restart),
		cmocka_unit_test(test_expected),    cmocka_unit_test(test_same_key),
		cmocka_unit_test(test_same_upload), cmocka_unit_test(test_versions),
	};
	return lp_test_main(tests, "namespace/ops/put");
}
