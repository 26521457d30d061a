/* SPDX-License-Identifier: Apache-2.0 */
/* liblapis: the client library of Lapis, an object storage daemon.
 *
 * A struct lapis is a handle on one store. It holds connections to shards of the daemon: one to
 * each shard that has had to answer a request. It opens a connection when it is first needed.
 * A request is made in one of two ways. lapis_submit() returns at once, and calls back when the
 * answer has come. The functions named after operations (lapis_put(), lapis_stat(), ...) wait.
 *
 * Running the handle. With LAPIS_THREAD the handle has a thread of its own, and callbacks come on
 * that thread. Without it, the handle works only inside lapis_turn(). The caller calls that when
 * lapis_fd() is readable, and after lapis_submit(). Functions that wait also run the handle, so
 * callbacks of other requests may come during them.
 *
 * Threads: any thread may call lapis_submit() and lapis_cancel() at any time, also from callbacks.
 * If the handle has its own thread, any thread may call functions that wait. Otherwise one thread
 * at a time may call them or lapis_turn(). From a callback they return -EDEADLK. lapis_close() is
 * the last call, after all others have returned. The library's thread takes no signals that are
 * sent to the process. A callback on it gets signals that it causes itself, such as SIGPIPE.
 *
 * fork(). A handle, and what was opened with it, belongs to the process that opened it. A child
 * may neither use nor close it: the child does not have the handle's thread, and the connections
 * are the parent's. A child opens a handle of its own. exec closes the descriptors.
 *
 * Results. Functions return 0 or a positive number for success, and a negative error number (of
 * <errno.h>) for failure. lapis_error_text() then has a sentence, the daemon's if it sent one.
 * These errors have a special meaning here:
 *   -ENOTCONN         not done: there was no connection, or it broke before the request was sent
 *   -ETIMEDOUT        not done (or only read): no answer within the time limit
 *   -LAPIS_EUNKNOWN   the request was sent; then the connection broke, time ran out, or it was
 *                     canceled. The change may have been made, or not, or may still be made
 *   -ECANCELED        not done: a condition on a version did not hold, or lapis_cancel() came in
 *                     time
 *   -EAGAIN           not done: the library holds as many requests as it may, or the daemon was
 *                     busy for the whole time limit
 *   -EBADMSG          data does not match its checksum: the caller must not use the buffer
 *   -EPROTO           the other end does not speak the protocol
 * When a connection breaks, the library repeats requests that only read, and requests that were
 * certainly not done. It repeats nothing else. After six breaks in a row a request fails with
 * -ENOTCONN. For a get the count starts again whenever it has received more data than before.
 *
 * Order: requests that are under way at once have no order, even for the same object. A caller
 * that needs an order waits for the first answer before it submits the second request.
 *
 * Names of objects: `ino` is an inode number, 0 for the root. `path` is a path from there, such as
 * "photos/2026/a.jpg", or NULL for the inode itself. A path from an inode other than the root is a
 * single name. A `key` is a path from the root.
 *
 * Sizes of structs: structs of options and requests begin with `size`. The caller sets it to the
 * sizeof that its compiler sees; all other fields may be zero. Later versions append fields only. A
 * library that is older than its caller accepts a struct if the fields that it does not know are
 * zero. Otherwise, or if `size` is missing, it returns -EINVAL and does nothing. Structs that the
 * library fills in and that may grow use `size` in the same way.
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

/* The error for a change with an unknown outcome (EREMOTEIO of Linux). */
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
	LAPIS_WAIT = 0x2    /* wait up to reconnect_ms for a daemon that does not run yet */
};

struct lapis_options {
	size_t size;
	const char *address;   /* unix:PATH or tcp:HOST:PORT; NULL: $LAPIS_ADDRESS, or
				* unix:/run/lapis/lapis.sock */
	const char *name;      /* of the client, for the daemon's log; NULL: the program's */
	uint32_t flags;        /* lapis_open_flag */
	uint32_t crc;          /* lapis_crc, at least */
	uint32_t requests_max; /* requests that the library holds at once; 0: 4096 */
	uint32_t credits;      /* most requests under way on one connection; 0: what it gets */
	uint32_t timeout_ms; /* for the answer to one message; 0: 30,000. The caller's own time (in
			      * a source, a sink, a callback, between turns) does not count. The
			      * time starts again whenever the daemon reports that a copy has
			      * progressed */
	uint32_t reconnect_ms; /* how long to try to connect again, from the first request after a
				* connection was lost; 0: 10,000 */
	uint32_t connect_ms;   /* time limit to connect to one address; 0: 5,000 */
};

