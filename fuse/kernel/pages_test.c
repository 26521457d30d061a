/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: pages that may be wrong in the kernel's cache are noted, also where several inodes share a
 * place of the table and where several notes meet. Without handles of O_DIRECT nothing is noted.
 * Method: the table of a machine, in simulated time; the inodes are numbers. */
#include "fuse/kernel/pages.h"

#include <fcntl.h>

#include "base/hash.h"
#include "fuse/model/machine_test.h"

struct bench {
	struct lpi_machine *machine;
	struct lp_fuse_channel *channel;
	struct lp_ino first;
	struct lp_ino second; /* of the same place */
};

static uint64_t place_of(uint64_t nr)
{
	return (lp_hash_u64(&nr, sizeof(nr), 0) >> 48) % LPI_FUSE_PAGE_SLOTS;
}

static struct bench bench_new(uint64_t seed)
{
	struct bench bench = {.machine = lpi_machine_boot(lpi_ns_sim_mkfs(seed))};
	bench.channel = bench.machine->channels[1];
	bench.first.nr = 1000;
	for (bench.second.nr = 1001; place_of(bench.second.nr) != place_of(bench.first.nr);)
		bench.second.nr++;
	return bench;
}

static void bench_free(struct bench *bench)
{
	lp_test_ok(lpi_machine_stop(bench->machine));
	lpi_machine_free(bench->machine);
}

static void idle(struct bench *bench)
{
	lpi_machine_idle(bench->machine, 2 * LPI_FUSE_PAGES_IDLE_NS);
}

static enum lpi_fuse_pages_wrong behind(struct bench *bench, struct lp_ino ino, uint32_t *ret)
{
	return lpi_fuse_pages_behind(bench->channel, ino, LPI_FUSE_HANDLE_UNCACHED, ret);
}

/* Only fills while a handle of O_DIRECT is open count. */
static void test_fills(void **state)
{
	struct bench bench = bench_new(1);
	struct lp_fuse_channel *channel = bench.channel;
	uint32_t fills = 0;
	(void)state;
	lpi_fuse_pages_fill(channel, bench.first);
	assert_int_equal(lpi_fuse_pages_open(channel, bench.first, O_RDWR), 0);
	uint64_t handle = lpi_fuse_pages_open(channel, bench.first, O_WRONLY | O_DIRECT);
	assert_int_equal(handle, LPI_FUSE_HANDLE_UNCACHED);
	assert_int_equal(behind(&bench, bench.first, &fills), LPI_FUSE_PAGES_NONE);
	lpi_fuse_pages_fill(channel, bench.first);
	assert_int_equal(behind(&bench, bench.first, &fills), LPI_FUSE_PAGES_RANGE);
	assert_int_equal(lpi_fuse_pages_behind(channel, bench.first, 0, &fills),
			 LPI_FUSE_PAGES_RANGE);
	idle(&bench);
	/* Another handle may need the pages. */
	assert_int_equal(behind(&bench, bench.first, &fills), LPI_FUSE_PAGES_RANGE);
	lpi_fuse_pages_close(channel, bench.first, 0);
	assert_int_equal(behind(&bench, bench.first, &fills), LPI_FUSE_PAGES_ALL);
	/* One more is read while they are dropped. */
	lpi_fuse_pages_fill(channel, bench.first);
	lpi_fuse_pages_all_dropped(channel, bench.first, fills);
	assert_int_equal(behind(&bench, bench.first, &fills), LPI_FUSE_PAGES_RANGE);
	idle(&bench);
	assert_int_equal(behind(&bench, bench.first, &fills), LPI_FUSE_PAGES_ALL);
	lpi_fuse_pages_all_dropped(channel, bench.first, fills);
	assert_int_equal(behind(&bench, bench.first, &fills), LPI_FUSE_PAGES_NONE);
	lpi_fuse_pages_close(channel, bench.first, handle);
	lpi_fuse_pages_fill(channel, bench.first);
	assert_int_equal(behind(&bench, bench.first, &fills), LPI_FUSE_PAGES_NONE);
	/* A handle that was not opened, which only the kernel could send. */
	lpi_fuse_pages_close(channel, bench.first, handle);
	bench_free(&bench);
}

