/* SPDX-License-Identifier: Apache-2.0 */
/* The store of one shard, the face of store/: atomic transactions and reads on inodes.
 *
 * Threads: a store belongs to one reactor's thread, which makes every call below. Opening and
 * closing turn the reactor while they wait.
 * Blocking: only opening and closing.
 * Memory: an operation is a struct of the caller's. The store owns it, with all it points to,
 * from lp_store_submit() until complete() begins.
 * Errors: negative, in op->result. A failed transaction has changed nothing, except as said:
 *   -ENOENT, -EEXIST, -ECANCELED, -ENOTEMPTY, -ENODATA   a guard or change did not find what it
 *                      needs: op->txn.failed_idx
 *   -EPERM             the inode is immutable or may only be appended to: see heeds_flags
 *   -EINVAL, -E2BIG, -EFBIG, -ENAMETOOLONG, -EISDIR, -ENOTDIR, -EOVERFLOW   it can never be
 *   -ENOSPC            the device is full
 *   -EBADMSG, -EUCLEAN damaged data, recorded by lp_corrupt() with inode and offset
 *   -EIO               the device failed, for this operation or for good. A transaction has not
 *                      happened, unless op->txn.is_unknown
 *   -EROFS             the store is read-only, or has failed before: a transaction has certainly
 *                      not happened
 * Limits: submitting never fails; an operation that lacks something waits. The caller's own pools
 * bound how many wait.
 *
 * The store has inodes with data, directory entries, xattrs and omap. It knows what belongs to
 * one shard: sizes, space, guards, checksums. It does not know directory trees: parents and link
 * counts are what transactions make of them.
 *
 * complete() is never called from inside a submit. It may submit, and may free the operation (a
 * read: after lp_store_end()).
 *
 * A transaction is a list of guards and changes. It happens wholly or not at all, in memory and
 * on the device. It completes when it is durable, or, if it asks for that, when it is ordered.
 * Transactions that touch the same inode, entry or record happen in the order of their
 * submission. A read of an inode sees every transaction submitted before it. Lookups, gets and
 * lists see every one completed before they were submitted. A returned result is durable when the
 * operation completes (P3), unless it asks for less.
 *
 * Checksums (rule W2): data comes with the crc32c its sender made, one for each piece that the
 * file's grid of 4 KiB blocks cuts from it, and is given back with such. The receiver has
 * verified it. The store never makes one of its own over whole blocks.
 *
 * The store goes on read-only (rule L7) when a device fails to write the log, to flush, or to
 * take deferred data to its place, or when the index cannot be written for good. Operations under
 * way end, transactions with -EIO or -EROFS. All state in memory is dropped, and a helper reads
 * the durable state back from the device. Reads and questions wait meanwhile, also those that had
 * begun. Then they see what was durable when it failed, or say -EIO if the device cannot be read
 * either. A sync says -EIO from the failure on, because ordered changes may be lost.
 * lp_store_read_health() says what has happened. To write again, close the store and open it.
 */
#ifndef LP_STORE_STORE_H
#define LP_STORE_STORE_H

#include "base/loop/reactor.h"
#include "base/memory/buf.h"
#include "base/under_way.h"
#include "store/record/inode.h"
#include "store/record/types.h"
#include "store/space/alloc.h"
#include "store/writepath/latency_model.h"

struct lp_devices;
struct lp_store;
struct lp_workers;

/* --- Limits ----------------------------------------------------------------------------------- */

#define LP_STORE_WRITE_MAX    (UINT64_C(4) << 20) /* bytes of one write */
#define LP_STORE_READ_MAX     (UINT64_C(1) << 20) /* bytes of one read */
#define LP_STORE_INTO_EXTENTS 8u /* of the device, that are read into the caller's memory */
#define LP_STORE_RANGE_MAX    (UINT64_C(16) << 20) /* bytes punched, preallocated, cloned at once */
#define LP_STORE_FILE_MAX     LP_INODE_SIZE_MAX    /* bytes: 16 TiB */
#define LP_STORE_VALUE_MAX    UINT32_C(65536)      /* bytes of an xattr's or omap value */
#define LP_STORE_CHANGES_MAX  32u                  /* guards and changes of one transaction */
/* Different inodes, names and records in one transaction, at most. */
#define LP_STORE_TOUCHED_MAX 16u
/* Bytes of one write, if it does not begin in the middle of a block. So many can be overwritten in
 * place, whatever limits the log has. So a range that has its own space can be written on a full
 * store, in as many changes as needed. */
