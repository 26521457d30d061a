/* SPDX-License-Identifier: Apache-2.0 */
/* liblapis: the client library of Lapis, an object storage daemon.
 *
 * A struct lapis is a handle on one store: it holds a connection to each shard of the daemon that
 * it has had something to ask of, and opens them when they are needed. Requests are made in two
 * ways: lapis_submit() returns at once and calls back when the answer is there, and the functions
 * named after operations (lapis_put(), lapis_stat(), ...) wait for it.
 *
 * Who runs it. With LAPIS_THREAD the handle has a thread of its own, and callbacks come on that
 * thread. Without, it runs when the caller calls lapis_turn(): when lapis_fd() is readable, or
 * after lapis_submit(). Functions that wait run it themselves, so other callbacks may come then.
 *
 * Threads: lapis_submit() and lapis_cancel() may be called by any thread at any time, also from
 * callbacks. Functions that wait may be called by any thread when the handle has its own, and by
 * one thread at a time when it has none, as may lapis_turn(); from callbacks they are -EDEADLK.
 * lapis_close() comes last, after all others have returned. The library's thread takes no signals
 * that are for the process; a callback on it gets those that it brings on itself, such as SIGPIPE.
 *
 * fork(). A handle, and what was opened with it, is the process's that opened it. A child may not
 * use it, nor close it: it has no thread there, and its connections are the parent's. A child opens
 * its own; exec closes the descriptors.
 *
 * Results. Functions return 0 or a positive number for success and a negative error number (of
 * <errno.h>) for failure; lapis_error_text() then has a sentence, the server's where it said one.
 * Those with a meaning of their own here:
 *   -ENOTCONN         not done: there was no connection, or it broke before the request was sent
 *   -ETIMEDOUT        not done (or only read): no answer within the time limit
 *   -LAPIS_EUNKNOWN   the request was sent, and then the connection broke, or time ran out, or it
 *                     was canceled: a change may have been made, or not, or be made yet
 *   -ECANCELED        a condition on a version did not hold, or lapis_cancel() came in time: not
 *                     done
 *   -EAGAIN           the library holds as many requests as it may; or the daemon was busy for as
 *                     long as the time limit: not done
 *   -EBADMSG          data does not match its checksum: what is in the buffer must not be used
 *   -EPROTO           the other end does not speak the protocol
 * What only reads is asked again by itself when a connection breaks; so is what was surely not
 * done. Nothing else ever is. After six breaks in a row it is -ENOTCONN; a get that got further
 * than before in between begins to count again.
 *
 * Order: requests that are under way at once have none, also when they are for one object. Who
 * needs one waits for the first.
 *
 * What an object is called: `ino` is an inode number, 0 for the root, and `path` a path from
 * there such as "photos/2026/a.jpg", or NULL for the inode itself. A path from an inode other than
 * the root is a single name. Functions that take a `key` mean a path from the root.
 *
 * Structs of options and requests begin with `size`, which the caller sets to sizeof of it as he
 * knows it; all else may be zero. Later versions append fields only. A library that is older than
 * its caller takes such a struct when the fields that it does not know are zero; else, and when
 * there is no size, it is -EINVAL and nothing is done. Structs that are filled in by the library
 * say `size` the same way where they may grow.
 *
 * The protocol: docs/format/wire.md, lapis-protocol(7).
 */
#ifndef LP_CLIENT_LAPIS_H
#define LP_CLIENT_LAPIS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define LAPIS_API        __attribute__((visibility("default")))
#define LAPIS_MUST_CHECK __attribute__((warn_unused_result))
#else
#define LAPIS_API
#define LAPIS_MUST_CHECK
#endif

/* The error that says that it is not known whether a change was made (EREMOTEIO of Linux). */
#define LAPIS_EUNKNOWN 121

#define LAPIS_TO_END UINT64_MAX /* as a length: to the end of the object */

struct lapis;

/* --- The handle ------------------------------------------------------------------------------- */

enum lapis_crc {
	LAPIS_CRC_ALL = 0, /* headers and data: what is read is what was put */
	LAPIS_CRC_HEADER = 1,
	LAPIS_CRC_OFF = 2
};

