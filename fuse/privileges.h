/* SPDX-License-Identifier: Apache-2.0 */
/* Mutual exclusion of running a set-user-ID program and changing it (rule M5).
 *
 * Threads: the channel's; the tables are for all.
 * Blocking, memory: none.
 * Errors: -ETXTBSY.
 * Limits: the notes are in tables of fixed size. Inodes that share a place may be refused for each
 *   other; nothing is missed.
 *
 * The kernel decides by the mode in its memory whether a program gets the rights of its owner. It
 * looks at the mode when it opens the program, and uses it some time later. A write in between
 * takes set-user-ID away here, and the kernel does not notice. It would run content of another user
 * with the owner's rights. So for each inode the two exclude each other:
 *
 *   a write that takes bits    is refused (ETXTBSY) if a program is open to be run. The kernel
 *                              itself refuses that later
 *   an open to run a program   is refused (ETXTBSY) while such a write is under way. If there has
 *                              ever been one, the kernel is first made to ask for attributes,
 *                              until it has the current ones
 *
 * Where the mount is not root's the kernel gives no rights, and nothing is noted.
 *
 * INVAL_INODE does not make the kernel look again, so it does not help. In a build in which reading
 * does not refresh attributes, half of the tries without this module ran changed content. Where the
 * kernel cannot be reached (something is mounted over the mount, it was detached) the program is
 * not run. Delaying the write was rejected: it holds buffers, and the kernel's question needs some.
 */
#ifndef LP_FUSE_PRIVILEGES_H
#define LP_FUSE_PRIVILEGES_H

#include <stdatomic.h>

#include "base/loop/workers.h"
#include "fuse/request.h"

#define LPI_FUSE_PRIVILEGE_SLOTS (1u << 12)
#define LPI_FUSE_REFRESHES       32u /* of a channel, at a time */

/* The flag that the kernel adds to an open that is to run a program. */
#define LPI_FUSE_OPEN_EXEC 0x20u
/* Bit of a file's handle: it was opened to be run. */
#define LPI_FUSE_HANDLE_RUNS (UINT64_C(1) << 59)

/* A job that makes the kernel ask for attributes. */
struct lpi_fuse_refresh {
	struct lp_work work;
	struct lpi_fuse_request *request; /* NULL: it is free */
	lpi_fuse_step_fn *next;
	int result;
};

/* Zeroed: no program is run or changed. The tables of the mount's first channel count. */
struct lpi_fuse_privileges {
	struct lpi_fuse_refresh refreshes[LPI_FUSE_REFRESHES];
	_Atomic uint32_t
		runners[LPI_FUSE_PRIVILEGE_SLOTS]; /* handles that are open to run a program */
	_Atomic uint32_t killers[LPI_FUSE_PRIVILEGE_SLOTS]; /* writes under way that take bits */
	_Atomic bool has_killed[LPI_FUSE_PRIVILEGE_SLOTS];
	bool has_warned; /* the channel's */
};

/* The request is about to take bits from its inode, together with a change of the data. -ETXTBSY:
 * it must not. Otherwise the caller calls lpi_fuse_killed() when the change is done or has failed.
 */
int lpi_fuse_kill(struct lpi_fuse_request *request) LP_MUST_CHECK;
void lpi_fuse_killed(struct lpi_fuse_request *request);

/* The request opens its inode. next() may be called before this returns. request->failure is then
 * 0, or -ETXTBSY if the open is refused. If it is 0 and the file is opened to be run, the file
 * counts as run until lpi_fuse_run_end(). */
void lpi_fuse_run(struct lpi_fuse_request *request, lpi_fuse_step_fn *next);
/* The handle's bit if the file is opened to be run; otherwise 0. */
uint64_t lpi_fuse_run_bit(const struct lpi_fuse_request *request);
/* The file was not opened, or has been closed. Takes the handle's bits. */
void lpi_fuse_run_end(const struct lp_fuse_channel *channel, struct lp_ino ino, uint64_t handle);

/* Whether a refresh is under way. */
bool lpi_fuse_is_refreshing(const struct lp_fuse_channel *channel);

#endif
