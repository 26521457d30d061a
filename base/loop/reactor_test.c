/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: the promises of base/loop/reactor.h: nothing completes inside a submit (R1), order of
 * messages and timers, no lost wake-up, budgets, registered files and buffers, clean stop; and that
 * simulated time jumps.
 * Method: real rings and threads; a pipe stands for a device. */
#include "base/testing/test.h"

#include <fcntl.h>
#include <liburing.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/loop/reactor.h"
#include "base/prng.h"

static struct lp_reactor *ring_reactor(void)
{
	const struct lp_reactor_options options = {
		.name = "test", .ring = true, .entries = 8, .files_max = 2, .buffers_max = 2};
	struct lp_reactor *reactor = NULL;
	lp_test_ok(lp_reactor_new(&options, &reactor));
	lp_test_ok(lp_reactor_start(reactor));
	return reactor;
}

/* --- Ring operations -------------------------------------------------------------------------- */

struct nop {
	struct lp_io io;
	int *done_cnt;
	bool inside_submit;
};

static bool submitting;

static void nop_done(struct lp_io *io)
{
	struct nop *nop = LP_CONTAINER_OF(io, struct nop, io);
	assert_false(submitting); /* R1 */
	assert_true(lp_io_is_idle(io));
	assert_int_equal(io->result, 0);
	(*nop->done_cnt)++;
}

static void test_many_nops_through_a_small_ring(void **state)
{
	(void)state;
	struct lp_reactor *reactor = ring_reactor();
	static struct nop nops[1000]; /* entries is 8: the queue fills again and again */
	int done_cnt = 0;
	submitting = true;
	for (size_t i = 0; i < LP_ARRAY_SIZE(nops); i++) {
		nops[i] = (struct nop){.io.complete = nop_done, .done_cnt = &done_cnt};
		io_uring_prep_nop(lp_reactor_sqe(reactor, &nops[i].io));
	}
	submitting = false;
	assert_int_equal(done_cnt, 0);
	lp_test_ok(lp_reactor_drain(reactor, LP_NS_PER_S));
	assert_int_equal(done_cnt, LP_ARRAY_SIZE(nops));
	/* Far fewer system calls than operations. */
	assert_true(lp_reactor_stats(reactor)->enters < 300);
	lp_reactor_free(reactor);
}

static void waited_timer(struct lp_timer *timer)
{
	(void)timer;
}

/* Work of a thread is not waiting; its sleep is. */
static void test_waited(void **state)
{
	(void)state;
	struct lp_reactor *reactor = ring_reactor();
	struct lp_timer timer = {.fire = waited_timer};
	const struct lp_clock *clock = lp_reactor_clock(reactor);
	uint64_t began_ns = lp_clock_mono_ns(clock);
	uint64_t before_ns = lp_reactor_waited_ns(reactor);
	while (lp_clock_mono_ns(clock) < began_ns + 5 * LP_NS_PER_MS)
		(void)lp_reactor_turn(reactor, false);
	assert_int_equal(lp_reactor_waited_ns(reactor), before_ns);
	lp_timer_start(reactor, &timer, lp_clock_mono_ns(clock) + 5 * LP_NS_PER_MS);
	while (lp_timer_is_armed(&timer))
		(void)lp_reactor_turn(reactor, true);
	assert_true(lp_reactor_waited_ns(reactor) >= before_ns + 4 * LP_NS_PER_MS);
	assert_true(lp_reactor_waited_ns(reactor) <= lp_reactor_now_ns(reactor) - began_ns);
	lp_reactor_free(reactor);
}

static void test_drain_times_out(void **state)
{
	(void)state;
	struct lp_reactor *reactor = ring_reactor();
	int fds[2];
	char byte = 0;
	int done_cnt = 0;
	struct nop read_op = {.io.complete = nop_done, .done_cnt = &done_cnt};
	assert_int_equal(pipe(fds), 0);
	io_uring_prep_read(lp_reactor_sqe(reactor, &read_op.io), fds[0], &byte, 1, 0);
	lp_test_err(-ETIMEDOUT, lp_reactor_drain(reactor, 10 * LP_NS_PER_MS));
	assert_int_equal(lp_reactor_inflight(reactor), 1);
	(void)close(fds[1]); /* the read ends with 0 */
	lp_test_ok(lp_reactor_drain(reactor, LP_NS_PER_S));
	assert_int_equal(done_cnt, 1);
	(void)close(fds[0]);
	lp_reactor_free(reactor);
}