#define LP_STORE_KEPT_MAX (UINT64_C(16) << 10)
/* The offset of a write: at the end of the file, wherever that is. */
#define LP_STORE_APPEND UINT64_MAX

/* --- Stored data ------------------------------------------------------------------------------ */

struct lp_bytes {
	const void *data; /* NULL: absent */
	uint32_t len;
};

struct lp_attrs {
	uint64_t size_bytes; /* file: of its data; symlink: of its target */
	uint64_t blocks;     /* of 4 KiB, with space of their own or shared */
	/* Goes up with every transaction that changes the inode, except one that only sets the
	 * access time: a SET of LP_ATTR_ATIME and nothing else. */
	uint64_t version_nr;
	int64_t atime_ns;
	int64_t mtime_ns;
	int64_t ctime_ns;
	int64_t btime_ns;
	struct lp_ino parent; /* nr 0: none */
	uint32_t uid;
	uint32_t gid;
	uint32_t nlink;
	uint32_t flags; /* LP_INODE_FLAG */
	uint32_t rdev;
	uint16_t mode; /* 12 permission bits */
	uint8_t type;  /* enum lp_inode_type */
	/* Blocks that were cut off are still being freed, step by step: `blocks` goes down by
	 * itself, without any transaction. Returned only, never set. */
	bool is_freeing;
};

/* A name that leads to one inode and later to another must never show the same version twice,
 * because a client that remembers a version takes it for the content that it has read. So an inode
 * that is made, or gets a name (a SET with LP_ATTR_PARENT and LP_ATTR_CTIME), has at least this
 * version then: the microseconds since 1970 at that time. No inode is changed more than once in a
 * microsecond. */
static inline uint64_t lp_version_at(int64_t ctime_ns)
{
	return ctime_ns < 2000 ? 1 : (uint64_t)ctime_ns / 1000;
}

/* Attributes that LP_CHANGE_SET changes. */
#define LP_ATTR_MODE   (1u << 0)
#define LP_ATTR_UID    (1u << 1)
#define LP_ATTR_GID    (1u << 2)
#define LP_ATTR_NLINK  (1u << 3)
#define LP_ATTR_ATIME  (1u << 4)
#define LP_ATTR_MTIME  (1u << 5)
#define LP_ATTR_CTIME  (1u << 6)
#define LP_ATTR_BTIME  (1u << 7)
#define LP_ATTR_FLAGS  (1u << 8) /* those of LP_INODE_FLAGS_SETTABLE */
#define LP_ATTR_PARENT (1u << 9) /* with the name */
#define LP_ATTRS_ALL   ((1u << 10) - 1)

/* The other flags are the store's own, and not in struct lp_attrs. */
#define LP_INODE_FLAGS_SETTABLE                                                                    \
	(LP_INODE_FLAG_ALL & ~(uint32_t)(LP_INODE_FLAG_HAS_KEYS | LP_INODE_FLAG_REMOVED))
/* Flags that forbid changes. */
#define LP_INODE_FLAGS_KEEPING ((uint32_t)(LP_INODE_FLAG_IMMUTABLE | LP_INODE_FLAG_APPEND))

/* --- Transactions ----------------------------------------------------------------------------- */

enum lp_change_type {
	/* Guards: all stand before the changes and are checked, in their order, before any change
	 * is made. Guards of xattrs return -ENOENT when there is no inode. */
	/* exists: -ENOENT; with none of these flags: -EPERM; with this version if not 0, this mode
	 * as far as mode_mask goes, this owner if has_owner, and fewer bytes than shorter_than if
	 * not 0: -ECANCELED */
	LP_GUARD_INODE,
	LP_GUARD_NO_INODE,  /* -EEXIST */
	LP_GUARD_ENTRY,     /* the name exists: -ENOENT; leads to target if not 0: -ECANCELED */
	LP_GUARD_NO_ENTRY,  /* -EEXIST */
	LP_GUARD_XATTR,     /* exists: -ENODATA; equals value if not absent: -ECANCELED */
	LP_GUARD_NO_XATTR,  /* -EEXIST */
	LP_GUARD_EMPTY,     /* ino has no entries on this shard: -ENOTEMPTY */
	LP_GUARD_RECORD,    /* exists: -ENOENT; equals value if not absent: -ECANCELED */
	LP_GUARD_NO_RECORD, /* -EEXIST */
	/* This shard's fragment of ino can be read or does not exist, and so can the entry, if
	 * there is a name. */
	LP_GUARD_DIR,

