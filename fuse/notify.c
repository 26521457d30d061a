/* SPDX-License-Identifier: Apache-2.0 */
/* Some of the inodes that are held are named to the kernel; it forgets those that nobody uses, and
 * says so by FORGET as ever. Those in use it keeps: nothing is ever refused for this. An older
 * kernel does not know the message, and then it is up to its own memory what it keeps. */
#include "fuse/notify.h"

#include <errno.h>
#include <stddef.h>
#include <unistd.h>

#include "base/log.h"
#include "fuse/channel_impl.h"

#define REQUESTS_BETWEEN 64u

/* On the thread that may block. */
static void run_prune(struct lp_work *work)
{
	struct lpi_fuse_prune *prune = LP_CONTAINER_OF(work, struct lpi_fuse_prune, work);
	ssize_t len = write(prune->fd, &prune->out, prune->out.header.len);
	prune->result = len < 0 ? -errno : 0;
}

static void pruned(struct lp_work *work)
{
	struct lpi_fuse_prune *prune = LP_CONTAINER_OF(work, struct lpi_fuse_prune, work);
	struct lp_fuse_channel *channel = LP_CONTAINER_OF(prune, struct lp_fuse_channel, prune);
	if (prune->result == -EINVAL) {
		prune->is_unsupported = true;
		LP_LOG_INFO("the mount: this kernel does not forget inodes when it is asked to "
			    "(Linux 6.18 does)");
	}
	lpi_fuse_channel_pruned(channel);
}

static void submit(struct lp_fuse_channel *channel, const struct lp_ino *inos, uint32_t cnt)
{
	struct lpi_fuse_prune *prune = &channel->prune;
	for (uint32_t i = 0; i < cnt; i++)
		prune->out.nodeids[i] = inos[i].nr;
	prune->out.count = cnt;
	prune->out.header = (struct fuse_out_header){
		.len = (uint32_t)(offsetof(struct lpi_fuse_prune_out, nodeids) +
				  cnt * sizeof(uint64_t)),
		.error = LPI_FUSE_NOTIFY_PRUNE};
	prune->fd = channel->fd;
	prune->work.run = run_prune;
	prune->work.done = pruned;
	lp_workers_submit(channel->options.notifier, channel->options.reactor, &prune->work);
}

bool lpi_fuse_prune_is_idle(const struct lp_fuse_channel *channel)
{
	return channel->prune.work.workers == NULL;
}

void lpi_fuse_prune_check(struct lp_fuse_channel *channel)
{
	const struct lp_fuse_channel_options *options = &channel->options;
	struct lpi_fuse_prune *prune = &channel->prune;
	struct lp_ino inos[LPI_FUSE_PRUNE_CNT];
	if (++prune->requests < REQUESTS_BETWEEN || options->notifier == NULL ||
	    channel->is_to_stop || options->behaviour.inodes_max == 0 || prune->is_unsupported ||
	    !lpi_fuse_prune_is_idle(channel))
		return;
	prune->requests = 0;
	prune->shard = (prune->shard + 1) % options->store_cnt;
	uint32_t cnt = lp_ns_crowd(options->nss[prune->shard], options->behaviour.inodes_max, inos,
				   LPI_FUSE_PRUNE_CNT);
	if (cnt > 0)
		submit(channel, inos, cnt);
}
