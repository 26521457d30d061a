/* SPDX-License-Identifier: Apache-2.0 */
/* Requests that come by io_uring, with a test in the kernel's place. It gets each command that
 * would have gone to a ring, puts requests into entries, and takes the answers from there. Two
 * channels over a namespace of several shards, all in simulated time. Each request must be answered
 * once, and no entry may be lost, whatever is in it (rule M4 and the like are tested where they are
 * built). */
#include "fuse/ring.h"

#include <stdlib.h>
#include <string.h>

#include "base/prng.h"
#include "fuse/model/machine_test.h"

#define ENTRIES ((uint32_t)LPI_MACHINE_CHANNELS * LP_FUSE_RING_DEPTH_MIN)

static struct lpi_machine *machine_new(void)
{
	return lpi_machine_boot_as(lpi_ns_sim_mkfs(1), LPI_MACHINE_CHANNELS, 0);
}

static void machine_free(struct lpi_machine *machine)
{
	lp_test_ok(lpi_machine_stop(machine));
	lpi_machine_free(machine);
}

static uint32_t with_kernel(const struct lpi_machine *machine)
{
	uint32_t cnt = 0;
	for (uint32_t i = 0; i < LPI_MACHINE_CHANNELS; i++)
		cnt += machine->kernels[i].entry_cnt;
	return cnt;
}

static struct lp_fuse_channel_stats sum_of_stats(const struct lpi_machine *machine)
{
	struct lp_fuse_channel_stats sum = {.reads = 0};
	for (uint32_t i = 0; i < LPI_MACHINE_CHANNELS; i++) {
		struct lp_fuse_channel_stats stats;
		lp_fuse_channel_read_stats(machine->channels[i], &stats);
		sum.ring_requests += stats.ring_requests;
		sum.handed_over += stats.handed_over;
		sum.throttled += stats.throttled;
		sum.refused += stats.refused;
		sum.under_way += stats.under_way;
		sum.reads += stats.reads;
	}
	return sum;
}

static void turns(struct lpi_machine *machine, uint32_t cnt)
{
	for (uint32_t i = 0; i < cnt; i++)
		(void)lpi_ns_sim_turn(machine->sim);
}

/* Directories go round the shards, and take their files along. */
static uint64_t file_in_new_dir(struct lpi_kernel *kernel, uint32_t nr)
{
	char name[16];
	(void)snprintf(name, sizeof(name), "dir%u", nr);
	uint64_t dir = lpi_kernel_mkdir(kernel, 1, name);
	return lpi_kernel_create(kernel, FUSE_CREATE, dir, "file").node;
}

/* --- Calls of programs ------------------------------------------------------------------------ */

/* Files with names, data that is small and large and not on the grid, and a long attribute. */
static void check_file(struct lpi_kernel *kernel, uint64_t dir, uint32_t nr)
{
	static uint8_t bytes[LPI_KERNEL_BYTES];
	static uint8_t back[LPI_KERNEL_BYTES];
	static const uint32_t sizes[] = {1, 4096, 5000, 140000};
	struct lp_prng prng;
	char name[16];
	uint32_t size = sizes[nr % LP_ARRAY_SIZE(sizes)];
	lp_prng_init(&prng, nr);
	for (uint32_t i = 0; i < size; i++)
		bytes[i] = (uint8_t)lp_prng_u64(&prng);
	(void)snprintf(name, sizeof(name), "file%u", nr);
	struct lpi_opened file = lpi_kernel_create(kernel, FUSE_CREATE, dir, name);
	lp_test_ok(lpi_kernel_write(kernel, file.node, nr, bytes, size));
	assert_int_equal(lpi_kernel_read(kernel, FUSE_READ, file.node, nr, back), size);
	assert_memory_equal(back, bytes, size);
	lp_test_ok(lpi_kernel_set_xattr(kernel, file.node, bytes, LP_MIN(size, 3000u)));
	lp_test_ok(lpi_kernel_get_xattr(kernel, file.node, 4000));
	assert_int_equal(lpi_kernel_answer_len(kernel), LP_MIN(size, 3000u));
	assert_memory_equal(lpi_kernel_answer(kernel, 1), bytes, LP_MIN(size, 3000u));
	lp_test_ok(lpi_kernel_fsync(kernel, FUSE_FSYNC, file.node, file.fh));
	lpi_kernel_release(kernel, FUSE_RELEASE, file.node);
	assert_int_equal(lpi_kernel_lookup(kernel, dir, name), file.node);
	assert_int_equal(lpi_kernel_lookup(kernel, dir, "no such"), 0);
	assert_int_equal(lpi_kernel_remove(kernel, FUSE_RMDIR, dir, name), -ENOTDIR);
	lp_test_ok(lpi_kernel_remove(kernel, FUSE_UNLINK, dir, name));
}

