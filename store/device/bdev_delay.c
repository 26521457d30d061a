/* SPDX-License-Identifier: Apache-2.0 */
/* The times of the model are known when an operation is submitted, so there is no queue of our
 * own: the model keeps the instant at which each server, and the path of the bytes, will be free,
 * and an operation's end follows from them at once (plan()).
 *
 * An operation in flight has a slot, with an operation of our own for the inner device that shares
 * the caller's buffers. The good path:
 *   submit -> plan, inner submit -> inner completes -> due already: complete
 *                                                   -> else: into the heap -> poll -> complete
 *
 * Waiting: a timer alone wakes a sleeping reactor some 20 us late, as long as a fast device takes.
 * So the timer is set LP_BDEV_DELAY_LEAD_NS early, and from then on our source says that it is
 * busy, which keeps the reactor turning until the time has come. Not so in a simulation: there a
 * busy source would stop time, and the timer is exact. */
#include "store/device/bdev_delay.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <pthread.h>

#include "base/error.h"
#include "store/device/bdev_driver.h"

#define POLL_BUDGET 256u

/* What is shared by all who use the device. */
struct model {
	pthread_mutex_t lock;
	uint64_t server_free_ns[LP_BDEV_DELAY_DEPTH_MAX];
	uint64_t path_free_ns;
	uint64_t head_bytes; /* where the last read or write ended */
};

struct delay_bdev {
	struct lp_bdev bdev; /* first */
	struct lp_bdev *inner;
	struct lp_bdev_delay_options options;
	bool is_simulated;
	struct model model;
};

struct slot {
	struct lp_bdev_op inner;
	struct lp_bdev_op *op; /* the caller's; NULL while free */
	uint64_t due_ns;
	bool is_timed;         /* the model has it take time at all */
	struct lp_timer timer; /* in the channel's heap once the inner device is done */
	struct lp_list_node node;
};

LP_LIST_DEFINE(slots, struct slot, node);
LP_LIST_DEFINE(ops, struct lp_bdev_op, node);

struct delay_chan {
	struct lp_bdev_chan chan; /* first */
	struct lp_bdev_chan *inner;
	struct lp_source source;
	struct lp_timer wake;
	struct lp_timer_heap done; /* inner device done, time not over */
	struct slots free;
	struct ops waiting; /* for a slot */
	struct slot slots[LP_BDEV_DELAY_FLIGHT_MAX];
};

static struct delay_bdev *bdev_of(struct lp_bdev *bdev)
{
	return LP_CONTAINER_OF(bdev, struct delay_bdev, bdev);
}

static struct delay_chan *chan_of(struct lp_bdev_chan *chan)
{
	return LP_CONTAINER_OF(chan, struct delay_chan, chan);
}

/* --- Presets ---------------------------------------------------------------------------------- */

static const struct {
	const char *name;
	struct lp_bdev_delay_options options;
} presets[LP_BDEV_DELAY_KIND_CNT] = {
	[LP_BDEV_DELAY_NONE] = {.name = "none"},
	/* 3 GB/s read, 1.5 GB/s written. */
	[LP_BDEV_DELAY_NVME] = {.name = "nvme",
				.options = {.read_ns = 80 * LP_NS_PER_US,
					    .write_ns = 30 * LP_NS_PER_US,
					    .read_ns_per_kib = 341,
					    .write_ns_per_kib = 683}},
	[LP_BDEV_DELAY_TARGET] = {.name = "target",
				  .options = {.write_ns = 20 * LP_NS_PER_US,
					      .flush_ns = 200 * LP_NS_PER_US,
					      .fua_ns = LP_BDEV_DELAY_AS_FLUSH}},
	[LP_BDEV_DELAY_SATA_SSD] = {.name = "sata-ssd",
				    .options = {.read_ns = 90 * LP_NS_PER_US,
						.write_ns = 40 * LP_NS_PER_US,
						.flush_ns = LP_NS_PER_MS,
						.fua_ns = LP_BDEV_DELAY_AS_FLUSH,
						.queue_depth = 32}},
	/* 150 MB/s; what is left of a transfer in sequence is the command itself. */
	[LP_BDEV_DELAY_HDD] = {.name = "hdd",
			       .options = {.read_ns = 100 * LP_NS_PER_US,
					   .write_ns = 100 * LP_NS_PER_US,
					   .flush_ns = 8 * LP_NS_PER_MS,
					   .fua_ns = LP_BDEV_DELAY_AS_FLUSH,
					   .seek_ns = 8 * LP_NS_PER_MS,
					   .read_ns_per_kib = 6827,
					   .write_ns_per_kib = 6827,
					   .queue_depth = 1}},
};

