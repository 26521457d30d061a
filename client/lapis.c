/* SPDX-License-Identifier: Apache-2.0 */
/* The handle: what is submitted comes in through the inbox, under the lock; everything else belongs
 * to whoever runs a turn. A turn takes the inbox, gives requests to connections, sends, waits,
 * receives, and calls back last, when nothing of it is in the middle of anything.
 *
 * Requests expire by a time of the handle's own, run_ns. A daemon cannot be blamed for what passes
 * in the caller's source, sink or callback, between two turns, or while the process is stopped: so
 * each wait and each step counts for as long as it was meant to take, at most. And it is only after
 * what has come was received that anything expires.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/error.h"
#include "client/call.h"
#include "client/connection.h"
#include "client/handle.h"
#include "client/op.h"
#include "client/public.h"
#include "client/upload.h"

#define EVENTS_MAX 64

const char *lapis_version(void)
{
	return LAPIS_VERSION;
}

/* --- The life of an operation ----------------------------------------------------------------- */

/* Before anything else is done with it on the running thread. */
static void begin(struct lpi_op *op)
{
	lpi_enter(op);
	if (op->upload != NULL) {
		lpi_upload_start(op);
		return;
	}
	lpi_arm(op);
	lpi_wait(op);
}

static void expire(struct lpi_op *op)
{
	char text[LPI_TEXT_MAX];
	if (op->place == LPI_PLACE_LATER) {
		(void)snprintf(text, sizeof(text), "%.300s", op->text);
		lpi_end_early(op, -EAGAIN, text);
		return;
	}
	(void)snprintf(text, sizeof(text), "no answer within %llu ms",
		       (unsigned long long)(op->timeout_ns / LP_NS_PER_MS));
	lpi_end_early(op, -ETIMEDOUT, text);
}

static int run_done(struct lapis *lapis)
{
	struct lpi_op *op;
	int cnt = 0;
	while ((op = lpi_ops_pop_front(&lapis->done)) != NULL) {
		lpi_all_remove(op);
		if (op->done != NULL)
			op->done(op->arg, &op->result);
		lpi_op_free(op);
		atomic_fetch_sub(&lapis->held_cnt, 1);
		cnt++;
	}
	return cnt;
}

/* --- The inbox -------------------------------------------------------------------------------- */

static void wake(struct lapis *lapis)
{
	const uint64_t one = 1;
	if (lapis->is_woken)
		return;
	lapis->is_woken = true;
	/* It fails only when the counter is full, and then it is readable. */
	(void)!write(lapis->wake_fd, &one, sizeof(one));
}

/* False: the handle is being closed. Who runs it takes what is its own before the turn ends. */
static bool put_into_inbox(struct lapis *lapis, struct lpi_op *op)
{
	if (lpi_is_running(lapis)) {
		if (lapis->is_stopping)
			return false;
		lpi_ops_push_back(&lapis->own_inbox, op);
		return true;
	}
	pthread_mutex_lock(&lapis->lock);
	bool stops = lapis->is_stopping;
	if (!stops) {
		lpi_ops_push_back(&lapis->inbox, op);
		wake(lapis);
	}
	pthread_mutex_unlock(&lapis->lock);
	return !stops;
}

int lpi_submit(struct lapis *lapis, const struct lapis_request *request,
	       const struct lpi_await *call, uint64_t *ret_id)
{
	struct lpi_op *op = NULL;
	if (atomic_fetch_add(&lapis->held_cnt, 1) >= lapis->options.requests_max) {
		atomic_fetch_sub(&lapis->held_cnt, 1);
		return -EAGAIN;
	}
	int err = lpi_op_new(lapis, request, &op);
	if (err < 0) {
		atomic_fetch_sub(&lapis->held_cnt, 1);
		return err;
	}
	if (call != NULL) {
		op->pin = call->conn;
		op->pin_generation = call->generation;
	}
	op->id = atomic_fetch_add_explicit(&lapis->last_id, 1, memory_order_relaxed) + 1;
	/* It may have ended, and be gone, as soon as it is in. */
	if (ret_id != NULL)
		*ret_id = op->id;
	if (put_into_inbox(lapis, op))
		return 0;
	lpi_op_free(op);
	atomic_fetch_sub(&lapis->held_cnt, 1);
	return -ECANCELED;
}

