/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: a point read sees the newest put or delete of any group that is not dropped yet (rule W1:
 * point reads see pending objects), and which group it is of, and nothing of groups that are.
 * Method: random puts in three groups, dropped in order, against an array with the newest value
 * per key and group. */
#include "base/testing/test.h"

#include "base/assert.h"
#include "base/prng.h"
#include "store/commit/overlay.h"

#define KEYS   40u
#define GROUPS 3u

struct group {
	struct lp_overlay_group entries;
	struct lp_arena arena;
	bool has[KEYS];
	uint32_t value[KEYS]; /* 0: deleted */
};

static struct lp_overlay *overlay;

static void put(struct group *group, uint64_t name, uint32_t key, uint32_t value)
{
	const struct lp_overlay_entry entry = {.group = name,
					       .key = (const uint8_t *)&key,
					       .key_len = sizeof(key),
					       .value = value == 0 ? NULL : (const uint8_t *)&value,
					       .value_len = value == 0 ? 0 : sizeof(value)};
	lp_test_ok(lp_overlay_put(overlay, &group->entries, &group->arena, &entry));
	group->has[key] = true;
	group->value[key] = value;
}

static void check(const struct group *groups, uint32_t from, uint32_t to)
{
	for (uint32_t key = 0; key < KEYS; key++) {
		enum lp_overlay_result want = LP_OVERLAY_NONE;
		uint32_t want_value = 0;
		uint64_t want_group = 0;
		for (uint32_t g = from; g < to; g++) {
			const struct group *group = &groups[g % GROUPS];
			if (!group->has[key])
				continue;
			want_value = group->value[key];
			want_group = g;
			want = want_value == 0 ? LP_OVERLAY_DELETED : LP_OVERLAY_FOUND;
		}
		const struct lp_overlay_entry *entry = NULL;
		assert_int_equal(lp_overlay_find(overlay, &key, sizeof(key), &entry), want);
		if (want == LP_OVERLAY_NONE)
			continue;
		assert_int_equal(entry->group, want_group);
		assert_int_equal(entry->value == NULL, want == LP_OVERLAY_DELETED);
		if (want != LP_OVERLAY_FOUND)
			continue;
		assert_int_equal(entry->value_len, sizeof(want_value));
		assert_memory_equal(entry->value, &want_value, sizeof(want_value));
	}
}

static void reset(struct group *group)
{
	lp_overlay_drop(overlay, &group->entries);
	lp_arena_reset(&group->arena);
	memset(group->has, 0, sizeof(group->has));
}

static void test_groups_in_order(void **state)
{
	(void)state;
	static struct group groups[GROUPS];
	struct lp_prng prng;
	lp_prng_init(&prng, 11);
	/* Few buckets, so that chains are long. */
	lp_test_ok(lp_overlay_new(8, 5, &overlay));
	for (uint32_t g = 0; g < GROUPS; g++)
		lp_test_ok(lp_arena_init(&groups[g].arena, 4096, 1 << 20));
	uint32_t from = 0;
	uint32_t to = 1;
	for (int step = 0; step < 3000; step++) {
		uint64_t dice = lp_prng_below(&prng, 20);
		if (dice == 0 && to - from < GROUPS)
			to++; /* the next group collects */
		else if (dice == 1 && to - from > 1)
			reset(&groups[from++ % GROUPS]); /* the oldest was inserted */
		else
			put(&groups[(to - 1) % GROUPS], to - 1,
			    (uint32_t)lp_prng_below(&prng, KEYS),
			    (uint32_t)lp_prng_below(&prng, 4));
		check(groups, from, to);
	}
	while (from < to)
		reset(&groups[from++ % GROUPS]);
	assert_int_equal(lp_overlay_cnt(overlay), 0);
	for (uint32_t g = 0; g < GROUPS; g++)
		lp_arena_fini(&groups[g].arena);
	lp_overlay_free(overlay);
}

static void test_arena_full(void **state)
{
	(void)state;
	struct lp_arena arena;
	struct lp_overlay_group group = {0};
	uint8_t big[600] = {0};
	const struct lp_overlay_entry entry = {
		.key = big, .key_len = sizeof(big), .value = big, .value_len = 1};
	lp_test_ok(lp_overlay_new(8, 5, &overlay));
	lp_test_ok(lp_arena_init(&arena, 512, 512));
	lp_test_err(-ENOMEM, lp_overlay_put(overlay, &group, &arena, &entry));
	assert_int_equal(lp_overlay_cnt(overlay), 0);
	lp_overlay_drop(overlay, &group);
	lp_arena_fini(&arena);
	lp_overlay_free(overlay);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_groups_in_order),
		cmocka_unit_test(test_arena_full),
	};
	return lp_test_main(tests, "store/commit/overlay");
}
