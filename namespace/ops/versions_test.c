/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: a name never shows one version twice, whatever inode it leads to (rule W3), so a client
 * that remembers one does not take another object for it. Method: links, renames and exchanges of
 * older objects, with a clock that stands still, goes back, or goes on while an operation waits for
 * the name; objects that are written while they are replaced. Puts are in ops/put_test.c. */
#include "namespace/ops/paths_rig_test.h"

static uint64_t version_of_put(struct lpi_t *t, const char *path)
{
	lp_test_ok(lpi_tp_put(t, path, 5));
	return t->op->put.found.attrs.version_nr;
}

/* The clock goes back, or is set right again. */
static void set_clock(struct lpi_t *t, int64_t by_s)
{
	t->rig->clock.wall_base_ns += by_s * (int64_t)LP_NS_PER_S;
}

static uint64_t version_at_name(struct lpi_t *t, const char *name)
{
	lp_test_ok(lpi_t_lookup(t, LP_INO_ROOT, name));
	return t->op->lookup.found.attrs.version_nr;
}

/* The name's inode before a hard link, which is gone. */
static void check_link(struct lpi_t *t)
{
	struct lp_ino older = lpi_t_file(t, LP_INO_ROOT, "older");
	lpi_t_later(t);
	uint64_t there = version_of_put(t, "x");
	lp_test_ok(lpi_t_remove(t, LP_INO_ROOT, "x", false));
	assert_true(lpi_t_attrs(t, older).version_nr < there);
	lpi_t_later(t);
	lp_test_ok(lpi_t_link(t, older, LP_INO_ROOT, "x"));
	assert_true(version_at_name(t, "x") > there);
	assert_int_equal(t->op->lookup.found.ino.nr, older.nr);
	/* As was told. */
	lp_test_ok(lpi_t_link(t, older, LP_INO_ROOT, "y"));
	struct lp_attrs told = t->op->link.found.attrs;
	struct lp_attrs attrs = lpi_t_attrs(t, older);
	assert_int_equal(attrs.version_nr, told.version_nr);
	assert_int_equal(attrs.ctime_ns, told.ctime_ns);
	assert_int_equal(attrs.nlink, told.nlink);
	assert_int_equal(attrs.parent.nr, told.parent.nr);
}

static void test_link_versions(void **state)
{
	(void)state;
	lpi_t_on_all(check_link);
}

/* A rename over something, and an exchange, though the clock went back. */
static void check_rename(struct lpi_t *t)
{
	struct lp_ino dir = lpi_t_dir(t, LP_INO_ROOT, "dir");
	for (uint32_t i = 0; i < 4; i++) {
		uint64_t there = version_of_put(t, "x");
		lpi_t_later(t);
		set_clock(t, -1000);
		(void)lpi_t_file(t, i < 2 ? LP_INO_ROOT : dir, "older");
		lp_test_ok(lpi_t_rename(t, i < 2 ? LP_INO_ROOT : dir, "older", LP_INO_ROOT, "x",
					i % 2 == 0 ? 0 : LP_NS_RENAME_EXCHANGE));
		uint64_t now = version_at_name(t, "x");
		assert_true(now > there);
		if (i % 2 == 1)
			lp_test_ok(lpi_t_remove(t, i < 2 ? LP_INO_ROOT : dir, "older", false));
		set_clock(t, 1000);
		assert_int_equal(lpi_tp_put_if(t, "x", 5, LP_NS_IF_VERSION, there), -ECANCELED);
		lp_test_ok(lpi_tp_put_if(t, "x", 5, LP_NS_IF_VERSION, now));
	}
	/* Both names of an exchange. */
	(void)version_of_put(t, "x");
	uint64_t was = version_of_put(t, "y");
	uint64_t x = version_at_name(t, "x");
	set_clock(t, -1000);
	lp_test_ok(lpi_t_rename(t, LP_INO_ROOT, "x", LP_INO_ROOT, "y", LP_NS_RENAME_EXCHANGE));
	set_clock(t, 1000);
	assert_true(version_at_name(t, "x") > x);
	assert_true(version_at_name(t, "y") > was);
}

