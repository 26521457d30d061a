/* SPDX-License-Identifier: Apache-2.0 */
/* The turn is in lp_reactor_turn(), top to bottom; all other functions serve it.
 *
 * The ring: SINGLE_ISSUER and DEFER_TASKRUN, so completions are only made inside our own call of
 * io_uring_enter, and TASKRUN_FLAG, so that a flag in shared memory tells whether a call would
 * fetch any. A turn without submissions and without completions to fetch makes no system call.
 *
 * User data is a pointer to the struct lp_io, or one of two values of our own. 0 is a wake-up sent
 * by MSG_RING, which has no other content. Bit 0 set marks a pointer to the outbox whose MSG_RING
 * failed.
 *
 * Sleeping (see base/loop/inbox.h for the protocol): a sender that finds us asleep wakes us by
 * MSG_RING if it is a reactor (the SQE leaves with its turn's submission and costs no call), by the
 * eventfd otherwise. A multishot poll watches the eventfd. Its counter is never read, because each
 * write makes a new edge.
 */
#include "base/loop/reactor.h"

#include <liburing.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/error.h"
#include "base/loop/contention.h"
#include "base/loop/reactor_tables.h"

LP_LIST_DEFINE(tasks, struct lp_task, node);
LP_LIST_DEFINE(sources, struct lp_source, node);

#define TAG_WAKE   UINT64_C(0)
#define TAG_OUTBOX UINT64_C(1)

#define REAP_BATCH       64u
#define SUBMIT_RETRY_MAX 10000u
#define SUBMIT_RETRY_US  1000u
#define SPIN_BACKOFF_MAX 8u
#define SPIN_CHECK_CLOCK 32u
/* Mean events for each wait, in 16ths. With more than this the reactor sleeps at once, so that more
 * events gather. */
#define SPIN_CROWD_MAX 48u

/* Messages to one other reactor that leave at the end of this turn. */
struct outbox {
	struct lp_reactor *to;
	struct lp_msg *newest;
	struct lp_msg *oldest;
	struct outbox *next_dirty;
};

struct lp_reactor {
	struct lp_reactor_options options;
	struct io_uring ring;
	struct lp_inbox inbox;
	_Atomic bool stop;
	_Atomic(const char *) owner; /* the owner's `self`; NULL before start */
	int wake_fd;
	uint32_t id; /* index into other reactors' outboxes */
	struct lp_io wake_poll;

	const struct lp_clock *clock;
	uint64_t now_ns;
	uint64_t waited_ns;
	uint64_t inflight;
	struct lp_timer_heap timers;
	struct tasks tasks;            /* for the next turn */
	struct tasks running;          /* for this one */
	struct lp_msg *delivery_first; /* taken from the inbox, not yet delivered */
	struct lp_msg *delivery_last;
	struct sources sources;
	bool sources_busy; /* the last poll did work */

	struct outbox *dirty;
	struct outbox outboxes[LP_REACTOR_MAX];

	struct lpi_reactor_tables tables;
	struct io_uring_probe *probe; /* NULL: the kernel does not report its opcodes */

	uint32_t spin_losses; /* in a row */
	uint32_t spin_skip;   /* sleeps left before the next spin */
	uint32_t crowd;       /* events for each wait: a mean, in 16ths */
	uint64_t crowd_seen;  /* events up to the last wait */
	uint64_t noted;       /* those of them that lp_reactor_note_events() reported */
	struct lp_contention contention;

	uint64_t phase_start_ns;
	uint64_t usage_sampled_ns;
	/* As of usage_sampled_ns. */
	uint64_t cpu_ns;
	uint64_t sleeps;
	long preempted_cnt;
	long blocked_cnt; /* sleeps of our own included */
	struct lp_reactor_stats stats;
};

static _Atomic uint64_t ids_used[LP_REACTOR_MAX / 64];

/* A thread is known by the address of its own `self`. */
static _Thread_local char self;
static _Thread_local struct lp_reactor *ring_owner_of; /* its one reactor with a ring, or NULL */

const char *lp_reactor_phase_name(enum lp_reactor_phase phase)
{
	static const char *const names[LP_PHASE_CNT] = {
		[LP_PHASE_IO] = "io",           [LP_PHASE_MESSAGES] = "messages",
		[LP_PHASE_TIMERS] = "timers",   [LP_PHASE_TASKS] = "tasks",
		[LP_PHASE_SOURCES] = "sources", [LP_PHASE_FLUSH] = "flush",
		[LP_PHASE_SUBMIT] = "submit",
	};
	LP_ASSERT(phase < LP_PHASE_CNT);
	return names[phase];
}

/* --- Birth and death ---------------------------------------------------------------------------
 */

