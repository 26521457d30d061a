/* SPDX-License-Identifier: Apache-2.0 */
/* Changes over several shards, with the power failing at each event of the device (rule N1).
 * Afterwards all of the change is there or nothing of it, and all of it if it was acknowledged.
 * Nothing is left prepared, sealed or decided, and the checker finds no fault. The start that finds
 * this out is itself cut at each of its events. */
#include "base/testing/test_long.h"
#include "namespace/change/pact_trial_test.h"
#include "namespace/shard/ns_sim_test.h"
#include "namespace/shard/ns_text_test.h"

static uint64_t state_cnt;

/* Cuts are made at one of so many events: a sanitizer needs many times as long for each, and finds
 * its own kind of fault in few. Which ones differs from run to run of the changes. */
static uint64_t stride(void)
{
	return LP_ASSERT_SLOW_ON && lp_test_factor() == 1 ? 60 : 1;
}

static bool is_cut(uint64_t event, uint64_t seed)
{
	return event % stride() == seed % stride();
}

/* A run of one change, uncut. */
struct run {
	struct lpi_ns_sim *sim;
	struct lpi_trial trial;
	const struct lpi_trial_kind *kind;
	uint64_t told_event; /* events up to this one had happened when the change was known */
	struct lpi_ns_text before;
	struct lpi_ns_text after;
};

static struct lp_sim *device_of(struct run *run)
{
	return lp_sim_of(run->sim->bdev);
}

static void run_begin(struct run *run, const struct lpi_trial_kind *kind, uint64_t seed)
{
	*run = (struct run){.kind = kind, .told_event = 0};
	run->sim = lpi_ns_sim_boot(lpi_ns_sim_mkfs(seed));
	lp_test_ok(lpi_ns_sim_start(run->sim));
	run->trial.world = lpi_world_make(run->sim->hand, run->sim->ns);
	/* All is in the log, and durable. */
	lp_sim_trim_log(device_of(run));
}

static void turn_until_done(struct run *run)
{
	for (uint32_t i = 0; !run->trial.is_done; i++) {
		assert_true(i < LPI_NS_SIM_TURNS_MAX);
		(void)lpi_ns_sim_turn(run->sim);
	}
}

static void run_change(struct run *run, uint32_t home)
{
	lpi_trial_begin(&run->trial, home, run->kind);
	turn_until_done(run);
	assert_int_equal(run->trial.op.result, run->kind->result);
	run->told_event = lp_sim_event_count(device_of(run));
}

/* Its namespaces have stopped. */
static void run_end(struct run *run)
{
	lp_test_ok(lpi_ns_sim_close(run->sim, false));
	lpi_ns_sim_fini(run->sim);
	free(run->sim);
}

/* The state that a machine finds when it starts with this device. The device is gone afterwards. */
static void recover(struct lp_bdev *bdev, bool with_fsck, struct lpi_ns_text *ret_text)
{
	struct lpi_ns_sim *sim = lpi_ns_sim_boot(bdev);
	lp_test_ok(lpi_ns_sim_start(sim));
	const struct lpi_ns_hands hands = {LPI_NS_SIM_SHARDS, sim->hand};
	lpi_ns_describe(&hands, ret_text);
	lpi_ns_sim_stop(sim);
	lp_test_ok(lpi_ns_sim_close(sim, false));
	if (with_fsck)
		lpi_ns_sim_fsck(sim);
	lpi_ns_sim_fini(sim);
	free(sim);
	state_cnt++;
}

static void check(struct run *run, uint64_t event, const struct lpi_ns_text *found)
{
	bool must_be = event >= run->told_event;
	if (lpi_ns_text_is_same(found, &run->after) ||
	    (!must_be && lpi_ns_text_is_same(found, &run->before)))
		return;
	print_error("%s, cut at %llu of %llu:\n%.*s\nbefore:\n%.*s\nafter:\n%.*s\n",
		    run->kind->name, (unsigned long long)event, (unsigned long long)run->told_event,
		    (int)found->len, found->bytes, (int)run->before.len, run->before.bytes,
		    (int)run->after.len, run->after.bytes);
	fail();
}

