/* SPDX-License-Identifier: Apache-2.0 */
#include "fuse/mount/guard.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* It is beside the directory of this program. */
static int find_program(char *path, size_t size)
{
	char exe[PATH_MAX];
	ssize_t len = readlink("/proc/self/exe", exe, sizeof(exe) - 1);
	if (len < 0)
		return -errno;
	exe[len] = '\0';
	for (int i = 0; i < 2; i++) {
		char *slash = strrchr(exe, '/');
		if (slash == NULL)
			return -ENOENT;
		*slash = '\0';
	}
	len = snprintf(path, size, "%s/libexec/" LPI_FUSE_GUARD_PROGRAM, exe);
	return len < 0 || (size_t)len >= size ? -ENAMETOOLONG : 0;
}

/* The guard has the descriptor as its standard input, and nothing else of ours. */
static int spawn(const char *path, int abort_fd, pid_t *ret_pid)
{
	posix_spawn_file_actions_t files;
	char name[] = LPI_FUSE_GUARD_PROGRAM;
	char parent[16];
	char *argv[] = {name, parent, NULL};
	char *envp[] = {NULL};
	(void)snprintf(parent, sizeof(parent), "%d", (int)getpid());
	int err = -posix_spawn_file_actions_init(&files);
	if (err < 0)
		return err;
	err = -posix_spawn_file_actions_adddup2(&files, abort_fd, STDIN_FILENO);
	if (err == 0)
		err = -posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, "/dev/null",
							O_WRONLY, 0);
	if (err == 0)
		err = -posix_spawn_file_actions_adddup2(&files, STDOUT_FILENO, STDERR_FILENO);
	if (err == 0)
		err = -posix_spawn_file_actions_addclosefrom_np(&files, STDERR_FILENO + 1);
	if (err == 0)
		err = -posix_spawn(ret_pid, path, &files, NULL, argv, envp);
	(void)posix_spawn_file_actions_destroy(&files); /* cannot fail */
	return err;
}

int lpi_fuse_guard_start(int abort_fd, pid_t *ret_pid)
{
	char path[PATH_MAX];
	int err = find_program(path, sizeof(path));
	return err < 0 ? err : spawn(path, abort_fd, ret_pid);
}

void lpi_fuse_guard_stop(pid_t pid)
{
	if (pid == 0)
		return;
	(void)kill(pid, SIGKILL);
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		continue;
}
