/* SPDX-License-Identifier: Apache-2.0 */
/* An object's block is in the file of its part and side. Open files are kept in a table by what
 * they are; where two want the same slot, the second one is opened for this time only.
 *
 * A file's name must be durable before a frame of the journal counts on what was written directly
 * to it: so it is remembered in which directories files were made since they were synced. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "store/filestore/filestore_impl.h"

#define NAME_MAX_BYTES 64u
#define FILE_MODE      0600
#define DIR_MODE       0700

static uint32_t file_of(const struct lpi_object_place *place)
{
	return (uint32_t)(place->block >> LPI_PART_SHIFT) * LPI_SIDE_CNT + place->side;
}

static off_t offset_of(const struct lpi_object_place *place)
{
	uint64_t in_part = place->block & ((UINT64_C(1) << LPI_PART_SHIFT) - 1);
	return (off_t)(in_part << LP_BLOCK_SHIFT);
}

static uint32_t dir_idx_of(uint64_t ino)
{
	return (uint32_t)(ino % LPI_OBJECT_DIRS);
}

static void name_of(uint64_t ino, uint32_t file, char *ret_name)
{
	(void)snprintf(ret_name, NAME_MAX_BYTES, "%02x/%016llx.%u.%u", dir_idx_of(ino),
		       (unsigned long long)ino, file / LPI_SIDE_CNT, file % LPI_SIDE_CNT);
}

/* --- Open files ------------------------------------------------------------------------------- */

static struct lpi_object_slot *slot_of(struct lpi_objects *objects, uint64_t ino, uint32_t file)
{
	uint64_t hash = (ino * LPI_SIDE_CNT + file) * UINT64_C(0x9e3779b97f4a7c15);
	return &objects->slots[(hash >> 32) % LPI_OBJECT_SLOTS];
}

/* One who uses a file; slot NULL: it is his alone. */
struct use {
	struct lpi_object_slot *slot;
	int fd;
};

static bool find_open(struct lpi_objects *objects, uint64_t ino, uint32_t file, struct use *ret)
{
	struct lpi_object_slot *slot = slot_of(objects, ino, file);
	if (slot->fd < 0 || slot->ino != ino || slot->file != file || slot->is_stale)
		return false;
	slot->refs++;
	*ret = (struct use){slot, slot->fd};
	return true;
}

/* The slot takes it, if nobody uses what it has. */
static void keep_open(struct lpi_objects *objects, uint64_t ino, uint32_t file, struct use *use)
{
	struct lpi_object_slot *slot = slot_of(objects, ino, file);
	if (slot->refs > 0)
		return;
	if (slot->fd >= 0)
		(void)close(slot->fd); /* what a write meets is said by the next sync of all */
	*slot = (struct lpi_object_slot){.ino = ino, .file = file, .fd = use->fd, .refs = 1};
	use->slot = slot;
}

/* A file that is not open yet, or made. */
static int open_object(struct lpi_objects *objects, uint64_t ino, uint32_t file, bool create,
		       int *ret_fd)
{
	char name[NAME_MAX_BYTES];
	name_of(ino, file, name);
	int fd = openat(objects->fd, name, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0 && errno == ENOENT && create) {
		fd = openat(objects->fd, name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW,
			    FILE_MODE);
		objects->dir_is_dirty[dir_idx_of(ino)] |= fd >= 0;
	}
	if (fd < 0)
		return -errno;
	*ret_fd = fd;
	return 0;
}

static int begin_use(struct lpi_objects *objects, const struct lpi_object_place *place, bool create,
		     struct use *ret_use)
{
	uint32_t file = file_of(place);
	int err = 0;
	(void)pthread_mutex_lock(&objects->mutex); /* fails only if it is misused */
	if (!find_open(objects, place->ino.nr, file, ret_use)) {
		*ret_use = (struct use){NULL, -1};
		err = open_object(objects, place->ino.nr, file, create, &ret_use->fd);
		if (err == 0)
			keep_open(objects, place->ino.nr, file, ret_use);
	}
	(void)pthread_mutex_unlock(&objects->mutex);
	return err;
}

