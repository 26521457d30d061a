/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: files opened afterwards get none of the three numbers; I/O on a closed one fails as before;
 * an open one is left alone. Method: a child for each set of them that may be closed. */
#include "base/testing/test.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/stdfds.h"

#define STD_CNT 3

/* Of one that was closed. */
static bool fails_as_before(int fd)
{
	char byte = 'x';
	ssize_t n = fd == STDIN_FILENO ? read(fd, &byte, 1) : write(fd, &byte, 1);
	return n < 0 && errno == EBADF && fcntl(fd, F_GETFD) == 0;
}

/* In the child: 0, or the number of the fault. */
static int try_closed(unsigned closed)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	for (int fd = 0; fd < STD_CNT; fd++) {
		if ((closed & 1u << fd) != 0)
			(void)close(fd);
		else if (dup2(null, fd) < 0)
			return 1;
	}
	(void)close(null);
	if (lp_stdfds_hold() < 0)
		return 2;
	if (open("/dev/zero", O_RDONLY | O_CLOEXEC) < STD_CNT)
		return 3;
	for (int fd = 0; fd < STD_CNT; fd++) {
		bool was_closed = (closed & 1u << fd) != 0;
		if (was_closed != fails_as_before(fd))
			return 4 + fd;
	}
	return 0;
}

static void test_each_set(void **state)
{
	(void)state;
	for (unsigned closed = 0; closed < 1u << STD_CNT; closed++) {
		int status = 0;
		(void)fflush(stdout);
		pid_t pid = fork();
		assert_true(pid >= 0);
		if (pid == 0)
			_exit(try_closed(closed));
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_true(WIFEXITED(status));
		assert_int_equal(WEXITSTATUS(status), 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_each_set),
	};
	return lp_test_main(tests, "standard descriptors");
}
