/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: a cell is known by its bytes, any other bytes are not taken for one, and the book allows
 * what a read may show and nothing else. Method: cells of all lengths, each byte of one changed;
 * writes and reads in the orders that matter. */
#include "base/testing/test.h"

#include "cli/bench/load_cell.h"

#define RUN UINT64_C(1000)

static const struct lpi_load_cell sample = {
	.run = RUN, .object = 7, .place = 8192, .total_bytes = 12345, .seed = 3, .version = 5};

static void test_cells(void **state)
{
	(void)state;
	uint8_t buf[600];
	for (size_t len = 1; len < sizeof(buf) - 1; len++) {
		struct lpi_load_cell other = sample;
		struct lpi_load_cell found;
		buf[len] = 0xaa;
		lpi_load_cell_fill(buf, len, &sample);
		assert_int_equal(buf[len], 0xaa);
		assert_true(lpi_load_cell_matches(buf, len, &sample));
		other.version++;
		/* By chance one byte in 256 is the same, and so on. */
		assert_true(len < 8 || !lpi_load_cell_matches(buf, len, &other));
		if (len < LPI_LOAD_CELL_MIN)
			continue;
		lp_test_ok(lpi_load_cell_read(buf, len, &found));
		assert_true(found.run == sample.run && found.object == sample.object);
		assert_true(found.place == sample.place && found.seed == sample.seed);
		assert_true(found.total_bytes == sample.total_bytes &&
			    found.version == sample.version);
	}
}

static void test_other_bytes(void **state)
{
	(void)state;
	uint8_t buf[512];
	struct lpi_load_cell found;
	lpi_load_cell_fill(buf, sizeof(buf), &sample);
	for (size_t i = 0; i < sizeof(buf); i++) {
		buf[i] ^= 1;
		lp_test_err(-EBADMSG, lpi_load_cell_read(buf, sizeof(buf), &found));
		assert_false(lpi_load_cell_matches(buf, sizeof(buf), &sample));
		buf[i] ^= 1;
	}
	lp_test_ok(lpi_load_cell_read(buf, sizeof(buf), &found));
	memset(buf, 0, sizeof(buf));
	lp_test_err(-EBADMSG, lpi_load_cell_read(buf, sizeof(buf), &found));
	/* Half of one version and half of another. */
	struct lpi_load_cell later = sample;
	uint8_t half[512];
	later.version++;
	lpi_load_cell_fill(buf, sizeof(buf), &sample);
	lpi_load_cell_fill(half, sizeof(half), &later);
	memcpy(buf + 256, half + 256, 256);
	lp_test_err(-EBADMSG, lpi_load_cell_read(buf, sizeof(buf), &found));
}

/* --- The book --------------------------------------------------------------------------------- */

static bool may_show(const struct lpi_load_book *book, uint32_t floor, uint64_t run,
		     uint32_t version)
{
	struct lpi_load_cell cell = sample;
	cell.run = run;
	cell.version = version;
	return lpi_load_book_fault(book, 2, floor, &cell, RUN) == NULL;
}

static void write_one(struct lpi_load_book *book, bool is_acked)
{
	lpi_load_book_begin(book, 1, 3);
	lpi_load_book_end(book, 1, 3, is_acked);
}

static void test_versions(void **state)
{
	(void)state;
	struct lpi_load_book book;
	lp_test_ok(lpi_load_book_init(&book, 4));
	/* Nothing is known: whatever an earlier run left. */
	assert_int_equal(lpi_load_book_floor(&book, 2), 0);
	assert_true(may_show(&book, 0, RUN - 1, 99));
	assert_false(may_show(&book, 0, RUN + 1, 1));
	assert_false(may_show(&book, 0, RUN, 1));
	write_one(&book, true);
	write_one(&book, true);
	assert_int_equal(lpi_load_book_floor(&book, 2), 2);
	assert_int_equal(lpi_load_book_floor(&book, 0), 0);
	assert_true(may_show(&book, 2, RUN, 2));
	assert_false(may_show(&book, 2, RUN, 1));
	assert_false(may_show(&book, 2, RUN, 3));
	assert_false(may_show(&book, 2, RUN - 1, 2));
	/* A read that was sent before the last write was acknowledged. */
	assert_true(may_show(&book, 1, RUN, 1) && may_show(&book, 1, RUN, 2));
	lpi_load_book_fini(&book);
}

static void test_one_write_at_a_time(void **state)
{
	(void)state;
	struct lpi_load_book book;
	lp_test_ok(lpi_load_book_init(&book, 8));
	lpi_load_book_begin(&book, 2, 3);
	assert_true(lpi_load_book_is_busy(&book, 4, 1));
	assert_true(lpi_load_book_is_busy(&book, 0, 3));
	assert_false(lpi_load_book_is_busy(&book, 0, 2));
	assert_false(lpi_load_book_is_busy(&book, 5, 3));
	/* While it is under way both may be seen. */
	assert_true(may_show(&book, 0, RUN - 1, 9) && may_show(&book, 0, RUN, 1));
	lpi_load_book_end(&book, 2, 3, true);
	assert_false(lpi_load_book_is_busy(&book, 0, 8));
	lpi_load_book_fini(&book);
}

/* A write that nobody knows the outcome of may be done at any later time: it is not "older than
 * what was acknowledged" then. */
static void test_doubt(void **state)
{
	(void)state;
	struct lpi_load_book book;
	lp_test_ok(lpi_load_book_init(&book, 4));
	write_one(&book, true);
	write_one(&book, false);
	assert_true(may_show(&book, lpi_load_book_floor(&book, 2), RUN, 1));
	assert_true(may_show(&book, lpi_load_book_floor(&book, 2), RUN, 2));
	write_one(&book, true);
	assert_true(may_show(&book, lpi_load_book_floor(&book, 2), RUN, 2));
	assert_false(may_show(&book, lpi_load_book_floor(&book, 2), RUN, 4));
	assert_false(may_show(&book, lpi_load_book_floor(&book, 2), RUN - 1, 1));
	lpi_load_book_fini(&book);
	lpi_load_book_fini(&book);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_cells),    cmocka_unit_test(test_other_bytes),
		cmocka_unit_test(test_versions), cmocka_unit_test(test_one_write_at_a_time),
		cmocka_unit_test(test_doubt),
	};
	return lp_test_main(tests, "cli/bench/load_cell");
}
