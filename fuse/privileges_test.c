/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: a program that another user changes is not run with its owner's rights (rule M5). While it
 * is open to be run no write takes its bits, and while such a write is under way it cannot be
 * opened to be run. Method: a machine with two channels, one of which runs, while the other
 * changes. The kernel's cache cannot be tested here: the kernel cannot be reached, and then a
 * program is not run. tests/system/mount/mount_run.sh tests it. */
#include "fuse/privileges.h"

#include <errno.h>

#include "fuse/model/machine_test.h"
#include "fuse/ops/change.h"

#define TURNS 40u

static struct lpi_machine *machine_new(uint64_t seed)
{
	struct lpi_machine *machine = lpi_machine_boot(lpi_ns_sim_mkfs(seed));
	for (uint32_t i = 0; i < LPI_MACHINE_CHANNELS; i++)
		machine->channels[i]->options.mount_dir = "/nowhere/at/all";
	return machine;
}

static void machine_end(struct lpi_machine *machine)
{
	lp_test_ok(lpi_machine_stop(machine));
	lpi_machine_free(machine);
}

static uint64_t make(struct lpi_machine *machine, const char *name)
{
	uint64_t node = lpi_kernel_create(&machine->kernels[0], FUSE_CREATE, 1, name).node;
	lp_test_ok(lpi_kernel_write(&machine->kernels[0], node, 0, "good", 4));
	lpi_machine_chmod(machine, node, 04777);
	return node;
}

static void begin_open(struct lpi_kernel *kernel, uint64_t node, uint32_t flags)
{
	const struct fuse_open_in in = {.flags = flags};
	lpi_kernel_begin(kernel, FUSE_OPEN, node);
	lpi_kernel_add(kernel, &in, sizeof(in));
}

static int open_as(struct lpi_kernel *kernel, uint64_t node, uint32_t flags, uint64_t *ret_fh)
{
	struct fuse_open_out out;
	begin_open(kernel, node, flags);
	int err = lpi_kernel_ask(kernel);
	if (err == 0) {
		memcpy(&out, lpi_kernel_answer(kernel, sizeof(out)), sizeof(out));
		*ret_fh = out.fh;
	}
	return err;
}

static void release(struct lpi_kernel *kernel, uint64_t node, uint64_t fh)
{
	const struct fuse_release_in in = {.fh = fh};
	lpi_kernel_begin(kernel, FUSE_RELEASE, node);
	lpi_kernel_add(kernel, &in, sizeof(in));
	lp_test_ok(lpi_kernel_ask(kernel));
}

static void begin_kill(struct lpi_kernel *kernel, uint64_t node)
{
	const struct fuse_write_in in = {.size = 4, .write_flags = FUSE_WRITE_KILL_SUIDGID};
	lpi_kernel_begin_write_as(kernel, node, &in, "evil");
}

static int kill_by_write(struct lpi_kernel *kernel, uint64_t node)
{
	begin_kill(kernel, node);
	return lpi_kernel_ask(kernel);
}

static int kill_by_cut(struct lpi_kernel *kernel, uint64_t node)
{
	const struct fuse_setattr_in in = {.valid = FATTR_SIZE | FATTR_KILL_SUIDGID};
	lpi_kernel_begin(kernel, FUSE_SETATTR, node);
	lpi_kernel_add(kernel, &in, sizeof(in));
	return lpi_kernel_ask(kernel);
}

static bool is_evil(struct lpi_machine *machine, uint64_t node)
{
	static uint8_t bytes[LPI_KERNEL_BYTES];
	uint32_t len = lpi_kernel_read(&machine->kernels[0], FUSE_READ, node, 0, bytes);
	return len != 4 || memcmp(bytes, "good", 4) != 0;
}

