/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: no update is lost or counted twice, whatever interrupts it; the CPU number is right; the
 * fallback counts as well.
 * Method: more threads than CPUs, unpinned, pinned, and hopping from CPU to CPU, so that updates
 * are preempted anywhere; single-stepping into an update, so that its abort is surely taken,
 * hundreds of times in a row; the same program run again with glibc's rseq registration switched
 * off. */
#include "base/testing/test.h"

#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#include "base/struct/percpu.h"
#include "base/testing/test_death.h"

enum { THREADS = 8, ROUNDS = 100000 };

static void test_one_thread(void **state)
{
	(void)state;
	struct lp_percpu *percpu = lp_percpu_new(33);
	assert_non_null(percpu);
	for (uint32_t i = 0; i < 33; i++)
		assert_int_equal(lp_percpu_sum(percpu, i), 0);
	lp_percpu_add(percpu, 0, 1);
	lp_percpu_add(percpu, 32, INT64_C(1) << 40);
	lp_percpu_add(percpu, 32, -5);
	lp_percpu_add(percpu, 16, -7);
	lp_percpu_add(percpu, 15, INT64_MAX);
	assert_int_equal(lp_percpu_sum(percpu, 0), 1);
	assert_true(lp_percpu_sum(percpu, 32) == (INT64_C(1) << 40) - 5);
	assert_true(lp_percpu_sum(percpu, 16) == -7);
	assert_true(lp_percpu_sum(percpu, 15) == INT64_MAX);
	assert_int_equal(lp_percpu_sum(percpu, 1), 0);
	assert_int_equal(lp_percpu_sum(percpu, 31), 0);
	lp_percpu_free(percpu);
	lp_percpu_free(NULL);
}

static void pin_to(unsigned cpu)
{
	cpu_set_t set;
	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	(void)sched_setaffinity(0, sizeof(set), &set); /* the CPU may be forbidden to us */
}

/* A CPU this process may run on: the n-th, in a circle. */
static unsigned nth_allowed_cpu(unsigned n)
{
	cpu_set_t set;
	assert_int_equal(sched_getaffinity(0, sizeof(set), &set), 0);
	unsigned skip_cnt = n % (unsigned)CPU_COUNT(&set);
	unsigned cpu = 0;
	while (!CPU_ISSET(cpu, &set) || skip_cnt-- > 0)
		cpu++;
	return cpu;
}

static void *read_pinned_cpu(void *arg)
{
	unsigned *cpu = arg;
	pin_to(*cpu);
	*cpu = lp_percpu_cpu();
	return NULL;
}

static void test_cpu_number(void **state)
{
	(void)state;
	for (unsigned n = 0; n < 4; n++) {
		unsigned want = nth_allowed_cpu(n);
		unsigned got = want;
		pthread_t thread;
		assert_int_equal(pthread_create(&thread, NULL, read_pinned_cpu, &got), 0);
		assert_int_equal(pthread_join(thread, NULL), 0);
		assert_int_equal(got, want);
	}
}

struct worker {
	pthread_t thread;
	struct lp_percpu *percpu;
	unsigned cpus[2]; /* to run on */
	enum { UNPINNED, PINNED, HOPPING } how;
};

static void *count(void *arg)
{
	const struct worker *worker = arg;
	if (worker->how == PINNED)
		pin_to(worker->cpus[0]);
	for (unsigned i = 0; i < ROUNDS; i++) {
		lp_percpu_add(worker->percpu, 0, 1);
		lp_percpu_add(worker->percpu, 1, i % 2 == 0 ? -3 : 2);
		if (worker->how == HOPPING && i % 256 == 0)
			pin_to(worker->cpus[i / 256 % 2]);
	}
	return NULL;
}

static void test_many_threads(void **state)
{
	(void)state;
	for (int how = UNPINNED; how <= HOPPING; how++) {
		struct worker workers[THREADS];
		struct lp_percpu *percpu = lp_percpu_new(2);
		assert_non_null(percpu);
		for (unsigned i = 0; i < THREADS; i++) {
			workers[i] = (struct worker){
				.percpu = percpu,
				.cpus = {nth_allowed_cpu(i), nth_allowed_cpu(i + 1)},
				.how = how};
			assert_int_equal(
				pthread_create(&workers[i].thread, NULL, count, &workers[i]), 0);
		}
		int64_t last = 0;
		for (int i = 0; i < 100; i++) {
			int64_t now = lp_percpu_sum(percpu, 0);
			assert_true(now >= last && now <= (int64_t)THREADS * ROUNDS);
			last = now;
		}
		for (unsigned i = 0; i < THREADS; i++)
			assert_int_equal(pthread_join(workers[i].thread, NULL), 0);
		assert_int_equal(lp_percpu_sum(percpu, 0), THREADS * ROUNDS);
		assert_true(lp_percpu_sum(percpu, 1) == -(int64_t)THREADS * ROUNDS / 2);
		lp_percpu_free(percpu);
	}
}