static void test_registered_files_and_buffers(void **state)
{
	(void)state;
	struct lp_reactor *reactor = ring_reactor();
	int fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	uint32_t slots[3];
	assert_true(fd >= 0);
	lp_test_ok(lp_reactor_file_add(reactor, fd, &slots[0]));
	lp_test_ok(lp_reactor_file_add(reactor, fd, &slots[1]));
	lp_test_err(-ENFILE, lp_reactor_file_add(reactor, fd, &slots[2]));
	lp_reactor_file_remove(reactor, slots[0]);
	lp_test_ok(lp_reactor_file_add(reactor, fd, &slots[2]));
	assert_int_equal(slots[2], slots[0]);

	uint8_t *region = aligned_alloc(4096, 16384);
	assert_non_null(region);
	lp_test_ok(lp_reactor_buffer_add(reactor, region, 16384));
	int idx = lp_reactor_buffer_find(reactor, region + 4096, 12288);
	assert_true(idx >= 0);
	assert_int_equal(lp_reactor_buffer_find(reactor, region + 4096, 12289), -1);
	assert_int_equal(lp_reactor_buffer_find(reactor, region - 1, 1), -1);

	int done_cnt = 0;
	struct nop io = {.io.complete = nop_done, .done_cnt = &done_cnt};
	struct io_uring_sqe *sqe = lp_reactor_sqe(reactor, &io.io);
	io_uring_prep_read_fixed(sqe, (int)slots[1], region, 4096, 0, idx); /* end of file: 0 */
	io_uring_sqe_set_flags(sqe, IOSQE_FIXED_FILE);
	lp_test_ok(lp_reactor_drain(reactor, LP_NS_PER_S));
	assert_int_equal(done_cnt, 1);
	lp_reactor_buffer_remove(reactor, region);
	assert_int_equal(lp_reactor_buffer_find(reactor, region, 1), -1);
	free(region);
	(void)close(fd);
	lp_reactor_free(reactor);
}

static void test_known_opcodes(void **state)
{
	(void)state;
	const struct lp_reactor_options options = {.name = "test"};
	struct lp_reactor *without = NULL;
	struct lp_reactor *reactor = ring_reactor();
	assert_true(lp_reactor_has_opcode(reactor, IORING_OP_READ_FIXED));
	assert_true(lp_reactor_has_opcode(reactor, IORING_OP_SENDMSG_ZC));
	assert_false(lp_reactor_has_opcode(reactor, UINT8_MAX));
	lp_test_ok(lp_reactor_new(&options, &without));
	assert_false(lp_reactor_has_opcode(without, IORING_OP_NOP));
	lp_reactor_free(without);
	lp_reactor_free(reactor);
}

/* --- Tasks and timers ---------------------------------------------------------------------------
 */

struct recorder {
	struct lp_reactor *reactor;
	char text[64];
};

static struct recorder rec;

static void record(char c)
{
	size_t len = strlen(rec.text);
	assert_true(len + 1 < sizeof(rec.text));
	rec.text[len] = c;
	rec.text[len + 1] = '\0';
}

struct letter_task {
	struct lp_task task;
	struct letter_task *then;
	char letter;
};

static void letter_run(struct lp_task *task)
{
	struct letter_task *self = LP_CONTAINER_OF(task, struct letter_task, task);
	record(self->letter);
	if (self->then != NULL)
		lp_task_queue(rec.reactor, &self->then->task);
}

static void test_task_queued_by_task_waits_a_turn(void **state)
{
	(void)state;
	rec = (struct recorder){.reactor = ring_reactor()};
	struct letter_task c = {{.run = letter_run}, NULL, 'c'};
	struct letter_task a = {{.run = letter_run}, &c, 'a'};
	struct letter_task b = {{.run = letter_run}, NULL, 'b'};
	struct letter_task d = {{.run = letter_run}, NULL, 'd'};
	lp_task_queue(rec.reactor, &a.task);
	lp_task_queue(rec.reactor, &d.task);
	lp_task_queue(rec.reactor, &b.task);
	lp_task_cancel(&d.task);
	lp_task_cancel(&d.task); /* twice is fine */
	assert_int_equal(lp_reactor_turn(rec.reactor, true), 2);
	assert_string_equal(rec.text, "ab");
	assert_int_equal(lp_reactor_turn(rec.reactor, true), 1);
	assert_string_equal(rec.text, "abc");
	assert_int_equal(lp_reactor_turn(rec.reactor, false), 0);
	lp_reactor_free(rec.reactor);
}

struct letter_timer {
	struct lp_timer timer;
	uint64_t again_ns;
	char letter;
};

static void letter_fire(struct lp_timer *timer)
{
	struct letter_timer *self = LP_CONTAINER_OF(timer, struct letter_timer, timer);
	record(self->letter);
	if (self->again_ns != UINT64_MAX)
		lp_timer_start(rec.reactor, timer, lp_reactor_now_ns(rec.reactor) + self->again_ns);
}