	/* Inodes. All except CREATE return -ENOENT when there is no inode. Changes are made in
	 * their order: a later one finds the results of earlier ones. No CREATE follows a REMOVE of
	 * its inode. A change that does not fit the inode's type, as store/record/inode.h says, is
	 * -EINVAL. */
	LP_CHANGE_CREATE, /* from attrs (not size, blocks, version); -EEXIST */
	LP_CHANGE_SET,    /* the attrs in mask */
	LP_CHANGE_LINK,   /* nlink += delta; -EOVERFLOW below 0 or above UINT32_MAX */
	/* With data, xattrs and omap; a directory with its fragment here, which must be empty:
	 * -ENOTEMPTY. Space of a large inode is freed in the background, step by step, also after a
	 * crash (rule S6). -EINVAL in a transaction that makes or writes the inode. */
	LP_CHANGE_REMOVE,

	/* The data of a file: at most one of these in a transaction. -EISDIR, -EINVAL when the
	 * inode is no file. Size follows; times do not, SET them. -EFBIG beyond LP_STORE_FILE_MAX.
	 */
	/* An appending write has crcs of pieces cut as if the end were on the grid. The store cuts
	 * anew, and verifies each such piece against its crc as it does: -EBADMSG. */
	LP_CHANGE_WRITE,
	LP_CHANGE_TRUNCATE, /* size = offset */
	LP_CHANGE_PUNCH,    /* reads as zeros, space is freed; the size stays */
	/* Reads as before or as zeros, and has space. The size stays. Not atomic: after -ENOSPC or
	 * a crash a part may have been done, which reads do not show. -EINVAL in a transaction that
	 * makes the inode. */
	LP_CHANGE_PREALLOC,
	/* The content of [src_offset, + length) of src appears at offset, by reference where
	 * possible. Offsets are multiples of 4 KiB; the length too, unless it ends where src ends
	 * and dst ends there as well, or before. The whole range lies within src; within one inode
	 * the two ranges are apart: else -EINVAL. The size grows with the range, never shrinks.
	 * -EFBIG also when src is too fragmented to be shared at once; a shorter range is not. */
	LP_CHANGE_CLONE,

	/* Small things. Xattrs and omap belong to the inode: -ENOENT when there is none. */
	LP_CHANGE_XATTR_SET,
	LP_CHANGE_XATTR_REMOVE, /* -ENODATA */
	LP_CHANGE_OMAP_SET,
	LP_CHANGE_OMAP_REMOVE, /* also when there is none */
	/* ino is the directory; the inode itself need not be on this shard. Sealed: -ENOENT. */
	LP_CHANGE_ENTRY_SET,    /* new, or leads to another inode and keeps its insertion */
	LP_CHANGE_ENTRY_REMOVE, /* -ENOENT */
	/* This shard's fragment of the directory: its times; sealed or not; or dropped, so that
	 * nothing of it is left. Sealing and dropping need it empty: -ENOTEMPTY. A seal goes with a
	 * dropped fragment, so the submitter of a drop ensures that no entry is under way any more.
	 * A later entry makes a new fragment, whose insertions begin again. In the transaction
	 * itself only another drop may follow, or the removal of the directory: else -EINVAL.
	 * Unsealing a fragment that was made only to be sealed leaves nothing of it. */
	LP_CHANGE_DIR,
	/* A key of the spaces T, U, or S, whole and as it is; value absent removes it. Keys of S
	 * that the store keeps for itself are -EINVAL. U ino marks an inode as an orphan or upload,
	 * in the format of store/record/values.h: else -EINVAL. The store puts marks of its own
	 * there while it frees the space of a large file; a change of the mark waits until that has
	 * ended. An inode without links then is an orphan. So a collector of orphans after a start
	 * takes every mark of such an inode for that of an orphan. REMOVE removes the mark of an
	 * inode without links, too. -EINVAL in a transaction that removes or truncates the inode.
	 */
	LP_CHANGE_RECORD,
	LP_CHANGE_CNT
};

