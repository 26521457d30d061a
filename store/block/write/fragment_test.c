/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: nothing stays of a directory that was removed, here or on the shard of its inode, and
 * nothing that has entries is ever dropped (rule N2).
 * Method: directories made, filled, cleared and removed through the store's face on a simulated
 * device, also while their fragments are not in memory; then the checker finds no fault at all. */
#include "store/block/block_sim_test.h"

static const struct lp_ino root = {1}; /* LP_INO_ROOT */
static const struct lp_ino dir = {100};
static const struct lp_ino away = {(UINT64_C(1) << LP_INO_SHARD_SHIFT) + 5}; /* of another shard */

static struct lp_change create_dir(struct lp_ino ino, const struct lp_attrs *attrs)
{
	return (struct lp_change){.type = LP_CHANGE_CREATE, .ino = ino, .inode = {.attrs = attrs}};
}

static struct lp_change entry(enum lp_change_type type, struct lp_ino in, const char *name,
			      struct lp_ino target, uint8_t target_type)
{
	return (struct lp_change){.type = type,
				  .ino = in,
				  .named = {.name = {name, (uint32_t)strlen(name)},
					    .target = target,
					    .target_type = target_type}};
}

static struct lp_change drop(struct lp_ino ino)
{
	return (struct lp_change){.type = LP_CHANGE_DIR, .ino = ino, .dir = {.drop = true}};
}

static struct lp_change seal(struct lp_ino ino)
{
	return (struct lp_change){.type = LP_CHANGE_DIR, .ino = ino, .dir = {.seal = true}};
}

static struct lp_change unseal(struct lp_ino ino)
{
	return (struct lp_change){.type = LP_CHANGE_DIR, .ino = ino, .dir = {.unseal = true}};
}

static void make_tree(struct lpi_store_rig *rig)
{
	const struct lp_attrs of_root = {
		.type = LP_INODE_TYPE_DIR, .mode = 0755, .nlink = 3, .parent = root};
	const struct lp_attrs of_dir = {
		.type = LP_INODE_TYPE_DIR, .mode = 0755, .nlink = 2, .parent = root};
	const struct lp_change changes[] = {
		create_dir(root, &of_root), create_dir(dir, &of_dir),
		entry(LP_CHANGE_ENTRY_SET, root, "d", dir, LP_INODE_TYPE_DIR)};
	lp_test_ok(lpi_hand_txn(&rig->hand, changes, LP_ARRAY_SIZE(changes)));
}

/* The nodes are no longer in memory afterwards. */
static void reopen(struct lpi_store_rig *rig)
{
	lp_test_ok(lpi_store_rig_close(rig, false));
	lp_test_ok(lpi_store_rig_open(rig));
}

static uint64_t entries_of(struct lpi_store_rig *rig, struct lp_ino ino)
{
	struct lp_store_op op = {.opcode = LP_STORE_DIR, .dir = {.ino = ino}};
	lp_test_ok(lpi_hand_do(&rig->hand, &op));
	return op.dir.entries_cnt;
}

static void found(struct lp_fsck_events *events, const struct lp_fsck_finding *finding)
{
	(void)events;
	print_error("fsck: %s: %s: %s\n", lp_fsck_kind_name(finding->kind), finding->object,
		    finding->text);
	fail();
}

static void test_removed(void **state)
{
	(void)state;
	struct lpi_store_rig rig;
	lpi_store_rig_start(&rig, 1);
	make_tree(&rig);
	lp_test_ok(lpi_hand_change(&rig.hand,
				   entry(LP_CHANGE_ENTRY_SET, dir, "x", dir, LP_INODE_TYPE_FILE)));
	lp_test_ok(lpi_hand_change(&rig.hand,
				   entry(LP_CHANGE_ENTRY_SET, away, "x", dir, LP_INODE_TYPE_FILE)));
	const struct lp_attrs links = {.nlink = 2};
	const struct lp_change removal[] = {{.type = LP_CHANGE_SET,
					     .ino = root,
					     .inode = {.attrs = &links, .mask = LP_ATTR_NLINK}},
					    entry(LP_CHANGE_ENTRY_REMOVE, root, "d", dir, 0),
					    seal(dir),
					    {.type = LP_CHANGE_REMOVE, .ino = dir}};
	for (int is_cold = 0; is_cold < 2; is_cold++) {
		if (is_cold != 0)
			reopen(&rig);
		lp_test_err(-ENOTEMPTY, lpi_hand_change(&rig.hand, removal[3]));
		lp_test_err(-ENOTEMPTY, lpi_hand_change(&rig.hand, drop(dir)));
		lp_test_err(-ENOTEMPTY, lpi_hand_change(&rig.hand, drop(away)));
		assert_int_equal(entries_of(&rig, dir), 1);
		assert_int_equal(entries_of(&rig, away), 1);
	}
	lp_test_ok(lpi_hand_change(&rig.hand, entry(LP_CHANGE_ENTRY_REMOVE, dir, "x", dir, 0)));
	const struct lp_change last[] = {entry(LP_CHANGE_ENTRY_REMOVE, away, "x", dir, 0),
					 drop(away)};
	reopen(&rig);
	lp_test_ok(lpi_hand_txn(&rig.hand, last, LP_ARRAY_SIZE(last)));
	lp_test_ok(lpi_hand_txn(&rig.hand, removal, LP_ARRAY_SIZE(removal)));
	lp_test_ok(lpi_hand_change(&rig.hand, drop(away))); /* there is none */
	lp_test_ok(lpi_store_rig_close(&rig, false));
	lpi_store_rig_check_all(&rig, found);
	lpi_store_rig_fini(&rig);
}

