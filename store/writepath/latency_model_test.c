/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: `auto` takes the path that is the faster one, for any device, size and depth; keeps to it
 * under noise; follows a device that changes; and what it learned survives being kept.
 * Method: a small simulation of a store on synthetic devices. Clients keep a number of writes
 * going; frames, write-back and flushes are simulated one by one, for both paths, and the time
 * per write is counted: that is the truth. The policy only sees the time of each device operation.
 * What it chooses is right when it is 5 % slower than the better path at most:
 * always for a table of four devices, and nearly always for a finer one of six. */
#include "base/testing/test.h"

#include <math.h>

#include "base/crc32c.h"
#include "base/prng.h"
#include "store/writepath/latency_model.h"

#define KIB         UINT64_C(1024)
#define SERVERS_MAX 32u
#define CLIENTS_MAX 128u
#define WRITES      4000u /* of one run; the first part is not counted */
#define WRITES_SKIP 1000u
#define HELD_MAX    512u /* deferred, not yet in their place */
#define HELD_BYTES  (UINT64_C(32) << 20)
#define BATCH_MAX   (HELD_MAX / 2) /* of write-back */
#define BATCH_DEPTH 32u
#define CLIENT_US   3.0 /* until a client has heard, and asks again, at most */
/* Of the store's thread for a write, and for each KiB of it. */
#define DEFERRED_US     4.0
#define DEFERRED_KIB_US 0.40
#define DIRECT_US       9.5
#define DIRECT_KIB_US   0.02
#define FLIGHT_MAX      (2 * CLIENTS_MAX + BATCH_DEPTH + 8)

/* A sample by a thread that had nothing else to do. */
static void observe_alone(struct lp_policy *policy, enum lp_policy_kind kind, uint64_t bytes,
			  uint32_t depth, uint64_t ns)
{
	lp_policy_observe(policy, kind, bytes, depth, ns, ns);
}

/* --- Devices ---------------------------------------------------------------------------------- */

struct device {
	const char *name;
	bool is_rotational;
	bool volatile_cache;
	uint32_t servers;
	double write_us;
	double through_us; /* more for a write-through */
	double flush_us;
	double kib_us;
	double step_us; /* of a head that moves at all */
	double seek_us; /* and from end to end */

	double free_at[SERVERS_MAX];
	double path_free_at;
	double head; /* 0 to 1 */
	uint32_t flight;
};

static const struct device devices[] = {
	{.name = "hdd",
	 .is_rotational = true,
	 .volatile_cache = true,
	 .servers = 1,
	 .write_us = 100,
	 .through_us = 4000,
	 .flush_us = 8000,
	 .kib_us = 6.8,
	 .step_us = 5000,
	 .seek_us = 8000},
	{.name = "sata",
	 .volatile_cache = true,
	 .servers = 4,
	 .write_us = 40,
	 .through_us = 1000,
	 .flush_us = 1000,
	 .kib_us = 2},
	{.name = "nvme", .servers = 16, .write_us = 20, .kib_us = 0.5},
	{.name = "cheap nvme",
	 .volatile_cache = true,
	 .servers = 8,
	 .write_us = 30,
	 .through_us = 300,
	 .flush_us = 400,
	 .kib_us = 1},
	{.name = "target",
	 .volatile_cache = true,
	 .servers = SERVERS_MAX,
	 .write_us = 20,
	 .through_us = 200,
	 .flush_us = 200},
	{.name = "ram", .servers = 1, .write_us = 1, .kib_us = 0.1},
};

/* When an operation that comes now will be over. place < 0: it has none. */
static double device_plan(struct device *device, enum lp_policy_kind kind, uint64_t bytes,
			  double place, double now)
{
	double *server = &device->free_at[0];
	for (uint32_t i = 1; i < device->servers; i++) {
		if (device->free_at[i] < *server)
			server = &device->free_at[i];
	}
	double at = fmax(now, *server);
	if (kind == LP_POLICY_FLUSH) {
		at += device->flush_us;
	} else {
		double dist = fabs(place - device->head);
		if (dist > 0)
			at += device->step_us + device->seek_us * sqrt(dist);
		device->head = place;
		at = fmax(at, device->path_free_at);
		at += device->kib_us * (double)bytes / 1024;
		device->path_free_at = at;
		at += device->write_us;
		at += kind == LP_POLICY_LOG_WRITE ? device->through_us : 0;
	}
	*server = at;
	return at;
}

/* --- A store ---------------------------------------------------------------------------------- */

enum event_kind { CLIENT, BEGUN, FRAME, DATA, PLACE, FLUSH, PLACE_FLUSH };

struct event {
	enum event_kind kind;
	double at;
	double from;
	double idle_us; /* of the thread until then, in all */
	uint64_t bytes;
	uint32_t depth;
	uint32_t cnt; /* writes of a frame or covered by a flush */
};

struct store {
	struct device device;
	struct lp_policy *policy; /* learns, or NULL */
	struct lp_prng prng;
	bool is_direct;
	uint64_t bytes;
	double now;
	struct event events[FLIGHT_MAX];
	uint32_t event_cnt;
	uint32_t collecting;
	uint32_t frames;
	uint32_t unflushed; /* direct: data written */
	bool flushing;
	uint32_t held_max;
	uint32_t held; /* deferred */
	uint32_t waiting;
	double batch[BATCH_MAX];
	uint32_t batch_cnt;
	uint32_t batch_next;
	uint32_t batch_flight;
	bool batch_flushing;
	uint32_t done_cnt;
	double skipped_at;
	double thread_free_at;
	double idle_us; /* of the thread, until it got what it is at work on */
};

