/* SPDX-License-Identifier: Apache-2.0 */
/* What a message between two reactors costs.
 *
 *   busy    two reactors on two threads bounce a fixed number of messages between each other:
 *           messages delivered per second, both ways together; target 5 million.
 *   wake    one message goes back and forth, each side asleep when it arrives: time per wake,
 *           beside the same ping-pong made of a bare MSG_RING on rings set up like ours, which is
 *           what we use (target: at most 1.2 x), and of a bare eventfd with blocking read and
 *           write, which is cheaper but cannot wait for I/O at the same time.
 *
 * The wakes are measured with the two threads pinned to different cores, as shards are, and both on
 * one core. Rounds of the three kinds alternate, so that noise meets all; medians are printed. */
#include <liburing.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/error.h"
#include "base/loop/reactor.h"

#define BUSY_INFLIGHT 4096u
#define BUSY_TOTAL    20000000u
#define WAKE_TRIPS    20000u
#define ROUNDS        7u
#define TARGET_RATE   5e6
#define TARGET_RATIO  1.2

static bool same_core;

/* The n-th thread of a pair goes to its core; on a machine with one core all do. */
static void pin(int n)
{
	cpu_set_t set;
	long cores = sysconf(_SC_NPROCESSORS_ONLN);
	CPU_ZERO(&set);
	CPU_SET((size_t)(same_core || cores < 2 ? 0 : n), &set);
	/* Not allowed to: then the scheduler decides, and the figures are what they are. */
	(void)pthread_setaffinity_np(pthread_self(), sizeof(set), &set);
}

static double seconds_since(uint64_t start_ns)
{
	return (double)(lp_clock_mono_ns(lp_clock_system()) - start_ns) / 1e9;
}

/* --- Messages between reactors -----------------------------------------------------------------
 */

struct ball {
	struct lp_msg msg;
	struct side *from; /* who sent it last */
};

struct side {
	struct lp_reactor *reactor;
	struct side *other;
	pthread_t thread;
	int core;
	uint64_t received;
	uint64_t stop_at; /* stops both after so many */
};

static struct lp_reactor *new_reactor(void)
{
	const struct lp_reactor_options options = {.name = "bench", .ring = true};
	struct lp_reactor *reactor = NULL;
	int err = lp_reactor_new(&options, &reactor);
	if (err < 0) {
		char why[512];
		(void)lp_reactor_explain(err, why, sizeof(why));
		(void)fprintf(stderr, "mailbox_bench: %s\n", why);
		exit(1); /* NOLINT(concurrency-mt-unsafe): one thread so far */
	}
	return reactor;
}

static void ball_deliver(struct lp_reactor *to, struct lp_msg *msg)
{
	struct ball *ball = LP_CONTAINER_OF(msg, struct ball, msg);
	struct side *me = ball->from->other;
	me->received++;
	if (me->received >= me->stop_at) {
		/* The balls rest where they are. */
		if (me->received == me->stop_at) {
			lp_reactor_stop(to);
			lp_reactor_stop(me->other->reactor);
		}
		return;
	}
	ball->from = me;
	lp_reactor_send(to, me->other->reactor, msg);
}

static pthread_barrier_t side_barrier;

static void *side_main(void *arg)
{
	struct side *side = arg;
	pin(side->core);
	if (lp_reactor_start(side->reactor) < 0)
		return NULL;
	lp_reactor_run(side->reactor);
	/* What is still on its way is delivered, and rests: first all is sent, then received. */
	side->stop_at = 0;
	(void)lp_reactor_turn(side->reactor, false);
	(void)pthread_barrier_wait(&side_barrier);
	while (lp_reactor_turn(side->reactor, false) > 0)
		continue;
	return NULL;
}

/* Returns messages per second. */
static double play(uint32_t ball_cnt, uint64_t total)
{
	static struct ball balls[BUSY_INFLIGHT];
	struct side a = {.reactor = new_reactor(), .stop_at = total / 2};
	struct side b = {.reactor = new_reactor(), .stop_at = UINT64_MAX, .other = &a};
	a.other = &b;
	for (uint32_t i = 0; i < ball_cnt; i++) {
		balls[i] = (struct ball){.msg.deliver = ball_deliver, .from = &b};
		lp_reactor_post(a.reactor, &balls[i].msg);
	}
	uint64_t start_ns = lp_clock_mono_ns(lp_clock_system());
	if (pthread_create(&b.thread, NULL, side_main, &b) != 0 ||
	    pthread_create(&a.thread, NULL, side_main, &a) != 0)
		exit(1); /* NOLINT(concurrency-mt-unsafe): nothing to clean up */
	(void)pthread_join(a.thread, NULL);
	(void)pthread_join(b.thread, NULL);
	double seconds = seconds_since(start_ns);
	double rate = (double)(a.received + b.received) / seconds;
	lp_reactor_free(a.reactor);
	lp_reactor_free(b.reactor);
	return rate;
}

/* --- The bare mechanisms ---------------------------------------------------------------------- */

struct bare_side {
	pthread_t thread;
	int core;
	int wait_fd; /* eventfd */
	int wake_fd;
	struct io_uring ring;
	struct bare_side *other;
	pthread_barrier_t *barrier;
};

