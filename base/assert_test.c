/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: a failed assert prints expression, place and object, and ends the process by SIGABRT; a
 * true one does nothing and evaluates its condition once.
 * Method: the failing assert runs in a forked child whose standard error is a pipe. */
#include "base/testing/test.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/assert.h"

struct thing {
	int id;
};

static int thing_to_text(const struct thing *thing, char *buf, size_t len)
{
	return snprintf(buf, len, "thing %d", thing->id);
}

static void fail_plain(void)
{
	int one = 1;
	LP_ASSERT(one == 2);
}

static void fail_with_object(void)
{
	struct thing thing = {.id = 42};
	LP_ASSERT_OBJ(thing.id == 0, thing_to_text, &thing);
}

static void fail_unreachable(void)
{
	LP_UNREACHABLE();
}

/* Runs fn in a child and returns what it wrote to standard error before it died of SIGABRT. */
static void run_and_catch(void (*fn)(void), char *text, size_t len)
{
	int fds[2];
	assert_int_equal(pipe(fds), 0);
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		(void)signal(SIGABRT, SIG_DFL); /* not cmocka's handler */
		(void)dup2(fds[1], STDERR_FILENO);
		fn();
		_exit(0);
	}
	(void)close(fds[1]);
	ssize_t got = read(fds[0], text, len - 1);
	assert_true(got > 0);
	text[got] = '\0';
	(void)close(fds[0]);
	int status = 0;
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status));
	assert_int_equal(WTERMSIG(status), SIGABRT);
}

static void test_failure_names_place_and_object(void **state)
{
	(void)state;
	char text[512];
	run_and_catch(fail_plain, text, sizeof(text));
	assert_non_null(strstr(text, "one == 2"));
	assert_non_null(strstr(text, "base/assert_test.c:"));
	assert_non_null(strstr(text, "fail_plain()"));
	run_and_catch(fail_with_object, text, sizeof(text));
	assert_non_null(strstr(text, "thing.id == 0"));
	assert_non_null(strstr(text, ": thing 42\n"));
	run_and_catch(fail_unreachable, text, sizeof(text));
	assert_non_null(strstr(text, "unreachable"));
}

static void test_success_evaluates_once(void **state)
{
	(void)state;
	int cnt = 0;
	LP_ASSERT(++cnt == 1);
	assert_int_equal(cnt, 1);
	/* The slow kind is evaluated where it is switched on, and nowhere else. */
	LP_ASSERT_SLOW(++cnt == 2);
	assert_int_equal(cnt, LP_ASSERT_SLOW_ON ? 2 : 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_failure_names_place_and_object),
		cmocka_unit_test(test_success_evaluates_once),
	};
	return lp_test_main(tests, "base/assert");
}
