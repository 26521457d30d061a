/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: an overwrite does not enter the index with its group, enters it once when it is paid, and
 * is never lost in between: not when the log is trimmed, not when the process dies at any moment of
 * a payment, not when a replay is cut (rule L9). What owes stays in memory, and that is bounded.
 * Method: inodes and files put into a block store by hand, overwritten in place, on a simulated
 * device; the index is flushed by hand; the store is abandoned and opened again. */
#include "store/block/block_rig_test.h"

#include "store/shard/shard_impl.h"

#define FILE_NR    100u
#define INODE_BASE 1000u
#define LEAF       ((uint64_t)LP_EXTMAP_LEAF_BLOCKS)

/* --- Doing ------------------------------------------------------------------------------------ */

static void make_file(struct lpi_rig *rig, struct lpi_rig_file *file)
{
	lpi_rig_file_init(rig, file, FILE_NR, LPI_RIG_BLOCKS * LP_BLOCK_BYTES);
	for (uint64_t first = 0; first < LPI_RIG_BLOCKS; first += 32)
		lpi_rig_map(rig, file, (struct lp_extmap_range){first, 32}, LPI_RIG_WRITTEN, 1);
	lpi_rig_settle(rig);
}

/* One block, in its place, through the log. */
static void overwrite(struct lpi_rig *rig, struct lpi_rig_file *file, uint64_t block, uint64_t seed)
{
	const struct lp_extmap_range range = {block, 1};
	struct lpi_inode *inode = lpi_rig_find(rig, file->ino);
	while (lp_shard_defer_room(rig->block->shard) < 8)
		lpi_rig_turn(rig);
	lpi_rig_reserve(rig);
	uint32_t crc = lpi_rig_fill(file, block, seed);
	lpi_rig_defer(rig, file, range, &crc);
	lp_extmap_update_crcs(&inode->map, range, &crc);
	inode->rec.version_nr++;
	lpi_node_changed(&inode->node);
}

static uint64_t owed(const struct lpi_rig *rig)
{
	return rig->block->nodes.owing.owed.cnt;
}

/* As in a store with less memory. */
static void set_owing_max(struct lpi_rig *rig, uint32_t run_max)
{
	struct lpi_owing *owing = &rig->block->nodes.owing;
	assert_true(run_max <= owing->run_max && owing->cnt == 0);
	owing->run_max = run_max;
	owing->max = run_max * LPI_OWED_RUNS;
}

static uint64_t pay_all(struct lpi_rig *rig)
{
	uint64_t before = lp_commit_stats(rig->block->commit)->paid;
	while (lp_commit_whole_seq(rig->block->commit) <
	       lp_commit_inserted_seq(rig->block->commit)) {
		lp_commit_pay(rig->block->commit);
		lpi_rig_turn(rig);
	}
	return lp_commit_stats(rig->block->commit)->paid - before;
}

/* What is in the index's memory is in its tables, and the shard knows. */
static void flush(struct lpi_rig *rig)
{
	int err = lp_kv_flush(rig->block->kv);
	assert_true(err == 0 || err == -EAGAIN);
	for (int i = 0; i < 8; i++)
		lpi_rig_turn(rig);
}

/* As after kill -9. */
static void kill_and_open(struct lpi_rig *rig)
{
	lpi_rig_close(rig, true);
	lpi_rig_open(rig);
}

static void read_all(struct lpi_rig *rig, const struct lpi_rig_file *file)
{
	for (uint64_t first = 0; first < LPI_RIG_BLOCKS; first += 16)
		lpi_rig_read(rig, file, first * LP_BLOCK_BYTES, 16 * LP_BLOCK_BYTES);
}

/* The crc of the bytes that the index has for a leaf. */
static uint32_t crc_of_index(struct lpi_rig *rig, uint32_t leaf)
{
	struct lp_kv_value value;
	struct lp_key key;
	lp_key_of_map(&key, (struct lp_ino){FILE_NR}, leaf * LEAF);
	lp_test_ok(lp_kv_get(rig->block->kv, (struct lp_kv_bytes){key.bytes, key.len}, &value));
	uint32_t crc = lp_crc32c(0, value.bytes.data, value.bytes.len);
	lp_kv_value_release(&value);
	return crc;
}

