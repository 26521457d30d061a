/* SPDX-License-Identifier: Apache-2.0 */
/* The table, and the function that reads a message by it: fixed part, names, data, and then the
 * end, because an extra byte is as wrong as a missing one. */
#include "fuse/proto.h"

#include <string.h>

#define OF(member) .fixed_bytes = sizeof(((union lp_fuse_in *)0)->member)
/* The part of an INIT that all kernels send. */
#define INIT_MIN 16u

static const struct lp_fuse_opcode opcodes[] = {
	[FUSE_LOOKUP] = {.name = "lookup", .name_cnt = 1},
	[FUSE_FORGET] = {.name = "forget", OF(forget), .is_silent = true},
	[FUSE_GETATTR] = {.name = "getattr", OF(getattr)},
	[FUSE_SETATTR] = {.name = "setattr", OF(setattr)},
	[FUSE_READLINK] = {.name = "readlink"},
	[FUSE_SYMLINK] = {.name = "symlink", .name_cnt = 2},
	[FUSE_MKNOD] = {.name = "mknod", OF(mknod), .name_cnt = 1},
	[FUSE_MKDIR] = {.name = "mkdir", OF(mkdir), .name_cnt = 1},
	[FUSE_UNLINK] = {.name = "unlink", .name_cnt = 1},
	[FUSE_RMDIR] = {.name = "rmdir", .name_cnt = 1},
	[FUSE_RENAME] = {.name = "rename", OF(rename), .name_cnt = 2},
	[FUSE_LINK] = {.name = "link", OF(link), .name_cnt = 1},
	[FUSE_OPEN] = {.name = "open", OF(open)},
	[FUSE_READ] = {.name = "read", OF(read)},
	[FUSE_WRITE] = {.name = "write", OF(write), .data = LP_FUSE_DATA_WRITE},
	[FUSE_STATFS] = {.name = "statfs"},
	[FUSE_RELEASE] = {.name = "release", OF(release)},
	[FUSE_FSYNC] = {.name = "fsync", OF(fsync)},
	[FUSE_SETXATTR] = {.name = "setxattr",
			   OF(setxattr),
			   .name_cnt = 1,
			   .data = LP_FUSE_DATA_XATTR},
	[FUSE_GETXATTR] = {.name = "getxattr", OF(getxattr), .name_cnt = 1},
	[FUSE_LISTXATTR] = {.name = "listxattr", OF(getxattr)},
	[FUSE_REMOVEXATTR] = {.name = "removexattr", .name_cnt = 1},
	[FUSE_FLUSH] = {.name = "flush", OF(flush)},
	[FUSE_INIT] = {.name = "init", OF(init), .fixed_min_bytes = INIT_MIN},
	[FUSE_OPENDIR] = {.name = "opendir", OF(open)},
	[FUSE_READDIR] = {.name = "readdir", OF(read)},
	[FUSE_RELEASEDIR] = {.name = "releasedir", OF(release)},
	[FUSE_FSYNCDIR] = {.name = "fsyncdir", OF(fsync)},
	[FUSE_ACCESS] = {.name = "access", OF(access)},
	[FUSE_CREATE] = {.name = "create", OF(create), .name_cnt = 1},
	[FUSE_INTERRUPT] = {.name = "interrupt", OF(interrupt), .is_silent = true},
	[FUSE_DESTROY] = {.name = "destroy"},
	[FUSE_IOCTL] = {.name = "ioctl", OF(ioctl), .data = LP_FUSE_DATA_ANY},
	[FUSE_POLL] = {.name = "poll", OF(poll)},
	[FUSE_BATCH_FORGET] = {.name = "batch_forget",
			       OF(batch_forget),
			       .data = LP_FUSE_DATA_FORGETS,
			       .is_silent = true},
	[FUSE_FALLOCATE] = {.name = "fallocate", OF(fallocate)},
	[FUSE_READDIRPLUS] = {.name = "readdirplus", OF(read)},
	[FUSE_RENAME2] = {.name = "rename2", OF(rename2), .name_cnt = 2},
	[FUSE_LSEEK] = {.name = "lseek", OF(lseek)},
	[FUSE_COPY_FILE_RANGE] = {.name = "copy_file_range", OF(copy)},
	[FUSE_SYNCFS] = {.name = "syncfs", .fixed_bytes = sizeof(struct fuse_syncfs_in)},
	[FUSE_TMPFILE] = {.name = "tmpfile", OF(create), .name_cnt = 1},
	[LP_FUSE_STATX] = {.name = "statx", OF(statx)},
};

static_assert(sizeof(struct fuse_in_header) == 40, "as the protocol has it");
static_assert(LP_ARRAY_SIZE(opcodes) <= LP_FUSE_OPCODES, "each can be counted");
static_assert(sizeof(struct fuse_syncfs_in) <= sizeof(union lp_fuse_in), "there is room for it");

const struct lp_fuse_opcode *lp_fuse_opcode_find(uint32_t opcode)
{
	if (opcode >= LP_ARRAY_SIZE(opcodes) || opcodes[opcode].name == NULL)
		return NULL;
	return &opcodes[opcode];
}

/* The rest of a message. */
struct rest {
	const uint8_t *at;
	uint32_t bytes;
};

