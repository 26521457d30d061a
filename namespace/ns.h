/* SPDX-License-Identifier: Apache-2.0 */
/* The namespace: directories, names and files over all shards, for both doors.
 *
 * Threads: each shard has one struct lp_ns beside its store, on its reactor's thread. An operation
 *   is submitted to the ns of the caller's thread, whatever shards it touches. complete() is called
 *   on that thread, never from inside the submit. It may submit again, and may free the operation.
 * Blocking: none.
 * Memory: nothing is allocated after opening, except as the headers of state/ and change/ say.
 * Ownership: the caller keeps everything that an operation points to unchanged until complete().
 * Limits: LP_NS_OPS_MAX operations at work for each shard; more wait in order.
 * Errors: negative, in op->result: those of the system calls of the same names, and the store's:
 *   -ENOENT, -EEXIST, -ENOTDIR, -EISDIR, -ENOTEMPTY, -EXDEV, -ELOOP, -EMLINK, -EBUSY, -EPERM
 *   -EPERM             also: the inode to be changed is immutable or append-only, or the directory
 *                      whose names change is
 *   -ENAMETOOLONG, -EINVAL   a name or path that cannot be (rule N6)
 *   -ESTALE            the number was never given, or its inode is gone
 *   -ECANCELED         a guard did not hold
 *   -EIO               the device failed; after a change the outcome is unknown. Or the operation
 *                      touches inodes or names of a stuck change over several shards (stats.stuck)
 *   -EROFS             a shard that it touches is read-only
 *   -EAGAIN            nothing was done: the ns is stopping. By path: the directory was removed, or
 *                      the source of a copy changed, at each retry
 *   -E2BIG             too many xattrs, or an ACL too long to be carried over
 *
 * An operation happens wholly or not at all, also over several shards, also after a crash. When it
 * completes it is durable, or only ordered if the caller asked for that (P1, P2). The state that it
 * returns is durable (P3). Operations take effect in one order that agrees with the order in which
 * they were submitted and completed. Paths are looked up name by name, each at some moment between
 * submit and complete.
 *
 * There are two kinds of operations. The mount needs those on numbers and on names in a directory;
 * a native client may use them. The native door needs those on paths from the root,
 * "photos/2026/a.jpg". The doors check permissions.
 */
#ifndef LP_NAMESPACE_NS_H
#define LP_NAMESPACE_NS_H

#include "base/loop/workers.h"
#include "namespace/state/rights.h"
#include "store/store.h"

struct lp_ns;

#define LP_NS_OPS_MAX        1024u
#define LP_NS_PATH_MAX       4096u /* bytes of a path */
#define LP_NS_DEPTH_MAX      256u  /* names in a path */
#define LP_NS_LINK_MAX       UINT32_C(65000)
#define LP_NS_READDIR_MIN    1024u              /* bytes of a readdir's buffer */
#define LP_NS_VALUE_MAX      LP_STORE_VALUE_MAX /* bytes of an xattr or omap value */
#define LP_NS_XATTRS_MAX     8u                 /* set by a make */
#define LP_NS_PUT_XATTRS_MAX 64u                /* set by a put or commit */
#define LP_NS_NOTICE_ITEMS   16u
#define LP_NS_NOTICE_NAMES   600u /* bytes */

/* The user and group that an operation runs as. They own the inodes that it makes. */
struct lp_ns_who {
	uint32_t uid;
	uint32_t gid;
};

enum lp_ns_opcode {
	/* --- By number --- */

