/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that an assert fires: runs a function in a forked child and returns how it ended. Only
 * *_test.c files include this. */
#ifndef LP_BASE_TESTING_TEST_DEATH_H
#define LP_BASE_TESTING_TEST_DEATH_H

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/testing/test.h"

#define lp_test_dies(fn, arg) assert_true(lp_test_aborts((fn), (arg)))

/* True when fn(arg) ends in SIGABRT, false when it returns. The child's standard error is thrown
 * away, because the assert's text would look like a failure of the test. */
static inline bool lp_test_aborts(void (*fn)(void *arg), void *arg)
{
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		int null_fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
		(void)signal(SIGABRT, SIG_DFL); /* not cmocka's handler */
		(void)dup2(null_fd, STDERR_FILENO);
		fn(arg);
		_exit(0);
	}
	int status = 0;
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
}

#endif