const struct lp_bdev_delay_options *lp_bdev_delay_preset(enum lp_bdev_delay_kind kind)
{
	LP_ASSERT(kind < LP_BDEV_DELAY_KIND_CNT);
	return &presets[kind].options;
}

const char *lp_bdev_delay_kind_name(enum lp_bdev_delay_kind kind)
{
	LP_ASSERT(kind < LP_BDEV_DELAY_KIND_CNT);
	return presets[kind].name;
}

const struct lp_bdev_delay_options *lp_bdev_delay_profile(const char *name)
{
	for (int i = 0; i < LP_BDEV_DELAY_KIND_CNT; i++) {
		if (strcmp(presets[i].name, name) == 0)
			return &presets[i].options;
	}
	return NULL;
}

/* --- The model -------------------------------------------------------------------------------- */

static bool is_transfer(enum lp_bdev_opcode opcode)
{
	return opcode <= LP_BDEV_WRITE_THROUGH;
}

static uint64_t fixed_ns(const struct lp_bdev_delay_options *options, enum lp_bdev_opcode opcode)
{
	switch (opcode) {
	case LP_BDEV_READ:
		return options->read_ns;
	case LP_BDEV_WRITE:
	case LP_BDEV_DISCARD:
		return options->write_ns;
	case LP_BDEV_WRITE_THROUGH:
		return options->write_ns + options->fua_ns;
	case LP_BDEV_FLUSH:
		return options->flush_ns;
	case LP_BDEV_OPCODE_CNT:
		break;
	}
	LP_UNREACHABLE();
}

static uint64_t transfer_ns(const struct lp_bdev_delay_options *options, enum lp_bdev_opcode opcode,
			    uint64_t length_bytes)
{
	if (!is_transfer(opcode))
		return 0;
	uint64_t per_kib =
		opcode == LP_BDEV_READ ? options->read_ns_per_kib : options->write_ns_per_kib;
	return (length_bytes * per_kib + 1023) / 1024;
}

/* The server that is free first, or NULL where there is no limit. */
static uint64_t *first_server(struct delay_bdev *self)
{
	uint64_t *servers = self->model.server_free_ns;
	if (self->options.queue_depth == 0)
		return NULL;
	uint64_t *first = &servers[0];
	for (uint32_t i = 1; i < self->options.queue_depth; i++) {
		if (servers[i] < *first)
			first = &servers[i];
	}
	return first;
}

/* When an operation that arrives now is over; the lock is held. */
static uint64_t plan_locked(struct delay_bdev *self, enum lp_bdev_opcode opcode,
			    uint64_t offset_bytes, uint64_t length_bytes, uint64_t now_ns)
{
	const struct lp_bdev_delay_options *options = &self->options;
	struct model *model = &self->model;
	uint64_t *server = first_server(self);
	uint64_t at_ns = server != NULL ? LP_MAX(now_ns, *server) : now_ns;
	uint64_t bytes_ns = transfer_ns(options, opcode, length_bytes);
	if (is_transfer(opcode)) {
		if (offset_bytes != model->head_bytes)
			at_ns += options->seek_ns;
		model->head_bytes = offset_bytes + length_bytes;
	}
	if (bytes_ns > 0) {
		at_ns = LP_MAX(at_ns, model->path_free_ns) + bytes_ns;
		model->path_free_ns = at_ns;
	}
	at_ns += fixed_ns(options, opcode);
	if (server != NULL)
		*server = at_ns;
	LP_ASSERT(at_ns >= now_ns);
	return at_ns;
}