/* While it is open to be run. */
static void test_running(void **state)
{
	struct lpi_machine *machine = machine_new(1);
	struct lpi_kernel *other = &machine->kernels[0];
	uint64_t fh = 0;
	uint64_t plain_fh = 0;
	(void)state;
	uint64_t node = make(machine, "file");
	lp_test_ok(open_as(&machine->kernels[1], node, O_RDONLY | LPI_FUSE_OPEN_EXEC, &fh));
	lp_test_ok(open_as(&machine->kernels[1], node, O_RDONLY, &plain_fh));
	lp_test_err(-ETXTBSY, kill_by_write(other, node));
	lp_test_err(-ETXTBSY, kill_by_cut(other, node));
	assert_false(is_evil(machine, node));
	assert_int_equal(lpi_machine_attrs(machine, node).mode, 04777);
	/* A write that takes no bits is not refused, nor is a new owner. */
	lp_test_ok(lpi_kernel_write(other, node, 0, "good", 4));
	const struct fuse_setattr_in in = {.valid = FATTR_UID | FATTR_KILL_SUIDGID, .uid = 5};
	lpi_kernel_begin(other, FUSE_SETATTR, node);
	lpi_kernel_add(other, &in, sizeof(in));
	lp_test_ok(lpi_kernel_ask(other));
	assert_int_equal(lpi_machine_attrs(machine, node).mode, 0777);
	lpi_machine_chmod(machine, node, 04777);
	lp_test_err(-ETXTBSY, kill_by_write(other, node));
	/* And when it is not open any more. A reader disturbs no write. */
	release(&machine->kernels[1], node, fh);
	lp_test_ok(kill_by_write(other, node));
	assert_true(is_evil(machine, node));
	assert_int_equal(lpi_machine_attrs(machine, node).mode, 0777);
	release(&machine->kernels[1], node, plain_fh);
	machine_end(machine);
}

/* The file was changed, and the kernel may not know. The kernel cannot be reached, so the file is
 * not run. */
static void test_killed(void **state)
{
	struct lpi_machine *machine = machine_new(2);
	struct lpi_kernel *kernel = &machine->kernels[1];
	uint64_t fh = 0;
	(void)state;
	uint64_t node = make(machine, "file");
	lp_test_ok(kill_by_write(&machine->kernels[0], node));
	lp_test_err(-ETXTBSY, open_as(kernel, node, O_RDONLY | LPI_FUSE_OPEN_EXEC, &fh));
	lp_test_ok(open_as(kernel, node, O_RDONLY, &fh));
	/* Failed tries leave no note: it can be changed again. */
	lpi_machine_chmod(machine, node, 04777);
	lp_test_ok(kill_by_write(&machine->kernels[0], node));
	/* Where the kernel gives no rights, all is allowed. */
	for (uint32_t i = 0; i < LPI_MACHINE_CHANNELS; i++)
		machine->channels[i]->options.mount_dir = NULL;
	lp_test_ok(open_as(kernel, node, O_RDONLY | LPI_FUSE_OPEN_EXEC, &fh));
	lpi_machine_chmod(machine, node, 04777);
	lp_test_ok(kill_by_write(&machine->kernels[0], node));
	machine_end(machine);
}

static int take(struct lpi_kernel *kernel)
{
	struct fuse_out_header header;
	for (uint32_t i = 0; !lpi_kernel_take(kernel, &header); i++) {
		assert_true(i < 2000000);
		kernel->turn(kernel->arg);
	}
	return header.error;
}

/* At the same time: so many turns apart, and which of the two first. */
static void test_together(void **state)
{
	struct lpi_machine *machine = machine_new(3);
	struct lpi_kernel *changes = &machine->kernels[0];
	struct lpi_kernel *runs = &machine->kernels[1];
	uint32_t run_cnt = 0;
	uint32_t changed_cnt = 0;
	(void)state;
	for (uint32_t i = 0; i < 2 * TURNS; i++) {
		char name[16];
		(void)snprintf(name, sizeof(name), "file%u", i);
		uint64_t node = make(machine, name);
		begin_kill(changes, node);
		begin_open(runs, node, O_RDONLY | LPI_FUSE_OPEN_EXEC);
		lpi_kernel_send(i % 2 == 0 ? changes : runs);
		for (uint32_t turn = 0; turn < i / 2; turn++)
			changes->turn(changes->arg);
		lpi_kernel_send(i % 2 == 0 ? runs : changes);
		int changed = take(changes);
		int opened = take(runs);
		assert_true(changed == 0 || changed == -ETXTBSY);
		assert_true(opened == 0 || opened == -ETXTBSY);
		assert_false(opened == 0 && changed == 0);
		assert_int_equal(is_evil(machine, node), changed == 0);
		run_cnt += opened == 0 ? 1 : 0;
		changed_cnt += changed == 0 ? 1 : 0;
	}
	assert_true(run_cnt > 0 && changed_cnt > 0);
	machine_end(machine);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_running),
		cmocka_unit_test(test_killed),
		cmocka_unit_test(test_together),
	};
	return lp_test_main(tests, "fuse/privileges");
}
