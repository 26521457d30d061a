/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: memory that was used and freed does not stay resident beyond the limit. Within the limit
 * nothing is done, and releases without effect become less frequent. Memory that cannot be given
 * back is reported up to a limit, so that the caches do without it (P5), and the report is taken
 * back later. Method: a simulated clock, helpers without threads, holes made in the heap by hand.
 */
#include "base/testing/test.h"

#include <stdlib.h>

#include "base/sanitize.h"
#include "daemon/report/giveback.h"
#include "daemon/report/heap.h"

#define HOLES      65536u
#define HOLE_BYTES 4080u /* with its frame 4 KiB: all together 256 MiB */
#define STRIDE     16u   /* of so many one stays, so the heap does not shrink by itself */

struct rig {
	struct lp_clock_sim sim;
	struct lp_reactor *reactor;
	struct lp_workers *workers;
	struct lpi_giveback giveback;
	void *holes[HOLES];
};

static void rig_start(struct rig *rig)
{
	memset(rig, 0, sizeof(*rig));
	lp_clock_sim_init(&rig->sim, LP_NS_PER_S, 0);
	const struct lp_reactor_options options = {
		.name = "test", .clock = &rig->sim.clock, .sim = &rig->sim};
	lp_test_ok(lp_reactor_new(&options, &rig->reactor));
	lp_test_ok(lp_reactor_start(rig->reactor));
	lp_test_ok(lp_workers_new(0, &rig->workers));
}

static void rig_stop(struct rig *rig)
{
	for (uint32_t i = 0; i < HOLES; i++)
		free(rig->holes[i]);
	lp_workers_free(rig->workers);
	lp_reactor_free(rig->reactor);
	free(rig);
}

static void look(struct rig *rig, uint64_t after_ns)
{
	lp_clock_sim_advance_to(&rig->sim, rig->sim.now_ns + after_ns);
	(void)lp_reactor_turn(rig->reactor, false);
	lpi_giveback_look(&rig->giveback, rig->workers, rig->reactor);
	while (!lpi_giveback_is_idle(&rig->giveback))
		(void)lp_reactor_turn(rig->reactor, false);
}

static void make_holes(struct rig *rig)
{
	for (uint32_t i = 0; i < HOLES; i++) {
		rig->holes[i] = malloc(HOLE_BYTES);
		assert_non_null(rig->holes[i]);
		memset(rig->holes[i], 1, HOLE_BYTES);
	}
	for (uint32_t i = 0; i < HOLES; i++) {
		if (i % STRIDE == 0)
			continue;
		free(rig->holes[i]);
		rig->holes[i] = NULL;
	}
}

static void test_holes_are_given_back(void **state)
{
	(void)state;
	if (LP_SAN_ADDRESS || LP_SAN_THREAD) {
		printf("skip: a sanitizer's malloc keeps what is freed\n");
		skip();
	}
	struct rig *rig = malloc(sizeof(*rig));
	assert_non_null(rig);
	rig_start(rig);
	uint64_t before = lpi_heap_rss_bytes();
	make_holes(rig);
	assert_true(lpi_heap_rss_bytes() > before + (UINT64_C(192) << 20));
	lpi_giveback_init(&rig->giveback, before + (UINT64_C(96) << 20));
	look(rig, LP_NS_PER_S);
	assert_int_equal(rig->giveback.cnt, 1);
	assert_true(lpi_heap_rss_bytes() < before + (UINT64_C(96) << 20));
	look(rig, LP_NS_PER_S);
	assert_int_equal(rig->giveback.cnt, 1); /* within the limit */
	rig_stop(rig);
}

