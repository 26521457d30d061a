/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: the delayed device takes the time its options say, neither less nor much more; passes on
 * what the inner device does and says; and counts once. What all kinds have in common is in
 * bdev_test.c.
 * Method: simulated time, in which every completion is exact, for the model; real time for the
 * accuracy of waiting, where only "never early" and the best of many is asserted, for the machine
 * may be busy. */
#include "base/testing/test.h"

#include <unistd.h>

#include <pthread.h>

#include "base/testing/test_death.h"
#include "store/device/bdev_delay.h"
#include "store/device/sim/bdev_sim.h"

#define MIB        (UINT64_C(1) << 20)
#define SIZE       (64 * MIB)
#define FLIGHT_CNT (LP_BDEV_DELAY_FLIGHT_MAX + 100)
#define US         LP_NS_PER_US

static _Alignas(4096) unsigned char buf[MIB];

struct flight {
	struct lp_bdev_op op;
	struct lp_reactor *reactor;
	uint64_t done_ns; /* 0: not yet */
	uint32_t order;
};

struct rig {
	struct lp_clock_sim clock;
	struct lp_reactor *reactor;
	struct lp_bdev *inner; /* borrowed */
	struct lp_bdev *bdev;
	struct lp_bdev_chan *chan;
	struct flight flights[FLIGHT_CNT];
	uint32_t cnt;
	uint32_t done_cnt;
};

static struct rig r;

/* --- A rig in simulated time, and one in real time -------------------------------------------- */

static void rig_open(const struct lp_bdev_delay_options *options, struct lp_bdev *inner)
{
	struct lp_bdev_delay_options with_clock = *options;
	r = (struct rig){.inner = inner};
	lp_clock_sim_init(&r.clock, 1000 * US, 0);
	struct lp_reactor_options reactor_options = {.name = "delay-test", .sim = &r.clock};
	with_clock.clock = &r.clock.clock;
	lp_test_ok(lp_reactor_new(&reactor_options, &r.reactor));
	lp_test_ok(lp_reactor_start(r.reactor));
	lp_test_ok(lp_bdev_open_delay(&inner, &with_clock, &r.bdev));
	assert_null(inner);
	lp_test_ok(lp_bdev_attach(r.bdev, r.reactor, &r.chan));
}

static struct lp_bdev *open_mem(void)
{
	struct lp_bdev *inner = NULL;
	lp_test_ok(lp_bdev_open_mem(SIZE, 512, &inner));
	return inner;
}

static bool rig_open_real(const struct lp_bdev_delay_options *options)
{
	r = (struct rig){.inner = open_mem()};
	struct lp_bdev *inner = r.inner;
	struct lp_reactor_options reactor_options = {.name = "delay-test", .ring = true};
	int err = lp_reactor_new(&reactor_options, &r.reactor);
	if (err == 0)
		err = lp_reactor_start(r.reactor);
	if (err < 0) {
		print_message("skip: no io_uring here (%s)\n", lp_strerror(err));
		lp_reactor_free(r.reactor);
		lp_bdev_close(inner);
		return false;
	}
	lp_test_ok(lp_bdev_open_delay(&inner, options, &r.bdev));
	lp_test_ok(lp_bdev_attach(r.bdev, r.reactor, &r.chan));
	return true;
}

static void rig_close(void)
{
	lp_bdev_detach(r.chan);
	lp_bdev_close(r.bdev);
	lp_reactor_free(r.reactor);
}

static void complete(struct lp_bdev_op *op)
{
	struct flight *flight = LP_CONTAINER_OF(op, struct flight, op);
	assert_int_equal(flight->done_ns, 0);
	flight->done_ns = lp_clock_mono_ns(lp_reactor_clock(flight->reactor));
	flight->order = r.done_cnt++;
}

static struct flight *submit_on(struct lp_bdev_chan *chan, struct lp_reactor *reactor,
				enum lp_bdev_opcode opcode, uint64_t len, uint64_t at)
{
	struct flight *flight = &r.flights[r.cnt++];
	*flight = (struct flight){.reactor = reactor, .op = {.complete = complete}};
	lp_bdev_op_prep(&flight->op, opcode, buf, len, at);
	lp_bdev_submit(chan, &flight->op);
	assert_int_equal(flight->done_ns, 0);
	return flight;
}

static struct flight *submit(enum lp_bdev_opcode opcode, uint64_t len, uint64_t at)
{
	return submit_on(r.chan, r.reactor, opcode, len, at);
}

