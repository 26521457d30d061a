/* SPDX-License-Identifier: Apache-2.0 */
/* The record of an inode, encoded and decoded (docs/format/inode.md), and its small xattrs.
 *
 * Threads: any.
 * Blocking: none.
 * Memory: none is allocated. A decoded inode borrows: name, target, inline data, xattrs and map
 * point into the decoded bytes.
 * Errors: encoding asserts what lp_inode_fault() would find. Decoding takes any bytes: -EBADMSG,
 * -EUCLEAN by lp_corrupt(), and *ret is untouched then.
 *
 * The map section is opaque here: lp_extmap_load_root() checks it.
 */
#ifndef LP_STORE_RECORD_INODE_H
#define LP_STORE_RECORD_INODE_H

#include "format/inode.h"
#include "store/record/keys.h"

#define LP_INODE_INLINE_MAX 2048
#define LP_INODE_TARGET_MAX 4095
#define LP_INODE_XATTRS_MAX 1024
#define LP_INODE_MAP_MAX    792 /* LP_EXTMAP_ROOT_BYTES_MAX */
#define LP_INODE_SIZE_MAX   (UINT64_C(1) << 44)
/* A target is longer than inline data and map, and excludes them. */
#define LP_INODE_BYTES_MAX                                                                         \
	(LP_INODE_HEAD_SIZE + 5 * LP_INODE_SECTION_SIZE + LP_KEY_NAME_MAX + 4 +                    \
	 LP_INODE_TARGET_MAX + LP_INODE_XATTRS_MAX + 4 + 4)

/* at is NULL when len is 0. */
struct lp_inode_bytes {
	const uint8_t *at;
	size_t len;
};

struct lp_inode {
	struct lp_ino ino;
	struct lp_ino parent; /* nr 0: none */
	uint64_t version_nr;
	uint64_t size_bytes;
	int64_t atime_ns;
	int64_t mtime_ns;
	int64_t ctime_ns;
	int64_t btime_ns;
	uint32_t uid;
	uint32_t gid;
	uint32_t nlink;
	uint32_t flags;                /* LP_INODE_FLAG */
	uint32_t rdev;                 /* devices only */
	uint16_t mode;                 /* 12 permission bits */
	uint8_t type;                  /* enum lp_inode_type */
	uint32_t content_crc;          /* of target or inline data: the client's, carried on */
	struct lp_inode_bytes name;    /* in parent, a hint (rule N3) */
	struct lp_inode_bytes target;  /* symlink */
	struct lp_inode_bytes content; /* file's inline data */
	struct lp_inode_bytes xattrs;  /* packed: see below */
	struct lp_inode_bytes map;     /* root of the extent map */
};

/* The name of the first field that breaks the rules, or NULL. Does not look at the crc. */
const char *lp_inode_fault(const struct lp_inode *inode);

/* At most LP_INODE_BYTES_MAX; returns how many. */
size_t lp_inode_encode(const struct lp_inode *inode, uint8_t *buf);
/* ino is that of the key. */
int lp_inode_decode(const void *bytes, size_t len, struct lp_ino ino,
		    struct lp_inode *ret) LP_MUST_CHECK;

/* One attribute of a packed list; points into it. */
struct lp_xattr {
	struct lp_inode_bytes name;
	struct lp_inode_bytes value;
};

/* The attribute at *offset of a list that was decoded or built by lp_xattrs_set(), and moves on;
 * begin with 0. False at the end. */
bool lp_xattrs_next(struct lp_inode_bytes list, size_t *offset, struct lp_xattr *ret);
bool lp_xattrs_find(struct lp_inode_bytes list, const void *name, size_t len, struct lp_xattr *ret);
/* The list of `from` with one attribute set, or without it when value is NULL, written to `to`,
 * which has LP_INODE_XATTRS_MAX bytes and is not from's memory. Returns its length; -ENOSPC when it
 * does not fit: then it belongs under a key of its own. The name is valid. */
int lp_xattrs_set(struct lp_inode_bytes from, const struct lp_inode_bytes *name,
		  const struct lp_inode_bytes *value, uint8_t *to) LP_MUST_CHECK;

#endif
