/* SPDX-License-Identifier: Apache-2.0 */
/* No command of io_uring reaches a driver, so that the kernel's FUSE never hears of entries that it
 * is to be given: as under a security policy that forbids these commands. Preloaded into a daemon
 * by mount_ring.sh, which compiles it. What is forbidden is so before a ring is used for the first
 * time. */
#include <errno.h>
#include <liburing.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define RULES_MAX (IORING_OP_LAST + IORING_REGISTER_LAST + 1)
#define EXPORT    __attribute__((visibility("default")))

/* The name under which it is called. */
EXPORT int lpi_register(unsigned fd, unsigned opcode, const void *arg,
			unsigned cnt) __asm__("io_uring_register");

static int ring_register(unsigned fd, unsigned opcode, const void *arg, unsigned cnt)
{
	int r = (int)syscall(SYS_io_uring_register, fd, opcode, arg, cnt);
	return r < 0 ? -errno : r;
}

/* Everything else is allowed. */
static int forbid_commands(unsigned fd)
{
	struct io_uring_restriction rules[RULES_MAX];
	unsigned cnt = 0;
	memset(rules, 0, sizeof(rules));
	for (unsigned op = 0; op < IORING_OP_LAST; op++) {
		if (op == IORING_OP_URING_CMD)
			continue;
		rules[cnt].opcode = IORING_RESTRICTION_SQE_OP;
		rules[cnt++].sqe_op = (__u8)op;
	}
	for (unsigned op = 0; op < IORING_REGISTER_LAST; op++) {
		rules[cnt].opcode = IORING_RESTRICTION_REGISTER_OP;
		rules[cnt++].register_op = (__u8)op;
	}
	rules[cnt].opcode = IORING_RESTRICTION_SQE_FLAGS_ALLOWED;
	rules[cnt++].sqe_flags = 0xff;
	return ring_register(fd, IORING_REGISTER_RESTRICTIONS, rules, cnt);
}

EXPORT int lpi_register(unsigned fd, unsigned opcode, const void *arg, unsigned cnt)
{
	int err = opcode == IORING_REGISTER_ENABLE_RINGS ? forbid_commands(fd) : 0;
	return err < 0 ? err : ring_register(fd, opcode, arg, cnt);
}
