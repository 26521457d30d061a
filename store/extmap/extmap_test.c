/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: an extent map's memory that runs out changes nothing, and what is given back is all of it;
 * its format is frozen; it costs what its header says, up to its limits; and who breaks its rules
 * dies. What it says of blocks: extmap/model_test.c; what is read of it: extmap/damage_test.c.
 * Method: by hand, beside a plain array of blocks; memory that ends at each allocation in turn. */
#include "store/extmap/world_test.h"

#include "base/testing/test_death.h"

#define GOLDEN_INLINE                                                                              \
	"0101000001000000030000000000000001020000d3c2d97ebc9a785634124100050000000000030011111111" \
	"2222222233333333"
#define GOLDEN_UNWRITTEN "010100005b917676001000000000c01f"
#define GOLDEN_SHARED                                                                              \
	"01030000c3489a6abc9a785634120120bd9a7856341202000500000000000300111111112222222233333333"
#define GOLDEN_SPLIT "0102020002000000430000000000000000000000010000000200000001000000"

/* --- Memory ----------------------------------------------------------------------------------- */

/* A reservation that fails at the n-th allocation leaves everything as it was. */
static void test_no_memory(void **state)
{
	(void)state;
	struct lpi_map_world *w = lpi_world_new(20, LPI_WORLD_LEAVES_MAX);
	unsigned failures = 0;
	for (int n = 0; n < 150; n++) {
		struct lp_extmap_range range = lpi_world_random_range(w, LPI_WORLD_RANDOM_MAX);
		lpi_world_reload(w);
		for (uint64_t fail_at = 0;; fail_at++) {
			int result;
			lpi_world_check_lookup(w, range); /* so that all is loaded */
			size_t bytes = w->bytes_held;
			w->allocs_left = fail_at;
			LPI_WORLD_RETRY(w, result, lp_extmap_reserve(&w->map, range, 3));
			w->allocs_left = LPI_WORLD_NO_FAULT;
			assert_true(lpi_extmap_is_sound(&w->map));
			if (result >= 0)
				break;
			lp_test_err(-ENOMEM, result);
			assert_true(w->bytes_held >= bytes);
			failures++;
		}
		w->allocs_left = 0; /* what was reserved is enough */
		struct lp_extent extent = {w->next_device, range.cnt};
		static uint32_t crcs[LPI_WORLD_OP_MAX];
		struct lp_extmap_new fresh = {&extent, 1, crcs, false};
		struct lp_extmap_released released = {w->released_items, 0, LPI_WORLD_OP_MAX};
		lp_extmap_replace(&w->map, range, &fresh, &released);
		w->next_device += range.cnt + 1;
		for (uint64_t k = 0; k < range.cnt; k++)
			w->model[range.first + k] = (struct lpi_world_block){extent.block + k, 0,
									     LP_EXTMAP_DATA, false};
		lpi_world_commit(w); /* to trim a leaf is not needed either */
		w->allocs_left = LPI_WORLD_NO_FAULT;
		lpi_world_check_lookup(w, range);
	}
	assert_true(failures > 300);
	lpi_world_check_all(w);
	lpi_world_free(w);
}

static void test_no_memory_to_load(void **state)
{
	(void)state;
	struct lpi_map_world *w = lpi_world_new(21, LPI_WORLD_LEAVES_MAX);
	for (uint64_t n = 0; n < 60; n++)
		lpi_world_replace(w, (struct lp_extmap_range){n * 192, 5});
	lpi_world_reload(w);
	int err = -ENOMEM;
	for (uint64_t fail_at = 0; err == -ENOMEM; fail_at++) {
		lp_extmap_fini(&w->map);
		assert_int_equal(w->bytes_held, 0);
		lp_extmap_init(&w->map, lpi_world_ino, &w->mem);
		w->allocs_left = fail_at;
		err = lp_extmap_load_root(&w->map, w->root, w->root_len);
		if (err == 0)
			err = lp_extmap_load(&w->map, 0, w->kv[0].bytes, w->kv[0].len);
		if (err == 0)
			err = lp_extmap_load(&w->map, 3, w->kv[3].bytes, w->kv[3].len);
		assert_true(lpi_extmap_is_sound(&w->map));
	}
	lp_test_ok(err);
	w->allocs_left = LPI_WORLD_NO_FAULT;
	lpi_world_check_all(w);
	lpi_world_free(w);
}