/* options may be NULL. Makes no connection yet. Looks up HOST if it is a name, which may block; its
 * first eight addresses are tried in turn. Errors: -EINVAL or -ENAMETOOLONG if the address or an
 * option is invalid, -EHOSTUNREACH if there is no such host, -ENOMEM, -EMFILE. */
LAPIS_API int lapis_open(const struct lapis_options *options,
			 struct lapis **ret_lapis) LAPIS_MUST_CHECK;
/* Cancels requests under way (their callbacks come before this returns), ends the thread, closes
 * the connections. Accepts NULL. May not be called from a callback. */
LAPIS_API void lapis_close(struct lapis *lapis);

/* Becomes readable when lapis_turn() has something to do: for poll and epoll. */
LAPIS_API int lapis_fd(const struct lapis *lapis);
/* Sends queued messages, receives replies, calls back. If there is nothing to do yet, it waits for
 * at most timeout_ms (-1: no limit). Returns the number of requests that ended. Errors: -EBUSY if
 * the handle has its own thread, -EDEADLK if it is called from a callback. */
LAPIS_API int lapis_turn(struct lapis *lapis, int timeout_ms);

/* Says why the last call of this thread failed: a sentence without a full stop. Never NULL; valid
 * until the next call. */
LAPIS_API const char *lapis_error_text(void);
/* "0.1.0" */
LAPIS_API const char *lapis_version(void);

struct lapis_stats {
	size_t size;
	uint64_t requests; /* submitted by the caller, or by the library for the caller */
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

/* The protocol's numbers. The comment names the fields that a request needs besides ino and path,
 * then the fields of its result. */
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
	LAPIS_OPEN = 27, /* -> attrs. lapis_open_file() also remembers the connection */
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
	LAPIS_STATUS = 80, /* value: a question as text -> value; the same for all that follow */
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
	LAPIS_OR_DIR = 0x4,     /* delete: also an empty directory */
	LAPIS_DELIMIT = 0x8,    /* list: keys with a "/" behind the prefix are one item */
	LAPIS_ATTRS = 0x10,     /* list, readdir: the attributes of each item */
	LAPIS_VALUES = 0x20,    /* xattr and omap lists: also the values */
	LAPIS_HOLE = 0x40,      /* seek: the next hole, not the next data */
	LAPIS_SPREAD = 0x80,    /* make: a directory whose entries are spread over the shards */
	LAPIS_OR_OPEN = 0x100,  /* make: use the file if it exists already */
	LAPIS_AND_OPEN = 0x200, /* make: open it */
	LAPIS_IS_DIR = 0x400,   /* remove: an empty directory, and nothing else */
	LAPIS_OWNER = 0x800,    /* uid and gid are given; otherwise they are the client's */
	LAPIS_MODE = 0x1000,    /* mode is given; otherwise that of the replaced object, or 0644 */
	/* readdir: in the order of names, shard by shard. `after` is the name of the last item if
	 * `cookie` is its cookie. Without this flag, the order is that of the cookies, and each
	 * reply needs a walk through all names. */
	LAPIS_BY_NAME = 0x2000
};

/* A condition on the object or new name. With LAPIS_IF_VERSION, `version` is the one it must have.
 * The comment says the error if the condition does not hold. */
