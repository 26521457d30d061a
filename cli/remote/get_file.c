/* SPDX-License-Identifier: Apache-2.0 */
/* An object becomes a file that gets its name when it is complete and durable: a loss of power must
 * not leave one of that size and time without its data, which a sync would take for it. Until then
 * it has none, so that nothing of it is left when the command is interrupted; where a file system
 * cannot do that, one of its own beside the other. Blocks of zeros become holes. Of a large object
 * that has holes only the data is asked for. Set-user-ID and set-group-ID are of the very object
 * that is fetched: whatever has its name by then may be anybody's. */
#include <fcntl.h>
#include <ftw.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "cli/remote/transfer.h"

#define GRID          4096u
#define VERSION_TRIES 4u
/* So much that is complete may be lost when the command is interrupted. */
#define HELD_BYTES_MAX (UINT64_C(64) << 20)

struct lpi_download {
	struct lpi_task job;
	struct lpi_get_file what;
	int fd;
	char *path;
	char *subject;
	char *key;
	char temp[64];
	bool has_mode; /* what.mode is the one that it gets */
	bool has_ids;  /* and may get LPI_SET_IDS */
	bool has_temp; /* there is a file of that name */
	uint64_t end;  /* of what was written */
	int write_err; /* here: the request has failed for no other reason then */
};

static const uint8_t zeros[GRID];

int lpi_write_sparse(int fd, uint64_t offset, const void *data, size_t len)
{
	const uint8_t *at = data;
	while (len > 0) {
		size_t step = LP_MIN(GRID - (size_t)(offset % GRID), len);
		size_t run = 0;
		bool is_zero = memcmp(at, zeros, step) == 0;
		/* As many of one kind as there are. */
		while (run < len && (memcmp(at + run, zeros, step) == 0) == is_zero) {
			run += step;
			step = LP_MIN((size_t)GRID, len - run);
		}
		for (size_t done = 0; !is_zero && done < run;) {
			ssize_t n = pwrite(fd, at + done, run - done, (off_t)(offset + done));
			if (n < 0 && errno != EINTR)
				return -errno;
			done += n > 0 ? (size_t)n : 0;
		}
		offset += run;
		at += run;
		len -= run;
	}
	return 0;
}

/* --- Names here ------------------------------------------------------------------------------- */

const char *lpi_temp_prefix(void)
{
	static char prefix[48];
	if (prefix[0] == '\0')
		(void)snprintf(prefix, sizeof(prefix), ".lapis-%ld-%llx-", (long)getpid(),
			       (unsigned long long)lp_clock_wall_ns(lp_clock_system()));
	return prefix;
}

/* What is mounted there is not this directory's, and may be the store itself. */
static int refuse_mount(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	struct statx stx;
	(void)st;
	(void)ftw;
	if (type != FTW_D ||
	    statx(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT, 0, &stx) < 0 ||
	    (stx.stx_attributes & STATX_ATTR_MOUNT_ROOT) == 0)
		return 0;
	errno = EBUSY;
	return -1;
}

static int remove_visited(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	(void)type;
	(void)ftw;
	return remove(path) < 0 ? -1 : 0;
}

int lpi_remove_local(int dir_fd, const char *name)
{
	char path[512];
	int len = snprintf(path, sizeof(path), "/proc/self/fd/%d/%s", dir_fd, name);
	if (len >= (int)sizeof(path))
		return -ENAMETOOLONG;
	/* One thread. NOLINTNEXTLINE(concurrency-mt-unsafe) */
	if (nftw(path, refuse_mount, 16, FTW_PHYS) < 0)
		return -errno;
	/* NOLINTNEXTLINE(concurrency-mt-unsafe) */
	return nftw(path, remove_visited, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT) < 0 ? -errno : 0;
}

int lpi_take_name(int dir_fd, const char *temp, const char *name, bool replaces_dirs)
{
	if (renameat(dir_fd, temp, dir_fd, name) == 0)
		return 0;
	if (errno != EISDIR || !replaces_dirs)
		return -errno;
	int err = lpi_remove_local(dir_fd, name);
	if (err == 0 && renameat(dir_fd, temp, dir_fd, name) < 0)
		err = -errno;
	return err;
}

/* --- One file --------------------------------------------------------------------------------- */

static int take_bytes(void *arg, uint64_t offset, const void *data, size_t len)
{
	struct lpi_download *self = arg;
	lpi_progress_add(&self->job.jobs->progress, len, 0);
	self->end = LP_MAX(self->end, offset - self->what.offset + len);
	self->write_err = lpi_write_sparse(self->fd, offset - self->what.offset, data, len);
	return self->write_err;
}

static void free_download(struct lpi_download *self)
{
	if (self->fd >= 0)
		(void)close(self->fd);
	if (self->what.ended != NULL)
		self->what.ended(self->what.arg);
	free(self->path);
	free(self->subject);
	free(self->key);
	free(self);
}