enum lapis_open_flag {
	LAPIS_THREAD = 0x1, /* a thread of its own */
	LAPIS_WAIT = 0x2    /* a daemon that is not there yet is waited for, up to reconnect_ms */
};

struct lapis_options {
	size_t size;
	const char *address;   /* unix:PATH or tcp:HOST:PORT; NULL: $LAPIS_ADDRESS, or
				* unix:/run/lapis/lapis.sock */
	const char *name;      /* of the client, for the daemon's log; NULL: the program's */
	uint32_t flags;        /* lapis_open_flag */
	uint32_t crc;          /* lapis_crc, at least */
	uint32_t requests_max; /* that the library holds at once; 0: 4096 */
	uint32_t credits;      /* under way on one connection, at most; 0: as many as it gets */
	uint32_t timeout_ms;   /* for one message to be answered; 0: 30,000. What the caller takes
				* (in a source, a sink, a callback, between turns) does not count.
				* It begins anew each time when the daemon says that a copy goes
				* on */
	uint32_t reconnect_ms; /* how long a lost connection is tried again, from when something is
				* asked; 0: 10,000 */
	uint32_t connect_ms;   /* for a connection to be made to one address; 0: 5,000 */
};

/* options may be NULL. Makes no connection yet, but looks up a HOST that is a name, which may
 * block; of its addresses the first eight are tried in turn. -EINVAL, -ENAMETOOLONG: the address or
 * an option makes no sense; -EHOSTUNREACH: no such host; -ENOMEM, -EMFILE. */
LAPIS_API int lapis_open(const struct lapis_options *options,
			 struct lapis **ret_lapis) LAPIS_MUST_CHECK;
/* Cancels what is under way (its callbacks come before this returns), ends the thread, closes the
 * connections. Accepts NULL. Not from a callback. */
LAPIS_API void lapis_close(struct lapis *lapis);

/* Becomes readable when lapis_turn() has something to do: for poll and epoll. */
LAPIS_API int lapis_fd(const struct lapis *lapis);
/* Sends what is to be sent, receives what has come, calls back. Waits for at most timeout_ms
 * (-1: as long as it takes) when there is nothing to do yet. The number of requests that
 * ended, or -EBUSY: the handle has its own thread; -EDEADLK: called from a callback. */
LAPIS_API int lapis_turn(struct lapis *lapis, int timeout_ms);

/* About the last function of this thread that failed: a sentence without a full stop, never NULL,
 * valid until the next call. */
LAPIS_API const char *lapis_error_text(void);
/* "0.1.0" */
LAPIS_API const char *lapis_version(void);

struct lapis_stats {
	size_t size;
	uint64_t requests; /* submitted, by the caller or for him */
	uint64_t messages_sent;
	uint64_t messages_received;
	uint64_t sends; /* system calls */
	uint64_t receives;
	uint64_t connects;   /* connections that were established */
	uint64_t retries;    /* messages sent again */
	uint64_t shard_hits; /* replies from the shard that answers such a request best */
	uint64_t shard_misses;
};
LAPIS_API void lapis_read_stats(const struct lapis *lapis, struct lapis_stats *ret_stats);

/* --- Requests --------------------------------------------------------------------------------- */

