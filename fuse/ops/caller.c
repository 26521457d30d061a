/* SPDX-License-Identifier: Apache-2.0 */
/* The line "Groups:" has the numbers, with a space behind each. The name of a process cannot
 * imitate that line, because the kernel writes a line's end in it as . */
#include "fuse/ops/caller.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LINE "\nGroups:"

#define STATUS_BYTES 8192u

bool lpi_fuse_status_has_group(const char *status, uint32_t gid)
{
	const char *at = strstr(status, LINE);
	if (at == NULL)
		return false;
	at += strlen(LINE);
	at += strspn(at, " \t");
	while (*at >= '0' && *at <= '9') {
		char *end = NULL;
		unsigned long group = strtoul(at, &end, 10);
		/* A number at the end of the text may be cut off. */
		if (group == gid && *end != '\0')
			return true;
		at = end + strspn(end, " ");
	}
	return false;
}

/* Returns the number of bytes read; a 0 follows them. */
static size_t read_all(int fd, char *text, size_t size)
{
	size_t used = 0;
	while (used < size - 1) {
		ssize_t len = read(fd, text + used, size - 1 - used);
		if (len <= 0)
			break;
		used += (size_t)len;
	}
	text[used] = '\0';
	return used;
}

bool lpi_fuse_caller_is_in(const struct fuse_in_header *header, uint32_t gid)
{
	char path[64];
	char text[STATUS_BYTES];
	if (header->gid == gid)
		return true;
	if (header->pid == 0)
		return false;
	(void)snprintf(path, sizeof(path), "/proc/%u/status", header->pid);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	bool is_in = read_all(fd, text, sizeof(text)) > 0 && lpi_fuse_status_has_group(text, gid);
	(void)close(fd); /* it was only read */
	return is_in;
}
