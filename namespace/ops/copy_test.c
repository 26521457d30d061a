/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: a copy is its source as it was at one moment, beside it (rule N7); a move is a rename
 * between paths. Method: on one to three shards in simulated time, each operation submitted on the
 * next one; a source is changed at each turn of its copy. */
#include "namespace/ops/paths_rig_test.h"
#include "namespace/shard/ns_sim_test.h"
#include "namespace/state/acl_rig_test.h"
#include "store/store_kinds.h"

static int copy_as(struct lpi_t *t, enum lp_ns_opcode opcode, const char *path, const char *to_path,
		   enum lp_ns_if condition, uint64_t version_nr)
{
	lpi_t_op(t, opcode);
	t->op->copy.path = lpi_t_bytes(path);
	t->op->copy.to_path = lpi_t_bytes(to_path);
	t->op->copy.condition = condition;
	t->op->copy.version_nr = version_nr;
	t->op->who = (struct lp_ns_who){.uid = 1, .gid = 2};
	return lpi_t_do(t);
}

static int copy(struct lpi_t *t, const char *path, const char *to_path)
{
	return copy_as(t, LP_NS_COPY, path, to_path, LP_NS_IF_ANY, 0);
}

static int move(struct lpi_t *t, const char *path, const char *to_path)
{
	return copy_as(t, LP_NS_MOVE, path, to_path, LP_NS_IF_ANY, 0);
}

static void set_omap(struct lpi_t *t, struct lp_ino ino, uint32_t key)
{
	uint8_t bytes[2] = {(uint8_t)(key >> 8), (uint8_t)key};
	const struct lp_change change = {.type = LP_CHANGE_OMAP_SET,
					 .ino = ino,
					 .named = {.name = {bytes, 2}, .value = {bytes, 2}}};
	lpi_t_op(t, LP_NS_STORE);
	t->op->store.ino = ino;
	t->op->store.op = (struct lp_store_op){.opcode = LP_STORE_TXN,
					       .txn = {.changes = &change, .change_cnt = 1}};
	lp_test_ok(lpi_t_do(t));
}

static uint32_t omap_cnt(struct lpi_t *t, struct lp_ino ino)
{
	static uint8_t page[16384];
	lpi_t_op(t, LP_NS_STORE);
	t->op->store.ino = ino;
	t->op->store.op = (struct lp_store_op){
		.opcode = LP_STORE_LIST,
		.list = {.space = LP_STORE_OMAP, .ino = ino, .buf = page, .buf_len = sizeof(page)}};
	lp_test_ok(lpi_t_do(t));
	assert_false(t->op->store.op.list.more);
	return t->op->store.op.list.items;
}