int lapis_submit(struct lapis *lapis, const struct lapis_request *request, uint64_t *ret_id)
{
	struct lapis_request req;
	int err = lpi_copy_request(request, &req);
	if (err == 0)
		err = lpi_submit(lapis, &req, NULL, ret_id);
	return err < 0 ? lpi_set_error(err, NULL) : 0;
}

void lapis_cancel(struct lapis *lapis, uint64_t id)
{
	struct lpi_cancel *cancel = calloc(1, sizeof(*cancel));
	/* To cancel is to ask. */
	if (cancel == NULL)
		return;
	cancel->id = id;
	pthread_mutex_lock(&lapis->lock);
	lpi_cancels_push_back(&lapis->cancels, cancel);
	if (!lpi_is_running(lapis))
		wake(lapis);
	pthread_mutex_unlock(&lapis->lock);
}

static void cancel_op(struct lapis *lapis, uint64_t id)
{
	struct lpi_op *op;
	LP_LIST_FOREACH (lpi_all, &lapis->all, op) {
		if (op->id == id && id != 0) {
			lpi_end_early(op, -ECANCELED, "canceled");
			return;
		}
	}
}

/* True when there was anything. */
static bool take_inbox(struct lapis *lapis)
{
	struct lpi_ops ops;
	struct lpi_cancels cancels;
	struct lpi_op *op;
	struct lpi_cancel *cancel;
	uint64_t count;
	lpi_ops_init(&ops);
	lpi_cancels_init(&cancels);
	pthread_mutex_lock(&lapis->lock);
	lpi_ops_splice_back(&ops, &lapis->inbox);
	lpi_cancels_splice_back(&cancels, &lapis->cancels);
	/* To be woken by lapis_close() lasts: who turns after this must not wait either. */
	if (lapis->is_woken && !lapis->is_stopping) {
		lapis->is_woken = false;
		(void)!read(lapis->wake_fd, &count, sizeof(count));
	}
	pthread_mutex_unlock(&lapis->lock);
	lpi_ops_splice_back(&ops, &lapis->own_inbox);
	bool any = !lpi_ops_is_empty(&ops) || !lpi_cancels_is_empty(&cancels);
	while ((op = lpi_ops_pop_front(&ops)) != NULL)
		begin(op);
	while ((cancel = lpi_cancels_pop_front(&cancels)) != NULL) {
		cancel_op(lapis, cancel->id);
		free(cancel);
	}
	return any;
}

/* --- A turn ----------------------------------------------------------------------------------- */

/* The handle's time goes on by what has passed, but for what was more than max_ns. */
static void advance(struct lapis *lapis, uint64_t max_ns)
{
	uint64_t now = lpi_now(lapis);
	lapis->run_ns += LP_MIN(now - lapis->seen_ns, max_ns);
	lapis->seen_ns = now;
}

static void expire_all(struct lapis *lapis)
{
	struct lpi_op *op;
	while ((op = lpi_first_deadline(lapis)) != NULL && op->deadline_ns <= lapis->run_ns)
		expire(op);
	for (uint32_t i = 0; i < lapis->conn_cnt; i++) {
		struct lpi_link *conn = lapis->conns[i];
		bool coming =
			conn->state == LPI_STATE_CONNECTING || conn->state == LPI_STATE_GREETING;
		if (coming && conn->deadline_ns <= lapis->run_ns)
			lpi_link_expire(conn);
	}
}

static void send_all(struct lapis *lapis)
{
	lpi_route_waiting(lapis);
	for (uint32_t i = 0; i < lapis->conn_cnt; i++)
		lpi_link_send(lapis->conns[i]);
}

/* Everything that needs no waiting, but for the callers' sources. */
static int step(struct lapis *lapis)
{
	int ended = 0;
	do {
		lpi_route_waiting(lapis);
		ended += run_done(lapis);
	} while (take_inbox(lapis) || !lpi_ops_is_empty(&lapis->done));
	send_all(lapis);
	if (lpi_uploads_feed(lapis)) {
		/* Sources may submit, too. */
		(void)take_inbox(lapis);
		send_all(lapis);
	}
	advance(lapis, LPI_STEP_COUNTS_MAX);
	return ended;
}

/* When to look whether the handle's time has come to that: not later than it has. */
static uint64_t clock_ns(const struct lapis *lapis, uint64_t deadline_ns)
{
	uint64_t left_ns = deadline_ns - LP_MIN(deadline_ns, lapis->run_ns);
	return lapis->seen_ns + LP_MIN(left_ns, LPI_WAIT_COUNTS_MAX);
}

