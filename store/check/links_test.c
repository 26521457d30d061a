/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: entries, fragments, links and marks of unfinished work are held against each other over all
 * shards; what follows from the rest is mended, and no entry or inode ever goes (rules N2, N3, S6).
 * The table of inodes gives the same answers however small it is.
 * Method: a small store built through commits, one damage by a commit, then check, repair, check;
 * the table beside a plain array. */
#include "store/check/fsck_rig_test.h"

#include "base/prng.h"
#include "store/check/inode_table.h"

static struct lpi_fsck_rig rig;

static void change_nlink(struct lpi_fsck_rig *on, uint64_t nr, uint32_t nlink)
{
	struct lp_kv_value value;
	struct lp_inode inode;
	lpi_rig_get_inode(on, nr, &value, &inode);
	inode.nlink = nlink;
	lpi_rig_put_inode(on, &inode);
	lp_kv_value_release(&value);
}

static void remove_key(struct lpi_fsck_rig *on, enum lp_key_space space, uint64_t nr)
{
	struct lp_key key;
	lp_key_of_ino(&key, space, (struct lp_ino){nr});
	lpi_rig_put(on, lp_ino_shard((struct lp_ino){nr}), &key, NULL, 0);
}

static void remove_entry(struct lpi_fsck_rig *on, uint64_t dir, const char *name)
{
	struct lp_key key;
	lp_key_of_name(&key, LP_KEY_SPACE_DIRENT, (struct lp_ino){dir}, name, strlen(name));
	lpi_rig_put(on, lp_ino_shard((struct lp_ino){dir}), &key, NULL, 0);
}

static uint32_t nlink_of(uint64_t nr)
{
	struct lp_kv_value value;
	struct lp_inode inode;
	lpi_rig_open(&rig);
	lpi_rig_get_inode(&rig, nr, &value, &inode);
	uint32_t nlink = inode.nlink;
	lp_kv_value_release(&value);
	lpi_rig_close(&rig);
	return nlink;
}

/* --- Fragments -------------------------------------------------------------------------------- */

static void wrong_count(struct lpi_fsck_rig *on)
{
	lpi_rig_put_fragment(on, 2, 5, 5, 6);
}

static void wrong_bytes(struct lpi_fsck_rig *on)
{
	lpi_rig_put_fragment(on, 2, 4, 5, 6);
}

static void used_insertion(struct lpi_fsck_rig *on)
{
	lpi_rig_put_fragment(on, 2, 4, 4, 5);
}

static void no_fragment(struct lpi_fsck_rig *on)
{
	remove_key(on, LP_KEY_SPACE_FRAGMENT, 2);
}

static void bad_fragment(struct lpi_fsck_rig *on)
{
	struct lp_key key;
	lp_key_of_ino(&key, LP_KEY_SPACE_FRAGMENT, (struct lp_ino){2});
	lpi_rig_put(on, 0, &key, "nonsense", 8);
}

static void test_fragments(void **state)
{
	(void)state;
	static void (*const damages[])(struct lpi_fsck_rig *) = {
		wrong_count, wrong_bytes, used_insertion, no_fragment, bad_fragment};
	for (size_t i = 0; i < LP_ARRAY_SIZE(damages); i++) {
		lpi_rig_damage(&rig, damages[i]);
		LPI_RIG_EXPECT(&rig, {LP_FSCK_FRAGMENT, 2, true});
		lpi_rig_fini(&rig);
	}
}

/* It may be one that takes no entries. */
static void bad_empty_fragment(struct lpi_fsck_rig *on)
{
	struct lp_key key;
	lp_key_of_ino(&key, LP_KEY_SPACE_FRAGMENT, on->s);
	lpi_rig_put(on, 0, &key, "nonsense", 8);
}

static void sealed_with_entries(struct lpi_fsck_rig *on)
{
	const struct lp_fragment_value value = {.is_sealed = 1, .next_insertion = 9};
	uint8_t bytes[LP_FRAGMENT_VALUE_SIZE];
	struct lp_key key;
	lp_key_of_ino(&key, LP_KEY_SPACE_FRAGMENT, (struct lp_ino){2});
	lp_fragment_write(&value, &key, bytes);
	lpi_rig_put(on, 0, &key, bytes, sizeof(bytes));
}