static void test_seldom_where_it_does_not_help(void **state)
{
	(void)state;
	struct rig *rig = malloc(sizeof(*rig));
	assert_non_null(rig);
	rig_start(rig);
	lpi_giveback_init(&rig->giveback, 1024);
	for (uint32_t i = 0; i < 1024; i++)
		look(rig, LP_NS_PER_S);
	/* Each second until the caches can do without no more, which takes 16 looks; then after 1,
	 * 2, 4, ... 32, 64, 64, ... seconds. */
	assert_in_range(rig->giveback.cnt, 16 + 6 + 14, 17 + 6 + 16);
	rig_stop(rig);
}

static void rest(struct rig *rig, bool has_given)
{
	lpi_giveback_rest(&rig->giveback, has_given, rig->workers, rig->reactor);
	while (!lpi_giveback_is_idle(&rig->giveback))
		(void)lp_reactor_turn(rig->reactor, false);
}

/* However little memory the process has. */
static void test_what_rested(void **state)
{
	(void)state;
	struct rig *rig = malloc(sizeof(*rig));
	assert_non_null(rig);
	rig_start(rig);
	lpi_giveback_init(&rig->giveback, lpi_heap_rss_bytes() * 4);
	look(rig, LP_NS_PER_S);
	assert_false(lpi_giveback_is_short(&rig->giveback));
	for (uint32_t i = 0; i < 30; i++)
		rest(rig, false);
	assert_int_equal(rig->giveback.cnt, 0); /* nothing was given */
	rest(rig, true);
	rest(rig, true);
	assert_int_equal(rig->giveback.cnt, 0); /* more may come */
	rest(rig, false);
	assert_int_equal(rig->giveback.cnt, 1);
	for (uint32_t i = 0; i < 30; i++)
		rest(rig, false);
	assert_int_equal(rig->giveback.cnt, 1);
	/* If the stores go on giving, at intervals. */
	for (uint32_t i = 0; i < 30; i++)
		rest(rig, true);
	assert_in_range(rig->giveback.cnt, 3, 5);
	/* Too much memory is reported. */
	rig->giveback.limit_bytes = 1024;
	look(rig, LP_NS_PER_S);
	assert_true(lpi_giveback_is_short(&rig->giveback));
	rig_stop(rig);
}

static void test_what_is_lost(void **state)
{
	(void)state;
	struct rig *rig = malloc(sizeof(*rig));
	assert_non_null(rig);
	rig_start(rig);
	uint64_t memory_bytes = lpi_heap_rss_bytes() / 4 * 3;
	lpi_giveback_init(&rig->giveback, memory_bytes);
	look(rig, LP_NS_PER_S);
	assert_int_equal(rig->giveback.lost_bytes, 0); /* memory given back is not lost */
	look(rig, LP_NS_PER_S);
	uint64_t step_bytes = rig->giveback.lost_bytes;
	assert_in_range(step_bytes, 1, memory_bytes / 32);
	for (uint32_t i = 0; i < 64; i++)
		look(rig, LP_NS_PER_S);
	assert_int_equal(rig->giveback.lost_bytes, memory_bytes / LPI_GIVEBACK_LOST_SHARE);
	/* As if the process had become smaller. */
	rig->giveback.limit_bytes *= 4;
	look(rig, LP_NS_PER_S);
	assert_int_equal(rig->giveback.lost_bytes, memory_bytes / LPI_GIVEBACK_LOST_SHARE);
	rig->giveback.memory_bytes *= 4;
	uint64_t before_bytes = rig->giveback.lost_bytes;
	look(rig, LP_NS_PER_S);
	assert_in_range(before_bytes - rig->giveback.lost_bytes, 1, step_bytes);
	for (uint32_t i = 0; i < 512; i++)
		look(rig, LP_NS_PER_S);
	assert_int_equal(rig->giveback.lost_bytes, 0);
	rig_stop(rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_holes_are_given_back),
		cmocka_unit_test(test_seldom_where_it_does_not_help),
		cmocka_unit_test(test_what_rested),
		cmocka_unit_test(test_what_is_lost),
	};
	return lp_test_main(tests, "daemon/report/giveback");
}
