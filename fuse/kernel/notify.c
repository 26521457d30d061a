/* SPDX-License-Identifier: Apache-2.0 */
/* Changes by others come as notices of the namespace. The kernel gets one message for each item, in
 * the order in which the items came. A notice of a name makes it look again; it locks the
 * directory, so a lookup that is under way has ended then. A notice of an inode makes the kernel
 * ask for attributes again, and drops pages. The kernel waits for pages that are being read or
 * written. It does not believe answers that are older than the notice. If it does not know the name
 * or the inode, the namespace judges what that means.
 *
 * To limit the inodes that the kernel remembers, some of them are named to it. It forgets those
 * that no program uses, and sends FORGET for them as usual. It keeps those in use, so no request
 * ever fails because of this. An older kernel does not know the message and keeps as many inodes as
 * its memory allows. */
#include "fuse/kernel/notify.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/error.h"
#include "base/log.h"
#include "fuse/channel_state.h"
#include "fuse/kernel/reach.h"

#define REQUESTS_BETWEEN 64u
#define ASKS_MAX         100u

/* --- Changes by others ------------------------------------------------------------------------ */

/* Writes out, then more. */
static int say(int fd, int code, const void *out, size_t out_len, struct lp_bytes more)
{
	struct fuse_out_header header = {.error = code};
	struct iovec iovs[3] = {{&header, sizeof(header)},
				{(void *)(uintptr_t)out, out_len},
				{(void *)(uintptr_t)more.data, more.len}};
	header.len = (uint32_t)(sizeof(header) + out_len + more.len);
	return writev(fd, iovs, more.len > 0 ? 3 : 2) < 0 ? -errno : 0;
}

static int say_name(int fd, const struct lp_ns_notice *notice, const struct lp_ns_news *item)
{
	char name[256] = "";
	const struct fuse_notify_inval_entry_out out = {.parent = item->ino.nr,
							.namelen = item->name_len};
	LP_ASSERT(item->name_len < sizeof(name));
	memcpy(name, notice->names + item->name_at, item->name_len);
	return say(fd, FUSE_NOTIFY_INVAL_ENTRY, &out, sizeof(out),
		   (struct lp_bytes){name, item->name_len + 1u});
}

/* The kernel learns of a new end when it asks for attributes. It asks for those of an open file
 * only when a program reads beyond the end that it knows. It throws the answer away if the inode
 * changes meanwhile, and then reads by the old end. So it is made to ask until it has the answer's
 * end. */
static int say_end(int fd, uint64_t end)
{
	struct statx is;
	struct statx believed;
	if (statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_SIZE, &believed) < 0)
		return -errno;
	if (end <= believed.stx_size)
		return 0;
	for (uint32_t i = 0; i < ASKS_MAX; i++) {
		if (statx(fd, "", AT_EMPTY_PATH | AT_STATX_FORCE_SYNC, STATX_SIZE, &is) < 0 ||
		    statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_SIZE, &believed) < 0)
			return -errno;
		if (is.stx_size == believed.stx_size)
			return 0;
	}
	return -EAGAIN;
}

/* Data up to end has changed; UINT64_MAX: the file may be shorter now. */
static int tell_end(const struct lp_fuse_channel *channel, struct lp_ino ino, uint64_t end)
{
	int fd = lpi_fuse_reach(channel, ino);
	/* If the inode cannot be reached, the kernel asks for the size when a program next needs
	 * it. */
	if (fd < 0)
		return 0;
	int err = say_end(fd, end);
	(void)close(fd); /* nothing was written */
	return err == -EAGAIN ? err : 0;
}

/* An offset below 0 leaves the pages alone; a length of 0 is all up to the end. */
static int say_inode(const struct lp_fuse_channel *channel, int fd, const struct lp_ns_news *item)
{
	struct fuse_notify_inval_inode_out out = {.ino = item->ino.nr, .off = -1};
	const struct lp_bytes nothing = {0};
	if (!item->has_data)
		return say(fd, FUSE_NOTIFY_INVAL_INODE, &out, sizeof(out), nothing);
	out.off = (int64_t)item->offset;
	out.len = (int64_t)item->length;
	/* A write by the mount may be on its way to a page that is dropped. */
	lpi_fuse_pages_begin_drop(channel, item->ino);
	int err = say(fd, FUSE_NOTIFY_INVAL_INODE, &out, sizeof(out), nothing);
	lpi_fuse_pages_end_drop(channel, item->ino, true);
	if (err < 0)
		return err;
	return tell_end(channel, item->ino,
			item->length == 0 ? UINT64_MAX : item->offset + item->length);
}

int lpi_fuse_told_result(bool is_name, int err)
{
	switch (err) {
	case -ENOENT:
		return is_name ? 0 : -EAGAIN;
	case -ENOTDIR: /* the inode cannot have names */
	case -ENOTCONN:
	case -ENODEV: /* the mount has ended */
		return 0;
	case -ENOMEM:
	case -EINTR:
	case -EBADF: /* the channel does not serve yet */
		return -EAGAIN;
	default:
		return err;
	}
}