/* Data of a write: segments of buffers in order, to which the store takes references, and the
 * crc32c of each piece. A submitter that makes the crcs itself may leave that to sum(). The store
 * calls it on its thread before it looks at any crc: when the device has the data already, if the
 * data takes the direct path. NULL: the crcs are there. */
struct lp_payload {
	const struct lp_seg *segs;
	const uint32_t *crcs;
	uint32_t seg_cnt;
	uint32_t crc_cnt;
	void (*sum)(void *arg);
	void *sum_arg;
};

struct lp_change {
	enum lp_change_type type;
	struct lp_ino ino;
	union {
		struct {
			uint64_t version_nr;
			uint64_t shorter_than;
			uint32_t flags; /* LP_INODE_FLAG */
			uint32_t uid;
			uint32_t gid;
			uint16_t mode_mask;
			uint16_t mode;
			bool has_owner;
		} guard;
		struct { /* CREATE, SET, LINK */
			const struct lp_attrs *attrs;
			struct lp_bytes name;   /* in attrs->parent, a hint; absent: none */
			struct lp_bytes target; /* CREATE of a symlink */
			uint32_t mask;
			int32_t delta;
		} inode;
		struct { /* WRITE, TRUNCATE, PUNCH, PREALLOC */
			uint64_t offset;
			uint64_t length;
			struct lp_payload payload;
			enum lp_write_path path;
		} data;
		struct {
			struct lp_ino src;
			uint64_t src_offset;
			uint64_t offset;
			uint64_t length;
		} clone;
		struct { /* xattrs, omap, entries, records */
			struct lp_bytes name;
			struct lp_bytes value;
			struct lp_ino target;
			uint8_t target_type; /* enum lp_inode_type */
		} named;
		struct {
			/* 0: unchanged. A time does not move back by less than LPI_DIR_LATE_NS
			 * either. */
			int64_t mtime_ns;
			int64_t ctime_ns;
			bool seal;
			bool unseal;
			bool drop; /* with nothing else */
		} dir;
	};
};

/* --- Operations ------------------------------------------------------------------------------- */

enum lp_store_opcode {
	LP_STORE_TXN,
	LP_STORE_READ,   /* data of a file */
	LP_STORE_STAT,   /* -ENOENT */
	LP_STORE_LOOKUP, /* an entry */
	LP_STORE_GET,    /* one small thing: -ENOENT; -ENODATA: xattr, omap; -EINVAL: no symlink */
	LP_STORE_LIST,   /* a page of small things, in the order of their names */
	LP_STORE_SEEK,   /* where data begins or ends */
	LP_STORE_DIR,    /* this shard's fragment of a directory */
	LP_STORE_SYNC,   /* completes when all that was ordered before it is durable */
	LP_STORE_OPCODE_CNT
};

/* The subject of LP_STORE_GET and LP_STORE_LIST. */
enum lp_store_space {
	LP_STORE_XATTRS,
	LP_STORE_OMAP,
	LP_STORE_ENTRIES, /* list only; get: LP_STORE_LOOKUP */
	LP_STORE_TARGET,  /* get only: of a symlink */
	/* Get only: the name of an inode in its parent (attrs.parent), except for a directory a
	 * hint that may be wrong (rule N3). -ENODATA: it has none. A store in memory has no such
	 * names. */
	LP_STORE_NAME,
	/* Names are whole keys. A list has the keys that begin with prefix, which is not empty and
	 * begins with one of the spaces that LP_CHANGE_RECORD may change. A damaged key is an
	 * error, except that of a `U` record: it is not listed, and was counted (bad_marks). */
	LP_STORE_RECORDS,
	LP_STORE_INODES, /* list only: names are inode numbers, 8 bytes big-endian */
	LP_STORE_SPACE_CNT
};

enum lp_store_ack {
	LP_ACK_DURABLE,
	LP_ACK_ORDERED, /* may be lost by a crash until a later sync; -EIO is not reported then */
};

/* Space that a transaction may take when the reserve is nearly all that is left (rule L8). */
enum lp_store_room {
	LP_ROOM_OWN,   /* as its changes do: removals use the reserve */
	LP_ROOM_GROWS, /* like the growth that it promises to do later */
	LP_ROOM_FREES, /* the same, but as a part of a removal */
	LP_ROOM_ENDS   /* as a removal: it does or takes back what was promised */
};

