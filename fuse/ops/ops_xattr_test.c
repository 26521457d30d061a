/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: a new access list changes the mode's rights, and reverts no other bit of it that is set
 * through the other door at that moment. Names are listed as long as the kernel takes the list.
 * Method: a machine with two channels; the namespace gets another operation at each turn of the
 * change. */
#include <errno.h>
#include <linux/limits.h>
#include <linux/xattr.h>

#include "fuse/model/machine_test.h"
#include "namespace/state/acl.h"

#define TURNS 40u

#define NOBODY 0xff, 0xff, 0xff, 0xff

/* u::rw- u:1000:rwx g::r-- m::rw- o::--- */
static const uint8_t named[] = {2,  0, 0,    0, 1,      0,  6, 0, NOBODY, 2,     0,
				7,  0, 0xe8, 3, 0,      0,  4, 0, 4,      0,     NOBODY,
				16, 0, 6,    0, NOBODY, 32, 0, 0, 0,      NOBODY};
/* u::rw- g::rw- o::--- */
static const uint8_t plain[] = {2, 0, 0, 0,      1,  0, 6, 0, NOBODY, 4,
				0, 6, 0, NOBODY, 32, 0, 0, 0, NOBODY};

static void send_list(struct lpi_kernel *kernel, uint64_t node, const void *list, uint32_t bytes)
{
	const struct fuse_setxattr_in in = {.size = bytes};
	lpi_kernel_begin(kernel, FUSE_SETXATTR, node);
	lpi_kernel_add(kernel, &in, sizeof(in));
	lpi_kernel_add_name(kernel, LP_ACL_ACCESS);
	lpi_kernel_add(kernel, list, bytes);
	lpi_kernel_send(kernel);
}

/* The mode loses its bits, and a list is set some turns later. */
static void set_beside(struct lpi_machine *machine, uint64_t node, uint32_t turns, bool is_named)
{
	struct lpi_kernel *kernel = &machine->kernels[0];
	struct lpi_ns_sim_asked native = {.op = lpi_machine_chmod_op(node, 0600)};
	struct fuse_out_header header;
	native.op.complete = lpi_ns_sim_answered;
	lp_ns_submit(machine->sim->ns[0], &native.op);
	for (uint32_t i = 0; i < turns; i++)
		kernel->turn(kernel->arg);
	send_list(kernel, node, is_named ? named : plain, is_named ? sizeof(named) : sizeof(plain));
	while (!lpi_kernel_take(kernel, &header))
		kernel->turn(kernel->arg);
	while (!native.is_done)
		kernel->turn(kernel->arg);
	lp_test_ok(header.error);
	lp_test_ok(native.op.result);
}

static void test_mode_beside(void **state)
{
	struct lpi_machine *machine = lpi_machine_boot(lpi_ns_sim_mkfs(1));
	(void)state;
	uint64_t node = lpi_kernel_create(&machine->kernels[0], FUSE_CREATE, 1, "file").node;
	for (uint32_t i = 0; i < 2 * TURNS; i++) {
		lpi_machine_chmod(machine, node, 07755);
		set_beside(machine, node, i / 2, i % 2 == 0);
		uint16_t mode = lpi_machine_attrs(machine, node).mode;
		assert_true(mode == 0660 || mode == 0600);
	}
	lp_test_ok(lpi_machine_stop(machine));
	lpi_machine_free(machine);
}

#define NAME_BYTES 256u /* with the 0 behind it */

static void add_name(struct lpi_kernel *kernel, uint64_t node, uint32_t nr)
{
	const struct fuse_setxattr_in in = {.size = 0};
	char name[NAME_BYTES];
	(void)snprintf(name, sizeof(name), "user.%0*u", (int)(NAME_BYTES - sizeof("user.")), nr);
	lpi_kernel_begin(kernel, FUSE_SETXATTR, node);
	lpi_kernel_add(kernel, &in, sizeof(in));
	lpi_kernel_add_name(kernel, name);
	lp_test_ok(lpi_kernel_ask(kernel));
}

static int list_names(struct lpi_kernel *kernel, uint64_t node, uint32_t size)
{
	const struct fuse_getxattr_in in = {.size = size};
	lpi_kernel_begin(kernel, FUSE_LISTXATTR, node);
	lpi_kernel_add(kernel, &in, sizeof(in));
	return lpi_kernel_ask(kernel);
}

/* Expects cnt names, each of them listed. */
static void are_listed(struct lpi_kernel *kernel, uint64_t node, uint32_t cnt)
{
	struct fuse_getxattr_out out;
	lp_test_ok(list_names(kernel, node, 0));
	memcpy(&out, lpi_kernel_answer(kernel, sizeof(out)), sizeof(out));
	assert_int_equal(out.size, cnt * NAME_BYTES);
	lp_test_err(-ERANGE, list_names(kernel, node, cnt * NAME_BYTES - 1));
	lp_test_ok(list_names(kernel, node, XATTR_LIST_MAX));
	assert_int_equal(lpi_kernel_answer_len(kernel), cnt * NAME_BYTES);
	const char *names = (const char *)lpi_kernel_answer(kernel, (size_t)cnt * NAME_BYTES);
	for (uint32_t i = 0; i < cnt; i++) {
		assert_int_equal(strlen(names), NAME_BYTES - 1);
		assert_int_equal(strtoul(names + strlen("user."), NULL, 10), i);
		names += NAME_BYTES;
	}
}

