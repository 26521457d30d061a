/* SPDX-License-Identifier: Apache-2.0 */
/* Changes of a file's data or owner, with times and the privileges that they take away.
 *
 * Threads: the channel's.
 * Blocking, memory: none.
 *
 * The kernel relies on us for this: set-user-ID, set-group-ID, and the attribute
 * security.capability.
 */
#ifndef LP_FUSE_OPS_CHANGE_H
#define LP_FUSE_OPS_CHANGE_H

#include "fuse/request.h"

#define LPI_FUSE_CAPABILITY  "security.capability"
#define LPI_FUSE_CHANGE_DATA 2u /* index of the data's change in request->changes */

/* Prepares a change of data; the caller fills in the returned change. mask: the attributes that
 * change with it. mtime and ctime always change, and are set to now unless they are in the mask. */
struct lp_change *lpi_fuse_change_data(struct lpi_fuse_request *request, enum lp_change_type type,
				       uint32_t mask);
/* The same without data, for a change of owner. mask: the other attributes that change, never the
 * mode. */
void lpi_fuse_change_owner(struct lpi_fuse_request *request, uint32_t mask);
/* The change fails with -EPERM if the inode has one of these flags. */
void lpi_fuse_change_unless(struct lpi_fuse_request *request, uint32_t flags);
/* The times do not change: the kernel keeps them, and will set them later. */
void lpi_fuse_change_no_times(struct lpi_fuse_request *request);
/* Makes the change in one transaction. next() finds the result in op. -EAGAIN: others changed the
 * privileges again and again meanwhile. */
void lpi_fuse_change_submit(struct lpi_fuse_request *request, bool kill_suidgid,
			    lpi_fuse_step_fn *next);
/* Whether a change by this caller takes the bits even if the kernel does not say so: the caller is
 * not root. */
bool lpi_fuse_kills(const struct lpi_fuse_request *request);

#endif