static void test_timers_on_a_ring(void **state)
{
	(void)state;
	rec = (struct recorder){.reactor = ring_reactor()};
	uint64_t now_ns = lp_reactor_now_ns(rec.reactor);
	struct letter_timer a = {{.fire = letter_fire}, UINT64_MAX, 'a'};
	struct letter_timer b = {{.fire = letter_fire}, UINT64_MAX, 'b'};
	struct letter_timer c = {{.fire = letter_fire}, UINT64_MAX, 'c'};
	lp_timer_start(rec.reactor, &b.timer, now_ns + 4 * LP_NS_PER_MS);
	lp_timer_start(rec.reactor, &a.timer, now_ns + 20 * LP_NS_PER_MS);
	lp_timer_start(rec.reactor, &a.timer, now_ns + 2 * LP_NS_PER_MS); /* moved */
	lp_timer_start(rec.reactor, &c.timer, now_ns + 3 * LP_NS_PER_MS);
	lp_timer_stop(rec.reactor, &c.timer);
	lp_timer_stop(rec.reactor, &c.timer);
	while (strlen(rec.text) < 2)
		(void)lp_reactor_turn(rec.reactor, true);
	assert_string_equal(rec.text, "ab");
	assert_true(lp_clock_mono_ns(lp_clock_system()) >= now_ns + 4 * LP_NS_PER_MS);
	/* It slept for it. */
	assert_true(lp_reactor_stats(rec.reactor)->turns < 20);
	lp_reactor_free(rec.reactor);
}

static void test_timer_for_now_does_not_keep_the_turn(void **state)
{
	(void)state;
	rec = (struct recorder){.reactor = ring_reactor()};
	struct letter_timer a = {{.fire = letter_fire}, 0, 'a'};
	lp_timer_start(rec.reactor, &a.timer, 0);
	assert_int_equal(lp_reactor_turn(rec.reactor, true), 1);
	assert_int_equal(lp_reactor_turn(rec.reactor, true), 1);
	lp_timer_stop(rec.reactor, &a.timer);
	lp_reactor_free(rec.reactor);
}

/* --- Sources ---------------------------------------------------------------------------------- */

struct test_source {
	struct lp_source source;
	uint32_t todo;
	uint32_t flush_cnt;
	uint32_t polled_max;
};

static uint32_t source_poll(struct lp_source *source, uint32_t budget)
{
	struct test_source *self = LP_CONTAINER_OF(source, struct test_source, source);
	uint32_t cnt = LP_MIN(self->todo, budget);
	self->todo -= cnt;
	self->polled_max = LP_MAX(self->polled_max, cnt);
	return cnt;
}

static void source_flush(struct lp_source *source)
{
	LP_CONTAINER_OF(source, struct test_source, source)->flush_cnt++;
}

static void test_sources_share_the_turn(void **state)
{
	(void)state;
	struct lp_reactor *reactor = ring_reactor();
	struct test_source greedy = {.source = {.name = "greedy",
						.budget = 10,
						.poll = source_poll,
						.flush = source_flush},
				     .todo = 1000};
	struct test_source modest = greedy;
	modest.todo = 3;
	lp_source_add(reactor, &greedy.source);
	lp_source_add(reactor, &modest.source);
	assert_int_equal(lp_reactor_turn(reactor, true), 13);
	assert_int_equal(modest.todo, 0);
	assert_int_equal(greedy.todo, 990);
	assert_int_equal(greedy.flush_cnt, 1);
	lp_source_remove(reactor, &modest.source);
	while (greedy.todo > 0)
		(void)lp_reactor_turn(reactor, true);
	assert_int_equal(greedy.polled_max, 10);
	lp_source_remove(reactor, &greedy.source);
	lp_reactor_free(reactor);
}

/* --- Messages between threads ----------------------------------------------------------------- */

#define PEERS      3
#define MESSAGES   20000
#define STORMS_MAX 100u

struct counted_msg {
	struct lp_msg msg;
	uint32_t sender;
	uint32_t number;
};

struct receiver {
	struct lp_reactor *reactor;
	uint32_t next[PEERS + 1];
	uint32_t total;
};

struct sender {
	pthread_t thread;
	uint32_t id;
	bool posts; /* without a reactor of its own */
	struct counted_msg *msgs;
};

static struct receiver receiver;

static void counted_deliver(struct lp_reactor *to, struct lp_msg *msg)
{
	struct counted_msg *self = LP_CONTAINER_OF(msg, struct counted_msg, msg);
	assert_ptr_equal(to, receiver.reactor);
	assert_true(lp_reactor_is_mine(to));
	assert_int_equal(self->number, receiver.next[self->sender]); /* in order, none twice */
	receiver.next[self->sender]++;
	receiver.total++;
}

static void sender_pause(struct lp_prng *prng)
{
	/* Long enough, now and then, for the receiver to fall asleep. */
	if (lp_prng_chance(prng, 1, 200))
		(void)usleep(50);
}

static void *sender_main(void *arg)
{
	struct sender *self = arg;
	struct lp_reactor *reactor = NULL;
	struct lp_prng prng;
	lp_prng_init(&prng, self->id);
	if (!self->posts)
		reactor = ring_reactor();
	for (uint32_t i = 0; i < MESSAGES; i++) {
		self->msgs[i] = (struct counted_msg){{.deliver = counted_deliver}, self->id, i};
		if (self->posts)
			lp_reactor_post(receiver.reactor, &self->msgs[i].msg);
		else
			lp_reactor_send(reactor, receiver.reactor, &self->msgs[i].msg);
		if (reactor != NULL && lp_prng_chance(&prng, 1, 7))
			(void)lp_reactor_turn(reactor, false);
		sender_pause(&prng);
	}
	if (reactor != NULL) {
		(void)lp_reactor_turn(reactor, false);
		lp_reactor_free(reactor);
	}
	return NULL;
}