static void copy_on(uint32_t shard_cnt)
{
	struct lpi_t t;
	char name[16];
	lpi_t_begin(&t, shard_cnt);
	lp_test_ok(lpi_tp_put(&t, "a/x", 10001));
	struct lp_ino source = t.op->put.found.ino;
	lpi_tp_set_xattr(&t, source, "system.posix_acl_access", "an ACL");
	for (uint32_t i = 0; i < 30; i++) {
		(void)snprintf(name, sizeof(name), "user.%u", i);
		lpi_tp_set_xattr(&t, source, name, name);
		set_omap(&t, source, i);
	}
	lp_test_ok(copy(&t, "a/x", "b/c/y"));
	struct lp_ino ino = t.op->copy.found.ino;
	struct lp_attrs told = t.op->copy.found.attrs;
	assert_int_equal(lpi_tp_find(&t, "b/c/y").nr, ino.nr);
	assert_int_equal(lp_ino_shard(ino), lp_ino_shard(source)); /* rule N7 */
	assert_int_equal(lpi_tp_length(&t, "b/c/y"), 10001);
	assert_int_equal(lpi_tp_length(&t, "a/x"), 10001);
	struct lp_attrs attrs = lpi_t_attrs(&t, ino);
	assert_int_equal(attrs.mode, 0640);
	assert_int_equal(attrs.uid, 1);
	assert_int_equal(attrs.nlink, 1);
	assert_int_equal(attrs.version_nr, told.version_nr);
	for (uint32_t i = 0; i < 30; i++) {
		(void)snprintf(name, sizeof(name), "user.%u", i);
		assert_true(lpi_tp_has_xattr(&t, ino, name, name));
	}
	assert_true(lpi_tp_has_xattr(&t, ino, "system.posix_acl_access", "an ACL"));
	assert_int_equal(omap_cnt(&t, ino), 30);
	/* Over another one, whose owner and ACL stay (rule W3); and over itself. */
	lp_test_ok(lpi_tp_put(&t, "b/z", 5));
	lp_test_ok(copy(&t, "a/x", "b/z"));
	ino = lpi_tp_find(&t, "b/z");
	assert_int_equal(lpi_t_attrs(&t, ino).uid, 7);
	assert_true(lpi_tp_has_xattr(&t, ino, "system.posix_acl_access", NULL));
	assert_int_equal(lpi_tp_length(&t, "b/z"), 10001);
	lp_test_ok(copy(&t, "b/z", "b/z"));
	assert_int_equal(lpi_tp_length(&t, "b/z"), 10001);
	lp_test_ok(lpi_tp_put(&t, "b/e", 0));
	lp_test_ok(copy(&t, "b/e", "b/f"));
	assert_int_equal(lpi_tp_length(&t, "b/f"), 0);
	assert_int_equal(copy(&t, "a/none", "n/n"), -ENOENT);
	assert_int_equal(copy(&t, "a", "n/n"), -EISDIR);
	assert_int_equal(copy(&t, "a/x/y", "n/n"), -ENOTDIR);
	assert_int_equal(copy(&t, "a/x", "b/c"), -EISDIR);
	assert_int_equal(copy(&t, "a/x", "b/z/n"), -ENOTDIR);
	assert_int_equal(copy_as(&t, LP_NS_COPY, "a/x", "b/z", LP_NS_IF_ABSENT, 0), -EEXIST);
	assert_int_equal(copy_as(&t, LP_NS_COPY, "a/x", "n/n", LP_NS_IF_EXISTS, 0), -ENOENT);
	assert_int_equal(lpi_tp_walk(&t, "n"), -ENOENT);
	lpi_tp_end(&t, 4 + 5);
}

static void test_copy(void **state)
{
	(void)state;
	for (uint32_t i = 1; i <= 3; i++)
		copy_on(i);
}

/* The source is given another length and other bytes while it is copied: the copy is the one or the
 * other. */
static void test_changing_source(void **state)
{
	(void)state;
	for (uint32_t turns = 0; turns < 60; turns++) {
		struct lpi_t t;
		struct lpi_ns_hand hand = {.op = {.opcode = LP_NS_COPY}};
		lpi_t_begin(&t, 2);
		lp_test_ok(lpi_tp_put(&t, "a/x", 9000));
		struct lp_ino ino = t.op->put.found.ino;
		hand.op.copy.path = lpi_t_bytes("a/x");
		hand.op.copy.to_path = lpi_t_bytes("a/y");
		lpi_ns_rig_submit(t.rig, turns % 2, &hand);
		for (uint32_t i = 0; i < turns; i++)
			(void)lpi_ns_rig_turn(t.rig);
		lpi_tp_write(&t, ino, 0, 10000, 10000 & 0xff);
		lp_test_ok(lpi_ns_rig_wait(t.rig, &hand));
		int64_t length = lpi_tp_length(&t, "a/y");
		assert_true(length == 9000 || length == 10000);
		lpi_tp_end(&t, 4);
	}
}

/* The source gets another mode, and with it another access list, while it is copied: the copy has
 * both of one moment. A replaced file keeps its own of both, also if it has no list (rule W3). */
