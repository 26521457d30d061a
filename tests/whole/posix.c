/* SPDX-License-Identifier: Apache-2.0 */
/* An inode is named by a path that the model knows; one that has none by the descriptor that has it
 * open, below /proc/self/fd. Attributes are compared here, for a file system says of them less, and
 * some in another way: what differs is said as -EPROTO. */
#include "tests/whole/posix.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/hash.h"

#define PATH_BYTES 4096u

struct call {
	struct lpi_whole_posix *posix;
	const struct lpi_whole *whole;
	const struct lpi_whole_op *op;
	struct lpi_whole_answer *answer;
};

struct path {
	bool is_fd; /* a magic link, to be followed */
	char bytes[PATH_BYTES];
};

static bool has_flag(const struct call *call, uint32_t flag)
{
	return (call->op->flags & flag) != 0;
}

static int result_of(int64_t r)
{
	return r < 0 ? -errno : 0;
}

/* --- Paths ------------------------------------------------------------------------------------ */

static int fd_of(const struct lpi_whole_posix *posix, uint32_t slot)
{
	for (uint32_t i = 0; i < posix->open_cnt; i++)
		if (posix->opens[i].slot == slot)
			return posix->opens[i].fd;
	return -1;
}

/* From its end upwards; false: it is too long. */
static bool path_by_names(const struct call *call, uint32_t slot, struct path *ret)
{
	struct lpi_whole_bytes name;
	char up[PATH_BYTES];
	size_t at = sizeof(up) - 1;
	up[at] = '\0';
	while (slot != LPI_WHOLE_ROOT) {
		uint32_t i = 0;
		while (i < call->whole->entry_cnt && call->whole->entries[i].node != slot)
			i++;
		LP_ASSERT(i < call->whole->entry_cnt);
		lpi_whole_name(call->whole->entries[i].name, &name);
		if (at < name.len + strlen(call->posix->root) + 300)
			return false;
		at -= name.len;
		memcpy(up + at, name.bytes, name.len);
		up[--at] = '/';
		slot = call->whole->entries[i].dir;
	}
	(void)snprintf(ret->bytes, sizeof(ret->bytes), "%s%s", call->posix->root, up + at);
	ret->is_fd = false;
	return true;
}

/* False: there is no way to it. */
static bool path_of(const struct call *call, uint32_t slot, struct path *ret)
{
	const struct lpi_whole_node *node = lpi_whole_find(call->whole, slot);
	if (node == NULL)
		return false;
	if (node->names > 0)
		return path_by_names(call, slot, ret);
	int fd = fd_of(call->posix, slot);
	ret->is_fd = true;
	(void)snprintf(ret->bytes, sizeof(ret->bytes), "/proc/self/fd/%d", fd);
	return fd >= 0;
}

static bool path_in(const struct call *call, uint32_t dir, uint32_t name, struct path *ret)
{
	struct lpi_whole_bytes bytes;
	if (!path_of(call, dir, ret) || strlen(ret->bytes) + 260 > sizeof(ret->bytes))
		return false;
	lpi_whole_name(name, &bytes);
	size_t len = strlen(ret->bytes);
	(void)snprintf(ret->bytes + len, sizeof(ret->bytes) - len, "/%.*s", (int)bytes.len,
		       bytes.bytes);
	ret->is_fd = false;
	return true;
}

static int follow(const struct path *path)
{
	return path->is_fd ? 0 : AT_SYMLINK_NOFOLLOW;
}

static const struct lpi_whole_node *file_of(const struct call *call, struct path *ret)
{
	const struct lpi_whole_node *node = lpi_whole_find(call->whole, call->op->node);
	bool is_file = node != NULL && node->type == LP_INODE_TYPE_FILE;
	return is_file && path_of(call, call->op->node, ret) ? node : NULL;
}

/* --- Names ------------------------------------------------------------------------------------ */

static void keep_open(const struct call *call, uint32_t slot, int fd)
{
	struct lpi_whole_posix *posix = call->posix;
	LP_ASSERT(posix->open_cnt < LPI_WHOLE_POSIX_OPENS);
	posix->opens[posix->open_cnt].slot = slot;
	posix->opens[posix->open_cnt++].fd = fd;
}

