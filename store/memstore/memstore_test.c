/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: transactions on the store in memory are atomic, their guards and changes say what the face
 * promises, and lookups, gets and lists find exactly what is there. Data: memstore/data_test.c.
 * Method: single cases with every error; transactions whose last change fails; lists with all
 * combinations of bounds, held against a walk over all names. */
#include "base/endian.h"
#include "store/model/store_test.h"
#include "store/record/values.h"

static const struct lp_ino file = {101};
static const struct lp_ino dir = {102};
static const struct lp_ino link_ino = {103};
static const struct lp_ino none = {999};

#define NAME(s) LPI_TEST_BYTES(s)

static const struct lp_attrs file_attrs = {.type = LP_INODE_TYPE_FILE,
					   .mode = 0640,
					   .uid = 5,
					   .nlink = 1,
					   /* Not for the caller to say. */
					   .size_bytes = 77,
					   .blocks = 77,
					   .version_nr = 77};
static const struct lp_attrs dir_attrs = {.type = LP_INODE_TYPE_DIR, .parent = {1}, .nlink = 2};
static const struct lp_attrs link_attrs = {.type = LP_INODE_TYPE_SYMLINK};

static struct lp_change create(struct lp_ino ino, const struct lp_attrs *attrs)
{
	return (struct lp_change){.type = LP_CHANGE_CREATE, .ino = ino, .inode = {.attrs = attrs}};
}

static struct lp_change plain(enum lp_change_type type, struct lp_ino ino)
{
	return (struct lp_change){.type = type, .ino = ino};
}

static struct lp_change named(enum lp_change_type type, struct lp_ino ino, struct lp_bytes name,
			      struct lp_bytes value)
{
	return (struct lp_change){
		.type = type, .ino = ino, .named = {.name = name, .value = value}};
}

static struct lp_change entry(enum lp_change_type type, struct lp_ino ino, const char *name,
			      uint64_t target)
{
	return (struct lp_change){.type = type,
				  .ino = ino,
				  .named = {.name = {name, (uint32_t)strlen(name)},
					    .target = {target},
					    .target_type = LP_INODE_TYPE_FILE}};
}

static struct lp_change seal(struct lp_ino ino, bool is_sealed)
{
	return (struct lp_change){.type = LP_CHANGE_DIR,
				  .ino = ino,
				  .dir = {.seal = is_sealed, .unseal = !is_sealed}};
}

static struct lp_change link_by(struct lp_ino ino, int32_t delta)
{
	return (struct lp_change){.type = LP_CHANGE_LINK, .ino = ino, .inode = {.delta = delta}};
}

static const struct lp_bytes absent = {NULL, 0};

static void setup(struct lpi_mem_rig *rig)
{
	lpi_mem_rig_init(rig, UINT64_C(2) << 20);
	struct lp_change changes[] = {create(file, &file_attrs), create(dir, &dir_attrs),
				      create(link_ino, &link_attrs)};
	changes[2].inode.target = NAME("to/where");
	lp_test_ok(lpi_hand_txn(&rig->hand, changes, 3));
}

static struct lp_attrs attrs_of(const struct lpi_hand *hand, struct lp_ino ino)
{
	struct lp_attrs attrs;
	lp_test_ok(lpi_hand_stat(hand, ino, &attrs));
	return attrs;
}

static struct lp_store_op dir_of(const struct lpi_hand *hand, struct lp_ino ino)
{
	struct lp_store_op op = {.opcode = LP_STORE_DIR, .dir = {.ino = ino}};
	lp_test_ok(lpi_hand_do(hand, &op));
	return op;
}

static struct lp_store_op lookup(const struct lpi_hand *hand, const char *name)
{
	struct lp_store_op op = {.opcode = LP_STORE_LOOKUP,
				 .lookup = {.dir = dir, .name = {name, (uint32_t)strlen(name)}}};
	(void)lpi_hand_do(hand, &op); /* the caller looks at op.result */
	return op;
}

static void expect_failed(const struct lpi_hand *hand, int err, const struct lp_change *changes,
			  uint32_t cnt, uint32_t failed_idx)
{
	struct lp_store_op op = lpi_txn_op(changes, cnt);
	lp_test_err(err, lpi_hand_do(hand, &op));
	assert_int_equal(op.txn.failed_idx, failed_idx);
}

/* --- Inodes ----------------------------------------------------------------------------------- */

static void test_inodes(void **state)
{
	(void)state;
	struct lpi_mem_rig rig;
	char target[9] = {0};
	setup(&rig);
	const struct lpi_hand *hand = &rig.hand;
	struct lp_attrs attrs = attrs_of(hand, file);
	assert_int_equal(attrs.mode, 0640);
	assert_int_equal(attrs.uid, 5);
	assert_int_equal(attrs.size_bytes, 0);
	assert_int_equal(attrs.blocks, 0);
	assert_int_equal(attrs.version_nr, 1);
	assert_int_equal(attrs_of(hand, link_ino).size_bytes, 8);
	assert_int_equal(lpi_hand_get(hand, LP_STORE_TARGET, link_ino, absent, target, 8), 8);
	assert_string_equal(target, "to/where");
	assert_int_equal(lpi_hand_get(hand, LP_STORE_TARGET, link_ino, absent, target, 7), -ERANGE);
	assert_int_equal(lpi_hand_get(hand, LP_STORE_TARGET, file, absent, target, 8), -EINVAL);
	assert_int_equal(lpi_hand_get(hand, LP_STORE_TARGET, none, absent, target, 8), -ENOENT);
	lp_test_err(-ENOENT, lpi_hand_stat(hand, none, &attrs));
	lp_test_err(-EEXIST, lpi_hand_change(hand, create(file, &file_attrs)));
	lp_test_ok(lpi_hand_change(hand, plain(LP_CHANGE_REMOVE, file)));
	lp_test_err(-ENOENT, lpi_hand_stat(hand, file, &attrs));
	lp_test_err(-ENOENT, lpi_hand_change(hand, plain(LP_CHANGE_REMOVE, file)));
	lpi_mem_rig_fini(&rig);
}