/* When there is something to do although nothing comes; UINT64_MAX: never. */
static uint64_t next_ns(const struct lapis *lapis)
{
	uint64_t next = UINT64_MAX;
	const struct lpi_op *op = lpi_first_deadline(lapis);
	uint64_t hungry_ns = lpi_uploads_wait_ns(lapis);
	if (!lpi_ops_is_empty(&lapis->done) || hungry_ns == 0)
		return 0;
	if (op != NULL)
		next = clock_ns(lapis, op->deadline_ns);
	if (hungry_ns != UINT64_MAX)
		next = LP_MIN(next, lapis->seen_ns + hungry_ns);
	LP_LIST_FOREACH (lpi_ops, &lapis->later, op)
		next = LP_MIN(next, op->later_ns);
	for (uint32_t i = 0; i < lapis->conn_cnt; i++) {
		const struct lpi_link *conn = lapis->conns[i];
		bool coming =
			conn->state == LPI_STATE_CONNECTING || conn->state == LPI_STATE_GREETING;
		if (coming)
			next = LP_MIN(next, clock_ns(lapis, conn->deadline_ns));
		if (lpi_ops_is_empty(&lapis->waiting))
			continue;
		/* Requests wait for the first to be tried again; any that is up will do. */
		if (conn->state == LPI_STATE_UP)
			return 0;
		if (i == 0 && conn->state == LPI_STATE_DOWN)
			next = LP_MIN(next, conn->retry_ns);
	}
	return next;
}

static int wait_ms(const struct lapis *lapis, int timeout_ms)
{
	uint64_t next = next_ns(lapis);
	if (next == UINT64_MAX || timeout_ms == 0)
		return timeout_ms;
	uint64_t now = lpi_now(lapis);
	uint64_t ms = next <= now ? 0 : (next - now + LP_NS_PER_MS - 1) / LP_NS_PER_MS;
	ms = LP_MIN(ms, UINT64_C(1000000));
	return timeout_ms < 0 ? (int)ms : LP_MIN((int)ms, timeout_ms);
}

/* So that lapis_fd() is readable then. It may be too early, never too late. */
static void set_timer(struct lapis *lapis, uint64_t next)
{
	if (lapis->has_thread || next == UINT64_MAX ||
	    (lapis->timer_ns != 0 && lapis->timer_ns <= next))
		return;
	const struct itimerspec spec = {.it_value = {.tv_sec = (time_t)(next / LP_NS_PER_S),
						     .tv_nsec = (long)(next % LP_NS_PER_S)}};
	if (timerfd_settime(lapis->timer_fd, TFD_TIMER_ABSTIME, &spec, NULL) == 0)
		lapis->timer_ns = next;
}

/* The turn is over: from now on it is the caller who waits. */
static void set_wait(struct lapis *lapis)
{
	uint64_t next = LP_MAX(next_ns(lapis), UINT64_C(1));
	lapis->wait_ns = next - LP_MIN(next, lapis->seen_ns);
	set_timer(lapis, next);
}

static void take_event(struct lapis *lapis, const struct epoll_event *event)
{
	uint64_t count;
	if (event->data.ptr == &lapis->timer_fd) {
		lapis->timer_ns = 0;
		(void)!read(lapis->timer_fd, &count, sizeof(count));
	} else if (event->data.ptr != &lapis->wake_fd) {
		lpi_link_event(event->data.ptr, event->events);
	}
}

static int turn(struct lapis *lapis, int timeout_ms)
{
	struct epoll_event events[EVENTS_MAX];
	const struct lapis *before = lpi_set_running(lapis);
	advance(lapis, lapis->wait_ns);
	int ended = step(lapis);
	int ms = ended > 0 ? 0 : wait_ms(lapis, timeout_ms);
	int cnt = epoll_wait(lapis->epoll_fd, events, EVENTS_MAX, ms);
	advance(lapis, ms < 0 ? UINT64_MAX : (uint64_t)ms * LP_NS_PER_MS);
	/* A signal: the caller may want to know. */
	for (int i = 0; i < cnt; i++)
		take_event(lapis, &events[i]);
	expire_all(lapis);
	ended += step(lapis);
	set_wait(lapis);
	(void)lpi_set_running(before);
	return ended;
}