static int id_take(uint32_t *ret_id)
{
	for (uint32_t word = 0; word < LP_ARRAY_SIZE(ids_used); word++) {
		uint64_t used = atomic_load(&ids_used[word]);
		while (used != UINT64_MAX) {
			uint32_t bit = (uint32_t)__builtin_ctzll(~used);
			if (atomic_compare_exchange_weak(&ids_used[word], &used,
							 used | UINT64_C(1) << bit)) {
				*ret_id = word * 64 + bit;
				return 0;
			}
		}
	}
	return -EMFILE;
}

static void id_return(uint32_t id)
{
	uint64_t before = atomic_fetch_and(&ids_used[id / 64], ~(UINT64_C(1) << (id % 64)));
	LP_ASSERT((before >> (id % 64) & 1) == 1);
}

static int ring_new(struct lp_reactor *reactor)
{
	uint32_t entries = reactor->options.entries;
	struct io_uring_params params = {
		.flags = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN |
			 IORING_SETUP_TASKRUN_FLAG | IORING_SETUP_R_DISABLED |
			 IORING_SETUP_SUBMIT_ALL | IORING_SETUP_CQSIZE | IORING_SETUP_CLAMP |
			 (reactor->options.sqe128 ? IORING_SETUP_SQE128 : 0),
		.cq_entries = entries * 8,
	};
	int err = io_uring_queue_init_params(entries, &reactor->ring, &params);
	if (err < 0)
		return err;
	reactor->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (reactor->wake_fd < 0) {
		err = -errno;
		io_uring_queue_exit(&reactor->ring);
		return err;
	}
	reactor->probe = io_uring_get_probe_ring(&reactor->ring);
	return 0;
}

static void ring_free(struct lp_reactor *reactor)
{
	io_uring_free_probe(reactor->probe);
	io_uring_queue_exit(&reactor->ring);
	(void)close(reactor->wake_fd); /* nothing was written that could be lost */
}

int lp_reactor_new(const struct lp_reactor_options *options, struct lp_reactor **ret_reactor)
{
	struct lp_reactor *reactor = aligned_alloc(LP_CACHE_LINE, sizeof(*reactor));
	if (reactor == NULL)
		return -ENOMEM;
	memset(reactor, 0, sizeof(*reactor));
	reactor->options = *options;
	if (reactor->options.entries == 0)
		reactor->options.entries = LP_REACTOR_ENTRIES;
	if (reactor->options.io_budget == 0)
		reactor->options.io_budget = LP_REACTOR_BUDGET;
	reactor->clock = options->clock != NULL ? options->clock : lp_clock_system();
	if (options->sim != NULL)
		reactor->clock = &options->sim->clock;
	reactor->now_ns = lp_clock_mono_ns(reactor->clock);
	tasks_init(&reactor->tasks);
	tasks_init(&reactor->running);
	sources_init(&reactor->sources);
	reactor->contention.fd = -1;

	int err = id_take(&reactor->id);
	if (err < 0)
		goto fail_memory;
	err = options->ring ? ring_new(reactor) : 0;
	if (err < 0)
		goto fail_id;
	err = lpi_reactor_tables_init(&reactor->tables, options->ring ? &reactor->ring : NULL,
				      options->files_max, options->buffers_max);
	if (err < 0)
		goto fail_ring;
	*ret_reactor = reactor;
	return 0;

fail_ring:
	if (options->ring)
		ring_free(reactor);
fail_id:
	id_return(reactor->id);
fail_memory:
	free(reactor);
	return err;
}

int lp_reactor_new_like(const struct lp_reactor *like, const char *name,
			struct lp_reactor **ret_reactor)
{
	struct lp_reactor_options options = like->options; /* constant */
	options.name = name;
	return lp_reactor_new(&options, ret_reactor);
}

void lp_reactor_free(struct lp_reactor *reactor)
{
	if (reactor == NULL)
		return;
	LP_ASSERT(reactor->inflight == 0);
	LP_ASSERT(lp_timer_heap_next_ns(&reactor->timers) == UINT64_MAX);
	LP_ASSERT(tasks_is_empty(&reactor->tasks) && tasks_is_empty(&reactor->running));
	LP_ASSERT(lp_inbox_is_empty(&reactor->inbox) && reactor->delivery_first == NULL);
	LP_ASSERT(reactor->dirty == NULL);
	if (reactor->options.ring)
		ring_free(reactor);
	id_return(reactor->id);
	if (ring_owner_of == reactor)
		ring_owner_of = NULL;
	lpi_reactor_tables_fini(&reactor->tables);
	lp_contention_fini(&reactor->contention);
	free(reactor);
}

static void wake_poll_complete(struct lp_io *io);

static void wake_poll_arm(struct lp_reactor *reactor)
{
	reactor->wake_poll.complete = wake_poll_complete;
	struct io_uring_sqe *sqe = lp_reactor_sqe(reactor, &reactor->wake_poll);
	io_uring_prep_poll_multishot(sqe, reactor->wake_fd, POLLIN);
}

