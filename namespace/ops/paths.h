/* SPDX-License-Identifier: Apache-2.0 */
/* Steps that operations on paths share.
 *
 * Threads: the shard's.
 * Blocking, memory: none.
 *
 * A job that ends while these go on is ended by lpi_path_end(). That may be from inside a submit.
 * An object that the job had open is closed.
 */
#ifndef LP_NAMESPACE_OPS_PATHS_H
#define LP_NAMESPACE_OPS_PATHS_H

#include "namespace/ops/names.h"

/* How often an operation begins again from the root because a directory that it had found was
 * removed or moved meanwhile; then it is -EAGAIN. */
#define LPI_PATH_TRIES_MAX 64u

/* Checks that a path names an entry in a directory. -EINVAL, -ENAMETOOLONG; -EISDIR: the root. */
int lpi_path_check(struct lp_bytes path) LP_MUST_CHECK;

/* Finds the directory of a path's last name, and goes on with next, perhaps from inside this call.
 * job->walk.result is 0, and job->entry is the place of the entry. Or it is -ENOENT, and job->entry
 * is the missing directory's; or -ENOTDIR or the store's error. With makes_dirs missing directories
 * are made, as a put does (rule N2). job->entry.ino is not looked up. */
void lpi_walk(struct lpi_job *job, struct lp_bytes path, bool makes_dirs, lpi_step_fn *next);
/* A directory that the walk had found is gone: gives back all locks, drops the change, and walks
 * again from the root. Ends the job with -EAGAIN if that happens too often. */
void lpi_walk_again(struct lpi_job *job);

void lpi_path_end(struct lpi_job *job, int result);

/* --- Objects that get names (ops/put.c) --------------------------------------------------------
 */

/* Makes an inode without a name, open and marked as an upload, on put.shard_idx: put.upload, which
 * is job->new_ino, too. Ends the job after an error. */
void lpi_upload_make(struct lpi_job *job, lpi_step_fn *next);
/* Sets put.xattrs from put.xattr_idx on, until the naming can take those that are left. */
void lpi_upload_set_xattrs(struct lpi_job *job, lpi_step_fn *next);
/* put.upload, or a new inode, takes the name put.path: next when that has happened, durably: the
 * inode is job->new_ino, its attributes are put.attrs. Ends the job after an error. */
void lpi_put_name(struct lpi_job *job, lpi_step_fn *next);

/* --- Directories that a delete empties (ops/delete.c)
 * ------------------------------------------ */

/* Removes the directory of a path after a name in it was removed, if a put made the directory and
 * it is empty; then the one above it, and so on (rule N2). Goes on with next in any case. */
void lpi_prune(struct lpi_job *job, struct lp_bytes path, lpi_step_fn *next);

#endif