/* The numbers of the protocol. What a request needs besides ino and path stands behind it. */
enum lapis_op {
	LAPIS_PING = 3,
	LAPIS_STAT = 16,   /* -> attrs */
	LAPIS_GET = 17,    /* offset, length, version; buf or sink -> data_bytes, object_bytes */
	LAPIS_PUT = 18,    /* data or source; the fields of "a new object" -> attrs */
	LAPIS_UPLOAD = 19, /* -> attrs. LAPIS_PUT does this, write and commit by itself */
	LAPIS_WRITE = 20,  /* data, offset, write_path, LAPIS_APPEND -> offset, version */
	LAPIS_COMMIT = 21, /* to_ino: the upload; the fields of "a new object" -> attrs */
	LAPIS_ABORT = 22,
	LAPIS_DELETE = 23, /* condition, version, LAPIS_OR_DIR */
	LAPIS_LIST = 24, /* name: a prefix; after, items_max, LAPIS_DELIMIT, LAPIS_ATTRS -> items */
	LAPIS_COPY = 25, /* to_ino, to_path, condition, version -> attrs */
	LAPIS_MOVE = 26, /* as copy */
	LAPIS_OPEN = 27, /* -> attrs. lapis_open_file() keeps the connection in mind, too */
	LAPIS_CLOSE = 28,
	LAPIS_TRUNCATE = 29,  /* offset -> version */
	LAPIS_PUNCH = 30,     /* offset, length -> version */
	LAPIS_PREALLOC = 31,  /* offset, length -> version */
	LAPIS_SEEK = 32,      /* offset, LAPIS_HOLE -> offset */
	LAPIS_CLONE = 33,     /* offset, length, to_ino: the source, src_offset -> version */
	LAPIS_SET = 34,       /* attrs, mask -> attrs */
	LAPIS_XATTR_GET = 40, /* name -> value */
	LAPIS_XATTR_SET = 41, /* name, value, condition */
	LAPIS_XATTR_REMOVE = 42,
	LAPIS_XATTR_LIST = 43, /* name: a prefix; after, items_max, LAPIS_VALUES -> items */
	LAPIS_OMAP_GET = 44,
	LAPIS_OMAP_SET = 45,
	LAPIS_OMAP_REMOVE = 46,
	LAPIS_OMAP_LIST = 47,
	LAPIS_COMPOUND = 48, /* changes, data and offset of its write -> offset, version */
	LAPIS_MAKE = 56,     /* type, mode, owner, rdev, value: a symlink's target, LAPIS_SPREAD,
			      * LAPIS_OR_OPEN, LAPIS_AND_OPEN -> attrs */
	LAPIS_REMOVE = 57,   /* LAPIS_IS_DIR */
	LAPIS_LINK = 58,     /* to_ino, to_path -> attrs */
	LAPIS_RENAME = 59,   /* to_ino, to_path, condition: lapis_rename_flag */
	LAPIS_READDIR = 60,  /* cookie, after, items_max, LAPIS_ATTRS, LAPIS_BY_NAME -> items */
	LAPIS_READLINK = 61, /* -> value */
	LAPIS_SYNC = 62,
	LAPIS_STATUS = 80, /* -> value, as in all that follow; value: the text asked for */
	LAPIS_STATS = 81,
	LAPIS_SLOW = 82,
	LAPIS_CONFIG_GET = 83,
	LAPIS_CONFIG_SET = 84,
	LAPIS_EXPLAIN = 85,
	LAPIS_ALLOC = 86,
	LAPIS_HEAP = 87,
	LAPIS_SCRUB = 88,
	LAPIS_CHECK = 89
};

enum lapis_request_flag {
	LAPIS_ORDERED = 0x1, /* may be answered before it is durable; lapis_sync() makes it so */
	LAPIS_APPEND = 0x2,
	LAPIS_OR_DIR = 0x4,     /* delete: an empty directory will do, too */
	LAPIS_DELIMIT = 0x8,    /* list: keys with a "/" behind the prefix are one item */
	LAPIS_ATTRS = 0x10,     /* list, readdir: the attributes of each */
	LAPIS_VALUES = 0x20,    /* xattr and omap lists: the values, too */
	LAPIS_HOLE = 0x40,      /* seek: the next hole, not the next data */
	LAPIS_SPREAD = 0x80,    /* make: a directory whose entries are spread over the shards */
	LAPIS_OR_OPEN = 0x100,  /* make: a file that is there already will do */
	LAPIS_AND_OPEN = 0x200, /* make: open it */
	LAPIS_IS_DIR = 0x400,   /* remove: an empty directory, and nothing else */
	LAPIS_OWNER = 0x800,    /* uid and gid are given; else they are the client's */
	LAPIS_MODE = 0x1000,    /* mode is given; else 0644 or what is replaced has */
	/* readdir: in the order of names, shard by shard; `after` is the name of the last item, if
	 * `cookie` is its cookie. Else in that of the cookies, by a walk through all for each. */
	LAPIS_BY_NAME = 0x2000
};