	/* Any one store operation on one inode, on the shard that has it: reads, gets, lists of
	 * xattrs and omap, seeks, and transactions. All changes and guards of a transaction are on
	 * that inode and do not make, remove or link it. Only the source of a clone may be another
	 * inode, on the same shard. The answer of a read is in buffers of this thread until
	 * lp_ns_end(). */
	LP_NS_STORE,
	LP_NS_STAT, /* of directories: over all fragments */
	/* Mode, owner, times, flags. If a caller sets them on a directory that a put made, the
	 * directory no longer vanishes when it is empty (rule N2). */
	LP_NS_SET,
	LP_NS_OPEN,  /* the inode outlives its last name until it is closed as often */
	LP_NS_CLOSE, /* works even if the device has failed */
	LP_NS_SYNC,  /* makes all that was ordered before, on all shards, durable */
	/* The mount gives back holds (op->hold) on some inodes, or on all. Never fails. */
	LP_NS_FORGET,

	/* --- By directory and name --- */
	LP_NS_LOOKUP,
	LP_NS_MAKE,   /* file, symlink, fifo, socket, device, directory */
	LP_NS_REMOVE, /* unlink or rmdir, as is_dir says */
	LP_NS_LINK,
	LP_NS_RENAME,
	LP_NS_READDIR,

	/* --- By path: one name after the other, no symlinks followed --- */
	LP_NS_WALK,
	LP_NS_PUT,    /* a whole object in one go (rule W3) */
	LP_NS_UPLOAD, /* begins a put in pieces: an inode without a name, open */
	LP_NS_COMMIT, /* ends it: the inode takes the name, closed; after an error it is open */
	LP_NS_DELETE, /* also removes directories that this empties, if puts made them */
	LP_NS_COPY,   /* a file, by reference where possible, on its shard (rule N7) */
	LP_NS_MOVE,   /* rename by path; makes directories as a put does */
	LP_NS_LIST,   /* keys in order, merged over the shards */
	LP_NS_OPCODE_CNT
};

/* The inode that a name leads to, as lookup-like operations return it. */
struct lp_ns_found {
	struct lp_ino ino;
	/* Of a directory: the newest times of its inode and its fragments; size_bytes is the size
	 * of its names. */
	struct lp_attrs attrs;
	uint64_t entries_cnt; /* of a directory: its names */
};

/* A condition on the inode that a path leads to before the operation: -EEXIST, -ENOENT, -ECANCELED.
 * A directory fulfils none of them, except in a move. */
enum lp_ns_if {
	LP_NS_IF_ANY,
	LP_NS_IF_ABSENT,
	LP_NS_IF_EXISTS,
	LP_NS_IF_VERSION /* exists, with this version */
};

struct lp_ns_named_value {
	struct lp_bytes name;
	struct lp_bytes value;
};

/* How many holds on an inode the mount's kernel has forgotten. */
struct lp_ns_forgotten {
	struct lp_ino ino;
	uint64_t count;
};

#define LP_NS_RENAME_NOREPLACE (1u << 0)
#define LP_NS_RENAME_EXCHANGE  (1u << 1)

/* One record of a readdir or a list; points into the operation's buffer. */
struct lp_ns_item {
	struct lp_bytes name;  /* list: the whole key; a common prefix ends in '/' */
	struct lp_ino ino;     /* nr 0: a common prefix */
	uint64_t cookie;       /* readdir: continues behind this one (rule N4) */
	uint8_t type;          /* enum lp_inode_type; 0: a common prefix */
	bool has_attrs;        /* if asked for, and the inode has not lost its name meanwhile */
	struct lp_attrs attrs; /* only then */
};

