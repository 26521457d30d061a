/* SPDX-License-Identifier: Apache-2.0 */
/* A file handle is a writer or a reader of blockfs behind RocksDB's one kind of handle. */
#include "store/kvfs/blockfs.h"

#include <errno.h>
#include <stdlib.h>

#include "base/assert.h"

struct file {
	struct lp_kvfs_file base;
	struct lp_blockfs_writer *writer; /* one of the two */
	struct lp_blockfs_reader *reader;
};

static struct lp_blockfs *fs_of(struct lp_kvfs *kvfs)
{
	return LP_CONTAINER_OF(kvfs, struct lp_kvfs_blockfs, kvfs)->fs;
}

static struct file *file_of(struct lp_kvfs_file *base)
{
	return LP_CONTAINER_OF(base, struct file, base);
}

static int file_new(struct lp_kvfs *kvfs, struct file **ret_file)
{
	struct file *file = calloc(1, sizeof(*file));
	if (file == NULL)
		return -ENOMEM;
	file->base.fs = kvfs;
	*ret_file = file;
	return 0;
}

static int files_create(struct lp_kvfs *kvfs, const char *name, struct lp_kvfs_file **ret_file)
{
	struct file *file;
	int err = file_new(kvfs, &file);
	if (err < 0)
		return err;
	err = lp_blockfs_create(fs_of(kvfs), name, false, &file->writer);
	if (err < 0) {
		free(file);
		return err;
	}
	*ret_file = &file->base;
	return 0;
}

static int files_append(struct lp_kvfs_file *base, const void *data, size_t len)
{
	LP_ASSERT(file_of(base)->writer != NULL);
	return lp_blockfs_append(file_of(base)->writer, data, len);
}

static int files_sync(struct lp_kvfs_file *base)
{
	LP_ASSERT(file_of(base)->writer != NULL);
	return lp_blockfs_sync(file_of(base)->writer);
}

static int files_close(struct lp_kvfs_file *base)
{
	struct file *file = file_of(base);
	int err = 0;
	if (file->writer != NULL)
		err = lp_blockfs_finish(file->writer);
	else
		lp_blockfs_close_reader(file->reader);
	free(file);
	return err;
}

static int files_open(struct lp_kvfs *kvfs, const char *name, struct lp_kvfs_file **ret_file)
{
	struct file *file;
	int err = file_new(kvfs, &file);
	if (err < 0)
		return err;
	err = lp_blockfs_open_reader(fs_of(kvfs), name, &file->reader);
	if (err < 0) {
		free(file);
		return err;
	}
	*ret_file = &file->base;
	return 0;
}

static int64_t files_pread(struct lp_kvfs_file *base, void *buf, size_t len, uint64_t offset)
{
	uint64_t got = 0;
	LP_ASSERT(file_of(base)->reader != NULL);
	int err = lp_blockfs_pread(file_of(base)->reader, buf, len, offset, &got);
	return err < 0 ? err : (int64_t)got;
}

static int files_pread_fetched(struct lp_kvfs_file *base, void *buf, size_t len, uint64_t offset,
			       struct lp_fetch *fetch)
{
	LP_ASSERT(file_of(base)->reader != NULL);
	return lp_blockfs_pread_fetched(file_of(base)->reader, buf, len, offset, fetch);
}

static int files_remove(struct lp_kvfs *kvfs, const char *name)
{
	return lp_blockfs_delete(fs_of(kvfs), name);
}

static int files_rename(struct lp_kvfs *kvfs, const char *from, const char *to)
{
	return lp_blockfs_rename(fs_of(kvfs), from, to);
}

static int files_list(struct lp_kvfs *kvfs, lp_kvfs_list_fn *each, void *arg)
{
	return lp_blockfs_list(fs_of(kvfs), "", each, arg);
}

static int files_stat(struct lp_kvfs *kvfs, const char *name, struct lp_kvfs_stat *ret_stat)
{
	uint64_t size_bytes;
	int64_t mtime_ns;
	int err = lp_blockfs_stat(fs_of(kvfs), name, &size_bytes, &mtime_ns);
	if (err == 0)
		*ret_stat = (struct lp_kvfs_stat){.size_bytes = size_bytes,
						  .mtime_s = mtime_ns / 1000000000};
	return err;
}

static int files_free_space(struct lp_kvfs *kvfs, uint64_t *ret_bytes)
{
	struct lp_blockfs_stats stats;
	lp_blockfs_stats(fs_of(kvfs), &stats);
	*ret_bytes = stats.free_bytes;
	return 0;
}

static const struct lp_kvfs_ops files_ops = {
	.create = files_create,
	.append = files_append,
	.sync = files_sync,
	.close = files_close,
	.open = files_open,
	.pread = files_pread,
	.pread_fetched = files_pread_fetched,
	.remove = files_remove,
	.rename = files_rename,
	.list = files_list,
	.stat = files_stat,
	.free_space = files_free_space,
};

void lp_kvfs_blockfs_init(struct lp_kvfs_blockfs *self, struct lp_blockfs *fs)
{
	self->kvfs.ops = &files_ops;
	self->fs = fs;
}
