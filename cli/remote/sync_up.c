/* SPDX-License-Identifier: Apache-2.0 */
/* From here to the store, directory by directory, several files at once. What was done stays done:
 * who runs it again goes on where it ended. Directories get their times last, for what is put into
 * them changes those. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "cli/remote/remote.h"
#include "cli/remote/sync.h"
#include "cli/remote/transfer.h"

/* The directory that is at work. */
struct up_dir {
	struct lpi_sync *sync;
	const char *rel;
	int fd;
	struct lpi_remote_dir remote;
};

static void fail_local(struct lpi_sync *sync, const char *rel, int err)
{
	lpi_tasks_fail(&sync->jobs, rel[0] != '\0' ? rel : sync->local, 0, lp_strerror(err));
}

/* Everything on the way to a key, which may be there. */
static int make_dirs(struct lpi_sync *sync, const char *key)
{
	char part[LPI_KEY_MAX + 1];
	for (size_t i = 1;; i++) {
		size_t len = strlen(key);
		if (i > len)
			return 0;
		if (key[i] != '/' && key[i] != '\0')
			continue;
		(void)snprintf(part, sizeof(part), "%.*s", (int)i, key);
		int err = lapis_mkdir(sync->jobs.lapis, part, 0755, LAPIS_SPREAD);
		if (err < 0 && err != -EEXIST) {
			lpi_tasks_fail(&sync->jobs, part, err, lapis_error_text());
			return err;
		}
	}
}

static void set_attrs(struct lpi_sync *sync, const char *key, const struct stat *st, uint32_t mask)
{
	const struct lapis_attrs attrs = {.mode = (uint16_t)(st->st_mode & 07777),
					  .mtime_ns = lpi_sync_mtime(st)};
	int err = lapis_set(sync->jobs.lapis, key, &attrs, mask, NULL);
	if (err < 0)
		lpi_tasks_fail(&sync->jobs, key, err, lapis_error_text());
}

static bool remove_remote(struct lpi_sync *sync, const char *key, const struct lapis_attrs *attrs)
{
	if (lpi_sync_only_says(sync, "remove", key))
		return true;
	if (attrs->type == LAPIS_DIR) {
		/* Alone: the one that it is in is here, too, and stays although it may be empty. */
		bool is_gone = lpi_tree_remove(key, true) == LP_EXIT_OK;
		sync->jobs.failed += is_gone ? 0 : 1;
		return is_gone;
	}
	int err = lapis_unlink(sync->jobs.lapis, key);
	if (err < 0)
		lpi_tasks_fail(&sync->jobs, key, err, lapis_error_text());
	return err == 0;
}

/* A directory there may hold anything: it gives way only where that was asked for. */
static bool may_replace(struct lpi_sync *sync, const struct lpi_remote_entry *entry,
			const char *rel)
{
	if (entry == NULL || entry->attrs.type != LAPIS_DIR || sync->removes)
		return true;
	lpi_tasks_fail(&sync->jobs, rel, 0, "is a directory in the store (--delete replaces it)");
	return false;
}

/* What takes the place of something of another kind is opened before that is removed. */
static bool can_open(struct up_dir *dir, const char *name, const char *rel, int flags)
{
	int fd = openat(dir->fd, name,
			O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NOFOLLOW | O_NONBLOCK | flags);
	if (fd < 0)
		fail_local(dir->sync, rel, -errno);
	else
		(void)close(fd);
	return fd >= 0;
}

static void stored_zero(void *arg, const char *key)
{
	struct lpi_sync *sync = arg;
	if (lpi_cli_texts_add(&sync->zeros, key) < 0)
		sync->jobs.failed++;
}

/* A key in the same directory, which nobody else has. False: it would be too long, which is printed
 * and counted. */
static bool name_beside(struct lpi_sync *sync, const char *key, size_t number, char *ret_temp)
{
	int dir_len = (int)(strlen(key) - strlen(lpi_key_name(key)));
	int n = snprintf(ret_temp, LPI_KEY_MAX + 1, "%.*s.lapis-%ld-%zu", dir_len, key,
			 (long)getpid(), number);
	if (n > LPI_KEY_MAX)
		lpi_tasks_fail(&sync->jobs, key, -ENAMETOOLONG, lp_strerror(-ENAMETOOLONG));
	return n <= LPI_KEY_MAX;
}