static void test_unreserve_gives_back(void **state)
{
	(void)state;
	struct lpi_map_world *w = lpi_world_new(22, 40);
	struct lp_extmap_range range = {10, 500};
	lp_test_ok(lp_extmap_reserve(&w->map, range, 10));
	assert_true(w->bytes_held > 0);
	lp_test_err(-EBUSY, lp_extmap_unload(&w->map, 3));
	lp_extmap_unreserve(&w->map);
	(void)lp_extmap_shrink(&w->map, SIZE_MAX);
	assert_int_equal(w->bytes_held, 0);
	lpi_world_replace(w, range);
	lpi_world_check_all(w);
	lpi_world_commit(w);
	/* All but what is in use twice in a row. */
	assert_true(lp_extmap_shrink(&w->map, SIZE_MAX) > 0);
	assert_int_equal(w->map.objects_cnt, 0);
	lpi_world_check_all(w);
	lpi_world_free(w);
}

/* --- The format, frozen ----------------------------------------------------------------------- */

static void check_hex(const uint8_t *bytes, size_t len, const char *want)
{
	char hex[2 * 256 + 1] = "";
	assert_true(len <= 256);
	for (size_t i = 0; i < len; i++)
		(void)snprintf(hex + 2 * i, 3, "%02x", bytes[i]);
	assert_string_equal(hex, want);
}

static void test_golden(void **state)
{
	(void)state;
	struct lp_extmap map;
	uint8_t buf[LP_EXTMAP_ROOT_BYTES_MAX];
	struct lp_extmap_piece piece;
	static const uint32_t crcs[] = {0x11111111, 0x22222222, 0x33333333};
	struct lp_extent two[] = {{0x123456789abc, 2}, {5, 1}};
	struct lp_extmap_new data = {two, 2, crcs, false};
	struct lp_extent run = {0x1000, 64};
	struct lp_extmap_new space = {&run, 1, NULL, false};
	lp_extmap_init(&map, (struct lp_ino){0x0102030405060708}, NULL);
	assert_int_equal(lp_extmap_encode_root(&map, buf), 0);

	lpi_world_put_extents(&map, 1, &data, 3);
	assert_false(lp_extmap_take_dirty(&map, buf, &piece)); /* all is in the root */
	check_hex(buf, lp_extmap_encode_root(&map, buf), GOLDEN_INLINE);

	lpi_world_put_extents(&map, 128, &space, 64);
	lp_test_ok(lp_extmap_reserve(&map, (struct lp_extmap_range){1, 1}, 0));
	lp_extmap_mark_shared(&map, (struct lp_extmap_range){1, 1});
	assert_true(lp_extmap_take_dirty(&map, buf, &piece));
	assert_true(piece.block == 128);
	check_hex(buf, piece.len, GOLDEN_UNWRITTEN);
	assert_true(lp_extmap_take_dirty(&map, buf, &piece));
	assert_true(piece.block == 0);
	check_hex(buf, piece.len, GOLDEN_SHARED);
	assert_false(lp_extmap_take_dirty(&map, buf, &piece));
	check_hex(buf, lp_extmap_encode_root(&map, buf), GOLDEN_SPLIT);
	lp_extmap_fini(&map);
}

/* What a 4 KiB overwrite of a file of 1 GiB writes: the header's figure. */
static void test_bytes_per_overwrite(void **state)
{
	(void)state;
	struct lp_extmap map;
	uint8_t buf[LP_EXTMAP_LEAF_BYTES_MAX];
	struct lp_extmap_piece piece;
	uint32_t *crcs = calloc(LP_EXTMAP_RANGE_MAX, sizeof(*crcs));
	assert_non_null(crcs);
	lp_extmap_init(&map, lpi_world_ino, NULL);
	for (uint64_t n = 0; n < 4; n++) {
		struct lp_extent extent = {1000 + n * LP_EXTMAP_RANGE_MAX, LP_EXTMAP_RANGE_MAX};
		struct lp_extmap_new fresh = {&extent, 1, crcs, false};
		lpi_world_put_extents(&map, n * LP_EXTMAP_RANGE_MAX, &fresh, LP_EXTMAP_RANGE_MAX);
	}
	unsigned leaves = 0;
	while (lp_extmap_take_dirty(&map, buf, &piece))
		leaves++;
	assert_int_equal(leaves, 4096);
	assert_int_equal(lp_extmap_encode_root(&map, buf), 24);
	lp_extmap_update_crcs(&map, (struct lp_extmap_range){99999, 1}, crcs);
	assert_true(lp_extmap_take_dirty(&map, buf, &piece));
	assert_int_equal(piece.len, 272);
	assert_false(lp_extmap_take_dirty(&map, buf, &piece));
	assert_false(lp_extmap_root_is_dirty(&map));
	lp_extmap_fini(&map);
	free(crcs);
}