/* On the object or new name; with LAPIS_IF_VERSION, `version` is the one it must have. */
enum lapis_if {
	LAPIS_IF_ANY = 0,
	LAPIS_IF_ABSENT = 1, /* else -EEXIST */
	LAPIS_IF_EXISTS = 2, /* else -ENOENT */
	LAPIS_IF_VERSION = 3 /* else -ECANCELED */
};

enum lapis_rename_flag { LAPIS_RENAME_NOREPLACE = 0x1, LAPIS_RENAME_EXCHANGE = 0x2 };

enum lapis_write_path {
	LAPIS_PATH_AUTO = 0,
	LAPIS_PATH_INLINE = 1,
	LAPIS_PATH_DEFERRED = 2,
	LAPIS_PATH_DIRECT = 3
};

enum lapis_type {
	LAPIS_FILE = 1,
	LAPIS_DIR = 2,
	LAPIS_SYMLINK = 3,
	LAPIS_FIFO = 4,
	LAPIS_SOCKET = 5,
	LAPIS_CHAR_DEVICE = 6,
	LAPIS_BLOCK_DEVICE = 7
};

enum lapis_attr_flag {
	LAPIS_ATTR_MADE_BY_PUT = 0x1, /* a directory that vanishes when it is empty */
	LAPIS_ATTR_SPREAD = 0x2,
	/* Nothing about it changes: -EPERM; of a directory, no name in it comes or goes. Only root
	 * sets this and the next one, or takes them away, through a unix socket. */
	LAPIS_ATTR_IMMUTABLE = 0x8,
	/* A file takes only what is written behind its end; a directory only new names. */
	LAPIS_ATTR_APPEND = 0x10
};

enum lapis_set_flag {
	LAPIS_SET_MODE = 0x1,
	LAPIS_SET_UID = 0x2,
	LAPIS_SET_GID = 0x4,
	LAPIS_SET_ATIME = 0x10,
	LAPIS_SET_MTIME = 0x20,
	LAPIS_SET_CTIME = 0x40,
	LAPIS_SET_BTIME = 0x80,
	LAPIS_SET_FLAGS = 0x100,
	LAPIS_SET_ATIME_NOW = 0x10000,
	LAPIS_SET_MTIME_NOW = 0x20000
};

/* Does not grow: what there will be more of is asked for in another way. */
struct lapis_attrs {
	uint64_t ino;
	uint64_t
		size_bytes; /* file: of its data; symlink: of its target; directory: of its names */
	uint64_t blocks;    /* of 4 KiB, that it takes */
	/* goes up with every change, also when another is put there, but not when it is read */
	uint64_t version;
	int64_t atime_ns; /* since 1970 */
	int64_t mtime_ns;
	int64_t ctime_ns;
	int64_t btime_ns;
	uint64_t parent_ino;
	uint64_t entries_cnt; /* directory: names in it */
	uint32_t uid;
	uint32_t gid;
	uint32_t nlink;
	uint32_t flags; /* lapis_attr_flag */
	uint32_t rdev;
	uint16_t mode; /* the 12 permission bits */
	uint8_t type;  /* lapis_type */
	uint8_t reserved;
	uint64_t reserved_b;
};

/* A name and a value: neither ends in NUL. name_bytes 0: up to its NUL. */
struct lapis_pair {
	const char *name;
	const void *value;
	uint32_t name_bytes;
	uint32_t value_bytes;
};

/* One guard or change of a compound request; guards come first. */
enum lapis_change_kind {
	LAPIS_GUARD_VERSION = 1,  /* offset: the version. Else -ECANCELED */
	LAPIS_GUARD_XATTR = 2,    /* there (else -ENODATA), and of this value if it is not empty */
	LAPIS_GUARD_NO_XATTR = 3, /* else -EEXIST */
	LAPIS_CHANGE_WRITE = 16,  /* the request's data at its offset */
	LAPIS_CHANGE_TRUNCATE = 17,
	LAPIS_CHANGE_PUNCH = 18,
	LAPIS_CHANGE_XATTR_SET = 19,
	LAPIS_CHANGE_XATTR_REMOVE = 20,
	LAPIS_CHANGE_OMAP_SET = 21,
	LAPIS_CHANGE_OMAP_REMOVE = 22
};

