/* SPDX-License-Identifier: Apache-2.0 */
/* A write and an open each note themselves first, and then look for the other. So if both come at
 * the same time, at least one sees the other.
 *
 * To make the kernel ask, the module looks up the kernel's inode by number (fuse/kernel/reach.h)
 * and calls statx in the mode that ignores cached attributes. The kernel throws such an answer away
 * if the inode has changed meanwhile. So the kernel's attributes are then compared with the answer,
 * until they are equal. A thread of its own does that, because the mount has to answer (rule M3).
 * The waiting request has no buffers. */
#include "fuse/privileges.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/log.h"
#include "fuse/channel_state.h"
#include "fuse/kernel/reach.h"

/* Each try fails only if there was another write to the file just then. */
#define TRIES_MAX 1000u

/* --- Notes ------------------------------------------------------------------------------------ */

static struct lpi_fuse_privileges *notes_of(const struct lp_fuse_channel *channel)
{
	return &channel->peers[0]->privileges;
}

static uint32_t slot_of(struct lp_ino ino)
{
	uint64_t mixed = ino.nr * UINT64_C(0x9e3779b97f4a7c15);
	return (uint32_t)(mixed >> 32) % LPI_FUSE_PRIVILEGE_SLOTS;
}

static bool gives_rights(const struct lp_fuse_channel *channel)
{
	return channel->options.mount_dir != NULL;
}

int lpi_fuse_kill(struct lpi_fuse_request *request)
{
	struct lpi_fuse_privileges *notes = notes_of(request->channel);
	uint32_t slot = slot_of(lpi_fuse_node(request));
	if (request->is_killing || !gives_rights(request->channel))
		return 0;
	atomic_store(&notes->has_killed[slot], true);
	atomic_fetch_add(&notes->killers[slot], 1);
	if (atomic_load(&notes->runners[slot]) > 0) {
		atomic_fetch_sub(&notes->killers[slot], 1);
		return -ETXTBSY;
	}
	request->is_killing = true;
	return 0;
}

void lpi_fuse_killed(struct lpi_fuse_request *request)
{
	if (request->is_killing)
		atomic_fetch_sub(
			&notes_of(request->channel)->killers[slot_of(lpi_fuse_node(request))], 1);
	request->is_killing = false;
}

uint64_t lpi_fuse_run_bit(const struct lpi_fuse_request *request)
{
	return request->message.header.opcode == FUSE_OPEN && gives_rights(request->channel) &&
			       (request->message.in.open.flags & LPI_FUSE_OPEN_EXEC) != 0
		       ? LPI_FUSE_HANDLE_RUNS
		       : 0;
}

void lpi_fuse_run_end(const struct lp_fuse_channel *channel, struct lp_ino ino, uint64_t handle)
{
	if ((handle & LPI_FUSE_HANDLE_RUNS) != 0)
		atomic_fetch_sub(&notes_of(channel)->runners[slot_of(ino)], 1);
}

/* --- The kernel's attributes ------------------------------------------------------------------ */

static int refresh(int fd)
{
	struct statx is;
	struct statx believed;
	for (uint32_t i = 0; i < TRIES_MAX; i++) {
		if (statx(fd, "", AT_EMPTY_PATH | AT_STATX_FORCE_SYNC, STATX_MODE, &is) < 0 ||
		    statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_MODE, &believed) < 0)
			return -errno;
		if (is.stx_mode == believed.stx_mode)
			return 0;
	}
	return -EAGAIN;
}

/* On the thread that may block. */
static void run(struct lp_work *work)
{
	struct lpi_fuse_refresh *item = LP_CONTAINER_OF(work, struct lpi_fuse_refresh, work);
	const struct lpi_fuse_request *request = item->request;
	int fd = lpi_fuse_reach(request->channel, lpi_fuse_own(request));
	item->result = fd == -ESTALE ? 0 : fd < 0 ? fd : refresh(fd);
	if (fd >= 0)
		(void)close(fd); /* nothing was written */
}

/* Warns once, because any user can cause this at will. */
static void warn(struct lp_fuse_channel *channel, int err)
{
	if (!channel->privileges.has_warned)
		LP_LOG_WARN("the mount: a program that somebody else has written to is not run: "
			    "its mode cannot be told to the kernel: %s",
			    lp_strerror(err));
	channel->privileges.has_warned = true;
}

static void done(struct lp_work *work)
{
	struct lpi_fuse_refresh *item = LP_CONTAINER_OF(work, struct lpi_fuse_refresh, work);
	struct lpi_fuse_request *request = item->request;
	struct lp_fuse_channel *channel = request->channel;
	item->request = NULL;
	if (item->result < 0) {
		warn(channel, item->result);
		lpi_fuse_run_end(channel, lpi_fuse_own(request), LPI_FUSE_HANDLE_RUNS);
		request->failure = -ETXTBSY;
	}
	item->next(request);
	lpi_fuse_channel_told(channel);
}

/* False: too many refreshes are under way. */
static bool begin_refresh(struct lpi_fuse_request *request, lpi_fuse_step_fn *next)
{
	struct lp_fuse_channel *channel = request->channel;
	for (uint32_t i = 0; i < LPI_FUSE_REFRESHES; i++) {
		struct lpi_fuse_refresh *item = &channel->privileges.refreshes[i];
		if (item->request != NULL)
			continue;
		item->request = request;
		item->next = next;
		item->work.run = run;
		item->work.done = done;
		lp_workers_submit(channel->options.launderer, channel->options.reactor,
				  &item->work);
		return true;
	}
	return false;
}

void lpi_fuse_run(struct lpi_fuse_request *request, lpi_fuse_step_fn *next)
{
	struct lpi_fuse_privileges *notes = notes_of(request->channel);
	uint32_t slot = slot_of(lpi_fuse_own(request));
	request->failure = 0;
	if (lpi_fuse_run_bit(request) == 0) {
		next(request);
		return;
	}
	atomic_fetch_add(&notes->runners[slot], 1);
	bool is_changing = atomic_load(&notes->killers[slot]) > 0;
	if (!is_changing && !atomic_load(&notes->has_killed[slot])) {
		next(request);
		return;
	}
	if (is_changing || !begin_refresh(request, next)) {
		atomic_fetch_sub(&notes->runners[slot], 1);
		request->failure = -ETXTBSY;
		next(request);
	}
}

bool lpi_fuse_is_refreshing(const struct lp_fuse_channel *channel)
{
	for (uint32_t i = 0; i < LPI_FUSE_REFRESHES; i++) {
		if (channel->privileges.refreshes[i].request != NULL)
			return true;
	}
	return false;
}