static void test_fragments_that_stay(void **state)
{
	(void)state;
	lpi_rig_damage(&rig, bad_empty_fragment);
	LPI_RIG_EXPECT(&rig, {LP_FSCK_FRAGMENT, 8, false});
	lpi_rig_fini(&rig);
	lpi_rig_damage(&rig, sealed_with_entries);
	LPI_RIG_EXPECT(&rig, {LP_FSCK_FRAGMENT, 2, false});
	lpi_rig_fini(&rig);
}

/* Of a directory that is not there, on a shard that has no entries of it: it goes. One with entries
 * stays. */
static void forgotten_fragment(struct lpi_fsck_rig *on)
{
	lpi_rig_put_fragment(on, 77, 0, 0, 4);
	lpi_rig_put_fragment(on, 78, 1, 1, 4);
	lpi_rig_put_entry(on, 78, "x", 7, LP_INODE_TYPE_FILE, 1);
	change_nlink(on, 7, 3);
}

static void test_forgotten_fragment(void **state)
{
	(void)state;
	lpi_rig_damage(&rig, forgotten_fragment);
	LPI_RIG_EXPECT(&rig, {LP_FSCK_ENTRY, 77, true}, {LP_FSCK_ENTRY, 78, false});
	lpi_rig_fini(&rig);
}

/* --- Links ------------------------------------------------------------------------------------ */

static void wrong_links(struct lpi_fsck_rig *on)
{
	change_nlink(on, 1, 3);
	change_nlink(on, 2, 9);
	change_nlink(on, 3, 0);
	change_nlink(on, 7, 1);
}

static void test_nlink(void **state)
{
	(void)state;
	for (int small = 0; small < 2; small++) {
		lpi_rig_damage(&rig, wrong_links);
		rig.names_bytes_max = small != 0 ? 1 : 0; /* the smallest: several rounds */
		LPI_RIG_EXPECT(&rig, {LP_FSCK_NLINK, 1, true}, {LP_FSCK_NLINK, 2, true},
			       {LP_FSCK_NLINK, 3, true}, {LP_FSCK_NLINK, 7, true});
		assert_int_equal(nlink_of(1), 4);
		assert_int_equal(nlink_of(2), 2);
		assert_int_equal(nlink_of(3), 1);
		assert_int_equal(nlink_of(7), 2);
		lpi_rig_fini(&rig);
	}
}

static void spread_links(struct lpi_fsck_rig *on)
{
	for (uint64_t nr = 1; nr <= 2; nr++) {
		struct lp_kv_value value;
		struct lp_inode inode;
		lpi_rig_get_inode(on, nr, &value, &inode);
		inode.flags |= LP_INODE_FLAG_SPREAD;
		inode.nlink = nr == 1 ? 1 : 2;
		lpi_rig_put_inode(on, &inode);
		lp_kv_value_release(&value);
	}
}

/* The root has directories, the other one has none: both have a link count of 1. */
static void test_nlink_spread(void **state)
{
	(void)state;
	lpi_rig_damage(&rig, spread_links);
	LPI_RIG_EXPECT(&rig, {LP_FSCK_NLINK, 2, true});
	assert_int_equal(nlink_of(1), 1);
	assert_int_equal(nlink_of(2), 1);
	lpi_rig_fini(&rig);
}

/* Over two shards: the root's second directory is on the other one. */
static void test_two_shards(void **state)
{
	(void)state;
	lpi_rig_init(&rig, 2);
	lpi_rig_fill(&rig);
	lpi_rig_open(&rig);
	change_nlink(&rig, rig.s.nr, 3);
	change_nlink(&rig, 1, 3);
	lpi_rig_settle(&rig);
	lpi_rig_close(&rig);
	LPI_RIG_EXPECT(&rig, {LP_FSCK_NLINK, rig.s.nr, true}, {LP_FSCK_NLINK, 1, true});
	lpi_rig_fini(&rig);
}

