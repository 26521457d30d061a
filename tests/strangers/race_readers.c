/* SPDX-License-Identifier: Apache-2.0 */
/* The ways to read. Those that move data elsewhere (sendfile, splice, copy_file_range) read it back
 * from there. */
#include <errno.h>
#include <fcntl.h>
#include <libaio.h>
#include <liburing.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <unistd.h>

#include "client/lapis.h"
#include "tests/strangers/race.h"

#define PATH_MAX_BYTES 512u
#define PIPE_BYTES     (1 << 20)

static off_t place_of(unsigned block)
{
	return (off_t)block * LPI_BLOCK_BYTES;
}

static size_t bytes_of(unsigned cnt)
{
	return (size_t)cnt * LPI_BLOCK_BYTES;
}

/* All that fd has, up to len: a file that is cut off meanwhile may give parts. */
static int64_t read_all(int fd, unsigned char *buf, size_t len)
{
	size_t got = 0;
	while (got < len) {
		ssize_t more = read(fd, buf + got, len - got);
		if (more < 0)
			return -errno;
		if (more == 0)
			break;
		got += (size_t)more;
	}
	return (int64_t)got;
}

static int64_t by_read(struct lpi_actor *actor, unsigned block, unsigned cnt)
{
	if (lseek(actor->fd, place_of(block), SEEK_SET) < 0)
		return -errno;
	ssize_t got = read(actor->fd, actor->buf, bytes_of(cnt));
	return got < 0 ? -errno : got;
}

static int64_t by_pread(struct lpi_actor *actor, unsigned block, unsigned cnt)
{
	ssize_t got = pread(actor->fd, actor->buf, bytes_of(cnt), place_of(block));
	return got < 0 ? -errno : got;
}

/* --- A mapping: a block beyond the end is a SIGBUS --- */

static sigjmp_buf beyond;

static void on_bus(int number)
{
	(void)number;
	siglongjmp(beyond, 1);
}

static void start_map(struct lpi_actor *actor)
{
	struct sigaction action = {.sa_handler = on_bus};
	(void)actor;
	(void)sigaction(SIGBUS, &action, NULL);
}

static int64_t by_map(struct lpi_actor *actor, unsigned block, unsigned cnt)
{
	volatile size_t got = 0;
	if (sigsetjmp(beyond, 1) == 0) {
		for (; got < bytes_of(cnt); got += LPI_BLOCK_BYTES)
			memcpy(actor->buf + got, actor->map + place_of(block) + got,
			       LPI_BLOCK_BYTES);
	}
	return (int64_t)got;
}

/* --- AIO and io_uring --- */

void lpi_race_start_aio(struct lpi_actor *actor)
{
	io_context_t context = NULL;
	int err = io_setup((int)LPI_RUN_MAX, &context);
	if (err != 0)
		lpi_race_fail(actor, "io_setup", -err);
	actor->ring = context;
}

void lpi_race_start_ring(struct lpi_actor *actor)
{
	struct io_uring *ring = calloc(1, sizeof(*ring));
	int err = ring == NULL ? -ENOMEM : io_uring_queue_init(LPI_RUN_MAX, ring, 0);
	if (err == -ENOSYS || err == -EPERM)
		lpi_race_unsupported(actor, -err);
	if (err != 0)
		lpi_race_fail(actor, "io_uring_queue_init", -err);
	actor->ring = ring;
}

static int64_t by_aio(struct lpi_actor *actor, unsigned block, unsigned cnt)
{
	struct iocb control;
	struct iocb *list[1] = {&control};
	struct io_event event;
	io_prep_pread(&control, actor->fd, actor->buf, bytes_of(cnt), place_of(block));
	int done = io_submit(actor->ring, 1, list);
	if (done == 1)
		done = io_getevents(actor->ring, 1, 1, &event, NULL);
	return done == 1 ? (int64_t)event.res : done;
}