static void test_changing_list(void **state)
{
	uint8_t list[LPI_T_LIST_BYTES];
	(void)state;
	for (uint32_t turns = 0; turns < 80; turns++) {
		struct lpi_t t;
		struct lpi_ns_hand hand = {.op = {.opcode = LP_NS_COPY}};
		lpi_t_begin(&t, 2);
		lp_test_ok(lpi_tp_put(&t, "a/x", 9000));
		struct lp_ino ino = t.op->put.found.ino;
		lpi_t_list_fill(list, 6);
		lpi_t_list_set(&t, ino, list);
		lp_test_ok(lpi_t_chmod(&t, ino, 0660));
		hand.op.copy.path = lpi_t_bytes("a/x");
		hand.op.copy.to_path = lpi_t_bytes("a/y");
		lpi_ns_rig_submit(t.rig, turns % 2, &hand);
		for (uint32_t i = 0; i < turns; i++)
			(void)lpi_ns_rig_turn(t.rig);
		lp_test_ok(lpi_t_chmod(&t, ino, 0600));
		lp_test_ok(lpi_ns_rig_wait(t.rig, &hand));
		lpi_t_list_agrees(&t, lpi_tp_find(&t, "a/y"));
		lpi_tp_end(&t, 4);
	}
	struct lpi_t t;
	lpi_t_begin(&t, 2);
	lp_test_ok(lpi_tp_put(&t, "a/x", 9000));
	struct lp_ino ino = t.op->put.found.ino;
	lpi_t_list_fill(list, 6);
	lpi_t_list_set(&t, ino, list);
	lp_test_ok(lpi_tp_put(&t, "a/y", 10));
	lp_test_ok(copy(&t, "a/x", "a/y"));
	ino = lpi_tp_find(&t, "a/y");
	assert_false(lpi_t_list_get(&t, ino, list));
	assert_int_equal(lpi_t_attrs(&t, ino).mode, 0640);
	lpi_t_list_fill(list, 3);
	lpi_t_list_set(&t, ino, list);
	lp_test_ok(lpi_t_chmod(&t, ino, 0610));
	lp_test_ok(copy(&t, "a/x", "a/y"));
	ino = lpi_tp_find(&t, "a/y");
	lpi_t_list_agrees(&t, ino);
	assert_int_equal(lpi_t_attrs(&t, ino).mode, 0610);
	lpi_tp_end(&t, 4);
}

/* --- Holes ------------------------------------------------------------------------------------ */

#define HUGE_BYTES (UINT64_C(16) << 40)
#define DATA_CNT   5u

static void set_length(struct lpi_t *t, struct lp_ino ino, uint64_t bytes)
{
	struct lp_change change = {.type = LP_CHANGE_TRUNCATE, .ino = ino};
	change.data.offset = bytes;
	lpi_t_op(t, LP_NS_STORE);
	t->op->store.ino = ino;
	t->op->store.op = (struct lp_store_op){.opcode = LP_STORE_TXN,
					       .txn = {.changes = &change, .change_cnt = 1}};
	lp_test_ok(lpi_t_do(t));
}

static uint64_t data_at(uint64_t bytes, uint32_t idx)
{
	return lp_align_down(bytes / DATA_CNT * idx, LP_BLOCK_BYTES);
}

/* The next of its data, or its end. */
static uint64_t seek_data(struct lpi_t *t, struct lp_ino ino, uint64_t from, bool hole)
{
	lpi_t_op(t, LP_NS_STORE);
	t->op->store.ino = ino;
	t->op->store.op = (struct lp_store_op){.opcode = LP_STORE_SEEK,
					       .seek = {.ino = ino, .offset = from, .hole = hole}};
	int r = lpi_t_do(t);
	assert_true(r == 0 || r == -ENXIO);
	return r == 0 ? t->op->store.op.seek.found : UINT64_MAX;
}