struct lapis_change {
	uint32_t kind;
	uint32_t name_bytes;
	uint32_t value_bytes;
	uint32_t reserved;
	const void *name;
	const void *value;
	uint64_t offset;
	uint64_t length;
};

/* Fills buf with what comes next of an object that is put: how many bytes, at most len; 0: that
 * was all; negative: the put fails with this error, and nothing is stored: what had the key before
 * stays. So a source that has given half of it may still say no. Comes on the thread that runs the
 * handle, and
 * may take as long as it likes; all else that is asked of the handle waits meanwhile. */
typedef int64_t lapis_source_fn(void *arg, void *buf, size_t len);
/* How many of the bytes that come next of an object that is put are zeros that need not be sent:
 * the source goes on behind them. 0: none; negative: the put fails with this error. Comes before
 * each call of the source, with its argument. */
typedef int64_t lapis_hole_fn(void *arg);
/* Takes the next bytes of an object that is read, verified; offset is theirs in the object.
 * Negative: the get fails with this error. Comes on the thread that runs the handle. */
typedef int lapis_sink_fn(void *arg, uint64_t offset, const void *data, size_t len);

struct lapis_result;
/* The end of a request: comes exactly once, on the thread that runs the handle. The result and
 * what it points to are valid until it returns. */
typedef void lapis_done_fn(void *arg, const struct lapis_result *result);

/* Strings, values, changes and attributes are copied by lapis_submit(). The bytes that `data` and
 * `buf` point to are the library's until done() is called. */
struct lapis_request {
	size_t size;
	uint32_t op;         /* lapis_op */
	uint32_t flags;      /* lapis_request_flag */
	uint32_t timeout_ms; /* for one message to be answered; 0: that of the handle */
	uint32_t condition;  /* lapis_if, or lapis_rename_flag */
	uint64_t ino;
	const char *path;
	uint64_t to_ino;
	const char *to_path;
	uint64_t offset;
	uint64_t length;
	uint64_t src_offset;
	uint64_t version;

	const void *data;
	size_t data_bytes;
	lapis_source_fn *source; /* put: instead of data, of any length */
	void *source_arg;
	void *buf; /* get: at least `length` bytes; with LAPIS_TO_END, buf_bytes of them */
	size_t buf_bytes;
	lapis_sink_fn *sink; /* get: instead of buf */
	void *sink_arg;

	const char *name;  /* of an xattr, omap entry; of a list: what its names begin with */
	size_t name_bytes; /* 0: up to its NUL */
	const void *value;
	size_t value_bytes;
	const char *after;  /* lists: names behind this one */
	size_t after_bytes; /* 0: up to its NUL */
	uint64_t cookie;
	uint32_t items_max; /* lists: 0: as many as one reply holds */
	uint32_t change_cnt;
	const struct lapis_change *changes;

	/* A new object. */
	int64_t mtime_ns; /* 0: now */
	uint32_t uid;
	uint32_t gid;
	uint32_t rdev;
	uint16_t mode;
	uint8_t type;       /* lapis_type */
	uint8_t write_path; /* lapis_write_path */
	uint32_t xattr_cnt; /* at most 16 */
	uint32_t mask;      /* lapis_set_flag: which of attrs */
	const struct lapis_pair *xattrs;
	const struct lapis_attrs *attrs;

	lapis_done_fn *done; /* may be NULL */
	void *arg;
	lapis_hole_fn *hole; /* put with a source: may be NULL */
};