static enum lp_policy_kind policy_kind(enum event_kind kind)
{
	if (kind == FRAME)
		return LP_POLICY_LOG_WRITE;
	return kind == DATA || kind == PLACE ? LP_POLICY_DATA_WRITE : LP_POLICY_FLUSH;
}

static double idle_until(const struct store *store, double at)
{
	return store->idle_us + fmax(at - store->thread_free_at, 0);
}

static void submit(struct store *store, enum event_kind kind, uint64_t bytes, double place,
		   uint32_t cnt)
{
	assert_true(store->event_cnt < FLIGHT_MAX);
	store->events[store->event_cnt++] = (struct event){
		.kind = kind,
		.at = device_plan(&store->device, policy_kind(kind), bytes, place, store->now),
		.from = store->now,
		.idle_us = idle_until(store, store->now),
		.bytes = bytes,
		.depth = ++store->device.flight,
		.cnt = cnt};
}

/* Clients are never in step for long. */
static void client_later(struct store *store)
{
	assert_true(store->event_cnt < FLIGHT_MAX);
	double us = CLIENT_US * lp_prng_unit(&store->prng);
	store->events[store->event_cnt++] =
		(struct event){.kind = CLIENT, .at = store->now + us, .depth = 0};
}

/* One write after the other: the thread has come to the end of what it does for this one. */
static void begin_one(struct store *store)
{
	double kib = (double)store->bytes / 1024;
	double us = store->is_direct ? DIRECT_US + DIRECT_KIB_US * kib
				     : DEFERRED_US + DEFERRED_KIB_US * kib;
	store->idle_us = idle_until(store, store->now);
	store->thread_free_at = fmax(store->thread_free_at, store->now) + us;
	assert_true(store->event_cnt < FLIGHT_MAX);
	store->events[store->event_cnt++] =
		(struct event){.kind = BEGUN, .at = store->thread_free_at};
}

/* What the thread can say of how long an operation took: it sees what has completed when it has
 * done with the writes that it is at. */
static void observe(struct store *store, const struct event *event)
{
	double seen_at = fmax(event->at, store->thread_free_at);
	double waited_us = idle_until(store, seen_at) - event->idle_us;
	lp_policy_observe(store->policy, policy_kind(event->kind), event->bytes, event->depth,
			  (uint64_t)((seen_at - event->from) * 1000), (uint64_t)(waited_us * 1000));
}

static void write_one(struct store *store)
{
	if (store->is_direct)
		submit(store, DATA, store->bytes, lp_prng_unit(&store->prng), 1);
	else
		store->collecting++;
}

static void seal_frames(struct store *store)
{
	while (store->frames < 2 && store->collecting > 0) {
		uint64_t fit = LP_POLICY_PAYLOAD_BYTES / store->bytes;
		uint32_t cnt = store->collecting;
		if (!store->is_direct)
			cnt = LP_MIN(LP_MIN(cnt, (uint32_t)fit), store->held_max - store->held);
		if (cnt == 0)
			return;
		uint64_t bytes = lp_align_up(cnt * (uint64_t)LP_POLICY_META_BYTES, 4096);
		if (!store->is_direct) {
			bytes += cnt * store->bytes;
			store->held += cnt;
		}
		store->collecting -= cnt;
		store->frames++;
		submit(store, FRAME, bytes, 0, cnt);
	}
}

static int by_place(const void *a, const void *b)
{
	double x = *(const double *)a;
	double y = *(const double *)b;
	return x < y ? -1 : x > y;
}

static void write_back(struct store *store)
{
	bool is_over = store->batch_next == store->batch_cnt && store->batch_flight == 0;
	if (is_over && !store->batch_flushing && store->waiting >= store->held_max / 4) {
		store->batch_cnt = LP_MIN(store->waiting, store->held_max / 2);
		store->waiting -= store->batch_cnt;
		store->batch_next = 0;
		for (uint32_t i = 0; i < store->batch_cnt; i++)
			store->batch[i] = lp_prng_unit(&store->prng);
		qsort(store->batch, store->batch_cnt, sizeof(store->batch[0]), by_place);
	}
	while (store->batch_next < store->batch_cnt && store->batch_flight < BATCH_DEPTH) {
		submit(store, PLACE, store->bytes, store->batch[store->batch_next++], 1);
		store->batch_flight++;
	}
}

static void batch_done(struct store *store)
{
	store->batch_flushing = false;
	store->held -= store->batch_cnt;
	store->batch_cnt = 0;
	store->batch_next = 0;
}

static void flush_data(struct store *store)
{
	if (store->flushing || store->unflushed == 0)
		return;
	store->flushing = true;
	submit(store, FLUSH, 0, -1, store->unflushed);
	store->unflushed = 0;
}

static void frame_done(struct store *store, uint32_t cnt)
{
	store->frames--;
	if (!store->is_direct)
		store->waiting += cnt;
	for (uint32_t i = 0; i < cnt; i++) {
		if (++store->done_cnt == WRITES_SKIP)
			store->skipped_at = store->now;
		client_later(store);
	}
}

