/* SPDX-License-Identifier: Apache-2.0 */
/* Advice for a person if io_uring cannot be used. */
#include <errno.h>
#include <stdio.h>
#include <sys/utsname.h>

#include "base/error.h"
#include "base/loop/reactor.h"

int lp_reactor_explain(int err, char *buf, size_t len)
{
	struct utsname host = {0};
	switch (err < 0 ? -err : err) {
	case ENOSYS:
	case EPERM:
	case EACCES:
		return snprintf(
			buf, len,
			"this system forbids io_uring (%s): set the sysctl "
			"kernel.io_uring_disabled to 0, and in a container allow io_uring_setup, "
			"io_uring_enter and io_uring_register in its seccomp profile (the "
			"defaults of Docker, containerd and Kubernetes forbid them)",
			lp_strerror(err));
	case EINVAL:
		(void)uname(&host); /* on failure the release is shown empty */
		return snprintf(
			buf, len,
			"this kernel's io_uring is too old (release %s): Lapis needs Linux 6.1 "
			"or newer",
			host.release);
	case ENOMEM:
		return snprintf(
			buf, len,
			"no memory for an io_uring: raise the limit of locked memory (ulimit -l, "
			"or LimitMEMLOCK= in a systemd unit)");
	case EMFILE:
	case ENFILE:
		return snprintf(
			buf, len,
			"no file descriptor left for an io_uring: raise the limit of open files "
			"(ulimit -n, or LimitNOFILE= in a systemd unit)");
	default:
		return snprintf(buf, len, "io_uring cannot be set up: %s", lp_strerror(err));
	}
}
