/* SPDX-License-Identifier: Apache-2.0 */
/* Writing of dirty mmap pages before a search for data or holes.
 *
 * Threads: the channel's; the table is for all. The thread that tells the kernel is not the
 *   notifier's, which may wait for a directory's lock, whose holder may wait for the lock of the
 *   program that searches.
 * Blocking, memory: none.
 * Limits: LPI_FUSE_LAUNDERS of a channel at a time, so that there is always room for the writes
 *   that they wait for. The table has LPI_FUSE_MAPPERS places.
 *
 * The kernel asks for data and holes without writing dirty pages of a mapping first, so they would
 * look like holes. Such pages are only of inodes that are open for reading and writing (a mapping
 * counts). How many openers there are is counted in a table of fixed size, several inodes in one
 * place. Nothing is done for an inode without openers. For the others the kernel is told to drop
 * their pages, and it writes the dirty ones first. It does not need the inode's lock for that,
 * which the search holds.
 */
#ifndef LP_FUSE_KERNEL_LAUNDER_H
#define LP_FUSE_KERNEL_LAUNDER_H

#include <stdatomic.h>

#include "base/loop/workers.h"
#include "fuse/request.h"

#define LPI_FUSE_LAUNDERS 8u
#define LPI_FUSE_MAPPERS  (1u << 12)

/* Bit of a file's handle by which the file may be mapped and written. */
#define LPI_FUSE_HANDLE_MAPS (UINT64_C(1) << 62)

struct lpi_fuse_launder {
	struct lp_work work;
	struct lpi_fuse_request *request;
	lpi_fuse_step_fn *next;
	uint64_t offset;
	int fd;
	int result;
};

/* Zeroed: there are no mappings. The mappers of the mount's first channel count. */
struct lpi_fuse_launders {
	struct lpi_fuse_launder items[LPI_FUSE_LAUNDERS];
	_Atomic uint32_t mappers[LPI_FUSE_MAPPERS];
};

/* A file is about to be opened with these flags. Returns the handle's bits. */
uint64_t lpi_fuse_mapper_add(const struct lp_fuse_channel *channel, struct lp_ino ino,
			     uint32_t flags);
/* The file was not opened, or has been closed. */
void lpi_fuse_mapper_drop(const struct lp_fuse_channel *channel, struct lp_ino ino,
			  uint64_t handle);
bool lpi_fuse_may_be_mapped(const struct lp_fuse_channel *channel, struct lp_ino ino);

/* Makes the kernel write dirty pages from offset on, then calls next(), never before this returns.
 * request->failure says if the kernel may not have written them: it was not told, or it does not
 * know the inode, and then has no pages of it. A failed write is not reported here but by the next
 * fsync. -EBUSY: too many launders are under way. */
int lpi_fuse_launder(struct lpi_fuse_request *request, uint64_t offset,
		     lpi_fuse_step_fn *next) LP_MUST_CHECK;
bool lpi_fuse_is_laundering(const struct lp_fuse_channel *channel);

#endif
