/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: when all buffers are taken, a request that can wait is not answered ENOMEM. ls, attributes
 * and links are answered when there are buffers again, and no request is read meanwhile that would
 * take them. Method: a machine whose buffers the test takes; messages of all lengths, which need
 * only the buffers that they landed in. */
#include "fuse/room.h"

#include <errno.h>
#include <stdlib.h>

#include "base/prng.h"
#include "fuse/model/machine_test.h"

#define TAKEN_MAX 20000u

struct taken {
	struct lp_buf *bufs[TAKEN_MAX];
	uint32_t cnt;
};

static struct lpi_machine *machine_new(void)
{
	return lpi_machine_boot(lpi_ns_sim_mkfs(1));
}

static void machine_free(struct lpi_machine *machine)
{
	lp_test_ok(lpi_machine_stop(machine));
	lpi_machine_free(machine);
}

static void take_all(struct lpi_machine *machine, struct taken *taken)
{
	static const uint32_t sizes[] = {LP_BUF_LARGE, LP_BUF_MEDIUM, LP_BUF_SMALL};
	taken->cnt = 0;
	for (uint32_t c = 0; c < LPI_MACHINE_CHANNELS; c++) {
		struct lp_bufs *bufs = machine->channels[c]->options.bufs;
		for (uint32_t i = 0; i < LP_ARRAY_SIZE(sizes); i++) {
			struct lp_buf *buf = NULL;
			while (taken->cnt < TAKEN_MAX &&
			       (buf = lp_buf_new_ranked(bufs, sizes[i], LP_BUF_COPY)) != NULL)
				taken->bufs[taken->cnt++] = buf;
		}
	}
	assert_in_range(taken->cnt, 1, TAKEN_MAX - 1);
}

static void give_back(struct taken *taken)
{
	while (taken->cnt > 0)
		lp_buf_put(taken->bufs[--taken->cnt]);
}

static uint64_t roomless(const struct lpi_machine *machine)
{
	uint64_t cnt = 0;
	for (uint32_t c = 0; c < LPI_MACHINE_CHANNELS; c++) {
		struct lp_fuse_channel_stats stats;
		lp_fuse_channel_read_stats(machine->channels[c], &stats);
		cnt += stats.roomless;
	}
	return cnt;
}

enum { GETXATTR, LISTXATTR, READDIR, WAY_CNT };

static void begin_way(struct lpi_kernel *kernel, int way, uint64_t file, uint64_t dir)
{
	const struct fuse_getxattr_in list = {.size = 100};
	const struct fuse_read_in read = {.size = 4096};
	switch (way) {
	case GETXATTR:
		lpi_kernel_begin_get_xattr(kernel, file, 100);
		break;
	case LISTXATTR:
		lpi_kernel_begin(kernel, FUSE_LISTXATTR, file);
		lpi_kernel_add(kernel, &list, sizeof(list));
		break;
	default:
		lpi_kernel_begin(kernel, FUSE_READDIR, dir);
		lpi_kernel_add(kernel, &read, sizeof(read));
		break;
	}
}

static void test_waits_for_room(void **state)
{
	static struct taken taken;
	static const uint32_t lens[] = {5, sizeof("user.x"), 3 * 32};
	struct lpi_machine *machine = machine_new();
	struct lpi_kernel *kernel = &machine->kernels[0];
	struct fuse_out_header header;
	(void)state;
	uint64_t dir = lpi_kernel_mkdir(kernel, 1, "dir");
	struct lpi_opened file = lpi_kernel_create(kernel, FUSE_CREATE, dir, "a");
	lp_test_ok(lpi_kernel_set_xattr(kernel, file.node, "value", 5));
	for (int way = 0; way < WAY_CNT; way++) {
		uint64_t before = roomless(machine);
		take_all(machine, &taken);
		begin_way(kernel, way, file.node, dir);
		lpi_kernel_send(kernel);
		lpi_machine_idle(machine, 50 * LP_NS_PER_MS);
		assert_false(lpi_kernel_take(kernel, &header));
		assert_true(roomless(machine) > before);
		give_back(&taken);
		while (!lpi_kernel_take(kernel, &header))
			lpi_machine_idle(machine, LP_NS_PER_MS);
		assert_int_equal(header.unique, kernel->unique);
		assert_int_equal(header.error, 0);
		assert_int_equal(lpi_kernel_answer_len(kernel), lens[way]);
	}
	lpi_kernel_release(kernel, FUSE_RELEASE, file.node);
	machine_free(machine);
}

/* A request waits for an attribute, and there are no buffers. Returns its number. */
static uint64_t ask_without_room(struct lpi_machine *machine, struct taken *taken)
{
	struct lpi_kernel *kernel = &machine->kernels[0];
	struct lpi_opened file = lpi_kernel_create(kernel, FUSE_CREATE, 1, "a");
	lp_test_ok(lpi_kernel_set_xattr(kernel, file.node, "value", 5));
	take_all(machine, taken);
	lpi_kernel_begin_get_xattr(kernel, file.node, 100);
	lpi_kernel_send(kernel);
	return file.node;
}

