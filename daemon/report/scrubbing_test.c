/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: a check of all data begins by itself when it is due, and not before, nor right after a
 * request stopped it. A check that the daemon's stop cuts short goes on at its place after the next
 * start. The time of the last whole check, and the damage found, are kept. Method: a store on a
 * simulated device, hours of simulated time. */
#include "store/block/block_sim_test.h"

#include "daemon/report/scrubbing.h"

#define HOUR_NS  (3600 * (uint64_t)LP_NS_PER_S)
#define HOURS    "5"
#define FIRST_NR 100u
#define INODES   3u

static uint8_t bytes[4 * LP_BLOCK_BYTES];

struct scene {
	struct lpi_store_rig rig;
	struct lpi_scrubbing scrubbing;
	bool has_stopped;
};

/* The store's record has not been read yet. */
static void begin_unread(struct scene *s, const char *rate)
{
	struct lp_config config;
	char why[LP_WHY_MAX];
	lp_config_init(&config);
	lp_test_ok(lp_config_set(&config, LP_OPT_SCRUB_INTERVAL, HOURS, why));
	lp_test_ok(lp_config_set(&config, LP_OPT_SCRUB_RATE, rate, why));
	lp_test_ok(lpi_scrubbing_begin(&s->scrubbing, s->rig.hand.reactor, s->rig.hand.store, 0));
	lpi_scrubbing_configure(&s->scrubbing, &config, 1);
}

static void begin(struct scene *s, const char *rate)
{
	begin_unread(s, rate);
	while (!s->scrubbing.is_known)
		lpi_hand_turn(&s->rig.hand);
}

static void stopped(void *arg)
{
	((struct scene *)arg)->has_stopped = true;
}

static void end(struct scene *s)
{
	s->has_stopped = false;
	lpi_scrubbing_stop(&s->scrubbing, stopped, s);
	while (!s->has_stopped)
		lpi_hand_turn(&s->rig.hand);
	lpi_scrubbing_fini(&s->scrubbing);
}

static void setup(struct scene *s)
{
	*s = (struct scene){.has_stopped = false};
	lpi_store_rig_start(&s->rig, 7);
	for (uint64_t nr = FIRST_NR; nr < FIRST_NR + INODES; nr++) {
		const struct lp_attrs attrs = {
			.type = LP_INODE_TYPE_FILE, .mode = 0600, .nlink = 1};
		const struct lp_change create = {
			.type = LP_CHANGE_CREATE, .ino = {nr}, .inode = {.attrs = &attrs}};
		lp_test_ok(lpi_hand_change(&s->rig.hand, create));
		lp_test_ok(
			lpi_hand_write(&s->rig.hand, (struct lp_ino){nr}, 0, bytes, sizeof(bytes)));
	}
	begin(s, "0");
}

static void teardown(struct scene *s)
{
	end(s);
	lp_test_ok(lpi_store_rig_close(&s->rig, false));
	lpi_store_rig_fini(&s->rig);
}

/* Time passes, then the daemon looks. */
static void pass(struct scene *s, uint64_t ns)
{
	lp_clock_sim_advance_to(&s->rig.clock, s->rig.clock.now_ns + ns);
	(void)lp_reactor_turn(s->rig.hand.reactor, false);
	lpi_scrubbing_look(&s->scrubbing);
}

static struct lpi_scrub_report report(const struct scene *s)
{
	struct lpi_scrub_report ret;
	lpi_scrubbing_report(&s->scrubbing, &ret);
	return ret;
}

static void wait_for_end(struct scene *s)
{
	while (!lp_scrub_is_idle(s->scrubbing.scrub) || s->scrubbing.is_asking)
		lpi_hand_turn(&s->rig.hand);
}

static void test_interval(void **state)
{
	(void)state;
	struct scene s;
	setup(&s);
	for (int round = 0; round < 3; round++) {
		pass(&s, 5 * HOUR_NS - LP_NS_PER_S);
		assert_false(report(&s).stats.is_running);
		assert_true(report(&s).next_ns <= LP_NS_PER_S);
		pass(&s, LP_NS_PER_S);
		assert_true(report(&s).stats.is_running);
		wait_for_end(&s);
		assert_true(report(&s).stats.is_whole);
		assert_int_equal(report(&s).stats.objects, INODES);
		assert_int_equal(report(&s).stats.sum.passes, round + 1);
		assert_true(report(&s).whole_ns >= report(&s).stats.ended_ns);
	}
	teardown(&s);
}