/* The start from this device is cut at each of its events, or at some. */
static void cut_start(struct run *run, uint64_t event, struct lp_bdev *bdev, uint64_t every)
{
	struct lpi_ns_sim *sim = lpi_ns_sim_boot(bdev);
	struct lp_sim_cutter *cutter = NULL;
	struct lpi_ns_text found;
	lp_test_ok(lpi_ns_sim_start(sim));
	lp_test_ok(lp_sim_cutter_new(lp_sim_of(bdev), NULL, &cutter));
	for (uint64_t i = 1; lp_sim_cutter_next(cutter); i++) {
		if (i % every != 0)
			continue;
		recover(lp_sim_cutter_cut(cutter, event * 1000 + i), i % 8 == 0, &found);
		check(run, event, &found);
	}
	lp_sim_cutter_free(cutter);
	lpi_ns_sim_stop(sim);
	lp_test_ok(lpi_ns_sim_close(sim, false));
	lpi_ns_sim_fini(sim);
	free(sim);
}

/* At every event of the run, one of `nested` with its start cut as well. */
static void cut_run(struct run *run, uint64_t seed, uint64_t nested)
{
	struct lp_sim_cutter *cutter = NULL;
	struct lpi_ns_text found;
	lp_test_ok(lp_sim_cutter_new(device_of(run), NULL, &cutter));
	recover(lp_sim_cutter_cut(cutter, seed), true, &run->before);
	struct lp_bdev *last = NULL;
	uint64_t cnt = lp_sim_event_count(device_of(run));
	assert_true(cnt >= run->told_event && run->told_event > 0);
	lp_test_ok(lp_sim_image_at(device_of(run), cnt - 1, NULL, seed, &last));
	recover(last, true, &run->after);
	assert_true(lpi_ns_text_is_same(&run->before, &run->after) == (run->kind->result < 0));
	while (lp_sim_cutter_next(cutter)) {
		uint64_t event = lp_sim_cutter_event(cutter);
		if (is_cut(event, seed)) {
			recover(lp_sim_cutter_cut(cutter, seed + event), event % 6 == 0, &found);
			check(run, event, &found);
		}
		if (event % (nested * LP_MIN(stride(), 8)) == seed % nested)
			cut_start(run, event, lp_sim_cutter_cut(cutter, seed + event),
				  lp_test_factor() > 1 ? 1 : 5 * stride());
	}
	lp_sim_cutter_free(cutter);
}

static void test_every_cut(void **state)
{
	(void)state;
	/* With a sanitizer some kinds: each takes seconds there, and pact_test has all of them. */
	for (size_t i = 0; i<LPI_TRIAL_KINDS; i += stride()> 1 ? 4 : 1) {
		struct run run;
		uint64_t seed = i + 1 + lp_test_seed_shift();
		run_begin(&run, &lpi_trial_kinds[i], seed);
		run_change(&run, (uint32_t)(i % LPI_NS_SIM_SHARDS));
		/* Until everybody has finished and nothing is left of it. */
		lpi_ns_sim_stop(run.sim);
		cut_run(&run, seed, lp_test_factor() > 1 ? 1 : 37);
		run_end(&run);
	}
}

/* --- With an open inode ----------------------------------------------------------------------- */

/* The orphan, whose mark is part of the change, is gone after the next start. */
static void test_open(void **state)
{
	(void)state;
	struct run run;
	run_begin(&run, &lpi_trial_kinds[4], 77);
	lp_test_ok(lpi_opens_add(run.sim->ns[1]->opens, run.trial.world.h, 1));
	run_change(&run, 0);
	assert_int_equal(lpi_opens_orphans(run.sim->ns[1]->opens), 1);
	lpi_ns_sim_stop(run.sim);
	cut_run(&run, 77, stride() > 1 ? 1000 : 53);
	run_end(&run);
}

/* --- The first start -------------------------------------------------------------------------- */