/* What was put beside them gets these keys. */
static void take_keys(struct lpi_sync *sync)
{
	struct lapis *lapis = sync->jobs.lapis;
	char temp[LPI_KEY_MAX + 1];
	for (size_t i = 0; i < sync->anew.cnt; i++) {
		const char *key = sync->anew.texts[i];
		int err = name_beside(sync, key, i, temp) ? lapis_rename(lapis, temp, key, 0) : 0;
		/* Where it is not there its put may have failed, and has said so. */
		if (err == 0 || (err == -ENOENT && sync->jobs.failed > 0))
			continue;
		lpi_tasks_fail(&sync->jobs, key, err, lapis_error_text());
		(void)lapis_unlink(lapis, temp); /* why it failed has been said */
	}
}

/* Set-user-ID and set-group-ID are given together with the content, to an object that is made by
 * it: what has the key may hold anything by then, and keeps its owner. */
static bool gains_ids(const struct lapis_attrs *attrs, const struct stat *st)
{
	bool is_own = attrs->uid == geteuid() && attrs->gid == getegid();
	return (st->st_mode & LPI_SET_IDS) != 0 &&
	       (!is_own || attrs->mode != (st->st_mode & 07777));
}

static void put_file(struct up_dir *dir, const char *name, const char *rel, const char *key)
{
	struct lpi_sync *sync = dir->sync;
	struct lpi_remote_entry *entry = lpi_remote_dir_find(&dir->remote, name);
	struct stat st;
	if (fstatat(dir->fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0) {
		fail_local(sync, rel, -errno);
		return;
	}
	/* As the object is to have it. */
	st.st_mode = (mode_t)S_IFREG | lpi_copy_mode(st.st_mode, st.st_uid, st.st_gid);
	bool is_file = entry != NULL && entry->attrs.type == LAPIS_FILE;
	bool is_kept = is_file && !gains_ids(&entry->attrs, &st);
	bool is_same = is_kept && lpi_sync_is_same(sync, key, &entry->attrs, dir->fd, name);
	/* A put keeps the mode of what it replaces. */
	if (is_kept && !sync->only_says && entry->attrs.mode != (st.st_mode & 07777))
		set_attrs(sync, key, &st, LAPIS_SET_MODE);
	if (is_same || !may_replace(sync, entry, rel))
		return;
	if (entry != NULL && !is_file &&
	    (!can_open(dir, name, rel, 0) || !remove_remote(sync, key, &entry->attrs)))
		return;
	bool is_anew = is_file && !is_kept;
	char temp[LPI_KEY_MAX + 1];
	if (lpi_sync_only_says(sync, "put", rel) ||
	    (is_anew && !name_beside(sync, key, sync->anew.cnt, temp)))
		return;
	if (is_anew && lpi_cli_texts_add(&sync->anew, key) < 0) {
		sync->jobs.failed++;
		return;
	}
	const struct lpi_put_file upload = {.dir_fd = dir->fd,
					    .path = name,
					    .subject = rel,
					    .key = is_anew ? temp : key,
					    .condition = is_anew ? LAPIS_IF_ABSENT : LAPIS_IF_ANY,
					    .keeps_times = true,
					    .no_follow = true,
					    .stored = lpi_sync_mtime(&st) == 0 ? stored_zero : NULL,
					    .arg = sync};
	lpi_put_file(&sync->jobs, &upload);
}

/* Under a key of its own first, so that what is there goes when this is known to work. */
static void replace_by_symlink(struct lpi_sync *sync, const struct lpi_remote_entry *entry,
			       const char *target, const char *key)
{
	struct lapis *lapis = sync->jobs.lapis;
	char temp[LPI_KEY_MAX + 1];
	int dir_len = (int)(strlen(key) - strlen(lpi_key_name(key)));
	int n = snprintf(temp, sizeof(temp), "%.*s.lapis-%ld-link", dir_len, key, (long)getpid());
	if (n > LPI_KEY_MAX) {
		lpi_tasks_fail(&sync->jobs, key, -ENAMETOOLONG, lp_strerror(-ENAMETOOLONG));
		return;
	}
	int err = lapis_symlink(lapis, target, temp);
	/* Of one that was killed, and had the same number. */
	if (err == -EEXIST && lapis_unlink(lapis, temp) == 0)
		err = lapis_symlink(lapis, target, temp);
	if (err < 0) {
		lpi_tasks_fail(&sync->jobs, key, err, lapis_error_text());
		return;
	}
	if (entry->attrs.type != LAPIS_DIR || remove_remote(sync, key, &entry->attrs)) {
		err = lapis_rename(lapis, temp, key, 0);
		if (err == 0)
			return;
		lpi_tasks_fail(&sync->jobs, key, err, lapis_error_text());
	}
	(void)lapis_unlink(lapis, temp); /* why it failed has been said */
}

static void put_symlink(struct up_dir *dir, const char *name, const char *rel, const char *key)
{
	struct lpi_sync *sync = dir->sync;
	struct lpi_remote_entry *entry = lpi_remote_dir_find(&dir->remote, name);
	char target[LPI_KEY_MAX + 1];
	char there[LPI_KEY_MAX + 1];
	ssize_t len = readlinkat(dir->fd, name, target, sizeof(target) - 1);
	if (len < 0) {
		fail_local(sync, rel, -errno);
		return;
	}
	target[len] = '\0';
	if (entry != NULL && entry->attrs.type == LAPIS_SYMLINK &&
	    lapis_readlink(sync->jobs.lapis, key, there, sizeof(there)) >= 0 &&
	    strcmp(target, there) == 0)
		return;
	if (!may_replace(sync, entry, rel))
		return;
	if (sync->only_says && entry != NULL && entry->attrs.type == LAPIS_DIR)
		(void)remove_remote(sync, key, &entry->attrs);
	if (lpi_sync_only_says(sync, "put", rel))
		return;
	if (entry != NULL) {
		replace_by_symlink(sync, entry, target, key);
		return;
	}
	int err = lapis_symlink(sync->jobs.lapis, target, key);
	if (err < 0)
		lpi_tasks_fail(&sync->jobs, key, err, lapis_error_text());
}

static void put_entry(struct up_dir *dir, const char *name)
{
	struct lpi_sync *sync = dir->sync;
	struct lpi_remote_entry *entry = lpi_remote_dir_find(&dir->remote, name);
	struct stat st;
	char rel[LPI_KEY_MAX + 1];
	char key[LPI_KEY_MAX + 1];
	if (!lpi_sync_join(sync, dir->rel, name, rel))
		return;
	if (lpi_key_join(sync->key, rel, key) < 0) {
		sync->jobs.failed++;
		return;
	}
	if (fstatat(dir->fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0) {
		fail_local(sync, rel, -errno);
		return;
	}
	if (entry != NULL)
		entry->is_seen = true;
	if (S_ISREG(st.st_mode)) {
		put_file(dir, name, rel, key);
	} else if (S_ISLNK(st.st_mode)) {
		put_symlink(dir, name, rel, key);
	} else if (S_ISDIR(st.st_mode) && lpi_sync_is_mount(sync, dir->fd, &st, rel)) {
		return;
	} else if (S_ISDIR(st.st_mode)) {
		bool gives_way = entry != NULL && entry->attrs.type != LAPIS_DIR;
		if (gives_way && (!can_open(dir, name, rel, O_DIRECTORY) ||
				  !remove_remote(sync, key, &entry->attrs)))
			return;
		if (lpi_cli_texts_add(&sync->dirs, rel) < 0)
			sync->jobs.failed++;
	} else {
		lpi_tasks_fail(&sync->jobs, rel, 0,
			       "is not a file, directory or symlink (skipped)");
	}
}

static void remove_unseen(struct up_dir *dir, const char *dir_key)
{
	char key[LPI_KEY_MAX + 1];
	for (size_t i = 0; i < dir->remote.cnt; i++) {
		const struct lpi_remote_entry *entry = &dir->remote.entries[i];
		if (!entry->is_seen && lpi_key_join(dir_key, entry->name, key) == 0)
			(void)remove_remote(dir->sync, key, &entry->attrs);
	}
}

/* What is in the directory; its descriptor is the stream's. */
static void put_entries(struct up_dir *dir, DIR *stream)
{
	struct dirent *found;
	/* One thread. NOLINTNEXTLINE(concurrency-mt-unsafe) */
	while (!dir->sync->jobs.is_hopeless && (errno = 0, (found = readdir(stream)) != NULL)) {
		if (strcmp(found->d_name, ".") != 0 && strcmp(found->d_name, "..") != 0)
			put_entry(dir, found->d_name);
	}
	if (!dir->sync->jobs.is_hopeless && errno != 0)
		fail_local(dir->sync, dir->rel, -errno);
}

/* A file there whose removal was only said, or a place below it: no directory yet. */
static bool is_in_the_way(struct lpi_sync *sync, const char *key, const char *rel)
{
	struct lapis_attrs attrs;
	if (!sync->only_says || rel[0] == '\0')
		return false;
	int err = lapis_stat(sync->jobs.lapis, key, &attrs);
	return err == -ENOTDIR || (err == 0 && attrs.type != LAPIS_DIR);
}

/* What is in it here goes to what is in it there. */
static int put_into(struct up_dir *dir, const char *key)
{
	struct lpi_sync *sync = dir->sync;
	const char *rel = dir->rel;
	dir->fd = openat(sync->root_fd, rel[0] != '\0' ? rel : ".",
			 O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	DIR *stream = dir->fd < 0 ? NULL : fdopendir(dir->fd);
	if (stream == NULL) {
		int err = -errno;
		fail_local(sync, rel, err);
		if (dir->fd >= 0)
			(void)close(dir->fd);
		return err;
	}
	int err = 0;
	int exists = is_in_the_way(sync, key, rel) ? 0 : lpi_remote_dir_read(key, &dir->remote);
	sync->jobs.failed += exists < 0 ? 1 : 0;
	if (exists < 0)
		err = exists;
	else if (exists == 0 && !sync->only_says)
		err = make_dirs(sync, key);
	if (err < 0) {
		(void)closedir(stream);
		return err;
	}
	unsigned failed = sync->jobs.failed;
	put_entries(dir, stream);
	/* What could not be read here, or was not looked at, must not vanish there. */
	if (sync->removes && !sync->jobs.is_hopeless && failed == sync->jobs.failed)
		remove_unseen(dir, key);
	(void)closedir(stream);
	return 0;
}

static int put_dir(struct lpi_sync *sync, const char *rel)
{
	struct up_dir dir = {.sync = sync, .rel = rel};
	char key[LPI_KEY_MAX + 1];
	(void)snprintf(key, sizeof(key), "%s%s%s", sync->key, rel[0] != '\0' ? "/" : "", rel);
	int err = put_into(&dir, key);
	lpi_remote_dir_fini(&dir.remote);
	return err;
}

/* The first `cnt` of them: those that were made. */
static void finish_dirs(struct lpi_sync *sync, size_t cnt)
{
	char key[LPI_KEY_MAX + 1];
	struct stat st;
	for (size_t i = cnt; i-- > 0 && !sync->only_says;) {
		const char *rel = sync->dirs.texts[i];
		if (rel == NULL)
			continue;
		(void)snprintf(key, sizeof(key), "%s%s%s", sync->key, rel[0] != '\0' ? "/" : "",
			       rel);
		if (fstatat(sync->root_fd, rel[0] != '\0' ? rel : ".", &st, 0) == 0)
			set_attrs(sync, key, &st, LAPIS_SET_MODE | LAPIS_SET_MTIME);
	}
}

int lpi_sync_up(struct lpi_sync *sync)
{
	static const struct stat zero;
	size_t done = 0;
	int err = lpi_sync_dirs(sync, put_dir, &done);
	(void)lpi_tasks_finish(&sync->jobs);
	lpi_sync_tell_hopeless(sync);
	/* Without a connection each of these would fail, and say so. */
	for (size_t i = 0; err != -ENOTCONN && i < sync->zeros.cnt; i++)
		set_attrs(sync, sync->zeros.texts[i], &zero, LAPIS_SET_MTIME);
	if (err != -ENOTCONN) {
		take_keys(sync);
		finish_dirs(sync, done);
	}
	return lpi_tasks_finish(&sync->jobs) != LP_EXIT_OK || err < 0 ? LP_EXIT_FAILED : LP_EXIT_OK;
}
