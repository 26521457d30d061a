/* SPDX-License-Identifier: Apache-2.0 */
#include "fuse/reach.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "fuse/channel_impl.h"

/* Of the kernel's FUSE: the number in two halves, and the generation. */
#define HANDLE_TYPE 0x81

/* The mount's root; -1: something else is there, or nothing. */
static int open_root(const struct lp_fuse_channel *channel)
{
	struct statx st;
	/* open_by_handle_at takes no descriptor of O_PATH, so the mount is asked. */
	if (channel->options.mount_dir == NULL)
		return -1;
	int dir = open(channel->options.mount_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0)
		return -1;
	if (statx(dir, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, 0, &st) == 0 &&
	    makedev(st.stx_dev_major, st.stx_dev_minor) == channel->options.mount_dev)
		return dir;
	(void)close(dir); /* nothing was written */
	return -1;
}

int lpi_fuse_reach(const struct lp_fuse_channel *channel, struct lp_ino ino)
{
	const uint32_t words[] = {(uint32_t)(ino.nr >> 32), (uint32_t)ino.nr, 0};
	union {
		struct file_handle handle;
		uint8_t bytes[sizeof(struct file_handle) + sizeof(words)];
	} named = {.handle = {.handle_bytes = sizeof(words), .handle_type = HANDLE_TYPE}};
	memcpy(named.handle.f_handle, words, sizeof(words));
	int dir = open_root(channel);
	if (dir < 0)
		return -ENOENT;
	int fd = open_by_handle_at(dir, &named.handle, O_PATH | O_CLOEXEC);
	int err = -errno;
	(void)close(dir); /* nothing was written */
	return fd < 0 ? err : fd;
}