struct lapis_result {
	size_t size;
	uint64_t id; /* what lapis_submit() returned */
	int status;  /* 0, or a negative error number */
	uint32_t op;
	const char *text; /* of an error, a sentence; else empty; never NULL */
	struct lapis_attrs attrs;
	uint64_t offset;       /* of what was appended or found */
	uint64_t version;      /* of the object, now; get: when its first piece was read */
	uint64_t data_bytes;   /* get: how many came */
	uint64_t object_bytes; /* get: of the whole object */
	const void *value;     /* of lists: for lapis_next_item() and lapis_next_pair() */
	size_t value_bytes;
	uint32_t item_cnt;
	uint32_t more;       /* 1: there are more items behind the last one */
	uint32_t failed_idx; /* compound, of an error: the guard or change that did not hold */
	uint32_t write_path; /* that was taken */
};

/* *ret_id may be NULL. -EINVAL: the request makes no sense; -ENAMETOOLONG, -E2BIG: it is too large
 * for a message; -EAGAIN, -ENOMEM. done() does not come when this fails, nor before it returns
 * on a handle that runs on the calling thread. */
LAPIS_API int lapis_submit(struct lapis *lapis, const struct lapis_request *request,
			   uint64_t *ret_id) LAPIS_MUST_CHECK;
/* Asks for an early end: done() comes soon, with -ECANCELED, -LAPIS_EUNKNOWN or the answer that
 * came first. Nothing happens when it has ended already. */
LAPIS_API void lapis_cancel(struct lapis *lapis, uint64_t id);
/* Makes a request and waits. The result owns its value and text: lapis_result_fini(). Returns its
 * status. `done` and `arg` of the request are not used. */
LAPIS_API int lapis_call(struct lapis *lapis, const struct lapis_request *request,
			 struct lapis_result *ret_result);
LAPIS_API void lapis_result_fini(struct lapis_result *result);

struct lapis_item {
	uint64_t ino;     /* 0: a common prefix */
	uint64_t cookie;  /* readdir: continues behind this one */
	const char *name; /* of the entry, or the whole key; does not end in NUL */
	size_t name_bytes;
	uint32_t type; /* lapis_type; 0: a common prefix */
	uint32_t has_attrs;
	struct lapis_attrs attrs;
};

/* The item at *pos (0 at the start) of a list's result, which *pos goes past: 1, or 0 at the end.
 */
LAPIS_API int lapis_next_item(const struct lapis_result *result, size_t *pos,
			      struct lapis_item *ret_item);
LAPIS_API int lapis_next_pair(const struct lapis_result *result, size_t *pos,
			      struct lapis_pair *ret_pair);

/* --- Whole objects: functions that wait ------------------------------------------------------- */

struct lapis_put_options {
	size_t size;
	uint32_t flags;     /* LAPIS_OWNER, LAPIS_MODE, LAPIS_ORDERED */
	uint32_t condition; /* lapis_if */
	uint64_t version;
	int64_t mtime_ns;
	uint32_t uid;
	uint32_t gid;
	uint16_t mode;
	uint8_t write_path;
	uint8_t reserved;
	uint32_t xattr_cnt;
	const struct lapis_pair *xattrs;
};

/* Replaces the object as a whole, or makes it, and the directories that it needs. Of any length:
 * who reads meanwhile sees the old object or the new one. options and ret_attrs may be NULL. */
LAPIS_API int lapis_put(struct lapis *lapis, const char *key, const void *data, size_t len,
			const struct lapis_put_options *options, struct lapis_attrs *ret_attrs);
LAPIS_API int lapis_put_from(struct lapis *lapis, const char *key, lapis_source_fn *source,
			     void *arg, const struct lapis_put_options *options,
			     struct lapis_attrs *ret_attrs);
/* All that can be read from fd. -EBUSY: fd is a file, and it changed while it was read. Nothing is
 * stored then, as with any other error but LAPIS_EUNKNOWN. */
LAPIS_API int lapis_put_fd(struct lapis *lapis, const char *key, int fd,
			   const struct lapis_put_options *options, struct lapis_attrs *ret_attrs);

/* At most len bytes from offset; *ret_len says how many there were. */
LAPIS_API int lapis_get(struct lapis *lapis, const char *key, uint64_t offset, void *buf,
			size_t len, size_t *ret_len) LAPIS_MUST_CHECK;
