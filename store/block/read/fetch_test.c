/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: what a cold index is asked for is read by the reactor itself and no helper is woken; a read
 * that fails or brings damaged blocks is made once more and then told; neighbours that are asked
 * for together take one read; tables that are replaced
 * while they are read change no answer (P4; rules L1, L8).
 * Method: inodes of different owners on a simulated device; a cache of the index that keeps
 * nothing; reads that fail, rot and take long, and a compaction while many of them are under way.
 */
#include "store/block/block_sim_test.h"

#define INODES   600u
#define FIRST    100u
#define TOGETHER 8u
/* In a few blocks, and fewer than may share a read. */
#define NEIGHBOURS 32u

static struct lp_ino ino_of(uint32_t i)
{
	return (struct lp_ino){FIRST + i};
}

static uint32_t owner_of(uint32_t i)
{
	return 1000003 * (i + 1);
}

static struct lp_kv *kv_of(const struct lpi_store_rig *rig)
{
	return lpi_block_of(rig->hand.store)->kv;
}

static uint64_t index_reads(const struct lpi_store_rig *rig)
{
	struct lp_store_stats stats;
	lp_store_read_stats(rig->hand.store, &stats);
	return stats.index_reads;
}

static uint64_t works(const struct lpi_store_rig *rig)
{
	struct lp_workers_stats stats;
	lp_workers_read_stats(rig->workers, &stats);
	return stats.submitted;
}

static int stat_one(const struct lpi_store_rig *rig, uint32_t i)
{
	struct lp_attrs attrs;
	int err = lpi_hand_stat(&rig->hand, ino_of(i), &attrs);
	if (err == 0)
		assert_int_equal(attrs.uid, owner_of(i));
	return err;
}

static void make_one(const struct lpi_store_rig *rig, uint32_t i)
{
	const struct lp_attrs attrs = {
		.type = LP_INODE_TYPE_FILE, .mode = 0600, .nlink = 1, .uid = owner_of(i)};
	lp_test_ok(lpi_hand_change(&rig->hand, (struct lp_change){.type = LP_CHANGE_CREATE,
								  .ino = ino_of(i),
								  .inode = {.attrs = &attrs}}));
}

/* All inodes in tables, nothing of them in memory; what the tables need to be read at all is. */
static void start(struct lpi_store_rig *rig)
{
	lpi_store_rig_start(rig, 3); /* with little memory: nodes do not stay */
	for (uint32_t i = 0; i < INODES; i++)
		make_one(rig, i);
	lp_test_ok(lpi_store_rig_close(rig, false));
	lp_test_ok(lpi_store_rig_open(rig));
	lp_kv_set_cache_bytes(kv_of(rig), 0);
	for (uint32_t i = 0; i < INODES; i++)
		lp_test_ok(stat_one(rig, i));
}

static void stop(struct lpi_store_rig *rig)
{
	lp_test_ok(lpi_store_rig_close(rig, false));
	lpi_store_rig_fini(rig);
}

static void test_no_helper_is_woken(void **state)
{
	(void)state;
	struct lpi_store_rig rig;
	start(&rig);
	uint64_t reads_before = index_reads(&rig);
	uint64_t works_before = works(&rig);
	for (uint32_t i = 0; i < INODES; i++)
		lp_test_ok(stat_one(&rig, i));
	lp_test_err(-ENOENT, stat_one(&rig, INODES)); /* the filters know */
	assert_int_equal(works(&rig), works_before);
	assert_int_equal(index_reads(&rig), reads_before + INODES);
	stop(&rig);
}

/* Nor by a store that is opened to be read only. */
static void test_read_only(void **state)
{
	(void)state;
	struct lpi_store_rig rig;
	start(&rig);
	lp_test_ok(lpi_store_rig_close(&rig, false));
	rig.read_only = true;
	lp_test_ok(lpi_store_rig_open(&rig));
	lp_kv_set_cache_bytes(kv_of(&rig), 0);
	lp_test_ok(stat_one(&rig, 0));
	uint64_t reads_before = index_reads(&rig);
	uint64_t works_before = works(&rig);
	for (uint32_t i = 1; i < INODES; i++)
		lp_test_ok(stat_one(&rig, i));
	assert_int_equal(works(&rig), works_before);
	assert_true(index_reads(&rig) > reads_before + INODES / 2);
	stop(&rig);
}

/* A fault of the next reads, one or all (0): what it did to the answer. */
static int stat_with(struct lpi_store_rig *rig, enum lp_sim_fault fault, uint32_t fire_cnt,
		     uint64_t arg)
{
	const struct lp_sim_rule rule = {.fault = fault,
					 .opcode_mask = LP_SIM_OP(LP_BDEV_READ),
					 .fire_cnt = fire_cnt,
					 .arg = arg};
	uint32_t idx = lp_sim_rule_add(lp_sim_of(rig->bdev), &rule);
	uint64_t works_before = works(rig);
	int err = stat_one(rig, INODES / 2);
	assert_true(lp_sim_rule_fired(lp_sim_of(rig->bdev), idx) > 0);
	assert_int_equal(works(rig), works_before + 1); /* a helper looked once more */
	lp_sim_rules_clear(lp_sim_of(rig->bdev));
	return err;
}