static uint64_t plan(struct delay_bdev *self, enum lp_bdev_opcode opcode, uint64_t offset_bytes,
		     uint64_t length_bytes)
{
	uint64_t now_ns = lp_clock_mono_ns(self->options.clock);
	int err = pthread_mutex_lock(&self->model.lock);
	LP_ASSERT(err == 0);
	uint64_t due_ns = plan_locked(self, opcode, offset_bytes, length_bytes, now_ns);
	err = pthread_mutex_unlock(&self->model.lock);
	LP_ASSERT(err == 0);
	return due_ns;
}

/* --- Channels --------------------------------------------------------------------------------- */

static void set_wake(struct delay_chan *self)
{
	uint64_t next_ns = lp_timer_heap_next_ns(&self->done);
	if (next_ns == UINT64_MAX) {
		lp_timer_stop(self->chan.reactor, &self->wake);
		return;
	}
	bool is_simulated = bdev_of(self->chan.bdev)->is_simulated;
	uint64_t lead_ns = is_simulated ? 0 : LP_BDEV_DELAY_LEAD_NS;
	lp_timer_start(self->chan.reactor, &self->wake, next_ns > lead_ns ? next_ns - lead_ns : 0);
}

static void woken(struct lp_timer *timer)
{
	(void)timer; /* the source is polled later in the same turn: that was its purpose */
}

static void start(struct delay_chan *self, struct lp_bdev_op *op);

/* The slot is free before the caller hears of it, for it may submit at once. */
static void finish(struct delay_chan *self, struct slot *slot)
{
	struct lp_bdev_op *op = slot->op;
	int result = slot->inner.result;
	LP_ASSERT(op != NULL);
	slot->op = NULL;
	slots_push_front(&self->free, slot);
	struct lp_bdev_op *next = ops_pop_front(&self->waiting);
	if (next != NULL)
		start(self, next);
	self->chan.stats.shorts = lp_bdev_stats(self->inner)->shorts;
	lpi_bdev_complete(op, result);
}

static void time_is_over(struct lp_timer *timer)
{
	struct slot *slot = LP_CONTAINER_OF(timer, struct slot, timer);
	finish(chan_of(slot->op->chan), slot);
}

static void inner_complete(struct lp_bdev_op *inner)
{
	struct slot *slot = LP_CONTAINER_OF(inner, struct slot, inner);
	struct delay_chan *self = chan_of(slot->op->chan);
	const struct lp_clock *clock = bdev_of(self->chan.bdev)->options.clock;
	if (slot->due_ns <= lp_clock_mono_ns(clock)) {
		self->chan.stats.late += slot->is_timed;
		finish(self, slot);
		return;
	}
	bool is_first = slot->due_ns < lp_timer_heap_next_ns(&self->done);
	lp_timer_heap_insert(&self->done, &slot->timer, slot->due_ns);
	if (is_first)
		set_wake(self);
}

static void start(struct delay_chan *self, struct lp_bdev_op *op)
{
	struct slot *slot = slots_pop_front(&self->free);
	LP_ASSERT(slot != NULL && slot->op == NULL);
	slot->op = op;
	slot->due_ns =
		plan(bdev_of(self->chan.bdev), op->opcode, op->offset_bytes, op->length_bytes);
	const struct lp_bdev_delay_options *options = &bdev_of(self->chan.bdev)->options;
	slot->is_timed =
		fixed_ns(options, op->opcode) + transfer_ns(options, op->opcode, op->length_bytes) >
		0;
	slot->inner = (struct lp_bdev_op){.opcode = op->opcode,
					  .offset_bytes = op->offset_bytes,
					  .length_bytes = op->length_bytes,
					  .iov = op->iov,
					  .iov_cnt = op->iov_cnt,
					  .complete = inner_complete};
	lp_bdev_submit(self->inner, &slot->inner);
}