/* One that is there already is opened, if it may be. */
static int make_file(const struct call *call, const char *path, uint32_t slot)
{
	int flags = O_CREAT | O_RDWR | O_CLOEXEC | (has_flag(call, LPI_WHOLE_OR_OPEN) ? 0 : O_EXCL);
	if (has_flag(call, LPI_WHOLE_UNNAMED))
		flags = O_TMPFILE | O_RDWR | O_CLOEXEC;
	int fd = open(path, flags, call->op->mode);
	if (fd < 0)
		return -errno;
	if (has_flag(call, LPI_WHOLE_UNNAMED) || has_flag(call, LPI_WHOLE_AND_OPEN)) {
		keep_open(call, slot, fd);
		return 0;
	}
	return result_of(close(fd));
}

static int make_other(const struct call *call, const char *path)
{
	static const mode_t types[] = {[LP_INODE_TYPE_FIFO] = S_IFIFO,
				       [LP_INODE_TYPE_SOCKET] = S_IFSOCK,
				       [LP_INODE_TYPE_CHARDEV] = S_IFCHR,
				       [LP_INODE_TYPE_BLOCKDEV] = S_IFBLK};
	const struct lpi_whole_op *op = call->op;
	char target[LP_INODE_TARGET_MAX + 1];
	if (op->type == LP_INODE_TYPE_DIR)
		return result_of(mkdir(path, op->mode));
	if (op->type != LP_INODE_TYPE_SYMLINK)
		return result_of(mknod(path, types[op->type] | op->mode, makedev(1, 9)));
	lpi_whole_target(op->seed, target);
	target[lpi_whole_target_len(op->seed)] = '\0';
	return result_of(symlink(target, path));
}

static int do_make(const struct call *call)
{
	const struct lpi_whole_op *op = call->op;
	const struct lpi_whole_entry *entry = lpi_whole_entry_find(call->whole, op->dir, op->name);
	struct path path;
	struct stat st;
	bool is_there = entry != NULL && !has_flag(call, LPI_WHOLE_UNNAMED);
	bool is_file =
		is_there && lpi_whole_find(call->whole, entry->node)->type == LP_INODE_TYPE_FILE;
	/* What is no file, opening it would follow or wait for. */
	if (is_there && !is_file && has_flag(call, LPI_WHOLE_OR_OPEN))
		return LPI_WHOLE_SKIPPED;
	bool has_path = has_flag(call, LPI_WHOLE_UNNAMED) ? path_of(call, op->dir, &path)
							  : path_in(call, op->dir, op->name, &path);
	if (!has_path)
		return LPI_WHOLE_SKIPPED;
	uint32_t slot = is_there ? entry->node : lpi_whole_slot(op);
	int r = op->type == LP_INODE_TYPE_FILE ? make_file(call, path.bytes, slot)
					       : make_other(call, path.bytes);
	if (r < 0)
		return r;
	bool is_unnamed = has_flag(call, LPI_WHOLE_UNNAMED);
	int found = is_unnamed ? fstat(fd_of(call->posix, slot), &st) : lstat(path.bytes, &st);
	call->answer->ino = st.st_ino;
	return result_of(found);
}

static int do_link(const struct call *call)
{
	struct path from;
	struct path to;
	if (!path_of(call, call->op->node, &from) ||
	    !path_in(call, call->op->dir, call->op->name, &to))
		return LPI_WHOLE_SKIPPED;
	return result_of(linkat(AT_FDCWD, from.bytes, AT_FDCWD, to.bytes,
				from.is_fd ? AT_SYMLINK_FOLLOW : 0));
}

static int do_remove(const struct call *call)
{
	struct path path;
	if (!path_in(call, call->op->dir, call->op->name, &path))
		return LPI_WHOLE_SKIPPED;
	return result_of(unlinkat(AT_FDCWD, path.bytes,
				  has_flag(call, LPI_WHOLE_IS_DIR) ? AT_REMOVEDIR : 0));
}

