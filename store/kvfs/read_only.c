/* SPDX-License-Identifier: Apache-2.0 */
/* Two layers: the files below, and files in memory above them. A name is looked for above first; a
 * name that was removed and is below too is remembered as hidden. An open file is a file of one of
 * the layers behind a handle of ours.
 *
 * The lock guards the hidden names and is held for lookups only. Removing a file is not one step
 * for somebody who asks for it meanwhile: it may still be found, as if asked for before. */
#include "store/kvfs/read_only.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/struct/list.h"
#include "store/kvfs/memory.h"

struct hidden {
	struct lp_list_node node;
	char name[LP_KVFS_NAME_MAX + 1];
};

/* The analyzer does not know that a popped one is no longer its neighbours'. */
LP_LIST_DEFINE(hidden_list, struct hidden, node); /* NOLINT(clang-analyzer-unix.Malloc) */

struct lp_kvfs_ro {
	struct lp_kvfs fs;
	struct lp_kvfs *lower;
	struct lp_kvfs_mem *mem;
	struct lp_kvfs *upper; /* the same, as a file system */
	pthread_mutex_t lock;
	struct hidden_list hidden; /* by lock */
};

struct file {
	struct lp_kvfs_file base;
	struct lp_kvfs_file *inner;
	bool is_upper;
};

static struct lp_kvfs_ro *ro_of(struct lp_kvfs *fs)
{
	return LP_CONTAINER_OF(fs, struct lp_kvfs_ro, fs);
}

static struct file *file_of(struct lp_kvfs_file *base)
{
	return LP_CONTAINER_OF(base, struct file, base);
}

/* --- Hidden names ----------------------------------------------------------------------------- */

static void lock(struct lp_kvfs_ro *ro)
{
	int err = pthread_mutex_lock(&ro->lock);
	LP_ASSERT(err == 0);
}

static void unlock(struct lp_kvfs_ro *ro)
{
	int err = pthread_mutex_unlock(&ro->lock);
	LP_ASSERT(err == 0);
}

static bool is_hidden(struct lp_kvfs_ro *ro, const char *name)
{
	const struct hidden *hidden;
	bool found = false;
	lock(ro);
	LP_LIST_FOREACH (hidden_list, &ro->hidden, hidden)
		found = found || strcmp(hidden->name, name) == 0;
	unlock(ro);
	return found;
}

static int hide(struct lp_kvfs_ro *ro, const char *name)
{
	struct hidden *hidden = calloc(1, sizeof(*hidden));
	size_t len = strlen(name);
	LP_ASSERT(len <= LP_KVFS_NAME_MAX);
	if (hidden == NULL)
		return -ENOMEM;
	memcpy(hidden->name, name, len + 1);
	lock(ro);
	hidden_list_push_back(&ro->hidden, hidden);
	unlock(ro);
	return 0;
}

/* A file below that is still to be seen, unless there is one of that name above. */
static int stat_lower(struct lp_kvfs_ro *ro, const char *name, struct lp_kvfs_stat *ret_stat)
{
	return is_hidden(ro, name) ? -ENOENT : ro->lower->ops->stat(ro->lower, name, ret_stat);
}

/* --- Files ------------------------------------------------------------------------------------ */

static int file_new(struct lp_kvfs_ro *ro, bool is_upper, struct file **ret_file)
{
	struct file *file = calloc(1, sizeof(*file));
	if (file == NULL)
		return -ENOMEM;
	file->base.fs = &ro->fs;
	file->is_upper = is_upper;
	*ret_file = file;
	return 0;
}

static int file_done(struct file *file, int err, struct lp_kvfs_file **ret_file)
{
	if (err < 0)
		free(file);
	else
		*ret_file = &file->base;
	return err;
}

static int ro_create(struct lp_kvfs *fs, const char *name, struct lp_kvfs_file **ret_file)
{
	struct lp_kvfs_ro *ro = ro_of(fs);
	struct file *file;
	int err = file_new(ro, true, &file);
	if (err < 0)
		return err;
	return file_done(file, ro->upper->ops->create(ro->upper, name, &file->inner), ret_file);
}

static int ro_append(struct lp_kvfs_file *base, const void *data, size_t len)
{
	struct file *file = file_of(base);
	LP_ASSERT(file->is_upper);
	return file->inner->fs->ops->append(file->inner, data, len);
}

static int ro_sync(struct lp_kvfs_file *base)
{
	LP_ASSERT(file_of(base)->is_upper);
	return 0; /* there is nothing to come back to */
}

static int ro_close(struct lp_kvfs_file *base)
{
	struct file *file = file_of(base);
	int err = file->inner->fs->ops->close(file->inner);
	free(file);
	return err;
}

static int ro_open(struct lp_kvfs *fs, const char *name, struct lp_kvfs_file **ret_file)
{
	struct lp_kvfs_ro *ro = ro_of(fs);
	struct file *file;
	int err = file_new(ro, true, &file);
	if (err < 0)
		return err;
	err = ro->upper->ops->open(ro->upper, name, &file->inner);
	if (err == -ENOENT && !is_hidden(ro, name)) {
		file->is_upper = false;
		err = ro->lower->ops->open(ro->lower, name, &file->inner);
	}
	return file_done(file, err, ret_file);
}

