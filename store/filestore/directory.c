/* SPDX-License-Identifier: Apache-2.0 */
/* The identity is written to a file of another name, synced and renamed, so that an opening that
 * was cut short leaves an empty directory but for that file, which the next one replaces. The lock
 * is the directory's own: no file is left behind that could be mistaken for one. */
#include "store/filestore/directory.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/error.h"

#define IDENTITY     "lapis-file-store"
#define IDENTITY_NEW "lapis-file-store.new"
#define FILE_MODE    0600
#define TEXT_MAX     256u

LP_PRINTF(3, 4) static int refuse(char *why, int err, const char *fmt, ...)
{
	va_list args;
	va_start(args, fmt);
	(void)vsnprintf(why, LP_FILE_DIR_WHY_MAX, fmt, args); /* a longer one is cut */
	va_end(args);
	return err;
}

/* --- The identity ----------------------------------------------------------------------------- */

static int write_new(int dir_fd, const char *text, size_t len)
{
	int fd = openat(dir_fd, IDENTITY_NEW, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, FILE_MODE);
	if (fd < 0)
		return -errno;
	ssize_t done = write(fd, text, len);
	int err = 0;
	if (done < 0)
		err = -errno;
	else if ((size_t)done != len)
		err = -ENOSPC;
	if (err == 0 && fsync(fd) < 0)
		err = -errno;
	if (close(fd) < 0 && err == 0)
		err = -errno;
	return err;
}

static int create(struct lp_file_dir *dir)
{
	char text[TEXT_MAX];
	char hex[2 * LP_FILE_DIR_UUID_BYTES + 1];
	if (getrandom(dir->uuid, sizeof(dir->uuid), 0) != (ssize_t)sizeof(dir->uuid))
		return -EIO;
	for (size_t i = 0; i < sizeof(dir->uuid); i++)
		(void)snprintf(hex + 2 * i, 3, "%02x", dir->uuid[i]); /* fits by its size */
	int len = snprintf(text, sizeof(text), "lapis file store 1\nuuid %s\nshards %" PRIu32 "\n",
			   hex, dir->shard_cnt);
	int err = write_new(dir->fd, text, (size_t)len);
	if (err == 0 && renameat(dir->fd, IDENTITY_NEW, dir->fd, IDENTITY) < 0)
		err = -errno;
	if (err == 0 && fsync(dir->fd) < 0)
		err = -errno;
	return err;
}

/* Each of these takes what it is about from the front of the text; false: it is not there. */

static bool take_word(const char **text, const char *word)
{
	size_t len = strlen(word);
	bool is_there = strncmp(*text, word, len) == 0;
	*text += is_there ? len : 0;
	return is_there;
}

static bool take_number(const char **text, uint32_t *ret_number)
{
	uint32_t number = 0;
	const char *at = *text;
	for (; *at >= '0' && *at <= '9' && number < UINT32_MAX / 100; at++)
		number = number * 10 + (uint32_t)(*at - '0');
	bool is_there = at > *text;
	*text = at;
	*ret_number = number;
	return is_there;
}

static bool take_uuid(const char **text, uint8_t *ret_uuid)
{
	static const char digits[] = "0123456789abcdef";
	for (size_t i = 0; i < LP_FILE_DIR_UUID_BYTES; i++) {
		unsigned byte = 0;
		for (int half = 0; half < 2; half++) {
			const char *digit = **text == '\0' ? NULL : strchr(digits, **text);
			if (digit == NULL)
				return false;
			byte = byte * 16 + (unsigned)(digit - digits);
			(*text)++;
		}
		ret_uuid[i] = (uint8_t)byte;
	}
	return true;
}

static int parse(const char *text, struct lp_file_dir *dir)
{
	uint32_t version = 0;
	uint32_t shard_cnt = 0;
	if (!take_word(&text, "lapis file store ") || !take_number(&text, &version))
		return -EUCLEAN;
	if (version > 1)
		return -ENOTSUP;
	if (!take_word(&text, "\nuuid ") || !take_uuid(&text, dir->uuid) ||
	    !take_word(&text, "\nshards ") || !take_number(&text, &shard_cnt) ||
	    !take_word(&text, "\n") || *text != '\0' || version == 0 || shard_cnt == 0 ||
	    shard_cnt > LP_SHARDS_MAX)
		return -EUCLEAN;
	dir->shard_cnt = shard_cnt;
	return 0;
}