/* Inodes with numbers from INODE_BASE on, each in the index. */
static void make_inodes(struct lpi_rig *rig, uint32_t cnt)
{
	for (uint32_t i = 0; i < cnt; i++)
		(void)lpi_rig_inode(rig, INODE_BASE + i, LP_INODE_TYPE_FILE);
	lpi_rig_settle(rig);
	pay_all(rig);
}

static void set_uid(struct lpi_rig *rig, uint32_t i, uint32_t uid)
{
	struct lpi_inode *inode = lpi_rig_find(rig, (struct lp_ino){INODE_BASE + i});
	lpi_rig_reserve(rig);
	inode->rec.uid = uid;
	lpi_node_changed(&inode->node);
}

static uint32_t uid_of(struct lpi_rig *rig, uint32_t i)
{
	struct lpi_rig_op op = {.op = {.opcode = LP_STORE_STAT}};
	op.op.stat.ino.nr = INODE_BASE + i;
	lp_test_ok(lpi_rig_do(rig, &op));
	return op.op.stat.attrs.uid;
}

/* --- Tests ------------------------------------------------------------------------------------ */

/* The index gets a leaf once, however often it was overwritten; what it lacks is in the log. */
static void test_paid_once(void **state)
{
	(void)state;
	struct lpi_rig rig = {.slots = 0};
	struct lpi_rig_file file;
	lpi_rig_init(&rig);
	make_file(&rig, &file);
	pay_all(&rig);
	assert_int_equal(owed(&rig), 0);
	uint32_t before = crc_of_index(&rig, 2);
	for (uint64_t i = 0; i < 20; i++) {
		overwrite(&rig, &file, 2 * LEAF + i % 3, 100 + i);
		lpi_rig_settle(&rig);
	}
	assert_int_equal(owed(&rig), 2); /* the leaf, and the inode */
	assert_true(crc_of_index(&rig, 2) == before);
	assert_true(lp_commit_whole_seq(rig.block->commit) <
		    lp_commit_inserted_seq(rig.block->commit));
	flush(&rig);
	kill_and_open(&rig);
	read_all(&rig, &file);
	assert_int_equal(owed(&rig), 0);
	uint32_t replayed = crc_of_index(&rig, 2);
	assert_true(replayed != before);
	overwrite(&rig, &file, 2 * LEAF, 200);
	lpi_rig_settle(&rig);
	assert_true(crc_of_index(&rig, 2) == replayed);
	assert_int_equal(pay_all(&rig), 3); /* and up to where the index is whole */
	assert_true(crc_of_index(&rig, 2) != replayed);
	assert_int_equal(owed(&rig), 0);
	read_all(&rig, &file);
	lpi_rig_close(&rig, false);
	lpi_rig_file_fini(&file);
	lpi_rig_fini(&rig);
}

/* Rule L9: a flush of the index, which says that it has applied the frame of an overwrite, is no
 * reason to forget the frame. */
static void test_flush_is_no_payment(void **state)
{
	(void)state;
	struct lpi_rig rig = {.slots = 0};
	lpi_rig_init(&rig);
	make_inodes(&rig, 2);
	flush(&rig);
	set_uid(&rig, 0, 5);
	lpi_rig_settle(&rig);
	/* No payload, and no change of space, keeps the frame. */
	uint64_t seq = lp_commit_inserted_seq(rig.block->commit);
	for (uint32_t i = 0; i < 6; i++) {
		set_uid(&rig, 1, 10 + i);
		lpi_rig_settle(&rig);
	}
	flush(&rig);
	set_uid(&rig, 1, 20);
	lpi_rig_settle(&rig);
	assert_true(rig.block->shard->persisted_seq > seq);
	assert_true(rig.block->shard->whole_seq < seq);
	assert_true(rig.block->shard->trimmed_seq <= seq);
	kill_and_open(&rig);
	assert_int_equal(uid_of(&rig, 0), 5);
	assert_int_equal(uid_of(&rig, 1), 20);
	lpi_rig_close(&rig, false);
	lpi_rig_fini(&rig);
}

/* The log goes round several times, and its pressure alone has everything paid in time: also a leaf
 * that was overwritten once, at the beginning of each round. */