/* --- Orphans and marks ------------------------------------------------------------------------ */

static void no_mark(struct lpi_fsck_rig *on)
{
	remove_key(on, LP_KEY_SPACE_UNFINISHED, 6);
}

static void mark_of_named(struct lpi_fsck_rig *on)
{
	lpi_rig_put_mark(on, 3, LP_UNFINISHED_KIND_ORPHAN);
	lpi_rig_put_mark(on, 4, LP_UNFINISHED_KIND_UPLOAD);
	lpi_rig_put_mark(on, 5, LP_UNFINISHED_KIND_TRIM); /* that is in order */
}

static void lost_name(struct lpi_fsck_rig *on)
{
	remove_entry(on, 2, "b");
	lpi_rig_put_fragment(on, 2, 3, 3, 6);
}

/* The same as a put that has not ended. */
static void upload(struct lpi_fsck_rig *on)
{
	lost_name(on);
	lpi_rig_put_mark(on, 4, LP_UNFINISHED_KIND_UPLOAD);
}

static void test_marks(void **state)
{
	(void)state;
	lpi_rig_damage(&rig, no_mark);
	LPI_RIG_EXPECT(&rig, {LP_FSCK_ORPHAN, 6, true});
	lpi_rig_fini(&rig);
	lpi_rig_damage(&rig, mark_of_named);
	LPI_RIG_EXPECT(&rig, {LP_FSCK_UNFINISHED, 3, true}, {LP_FSCK_UNFINISHED, 4, true});
	lpi_rig_fini(&rig);
	lpi_rig_damage(&rig, lost_name);
	LPI_RIG_EXPECT(&rig, {LP_FSCK_UNREACHABLE, 4, false});
	lpi_rig_fini(&rig);
	lpi_rig_damage(&rig, upload);
	lpi_rig_expect(&rig, NULL, 0);
	lpi_rig_fini(&rig);
}

static void put_bad_mark(struct lpi_fsck_rig *on, uint64_t nr)
{
	struct lp_key key;
	lp_key_of_ino(&key, LP_KEY_SPACE_UNFINISHED, (struct lp_ino){nr});
	lpi_rig_put(on, 0, &key, "nonsense", 8);
}

static void bad_orphan_mark(struct lpi_fsck_rig *on)
{
	put_bad_mark(on, 6);
}

static void bad_trim_mark(struct lpi_fsck_rig *on)
{
	put_bad_mark(on, 4);
}

static void bad_removal_mark(struct lpi_fsck_rig *on)
{
	struct lp_kv_value value;
	struct lp_inode inode;
	lpi_rig_get_inode(on, 6, &value, &inode);
	inode.flags |= LP_INODE_FLAG_REMOVED;
	lpi_rig_put_inode(on, &inode);
	lp_kv_value_release(&value);
	put_bad_mark(on, 6);
}

static void bad_mark_of_nothing(struct lpi_fsck_rig *on)
{
	put_bad_mark(on, 99);
}

static void bad_mark_of_bad(struct lpi_fsck_rig *on)
{
	struct lp_key key;
	lp_key_of_ino(&key, LP_KEY_SPACE_INODE, (struct lp_ino){6});
	lpi_rig_put(on, 0, &key, "nonsense", 8);
	put_bad_mark(on, 6);
}

static void expect_mark(uint64_t nr, uint8_t kind, uint64_t from_block)
{
	struct lp_unfinished_value mark = {.kind = 0};
	struct lp_kv_value value;
	struct lp_key key;
	lp_key_of_ino(&key, LP_KEY_SPACE_UNFINISHED, (struct lp_ino){nr});
	lpi_rig_open(&rig);
	int err = lp_kv_get(lp_shard_kv(rig.shards[0]), (struct lp_kv_bytes){key.bytes, key.len},
			    &value);
	assert_int_equal(err, kind == 0 ? -ENOENT : 0);
	if (err == 0) {
		lp_test_ok(lp_unfinished_read(value.bytes.data, value.bytes.len, &key, &mark));
		lp_kv_value_release(&value);
	}
	assert_int_equal(mark.kind, kind);
	assert_int_equal(mark.from_block, from_block);
	lpi_rig_close(&rig);
}

