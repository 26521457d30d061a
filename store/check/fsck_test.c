/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: the checker finds nothing in a store that is in order; of each kind of damage to records,
 * maps and blocks it finds exactly that; a repair mends what follows from the rest, and what does
 * not stays, with all data (P4, rules S2, S4, S6).
 * Method: a small store built through commits, one damage by a commit, then check, repair, check.
 */
#include "store/check/fsck_rig_test.h"

#include "store/attrs.h"
#include "store/device/sim/bdev_sim.h"
#include "store/volume/chunks.h"

static struct lpi_fsck_rig rig;

static void test_clean(void **state)
{
	(void)state;
	for (uint32_t shards = 1; shards <= LPI_RIG_SHARDS; shards++) {
		lpi_rig_init(&rig, shards);
		lp_test_ok(lpi_rig_run(&rig, false)); /* fresh, without a root */
		assert_int_equal(rig.found_cnt, 0);
		lpi_rig_fill(&rig);
		lp_test_ok(lpi_rig_run(&rig, false));
		lpi_rig_compare(&rig, NULL, 0, false);
		lp_test_ok(lpi_rig_run(&rig, true));
		lpi_rig_compare(&rig, NULL, 0, true);
		assert_int_equal(rig.report.inodes, 8);
		assert_int_equal(rig.report.entries, 7);
		assert_int_equal(rig.report.blocks, 4 + 30 + 3 + 1);
		assert_int_equal(rig.report.read_blocks, 4 + 20 + 3 + 1);
		lpi_rig_fini(&rig);
	}
}

/* --- Records ---------------------------------------------------------------------------------- */

static void flip(struct lpi_fsck_rig *on, const struct lp_key *key)
{
	struct lp_kv_value value;
	uint8_t bytes[LP_INODE_BYTES_MAX];
	lpi_rig_settle(on);
	lp_test_ok(lp_kv_get(lp_shard_kv(on->shards[0]), (struct lp_kv_bytes){key->bytes, key->len},
			     &value));
	size_t len = value.bytes.len;
	memcpy(bytes, value.bytes.data, len);
	lp_kv_value_release(&value);
	bytes[len - 1] ^= 1;
	lpi_rig_put(on, 0, key, bytes, len);
}

static void bad_keys(struct lpi_fsck_rig *on)
{
	struct lp_key key = {.len = 3, .bytes = "I12"};
	lpi_rig_put(on, 0, &key, "x", 1);
	key = (struct lp_key){.len = 4, .bytes = "Zoom"};
	lpi_rig_put(on, 0, &key, "x", 1);
}

/* What it was nobody knows: an inode with blocks and names, an entry. So nothing follows from what
 * is not there. */
static void foreign_key(struct lpi_fsck_rig *on)
{
	const struct lp_key key = {.len = 4, .bytes = "Zoom"};
	lpi_rig_put(on, 0, &key, "x", 1);
	(void)lpi_rig_take(on, 7);
	lpi_rig_put_counts(on, 3);
	lpi_rig_put_fragment(on, 2, 5, 5, 6);
	lpi_rig_put_mark(on, 23, LP_UNFINISHED_KIND_TRIM);
	lpi_rig_put_mark(on, 3, LP_UNFINISHED_KIND_ORPHAN);
}

static void hidden_inode(struct lpi_fsck_rig *on)
{
	const struct lp_key key = {.len = 3, .bytes = "I12"};
	lpi_rig_put(on, 0, &key, "x", 1);
	(void)lpi_rig_take(on, 7);
	lpi_rig_put_mark(on, 23, LP_UNFINISHED_KIND_TRIM);
	lpi_rig_put_fragment(on, 2, 5, 5, 6);
}

static void hidden_entry(struct lpi_fsck_rig *on)
{
	const struct lp_key key = {.len = 11, .bytes = "D\0\0\0\0\0\0\0\2a/"};
	lpi_rig_put(on, 0, &key, "x", 1);
	(void)lpi_rig_take(on, 7);
	lpi_rig_put_fragment(on, 2, 5, 5, 6);
}