static int64_t ro_pread(struct lp_kvfs_file *base, void *buf, size_t len, uint64_t offset)
{
	struct lp_kvfs_file *inner = file_of(base)->inner;
	return inner->fs->ops->pread(inner, buf, len, offset);
}

/* What is above is in memory, and a helper's: read-only there is next to nothing of it. */
static int ro_pread_fetched(struct lp_kvfs_file *base, void *buf, size_t len, uint64_t offset,
			    struct lp_fetch *fetch)
{
	struct lp_kvfs_file *inner = file_of(base)->inner;
	if (inner->fs->ops->pread_fetched != NULL)
		return inner->fs->ops->pread_fetched(inner, buf, len, offset, fetch);
	fetch->was_put_off = true;
	fetch->block_cnt = 0;
	return -EAGAIN;
}

/* --- Names ------------------------------------------------------------------------------------ */

static int ro_remove(struct lp_kvfs *fs, const char *name)
{
	struct lp_kvfs_ro *ro = ro_of(fs);
	struct lp_kvfs_stat stat;
	int below = stat_lower(ro, name, &stat);
	if (below < 0 && below != -ENOENT)
		return below;
	if (below == 0) {
		int err = hide(ro, name);
		if (err < 0)
			return err;
	}
	int err = ro->upper->ops->remove(ro->upper, name);
	return err == -ENOENT ? below : err;
}

static int ro_rename(struct lp_kvfs *fs, const char *from, const char *to)
{
	struct lp_kvfs_ro *ro = ro_of(fs);
	struct lp_kvfs_stat stat;
	int below = stat_lower(ro, from, &stat);
	if (below < 0 && below != -ENOENT)
		return below;
	int above = ro->upper->ops->stat(ro->upper, from, &stat);
	if (above < 0)
		return below == 0 ? -EROFS : above;
	/* The one below must not come back when the name above is gone. */
	int err = below == 0 ? hide(ro, from) : 0;
	return err == 0 ? ro->upper->ops->rename(ro->upper, from, to) : err;
}

struct listing {
	struct lp_kvfs_ro *ro;
	lp_kvfs_list_fn *each;
	void *arg;
};

static int list_lower_one(const char *name, void *arg)
{
	const struct listing *listing = arg;
	struct lp_kvfs *upper = listing->ro->upper;
	struct lp_kvfs_stat stat;
	if (is_hidden(listing->ro, name) || upper->ops->stat(upper, name, &stat) == 0)
		return 0;
	return listing->each(name, listing->arg);
}

static int ro_list(struct lp_kvfs *fs, lp_kvfs_list_fn *each, void *arg)
{
	struct lp_kvfs_ro *ro = ro_of(fs);
	struct listing listing = {.ro = ro, .each = each, .arg = arg};
	int err = ro->upper->ops->list(ro->upper, each, arg);
	return err == 0 ? ro->lower->ops->list(ro->lower, list_lower_one, &listing) : err;
}

static int ro_stat(struct lp_kvfs *fs, const char *name, struct lp_kvfs_stat *ret_stat)
{
	struct lp_kvfs_ro *ro = ro_of(fs);
	int err = ro->upper->ops->stat(ro->upper, name, ret_stat);
	return err == -ENOENT ? stat_lower(ro, name, ret_stat) : err;
}

/* No manifest barrier: nothing that is persisted here could be ahead of the log. */
static const struct lp_kvfs_ops ro_ops = {
	.create = ro_create,
	.append = ro_append,
	.sync = ro_sync,
	.close = ro_close,
	.open = ro_open,
	.pread = ro_pread,
	.pread_fetched = ro_pread_fetched,
	.remove = ro_remove,
	.rename = ro_rename,
	.list = ro_list,
	.stat = ro_stat,
};

/* --- Birth and death -------------------------------------------------------------------------- */

int lp_kvfs_ro_new(struct lp_kvfs *lower, struct lp_kvfs_ro **ret_ro)
{
	struct lp_kvfs_ro *ro = calloc(1, sizeof(*ro));
	if (ro == NULL)
		return -ENOMEM;
	int err = lp_kvfs_mem_new(0, &ro->mem);
	if (err < 0) {
		free(ro);
		return err;
	}
	ro->fs.ops = &ro_ops;
	ro->lower = lower;
	ro->upper = lp_kvfs_mem_fs(ro->mem);
	hidden_list_init(&ro->hidden);
	err = pthread_mutex_init(&ro->lock, NULL);
	LP_ASSERT(err == 0); /* a plain one takes nothing that may be short */
	*ret_ro = ro;
	return 0;
}

void lp_kvfs_ro_free(struct lp_kvfs_ro *ro)
{
	if (ro == NULL)
		return;
	struct hidden *hidden;
	while ((hidden = hidden_list_pop_front(&ro->hidden)) != NULL)
		free(hidden);
	lp_kvfs_mem_free(ro->mem);
	(void)pthread_mutex_destroy(&ro->lock);
	free(ro);
}

struct lp_kvfs *lp_kvfs_ro_fs(struct lp_kvfs_ro *ro)
{
	return &ro->fs;
}