/* Returns how often the receiver slept. */
static uint64_t storm(void)
{
	receiver = (struct receiver){.reactor = ring_reactor()};
	struct sender senders[PEERS + 1] = {0};
	for (uint32_t i = 0; i <= PEERS; i++) {
		senders[i] = (struct sender){.id = i, .posts = i == PEERS};
		senders[i].msgs = calloc(MESSAGES, sizeof(*senders[i].msgs));
		assert_non_null(senders[i].msgs);
		assert_int_equal(pthread_create(&senders[i].thread, NULL, sender_main, &senders[i]),
				 0);
	}
	/* A lost wake-up would leave this loop asleep: the test's time limit would show it. */
	while (receiver.total < (PEERS + 1) * MESSAGES)
		(void)lp_reactor_turn(receiver.reactor, true);
	for (uint32_t i = 0; i <= PEERS; i++) {
		assert_int_equal(pthread_join(senders[i].thread, NULL), 0);
		assert_int_equal(receiver.next[i], MESSAGES);
		free(senders[i].msgs);
	}
	uint64_t sleeps = lp_reactor_stats(receiver.reactor)->sleeps;
	lp_reactor_free(receiver.reactor);
	return sleeps;
}

static void test_messages_from_many_threads(void **state)
{
	(void)state;
	uint32_t storms = 1;
	/* On a busy machine there may always be something to do, now and then. */
	while (storm() == 0)
		assert_true(++storms < STORMS_MAX);
}

static void test_message_to_oneself(void **state)
{
	(void)state;
	receiver = (struct receiver){.reactor = ring_reactor()};
	struct counted_msg msgs[2] = {{{.deliver = counted_deliver}, 0, 0},
				      {{.deliver = counted_deliver}, 0, 1}};
	lp_reactor_send(receiver.reactor, receiver.reactor, &msgs[0].msg);
	lp_reactor_send(receiver.reactor, receiver.reactor, &msgs[1].msg);
	assert_int_equal(receiver.total, 0);
	(void)lp_reactor_turn(receiver.reactor, true);
	assert_int_equal(receiver.total, 2);
	lp_reactor_free(receiver.reactor);
}

/* --- Running and stopping --------------------------------------------------------------------- */

static void *run_main(void *arg)
{
	struct lp_reactor *reactor = arg;
	lp_test_ok(lp_reactor_start(reactor));
	lp_reactor_run(reactor);
	return NULL;
}

static void test_stop_from_another_thread(void **state)
{
	(void)state;
	const struct lp_reactor_options options = {
		.name = "test", .ring = true, .spin_max_ns = 20 * LP_NS_PER_US};
	for (int round = 0; round < 20; round++) {
		struct lp_reactor *reactor = NULL;
		pthread_t thread;
		lp_test_ok(lp_reactor_new(&options, &reactor));
		assert_int_equal(pthread_create(&thread, NULL, run_main, reactor), 0);
		(void)usleep((useconds_t)(round * 100));
		lp_reactor_stop(reactor); /* before, while and after it falls asleep */
		assert_int_equal(pthread_join(thread, NULL), 0);
		assert_false(lp_reactor_is_mine(reactor));
		lp_reactor_free(reactor);
	}
}

static void take_nops(struct lp_reactor *reactor, struct nop *nops, int cnt)
{
	int done_cnt = 0;
	for (int i = 0; i < cnt; i++) {
		nops[i] = (struct nop){.io.complete = nop_done, .done_cnt = &done_cnt};
		io_uring_prep_nop(lp_reactor_sqe(reactor, &nops[i].io));
	}
	while (done_cnt < cnt)
		(void)lp_reactor_turn(reactor, true);
}

/* It spins for single events, not for crowds, and for single events again. */
static void test_spins_for_the_lonely(void **state)
{
	(void)state;
	enum { ROUNDS = 40, CROWD = 30 };
	const struct lp_reactor_options options = {.name = "test",
						   .ring = true,
						   .spin_max_ns = LP_NS_PER_S / 10,
						   .schedstat = "/dev/null"};
	struct lp_reactor *reactor = NULL;
	struct nop nops[CROWD];
	uint64_t won[4];
	lp_test_ok(lp_reactor_new(&options, &reactor));
	lp_test_ok(lp_reactor_start(reactor));
	for (unsigned phase = 0; phase < LP_ARRAY_SIZE(won); phase++) {
		for (unsigned i = 0; i < ROUNDS; i++)
			take_nops(reactor, nops, phase % 2 == 0 ? 1 : CROWD);
		won[phase] = lp_reactor_stats(reactor)->spins_won;
	}
	assert_int_equal(won[0], ROUNDS);
	assert_in_range(won[1] - won[0], 0, 3);
	assert_in_range(won[2] - won[1], ROUNDS / 4, ROUNDS);
	assert_in_range(won[3] - won[2], 0, 3);
	assert_true(lp_reactor_stats(reactor)->sleeps > ROUNDS);
	lp_reactor_free(reactor);
}