static void test_keys(void **state)
{
	(void)state;
	lpi_rig_damage(&rig, bad_keys);
	LPI_RIG_EXPECT(&rig, {LP_FSCK_KEY, 0, false}, {LP_FSCK_KEY, 0, false});
	lpi_rig_fini(&rig);
	lpi_rig_damage(&rig, foreign_key);
	LPI_RIG_EXPECT(&rig, {LP_FSCK_KEY, 0, false}, {LP_FSCK_LEAK, 0, false},
		       {LP_FSCK_REFS, 0, false}, {LP_FSCK_FRAGMENT, 2, false},
		       {LP_FSCK_UNFINISHED, 23, false}, {LP_FSCK_UNFINISHED, 3, false});
	lpi_rig_fini(&rig);
	lpi_rig_damage(&rig, hidden_inode);
	LPI_RIG_EXPECT(&rig, {LP_FSCK_KEY, 0, false}, {LP_FSCK_LEAK, 0, false},
		       {LP_FSCK_UNFINISHED, 23, false}, {LP_FSCK_FRAGMENT, 2, true});
	lpi_rig_fini(&rig);
	lpi_rig_damage(&rig, hidden_entry);
	LPI_RIG_EXPECT(&rig, {LP_FSCK_KEY, 0, false}, {LP_FSCK_LEAK, 0, true},
		       {LP_FSCK_FRAGMENT, 2, false});
	lpi_rig_fini(&rig);
}

/* The inode's blocks cannot be known now: other leaks must not be freed. */
static void bad_inode(struct lpi_fsck_rig *on)
{
	struct lp_key key;
	lp_key_of_ino(&key, LP_KEY_SPACE_INODE, (struct lp_ino){3});
	flip(on, &key);
}

static void test_bad_inode(void **state)
{
	(void)state;
	lpi_rig_damage(&rig, bad_inode);
	LPI_RIG_EXPECT(&rig, {LP_FSCK_RECORD, 3, false}, {LP_FSCK_LEAK, 0, false});
	assert_int_equal(rig.found[1].extent.block, rig.a.block);
	assert_int_equal(rig.found[1].extent.cnt, 4);
	lpi_rig_fini(&rig);
}

static void bad_leaf(struct lpi_fsck_rig *on)
{
	struct lp_key key;
	lp_key_of_map(&key, (struct lp_ino){4}, 64);
	flip(on, &key);
}

static void lost_leaf(struct lpi_fsck_rig *on)
{
	struct lp_key key;
	lp_key_of_map(&key, (struct lp_ino){4}, 64);
	lpi_rig_put(on, 0, &key, NULL, 0);
}

static void test_leaves(void **state)
{
	(void)state;
	lpi_rig_damage(&rig, bad_leaf);
	LPI_RIG_EXPECT(&rig, {LP_FSCK_RECORD, 4, false}, {LP_FSCK_LEAK, 0, false});
	lpi_rig_fini(&rig);
	lpi_rig_damage(&rig, lost_leaf);
	LPI_RIG_EXPECT(&rig, {LP_FSCK_MAP, 4, false}, {LP_FSCK_LEAK, 0, false});
	lpi_rig_fini(&rig);
}

/* A leaf, an attribute, entries of an omap and a mark without the inode. The leaf's blocks are not
 * free for that. */
static void strays(struct lpi_fsck_rig *on)
{
	struct lp_extmap map;
	uint8_t leaf[LP_EXTMAP_LEAF_BYTES_MAX];
	struct lp_extmap_piece piece;
	struct lp_key key;
	struct lp_extent extent = lpi_rig_take(on, 2);
	lp_extmap_init(&map, (struct lp_ino){20}, NULL);
	lpi_rig_map(&map, 64, extent, true, false);
	assert_true(lp_extmap_take_dirty(&map, leaf, &piece));
	lp_extmap_fini(&map);
	lp_key_of_map(&key, (struct lp_ino){20}, 64);
	lpi_rig_put(on, 0, &key, leaf, piece.len);
	lp_key_of_name(&key, LP_KEY_SPACE_XATTR, (struct lp_ino){21}, "x", 1);
	lpi_rig_put(on, 0, &key, "v", 1);
	lp_key_of_name(&key, LP_KEY_SPACE_OMAP, (struct lp_ino){22}, "x", 1);
	lpi_rig_put(on, 0, &key, "v", 1);
	lp_key_of_name(&key, LP_KEY_SPACE_OMAP, (struct lp_ino){22}, "y", 1);
	lpi_rig_put(on, 0, &key, "v", 1);
	lpi_rig_put_mark(on, 23, LP_UNFINISHED_KIND_TRIM);
}

static void test_strays(void **state)
{
	(void)state;
	lpi_rig_damage(&rig, strays);
	LPI_RIG_EXPECT(&rig, {LP_FSCK_STRAY, 20, false}, {LP_FSCK_STRAY, 21, false},
		       {LP_FSCK_STRAY, 22, false}, {LP_FSCK_UNFINISHED, 23, true});
	lpi_rig_fini(&rig);
}

static void wrong_shard(struct lpi_fsck_rig *on)
{
	struct lp_inode inode = lpi_rig_inode(lp_ino_make(5, 9).nr, LP_INODE_TYPE_FILE, 0, NULL, 1);
	uint8_t bytes[LP_INODE_BYTES_MAX];
	struct lp_key key;
	lp_key_of_ino(&key, LP_KEY_SPACE_INODE, inode.ino);
	lpi_rig_put(on, 0, &key, bytes, lp_inode_encode(&inode, bytes));
}

