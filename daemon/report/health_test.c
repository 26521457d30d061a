/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: a failed store makes the daemon read-only (rule L7), and the report names the shard. A
 * silent thread or device degrades the daemon, after the configured time and until it answers
 * again.
 * Method: a simulated clock, a simulated device, looks made by hand. */
#include "base/testing/test.h"

#include "daemon/report/health.h"
#include "store/device/sim/bdev_sim.h"

#define TIMEOUT_NS (5 * LP_NS_PER_S)

struct rig {
	struct lp_clock_sim sim;
	struct lp_reactor *reactor;
	struct lp_bdev *bdev[LPI_HEALTH_DEVICES];
	struct lpi_health health;
};

static void rig_start(struct rig *rig)
{
	memset(rig, 0, sizeof(*rig));
	lp_clock_sim_init(&rig->sim, LP_NS_PER_S, 0);
	const struct lp_reactor_options options = {
		.name = "test", .clock = &rig->sim.clock, .sim = &rig->sim};
	lp_test_ok(lp_reactor_new(&options, &rig->reactor));
	lp_test_ok(lp_reactor_start(rig->reactor));
	const struct lp_sim_options sim = {.profile = lp_sim_preset(LP_SIM_PROTECTED),
					   .size_bytes = UINT64_C(1) << 20,
					   .seed = 1};
	lp_test_ok(lp_bdev_open_sim(&sim, &rig->bdev[0]));
	lp_test_ok(lpi_health_init(&rig->health, rig->reactor, rig->bdev));
}

static void rig_stop(struct rig *rig)
{
	while (!lpi_health_is_idle(&rig->health))
		(void)lp_reactor_turn(rig->reactor, true);
	lpi_health_fini(&rig->health);
	lp_bdev_close(rig->bdev[0]);
	lp_reactor_free(rig->reactor);
}

static void pass(struct rig *rig, uint64_t ns)
{
	lp_clock_sim_advance_to(&rig->sim, rig->sim.now_ns + ns);
	(void)lp_reactor_turn(rig->reactor, false);
}

static struct lpi_look look_of(uint32_t shard_idx, enum lp_store_state state)
{
	struct lpi_look look = {.shard_idx = shard_idx, .store = {.state = state}};
	if (state != LP_STORE_OK)
		(void)snprintf(look.store.reason, sizeof(look.store.reason), "disk at 4096: EIO");
	return look;
}

static void test_stores(void **state)
{
	(void)state;
	static const struct {
		enum lp_store_state store;
		enum lpi_health_state state;
		const char *reason;
	} cases[] = {
		{LP_STORE_OK, LPI_HEALTH_OK, ""},
		{LP_STORE_DEGRADED, LPI_HEALTH_DEGRADED, "has a problem: disk at 4096: EIO"},
		{LP_STORE_REOPENING, LPI_HEALTH_READ_ONLY, "shard 3 cannot be changed any more"},
		{LP_STORE_READ_ONLY, LPI_HEALTH_READ_ONLY, "start again): disk at 4096: EIO"},
		{LP_STORE_DEAD, LPI_HEALTH_FAILED, "shard 3 can neither be changed nor read"},
	};
	struct rig rig;
	struct lpi_look looks[2] = {look_of(0, LP_STORE_OK), look_of(3, LP_STORE_OK)};
	const uint64_t asked_ns[2] = {0, 0};
	rig_start(&rig);
	lpi_health_judge(&rig.health, looks, asked_ns, 2, TIMEOUT_NS);
	assert_int_equal(LPI_HEALTH_OK, rig.health.state);
	/* All states of a store; the worst is reported. */
	for (size_t i = 0; i < LP_ARRAY_SIZE(cases); i++) {
		looks[0] = look_of(0, LP_STORE_OK);
		looks[1] = look_of(3, cases[i].store);
		lpi_health_judge(&rig.health, looks, asked_ns, 2, TIMEOUT_NS);
		assert_int_equal(cases[i].state, rig.health.state);
		assert_non_null(strstr(rig.health.reason, cases[i].reason));
		looks[0] = look_of(1, LP_STORE_DEGRADED);
		lpi_health_judge(&rig.health, looks, asked_ns, 2, TIMEOUT_NS);
		assert_int_equal(LP_MAX(cases[i].state, LPI_HEALTH_DEGRADED), rig.health.state);
	}
	looks[0] = look_of(0, LP_STORE_OK);
	looks[1] = look_of(3, LP_STORE_OK);
	lpi_health_judge(&rig.health, looks, asked_ns, 2, TIMEOUT_NS);
	assert_string_equal("ok", lpi_health_name(rig.health.state));
	assert_string_equal("", rig.health.reason);
	rig_stop(&rig);
}

