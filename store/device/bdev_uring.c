/* SPDX-License-Identifier: Apache-2.0 */
/* A block device or an image file through io_uring and O_DIRECT.
 *
 * Memory in a region that the reactor has registered needs no look-up of its pages, which costs
 * more than all the rest of a large transfer. Kernels from 6.15 on take vectors of such memory,
 * too.
 *
 * Write-through is RWF_DSYNC: on a block device with a volatile cache the kernel sends the write
 * with FUA (or write and flush where the device lacks FUA), without one it is a plain write; on a
 * file it also makes the metadata durable that the data needs.
 *
 * A transfer that came back short is continued from where it stopped, inside the same operation;
 * one that makes no progress is an I/O error. The kernel's EAGAIN and EINTR are tried again a
 * bounded number of times.
 */
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/error.h"
#include "store/device/bdev_driver.h"

/* Not in liburing 2.3. */
#define OP_READV_FIXED  ((uint8_t)60)
#define OP_WRITEV_FIXED ((uint8_t)61)

#define RETRY_MAX   64u
#define NO_SLOT     UINT32_MAX
#define PUNCH_FLAGS (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE)

struct uring_bdev {
	struct lp_bdev bdev; /* first: the two are cast into each other */
	int fd;
	bool is_block;
};

struct uring_chan {
	struct lp_bdev_chan chan; /* first */
	int fd;
	uint32_t slot; /* of the registered file, or NO_SLOT */
	bool has_fixed_vectors;
};

static struct uring_bdev *bdev_of(struct lp_bdev *bdev)
{
	return LP_CONTAINER_OF(bdev, struct uring_bdev, bdev);
}

static struct uring_chan *chan_of(struct lp_bdev_chan *chan)
{
	return LP_CONTAINER_OF(chan, struct uring_chan, chan);
}

/* --- Capabilities ------------------------------------------------------------------------------
 */

/* The first word of /sys/dev/block/MAJOR:MINOR/queue/NAME, for a partition its disk's; "" if it
 * cannot be read. */
static void read_queue_attr(dev_t dev, const char *attr, char *ret_word, size_t len)
{
	static const char *const dirs[] = {"queue", "../queue"};
	ret_word[0] = '\0';
	for (size_t i = 0; i < LP_ARRAY_SIZE(dirs); i++) {
		char path[128];
		(void)snprintf(path, sizeof(path), "/sys/dev/block/%u:%u/%s/%s", major(dev),
			       minor(dev), dirs[i], attr);
		int fd = open(path, O_RDONLY | O_CLOEXEC);
		if (fd < 0)
			continue;
		ssize_t got = read(fd, ret_word, len - 1);
		(void)close(fd); /* read only */
		ret_word[got > 0 ? got : 0] = '\0';
		return;
	}
}

static uint64_t queue_attr_number(dev_t dev, const char *attr)
{
	char word[64];
	read_queue_attr(dev, attr, word, sizeof(word));
	return strtoull(word, NULL, 10);
}

static bool queue_attr_begins(dev_t dev, const char *attr, const char *with)
{
	char word[64];
	read_queue_attr(dev, attr, word, sizeof(word));
	for (size_t i = 0; with[i] != '\0'; i++) {
		if (word[i] != with[i])
			return false;
	}
	return true;
}

/* The kernel lets it be opened for writing all the same, and fails each write. */
static int check_writable(int fd)
{
	int is_ro = 0;
	return ioctl(fd, BLKROGET, &is_ro) == 0 && is_ro != 0 ? -EROFS : 0;
}

static int probe_block(struct uring_bdev *self, const struct stat *st)
{
	int logical = 0;
	unsigned physical = 0;
	uint64_t size = 0;
	if (ioctl(self->fd, BLKSSZGET, &logical) < 0 ||
	    ioctl(self->fd, BLKPBSZGET, &physical) < 0 || ioctl(self->fd, BLKGETSIZE64, &size) < 0)
		return -errno;
	uint64_t atomic_bytes = queue_attr_number(st->st_rdev, "atomic_write_unit_max_bytes");
	struct lp_bdev_caps *caps = &self->bdev.caps;
	caps->block_bytes = (uint32_t)logical;
	caps->physical_bytes = physical;
	caps->size_bytes = lp_align_down(size, (uint64_t)logical);
	caps->atomic_write_bytes = (uint32_t)LP_MAX(atomic_bytes, (uint64_t)logical);
	/* "write through" says that completed writes are durable. Anything else is not trusted. */
	caps->volatile_cache = !queue_attr_begins(st->st_rdev, "write_cache", "write through");
	caps->through_flushes = caps->volatile_cache && queue_attr_number(st->st_rdev, "fua") == 0;
	caps->rotational = queue_attr_number(st->st_rdev, "rotational") != 0;
	caps->can_discard = queue_attr_number(st->st_rdev, "discard_max_bytes") > 0;
	return 0;
}