static void *eventfd_main(void *arg)
{
	struct bare_side *side = arg;
	uint64_t value = 0;
	pin(side->core);
	for (uint32_t i = 0; i < WAKE_TRIPS; i++) {
		if (read(side->wait_fd, &value, sizeof(value)) != sizeof(value))
			return NULL;
		value = 1;
		if (write(side->wake_fd, &value, sizeof(value)) != sizeof(value))
			return NULL;
	}
	return NULL;
}

static void prep_wake(struct bare_side *side)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&side->ring);
	if (sqe == NULL)
		exit(1); /* NOLINT(concurrency-mt-unsafe): nothing to clean up */
	io_uring_prep_msg_ring(sqe, side->other->ring.ring_fd, 0, 1, 0);
	io_uring_sqe_set_flags(sqe, IOSQE_CQE_SKIP_SUCCESS);
}

static void *msg_ring_main(void *arg)
{
	struct bare_side *side = arg;
	pin(side->core);
	struct io_uring_params params = {.flags = IORING_SETUP_SINGLE_ISSUER |
						  IORING_SETUP_DEFER_TASKRUN};
	if (io_uring_queue_init_params(64, &side->ring, &params) < 0)
		exit(1); /* NOLINT(concurrency-mt-unsafe): nothing to clean up */
	(void)io_uring_register_ring_fd(&side->ring);
	(void)pthread_barrier_wait(side->barrier);
	struct io_uring_cqe *cqe;
	bool serve = side->wait_fd == 0;
	for (uint32_t i = 0; i < WAKE_TRIPS; i++) {
		if (serve || i > 0)
			prep_wake(side);
		/* One call sends and sleeps, as our turn does. */
		if (io_uring_submit_and_wait(&side->ring, 1) < 0 ||
		    io_uring_peek_cqe(&side->ring, &cqe) < 0)
			break;
		io_uring_cqe_seen(&side->ring, cqe);
	}
	if (!serve) { /* the last answer */
		prep_wake(side);
		(void)io_uring_submit(&side->ring);
	}
	(void)pthread_barrier_wait(side->barrier);
	io_uring_queue_exit(&side->ring);
	return NULL;
}

/* Returns wakes per second. */
static double play_bare(void *(*body)(void *))
{
	int x = eventfd(0, EFD_CLOEXEC);
	int y = eventfd(0, EFD_CLOEXEC);
	pthread_barrier_t barrier;
	(void)pthread_barrier_init(&barrier, NULL, 2);
	struct bare_side a = {.wait_fd = x, .wake_fd = y, .barrier = &barrier};
	struct bare_side b = {.wait_fd = y, .wake_fd = x, .barrier = &barrier};
	a.other = &b;
	b.other = &a;
	uint64_t one = 1;
	if (body == eventfd_main && write(x, &one, sizeof(one)) != sizeof(one))
		return 0;
	if (body == msg_ring_main)
		a.wait_fd = 0; /* this side serves */
	uint64_t start_ns = lp_clock_mono_ns(lp_clock_system());
	if (pthread_create(&a.thread, NULL, body, &a) != 0 ||
	    pthread_create(&b.thread, NULL, body, &b) != 0)
		exit(1); /* NOLINT(concurrency-mt-unsafe): nothing to clean up */
	(void)pthread_join(a.thread, NULL);
	(void)pthread_join(b.thread, NULL);
	double rate = 2.0 * WAKE_TRIPS / seconds_since(start_ns);
	(void)pthread_barrier_destroy(&barrier);
	(void)close(x);
	(void)close(y);
	return rate;
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a;
	double y = *(const double *)b;
	return (x > y) - (x < y);
}

static double median(double *values)
{
	qsort(values, ROUNDS, sizeof(*values), compare);
	return values[ROUNDS / 2];
}

/* Ours against the bare mechanisms; returns the ratio to MSG_RING. */
static double compare_wakes(const char *where)
{
	double wake[3][ROUNDS];
	for (uint32_t i = 0; i < ROUNDS; i++) {
		wake[0][i] = 1e9 / play(1, UINT64_C(2) * WAKE_TRIPS);
		wake[1][i] = 1e9 / play_bare(eventfd_main);
		wake[2][i] = 1e9 / play_bare(msg_ring_main);
	}
	double ours_ns = median(wake[0]);
	double eventfd_ns = median(wake[1]);
	double msg_ring_ns = median(wake[2]);
	double ratio = ours_ns / msg_ring_ns;
	(void)printf("wake of a sleeping reactor, %s: %.0f ns; bare MSG_RING %.0f ns (ratio %.2f), "
		     "bare eventfd %.0f ns (ratio %.2f)\n",
		     where, ours_ns, msg_ring_ns, ratio, eventfd_ns, ours_ns / eventfd_ns);
	return ratio;
}

int main(void)
{
	double busy[ROUNDS];
	(void)pthread_barrier_init(&side_barrier, NULL, 2);
	for (uint32_t i = 0; i < ROUNDS; i++)
		busy[i] = play(BUSY_INFLIGHT, BUSY_TOTAL);
	double rate = median(busy);
	(void)printf("messages between two busy reactors: %.1f million/s (target >= %.0f)\n",
		     rate / 1e6, TARGET_RATE / 1e6);
	double ratio = compare_wakes("on another core");
	same_core = true;
	(void)compare_wakes("on the same core");
	bool pass = rate >= TARGET_RATE && ratio <= TARGET_RATIO;
	(void)printf("%s: rate, and ratio on another core <= %.1f\n", pass ? "PASS" : "FAIL",
		     TARGET_RATIO);
	return pass ? 0 : 1;
}
