/* SPDX-License-Identifier: Apache-2.0 */
/* The namespace: directories, names and files over all shards, for both doors.
 *
 * Threads: each shard has one struct lp_ns beside its store, on its reactor's thread. An operation
 *   is submitted to the ns of the caller's thread, whatever shards it touches. complete() is called
 *   on that thread, never from inside the submit. It may submit again, and may free the operation.
 * Blocking: none.
 * Memory: nothing is allocated after opening, except as the headers of state/ and change/ say.
 * Ownership: what an operation points to stays as it is until complete().
 * Limits: LP_NS_OPS_MAX operations at work for each shard; more wait in order.
 * Errors: negative, in op->result: those of the system calls of the same names, and the store's:
 *   -ENOENT, -EEXIST, -ENOTDIR, -EISDIR, -ENOTEMPTY, -EXDEV, -ELOOP, -EMLINK, -EBUSY, -EPERM
 *   -EPERM             also: what is to be changed is immutable, or may only be appended to; or a
 *                      directory is, in which a name is to come or go
 *   -ENAMETOOLONG, -EINVAL   a name or path that cannot be (rule N6)
 *   -ESTALE            the number was never given, or its inode is gone
 *   -ECANCELED         a guard did not hold
 *   -EIO               the device failed; of what changes something: the outcome is unknown; or
 *                      it is about what such a change over several shards was about (stats.stuck)
 *   -EROFS             a shard that it touches is read-only
 *   -EAGAIN            nothing was done: the ns is stopping; of paths: the directory went, or the
 *                      source of a copy was changed, again and again
 *   -E2BIG             too many xattrs, or an ACL too long to be carried over
 *
 * An operation happens wholly or not at all, also over several shards, also after a crash. It is
 * durable when it completes, or only ordered, where it asks for that (P1, P2). What it returns is
 * durable (P3). Operations take effect in one order that agrees with the order in which they were
 * submitted and completed. Paths are looked up name by name, each at some moment between submit and
 * complete.
 *
 * There are two kinds of operations. Those on numbers and names in a directory are needed by the
 * mount, and a native client may use them. Those on paths from the root, "photos/2026/a.jpg", are
 * needed by the native door. Permissions are the doors' business.
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

/* Who asks: the owner of what is made. */
struct lp_ns_who {
	uint32_t uid;
	uint32_t gid;
};

enum lp_ns_opcode {
	/* --- By number --- */

	/* Any one store operation on one inode, on the shard that has it: reads, gets, lists of
	 * xattrs and omap, seeks, and transactions whose changes and guards are all of that inode
	 * (but for the source of a clone, on the same shard) and neither make, remove nor link it.
	 * The answer of a read lives in buffers of this thread until lp_ns_end(). */
	LP_NS_STORE,
	LP_NS_STAT, /* of directories: over all fragments */
	/* Mode, owner, times, flags. An explicit one makes a directory one's own: it no longer
	 * vanishes (rule N2). */
	LP_NS_SET,
	LP_NS_OPEN,  /* the inode outlives its last name until as many closes */
	LP_NS_CLOSE, /* whatever has become of the device */
	LP_NS_SYNC,  /* all that was ordered before on all shards is durable */
	/* Who holds inodes (op->hold) lets go of some, or of all there are. Never fails. */
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
	LP_NS_DELETE, /* and the directories that this empties, if puts made them */
	LP_NS_COPY,   /* a file, by reference where possible, on its shard (rule N7) */
	LP_NS_MOVE,   /* rename by path; makes directories as a put does */
	LP_NS_LIST,   /* keys in order, merged over the shards */
	LP_NS_OPCODE_CNT
};

/* What lookup-like operations say of what a name leads to. */
struct lp_ns_found {
	struct lp_ino ino;
	/* Of a directory: the newest times of inode and fragments; size_bytes is that of its
	 * names. */
	struct lp_attrs attrs;
	uint64_t entries_cnt; /* of a directory: its names */
};

