/* SPDX-License-Identifier: Apache-2.0 */
/* What programs have written to mappings, and the kernel has not handed over: who looks for data
 * and holes must not take it for a hole, and the kernel asks for those without writing it first.
 *
 * Such pages are only of inodes that somebody has open for reading and writing, a mapping counts.
 * How many have is counted in a table of fixed size, several inodes in one place; so nothing is
 * done for those that nobody can have mapped. For the others the kernel is told that their pages
 * are to go, and it writes what is dirty before; it does not need the inode's lock for that, which
 * whoever looks for data has. At most LPI_FUSE_LAUNDERS of a channel do so at a time, so that there
 * is always room for the writes that they wait for.
 *
 * The thread that tells it is not the notifier's: that may wait for a directory's lock, whose
 * holder may wait for the lock of the one who looks for data.
 *
 * Threads: the channel's; the table is for all. Blocking, allocation: none.
 */
#ifndef LP_FUSE_KERNEL_LAUNDER_H
#define LP_FUSE_KERNEL_LAUNDER_H

#include <stdatomic.h>

#include "base/loop/workers.h"
#include "fuse/request.h"

#define LPI_FUSE_LAUNDERS 8u
#define LPI_FUSE_MAPPERS  (1u << 12)

/* Of a file's handle, by which it may be mapped and written. */
#define LPI_FUSE_HANDLE_MAPS (UINT64_C(1) << 62)

struct lpi_fuse_launder {
	struct lp_work work;
	struct lpi_fuse_request *request;
	lpi_fuse_step_fn *next;
	uint64_t offset;
	int fd;
	int result;
};

/* Zeroed: nobody maps anything. The mount's first channel's mappers count. */
struct lpi_fuse_launders {
	struct lpi_fuse_launder items[LPI_FUSE_LAUNDERS];
	_Atomic uint32_t mappers[LPI_FUSE_MAPPERS];
};

/* It is about to be open with these flags; returns the handle's bits. */
uint64_t lpi_fuse_mapper_add(const struct lp_fuse_channel *channel, struct lp_ino ino,
			     uint32_t flags);
/* It was not, or is no more. */
void lpi_fuse_mapper_drop(const struct lp_fuse_channel *channel, struct lp_ino ino,
			  uint64_t handle);
bool lpi_fuse_may_be_mapped(const struct lp_fuse_channel *channel, struct lp_ino ino);

/* When next() is called the kernel has tried to hand over what is dirty from offset on, or
 * request->failure says that it may not have: it was not told, or does not know the inode, which
 * has no pages then. That a write of it failed it does not say here: who syncs is told. next() is
 * not called before this returns. -EBUSY: too many are at it. */
int lpi_fuse_launder(struct lpi_fuse_request *request, uint64_t offset,
		     lpi_fuse_step_fn *next) LP_MUST_CHECK;
bool lpi_fuse_is_laundering(const struct lp_fuse_channel *channel);

#endif