static void same_data(struct lpi_t *t, struct lp_ino ino, struct lp_ino as)
{
	uint64_t at = 0;
	assert_int_equal(lpi_t_attrs(t, ino).size_bytes, lpi_t_attrs(t, as).size_bytes);
	assert_int_equal(lpi_t_attrs(t, ino).blocks, lpi_t_attrs(t, as).blocks);
	for (uint32_t i = 0; at != UINT64_MAX; i++) {
		uint64_t next = seek_data(t, as, at, i % 2 != 0);
		assert_true(i < 4 * DATA_CNT);
		assert_int_equal(seek_data(t, ino, at, i % 2 != 0), next);
		at = next;
	}
}

/* A hole between data costs nothing, however long it is. */
static void test_holes(void **state)
{
	static const uint64_t lengths[] = {HUGE_BYTES, HUGE_BYTES - 1, UINT64_C(40) << 20, 0};
	(void)state;
	for (uint32_t i = 0; lengths[i] != 0; i++) {
		struct lpi_t t;
		uint64_t bytes = lengths[i];
		lpi_t_begin(&t, 2);
		lp_test_ok(lpi_tp_put(&t, "a/x", 0));
		struct lp_ino ino = t.op->put.found.ino;
		set_length(&t, ino, bytes);
		lp_test_ok(copy(&t, "a/x", "a/empty"));
		assert_int_equal(t.op->copy.found.attrs.size_bytes, bytes);
		assert_true(t.op->copy.steps <= 2);
		for (uint32_t n = 0; n < DATA_CNT; n++)
			lpi_tp_write(&t, ino, data_at(bytes, n), 6000, (uint8_t)(n + 1));
		lp_test_ok(copy(&t, "a/x", "a/y"));
		assert_true(t.op->copy.steps <= DATA_CNT + 1);
		same_data(&t, t.op->copy.found.ino, ino);
		/* Also where the last byte is data. */
		lpi_tp_write(&t, ino, bytes - 1, 1, 9);
		lp_test_ok(copy(&t, "a/x", "a/y"));
		assert_true(t.op->copy.steps <= DATA_CNT + 2);
		same_data(&t, t.op->copy.found.ino, ino);
		lpi_tp_end(&t, 5);
	}
}

#define NEAR_CNT 64u

/* Over short holes a clone goes, over long ones a step: so a copy has no more steps than either. */
static void test_near_and_far(void **state)
{
	(void)state;
	for (uint32_t is_far = 0; is_far < 2; is_far++) {
		uint64_t apart = is_far != 0 ? UINT64_C(40) << 20 : UINT64_C(1) << 20;
		struct lpi_t t;
		lpi_t_begin(&t, 2);
		lp_test_ok(lpi_tp_put(&t, "a/x", 0));
		struct lp_ino ino = t.op->put.found.ino;
		set_length(&t, ino, NEAR_CNT * apart);
		for (uint32_t n = 0; n < NEAR_CNT; n++)
			lpi_tp_write(&t, ino, n * apart, 6000, (uint8_t)(n + 1));
		lp_test_ok(copy(&t, "a/x", "a/y"));
		assert_true(t.op->copy.steps <= (is_far != 0 ? NEAR_CNT : NEAR_CNT / 16 + 7));
		struct lp_ino to = t.op->copy.found.ino;
		for (uint32_t n = 0; n < NEAR_CNT; n++)
			assert_int_equal(seek_data(&t, to, n * apart, true), n * apart + 8192);
		lpi_tp_end(&t, 4);
	}
}

/* A hole is filled, or data is punched out, while the copy looks for data: it has the source as it
 * was before or after. */