/* -ENOENT: there is none. */
static int read_identity(struct lp_file_dir *dir)
{
	char text[TEXT_MAX];
	int fd = openat(dir->fd, IDENTITY, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return -errno;
	ssize_t len = read(fd, text, sizeof(text) - 1);
	int err = len < 0 ? -errno : 0;
	(void)close(fd); /* nothing was written */
	if (err < 0)
		return err;
	text[len] = '\0';
	return parse(text, dir);
}

/* --- The directory ---------------------------------------------------------------------------- */

static bool is_no_matter(const char *name)
{
	static const char *const names[] = {".", "..", "lost+found", IDENTITY_NEW};
	for (size_t i = 0; i < LP_ARRAY_SIZE(names); i++)
		if (strcmp(names[i], name) == 0)
			return true;
	return false;
}

static int check_empty(int dir_fd)
{
	int fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *stream = fd < 0 ? NULL : fdopendir(fd);
	if (stream == NULL) {
		int err = -errno;
		if (fd >= 0)
			(void)close(fd); /* nothing was written */
		return err;
	}
	const struct dirent *entry;
	int err = 0;
	errno = 0;
	/* Of a stream that only this thread has. */
	while (err == 0 && (entry = readdir(stream)) != NULL) /* NOLINT(concurrency-mt-unsafe) */
		err = is_no_matter(entry->d_name) ? 0 : -ENOTEMPTY;
	if (err == 0)
		err = -errno;
	(void)closedir(stream); /* nothing was written */
	return err;
}

static int find_or_create(const struct lp_file_dir_options *options, struct lp_file_dir *dir,
			  char *why)
{
	const char *path = options->path;
	int err = read_identity(dir);
	if (err == -EUCLEAN)
		return refuse(why, err, "%s/" IDENTITY ": is not what a file store has there",
			      path);
	if (err == -ENOTSUP)
		return refuse(why, err, "%s: a file store of a newer format", path);
	if (err == 0 && options->shard_cnt != 0 && options->shard_cnt != dir->shard_cnt)
		return refuse(why, -EINVAL, "%s: the store has %" PRIu32 " shards", path,
			      dir->shard_cnt);
	if (err != -ENOENT)
		return err < 0 ? refuse(why, err, "%s: %s", path, lp_strerror(err)) : 0;
	err = check_empty(dir->fd);
	if (err == -ENOTEMPTY)
		return refuse(why, err,
			      "%s: no Lapis file store is in it, and it is not empty (give an "
			      "empty directory to make one)",
			      path);
	dir->shard_cnt = options->shard_cnt != 0 ? options->shard_cnt : options->default_shard_cnt;
	if (err == 0)
		err = create(dir);
	return err < 0 ? refuse(why, err, "%s: %s", path, lp_strerror(err)) : 0;
}

int lp_file_dir_open(const struct lp_file_dir_options *options, struct lp_file_dir *ret_dir,
		     char ret_why[LP_FILE_DIR_WHY_MAX])
{
	struct lp_file_dir dir = {.fd = -1};
	LP_ASSERT(options->shard_cnt <= LP_SHARDS_MAX);
	LP_ASSERT(options->default_shard_cnt > 0 && options->default_shard_cnt <= LP_SHARDS_MAX);
	dir.fd = open(options->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir.fd < 0) {
		int err = -errno;
		return refuse(ret_why, err, "%s: %s", options->path, lp_strerror(err));
	}
	int err = 0;
	if (flock(dir.fd, LOCK_EX | LOCK_NB) < 0)
		err = errno == EWOULDBLOCK ? -EBUSY : -errno;
	if (err < 0)
		(void)refuse(ret_why, err, "%s: %s", options->path,
			     err == -EBUSY ? "another process has this store open"
					   : lp_strerror(err));
	else
		err = find_or_create(options, &dir, ret_why);
	if (err < 0) {
		lp_file_dir_close(&dir);
		return err;
	}
	*ret_dir = dir;
	return 0;
}

void lp_file_dir_close(struct lp_file_dir *dir)
{
	if (dir->fd >= 0)
		(void)close(dir->fd); /* nothing was written through it */
	dir->fd = -1;
}