static void test_set(void **state)
{
	(void)state;
	struct lpi_mem_rig rig;
	setup(&rig);
	const struct lpi_hand *hand = &rig.hand;
	const struct lp_attrs all = {.atime_ns = -1,
				     .mtime_ns = 2,
				     .ctime_ns = 3,
				     .btime_ns = 4,
				     .parent = {7},
				     .uid = 8,
				     .gid = 9,
				     .nlink = 10,
				     .flags = LP_INODE_FLAG_IMMUTABLE,
				     .mode = 07777};
	struct lp_change set = {
		.type = LP_CHANGE_SET, .ino = file, .inode = {.attrs = &all, .name = NAME("n")}};
	struct lp_attrs want = attrs_of(hand, file);
	/* Bit by bit, so that one cannot stand for another. */
	for (uint32_t bit = 1; bit < LP_ATTRS_ALL; bit <<= 1) {
		set.inode.mask = bit;
		lp_test_ok(lpi_hand_change(hand, set));
		want.version_nr += bit == LP_ATTR_ATIME ? 0 : 1; /* it was only read */
		want.mode = bit == LP_ATTR_MODE ? all.mode : want.mode;
		want.uid = bit == LP_ATTR_UID ? all.uid : want.uid;
		want.gid = bit == LP_ATTR_GID ? all.gid : want.gid;
		want.nlink = bit == LP_ATTR_NLINK ? all.nlink : want.nlink;
		want.atime_ns = bit == LP_ATTR_ATIME ? all.atime_ns : want.atime_ns;
		want.mtime_ns = bit == LP_ATTR_MTIME ? all.mtime_ns : want.mtime_ns;
		want.ctime_ns = bit == LP_ATTR_CTIME ? all.ctime_ns : want.ctime_ns;
		want.btime_ns = bit == LP_ATTR_BTIME ? all.btime_ns : want.btime_ns;
		want.flags = bit == LP_ATTR_FLAGS ? all.flags : want.flags;
		want.parent = bit == LP_ATTR_PARENT ? all.parent : want.parent;
		const struct lp_attrs got = attrs_of(hand, file);
		assert_null(lpi_attrs_difference(&got, &want));
	}
	/* With anything else in its transaction it goes up, once. */
	set.inode.mask = LP_ATTR_ATIME;
	const struct lp_change both[] = {set, link_by(file, 1), set};
	lp_test_ok(lpi_hand_txn(hand, both, 3));
	assert_int_equal(attrs_of(hand, file).version_nr, want.version_nr + 1);
	/* A directory needs no name, and a parent. */
	set.ino = dir;
	set.inode.name = absent;
	set.inode.mask = LP_ATTR_PARENT;
	lp_test_ok(lpi_hand_change(hand, set));
	set.ino = file;
	lp_test_err(-EINVAL, lpi_hand_change(hand, set));
	set.inode.attrs = &file_attrs;
	lp_test_ok(lpi_hand_change(hand, set));
	set.ino = dir;
	lp_test_err(-EINVAL, lpi_hand_change(hand, set));
	set.ino = none;
	lp_test_err(-ENOENT, lpi_hand_change(hand, set));
	lpi_mem_rig_fini(&rig);
}

/* Rule W3: what is made, or gets a name, begins above all that was before; no other time says what
 * the version is, for callers may set it as they like. */
static void test_version_at(void **state)
{
	(void)state;
	struct lpi_mem_rig rig;
	setup(&rig);
	const struct lpi_hand *hand = &rig.hand;
	struct lp_attrs attrs = {
		.type = LP_INODE_TYPE_FILE, .nlink = 1, .mtime_ns = INT64_MAX, .ctime_ns = 7001999};
	lp_test_ok(lpi_hand_change(hand, create(none, &attrs)));
	assert_int_equal(attrs_of(hand, none).version_nr, 7001);
	struct lp_change set = {.type = LP_CHANGE_SET,
				.ino = none,
				.inode = {.attrs = &attrs, .mask = LP_ATTR_MTIME | LP_ATTR_CTIME}};
	attrs.ctime_ns = 9000000;
	lp_test_ok(lpi_hand_change(hand, set));
	assert_int_equal(attrs_of(hand, none).version_nr, 7002);
	attrs.parent = dir;
	set.inode.name = NAME("n");
	set.inode.mask = LP_ATTR_PARENT | LP_ATTR_CTIME;
	lp_test_ok(lpi_hand_change(hand, set));
	assert_int_equal(attrs_of(hand, none).version_nr, 9000);
	attrs.ctime_ns = 5000000;
	lp_test_ok(lpi_hand_change(hand, set));
	assert_int_equal(attrs_of(hand, none).version_nr, 9001);
	lp_test_ok(lpi_hand_change(hand, plain(LP_CHANGE_REMOVE, none)));
	attrs.ctime_ns = -1;
	attrs.parent = (struct lp_ino){0};
	lp_test_ok(lpi_hand_change(hand, create(none, &attrs)));
	assert_int_equal(attrs_of(hand, none).version_nr, 1);
	lpi_mem_rig_fini(&rig);
}

static void test_links(void **state)
{
	(void)state;
	struct lpi_mem_rig rig;
	setup(&rig);
	const struct lpi_hand *hand = &rig.hand;
	const struct lp_attrs most = {.nlink = UINT32_MAX - 1};
	const struct lp_change to_most = {.type = LP_CHANGE_SET,
					  .ino = file,
					  .inode = {.attrs = &most, .mask = LP_ATTR_NLINK}};
	const struct lp_change up_down[] = {link_by(file, 2), link_by(file, -3)};
	const struct lp_change below[] = {link_by(file, 1), link_by(file, -2)};
	const struct lp_change above[] = {to_most, link_by(file, 1), link_by(file, 1)};
	const struct lp_change fresh[] = {create(none, &file_attrs), link_by(none, -1),
					  link_by(none, -1)};
	lp_test_ok(lpi_hand_txn(hand, up_down, 2));
	assert_int_equal(attrs_of(hand, file).nlink, 0);
	assert_int_equal(attrs_of(hand, file).version_nr, 2);
	expect_failed(hand, -EOVERFLOW, below, 2, 1);
	expect_failed(hand, -EOVERFLOW, above, 3, 2);
	assert_int_equal(attrs_of(hand, file).nlink, 0);
	lp_test_ok(lpi_hand_txn(hand, above, 2));
	assert_int_equal(attrs_of(hand, file).nlink, UINT32_MAX);
	lp_test_err(-EOVERFLOW, lpi_hand_change(hand, link_by(file, INT32_MAX)));
	lp_test_ok(lpi_hand_change(hand, link_by(file, INT32_MIN)));
	assert_int_equal(attrs_of(hand, file).nlink, UINT32_MAX - (UINT32_C(1) << 31));
	expect_failed(hand, -EOVERFLOW, fresh, 3, 2);
	lp_test_ok(lpi_hand_txn(hand, fresh, 2));
	assert_int_equal(attrs_of(hand, none).nlink, 0);
	lpi_mem_rig_fini(&rig);
}