static void delay_submit(struct lp_bdev_chan *chan, struct lp_bdev_op *op)
{
	struct delay_chan *self = chan_of(chan);
	if (slots_is_empty(&self->free)) {
		lp_list_node_init(&op->node);
		ops_push_back(&self->waiting, op);
		return;
	}
	start(self, op);
}

static uint32_t delay_poll(struct lp_source *source, uint32_t budget)
{
	struct delay_chan *self = LP_CONTAINER_OF(source, struct delay_chan, source);
	if (lp_timer_heap_next_ns(&self->done) == UINT64_MAX)
		return 0;
	const struct delay_bdev *bdev = bdev_of(self->chan.bdev);
	uint64_t now_ns = lp_clock_mono_ns(bdev->options.clock);
	uint32_t cnt = 0;
	while (cnt < budget) {
		struct lp_timer *timer = lp_timer_heap_pop_due(&self->done, now_ns);
		if (timer == NULL)
			break;
		cnt++;
		timer->fire(timer);
	}
	uint64_t next_ns = lp_timer_heap_next_ns(&self->done);
	if (cnt > 0)
		set_wake(self);
	if (cnt > 0 || next_ns == UINT64_MAX || bdev->is_simulated)
		return cnt;
	return next_ns - now_ns <= LP_BDEV_DELAY_LEAD_NS ? 1 : 0;
}

static int delay_attach(struct lp_bdev *bdev, struct lp_reactor *reactor,
			struct lp_bdev_chan **ret_chan)
{
	LP_ASSERT(lp_reactor_clock(reactor) == bdev_of(bdev)->options.clock);
	struct delay_chan *self = calloc(1, sizeof(*self));
	if (self == NULL)
		return -ENOMEM;
	int err = lp_bdev_attach(bdev_of(bdev)->inner, reactor, &self->inner);
	if (err < 0) {
		free(self);
		return err;
	}
	slots_init(&self->free);
	ops_init(&self->waiting);
	for (uint32_t i = 0; i < LP_BDEV_DELAY_FLIGHT_MAX; i++) {
		self->slots[i].timer.fire = time_is_over;
		slots_push_back(&self->free, &self->slots[i]);
	}
	self->wake.fire = woken;
	self->source =
		(struct lp_source){.name = "bdev-delay", .budget = POLL_BUDGET, .poll = delay_poll};
	lp_source_add(reactor, &self->source);
	*ret_chan = &self->chan;
	return 0;
}

static void delay_detach(struct lp_bdev_chan *chan)
{
	struct delay_chan *self = chan_of(chan);
	LP_ASSERT(ops_is_empty(&self->waiting));
	LP_ASSERT(lp_timer_heap_next_ns(&self->done) == UINT64_MAX);
	lp_timer_stop(chan->reactor, &self->wake);
	lp_source_remove(chan->reactor, &self->source);
	lp_bdev_detach(self->inner);
	free(self);
}

/* --- Blocking calls --------------------------------------------------------------------------- */

/* The kernel may let a sleeper oversleep by the lead (its timer slack), so it is told an earlier
 * time; what is then left is spun away. */
static void sleep_until(uint64_t due_ns)
{
	const struct lp_clock *clock = lp_clock_system();
	uint64_t now_ns = lp_clock_mono_ns(clock);
	while (now_ns + LP_BDEV_DELAY_LEAD_NS < due_ns) {
		uint64_t until_ns = due_ns - LP_BDEV_DELAY_LEAD_NS;
		struct timespec ts = {.tv_sec = (time_t)(until_ns / LP_NS_PER_S),
				      .tv_nsec = (long)(until_ns % LP_NS_PER_S)};
		/* A signal ends the sleep early: the loop goes on. */
		(void)clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &ts, NULL);
		now_ns = lp_clock_mono_ns(clock);
	}
	while (lp_clock_mono_ns(clock) < due_ns)
		lp_cpu_relax();
}