/* 0: it has its name; 1: another one is to be renamed, for there is a file of that name. */
static int give_name(struct lpi_download *self)
{
	char path[64];
	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", self->fd);
	if (linkat(AT_FDCWD, path, self->what.dir_fd, self->path, AT_SYMLINK_FOLLOW) == 0)
		return 0;
	if (errno != EEXIST ||
	    linkat(AT_FDCWD, path, self->what.dir_fd, self->temp, AT_SYMLINK_FOLLOW) < 0)
		return -errno;
	self->has_temp = true;
	return 1;
}

/* Its length, times and mode. */
static int complete(struct lpi_download *self)
{
	const struct lpi_get_file *what = &self->what;
	int64_t s = what->mtime_ns / (int64_t)LP_NS_PER_S;
	int64_t ns = what->mtime_ns % (int64_t)LP_NS_PER_S;
	if (ftruncate(self->fd, (off_t)self->end) < 0)
		return -errno;
	if (ns < 0) {
		s--;
		ns += (int64_t)LP_NS_PER_S;
	}
	const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT},
					  {.tv_sec = (time_t)s, .tv_nsec = (long)ns}};
	if ((what->keeps_times && futimens(self->fd, times) < 0) ||
	    (self->has_mode && fchmod(self->fd, what->mode & 07777) < 0))
		return -errno;
	return 0;
}

/* It is durable, and gets its name. */
static int publish(struct lpi_download *self)
{
	const struct lpi_get_file *what = &self->what;
	if (!self->has_temp) {
		int err = give_name(self);
		if (err <= 0)
			return err;
	}
	int fd = self->fd;
	self->fd = -1;
	if (close(fd) < 0)
		return -errno;
	int err = lpi_take_name(what->dir_fd, self->temp, self->path, what->replaces_dirs);
	self->has_temp = err < 0;
	return err;
}

/* text: what the daemon said; NULL: it failed here. */
static void end_download(struct lpi_download *self, int err, const char *text)
{
	struct lpi_tasks *jobs = self->job.jobs;
	if (err < 0) {
		if (text != NULL)
			lpi_tasks_fail(jobs, self->key, err, text);
		else
			lpi_tasks_fail_here(jobs, self->subject, err);
		if (self->has_temp)
			(void)unlinkat(self->what.dir_fd, self->temp, 0);
	} else {
		lpi_progress_add(&jobs->progress, 0, 1);
	}
	free_download(self);
}

/* After all has been written: whether this was, without a flush of the device for each, which
 * fdatasync() costs also where there is nothing to do. */
static int check_written(struct lpi_download *self)
{
	const unsigned flags =
		SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER;
	return sync_file_range(self->fd, 0, 0, flags) < 0 ? -errno : 0;
}

static int make_durable(struct lpi_download *self)
{
	return fdatasync(self->fd) < 0 ? -errno : 0;
}

void lpi_get_flush(struct lpi_get_batch *batch)
{
	/* An error may be that of somebody else's file: they are asked one by one then. */
	bool is_synced = batch->cnt > 1 && syncfs(batch->held[0]->fd) == 0;
	for (unsigned i = 0; i < batch->cnt; i++) {
		struct lpi_download *self = batch->held[i];
		int err = is_synced ? check_written(self) : make_durable(self);
		end_download(self, err < 0 ? err : publish(self), NULL);
	}
	*batch = (struct lpi_get_batch){.cnt = 0};
}

/* Those of one file system are held together. */
static int hold(struct lpi_get_batch *batch, struct lpi_download *self)
{
	struct stat st;
	if (fstat(self->fd, &st) < 0)
		return -errno;
	if (batch->cnt > 0 && batch->dev != st.st_dev)
		lpi_get_flush(batch);
	batch->dev = st.st_dev;
	batch->held[batch->cnt++] = self;
	batch->bytes += self->end;
	if (batch->cnt == LPI_GET_HELD_MAX || batch->bytes >= HELD_BYTES_MAX)
		lpi_get_flush(batch);
	return 0;
}

static void download_ended(struct lpi_task *job, int status, const struct lapis_result *result)
{
	struct lpi_download *self = LP_CONTAINER_OF(job, struct lpi_download, job);
	bool is_held = self->what.batch != NULL;
	int err = status < 0 ? status : complete(self);
	if (err == 0)
		err = is_held ? hold(self->what.batch, self) : make_durable(self);
	if (err == 0 && is_held)
		return;
	bool is_told = status < 0 && self->write_err == 0;
	end_download(self, err < 0 ? err : publish(self), is_told ? result->text : NULL);
}

/* Only what is data of an object, which may be mostly holes. The file is opened on the daemon, so
 * that all of it is of one object; of one version it is only when that is the same afterwards. */