/* Over all shards and by both queues; every entry is back with the kernel in the end. */
static void test_files(void **state)
{
	struct lpi_machine *machine = machine_new();
	(void)state;
	assert_int_equal(with_kernel(machine), ENTRIES);
	assert_false(lp_fuse_ring_serves(machine->ring));
	for (uint32_t i = 0; i < 16; i++) {
		struct lpi_kernel *kernel = &machine->kernels[i % LPI_MACHINE_CHANNELS];
		char name[16];
		(void)snprintf(name, sizeof(name), "dir%u", i);
		check_file(kernel, lpi_kernel_mkdir(kernel, 1, name), i);
	}
	struct lp_fuse_channel_stats stats = sum_of_stats(machine);
	assert_true(lp_fuse_ring_serves(machine->ring));
	assert_int_equal(stats.ring_requests,
			 machine->kernels[0].unique + machine->kernels[1].unique);
	assert_int_equal(stats.reads, 0);
	assert_true(stats.handed_over > 0);
	turns(machine, 4);
	assert_int_equal(sum_of_stats(machine).under_way, 0);
	assert_int_equal(with_kernel(machine), ENTRIES);
	machine_free(machine);
}

/* The thread that has answered a request has the entry for the next one. Of several requests in a
 * row for one inode, at most the first passes through two threads. */
static void test_entry_follows(void **state)
{
	struct lpi_machine *machine = machine_new();
	struct lpi_kernel *kernel = &machine->kernels[0];
	uint32_t moved_cnt = 0;
	(void)state;
	for (uint32_t i = 0; i < 8; i++) {
		uint64_t node = file_in_new_dir(kernel, i);
		lp_test_ok(lpi_kernel_write(kernel, node, 0, "data", 4));
		uint64_t before = sum_of_stats(machine).handed_over;
		const struct lpi_fuse_entry *entry = kernel->entries[kernel->entry_cnt - 1];
		uint32_t shard_idx = lp_ino_shard((struct lp_ino){node});
		assert_ptr_equal(entry->channel,
				 machine->channels[shard_idx % LPI_MACHINE_CHANNELS]);
		moved_cnt += entry->channel != machine->channels[0];
		for (uint32_t k = 0; k < 4; k++)
			lp_test_ok(lpi_kernel_write(kernel, node, k, "data", 4));
		assert_int_equal(sum_of_stats(machine).handed_over, before);
	}
	assert_true(moved_cnt > 0);
	machine_free(machine);
}

/* --- Hostile messages ------------------------------------------------------------------------- */

/* Sends the request with a fixed part, a length in the header, and data of the given lengths.
 * Returns the answer's error. */
static int ask_wrong(struct lpi_kernel *kernel, uint32_t fixed_bytes, uint32_t len,
		     uint32_t payload_bytes)
{
	struct fuse_out_header header;
	lpi_kernel_put(kernel, fixed_bytes);
	struct lpi_fuse_ring_head *head = kernel->entries[kernel->entry_cnt - 1]->head;
	memcpy(head->in_out, &len, sizeof(len));
	head->tail.payload_bytes = payload_bytes;
	lpi_kernel_complete(kernel, 0);
	for (uint32_t i = 0; !lpi_kernel_take(kernel, &header); i++) {
		assert_true(i < 1000);
		kernel->turn(kernel->arg);
	}
	assert_int_equal(header.unique, kernel->unique);
	return header.error;
}

static void begin_lookup(struct lpi_kernel *kernel)
{
	lpi_kernel_begin(kernel, FUSE_LOOKUP, 1);
	lpi_kernel_add_name(kernel, "name");
}

