/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/offline/fsck_copy.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "cli/cli.h"
#include "cli/device.h"
#include "cli/progress.h"
#include "store/volume/devices.h"

#define PIECE_BYTES (UINT64_C(1) << 20)

static const char *const suffixes[LP_ROLES] = {
	[LP_ROLE_DATA] = "", [LP_ROLE_DB] = ".db", [LP_ROLE_WAL] = ".wal"};

static int say(const char *path, int err)
{
	(void)lpi_cli_fail(path, "%s",
			   err == -EEXIST ? "exists already (name a new file)" : lp_strerror(err));
	return err;
}

static int make_path(struct lpi_fsck_copy *copy, const char *suffix, char *ret_path)
{
	int len = snprintf(ret_path, LPI_FSCK_COPY_PATH_MAX, "%s%s", copy->to, suffix);
	return len >= 0 && (unsigned)len < LPI_FSCK_COPY_PATH_MAX ? 0
								  : say(copy->to, -ENAMETOOLONG);
}

/* --- Bytes ------------------------------------------------------------------------------------ */

static void read_piece(struct lpi_fsck_copy *copy, struct lp_bdev *source, uint8_t *bytes,
		       uint64_t offset, uint64_t len)
{
	if (lp_bdev_read_sync(source, bytes, len, offset) == 0)
		return;
	for (uint64_t at = 0; at < len; at += LP_BLOCK_BYTES) {
		if (lp_bdev_read_sync(source, bytes + at, LP_BLOCK_BYTES, offset + at) == 0)
			continue;
		memset(bytes + at, 0, LP_BLOCK_BYTES);
		copy->unread_blocks++;
	}
}

static bool is_zeros(const uint8_t *bytes, uint64_t len)
{
	return bytes[0] == 0 && memcmp(bytes, bytes + 1, len - 1) == 0;
}

/* What is zeros stays a hole. */
static int write_piece(int fd, const uint8_t *bytes, uint64_t offset, uint64_t len)
{
	for (uint64_t at = 0; at < len;) {
		uint64_t end = at + LP_BLOCK_BYTES;
		bool is_hole = is_zeros(bytes + at, LP_BLOCK_BYTES);
		while (end < len && is_zeros(bytes + end, LP_BLOCK_BYTES) == is_hole)
			end += LP_BLOCK_BYTES;
		for (uint64_t done = at; done < end && !is_hole;) {
			ssize_t cnt = pwrite(fd, bytes + done, end - done, (off_t)(offset + done));
			if (cnt <= 0)
				return cnt < 0 ? -errno : -EIO;
			done += (uint64_t)cnt;
		}
		at = end;
	}
	return 0;
}

static int copy_bytes(struct lpi_fsck_copy *copy, struct lp_bdev *source, int fd)
{
	uint64_t size = lp_bdev_caps(source)->size_bytes / LP_BLOCK_BYTES * LP_BLOCK_BYTES;
	uint8_t *bytes = aligned_alloc(LP_BLOCK_BYTES, PIECE_BYTES);
	struct lpi_progress progress;
	int err = bytes == NULL ? -ENOMEM : (ftruncate(fd, (off_t)size) < 0 ? -errno : 0);
	lpi_progress_start(&progress, size);
	for (uint64_t at = 0; at < size && err == 0; at += PIECE_BYTES) {
		uint64_t len = LP_MIN(size - at, PIECE_BYTES);
		read_piece(copy, source, bytes, at, len);
		err = write_piece(fd, bytes, at, len);
		lpi_progress_add(&progress, len, 0);
	}
	lpi_progress_stop(&progress);
	free(bytes);
	return err == 0 && fsync(fd) < 0 ? -errno : err;
}

/* --- Files ------------------------------------------------------------------------------------ */

static int make_file(struct lpi_fsck_copy *copy, int device, struct lp_bdev *source)
{
	char *path = copy->path[device];
	int err = make_path(copy, suffixes[device], path);
	if (err < 0)
		return err;
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, S_IRUSR | S_IWUSR);
	if (fd < 0)
		return say(path, -errno);
	copy->is_made[device] = true;
	err = copy_bytes(copy, source, fd);
	if (close(fd) < 0 && err == 0)
		err = -errno;
	if (err < 0)
		return say(path, err);
	return lpi_device_open(path, false, &copy->bdev[device]);
}

/* So that the copy is never opened together with what it is a copy of. */
static int name_copies(struct lpi_fsck_copy *copy)
{
	struct lp_disk_label label;
	char path[LPI_FSCK_COPY_PATH_MAX];
	int err = lpi_device_read_label(copy->bdev[LP_ROLE_DATA], true, &label);
	if (err < 0)
		return err;
	for (int i = LP_ROLE_DB; i < LP_ROLES; i++) {
		uint8_t *field = i == LP_ROLE_DB ? label.db_path : label.wal_path;
		if (copy->bdev[i] == NULL)
			continue;
		err = lp_devices_absolute_path(copy->path[i], path, sizeof(path));
		if (err == 0 && strlen(path) >= sizeof(label.db_path))
			err = -ENAMETOOLONG;
		if (err < 0)
			return say(copy->path[i], err);
		/* It ends with zeros; its length was looked at above. */
		memset(field, 0, sizeof(label.db_path));
		(void)memccpy(field, path, 0, sizeof(label.db_path));
	}
	err = lp_label_update(copy->bdev[LP_ROLE_DATA], &label);
	return err < 0 ? say(copy->to, err) : 0;
}

static int make_scratch(struct lpi_fsck_copy *copy)
{
	char *path = copy->scratch_path;
	int err = make_path(copy, ".XXXXXX", path);
	if (err < 0) {
		path[0] = '\0';
		return err;
	}
	if (mkdtemp(path) == NULL) {
		err = say(path, -errno);
		path[0] = '\0';
		return err;
	}
	copy->scratch_fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (copy->scratch_fd < 0)
		return say(path, -errno);
	lp_kvfs_posix_init(&copy->scratch, copy->scratch_fd);
	return 0;
}

int lpi_fsck_copy_make(struct lpi_fsck_copy *copy, const char *to,
		       struct lp_bdev *const source[LP_ROLES])
{
	int err = 0;
	*copy = (struct lpi_fsck_copy){.to = to, .scratch_fd = -1};
	for (int i = 0; i < LP_ROLES && err == 0; i++) {
		if (source[i] != NULL)
			err = make_file(copy, i, source[i]);
	}
	if (err == 0)
		err = name_copies(copy);
	if (err == 0)
		err = make_scratch(copy);
	if (err < 0)
		lpi_fsck_copy_close(copy, false);
	return err;
}

static int remove_one(const char *name, void *arg)
{
	const struct lpi_fsck_copy *copy = arg;
	(void)unlinkat(copy->scratch_fd, name, 0); /* then the directory stays, too */
	return 0;
}

void lpi_fsck_copy_close(struct lpi_fsck_copy *copy, bool is_kept)
{
	if (copy->to == NULL)
		return;
	if (copy->scratch_fd >= 0) {
		int err = copy->scratch.kvfs.ops->list(&copy->scratch.kvfs, remove_one, copy);
		(void)err; /* as above */
		(void)close(copy->scratch_fd);
	}
	if (copy->scratch_path[0] != '\0')
		(void)rmdir(copy->scratch_path); /* empty, or somebody else's by now */
	for (int i = 0; i < LP_ROLES; i++) {
		lp_bdev_close(copy->bdev[i]);
		if (copy->is_made[i] && !is_kept)
			(void)unlink(copy->path[i]); /* what stays is seen by its name */
	}
	*copy = (struct lpi_fsck_copy){.scratch_fd = -1};
}