/* A directory: a fragment that it has is not taken for one of none. */
static void directory_on_wrong_shard(struct lpi_fsck_rig *on)
{
	uint64_t nr = lp_ino_make(5, 9).nr;
	const struct lp_fragment_value value = {.next_insertion = 4};
	struct lp_inode inode = lpi_rig_inode(nr, LP_INODE_TYPE_DIR, 1, NULL, 2);
	uint8_t bytes[LP_INODE_BYTES_MAX];
	uint8_t fragment[LP_FRAGMENT_VALUE_SIZE];
	struct lp_key key;
	lp_key_of_ino(&key, LP_KEY_SPACE_INODE, inode.ino);
	lpi_rig_put(on, 0, &key, bytes, lp_inode_encode(&inode, bytes));
	lp_key_of_ino(&key, LP_KEY_SPACE_FRAGMENT, inode.ino);
	lp_fragment_write(&value, &key, fragment);
	lpi_rig_put(on, 0, &key, fragment, sizeof(fragment));
}

static void test_place(void **state)
{
	(void)state;
	uint64_t nr = lp_ino_make(5, 9).nr;
	lpi_rig_damage(&rig, wrong_shard);
	LPI_RIG_EXPECT(&rig, {LP_FSCK_PLACE, nr, false});
	lpi_rig_fini(&rig);
	lpi_rig_damage(&rig, directory_on_wrong_shard);
	LPI_RIG_EXPECT(&rig, {LP_FSCK_PLACE, nr, false}, {LP_FSCK_ENTRY, nr, false});
	lpi_rig_fini(&rig);
}

/* An inode whose record is lost is known by what hung on it, or by its name: what is in use and not
 * named may be its blocks. */
static void lost_inode_with_attribute(struct lpi_fsck_rig *on)
{
	struct lp_key key;
	lp_key_of_name(&key, LP_KEY_SPACE_XATTR, (struct lp_ino){6}, "x", 1);
	lpi_rig_put(on, 0, &key, "v", 1);
	lp_key_of_ino(&key, LP_KEY_SPACE_UNFINISHED, (struct lp_ino){6});
	lpi_rig_put(on, 0, &key, NULL, 0);
	lp_key_of_ino(&key, LP_KEY_SPACE_INODE, (struct lp_ino){6});
	lpi_rig_put(on, 0, &key, NULL, 0);
}

static void lost_inode_with_name(struct lpi_fsck_rig *on)
{
	struct lp_key key;
	lp_key_of_name(&key, LP_KEY_SPACE_XATTR, (struct lp_ino){3}, "user.x", 6);
	lpi_rig_put(on, 0, &key, NULL, 0);
	lp_key_of_ino(&key, LP_KEY_SPACE_INODE, (struct lp_ino){3});
	lpi_rig_put(on, 0, &key, NULL, 0);
}

static void test_lost_inodes(void **state)
{
	(void)state;
	lpi_rig_damage(&rig, lost_inode_with_attribute);
	LPI_RIG_EXPECT(&rig, {LP_FSCK_STRAY, 6, false}, {LP_FSCK_LEAK, 0, false});
	lpi_rig_fini(&rig);
	lpi_rig_damage(&rig, lost_inode_with_name);
	LPI_RIG_EXPECT(&rig, {LP_FSCK_ENTRY, 2, false}, {LP_FSCK_LEAK, 0, false});
	lpi_rig_fini(&rig);
}

/* --- Sizes ------------------------------------------------------------------------------------ */

static void set_size(struct lpi_fsck_rig *on, uint64_t nr, uint64_t size_bytes)
{
	struct lp_kv_value value;
	struct lp_inode inode;
	lpi_rig_get_inode(on, nr, &value, &inode);
	inode.size_bytes = size_bytes;
	lpi_rig_put_inode(on, &inode);
	lp_kv_value_release(&value);
}

static void beyond_size(struct lpi_fsck_rig *on)
{
	set_size(on, 4, 73 * LP_BLOCK_BYTES);
	set_size(on, 3, 3 * LP_BLOCK_BYTES + 1); /* in the last block: right */
}

/* The same while a trim is under way. */
static void being_cut(struct lpi_fsck_rig *on)
{
	beyond_size(on);
	lpi_rig_put_mark(on, 4, LP_UNFINISHED_KIND_TRIM);
}

static void test_size(void **state)
{
	(void)state;
	lpi_rig_damage(&rig, beyond_size);
	LPI_RIG_EXPECT(&rig, {LP_FSCK_SIZE, 4, false});
	lpi_rig_fini(&rig);
	lpi_rig_damage(&rig, being_cut);
	lpi_rig_expect(&rig, NULL, 0);
	lpi_rig_fini(&rig);
}