struct lp_ns_op {
	enum lp_ns_opcode opcode;
	void (*complete)(struct lp_ns_op *op);
	int result;
	/* Of a change: when it is answered. Of stat, lookup, readdir and open: whether they may
	 * show state that is not durable yet. LP_NS_STORE uses the ack of its own operation. */
	enum lp_store_ack ack;
	struct lp_ns_who who;
	/* Limits the modes that set, put, upload, commit and copy may store. LP_NS_STORE does not
	 * look at it: its caller has checked the rights. */
	struct lp_rights rights;
	/* Of stat, lookup, make, link, and readdir with attributes; not of a make with or_open.
	 * Each inode whose attributes are in the result gets one hold, before the attributes are
	 * read. The hold lasts until LP_NS_FORGET, and the inode outlives its last name (rule N5).
	 * An operation that fails holds nothing. A mount asks for holds on the inodes that its
	 * kernel learns of. */
	bool hold;
	/* The mount submitted it, so its kernel knows the change. A change by any other caller is
	 * told to the kernel before the answer, if the kernel may have cached it: see
	 * lp_ns_watch(). */
	bool is_mounts;
	union {
		/* ino selects the shard; this module uses complete and node of the store's
		 * operation. */
		struct {
			struct lp_ino ino;
			struct lp_store_op op; /* op.result is the result, too */
			/* The caller has already waited for space once: -ENOSPC is returned at
			 * once. */
			bool is_impatient;
			/* Of a mount's appending write: the offset at which its kernel takes the
			 * end to be. If the end was elsewhere, the kernel is told after the
			 * answer. */
			uint64_t believed_end;
		} store;
		struct {
			struct lp_ino ino;
			struct lp_ns_found found; /* result */
		} stat;
		struct {
			struct lp_ino ino;
			struct lp_attrs attrs;
			uint32_t mask;   /* LP_ATTR_*; ctime is now unless in it */
			uint32_t passes; /* LP_INODE_FLAG: flags that do not forbid setting times
					    alone */
			struct lp_ns_found found; /* result: as it is afterwards */
		} set;
		struct {
			struct lp_ino ino;
			uint32_t count; /* CLOSE: the number of opens given back; -EINVAL if there
					   are fewer, -ESTALE if no inode has the number */
			struct lp_ns_found found; /* OPEN: result */
		} open;
		struct {
			/* Result: the number of shards that have failed and may have lost ordered
			 * changes. It never falls until the store is opened anew. */
			uint32_t failed_cnt;
		} sync;
		struct {
			const struct lp_ns_forgotten *items;
			uint32_t cnt;
			/* All holds of the mount (there is only one). Files that it had open are
			 * closed. */
			bool all;
		} forget;
		struct {
			struct lp_ino dir;
			struct lp_bytes name;
			struct lp_ns_found found; /* result */
		} lookup;
		struct {
			struct lp_ino dir;
			struct lp_bytes name;
			struct lp_bytes target; /* of a symlink */
			uint32_t rdev;
			uint16_t mode;
			uint8_t type;
			bool spread;  /* of a directory */
			bool open;    /* as by LP_NS_OPEN, in one go */
			bool or_open; /* if a file of this name exists, it is the result, and
					 created says which happened. If the name leads to no file:
					 -EISDIR, -EEXIST */
			bool unnamed; /* without a name: an open orphan (O_TMPFILE). LP_NS_LINK may
					 give it a name, once */
			bool created; /* result */
			const struct lp_ns_named_value *xattrs; /* set with it: inherited ACLs */
			uint32_t xattr_cnt;
			struct lp_ns_found found; /* result */
		} make;
		struct {
			struct lp_ino dir;
			struct lp_bytes name;
			bool is_dir;
			/* Results. */
			struct lp_ino ino;
		} remove;
		struct {
			struct lp_ino ino;
			struct lp_ino dir;
			struct lp_bytes name;
			struct lp_ns_found found; /* result */
		} link;
		struct {
			struct lp_ino dir;
			struct lp_bytes name;
			struct lp_ino to_dir;
			struct lp_bytes to_name;
			uint32_t flags; /* LP_NS_RENAME_* */
			/* Results: the inode that moved, and the one that it replaced (nr 0:
			 * none). */
			struct lp_ino moved;
			struct lp_ino replaced;
		} rename;
		struct {
			struct lp_ino dir;
			uint64_t cookie; /* 0: from the beginning */
			/* The order, the same in all calls of one reading. True: by name, shard by
			 * shard; given `after`, each call costs only the entries that it returns.
			 * False: by cookie; a reader without memory can go on at any cookie, but
			 * each call walks a fragment from its beginning. */
			bool by_name;
			/* by_name: the name that was returned with the cookie. Its entry may be
			 * gone. If absent, a walk looks for the cookie's entry; -ENOENT if it is
			 * gone, because its position is then unknown. */
			struct lp_bytes after;
			/* Read only one fragment: the one that the cookie names, or the only one if
			 * the directory is not spread. Insertion number 0 is its beginning, and
			 * needs no name. In the order of cookies the caller may ask for names after
			 * `after` and up to `until` only. Names that come and go do not shift this
			 * range. */
			bool in_fragment;
			struct lp_bytes until;
			/* in_fragment: entries with this insertion number or a greater one are left
			 * out. 0: none is left out, and the field is set to a number above all
			 * present ones. With it a reader ends even if renames keep moving names
			 * ahead of it. */
			uint64_t before;
			/* by_name in_fragment: return at most as many items as fit into
			 * answer_bytes. Each takes item_bytes and its name, rounded up to a
			 * multiple of 8. 0: no limit. The items are the next names, returned in the
			 * order of cookies. */
			uint32_t answer_bytes;
			uint32_t item_bytes;
			/* For lp_ns_next(); at least LP_NS_READDIR_MIN. Without "." and "..". */
			void *buf;
			uint32_t buf_len;
			bool with_attrs;
			/* Results. */
			uint32_t items;
			uint32_t used;
			bool more;          /* perhaps */
			uint32_t shard_idx; /* in_fragment: which one */
			bool is_last;       /* in_fragment: there is none behind it */
		} readdir;
		struct {
			struct lp_bytes path;     /* empty: the root */
			bool open;                /* as by LP_NS_OPEN, in one go */
			struct lp_ns_found found; /* result */
		} walk;
		struct {
			struct lp_bytes path;
			enum lp_ns_if condition;
			uint64_t version_nr;
			uint16_t mode;    /* of a new object; a replaced file's mode is kept */
			int64_t mtime_ns; /* 0: now */
			struct lp_payload payload; /* PUT: all of it, of length bytes */
			uint64_t length;
			enum lp_write_path write_path;
			const struct lp_ns_named_value *xattrs;
			uint32_t xattr_cnt;
			struct lp_ino ino;        /* COMMIT: what UPLOAD made */
			struct lp_ns_found found; /* result; blocks are not counted */
		} put;                            /* PUT, UPLOAD (path only), COMMIT */
		struct {
			struct lp_bytes path;
			enum lp_ns_if condition;
			uint64_t version_nr;
			bool or_dir; /* an empty directory, too */
		} delete;
		struct {
			struct lp_bytes path;
			struct lp_bytes to_path;
			enum lp_ns_if condition; /* on to_path */
			uint64_t version_nr;
			/* Increases with each part of a COPY that is done, while it is at work. The
			 * submitter sees from it that the copy progresses, and what it cost. */
			uint64_t steps;
			struct lp_ns_found found; /* result */
		} copy;                           /* COPY, MOVE */
		struct {
			/* Keys in the order of their bytes. A directory is no key, so an empty one
			 * is not listed. With delimit it is listed, because the list then does not
			 * look into directories. Files deeper or longer than a path may be are not
			 * listed either. */
			struct lp_bytes prefix; /* of keys; may end within a name */
			/* Only keys and common prefixes greater than this; absent: all. */
			struct lp_bytes after;
			bool delimit; /* stop at the next '/' behind the prefix: all keys that share
					 it are one common prefix */
			bool with_attrs;    /* an item has none if its file was removed or replaced
					       meanwhile */
			uint32_t items_max; /* 0: as many as there is room for */
			void *buf;          /* for lp_ns_next() */
			uint32_t buf_len;
			/* Results. */
			uint32_t items;
			uint32_t used;
			bool more;
		} list;
	};