/* The number of damaged objects is reported, and any other fault is worse. */
static void test_damaged(void **state)
{
	(void)state;
	struct rig rig;
	struct lpi_look looks[2] = {look_of(0, LP_STORE_OK), look_of(1, LP_STORE_OK)};
	const uint64_t asked_ns[2] = {0, 0};
	rig_start(&rig);
	looks[1].damaged = 1;
	lpi_health_judge(&rig.health, looks, asked_ns, 2, TIMEOUT_NS);
	assert_int_equal(LPI_HEALTH_DAMAGED, rig.health.state);
	assert_string_equal("damaged", lpi_health_name(rig.health.state));
	assert_string_equal("1 object is damaged (lapis scrub --list names it)", rig.health.reason);
	uint64_t since_ns = rig.health.since_ns;
	pass(&rig, LP_NS_PER_S);
	looks[0].damaged = 1024;
	looks[0].has_more_damaged = true;
	lpi_health_judge(&rig.health, looks, asked_ns, 2, TIMEOUT_NS);
	assert_non_null(strstr(rig.health.reason, "1025 or more objects are damaged"));
	assert_int_equal(since_ns, rig.health.since_ns);
	looks[0].store = look_of(0, LP_STORE_DEGRADED).store;
	lpi_health_judge(&rig.health, looks, asked_ns, 2, TIMEOUT_NS);
	assert_int_equal(LPI_HEALTH_DEGRADED, rig.health.state);
	looks[0] = look_of(0, LP_STORE_OK);
	looks[1] = look_of(1, LP_STORE_OK);
	lpi_health_judge(&rig.health, looks, asked_ns, 2, TIMEOUT_NS);
	assert_int_equal(LPI_HEALTH_OK, rig.health.state);
	rig_stop(&rig);
}

/* Rule B1: requests under way while nothing moves are reported after ten seconds, once, and until
 * something moves again. */
static void test_nothing_moves(void **state)
{
	(void)state;
	struct rig rig;
	struct lpi_look looks[2] = {look_of(0, LP_STORE_OK), look_of(1, LP_STORE_OK)};
	const uint64_t asked_ns[2] = {0, 0};
	rig_start(&rig);
	/* Nothing is under way, so nothing need move. */
	for (int i = 0; i < 30; i++) {
		pass(&rig, LP_NS_PER_S);
		lpi_health_judge(&rig.health, looks, asked_ns, 2, TIMEOUT_NS);
		assert_int_equal(LPI_HEALTH_OK, rig.health.state);
	}
	looks[0].under_way = 3;
	for (int i = 0; i < 30; i++) {
		/* A request on one thread may wait for work on the other. */
		looks[1].moved++;
		pass(&rig, LP_NS_PER_S);
		lpi_health_judge(&rig.health, looks, asked_ns, 2, TIMEOUT_NS);
		assert_int_equal(LPI_HEALTH_OK, rig.health.state);
	}
	for (int i = 1; i <= 20; i++) {
		pass(&rig, LP_NS_PER_S);
		lpi_health_judge(&rig.health, looks, asked_ns, 2, TIMEOUT_NS);
		assert_int_equal(i < 10 ? LPI_HEALTH_OK : LPI_HEALTH_DEGRADED, rig.health.state);
		assert_int_equal(lpi_health_still_ns(&rig.health), (uint64_t)i * LP_NS_PER_S);
	}
	assert_non_null(strstr(rig.health.reason, "lapis stuck"));
	looks[0].moved++;
	lpi_health_judge(&rig.health, looks, asked_ns, 2, TIMEOUT_NS);
	assert_int_equal(LPI_HEALTH_OK, rig.health.state);
	looks[0].under_way = 0;
	pass(&rig, 100 * LP_NS_PER_S);
	lpi_health_judge(&rig.health, looks, asked_ns, 2, TIMEOUT_NS);
	assert_int_equal(LPI_HEALTH_OK, rig.health.state);
	rig_stop(&rig);
}

/* Rule N1: changes that cannot be ended before the next start are reported, unless there is a worse
 * fault. */
static void test_stuck(void **state)
{
	(void)state;
	struct rig rig;
	struct lpi_look looks[2] = {look_of(0, LP_STORE_OK), look_of(1, LP_STORE_OK)};
	const uint64_t asked_ns[2] = {0, 0};
	rig_start(&rig);
	looks[1].stuck = 1;
	lpi_health_judge(&rig.health, looks, asked_ns, 2, TIMEOUT_NS);
	assert_int_equal(LPI_HEALTH_DEGRADED, rig.health.state);
	assert_non_null(strstr(rig.health.reason, "1 change over several shards cannot be ended"));
	looks[0].stuck = 2;
	lpi_health_judge(&rig.health, looks, asked_ns, 2, TIMEOUT_NS);
	assert_non_null(strstr(rig.health.reason, "3 changes over several shards"));
	looks[0].store = look_of(0, LP_STORE_READ_ONLY).store;
	lpi_health_judge(&rig.health, looks, asked_ns, 2, TIMEOUT_NS);
	assert_int_equal(LPI_HEALTH_READ_ONLY, rig.health.state);
	assert_non_null(strstr(rig.health.reason, "shard 0 cannot be changed any more"));
	rig_stop(&rig);
}