/* On the thread that may block. */
static void run_tell(struct lp_work *work)
{
	struct lp_ns_notice *notice = LP_CONTAINER_OF(work, struct lp_ns_notice, work);
	int fd = notice->fd;
	notice->failure = 0;
	for (uint32_t i = 0; i < notice->item_cnt; i++) {
		struct lp_ns_news *item = &notice->items[i];
		bool is_name = item->name_len > 0;
		int err =
			is_name ? say_name(fd, notice, item) : say_inode(notice->teller, fd, item);
		/* The kernel knows its root as long as there is a mount. */
		err = lpi_fuse_told_result(is_name || item->ino.nr == LP_INO_ROOT.nr, err);
		item->is_unknown = err == -EAGAIN;
		if (err < 0 && err != -EAGAIN)
			notice->failure = err;
	}
}

/* From now on the kernel may not cache anything. Data that it has cached already cannot be dropped
 * any more. */
static void stop_believing(const struct lp_fuse_channel *channel, int err)
{
	for (uint32_t i = 0; i < channel->peer_cnt; i++)
		atomic_store_explicit(&channel->peers[i]->is_mute, true, memory_order_relaxed);
	LP_LOG_ERROR("the mount: the kernel cannot be told what has changed (%s): it is to keep "
		     "nothing from now on; unmount to be rid of what it has",
		     lp_strerror(err));
}

static void told(struct lp_work *work)
{
	struct lp_ns_notice *notice = LP_CONTAINER_OF(work, struct lp_ns_notice, work);
	struct lp_fuse_channel *channel = notice->teller;
	LP_ASSERT(channel->notice_cnt > 0);
	channel->notice_cnt--;
	if (notice->failure < 0)
		stop_believing(channel, notice->failure);
	lp_ns_told(notice);
	lpi_fuse_channel_told(channel);
}

static void tell(void *arg, struct lp_ns_notice *notice)
{
	struct lp_fuse_channel *channel = arg;
	/* The connection has ended, so no kernel has anything cached. */
	if (atomic_load_explicit(&channel->is_over, memory_order_relaxed)) {
		notice->item_cnt = 0;
		lp_ns_told(notice);
		return;
	}
	channel->notice_cnt++;
	notice->teller = channel;
	/* The channel keeps the descriptor while notices are under way. */
	notice->fd = channel->fd;
	notice->work.run = run_tell;
	notice->work.done = told;
	lp_workers_submit(channel->options.notifier, channel->options.reactor, &notice->work);
}

static void late(void *arg)
{
	(void)arg;
	/* The change may also be the new end after an append by the mount itself, which is always
	 * answered first. */
	LP_LOG_WARN("the mount: the kernel takes long to be told of a change; if that came through "
		    "a socket it was answered before");
}

static void untold(void *arg)
{
	stop_believing(arg, -ENOMEM);
}

void lpi_fuse_end_telling(struct lp_fuse_channel *channel)
{
	for (uint32_t i = 0; i < channel->peer_cnt; i++)
		atomic_store_explicit(&channel->peers[i]->is_over, true, memory_order_relaxed);
}

void lpi_fuse_watch(struct lp_fuse_channel *channel)
{
	const struct lp_fuse_channel_options *options = &channel->options;
	const struct lp_fuse_behaviour *behaviour = &options->behaviour;
	const struct lp_ns_watch watch = {.tell = tell,
					  .late = late,
					  .untold = untold,
					  .only_data = behaviour->entry_ns == 0 &&
						       behaviour->attr_ns == 0,
					  .arg = channel};
	if (options->notifier == NULL || behaviour->is_only_door)
		return;
	for (uint32_t i = 0; i < options->store_cnt; i++)
		lp_ns_watch(options->nss[i], &watch);
	channel->is_watching = true;
}

void lpi_fuse_unwatch(struct lp_fuse_channel *channel)
{
	for (uint32_t i = 0; channel->is_watching && i < channel->options.store_cnt; i++)
		lp_ns_watch(channel->options.nss[i], NULL);
	channel->is_watching = false;
}

/* --- Too many inodes -------------------------------------------------------------------------- */

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
	lpi_fuse_channel_told(channel);
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

bool lpi_fuse_is_telling(const struct lp_fuse_channel *channel)
{
	return channel->notice_cnt > 0 || !lp_work_is_idle(&channel->prune.work) ||
	       lpi_fuse_is_laundering(channel) || lpi_fuse_is_dropping(channel) ||
	       lpi_fuse_is_refreshing(channel);
}

void lpi_fuse_prune_check(struct lp_fuse_channel *channel)
{
	const struct lp_fuse_channel_options *options = &channel->options;
	struct lpi_fuse_prune *prune = &channel->prune;
	struct lp_ino inos[LPI_FUSE_PRUNE_CNT];
	if (++prune->requests < REQUESTS_BETWEEN || options->notifier == NULL ||
	    channel->is_to_stop || options->behaviour.inodes_max == 0 || prune->is_unsupported ||
	    !lp_work_is_idle(&prune->work))
		return;
	prune->requests = 0;
	prune->shard = (prune->shard + 1) % options->store_cnt;
	uint32_t cnt = lp_ns_crowd(options->nss[prune->shard], options->behaviour.inodes_max, inos,
				   LPI_FUSE_PRUNE_CNT);
	if (cnt > 0)
		submit(channel, inos, cnt);
}
