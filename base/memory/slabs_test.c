/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: objects are each other's neighbours, never on top of each other, aligned, and keep what was
 * written; memory is used again, also by other sizes, and goes back when nothing is out; without
 * memory there is NULL and nothing is lost.
 * Method: sizes at random beside an array that knows what is out; an aligned_alloc() of our own,
 * which fails. */
#include "base/memory/slabs.h"
#include "base/testing/test.h"

#include "base/prng.h"

#define OBJECTS UINT64_C(4000)
#define MIB     (UINT64_C(1) << 20)

static bool is_short;

/* In place of the C library's: pieces come from here. */
void *lp_test_aligned_alloc(size_t alignment, size_t size) __asm__("aligned_alloc");

void *lp_test_aligned_alloc(size_t alignment, size_t size)
{
	void *memory = NULL;
	return !is_short && posix_memalign(&memory, alignment, size) == 0 ? memory : NULL;
}

struct object {
	uint8_t *at; /* NULL: none */
	size_t bytes;
	uint8_t fill;
};

static void take(struct lp_slabs *slabs, struct object *object, size_t bytes, uint8_t fill)
{
	*object = (struct object){lp_slabs_get(slabs, bytes), bytes, fill};
	assert_non_null(object->at);
	assert_int_equal((uintptr_t)object->at % 16, 0);
	memset(object->at, fill, bytes);
}

static void give(struct lp_slabs *slabs, struct object *object)
{
	for (size_t i = 0; i < object->bytes; i++)
		assert_int_equal(object->at[i], object->fill);
	lp_slabs_put(slabs, object->at, object->bytes);
	object->at = NULL;
}

static void random_objects(uint64_t expected_bytes, size_t bytes_max, uint64_t seed)
{
	static struct object objects[OBJECTS];
	struct lp_slabs *slabs = NULL;
	struct lp_prng prng;
	lp_prng_init(&prng, seed);
	lp_test_ok(lp_slabs_new(expected_bytes, &slabs));
	assert_int_equal(lp_slabs_bytes(slabs), 0);
	for (uint32_t round = 0; round < 40000; round++) {
		/* Now most are out, now few. */
		uint32_t most = round / 10000 % 2 == 0 ? OBJECTS : OBJECTS / 50;
		struct object *object = &objects[lp_prng_below(&prng, OBJECTS)];
		if (object->at != NULL)
			give(slabs, object);
		else if ((uint32_t)(object - objects) < most)
			take(slabs, object, 1 + lp_prng_below(&prng, bytes_max), (uint8_t)round);
	}
	for (uint32_t i = 0; i < OBJECTS; i++) {
		if (objects[i].at != NULL)
			give(slabs, &objects[i]);
	}
	/* One piece stays, and a slab for each class. */
	assert_true(lp_slabs_bytes(slabs) <= 3 * MIB);
	lp_slabs_free(slabs);
}

static void test_random(void **state)
{
	(void)state;
	random_objects(MIB, 64, 1);
	random_objects(MIB, LP_SLABS_OBJECT_MAX + 500, 2);
	random_objects(1024 * MIB, LP_SLABS_OBJECT_MAX, 3);
}

/* Many of one size, all of which go; then of another. */
static void test_memory_goes_back(void **state)
{
	static struct object objects[OBJECTS];
	struct lp_slabs *slabs = NULL;
	(void)state;
	lp_test_ok(lp_slabs_new(MIB, &slabs));
	for (uint32_t i = 0; i < OBJECTS; i++)
		take(slabs, &objects[i], 500, (uint8_t)i);
	uint64_t most = lp_slabs_bytes(slabs);
	assert_true(most >= OBJECTS * 500 && most <= OBJECTS * 512 * 11 / 10 + MIB / 2);
	for (uint32_t i = 0; i < OBJECTS; i++)
		give(slabs, &objects[i]);
	assert_true(lp_slabs_bytes(slabs) <= MIB / 2);
	for (uint32_t i = 0; i < OBJECTS; i++)
		take(slabs, &objects[i], 40, (uint8_t)i);
	assert_true(lp_slabs_bytes(slabs) <= MIB);
	for (uint32_t i = 0; i < OBJECTS; i++)
		give(slabs, &objects[i]);
	lp_slabs_put(slabs, NULL, 40);
	lp_slabs_free(slabs);
	lp_slabs_free(NULL);
}

/* The object that came back last goes out next, and a slab is not cut anew each time. */
static void test_last_first(void **state)
{
	struct lp_slabs *slabs = NULL;
	struct object a;
	struct object b;
	(void)state;
	lp_test_ok(lp_slabs_new(MIB, &slabs));
	take(slabs, &a, 100, 1);
	take(slabs, &b, 100, 2);
	assert_ptr_equal(b.at, a.at + 128);
	uint8_t *last = a.at;
	give(slabs, &b);
	give(slabs, &a);
	take(slabs, &a, 97, 3);
	assert_ptr_equal(a.at, last);
	give(slabs, &a);
	lp_slabs_free(slabs);
}

static void test_no_memory(void **state)
{
	static struct object objects[OBJECTS];
	struct lp_slabs *slabs = NULL;
	uint32_t cnt = 0;
	(void)state;
	lp_test_ok(lp_slabs_new(MIB, &slabs));
	take(slabs, &objects[cnt++], 1000, 0);
	is_short = true;
	for (; cnt < OBJECTS; cnt++) {
		objects[cnt] = (struct object){lp_slabs_get(slabs, 1000), 1000, (uint8_t)cnt};
		if (objects[cnt].at == NULL)
			break;
		memset(objects[cnt].at, objects[cnt].fill, 1000);
	}
	assert_true(cnt > 100 && cnt < OBJECTS);
	assert_null(lp_slabs_get(slabs, 1000));
	give(slabs, &objects[--cnt]);
	take(slabs, &objects[cnt], 1000, (uint8_t)cnt);
	cnt++;
	is_short = false;
	take(slabs, &objects[cnt], 1000, (uint8_t)cnt);
	cnt++;
	while (cnt > 0)
		give(slabs, &objects[--cnt]);
	lp_slabs_free(slabs);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_random),
		cmocka_unit_test(test_memory_goes_back),
		cmocka_unit_test(test_last_first),
		cmocka_unit_test(test_no_memory),
	};
	return lp_test_main(tests, "slabs");
}