/* Events that others see come together are a crowd, too. */
static void test_does_not_spin_for_a_noted_crowd(void **state)
{
	(void)state;
	enum { ROUNDS = 40, CROWD = 30 };
	const struct lp_reactor_options options = {.name = "test",
						   .ring = true,
						   .spin_max_ns = LP_NS_PER_S / 10,
						   .schedstat = "/dev/null"};
	struct lp_reactor *reactor = NULL;
	struct nop nop;
	lp_test_ok(lp_reactor_new(&options, &reactor));
	lp_test_ok(lp_reactor_start(reactor));
	for (unsigned i = 0; i < ROUNDS; i++) {
		lp_reactor_note_events(reactor, CROWD);
		take_nops(reactor, &nop, 1);
	}
	assert_in_range(lp_reactor_stats(reactor)->spins_won, 0, 3);
	lp_reactor_free(reactor);
}

/* Nor does it spin if it waits for a processor itself, and has checked long enough to know. */
static void test_does_not_spin_where_it_must_wait(void **state)
{
	(void)state;
	enum { ROUNDS = 40 };
	char path[] = "/tmp/lapis-reactor-XXXXXX";
	const struct lp_reactor_options options = {
		.name = "test", .ring = true, .spin_max_ns = LP_NS_PER_S / 10, .schedstat = path};
	struct lp_reactor *reactor = NULL;
	struct nop nop;
	int fd = mkstemp(path);
	assert_true(fd >= 0);
	lp_test_ok(lp_reactor_new(&options, &reactor));
	lp_test_ok(lp_reactor_start(reactor));
	take_nops(reactor, &nop, 1);
	assert_int_equal(lp_reactor_stats(reactor)->spins_won, 1);
	assert_int_equal(dprintf(fd, "1 99000000000 1\n"), 16);
	(void)usleep(110 * 1000);
	take_nops(reactor, &nop, 1); /* its turn began before */
	uint64_t won = lp_reactor_stats(reactor)->spins_won;
	for (unsigned i = 0; i < ROUNDS; i++)
		take_nops(reactor, &nop, 1);
	assert_int_equal(lp_reactor_stats(reactor)->spins_won, won);
	lp_reactor_free(reactor);
	assert_int_equal(close(fd), 0);
	assert_int_equal(unlink(path), 0);
}

struct looker {
	struct lp_source source;
	struct lp_task task;
	struct nop nop;
	struct lp_reactor *reactor;
	unsigned finds_at; /* the look that finds work; 0: none does */
	unsigned look_cnt;
	unsigned rest_cnt;
	int found_cnt;
	int done_cnt;
};

static void found_run(struct lp_task *task)
{
	LP_CONTAINER_OF(task, struct looker, task)->found_cnt++;
}

static bool looker_look(struct lp_source *source)
{
	struct looker *looker = LP_CONTAINER_OF(source, struct looker, source);
	if (++looker->look_cnt != looker->finds_at)
		return false;
	lp_task_queue(looker->reactor, &looker->task);
	return true;
}

static void looker_rest(struct lp_source *source)
{
	struct looker *looker = LP_CONTAINER_OF(source, struct looker, source);
	looker->rest_cnt++;
	looker->nop = (struct nop){.io.complete = nop_done, .done_cnt = &looker->done_cnt};
	io_uring_prep_nop(lp_reactor_sqe(looker->reactor, &looker->nop.io));
}

/* A source is looked at while the reactor spins, and ends the spin. It is told before the sleep,
 * and the event that it prepares then ends the sleep. */
static void test_looks_at_sources_before_it_sleeps(void **state)
{
	(void)state;
	const struct lp_reactor_options options = {.name = "test",
						   .ring = true,
						   .spin_max_ns = LP_NS_PER_S / 10,
						   .schedstat = "/dev/null"};
	struct looker looker = {.source = {.look = looker_look, .rest = looker_rest},
				.task = {.run = found_run},
				.finds_at = 3};
	lp_test_ok(lp_reactor_new(&options, &looker.reactor));
	lp_test_ok(lp_reactor_start(looker.reactor));
	lp_source_add(looker.reactor, &looker.source);
	while (looker.found_cnt == 0)
		(void)lp_reactor_turn(looker.reactor, true);
	assert_int_equal(looker.look_cnt, 3);
	assert_int_equal(looker.rest_cnt, 0);
	assert_int_equal(lp_reactor_stats(looker.reactor)->sleeps, 0);
	looker.finds_at = 0;
	while (looker.done_cnt == 0)
		(void)lp_reactor_turn(looker.reactor, true);
	assert_true(looker.look_cnt > 3);
	assert_int_equal(looker.rest_cnt, 1);
	assert_int_equal(lp_reactor_stats(looker.reactor)->sleeps, 1);
	lp_source_remove(looker.reactor, &looker.source);
	lp_reactor_free(looker.reactor);
}

