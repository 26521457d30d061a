/* SPDX-License-Identifier: Apache-2.0 */
/* The table of implemented opcodes. An opcode that is not in it is answered with ENOSYS. The kernel
 * remembers this answer, does not ask again, and does what it can by itself. */
#include "fuse/ops/ops.h"

#include "fuse/channel_state.h"

static void destroy(struct lpi_fuse_request *request)
{
	lpi_fuse_answer(request, 0);
}

static lpi_fuse_step_fn *const steps[] = {
	[FUSE_LOOKUP] = lpi_fuse_lookup,       [FUSE_FORGET] = lpi_fuse_forget,
	[FUSE_BATCH_FORGET] = lpi_fuse_forget, [FUSE_GETATTR] = lpi_fuse_getattr,
	[FUSE_SETATTR] = lpi_fuse_setattr,     [FUSE_READLINK] = lpi_fuse_readlink,
	[FUSE_SYMLINK] = lpi_fuse_symlink,     [FUSE_MKNOD] = lpi_fuse_mknod,
	[FUSE_MKDIR] = lpi_fuse_mkdir,         [FUSE_UNLINK] = lpi_fuse_unlink,
	[FUSE_RMDIR] = lpi_fuse_rmdir,         [FUSE_RENAME] = lpi_fuse_rename,
	[FUSE_LINK] = lpi_fuse_link,           [FUSE_OPEN] = lpi_fuse_open,
	[FUSE_READ] = lpi_fuse_read,           [FUSE_WRITE] = lpi_fuse_write,
	[FUSE_STATFS] = lpi_fuse_statfs,       [FUSE_RELEASE] = lpi_fuse_release,
	[FUSE_SETXATTR] = lpi_fuse_setxattr,   [FUSE_GETXATTR] = lpi_fuse_getxattr,
	[FUSE_LISTXATTR] = lpi_fuse_listxattr, [FUSE_REMOVEXATTR] = lpi_fuse_removexattr,
	[FUSE_FSYNC] = lpi_fuse_fsync,         [FUSE_OPENDIR] = lpi_fuse_opendir,
	[FUSE_READDIR] = lpi_fuse_readdir,     [FUSE_RELEASEDIR] = lpi_fuse_releasedir,
	[FUSE_FSYNCDIR] = lpi_fuse_fsync,      [FUSE_FALLOCATE] = lpi_fuse_fallocate,
	[FUSE_LSEEK] = lpi_fuse_lseek,         [FUSE_COPY_FILE_RANGE] = lpi_fuse_copy,
	[FUSE_TMPFILE] = lpi_fuse_create,      [LP_FUSE_STATX] = lpi_fuse_statx,
	[FUSE_CREATE] = lpi_fuse_create,       [FUSE_DESTROY] = destroy,
	[FUSE_IOCTL] = lpi_fuse_ioctl,         [FUSE_READDIRPLUS] = lpi_fuse_readdir,
	[FUSE_RENAME2] = lpi_fuse_rename,      [FUSE_SYNCFS] = lpi_fuse_syncfs,
};

static lpi_fuse_step_fn *find(uint32_t opcode)
{
	return opcode < LP_ARRAY_SIZE(steps) ? steps[opcode] : NULL;
}

int lp_fuse_channel_new(const struct lp_fuse_channel_options *options,
			struct lp_fuse_channel **ret_channel)
{
	return lpi_fuse_channel_new(options, find, ret_channel);
}
