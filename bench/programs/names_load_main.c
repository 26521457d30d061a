/* SPDX-License-Identifier: Apache-2.0 */
/* What names cost on a file system: makes small files in a new directory, asks for the attributes
 * of each, and removes them, one after the other.
 *
 *   names_load [--count N] [--bytes N] DIR
 *
 * DIR is made, and removed again. The result is one JSON object: operations a second of each. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"

#define BYTES_MAX 65536u

static uint8_t content[BYTES_MAX];

LP_NORETURN static void die(const char *what, int err)
{
	(void)fprintf(stderr, "names_load: %s: %s\n", what, lp_strerror(err));
	_exit(1);
}

static void make(const char *name, size_t bytes)
{
	int fd = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
	if (fd < 0)
		die(name, -errno);
	if (bytes > 0 && write(fd, content, bytes) != (ssize_t)bytes)
		die(name, -EIO);
	if (close(fd) < 0)
		die(name, -errno);
}

static void look(const char *name, size_t bytes)
{
	struct stat st;
	if (stat(name, &st) < 0)
		die(name, -errno);
	if (st.st_size != (off_t)bytes)
		die(name, -EUCLEAN);
}

static void take_away(const char *name, size_t bytes)
{
	(void)bytes;
	if (unlink(name) < 0)
		die(name, -errno);
}

/* Operations a second. */
static double run(void (*one)(const char *name, size_t bytes), unsigned cnt, size_t bytes)
{
	char name[32];
	uint64_t began_ns = lp_clock_mono_ns(lp_clock_system());
	for (unsigned i = 0; i < cnt; i++) {
		(void)snprintf(name, sizeof(name), "file-%06u", i);
		one(name, bytes);
	}
	uint64_t took_ns = lp_clock_mono_ns(lp_clock_system()) - began_ns;
	return cnt * 1e9 / (double)(took_ns == 0 ? 1 : took_ns);
}

int main(int argc, char **argv)
{
	unsigned cnt = 10000;
	size_t bytes = 1024;
	const char *dir = NULL;
	for (int i = 1; i < argc; i++) {
		const char *value = i + 1 < argc ? argv[i + 1] : "";
		if (strcmp(argv[i], "--count") == 0)
			cnt = (unsigned)strtoul(value, NULL, 10);
		else if (strcmp(argv[i], "--bytes") == 0)
			bytes = strtoul(value, NULL, 10);
		else
			dir = argv[i--];
		i++;
	}
	if (dir == NULL || cnt == 0 || bytes > BYTES_MAX)
		die("a directory, and at most 65536 bytes", -EINVAL);
	int home = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (home < 0 || mkdir(dir, 0755) < 0 || chdir(dir) < 0)
		die(dir, -errno);
	double made = run(make, cnt, bytes);
	double seen = run(look, cnt, bytes);
	double removed = run(take_away, cnt, bytes);
	if (fchdir(home) < 0 || rmdir(dir) < 0)
		die(dir, -errno);
	(void)printf("{\"create\": %.1f, \"stat\": %.1f, \"unlink\": %.1f}\n", made, seen, removed);
	return 0;
}
