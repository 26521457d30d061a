/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: more reads than the namespace has calls, each of which looks at an access time, all end,
 * and so do copies that read and write; all count.
 * Method: a machine whose namespaces have few calls, and a kernel that sends all requests at once.
 */
#include "fuse/carry.h"

#include "fuse/model/machine_test.h"

#define FILES 48u /* there are 16 calls */
#define BYTES 10u

struct world {
	struct lpi_machine *machine;
	uint64_t nodes[FILES];
	int64_t atimes_ns[FILES];
};

/* Files of one shard, none of which has been read. */
static void begin(struct world *world, uint64_t seed, uint32_t carries_max)
{
	world->machine = lpi_machine_boot(lpi_ns_sim_mkfs(seed));
	struct lpi_kernel *kernel = &world->machine->kernels[0];
	for (uint32_t i = 0; i < LPI_MACHINE_CHANNELS; i++)
		world->machine->channels[i]->carries.max = carries_max;
	uint64_t dir = lpi_kernel_mkdir(kernel, 1, "dir");
	for (uint32_t i = 0; i < FILES; i++) {
		char name[8];
		(void)snprintf(name, sizeof(name), "%u", i);
		world->nodes[i] = lpi_kernel_create(kernel, FUSE_CREATE, dir, name).node;
		lp_test_ok(lpi_kernel_write(kernel, world->nodes[i], 0, "0123456789", BYTES));
		world->atimes_ns[i] = lpi_machine_attrs(world->machine, world->nodes[i]).atime_ns;
	}
	lpi_machine_idle(world->machine, LP_NS_PER_S);
}

static void end(struct world *world)
{
	lp_test_ok(lpi_machine_stop(world->machine));
	lpi_machine_free(world->machine);
}

static void send_read(struct world *world, uint32_t i)
{
	const struct fuse_read_in in = {.size = 4096};
	struct lpi_kernel *kernel = &world->machine->kernels[0];
	lpi_kernel_begin(kernel, FUSE_READ, world->nodes[i]);
	lpi_kernel_add(kernel, &in, sizeof(in));
	lpi_kernel_send(kernel);
}

/* The copy is not on the grid of the store's blocks, so data is read and written. */
static void send_copy(struct world *world, uint32_t i)
{
	const struct fuse_copy_file_range_in in = {
		.off_in = 1, .nodeid_out = world->nodes[(i + 1) % FILES], .len = BYTES / 2};
	struct lpi_kernel *kernel = &world->machine->kernels[0];
	lpi_kernel_begin(kernel, FUSE_COPY_FILE_RANGE, world->nodes[i]);
	lpi_kernel_add(kernel, &in, sizeof(in));
	lpi_kernel_send(kernel);
}

static void await(struct world *world, uint32_t cnt)
{
	struct lpi_kernel *kernel = &world->machine->kernels[0];
	struct fuse_out_header header;
	for (uint32_t turns = 0; cnt > 0; turns++) {
		assert_true(turns < LPI_NS_SIM_TURNS_MAX);
		if (!lpi_kernel_take(kernel, &header)) {
			kernel->turn(kernel->arg);
			continue;
		}
		lp_test_ok(header.error);
		cnt--;
	}
}

static void have_counted(struct world *world)
{
	lpi_machine_idle(world->machine, LP_NS_PER_S);
	for (uint32_t i = 0; i < FILES; i++)
		assert_true(lpi_machine_attrs(world->machine, world->nodes[i]).atime_ns >
			    world->atimes_ns[i]);
}

static void test_reads(void **state)
{
	struct world world;
	(void)state;
	begin(&world, 1, 4);
	for (uint32_t i = 0; i < FILES; i++)
		send_read(&world, i);
	await(&world, FILES);
	have_counted(&world);
	end(&world);
}

static void test_copies(void **state)
{
	struct world world;
	(void)state;
	begin(&world, 2, 4);
	for (uint32_t i = 0; i < FILES; i++)
		send_copy(&world, i);
	await(&world, FILES);
	end(&world);
}

static void test_both(void **state)
{
	struct world world;
	(void)state;
	begin(&world, 3, 1);
	for (uint32_t i = 0; i < FILES; i++) {
		send_copy(&world, i);
		send_read(&world, i);
	}
	await(&world, 2 * FILES);
	have_counted(&world);
	end(&world);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_reads),
		cmocka_unit_test(test_copies),
		cmocka_unit_test(test_both),
	};
	return lp_test_main(tests, "fuse/carry");
}
