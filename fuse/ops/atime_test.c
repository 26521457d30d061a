/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: a file that has not been read for a day is read anew after an open, so that the read comes
 * to the daemon. A file whose read need not or must not count keeps its cached data. With
 * nodiratime the times of directories stay. With strictatime each read counts, and each open drops
 * the cached data.
 * Method: a machine with two channels, whose kernel caches; access times are set back as a program
 * does it. */
#include "fuse/model/machine_test.h"

#define DAY_S UINT64_C(86400)

static uint64_t now_s(const struct lpi_machine *machine)
{
	return (uint64_t)lp_clock_wall_ns(&machine->sim->clock.clock) / LP_NS_PER_S;
}

/* So long ago, and both of the others before that. */
static void set_back(struct lpi_machine *machine, uint64_t node, uint64_t seconds)
{
	struct lpi_kernel *kernel = &machine->kernels[0];
	uint64_t atime = now_s(machine) - seconds;
	const struct fuse_setattr_in in = {.valid = FATTR_ATIME | FATTR_MTIME | FATTR_CTIME,
					   .atime = atime,
					   .mtime = atime - 5,
					   .ctime = atime - 5};
	lpi_kernel_begin(kernel, FUSE_SETATTR, node);
	lpi_kernel_add(kernel, &in, sizeof(in));
	lp_test_ok(lpi_kernel_ask(kernel));
}

static bool keeps_cache(struct lpi_machine *machine, uint64_t node, uint32_t flags)
{
	struct lpi_kernel *kernel = &machine->kernels[1];
	const struct fuse_open_in in = {.flags = flags};
	struct fuse_open_out out;
	lpi_kernel_begin(kernel, FUSE_OPEN, node);
	lpi_kernel_add(kernel, &in, sizeof(in));
	lp_test_ok(lpi_kernel_ask(kernel));
	memcpy(&out, lpi_kernel_answer(kernel, sizeof(out)), sizeof(out));
	return (out.open_flags & FOPEN_KEEP_CACHE) != 0;
}

static int64_t atime_of(struct lpi_machine *machine, uint64_t node)
{
	return lpi_machine_attrs(machine, node).atime_ns / (int64_t)LP_NS_PER_S;
}

static void keep(struct lpi_machine *machine, uint32_t atimes)
{
	for (uint32_t i = 0; i < LPI_MACHINE_CHANNELS; i++)
		atomic_store(&machine->channels[i]->atimes, atimes);
}

static struct lpi_machine *machine_new(uint64_t seed)
{
	return lpi_machine_boot_as(lpi_ns_sim_mkfs(seed), 0, DAY_S * LP_NS_PER_S);
}

static void machine_end(struct lpi_machine *machine)
{
	lp_test_ok(lpi_machine_stop(machine));
	lpi_machine_free(machine);
}

static void test_read_anew(void **state)
{
	static uint8_t bytes[LPI_KERNEL_BYTES];
	struct lpi_machine *machine = machine_new(1);
	struct lpi_kernel *kernel = &machine->kernels[0];
	(void)state;
	uint64_t node = lpi_kernel_create(kernel, FUSE_CREATE, 1, "file").node;
	lp_test_ok(lpi_kernel_write(kernel, node, 0, "some bytes", 10));
	set_back(machine, node, DAY_S - 60);
	assert_true(keeps_cache(machine, node, O_RDONLY));
	set_back(machine, node, DAY_S + 60);
	assert_true(keeps_cache(machine, node, O_WRONLY));
	assert_true(keeps_cache(machine, node, O_RDONLY | O_NOATIME));
	assert_false(keeps_cache(machine, node, O_RDONLY));
	assert_false(keeps_cache(machine, node, O_RDWR));
	/* Only the read counts. */
	assert_int_equal(atime_of(machine, node), now_s(machine) - DAY_S - 60);
	(void)lpi_kernel_read(kernel, FUSE_READ, node, 0, bytes);
	assert_in_range(atime_of(machine, node), now_s(machine) - 5, now_s(machine));
	assert_true(keeps_cache(machine, node, O_RDONLY));
	set_back(machine, node, DAY_S + 60);
	keep(machine, LPI_FUSE_KEEP_NO_ATIMES);
	assert_true(keeps_cache(machine, node, O_RDONLY));
	machine_end(machine);
}

