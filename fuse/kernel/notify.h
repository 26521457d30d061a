/* SPDX-License-Identifier: Apache-2.0 */
/* Notifications to the kernel: changes by others (rule M2), and inodes to forget (rule N5).
 *
 * Threads: the channel's; a thread of its own writes the messages, which no serving thread waits
 *   for (rule M3).
 * Blocking, memory: none.
 *
 * Before such a message returns, the kernel may write back dirty pages, or wait for the lock of a
 * directory whose holder waits for us. Inodes to forget are named to it when it remembers more than
 * it is meant to.
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

/* Zeroed: idle, and supported as far as is known. */
struct lpi_fuse_prune {
	struct lp_work work;
	int fd;
	int result;
	bool is_unsupported;
	uint32_t requests; /* since it was last looked */
	uint32_t shard;    /* of the channel's: the next to be looked at */
	struct lpi_fuse_prune_out out;
};

/* The channel's namespaces tell it what others change, from before anything is told to the kernel;
 * and no more. Where the kernel believes nothing there is nothing to be told. */
void lpi_fuse_watch(struct lp_fuse_channel *channel);
void lpi_fuse_unwatch(struct lp_fuse_channel *channel);
/* The connection has ended: what changes from now on nobody has to be told. */
void lpi_fuse_end_telling(struct lp_fuse_channel *channel);
/* What the kernel's answer to a notice of a name, or of an inode, means: 0: it knows; -EAGAIN: it
 * may get to know the inode, or cannot be told now; else it cannot be told at all. */
int lpi_fuse_told_result(bool is_name, int err);
/* The kernel is being told something. */
bool lpi_fuse_is_telling(const struct lp_fuse_channel *channel);

/* A request has come: now and then looks whether too much is held. */
void lpi_fuse_prune_check(struct lp_fuse_channel *channel);

#endif