static void test_silent_thread(void **state)
{
	(void)state;
	struct rig rig;
	const struct lpi_look looks[2] = {{.shard_idx = 0}};
	rig_start(&rig);
	uint64_t asked_ns[2] = {0, lp_reactor_now_ns(rig.reactor)};
	pass(&rig, TIMEOUT_NS - 1);
	lpi_health_judge(&rig.health, looks, asked_ns, 2, TIMEOUT_NS);
	assert_int_equal(LPI_HEALTH_OK, rig.health.state);
	pass(&rig, 1);
	lpi_health_judge(&rig.health, looks, asked_ns, 2, TIMEOUT_NS);
	assert_int_equal(LPI_HEALTH_DEGRADED, rig.health.state);
	assert_string_equal("thread 1 does not answer", rig.health.reason);
	asked_ns[1] = 0;
	lpi_health_judge(&rig.health, looks, asked_ns, 2, TIMEOUT_NS);
	assert_int_equal(LPI_HEALTH_OK, rig.health.state);
	assert_string_equal("", rig.health.reason);
	rig_stop(&rig);
}

static void test_silent_device(void **state)
{
	(void)state;
	struct rig rig;
	const struct lpi_look looks[1] = {{.shard_idx = 0}};
	const uint64_t asked_ns[1] = {0};
	rig_start(&rig);
	lpi_health_ask(&rig.health);
	assert_false(lpi_health_is_idle(&rig.health));
	/* Time passes without the device's turn, so it does not answer. */
	rig.health.probes[0].asked_ns -= LP_MIN(rig.health.probes[0].asked_ns, TIMEOUT_NS);
	lpi_health_judge(&rig.health, looks, asked_ns, 1, LP_NS_PER_S);
	assert_int_equal(LPI_HEALTH_DEGRADED, rig.health.state);
	assert_non_null(strstr(rig.health.reason, "the device does not answer"));
	while (!lpi_health_is_idle(&rig.health))
		(void)lp_reactor_turn(rig.reactor, true);
	lpi_health_judge(&rig.health, looks, asked_ns, 1, LP_NS_PER_S);
	assert_int_equal(LPI_HEALTH_OK, rig.health.state);
	/* A device that answers with an error. */
	rig.health.probes[0].result = -EIO;
	lpi_health_judge(&rig.health, looks, asked_ns, 1, LP_NS_PER_S);
	assert_int_equal(LPI_HEALTH_DEGRADED, rig.health.state);
	assert_non_null(strstr(rig.health.reason, "cannot be read"));
	rig_stop(&rig);
}

struct write {
	struct lp_bdev_op op;
	bool has_ended;
};

static void ended(struct lp_bdev_op *op)
{
	LP_CONTAINER_OF(op, struct write, op)->has_ended = true;
}

/* Writes a block as a shard would; returns the result. */
static int write_block(struct rig *rig, uint64_t offset)
{
	struct lp_bdev_chan *chan = NULL;
	struct write write = {.op = {.complete = ended}};
	void *block = aligned_alloc(4096, 4096);
	assert_non_null(block);
	memset(block, 7, 4096);
	lp_test_ok(lp_bdev_attach(rig->bdev[0], rig->reactor, &chan));
	lp_bdev_op_prep(&write.op, LP_BDEV_WRITE, block, 4096, offset);
	lp_bdev_submit(chan, &write.op);
	while (!write.has_ended)
		(void)lp_reactor_turn(rig->reactor, true);
	lp_bdev_detach(chan);
	free(block);
	return write.op.result;
}

/* A device that fails one write, and none later, still needs an operator's look. */
static void test_failed_write(void **state)
{
	(void)state;
	struct rig rig;
	const struct lpi_look looks[1] = {{.shard_idx = 0}};
	const uint64_t asked_ns[1] = {0};
	const struct lp_sim_rule rule = {
		.fault = LP_SIM_EIO, .opcode_mask = LP_SIM_OP(LP_BDEV_WRITE), .fire_cnt = 1};
	rig_start(&rig);
	lp_test_ok(write_block(&rig, 4096));
	lpi_health_judge(&rig.health, looks, asked_ns, 1, TIMEOUT_NS);
	assert_int_equal(LPI_HEALTH_OK, rig.health.state);
	(void)lp_sim_rule_add(lp_sim_of(rig.bdev[0]), &rule);
	lp_test_err(-EIO, write_block(&rig, 8192));
	lp_test_ok(write_block(&rig, 8192));
	for (int i = 0; i < 2; i++) {
		lpi_health_judge(&rig.health, looks, asked_ns, 1, TIMEOUT_NS);
		assert_int_equal(LPI_HEALTH_DEGRADED, rig.health.state);
		assert_non_null(strstr(rig.health.reason, "a write of 4096 bytes at 8192 has "
							  "failed: Input/output error"));
	}
	rig_stop(&rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_stores),        cmocka_unit_test(test_stuck),
		cmocka_unit_test(test_silent_thread), cmocka_unit_test(test_silent_device),
		cmocka_unit_test(test_failed_write),  cmocka_unit_test(test_damaged),
		cmocka_unit_test(test_nothing_moves),
	};
	return lp_test_main(tests, "daemon/report/health");
}