static void test_changing_holes(void **state)
{
	(void)state;
	for (uint32_t turns = 0; turns < 80; turns++) {
		struct lpi_t t;
		struct lpi_ns_hand hand = {.op = {.opcode = LP_NS_COPY}};
		uint64_t bytes = UINT64_C(1) << 40;
		lpi_t_begin(&t, 2);
		lp_test_ok(lpi_tp_put(&t, "a/x", 0));
		struct lp_ino ino = t.op->put.found.ino;
		set_length(&t, ino, bytes);
		lpi_tp_write(&t, ino, data_at(bytes, 3), 4096, 1);
		hand.op.copy.path = lpi_t_bytes("a/x");
		hand.op.copy.to_path = lpi_t_bytes("a/y");
		lpi_ns_rig_submit(t.rig, turns % 2, &hand);
		for (uint32_t i = 0; i < turns; i++)
			(void)lpi_ns_rig_turn(t.rig);
		/* First what is in front of where the copy may be, then what is behind it. */
		lpi_tp_write(&t, ino, data_at(bytes, 1), 4096, 2);
		lpi_tp_write(&t, ino, data_at(bytes, 4), 4096, 3);
		lp_test_ok(lpi_ns_rig_wait(t.rig, &hand));
		struct lp_ino to = hand.op.copy.found.ino;
		bool has_second = seek_data(&t, to, data_at(bytes, 4), false) != UINT64_MAX;
		bool has_first = seek_data(&t, to, 0, false) == data_at(bytes, 1);
		assert_int_equal(lpi_t_attrs(&t, to).size_bytes, bytes);
		assert_true(has_first || !has_second);
		lpi_tp_end(&t, 4);
	}
}

static void move_on(uint32_t shard_cnt)
{
	struct lpi_t t;
	lpi_t_begin(&t, shard_cnt);
	lp_test_ok(lpi_tp_put(&t, "a/b/x", 10));
	struct lp_ino ino = t.op->put.found.ino;
	lp_test_ok(move(&t, "a/b/x", "c/d/y"));
	assert_int_equal(t.op->copy.found.ino.nr, ino.nr);
	assert_int_equal(t.op->copy.found.attrs.size_bytes, 10);
	assert_int_equal(lpi_tp_length(&t, "c/d/y"), 10);
	assert_int_equal(lpi_tp_walk(&t, "a"), -ENOENT); /* rule N2 */
	/* A directory, with its entries. */
	lp_test_ok(move(&t, "c/d", "e/f/g"));
	assert_int_equal(lpi_tp_length(&t, "e/f/g/y"), 10);
	assert_int_equal(lpi_tp_walk(&t, "c"), -ENOENT);
	lp_test_ok(lpi_tp_put(&t, "h", 20));
	/* Onto itself, by the same name and by another one: nothing happens, if the condition
	 * holds. */
	lp_test_ok(lpi_t_link(&t, lpi_tp_find(&t, "h"), LP_INO_ROOT, "h2"));
	static const char *const same[] = {"h", "h2"};
	for (size_t i = 0; i < LP_ARRAY_SIZE(same); i++) {
		lp_test_ok(lpi_tp_walk(&t, "h"));
		uint64_t own_nr = t.op->walk.found.attrs.version_nr;
		assert_int_equal(
			copy_as(&t, LP_NS_MOVE, "h", same[i], LP_NS_IF_VERSION, own_nr + 1),
			-ECANCELED);
		lp_test_ok(copy_as(&t, LP_NS_MOVE, "h", same[i], LP_NS_IF_VERSION, own_nr));
		assert_int_equal(copy_as(&t, LP_NS_MOVE, "h", same[i], LP_NS_IF_ABSENT, 0),
				 -EEXIST);
		lp_test_ok(copy_as(&t, LP_NS_MOVE, "h", same[i], LP_NS_IF_EXISTS, 0));
	}
	lp_test_ok(lpi_t_remove(&t, LP_INO_ROOT, "h2", false));
	assert_int_equal(copy_as(&t, LP_NS_MOVE, "h", "e/f/g/y", LP_NS_IF_ABSENT, 0), -EEXIST);
	assert_int_equal(copy_as(&t, LP_NS_MOVE, "h", "e/f/z", LP_NS_IF_EXISTS, 0), -ENOENT);
	assert_int_equal(copy_as(&t, LP_NS_MOVE, "h", "z/z", LP_NS_IF_EXISTS, 0), -ENOENT);
	uint64_t version_nr = lpi_t_attrs(&t, ino).version_nr;
	assert_int_equal(copy_as(&t, LP_NS_MOVE, "h", "e/f/g/y", LP_NS_IF_VERSION, version_nr + 1),
			 -ECANCELED);
	lp_test_ok(copy_as(&t, LP_NS_MOVE, "h", "e/f/g/y", LP_NS_IF_VERSION, version_nr));
	assert_int_equal(lpi_tp_length(&t, "e/f/g/y"), 20);
	assert_int_equal(lpi_t_stat(&t, ino), -ESTALE);
	/* A failed move leaves none of the directories that it had made. */
	assert_int_equal(move(&t, "e/f/none", "n/n"), -ENOENT);
	assert_int_equal(move(&t, "e/f", "e/f/g/h"), -EINVAL);
	assert_int_equal(move(&t, "e/f/g", "e/f"), -ENOTEMPTY);
	assert_int_equal(move(&t, "e/f/g/y", "e/f"), -EISDIR);
	assert_int_equal(move(&t, "e/f/g", "e/f/g"), 0);
	lp_test_ok(lpi_tp_put(&t, "k", 1));
	assert_int_equal(move(&t, "e/f/g", "k"), -ENOTDIR);
	assert_int_equal(move(&t, "e/f/g", "k/l/m"), -ENOTDIR);
	assert_int_equal(move(&t, "", "k"), -EISDIR);
	lpi_tp_end(&t, 1 + 3 + 2);
}