/* --- Values that no door can live with -------------------------------------------------------- */

/* A file and the root directory of nobody, and a file of the far future. */
static void impossible(struct lpi_fsck_rig *on)
{
	static const uint64_t nrs[] = {1, 3, 4};
	for (size_t i = 0; i < LP_ARRAY_SIZE(nrs); i++) {
		struct lp_kv_value value;
		struct lp_inode inode;
		lpi_rig_get_inode(on, nrs[i], &value, &inode);
		inode.uid = nrs[i] == 4 ? 12 : LP_OWNER_NOBODY;
		inode.gid = nrs[i] == 3 ? LP_OWNER_NOBODY : 13;
		inode.mode = 06755;
		if (nrs[i] == 4)
			inode.mtime_ns = INT64_MAX;
		lpi_rig_put_inode(on, &inode);
		lp_kv_value_release(&value);
	}
}

static void test_values(void **state)
{
	(void)state;
	lpi_rig_damage(&rig, impossible);
	LPI_RIG_EXPECT(&rig, {LP_FSCK_VALUE, 1, true}, {LP_FSCK_VALUE, 3, true},
		       {LP_FSCK_VALUE, 4, true});
	lpi_rig_open(&rig);
	for (uint64_t nr = 1; nr <= 4; nr++) {
		struct lp_kv_value value;
		struct lp_inode inode;
		if (nr == 2)
			continue;
		lpi_rig_get_inode(&rig, nr, &value, &inode);
		assert_int_equal(inode.uid, nr == 4 ? 12 : 0);
		assert_int_equal(inode.gid, nr == 3 ? 0 : 13);
		/* A directory's bits mean something else, and a file that has an owner keeps its
		 * own. */
		assert_int_equal(inode.mode, nr == 3 ? 0755 : 06755);
		assert_int_equal(inode.mtime_ns == LP_TIME_NS_MAX, nr == 4);
		lp_kv_value_release(&value);
	}
	lpi_rig_close(&rig);
	lpi_rig_fini(&rig);
}

/* --- Blocks ----------------------------------------------------------------------------------- */

static void leak(struct lpi_fsck_rig *on)
{
	(void)lpi_rig_take(on, 7);
}

static void untaken(struct lpi_fsck_rig *on)
{
	(void)lpi_rig_commit(on, 0, 0);
	lp_shard_freed(on->shards[0], (struct lp_extent){on->a.block + 1, 2});
}

static void test_space(void **state)
{
	(void)state;
	lpi_rig_damage(&rig, leak);
	LPI_RIG_EXPECT(&rig, {LP_FSCK_LEAK, 0, true});
	lpi_rig_fini(&rig);
	lpi_rig_damage(&rig, untaken);
	LPI_RIG_EXPECT(&rig, {LP_FSCK_UNTAKEN, 0, true});
	lpi_rig_fini(&rig);
}

/* Another file with the block of inode 6. */
static void twice(struct lpi_fsck_rig *on)
{
	struct lp_kv_value value;
	struct lp_inode inode;
	struct lp_extmap map;
	lpi_rig_get_inode(on, 7, &value, &inode);
	inode.size_bytes = 1;
	lp_extmap_init(&map, inode.ino, NULL);
	lpi_rig_map(&map, 0, on->orphan, true, false);
	lpi_rig_put_file(on, &inode, &map);
	lp_kv_value_release(&value);
}

/* In the log, and beyond the device. */
static void outside(struct lpi_fsck_rig *on)
{
	struct lp_kv_value value;
	struct lp_inode inode;
	struct lp_extmap map;
	lpi_rig_get_inode(on, 7, &value, &inode);
	inode.size_bytes = 2 * LP_BLOCK_BYTES;
	lp_extmap_init(&map, inode.ino, NULL);
	lpi_rig_map(&map, 0, (struct lp_extent){2, 1}, true, false);
	lpi_rig_map(&map, 1, (struct lp_extent){UINT64_C(1) << 40, 1}, true, false);
	lpi_rig_put_file(on, &inode, &map);
	lp_kv_value_release(&value);
}

/* What should be named instead is in use, and nothing names it. */
static void twice_instead(struct lpi_fsck_rig *on)
{
	twice(on);
	leak(on);
}

static void outside_instead(struct lpi_fsck_rig *on)
{
	outside(on);
	leak(on);
}

static void high_count(struct lpi_fsck_rig *on)
{
	lpi_rig_put_counts(on, 3);
}