/* One record of a list; points into the list's buffer. */
struct lp_list_item {
	struct lp_bytes name;
	struct lp_bytes value; /* absent unless asked for */
	struct lp_ino ino;     /* entries */
	uint64_t insertion;    /* entries: rule N4 */
	uint8_t type;          /* entries */
};

struct lp_store_op {
	enum lp_store_opcode opcode;
	void (*complete)(struct lp_store_op *op);
	void *user; /* the submitter's */
	int result;
	/* For reads: results need be ordered only, not durable. A crash may take them back. */
	bool sees_ordered;
	/* Result: some of the results were not durable yet, and a crash, or the shard's failure,
	 * may take them back. Not set for reads from a shard that has failed and serves durable
	 * state. */
	bool saw_ordered;
	union {
		struct {
			const struct lp_change *changes;
			uint32_t change_cnt;
			enum lp_store_ack ack;
			enum lp_store_room room;
			/* An immutable inode takes no change except of its access time. An
			 * append-only inode takes data behind its end, space, zeros behind its end,
			 * and times. Any other change is -EPERM. A submitter that does not set this
			 * has checked the flags itself: by a guard, or because the change was
			 * promised before. */
			bool heeds_flags;
			/* Results. */
			/* With -EIO: the transaction was on its way to the device when the device
			 * failed. When the store is opened for writing again the transaction will
			 * be there, wholly, or not at all. Read-only it is seen if it is known to
			 * be durable (rule L7). */
			bool is_unknown;
			uint32_t failed_idx;     /* change_cnt when it was none in particular */
			uint64_t offset;         /* of a write that appended */
			uint64_t version_nr;     /* of the inode of the data change, or of the first
						    change to an inode; 0: there is none */
			enum lp_write_path path; /* the path that a write took */
		} txn;
		struct {
			struct lp_ino ino;
			uint64_t offset;
			uint64_t length; /* at most LP_STORE_READ_MAX */
			/* Bypasses the cache of data, which learns nothing; and blocks that are
			 * read must not count as free: -EUCLEAN. */
			bool from_device;
			/* Buffers for data from the device, if the whole read comes from there in
			 * at most LP_STORE_INTO_EXTENTS pieces, and is larger than cached reads; as
			 * long as there is room: in buffers of 64 KiB at least. NULL: the store's
			 * own. Of the store's thread. */
			struct lp_bufs *into;
			enum lp_buf_rank rank; /* of the buffers that the read takes */
			/* Results, valid until lp_store_end(). Fewer bytes than requested: the file
			 * ends there. */
			const struct lp_seg *segs;
			const uint32_t *crcs;
			uint32_t seg_cnt;
			uint32_t crc_cnt;
			uint64_t bytes;
			uint64_t size_bytes; /* of the file, at that moment */
			uint64_t version_nr;
			uint64_t bad_offset; /* with -EBADMSG: a damaged place; 0: not known */
		} read;
		struct {
			struct lp_ino ino;
			struct lp_attrs attrs; /* result */
		} stat;
		struct {
			struct lp_ino dir;
			struct lp_bytes name;
			/* Results. */
			struct lp_ino ino;
			uint64_t insertion;
			uint8_t type;
			bool has_attrs; /* the inode is on this shard */
			struct lp_attrs attrs;
		} lookup;
		struct {
			enum lp_store_space space;
			struct lp_ino ino;
			struct lp_bytes name;
			void *buf; /* too short: -ERANGE, and value_len has the needed length */
			uint32_t buf_len;
			uint32_t value_len; /* result */
		} get;
		struct {
			enum lp_store_space space;
			struct lp_ino ino;
			struct lp_bytes
				after; /* names behind this one; absent: from the beginning */
			struct lp_bytes from;   /* or: names from this one on */
			struct lp_bytes prefix; /* only names that begin with this */
			void *buf; /* for lp_store_list_next(); one record must fit: -ERANGE */
			uint32_t buf_len;
			uint32_t items_max; /* 0: as many as fit */
			bool with_values;
			/* Results. */
			uint32_t items;
			uint32_t used;
			bool more;
			struct lp_ino damaged; /* the inode whose record was damaged, an error; nr
						  0: not known */
		} list;
		struct {
			struct lp_ino ino;
			uint64_t offset;
			bool hole;  /* else data */
			bool space; /* data is blocks that are written or preallocated, also behind
				       the file's size, and a hole is any other block. Only of a
				       block store; others may return offset itself */
			uint64_t found; /* result; -ENXIO: none up to the file's size, whose end
					   counts as a hole */
		} seek;
		struct {
			struct lp_ino ino;
			/* Results; all 0 when there is no fragment here. */
			uint64_t entries_cnt;
			uint64_t name_bytes;
			uint64_t next_insertion; /* greater than that of all entries */
			int64_t mtime_ns;
			int64_t ctime_ns;
			bool is_sealed;
		} dir;
	};

