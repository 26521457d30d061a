/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/remote/transfer.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/unchanged.h"
#include "cli/remote/remote.h"
#include "store/attrs.h"

/* What is shorter is read as a whole, and put by one message. Of the rest so much at a time is
 * looked at: zeros are not sent. */
#define LOOK_BYTES ((size_t)256 * 1024)
/* A shorter hole is sent. */
#define HOLE_MIN ((off_t)LOOK_BYTES)
/* The daemon is not left alone for longer than it takes to read so many zeros. */
#define ZEROS_MAX (UINT64_C(1) << 30)

struct upload {
	struct lpi_task job;
	struct stat before;
	int fd;
	bool is_stdin;
	bool checks; /* a file, of which can be told that it did not change */
	char *subject;
	char *key;
	void (*stored)(void *arg, const char *key);
	void *arg;
	bool has_holes;
	uint8_t *buf; /* read, and given to nobody yet: from buf_at to buf_end */
	size_t buf_room;
	size_t buf_at;
	size_t buf_end;
	bool is_whole; /* nothing comes behind it */
	bool has_changed;
};

int64_t lpi_time_ns(const struct timespec *time)
{
	if (time->tv_sec > LP_TIME_S_MAX)
		return LP_TIME_NS_MAX;
	if (time->tv_sec < -LP_TIME_S_MAX)
		return LP_TIME_NS_MIN;
	return (int64_t)time->tv_sec * (int64_t)LP_NS_PER_S + time->tv_nsec;
}

uint16_t lpi_copy_mode(uint32_t mode, uint32_t uid, uint32_t gid)
{
	bool is_own = uid == geteuid() && gid == getegid();
	return (uint16_t)(mode & (is_own ? 07777u : 07777u & ~LPI_SET_IDS));
}

static void free_upload(struct upload *self)
{
	if (self->fd >= 0 && !self->is_stdin)
		(void)close(self->fd);
	free(self->buf);
	free(self->subject);
	free(self->key);
	free(self);
}

/* Asked when all of it was read, and before the store is told that this was all. So what is stored
 * is what the file was all the time that it took, or the put ends and nothing is stored. */
static bool has_changed(struct upload *self)
{
	self->has_changed = !lp_unchanged_is(self->fd, &self->before);
	return self->has_changed;
}

static void fail_changed(struct lpi_tasks *jobs, const char *subject)
{
	lpi_tasks_fail(jobs, subject, -EBUSY,
		       "it changed while it was read; nothing was stored (put it again)");
}

static void upload_ended(struct lpi_task *job, int status, const struct lapis_result *result)
{
	struct upload *self = LP_CONTAINER_OF(job, struct upload, job);
	if (status == -EISDIR) {
		lpi_progress_stop(&job->jobs->progress);
		(void)lpi_remote_fail_into(self->key);
		job->jobs->failed++;
	} else if (status < 0 && self->has_changed) {
		fail_changed(job->jobs, self->subject);
	} else if (status < 0) {
		lpi_tasks_fail(job->jobs, self->key, status, result->text);
	} else {
		uint64_t rest = self->is_whole ? self->buf_end : 0;
		lpi_progress_add(&job->jobs->progress, rest, 1);
		if (self->stored != NULL)
			self->stored(self->arg, self->key);
	}
	free_upload(self);
}

static ssize_t read_some(struct upload *self, void *buf, size_t len)
{
	ssize_t n;
	do
		n = read(self->fd, buf, len);
	while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : n;
}

/* As much as there is room for: 1; 0: the end comes before. */
static int fill_buf(struct upload *self)
{
	while (self->buf_end < self->buf_room) {
		ssize_t n =
			read_some(self, self->buf + self->buf_end, self->buf_room - self->buf_end);
		if (n <= 0)
			return (int)n;
		self->buf_end += (size_t)n;
	}
	return 1;
}

static int64_t read_more(void *arg, void *buf, size_t len)
{
	struct upload *self = arg;
	ssize_t n = (ssize_t)LP_MIN(self->buf_end - self->buf_at, len);
	if (n > 0) {
		memcpy(buf, self->buf + self->buf_at, (size_t)n);
		self->buf_at += (size_t)n;
	} else {
		n = read_some(self, buf, len);
	}
	if (n == 0 && has_changed(self))
		return -EBUSY;
	if (n > 0)
		lpi_progress_add(&self->job.jobs->progress, (uint64_t)n, 0);
	return n;
}

/* Where data begins again, if that is far enough away to be worth a message. Nothing may have been
 * read ahead. */