static int64_t by_ring(struct lpi_actor *actor, unsigned block, unsigned cnt)
{
	struct io_uring *ring = actor->ring;
	struct io_uring_cqe *cqe;
	struct io_uring_sqe *sqe = io_uring_get_sqe(ring);
	if (sqe == NULL)
		return -EAGAIN;
	io_uring_prep_read(sqe, actor->fd, actor->buf, (unsigned)bytes_of(cnt),
			   (uint64_t)place_of(block));
	int err = io_uring_submit_and_wait(ring, 1);
	if (err < 0)
		return err;
	err = io_uring_wait_cqe(ring, &cqe);
	if (err < 0)
		return err;
	int64_t got = cqe->res;
	io_uring_cqe_seen(ring, cqe);
	return got;
}

/* --- By way of another file, or of a pipe --- */

static int open_other(struct lpi_actor *actor)
{
	char path[PATH_MAX_BYTES];
	(void)snprintf(path, sizeof(path), "%s.to.%d", actor->path, (int)getpid());
	int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0)
		lpi_race_fail(actor, path, errno);
	(void)unlink(path);
	return fd;
}

static void start_copy(struct lpi_actor *actor)
{
	actor->other_fd = open_other(actor);
}

static void start_pipe(struct lpi_actor *actor)
{
	int ends[2];
	if (pipe2(ends, O_CLOEXEC) != 0)
		lpi_race_fail(actor, "pipe", errno);
	(void)fcntl(ends[1], F_SETPIPE_SZ, PIPE_BYTES); /* 64 KiB will do as well */
	actor->pipe_fd = ends[0];
	actor->other_fd = ends[1];
}

static int64_t by_sendfile(struct lpi_actor *actor, unsigned block, unsigned cnt)
{
	off_t from = place_of(block);
	ssize_t moved = sendfile(actor->other_fd, actor->fd, &from, bytes_of(cnt));
	return moved < 0 ? -errno : read_all(actor->pipe_fd, actor->buf, (size_t)moved);
}

static int64_t by_splice(struct lpi_actor *actor, unsigned block, unsigned cnt)
{
	loff_t from = place_of(block);
	ssize_t moved = splice(actor->fd, &from, actor->other_fd, NULL, bytes_of(cnt), 0);
	return moved < 0 ? -errno : read_all(actor->pipe_fd, actor->buf, (size_t)moved);
}

/* A copy may stop anywhere, as where a hole begins, and is asked for the rest then. */
static int64_t by_copy(struct lpi_actor *actor, unsigned block, unsigned cnt)
{
	loff_t from = place_of(block);
	loff_t to = 0;
	ssize_t moved = 0;
	do {
		moved = copy_file_range(actor->fd, &from, actor->other_fd, &to,
					bytes_of(cnt) - (size_t)to, 0);
		if (moved < 0)
			return -errno;
	} while (moved > 0 && (size_t)to < bytes_of(cnt));
	if (to == 0)
		return 0;
	ssize_t got = pread(actor->other_fd, actor->buf, (size_t)to, 0);
	if (got >= 0 && got != to)
		lpi_race_fail(actor, "what was copied is not all there", EIO);
	return got < 0 ? -errno : got;
}

/* --- At the other door --- */

static int64_t by_socket(struct lpi_actor *actor, unsigned block, unsigned cnt)
{
	return lapis_pread(actor->file, actor->buf, bytes_of(cnt), (uint64_t)place_of(block));
}

/* clang-format off */
const struct lpi_reader lpi_readers[] = {
	{.name = "read", .read = by_read},
	{.name = "pread", .read = by_pread},
	{.name = "mmap", .start = start_map, .read = by_map},
	{.name = "direct", .flags = O_DIRECT, .read = by_pread},
	{.name = "aio", .flags = O_DIRECT, .start = lpi_race_start_aio, .read = by_aio},
	{.name = "io_uring", .start = lpi_race_start_ring, .read = by_ring},
	{.name = "io_uring-direct", .flags = O_DIRECT, .start = lpi_race_start_ring, .read = by_ring},
	{.name = "sendfile", .start = start_pipe, .read = by_sendfile},
	{.name = "splice", .start = start_pipe, .read = by_splice},
	{.name = "copy_file_range", .start = start_copy, .read = by_copy},
	{.name = "socket", .is_socket = true, .start = lpi_race_open_socket, .read = by_socket},
	{.name = NULL},
};
/* clang-format on */
