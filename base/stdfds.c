/* SPDX-License-Identifier: Apache-2.0 */
/* What is opened gets the lowest number that is free, and those below are taken. */
#include "base/stdfds.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

int lp_stdfds_hold(void)
{
	for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
		/* For the direction that nobody asks of it. */
		int flags = fd == STDIN_FILENO ? O_WRONLY : O_RDONLY;
		/* A program that this one becomes needs it as well: no O_CLOEXEC. */
		if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", flags) < 0)
			return -errno;
	}
	return 0;
}
