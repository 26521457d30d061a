/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: a resume is right however late RocksDB's threads are (rule L8): what is told when the
 * resume in which it failed has returned is no failure of the next; what is still being told is
 * resumed from, too. Method: this program's pthread_mutex_lock is RocksDB's too. Within a resume
 * its main thread comes late for each lock, until the flush has failed; the flush's thread, which
 * then tells the listener, comes late for its next locks. */
#include "store/index/kv_rig_test.h"

#include <dlfcn.h>
#include <unistd.h>

enum { LATE_MAX_MS = 20, TELLER_LATE_MS = 100, TELLER_LOCKS = 3 };

static struct lp_test_kv test;

LP_PUBLIC int lpi_mutex_lock(pthread_mutex_t *mutex) __asm__("pthread_mutex_lock");

static _Atomic bool is_late;
static _Atomic bool is_over; /* what came before */
static _Atomic bool has_failed;
static __thread bool is_main;
static __thread int late_locks;

int lpi_mutex_lock(pthread_mutex_t *mutex)
{
	static int (*next)(pthread_mutex_t *);
	if (next == NULL) /* in main(), before there are threads */
		*(void **)&next = dlsym(RTLD_NEXT, "pthread_mutex_lock");
	for (int i = 0; is_main && is_late && !has_failed && i < LATE_MAX_MS; i++)
		(void)usleep(1000);
	if (late_locks > 0) {
		late_locks--;
		(void)usleep(TELLER_LATE_MS * 1000);
	}
	return next(mutex);
}

/* The line comes from the flush's thread, right before the listener is told. */
static void log_line(struct lp_kv_events *events, enum lp_kv_log_level level, const char *line)
{
	lp_test_kv_log(events, level, line);
	is_over |= strstr(line, "Waiting after background flush error") != NULL;
	if (!is_late || strstr(line, "Background IO error") == NULL)
		return;
	late_locks = TELLER_LOCKS;
	has_failed = true;
}

static void set_full(bool full)
{
	const struct lp_kvfs_mem_fault fault = {
		.ops = LP_KVFS_MEM_APPEND, .times = full ? UINT64_MAX : 0, .err = -ENOSPC};
	lp_kvfs_mem_set_fault(test.mem, &fault);
}

static void tell_slowly(struct lp_kv_events *events, int err, bool final, const char *reason)
{
	lp_test_kv_failed(events, err, final, reason);
	(void)usleep(TELLER_LATE_MS * 1000);
}

static int set_up(void **state)
{
	(void)state;
	lp_test_kv_init(&test, false, 1);
	test.events.log = log_line;
	is_main = true;
	is_late = is_over = has_failed = false;
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	is_late = false;
	lp_test_kv_fini(&test);
	return 0;
}

static void fail_flush(void)
{
	lp_test_kv_open(&test);
	set_full(true);
	lp_test_ok(lp_test_kv_put(&test, "a", "1"));
	lp_test_err(-ENOSPC, lp_kv_flush_wait(test.kv));
}

static void expect_resumed(void)
{
	set_full(false);
	lp_test_ok(lp_kv_resume(test.kv));
	assert_int_equal(lp_kv_error(test.kv), 0);
	is_late = false;
	lp_test_ok(lp_test_kv_put(&test, "b", "2"));
	lp_test_ok(lp_kv_flush_wait(test.kv));
	lp_test_kv_crash(&test, false);
	lp_test_kv_expect(&test, "a", "1");
	lp_test_kv_expect(&test, "b", "2");
}

static void test_failure_told_after_its_resume(void **state)
{
	(void)state;
	fail_flush();
	while (!is_over)
		(void)usleep(1000);
	is_late = true;
	lp_test_err(-ENOSPC, lp_kv_resume(test.kv)); /* still full */
	assert_true(has_failed);
	expect_resumed();
}

/* RocksDB takes note of the error when it has been told, and resumes nothing before. */
static void test_resumed_while_it_is_told(void **state)
{
	(void)state;
	test.events.failed = tell_slowly;
	fail_flush();
	lp_test_err(-ENOSPC, lp_kv_resume(test.kv)); /* still full */
	assert_int_equal(lp_kv_error(test.kv), -ENOSPC);
	expect_resumed();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_failure_told_after_its_resume, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(test_resumed_while_it_is_told, set_up, tear_down),
	};
	return lp_test_main(tests, "kv_late");
}