	/* The store's. */
	struct lp_list_node node;
	void *work;
};

void lp_store_submit(struct lp_store *store, struct lp_store_op *op);
/* Gives back memory that a completed read holds. Called for each read that succeeded, once. */
void lp_store_end(struct lp_store *store, struct lp_store_op *op);

/* Walks a completed list. *pos is 0 at first; false at the end. */
bool lp_store_list_next(const struct lp_store_op *op, uint32_t *pos, struct lp_list_item *ret);

/* A number never given before (rule N5), which belongs to this shard. */
struct lp_ino lp_store_new_ino(struct lp_store *store);

/* --- Opening, closing, state ------------------------------------------------------------------ */

#define LP_STORE_REASON_BYTES 320u

enum lp_store_state {
	LP_STORE_OK,
	LP_STORE_DEGRADED,  /* all is served, but the index cannot be written at present */
	LP_STORE_REOPENING, /* a device failed; reads wait */
	LP_STORE_READ_ONLY, /* durable state is served */
	LP_STORE_DEAD,      /* nor can durable state be read: all return -EIO or -EROFS */
	LP_STORE_STATE_CNT
};

struct lp_store_health {
	enum lp_store_state state;
	int error;                          /* the first one, which led to this state; 0: none */
	int64_t since_ns;                   /* the system's time; 0: since it was opened */
	char reason[LP_STORE_REASON_BYTES]; /* one line: what failed, device, offset, error */
};

/* Embedded by the listener. */
struct lp_store_events {
	/* Called once for each of REOPENING, READ_ONLY and DEAD, when the store gets there after a
	 * failure; never from inside a call. For logs. */
	void (*health)(struct lp_store_events *events, const struct lp_store_health *health);
	/* A read of this inode found damage there: -EBADMSG or -EUCLEAN. Called each time, just
	 * before the operation completes. It may submit. May be NULL. */
	void (*damaged)(struct lp_store_events *events, struct lp_ino ino, uint64_t offset,
			int err);
};

struct lp_store_options {
	struct lp_reactor *reactor;
	struct lp_workers *workers;
	struct lp_devices *devices; /* outlive the store */
	struct lp_bufs *bufs;       /* of the reactor's thread */
	uint32_t shard_idx;
	enum lp_alloc_kind alloc_kind;
	const struct lp_clock *sim_clock; /* NULL, or that of a simulation */
	uint64_t memory_bytes;            /* for caches and the index, without bufs; 0: 256 MiB */
	uint64_t data_cache_bytes;   /* of these, for cached data at first; at most half; 0: no data
					is cached, or read ahead */
	uint64_t index_buffer_bytes; /* one memtable; 0: as store/index/plan.h says */
	uint64_t deferred_blocks_max;          /* payloads waiting for their place; 0: a default */
	enum lp_deferred_store deferred_store; /* where they wait */
	uint64_t files_reserve_bytes;          /* for the index (rule L8); 0: as there */
	enum lp_write_path write_path;         /* for writes with LP_PATH_AUTO */
	/* How long an ordered transaction (LP_ACK_ORDERED) may wait for more that share its frame
	 * of the log, while it has no waiter; 0: not at all. */
	uint64_t hold_ns;
	uint32_t inline_max; /* bytes; 0: the default of 2048; LP_STORE_NO_INLINE */
	uint32_t ops_max;    /* transactions or reads at work at a time; 0: 256 each */
	bool discard; /* discard freed space in the background, if the device can; lapisd never sets
			 it */
	bool read_only;                 /* nothing is written; transactions say -EROFS */
	struct lp_store_events *events; /* or NULL */
};

#define LP_STORE_NO_INLINE UINT32_MAX

/* On the devices. -EBADMSG, -EUCLEAN and others as store/shard/shard.h says. */
int lp_store_open(const struct lp_store_options *options,
		  struct lp_store **ret_store) LP_MUST_CHECK;