static void end_use(struct lpi_objects *objects, const struct use *use)
{
	int fd = use->slot == NULL ? use->fd : -1;
	(void)pthread_mutex_lock(&objects->mutex); /* as above */
	if (use->slot != NULL && --use->slot->refs == 0 && use->slot->is_stale) {
		fd = use->slot->fd;
		use->slot->fd = -1;
	}
	(void)pthread_mutex_unlock(&objects->mutex);
	if (fd >= 0)
		(void)close(fd); /* as above */
}

/* --- Reading and writing ---------------------------------------------------------------------- */

/* What is left of the pieces when so many bytes are done. */
static void advance(struct iovec **iov, int *iov_cnt, size_t done)
{
	while (*iov_cnt > 0 && done >= (*iov)->iov_len) {
		done -= (*iov)->iov_len;
		(*iov)++;
		(*iov_cnt)--;
	}
	if (*iov_cnt > 0) {
		(*iov)->iov_base = (uint8_t *)(*iov)->iov_base + done;
		(*iov)->iov_len -= done;
	}
}

static int write_all(int fd, struct iovec *iov, int iov_cnt, off_t offset)
{
	while (iov_cnt > 0) {
		ssize_t done = pwritev(fd, iov, iov_cnt, offset);
		if (done < 0 && errno == EINTR)
			continue;
		if (done <= 0)
			return done < 0 ? -errno : -EIO;
		offset += done;
		advance(&iov, &iov_cnt, (size_t)done);
	}
	return 0;
}

int lpi_objects_write(struct lpi_objects *objects, const struct lpi_object_place *place,
		      struct iovec *iov, int iov_cnt)
{
	struct use use;
	int err = begin_use(objects, place, true, &use);
	if (err < 0)
		return err;
	err = write_all(use.fd, iov, iov_cnt, offset_of(place));
	end_use(objects, &use);
	return err;
}

static int read_all(int fd, uint8_t *to, size_t len, off_t offset)
{
	while (len > 0) {
		ssize_t done = pread(fd, to, len, offset);
		if (done < 0 && errno == EINTR)
			continue;
		if (done < 0)
			return -errno;
		if (done == 0)
			break;
		to += done;
		len -= (size_t)done;
		offset += done;
	}
	memset(to, 0, len);
	return 0;
}

int lpi_objects_read(struct lpi_objects *objects, const struct lpi_object_place *place, void *buf,
		     uint32_t blocks)
{
	struct use use;
	size_t len = blocks * LP_BLOCK_BYTES;
	int err = begin_use(objects, place, false, &use);
	if (err == -ENOENT) {
		memset(buf, 0, len);
		return 0;
	}
	if (err < 0)
		return err;
	err = read_all(use.fd, buf, len, offset_of(place));
	end_use(objects, &use);
	return err;
}

/* --- Space ------------------------------------------------------------------------------------ */

static int fallocate_blocks(struct lpi_objects *objects, const struct lpi_object_place *place,
			    uint32_t blocks, bool punch)
{
	int mode = FALLOC_FL_KEEP_SIZE | (punch ? FALLOC_FL_PUNCH_HOLE : 0);
	struct use use;
	int err = begin_use(objects, place, !punch, &use);
	if (err == -ENOENT)
		return 0;
	if (err < 0)
		return err;
	do
		err = fallocate(use.fd, mode, offset_of(place), (off_t)(blocks * LP_BLOCK_BYTES));
	while (err < 0 && errno == EINTR);
	err = err < 0 && errno != EOPNOTSUPP ? -errno : 0;
	end_use(objects, &use);
	return err;
}

int lpi_objects_reserve(struct lpi_objects *objects, const struct lpi_object_place *place,
			uint32_t blocks)
{
	return fallocate_blocks(objects, place, blocks, false);
}

int lpi_objects_punch(struct lpi_objects *objects, const struct lpi_object_place *place,
		      uint32_t blocks)
{
	return fallocate_blocks(objects, place, blocks, true);
}