/* After half a minute there must be another fault, and the caller is told. */
static void test_waits_not_for_ever(void **state)
{
	static struct taken taken;
	struct lpi_machine *machine = machine_new();
	struct lpi_kernel *kernel = &machine->kernels[0];
	struct fuse_out_header header;
	(void)state;
	uint64_t node = ask_without_room(machine, &taken);
	lpi_machine_idle(machine, 25 * LP_NS_PER_S);
	assert_false(lpi_kernel_take(kernel, &header));
	lpi_machine_idle(machine, 10 * LP_NS_PER_S);
	assert_true(lpi_kernel_take(kernel, &header));
	assert_int_equal(header.error, -ENOMEM);
	give_back(&taken);
	lpi_kernel_release(kernel, FUSE_RELEASE, node);
	machine_free(machine);
}

static void begin_lookup(struct lpi_kernel *kernel)
{
	lpi_kernel_begin(kernel, FUSE_LOOKUP, 1);
	lpi_kernel_add_name(kernel, "a");
}

/* A request that would take the next buffers is not begun before the waiting one has its own,
 * whichever way it comes. */
static void test_others_wait_behind(void **state)
{
	static struct taken taken;
	(void)state;
	for (uint32_t queues = 0; queues <= LPI_MACHINE_CHANNELS; queues += LPI_MACHINE_CHANNELS) {
		struct lpi_machine *machine = lpi_machine_boot_as(lpi_ns_sim_mkfs(1), queues, 0);
		struct lpi_kernel *kernel = &machine->kernels[0];
		struct fuse_out_header header;
		uint64_t node = ask_without_room(machine, &taken);
		lpi_machine_idle(machine, 5 * LP_NS_PER_MS);
		uint64_t waiting = kernel->unique;
		begin_lookup(kernel);
		lpi_kernel_send(kernel);
		lpi_machine_idle(machine, 5 * LP_NS_PER_MS);
		assert_false(lpi_kernel_take(kernel, &header));
		give_back(&taken);
		for (uint64_t unique = waiting; unique <= kernel->unique; unique++) {
			while (!lpi_kernel_take(kernel, &header)) {
				lpi_machine_idle(machine, LP_NS_PER_MS);
				/* The other channel reads now, but here it has an end of its own.
				 */
				kernel->sent(kernel->arg);
			}
			assert_int_equal(header.unique, unique);
			assert_int_equal(header.error, 0);
		}
		lpi_kernel_release(kernel, FUSE_RELEASE, node);
		machine_free(machine);
	}
}

/* A channel that stops does not wait, either. */
static void test_stops_without_room(void **state)
{
	static struct taken taken;
	struct lpi_machine *machine = machine_new();
	(void)state;
	(void)ask_without_room(machine, &taken);
	lpi_machine_idle(machine, 5 * LP_NS_PER_MS);
	assert_true(roomless(machine) > 0);
	lpi_machine_hang_up(machine);
	lpi_machine_idle(machine, 5 * LP_NS_PER_MS);
	give_back(&taken);
	machine_free(machine);
}

/* Each length at which a message lands in another buffer, or in one more; up to the kernel's
 * limits. */
static void test_long_messages(void **state)
{
	static const uint32_t around[] = {60,   500,  600,   3960,
					  4096, 4200, 50000, LP_STORE_VALUE_MAX - 60};
	static uint8_t value[LP_STORE_VALUE_MAX + 1];
	struct lpi_machine *machine = machine_new();
	struct lpi_kernel *kernel = &machine->kernels[0];
	struct lp_prng prng;
	(void)state;
	lp_prng_init(&prng, 1);
	struct lpi_opened file = lpi_kernel_create(kernel, FUSE_CREATE, 1, "a");
	for (uint32_t i = 0; i < LP_ARRAY_SIZE(around); i++) {
		for (uint32_t len = around[i] - 60; len <= around[i] + 60; len++) {
			lp_prng_fill(&prng, value, len);
			lp_test_ok(lpi_kernel_set_xattr(kernel, file.node, value, len));
			lp_test_ok(lpi_kernel_get_xattr(kernel, file.node, LP_STORE_VALUE_MAX));
			assert_int_equal(lpi_kernel_answer_len(kernel), len);
			assert_memory_equal(lpi_kernel_answer(kernel, len), value, len);
		}
	}
	/* No kernel sends this. */
	lp_test_err(-ENOSPC,
		    lpi_kernel_set_xattr(kernel, file.node, value, LP_STORE_VALUE_MAX + 1));
	lpi_kernel_release(kernel, FUSE_RELEASE, file.node);
	machine_free(machine);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_waits_for_room),
		cmocka_unit_test(test_waits_not_for_ever),
		cmocka_unit_test(test_others_wait_behind),
		cmocka_unit_test(test_stops_without_room),
		cmocka_unit_test(test_long_messages),
	};
	return lp_test_main(tests, "fuse/room");
}