	/* The ns's. */
	struct lp_list_node node;
	struct lp_ns *home;
	void *work;
};

void lp_ns_submit(struct lp_ns *ns, struct lp_ns_op *op);
/* True if the operation must ask for something before it passes its change to the store. Of two
 * such operations the one submitted later may then take effect first. If it is false for both, and
 * both are LP_NS_STORE on one inode, the store keeps their order. */
bool lp_ns_asks_first(const struct lp_ns_op *op);
/* Returns some of the inodes that are held on this shard, other ones at each call, if all shards
 * together probably hold more than max. On the shard's thread. */
uint32_t lp_ns_crowd(struct lp_ns *ns, uint64_t max, struct lp_ino *ret_inos, uint32_t inos_max);
/* Gives back the buffers of a completed LP_NS_STORE read. Call it once for each read that
 * succeeded. */
void lp_ns_end(struct lp_ns *ns, struct lp_ns_op *op);
/* Walks a completed readdir or list. *pos is 0 at first; false at the end. */
bool lp_ns_next(const struct lp_ns_op *op, uint32_t *pos, struct lp_ns_item *ret);

/* Checks that a path may be a key: -EINVAL, -ENAMETOOLONG. The empty path is the root. */
int lp_ns_path_check(struct lp_bytes path) LP_MUST_CHECK;
/* The shard of a path's entry, as far as this shard's caches know it. A client that connects to
 * that shard saves a message between threads. */