/* A condition on what a path leads to before the operation: -EEXIST, -ENOENT, -ECANCELED. None of
 * them holds for a directory, but of a move. */
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

/* So often an inode has been forgotten. */
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
	bool has_attrs;        /* if asked for; unless it lost its name meanwhile */
	struct lp_attrs attrs; /* only then */
};

struct lp_ns_op {
	enum lp_ns_opcode opcode;
	void (*complete)(struct lp_ns_op *op);
	int result;
	/* Of what changes something: when it is answered. Of stat, lookup, readdir and open: what
	 * they may show; of LP_NS_STORE its own operation says so. */
	enum lp_store_ack ack;
	struct lp_ns_who who;
	/* What set, put, upload, commit and copy may make of modes. LP_NS_STORE does not look at
	 * it: whoever submits that has seen to it. */
	struct lp_rights rights;
	/* Of stat, lookup, make, link, and readdir with attributes: each inode that the result has
	 * attributes of is held once, from before these were read until LP_NS_FORGET: it outlives
	 * its last name (rule N5). What fails holds nothing. Not of a make with or_open. For a
	 * mount: what its kernel was told of. */
	bool hold;
	/* The mount's own: its kernel knows what this changes. Of any other that changes something
	 * it is told before the answer, if it may remember it: see lp_ns_watch(). */
	bool is_mounts;
	union {
		/* ino says where; complete and node of the store's operation are this module's. */
		struct {
			struct lp_ino ino;
			struct lp_store_op op; /* op.result is the result, too */
			/* He has waited for space once already: -ENOSPC is said at once. */
			bool is_impatient;
			/* Of a mount's write at the end: where its kernel takes that to be. If it
			 * is elsewhere the kernel is told, when this has been answered. */
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
			uint32_t passes; /* LP_INODE_FLAG: times alone are set in spite of these */
			struct lp_ns_found found; /* result: as it is afterwards */
		} set;
		struct {
			struct lp_ino ino;
			uint32_t count; /* CLOSE: how many opens are given back; -EINVAL: there
					   are not so many. Of no inode's number: -ESTALE */
			struct lp_ns_found found; /* OPEN: result */
		} open;
		struct {
			/* Result: shards that have failed and may have lost something that was
			 * ordered. Never fewer than before: the way back is a new opening. */
			uint32_t failed_cnt;
		} sync;
		struct {
			const struct lp_ns_forgotten *items;
			uint32_t cnt;
			/* Of all mounts: there is one. What it had open is closed. */
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
			bool or_open; /* if a file is there already it is the result: created
					 says which. What is there and no file: -EISDIR,
					 -EEXIST */
			bool unnamed; /* no name is given: an orphan, open (O_TMPFILE), to which
					 LP_NS_LINK may give a name, once */
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
			/* Results: what moved, and what was there, nr 0: nothing. */
			struct lp_ino moved;
			struct lp_ino replaced;
		} rename;
		struct {
			struct lp_ino dir;
			uint64_t cookie; /* 0: from the beginning */
			/* In which order, the same in all calls of one reading. By name, shard by
			 * shard: each call costs what it returns, given `after`. Else in that of
			 * the cookies: who remembers nothing goes on wherever he was, but each
			 * call walks through a fragment from its beginning. */
			bool by_name;
			/* by_name: the name that the cookie was read with, which need not lead
			 * anywhere any more. Absent: the cookie's entry is looked for, by a walk;
			 * -ENOENT: it is gone, and nobody knows where it was. */
			struct lp_bytes after;
			/* Only the fragment that the cookie names, or of a directory that is not
			 * spread the one there is; an insertion number of 0 is its beginning. It
			 * needs no name to begin there, and in the order of the cookies may be
			 * asked for names behind `after` and up to `until` only, which names that
			 * come and go do not move. */
			bool in_fragment;
			struct lp_bytes until;
			/* in_fragment: entries with this insertion number or a greater one are left
			 * out. 0: none is, and it becomes what is greater than all there are:
			 * names that move ahead of who reads do not keep him busy for ever. */
			uint64_t before;
			/* by_name in_fragment: no more items than take answer_bytes, each of them
			 * item_bytes and its name, up to the next multiple of 8. 0: no limit. They
			 * are those of the next names, in the order of the cookies. */
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
			uint16_t mode;    /* of a new one; one that replaces keeps the old one's */
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
			/* Goes up with each part of a COPY that is done, while it is at work:
			 * whoever submitted it sees that it goes on, and what it cost. */
			uint64_t steps;
			struct lp_ns_found found; /* result */
		} copy;                           /* COPY, MOVE */
		struct {
			/* Keys in the order of their bytes. A directory is no key: one that is
			 * empty is not listed, but by delimit, which says which there are without
			 * looking into them. Nor is what no path leads to, deeper or longer than
			 * that may be. */
			struct lp_bytes prefix; /* of keys; may end within a name */
			/* What is greater than this, keys and common prefixes; absent: all. */
			struct lp_bytes after;
			bool delimit;       /* stop at the next '/' behind the prefix: such keys
					       are one common prefix */
			bool with_attrs;    /* none: it went, or was replaced, meanwhile */
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
/* Whether what it changes is with the store only after something was asked first: of two that are
 * submitted the later one may then be the first to take effect. Where it is false for both, and
 * both are LP_NS_STORE on one inode, the store keeps their order. */
bool lp_ns_asks_first(const struct lp_ns_op *op);
/* Some of the inodes that are held on this shard, if those of all shards are probably more than
 * max: others each time. On the shard's thread. */
uint32_t lp_ns_crowd(struct lp_ns *ns, uint64_t max, struct lp_ino *ret_inos, uint32_t inos_max);
/* Gives back what a completed LP_NS_STORE read holds. Each one that succeeded, once. */
void lp_ns_end(struct lp_ns *ns, struct lp_ns_op *op);
/* Walks a completed readdir or list. *pos is 0 at first; false at the end. */
bool lp_ns_next(const struct lp_ns_op *op, uint32_t *pos, struct lp_ns_item *ret);

/* A path that may be a key: -EINVAL, -ENAMETOOLONG. The empty one is the root. */
int lp_ns_path_check(struct lp_bytes path) LP_MUST_CHECK;
/* Which shard has a path's entry, as far as this shard's caches know: a client that connects there
 * saves a message between threads. */
uint32_t lp_ns_shard_of_path(struct lp_ns *ns, struct lp_bytes path);
/* What LP_NS_STAT would tell a mount of a directory, if that is known without asking any shard (it
 * may be a moment old, but is what was told, or could have been, since this was called). From any
 * shard's thread. */
bool lp_ns_peek_dir(struct lp_ns *ns, struct lp_ino dir,
		    struct lp_ns_found *ret_found) LP_MUST_CHECK;
/* The same of an entry. */
uint32_t lp_ns_shard_of(struct lp_ns *ns, struct lp_ino dir, struct lp_bytes name);

/* --- What a mount is told of others' changes (rule M2) -----------------------------------------
 */

/* What has changed of an inode, or of a name. */
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
	/* Of who tells it, from tell() to lp_ns_told(). */
	struct lp_work work;
	void *teller;
	int fd;
	int failure;
};

/* tell() is called on the namespace's thread, and lp_ns_told() there when the kernel has been told,
 * never from inside tell(). The operation waits for that with no lock in its hands, so that
 * whatever the kernel waits for meanwhile can be done, but 2 seconds at most: late() says that it
 * has not waited any longer. What a mount's own operation has the kernel told of (believed_end) it
 * does not wait for; late() comes after as long all the same. */
struct lp_ns_watch {
	void (*tell)(void *arg, struct lp_ns_notice *notice);
	void (*late)(void *arg); /* may be NULL */
	/* Something has changed that it will not be told of. May be NULL. */
	void (*untold)(void *arg);
	bool only_data; /* names and attributes are not remembered */
	void *arg;
};

/* From now on somebody watches what is changed by operations of this shard that are not a mount's;
 * NULL: nobody any more, and who waits for what was told is answered without anything being told
 * again. Before anything is held, on all shards; what is under way is right either way. On the
 * shard's thread. */
void lp_ns_watch(struct lp_ns *ns, const struct lp_ns_watch *watch);
/* It has been told. Of items that are is_unknown the kernel knew nothing: if they are held, answers
 * are on their way to it that may be older, and it is told of these again. */
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
	uint64_t seed;        /* of what is random */
	bool read_only;       /* the stores are, or are lost: what a crash left is not ended */
};

/* On the reactor's thread, for each shard; then lp_ns_start() on each, when all have been opened
 * and know each other: peers[i] is the ns of shard i. */
int lp_ns_open(const struct lp_ns_options *options, struct lp_ns **ret_ns) LP_MUST_CHECK;
/* Makes the root of a store that is new, ends what a crash left half done (rule N1, orphans,
 * uploads), then calls ready once, on this thread: 0, or why the shard cannot serve. */
void lp_ns_start(struct lp_ns *ns, struct lp_ns *const *peers,
		 void (*ready)(struct lp_ns *ns, int result, void *arg), void *arg);
/* Lets what is under way end, refuses what is new, and calls stopped() once all peers may do
 * without this shard; call it on all of them. */
void lp_ns_stop(struct lp_ns *ns, void (*stopped)(struct lp_ns *ns, void *arg), void *arg);
/* After stopped(), or with the store abandoned. Accepts NULL. */
void lp_ns_close(struct lp_ns *ns);

struct lp_ns_stats {
	uint64_t ops[LP_NS_OPCODE_CNT]; /* completed */
	uint64_t errors[LP_NS_OPCODE_CNT];
	uint64_t remote_calls;   /* asked of other shards */
	uint64_t local_txns;     /* changes on one shard */
	uint64_t shared_txns;    /* over several (rule N1) */
	uint64_t finish_retries; /* no space for what must be made on this shard */
	uint64_t freeing_waits;  /* no space, but some was on its way: tried again */
	uint64_t stuck;          /* over several, to be ended by the next opening: until then what
				    they touch is -EIO, and the shard is not healthy */
	uint64_t lock_waits;
	uint64_t opens; /* inodes that are open now */
	uint64_t orphans;
	uint64_t held; /* inodes that a mount was told of */
	uint64_t held_bytes;
	uint64_t held_uncounted;  /* for want of memory */
	uint64_t held_unbalanced; /* forgotten more often than they were held */
	uint64_t queued;          /* operations waiting for others to end */
	uint64_t cache_hits;
	uint64_t cache_misses;
	uint64_t told;      /* items that a mount's kernel was told of, each time */
	uint64_t told_late; /* operations of which it had not been for 2 seconds */
	uint64_t untold;    /* items, for want of memory, or as the kernel would not know them */
};
void lp_ns_read_stats(const struct lp_ns *ns, struct lp_ns_stats *ret_stats);
/* Nobody has asked for anything for long: memory of operations goes back to the system. */
void lp_ns_rest(struct lp_ns *ns);
/* What waits here for buffers or for space, in the order in which it will try again. */
void lp_ns_under_way(struct lp_ns *ns, struct lp_under_way_list *list);

/* While they are held no change over several shards begins here. Those that have begun go on, those
 * that wait keep their locks meanwhile: so it is for a moment only, in which all shards can be seen
 * with none of these half done. */
void lp_ns_hold_shared(struct lp_ns *ns, bool are_held);
/* One of those that began here is not over. */
bool lp_ns_has_shared(const struct lp_ns *ns);

#endif