static void wake_poll_complete(struct lp_io *io)
{
	struct lp_reactor *reactor = LP_CONTAINER_OF(io, struct lp_reactor, wake_poll);
	/* The poll's last completion, after an overflow of the completion queue: arms a new one. */
	if (lp_io_is_idle(io))
		wake_poll_arm(reactor);
}

int lp_reactor_start(struct lp_reactor *reactor)
{
	LP_ASSERT(atomic_load(&reactor->owner) == NULL);
	if (reactor->options.ring) {
		LP_ASSERT(ring_owner_of == NULL);
		/* liburing 2.3 declares io_uring_enable_rings() but does not export it. */
		int err = io_uring_register((unsigned)reactor->ring.ring_fd,
					    IORING_REGISTER_ENABLE_RINGS, NULL, 0);
		if (err < 0)
			return err;
		/* Saves a look-up of the descriptor in each call; optional. */
		(void)io_uring_register_ring_fd(&reactor->ring);
	}
	if (reactor->options.ring)
		ring_owner_of = reactor;
	atomic_store(&reactor->owner, &self);
	reactor->now_ns = lp_clock_mono_ns(reactor->clock);
	if (reactor->options.spin_max_ns > 0)
		lp_contention_init(&reactor->contention, reactor->options.schedstat,
				   reactor->now_ns);
	if (reactor->options.ring)
		wake_poll_arm(reactor);
	return 0;
}

bool lp_reactor_is_mine(const struct lp_reactor *reactor)
{
	return atomic_load_explicit(&reactor->owner, memory_order_relaxed) == &self;
}

uint64_t lp_reactor_now_ns(const struct lp_reactor *reactor)
{
	return reactor->now_ns;
}

uint64_t lp_reactor_waited_ns(const struct lp_reactor *reactor)
{
	return reactor->waited_ns;
}

bool lp_reactor_is_long(const struct lp_reactor *reactor)
{
	return lp_clock_mono_ns(reactor->clock) - reactor->phase_start_ns >= LP_REACTOR_LONG_NS;
}

const struct lp_clock *lp_reactor_clock(const struct lp_reactor *reactor)
{
	return reactor->clock;
}

uint64_t lp_reactor_inflight(const struct lp_reactor *reactor)
{
	return reactor->inflight;
}

const struct lp_reactor_stats *lp_reactor_stats(const struct lp_reactor *reactor)
{
	return &reactor->stats;
}

void lp_reactor_forget_absences(struct lp_reactor *reactor)
{
	reactor->stats.absence_max_ns = 0;
	reactor->stats.absence_own_max_ns = 0;
	for (int i = 0; i < LP_PHASE_CNT; i++) {
		reactor->stats.absence_max_by_phase_ns[i] = 0;
		reactor->stats.absence_own_max_by_phase_ns[i] = 0;
	}
}

/* --- Messages ----------------------------------------------------------------------------------
 */

static void wake_by_eventfd(struct lp_reactor *to)
{
	/* EAGAIN: the counter is at its limit, so an edge is on its way already. */
	uint64_t one = 1;
	ssize_t ignored = write(to->wake_fd, &one, sizeof(one));
	(void)ignored;
}

void lp_reactor_send(struct lp_reactor *from, struct lp_reactor *to, struct lp_msg *msg)
{
	LP_ASSERT(lp_reactor_is_mine(from));
	LP_ASSERT(msg->deliver != NULL);
	struct outbox *out = &from->outboxes[to->id];
	if (out->newest == NULL) {
		out->to = to;
		out->oldest = msg;
		out->next_dirty = from->dirty;
		from->dirty = out;
	}
	LP_ASSERT(out->to == to);
	msg->next = out->newest;
	out->newest = msg;
}

void lp_reactor_post(struct lp_reactor *to, struct lp_msg *msg)
{
	LP_ASSERT(msg->deliver != NULL);
	lp_inbox_push(&to->inbox, msg, msg);
	if (lp_inbox_claim_wake(&to->inbox))
		wake_by_eventfd(to);
}

static void wake_by_ring(struct lp_reactor *from, struct outbox *out)
{
	struct io_uring_sqe *sqe = lp_reactor_sqe(from, NULL);
	io_uring_prep_msg_ring(sqe, out->to->ring.ring_fd, 0, TAG_WAKE, 0);
	io_uring_sqe_set_flags(sqe, IOSQE_CQE_SKIP_SUCCESS);
	io_uring_sqe_set_data64(sqe, (uint64_t)(uintptr_t)out | TAG_OUTBOX);
}