static void wait_all(void)
{
	while (lp_bdev_inflight(r.chan) > 0)
		(void)lp_reactor_turn(r.reactor, true); /* what completes is counted */
}

/* One operation alone: how long it took. */
static uint64_t time_of(enum lp_bdev_opcode opcode, uint64_t len, uint64_t at)
{
	uint64_t from_ns = lp_clock_mono_ns(lp_reactor_clock(r.reactor));
	r.cnt = 0;
	struct flight *flight = submit(opcode, len, at);
	wait_all();
	lp_test_ok(flight->op.result);
	return flight->done_ns - from_ns;
}

/* --- Options ---------------------------------------------------------------------------------- */

static void test_presets(void **state)
{
	(void)state;
	const char *const names[] = {"none", "nvme", "target", "sata-ssd", "hdd"};
	for (int i = 0; i < LP_BDEV_DELAY_KIND_CNT; i++) {
		enum lp_bdev_delay_kind kind = (enum lp_bdev_delay_kind)i;
		assert_string_equal(lp_bdev_delay_kind_name(kind), names[i]);
		assert_ptr_equal(lp_bdev_delay_profile(names[i]), lp_bdev_delay_preset(kind));
	}
	assert_null(lp_bdev_delay_profile("floppy"));
	assert_null(lp_bdev_delay_profile(""));
	/* What docs/targets.md asks for: a durable write is one of 20 us and a flush of 200. */
	rig_open(lp_bdev_delay_profile("target"), open_mem());
	assert_int_equal(time_of(LP_BDEV_WRITE, 4096, 0), 20 * US);
	assert_int_equal(time_of(LP_BDEV_FLUSH, 0, 0), 200 * US);
	assert_int_equal(time_of(LP_BDEV_WRITE_THROUGH, 4096, 0), 220 * US);
	rig_close();
	/* 1.5 MB in sequence at 150 MB/s, after a seek. */
	rig_open(lp_bdev_delay_profile("hdd"), open_mem());
	uint64_t took_ns = time_of(LP_BDEV_READ, 512, 32 * MIB);
	assert_true(took_ns > 8000 * US && took_ns < 8200 * US);
	took_ns = time_of(LP_BDEV_READ, MIB, 32 * MIB + 512);
	assert_true(took_ns > 7000 * US && took_ns < 7200 * US);
	assert_true(lp_bdev_caps(r.bdev)->rotational); /* for it seeks, whatever is below */
	lp_test_ok(lp_bdev_refresh_size(r.bdev));
	assert_true(lp_bdev_caps(r.bdev)->rotational);
	rig_close();
}

static void test_refuses(void **state)
{
	(void)state;
	const struct lp_bdev_delay_options bad[] = {
		{.read_ns = LP_BDEV_DELAY_NS_MAX + 1},
		{.write_ns = LP_BDEV_DELAY_NS_MAX + 1},
		{.flush_ns = LP_BDEV_DELAY_NS_MAX + 1},
		{.seek_ns = LP_BDEV_DELAY_NS_MAX + 1},
		{.fua_ns = LP_BDEV_DELAY_NS_MAX + 1},
		{.read_ns_per_kib = LP_BDEV_DELAY_KIB_MAX + 1},
		{.write_ns_per_kib = LP_BDEV_DELAY_KIB_MAX + 1},
		{.queue_depth = LP_BDEV_DELAY_DEPTH_MAX + 1},
	};
	struct lp_bdev *inner = open_mem();
	struct lp_bdev *bdev = NULL;
	for (size_t i = 0; i < LP_ARRAY_SIZE(bad); i++) {
		lp_test_err(-EINVAL, lp_bdev_open_delay(&inner, &bad[i], &bdev));
		assert_non_null(inner);
		assert_null(bdev);
	}
	struct lp_bdev_delay_options most = {.fua_ns = LP_BDEV_DELAY_NS_MAX,
					     .write_ns_per_kib = LP_BDEV_DELAY_KIB_MAX,
					     .queue_depth = LP_BDEV_DELAY_DEPTH_MAX};
	lp_test_ok(lp_bdev_open_delay(&inner, &most, &bdev));
	assert_null(inner);
	lp_bdev_close(bdev);
}

/* --- The model, in simulated time ------------------------------------------------------------- */

