/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: the cost of punching a hole over the largest range depends on the file's data, not on the
 * range (P5), and no data is left. A fallocate that finds no space gives back the blocks that it
 * took behind the file's end, and nothing else. The cost of copying holes depends on the data
 * between them. Method: a file of a few pages far apart, some set aside behind its end; the turns
 * until a punch of the largest range is answered. A small device, and fallocates of more than it
 * has. */
#include <linux/falloc.h>

#include "fuse/model/machine_test.h"

#define PAGE      UINT64_C(4096)
#define TURNS_MAX 2000u

static int allocate(struct lpi_kernel *kernel, uint64_t node, uint32_t mode, uint64_t offset,
		    uint64_t length)
{
	const struct fuse_fallocate_in in = {.offset = offset, .length = length, .mode = mode};
	lpi_kernel_begin(kernel, FUSE_FALLOCATE, node);
	lpi_kernel_add(kernel, &in, sizeof(in));
	return lpi_kernel_ask(kernel);
}

static uint64_t blocks_of(struct lpi_kernel *kernel, uint64_t node)
{
	const struct fuse_getattr_in in = {.getattr_flags = 0};
	struct fuse_attr_out out;
	lpi_kernel_begin(kernel, FUSE_GETATTR, node);
	lpi_kernel_add(kernel, &in, sizeof(in));
	lp_test_ok(lpi_kernel_ask(kernel));
	memcpy(&out, lpi_kernel_answer(kernel, sizeof(out)), sizeof(out));
	return out.attr.blocks;
}

static uint32_t turns;

static void count_turn(void *arg)
{
	turns++;
	lpi_machine_turn(arg);
}

static void test_huge_punch(void **state)
{
	static uint8_t page[PAGE];
	static const uint64_t written[] = {0, UINT64_C(1) << 30, UINT64_C(1) << 40};
	static const uint64_t aside[] = {UINT64_C(1) << 35, UINT64_C(1) << 42,
					 LP_STORE_FILE_MAX - PAGE};
	struct lpi_machine *machine = lpi_machine_boot(lpi_ns_sim_mkfs(1));
	struct lpi_kernel *kernel = &machine->kernels[0];
	(void)state;
	memset(page, 7, sizeof(page));
	uint64_t node = lpi_kernel_create(kernel, FUSE_CREATE, 1, "a").node;
	for (uint32_t i = 0; i < LP_ARRAY_SIZE(written); i++)
		lp_test_ok(lpi_kernel_write(kernel, node, written[i], page, PAGE));
	for (uint32_t i = 0; i < LP_ARRAY_SIZE(aside); i++)
		lp_test_ok(allocate(kernel, node, FALLOC_FL_KEEP_SIZE, aside[i], PAGE));
	assert_int_equal(blocks_of(kernel, node), 6 * PAGE / 512);
	kernel->turn = count_turn;
	lp_test_ok(allocate(kernel, node, FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE, 1,
			    LP_STORE_FILE_MAX - 1));
	assert_in_range(turns, 1, TURNS_MAX);
	/* Of the first page one byte stays. */
	assert_int_equal(blocks_of(kernel, node), PAGE / 512);
	lpi_kernel_release(kernel, FUSE_RELEASE, node);
	lp_test_ok(lpi_machine_stop(machine));
	lpi_machine_free(machine);
}

#define TOO_MUCH (UINT64_C(1) << 40)

/* Expects so many pages in the file, once the freed ones are free. */
static void expect_pages(struct lpi_machine *machine, uint64_t node, uint64_t pages)
{
	struct lpi_kernel *kernel = &machine->kernels[0];
	for (uint32_t i = 0; i < TURNS_MAX && blocks_of(kernel, node) != pages * PAGE / 512; i++)
		lpi_machine_turn(machine);
	assert_int_equal(blocks_of(kernel, node), pages * PAGE / 512);
}

static void test_gives_back(void **state)
{
	static uint8_t page[PAGE];
	struct lpi_machine *machine = lpi_machine_boot(lpi_ns_sim_mkfs(1));
	struct lpi_kernel *kernel = &machine->kernels[0];
	(void)state;
	memset(page, 7, sizeof(page));
	uint64_t node = lpi_kernel_create(kernel, FUSE_CREATE, 1, "a").node;
	lp_test_ok(lpi_kernel_write(kernel, node, 0, page, PAGE));
	/* Blocks set aside before stay, and so do those in front of them. */
	lp_test_ok(allocate(kernel, node, FALLOC_FL_KEEP_SIZE, PAGE, 3 * PAGE));
	lp_test_ok(allocate(kernel, node, FALLOC_FL_KEEP_SIZE, 10 * PAGE, PAGE));
	const uint32_t modes[] = {0, FALLOC_FL_KEEP_SIZE};
	for (uint32_t i = 0; i < LP_ARRAY_SIZE(modes); i++) {
		lp_test_err(-ENOSPC, allocate(kernel, node, modes[i], 20 * PAGE, TOO_MUCH));
		expect_pages(machine, node, 5);
	}
	lp_test_err(-ENOSPC, allocate(kernel, node, 0, 0, TOO_MUCH));
	expect_pages(machine, node, 11);
	lp_test_err(-ENOSPC, allocate(kernel, node, FALLOC_FL_ZERO_RANGE, 4 * PAGE, TOO_MUCH));
	expect_pages(machine, node, 4);
	uint64_t other = lpi_kernel_create(kernel, FUSE_CREATE, 1, "b").node;
	lp_test_ok(lpi_kernel_write(kernel, other, 0, page, PAGE));
	for (uint32_t i = 0; i < LP_ARRAY_SIZE(modes); i++) {
		lp_test_err(-ENOSPC, allocate(kernel, other, modes[i], 0, TOO_MUCH));
		expect_pages(machine, other, 1);
		lp_test_err(-ENOSPC, allocate(kernel, other, modes[i], 2 * PAGE, TOO_MUCH));
		expect_pages(machine, other, 1);
	}
	/* So there is room for another file. */
	lp_test_ok(allocate(kernel, other, 0, 0, 8 * PAGE));
	expect_pages(machine, other, 8);
	lpi_kernel_release(kernel, FUSE_RELEASE, node);
	lp_test_ok(lpi_machine_stop(machine));
	lpi_machine_free(machine);
}

