/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: timers come out by deadline, ties in order of insertion, whatever was removed meanwhile.
 * Method: random inserts, removes and pops against a plain array that is searched linearly. */
#include "base/testing/test.h"

#include "base/assert.h"
#include "base/loop/timer.h"
#include "base/prng.h"

#define TIMERS 300

static void never(struct lp_timer *timer)
{
	(void)timer;
	LP_UNREACHABLE();
}

static size_t earliest_idx(const struct lp_timer *timers)
{
	size_t best = TIMERS;
	for (size_t i = 0; i < TIMERS; i++) {
		if (!lp_timer_is_armed(&timers[i]))
			continue;
		if (best == TIMERS || timers[i].deadline_ns < timers[best].deadline_ns ||
		    (timers[i].deadline_ns == timers[best].deadline_ns &&
		     timers[i].order < timers[best].order))
			best = i;
	}
	return best;
}

static void test_against_array(void **state)
{
	(void)state;
	static struct lp_timer timers[TIMERS];
	struct lp_timer_heap heap = {0};
	struct lp_prng prng;
	lp_prng_init(&prng, 1);
	for (size_t i = 0; i < TIMERS; i++)
		timers[i].fire = never;

	for (int step = 0; step < 20000; step++) {
		struct lp_timer *timer = &timers[lp_prng_below(&prng, TIMERS)];
		size_t best = earliest_idx(timers);
		assert_int_equal(lp_timer_heap_next_ns(&heap),
				 best == TIMERS ? UINT64_MAX : timers[best].deadline_ns);
		if (lp_prng_chance(&prng, 1, 3)) {
			uint64_t now = lp_prng_below(&prng, 100);
			struct lp_timer *got = lp_timer_heap_pop_due(&heap, now);
			if (best == TIMERS || timers[best].deadline_ns > now)
				assert_null(got);
			else
				assert_ptr_equal(got, &timers[best]);
		} else if (lp_timer_is_armed(timer)) {
			lp_timer_heap_remove(&heap, timer);
		} else {
			/* Few deadlines, so that ties are common. */
			lp_timer_heap_insert(&heap, timer, lp_prng_below(&prng, 40));
		}
	}
}

static void test_not_due(void **state)
{
	(void)state;
	struct lp_timer timer = {.fire = never};
	struct lp_timer_heap heap = {0};
	lp_timer_heap_insert(&heap, &timer, 10);
	assert_null(lp_timer_heap_pop_due(&heap, 9));
	assert_true(lp_timer_is_armed(&timer));
	assert_ptr_equal(lp_timer_heap_pop_due(&heap, 10), &timer);
	assert_false(lp_timer_is_armed(&timer));
	assert_null(lp_timer_heap_pop_due(&heap, UINT64_MAX));
}

static void test_many_in_order(void **state)
{
	(void)state;
	/* A long run of ascending, then descending inserts: the shapes a naive heap recurses on. */
	enum { COUNT = 100000 };
	struct lp_timer *timers = calloc(COUNT, sizeof(*timers));
	assert_non_null(timers);
	struct lp_timer_heap heap = {0};
	for (uint64_t i = 0; i < COUNT; i++) {
		timers[i].fire = never;
		lp_timer_heap_insert(&heap, &timers[i], i % 2 == 0 ? i : UINT64_C(2) * COUNT - i);
	}
	uint64_t last = 0;
	for (int i = 0; i < COUNT; i++) {
		struct lp_timer *got = lp_timer_heap_pop_due(&heap, UINT64_MAX);
		assert_non_null(got);
		assert_true(got->deadline_ns >= last);
		last = got->deadline_ns;
	}
	free(timers);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_against_array),
		cmocka_unit_test(test_not_due),
		cmocka_unit_test(test_many_in_order),
	};
	return lp_test_main(tests, "base/loop/timer");
}
