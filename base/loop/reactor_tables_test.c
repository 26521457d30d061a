/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: memory of gigabytes is registered in pieces, up to the number of slots. The registered part
 * of a region grows and shrinks, also while I/O goes on in it. Method: by the reactor's interface;
 * without a ring for gigabytes, so that they are not pinned. */
#include "base/testing/test.h"

#include <liburing.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/loop/reactor.h"

/* Without a ring there is no I/O, so the pieces can be checked without pinning gigabytes. */
static void test_registered_region_of_gigabytes(void **state)
{
	(void)state;
	const size_t gib = (size_t)1 << 30;
	const size_t len = 2 * gib + 12288;
	const struct lp_reactor_options options = {.name = "test", .buffers_max = 4};
	struct lp_reactor *reactor = NULL;
	uint8_t other[1];
	uint8_t *region =
		mmap(NULL, 4 * gib, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	assert_true(region != MAP_FAILED);
	lp_test_ok(lp_reactor_new(&options, &reactor));
	lp_test_ok(lp_reactor_start(reactor));
	lp_test_ok(lp_reactor_buffer_add(reactor, region, len));
	int first = lp_reactor_buffer_find(reactor, region, gib);
	int second = lp_reactor_buffer_find(reactor, region + gib, gib);
	int third = lp_reactor_buffer_find(reactor, region + 2 * gib, 12288);
	assert_true(first >= 0 && second >= 0 && third >= 0);
	assert_true(first != second && second != third && first != third);
	assert_int_equal(lp_reactor_buffer_find(reactor, region + gib - 1, 2), -1);
	assert_int_equal(lp_reactor_buffer_find(reactor, region + 2 * gib, 12289), -1);

	/* A region that does not fit leaves nothing behind, and others stay. */
	lp_test_err(-ENFILE, lp_reactor_buffer_add(reactor, region + 3 * gib, gib + 1));
	assert_int_equal(lp_reactor_buffer_find(reactor, region + 3 * gib, 1), -1);
	lp_test_ok(lp_reactor_buffer_add(reactor, other, sizeof(other)));
	lp_reactor_buffer_remove(reactor, region);
	assert_int_equal(lp_reactor_buffer_find(reactor, region, 1), -1);
	assert_int_equal(lp_reactor_buffer_find(reactor, region + 2 * gib, 1), -1);
	assert_true(lp_reactor_buffer_find(reactor, other, 1) >= 0);
	lp_reactor_buffer_remove(reactor, other);
	lp_reactor_free(reactor);
	assert_int_equal(munmap(region, 4 * gib), 0);
}

static void expect_registered(const struct lp_reactor *reactor, const uint8_t *region, size_t len)
{
	const size_t step = (size_t)1 << 29;
	for (size_t at = 0; at < 4 * ((size_t)1 << 30); at += step)
		assert_int_equal(lp_reactor_buffer_find(reactor, region + at, step) >= 0,
				 at + step <= len);
	if (len > 0)
		assert_true(lp_reactor_buffer_find(reactor, region + len - 1, 1) >= 0);
	assert_int_equal(lp_reactor_buffer_find(reactor, region + len, 1), -1);
}

static void test_registered_region_grows_and_shrinks(void **state)
{
	(void)state;
	const size_t gib = (size_t)1 << 30;
	const size_t lens[] = {4096, gib / 2, gib,     2 * gib + 4096, 3 * gib, 3 * gib,
			       4096, 0,       2 * gib, gib + gib / 2,  gib,     0};
	const struct lp_reactor_options options = {.name = "test", .buffers_max = 4};
	struct lp_reactor *reactor = NULL;
	uint8_t other[1];
	uint8_t *region =
		mmap(NULL, 5 * gib, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	assert_true(region != MAP_FAILED);
	lp_test_ok(lp_reactor_new(&options, &reactor));
	lp_test_ok(lp_reactor_start(reactor));
	lp_test_ok(lp_reactor_buffer_add(reactor, other, sizeof(other)));
	for (size_t i = 0; i < LP_ARRAY_SIZE(lens); i++) {
		lp_test_ok(lp_reactor_buffer_resize(reactor, region, lens[i]));
		expect_registered(reactor, region, lens[i]);
		assert_true(lp_reactor_buffer_find(reactor, other, 1) >= 0);
	}
	/* There is no slot for a fourth piece; the three others stay. */
	lp_test_err(-ENFILE, lp_reactor_buffer_resize(reactor, region, 3 * gib + 1));
	expect_registered(reactor, region, 3 * gib);
	lp_test_ok(lp_reactor_buffer_resize(reactor, region, 0));
	lp_reactor_buffer_remove(reactor, other);
	lp_reactor_free(reactor);
	assert_int_equal(munmap(region, 5 * gib), 0);
}

static void read_done(struct lp_io *io)
{
	assert_int_equal(io->result, 5);
}

static struct lp_reactor *ring_reactor(void)
{
	const struct lp_reactor_options options = {
		.name = "test", .ring = true, .entries = 8, .buffers_max = 2};
	struct lp_reactor *reactor = NULL;
	lp_test_ok(lp_reactor_new(&options, &reactor));
	lp_test_ok(lp_reactor_start(reactor));
	return reactor;
}

/* Reads of an empty pipe go on while their buffers are registered anew. */
static void test_registered_region_grows_under_io(void **state)
{
	(void)state;
	struct lp_reactor *reactor = ring_reactor();
	int fds[2];
	uint8_t *region = aligned_alloc(4096, 16384);
	assert_non_null(region);
	memset(region, 0, 16384);
	assert_int_equal(pipe(fds), 0);
	lp_test_ok(lp_reactor_buffer_resize(reactor, region, 8192));
	int idx = lp_reactor_buffer_find(reactor, region, 4096);
	assert_true(idx >= 0);
	for (size_t i = 0; i < 2; i++) {
		struct lp_io io = {.complete = read_done};
		struct io_uring_sqe *sqe = lp_reactor_sqe(reactor, &io);
		io_uring_prep_read_fixed(sqe, fds[0], region, 4096, 0, idx);
		(void)lp_reactor_turn(reactor, false);
		lp_test_ok(lp_reactor_buffer_resize(reactor, region, i == 0 ? 16384 : 4096));
		assert_int_equal(write(fds[1], "lapis", 5), 5);
		lp_test_ok(lp_reactor_drain(reactor, LP_NS_PER_S));
		assert_true(lp_io_is_idle(&io));
		assert_memory_equal(region, "lapis", 5);
		memset(region, 0, 16384);
	}
	assert_int_equal(lp_reactor_buffer_find(reactor, region + 4096, 1), -1);
	lp_test_ok(lp_reactor_buffer_resize(reactor, region, 0));
	assert_int_equal(lp_reactor_buffer_find(reactor, region, 1), -1);
	(void)close(fds[0]);
	(void)close(fds[1]);
	free(region);
	lp_reactor_free(reactor);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_registered_region_of_gigabytes),
		cmocka_unit_test(test_registered_region_grows_and_shrinks),
		cmocka_unit_test(test_registered_region_grows_under_io),
	};
	return lp_test_main(tests, "base/loop/reactor_tables");
}