/* In memory: nothing persists. Only reactor, bufs and shard_idx are read. The data stays in bufs,
 * which is all the space there is. A caller that writes from buffers of the same pool loses them to
 * the store. */
int lp_store_open_mem(const struct lp_store_options *options,
		      struct lp_store **ret_store) LP_MUST_CHECK;
/* In place of a shard that lp_store_open() refused with `why`: every operation returns -EIO, and
 * its health has the reason, one line. Only reactor and shard_idx are read. */
int lp_store_open_lost(const struct lp_store_options *options, int why, const char *reason,
		       struct lp_store **ret_store) LP_MUST_CHECK;
/* No operation may be under way. With abandon, or after an error, nothing more is written. The
 * store is gone in any case; the result says whether all changes are durable. Accepts NULL. */
int lp_store_close(struct lp_store *store, bool abandon) LP_MUST_CHECK;

void lp_store_read_health(const struct lp_store *store, struct lp_store_health *ret_health);
/* Static text for people: "ok". */
const char *lp_store_state_name(enum lp_store_state state);
/* 0, or why the store cannot be changed any more. */
int lp_store_error(const struct lp_store *store);
/* All ordered transactions are durable. Transactions under way do not count. */
bool lp_store_is_settled(const struct lp_store *store);
/* Space that was being freed at the time of the first question; zeroed before that. */
struct lp_store_freeing {
	uint8_t stage; /* the store's */
	uint64_t upto; /* the same */
	/* Changes while some of that freeing proceeds, though not with every step. */
	uint64_t progress;
};

/* True: space of removed data is on its way: it is being freed, its freeing is not durable yet, or
 * I/O on it has not ended. With since: whether some of the space that was on its way then has not
 * come, whatever others free meanwhile. NULL: any space at all. */
bool lp_store_is_freeing(const struct lp_store *store, struct lp_store_freeing *since);
/* Takes effect with the next write. */
void lp_store_set_write_path(struct lp_store *store, enum lp_write_path path);
/* The same for deferred payloads; payloads that wait already keep their store. */
void lp_store_set_deferred_store(struct lp_store *store, enum lp_deferred_store kind);
/* Bytes of the store's memory budget that the allocator loses in holes beside the used memory. The
 * caches shrink accordingly from their next look on. A store without caches ignores this. */
void lp_store_set_lost_bytes(struct lp_store *store, uint64_t bytes);
/* The store has been idle for long: drops a part of its caches, as much as takes a millisecond or
 * two, and flushes the index's memory if it holds much. Called each second until it returns false:
 * there was nothing to give back. */
bool lp_store_rest(struct lp_store *store);

