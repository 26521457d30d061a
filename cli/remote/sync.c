/* SPDX-License-Identifier: Apache-2.0 */
/* What both ways share: listings of the store's side, and the question whether two files are alike.
 */
#include "cli/remote/sync.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/remote/remote.h"
#include "fuse/mount/umount.h"

#define ROOT_INO 1u

/* --- Listings --------------------------------------------------------------------------------- */

static int by_name(const void *a, const void *b)
{
	const struct lpi_remote_entry *x = a;
	const struct lpi_remote_entry *y = b;
	return strcmp(x->name, y->name);
}

static int add_entry(struct lpi_remote_dir *dir, const char *name, const struct lapis_attrs *attrs)
{
	if (dir->cnt == dir->room) {
		size_t room = LP_MAX(dir->room * 2, (size_t)64);
		struct lpi_remote_entry *entries = realloc(dir->entries, room * sizeof(*entries));
		if (entries == NULL)
			return -ENOMEM;
		dir->entries = entries;
		dir->room = room;
	}
	dir->entries[dir->cnt] = (struct lpi_remote_entry){.name = strdup(name), .attrs = *attrs};
	if (dir->entries[dir->cnt].name == NULL)
		return -ENOMEM;
	dir->cnt++;
	return 0;
}

int lpi_remote_dir_read(const char *key, struct lpi_remote_dir *ret_dir)
{
	struct lpi_tree_dir dir;
	struct lapis_attrs attrs;
	char name[LPI_NAME_MAX + 1];
	*ret_dir = (struct lpi_remote_dir){.entries = NULL};
	int err = lpi_tree_open(key, LAPIS_ATTRS, &dir);
	while (err >= 0 && (err = lpi_tree_next(&dir, name, &attrs)) > 0) {
		err = add_entry(ret_dir, name, &attrs);
		if (err < 0)
			(void)lpi_cli_fail(key, "out of memory");
	}
	lpi_tree_close(&dir);
	if (err == -ENOENT)
		return 0;
	if (err < 0)
		return err;
	if (ret_dir->cnt > 0)
		qsort(ret_dir->entries, ret_dir->cnt, sizeof(*ret_dir->entries), by_name);
	return 1;
}

struct lpi_remote_entry *lpi_remote_dir_find(const struct lpi_remote_dir *dir, const char *name)
{
	char copy[256];
	if (dir->cnt == 0 || strlen(name) >= sizeof(copy))
		return NULL;
	(void)snprintf(copy, sizeof(copy), "%s", name);
	const struct lpi_remote_entry wanted = {.name = copy};
	return bsearch(&wanted, dir->entries, dir->cnt, sizeof(*dir->entries), by_name);
}

void lpi_remote_dir_fini(struct lpi_remote_dir *dir)
{
	for (size_t i = 0; i < dir->cnt; i++)
		free(dir->entries[i].name);
	free(dir->entries);
	*dir = (struct lpi_remote_dir){.entries = NULL};
}

/* --- Alike? ----------------------------------------------------------------------------------- */

int64_t lpi_sync_mtime(const struct stat *st)
{
	return lpi_time_ns(&st->st_mtim);
}

static int compare_bytes(void *arg, uint64_t offset, const void *data, size_t len)
{
	static char bytes[65536];
	const int *fd = arg;
	for (size_t done = 0; done < len;) {
		size_t step = LP_MIN(sizeof(bytes), len - done);
		ssize_t n = pread(*fd, bytes, step, (off_t)(offset + done));
		if (n <= 0 || memcmp(bytes, (const char *)data + done, (size_t)n) != 0)
			return -ECANCELED;
		done += (size_t)n;
	}
	return 0;
}