/* A file on the last shard names what the first one has in use, where a count is too high. */
static void named_from_elsewhere(struct lpi_fsck_rig *on)
{
	struct lp_inode inode =
		lpi_rig_inode(lp_ino_make(1, 20).nr, LP_INODE_TYPE_FILE, 0, NULL, 0);
	struct lp_extmap map;
	inode.size_bytes = 1;
	lp_extmap_init(&map, inode.ino, NULL);
	lpi_rig_map(&map, 0, lpi_rig_take(on, 1), true, false);
	lpi_rig_put_file(on, &inode, &map);
	lpi_rig_put_mark(on, inode.ino.nr, LP_UNFINISHED_KIND_ORPHAN);
	high_count(on);
}

static void test_extents(void **state)
{
	(void)state;
	lpi_rig_damage(&rig, twice);
	LPI_RIG_EXPECT(&rig, {LP_FSCK_TWICE, 7, false});
	lpi_rig_fini(&rig);
	lpi_rig_damage(&rig, outside);
	LPI_RIG_EXPECT(&rig, {LP_FSCK_OUTSIDE, 7, false}, {LP_FSCK_OUTSIDE, 7, false});
	lpi_rig_fini(&rig);
	lpi_rig_damage(&rig, twice_instead);
	LPI_RIG_EXPECT(&rig, {LP_FSCK_TWICE, 7, false}, {LP_FSCK_LEAK, 0, false});
	lpi_rig_fini(&rig);
	lpi_rig_damage(&rig, outside_instead);
	LPI_RIG_EXPECT(&rig, {LP_FSCK_OUTSIDE, 7, false}, {LP_FSCK_OUTSIDE, 7, false},
		       {LP_FSCK_LEAK, 0, false});
	lpi_rig_fini(&rig);
	lpi_rig_damage_on(&rig, 2, named_from_elsewhere);
	LPI_RIG_EXPECT(&rig, {LP_FSCK_OUTSIDE, lp_ino_make(1, 20).nr, false},
		       {LP_FSCK_LEAK, 0, false}, {LP_FSCK_REFS, 0, false});
	lpi_rig_fini(&rig);
}

/* --- Counts ----------------------------------------------------------------------------------- */

static void no_count(struct lpi_fsck_rig *on)
{
	lpi_rig_put_counts(on, 0);
}

static void bad_count(struct lpi_fsck_rig *on)
{
	struct lp_key key;
	lp_refs_key(&key, on->b.block >> LP_REFS_SHIFT);
	flip(on, &key);
}

static void count_of_nothing(struct lpi_fsck_rig *on)
{
	struct lp_refs refs;
	lp_refs_init(&refs, 5);
	refs.cnt[9] = 4;
	lpi_rig_put_refs(on, &refs);
	lp_refs_init(&refs, LP_REFS_GROUPS - 1);
	refs.cnt[63] = 1;
	lpi_rig_put_refs(on, &refs);
}

/* Too high is safe, and too low is not: a damaged map may share the block. */
static void high_count_in_doubt(struct lpi_fsck_rig *on)
{
	high_count(on);
	bad_leaf(on);
}

static void low_count_in_doubt(struct lpi_fsck_rig *on)
{
	lpi_rig_put_counts(on, 1);
	bad_leaf(on);
}

/* Without a count nobody can let go of the block; with one, the last who is known would free it. */
static void no_count_in_doubt(struct lpi_fsck_rig *on)
{
	no_count(on);
	bad_leaf(on);
}

/* c has as its own what b shares: there are two, as the counts say, of which one is counted. */
static void own_and_shared(struct lpi_fsck_rig *on)
{
	struct lp_kv_value value;
	struct lp_inode inode;
	struct lp_extmap map;
	lpi_rig_get_inode(on, 5, &value, &inode);
	lp_extmap_init(&map, inode.ino, NULL);
	lpi_rig_map(&map, 0, (struct lp_extent){on->b.block, 3}, true, false);
	lpi_rig_put_file(on, &inode, &map);
	lp_kv_value_release(&value);
}

static void own_and_shared_without(struct lpi_fsck_rig *on)
{
	own_and_shared(on);
	no_count(on);
}