/* Sends all messages of this turn: one atomic operation for each receiver. */
static void publish(struct lp_reactor *reactor)
{
	while (reactor->dirty != NULL) {
		struct outbox *out = reactor->dirty;
		reactor->dirty = out->next_dirty;
		struct lp_msg *newest = out->newest;
		out->newest = NULL;
		lp_inbox_push(&out->to->inbox, newest, out->oldest);
		if (!lp_inbox_claim_wake(&out->to->inbox))
			continue;
		reactor->stats.wakes_sent++;
		if (reactor->options.ring)
			wake_by_ring(reactor, out);
		else
			wake_by_eventfd(out->to);
	}
}

static uint32_t deliver_messages(struct lp_reactor *reactor)
{
	struct lp_msg *last = NULL;
	struct lp_msg *first = lp_inbox_take(&reactor->inbox, &last);
	if (first != NULL) {
		if (reactor->delivery_first == NULL)
			reactor->delivery_first = first;
		else
			reactor->delivery_last->next = first;
		reactor->delivery_last = last;
	}
	uint32_t cnt = 0;
	while (reactor->delivery_first != NULL && cnt < reactor->options.io_budget) {
		struct lp_msg *msg = reactor->delivery_first;
		reactor->delivery_first = msg->next;
		msg->next = NULL;
		cnt++;
		msg->deliver(reactor, msg);
	}
	reactor->stats.msgs += cnt;
	return cnt;
}

/* --- Timers, tasks, sources ---------------------------------------------------------------------
 */

void lp_timer_start(struct lp_reactor *reactor, struct lp_timer *timer, uint64_t deadline_ns)
{
	LP_ASSERT(lp_reactor_is_mine(reactor));
	if (lp_timer_is_armed(timer))
		lp_timer_heap_remove(&reactor->timers, timer);
	lp_timer_heap_insert(&reactor->timers, timer, deadline_ns);
}

void lp_timer_stop(struct lp_reactor *reactor, struct lp_timer *timer)
{
	LP_ASSERT(lp_reactor_is_mine(reactor));
	if (lp_timer_is_armed(timer))
		lp_timer_heap_remove(&reactor->timers, timer);
}

static uint32_t fire_timers(struct lp_reactor *reactor)
{
	uint32_t cnt = 0;
	/* A timer that arms itself for "now" again must not keep this loop running. */
	uint64_t armed_before = reactor->timers.insert_cnt;
	while (cnt < reactor->options.io_budget) {
		struct lp_timer *timer = reactor->timers.root;
		if (timer == NULL || timer->deadline_ns > reactor->now_ns ||
		    timer->order >= armed_before)
			break;
		lp_timer_heap_remove(&reactor->timers, timer);
		cnt++;
		timer->fire(timer);
	}
	return cnt;
}

void lp_task_queue(struct lp_reactor *reactor, struct lp_task *task)
{
	LP_ASSERT(lp_reactor_is_mine(reactor));
	LP_ASSERT(task->run != NULL);
	tasks_push_back(&reactor->tasks, task);
}

void lp_task_cancel(struct lp_task *task)
{
	if (lp_task_is_queued(task))
		tasks_remove(task);
}

static uint32_t run_tasks(struct lp_reactor *reactor)
{
	uint32_t cnt = 0;
	tasks_splice_back(&reactor->running, &reactor->tasks);
	while (cnt < reactor->options.io_budget) {
		struct lp_task *task = tasks_pop_front(&reactor->running);
		if (task == NULL)
			break;
		cnt++;
		task->run(task);
		if (lp_reactor_is_long(reactor))
			break;
	}
	return cnt;
}

void lp_source_add(struct lp_reactor *reactor, struct lp_source *source)
{
	LP_ASSERT(source->poll != NULL || source->flush != NULL || source->rest != NULL);
	sources_push_back(&reactor->sources, source);
	reactor->sources_busy = true; /* it must be polled before the first sleep */
}

void lp_source_remove(struct lp_reactor *reactor, struct lp_source *source)
{
	LP_ASSERT(reactor != NULL);
	sources_remove(source);
}

void lp_reactor_note_events(struct lp_reactor *reactor, uint32_t cnt)
{
	reactor->noted += cnt;
}

static bool look_at_sources(struct lp_reactor *reactor)
{
	struct lp_source *source;
	LP_LIST_FOREACH (sources, &reactor->sources, source) {
		if (source->look != NULL && source->look(source))
			return true;
	}
	return false;
}

static void rest_sources(struct lp_reactor *reactor)
{
	struct lp_source *source;
	LP_LIST_FOREACH (sources, &reactor->sources, source) {
		if (source->rest != NULL)
			source->rest(source);
	}
}

static uint32_t poll_sources(struct lp_reactor *reactor)
{
	uint32_t cnt = 0;
	struct lp_source *source;
	struct lp_source *tmp;
	LP_LIST_FOREACH_SAFE (sources, &reactor->sources, source, tmp) {
		if (source->poll != NULL)
			cnt += source->poll(source, source->budget);
	}
	return cnt;
}

