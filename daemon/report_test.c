/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: what the state says is available is what objects may have: not what is kept for cuts of
 * shared blocks (P6), but what no shard has leased yet.
 * Method: a report of numbers that are known. */
#include "daemon/report.h"

#include "base/test.h"
#include "wire/wire.h"

static void test_available(void **state)
{
	static struct lpi_shard_report shards[2];
	struct lpi_text text = {.bytes = NULL};
	char wanted[64];
	(void)state;
	shards[0].store =
		(struct lp_store_stats){.free_blocks = 1000, .kept_blocks = 64, .used_blocks = 30};
	shards[1].store =
		(struct lp_store_stats){.free_blocks = 20, .kept_blocks = 20, .used_blocks = 3};
	const struct lpi_report report = {.server = "lapisd",
					  .allocator = "none",
					  .store_kind = "block",
					  .state = "ok",
					  .reason = "",
					  .shard_cnt = 2,
					  .shards = shards,
					  .unleased_bytes = 1 << 20};
	lpi_report_status(&report, &text);
	assert_false(text.failed);
	(void)snprintf(wanted, sizeof(wanted), "\"available_bytes\": %u,", 936 * 4096 + (1 << 20));
	assert_non_null(strstr(text.bytes, wanted));
	assert_non_null(strstr(text.bytes, "\"used_bytes\": 135168,"));
	lpi_text_fini(&text);
	/* One shard takes no more: the other one can have all that is free. Both: nobody can. */
	for (uint32_t i = 0; i < 2; i++) {
		shards[i].store.takes_no_more = true;
		text = (struct lpi_text){.bytes = NULL};
		lpi_report_status(&report, &text);
		assert_false(text.failed);
		assert_int_equal(strstr(text.bytes, wanted) != NULL, i == 0);
		assert_int_equal(strstr(text.bytes, "\"available_bytes\": 0,") != NULL, i == 1);
		lpi_text_fini(&text);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_available),
	};
	return lp_test_main(tests, "daemon/report");
}