uint32_t lp_ns_shard_of_path(struct lp_ns *ns, struct lp_bytes path);
/* The result of LP_NS_STAT on a directory for a mount, if it is known without asking any shard. It
 * may be older than the call, but is a state that was told, or could have been told, since the call
 * began. From any shard's thread. */
bool lp_ns_peek_dir(struct lp_ns *ns, struct lp_ino dir,
		    struct lp_ns_found *ret_found) LP_MUST_CHECK;
/* The shard of an entry of a directory. */
uint32_t lp_ns_shard_of(struct lp_ns *ns, struct lp_ino dir, struct lp_bytes name);

/* --- Notices to a mount about others' changes (rule M2) --------------------------------------- */

/* One change of an inode or of a name. */
struct lp_ns_news {
	struct lp_ino ino; /* of a name: its directory */
	uint64_t offset;
	uint64_t length;   /* 0: to the end */
	uint16_t name_at;  /* in names */
	uint16_t name_len; /* 0: the inode itself, its attributes, xattrs, links */
	bool has_data;     /* and its data, from offset on */
	bool is_unknown;   /* result: see lp_ns_told() */
};

struct lp_ns_notice {
	uint32_t item_cnt;
	uint32_t names_len;
	struct lp_ns_news items[LP_NS_NOTICE_ITEMS];
	char names[LP_NS_NOTICE_NAMES];
	struct lp_ns *ns;
	/* The mount's, from tell() to lp_ns_told(). */
	struct lp_work work;
	void *teller;
	int fd;
	int failure;
};

/* tell() is called on the namespace's thread. lp_ns_told() must be called there when the kernel has
 * been told, never from inside tell(). The operation waits for that without holding locks, so
 * requests that the kernel waits for meanwhile can be done. It waits at most 2 seconds; late()
 * reports that it did not wait longer. A mount's own operation (believed_end) does not wait for its
 * notice, but late() is called after the same time. */
struct lp_ns_watch {
	void (*tell)(void *arg, struct lp_ns_notice *notice);
	void (*late)(void *arg); /* may be NULL */
	/* A change was made that the mount will not be told of. May be NULL. */
	void (*untold)(void *arg);
	bool only_data; /* names and attributes are not remembered */
	void *arg;
};

/* Starts to tell a mount of the changes by this shard's operations that are not the mount's. NULL
 * ends it: operations that wait for a notice are answered, and no notice is repeated. Call it on
 * all shards before the first hold; operations under way are right in either case. On the shard's
 * thread. */