static int delay_sync(struct lp_bdev *bdev, enum lp_bdev_opcode opcode, void *buf,
		      uint64_t length_bytes, uint64_t offset_bytes)
{
	struct delay_bdev *self = bdev_of(bdev);
	const struct lp_bdev_kind *kind = self->inner->kind;
	if (self->is_simulated)
		return kind->sync(self->inner, opcode, buf, length_bytes, offset_bytes);
	uint64_t due_ns = plan(self, opcode, offset_bytes, length_bytes);
	int err = kind->sync(self->inner, opcode, buf, length_bytes, offset_bytes);
	sleep_until(due_ns);
	return err;
}

/* --- Open and close --------------------------------------------------------------------------- */

static void take_caps(struct delay_bdev *self)
{
	self->bdev.caps = self->inner->caps;
	self->bdev.caps.rotational |= self->options.seek_ns > 0;
}

static int delay_refresh_size(struct lp_bdev *bdev)
{
	struct delay_bdev *self = bdev_of(bdev);
	int err = lp_bdev_refresh_size(self->inner);
	take_caps(self);
	return err;
}

static void delay_close(struct lp_bdev *bdev)
{
	struct delay_bdev *self = bdev_of(bdev);
	lp_bdev_close(self->inner);
	int err = pthread_mutex_destroy(&self->model.lock);
	LP_ASSERT(err == 0);
	free(self);
}

static const struct lp_bdev_kind delay_kind = {
	.name = "delay",
	.close = delay_close,
	.refresh_size = delay_refresh_size,
	.attach = delay_attach,
	.detach = delay_detach,
	.submit = delay_submit,
	.sync = delay_sync,
};

static bool is_sensible(const struct lp_bdev_delay_options *options)
{
	const uint64_t times[] = {options->read_ns, options->write_ns, options->flush_ns,
				  options->seek_ns};
	for (size_t i = 0; i < LP_ARRAY_SIZE(times); i++) {
		if (times[i] > LP_BDEV_DELAY_NS_MAX)
			return false;
	}
	if (options->fua_ns != LP_BDEV_DELAY_AS_FLUSH && options->fua_ns > LP_BDEV_DELAY_NS_MAX)
		return false;
	return options->read_ns_per_kib <= LP_BDEV_DELAY_KIB_MAX &&
	       options->write_ns_per_kib <= LP_BDEV_DELAY_KIB_MAX &&
	       options->queue_depth <= LP_BDEV_DELAY_DEPTH_MAX;
}

int lp_bdev_open_delay(struct lp_bdev **take_inner, const struct lp_bdev_delay_options *options,
		       struct lp_bdev **ret_bdev)
{
	LP_ASSERT(*take_inner != NULL && atomic_load(&(*take_inner)->chan_cnt) == 0);
	if (!is_sensible(options))
		return -EINVAL;
	struct delay_bdev *self = calloc(1, sizeof(*self));
	if (self == NULL)
		return -ENOMEM;
	int err = pthread_mutex_init(&self->model.lock, NULL);
	LP_ASSERT(err == 0);
	self->inner = *take_inner;
	*take_inner = NULL;
	/* The name is shown to people, who know the device by it. */
	lpi_bdev_init(&self->bdev, &delay_kind, lp_bdev_name(self->inner));
	self->options = *options;
	take_caps(self);
	if (options->fua_ns == LP_BDEV_DELAY_AS_FLUSH)
		self->options.fua_ns = options->flush_ns;
	if (options->clock == NULL)
		self->options.clock = lp_clock_system();
	self->is_simulated = self->options.clock != lp_clock_system();
	*ret_bdev = &self->bdev;
	return 0;
}
