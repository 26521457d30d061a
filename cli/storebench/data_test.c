/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: a cell tells what it is, and any change to it, or to where it lies, shows; a pattern's
 * payload is of the length asked for, with the checksum of each piece.
 * Method: cells of all sizes with each bit of some bytes flipped; payloads of many lengths taken
 * one after the other and summed again. */
#include "base/testing/test.h"

#include "base/crc32c.h"
#include "cli/storebench/data.h"

static void test_cell_round_trip(void **state)
{
	(void)state;
	static const size_t sizes[] = {64, 72, 512, 2048, 4096};
	uint8_t buf[4096];
	for (size_t i = 0; i < LP_ARRAY_SIZE(sizes); i++) {
		const struct lpi_bench_cell in = {
			.run = 7 + i, .object = 1ULL << 63 | i, .place = 4096 * i, .generation = i};
		struct lpi_bench_cell out = {0};
		lpi_bench_cell_fill(buf, sizes[i], &in);
		lp_test_ok(lpi_bench_cell_read(buf, sizes[i], &out));
		assert_true(out.run == in.run && out.object == in.object);
		assert_true(out.place == in.place && out.generation == in.generation);
		if (sizes[i] > 64)
			lp_test_err(-EBADMSG, lpi_bench_cell_read(buf, 64, &out));
	}
}

static void test_cell_damage_shows(void **state)
{
	(void)state;
	const struct lpi_bench_cell cell = {.run = 1, .object = 2, .place = 3, .generation = 4};
	struct lpi_bench_cell out = {.run = 77};
	uint8_t buf[512];
	lpi_bench_cell_fill(buf, sizeof(buf), &cell);
	for (size_t bit = 0; bit < sizeof(buf) * 8; bit += 3) {
		buf[bit / 8] ^= (uint8_t)(1u << bit % 8);
		lp_test_err(-EBADMSG, lpi_bench_cell_read(buf, sizeof(buf), &out));
		buf[bit / 8] ^= (uint8_t)(1u << bit % 8);
	}
	assert_true(out.run == 77);
	/* Half of it is a newer one: torn. */
	const struct lpi_bench_cell newer = {.run = 1, .object = 2, .place = 3, .generation = 5};
	uint8_t other[512];
	lpi_bench_cell_fill(other, sizeof(other), &newer);
	memcpy(buf, other, 256);
	lp_test_err(-EBADMSG, lpi_bench_cell_read(buf, sizeof(buf), &out));
	memset(buf, 0, sizeof(buf));
	lp_test_err(-EBADMSG, lpi_bench_cell_read(buf, sizeof(buf), &out));
}

static void test_gather(void **state)
{
	(void)state;
	uint8_t bytes[100];
	uint8_t out[100];
	struct lp_buf bufs[3];
	struct lp_seg segs[3];
	static const uint32_t lens[] = {10, 30, 60};
	uint32_t at = 0;
	for (uint32_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (uint8_t)i;
	for (uint32_t i = 0; i < 3; i++) {
		bufs[i] = (struct lp_buf){.data = bytes};
		segs[i] = (struct lp_seg){&bufs[i], at, lens[i]};
		at += lens[i];
	}
	for (uint32_t from = 0; from < sizeof(bytes); from++) {
		for (uint32_t len = 1; len <= sizeof(bytes) - from; len++) {
			lpi_bench_gather(segs, from, out, len);
			assert_memory_equal(out, bytes + from, len);
		}
	}
}

/* The payload is whole: so many bytes, and each piece has its checksum. */
static void check_payload(const struct lp_payload *payload, uint64_t length)
{
	static uint8_t bytes[4 << 20];
	uint64_t sum = 0;
	for (uint32_t i = 0; i < payload->seg_cnt; i++)
		sum += payload->segs[i].len;
	assert_true(sum == length);
	assert_int_equal(payload->crc_cnt, lp_bytes_to_blocks_up(length));
	lpi_bench_gather(payload->segs, 0, bytes, length);
	for (uint32_t i = 0; i < payload->crc_cnt; i++) {
		uint64_t at = i * LP_BLOCK_BYTES;
		uint32_t crc = lp_crc32c(0, bytes + at, LP_MIN(LP_BLOCK_BYTES, length - at));
		assert_int_equal(payload->crcs[i], crc);
	}
}

static void test_pattern(void **state)
{
	(void)state;
	static struct lpi_bench_pattern pattern;
	struct lp_bufs *bufs = NULL;
	struct lp_seg segs[LPI_BENCH_PATTERN_BUFS];
	struct lp_payload payload;
	uint32_t one_crc;
	static const uint64_t lengths[] = {4096,    512,     1 << 20, 64,   12288,   4 << 20,
					   3 << 20, 1 << 16, 2048,    4096, 2093056, 4 << 20};
	lp_test_ok(lp_bufs_new(4 << 20, &bufs));
	lp_test_ok(lpi_bench_pattern_init(&pattern, bufs, 512, 1));
	for (int round = 0; round < 3; round++) {
		for (size_t i = 0; i < LP_ARRAY_SIZE(lengths); i++) {
			lpi_bench_pattern_take(&pattern, lengths[i], segs, &one_crc, &payload);
			assert_true(payload.seg_cnt <= LPI_BENCH_PATTERN_BUFS);
			check_payload(&payload, lengths[i]);
		}
	}
	lpi_bench_pattern_fini(&pattern);
	lp_bufs_free(bufs);
}

static void test_pattern_needs_room(void **state)
{
	(void)state;
	static struct lpi_bench_pattern pattern;
	struct lp_bufs *bufs = NULL;
	lp_test_ok(lp_bufs_new(3 << 20, &bufs));
	lp_test_err(-ENOBUFS, lpi_bench_pattern_init(&pattern, bufs, 0, 1));
	lpi_bench_pattern_fini(&pattern);
	lp_bufs_free(bufs);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_cell_round_trip),
		cmocka_unit_test(test_cell_damage_shows),
		cmocka_unit_test(test_gather),
		cmocka_unit_test(test_pattern),
		cmocka_unit_test(test_pattern_needs_room),
	};
	return lp_test_main(tests, "cli/storebench/data");
}
