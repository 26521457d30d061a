/* SPDX-License-Identifier: Apache-2.0 */
/* One operation on the whole namespace, as numbers that follow from a seed: small, without
 * pointers, and a line of text that says all of it, so that a failing sequence can be kept, cut
 * short and run again. Names are numbers of a table; data, values and targets follow from seeds.
 *
 * What an operation makes has a *slot*, eight of them for each operation: the first is what it is
 * about, the others are directories that it makes on the way there. Others refer to it by that. So
 * an operation can be left out, and those that needed it are then skipped.
 *
 * Threads: any. Blocking, allocation: none. Errors: of reading a line only.
 */
#ifndef LP_TESTS_WHOLE_OP_H
#define LP_TESTS_WHOLE_OP_H

#include "store/record/types.h"

enum lpi_whole_kind {
	/* By number and name: as a mount does it. */
	LPI_WHOLE_MAKE, /* all types; unnamed, open, or_open */
	LPI_WHOLE_LINK,
	LPI_WHOLE_REMOVE,
	LPI_WHOLE_RENAME,
	LPI_WHOLE_OPEN,
	LPI_WHOLE_CLOSE,
	LPI_WHOLE_SET,
	/* What is in an inode. */
	LPI_WHOLE_WRITE,
	LPI_WHOLE_APPEND,
	LPI_WHOLE_TRUNCATE,
	LPI_WHOLE_PUNCH,
	LPI_WHOLE_PREALLOC,
	LPI_WHOLE_CLONE,
	LPI_WHOLE_XATTR_SET,
	LPI_WHOLE_XATTR_REMOVE,
	LPI_WHOLE_OMAP_SET,
	LPI_WHOLE_OMAP_REMOVE,
	/* By path. */
	LPI_WHOLE_PUT,
	LPI_WHOLE_UPLOAD,
	LPI_WHOLE_COMMIT,
	LPI_WHOLE_DELETE,
	LPI_WHOLE_COPY,
	LPI_WHOLE_MOVE,
	LPI_WHOLE_SYNC,
	/* What only asks. */
	LPI_WHOLE_STAT,
	LPI_WHOLE_LOOKUP,
	LPI_WHOLE_WALK,
	LPI_WHOLE_READ,
	LPI_WHOLE_SEEK,
	LPI_WHOLE_XATTRS, /* all of them, or the omap */
	LPI_WHOLE_READDIR,
	LPI_WHOLE_LIST,
	LPI_WHOLE_KIND_CNT
};

#define LPI_WHOLE_SLOTS_EACH 8u /* slots of one operation */
#define LPI_WHOLE_DEPTH_MAX  4u /* names in a path */
#define LPI_WHOLE_ROOT       0u /* the root's slot */

/* Flags. */
#define LPI_WHOLE_ORDERED   (1u << 0) /* acknowledged when it is ordered */
#define LPI_WHOLE_SPREAD    (1u << 1)
#define LPI_WHOLE_AND_OPEN  (1u << 2)
#define LPI_WHOLE_OR_OPEN   (1u << 3)
#define LPI_WHOLE_UNNAMED   (1u << 4)
#define LPI_WHOLE_IS_DIR    (1u << 5) /* remove: rmdir; delete: a directory, too */
#define LPI_WHOLE_NOREPLACE (1u << 6)
#define LPI_WHOLE_EXCHANGE  (1u << 7)
#define LPI_WHOLE_HOLE      (1u << 8) /* seek */
#define LPI_WHOLE_OMAP      (1u << 9)
#define LPI_WHOLE_DELIMIT   (1u << 10)
#define LPI_WHOLE_WRONG     (1u << 11) /* the version that is asked for is another one */

struct lpi_whole_op {
	uint32_t kind;
	uint32_t id; /* from 1 on; its slots are from id * LPI_WHOLE_SLOTS_EACH on */
	uint32_t flags;
	uint32_t home;      /* the shard on which it is submitted, modulo their number */
	uint32_t condition; /* enum lp_ns_if; of what is about a number: 0, or the version */
	uint32_t type;      /* enum lp_inode_type */
	uint32_t mode;
	uint32_t mask;  /* LP_ATTR_* */
	uint32_t seed;  /* of what is written, owner, time, device number */
	uint32_t path;  /* enum lp_write_path */
	uint32_t items; /* of a list; xattrs of a put */
	/* Slots, and names of the table. */
	uint32_t node;
	uint32_t dir;
	uint32_t to_dir;
	uint32_t name;
	uint32_t to_name;
	/* Paths, from the root: names, and how many. */
	uint32_t depth;
	uint32_t to_depth;
	uint32_t names[LPI_WHOLE_DEPTH_MAX];
	uint32_t to_names[LPI_WHOLE_DEPTH_MAX];
	uint64_t offset;
	uint64_t src_offset;
	uint64_t length;
};

static inline uint32_t lpi_whole_slot(const struct lpi_whole_op *op)
{
	return op->id * LPI_WHOLE_SLOTS_EACH;
}

/* --- As text ---------------------------------------------------------------------------------- */

#define LPI_WHOLE_LINE_MAX 512u

const char *lpi_whole_kind_name(uint32_t kind);
/* One line without its end; only what is not 0. Returns its length. */
size_t lpi_whole_op_write(const struct lpi_whole_op *op, char line[LPI_WHOLE_LINE_MAX]);
/* -EINVAL: no such line. */
int lpi_whole_op_read(const char *line, struct lpi_whole_op *ret_op) LP_MUST_CHECK;

/* --- Names and contents ----------------------------------------------------------------------- */

#define LPI_WHOLE_NAMES_FEW   6u /* of these: beginnings of each other, the longest, odd bytes */
#define LPI_WHOLE_XATTR_NAMES 16u
#define LPI_WHOLE_XATTR_ACL   3u /* the access ACL, which a put carries over (rule W3) */
#define LPI_WHOLE_OMAP_NAMES  5u
#define LPI_WHOLE_VALUE_MAX   65536u

#define LPI_WHOLE_NAME_MAX 256u

struct lpi_whole_bytes {
	uint32_t len;
	char bytes[LPI_WHOLE_NAME_MAX];
};

/* Of an entry: any number has one. */
void lpi_whole_name(uint32_t idx, struct lpi_whole_bytes *ret);
void lpi_whole_xattr_name(uint32_t idx, struct lpi_whole_bytes *ret);
void lpi_whole_omap_name(uint32_t idx, struct lpi_whole_bytes *ret);
/* Some are zeros all over: what a store might take for a hole. */
void lpi_whole_fill(uint32_t seed, void *buf, size_t len);
/* The value of an xattr; that of an access ACL is one, or the socket would refuse it. */
void lpi_whole_fill_xattr(uint32_t idx, uint32_t seed, uint8_t *buf, size_t len);
/* Of an access list: the nine bits that are the same, and their change by a chmod. */
#define LPI_WHOLE_ACL_BYTES 28u
uint32_t lpi_whole_acl_perms(const uint8_t acl[LPI_WHOLE_ACL_BYTES]);
void lpi_whole_acl_set_perms(uint8_t acl[LPI_WHOLE_ACL_BYTES], uint32_t perms);
/* Times that an operation sets are long ago, so that they are known from those of the clock. 0: it
 * sets none. */
int64_t lpi_whole_time(uint32_t seed);
#define LPI_WHOLE_TIME_END INT64_C(1000000000000)
/* Of a symlink's target. */
uint32_t lpi_whole_target_len(uint32_t seed);
void lpi_whole_target(uint32_t seed, void *buf);
uint32_t lpi_whole_owner(uint32_t seed);

#endif