/* Each is answered by an error, and its entry comes back. */
static void test_hostile(void **state)
{
	struct lpi_machine *machine = machine_new();
	struct lpi_kernel *kernel = &machine->kernels[1];
	static const uint8_t zeros[256];
	(void)state;
	static const uint32_t wrong[][2] = {{45, UINT32_MAX},
					    {45, 6},
					    {45, 4},
					    {44, 5},
					    {39, 0},
					    {0, 0},
					    {40, 0},
					    {45 + (1 << 20), 1u << 20},
					    {174, 5},
					    {UINT32_MAX, 5},
					    {(1 << 20) + 46, (1u << 20) + 1}};
	for (uint32_t i = 0; i < LP_ARRAY_SIZE(wrong); i++) {
		begin_lookup(kernel);
		assert_int_equal(ask_wrong(kernel, 0, wrong[i][0], wrong[i][1]), -EINVAL);
	}
	/* Requests without an answer do not come this way, nor do unknown ones. */
	static const uint32_t opcodes[] = {FUSE_FORGET, FUSE_BATCH_FORGET, FUSE_INTERRUPT};
	for (uint32_t i = 0; i < LP_ARRAY_SIZE(opcodes); i++) {
		uint32_t bytes = lp_fuse_opcode_find(opcodes[i])->fixed_bytes;
		lpi_kernel_begin(kernel, opcodes[i], 1);
		lpi_kernel_add(kernel, zeros, bytes);
		assert_int_equal(ask_wrong(kernel, bytes, 40 + bytes, 0), -EINVAL);
	}
	lpi_kernel_begin(kernel, 4711, 1);
	assert_int_equal(ask_wrong(kernel, 0, 40, 0), -ENOSYS);
	/* More than the payload's room. */
	const struct fuse_read_in in = {.size = UINT32_MAX};
	lpi_kernel_begin(kernel, FUSE_READ, 1);
	lpi_kernel_add(kernel, &in, sizeof(in));
	assert_true(lpi_kernel_ask(kernel) < 0);
	turns(machine, 4);
	struct lp_fuse_channel_stats stats = sum_of_stats(machine);
	assert_int_equal(stats.refused, LP_ARRAY_SIZE(wrong) + LP_ARRAY_SIZE(opcodes));
	assert_int_equal(stats.under_way, 0);
	assert_int_equal(with_kernel(machine), ENTRIES);
	begin_lookup(kernel);
	assert_int_equal(lpi_kernel_ask(kernel), -ENOENT);
	machine_free(machine);
}

/* --- No room, and the end --------------------------------------------------------------------- */

/* Takes all remaining buffers. */
static uint32_t take_buffers(struct lpi_machine *machine, struct lp_buf **bufs, uint32_t max)
{
	uint32_t cnt = 0;
	while (cnt < max && (bufs[cnt] = lp_buf_new(machine->sim->bufs, LP_BUF_SMALL)) != NULL)
		cnt++;
	assert_true(cnt < max);
	return cnt;
}

static void give_buffers(struct lp_buf **bufs, uint32_t cnt)
{
	for (uint32_t i = 0; i < cnt; i++)
		lp_buf_put(bufs[i]);
}

/* A write without buffers waits in its entry until there are some, on either thread. */
static void test_no_buffers(void **state)
{
	static struct lp_buf *bufs[16384];
	struct lpi_machine *machine = machine_new();
	struct fuse_out_header header;
	(void)state;
	for (uint32_t i = 0; i < 4; i++) {
		struct lpi_kernel *kernel = &machine->kernels[i % LPI_MACHINE_CHANNELS];
		uint64_t node = file_in_new_dir(kernel, i);
		uint32_t cnt = take_buffers(machine, bufs, LP_ARRAY_SIZE(bufs));
		uint64_t before = sum_of_stats(machine).throttled;
		lpi_kernel_begin_write(kernel, node, 0, "data", 4);
		lpi_kernel_send(kernel);
		turns(machine, 20);
		assert_false(lpi_kernel_take(kernel, &header));
		assert_true(sum_of_stats(machine).throttled > before);
		assert_int_equal(sum_of_stats(machine).under_way, 1);
		give_buffers(bufs, cnt);
		for (uint32_t k = 0; !lpi_kernel_take(kernel, &header); k++) {
			assert_true(k < 1000);
			turns(machine, 1);
		}
		assert_int_equal(header.error, 0);
	}
	assert_int_equal(with_kernel(machine), ENTRIES);
	machine_free(machine);
}