static void test_new_ino(void **state)
{
	(void)state;
	struct lpi_mem_rig rig;
	setup(&rig);
	struct lp_ino first = lp_store_new_ino(rig.hand.store);
	struct lp_ino second = lp_store_new_ino(rig.hand.store);
	assert_int_equal(lp_ino_shard(first), 3);
	assert_true(second.nr > first.nr);
	/* Nor is one that was taken without asking. */
	const struct lp_ino taken = {second.nr + 10};
	lp_test_ok(lpi_hand_change(&rig.hand, create(taken, &file_attrs)));
	lp_test_ok(lpi_hand_change(&rig.hand, plain(LP_CHANGE_REMOVE, taken)));
	assert_true(lp_store_new_ino(rig.hand.store).nr > taken.nr);
	lpi_mem_rig_fini(&rig);
}

/* --- Guards ----------------------------------------------------------------------------------- */

static struct lp_change version_is(uint64_t version_nr)
{
	struct lp_change guard = plain(LP_GUARD_INODE, file);
	guard.guard.version_nr = version_nr;
	return guard;
}

/* It is of mode 0640, of user 5 and group 0. */
static struct lp_change mode_is(uint16_t mode, uint16_t mask)
{
	struct lp_change guard = plain(LP_GUARD_INODE, file);
	guard.guard.mode = mode;
	guard.guard.mode_mask = mask;
	return guard;
}

static struct lp_change owner_is(uint32_t uid, uint32_t gid)
{
	struct lp_change guard = mode_is(0640, 07777);
	guard.guard.has_owner = true;
	guard.guard.uid = uid;
	guard.guard.gid = gid;
	return guard;
}

static struct lp_change shorter_than(uint64_t bytes)
{
	struct lp_change guard = plain(LP_GUARD_INODE, file);
	guard.guard.shorter_than = bytes;
	return guard;
}

struct guard_case {
	int err;
	struct lp_change guard;
};

/* Each behind one that holds and before one that fails, neither of which is told. */
static void expect_guards(const struct lpi_hand *hand, const struct guard_case *cases, size_t cnt)
{
	for (size_t i = 0; i < cnt; i++) {
		const struct lp_change changes[] = {plain(LP_GUARD_INODE, file), cases[i].guard,
						    plain(LP_CHANGE_REMOVE, none)};
		expect_failed(hand, cases[i].err < 0 ? cases[i].err : -ENOENT, changes, 3,
			      cases[i].err < 0 ? 1 : 2);
	}
}

static void test_inode_guards(void **state)
{
	(void)state;
	struct lpi_mem_rig rig;
	setup(&rig);
	const struct lpi_hand *hand = &rig.hand;
	const struct lp_change change = named(LP_CHANGE_XATTR_SET, file, NAME("x"), NAME("1"));
	struct lp_change longer = plain(LP_CHANGE_TRUNCATE, file);
	longer.data.offset = 1000;
	const struct lp_change both[] = {longer, change};
	lp_test_ok(lpi_hand_txn(hand, both, 2));
	const struct guard_case cases[] = {
		{0, plain(LP_GUARD_INODE, file)},
		{0, version_is(2)},
		{-ECANCELED, version_is(1)},
		{0, shorter_than(1001)},
		{-ECANCELED, shorter_than(1000)},
		{0, mode_is(0, 06000)},
		{-ECANCELED, mode_is(0, 07777)},
		{-ECANCELED, mode_is(0641, 07777)},
		{0, mode_is(0640, 07777)},
		{0, owner_is(5, 0)},
		{-ECANCELED, owner_is(4, 0)},
		{-ECANCELED, owner_is(5, 1)},
		{-ENOENT, plain(LP_GUARD_INODE, none)},
		{0, plain(LP_GUARD_NO_INODE, none)},
		{-EEXIST, plain(LP_GUARD_NO_INODE, file)},
	};
	expect_guards(hand, cases, LP_ARRAY_SIZE(cases));
	assert_int_equal(attrs_of(hand, file).version_nr, 2);
	lpi_mem_rig_fini(&rig);
}

static void test_guards(void **state)
{
	(void)state;
	struct lpi_mem_rig rig;
	setup(&rig);
	const struct lpi_hand *hand = &rig.hand;
	const struct lp_bytes key = NAME("Skey");
	const struct lp_change things[] = {
		named(LP_CHANGE_XATTR_SET, file, NAME("x"), NAME("1")),
		entry(LP_CHANGE_ENTRY_SET, dir, "e", 101),
		named(LP_CHANGE_RECORD, (struct lp_ino){0}, key, NAME("")),
	};
	lp_test_ok(lpi_hand_txn(hand, things, 3));
	const struct guard_case cases[] = {
		{0, entry(LP_GUARD_ENTRY, dir, "e", 0)},
		{0, entry(LP_GUARD_ENTRY, dir, "e", 101)},
		{-ECANCELED, entry(LP_GUARD_ENTRY, dir, "e", 102)},
		{-ENOENT, entry(LP_GUARD_ENTRY, dir, "f", 0)},
		{-ENOENT, entry(LP_GUARD_ENTRY, none, "e", 0)},
		{0, entry(LP_GUARD_NO_ENTRY, dir, "f", 0)},
		{0, entry(LP_GUARD_NO_ENTRY, none, "e", 0)},
		{-EEXIST, entry(LP_GUARD_NO_ENTRY, dir, "e", 0)},
		{0, named(LP_GUARD_XATTR, file, NAME("x"), absent)},
		{0, named(LP_GUARD_XATTR, file, NAME("x"), NAME("1"))},
		{-ECANCELED, named(LP_GUARD_XATTR, file, NAME("x"), NAME(""))},
		{-ECANCELED, named(LP_GUARD_XATTR, file, NAME("x"), NAME("12"))},
		{-ENODATA, named(LP_GUARD_XATTR, file, NAME("y"), absent)},
		{-ENOENT, named(LP_GUARD_XATTR, none, NAME("x"), absent)},
		{0, named(LP_GUARD_NO_XATTR, file, NAME("y"), absent)},
		{-EEXIST, named(LP_GUARD_NO_XATTR, file, NAME("x"), absent)},
		{-ENOENT, named(LP_GUARD_NO_XATTR, none, NAME("x"), absent)},
		{0, plain(LP_GUARD_EMPTY, none)},
		{-ENOTEMPTY, plain(LP_GUARD_EMPTY, dir)},
		{0, plain(LP_GUARD_DIR, none)},
		{0, plain(LP_GUARD_DIR, dir)},
		{0, entry(LP_GUARD_DIR, dir, "e", 0)},
		{0, entry(LP_GUARD_DIR, dir, "f", 0)},
		{0, named(LP_GUARD_RECORD, none, key, absent)},
		{0, named(LP_GUARD_RECORD, none, key, NAME(""))},
		{-ECANCELED, named(LP_GUARD_RECORD, none, key, NAME("1"))},
		{-ENOENT, named(LP_GUARD_RECORD, none, NAME("Ske"), absent)},
		{0, named(LP_GUARD_NO_RECORD, none, NAME("Ske"), absent)},
		{-EEXIST, named(LP_GUARD_NO_RECORD, none, key, absent)},
	};
	expect_guards(hand, cases, LP_ARRAY_SIZE(cases));
	assert_int_equal(attrs_of(hand, file).version_nr, 2);
	lpi_mem_rig_fini(&rig);
}