static int do_rename(const struct call *call)
{
	struct path from;
	struct path to;
	uint32_t flags = (has_flag(call, LPI_WHOLE_EXCHANGE) ? RENAME_EXCHANGE : 0U) |
			 (has_flag(call, LPI_WHOLE_NOREPLACE) ? RENAME_NOREPLACE : 0U);
	if (!path_in(call, call->op->dir, call->op->name, &from) ||
	    !path_in(call, call->op->to_dir, call->op->to_name, &to))
		return LPI_WHOLE_SKIPPED;
	return result_of(renameat2(AT_FDCWD, from.bytes, AT_FDCWD, to.bytes, flags));
}

static int do_open(const struct call *call)
{
	const struct lpi_whole_node *node = lpi_whole_find(call->whole, call->op->node);
	struct path path;
	if (!path_of(call, call->op->node, &path))
		return LPI_WHOLE_SKIPPED;
	int flags = O_PATH | (path.is_fd ? 0 : O_NOFOLLOW);
	if (node->type == LP_INODE_TYPE_FILE)
		flags = O_RDWR;
	int fd = open(path.bytes, flags | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	keep_open(call, node->slot, fd);
	return 0;
}

static int do_close(const struct call *call)
{
	struct lpi_whole_posix *posix = call->posix;
	for (uint32_t i = 0; i < posix->open_cnt; i++) {
		if (posix->opens[i].slot != call->op->node)
			continue;
		int fd = posix->opens[i].fd;
		posix->opens[i] = posix->opens[--posix->open_cnt];
		return result_of(close(fd));
	}
	return LPI_WHOLE_SKIPPED;
}

static int do_set(const struct call *call)
{
	const struct lpi_whole_op *op = call->op;
	const struct lpi_whole_node *node = lpi_whole_find(call->whole, op->node);
	const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = 5}};
	struct path path;
	int r = 0;
	if (!path_of(call, op->node, &path) || node->type == LP_INODE_TYPE_SYMLINK)
		return LPI_WHOLE_SKIPPED;
	if ((op->mask & LP_ATTR_MODE) != 0)
		r = chmod(path.bytes, op->mode);
	if (r == 0 && (op->mask & LP_ATTR_UID) != 0)
		r = fchownat(AT_FDCWD, path.bytes, lpi_whole_owner(op->seed),
			     lpi_whole_owner(op->seed / 7), follow(&path));
	if (r == 0 && (op->mask & LP_ATTR_MTIME) != 0)
		r = utimensat(AT_FDCWD, path.bytes, times, follow(&path));
	return result_of(r);
}

/* --- What is in an inode ---------------------------------------------------------------------- */

static int write_all(const struct call *call, int fd)
{
	const struct lpi_whole_op *op = call->op;
	uint8_t *bytes = malloc(op->length);
	LP_ASSERT(bytes != NULL);
	lpi_whole_fill(op->seed, bytes, op->length);
	ssize_t r = op->kind == LPI_WHOLE_APPEND ? write(fd, bytes, op->length)
						 : pwrite(fd, bytes, op->length, (off_t)op->offset);
	int error = errno;
	free(bytes);
	if (r < 0)
		return -error;
	return (uint64_t)r == op->length ? 0 : -EPROTO;
}

static int change_data(const struct call *call, int fd, const struct lpi_whole_node *node)
{
	const struct lpi_whole_op *op = call->op;
	int modes = op->kind == LPI_WHOLE_PUNCH ? FALLOC_FL_PUNCH_HOLE : 0;
	int r = 0;
	switch (op->kind) {
	case LPI_WHOLE_WRITE:
		return write_all(call, fd);
	case LPI_WHOLE_APPEND:
		r = write_all(call, fd);
		call->answer->cnt = r < 0 ? 0 : node->size_bytes;
		return r;
	case LPI_WHOLE_TRUNCATE:
		return result_of(ftruncate(fd, (off_t)op->offset));
	default:
		return result_of(fallocate(fd, modes | FALLOC_FL_KEEP_SIZE, (off_t)op->offset,
					   (off_t)op->length));
	}
}