#define APART     (UINT64_C(20) << 30)
#define PLACES    4u
#define LENGTH    (APART * PLACES + 1000)
#define STEPS_MAX (UINT64_C(4) * PLACES + LENGTH / (UINT64_C(1) << 30) + 8)

/* One request of a copy. */
static uint64_t copy_some(struct lpi_kernel *kernel, uint64_t from, uint64_t to, uint64_t at)
{
	const struct fuse_copy_file_range_in in = {
		.off_in = at, .nodeid_out = to, .off_out = at, .len = LENGTH + PAGE - at};
	struct fuse_write_out out;
	lpi_kernel_begin(kernel, FUSE_COPY_FILE_RANGE, from);
	lpi_kernel_add(kernel, &in, sizeof(in));
	lp_test_ok(lpi_kernel_ask(kernel));
	memcpy(&out, lpi_kernel_answer(kernel, sizeof(out)), sizeof(out));
	return out.size;
}

static void copy_all(struct lpi_kernel *kernel, uint64_t from, uint64_t to)
{
	uint64_t steps = 0;
	uint64_t got;
	for (uint64_t at = 0; (got = copy_some(kernel, from, to, at)) > 0; at += got)
		assert_true(++steps <= STEPS_MAX);
}

static uint64_t place(uint32_t idx)
{
	return idx * APART + (idx == 0 ? 0 : APART / 2);
}

/* The cost of copying holes depends on the data between them, on one shard as over two. The copy
 * has the same holes, also where the target had data. */
static void test_huge_copy(void **state)
{
	static uint8_t page[PAGE];
	static uint8_t got[LPI_KERNEL_BYTES];
	struct lpi_machine *machine = lpi_machine_boot(lpi_ns_sim_mkfs(1));
	struct lpi_kernel *kernel = &machine->kernels[0];
	uint32_t same = 0;
	(void)state;
	uint64_t from = lpi_kernel_create(kernel, FUSE_CREATE, 1, "from").node;
	lp_test_ok(lpi_kernel_truncate(kernel, from, LENGTH));
	for (uint32_t i = 0; i < PLACES; i++) {
		memset(page, (int)i + 1, sizeof(page));
		lp_test_ok(lpi_kernel_write(kernel, from, place(i), page, PAGE));
	}
	for (uint32_t n = 0; n < 6; n++) {
		char name[8];
		(void)snprintf(name, sizeof(name), "d%u", n);
		uint64_t dir = lpi_kernel_mkdir(kernel, 1, name);
		uint64_t to = lpi_kernel_create(kernel, FUSE_CREATE, dir, "to").node;
		same += lp_ino_shard((struct lp_ino){to}) == lp_ino_shard((struct lp_ino){from});
		if (n % 2 != 0) {
			lp_test_ok(lpi_kernel_write(kernel, to, PAGE, page, PAGE));
			lp_test_ok(lpi_kernel_write(kernel, to, APART, page, PAGE));
		}
		copy_all(kernel, from, to);
		expect_pages(machine, to, PLACES);
		assert_int_equal(lpi_machine_attrs(machine, to).size_bytes, LENGTH);
		for (uint32_t i = 0; i < PLACES; i++) {
			assert_true(lpi_kernel_read(kernel, FUSE_READ, to, place(i), got) >= 1000);
			memset(page, (int)i + 1, sizeof(page));
			assert_memory_equal(got, page, PAGE);
		}
		lpi_kernel_release(kernel, FUSE_RELEASE, to);
	}
	assert_in_range(same, 1, 5); /* both were tried */
	lpi_kernel_release(kernel, FUSE_RELEASE, from);
	lp_test_ok(lpi_machine_stop(machine));
	lpi_machine_free(machine);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_huge_punch),
		cmocka_unit_test(test_gives_back),
		cmocka_unit_test(test_huge_copy),
	};
	return lp_test_main(tests, "fuse/ops/ops_space");
}