/* Guards look at what was there before the transaction. */
static void test_guards_come_first(void **state)
{
	(void)state;
	struct lpi_mem_rig rig;
	setup(&rig);
	const struct lp_change changes[] = {plain(LP_GUARD_NO_INODE, none),
					    create(none, &file_attrs),
					    plain(LP_CHANGE_REMOVE, none)};
	struct lp_store_op op = lpi_txn_op(changes, 3);
	lp_test_err(-EINVAL, lpi_hand_do(&rig.hand, &op)); /* made and gone */
	assert_int_equal(op.txn.failed_idx, 2);
	op = lpi_txn_op(changes, 2);
	lp_test_ok(lpi_hand_do(&rig.hand, &op));
	assert_int_equal(op.txn.version_nr, 1);
	assert_int_equal(op.txn.failed_idx, 2);
	lpi_mem_rig_fini(&rig);
}

/* --- Directories ------------------------------------------------------------------------------ */

static void test_entries(void **state)
{
	(void)state;
	struct lpi_mem_rig rig;
	setup(&rig);
	const struct lpi_hand *hand = &rig.hand;
	lp_test_ok(lpi_hand_change(hand, entry(LP_CHANGE_ENTRY_SET, dir, "one", 101)));
	lp_test_ok(lpi_hand_change(hand, entry(LP_CHANGE_ENTRY_SET, dir, "three", 5000)));
	struct lp_store_op op = lookup(hand, "one");
	lp_test_ok(op.result);
	assert_int_equal(op.lookup.ino.nr, 101);
	assert_int_equal(op.lookup.type, LP_INODE_TYPE_FILE);
	assert_true(op.lookup.has_attrs);
	assert_int_equal(op.lookup.attrs.uid, 5);
	uint64_t insertion = op.lookup.insertion;
	assert_true(insertion > 0);
	op = lookup(hand, "three");
	assert_false(op.lookup.has_attrs);
	assert_true(op.lookup.insertion > insertion);
	op = lookup(hand, "two");
	lp_test_err(-ENOENT, op.result);
	/* It leads elsewhere and is the same entry; gone and made again it is another (rule N4). */
	lp_test_ok(lpi_hand_change(hand, entry(LP_CHANGE_ENTRY_SET, dir, "one", 102)));
	op = lookup(hand, "one");
	assert_int_equal(op.lookup.ino.nr, 102);
	assert_int_equal(op.lookup.insertion, insertion);
	op = dir_of(hand, dir);
	assert_int_equal(op.dir.entries_cnt, 2);
	assert_int_equal(op.dir.name_bytes, 8);
	lp_test_ok(lpi_hand_change(hand, entry(LP_CHANGE_ENTRY_REMOVE, dir, "one", 0)));
	lp_test_err(-ENOENT, lpi_hand_change(hand, entry(LP_CHANGE_ENTRY_REMOVE, dir, "one", 0)));
	op = dir_of(hand, dir);
	assert_int_equal(op.dir.entries_cnt, 1);
	assert_int_equal(op.dir.name_bytes, 5);
	uint64_t next_insertion = op.dir.next_insertion;
	lp_test_ok(lpi_hand_change(hand, entry(LP_CHANGE_ENTRY_SET, dir, "one", 102)));
	assert_true(lookup(hand, "one").lookup.insertion > lookup(hand, "three").lookup.insertion);
	assert_int_equal(lookup(hand, "one").lookup.insertion, next_insertion);
	/* The directory's inode has nothing to do with it. */
	assert_int_equal(attrs_of(hand, dir).version_nr, 1);
	lpi_mem_rig_fini(&rig);
}

static void test_fragments(void **state)
{
	(void)state;
	struct lpi_mem_rig rig;
	setup(&rig);
	const struct lpi_hand *hand = &rig.hand;
	struct lp_change times = plain(LP_CHANGE_DIR, dir);
	struct lp_store_op op = dir_of(hand, none);
	assert_int_equal(op.dir.entries_cnt | (uint64_t)op.dir.mtime_ns, 0);
	times.dir.mtime_ns = -5;
	lp_test_ok(lpi_hand_change(hand, times));
	times.dir.mtime_ns = 0;
	times.dir.ctime_ns = 6;
	lp_test_ok(lpi_hand_change(hand, times));
	times.dir.ctime_ns = 4; /* made late */
	lp_test_ok(lpi_hand_change(hand, times));
	op = dir_of(hand, dir);
	assert_int_equal(op.dir.mtime_ns, -5);
	assert_int_equal(op.dir.ctime_ns, 6);
	lp_test_ok(lpi_hand_change(hand, entry(LP_CHANGE_ENTRY_SET, dir, "e", 101)));
	lp_test_err(-ENOTEMPTY, lpi_hand_change(hand, seal(dir, true)));
	const struct lp_change empty_and_seal[] = {entry(LP_CHANGE_ENTRY_REMOVE, dir, "e", 0),
						   seal(dir, true),
						   entry(LP_CHANGE_ENTRY_SET, dir, "g", 101)};
	expect_failed(hand, -ENOENT, empty_and_seal, 3, 2);
	assert_false(dir_of(hand, dir).dir.is_sealed);
	lp_test_ok(lpi_hand_txn(hand, empty_and_seal, 2));
	assert_true(dir_of(hand, dir).dir.is_sealed);
	lp_test_err(-ENOENT, lpi_hand_change(hand, entry(LP_CHANGE_ENTRY_SET, dir, "e", 101)));
	const struct lp_change unseal_and_set[] = {seal(dir, false),
						   entry(LP_CHANGE_ENTRY_SET, dir, "e", 101)};
	lp_test_ok(lpi_hand_txn(hand, unseal_and_set, 2));
	op = dir_of(hand, dir);
	assert_false(op.dir.is_sealed);
	assert_int_equal(op.dir.entries_cnt, 1);
	assert_int_equal(op.dir.ctime_ns, 6);
	lpi_mem_rig_fini(&rig);
}