static int do_data(const struct call *call)
{
	struct path path;
	const struct lpi_whole_node *node = file_of(call, &path);
	bool is_append = call->op->kind == LPI_WHOLE_APPEND;
	uint64_t begin = is_append && node != NULL ? node->size_bytes : call->op->offset;
	/* What goes beyond the largest file is written as far as it goes. */
	if (node == NULL || call->op->condition != 0 ||
	    lp_range_outside(begin, call->op->length, LP_STORE_FILE_MAX))
		return LPI_WHOLE_SKIPPED;
	int fd = open(path.bytes, O_RDWR | O_CLOEXEC | (is_append ? O_APPEND : 0));
	if (fd < 0)
		return -errno;
	int r = change_data(call, fd, node);
	return close(fd) < 0 && r == 0 ? -errno : r;
}

static int do_xattr(const struct call *call)
{
	const struct lpi_whole_op *op = call->op;
	const struct lpi_whole_node *node = lpi_whole_find(call->whole, op->node);
	struct lpi_whole_bytes name;
	struct path path;
	bool may = node != NULL && op->condition == 0 && op->name != LPI_WHOLE_XATTR_ACL &&
		   (node->type == LP_INODE_TYPE_FILE || node->type == LP_INODE_TYPE_DIR);
	if (!may || !path_of(call, op->node, &path))
		return LPI_WHOLE_SKIPPED;
	lpi_whole_xattr_name(op->name, &name);
	name.bytes[name.len] = '\0';
	if (op->kind == LPI_WHOLE_XATTR_REMOVE)
		return result_of(removexattr(path.bytes, name.bytes));
	uint8_t *value = malloc(op->length + 1);
	LP_ASSERT(value != NULL);
	lpi_whole_fill(op->seed, value, op->length);
	int r = setxattr(path.bytes, name.bytes, value, op->length, 0);
	int error = errno;
	free(value);
	return r < 0 ? -error : 0;
}