static void test_rename_versions(void **state)
{
	(void)state;
	lpi_t_on_all(check_rename);
}

/* A read of the inode does not fail a guard of its version: a mount sets the access time. */
static void check_read(struct lpi_t *t)
{
	const struct lp_attrs attrs = {.atime_ns = 5};
	uint64_t put_nr = version_of_put(t, "x");
	struct lp_change change = {.type = LP_CHANGE_SET,
				   .ino = lpi_tp_find(t, "x"),
				   .inode = {.attrs = &attrs, .mask = LP_ATTR_ATIME}};
	lpi_t_op(t, LP_NS_STORE);
	t->op->store.ino = change.ino;
	t->op->store.op = (struct lp_store_op){.opcode = LP_STORE_TXN,
					       .txn = {.changes = &change, .change_cnt = 1}};
	lp_test_ok(lpi_t_do(t));
	assert_int_equal(lpi_t_attrs(t, change.ino).atime_ns, 5);
	lp_test_ok(lpi_tp_delete_as(t, "x", false, LP_NS_IF_VERSION, put_nr));
}

static void test_read_version(void **state)
{
	(void)state;
	lpi_t_on_all(check_read);
}

#define WRITES 40u

/* One byte of the file, without a lock, as data is written. Its version then; 0: it is gone. */
static uint64_t write_byte(struct lpi_t *t, struct lp_ino ino)
{
	struct lpi_tp_data data;
	t->home = (t->home + 1) % t->rig->shard_cnt;
	lpi_tp_data_fill(&data, t->rig->bufs[t->home], 1, 'w');
	const struct lp_change change = {.type = LP_CHANGE_WRITE,
					 .ino = ino,
					 .data = {.length = 1, .payload = data.payload}};
	lpi_t_op(t, LP_NS_STORE);
	t->op->store.ino = ino;
	t->op->store.op = (struct lp_store_op){.opcode = LP_STORE_TXN,
					       .txn = {.changes = &change, .change_cnt = 1}};
	int r = lpi_ns_rig_do(t->rig, t->home, &t->hand);
	t->op->store.op.txn.changes = NULL; /* it ends here */
	lpi_tp_data_drop(&data);
	if (r == -ENOENT)
		return 0;
	lp_test_ok(r);
	return t->op->store.op.txn.version_nr;
}

/* The replaced inode is changed all the while, and the clock stands still: the new version is none
 * that it has had. */
static void check_rename_over_changed(struct lpi_t *t)
{
	for (uint32_t turns = 0; turns < 32; turns++) {
		(void)lpi_t_file(t, LP_INO_ROOT, "older");
		uint64_t seen = version_of_put(t, "x");
		struct lp_ino there = lpi_tp_find(t, "x");
		struct lpi_ns_hand rename = {.op = {.opcode = LP_NS_RENAME}};
		rename.op.rename.dir = rename.op.rename.to_dir = LP_INO_ROOT;
		rename.op.rename.name = lpi_t_bytes("older");
		rename.op.rename.to_name = lpi_t_bytes("x");
		lpi_ns_rig_submit(t->rig, turns % t->rig->shard_cnt, &rename);
		for (uint32_t n = 0; n < turns / 4 && !rename.is_done; n++)
			(void)lpi_ns_rig_turn(t->rig);
		for (uint32_t i = 0; i < WRITES && !rename.is_done; i++)
			seen = LP_MAX(seen, write_byte(t, there));
		lp_test_ok(lpi_ns_rig_wait(t->rig, &rename));
		assert_true(version_at_name(t, "x") > seen);
	}
}

static void test_rename_over_changed(void **state)
{
	(void)state;
	lpi_t_on_all(check_rename_over_changed);
}

/* Writes of one byte, one after the other, each only ordered, as a mount's are. */
struct writer {
	struct lpi_ns_hand hand;
	struct lpi_tp_data data;
	struct lp_change change;
	bool is_writing;
};