/* What it was about follows from the inode (rule S6); where that cannot be read either, nothing
 * does. */
static void test_bad_marks(void **state)
{
	(void)state;
	static const struct {
		void (*damage)(struct lpi_fsck_rig *rig);
		uint64_t ino;
		uint64_t from_block;
		uint8_t kind;
	} cases[] = {
		{bad_orphan_mark, 6, 1, LP_UNFINISHED_KIND_TRIM},
		{bad_trim_mark, 4, 100, LP_UNFINISHED_KIND_TRIM},
		{bad_removal_mark, 6, 0, LP_UNFINISHED_KIND_REMOVAL},
		{bad_mark_of_nothing, 99, 0, 0},
	};
	for (size_t i = 0; i < LP_ARRAY_SIZE(cases); i++) {
		lpi_rig_damage(&rig, cases[i].damage);
		LPI_RIG_EXPECT(&rig, {LP_FSCK_RECORD, cases[i].ino, true});
		expect_mark(cases[i].ino, cases[i].kind, cases[i].from_block);
		lpi_rig_fini(&rig);
	}
	lpi_rig_damage(&rig, bad_mark_of_bad);
	lp_test_ok(lpi_rig_run(&rig, true));
	assert_int_equal(rig.report.repaired, 0);
	lpi_rig_fini(&rig);
}

/* One whose key is too short to name an inode: that of the orphan, or of anything. */
static void mark_of_bad_key(struct lpi_fsck_rig *on)
{
	const struct lp_key key = {.len = 6, .bytes = "U\0\0\0\0\0"};
	lpi_rig_put(on, 0, &key, "nonsense", 8);
	no_mark(on);
	change_nlink(on, 7, 1);
}

/* It says nothing of any inode, and goes; and hides nothing, so the rest is mended (rule S6). */
static void test_bad_mark_key(void **state)
{
	(void)state;
	lpi_rig_damage(&rig, mark_of_bad_key);
	LPI_RIG_EXPECT(&rig, {LP_FSCK_KEY, 0, true}, {LP_FSCK_ORPHAN, 6, true},
		       {LP_FSCK_NLINK, 7, true});
	lpi_rig_fini(&rig);
}

static void set_removed(struct lpi_fsck_rig *on, uint64_t nr)
{
	struct lp_kv_value value;
	struct lp_inode inode;
	lpi_rig_get_inode(on, nr, &value, &inode);
	inode.flags |= LP_INODE_FLAG_REMOVED;
	inode.nlink = 0;
	lpi_rig_put_inode(on, &inode);
	lp_kv_value_release(&value);
}

static void removed_with_name(struct lpi_fsck_rig *on)
{
	set_removed(on, 3);
	lpi_rig_put_mark(on, 3, LP_UNFINISHED_KIND_REMOVAL);
}

static void removed_without_mark(struct lpi_fsck_rig *on)
{
	set_removed(on, 6);
	remove_key(on, LP_KEY_SPACE_UNFINISHED, 6);
}

static void removed_as_orphan(struct lpi_fsck_rig *on)
{
	set_removed(on, 6);
	lpi_rig_put_mark(on, 6, LP_UNFINISHED_KIND_ORPHAN);
}

static void removed_in_order(struct lpi_fsck_rig *on)
{
	set_removed(on, 6);
	lpi_rig_put_mark(on, 6, LP_UNFINISHED_KIND_REMOVAL);
}

