/* SPDX-License-Identifier: Apache-2.0 */
/* The message is INVAL_INODE, as for changes by others. Before the kernel drops the pages of the
 * range, it writes the dirty ones, each by a request that it waits for. */
#include "fuse/kernel/launder.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "fuse/channel_state.h"

/* --- Handles that may map a file -------------------------------------------------------------- */

static _Atomic uint32_t *mappers_of(const struct lp_fuse_channel *channel, struct lp_ino ino)
{
	uint64_t mixed = ino.nr * UINT64_C(0x9e3779b97f4a7c15);
	return &channel->peers[0]->launders.mappers[(mixed >> 32) % LPI_FUSE_MAPPERS];
}

uint64_t lpi_fuse_mapper_add(const struct lp_fuse_channel *channel, struct lp_ino ino,
			     uint32_t flags)
{
	if ((flags & O_ACCMODE) != O_RDWR)
		return 0;
	atomic_fetch_add(mappers_of(channel, ino), 1);
	return LPI_FUSE_HANDLE_MAPS;
}

void lpi_fuse_mapper_drop(const struct lp_fuse_channel *channel, struct lp_ino ino, uint64_t handle)
{
	if ((handle & LPI_FUSE_HANDLE_MAPS) != 0)
		atomic_fetch_sub(mappers_of(channel, ino), 1);
}

bool lpi_fuse_may_be_mapped(const struct lp_fuse_channel *channel, struct lp_ino ino)
{
	return atomic_load(mappers_of(channel, ino)) > 0;
}

/* --- Dirty pages ------------------------------------------------------------------------------ */

/* On the thread that may block. */
static void run(struct lp_work *work)
{
	struct lpi_fuse_launder *launder = LP_CONTAINER_OF(work, struct lpi_fuse_launder, work);
	struct {
		struct fuse_out_header header;
		struct fuse_notify_inval_inode_out out;
	} message = {
		.header = {.len = sizeof(message), .error = FUSE_NOTIFY_INVAL_INODE},
		.out = {.ino = lpi_fuse_own(launder->request).nr, .off = (int64_t)launder->offset}};
	ssize_t written = write(launder->fd, &message, sizeof(message));
	launder->result = written < 0 ? -errno : 0;
}

static void done(struct lp_work *work)
{
	struct lpi_fuse_launder *launder = LP_CONTAINER_OF(work, struct lpi_fuse_launder, work);
	struct lpi_fuse_request *request = launder->request;
	struct lp_fuse_channel *channel = request->channel;
	request->failure = launder->result;
	launder->request = NULL;
	launder->next(request);
	lpi_fuse_channel_told(channel);
}

int lpi_fuse_launder(struct lpi_fuse_request *request, uint64_t offset, lpi_fuse_step_fn *next)
{
	struct lp_fuse_channel *channel = request->channel;
	struct lpi_fuse_launders *launders = &channel->launders;
	LP_ASSERT(offset <= INT64_MAX);
	for (uint32_t i = 0; i < LPI_FUSE_LAUNDERS; i++) {
		struct lpi_fuse_launder *launder = &launders->items[i];
		if (launder->request != NULL)
			continue;
		launder->request = request;
		launder->next = next;
		launder->offset = offset;
		launder->fd = channel->fd;
		launder->work.run = run;
		launder->work.done = done;
		lp_workers_submit(channel->options.launderer, channel->options.reactor,
				  &launder->work);
		return 0;
	}
	return -EBUSY;
}

bool lpi_fuse_is_laundering(const struct lp_fuse_channel *channel)
{
	for (uint32_t i = 0; i < LPI_FUSE_LAUNDERS; i++) {
		if (channel->launders.items[i].request != NULL)
			return true;
	}
	return false;
}