/* The mark of what has no links goes with it. */
static void test_mark_goes(void **state)
{
	(void)state;
	struct lpi_mem_rig rig;
	setup(&rig);
	const struct lpi_hand *hand = &rig.hand;
	const struct lp_unfinished_value orphan = {.kind = LP_UNFINISHED_KIND_ORPHAN};
	uint8_t value[LP_UNFINISHED_VALUE_SIZE];
	struct lp_key key;
	lp_key_of_ino(&key, LP_KEY_SPACE_UNFINISHED, file);
	lp_unfinished_write(&orphan, &key, value);
	const struct lp_bytes name = {key.bytes, (uint32_t)key.len};
	const struct lp_bytes bytes = {value, sizeof(value)};
	const struct lp_attrs none_left = {.nlink = 0};
	const struct lp_change unlink = {.type = LP_CHANGE_SET,
					 .ino = file,
					 .inode = {.attrs = &none_left, .mask = LP_ATTR_NLINK}};
	const struct lp_change changes[] = {unlink, named(LP_CHANGE_RECORD, none, name, bytes)};
	lp_test_ok(lpi_hand_txn(hand, changes, 2));
	assert_int_equal(lpi_hand_get(hand, LP_STORE_RECORDS, none, name, value, sizeof(value)),
			 sizeof(value));
	lp_test_ok(lpi_hand_change(hand, plain(LP_CHANGE_REMOVE, file)));
	assert_int_equal(lpi_hand_get(hand, LP_STORE_RECORDS, none, name, value, sizeof(value)),
			 -ENOENT);
	lpi_mem_rig_fini(&rig);
}

/* The fragment goes, with its seal and its numbers, when it is empty. */
static void test_dropped(void **state)
{
	(void)state;
	struct lpi_mem_rig rig;
	setup(&rig);
	const struct lpi_hand *hand = &rig.hand;
	const struct lp_ino away = {lp_ino_make(9, 9).nr};
	const struct lp_ino dirs[] = {dir, away}; /* whose inode is here, and is not */
	const struct lp_change drops[] = {
		plain(LP_CHANGE_REMOVE, dir),
		{.type = LP_CHANGE_DIR, .ino = away, .dir = {.drop = true}}};
	for (size_t i = 0; i < LP_ARRAY_SIZE(dirs); i++) {
		lp_test_ok(lpi_hand_change(hand, entry(LP_CHANGE_ENTRY_SET, dirs[i], "x", 7)));
		lp_test_err(-ENOTEMPTY, lpi_hand_change(hand, drops[i]));
		assert_int_equal(dir_of(hand, dirs[i]).dir.entries_cnt, 1);
		const struct lp_change too_late[] = {
			drops[i], entry(LP_CHANGE_ENTRY_REMOVE, dirs[i], "x", 0)};
		lp_test_err(-ENOTEMPTY, lpi_hand_txn(hand, too_late, 2));
		const struct lp_change all[] = {entry(LP_CHANGE_ENTRY_REMOVE, dirs[i], "x", 0),
						{.type = LP_CHANGE_DIR,
						 .ino = dirs[i],
						 .dir = {.seal = true, .mtime_ns = 5}},
						drops[i]};
		lp_test_ok(lpi_hand_txn(hand, all, 3));
		struct lp_store_op op = dir_of(hand, dirs[i]);
		assert_false(op.dir.is_sealed);
		assert_int_equal(op.dir.mtime_ns, 0);
	}
	/* None is as good as an empty one; and it may begin again. */
	lp_test_ok(lpi_hand_change(hand, drops[1]));
	lp_test_ok(lpi_hand_change(hand, entry(LP_CHANGE_ENTRY_SET, away, "x", 7)));
	assert_int_equal(dir_of(hand, away).dir.entries_cnt, 1);
	lpi_mem_rig_fini(&rig);
}

/* --- Xattrs, omap, records -------------------------------------------------------------------- */