static void test_each_opcode(void **state)
{
	(void)state;
	struct lp_bdev_delay_options options = {.read_ns = 60 * US,
						.write_ns = 20 * US,
						.flush_ns = 200 * US,
						.fua_ns = 7 * US,
						.seek_ns = 1000 * US,
						.read_ns_per_kib = 1000,
						.write_ns_per_kib = 2000};
	rig_open(&options, open_mem());
	assert_int_equal(time_of(LP_BDEV_READ, 4096, 0), 64 * US);
	assert_int_equal(time_of(LP_BDEV_READ, 4096, 4096), 64 * US);
	assert_int_equal(time_of(LP_BDEV_READ, 4096, 4096), 1064 * US);
	assert_int_equal(time_of(LP_BDEV_WRITE, 8192, 8192), 36 * US);
	assert_int_equal(time_of(LP_BDEV_WRITE, 512, 0), 1021 * US);
	assert_int_equal(time_of(LP_BDEV_WRITE_THROUGH, 1024, 512), 29 * US);
	/* These have no place, and leave the head where it is. */
	assert_int_equal(time_of(LP_BDEV_FLUSH, 0, 0), 200 * US);
	assert_int_equal(time_of(LP_BDEV_DISCARD, MIB, 32 * MIB), 20 * US);
	assert_int_equal(time_of(LP_BDEV_WRITE_THROUGH, 1024, 1536), 29 * US);
	rig_close();
}

static void test_none_takes_no_time(void **state)
{
	(void)state;
	rig_open(lp_bdev_delay_profile("none"), open_mem());
	assert_int_equal(time_of(LP_BDEV_WRITE_THROUGH, MIB, MIB), 0);
	assert_int_equal(time_of(LP_BDEV_FLUSH, 0, 0), 0);
	assert_int_equal(time_of(LP_BDEV_READ, MIB, MIB), 0);
	rig_close();
}

static void test_queue_depth(void **state)
{
	(void)state;
	static const uint32_t depths[] = {1, 2, 7, LP_BDEV_DELAY_DEPTH_MAX};
	for (size_t d = 0; d < LP_ARRAY_SIZE(depths); d++) {
		struct lp_bdev_delay_options options = {.write_ns = 20 * US,
							.queue_depth = depths[d]};
		rig_open(&options, open_mem());
		uint64_t from_ns = r.clock.now_ns;
		for (uint32_t i = 0; i < 600; i++)
			(void)submit(LP_BDEV_WRITE, 512, i * UINT64_C(512));
		wait_all();
		for (uint32_t i = 0; i < 600; i++) {
			/* First come, first served. */
			assert_int_equal(r.flights[i].order, i);
			assert_int_equal(r.flights[i].done_ns - from_ns,
					 (UINT64_C(1) + i / depths[d]) * 20 * US);
		}
		rig_close();
	}
}

static void test_servers_of_unequal_work(void **state)
{
	(void)state;
	struct lp_bdev_delay_options options = {
		.read_ns = 10 * US, .write_ns = 100 * US, .queue_depth = 2};
	rig_open(&options, open_mem());
	uint64_t from_ns = r.clock.now_ns;
	static const uint64_t ends_us[] = {100, 10, 20, 120, 110, 120};
	(void)submit(LP_BDEV_WRITE, 512, 0);
	(void)submit(LP_BDEV_READ, 512, 0);
	(void)submit(LP_BDEV_READ, 512, 0);  /* after the first read */
	(void)submit(LP_BDEV_WRITE, 512, 0); /* after the second */
	(void)submit(LP_BDEV_READ, 512, 0);  /* after the first write */
	(void)submit(LP_BDEV_READ, 512, 0);
	wait_all();
	for (uint32_t i = 0; i < r.cnt; i++)
		assert_int_equal(r.flights[i].done_ns - from_ns, ends_us[i] * US);
	rig_close();
}

static void test_bandwidth_is_shared(void **state)
{
	(void)state;
	struct lp_bdev_delay_options options = {.read_ns = 5 * US,
						.write_ns = 50 * US,
						.read_ns_per_kib = 500,
						.write_ns_per_kib = 1000};
	rig_open(&options, open_mem());
	uint64_t from_ns = r.clock.now_ns;
	for (uint32_t i = 0; i < 10; i++)
		(void)submit(LP_BDEV_WRITE, 65536, i * UINT64_C(65536));
	struct flight *read = submit(LP_BDEV_READ, 65536, 0);
	struct flight *flush = submit(LP_BDEV_FLUSH, 0, 0);
	wait_all();
	for (uint32_t i = 0; i < 10; i++)
		assert_int_equal(r.flights[i].done_ns - from_ns,
				 (UINT64_C(1) + i) * 64 * US + 50 * US);
	assert_int_equal(read->done_ns - from_ns, 640 * US + 32 * US + 5 * US);
	assert_int_equal(flush->done_ns - from_ns, 0);
	rig_close();
}

