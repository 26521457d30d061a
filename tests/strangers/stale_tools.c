/* SPDX-License-Identifier: Apache-2.0 */
/* AIO goes by the system calls themselves, so that no library is needed. */
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <linux/aio_abi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "base/prng.h"
#include "tests/strangers/stale.h"

#define PATIENCE_NS UINT64_C(20000000000)

uint64_t lpi_stale_below(uint64_t limit)
{
	static struct lp_prng prng;
	static pid_t owner; /* a child has its own numbers */
	if (owner != getpid()) {
		owner = getpid();
		lp_prng_init(&prng, (uint64_t)owner);
	}
	return lp_prng_below(&prng, limit);
}

void lpi_stale_fail(const char *what)
{
	(void)fprintf(stderr, "stale: %s: %s\n", what, lp_strerror(errno));
	_exit(2);
}

static uint64_t now_ns(void)
{
	struct timespec ts;
	(void)clock_gettime(CLOCK_MONOTONIC, &ts); /* it is always there */
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* On a crowded machine it goes on until somebody has looked. */
bool lpi_stale_is_over(const struct lpi_stale_run *run)
{
	uint64_t ns = now_ns();
	if (atomic_load(&run->shared->is_over))
		return true;
	return ns > run->until_ns &&
	       (atomic_load(&run->shared->looks) > 0 || ns > run->until_ns + PATIENCE_NS);
}

void lpi_stale_help(struct lpi_stale_run *run, void (*what)(struct lpi_stale_run *run, void *arg),
		    void *arg)
{
	int pid = fork();
	if (pid < 0)
		lpi_stale_fail("fork");
	if (pid > 0) {
		run->helpers[run->helper_cnt++] = pid;
		return;
	}
	(void)prctl(PR_SET_PDEATHSIG, 9); /* it looks at the time as well */
	what(run, arg);
	_exit(0);
}

void lpi_stale_end(struct lpi_stale_run *run)
{
	int status = 0;
	atomic_store(&run->shared->is_over, true);
	for (unsigned i = 0; i < run->helper_cnt; i++) {
		if (waitpid(run->helpers[i], &status, 0) < 0 || status != 0)
			lpi_stale_fail("a helper has failed");
	}
	run->helper_cnt = 0;
}

void lpi_stale_found(struct lpi_stale_run *run, const char *how, uint64_t block, uint64_t seen,
		     uint64_t acked)
{
	if (atomic_fetch_add(&run->shared->stale, 1) >= LPI_STALE_EXAMPLES)
		return;
	(void)printf("  %s: block %llu is %llu, and %llu was acknowledged\n", how,
		     (unsigned long long)block, (unsigned long long)seen,
		     (unsigned long long)acked);
	(void)fflush(stdout); /* for whoever looks on */
}

int lpi_stale_open(const struct lpi_stale_run *run, int flags)
{
	int fd = open(run->path, flags | O_CLOEXEC, 0644);
	if (fd < 0)
		lpi_stale_fail(run->path);
	return fd;
}

void *lpi_stale_map(int fd, size_t bytes)
{
	void *map = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0);
	if (map == MAP_FAILED)
		lpi_stale_fail("mmap");
	return map;
}

void *lpi_stale_buf(size_t bytes)
{
	void *buf = aligned_alloc(LPI_STALE_BLOCK, bytes);
	if (buf == NULL)
		lpi_stale_fail("memory");
	memset(buf, 0, bytes);
	return buf;
}

void lpi_stale_fill(void *to, uint64_t word, size_t bytes)
{
	for (size_t i = 0; i < bytes / sizeof(word); i++)
		memcpy((char *)to + i * sizeof(word), &word, sizeof(word));
}

void lpi_stale_write(int fd, const void *from, size_t bytes, uint64_t offset)
{
	if (pwrite(fd, from, bytes, (off_t)offset) != (ssize_t)bytes)
		lpi_stale_fail("pwrite");
}

/* --- Many at once ----------------------------------------------------------------------------- */

static void submit_aio(int fd, const struct lpi_stale_piece *pieces, unsigned cnt,
		       void (*done)(void *arg, unsigned idx), void *arg)
{
	static aio_context_t context;
	struct iocb iocbs[LPI_STALE_DEPTH];
	struct iocb *list[LPI_STALE_DEPTH];
	struct io_event events[LPI_STALE_DEPTH];
	static pid_t owner; /* a child does not inherit it */
	if (owner != getpid()) {
		context = 0;
		owner = getpid();
		if (syscall(SYS_io_setup, LPI_STALE_DEPTH, &context) < 0)
			lpi_stale_fail("io_setup");
	}
	for (unsigned i = 0; i < cnt; i++) {
		iocbs[i] = (struct iocb){.aio_data = i,
					 .aio_lio_opcode = IOCB_CMD_PWRITE,
					 .aio_fildes = (uint32_t)fd,
					 .aio_buf = (uintptr_t)pieces[i].from,
					 .aio_nbytes = pieces[i].bytes,
					 .aio_offset = (int64_t)pieces[i].offset};
		list[i] = &iocbs[i];
	}
	if (syscall(SYS_io_submit, context, cnt, list) != (long)cnt)
		lpi_stale_fail("io_submit");
	for (unsigned ended = 0; ended < cnt;) {
		long got = syscall(SYS_io_getevents, context, 1, LPI_STALE_DEPTH, events, NULL);
		for (long i = 0; i < got; i++) {
			if (events[i].res != (int64_t)pieces[events[i].data].bytes)
				lpi_stale_fail("a write by AIO");
			done(arg, (unsigned)events[i].data);
		}
		ended += got > 0 ? (unsigned)got : 0;
	}
}

static void submit_uring(int fd, const struct lpi_stale_piece *pieces, unsigned cnt,
			 void (*done)(void *arg, unsigned idx), void *arg)
{
	static struct io_uring ring;
	struct io_uring_cqe *cqe = NULL;
	static pid_t owner; /* a child has one of its own */
	if (owner != getpid()) {
		owner = getpid();
		if (io_uring_queue_init(LPI_STALE_DEPTH, &ring, 0) < 0)
			lpi_stale_fail("io_uring");
	}
	for (unsigned i = 0; i < cnt; i++) {
		struct io_uring_sqe *sqe = io_uring_get_sqe(&ring);
		if (sqe == NULL)
			lpi_stale_fail("io_uring_get_sqe");
		io_uring_prep_write(sqe, fd, pieces[i].from, (unsigned)pieces[i].bytes,
				    pieces[i].offset);
		sqe->user_data = i;
	}
	if (io_uring_submit(&ring) != (int)cnt)
		lpi_stale_fail("io_uring_submit");
	for (unsigned ended = 0; ended < cnt; ended++) {
		if (io_uring_wait_cqe(&ring, &cqe) < 0 ||
		    cqe->res != (int)pieces[cqe->user_data].bytes)
			lpi_stale_fail("a write by io_uring");
		done(arg, (unsigned)cqe->user_data);
		io_uring_cqe_seen(&ring, cqe);
	}
}

void lpi_stale_submit(enum lpi_stale_engine engine, int fd, const struct lpi_stale_piece *pieces,
		      unsigned cnt, void (*done)(void *arg, unsigned idx), void *arg)
{
	switch (engine) {
	case LPI_STALE_AIO:
		submit_aio(fd, pieces, cnt, done, arg);
		return;
	case LPI_STALE_URING:
		submit_uring(fd, pieces, cnt, done, arg);
		return;
	}
}