static void test_small_things(void **state)
{
	(void)state;
	static const struct {
		enum lp_store_space space;
		enum lp_change_type set;
		enum lp_change_type remove;
		int absent;
		int remove_absent;
	} kinds[] = {
		{LP_STORE_XATTRS, LP_CHANGE_XATTR_SET, LP_CHANGE_XATTR_REMOVE, -ENODATA, -ENODATA},
		{LP_STORE_OMAP, LP_CHANGE_OMAP_SET, LP_CHANGE_OMAP_REMOVE, -ENODATA, 0},
		{LP_STORE_RECORDS, LP_CHANGE_RECORD, LP_CHANGE_RECORD, -ENOENT, 0},
	};
	static char value[LP_STORE_VALUE_MAX];
	static char got[LP_STORE_VALUE_MAX];
	const struct lp_bytes key = NAME("Skey");
	const struct lp_bytes big = {value, sizeof(value)};
	struct lpi_mem_rig rig;
	setup(&rig);
	const struct lpi_hand *hand = &rig.hand;
	memset(value, 'v', sizeof(value));
	for (size_t i = 0; i < LP_ARRAY_SIZE(kinds); i++) {
		enum lp_store_space space = kinds[i].space;
		assert_int_equal(lpi_hand_get(hand, space, file, key, got, 9), kinds[i].absent);
		lp_test_err(kinds[i].remove_absent,
			    lpi_hand_change(hand, named(kinds[i].remove, file, key, absent)));
		lp_test_ok(lpi_hand_change(hand, named(kinds[i].set, file, key, NAME("a"))));
		assert_int_equal(lpi_hand_get(hand, space, file, key, got, 9), 1);
		assert_int_equal(got[0], 'a');
		lp_test_ok(lpi_hand_change(hand, named(kinds[i].set, file, key, big)));
		assert_int_equal(lpi_hand_get(hand, space, file, key, got, sizeof(got)),
				 sizeof(got));
		assert_memory_equal(got, value, sizeof(value));
		struct lp_store_op op = {.opcode = LP_STORE_GET,
					 .get = {.space = space, .ino = file, .name = key}};
		lp_test_err(-ERANGE, lpi_hand_do(hand, &op));
		assert_int_equal(op.get.value_len, sizeof(value));
		lp_test_ok(lpi_hand_change(hand, named(kinds[i].set, file, key, NAME(""))));
		assert_int_equal(lpi_hand_get(hand, space, file, key, NULL, 0), 0);
		lp_test_ok(lpi_hand_change(hand, named(kinds[i].remove, file, key, absent)));
		assert_int_equal(lpi_hand_get(hand, space, file, key, got, 9), kinds[i].absent);
		bool has_inode = space != LP_STORE_RECORDS;
		lp_test_err(has_inode ? -ENOENT : 0,
			    lpi_hand_change(hand, named(kinds[i].set, none, key, NAME("a"))));
		assert_int_equal(lpi_hand_get(hand, space, none, key, got, 9),
				 has_inode ? -ENOENT : 1);
	}
	/* Three of the eight changes of a kind failed or were none to an inode. */
	assert_int_equal(attrs_of(hand, file).version_nr, 1 + 4 + 5);
	lpi_mem_rig_fini(&rig);
}

/* --- Transactions ----------------------------------------------------------------------------- */

/* Changes of all kinds; the last one decides whether they happen. */
static void test_all_or_nothing(void **state)
{
	(void)state;
	struct lpi_mem_rig rig;
	struct lpi_pay pay;
	uint8_t bytes[100];
	struct lp_attrs attrs;
	setup(&rig);
	const struct lpi_hand *hand = &rig.hand;
	memset(bytes, 'b', sizeof(bytes));
	assert_true(lpi_pay_make(&pay, hand->bufs, bytes, 0, sizeof(bytes), LP_BUF_SMALL));
	const struct lp_ino fresh = {200};
	struct lp_change changes[] = {
		create(fresh, &file_attrs),
		lpi_write_change(fresh, 0, sizeof(bytes), &pay),
		named(LP_CHANGE_XATTR_SET, fresh, NAME("x"), NAME("1")),
		named(LP_CHANGE_OMAP_SET, fresh, NAME("k"), NAME("2")),
		link_by(file, 1),
		entry(LP_CHANGE_ENTRY_SET, dir, "new", 200),
		named(LP_CHANGE_RECORD, none, NAME("Skey"), NAME("3")),
		plain(LP_CHANGE_REMOVE, link_ino),
		named(LP_CHANGE_XATTR_REMOVE, fresh, NAME("y"), absent),
	};
	const uint32_t cnt = LP_ARRAY_SIZE(changes);
	expect_failed(hand, -ENODATA, changes, cnt, cnt - 1);
	lp_test_err(-ENOENT, lpi_hand_stat(hand, fresh, &attrs));
	assert_int_equal(attrs_of(hand, file).nlink, 1);
	assert_int_equal(attrs_of(hand, file).version_nr, 1);
	lp_test_err(-ENOENT, lookup(hand, "new").result);
	assert_int_equal(lpi_hand_get(hand, LP_STORE_RECORDS, none, NAME("Skey"), bytes, 9),
			 -ENOENT);
	assert_int_equal(attrs_of(hand, link_ino).version_nr, 1);
	struct lp_store_op op = lpi_txn_op(changes, cnt - 1);
	lp_test_ok(lpi_hand_do(hand, &op));
	assert_int_equal(op.txn.version_nr, 1);
	attrs = attrs_of(hand, fresh);
	assert_int_equal(attrs.version_nr, 1); /* one transaction, one version */
	assert_int_equal(attrs.size_bytes, sizeof(bytes));
	assert_int_equal(lpi_hand_get(hand, LP_STORE_OMAP, fresh, NAME("k"), bytes, 9), 1);
	assert_int_equal(lpi_hand_get(hand, LP_STORE_XATTRS, fresh, NAME("x"), bytes, 9), 1);
	assert_int_equal(lookup(hand, "new").lookup.attrs.size_bytes, 100);
	lp_test_err(-ENOENT, lpi_hand_stat(hand, link_ino, &attrs));
	lpi_pay_drop(&pay);
	lpi_mem_rig_fini(&rig);
}

/* After its removal an inode is not there for later changes, nor as what is cloned. */
static void test_removed_within(void **state)
{
	(void)state;
	struct lpi_mem_rig rig;
	setup(&rig);
	struct lp_change changes[] = {plain(LP_CHANGE_REMOVE, file),
				      plain(LP_CHANGE_TRUNCATE, file)};
	expect_failed(&rig.hand, -EINVAL, changes, 2, 1);
	lp_test_ok(lpi_hand_change(&rig.hand, create((struct lp_ino){200}, &file_attrs)));
	changes[1] = (struct lp_change){.type = LP_CHANGE_CLONE,
					.ino = {200},
					.clone = {.src = file, .length = LP_BLOCK_BYTES}};
	expect_failed(&rig.hand, -ENOENT, changes, 2, 1);
	assert_int_equal(attrs_of(&rig.hand, file).version_nr, 1);
	lpi_mem_rig_fini(&rig);
}

/* --- Lists ------------------------------------------------------------------------------------ */

static const char *const sorted[] = {"a", "a\x01", "aa",   "ab",      "abc",
				     "b", "ba",    "\xff", "\xff\xff"};
/* NULL: absent. Some are names, some lie between, some are outside. */
static const char *const bounds[] = {NULL, "",    "a", "a\x01",       "aaa",
				     "ab", "abb", "c", "\xff\xff\xff"};

static struct lp_bytes bytes_of(const char *text)
{
	return (struct lp_bytes){text, text == NULL ? 0 : (uint32_t)strlen(text)};
}

