/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel's FUSE protocol: one table by opcode, and the check of a message against it.
 *
 * Threads: any.
 * Blocking, memory: none.
 * Errors: -ENOSYS, an opcode that the table does not have; -EINVAL, a message that breaks it.
 * Limits: LP_FUSE_WRITE_MAX, LP_FUSE_NAMES_MAX.
 *
 * A message is a header, a part of fixed size, names that end in a zero byte, and data. The fixed
 * part gives the length of the data. All lengths are checked here, once. All pointers of a decoded
 * message lie within its bytes, and no bytes are left over. The meaning of the numbers is not
 * checked. A write's data, and the items of a batch of forgets, need not lie behind the head: only
 * their length is checked.
 */
#ifndef LP_FUSE_PROTO_H
#define LP_FUSE_PROTO_H

#include <errno.h>
#include <linux/fuse.h>

#include "store/store.h"

#define LP_FUSE_WRITE_MAX (UINT32_C(1) << 20) /* bytes of one write */

#define LP_FUSE_NAMES_MAX 2u

/* Of the kernel from 6.6 on; linux-libc-dev of Debian 12 does not have it. */
#define LP_FUSE_STATX 52u
struct lp_fuse_statx_in {
	uint32_t getattr_flags;
	uint32_t reserved;
	uint64_t fh;
	uint32_t sx_flags;
	uint32_t sx_mask;
};

union lp_fuse_in {
	struct fuse_forget_in forget;
	struct fuse_batch_forget_in batch_forget;
	struct fuse_getattr_in getattr;
	struct fuse_setattr_in setattr;
	struct fuse_mknod_in mknod;
	struct fuse_mkdir_in mkdir;
	struct fuse_rename_in rename;
	struct fuse_rename2_in rename2;
	struct fuse_link_in link;
	struct fuse_open_in open;
	struct fuse_create_in create; /* and tmpfile */
	struct fuse_read_in read;     /* and readdir */
	struct fuse_write_in write;
	struct fuse_flush_in flush;
	struct fuse_release_in release;
	struct fuse_fsync_in fsync;
	struct fuse_setxattr_in setxattr;
	struct fuse_getxattr_in getxattr; /* and listxattr */
	struct fuse_access_in access;
	struct fuse_init_in init;
	struct fuse_interrupt_in interrupt;
	struct fuse_ioctl_in ioctl;
	struct fuse_poll_in poll;
	struct fuse_fallocate_in fallocate;
	struct fuse_lseek_in lseek;
	struct fuse_copy_file_range_in copy;
	struct lp_fuse_statx_in statx;
};

enum lp_fuse_data {
	LP_FUSE_DATA_NONE,
	LP_FUSE_DATA_WRITE,   /* as long as the write says */
	LP_FUSE_DATA_XATTR,   /* behind the name */
	LP_FUSE_DATA_FORGETS, /* as many as the batch says */
	LP_FUSE_DATA_ANY      /* of any length */
};

struct lp_fuse_opcode {
	const char *name;
	uint16_t fixed_bytes;
	uint16_t fixed_min_bytes; /* a shorter one is filled up with zeros; 0: there is none */
	uint8_t name_cnt;
	uint8_t data;   /* enum lp_fuse_data */
	bool is_silent; /* has no answer */
};

struct lp_fuse_message {
	const struct lp_fuse_opcode *opcode; /* NULL: unknown */
	struct fuse_in_header header;
	union lp_fuse_in in;
	struct lp_bytes names[LP_FUSE_NAMES_MAX]; /* without the zero byte; never empty */
	const uint8_t *data;                      /* of a write or forgets, or none: NULL */
	uint32_t data_bytes;
};

/* All known opcodes are below. */
#define LP_FUSE_OPCODES 64u
/* NULL: there is no such opcode. */
const struct lp_fuse_opcode *lp_fuse_opcode_find(uint32_t opcode);

/* len is the length of the whole message. Of a write or of forgets only the head need be there.
 * After an error the header is valid nevertheless, if len is at least a header's length. */
int lp_fuse_decode(const void *bytes, uint32_t len, struct lp_fuse_message *ret) LP_MUST_CHECK;
/* The same for a message in two pieces: header and fixed part (at least a header), and the rest. */
int lp_fuse_decode_split(const void *head, uint32_t head_len, const void *rest, uint32_t rest_len,
			 struct lp_fuse_message *ret) LP_MUST_CHECK;

/* How many pages of page_bytes the kernel may put into one request. A direct read asks for that
 * many pages, whatever their size. Together they are LP_FUSE_WRITE_MAX, because longer requests are
 * refused. */
uint16_t lp_fuse_pages_max(uint64_t page_bytes);

#endif