static void test_move(void **state)
{
	(void)state;
	for (uint32_t i = 1; i <= 3; i++)
		move_on(i);
}

/* A move to a directory that a delete takes away meanwhile. */
static void test_move_race(void **state)
{
	(void)state;
	for (uint32_t turns = 0; turns < 60; turns++) {
		struct lpi_t t;
		struct lpi_ns_hand mv = {.op = {.opcode = LP_NS_MOVE}};
		struct lpi_ns_hand del = {.op = {.opcode = LP_NS_DELETE}};
		lpi_t_begin(&t, 1 + turns % 3);
		lp_test_ok(lpi_tp_put(&t, "a/b/x", 10));
		lp_test_ok(lpi_tp_put(&t, "c/y", 20));
		for (uint32_t i = 0; i < t.rig->shard_cnt; i++)
			lp_test_ok(lpi_tp_walk(&t, "a/b/x"));
		mv.op.copy.path = lpi_t_bytes("c/y");
		mv.op.copy.to_path = lpi_t_bytes("a/b/y");
		del.op.delete.path = lpi_t_bytes("a/b/x");
		lpi_ns_rig_submit(t.rig, 0, &del);
		for (uint32_t i = 0; i < turns; i++)
			(void)lpi_ns_rig_turn(t.rig);
		lpi_ns_rig_submit(t.rig, t.rig->shard_cnt - 1, &mv);
		lp_test_ok(lpi_ns_rig_wait(t.rig, &mv));
		lp_test_ok(lpi_ns_rig_wait(t.rig, &del));
		assert_int_equal(lpi_tp_length(&t, "a/b/y"), 20);
		assert_int_equal(lpi_tp_walk(&t, "c"), -ENOENT);
		lpi_tp_end(&t, 4);
	}
}

/* --- A directory that cannot be read any more ------------------------------------------------- */

/* Between the namespace and one shard's store: of one inode the attributes are spoilt. */
static struct {
	struct lp_store *store;
	const struct lpi_store_calls *calls; /* its own */
	struct lpi_store_calls spoiling;
	struct lp_ino ino;
	void (*complete)(struct lp_store_op *op);
} between;

static void spoilt(struct lp_store_op *op)
{
	op->result = -EBADMSG;
	op->complete = between.complete;
	op->complete(op);
}

static void spoiling_submit(struct lp_store *store, struct lp_store_op *op)
{
	if (op->opcode == LP_STORE_STAT && op->stat.ino.nr == between.ino.nr) {
		between.complete = op->complete;
		op->complete = spoilt;
	}
	between.calls->submit(store, op);
}