static int order_of(struct lp_bytes a, struct lp_bytes b)
{
	return lp_key_compare(a.data, a.len, b.data, b.len);
}

static bool is_wanted(const struct lp_store_op *op, struct lp_bytes name)
{
	if (op->list.after.data != NULL && order_of(name, op->list.after) <= 0)
		return false;
	if (op->list.from.data != NULL && order_of(name, op->list.from) < 0)
		return false;
	if (op->list.prefix.data == NULL)
		return true;
	uint32_t len = op->list.prefix.len;
	return name.len >= len && memcmp(name.data, op->list.prefix.data, len) == 0;
}

/* Of the names in their order those that are wanted, as many as there may be. */
static void check_list(const struct lpi_hand *hand, struct lp_store_op *op, const uint8_t *names,
		       uint32_t name_len)
{
	struct lp_list_item item = {.type = 0};
	uint32_t pos = 0;
	uint32_t cnt = 0;
	lp_test_ok(lpi_hand_do(hand, op));
	for (size_t i = 0; i < LP_ARRAY_SIZE(sorted); i++) {
		struct lp_bytes name = names == NULL ? bytes_of(sorted[i])
						     : (struct lp_bytes){names + 8 * i, name_len};
		if (!is_wanted(op, name))
			continue;
		if (op->list.items_max != 0 && cnt == op->list.items_max) {
			assert_true(op->list.more);
			return;
		}
		assert_true(lp_store_list_next(op, &pos, &item));
		assert_int_equal(order_of(item.name, name), 0);
		assert_int_equal(item.value.data != NULL,
				 op->list.with_values && op->list.space != LP_STORE_INODES);
		cnt++;
	}
	assert_int_equal(op->list.items, cnt);
	assert_false(op->list.more);
}

static void check_lists(const struct lpi_hand *hand, enum lp_store_space space)
{
	char buf[1000];
	const size_t cnt = LP_ARRAY_SIZE(bounds);
	const size_t kinds = 6; /* two bounds, three maxima */
	for (size_t i = 0; i < kinds * cnt * cnt; i++) {
		struct lp_store_op op = {.opcode = LP_STORE_LIST,
					 .list = {.space = space,
						  .ino = file,
						  .prefix = bytes_of(bounds[i % cnt]),
						  .buf = buf,
						  .buf_len = sizeof(buf),
						  .items_max = (uint32_t)(i / cnt / cnt / 2),
						  .with_values = i % 2 == 0}};
		struct lp_bytes bound = bytes_of(bounds[i / cnt % cnt]);
		if (i / cnt / cnt % 2 == 0)
			op.list.after = bound;
		else
			op.list.from = bound;
		check_list(hand, &op, NULL, 0);
	}
}

static void test_lists(void **state)
{
	(void)state;
	struct lpi_mem_rig rig;
	setup(&rig);
	const struct lpi_hand *hand = &rig.hand;
	for (size_t i = 0; i < LP_ARRAY_SIZE(sorted); i++) {
		const char *name = sorted[i * 4 % LP_ARRAY_SIZE(sorted)];
		const struct lp_change changes[] = {
			named(LP_CHANGE_XATTR_SET, file, bytes_of(name), NAME("v")),
			named(LP_CHANGE_OMAP_SET, file, bytes_of(name), NAME("")),
		};
		lp_test_ok(lpi_hand_txn(hand, changes, 2));
	}
	check_lists(hand, LP_STORE_XATTRS);
	check_lists(hand, LP_STORE_OMAP);
	struct lp_store_op op = {.opcode = LP_STORE_LIST,
				 .list = {.space = LP_STORE_XATTRS, .ino = none}};
	lp_test_err(-ENOENT, lpi_hand_do(hand, &op));
	op.list.space = LP_STORE_ENTRIES;
	lp_test_ok(lpi_hand_do(hand, &op));
	assert_int_equal(op.list.items, 0);
	op.list.space = LP_STORE_XATTRS;
	op.list.ino = file;
	lp_test_err(-ERANGE, lpi_hand_do(hand, &op));
	lpi_mem_rig_fini(&rig);
}

static void test_list_inodes(void **state)
{
	(void)state;
	static const uint64_t numbers[] = {1,
					   255,
					   256,
					   UINT64_C(1) << 56,
					   (UINT64_C(1) << 56) + 1,
					   (UINT64_C(1) << 56) + 256,
					   UINT64_C(255) << 56,
					   UINT64_MAX - 1,
					   UINT64_MAX};
	struct lpi_mem_rig rig;
	uint8_t names[LP_ARRAY_SIZE(numbers)][8];
	char buf[1000];
	lpi_mem_rig_init(&rig, UINT64_C(2) << 20);
	for (size_t i = 0; i < LP_ARRAY_SIZE(numbers); i++) {
		lp_put_be64(names[i], numbers[i]);
		lp_test_ok(lpi_hand_change(&rig.hand,
					   create((struct lp_ino){numbers[i]}, &file_attrs)));
	}
	for (size_t i = 0; i < 10 * LP_ARRAY_SIZE(numbers) * 2; i++) {
		/* Bounds of up to nine bytes, the last of them beyond any number. */
		uint8_t bound[9] = {0};
		memcpy(bound, names[i / 20], 8);
		const struct lp_bytes at = {bound, (uint32_t)(i / 2 % 10)};
		struct lp_store_op op = {
			.opcode = LP_STORE_LIST,
			.list = {.space = LP_STORE_INODES, .buf = buf, .buf_len = sizeof(buf)}};
		if (i % 2 == 0)
			op.list.after = at;
		else
			op.list.from = at;
		check_list(&rig.hand, &op, names[0], 8);
		op.list.after = absent;
		op.list.from = absent;
		op.list.prefix = at;
		op.list.items_max = 1 + (uint32_t)(i % 3);
		check_list(&rig.hand, &op, names[0], 8);
	}
	lpi_mem_rig_fini(&rig);
}