/* length may be LAPIS_TO_END. */
LAPIS_API int lapis_get_to(struct lapis *lapis, const char *key, uint64_t offset, uint64_t length,
			   lapis_sink_fn *sink, void *arg) LAPIS_MUST_CHECK;
LAPIS_API int lapis_get_fd(struct lapis *lapis, const char *key, uint64_t offset, uint64_t length,
			   int fd) LAPIS_MUST_CHECK;

LAPIS_API int lapis_stat(struct lapis *lapis, const char *key,
			 struct lapis_attrs *ret_attrs) LAPIS_MUST_CHECK;
LAPIS_API int lapis_delete(struct lapis *lapis, const char *key);
LAPIS_API int lapis_copy(struct lapis *lapis, const char *key, const char *to_key,
			 struct lapis_attrs *ret_attrs);
LAPIS_API int lapis_move(struct lapis *lapis, const char *key, const char *to_key,
			 struct lapis_attrs *ret_attrs);

/* Keys in order, from the daemon in as many replies as it takes. What an item points to is valid
 * until the next call. flags: LAPIS_DELIMIT, LAPIS_ATTRS. prefix and after may be NULL. */
struct lapis_list;
LAPIS_API int lapis_list_open(struct lapis *lapis, const char *prefix, const char *after,
			      uint32_t flags, struct lapis_list **ret_list) LAPIS_MUST_CHECK;
/* 1, or 0 at the end. */
LAPIS_API int lapis_list_next(struct lapis_list *list,
			      struct lapis_item *ret_item) LAPIS_MUST_CHECK;
LAPIS_API void lapis_list_close(struct lapis_list *list);

/* --- Directories and names -------------------------------------------------------------------- */

/* flags: LAPIS_SPREAD. A bucket is a directory in the root. */
LAPIS_API int lapis_mkdir(struct lapis *lapis, const char *key, uint16_t mode, uint32_t flags);
LAPIS_API int lapis_rmdir(struct lapis *lapis, const char *key);
LAPIS_API int lapis_unlink(struct lapis *lapis, const char *key);
LAPIS_API int lapis_symlink(struct lapis *lapis, const char *target, const char *key);
LAPIS_API int lapis_link(struct lapis *lapis, const char *key, const char *to_key);
/* flags: lapis_rename_flag. */
LAPIS_API int lapis_rename(struct lapis *lapis, const char *key, const char *to_key,
			   uint32_t flags);
/* The target, NUL-terminated; -ERANGE when len is too short. */
LAPIS_API int lapis_readlink(struct lapis *lapis, const char *key, char *buf,
			     size_t len) LAPIS_MUST_CHECK;
/* The names in a directory, as by lapis_list_open(). key NULL: the root. */
LAPIS_API int lapis_opendir(struct lapis *lapis, const char *key, uint32_t flags,
			    struct lapis_list **ret_list) LAPIS_MUST_CHECK;
/* mask: lapis_set_flag. */
LAPIS_API int lapis_set(struct lapis *lapis, const char *key, const struct lapis_attrs *attrs,
			uint32_t mask, struct lapis_attrs *ret_attrs);

/* --- Open files ------------------------------------------------------------------------------- */

/* What is open lives on when its name is removed, as long as the connection does on which it was
 * opened; without one of both it is -ESTALE. */
struct lapis_file;
LAPIS_API int lapis_open_file(struct lapis *lapis, const char *key,
			      struct lapis_file **ret_file) LAPIS_MUST_CHECK;
/* Also makes it when there is none. */
LAPIS_API int lapis_create_file(struct lapis *lapis, const char *key, uint16_t mode,
				struct lapis_file **ret_file) LAPIS_MUST_CHECK;
/* Frees it whatever it returns. Accepts NULL. */
LAPIS_API int lapis_close_file(struct lapis_file *file);
LAPIS_API uint64_t lapis_file_ino(const struct lapis_file *file);
/* How many bytes were read: fewer than len only at the end. */
LAPIS_API int64_t lapis_pread(struct lapis_file *file, void *buf, size_t len,
			      uint64_t offset) LAPIS_MUST_CHECK;