static void test_log_goes_round(void **state)
{
	(void)state;
	struct lpi_rig rig = {.slots = 0};
	struct lpi_rig_file file;
	struct lp_shard_usage usage;
	lpi_rig_init(&rig);
	make_file(&rig, &file);
	for (uint64_t round = 0; round < 4; round++) {
		uint64_t paid = lp_commit_stats(rig.block->commit)->paid;
		lp_shard_read_usage(rig.block->shard, &usage);
		overwrite(&rig, &file, 3 * LEAF + round, 1000 + round);
		for (uint64_t i = 0; i < usage.log_ring_blocks; i++) {
			overwrite(&rig, &file, i * 7 % LEAF, round * 10000 + i);
			if (i % 3 == 0)
				lpi_rig_turn(&rig);
		}
		assert_true(lp_commit_stats(rig.block->commit)->paid > paid);
		assert_true(lp_commit_stats(rig.block->commit)->owed >
			    8 * lp_commit_stats(rig.block->commit)->paid);
		lpi_rig_settle(&rig);
		kill_and_open(&rig);
		read_all(&rig, &file);
	}
	lpi_rig_close(&rig, false);
	lpi_rig_file_fini(&file);
	lpi_rig_fini(&rig);
}

/* The process dies after any number of turns of a payment, records being changed meanwhile; the
 * index has flushed what it had. What was acknowledged is there, also when the replay dies, with
 * what it had put into the index flushed, and comes again. */
static void test_death_while_paying(void **state)
{
	(void)state;
	enum { INODES = 600 };
	struct lpi_rig rig = {.slots = 0};
	static uint32_t want[INODES];
	lpi_rig_init(&rig);
	make_inodes(&rig, INODES);
	memset(want, 0, sizeof(want));
	uint32_t uid = 0;
	for (uint32_t turns = 0; turns < 16; turns++) {
		set_owing_max(&rig, 64);
		for (uint32_t i = 0; i < INODES; i++) {
			want[i] = ++uid;
			set_uid(&rig, i, uid);
		}
		lpi_rig_settle(&rig);
		assert_true(owed(&rig) >= INODES);
		lp_commit_pay(rig.block->commit);
		for (uint32_t k = 0; k < turns; k++) {
			want[(k * 37) % INODES] = ++uid;
			set_uid(&rig, (k * 37) % INODES, uid);
			lpi_rig_turn(&rig);
		}
		/* All that was put is durable; the payment may not have come to its end. */
		while (!lp_commit_is_settled(rig.block->commit))
			lpi_rig_turn(&rig);
		flush(&rig);
		kill_and_open(&rig);
		if (turns % 2 == 0) {
			flush(&rig);
			kill_and_open(&rig);
		}
		for (uint32_t i = 0; i < INODES; i++)
			assert_int_equal(uid_of(&rig, i), want[i]);
	}
	lpi_rig_close(&rig, false);
	lpi_rig_fini(&rig);
}

/* An inode that is removed, and one that is made anew, are owed nothing. */
static void test_deletions_and_new_records(void **state)
{
	(void)state;
	struct lpi_rig rig = {.slots = 0};
	lpi_rig_init(&rig);
	make_inodes(&rig, 3);
	set_uid(&rig, 0, 7);
	set_uid(&rig, 1, 7);
	lpi_rig_settle(&rig);
	assert_int_equal(owed(&rig), 2);
	lpi_rig_reserve(&rig);
	struct lpi_inode *gone = lpi_rig_find(&rig, (struct lp_ino){INODE_BASE});
	gone->node.exists = false;
	lpi_node_changed(&gone->node);
	(void)lpi_rig_inode(&rig, INODE_BASE + 3, LP_INODE_TYPE_FILE);
	lpi_rig_settle(&rig);
	assert_int_equal(owed(&rig), 1);
	flush(&rig);
	kill_and_open(&rig);
	struct lpi_rig_op op = {.op = {.opcode = LP_STORE_STAT}};
	op.op.stat.ino.nr = INODE_BASE;
	assert_int_equal(lpi_rig_do(&rig, &op), -ENOENT);
	assert_int_equal(uid_of(&rig, 1), 7);
	assert_int_equal(uid_of(&rig, 3), 0);
	lpi_rig_close(&rig, false);
	lpi_rig_fini(&rig);
}

static uint32_t listed_cnt(struct lpi_rig *rig)
{
	static uint8_t buf[4096];
	struct lpi_rig_op op = {.op = {.opcode = LP_STORE_LIST,
				       .list = {.space = LP_STORE_INODES,
						.buf = buf,
						.buf_len = sizeof(buf),
						.items_max = 100}}};
	lp_test_ok(lpi_rig_do(rig, &op));
	return op.op.list.items;
}

/* Rule W1: a list is read from the index, and leaves out what is being removed: so that is never
 * owed. */