static void test_many_names(void **state)
{
	struct lpi_machine *machine = lpi_machine_boot(lpi_ns_sim_mkfs(2));
	struct lpi_kernel *kernel = &machine->kernels[0];
	(void)state;
	uint64_t node = lpi_kernel_create(kernel, FUSE_CREATE, 1, "file").node;
	uint32_t cnt = 0;
	while (cnt < XATTR_LIST_MAX / NAME_BYTES) {
		add_name(kernel, node, cnt++);
		/* In one room, and, of 56 KiB on, in a larger one. */
		if (cnt == 100 || cnt == 224 || cnt == 225)
			are_listed(kernel, node, cnt);
	}
	are_listed(kernel, node, cnt);
	add_name(kernel, node, cnt);
	lp_test_err(-E2BIG, list_names(kernel, node, 0));
	lp_test_err(-E2BIG, list_names(kernel, node, XATTR_LIST_MAX));
	lp_test_ok(lpi_machine_stop(machine));
	lpi_machine_free(machine);
}

static int get_label(struct lpi_kernel *kernel, uint64_t node)
{
	const struct fuse_getxattr_in in = {.size = 255};
	lpi_kernel_begin(kernel, FUSE_GETXATTR, node);
	lpi_kernel_add(kernel, &in, sizeof(in));
	lpi_kernel_add_name(kernel, XATTR_NAME_SELINUX);
	return lpi_kernel_ask(kernel);
}

static void set_label(struct lpi_kernel *kernel, uint64_t node)
{
	const struct fuse_setxattr_in in = {.size = 1};
	lpi_kernel_begin(kernel, FUSE_SETXATTR, node);
	lpi_kernel_add(kernel, &in, sizeof(in));
	lpi_kernel_add_name(kernel, XATTR_NAME_SELINUX);
	lpi_kernel_add(kernel, "x", 1);
	lp_test_ok(lpi_kernel_ask(kernel));
}

static void boot_labels(struct lp_bdev *bdev, bool no_selinux, struct lpi_machine **ret_machine)
{
	*ret_machine = lpi_machine_boot(bdev);
	for (uint32_t i = 0; i < LPI_MACHINE_CHANNELS; i++)
		(*ret_machine)->channels[i]->options.behaviour.no_selinux = no_selinux;
}

/* If labels have no use, a program that lists a directory asks for one label and not for all. Once
 * there are labels, each file is asked for its own, through any channel. */
static void test_labels(void **state)
{
	struct lpi_machine *machine = NULL;
	(void)state;
	boot_labels(lpi_ns_sim_mkfs(2), true, &machine);
	uint64_t bare = lpi_kernel_create(&machine->kernels[0], FUSE_CREATE, 1, "bare").node;
	uint64_t file = lpi_kernel_create(&machine->kernels[0], FUSE_CREATE, 1, "file").node;
	lp_test_err(-EOPNOTSUPP, get_label(&machine->kernels[0], bare));
	lp_test_err(-ENODATA, lpi_kernel_get_xattr(&machine->kernels[0], bare, 1));
	set_label(&machine->kernels[1], file);
	lp_test_err(-ENODATA, get_label(&machine->kernels[0], bare));
	lp_test_ok(get_label(&machine->kernels[0], file));
	/* As after a start: the first that is seen counts. */
	atomic_store(&machine->channels[0]->has_labels, false);
	lp_test_err(-EOPNOTSUPP, get_label(&machine->kernels[0], bare));
	lp_test_ok(list_names(&machine->kernels[1], file, 0));
	lp_test_err(-ENODATA, get_label(&machine->kernels[0], bare));
	lp_test_ok(lpi_machine_stop(machine));
	lpi_machine_free(machine);
}

static void test_labels_of_selinux(void **state)
{
	struct lpi_machine *machine = NULL;
	(void)state;
	boot_labels(lpi_ns_sim_mkfs(2), false, &machine);
	uint64_t bare = lpi_kernel_create(&machine->kernels[0], FUSE_CREATE, 1, "bare").node;
	lp_test_err(-ENODATA, get_label(&machine->kernels[0], bare));
	lp_test_ok(lpi_machine_stop(machine));
	lpi_machine_free(machine);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_mode_beside),
		cmocka_unit_test(test_many_names),
		cmocka_unit_test(test_labels),
		cmocka_unit_test(test_labels_of_selinux),
	};
	return lp_test_main(tests, "fuse/ops/ops_xattr");
}
