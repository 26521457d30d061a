/* SPDX-License-Identifier: Apache-2.0 */
/* What a channel tells the kernel without having been asked: to forget inodes that it does not use,
 * when it remembers more than it is meant to (rule N5).
 *
 * The kernel may write back what is dirty before such a message returns, and so wait for us: it is
 * written by a thread of its own, which nobody waits for (rule M3).
 *
 * Threads: the channel's. Blocking, allocation: none.
 */
#ifndef LP_FUSE_NOTIFY_H
#define LP_FUSE_NOTIFY_H

#include "base/workers.h"
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

/* A request has come: now and then looks whether too much is held. */
void lpi_fuse_prune_check(struct lp_fuse_channel *channel);
bool lpi_fuse_prune_is_idle(const struct lp_fuse_channel *channel);

#endif
