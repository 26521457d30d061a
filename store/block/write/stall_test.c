/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: with the smallest log, whatever stalls the index while the log is tight, writes go on when
 * the stall has ended (rules L4, L6, L9): a flush that was refused is asked for again, what makes
 * room never takes the last room, and what is owed and deferred is bounded by what can come. What
 * is durable and not in the index is told at once, and no list passes over it (rule W1). Method: a
 * block store on a simulated device, whose index does none of its jobs but when it is let; so it
 * refuses writes for as long as the test wants. */
#include "store/block/block_rig_test.h"
#include "store/block/write/edit.h"

#include "store/shard/shard_impl.h"

#define FILE_NR    100u
#define INODE_BASE 1000u
#define L0_FILES   12u /* at which the index refuses writes */
#define TURNS      2000
#define GROUP      6u /* times 32 payloads, in one group */

static struct lpi_rig_file file;

/* --- The index's jobs ------------------------------------------------------------------------- */

/* It does nothing meanwhile. */
static void turn(struct lpi_rig *rig)
{
	(void)lp_reactor_turn(rig->reactor, true);
}

static void turns(struct lpi_rig *rig)
{
	for (int i = 0; i < 20; i++)
		turn(rig);
}

static void flush_only(struct lpi_rig *rig)
{
	struct lp_kv_stats stats;
	lp_kv_read_stats(rig->block->kv, &stats);
	while (stats.waiting_cnt > 0) {
		assert_true(lp_store_sim_run_one(&rig->block->base));
		lp_kv_read_stats(rig->block->kv, &stats);
	}
	turns(rig);
}

static void put(struct lpi_rig *rig, uint32_t i, uint32_t uid)
{
	lpi_rig_reserve(rig);
	struct lpi_node *node = lpi_node_find(&rig->block->nodes, LPI_NODE_INODE, INODE_BASE + i);
	struct lpi_inode *inode = node != NULL
					  ? lpi_inode_of(node)
					  : lpi_rig_inode(rig, INODE_BASE + i, LP_INODE_TYPE_FILE);
	inode->rec.uid = uid;
	lpi_node_changed(&inode->node);
	turns(rig);
}

/* So many tables, and a memtable that has something. */
static void make_tables(struct lpi_rig *rig, uint32_t tables)
{
	struct lp_kv_stats stats;
	lp_kv_read_stats(rig->block->kv, &stats);
	for (uint32_t nr = 0; stats.l0_files < tables && stats.stall_cnt == 0; nr++) {
		assert_true(nr < 4 * L0_FILES);
		put(rig, nr, 0);
		lp_test_ok(lp_kv_flush(rig->block->kv));
		put(rig, nr + 100, 0);
		flush_only(rig);
		lp_kv_read_stats(rig->block->kv, &stats);
	}
}

static void stall(struct lpi_rig *rig)
{
	struct lp_kv_stats stats;
	make_tables(rig, UINT32_MAX);
	lp_kv_read_stats(rig->block->kv, &stats);
	assert_true(stats.stall_cnt > 0);
}

/* --- The log ---------------------------------------------------------------------------------- */

static void make_file(struct lpi_rig *rig)
{
	lpi_rig_file_init(rig, &file, FILE_NR, LPI_RIG_BLOCKS * LP_BLOCK_BYTES);
	for (uint64_t first = 0; first < LPI_RIG_BLOCKS; first += 32)
		lpi_rig_map(rig, &file, (struct lp_extmap_range){first, 32}, LPI_RIG_WRITTEN, 1);
	lpi_rig_settle(rig);
	/* Nothing is missing in it: what keeps the log is what comes now. */
	(void)lpi_shard_checkpoint_some(rig->block->shard);
	lpi_rig_settle(rig);
	while (lp_commit_whole_seq(rig->block->commit) <
	       lp_commit_inserted_seq(rig->block->commit)) {
		lp_commit_pay(rig->block->commit);
		lpi_rig_turn(rig);
	}
	assert_int_equal(lp_kv_flush(rig->block->kv), 0);
	lpi_rig_settle(rig);
	for (int i = 0; i < 20; i++)
		lpi_rig_turn(rig);
}

static bool can_overwrite(struct lpi_rig *rig)
{
	const struct lp_commit_need need = {.batch_bytes = 24000, .change_cnt = 64, .data_cnt = 32};
	return lp_shard_defer_room(rig->block->shard) >= 32 &&
	       lp_commit_reserve(rig->block->commit, &need);
}