static void test_more_than_slots(void **state)
{
	(void)state;
	struct lp_bdev_delay_options options = {.write_ns = 20 * US};
	rig_open(&options, open_mem());
	uint64_t from_ns = r.clock.now_ns;
	for (uint32_t i = 0; i < FLIGHT_CNT; i++)
		(void)submit(LP_BDEV_WRITE, 512, i * UINT64_C(512));
	assert_int_equal(lp_bdev_inflight(r.chan), FLIGHT_CNT);
	wait_all();
	for (uint32_t i = 0; i < FLIGHT_CNT; i++) {
		uint64_t rounds = i < LP_BDEV_DELAY_FLIGHT_MAX ? 1 : 2;
		assert_int_equal(r.flights[i].done_ns - from_ns, rounds * 20 * US);
	}
	assert_int_equal(lp_bdev_stats(r.chan)->ops[LP_BDEV_WRITE], FLIGHT_CNT);
	rig_close();
}

static void test_channels_share_the_device(void **state)
{
	(void)state;
	struct lp_bdev_delay_options options = {.write_ns = 20 * US, .queue_depth = 1};
	rig_open(&options, open_mem());
	struct lp_reactor_options other_options = {.name = "other", .sim = &r.clock};
	struct lp_reactor *other = NULL;
	struct lp_bdev_chan *other_chan = NULL;
	lp_test_ok(lp_reactor_new(&other_options, &other));
	lp_test_ok(lp_reactor_start(other));
	lp_test_ok(lp_bdev_attach(r.bdev, other, &other_chan));
	uint64_t from_ns = r.clock.now_ns;
	struct flight *first = submit(LP_BDEV_WRITE, 512, 0);
	struct flight *second = submit_on(other_chan, other, LP_BDEV_WRITE, 512, 0);
	wait_all();
	while (lp_bdev_inflight(other_chan) > 0)
		(void)lp_reactor_turn(other, true); /* as wait_all() */
	assert_int_equal(first->done_ns - from_ns, 20 * US);
	assert_int_equal(second->done_ns - from_ns, 40 * US);
	lp_bdev_detach(other_chan);
	lp_reactor_free(other);
	rig_close();
}

/* --- What is the inner device's --------------------------------------------------------------- */

static struct lp_bdev *open_sim(uint64_t latency_ns)
{
	struct lp_sim_profile profile = *lp_sim_preset(LP_SIM_CONSUMER);
	for (int i = 0; i < LP_BDEV_OPCODE_CNT; i++)
		profile.latency[i] = (struct lp_sim_latency){latency_ns, latency_ns};
	profile.slow_ppm = 0;
	struct lp_sim_options options = {.profile = &profile, .size_bytes = SIZE, .seed = 1};
	struct lp_bdev *inner = NULL;
	lp_test_ok(lp_bdev_open_sim(&options, &inner));
	return inner;
}

static void test_inner_may_be_slower(void **state)
{
	(void)state;
	struct lp_bdev_delay_options options = {.read_ns = 900 * US, .write_ns = 20 * US};
	rig_open(&options, open_sim(500 * US));
	assert_int_equal(time_of(LP_BDEV_WRITE, 4096, 0), 500 * US);
	assert_int_equal(time_of(LP_BDEV_READ, 4096, 0), 900 * US);
	/* That it hid nothing is told: of the write; a flush takes no time by the model. */
	assert_int_equal(time_of(LP_BDEV_FLUSH, 0, 0), 500 * US);
	assert_int_equal(lp_bdev_stats(r.chan)->late, 1);
	rig_close();
}

static void test_caps_and_content(void **state)
{
	(void)state;
	struct lp_bdev *inner = open_sim(US);
	struct lp_bdev_caps caps = *lp_bdev_caps(inner);
	assert_true(caps.volatile_cache);
	rig_open(lp_bdev_delay_profile("nvme"), inner);
	assert_memory_equal(lp_bdev_caps(r.bdev), &caps, sizeof(caps));
	lp_test_ok(lp_bdev_refresh_size(r.bdev));
	assert_int_equal(lp_bdev_caps(r.bdev)->size_bytes, SIZE);
	assert_string_equal(lp_bdev_name(r.bdev), lp_bdev_name(inner));
	/* Through one, seen through the other. */
	memset(buf, 0x5a, 8192);
	(void)time_of(LP_BDEV_WRITE, 8192, MIB);
	memset(buf, 0, 8192);
	lp_test_ok(lp_bdev_read_sync(inner, buf, 8192, MIB));
	assert_int_equal(buf[0], 0x5a);
	assert_int_equal(buf[8191], 0x5a);
	rig_close();
}