static void handle(struct store *store, const struct event *event)
{
	switch (event->kind) {
	case CLIENT:
		begin_one(store);
		break;
	case BEGUN:
		write_one(store);
		break;
	case FRAME:
		frame_done(store, event->cnt);
		break;
	case DATA:
		if (store->device.volatile_cache)
			store->unflushed++;
		else
			store->collecting++;
		break;
	case FLUSH:
		store->flushing = false;
		store->collecting += event->cnt;
		break;
	case PLACE:
		store->batch_flight--;
		if (store->batch_next < store->batch_cnt || store->batch_flight > 0)
			break;
		store->batch_flushing = store->device.volatile_cache;
		if (store->batch_flushing)
			submit(store, PLACE_FLUSH, 0, -1, 0);
		else
			batch_done(store);
		break;
	case PLACE_FLUSH:
		batch_done(store);
		break;
	}
}

static void turn(struct store *store)
{
	uint32_t first = 0;
	for (uint32_t i = 1; i < store->event_cnt; i++) {
		if (store->events[i].at < store->events[first].at)
			first = i;
	}
	assert_true(store->event_cnt > 0);
	struct event event = store->events[first];
	store->events[first] = store->events[--store->event_cnt];
	store->now = event.at;
	bool is_of_device = event.kind != CLIENT && event.kind != BEGUN;
	if (is_of_device)
		store->device.flight--;
	if (store->policy != NULL && is_of_device)
		observe(store, &event);
	handle(store, &event);
	/* What happens at the same instant is seen in the same turn. */
	for (uint32_t i = 0; i < store->event_cnt; i++) {
		if (store->events[i].at <= store->now)
			return;
	}
	flush_data(store);
	seal_frames(store);
	write_back(store);
}

/* Microseconds per write. */
static double run_store(const struct device *device, bool is_direct, uint64_t bytes, uint32_t depth,
			struct lp_policy *policy)
{
	static struct store store;
	store = (struct store){.device = *device,
			       .policy = policy,
			       .is_direct = is_direct,
			       .bytes = bytes,
			       .held_max =
				       (uint32_t)LP_MIN(HELD_BYTES / bytes, (uint64_t)HELD_MAX)};
	lp_prng_init(&store.prng, bytes + depth);
	for (uint32_t i = 0; i < depth; i++)
		client_later(&store);
	while (store.done_cnt < WRITES)
		turn(&store);
	return (store.now - store.skipped_at) / (store.done_cnt - WRITES_SKIP);
}

/* --- The choice is the better one ------------------------------------------------------------- */

static const uint64_t sizes[] = {4 * KIB,  8 * KIB,   16 * KIB,  32 * KIB,
				 64 * KIB, 128 * KIB, 256 * KIB, 512 * KIB};
static const uint32_t depths[] = {1, 4, 8, 16, 32, 64, 128};
/* The table that must be right throughout; in between, where both paths cost nearly the same, the
 * model may be off a little. */
static const uint64_t strict_sizes[] = {4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB};
static const uint32_t strict_depths[] = {1, 8, 32};
static const char *const strict_devices[] = {"hdd", "sata", "nvme", "ram"};

/* Each line so many times, with as many in flight as it says. Alone first: what is learned of load
 * rests on it. */
static const struct probe {
	enum lp_policy_kind kind;
	uint32_t bytes; /* 0 for flushes */
	uint32_t depth;
	uint32_t times;
} probes[] = {
	{LP_POLICY_LOG_WRITE, 4096, 1, 48},    {LP_POLICY_LOG_WRITE, 65536, 1, 32},
	{LP_POLICY_LOG_WRITE, 1048576, 1, 24}, {LP_POLICY_DATA_WRITE, 4096, 1, 48},
	{LP_POLICY_DATA_WRITE, 65536, 1, 32},  {LP_POLICY_DATA_WRITE, 1048576, 1, 24},
	{LP_POLICY_FLUSH, 0, 1, 32},           {LP_POLICY_LOG_WRITE, 4096, 4, 48},
	{LP_POLICY_LOG_WRITE, 1048576, 4, 24}, {LP_POLICY_DATA_WRITE, 4096, 32, 96},
	{LP_POLICY_DATA_WRITE, 65536, 16, 48}, {LP_POLICY_DATA_WRITE, 1048576, 4, 24},
	{LP_POLICY_FLUSH, 0, 4, 32},
};

/* What a store learns that is written to in every way. */
static void probe(struct lp_policy *policy, const struct device *from)
{
	struct lp_prng prng;
	lp_prng_init(&prng, 1);
	for (size_t i = 0; i < LP_ARRAY_SIZE(probes); i++) {
		struct device device = *from;
		double ends[64] = {0}; /* of those in flight */
		assert_true(probes[i].depth > 0 && probes[i].depth <= LP_ARRAY_SIZE(ends));
		double now = 0;
		for (uint32_t n = 0; n < probes[i].times; n++) {
			bool is_log = probes[i].kind == LP_POLICY_LOG_WRITE;
			double place = is_log ? 0 : lp_prng_unit(&prng);
			uint32_t flight = 1;
			uint32_t slot = n % probes[i].depth;
			now = fmax(now, ends[slot]);
			for (uint32_t e = 0; e < probes[i].depth; e++)
				flight += ends[e] > now;
			ends[slot] =
				device_plan(&device, probes[i].kind, probes[i].bytes, place, now);
			observe_alone(policy, probes[i].kind, probes[i].bytes, flight,
				      (uint64_t)((ends[slot] - now) * 1000));
		}
	}
	lp_policy_settle(policy);
}

