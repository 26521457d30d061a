/* SPDX-License-Identifier: Apache-2.0 */
/* From the store to here. Names from the daemon are single ones, symlinks are not followed: nothing
 * is written outside of the directory that was given. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "cli/remote/remote.h"
#include "cli/remote/sync.h"
#include "cli/remote/transfer.h"

#define SPARSE_MIN (UINT64_C(8) << 20)

struct down_dir {
	struct lpi_sync *sync;
	const char *rel;
	int fd;
	struct lpi_remote_dir remote;
};

static void fail_local(struct lpi_sync *sync, const char *rel, int err)
{
	lpi_tasks_fail_here(&sync->jobs, rel[0] != '\0' ? rel : sync->local, err);
}

/* A directory here may hold anything: it gives way only where that was asked for, and then when
 * what replaces it is there. */
static bool may_replace(struct down_dir *dir, const char *name, const char *rel)
{
	struct stat st;
	if (fstatat(dir->fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISDIR(st.st_mode))
		return true;
	if (dir->sync->removes)
		(void)lpi_sync_only_says(dir->sync, "remove", rel);
	else
		lpi_tasks_fail(&dir->sync->jobs, rel, 0,
			       "is a local directory (--delete replaces it)");
	return dir->sync->removes;
}

static void close_fd(void *arg)
{
	(void)close((int)(intptr_t)arg);
}

static void get_file(struct down_dir *dir, const struct lpi_remote_entry *entry, const char *rel,
		     const char *key)
{
	struct lpi_sync *sync = dir->sync;
	const struct lapis_attrs *attrs = &entry->attrs;
	const uint16_t mode = lpi_copy_mode(attrs->mode, attrs->uid, attrs->gid);
	struct stat st;
	bool exists = fstatat(dir->fd, entry->name, &st, AT_SYMLINK_NOFOLLOW) == 0;
	/* These bits come with the content only: of this size and time it may be another one. */
	bool gains_ids = exists && (mode & LPI_SET_IDS & ~st.st_mode) != 0;
	if (exists && !gains_ids && lpi_sync_is_same(sync, key, attrs, dir->fd, entry->name)) {
		if ((st.st_mode & 07777) != mode && !sync->only_says &&
		    fchmodat(dir->fd, entry->name, mode, 0) < 0)
			fail_local(sync, rel, -errno);
		return;
	}
	if (!may_replace(dir, entry->name, rel) || lpi_sync_only_says(sync, "get", rel))
		return;
	/* The directory's descriptor is closed before the download ends. */
	int fd = fcntl(dir->fd, F_DUPFD_CLOEXEC, 0);
	if (fd < 0) {
		fail_local(sync, rel, -errno);
		return;
	}
	const struct lpi_get_file download = {.dir_fd = fd,
					      .path = entry->name,
					      .subject = rel,
					      .key = key,
					      .length = LAPIS_TO_END,
					      .mtime_ns = attrs->mtime_ns,
					      .mode = mode,
					      .keeps_times = true,
					      .replaces_dirs = sync->removes,
					      .is_maybe_sparse = attrs->size_bytes >= SPARSE_MIN,
					      .batch = &sync->batch,
					      .ended = close_fd,
					      .arg = (void *)(intptr_t)fd};
	lpi_get_file(&sync->jobs, &download);
}

static void get_symlink(struct down_dir *dir, const char *name, const char *rel, const char *key)
{
	struct lpi_sync *sync = dir->sync;
	char target[LPI_KEY_MAX + 1];
	char here[LPI_KEY_MAX + 1];
	char temp[64];
	int err = lapis_readlink(sync->jobs.lapis, key, target, sizeof(target));
	if (err < 0) {
		lpi_tasks_fail(&sync->jobs, key, err, lapis_error_text());
		return;
	}
	ssize_t len = readlinkat(dir->fd, name, here, sizeof(here) - 1);
	here[LP_MAX(len, (ssize_t)0)] = '\0';
	if ((len >= 0 && strcmp(here, target) == 0) || !may_replace(dir, name, rel) ||
	    lpi_sync_only_says(sync, "get", rel))
		return;
	(void)snprintf(temp, sizeof(temp), "%slink", lpi_temp_prefix());
	if (symlinkat(target, dir->fd, temp) < 0) {
		fail_local(sync, rel, -errno);
		return;
	}
	err = lpi_take_name(dir->fd, temp, name, sync->removes);
	if (err < 0) {
		fail_local(sync, rel, err);
		(void)unlinkat(dir->fd, temp, 0);
	}
}

static void get_entry(struct down_dir *dir, const struct lpi_remote_entry *entry)
{
	struct lpi_sync *sync = dir->sync;
	struct stat st;
	char rel[LPI_KEY_MAX + 1];
	char key[LPI_KEY_MAX + 1];
	if (!lpi_sync_join(sync, dir->rel, entry->name, rel))
		return;
	if (lpi_key_join(sync->key, rel, key) < 0) {
		sync->jobs.failed++;
		return;
	}
	if (entry->attrs.type == LAPIS_FILE) {
		get_file(dir, entry, rel, key);
	} else if (entry->attrs.type == LAPIS_SYMLINK) {
		get_symlink(dir, entry->name, rel, key);
	} else if (entry->attrs.type == LAPIS_DIR) {
		bool exists = fstatat(dir->fd, entry->name, &st, AT_SYMLINK_NOFOLLOW) == 0;
		if (exists && S_ISDIR(st.st_mode) && lpi_sync_is_mount(sync, dir->fd, &st, rel))
			return;
		if (exists && !S_ISDIR(st.st_mode) && !lpi_sync_only_says(sync, "remove", rel))
			(void)unlinkat(dir->fd, entry->name, 0);
		/* Its mode comes last: until then it must be possible to write to it. */
		if (!sync->only_says && mkdirat(dir->fd, entry->name, 0700) < 0 && errno != EEXIST)
			fail_local(sync, rel, -errno);
		else if (lpi_cli_texts_add(&sync->dirs, rel) < 0)
			sync->jobs.failed++;
	} else {
		lpi_tasks_fail(&sync->jobs, rel, 0,
			       "is not a file, directory or symlink (skipped)");
	}
}

/* --- What there is too much ------------------------------------------------------------------- */

static void remove_local(struct down_dir *dir, const char *name)
{
	struct lpi_sync *sync = dir->sync;
	char rel[LPI_KEY_MAX + 1];
	if (!lpi_sync_join(sync, dir->rel, name, rel) || lpi_sync_only_says(sync, "remove", rel))
		return;
	int err = lpi_remove_local(dir->fd, name);
	if (err < 0)
		fail_local(sync, rel, err);
}

static void remove_unknown(struct down_dir *dir, DIR *stream)
{
	const char *ours = lpi_temp_prefix();
	struct dirent *found;
	/* One thread. NOLINTNEXTLINE(concurrency-mt-unsafe) */
	while ((found = readdir(stream)) != NULL) {
		const char *name = found->d_name;
		/* The last are downloads that are under way. */
		bool is_ours = strcmp(name, ".") == 0 || strcmp(name, "..") == 0 ||
			       strncmp(name, ours, strlen(ours)) == 0;
		if (!is_ours && lpi_remote_dir_find(&dir->remote, name) == NULL)
			remove_local(dir, name);
	}
}

/* --- Directories ------------------------------------------------------------------------------ */

/* There is none here yet, and it is only said what would be got. */
static bool is_to_be_made(const struct lpi_sync *sync, int err)
{
	return sync->only_says && (err == -ENOENT || err == -ENOTDIR || err == -EBADF);
}

/* One that a former run has finished, or not, may have got a mode that lets nobody write to it; it
 * gets that again at the end. Where that cannot be done what follows says why. */
static void make_writable(const struct down_dir *dir)
{
	const char *path = dir->rel[0] != '\0' ? dir->rel : ".";
	struct stat st;
	if (dir->sync->only_says ||
	    fstatat(dir->sync->root_fd, path, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
	    !S_ISDIR(st.st_mode) || (st.st_mode & S_IRWXU) == S_IRWXU)
		return;
	int err = fchmodat(dir->sync->root_fd, path, (st.st_mode & 07777) | S_IRWXU, 0);
	(void)err; /* what follows says why */
}

/* What was listed; dir->fd is below 0 where there is no directory yet. */
static int get_entries(struct down_dir *dir)
{
	struct lpi_sync *sync = dir->sync;
	make_writable(dir);
	dir->fd = openat(sync->root_fd, dir->rel[0] != '\0' ? dir->rel : ".",
			 O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	DIR *stream = dir->fd < 0 ? NULL : fdopendir(dir->fd);
	int err = stream == NULL ? -errno : 0;
	if (err < 0 && !is_to_be_made(sync, err)) {
		fail_local(sync, dir->rel, err);
		if (dir->fd >= 0)
			(void)close(dir->fd);
		return err;
	}
	for (size_t i = 0; i < dir->remote.cnt && !sync->jobs.is_hopeless; i++)
		get_entry(dir, &dir->remote.entries[i]);
	if (stream != NULL && sync->removes && !sync->jobs.is_hopeless)
		remove_unknown(dir, stream);
	if (stream != NULL)
		(void)closedir(stream);
	return 0;
}

static int get_dir(struct lpi_sync *sync, const char *rel)
{
	struct down_dir dir = {.sync = sync, .rel = rel};
	char key[LPI_KEY_MAX + 1];
	(void)snprintf(key, sizeof(key), "%s%s%s", sync->key, rel[0] != '\0' ? "/" : "", rel);
	int exists = lpi_remote_dir_read(key, &dir.remote);
	if (exists == 0)
		lpi_tasks_fail(&sync->jobs, key, 0, "the directory no longer exists");
	else if (exists < 0)
		sync->jobs.failed++;
	int err = exists == 0 ? -ENOENT : LP_MIN(exists, 0);
	if (err == 0)
		err = get_entries(&dir);
	lpi_remote_dir_fini(&dir.remote);
	return err;
}

static void finish_dirs(struct lpi_sync *sync)
{
	char key[LPI_KEY_MAX + 1];
	for (size_t i = sync->dirs.cnt; i-- > 0 && !sync->only_says;) {
		const char *rel = sync->dirs.texts[i];
		struct lapis_attrs attrs;
		if (rel == NULL)
			continue;
		const char *path = rel[0] != '\0' ? rel : ".";
		(void)snprintf(key, sizeof(key), "%s%s%s", sync->key, rel[0] != '\0' ? "/" : "",
			       rel);
		if (lapis_stat(sync->jobs.lapis, key, &attrs) < 0)
			continue;
		int64_t s = attrs.mtime_ns / (int64_t)LP_NS_PER_S;
		int64_t ns = attrs.mtime_ns % (int64_t)LP_NS_PER_S;
		const struct timespec times[2] = {
			{.tv_nsec = UTIME_OMIT},
			{.tv_sec = (time_t)(ns < 0 ? s - 1 : s),
			 .tv_nsec = (long)(ns < 0 ? ns + (int64_t)LP_NS_PER_S : ns)}};
		if (fchmodat(sync->root_fd, path, attrs.mode, 0) < 0 ||
		    utimensat(sync->root_fd, path, times, AT_SYMLINK_NOFOLLOW) < 0)
			fail_local(sync, rel, -errno);
	}
}

int lpi_sync_down(struct lpi_sync *sync)
{
	size_t done = 0;
	int err = lpi_sync_dirs(sync, get_dir, &done);
	(void)lpi_tasks_finish(&sync->jobs);
	lpi_get_flush(&sync->batch);
	lpi_sync_tell_hopeless(sync);
	/* Also of those that were made and not reached. Without a connection it cannot be asked
	 * what they are to be. */
	if (err != -ENOTCONN)
		finish_dirs(sync);
	/* Names, too: it is to be there after a loss of power. */
	if (!sync->only_says && syncfs(sync->root_fd) < 0)
		fail_local(sync, "", -errno);
	return lpi_tasks_finish(&sync->jobs) != LP_EXIT_OK || err < 0 ? LP_EXIT_FAILED : LP_EXIT_OK;
}
