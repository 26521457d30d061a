/* SPDX-License-Identifier: Apache-2.0 */
/* The store of one shard: inodes with data, directory entries, xattrs and omap, changed by atomic
 * transactions and read asynchronously. The face of store/.
 *
 * A store belongs to one reactor's thread; every call below is for that thread, but for those of
 * "Making, opening, closing", which also turn the reactor while they wait. Operations are structs
 * of the caller: the store's from submit until complete() begins. complete() is never called from
 * inside a submit.
 *
 * A transaction is a list of guards and changes. It happens wholly or not at all, and completes
 * when it is durable (or, if it asks, as soon as it is ordered). Transactions that touch the same
 * inode happen in the order of their submission. A read sees every transaction that completed
 * before it was submitted, and on the same inode every one submitted before it; what it returns
 * is durable by the time it completes (P3).
 *
 * The store checks what belongs to one shard: names, sizes, guards, checksums. It does not know
 * what a directory tree is: link counts, fragments and parents are what transactions make of them.
 *
 * Errors (negative errno; complete() has op->result):
 *   -ENOENT, -EEXIST, -ECANCELED  a guard failed: op->failed_idx says which
 *   -EINVAL, -ENAMETOOLONG, -EFBIG, -E2BIG  the request breaks a limit
 *   -ENOSPC   full; -EROFS  the shard is read-only after a device error (lp_store_health())
 *   -EBADMSG, -EUCLEAN  corruption, recorded by lp_corrupt()
 *   -EIO      the device failed; for a transaction the outcome is unknown until reopened (rule L7)
 * Submit never fails: what cannot be had now waits. How much may wait is the caller's pool.
 */
#ifndef LP_STORE_STORE_H
#define LP_STORE_STORE_H

#include "base/buf.h"
#include "base/reactor.h"
#include "store/inode.h"
#include "store/types.h"

struct lp_bdev;
struct lp_kvfs_env;
struct lp_store;
struct lp_workers;

/* --- Limits --------------------------------------------------------------------------------- */

#define LP_STORE_WRITE_MAX   (UINT64_C(4) << 20) /* bytes of one write or read */
#define LP_STORE_CHANGES_MAX 64u                 /* changes and guards of one transaction */
#define LP_STORE_FILE_MAX    (UINT64_C(16) << 40)
#define LP_STORE_VALUE_MAX   (UINT32_C(64) << 10) /* an xattr's or an omap entry's value */

/* --- Transactions ----------------------------------------------------------------------------- */

enum lp_write_path { LP_PATH_AUTO, LP_PATH_INLINE, LP_PATH_DEFERRED, LP_PATH_DIRECT };

enum lp_change_type {
	/* Guards: all are checked, in order, before anything changes. */
	LP_GUARD_INODE,        /* exists (-ENOENT), with this version if not 0 (-ECANCELED) */
	LP_GUARD_NO_INODE,     /* -EEXIST */
	LP_GUARD_ENTRY,        /* name exists (-ENOENT), and is this inode if not 0 (-ECANCELED) */
	LP_GUARD_NO_ENTRY,     /* -EEXIST */
	LP_GUARD_XATTR,        /* equals value (-ECANCELED) */
	LP_GUARD_NO_XATTR,     /* -EEXIST */
	LP_GUARD_EMPTY,        /* the directory has no entries on this shard (-ENOTEMPTY) */
	/* Inodes. */
	LP_CHANGE_CREATE,      /* from attrs */
	LP_CHANGE_SET,         /* the attrs named by mask */
	LP_CHANGE_LINK,        /* nlink += delta */
	LP_CHANGE_REMOVE,      /* inode, data, xattrs, omap; big ones are freed step by step (S6) */
	/* Data. */
	LP_CHANGE_WRITE,
	LP_CHANGE_TRUNCATE,    /* size = offset */
	LP_CHANGE_PUNCH,       /* reads as zeros, space is freed */
	LP_CHANGE_PREALLOC,    /* reads as before, or as zeros; space is there */
	LP_CHANGE_CLONE,       /* length bytes of src at src_offset appear at offset */
	LP_CHANGE_SWAP_DATA,   /* the data and size of ino and src change places (rule W3) */
	/* Small things. */
	LP_CHANGE_XATTR_SET,
	LP_CHANGE_XATTR_REMOVE,
	LP_CHANGE_OMAP_SET,
	LP_CHANGE_OMAP_REMOVE,
	LP_CHANGE_ENTRY_SET,   /* ino is the directory, target the inode; takes a readdir number */
	LP_CHANGE_ENTRY_REMOVE,
	LP_CHANGE_DIR,         /* this shard's fragment: flags, and entries and bytes by delta */
	LP_CHANGE_RECORD,      /* a key of the spaces S, T or U, as it is; value NULL removes */
	LP_CHANGE_CNT
};

struct lp_bytes {
	const void *data; /* NULL: absent */
	uint32_t len;
};

/* What is written: segments of buffers, one after another, and one crc32c for each piece that
 * the block grid of the file cuts from them (rule W2). The store takes references. */
struct lp_payload {
	const struct lp_seg *segs;
	uint32_t seg_cnt;
	const uint32_t *crcs;
	uint32_t crc_cnt;
};

struct lp_change {
	enum lp_change_type type;
	struct lp_ino ino;
	union {
		struct {
			uint64_t version;
		} guard;
		struct {
			const struct lp_inode_attrs *attrs;
			uint32_t mask; /* LP_ATTR_... */
		} inode;
		struct {
			int32_t delta;
		} link;
		struct {
			uint64_t offset;
			uint64_t length;
			struct lp_payload payload;
			enum lp_write_path path;
		} write; /* also truncate, punch, prealloc */
		struct {
			struct lp_ino src;
			uint64_t src_offset;
			uint64_t offset;
			uint64_t length;
		} clone;
		struct {
			struct lp_bytes name; /* xattr, omap key, entry; the whole key of a record */
			struct lp_bytes value;
			struct lp_ino target; /* entry */
			uint8_t target_type;
		} named;
		struct {
			int64_t entries;
			int64_t bytes;
			uint32_t flags_set;
			uint32_t flags_clear;
			int64_t mtime_ns; /* 0: as it is */
		} dir;
	};
};

struct lp_store_op;
typedef void lp_store_complete_fn(struct lp_store_op *op);

enum lp_store_opcode {
	LP_STORE_TXN,
	LP_STORE_READ,       /* data */
	LP_STORE_STAT,       /* an inode's attrs */
	LP_STORE_LOOKUP,     /* an entry, and the attrs of its inode if it is on this shard */
	LP_STORE_GET,        /* an xattr, an omap value, a record */
	LP_STORE_LIST,       /* entries, xattrs, omap, records: a page in order */
	LP_STORE_SEEK,       /* the next data or hole */
	LP_STORE_SYNC,       /* completes when all submitted before it is durable */
	LP_STORE_OPCODE_CNT
};