/* There is a root afterwards, whenever it was cut. */
static void test_first_start(void **state)
{
	(void)state;
	struct run run = {.kind = &lpi_trial_kinds[0]};
	struct lp_sim_cutter *cutter = NULL;
	struct lpi_ns_text found;
	run.sim = lpi_ns_sim_boot(lpi_ns_sim_mkfs(5));
	lp_sim_trim_log(device_of(&run));
	lp_test_ok(lpi_ns_sim_start(run.sim));
	lpi_ns_sim_stop(run.sim);
	lp_test_ok(lp_sim_cutter_new(device_of(&run), NULL, &cutter));
	recover(lp_sim_cutter_cut(cutter, 5), true, &run.after);
	while (lp_sim_cutter_next(cutter)) {
		uint64_t event = lp_sim_cutter_event(cutter);
		if (!is_cut(event, 5))
			continue;
		recover(lp_sim_cutter_cut(cutter, event), event % 5 == 0, &found);
		assert_true(lpi_ns_text_is_same(&found, &run.after));
	}
	lp_sim_cutter_free(cutter);
	run_end(&run);
}

/* --- Many changes at once --------------------------------------------------------------------- */

/* Kinds that take nothing from each other, in any order. */
static const uint32_t together[] = {0, 2, 5, 7, 8, 9, 10};
#define TOGETHER LP_ARRAY_SIZE(together)

static bool has(const struct lpi_ns_text *text, const char *line)
{
	return memmem(text->bytes, text->len, line, strlen(line)) != NULL;
}

/* Whether a change is there, by the name that it makes or takes away. */
static bool is_made(uint32_t kind, const struct lpi_ns_text *text)
{
	switch (kind) {
	case 0:
		return has(text, " 0: new ->");
	case 5:
		return !has(text, " 2: g ->");
	case 7:
		return has(text, " 2: sub ->");
	case 8:
		return !has(text, " 0: e ->");
	case 9:
		return !has(text, " 0: s ->");
	default:
		return false;
	}
}

/* All that was told is there; the checker finds no fault, so each is there as a whole; and nothing
 * is left half done. */
static void check_many(const struct lpi_trial *trials, const struct lpi_ns_text *found)
{
	for (size_t i = 0; i < TOGETHER; i++)
		if (trials[i].is_done && trials[i].op.result == 0)
			assert_true(is_made(together[i], found));
	assert_false(has(found, "record"));
	assert_false(has(found, "sealed"));
}

static void many_at_once(uint64_t seed)
{
	struct run run;
	struct lpi_trial trials[TOGETHER];
	struct lpi_ns_text found;
	struct lp_prng prng;
	lp_prng_init(&prng, seed);
	run_begin(&run, &lpi_trial_kinds[0], seed);
	for (size_t i = 0; i < TOGETHER; i++) {
		trials[i] = (struct lpi_trial){.world = run.trial.world};
		lpi_trial_begin(&trials[i], (uint32_t)lp_prng_below(&prng, LPI_NS_SIM_SHARDS),
				&lpi_trial_kinds[together[i]]);
		for (uint64_t turns = lp_prng_below(&prng, 12); turns > 0; turns--)
			(void)lpi_ns_sim_turn(run.sim);
	}
	for (uint64_t turns = lp_prng_below(&prng, 60); turns > 0; turns--)
		(void)lpi_ns_sim_turn(run.sim);
	struct lp_sim *sim = device_of(&run);
	struct lp_bdev *left = NULL;
	lp_test_ok(lp_sim_image_at(sim, lp_sim_event_count(sim) - 1, NULL, seed, &left));
	recover(left, true, &found);
	check_many(trials, &found);
	lpi_ns_sim_stop(run.sim);
	for (size_t i = 0; i < TOGETHER; i++)
		assert_int_equal(trials[i].op.result, lpi_trial_kinds[together[i]].result);
	run_end(&run);
}

static void test_many_at_once(void **state)
{
	(void)state;
	uint64_t runs = (stride() > 1 ? 2 : 16) * lp_test_factor();
	uint64_t first = 1 + lp_test_seed_shift();
	for (uint64_t seed = first; seed < first + runs; seed++)
		many_at_once(seed);
}

static void test_tell(void **state)
{
	(void)state;
	lp_test_tell_crash_states(state_cnt);
	assert_true(state_cnt > 10);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_cut),   cmocka_unit_test(test_open),
		cmocka_unit_test(test_first_start), cmocka_unit_test(test_many_at_once),
		cmocka_unit_test(test_tell),
	};
	return lp_test_main(tests, "namespace/shard/crash");
}