static bool take_fixed(struct rest *rest, struct lp_fuse_message *message)
{
	const struct lp_fuse_opcode *opcode = message->opcode;
	uint32_t bytes = opcode->fixed_bytes;
	if (opcode->fixed_min_bytes > 0)
		bytes = LP_MAX(LP_MIN(bytes, rest->bytes), opcode->fixed_min_bytes);
	if (bytes > rest->bytes)
		return false;
	memcpy(&message->in, rest->at, bytes);
	rest->at += bytes;
	rest->bytes -= bytes;
	return true;
}

static bool take_name(struct rest *rest, struct lp_bytes *ret)
{
	const uint8_t *end = rest->bytes == 0 ? NULL : memchr(rest->at, 0, rest->bytes);
	if (end == NULL || end == rest->at)
		return false;
	*ret = (struct lp_bytes){rest->at, (uint32_t)(end - rest->at)};
	rest->bytes -= ret->len + 1;
	rest->at = end + 1;
	return true;
}

static bool take_data(struct rest *rest, struct lp_fuse_message *message)
{
	uint64_t bytes = 0;
	switch ((enum lp_fuse_data)message->opcode->data) {
	case LP_FUSE_DATA_NONE:
		break;
	case LP_FUSE_DATA_WRITE:
		/* The data stays where it landed, which is as long as the data and has nothing
		 * behind it. */
		if (message->header.total_extlen != 0 || message->in.write.size > LP_FUSE_WRITE_MAX)
			return false;
		bytes = message->in.write.size;
		break;
	case LP_FUSE_DATA_XATTR:
		bytes = message->in.setxattr.size;
		break;
	case LP_FUSE_DATA_FORGETS:
		bytes = (uint64_t)message->in.batch_forget.count * sizeof(struct fuse_forget_one);
		break;
	case LP_FUSE_DATA_ANY:
		bytes = rest->bytes;
		break;
	}
	if (bytes != rest->bytes)
		return false;
	bool is_here = bytes > 0 && message->opcode->data != LP_FUSE_DATA_WRITE &&
		       message->opcode->data != LP_FUSE_DATA_FORGETS;
	message->data = is_here ? rest->at : NULL;
	message->data_bytes = rest->bytes;
	return true;
}

static int take_header(const void *bytes, uint64_t len, struct lp_fuse_message *ret)
{
	memcpy(&ret->header, bytes, sizeof(ret->header));
	ret->opcode = lp_fuse_opcode_find(ret->header.opcode);
	if (ret->header.len != len)
		return -EINVAL;
	return ret->opcode == NULL ? -ENOSYS : 0;
}

/* Extensions stand at the end. None was asked for, so they are skipped. */
static bool cut_extensions(struct rest *rest, const struct lp_fuse_message *message)
{
	uint32_t bytes = message->header.total_extlen * UINT32_C(8);
	if (bytes > rest->bytes)
		return false;
	rest->bytes -= bytes;
	return true;
}

static int take_names_and_data(struct rest *rest, struct lp_fuse_message *message)
{
	for (uint32_t i = 0; i < message->opcode->name_cnt; i++) {
		if (!take_name(rest, &message->names[i]))
			return -EINVAL;
	}
	if (message->opcode->fixed_min_bytes > 0)
		return 0;
	return take_data(rest, message) ? 0 : -EINVAL;
}

int lp_fuse_decode(const void *bytes, uint32_t len, struct lp_fuse_message *ret)
{
	*ret = (struct lp_fuse_message){.opcode = NULL};
	if (len < sizeof(ret->header))
		return -EINVAL;
	int err = take_header(bytes, len, ret);
	if (err < 0)
		return err;
	struct rest rest = {(const uint8_t *)bytes + sizeof(ret->header),
			    len - (uint32_t)sizeof(ret->header)};
	if (!cut_extensions(&rest, ret) || !take_fixed(&rest, ret))
		return -EINVAL;
	return take_names_and_data(&rest, ret);
}

int lp_fuse_decode_split(const void *head, uint32_t head_len, const void *rest, uint32_t rest_len,
			 struct lp_fuse_message *ret)
{
	*ret = (struct lp_fuse_message){.opcode = NULL};
	if (head_len < sizeof(ret->header))
		return -EINVAL;
	int err = take_header(head, (uint64_t)head_len + rest_len, ret);
	if (err < 0)
		return err;
	struct rest fixed = {(const uint8_t *)head + sizeof(ret->header),
			     head_len - (uint32_t)sizeof(ret->header)};
	struct rest others = {rest, rest_len};
	if (!cut_extensions(&others, ret) || !take_fixed(&fixed, ret) || fixed.bytes > 0)
		return -EINVAL;
	return take_names_and_data(&others, ret);
}

/* --- Limits ----------------------------------------------------------------------------------- */

static_assert(LP_FUSE_WRITE_MAX <= LP_STORE_READ_MAX, "what the kernel may ask for is answered");

uint16_t lp_fuse_pages_max(uint64_t page_bytes)
{
	uint64_t cnt = LP_FUSE_WRITE_MAX / LP_MAX(page_bytes, UINT64_C(4096));
	/* No known kernel has such pages. */
	return (uint16_t)LP_MAX(cnt, UINT64_C(1));
}
