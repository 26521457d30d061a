/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: slow requests of the mount are remembered as those of the native door are: opcode, object,
 * result, and the time in each state; with the descriptors and by io_uring.
 * Method: a machine in simulated time, in which only the device takes time. */
#include "fuse/model/machine_test.h"

/* The only request with this opcode; NULL: there is none. */
static const struct lp_slow_request *find(const struct lp_slow_request *slow, uint32_t cnt,
					  uint32_t opcode)
{
	const struct lp_slow_request *found = NULL;
	for (uint32_t i = 0; i < cnt; i++) {
		assert_true(slow[i].is_mounts);
		assert_true(i == 0 || slow[i].took_ns <= slow[i - 1].took_ns);
		assert_int_equal(slow[i].state_ns[LPI_FUSE_LANDED] +
					 slow[i].state_ns[LPI_FUSE_WORK],
				 slow[i].took_ns);
		if (slow[i].opcode != opcode)
			continue;
		assert_null(found);
		found = &slow[i];
	}
	return found;
}

static uint32_t read_all(struct lpi_machine *machine, struct lp_slow_request *ret)
{
	uint32_t cnt = 0;
	for (uint32_t i = 0; i < LPI_MACHINE_CHANNELS; i++)
		cnt += lp_fuse_channel_slow(machine->channels[i], ret + cnt, LP_SLOW_MAX);
	return cnt;
}

/* Makes a directory on another shard than its entry, which takes two writes; earlier requests take
 * none. Returns its name. */
static const char *make_elsewhere(struct lpi_kernel *kernel)
{
	static const char *const names[LPI_NS_SIM_SHARDS] = {"one", "two", "three"};
	for (uint32_t i = 0; i < LP_ARRAY_SIZE(names); i++) {
		uint64_t node = lpi_kernel_mkdir(kernel, 1, names[i]);
		if (lp_ino_shard((struct lp_ino){node}) != 0)
			return names[i];
	}
	fail_msg("all directories are on one shard");
	return NULL;
}

static void check(uint32_t queue_cnt)
{
	struct lp_slow_request slow[LPI_MACHINE_CHANNELS * LP_SLOW_MAX];
	struct lpi_machine *machine = lpi_machine_boot_as(lpi_ns_sim_mkfs(1), queue_cnt, 0);
	struct lpi_kernel *kernel = &machine->kernels[0];
	char object[64];
	struct lpi_opened file = lpi_kernel_create(kernel, FUSE_CREATE, 1, "file");
	lp_test_ok(lpi_kernel_write(kernel, file.node, 0, "data", 4));
	uint64_t began_ns = (uint64_t)lp_clock_wall_ns(&machine->sim->clock.clock);
	lp_test_ok(lpi_kernel_fsync(kernel, FUSE_FSYNC, file.node, file.fh));
	uint64_t ended_ns = (uint64_t)lp_clock_wall_ns(&machine->sim->clock.clock);
	const char *name = make_elsewhere(kernel);
	uint32_t cnt = read_all(machine, slow);
	const struct lp_slow_request *sync = find(slow, cnt, FUSE_FSYNC);
	assert_non_null(sync);
	assert_true(sync->began_ns >= began_ns);
	assert_true(sync->began_ns + sync->took_ns <= ended_ns);
	assert_int_equal(sync->status, 0);
	(void)snprintf(object, sizeof(object), "inode %llu", (unsigned long long)file.node);
	assert_string_equal(sync->object, object);
	assert_null(find(slow, cnt, FUSE_LOOKUP));
	const struct lp_slow_request *made = find(slow, cnt, FUSE_MKDIR);
	assert_non_null(made);
	(void)snprintf(object, sizeof(object), "inode 1: %s", name);
	assert_string_equal(made->object, object);
	/* Old requests are removed. */
	lpi_machine_idle(machine, LP_SLOW_KEEP_NS + LP_NS_PER_S);
	assert_int_equal(read_all(machine, slow), 0);
	lp_test_ok(lpi_machine_stop(machine));
	lpi_machine_free(machine);
}

static void test_by_descriptors(void **state)
{
	(void)state;
	check(0);
}

static void test_by_ring(void **state)
{
	(void)state;
	check(LPI_MACHINE_CHANNELS);
}

static void test_states(void **state)
{
	(void)state;
	assert_string_equal(lp_fuse_state_name(0), "LANDED");
	assert_string_equal(lp_fuse_state_name(1), "WORK");
	assert_null(lp_fuse_state_name(2));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_by_descriptors),
		cmocka_unit_test(test_by_ring),
		cmocka_unit_test(test_states),
	};
	return lp_test_main(tests, "fuse/slow");
}
