/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: a group that the message names, or that the process is in, is found, and no other.
 * Method: texts as the kernel writes them; and a process of the test's own, which is in groups if
 * the test may say so. */
#include "fuse/ops/caller.h"

#include <grp.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/testing/test.h"

static void test_text(void **state)
{
	static const char status[] = "Name:\ta\\nGroups: 9\nGid:\t4\t4\t4\t4\nFDSize:\t64\n"
				     "Groups:\t27 100 4294967294 \nNStgid:\t5\n";
	(void)state;
	assert_true(lpi_fuse_status_has_group(status, 27));
	assert_true(lpi_fuse_status_has_group(status, 100));
	assert_true(lpi_fuse_status_has_group(status, 4294967294u));
	assert_false(lpi_fuse_status_has_group(status, 2));
	assert_false(lpi_fuse_status_has_group(status, 4));
	assert_false(lpi_fuse_status_has_group(status, 5));
	assert_false(lpi_fuse_status_has_group(status, 9));
	assert_false(lpi_fuse_status_has_group(status, 0));
	/* A process in no group, and texts that are cut off. */
	assert_false(lpi_fuse_status_has_group("Name:\ta\nGroups:\t \nNStgid:\t0\n", 0));
	assert_false(lpi_fuse_status_has_group("Name:\ta\nGroups:\t12", 12));
	assert_true(lpi_fuse_status_has_group("Name:\ta\nGroups:\t12 3", 12));
	assert_false(lpi_fuse_status_has_group("Name:\ta\nGroups:", 0));
	assert_false(lpi_fuse_status_has_group("Name:\ta\n", 0));
	assert_false(lpi_fuse_status_has_group("", 0));
}

static void test_process(void **state)
{
	static const gid_t groups[] = {70001, 70002};
	struct fuse_in_header header = {.gid = 5};
	char said = 0;
	int ends[2];
	(void)state;
	assert_int_equal(pipe(ends), 0);
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		said = setgroups(LP_ARRAY_SIZE(groups), groups) == 0 ? 'y' : 'n';
		if (write(ends[1], &said, 1) == 1)
			(void)pause();
		_exit(0);
	}
	assert_int_equal(read(ends[0], &said, 1), 1);
	header.pid = (uint32_t)pid;
	assert_true(lpi_fuse_caller_is_in(&header, 5));
	assert_int_equal(lpi_fuse_caller_is_in(&header, 70001), said == 'y');
	assert_int_equal(lpi_fuse_caller_is_in(&header, 70002), said == 'y');
	assert_false(lpi_fuse_caller_is_in(&header, 70003));
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	/* The process has ended, or was never visible. */
	assert_true(lpi_fuse_caller_is_in(&header, 5));
	assert_false(lpi_fuse_caller_is_in(&header, 70001));
	header.pid = 0;
	assert_true(lpi_fuse_caller_is_in(&header, 5));
	assert_false(lpi_fuse_caller_is_in(&header, 70001));
	assert_int_equal(close(ends[0]), 0);
	assert_int_equal(close(ends[1]), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_text),
		cmocka_unit_test(test_process),
	};
	return lp_test_main(tests, "fuse/ops/caller");
}
