/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: what was acknowledged is there after a power cut, groups are there wholly or not at all and
 * in order (P1, P2, store I5), the index never persists what the log has not (store I3, rule L4),
 * and after a failed frame nothing is acknowledged (rule L7). What is owed to the index is not lost
 * with the frames that the log forgets (rule L9).
 * Method: random transactions; the power is cut at a random event, everything is recovered as a
 * store would, and compared with a model. */
#include "store/commit/pipeline_test.h"

/* A lazy run lets the log fill up and the index stall before it does anything about it: batches
 * wait then, and still enter in sequence, none left out (rule L5). Not where something is owed:
 * what is in the group that collects may have to be in a frame before the log can be trimmed. */
static void run_steps(uint32_t steps)
{
	bool lazy = !lpi_pipe.owes && lp_prng_chance(&lpi_pipe.prng, 1, 2);
	for (uint32_t i = 0; i < steps; i++) {
		uint64_t dice = lp_prng_below(&lpi_pipe.prng, 40);
		if (dice < 14)
			(void)lpi_pipe_begin_txn();
		else if (dice == 14 || (lazy && dice < 17))
			lpi_pipe_flush_index();
		else if (dice == 18 && lp_prng_chance(&lpi_pipe.prng, 1, 8))
			lp_commit_pay(lpi_pipe.commit);
		else if (dice == 17 && !lp_prng_chance(&lpi_pipe.prng, lazy ? 3 : 0, 4))
			lpi_pipe_run_index_jobs();
		else
			(void)lp_reactor_turn(lpi_pipe.sim.reactor, true);
		if (lazy ? lp_log_is_full(lpi_pipe.log) : lp_log_is_half(lpi_pipe.log)) {
			lp_commit_pay(lpi_pipe.commit);
			lpi_pipe_flush_index();
			if (!lazy || lp_prng_chance(&lpi_pipe.prng, 1, 10))
				lpi_pipe_run_index_jobs();
			lp_writeback_hurry(lpi_pipe.writeback, UINT64_MAX);
		}
	}
}

/* --- Judging ---------------------------------------------------------------------------------- */

/* The recovered state is that after transaction `last`, which is not before the last that was
 * acknowledged. */
static void judge(const struct lpi_pipe_replay *replay)
{
	uint64_t keys[LPI_PIPE_KEYS] = {0};
	uint64_t owned[LPI_PIPE_OWNED] = {0};
	int blocks[LPI_PIPE_BLOCKS] = {0};
	struct lp_key key;
	uint64_t last = lpi_pipe_read_key(LPI_PIPE_KEY_LAST);
	assert_true(lpi_pipe_read_key(LPI_PIPE_KEY_DIRTY) == last);
	assert_true(last <= lpi_pipe.txn_cnt);
	for (uint32_t t = 1; t <= lpi_pipe.txn_cnt; t++) {
		assert_true(t <= last || !lpi_pipe.txns[t].acked);
		for (uint32_t i = 0; t <= last && i < LPI_PIPE_KEYS; i++)
			keys[i] =
				lpi_pipe.txns[t].keys[i] != 0 ? lpi_pipe.txns[t].keys[i] : keys[i];
		for (uint32_t i = 0; t <= last && i < LPI_PIPE_OWNED; i++)
			owned[i] = lpi_pipe.txns[t].owned[i] ? t : owned[i];
		for (uint32_t i = 0; t <= last && i < LPI_PIPE_BLOCKS; i++)
			blocks[i] = lpi_pipe.txns[t].blocks[i] != 0 ? lpi_pipe.txns[t].blocks[i]
								    : blocks[i];
	}
	for (uint32_t i = 0; i < LPI_PIPE_KEYS; i++)
		assert_true(lpi_pipe_read_key(i) == keys[i]);
	for (uint32_t i = 0; i < LPI_PIPE_OWNED; i++)
		assert_true(lpi_pipe_read_u64(lpi_pipe_owned_key(&key, i)) ==
			    owned[i]); /* rule L9 */
	uint64_t sectors = 4096 / lp_bdev_caps(lpi_pipe.sim.bdev)->block_bytes;
	for (uint32_t i = 0; i < LPI_PIPE_BLOCKS; i++) {
		if (blocks[i] == 0)
			continue;
		if (replay->blocks[i].seq >= replay->recovery.oldest_needed &&
		    replay->blocks[i].tag != 0) {
			assert_int_equal(replay->blocks[i].tag, blocks[i]);
			continue;
		}
		for (uint64_t s = 0; s < sectors; s++)
			assert_int_equal(lpi_bench_peek(lpi_pipe.sim.bdev,
							(LPI_PIPE_FIRST_BLOCK + i) * sectors + s),
					 blocks[i]);
	}
}

