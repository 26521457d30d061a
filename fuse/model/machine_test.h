/* SPDX-License-Identifier: Apache-2.0 */
/* Test rig: a machine with a mount that can lose its power.
 *
 * Only *_test.c files and their headers include this.
 *
 * It has the mount's channels over a namespace of several shards on one simulated device, all on
 * one thread in simulated time, and a kernel at the other end of each channel.
 */
#ifndef LP_FUSE_MODEL_MACHINE_TEST_H
#define LP_FUSE_MODEL_MACHINE_TEST_H

#include "fuse/channel_state.h"
#include "fuse/model/kernel_test.h"
#include "namespace/shard/ns_sim_test.h"

#define LPI_MACHINE_CHANNELS 2u

struct lpi_machine;

struct lpi_machine_end {
	struct lpi_machine *machine;
	uint32_t idx;
};

struct lpi_machine {
	struct lpi_ns_sim *sim;
	struct lp_fuse_channel *channels[LPI_MACHINE_CHANNELS];
	struct lpi_kernel kernels[LPI_MACHINE_CHANNELS];
	struct lpi_machine_end ends[LPI_MACHINE_CHANNELS];
	struct lp_fuse_ring *ring; /* a queue for each channel, or fewer; NULL: there is none */
	uint64_t believed_ns;      /* how long the kernel may cache answers */
	uint32_t stopped_cnt;
	bool is_timer_fired;
	struct lp_timer timer;
};

static inline struct lp_sim *lpi_machine_device(struct lpi_machine *machine)
{
	return lp_sim_of(machine->sim->bdev);
}

static inline void lpi_machine_sent(void *arg)
{
	const struct lpi_machine_end *end = arg;
	lpi_fuse_channel_look(end->machine->channels[end->idx]);
}

static inline void lpi_machine_turn(void *arg)
{
	const struct lpi_machine_end *end = arg;
	(void)lpi_ns_sim_turn(end->machine->sim);
}

static inline void lpi_machine_make_channel(struct lpi_machine *machine, uint32_t idx)
{
	struct lpi_ns_sim *sim = machine->sim;
	const struct lp_fuse_channel_options options = {
		.reactor = sim->reactor,
		.bufs = sim->bufs,
		.ns = sim->ns[idx],
		.stores = {sim->hand[idx].store},
		.nss = {sim->ns[idx]},
		.store_cnt = 1,
		.devices = &sim->devices,
		.ring = machine->ring,
		.notifier = sim->workers,
		.launderer = sim->workers,
		.dropper = sim->workers,
		.behaviour = {.squash_uid = UINT32_MAX,
			      .squash_gid = UINT32_MAX,
			      .maps_direct = true,
			      .entry_ns = machine->believed_ns,
			      .attr_ns = machine->believed_ns}};
	lp_test_ok(lp_fuse_channel_new(&options, &machine->channels[idx]));
}

/* The one machine with a ring; commands do not name theirs. */
static struct lpi_machine *lpi_machine_of_ring;

static inline void lpi_machine_submit(struct lpi_fuse_entry *entry, uint32_t command)
{
	struct lpi_machine *machine = lpi_machine_of_ring;
	LP_ASSERT(machine != NULL && machine->ring == entry->ring);
	lpi_kernel_given(&machine->kernels[entry->queue], entry, command);
}

static inline void lpi_machine_make_ring(struct lpi_machine *machine, uint32_t queue_cnt)
{
	LP_ASSERT(lpi_machine_of_ring == NULL && queue_cnt <= LPI_MACHINE_CHANNELS);
	uint64_t bytes = (uint64_t)LP_FUSE_RING_DEPTH_MIN * queue_cnt << 20;
	lp_test_ok(lp_fuse_ring_new(bytes, queue_cnt, &machine->ring));
	machine->ring->submit = lpi_machine_submit;
	lpi_machine_of_ring = machine;
	for (uint32_t i = 0; i < queue_cnt; i++)
		machine->kernels[i].has_ring = true;
}

/* The end of the connection: the kernel's entries come back. */
static inline void lpi_machine_hang_up(struct lpi_machine *machine)
{
	for (uint32_t i = 0; i < LPI_MACHINE_CHANNELS; i++) {
		while (machine->kernels[i].entry_cnt > 0)
			lpi_kernel_complete(&machine->kernels[i], -ENOTCONN);
	}
}