/* 32 blocks through the log, in the group that collects. False: there is no room. */
static bool overwrite(struct lpi_rig *rig, uint64_t seed)
{
	const struct lp_extmap_range range = {seed % 4 * 32, 32};
	uint32_t crcs[32];
	if (!can_overwrite(rig))
		return false;
	struct lpi_inode *inode = lpi_rig_find(rig, file.ino);
	for (uint32_t i = 0; i < 32; i++)
		crcs[i] = lpi_rig_fill(&file, range.first + i, seed);
	lpi_rig_defer(rig, &file, range, crcs);
	lp_extmap_update_crcs(&inode->map, range, crcs);
	inode->rec.version_nr++;
	lpi_node_changed(&inode->node);
	return true;
}

/* Until the log has so many blocks that it must keep, or nothing more is let in. */
static void fill_log(struct lpi_rig *rig, uint64_t blocks)
{
	struct lp_shard_usage usage;
	lp_shard_read_usage(rig->block->shard, &usage);
	uint64_t seed = 1;
	for (int i = 0; i < TURNS && usage.log_needed_blocks < blocks; i++) {
		uint64_t most =
			LP_MIN((blocks - usage.log_needed_blocks) / 33 + 1, (uint64_t)GROUP);
		for (uint64_t k = 0; k < most && overwrite(rig, seed); k++)
			seed++;
		turn(rig);
		lp_shard_read_usage(rig->block->shard, &usage);
	}
}

/* The index does its jobs again. */
static void expect_progress(struct lpi_rig *rig)
{
	bool is_let_in = false;
	for (int i = 0; i < TURNS && !is_let_in; i++) {
		lpi_rig_turn(rig);
		is_let_in = can_overwrite(rig);
	}
	assert_true(is_let_in);
}

static void end(struct lpi_rig *rig)
{
	lpi_rig_settle(rig);
	for (uint64_t first = 0; first < LPI_RIG_BLOCKS; first += 16)
		lpi_rig_read(rig, &file, first * LP_BLOCK_BYTES, 16 * LP_BLOCK_BYTES);
	lpi_rig_close(rig, false);
	lpi_rig_file_fini(&file);
	lpi_rig_fini(rig);
}

/* --- Tests ------------------------------------------------------------------------------------ */

/* The index refuses a flush, because it is stalled; what it flushed before is less than was wanted,
 * and no memtable fills by itself, for the log is tight. */
static void test_refused_flush_is_asked_again(void **state)
{
	(void)state;
	struct lpi_rig rig = {.slots = 0};
	lpi_rig_init(&rig);
	make_file(&rig);
	stall(&rig);
	assert_true(lp_commit_inserted_seq(rig.block->commit) > rig.block->shard->persisted_seq);
	fill_log(&rig, UINT64_MAX);
	assert_true(lp_log_is_tight(rig.block->shard->log));
	assert_true(rig.block->shard->flush_result < 0);
	expect_progress(&rig);
	end(&rig);
}

/* As before, but nothing waits for the index that would ask for a flush when it has come in. */
static void test_refused_flush_is_asked_again_alone(void **state)
{
	(void)state;
	struct lpi_rig rig = {.slots = 0};
	lpi_rig_init(&rig);
	make_file(&rig);
	make_tables(&rig, L0_FILES - 1);
	put(&rig, 0, 7);
	lp_test_ok(lp_kv_flush(rig.block->kv)); /* will make one too many */
	for (uint64_t seed = 1; overwrite(&rig, seed); seed++)
		turns(&rig);
	flush_only(&rig);
	assert_true(lp_log_is_tight(rig.block->shard->log));
	assert_int_equal(lp_commit_inserted_seq(rig.block->commit),
			 lp_commit_seq(rig.block->commit) - 1);
	assert_true(rig.block->shard->flush_result < 0);
	expect_progress(&rig);
	end(&rig);
}

/* Rule L9: what makes room goes on while the door is closed, but never so far that the group that
 * collects waits for the log: then nothing would be paid. */
static void test_relief_leaves_room(void **state)
{
	(void)state;
	static const uint8_t value[4300];
	const struct lp_commit_need need = {.batch_bytes = 4400, .is_relief = true};
	struct lpi_rig rig = {.slots = 0};
	struct lp_key key;
	lpi_rig_init(&rig);
	make_file(&rig);
	fill_log(&rig, 970);
	stall(&rig);
	put(&rig, 0, 7); /* is owed */
	fill_log(&rig, UINT64_MAX);
	assert_true(lp_log_is_tight(rig.block->shard->log));
	uint64_t put_cnt = 0;
	for (int i = 0; i < TURNS; i++) {
		while (lp_commit_reserve(rig.block->commit, &need)) {
			lpi_rig_filler_key(&key, put_cnt++ % 200);
			lp_commit_put_owned(rig.block->commit,
					    (struct lp_kv_bytes){key.bytes, key.len},
					    (struct lp_kv_bytes){value, sizeof(value)});
		}
		turn(&rig);
	}
	assert_true(put_cnt > 200);
	assert_true(lp_commit_whole_seq(rig.block->commit) < lp_commit_seq(rig.block->commit) - 1);
	expect_progress(&rig);
	end(&rig);
}