static int unlink_one(struct lpi_objects *objects, uint64_t ino, uint32_t file)
{
	char name[NAME_MAX_BYTES];
	struct lpi_object_slot *slot = slot_of(objects, ino, file);
	int fd = -1;
	name_of(ino, file, name);
	(void)pthread_mutex_lock(&objects->mutex); /* as above */
	if (slot->fd >= 0 && slot->ino == ino && slot->file == file) {
		slot->is_stale = true;
		fd = slot->refs == 0 ? slot->fd : -1;
		slot->fd = slot->refs == 0 ? -1 : slot->fd;
	}
	(void)pthread_mutex_unlock(&objects->mutex);
	if (fd >= 0)
		(void)close(fd); /* what was in it is not wanted any more */
	return unlinkat(objects->fd, name, 0) < 0 && errno != ENOENT ? -errno : 0;
}

int lpi_objects_unlink(struct lpi_objects *objects, struct lp_ino ino, uint64_t block)
{
	int err = 0;
	for (uint32_t side = 0; side < LPI_SIDE_CNT && err == 0; side++) {
		const struct lpi_object_place place = {ino, block, side};
		err = unlink_one(objects, ino.nr, file_of(&place));
	}
	return err;
}

/* --- Durability ------------------------------------------------------------------------------- */

static int sync_dir(struct lpi_objects *objects, uint32_t idx)
{
	char name[NAME_MAX_BYTES];
	(void)snprintf(name, sizeof(name), "%02x", idx); /* fits by its size */
	int fd = openat(objects->fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	int err = fsync(fd) < 0 ? -errno : 0;
	(void)close(fd); /* nothing was written through it */
	return err;
}

int lpi_objects_sync(struct lpi_objects *objects, const struct lpi_object_place *place)
{
	struct use use;
	int err = begin_use(objects, place, false, &use);
	if (err < 0)
		return err;
	err = fdatasync(use.fd) < 0 ? -errno : 0;
	end_use(objects, &use);
	/* Set by who evaluates or applies, and never both at a time; so nobody sets it meanwhile.
	 */
	bool *is_dirty = &objects->dir_is_dirty[dir_idx_of(place->ino.nr)];
	if (err == 0 && *is_dirty) {
		err = sync_dir(objects, dir_idx_of(place->ino.nr));
		*is_dirty = err < 0;
	}
	return err;
}

int lpi_objects_sync_all(struct lpi_objects *objects)
{
	return syncfs(objects->fd) < 0 ? -errno : 0;
}

/* --- Birth and death -------------------------------------------------------------------------- */

/* The directories are there already when this is not the first time. */
static int make_dirs(const struct lpi_objects *objects)
{
	for (uint32_t i = 0; i < LPI_OBJECT_DIRS; i++) {
		char name[NAME_MAX_BYTES];
		(void)snprintf(name, sizeof(name), "%02x", i); /* fits by its size */
		if (mkdirat(objects->fd, name, DIR_MODE) < 0 && errno != EEXIST)
			return -errno;
	}
	return fsync(objects->fd) < 0 ? -errno : 0;
}

int lpi_objects_open(struct lpi_objects *objects, int shard_fd)
{
	*objects = (struct lpi_objects){.fd = -1};
	for (uint32_t i = 0; i < LPI_OBJECT_SLOTS; i++)
		objects->slots[i].fd = -1;
	if (mkdirat(shard_fd, "objects", DIR_MODE) < 0 && errno != EEXIST)
		return -errno;
	objects->fd = openat(shard_fd, "objects", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (objects->fd < 0)
		return -errno;
	int err = make_dirs(objects);
	if (err == 0)
		err = -pthread_mutex_init(&objects->mutex, NULL);
	if (err < 0) {
		(void)close(objects->fd); /* nothing was written through it */
		objects->fd = -1;
	}
	return err;
}

void lpi_objects_close(struct lpi_objects *objects)
{
	if (objects->fd < 0)
		return;
	for (uint32_t i = 0; i < LPI_OBJECT_SLOTS; i++) {
		LP_ASSERT(objects->slots[i].refs == 0);
		if (objects->slots[i].fd >= 0)
			(void)close(objects->slots[i].fd); /* synced before, or not promised */
	}
	(void)close(objects->fd); /* nothing was written through it */
	(void)pthread_mutex_destroy(&objects->mutex);
	objects->fd = -1;
}
