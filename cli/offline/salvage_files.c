/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/offline/salvage_files.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/error.h"

#define PERMISSIONS 0777u
#define ALL_MODE    07777u

/* One file that is being written. */
struct writing {
	struct lp_salvage_reader reader;
	struct lpi_salvage_files *files;
	const char *path;
	int fd;
	uint64_t from; /* a damaged part: where it begins, and its length */
	uint64_t len;
	bool is_damaged;
};

/* --- Places ----------------------------------------------------------------------------------- */

/* The directory that a path lies in, opened, and its last name. Directories on the way are made if
 * they are not there: of what is damaged, and of what is lost. */
static int open_parent(const struct lpi_salvage_files *files, const char *path,
		       const char **ret_name)
{
	char name[LP_KEY_NAME_MAX + 1];
	int fd = fcntl(files->dir_fd, F_DUPFD_CLOEXEC, 0);
	for (const char *slash; fd >= 0 && (slash = strchr(path, '/')) != NULL; path = slash + 1) {
		size_t len = (size_t)(slash - path);
		if (len >= sizeof(name)) {
			(void)close(fd);
			return -ENAMETOOLONG;
		}
		memcpy(name, path, len);
		name[len] = '\0';
		if (mkdirat(fd, name, S_IRWXU) < 0 && errno != EEXIST) {
			int err = -errno;
			(void)close(fd);
			return err;
		}
		int next = openat(fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		int err = -errno;
		(void)close(fd);
		if (next < 0)
			return err;
		fd = next;
	}
	*ret_name = path;
	return fd < 0 ? -errno : fd;
}

static void say(const char *path, const char *text)
{
	lpi_cli_print_escaped(stdout, path);
	(void)printf(": %s\n", text);
}

/* --- What an inode says beside its content ---------------------------------------------------- */

static void count_left(struct lpi_salvage_files *files, int result)
{
	files->left += result < 0;
}

struct attrs {
	struct lpi_salvage_files *files;
	int fd;
};

static int set_attr(void *arg, struct lp_kv_bytes name, struct lp_kv_bytes value)
{
	const struct attrs *attrs = arg;
	char text[LP_KEY_NAME_MAX + 1];
	LP_ASSERT(name.len < sizeof(text));
	memcpy(text, name.data, name.len);
	text[name.len] = '\0';
	count_left(attrs->files, fsetxattr(attrs->fd, text, value.data, value.len, 0));
	return 0;
}

static int count_entry(void *arg, struct lp_kv_bytes name, struct lp_kv_bytes value)
{
	struct attrs *attrs = arg;
	(void)name;
	(void)value;
	attrs->files->left++;
	return 0;
}

static int set_attrs(struct lpi_salvage_files *files, int fd, const struct lp_inode *inode)
{
	struct attrs attrs = {files, fd};
	struct lp_xattr xattr;
	size_t at = 0;
	while (lp_xattrs_next(inode->xattrs, &at, &xattr)) {
		int err = set_attr(&attrs, (struct lp_kv_bytes){xattr.name.at, xattr.name.len},
				   (struct lp_kv_bytes){xattr.value.at, xattr.value.len});
		(void)err; /* it is 0: what cannot be set is counted */
	}
	if ((inode->flags & LP_INODE_FLAG_HAS_KEYS) == 0)
		return 0;
	int err = lp_salvage_each_key(files->salvage, inode->ino, LP_KEY_SPACE_XATTR, set_attr,
				      &attrs);
	return err < 0 ? err
		       : lp_salvage_each_key(files->salvage, inode->ino, LP_KEY_SPACE_OMAP,
					     count_entry, &attrs);
}

static struct timespec time_of(int64_t ns)
{
	struct timespec time = {.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
	if (time.tv_nsec < 0) {
		time.tv_nsec += 1000000000;
		time.tv_sec--;
	}
	return time;
}

/* Of a file or directory that is open. The mode comes last but for times: an owner takes bits. */
static int set_all(struct lpi_salvage_files *files, int fd, const struct lp_inode *inode)
{
	const struct timespec times[2] = {time_of(inode->atime_ns), time_of(inode->mtime_ns)};
	bool is_dir = inode->type == LP_INODE_TYPE_DIR;
	mode_t mode = inode->mode & (files->is_root ? ALL_MODE : PERMISSIONS);
	int err = set_attrs(files, fd, inode);
	if (files->is_root)
		count_left(files, fchown(fd, inode->uid, inode->gid));
	count_left(files, fchmod(fd, is_dir ? mode | S_IRWXU : mode));
	count_left(files, futimens(fd, times));
	return err;
}

/* --- Content ---------------------------------------------------------------------------------- */

static int write_data(struct lp_salvage_reader *reader, uint64_t offset, const void *bytes,
		      size_t len)
{
	struct writing *writing = LP_CONTAINER_OF(reader, struct writing, reader);
	const uint8_t *at = bytes;
	for (size_t done = 0; done < len;) {
		ssize_t cnt = pwrite(writing->fd, at + done, len - done, (off_t)(offset + done));
		if (cnt <= 0)
			return cnt < 0 ? -errno : -EIO;
		done += (size_t)cnt;
	}
	writing->files->bytes += len;
	lpi_progress_add(&writing->files->progress, len, 0);
	return 0;
}

static void say_damage(struct writing *writing)
{
	char text[128];
	if (writing->len == 0)
		return;
	(void)snprintf(text, sizeof(text),
		       "%" PRIu64 " bytes at %" PRIu64 " are not what their checksum says",
		       writing->len, writing->from);
	say(writing->path, text);
	writing->len = 0;
}

static int note_damage(struct lp_salvage_reader *reader, uint64_t offset, uint64_t len)
{
	struct writing *writing = LP_CONTAINER_OF(reader, struct writing, reader);
	if (writing->from + writing->len != offset)
		say_damage(writing);
	if (writing->len == 0)
		writing->from = offset;
	writing->len += len;
	writing->is_damaged = true;
	return 0;
}

/* Out of the way of what is whole. */
static int move_damaged(struct lpi_salvage_files *files, const char *path)
{
	const char *slash = strchr(path, '/');
	const char *rest = slash != NULL ? slash + 1 : path;
	size_t len = sizeof(LPI_SALVAGE_DAMAGED) + strlen(rest) + 1;
	const char *old_name = path;
	const char *new_name = path;
	char *to = malloc(len);
	if (to == NULL)
		return -ENOMEM;
	(void)snprintf(to, len, "%s/%s", LPI_SALVAGE_DAMAGED, rest);
	int from_fd = open_parent(files, path, &old_name);
	int to_fd = from_fd < 0 ? -1 : open_parent(files, to, &new_name);
	int err = from_fd < 0 ? from_fd : (to_fd < 0 ? to_fd : 0);
	if (err == 0 && renameat(from_fd, old_name, to_fd, new_name) < 0)
		err = -errno;
	if (from_fd >= 0)
		(void)close(from_fd);
	if (to_fd >= 0)
		(void)close(to_fd);
	free(to);
	return err;
}

static int fill_file(struct lpi_salvage_files *files, int fd,
		     const struct lp_salvage_object *object, bool *ret_damaged)
{
	struct writing writing = {.reader = {.data = write_data, .damage = note_damage},
				  .files = files,
				  .path = object->path,
				  .fd = fd};
	int err = ftruncate(fd, (off_t)object->inode->size_bytes) < 0 ? -errno : 0;
	if (err == 0)
		err = lp_salvage_read(files->salvage, object->inode, &writing.reader);
	say_damage(&writing);
	if (err == 1)
		say(object->path, "pieces of its map are lost, and what they had");
	*ret_damaged = err == 1 || writing.is_damaged;
	return err < 0 ? err : set_all(files, fd, object->inode);
}

static int write_file(struct lpi_salvage_files *files, int parent, const char *name,
		      const struct lp_salvage_object *object, bool *ret_damaged)
{
	int fd = openat(parent, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
			S_IRUSR | S_IWUSR);
	if (fd < 0)
		return -errno;
	int err = fill_file(files, fd, object, ret_damaged);
	if (close(fd) < 0 && err == 0)
		err = -errno;
	return err;
}

/* --- Objects ---------------------------------------------------------------------------------- */

static int make_dir(struct lpi_salvage_files *files, int parent, const char *name,
		    const struct lp_inode *inode)
{
	if (mkdirat(parent, name, S_IRWXU) < 0 && errno != EEXIST)
		return -errno;
	files->dirs++;
	if (inode == NULL)
		return 0;
	int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	int err = set_all(files, fd, inode);
	(void)close(fd);
	return err;
}

static int make_link(int parent, const char *name, const struct lp_inode *inode)
{
	char target[LP_INODE_TARGET_MAX + 1];
	LP_ASSERT(inode->target.len < sizeof(target));
	memcpy(target, inode->target.at, inode->target.len);
	target[inode->target.len] = '\0';
	return symlinkat(target, parent, name) < 0 ? -errno : 0;
}

static int make_special(struct lpi_salvage_files *files, int parent, const char *name,
			const struct lp_inode *inode)
{
	static const mode_t types[] = {[LP_INODE_TYPE_FIFO] = S_IFIFO,
				       [LP_INODE_TYPE_SOCKET] = S_IFSOCK,
				       [LP_INODE_TYPE_CHARDEV] = S_IFCHR,
				       [LP_INODE_TYPE_BLOCKDEV] = S_IFBLK};
	LP_ASSERT(inode->type < LP_ARRAY_SIZE(types));
	mode_t mode = types[inode->type] | (inode->mode & PERMISSIONS);
	/* Devices are root's to make. */
	count_left(files, mknodat(parent, name, mode, inode->rdev));
	return 0;
}

static int link_again(struct lpi_salvage_files *files, int parent, const char *name,
		      const char *first_path)
{
	const char *first_name = first_path;
	int fd = open_parent(files, first_path, &first_name);
	if (fd < 0)
		return fd;
	int err = linkat(fd, first_name, parent, name, 0) < 0 ? -errno : 0;
	(void)close(fd);
	/* What is damaged was moved away; its other names are told, and not made. */
	return err;
}

static int make_object(struct lpi_salvage_files *files, int parent, const char *name,
		       const struct lp_salvage_object *object, bool *ret_damaged)
{
	if (object->is_dir)
		return make_dir(files, parent, name, object->inode);
	if (object->first_path != NULL)
		return link_again(files, parent, name, object->first_path);
	switch ((enum lp_inode_type)object->inode->type) {
	case LP_INODE_TYPE_FILE:
		return write_file(files, parent, name, object, ret_damaged);
	case LP_INODE_TYPE_SYMLINK:
		return make_link(parent, name, object->inode);
	case LP_INODE_TYPE_DIR:
	case LP_INODE_TYPE_FIFO:
	case LP_INODE_TYPE_SOCKET:
	case LP_INODE_TYPE_CHARDEV:
	case LP_INODE_TYPE_BLOCKDEV:
		break;
	}
	return make_special(files, parent, name, object->inode);
}

static bool is_unnamed(const char *path)
{
	return strncmp(path, LP_SALVAGE_LOST "/", sizeof(LP_SALVAGE_LOST)) == 0;
}

static void count(struct lpi_salvage_files *files, const struct lp_salvage_object *object,
		  bool is_damaged)
{
	files->guessed += object->is_guessed && !is_unnamed(object->path);
	files->unnamed += is_unnamed(object->path) && (!object->is_dir || object->inode != NULL);
	files->damaged += is_damaged;
	files->whole += !is_damaged && !object->is_dir;
	lpi_progress_add(&files->progress, 0, 1);
}

/* Nothing more can be written; any other error is of one name alone. */
static bool ends_all(int err)
{
	return err == -ENOSPC || err == -EDQUOT || err == -EIO || err == -EROFS || err == -ENOMEM ||
	       err == -EMFILE;
}

static int take_at(struct lpi_salvage_files *files, const struct lp_salvage_object *object)
{
	bool is_damaged = false;
	const char *name = object->path;
	int parent = open_parent(files, object->path, &name);
	int err = parent < 0 ? parent : make_object(files, parent, name, object, &is_damaged);
	if (parent >= 0)
		(void)close(parent);
	if (err == 0 && is_damaged)
		err = move_damaged(files, object->path);
	if (err == 0)
		count(files, object, is_damaged);
	return err;
}

static int take_object(struct lp_salvage_walker *walker, const struct lp_salvage_object *object)
{
	struct lpi_salvage_files *files = LP_CONTAINER_OF(walker, struct lpi_salvage_files, walker);
	struct lp_salvage_object unnamed = *object;
	char path[64];
	if (object->inode == NULL && !object->is_dir) {
		say(object->path, "the object of this name is lost");
		files->lost++;
		return 0;
	}
	int err = take_at(files, object);
	if (err == -ENOENT && object->first_path != NULL) {
		say(object->path, "is another name of a damaged object");
		return 0;
	}
	/* Two inodes say that they have this name. */
	if (err == -EEXIST && object->is_guessed) {
		(void)snprintf(path, sizeof(path), "%s/inode-%" PRIu64, LP_SALVAGE_LOST,
			       object->ino.nr);
		unnamed.path = path;
		err = take_at(files, &unnamed);
	}
	if (err == 0 || ends_all(err))
		return err;
	say(object->path, lp_strerror(err));
	files->left++;
	return 0;
}

int lpi_salvage_files_write(struct lpi_salvage_files *files)
{
	files->walker.object = take_object;
	lpi_progress_start(&files->progress, 0);
	int err = lp_salvage_walk(files->salvage, &files->walker);
	lpi_progress_stop(&files->progress);
	return err;
}
