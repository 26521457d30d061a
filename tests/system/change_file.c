/* SPDX-License-Identifier: Apache-2.0 */
/* Changes a file while it is read: preloaded into lapis by put_changes.sh, which compiles it.
 *
 * When the program reads the file LP_CHANGE_FILE for the LP_CHANGE_AT-th time the file is changed
 * before the read, as LP_CHANGE_HOW says: grow, shrink, overwrite, or back: overwritten, with the
 * time of the last change set back. Any other read is the system's. */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

static int is_file(int fd, const char *path)
{
	struct stat one;
	struct stat other;
	return path != NULL && fstat(fd, &one) == 0 && stat(path, &other) == 0 &&
	       one.st_dev == other.st_dev && one.st_ino == other.st_ino;
}

static void change(const char *path, const char *how)
{
	struct stat st;
	int fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) < 0)
		abort();
	if (strcmp(how, "grow") == 0 && pwrite(fd, "more", 4, st.st_size) != 4)
		abort();
	if (strcmp(how, "shrink") == 0 && ftruncate(fd, st.st_size - 1) < 0)
		abort();
	if ((strcmp(how, "overwrite") == 0 || strcmp(how, "back") == 0) &&
	    pwrite(fd, "other", 5, st.st_size - 5) != 5)
		abort();
	const struct timespec times[2] = {st.st_atim, st.st_mtim};
	if (strcmp(how, "back") == 0 && futimens(fd, times) < 0)
		abort();
	(void)close(fd); /* a local file */
}

/* Under the names of the C library; the second is used where the room is known at compile time. */
EXPORT ssize_t lpi_read(int fd, void *buf, size_t len) __asm__("read");
EXPORT ssize_t lpi_read_chk(int fd, void *buf, size_t len, size_t room) __asm__("__read_chk");

ssize_t lpi_read(int fd, void *buf, size_t len)
{
	static long reads;
	const char *path = getenv("LP_CHANGE_FILE"); /* NOLINT(concurrency-mt-unsafe): no threads */
	const char *at = getenv("LP_CHANGE_AT");     /* NOLINT(concurrency-mt-unsafe): as above */
	const char *how = getenv("LP_CHANGE_HOW");   /* NOLINT(concurrency-mt-unsafe): as above */
	if (at != NULL && how != NULL && is_file(fd, path) && ++reads == strtol(at, NULL, 10))
		change(path, how);
	return syscall(SYS_read, fd, buf, len);
}

ssize_t lpi_read_chk(int fd, void *buf, size_t len, size_t room)
{
	return len > room ? (abort(), 0) : lpi_read(fd, buf, len);
}
