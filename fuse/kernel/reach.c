/* SPDX-License-Identifier: Apache-2.0 */
#include "fuse/kernel/reach.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "fuse/channel_state.h"

/* Handle type of the kernel's FUSE: the number in two halves, and the generation. */
#define HANDLE_TYPE 0x81

/* Whether this is the mount, and not one that is mounted over it. Asks no file system. */
static bool is_ours(const struct lp_fuse_channel *channel, int dir)
{
	struct statx st;
	return statx(dir, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, 0, &st) == 0 &&
	       makedev(st.stx_dev_major, st.stx_dev_minor) == channel->options.mount_dev;
}

/* The mount's root; -1: there is another mount, or none. */
static int open_root(const struct lp_fuse_channel *channel)
{
	if (channel->options.mount_dir == NULL)
		return -1;
	/* A mount over ours is not opened, because it may never answer. */
	int place = open(channel->options.mount_dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (place < 0)
		return -1;
	/* open_by_handle_at takes no descriptor of O_PATH, so the mount has to open its root. */
	int dir = is_ours(channel, place) ? openat(place, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC)
					  : -1;
	(void)close(place); /* nothing was written */
	return dir;
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