static void flush_sources(struct lp_reactor *reactor)
{
	struct lp_source *source;
	LP_LIST_FOREACH (sources, &reactor->sources, source) {
		if (source->flush != NULL)
			source->flush(source);
	}
}

/* --- The ring ------------------------------------------------------------------------------------
 */

/* Submits prepared SQEs; completions are fetched but not handled. */
static void submit(struct lp_reactor *reactor)
{
	reactor->stats.enters++;
	/* -EBUSY and -EAGAIN leave the rest in the queue for the next turn; -EINTR is harmless. Any
	 * other error would mean that we broke the ring ourselves. */
	int err = io_uring_submit_and_get_events(&reactor->ring);
	LP_ASSERT(err >= 0 || err == -EBUSY || err == -EAGAIN || err == -EINTR || err == -ENOMEM);
}

struct io_uring_sqe *lp_reactor_sqe(struct lp_reactor *reactor, struct lp_io *io)
{
	LP_ASSERT(lp_reactor_is_mine(reactor));
	LP_ASSERT(reactor->options.ring);
	struct io_uring_sqe *sqe = io_uring_get_sqe(&reactor->ring);
	for (uint32_t tries = 0; sqe == NULL; tries++) {
		/* Only a kernel without memory refuses more than once: it gets seconds to recover.
		 */
		LP_ASSERT(tries < SUBMIT_RETRY_MAX);
		if (tries > 1)
			(void)usleep(SUBMIT_RETRY_US);
		submit(reactor);
		sqe = io_uring_get_sqe(&reactor->ring);
	}
	if (io != NULL) {
		LP_ASSERT(io->magic == LP_IO_IDLE);
		LP_ASSERT(io->complete != NULL);
		io->magic = LP_IO_IN_FLIGHT;
		if (io != &reactor->wake_poll) /* our own does not count */
			reactor->inflight++;
	}
	io_uring_sqe_set_data(sqe, io);
	return sqe;
}

void lp_reactor_submit(struct lp_reactor *reactor)
{
	LP_ASSERT(lp_reactor_is_mine(reactor));
	if (reactor->options.ring && io_uring_sq_ready(&reactor->ring) > 0)
		submit(reactor);
}

static void wake_failed(const struct lp_reactor *reactor, uint64_t user_data)
{
	struct outbox *out = (struct outbox *)(uintptr_t)(user_data & ~TAG_OUTBOX);
	LP_ASSERT(out >= reactor->outboxes && out < reactor->outboxes + LP_REACTOR_MAX);
	wake_by_eventfd(out->to);
}

/* A copy of the used fields of a CQE. */
struct completion {
	uint64_t user_data;
	int32_t result;
	uint32_t flags;
};

static void complete_one(struct lp_reactor *reactor, const struct completion *cqe)
{
	if (cqe->user_data == TAG_WAKE)
		return;
	if ((cqe->user_data & TAG_OUTBOX) != 0) {
		wake_failed(reactor, cqe->user_data);
		return;
	}
	struct lp_io *io = (struct lp_io *)(uintptr_t)cqe->user_data;
	LP_ASSERT(io->magic == LP_IO_IN_FLIGHT);
	io->result = cqe->result;
	io->cqe_flags = cqe->flags;
	if ((cqe->flags & IORING_CQE_F_MORE) == 0) {
		io->magic = LP_IO_IDLE;
		if (io != &reactor->wake_poll)
			reactor->inflight--;
	}
	io->complete(io);
}

static uint32_t reap(struct lp_reactor *reactor)
{
	uint32_t cnt = 0;
	while (cnt < reactor->options.io_budget) {
		/* Copied out first, because a callback may submit, and that may move the queue. */
		struct io_uring_cqe *ptrs[REAP_BATCH];
		struct completion done[REAP_BATCH];
		unsigned got = io_uring_peek_batch_cqe(&reactor->ring, ptrs, REAP_BATCH);
		if (got == 0)
			break;
		for (unsigned i = 0; i < got; i++)
			done[i] = (struct completion){ptrs[i]->user_data, ptrs[i]->res,
						      ptrs[i]->flags};
		io_uring_cq_advance(&reactor->ring, got);
		for (unsigned i = 0; i < got; i++)
			complete_one(reactor, &done[i]);
		cnt += got;
	}
	reactor->stats.ios += cnt;
	return cnt;
}

bool lp_reactor_has_opcode(const struct lp_reactor *reactor, uint8_t opcode)
{
	return reactor->probe != NULL && io_uring_opcode_supported(reactor->probe, opcode) != 0;
}

/* --- Registered files and buffers ------------------------------------------------------------- */

int lp_reactor_file_add(struct lp_reactor *reactor, int fd, uint32_t *ret_slot)
{
	LP_ASSERT(lp_reactor_is_mine(reactor));
	return lpi_reactor_tables_add_file(&reactor->tables, fd, ret_slot);
}