static void byte_written(struct lp_io *io)
{
	assert_false(submitting); /* R1 */
	assert_int_equal(io->result, 1);
	(*LP_CONTAINER_OF(io, struct nop, io)->done_cnt)++;
}

/* Submitted ios go on while their caller is busy; their completion waits. */
static void test_submits_before_the_turn_ends(void **state)
{
	(void)state;
	struct lp_reactor *reactor = ring_reactor();
	int done_cnt = 0;
	struct nop nop = {.io.complete = byte_written, .done_cnt = &done_cnt};
	char byte = 'x';
	char got = 0;
	int fds[2];
	assert_int_equal(pipe(fds), 0);
	io_uring_prep_write(lp_reactor_sqe(reactor, &nop.io), fds[1], &byte, 1, 0);
	submitting = true;
	lp_reactor_submit(reactor);
	submitting = false;
	assert_int_equal(read(fds[0], &got, 1), 1);
	assert_int_equal(done_cnt, 0);
	lp_test_ok(lp_reactor_drain(reactor, LP_NS_PER_S));
	assert_int_equal(done_cnt, 1);
	(void)close(fds[0]);
	(void)close(fds[1]);
	lp_reactor_free(reactor);
}

/* As container profiles do: io_uring_setup fails with EPERM. */
static int forbid_io_uring(void)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {.len = LP_ARRAY_SIZE(code), .filter = code};
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return -errno;
	return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) < 0 ? -errno : 0;
}

static void test_io_uring_forbidden(void **state)
{
	(void)state;
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		const struct lp_reactor_options options = {.name = "test", .ring = true};
		struct lp_reactor *reactor = NULL;
		if (forbid_io_uring() < 0)
			_exit(2);
		int err = lp_reactor_new(&options, &reactor);
		_exit(err == -EPERM && reactor == NULL ? 0 : 1);
	}
	int status = 0;
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

static void test_explain(void **state)
{
	(void)state;
	char text[512];
	(void)lp_reactor_explain(-EPERM, text, sizeof(text));
	assert_non_null(strstr(text, "kernel.io_uring_disabled"));
	assert_non_null(strstr(text, "seccomp"));
	(void)lp_reactor_explain(-EINVAL, text, sizeof(text));
	assert_non_null(strstr(text, "6.1"));
	(void)lp_reactor_explain(-ENOMEM, text, sizeof(text));
	assert_non_null(strstr(text, "ulimit -l"));
	(void)lp_reactor_explain(-EMFILE, text, sizeof(text));
	assert_non_null(strstr(text, "ulimit -n"));
	assert_null(strchr(text, '\n'));
}

/* --- Simulation ------------------------------------------------------------------------------- */

static void test_simulated_time_jumps(void **state)
{
	(void)state;
	struct lp_clock_sim sim;
	lp_clock_sim_init(&sim, 0, 0);
	const struct lp_reactor_options options = {.name = "sim", .sim = &sim};
	rec = (struct recorder){0};
	lp_test_ok(lp_reactor_new(&options, &rec.reactor));
	lp_test_ok(lp_reactor_start(rec.reactor));
	struct letter_timer a = {{.fire = letter_fire}, UINT64_MAX, 'a'};
	struct letter_timer b = {{.fire = letter_fire}, UINT64_MAX, 'b'};
	lp_timer_start(rec.reactor, &b.timer, 3600 * LP_NS_PER_S);
	lp_timer_start(rec.reactor, &a.timer, 60 * LP_NS_PER_S);
	assert_int_equal(lp_reactor_turn(rec.reactor, false), 0); /* not asked to wait */
	assert_int_equal(sim.now_ns, 0);
	assert_int_equal(lp_reactor_turn(rec.reactor, true), 1);
	assert_int_equal(sim.now_ns, 60 * LP_NS_PER_S);
	assert_int_equal(lp_reactor_turn(rec.reactor, true), 1);
	assert_int_equal(sim.now_ns, 3600 * LP_NS_PER_S);
	assert_string_equal(rec.text, "ab");
	assert_int_equal(lp_reactor_turn(rec.reactor, true), 0); /* nothing will ever happen */
	lp_reactor_free(rec.reactor);
}

/* A source with two bursts of work, an hour apart. */
struct bursts {
	struct lp_source source;
	const struct lp_clock_sim *sim;
	int left;
};

static uint32_t bursts_poll(struct lp_source *source, uint32_t budget)
{
	struct bursts *bursts = LP_CONTAINER_OF(source, struct bursts, source);
	(void)budget;
	if (bursts->left == 0 || (bursts->left == 1 && bursts->sim->now_ns < 3600 * LP_NS_PER_S))
		return 0;
	bursts->left--;
	return 1;
}