int lapis_turn(struct lapis *lapis, int timeout_ms)
{
	if (lpi_is_running(lapis))
		return -EDEADLK;
	if (lapis->has_thread)
		return -EBUSY;
	return turn(lapis, timeout_ms);
}

int lapis_fd(const struct lapis *lapis)
{
	return lapis->epoll_fd;
}

static void *thread_main(void *arg)
{
	struct lapis *lapis = arg;
	bool stops = false;
	while (!stops) {
		(void)turn(lapis, -1);
		pthread_mutex_lock(&lapis->lock);
		stops = lapis->is_stopping;
		pthread_mutex_unlock(&lapis->lock);
	}
	return NULL;
}

/* --- From birth to death ---------------------------------------------------------------------- */

static int copy_options(const struct lapis_options *from, struct lapis_options *ret)
{
	*ret = (struct lapis_options){.size = sizeof(*ret)};
	if (from != NULL && lpi_copy_struct(from, sizeof(from->size), sizeof(*ret), ret) < 0)
		return -EINVAL;
	if (ret->crc > LAPIS_CRC_OFF || (ret->flags & ~(uint32_t)(LAPIS_THREAD | LAPIS_WAIT)) != 0)
		return -EINVAL;
	if (ret->requests_max == 0)
		ret->requests_max = 4096;
	if (ret->timeout_ms == 0)
		ret->timeout_ms = 30000;
	if (ret->reconnect_ms == 0)
		ret->reconnect_ms = 10000;
	if (ret->connect_ms == 0)
		ret->connect_ms = 5000;
	return 0;
}

static int watch(struct lapis *lapis, int *fd)
{
	struct epoll_event event = {.events = EPOLLIN, .data.ptr = fd};
	if (*fd < 0 || epoll_ctl(lapis->epoll_fd, EPOLL_CTL_ADD, *fd, &event) < 0)
		return -errno;
	return 0;
}

static int open_fds(struct lapis *lapis)
{
	lapis->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (lapis->epoll_fd < 0)
		return -errno;
	lapis->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	int err = watch(lapis, &lapis->wake_fd);
	if (err < 0)
		return err;
	lapis->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	return watch(lapis, &lapis->timer_fd);
}

static void init(struct lapis *lapis)
{
	lapis->clock = lp_clock_system();
	lapis->seen_ns = lpi_now(lapis);
	lapis->run_ns = 1;
	lapis->epoll_fd = -1;
	lapis->wake_fd = -1;
	lapis->timer_fd = -1;
	lpi_ops_init(&lapis->inbox);
	lpi_cancels_init(&lapis->cancels);
	lpi_all_init(&lapis->all);
	lpi_ops_init(&lapis->waiting);
	lpi_ops_init(&lapis->later);
	lpi_ops_init(&lapis->done);
	lpi_ops_init(&lapis->hungry);
	lpi_ops_init(&lapis->own_inbox);
	lpi_usual_init(&lapis->usual);
	lpi_deadlines_init(&lapis->deadlines);
	const char *name = lapis->options.name;
	(void)snprintf(lapis->name, sizeof(lapis->name), "%s",
		       name != NULL ? name : program_invocation_short_name);
}

static void free_handle(struct lapis *lapis)
{
	for (uint32_t i = 0; i < lapis->conn_cnt; i++)
		lpi_link_free(lapis->conns[i]);
	int fds[] = {lapis->timer_fd, lapis->wake_fd, lapis->epoll_fd};
	for (size_t i = 0; i < LP_ARRAY_SIZE(fds); i++) {
		if (fds[i] >= 0)
			(void)close(fds[i]);
	}
	lpi_ops_free_spare(lapis);
	pthread_mutex_destroy(&lapis->lock);
	free(lapis);
}

/* Signals are for the caller's threads, who could not say which of them takes one otherwise. But
 * those that this thread brings on itself, in a callback, do what they would do elsewhere. */
static int start_thread(struct lapis *lapis)
{
	static const int own[] = {SIGSEGV, SIGBUS, SIGFPE,  SIGILL,
				  SIGTRAP, SIGSYS, SIGABRT, SIGPIPE};
	sigset_t blocked;
	sigset_t before;
	(void)sigfillset(&blocked);
	for (size_t i = 0; i < LP_ARRAY_SIZE(own); i++)
		(void)sigdelset(&blocked, own[i]);
	/* Who opens it may have blocked more. */
	int err = pthread_sigmask(SIG_BLOCK, &blocked, &before);
	LP_ASSERT(err == 0);
	int created = pthread_create(&lapis->thread, NULL, thread_main, lapis);
	err = pthread_sigmask(SIG_SETMASK, &before, NULL);
	LP_ASSERT(err == 0);
	return -created;
}