void lp_reactor_file_remove(struct lp_reactor *reactor, uint32_t slot)
{
	LP_ASSERT(lp_reactor_is_mine(reactor));
	lpi_reactor_tables_remove_file(&reactor->tables, slot);
}

int lp_reactor_buffer_add(struct lp_reactor *reactor, void *base, size_t len)
{
	LP_ASSERT(lp_reactor_is_mine(reactor));
	return lpi_reactor_tables_add_buffer(&reactor->tables, base, len);
}

void lp_reactor_buffer_remove(struct lp_reactor *reactor, void *base)
{
	LP_ASSERT(lp_reactor_is_mine(reactor));
	lpi_reactor_tables_remove_buffer(&reactor->tables, base);
}

int lp_reactor_buffer_resize(struct lp_reactor *reactor, void *base, size_t len)
{
	LP_ASSERT(lp_reactor_is_mine(reactor));
	return lpi_reactor_tables_resize_buffer(&reactor->tables, base, len);
}

int lp_reactor_buffer_find(const struct lp_reactor *reactor, const void *buf, size_t len)
{
	return lpi_reactor_tables_find_buffer(&reactor->tables, buf, len);
}

/* --- Sleeping --------------------------------------------------------------------------------- */

static bool ring_has_news(struct lp_reactor *reactor)
{
	return io_uring_cq_ready(&reactor->ring) > 0 ||
	       (IO_URING_READ_ONCE(*reactor->ring.sq.kflags) &
		(IORING_SQ_TASKRUN | IORING_SQ_CQ_OVERFLOW)) != 0;
}

/* Whether the next turn would have work without waiting. */
static bool has_work(struct lp_reactor *reactor)
{
	return !tasks_is_empty(&reactor->tasks) || !tasks_is_empty(&reactor->running) ||
	       reactor->delivery_first != NULL || reactor->dirty != NULL ||
	       !lp_inbox_is_empty(&reactor->inbox) ||
	       atomic_load_explicit(&reactor->stop, memory_order_relaxed) ||
	       (reactor->options.ring && ring_has_news(reactor));
}

/* Whether events come one by one. If many come together, a sleep costs each of them little. More
 * events come during the sleep, which makes each cheaper still. */
static bool is_lonely(struct lp_reactor *reactor)
{
	uint64_t events = reactor->stats.ios + reactor->stats.msgs + reactor->noted;
	uint64_t since = LP_MIN(events - reactor->crowd_seen, UINT64_C(256));
	reactor->crowd_seen = events;
	reactor->crowd = (uint32_t)((UINT64_C(7) * reactor->crowd + since * 16) / 8);
	return reactor->crowd <= SPIN_CROWD_MAX;
}

/* A short spin is cheaper than a sleep if the next event is near. Each loss in a row doubles the
 * number of sleeps until the next try, so an idle machine pays little. The reactor does not spin if
 * it had to wait for a processor, because it would take the processor from others, perhaps from the
 * client whose request it waits for. */
static bool may_spin(struct lp_reactor *reactor)
{
	if (reactor->options.spin_max_ns == 0 || !is_lonely(reactor) ||
	    lp_contention_look(&reactor->contention, reactor->now_ns))
		return false;
	if (reactor->spin_skip == 0)
		return true;
	reactor->spin_skip--;
	return false;
}

static bool spin(struct lp_reactor *reactor)
{
	uint64_t until_ns = lp_clock_mono_ns(reactor->clock) + reactor->options.spin_max_ns;
	until_ns = LP_MIN(until_ns, lp_timer_heap_next_ns(&reactor->timers));
	for (uint32_t i = 1;; i++) {
		if (has_work(reactor) || look_at_sources(reactor)) {
			reactor->stats.spins_won++;
			reactor->spin_losses = 0;
			return true;
		}
		if (i % SPIN_CHECK_CLOCK == 0 && lp_clock_mono_ns(reactor->clock) >= until_ns)
			break;
		lp_cpu_relax();
	}
	reactor->stats.spins_lost++;
	reactor->spin_losses = LP_MIN(reactor->spin_losses + 1, SPIN_BACKOFF_MAX);
	reactor->spin_skip = (UINT32_C(1) << reactor->spin_losses) - 1;
	return false;
}

/* One system call: submits, and waits for a completion or the next timer. Without a timer it waits
 * without a time limit, because arming one costs a microsecond. */
static int enter_and_wait(struct lp_reactor *reactor)
{
	uint64_t next_ns = lp_timer_heap_next_ns(&reactor->timers);
	if (next_ns == UINT64_MAX)
		return io_uring_submit_and_wait(&reactor->ring, 1);
	uint64_t now_ns = lp_clock_mono_ns(reactor->clock);
	uint64_t wait_ns = next_ns > now_ns ? next_ns - now_ns : 0;
	struct __kernel_timespec ts = {.tv_sec = (int64_t)(wait_ns / LP_NS_PER_S),
				       .tv_nsec = (long long)(wait_ns % LP_NS_PER_S)};
	struct io_uring_cqe *cqe;
	return io_uring_submit_and_wait_timeout(&reactor->ring, &cqe, 1, &ts, NULL);
}