static void writer_submit(struct writer *writer, struct lpi_t *t, struct lp_ino ino)
{
	uint32_t home = lp_ino_shard(ino);
	lpi_tp_data_fill(&writer->data, t->rig->bufs[home], 1, 'w');
	writer->change = (struct lp_change){.type = LP_CHANGE_WRITE,
					    .ino = ino,
					    .data = {.length = 1, .payload = writer->data.payload}};
	writer->hand = (struct lpi_ns_hand){.op = {.opcode = LP_NS_STORE, .ack = LP_ACK_ORDERED}};
	writer->hand.op.store.ino = ino;
	writer->hand.op.store.op = (struct lp_store_op){
		.opcode = LP_STORE_TXN,
		.txn = {.changes = &writer->change, .change_cnt = 1, .ack = LP_ACK_ORDERED}};
	writer->is_writing = true;
	lpi_ns_rig_submit(t->rig, home, &writer->hand);
}

/* Returns the version that it has made, or 0. */
static uint64_t writer_take(struct writer *writer)
{
	if (!writer->is_writing || !writer->hand.is_done)
		return 0;
	writer->is_writing = false;
	lpi_tp_data_drop(&writer->data);
	int r = writer->hand.op.result;
	uint64_t version_nr = writer->hand.op.store.op.txn.version_nr;
	writer->hand.op.store.op.txn.changes = NULL; /* it ends here */
	assert_true(r == 0 || r == -ENOENT);
	return r == 0 ? version_nr : 0;
}

#define WRITERS 6u

/* While `hand` is at work the inode is written, again and again. The highest version it had. */
static uint64_t write_during(struct lpi_t *t, struct lp_ino ino, struct lpi_ns_hand *hand)
{
	struct writer writers[WRITERS] = {{.is_writing = false}};
	uint64_t seen = 0;
	uint32_t writing = 0;
	for (uint32_t i = 0; !hand->is_done || writing > 0; i++) {
		assert_true(i < LPI_T_TURNS_MAX);
		writing = 0;
		for (uint32_t k = 0; k < WRITERS; k++) {
			uint64_t taken = writer_take(&writers[k]);
			seen = LP_MAX(seen, taken);
			if (!writers[k].is_writing && !hand->is_done)
				writer_submit(&writers[k], t, ino);
			writing += writers[k].is_writing ? 1 : 0;
		}
		(void)lpi_ns_rig_turn(t->rig);
	}
	return seen;
}

static struct lp_ino make_upload(struct lpi_t *t, const char *path)
{
	lpi_t_op(t, LP_NS_UPLOAD);
	t->op->put.path = lpi_t_bytes(path);
	t->op->put.mode = 0640;
	lp_test_ok(lpi_t_do(t));
	return t->op->put.found.ino;
}

/* What puts an object at "x". */
static void fill_over(struct lpi_tp_put *put, struct lpi_t *t, enum lp_ns_opcode opcode)
{
	struct lp_ns_op *op = &put->hand.op;
	struct lp_ino upload = {0};
	if (opcode == LP_NS_COMMIT)
		upload = make_upload(t, "x");
	lpi_tp_put_fill(put, t, 0, "x", opcode == LP_NS_PUT ? 5 : 0);
	op->opcode = opcode;
	if (opcode == LP_NS_COMMIT) {
		op->put.ino = upload;
	} else if (opcode == LP_NS_COPY) {
		*op = (struct lp_ns_op){.opcode = opcode};
		op->copy.path = lpi_t_bytes("source");
		op->copy.to_path = lpi_t_bytes("x");
	}
}

/* A file that is written all the time is replaced, whether it is new or not; by nothing of a
 * version that it has had. */
static void check_put_over_changed(struct lpi_t *t)
{
	static const enum lp_ns_opcode opcodes[] = {LP_NS_PUT, LP_NS_COMMIT, LP_NS_COPY};
	lp_test_ok(lpi_tp_put(t, "source", 5));
	for (uint32_t i = 0; i < 2 * LP_ARRAY_SIZE(opcodes); i++) {
		uint64_t seen = version_of_put(t, "x");
		struct lp_ino there = lpi_tp_find(t, "x");
		lp_test_ok(lpi_t_open(t, there)); /* so that it is written to the end */
		for (uint32_t n = 0; n < 2 && i % 2 == 0; n++)
			lpi_t_later(t);
		struct lpi_tp_put put;
		fill_over(&put, t, opcodes[i / 2]);
		lpi_ns_rig_submit(t->rig, 0, &put.hand);
		uint64_t written = write_during(t, there, &put.hand);
		seen = LP_MAX(seen, written);
		lp_test_ok(put.hand.op.result);
		if (put.data.seg.buf != NULL)
			lpi_tp_put_drop(&put);
		assert_int_not_equal(lpi_tp_find(t, "x").nr, there.nr);
		assert_true(version_at_name(t, "x") > seen);
		lp_test_ok(lpi_t_close(t, there));
	}
}