/* The kernel has no memory for an answer: it is offered again, and nothing else goes by it. */
static void test_no_memory(void **state)
{
	struct lpi_machine *machine = machine_new();
	struct lpi_kernel *kernel = &machine->kernels[0];
	struct fuse_out_header header;
	(void)state;
	for (uint32_t i = 0; i < 4; i++) {
		uint64_t node = file_in_new_dir(kernel, i);
		lp_test_ok(lpi_kernel_write(kernel, node, 0, "data", 4));
		lpi_kernel_complete(kernel, -ENOMEM);
		assert_int_equal(with_kernel(machine), ENTRIES - 1);
		for (uint32_t k = 0; !lpi_kernel_take(kernel, &header); k++) {
			assert_true(k < 1000);
			turns(machine, 1);
		}
		assert_int_equal(header.unique, kernel->unique);
		assert_int_equal(with_kernel(machine), ENTRIES);
		lp_test_ok(lpi_kernel_write(kernel, node, 0, "data", 4));
	}
	/* The end comes before it is offered again. */
	lpi_kernel_complete(kernel, -ENOMEM);
	machine_free(machine);
}

/* The connection ends while requests wait for buffers and while others are at work. No request is
 * answered, the kernel gets no more entries, and everything stops. */
static void test_end(void **state)
{
	static struct lp_buf *bufs[16384];
	struct lpi_machine *machine = machine_new();
	struct lpi_kernel *kernel = &machine->kernels[0];
	(void)state;
	uint64_t node = lpi_kernel_create(kernel, FUSE_CREATE, 1, "file").node;
	uint64_t handle = lpi_kernel_open(kernel, FUSE_OPEN, node);
	lp_test_ok(lpi_kernel_write(kernel, node, 0, "data", 4));
	uint32_t cnt = take_buffers(machine, bufs, LP_ARRAY_SIZE(bufs));
	lpi_kernel_begin_write(kernel, node, 0, "more", 4);
	lpi_kernel_send(kernel);
	turns(machine, 20);
	lpi_kernel_begin_fsync(kernel, FUSE_FSYNC, node, handle);
	lpi_kernel_send(kernel);
	begin_lookup(&machine->kernels[1]);
	lpi_kernel_send(&machine->kernels[1]);
	assert_int_equal(sum_of_stats(machine).under_way, 3);
	lpi_machine_hang_up(machine);
	give_buffers(bufs, cnt);
	machine_free(machine);
}

/* A kernel that refuses the entries: the descriptors serve. */
static void test_refused(void **state)
{
	struct lpi_machine *machine = machine_new();
	(void)state;
	for (uint32_t i = 0; i < LPI_MACHINE_CHANNELS; i++) {
		while (machine->kernels[i].entry_cnt > 0)
			lpi_kernel_complete(&machine->kernels[i], -EOPNOTSUPP);
		machine->kernels[i].has_ring = false;
	}
	for (uint32_t i = 0; i < LPI_MACHINE_CHANNELS; i++) {
		char name[16];
		(void)snprintf(name, sizeof(name), "dir%u", i);
		struct lpi_kernel *kernel = &machine->kernels[i];
		check_file(kernel, lpi_kernel_mkdir(kernel, 1, name), i);
	}
	assert_false(lp_fuse_ring_serves(machine->ring));
	assert_true(lp_fuse_ring_is_refused(machine->ring));
	assert_int_equal(sum_of_stats(machine).ring_requests, 0);
	machine_free(machine);
}

static uint32_t ends_cnt;

static void end_of_connection(void *arg)
{
	(void)arg;
	ends_cnt++;
}

/* If the kernel does not take an answer at all, its caller would wait for ever. So the connection
 * is ended, once, however many answers were under way. */