enum lapis_if {
	LAPIS_IF_ANY = 0,
	LAPIS_IF_ABSENT = 1, /* -EEXIST */
	LAPIS_IF_EXISTS = 2, /* -ENOENT */
	LAPIS_IF_VERSION = 3 /* -ECANCELED */
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
	/* Changes of the object fail with -EPERM. In a directory, no name can be added or removed.
	 * Only root may set or clear this flag and the next one, through a unix socket. */
	LAPIS_ATTR_IMMUTABLE = 0x8,
	/* A file can only be appended to. A directory takes only new names. */
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

/* This struct never grows. Later attributes will be read in another way. */
struct lapis_attrs {
	uint64_t ino;
	uint64_t
		size_bytes; /* file: of its data; symlink: of its target; directory: of its names */
	uint64_t blocks;    /* of 4 KiB, that it takes */
	/* grows with every change, also when another object replaces this one; reads do not count
	 */
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
	LAPIS_GUARD_VERSION = 1,  /* offset: the version; -ECANCELED if it differs */
	LAPIS_GUARD_XATTR = 2,    /* it exists (or -ENODATA), with this value if one is given */
	LAPIS_GUARD_NO_XATTR = 3, /* it does not exist (or -EEXIST) */
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

/* Fills buf with the next bytes of an object that is put, at most len. Returns how many; 0 at the
 * end of the object. If it returns a negative number, the put fails with that error and nothing is
 * stored: the former object of that key stays. This works at any point of the data. It is called
 * on the thread that runs the handle, and may take any time; other requests of the handle wait. */
typedef int64_t lapis_source_fn(void *arg, void *buf, size_t len);
/* Returns how many of the next bytes of an object that is put are zeros that need not be sent. The
 * source goes on behind them. 0: none; negative: the put fails with this error. It is called before
 * each call of the source, with the source's argument. */
typedef int64_t lapis_hole_fn(void *arg);
/* Takes the next bytes of an object that is read. They are verified; offset is their place in the
 * object. Negative: the get fails with this error. Called on the thread that runs the handle. */
typedef int lapis_sink_fn(void *arg, uint64_t offset, const void *data, size_t len);

struct lapis_result;
/* The end of a request. Called exactly once, on the thread that runs the handle. The result and
 * what it points to are valid until this returns. */
typedef void lapis_done_fn(void *arg, const struct lapis_result *result);

/* lapis_submit() copies strings, values, changes and attributes. The bytes that `data` and `buf`
 * point to belong to the library until done() is called. */
struct lapis_request {
	size_t size;
	uint32_t op;         /* lapis_op */
	uint32_t flags;      /* lapis_request_flag */
	uint32_t timeout_ms; /* for the answer to one message; 0: that of the handle */
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

