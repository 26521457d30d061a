/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/transfer.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "cli/remote.h"

/* A file of at most this is read as a whole, and put by one message. */
#define WHOLE_MAX (256u * 1024)
/* A shorter hole is sent. */
#define HOLE_MIN (256u * 1024)

struct upload {
	struct lpi_task job;
	struct stat before;
	int fd;
	bool is_stdin;
	bool checks; /* that it did not change while it was read */
	char *subject;
	char *key;
	uint64_t read_bytes;
	uint8_t *whole;
};

static int64_t time_of(const struct timespec *time)
{
	return (int64_t)time->tv_sec * (int64_t)LP_NS_PER_S + time->tv_nsec;
}

static void free_upload(struct upload *self)
{
	if (self->fd >= 0 && !self->is_stdin)
		(void)close(self->fd);
	free(self->whole);
	free(self->subject);
	free(self->key);
	free(self);
}

static void upload_ended(struct lpi_task *job, int status, const struct lapis_result *result)
{
	struct upload *self = LP_CONTAINER_OF(job, struct upload, job);
	struct stat now = {0};
	if (status == -EISDIR) {
		lpi_progress_stop(&job->jobs->progress);
		(void)lpi_remote_fail_into(self->key);
		job->jobs->failed++;
	} else if (status < 0) {
		lpi_tasks_fail(job->jobs, self->key, status, result->text);
	} else {
		uint64_t rest = self->whole != NULL ? self->read_bytes : 0;
		lpi_progress_add(&job->jobs->progress, rest, 1);
		/* What was stored is neither the old content nor the new. */
		if (self->checks && fstat(self->fd, &now) == 0 &&
		    (time_of(&now.st_mtim) != time_of(&self->before.st_mtim) ||
		     now.st_size != self->before.st_size))
			lpi_tasks_fail(job->jobs, self->subject, -EBUSY,
				       "it changed while it was read (put it again)");
	}
	free_upload(self);
}

static int64_t read_more(void *arg, void *buf, size_t len)
{
	struct upload *self = arg;
	ssize_t n;
	do
		n = read(self->fd, buf, len);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;
	self->read_bytes += (uint64_t)n;
	lpi_progress_add(&self->job.jobs->progress, (uint64_t)n, 0);
	return n;
}

/* Where data begins again, if that is far enough away to be worth a message. */
static int64_t skip_hole(void *arg)
{
	struct upload *self = arg;
	off_t at = lseek(self->fd, 0, SEEK_CUR);
	off_t size = self->before.st_size;
	off_t data = at < 0 ? -1 : lseek(self->fd, at, SEEK_DATA);
	/* Behind the last data, or where there are no holes. */
	if (data < 0)
		data = errno == ENXIO && at < size ? size : at;
	off_t to = data - at >= (off_t)HOLE_MIN ? data : at;
	if (at < 0 || lseek(self->fd, to, SEEK_SET) < 0)
		return -errno;
	lpi_progress_add(&self->job.jobs->progress, (uint64_t)(to - at), 0);
	return to - at;
}

/* The whole of a small file. -EFBIG: it is longer than it said. */
static int read_whole(struct upload *self)
{
	size_t room = (size_t)self->before.st_size + 1;
	self->whole = malloc(room);
	if (self->whole == NULL)
		return -ENOMEM;
	while (self->read_bytes < room) {
		ssize_t n = read(self->fd, self->whole + self->read_bytes, room - self->read_bytes);
		if (n < 0 && errno != EINTR)
			return -errno;
		if (n == 0)
			return 0;
		self->read_bytes += n > 0 ? (uint64_t)n : 0;
	}
	return -EFBIG;
}

static int open_file(struct upload *self, const struct lpi_put_file *upload)
{
	int flags = O_RDONLY | O_CLOEXEC | O_NOCTTY | (upload->no_follow ? O_NOFOLLOW : 0);
	self->is_stdin = strcmp(upload->path, "-") == 0;
	self->fd = self->is_stdin ? STDIN_FILENO : openat(upload->dir_fd, upload->path, flags);
	if (self->fd < 0 || fstat(self->fd, &self->before) < 0)
		return -errno;
	if (S_ISDIR(self->before.st_mode))
		return -EISDIR;
	self->checks = S_ISREG(self->before.st_mode);
	if (!self->checks || self->before.st_size > (off_t)WHOLE_MAX)
		return 0;
	int err = read_whole(self);
	if (err != -EFBIG)
		return err;
	/* It grows: from its beginning once more, as a stream. */
	free(self->whole);
	self->whole = NULL;
	self->read_bytes = 0;
	return lseek(self->fd, 0, SEEK_SET) < 0 ? -errno : 0;
}

static void submit_upload(struct lpi_tasks *jobs, const struct lpi_put_file *upload,
			  struct upload *self)
{
	struct lapis_request request = {.op = LAPIS_PUT,
					.path = self->key,
					.condition = upload->condition,
					.write_path = upload->write_path};
	if (self->whole != NULL) {
		request.data = self->whole;
		request.data_bytes = self->read_bytes;
	} else {
		request.source = read_more;
		request.source_arg = self;
		bool has_holes =
			(uint64_t)self->before.st_blocks * 512 < (uint64_t)self->before.st_size;
		request.hole = self->checks && has_holes ? skip_hole : NULL;
	}
	if (upload->keeps_times) {
		request.mtime_ns = time_of(&self->before.st_mtim);
		request.mode = (uint16_t)(self->before.st_mode & 07777);
		request.flags |= LAPIS_MODE;
	}
	if (upload->xattr.name != NULL) {
		request.xattrs = &upload->xattr;
		request.xattr_cnt = 1;
	}
	lpi_tasks_submit(jobs, &self->job, &request);
}

void lpi_put_file(struct lpi_tasks *jobs, const struct lpi_put_file *upload)
{
	struct upload *self = calloc(1, sizeof(*self));
	if (self == NULL) {
		lpi_tasks_fail(jobs, upload->subject, -ENOMEM, lp_strerror(-ENOMEM));
		return;
	}
	self->job = (struct lpi_task){.jobs = jobs, .ended = upload_ended};
	self->fd = -1;
	self->subject = strdup(upload->subject);
	self->key = strdup(upload->key);
	int err = self->subject == NULL || self->key == NULL ? -ENOMEM : open_file(self, upload);
	if (err < 0) {
		bool is_dir = err == -EISDIR;
		lpi_tasks_fail(jobs, upload->subject, is_dir ? 0 : err,
			       is_dir ? "a directory (lapis sync copies trees)"
			       : err == -ENOENT
				       ? "there is no such file (FILE is here, KEY in the store)"
				       : lp_strerror(err));
		free_upload(self);
		return;
	}
	submit_upload(jobs, upload, self);
}