static int probe_file(struct uring_bdev *self, const struct stat *st)
{
	struct lp_bdev_caps *caps = &self->bdev.caps;
	caps->block_bytes = 512;
	struct statx stx;
	if (statx(self->fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &stx) == 0 &&
	    (stx.stx_mask & STATX_DIOALIGN) != 0 && stx.stx_dio_offset_align > 0)
		caps->block_bytes = LP_MAX(caps->block_bytes,
					   LP_MAX(stx.stx_dio_offset_align, stx.stx_dio_mem_align));
	caps->physical_bytes = LP_MAX((uint32_t)st->st_blksize, caps->block_bytes);
	caps->atomic_write_bytes = caps->block_bytes;
	caps->size_bytes = lp_align_down((uint64_t)st->st_size, caps->block_bytes);
	caps->volatile_cache = true;
	caps->through_flushes = true;
	caps->can_discard = true;
	caps->is_file = true;
	return 0;
}

static int probe(struct uring_bdev *self)
{
	struct stat st;
	if (fstat(self->fd, &st) < 0)
		return -errno;
	self->is_block = S_ISBLK(st.st_mode);
	int err = self->is_block ? probe_block(self, &st) : probe_file(self, &st);
	if (err < 0)
		return err;
	return lpi_bdev_can_be(self->bdev.caps.block_bytes) ? 0 : -ENOTSUP;
}

/* --- Open and close ------------------------------------------------------------------------------
 */

static const struct lp_bdev_kind uring_kind;

static int open_fd(const char *path, const struct lp_bdev_open_options *options)
{
	struct stat st;
	if (stat(path, &st) < 0)
		return -errno;
	if (!S_ISBLK(st.st_mode) && !S_ISREG(st.st_mode))
		return -ENOTBLK;
	int flags = O_DIRECT | O_CLOEXEC | (options->read_only ? O_RDONLY : O_RDWR);
	/* On a block device, O_EXCL without O_CREAT means: nobody else, no file system either. */
	if (options->exclusive && S_ISBLK(st.st_mode))
		flags |= O_EXCL;
	int fd = open(path, flags);
	if (fd < 0)
		return -errno;
	if (options->exclusive && S_ISREG(st.st_mode) && flock(fd, LOCK_EX | LOCK_NB) < 0) {
		int err = errno == EWOULDBLOCK ? -EBUSY : -errno;
		(void)close(fd); /* nothing was written */
		return err;
	}
	return fd;
}

int lp_bdev_open_uring(const char *path, const struct lp_bdev_open_options *options,
		       struct lp_bdev **ret_bdev)
{
	struct uring_bdev *self = calloc(1, sizeof(*self));
	if (self == NULL)
		return -ENOMEM;
	lpi_bdev_init(&self->bdev, &uring_kind, path);
	int err = open_fd(path, options);
	if (err < 0)
		goto fail_memory;
	self->fd = err;
	err = probe(self);
	if (err == 0 && self->is_block && !options->read_only)
		err = check_writable(self->fd);
	if (err < 0)
		goto fail_fd;
	*ret_bdev = &self->bdev;
	return 0;

fail_fd:
	(void)close(self->fd); /* nothing was written */
fail_memory:
	free(self);
	return err;
}

static void uring_close(struct lp_bdev *bdev)
{
	struct uring_bdev *self = bdev_of(bdev);
	/* O_DIRECT leaves nothing behind that a failing close could lose. */
	(void)close(self->fd);
	free(self);
}

static int uring_refresh_size(struct lp_bdev *bdev)
{
	return probe(bdev_of(bdev));
}

static int uring_attach(struct lp_bdev *bdev, struct lp_reactor *reactor,
			struct lp_bdev_chan **ret_chan)
{
	struct uring_chan *self = calloc(1, sizeof(*self));
	if (self == NULL)
		return -ENOMEM;
	self->fd = bdev_of(bdev)->fd;
	/* A full table only costs the shortcut. */
	if (lp_reactor_file_add(reactor, self->fd, &self->slot) < 0)
		self->slot = NO_SLOT;
	self->has_fixed_vectors = lp_reactor_has_opcode(reactor, OP_READV_FIXED) &&
				  lp_reactor_has_opcode(reactor, OP_WRITEV_FIXED);
	*ret_chan = &self->chan;
	return 0;
}

static void uring_detach(struct lp_bdev_chan *chan)
{
	struct uring_chan *self = chan_of(chan);
	if (self->slot != NO_SLOT)
		lp_reactor_file_remove(chan->reactor, self->slot);
	free(self);
}

/* --- Asynchronous I/O ------------------------------------------------------------------------- */