static void test_counts(void **state)
{
	(void)state;
	static void (*const damages[])(struct lpi_fsck_rig *) = {high_count, no_count, bad_count};
	for (size_t i = 0; i < LP_ARRAY_SIZE(damages); i++) {
		lpi_rig_damage(&rig, damages[i]);
		LPI_RIG_EXPECT(&rig, {LP_FSCK_REFS, 0, true});
		lpi_rig_fini(&rig);
	}
	lpi_rig_damage(&rig, count_of_nothing);
	LPI_RIG_EXPECT(&rig, {LP_FSCK_REFS, 0, true}, {LP_FSCK_REFS, 0, true});
	lpi_rig_fini(&rig);
	lpi_rig_damage(&rig, high_count_in_doubt);
	LPI_RIG_EXPECT(&rig, {LP_FSCK_REFS, 0, false}, {LP_FSCK_RECORD, 4, false},
		       {LP_FSCK_LEAK, 0, false});
	lpi_rig_fini(&rig);
	lpi_rig_damage(&rig, low_count_in_doubt);
	LPI_RIG_EXPECT(&rig, {LP_FSCK_REFS, 0, true}, {LP_FSCK_RECORD, 4, false},
		       {LP_FSCK_LEAK, 0, false});
	lpi_rig_fini(&rig);
	lpi_rig_damage(&rig, no_count_in_doubt);
	LPI_RIG_EXPECT(&rig, {LP_FSCK_REFS, 0, false}, {LP_FSCK_RECORD, 4, false},
		       {LP_FSCK_LEAK, 0, false});
	lpi_rig_fini(&rig);
	lpi_rig_damage(&rig, own_and_shared);
	LPI_RIG_EXPECT(&rig, {LP_FSCK_TWICE, 5, false}, {LP_FSCK_REFS, 0, false});
	lpi_rig_fini(&rig);
	lpi_rig_damage(&rig, own_and_shared_without);
	LPI_RIG_EXPECT(&rig, {LP_FSCK_TWICE, 5, false}, {LP_FSCK_REFS, 0, false});
	lpi_rig_fini(&rig);
}

/* A file that has each of its blocks twice, over some groups, none of them counted. */
static uint64_t cloned_groups[64];
static size_t cloned_cnt;

static void add_group(uint64_t group)
{
	for (size_t i = 0; i < cloned_cnt; i++) {
		if (cloned_groups[i] == group)
			return;
	}
	cloned_groups[cloned_cnt++] = group;
}

static void uncounted_clones(struct lpi_fsck_rig *on)
{
	struct lp_inode inode = lpi_rig_inode(7, LP_INODE_TYPE_FILE, 2, "l", 2);
	struct lp_extmap map;
	cloned_cnt = 0;
	inode.size_bytes = 2000 * LP_BLOCK_BYTES;
	lp_extmap_init(&map, inode.ino, NULL);
	for (uint64_t i = 0; i < 5; i++) {
		struct lp_extent extent = lpi_rig_take(on, 50);
		lpi_rig_map(&map, i * 50, extent, true, true);
		lpi_rig_map(&map, 1000 + i * 70, extent, true, true);
		for (uint64_t b = 0; b < extent.cnt; b++)
			add_group((extent.block + b) >> LP_REFS_SHIFT);
	}
	lpi_rig_put_file(on, &inode, &map);
}

/* The same however many groups are counted at a time. One that b has blocks in is told once. */
static void test_windows(void **state)
{
	(void)state;
	for (uint32_t groups_max = 0; groups_max < 3; groups_max++) {
		struct lpi_fsck_want wants[LP_ARRAY_SIZE(cloned_groups)];
		lpi_rig_damage(&rig, uncounted_clones);
		rig.refs_groups_max = groups_max;
		assert_in_range(cloned_cnt, 4, 10);
		for (size_t i = 0; i < cloned_cnt; i++)
			wants[i] = (struct lpi_fsck_want){LP_FSCK_REFS, 0, true};
		lpi_rig_expect(&rig, wants, cloned_cnt);
		lpi_rig_fini(&rig);
	}
}

/* --- Disk ------------------------------------------------------------------------------------- */

static void test_copies(void **state)
{
	(void)state;
	_Alignas(4096) static uint8_t block[4096];
	struct lp_disk_label label;
	lpi_rig_init(&rig, 1);
	lpi_rig_fill(&rig);
	lp_test_ok(lp_label_read(rig.bdev, false, &label, NULL));
	lp_test_ok(lp_bdev_write_sync(rig.bdev, block, sizeof(block), 0, true));
	lp_test_ok(lp_bdev_write_sync(rig.bdev, block, sizeof(block),
				      label.table_block * LP_BLOCK_BYTES, true));
	lp_test_ok(lpi_rig_run(&rig, true));
	lpi_rig_compare(&rig,
			(const struct lpi_fsck_want[]){{LP_FSCK_LABEL_COPY, 0, true},
						       {LP_FSCK_CHUNK_SLOT, 0, true}},
			2, true);
	lp_test_ok(lpi_rig_run(&rig, false));
	lpi_rig_compare(&rig, NULL, 0, false);
	lpi_rig_fini(&rig);
}

static void read_slot(const struct lp_disk_label *label, uint8_t *buf)
{
	size_t len = label->table_slot_blocks * LP_BLOCK_BYTES;
	lp_test_ok(
		lp_bdev_read_sync(rig.bdev, buf, len, label->table_block * LP_BLOCK_BYTES + len));
}

/* A crash between the two slots of a chunk table leaves the second one older by one change: that is
 * told, but nothing is wrong. */