/* Writes all, in several steps when it is more than 4 MiB; durable when it returns. flags:
 * LAPIS_ORDERED. Of an error in a later step, the steps before it are done. */
LAPIS_API int lapis_pwrite(struct lapis_file *file, const void *data, size_t len, uint64_t offset,
			   uint32_t flags) LAPIS_MUST_CHECK;
/* At most 4 MiB, at the end; *ret_offset says where that was. */
LAPIS_API int lapis_append(struct lapis_file *file, const void *data, size_t len,
			   uint64_t *ret_offset) LAPIS_MUST_CHECK;
LAPIS_API int lapis_fstat(struct lapis_file *file, struct lapis_attrs *ret_attrs) LAPIS_MUST_CHECK;
LAPIS_API int lapis_truncate(struct lapis_file *file, uint64_t size_bytes) LAPIS_MUST_CHECK;
/* Of any length, in steps of 16 MiB. */
LAPIS_API int lapis_punch(struct lapis_file *file, uint64_t offset,
			  uint64_t length) LAPIS_MUST_CHECK;
LAPIS_API int lapis_prealloc(struct lapis_file *file, uint64_t offset,
			     uint64_t length) LAPIS_MUST_CHECK;
/* The next data, or with LAPIS_HOLE the next hole; -ENXIO: there is none. */
LAPIS_API int lapis_seek(struct lapis_file *file, uint64_t offset, uint32_t flags,
			 uint64_t *ret_offset) LAPIS_MUST_CHECK;
/* A range of `from` becomes one of `to`, without being copied; -EXDEV: they are on two shards. */
LAPIS_API int lapis_clone(struct lapis_file *from, uint64_t src_offset, struct lapis_file *to,
			  uint64_t offset, uint64_t length) LAPIS_MUST_CHECK;

/* --- xattrs and omap -------------------------------------------------------------------------- */

/* The length of the value; -ERANGE when len is too short (len 0 asks for the length only). */
LAPIS_API int lapis_xattr_get(struct lapis *lapis, const char *key, const char *name, void *buf,
			      size_t len) LAPIS_MUST_CHECK;
LAPIS_API int lapis_xattr_set(struct lapis *lapis, const char *key, const char *name,
			      const void *value, size_t len);
LAPIS_API int lapis_xattr_remove(struct lapis *lapis, const char *key, const char *name);
LAPIS_API int lapis_omap_get(struct lapis *lapis, const char *key, const char *name, void *buf,
			     size_t len) LAPIS_MUST_CHECK;
LAPIS_API int lapis_omap_set(struct lapis *lapis, const char *key, const char *name,
			     const void *value, size_t len);
LAPIS_API int lapis_omap_remove(struct lapis *lapis, const char *key, const char *name);
/* op: LAPIS_XATTR_LIST or LAPIS_OMAP_LIST; flags: LAPIS_VALUES. */
LAPIS_API int lapis_pairs_open(struct lapis *lapis, const char *key, uint32_t op, uint32_t flags,
			       struct lapis_list **ret_list) LAPIS_MUST_CHECK;
LAPIS_API int lapis_pairs_next(struct lapis_list *list,
			       struct lapis_pair *ret_pair) LAPIS_MUST_CHECK;

/* --- Everything else -------------------------------------------------------------------------- */

LAPIS_API int lapis_ping(struct lapis *lapis) LAPIS_MUST_CHECK;
/* What was LAPIS_ORDERED is durable. */
LAPIS_API int lapis_sync(struct lapis *lapis) LAPIS_MUST_CHECK;
/* op: LAPIS_STATUS to LAPIS_CHECK; text: what it asks for, or NULL. *ret_text is NUL-terminated and
 * the caller's to free(). */
LAPIS_API int lapis_admin(struct lapis *lapis, uint32_t op, const char *text,
			  char **ret_text) LAPIS_MUST_CHECK;

#ifdef __cplusplus
}
#endif

#endif