#if LP_PERCPU_RSEQ
#define TRAP_FLAG 0x100

static volatile sig_atomic_t traps_left;
static volatile sig_atomic_t aborts_seen;

/* The first call, from raise(), switches single-stepping on; the last one switches it off. */
static void on_trap(int signum, siginfo_t *info, void *context)
{
	(void)signum;
	(void)info;
	ucontext_t *uc = context;
	const char *next; /* the instruction that comes next */
	uint32_t before_next;
	memcpy(&next, &uc->uc_mcontext.gregs[REG_RIP], sizeof(next));
	memcpy(&before_next, next - sizeof(before_next), sizeof(before_next));
	if (before_next == RSEQ_SIG)
		aborts_seen++;
	if (traps_left-- > 0)
		uc->uc_mcontext.gregs[REG_EFL] |= TRAP_FLAG;
	else
		uc->uc_mcontext.gregs[REG_EFL] &= ~TRAP_FLAG;
}

/* A step inside the sequence is a signal there, hence an abort: an update under way never ends
 * until the stepping does. */
static void test_aborted_again_and_again(void **state)
{
	(void)state;
	struct lp_percpu *percpu = lp_percpu_new(1);
	assert_non_null(percpu);
	if (percpu->plain_cpus == 0) {
		lp_percpu_free(percpu);
		skip();
	}
	struct sigaction action = {.sa_sigaction = on_trap, .sa_flags = SA_SIGINFO};
	struct sigaction old;
	assert_int_equal(sigaction(SIGTRAP, &action, &old), 0);
	bool has_ended_early = false;
	aborts_seen = 0;
	/* The way out of raise() takes steps too: go on until well inside. */
	for (int steps = 0; aborts_seen < 1000 && !has_ended_early; steps++) {
		traps_left = steps;
		(void)raise(SIGTRAP); /* its trap is what counts */
		lp_percpu_add(percpu, 0, 1);
		has_ended_early = traps_left > 0;
		traps_left = 0;
		assert_int_equal(lp_percpu_sum(percpu, 0), steps + 1);
	}
	assert_int_equal(sigaction(SIGTRAP, &old, NULL), 0);
	assert_false(has_ended_early);
	lp_percpu_free(percpu);
}
#endif

static void add_out_of_range(void *arg)
{
	lp_percpu_add(arg, 2, 1);
}

static void sum_out_of_range(void *arg)
{
	if (lp_percpu_sum(arg, 2) == 0)
		_exit(1);
}

static void test_misuse_dies(void **state)
{
	(void)state;
	struct lp_percpu *percpu = lp_percpu_new(2);
	assert_non_null(percpu);
	lp_test_dies(add_out_of_range, percpu);
	lp_test_dies(sum_out_of_range, percpu);
	lp_percpu_free(percpu);
}

static void test_without_registration(void **state)
{
	(void)state;
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		char program[] = "percpu_test";
		char argument[] = "unregistered";
		char tunable[] = "GLIBC_TUNABLES=glibc.pthread.rseq=0";
		char *argv[] = {program, argument, NULL};
		char *envp[] = {tunable, NULL};
		(void)execve("/proc/self/exe", argv, envp);
		_exit(127);
	}
	int status = 0;
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

static void test_is_unregistered(void **state)
{
	(void)state;
#if LP_PERCPU_HAS_AREA
	assert_int_equal(__rseq_size, 0);
#endif
	struct lp_percpu *percpu = lp_percpu_new(1);
	assert_non_null(percpu);
	assert_int_equal(percpu->plain_cpus, 0);
	lp_percpu_free(percpu);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_one_thread),
		cmocka_unit_test(test_cpu_number),
		cmocka_unit_test(test_many_threads),
#if LP_PERCPU_RSEQ
		cmocka_unit_test(test_aborted_again_and_again),
#endif
		cmocka_unit_test(test_misuse_dies),
		cmocka_unit_test(test_without_registration),
	};
	const struct CMUnitTest unregistered[] = {
		cmocka_unit_test(test_is_unregistered),
		cmocka_unit_test(test_one_thread),
		cmocka_unit_test(test_cpu_number),
		cmocka_unit_test(test_many_threads),
	};
	if (argc > 1 && strcmp(argv[1], "unregistered") == 0)
		return lp_test_main(unregistered, "base/struct/percpu unregistered");
	return lp_test_main(tests, "base/struct/percpu");
}
