/* SPDX-License-Identifier: Apache-2.0 */
/* A tree of files here and one in the store made alike, one way or the other.
 *
 * Threads: the main thread only. Blocking: yes. Errors are printed and counted.
 */
#ifndef LP_CLI_REMOTE_SYNC_H
#define LP_CLI_REMOTE_SYNC_H

#include <dirent.h>
#include <sys/stat.h>

#include "cli/remote/tasks.h"
#include "cli/remote/transfer.h"
#include "cli/remote/tree.h"

struct lpi_sync {
	struct lpi_tasks jobs;
	const char *local;
	const char *key;
	int root_fd;               /* of local */
	bool removes;              /* what the source has not */
	bool compares;             /* contents, where size and time are the same */
	bool only_says;            /* what would be done */
	struct lpi_cli_texts dirs; /* below the root, parents first; "": the root; NULL: failed */
	struct lpi_get_batch batch;
	struct lpi_cli_texts zeros; /* keys that were put, of time 0, which a put takes for now */
	struct lpi_cli_texts anew;  /* keys for what was put beside them, by their numbers here */
};

/* A directory of the store, by name. */
struct lpi_remote_entry {
	char *name;
	struct lapis_attrs attrs;
	bool is_seen;
};

struct lpi_remote_dir {
	struct lpi_remote_entry *entries;
	size_t cnt;
	size_t room;
};

/* From the local directory to the key, or the other way: what lapis sync does when the call is
 * understood. The caller has set all but jobs and root_fd. LP_EXIT_OK when both are alike now. */
int lpi_sync_run(struct lpi_sync *sync, bool is_up, unsigned jobs);
/* Its two ways. */
int lpi_sync_up(struct lpi_sync *sync);
int lpi_sync_down(struct lpi_sync *sync);

/* 1; 0: there is no such directory; negative: printed. */
int lpi_remote_dir_read(const char *key, struct lpi_remote_dir *ret_dir);
struct lpi_remote_entry *lpi_remote_dir_find(const struct lpi_remote_dir *dir, const char *name);
void lpi_remote_dir_fini(struct lpi_remote_dir *dir);

int64_t lpi_sync_mtime(const struct stat *st);
/* Whether they are alike as far as can be told without (or, where asked for, with) reading. */
bool lpi_sync_is_same(struct lpi_sync *sync, const char *key, const struct lapis_attrs *attrs,
		      int dir_fd, const char *name);
/* REL/NAME, or NAME; false: too long, printed and counted. */
bool lpi_sync_join(struct lpi_sync *sync, const char *rel, const char *name, char *ret_rel);
/* Whether a directory in dir_fd is a mount of Lapis, perhaps of this store: what is put into it
 * would be found there, and put into it, without end; and what it has too much would be removed
 * from the store itself. It is left out, which is printed and counted. */
bool lpi_sync_is_mount(struct lpi_sync *sync, int dir_fd, const struct stat *st, const char *rel);
/* Whether of both, where the one here is on a mount of the store, one is inside of the other. */
bool lpi_sync_is_nested(const struct lpi_sync *sync);
/* Says what is done where that is asked for: true when it is not to be done. */
bool lpi_sync_only_says(const struct lpi_sync *sync, const char *what, const char *name);

/* Each of the directories, and those that are found meanwhile; one that failed is NULL then, and
 * has no times to be given. 0, or the error that ended it. */
int lpi_sync_dirs(struct lpi_sync *sync, int (*visit)(struct lpi_sync *sync, const char *rel),
		  size_t *ret_done);

/* When it was ended early because what would follow fails as well. */
void lpi_sync_tell_hopeless(const struct lpi_sync *sync);

#endif