static void test_list_entries_and_records(void **state)
{
	(void)state;
	struct lpi_mem_rig rig;
	char buf[200];
	struct lp_list_item item = {.type = 0};
	uint32_t pos = 0;
	setup(&rig);
	const struct lp_change changes[] = {
		entry(LP_CHANGE_ENTRY_SET, dir, "b", 101), entry(LP_CHANGE_ENTRY_SET, dir, "a", 7),
		named(LP_CHANGE_RECORD, none, NAME("Sbb"), NAME("x")),
		named(LP_CHANGE_RECORD, none, NAME("T\0\0\0\0\0\0\0\1"), NAME("y"))};
	lp_test_ok(lpi_hand_txn(&rig.hand, changes, 4));
	struct lp_store_op op = {
		.opcode = LP_STORE_LIST,
		.list = {
			.space = LP_STORE_ENTRIES, .ino = dir, .buf = buf, .buf_len = sizeof(buf)}};
	lp_test_ok(lpi_hand_do(&rig.hand, &op));
	assert_true(lp_store_list_next(&op, &pos, &item));
	assert_int_equal(item.ino.nr, 7);
	assert_int_equal(item.insertion, 2);
	assert_int_equal(item.type, LP_INODE_TYPE_FILE);
	assert_true(lp_store_list_next(&op, &pos, &item));
	assert_int_equal(item.insertion, 1);
	assert_false(lp_store_list_next(&op, &pos, &item));
	op.list.space = LP_STORE_RECORDS;
	op.list.prefix = NAME("S");
	op.list.with_values = true;
	pos = 0;
	lp_test_ok(lpi_hand_do(&rig.hand, &op));
	assert_true(lp_store_list_next(&op, &pos, &item));
	assert_int_equal(order_of(item.name, NAME("Sbb")), 0);
	assert_int_equal(order_of(item.value, NAME("x")), 0);
	assert_false(lp_store_list_next(&op, &pos, &item));
	lpi_mem_rig_fini(&rig);
}

/* --- Completions ------------------------------------------------------------------------------ */

#define CHAIN ((size_t)5)

static struct lpi_mem_rig *chain_rig;
static struct lp_store_op chain[2 * CHAIN];
static unsigned chain_done;

static void begin(struct lp_store_op *op);

/* In order; each submits another, from inside. */
static void chain_complete(struct lp_store_op *op)
{
	assert_ptr_equal(op, &chain[chain_done]);
	chain_done++;
	if (op + CHAIN < chain + 2 * CHAIN)
		begin(op + CHAIN);
}

static void begin(struct lp_store_op *op)
{
	/* Every other one fails its checks: no reason to be first. */
	unsigned done = chain_done;
	*op = (struct lp_store_op){.opcode = LP_STORE_STAT,
				   .stat = {.ino = {(uint64_t)(op - chain) % 2 * file.nr}},
				   .complete = chain_complete};
	lp_store_submit(chain_rig->hand.store, op);
	assert_int_equal(chain_done, done);
}

static void test_completions(void **state)
{
	(void)state;
	struct lpi_mem_rig rig;
	struct lp_store_stats stats;
	setup(&rig);
	chain_rig = &rig;
	chain_done = 0;
	for (size_t i = 0; i < CHAIN; i++)
		begin(&chain[i]);
	for (unsigned i = 0; chain_done < LP_ARRAY_SIZE(chain); i++) {
		assert_true(i < 100);
		lpi_hand_turn(&rig.hand);
	}
	for (size_t i = 0; i < LP_ARRAY_SIZE(chain); i++)
		lp_test_err(i % 2 == 0 ? -EINVAL : 0, chain[i].result);
	struct lp_store_op sync = {.opcode = LP_STORE_SYNC};
	lp_test_ok(lpi_hand_do(&rig.hand, &sync));
	lp_store_read_stats(rig.hand.store, &stats);
	assert_int_equal(stats.ops[LP_STORE_STAT], 2 * CHAIN);
	assert_int_equal(stats.errors[LP_STORE_STAT], CHAIN);
	assert_int_equal(stats.ops[LP_STORE_TXN], 1);
	assert_int_equal(stats.ops[LP_STORE_SYNC], 1);
	assert_int_equal(lp_store_error(rig.hand.store), 0);
	lp_store_set_write_path(rig.hand.store, LP_PATH_INLINE);
	lpi_mem_rig_fini(&rig);
}

/* More inodes than the table begins with. */
static void test_many(void **state)
{
	(void)state;
	struct lpi_mem_rig rig;
	lpi_mem_rig_init(&rig, UINT64_C(2) << 20);
	for (uint64_t i = 1; i <= 5000; i++) {
		lp_test_ok(
			lpi_hand_change(&rig.hand, create((struct lp_ino){i << 20}, &file_attrs)));
		lp_test_ok(lpi_hand_change(
			&rig.hand, entry(LP_CHANGE_ENTRY_SET, (struct lp_ino){i}, "e", i << 20)));
	}
	for (uint64_t i = 1; i <= 5000; i++) {
		assert_int_equal(attrs_of(&rig.hand, (struct lp_ino){i << 20}).version_nr, 1);
		assert_int_equal(dir_of(&rig.hand, (struct lp_ino){i}).dir.entries_cnt, 1);
		if (i % 2 == 0)
			lp_test_ok(lpi_hand_change(
				&rig.hand, plain(LP_CHANGE_REMOVE, (struct lp_ino){i << 20})));
	}
	struct lp_attrs attrs;
	for (uint64_t i = 1; i <= 5000; i++)
		lp_test_err(i % 2 == 0 ? -ENOENT : 0,
			    lpi_hand_stat(&rig.hand, (struct lp_ino){i << 20}, &attrs));
	lpi_mem_rig_fini(&rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_inodes),
		cmocka_unit_test(test_set),
		cmocka_unit_test(test_version_at),
		cmocka_unit_test(test_links),
		cmocka_unit_test(test_new_ino),
		cmocka_unit_test(test_inode_guards),
		cmocka_unit_test(test_guards),
		cmocka_unit_test(test_guards_come_first),
		cmocka_unit_test(test_entries),
		cmocka_unit_test(test_fragments),
		cmocka_unit_test(test_dropped),
		cmocka_unit_test(test_mark_goes),
		cmocka_unit_test(test_small_things),
		cmocka_unit_test(test_all_or_nothing),
		cmocka_unit_test(test_removed_within),
		cmocka_unit_test(test_lists),
		cmocka_unit_test(test_list_inodes),
		cmocka_unit_test(test_list_entries_and_records),
		cmocka_unit_test(test_completions),
		cmocka_unit_test(test_many),
	};
	return lp_test_main(tests, "store/memstore/memstore");
}