static void test_errors_and_counts(void **state)
{
	(void)state;
	struct lp_bdev *inner = open_sim(US);
	rig_open(lp_bdev_delay_profile("target"), inner);
	struct lp_sim_rule rule = {.fault = LP_SIM_EIO,
				   .opcode_mask = LP_SIM_OP(LP_BDEV_WRITE),
				   .skip_cnt = 1,
				   .fire_cnt = 1};
	(void)lp_sim_rule_add(lp_sim_of(inner), &rule);
	uint64_t from_ns = r.clock.now_ns;
	for (uint32_t i = 0; i < 3; i++)
		(void)submit(LP_BDEV_WRITE, 4096, i * UINT64_C(4096));
	wait_all();
	lp_test_ok(r.flights[0].op.result);
	lp_test_err(-EIO, r.flights[1].op.result);
	lp_test_ok(r.flights[2].op.result);
	/* An error takes its time too. */
	assert_int_equal(r.flights[1].done_ns - from_ns, 20 * US);
	const struct lp_bdev_stats *stats = lp_bdev_stats(r.chan);
	assert_int_equal(stats->ops[LP_BDEV_WRITE], 3);
	assert_int_equal(stats->bytes[LP_BDEV_WRITE], 3 * 4096);
	assert_int_equal(stats->errors, 1);
	/* Blocking calls: counted here once, and without any time in a simulation. */
	from_ns = r.clock.now_ns;
	lp_test_ok(lp_bdev_write_sync(r.bdev, buf, 4096, 0, true));
	lp_test_ok(lp_bdev_flush_sync(r.bdev));
	struct lp_bdev_stats sync_stats;
	lp_bdev_sync_stats(r.bdev, &sync_stats);
	assert_int_equal(sync_stats.ops[LP_BDEV_WRITE_THROUGH], 1);
	assert_int_equal(sync_stats.ops[LP_BDEV_FLUSH], 1);
	assert_int_equal(stats->ops[LP_BDEV_FLUSH], 0);
	assert_int_equal(r.clock.now_ns, from_ns);
	rig_close();
}

/* A caller that submits from its completion, so that completions and submissions mix. */
static void resubmit(struct lp_bdev_op *op)
{
	struct flight *flight = LP_CONTAINER_OF(op, struct flight, op);
	flight->done_ns = r.clock.now_ns;
	if (++r.done_cnt + 8 <= 1000)
		lp_bdev_submit(r.chan, op);
}

static void test_closed_loop(void **state)
{
	(void)state;
	struct lp_bdev_delay_options options = {.write_ns = 20 * US, .queue_depth = 4};
	rig_open(&options, open_mem());
	uint64_t from_ns = r.clock.now_ns;
	for (uint32_t i = 0; i < 8; i++) {
		struct flight *flight = submit(LP_BDEV_WRITE, 512, i * UINT64_C(512));
		flight->op.complete = resubmit;
	}
	wait_all();
	assert_int_equal(r.done_cnt, 1000);
	assert_int_equal(r.clock.now_ns - from_ns, UINT64_C(1000) / 4 * 20 * US);
	rig_close();
}

/* --- Real time -------------------------------------------------------------------------------- */

static void test_accuracy(void **state)
{
	(void)state;
	static const uint64_t times_us[] = {5, 20, 60, 200, 1000};
	for (size_t t = 0; t < LP_ARRAY_SIZE(times_us); t++) {
		struct lp_bdev_delay_options options = {.write_ns = times_us[t] * US};
		if (!rig_open_real(&options))
			skip();
		uint64_t best_ns = UINT64_MAX;
		for (int i = 0; i < 200; i++) {
			uint64_t took_ns = time_of(LP_BDEV_WRITE, 512, 0);
			assert_true(took_ns >= options.write_ns);
			best_ns = LP_MIN(best_ns, took_ns - options.write_ns);
		}
		if (best_ns > 20 * US)
			fail_msg("%llu us: at best %llu ns late", (unsigned long long)times_us[t],
				 (unsigned long long)best_ns);
		rig_close();
	}
}

