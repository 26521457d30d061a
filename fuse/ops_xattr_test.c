/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: an access list that is set changes the mode's rights, and takes back no other bit of it
 * that somebody sets through the other door at that moment.
 * Method: a machine with two channels, whose namespace is asked by the side at each turn of the
 * change. */
#include "fuse/machine_test.h"
#include "namespace/acl.h"

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

/* The mode loses its bits, and a list is set: so many turns later. */
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_mode_beside),
	};
	return lp_test_main(tests, "fuse/ops_xattr");
}