static void test_answer_refused(void **state)
{
	struct lpi_machine *machine = machine_new();
	struct lpi_kernel *kernel = &machine->kernels[0];
	(void)state;
	ends_cnt = 0;
	machine->ring->end = end_of_connection;
	uint64_t node = file_in_new_dir(kernel, 0);
	for (uint32_t i = 0; i < 2; i++)
		lp_test_ok(lpi_kernel_write(kernel, node, i, "data", 4));
	assert_int_equal(ends_cnt, 0);
	lpi_kernel_complete(kernel, -EINVAL);
	assert_int_equal(ends_cnt, 1);
	lp_test_ok(lpi_kernel_write(kernel, node, 0, "data", 4));
	lpi_kernel_complete(kernel, -EINVAL);
	assert_int_equal(ends_cnt, 1);
	lpi_machine_hang_up(machine);
	machine_free(machine);
}

/* A thread without a queue of its own answers requests that others have fetched, and has entries of
 * theirs from then on. */
static void test_fewer_queues(void **state)
{
	struct lpi_machine *machine = lpi_machine_boot_as(lpi_ns_sim_mkfs(1), 1, 0);
	struct lpi_kernel *kernel = &machine->kernels[0];
	uint32_t others_cnt = 0;
	(void)state;
	assert_int_equal(with_kernel(machine), LP_FUSE_RING_DEPTH_MIN);
	for (uint32_t i = 0; i < 8; i++) {
		char name[16];
		(void)snprintf(name, sizeof(name), "dir%u", i);
		check_file(kernel, lpi_kernel_mkdir(kernel, 1, name), i);
		turns(machine, 4);
		assert_int_equal(with_kernel(machine), LP_FUSE_RING_DEPTH_MIN);
		for (uint32_t k = 0; k < kernel->entry_cnt; k++)
			others_cnt += kernel->entries[k]->channel == machine->channels[1];
	}
	assert_true(others_cnt > 0);
	machine_free(machine);
}

/* --- How large -------------------------------------------------------------------------------- */

static void test_depth(void **state)
{
	struct lp_fuse_ring *ring = NULL;
	(void)state;
	lp_test_err(-EOPNOTSUPP, lp_fuse_ring_new((UINT64_C(8) << 20) - 1, 2, &ring));
	lp_test_ok(lp_fuse_ring_new(UINT64_C(8) << 20, 2, &ring));
	assert_int_equal(ring->depth, LP_FUSE_RING_DEPTH_MIN);
	lp_fuse_ring_free(ring);
	lp_test_ok(lp_fuse_ring_new(UINT64_C(4) << 30, 3, &ring));
	assert_int_equal(ring->depth, LP_FUSE_RING_DEPTH_MAX);
	assert_int_equal(ring->entries[3 * LP_FUSE_RING_DEPTH_MAX - 1].queue, 2);
	lp_fuse_ring_free(ring);
	lp_fuse_ring_free(NULL);
	assert_false(lp_fuse_ring_serves(NULL));
	assert_true(lp_fuse_ring_queues() >= 1);
}

/* Counts CPUs as the kernel does: the possible ones, not the highest number. */
static void test_count(void **state)
{
	(void)state;
	assert_int_equal(lpi_fuse_ring_count("0\n"), 1);
	assert_int_equal(lpi_fuse_ring_count("0-3\n"), 4);
	assert_int_equal(lpi_fuse_ring_count("0-3,8-11\n"), 8);
	assert_int_equal(lpi_fuse_ring_count("0,2,4-5"), 4);
	assert_int_equal(lpi_fuse_ring_count("0-65534\n"), 65535);
	static const char *const wrong[] = {
		"", "\n", "none\n", "-3\n", "0-3 \n", "0-65535\n", "0-18446744073709551615\n"};
	for (uint32_t i = 0; i < LP_ARRAY_SIZE(wrong); i++)
		assert_int_equal(lpi_fuse_ring_count(wrong[i]), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_files),        cmocka_unit_test(test_entry_follows),
		cmocka_unit_test(test_hostile),      cmocka_unit_test(test_no_buffers),
		cmocka_unit_test(test_no_memory),    cmocka_unit_test(test_end),
		cmocka_unit_test(test_refused),      cmocka_unit_test(test_answer_refused),
		cmocka_unit_test(test_fewer_queues), cmocka_unit_test(test_depth),
		cmocka_unit_test(test_count),
	};
	return lp_test_main(tests, "fuse/ring");
}