static int do_sync(const struct call *call)
{
	int fd = open(call->posix->root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	int r = result_of(fsync(fd));
	(void)close(fd); /* it was only read */
	return r;
}

/* --- What only asks --------------------------------------------------------------------------- */

static uint32_t type_of(mode_t mode)
{
	static const struct {
		mode_t mode;
		uint32_t type;
	} types[] = {{S_IFREG, LP_INODE_TYPE_FILE},    {S_IFDIR, LP_INODE_TYPE_DIR},
		     {S_IFLNK, LP_INODE_TYPE_SYMLINK}, {S_IFIFO, LP_INODE_TYPE_FIFO},
		     {S_IFSOCK, LP_INODE_TYPE_SOCKET}, {S_IFCHR, LP_INODE_TYPE_CHARDEV},
		     {S_IFBLK, LP_INODE_TYPE_BLOCKDEV}};
	for (size_t i = 0; i < LP_ARRAY_SIZE(types); i++)
		if (types[i].mode == (mode & S_IFMT))
			return types[i].type;
	return 0;
}

/* Of what a file system says as the model does: not of a directory's size, a symlink's mode. */
static int compare(const struct call *call, uint32_t slot, const struct stat *st)
{
	const struct lpi_whole_node *node = lpi_whole_find(call->whole, slot);
	bool is_dir = node->type == LP_INODE_TYPE_DIR;
	bool is_link = node->type == LP_INODE_TYPE_SYMLINK;
	bool is_root = slot == LPI_WHOLE_ROOT;
	bool is_same = type_of(st->st_mode) == node->type &&
		       (is_dir || (uint64_t)st->st_size == node->size_bytes) &&
		       (is_link || is_root || (st->st_mode & 07777) == node->mode) &&
		       st->st_uid == node->uid && st->st_gid == node->gid &&
		       st->st_nlink == lpi_whole_nlink(call->whole, node) &&
		       (is_root || st->st_ino == lpi_whole_ino(call->whole, slot));
	if (is_same)
		return LPI_WHOLE_SKIPPED;
	(void)fprintf(stderr, "found type %u size %llu mode %o uid %u gid %u links %u ino %llx\n",
		      type_of(st->st_mode), (unsigned long long)st->st_size, st->st_mode & 07777,
		      st->st_uid, st->st_gid, (uint32_t)st->st_nlink,
		      (unsigned long long)st->st_ino);
	(void)fprintf(stderr, "model type %u size %llu mode %o uid %u gid %u links %u ino %llx\n",
		      node->type, (unsigned long long)node->size_bytes, node->mode, node->uid,
		      node->gid, lpi_whole_nlink(call->whole, node),
		      (unsigned long long)lpi_whole_ino(call->whole, slot));
	return -EPROTO;
}

static int do_stat(const struct call *call)
{
	struct path path;
	struct stat st;
	if (!path_of(call, call->op->node, &path))
		return LPI_WHOLE_SKIPPED;
	if (fstatat(AT_FDCWD, path.bytes, &st, follow(&path)) < 0)
		return -errno;
	return compare(call, call->op->node, &st);
}

static int do_lookup(const struct call *call)
{
	const struct lpi_whole_entry *entry =
		lpi_whole_entry_find(call->whole, call->op->dir, call->op->name);
	struct path path;
	struct stat st;
	if (!path_in(call, call->op->dir, call->op->name, &path))
		return LPI_WHOLE_SKIPPED;
	if (lstat(path.bytes, &st) < 0)
		return -errno;
	return entry == NULL ? 0 : compare(call, entry->node, &st);
}

static int do_read(const struct call *call)
{
	struct path path;
	if (file_of(call, &path) == NULL)
		return LPI_WHOLE_SKIPPED;
	int fd = open(path.bytes, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	uint8_t *bytes = malloc(call->op->length);
	LP_ASSERT(bytes != NULL);
	ssize_t len = pread(fd, bytes, call->op->length, (off_t)call->op->offset);
	int r = result_of(len);
	if (len >= 0) {
		call->answer->cnt = (uint64_t)len;
		call->answer->hash = lp_hash_u64(bytes, (size_t)len, 0);
	}
	(void)close(fd); /* it was only read */
	free(bytes);
	return r;
}

static int do_seek(const struct call *call)
{
	struct path path;
	if (file_of(call, &path) == NULL)
		return LPI_WHOLE_SKIPPED;
	int fd = open(path.bytes, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	off_t found = lseek(fd, (off_t)call->op->offset,
			    has_flag(call, LPI_WHOLE_HOLE) ? SEEK_HOLE : SEEK_DATA);
	int r = result_of(found);
	call->answer->cnt = found < 0 ? 0 : (uint64_t)found;
	(void)close(fd); /* it was only read */
	return r;
}

/* One attribute more; those of the system are not the model's. */
static int add_xattr(const struct call *call, const char *path, const char *name)
{
	uint8_t *value = malloc(LPI_WHOLE_VALUE_MAX);
	LP_ASSERT(value != NULL);
	ssize_t len = getxattr(path, name, value, LPI_WHOLE_VALUE_MAX);
	int r = result_of(len);
	if (len >= 0) {
		call->answer->cnt++;
		call->answer->hash +=
			lpi_whole_hash_item(false, (struct lp_bytes){name, (uint32_t)strlen(name)},
					    (struct lp_bytes){value, (uint32_t)len});
	}
	free(value);
	return r;
}

static int do_xattrs(const struct call *call)
{
	const struct lpi_whole_node *node = lpi_whole_find(call->whole, call->op->node);
	static char names[65536];
	struct path path;
	bool may = node != NULL && !has_flag(call, LPI_WHOLE_OMAP) &&
		   (node->type == LP_INODE_TYPE_FILE || node->type == LP_INODE_TYPE_DIR);
	if (!may || !path_of(call, call->op->node, &path))
		return LPI_WHOLE_SKIPPED;
	ssize_t len = listxattr(path.bytes, names, sizeof(names));
	int r = result_of(len);
	for (ssize_t at = 0; r == 0 && at < len; at += (ssize_t)strlen(names + at) + 1)
		if (strncmp(names + at, "user.", 5) == 0 || strncmp(names + at, "trusted.", 8) == 0)
			r = add_xattr(call, path.bytes, names + at);
	return r;
}

static int do_readdir(const struct call *call)
{
	static const uint32_t types[] = {
		[DT_REG] = LP_INODE_TYPE_FILE,    [DT_DIR] = LP_INODE_TYPE_DIR,
		[DT_LNK] = LP_INODE_TYPE_SYMLINK, [DT_FIFO] = LP_INODE_TYPE_FIFO,
		[DT_SOCK] = LP_INODE_TYPE_SOCKET, [DT_CHR] = LP_INODE_TYPE_CHARDEV,
		[DT_BLK] = LP_INODE_TYPE_BLOCKDEV};
	const struct lpi_whole_node *node = lpi_whole_find(call->whole, call->op->dir);
	const struct dirent *entry = NULL;
	struct path path;
	if (!lpi_whole_is_dir(node) || node->names == 0 || !path_of(call, call->op->dir, &path))
		return LPI_WHOLE_SKIPPED;
	DIR *dir = opendir(path.bytes);
	if (dir == NULL)
		return -errno;
	/* The stream is this function's. NOLINTNEXTLINE(concurrency-mt-unsafe) */
	while ((entry = readdir(dir)) != NULL) {
		if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
			continue;
		const struct lp_bytes name = {entry->d_name, (uint32_t)strlen(entry->d_name)};
		call->answer->cnt++;
		call->answer->hash += lpi_whole_hash_name(name, entry->d_ino, types[entry->d_type]);
	}
	return result_of(closedir(dir));
}

/* --- All -------------------------------------------------------------------------------------- */

static void posix_apply(struct lpi_whole_door *door, const struct lpi_whole *whole,
			const struct lpi_whole_op *op, struct lpi_whole_answer *ret)
{
	static int (*const calls[LPI_WHOLE_KIND_CNT])(const struct call *call) = {
		[LPI_WHOLE_MAKE] = do_make,       [LPI_WHOLE_LINK] = do_link,
		[LPI_WHOLE_REMOVE] = do_remove,   [LPI_WHOLE_RENAME] = do_rename,
		[LPI_WHOLE_OPEN] = do_open,       [LPI_WHOLE_CLOSE] = do_close,
		[LPI_WHOLE_SET] = do_set,         [LPI_WHOLE_WRITE] = do_data,
		[LPI_WHOLE_APPEND] = do_data,     [LPI_WHOLE_TRUNCATE] = do_data,
		[LPI_WHOLE_PUNCH] = do_data,      [LPI_WHOLE_PREALLOC] = do_data,
		[LPI_WHOLE_XATTR_SET] = do_xattr, [LPI_WHOLE_XATTR_REMOVE] = do_xattr,
		[LPI_WHOLE_SYNC] = do_sync,       [LPI_WHOLE_STAT] = do_stat,
		[LPI_WHOLE_LOOKUP] = do_lookup,   [LPI_WHOLE_READ] = do_read,
		[LPI_WHOLE_SEEK] = do_seek,       [LPI_WHOLE_XATTRS] = do_xattrs,
		[LPI_WHOLE_READDIR] = do_readdir,
	};
	struct call call = {.posix = LP_CONTAINER_OF(door, struct lpi_whole_posix, door),
			    .whole = whole,
			    .op = op,
			    .answer = ret};
	*ret = (struct lpi_whole_answer){.result = LPI_WHOLE_SKIPPED};
	if (calls[op->kind] != NULL)
		ret->result = calls[op->kind](&call);
}

void lpi_whole_posix_init(struct lpi_whole_posix *posix, const char *root)
{
	*posix = (struct lpi_whole_posix){.door = {posix_apply}};
	LP_ASSERT(strlen(root) < sizeof(posix->root));
	memcpy(posix->root, root, strlen(root) + 1);
}

void lpi_whole_posix_fini(struct lpi_whole_posix *posix)
{
	while (posix->open_cnt > 0)
		(void)close(posix->opens[--posix->open_cnt].fd); /* what is left */
}

void lpi_whole_posix_fit(struct lpi_whole_op *op)
{
	op->flags &= ~(LPI_WHOLE_ORDERED | LPI_WHOLE_SPREAD);
	op->mode &= 0777;
	op->items = op->kind == LPI_WHOLE_MAKE ? 0 : op->items;
	if (op->kind == LPI_WHOLE_XATTR_SET)
		op->length = LP_MIN(op->length, LP_NS_VALUE_MAX);
}