struct score {
	uint32_t cnt;
	uint32_t right; /* 5 % slower than the better path at most */
	double worst;
};

static bool is_strict(const struct device *device, uint64_t bytes, uint32_t depth)
{
	bool has_name = false;
	bool has_size = false;
	bool has_depth = false;
	for (size_t i = 0; i < LP_ARRAY_SIZE(strict_devices); i++)
		has_name = has_name || strcmp(device->name, strict_devices[i]) == 0;
	for (size_t i = 0; i < LP_ARRAY_SIZE(strict_sizes); i++)
		has_size = has_size || strict_sizes[i] == bytes;
	for (size_t i = 0; i < LP_ARRAY_SIZE(strict_depths); i++)
		has_depth = has_depth || strict_depths[i] == depth;
	return has_name && has_size && has_depth;
}

/* The truth is simulated once per device. */
static double truth[LP_ARRAY_SIZE(devices)][LP_ARRAY_SIZE(sizes)][LP_ARRAY_SIZE(depths)][2];

static void find_truth(void)
{
	for (size_t i = 0; i < LP_ARRAY_SIZE(devices); i++) {
		for (size_t s = 0; s < LP_ARRAY_SIZE(sizes); s++) {
			for (size_t d = 0; d < LP_ARRAY_SIZE(depths); d++) {
				double *us = truth[i][s][d];
				us[0] = run_store(&devices[i], false, sizes[s], depths[d], NULL);
				us[1] = run_store(&devices[i], true, sizes[s], depths[d], NULL);
			}
		}
	}
}

static void judge(struct lp_policy *policy, size_t device_idx, struct score *score)
{
	const struct device *device = &devices[device_idx];
	for (size_t i = 0; i < LP_ARRAY_SIZE(sizes) * LP_ARRAY_SIZE(depths); i++) {
		uint64_t bytes = sizes[i / LP_ARRAY_SIZE(depths)];
		uint32_t depth = depths[i % LP_ARRAY_SIZE(depths)];
		const double *us =
			truth[device_idx][i / LP_ARRAY_SIZE(depths)][i % LP_ARRAY_SIZE(depths)];
		bool is_direct = lp_policy_choose(policy, bytes, depth) == LP_PATH_DIRECT;
		double slower = us[is_direct] / fmin(us[0], us[1]);
		score->cnt++;
		score->right += slower <= 1.05;
		score->worst = fmax(score->worst, slower);
		if (slower <= 1.05 || !is_strict(device, bytes, depth))
			continue;
		char line[512];
		(void)lp_policy_explain(policy, bytes, depth, line, sizeof(line));
		fail_msg("%s: deferred %.1f us, direct %.1f us; %s", device->name, us[0], us[1],
			 line);
	}
}

static void assert_score(const char *what, const struct score *score)
{
	print_message("%s: %u of %u right, the worst is %.0f %% slower\n", what, score->right,
		      score->cnt, (score->worst - 1) * 100);
	assert_true(score->right * UINT64_C(100) >= score->cnt * UINT64_C(96));
	assert_true(score->worst < 1.3);
}

static void test_right_after_probe(void **state)
{
	(void)state;
	struct score score = {0};
	for (size_t i = 0; i < LP_ARRAY_SIZE(devices); i++) {
		struct lp_policy policy;
		lp_policy_init(&policy, devices[i].is_rotational, devices[i].volatile_cache);
		probe(&policy, &devices[i]);
		judge(&policy, i, &score);
	}
	assert_score("probed", &score);
}

static void test_right_after_hours(void **state)
{
	(void)state;
	struct score score = {0};
	for (size_t i = 0; i < LP_ARRAY_SIZE(devices); i++) {
		const struct device *device = &devices[i];
		struct lp_policy policy;
		lp_policy_init(&policy, device->is_rotational, device->volatile_cache);
		probe(&policy, device);
		for (size_t s = 0; s < LP_ARRAY_SIZE(sizes); s++) {
			for (size_t d = 0; d < LP_ARRAY_SIZE(depths); d += 2) {
				(void)run_store(device, false, sizes[s], depths[d], &policy);
				(void)run_store(device, true, sizes[s], depths[d], &policy);
			}
		}
		lp_policy_settle(&policy);
		judge(&policy, i, &score);
	}
	assert_score("online", &score);
}

/* --- What everybody knows --------------------------------------------------------------------- */

static void test_without_samples(void **state)
{
	(void)state;
	struct lp_policy policy;
	lp_policy_init(&policy, true, true);
	assert_int_equal(lp_policy_choose(&policy, 4096, 1), LP_PATH_DEFERRED);
	assert_int_equal(lp_policy_choose(&policy, 4096, 128), LP_PATH_DEFERRED);
	lp_policy_init(&policy, false, true);
	assert_int_equal(lp_policy_choose(&policy, 4096, 1), LP_PATH_DEFERRED);
	assert_int_equal(lp_policy_choose(&policy, 512 * KIB, 128), LP_PATH_DIRECT);
	lp_policy_init(&policy, false, false);
	assert_int_equal(lp_policy_choose(&policy, 1, 0), LP_PATH_DEFERRED);
	assert_int_equal(lp_policy_choose(&policy, 512 * KIB, 64), LP_PATH_DIRECT);
}

