/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: the crc of a block written in part is the one its bytes have, without having been computed
 * over them, and no block that is not what its crc says is ever merged with (rule W2).
 * Method: all small and the edge positions of a piece against the crc of the merged bytes; a byte
 * damaged anywhere in the old block; a piece damaged after its crc was made. */
#include "base/testing/test.h"

#include "base/prng.h"
#include "base/testing/test_death.h"
#include "store/record/csum.h"

static uint8_t old_block[4096];
static uint8_t new_block[4096];

static uint32_t fill(struct lp_prng *prng, uint8_t *block)
{
	lp_prng_fill(prng, block, 4096);
	return lp_crc32c(0, block, 4096);
}

static void test_zeros(void **state)
{
	(void)state;
	static const uint8_t zeros[4096];
	assert_int_equal(lp_crc32c_table(0, zeros, 4096), LP_CSUM_ZERO_BLOCK);
	assert_int_equal(lp_csum_zeros(4096), LP_CSUM_ZERO_BLOCK);
	assert_int_equal(lp_csum_zeros(77), lp_crc32c(0, zeros, 77));
	lp_test_ok(lp_csum_verify(zeros, LP_CSUM_ZERO_BLOCK, 5));
}

static void test_verify(void **state)
{
	(void)state;
	struct lp_prng prng;
	lp_prng_init(&prng, 1);
	uint32_t crc = fill(&prng, old_block);
	lp_test_ok(lp_csum_verify(old_block, crc, 7));
	old_block[4095] ^= 1;
	lp_test_err(-EBADMSG, lp_csum_verify(old_block, crc, 7));
	assert_true(lp_corruption_find(0)->offset == UINT64_C(7) * 4096);
}

/* The merged bytes as they would be on the device. */
static void check_merge(uint32_t old_crc, uint32_t offset, uint32_t len)
{
	uint8_t merged[4096];
	struct lp_csum_piece piece = {offset, len, lp_crc32c(0, new_block + offset, len)};
	uint32_t got = 0;
	memcpy(merged, old_block, sizeof(merged));
	memcpy(merged + offset, new_block + offset, len);
	lp_test_ok(lp_csum_merge(old_block, old_crc, 1, &piece, &got));
	assert_int_equal(got, lp_crc32c_table(0, merged, sizeof(merged)));

	memset(merged, 0, sizeof(merged));
	memcpy(merged + offset, new_block + offset, len);
	assert_int_equal(lp_csum_merge_zeros(&piece), lp_crc32c(0, merged, sizeof(merged)));
}

static void test_merge(void **state)
{
	(void)state;
	struct lp_prng prng;
	lp_prng_init(&prng, 2);
	uint32_t crc = fill(&prng, old_block);
	(void)fill(&prng, new_block);
	static const uint32_t edges[] = {1, 2, 7, 511, 512, 513, 2048, 4094, 4095};
	for (size_t i = 0; i < LP_ARRAY_SIZE(edges); i++) {
		check_merge(crc, 0, edges[i]);
		check_merge(crc, edges[i], 4096 - edges[i]);
		check_merge(crc, edges[i], 1);
	}
	check_merge(crc, 0, 4096);
	for (int n = 0; n < 300; n++) {
		uint32_t offset = (uint32_t)lp_prng_below(&prng, 4096);
		uint32_t len = (uint32_t)lp_prng_between(&prng, 1, 4096 - offset);
		check_merge(crc, offset, len);
	}
}

static void test_zero_piece(void **state)
{
	(void)state;
	struct lp_prng prng;
	lp_prng_init(&prng, 3);
	uint32_t crc = fill(&prng, old_block);
	struct lp_csum_piece tail = lp_csum_zero_piece(100, 3996);
	uint32_t got = 0;
	lp_test_ok(lp_csum_merge(old_block, crc, 1, &tail, &got));
	memset(old_block + 100, 0, 3996);
	assert_int_equal(got, lp_crc32c(0, old_block, 4096));
	tail = lp_csum_zero_piece(0, 4096);
	assert_int_equal(tail.crc, LP_CSUM_ZERO_BLOCK);
}

/* In front of, under and behind the piece: each byte of the old block counts, also those that
 * the piece replaces. */
static void test_damaged_old_block(void **state)
{
	(void)state;
	struct lp_prng prng;
	lp_prng_init(&prng, 4);
	uint32_t crc = fill(&prng, old_block);
	struct lp_csum_piece piece = {1000, 2000, 0x12345678};
	static const size_t places[] = {0, 999, 1000, 2999, 3000, 4095};
	for (size_t i = 0; i < LP_ARRAY_SIZE(places); i++) {
		uint32_t got = 77;
		old_block[places[i]] ^= 0x10;
		lp_test_err(-EBADMSG, lp_csum_merge(old_block, crc, 1, &piece, &got));
		assert_int_equal(got, 77);
		old_block[places[i]] ^= 0x10;
	}
}

/* Were the crc computed over the merged bytes, this would pass. */
static void test_damaged_piece_is_seen_later(void **state)
{
	(void)state;
	struct lp_prng prng;
	lp_prng_init(&prng, 5);
	uint32_t crc = fill(&prng, old_block);
	(void)fill(&prng, new_block);
	struct lp_csum_piece piece = {64, 128, lp_crc32c(0, new_block + 64, 128)};
	uint32_t merged_crc = 0;
	lp_test_ok(lp_csum_merge(old_block, crc, 1, &piece, &merged_crc));
	new_block[100] ^= 4; /* our memory fails after the client's crc was verified */
	memcpy(old_block + 64, new_block + 64, 128);
	lp_test_err(-EBADMSG, lp_csum_verify(old_block, merged_crc, 1));
}

static void merge_piece(void *arg)
{
	(void)lp_csum_merge_zeros(arg);
}

static void test_bad_piece_asserts(void **state)
{
	(void)state;
	struct lp_csum_piece outside = {4000, 97, 0};
	struct lp_csum_piece empty = {4000, 0, 0};
	struct lp_csum_piece far = {UINT32_MAX, 2, 0};
	lp_test_dies(merge_piece, &outside);
	lp_test_dies(merge_piece, &empty);
	lp_test_dies(merge_piece, &far);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_zeros),
		cmocka_unit_test(test_verify),
		cmocka_unit_test(test_merge),
		cmocka_unit_test(test_zero_piece),
		cmocka_unit_test(test_damaged_old_block),
		cmocka_unit_test(test_damaged_piece_is_seen_later),
		cmocka_unit_test(test_bad_piece_asserts),
	};
	return lp_test_main(tests, "store/record/csum");
}