static void test_cut_table(void **state)
{
	(void)state;
	struct lp_disk_label label;
	struct lp_chunks *chunks = NULL;
	uint32_t idx;
	lpi_rig_init(&rig, 1);
	lpi_rig_fill(&rig);
	lp_test_ok(lp_label_read(rig.bdev, false, &label, NULL));
	size_t len = label.table_slot_blocks * LP_BLOCK_BYTES;
	uint8_t *older = aligned_alloc(LP_BLOCK_BYTES, len);
	assert_non_null(older);
	const struct lp_chunks_options options = {.label = &label};
	lp_test_ok(lp_chunks_open(rig.bdev, &options, &chunks));
	lp_test_ok(lp_chunks_lease(chunks, 0, LP_CHUNK_USE_OBJECTS, 0, &idx));
	read_slot(&label, older);
	lp_test_ok(lp_chunks_return(chunks, 0, LP_CHUNK_USE_OBJECTS, idx));
	lp_chunks_close(chunks);
	lp_test_ok(lp_bdev_write_sync(rig.bdev, older, len,
				      label.table_block * LP_BLOCK_BYTES + len, true));
	lp_test_ok(lpi_rig_run(&rig, false));
	assert_int_equal(rig.report.problems, 0);
	assert_int_equal(rig.report.warnings, 1);
	free(older);
	lpi_rig_fini(&rig);
}

/* One shard that does not open says nothing of the other, but for names. */
static void test_dead_shard(void **state)
{
	(void)state;
	_Alignas(4096) static uint8_t block[4096];
	struct lp_disk_label label;
	lpi_rig_init(&rig, 2);
	lpi_rig_fill(&rig);
	lp_test_ok(lp_label_read(rig.bdev, false, &label, NULL));
	struct lp_extent log = lp_label_log_area(&label, 1);
	for (uint64_t i = 0; i < 4; i++)
		lp_test_ok(lp_bdev_write_sync(rig.bdev, block, sizeof(block),
					      (log.block + i) * LP_BLOCK_BYTES, true));
	lp_test_ok(lpi_rig_run(&rig, true));
	lpi_rig_compare(&rig,
			(const struct lpi_fsck_want[]){{LP_FSCK_SUPER_COPY, 0, false},
						       {LP_FSCK_SHARD, 0, false},
						       {LP_FSCK_ENTRY, 1, false}},
			3, true);
	assert_int_equal(rig.report.problems, 2);
	assert_int_equal(rig.report.warnings, 1);
	lpi_rig_fini(&rig);
}

/* --- Power cuts ------------------------------------------------------------------------------- */

#define CUTS (LP_ASSERT_SLOW_ON ? 4u : 20u)

/* Whatever of it was durable: the next repair ends with a store in order, and all data. */
static void repair_again(struct lp_bdev *left, uint32_t shard_cnt)
{
	static struct lpi_fsck_rig other;
	lpi_rig_init_on(&other, left, shard_cnt);
	other.deep = true;
	lp_test_ok(lpi_rig_run(&other, true));
	assert_int_equal(other.report.problems, 0);
	lp_test_ok(lpi_rig_run(&other, false));
	lpi_rig_compare(&other, NULL, 0, false);
	assert_int_equal(other.report.inodes, 8);
	assert_int_equal(other.report.entries, 7);
	assert_int_equal(other.report.read_blocks, 4 + 20 + 3 + 1);
	lpi_rig_fini(&other);
}

static void test_cut_repair(void **state)
{
	(void)state;
	const struct lp_sim_options options = {.profile = lp_sim_preset(LP_SIM_CONSUMER),
					       .size_bytes = LPI_RIG_BYTES};
	struct lp_bdev *bdev = NULL;
	struct lp_sim_cutter *cutter = NULL;
	lp_test_ok(lp_bdev_open_sim(&options, &bdev));
	lpi_rig_init_on(&rig, bdev, 1);
	lpi_rig_mkfs(&rig);
	lpi_rig_fill(&rig);
	lpi_rig_open(&rig);
	leak(&rig);
	untaken(&rig);
	high_count(&rig);
	lpi_rig_put_fragment(&rig, 2, 9, 9, 10);
	lpi_rig_put_mark(&rig, 3, LP_UNFINISHED_KIND_ORPHAN);
	lpi_rig_settle(&rig);
	lpi_rig_close(&rig);
	lp_test_ok(lp_bdev_flush_sync(bdev));
	lp_sim_trim_log(lp_sim_of(bdev));
	lp_test_ok(lpi_rig_run(&rig, true));
	assert_int_equal(rig.report.repaired, 5);
	uint64_t first = lp_sim_event_first(lp_sim_of(bdev));
	uint64_t step = 1 + (lp_sim_event_count(lp_sim_of(bdev)) - first) / CUTS;
	lp_test_ok(lp_sim_cutter_new(lp_sim_of(bdev), NULL, &cutter));
	for (uint64_t n = 0; lp_sim_cutter_next(cutter); n++) {
		if (n % step == 0)
			repair_again(lp_sim_cutter_cut(cutter, n), 1);
	}
	lp_sim_cutter_free(cutter);
	lpi_rig_fini(&rig);
}