static int64_t skip_hole(struct upload *self)
{
	off_t at = lseek(self->fd, 0, SEEK_CUR);
	off_t size = self->before.st_size;
	off_t data = at < 0 ? -1 : lseek(self->fd, at, SEEK_DATA);
	/* Behind the last data, or where there are no holes. */
	if (data < 0)
		data = errno == ENXIO && at < size ? size : at;
	off_t to = data - at >= HOLE_MIN ? data : at;
	if (at < 0 || lseek(self->fd, to, SEEK_SET) < 0)
		return -errno;
	return to - at;
}

static bool is_zero(const uint8_t *bytes, size_t len)
{
	return bytes[0] == 0 && memcmp(bytes, bytes + 1, len - 1) == 0;
}

/* How many zeros come next that need not be sent, holes or not. */
static int64_t skip_zeros(void *arg)
{
	struct upload *self = arg;
	uint64_t skipped = 0;
	int more = 1;
	while (more > 0 && skipped < ZEROS_MAX) {
		bool is_empty = self->buf_at == self->buf_end;
		int64_t hole = is_empty && self->has_holes ? skip_hole(self) : 0;
		if (hole < 0)
			return hole;
		skipped += (uint64_t)hole;
		if (is_empty) {
			self->buf_at = 0;
			self->buf_end = 0;
			more = fill_buf(self);
		}
		size_t len = self->buf_end - self->buf_at;
		if (len < LOOK_BYTES || !is_zero(self->buf + self->buf_at, len))
			break;
		self->buf_at = self->buf_end;
		skipped += len;
	}
	lpi_progress_add(&self->job.jobs->progress, skipped, 0);
	return more < 0 ? more : (int64_t)skipped;
}

static int new_buf(struct upload *self, size_t room)
{
	uint8_t *buf = realloc(self->buf, room);
	if (buf == NULL)
		return -ENOMEM;
	self->buf = buf;
	self->buf_room = room;
	return 0;
}

/* All of a small file, or the beginning. */
static int read_first(struct upload *self)
{
	bool is_small = self->checks && self->before.st_size < (off_t)LOOK_BYTES;
	int err = new_buf(self, is_small ? (size_t)self->before.st_size + 1 : LOOK_BYTES);
	if (err < 0 || self->has_holes)
		return err;
	int more = fill_buf(self);
	/* It grows. */
	if (more > 0 && is_small)
		more = new_buf(self, LOOK_BYTES) < 0 ? -ENOMEM : fill_buf(self);
	self->is_whole = more == 0;
	return more < 0 ? more : 0;
}

static int open_file(struct upload *self, const struct lpi_put_file *upload)
{
	int flags = O_RDONLY | O_CLOEXEC | O_NOCTTY | (upload->no_follow ? O_NOFOLLOW : 0);
	self->is_stdin = strcmp(upload->path, "-") == 0;
	self->fd = self->is_stdin ? STDIN_FILENO : openat(upload->dir_fd, upload->path, flags);
	if (self->fd < 0)
		return -errno;
	int err = lp_unchanged_begin(self->fd, &self->before);
	if (err < 0)
		return err;
	if (S_ISDIR(self->before.st_mode))
		return -EISDIR;
	self->checks = S_ISREG(self->before.st_mode);
	self->has_holes = self->checks && self->before.st_size >= (off_t)LOOK_BYTES &&
			  (uint64_t)self->before.st_blocks * 512 < (uint64_t)self->before.st_size;
	return read_first(self);
}

static void submit_upload(struct lpi_tasks *jobs, const struct lpi_put_file *upload,
			  struct upload *self)
{
	struct lapis_request request = {.op = LAPIS_PUT,
					.path = self->key,
					.condition = upload->condition,
					.write_path = upload->write_path};
	if (self->is_whole) {
		request.data = self->buf;
		request.data_bytes = self->buf_end;
	} else {
		request.source = read_more;
		request.source_arg = self;
		request.hole = skip_zeros;
	}
	if (upload->keeps_times) {
		const struct stat *st = &self->before;
		request.mtime_ns = lpi_time_ns(&st->st_mtim);
		request.mode = lpi_copy_mode(st->st_mode, st->st_uid, st->st_gid);
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
	self->stored = upload->stored;
	self->arg = upload->arg;
	self->subject = strdup(upload->subject);
	self->key = strdup(upload->key);
	int err = self->subject == NULL || self->key == NULL ? -ENOMEM : open_file(self, upload);
	if (err < 0) {
		bool is_dir = err == -EISDIR;
		lpi_tasks_fail(
			jobs, upload->subject, is_dir ? 0 : err,
			is_dir ? "is a directory (lapis sync copies trees)"
			: err == -ENOENT
				? "there is no such local file (FILE is local, KEY is in the store)"
				: lp_strerror(err));
		free_upload(self);
		return;
	}
	if (self->is_whole && has_changed(self)) {
		fail_changed(jobs, upload->subject);
		free_upload(self);
		return;
	}
	submit_upload(jobs, upload, self);
}