/* The registered piece that holds all of the vector, or -1. */
static int find_region(const struct uring_chan *self, const struct lp_bdev_op *op)
{
	const struct lp_reactor *reactor = self->chan.reactor;
	int region = lp_reactor_buffer_find(reactor, op->iov->iov_base, op->iov->iov_len);
	if (op->iov_cnt > 1 && !self->has_fixed_vectors)
		return -1;
	for (uint32_t i = 1; i < op->iov_cnt && region >= 0; i++) {
		const struct iovec *iov = &op->iov[i];
		if (lp_reactor_buffer_find(reactor, iov->iov_base, iov->iov_len) != region)
			region = -1;
	}
	return region;
}

static void prep_vector(struct io_uring_sqe *sqe, const struct lp_bdev_op *op, int fd, int region)
{
	bool read = op->opcode == LP_BDEV_READ;
	uint64_t offset = op->offset_bytes + op->done_bytes;
	if (read)
		io_uring_prep_readv(sqe, fd, op->iov, op->iov_cnt, offset);
	else
		io_uring_prep_writev(sqe, fd, op->iov, op->iov_cnt, offset);
	if (region < 0)
		return;
	sqe->opcode = read ? OP_READV_FIXED : OP_WRITEV_FIXED;
	sqe->buf_index = (uint16_t)region;
}

static void prep_transfer(const struct uring_chan *self, struct io_uring_sqe *sqe,
			  const struct lp_bdev_op *op, int fd)
{
	bool read = op->opcode == LP_BDEV_READ;
	uint64_t offset = op->offset_bytes + op->done_bytes;
	const struct iovec *iov = op->iov;
	unsigned len = (unsigned)iov->iov_len;
	int region = find_region(self, op);

	if (op->iov_cnt > 1)
		prep_vector(sqe, op, fd, region);
	else if (region >= 0 && read)
		io_uring_prep_read_fixed(sqe, fd, iov->iov_base, len, offset, region);
	else if (region >= 0)
		io_uring_prep_write_fixed(sqe, fd, iov->iov_base, len, offset, region);
	else if (read)
		io_uring_prep_read(sqe, fd, iov->iov_base, len, offset);
	else
		io_uring_prep_write(sqe, fd, iov->iov_base, len, offset);
	if (op->opcode == LP_BDEV_WRITE_THROUGH)
		sqe->rw_flags = RWF_DSYNC;
}

static void start(struct uring_chan *self, struct lp_bdev_op *op)
{
	struct io_uring_sqe *sqe = lp_reactor_sqe(self->chan.reactor, &op->io);
	int fd = self->slot != NO_SLOT ? (int)self->slot : self->fd;
	switch (op->opcode) {
	case LP_BDEV_READ:
	case LP_BDEV_WRITE:
	case LP_BDEV_WRITE_THROUGH:
		prep_transfer(self, sqe, op, fd);
		break;
	case LP_BDEV_FLUSH:
		io_uring_prep_fsync(sqe, fd, IORING_FSYNC_DATASYNC);
		break;
	case LP_BDEV_DISCARD:
		io_uring_prep_fallocate(sqe, fd, PUNCH_FLAGS, (off_t)op->offset_bytes,
					(off_t)op->length_bytes);
		break;
	case LP_BDEV_OPCODE_CNT:
		LP_UNREACHABLE();
	}
	if (self->slot != NO_SLOT)
		io_uring_sqe_set_flags(sqe, IOSQE_FIXED_FILE);
}

/* Takes `bytes` off the front of the vector. */
static void advance(struct lp_bdev_op *op, uint64_t bytes)
{
	op->done_bytes += bytes;
	while (bytes > 0) {
		LP_ASSERT(op->iov_cnt > 0);
		uint64_t part = LP_MIN(bytes, op->iov->iov_len);
		op->iov->iov_base = (uint8_t *)op->iov->iov_base + part;
		op->iov->iov_len -= part;
		bytes -= part;
		if (op->iov->iov_len == 0) {
			op->iov++;
			op->iov_cnt--;
		}
	}
}

/* 0: the operation is done; 1: to be sent again; else its error. */
static int judge(struct lp_bdev_op *op, int result)
{
	if (result == -EAGAIN || result == -EINTR)
		return ++op->retry_cnt <= RETRY_MAX ? 1 : -EIO;
	if (result < 0 || op->opcode > LP_BDEV_WRITE_THROUGH)
		return result;
	uint64_t rest = op->length_bytes - op->done_bytes;
	uint64_t got = (uint64_t)result;
	LP_ASSERT(got <= rest);
	if (got == rest)
		return 0;
	/* Beyond the end of a file that shrank, or a device that gives up without saying why. */
	if (got == 0 || !lp_is_aligned(got, op->chan->bdev->caps.block_bytes))
		return -EIO;
	op->chan->stats.shorts++;
	advance(op, got);
	return 1;
}