static void test_sleeps_when_long(void **state)
{
	(void)state;
	struct lp_bdev_delay_options options = {.write_ns = 20 * LP_NS_PER_MS};
	if (!rig_open_real(&options))
		skip();
	uint64_t turns = lp_reactor_stats(r.reactor)->turns;
	uint64_t sleeps = lp_reactor_stats(r.reactor)->sleeps;
	(void)time_of(LP_BDEV_WRITE, 512, 0);
	/* 50 us of turning at a microsecond each, not 20 ms. */
	assert_true(lp_reactor_stats(r.reactor)->turns - turns < 2000);
	assert_true(lp_reactor_stats(r.reactor)->sleeps > sleeps);
	rig_close();
}

static void *flush_thread(void *arg)
{
	struct lp_bdev *bdev = arg;
	for (int i = 0; i < 5; i++) {
		if (lp_bdev_flush_sync(bdev) != 0)
			return NULL;
	}
	return bdev;
}

static void test_blocking_calls(void **state)
{
	(void)state;
	const struct lp_clock *clock = lp_clock_system();
	struct lp_bdev_delay_options options = {
		.write_ns = 300 * US, .flush_ns = 2000 * US, .queue_depth = 1};
	struct lp_bdev *inner = open_mem();
	struct lp_bdev *bdev = NULL;
	lp_test_ok(lp_bdev_open_delay(&inner, &options, &bdev));
	uint64_t best_ns = UINT64_MAX;
	for (int i = 0; i < 50; i++) {
		uint64_t from_ns = lp_clock_mono_ns(clock);
		lp_test_ok(lp_bdev_write_sync(bdev, buf, 512, 0, false));
		uint64_t took_ns = lp_clock_mono_ns(clock) - from_ns;
		assert_true(took_ns >= options.write_ns);
		best_ns = LP_MIN(best_ns, took_ns - options.write_ns);
	}
	assert_true(best_ns < 100 * US);
	/* Two threads at a device that does one thing at a time. */
	uint64_t from_ns = lp_clock_mono_ns(clock);
	pthread_t threads[2];
	for (size_t i = 0; i < LP_ARRAY_SIZE(threads); i++)
		assert_int_equal(pthread_create(&threads[i], NULL, flush_thread, bdev), 0);
	for (size_t i = 0; i < LP_ARRAY_SIZE(threads); i++) {
		void *result = NULL;
		assert_int_equal(pthread_join(threads[i], &result), 0);
		assert_ptr_equal(result, bdev);
	}
	assert_true(lp_clock_mono_ns(clock) - from_ns >= 10 * options.flush_ns);
	lp_bdev_close(bdev);
}

/* --- Breaches --------------------------------------------------------------------------------- */

static void attach_with_another_clock(void *arg)
{
	struct lp_reactor_options options = {.name = "other"};
	struct lp_reactor *reactor = NULL;
	struct lp_bdev_chan *chan = NULL;
	(void)arg;
	lp_test_ok(lp_reactor_new(&options, &reactor));
	lp_test_ok(lp_reactor_start(reactor));
	lp_test_ok(lp_bdev_attach(r.bdev, reactor, &chan));
}

static void detach_in_flight(void *arg)
{
	(void)arg;
	(void)submit(LP_BDEV_WRITE, 512, 0);
	(void)lp_reactor_turn(r.reactor,
			      false); /* the inner device is done, the time is not over */
	lp_bdev_detach(r.chan);
}

static void test_breaches(void **state)
{
	(void)state;
	rig_open(lp_bdev_delay_profile("nvme"), open_mem());
	lp_test_dies(attach_with_another_clock, NULL);
	lp_test_dies(detach_in_flight, NULL);
	rig_close();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_presets),
		cmocka_unit_test(test_refuses),
		cmocka_unit_test(test_each_opcode),
		cmocka_unit_test(test_none_takes_no_time),
		cmocka_unit_test(test_queue_depth),
		cmocka_unit_test(test_servers_of_unequal_work),
		cmocka_unit_test(test_bandwidth_is_shared),
		cmocka_unit_test(test_more_than_slots),
		cmocka_unit_test(test_channels_share_the_device),
		cmocka_unit_test(test_inner_may_be_slower),
		cmocka_unit_test(test_caps_and_content),
		cmocka_unit_test(test_errors_and_counts),
		cmocka_unit_test(test_closed_loop),
		cmocka_unit_test(test_accuracy),
		cmocka_unit_test(test_sleeps_when_long),
		cmocka_unit_test(test_blocking_calls),
		cmocka_unit_test(test_breaches),
	};
	return lp_test_main(tests, "store/device/bdev_delay");
}