static uint64_t bursts_next_ns(const struct lp_source *source)
{
	struct bursts *bursts =
		LP_CONTAINER_OF((struct lp_source *)(uintptr_t)source, struct bursts, source);
	return bursts->left == 0 ? UINT64_MAX : 3600 * LP_NS_PER_S;
}

/* A turn after a busy one does not say that all is over. */
static void test_simulation_goes_on_after_busy_sources(void **state)
{
	(void)state;
	struct lp_clock_sim sim;
	lp_clock_sim_init(&sim, 3600 * LP_NS_PER_S - 1, 0);
	const struct lp_reactor_options options = {.name = "sim", .sim = &sim};
	struct lp_reactor *reactor = NULL;
	struct bursts bursts = {
		{.name = "bursts", .budget = 1, .poll = bursts_poll, .next_ns = bursts_next_ns},
		&sim,
		2};
	lp_test_ok(lp_reactor_new(&options, &reactor));
	lp_test_ok(lp_reactor_start(reactor));
	lp_source_add(reactor, &bursts.source);
	assert_int_equal(lp_reactor_turn(reactor, false), 1);
	assert_int_equal(lp_reactor_turn(reactor, true), 1);
	assert_int_equal(sim.now_ns, 3600 * LP_NS_PER_S);
	assert_int_equal(lp_reactor_turn(reactor, true), 0);
	lp_source_remove(reactor, &bursts.source);
	lp_reactor_free(reactor);
}

struct late {
	struct lp_task task;
	struct lp_clock_sim *sim;
};

static void come_late(struct lp_task *task)
{
	struct lp_clock_sim *sim = LP_CONTAINER_OF(task, struct late, task)->sim;
	lp_clock_sim_advance_to(sim, sim->now_ns + 7 * LP_NS_PER_MS);
}

/* A part of a run is measured by itself: the counts go on, the longest absence begins anew. */
static void test_absences_are_forgotten(void **state)
{
	(void)state;
	struct lp_clock_sim sim;
	lp_clock_sim_init(&sim, 0, 0);
	const struct lp_reactor_options options = {.name = "sim", .sim = &sim};
	struct lp_reactor *reactor = NULL;
	struct late late = {.task.run = come_late, .sim = &sim};
	lp_test_ok(lp_reactor_new(&options, &reactor));
	lp_test_ok(lp_reactor_start(reactor));
	const struct lp_reactor_stats *stats = lp_reactor_stats(reactor);
	lp_task_queue(reactor, &late.task);
	(void)lp_reactor_turn(reactor, false);
	assert_int_equal(stats->absences, 1);
	assert_int_equal(stats->absence_max_ns, 7 * LP_NS_PER_MS);
	assert_int_equal(stats->absence_max_by_phase_ns[LP_PHASE_TASKS], 7 * LP_NS_PER_MS);
	lp_reactor_forget_absences(reactor);
	assert_int_equal(stats->absences, 1);
	assert_int_equal(stats->absence_max_ns, 0);
	assert_int_equal(stats->absence_max_by_phase_ns[LP_PHASE_TASKS], 0);
	lp_reactor_free(reactor);
}

struct slow {
	struct lp_task task;
	struct lp_clock_sim *sim;
	uint32_t *ran;
	uint32_t order;
};

static void run_slowly(struct lp_task *task)
{
	struct slow *slow = LP_CONTAINER_OF(task, struct slow, task);
	lp_clock_sim_advance_to(slow->sim, slow->sim->now_ns + LP_REACTOR_LONG_NS / 2);
	slow->order = ++*slow->ran;
}

/* Tasks that take long leave some of them to the next turn; none is passed over. */
static void test_long_tasks_take_turns(void **state)
{
	(void)state;
	struct lp_clock_sim sim;
	lp_clock_sim_init(&sim, 0, 0);
	const struct lp_reactor_options options = {.name = "sim", .sim = &sim};
	struct lp_reactor *reactor = NULL;
	struct slow slow[7];
	uint32_t ran = 0;
	lp_test_ok(lp_reactor_new(&options, &reactor));
	lp_test_ok(lp_reactor_start(reactor));
	for (uint32_t i = 0; i < LP_ARRAY_SIZE(slow); i++) {
		slow[i] = (struct slow){.task.run = run_slowly, .sim = &sim, .ran = &ran};
		lp_task_queue(reactor, &slow[i].task);
	}
	for (uint32_t want = 2; want < 8; want += 2) {
		assert_int_equal(lp_reactor_turn(reactor, true), 2);
		assert_int_equal(ran, want);
	}
	assert_int_equal(lp_reactor_turn(reactor, true), 1);
	for (uint32_t i = 0; i < LP_ARRAY_SIZE(slow); i++)
		assert_int_equal(slow[i].order, i + 1);
	assert_int_equal(lp_reactor_turn(reactor, false), 0);
	lp_reactor_free(reactor);
}

static void work_long(struct lp_task *task)
{
	struct timespec start;
	struct timespec now;
	(void)task;
	assert_int_equal(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &start), 0);
	do {
		assert_int_equal(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now), 0);
	} while ((now.tv_sec - start.tv_sec) * 1000000000L + now.tv_nsec - start.tv_nsec <
		 4000000L);
}