/* What a reader of the living store finds: first in the overlay, then in the index (rule W1). */
static void judge_live(void)
{
	for (uint64_t i = 0; i < LPI_PIPE_KEYS; i++) {
		uint64_t want = 0;
		for (uint32_t t = 1; t <= lpi_pipe.txn_cnt; t++)
			want = lpi_pipe.txns[t].keys[i] != 0 ? lpi_pipe.txns[t].keys[i] : want;
		uint8_t key[9] = {'K'};
		const struct lp_overlay_entry *entry = NULL;
		lp_put_be64(key + 1, i);
		enum lp_overlay_result found =
			lp_overlay_find(lpi_pipe.overlay, key, sizeof(key), &entry);
		assert_true(found != LP_OVERLAY_DELETED);
		assert_true((found == LP_OVERLAY_FOUND ? lp_get_le64(entry->value)
						       : lpi_pipe_read_key(i)) == want);
	}
}

/* The power goes now, for the device and for the files of the index. The old parts then see a
 * dead device, and are taken down in an orderly way: nothing of that is left. */
static void cut_and_recover(uint64_t seed, struct lpi_pipe_replay *replay)
{
	static const struct lp_sim_rule vanish = {.fault = LP_SIM_VANISH};
	struct lp_bdev *left = NULL;
	uint64_t events = lp_sim_event_count(lpi_pipe.sim.sim);
	if (events == lp_sim_event_first(lpi_pipe.sim.sim))
		return;
	lp_test_ok(lp_sim_image_at(lpi_pipe.sim.sim, events - 1, NULL, seed, &left));
	lpi_pipe.is_cut = true;
	lp_kvfs_mem_cut_after(lpi_pipe.kv.mem, 0);
	(void)lp_sim_rule_add(lpi_pipe.sim.sim, &vanish);
	while (lp_kv_sim_run_one(lpi_pipe.kv.kv))
		continue;
	lpi_pipe_stop();
	lpi_bench_swap(&lpi_pipe.sim, left);
	lp_test_kv_crash(&lpi_pipe.kv, lp_prng_chance(&lpi_pipe.prng, 1, 2));
	lpi_pipe_recover(replay);
	judge(replay);
}

/* What a store does before it serves again: payloads go to their place. */
static void resume(const struct lpi_pipe_replay *replay)
{
	_Alignas(4096) static uint8_t block[4096];
	for (uint32_t i = 0; i < LPI_PIPE_BLOCKS; i++) {
		if (replay->blocks[i].tag == 0 ||
		    replay->blocks[i].seq < replay->recovery.oldest_needed)
			continue;
		memset(block, replay->blocks[i].tag, sizeof(block));
		lp_test_ok(lp_bdev_write_sync(lpi_pipe.sim.bdev, block, sizeof(block),
					      (LPI_PIPE_FIRST_BLOCK + i) * UINT64_C(4096), true));
	}
	lpi_pipe.txn_cnt = (uint32_t)lpi_pipe_read_key(LPI_PIPE_KEY_LAST);
	for (uint32_t t = 1; t <= lpi_pipe.txn_cnt; t++)
		lpi_pipe.txns[t].acked = true;
	lpi_pipe.is_cut = false;
	lpi_pipe.failed = 0;
	lpi_pipe_start();
}

/* --- Power cuts ------------------------------------------------------------------------------- */

static void test_power_cuts(void **state)
{
	(void)state;
	struct {
		uint64_t retries;
		uint64_t trims;
		uint64_t full;
		uint64_t numbered;
		uint64_t owed;
		uint64_t paid;
	} seen = {0};
	static struct lpi_pipe_replay replay;
	for (uint64_t seed = 1; seed <= 60; seed++) {
		lpi_pipe_hold_ns = seed % 3 == 0 ? LP_NS_PER_MS : 0;
		lpi_pipe_init(seed, seed % 2 == 0 ? 512 : 4096);
		lpi_pipe.owes = seed % 4 < 2;
		for (int round = 0; round < 4; round++) {
			run_steps((uint32_t)lp_prng_between(&lpi_pipe.prng, 20, 300));
			judge_live();
			seen.retries += lp_commit_stats(lpi_pipe.commit)->insert_retries;
			seen.numbered += lpi_pipe.numbered_cnt;
			seen.trims += lp_commit_stats(lpi_pipe.commit)->trims;
			seen.full += lp_log_is_full(lpi_pipe.log);
			seen.owed += lp_commit_stats(lpi_pipe.commit)->owed;
			seen.paid += lp_commit_stats(lpi_pipe.commit)->paid;
			cut_and_recover(seed * 10 + (uint64_t)round, &replay);
			resume(&replay);
		}
		run_steps(300);
		lpi_pipe_fini(); /* an orderly stop: all of it comes to its end */
	}
	lpi_pipe_hold_ns = 0;
	/* The runs came where they were meant to come. */
	assert_true(seen.retries > 0 && seen.trims > 0 && seen.full > 0);
	assert_true(seen.numbered > 0);
	assert_true(seen.owed > 0 && seen.paid > 0);
}