/* A due check is stopped. */
static void test_stopped(void **state)
{
	(void)state;
	struct scene s;
	setup(&s);
	pass(&s, 5 * HOUR_NS);
	assert_true(report(&s).stats.is_running);
	lp_test_ok(lpi_scrubbing_ask(&s.scrubbing, "stop"));
	wait_for_end(&s);
	assert_false(report(&s).stats.is_whole);
	assert_int_equal(report(&s).whole_ns, 0);
	for (int i = 0; i < 4; i++) {
		pass(&s, HOUR_NS);
		assert_false(report(&s).stats.is_running);
	}
	/* Nor after a start. */
	end(&s);
	begin(&s, "0");
	pass(&s, LP_NS_PER_S);
	assert_false(report(&s).stats.is_running);
	pass(&s, HOUR_NS);
	assert_true(report(&s).stats.is_running);
	wait_for_end(&s);
	teardown(&s);
}

/* The daemon ends in the middle of a check, which is so slow that it checks one inode a second. */
static void cut_short(struct scene *s)
{
	end(s);
	begin(s, "16K");
	lp_test_ok(lpi_scrubbing_ask(&s->scrubbing, "start"));
	while (report(s).stats.objects == 0)
		lpi_hand_turn(&s->rig.hand);
	end(s);
}

static void test_cut_short(void **state)
{
	(void)state;
	struct scene s;
	setup(&s);
	cut_short(&s);
	begin(&s, "0");
	pass(&s, LP_NS_PER_S);
	assert_true(report(&s).stats.is_running);
	wait_for_end(&s);
	assert_true(report(&s).stats.is_whole);
	assert_in_range(report(&s).stats.objects, 1, INODES - 1);
	int64_t whole_ns = report(&s).whole_ns;
	assert_true(whole_ns > 0);
	end(&s);
	begin(&s, "0");
	assert_int_equal(report(&s).whole_ns, whole_ns);
	pass(&s, LP_NS_PER_S);
	assert_false(report(&s).stats.is_running);
	teardown(&s);
}

/* A request before the progress of the last check is known takes effect. All data is checked, and
 * after a stop no check goes on. */
static void test_asked_early(void **state)
{
	(void)state;
	struct scene s;
	setup(&s);
	cut_short(&s);
	begin_unread(&s, "16K");
	assert_false(s.scrubbing.is_known);
	lp_test_ok(lpi_scrubbing_ask(&s.scrubbing, "start"));
	while (!s.scrubbing.is_known)
		lpi_hand_turn(&s.rig.hand);
	assert_true(s.scrubbing.goes_on);
	assert_int_equal(s.scrubbing.behind.nr, 0);
	lp_test_ok(lpi_scrubbing_ask(&s.scrubbing, "stop"));
	wait_for_end(&s);
	pass(&s, LP_NS_PER_S);
	assert_false(report(&s).stats.is_running);
	teardown(&s);
}

static void test_words(void **state)
{
	(void)state;
	struct scene s;
	setup(&s);
	lp_test_err(-EINVAL, lpi_scrubbing_ask(&s.scrubbing, "frobnicate"));
	lp_test_err(-EINVAL, lpi_scrubbing_ask(&s.scrubbing, ""));
	lp_test_ok(lpi_scrubbing_ask(&s.scrubbing, "stop"));
	lp_test_ok(lpi_scrubbing_ask(&s.scrubbing, "status"));
	assert_false(report(&s).stats.is_running);
	teardown(&s);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_interval),  cmocka_unit_test(test_stopped),
		cmocka_unit_test(test_cut_short), cmocka_unit_test(test_asked_early),
		cmocka_unit_test(test_words),
	};
	return lp_test_main(tests, "daemon/report/scrubbing");
}