static void test_read_fails(void **state)
{
	(void)state;
	struct lpi_store_rig rig;
	start(&rig);
	lp_test_ok(stat_with(&rig, LP_SIM_EIO, 1, 0));
	lp_test_err(-EIO, stat_with(&rig, LP_SIM_EIO, 0, 0));
	lp_test_ok(stat_one(&rig, INODES / 2));
	lp_test_err(-EUCLEAN, stat_with(&rig, LP_SIM_ROT, 1, 3));
	lp_test_ok(stat_one(&rig, 0)); /* in another block */
	lp_test_ok(lpi_store_rig_close(&rig, true));
	lpi_store_rig_fini(&rig);
}

static void test_tables_are_replaced_meanwhile(void **state)
{
	(void)state;
	const struct lp_kv_bytes all = {0};
	const struct lp_sim_rule slow = {.fault = LP_SIM_SLOW,
					 .opcode_mask = LP_SIM_OP(LP_BDEV_READ),
					 .fire_cnt = TOGETHER,
					 .arg = LP_NS_PER_S};
	struct lp_store_op ops[TOGETHER];
	struct lpi_store_rig rig;
	start(&rig);
	/* Another table that overlaps: all are rewritten. */
	make_one(&rig, INODES);
	lp_test_ok(lp_kv_flush_wait(kv_of(&rig)));
	uint64_t before = index_reads(&rig);
	lp_sim_rule_add(lp_sim_of(rig.bdev), &slow);
	for (uint32_t i = 0; i < TOGETHER; i++) {
		ops[i] = (struct lp_store_op){.opcode = LP_STORE_STAT,
					      .stat = {.ino = ino_of(i * 70)},
					      .complete = lpi_hand_complete};
		lp_store_submit(rig.hand.store, &ops[i]);
	}
	lpi_hand_done = NULL;
	while (index_reads(&rig) < before + TOGETHER)
		(void)lp_reactor_turn(rig.hand.reactor, false);
	assert_null(lpi_hand_done);
	lp_test_ok(lp_kv_compact(kv_of(&rig), all, all));
	while (lp_kv_sim_run_one(kv_of(&rig)))
		continue;
	/* The last one, and all before it. */
	while (lp_bdev_inflight(
		       lp_shard_index_chans(lpi_block_of(rig.hand.store)->shard)->chans[0]) > 0)
		lpi_store_rig_turn(&rig.hand);
	for (uint32_t i = 0; i < TOGETHER; i++) {
		lp_test_ok(ops[i].result);
		assert_int_equal(ops[i].stat.attrs.uid, owner_of(i * 70));
	}
	/* What had been read was of tables that are gone. */
	assert_int_equal(index_reads(&rig), before + 2 * (uint64_t)TOGETHER);
	stop(&rig);
}

static uint32_t together_done;

static void one_of_many_done(struct lp_store_op *op)
{
	assert_int_equal(op->opcode, LP_STORE_STAT);
	together_done++;
}

/* The first inodes, at the same time. */
static void stat_together(struct lpi_store_rig *rig, uint32_t cnt)
{
	struct lp_store_op ops[NEIGHBOURS];
	assert_true(cnt <= NEIGHBOURS);
	together_done = 0;
	for (uint32_t i = 0; i < cnt; i++) {
		ops[i] = (struct lp_store_op){.opcode = LP_STORE_STAT,
					      .stat = {.ino = ino_of(i)},
					      .complete = one_of_many_done};
		lp_store_submit(rig->hand.store, &ops[i]);
	}
	while (together_done < cnt)
		lpi_store_rig_turn(&rig->hand);
	for (uint32_t i = 0; i < cnt; i++) {
		lp_test_ok(ops[i].result);
		assert_int_equal(ops[i].stat.attrs.uid, owner_of(i));
	}
}

/* What is made together lies in one block, and is asked for together: so a directory's attributes
 * are. Fails when somebody reads for himself what another one is reading. */
static void test_neighbours_share_a_read(void **state)
{
	(void)state;
	struct lpi_store_rig rig;
	start(&rig);
	uint64_t before = index_reads(&rig);
	stat_together(&rig, NEIGHBOURS);
	assert_in_range(index_reads(&rig) - before, 1, NEIGHBOURS / 8);
	stop(&rig);
}

/* Whoever shared a read that failed is told by a helper, as if he had read for himself. */
static void test_shared_read_fails(void **state)
{
	(void)state;
	const struct lp_sim_rule rule = {
		.fault = LP_SIM_EIO, .opcode_mask = LP_SIM_OP(LP_BDEV_READ), .fire_cnt = 1};
	struct lpi_store_rig rig;
	start(&rig);
	uint64_t reads_before = index_reads(&rig);
	uint64_t works_before = works(&rig);
	lp_sim_rule_add(lp_sim_of(rig.bdev), &rule);
	stat_together(&rig, 2);
	lp_sim_rules_clear(lp_sim_of(rig.bdev));
	assert_int_equal(index_reads(&rig), reads_before + 1);
	assert_int_equal(works(&rig), works_before + 2);
	stop(&rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_neighbours_share_a_read),
		cmocka_unit_test(test_shared_read_fails),
		cmocka_unit_test(test_no_helper_is_woken),
		cmocka_unit_test(test_read_only),
		cmocka_unit_test(test_read_fails),
		cmocka_unit_test(test_tables_are_replaced_meanwhile),
	};
	return lp_test_main(tests, "store/block/read/fetch");
}
