/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: the root's attribute has the mount's options, and a value written to it counts for all
 * channels from then on. Other inodes do not have the attribute, and it is not stored.
 * Method: a machine with two channels. One is told, and the other is read by. */
#include "fuse/ops/settings.h"

#include <errno.h>

#include "fuse/model/machine_test.h"

#define ROOT  UINT64_C(1)
#define DAY_S INT64_C(86400)

static int get(struct lpi_kernel *kernel, uint64_t node, uint32_t size)
{
	const struct fuse_getxattr_in in = {.size = size};
	lpi_kernel_begin(kernel, FUSE_GETXATTR, node);
	lpi_kernel_add(kernel, &in, sizeof(in));
	lpi_kernel_add_name(kernel, LPI_FUSE_SETTINGS);
	return lpi_kernel_ask(kernel);
}

static int set(struct lpi_kernel *kernel, uint64_t node, const char *word)
{
	const struct fuse_setxattr_in in = {.size = (uint32_t)strlen(word)};
	lpi_kernel_begin(kernel, FUSE_SETXATTR, node);
	lpi_kernel_add(kernel, &in, sizeof(in));
	lpi_kernel_add_name(kernel, LPI_FUSE_SETTINGS);
	lpi_kernel_add(kernel, word, strlen(word));
	return lpi_kernel_ask(kernel);
}

static void test_said(void **state)
{
	struct lpi_machine *machine = lpi_machine_boot(lpi_ns_sim_mkfs(1));
	struct lpi_kernel *kernel = &machine->kernels[1];
	struct fuse_getxattr_out out;
	char wanted[128];
	(void)state;
	for (uint32_t i = 0; i < LPI_MACHINE_CHANNELS; i++)
		machine->channels[i]->options.mount_options = "ro,uid=7";
	int len = snprintf(wanted, sizeof(wanted), "%d ro,uid=7", (int)getpid());
	lp_test_ok(get(kernel, ROOT, 0));
	memcpy(&out, lpi_kernel_answer(kernel, sizeof(out)), sizeof(out));
	assert_int_equal(out.size, len);
	lp_test_err(-ERANGE, get(kernel, ROOT, (uint32_t)len - 1));
	lp_test_ok(get(kernel, ROOT, 1000));
	assert_int_equal(lpi_kernel_answer_len(kernel), len);
	assert_memory_equal(lpi_kernel_answer(kernel, (size_t)len), wanted, (size_t)len);
	/* On any other inode it is an ordinary attribute. */
	uint64_t dir = lpi_kernel_mkdir(kernel, ROOT, "dir");
	lp_test_err(-ENODATA, get(kernel, dir, 1000));
	lp_test_ok(set(kernel, dir, "any word"));
	lp_test_ok(get(kernel, dir, 1000));
	assert_int_equal(lpi_kernel_answer_len(kernel), strlen("any word"));
	lp_test_ok(lpi_machine_stop(machine));
	lpi_machine_free(machine);
}

/* Both times a day and more ago, so that a read counts if any does. */
static int64_t set_back(struct lpi_machine *machine, uint64_t node)
{
	int64_t then_s = lp_clock_wall_ns(&machine->sim->clock.clock) / (int64_t)LP_NS_PER_S;
	const struct fuse_setattr_in in = {.valid = FATTR_ATIME | FATTR_MTIME,
					   .atime = (uint64_t)(then_s - DAY_S - 60),
					   .mtime = (uint64_t)(then_s - DAY_S - 60)};
	lpi_kernel_begin(&machine->kernels[0], FUSE_SETATTR, node);
	lpi_kernel_add(&machine->kernels[0], &in, sizeof(in));
	lp_test_ok(lpi_kernel_ask(&machine->kernels[0]));
	return lpi_machine_attrs(machine, node).atime_ns;
}

/* Whether reading it by either kernel changes its access time. */
static bool counts(struct lpi_machine *machine, uint32_t opcode, uint64_t node)
{
	static uint8_t bytes[LPI_KERNEL_BYTES];
	uint32_t counted = 0;
	for (uint32_t i = 0; i < LPI_MACHINE_CHANNELS; i++) {
		lpi_machine_idle(machine, 2 * LP_NS_PER_S);
		int64_t before = set_back(machine, node);
		(void)lpi_kernel_read(&machine->kernels[i], opcode, node, 0, bytes);
		counted += lpi_machine_attrs(machine, node).atime_ns != before ? 1 : 0;
	}
	assert_true(counted == 0 || counted == LPI_MACHINE_CHANNELS);
	return counted > 0;
}

static void test_told(void **state)
{
	static const struct {
		const char *word;
		bool of_files;
		bool of_dirs;
	} words[] = {{LPI_FUSE_ATIMES_NONE, false, false},
		     {LPI_FUSE_ATIMES_ALL, true, true},
		     {LPI_FUSE_ATIMES_EACH, true, true},
		     {LPI_FUSE_ATIMES_EACH_NO_DIRS, true, false},
		     {LPI_FUSE_ATIMES_NO_DIRS, true, false}};
	struct lpi_machine *machine = lpi_machine_boot(lpi_ns_sim_mkfs(2));
	struct lpi_kernel *kernel = &machine->kernels[0];
	(void)state;
	uint64_t dir = lpi_kernel_mkdir(kernel, ROOT, "dir");
	uint64_t file = lpi_kernel_create(kernel, FUSE_CREATE, dir, "file").node;
	assert_true(counts(machine, FUSE_READ, file));
	for (uint32_t i = 0; i < LP_ARRAY_SIZE(words); i++) {
		lp_test_ok(set(kernel, ROOT, words[i].word));
		assert_int_equal(counts(machine, FUSE_READ, file), words[i].of_files);
		assert_int_equal(counts(machine, FUSE_READDIR, dir), words[i].of_dirs);
	}
	/* A wrong word changes nothing. */
	lp_test_err(-EINVAL, set(kernel, ROOT, "atimes"));
	lp_test_err(-EINVAL, set(kernel, ROOT, "noatim"));
	lp_test_err(-EINVAL, set(kernel, ROOT, ""));
	assert_false(counts(machine, FUSE_READDIR, dir));
	assert_true(counts(machine, FUSE_READ, file));
	lp_test_ok(lpi_machine_stop(machine));
	lpi_machine_free(machine);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_said),
		cmocka_unit_test(test_told),
	};
	return lp_test_main(tests, "fuse/ops/settings");
}
