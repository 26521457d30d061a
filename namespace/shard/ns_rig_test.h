/* SPDX-License-Identifier: Apache-2.0 */
/* Test rig: a namespace of several shards on one thread, in simulated time.
 *
 * Stores are in memory. Operations are done one at a time, or submitted and waited for together.
 * Only *_test.c files include this.
 */
#ifndef LP_NAMESPACE_SHARD_NS_RIG_TEST_H
#define LP_NAMESPACE_SHARD_NS_RIG_TEST_H

#include "base/testing/test.h"

#include "namespace/change/ns_state.h"

#define LPI_NS_RIG_SHARDS_MAX 4u
#define LPI_NS_RIG_TURNS_MAX  1000000u
#define LPI_NS_RIG_BYTES(s)   ((struct lp_bytes){(s), sizeof(s) - 1})

struct lpi_ns_rig {
	uint32_t shard_cnt;
	struct lp_clock_sim clock;
	struct lp_reactor *reactor[LPI_NS_RIG_SHARDS_MAX];
	struct lp_bufs *bufs[LPI_NS_RIG_SHARDS_MAX];
	struct lp_store *store[LPI_NS_RIG_SHARDS_MAX];
	struct lp_ns *ns[LPI_NS_RIG_SHARDS_MAX];
	uint32_t ready_cnt;
	int ready_result;
	uint32_t stopped_cnt;
};

/* One turn of every shard. */
static inline uint32_t lpi_ns_rig_turn(struct lpi_ns_rig *rig)
{
	uint32_t did = 0;
	for (uint32_t i = 0; i < rig->shard_cnt; i++) {
		did += lp_store_sim_run_one(rig->store[i]) ? 1 : 0;
		did += lp_reactor_turn(rig->reactor[i], false);
	}
	/* Nothing to do now: time goes on to the next timer, of whomever. */
	for (uint32_t i = 0; did == 0 && i < rig->shard_cnt; i++)
		did += lp_reactor_turn(rig->reactor[i], true);
	return did;
}

static inline void lpi_ns_rig_ready(struct lp_ns *ns, int result, void *arg)
{
	struct lpi_ns_rig *rig = arg;
	(void)ns;
	rig->ready_cnt++;
	rig->ready_result = LP_MIN(rig->ready_result, result);
}

static inline void lpi_ns_rig_stopped(struct lp_ns *ns, void *arg)
{
	struct lpi_ns_rig *rig = arg;
	(void)ns;
	rig->stopped_cnt++;
}

/* Namespaces on the stores that there are. */
static inline int lpi_ns_rig_start(struct lpi_ns_rig *rig)
{
	rig->ready_cnt = 0;
	rig->ready_result = 0;
	for (uint32_t i = 0; i < rig->shard_cnt; i++) {
		const struct lp_ns_options options = {.reactor = rig->reactor[i],
						      .store = rig->store[i],
						      .bufs = rig->bufs[i],
						      .shard_idx = i,
						      .shard_cnt = rig->shard_cnt,
						      .ops_max = 64};
		lp_test_ok(lp_ns_open(&options, &rig->ns[i]));
	}
	for (uint32_t i = 0; i < rig->shard_cnt; i++)
		lp_ns_start(rig->ns[i], rig->ns, lpi_ns_rig_ready, rig);
	for (uint32_t i = 0; rig->ready_cnt < rig->shard_cnt; i++) {
		assert_true(i < LPI_NS_RIG_TURNS_MAX);
		(void)lpi_ns_rig_turn(rig);
	}
	return rig->ready_result;
}

static inline void lpi_ns_rig_stop(struct lpi_ns_rig *rig)
{
	rig->stopped_cnt = 0;
	for (uint32_t i = 0; i < rig->shard_cnt; i++)
		lp_ns_stop(rig->ns[i], lpi_ns_rig_stopped, rig);
	for (uint32_t i = 0; rig->stopped_cnt < rig->shard_cnt; i++) {
		assert_true(i < LPI_NS_RIG_TURNS_MAX);
		(void)lpi_ns_rig_turn(rig);
	}
	for (uint32_t i = 0; i < rig->shard_cnt; i++)
		lp_ns_close(rig->ns[i]);
}

static inline struct lpi_ns_rig *lpi_ns_rig_new(uint32_t shard_cnt)
{
	struct lpi_ns_rig *rig = calloc(1, sizeof(*rig));
	assert_non_null(rig);
	assert_true(shard_cnt <= LPI_NS_RIG_SHARDS_MAX);
	rig->shard_cnt = shard_cnt;
	lp_clock_sim_init(&rig->clock, LP_NS_PER_S, INT64_C(1700000000) * (int64_t)LP_NS_PER_S);
	for (uint32_t i = 0; i < shard_cnt; i++) {
		const struct lp_reactor_options reactor = {
			.name = "ns", .clock = &rig->clock.clock, .sim = &rig->clock};
		lp_test_ok(lp_reactor_new(&reactor, &rig->reactor[i]));
		lp_test_ok(lp_reactor_start(rig->reactor[i]));
		lp_test_ok(lp_bufs_new(UINT64_C(16) << 20, &rig->bufs[i]));
		const struct lp_store_options store = {
			.reactor = rig->reactor[i], .bufs = rig->bufs[i], .shard_idx = i};
		lp_test_ok(lp_store_open_mem(&store, &rig->store[i]));
	}
	lp_test_ok(lpi_ns_rig_start(rig));
	return rig;
}

/* Freeing the buffers asserts that all of them were given back. */
static inline void lpi_ns_rig_free(struct lpi_ns_rig *rig)
{
	lpi_ns_rig_stop(rig);
	for (uint32_t i = 0; i < rig->shard_cnt; i++) {
		lp_test_ok(lp_store_close(rig->store[i], false));
		lp_bufs_free(rig->bufs[i]);
		lp_reactor_free(rig->reactor[i]);
	}
	free(rig);
}

/* --- Operations ------------------------------------------------------------------------------- */

/* user of the operation: how many of those that are waited for are not done. */
struct lpi_ns_hand {
	struct lp_ns_op op;
	bool is_done;
};

static inline void lpi_ns_hand_done(struct lp_ns_op *op)
{
	LP_CONTAINER_OF(op, struct lpi_ns_hand, op)->is_done = true;
}

static inline void lpi_ns_rig_submit(struct lpi_ns_rig *rig, uint32_t shard_idx,
				     struct lpi_ns_hand *hand)
{
	hand->op.complete = lpi_ns_hand_done;
	hand->is_done = false;
	lp_ns_submit(rig->ns[shard_idx], &hand->op);
	assert_false(hand->is_done); /* never from inside a submit */
}

static inline int lpi_ns_rig_wait(struct lpi_ns_rig *rig, struct lpi_ns_hand *hand)
{
	for (uint32_t i = 0; !hand->is_done; i++) {
		assert_true(i < LPI_NS_RIG_TURNS_MAX);
		(void)lpi_ns_rig_turn(rig);
	}
	return hand->op.result;
}

static inline int lpi_ns_rig_do(struct lpi_ns_rig *rig, uint32_t shard_idx,
				struct lpi_ns_hand *hand)
{
	lpi_ns_rig_submit(rig, shard_idx, hand);
	return lpi_ns_rig_wait(rig, hand);
}

#endif