static void sleep_on_ring(struct lp_reactor *reactor)
{
	atomic_store(&reactor->inbox.asleep, 1);
	if (!has_work(reactor)) {
		reactor->stats.enters++;
		reactor->stats.sleeps++;
		int err = enter_and_wait(reactor);
		LP_ASSERT(err >= 0 || err == -ETIME || err == -EINTR || err == -EBUSY ||
			  err == -EAGAIN || err == -ENOMEM);
	}
	atomic_store(&reactor->inbox.asleep, 0);
}

/* Submits, and sleeps if there is no work until the next event. */
static void submit_and_wait(struct lp_reactor *reactor, bool may_sleep)
{
	bool idle = may_sleep && !has_work(reactor);
	bool prepared = io_uring_sq_ready(&reactor->ring) > 0;
	bool spins = idle && may_spin(reactor);
	if (spins && prepared) {
		submit(reactor); /* the spin waits for the ios that this starts */
		prepared = false;
	}
	if (idle && !(spins && spin(reactor))) {
		rest_sources(reactor);
		sleep_on_ring(reactor);
		return;
	}
	if (prepared || ring_has_news(reactor))
		submit(reactor);
}

/* --- The watchdog ----------------------------------------------------------------------------- */

/* Use of the processor by the thread since the last sample. */
struct usage {
	uint64_t cpu_ns;
	bool was_preempted;
	bool was_blocked;
};

static struct usage sample_usage(struct lp_reactor *reactor)
{
	struct usage since = {.cpu_ns = 0};
	struct rusage usage;
	struct timespec cpu;
	/* Does not use the times of getrusage(), which are as old as the last tick. */
	if (getrusage(RUSAGE_THREAD, &usage) < 0 ||
	    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &cpu) < 0)
		return since;
	uint64_t cpu_ns = (uint64_t)cpu.tv_sec * LP_NS_PER_S + (uint64_t)cpu.tv_nsec;
	uint64_t sleeps = reactor->stats.sleeps - reactor->sleeps;
	since = (struct usage){
		.cpu_ns = cpu_ns - reactor->cpu_ns,
		.was_preempted = usage.ru_nivcsw != reactor->preempted_cnt,
		.was_blocked = (uint64_t)(usage.ru_nvcsw - reactor->blocked_cnt) > sleeps,
	};
	reactor->cpu_ns = cpu_ns;
	reactor->sleeps = reactor->stats.sleeps;
	reactor->preempted_cnt = usage.ru_nivcsw;
	reactor->blocked_cnt = usage.ru_nvcsw;
	reactor->usage_sampled_ns = reactor->phase_start_ns;
	return since;
}

static void turn_begin(struct lp_reactor *reactor, bool has_waited)
{
	reactor->now_ns = lp_clock_mono_ns(reactor->clock);
	if (has_waited)
		reactor->waited_ns += reactor->now_ns - reactor->phase_start_ns;
	reactor->phase_start_ns = reactor->now_ns;
	reactor->stats.turns++;
	/* Two cheap calls per millisecond keep the sample fresh. */
	if (reactor->options.sim == NULL &&
	    reactor->now_ns - reactor->usage_sampled_ns > LP_REACTOR_ABSENT_NS)
		(void)sample_usage(reactor);
}

/* A phase that did work ends: checks whether the thread was away for too long. */
static void phase_end(struct lp_reactor *reactor, enum lp_reactor_phase phase)
{
	uint64_t now_ns = lp_clock_mono_ns(reactor->clock);
	uint64_t away_ns = now_ns - reactor->phase_start_ns;
	reactor->phase_start_ns = now_ns;
	struct lp_reactor_stats *stats = &reactor->stats;
	if (away_ns > stats->absence_max_by_phase_ns[phase])
		stats->absence_max_by_phase_ns[phase] = away_ns;
	if (away_ns < LP_REACTOR_ABSENT_NS)
		return;
	stats->absences++;
	stats->absences_by_phase[phase]++;
	stats->absence_max_ns = LP_MAX(stats->absence_max_ns, away_ns);
	if (reactor->options.sim != NULL)
		return;
	struct usage usage = sample_usage(reactor);
	stats->absences_preempted += usage.was_preempted;
	stats->absences_blocked += usage.was_blocked;
	uint64_t own_ns = LP_MIN(away_ns, usage.cpu_ns);
	stats->absence_own_max_ns = LP_MAX(stats->absence_own_max_ns, own_ns);
	if (own_ns > stats->absence_own_max_by_phase_ns[phase])
		stats->absence_own_max_by_phase_ns[phase] = own_ns;
}