/* A write that is larger than all payloads that may wait goes its direct way; edges fit always. */
static void test_deferred_beyond_the_limit(void **state)
{
	(void)state;
	struct lpi_rig rig = {.slots = 0};
	lpi_rig_init(&rig);
	make_file(&rig);
	rig.block->shard->options.deferred_blocks_max = LP_SHARD_DEFERRED_MIN;
	struct lp_store_op op = {.opcode = LP_STORE_TXN};
	for (uint64_t blocks = 1; blocks <= 40; blocks += 3) {
		const struct lp_change change = {.type = LP_CHANGE_WRITE,
						 .data.path = LP_PATH_DEFERRED};
		struct lpi_txn txn = {.block = rig.block, .op = &op, .edit = {.change = &change}};
		enum lp_write_path path = lpi_edit_choose_path(&txn, blocks * LP_BLOCK_BYTES - 1);
		uint64_t most = blocks + 2; /* at any offset, and content that moves */
		assert_true(path == LP_PATH_DIRECT || most <= LP_SHARD_DEFERRED_MIN);
		assert_true(path == LP_PATH_DEFERRED || blocks > LP_SHARD_DEFERRED_MIN - 3);
	}
	end(&rig);
}

/* --- Reads meanwhile -------------------------------------------------------------------------- */

static const struct lp_ino dir = {300};

static void put_entry(struct lpi_rig *rig, uint64_t target)
{
	const struct lp_dirent_value value = {
		.ino = target, .type = LP_INODE_TYPE_FILE, .insertion = 1};
	uint8_t bytes[LP_DIRENT_VALUE_SIZE];
	struct lp_key key;
	lp_key_of_name(&key, LP_KEY_SPACE_DIRENT, dir, "name", 4);
	lp_dirent_write(&value, &key, bytes);
	lpi_rig_put_entry(rig, dir, &key, bytes);
}

static void test_reads_while_it_is_stalled(void **state)
{
	(void)state;
	static uint8_t buf[4096];
	struct lpi_rig rig = {.slots = 0};
	struct lp_list_item item;
	uint32_t pos = 0;
	lpi_rig_init(&rig);
	make_file(&rig);
	put_entry(&rig, 400);
	lpi_rig_settle(&rig);
	stall(&rig);
	put_entry(&rig, 401);
	uint64_t group = lp_commit_group(rig.block->commit);
	turns(&rig);
	struct lpi_nodes *nodes = &rig.block->nodes;
	uint64_t limit = nodes->limit_bytes;
	nodes->limit_bytes = 1;
	for (int i = 0; i < TURNS; i++)
		lpi_nodes_shrink(nodes);
	nodes->limit_bytes = limit;
	assert_true(lp_commit_group_is_durable(rig.block->commit, group));
	assert_false(lp_commit_group_is_inserted(rig.block->commit, group));
	struct lpi_rig_op list = {.op = {.opcode = LP_STORE_LIST,
					 .list = {.space = LP_STORE_ENTRIES,
						  .ino = dir,
						  .buf = buf,
						  .buf_len = sizeof(buf)}}};
	struct lpi_rig_op look = {
		.op = {.opcode = LP_STORE_LOOKUP, .lookup = {.dir = dir, .name = {"name", 4}}}};
	lpi_rig_submit(&rig, &list);
	lpi_rig_submit(&rig, &look);
	turns(&rig);
	assert_int_equal(list.order, 0);
	assert_int_not_equal(look.order, 0);
	assert_int_equal(look.op.lookup.ino.nr, 401);
	expect_progress(&rig);
	lp_test_ok(lpi_rig_wait(&rig, &list));
	assert_true(lp_store_list_next(&list.op, &pos, &item));
	assert_int_equal(item.ino.nr, 401);
	end(&rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_refused_flush_is_asked_again),
		cmocka_unit_test(test_refused_flush_is_asked_again_alone),
		cmocka_unit_test(test_relief_leaves_room),
		cmocka_unit_test(test_deferred_beyond_the_limit),
		cmocka_unit_test(test_reads_while_it_is_stalled),
	};
	return lp_test_main(tests, "store/block/write/stall");
}
