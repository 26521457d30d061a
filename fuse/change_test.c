/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: a change of data takes the privileges away, and takes nothing else along: neither the mode
 * that somebody sets through the other door at that moment, nor the data.
 * Method: a machine with two channels, whose namespace is asked by the side at each turn of the
 * change. */
#include "fuse/change.h"

#include "fuse/machine_test.h"

#define TURNS 40u

static struct lp_ns_op chmod_op(uint64_t node, uint16_t mode)
{
	struct lp_ns_op op = {.opcode = LP_NS_SET};
	op.set.ino.nr = node;
	op.set.attrs.mode = mode;
	op.set.mask = LP_ATTR_MODE;
	return op;
}

static void chmod_natively(struct lpi_machine *machine, uint64_t node, uint16_t mode)
{
	struct lp_ns_op op = chmod_op(node, mode);
	lp_test_ok(lpi_ns_sim_do(machine->sim, &op));
}

static uint16_t mode_of(struct lpi_machine *machine, uint64_t node)
{
	struct lp_ns_op op = {.opcode = LP_NS_STAT};
	op.stat.ino.nr = node;
	lp_test_ok(lpi_ns_sim_do(machine->sim, &op));
	return op.stat.found.attrs.mode;
}

static void begin_write(struct lpi_kernel *kernel, uint64_t node)
{
	const struct fuse_write_in in = {.size = 10, .write_flags = FUSE_WRITE_KILL_SUIDGID};
	lpi_kernel_begin_write_as(kernel, node, &in, "some bytes");
}

static void begin_cut(struct lpi_kernel *kernel, uint64_t node)
{
	const struct fuse_setattr_in in = {.valid = FATTR_SIZE | FATTR_KILL_SUIDGID};
	lpi_kernel_begin(kernel, FUSE_SETATTR, node);
	lpi_kernel_add(kernel, &in, sizeof(in));
}

typedef void begin_fn(struct lpi_kernel *kernel, uint64_t node);

static begin_fn *const ways[] = {begin_write, begin_cut};

static void test_killed(void **state)
{
	static const struct {
		uint16_t before;
		uint16_t after;
	} modes[] = {{0644, 0644}, {04755, 0755}, {06755, 0755}, {02755, 0755}, {07645, 03645}};
	struct lpi_machine *machine = lpi_machine_boot(lpi_ns_sim_mkfs(1));
	struct lpi_kernel *kernel = &machine->kernels[0];
	(void)state;
	uint64_t node = lpi_kernel_create(kernel, FUSE_CREATE, 1, "file").node;
	for (uint32_t i = 0; i < LP_ARRAY_SIZE(ways) * LP_ARRAY_SIZE(modes); i++) {
		uint32_t mode_idx = i / LP_ARRAY_SIZE(ways);
		chmod_natively(machine, node, modes[mode_idx].before);
		ways[i % LP_ARRAY_SIZE(ways)](kernel, node);
		lp_test_ok(lpi_kernel_ask(kernel));
		assert_int_equal(mode_of(machine, node), modes[mode_idx].after);
	}
	lp_test_ok(lpi_machine_stop(machine));
	lpi_machine_free(machine);
}

/* What was begun goes, and another mode is asked for: so many turns later, or earlier. */
static void change_beside(struct lpi_machine *machine, uint64_t node, uint32_t turns, bool is_first)
{
	struct lpi_kernel *kernel = &machine->kernels[0];
	struct lpi_ns_sim_asked native = {.op = chmod_op(node, 0604)};
	struct fuse_out_header header;
	native.op.complete = lpi_ns_sim_answered;
	if (is_first)
		lpi_kernel_send(kernel);
	else
		lp_ns_submit(machine->sim->ns[0], &native.op);
	for (uint32_t i = 0; i < turns; i++)
		kernel->turn(kernel->arg);
	if (is_first)
		lp_ns_submit(machine->sim->ns[0], &native.op);
	else
		lpi_kernel_send(kernel);
	while (!lpi_kernel_take(kernel, &header))
		kernel->turn(kernel->arg);
	while (!native.is_done)
		kernel->turn(kernel->arg);
	lp_test_ok(header.error);
	lp_test_ok(native.op.result);
}

/* Whenever the other mode is set, before or behind the change, it is what there is then. */
static void test_mode_beside(void **state)
{
	struct lpi_machine *machine = lpi_machine_boot(lpi_ns_sim_mkfs(2));
	(void)state;
	uint64_t node = lpi_kernel_create(&machine->kernels[0], FUSE_CREATE, 1, "file").node;
	for (uint32_t i = 0; i < LP_ARRAY_SIZE(ways) * 2 * TURNS; i++) {
		uint32_t round = i / LP_ARRAY_SIZE(ways);
		chmod_natively(machine, node, 04755);
		ways[i % LP_ARRAY_SIZE(ways)](&machine->kernels[0], node);
		change_beside(machine, node, round / 2, round % 2 == 0);
		assert_int_equal(mode_of(machine, node), 0604);
	}
	lp_test_ok(lpi_machine_stop(machine));
	lpi_machine_free(machine);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_killed),
		cmocka_unit_test(test_mode_beside),
	};
	return lp_test_main(tests, "fuse/change");
}