/* What has been removed comes to its end, though it has a name: its mark stays, or is put. */
static void test_removed(void **state)
{
	(void)state;
	lpi_rig_damage(&rig, removed_with_name);
	LPI_RIG_EXPECT(&rig, {LP_FSCK_UNFINISHED, 3, false});
	expect_mark(3, LP_UNFINISHED_KIND_REMOVAL, 0);
	assert_int_equal(nlink_of(3), 0);
	lpi_rig_fini(&rig);
	lpi_rig_damage(&rig, removed_without_mark);
	LPI_RIG_EXPECT(&rig, {LP_FSCK_ORPHAN, 6, true});
	expect_mark(6, LP_UNFINISHED_KIND_REMOVAL, 0);
	lpi_rig_fini(&rig);
	lpi_rig_damage(&rig, removed_as_orphan);
	LPI_RIG_EXPECT(&rig, {LP_FSCK_ORPHAN, 6, true});
	expect_mark(6, LP_UNFINISHED_KIND_REMOVAL, 0);
	lpi_rig_fini(&rig);
	lpi_rig_damage(&rig, removed_in_order);
	lpi_rig_expect(&rig, NULL, 0);
	lpi_rig_fini(&rig);
}

/* --- Entries ---------------------------------------------------------------------------------- */

static void lost_inode(struct lpi_fsck_rig *on)
{
	remove_key(on, LP_KEY_SPACE_INODE, 7);
}

static void wrong_type(struct lpi_fsck_rig *on)
{
	lpi_rig_put_entry(on, 2, "a", 3, LP_INODE_TYPE_DIR, 1);
	lpi_rig_put_entry(on, 1, "d", 2, LP_INODE_TYPE_FIFO, 1);
}

static void two_names(struct lpi_fsck_rig *on)
{
	lpi_rig_put_entry(on, 2, "again", on->s.nr, LP_INODE_TYPE_DIR, 6);
	lpi_rig_put_fragment(on, 2, 5, 9, 7);
	change_nlink(on, 2, 3);
}

static void elsewhere(struct lpi_fsck_rig *on)
{
	lpi_rig_put_entry(on, 2, "again", on->s.nr, LP_INODE_TYPE_DIR, 6);
	lpi_rig_put_fragment(on, 2, 5, 9, 7);
	change_nlink(on, 2, 3);
	remove_entry(on, 1, "s");
	lpi_rig_put_fragment(on, 1, 2, 2, 4);
	change_nlink(on, 1, 3);
}

/* A directory in another one, each with its entry, its parent and its count as they should be. */
static void put_dir(struct lpi_fsck_rig *on, uint64_t nr, uint64_t parent, const char *name,
		    uint32_t nlink)
{
	struct lp_inode inode =
		lpi_rig_inode(nr, LP_INODE_TYPE_DIR, parent, parent == nr ? NULL : name, nlink);
	lpi_rig_put_inode(on, &inode);
	if (name == NULL)
		return;
	lpi_rig_put_entry(on, parent, name, nr, LP_INODE_TYPE_DIR, 1);
	lpi_rig_put_fragment(on, parent, 1, strlen(name), 2);
}

/* 20 -> 21 -> 22 -> 20, and 23 in 20's loop by way of 24; and a loop of one. */
static void loops(struct lpi_fsck_rig *on)
{
	put_dir(on, 20, 21, "a", 3);
	put_dir(on, 21, 22, "b", 3);
	put_dir(on, 22, 20, "c", 3);
	put_dir(on, 23, 24, "d", 2);
	put_dir(on, 24, 22, "e", 3);
	lpi_rig_put_entry(on, 22, "b", 21, LP_INODE_TYPE_DIR, 2);
	lpi_rig_put_fragment(on, 22, 2, 2, 3);
	change_nlink(on, 22, 4);
	put_dir(on, 30, 30, "self", 3);
}

/* Directories without end, and a deep one that ends. */
static void test_loops(void **state)
{
	(void)state;
	for (int small = 0; small < 2; small++) {
		lpi_rig_damage(&rig, loops);
		rig.names_bytes_max = small != 0 ? 1 : 0; /* the smallest: several rounds */
		LPI_RIG_EXPECT(&rig, {LP_FSCK_LOOP, 20, false}, {LP_FSCK_LOOP, 30, false});
		lpi_rig_fini(&rig);
	}
}

#define DEEP 100u