	const char *name;  /* of an xattr or omap entry; of a list: the prefix of its names */
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

/* ret_id may be NULL. Errors: -EINVAL if the request is invalid, -ENAMETOOLONG or -E2BIG if it is
 * too large for a message, -EAGAIN, -ENOMEM. If this fails, done() is not called. If the handle
 * runs on the calling thread, done() is not called before this returns. */
LAPIS_API int lapis_submit(struct lapis *lapis, const struct lapis_request *request,
			   uint64_t *ret_id) LAPIS_MUST_CHECK;
/* Asks for an early end. done() is then called with -ECANCELED, with -LAPIS_EUNKNOWN, or with the
 * answer if that came first. Does nothing if the request has ended already. */
LAPIS_API void lapis_cancel(struct lapis *lapis, uint64_t id);
/* Makes a request, waits, and returns its status. The result owns its value and text, which
 * lapis_result_fini() frees. `done` and `arg` of the request are not used. */
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

/* Reads the item at *pos of a list's result, and moves *pos behind it; *pos is 0 at the start.
 * Returns 1, or 0 at the end. */
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

/* Makes the object and missing directories, or replaces the object as a whole. A reader sees the
 * old object or the new one, whatever the length. options and ret_attrs may be NULL. */
LAPIS_API int lapis_put(struct lapis *lapis, const char *key, const void *data, size_t len,
			const struct lapis_put_options *options, struct lapis_attrs *ret_attrs);
LAPIS_API int lapis_put_from(struct lapis *lapis, const char *key, lapis_source_fn *source,
			     void *arg, const struct lapis_put_options *options,
			     struct lapis_attrs *ret_attrs);
/* Puts all that can be read from fd. -EBUSY: fd is a file, and it changed while it was read.
 * Nothing is stored then, as with any other error except LAPIS_EUNKNOWN. */
LAPIS_API int lapis_put_fd(struct lapis *lapis, const char *key, int fd,
			   const struct lapis_put_options *options, struct lapis_attrs *ret_attrs);

/* Reads at most len bytes from offset; *ret_len says how many there were. */
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

/* Lists keys in order, with as many requests as that takes. What an item points to is valid until
 * the next call. flags: LAPIS_DELIMIT, LAPIS_ATTRS. prefix and after may be NULL. */
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
/* Reads the target, NUL-terminated; -ERANGE if len is too short. */
LAPIS_API int lapis_readlink(struct lapis *lapis, const char *key, char *buf,
			     size_t len) LAPIS_MUST_CHECK;
/* Lists the names in a directory, as lapis_list_open() lists keys. key NULL: the root. */
LAPIS_API int lapis_opendir(struct lapis *lapis, const char *key, uint32_t flags,
			    struct lapis_list **ret_list) LAPIS_MUST_CHECK;
/* mask: lapis_set_flag. */
LAPIS_API int lapis_set(struct lapis *lapis, const char *key, const struct lapis_attrs *attrs,
			uint32_t mask, struct lapis_attrs *ret_attrs);

/* --- Open files ------------------------------------------------------------------------------- */

/* An open file stays usable when its name is removed, as long as the connection lives on which it
 * was opened. When both the name and that connection are gone, calls return -ESTALE. */
struct lapis_file;
LAPIS_API int lapis_open_file(struct lapis *lapis, const char *key,
			      struct lapis_file **ret_file) LAPIS_MUST_CHECK;
/* Opens the file, and makes it if it does not exist. */
LAPIS_API int lapis_create_file(struct lapis *lapis, const char *key, uint16_t mode,
				struct lapis_file **ret_file) LAPIS_MUST_CHECK;
/* Frees the file even if it returns an error. Accepts NULL. */
LAPIS_API int lapis_close_file(struct lapis_file *file);
LAPIS_API uint64_t lapis_file_ino(const struct lapis_file *file);
/* Returns how many bytes were read: fewer than len only at the end. */
LAPIS_API int64_t lapis_pread(struct lapis_file *file, void *buf, size_t len,
			      uint64_t offset) LAPIS_MUST_CHECK;
/* Writes all len bytes, in several steps if there are more than 4 MiB. They are durable when this
 * returns. flags: LAPIS_ORDERED. If a later step fails, the steps before it are done. */
LAPIS_API int lapis_pwrite(struct lapis_file *file, const void *data, size_t len, uint64_t offset,
			   uint32_t flags) LAPIS_MUST_CHECK;
/* Writes at most 4 MiB at the end; *ret_offset says where that was. */
LAPIS_API int lapis_append(struct lapis_file *file, const void *data, size_t len,
			   uint64_t *ret_offset) LAPIS_MUST_CHECK;
LAPIS_API int lapis_fstat(struct lapis_file *file, struct lapis_attrs *ret_attrs) LAPIS_MUST_CHECK;
LAPIS_API int lapis_truncate(struct lapis_file *file, uint64_t size_bytes) LAPIS_MUST_CHECK;
/* Of any length, in steps of 16 MiB. */
LAPIS_API int lapis_punch(struct lapis_file *file, uint64_t offset,
			  uint64_t length) LAPIS_MUST_CHECK;
LAPIS_API int lapis_prealloc(struct lapis_file *file, uint64_t offset,
			     uint64_t length) LAPIS_MUST_CHECK;
/* Finds the next data, or with LAPIS_HOLE the next hole; -ENXIO: there is none. */
LAPIS_API int lapis_seek(struct lapis_file *file, uint64_t offset, uint32_t flags,
			 uint64_t *ret_offset) LAPIS_MUST_CHECK;
/* Shares a range of `from` with `to`, without a copy. -EXDEV: the files are on two shards. */
LAPIS_API int lapis_clone(struct lapis_file *from, uint64_t src_offset, struct lapis_file *to,
			  uint64_t offset, uint64_t length) LAPIS_MUST_CHECK;

/* --- xattrs and omap -------------------------------------------------------------------------- */

/* Returns the length of the value; -ERANGE if len is too short. len 0 asks for the length only. */
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
/* Makes all LAPIS_ORDERED changes durable. */
LAPIS_API int lapis_sync(struct lapis *lapis) LAPIS_MUST_CHECK;
/* op: LAPIS_STATUS to LAPIS_CHECK; text: the question, or NULL. *ret_text is NUL-terminated; the
 * caller frees it with free(). */
LAPIS_API int lapis_admin(struct lapis *lapis, uint32_t op, const char *text,
			  char **ret_text) LAPIS_MUST_CHECK;

#ifdef __cplusplus
}
#endif

#endif
