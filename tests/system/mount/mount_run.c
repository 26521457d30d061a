/* SPDX-License-Identifier: Apache-2.0 */
/* mount_run TRIALS: in the working directory a set-user-ID program of root's, which is a copy of
 * this one, is changed by user 1001 while user 1001 runs it. Fails if it ever ran as root with what
 * he has written to it. Without an argument it is that program: its exit status says what it is. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define OTHER     1001
#define TRIES_MAX 3000
#define SPIN      200

enum { IS_EVIL = 1, IS_ROOT = 2, IS_BUSY = 100, IS_WRONG = 101 };

static volatile char marker[] = "MARK:good";

static char image[4 << 20];
static ssize_t image_bytes;
static off_t marker_at;

static void drop(void)
{
	if (setgroups(0, NULL) < 0 || setresgid(OTHER, OTHER, OTHER) < 0 ||
	    setresuid(OTHER, OTHER, OTHER) < 0)
		_exit(IS_WRONG);
}

static void wait_for(const volatile int *go, long delay)
{
	while (!*go)
		continue;
	for (volatile long i = 0; i < delay * SPIN; i++)
		continue;
}

static void change(const volatile int *go, long delay)
{
	drop();
	int fd = open("program", O_WRONLY);
	if (fd < 0) /* it is being run already */
		_exit(errno == ETXTBSY ? 0 : IS_WRONG);
	wait_for(go, delay);
	/* The program may be open to be run just then. */
	if (pwrite(fd, "MARK:evil", 9, marker_at) != 9 && errno != ETXTBSY)
		_exit(IS_WRONG);
	_exit(close(fd) == 0 ? 0 : IS_WRONG);
}

static void run(const volatile int *go, long delay)
{
	drop();
	wait_for(go, delay);
	for (int i = 0; i < TRIES_MAX; i++) {
		int status = 0;
		pid_t pid = fork();
		if (pid == 0) {
			(void)execl("./program", "program", (char *)NULL);
			_exit(errno == ETXTBSY ? IS_BUSY : IS_WRONG);
		}
		if (waitpid(pid, &status, 0) < 0 || !WIFEXITED(status))
			_exit(IS_WRONG);
		if (WEXITSTATUS(status) != IS_BUSY)
			_exit(WEXITSTATUS(status));
	}
	_exit(IS_BUSY);
}

static int await(pid_t pid)
{
	int status = 0;
	if (waitpid(pid, &status, 0) < 0 || !WIFEXITED(status))
		return IS_WRONG;
	return WEXITSTATUS(status);
}

static int try_once(volatile int *go)
{
	struct stat st;
	(void)unlink("program");
	int fd = open("program", O_CREAT | O_EXCL | O_WRONLY, 0700);
	if (fd < 0 || write(fd, image, (size_t)image_bytes) != image_bytes || close(fd) < 0 ||
	    chmod("program", 04777) < 0 || stat("program", &st) < 0)
		return IS_WRONG;
	*go = 0;
	long delays[2] = {random() % 400, random() % 400};
	pid_t writer = fork();
	if (writer == 0)
		change(go, delays[0]);
	pid_t runner = fork();
	if (runner == 0)
		run(go, delays[1]);
	(void)usleep(500);
	*go = 1;
	int changed = await(writer);
	int ran = await(runner);
	return changed == 0 ? ran : IS_WRONG;
}

int main(int argc, char **argv)
{
	int counts[256] = {0};
	if (argc < 2)
		return (marker[5] == 'e' ? IS_EVIL : 0) | (geteuid() == 0 ? IS_ROOT : 0);
	/* The marker is to be all there is of its kind in the image. */
	char key[9];
	for (size_t i = 0; i < sizeof(key); i++)
		key[i] = marker[i];
	int fd = open("/proc/self/exe", O_RDONLY);
	image_bytes = read(fd, image, sizeof(image));
	char *found = memmem(image, (size_t)image_bytes, key, sizeof(key));
	volatile int *go =
		mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (found == NULL || go == MAP_FAILED)
		return IS_WRONG;
	marker_at = found - image;
	for (int i = 0; i < (int)strtol(argv[1], NULL, 10); i++)
		counts[try_once(go)]++;
	printf("good as root %d, evil as who runs it %d, evil as root %d, busy %d, else %d\n",
	       counts[IS_ROOT], counts[IS_EVIL], counts[IS_EVIL | IS_ROOT], counts[IS_BUSY],
	       counts[IS_WRONG] + counts[0]);
	return counts[IS_EVIL | IS_ROOT] + counts[IS_WRONG] + counts[0] > 0 ? 1 : 0;
}