bool lpi_sync_is_same(struct lpi_sync *sync, const char *key, const struct lapis_attrs *attrs,
		      int dir_fd, const char *name)
{
	struct stat st;
	if (fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG(st.st_mode) ||
	    attrs->type != LAPIS_FILE || (uint64_t)st.st_size != attrs->size_bytes)
		return false;
	if (!sync->compares)
		return lpi_sync_mtime(&st) == attrs->mtime_ns;
	int fd = openat(dir_fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return false;
	int err = lapis_get_to(sync->jobs.lapis, key, 0, LAPIS_TO_END, compare_bytes, &fd);
	(void)close(fd);
	/* A different time makes them different: it is to be the same afterwards. */
	return err == 0 && lpi_sync_mtime(&st) == attrs->mtime_ns;
}

/* --- Mounts ----------------------------------------------------------------------------------- */

bool lpi_sync_is_mount(struct lpi_sync *sync, int dir_fd, const struct stat *st, const char *rel)
{
	struct stat here;
	if (fstat(dir_fd, &here) < 0 || here.st_dev == st->st_dev || !lp_fuse_is_mount(st->st_dev))
		return false;
	lpi_tasks_fail(&sync->jobs, rel, 0, "is a mount of Lapis (skipped)");
	return true;
}

/* Through both doors; that the mount is of this very store is told by the time of change, which is
 * hardly the same to the nanosecond in another one. */
static bool is_same_dir(const struct stat *st, const struct lapis_attrs *attrs)
{
	return st->st_ino == attrs->ino && lpi_time_ns(&st->st_ctim) == attrs->ctime_ns;
}

static bool is_key_in(const struct lpi_sync *sync, const struct stat *root)
{
	char key[LPI_KEY_MAX + 1];
	(void)snprintf(key, sizeof(key), "%s", sync->key);
	while (key[0] != '\0') {
		struct lapis_result result = {.size = sizeof(result)};
		struct lapis_request request = {.size = sizeof(request), .op = LAPIS_STAT};
		char *slash = strrchr(key, '/');
		*(slash != NULL ? slash : key) = '\0';
		if (key[0] != '\0')
			request.path = key;
		else
			request.ino = ROOT_INO;
		int err = lapis_call(sync->jobs.lapis, &request, &result);
		bool is_same = err == 0 && is_same_dir(root, &result.attrs);
		lapis_result_fini(&result);
		if (is_same)
			return true;
	}
	return false;
}

static bool is_in_key(const struct lpi_sync *sync, const struct stat *root)
{
	char above[3 * (LPI_KEY_NAMES_MAX + 1) + 1] = "..";
	struct lapis_attrs attrs;
	struct stat st = *root;
	if (lapis_stat(sync->jobs.lapis, sync->key, &attrs) < 0)
		return false;
	for (size_t len = 2; st.st_ino != ROOT_INO && len + 4 < sizeof(above); len += 3) {
		if (fstatat(sync->root_fd, above, &st, 0) < 0 || st.st_dev != root->st_dev)
			return false;
		if (is_same_dir(&st, &attrs))
			return true;
		memcpy(above + len, "/..", 4);
	}
	return false;
}

bool lpi_sync_is_nested(const struct lpi_sync *sync)
{
	struct stat root;
	return sync->root_fd >= 0 && fstat(sync->root_fd, &root) == 0 &&
	       lp_fuse_is_mount(root.st_dev) && (is_key_in(sync, &root) || is_in_key(sync, &root));
}

/* --- Names ------------------------------------------------------------------------------------ */

bool lpi_sync_join(struct lpi_sync *sync, const char *rel, const char *name, char *ret_rel)
{
	int n = snprintf(ret_rel, LPI_KEY_MAX + 1, "%s%s%s", rel, rel[0] != '\0' ? "/" : "", name);
	if (n <= LPI_KEY_MAX)
		return true;
	lpi_tasks_fail(&sync->jobs, name, 0, "the path is longer than 4096 bytes");
	return false;
}

bool lpi_sync_only_says(const struct lpi_sync *sync, const char *what, const char *name)
{
	if (!sync->only_says)
		return false;
	(void)printf("%-7s ", what);
	lpi_print_name(stdout, name, '\n');
	return true;
}

/* What makes all that follows fail as well. */
static bool is_end(int err)
{
	return err == -ENOMEM || err == -ENOTCONN;
}

int lpi_sync_dirs(struct lpi_sync *sync, int (*visit)(struct lpi_sync *sync, const char *rel),
		  size_t *ret_done)
{
	struct lpi_cli_texts *dirs = &sync->dirs;
	int err = lpi_cli_texts_add(dirs, "");
	size_t i = 0;
	for (; !is_end(err) && i < dirs->cnt && !sync->jobs.is_hopeless; i++) {
		err = visit(sync, dirs->texts[i]);
		if (err < 0) {
			free(dirs->texts[i]);
			dirs->texts[i] = NULL;
		}
	}
	*ret_done = i;
	return is_end(err) ? err : 0;
}

void lpi_sync_tell_hopeless(const struct lpi_sync *sync)
{
	if (sync->jobs.is_hopeless)
		(void)lpi_remote_fail_text("sync", 0,
					   "the rest was left out; run it again to go on");
}
