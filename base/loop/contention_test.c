/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: a thread that waits for a processor is found to be contended, one that does not is not, and
 * without the kernel's numbers no thread is. Method: a file with chosen numbers; two threads on one
 * processor. */
#include "base/loop/contention.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/testing/test.h"

static char path[] = "/tmp/lapis-contention-XXXXXX";

static void write_delay(uint64_t ns)
{
	FILE *file = fopen(path, "w");
	assert_non_null(file);
	(void)fprintf(file, "123456789 %llu 42\n", (unsigned long long)ns);
	assert_int_equal(fclose(file), 0);
}

static int set_up(void **state)
{
	(void)state;
	int fd = mkstemp(path);
	assert_true(fd >= 0);
	assert_int_equal(close(fd), 0);
	write_delay(7 * LP_NS_PER_S);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	(void)unlink(path);
	return 0;
}

static void test_a_twentieth_of_the_time(void **state)
{
	(void)state;
	struct lp_contention contention;
	uint64_t now_ns = LP_NS_PER_S;
	lp_contention_init(&contention, path, now_ns);
	now_ns += LP_NS_PER_S; /* earlier waits do not count */
	assert_false(lp_contention_look(&contention, now_ns));
	write_delay(7 * LP_NS_PER_S + 51 * LP_NS_PER_MS);
	assert_false(lp_contention_look(&contention, now_ns + LP_CONTENTION_LOOK_NS - 1));
	now_ns += LP_NS_PER_S;
	assert_true(lp_contention_look(&contention, now_ns));
	assert_true(lp_contention_look(&contention, now_ns + LP_CONTENTION_LOOK_NS - 1));
	write_delay(7 * LP_NS_PER_S + 100 * LP_NS_PER_MS);
	assert_false(lp_contention_look(&contention, now_ns + LP_NS_PER_S));
	lp_contention_fini(&contention);
}

static void test_nobody_says(void **state)
{
	(void)state;
	struct lp_contention contention;
	static const char *const paths[] = {"/nowhere/schedstat", "/dev/null"};
	for (size_t i = 0; i < LP_ARRAY_SIZE(paths); i++) {
		lp_contention_init(&contention, paths[i], 0);
		for (uint64_t s = 1; s < 5; s++)
			assert_false(lp_contention_look(&contention, s * LP_NS_PER_S));
		lp_contention_fini(&contention);
	}
}

static _Atomic bool is_over;

static void work_on_first(void)
{
	cpu_set_t cpus;
	CPU_ZERO(&cpus);
	CPU_SET(0, &cpus);
	lp_test_ok(sched_setaffinity(0, sizeof(cpus), &cpus));
}

static void *hog(void *arg)
{
	(void)arg;
	work_on_first();
	while (!is_over)
		continue;
	return NULL;
}

static void test_two_on_one_processor(void **state)
{
	(void)state;
	struct lp_contention contention;
	pthread_t thread;
	assert_int_equal(pthread_create(&thread, NULL, hog, NULL), 0);
	work_on_first();
	uint64_t begin_ns = lp_clock_mono_ns(lp_clock_system());
	uint64_t now_ns = begin_ns;
	lp_contention_init(&contention, NULL, now_ns);
	bool is_contended = false;
	for (; !is_contended && now_ns < begin_ns + 5 * LP_NS_PER_S;
	     now_ns = lp_clock_mono_ns(lp_clock_system()))
		is_contended = lp_contention_look(&contention, now_ns);
	is_over = true;
	assert_int_equal(pthread_join(thread, NULL), 0);
	lp_contention_fini(&contention);
	assert_true(is_contended);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_a_twentieth_of_the_time, set_up, tear_down),
		cmocka_unit_test(test_nobody_says),
		cmocka_unit_test(test_two_on_one_processor),
	};
	return lp_test_main(tests, "contention");
}