static int fetch_data(struct lpi_download *self, struct lapis_file *file, uint64_t size)
{
	uint64_t pos = 0;
	while (pos < size) {
		uint64_t hole = size;
		int err = lapis_seek(file, pos, 0, &pos);
		if (err == -ENXIO)
			break;
		if (err == 0)
			err = lapis_seek(file, pos, LAPIS_HOLE, &hole);
		if (err < 0)
			return err;
		struct lapis_result result = {.size = sizeof(result)};
		const struct lapis_request request = {.size = sizeof(request),
						      .op = LAPIS_GET,
						      .ino = lapis_file_ino(file),
						      .offset = pos,
						      .length = LP_MIN(hole, size) - pos,
						      .sink = take_bytes,
						      .sink_arg = self};
		err = lapis_call(self->job.jobs->lapis, &request, &result);
		lapis_result_fini(&result);
		if (err < 0)
			return err;
		pos = hole;
	}
	self->end = size;
	return 0;
}

/* Until none of it was written meanwhile. *attrs is as the file was opened, and is that of what was
 * fetched. */
static int fetch_version(struct lpi_download *self, struct lapis_file *file,
			 struct lapis_attrs *attrs)
{
	for (unsigned i = 0; i < VERSION_TRIES; i++) {
		uint64_t version = attrs->version;
		int err = fetch_data(self, file, attrs->size_bytes);
		if (err == 0)
			err = lapis_fstat(file, attrs);
		if (err < 0 || attrs->version == version)
			return err;
		if (ftruncate(self->fd, 0) < 0)
			return -errno;
	}
	return -EBUSY;
}

/* True when that was the way; the download has ended then. */
static bool fetch_opened(struct lpi_download *self)
{
	struct lapis *lapis = self->job.jobs->lapis;
	struct lapis_file *file = NULL;
	struct lapis_attrs attrs;
	if (self->what.offset != 0 || self->what.length != LAPIS_TO_END ||
	    lapis_open_file(lapis, self->key, &file) < 0)
		return false;
	int err = lapis_fstat(file, &attrs);
	bool is_sparse = err == 0 && attrs.blocks * GRID < attrs.size_bytes;
	bool is_way = err == 0 && (is_sparse || self->has_ids);
	if (is_way)
		err = fetch_version(self, file, &attrs);
	if (is_way && err == 0 && self->has_ids)
		self->what.mode = lpi_copy_mode(attrs.mode, attrs.uid, attrs.gid);
	const char *text =
		err == -EBUSY ? "it is written to all the time (try again)" : lapis_error_text();
	struct lapis_result result = {.size = sizeof(result), .status = err, .text = text};
	if (is_way)
		download_ended(&self->job, err, &result);
	(void)lapis_close_file(file); /* it was read only */
	return is_way;
}

static int create_file(struct lpi_download *self)
{
	static unsigned number;
	struct stat st;
	/* Short, for the other may have all of the 255 bytes. */
	(void)snprintf(self->temp, sizeof(self->temp), "%s%u", lpi_temp_prefix(), number++);
	/* What was private stays so, also while it has another name. */
	if (!self->has_mode &&
	    fstatat(self->what.dir_fd, self->path, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
	    S_ISREG(st.st_mode)) {
		self->what.mode = st.st_mode & 0777;
		self->has_mode = true;
	}
	mode_t mode = self->has_mode ? 0600 : 0666;
	self->fd = openat(self->what.dir_fd, ".", O_WRONLY | O_TMPFILE | O_CLOEXEC, mode);
	if (self->fd >= 0)
		return 0;
	self->fd = openat(self->what.dir_fd, self->temp,
			  O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode);
	self->has_temp = self->fd >= 0;
	return self->fd < 0 ? -errno : 0;
}

static struct lpi_download *download_new(struct lpi_tasks *jobs, const struct lpi_get_file *what)
{
	struct lpi_download *self = calloc(1, sizeof(*self));
	if (self == NULL)
		return NULL;
	self->job = (struct lpi_task){.jobs = jobs, .ended = download_ended};
	self->what = *what;
	self->has_mode = what->keeps_times;
	self->has_ids = what->keeps_times && (what->mode & LPI_SET_IDS) != 0;
	self->what.mode = (uint16_t)(what->mode & ~LPI_SET_IDS);
	self->fd = -1;
	self->path = strdup(what->path);
	self->subject = strdup(what->subject);
	self->key = strdup(what->key);
	if (self->path != NULL && self->subject != NULL && self->key != NULL)
		return self;
	self->what.ended = NULL;
	free_download(self);
	return NULL;
}

void lpi_get_file(struct lpi_tasks *jobs, const struct lpi_get_file *what)
{
	struct lpi_download *self = download_new(jobs, what);
	int err = self == NULL ? -ENOMEM : create_file(self);
	if (err < 0) {
		lpi_tasks_fail(jobs, what->subject, 0, lp_strerror(err));
		if (self != NULL)
			free_download(self);
		else if (what->ended != NULL)
			what->ended(what->arg);
		return;
	}
	if ((what->is_maybe_sparse || self->has_ids) && fetch_opened(self))
		return;
	struct lapis_request request = {.op = LAPIS_GET,
					.path = self->key,
					.offset = what->offset,
					.length = what->length,
					.sink = take_bytes,
					.sink_arg = self};
	lpi_tasks_submit(jobs, &self->job, &request);
}