static int open_rest(struct lapis *lapis)
{
	int err = lpi_address_parse(lapis, lapis->options.address);
	if (err == 0)
		err = open_fds(lapis);
	if (err == 0)
		err = lpi_link_new(lapis, LPI_ANY_SHARD, &lapis->conns[0]);
	if (err < 0)
		return err;
	lapis->conn_cnt = 1;
	lapis->has_thread = (lapis->options.flags & LAPIS_THREAD) != 0;
	if (lapis->has_thread)
		err = start_thread(lapis);
	/* The caller's strings are his again. */
	lapis->options.address = NULL;
	lapis->options.name = NULL;
	return err;
}

int lapis_open(const struct lapis_options *options, struct lapis **ret_lapis)
{
	struct lapis *lapis = calloc(1, sizeof(*lapis));
	if (lapis == NULL)
		return lpi_set_error(-ENOMEM, NULL);
	int err = copy_options(options, &lapis->options);
	if (err == 0)
		err = -pthread_mutex_init(&lapis->lock, NULL);
	if (err < 0) {
		free(lapis);
		return lpi_set_error(err, "an option makes no sense");
	}
	init(lapis);
	err = open_rest(lapis);
	if (err < 0) {
		char text[LPI_TEXT_MAX];
		(void)snprintf(text, sizeof(text), "%s: %s", lapis->address_text,
			       err == -EINVAL         ? "no address (unix:PATH or tcp:HOST:PORT)"
			       : err == -ENAMETOOLONG ? "the path of a socket has at most 107 bytes"
						      : lp_strerror(err));
		free_handle(lapis);
		return lpi_set_error(err, text);
	}
	*ret_lapis = lapis;
	return 0;
}

/* Ends everything. An upload ends when its parts have. */
static void end_everything(struct lapis *lapis)
{
	struct lpi_op *op;
	struct lpi_op *next;
	(void)take_inbox(lapis);
	while (!lpi_all_is_empty(&lapis->all)) {
		LP_LIST_FOREACH_SAFE (lpi_all, &lapis->all, op, next)
			lpi_end_early(op, -ECANCELED, "canceled by the end of the handle");
		(void)run_done(lapis);
	}
	for (uint32_t i = 0; i < lapis->conn_cnt; i++)
		lpi_link_fail(lapis->conns[i], -ECANCELED, "closed");
}

void lapis_close(struct lapis *lapis)
{
	if (lapis == NULL)
		return;
	LP_ASSERT(!lpi_is_running(lapis));
	pthread_mutex_lock(&lapis->lock);
	lapis->is_stopping = true;
	wake(lapis);
	pthread_mutex_unlock(&lapis->lock);
	if (lapis->has_thread)
		(void)pthread_join(lapis->thread, NULL);
	const struct lapis *before = lpi_set_running(lapis);
	end_everything(lapis);
	(void)lpi_set_running(before);
	free_handle(lapis);
}

void lapis_read_stats(const struct lapis *lapis, struct lapis_stats *ret_stats)
{
	const struct lpi_counters *counters = &lapis->counters;
	struct lapis_stats stats = {
		.requests = atomic_load_explicit(&counters->requests, memory_order_relaxed),
		.messages_sent = atomic_load_explicit(&counters->sent, memory_order_relaxed),
		.messages_received =
			atomic_load_explicit(&counters->received, memory_order_relaxed),
		.sends = atomic_load_explicit(&counters->sends, memory_order_relaxed),
		.receives = atomic_load_explicit(&counters->receives, memory_order_relaxed),
		.connects = atomic_load_explicit(&counters->connects, memory_order_relaxed),
		.retries = atomic_load_explicit(&counters->retries, memory_order_relaxed),
		.shard_hits = atomic_load_explicit(&counters->hits, memory_order_relaxed),
		.shard_misses = atomic_load_explicit(&counters->misses, memory_order_relaxed),
	};
	stats.size = LP_MIN(ret_stats->size, sizeof(stats));
	memcpy(ret_stats, &stats, stats.size);
}
