/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: what df says is available leaves out what is kept for the index and for cuts of shared
 * blocks: objects cannot have it (P6).
 * Method: a machine with two channels, whose stores and device tell what they keep. */
#include "fuse/machine_test.h"

static struct fuse_kstatfs statfs_by(struct lpi_machine *machine, uint32_t kernel_idx)
{
	struct lpi_kernel *kernel = &machine->kernels[kernel_idx];
	struct fuse_statfs_out out;
	lpi_kernel_begin(kernel, FUSE_STATFS, 1);
	lp_test_ok(lpi_kernel_ask(kernel));
	memcpy(&out, lpi_kernel_answer(kernel, sizeof(out)), sizeof(out));
	return out.st;
}

static void test_available(void **state)
{
	struct lpi_machine *machine = lpi_machine_boot(lpi_ns_sim_mkfs(1));
	struct lp_chunks *chunks = machine->sim->devices.chunks[LP_MKFS_DATA];
	uint64_t free_blocks = 0;
	uint64_t kept_blocks = 0;
	(void)state;
	lp_chunks_set_files_reserve(chunks, 1);
	uint64_t dir = lpi_kernel_mkdir(&machine->kernels[0], 1, "dir");
	uint64_t node = lpi_kernel_create(&machine->kernels[0], FUSE_CREATE, dir, "file").node;
	lp_test_ok(lpi_kernel_write(&machine->kernels[0], node, 0, "some bytes", 10));
	/* Each channel has one of the stores. */
	for (uint32_t i = 0; i < LPI_MACHINE_CHANNELS; i++) {
		struct lp_store_stats stats;
		lp_store_read_stats(machine->sim->hand[i].store, &stats);
		free_blocks += stats.free_blocks;
		kept_blocks += stats.kept_blocks;
	}
	uint64_t chunk_blocks = lp_chunks_chunk_blocks(chunks);
	uint64_t free_cnt = lp_chunks_free_cnt(chunks);
	assert_true(kept_blocks > 0 && kept_blocks < free_blocks);
	assert_true(free_cnt > 1);
	for (uint32_t i = 0; i < LPI_MACHINE_CHANNELS; i++) {
		struct fuse_kstatfs st = statfs_by(machine, i);
		assert_int_equal(st.bfree, free_blocks + free_cnt * chunk_blocks);
		assert_int_equal(st.bavail, st.bfree - kept_blocks - chunk_blocks);
		assert_true(st.blocks >= st.bfree);
	}
	lp_test_ok(lpi_machine_stop(machine));
	lpi_machine_free(machine);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_available),
	};
	return lp_test_main(tests, "fuse/ops_attrs");
}