/* If two inodes share a place, the pages' owner is not known until both are closed. */
static void test_shared_place(void **state)
{
	struct bench bench = bench_new(2);
	struct lp_fuse_channel *channel = bench.channel;
	uint32_t fills = 0;
	(void)state;
	uint64_t first = lpi_fuse_pages_open(channel, bench.first, O_RDWR | O_DIRECT);
	uint64_t again = lpi_fuse_pages_open(channel, bench.first, O_RDWR | O_DIRECT);
	lpi_fuse_pages_fill(channel, bench.first);
	idle(&bench);
	assert_int_equal(behind(&bench, bench.first, &fills), LPI_FUSE_PAGES_ALL);
	uint64_t second = lpi_fuse_pages_open(channel, bench.second, O_RDWR | O_DIRECT);
	assert_int_equal(behind(&bench, bench.first, &fills), LPI_FUSE_PAGES_RANGE);
	assert_int_equal(behind(&bench, bench.second, &fills), LPI_FUSE_PAGES_RANGE);
	/* The second's may be among them. */
	lpi_fuse_pages_all_dropped(channel, bench.first, fills);
	assert_int_equal(behind(&bench, bench.second, &fills), LPI_FUSE_PAGES_RANGE);
	lpi_fuse_pages_close(channel, bench.first, first);
	lpi_fuse_pages_close(channel, bench.first, again);
	lpi_fuse_pages_close(channel, bench.second, second);
	second = lpi_fuse_pages_open(channel, bench.second, O_RDWR | O_DIRECT);
	assert_int_equal(behind(&bench, bench.second, &fills), LPI_FUSE_PAGES_ALL);
	lpi_fuse_pages_all_dropped(channel, bench.first, fills);
	assert_int_equal(behind(&bench, bench.second, &fills), LPI_FUSE_PAGES_ALL);
	lpi_fuse_pages_all_dropped(channel, bench.second, fills);
	assert_int_equal(behind(&bench, bench.second, &fills), LPI_FUSE_PAGES_NONE);
	lpi_fuse_pages_close(channel, bench.second, second);
	bench_free(&bench);
}

/* While the kernel works on a drop, and from then on until a write has been told. */
static void test_dropped(void **state)
{
	struct bench bench = bench_new(3);
	struct lp_fuse_channel *channel = bench.channel;
	(void)state;
	assert_false(lpi_fuse_pages_take_dropped(channel, bench.first));
	lpi_fuse_pages_begin_drop(channel, bench.first);
	assert_true(lpi_fuse_pages_take_dropped(channel, bench.first));
	assert_true(lpi_fuse_pages_take_dropped(channel, bench.first));
	lpi_fuse_pages_end_drop(channel, bench.first, true);
	assert_true(lpi_fuse_pages_take_dropped(channel, bench.first));
	assert_false(lpi_fuse_pages_take_dropped(channel, bench.first));
	lpi_fuse_pages_begin_drop(channel, bench.first);
	lpi_fuse_pages_end_drop(channel, bench.first, false);
	assert_false(lpi_fuse_pages_take_dropped(channel, bench.first));
	bench_free(&bench);
}

/* A note that replaces another one stands for both. */
static void test_put_out(void **state)
{
	struct bench bench = bench_new(4);
	struct lp_fuse_channel *channel = bench.channel;
	(void)state;
	lpi_fuse_pages_begin_drop(channel, bench.first);
	lpi_fuse_pages_end_drop(channel, bench.first, true);
	assert_false(lpi_fuse_pages_take_dropped(channel, bench.second));
	lpi_fuse_pages_begin_drop(channel, bench.second);
	lpi_fuse_pages_end_drop(channel, bench.second, true);
	for (uint32_t i = 0; i < 2; i++) {
		assert_true(lpi_fuse_pages_take_dropped(channel, bench.first));
		assert_true(lpi_fuse_pages_take_dropped(channel, bench.second));
	}
	lpi_machine_idle(bench.machine, 61 * LP_NS_PER_S);
	assert_false(lpi_fuse_pages_take_dropped(channel, bench.first));
	assert_false(lpi_fuse_pages_take_dropped(channel, bench.second));
	/* Nor is it forgotten sooner because an open drops pages. */
	lpi_fuse_pages_expect_drop(channel, bench.first);
	assert_true(lpi_fuse_pages_take_dropped(channel, bench.first));
	idle(&bench);
	assert_false(lpi_fuse_pages_take_dropped(channel, bench.first));
	bench_free(&bench);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_fills),
		cmocka_unit_test(test_shared_place),
		cmocka_unit_test(test_dropped),
		cmocka_unit_test(test_put_out),
	};
	return lp_test_main(tests, "fuse/kernel/pages");
}