static void uring_io_complete(struct lp_io *io)
{
	struct lp_bdev_op *op = LP_CONTAINER_OF(io, struct lp_bdev_op, io);
	int verdict = judge(op, io->result);
	if (verdict > 0)
		start(chan_of(op->chan), op);
	else
		lpi_bdev_complete(op, verdict);
}

static void uring_submit(struct lp_bdev_chan *chan, struct lp_bdev_op *op)
{
	op->io.complete = uring_io_complete;
	start(chan_of(chan), op);
}

/* --- Blocking I/O ----------------------------------------------------------------------------- */

static int transfer_sync(const struct uring_bdev *self, enum lp_bdev_opcode opcode,
			 struct iovec iov, uint64_t offset)
{
	int flags = opcode == LP_BDEV_WRITE_THROUGH ? RWF_DSYNC : 0;
	uint32_t retry_cnt = 0;
	while (iov.iov_len > 0) {
		ssize_t got = opcode == LP_BDEV_READ
				      ? preadv2(self->fd, &iov, 1, (off_t)offset, flags)
				      : pwritev2(self->fd, &iov, 1, (off_t)offset, flags);
		if (got < 0 && (errno == EINTR || errno == EAGAIN) && ++retry_cnt <= RETRY_MAX)
			continue;
		if (got < 0)
			return -errno;
		if (got == 0 || !lp_is_aligned((uint64_t)got, self->bdev.caps.block_bytes))
			return -EIO;
		iov.iov_base = (uint8_t *)iov.iov_base + got;
		iov.iov_len -= (size_t)got;
		offset += (uint64_t)got;
	}
	return 0;
}

static int uring_sync(struct lp_bdev *bdev, enum lp_bdev_opcode opcode, void *buf,
		      uint64_t length_bytes, uint64_t offset_bytes)
{
	const struct uring_bdev *self = bdev_of(bdev);
	struct iovec iov = {.iov_base = buf, .iov_len = length_bytes};
	switch (opcode) {
	case LP_BDEV_READ:
	case LP_BDEV_WRITE:
	case LP_BDEV_WRITE_THROUGH:
		return transfer_sync(self, opcode, iov, offset_bytes);
	case LP_BDEV_FLUSH:
		return fdatasync(self->fd) < 0 ? -errno : 0;
	case LP_BDEV_DISCARD:
		return fallocate(self->fd, PUNCH_FLAGS, (off_t)offset_bytes, (off_t)length_bytes) <
				       0
			       ? -errno
			       : 0;
	case LP_BDEV_OPCODE_CNT:
		break;
	}
	LP_UNREACHABLE();
}

/* What root alone may still take counts only for him. */
static int uring_read_host(struct lp_bdev *bdev, struct lp_bdev_host *ret_host)
{
	const struct uring_bdev *self = bdev_of(bdev);
	struct statvfs fs;
	struct stat st;
	if (fstatvfs(self->fd, &fs) < 0 || fstat(self->fd, &st) < 0)
		return -errno;
	uint64_t free = geteuid() == 0 ? fs.f_bfree : fs.f_bavail;
	uint64_t has = (uint64_t)st.st_blocks * 512;
	ret_host->free_bytes = free * fs.f_frsize;
	ret_host->absent_bytes = (uint64_t)st.st_size - LP_MIN(has, (uint64_t)st.st_size);
	return 0;
}

static int uring_read_size(struct lp_bdev *bdev, uint64_t *ret_bytes)
{
	const struct uring_bdev *self = bdev_of(bdev);
	struct stat st;
	if (self->is_block)
		return ioctl(self->fd, BLKGETSIZE64, ret_bytes) < 0 ? -errno : 0;
	if (fstat(self->fd, &st) < 0)
		return -errno;
	*ret_bytes = (uint64_t)st.st_size;
	return 0;
}

static int uring_secure(struct lp_bdev *bdev, uint64_t length_bytes, uint64_t offset_bytes)
{
	int r;
	do
		r = fallocate(bdev_of(bdev)->fd, FALLOC_FL_KEEP_SIZE, (off_t)offset_bytes,
			      (off_t)length_bytes);
	while (r < 0 && errno == EINTR);
	return r < 0 ? -errno : 0;
}

static const struct lp_bdev_kind uring_kind = {
	.name = "uring",
	.close = uring_close,
	.refresh_size = uring_refresh_size,
	.attach = uring_attach,
	.detach = uring_detach,
	.submit = uring_submit,
	.sync = uring_sync,
	.read_host = uring_read_host,
	.read_size = uring_read_size,
	.secure = uring_secure,
};