/* The time of the next event; no event can happen by itself before. */
static uint64_t next_event_ns(const struct lp_reactor *reactor)
{
	uint64_t next_ns = lp_timer_heap_next_ns(&reactor->timers);
	const struct lp_source *source;
	LP_LIST_FOREACH (sources, &reactor->sources, source) {
		if (source->next_ns != NULL)
			next_ns = LP_MIN(next_ns, source->next_ns(source));
	}
	return next_ns;
}

/* --- The turn --------------------------------------------------------------------------------- */

static uint32_t run_callbacks(struct lp_reactor *reactor)
{
	uint32_t total = 0;
	uint32_t cnt = reactor->options.ring ? reap(reactor) : 0;
	if (cnt > 0)
		phase_end(reactor, LP_PHASE_IO);
	total += cnt;
	cnt = deliver_messages(reactor);
	if (cnt > 0)
		phase_end(reactor, LP_PHASE_MESSAGES);
	total += cnt;
	cnt = fire_timers(reactor);
	if (cnt > 0)
		phase_end(reactor, LP_PHASE_TIMERS);
	total += cnt;
	cnt = run_tasks(reactor);
	if (cnt > 0)
		phase_end(reactor, LP_PHASE_TASKS);
	total += cnt;
	cnt = poll_sources(reactor);
	reactor->sources_busy = cnt > 0;
	if (cnt > 0)
		phase_end(reactor, LP_PHASE_SOURCES);
	return total + cnt;
}

static void flush(struct lp_reactor *reactor)
{
	reactor->phase_start_ns = lp_clock_mono_ns(reactor->clock);
	if (!sources_is_empty(&reactor->sources)) {
		flush_sources(reactor);
		phase_end(reactor, LP_PHASE_FLUSH);
	}
	publish(reactor);
}

/* Returns whether it waited, and did not only submit. */
static bool wait_for_ring(struct lp_reactor *reactor, bool may_sleep)
{
	uint64_t sleeps = reactor->stats.sleeps;
	uint64_t spins = reactor->stats.spins_won;
	submit_and_wait(reactor, may_sleep);
	if (reactor->stats.sleeps != sleeps || reactor->stats.spins_won != spins)
		return true;
	phase_end(reactor, LP_PHASE_SUBMIT);
	return false;
}

/* Jumps to the next event, if there is one. */
static void wait_for_simulation(struct lp_reactor *reactor, bool may_sleep)
{
	if (!may_sleep || reactor->options.sim == NULL || has_work(reactor))
		return;
	uint64_t next_ns = next_event_ns(reactor);
	if (next_ns != UINT64_MAX)
		lp_clock_sim_advance_to(reactor->options.sim, LP_MAX(next_ns, reactor->now_ns));
}

uint32_t lp_reactor_turn(struct lp_reactor *reactor, bool may_sleep)
{
	LP_ASSERT(lp_reactor_is_mine(reactor));
	flush(reactor);
	bool may_wait = may_sleep && !reactor->sources_busy;
	bool has_waited = true; /* in a simulation time passes in no other way */
	if (reactor->options.ring)
		has_waited = wait_for_ring(reactor, may_wait);
	else
		wait_for_simulation(reactor, may_wait);
	turn_begin(reactor, has_waited);
	uint32_t cnt = run_callbacks(reactor);
	/* In a simulation, 0 means that no event will ever happen. It must not mean that the
	 * sources were polled once more before time may jump. They are idle now, so this goes one
	 * level deep. */
	if (cnt == 0 && may_sleep && !may_wait && !reactor->options.ring)
		return lp_reactor_turn(reactor, true);
	return cnt;
}

void lp_reactor_run(struct lp_reactor *reactor)
{
	while (!atomic_load(&reactor->stop))
		(void)lp_reactor_turn(reactor, true);
	atomic_store(&reactor->stop, false);
}

static void drain_timeout(struct lp_timer *timer)
{
	(void)timer; /* its only purpose was to end the sleep */
}

int lp_reactor_drain(struct lp_reactor *reactor, uint64_t timeout_ns)
{
	struct lp_timer timeout = {.fire = drain_timeout};
	lp_timer_start(reactor, &timeout, lp_clock_mono_ns(reactor->clock) + timeout_ns);
	while (reactor->inflight > 0 && lp_timer_is_armed(&timeout))
		(void)lp_reactor_turn(reactor, true);
	lp_timer_stop(reactor, &timeout);
	return reactor->inflight > 0 ? -ETIMEDOUT : 0;
}

void lp_reactor_stop(struct lp_reactor *reactor)
{
	atomic_store(&reactor->stop, true);
	if (reactor->options.ring)
		wake_by_eventfd(reactor);
}
