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
#define LPI_FUSE_CHANGE_DATA 2u /* of request->changes, once it is filled */

/* The change of data, for the caller to fill, and which attributes change with it; mtime and ctime
 * always do, and are now unless in the mask. */
struct lp_change *lpi_fuse_change_data(struct lpi_fuse_request *request, enum lp_change_type type,
				       uint32_t mask);
/* The same without data: the owner changes, and what else is in the mask, but not the mode. */
void lpi_fuse_change_owner(struct lpi_fuse_request *request, uint32_t mask);
/* An inode with one of these flags is not changed: -EPERM. */
void lpi_fuse_change_unless(struct lpi_fuse_request *request, uint32_t flags);
/* The times stay as they are: the kernel keeps them, and will say. */
void lpi_fuse_change_no_times(struct lpi_fuse_request *request);
/* Makes it, all in one transaction; next() finds the result in op: -EAGAIN, who changes the
 * privileges was faster again and again. */
void lpi_fuse_change_submit(struct lpi_fuse_request *request, bool kill_suidgid,
			    lpi_fuse_step_fn *next);
/* Whether a change by whoever asks takes the bits where the kernel does not say so: it is not
 * root. */
bool lpi_fuse_kills(const struct lpi_fuse_request *request);

#endif
