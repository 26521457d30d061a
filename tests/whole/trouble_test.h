/* SPDX-License-Identifier: Apache-2.0 */
/* What befalls a machine of the simulation, or what it does, of its own accord and seldom: here it
 * happens when a seed says so. Only *_test.c files and their headers include this.
 */
#ifndef LP_TESTS_WHOLE_TROUBLE_TEST_H
#define LP_TESTS_WHOLE_TROUBLE_TEST_H

#include "namespace/shard/ns_sim_test.h"
#include "store/shard/shard_impl.h"

#define LPI_WHOLE_FLUSH_TURNS 3000u /* no flush of an index takes as many */

static inline void lpi_whole_turns(struct lpi_ns_sim *sim, uint32_t cnt)
{
	for (uint32_t i = 0; i < cnt; i++)
		(void)lpi_ns_sim_turn(sim);
}

static inline struct lp_shard *lpi_whole_shard(const struct lpi_ns_sim *sim, uint32_t idx)
{
	return lpi_block_of(sim->hand[idx].store)->shard;
}

/* --- Upkeep ----------------------------------------------------------------------------------- */

/* As when a log is half full: nothing is owed to the index, and it flushes, with all records of
 * the space. */
static inline void lpi_whole_persist(struct lpi_ns_sim *sim)
{
	for (uint32_t i = 0; i < sim->shard_cnt; i++) {
		struct lp_shard *shard = lpi_whole_shard(sim, i);
		(void)lpi_shard_checkpoint_some(shard); /* a part of them may do as well */
		lp_commit_pay(lp_shard_commit(shard));
	}
	lpi_whole_turns(sim, 20);
	for (uint32_t i = 0; i < sim->shard_cnt; i++)
		lpi_shard_flush_index(lpi_whole_shard(sim, i));
	lpi_whole_turns(sim, 30);
}

/* As when nobody asks for anything: caches and pools give back what they have. */
static inline void lpi_whole_rest(struct lpi_ns_sim *sim)
{
	for (uint32_t i = 0; i < sim->shard_cnt; i++) {
		struct lp_shard *shard = lpi_whole_shard(sim, i);
		lp_ns_rest(sim->ns[i]);
		(void)lp_store_rest(sim->hand[i].store);
		lp_shard_rest(shard, lp_shard_durable_seq(shard) % 2 == 0);
	}
	lpi_whole_turns(sim, 10);
}

/* As when a log has no room: a frame that says where it begins, and nothing else. */
static inline void lpi_whole_trim(struct lpi_ns_sim *sim)
{
	lpi_whole_turns(sim, 20);
	for (uint32_t i = 0; i < sim->shard_cnt; i++) {
		struct lp_shard *shard = lpi_whole_shard(sim, i);
		lpi_shard_trim(shard);
		lp_commit_trim(lp_shard_commit(shard));
	}
	lpi_whole_turns(sim, 10);
}

/* --- An opening that goes wrong --------------------------------------------------------------- */

/* All is opened, while a flush of somebody else fails (rule L7), most often just before one of the
 * opening's own ends: it is refused, or it is as good as if it had not been. Then the machine is
 * switched off, or only the process is killed. */
static inline void lpi_whole_disturb(struct lpi_ns_sim *sim, uint64_t seed)
{
	struct lp_prng prng;
	lp_prng_init(&prng, seed);
	bool is_flush = lp_prng_chance(&prng, 3, 4);
	const struct lp_sim_rule rule = {
		.fault = LP_SIM_FOREIGN,
		.opcode_mask = is_flush ? LP_SIM_OP(LP_BDEV_FLUSH) : 0,
		.skip_cnt = (uint32_t)lp_prng_below(&prng, is_flush ? 16 : 120),
		.fire_cnt = 1};
	(void)lp_sim_rule_add(lp_sim_of(sim->bdev), &rule);
	int err = lpi_ns_sim_try_open(sim);
	assert_true(err == 0 || err == -EIO);
	if (err == 0) {
		lpi_whole_turns(sim, 30);
		(void)lpi_ns_sim_close(sim, true); /* it may have failed meanwhile */
	}
	lp_sim_rules_clear(lp_sim_of(sim->bdev));
	if (lp_prng_chance(&prng, 1, 2)) {
		struct lp_bdev *left = lp_sim_power_cut(lp_sim_of(sim->bdev), seed);
		lp_bdev_close(sim->bdev);
		sim->bdev = left;
	}
}

/* --- What must go on -------------------------------------------------------------------------- */

static inline void lpi_whole_flush(struct lpi_ns_sim *sim, uint32_t shard_idx)
{
	struct lp_shard *shard = lpi_whole_shard(sim, shard_idx);
	uint64_t seq = lp_commit_inserted_seq(lp_shard_commit(shard));
	for (uint32_t i = 0; shard->persisted_seq < seq; i++) {
		assert_true(i < LPI_WHOLE_FLUSH_TURNS);
		lpi_shard_flush_index(shard);
		(void)lpi_ns_sim_turn(sim);
	}
}

/* The log of each shard can be had again: what is put is persisted when that is asked for, each
 * time. Nothing is different afterwards. */
static inline void lpi_whole_check_room(struct lpi_ns_sim *sim)
{
	static const char name[] = "Sroom";
	for (uint32_t i = 0; i < sim->shard_cnt; i++) {
		struct lp_change change = {.type = LP_CHANGE_RECORD};
		change.named.name = (struct lp_bytes){name, sizeof(name) - 1};
		lpi_shard_flush_index(lpi_whole_shard(sim, i));
		lpi_whole_turns(sim, 20);
		for (uint32_t round = 0; round < 2; round++) {
			change.named.value =
				(struct lp_bytes){round == 0 ? name : NULL, round == 0 ? 1 : 0};
			lp_test_ok(lpi_hand_change(&sim->hand[i], change));
			lpi_whole_flush(sim, i);
		}
	}
}

#endif