static void deep(struct lpi_fsck_rig *on)
{
	for (uint64_t nr = 100; nr < 100 + DEEP; nr++)
		put_dir(on, nr, nr == 100 ? 100 : nr - 1, nr == 100 ? NULL : "d",
			nr == 99 + DEEP ? 2 : 3);
}

/* A store without a namespace has a root of its own: its own parent, and without a name. */
static void test_other_root(void **state)
{
	(void)state;
	for (int small = 0; small < 2; small++) {
		lpi_rig_damage(&rig, deep);
		rig.names_bytes_max = small != 0 ? 1 : 0;
		lpi_rig_expect(&rig, NULL, 0);
		lpi_rig_fini(&rig);
	}
}

#define TYPED 12u

static void wrong_types(struct lpi_fsck_rig *on)
{
	for (uint64_t nr = 100; nr < 100 + TYPED; nr++) {
		put_dir(on, nr, nr == 100 ? 100 : nr - 1, nr == 100 ? NULL : "d",
			nr == 99 + TYPED ? 2 : 3);
		if (nr > 100)
			lpi_rig_put_entry(on, nr - 1, "d", nr, LP_INODE_TYPE_FILE, 1);
	}
}

/* What an entry says wrongly is not counted for its directory's links, whichever round it is that
 * knows better. */
static void test_types_over_rounds(void **state)
{
	struct lpi_fsck_want wants[TYPED - 1];
	(void)state;
	for (uint64_t i = 0; i < TYPED - 1; i++)
		wants[i] = (struct lpi_fsck_want){LP_FSCK_ENTRY_TYPE, 100 + i, true};
	for (int small = 0; small < 2; small++) {
		lpi_rig_damage(&rig, wrong_types);
		rig.names_bytes_max = small != 0 ? 1 : 0;
		lpi_rig_expect(&rig, wants, TYPED - 1);
		lpi_rig_fini(&rig);
	}
}

static void lost_directory(struct lpi_fsck_rig *on)
{
	remove_key(on, LP_KEY_SPACE_INODE, 2);
}

static void entries_of_file(struct lpi_fsck_rig *on)
{
	lpi_rig_put_entry(on, 3, "x", 7, LP_INODE_TYPE_FILE, 1);
	lpi_rig_put_fragment(on, 3, 1, 1, 2);
	change_nlink(on, 7, 3);
}

static void test_entries(void **state)
{
	(void)state;
	lpi_rig_damage(&rig, lost_inode);
	LPI_RIG_EXPECT(&rig, {LP_FSCK_ENTRY, 1, false}, {LP_FSCK_ENTRY, 2, false});
	lpi_rig_fini(&rig);
	lpi_rig_damage(&rig, wrong_type);
	LPI_RIG_EXPECT(&rig, {LP_FSCK_ENTRY_TYPE, 1, true}, {LP_FSCK_ENTRY_TYPE, 2, true});
	lpi_rig_fini(&rig);
	lpi_rig_damage(&rig, two_names);
	LPI_RIG_EXPECT(&rig, {LP_FSCK_PARENT, 8, false});
	lpi_rig_fini(&rig);
	lpi_rig_damage(&rig, elsewhere);
	LPI_RIG_EXPECT(&rig, {LP_FSCK_PARENT, 8, false});
	lpi_rig_fini(&rig);
	lpi_rig_damage(&rig, lost_directory);
	LPI_RIG_EXPECT(&rig, {LP_FSCK_ENTRY, 1, false}, {LP_FSCK_ENTRY, 2, false});
	lpi_rig_fini(&rig);
	lpi_rig_damage(&rig, entries_of_file);
	LPI_RIG_EXPECT(&rig, {LP_FSCK_STRAY, 3, false});
	lpi_rig_fini(&rig);
}

/* --- In doubt --------------------------------------------------------------------------------- */

static void open_transaction(struct lpi_fsck_rig *on)
{
	struct lp_key key;
	wrong_links(on);
	lp_key_of_number(&key, LP_KEY_SPACE_TXN, 77);
	lpi_rig_put(on, 0, &key, "anything", 8);
}