static void test_what_does_not_fit_is_direct(void **state)
{
	(void)state;
	struct lp_policy policy;
	char line[256];
	lp_policy_init(&policy, true, true);
	assert_int_equal(lp_policy_choose(&policy, LP_POLICY_PAYLOAD_BYTES, 1), LP_PATH_DEFERRED);
	assert_int_equal(lp_policy_choose(&policy, LP_POLICY_PAYLOAD_BYTES + 1, 1), LP_PATH_DIRECT);
	assert_int_equal(lp_policy_choose(&policy, UINT64_MAX, UINT32_MAX), LP_PATH_DIRECT);
	assert_true(lp_policy_explain(&policy, UINT64_MAX, 1, line, sizeof(line)) > 0);
	assert_non_null(strstr(line, "direct"));
	lp_policy_set_payload_max(&policy, 8192);
	assert_int_equal(lp_policy_choose(&policy, 8192, 1), LP_PATH_DEFERRED);
	assert_int_equal(lp_policy_choose(&policy, 8193, 1), LP_PATH_DIRECT);
	lp_policy_set_payload_max(&policy, 0);
	assert_int_equal(lp_policy_choose(&policy, 1, 1), LP_PATH_DIRECT);
}

static void test_explain(void **state)
{
	(void)state;
	struct lp_policy policy;
	char line[512];
	lp_policy_init(&policy, false, true);
	struct lp_policy before = policy;
	int len = lp_policy_explain(&policy, 60 * KIB, 7, line, sizeof(line));
	assert_true(len > 0 && (size_t)len < sizeof(line));
	assert_non_null(strstr(line, "up to 64 KiB at depth 8: "));
	assert_null(strchr(line, '\n'));
	assert_memory_equal(&policy, &before, sizeof(policy));
	/* As snprintf: a short buffer is not overrun. */
	char little[8] = "1234567";
	assert_int_equal(lp_policy_explain(&policy, 60 * KIB, 7, little, 4), len);
	assert_string_equal(little, "up ");
	assert_int_equal(little[4], '5');
	assert_string_equal(lp_write_path_name(LP_PATH_AUTO), "auto");
	assert_string_equal(lp_write_path_name(LP_PATH_INLINE), "inline");
	assert_string_equal(lp_write_path_name(LP_PATH_DEFERRED), "deferred");
	assert_string_equal(lp_write_path_name(LP_PATH_DIRECT), "direct");
}

/* --- Steady ----------------------------------------------------------------------------------- */

/* A device of which only the data writes' time matters: 4 KiB at depth 1, deferred costs 100 us and
 * direct what the data write takes and 50. */
static void observe_simple(struct lp_policy *policy, double data_us, double noise,
			   struct lp_prng *prng)
{
	double times_us[] = {100, data_us, 50};
	uint64_t bytes[] = {8192, 4096, 4096};
	for (size_t i = 0; i < LP_ARRAY_SIZE(times_us); i++) {
		enum lp_policy_kind kind = i == 1 ? LP_POLICY_DATA_WRITE : LP_POLICY_LOG_WRITE;
		double factor = 1 + noise * (2 * lp_prng_unit(prng) - 1);
		observe_alone(policy, kind, bytes[i], 1, (uint64_t)(times_us[i] * factor * 1000));
	}
	/* Their load is next to nothing. */
	for (int i = 0; i < 20; i++)
		observe_alone(policy, LP_POLICY_DATA_WRITE, 4096, 64, (uint64_t)(data_us * 1000));
}

static uint32_t flips_in(struct lp_policy *policy, double data_us, double noise, uint32_t rounds,
			 struct lp_prng *prng)
{
	enum lp_write_path last = lp_policy_choose(policy, 4096, 1);
	uint32_t flips = 0;
	for (uint32_t i = 0; i < rounds; i++) {
		observe_simple(policy, data_us, noise, prng);
		enum lp_write_path path = lp_policy_choose(policy, 4096, 1);
		flips += path != last;
		last = path;
	}
	return flips;
}

/* The data write's time at which this policy finds both paths equal. */
static void prepare_simple(struct lp_policy *policy, double data_us, struct lp_prng *prng)
{
	lp_policy_init(policy, false, false);
	for (int i = 0; i < 200; i++)
		observe_simple(policy, data_us, 0, prng);
	lp_policy_settle(policy);
}

static void test_noise_flips_nothing(void **state)
{
	(void)state;
	struct lp_policy policy;
	struct lp_prng prng;
	lp_prng_init(&prng, 7);
	/* A quarter away from the break-even point and with 50 % of noise: never. */
	prepare_simple(&policy, 75, &prng);
	assert_int_equal(lp_policy_choose(&policy, 4096, 1), LP_PATH_DEFERRED);
	assert_int_equal(flips_in(&policy, 75, 0.5, 5000, &prng), 0);
	/* At it: seldom in 115,000 samples. */
	double even_us = 50;
	for (int half_us = 40; half_us < 160; half_us++) {
		even_us = half_us / 2.0;
		prepare_simple(&policy, even_us, &prng);
		if (lp_policy_choose(&policy, 4096, 1) == LP_PATH_DEFERRED)
			break;
	}
	assert_true(even_us > 40 && even_us < 65);
	assert_true(flips_in(&policy, even_us, 0.3, 5000, &prng) <= 30);
}

