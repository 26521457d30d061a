/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: on every device what is kept for the index suffices for a flush and a compaction, and is no
 * more than an eighth of it; wishes are followed (rule L8).
 * Method: plans for devices from the smallest to the largest, compared with what the index asks. */
#include "base/testing/test.h"

#include "store/index/kv.h"
#include "store/index/plan.h"

#define MIB (UINT64_C(1) << 20)

static struct lp_index_plan plan_of(struct lp_index_wish wish)
{
	struct lp_index_plan plan;
	lp_index_make_plan(&wish, &plan);
	const struct lp_kv_options options = {.write_buffer_bytes = plan.buffer_bytes + MIB / 4};
	if (wish.reserve_bytes == 0) {
		/* The room at which growth ends is what the index asks. */
		assert_true(plan.grow_bytes + 8 >= lp_kv_reserve_bytes(&options));
	}
	assert_true(plan.rewrite_bytes < plan.grow_bytes);
	assert_true(plan.grow_bytes < plan.reserve_bytes);
	return plan;
}

static void test_share(void **state)
{
	(void)state;
	static const uint32_t shards[] = {1, 2, 7};
	for (uint64_t mib = 64; mib <= (UINT64_C(1) << 24); mib += mib / 3) {
		for (size_t i = 0; i < LP_ARRAY_SIZE(shards); i++) {
			struct lp_index_plan plan = plan_of((struct lp_index_wish){
				.device_bytes = mib * MIB, .shard_cnt = shards[i]});
			bool is_least = plan.buffer_bytes == MIB / 16;
			assert_true(is_least || plan.reserve_bytes * shards[i] <= mib * MIB / 8);
			/* Nor far less, while it is the device that decides. */
			bool is_most = plan.buffer_bytes + MIB / 16 > 256 * MIB / 12;
			assert_true(is_most || mib < UINT64_C(512) * shards[i] ||
				    plan.reserve_bytes * shards[i] >= mib * MIB / 32);
		}
	}
}

static void test_memory_decides(void **state)
{
	(void)state;
	uint64_t before = 0;
	for (uint64_t memory = 16 * MIB; memory <= 2048 * MIB; memory *= 2) {
		struct lp_index_plan plan = plan_of((struct lp_index_wish){
			.device_bytes = UINT64_C(1) << 40, .shard_cnt = 1, .memory_bytes = memory});
		assert_true(plan.buffer_bytes * 12 <= memory);
		assert_true(plan.buffer_bytes <= 64 * MIB);
		assert_true(plan.buffer_bytes > before || plan.buffer_bytes == 64 * MIB);
		before = plan.buffer_bytes;
	}
	struct lp_index_plan plan =
		plan_of((struct lp_index_wish){.device_bytes = UINT64_C(1) << 40, .shard_cnt = 1});
	assert_int_equal(plan.buffer_bytes, 21 * MIB + 5 * MIB / 16);
}

static void test_wishes(void **state)
{
	(void)state;
	struct lp_index_plan plan = plan_of((struct lp_index_wish){
		.device_bytes = 256 * MIB, .shard_cnt = 1, .buffer_bytes = 3 * MIB});
	assert_int_equal(plan.buffer_bytes, 3 * MIB);
	assert_int_equal(plan.reserve_bytes, 91 * MIB);
	plan = plan_of((struct lp_index_wish){.device_bytes = 256 * MIB,
					      .shard_cnt = 1,
					      .buffer_bytes = 3 * MIB,
					      .reserve_bytes = 5 * MIB});
	assert_int_equal(plan.buffer_bytes, 3 * MIB);
	assert_int_equal(plan.reserve_bytes, 5 * MIB);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_share),
		cmocka_unit_test(test_memory_decides),
		cmocka_unit_test(test_wishes),
	};
	return lp_test_main(tests, "store/index/plan");
}
