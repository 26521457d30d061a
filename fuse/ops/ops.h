/* SPDX-License-Identifier: Apache-2.0 */
/* Opcodes of the mount: the first step of each, for the table in ops.c.
 *
 * Threads: the channel's.
 * Blocking, memory: none.
 */
#ifndef LP_FUSE_OPS_OPS_H
#define LP_FUSE_OPS_OPS_H

#include "fuse/request.h"

lpi_fuse_step_fn lpi_fuse_forget;
lpi_fuse_step_fn lpi_fuse_lookup;
lpi_fuse_step_fn lpi_fuse_mknod;
lpi_fuse_step_fn lpi_fuse_mkdir;
lpi_fuse_step_fn lpi_fuse_symlink;
lpi_fuse_step_fn lpi_fuse_create;
lpi_fuse_step_fn lpi_fuse_unlink;
lpi_fuse_step_fn lpi_fuse_rmdir;
lpi_fuse_step_fn lpi_fuse_rename;
lpi_fuse_step_fn lpi_fuse_link;

lpi_fuse_step_fn lpi_fuse_getattr;
lpi_fuse_step_fn lpi_fuse_setattr;
lpi_fuse_step_fn lpi_fuse_readlink;
lpi_fuse_step_fn lpi_fuse_statfs;

lpi_fuse_step_fn lpi_fuse_open;
lpi_fuse_step_fn lpi_fuse_release;
lpi_fuse_step_fn lpi_fuse_read;
lpi_fuse_step_fn lpi_fuse_write;
lpi_fuse_step_fn lpi_fuse_fsync;
lpi_fuse_step_fn lpi_fuse_syncfs;

lpi_fuse_step_fn lpi_fuse_statx;

lpi_fuse_step_fn lpi_fuse_ioctl;
/* Whether the flags of an inode allow an open with open_flags. */
bool lpi_fuse_flags_let_open(uint32_t flags, uint32_t open_flags);

lpi_fuse_step_fn lpi_fuse_fallocate;
lpi_fuse_step_fn lpi_fuse_lseek;
lpi_fuse_step_fn lpi_fuse_copy;

lpi_fuse_step_fn lpi_fuse_getxattr;
lpi_fuse_step_fn lpi_fuse_listxattr;
lpi_fuse_step_fn lpi_fuse_setxattr;
lpi_fuse_step_fn lpi_fuse_removexattr;

lpi_fuse_step_fn lpi_fuse_opendir;
lpi_fuse_step_fn lpi_fuse_readdir;
lpi_fuse_step_fn lpi_fuse_releasedir;

/* The handle of a directory that has been opened, with a reading; and its end. */
uint64_t lpi_fuse_begin_reading(struct lpi_fuse_request *request);
void lpi_fuse_end_reading(struct lpi_fuse_request *request, uint64_t handle);

#endif