/* The log's latency, which makes deferred the slower one for who waits for it, is nobody's who does
 * not. */
static void test_ordered_waits_for_no_log(void **state)
{
	(void)state;
	struct lp_policy policy;
	struct lp_prng prng;
	lp_prng_init(&prng, 3);
	lp_policy_init(&policy, false, false);
	for (uint32_t i = 0; i < 400; i++) {
		observe_simple(&policy, 40, 0, &prng);
		(void)lp_policy_choose(&policy, 4 * KIB, 1);
		(void)lp_policy_choose_ordered(&policy, 4 * KIB, 1);
	}
	assert_int_equal(lp_policy_choose(&policy, 4 * KIB, 1), LP_PATH_DIRECT);
	assert_int_equal(lp_policy_choose_ordered(&policy, 4 * KIB, 1), LP_PATH_DEFERRED);
	/* Large ones choose as if they waited. */
	for (uint32_t i = 0; i < LP_POLICY_CLASS_CNT; i++) {
		policy.choices[true][i][0].path = LP_PATH_DEFERRED;
		policy.choices[false][i][0].path = LP_PATH_DIRECT;
	}
	assert_int_equal(lp_policy_choose_ordered(&policy, 16 * KIB, 1), LP_PATH_DEFERRED);
	assert_int_equal(lp_policy_choose_ordered(&policy, 16 * KIB + 1, 1), LP_PATH_DIRECT);
}

static void test_change_is_followed(void **state)
{
	(void)state;
	struct lp_policy policy;
	struct lp_prng prng;
	lp_prng_init(&prng, 8);
	prepare_simple(&policy, 100, &prng);
	assert_int_equal(lp_policy_choose(&policy, 4096, 1), LP_PATH_DEFERRED);
	assert_int_equal(flips_in(&policy, 10, 0.2, 100, &prng), 1);
	assert_int_equal(lp_policy_choose(&policy, 4096, 1), LP_PATH_DIRECT);
	assert_int_equal(flips_in(&policy, 100, 0.2, 100, &prng), 1);
	assert_int_equal(lp_policy_choose(&policy, 4096, 1), LP_PATH_DEFERRED);
}

static void test_a_wild_sample_flips_nothing(void **state)
{
	(void)state;
	static const uint64_t wild_ns[] = {0, 1, 1000000000, UINT64_MAX};
	struct lp_prng prng;
	lp_prng_init(&prng, 9);
	for (size_t w = 0; w < LP_ARRAY_SIZE(wild_ns); w++) {
		for (int k = 0; k < 4; k++) {
			/* k 3: the policy's very first sample. */
			double data_us = k % 2 == 0 ? 30 : 70;
			struct lp_policy policy;
			lp_policy_init(&policy, false, false);
			if (k < 3)
				prepare_simple(&policy, data_us, &prng);
			enum lp_write_path path = lp_policy_choose(&policy, 4096, 1);
			enum lp_policy_kind kind =
				k < 2 ? LP_POLICY_DATA_WRITE : LP_POLICY_LOG_WRITE;
			observe_alone(&policy, kind, 4096, 1, wild_ns[w]);
			if (k < 3)
				assert_int_equal(flips_in(&policy, data_us, 0, 50, &prng), 0);
			for (int i = 0; i < 2 * (int)LP_POLICY_EPOCH; i++)
				assert_int_equal(lp_policy_choose(&policy, 4096, 1), path);
		}
	}
}

/* --- A thread that is busy ---------------------------------------------------------------------
 */

/* Its own time is in all that it sees; what it waited is the device's. */
static void test_a_busy_thread_learns_little(void **state)
{
	(void)state;
	struct lp_policy policy;
	struct lp_prng prng;
	char before[512];
	char after[512];
	lp_prng_init(&prng, 12);
	prepare_simple(&policy, 30, &prng);
	(void)lp_policy_explain(&policy, 4096, 1, before, sizeof(before));
	struct lp_policy same = policy;
	for (int i = 0; i < 1000; i++) {
		lp_policy_observe(&same, LP_POLICY_LOG_WRITE, 8192, 1, 5000000, 20000);
		lp_policy_observe(&same, LP_POLICY_DATA_WRITE, 4096, 1, 5000000, 0);
	}
	assert_memory_equal(same.cells, policy.cells, sizeof(policy.cells));
	/* Of more than it was thought to take that much is believed. */
	for (int i = 0; i < 1000; i++)
		lp_policy_observe(&policy, LP_POLICY_LOG_WRITE, 8192, 1, 5000000, 400000);
	(void)lp_policy_explain(&policy, 4096, 1, after, sizeof(after));
	assert_non_null(strstr(before, "a log write of 8 KiB for 1 takes 100."));
	assert_non_null(strstr(after, "a log write of 8 KiB for 1 takes 400."));
}

/* A device that is quicker than the thread: small writes are deferred, large ones are not; and what
 * is quicker than a slow thread is not quicker than a quick one. */