/* A frame that cannot be written: everything from it on is refused, and after a restart the state
 * is again one of those that may be (rule L7). */
static void test_failed_frame(void **state)
{
	(void)state;
	static struct lpi_pipe_replay replay;
	for (uint64_t seed = 1; seed <= 30; seed++) {
		const struct lp_sim_rule rule = {
			.fault = LP_SIM_EIO,
			.opcode_mask = LP_SIM_OP(LP_BDEV_WRITE_THROUGH),
			.skip_cnt = (uint32_t)(seed % 7),
			.fire_cnt = 1,
		};
		lpi_pipe_init(seed, 4096);
		(void)lp_sim_rule_add(lpi_pipe.sim.sim, &rule);
		run_steps(200);
		assert_int_equal(lpi_pipe.failed, -EIO);
		assert_int_equal(lp_commit_error(lpi_pipe.commit), -EIO);
		/* RocksDB may not persist what the log does not have (rule L4). */
		uint64_t durable_seq = lp_log_durable_seq(lpi_pipe.log);
		lpi_pipe_flush_index();
		while (lp_kv_sim_run_one(lpi_pipe.kv.kv))
			continue;
		uint64_t whole = 0;
		assert_true(lpi_pipe_read_applied(true, &whole) <= durable_seq);
		cut_and_recover(seed, &replay);
		resume(&replay);
		lpi_pipe_fini();
	}
}

/* A transaction that changes the owner's first record. */
static const struct lpi_pipe_txn *change_owned(void)
{
	struct lpi_pipe_txn *txn = &lpi_pipe.txns[++lpi_pipe.txn_cnt];
	assert_true(lpi_pipe.txn_cnt < LPI_PIPE_TXNS_MAX);
	memset(txn, 0, sizeof(*txn));
	txn->owned[0] = true;
	lpi_pipe.owned[0].value = lpi_pipe.txn_cnt;
	lpi_pipe.owned[0].is_dirty = true;
	lpi_pipe_put_u64(LPI_PIPE_KEY_LAST, lpi_pipe.txn_cnt);
	lp_commit_dirty(lpi_pipe.commit, &lpi_pipe.dirty);
	txn->waiter.told = lpi_pipe_txn_told;
	lp_commit_wait(lpi_pipe.commit, &txn->waiter);
	for (int i = 0; i < 16; i++)
		(void)lp_reactor_turn(lpi_pipe.sim.reactor, true);
	return txn;
}

/* What is owed stands before the rest of a frame. So of a group that has been sealed, and waits for
 * the log, nothing is owed any more: a replay would end with the older record (rule L9). */
static void test_changed_again_while_sealed(void **state)
{
	(void)state;
	static struct lpi_pipe_replay replay;
	for (uint64_t seed = 1; seed <= 8; seed++) {
		uint64_t encoded = 0;
		lpi_pipe_init(seed, 4096);
		do {
			encoded = lpi_pipe.encode_cnt;
		} while (change_owned()->acked);
		assert_true(lpi_pipe.encode_cnt > encoded); /* the log is full */
		lpi_pipe.owes = true;
		const struct lpi_pipe_txn *second = change_owned();
		assert_false(second->acked);
		lpi_pipe_make_room();
		while (!second->acked)
			assert_int_not_equal(lp_reactor_turn(lpi_pipe.sim.reactor, true), 0);
		cut_and_recover(seed, &replay);
		resume(&replay);
		lpi_pipe_fini();
	}
}

/* Nor is anything of it paid: what it owes is in no frame, and not dirty any more (store I2). */
static void test_not_paid_while_sealed(void **state)
{
	(void)state;
	static struct lpi_pipe_replay replay;
	uint32_t owed_cnt = 0;
	for (uint64_t seed = 1; seed <= 8; seed++) {
		struct lp_key key;
		lpi_pipe_init(seed, 4096);
		assert_true(change_owned()->acked); /* the index has it now */
		lpi_pipe.owes = true;
		while (change_owned()->acked)
			continue;
		owed_cnt += lpi_pipe.owned[0].is_owed;
		lp_commit_pay(lpi_pipe.commit);
		for (int i = 0; i < 16; i++)
			(void)lp_reactor_turn(lpi_pipe.sim.reactor, true);
		assert_true(lpi_pipe_read_u64(lpi_pipe_owned_key(&key, 0)) < lpi_pipe.txn_cnt);
		lpi_pipe_flush_index();
		lpi_pipe_run_index_jobs();
		cut_and_recover(seed, &replay);
		resume(&replay);
		lpi_pipe_fini();
	}
	assert_true(owed_cnt > 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_power_cuts),
		cmocka_unit_test(test_changed_again_while_sealed),
		cmocka_unit_test(test_not_paid_while_sealed),
		cmocka_unit_test(test_failed_frame),
	};
	return lp_test_main(tests, "store/commit/crash");
}