/* Two at once, in this order: the entry came first, or it is in a fragment that begins again. */
static void test_entry_meets_drop(void **state)
{
	(void)state;
	struct lpi_store_rig rig;
	lpi_store_rig_start(&rig, 1);
	const struct lp_change set = entry(LP_CHANGE_ENTRY_SET, away, "x", dir, LP_INODE_TYPE_FILE);
	lp_test_ok(lpi_hand_change(&rig.hand, set));
	lp_test_ok(lpi_hand_change(&rig.hand, entry(LP_CHANGE_ENTRY_REMOVE, away, "x", dir, 0)));
	lp_test_ok(lpi_hand_change(&rig.hand, seal(away)));
	lp_test_err(-ENOENT, lpi_hand_change(&rig.hand, set));
	lp_test_ok(lpi_hand_change(&rig.hand, drop(away)));
	lp_test_ok(lpi_hand_change(&rig.hand, set));
	assert_int_equal(entries_of(&rig, away), 1);
	struct lp_store_op op = {.opcode = LP_STORE_LOOKUP,
				 .lookup = {.dir = away, .name = {"x", 1}}};
	lp_test_ok(lpi_hand_do(&rig.hand, &op));
	assert_int_equal(op.lookup.insertion, 1);
	lp_test_err(-ENOTEMPTY, lpi_hand_change(&rig.hand, drop(away)));
	lp_test_ok(lpi_store_rig_close(&rig, false));
	lpi_store_rig_fini(&rig);
}

/* A fragment that was made only to be sealed goes with its seal, for its directory may never have
 * been; one that has had entries stays, or its insertions would begin again. */
static void test_unsealed(void **state)
{
	(void)state;
	struct lpi_store_rig rig;
	struct lp_store_op op = {.opcode = LP_STORE_LOOKUP,
				 .lookup = {.dir = dir, .name = {"x", 1}}};
	lpi_store_rig_start(&rig, 1);
	make_tree(&rig);
	const struct lp_change set = entry(LP_CHANGE_ENTRY_SET, dir, "x", root, LP_INODE_TYPE_DIR);
	const struct lp_change remove = entry(LP_CHANGE_ENTRY_REMOVE, dir, "x", root, 0);
	for (int is_cold = 0; is_cold < 2; is_cold++) {
		lp_test_ok(lpi_hand_change(&rig.hand, seal(away)));
		lp_test_ok(lpi_hand_change(&rig.hand, set));
		lp_test_ok(lpi_hand_change(&rig.hand, remove));
		lp_test_ok(lpi_hand_change(&rig.hand, seal(dir)));
		if (is_cold != 0)
			reopen(&rig);
		lp_test_ok(lpi_hand_change(&rig.hand, unseal(away)));
		lp_test_ok(lpi_hand_change(&rig.hand, unseal(dir)));
		lp_test_ok(lpi_hand_change(&rig.hand, set));
		lp_test_ok(lpi_hand_do(&rig.hand, &op));
		assert_int_equal(op.lookup.insertion, 2 + 2 * is_cold);
		lp_test_ok(lpi_hand_change(&rig.hand, remove));
	}
	lp_test_ok(lpi_store_rig_close(&rig, false));
	lpi_store_rig_check_all(&rig, found);
	lpi_store_rig_fini(&rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_removed),
		cmocka_unit_test(test_unsealed),
		cmocka_unit_test(test_entry_meets_drop),
	};
	return lp_test_main(tests, "store/block/write/fragment");
}