void lp_ns_watch(struct lp_ns *ns, const struct lp_ns_watch *watch);
/* The kernel has been told. It did not know the items marked is_unknown. If such an inode is held,
 * older answers may be on their way to the kernel, so it is told of these items again. */
void lp_ns_told(struct lp_ns_notice *notice);

/* --- Opening and closing ---------------------------------------------------------------------- */

struct lp_ns_options {
	struct lp_reactor *reactor;
	struct lp_store *store;
	struct lp_bufs *bufs;
	uint32_t shard_idx;
	uint32_t shard_cnt;
	uint32_t ops_max;     /* 0: LP_NS_OPS_MAX */
	uint64_t cache_bytes; /* of directories and paths; 0: 1 MiB */
	uint64_t seed;        /* for random choices */
	bool read_only; /* the stores are read-only or lost: changes that a crash left half done are
			   not ended */
};

/* On the reactor's thread, for each shard. When all are open, call lp_ns_start() on each; peers[i]
 * is the ns of shard i. */
int lp_ns_open(const struct lp_ns_options *options, struct lp_ns **ret_ns) LP_MUST_CHECK;
/* Makes the root of a new store and ends whatever a crash left half done (rule N1, orphans,
 * uploads). Then calls ready once, on this thread, with 0 or the reason why the shard cannot
 * serve. */
void lp_ns_start(struct lp_ns *ns, struct lp_ns *const *peers,
		 void (*ready)(struct lp_ns *ns, int result, void *arg), void *arg);
/* Lets operations under way end and refuses new ones. Calls stopped() when no peer needs this shard
 * any more, so call it on all of them. */
void lp_ns_stop(struct lp_ns *ns, void (*stopped)(struct lp_ns *ns, void *arg), void *arg);
/* After stopped(), or with the store abandoned. Accepts NULL. */
void lp_ns_close(struct lp_ns *ns);

struct lp_ns_stats {
	uint64_t ops[LP_NS_OPCODE_CNT]; /* completed */
	uint64_t errors[LP_NS_OPCODE_CNT];
	uint64_t remote_calls;   /* asked of other shards */
	uint64_t local_txns;     /* changes on one shard */
	uint64_t shared_txns;    /* over several (rule N1) */
	uint64_t finish_retries; /* finishing a change on this shard was retried because there was
				    no space */
	uint64_t freeing_waits;  /* retries because there was no space, but blocks were about to be
				    freed */
	uint64_t stuck; /* changes over several shards that only the next opening ends. Until then
			   operations on their inodes and names get -EIO, and the shard is not
			   healthy */
	uint64_t lock_waits;
	uint64_t opens; /* inodes that are open now */
	uint64_t orphans;
	uint64_t held; /* inodes that a mount was told of */
	uint64_t held_bytes;
	uint64_t held_uncounted;  /* not counted because memory was short */
	uint64_t held_unbalanced; /* forgotten more often than they were held */
	uint64_t queued;          /* operations waiting for others to end */
	uint64_t cache_hits;
	uint64_t cache_misses;
	uint64_t told;      /* items that a mount's kernel was told of, each time */
	uint64_t told_late; /* operations whose notice took longer than 2 seconds */
	uint64_t untold;    /* items not told: no memory, or the kernel would not know them */
};
void lp_ns_read_stats(const struct lp_ns *ns, struct lp_ns_stats *ret_stats);
/* Called when no request has come for long: gives memory of operations back to the system. */
void lp_ns_rest(struct lp_ns *ns);
/* The operations that wait for buffers or space, in the order in which they will be retried. */
void lp_ns_under_way(struct lp_ns *ns, struct lp_under_way_list *list);

/* While they are held, no change over several shards begins here. Changes that have begun go on;
 * waiting ones keep their locks. So hold them only until all shards can be seen with no change half
 * done. */
void lp_ns_hold_shared(struct lp_ns *ns, bool are_held);
/* A change over several shards that began here is not over. */
bool lp_ns_has_shared(const struct lp_ns *ns);

#endif