/* Nothing about names is final: warnings, and nothing is changed. */
static void test_transaction(void **state)
{
	(void)state;
	lpi_rig_damage(&rig, open_transaction);
	LPI_RIG_EXPECT(&rig, {LP_FSCK_TXN, 0, false}, {LP_FSCK_NLINK, 1, false},
		       {LP_FSCK_NLINK, 2, false}, {LP_FSCK_NLINK, 3, false},
		       {LP_FSCK_NLINK, 7, false});
	assert_int_equal(rig.report.warnings, 5);
	assert_int_equal(rig.report.problems, 0);
	lpi_rig_fini(&rig);
}

static void bad_entry(struct lpi_fsck_rig *on)
{
	struct lp_key key;
	lp_key_of_name(&key, LP_KEY_SPACE_DIRENT, (struct lp_ino){2}, "a", 1);
	lpi_rig_put(on, 0, &key, "nonsense", 8);
}

/* The file that it may name is not taken for lost. */
static void test_bad_entry(void **state)
{
	(void)state;
	lpi_rig_damage(&rig, bad_entry);
	LPI_RIG_EXPECT(&rig, {LP_FSCK_RECORD, 2, false}, {LP_FSCK_UNREACHABLE, 3, false});
	assert_int_equal(rig.report.warnings, 1);
	lpi_rig_fini(&rig);
}

/* --- The table -------------------------------------------------------------------------------- */

#define INODES 2000u

/* Each inode has its turn once, and is found as long as its round lasts. */
static void test_table(void **state)
{
	(void)state;
	static const uint64_t sizes[] = {0, 64 * sizeof(struct lpi_fsck_node), 1 << 20};
	static uint8_t turns[INODES + 1];
	struct lp_prng prng;
	lp_prng_init(&prng, 99);
	uint64_t factor = lp_prng_u64(&prng) | 1;
	for (size_t i = 0; i < LP_ARRAY_SIZE(sizes); i++) {
		struct lpi_fsck_names names;
		uint32_t rounds = 0;
		memset(turns, 0, sizeof(turns));
		lp_test_ok(lpi_fsck_names_init(&names, sizes[i]));
		do {
			for (uint64_t n = 1; n <= INODES; n++) {
				struct lp_ino ino = {n * factor};
				struct lpi_fsck_node *node;
				if (!lpi_fsck_names_has_turn(&names, ino))
					continue;
				node = lpi_fsck_names_add(&names, ino);
				if (node != NULL)
					node->names = (uint32_t)n;
			}
			for (uint64_t n = 1; n <= INODES; n++) {
				struct lp_ino ino = {n * factor};
				struct lpi_fsck_node *node = lpi_fsck_names_find(&names, ino);
				bool has_turn = lpi_fsck_names_has_turn(&names, ino);
				assert_true(has_turn == (node != NULL));
				assert_true(node == NULL || node->names == n);
				turns[n] += has_turn;
			}
			rounds++;
		} while (lpi_fsck_names_next_round(&names));
		for (uint64_t n = 1; n <= INODES; n++)
			assert_int_equal(turns[n], 1);
		assert_true((rounds == 1) == (i == 2));
		lpi_fsck_names_fini(&names);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_fragments),
		cmocka_unit_test(test_fragments_that_stay),
		cmocka_unit_test(test_nlink),
		cmocka_unit_test(test_nlink_spread),
		cmocka_unit_test(test_two_shards),
		cmocka_unit_test(test_marks),
		cmocka_unit_test(test_types_over_rounds),
		cmocka_unit_test(test_entries),
		cmocka_unit_test(test_transaction),
		cmocka_unit_test(test_bad_entry),
		cmocka_unit_test(test_bad_marks),
		cmocka_unit_test(test_bad_mark_key),
		cmocka_unit_test(test_removed),
		cmocka_unit_test(test_loops),
		cmocka_unit_test(test_other_root),
		cmocka_unit_test(test_table),
		cmocka_unit_test(test_forgotten_fragment),
	};
	return lp_test_main(tests, "store/check/links");
}