static void test_no_diratime(void **state)
{
	static uint8_t bytes[LPI_KERNEL_BYTES];
	struct lpi_machine *machine = machine_new(2);
	struct lpi_kernel *kernel = &machine->kernels[0];
	(void)state;
	uint64_t dir = lpi_kernel_mkdir(kernel, 1, "dir");
	uint64_t file = lpi_kernel_create(kernel, FUSE_CREATE, dir, "file").node;
	for (uint32_t round = 0; round < 2; round++) {
		bool is_off = round == 0;
		keep(machine, is_off ? LPI_FUSE_KEEP_FILES_ATIMES : LPI_FUSE_KEEP_ATIMES);
		set_back(machine, dir, DAY_S + 60);
		set_back(machine, file, DAY_S + 60);
		int64_t before = atime_of(machine, dir);
		(void)lpi_kernel_read(kernel, FUSE_READDIR, dir, 0, bytes);
		assert_int_equal(atime_of(machine, dir) == before, is_off);
		(void)lpi_kernel_read(kernel, FUSE_READ, file, 0, bytes);
		assert_in_range(atime_of(machine, file), now_s(machine) - 5, now_s(machine));
		lpi_machine_idle(machine, 2 * LP_NS_PER_S);
	}
	machine_end(machine);
}

/* Whether a read after so long changes the access time, to the time of the read. */
static bool counts_after(struct lpi_machine *machine, uint32_t opcode, uint64_t node, uint64_t ns)
{
	static uint8_t bytes[LPI_KERNEL_BYTES];
	if (ns > 0)
		lpi_machine_idle(machine, ns);
	int64_t before_ns = lpi_machine_attrs(machine, node).atime_ns;
	int64_t now_ns = lp_clock_wall_ns(&machine->sim->clock.clock);
	(void)lpi_kernel_read(&machine->kernels[0], opcode, node, 0, bytes);
	int64_t after_ns = lpi_machine_attrs(machine, node).atime_ns;
	assert_true(after_ns == before_ns || after_ns >= now_ns);
	return after_ns != before_ns;
}

/* By the rules of relatime a second read does not count, nor does a first one so soon. */
static void test_each(void **state)
{
	struct lpi_machine *machine = machine_new(3);
	struct lpi_kernel *kernel = &machine->kernels[0];
	(void)state;
	uint64_t dir = lpi_kernel_mkdir(kernel, 1, "dir");
	uint64_t file = lpi_kernel_create(kernel, FUSE_CREATE, dir, "file").node;
	lp_test_ok(lpi_kernel_write(kernel, file, 0, "some bytes", 10));
	set_back(machine, file, 60);
	assert_false(counts_after(machine, FUSE_READ, file, 2 * LP_NS_PER_S));
	keep(machine, LPI_FUSE_KEEP_EACH_ATIME);
	for (uint32_t i = 0; i < 3; i++) {
		assert_true(counts_after(machine, FUSE_READ, file, 2 * LP_NS_PER_MS));
		assert_true(counts_after(machine, FUSE_READDIR, dir, 2 * LP_NS_PER_MS));
	}
	/* No finer than that, unless a program has set the time. */
	assert_true(counts_after(machine, FUSE_READ, file, 2 * LP_NS_PER_MS));
	assert_false(counts_after(machine, FUSE_READ, file, 0));
	set_back(machine, file, 60);
	assert_true(counts_after(machine, FUSE_READ, file, 0));
	assert_false(keeps_cache(machine, file, O_RDONLY));
	assert_false(keeps_cache(machine, file, O_RDWR));
	assert_true(keeps_cache(machine, file, O_WRONLY));
	assert_true(keeps_cache(machine, file, O_RDONLY | O_NOATIME));
	keep(machine, LPI_FUSE_KEEP_EACH_FILES_ATIME);
	assert_false(counts_after(machine, FUSE_READDIR, dir, 2 * LP_NS_PER_MS));
	assert_true(counts_after(machine, FUSE_READ, file, 2 * LP_NS_PER_MS));
	machine_end(machine);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_read_anew),
		cmocka_unit_test(test_no_diratime),
		cmocka_unit_test(test_each),
	};
	return lp_test_main(tests, "fuse/ops/atime");
}