static void test_removed_is_not_listed(void **state)
{
	(void)state;
	struct lpi_rig rig = {.slots = 0};
	lpi_rig_init(&rig);
	make_inodes(&rig, 3);
	uint32_t before = listed_cnt(&rig);
	set_uid(&rig, 0, 7);
	lpi_rig_settle(&rig);
	assert_int_equal(owed(&rig), 1);
	assert_int_equal(listed_cnt(&rig), before);
	lpi_rig_reserve(&rig);
	struct lpi_inode *gone = lpi_rig_find(&rig, (struct lp_ino){INODE_BASE});
	gone->rec.flags |= LP_INODE_FLAG_REMOVED;
	lpi_node_changed(&gone->node);
	lpi_rig_settle(&rig);
	assert_int_equal(owed(&rig), 0);
	assert_int_equal(listed_cnt(&rig), before - 1);
	lpi_rig_close(&rig, false);
	lpi_rig_fini(&rig);
}

/* What owes is not evicted, what was paid is; and no more is owed than there may be. */
static void test_memory(void **state)
{
	(void)state;
	struct lpi_rig rig = {.slots = 0};
	lpi_rig_init(&rig);
	struct lpi_nodes *nodes = &rig.block->nodes;
	set_owing_max(&rig, 20);
	uint32_t max = nodes->owing.max;
	const uint64_t most = UINT64_C(2) * max;
	uint32_t cnt = 2 * max + 100;
	make_inodes(&rig, cnt);
	for (uint32_t i = 0; i < cnt; i++) {
		set_uid(&rig, i, i + 1);
		assert_true(owed(&rig) <= most);
	}
	lpi_rig_settle(&rig);
	assert_true(owed(&rig) > 0 && owed(&rig) <= most);
	nodes->limit_bytes = 1;
	for (uint32_t i = 0; i < 100; i++)
		lpi_nodes_shrink(nodes);
	assert_true(nodes->cnt >= owed(&rig) && nodes->evictions > 0);
	pay_all(&rig);
	for (uint32_t i = 0; i < 100; i++)
		lpi_nodes_shrink(nodes);
	assert_int_equal(nodes->cnt, 0);
	nodes->limit_bytes = UINT64_C(1) << 20;
	for (uint32_t i = 0; i < cnt; i++)
		assert_int_equal(uid_of(&rig, i), i + 1);
	lpi_rig_close(&rig, false);
	lpi_rig_fini(&rig);
}

/* Long records are bounded by their bytes: an inode may have as much in it as a hundred leaves. */
static void test_memory_of_long_records(void **state)
{
	(void)state;
	enum { INODES = 600, LONG = 1000 };
	static uint8_t xattr[LONG] = "\x06\xdf\x03user.a"; /* and 991 bytes */
	struct lpi_rig rig = {.slots = 0};
	lpi_rig_init(&rig);
	struct lpi_nodes *nodes = &rig.block->nodes;
	make_inodes(&rig, INODES);
	nodes->limit_bytes = UINT64_C(1) << 20;
	const uint64_t most = nodes->limit_bytes / 8 + LONG + 1000;
	assert_true(nodes->owing.max > INODES);
	for (uint32_t i = 0; i < INODES; i++) {
		struct lpi_inode *inode = lpi_rig_find(&rig, (struct lp_ino){INODE_BASE + i});
		lpi_rig_reserve(&rig);
		lp_test_ok(lpi_inode_make_room(inode, LPI_PART_XATTRS, LONG));
		lpi_inode_set_part(inode, LPI_PART_XATTRS, xattr, LONG);
		lpi_node_changed(&inode->node);
		while (!lp_commit_is_settled(rig.block->commit))
			lpi_rig_turn(&rig);
		assert_true(owed(&rig) * LONG <= 2 * most);
	}
	assert_true(owed(&rig) > 0);
	pay_all(&rig);
	assert_int_equal(owed(&rig), 0);
	lpi_rig_close(&rig, true);
	lpi_rig_fini(&rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_paid_once),
		cmocka_unit_test(test_flush_is_no_payment),
		cmocka_unit_test(test_log_goes_round),
		cmocka_unit_test(test_death_while_paying),
		cmocka_unit_test(test_deletions_and_new_records),
		cmocka_unit_test(test_removed_is_not_listed),
		cmocka_unit_test(test_memory),
		cmocka_unit_test(test_memory_of_long_records),
	};
	return lp_test_main(tests, "store/block/write/owed");
}