static void begin_spoiling(struct lpi_t *t, struct lp_ino ino)
{
	between.store = t->rig->store[lp_ino_shard(ino)];
	between.calls = between.store->calls;
	between.spoiling = *between.calls;
	between.spoiling.submit = spoiling_submit;
	between.ino = ino;
	between.store->calls = &between.spoiling;
}

static void end_spoiling(void)
{
	between.store->calls = between.calls;
}

/* The next operation is that shard's. */
static void go_home(struct lpi_t *t, uint32_t shard_idx)
{
	t->home = shard_idx + t->rig->shard_cnt - 1;
}

static void check_nothing_open(struct lpi_t *t)
{
	lpi_t_idle(t);
	for (uint32_t i = 0; i < t->rig->shard_cnt; i++)
		assert_int_equal(lpi_opens_inodes(t->rig->ns[i]->opens), 0);
}

/* It is known by its path, and when the copy is to be named in it, or a directory, it is not found
 * sound: the source is closed then, and the copy goes. */
static void test_directory_spoilt(void **state)
{
	(void)state;
	struct lpi_t t;
	struct lp_ino plain = {0};
	char to_plain[] = "0/y";
	uint32_t inodes = 1 + 1 + 1; /* root, source, and the spread directory */
	uint32_t failed_cnt = 0;
	lpi_t_begin(&t, 2);
	uint32_t home = lp_ino_shard(lpi_t_file(&t, LP_INO_ROOT, "src"));
	struct lp_ino spread = lpi_t_spread(&t, LP_INO_ROOT, "spread");
	do {
		const char name[] = {++to_plain[0], 0};
		plain = lpi_t_dir(&t, LP_INO_ROOT, name);
		inodes++;
	} while (lp_ino_shard(plain) == home);
	go_home(&t, home);
	assert_int_equal(lpi_tp_walk(&t, to_plain), -ENOENT);
	go_home(&t, home);
	assert_int_equal(lpi_tp_walk(&t, "spread/y"), -ENOENT);

	begin_spoiling(&t, plain);
	go_home(&t, home);
	assert_int_equal(copy(&t, "src", to_plain), -EBADMSG);
	check_nothing_open(&t);
	end_spoiling();

	begin_spoiling(&t, spread);
	for (char path[] = "spread/0/y"; path[7] <= '9'; path[7]++) {
		go_home(&t, home);
		int r = copy(&t, "src", path);
		assert_true(r == 0 || r == -EBADMSG);
		inodes += r == 0 ? 2 : 0;
		failed_cnt += r < 0 ? 1 : 0;
		check_nothing_open(&t);
	}
	end_spoiling();
	assert_true(failed_cnt > 0);
	lpi_tp_end(&t, inodes);
}

/* --- A source in many pieces ------------------------------------------------------------------ */

#define PIECES     300u /* one block each, in so many groups of counts */
#define GAP_BLOCKS 64u

static struct lp_ino make_file(struct lpi_ns_sim *sim, const char *name)
{
	struct lp_ns_op op = {.opcode = LP_NS_MAKE, .ack = LP_ACK_ORDERED};
	op.make.dir = LP_INO_ROOT;
	op.make.name = lpi_ns_sim_bytes(name);
	op.make.type = LP_INODE_TYPE_FILE;
	op.make.mode = 0644;
	lp_test_ok(lpi_ns_sim_do(sim, &op));
	return op.make.found.ino;
}

static void change_file(struct lpi_ns_sim *sim, const struct lp_change *change)
{
	struct lp_ns_op op = {.opcode = LP_NS_STORE, .ack = LP_ACK_ORDERED};
	op.store.ino = change->ino;
	op.store.op = (struct lp_store_op){
		.opcode = LP_STORE_TXN,
		.txn = {.changes = change, .change_cnt = 1, .ack = LP_ACK_ORDERED}};
	lp_test_ok(lpi_ns_sim_do(sim, &op));
}