static void test_the_thread_decides(void **state)
{
	(void)state;
	struct lp_policy policy;
	lp_policy_init(&policy, false, false);
	/* Twenty microseconds for each 4 KiB, however many are under way. */
	for (int i = 0; i < 2000; i++) {
		observe_alone(&policy, LP_POLICY_DATA_WRITE, 4096, 1, 30000);
		observe_alone(&policy, LP_POLICY_LOG_WRITE, 4096, 1, 30000);
		observe_alone(&policy, LP_POLICY_DATA_WRITE, 4096, 64, UINT64_C(64) * 20000);
		observe_alone(&policy, LP_POLICY_LOG_WRITE, 262144, 1, UINT64_C(64) * 20000);
	}
	lp_policy_settle(&policy);
	assert_int_equal(lp_policy_choose(&policy, 4 * KIB, 128), LP_PATH_DIRECT);
	for (int i = 0; i < 100; i++)
		lp_policy_observe_thread(&policy, 1e6, 8000000, false);
	lp_policy_settle(&policy);
	assert_int_equal(lp_policy_choose(&policy, 4 * KIB, 128), LP_PATH_DEFERRED);
	assert_int_equal(lp_policy_choose(&policy, 64 * KIB, 128), LP_PATH_DIRECT);
	for (int i = 0; i < 100; i++)
		lp_policy_observe_thread(&policy, 1e6, 1000000, true);
	lp_policy_settle(&policy);
	assert_int_equal(lp_policy_choose(&policy, 4 * KIB, 128), LP_PATH_DIRECT);
	/* Whatever it is told. */
	lp_policy_observe_thread(&policy, 1e-300, UINT64_MAX, true);
	lp_policy_observe_thread(&policy, 1e300, 0, false);
	lp_policy_settle(&policy);
	assert_int_equal(lp_policy_choose(&policy, 512 * KIB, 128), LP_PATH_DIRECT);
}

/* --- Between and beyond what was seen --------------------------------------------------------- */

static void test_classes_never_seen(void **state)
{
	(void)state;
	struct lp_policy seen;
	struct lp_policy partly;
	/* 50 us and 2 us a KiB, one at a time; only two sizes are shown to the second. */
	lp_policy_init(&seen, false, false);
	lp_policy_init(&partly, false, false);
	for (int n = 0; n < 200; n++) {
		for (uint32_t c = 0; c < LP_POLICY_CLASS_CNT; c++) {
			uint64_t ns = 50000 + (UINT64_C(8000) << c);
			for (int kind = LP_POLICY_LOG_WRITE; kind <= LP_POLICY_DATA_WRITE; kind++) {
				observe_alone(&seen, (enum lp_policy_kind)kind,
					      4096 * (UINT64_C(1) << c), 1, ns);
				if (c == 0 || c == 8)
					observe_alone(&partly, (enum lp_policy_kind)kind,
						      4096 * (UINT64_C(1) << c), 1, ns);
			}
		}
	}
	lp_policy_settle(&seen);
	lp_policy_settle(&partly);
	for (uint64_t bytes = 4 * KIB; bytes <= 512 * KIB; bytes += 4 * KIB) {
		for (uint32_t depth = 1; depth <= 2; depth++)
			assert_int_equal(lp_policy_choose(&partly, bytes, depth),
					 lp_policy_choose(&seen, bytes, depth));
	}
	/* One kind tells of the other: a device a thousand times slower than guessed. */
	lp_policy_init(&partly, false, true);
	char line[512];
	for (int n = 0; n < 400; n++)
		observe_alone(&partly, LP_POLICY_DATA_WRITE, 4096, 1, 30 * UINT64_C(1000000));
	(void)lp_policy_explain(&partly, 4096, 1, line, sizeof(line));
	const char *deferred = strstr(line, "per operation deferred ");
	assert_non_null(deferred);
	assert_true(strtod(deferred + strlen("per operation deferred "), NULL) > 100000);
}

static void test_any_sample_is_taken(void **state)
{
	(void)state;
	struct lp_policy policy;
	struct lp_prng prng;
	uint8_t bytes[LP_POLICY_VALUE_SIZE];
	lp_prng_init(&prng, 10);
	lp_policy_init(&policy, false, true);
	for (int i = 0; i < 200000; i++) {
		enum lp_policy_kind kind =
			(enum lp_policy_kind)lp_prng_below(&prng, LP_POLICY_KIND_CNT);
		uint64_t len = UINT64_C(1) << lp_prng_below(&prng, 64);
		uint32_t depth = UINT32_C(1) << lp_prng_below(&prng, 32);
		uint64_t ns = lp_prng_u64(&prng) >> lp_prng_below(&prng, 64);
		lp_policy_observe(&policy, kind, len, depth, ns, ns >> lp_prng_below(&prng, 64));
		enum lp_write_path path =
			lp_policy_choose(&policy, len, (uint32_t)lp_prng_u64(&prng));
		assert_true(path == LP_PATH_DEFERRED || path == LP_PATH_DIRECT);
	}
	/* Still numbers that can be kept. */
	lp_policy_export(&policy, bytes);
	lp_test_ok(lp_policy_import(&policy, bytes, sizeof(bytes)));
}

/* --- Kept ------------------------------------------------------------------------------------- */

