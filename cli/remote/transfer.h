/* SPDX-License-Identifier: Apache-2.0 */
/* Files of this machine to objects and back, as tasks. Both are atomic: an object is replaced as a
 * whole, a file by a rename.
 *
 * Threads: the main thread only. Errors are printed, and counted by the tasks.
 */
#ifndef LP_CLI_REMOTE_TRANSFER_H
#define LP_CLI_REMOTE_TRANSFER_H

#include <sys/stat.h>

#include "cli/remote/tasks.h"

struct lpi_put_file {
	int dir_fd;          /* of path; AT_FDCWD */
	const char *path;    /* "-": standard input */
	const char *subject; /* for messages */
	const char *key;
	uint32_t condition; /* lapis_if */
	uint8_t write_path; /* lapis_write_path */
	bool keeps_times; /* the object gets the file's mtime; and lpi_copy_mode(), if it is new */
	bool no_follow;
	struct lapis_pair xattr; /* name NULL: none */
	/* The object is there, and is what the file was; may be NULL. */
	void (*stored)(void *arg, const char *key);
	void *arg;
};

/* All that is pointed to is copied, but for arg. */
void lpi_put_file(struct lpi_tasks *jobs, const struct lpi_put_file *upload);

/* What lapis put does with files and a key, the last name. First what is wrong with the call is
 * said: 0, or an exit status. */
int lpi_put_check(const struct lpi_cli_command *self, const struct lpi_args *args);
int lpi_put_all(const struct lpi_args *args, const struct lpi_put_file *options);

#define LPI_GET_HELD_MAX 128u

/* Downloads that are complete but for their names, which they get when all of them are durable:
 * one by one that would take several times as long for small files. Zeroed memory is one. */
struct lpi_get_batch {
	struct lpi_download *held[LPI_GET_HELD_MAX];
	unsigned cnt;
	uint64_t bytes;
	dev_t dev; /* where all of them are */
};

struct lpi_get_file {
	int dir_fd; /* of path; the caller's until ended() is called */
	const char *path;
	const char *subject;
	const char *key;
	uint64_t offset;
	uint64_t length;  /* LAPIS_TO_END */
	int64_t mtime_ns; /* with keeps_times */
	uint16_t mode;    /* with keeps_times, as lpi_copy_mode(); of LPI_SET_IDS it gets those of
			   * the object that was fetched, as that was then, if it was all of it */
	bool keeps_times;
	bool replaces_dirs;          /* as lpi_take_name() */
	bool is_maybe_sparse;        /* large: asks where there is data first */
	struct lpi_get_batch *batch; /* outlives it; NULL: durable by itself */
	void (*ended)(void *arg);    /* may be NULL */
	void *arg;
};

/* The file has its name when its data is durable; that the name is, too, is up to the caller. */
void lpi_get_file(struct lpi_tasks *jobs, const struct lpi_get_file *what);
/* What lapis get does: to a file, into a directory, or to standard output, "-". The caller has set
 * the key and the length. An exit status. */
int lpi_get_one(struct lpi_get_file *download, const char *file);
/* What is held gets its names. Once more when the tasks have ended. */
void lpi_get_flush(struct lpi_get_batch *batch);

/* With all that is in it, if it is a directory; nothing of it where something is mounted: -EBUSY.
 * 0, or an error of this machine; so has the other. */
int lpi_remove_local(int dir_fd, const char *name);
/* What is called temp gets a name, whatever has that; a directory only with replaces_dirs. */
int lpi_take_name(int dir_fd, const char *temp, const char *name, bool replaces_dirs);

/* A program with one of these runs with the rights of its owner or group. */
#define LPI_SET_IDS 06000u

/* The mode of a copy that is the caller's, of a regular file here or in the store: somebody else's
 * set-user-ID and set-group-ID would give whoever runs it the caller's rights, by what that other
 * one has written. They stay of what is the caller's own, user and group. */
uint16_t lpi_copy_mode(uint32_t mode, uint32_t uid, uint32_t gid);

/* Since 1970. What the store cannot hold, before 1677 and after 2262, is the first or last that it
 * can. */
int64_t lpi_time_ns(const struct timespec *time);

/* What the names here begin with of what is not complete yet: of this run only, for another one may
 * have had, or have elsewhere, the same process number. */
const char *lpi_temp_prefix(void);

/* Bytes to a file, holes where they are zeros: from *pos on. */
int lpi_write_sparse(int fd, uint64_t offset, const void *data, size_t len);

#endif