/* With the device's data; the machine owns the device from now on. queue_cnt 0: no ring. */
static inline struct lpi_machine *lpi_machine_boot_as(struct lp_bdev *bdev, uint32_t queue_cnt,
						      uint64_t believed_ns)
{
	struct lpi_machine *machine = calloc(1, sizeof(*machine));
	assert_non_null(machine);
	machine->believed_ns = believed_ns;
	machine->sim = lpi_ns_sim_boot(bdev);
	if (queue_cnt > 0)
		lpi_machine_make_ring(machine, queue_cnt);
	lp_test_ok(lpi_ns_sim_start(machine->sim));
	for (uint32_t i = 0; i < LPI_MACHINE_CHANNELS; i++)
		lpi_machine_make_channel(machine, i);
	lp_fuse_channels_join(machine->channels, LPI_MACHINE_CHANNELS);
	for (uint32_t i = 0; i < LPI_MACHINE_CHANNELS; i++) {
		struct lpi_kernel *kernel = &machine->kernels[i];
		machine->ends[i] = (struct lpi_machine_end){machine, i};
		kernel->sent = lpi_machine_sent;
		kernel->turn = lpi_machine_turn;
		kernel->arg = &machine->ends[i];
		lp_fuse_channel_start(machine->channels[i], lpi_kernel_connect(kernel));
	}
	return machine;
}

static inline struct lpi_machine *lpi_machine_boot(struct lp_bdev *bdev)
{
	return lpi_machine_boot_as(bdev, 0, 0);
}

static inline void lpi_machine_stopped(void *arg)
{
	((struct lpi_machine *)arg)->stopped_cnt++;
}

/* The mount ends, then the rest. Returns the result of closing the stores. */
static inline int lpi_machine_stop(struct lpi_machine *machine)
{
	for (uint32_t i = 0; i < LPI_MACHINE_CHANNELS; i++)
		lp_fuse_channel_stop(machine->channels[i], lpi_machine_stopped, machine);
	lpi_machine_hang_up(machine);
	for (uint32_t i = 0; machine->stopped_cnt < LPI_MACHINE_CHANNELS; i++) {
		assert_true(i < LPI_NS_SIM_TURNS_MAX);
		(void)lpi_ns_sim_turn(machine->sim);
	}
	for (uint32_t i = 0; i < LPI_MACHINE_CHANNELS; i++) {
		lp_fuse_channel_free(machine->channels[i]);
		assert_int_equal(close(machine->kernels[i].fd), 0);
	}
	lpi_ns_sim_stop(machine->sim);
	return lpi_ns_sim_close(machine->sim, false);
}

/* Has stopped. */
static inline void lpi_machine_free(struct lpi_machine *machine)
{
	lpi_ns_sim_fini(machine->sim);
	if (machine->ring != NULL)
		lpi_machine_of_ring = NULL;
	lp_fuse_ring_free(machine->ring);
	free(machine->sim);
	free(machine);
}

/* --- The other door --------------------------------------------------------------------------- */

static inline struct lp_ns_op lpi_machine_chmod_op(uint64_t node, uint16_t mode)
{
	struct lp_ns_op op = {.opcode = LP_NS_SET};
	op.set.ino.nr = node;
	op.set.attrs.mode = mode;
	op.set.mask = LP_ATTR_MODE;
	return op;
}

static inline void lpi_machine_chmod(struct lpi_machine *machine, uint64_t node, uint16_t mode)
{
	struct lp_ns_op op = lpi_machine_chmod_op(node, mode);
	lp_test_ok(lpi_ns_sim_do(machine->sim, &op));
}

static inline struct lp_attrs lpi_machine_attrs(struct lpi_machine *machine, uint64_t node)
{
	struct lp_ns_op op = {.opcode = LP_NS_STAT};
	op.stat.ino.nr = node;
	lp_test_ok(lpi_ns_sim_do(machine->sim, &op));
	return op.stat.found.attrs;
}

/* --- Time ------------------------------------------------------------------------------------- */

static inline void lpi_machine_fired(struct lp_timer *timer)
{
	LP_CONTAINER_OF(timer, struct lpi_machine, timer)->is_timer_fired = true;
}

/* Time without requests. */
static inline void lpi_machine_idle(struct lpi_machine *machine, uint64_t ns)
{
	struct lp_reactor *reactor = machine->sim->reactor;
	machine->is_timer_fired = false;
	machine->timer.fire = lpi_machine_fired;
	lp_timer_start(reactor, &machine->timer, machine->sim->clock.now_ns + ns);
	while (!machine->is_timer_fired)
		(void)lpi_ns_sim_turn(machine->sim);
}

#endif
