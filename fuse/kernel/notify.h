/* SPDX-License-Identifier: Apache-2.0 */
/* Notifications to the kernel: changes by others (rule M2), and inodes to forget (rule N5).
 *
 * Threads: the channel's; a thread of its own writes the messages. No serving thread waits for it
 *   (rule M3).
 * Blocking, memory: none.
 *
 * Before such a message returns, the kernel may write back dirty pages, or wait for the lock of a
 * directory whose holder waits for us. When the kernel remembers more inodes than its limit, it is
 * told which ones to forget.
 */
#ifndef LP_FUSE_KERNEL_NOTIFY_H
#define LP_FUSE_KERNEL_NOTIFY_H

#include "base/loop/workers.h"
#include "fuse/channel.h"

#define LPI_FUSE_PRUNE_CNT 256u

/* Of the kernel from 6.18 on; linux-libc-dev of Debian 12 does not have it. */
#define LPI_FUSE_NOTIFY_PRUNE 9
struct lpi_fuse_prune_out {
	struct fuse_out_header header;
	uint32_t count;
	uint32_t padding;
	uint64_t spare;
	uint64_t nodeids[LPI_FUSE_PRUNE_CNT];
};

/* Zeroed: idle, and taken to be supported. */
struct lpi_fuse_prune {
	struct lp_work work;
	int fd;
	int result;
	bool is_unsupported;
	uint32_t requests; /* since the last check */
	uint32_t shard;    /* of the channel's shards, the next to be checked */
	struct lpi_fuse_prune_out out;
};

/* Makes the channel's namespaces report changes by others to it; called before the kernel learns
 * anything. unwatch() ends this. A kernel that may not cache anything need not be told. */
void lpi_fuse_watch(struct lp_fuse_channel *channel);
void lpi_fuse_unwatch(struct lp_fuse_channel *channel);
/* The connection has ended: later changes need not be told. */
void lpi_fuse_end_telling(struct lp_fuse_channel *channel);
/* The meaning of the kernel's answer to a notice of a name or of an inode. 0: the kernel knows.
 * -EAGAIN: it may get to know the inode, or cannot be told now. Otherwise it cannot be told at all.
 */
int lpi_fuse_told_result(bool is_name, int err);
/* Whether the kernel is being told a change. */
bool lpi_fuse_is_telling(const struct lp_fuse_channel *channel);

/* Called for each request: checks at intervals whether the kernel holds too many inodes. */
void lpi_fuse_prune_check(struct lp_fuse_channel *channel);

#endif