static void seal(uint8_t bytes[LP_POLICY_VALUE_SIZE])
{
	size_t after = LP_POLICY_VALUE_CRC_OFF + LP_POLICY_VALUE_CRC_SIZE;
	uint32_t crc = lp_crc32c(0, "Spolicy", 7);
	crc = lp_crc32c(crc, bytes, LP_POLICY_VALUE_CRC_OFF);
	crc = lp_crc32c(crc, bytes + after, LP_POLICY_VALUE_SIZE - after);
	lp_put_le32(bytes + LP_POLICY_VALUE_CRC_OFF, crc);
}

static void test_round_trip(void **state)
{
	(void)state;
	for (size_t i = 0; i < LP_ARRAY_SIZE(devices); i++) {
		struct lp_policy policy;
		struct lp_policy again;
		uint8_t bytes[LP_POLICY_VALUE_SIZE];
		uint8_t more[LP_POLICY_VALUE_SIZE];
		lp_policy_init(&policy, devices[i].is_rotational, devices[i].volatile_cache);
		lp_policy_init(&again, devices[i].is_rotational, devices[i].volatile_cache);
		probe(&policy, &devices[i]);
		lp_policy_export(&policy, bytes);
		lp_test_ok(lp_policy_import(&again, bytes, sizeof(bytes)));
		lp_policy_export(&again, more);
		assert_memory_equal(bytes, more, sizeof(bytes));
		for (size_t s = 0; s < LP_ARRAY_SIZE(sizes); s++) {
			for (size_t d = 0; d < LP_ARRAY_SIZE(depths); d++)
				assert_int_equal(lp_policy_choose(&again, sizes[s], depths[d]),
						 lp_policy_choose(&policy, sizes[s], depths[d]));
		}
		/* The crc is that of the key too. */
		seal(more);
		assert_memory_equal(bytes, more, sizeof(bytes));
	}
}

static void test_import_refuses(void **state)
{
	(void)state;
	struct lp_policy policy;
	uint8_t good[LP_POLICY_VALUE_SIZE];
	uint8_t bad[LP_POLICY_VALUE_SIZE];
	lp_policy_init(&policy, false, true);
	probe(&policy, &devices[1]);
	lp_policy_export(&policy, good);
	struct lp_policy before = policy;
	lp_test_err(-EUCLEAN, lp_policy_import(&policy, good, 0));
	lp_test_err(-EUCLEAN, lp_policy_import(&policy, good, sizeof(good) - 1));
	for (size_t bit = 0; bit < 8 * sizeof(good); bit += 3) {
		memcpy(bad, good, sizeof(bad));
		bad[bit / 8] ^= (uint8_t)(1u << (bit % 8));
		lp_test_err(-EBADMSG, lp_policy_import(&policy, bad, sizeof(bad)));
	}
	static const struct {
		size_t at;
		uint8_t value;
	} breaches[] = {
		{LP_POLICY_VALUE_VERSION_OFF, 2},
		{LP_POLICY_VALUE_RESERVED_A_OFF, 1},
		{LP_POLICY_VALUE_RESERVED_B_OFF, 1},
		{LP_POLICY_VALUE_RESERVED_C_OFF + 1, 1},
		{LP_POLICY_VALUE_LOG_IDLE_PS_OFF + 7, 1}, /* beyond 10^15 */
		{LP_POLICY_VALUE_DATA_LOAD_PS_OFF + 7, 1},
		{LP_POLICY_VALUE_FLUSH_LOAD_PS_OFF + 7, 1},
		{LP_POLICY_VALUE_DATA_IDLE_CNT_OFF, 9}, /* beyond 8 */
		{LP_POLICY_VALUE_FLUSH_IDLE_CNT_OFF, 255},
		{LP_POLICY_VALUE_LOG_IDLE_CNT_OFF, 0}, /* a time without samples */
	};
	for (size_t i = 0; i < LP_ARRAY_SIZE(breaches); i++) {
		memcpy(bad, good, sizeof(bad));
		bad[breaches[i].at] = breaches[i].value;
		seal(bad);
		lp_test_err(-EUCLEAN, lp_policy_import(&policy, bad, sizeof(bad)));
	}
	assert_memory_equal(&policy, &before, sizeof(policy));
	lp_test_ok(lp_policy_import(&policy, good, sizeof(good)));
}

static int setup(void **state)
{
	(void)state;
	find_truth();
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_right_after_probe),
		cmocka_unit_test(test_right_after_hours),
		cmocka_unit_test(test_without_samples),
		cmocka_unit_test(test_what_does_not_fit_is_direct),
		cmocka_unit_test(test_explain),
		cmocka_unit_test(test_noise_flips_nothing),
		cmocka_unit_test(test_ordered_waits_for_no_log),
		cmocka_unit_test(test_change_is_followed),
		cmocka_unit_test(test_a_wild_sample_flips_nothing),
		cmocka_unit_test(test_a_busy_thread_learns_little),
		cmocka_unit_test(test_the_thread_decides),
		cmocka_unit_test(test_classes_never_seen),
		cmocka_unit_test(test_any_sample_is_taken),
		cmocka_unit_test(test_round_trip),
		cmocka_unit_test(test_import_refuses),
	};
	return lp_test_main_with(tests, "store/writepath/latency_model", setup, NULL);
}