static struct lp_extent counted_leak;

/* Blocks that nobody names, with counts as of a clone. */
static void leak_with_counts(struct lpi_fsck_rig *on)
{
	struct lp_refs refs;
	counted_leak = lpi_rig_take(on, 1);
	lp_refs_init(&refs, counted_leak.block >> LP_REFS_SHIFT);
	refs.cnt[counted_leak.block % LP_REFS_BLOCKS] = 2;
	/* Those of b's blocks, if they are of the same group. */
	for (uint64_t block = on->b.block; block < on->b.block + 3; block++) {
		if (block >> LP_REFS_SHIFT == refs.group)
			refs.cnt[block % LP_REFS_BLOCKS] = 2;
	}
	lpi_rig_put_refs(on, &refs);
}

/* If it is free whoever gets it may share it: his clone finds no count. Returns whether it is. */
static bool expect_free_is_uncounted(struct lpi_fsck_rig *on)
{
	uint64_t group = counted_leak.block >> LP_REFS_SHIFT;
	uint32_t idx = counted_leak.block % LP_REFS_BLOCKS;
	struct lp_kv_value value;
	struct lp_refs refs;
	struct lp_key key;
	lpi_rig_open(on);
	bool is_free = lp_space_is_unused(lp_shard_space(on->shards[0]), counted_leak);
	lp_refs_key(&key, group);
	lp_refs_init(&refs, group);
	int err = lp_kv_get(lp_shard_kv(on->shards[0]), (struct lp_kv_bytes){key.bytes, key.len},
			    &value);
	if (err == 0) {
		lp_test_ok(lp_refs_decode(value.bytes.data, value.bytes.len, &key, &refs));
		lp_kv_value_release(&value);
	}
	if (is_free)
		lp_test_ok(lp_refs_share(&refs, idx, 1, false));
	lpi_rig_close(on);
	return is_free;
}

/* The counts of a block are gone before it is free, wherever the power fails. */
static void test_cut_counted_leak(void **state)
{
	(void)state;
	static struct lpi_fsck_rig other;
	const struct lp_sim_options options = {.profile = lp_sim_preset(LP_SIM_CONSUMER),
					       .size_bytes = LPI_RIG_BYTES};
	struct lp_bdev *bdev = NULL;
	struct lp_sim_cutter *cutter = NULL;
	uint64_t free_cnt = 0;
	uint64_t n = 0;
	lp_test_ok(lp_bdev_open_sim(&options, &bdev));
	lpi_rig_init_on(&rig, bdev, 1);
	lpi_rig_mkfs(&rig);
	lpi_rig_fill(&rig);
	lpi_rig_open(&rig);
	leak_with_counts(&rig);
	lpi_rig_settle(&rig);
	lpi_rig_close(&rig);
	lp_test_ok(lp_bdev_flush_sync(bdev));
	lp_sim_trim_log(lp_sim_of(bdev));
	lp_test_ok(lpi_rig_run(&rig, true));
	assert_int_equal(rig.report.repaired, 2);
	lp_test_ok(lp_sim_cutter_new(lp_sim_of(bdev), NULL, &cutter));
	for (; lp_sim_cutter_next(cutter); n++) {
		lpi_rig_init_on(&other, lp_sim_cutter_cut(cutter, n), 1);
		free_cnt += expect_free_is_uncounted(&other);
		lpi_rig_fini(&other);
	}
	assert_true(free_cnt > 0 && free_cnt < n);
	lp_sim_cutter_free(cutter);
	lpi_rig_fini(&rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_clean),       cmocka_unit_test(test_keys),
		cmocka_unit_test(test_bad_inode),   cmocka_unit_test(test_leaves),
		cmocka_unit_test(test_strays),      cmocka_unit_test(test_place),
		cmocka_unit_test(test_size),        cmocka_unit_test(test_values),
		cmocka_unit_test(test_space),       cmocka_unit_test(test_extents),
		cmocka_unit_test(test_counts),      cmocka_unit_test(test_windows),
		cmocka_unit_test(test_copies),      cmocka_unit_test(test_cut_table),
		cmocka_unit_test(test_dead_shard),  cmocka_unit_test(test_cut_repair),
		cmocka_unit_test(test_lost_inodes), cmocka_unit_test(test_cut_counted_leak),
	};
	return lp_test_main(tests, "store/check/fsck");
}
