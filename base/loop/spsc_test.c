/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: order, no loss and no duplicate between two threads; full and empty are exact; nothing
 * staged is seen before it is published.
 * Method: the edges on one thread; then two threads with random batches over rings of several
 * sizes, where each item carries its number in memory that only the ring's ordering protects. */
#include "base/testing/test.h"

#include <sched.h>

#include "base/loop/spsc.h"
#include "base/prng.h"
#include "base/testing/test_death.h"

static int numbers[64];

static void test_full_and_empty(void **state)
{
	(void)state;
	struct lp_spsc ring;
	for (uint32_t capacity = 1; capacity <= 8; capacity *= 2) {
		lp_test_ok(lp_spsc_init(&ring, capacity));
		assert_int_equal(lp_spsc_capacity(&ring), capacity);
		assert_true(lp_spsc_is_empty(&ring));
		assert_null(lp_spsc_pop(&ring));
		for (uint32_t lap = 0; lap < 3; lap++) {
			for (uint32_t i = 0; i < capacity; i++) {
				assert_int_equal(lp_spsc_room(&ring), capacity - i);
				lp_test_ok(lp_spsc_push(&ring, &numbers[i]));
			}
			lp_test_err(-EAGAIN, lp_spsc_push(&ring, &numbers[63]));
			assert_int_equal(lp_spsc_room(&ring), 0);
			assert_int_equal(lp_spsc_count(&ring), capacity);
			for (uint32_t i = 0; i < capacity; i++)
				assert_ptr_equal(lp_spsc_pop(&ring), &numbers[i]);
			assert_null(lp_spsc_pop(&ring));
			assert_int_equal(lp_spsc_count(&ring), 0);
		}
		lp_spsc_fini(&ring);
	}
}

static void test_staged_is_invisible(void **state)
{
	(void)state;
	struct lp_spsc ring;
	lp_test_ok(lp_spsc_init(&ring, 4));
	assert_int_equal(lp_spsc_publish(&ring), 0);
	for (int i = 0; i < 4; i++)
		lp_test_ok(lp_spsc_stage(&ring, &numbers[i]));
	/* Staged items take room but do not show. */
	lp_test_err(-EAGAIN, lp_spsc_stage(&ring, &numbers[4]));
	lp_test_err(-EAGAIN, lp_spsc_push(&ring, &numbers[4]));
	assert_true(lp_spsc_is_empty(&ring));
	assert_null(lp_spsc_pop(&ring));
	assert_int_equal(lp_spsc_count(&ring), 0);
	assert_int_equal(lp_spsc_publish(&ring), 4);
	assert_int_equal(lp_spsc_publish(&ring), 0);
	assert_false(lp_spsc_is_empty(&ring));

	void *got[4] = {NULL};
	assert_int_equal(lp_spsc_pop_batch(&ring, got, 0), 0);
	assert_int_equal(lp_spsc_pop_batch(&ring, got, 3), 3);
	for (int i = 0; i < 3; i++)
		assert_ptr_equal(got[i], &numbers[i]);
	assert_null(got[3]);
	assert_int_equal(lp_spsc_pop_batch(&ring, got, 4), 1);
	assert_ptr_equal(got[0], &numbers[3]);

	/* A push publishes items staged before it, in order. */
	lp_test_ok(lp_spsc_stage(&ring, &numbers[5]));
	lp_test_ok(lp_spsc_push(&ring, &numbers[6]));
	assert_int_equal(lp_spsc_pop_batch(&ring, got, 4), 2);
	assert_ptr_equal(got[0], &numbers[5]);
	assert_ptr_equal(got[1], &numbers[6]);
	lp_spsc_fini(&ring);
}

struct run {
	struct lp_spsc ring;
	uint64_t items_cnt;
	uint64_t *values; /* 2 * capacity of them, reused in a circle */
	uint64_t values_mask;
};

/* The value of item n is written just before it is staged. Its memory was last used 2 * capacity
 * items ago, so it has been popped and, by the batch limit below, read. */
