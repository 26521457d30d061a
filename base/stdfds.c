/* SPDX-License-Identifier: Apache-2.0 */
/* An opened file gets the lowest free number, and all lower numbers are in use. */
#include "base/stdfds.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

int lp_stdfds_hold(void)
{
	for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
		/* Opened for the direction that is not used. */
		int flags = fd == STDIN_FILENO ? O_WRONLY : O_RDONLY;
		/* A program that this one executes needs it as well: no O_CLOEXEC. */
		if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", flags) < 0)
			return -errno;
	}
	return 0;
}