static void make_scattered(struct lpi_ns_sim *sim, const char *name)
{
	struct lp_ino ino = make_file(sim, name);
	struct lp_ino filler = make_file(sim, "filler");
	for (uint64_t i = 0; i < PIECES; i++) {
		struct lpi_tp_data data;
		lpi_tp_data_fill(&data, sim->bufs, LP_BLOCK_BYTES, (uint8_t)i);
		change_file(sim, &(struct lp_change){.type = LP_CHANGE_WRITE,
						     .ino = ino,
						     .data = {.offset = i * LP_BLOCK_BYTES,
							      .length = LP_BLOCK_BYTES,
							      .payload = data.payload,
							      .path = LP_PATH_DIRECT}});
		lpi_tp_data_drop(&data);
		change_file(sim,
			    &(struct lp_change){.type = LP_CHANGE_PREALLOC,
						.ino = filler,
						.data = {.offset = i * GAP_BLOCKS * LP_BLOCK_BYTES,
							 .length = GAP_BLOCKS * LP_BLOCK_BYTES}});
	}
	struct lp_ns_op op = {.opcode = LP_NS_REMOVE};
	op.remove.dir = LP_INO_ROOT;
	op.remove.name = lpi_ns_sim_bytes("filler");
	lp_test_ok(lpi_ns_sim_do(sim, &op));
}

static void check_pieces(struct lpi_ns_sim *sim, struct lp_ino ino)
{
	for (uint64_t i = 0; i < PIECES; i++) {
		struct lpi_ns_sim_asked asked = {.op = {.opcode = LP_NS_STORE}};
		struct lp_store_op *read = &asked.op.store.op;
		asked.op.store.ino = ino;
		*read = (struct lp_store_op){.opcode = LP_STORE_READ,
					     .read = {.ino = ino,
						      .offset = i * LP_BLOCK_BYTES,
						      .length = LP_BLOCK_BYTES}};
		asked.op.complete = lpi_ns_sim_answered;
		lp_ns_submit(sim->ns[0], &asked.op);
		while (!asked.is_done)
			(void)lpi_ns_sim_turn(sim);
		lp_test_ok(asked.op.result);
		assert_int_equal(read->read.bytes, LP_BLOCK_BYTES);
		const struct lp_seg *seg = &read->read.segs[0];
		assert_int_equal(seg->buf->data[seg->offset], (uint8_t)i);
		lp_ns_end(sim->ns[0], &asked.op);
	}
}

/* More than one transaction can share at once. */
static void test_scattered(void **state)
{
	(void)state;
	struct lp_sim_profile profile = lpi_bench_plain_profile(4096);
	struct lpi_ns_sim *sim = lpi_ns_sim_boot(lpi_ns_sim_mkfs_on(&profile, 1, 7));
	lp_test_ok(lpi_ns_sim_start(sim));
	make_scattered(sim, "source");
	struct lp_ns_op op = {.opcode = LP_NS_COPY};
	op.copy.path = lpi_ns_sim_bytes("source");
	op.copy.to_path = lpi_ns_sim_bytes("copy");
	lp_test_ok(lpi_ns_sim_do(sim, &op));
	assert_int_equal(op.copy.found.attrs.size_bytes, PIECES * LP_BLOCK_BYTES);
	check_pieces(sim, op.copy.found.ino);
	lpi_ns_sim_stop(sim);
	lp_test_ok(lpi_ns_sim_close(sim, false));
	lpi_ns_sim_fsck(sim);
	assert_int_equal(sim->problems, 0);
	lpi_ns_sim_fini(sim);
	free(sim);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_scattered),       cmocka_unit_test(test_copy),
		cmocka_unit_test(test_changing_source), cmocka_unit_test(test_changing_list),
		cmocka_unit_test(test_holes),           cmocka_unit_test(test_near_and_far),
		cmocka_unit_test(test_changing_holes),  cmocka_unit_test(test_move),
		cmocka_unit_test(test_move_race),       cmocka_unit_test(test_directory_spoilt),
	};
	return lp_test_main(tests, "namespace/ops/copy");
}