struct lp_store_stats {
	uint64_t ops[LP_STORE_OPCODE_CNT]; /* completed operations */
	uint64_t errors[LP_STORE_OPCODE_CNT];
	uint64_t writes_by_path[LP_PATH_CNT];
	uint64_t written_bytes;
	uint64_t read_bytes;
	uint64_t inode_hits;
	uint64_t inode_misses;
	uint64_t index_waits; /* operations that waited for a read of the index */
	uint64_t space_waits;
	uint64_t bad_marks; /* U records that could not be read or used at the opening */
	uint64_t commits;   /* groups */
	uint32_t shard_idx;
	/* Changes that make the index larger are refused, so no file can grow, whatever is free. */
	bool takes_no_more;
	uint64_t free_blocks; /* in chunks that the shard has leased, and blocks given to it */
	uint64_t kept_blocks; /* of them, reserved for cuts of shared blocks (P6) */
	uint64_t used_blocks;
	uint64_t cached_bytes; /* inodes, maps */
	/* Memory, and its budget (store/block/core/memory_budget.h). */
	uint64_t budget_bytes;
	uint64_t nodes_bytes; /* the same as cached_bytes */
	uint64_t nodes_limit_bytes;
	uint64_t index_cache_bytes;
	uint64_t index_cache_limit_bytes;
	uint64_t memtable_bytes;
	uint64_t index_filter_bytes; /* in memory whatever the budget is */
	uint64_t pools_bytes;
	uint64_t space_bytes;      /* the free-space map */
	uint64_t data_cache_bytes; /* buffers of cached blocks, and of blocks on their way */
	uint64_t data_cache_limit_bytes;
	uint64_t deferred_records; /* payloads put into the index, not the log, since opening */
	uint64_t bad_blocks; /* blocks that cannot be written, and are held; the index has their
				content (rule L6) */
	/* The index, which writes in the background: writes are refused while it is behind. */
	uint64_t index_stalls;     /* how often a stall began, */
	uint64_t index_stops;      /* how often because the index had no more room, */
	uint64_t index_stalled_ns; /* and how long stalls took in all */
	uint64_t index_refused;    /* batches that had to be put again */
	uint64_t index_flushes;    /* done, as are */
	uint64_t index_compactions;
	uint64_t index_flushes_waiting; /* memtables that are full, and are not in a table yet */
	uint64_t index_flushing;        /* of them, at work now */
	uint64_t index_compacting;
	uint64_t index_debt_bytes; /* compactions still have to rewrite these */
	uint64_t index_level0_files;
	uint64_t pending_bytes; /* payloads that wait for their place: in bufs, not of the budget */
	/* Requests that the reactor's thread made to the devices since the store was opened. Those
	 * of the index's own threads and of helpers are in lp_bdev_sync_stats(). A store in memory
	 * has none. */
	uint64_t log_writes; /* frames, and the log's own superblocks */
	uint64_t log_bytes;
	uint64_t data_writes; /* objects' data: direct and write-back, but not payloads in frames */
	uint64_t data_bytes;
	uint64_t data_reads;
	uint64_t data_read_bytes;
	uint64_t index_reads; /* of tables, for operations that wait for the index */
	uint64_t index_read_bytes;
	uint64_t flushes;
	/* Data in memory, by blocks; reads that are too large for the cache do not count in any of
	 * these.
	 */
	uint64_t data_hits;
	uint64_t data_misses;
	uint64_t ahead_reads;  /* of the device, in data_reads too */
	uint64_t ahead_blocks; /* in them: */
	uint64_t ahead_used;   /* requested later */
	uint64_t ahead_wasted; /* evicted before any read */
	uint64_t ahead_waits;  /* reads that waited for blocks on their way */
};
/* Empty while the store is being opened again after a failure. */
void lp_store_read_bad(const struct lp_store *store, struct lp_bad_blocks *ret_bad);
/* Asks the index, so it is not for use with each operation. */
void lp_store_read_stats(struct lp_store *store, struct lp_store_stats *ret_stats);

/* Contents of the device, and the course of the last start. Walks all free space, so call it
 * seldom. A store in memory has none of it. */
struct lp_store_usage {
	uint64_t free_blocks; /* in chunks that the shard has leased */
	uint64_t used_blocks;
	uint64_t largest_run_blocks;
	double score;         /* fragmentation of the free space: lp_alloc_score() */
	uint64_t alloc_bytes; /* memory for the free space */
	uint64_t index_bytes; /* of the index's files, in whole blocks */
	uint64_t log_ring_blocks;
	uint64_t log_needed_blocks;  /* the log's blocks that a start now would read */
	uint64_t log_needed_records; /* records that it would put into the index again */
	uint64_t start_frames;       /* frames of the log that were replayed */
	uint64_t start_payloads;     /* blocks written to their place */
	uint64_t start_ns;
};
void lp_store_read_usage(struct lp_store *store, struct lp_store_usage *ret_usage);

/* One line for people: the path of a write of so many bytes with LP_PATH_AUTO, and the reason.
 * Returns as snprintf(). */
int lp_store_explain(const struct lp_store *store, uint64_t bytes, char *buf, size_t len);

/* Fragmentation of the free space, from 0, none, to 1 (store/space/alloc.h). Looks at all of it. */
double lp_store_alloc_score(const struct lp_store *store);

/* How long operations stayed in one state, since the store was opened. */
struct lp_store_time {
	const char *operation; /* static: "transaction", "read", "query" */
	const char *state;
	uint64_t cnt; /* how often an operation left the state */
	uint64_t ns;  /* as measured between turns of the reactor */
};

#define LP_STORE_TIMES_MAX 64u

/* A row for each state, at most max of them; returns how many there are, at most
 * LP_STORE_TIMES_MAX. */
/* Transactions and reads that have begun and not ended, the oldest first. */
void lp_store_under_way(struct lp_store *store, struct lp_under_way_list *list);
size_t lp_store_read_times(const struct lp_store *store, struct lp_store_time *ret_rows,
			   size_t max);

/* A simulation's driver calls this between turns: runs one of the index's jobs. */
bool lp_store_sim_run_one(struct lp_store *store);

#endif