static void block_long(struct lp_task *task)
{
	const struct timespec pause = {.tv_nsec = 20000000L};
	(void)task;
	(void)nanosleep(&pause, NULL);
}

/* The cause of an absence: our own work, or a call that waited. */
static void test_absences_have_reasons(void **state)
{
	(void)state;
	struct lp_reactor *reactor = ring_reactor();
	const struct lp_reactor_stats *stats = lp_reactor_stats(reactor);
	struct lp_task work = {.run = work_long};
	struct lp_task block = {.run = block_long};
	(void)lp_reactor_turn(reactor, false); /* earlier events do not count */
	lp_reactor_forget_absences(reactor);
	lp_task_queue(reactor, &work);
	(void)lp_reactor_turn(reactor, false);
	assert_true(stats->absence_own_max_ns >= 4 * LP_NS_PER_MS);
	assert_int_equal(stats->absence_own_max_by_phase_ns[LP_PHASE_TASKS],
			 stats->absence_own_max_ns);
	uint64_t blocked = stats->absences_blocked;
	lp_reactor_forget_absences(reactor);
	lp_task_queue(reactor, &block);
	(void)lp_reactor_turn(reactor, false);
	assert_int_equal(stats->absences_blocked, blocked + 1);
	assert_true(stats->absence_max_ns >= 20 * LP_NS_PER_MS);
	assert_true(stats->absence_own_max_ns < 20 * LP_NS_PER_MS);
	lp_reactor_free(reactor);
}

/* The shards of a simulation, turned by one thread. */
static void test_two_simulated_on_one_thread(void **state)
{
	(void)state;
	struct lp_clock_sim sim;
	lp_clock_sim_init(&sim, 0, 0);
	const struct lp_reactor_options options = {.name = "sim", .sim = &sim};
	struct lp_reactor *a = NULL;
	struct lp_reactor *b = NULL;
	lp_test_ok(lp_reactor_new(&options, &a));
	lp_test_ok(lp_reactor_new(&options, &b));
	assert_false(lp_reactor_is_mine(a));
	lp_test_ok(lp_reactor_start(a));
	lp_test_ok(lp_reactor_start(b));
	assert_true(lp_reactor_is_mine(a));
	assert_true(lp_reactor_is_mine(b));
	assert_int_equal(lp_reactor_turn(a, true), 0);
	assert_int_equal(lp_reactor_turn(b, true), 0);
	lp_reactor_free(a);
	lp_reactor_free(b);
}

/* A helper's, made after the one it helps. */
static void test_one_like_another(void **state)
{
	(void)state;
	struct lp_clock_sim sim;
	lp_clock_sim_init(&sim, 7, 0);
	const struct lp_reactor_options options = {.name = "sim", .sim = &sim};
	struct lp_reactor *first = NULL;
	struct lp_reactor *like = NULL;
	lp_test_ok(lp_reactor_new(&options, &first));
	lp_test_ok(lp_reactor_new_like(first, "like", &like));
	assert_ptr_equal(lp_reactor_clock(like), lp_reactor_clock(first));
	lp_test_ok(lp_reactor_start(like));
	assert_int_equal(lp_reactor_turn(like, true), 0);
	lp_reactor_free(like);
	lp_reactor_free(first);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_many_nops_through_a_small_ring),
		cmocka_unit_test(test_spins_for_the_lonely),
		cmocka_unit_test(test_does_not_spin_for_a_noted_crowd),
		cmocka_unit_test(test_does_not_spin_where_it_must_wait),
		cmocka_unit_test(test_looks_at_sources_before_it_sleeps),
		cmocka_unit_test(test_submits_before_the_turn_ends),
		cmocka_unit_test(test_waited),
		cmocka_unit_test(test_drain_times_out),
		cmocka_unit_test(test_registered_files_and_buffers),
		cmocka_unit_test(test_known_opcodes),
		cmocka_unit_test(test_task_queued_by_task_waits_a_turn),
		cmocka_unit_test(test_one_like_another),
		cmocka_unit_test(test_timers_on_a_ring),
		cmocka_unit_test(test_timer_for_now_does_not_keep_the_turn),
		cmocka_unit_test(test_sources_share_the_turn),
		cmocka_unit_test(test_messages_from_many_threads),
		cmocka_unit_test(test_message_to_oneself),
		cmocka_unit_test(test_stop_from_another_thread),
		cmocka_unit_test(test_io_uring_forbidden),
		cmocka_unit_test(test_explain),
		cmocka_unit_test(test_simulated_time_jumps),
		cmocka_unit_test(test_simulation_goes_on_after_busy_sources),
		cmocka_unit_test(test_absences_are_forgotten),
		cmocka_unit_test(test_long_tasks_take_turns),
		cmocka_unit_test(test_absences_have_reasons),
		cmocka_unit_test(test_two_simulated_on_one_thread),
	};
	return lp_test_main(tests, "base/loop/reactor");
}
