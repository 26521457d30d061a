/* SPDX-License-Identifier: Apache-2.0 */
/* The table of mounts says which mount is where. A path is not accessed before its mount is known
 * to be alive: access to a dead mount fails, and access to a hanging one never ends. */
#include "fuse/mount/umount.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#define TYPE "fuse." LPI_FUSE_SUBTYPE

/* --- Table of mounts -------------------------------------------------------------------------- */

/* The table of mounts has spaces and the like as octal numbers. */
static void unescape(char *text)
{
	char *to = text;
	for (const char *from = text; *from != '\0'; to++) {
		if (from[0] == '\\' && strspn(from + 1, "01234567") >= 3) {
			*to = (char)((from[1] - '0') << 6 | (from[2] - '0') << 3 | (from[3] - '0'));
			from += 4;
		} else {
			*to = *from++;
		}
	}
	*to = '\0';
}

/* Copies the first word of the text. */
static void copy_source(char *text, char *ret_source)
{
	text[strcspn(text, " \n")] = '\0';
	unescape(text);
	(void)snprintf(ret_source, PATH_MAX, "%s", text);
}

/* Whether the topmost mount that matches is one of ours: on a path, or of a device where that is
 * NULL. Does not access the path itself, whose mount may be dead. It compares the path as text, so
 * it should be an absolute one without links. ret_source (PATH_MAX bytes, or NULL): the mount's
 * source, if it is ours. */
static bool is_lapis_mount(const char *dir, dev_t dev, char *ret_source)
{
	enum { DEVICE = 2, PATH = 4, FIELDS };
	char *line = NULL;
	size_t size = 0;
	bool is_ours = false;
	char wanted[32];
	FILE *table = fopen("/proc/self/mountinfo", "re");
	if (table == NULL)
		return false;
	(void)snprintf(wanted, sizeof(wanted), "%u:%u", major(dev), minor(dev));
	while (getline(&line, &size, table) > 0) {
		char *rest = line;
		char *fields[FIELDS];
		for (uint32_t i = 0; i < FIELDS; i++)
			fields[i] = strsep(&rest, " ");
		char *type = rest == NULL ? NULL : strstr(rest, " - ");
		if (type == NULL)
			continue;
		unescape(fields[PATH]);
		if (strcmp(fields[dir == NULL ? DEVICE : PATH], dir == NULL ? wanted : dir) != 0)
			continue;
		is_ours = strncmp(type + 3, TYPE " ", sizeof(TYPE)) == 0;
		if (is_ours && ret_source != NULL)
			copy_source(type + 3 + sizeof(TYPE), ret_source);
	}
	free(line);
	(void)fclose(table); /* it was only read */
	return is_ours;
}

bool lp_fuse_is_mount(dev_t dev)
{
	return is_lapis_mount(NULL, dev, NULL);
}

bool lpi_fuse_is_ours(const char *path)
{
	return is_lapis_mount(path, 0, NULL);
}

bool lpi_fuse_is_ours_of(const char *path, char *ret_source)
{
	return is_lapis_mount(path, 0, ret_source);
}

static int run_fusermount(const char *dir, bool lazy)
{
	int status = 0;
	pid_t pid = fork();
	if (pid < 0)
		return -errno;
	if (pid == 0) {
		(void)execlp("fusermount3", "fusermount3", "-u", "-q", lazy ? "-z" : "--", dir,
			     (char *)NULL);
		_exit(127);
	}
	if (waitpid(pid, &status, 0) < 0)
		return -errno;
	return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -EPERM;
}

int lpi_fuse_unmount(const char *dir, bool lazy)
{
	if (umount2(dir, UMOUNT_NOFOLLOW | (lazy ? MNT_DETACH : 0)) == 0)
		return 0;
	return errno == EPERM ? run_fusermount(dir, lazy) : -errno;
}

static int append(char *path, const char *name)
{
	size_t len = strlen(path);
	size_t name_len = strlen(name);
	if (len + 1 + name_len >= PATH_MAX)
		return -ENAMETOOLONG;
	if (len > 1)
		path[len++] = '/';
	memcpy(path + len, name, name_len + 1);
	return 0;
}

/* The directories above a dead mount are alive. */
int lpi_fuse_real_path(const char *dir, char *ret_path)
{
	char above[PATH_MAX];
	if (realpath(dir, ret_path) != NULL)
		return 0;
	if (errno != ENOTCONN && errno != EIO && errno != ECONNABORTED)
		return -errno;
	size_t len = strlen(dir);
	while (len > 1 && dir[len - 1] == '/')
		len--;
	if (len >= sizeof(above))
		return -ENAMETOOLONG;
	memcpy(above, dir, len);
	above[len] = '\0';
	char *slash = strrchr(above, '/');
	const char *last = slash == NULL ? above : slash + 1;
	char name[PATH_MAX];
	(void)snprintf(name, sizeof(name), "%s", last);
	if (slash == NULL)
		(void)snprintf(above, sizeof(above), ".");
	else
		slash[slash == above ? 1 : 0] = '\0';
	if (realpath(above, ret_path) == NULL)
		return -errno;
	return append(ret_path, name);
}

int lp_fuse_umount(const char *dir, bool lazy)
{
	char path[PATH_MAX];
	int err = lpi_fuse_real_path(dir, path);
	if (err < 0)
		return err;
	return lpi_fuse_is_ours(path) ? lpi_fuse_unmount(path, lazy) : -EINVAL;
}
