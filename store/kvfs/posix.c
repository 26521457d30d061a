/* SPDX-License-Identifier: Apache-2.0 */
/* RocksDB gathers what it appends, so each append is one write(2). */
#include "store/kvfs/posix.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/assert.h"

#define FILE_MODE 0600

struct file {
	struct lp_kvfs_file base;
	int fd;
	bool is_named; /* its name is durable */
};

static int dir_of(struct lp_kvfs *kvfs)
{
	return LP_CONTAINER_OF(kvfs, struct lp_kvfs_posix, kvfs)->dir_fd;
}

static struct file *file_of(struct lp_kvfs_file *base)
{
	return LP_CONTAINER_OF(base, struct file, base);
}

static int sync_dir(struct lp_kvfs *kvfs)
{
	return fsync(dir_of(kvfs)) < 0 ? -errno : 0;
}

static int open_file(struct lp_kvfs *kvfs, const char *name, int flags,
		     struct lp_kvfs_file **ret_file)
{
	struct file *file = calloc(1, sizeof(*file));
	if (file == NULL)
		return -ENOMEM;
	file->base.fs = kvfs;
	file->is_named = (flags & O_CREAT) == 0;
	file->fd = openat(dir_of(kvfs), name, flags | O_CLOEXEC, FILE_MODE);
	if (file->fd < 0) {
		int err = -errno;
		free(file);
		return err;
	}
	*ret_file = &file->base;
	return 0;
}

static int posix_create(struct lp_kvfs *kvfs, const char *name, struct lp_kvfs_file **ret_file)
{
	/* Readers of one that is replaced keep it: it is not truncated. */
	if (unlinkat(dir_of(kvfs), name, 0) < 0 && errno != ENOENT)
		return -errno;
	return open_file(kvfs, name, O_CREAT | O_EXCL | O_WRONLY | O_APPEND, ret_file);
}

static int posix_open(struct lp_kvfs *kvfs, const char *name, struct lp_kvfs_file **ret_file)
{
	return open_file(kvfs, name, O_RDONLY, ret_file);
}

static int posix_append(struct lp_kvfs_file *base, const void *data, size_t len)
{
	const uint8_t *at = data;
	while (len > 0) {
		ssize_t done = write(file_of(base)->fd, at, len);
		if (done < 0 && errno == EINTR)
			continue;
		if (done < 0)
			return -errno;
		at += done;
		len -= (size_t)done;
	}
	return 0;
}

static int posix_sync(struct lp_kvfs_file *base)
{
	struct file *file = file_of(base);
	if (fdatasync(file->fd) < 0)
		return -errno;
	int err = file->is_named ? 0 : sync_dir(base->fs);
	file->is_named = file->is_named || err == 0;
	return err;
}

static int posix_close(struct lp_kvfs_file *base)
{
	int err = close(file_of(base)->fd) < 0 ? -errno : 0;
	free(file_of(base));
	return err;
}

static int64_t posix_pread(struct lp_kvfs_file *base, void *buf, size_t len, uint64_t offset)
{
	size_t done = 0;
	while (done < len) {
		ssize_t part = pread(file_of(base)->fd, (uint8_t *)buf + done, len - done,
				     (off_t)(offset + done));
		if (part < 0 && errno == EINTR)
			continue;
		if (part < 0)
			return -errno;
		if (part == 0)
			break;
		done += (size_t)part;
	}
	return (int64_t)done;
}

static int posix_remove(struct lp_kvfs *kvfs, const char *name)
{
	return unlinkat(dir_of(kvfs), name, 0) < 0 ? -errno : sync_dir(kvfs);
}

static int posix_rename(struct lp_kvfs *kvfs, const char *from, const char *to)
{
	int dir = dir_of(kvfs);
	return renameat(dir, from, dir, to) < 0 ? -errno : sync_dir(kvfs);
}

static int list_all(DIR *dir, lp_kvfs_list_fn *each, void *arg)
{
	for (;;) {
		errno = 0;
		/* Of a stream that only this thread has. */
		const struct dirent *entry = readdir(dir); /* NOLINT(concurrency-mt-unsafe) */
		if (entry == NULL)
			return -errno;
		if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
			continue;
		int err = each(entry->d_name, arg);
		if (err != 0)
			return err;
	}
}

static int posix_list(struct lp_kvfs *kvfs, lp_kvfs_list_fn *each, void *arg)
{
	int fd = openat(dir_of(kvfs), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	DIR *dir = fdopendir(fd);
	if (dir == NULL) {
		int err = -errno;
		(void)close(fd); /* nothing was written */
		return err;
	}
	int err = list_all(dir, each, arg);
	(void)closedir(dir); /* nothing was written */
	return err;
}

static int posix_stat(struct lp_kvfs *kvfs, const char *name, struct lp_kvfs_stat *ret_stat)
{
	struct stat st;
	if (fstatat(dir_of(kvfs), name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	*ret_stat = (struct lp_kvfs_stat){.size_bytes = (uint64_t)st.st_size,
					  .mtime_s = st.st_mtim.tv_sec};
	return 0;
}

static int posix_free_space(struct lp_kvfs *kvfs, uint64_t *ret_bytes)
{
	struct statvfs st;
	if (fstatvfs(dir_of(kvfs), &st) < 0)
		return -errno;
	*ret_bytes = (uint64_t)st.f_bavail * st.f_frsize;
	return 0;
}

static const struct lp_kvfs_ops posix_ops = {
	.create = posix_create,
	.append = posix_append,
	.sync = posix_sync,
	.close = posix_close,
	.open = posix_open,
	.pread = posix_pread,
	.remove = posix_remove,
	.rename = posix_rename,
	.list = posix_list,
	.stat = posix_stat,
	.free_space = posix_free_space,
};

void lp_kvfs_posix_init(struct lp_kvfs_posix *self, int dir_fd)
{
	self->kvfs.ops = &posix_ops;
	self->dir_fd = dir_fd;
}