static void *produce(void *arg)
{
	struct run *run = arg;
	struct lp_prng prng;
	lp_prng_init(&prng, 1);
	uint64_t sent = 0;
	while (sent < run->items_cnt) {
		uint64_t batch = lp_prng_between(&prng, 1, 7);
		for (uint64_t i = 0; i < batch && sent < run->items_cnt; i++) {
			if (lp_spsc_room(&run->ring) == 0)
				break;
			uint64_t *value = &run->values[sent & run->values_mask];
			*value = sent;
			if (lp_spsc_stage(&run->ring, value) != 0)
				return value; /* room was promised */
			sent++;
		}
		if (lp_spsc_publish(&run->ring) == 0)
			(void)sched_yield();
	}
	return NULL;
}

static uint64_t consume(struct run *run)
{
	struct lp_prng prng;
	lp_prng_init(&prng, 2);
	void *items[8];
	uint64_t received = 0;
	while (received < run->items_cnt) {
		/* No more than the ring holds: at most 2 * capacity values are then in use. */
		uint64_t most = LP_MIN(UINT64_C(8), (uint64_t)lp_spsc_capacity(&run->ring));
		uint32_t max = (uint32_t)lp_prng_between(&prng, 1, most);
		uint32_t cnt = lp_spsc_pop_batch(&run->ring, items, max);
		for (uint32_t i = 0; i < cnt; i++) {
			const uint64_t *value = items[i];
			if (*value != received)
				return received;
			received++;
		}
		if (cnt == 0)
			(void)sched_yield();
	}
	return received;
}

static void test_two_threads(void **state)
{
	(void)state;
	static const uint32_t capacities[] = {1, 2, 8, 1024};
	for (size_t i = 0; i < LP_ARRAY_SIZE(capacities); i++) {
		struct run run = {.items_cnt = capacities[i] == 1 ? 20000 : 200000,
				  .values_mask = 2 * (uint64_t)capacities[i] - 1};
		run.values = calloc(run.values_mask + 1, sizeof(*run.values));
		assert_non_null(run.values);
		lp_test_ok(lp_spsc_init(&run.ring, capacities[i]));
		pthread_t producer;
		assert_int_equal(pthread_create(&producer, NULL, produce, &run), 0);
		uint64_t received = consume(&run);
		assert_true(received == run.items_cnt);
		void *problem = NULL;
		assert_int_equal(pthread_join(producer, &problem), 0);
		assert_null(problem);
		assert_true(lp_spsc_is_empty(&run.ring));
		lp_spsc_fini(&run.ring);
		free(run.values);
	}
}

static void *push_one(void *arg)
{
	struct lp_spsc *ring = arg;
	return lp_spsc_push(ring, &numbers[0]) == 0 ? NULL : arg;
}

static void push_from_two_threads(void *arg)
{
	pthread_t other;
	(void)push_one(arg);
	(void)pthread_create(&other, NULL, push_one, arg);
	(void)pthread_join(other, NULL);
}

static void push_null(void *arg)
{
	if (lp_spsc_push(arg, NULL) != 0)
		_exit(1);
}

static void test_misuse_dies(void **state)
{
	(void)state;
	struct lp_spsc ring;
	lp_test_ok(lp_spsc_init(&ring, 8));
	lp_test_dies(push_null, &ring);
	assert_int_equal(lp_test_aborts(push_from_two_threads, &ring), LP_ASSERT_SLOW_ON);

	/* A side that is handed over properly may move. */
	lp_test_ok(lp_spsc_push(&ring, &numbers[1]));
	lp_spsc_rebind_producer(&ring);
	pthread_t other;
	void *problem = NULL;
	assert_int_equal(pthread_create(&other, NULL, push_one, &ring), 0);
	assert_int_equal(pthread_join(other, &problem), 0);
	assert_null(problem);
	assert_ptr_equal(lp_spsc_pop(&ring), &numbers[1]);
	lp_spsc_rebind_consumer(&ring);
	assert_ptr_equal(lp_spsc_pop(&ring), &numbers[0]);
	lp_spsc_fini(&ring);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_full_and_empty),
		cmocka_unit_test(test_staged_is_invisible),
		cmocka_unit_test(test_two_threads),
		cmocka_unit_test(test_misuse_dies),
	};
	return lp_test_main(tests, "base/loop/spsc");
}
