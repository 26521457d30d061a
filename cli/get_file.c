/* SPDX-License-Identifier: Apache-2.0 */
/* An object becomes a file that gets its name when it is complete: until then it has none, so that
 * nothing of it is left when the command is interrupted; where a file system cannot do that, one of
 * its own beside the other. Blocks of zeros become holes. Of a large object that has holes only the
 * data is asked for. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "cli/transfer.h"

#define GRID 4096u

struct download {
	struct lpi_task job;
	struct lpi_get_file what;
	int fd;
	char *path;
	char *subject;
	char *key;
	char temp[64];
	bool has_temp; /* there is a file of that name */
	uint64_t end;  /* of what was written */
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

static int take_bytes(void *arg, uint64_t offset, const void *data, size_t len)
{
	struct download *self = arg;
	lpi_progress_add(&self->job.jobs->progress, len, 0);
	self->end = LP_MAX(self->end, offset - self->what.offset + len);
	return lpi_write_sparse(self->fd, offset - self->what.offset, data, len);
}

static void free_download(struct download *self)
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
static int give_name(struct download *self)
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

/* Its length, times and name. */
static int complete(struct download *self)
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
	if (what->keeps_times &&
	    (futimens(self->fd, times) < 0 || fchmod(self->fd, what->mode & 07777) < 0))
		return -errno;
	if (!self->has_temp) {
		int err = give_name(self);
		if (err <= 0)
			return err;
	}
	int fd = self->fd;
	self->fd = -1;
	if (close(fd) < 0 || renameat(what->dir_fd, self->temp, what->dir_fd, self->path) < 0)
		return -errno;
	self->has_temp = false;
	return 0;
}

static void download_ended(struct lpi_task *job, int status, const struct lapis_result *result)
{
	struct download *self = LP_CONTAINER_OF(job, struct download, job);
	bool is_remote = status < 0;
	int err = is_remote ? status : complete(self);
	if (err < 0) {
		lpi_tasks_fail(job->jobs, is_remote ? self->key : self->subject, err,
			       is_remote ? result->text : lp_strerror(err));
		if (self->has_temp)
			(void)unlinkat(self->what.dir_fd, self->temp, 0);
	} else {
		lpi_progress_add(&job->jobs->progress, 0, 1);
	}
	free_download(self);
}

/* Only what is data of an object that is mostly holes. The file is opened on the daemon, so that
 * all of it is of one object. */
static int fetch_data(struct download *self, struct lapis_file *file, uint64_t size)
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

/* True when that was the way; the download has ended then. */
static bool fetch_sparse(struct download *self)
{
	struct lapis *lapis = self->job.jobs->lapis;
	struct lapis_file *file = NULL;
	struct lapis_attrs attrs;
	if (self->what.offset != 0 || self->what.length != LAPIS_TO_END ||
	    lapis_open_file(lapis, self->key, &file) < 0)
		return false;
	int err = lapis_fstat(file, &attrs);
	bool is_sparse = err == 0 && attrs.blocks * GRID < attrs.size_bytes;
	if (is_sparse)
		err = fetch_data(self, file, attrs.size_bytes);
	struct lapis_result result = {
		.size = sizeof(result), .status = err, .text = lapis_error_text()};
	if (is_sparse)
		download_ended(&self->job, err, &result);
	(void)lapis_close_file(file); /* it was read only */
	return is_sparse;
}

static int create_file(struct download *self)
{
	static unsigned number;
	/* Short, for the other may have all of the 255 bytes. */
	(void)snprintf(self->temp, sizeof(self->temp), ".lapis-%ld-%u", (long)getpid(), number++);
	self->fd = openat(self->what.dir_fd, ".", O_WRONLY | O_TMPFILE | O_CLOEXEC, 0666);
	if (self->fd >= 0)
		return 0;
	self->fd = openat(self->what.dir_fd, self->temp,
			  O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666);
	self->has_temp = self->fd >= 0;
	return self->fd < 0 ? -errno : 0;
}

static struct download *download_new(struct lpi_tasks *jobs, const struct lpi_get_file *what)
{
	struct download *self = calloc(1, sizeof(*self));
	if (self == NULL)
		return NULL;
	self->job = (struct lpi_task){.jobs = jobs, .ended = download_ended};
	self->what = *what;
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
	struct download *self = download_new(jobs, what);
	int err = self == NULL ? -ENOMEM : create_file(self);
	if (err < 0) {
		lpi_tasks_fail(jobs, what->subject, 0, lp_strerror(err));
		if (self != NULL)
			free_download(self);
		else if (what->ended != NULL)
			what->ended(what->arg);
		return;
	}
	if (what->is_maybe_sparse && fetch_sparse(self))
		return;
	struct lapis_request request = {.op = LAPIS_GET,
					.path = self->key,
					.offset = what->offset,
					.length = what->length,
					.sink = take_bytes,
					.sink_arg = self};
	lpi_tasks_submit(jobs, &self->job, &request);
}