static void test_put_over_changed(void **state)
{
	(void)state;
	lpi_t_on_all(check_put_over_changed);
}

/* An operation that waits for a name takes its time when it gets the lock, not when it asked for
 * it. */
static void granted_at_once(struct lpi_lock *lock)
{
	(void)lock;
}

/* An operation that gives the name "x" to something. */
static void fill(struct lp_ns_op *op, enum lp_ns_opcode opcode, struct lp_ino other)
{
	if (opcode == LP_NS_PUT)
		return;
	*op = (struct lp_ns_op){.opcode = opcode};
	if (opcode == LP_NS_MAKE) {
		op->make.dir = LP_INO_ROOT;
		op->make.name = lpi_t_bytes("x");
		op->make.type = LP_INODE_TYPE_FILE;
	} else if (opcode == LP_NS_LINK) {
		op->link.dir = LP_INO_ROOT;
		op->link.name = lpi_t_bytes("x");
		op->link.ino = other;
	} else {
		op->rename.dir = op->rename.to_dir = LP_INO_ROOT;
		op->rename.name = lpi_t_bytes("other");
		op->rename.to_name = lpi_t_bytes("x");
	}
}

static void check_waited(struct lpi_t *t)
{
	static const enum lp_ns_opcode opcodes[] = {LP_NS_MAKE, LP_NS_LINK, LP_NS_RENAME,
						    LP_NS_PUT};
	for (uint32_t i = 0; i < LP_ARRAY_SIZE(opcodes); i++) {
		struct lpi_lock lock = {.kind = LPI_LOCK_NAME, .ino = LP_INO_ROOT};
		struct lp_ino other = lpi_t_file(t, LP_INO_ROOT, "other");
		uint32_t shard_idx = lp_ns_shard_of(t->rig->ns[0], LP_INO_ROOT, lpi_t_bytes("x"));
		struct lpi_locks *locks = t->rig->ns[shard_idx]->locks;
		lock.hash = lpi_lock_hash("x", 1);
		lock.granted = granted_at_once;
		assert_true(lpi_lock_acquire(locks, &lock));
		struct lpi_tp_put put;
		lpi_tp_put_fill(&put, t, 0, "x", 5);
		fill(&put.hand.op, opcodes[i], other);
		lpi_ns_rig_submit(t->rig, 0, &put.hand);
		for (uint32_t n = 0; n < 200; n++)
			(void)lpi_ns_rig_turn(t->rig);
		assert_false(put.hand.is_done);
		lpi_t_later(t);
		int64_t now_ns = lp_clock_wall_ns(&t->rig->clock.clock);
		lpi_lock_release(locks, &lock);
		lp_test_ok(lpi_ns_rig_wait(t->rig, &put.hand));
		assert_true(version_at_name(t, "x") >= lp_version_at(now_ns));
		lpi_tp_put_drop(&put);
		lp_test_ok(lpi_t_remove(t, LP_INO_ROOT, "x", false));
		if (opcodes[i] != LP_NS_RENAME)
			lp_test_ok(lpi_t_remove(t, LP_INO_ROOT, "other", false));
	}
}

static void test_waited_versions(void **state)
{
	(void)state;
	lpi_t_on_all(check_waited);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_link_versions),       cmocka_unit_test(test_rename_versions),
		cmocka_unit_test(test_rename_over_changed), cmocka_unit_test(test_put_over_changed),
		cmocka_unit_test(test_waited_versions),     cmocka_unit_test(test_read_version),
	};
	return lp_test_main(tests, "namespace/ops/versions");
}