/* The ends of the space of blocks. */
static void test_limits(void **state)
{
	(void)state;
	struct lp_extmap map;
	uint8_t buf[LP_EXTMAP_ROOT_BYTES_MAX];
	struct lp_extmap_segment segment;
	static const uint32_t crc = 5;
	struct lp_extent extent = {(UINT64_C(1) << 48) - 1, 1};
	struct lp_extmap_new fresh = {&extent, 1, &crc, false};
	uint64_t at = 0;
	lp_extmap_init(&map, lpi_world_ino, NULL);
	lpi_world_put_extents(&map, LP_EXTMAP_BLOCKS_MAX - 1, &fresh, 1);
	lp_test_ok(lp_extmap_seek(&map, 0, LP_EXTMAP_SEEK_DATA, &at));
	assert_true(at == LP_EXTMAP_BLOCKS_MAX - 1);
	lp_test_ok(lp_extmap_seek(&map, at, LP_EXTMAP_SEEK_HOLE, &at));
	assert_true(at == LP_EXTMAP_BLOCKS_MAX);
	lp_test_err(-ENXIO, lp_extmap_seek(&map, at, LP_EXTMAP_SEEK_DATA, &at));
	struct lp_extmap_range last = {LP_EXTMAP_BLOCKS_MAX - 1, 1};
	assert_int_equal(lp_extmap_lookup(&map, last, &segment, 1, NULL), 1);
	assert_true(segment.block == extent.block);
	size_t len = lp_extmap_encode_root(&map, buf);
	lp_extmap_fini(&map);
	lp_extmap_init(&map, lpi_world_ino, NULL);
	lp_test_ok(lp_extmap_load_root(&map, buf, len));
	lp_test_err(-EAGAIN, lp_extmap_lookup(&map, last, &segment, 1, NULL));
	assert_int_equal(lp_extmap_missing(&map).first, LP_EXTMAP_LEAVES_MAX - 1);
	lp_extmap_fini(&map);
}

/* --- Asserts ---------------------------------------------------------------------------------- */

static void overwrite_shared(void *arg)
{
	struct lpi_map_world *w = arg;
	uint32_t crc = 1;
	lp_extmap_update_crcs(&w->map, (struct lp_extmap_range){5, 1}, &crc);
}

static void change_beyond_reservation(void *arg)
{
	struct lpi_map_world *w = arg;
	struct lp_extmap_released released = {w->released_items, 0, LPI_WORLD_OP_MAX};
	(void)!lp_extmap_reserve(&w->map, (struct lp_extmap_range){5, 1}, 0);
	lp_extmap_punch(&w->map, (struct lp_extmap_range){5, 2}, &released);
}

static void change_twice(void *arg)
{
	struct lpi_map_world *w = arg;
	struct lp_extmap_released released = {w->released_items, 0, LPI_WORLD_OP_MAX};
	(void)!lp_extmap_reserve(&w->map, (struct lp_extmap_range){5, 1}, 0);
	lp_extmap_punch(&w->map, (struct lp_extmap_range){5, 1}, &released);
	lp_extmap_punch(&w->map, (struct lp_extmap_range){5, 1}, &released);
}

static void write_what_is_written(void *arg)
{
	struct lpi_map_world *w = arg;
	uint32_t crc = 1;
	(void)!lp_extmap_reserve(&w->map, (struct lp_extmap_range){5, 1}, 0);
	lp_extmap_mark_written(&w->map, (struct lp_extmap_range){5, 1}, &crc);
}

static void test_asserts(void **state)
{
	(void)state;
	struct lpi_map_world *w = lpi_world_new(50, 1);
	static const uint32_t crcs[64];
	struct lp_extent extent = {100, 64};
	struct lp_extmap_new fresh = {&extent, 1, crcs, true};
	lpi_world_put_extents(&w->map, 0, &fresh, 64);
	lp_test_dies(overwrite_shared, w); /* rule S4 */
	lp_test_dies(change_beyond_reservation, w);
	lp_test_dies(change_twice, w);
	lp_test_dies(write_what_is_written, w);
	lpi_world_free(w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_no_memory),
		cmocka_unit_test(test_no_memory_to_load),
		cmocka_unit_test(test_unreserve_gives_back),
		cmocka_unit_test(test_golden),
		cmocka_unit_test(test_bytes_per_overwrite),
		cmocka_unit_test(test_limits),
		cmocka_unit_test(test_asserts),
	};
	return lp_test_main(tests, "store/extmap/extmap");
}
